//! Segments that know a field, and segments that do not, have the same answers.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a failed test panics")]

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tapdex_engine::archive::{Archive, Column, Compared, Ingest, Input, Segment};
use tapdex_engine::capture::{CaptureWriter, FileFormat, Interface};
use tapdex_engine::fields::{self, Field, FieldKind, FieldSet, NAMES, Shown};
use tapdex_engine::query::filter::Filter;
use tapdex_engine::query::{Answer, Query, count_name};
use tapdex_engine::storage::{Disk, Storage};
use tapdex_engine::testing::forge_note;
use tapdex_engine::time::TimeRange;
use tapdex_engine::traffic::{Profile, Traffic};

/// The fields that came after the first version.
fn later() -> Vec<Field> {
    FieldSet::ALL.iter().filter(|&field| !FieldSet::FIRST.contains(field)).collect()
}

/// A capture of made-up traffic, in which every fifth frame of IPv4 is changed by `change`, which
/// gets its IPv4 header.
fn write_capture(path: &Path, change: impl Fn(u8, &mut [u8])) {
    let interface = Interface::new(1, 1_000_000_000);
    let mut writer = CaptureWriter::new(Vec::new(), FileFormat::Pcap, &[interface], "").unwrap();
    let profile = Profile { packets: 3_000, ipv6_share: 0.3, ..Profile::default() };
    let mut traffic = Traffic::new(&profile);
    let mut number = 0_u8;
    while let Some(packet) = traffic.next() {
        let mut data = packet.data.to_vec();
        number = number.wrapping_add(1);
        if number.is_multiple_of(5) && data.get(12..14) == Some(&[8, 0]) && data.len() >= 34 {
            change(number, &mut data[14..]);
        }
        if number == 99 {
            // Cut off inside of the headers.
            data.truncate(30);
        }
        writer.packet(0, packet.time_ns, packet.wire_len, &data).unwrap();
    }
    std::fs::write(path, writer.finish().unwrap()).unwrap();
}

fn index(folder: &Path, capture: &Path, keep: FieldSet) -> std::sync::Arc<Segment> {
    let mut archive = Archive::create(folder, None).unwrap();
    archive.keep_fields(keep).unwrap();
    assert_eq!(Archive::open(folder).unwrap().settings().fields, FieldSet::USUAL.and(keep));
    Ingest::new(&archive).run(&[Input::File(capture.to_owned())]).unwrap();
    let (mut segments, failed) = archive.segments().unwrap();
    assert!(failed.is_empty(), "{failed:?}");
    segments.pop().unwrap()
}

fn ask(segment: &Segment, text: &str) -> Answer {
    Query::new(Filter::parse(text, 0).unwrap(), TimeRange::ALL).records(segment).unwrap()
}

fn counted(segment: &Segment, name: &str) -> (HashMap<Shown, u64>, u64) {
    let mut counts = HashMap::new();
    let records: Vec<u32> = (0..segment.index().rows()).collect();
    let name = fields::for_top(name).unwrap();
    let mut add = |shown, count| *counts.entry(shown).or_insert(0) += count;
    let (read, unread) = count_name(segment, name, &records, None, &mut add).unwrap();
    assert!(unread.is_empty());
    (counts, read)
}

const ZERO: Shown = Shown(FieldKind::Number(16), 0);

const FILTERS: [&str; 26] = [
    "ip[8] < 5",
    "ip[8] = 64",
    "not ip[8] = 64",
    "5 > ip[8]",
    "ip[8] & 0xf0 = 0x40",
    "ip6[7] = 64",
    "ip6[7] != 64",
    "ip[1] & 0xfc = 0xb8",
    "(ip[1] & 0xfc) >> 2 = 46",
    "ip6[0:2] & 0xfc0 = 0",
    "tcp[14:2] < 1000",
    "tcp[14:2] & 0xf000 != 0",
    "less 100",
    "greater 1000",
    "len = 66",
    "len != 66 and tcp",
    "ip[8] > 100 or udp port 53",
    "ip.ttl == 64",
    "ip.ttl != 64",
    "not ip.ttl == 64",
    "ip.ttl !== 64",
    "ipv6.hlim < 65",
    "ip.dsfield.dscp == 46",
    "tcp.window_size_value < 1000",
    "frame.len == 66",
    "frame.len in {60..100, 1514}",
];

#[test]
fn a_segment_that_does_not_know_a_field_asks_the_packets() {
    let folder = tempfile::tempdir().unwrap();
    let capture = folder.path().join("a.pcap");
    write_capture(&capture, |number, ip| {
        (ip[8], ip[1]) = (number % 11, [0, 0xB8, 0x22][usize::from(number) % 3]);
    });
    let old = index(&folder.path().join("old"), &capture, FieldSet::default());
    let new = index(&folder.path().join("new"), &capture, FieldSet::ALL);
    let columns = |field| (old.columns().get(field), new.columns().get(field));
    for field in later() {
        assert!(matches!(columns(field), (Column::Unknown, Column::Known)), "{field:?}");
    }
    for text in FILTERS {
        let (from_packets, from_columns) = (ask(&old, text), ask(&new, text));
        assert_eq!(from_packets.records, from_columns.records, "{text}");
        assert!(from_columns.count > 0, "{text}");
        assert!(from_packets.read > from_columns.read, "{text}");
        let odd = new.note().odd;
        // A window of 0 may be one that is cut off.
        let zero = if text.starts_with("tcp[") { counted(&new, "tcp.window").0[&ZERO] } else { 0 };
        assert!(from_columns.read <= odd + zero, "{text}: {} of {odd}", from_columns.read);
    }
    // That it is there is told by other fields.
    assert_eq!(ask(&old, "ip.ttl"), ask(&new, "ip.ttl"));
    assert_eq!(ask(&old, "ip.ttl").read, 0);
    for name in NAMES.iter().filter_map(|name| name.top.first()) {
        let (from_packets, read) = counted(&old, name);
        let (from_columns, none) = counted(&new, name);
        assert_eq!(from_packets, from_columns, "{name}");
        assert_eq!(none, 0);
        let is_later = later().iter().any(|field| field.name() == *name);
        assert_eq!(read > 0, is_later, "{name}");
    }
    // Both agree with the packets, in what they know.
    assert_eq!(old.compare(&mut |_| true).unwrap(), Compared::default());
    assert_eq!(new.compare(&mut |_| true).unwrap(), Compared::default());
}

#[test]
fn a_field_that_is_0_in_all_rows_is_not_an_unknown_one() {
    let folder = tempfile::tempdir().unwrap();
    let capture = folder.path().join("a.pcap");
    write_capture(&capture, |_, _| {});
    let segment = index(&folder.path().join("a"), &capture, FieldSet::ALL);
    assert!(matches!(segment.columns().get(Field::IpDscp), Column::Zero));
    let text = "ip[1] & 0xfc = 0";
    let known = ask(&segment, text);
    assert!(known.count > 0 && known.read <= segment.note().odd, "{known:?}");
    assert_eq!(ask(&segment, "ip[1] & 0xfc != 0").count, 0);

    // The same without the list: a segment of a writer that did not know the field.
    let path: PathBuf = segment.path().to_owned();
    let bytes = std::fs::read(&path).unwrap();
    let without = |note: &str| {
        let lines = note.lines().filter(|line| !line.starts_with("zero"));
        lines.map(|line| format!("{line}\n")).collect()
    };
    std::fs::write(&path, forge_note(&bytes, without).unwrap()).unwrap();
    let disk: Arc<dyn Storage> = Arc::new(Disk);
    let forged = Segment::open(&disk, &path).unwrap();
    assert!(matches!(forged.columns().get(Field::IpDscp), Column::Unknown));
    assert!(matches!(forged.columns().get(Field::Vlan), Column::Known | Column::Zero));
    let unknown = ask(&forged, text);
    assert_eq!(unknown.records, known.records);
    assert!(unknown.read > known.read);
    assert_eq!(ask(&forged, "ip.dsfield.dscp == 0").records.len(), {
        ask(&segment, "ip.dsfield.dscp == 0").records.len()
    });
    assert_eq!(counted(&forged, "ip.dscp").0, counted(&segment, "ip.dscp").0);
    assert!(counted(&forged, "ip.dscp").1 > 0);
}
