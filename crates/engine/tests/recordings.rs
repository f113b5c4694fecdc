//! Recordings that were cut off, damaged, moved or removed: what was whole is found, and nothing
//! else.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "recordings/drafts.rs"]
mod drafts;
#[path = "recordings/gaps.rs"]
mod gaps;
#[path = "recordings/parts.rs"]
mod parts;

use std::fs::{self, File};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use tapdex_engine::archive::{
    Archive, ArchiveError, Cause, Compared, Gap, Ingest, Input, Recording, Recovered, Repair,
    Segment,
};
use tapdex_engine::capture::{Interface, blocks};
use tapdex_engine::query::filter::Filter;
use tapdex_engine::query::{Found, Query, Search, SearchError};
use tapdex_engine::time::TimeRange;
use tapdex_engine::traffic::{Profile, Traffic};

const NOW_NS: u64 = 1_790_000_000_000_000_000;

/// Completes what was left unfinished, all of which can be.
fn sealed(archive: &Archive) -> Vec<Recovered> {
    let (recovered, failed) = archive.seal_unfinished(&AtomicBool::new(false)).unwrap();
    assert!(failed.is_empty(), "{failed:?}");
    recovered
}

/// A packet: its time, its length on the wire, its bytes.
type Packet = (u64, u32, Vec<u8>);

/// What a recorder writes, and where each packet of it is.
struct Written {
    bytes: Vec<u8>,
    packets: Vec<Packet>,
    places: Vec<Range<usize>>,
    /// Where the last block in front of the first packet, and every block from there on, ends.
    ends: Vec<usize>,
}

impl Written {
    /// A file of so many packets. Each seed gives others, at other times.
    fn new(packets: u64, seed: u64) -> Self {
        let mut bytes = Vec::new();
        blocks::section(&mut bytes, "a recording");
        blocks::interface(&mut bytes, &Interface::new(1, 1_000_000_000), "");
        let start_ns = NOW_NS + seed * 3_600_000_000_000;
        let profile =
            Profile { packets, seed, start_ns, mean_len: Some(120), ..Profile::default() };
        let mut traffic = Traffic::new(&profile);
        let mut written =
            Self { ends: vec![bytes.len()], bytes, packets: Vec::new(), places: Vec::new() };
        while let Some(packet) = traffic.next() {
            let start = written.bytes.len();
            blocks::packet(&mut written.bytes, 0, packet.time_ns, packet.wire_len, packet.data);
            written.places.push(start..written.bytes.len());
            written.ends.push(written.bytes.len());
            written.packets.push((packet.time_ns, packet.wire_len, packet.data.to_vec()));
        }
        blocks::statistics(&mut written.bytes, 0, &blocks::Statistics::default());
        written.ends.push(written.bytes.len());
        written
    }

    /// How many packets are whole in so many bytes.
    fn whole(&self, len: usize) -> usize {
        self.places.iter().take_while(|place| place.end <= len).count()
    }

    /// Where the last whole block of so many bytes ends.
    fn end(&self, len: usize) -> usize {
        self.ends.iter().copied().take_while(|&end| end <= len).last().unwrap_or(0)
    }

    /// Leaves a part of it unfinished in an archive.
    fn leave(&self, archive: &Archive, len: usize) -> Recording {
        let recording = archive.new_recording(NOW_NS, 0).unwrap();
        fs::write(recording.unfinished_path(), &self.bytes[..len]).unwrap();
        recording
    }

    /// Puts it into an archive, complete.
    fn put(&self, archive: &Archive) -> Recording {
        let recording = self.leave(archive, self.bytes.len());
        fs::rename(recording.unfinished_path(), recording.sealed_path()).unwrap();
        recording
    }
}

fn archive(folder: &Path) -> Archive {
    Archive::create(folder, None).unwrap()
}

fn query(filter: &str, from: Option<u64>, to: Option<u64>) -> Query {
    let filter = Filter::parse(filter, NOW_NS).unwrap();
    Query::new(filter, TimeRange { from_ns: from.unwrap_or(0), to_ns: to })
}

/// What a search finds.
fn search(archive: &Archive, query: &Query) -> Vec<Packet> {
    let (segments, failed) = archive.segments_from(query.times()).unwrap();
    assert!(failed.is_empty(), "{failed:?}");
    search_in(&segments, query)
}

/// What a search finds in segments. It is asked twice: for the number, and for the packets.
fn search_in(segments: &[Arc<Segment>], query: &Query) -> Vec<Packet> {
    let search = Search::of(query, segments.to_vec());
    let mut found = search.packets();
    let count = match search.count() {
        Ok(count) => count,
        // No link of the segments takes the filter.
        Err(SearchError::Refused(_)) => {
            assert!(found.next().unwrap().is_none());
            assert!(matches!(found.finish(), Err(SearchError::Refused(_))));
            return Vec::new();
        }
        Err(error) => panic!("{error}"),
    };
    // Links may refuse a filter, and then their packets do not match.
    assert!(count.gaps.is_empty(), "{:?}", count.gaps);
    let mut packets = Vec::new();
    while let Some(Found { record, .. }) = found.next().unwrap() {
        packets.push((record.time_ns, record.wire_len, record.data.to_vec()));
    }
    let answers = found.finish().unwrap();
    assert!(answers.gaps.is_empty(), "{:?}", answers.gaps);
    assert_eq!((count.count(), answers.count()), (packets.len() as u64, packets.len() as u64));
    packets
}

fn all(archive: &Archive) -> Vec<Packet> {
    search(archive, &query("", None, None))
}

fn index(archive: &Archive, recording: &Recording, records_max: usize) {
    let ingest = Ingest::new(archive).records_max(records_max);
    let report = ingest.run(&[Input::File(recording.sealed_path())]).unwrap();
    assert!(report.files[0].error.is_none(), "{report:?}");
}

/// The hidden files of an archive.
fn hidden(archive: &Archive) -> usize {
    let entries = fs::read_dir(archive.folder().join("packets")).unwrap();
    entries.filter(|e| e.as_ref().unwrap().file_name().as_encoded_bytes()[0] == b'.').count()
}

/// Leaves a recording cut to each of these lengths, and completes it.
fn cut_at(written: &Written, lens: impl IntoIterator<Item = usize>) {
    let folder = tempfile::tempdir().unwrap();
    let archive = archive(folder.path());
    for len in lens {
        let recording = written.leave(&archive, len);
        let whole = written.whole(len);
        let recovered = sealed(&archive);
        assert_eq!(recovered.len(), 1, "cut at {len}");
        assert_eq!(recovered[0].packets, whole as u64, "cut at {len}");
        assert_eq!(hidden(&archive), 0);
        if whole == 0 {
            assert!(!recording.is_sealed(), "cut at {len}");
            continue;
        }
        let end = written.end(len);
        assert_eq!(recovered[0].bytes_cut, (len - end) as u64, "cut at {len}");
        assert_eq!(recovered[0].path, recording.sealed_path());
        let bytes = fs::read(recording.sealed_path()).unwrap();
        assert!(bytes == written.bytes[..end], "cut at {len}");
        assert!(all(&archive) == written.packets[..whole], "cut at {len}");
        // Once more, it is as it was.
        assert_eq!(sealed(&archive), []);
        assert!(fs::read(recording.sealed_path()).unwrap() == bytes);
        fs::remove_file(recording.sealed_path()).unwrap();
    }
}

#[test]
fn a_recording_cut_at_any_byte_has_its_whole_packets() {
    let written = Written::new(3, 1);
    cut_at(&written, 0..=written.bytes.len());
    // Longer than what is read at a time: the last packets, and what is behind them.
    let written = Written::new(300, 2);
    assert!(written.bytes.len() > 16 << 10);
    cut_at(&written, written.places[298].start..=written.bytes.len());
}

#[test]
fn zeros_at_the_end_are_cut_off() {
    let folder = tempfile::tempdir().unwrap();
    let archive = archive(folder.path());
    let written = Written::new(50, 3);
    // Behind whole packets, and in the middle of one.
    for len in [written.bytes.len(), written.places[40].end, written.places[40].start + 21] {
        for zeros in [1, 3, 4, 7, 8, 11, 12, 4_096, 100_000] {
            let recording = written.leave(&archive, len);
            let whole = written.whole(len);
            let file = File::options().write(true).open(recording.unfinished_path()).unwrap();
            file.set_len((len + zeros) as u64).unwrap();
            drop(file);
            let recovered = sealed(&archive);
            let found = all(&archive);
            let bytes = fs::read(recording.sealed_path()).unwrap();
            if written.end(len) == len {
                assert!(bytes == written.bytes[..len], "{zeros} zeros behind {len} bytes");
                assert!(found == written.packets[..whole]);
                assert_eq!(
                    (recovered[0].packets, recovered[0].bytes_cut),
                    (50.min(whole as u64), zeros as u64)
                );
            } else {
                // The packet that they are in the middle of is not told from a whole one, or is
                // cut off; those before it are there.
                assert!(found.starts_with(&written.packets[..whole]), "{zeros} zeros");
            }
            fs::remove_file(recording.sealed_path()).unwrap();
        }
    }
    // Nothing but zeros, as file systems leave what was never written.
    for zeros in [1, 8, 30, 5_000] {
        let recording = archive.new_recording(NOW_NS, 0).unwrap();
        fs::write(recording.unfinished_path(), vec![0; zeros]).unwrap();
        let recovered = sealed(&archive);
        assert_eq!((recovered[0].packets, recovered[0].bytes_cut), (0, zeros as u64));
        assert!(!recording.is_sealed() && hidden(&archive) == 0);
    }
}

#[test]
fn damage_in_the_middle_keeps_all_bytes() {
    let folder = tempfile::tempdir().unwrap();
    let archive = archive(folder.path());
    let written = Written::new(200, 4);
    let at = written.places[120].start;
    let mut bytes = written.bytes.clone();
    // A length that no block can have.
    bytes[at + 4..at + 8].copy_from_slice(&[0xFF; 4]);
    let recording = archive.new_recording(NOW_NS, 0).unwrap();
    fs::write(recording.unfinished_path(), &bytes).unwrap();
    assert!(all(&archive) == written.packets[..120], "while it is unfinished");
    let recovered = sealed(&archive);
    assert_eq!((recovered[0].packets, recovered[0].bytes_cut), (120, 0));
    assert!(fs::read(recording.sealed_path()).unwrap() == bytes);
    assert!(all(&archive) == written.packets[..120], "while it is not indexed");
    index(&archive, &recording, 1 << 20);
    assert!(all(&archive) == written.packets[..120], "when it is indexed");
    let (segments, _) = archive.segments().unwrap();
    assert!(!segments[0].is_draft() && !segments[0].note().source.damage.is_empty());
    // No more can be done, and repair does not try.
    let report = Repair::new(&archive).run().unwrap();
    assert!(report.problems.is_empty() && report.captures.is_empty(), "{report:?}");
}

#[test]
fn what_somebody_writes_is_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let archive = archive(folder.path());
    let written = Written::new(30, 5);
    let len = written.places[20].start + 5;
    let recording = written.leave(&archive, len);
    let writer = File::options().write(true).open(recording.unfinished_path()).unwrap();
    writer.lock().unwrap();
    for _ in 0..2 {
        assert_eq!(sealed(&archive), []);
        assert!(Repair::new(&archive).run().unwrap().recovered.is_empty());
        assert_eq!(fs::read(recording.unfinished_path()).unwrap().len(), len);
        assert!(all(&archive) == written.packets[..20], "it is searched");
    }
    // Who holds it may complete it.
    assert_eq!(archive.seal_held(&recording).unwrap().packets, 20);
    drop(writer);
    assert!(recording.is_sealed() && sealed(&archive).is_empty());
    assert!(all(&archive) == written.packets[..20]);
}

const FILTERS: [&str; 12] = [
    "",
    "tcp",
    "udp port 53",
    "ip6",
    "vlan",
    "net 10.0.0.0/8",
    "tcp[tcpflags] & tcp-syn != 0",
    "greater 200",
    "not tcp and not udp",
    "port 443 or port 80",
    "src port 443 and less 100",
    "ip[8] < 60",
];

#[test]
fn searches_find_the_same_before_and_after_indexing() {
    let folder = tempfile::tempdir().unwrap();
    let archive = archive(folder.path());
    let written = [Written::new(2_500, 6), Written::new(900, 7), Written::new(700, 8)];
    let mut packets: Vec<Packet> = written.iter().flat_map(|w| w.packets.clone()).collect();
    packets.sort_by_key(|&(time, ..)| time);
    let time = |n: usize| Some(packets[n].0);
    // All, a part of each, the last seconds, one nanosecond, nothing.
    let times = [
        (None, None),
        (time(100), time(2_000)),
        (time(2_400), time(2_600)),
        (time(4_000), None),
        (time(3_000), time(3_000).map(|ns| ns + 1)),
        (Some(packets.last().unwrap().0 + 1), None),
        (None, Some(packets[0].0)),
    ];
    let questions: Vec<Query> = FILTERS
        .iter()
        .flat_map(|filter| times.iter().map(|&(from, to)| query(filter, from, to)))
        .collect();
    let ask = || -> Vec<Vec<Packet>> { questions.iter().map(|q| search(&archive, q)).collect() };
    // Two are complete, the last one is being written.
    let complete = [written[0].put(&archive), written[1].put(&archive)];
    let open = written[2].leave(&archive, written[2].bytes.len() - 3);
    let before = ask();
    assert!(before[0] == packets);
    assert!(before.iter().filter(|found| !found.is_empty()).count() > questions.len() / 2);
    let (segments, _) = archive.segments().unwrap();
    assert!(segments.len() == 3 && segments.iter().all(|s| s.is_in_memory()));
    // What is about other times is not even indexed in memory.
    let (segments, _) =
        archive.segments_from(TimeRange { from_ns: time(4_000).unwrap(), to_ns: None }).unwrap();
    assert_eq!(segments.len(), 1);

    // The first parts have an index.
    index(&archive, &complete[0], 400);
    let part =
        |n: u32| archive.folder().join(format!("segments/{}-{n:04}.tdx", complete[0].name()));
    assert!(part(6).exists() && !part(7).exists());
    assert!(ask() == before, "the first one is indexed");
    for n in (1..7).rev() {
        fs::remove_file(part(n)).unwrap();
        assert!(all(&archive) == packets, "{n} of 7 parts are indexed");
        let (segments, _) = archive.segments().unwrap();
        assert_eq!(segments.iter().filter(|segment| !segment.is_draft()).count(), n as usize);
    }
    assert!(ask() == before, "the first part is indexed");
    // Indexing goes on where it was, in parts of another size.
    index(&archive, &complete[0], 1_000);
    assert!(part(3).exists() && !part(4).exists());
    assert!(ask() == before);
    sealed(&archive);
    index(&archive, &open, 1 << 20);
    index(&archive, &complete[1], 1 << 20);
    let (segments, _) = archive.segments().unwrap();
    assert!(!segments.iter().any(|s| s.is_draft()));
    assert!(ask() == before, "all are indexed");
}

#[test]
fn an_archive_can_be_moved() {
    let folder = tempfile::tempdir().unwrap();
    let here = archive(&folder.path().join("here"));
    let written = [Written::new(300, 9), Written::new(200, 10), Written::new(100, 11)];
    let recordings = [0, 1].map(|n| written[n].put(&here));
    index(&here, &recordings[0], 120);
    written[2].leave(&here, written[2].bytes.len());
    let found = all(&here);
    assert_eq!(found.len(), 600);
    let target = folder.path().join("there/and/elsewhere");
    fs::create_dir_all(target.parent().unwrap()).unwrap();
    fs::rename(here.folder(), &target).unwrap();
    let there = Archive::open(&target).unwrap();
    assert!(all(&there) == found);
    let (segments, _) = there.segments().unwrap();
    assert_eq!(segments.iter().filter(|segment| !segment.is_draft()).count(), 3);
    // What was indexed is not indexed again, and the rest under the same names as before.
    let report = Repair::new(&there).run().unwrap();
    assert!(report.left.is_empty() && report.removed.is_empty(), "{report:?}");
    assert_eq!((report.recovered.len(), report.captures.len()), (1, 2));
    assert_eq!(there.index_files().unwrap().len(), 5);
    assert!(all(&there) == found);
}

#[test]
fn repair_completes_and_indexes() {
    let folder = tempfile::tempdir().unwrap();
    let archive = archive(folder.path());
    let written = [Written::new(300, 12), Written::new(200, 13), Written::new(400, 14)];
    let first = written[0].put(&archive);
    written[1].leave(&archive, written[1].places[150].end - 1);
    let last = written[2].put(&archive);
    index(&archive, &last, 150);
    // An index that says nothing any more.
    let damaged = archive.folder().join(format!("segments/{}-0001.tdx", last.name()));
    fs::write(&damaged, "no index").unwrap();
    let report = Repair::new(&archive).run().unwrap();
    assert_eq!((report.recovered.len(), report.captures.len()), (1, 3), "{report:?}");
    assert!(report.left.is_empty(), "{report:?}");
    let (segments, failed) = archive.segments().unwrap();
    assert!(failed.is_empty() && !segments.iter().any(|s| s.is_draft()), "{failed:?}");
    for segment in &segments {
        assert_eq!(segment.compare(&mut |_| true).unwrap(), Compared::default());
    }
    let found = all(&archive);
    assert_eq!(found.len(), 300 + 150 + 400);
    assert!(found[..300] == written[0].packets && found[300..450] == written[1].packets[..150]);
    assert!(found[450..] == written[2].packets && first.is_sealed());
    assert!(Repair::new(&archive).run().unwrap().problems.is_empty());
}

#[test]
fn what_retention_removes_during_a_search_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let archive = archive(folder.path());
    let written = [Written::new(300, 15), Written::new(200, 16), Written::new(100, 17)];
    let recordings = [0, 1, 2].map(|n| written[n].put(&archive));
    index(&archive, &recordings[0], 1 << 20);
    let question = query("ip[8] < 255 or ip6", None, None);
    let (segments, _) = archive.segments().unwrap();
    let in_memory: Vec<bool> = segments.iter().map(|s| s.is_in_memory()).collect();
    assert_eq!(in_memory, [false, true, true]);
    let asked = Search::of(&question, segments.clone()).records().unwrap();
    assert!(asked.segments.iter().all(|(_, answer)| answer.count > 50));
    // One that has an index and one that has none are removed while they are open.
    fs::remove_file(segments[0].path()).unwrap();
    assert!(!segments[0].is_gone() && question.records(&segments[0]).is_ok());
    fs::remove_file(recordings[0].sealed_path()).unwrap();
    fs::remove_file(recordings[1].sealed_path()).unwrap();
    for segment in &segments[..2] {
        assert!(segment.is_gone() && question.records(segment).is_err());
    }
    assert!(!segments[2].is_gone());
    let mut found = asked.packets();
    let mut packets = 0;
    while let Some(packet) = found.next().unwrap() {
        assert_eq!(packet.segment.path(), segments[2].path());
        packets += 1;
    }
    assert_eq!(packets, asked.segments[2].1.count);
    let removed = |gaps: &[Gap]| -> Vec<(Cause, Option<u64>)> {
        gaps.iter().map(|gap| (gap.cause, gap.packets)).collect()
    };
    let expected = [(Cause::Removed, Some(300)), (Cause::Removed, Some(200))];
    assert_eq!(removed(&found.into_gaps()), expected);
    // Asked only now, they are left out as well.
    let search = Search::of(&question, segments.clone());
    assert_eq!(removed(&search.count().unwrap().gaps), expected);
    let mut found = search.packets();
    while let Some(packet) = found.next().unwrap() {
        assert_eq!(packet.segment.path(), segments[2].path());
    }
    assert_eq!(removed(&found.finish().unwrap().gaps), expected);
    assert_eq!(all(&archive).len(), 100);
    // Where only the packets are gone, that is damage, and nobody's retention.
    index(&archive, &recordings[2], 1 << 20);
    fs::remove_file(recordings[2].sealed_path()).unwrap();
    let (segments, failed) = archive.segments().unwrap();
    assert_eq!((segments.len(), failed.len()), (1, 1));
    assert!(!segments[0].is_gone());
}

#[test]
fn a_name_is_not_given_twice() {
    let folder = tempfile::tempdir().unwrap();
    let archive = Archive::create(folder.path(), None).unwrap();
    let first = archive.new_recording(NOW_NS, 0).unwrap();
    assert_eq!(first.number(), Some(1));
    // Removed in the same second: the next one has another name all the same.
    let second = archive.new_recording(NOW_NS, 1).unwrap();
    assert_eq!(second.number(), Some(2));
    std::fs::write(second.unfinished_path(), "").unwrap();
    assert_eq!(archive.new_recording(NOW_NS, 1).unwrap().number(), Some(3));
}

#[test]
fn an_archive_that_is_gone_is_not_made_again() {
    let folder = tempfile::tempdir().unwrap();
    let archive = Archive::create(&folder.path().join("archive"), None).unwrap();
    assert!(archive.new_recording(NOW_NS, 0).is_ok());
    std::fs::remove_dir_all(archive.folder()).unwrap();
    // As a folder that a disk was mounted on is left.
    std::fs::create_dir(archive.folder()).unwrap();
    let error = archive.new_recording(NOW_NS, 0).unwrap_err();
    assert!(matches!(error, ArchiveError::NoArchive { .. }), "{error}");
    assert_eq!(archive.folder().read_dir().unwrap().count(), 0);
}

#[test]
fn what_cannot_be_completed_does_not_keep_the_others_from_it() {
    let folder = tempfile::tempdir().unwrap();
    let archive = Archive::create(folder.path(), None).unwrap();
    let packets = folder.path().join("packets");
    std::fs::create_dir_all(packets.join(".rec-0000000000-x.pcapng.part")).unwrap();
    let recording = archive.new_recording(NOW_NS, 0).unwrap();
    std::fs::write(recording.unfinished_path(), Written::new(50, 1).bytes).unwrap();
    let (recovered, failed) = archive.seal_unfinished(&AtomicBool::new(false)).unwrap();
    assert_eq!((recovered.len(), recovered[0].packets, failed.len()), (1, 50, 1));
    let report = Repair::new(&archive).run().unwrap();
    assert!(report.left.iter().any(|(path, _)| path.ends_with(".rec-0000000000-x.pcapng.part")));
    assert!(report.captures.iter().all(|file| file.error.is_none()), "{report:?}");
}

#[test]
fn a_complete_recording_is_not_replaced_by_an_unfinished_one() {
    let folder = tempfile::tempdir().unwrap();
    let archive = archive(folder.path());
    let whole = Written::new(50, 1);
    let recording = whole.put(&archive);
    let part = Written::new(3, 1).bytes;
    fs::write(recording.unfinished_path(), &part).unwrap();
    let (recovered, failed) = archive.seal_unfinished(&AtomicBool::new(false)).unwrap();
    assert_eq!((recovered.len(), failed.len()), (0, 1), "{failed:?}");
    assert_eq!(fs::read(recording.sealed_path()).unwrap(), whole.bytes);
    assert_eq!(fs::read(recording.unfinished_path()).unwrap(), part);
}

#[test]
fn a_hole_larger_than_any_disk_is_passed_over() {
    let folder = tempfile::tempdir().unwrap();
    let archive = archive(folder.path());
    let written = Written::new(50, 1);
    for (start, packets) in [(written.bytes.as_slice(), Some(50)), (&[0; 100], None)] {
        let recording = archive.new_recording(NOW_NS, 0).unwrap();
        fs::write(recording.unfinished_path(), start).unwrap();
        let file = File::options().write(true).open(recording.unfinished_path()).unwrap();
        file.set_len(7 << 40).unwrap();
        let recovered = sealed(&archive);
        assert_eq!(recovered[0].packets, packets.unwrap_or(0));
        match packets {
            Some(_) => assert_eq!(fs::read(recording.sealed_path()).unwrap(), start),
            None => assert!(!recording.unfinished_path().exists()),
        }
    }
    // Whoever stops waiting finds it as it was.
    let recording = archive.new_recording(NOW_NS + 1, 0).unwrap();
    fs::write(recording.unfinished_path(), &written.bytes).unwrap();
    let (recovered, failed) = archive.seal_unfinished(&AtomicBool::new(true)).unwrap();
    assert_eq!((recovered.len(), failed.len()), (0, 1));
    assert_eq!(fs::read(recording.unfinished_path()).unwrap(), written.bytes);
}

/// The fuzz target, on whole files and on every one of its first bytes.
#[test]
fn any_bytes_may_be_left_unfinished() {
    let bytes = Written::new(12, 3).bytes;
    for len in [0, 3, 27, 28, 100, 500, bytes.len() - 1, bytes.len()] {
        tapdex_engine::testing::fuzz_recording(&bytes[..len]);
    }
    for at in (0..bytes.len()).step_by(41) {
        let mut damaged = bytes.clone();
        damaged[at] ^= 0x55;
        tapdex_engine::testing::fuzz_recording(&damaged);
    }
}

#[test]
fn files_are_closed_when_they_were_read() {
    let folder = tempfile::tempdir().unwrap();
    let archive = archive(folder.path());
    for seed in 0..20 {
        let recording = Written::new(50, seed).put(&archive);
        index(&archive, &recording, 100);
    }
    let (segments, failed) = archive.segments().unwrap();
    assert!(failed.is_empty() && segments.len() == 20);
    let question = query("", None, None);
    let search = Search::of(&question, segments);
    let ours = folder.path().canonicalize().unwrap();
    let is_ours = |path: &Path| fs::read_link(path).is_ok_and(|target| target.starts_with(&ours));
    let (mut packets, mut most) = (0, 0);
    let mut found = search.packets();
    while found.next().unwrap().is_some() {
        packets += 1;
        let open = fs::read_dir("/proc/self/fd").unwrap().flatten();
        most = most.max(open.filter(|entry| is_ours(&entry.path())).count());
    }
    assert!(found.finish().unwrap().is_complete());
    assert_eq!(packets, 20 * 50);
    // One that is read, and one whose time is looked at.
    assert!((1..=4).contains(&most), "{most} files are open at once");
}
