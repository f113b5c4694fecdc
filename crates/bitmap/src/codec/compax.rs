//! COMPAX: fills of zeros and literals, and two codes for three of them in one word.
//!
//! ```text
//! L    [1][31: bit 30 - i set <=> id 31 * group + i is in the set]
//! 0F   [000][29: number of empty groups, at least 1]
//! LFL  [001][2: place 1][2: place 2][0][8: byte 1][8: groups, 1 to 255][8: byte 2]
//! FLF  [010][2: place][000][8: groups before, 1 to 255][8: byte][8: groups after, 1 to 255]
//! ```
//!
//! A literal in a merged word has exactly one byte that is not zero; the place says which, 0 for
//! the lowest. There are no fills of ones: a full group is a literal like any other. Triples are
//! merged from the left, fills of more than 255 groups never.
//!
//! ```
//! # use tapdex_bitmap::Codec;
//! let mut bytes = vec![];
//! Codec::Compax.encode(&[8, 208], &mut bytes); // a row, five empty groups, a row
//! assert_eq!(bytes, 0x3240_0501_u32.to_le_bytes());
//! ```
//!
//! Wins on sparse ids in bursts: two literals and the gap between them are one word. Loses badly
//! on runs of ones, at a word for every 31 rows. No random access.
//! Source: Fusco, Stoecklin, Vlachos, "NET-FLi: on-the-fly compression, archiving and indexing of
//! streaming network traffic", VLDB 2010.

use crate::codec::triples::{self, Digest, LITERAL, Rule, dirty};
use crate::codec::{Codec, Explained};
use crate::groups::{GROUP_ROWS, GroupCodec, Piece, Pieces, WordTarget, one};
use crate::simd::words::TripleRule;

const LFL: u32 = 0b001 << 29;
const FLF: u32 = 0b010 << 29;
const COUNT_MAX: u32 = (1 << 29) - 1;
// One fill word can span every id, so fills are never split.
const _: () = assert!(COUNT_MAX as u64 * GROUP_ROWS as u64 > u32::MAX as u64);

/// See the [module](self).
#[derive(Debug, Clone, Copy)]
pub struct Compax;

impl TripleRule for Compax {
    #[inline(always)]
    fn digest(word: u32) -> u32 {
        Digest::new(word, 29, false).0
    }

    #[inline(always)]
    fn fill_first(digests: [u32; 3]) -> u32 {
        let [a, b, c] = digests.map(Digest);
        if a.is_short() & b.is_dirty() & c.is_short() {
            FLF | b.place() << 27 | a.count() << 16 | b.byte() << 8 | c.count()
        } else {
            0
        }
    }

    #[inline(always)]
    fn literal_first(digests: [u32; 3]) -> u32 {
        let [a, b, c] = digests.map(Digest);
        if a.is_dirty() & b.is_short() & c.is_dirty() {
            let header = LFL | a.place() << 27 | c.place() << 25;
            header | a.byte() << 16 | b.count() << 8 | c.byte()
        } else {
            0
        }
    }
}

impl Rule for Compax {
    type Sparse = Self;

    fn ones(_: u32) -> Option<u32> {
        None
    }
}

impl GroupCodec for Compax {
    const CODEC: Codec = Codec::Compax;
    type Sink<T: WordTarget> = triples::Sink<T, Self>;

    fn sink<T: WordTarget>(target: T) -> Self::Sink<T> {
        triples::Sink::new(target)
    }

    #[inline(always)]
    fn unpack(word: u32) -> Pieces {
        if word & LITERAL != 0 {
            return one(Piece::literal(word));
        }
        match word & 0b011 << 29 {
            LFL => [
                Piece::literal(dirty(false, word >> 27, word >> 16 & 0xFF)),
                Piece::fill(false, word >> 8 & 0xFF),
                Piece::literal(dirty(false, word >> 25, word & 0xFF)),
            ],
            FLF => [
                Piece::fill(false, word >> 16 & 0xFF),
                Piece::literal(dirty(false, word >> 27, word >> 8 & 0xFF)),
                Piece::fill(false, word & 0xFF),
            ],
            // 011 is not a code; it never equals what the encoder writes for this fill.
            _ => one(Piece::fill(false, word & COUNT_MAX)),
        }
    }

    fn fields(word: u32) -> Explained {
        if word & LITERAL != 0 {
            return Explained::new("literal", &[("rows", (word ^ LITERAL).count_ones())]);
        }
        match word & 0b011 << 29 {
            LFL => Explained::new(
                "literal-fill-literal",
                &[
                    ("place1", word >> 27 & 3),
                    ("place2", word >> 25 & 3),
                    ("byte1", word >> 16 & 0xFF),
                    ("groups", word >> 8 & 0xFF),
                    ("byte2", word & 0xFF),
                ],
            ),
            FLF => Explained::new(
                "fill-literal-fill",
                &[
                    ("place", word >> 27 & 3),
                    ("groups1", word >> 16 & 0xFF),
                    ("byte", word >> 8 & 0xFF),
                    ("groups2", word & 0xFF),
                ],
            ),
            0 => Explained::new("fill", &[("value", 0), ("groups", word & COUNT_MAX)]),
            _ => Explained::new("not a code", &[]),
        }
    }
}
