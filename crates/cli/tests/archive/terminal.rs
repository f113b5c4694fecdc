//! Names and texts of others that a terminal would obey.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use super::*;

/// Control characters other than the line ends and tabs of our own.
fn is_clean(bytes: &[u8]) -> bool {
    let text = String::from_utf8_lossy(bytes);
    !text.chars().any(|c| c.is_control() && c != '\n' && c != '\t')
        && !text.lines().any(|line| line.starts_with("forged"))
}

#[test]
fn control_characters_never_reach_a_terminal() {
    let place = Place::new();
    place.words("gen -c 300 -w plain.pcapng").done();
    // A capture with a hostile name, whose interface has one as well.
    let name = OsStr::from_bytes(b"a\x1b]0;title\x07\x9b31m\nforged\r\xff\xc2\x9b.pcapng");
    let mut file = std::fs::File::create(place.0.path().join(name)).unwrap();
    let mut interface = Interface::new(1, 1_000_000_000);
    interface.name = "eth\u{1b}[2J\nforged".to_owned();
    let mut writer =
        CaptureWriter::new(&mut file, FileFormat::Pcapng, &[interface], "c\u{1b}[31m").unwrap();
    for (time_ns, wire_len, data) in packets(&place.path("plain.pcapng")) {
        writer.packet(0, time_ns, wire_len, &data).unwrap();
    }
    writer.finish().unwrap();
    drop(file);
    let run = |args: &[&str], with_name: bool| {
        let mut command = place.command(args);
        if with_name {
            command.arg(name);
        }
        let output = command.stdin(Stdio::null()).output().unwrap();
        for (stream, bytes) in [("output", &output.stdout), ("error", &output.stderr)] {
            let text = String::from_utf8_lossy(bytes);
            assert!(is_clean(bytes), "{args:?}: standard {stream}: {text:?}");
        }
        output
    };
    assert!(run(&["index"], true).status.success());
    let asked: [&[&str]; 14] = [
        &["search", "-c", "3", "tcp"],
        &["search", "--json", "-c", "3", "tcp"],
        &["search", "--csv", "-c", "3", "tcp"],
        &["search", "--count", "ip.src == 1.2.3.4\u{1b}[31m"],
        &["search", "--count", "host \u{1b}[31m"],
        &["search", "--count", "--from", "\u{1b}[31m", "tcp"],
        &["info", "--fields", "--segments"],
        &["info", "--json", "--fields", "--segments"],
        &["verify"],
        &["top", "interface"],
        &["top", "interface", "--json"],
        &["hist"],
        &["explain", "tcp"],
        &["extract", "tcp", "-w", "x\u{1b}[31m\nforged/none.pcapng"],
    ];
    for args in asked {
        run(args, false);
    }
    // What fails names files.
    std::fs::write(place.0.path().join(name), b"nothing").unwrap();
    for args in [&["verify"][..], &["search", "-c", "3", "tcp"], &["index"], &["repair"]] {
        run(args, args == ["index"]);
    }
    for args in
        [&["search", "-r"][..], &["info", "-r"], &["verify", "-r"], &["search", "--filter-file"]]
    {
        assert!(!run(args, true).status.success());
    }
    run(&["search", "--\u{1b}[31m"], false);
}
