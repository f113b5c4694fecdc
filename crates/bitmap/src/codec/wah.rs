//! WAH: word-aligned hybrid run-length codec, 32-bit little-endian words.
//!
//! Ids are cut into [groups](crate::groups) of 31. A run of equal empty or full groups is one
//! *fill* word, any other group one *literal* word. Bits, most significant first:
//!
//! ```text
//! literal  [0][31: bit 30 - i set <=> id 31 * group + i is in the set]
//! fill     [1][1: 0 empty, 1 full][30: number of groups, at least 1]
//! ```
//!
//! The encoding is canonical: fills are maximal and no trailing empty fill is written, so equal
//! sets are equal bytes, whichever backend wrote them. `check` refuses any other form.
//!
//! ```
//! # use tapdex_bitmap::Codec;
//! let ids: Vec<u32> = [0, 3].into_iter().chain(62..=92).collect();
//! let mut bytes = vec![];
//! Codec::Wah.encode(&ids, &mut bytes);
//! //                 group 0: {0, 3}   group 1: empty    group 2: full
//! assert_eq!(bytes, [0, 0, 0, 0x48,    1, 0, 0, 0x80,    1, 0, 0, 0xC0]);
//! ```
//!
//! Wins on long runs: a full set is at most two words. Loses on sparse random ids, where an id can
//! cost two words and a sorted array needs one. No random access.
//! Source: Wu, Otoo, Shoshani, "Optimizing bitmap indices with efficient compression", 2006.

use crate::codec::{Codec, Explained};
use crate::groups::{Batch, GROUP_ROWS, GroupCodec, GroupSink, Piece, Pieces, WordTarget, one};
use crate::simd::words::{PairRule, pair_words};

const FILL: u32 = 1 << 31;
const ONES: u32 = 1 << 30;
const COUNT_MAX: u32 = ONES - 1;
// One fill word can span every id, so fills are never split.
const _: () = assert!(COUNT_MAX as u64 * GROUP_ROWS as u64 > u32::MAX as u64);

/// See the [module](self).
#[derive(Debug, Clone, Copy)]
pub struct Wah;

impl GroupCodec for Wah {
    const CODEC: Codec = Codec::Wah;
    type Sink<T: WordTarget> = Sink<T>;

    fn sink<T: WordTarget>(target: T) -> Sink<T> {
        Sink(target)
    }

    #[inline(always)]
    fn unpack(word: u32) -> Pieces {
        one(if word & FILL == 0 {
            Piece::literal(word)
        } else {
            Piece::fill(word & ONES != 0, word & COUNT_MAX)
        })
    }

    fn fields(word: u32) -> Explained {
        if word & FILL == 0 {
            return Explained::new("literal", &[("rows", word.count_ones())]);
        }
        Explained::new("fill", &[("value", word >> 30 & 1), ("groups", word & COUNT_MAX)])
    }
}

impl PairRule for Wah {
    #[inline(always)]
    fn words(gap: u32, payload: u32) -> [u32; 2] {
        [if gap > 0 { FILL | gap } else { 0 }, payload]
    }
}

/// Writes every fill and every literal as it comes.
#[derive(Debug)]
pub struct Sink<T>(T);

impl<T: WordTarget> GroupSink for Sink<T> {
    #[inline(always)]
    fn fill(&mut self, ones: bool, count: u32) {
        self.0.word(FILL | u32::from(ones) << 30 | count);
    }

    #[inline(always)]
    fn literal(&mut self, payload: u32) {
        self.0.word(payload);
    }

    #[inline(always)]
    fn literals(&mut self, batch: &mut Batch) {
        let Batch { gaps, payloads, len, words: [words, _], .. } = batch;
        let len = pair_words::<Wah>(gaps, payloads, *len, words);
        self.0.words(&words[..len]);
    }

    fn finish(&mut self) {}
}
