//! What stays and what goes, by each limit and by all of them.

use std::fs;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tapdex_engine::archive::{Ingest, Input};
use tapdex_engine::capture::{CaptureWriter, FileFormat, Interface};
use tapdex_record::source::PacketSource;
use tapdex_record::status::Status;
use tapdex_record::units::Retention;

use super::rig::{
    FRAME_BYTES, Rig, bytes_in, check_pauses, frame, now_ns, numbered, numbered_from, until,
};

/// Bytes of the archive.
fn used(rig: &Rig) -> u64 {
    ["packets", "segments"].map(|name| bytes_in(&rig.archive.folder().join(name))).iter().sum()
}

/// The newest packets are there and the others were counted.
#[track_caller]
fn check_newest(rig: &Rig, status: &Status, recorded: u64) -> u64 {
    let found = rig.found();
    let kept = found.len() as u64;
    assert_eq!(found, Vec::from_iter(recorded - kept..recorded));
    assert_eq!(kept + status.total.removed_packets, recorded);
    assert_eq!(status.total.packets, recorded);
    assert_eq!(status.removed_by.iter().sum::<u64>(), status.run.removed_segments);
    assert_eq!(status.segments, rig.archive.recordings().unwrap().len() as u64);
    rig.check();
    kept
}

/// Looks until it is told to stop whether there is an index whose packets are gone, and counts the
/// looks.
fn watch(rig: &Rig, stop: &AtomicBool, looks: &AtomicU64) {
    while !stop.load(Ordering::SeqCst) {
        for name in rig.names("segments").iter().filter(|name| name.ends_with(".tdx")) {
            let packets = name.rsplit_once('-').unwrap().0;
            let [packets, index] = [format!("packets/{packets}"), format!("segments/{name}")]
                .map(|name| rig.archive.folder().join(name));
            assert!(packets.exists() || !index.exists(), "{name} is there without packets");
        }
        looks.fetch_add(1, Ordering::SeqCst);
    }
}

#[test]
fn by_bytes_those_of_earlier_runs_first() {
    let mut rig = Rig::new().rotate_packets(200);
    let status = rig.record_all(numbered(0..2_000, 200));
    assert_eq!((status.segments, status.run.removed_segments), (10, 0));
    rig.options.retention = Retention { bytes: Some(3 << 20), ..Retention::default() };
    let (stop, looks) = (AtomicBool::new(false), AtomicU64::new(0));
    let status = std::thread::scope(|scope| {
        scope.spawn(|| watch(&rig, &stop, &looks));
        until("somebody looks", || looks.load(Ordering::SeqCst) > 0);
        let status = rig.record_all(numbered(2_000..8_000, 200));
        stop.store(true, Ordering::SeqCst);
        status
    });
    let kept = check_newest(&rig, &status, 8_000);
    assert!((2_000..=3_000).contains(&kept), "{kept}");
    assert!(used(&rig) <= 3 << 20, "{}", used(&rig));
    assert_eq!(status.removed_by[0], status.run.removed_segments);
    // Nothing is recorded, and much less may be kept: nothing goes before there is need for room.
    // Not even the packets of five recordings fit.
    rig.options.retention.bytes = Some(1_000_000);
    let status = rig.record_all(numbered(8_000..8_200, 200));
    assert!(check_newest(&rig, &status, 8_200) < 1_000);
    assert!(used(&rig) <= 1_000_000);
}

#[test]
fn by_bytes_however_few() {
    // Less than a recording has: it is closed early, and nothing stops for ever.
    let mut rig = Rig::new();
    rig.options.retention = Retention { bytes: Some(700_000), ..Retention::default() };
    let status = rig.record_all(numbered(0..5_000, 200));
    let kept = check_newest(&rig, &status, 5_000);
    assert!(kept >= 200 && used(&rig) <= 700_000, "{kept} {}", used(&rig));
    assert_eq!(status.run.lost.sum(), 0);
    check_pauses(&status);
}

#[test]
fn by_percent_of_the_disk() {
    let mut rig = Rig::new().rotate_packets(200);
    rig.options.retention = Retention { percent: Some(40.0), ..Retention::default() };
    let disk = rig.disk();
    disk.capacity(20 << 20);
    // What others have counts.
    disk.others(5 << 20);
    let source = PacketSource::made("made", false, numbered(0..6_000, 200));
    let status = rig.record(source, Some(&disk), None, |_| ()).status;
    let kept = check_newest(&rig, &status, 6_000);
    assert!((2_000..=3_000).contains(&kept), "{kept}");
    assert!(disk.used() <= 8 << 20);
    assert_eq!(status.removed_by[1], status.run.removed_segments);
}

#[test]
fn by_age() {
    let mut rig = Rig::new().rotate_packets(100);
    let hour = 3_600_000_000_000;
    rig.record_all(numbered_from(now_ns() - 3 * hour, 0..300, 100));
    rig.record_all(numbered_from(now_ns() - hour, 300..500, 100));
    rig.options.retention =
        Retention { age: Some(Duration::from_secs(2 * 3_600)), ..Retention::default() };
    let status = rig.record_all(numbered(500..600, 100));
    assert_eq!(check_newest(&rig, &status, 600), 300);
    assert_eq!(status.removed_by, [0, 0, 3, 0]);
}

#[test]
fn by_number() {
    let mut rig = Rig::new().rotate_packets(100);
    rig.record_all(numbered(0..500, 100));
    rig.options.retention = Retention { segments: Some(3), ..Retention::default() };
    let status = rig.record_all(numbered(500..2_000, 100));
    assert_eq!(check_newest(&rig, &status, 2_000), 300);
    assert_eq!(status.removed_by, [0, 0, 0, 17]);
    rig.options.retention.segments = Some(1);
    let status = rig.record_all(numbered(2_000..2_300, 100));
    assert_eq!(check_newest(&rig, &status, 2_300), 100);
}

#[test]
fn by_all_of_them() {
    let mut rig = Rig::new().rotate_packets(200);
    let hour = 3_600_000_000_000;
    rig.record_all(numbered_from(now_ns() - 9 * hour, 0..400, 200));
    rig.record_all(numbered(400..4_000, 200));
    let disk = rig.disk();
    disk.capacity(100 << 20);
    rig.options.retention = Retention {
        bytes: Some(2 << 20),
        percent: Some(90.0),
        age: Some(Duration::from_secs(8 * 3_600)),
        segments: Some(15),
    };
    let source = PacketSource::made("made", false, numbered(4_000..6_000, 200));
    let status = rig.record(source, Some(&disk), None, |_| ()).status;
    // The least of all holds in the end: not more than ten recordings fit.
    let kept = check_newest(&rig, &status, 6_000);
    assert!(kept <= 2_000 && kept.is_multiple_of(200) && used(&rig) <= 2 << 20, "{kept}");
    assert_eq!(status.removed_by[2], 2, "{:?}", status.removed_by);
}

#[test]
fn captures_are_not_touched() {
    let mut rig = Rig::new().rotate_packets(200);
    let capture = |name: &str, numbers: std::ops::Range<u64>| {
        let path = rig.archive.folder().parent().unwrap().join(name);
        let interface = Interface::new(1, 1_000_000_000);
        let mut writer =
            CaptureWriter::new(Vec::new(), FileFormat::Pcap, &[interface], "").unwrap();
        for n in numbers {
            writer.packet(0, 1_000 + n, u32::try_from(FRAME_BYTES).unwrap(), &frame(n)).unwrap();
        }
        (path, writer.finish().unwrap())
    };
    // A file, and a stream, of which the archive has a copy.
    let (file, bytes) = capture("a.pcap", 0..500);
    fs::write(&file, bytes).unwrap();
    let (pipe, bytes) = capture("b.pcap", 500..1_000);
    nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
    let report = std::thread::scope(|scope| {
        scope.spawn(|| fs::write(&pipe, bytes).unwrap());
        Ingest::new(&rig.archive).run(&[Input::File(file.clone()), Input::File(pipe.clone())])
    });
    assert!(report.unwrap().files.iter().all(|file| file.error.is_none()));
    assert_eq!(rig.names("packets").len(), 1);
    rig.options.retention = Retention {
        bytes: Some(1 << 20),
        percent: None,
        age: Some(Duration::from_secs(3_600)),
        segments: Some(2),
    };
    let source = PacketSource::made("made", false, numbered(1_000..4_000, 200));
    rig.record(source, None, None, |_| ());
    let found = rig.found();
    let recorded = found.len() as u64 - 1_000;
    assert!(recorded > 0 && recorded <= 400);
    assert_eq!(found, Vec::from_iter((0..1_000).chain(4_000 - recorded..4_000)));
    assert!(file.exists());
    rig.check();
}
