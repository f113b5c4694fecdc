//! From a column of digits to keys, offsets and bitmaps.

use std::io;
use std::ops::Range;
use std::sync::Arc;

use rayon::prelude::*;
use tapdex_bitmap::Codec;

use super::schema::Width;
use super::sort::{self, BLOCK_ROWS, Cut, Digit, Starts, rows32};

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

/// Rows whose records are in memory at a time, unless a builder is set otherwise: 1 GiB of records.
pub const RECORDS_MAX: usize = 1 << 28;

/// All values that a digit can have.
const ALL_VALUES: Range<u32> = 0..1 << 16;

/// Shares of the encoding for each thread, so that a thread that is done early can take another.
const SHARES_PER_THREAD: usize = 8;

/// Builds on the CPU: the reference that every other builder equals byte for byte.
///
/// A column is sorted in blocks, then each value's rows go through the codec's encoder, which
/// writes its bitmap where it stays. With several threads, blocks are sorted in parallel, and then
/// ranges of values are encoded in parallel, each into a part of its own; columns that have few
/// blocks are built several at a time.
///
/// # Memory
///
/// Besides the output, a builder holds four bytes a row of the column at hand, up to
/// [`RECORDS_MAX`] rows, which it keeps for the next column. A column with more rows is read
/// several times, for a range of values at a time; a single value that has more rows than that is
/// encoded block by block. While it encodes a column of more than eight bits, each thread also
/// holds four bytes a row of the bucket at hand: a 256th of the rows if the values are spread
/// evenly, all of them if one bucket has them all.
#[derive(Debug)]
pub struct CpuBuilder {
    threads: usize,
    /// Created when there is work for it.
    pool: Option<rayon::ThreadPool>,
    records_max: usize,
    records: Vec<u32>,
}

/// A block whose rows have been sorted into buckets.
#[derive(Debug)]
struct Block {
    /// The row it starts at.
    base: u32,
    /// Where its records start.
    records: usize,
    starts: Starts,
}

impl CpuBuilder {
    /// A builder that uses this many threads; 0 means one for each core.
    pub fn new(threads: usize) -> Self {
        let cores = || std::thread::available_parallelism().map_or(1, usize::from);
        let threads = if threads == 0 { cores() } else { threads };
        Self { threads, pool: None, records_max: RECORDS_MAX, records: Vec::new() }
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
                digits.par_chunks(BLOCK_ROWS).map(D::bits_used).reduce(|| 0, |a, b| a | b)
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

    /// Sorts all rows into buckets, blocks in parallel.
    fn part_blocks<D: Digit>(&mut self, cut: Cut, digits: &[D]) -> Vec<Block> {
        if self.records.len() < digits.len() {
            self.records.resize(digits.len(), 0);
        }
        let part = |(index, (records, digits)): (usize, (&mut [u32], &[D]))| {
            let first = index * BLOCK_ROWS;
            let base = rows32(first);
            Block { base, records: first, starts: sort::part(cut, digits, base, records) }
        };
        let records = &mut self.records[..digits.len()];
        match &self.pool {
            None => {
                let blocks = records.chunks_mut(BLOCK_ROWS).zip(digits.chunks(BLOCK_ROWS));
                blocks.enumerate().map(part).collect()
            }
            Some(pool) => pool.install(|| {
                let blocks = records.par_chunks_mut(BLOCK_ROWS).zip(digits.par_chunks(BLOCK_ROWS));
                blocks.enumerate().map(part).collect()
            }),
        }
    }

    /// Sorts the rows of some values into buckets, `rows` of them, one block after the other.
    fn part_some<D: Digit>(&mut self, cut: Cut, digits: &[D], rows: usize) -> Vec<Block> {
        if self.records.len() < rows {
            self.records.resize(rows, 0);
        }
        let mut used = 0;
        let part = |(index, digits): (usize, &[D])| {
            let base = rows32(index * BLOCK_ROWS);
            let starts = sort::part(cut, digits, base, &mut self.records[used..]);
            let block = Block { base, records: used, starts };
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
        let job = Job { cut, blocks, records: &self.records, rows: rows32(rows), codec };
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
    records: &'a [u32],
    rows: u32,
    codec: Codec,
}

impl Job<'_> {
    /// The records of a bucket, block by block.
    fn bucket(&self, bucket: usize) -> impl Iterator<Item = (u32, &[u32])> + Clone {
        self.blocks.iter().map(move |block| {
            let range = block.starts[bucket] as usize..block.starts[bucket + 1] as usize;
            (block.base, &self.records[block.records..][range])
        })
    }

    /// The buckets cut into shares of about equal numbers of rows, at most `count` of them; with
    /// the rows of each.
    fn shares(&self, count: usize) -> Vec<(Range<usize>, usize)> {
        let rows = |bucket| self.bucket(bucket).map(|(_, records)| records.len()).sum::<usize>();
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
                let mut pieces =
                    self.bucket(bucket).map(|(_, rows)| rows).filter(|r| !r.is_empty());
                match (pieces.next(), pieces.next()) {
                    (None, _) => continue,
                    (Some(rows), None) => self.codec.encode(rows, part),
                    (Some(first), Some(second)) => {
                        let pieces = [first, second].into_iter().chain(pieces);
                        self.codec.encode_pieces(pieces, self.rows, part);
                    }
                }
                ends.push((self.cut.value(bucket, 0), part.len()));
            } else {
                let starts = sort::sort_bucket(self.bucket(bucket), &mut room);
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
    let blocks = digits.chunks(BLOCK_ROWS).enumerate().map(|(index, block)| {
        let rows = block.iter().enumerate().filter(|(_, digit)| digit.value() == value);
        rows.map(|(row, _)| rows32(index * BLOCK_ROWS + row)).collect::<Vec<u32>>()
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
        let rows_max = (threads * BLOCK_ROWS).min(records_max);
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
