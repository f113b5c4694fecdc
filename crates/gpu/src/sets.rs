//! Sets of ids, or bitmaps, encoded on a device: HiPES and GPU-WAH.
//!
//! [`SetBuilder`] takes ids in any order, repeats allowed, and gives the bytes that
//! [`Codec::Hipes`](tapdex_bitmap::Codec::Hipes) and [`Codec::Wah`](tapdex_bitmap::Codec::Wah) give
//! for the same set.
//!
//! HiPES is built in one of two ways. *Directly*: every id sets its bit in a bitmap of all rows,
//! and the chunks that have an id are copied out next to each other. *As published*: the chunks
//! that have an id are found and numbered, the ids binned by chunk, and each chunk built in shared
//! memory, or in global memory if it does not fit.
//!
//! GPU-WAH sets the bits of the ids in the same bitmap, cuts it into groups of 31 rows, finds the
//! groups that end a run, and computes the places of their words by sums.
//!
//! The input is copied in slices, and a slice is worked on while the next is copied. Ids that seem
//! to ascend are written while more of them come in; if they turn out not to ascend, the set is
//! built again from the ids on the device. [`SetBuilder::build_many`] keeps several sets in flight,
//! so that both directions of the bus are busy.
//!
//! ```no_run
//! # use std::sync::Arc;
//! # use tapdex_bitmap::codec::hipes::Width;
//! # use tapdex_gpu::{device::Device, sets::{Path, SetBuilder, SetError}};
//! # fn example(device: Arc<dyn Device>) -> Result<(), SetError> {
//! let mut builder = SetBuilder::new(device);
//! let encoded = builder.hipes(&[5, 3, 5, 70_000], Width::DEFAULT, Path::Auto)?;
//! assert_eq!(encoded.len(), 2 * 8_196);
//! # Ok(())
//! # }
//! ```

mod pinned;
pub(crate) mod rooms;
pub mod scenarios;

use std::ops::Range;
use std::sync::Arc;

use tapdex_bitmap::codec::hipes::Width;

use crate::device::{Device, DeviceError, Event, Stream, record};
use crate::memory::Pinned;
use pinned::Pool;
pub use pinned::{Encoded, PinnedWords};
use rooms::{Groups, PARTS_MAX, Rooms, Shape, Slot};

/// Sets in flight: one comes in, one is worked on, one goes out.
const SLOTS: usize = 3;
/// Ids of a slice, by default.
const SLICE_IDS: usize = 1 << 20;
/// The most ids that are passed to a kernel at once.
const SLICE_IDS_MAX: usize = 1 << 26;
/// Output of at most this many bytes is written while input comes in.
const EARLY_BYTES_MAX: usize = 256 << 20;
/// Places at which ids are looked at to tell whether they ascend.
const SAMPLES: usize = 64;
/// Rows of a WAH group.
const GROUP_ROWS: u64 = 31;
/// Words of the longest bitmap.
const BITMAP_WORDS_MAX: usize = 1 << 27;

/// How HiPES chunks are built.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Path {
    /// Directly if the bitmap of all rows is small enough, see [`SetBuilder::set_direct_max`], else
    /// as published.
    Auto,
    /// Through a bitmap of all rows.
    Direct,
    /// By binning the ids.
    Published,
}

/// How WAH words are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// As [`Codec::Wah`](tapdex_bitmap::Codec::Wah) does: the first row of a group is bit 30, and
    /// no empty fill ends the words.
    Canonical,
    /// As the GPU papers do: the first row of a group is bit 0, and all groups are written.
    Published,
}

/// What a set becomes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// The input is ids; the output is HiPES chunks.
    Hipes(Width, Path),
    /// The input is ids; the output is WAH words.
    Wah(Form),
    /// The input is a bitmap, bit `i % 32` of word `i / 32` a row; the output is WAH words.
    WahOfBitmap(Form),
}

/// Ids, or the words of a bitmap. Input that is not pinned is copied once more on the host.
#[derive(Debug, Clone, Copy)]
pub enum IdSource<'a> {
    /// Anywhere.
    Plain(&'a [u32]),
    /// In memory that the device copies from by itself.
    Pinned(&'a PinnedWords),
}

impl<'a> From<&'a [u32]> for IdSource<'a> {
    fn from(words: &'a [u32]) -> Self {
        IdSource::Plain(words)
    }
}

impl<'a> From<&'a Vec<u32>> for IdSource<'a> {
    fn from(words: &'a Vec<u32>) -> Self {
        IdSource::Plain(words)
    }
}

impl<'a, const N: usize> From<&'a [u32; N]> for IdSource<'a> {
    fn from(words: &'a [u32; N]) -> Self {
        IdSource::Plain(words)
    }
}

impl<'a> From<&'a PinnedWords> for IdSource<'a> {
    fn from(words: &'a PinnedWords) -> Self {
        IdSource::Pinned(words)
    }
}

impl IdSource<'_> {
    fn len(&self) -> usize {
        match self {
            IdSource::Plain(words) => words.len(),
            IdSource::Pinned(words) => words.len(),
        }
    }

    fn get(&self, at: usize) -> Option<u32> {
        match self {
            IdSource::Plain(words) => words.get(at).copied(),
            IdSource::Pinned(words) => words.get(at),
        }
    }

    fn last(&self) -> u32 {
        self.len().checked_sub(1).and_then(|at| self.get(at)).unwrap_or(0)
    }

    /// Whether the ids ascend, judging by a few of them.
    fn seems_ascending(&self) -> bool {
        let last = self.len().saturating_sub(1);
        let sampled = (0..=SAMPLES).filter_map(|i| self.get(last * i / SAMPLES));
        sampled.is_sorted()
    }
}

/// Why a set was not encoded.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum SetError {
    /// The device failed. If it is out of memory, [`SetBuilder::set_rows`] with fewer rows helps.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// An id is not one of the rows.
    #[error("an id is not below the {rows} rows")]
    PastEnd {
        /// How many rows there are.
        rows: u32,
    },
    /// There is more input than there can be different ids.
    #[error("{len} words are too many, {max} are allowed")]
    TooLong {
        /// Words of the input.
        len: usize,
        /// Words that are allowed.
        max: usize,
    },
    /// The device encoded a scenario differently from the CPU. This is a bug in this crate.
    #[error("scenario {scenario} as {target:?} is not what the CPU makes of it")]
    Differs {
        /// The name of the scenario.
        scenario: &'static str,
        /// The target it was encoded for.
        target: Target,
    },
}

/// Milliseconds that the phases of a set took, one after the other.
#[derive(Debug, Clone, Default)]
pub struct Timings {
    /// To copy the input.
    pub copy_in: f32,
    /// In the kernels, in order.
    pub kernels: Vec<(&'static str, f32)>,
    /// To copy the output.
    pub copy_out: f32,
}

impl Timings {
    /// Milliseconds in all kernels together.
    pub fn device(&self) -> f32 {
        self.kernels.iter().map(|phase| phase.1).sum()
    }
}

/// A part of a set's output.
#[derive(Debug)]
struct Part {
    /// Its size is known.
    counted: Event,
    /// It is in the output memory.
    written: Event,
}

/// A set that the device works on.
#[derive(Debug)]
struct Job {
    slot: usize,
    target: Target,
    rows: u32,
    len: u32,
    parts: Vec<Part>,
    /// The output, once its size is known, and the event of its arrival.
    output: Option<(Pinned, usize, Event)>,
}

/// Encodes sets on a device. It keeps the memory it used, for the next set.
#[derive(Debug)]
pub struct SetBuilder {
    rooms: Rooms,
    slots: [Slot; SLOTS],
    pool: Arc<Pool>,
    rows: u32,
    slice_ids: usize,
    direct_max: u64,
}

impl SetBuilder {
    /// A builder for a device.
    pub fn new(device: Arc<dyn Device>) -> Self {
        let direct_max = device.facts().cache as u64;
        Self {
            rooms: Rooms::new(device),
            slots: Default::default(),
            pool: Arc::default(),
            rows: u32::MAX,
            slice_ids: SLICE_IDS,
            direct_max,
        }
    }

    /// Sets the number of rows; all ids are below it. Memory is taken for all of them; the default
    /// is the largest possible number.
    pub fn set_rows(&mut self, rows: u32) {
        self.rows = rows;
    }

    /// Sets how many ids are copied and processed at once.
    pub fn set_slice(&mut self, ids: usize) {
        self.slice_ids = ids;
    }

    /// Sets how many bytes the bitmap of all rows may have for [`Path::Auto`] to take the direct
    /// way. The default is the size of the device's second-level cache.
    pub fn set_direct_max(&mut self, bytes: u64) {
        self.direct_max = bytes;
    }

    /// Memory for this many ids, or words of a bitmap, that the device copies from by itself.
    pub fn input(&self, len: usize) -> Result<PinnedWords, SetError> {
        Ok(PinnedWords::new(&self.rooms.device, len)?)
    }

    /// Encodes ids as HiPES.
    pub fn hipes<'a>(
        &mut self,
        ids: impl Into<IdSource<'a>>,
        width: Width,
        path: Path,
    ) -> Result<Encoded, SetError> {
        self.build(ids, Target::Hipes(width, path))
    }

    /// Encodes ids as WAH.
    pub fn wah_from_ids<'a>(
        &mut self,
        ids: impl Into<IdSource<'a>>,
        form: Form,
    ) -> Result<Encoded, SetError> {
        self.build(ids, Target::Wah(form))
    }

    /// Encodes a bitmap as WAH.
    pub fn wah_from_bitmap<'a>(
        &mut self,
        words: impl Into<IdSource<'a>>,
        form: Form,
    ) -> Result<Encoded, SetError> {
        self.build(words, Target::WahOfBitmap(form))
    }

    /// Encodes a set.
    pub fn build<'a>(
        &mut self,
        source: impl Into<IdSource<'a>>,
        target: Target,
    ) -> Result<Encoded, SetError> {
        let source = source.into();
        let result = self.enqueue(0, source, target, true).and_then(|mut job| {
            self.send(&mut job)?;
            self.finish(job)
        });
        self.settled(result)
    }

    /// Encodes sets, several of them in flight, and delivers each with its number, in order.
    pub fn build_many(
        &mut self,
        sources: &[IdSource<'_>],
        target: Target,
        mut each: impl FnMut(usize, Encoded),
    ) -> Result<(), SetError> {
        let result = self.pipeline(sources, target, &mut each);
        self.settled(result)
    }

    fn pipeline(
        &mut self,
        sources: &[IdSource<'_>],
        target: Target,
        each: &mut dyn FnMut(usize, Encoded),
    ) -> Result<(), SetError> {
        let (mut computing, mut leaving): (Option<Job>, Option<Job>) = (None, None);
        let mut finished = 0;
        // Two turns more than there are sets empty the pipeline.
        for turn in 0..sources.len() + SLOTS - 1 {
            let coming = match sources.get(turn) {
                Some(&source) => Some(self.enqueue(turn % SLOTS, source, target, false)?),
                None => None,
            };
            if let Some(job) = &mut computing {
                self.send(job)?;
            }
            if let Some(job) = leaving {
                each(finished, self.finish(job)?);
                finished += 1;
            }
            leaving = computing;
            computing = coming;
        }
        Ok(())
    }

    /// Encodes a set in phases that do not overlap, and returns how long each took.
    pub fn build_timed<'a>(
        &mut self,
        source: impl Into<IdSource<'a>>,
        target: Target,
    ) -> Result<(Encoded, Timings), SetError> {
        let source = source.into();
        let result = self.timed(source, target);
        self.rooms.phases = None;
        self.settled(result)
    }

    /// After a failure, the content of the bitmap is unknown.
    fn settled<T>(&mut self, result: Result<T, SetError>) -> Result<T, SetError> {
        if result.is_err() {
            self.rooms.clean = false;
        }
        result
    }

    fn timed(&mut self, source: IdSource, target: Target) -> Result<(Encoded, Timings), SetError> {
        let device = Arc::clone(&self.rooms.device);
        let mut timings = Timings::default();
        let mut job = self.open(0, source, target, 1)?;
        if source.len() == 0 {
            return Ok((self.finish(job)?, timings));
        }
        let start = record(&device, Stream::In)?;
        for slice in slices(source.len(), self.slice_ids) {
            self.copy_slice(0, source, slice)?;
        }
        let end = record(&device, Stream::In)?;
        end.wait()?;
        timings.copy_in = end.since(&start)?;

        self.rooms.phases = Some(Vec::new());
        self.rooms.phase("start")?;
        for slice in slices(source.len(), SLICE_IDS_MAX) {
            self.take_slice(&job, &slice, 0)?;
        }
        self.rooms.phase("mark")?;
        let part = self.close(&job, 0)?;
        part.written.wait()?;
        job.parts.push(part);
        let phases = self.rooms.phases.take().unwrap_or_default();
        for pair in phases.windows(2) {
            timings.kernels.push((pair[1].0, pair[1].1.since(&pair[0].1)?));
        }

        let start = record(&device, Stream::Out)?;
        self.send(&mut job)?;
        if let Some((_, _, end)) = &job.output {
            end.wait()?;
            timings.copy_out = end.since(&start)?;
        }
        Ok((self.finish(job)?, timings))
    }

    /// Starts copying a set to the device and processing it. Does not wait.
    fn enqueue(
        &mut self,
        slot: usize,
        source: IdSource,
        target: Target,
        early: bool,
    ) -> Result<Job, SetError> {
        let slices = slices(source.len(), self.slice_ids);
        let mut job = self.open(slot, source, target, slices.len())?;
        let ends = if early { early_ends(source, &job, &slices) } else { vec![] };
        let mut chunk_first = 0;
        for (at, slice) in slices.iter().enumerate() {
            self.copy_slice(slot, source, slice.clone())?;
            let copied = record(&self.rooms.device, Stream::In)?;
            self.rooms.device.wait_in(Stream::Compute, copied.handle)?;
            self.take_slice(&job, slice, chunk_first)?;
            if let Some(&chunk_end) = ends.get(at) {
                let part = self.write_part(&job, at, chunk_end)?;
                job.parts.push(part);
                chunk_first = chunk_end;
            }
        }
        if !slices.is_empty() {
            let part = self.close(&job, job.parts.len())?;
            job.parts.push(part);
        }
        // Early output needs its room already: parts of it are sent before its size is known.
        if !ends.is_empty() {
            let bytes = job.bytes_below(source.last());
            let buffer = self.pool.take(&self.rooms.device, bytes)?;
            job.output = Some((buffer, 0, record(&self.rooms.device, Stream::Out)?));
        }
        Ok(job)
    }

    /// Makes room for a set, and a job that has not started.
    fn open(
        &mut self,
        slot: usize,
        source: IdSource,
        target: Target,
        parts: usize,
    ) -> Result<Job, SetError> {
        let max = match target {
            Target::WahOfBitmap(_) => BITMAP_WORDS_MAX,
            _ => u32::MAX as usize,
        };
        let long = SetError::TooLong { len: source.len(), max };
        let len = u32::try_from(source.len()).map_err(|_| long.clone())?;
        if source.len() > max {
            return Err(long);
        }
        let target = self.resolved(target, len);
        let job = Job { slot, target, rows: self.rows, len, parts: vec![], output: None };
        if len == 0 {
            return Ok(job);
        }
        match target {
            Target::Hipes(_, Path::Published) => self.rooms.reserve_bits(0, job.shape().chunks()),
            Target::Hipes(..) => {
                let shape = job.shape();
                self.rooms.reserve_bits(shape.bitmap_bytes(), shape.chunks())
            }
            Target::Wah(_) => self.rooms.reserve_bits(4 * u64::from(job.rows.div_ceil(32)), 0),
            Target::WahOfBitmap(_) => Ok(()),
        }?;
        let slot = &mut self.slots[slot];
        slot.input.reserve(&self.rooms.device, 4 * u64::from(len))?;
        slot.output.reserve(&self.rooms.device, job.units_max() * job.unit_bytes())?;
        self.rooms.reset(slot, parts)?;
        Ok(job)
    }

    /// The target with the path that is taken.
    fn resolved(&self, target: Target, len: u32) -> Target {
        let Target::Hipes(width, Path::Auto) = target else { return target };
        let shape = Shape { rows: self.rows, width: width.get().into(), len };
        let direct = shape.bitmap_bytes() <= self.direct_max;
        Target::Hipes(width, if direct { Path::Direct } else { Path::Published })
    }

    /// Copies a slice of the input to the device.
    fn copy_slice(
        &mut self,
        slot: usize,
        source: IdSource,
        slice: Range<usize>,
    ) -> Result<(), SetError> {
        let slot = &mut self.slots[slot];
        let to = slot.input.address() + 4 * slice.start as u64;
        let pinned = match source {
            IdSource::Pinned(words) => words,
            IdSource::Plain(words) => {
                if slot.staging.as_ref().is_none_or(|staging| staging.len() < words.len()) {
                    slot.staging = Some(PinnedWords::new(&self.rooms.device, words.len())?);
                }
                let Some(staging) = &mut slot.staging else { return Ok(()) };
                staging.put(slice.start, words.get(slice.clone()).unwrap_or_default());
                &*staging
            }
        };
        let bytes = pinned.bytes().get(4 * slice.start..4 * slice.end).unwrap_or_default();
        Ok(self.rooms.device.copy_in(Stream::In, bytes, to)?)
    }

    /// Launches the kernels for a slice that has arrived. Chunks before `chunk_first` are written
    /// already.
    fn take_slice(
        &mut self,
        job: &Job,
        slice: &Range<usize>,
        chunk_first: u32,
    ) -> Result<(), SetError> {
        let slot = &self.slots[job.slot];
        // A slice is at most 2^26 long.
        let slice = (slice.start, u32::try_from(slice.len()).unwrap_or(u32::MAX));
        let shape = job.shape();
        match job.target {
            Target::Hipes(_, Path::Published) => self.rooms.flag(slot, shape, slice)?,
            Target::Hipes(..) => self.rooms.mark(slot, shape, slice, chunk_first, true)?,
            Target::Wah(_) => self.rooms.mark(slot, shape, slice, 0, false)?,
            Target::WahOfBitmap(_) => {}
        }
        Ok(())
    }

    /// Starts writing the chunks before an end, all of whose ids have arrived.
    fn write_part(&mut self, job: &Job, part: usize, chunk_end: u32) -> Result<Part, SetError> {
        let (slot, shape) = (&self.slots[job.slot], job.shape());
        let number = u32::try_from(part).unwrap_or(u32::MAX);
        self.rooms.list(slot, shape, number, chunk_end, false)?;
        self.rooms.phase("list chunks")?;
        // The size goes first, so that the host has it while the part is written.
        self.rooms.report(slot, part)?;
        let counted = record(&self.rooms.device, Stream::Compute)?;
        self.rooms.gather(slot, shape, number)?;
        self.rooms.phase("gather")?;
        let written = record(&self.rooms.device, Stream::Compute)?;
        Ok(Part { counted, written })
    }

    /// Starts writing the rest.
    fn close(&mut self, job: &Job, part: usize) -> Result<Part, SetError> {
        let (slot, shape) = (&self.slots[job.slot], job.shape());
        match job.target {
            Target::Hipes(_, Path::Published) => {
                self.rooms.list(slot, shape, 0, shape.chunks(), true)?;
                self.rooms.phase("list chunks")?;
                self.rooms.report(slot, 0)?;
                let counted = record(&self.rooms.device, Stream::Compute)?;
                self.rooms.bin_and_build(slot, shape)?;
                let written = record(&self.rooms.device, Stream::Compute)?;
                return Ok(Part { counted, written });
            }
            Target::Hipes(..) => return self.write_part(job, part, shape.chunks()),
            Target::Wah(form) => {
                let bitmap = self.rooms.marked_bitmap(job.rows);
                let published = form == Form::Published;
                let max = job.groups_max();
                self.rooms.wah(slot, Groups { bitmap, max, marked: true, published })?;
            }
            Target::WahOfBitmap(form) => {
                let bitmap = (slot.input.address(), job.len);
                let published = form == Form::Published;
                let max = job.groups_max();
                self.rooms.wah(slot, Groups { bitmap, max, marked: false, published })?;
            }
        }
        self.rooms.report(slot, 0)?;
        let counted = record(&self.rooms.device, Stream::Compute)?;
        if let Target::Wah(_) = job.target {
            self.rooms.clear_marked(slot, job.rows)?;
            self.rooms.phase("clear")?;
        }
        let written = record(&self.rooms.device, Stream::Compute)?;
        Ok(Part { counted, written })
    }

    /// Waits until the size of the output of a set is known, and starts copying it out.
    fn send(&mut self, job: &mut Job) -> Result<(), SetError> {
        let device = Arc::clone(&self.rooms.device);
        let mut sent = 0;
        let mut buffer = job.output.take().map(|output| output.0);
        let (mut past, mut late) = (false, false);
        for (at, part) in job.parts.iter().enumerate() {
            part.counted.wait()?;
            let slot = &self.slots[job.slot];
            let status = slot.status(at);
            let bytes = job.bytes_of(status.total);
            // More than the last id allows: it is not the highest.
            late |= status.late || buffer.as_ref().is_some_and(|buffer| buffer.len() < bytes);
            past |= status.past;
            if late || past {
                break;
            }
            let target = match buffer {
                Some(buffer) => buffer,
                None => self.pool.take(&device, bytes)?,
            };
            if bytes > sent {
                device.wait_in(Stream::Out, part.written.handle)?;
                let from = slot.output.address() + sent as u64;
                let to = target.address() + sent as u64;
                device.copy_out(Stream::Out, from, to, bytes - sent)?;
            }
            sent = bytes;
            buffer = Some(target);
        }
        if past {
            return Err(SetError::PastEnd { rows: job.rows });
        }
        if late {
            // Giving memory back waits for what was copied early.
            drop(buffer);
            return self.build_again(job);
        }
        let buffer = match buffer {
            Some(buffer) => buffer,
            None => self.pool.take(&device, 0)?,
        };
        job.output = Some((buffer, sent, record(&device, Stream::Out)?));
        Ok(())
    }

    /// Builds a set whose ids do not ascend from its ids on the device, in one part.
    fn build_again(&mut self, job: &mut Job) -> Result<(), SetError> {
        // The remaining bits belong to this set's ids, and are set again.
        self.rooms.reset(&mut self.slots[job.slot], 1)?;
        for slice in slices(job.len as usize, SLICE_IDS_MAX) {
            self.take_slice(job, &slice, 0)?;
        }
        let part = self.close(job, 0)?;
        job.parts = vec![part];
        self.send(job)
    }

    /// Waits for the output of a set.
    fn finish(&self, job: Job) -> Result<Encoded, SetError> {
        let (buffer, len) = match job.output {
            Some((buffer, len, done)) => {
                done.wait()?;
                (buffer, len)
            }
            None => (self.pool.take(&self.rooms.device, 0)?, 0),
        };
        Ok(Encoded::new(buffer, len, &self.pool))
    }
}

impl Job {
    fn shape(&self) -> Shape {
        let width = match self.target {
            Target::Hipes(width, _) => width,
            _ => Width::DEFAULT,
        };
        Shape { rows: self.rows, width: width.get().into(), len: self.len }
    }

    /// The most groups possible.
    fn groups_max(&self) -> u64 {
        let rows = match self.target {
            Target::WahOfBitmap(_) => 32 * u64::from(self.len),
            _ => u64::from(self.rows),
        };
        rows.div_ceil(GROUP_ROWS)
    }

    /// Chunks or words that the output can have.
    fn units_max(&self) -> u64 {
        match self.target {
            Target::Hipes(..) => self.shape().chunks_max().into(),
            // An id makes a literal and the fill before it; one more fill may end the words.
            Target::Wah(_) => self.groups_max().min(2 * u64::from(self.len) + 1),
            Target::WahOfBitmap(_) => self.groups_max(),
        }
    }

    /// Bytes of a chunk or a word.
    fn unit_bytes(&self) -> u64 {
        match self.target {
            Target::Hipes(width, _) => width.chunk_bytes() as u64,
            _ => 4,
        }
    }

    /// Bytes of the output if no id is above `last`.
    fn bytes_below(&self, last: u32) -> usize {
        let rows = self.rows.min(last.saturating_add(1));
        self.bytes_of(Shape { rows, ..self.shape() }.chunks_max())
    }

    /// Bytes of this many of them, which are in memory.
    fn bytes_of(&self, units: u32) -> usize {
        usize::try_from(u64::from(units) * self.unit_bytes()).unwrap_or(usize::MAX)
    }
}

/// For each slice but the last, where the chunks that are complete after it end, if the ids ascend.
/// Empty if they do not seem to ascend, or if there is nothing to gain.
fn early_ends(source: IdSource, job: &Job, slices: &[Range<usize>]) -> Vec<u32> {
    let Target::Hipes(width, Path::Direct) = job.target else { return vec![] };
    let Some((_, slices)) = slices.split_last() else { return vec![] };
    if job.bytes_below(source.last()) > EARLY_BYTES_MAX || !source.seems_ascending() {
        return vec![];
    }
    let lasts = slices.iter().filter_map(|slice| source.get(slice.end - 1));
    let ends: Vec<u32> = lasts.map(|id| id >> width.get()).collect();
    if ends.is_sorted() { ends } else { vec![] }
}

/// Cuts input into slices of `wanted` words, or longer ones if these would be too many. All but the
/// last end at a multiple of four, as the kernels load four at once.
fn slices(len: usize, wanted: usize) -> Vec<Range<usize>> {
    let step = wanted.clamp(4, SLICE_IDS_MAX).max(len.div_ceil(PARTS_MAX)).next_multiple_of(4);
    (0..len).step_by(step).map(|start| start..len.min(start + step)).collect()
}
