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

use crate::cast::{len32, low16};
use crate::simd::{self, BitOp};

/// Rows in a chunk.
pub const CHUNK_ROWS: u32 = 1 << 16;
/// Ids above which the bitset of 8,192 bytes is smaller than the array of ids.
pub const ARRAY_MAX: usize = 4096;
/// Words of 64 bits in a chunk's bitset.
pub(crate) const WORDS: usize = 1024;
/// Cursors collect this many runs before they switch to a bitset.
const RUNS_MAX: usize = 256;

/// A bitset of one chunk: 1,024 little-endian words.
pub type Bits = [[u8; 8]; WORDS];
/// The ids of an array chunk, each a little-endian `u16`.
pub type Ids16 = [[u8; 2]];
/// The runs of a chunk: little-endian first id and length less one.
pub type Runs16 = [[u8; 4]];

/// The ids of one chunk; see the [module](self) for the layout.
#[derive(Debug, Clone, Copy)]
pub enum Chunk<'a> {
    /// Ascending ids.
    Array(&'a Ids16),
    /// One bit a row, and how many are set.
    Bits {
        /// The bits.
        bits: &'a Bits,
        /// How many of them are set.
        len: u32,
    },
    /// Ascending runs that neither touch nor overlap.
    Runs(&'a Runs16),
}

/// A chunk, or two bitsets that are yet to be combined: whoever writes the result somewhere can
/// do so while combining them.
#[derive(Debug, Clone, Copy)]
pub enum Loaded<'a> {
    /// The chunk.
    Chunk(Chunk<'a>),
    /// Two bitsets, what to do with them, and how many ids the result has at least.
    Pair {
        /// What becomes of their bits.
        op: BitOp,
        /// The first.
        a: &'a Bits,
        /// The second.
        b: &'a Bits,
        /// How many bits will be set at least.
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

    /// The id that `n` others of the chunk lie below.
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
                // `open` is the first id of a run that reaches the end of the words seen so far.
                let mut open = None;
                for (base, word) in (0..).step_by(64).zip(bits.iter()) {
                    let mut word = u64::from_le_bytes(*word);
                    if let Some(first) = open {
                        if word == u64::MAX {
                            continue;
                        }
                        let ones = word.trailing_ones();
                        if base + ones > 0 {
                            each(first, base + ones - 1);
                        }
                        open = None;
                        word &= word.wrapping_add(1);
                    }
                    while word != 0 {
                        let first = word.trailing_zeros();
                        let ones = (word >> first).trailing_ones();
                        if first + ones == 64 {
                            open = Some(base + first);
                            break;
                        }
                        each(base + first, base + first + ones - 1);
                        word &= u64::MAX << (first + ones);
                    }
                }
                if let Some(first) = open {
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
        match self {
            Chunk::Array(ids) => ids.iter().for_each(|&id| set_bit(target, id_of(id))),
            Chunk::Bits { bits, .. } => simd::or_into(target, bits),
            Chunk::Runs(runs) => {
                runs.iter().map(|&run| run_bounds(run)).for_each(|(a, b)| set_range(target, a, b));
            }
        }
    }

    /// Flips the ids of the chunk in a bitset.
    fn xor_into(&self, target: &mut Bits) {
        match self {
            Chunk::Array(ids) => ids.iter().for_each(|&id| {
                let word = &mut target[(id_of(id) >> 6) as usize % WORDS];
                *word = (u64::from_le_bytes(*word) ^ 1 << (id_of(id) & 63)).to_le_bytes();
            }),
            Chunk::Bits { bits, .. } => {
                for (word, other) in target.iter_mut().zip(bits.iter()) {
                    *word = (u64::from_le_bytes(*word) ^ u64::from_le_bytes(*other)).to_le_bytes();
                }
            }
            Chunk::Runs(runs) => runs.iter().map(|&run| run_bounds(run)).for_each(|(a, b)| {
                for_words(target, a, b, |word, mask| word ^ mask);
            }),
        }
    }

    /// Removes the ids of the chunk from a bitset.
    fn clear_in(&self, target: &mut Bits) {
        match self {
            Chunk::Array(ids) => ids.iter().for_each(|&id| {
                let word = &mut target[(id_of(id) >> 6) as usize % WORDS];
                *word = (u64::from_le_bytes(*word) & !(1 << (id_of(id) & 63))).to_le_bytes();
            }),
            Chunk::Bits { bits, .. } => {
                for (word, other) in target.iter_mut().zip(bits.iter()) {
                    *word = (u64::from_le_bytes(*word) & !u64::from_le_bytes(*other)).to_le_bytes();
                }
            }
            Chunk::Runs(runs) => runs.iter().map(|&run| run_bounds(run)).for_each(|(a, b)| {
                for_words(target, a, b, |word, mask| word & !mask);
            }),
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

fn is_full(runs: &Runs16) -> bool {
    matches!(runs, [run] if run_bounds(*run) == (0, CHUNK_ROWS - 1))
}

/// Calls `each` with the slices of `ids` that lie in the runs.
fn ids_in_runs<'a>(mut ids: &'a Ids16, runs: &Runs16, mut each: impl FnMut(&'a Ids16)) {
    for (first, last) in runs.iter().map(|&run| run_bounds(run)) {
        ids = &ids[gallop(ids, first)..];
        let (inside, rest) = ids.split_at(gallop(ids, last + 1));
        each(inside);
        ids = rest;
        if ids.is_empty() {
            return;
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

/// Calls `each` with the common parts of two lists of runs.
#[inline(always)]
fn common_runs(a: &Runs16, b: &Runs16, mut each: impl FnMut(u32, u32)) {
    let bounds = |run: Option<&[u8; 4]>| run.map(|&run| run_bounds(run));
    let (mut a, mut b) = (a.iter(), b.iter());
    let (mut left, mut right) = (bounds(a.next()), bounds(b.next()));
    while let (Some(x), Some(y)) = (left, right) {
        // Runs that lie apart are the common case in sparse sets, so they are told first.
        if x.1 < y.0 {
            left = bounds(a.next());
        } else if y.1 < x.0 {
            right = bounds(b.next());
        } else {
            each(x.0.max(y.0), x.1.min(y.1));
            if x.1 <= y.1 {
                left = bounds(a.next());
            } else {
                right = bounds(b.next());
            }
        }
    }
}

/// Appends the runs of ids that are in a run of either list.
fn join_runs(a: &Runs16, b: &Runs16, target: &mut Vec<[u8; 4]>) {
    target.reserve(a.len() + b.len());
    // Past the end of a list stands a run that comes after all others.
    const END: (u32, u32) = (u32::MAX, u32::MAX);
    let (mut a, mut b) = (a.iter(), b.iter());
    let next = |list: &mut std::slice::Iter<[u8; 4]>| list.next().map_or(END, |&x| run_bounds(x));
    let (mut left, mut right) = (next(&mut a), next(&mut b));
    let mut open: Option<(u32, u32)> = None;
    loop {
        let run;
        if left.0 <= right.0 {
            run = left;
            left = next(&mut a);
        } else {
            run = right;
            right = next(&mut b);
        }
        open = match open {
            Some((first, last)) if run.0 <= last + 1 => Some((first, last.max(run.1))),
            Some((first, last)) => {
                target.push(run_of(first, last));
                Some(run)
            }
            None => Some(run),
        };
        if run == END {
            return;
        }
    }
}

/// Calls `each` with the runs of ids that lie in no run, up to and with `last`.
fn gaps(runs: &Runs16, last: u32, mut each: impl FnMut(u32, u32)) {
    let mut from = 0;
    for (a, b) in runs.iter().map(|&run| run_bounds(run)).take_while(|run| run.0 <= last) {
        if a > from {
            each(from, a - 1);
        }
        from = b + 1;
    }
    if from <= last {
        each(from, last);
    }
}

/// A bitset on a cache line of its own.
#[derive(Debug, Clone)]
#[repr(align(64))]
struct Lines(Bits);

/// Which of its three stores a [`ChunkBuf`] uses at the moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    Array,
    Bits,
    Runs,
}

/// Room for one chunk of any form: where a set operation leaves its result and where a cursor
/// gathers the ids of a run-length codec.
///
/// Pieces are pushed in ascending order. The buffer starts as an array, becomes a list of runs
/// when a long run comes early, and a bitset when either grows too long, so that sparse chunks
/// and chunks of few runs never pay for 1,024 words.
#[derive(Debug, Clone)]
pub struct ChunkBuf {
    form: Form,
    /// Room for [`simd::SLACK`] ids more than `ids_len` may ever say.
    ids: Box<[[u8; 2]]>,
    ids_len: usize,
    runs: Vec<[u8; 4]>,
    bits: Box<Lines>,
    bits_len: u32,
}

impl Default for ChunkBuf {
    fn default() -> Self {
        Self {
            form: Form::Array,
            ids: vec![[0; 2]; ARRAY_MAX + simd::SLACK].into_boxed_slice(),
            ids_len: 0,
            runs: Vec::new(),
            bits: Box::new(Lines([[0; 8]; WORDS])),
            bits_len: 0,
        }
    }
}

impl ChunkBuf {
    /// The chunk in the buffer.
    pub fn chunk(&self) -> Chunk<'_> {
        match self.form {
            Form::Array => Chunk::Array(&self.ids[..self.ids_len]),
            Form::Bits => Chunk::Bits { bits: &self.bits.0, len: self.bits_len },
            Form::Runs => Chunk::Runs(&self.runs),
        }
    }

    /// Empties the buffer.
    pub fn clear(&mut self) {
        self.form = Form::Array;
        self.ids_len = 0;
    }

    /// Makes the buffer a copy of a chunk.
    pub fn copy_from(&mut self, chunk: Chunk<'_>) {
        match chunk {
            Chunk::Array(ids) if ids.len() <= ARRAY_MAX => {
                self.ids[..ids.len()].copy_from_slice(ids);
                self.set_array(ids.len());
            }
            Chunk::Array(_) => {
                let bits = self.clear_bits();
                chunk.or_into(bits);
                self.set_bits(chunk.len());
            }
            Chunk::Bits { bits, len } => {
                self.bits.0.copy_from_slice(bits);
                self.set_bits(len);
            }
            Chunk::Runs(runs) => {
                self.start_runs().extend_from_slice(runs);
            }
        }
    }

    fn set_array(&mut self, len: usize) {
        self.form = Form::Array;
        self.ids_len = len;
    }

    fn set_bits(&mut self, len: u32) {
        self.form = Form::Bits;
        self.bits_len = len;
    }

    fn start_runs(&mut self) -> &mut Vec<[u8; 4]> {
        self.form = Form::Runs;
        self.runs.clear();
        &mut self.runs
    }

    fn clear_bits(&mut self) -> &mut Bits {
        self.bits.0.fill([0; 8]);
        &mut self.bits.0
    }

    /// Turns what was gathered so far into a bitset.
    #[cold]
    fn become_bits(&mut self) {
        self.bits.0.fill([0; 8]);
        let len = self.chunk().len();
        match self.form {
            Form::Array => Chunk::Array(&self.ids[..self.ids_len]).or_into(&mut self.bits.0),
            Form::Runs => Chunk::Runs(&self.runs).or_into(&mut self.bits.0),
            Form::Bits => {}
        }
        self.set_bits(len);
    }

    /// Adds the ids whose bits are set in `word`, counted from `base`.
    ///
    /// All of them lie in the chunk and above everything pushed before.
    #[inline]
    pub(crate) fn push_word(&mut self, base: u32, mut word: u32) {
        match self.form {
            Form::Array => {
                if self.ids_len + 32 > ARRAY_MAX {
                    self.become_bits();
                    return self.push_word(base, word);
                }
                while word != 0 {
                    self.ids[self.ids_len] = low16(base + word.trailing_zeros()).to_le_bytes();
                    self.ids_len += 1;
                    word &= word - 1;
                }
            }
            Form::Bits => {
                self.bits_len += word.count_ones();
                or_word(&mut self.bits.0, base, word);
            }
            Form::Runs => {
                while word != 0 {
                    let first = word.trailing_zeros();
                    let ones = (word >> first).trailing_ones();
                    self.push_run(base + first, base + first + ones - 1);
                    word &= u32::MAX.checked_shl(first + ones).unwrap_or(0);
                }
            }
        }
    }

    /// Adds a run of ids of the chunk, above everything pushed before.
    #[inline]
    pub(crate) fn push_run(&mut self, first: u32, last: u32) {
        match self.form {
            Form::Array => {
                if last - first < 32 {
                    let ones = u32::MAX >> (31 - (last - first));
                    self.push_word(first, ones);
                } else if self.ids_len <= RUNS_MAX / 4 {
                    self.runs.clear();
                    self.form = Form::Runs;
                    for index in 0..self.ids_len {
                        let id = id_of(self.ids[index]);
                        self.push_run(id, id);
                    }
                    self.push_run(first, last);
                } else {
                    self.become_bits();
                    self.push_run(first, last);
                }
            }
            Form::Bits => {
                set_range(&mut self.bits.0, first, last);
                self.bits_len += last - first + 1;
            }
            Form::Runs => {
                if let Some(run) = self.runs.last_mut()
                    && run_bounds(*run).1 + 1 == first
                {
                    *run = run_of(run_bounds(*run).0, last);
                } else if self.runs.len() < RUNS_MAX {
                    self.runs.push(run_of(first, last));
                } else {
                    self.become_bits();
                    self.push_run(first, last);
                }
            }
        }
    }

    /// Becomes what `op` makes of two chunks.
    pub fn combine(&mut self, op: BitOp, a: Chunk<'_>, b: Chunk<'_>) {
        match op {
            BitOp::And => self.and(a, b),
            BitOp::Or => self.or(a, b),
            BitOp::Xor => self.xor(a, b),
            BitOp::AndNot => self.and_not(a, b),
        }
    }

    /// Becomes the ids that are in both chunks.
    fn and(&mut self, a: Chunk<'_>, b: Chunk<'_>) {
        match (a, b) {
            (Chunk::Array(a), Chunk::Array(b)) => {
                let len = simd::and_arrays(a, b, &mut self.ids);
                self.set_array(len);
            }
            (Chunk::Bits { bits: a, .. }, Chunk::Bits { bits: b, .. }) => {
                let len = simd::zip(BitOp::And, a, b, &mut self.bits.0);
                self.set_bits(len);
            }
            (Chunk::Array(ids), Chunk::Bits { bits, .. })
            | (Chunk::Bits { bits, .. }, Chunk::Array(ids)) => {
                let len = simd::filter_array(ids, bits, &mut self.ids);
                self.set_array(len);
            }
            (Chunk::Runs(runs), other @ Chunk::Bits { .. })
            | (other @ Chunk::Bits { .. }, Chunk::Runs(runs)) => {
                if is_full(runs) {
                    return self.copy_from(other);
                }
                let Chunk::Bits { bits, .. } = other else { return };
                self.bits.0.copy_from_slice(bits);
                gaps(runs, CHUNK_ROWS - 1, |first, last| {
                    for_words(&mut self.bits.0, first, last, |word, mask| word & !mask);
                });
                let len = simd::count(&self.bits.0);
                self.set_bits(len);
            }
            (Chunk::Runs(runs), Chunk::Array(ids)) | (Chunk::Array(ids), Chunk::Runs(runs)) => {
                let mut len = 0;
                ids_in_runs(ids, runs, |ids| {
                    self.ids[len..len + ids.len()].copy_from_slice(ids);
                    len += ids.len();
                });
                self.set_array(len);
            }
            (Chunk::Runs(a), Chunk::Runs(b)) => {
                let runs = self.start_runs();
                common_runs(a, b, |first, last| runs.push(run_of(first, last)));
            }
        }
    }

    /// Becomes the ids that are in one of the chunks or in both.
    fn or(&mut self, a: Chunk<'_>, b: Chunk<'_>) {
        match (a, b) {
            (Chunk::Array(a), Chunk::Array(b)) if a.len() + b.len() <= ARRAY_MAX => {
                let len = simd::or_arrays(a, b, &mut self.ids);
                self.set_array(len);
            }
            (Chunk::Bits { bits: a, .. }, Chunk::Bits { bits: b, .. }) => {
                let len = simd::zip(BitOp::Or, a, b, &mut self.bits.0);
                self.set_bits(len);
            }
            (Chunk::Runs(a), Chunk::Runs(b)) => join_runs(a, b, self.start_runs()),
            (Chunk::Runs(runs), _) | (_, Chunk::Runs(runs)) if is_full(runs) => {
                self.copy_from(Chunk::Runs(runs));
            }
            (few, many @ Chunk::Bits { .. }) | (many, few) => {
                self.copy_to_bits(many);
                few.or_into(&mut self.bits.0);
                let len = simd::count(&self.bits.0);
                self.set_bits(len);
            }
        }
    }

    /// Becomes the ids that are in exactly one of the chunks.
    fn xor(&mut self, a: Chunk<'_>, b: Chunk<'_>) {
        match (a, b) {
            (Chunk::Array(a), Chunk::Array(b)) if a.len() + b.len() <= ARRAY_MAX => {
                let len = simd::xor_arrays(a, b, &mut self.ids);
                self.set_array(len);
            }
            (Chunk::Runs(a), Chunk::Runs(b)) => {
                // The ends of all runs in order: between an odd end and the next, one side is in.
                let runs = self.start_runs();
                let (mut a, mut b) = (RunEnds::new(a), RunEnds::new(b));
                let mut open = None;
                while let Some(at) = a.peek().min_some(b.peek()) {
                    let flips = a.take(at) != b.take(at);
                    match (flips, open) {
                        (true, None) => open = Some(at),
                        (true, Some(first)) => {
                            runs.push(run_of(first, at - 1));
                            open = None;
                        }
                        (false, _) => {}
                    }
                }
            }
            (Chunk::Bits { bits: a, .. }, Chunk::Bits { bits: b, .. }) => {
                let len = simd::zip(BitOp::Xor, a, b, &mut self.bits.0);
                self.set_bits(len);
            }
            _ => {
                self.copy_to_bits(a);
                b.xor_into(&mut self.bits.0);
                let len = simd::count(&self.bits.0);
                self.set_bits(len);
            }
        }
    }

    /// Becomes the ids of `a` that are not in `b`.
    fn and_not(&mut self, a: Chunk<'_>, b: Chunk<'_>) {
        match (a, b) {
            (Chunk::Array(a), Chunk::Array(b)) => {
                let len = simd::and_not_arrays(a, b, &mut self.ids);
                self.set_array(len);
            }
            (Chunk::Array(a), Chunk::Bits { bits, .. }) => {
                let len = simd::filter_array_not(a, bits, &mut self.ids);
                self.set_array(len);
            }
            (Chunk::Bits { bits: a, .. }, Chunk::Bits { bits: b, .. }) => {
                let len = simd::zip(BitOp::AndNot, a, b, &mut self.bits.0);
                self.set_bits(len);
            }
            (Chunk::Runs(a), Chunk::Runs(b)) => {
                let mut rest = Vec::with_capacity(b.len() + 1);
                gaps(b, CHUNK_ROWS - 1, |first, last| rest.push(run_of(first, last)));
                let runs = self.start_runs();
                common_runs(a, &rest, |first, last| runs.push(run_of(first, last)));
            }
            _ => {
                self.copy_to_bits(a);
                b.clear_in(&mut self.bits.0);
                let len = simd::count(&self.bits.0);
                self.set_bits(len);
            }
        }
    }

    /// Becomes the ids from 0 to `last` that are not in `a`.
    pub fn complement(&mut self, a: Chunk<'_>, last: u32) {
        match a {
            Chunk::Runs(runs) => {
                let target = self.start_runs();
                gaps(runs, last, |first, last| target.push(run_of(first, last)));
            }
            Chunk::Array(ids) if ids.len() < RUNS_MAX => {
                let target = self.start_runs();
                let mut from = 0;
                for id in ids.iter().map(|&id| id_of(id)).take_while(|&id| id <= last) {
                    if id > from {
                        target.push(run_of(from, id - 1));
                    }
                    from = id + 1;
                }
                if from <= last {
                    target.push(run_of(from, last));
                }
            }
            _ => {
                let bits = self.clear_bits();
                set_range(bits, 0, last);
                a.clear_in(bits);
                let len = simd::count(&self.bits.0);
                self.set_bits(len);
            }
        }
    }

    /// Puts the chunk into the bitset, without saying how many ids it holds.
    fn copy_to_bits(&mut self, chunk: Chunk<'_>) {
        match chunk {
            Chunk::Bits { bits, .. } => self.bits.0.copy_from_slice(bits),
            _ => {
                let bits = self.clear_bits();
                chunk.or_into(bits);
            }
        }
    }

    /// Lets `gather` add ids to an empty bitset, and becomes what it left there.
    pub(crate) fn gather(&mut self, gather: impl FnOnce(&mut Bits)) {
        gather(self.clear_bits());
        let len = simd::count(&self.bits.0);
        self.set_bits(len);
    }
}

/// The places where a list of runs goes in and out: first ids and ids after the last.
struct RunEnds<'a> {
    runs: &'a Runs16,
    inside: bool,
}

impl<'a> RunEnds<'a> {
    fn new(runs: &'a Runs16) -> Self {
        Self { runs, inside: false }
    }

    fn peek(&self) -> Option<u32> {
        let (first, last) = run_bounds(*self.runs.first()?);
        Some(if self.inside { last + 1 } else { first })
    }

    /// Passes the end at `at` and says whether there was one.
    fn take(&mut self, at: u32) -> bool {
        let found = self.peek() == Some(at);
        if found {
            if self.inside {
                self.runs = &self.runs[1..];
            }
            self.inside = !self.inside;
        }
        found
    }
}

/// The smaller of two numbers of which either may be missing.
trait MinSome {
    fn min_some(self, other: Self) -> Self;
}

impl MinSome for Option<u32> {
    fn min_some(self, other: Self) -> Self {
        match (self, other) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }
}
