//! From ids to words, a batch at a time: how the encoders of the run-length codecs write.
//!
//! An encoder that looks at one id after the other waits for branches that cannot be predicted. So
//! a batch of ids goes through steps that each do one thing to all of it: gather the ids into
//! groups or runs, compute the words of each, and drop the places that have none. A codec only
//! provides plain code for one item, which the compiler turns into vector code here.

use super::scalar;
#[cfg(target_arch = "x86_64")]
use super::x86;
use crate::chunk::Ids16;

/// The most ids in a batch.
pub(crate) const BATCH: usize = 256;
/// Items of a batch and room for a full register after them: kernels write whole registers.
pub(crate) const ROOM: usize = BATCH + 16;

/// Room for an array of the items of a batch.
pub(crate) type Items = [u32; ROOM];
/// Room for the words of a batch: two per item, and a few that were held back.
pub(crate) type Words = [u32; 2 * ROOM];

/// How many items there are, and what to expect of them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Len {
    /// How many.
    pub items: usize,
    /// Whether hardly any of them has two words. Only the speed depends on it.
    pub is_plain: bool,
}

impl Len {
    /// The number of items that these ids were gathered into; plain if nearly every id is an item
    /// of its own.
    pub(crate) fn new(items: usize, ids: usize) -> Self {
        const FEW: usize = 4;
        Self { items, is_plain: ids < items + FEW }
    }
}

/// What is known about the groups of a batch besides their payloads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Groups {
    /// How many there are.
    pub len: usize,
    /// The last.
    pub last: u32,
    /// The greatest gap.
    pub gap_max: u32,
    /// The least gap.
    pub gap_min: u32,
    /// Whether a group is full.
    pub has_full: bool,
}

/// The words of items that do not depend on their neighbours.
pub(crate) trait PairRule {
    /// At most two words, in order, for `gap` before `body`; 0 where there is none. Two numbers
    /// stand for an item: empty groups and a group's payload, or rows without and with an id. It is
    /// also called on leftover values in a register, and must accept any numbers.
    fn words(gap: u32, body: u32) -> [u32; 2];
}

/// The words of items that may join the item before them, which then joins no other.
pub(crate) trait LinkRule {
    /// The word of a body with a gap that joins it, without the gap; 0 if none can.
    fn pair(body: u32) -> u32;
    /// Whether a gap can join a body that has this pair word.
    fn joins(pair: u32, gap: u32) -> bool;
    /// At most two words: of the body before, if that is `open`, and of the gap and the body that
    /// it may join; 0 where there is none.
    fn words(before: [u32; 2], open: bool, gap: u32, pair: u32) -> [u32; 2];
}

/// The words that three neighbouring words become.
pub trait TripleRule {
    /// What `triple` has to know of a word.
    fn digest(word: u32) -> u32;
    /// One word for a fill, a literal and a fill, given the digest of each, or 0.
    fn fill_first(digests: [u32; 3]) -> u32;
    /// One word for a literal, a fill and a literal, given the digest of each, or 0.
    fn literal_first(digests: [u32; 3]) -> u32;
    /// One word for all three, given the digest of each, or 0.
    #[inline(always)]
    fn triple(digests: [u32; 3]) -> u32 {
        Self::fill_first(digests) | Self::literal_first(digests)
    }
}

/// Runs the best version that the machine has, as in [`simd`](super), for functions with a rule.
macro_rules! dispatch {
    ($($(#[$doc:meta])* fn $name:ident $(<$rule:ident: $bound:path>)?
        ($($arg:ident: $ty:ty),*) -> $ret:ty;)*) => {
        $(
            $(#[$doc])*
            #[inline]
            pub(crate) fn $name $(<$rule: $bound>)? ($($arg: $ty),*) -> $ret {
                #[cfg(target_arch = "x86_64")]
                match x86::level() {
                    x86::Level::Avx512 => {
                        // SAFETY: `level` saw every feature that `avx512` functions enable.
                        #[allow(unsafe_code)]
                        return unsafe { x86::avx512::$name $(::<$rule>)? ($($arg),*) };
                    }
                    x86::Level::Avx2 => {
                        // SAFETY: `level` saw every feature that `avx2` functions enable.
                        #[allow(unsafe_code)]
                        return unsafe { x86::avx2::$name $(::<$rule>)? ($($arg),*) };
                    }
                    x86::Level::Scalar => {}
                }
                scalar::$name $(::<$rule>)? ($($arg),*)
            }
        )*
    };
}

dispatch! {
    /// The groups of 31 that ascending ids, at most [`BATCH`], lie in: their payloads, and the
    /// number of empty groups before each but the first. The first is that of the first id, and
    /// starts with the rows of `payload`.
    fn group_ids(ids: &[u32], payload: u32, gaps: &mut Items, payloads: &mut Items) -> Groups;
    /// The same for the ids of a chunk, given by their low halves; `base` is the chunk's first id.
    fn group_array(base: u32, ids: &Ids16, payload: u32, gaps: &mut Items, payloads: &mut Items)
        -> Groups;
    /// The maximal runs of ascending ids, at most [`BATCH`]: their first ids and the ids after
    /// their last; how many there are.
    fn run_ids(ids: &[u32], firsts: &mut Items, ends: &mut Items) -> usize;
    /// The keys of the chunks that ascending ids, at most [`BATCH`], lie in, except for the key
    /// `before`, and which of the ids is the first in each; how many there are.
    fn chunk_starts(ids: &[u32], before: u32, keys: &mut Items, starts: &mut Items) -> usize;
    /// How many ids lie in another chunk than the one before, and how many follow it directly.
    fn count_steps(ids: &[u32]) -> (u32, u32);
    /// Appends the low halves of ids, little-endian.
    fn push_halves(ids: &[u32], target: &mut Vec<u8>) -> ();
    /// The words of the first `len` items, in order; how many there are. `out` has room for two per
    /// item and a full register, here and below.
    fn pair_words<R: PairRule>(gaps: &Items, bodies: &Items, len: Len, out: &mut [u32]) -> usize;
    /// The words of the first `len` items, in order, `before` being the body before the first and
    /// whether it is open; how many there are, and whether the last body is open.
    fn link_words<R: LinkRule>(before: (u32, bool), gaps: &Items, bodies: &Items, len: usize,
        out: &mut [u32]) -> (usize, bool);
    /// What the first `len` words become when triples join from the left; how many there are, and
    /// how many of the last two words were not used, because a word to come may join them. There is
    /// room for a full register, with any content, after the words.
    fn triple_words<R: TripleRule>(words: &[u32], len: usize, out: &mut [u32]) -> (usize, usize);
    /// The same for the first `len` items, each a gap that is not 0 and a payload, whose words
    /// alone are the gap and the payload with bit 31 set. `taken` says that the first gap is not
    /// among them.
    fn turn_words<R: TripleRule>(gaps: &Items, payloads: &Items, len: usize, taken: bool,
        out: &mut [u32]) -> (usize, usize);
}

/// Appends words, little-endian.
#[inline(always)]
pub(crate) fn push_words(words: &[u32], target: &mut Vec<u8>) {
    #[cfg(target_endian = "little")]
    {
        // SAFETY: words have no padding, any byte is a `u8`, and four times as many bytes as
        // words lie in the same place for as long.
        #[allow(unsafe_code)]
        let bytes = unsafe { std::slice::from_raw_parts(words.as_ptr().cast(), 4 * words.len()) };
        target.extend_from_slice(bytes);
    }
    #[cfg(not(target_endian = "little"))]
    for word in words {
        target.extend_from_slice(&word.to_le_bytes());
    }
}

#[cfg(test)]
mod tests;
