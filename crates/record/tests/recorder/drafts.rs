//! Drafts of the recording that is open: they come, they go, and nothing depends on them.

use std::fs;
use std::sync::Mutex;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

use tapdex_engine::archive::{Archive, Ingest, Input, Recording};
use tapdex_engine::capture::CaptureReader;
use tapdex_engine::query::filter::Filter;
use tapdex_engine::query::{Follow, Query};
use tapdex_engine::testing::{Operation, PlainDevice};
use tapdex_engine::time::TimeRange;
use tapdex_record::clock::{HandClock, Waiter};
use tapdex_record::recorder::Recorder;
use tapdex_record::source::PacketSource;

use super::Stalled;
use super::rig::{
    Door, Live, Opens, PATIENCE, Rig, check_counts, frame, now_ns, numbered, settles, until,
};

/// Packets that are enough for a draft.
const ENOUGH: u64 = 1 << 17;

/// A small packet with a number in it.
fn small(number: u64) -> Vec<u8> {
    frame(number)[..60].to_vec()
}

type Give = Sender<Option<(u64, Vec<u8>)>>;

/// A source that a test hands packets to.
fn source() -> (Give, PacketSource) {
    let (give, packets) = channel();
    (give, PacketSource::made("made", false, Box::new(packets.into_iter())))
}

/// Records some packets, and waits until they are written.
fn feed(give: &Give, live: &Live<'_>, numbers: std::ops::Range<u64>) {
    let (start, end) = (now_ns(), numbers.end);
    for n in numbers {
        give.send(Some((start + n, small(n)))).unwrap();
    }
    give.send(None).unwrap();
    live.until("written", |status| status.run.packets == end);
}

/// How often the indexer sees whether there is something to make a draft of.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// A clock that stands still: nothing looks for drafts.
fn clock() -> HandClock {
    HandClock::new(now_ns())
}

/// Lets the indexer look once, and waits until it has done what it found to do.
#[track_caller]
fn look(clock: &HandClock) {
    clock.pass(LOOK_EVERY);
    settles(clock, Waiter::Indexer);
}

/// Records some packets by a clock that stands still, and waits until they are written.
fn feed_by(clock: &HandClock, rig: &Rig, give: &Give, numbers: std::ops::Range<u64>) {
    let (start, end) = (now_ns(), numbers.end);
    for n in numbers {
        give.send(Some((start + n, small(n)))).unwrap();
    }
    give.send(None).unwrap();
    until("written", || written(rig) == end);
    // It counts them after that.
    settles(clock, Waiter::Writer);
}

/// Packets in the files of an archive.
fn written(rig: &Rig) -> u64 {
    let recordings = rig.archive.recordings().unwrap();
    let packets = |recording: &Recording| {
        let mut reader = CaptureReader::open(recording.open().unwrap()).unwrap();
        std::iter::from_fn(|| reader.next().ok().flatten().map(|_| ())).count() as u64
    };
    recordings.iter().map(packets).sum()
}

/// Closes the recording that is open, and waits until so many are indexed.
fn rotate(rig: &Rig, live: &Live<'_>, indexed: usize) {
    live.control.rotate.store(true, Ordering::SeqCst);
    until_indexed(rig, indexed);
}

fn until_indexed(rig: &Rig, indexed: usize) {
    until("indexed", || {
        let recordings = rig.archive.recordings().unwrap();
        recordings.len() == indexed && recordings.iter().all(Recording::is_indexed)
    });
}

/// Names of drafts, also of those that are being made.
fn drafts(rig: &Rig) -> Vec<String> {
    let entries = rig.archive.folder().join("drafts").read_dir().into_iter().flatten().flatten();
    let mut names: Vec<String> =
        entries.map(|entry| entry.file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

fn is_made(name: &str) -> bool {
    !name.starts_with('.')
}

/// The numbers of all packets, in the order of their times.
fn found(archive: &Archive) -> Vec<u64> {
    let query = Query::new(Filter::parse("udp port 53", 0).unwrap(), TimeRange::ALL);
    let search = archive.search(&query).unwrap();
    let mut packets = search.packets();
    let mut numbers = Vec::new();
    while let Some(found) = packets.next().unwrap() {
        let data = found.record.data;
        let number = u64::from_le_bytes(data[42..50].try_into().unwrap());
        assert!(data == small(number), "packet {number} has changed");
        numbers.push(number);
    }
    let gaps = packets.finish().unwrap().gaps;
    assert!(gaps.iter().all(|gap| gap.error.is_none()), "{gaps:?}");
    numbers
}

/// How many packets of an archive are in drafts that searches use.
fn in_drafts(archive: &Archive) -> u64 {
    let (segments, _) = archive.segments().unwrap();
    let used = segments.iter().filter(|segment| segment.is_draft() && !segment.is_in_memory());
    used.map(|segment| segment.note().records).sum()
}

/// Nothing is left of drafts, and all is indexed as it would be without them.
#[track_caller]
fn check_end(rig: &Rig, packets: u64) {
    assert_eq!(drafts(rig), [""; 0]);
    rig.check();
    let (segments, _) = rig.archive.segments().unwrap();
    assert!(!segments.iter().any(|s| s.is_draft()));
    assert_eq!(found(&rig.archive), Vec::from_iter(0..packets));
    for index in rig.archive.index_files().unwrap() {
        let bytes = fs::read(&index).unwrap();
        let recording = rig.archive.recording_of(&index).unwrap();
        let again = Ingest::new(&rig.archive).force(true);
        again.run(&[Input::File(recording.sealed_path())]).unwrap();
        assert!(fs::read(&index).unwrap() == bytes, "{}", index.display());
    }
}

#[test]
fn much_in_one_recording_makes_drafts() {
    let rig = Rig::new();
    let (give, source) = source();
    let ended = rig.record(source, None, None, |live| {
        feed(&give, live, 0..1_000);
        assert_eq!(found(&rig.archive), Vec::from_iter(0..1_000));
        // Who follows from here on is given every packet once, drafts or not.
        let query = Query::new(Filter::parse("", 0).unwrap(), TimeRange::ALL);
        let (segments, _) = rig.archive.segments().unwrap();
        let mut follow = Follow::after(&rig.archive, &query, &segments);
        let mut followed = Vec::new();
        let mut reached = 1_000;
        for (n, more) in (1..).zip([ENOUGH, ENOUGH + 10, 3, 2 * ENOUGH + 5_000]) {
            let first = reached;
            reached += more;
            feed(&give, live, first..reached);
            let least = reached.saturating_sub(ENOUGH);
            until("drafts", || in_drafts(&rig.archive) > least);
            assert_eq!(found(&rig.archive), Vec::from_iter(0..reached), "{n}");
            let polled = follow.poll(&mut |fresh| {
                followed.push(fresh.number);
                Ok(true)
            });
            polled.unwrap();
            assert_eq!(followed, Vec::from_iter(1_000..reached), "{n}");
            // And behind drafts.
            let (segments, _) = rig.archive.segments().unwrap();
            let mut behind = Follow::after(&rig.archive, &query, &segments);
            behind.poll(&mut |fresh| panic!("{} again", fresh.number)).unwrap();
        }
        assert!(drafts(&rig).iter().filter(|name| is_made(name)).count() >= 3);
        assert_eq!(rig.names("segments"), [""; 0]);
        drop(give);
    });
    assert_eq!(ended.troubles, [""; 0]);
    check_counts(&ended.status);
    assert_eq!(ended.status.run.packets, 1_000 + 4 * ENOUGH + 5_013);
    check_end(&rig, ended.status.run.packets);
}

#[test]
fn each_recording_has_drafts_of_its_own() {
    let rig = Rig::new();
    let (give, source) = source();
    let ended = rig.record(source, None, None, |live| {
        for n in 0..3 {
            feed(&give, live, n * (ENOUGH + 700)..(n + 1) * (ENOUGH + 700));
            until("a draft", || in_drafts(&rig.archive) > 0);
            let names = drafts(&rig);
            let open = rig.archive.recordings().unwrap().pop().unwrap();
            assert!(names.iter().all(|name| name.contains(open.name())), "{names:?}");
            live.control.rotate.store(true, Ordering::SeqCst);
            live.until("indexed", |status| status.indexed == n + 1);
            assert_eq!(drafts(&rig), [""; 0]);
        }
        drop(give);
    });
    assert_eq!(ended.troubles, [""; 0]);
    check_end(&rig, 3 * (ENOUGH + 700));
}

#[test]
fn there_are_no_drafts_where_there_is_little_room() {
    let rig = Rig::new();
    let disk = rig.disk();
    disk.capacity(255 << 20);
    let (give, source) = source();
    let clock = clock();
    let ended = rig.record_by(&clock, source, Some(&disk), None, |_| {
        feed_by(&clock, &rig, &give, 0..ENOUGH + 3_000);
        look(&clock);
        assert!(!rig.archive.folder().join("drafts").exists());
        assert_eq!(found(&rig.archive), Vec::from_iter(0..ENOUGH + 3_000));
        // Somebody makes room.
        disk.capacity(900 << 20);
        look(&clock);
        assert!(in_drafts(&rig.archive) > 0);
        // And takes it again: what is there stays, and no more come.
        disk.others(800 << 20);
        let names = drafts(&rig);
        feed_by(&clock, &rig, &give, ENOUGH + 3_000..2 * ENOUGH + 6_000);
        look(&clock);
        assert_eq!(drafts(&rig), names);
        assert_eq!(found(&rig.archive), Vec::from_iter(0..2 * ENOUGH + 6_000));
        drop(give);
    });
    assert_eq!(ended.troubles, [""; 0]);
    check_end(&rig, 2 * ENOUGH + 6_000);
}

#[test]
fn there_are_no_drafts_of_what_is_complete_soon() {
    let mut rig = Rig::new();
    rig.options.rotation.time = Duration::from_secs(10);
    let (give, source) = source();
    let clock = clock();
    let ended = rig.record_by(&clock, source, None, None, |_| {
        feed_by(&clock, &rig, &give, 0..10);
        // Two seconds are soon.
        clock.pass(Duration::from_millis(8_100));
        feed_by(&clock, &rig, &give, 10..ENOUGH + 1_000);
        look(&clock);
        assert!(rig.archive.recordings().unwrap().iter().all(|one| !one.is_sealed()));
        clock.pass(Duration::from_secs(2));
        until_indexed(&rig, 1);
        drop(give);
    });
    // The folder would stay.
    assert!(!rig.archive.folder().join("drafts").exists());
    assert_eq!(ended.troubles, [""; 0]);
    check_end(&rig, ENOUGH + 1_000);
}

/// Records where drafts cannot be made.
fn record_beside_a_file(rig: &Rig, at_start: bool) {
    let path = rig.archive.folder().join("drafts");
    let put = || fs::write(&path, "a file").unwrap();
    if at_start {
        put();
    }
    let (give, source) = source();
    let clock = clock();
    let ended = rig.record_by(&clock, source, None, None, |live| {
        if !at_start {
            put();
        }
        for n in 0..3 {
            feed_by(&clock, rig, &give, n * (ENOUGH + 700)..(n + 1) * (ENOUGH + 700));
            look(&clock);
            assert_eq!(found(&rig.archive), Vec::from_iter(0..(n + 1) * (ENOUGH + 700)));
            rotate(rig, live, usize::try_from(n + 1).unwrap());
        }
        drop(give);
    });
    // Once, however many recordings there are; a start says what it could not list.
    let said = ended.troubles.iter().filter(|text| text.contains("open recording")).count();
    assert_eq!(said, 1, "{:?}", ended.troubles);
    assert!(ended.troubles.len() <= 1 + usize::from(at_start), "{:?}", ended.troubles);
    assert_eq!(ended.status.run.lost.sum(), 0);
    check_counts(&ended.status);
    assert_eq!(fs::read(&path).unwrap(), b"a file");
    check_end(rig, 3 * (ENOUGH + 700));
}

#[test]
fn a_file_instead_of_drafts_is_said_once() {
    record_beside_a_file(&Rig::new(), false);
}

#[test]
fn a_file_instead_of_drafts_does_not_keep_it_from_starting() {
    record_beside_a_file(&Rig::new(), true);
}

#[test]
fn a_folder_among_drafts_does_not_keep_it_from_starting() {
    let rig = Rig::new();
    fs::create_dir_all(rig.archive.folder().join("drafts/lost+found/a")).unwrap();
    let status = rig.record_all(numbered(0..100, 10));
    assert_eq!((status.run.packets, status.indexed), (100, 1));
    rig.check();
}

#[test]
fn drafts_of_what_retention_removes_go() {
    let mut rig = Rig::new();
    rig.options.retention.segments = Some(1);
    let door = Door::new(false);
    let opens = Opens(door.clone());
    let device = Mutex::new(Stalled { device: PlainDevice::default(), door: door.clone() });
    let (give, source) = source();
    let ended = rig.record(source, None, Some(&device), |live| {
        feed(&give, live, 0..ENOUGH + 500);
        until("a draft", || in_drafts(&rig.archive) > 0);
        live.control.rotate.store(true, Ordering::SeqCst);
        live.until("it waits for its index", |status| status.sealed == 1);
        until("it stands at the door", || door.waiting.load(Ordering::SeqCst) == 1);
        // Drafts are of use until there is an index.
        assert!(in_drafts(&rig.archive) > 0);
        assert_eq!(found(&rig.archive), Vec::from_iter(0..ENOUGH + 500));
        let first = rig.archive.recordings().unwrap().pop().unwrap();
        // The next one needs its place.
        feed(&give, live, ENOUGH + 500..ENOUGH + 600);
        until("it goes", || !first.sealed_path().exists());
        until("its drafts go", || drafts(&rig).is_empty());
        assert_eq!(found(&rig.archive), Vec::from_iter(ENOUGH + 500..ENOUGH + 600));
        drop(opens);
        drop(give);
    });
    let status = ended.status;
    assert_eq!((status.run.removed_segments, status.run.removed_packets), (1, ENOUGH + 500));
    assert_eq!(ended.troubles, [""; 0]);
    assert_eq!(drafts(&rig), [""; 0]);
    rig.check();
    assert_eq!((rig.names("packets").len(), rig.names("segments").len()), (1, 1));
    assert_eq!(found(&rig.archive), Vec::from_iter(ENOUGH + 500..ENOUGH + 600));
}

/// More small packets than a draft needs, as fast as it goes, and then some more until it is told
/// to stop.
fn endless() -> PacketSource {
    let start = now_ns();
    let packet = move |n: u64| {
        if n > 4 * ENOUGH {
            std::thread::sleep(Duration::from_millis(1));
        }
        Some((start + n, small(n)))
    };
    PacketSource::made("made", false, Box::new((0..).map(packet)))
}

#[test]
fn a_stop_while_drafts_are_made_leaves_nothing_behind() {
    let rig = Rig::new();
    let ended = rig.record(endless(), None, None, |live| {
        until("a draft", || !drafts(&rig).is_empty());
        live.control.stop.store(true, Ordering::SeqCst);
    });
    assert_eq!((ended.status.waiting, ended.status.sealed), (0, ended.status.indexed));
    assert_eq!(ended.troubles, [""; 0]);
    check_counts(&ended.status);
    check_end(&rig, ended.status.run.packets);
}

#[test]
fn drafts_outlast_a_hurry() {
    let mut rig = Rig::new();
    rig.options.finish = Duration::ZERO;
    let ended = rig.record(endless(), None, None, |live| {
        until("a draft", || drafts(&rig).iter().any(|name| is_made(name)));
        live.control.stop.store(true, Ordering::SeqCst);
        live.control.hurry.store(true, Ordering::SeqCst);
    });
    let packets = ended.status.run.packets;
    let names = drafts(&rig);
    assert!(names.iter().all(|name| is_made(name)), "{names:?}");
    assert_eq!(ended.troubles, [""; 0]);
    assert_eq!(found(&rig.archive), Vec::from_iter(0..packets));
    // It may have been faster than that.
    let unindexed = rig.archive.unindexed_recordings().unwrap();
    assert_eq!((names.is_empty(), in_drafts(&rig.archive) == 0), (unindexed == 0, unindexed == 0));
    let recorder = Recorder::new(&rig.archive, Vec::new(), rig.options.clone()).unwrap();
    assert_eq!(recorder.waiting(), unindexed);
    assert!(ended.status.waiting >= unindexed);
    drop(recorder);
    assert_eq!(drafts(&rig), names, "they are needed until there is an index");
    rig.options.finish = PATIENCE;
    rig.record_all(Box::new(std::iter::empty()));
    check_end(&rig, packets);
}

#[test]
fn a_start_removes_drafts_that_nobody_needs() {
    let rig = Rig::new().rotate_packets(100);
    rig.record_all(numbered(0..400, 100));
    let recordings = rig.archive.recordings().unwrap();
    let folder = rig.archive.folder().join("drafts");
    fs::create_dir_all(&folder).unwrap();
    let put = |name: &str| {
        for name in [format!("{name}-0000.tdx"), format!(".{name}-0001.tdx.tmp")] {
            fs::write(folder.join(name), "no index").unwrap();
        }
    };
    recordings.iter().for_each(|recording| put(recording.name()));
    put("rec-0000000000-20200101T000000Z.pcapng");
    // One is gone, one is not indexed, and one is not even complete.
    fs::remove_file(recordings[1].sealed_path()).unwrap();
    fs::remove_file(recordings[1].index_path(0)).unwrap();
    fs::remove_file(recordings[2].index_path(0)).unwrap();
    fs::remove_file(recordings[3].index_path(0)).unwrap();
    fs::rename(recordings[3].sealed_path(), recordings[3].unfinished_path()).unwrap();
    let recorder = Recorder::new(&rig.archive, Vec::new(), rig.options.clone()).unwrap();
    assert_eq!(recorder.waiting(), 2);
    drop(recorder);
    let names = drafts(&rig);
    assert_eq!(names.len(), 4);
    let is_needed = |name: &String| recordings[2..].iter().any(|r| name.contains(r.name()));
    assert!(names.iter().all(is_needed), "{names:?}");
    assert_eq!(rig.found(), Vec::from_iter((0..100).chain(200..400)));
    rig.record_all(Box::new(std::iter::empty()));
    assert_eq!(drafts(&rig), [""; 0]);
    rig.check();
    assert_eq!(rig.found(), Vec::from_iter((0..100).chain(200..400)));
}

/// A recording that is closed, and takes its time to become complete, while a draft of it is made.
#[test]
fn a_recording_may_be_closed_while_a_draft_is_made() {
    let rig = Rig::new();
    let disk = rig.disk();
    let sync = disk.on(Operation::Sync).named(".part").waits();
    let (give, source) = source();
    let clock = clock();
    let ended = rig.record_by(&clock, source, Some(&disk), None, |live| {
        feed_by(&clock, &rig, &give, 0..ENOUGH + 10);
        // The indexer is kept where it is about to make a draft of what is open: nobody else asks
        // for room, who tells how it is has done so.
        settles(&clock, Waiter::Teller);
        let space = disk.on(Operation::Space).waits();
        clock.pass(LOOK_EVERY);
        until("it asks for room", || space.waiting() == 1);
        // What the writer says at the end shows that it closes it; it cannot become complete.
        let open = rig.archive.recordings().unwrap().pop().unwrap().unfinished_path();
        let bytes = || open.metadata().unwrap().len();
        let before = bytes();
        live.control.rotate.store(true, Ordering::SeqCst);
        until("it is closed", || bytes() > before);
        drop(space);
        until("a draft", || in_drafts(&rig.archive) > 0);
        until("it is about to become complete", || sync.waiting() == 1);
        assert_eq!(found(&rig.archive), Vec::from_iter(0..ENOUGH + 10));
        assert!(open.exists());
        drop(sync);
        until_indexed(&rig, 1);
        drop(give);
    });
    assert_eq!(ended.troubles, [""; 0]);
    check_end(&rig, ENOUGH + 10);
}
