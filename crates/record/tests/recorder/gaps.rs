//! What a recorder could not record: that it is known afterwards, and nothing else is said to be
//! missing.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::Sender;
use std::time::Duration;

use tapdex_engine::archive::{Cause, Gap};
use tapdex_engine::capture::{CaptureWriter, FileFormat, Interface};
use tapdex_engine::testing::{ENOSPC, Operation};
use tapdex_engine::time::TimeRange;
use tapdex_record::clock::{Clock, HandClock, Waiter};
use tapdex_record::source::{CaptureOptions, PacketSource, SourceName};
use tapdex_record::units::Retention;

use super::rig::{
    FRAME_BYTES, Live, Rig, check_counts, frame, now_ns, numbered, numbered_from, settles, until,
};

const SECOND: u64 = 1_000_000_000;
const HOUR: Duration = Duration::from_secs(3_600);

type Given = Sender<Option<(u64, Vec<u8>)>>;

impl Rig {
    fn missing(&self, cause: Cause) -> Vec<Gap> {
        let mut gaps = self.archive.survey(TimeRange::ALL).unwrap().gaps;
        gaps.retain(|gap| gap.cause == cause);
        gaps
    }

    /// Records what is given in the meantime, by a clock that is moved by hand.
    fn record_given(&self, clock: &HandClock, during: impl FnOnce(&Live<'_>, Given)) {
        let (give, packets) = std::sync::mpsc::channel();
        let source = PacketSource::made("made", false, Box::new(packets.into_iter()));
        self.record_by(clock, source, None, None, |live| during(live, give));
    }
}

#[test]
fn losses_outlast_their_recordings() {
    let mut rig = Rig::new().rotate_packets(1_000);
    let disk = rig.disk();
    let gate = disk.on(Operation::Write).named(".part").waits();
    let source = PacketSource::made("made", true, numbered(0..20_000, u64::MAX));
    let ended = rig.record(source, Some(&disk), None, |live| {
        live.until("losses", |status| status.run.lost.writer > 10_000);
        drop(gate);
    });
    let lost = ended.status.run.lost.sum();
    check_counts(&ended.status);
    rig.check();
    let before = rig.missing(Cause::Lost);
    // All of these recordings go.
    rig.options.retention = Retention { segments: Some(1), ..Retention::default() };
    let status = rig.record_all(numbered(20_000..22_000, 500));
    assert_eq!(status.total.removed_packets, 20_000 - lost + 1_000);
    rig.check();
    let after = rig.missing(Cause::Lost);
    assert_eq!(after.iter().filter_map(|gap| gap.packets).sum::<u64>(), lost);
    let span = |gaps: &[Gap]| (gaps[0].from_ns, gaps.iter().map(|gap| gap.to_ns).max());
    assert_eq!(span(&after), span(&before));
    assert!(rig.missing(Cause::NotRecorded).len() < 2);
}

#[test]
fn runs_without_packets_are_no_gap() {
    let rig = Rig::new();
    let clock = HandClock::new(now_ns());
    let record = |number: u64| {
        rig.record_given(&clock, |_, give| {
            numbered_from(clock.now_ns(), number..number + 1, 1)
                .for_each(|packet| give.send(packet).unwrap());
            until("written", || rig.found().len() as u64 == number + 1);
        });
    };
    record(0);
    // Nothing comes.
    rig.record_given(&clock, |live, give| {
        settles(&clock, Waiter::Writer);
        clock.pass(HOUR);
        settles(&clock, Waiter::Writer);
        assert!(!live.has_ended());
        drop(give);
    });
    record(1);
    assert!(rig.missing(Cause::NotRecorded).is_empty());
    // Nothing more comes after a recording was closed.
    rig.record_given(&clock, |live, give| {
        numbered_from(clock.now_ns(), 2..3, 1).for_each(|packet| give.send(packet).unwrap());
        until("written", || rig.found().len() == 3);
        live.control.rotate.store(true, Ordering::SeqCst);
        until("closed", || rig.archive.recordings().unwrap().iter().all(|r| r.is_sealed()));
        clock.pass(HOUR);
        settles(&clock, Waiter::Writer);
        drop(give);
    });
    record(3);
    assert!(rig.missing(Cause::NotRecorded).is_empty());
    // Nobody records.
    clock.pass(HOUR);
    record(4);
    let gaps = rig.missing(Cause::NotRecorded);
    let [gap] = &gaps[..] else { panic!("{gaps:?}") };
    assert!((gap.to_ns - gap.from_ns).abs_diff(3_600 * SECOND) < 10, "{gap:?}");
    rig.check();
}

#[test]
fn a_clock_that_was_ahead_hides_no_gap() {
    let rig = Rig::new();
    let clock = HandClock::new(now_ns());
    rig.record_given(&clock, |live, give| {
        for n in 0..2 {
            let start = clock.now_ns();
            numbered_from(start, n..n + 1, 1).for_each(|packet| give.send(packet).unwrap());
            until("written", || rig.found().len() as u64 == n + 1);
            clock.set(start + 365 * 24 * 3_600 * SECOND);
            live.control.rotate.store(true, Ordering::SeqCst);
            until("closed", || rig.archive.recordings().unwrap().iter().all(|r| r.is_sealed()));
            clock.set(start);
            clock.pass(Duration::from_secs(60));
            settles(&clock, Waiter::Writer);
        }
        let start = clock.now_ns();
        numbered_from(start, 2..3, 1).for_each(|packet| give.send(packet).unwrap());
        until("written", || rig.found().len() == 3);
        drop(give);
    });
    let ended = clock.now_ns();
    clock.pass(HOUR);
    let again = clock.now_ns();
    rig.record_given(&clock, |_, give| {
        numbered_from(again, 3..4, 1).for_each(|packet| give.send(packet).unwrap());
        until("written", || rig.found().len() == 4);
    });
    let gaps = rig.missing(Cause::NotRecorded);
    let [gap] = &gaps[..] else { panic!("{gaps:?}") };
    assert!(gap.from_ns.abs_diff(ended) < 10 && gap.to_ns.abs_diff(again) < 10, "{gap:?}");
}

#[test]
fn losses_that_could_not_be_told_have_their_times() {
    let rig = Rig::new();
    let disk = rig.disk();
    let gate = disk.on(Operation::Write).named(".part").waits();
    let clock = HandClock::new(now_ns());
    // Packets have times of their own, by which it is seen that these are told.
    let start = clock.now_ns() + 1_000 * SECOND;
    let (give, more) = std::sync::mpsc::channel();
    let (taken, all) = (Arc::<AtomicU64>::default(), 10_000);
    let counter = Arc::clone(&taken);
    let packets = numbered_from(start, 0..all, 100).inspect(move |packet| {
        counter.fetch_add(u64::from(packet.is_some()), Ordering::SeqCst);
    });
    let source = PacketSource::made("made", true, Box::new(packets.chain(more)));
    let ended = rig.record_by(&clock, source, Some(&disk), None, |_| {
        until("all have come", || taken.load(Ordering::SeqCst) == all);
        drop(gate);
        settles(&clock, Waiter::Writer);
        // The end of the recording finds no room.
        disk.on(Operation::Write).named(".part").fails(ENOSPC);
        drop(give);
    });
    let lost = ended.status.run.lost.sum();
    assert!(lost > 0, "nothing was lost");
    let gaps = rig.missing(Cause::Lost);
    assert_eq!(gaps.iter().filter_map(|gap| gap.packets).sum::<u64>(), lost);
    assert!(gaps.iter().all(|gap| gap.from_ns >= start && gap.to_ns < start + SECOND), "{gaps:?}");
}

#[test]
fn a_source_that_is_gone_is_a_gap() {
    let rig = Rig::new();
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = server.local_addr().unwrap().to_string();
    let serve = move |n: u64| {
        let (stream, _) = server.accept().unwrap();
        let interface = Interface::new(1, 1_000_000_000);
        let mut writer = CaptureWriter::new(stream, FileFormat::Pcap, &[interface], "").unwrap();
        let len = u32::try_from(FRAME_BYTES).unwrap();
        writer.packet(0, now_ns(), len, &frame(n)).unwrap();
        let mut stream = writer.finish().unwrap();
        stream.flush().unwrap();
        stream
    };
    let serving = std::thread::spawn(move || {
        drop(serve(0));
        let gone = now_ns();
        let mut stream = serve(1);
        // It stays connected until the other side ends.
        drop(stream.read(&mut [0]));
        gone
    });
    let name = SourceName::Tcp(address.clone());
    let source = PacketSource::open(&name, &CaptureOptions::default()).unwrap();
    rig.record(source, None, None, |live| {
        live.until("both are written", |status| status.run.packets == 2);
        live.control.stop.store(true, Ordering::SeqCst);
    });
    let gone = serving.join().unwrap();
    let gaps = rig.missing(Cause::NotRecorded);
    let [gap] = &gaps[..] else { panic!("{gaps:?}") };
    assert!(gap.what.contains(&address) && gap.what.ends_with("was gone"), "{gap:?}");
    assert!(gap.from_ns >= gone - SECOND && gap.to_ns > gap.from_ns, "{gap:?} {gone}");
}
