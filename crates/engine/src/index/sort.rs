//! Sorts the rows of a column by digit: count, prefix-sum, scatter, in blocks that fit the cache.
//!
//! A column is cut into blocks of [`BLOCK_ROWS`]. The first step sorts the rows of each block into
//! 256 buckets by the highest eight bits that the column uses, in row order within a bucket; the
//! blocks are independent of each other. For a column of eight bits that is all: bucket and value
//! are the same. Otherwise the second step takes a bucket from all blocks together and sorts it by
//! the bits that are left; a bucket of a segment fits the cache again. Either way the rows of a
//! value come out ascending, and nothing is compared, hashed or allocated for a row or a value.

use std::ops::Range;

/// Rows in a block: its records take 4 MiB.
pub(super) const BLOCK_ROWS: usize = 1 << 20;

/// Buckets of the first step.
const BUCKETS: usize = 256;

/// In a record of two steps, where the bits for the second step start; the row of the block lies
/// below them.
const LOW_SHIFT: u32 = 24;
const _: () = assert!(BLOCK_ROWS <= 1 << LOW_SHIFT);

/// Where each bucket of a block starts, and where the last one ends.
pub(super) type Starts = [u32; BUCKETS + 1];

/// A digit of a row.
pub(super) trait Digit: Copy + Send + Sync {
    /// Its value.
    fn value(self) -> u32;
    /// All bits that are set in any of them.
    fn bits_used(digits: &[Self]) -> u32;
}

impl Digit for u8 {
    #[inline(always)]
    fn value(self) -> u32 {
        self.into()
    }
    fn bits_used(_: &[Self]) -> u32 {
        u8::MAX.into()
    }
}

impl Digit for u16 {
    #[inline(always)]
    fn value(self) -> u32 {
        self.into()
    }
    fn bits_used(digits: &[Self]) -> u32 {
        digits.iter().fold(0, |used, digit| used | digit).into()
    }
}

/// The low byte.
#[inline(always)]
#[expect(clippy::cast_possible_truncation, reason = "the low byte is what is asked for")]
fn low8(bits: u32) -> usize {
    usize::from(bits as u8)
}

/// A number of rows, which `u32` holds.
#[inline(always)]
#[expect(clippy::cast_possible_truncation, reason = "columns have fewer than 2^32 rows")]
pub(super) fn rows32(rows: usize) -> u32 {
    rows as u32
}

/// How the digits of a column are cut: the first step takes `value >> shift`, the second the rest.
#[derive(Debug, Clone, Copy)]
pub(super) struct Cut {
    shift: u32,
    /// The values to sort; rows with others are left out.
    values: (u32, u32),
}

impl Cut {
    /// The cut of a column in which these bits are used, for the rows of some values.
    pub(super) fn new(bits_used: u32, values: &Range<u32>) -> Self {
        let bits = u32::BITS - bits_used.leading_zeros();
        Self { shift: bits.saturating_sub(8), values: (values.start, values.end) }
    }

    /// Whether the first step leaves nothing to the second.
    pub(super) fn is_one_step(self) -> bool {
        self.shift == 0
    }

    /// The buckets that the values lie in.
    pub(super) fn buckets(self) -> Range<usize> {
        let (start, end) = self.values;
        let end = (end.div_ceil(1 << self.shift) as usize).min(BUCKETS);
        ((start >> self.shift) as usize).min(end)..end
    }

    /// The value of the rows in a bucket that have these bits left.
    pub(super) fn value(self, bucket: usize, low: usize) -> u32 {
        rows32(bucket) << self.shift | rows32(low)
    }
}

/// Counts four streams separately, so that equal neighbours do not wait for each other.
#[inline(always)]
fn count<T: Copy>(items: &[T], bucket: impl Fn(T) -> usize, counts: &mut [[u32; BUCKETS]; 4]) {
    let (fours, rest) = items.as_chunks::<4>();
    for four in fours {
        for (counts, &item) in counts.iter_mut().zip(four) {
            counts[bucket(item) % BUCKETS] += 1;
        }
    }
    for &item in rest {
        counts[0][bucket(item) % BUCKETS] += 1;
    }
}

/// Where each bucket starts, from the counts.
fn starts(counts: &[[u32; BUCKETS]; 4]) -> Starts {
    let mut starts = [0; BUCKETS + 1];
    let mut sum = 0;
    for bucket in 0..BUCKETS {
        starts[bucket] = sum;
        sum += counts.iter().map(|counts| counts[bucket]).sum::<u32>();
    }
    starts[BUCKETS] = sum;
    starts
}

/// The first step: sorts the rows of a block, which starts at row `base`, into buckets.
///
/// After one step a record is a row of the column; before a second one it is a row of the block
/// and the bits that are left.
pub(super) fn part<D: Digit>(cut: Cut, digits: &[D], base: u32, records: &mut [u32]) -> Starts {
    let Cut { shift, values: (start, end) } = cut;
    if start == 0 && end > u32::from(u16::MAX) {
        let mut counts = [[0; BUCKETS]; 4];
        count(digits, |digit| (digit.value() >> shift) as usize, &mut counts);
        let starts = starts(&counts);
        let each = (0..).zip(digits.iter().map(|digit| digit.value()));
        scatter(cut, &starts, each, base, records);
        return starts;
    }
    // Only some of the values: the rows of others are skipped.
    let wanted = |digit: &D| (start..end).contains(&digit.value());
    let mut counts = [[0; BUCKETS]; 4];
    for digit in digits.iter().filter(|digit| wanted(digit)) {
        counts[0][low8(digit.value() >> shift)] += 1;
    }
    let starts = starts(&counts);
    let each = (0..).zip(digits).filter(|(_, digit)| wanted(digit));
    scatter(cut, &starts, each.map(|(row, digit)| (row, digit.value())), base, records);
    starts
}

#[inline(always)]
fn scatter(
    cut: Cut,
    starts: &Starts,
    each: impl Iterator<Item = (u32, u32)>,
    base: u32,
    records: &mut [u32],
) {
    let mut next = [0; BUCKETS];
    next.copy_from_slice(&starts[..BUCKETS]);
    if cut.is_one_step() {
        for (row, value) in each {
            let place = &mut next[low8(value)];
            if let Some(record) = records.get_mut(*place as usize) {
                *record = base + row;
            }
            *place += 1;
        }
        return;
    }
    let low_bits = (1 << cut.shift) - 1;
    for (row, value) in each {
        let place = &mut next[low8(value >> cut.shift)];
        if let Some(record) = records.get_mut(*place as usize) {
            *record = (value & low_bits) << LOW_SHIFT | row;
        }
        *place += 1;
    }
}

/// The second step: a bucket, given as its records of each block and the row that the block starts
/// at, sorted by the bits that are left. The sorted rows are in `rows`, whose memory is used again;
/// the returned starts say where those of each value begin.
pub(super) fn sort_bucket<'r>(
    blocks: impl Iterator<Item = (u32, &'r [u32])> + Clone,
    rows: &mut Vec<u32>,
) -> Starts {
    let mut counts = [[0; BUCKETS]; 4];
    for (_, records) in blocks.clone() {
        count(records, |record| (record >> LOW_SHIFT) as usize, &mut counts);
    }
    let starts = starts(&counts);
    let len = starts[BUCKETS] as usize;
    if rows.len() < len {
        rows.resize(len, 0);
    }
    let rows = &mut rows[..len];
    let mut next = [0; BUCKETS];
    next.copy_from_slice(&starts[..BUCKETS]);
    for (base, records) in blocks {
        for &record in records {
            let place = &mut next[(record >> LOW_SHIFT) as usize];
            if let Some(row) = rows.get_mut(*place as usize) {
                *row = base + (record & ((1 << LOW_SHIFT) - 1));
            }
            *place += 1;
        }
    }
    starts
}
