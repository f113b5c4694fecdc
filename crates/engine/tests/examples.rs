//! The examples, run; and the one that stands in docs/library.md.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a failed test panics")]

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::Path;

use tapdex_engine::archive::Archive;
use tapdex_engine::capture::{CaptureWriter, FileFormat, Interface, blocks};
use tapdex_engine::query::{Control, SearchError, Value};
use tapdex_engine::traffic::{Profile, Traffic};

#[path = "../examples/follow_recording.rs"]
#[allow(dead_code, unreachable_pub, reason = "it is a program of its own")]
mod follow_recording;
#[path = "../examples/index_and_search.rs"]
#[allow(dead_code, unreachable_pub, reason = "it is a program of its own")]
mod index_and_search;
#[path = "../examples/top_talkers.rs"]
#[allow(dead_code, unreachable_pub, reason = "it is a program of its own")]
mod top_talkers;

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

fn write_capture(path: &Path, packets: u64) {
    let ethernet = Interface::new(1, 1_000_000_000);
    let file = File::create(path).unwrap();
    let mut writer = CaptureWriter::new(file, FileFormat::Pcap, &[ethernet], "").unwrap();
    let mut traffic = Traffic::new(&Profile { packets, ..Profile::default() });
    while let Some(packet) = traffic.next() {
        writer.packet(0, packet.time_ns, packet.wire_len, packet.data).unwrap();
    }
    drop(writer.finish().unwrap());
}

#[test]
fn index_and_search_stops_at_its_limit_and_when_it_is_cancelled() {
    let folder = tempfile::tempdir().unwrap();
    let [captures, archive] = ["captures", "archive"].map(|name| folder.path().join(name));
    fs::create_dir(&captures).unwrap();
    write_capture(&captures.join("a.pcap"), 2_000);
    let run = |filter: &str, control: &Control| {
        index_and_search::run([text(&captures), text(&archive), filter], control)
    };
    assert_eq!(run("tcp", &Control::default()).unwrap(), 5);
    assert_eq!(run("tcp port 1 and tcp port 2", &Control::default()).unwrap(), 0);
    assert!(run("tcp prot 1", &Control::default()).is_err());
    let control = Control::default();
    control.cancel();
    let error = run("tcp", &control).unwrap_err();
    assert!(matches!(error.downcast_ref(), Some(SearchError::Cancelled)), "{error}");
}

#[test]
fn top_talkers_counts_both_ends() {
    let folder = tempfile::tempdir().unwrap();
    let [captures, archive] = ["captures", "archive"].map(|name| folder.path().join(name));
    fs::create_dir(&captures).unwrap();
    write_capture(&captures.join("a.pcap"), 2_000);
    index_and_search::run([text(&captures), text(&archive), ""], &Control::default()).unwrap();
    let (top, over_time) = top_talkers::run(text(&archive), "tcp or udp").unwrap();
    assert!(top.values.len() == 10 && top.distinct > 10);
    assert!(top.values.iter().all(|(value, _)| matches!(value, Value::Field(_))));
    let packets: u64 = over_time.counts.iter().sum();
    assert!(packets > 1_000 && top.total <= 2 * packets && top.total > packets);
}

#[test]
fn follow_recording_sees_what_is_written_while_it_runs() {
    let folder = tempfile::tempdir().unwrap();
    let archive = Archive::create(&folder.path().join("archive"), None).unwrap();
    let recording = archive.new_recording(1_790_000_000_000_000_000, 0).unwrap();
    let mut bytes = Vec::new();
    blocks::section(&mut bytes, "a recording");
    blocks::interface(&mut bytes, &Interface::new(1, 1_000_000_000), "");
    fs::write(recording.unfinished_path(), &bytes).unwrap();
    let mut traffic = Traffic::new(&Profile { packets: 20, ..Profile::default() });
    let mut write = |packets: usize| {
        let mut bytes = Vec::new();
        for _ in 0..packets {
            let packet = traffic.next().unwrap();
            blocks::packet(&mut bytes, 0, packet.time_ns, packet.wire_len, packet.data);
        }
        let file = OpenOptions::new().append(true).open(recording.unfinished_path());
        file.unwrap().write_all(&bytes).unwrap();
    };
    write(5);
    let mut seen = 0;
    follow_recording::run(text(archive.folder()), "", &mut |_| {
        seen += 1;
        // The search is at its end, and what comes now is followed.
        if seen == 5 {
            write(15);
        }
        seen < 20
    })
    .unwrap();
    assert_eq!(seen, 20);
}

/// The page has the program that is run above, word for word, and it is as short as it says.
#[test]
fn the_page_has_the_example() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let program = fs::read_to_string(root.join("examples/index_and_search.rs")).unwrap();
    let page = fs::read_to_string(root.join("../../docs/library.md")).unwrap();
    assert!(page.contains(&format!("```rust\n{program}```\n")), "copy the example into the page");
    let code = program.lines().filter(|line| !line.is_empty() && !line.starts_with("//"));
    assert!(code.count() <= 30);
}
