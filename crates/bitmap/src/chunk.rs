//! A chunk: the ids of one stretch of 65,536 rows, in one of three forms.
//!
//! Every codec can show its set chunk by chunk, and every set operation works on a pair of chunks
//! (see [`Chunks`](crate::Chunks)). The forms are the containers of the Roaring format byte for
//! byte, little-endian and without alignment, so a chunk of a Roaring or HiPES bitmap is a slice
//! of its encoded bytes and nothing is copied to compute with it:
//!
//! ```text
//! Array  [u16 id] ...                    ascending, at most 4,096 are written
//! Bits   [u64; 1024]                     id i is bit i % 64 of word i / 64
//! Runs   [u16 first, u16 length - 1] ... ascending, apart
//! ```
//!
//! Ids in a chunk are 16 bits: the row's distance from the chunk's first row.

mod buffer;
mod runs;

pub(crate) use buffer::{ChunkBuf, Room};
use runs::{common_runs, ids_in_runs, is_full};

use crate::cast::{len32, low16};
use crate::simd::{self, BitOp};

/// Rows in a chunk.
pub const CHUNK_ROWS: u32 = 1 << 16;
/// The key after the last that a chunk can have.
pub(crate) const KEYS_END: u32 = 1 << 16;
/// Ids above which the bitset of 8,192 bytes is smaller than the array of ids.
pub const ARRAY_MAX: usize = 4096;
/// Words of 64 bits in a chunk's bitset.
pub(crate) const WORDS: usize = 1024;

/// A bitset of one chunk: 1,024 little-endian words.
pub type Bits = [[u8; 8]; WORDS];
/// The ids of an array chunk, each a little-endian `u16`.
pub type Ids16 = [[u8; 2]];
/// The runs of a chunk: little-endian first id and length less one.
pub type Runs16 = [[u8; 4]];

/// The ids of one chunk; see the [module](self) for the layout.
#[derive(Debug, Clone, Copy)]
pub enum Chunk<'a> {
    /// Ascending ids, at most [`ARRAY_MAX`].
    Array(&'a Ids16),
    /// One bit a row, and how many are set.
    Bits {
        /// The bits.
        bits: &'a Bits,
        /// How many of them are set.
        len: u32,
    },
    /// Ascending runs in the chunk that neither touch nor overlap.
    Runs(&'a Runs16),
}

/// A chunk, or two bitsets that are still to be combined, so that the caller can write the result
/// to its place while combining them.
#[derive(Debug, Clone, Copy)]
pub enum Loaded<'a> {
    /// The chunk.
    Chunk(Chunk<'a>),
    /// Two bitsets, what to do with them, and the least number of ids in the result.
    Pair {
        /// The operation on their bits.
        op: BitOp,
        /// The first.
        a: &'a Bits,
        /// The second.
        b: &'a Bits,
        /// The least number of bits that will be set.
        len_min: u32,
    },
}

/// The first and the last id of a run.
#[inline(always)]
pub(crate) fn run_bounds(run: [u8; 4]) -> (u32, u32) {
    let first = u32::from(u16::from_le_bytes([run[0], run[1]]));
    (first, first + u32::from(u16::from_le_bytes([run[2], run[3]])))
}

/// The run from `first` to `last`, both in the chunk.
#[inline(always)]
pub(crate) fn run_of(first: u32, last: u32) -> [u8; 4] {
    let (a, b) = (low16(first).to_le_bytes(), low16(last - first).to_le_bytes());
    [a[0], a[1], b[0], b[1]]
}

/// An id of an array chunk as a number.
#[inline(always)]
pub(crate) fn id_of(id: [u8; 2]) -> u32 {
    u32::from(u16::from_le_bytes(id))
}

/// Word `index` of a bitset as a number.
#[inline(always)]
pub(crate) fn word_of(bits: &Bits, index: usize) -> u64 {
    u64::from_le_bytes(bits[index])
}

#[inline(always)]
pub(crate) fn has_bit(bits: &Bits, id: u32) -> bool {
    bits[(id >> 6) as usize % WORDS][(id >> 3) as usize % 8] >> (id & 7) & 1 != 0
}

#[inline(always)]
pub(crate) fn set_bit(bits: &mut Bits, id: u32) {
    let word = &mut bits[(id >> 6) as usize % WORDS];
    *word = (u64::from_le_bytes(*word) | 1 << (id & 63)).to_le_bytes();
}

/// Sets the bits of `word`, counted from `base`; all of them lie in the chunk.
#[inline(always)]
pub(crate) fn or_word(bits: &mut Bits, base: u32, word: u32) {
    let index = (base >> 6) as usize % WORDS;
    let low = u64::from(word) << (base & 63);
    bits[index] = (u64::from_le_bytes(bits[index]) | low).to_le_bytes();
    if base & 63 > 32 && index + 1 < WORDS {
        let high = u64::from(word) >> (64 - (base & 63));
        bits[index + 1] = (u64::from_le_bytes(bits[index + 1]) | high).to_le_bytes();
    }
}

/// Calls `change` on the words of `first..=last` with a mask of the bits that lie in that range.
#[inline(always)]
fn for_words(bits: &mut Bits, first: u32, last: u32, change: impl Fn(u64, u64) -> u64) {
    let (head, tail) = ((first >> 6) as usize % WORDS, (last >> 6) as usize % WORDS);
    let (head_mask, tail_mask) = (u64::MAX << (first & 63), u64::MAX >> (63 - (last & 63)));
    let apply = |word: &mut [u8; 8], mask: u64| {
        *word = change(u64::from_le_bytes(*word), mask).to_le_bytes();
    };
    if head == tail {
        return apply(&mut bits[head], head_mask & tail_mask);
    }
    apply(&mut bits[head], head_mask);
    bits[head + 1..tail].iter_mut().for_each(|word| apply(word, u64::MAX));
    apply(&mut bits[tail], tail_mask);
}

pub(crate) fn set_range(bits: &mut Bits, first: u32, last: u32) {
    for_words(bits, first, last, |word, mask| word | mask);
}

/// How many bits of `first..=last` are set.
fn count_range(bits: &Bits, first: u32, last: u32) -> u32 {
    let (head, tail) = ((first >> 6) as usize, (last >> 6) as usize);
    let (head_mask, tail_mask) = (u64::MAX << (first & 63), u64::MAX >> (63 - (last & 63)));
    if head == tail {
        return (word_of(bits, head) & head_mask & tail_mask).count_ones();
    }
    let ends = (word_of(bits, head) & head_mask).count_ones()
        + (word_of(bits, tail) & tail_mask).count_ones();
    ends + simd::count(&bits[head + 1..tail])
}

impl Chunk<'_> {
    /// How many ids the chunk holds.
    pub fn len(&self) -> u32 {
        match self {
            Chunk::Array(ids) => len32(ids.len()),
            Chunk::Bits { len, .. } => *len,
            Chunk::Runs(runs) => runs.iter().map(|&run| run_len(run)).sum(),
        }
    }

    /// Whether there is no id in the chunk.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether the id, counted from the chunk's first row, is in it.
    pub fn contains(&self, id: u16) -> bool {
        match self {
            Chunk::Array(ids) => ids.binary_search_by_key(&id, |&x| u16::from_le_bytes(x)).is_ok(),
            Chunk::Bits { bits, .. } => has_bit(bits, id.into()),
            Chunk::Runs(runs) => {
                let after = runs.partition_point(|&run| run_bounds(run).0 <= id.into());
                after > 0 && u32::from(id) <= run_bounds(runs[after - 1]).1
            }
        }
    }

    /// How many ids of the chunk are at most `id`.
    pub fn rank(&self, id: u16) -> u32 {
        let id = u32::from(id);
        match self {
            Chunk::Array(ids) => len32(ids.partition_point(|&x| id_of(x) <= id)),
            Chunk::Bits { bits, .. } => count_range(bits, 0, id),
            Chunk::Runs(runs) => {
                let bounds = runs.iter().map(|&run| run_bounds(run));
                bounds.take_while(|run| run.0 <= id).map(|(a, b)| b.min(id) - a + 1).sum()
            }
        }
    }

    /// The id that has `n` smaller ids in the chunk.
    pub fn select(&self, mut n: u32) -> Option<u16> {
        match self {
            Chunk::Array(ids) => ids.get(n as usize).map(|&id| u16::from_le_bytes(id)),
            Chunk::Bits { bits, .. } => {
                for (base, word) in (0..).step_by(64).zip(bits.iter()) {
                    let mut word = u64::from_le_bytes(*word);
                    if n < word.count_ones() {
                        (0..n).for_each(|_| word &= word - 1);
                        return Some(low16(base + word.trailing_zeros()));
                    }
                    n -= word.count_ones();
                }
                None
            }
            Chunk::Runs(runs) => {
                for &run in *runs {
                    if n < run_len(run) {
                        return Some(low16(run_bounds(run).0 + n));
                    }
                    n -= run_len(run);
                }
                None
            }
        }
    }

    /// Calls `each` with the first and last id of every maximal run, ascending.
    pub fn for_each_run(&self, mut each: impl FnMut(u32, u32)) {
        match self {
            Chunk::Array(ids) => {
                let mut rest = ids.iter().map(|&id| id_of(id)).peekable();
                while let Some(first) = rest.next() {
                    let mut last = first;
                    while rest.next_if_eq(&(last + 1)).is_some() {
                        last += 1;
                    }
                    each(first, last);
                }
            }
            Chunk::Bits { bits, .. } => {
                // If a bit differs from the one before it, a run begins or has just ended.
                let (mut before, mut first, mut inside) = (0, 0, false);
                for (base, word) in (0..).step_by(64).zip(bits.iter()) {
                    let word = u64::from_le_bytes(*word);
                    let mut turns = word ^ (word << 1 | before);
                    before = word >> 63;
                    while turns != 0 {
                        let at = base + turns.trailing_zeros();
                        turns &= turns - 1;
                        if inside {
                            each(first, at - 1);
                        }
                        (first, inside) = (at, !inside);
                    }
                }
                if inside {
                    each(first, CHUNK_ROWS - 1);
                }
            }
            Chunk::Runs(runs) => runs.iter().map(|&run| run_bounds(run)).for_each(|(a, b)| {
                each(a, b);
            }),
        }
    }

    /// Appends the ids, counted from row 0 when the chunk's key is `key`.
    pub fn push_ids(&self, key: u32, target: &mut Vec<u32>) {
        let base = key << 16;
        match self {
            Chunk::Array(ids) => target.extend(ids.iter().map(|&id| base | id_of(id))),
            Chunk::Bits { bits, len } => simd::push_bits(bits, base, *len, target),
            Chunk::Runs(runs) => {
                for (first, last) in runs.iter().map(|&run| run_bounds(run)) {
                    target.extend(base | first..=base | last);
                }
            }
        }
    }

    /// Adds the ids of the chunk to a bitset.
    pub fn or_into(&self, target: &mut Bits) {
        self.change(target, |word, mask| word | mask);
    }

    /// Flips the ids of the chunk in a bitset.
    fn xor_into(&self, target: &mut Bits) {
        self.change(target, |word, mask| word ^ mask);
    }

    /// Removes the ids of the chunk from a bitset.
    fn clear_in(&self, target: &mut Bits) {
        self.change(target, |word, mask| word & !mask);
    }

    /// Calls `change` on words of a bitset that may hold ids of the chunk, with a mask of those.
    #[inline(always)]
    fn change(&self, target: &mut Bits, change: impl Fn(u64, u64) -> u64 + Copy) {
        let apply = |word: &mut [u8; 8], mask: u64| {
            *word = change(u64::from_le_bytes(*word), mask).to_le_bytes();
        };
        match self {
            Chunk::Array(ids) => {
                for id in ids.iter().map(|&id| id_of(id)) {
                    apply(&mut target[(id >> 6) as usize % WORDS], 1 << (id & 63));
                }
            }
            Chunk::Bits { bits, .. } => {
                for (word, &mask) in target.iter_mut().zip(bits.iter()) {
                    apply(word, u64::from_le_bytes(mask));
                }
            }
            Chunk::Runs(runs) => {
                for (first, last) in runs.iter().map(|&run| run_bounds(run)) {
                    for_words(target, first, last, change);
                }
            }
        }
    }
}

fn run_len(run: [u8; 4]) -> u32 {
    u32::from(u16::from_le_bytes([run[2], run[3]])) + 1
}

/// How many ids are in both chunks; nothing is written anywhere.
pub fn and_count(a: Chunk<'_>, b: Chunk<'_>) -> u32 {
    match (a, b) {
        (Chunk::Array(a), Chunk::Array(b)) => simd::and_count_arrays(a, b),
        (Chunk::Bits { bits: a, .. }, Chunk::Bits { bits: b, .. }) => simd::and_count(a, b),
        (Chunk::Array(ids), Chunk::Bits { bits, .. })
        | (Chunk::Bits { bits, .. }, Chunk::Array(ids)) => {
            ids.iter().map(|&id| u32::from(has_bit(bits, id_of(id)))).sum()
        }
        (Chunk::Runs(runs), Chunk::Bits { bits, len })
        | (Chunk::Bits { bits, len }, Chunk::Runs(runs)) => {
            if is_full(runs) {
                return len;
            }
            runs.iter().map(|&run| run_bounds(run)).map(|(a, b)| count_range(bits, a, b)).sum()
        }
        (Chunk::Runs(runs), Chunk::Array(ids)) | (Chunk::Array(ids), Chunk::Runs(runs)) => {
            let mut count = 0;
            ids_in_runs(ids, runs, |ids| count += len32(ids.len()));
            count
        }
        (Chunk::Runs(a), Chunk::Runs(b)) => {
            let mut count = 0;
            common_runs(a, b, |first, last| count += last - first + 1);
            count
        }
    }
}

/// The index of the first id that is at least `id`, found in steps that double.
pub(crate) fn gallop(ids: &Ids16, id: u32) -> usize {
    let mut step = 1;
    while step < ids.len() && id_of(ids[step]) < id {
        step *= 2;
    }
    let (low, high) = (step / 2, ids.len().min(step + 1));
    low + ids[low..high].partition_point(|&x| id_of(x) < id)
}
