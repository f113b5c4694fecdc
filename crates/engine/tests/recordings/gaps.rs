//! What recordings lack: that it is said, and for which times.

use tapdex_engine::archive::{Cause, Covered, Gap, Held, Loss};
use tapdex_engine::capture::blocks::Statistics;

use super::*;

const SECOND: u64 = 1_000_000_000;

/// What an archive lacks from some times, as a search for these would learn it.
fn lacks(archive: &Archive, from: u64, to: Option<u64>) -> Vec<Gap> {
    let times = TimeRange { from_ns: from, to_ns: to };
    let mut gaps = archive.survey(times).unwrap().gaps;
    gaps.retain(|gap| gap.touches(times));
    gaps
}

/// The same for one reason: seconds since the start.
fn seconds(archive: &Archive, cause: Cause) -> Vec<(u64, u64)> {
    let gaps = lacks(archive, 0, None).into_iter().filter(|gap| gap.cause == cause);
    let second = |ns: u64| ns.saturating_sub(NOW_NS) / SECOND;
    gaps.map(|gap| (second(gap.from_ns), second(gap.to_ns))).collect()
}

#[test]
fn a_complete_recording_that_is_cut_or_damaged_says_so_before_it_is_indexed() {
    let written = Written::new(60, 1);
    let len = written.bytes.len();
    let (first, last) = (written.places[0].clone(), written.places[59].clone());
    let middle = written.places[30].clone();
    let flipped = |at: usize| {
        let mut bytes = written.bytes.clone();
        bytes[at..at + 8].fill(0xFF);
        bytes
    };
    let cut = |at: usize| written.bytes[..at].to_vec();
    let cases = [
        ("cut in the middle", cut(middle.start + 9), Cause::CutShort, 30),
        ("cut at the end", cut(len - 1), Cause::CutShort, 60),
        ("cut in the first packet", cut(first.start + 9), Cause::CutShort, 0),
        ("damaged in the middle", flipped(middle.start), Cause::Damaged, 30),
        ("damaged at the last packet", flipped(last.start), Cause::Damaged, 59),
        ("damaged at the first packet", flipped(first.start), Cause::Damaged, 0),
        ("cut in its head", cut(40), Cause::Unreadable, 0),
        ("empty", Vec::new(), Cause::Unreadable, 0),
        ("no capture", b"no capture at all".to_vec(), Cause::Unreadable, 0),
    ];
    for (what, bytes, cause, whole) in cases {
        let folder = tempfile::tempdir().unwrap();
        let archive = archive(folder.path());
        let recording = archive.new_recording(NOW_NS, 0).unwrap();
        fs::write(recording.sealed_path(), &bytes).unwrap();
        let damaged = |archive: &Archive, from: u64, to: Option<u64>| {
            let gaps = lacks(archive, from, to);
            let found: Vec<_> = gaps.iter().filter(|gap| gap.cause == cause).collect();
            let [gap] = found[..] else { panic!("{what}: {gaps:?}") };
            (gap.from_ns, gap.to_ns, gap.bytes)
        };
        let before = damaged(&archive, 0, None);
        let (segments, _) = archive.segments().unwrap();
        let found: u64 = segments.iter().map(|segment| segment.note().records).sum();
        assert_eq!(found, whole, "{what}");
        // Also who asks for times from which nothing can be read.
        let time = written.packets[59].0;
        assert_eq!(damaged(&archive, time, Some(time + 1)), before, "{what}");
        if cause == Cause::Unreadable {
            continue;
        }
        // Not who asks for what is in front of all that.
        if whole == 60 {
            let early = (written.packets[0].0, Some(written.packets[20].0));
            assert!(lacks(&archive, early.0, early.1).is_empty(), "{what}");
        }
        // And it is the same when it is indexed.
        Ingest::new(&archive).run(&[Input::File(recording.sealed_path())]).unwrap();
        assert!(recording.is_indexed(), "{what}");
        let after = damaged(&archive, 0, None);
        if whole > 0 {
            assert_eq!(after, before, "{what}");
        }
        assert_eq!(after.2, before.2, "{what}");
    }
    // One that is being written may be cut anywhere.
    for len in [middle.start + 9, first.start + 9, 40, 0] {
        let folder = tempfile::tempdir().unwrap();
        let archive = archive(folder.path());
        written.leave(&archive, len);
        assert!(lacks(&archive, 0, None).is_empty(), "{len}");
    }
}

/// A recording with a packet at each of these seconds, that speaks for some time.
fn put(archive: &Archive, packets: &[u64], covered: Option<(u64, u64)>) -> Recording {
    let recording = archive.new_recording(NOW_NS, 0).unwrap();
    let mut bytes = Vec::new();
    blocks::section(&mut bytes, "");
    blocks::interface(&mut bytes, &Interface::new(1, SECOND), "");
    for second in packets {
        blocks::packet(&mut bytes, 0, NOW_NS + second * SECOND, 60, &[0; 60]);
    }
    if let Some((from, to)) = covered {
        let (start_ns, end_ns) = (NOW_NS + from * SECOND, NOW_NS + to * SECOND);
        let said = Statistics { start_ns, end_ns, ..Statistics::default() };
        blocks::statistics(&mut bytes, 0, &said);
    }
    fs::write(recording.sealed_path(), bytes).unwrap();
    recording
}

const YEAR: u64 = 365 * 24 * 3_600;

#[test]
fn times_from_the_future_hide_no_time_in_which_nothing_was_recorded() {
    let folder = tempfile::tempdir().unwrap();
    let archive = archive(folder.path());
    let mut packets: Vec<u64> = (0..100).collect();
    packets.insert(50, YEAR);
    // Killed: it speaks for its start only, and has a packet from the future.
    put(&archive, &packets, Some((0, 0)));
    let gaps = [(99, 200), (210, 300)];
    for indexed in [false, true] {
        if !indexed {
            put(&archive, &[201], Some((200, 210)));
            // A clock that was ahead for a moment.
            put(&archive, &[301], Some((300, YEAR)));
            put(&archive, &[311], Some((310, 320)));
            put(&archive, &[401], Some((400, 410)));
        } else {
            for recording in archive.recordings().unwrap() {
                index(&archive, &recording, 1 << 20);
            }
        }
        let found = seconds(&archive, Cause::NotRecorded);
        assert_eq!(found[1..], [gaps[1], (320, 400)], "indexed: {indexed}");
        // Of the last packets of a recording the time is known from the last 32 of them.
        assert!(found[0].0 <= gaps[0].0 && found[0].0 >= 60 && found[0].1 == 200, "{found:?}");
    }
}

#[test]
fn a_recorder_that_ran_without_packets_has_recorded() {
    let folder = tempfile::tempdir().unwrap();
    let archive = archive(folder.path());
    put(&archive, &[1], Some((0, 10)));
    put(&archive, &[101], Some((100, 110)));
    assert_eq!(seconds(&archive, Cause::NotRecorded), [(10, 100)]);
    let covered = |from: u64, to: u64| {
        let (from_ns, to_ns) = (NOW_NS + from * SECOND, NOW_NS + to * SECOND);
        archive.remember_covered(Covered { from_ns, to_ns }).unwrap();
    };
    covered(20, 30);
    covered(30, 50);
    assert_eq!(seconds(&archive, Cause::NotRecorded), [(10, 20), (50, 100)]);
    covered(10, 20);
    covered(50, 100);
    assert_eq!(seconds(&archive, Cause::NotRecorded), []);
    // It does not grow for ever, and what is forgotten is not said to be there.
    for n in 0..1_000 {
        covered(YEAR + 10 * n, YEAR + 10 * n + 1);
    }
    assert_eq!(seconds(&archive, Cause::NotRecorded), [(10, 100)]);
    let len = fs::metadata(archive.folder().join("missing.toml")).unwrap().len();
    assert!(len < 20_000, "{len}");
}

/// What a recording had: packets at some seconds, the time that it spoke for, and losses.
fn held(packets: (u64, u64), covered: Option<(u64, u64)>, lost: &[(u64, u64, u64)]) -> Held {
    let time = |(from, to): (u64, u64)| Covered {
        from_ns: NOW_NS + from * SECOND,
        to_ns: NOW_NS + to * SECOND,
    };
    let loss = |&(from, to, packets): &(u64, u64, u64)| {
        Loss::new(NOW_NS + from * SECOND, NOW_NS + to * SECOND, packets)
    };
    Held {
        times: time(packets),
        packets: Some(10),
        covered: covered.map(time),
        losses: lost.iter().map(loss).collect(),
    }
}

fn name(number: u64) -> String {
    format!("rec-{number:010}-20260921T000000Z.pcapng")
}

#[test]
fn what_was_lost_and_not_recorded_outlasts_the_recordings() {
    let folder = tempfile::tempdir().unwrap();
    let archive = archive(folder.path());
    let removed = |number: u64, held: &Held| archive.remember_removed(&name(number), held).unwrap();
    // Losses in front of the first packet and in the middle, then two more runs.
    removed(1, &held((10, 20), Some((0, 30)), &[(2, 5, 46_000), (12, 13, 7)]));
    removed(2, &held((31, 40), Some((30, 50)), &[]));
    removed(3, &held((101, 102), Some((100, 110)), &[]));
    // One that could not say when it began.
    removed(4, &held((120, 130), None, &[]));
    removed(5, &held((201, 202), Some((200, 210)), &[(205, 206, 1)]));
    put(&archive, &[], None);
    fs::rename(
        archive.recordings().unwrap()[0].sealed_path(),
        archive.folder().join("packets").join(name(6)),
    )
    .unwrap();
    for _ in 0..2 {
        assert_eq!(seconds(&archive, Cause::Lost), [(2, 5), (12, 13), (205, 206)]);
        assert_eq!(seconds(&archive, Cause::NotRecorded), [(50, 100), (130, 200)]);
        assert_eq!(seconds(&archive, Cause::Removed), [(10, 40), (101, 130), (201, 202)]);
        // Nothing changes if the last one is removed once more, after an interruption.
        removed(5, &held((201, 202), Some((200, 210)), &[(205, 206, 1)]));
    }
    let lost = lacks(&archive, NOW_NS, Some(NOW_NS + 10 * SECOND));
    assert_eq!(lost.iter().map(|gap| gap.packets).collect::<Vec<_>>(), [Some(46_000)]);
}

#[test]
fn what_is_removed_later_may_be_older() {
    let folder = tempfile::tempdir().unwrap();
    let archive = archive(folder.path());
    // Of older versions, and of this one.
    for covered in [None, Some(())] {
        drop(fs::remove_file(archive.folder().join("missing.toml")));
        for (number, at) in [(9, 1_000), (1, 10), (2, 21)] {
            let covered = covered.map(|()| (at - 1, at + 11));
            let held = held((at, at + 10), covered, &[]);
            archive.remember_removed(&name(number), &held).unwrap();
        }
        let removed = seconds(&archive, Cause::Removed);
        assert_eq!(removed, [(10, 31), (1_000, 1_010)], "{covered:?}");
    }
}

#[test]
fn what_is_still_there_is_not_removed() {
    let folder = tempfile::tempdir().unwrap();
    let archive = archive(folder.path());
    let recording = put(&archive, &[1, 2], Some((0, 3)));
    // Interrupted between the two.
    let one = held((1, 2), Some((0, 3)), &[(1, 1, 5)]);
    archive.remember_removed(recording.name(), &one).unwrap();
    assert!(lacks(&archive, 0, None).is_empty());
    // It stays, and another one goes.
    archive.remember_removed(&name(7), &held((11, 12), Some((10, 13)), &[])).unwrap();
    fs::remove_file(recording.sealed_path()).unwrap();
    assert_eq!(seconds(&archive, Cause::Removed), [(11, 12)]);
    assert_eq!(seconds(&archive, Cause::Lost), []);
}

#[test]
fn what_cannot_be_understood_is_put_aside_and_not_forgotten() {
    let folder = tempfile::tempdir().unwrap();
    let archive = archive(folder.path());
    let path = archive.folder().join("missing.toml");
    let one = held((10, 20), Some((0, 30)), &[]);
    for damaged in ["version = 1\nremoved = 7", "no = [ toml", "\u{0}", ""] {
        fs::write(&path, damaged).unwrap();
        let long_ago = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_000);
        File::options().write(true).open(&path).unwrap().set_modified(long_ago).unwrap();
        archive.remember_removed(&name(1), &one).unwrap();
        let aside = archive.folder().join("missing.toml.damaged");
        assert_eq!(fs::read_to_string(aside).unwrap(), damaged);
        let unknown = lacks(&archive, 5, Some(6));
        let [gap] = &unknown[..] else { panic!("{unknown:?}") };
        assert_eq!((gap.cause, gap.packets), (Cause::Removed, None));
        assert_eq!((gap.from_ns, gap.to_ns), (0, 1_000 * SECOND));
        assert_eq!(seconds(&archive, Cause::Removed).last(), Some(&(10, 20)));
    }
    // What a later version has written, or what cannot be read now, stays as it is.
    fs::write(&path, "version = 2\nnew = 1").unwrap();
    assert!(archive.remember_removed(&name(2), &one).is_err());
    assert_eq!(fs::read_to_string(&path).unwrap(), "version = 2\nnew = 1");
    assert!(lacks(&archive, 0, None)[0].what.contains("version 2"));
}
