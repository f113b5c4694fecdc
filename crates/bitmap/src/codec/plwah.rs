//! PLWAH: WAH whose fills carry the position of one odd row in the group after them.
//!
//! ```text
//! literal  [0][31: bit 30 - i set <=> id 31 * group + i is in the set]
//! fill     [1][1: 0 empty, 1 full][5: position][25: number of groups, at least 1]
//! ```
//!
//! A literal that differs from the fill before it in exactly one row is not written: the fill names
//! the row instead, 1 for the first of the group and 31 for the last; 0 says that there is none.
//! The fill's count does not include that group. A run of more groups than the count can hold is
//! split, full pieces first; only the last piece takes a literal in.
//!
//! ```
//! # use tapdex_bitmap::Codec;
//! let mut bytes = vec![];
//! Codec::Plwah.encode(&[124], &mut bytes); // four empty groups, then a group's first row
//! assert_eq!(bytes, 0x8200_0004_u32.to_le_bytes());
//! ```
//!
//! Wins over WAH wherever single ids stand alone: one word each instead of two. Loses to it only
//! on runs of more than a billion rows. No random access.
//! Sources: Deliège, Pedersen, "Position list word aligned hybrid", EDBT 2010; Fusco et al.,
//! "Indexing million of packets per second using GPUs", IMC 2013.

use crate::codec::{Codec, Explained};
use crate::groups::{Batch, FULL, GroupCodec, GroupSink, Piece, Pieces, WordTarget, one, two};
use crate::simd::words::{PairRule, pair_words};

const FILL: u32 = 1 << 31;
const POSITION_SHIFT: u32 = 25;
const COUNT_MAX: u32 = (1 << POSITION_SHIFT) - 1;

/// See the [module](self).
#[derive(Debug, Clone, Copy)]
pub struct Plwah;

impl GroupCodec for Plwah {
    const CODEC: Codec = Codec::Plwah;
    type Sink<T: WordTarget> = Sink<T>;

    fn sink<T: WordTarget>(target: T) -> Sink<T> {
        Sink { target, open: 0 }
    }

    #[inline(always)]
    fn unpack(word: u32) -> Pieces {
        if word & FILL == 0 {
            return one(Piece::literal(word));
        }
        let fill = Piece::fill(word >> 30 & 1 != 0, word & COUNT_MAX);
        match word >> POSITION_SHIFT & 31 {
            0 => one(fill),
            position => two(fill, Piece::literal(fill.payload ^ FILL >> position)),
        }
    }

    fn fields(word: u32) -> Explained {
        if word & FILL == 0 {
            return Explained::new("literal", &[("rows", word.count_ones())]);
        }
        let fields = [
            ("value", word >> 30 & 1),
            ("position", word >> POSITION_SHIFT & 31),
            ("groups", word & COUNT_MAX),
        ];
        Explained::new("fill", &fields)
    }
}

impl PairRule for Plwah {
    #[inline(always)]
    fn words(gap: u32, payload: u32) -> [u32; 2] {
        let joins = gap > 0 && payload & payload.wrapping_sub(1) == 0;
        let position = if joins { payload.leading_zeros() << POSITION_SHIFT } else { 0 };
        let fill = FILL | position | gap;
        [if gap > 0 { fill } else { 0 }, if joins { 0 } else { payload }]
    }
}

/// Holds each fill back until the next literal is known.
#[derive(Debug)]
pub struct Sink<T> {
    target: T,
    /// The fill held back, as a word without position; 0 when there is none.
    open: u32,
}

impl<T: WordTarget> GroupSink for Sink<T> {
    #[inline(always)]
    fn fill(&mut self, ones: bool, count: u32) {
        self.finish();
        let header = FILL | u32::from(ones) << 30;
        let mut left = count;
        while left > COUNT_MAX {
            self.target.word(header | COUNT_MAX);
            left -= COUNT_MAX;
        }
        self.open = header | left;
    }

    #[inline(always)]
    fn literal(&mut self, payload: u32) {
        let open = std::mem::take(&mut self.open);
        if open != 0 {
            let odd = payload ^ if open >> 30 & 1 != 0 { FULL } else { 0 };
            if odd.is_power_of_two() {
                return self.target.word(open | odd.leading_zeros() << POSITION_SHIFT);
            }
            self.target.word(open);
        }
        self.target.word(payload);
    }

    #[inline(always)]
    fn literals(&mut self, batch: &mut Batch) {
        if self.open != 0 || batch.gap_max > COUNT_MAX {
            return self.each(batch);
        }
        let Batch { gaps, payloads, len, words: [words, _], .. } = batch;
        let len = pair_words::<Plwah>(gaps, payloads, *len, words);
        self.target.words(&words[..len]);
    }

    #[inline(always)]
    fn finish(&mut self) {
        if self.open != 0 {
            self.target.word(std::mem::take(&mut self.open));
        }
    }
}
