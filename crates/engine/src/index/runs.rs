//! From the runs of a column to keys, offsets and bitmaps.
//!
//! If the packets of a flow are next to each other, a column seldom changes, and a list of its runs
//! is much shorter than the column. The work here grows with the runs, not with the rows:
//! neighbours with the same digit are merged, the runs are sorted by digit as [`sort`](super::sort)
//! sorts rows, and each digit's runs go through the codec's encoder as they are.

use std::ops::Range;

use tapdex_bitmap::{ALL_CODECS, Codec, Sizes};

use super::build::{BuildError, Builder, ColumnIndex, CpuBuilder, Digits};

/// Runs that [`RunBuilder::choose`] looks at, at most.
pub const RUNS_SAMPLED: usize = 200_000;

/// Buckets of a sorting step.
const BUCKETS: usize = 256;

/// Fewer runs than this are sorted by comparing: clearing and adding up the buckets costs more.
const COUNTED_FROM: usize = 64;

/// Digits that are compared at once to see whether all continue a run.
const SKIPPED: usize = 32;

/// Builds the index of a column from its runs.
///
/// The index is, byte for byte, the one that [`CpuBuilder`](super::CpuBuilder) builds from the
/// digit of every row. Besides the output, a builder holds up to 25 bytes a run, which it keeps for
/// the next column.
///
/// ```
/// # use tapdex_engine::index::{Builder, ColumnIndex, CpuBuilder, Digits, RunBuilder};
/// # use tapdex_bitmap::Codec;
/// let (mut from_runs, mut from_rows) = (ColumnIndex::default(), ColumnIndex::default());
/// // The digit of each run, the row it starts at, and the number of rows.
/// RunBuilder::new().build(&[6, 17, 6], &[0, 2, 3], 5, Codec::Wah, &mut from_runs)?;
/// let column = Digits::Bytes(&[6, 6, 17, 6, 6]);
/// CpuBuilder::new(1).build(column, Codec::Wah, &mut from_rows)?;
/// assert_eq!(from_runs, from_rows);
/// # Ok::<(), tapdex_engine::index::BuildError>(())
/// ```
#[derive(Debug)]
pub struct RunBuilder {
    merged: Merged,
    sorted: Sorted,
    ends: Vec<(u32, usize)>,
    /// For columns whose runs are hardly longer than a row, and room for their rows.
    by_rows: CpuBuilder,
    spread: Vec<u16>,
}

impl Default for RunBuilder {
    fn default() -> Self {
        Self::new()
    }
}

/// The maximal runs of a column, in row order. The vectors only grow.
#[derive(Debug, Default)]
struct Merged {
    /// The digit of each run, and then spare room.
    digits: Vec<u16>,
    /// The row that each run starts at, then the row after the last run, and then spare room.
    starts: Vec<u32>,
    len: usize,
}

/// Room for sorting. The vectors only grow.
#[derive(Debug, Default)]
struct Sorted {
    /// The runs, as first and last row, sorted by the high bits of their digits.
    runs: Vec<(u32, u32)>,
    /// The low bits of each one's digit.
    lows: Vec<u8>,
    /// The runs of a bucket, or of a digit.
    bucket: Vec<(u32, u32)>,
    /// The digits and places of few runs, each as a [`ticket`].
    order: Vec<u32>,
}

impl RunBuilder {
    /// A builder that works on the thread that calls it.
    pub fn new() -> Self {
        Self {
            merged: Merged::default(),
            sorted: Sorted::default(),
            ends: Vec::new(),
            by_rows: CpuBuilder::new(1),
            spread: Vec::new(),
        }
    }

    /// Builds the index of the column in which run `i` has the digit `digits[i]` and starts at row
    /// `starts[i]`, and the last run ends at `rows`. Neighbours may have equal digits. The memory
    /// of `target` is used again.
    pub fn build(
        &mut self,
        digits: &[u16],
        starts: &[u32],
        rows: u32,
        codec: Codec,
        target: &mut ColumnIndex,
    ) -> Result<(), BuildError> {
        check_runs(digits, starts, rows)?;
        if count_changes(digits) >= (rows / 2) as usize {
            // Hardly fewer runs than rows: rows are sorted and encoded faster than runs.
            let mut spread_out = digits;
            if digits.len() < rows as usize {
                spread(digits, starts, rows, &mut self.spread);
                spread_out = &self.spread;
            }
            return self.by_rows.build(Digits::Shorts(spread_out), codec, target);
        }
        let Self { merged, sorted, ends, .. } = self;
        (target.codec, target.rows) = (codec, rows);
        let mut part = target.clear().pop().unwrap_or_default();
        ends.clear();
        merged.merge(digits, starts, rows, usize::MAX);
        sorted.for_each_digit(merged, |digit, runs| {
            codec.encode_runs(runs, &mut part);
            ends.push((digit.into(), part.len()));
        });
        target.append(ends, part);
        Ok(())
    }

    /// The codec for such a column: Roaring, which is searched fastest, unless another one, HiPES
    /// aside, makes its bitmaps smaller by three tenths or more. Only the first runs of a column
    /// with more than [`RUNS_SAMPLED`] runs are looked at.
    pub fn choose(
        &mut self,
        digits: &[u16],
        starts: &[u32],
        rows: u32,
    ) -> Result<Codec, BuildError> {
        check_runs(digits, starts, rows)?;
        let mut sizes = Sizes::default();
        self.merged.merge(digits, starts, rows, RUNS_SAMPLED);
        self.sorted.for_each_digit(&self.merged, |_, runs| sizes.add(&Sizes::of_runs(runs)));
        let bytes = |codec| sizes.of_codec(codec).unwrap_or(u64::MAX);
        let codecs = ALL_CODECS.into_iter().filter(|codec| !matches!(codec, Codec::Hipes(_)));
        let smallest = codecs.min_by_key(|&codec| (bytes(codec), codec.id()));
        let smallest = smallest.unwrap_or(Codec::Roaring);
        let saves = bytes(smallest).saturating_mul(10) <= bytes(Codec::Roaring).saturating_mul(7);
        Ok(if saves { smallest } else { Codec::Roaring })
    }
}

/// Whether the runs partition the rows: as many digits as starts, the first start 0, each of the
/// others above the one before, all below `rows`.
pub fn check_runs(digits: &[u16], starts: &[u32], rows: u32) -> Result<(), BuildError> {
    let after = starts.get(1..).unwrap_or_default();
    // Looks at all of them: that is faster than stopping at the first bad one, which is not
    // expected.
    let ascend = starts.iter().zip(after).fold(true, |good, (start, end)| good & (start < end));
    let in_rows = match (starts.first(), starts.last()) {
        (Some(&first), Some(&last)) => first == 0 && last < rows,
        _ => rows == 0,
    };
    if ascend && in_rows && digits.len() == starts.len() {
        return Ok(());
    }
    Err(BuildError::BadRuns { digits: digits.len(), starts: starts.len(), rows })
}

/// How many digits differ from the one before.
fn count_changes(digits: &[u16]) -> usize {
    // Blocks whose counts fit into the type of a digit, so that a vector has as many counters as
    // digits.
    const BLOCK: usize = 1 << 14;
    let pairs = digits.chunks(BLOCK).zip(digits.get(1..).unwrap_or_default().chunks(BLOCK));
    let count =
        |(a, b): (&[u16], &[u16])| a.iter().zip(b).map(|(a, b)| u16::from(a != b)).sum::<u16>();
    pairs.map(count).map(usize::from).sum()
}

/// Writes the digit of every row.
fn spread(digits: &[u16], starts: &[u32], rows: u32, target: &mut Vec<u16>) {
    /// Written for every run, so that short ones need no branch.
    const SHORT: usize = 4;
    target.resize(rows as usize + SHORT, 0);
    let mut fill = |digit: u16, start: u32, end: u32| {
        let run = &mut target[start as usize..(end as usize).max(start as usize + SHORT)];
        let (short, rest) = run.split_at_mut(SHORT);
        short.fill(digit);
        if !rest.is_empty() {
            rest.fill(digit);
        }
    };
    for (&digit, bounds) in digits.iter().zip(starts.windows(2)) {
        fill(digit, bounds[0], bounds[1]);
    }
    if let (Some(&digit), Some(&start)) = (digits.last(), starts.last()) {
        fill(digit, start, rows);
    }
    target.truncate(rows as usize);
}

impl Merged {
    /// Merges neighbours with equal digits; stops when there are `runs_max` runs, or a few more.
    fn merge(&mut self, digits: &[u16], starts: &[u32], rows: u32, runs_max: usize) {
        let room = digits.len() + 1;
        if self.digits.len() < room {
            self.digits.resize(room, 0);
            self.starts.resize(room, 0);
        }
        self.len = 0;
        let Some(&first) = digits.first() else { return };
        // Anything but the first digit.
        let mut before = !first;
        let (mut len, mut rows_end) = (0, rows);
        let (digits_out, starts_out) = (&mut self.digits[..room], &mut self.starts[..room]);
        for (digits, starts) in digits.chunks(SKIPPED).zip(starts.chunks(SKIPPED)) {
            if len >= runs_max {
                rows_end = starts[0];
                break;
            }
            if digits.iter().fold(0, |differ, digit| differ | digit ^ before) == 0 {
                continue;
            }
            // Each run is written; if it has the digit of the one before, the next run overwrites
            // it.
            for (&digit, &start) in digits.iter().zip(starts) {
                digits_out[len] = digit;
                starts_out[len] = start;
                len += usize::from(digit != before);
                before = digit;
            }
        }
        starts_out[len] = rows_end;
        self.len = len;
    }

    /// The digit of each run, with its first and its last row.
    #[inline(always)]
    fn runs(&self) -> impl Iterator<Item = (u16, (u32, u32))> {
        let starts = &self.starts[..=self.len];
        let bounds = starts.iter().zip(&starts[1..]);
        self.digits[..self.len]
            .iter()
            .zip(bounds)
            .map(|(&digit, (&start, &end))| (digit, (start, end - 1)))
    }
}

impl Sorted {
    /// Calls `each` for every digit that occurs, ascending, with its runs.
    fn for_each_digit(&mut self, merged: &Merged, mut each: impl FnMut(u16, &[(u32, u32)])) {
        let Self { runs, lows, bucket, order } = self;
        let len = merged.len;
        if len < COUNTED_FROM {
            order.clear();
            order.extend(
                merged.digits[..len].iter().zip(0..).map(|(&digit, place)| ticket(digit, place)),
            );
            let run_at = |place: usize| (merged.starts[place], merged.starts[place + 1] - 1);
            return for_each_of_few(order, run_at, bucket, each);
        }
        if runs.len() < len {
            runs.resize(len, (0, 0));
        }
        let bits_used = merged.digits[..len].iter().fold(0, |used, digit| used | digit);
        let shift = (u16::BITS - bits_used.leading_zeros()).saturating_sub(8);
        let starts = starts(merged.digits[..len].iter().map(|digit| digit >> shift));
        let mut next = starts;
        if shift == 0 {
            for (digit, run) in merged.runs() {
                runs[advance(&mut next, digit)] = run;
            }
            for (digit, range) in ranges(&starts) {
                each(digit, &runs[range]);
            }
            return;
        }
        if lows.len() < len {
            lows.resize(len, 0);
        }
        let low_mask = u8::MAX >> (8 - shift);
        for (digit, run) in merged.runs() {
            let place = advance(&mut next, digit >> shift);
            runs[place] = run;
            lows[place] = digit.to_le_bytes()[0] & low_mask;
        }
        for (high, range) in ranges(&starts) {
            let (runs, lows) = (&runs[range.clone()], &lows[range]);
            let high = high << shift;
            if runs.len() < COUNTED_FROM {
                order.clear();
                let digits = lows.iter().map(|&low| high | u16::from(low));
                order.extend(digits.zip(0..).map(|(digit, place)| ticket(digit, place)));
                for_each_of_few(order, |place| runs[place], bucket, &mut each);
                continue;
            }
            if bucket.len() < runs.len() {
                bucket.resize(runs.len(), (0, 0));
            }
            let starts = self::starts(lows.iter().map(|&low| low.into()));
            let mut next = starts;
            for (&low, &run) in lows.iter().zip(runs) {
                bucket[advance(&mut next, low.into())] = run;
            }
            for (low, range) in ranges(&starts) {
                each(high | low, &bucket[range]);
            }
        }
    }
}

/// Where each bucket starts, and where the last one ends.
type Starts = [u32; BUCKETS + 1];

/// Where each bucket starts, from the bucket of every item.
#[inline(always)]
fn starts(buckets: impl Iterator<Item = u16>) -> Starts {
    let mut starts = [0; BUCKETS + 1];
    for bucket in buckets {
        starts[usize::from(bucket) % BUCKETS + 1] += 1;
    }
    for bucket in 0..BUCKETS {
        starts[bucket + 1] += starts[bucket];
    }
    starts
}

/// The next free place of a bucket.
#[inline(always)]
fn advance(next: &mut Starts, bucket: u16) -> usize {
    let next = &mut next[usize::from(bucket) % BUCKETS];
    *next += 1;
    (*next - 1) as usize
}

/// The buckets that are not empty, and where their items lie.
fn ranges(starts: &Starts) -> impl Iterator<Item = (u16, Range<usize>)> {
    let bounds = starts.iter().zip(&starts[1..]).zip(0..);
    let full = bounds.filter(|((start, end), _)| start < end);
    full.map(|((&start, &end), bucket)| (bucket, start as usize..end as usize))
}

/// A digit and a place below [`COUNTED_FROM`] in one number, which sorts by digit and then by
/// place.
#[inline(always)]
fn ticket(digit: u16, place: u32) -> u32 {
    u32::from(digit) << TICKET_SHIFT | place
}

const TICKET_SHIFT: u32 = 16;
const _: () = assert!(COUNTED_FROM <= 1 << TICKET_SHIFT);

/// Sorts few tickets and calls `each` for every digit, ascending, with its runs.
fn for_each_of_few(
    tickets: &mut [u32],
    run_at: impl Fn(usize) -> (u32, u32),
    room: &mut Vec<(u32, u32)>,
    mut each: impl FnMut(u16, &[(u32, u32)]),
) {
    tickets.sort_unstable();
    for same in tickets.chunk_by(|a, b| a >> TICKET_SHIFT == b >> TICKET_SHIFT) {
        room.clear();
        room.extend(
            same.iter().map(|ticket| run_at((ticket & ((1 << TICKET_SHIFT) - 1)) as usize)),
        );
        if let Ok(digit) = u16::try_from(same[0] >> TICKET_SHIFT) {
            each(digit, room);
        }
    }
}
