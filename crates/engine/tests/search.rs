//! Searching whole archives: order, limits, cancellation, progress, and segments that stay open.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a failed test panics")]

use std::fs::{self, File};
use std::io::BufWriter;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tapdex_bitmap::sample::Random;
use tapdex_engine::archive::{Archive, Cause, Ingest, Input};
use tapdex_engine::capture::{CaptureWriter, FileFormat, Interface};
use tapdex_engine::fields;
use tapdex_engine::query::filter::Filter;
use tapdex_engine::query::{Control, PacketStream, Query, Search, SearchError};
use tapdex_engine::time::TimeRange;
use tapdex_engine::traffic::{Profile, Traffic};

const SECOND: u64 = 1_000_000_000;
const START_NS: u64 = 1_790_000_000 * SECOND;

/// Filters that columns answer, some that packets answer, and some that both do.
const FILTERS: [&str; 8] = [
    "",
    "tcp",
    "udp port 53",
    "ip[8] > 60",
    "ether[33] & 3 = 1",
    "tcp and ether[33] & 3 = 1 or udp",
    "not tcp and len > 90",
    "port 9",
];

/// A packet: its time, and its bytes.
type Packet = (u64, Vec<u8>);

/// How the times of a capture go on.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Clock {
    Rising,
    /// Times go back now and then, and many are the same.
    Jumping,
    /// All times are the same.
    Still,
}

fn write_capture(path: &Path, packets: u64, seed: u64, start_ns: u64, clock: Clock) {
    let file = BufWriter::new(File::create(path).unwrap());
    let ethernet = Interface::new(1, SECOND);
    let mut writer = CaptureWriter::new(file, FileFormat::Pcap, &[ethernet], "").unwrap();
    let mut traffic = Traffic::new(&Profile { packets, seed, start_ns, ..Profile::default() });
    let mut random = Random::new(seed);
    while let Some(packet) = traffic.next() {
        let time_ns = match clock {
            Clock::Rising => packet.time_ns,
            Clock::Still => start_ns,
            Clock::Jumping => match random.below(20) {
                0 => start_ns + u64::from(random.below(1_000)) * 1_000_000,
                _ => packet.time_ns / 1_000_000 * 1_000_000,
            },
        };
        writer.packet(0, time_ns, packet.wire_len, packet.data).unwrap();
    }
    drop(writer.finish().unwrap());
}

/// An archive of captures whose times overlap, in parts of 500 packets.
fn archive(folder: &Path, captures: u64, clock: Clock) -> Archive {
    let archive = Archive::create(&folder.join("archive"), None).unwrap();
    for n in 0..captures {
        let path = folder.join(format!("{n}.pcap"));
        // The first two overlap, and so do the next two.
        write_capture(&path, 1_800, n, START_NS + n / 2 * SECOND, clock);
        let ingest = Ingest::new(&archive).records_max(500);
        let report = ingest.run(&[Input::File(path)]).unwrap();
        assert!(report.files[0].error.is_none());
    }
    archive
}

fn query(text: &str) -> Query {
    Query::new(Filter::parse(text, 0).unwrap(), TimeRange::ALL)
}

fn packets(search: &Search<'_>) -> Vec<Packet> {
    read(search.packets())
}

fn read(mut found: PacketStream<'_>) -> Vec<Packet> {
    let mut packets = Vec::new();
    while let Some(packet) = found.next().unwrap() {
        packets.push((packet.record.time_ns, packet.record.data.to_vec()));
    }
    let answers = found.finish().unwrap();
    assert!(answers.is_complete(), "{:?}", answers.gaps);
    packets
}

/// What a look at every packet finds, in the order that a search promises.
fn scanned(archive: &Archive, query: &Query) -> Vec<Packet> {
    let mut found = Vec::new();
    let (segments, failed) = archive.segments().unwrap();
    assert!(failed.is_empty());
    let mut headers = tapdex_engine::packet::Headers::default();
    for (place, segment) in segments.iter().enumerate() {
        let all = 0..segment.index().rows();
        let unread = segment.packets().unwrap().for_each(all, &mut |number, record| {
            if query.scan(record, &mut headers).unwrap() {
                found.push(((record.time_ns, place, number), record.data.to_vec()));
            }
            Ok(true)
        });
        assert!(unread.unwrap().is_empty());
    }
    found.sort();
    found.into_iter().map(|((time, ..), data)| (time, data)).collect()
}

#[test]
fn packets_come_in_order_and_limits_give_the_earliest() {
    for clock in [Clock::Rising, Clock::Jumping, Clock::Still] {
        let folder = tempfile::tempdir().unwrap();
        let archive = archive(folder.path(), 5, clock);
        for text in FILTERS {
            let query = query(text);
            let expected = scanned(&archive, &query);
            assert!(expected.len() > 20 || text == "port 9", "{text}: {}", expected.len());
            let search = archive.search(&query).unwrap();
            assert!(packets(&search) == expected, "{text}");
            // Where packets have to be read again, and files are closed in between.
            for (bytes, files) in [(0, 1), (1_000, 2), (100_000, 3)] {
                let found = read(search.packets().with_bounds(bytes, files));
                assert!(found == expected, "{text}, {bytes}, {files}");
            }
            for limit in [0, 1, 5, 37, 1_000, 100_000] {
                let search = archive.search(&query).unwrap().with_limit(limit);
                let most = expected.len().min(usize::try_from(limit).unwrap());
                assert!(packets(&search) == expected[..most], "{text}, {limit}");
                let mut found = search.packets();
                while found.next().unwrap().is_some() {}
                assert!(found.may_have_more() || most == expected.len(), "{text}, {limit}");
                assert!(!found.may_have_more() || limit < 100_000, "{text}, {limit}");
            }
            let answers = archive.search(&query).unwrap().records().unwrap();
            let mut known = answers.packets();
            for packet in &expected {
                let found = known.next().unwrap().unwrap();
                assert!((found.record.time_ns, found.record.data) == (packet.0, &packet.1[..]));
            }
            assert!(known.next().unwrap().is_none() && known.into_gaps().is_empty());
        }
    }
}

#[test]
fn a_limit_saves_work() {
    let folder = tempfile::tempdir().unwrap();
    let archive = archive(folder.path(), 8, Clock::Rising);
    let read = |text: &str, limit: Option<u64>| {
        let (query, control) = (query(text), Control::default());
        let search = archive.search(&query).unwrap().with_control(&control);
        let search = match limit {
            Some(limit) => search.with_limit(limit),
            None => search,
        };
        let found = packets(&search).len() as u64;
        let progress = control.progress();
        assert_eq!(progress.packets_found, found);
        (progress.segments, progress.segments_asked, progress.packets_read)
    };
    let all = read("ether[33] & 3 = 1", None);
    assert_eq!(all, (32, 32, 8 * 1_800));
    let (_, asked, few) = read("ether[33] & 3 = 1", Some(5));
    // One at first, then two more where packets of the same time may be in others.
    assert!(asked <= 7 && (5..=7 * 500).contains(&few), "{asked} segments, {few} packets");
    let (_, asked, none) = read("tcp", Some(5));
    assert!(asked <= 7 && none == 0, "{asked} segments, {none} packets");
    assert_eq!(read("tcp", Some(0)).1, 0);
}

/// Within a segment packets are read only until the earliest are known.
#[test]
fn a_limit_saves_work_within_a_segment() {
    for clock in [Clock::Rising, Clock::Still] {
        let folder = tempfile::tempdir().unwrap();
        let archive = Archive::create(&folder.path().join("archive"), None).unwrap();
        let path = folder.path().join("a.pcap");
        write_capture(&path, 20_000, 1, START_NS, clock);
        Ingest::new(&archive).run(&[Input::File(path)]).unwrap();
        let (query, control) = (query("ether[33] & 3 = 1"), Control::default());
        let search = archive.search(&query).unwrap().with_limit(3).with_control(&control);
        assert!(packets(&search) == scanned(&archive, &query)[..3]);
        let read = control.progress().packets_read;
        assert!((3..2_000).contains(&read), "{read} packets");
    }
}

/// If some of the earliest packets cannot be read, later ones take their place.
#[test]
fn a_limit_is_reached_past_packets_that_cannot_be_read() {
    for clock in [Clock::Rising, Clock::Jumping, Clock::Still] {
        let folder = tempfile::tempdir().unwrap();
        let mut archive = Archive::create(&folder.path().join("archive"), None).unwrap();
        archive.keep_sums(true).unwrap();
        let path = folder.path().join("a.pcap");
        write_capture(&path, 20_000, 1, START_NS, clock);
        Ingest::new(&archive).run(&[Input::File(path.clone())]).unwrap();
        for text in ["tcp", "ether[33] & 3 != 3", "tcp or ether[33] & 3 != 3"] {
            let query = query(text);
            let before = scanned(&archive, &query);
            let bytes = fs::read(&path).unwrap();
            let mut changed = bytes.clone();
            // In the first piece, behind the headers of file and packet.
            changed[24 + 16 + 20] ^= 1;
            fs::write(&path, changed).unwrap();
            let search = archive.search(&query).unwrap();
            let all = unread(search.packets());
            assert!(all.len() < before.len() && all.len() + 32 >= before.len(), "{text}");
            for limit in [1, 5, 40, 1_000] {
                let search = archive.search(&query).unwrap().with_limit(limit);
                let most = usize::try_from(limit).unwrap();
                assert!(unread(search.packets()) == all[..most], "{text}, {limit}");
            }
            fs::write(&path, bytes).unwrap();
        }
    }
}

/// The packets of a search that has to tell of some that it could not read.
fn unread(mut found: PacketStream<'_>) -> Vec<Packet> {
    let mut packets = Vec::new();
    while let Some(packet) = found.next().unwrap() {
        packets.push((packet.record.time_ns, packet.record.data.to_vec()));
    }
    let gaps = found.finish().unwrap().gaps;
    assert!(matches!(&gaps[..], [gap] if gap.cause == Cause::Unreadable), "{gaps:?}");
    packets
}

#[test]
fn a_search_can_be_cancelled() {
    let folder = tempfile::tempdir().unwrap();
    let archive = archive(folder.path(), 4, Clock::Rising);
    let query = query("ether[33] & 3 = 1");
    let cancelled = |error| matches!(error, SearchError::Cancelled);
    // Before it starts, in the middle, and from another thread.
    let control = Control::default();
    control.cancel();
    let search = archive.search(&query).unwrap().with_control(&control);
    assert!(cancelled(search.count().unwrap_err()) && cancelled(search.records().unwrap_err()));
    assert!(cancelled(search.packets().next().unwrap_err()));

    let control = Control::default();
    let search = archive.search(&query).unwrap().with_control(&control);
    let mut found = search.packets();
    assert!(found.next().unwrap().is_some());
    control.cancel();
    assert!(cancelled(found.next().unwrap_err()));

    let control = Control::default();
    let search = archive.search(&query).unwrap().with_control(&control);
    let other = control.clone();
    let thread = std::thread::spawn(move || {
        while other.progress().packets_found == 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
        other.cancel();
    });
    let mut found = search.packets();
    let error = loop {
        match found.next() {
            // Wait for the other one rather than get to the end before it.
            Ok(Some(_)) => std::thread::sleep(Duration::from_millis(1)),
            Ok(None) => panic!("the other thread has not cancelled it"),
            Err(error) => break error,
        }
    };
    assert!(cancelled(error));
    thread.join().unwrap();

    // So can counting by field and by time.
    let control = Control::default();
    let search = archive.search(&query).unwrap().with_control(&control);
    let mut answers = search.records().unwrap();
    control.cancel();
    let name = fields::for_top("src").unwrap();
    assert!(cancelled(answers.top(name, 5).unwrap_err()));
    assert!(cancelled(answers.over_time(START_NS, SECOND, 10).unwrap_err()));
    assert!(cancelled(answers.add_conversations(&query).unwrap_err()));
}

#[test]
fn groups_are_those_of_the_packets() {
    let folder = tempfile::tempdir().unwrap();
    let archive = archive(folder.path(), 3, Clock::Jumping);
    for text in ["tcp or udp", "ether[33] & 3 = 1"] {
        let query = query(text);
        let expected = scanned(&archive, &query);
        let mut answers = archive.search(&query).unwrap().records().unwrap();
        let (first, last) = answers.asked_times().unwrap();
        assert!(expected.iter().all(|(time, _)| (first..=last).contains(time)));
        let len = usize::try_from((last - START_NS) / (SECOND / 10)).unwrap() + 1;
        let over_time = answers.over_time(START_NS, SECOND / 10, len).unwrap();
        let mut counts = vec![0; len];
        for (time, _) in &expected {
            counts[usize::try_from((time - START_NS) / (SECOND / 10)).unwrap()] += 1;
        }
        assert_eq!(over_time.counts, counts);
        let top = answers.top(fields::for_top("length").unwrap(), 3).unwrap();
        assert!(top.values.len() <= 3 && top.distinct >= top.values.len());
        assert_eq!(top.total, expected.len() as u64);
        assert!(top.values.is_sorted_by(|a, b| a.1 >= b.1));
        assert!(answers.is_complete());
    }
}

fn paths(archive: &Archive) -> Vec<PathBuf> {
    archive.index_files().unwrap()
}

#[test]
fn segments_stay_open_between_questions_and_follow_the_files() {
    let folder = tempfile::tempdir().unwrap();
    let archive = archive(folder.path(), 2, Clock::Rising);
    let segments = || archive.segments().unwrap().0;
    let before = segments();
    assert_eq!(before.len(), 8);
    let same = |a: &[Arc<_>], b: &[Arc<_>]| {
        a.iter().filter(|a| b.iter().any(|b| Arc::ptr_eq(a, b))).count()
    };
    assert_eq!(same(&before, &segments()), 8);
    assert_eq!(same(&before, &archive.clone().segments().unwrap().0), 8);
    archive.close_segments();
    assert_eq!(same(&before, &segments()), 0);
    let before = segments();
    // One that is replaced by another file is opened again, and has the new one's answers.
    let query = query("tcp");
    let count = || archive.search(&query).unwrap().count().unwrap().count();
    let expected = count();
    let capture = folder.path().join("0.pcap");
    write_capture(&capture, 1_000, 99, START_NS, Clock::Rising);
    Ingest::new(&archive).records_max(500).run(&[Input::File(capture)]).unwrap();
    assert_eq!(same(&before, &segments()), 4);
    assert!(count() != expected && count() == scanned(&archive, &query).len() as u64);
    // One that is removed is closed, and a new one is found.
    let expected = count();
    let [path, aside] = [paths(&archive)[0].clone(), folder.path().join("aside")];
    fs::rename(&path, &aside).unwrap();
    assert_eq!(segments().len(), 5);
    assert!(!archive.search(&query).unwrap().count().unwrap().is_complete());
    fs::rename(&aside, &path).unwrap();
    assert_eq!((segments().len(), count()), (6, expected));
    // One that is damaged is reported although it was open before.
    let mut bytes = fs::read(&path).unwrap();
    let end = bytes.len() - 1;
    bytes[end] ^= 1;
    fs::remove_file(&path).unwrap();
    fs::write(&path, bytes).unwrap();
    let answers = archive.search(&query).unwrap().count().unwrap();
    assert!(answers.gaps.iter().any(|gap| gap.cause == Cause::Unreadable), "{:?}", answers.gaps);
}

#[test]
fn a_filter_that_no_link_takes_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let archive = archive(folder.path(), 1, Clock::Rising);
    let query = query("wlan addr1 02:00:00:00:00:01");
    let search = archive.search(&query).unwrap();
    assert!(matches!(search.count(), Err(SearchError::Refused(_))));
    assert!(matches!(search.records(), Err(SearchError::Refused(_))));
    let mut found = search.packets();
    assert!(found.next().unwrap().is_none());
    let error = found.finish().unwrap_err();
    assert!(matches!(&error, SearchError::Refused(refusal) if refusal.link.0 == 1), "{error}");
}

/// What Wireshark would look into is counted among the packets from the times asked for.
#[test]
fn packets_judged_by_outer_headers_are_from_the_times_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    let archive = archive(folder.path(), 2, Clock::Jumping);
    let outer_only = |times: TimeRange| {
        let query = Query::new(Filter::parse("ip.addr == 10.0.0.0/8", 0).unwrap(), times);
        archive.search(&query).unwrap().count().unwrap().outer_only(&query)
    };
    let all = outer_only(TimeRange::ALL);
    assert!(all > 10, "{all}");
    let (segments, _) = archive.segments().unwrap();
    let middle = segments.iter().map(|s| s.note().time_min / 2 + s.note().time_max / 2).max();
    for cut in [START_NS + 1, START_NS + SECOND / 5, middle.unwrap()] {
        let before = outer_only(TimeRange { from_ns: 0, to_ns: Some(cut) });
        let after = outer_only(TimeRange { from_ns: cut, to_ns: None });
        assert_eq!(before + after, all, "{cut}");
    }
    assert_eq!(outer_only(TimeRange { from_ns: 0, to_ns: Some(START_NS) }), 0);
}
