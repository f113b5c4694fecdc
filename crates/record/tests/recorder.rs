//! A recorder on bad disks, beside a stalled indexer, with little room, and after damage: nothing
//! is lost that is not counted, nothing grows without bound, and nothing waits for ever.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "recorder/disks.rs"]
mod disks;
#[path = "recorder/drafts.rs"]
mod drafts;
#[path = "recorder/gaps.rs"]
mod gaps;
#[path = "recorder/retention.rs"]
mod retention;
#[path = "recorder/rig.rs"]
mod rig;

use std::fs;
use std::sync::Mutex;
use std::sync::atomic::Ordering;
use std::time::Duration;

use rig::{
    Door, FRAME_BYTES, Opens, PATIENCE, Rig, STORED_BYTES, check_counts, now_ns, numbered, settles,
    until,
};
use tapdex_bitmap::Codec;
use tapdex_engine::IndexError;
use tapdex_engine::archive::device::{
    SegmentColumn, SegmentDevice, SegmentFailed, SegmentKeys, SegmentOrder,
};
use tapdex_engine::archive::{Ingest, Input};
use tapdex_engine::index::ColumnIndex;
use tapdex_engine::testing::PlainDevice;
use tapdex_record::clock::{HandClock, Waiter};
use tapdex_record::recorder::{RecordError, Recorder};
use tapdex_record::source::PacketSource;
use tapdex_record::units::Rotation;

/// A device that stands at a door before each segment.
#[derive(Debug)]
struct Stalled {
    device: PlainDevice,
    door: std::sync::Arc<Door>,
}

impl SegmentDevice for Stalled {
    fn sort(&mut self, segment: &SegmentKeys<'_>) -> Result<SegmentOrder, SegmentFailed> {
        self.door.pass();
        self.device.sort(segment)
    }

    fn columns(
        &mut self,
        columns: &[(SegmentColumn<'_>, Codec)],
        done: &mut dyn FnMut(&ColumnIndex) -> Result<(), IndexError>,
    ) -> Result<(), SegmentFailed> {
        self.device.columns(columns, done)
    }
}

#[test]
fn a_stalled_indexer_loses_nothing() {
    let mut rig = Rig::new().rotate_packets(200);
    // All packets have room there: it is not the disk that they could be lost by.
    rig.options.queue_bytes = 32 << 20;
    let door = Door::new(false);
    let opens = Opens(door.clone());
    let device = Mutex::new(Stalled { device: PlainDevice::default(), door: door.clone() });
    let source = PacketSource::made("made", true, numbered(0..2_000, 100));
    let ended = rig.record(source, None, Some(&device), |live| {
        live.until("ten wait", |status| status.waiting == 10);
        live.until("behind", |status| status.index_lag_seconds > 0.5);
        until("it stands at the door", || door.waiting.load(Ordering::SeqCst) == 1);
        let status = live.status();
        assert_eq!((status.sealed, status.indexed, status.run.packets), (10, 0, 2_000));
        assert_eq!(rig.found(), Vec::from_iter(0..2_000), "all is found all the same");
        let (segments, _) = rig.archive.segments().unwrap();
        assert!(segments.iter().all(|s| s.is_in_memory()));
        assert!(!live.has_ended());
        drop(opens);
    });
    let status = ended.status;
    assert_eq!((status.waiting, status.indexed, status.indexed_packets), (0, 10, 2_000));
    assert_eq!((status.index_lag_seconds, status.run.lost.sum()), (0.0, 0));
    assert_eq!(device.lock().unwrap().device.sorted, 10);
    check_counts(&status);
    rig.check();
    assert_eq!(rig.found(), Vec::from_iter(0..2_000));
}

#[test]
fn a_stalled_indexer_is_left_behind_at_the_end() {
    let mut rig = Rig::new().rotate_packets(200);
    rig.options.finish = Duration::ZERO;
    let door = Door::new(false);
    let opens = Opens(door.clone());
    let device = Mutex::new(Stalled { device: PlainDevice::default(), door });
    let source = PacketSource::made("made", false, numbered(0..1_000, 100));
    let ended = rig.record(source, None, Some(&device), |live| {
        live.until("five wait", |status| status.waiting == 5);
        live.control.stop.store(true, Ordering::SeqCst);
        // Who tells it has come by often since then. What the device has begun it ends; the rest is
        // left to the next start.
        for _ in 0..20 {
            live.control.rotate.store(true, Ordering::SeqCst);
            until("what is said is heard", || !live.control.rotate.load(Ordering::SeqCst));
        }
        drop(opens);
    });
    assert!(ended.status.waiting > 0 && ended.status.ended);
    assert_eq!(rig.found(), Vec::from_iter(0..1_000));
    // Which does it, and says how many there were.
    let recorder = Recorder::new(&rig.archive, Vec::new(), rig.options.clone()).unwrap();
    assert_eq!(recorder.waiting(), ended.status.waiting);
    drop(recorder);
    rig.options.finish = PATIENCE;
    let status = rig.record_all(numbered(1_000..1_010, 10));
    assert_eq!(status.waiting, 0);
    rig.check();
    assert_eq!(rig.found(), Vec::from_iter(0..1_010));
}

/// Sizes of the recordings, and packets of each.
fn sizes(rig: &Rig) -> (Vec<u64>, Vec<u64>) {
    let (segments, _) = rig.archive.segments().unwrap();
    let bytes = segments.iter().map(|s| s.packet_path().metadata().unwrap().len());
    (bytes.collect(), segments.iter().map(|segment| segment.note().records).collect())
}

#[test]
fn recordings_end_by_size() {
    let mut rig = Rig::new();
    rig.options.rotation = Rotation { bytes: 300_000, ..Rotation::default() };
    rig.record_all(numbered(0..2_000, 50));
    let (bytes, packets) = sizes(&rig);
    // 291 packets are enough: with those that come together that makes 300.
    assert_eq!(packets, [300, 300, 300, 300, 300, 300, 200]);
    assert!(
        bytes[..6].iter().all(|&bytes| (300_000..300_000 + 50 * STORED_BYTES).contains(&bytes))
    );
    assert_eq!(rig.found(), Vec::from_iter(0..2_000));
    rig.check();
}

#[test]
fn recordings_end_by_packets() {
    let rig = Rig::new().rotate_packets(250);
    let status = rig.record_all(numbered(0..1_000, 50));
    assert_eq!(sizes(&rig).1, [250, 250, 250, 250]);
    assert_eq!((status.sealed, status.segments, status.synced_packets), (4, 4, 1_000));
    rig.check();
}

#[test]
fn recordings_end_by_time_and_when_told() {
    let mut rig = Rig::new();
    let time = Duration::from_secs(60);
    rig.options.rotation = Rotation { time, ..Rotation::default() };
    let (give, packets) = std::sync::mpsc::channel();
    let source = PacketSource::made("made", false, Box::new(packets.into_iter()));
    let clock = HandClock::new(now_ns());
    let ended = rig.record_by(&clock, source, None, None, |_| {
        let sealed = || rig.archive.recordings().unwrap().iter().filter(|r| r.is_sealed()).count();
        for (n, first) in [(0, 0), (1, 10)] {
            numbered(first..first + 10, 10).for_each(|packet| give.send(packet).unwrap());
            until("written", || rig.found().len() as u64 == first + 10);
            clock.pass(time - Duration::from_nanos(1));
            settles(&clock, Waiter::Writer);
            assert!(sealed() == n && rig.archive.recordings().unwrap().len() == n + 1);
            clock.pass(Duration::from_nanos(1));
            until("complete", || sealed() == n + 1);
        }
        drop(give);
    });
    assert_eq!((ended.status.sealed, sizes(&rig).1), (2, vec![10, 10]));

    rig.options.rotation = Rotation::default();
    let (give, packets) = std::sync::mpsc::channel();
    let source = PacketSource::made("made", false, Box::new(packets.into_iter()));
    rig.record(source, None, None, |live| {
        for (n, first) in [(1, 20), (2, 30)] {
            numbered(first..first + 10, 10).for_each(|packet| give.send(packet).unwrap());
            live.until("written", |status| status.run.packets == n * 10);
            live.control.rotate.store(true, Ordering::SeqCst);
            live.until("complete", |status| status.sealed == n);
        }
        // With nothing to close nothing happens.
        live.control.rotate.store(true, Ordering::SeqCst);
        drop(give);
    });
    assert_eq!(sizes(&rig).1, [10; 4]);
    assert_eq!(rig.found(), Vec::from_iter(0..40));
    rig.check();
}

#[test]
fn an_archive_has_one_recorder() {
    let rig = Rig::new();
    let (give, packets) = std::sync::mpsc::channel::<Option<(u64, Vec<u8>)>>();
    let source = PacketSource::made("made", false, Box::new(packets.into_iter()));
    rig.record(source, None, None, |live| {
        live.until("it runs", |status| status.pid != 0);
        let refused = Recorder::new(&rig.archive, Vec::new(), rig.options.clone()).unwrap_err();
        let RecordError::Busy { pid, .. } = &refused else { panic!("{refused}") };
        assert_eq!(*pid, Some(std::process::id()));
        drop(give);
    });
    assert!(Recorder::new(&rig.archive, Vec::new(), rig.options.clone()).is_ok());
}

#[test]
fn damaged_and_missing_indexes_are_made_again() {
    let rig = Rig::new().rotate_packets(100);
    rig.record_all(numbered(0..600, 100));
    let index = |n: usize| rig.archive.index_files().unwrap()[n].clone();
    let names: Vec<_> = (0..6).map(index).collect();
    // The last one in several parts, of which the first is damaged.
    let last = rig.archive.recordings().unwrap().pop().unwrap();
    let parts = Ingest::new(&rig.archive).records_max(30).force(true);
    parts.run(&[Input::File(last.sealed_path())]).unwrap();
    assert_eq!(rig.archive.index_files().unwrap().len(), 9);
    for damaged in [0, 5] {
        fs::write(&names[damaged], "no index").unwrap();
    }
    fs::remove_file(&names[1]).unwrap();
    let short = fs::read(&names[2]).unwrap();
    fs::write(&names[2], &short[..short.len() - 1]).unwrap();
    // A recorder was killed as well.
    let recordings = rig.archive.recordings().unwrap();
    let bytes = fs::read(recordings[3].sealed_path()).unwrap();
    fs::remove_file(&names[3]).unwrap();
    fs::rename(recordings[3].sealed_path(), recordings[3].unfinished_path()).unwrap();
    fs::write(recordings[3].unfinished_path(), &bytes[..bytes.len() / 2]).unwrap();

    let source = PacketSource::made("made", false, numbered(600..700, 100));
    let recorder = Recorder::new(&rig.archive, vec![source], rig.options.clone()).unwrap();
    assert_eq!(recorder.waiting(), 5);
    let [recovered] = recorder.recovered() else { panic!("{:?}", recorder.recovered()) };
    let whole = recovered.packets;
    assert!((30..60).contains(&whole));
    drop(recorder);
    let status = rig.record_all(numbered(600..700, 100));
    assert_eq!((status.indexed, status.waiting, status.segments), (6, 0, 7));
    rig.check();
    let numbers: Vec<u64> = (0..300 + whole).chain(400..700).collect();
    assert_eq!(rig.found(), numbers);
}

#[test]
fn frames_are_as_long_as_is_said() {
    assert_eq!(tapdex_engine::capture::blocks::packet_len(FRAME_BYTES) as u64, STORED_BYTES);
}
