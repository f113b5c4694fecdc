//! MASC: maximised stride with carrier. Runs of rows of any length, no groups, no literals.
//!
//! ```text
//! zeros    [00][25: length / 31][5: length % 31]
//! ones     [11][25: length / 31][5: length % 31]
//! carried  [01][5: ones, 1 to 30][20: zeros / 31][5: zeros % 31]
//! ```
//!
//! Bit 30 says whether the word holds a one. A run of zeros and the run of at most 30 ones after it
//! are one *carried* word; otherwise each run has words of its own. A run too long for one word is
//! split, full pieces first, and only the last piece of zeros carries.
//!
//! ```
//! # use tapdex_bitmap::Codec;
//! let ids: Vec<u32> = (44..=80).chain(168..=171).collect();
//! let mut bytes = vec![];
//! Codec::Masc.encode(&ids, &mut bytes); // figure 15 of the paper, less the zeros at the end
//! let words = [0x0000_002D_u32, 0xC000_0026, 0x4800_0059];
//! assert_eq!(bytes, words.map(u32::to_le_bytes).as_flattened());
//! ```
//!
//! Wins on runs that do not keep to groups of 31, and on single ids: one word for each of either.
//! Loses on dense random ids, where WAH has a word for 31 rows and MASC one for every run.
//!
//! The paper cuts a column into [windows](Windowed) of 3,968 rows and keeps a
//! [query table](Windowed::table) beside them; both are here as well.
//! Source: "MASC: a bitmap index coding algorithm for fast data retrieval".

use std::cell::RefCell;

use crate::cast::{len32, low16, low32};
use crate::chunk::{Bits, CHUNK_ROWS, Chunk, Room, set_range};
use crate::chunks::Chunks;
use crate::codec::{BitmapCodec, Codec, Encoder, Explained};
use crate::error::DecodeError;
use crate::groups::{BATCHED_FROM, GROUP_ROWS, WordCompare, WordCount, WordTarget, words};
use crate::runs::{count_ids, run_len};
use crate::simd::words::{self, BATCH, Items, Len, PairRule, ROOM, pair_words, run_ids};

const HOLDS_ONE: u32 = 1 << 30;
const ONES: u32 = 0b11 << 30;
const CARRIED_SHIFT: u32 = 25;
const CARRIED_ONES_MAX: u32 = 30;
const PURE_LENGTH_MAX: u64 = ((1 << 25) - 1) * GROUP_ROWS as u64 + 30;
const CARRIED_ZEROS_MAX: u32 = ((1 << 20) - 1) * GROUP_ROWS + 30;

/// Rows in a window of the paper: as many groups as a seven-bit number can count.
pub const WINDOW_ROWS: u32 = 128 * GROUP_ROWS;

/// See the [module](self).
#[derive(Debug, Clone, Copy)]
pub struct Masc;

/// The length field of a run: whole groups above, the rest in the low five bits.
#[inline(always)]
fn length_bits(length: u64) -> u32 {
    let length = low32(length);
    (length / GROUP_ROWS) << 5 | (length % GROUP_ROWS)
}

/// The zeros and then the ones that a word stands for.
#[inline(always)]
fn unpack(word: u32) -> (u64, u64) {
    let length = |bits: u32| u64::from(bits >> 5) * u64::from(GROUP_ROWS) + u64::from(bits & 31);
    match word >> 30 {
        0b00 => (length(word), 0),
        0b01 => {
            let zeros = length(word & ((1 << CARRIED_SHIFT) - 1));
            (zeros, u64::from(word >> CARRIED_SHIFT & 31))
        }
        // 10 is the paper's plain form of ones; it never equals what the encoder writes.
        _ => (0, length(word & !ONES)),
    }
}

/// Receives alternating runs.
trait RunSink {
    fn zeros(&mut self, length: u64);
    fn ones(&mut self, length: u64);
    /// A number of runs of ones, each with the zeros before it.
    fn runs(&mut self, zeros: &Items, ones: &Items, len: Len, _: &mut words::Words) {
        for (&zeros, &ones) in zeros.iter().zip(ones).take(len.items) {
            if zeros > 0 {
                self.zeros(zeros.into());
            }
            self.ones(ones.into());
        }
    }
}

/// Writes runs as words.
#[derive(Debug)]
struct Words<T> {
    target: T,
    /// Zeros held back until the ones after them are known.
    zeros: u64,
}

impl<T: WordTarget> Words<T> {
    /// Writes the zeros held back, all of them as pure words.
    fn flush(&mut self) {
        let mut zeros = std::mem::take(&mut self.zeros);
        while zeros > PURE_LENGTH_MAX {
            self.target.word(length_bits(PURE_LENGTH_MAX));
            zeros -= PURE_LENGTH_MAX;
        }
        if zeros > 0 {
            self.target.word(length_bits(zeros));
        }
    }
}

impl<T: WordTarget> RunSink for Words<T> {
    #[inline(always)]
    fn zeros(&mut self, length: u64) {
        self.zeros += length;
    }

    #[inline(always)]
    fn ones(&mut self, mut length: u64) {
        if length <= CARRIED_ONES_MAX.into() && self.zeros > 0 {
            while self.zeros > PURE_LENGTH_MAX {
                self.target.word(length_bits(PURE_LENGTH_MAX));
                self.zeros -= PURE_LENGTH_MAX;
            }
            if self.zeros <= CARRIED_ZEROS_MAX.into() {
                let zeros = length_bits(std::mem::take(&mut self.zeros));
                return self.target.word(HOLDS_ONE | low32(length) << CARRIED_SHIFT | zeros);
            }
        }
        self.flush();
        while length > PURE_LENGTH_MAX {
            self.target.word(ONES | length_bits(PURE_LENGTH_MAX));
            length -= PURE_LENGTH_MAX;
        }
        self.target.word(ONES | length_bits(length));
    }

    #[inline(always)]
    fn runs(&mut self, zeros: &Items, ones: &Items, len: Len, words: &mut words::Words) {
        let len = pair_words::<Masc>(zeros, ones, len, words);
        self.target.words(&words[..len]);
    }
}

impl PairRule for Masc {
    #[inline(always)]
    fn words(zeros: u32, ones: u32) -> [u32; 2] {
        let field = |length: u32| (length / GROUP_ROWS) << 5 | (length % GROUP_ROWS);
        let (before, run) = (field(zeros), field(ones));
        let fits = (zeros > 0) & (zeros <= CARRIED_ZEROS_MAX) & (ones <= CARRIED_ONES_MAX);
        let carried = HOLDS_ONE | ones << CARRIED_SHIFT | before;
        if fits { [0, carried] } else { [before, ONES | run] }
    }
}

/// Cuts runs at the ends of windows.
#[derive(Debug)]
struct Windows<T> {
    words: Words<T>,
    /// Rows left in the window at hand.
    left: u64,
}

impl<T: WordTarget> Windows<T> {
    fn cut(&mut self, mut length: u64, mut write: impl FnMut(&mut Words<T>, u64)) {
        while length > 0 {
            let part = length.min(self.left);
            write(&mut self.words, part);
            length -= part;
            self.left -= part;
            if self.left == 0 {
                self.words.flush();
                self.left = WINDOW_ROWS.into();
            }
        }
    }
}

impl<T: WordTarget> RunSink for Windows<T> {
    fn zeros(&mut self, length: u64) {
        self.cut(length, RunSink::zeros);
    }
    fn ones(&mut self, length: u64) {
        self.cut(length, RunSink::ones);
    }
}

/// Joins runs that touch and passes them to a sink.
#[derive(Debug)]
struct Joiner<S> {
    sink: S,
    /// The row after all that the sink has seen.
    at: u64,
    /// The open run: its first row and the row after it.
    open: (u64, u64),
}

impl<S: RunSink> Joiner<S> {
    fn new(sink: S) -> Self {
        Self { sink, at: 0, open: (0, 0) }
    }

    /// Adds the rows `first..end`, above those added before.
    #[inline(always)]
    fn run(&mut self, first: u64, end: u64) {
        if first == self.open.1 {
            self.open.1 = end;
        } else {
            self.flush();
            self.open = (first, end);
        }
    }

    #[inline(always)]
    fn flush(&mut self) {
        let (first, end) = self.open;
        if first < end {
            if first > self.at {
                self.sink.zeros(first - self.at);
            }
            self.sink.ones(end - first);
            self.at = end;
        }
    }

    #[inline(always)]
    fn ids(&mut self, ids: &[u32]) {
        if ids.len() < BATCHED_FROM {
            for &id in ids {
                self.run(id.into(), u64::from(id) + 1);
            }
            return;
        }
        BATCH_ROOM.with_borrow_mut(|batch| self.batches(ids, batch));
    }

    #[inline(always)]
    fn batches(&mut self, ids: &[u32], batch: &mut Batch) {
        let mut rest = ids;
        while let Some(&first) = rest.first() {
            // A batch pays if it holds more than one run, and no gap or run of it is split.
            let ids = &rest[..rest.len().min(BATCH)];
            let last = ids[ids.len() - 1];
            let is_run = last - first == len32(ids.len()) - 1;
            let taken = if is_run || u64::from(last) - self.at > PURE_LENGTH_MAX {
                let len = run_len(rest);
                self.run(first.into(), u64::from(first) + u64::from(len32(len)));
                len
            } else {
                self.batch(ids, batch);
                ids.len()
            };
            rest = &rest[taken..];
        }
    }

    /// Adds at most a batch of ids, and at least one.
    #[inline(always)]
    fn batch(&mut self, ids: &[u32], batch: &mut Batch) {
        let Batch { firsts, ends, zeros, ones, words } = batch;
        let len = run_ids(ids, firsts, ends);
        self.run(firsts[0].into(), ends[0].into());
        // The last run stays open; those between it and the first are complete.
        self.flush();
        let (firsts_done, ends_done) = (&firsts[1..len - 1], &ends[..len - 1]);
        for (zeros, (first, end)) in zeros.iter_mut().zip(firsts_done.iter().zip(ends_done)) {
            *zeros = first - end;
        }
        for (ones, (first, end)) in ones.iter_mut().zip(firsts_done.iter().zip(&ends_done[1..])) {
            *ones = end - first;
        }
        self.sink.runs(zeros, ones, Len::new(len - 2, ids.len()), words);
        self.at = ends[len - 2].into();
        self.open = (firsts[len - 1].into(), ends[len - 1].into());
    }
}

impl<S: RunSink> Joiner<S> {
    /// Adds ascending runs that lie apart, all above what was added before.
    #[inline(always)]
    fn runs(&mut self, runs: &[(u32, u32)]) {
        if runs.len() < BATCHED_FROM {
            return self.few_runs(runs);
        }
        BATCH_ROOM.with_borrow_mut(|batch| {
            for runs in runs.chunks(BATCH) {
                // As with ids: in a batch no gap and no run is split.
                let end = runs.last().map_or(0, |run| u64::from(run.1) + 1);
                if end - self.at > PURE_LENGTH_MAX || runs.len() < 2 {
                    self.few_runs(runs);
                } else {
                    self.batch_runs(runs, batch);
                }
            }
        });
    }

    #[inline(always)]
    fn few_runs(&mut self, runs: &[(u32, u32)]) {
        for &(first, last) in runs {
            self.run(first.into(), u64::from(last) + 1);
        }
    }

    /// Adds at most a batch of runs, and at least two.
    #[inline(always)]
    fn batch_runs(&mut self, runs: &[(u32, u32)], batch: &mut Batch) {
        let Batch { zeros, ones, words, .. } = batch;
        self.few_runs(&runs[..1]);
        // The last run stays open; those between it and the first are complete.
        self.flush();
        let (before, done) = (&runs[..runs.len() - 2], &runs[1..runs.len() - 1]);
        for (zeros, (before, run)) in zeros.iter_mut().zip(before.iter().zip(done)) {
            *zeros = run.0 - before.1 - 1;
        }
        for (ones, run) in ones.iter_mut().zip(done) {
            *ones = run.1 - run.0 + 1;
        }
        self.sink.runs(zeros, ones, Len::new(done.len(), count_ids(done)), words);
        self.at = u64::from(runs[runs.len() - 2].1) + 1;
        let (first, last) = runs[runs.len() - 1];
        self.open = (first.into(), u64::from(last) + 1);
    }
}

/// The runs of a batch of ids, and room for the words that they become.
///
/// Its arrays start at cache lines, so that a full register seldom spans two of them.
#[repr(C, align(64))]
struct Batch {
    firsts: Items,
    ends: Items,
    zeros: Items,
    ones: Items,
    words: words::Words,
}

impl Batch {
    const EMPTY: Self = {
        let (items, words) = ([0; ROOM], [0; 2 * ROOM]);
        Self { firsts: items, ends: items, zeros: items, ones: items, words }
    };
}

thread_local! {
    /// One a thread, because clearing it costs as much as encoding a hundred ids.
    static BATCH_ROOM: RefCell<Batch> = const { RefCell::new(Batch::EMPTY) };
}

/// Puts a set into words; see [`Encoder`].
#[derive(Debug)]
pub struct RunEncoder<T>(Joiner<Words<T>>);

impl<T: WordTarget> RunEncoder<T> {
    fn new(target: T) -> Self {
        Self(Joiner::new(Words { target, zeros: 0 }))
    }
}

impl<'a> RunEncoder<&'a mut WordCount> {
    /// An encoder that only counts the words.
    pub(crate) fn counting(target: &'a mut WordCount) -> Self {
        Self::new(target)
    }

    /// Adds ascending runs that lie apart.
    pub(crate) fn runs(&mut self, runs: &[(u32, u32)]) {
        self.0.runs(runs);
    }
}

impl<T: WordTarget> Encoder for RunEncoder<T> {
    #[inline(always)]
    fn ids(&mut self, ids: &[u32]) {
        self.0.ids(ids);
    }

    fn chunk(&mut self, key: u32, chunk: Chunk<'_>) {
        let base = u64::from(key) << 16;
        chunk.for_each_run(|first, last| {
            self.0.run(base + u64::from(first), base + u64::from(last) + 1);
        });
    }

    fn finish(mut self) {
        self.0.flush();
    }
}

/// Passes the runs of a stream through a sink again, which compares the words.
fn recheck<S: RunSink>(source: &[u8], rows: u32, mut joiner: Joiner<S>) -> Result<(), DecodeError> {
    let mut at = 0;
    for (index, &word) in words(source)?.iter().enumerate() {
        let (zeros, ones) = unpack(u32::from_le_bytes(word));
        let end = at + zeros + ones;
        if end > u64::from(rows) {
            return Err(DecodeError::PastEnd { offset: 4 * index, rows });
        }
        if ones > 0 {
            joiner.run(at + zeros, end);
        }
        at = end;
    }
    joiner.flush();
    Ok(())
}

impl BitmapCodec for Masc {
    type Encoder<'t> = RunEncoder<&'t mut Vec<u8>>;
    type Cursor<'a> = RunCursor<'a>;

    fn codec(&self) -> Codec {
        Codec::Masc
    }

    #[inline(always)]
    fn encoder<'t>(&self, target: &'t mut Vec<u8>, _: usize) -> Self::Encoder<'t> {
        RunEncoder::new(target)
    }

    fn encode_runs(&self, runs: &[(u32, u32)], target: &mut Vec<u8>) {
        let mut encoder = RunEncoder::new(target);
        encoder.0.runs(runs);
        encoder.finish();
    }

    fn check(&self, source: &[u8], rows: u32) -> Result<(), DecodeError> {
        let mut compare = WordCompare::new(words(source)?);
        recheck(source, rows, Joiner::new(Words { target: &mut compare, zeros: 0 }))?;
        compare.finish()
    }

    fn cursor<'a>(&self, source: &'a [u8], rows: u32) -> Self::Cursor<'a> {
        RunCursor::new(source.as_chunks::<4>().0, rows)
    }

    fn cardinality(&self, source: &[u8], _: u32) -> u64 {
        let words = source.as_chunks::<4>().0.iter();
        words.map(|&word| unpack(u32::from_le_bytes(word)).1).sum()
    }

    fn explain(&self, source: &[u8]) -> Vec<Explained> {
        let mut at = 0;
        let mut lines = Vec::new();
        for (index, &word) in source.as_chunks::<4>().0.iter().enumerate() {
            let word = u32::from_le_bytes(word);
            let (zeros, ones) = unpack(word);
            let (kind, fields) = match word >> 30 {
                0b00 => ("zeros", vec![("length", zeros)]),
                0b01 => ("carried", vec![("zeros", zeros), ("ones", ones)]),
                0b11 => ("ones", vec![("length", ones)]),
                _ => ("not a code", vec![]),
            };
            let rows = (zeros + ones > 0).then(|| (at, at + zeros + ones - 1));
            lines.push(Explained { offset: 4 * index, width: 4, rows, kind, fields });
            at += zeros + ones;
        }
        lines
    }
}

/// The chunks of a stream of runs; made by [`Bitmap::chunks`](crate::Bitmap::chunks).
#[derive(Debug)]
pub struct RunCursor<'a> {
    words: std::slice::Iter<'a, [u8; 4]>,
    /// The run at hand: its first row and the row after it.
    run: (u64, u64),
    /// The first row of the chunk that `seek` found.
    from: u64,
    rows: u32,
    room: Room,
}

impl<'a> RunCursor<'a> {
    fn new(words: &'a [[u8; 4]], rows: u32) -> Self {
        Self { words: words.iter(), run: (0, 0), from: 0, rows, room: Room::default() }
    }

    /// Moves to the next run; false when there is none.
    #[inline(always)]
    fn advance(&mut self) -> bool {
        let mut at = self.run.1;
        for &word in self.words.by_ref() {
            let (zeros, ones) = unpack(u32::from_le_bytes(word));
            at += zeros;
            if ones > 0 {
                self.run = (at, at + ones);
                return true;
            }
        }
        self.run = (at, at);
        false
    }

    /// Passes the runs of the chunk that `seek` found to `each`.
    #[inline(always)]
    fn for_chunk(&mut self, mut each: impl FnMut(u32, u32)) {
        let (from, end) = (self.from, self.from + u64::from(CHUNK_ROWS));
        while self.run.0 < end {
            let first = self.run.0.max(from);
            let last = self.run.1.min(end);
            if first < last {
                each(low32(first - from), low32(last - from - 1));
            }
            if self.run.1 > end || !self.advance() {
                return;
            }
        }
    }
}

impl Chunks for RunCursor<'_> {
    #[inline]
    fn seek(&mut self, key: u32) -> Option<u32> {
        self.from = self.from.max(u64::from(key) << 16);
        while self.run.1 <= self.from {
            if !self.advance() {
                return None;
            }
        }
        let key = low32(self.run.0.max(self.from) >> 16);
        self.from = u64::from(key) << 16;
        Some(key)
    }

    fn load(&mut self) -> Chunk<'_> {
        let mut room = std::mem::take(&mut self.room);
        let buffer = room.get();
        buffer.clear();
        self.for_chunk(|first, last| buffer.push_run(first, last));
        self.room = room;
        self.room.get().chunk()
    }

    fn release(&mut self) {
        self.room.release();
    }

    fn chunk_len(&mut self) -> u32 {
        let mut len = 0;
        self.for_chunk(|first, last| len += last - first + 1);
        len
    }

    fn or_into(&mut self, target: &mut Bits) {
        self.for_chunk(|first, last| set_range(target, first, last));
    }

    fn chunks_max(&self) -> usize {
        self.keys_end() as usize
    }

    fn keys_end(&self) -> u32 {
        self.rows.div_ceil(CHUNK_ROWS)
    }
}

/// The windowed form of the paper, with its query table.
///
/// The rows are cut into windows of [`WINDOW_ROWS`]. No run crosses the end of a window, and the
/// words of a window cover exactly its rows; only the last one stops at the word that holds the
/// last set row. So every window stands alone, and the place of a word in its window fits 12 bits.
///
/// ```
/// # use tapdex_bitmap::codec::masc::Windowed;
/// let ids: Vec<u32> = (0..100_000).step_by(1_000).collect();
/// let mut bytes = vec![];
/// Windowed::encode(&ids, &mut bytes);
/// let set = Windowed::open(&bytes, 100_000)?;
///
/// let mut found = vec![];
/// let touched = set.range(50_000..53_000, |first, last| found.extend(first..=last));
/// assert_eq!(found, [50_000, 51_000, 52_000]);
/// assert!(touched.read < 10 && touched.read + touched.skipped == bytes.len() / 4);
/// # Ok::<(), tapdex_bitmap::DecodeError>(())
/// ```
#[derive(Debug)]
pub struct Windowed<'a> {
    words: &'a [[u8; 4]],
    rows: u32,
    table: Vec<u16>,
    /// The index of each window's first word, and the number of words at the end.
    starts: Vec<u32>,
}

/// How much of a stream a range query looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Touched {
    /// Words that were read.
    pub read: usize,
    /// Words that the query table let it skip.
    pub skipped: usize,
}

impl<'a> Windowed<'a> {
    /// Appends the set in windows. The ids ascend strictly and are below 2^32 - 1.
    pub fn encode(ids: &[u32], target: &mut Vec<u8>) {
        debug_assert!(ids.is_sorted_by(|a, b| a < b), "ids must strictly ascend");
        let words = Words { target, zeros: 0 };
        let mut joiner = Joiner::new(Windows { words, left: WINDOW_ROWS.into() });
        joiner.ids(ids);
        joiner.flush();
    }

    /// Checks that the bytes are a set of ids below `rows` in windows, and makes its query table.
    pub fn open(bytes: &'a [u8], rows: u32) -> Result<Self, DecodeError> {
        let words = words(bytes)?;
        let mut compare = WordCompare::new(words);
        let target = Words { target: &mut compare, zeros: 0 };
        let windows = Windows { words: target, left: WINDOW_ROWS.into() };
        recheck(bytes, rows, Joiner::new(windows))?;
        compare.finish()?;

        let mut table = Vec::with_capacity(words.len());
        let mut starts = vec![0];
        let mut at = 0;
        for (index, &word) in words.iter().enumerate() {
            let word = u32::from_le_bytes(word);
            let (zeros, ones) = unpack(word);
            table.push(low16((word >> 30 & 1) << 12 | length_bits(at)));
            at += zeros + ones;
            if at == u64::from(WINDOW_ROWS) {
                starts.push(len32(index + 1));
                at = 0;
            }
        }
        if starts.last() != Some(&len32(words.len())) {
            starts.push(len32(words.len()));
        }
        Ok(Self { words, rows, table, starts })
    }

    /// The query table: an entry a word.
    ///
    /// ```text
    /// [000][1: the word holds a one][7: group][5: row in the group], both of its first row
    /// ```
    pub fn table(&self) -> &[u16] {
        &self.table
    }

    /// A cursor over the chunks of the set.
    pub fn chunks(&self) -> RunCursor<'a> {
        RunCursor::new(self.words, self.rows)
    }

    /// Calls `each` with the first and last row of every run in `range`, cut to it, ascending.
    ///
    /// The table shows which word the range starts in, and which words hold no ones; neither those
    /// nor the words outside the range are read. A run that crosses the end of a window comes in
    /// two parts.
    pub fn range(&self, range: std::ops::Range<u32>, mut each: impl FnMut(u32, u32)) -> Touched {
        let mut read = 0;
        let windows = range.start / WINDOW_ROWS..range.end.div_ceil(WINDOW_ROWS);
        for window in windows.start as usize..windows.end as usize {
            let Some(&[start, end]) = self.starts.get(window..window + 2) else { break };
            let base = len32(window) * WINDOW_ROWS;
            let from = u64::from(range.start.saturating_sub(base));
            let to = u64::from((range.end - base).min(WINDOW_ROWS));
            let entries = &self.table[start as usize..end as usize];
            let row = |entry: u16| u64::from(entry >> 5 & 127) * 31 + u64::from(entry & 31);
            let first = entries.partition_point(|&entry| row(entry) <= from).saturating_sub(1);
            for (index, &entry) in entries.iter().enumerate().skip(first) {
                if row(entry) >= to {
                    break;
                }
                if entry >> 12 == 0 {
                    continue;
                }
                read += 1;
                let word = u32::from_le_bytes(self.words[start as usize + index]);
                let (zeros, ones) = unpack(word);
                let run = (row(entry) + zeros).max(from)..(row(entry) + zeros + ones).min(to);
                if run.start < run.end {
                    each(base + low32(run.start), base + low32(run.end) - 1);
                }
            }
        }
        Touched { read, skipped: self.words.len() - read }
    }
}
