//! What a recorder says: in which form, and how much of it.

use std::fs::File;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

use crate::wire::TAPDEX;

const PACKETS: u64 = 3_000;

/// A folder with a capture in it.
fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let mut r#gen = Command::new(TAPDEX);
    r#gen
        .args(["gen", "--quiet", "-c", &PACKETS.to_string(), "-w"])
        .arg(folder.path().join("a.pcap"));
    assert!(r#gen.status().unwrap().success());
    folder
}

/// Records what is in a file of the folder.
fn record(folder: &Path, input: &str, options: &str) -> Output {
    let mut command = Command::new(TAPDEX);
    command.env_remove("TAPDEX_ARCHIVE").env_remove("TAPDEX_DEVICE");
    command.current_dir(folder).args(["record", "-i", "-", "-w", "archive"]);
    command.args(options.split_whitespace()).stdin(File::open(folder.join(input)).unwrap());
    command.output().unwrap()
}

fn text(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

/// The messages, each of which has what all of them have.
fn messages(output: &Output) -> Vec<Value> {
    let parse = |line: &str| {
        let message: Value = serde_json::from_str(line).unwrap_or_else(|e| panic!("{line}: {e}"));
        let time = message["timestamp"].as_str().unwrap();
        assert!(time.starts_with("20") && time.ends_with('Z'), "{line}");
        assert!(["ERROR", "WARN", "INFO", "DEBUG"].contains(&message["level"].as_str().unwrap()));
        assert!(message["message"].is_string() && message["target"].is_null(), "{line}");
        message
    };
    text(output).lines().map(parse).collect()
}

/// The messages of a level whose text contains something.
fn with<'a>(messages: &'a [Value], level: &str, text: &str) -> Vec<&'a Value> {
    let is_it = |message: &&Value| {
        message["level"] == level && message["message"].as_str().unwrap().contains(text)
    };
    messages.iter().filter(is_it).collect()
}

#[test]
fn json_has_the_packets_and_files_of_every_step() {
    let folder = folder();
    let options = "--log-format json --log-level debug --rotate 1000packets --max-segments 2";
    let output = record(folder.path(), "a.pcap", options);
    assert!(output.status.success(), "{}", text(&output));
    let said = messages(&output);
    let start = with(&said, "INFO", "recording standard input into archive");
    assert_eq!(start[0]["interfaces"], "standard input");
    assert_eq!(start[0]["archive"], "archive");
    let sum = |messages: &[&Value]| -> u64 {
        messages.iter().map(|message| message["packets"].as_u64().unwrap()).sum()
    };
    let complete = with(&said, "DEBUG", ": complete");
    assert!(complete.len() >= 3, "{}", text(&output));
    assert_eq!(sum(&complete), PACKETS);
    for message in &complete {
        assert!(message["file"].as_str().unwrap().ends_with(".pcapng"), "{message}");
        assert!(message["bytes"].as_u64().unwrap() > 0, "{message}");
    }
    let indexed = with(&said, "DEBUG", ": indexed");
    assert!(indexed.iter().all(|message| message["seconds"].is_f64()), "{}", text(&output));
    let removed = with(&said, "DEBUG", ": removed (limit: segments)");
    assert_eq!(removed.len() + 2, complete.len(), "{}", text(&output));
    let end = with(&said, "INFO", "recorded 3000 packets");
    assert_eq!(end[0]["packets"], PACKETS);
    assert_eq!(end[0]["lost"], 0);
    assert_eq!(end[0]["recordings"], complete.len());
    assert_eq!(end[0]["removed"], removed.len());
}

#[test]
fn an_error_is_json_too_and_the_exit_code_stays() {
    let folder = folder();
    let bytes = std::fs::read(folder.path().join("a.pcap")).unwrap();
    std::fs::write(folder.path().join("cut.pcap"), &bytes[..bytes.len() - 1]).unwrap();
    let output = record(folder.path(), "cut.pcap", "--log-format json --log-level error");
    assert_eq!(output.status.code(), Some(3));
    let said = messages(&output);
    assert_eq!(said.len(), 2, "{said:?}");
    assert_eq!(with(&said, "ERROR", "standard input: ")[0]["interface"], "standard input");
    assert_eq!(with(&said, "ERROR", "standard input could not be read completely").len(), 1);

    let output = record(folder.path(), "a.pcap", "--log-format json --rotate nonsense");
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(with(&messages(&output), "ERROR", "--rotate").len(), 1);
}

#[test]
fn text_is_for_people_and_levels_choose_from_it() {
    let folder = folder();
    let lines = |options: &str| {
        let output = record(folder.path(), "a.pcap", options);
        assert!(output.status.success(), "{}", text(&output));
        let said = text(&output);
        assert!(said.lines().all(|line| line.starts_with("tapdex: ")), "{said}");
        // Where the kernel has no such thing, that is said, but not to whoever wants it quiet.
        said.lines().filter(|line| !line.contains("the sandbox is")).count()
    };
    assert_eq!(lines("--log-format text"), 2);
    assert_eq!(lines("--log-level info"), 2);
    assert_eq!(lines("--log-level debug"), 4);
    assert_eq!(lines("--log-level warn"), 0);
    assert_eq!(record(folder.path(), "a.pcap", "--quiet").stderr, b"");
    let both = record(folder.path(), "a.pcap", "--quiet --log-level info");
    assert_eq!(both.status.code(), Some(2));
}

#[test]
fn a_file_of_settings_chooses_the_form_and_options_win() {
    let folder = folder();
    let config = "log-format = \"json\"\nlog-level = \"debug\"\n";
    std::fs::write(folder.path().join("record.toml"), config).unwrap();
    let output = record(folder.path(), "a.pcap", "--config record.toml");
    assert_eq!(with(&messages(&output), "DEBUG", ": complete").len(), 1);
    let output = record(folder.path(), "a.pcap", "--config record.toml --log-format text --quiet");
    assert_eq!(text(&output), "");
    std::fs::write(folder.path().join("record.toml"), "log-format = \"xml\"\n").unwrap();
    let output = record(folder.path(), "a.pcap", "--config record.toml");
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output).contains("log-format"), "{}", text(&output));
}
