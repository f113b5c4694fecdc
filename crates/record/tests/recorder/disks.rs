//! Slow, full and failing disks.

use std::collections::BTreeSet;
use std::io::Write;
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tapdex_engine::capture::{CaptureWriter, FileFormat, Interface};
use tapdex_engine::testing::{EIO, Operation};
use tapdex_record::source::{CaptureOptions, PacketSource, Packets, SourceName};
use tapdex_record::units::Rotation;

use super::rig::{
    FRAME_BYTES, Rig, STORED_BYTES, check_counts, check_pauses, frame, now_ns, numbered, until,
};

/// Packets, and how many of them were taken.
fn counted(packets: Packets) -> (Packets, Arc<AtomicU64>) {
    let taken = Arc::new(AtomicU64::new(0));
    let counter = Arc::clone(&taken);
    let packets = packets.inspect(move |packet| {
        counter.fetch_add(u64::from(packet.is_some()), Ordering::SeqCst);
    });
    (Box::new(packets), taken)
}

#[test]
fn a_slow_disk_makes_a_server_wait() {
    let rig = Rig::new().rotate_packets(3_000);
    let disk = rig.disk();
    disk.on(Operation::Write).named(".part").takes(Duration::from_millis(40));
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = server.local_addr().unwrap().to_string();
    let sent = 10_000;
    let serving = std::thread::spawn(move || {
        let (stream, _) = server.accept().unwrap();
        let interface = Interface::new(1, 1_000_000_000);
        let mut writer = CaptureWriter::new(stream, FileFormat::Pcap, &[interface], "").unwrap();
        let start = now_ns();
        let len = u32::try_from(FRAME_BYTES).unwrap();
        for n in 0..sent {
            writer.packet(0, start + n, len, &frame(n)).unwrap();
        }
        let mut stream = writer.finish().unwrap();
        stream.flush().unwrap();
        // It stays connected until the other side ends.
        drop(std::io::Read::read(&mut stream, &mut [0]));
    });
    let options = CaptureOptions::default();
    let source = PacketSource::open(&SourceName::Tcp(address), &options).unwrap();
    let ended = rig.record(source, Some(&disk), None, |live| {
        live.until("all is written", |status| status.run.packets == sent);
        live.control.stop.store(true, Ordering::SeqCst);
    });
    serving.join().unwrap();
    assert!(ended.queue_fill <= 1.0, "{}", ended.queue_fill);
    assert_eq!((ended.status.run.packets, ended.status.run.lost.sum()), (sent, 0));
    check_counts(&ended.status);
    rig.check();
    assert_eq!(rig.found(), Vec::from_iter(0..sent));
}

#[test]
fn a_disk_that_stands_still_makes_a_stream_wait() {
    let rig = Rig::new();
    let disk = rig.disk();
    let gate = disk.on(Operation::Write).named(".part").waits();
    let (packets, taken) = counted(numbered(0..20_000, u64::MAX));
    let ended = rig.record(PacketSource::made("made", false, packets), Some(&disk), None, |live| {
        live.until("the queue is full", |status| status.queue_fill() >= 1.0);
        // No more is in memory than the queue holds, and the packet that waits.
        let taken = taken.load(Ordering::SeqCst);
        assert!((taken - 1) * STORED_BYTES <= rig.options.queue_bytes, "{taken}");
        assert!(taken < 20_000 && !live.has_ended());
        drop(gate);
    });
    assert!(ended.queue_fill <= 1.0);
    assert_eq!((ended.status.run.packets, ended.status.run.lost.sum()), (20_000, 0));
    check_counts(&ended.status);
    rig.check();
    assert_eq!(rig.found(), Vec::from_iter(0..20_000));
}

#[test]
fn a_disk_that_stands_still_loses_packets_that_are_counted() {
    let rig = Rig::new().rotate_packets(2_000);
    let disk = rig.disk();
    let gate = disk.on(Operation::Write).named(".part").waits();
    let (packets, taken) = counted(numbered(0..30_000, u64::MAX));
    let ended = rig.record(PacketSource::made("made", true, packets), Some(&disk), None, |live| {
        until("all have come", || taken.load(Ordering::SeqCst) == 30_000);
        live.until("losses are told", |status| status.run.lost.writer > 20_000);
        drop(gate);
    });
    let status = ended.status;
    let found = rig.found();
    assert_eq!(status.run.packets + status.run.lost.writer, 30_000);
    assert_eq!(found.len() as u64, status.run.packets);
    assert!(found.len() as u64 * STORED_BYTES <= rig.options.queue_bytes);
    assert!(found.is_sorted_by(|a, b| a < b) && found[..1_000] == Vec::from_iter(0..1_000));
    assert!(ended.queue_fill <= 1.0);
    check_counts(&status);
    rig.check();
}

#[test]
fn a_slow_disk_loses_packets_that_are_counted() {
    let rig = Rig::new().rotate_packets(2_000);
    let disk = rig.disk();
    disk.on(Operation::Write).named(".part").takes(Duration::from_millis(60));
    // It is slower than the source, however slow that is: there is a write for 2,000 packets, and
    // no more than half as many are written by one.
    let gate = disk.on(Operation::Write).named(".part").waits();
    let (packets, taken) = counted(numbered(0..40_000, 2_000));
    let ended = rig.record(PacketSource::made("made", true, packets), Some(&disk), None, |_| {
        for came in (2_000..=40_000).step_by(2_000) {
            until("packets come", || taken.load(Ordering::SeqCst) >= came);
            gate.let_one_pass();
        }
        drop(gate);
    });
    let (status, found) = (ended.status, rig.found());
    assert!(status.run.lost.writer > 0, "faster than it is");
    assert_eq!(status.run.packets + status.run.lost.writer, 40_000);
    assert_eq!(found.len() as u64, status.run.packets);
    assert!(found.is_sorted_by(|a, b| a < b));
    assert!(ended.queue_fill <= 1.0);
    check_counts(&status);
    rig.check();
}

#[test]
fn on_a_full_disk_the_oldest_go() {
    // A disk that tells what is free, and one that does not.
    for lies in [false, true] {
        let rig = Rig::new().rotate_packets(1_000);
        let disk = rig.disk();
        disk.capacity(12 << 20);
        disk.lies(lies);
        let source = PacketSource::made("made", false, numbered(0..30_000, 500));
        let status = rig.record(source, Some(&disk), None, |_| ()).status;
        let found = rig.found();
        assert!(disk.used() <= 12 << 20, "lies: {lies}");
        assert_eq!((status.run.packets, status.run.lost.sum()), (30_000, 0), "lies: {lies}");
        assert_eq!(status.run.removed_packets + found.len() as u64, 30_000, "lies: {lies}");
        // The newest, without a gap, and not much less than there is room for.
        assert_eq!(found, Vec::from_iter(30_000 - found.len() as u64..30_000));
        assert!(found.len() >= 4_000, "{}", found.len());
        assert_eq!(status.run.removed_segments, status.removed_by[1]);
        check_pauses(&status);
        check_counts(&status);
        // On a disk that lies, the last index may have found no room: the next start makes it.
        rig.record_all(Box::new(std::iter::empty()));
        rig.check();
    }
}

#[test]
fn a_disk_that_others_fill_pauses_it() {
    let rig = Rig::new().rotate_packets(1_000);
    let disk = rig.disk();
    disk.capacity(20 << 20);
    disk.others(20 << 20);
    let (packets, taken) = counted(numbered(0..20_000, 500));
    let ended = rig.record(PacketSource::made("made", true, packets), Some(&disk), None, |live| {
        live.until("a pause", |status| status.paused && status.run.pauses == 1);
        until("all have come", || taken.load(Ordering::SeqCst) == 20_000);
        live.until("losses are told", |status| status.run.lost.writer > 0);
        assert_eq!(live.status().run.packets, 0);
        // Somebody clears up.
        disk.others(0);
    });
    let (status, found) = (ended.status, rig.found());
    assert!(!status.paused && status.run.packets > 0);
    assert_eq!(status.run.packets + status.run.lost.writer, 20_000);
    assert_eq!(status.run.removed_packets + found.len() as u64, status.run.packets);
    assert!(ended.troubles.iter().any(|text| text.starts_with("PAUSED")));
    assert!(ended.troubles.iter().any(|text| text.contains("recording goes on")));
    check_counts(&status);
    rig.check();
}

#[test]
fn a_full_disk_does_not_keep_it_from_ending() {
    let rig = Rig::new();
    let disk = rig.disk();
    // Room for a part of what comes, behind the back of who asks.
    disk.capacity(1_500_000);
    disk.lies(true);
    let source = PacketSource::made("made", false, numbered(0..20_000, 1_000));
    let ended = rig.record(source, Some(&disk), None, |live| {
        live.until("something is written", |status| status.run.packets > 0);
        disk.others(1_500_000);
        live.until("a pause", |status| status.paused);
        live.control.stop.store(true, Ordering::SeqCst);
    });
    let status = ended.status;
    let found = rig.found();
    assert!(status.run.lost.writer > 0);
    assert_eq!(found.len() as u64 + status.run.removed_packets, status.run.packets);
    check_counts(&status);
    rig.check();
}

#[test]
fn after_a_failed_write_all_is_there_once() {
    let mut complaints = 0;
    for every in [3, 5, 11] {
        let rig = Rig::new().rotate_packets(1_500);
        let disk = rig.disk();
        disk.on(Operation::Write).named(".part").every(every).fails_half_way(EIO);
        let source = PacketSource::made("made", false, numbered(0..6_000, 400));
        let ended = rig.record(source, Some(&disk), None, |_| ());
        let (status, found) = (ended.status, rig.found());
        complaints += ended.troubles.iter().filter(|text| text.contains("tried again")).count();
        // The end of a file that could not be written any more is lost; the rest is there once.
        let twice: Vec<_> = found.windows(2).filter(|pair| pair[0] >= pair[1]).collect();
        assert!(twice.is_empty(), "{every}: {twice:?}");
        assert_eq!(found.len() as u64, status.run.packets, "{every}");
        assert_eq!(status.run.packets + status.run.lost.writer, 6_000, "{every}");
        assert_eq!(status.synced_packets, status.run.packets);
        check_counts(&status);
        rig.check();
    }
    assert!(complaints > 0);
}

#[test]
fn a_disk_that_only_fails_does_not_keep_it_from_ending() {
    let rig = Rig::new();
    let disk = rig.disk();
    disk.on(Operation::Write).named(".part").every(1).fails_half_way(EIO);
    let source = PacketSource::made("made", true, numbered(0..8_000, 1_000));
    let ended = rig.record(source, Some(&disk), None, |live| {
        live.until("losses", |status| status.run.lost.writer > 0);
        live.control.stop.store(true, Ordering::SeqCst);
    });
    let status = ended.status;
    assert_eq!(rig.found().len() as u64, status.run.packets);
    check_counts(&status);
    rig.check();
}

#[test]
fn a_recording_that_could_not_be_synced_is_completed_later() {
    let mut rig = Rig::new();
    rig.options.rotation = Rotation { packets: 100, ..Rotation::default() };
    let disk = rig.disk();
    disk.on(Operation::Sync).named(".part").fails(EIO);
    let (give, packets) = std::sync::mpsc::channel();
    let source = PacketSource::made("made", false, Box::new(packets.into_iter()));
    let ended = rig.record(source, Some(&disk), None, |live| {
        numbered(0..300, 100).for_each(|packet| give.send(packet).unwrap());
        live.until("all is written", |status| status.run.packets == 300);
        assert_eq!((live.status().sealed, live.status().synced_packets), (0, 0));
        assert_eq!(rig.found(), Vec::from_iter(0..300), "it is searched");
        let tried = || BTreeSet::from_iter(disk.failed(Operation::Sync)).len();
        until("each of them was tried", || tried() == 3);
        disk.heal(Operation::Sync);
        live.until("complete", |status| status.sealed == 3);
        drop(give);
    });
    // A second try would succeed, whatever became of the bytes.
    assert_eq!(ended.status.synced_packets, 0);
    assert!(ended.troubles.iter().any(|text| text.contains("cannot be completed")));
    rig.check();
    assert_eq!(rig.found(), Vec::from_iter(0..300));
}
