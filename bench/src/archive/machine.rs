//! Where and with what was measured.

use std::process::Command;

use tapdex_bench::page::{commit, first_line, machine};

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

/// Versions of tcpdump, libpcap and, if asked for, tshark.
pub fn peers(tshark: bool) -> String {
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
