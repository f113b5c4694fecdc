//! From a column of digits to keys, offsets and bitmaps.

use std::io;
use std::ops::Range;
use std::sync::Arc;

use rayon::prelude::*;
use tapdex_bitmap::chunk::{CHUNK_ROWS, Ids16};
use tapdex_bitmap::{Codec, prefetch};

use super::schema::Width;
use super::sort::{self, BLOCK_ROWS, Cut, Digit, Sorted, Starts, rows32};

/// A column: the digit of every row, in row order.
#[derive(Debug, Clone, Copy)]
pub enum Digits<'a> {
    /// 8 bits a row.
    Bytes(&'a [u8]),
    /// 16 bits a row.
    Shorts(&'a [u16]),
}

impl Digits<'_> {
    /// How many rows there are.
    pub fn rows(&self) -> usize {
        match self {
            Digits::Bytes(digits) => digits.len(),
            Digits::Shorts(digits) => digits.len(),
        }
    }

    /// Bits of a digit.
    pub fn width(&self) -> Width {
        match self {
            Digits::Bytes(_) => Width::Byte,
            Digits::Shorts(_) => Width::Short,
        }
    }
}

/// The index of a column: the values that occur, and in which rows each does.
///
/// Key `keys[i]` has the bitmap `offsets[i]..offsets[i + 1]` of the bytes, which lie in `parts`,
/// one after the other; a bitmap is never cut between two parts. Two are equal if all but the cuts
/// are.
#[derive(Debug, Clone)]
pub struct ColumnIndex {
    /// The codec of the bitmaps.
    pub codec: Codec,
    /// How many rows the column has.
    pub rows: u32,
    /// The values that occur, ascending.
    pub keys: Vec<u16>,
    /// Where each key's bitmap starts, and last where they all end: one more than there are keys.
    pub offsets: Vec<u64>,
    /// The bitmaps, in order.
    pub parts: Vec<Part>,
}

/// Some of the bitmaps of a column, in memory of our own or in that of a device's driver.
#[derive(Clone)]
pub enum Part {
    /// Bytes that the builder wrote.
    Owned(Vec<u8>),
    /// Bytes that belong to others and do not change.
    Shared(Arc<dyn AsRef<[u8]> + Send + Sync>),
}

impl std::ops::Deref for Part {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Part::Owned(bytes) => bytes,
            Part::Shared(bytes) => (**bytes).as_ref(),
        }
    }
}

impl std::fmt::Debug for Part {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Part({:?})", &**self)
    }
}

/// The index of a column of no rows.
impl Default for ColumnIndex {
    fn default() -> Self {
        Self { codec: Codec::Wah, rows: 0, keys: vec![], offsets: vec![0], parts: vec![] }
    }
}

impl PartialEq for ColumnIndex {
    fn eq(&self, other: &Self) -> bool {
        let bytes = |index: &Self| index.parts.iter().map(|part| part.len()).sum::<usize>();
        (self.codec, self.rows) == (other.codec, other.rows)
            && (&self.keys, &self.offsets) == (&other.keys, &other.offsets)
            && bytes(self) == bytes(other)
            && self.parts.iter().flat_map(|part| &**part).eq(other.parts.iter().flat_map(|p| &**p))
    }
}

impl Eq for ColumnIndex {}

impl ColumnIndex {
    /// A copy of all bitmaps, one after the other.
    pub fn bitmaps(&self) -> Vec<u8> {
        self.parts.iter().flat_map(|part| part.iter().copied()).collect()
    }

    /// Empties the index; returns its memory to be used again.
    pub(super) fn clear(&mut self) -> Vec<Vec<u8>> {
        self.keys.clear();
        self.offsets.clear();
        self.offsets.push(0);
        let spare = self.parts.drain(..).filter_map(|part| match part {
            Part::Owned(mut bytes) => {
                bytes.clear();
                Some(bytes)
            }
            Part::Shared(_) => None,
        });
        spare.collect()
    }

    /// Appends a part, given the values in it and where the bitmap of each ends.
    pub(super) fn append(&mut self, ends: &[(u32, usize)], part: Vec<u8>) {
        let start = self.offsets.last().copied().unwrap_or(0);
        self.keys.extend(ends.iter().filter_map(|&(value, _)| u16::try_from(value).ok()));
        self.offsets.extend(ends.iter().map(|&(_, end)| start + end as u64));
        self.parts.push(Part::Owned(part));
    }
}

/// Builds the index of a column; the seam between devices.
pub trait Builder {
    /// Builds the index of `column` into `target`, whose memory is used again.
    fn build(
        &mut self,
        column: Digits<'_>,
        codec: Codec,
        target: &mut ColumnIndex,
    ) -> Result<(), BuildError>;

    /// Builds the index of each column and passes it to `done`, in order.
    fn build_each<E: From<BuildError>>(
        &mut self,
        columns: &[(Digits<'_>, Codec)],
        mut done: impl FnMut(&ColumnIndex) -> Result<(), E>,
    ) -> Result<(), E>
    where
        Self: Sized,
    {
        let mut index = ColumnIndex::default();
        for &(column, codec) in columns {
            self.build(column, codec, &mut index)?;
            done(&index)?;
        }
        Ok(())
    }
}

/// Why a column could not be indexed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// Row numbers are 32 bits wide and the last one is not used. Index fewer rows at a time.
    #[error("a column of {rows} rows: an index holds at most {max}", max = u32::MAX)]
    TooManyRows {
        /// How many there are.
        rows: usize,
    },
    /// The runs do not partition the rows: the first has to start at row 0, each of the others
    /// above the one before, all of them below `rows`, and each has to have a digit.
    #[error("{digits} digits and {starts} starts of runs do not part {rows} rows")]
    BadRuns {
        /// How many digits there are.
        digits: usize,
        /// How many starts there are.
        starts: usize,
        /// How many rows there are.
        rows: u32,
    },
    /// The threads could not be started. Use one thread, for which none is started.
    #[error("cannot start threads")]
    Threads(#[source] io::Error),
}

/// Rows that are sorted at a time, unless a builder is set otherwise: they take up to 768 MiB.
pub const RECORDS_MAX: usize = 1 << 28;

/// All values that a digit can have.
const ALL_VALUES: Range<u32> = 0..1 << 16;

/// Shares of the encoding for each thread, so that a thread that is done early can take another.
const SHARES_PER_THREAD: usize = 8;

/// A column of fewer rows than this for each thread is built by one thread.
const SHORT_ROWS: usize = 1 << 20;

/// How many blocks before their turn the rows of a bucket are fetched into the cache.
const FETCHED_AHEAD: usize = 2;
/// The most cache lines that are fetched of a block; the processor goes on by itself.
const FETCHED_LINES: usize = 8;
/// Bytes of a cache line.
const LINE_BYTES: usize = 64;

/// Builds on the CPU: the reference that every other builder equals byte for byte.
///
/// A column is sorted in blocks, then each value's rows go through the codec's encoder, which
/// writes its bitmap where it stays. With several threads, blocks are sorted in parallel, and then
/// ranges of values are encoded in parallel, each into a part of its own; columns that have few
/// blocks are built several at a time.
///
/// # Memory
///
/// Besides the output, a builder holds two bytes a row of the column at hand, or three if that has
/// more than eight bits, up to [`RECORDS_MAX`] rows, which it keeps for the next column. A column
/// with more rows is read several times, for a range of values at a time; a single value that has
/// more rows than that is encoded piece by piece. While it encodes a column of more than eight
/// bits, each thread also holds four bytes a row of the bucket at hand: a 256th of the rows if the
/// values are spread evenly, all of them if one bucket has them all.
#[derive(Debug)]
pub struct CpuBuilder {
    threads: usize,
    /// Created when there is work for it.
    pool: Option<rayon::ThreadPool>,
    records_max: usize,
    /// The places of rows in their blocks, sorted.
    places: Vec<[u8; 2]>,
    /// The bits of their digits that are left for a second step.
    low: Vec<u8>,
}

/// A block whose rows have been sorted into buckets.
#[derive(Debug)]
struct Block {
    /// The row it starts at.
    base: u32,
    /// Where its rows start in what is sorted.
    sorted: usize,
    starts: Starts,
}

impl CpuBuilder {
    /// A builder that uses this many threads; 0 means one for each core.
    pub fn new(threads: usize) -> Self {
        let cores = || std::thread::available_parallelism().map_or(1, usize::from);
        let threads = if threads == 0 { cores() } else { threads };
        let records_max = RECORDS_MAX;
        Self { threads, pool: None, records_max, places: Vec::new(), low: Vec::new() }
    }

    /// The builder, holding the records of at most this many rows at a time.
    #[must_use]
    pub fn with_records_max(mut self, rows: usize) -> Self {
        self.records_max = rows.max(1);
        self
    }

    /// The threads, which are started when there is work for them; `None` if one thread is enough.
    fn pool(&mut self) -> Result<Option<&rayon::ThreadPool>, BuildError> {
        if self.threads > 1 && self.pool.is_none() {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(self.threads);
            self.pool =
                Some(pool.build().map_err(|error| BuildError::Threads(io::Error::other(error)))?);
        }
        Ok(self.pool.as_ref())
    }

    fn build_digits<D: Digit>(&mut self, digits: &[D], codec: Codec, target: &mut ColumnIndex) {
        let mut spare = target.clear();
        let bits_used = match &self.pool {
            None => D::bits_used(digits),
            Some(pool) => pool.install(|| {
                digits.par_chunks(SHORT_ROWS).map(D::bits_used).reduce(|| 0, |a, b| a | b)
            }),
        };
        if digits.len() <= self.records_max {
            let cut = Cut::new(bits_used, &ALL_VALUES);
            let blocks = self.part_blocks(cut, digits);
            self.encode(cut, &blocks, digits.len(), codec, &mut spare, target);
            return;
        }
        for (values, rows) in value_ranges(digits, self.records_max) {
            let cut = Cut::new(bits_used, &values);
            if rows <= self.records_max {
                let blocks = self.part_some(cut, digits, rows);
                self.encode(cut, &blocks, digits.len(), codec, &mut spare, target);
            } else {
                let mut part = spare.pop().unwrap_or_default();
                encode_value(digits, values.start, codec, &mut part);
                target.append(&[(values.start, part.len())], part);
            }
        }
    }

    /// Makes room for so many rows.
    fn make_room(&mut self, cut: Cut, rows: usize) {
        if self.places.len() < rows {
            self.places.resize(rows, [0; 2]);
        }
        if !cut.is_one_step() && self.low.len() < rows {
            self.low.resize(rows, 0);
        }
    }

    /// Sorts all rows into buckets, blocks in parallel.
    fn part_blocks<D: Digit>(&mut self, cut: Cut, digits: &[D]) -> Vec<Block> {
        self.make_room(cut, digits.len());
        // Without a second step, nothing is kept for it.
        let mut low =
            if cut.is_one_step() { [].chunks_mut(1) } else { self.low.chunks_mut(BLOCK_ROWS) };
        let places = self.places.chunks_mut(BLOCK_ROWS).zip(digits.chunks(BLOCK_ROWS));
        let work = places.enumerate().map(|(index, (places, digits))| {
            let low = low.next().unwrap_or_default();
            (index, digits, Sorted { places, low })
        });
        let part = |(index, digits, mut sorted): (usize, &[D], Sorted<'_>)| {
            let first = index * BLOCK_ROWS;
            let starts = sort::part(cut, digits, &mut sorted);
            Block { base: rows32(first), sorted: first, starts }
        };
        match &self.pool {
            None => work.map(part).collect(),
            Some(pool) => {
                let work: Vec<_> = work.collect();
                pool.install(|| work.into_par_iter().map(part).collect())
            }
        }
    }

    /// Sorts the rows of some values into buckets, `rows` of them, one block after the other.
    fn part_some<D: Digit>(&mut self, cut: Cut, digits: &[D], rows: usize) -> Vec<Block> {
        self.make_room(cut, rows);
        let mut used = 0;
        let part = |(index, digits): (usize, &[D])| {
            let low = if cut.is_one_step() { &mut [][..] } else { &mut self.low[used..] };
            let mut sorted = Sorted { places: &mut self.places[used..], low };
            let starts = sort::part(cut, digits, &mut sorted);
            let block = Block { base: rows32(index * BLOCK_ROWS), sorted: used, starts };
            used += starts[starts.len() - 1] as usize;
            block
        };
        digits.chunks(BLOCK_ROWS).enumerate().map(part).collect()
    }

    /// Appends the bitmaps of the values that were sorted, ranges of them in parallel.
    fn encode(
        &self,
        cut: Cut,
        blocks: &[Block],
        rows: usize,
        codec: Codec,
        spare: &mut Vec<Vec<u8>>,
        target: &mut ColumnIndex,
    ) {
        let (places, low) = (&self.places[..], &self.low[..]);
        let job = Job { cut, blocks, places, low, rows: rows32(rows), codec };
        let mut take = || spare.pop().unwrap_or_default();
        let mut parts: Vec<(Ends, Vec<u8>)> = Vec::new();
        match &self.pool {
            None => {
                let mut part = take();
                let ends = job.encode_buckets(cut.buckets(), &mut part);
                parts.push((ends, part));
            }
            Some(pool) => {
                let shares = job.shares(SHARES_PER_THREAD * pool.current_num_threads());
                parts.extend(shares.iter().map(|_| (Vec::new(), take())));
                // The largest first, so that no thread waits for it at the end.
                let mut work: Vec<_> = shares.into_iter().zip(&mut parts).collect();
                work.sort_by_key(|((_, rows), _)| std::cmp::Reverse(*rows));
                let job = &job;
                pool.scope_fifo(|scope| {
                    for ((buckets, _), (ends, part)) in work {
                        scope.spawn_fifo(move |_| *ends = job.encode_buckets(buckets, part));
                    }
                });
            }
        }
        for (ends, part) in parts {
            target.append(&ends, part);
        }
    }
}

/// The values in a part, and where the bitmap of each ends.
type Ends = Vec<(u32, usize)>;

/// What encoding a range of buckets has to know.
struct Job<'a> {
    cut: Cut,
    blocks: &'a [Block],
    places: &'a Ids16,
    low: &'a [u8],
    rows: u32,
    codec: Codec,
}

impl Job<'_> {
    /// Where the rows of a bucket lie in what is sorted, block by block, with the row that the
    /// block starts at.
    fn bucket(&self, bucket: usize) -> impl Iterator<Item = (u32, Range<usize>)> + Clone {
        self.blocks.iter().map(move |block| {
            let place = |bucket: usize| block.sorted + block.starts[bucket] as usize;
            (block.base, place(bucket)..place(bucket + 1))
        })
    }

    /// The same; what lies at these places of `list` is fetched into the cache some blocks ahead.
    fn fetched<T>(&self, bucket: usize, list: &[T]) -> impl Iterator<Item = (u32, Range<usize>)> {
        let line = LINE_BYTES / size_of::<T>();
        let mut ahead = self.bucket(bucket).skip(FETCHED_AHEAD);
        self.bucket(bucket).inspect(move |_| {
            if let Some((_, range)) = ahead.next() {
                range.step_by(line).take(FETCHED_LINES).for_each(|at| prefetch(list, at));
            }
        })
    }

    /// The buckets cut into shares of about equal numbers of rows, at most `count` of them; with
    /// the rows of each.
    fn shares(&self, count: usize) -> Vec<(Range<usize>, usize)> {
        let rows = |bucket| self.bucket(bucket).map(|(_, range)| range.len()).sum::<usize>();
        let buckets = self.cut.buckets();
        let share = buckets.clone().map(rows).sum::<usize>() / count + 1;
        let mut shares = Vec::new();
        let (mut start, mut held) = (buckets.start, 0);
        for bucket in buckets.clone() {
            held += rows(bucket);
            if held >= share || bucket + 1 == buckets.end {
                shares.push((start..bucket + 1, held));
                (start, held) = (bucket + 1, 0);
            }
        }
        shares
    }

    /// Appends the bitmaps of the values in some buckets; returns the values and where each one's
    /// bitmap ends.
    fn encode_buckets(&self, buckets: Range<usize>, part: &mut Vec<u8>) -> Ends {
        let (mut ends, mut room) = (Vec::new(), Vec::new());
        for bucket in buckets {
            if self.cut.is_one_step() {
                let arrays = self.fetched(bucket, self.places);
                let arrays = arrays.map(|(base, range)| (base / CHUNK_ROWS, &self.places[range]));
                let mut arrays = arrays.filter(|(_, ids)| !ids.is_empty()).peekable();
                if arrays.peek().is_none() {
                    continue;
                }
                self.codec.encode_arrays(arrays, self.rows, part);
                ends.push((self.cut.value(bucket, 0), part.len()));
            } else {
                let low = self.fetched(bucket, self.low).map(|(_, range)| &self.low[range]);
                let blocks = self
                    .fetched(bucket, self.places)
                    .map(|(base, range)| (base, &self.places[range.clone()], &self.low[range]));
                let starts = sort::sort_bucket(low, blocks, &mut room);
                for (low, bounds) in starts.windows(2).enumerate() {
                    let rows = &room[bounds[0] as usize..bounds[1] as usize];
                    if !rows.is_empty() {
                        self.codec.encode(rows, part);
                        ends.push((self.cut.value(bucket, low), part.len()));
                    }
                }
            }
        }
        ends
    }
}

/// The values that occur, cut into ranges of at most `rows_max` rows, or of one value with more;
/// with the rows of each range.
fn value_ranges<D: Digit>(digits: &[D], rows_max: usize) -> Vec<(Range<u32>, usize)> {
    let mut counts = vec![0_usize; ALL_VALUES.end as usize];
    for digit in digits {
        counts[digit.value() as usize] += 1;
    }
    let mut ranges: Vec<(Range<u32>, usize)> = Vec::new();
    for (value, count) in (0..).zip(counts).filter(|&(_, count)| count > 0) {
        match ranges.last_mut() {
            Some((values, rows)) if *rows + count <= rows_max => {
                values.end = value + 1;
                *rows += count;
            }
            _ => ranges.push((value..value + 1, count)),
        }
    }
    ranges
}

/// Appends the bitmap of one value, whose rows are gathered block by block.
fn encode_value<D: Digit>(digits: &[D], value: u32, codec: Codec, part: &mut Vec<u8>) {
    let blocks = digits.chunks(SHORT_ROWS).enumerate().map(|(index, block)| {
        let rows = block.iter().enumerate().filter(|(_, digit)| digit.value() == value);
        rows.map(|(row, _)| rows32(index * SHORT_ROWS + row)).collect::<Vec<u32>>()
    });
    codec.encode_pieces(blocks, rows32(digits.len()), part);
}

impl Builder for CpuBuilder {
    fn build(
        &mut self,
        column: Digits<'_>,
        codec: Codec,
        target: &mut ColumnIndex,
    ) -> Result<(), BuildError> {
        let rows = column.rows();
        let rows = u32::try_from(rows).map_err(|_| BuildError::TooManyRows { rows })?;
        self.pool()?;
        (target.codec, target.rows) = (codec, rows);
        match column {
            Digits::Bytes(digits) => self.build_digits(digits, codec, target),
            Digits::Shorts(digits) => self.build_digits(digits, codec, target),
        }
        Ok(())
    }

    fn build_each<E: From<BuildError>>(
        &mut self,
        columns: &[(Digits<'_>, Codec)],
        mut done: impl FnMut(&ColumnIndex) -> Result<(), E>,
    ) -> Result<(), E> {
        let threads = self.threads;
        // Columns in parallel if a single one has too few blocks to share out, and memory allows
        // it.
        let records_max = self.records_max / threads;
        let rows_max = (threads * SHORT_ROWS).min(records_max);
        let is_short = |(column, _): &(Digits<'_>, Codec)| column.rows() <= rows_max;
        let mut indexes: Vec<(CpuBuilder, ColumnIndex)> = Vec::new();
        for few in columns.chunks(threads.max(1)) {
            match self.pool()? {
                Some(pool) if few.iter().all(is_short) => {
                    indexes.resize_with(few.len(), || {
                        let builder = CpuBuilder::new(1).with_records_max(records_max);
                        (builder, ColumnIndex::default())
                    });
                    pool.install(|| {
                        let work = indexes.par_iter_mut().zip(few);
                        work.try_for_each(|((builder, index), &(column, codec))| {
                            builder.build(column, codec, index)
                        })
                    })?;
                    indexes.iter().try_for_each(|(_, index)| done(index))?;
                }
                _ => {
                    indexes.resize_with(1, || (CpuBuilder::new(1), ColumnIndex::default()));
                    for &(column, codec) in few {
                        self.build(column, codec, &mut indexes[0].1)?;
                        done(&indexes[0].1)?;
                    }
                }
            }
        }
        Ok(())
    }
}
