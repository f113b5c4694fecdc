//! COMPAX2: COMPAX with fills of ones.
//!
//! ```text
//! L    [1][31: bit 30 - i set <=> id 31 * group + i is in the set]
//! 0F   [000][29: number of empty groups, at least 1]
//! LFL  [001][1: fill value][2: place 1][2: place 2][8: byte 1][8: groups, 1 to 255][8: byte 2]
//! FLF  [010][1: fill value][1: the same][2: place][0]
//!      [8: groups before, 1 to 255][8: byte][8: groups after, 1 to 255]
//! 1F   [011][29: number of full groups, at least 1]
//! ```
//!
//! A literal in a merged word has exactly one byte that is not zero; the place says which, 0 for
//! the lowest. The two fills of an FLF have the same value. Triples are merged from the left,
//! fills of more than 255 groups never.
//!
//! ```
//! # use tapdex_bitmap::Codec;
//! let mut bytes = vec![];
//! Codec::Compax2.encode(&[8, 208], &mut bytes); // a row, five empty groups, a row
//! assert_eq!(bytes, 0x2940_0501_u32.to_le_bytes());
//! ```
//!
//! Wins where COMPAX does, and no longer loses on runs of ones. No random access.
//! Source: Fusco, Vlachos, Stoecklin, "Real-time creation of bitmap indexes on streaming network
//! data", VLDB Journal 2012; its codebook is known from an implementation only.

use crate::codec::triples::{self, Digest, LITERAL, Rule, dirty};
use crate::codec::{Codec, Explained};
use crate::groups::{GROUP_ROWS, GroupCodec, Piece, Pieces, WordTarget, one};
use crate::simd::words::TripleRule;

const LFL: u32 = 0b001 << 29;
const FLF: u32 = 0b010 << 29;
const ONES: u32 = 0b011 << 29;
const CODE: u32 = 0b011 << 29;
const COUNT_MAX: u32 = (1 << 29) - 1;
// One fill word can span every id, so fills are never split.
const _: () = assert!(COUNT_MAX as u64 * GROUP_ROWS as u64 > u32::MAX as u64);

/// See the [module](self).
#[derive(Debug, Clone, Copy)]
pub struct Compax2;

impl TripleRule for Compax2 {
    #[inline(always)]
    fn digest(word: u32) -> u32 {
        Digest::new(word, 29, false).0
    }

    #[inline(always)]
    fn fill_first(digests: [u32; 3]) -> u32 {
        let [a, b, c] = digests.map(Digest);
        if a.is_short() & b.is_dirty() & c.is_short() & (a.ones() == c.ones()) {
            let header = FLF | (a.ones() * 0b11) << 27 | b.place() << 25;
            header | a.count() << 16 | b.byte() << 8 | c.count()
        } else {
            0
        }
    }

    #[inline(always)]
    fn literal_first(digests: [u32; 3]) -> u32 {
        let [a, b, c] = digests.map(Digest);
        if a.is_dirty() & b.is_short() & c.is_dirty() {
            let header = LFL | b.ones() << 28 | a.place() << 26 | c.place() << 24;
            header | a.byte() << 16 | b.count() << 8 | c.byte()
        } else {
            0
        }
    }
}

impl Rule for Compax2 {
    type Sparse = Self;

    fn ones(count: u32) -> Option<u32> {
        Some(ONES | count)
    }
}

impl GroupCodec for Compax2 {
    const CODEC: Codec = Codec::Compax2;
    type Sink<T: WordTarget> = triples::Sink<T, Self>;

    fn sink<T: WordTarget>(target: T) -> Self::Sink<T> {
        triples::Sink::new(target)
    }

    #[inline(always)]
    fn unpack(word: u32) -> Pieces {
        if word & LITERAL != 0 {
            return one(Piece::literal(word));
        }
        match word & CODE {
            LFL => [
                Piece::literal(dirty(false, word >> 26, word >> 16 & 0xFF)),
                Piece::fill(word >> 28 & 1 != 0, word >> 8 & 0xFF),
                Piece::literal(dirty(false, word >> 24, word & 0xFF)),
            ],
            FLF => [
                Piece::fill(word >> 28 & 1 != 0, word >> 16 & 0xFF),
                Piece::literal(dirty(false, word >> 25, word >> 8 & 0xFF)),
                Piece::fill(word >> 27 & 1 != 0, word & 0xFF),
            ],
            code => one(Piece::fill(code == ONES, word & COUNT_MAX)),
        }
    }

    fn fields(word: u32) -> Explained {
        if word & LITERAL != 0 {
            return Explained::new("literal", &[("rows", (word ^ LITERAL).count_ones())]);
        }
        match word & CODE {
            LFL => Explained::new(
                "literal-fill-literal",
                &[
                    ("value", word >> 28 & 1),
                    ("place1", word >> 26 & 3),
                    ("place2", word >> 24 & 3),
                    ("byte1", word >> 16 & 0xFF),
                    ("groups", word >> 8 & 0xFF),
                    ("byte2", word & 0xFF),
                ],
            ),
            FLF => Explained::new(
                "fill-literal-fill",
                &[
                    ("value1", word >> 28 & 1),
                    ("value2", word >> 27 & 1),
                    ("place", word >> 25 & 3),
                    ("groups1", word >> 16 & 0xFF),
                    ("byte", word >> 8 & 0xFF),
                    ("groups2", word & 0xFF),
                ],
            ),
            code => {
                let fields = [("value", u32::from(code == ONES)), ("groups", word & COUNT_MAX)];
                Explained::new("fill", &fields)
            }
        }
    }
}
