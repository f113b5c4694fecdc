//! Sorts the rows of a column by digit: count, prefix-sum, scatter, in blocks that fit the cache.
//!
//! A column is cut into blocks of [`BLOCK_ROWS`], which are the chunks of bitmaps. The first step
//! sorts the rows of each block into 256 buckets by the highest eight bits that the column uses, in
//! row order within a bucket; the blocks are independent of each other. A row takes two bytes in
//! its block, so the rows of a block lie in the cache while they are sorted, on every processor.
//! For a column of eight bits that is all: bucket and value are the same. Otherwise the bits that
//! are left are kept beside the rows, and the second step takes a bucket from all blocks together
//! and sorts it by them; a bucket of a segment fits the cache again. Either way the rows of a value
//! come out ascending, and nothing is compared, hashed or allocated for a row or a value.

use std::ops::Range;

use tapdex_bitmap::chunk::{CHUNK_ROWS, Ids16};

/// Rows in a block: the places of a block are numbers of 16 bits.
pub(super) const BLOCK_ROWS: usize = CHUNK_ROWS as usize;

/// Buckets of the first step.
const BUCKETS: usize = 256;

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

/// The low half.
#[inline(always)]
#[expect(clippy::cast_possible_truncation, reason = "the low half is what is asked for")]
fn low16(number: u32) -> u16 {
    number as u16
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

/// The rows of a block, sorted into buckets: their places in the block, little-endian, and the bits
/// of their digits that are left for the second step, if there is one.
#[derive(Debug)]
pub(super) struct Sorted<'r> {
    /// The places.
    pub places: &'r mut Ids16,
    /// The bits that are left, or nothing.
    pub low: &'r mut [u8],
}

/// The first step: sorts the rows of a block into buckets.
pub(super) fn part<D: Digit>(cut: Cut, digits: &[D], sorted: &mut Sorted<'_>) -> Starts {
    // A shift that is known when compiling takes a third of the time of one that is not.
    match cut.shift {
        0 => part_by::<D, 0>(cut.values, digits, sorted),
        1 => part_by::<D, 1>(cut.values, digits, sorted),
        2 => part_by::<D, 2>(cut.values, digits, sorted),
        3 => part_by::<D, 3>(cut.values, digits, sorted),
        4 => part_by::<D, 4>(cut.values, digits, sorted),
        5 => part_by::<D, 5>(cut.values, digits, sorted),
        6 => part_by::<D, 6>(cut.values, digits, sorted),
        7 => part_by::<D, 7>(cut.values, digits, sorted),
        _ => part_by::<D, 8>(cut.values, digits, sorted),
    }
}

fn part_by<D: Digit, const SHIFT: u32>(
    (start, end): (u32, u32),
    digits: &[D],
    sorted: &mut Sorted<'_>,
) -> Starts {
    let mut counts = [[0; BUCKETS]; 4];
    if start == 0 && end > u32::from(u16::MAX) {
        count(digits, |digit| low8(digit.value() >> SHIFT), &mut counts);
        let starts = starts(&counts);
        scatter::<SHIFT>(&starts, (0..).zip(digits.iter().map(|digit| digit.value())), sorted);
        return starts;
    }
    // Only some of the values: the rows of others are skipped.
    let wanted = |digit: &D| (start..end).contains(&digit.value());
    for digit in digits.iter().filter(|digit| wanted(digit)) {
        counts[0][low8(digit.value() >> SHIFT)] += 1;
    }
    let starts = starts(&counts);
    let each = (0..).zip(digits).filter(|(_, digit)| wanted(digit));
    scatter::<SHIFT>(&starts, each.map(|(place, digit)| (place, digit.value())), sorted);
    starts
}

/// A list for a whole block: a number of 16 bits is always a place in it.
type Whole<T> = [T; BLOCK_ROWS];

#[inline(always)]
fn scatter<const SHIFT: u32>(
    starts: &Starts,
    each: impl Iterator<Item = (u32, u32)>,
    Sorted { places, low }: &mut Sorted<'_>,
) {
    if SHIFT == 0 {
        return match <&mut Whole<[u8; 2]>>::try_from(&mut **places) {
            Ok(places) => scatter_by::<SHIFT>(starts, each, |at, place, _| {
                places[usize::from(low16(at))] = place;
            }),
            Err(_) => scatter_by::<SHIFT>(starts, each, |at, place, _| {
                if let Some(slot) = places.get_mut(at as usize) {
                    *slot = place;
                }
            }),
        };
    }
    let whole =
        (<&mut Whole<[u8; 2]>>::try_from(&mut **places), <&mut Whole<u8>>::try_from(&mut **low));
    if let (Ok(places), Ok(low)) = whole {
        return scatter_by::<SHIFT>(starts, each, |at, place, bits| {
            places[usize::from(low16(at))] = place;
            low[usize::from(low16(at))] = bits;
        });
    }
    scatter_by::<SHIFT>(starts, each, |at, place, bits| {
        if let (Some(slot), Some(rest)) = (places.get_mut(at as usize), low.get_mut(at as usize)) {
            (*slot, *rest) = (place, bits);
        }
    });
}

/// Hands each row to `put`: where it belongs, its place in the block, and the bits that are left.
#[inline(always)]
fn scatter_by<const SHIFT: u32>(
    starts: &Starts,
    each: impl Iterator<Item = (u32, u32)>,
    mut put: impl FnMut(u32, [u8; 2], u8),
) {
    let mut next = [0; BUCKETS];
    next.copy_from_slice(&starts[..BUCKETS]);
    for (place, value) in each {
        let at = &mut next[low8(value >> SHIFT)];
        put(*at, low16(place).to_le_bytes(), low_bits::<SHIFT>(value));
        *at += 1;
    }
}

/// The bits of a value below its highest eight.
#[inline(always)]
fn low_bits<const SHIFT: u32>(value: u32) -> u8 {
    (value & ((1 << SHIFT) - 1)).to_le_bytes()[0]
}

/// The second step: sorts a bucket by the bits that are left of its digits. They are given block by
/// block, alone, and once more with the row that the block starts at and the places of the rows.
/// The sorted rows are in `rows`, whose memory is used again; the returned starts say where those
/// of each value begin.
pub(super) fn sort_bucket<'r>(
    low: impl Iterator<Item = &'r [u8]>,
    blocks: impl Iterator<Item = (u32, &'r Ids16, &'r [u8])>,
    rows: &mut Vec<u32>,
) -> Starts {
    let mut counts = [[0; BUCKETS]; 4];
    for low in low {
        count(low, usize::from, &mut counts);
    }
    let starts = starts(&counts);
    let len = starts[BUCKETS] as usize;
    if rows.len() < len {
        rows.resize(len, 0);
    }
    let rows = &mut rows[..len];
    let mut next = [0; BUCKETS];
    next.copy_from_slice(&starts[..BUCKETS]);
    for (base, places, low) in blocks {
        for (&place, &low) in places.iter().zip(low) {
            let at = &mut next[usize::from(low)];
            if let Some(row) = rows.get_mut(*at as usize) {
                *row = base | u32::from(u16::from_le_bytes(place));
            }
            *at += 1;
        }
    }
    starts
}
