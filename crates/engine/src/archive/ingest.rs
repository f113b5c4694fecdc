//! Taking captures in: reading, decoding and indexing them, on all cores.
//!
//! | file | job |
//! |---|---|
//! | `schedule.rs` | which thread does what |
//! | `open.rs` | whether a capture is new, unchanged or partly indexed, and where to read on |
//! | `copy.rs` | copies of captures that are compressed or come as a stream |
//! | `stream.rs` | a capture that several threads read, put together in order |
//! | `window.rs` | a window of a capture becomes chunks |
//! | `write.rs` | chunks become a segment |
//! | `memory.rs` | how much memory there is |
//! | `steps.rs` | how long each step takes |
//! | `cleanup.rs` | what older segments of the same capture left behind |

mod cleanup;
mod copy;
mod memory;
mod open;
mod schedule;
mod steps;
mod stream;
mod window;
mod write;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::builder::{
    Chunk, Decoder, DeviceReport, Places, RECORDS_MAX, Scratch, SegmentBuilder, SharedDevice,
    Spare, kept,
};
use super::device::{Kept, SegmentDevice};
use super::{Archive, ArchiveError};
use crate::lock;
use crate::storage::{Publish, Storage, Whose};
use open::Known;
use schedule::{AllParts, Job, Queue};
pub use steps::Step;
pub(super) use steps::Steps;
use stream::{Manner, Stream, WholeSegment};

/// A capture to take in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Input {
    /// A file.
    File(PathBuf),
    /// Standard input, and the name to store its packets under.
    Stdin(String),
}

/// How far the work has got.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Progress {
    /// Bytes of captures that were read.
    pub bytes: u64,
    /// Bytes of all captures that are to be read, as far as known.
    pub bytes_total: u64,
    /// Packets that were decoded.
    pub packets: u64,
}

/// What became of a capture.
#[derive(Debug, Default)]
pub struct FileReport {
    /// The capture.
    pub path: PathBuf,
    /// It was indexed before and is unchanged.
    pub skipped: bool,
    /// Packets that were indexed.
    pub packets: u64,
    /// Their bytes on the wire.
    pub wire_bytes: u64,
    /// Bytes of the indexes.
    pub index_bytes: u64,
    /// Segments that were written.
    pub segments: u32,
    /// What is wrong with the capture; everything before the damage is indexed.
    pub damage: Option<String>,
    /// Why it was not indexed, or not to its end.
    pub error: Option<ArchiveError>,
}

/// What became of all captures.
#[derive(Debug, Default)]
pub struct IngestReport {
    /// Each of them, in the order in which they were given.
    pub files: Vec<FileReport>,
    /// What the device did, if there was one.
    pub device: DeviceReport,
    /// How long the threads have spent on each step, together.
    pub steps: Vec<(Step, Duration)>,
}

/// Takes captures into an archive.
pub struct Ingest<'a> {
    archive: &'a Archive,
    threads: usize,
    manner: Manner,
    memory: Option<u64>,
    force: bool,
    unpack_max: Option<u64>,
    stop: Option<&'a AtomicBool>,
    progress: Option<&'a (dyn Fn(Progress) + Sync)>,
    device: Option<&'a Mutex<dyn SegmentDevice>>,
    storage: Option<&'a dyn Publish>,
}

impl std::fmt::Debug for Ingest<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ingest").field("archive", &self.archive).finish_non_exhaustive()
    }
}

/// The most threads, even if more are asked for.
const THREADS_MAX: usize = 256;

/// What the threads of one run share.
struct Run<'a> {
    inputs: &'a [Input],
    device: SharedDevice<'a>,
    queue: Queue,
    /// For each input.
    reports: Mutex<Vec<FileReport>>,
    parts: AllParts,
    known: Known,
    /// The captures that some thread works on, or has worked on.
    taken: Mutex<BTreeSet<PathBuf>>,
    meter: Meter,
    steps: Steps,
    /// What is kept of packets.
    kept: Kept,
    /// The threads that encode the columns of a segment, if there are several.
    pool: Option<rayon::ThreadPool>,
    /// Chunks whose memory can be used again, and what others need until they are marked.
    chunks: Mutex<Vec<Chunk>>,
    places: Arc<Spare<Places>>,
    /// Builders that write no segment at the moment, and what all of them encode columns in.
    builders: Mutex<Vec<SegmentBuilder>>,
    scratch: Arc<Spare<Scratch>>,
}

impl Run<'_> {
    /// Chunks that are not needed any more.
    fn unused(&self, mut chunks: Vec<Chunk>) {
        chunks.iter_mut().for_each(Chunk::leave_device);
        lock(&self.chunks).append(&mut chunks);
    }

    /// Changes the report of an input.
    fn report(&self, input: usize, change: impl FnOnce(&mut FileReport)) {
        if let Some(report) = lock(&self.reports).get_mut(input) {
            change(report);
        }
    }
}

/// The progress of all threads.
#[derive(Debug, Default)]
struct Meter {
    bytes: AtomicU64,
    bytes_total: AtomicU64,
    packets: AtomicU64,
}

impl Meter {
    /// Counts what has been read.
    fn add(&self, bytes: u64, packets: u64) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.packets.fetch_add(packets, Ordering::Relaxed);
    }

    fn progress(&self) -> Progress {
        Progress {
            bytes: self.bytes.load(Ordering::Relaxed),
            bytes_total: self.bytes_total.load(Ordering::Relaxed),
            packets: self.packets.load(Ordering::Relaxed),
        }
    }
}

impl<'a> Ingest<'a> {
    /// Takes captures into this archive, on all cores.
    pub fn new(archive: &'a Archive) -> Self {
        let threads = std::thread::available_parallelism().map_or(1, usize::from).min(THREADS_MAX);
        Self {
            archive,
            threads,
            manner: Manner { records_max: RECORDS_MAX, window: None },
            memory: None,
            force: false,
            unpack_max: None,
            stop: None,
            progress: None,
            device: None,
            storage: None,
        }
    }

    /// Uses this many threads; 0 means one for each core.
    #[must_use]
    pub fn threads(mut self, threads: usize) -> Self {
        if threads > 0 {
            self.threads = threads.min(THREADS_MAX);
        }
        self
    }

    /// Closes a segment after this many packets at most.
    #[must_use]
    pub fn records_max(mut self, records: usize) -> Self {
        self.manner.records_max = records.clamp(1, RECORDS_MAX);
        self
    }

    /// Uses about so many bytes of memory; by default a quarter of what the machine has. With
    /// little, threads wait for each other; a segment has to fit, whatever this says.
    #[must_use]
    pub fn memory(mut self, bytes: Option<u64>) -> Self {
        self.memory = bytes;
        self
    }

    /// Reads captures in windows of so many bytes; by default that follows from the size of their
    /// packets. Segments end where windows do, and so depend on it.
    #[must_use]
    pub fn window(mut self, bytes: u64) -> Self {
        self.manner.window = Some(bytes.max(4).next_multiple_of(4));
        self
    }

    /// Also indexes captures again that are already indexed and unchanged.
    #[must_use]
    pub fn force(mut self, force: bool) -> Self {
        self.force = force;
        self
    }

    /// Unpacks captures of at most this many bytes. Without it, the limit is a hundred times the
    /// compressed size, or 256 MiB if that is more.
    #[must_use]
    pub fn unpack_max(mut self, bytes: Option<u64>) -> Self {
        self.unpack_max = bytes;
        self
    }

    /// Stops soon after this is set; incomplete files are removed.
    #[must_use]
    pub fn stop(mut self, stop: &'a AtomicBool) -> Self {
        self.stop = Some(stop);
        self
    }

    /// Calls this with the progress of the work, often, from several threads.
    #[must_use]
    pub fn progress(mut self, progress: &'a (dyn Fn(Progress) + Sync)) -> Self {
        self.progress = Some(progress);
        self
    }

    /// Lets a device sort and index segments, one at a time. What the device cannot do is done on
    /// the CPU instead. The indexes are the same, byte for byte.
    #[must_use]
    pub fn device(mut self, device: &'a Mutex<dyn SegmentDevice>) -> Self {
        self.device = Some(device);
        self
    }

    /// Writes indexes through this storage.
    #[must_use]
    pub fn storage(mut self, storage: &'a dyn Publish) -> Self {
        self.storage = Some(storage);
        self
    }

    /// Takes the captures in. If one of them fails, its report says why, and the others go on; an
    /// error is returned for what concerns all of them.
    pub fn run(&self, inputs: &[Input]) -> Result<IngestReport, ArchiveError> {
        let run = Run {
            inputs,
            device: SharedDevice::for_frames(self.device, self.archive.settings().codec),
            kept: kept(self.archive.settings().fields),
            queue: Queue::new(inputs.len(), self.threads, memory::for_chunks(self.memory)),
            reports: Mutex::new(inputs.iter().map(|_| FileReport::default()).collect()),
            parts: AllParts::new(inputs.len()),
            known: self.known(inputs)?,
            taken: Mutex::default(),
            meter: Meter::default(),
            steps: Steps::default(),
            pool: self.pool(),
            chunks: Mutex::default(),
            places: Arc::default(),
            builders: Mutex::default(),
            scratch: Arc::default(),
        };
        let sizes = inputs.iter().filter_map(|input| match input {
            Input::File(path) => {
                self.files().metadata(path, Whose::Named).ok().map(|data| data.len)
            }
            Input::Stdin(_) => None,
        });
        run.meter.bytes_total.store(sizes.sum(), Ordering::Relaxed);
        std::thread::scope(|scope| {
            for _ in 1..self.threads {
                scope.spawn(|| self.work(&run));
            }
            self.work(&run);
        });
        if self.is_stopped() {
            return Err(ArchiveError::Interrupted);
        }
        let files = run.reports.into_inner().unwrap_or_else(PoisonError::into_inner);
        Ok(IngestReport { files, device: run.device.report(), steps: run.steps.times().to_vec() })
    }

    /// Threads beside those that take jobs: these wait while columns are encoded.
    fn pool(&self) -> Option<rayon::ThreadPool> {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(self.threads);
        // Without it, each segment is encoded by one thread.
        if self.threads > 1 { pool.build().ok() } else { None }
    }

    /// Takes jobs until none are left and none can come.
    fn work(&self, run: &Run<'_>) {
        let fields = self.archive.settings().fields;
        let mut decoder = Decoder::new(fields, &run.places);
        while let Some((job, running)) =
            run.steps.time(Step::Idle, || run.queue.take(|| self.is_stopped()))
        {
            let (input, result) = match job {
                Job::Open(input) => (input, self.open_stream_of(run, input)),
                Job::Read(input, window) => {
                    let number = window.number;
                    let read =
                        run.steps.time(Step::Read, || self.read_window(run, &mut decoder, &window));
                    let begin = |whole: &WholeSegment| run.parts.begin(whole.input);
                    let progressed = run.queue.read(input, number, read, begin);
                    run.unused(progressed.unused);
                    run.meter.add(progressed.bytes, progressed.packets);
                    self.tell(run);
                    (input, progressed.error.map_or(Ok(()), Err))
                }
                Job::Write(whole) => {
                    let (input, held) = (whole.input, schedule::bytes(&whole.chunks));
                    let builder = lock(&run.builders).pop();
                    let mut builder = builder.unwrap_or_else(|| {
                        SegmentBuilder::with_scratch(fields, Arc::clone(&run.scratch))
                    });
                    let result = self.write_segment(run, &mut builder, whole);
                    run.unused(builder.start(Vec::new(), (0, 0)));
                    lock(&run.builders).push(builder);
                    run.queue.release(held);
                    (input, result)
                }
            };
            drop(running);
            if let Err(error) = result {
                run.report(input, |report| report.error = Some(error));
            }
        }
    }

    /// Opens a capture to be read, if there is anything to do.
    fn open_stream_of(&self, run: &Run<'_>, input: usize) -> Result<(), ArchiveError> {
        if let Some(capture) = self.open(run, input)? {
            run.queue.opened(Stream::new(input, capture, self.manner));
        }
        Ok(())
    }

    /// A chunk without packets.
    fn empty_chunk(&self, run: &Run<'_>) -> Chunk {
        let used = lock(&run.chunks).pop();
        used.unwrap_or_else(|| Chunk::new(self.archive.settings().fields))
    }

    fn files(&self) -> &'a dyn Storage {
        &**self.archive.storage()
    }

    fn is_stopped(&self) -> bool {
        self.stop.is_some_and(|stop| stop.load(Ordering::Relaxed))
    }

    fn tell(&self, run: &Run<'_>) {
        if let Some(progress) = self.progress {
            progress(run.meter.progress());
        }
    }
}
