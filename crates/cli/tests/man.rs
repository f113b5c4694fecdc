//! Manual pages and completions, judged by the programs that they are for.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::collections::BTreeSet;
use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use tempfile::TempDir;

fn tapdex(args: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_tapdex")).args(args).output().unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{args:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// Runs another's program on some input; nothing if it is not installed.
fn run(program: &str, args: &[&str], input: &str) -> Option<Output> {
    let mut command = Command::new(program);
    command.args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let Ok(mut child) = command.spawn() else {
        eprintln!("{program} is not installed: passed over");
        return None;
    };
    // It may end before it has read all.
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    Some(child.wait_with_output().unwrap())
}

/// The pages of all commands, in a folder.
fn pages() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    assert_eq!(tapdex(&["man", folder.path().join("new/man1").to_str().unwrap()]), "");
    folder
}

fn names(folder: &Path) -> BTreeSet<String> {
    let entries = fs::read_dir(folder).unwrap();
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

/// The commands that the help of a command lists.
fn listed(path: &[&str]) -> Vec<String> {
    let help = tapdex(&[path, &["--help"]].concat());
    let lines = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    let lines = lines.take_while(|line| !line.is_empty());
    // Further lines of a description are indented more.
    let lines =
        lines.filter_map(|line| line.strip_prefix("  ").filter(|line| !line.starts_with(' ')));
    let commands = lines.map(|line| line.split(' ').next().unwrap().to_owned());
    commands.filter(|command| command != "help").collect()
}

/// A command and all below it.
fn tree(path: &[&str]) -> Vec<Vec<String>> {
    let mut found = vec![path.iter().map(|&word| word.to_owned()).collect()];
    for command in listed(path) {
        found.extend(tree(&[path, &[&command]].concat()));
    }
    found
}

#[test]
fn every_command_has_a_page() {
    let folder = pages();
    let commands = tree(&[]);
    assert!(commands.len() > 20, "{commands:?}");
    let expected: BTreeSet<String> = commands
        .iter()
        .map(|path| format!("{}.1", [&["tapdex".to_owned()][..], path].concat().join("-")))
        .collect();
    assert_eq!(names(&folder.path().join("new/man1")), expected);
}

#[test]
fn the_page_of_tapdex_is_what_is_printed() {
    let folder = pages();
    let page = fs::read_to_string(folder.path().join("new/man1/tapdex.1")).unwrap();
    assert_eq!(tapdex(&["man"]), page);
}

#[test]
fn a_folder_that_cannot_be_made_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    fs::write(&file, "").unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_tapdex"));
    let output = command.arg("man").arg(file.join("man1")).output().unwrap();
    assert_eq!(output.status.code(), Some(4));
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(
        text.starts_with("tapdex: cannot create folder ") && text.lines().count() == 1,
        "{text}"
    );
}

/// The text of a page as groff shows it.
fn shown(page: &str) -> Option<String> {
    let output = run("groff", &["-man", "-Tascii", "-P-cbou", "-rLL=200n", "-rHY=0"], page)?;
    assert!(output.status.success(), "{output:?}");
    Some(String::from_utf8(output.stdout).unwrap())
}

#[test]
fn groff_finds_nothing_wrong() {
    let folder = pages();
    for name in names(&folder.path().join("new/man1")) {
        let page = fs::read_to_string(folder.path().join("new/man1").join(&name)).unwrap();
        let Some(output) = run("groff", &["-man", "-ww", "-z"], &page) else { return };
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && text.is_empty(), "{name}: {text}");
    }
}

#[test]
fn mandoc_finds_nothing_wrong() {
    let folder = pages();
    for name in names(&folder.path().join("new/man1")) {
        let page = fs::read_to_string(folder.path().join("new/man1").join(&name)).unwrap();
        let Some(output) = run("mandoc", &["-Tlint", "-Wwarning"], &page) else { return };
        let text = String::from_utf8_lossy(&output.stdout);
        // No date: the version is in the corner. And lists of values have a break too many.
        let known = ["missing date", "skipping paragraph macro: br"];
        let wrong = text.lines().filter(|line| !known.iter().any(|known| line.contains(known)));
        let wrong: Vec<&str> = wrong.collect();
        assert!(wrong.is_empty(), "{name}: {wrong:#?}");
    }
}

/// A reader copies commands: each stands on its line, with quotes and dashes as they are typed.
#[test]
fn examples_are_shown_as_in_the_help() {
    let mut examples = 0;
    let folder = pages();
    for path in tree(&[]) {
        let words: Vec<&str> = path.iter().map(String::as_str).collect();
        let name = [&["tapdex"], &words[..]].concat().join("-");
        let page = folder.path().join(format!("new/man1/{name}.1"));
        let Some(shown) = shown(&fs::read_to_string(page).unwrap()) else { return };
        let lines: BTreeSet<&str> = shown.lines().map(str::trim).collect();
        let help = tapdex(&[&words[..], &["--help"]].concat());
        let description = help.split("\nUsage:").next().unwrap();
        for example in description.lines().filter_map(|line| line.strip_prefix("    ")) {
            assert!(lines.contains(example.trim()), "{name}: {example}\n{shown}");
            examples += 1;
        }
    }
    assert!(examples > 50, "{examples}");
}

/// The last line of a page has the version at its left, and no date.
#[test]
fn a_page_ends_with_the_version() {
    let Some(shown) = shown(&tapdex(&["man"])) else { return };
    let last: Vec<&str> = shown.trim_end().lines().last().unwrap().split_whitespace().collect();
    assert_eq!(last, ["tapdex", env!("CARGO_PKG_VERSION"), "TAPDEX(1)"]);
}

/// The index of manual pages is made of these lines.
#[test]
fn names_stand_on_one_line() {
    let folder = pages();
    for name in names(&folder.path().join("new/man1")) {
        let page = fs::read_to_string(folder.path().join("new/man1").join(&name)).unwrap();
        let Some(shown) = shown(&page) else { return };
        let mut lines = shown.lines().skip_while(|line| *line != "NAME").skip(1);
        let line = lines.next().unwrap().trim().to_owned();
        let stem = name.strip_suffix(".1").unwrap();
        assert!(line.starts_with(&format!("{stem} - ")), "{line}");
        assert_eq!(lines.next(), Some(""), "{shown}");
    }
}

/// What bash offers for a line, by way of the function that the script registers.
fn offered(words: &str, word: &str) -> Option<Vec<String>> {
    let script = format!(
        "{}\n\
         function=$(complete -p tapdex | sed 's/.* -F \\([^ ]*\\) .*/\\1/')\n\
         COMP_WORDS=({words} {word:?})\n\
         COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))\n\
         COMP_LINE=\"${{COMP_WORDS[*]}}\" COMP_POINT=${{#COMP_LINE}}\n\
         \"$function\" tapdex {word:?} \"${{COMP_WORDS[COMP_CWORD - 1]}}\"\n\
         printf '%s\\n' \"${{COMPREPLY[@]}}\"\n",
        tapdex(&["completion", "bash"])
    );
    let output = run("bash", &["--norc", "--noprofile"], &script)?;
    // Options of readline have no place outside of it, and bash says so.
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && !text.contains("not found"), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    Some(text.lines().map(str::to_owned).collect())
}

#[test]
fn bash_completes_commands_and_options() {
    let Some(found) = offered("tapdex", "sea") else { return };
    assert_eq!(found, ["search"]);
    assert_eq!(offered("tapdex search", "--coun").unwrap(), ["--count"]);
    assert_eq!(offered("tapdex search --syntax", "w").unwrap(), ["wireshark"]);
    assert_eq!(offered("tapdex completion", "ba").unwrap(), ["bash"]);
    assert_eq!(offered("tapdex top", "ip.tt").unwrap(), ["ip.ttl"]);
    let all = offered("tapdex", "").unwrap();
    for command in listed(&[]) {
        assert!(all.contains(&command), "{command} in {all:?}");
    }
}

#[test]
fn shells_accept_their_scripts() {
    for (shell, args) in [("bash", ["-n"]), ("zsh", ["-n"]), ("fish", ["--no-execute"])] {
        let script = tapdex(&["completion", shell]);
        assert!(script.contains("index-file"), "{shell}");
        let Some(output) = run(shell, &args, &script) else { continue };
        assert!(output.status.success() && output.stderr.is_empty(), "{shell}: {output:?}");
    }
}

#[test]
fn a_shell_that_is_not_known_is_refused() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tapdex"));
    let output = command.args(["completion", "sh"]).output().unwrap();
    assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0));
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(text.contains("bash") && text.contains("zsh") && text.contains("fish"), "{text}");
}

#[test]
fn the_examples_of_the_help_run() {
    let folder = tempfile::tempdir().unwrap();
    let bin = Path::new(env!("CARGO_BIN_EXE_tapdex")).parent().unwrap().to_owned();
    let path = std::env::var_os("PATH").unwrap_or_default();
    let path = std::env::join_paths([bin].into_iter().chain(std::env::split_paths(&path))).unwrap();
    for command in ["man", "completion"] {
        let help = tapdex(&[command, "--help"]);
        let description = help.split("\nUsage:").next().unwrap();
        let examples = description.lines().filter_map(|line| line.strip_prefix("    "));
        let mut count = 0;
        for example in examples {
            count += 1;
            if example.starts_with("man ") && run("man", &["--version"], "").is_none() {
                continue;
            }
            let mut shell = Command::new("sh");
            shell.args(["-c", example]).current_dir(&folder).env("HOME", folder.path());
            let output = shell.env("PATH", &path).env("MANPAGER", "cat").output().unwrap();
            assert!(output.status.success() && output.stderr.is_empty(), "{example}: {output:?}");
        }
        assert!(count >= 3, "{help}");
    }
    for file in ["tapdex.1", "man1/tapdex-index-file-build.1", ".zfunc/_tapdex"] {
        assert!(folder.path().join(file).is_file(), "{file}");
    }
}
