//! A recorder, and what it is fed with.

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use tapdex_engine::archive::device::SegmentDevice;
use tapdex_engine::archive::{Archive, Cause, Compared};
use tapdex_engine::query::Query;
use tapdex_engine::query::filter::Filter;
use tapdex_engine::testing::FaultyDisk;
use tapdex_engine::time::TimeRange;
use tapdex_record::clock::{Clock, HandClock, SystemClock, Waiter};
use tapdex_record::control::Control;
use tapdex_record::messages::Level;
use tapdex_record::recorder::{RecordOptions, Recorder};
use tapdex_record::reporter::Event;
use tapdex_record::source::{PacketSource, Packets, frame_number, numbered_frame};
use tapdex_record::status::Status;
use tapdex_record::units::Rotation;

/// What takes longer never comes.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

pub(crate) const FRAME_BYTES: usize = 1_000;
/// What a frame takes in a file.
pub(crate) const STORED_BYTES: u64 = 1_032;

pub(crate) fn now_ns() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    u64::try_from(since.as_nanos()).unwrap()
}

/// A packet with a number in it.
pub(crate) fn frame(number: u64) -> Vec<u8> {
    numbered_frame(number, FRAME_BYTES)
}

/// The number of a packet, all of which has to be as it was made.
pub(crate) fn number(data: &[u8]) -> u64 {
    frame_number(data).unwrap()
}

/// Numbered packets, written as soon as there are `together` of them.
pub(crate) fn numbered(numbers: std::ops::Range<u64>, together: u64) -> Packets {
    let start = now_ns();
    numbered_from(start, numbers, together)
}

/// The same, the first one at a time.
pub(crate) fn numbered_from(start: u64, numbers: std::ops::Range<u64>, together: u64) -> Packets {
    let first = numbers.start;
    Box::new(numbers.flat_map(move |n| {
        let packet = Some((start + n, frame(n)));
        let flush = (n - first + 1).is_multiple_of(together).then_some(None);
        std::iter::once(packet).chain(flush)
    }))
}

/// Waits for something that is certain to come.
#[track_caller]
pub(crate) fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let started = Instant::now();
    while !is_so() {
        assert!(started.elapsed() < PATIENCE, "{what}: never");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Waits until a thread has done what is due by now.
#[track_caller]
pub(crate) fn settles(clock: &HandClock, who: Waiter) {
    let before = clock.naps(who);
    until("it waits again", || clock.naps(who) >= before + 2);
}

/// A door that threads wait at until it is opened.
#[derive(Debug)]
pub(crate) struct Door {
    open: Mutex<bool>,
    changed: Condvar,
    pub(crate) waiting: AtomicU64,
}

impl Door {
    pub(crate) fn new(open: bool) -> Arc<Self> {
        let (changed, waiting) = (Condvar::new(), AtomicU64::new(0));
        Arc::new(Self { open: Mutex::new(open), changed, waiting })
    }

    pub(crate) fn pass(&self) {
        self.waiting.fetch_add(1, Ordering::SeqCst);
        let open = self.open.lock().unwrap();
        // However a test ends, nobody stands here for ever.
        drop(self.changed.wait_timeout_while(open, PATIENCE, |open| !*open).unwrap());
        self.waiting.fetch_sub(1, Ordering::SeqCst);
    }

    fn set(&self, open: bool) {
        *self.open.lock().unwrap() = open;
        self.changed.notify_all();
    }
}

/// Opens a door, whatever happens.
pub(crate) struct Opens(pub(crate) Arc<Door>);

impl Drop for Opens {
    fn drop(&mut self) {
        self.0.set(true);
    }
}

/// Bytes of the files in a folder.
pub(crate) fn bytes_in(folder: &Path) -> u64 {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    // One may be removed in the meantime.
    entries.filter_map(|entry| entry.metadata().ok()).map(|data| data.len()).sum()
}

/// A recorder that runs.
pub(crate) struct Live<'a> {
    pub(crate) control: &'a Control,
    status: &'a Mutex<Status>,
    ended: &'a AtomicBool,
}

impl Live<'_> {
    pub(crate) fn status(&self) -> Status {
        self.status.lock().unwrap().clone()
    }

    /// Waits until what it says of itself is so.
    #[track_caller]
    pub(crate) fn until(&self, what: &str, is_so: impl Fn(&Status) -> bool) {
        until(what, || is_so(&self.status()));
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.ended.load(Ordering::SeqCst)
    }
}

/// How a recorder ended.
pub(crate) struct Ended {
    pub(crate) status: Status,
    pub(crate) troubles: Vec<String>,
    /// The fullest that a queue was.
    pub(crate) queue_fill: f64,
}

/// An archive to record into.
pub(crate) struct Rig {
    _folder: tempfile::TempDir,
    pub(crate) archive: Archive,
    pub(crate) options: RecordOptions,
}

impl Rig {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let archive = Archive::create(&folder.path().join("archive"), None).unwrap();
        let mut options = RecordOptions { queue_bytes: 4 << 20, ..RecordOptions::default() };
        options.finish = PATIENCE / 2;
        Self { _folder: folder, archive, options }
    }

    /// The disk of the archive, for faults to come. It has more room than anybody needs.
    pub(crate) fn disk(&self) -> FaultyDisk {
        let disk = FaultyDisk::over(&self.archive);
        disk.capacity(u64::MAX / 4);
        disk
    }

    /// Recordings of so many packets.
    pub(crate) fn rotate_packets(mut self, packets: u64) -> Self {
        self.options.rotation = Rotation { packets, ..Rotation::default() };
        self
    }

    /// Records, and does something in the meantime.
    pub(crate) fn record(
        &self,
        source: PacketSource,
        disk: Option<&FaultyDisk>,
        device: Option<&Mutex<dyn SegmentDevice>>,
        during: impl FnOnce(&Live<'_>),
    ) -> Ended {
        self.record_by(&SystemClock, source, disk, device, during)
    }

    /// The same by a clock of one's own.
    pub(crate) fn record_by(
        &self,
        clock: &dyn Clock,
        source: PacketSource,
        disk: Option<&FaultyDisk>,
        device: Option<&Mutex<dyn SegmentDevice>>,
        during: impl FnOnce(&Live<'_>),
    ) -> Ended {
        let options = self.options.clone();
        let archive = match disk {
            Some(disk) => Archive::open_on(disk.storage(), self.archive.folder()).unwrap(),
            None => self.archive.clone(),
        };
        let recorder = Recorder::on_machine(&archive, vec![source], options, clock).unwrap();
        let (control, status) = (Control::default(), Mutex::new(Status::default()));
        let (ended, troubles) = (AtomicBool::new(false), Mutex::new(Vec::new()));
        let fullest = Mutex::new(0.0_f64);
        std::thread::scope(|scope| {
            let running = scope.spawn(|| {
                let last = recorder.run(&control, device, &mut |event| match event {
                    Event::Message(said) if said.level <= Level::Warn => {
                        troubles.lock().unwrap().push(said.text);
                    }
                    Event::Message(_) => {}
                    Event::Status(now) => {
                        let mut fullest = fullest.lock().unwrap();
                        *fullest = fullest.max(now.queue_fill());
                        *status.lock().unwrap() = now.clone();
                    }
                });
                ended.store(true, Ordering::SeqCst);
                last
            });
            // A test that fails in the meantime ends, too.
            let stops = Stops(&control);
            during(&Live { control: &control, status: &status, ended: &ended });
            until("the end", || ended.load(Ordering::SeqCst));
            drop(stops);
            Ended {
                status: running.join().unwrap(),
                troubles: troubles.lock().unwrap().clone(),
                queue_fill: *fullest.lock().unwrap(),
            }
        })
    }

    /// Records these packets on a sound disk.
    pub(crate) fn record_all(&self, packets: Packets) -> Status {
        self.record(PacketSource::made("made", false, packets), None, None, |_| ()).status
    }

    /// The numbers of all packets, in order of their times. Each is as it was made.
    pub(crate) fn found(&self) -> Vec<u64> {
        found(&self.archive)
    }

    /// Names in a folder of the archive.
    pub(crate) fn names(&self, folder: &str) -> Vec<String> {
        let entries = fs::read_dir(self.archive.folder().join(folder)).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<String> = names.collect();
        names.sort();
        names
    }

    /// All recordings are complete, indexed, and what the index says.
    pub(crate) fn check(&self) {
        let (segments, failed) = self.archive.segments().unwrap();
        assert!(failed.is_empty(), "{failed:?}");
        for segment in &segments {
            assert!(!segment.is_draft(), "{}", segment.path().display());
            assert_eq!(segment.note().source.damage, "");
            assert_eq!(segment.compare(&mut |_| true).unwrap(), Compared::default());
        }
        for folder in ["packets", "segments"] {
            let names = self.names(folder);
            assert!(!names.iter().any(|name| name.starts_with('.')), "{names:?}");
        }
        self.check_missing();
    }

    /// What is missing is known, to the packet, and when it was.
    fn check_missing(&self) {
        let total = Status::read(&self.archive).unwrap().total;
        let survey = self.archive.survey(TimeRange::ALL).unwrap();
        let sum = |cause: Cause| -> u64 {
            survey
                .gaps
                .iter()
                .filter(|gap| gap.cause == cause)
                .map(|gap| gap.packets.unwrap())
                .sum()
        };
        assert_eq!(sum(Cause::Removed), total.removed_packets);
        assert_eq!(sum(Cause::Lost), total.lost.sum(), "{:?}", survey.gaps);
    }
}

struct Stops<'a>(&'a Control);

impl Drop for Stops<'_> {
    fn drop(&mut self) {
        self.0.stop.store(true, Ordering::SeqCst);
        self.0.hurry.store(true, Ordering::SeqCst);
    }
}

/// The numbers of all packets of an archive, in order of their times.
pub(crate) fn found(archive: &Archive) -> Vec<u64> {
    let query = Query::new(Filter::parse("udp port 53", 0).unwrap(), TimeRange::ALL);
    let search = archive.search(&query).unwrap();
    let mut packets = search.packets();
    let mut numbers = Vec::new();
    while let Some(found) = packets.next().unwrap() {
        numbers.push(number(found.record.data));
    }
    let gaps = packets.finish().unwrap().gaps;
    assert!(gaps.iter().all(|gap| gap.error.is_none()), "{gaps:?}");
    numbers
}

/// There was no pause: there is always something that may go.
#[track_caller]
pub(crate) fn check_pauses(status: &Status) {
    // The wait for a recording to be completed counts as one if it takes five seconds, as on a disk
    // that others use. What took less in all had none.
    let took = Duration::from_nanos(status.updated_ns - status.started_ns);
    let pauses = status.run.pauses;
    assert!(pauses == 0 || took >= Duration::from_secs(5), "{pauses} in {took:?}");
}

/// What was lost and what is there is what came, for every source and for all.
pub(crate) fn check_counts(status: &Status) {
    let mut sum = [0; 2];
    for source in &status.sources {
        assert_eq!(source.received, source.stored + source.lost.sum(), "{source:?}");
        sum[0] += source.stored;
        sum[1] += source.lost.sum();
    }
    assert_eq!([status.run.packets, status.run.lost.sum()], sum);
}
