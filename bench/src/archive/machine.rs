//! Where and with what was measured.

use std::fs;
use std::process::Command;

use super::process;

/// Prints lines of a table: date, commit, machine, compiler, and the versions of the peers.
pub fn describe(tshark: bool) {
    let line = |what: &str, value: Option<String>| {
        if let Some(value) = value {
            println!("| {what} | {value} |");
        }
    };
    line("date", first_line("date", &["-u", "+%Y-%m-%d"]));
    line("commit", commit());
    line("machine", machine());
    line("compiler", first_line("rustc", &["--version"]));
    line("peers", Some(peers(tshark)));
}

fn commit() -> Option<String> {
    let commit = first_line("git", &["rev-parse", "--short", "HEAD"])?;
    let is_changed = first_line("git", &["status", "--porcelain"]).is_some();
    Some(commit + if is_changed { ", with changes" } else { "" })
}

fn machine() -> Option<String> {
    let cpus = fs::read_to_string("/proc/cpuinfo").ok()?;
    let value = |text: &str, name: &str| {
        let line = text.lines().find(|line| line.starts_with(name))?;
        Some(line.split_once(':')?.1.trim().to_owned())
    };
    let (model, family) = (value(&cpus, "model name")?, value(&cpus, "cpu family"));
    let number = value(&cpus, "model\t");
    let memory = fs::read_to_string("/proc/meminfo").ok()?;
    let kib: u64 = value(&memory, "MemTotal")?.strip_suffix(" kB")?.parse().ok()?;
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let kind = family.zip(number).map_or(String::new(), |(f, n)| format!(", family {f} model {n}"));
    Some(format!("{model}{kind}, {cores} cores, {} GiB", (kib + (1 << 19)) >> 20))
}

fn peers(tshark: bool) -> String {
    let mut peers = Vec::new();
    // tcpdump says it on standard error in some versions.
    if let Ok(output) = Command::new("tcpdump").arg("--version").output() {
        let text = [output.stdout, output.stderr].concat();
        let text = String::from_utf8_lossy(&text).into_owned();
        peers.extend(text.lines().filter(|line| line.contains(" version ")).map(str::to_owned));
    }
    if tshark {
        peers.extend(first_line("tshark", &["--version"]));
    }
    peers.join("; ").replace('|', "/")
}

/// The first line that a program prints, if there is one.
fn first_line(program: &str, words: &[&str]) -> Option<String> {
    let output = process::run(Command::new(program).args(words)).ok()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.lines().next().map(|line| line.trim_end_matches('.').to_owned())
}
