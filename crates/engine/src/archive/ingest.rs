//! Taking captures in: reading, decoding and indexing them, several at a time.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use super::builder::{DeviceReport, Limits, NewFile, RECORDS_MAX, SegmentBuilder, SharedDevice};
use super::device::SegmentDevice;
use super::file_names::{capture_name, copy_name, modified_ns, relative, segment_name};
use super::note::{Note, Source, chained};
use super::recording::is_recording;
use super::segment::{Segment, ends_sum};
use super::{Archive, ArchiveError, Settings};
use crate::beneath::{Rights, Root, open_named};
use crate::capture::{
    CaptureError, CaptureReader, Compression, DecompressError, decompress, is_capture,
};
use crate::storage::{Storage, temporary_path};

/// A capture to take in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Input {
    /// A file.
    File(PathBuf),
    /// Standard input, and the name that its packets are to have.
    Stdin(String),
}

/// How far the work is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Progress {
    /// Bytes of captures that were read.
    pub bytes: u64,
    /// Bytes of all captures that are to be read, as far as it is known.
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
    /// What is wrong with the capture; what stands before that is indexed.
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
}

/// Takes captures into an archive.
pub struct Ingest<'a> {
    archive: &'a Archive,
    threads: usize,
    records_max: usize,
    force: bool,
    unpack_max: Option<u64>,
    stop: Option<&'a AtomicBool>,
    progress: Option<&'a (dyn Fn(Progress) + Sync)>,
    device: Option<&'a Mutex<dyn SegmentDevice>>,
    storage: Option<&'a (dyn Storage + Sync)>,
}

impl std::fmt::Debug for Ingest<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ingest").field("archive", &self.archive).finish_non_exhaustive()
    }
}

/// Threads, however many are asked for: each has a segment in memory.
const THREADS_MAX: usize = 64;

/// As many bytes of a stream as tell whether it is a capture.
const FIRST_BYTES: usize = 64;

/// Times as many bytes that a packed capture may have unpacked, and bytes that any may have.
const UNPACKED_RATIO: u64 = 100;
const UNPACKED_BYTES: u64 = 256 << 20;

/// Packets between two looks at the clock and at whether to stop.
const STEP_RECORDS: usize = 1 << 14;

/// A part of a capture to be worked on.
struct Job {
    /// Which of the inputs.
    input: usize,
    /// Where it goes on; `None` if it was not opened yet.
    state: Option<State>,
}

/// Where a capture goes on.
struct State {
    reader: CaptureReader<File>,
    /// What all its segments say of it.
    source: Source,
    path: PathBuf,
    /// What was wrong with the stream that it is our copy of.
    broken: Option<String>,
}

/// The work to be done, and the threads that wait for it.
struct Queue {
    jobs: VecDeque<Job>,
    /// Jobs that may give rise to others.
    running: usize,
}

/// The parts of a capture that are being indexed, by several threads.
#[derive(Debug, Default)]
struct Parts {
    /// Those that are not written yet.
    running: u32,
    /// What the last one says, as soon as it is written.
    last: Option<Source>,
}

impl Parts {
    /// A part is written. When none is missing any more, whichever was the last to be written, what
    /// the last one of the capture says.
    fn written(&mut self, source: Source) -> Option<Source> {
        self.running = self.running.saturating_sub(1);
        if source.last {
            self.last = Some(source);
        }
        if self.running == 0 { self.last.take() } else { None }
    }
}

/// The segments of captures, by where the capture is: their index files, and what they say.
type Known = BTreeMap<PathBuf, Vec<(PathBuf, Note)>>;

/// What the threads share.
struct Shared<'a> {
    inputs: &'a [Input],
    device: SharedDevice<'a>,
    queue: Mutex<Queue>,
    changed: Condvar,
    reports: Mutex<Vec<FileReport>>,
    /// Of each input.
    parts: Mutex<Vec<Parts>>,
    known: Known,
    /// The captures that somebody works on, or has worked on.
    taken: Mutex<BTreeSet<PathBuf>>,
    bytes: AtomicU64,
    bytes_total: AtomicU64,
    packets: AtomicU64,
}

/// A job that may give rise to another, as long as this lives.
struct Running<'s, 'a> {
    shared: &'s Shared<'a>,
    ended: bool,
}

impl Running<'_, '_> {
    /// Says that the job gives rise to no others but `next`.
    fn end(&mut self, next: Option<Job>) {
        if std::mem::replace(&mut self.ended, true) {
            return;
        }
        let mut queue = lock(&self.shared.queue);
        queue.running -= 1;
        // Before other captures, so that few of them are open at a time.
        if let Some(next) = next {
            queue.jobs.push_front(next);
        }
        self.shared.changed.notify_all();
    }
}

impl Drop for Running<'_, '_> {
    fn drop(&mut self) {
        self.end(None);
    }
}

pub(super) fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<'a> Ingest<'a> {
    /// Takes captures into this archive, on all cores.
    pub fn new(archive: &'a Archive) -> Self {
        let threads = std::thread::available_parallelism().map_or(1, usize::from).min(THREADS_MAX);
        Self {
            archive,
            threads,
            records_max: RECORDS_MAX,
            force: false,
            unpack_max: None,
            stop: None,
            progress: None,
            device: None,
            storage: None,
        }
    }

    /// Works on so many threads; 0 means one for each core.
    #[must_use]
    pub fn threads(mut self, threads: usize) -> Self {
        if threads > 0 {
            self.threads = threads.min(THREADS_MAX);
        }
        self
    }

    /// Closes a segment after so many packets at most.
    #[must_use]
    pub fn records_max(mut self, records: usize) -> Self {
        self.records_max = records.clamp(1, RECORDS_MAX);
        self
    }

    /// Indexes captures again that are indexed and unchanged.
    #[must_use]
    pub fn force(mut self, force: bool) -> Self {
        self.force = force;
        self
    }

    /// Unpacks captures that have so many bytes at most. Otherwise it is a hundred times what they
    /// have packed, or 256 MiB if that is more.
    #[must_use]
    pub fn unpack_max(mut self, bytes: Option<u64>) -> Self {
        self.unpack_max = bytes;
        self
    }

    /// Stops soon after this was set; what is not complete is removed.
    #[must_use]
    pub fn stop(mut self, stop: &'a AtomicBool) -> Self {
        self.stop = Some(stop);
        self
    }

    /// Is told how far the work is, often, by several threads.
    #[must_use]
    pub fn progress(mut self, progress: &'a (dyn Fn(Progress) + Sync)) -> Self {
        self.progress = Some(progress);
        self
    }

    /// Has segments in flow order sorted and indexed by a device, one at a time; those in order of
    /// arrival are not for it. What the device cannot do is done here instead. The indexes are the
    /// same, byte for byte.
    #[must_use]
    pub fn device(mut self, device: &'a Mutex<dyn SegmentDevice>) -> Self {
        self.device = Some(device);
        self
    }

    /// Has indexes written through this storage.
    #[must_use]
    pub fn storage(mut self, storage: &'a (dyn Storage + Sync)) -> Self {
        self.storage = Some(storage);
        self
    }

    /// Takes the captures in. What is wrong with one of them is in its report, and the others go
    /// on; an error is what concerns all of them.
    pub fn run(&self, inputs: &[Input]) -> Result<IngestReport, ArchiveError> {
        let shared = Shared {
            inputs,
            device: SharedDevice::new(self.device),
            queue: Mutex::new(Queue {
                jobs: (0..inputs.len()).map(|input| Job { input, state: None }).collect(),
                running: 0,
            }),
            changed: Condvar::new(),
            reports: Mutex::new(inputs.iter().map(|_| FileReport::default()).collect()),
            parts: Mutex::new(inputs.iter().map(|_| Parts::default()).collect()),
            known: self.known(inputs)?,
            taken: Mutex::default(),
            bytes: AtomicU64::new(0),
            bytes_total: AtomicU64::new(0),
            packets: AtomicU64::new(0),
        };
        let sizes = inputs.iter().filter_map(|input| match input {
            Input::File(path) => path.metadata().ok().map(|data| data.len()),
            Input::Stdin(_) => None,
        });
        shared.bytes_total.store(sizes.sum(), Ordering::Relaxed);
        std::thread::scope(|scope| {
            for _ in 1..self.threads {
                scope.spawn(|| self.work(&shared));
            }
            self.work(&shared);
        });
        if self.is_stopped() {
            return Err(ArchiveError::Interrupted);
        }
        let files = shared.reports.into_inner().unwrap_or_else(PoisonError::into_inner);
        Ok(IngestReport { files, device: shared.device.report() })
    }

    fn root(&self) -> &'a Root {
        self.archive.root()
    }

    /// When a segment is closed.
    fn limits(&self) -> Limits {
        Limits::new(self.records_max, self.threads)
    }

    fn is_stopped(&self) -> bool {
        self.stop.is_some_and(|stop| stop.load(Ordering::Relaxed))
    }

    /// The segments that are there, by the capture that they were made of.
    fn known(&self, inputs: &[Input]) -> Result<Known, ArchiveError> {
        let folder = self.archive.segments_folder();
        // The segments of recordings are known by their names.
        let recording = |input: &Input| match input {
            Input::File(path) => Some(self.archive.index_stem(path)).filter(|n| is_recording(n)),
            Input::Stdin(_) => None,
        };
        let recordings: Option<BTreeSet<String>> = inputs.iter().map(recording).collect();
        let is_wanted = |path: &Path| match &recordings {
            Some(names) => names.contains(capture_name(path)),
            None => true,
        };
        let mut known = Known::new();
        for path in self.archive.index_files()?.into_iter().filter(|path| is_wanted(path)) {
            // One that cannot be opened is not known: its capture is indexed again.
            let Ok(segment) = Segment::open(&path) else { continue };
            let note = segment.note();
            let origin = folder.join(note.source.origin());
            let origin = origin.canonicalize().unwrap_or(origin);
            known.entry(origin).or_default().push((path, note.clone()));
        }
        known.values_mut().for_each(|parts| parts.sort_by_key(|(_, note)| note.source.part));
        Ok(known)
    }

    /// Takes jobs until there are none left and none can come.
    fn work(&self, shared: &Shared<'_>) {
        let mut builder = SegmentBuilder::new(self.archive.settings().fields);
        loop {
            let job = {
                let mut queue = lock(&shared.queue);
                loop {
                    if self.is_stopped() {
                        shared.changed.notify_all();
                        return;
                    }
                    if let Some(job) = queue.jobs.pop_front() {
                        queue.running += 1;
                        break job;
                    }
                    if queue.running == 0 {
                        shared.changed.notify_all();
                        return;
                    }
                    queue = shared.changed.wait(queue).unwrap_or_else(PoisonError::into_inner);
                }
            };
            let input = job.input;
            // If a thread should panic, the others must not wait for it.
            let mut running = Running { shared, ended: false };
            if let Err(error) = self.job(&mut builder, job, &mut running) {
                lock(&shared.reports)[input].error = Some(error);
            }
        }
    }

    fn job(
        &self,
        builder: &mut SegmentBuilder,
        job: Job,
        running: &mut Running<'_, '_>,
    ) -> Result<(), ArchiveError> {
        let shared = running.shared;
        let state = match job.state {
            Some(state) => Some(state),
            None => self.open(shared, job.input)?,
        };
        let Some(mut state) = state else {
            return Ok(());
        };
        // Before the next part can begin. One that fails stays missing.
        lock(&shared.parts)[job.input].running += 1;
        builder.clear();
        let limits = self.limits();
        let Settings { order, codec, sums, .. } = self.archive.settings();
        let name = self.archive.index_stem(&state.path);
        if sums || is_recording(&name) {
            // The head of the file is the head of its first part.
            let start = if state.source.part == 0 { 0 } else { state.source.start };
            builder.start_sums(&mut state.reader, start);
        }
        let ended = self.fill(shared, builder, &mut state)?;
        builder.end_sums(&mut state.reader);
        let cut_short = matches!(ended, Some(CaptureError::Truncated { .. }));
        let mut damage = ended.map(|error| error.to_string());
        let mut source = state.source.clone();
        source.end = state.reader.position();
        let failed = |what| {
            let path = &state.path;
            move |error| ArchiveError::io(what, path, error)
        };
        let mut file = open_named(&state.path).map_err(failed("open"))?;
        let len = file.metadata().map_err(failed("read"))?.len();
        let rights = Rights::of(&file).map_err(failed("read"))?.and(Rights::GROUP);
        // A segment that is full may be the last one all the same.
        source.last = !builder.is_full(&limits) || source.end == len;
        source.cut_short = cut_short;
        if source.last && damage.is_none() {
            damage = state.broken.take();
        }
        source.damage = damage.clone().unwrap_or_default();
        let sum = ends_sum(&mut file, source.start, source.end).map_err(failed("read"))?;
        source.sum = sum.unwrap_or(0);
        let mut note = Note::new(source.clone(), state.reader.layout().clone());
        builder.describe(&mut note);
        note.tell(&state.reader.take_statistics());
        if !source.last {
            note.keep_counting(state.reader.counting());
        }
        let packets = state.path.clone();
        let index_path = self.archive.index_path(&packets, source.part);
        let next = (!source.last).then(|| {
            // The rest of the capture is read while this part of it is indexed.
            state.source.go_on(&note);
            Job { input: job.input, state: Some(state) }
        });
        running.end(next);
        let storage: &dyn Storage = match self.storage {
            Some(storage) => storage,
            None => self.root(),
        };
        let index_file = NewFile { storage, path: &index_path, rights };
        let index_bytes = builder
            .write(index_file, order, codec, &note, &shared.device)
            .map_err(ArchiveError::index(&index_path))?;
        if is_recording(&name) && !packets.exists() {
            // Retention has removed it in the meantime.
            return self.archive.remove_if_there(&index_path);
        }
        let complete = lock(&shared.parts)[job.input].written(source);
        if let Some(last) = complete {
            self.remove_parts_after(&packets, last.part)?;
            self.remove_other_names(shared, job.input, &packets, &last)?;
            // Those that stay do no harm.
            if is_recording(&name) {
                drop(self.archive.remove_drafts());
            }
        }
        let report = &mut lock(&shared.reports)[job.input];
        report.packets += note.records;
        report.wire_bytes += note.wire_bytes;
        report.index_bytes += index_bytes;
        report.segments += 1;
        if damage.is_some() {
            report.damage = damage;
        }
        Ok(())
    }

    /// Reads packets until the segment is full or the capture ends; what is wrong with it, if it
    /// ends for that.
    fn fill(
        &self,
        shared: &Shared<'_>,
        builder: &mut SegmentBuilder,
        state: &mut State,
    ) -> Result<Option<CaptureError>, ArchiveError> {
        let limits = self.limits();
        let mut before = state.reader.position();
        loop {
            let mut step = STEP_RECORDS.min(limits.records - builder.records());
            let mut ended = None;
            let records_before = builder.records();
            while step > 0 {
                match builder.take(&mut state.reader) {
                    Ok(true) => {}
                    Ok(false) => {
                        ended = Some(None);
                        break;
                    }
                    Err(error) => {
                        ended = Some(Some(error));
                        break;
                    }
                }
                step -= 1;
            }
            let position = state.reader.position();
            shared.bytes.fetch_add(position.saturating_sub(before), Ordering::Relaxed);
            before = position;
            let packets = builder.records() - records_before;
            shared.packets.fetch_add(packets as u64, Ordering::Relaxed);
            self.tell(shared);
            if self.is_stopped() {
                return Err(ArchiveError::Interrupted);
            }
            match ended {
                Some(None) => return Ok(None),
                Some(Some(error)) if error.is_io() => {
                    return Err(ArchiveError::capture(&state.path)(error));
                }
                Some(Some(error)) => return Ok(Some(error)),
                None if builder.is_full(&limits) => return Ok(None),
                None => {}
            }
        }
    }

    /// Opens a capture, or goes on where its last segment ends; `None` if there is nothing to do.
    fn open(&self, shared: &Shared<'_>, input: usize) -> Result<Option<State>, ArchiveError> {
        let path = match &shared.inputs[input] {
            Input::Stdin(name) => {
                lock(&shared.reports)[input].path = name.into();
                return self.open_stream(shared, Path::new("/dev/stdin"), name).map(Some);
            }
            Input::File(path) => path,
        };
        lock(&shared.reports)[input].path = path.clone();
        let failed = |what| move |error| ArchiveError::io(what, path, error);
        let origin = path.canonicalize().map_err(failed("open"))?;
        let metadata = origin.metadata().map_err(failed("read"))?;
        if metadata.is_dir() {
            return Err(failed("read")(io::ErrorKind::IsADirectory.into()));
        }
        if !metadata.is_file() {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            return self.open_stream(shared, path, &name).map(Some);
        }
        // Given twice, it would be in two threads' way.
        if !lock(&shared.taken).insert(origin.clone()) {
            lock(&shared.reports)[input].skipped = true;
            return Ok(None);
        }
        let modified_ns = modified_ns(&metadata);
        let known = shared.known.get(&origin).map_or(&[][..], Vec::as_slice);
        let is_current =
            |source: &Source| (source.len, source.modified_ns) == (metadata.len(), modified_ns);
        let is_whole = chained(known.iter().map(|(_, note)| note)) == known.len();
        if let Some((_, note)) = known.last()
            && is_whole
            && known.iter().all(|(_, note)| is_current(&note.source))
            && self.has_same_packets(known)
            && !self.force
        {
            let mut source = note.source.clone();
            shared.bytes.fetch_add(source.end, Ordering::Relaxed);
            if source.last {
                lock(&shared.reports)[input].skipped = true;
                return Ok(None);
            }
            let path = self.archive.segments_folder().join(source.path());
            let path = path.canonicalize().map_err(|e| ArchiveError::io("open", &path, e))?;
            let file = open_named(&path).map_err(|e| ArchiveError::io("open", &path, e))?;
            let mut reader = CaptureReader::resume(file, note.layout.clone(), source.end)
                .map_err(ArchiveError::capture(&path))?;
            reader.count_on(note.counting());
            source.go_on(note);
            return Ok(Some(State { reader, source, path, broken: None }));
        }
        let mut file = open_named(&origin).map_err(failed("open"))?;
        let rights = Rights::of(&file).map_err(failed("read"))?.and(Rights::GROUP);
        let mut plain = decompress(&mut file).map_err(ArchiveError::capture(&origin))?;
        if plain.compression() == Compression::None {
            return self.start(&origin, None).map(Some);
        }
        let copy = self.copy_path(&copy_name(&origin));
        let packed = AtomicU64::new(metadata.len());
        let source = (origin.as_path(), Some(&packed));
        let broken = self.copy(shared, &mut plain, source, &copy, rights)?;
        let mut state = self.start(&copy, Some((&origin, metadata.len(), modified_ns)))?;
        state.broken = broken;
        Ok(Some(state))
    }

    /// Whether the packets of segments are those that were indexed.
    fn has_same_packets(&self, known: &[(PathBuf, Note)]) -> bool {
        let folder = self.archive.segments_folder();
        known.iter().all(|(_, note)| {
            let source = &note.source;
            let file = open_named(&folder.join(source.path()));
            let sum = file.and_then(|mut file| ends_sum(&mut file, source.start, source.end));
            sum.is_ok_and(|sum| sum == Some(source.sum))
        })
    }

    /// Copies a stream into the archive, under a name that nothing there has.
    fn open_stream(
        &self,
        shared: &Shared<'_>,
        stream: &Path,
        name: &str,
    ) -> Result<State, ArchiveError> {
        let names = std::iter::once(name.to_owned()).chain((2..).map(|n| format!("{name}-{n}")));
        let mut paths = names.map(|name| self.copy_path(&segment_name(Path::new(&name))));
        let copy = paths.find(|path| !self.root().exists(path)).unwrap_or_default();
        let file = File::open(stream).map_err(|e| ArchiveError::io("open", stream, e))?;
        let metadata = file.metadata().map_err(|e| ArchiveError::io("read", stream, e))?;
        // A pipe has no rights that say anything; a file on standard input has.
        let rights = match metadata.is_file() {
            true => Rights::of(&file).map_err(|e| ArchiveError::io("read", stream, e))?,
            false => Rights::GROUP,
        };
        let rights = rights.and(Rights::GROUP);
        let read = AtomicU64::new(0);
        let counted = Counted { source: file, read: &read };
        let mut plain = decompress(counted).map_err(ArchiveError::capture(stream))?;
        let packed = (plain.compression() != Compression::None).then_some(&read);
        let broken = self.copy(shared, &mut plain, (stream, packed), &copy, rights)?;
        let state = self.start(&copy, None);
        if matches!(&state, Err(ArchiveError::Capture { source, .. }) if !source.is_io()) {
            // No capture: not worth keeping.
            drop(self.root().remove(&copy));
        }
        let mut state = state?;
        state.broken = broken;
        Ok(state)
    }

    /// Starts with the first packet of a file.
    fn start(&self, path: &Path, origin: Option<(&Path, u64, u64)>) -> Result<State, ArchiveError> {
        let failed = |what| move |error| ArchiveError::io(what, path, error);
        let path = path.canonicalize().map_err(failed("open"))?;
        let file = open_named(&path).map_err(failed("open"))?;
        let metadata = file.metadata().map_err(failed("read"))?;
        let mut reader = CaptureReader::open(file).map_err(ArchiveError::capture(&path))?;
        reader.gather_statistics();
        let folder = self.archive.segments_folder();
        let folder = folder.canonicalize().map_err(|e| ArchiveError::io("open", &folder, e))?;
        let near = |path: &Path| relative(&folder, path);
        let mut source =
            Source::new(&near(&path), &path, origin.map(|(origin, ..)| near(origin)).as_deref());
        (source.len, source.modified_ns) =
            origin.map_or((metadata.len(), modified_ns(&metadata)), |(_, len, time)| (len, time));
        source.start = reader.position();
        Ok(State { reader, source, path, broken: None })
    }

    /// Where our copy of a capture goes.
    fn copy_path(&self, name: &str) -> PathBuf {
        self.archive.packets_folder().join(format!("{name}.pcap"))
    }

    /// Copies a stream to a file, which is there when it is complete. Where a stream breaks off,
    /// what came before is kept. One that is packed is named with the bytes that it has packed, as
    /// far as they are known.
    fn copy(
        &self,
        shared: &Shared<'_>,
        source: &mut dyn Read,
        (name, packed): (&Path, Option<&AtomicU64>),
        target: &Path,
        rights: Rights,
    ) -> Result<Option<String>, ArchiveError> {
        let folder = self.archive.packets_folder();
        let root = self.root();
        root.make_folder(&folder).map_err(|e| ArchiveError::io("create", &folder, e))?;
        let temporary = temporary_path(target);
        let failed = |what| move |error| ArchiveError::io(what, target, error);
        let mut file = root.create(&temporary, rights).map_err(failed("create"))?;
        let mut buffer = vec![0; 1 << 20];
        let mut copied = 0_u64;
        let free = packed.and_then(|_| free_bytes(&folder));
        let result = loop {
            if self.is_stopped() {
                break Err(ArchiveError::Interrupted);
            }
            match source.read(&mut buffer) {
                Ok(0) => break Ok(None),
                // Before the disk is full of it.
                Ok(len) if copied == 0 && !is_capture(&buffer[..len]) => {
                    let bytes = &buffer[..len.min(FIRST_BYTES)];
                    let opened = CaptureReader::open(bytes).err();
                    let error = opened.map(ArchiveError::capture(name));
                    break Err(error.unwrap_or_else(|| {
                        ArchiveError::io("read", name, io::ErrorKind::InvalidData.into())
                    }));
                }
                Ok(len) => {
                    if let Some(packed) = packed
                        && let Some(limit) = self.unpack_limit(packed, free, copied + len as u64)
                    {
                        break Err(ArchiveError::Unpacked { path: name.to_owned(), limit });
                    }
                    if let Err(error) = file.append(&buffer[..len]) {
                        break Err(failed("write")(error));
                    }
                    copied += len as u64;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // The packets until here are good.
                Err(error) if copied > 0 && is_broken_stream(&error) => {
                    break Ok(Some(error.to_string()));
                }
                Err(error) => break Err(ArchiveError::io("read", name, error)),
            }
            self.tell(shared);
        };
        let result = result.and_then(|broken| {
            file.sync().map_err(failed("write"))?;
            root.rename(&temporary, target).map_err(failed("rename"))?;
            root.sync_folder(&folder).map_err(failed("write"))?;
            Ok(broken)
        });
        if result.is_err() {
            // Overwritten the next time if it cannot be removed.
            drop(root.remove(&temporary));
        }
        result
    }

    /// The limit that so many unpacked bytes are beyond, if they are.
    fn unpack_limit(&self, packed: &AtomicU64, free: Option<u64>, bytes: u64) -> Option<String> {
        let packed = packed.load(Ordering::Relaxed);
        let (most, why) = match self.unpack_max {
            Some(most) => (most, "what --unpack-max allows"),
            None => (
                packed.saturating_mul(UNPACKED_RATIO).max(UNPACKED_BYTES),
                "a hundred times what it has packed; if it is to be unpacked all the same, say \
                 how far with --unpack-max",
            ),
        };
        if bytes > most {
            return Some(format!("more than {most} bytes, {why}"));
        }
        // Others need room, too, and so does its index.
        let most = free.map(|free| free / 10 * 9).filter(|&most| bytes > most)?;
        Some(format!("more than {most} bytes, nine tenths of what was free on the archive's disk"))
    }

    /// Removes what is left of a longer capture of the same name.
    fn remove_parts_after(&self, packets: &Path, part: u32) -> Result<(), ArchiveError> {
        for part in part + 1.. {
            let path = self.archive.index_path(packets, part);
            match self.root().remove(&path) {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::NotFound => break,
                Err(error) => return Err(ArchiveError::io("remove", &path, error)),
            }
        }
        Ok(())
    }

    /// Removes what is left of the same capture from when it had another path, and so other names:
    /// it was moved together with the archive and has changed, or was itself given another name.
    fn remove_other_names(
        &self,
        shared: &Shared<'_>,
        input: usize,
        packets: &Path,
        source: &Source,
    ) -> Result<(), ArchiveError> {
        let Input::File(path) = &shared.inputs[input] else { return Ok(()) };
        let origin = path.canonicalize().unwrap_or(path.clone());
        let version = |source: &Source| (source.len, source.modified_ns);
        let name = self.archive.index_stem(packets);
        for (known_origin, segments) in &shared.known {
            let is_this = *known_origin == origin;
            let is_renamed = !known_origin.exists()
                && segments.iter().any(|(_, note)| {
                    let known = &note.source;
                    (version(known), known.part, known.sum)
                        == (version(source), source.part, source.sum)
                });
            if !is_this && !is_renamed {
                continue;
            }
            for (path, note) in segments {
                // Where it went on from these, they are its first parts.
                let is_old = version(&note.source) != version(source) || self.force || is_renamed;
                if capture_name(path) != name && is_old {
                    self.archive.remove_if_there(path)?;
                    if let Some(copy) = self.archive.own_copy(&note.source)
                        && copy.canonicalize().is_ok_and(|copy| copy != packets)
                    {
                        self.archive.remove_if_there(&copy)?;
                    }
                }
            }
        }
        Ok(())
    }

    fn tell(&self, shared: &Shared<'_>) {
        if let Some(progress) = self.progress {
            progress(Progress {
                bytes: shared.bytes.load(Ordering::Relaxed),
                bytes_total: shared.bytes_total.load(Ordering::Relaxed),
                packets: shared.packets.load(Ordering::Relaxed),
            });
        }
    }
}

impl Archive {
    /// Removes a file of the archive's own; one that is gone is fine.
    pub(super) fn remove_if_there(&self, path: &Path) -> Result<(), ArchiveError> {
        let removed = self.root.remove_if_there(path);
        removed.map_err(|error| ArchiveError::io("remove", path, error))
    }

    /// The copy that a segment was made of, if it is one of ours: a name in our folder of packets.
    /// Whatever else a note says, it may be read and is not ours to remove.
    fn own_copy(&self, source: &Source) -> Option<PathBuf> {
        let path = source.path();
        let name = path.strip_prefix(Path::new("..").join(super::PACKETS_NAME)).ok()?;
        let is_name = name.file_name().is_some_and(|found| found == name.as_os_str());
        let is_ours = is_name && !name.to_str().is_none_or(is_recording);
        (source.is_copy() && is_ours).then(|| self.packets_folder().join(name))
    }
}

/// Bytes that are free where a folder is, if the system says so.
fn free_bytes(folder: &Path) -> Option<u64> {
    let stat = rustix::fs::statvfs(folder).ok()?;
    Some(stat.f_bavail.saturating_mul(stat.f_frsize))
}

/// Counts what is read.
struct Counted<'a, R> {
    source: R,
    read: &'a AtomicU64,
}

impl<R: Read> Read for Counted<'_, R> {
    fn read(&mut self, target: &mut [u8]) -> io::Result<usize> {
        let len = self.source.read(target)?;
        self.read.fetch_add(len as u64, Ordering::Relaxed);
        Ok(len)
    }
}

/// Whether a compressed stream is damaged, and not what it is read from.
fn is_broken_stream(error: &io::Error) -> bool {
    error.get_ref().is_some_and(|inner| inner.is::<DecompressError>())
}
