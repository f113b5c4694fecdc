//! All parts together.
//!
//! | part | what it does |
//! |---|---|
//! | [`control`](crate::control) | orders to the running recorder |
//! | `pipeline` | starts and ends the threads: sources, writer, sealer, indexer |
//! | `index_queue` | recordings that wait for the indexer |
//! | `messages` | messages of the threads |
//! | `reporter` | reports the messages and the status |
//! | `ledger` | writes down what is missing from the archive |
//!
//! Each of them gets what it uses and knows nothing of this file.

use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tapdex_engine::archive::device::SegmentDevice;
use tapdex_engine::archive::{Archive, ArchiveError, Recording, Recovered};

use crate::clock::{Clock, SystemClock};
use crate::control::{Control, Orders};
use crate::counters::{Counters, SourceCounters};
use crate::index_queue::IndexQueue;
use crate::keeper::Keeper;
use crate::ledger::Ledger;
use crate::messages::{Message, Messages};
use crate::metrics::Histogram;
use crate::pipeline::{Pipeline, Sources};
use crate::queue::Interfaces;
use crate::reporter::{Event, Reporter};
use crate::source::PacketSource;
use crate::status::{Counted, RunLock, Status, Totals};
use crate::units::{Retention, Rotation};
use crate::writer::Current;
use crate::{indexer, lock, sealer, writer};

/// A recording is at most this fraction of what may be kept, so that there is something to remove.
const SHARE_OF_LIMIT: u64 = 10;
/// But not smaller than this.
const ROTATE_BYTES_MIN: u64 = 1 << 20;
/// Bucket bounds of the histogram of indexing times.
const BUILD_SECONDS: [f64; 8] = [0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0];

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
        /// The process of that recorder.
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
    /// Ends after this many packets.
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

/// Records packets into an archive.
#[derive(Debug)]
pub struct Recorder<'a> {
    archive: &'a Archive,
    clock: &'a dyn Clock,
    options: RecordOptions,
    sources: Vec<PacketSource>,
    keeper: Mutex<Keeper<'a>>,
    queue: IndexQueue<'a>,
    messages: Messages<'a>,
    counters: Counters,
    build_seconds: Arc<Histogram>,
    recovered: Vec<Recovered>,
    before: Totals,
    started_ns: u64,
    _lock: RunLock,
}

impl<'a> Recorder<'a> {
    /// Gets ready to record from open sources: completes what an earlier run left, and looks at the
    /// existing recordings.
    pub fn new(
        archive: &'a Archive,
        sources: Vec<PacketSource>,
        options: RecordOptions,
    ) -> Result<Self, RecordError> {
        Self::on_machine(archive, sources, options, &SystemClock)
    }

    /// The same with other clocks.
    pub fn on_machine(
        archive: &'a Archive,
        sources: Vec<PacketSource>,
        mut options: RecordOptions,
        clock: &'a dyn Clock,
    ) -> Result<Self, RecordError> {
        let run_lock = take_lock(archive)?;
        let packets = archive.packets_folder();
        archive.storage().make_folder(&packets).map_err(|source| ArchiveError::Io {
            what: "create",
            path: packets,
            source,
        })?;
        let (recovered, unsealed) = archive.seal_unfinished(&AtomicBool::new(false))?;
        let keeper = Keeper::new(archive, options.retention, clock)?;
        if let Some(most) = keeper.bytes_kept() {
            let bytes = &mut options.rotation.bytes;
            *bytes = (*bytes).min((most / SHARE_OF_LIMIT).max(ROTATE_BYTES_MIN));
        }
        let messages = Messages::new(clock);
        if let Err(error) = archive.remove_drafts() {
            messages.say_once(Message::warn("").because(&error));
        }
        let queue = IndexQueue::new(clock);
        let left = keeper.unindexed();
        for recording in archive.recordings()? {
            if left.contains(recording.name()) {
                queue.add(&recording, clock.now_ns());
            }
        }
        for error in &unsealed {
            messages.say_once(Message::warn("").because(error));
        }
        let before = Status::read(archive).map(|status| status.total_stored(archive));
        let counters = Counters::default();
        // All recordings up to the last one were counted by the runs that wrote them.
        let last = archive.recordings()?.iter().filter_map(Recording::number).max();
        *lock(&counters.counted) = Counted::all_of(last.unwrap_or(0));
        Ok(Self {
            archive,
            clock,
            options,
            sources,
            keeper: Mutex::new(keeper),
            queue,
            messages,
            counters,
            build_seconds: Arc::new(Histogram::new(&BUILD_SECONDS)),
            recovered,
            before: before.unwrap_or_default(),
            started_ns: clock.now_ns(),
            _lock: run_lock,
        })
    }

    /// Recordings that an earlier run left unfinished, and that are complete now.
    pub fn recovered(&self) -> &[Recovered] {
        &self.recovered
    }

    /// Recordings that are not indexed yet.
    pub fn waiting(&self) -> u64 {
        self.queue.backlog().recordings
    }

    /// How long indexing a recording takes.
    pub fn build_seconds(&self) -> Arc<Histogram> {
        Arc::clone(&self.build_seconds)
    }

    /// Records until all sources have ended, or it is told to stop. Returns how it ended.
    pub fn run(
        self,
        control: &Control,
        device: Option<&Mutex<dyn SegmentDevice>>,
        tell: &mut dyn FnMut(Event<'_>),
    ) -> Status {
        let Self { archive, clock, options, sources, before, started_ns, .. } = self;
        let (keeper, queue) = (&self.keeper, &self.queue);
        let (messages, counters) = (&self.messages, &self.counters);
        let names: Vec<String> = sources.iter().map(|source| source.name().to_string()).collect();
        let of_sources: Vec<Arc<SourceCounters>> =
            names.iter().map(|name| Arc::new(SourceCounters::new(name))).collect();
        let of_sources = of_sources.as_slice();
        let (interfaces, current) = (&Arc::<Interfaces>::default(), &Current::default());
        let orders = &Orders::default();
        let rotation = options.rotation;
        let ledger = Ledger { archive, clock, keeper, sources: of_sources, messages };
        let mut reporter = Reporter {
            archive,
            clock,
            counters,
            sources: of_sources,
            keeper,
            queue,
            messages,
            before,
            started_ns,
            device: if device.is_some() { "cuda" } else { "cpu" },
            last: None,
        };
        reporter.begin();
        // Old recordings are removed for their age, before their room is needed.
        ledger.expire();
        let pipeline = Pipeline {
            clock,
            orders,
            queue,
            ledger,
            messages,
            writer: writer::Context {
                archive,
                clock,
                keeper,
                messages,
                counters,
                interfaces,
                current,
                orders,
                rotation,
                comment: format!("recorded from {}", names.join(", ")),
            },
            sealer: sealer::Context { archive, clock, keeper, messages, counters, current, queue },
            indexer: indexer::Context {
                archive,
                clock,
                keeper,
                messages,
                counters,
                current,
                queue,
                rotation,
                threads: options.index_threads.max(1),
                device,
                build_seconds: &self.build_seconds,
            },
            finish: options.finish,
        };
        let sources = Sources {
            all: sources.into_iter().zip(of_sources.iter().cloned()).collect(),
            queue_bytes: options.queue_bytes,
            packets_max: options.packets_max,
            interfaces: Arc::clone(interfaces),
        };
        pipeline.run(sources, control, &mut || {
            ledger.outages();
            reporter.tell(tell);
        });
        ledger.close(started_ns);
        reporter.end(tell)
    }
}

/// Makes sure that nobody else records into an archive.
fn take_lock(archive: &Archive) -> Result<RunLock, RecordError> {
    let path = || archive.folder().to_owned();
    let locked = RunLock::take(archive).map_err(|source| ArchiveError::Io {
        what: "lock",
        path: path(),
        source,
    })?;
    let pid = || Status::read(archive).map(|status| status.pid);
    locked.ok_or_else(|| RecordError::Busy { path: path(), pid: pid() })
}
