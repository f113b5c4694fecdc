//! The commands in the pages, run as they stand there.
//!
//! A `console` block holds lines that start with `$ ` and, after each, what the command prints. A
//! command that ends in `|` goes on in the next line, which starts with `> `. The commands of a
//! page run one after the other in a folder of their own.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::path::{Path, PathBuf};
use std::process::Command;

/// A command of a page and what it prints there.
struct Example {
    line: usize,
    command: String,
    expected: String,
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// The pages of a folder, by name.
fn pages(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = folder.read_dir() else { return vec![] };
    let paths = entries.map(|entry| entry.unwrap().path());
    let mut pages: Vec<_> = paths.filter(|path| path.extension() == Some("md".as_ref())).collect();
    pages.sort();
    pages
}

/// The examples of a page, block by block.
fn blocks(text: &str) -> Vec<Vec<Example>> {
    let mut blocks: Vec<Vec<Example>> = vec![];
    let mut inside = false;
    for (index, line) in text.lines().enumerate() {
        if inside && line == "```" {
            inside = false;
        } else if !inside && line == "```console" {
            inside = true;
            blocks.push(vec![]);
        } else if inside {
            let block = blocks.last_mut().unwrap();
            if let Some(command) = line.strip_prefix("$ ") {
                let (command, expected) = (command.to_owned(), String::new());
                block.push(Example { line: index + 1, command, expected });
                continue;
            }
            let last = block.last_mut();
            let last = last.unwrap_or_else(|| panic!("output before a command: {line}"));
            match line.strip_prefix("> ") {
                Some(more) if last.command.ends_with('|') => {
                    last.command.push('\n');
                    last.command.push_str(more);
                }
                _ => {
                    last.expected.push_str(line);
                    last.expected.push('\n');
                }
            }
        }
    }
    assert!(!inside, "a console block without an end");
    blocks
}

/// Says what is wrong with an example; nothing if it prints what the page says.
fn check(page: &Path, folder: &Path, example: &Example) -> Option<String> {
    let tapdex = Path::new(env!("CARGO_BIN_EXE_tapdex"));
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = [tapdex.parent().unwrap().to_owned()];
    let path = std::env::join_paths(folders.into_iter().chain(std::env::split_paths(&path)));
    let output = Command::new("sh")
        .args(["-c", &example.command])
        .current_dir(folder)
        .env("PATH", path.unwrap())
        .output()
        .unwrap();
    let printed = String::from_utf8_lossy(&output.stdout);
    if output.status.success() && printed == example.expected {
        return None;
    }
    Some(format!(
        "{}:{}: $ {}\n--- the page says\n{}--- it prints ({})\n{printed}{}",
        page.display(),
        example.line,
        example.command,
        example.expected,
        output.status,
        String::from_utf8_lossy(&output.stderr),
    ))
}

/// Runs all examples of the pages and returns how many blocks there were.
fn check_all(pages: &[PathBuf]) -> usize {
    let mut count = 0;
    let mut wrong = vec![];
    for page in pages {
        let text = std::fs::read_to_string(page).unwrap();
        let blocks = blocks(&text);
        count += blocks.len();
        let folder = tempfile::tempdir().unwrap();
        let examples = blocks.iter().flatten();
        wrong.extend(examples.filter_map(|example| check(page, folder.path(), example)));
    }
    assert!(wrong.is_empty(), "{} examples differ:\n\n{}", wrong.len(), wrong.join("\n"));
    count
}

#[test]
fn codec_pages_show_what_the_commands_print() {
    let blocks = check_all(&pages(&root().join("docs/codecs")));
    assert!(blocks >= 40, "only {blocks} console blocks found in docs/codecs");
}

#[test]
fn other_pages_show_what_the_commands_print() {
    let mut others = pages(&root().join("docs"));
    others.extend(Some(root().join("README.md")).filter(|page| page.exists()));
    check_all(&others);
}
