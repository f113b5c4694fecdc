//! What a recorder can reach once it records: its archive and its sockets.

use crate::wire::{Recorder, Wire};

/// What has to be refused, and what has to work.
const REFUSED: [&str; 10] = [
    "read /etc/passwd",
    "list /",
    "write outside the archive",
    "start a program",
    "become a program",
    "connect to a server",
    "listen on a port",
    "send a signal to another process",
    "change the user",
    "change the root folder",
];
const POSSIBLE: [&str; 2] = ["write into the archive", "start a thread"];

/// Whether the kernel has landlock to the full, by what the check says of it.
fn has_landlock(rows: &str) -> bool {
    rows.lines().any(|row| row.starts_with("ok  landlock "))
}

#[track_caller]
fn check_rows(rows: &str) {
    let row = |name: &str| {
        let found = rows.lines().find(|row| row.get(4..).is_some_and(|row| row.starts_with(name)));
        found.unwrap_or_else(|| panic!("{name}: {rows}")).to_owned()
    };
    assert!(row("bounding set").ends_with(" empty"), "{rows}");
    assert!(row("new privileges").ends_with(" ruled out"), "{rows}");
    assert!(row("seccomp").starts_with("ok  seccomp "), "{rows}");
    for name in POSSIBLE {
        assert!(row(name).ends_with(" possible"), "{rows}");
    }
    for name in REFUSED {
        // What only landlock can refuse.
        let is_file = ["read /etc/passwd", "list /", "write outside the archive"].contains(&name);
        if has_landlock(rows) || !is_file {
            assert!(row(name).ends_with(" refused"), "{rows}");
        }
    }
}

#[test]
fn what_it_should_not_do_is_tried() {
    let Some(wire) = Wire::new() else { return };
    wire.sh("tapdex gen -c 100 -w sent.pcap");
    wire.sh("tapdex record -i - -w archive --limit 100% --quiet < sent.pcap");
    wire.sh("chmod 711 . && chown -R nobody archive");
    for sources in ["-i v1", "-i -", "-i tcp://127.0.0.1:57012", ""] {
        let line = format!("tapdex record --check-sandbox --user nobody -w archive {sources}");
        let rows = wire.sh(&format!("{line} || test $? = 3"));
        check_rows(&rows);
        assert!(rows.contains("ok  user                              nobody"), "{rows}");
        // Whoever has no interface to open again may not open one.
        let keeps = if sources == "-i v1" { "cap_net_raw" } else { "none" };
        assert!(rows.contains(&format!("ok  capabilities                      {keeps}")), "{rows}");
        if has_landlock(&rows) {
            assert_eq!(wire.sh(&line), rows);
        }
    }
    // Nothing is left of it, and root that stays root is said to be.
    wire.sh("tapdex verify -r archive");
    assert!(!wire.path("archive/.sandbox-check").exists());
    let rows = wire.sh("tapdex record --check-sandbox -w archive -i v1 || test $? = 3");
    check_rows(&rows);
    assert!(rows.contains("NO  user                              root"), "{rows}");
    wire.run("record --check-sandbox -w archive -i v1").with(3, &["not hold"]);
    wire.run("record --check-sandbox --no-sandbox").with(2, &["cannot be used with"]);
}

/// What the kernel says of every thread of a recorder.
pub fn of_threads(recorder: &Recorder, name: &str) -> Vec<String> {
    let threads = std::fs::read_dir(format!("/proc/{}/task", recorder.pid())).unwrap();
    let of_thread = |path: std::path::PathBuf| {
        // It may have ended.
        let text = std::fs::read_to_string(path.join("status")).ok()?;
        let line = text.lines().find_map(|line| line.strip_prefix(&format!("{name}:")));
        line.map(|value| value.trim().to_owned())
    };
    threads.filter_map(|thread| of_thread(thread.unwrap().path())).collect()
}

#[test]
fn every_thread_is_confined() {
    let Some(wire) = Wire::new() else { return };
    wire.sh("tapdex gen -c 3000 --mean-len 200 -w sent.pcap");
    let recorder = wire.record("-i v1 --rotate 1000packets --metrics 127.0.0.1:0");
    let sent = wire.send("--file sent.pcap --pps 10000").packets;
    wire.settles(sent);
    let all = |name: &str, value: &str| {
        let found = of_threads(&recorder, name);
        assert!(found.len() >= 5, "{found:?}");
        assert!(found.iter().all(|one| one == value), "{name}: {found:?}");
    };
    all("Seccomp", "2");
    all("NoNewPrivs", "1");
    all("CapBnd", "0000000000000000");
    // CAP_NET_RAW, and CAP_DAC_OVERRIDE, as root is asked to stay root.
    all("CapPrm", &format!("{:016x}", 1 << 13 | 1 << 1));
    recorder.stop();
    assert_eq!(wire.count(""), sent);
}

#[test]
fn to_be_without_it_is_said_loudly() {
    let Some(wire) = Wire::new() else { return };
    let warning = "tapdex: WARNING: the sandbox is off";
    for how in ["--no-sandbox", "--no-sandbox --quiet", "--config off.toml"] {
        std::fs::write(wire.path("off.toml"), "sandbox = false\n").unwrap();
        let mut recorder =
            Recorder::start(&wire, &format!("record -i v1 -w archive --limit 100% {how}"));
        recorder.says(warning);
        if !how.contains("quiet") {
            recorder.says("tapdex: recording v1 into archive");
        }
        assert!(of_threads(&recorder, "Seccomp").iter().all(|value| value == "0"));
        recorder.signal("TERM");
        recorder.wait().with(0, &[]);
    }
    let mut recorder = Recorder::start(&wire, "record -i v1 -w archive --limit 100%");
    recorder.says("tapdex: recording v1 into archive");
    assert_eq!(of_threads(&recorder, "Seccomp")[0], "2");
    recorder.signal("TERM");
    recorder.wait().with(0, &[]);
}
