//! Room for a chunk: where cursors gather ids and set operations leave their results.

use std::cell::RefCell;

use super::runs::{common_runs, gaps, ids_in_runs, is_full, join_runs, subtract_runs};
use super::{ARRAY_MAX, Bits, CHUNK_ROWS, Chunk, WORDS, for_words, id_of, or_word, run_bounds};
use super::{run_of, set_range};
use crate::cast::low16;
use crate::simd::{self, BitOp};

/// Cursors collect this many runs before they switch to a bitset.
const RUNS_MAX: usize = 256;

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
pub(crate) struct ChunkBuf {
    form: Form,
    /// Has room for [`simd::SLACK`] more ids than `ids_len` can ever be.
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

thread_local! {
    /// Buffers that are not in use.
    #[expect(clippy::vec_box, reason = "they go from room to room without being copied")]
    static SPARE: RefCell<Vec<Box<ChunkBuf>>> = const { RefCell::new(Vec::new()) };
}

/// The most buffers that a thread keeps: about a megabyte.
const SPARE_MAX: usize = 64;

/// A place for a buffer, which is taken when it is needed and can be given back in between.
///
/// A union of thousands of cursors looks at one after the other; if each kept a buffer, they would
/// take more memory than the index.
#[derive(Debug, Default)]
pub(crate) struct Room(Option<Box<ChunkBuf>>);

impl Room {
    /// The buffer; its content is left over from the last use, or from any other.
    #[inline]
    pub(crate) fn get(&mut self) -> &mut ChunkBuf {
        self.0.get_or_insert_with(|| {
            let spare = SPARE.try_with(|spare| spare.borrow_mut().pop());
            spare.ok().flatten().unwrap_or_default()
        })
    }

    /// Gives the buffer back.
    #[inline]
    pub(crate) fn release(&mut self) {
        if let Some(buffer) = self.0.take() {
            // While a thread ends, there is nothing left to keep it for.
            SPARE
                .try_with(|spare| {
                    let mut spare = spare.borrow_mut();
                    if spare.len() < SPARE_MAX {
                        spare.push(buffer);
                    }
                })
                .ok();
        }
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        self.release();
    }
}

impl ChunkBuf {
    /// The chunk in the buffer.
    pub(crate) fn chunk(&self) -> Chunk<'_> {
        match self.form {
            Form::Array => Chunk::Array(&self.ids[..self.ids_len]),
            Form::Bits => Chunk::Bits { bits: &self.bits.0, len: self.bits_len },
            Form::Runs => Chunk::Runs(&self.runs),
        }
    }

    /// Empties the buffer.
    pub(crate) fn clear(&mut self) {
        self.form = Form::Array;
        self.ids_len = 0;
    }

    /// Makes the buffer a copy of a chunk.
    pub(crate) fn copy_from(&mut self, chunk: Chunk<'_>) {
        match chunk {
            Chunk::Array(ids) => {
                self.ids[..ids.len()].copy_from_slice(ids);
                self.set_array(ids.len());
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

    /// Becomes the result of `op` on two chunks.
    pub(crate) fn combine(&mut self, op: BitOp, a: Chunk<'_>, b: Chunk<'_>) {
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
                let (mut left, mut right) = (Vec::new(), Vec::new());
                subtract_runs(a, b, &mut left);
                subtract_runs(b, a, &mut right);
                join_runs(&left, &right, self.start_runs());
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
                subtract_runs(a, b, self.start_runs());
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
    pub(crate) fn complement(&mut self, a: Chunk<'_>, last: u32) {
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

    /// Puts the chunk into the bitset, without counting its ids.
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
