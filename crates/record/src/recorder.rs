//! All parts together: sources, writer, sealer, indexer, keeper.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{channel, sync_channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::ScopedJoinHandle;
use std::time::Duration;

use tapdex_engine::archive::device::SegmentDevice;
use tapdex_engine::archive::{Archive, ArchiveError, Covered, Loss, Recording, Recovered};
use tapdex_engine::chain;

use crate::clock::{Clock, Moment, SystemClock, Waiter};
use crate::counters::{Counters, SourceCounters};
use crate::disk::{Disk, FileSystem};
use crate::keeper::Keeper;
use crate::metrics::Histogram;
use crate::queue::{Feeder, Interfaces};
use crate::source::Source;
use crate::status::{Counted, Losses, RunLock, SourceStatus, Status, Totals};
use crate::units::{Retention, Rotation};
use crate::writer::{Current, Writer};
use crate::{indexer, sealer};

/// How often we look whether to stop.
const TICK: Duration = Duration::from_millis(20);
/// How often the status is told and written.
const STATUS_EVERY: Duration = Duration::from_secs(1);
/// How often the indexer sees whether there is something to make a draft of.
const DRAFT_EVERY: Duration = Duration::from_millis(250);
/// Recordings that are closed and not complete: more, and the writer waits.
const CLOSED_MAX: usize = 4;
/// A recording is at most this part of what may be kept, so that there is something to remove.
const SHARE_OF_LIMIT: u64 = 10;
/// But not smaller than this.
const ROTATE_BYTES_MIN: u64 = 1 << 20;
/// What is said again and again is said so often.
const SAID_AGAIN: Duration = Duration::from_secs(60);
/// More different ones than this in that time are not said.
const COMPLAINTS_MAX: usize = 100;
/// What is said while nobody listens is forgotten beyond so much.
const TROUBLES_MAX: usize = 1_000;
/// How long after indexing failed it is tried again.
const INDEX_AGAIN: Duration = Duration::from_secs(60);

/// Why recording could not begin.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecordError {
    /// Another recorder writes into the archive.
    #[error("{} is being recorded into already{}; record into another archive", path.display(),
        pid.map_or(String::new(), |pid| format!(", by process {pid}")))]
    Busy {
        /// The archive.
        path: PathBuf,
        /// Who does.
        pid: Option<u32>,
    },
    /// The archive cannot be used.
    #[error(transparent)]
    Archive(#[from] ArchiveError),
}

/// How packets are kept.
#[derive(Debug, Clone, PartialEq)]
pub struct RecordOptions {
    /// When a recording is closed.
    pub rotation: Rotation,
    /// How much is kept.
    pub retention: Retention,
    /// Bytes of packets that wait for the disk, of all sources together.
    pub queue_bytes: u64,
    /// Threads of the indexer.
    pub index_threads: usize,
    /// How long indexing goes on after the end.
    pub finish: Duration,
    /// Ends after so many packets.
    pub packets_max: Option<u64>,
}

impl Default for RecordOptions {
    fn default() -> Self {
        Self {
            rotation: Rotation::default(),
            retention: Retention::default(),
            queue_bytes: 64 << 20,
            index_threads: 1,
            finish: Duration::from_secs(10),
            packets_max: None,
        }
    }
}

/// What a recorder is told while it runs.
#[derive(Debug, Default)]
pub struct Control {
    /// To end: complete what there is.
    pub stop: AtomicBool,
    /// To end at once: leave indexing to the next start.
    pub hurry: AtomicBool,
    /// To close the recording that is open, and begin another.
    pub rotate: AtomicBool,
}

/// What a recorder tells while it runs.
#[derive(Debug)]
pub enum Event<'a> {
    /// How it is, about every second.
    Status(&'a Status),
    /// What somebody should know of.
    Trouble(String),
}

/// What the threads share.
#[derive(Debug)]
pub(crate) struct Shared<'a> {
    pub(crate) archive: &'a Archive,
    pub(crate) disk: &'a dyn Disk,
    pub(crate) clock: &'a dyn Clock,
    pub(crate) rotation: Rotation,
    pub(crate) index_threads: usize,
    pub(crate) comment: String,
    pub(crate) interfaces: Arc<Interfaces>,
    pub(crate) counters: Counters,
    pub(crate) current: Current,
    /// Sources are to end.
    pub(crate) stop: Arc<AtomicBool>,
    /// Indexing is to end at once.
    pub(crate) abandon: AtomicBool,
    pub(crate) rotate: AtomicBool,
    pub(crate) build_seconds: Arc<Histogram>,
    keeper: Mutex<Keeper<'a>>,
    to_index: Mutex<ToIndex>,
    more_to_index: Condvar,
    sealed_packets: AtomicU64,
    troubles: Mutex<Troubles>,
}

/// What the indexer is to do.
#[derive(Debug)]
pub(crate) enum ToDo {
    /// To index a recording that is complete.
    Index(Recording),
    /// Nothing else: it may make drafts of the open one.
    Draft,
    /// Nothing more.
    End,
}

/// What somebody should know of.
#[derive(Debug, Default)]
struct Troubles {
    to_say: Vec<String>,
    /// What was said a short while ago.
    said: Vec<(String, Moment)>,
}

/// What the indexer has to do.
#[derive(Debug, Default)]
struct ToIndex {
    /// Recordings, and when they were completed.
    queue: VecDeque<(Recording, u64)>,
    /// Those that could not be indexed, and when the last of them was tried.
    failed: VecDeque<(Recording, u64)>,
    failed_at: Option<Moment>,
    /// No more will come.
    ended: bool,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<'a> Shared<'a> {
    pub(crate) fn moment(&self) -> Moment {
        Moment::now(self.clock)
    }

    pub(crate) fn keeper(&self) -> MutexGuard<'_, Keeper<'a>> {
        lock(&self.keeper)
    }

    /// All recordings until this one are counted, by those who have written them.
    fn counted_until(&self, number: u64) {
        *lock(&self.counters.counted) = Counted::all_of(number);
    }

    /// Removes what is too old.
    fn expire(&self) {
        while self.keeper().expire_one() {}
        self.remember();
    }

    /// Writes down when sources were gone.
    fn remember_outages(&self, sources: &[Arc<SourceCounters>]) {
        for source in sources {
            for (from_ns, to_ns) in source.take_outages() {
                let outage = Covered { from_ns: from_ns.min(to_ns), to_ns };
                if let Err(error) = self.archive.remember_outage(&source.name, outage) {
                    self.complain("when a source was gone cannot be written down: ", &error);
                }
            }
        }
    }

    /// Writes down what was removed, and has said what there is to say of it.
    fn remember(&self) {
        let mut keeper = self.keeper();
        keeper.remember();
        let said = keeper.says();
        drop(keeper);
        said.into_iter().for_each(|text| self.trouble(text));
    }

    /// Has something said.
    pub(crate) fn trouble(&self, text: String) {
        let mut troubles = lock(&self.troubles);
        if troubles.to_say.len() < TROUBLES_MAX {
            troubles.to_say.push(text);
        }
    }

    /// Has something said that comes again and again, unless it was said a short while ago: an
    /// error, with what led to it.
    pub(crate) fn complain(&self, what: &str, error: &dyn std::error::Error) {
        let text = format!("{what}{}", chain(error));
        let mut troubles = lock(&self.troubles);
        troubles.said.retain(|(_, at)| at.elapsed(self.clock) < SAID_AGAIN);
        let is_new = troubles.said.iter().all(|(said, _)| *said != text);
        if is_new && troubles.said.len() < COMPLAINTS_MAX {
            troubles.said.push((text.clone(), self.moment()));
            troubles.to_say.push(text);
        }
    }

    /// A recording was completed: its packets are safe.
    pub(crate) fn sealed_packets(&self, packets: u64) {
        let all = self.sealed_packets.fetch_add(packets, Ordering::Relaxed) + packets;
        self.counters.synced.fetch_max(all, Ordering::Relaxed);
    }

    /// So many packets of the open recording are safe.
    pub(crate) fn synced(&self, packets: u64) {
        let all = self.sealed_packets.load(Ordering::Relaxed) + packets;
        self.counters.synced.fetch_max(all, Ordering::Relaxed);
    }

    pub(crate) fn to_index(&self, recording: &Recording, since_ns: u64) {
        lock(&self.to_index).queue.push_back((recording.clone(), since_ns));
        self.count_waiting();
        self.more_to_index.notify_all();
    }

    fn end_of_indexing(&self) {
        lock(&self.to_index).ended = true;
        self.more_to_index.notify_all();
    }

    /// Waits for something to index. A recording stays in the queue until
    /// [`indexed_one`](Self::indexed_one).
    pub(crate) fn next_to_index(&self) -> ToDo {
        let mut to_index = lock(&self.to_index);
        let asked = self.moment();
        loop {
            if self.abandon.load(Ordering::Relaxed) {
                return ToDo::End;
            }
            if let Some((recording, _)) = to_index.queue.front() {
                return ToDo::Index(recording.clone());
            }
            if to_index.ended {
                return ToDo::End;
            }
            if to_index.failed_at.is_some_and(|at| at.elapsed(self.clock) >= INDEX_AGAIN) {
                to_index.failed_at = None;
                to_index.queue = std::mem::take(&mut to_index.failed);
                continue;
            }
            let waited = asked.elapsed(self.clock);
            if waited >= DRAFT_EVERY {
                return ToDo::Draft;
            }
            let nap = self.clock.nap(Waiter::Indexer, DRAFT_EVERY.saturating_sub(waited));
            let woken = self.more_to_index.wait_timeout(to_index, nap);
            to_index = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Whether a recording waits to be indexed, or all is to end.
    pub(crate) fn is_to_index(&self) -> bool {
        let to_index = lock(&self.to_index);
        !to_index.queue.is_empty() || to_index.ended || self.abandon.load(Ordering::Relaxed)
    }

    /// The recording that is first in the queue is indexed, or gone.
    pub(crate) fn indexed_one(&self) {
        lock(&self.to_index).queue.pop_front();
        self.count_waiting();
    }

    /// The recording that is first in the queue could not be indexed: later once more.
    pub(crate) fn index_again(&self) {
        let mut to_index = lock(&self.to_index);
        let first = to_index.queue.pop_front();
        to_index.failed.extend(first);
        to_index.failed_at = Some(self.moment());
        drop(to_index);
        self.count_waiting();
    }

    fn count_waiting(&self) {
        let to_index = lock(&self.to_index);
        let waiting = to_index.queue.len() + to_index.failed.len();
        self.counters.waiting.store(waiting as u64, Ordering::Relaxed);
        let all = to_index.queue.iter().chain(&to_index.failed);
        let since = all.map(|&(_, since)| since).min().unwrap_or(0);
        self.counters.waiting_since_ns.store(since, Ordering::Relaxed);
    }
}

/// Records packets into an archive.
#[derive(Debug)]
pub struct Recorder<'a> {
    shared: Shared<'a>,
    options: RecordOptions,
    sources: Vec<(Source, Arc<SourceCounters>)>,
    recovered: Vec<Recovered>,
    before: Totals,
    started_ns: u64,
    _lock: RunLock,
}

impl<'a> Recorder<'a> {
    /// Gets ready to record from sources that are open: completes what an earlier run left, and
    /// looks at what there is.
    pub fn new(
        archive: &'a Archive,
        sources: Vec<Source>,
        options: RecordOptions,
    ) -> Result<Self, RecordError> {
        Self::on_disk(archive, sources, options, &FileSystem)
    }

    /// The same on a disk of one's own.
    pub fn on_disk(
        archive: &'a Archive,
        sources: Vec<Source>,
        options: RecordOptions,
        disk: &'a dyn Disk,
    ) -> Result<Self, RecordError> {
        Self::on_machine(archive, sources, options, disk, &SystemClock)
    }

    /// The same with clocks of one's own.
    pub fn on_machine(
        archive: &'a Archive,
        sources: Vec<Source>,
        options: RecordOptions,
        disk: &'a dyn Disk,
        clock: &'a dyn Clock,
    ) -> Result<Self, RecordError> {
        let folder = archive.folder();
        let busy = || RecordError::Busy {
            path: folder.to_owned(),
            pid: Status::read(archive).map(|status| status.pid),
        };
        let locked = RunLock::take(archive).map_err(|source| ArchiveError::Io {
            what: "lock",
            path: folder.to_owned(),
            source,
        })?;
        let lock = locked.ok_or_else(busy)?;
        let packets = archive.packets_folder();
        archive.root().make_folder(&packets).map_err(|source| ArchiveError::Io {
            what: "create",
            path: packets,
            source,
        })?;
        let (recovered, unsealed) = archive.seal_unfinished(&AtomicBool::new(false))?;
        let keeper = Keeper::new(archive, options.retention, disk, clock)?;
        let names: Vec<String> = sources.iter().map(|source| source.name().to_string()).collect();
        let mut rotation = options.rotation;
        if let Some(most) = keeper.bytes_kept() {
            rotation.bytes = rotation.bytes.min((most / SHARE_OF_LIMIT).max(ROTATE_BYTES_MIN));
        }
        let shared = Shared {
            archive,
            disk,
            clock,
            rotation,
            index_threads: options.index_threads.max(1),
            comment: format!("recorded from {}", names.join(", ")),
            interfaces: Arc::default(),
            counters: Counters::default(),
            current: Current::default(),
            stop: Arc::default(),
            abandon: AtomicBool::new(false),
            rotate: AtomicBool::new(false),
            build_seconds: Arc::new(Histogram::new(&[0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0])),
            keeper: Mutex::new(keeper),
            to_index: Mutex::default(),
            more_to_index: Condvar::new(),
            sealed_packets: AtomicU64::new(0),
            troubles: Mutex::default(),
        };
        if let Err(error) = archive.remove_drafts() {
            shared.complain("", &error);
        }
        let left = shared.keeper().unindexed();
        for recording in archive.recordings()? {
            if left.contains(recording.name()) {
                shared.to_index(&recording, clock.now_ns());
            }
        }
        for error in &unsealed {
            shared.complain("", error);
        }
        let before = Status::read(archive).map(|status| status.total_stored(archive));
        let last = archive.recordings()?.iter().filter_map(Recording::number).max();
        shared.counted_until(last.unwrap_or(0));
        let with_counters = |source: Source| {
            let counters = SourceCounters::new(&source.name().to_string());
            (source, Arc::new(counters))
        };
        Ok(Self {
            shared,
            options,
            sources: sources.into_iter().map(with_counters).collect(),
            recovered,
            before: before.unwrap_or_default(),
            started_ns: clock.now_ns(),
            _lock: lock,
        })
    }

    /// Recordings that an earlier run left unfinished, and that are complete now.
    pub fn recovered(&self) -> &[Recovered] {
        &self.recovered
    }

    /// Recordings that are not indexed yet.
    pub fn waiting(&self) -> u64 {
        self.shared.counters.waiting.load(Ordering::Relaxed)
    }

    /// How long recordings take to be indexed.
    pub fn build_seconds(&self) -> Arc<Histogram> {
        Arc::clone(&self.shared.build_seconds)
    }

    /// Records until all sources have ended, or it is told to stop. Returns how it ended.
    pub fn run(
        self,
        control: &Control,
        device: Option<&Mutex<dyn SegmentDevice>>,
        tell: &mut dyn FnMut(Event<'_>),
    ) -> Status {
        let Self { shared, options, sources, before, started_ns, .. } = self;
        let shared = &shared;
        let (full, blocks) = channel();
        let (closed, to_seal) = sync_channel(CLOSED_MAX);
        let queue = usize::try_from(options.queue_bytes).unwrap_or(usize::MAX);
        let queue = queue / sources.len().max(1);
        let counters: Vec<Arc<SourceCounters>> =
            sources.iter().map(|(_, counters)| Arc::clone(counters)).collect();
        let left = options.packets_max.map(|most| Arc::new(AtomicU64::new(most)));
        let name = if device.is_some() { "cuda" } else { "cpu" };
        let mut teller = Teller {
            shared,
            counters: &counters,
            before,
            started_ns,
            device: name,
            last: None,
            ended: false,
        };
        // Whoever is killed before the first second is over has said where it began.
        if let Err(error) = teller.status().write(shared.archive) {
            shared.complain("the status cannot be written: ", &error);
        }
        // What is too old goes for that, before there is need of its room.
        shared.expire();
        let over = &AtomicBool::new(false);
        std::thread::scope(|scope| {
            for (source, counters) in sources {
                let mut feeder = Feeder::new(
                    queue,
                    full.clone(),
                    Arc::clone(&shared.interfaces),
                    counters,
                    source.pressure(),
                    Arc::clone(&shared.stop),
                );
                feeder.limit(left.clone());
                // In the order in which they were named.
                source.announce(&feeder);
                let trouble = |text: String| shared.trouble(text);
                scope.spawn(move || source.run(feeder, &shared.stop, &trouble));
            }
            // The writer ends when the last source has.
            drop(full);
            let writing = scope.spawn(move || Writer::new(shared, closed).run(&blocks));
            let sealing = scope.spawn(move || sealer::run(shared, &to_seal));
            let indexing = scope.spawn(move || indexer::run(shared, device));
            // On a thread of its own: who is told may not listen for long.
            scope.spawn(move || {
                govern(shared, control, options.finish, [&writing, &sealing, &indexing]);
                over.store(true, Ordering::Relaxed);
            });
            let mut told = None::<Moment>;
            while !over.load(Ordering::Relaxed) {
                if told.is_none_or(|told| told.elapsed(shared.clock) >= STATUS_EVERY) {
                    told = Some(shared.moment());
                    shared.remember_outages(&counters);
                    teller.tell(tell);
                }
                std::thread::sleep(shared.clock.nap(Waiter::Teller, TICK));
            }
        });
        shared.remember();
        counters.iter().for_each(|source| source.is_back(true, shared.clock.now_ns()));
        shared.remember_outages(&counters);
        for counters in &counters {
            // Lost when there was no recording left to say so.
            let untold = counters.lost().saturating_sub(counters.lost_told.load(Ordering::Relaxed));
            let span = counters.take_lost_span();
            let (from_ns, to_ns) = span.unwrap_or((started_ns, shared.clock.now_ns()));
            if untold > 0
                && let Err(error) = shared.archive.remember_lost(Loss::new(from_ns, to_ns, untold))
            {
                shared.complain("losses cannot be written down: ", &error);
            }
        }
        teller.ended = true;
        teller.tell(tell)
    }
}

/// Sees to it that all do what they are told, until the writer, the sealer and the indexer have
/// ended, in this order.
fn govern(
    shared: &Shared<'_>,
    control: &Control,
    finish: Duration,
    [writing, sealing, indexing]: [&ScopedJoinHandle<'_, ()>; 3],
) {
    let mut sealed = None::<Moment>;
    let mut looked = None::<Moment>;
    while !indexing.is_finished() {
        if control.stop.load(Ordering::Relaxed) {
            shared.stop.store(true, Ordering::Relaxed);
        }
        if control.rotate.swap(false, Ordering::Relaxed) {
            shared.rotate.store(true, Ordering::Relaxed);
        }
        // These end after all sources; if one should panic, nothing is worth going on.
        if writing.is_finished() || sealing.is_finished() {
            shared.stop.store(true, Ordering::Relaxed);
        }
        if sealed.is_none() && sealing.is_finished() {
            sealed = Some(shared.moment());
            shared.end_of_indexing();
        }
        // Who has told us to stop does not want to wait for long.
        let late = control.stop.load(Ordering::Relaxed)
            && sealed.is_some_and(|sealed| sealed.elapsed(shared.clock) >= finish);
        if late || control.hurry.load(Ordering::Relaxed) && sealed.is_some() {
            shared.abandon.store(true, Ordering::Relaxed);
        }
        if looked.is_none_or(|at| at.elapsed(shared.clock) >= STATUS_EVERY) {
            looked = Some(shared.moment());
            shared.expire();
        }
        std::thread::sleep(shared.clock.nap(Waiter::Governor, TICK));
    }
}

/// Puts together what is told.
struct Teller<'s, 'a> {
    shared: &'s Shared<'a>,
    counters: &'s [Arc<SourceCounters>],
    before: Totals,
    started_ns: u64,
    device: &'static str,
    /// When it was told last, and what had been recorded then.
    last: Option<(Moment, Totals)>,
    ended: bool,
}

impl Teller<'_, '_> {
    fn tell(&mut self, tell: &mut dyn FnMut(Event<'_>)) -> Status {
        let status = self.status();
        if let Err(error) = status.write(self.shared.archive) {
            // A full disk is told of where it matters.
            if error.kind() != std::io::ErrorKind::StorageFull {
                self.shared.complain("the status cannot be written: ", &error);
            }
        }
        let troubles = std::mem::take(&mut lock(&self.shared.troubles).to_say);
        for trouble in troubles {
            tell(Event::Trouble(trouble));
        }
        tell(Event::Status(&status));
        status
    }

    fn status(&mut self) -> Status {
        let counters = &self.shared.counters;
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let sources: Vec<SourceStatus> =
            self.counters.iter().map(|source| source_status(source)).collect();
        let lost = sources.iter().fold(Losses::default(), |sum, source| sum.add(&source.lost));
        let keeper = self.shared.keeper();
        let (stock, removed, space) = (keeper.stock(), keeper.removed, keeper.space());
        let (index_uses, age_paused) = (keeper.index_uses(), keeper.is_age_paused());
        drop(keeper);
        let space = space.unwrap_or_default();
        let counted = lock(&counters.counted);
        let (packets, wire_bytes) = (get(&counters.packets), get(&counters.wire_bytes));
        let of_last = *counted;
        drop(counted);
        let run = Totals {
            packets,
            wire_bytes,
            lost,
            removed_segments: removed.segments.iter().sum(),
            removed_packets: removed.packets,
            pauses: get(&counters.pauses),
        };
        let now = self.shared.moment();
        let (mut packets_per_second, mut bits_per_second) = (0.0, 0.0);
        if let Some((then, before)) = &self.last {
            let seconds = now.since(*then).as_secs_f64().max(1e-3);
            let gained = |now: u64, before: u64| now.saturating_sub(before) as f64 / seconds;
            packets_per_second = gained(run.packets, before.packets);
            bits_per_second = 8.0 * gained(run.wire_bytes, before.wire_bytes);
        }
        self.last = Some((now, run));
        let open_bytes = get(&counters.open_bytes);
        let open_oldest = Some(get(&counters.open_time_min)).filter(|&ns| ns > 0);
        let (now_ns, since) = (self.shared.clock.now_ns(), get(&counters.waiting_since_ns));
        let lag = if since == 0 { 0 } else { now_ns.saturating_sub(since) };
        Status {
            pid: std::process::id(),
            folder: self.shared.archive.folder().display().to_string(),
            device: self.device.to_owned(),
            started_ns: self.started_ns,
            updated_ns: now_ns,
            paused: counters.paused.load(Ordering::Relaxed),
            age_paused,
            ended: self.ended,
            packets_per_second,
            bits_per_second,
            synced_packets: get(&counters.synced),
            written_bytes: get(&counters.bytes),
            last_packet_ns: get(&counters.last_packet_ns),
            sealed: get(&counters.sealed),
            indexed: get(&counters.indexed),
            indexed_packets: get(&counters.indexed_packets),
            index_bytes: get(&counters.index_bytes),
            waiting: get(&counters.waiting),
            index_lag_seconds: lag as f64 / 1e9,
            segments: stock.segments + u64::from(open_bytes > 0),
            packet_bytes: stock.packet_bytes + open_bytes,
            segment_index_bytes: stock.index_bytes,
            index_uses,
            oldest_packet_ns: stock.oldest_ns.into_iter().chain(open_oldest).min().unwrap_or(0),
            disk_free_bytes: space.free,
            disk_percent: space.percent(),
            removed_by: removed.segments,
            run,
            total: self.before.add(&run),
            counted: Some(of_last),
            sources,
        }
    }
}

fn source_status(counters: &SourceCounters) -> SourceStatus {
    let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    let waiting = get(&counters.blocks_full) as f64;
    SourceStatus {
        name: counters.name.clone(),
        up: counters.up.load(Ordering::Relaxed),
        received: get(&counters.received).saturating_sub(get(&counters.not_wanted)),
        stored: get(&counters.stored),
        stored_bytes: get(&counters.stored_bytes),
        ring_fill: counters.ring_fill(),
        queue_fill: waiting / get(&counters.blocks).max(1) as f64,
        broken: counters.broken.load(Ordering::Relaxed),
        reopened: get(&counters.reopened),
        lost: Losses {
            interface: get(&counters.lost_by_interface),
            kernel: get(&counters.lost_by_kernel),
            writer: get(&counters.lost_by_writer),
            indexer: 0,
        },
    }
}
