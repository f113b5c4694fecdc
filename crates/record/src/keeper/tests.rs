use tapdex_engine::archive::{Cause, Ingest, Input};
use tapdex_engine::capture::{Interface, blocks};
use tapdex_engine::time::TimeRange;

use super::*;
use crate::clock::HandClock;
use crate::messages::Level;
use crate::source::numbered_frame;

const SECOND: u64 = 1_000_000_000;
const HOUR: u64 = 3_600 * SECOND;
const YEAR: u64 = 365 * 24 * HOUR;
const START: u64 = 50 * YEAR;

/// An archive with a recording of 100 packets from each of these times, in parts of 40.
fn recorded(times: &[u64]) -> (tempfile::TempDir, Archive) {
    let folder = tempfile::tempdir().unwrap();
    let archive = Archive::create(&folder.path().join("archive"), None).unwrap();
    for &time in times {
        let recording = archive.new_recording(time, 0).unwrap();
        let mut bytes = Vec::new();
        blocks::section(&mut bytes, "");
        blocks::interface(&mut bytes, &Interface::new(1, SECOND), "");
        for n in 0..100 {
            blocks::packet(&mut bytes, 0, time + n, 80, &numbered_frame(n, 80));
        }
        std::fs::write(recording.sealed_path(), bytes).unwrap();
        let ingest = Ingest::new(&archive).records_max(40);
        ingest.run(&[Input::File(recording.sealed_path())]).unwrap();
        assert!(recording.is_indexed());
    }
    (folder, archive)
}

fn keep<'a>(archive: &'a Archive, clocks: &'a HandClock, retention: Retention) -> Keeper<'a> {
    Keeper::new(archive, retention, clocks).unwrap()
}

fn by_age(hours: u64) -> Retention {
    Retention { age: Some(Duration::from_secs(3_600 * hours)), ..Retention::default() }
}

/// Removes all that are too old; returns how many.
fn expire(keeper: &mut Keeper<'_>) -> u64 {
    let before = keeper.removed.segments[2];
    while keeper.expire_one() {}
    keeper.removed.segments[2] - before
}

/// The keeper's messages, except those it always has.
fn says(keeper: &mut Keeper<'_>) -> Vec<String> {
    let said = keeper.says().into_iter();
    said.filter(|message| message.level <= Level::Warn).map(|message| message.text).collect()
}

#[test]
fn a_clock_that_jumps_removes_nothing() {
    let clocks = HandClock::new(START);
    let (_folder, archive) = recorded(&[START - 5 * HOUR, START - 3 * HOUR, START - HOUR]);
    let mut keeper = keep(&archive, &clocks, by_age(4));
    assert_eq!(expire(&mut keeper), 1, "what is too old by a sound clock");
    // Years ahead, for a second.
    clocks.set(START + 20 * YEAR);
    assert_eq!((expire(&mut keeper), keeper.is_age_paused()), (0, true));
    clocks.pass(Duration::from_nanos(SECOND));
    assert_eq!((expire(&mut keeper), keeper.is_age_paused()), (0, true));
    let said = says(&mut keeper);
    assert!(said.len() == 1 && said[0].contains("ahead"), "{said:?}");
    clocks.set(START + SECOND);
    assert_eq!((expire(&mut keeper), keeper.is_age_paused()), (0, false));
    assert_eq!(says(&mut keeper), ["recordings are removed by age again"]);
    assert_eq!(archive.recordings().unwrap().len(), 2);
    // Time goes on, and so does removal.
    clocks.pass(Duration::from_nanos(2 * HOUR));
    assert_eq!((expire(&mut keeper), keeper.is_age_paused()), (1, false));
    assert_eq!(says(&mut keeper), [""; 0]);
}

#[test]
fn a_jump_keeps_no_limit_of_bytes_or_number_from_holding() {
    let clocks = HandClock::new(START);
    let (_folder, archive) = recorded(&[START - 3 * HOUR, START - 2 * HOUR, START - HOUR]);
    let retention = Retention { segments: Some(2), ..by_age(4) };
    let mut keeper = keep(&archive, &clocks, retention);
    clocks.set(START + YEAR);
    assert_eq!(expire(&mut keeper), 0);
    assert!(keeper.make_room(1, 0) > 0);
    assert_eq!(keeper.removed.segments, [0, 0, 0, 2]);
}

#[test]
fn a_clock_that_is_wrong_at_the_start_removes_nothing_at_once() {
    let clocks = HandClock::new(START);
    let (_folder, archive) = recorded(&[START - 2 * HOUR, START - HOUR]);
    clocks.set(START + YEAR);
    let mut keeper = keep(&archive, &clocks, by_age(4));
    assert_eq!((expire(&mut keeper), keeper.is_age_paused()), (0, true));
    clocks.pass(Duration::from_nanos(9 * 60 * SECOND));
    assert_eq!(expire(&mut keeper), 0);
    // It was right.
    clocks.pass(Duration::from_nanos(60 * SECOND));
    assert_eq!((expire(&mut keeper), keeper.is_age_paused()), (2, false));
}

#[test]
fn a_clock_that_is_ahead_at_the_start_removes_nothing_at_once() {
    // Ten days ahead, and even then some recordings are not too old.
    let day = 24 * HOUR;
    let clocks = HandClock::new(START);
    let (_folder, archive) = recorded(&[START - 13 * day, START - 5 * day, START - HOUR]);
    clocks.set(START + 10 * day);
    let mut keeper = keep(&archive, &clocks, by_age(14 * 24));
    assert_eq!((expire(&mut keeper), keeper.is_age_paused()), (0, true));
    let said = says(&mut keeper);
    assert!(said.len() == 1 && said[0].contains("ten minutes"), "{said:?}");
    clocks.pass(Duration::from_secs(600));
    assert_eq!((expire(&mut keeper), keeper.is_age_paused()), (2, false));
    // After a night without a recorder nobody doubts it.
    let (_folder, archive) = recorded(&[START - 13 * day, START - HOUR]);
    let clocks = HandClock::new(START + 12 * HOUR);
    let mut keeper = keep(&archive, &clocks, by_age(13 * 24));
    assert_eq!((expire(&mut keeper), keeper.is_age_paused()), (1, false));
}

/// What the archive reports missing for a cause: times, and packets.
fn missing(archive: &Archive, cause: Cause) -> Vec<(u64, u64, Option<u64>)> {
    let gaps = archive.survey(TimeRange::ALL).unwrap().gaps;
    let of_cause = gaps.iter().filter(|gap| gap.cause == cause);
    of_cause.map(|gap| (gap.from_ns, gap.to_ns, gap.packets)).collect()
}

#[test]
fn what_cannot_be_removed_is_not_removed() {
    let clocks = HandClock::new(START);
    let times = [START - 3 * HOUR, START - 2 * HOUR, START - HOUR];
    let (_folder, archive) = recorded(&times);
    let recordings = archive.recordings().unwrap();
    let mut keeper = keep(&archive, &clocks, Retention::default());
    // Its index has a folder for a fourth part.
    std::fs::create_dir(recordings[0].index_path(3)).unwrap();
    for _ in 0..3 {
        assert_eq!(keeper.remove(recordings[0].name(), Reason::Bytes), None);
        assert_eq!(missing(&archive, Cause::Removed), []);
    }
    assert!(keeper.remove(recordings[1].name(), Reason::Bytes).is_some());
    let second = (times[1], times[1] + 99, Some(100));
    assert_eq!(missing(&archive, Cause::Removed), [second]);
    std::fs::remove_dir(recordings[0].index_path(3)).unwrap();
    assert!(keeper.remove(recordings[0].name(), Reason::Bytes).is_some());
    let first = (times[0], times[0] + 99, Some(100));
    assert_eq!(missing(&archive, Cause::Removed), [first, second]);
}

#[test]
fn what_nobody_has_counted_is_not_0() {
    let clocks = HandClock::new(START);
    let (_folder, archive) = recorded(&[START - 2 * HOUR, START - HOUR]);
    let first = archive.recordings().unwrap().remove(0);
    (0..3).for_each(|part| std::fs::remove_file(first.index_path(part)).unwrap());
    let mut keeper = keep(&archive, &clocks, Retention::default());
    keeper.remove(first.name(), Reason::Bytes).unwrap();
    let [(from, _, packets)] = missing(&archive, Cause::Removed)[..] else { panic!("not one") };
    assert_eq!((from, packets), (START - 2 * HOUR, None));
}

#[test]
fn what_cannot_be_written_down_is_written_later() {
    let clocks = HandClock::new(START);
    let times = [START - 3 * HOUR, START - 2 * HOUR, START - HOUR];
    let (_folder, archive) = recorded(&times);
    let recordings = archive.recordings().unwrap();
    let mut keeper = keep(&archive, &clocks, Retention::default());
    // Written by a later version: must not be replaced.
    let path = archive.folder().join("missing.toml");
    std::fs::write(&path, "version = 2\n").unwrap();
    for recording in &recordings[..2] {
        assert!(keeper.remove(recording.name(), Reason::Bytes).is_some());
    }
    let said = says(&mut keeper);
    assert!(said.len() == 1 && said[0].contains("version 2"), "{said:?}");
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "version = 2\n");
    std::fs::remove_file(&path).unwrap();
    keeper.remember();
    assert_eq!(missing(&archive, Cause::Removed).len(), 2);
    assert_eq!(says(&mut keeper), [""; 0]);
}

#[test]
fn without_a_limit_of_age_nobody_looks_at_the_clock() {
    let clocks = HandClock::new(START);
    let (_folder, archive) = recorded(&[START - HOUR]);
    let mut keeper = keep(&archive, &clocks, Retention::default());
    clocks.set(START + YEAR);
    assert_eq!((expire(&mut keeper), keeper.is_age_paused()), (0, false));
    assert_eq!(says(&mut keeper), [""; 0]);
}

#[test]
fn no_part_of_an_index_outlasts_its_packets() {
    for missing in [&[0][..], &[1], &[2], &[0, 1], &[0, 2], &[1, 2]] {
        let clocks = HandClock::new(START);
        let (_folder, archive) = recorded(&[START - 2 * HOUR, START - HOUR]);
        let first = archive.recordings().unwrap().remove(0);
        for &part in missing {
            std::fs::remove_file(first.index_path(part)).unwrap();
        }
        let mut keeper = keep(&archive, &clocks, Retention::default());
        assert_eq!(keeper.unindexed(), [first.name().to_owned()].into());
        assert!(keeper.remove(first.name(), Reason::Bytes).is_some());
        assert_eq!(archive.index_files().unwrap().len(), 3, "without {missing:?}");
        let (segments, failed) = archive.segments().unwrap();
        assert!(failed.is_empty() && segments.len() == 3, "without {missing:?}: {failed:?}");
    }
}
