//! SECOMPAX: COMPAX2 that merges nearly full literals too, and fills of different value.
//!
//! ```text
//! L    [1][31: bit 30 - i set <=> id 31 * group + i is in the set]
//! 0F   [0000][28: number of empty groups, at least 1]
//! 1F   [0001][28: number of full groups, at least 1]
//! LFL  [4: 0010 both nearly empty, 0011 both nearly full, 0100 empty then full, 0101 full then
//!      empty][2: place 1][2: place 2][1: fill value][7: groups, 1 to 127][8: byte 1][8: byte 2]
//! FLF  [011][1: value before][1: 0 nearly empty, 1 nearly full][1: value after][2: place]
//!      [8: groups before, 1 to 255][8: byte][8: groups after, 1 to 255]
//! ```
//!
//! A literal in a merged word has exactly one byte that is not zero (*nearly empty*) or not all
//! ones (*nearly full*); the place says which, 0 for the lowest, and the byte itself is stored.
//! Triples are merged from the left.
//!
//! ```
//! # use tapdex_bitmap::Codec;
//! let mut bytes = vec![];
//! Codec::Secompax.encode(&[8, 208], &mut bytes); // a row, five empty groups, a row
//! assert_eq!(bytes, 0x2905_4001_u32.to_le_bytes());
//! ```
//!
//! Wins over COMPAX2 around runs of ones with ragged ends. Loses to it where a gap between two
//! literals has 128 to 255 groups. No random access.
//! Source: Wen et al., "SECOMPAX: a bitmap index compression algorithm", ICCCN 2014.

use crate::codec::triples::{self, Digest, LITERAL, Rule, dirty};
use crate::codec::{Codec, Explained};
use crate::groups::{GROUP_ROWS, GroupCodec, Piece, Pieces, WordTarget, one};
use crate::simd::words::TripleRule;

const ONES: u32 = 0b0001 << 28;
const COUNT_MAX: u32 = (1 << 28) - 1;
// One fill word can span every id, so fills are never split.
const _: () = assert!(COUNT_MAX as u64 * GROUP_ROWS as u64 > u32::MAX as u64);
const FLF: u32 = 0b011 << 29;
const LFL_COUNT_MAX: u32 = 127;
/// The code of an LFL by whether its first and its second literal are nearly full.
const LFL: [[u32; 2]; 2] = [[0b0010 << 28, 0b0100 << 28], [0b0101 << 28, 0b0011 << 28]];

/// See the [module](self).
#[derive(Debug, Clone, Copy)]
pub struct Secompax;

impl TripleRule for Secompax {
    #[inline(always)]
    fn digest(word: u32) -> u32 {
        Digest::new(word, 28, true).0
    }

    #[inline(always)]
    fn fill_first(digests: [u32; 3]) -> u32 {
        let [a, b, c] = digests.map(Digest);
        if a.is_short() & b.is_dirty() & c.is_short() {
            let values = a.ones() << 28 | b.nearly_full() << 27 | c.ones() << 26;
            let header = FLF | values | b.place() << 24;
            header | a.count() << 16 | b.byte() << 8 | c.count()
        } else {
            0
        }
    }

    #[inline(always)]
    fn literal_first(digests: [u32; 3]) -> u32 {
        let [a, b, c] = digests.map(Digest);
        if a.is_dirty() & b.is_short() & (b.count() <= LFL_COUNT_MAX) & c.is_dirty() {
            let (x, z) = (a.nearly_full(), c.nearly_full());
            // As in `LFL`, but without a table look-up, which could not be vectorised.
            let code = if x == z { 0b0010 + x } else { 0b0100 + x };
            let header = code << 28 | a.place() << 26 | c.place() << 24 | b.ones() << 23;
            header | b.count() << 16 | a.byte() << 8 | c.byte()
        } else {
            0
        }
    }
}

/// The rule for words none of which is a nearly full literal.
#[derive(Debug, Clone, Copy)]
pub struct Sparse;

impl TripleRule for Sparse {
    #[inline(always)]
    fn digest(word: u32) -> u32 {
        Digest::new(word, 28, false).0
    }

    #[inline(always)]
    fn fill_first(digests: [u32; 3]) -> u32 {
        Secompax::fill_first(digests)
    }

    #[inline(always)]
    fn literal_first(digests: [u32; 3]) -> u32 {
        Secompax::literal_first(digests)
    }
}

impl Rule for Secompax {
    type Sparse = Sparse;

    fn ones(count: u32) -> Option<u32> {
        Some(ONES | count)
    }
}

/// Whether the first and the second literal of an LFL are nearly full.
#[inline(always)]
fn nearly_full(code: u32) -> (bool, bool) {
    (code == LFL[1][0] || code == LFL[1][1], code == LFL[0][1] || code == LFL[1][1])
}

impl GroupCodec for Secompax {
    const CODEC: Codec = Codec::Secompax;
    type Sink<T: WordTarget> = triples::Sink<T, Self>;

    fn sink<T: WordTarget>(target: T) -> Self::Sink<T> {
        triples::Sink::new(target)
    }

    #[inline(always)]
    fn unpack(word: u32) -> Pieces {
        if word & LITERAL != 0 {
            return one(Piece::literal(word));
        }
        if word & FLF == FLF {
            return [
                Piece::fill(word >> 28 & 1 != 0, word >> 16 & 0xFF),
                Piece::literal(dirty(word >> 27 & 1 != 0, word >> 24, word >> 8 & 0xFF)),
                Piece::fill(word >> 26 & 1 != 0, word & 0xFF),
            ];
        }
        let code = word & 0xF << 28;
        if code <= ONES {
            return one(Piece::fill(code == ONES, word & COUNT_MAX));
        }
        let (full1, full2) = nearly_full(code);
        [
            Piece::literal(dirty(full1, word >> 26, word >> 8 & 0xFF)),
            Piece::fill(word >> 23 & 1 != 0, word >> 16 & 0x7F),
            Piece::literal(dirty(full2, word >> 24, word & 0xFF)),
        ]
    }

    fn fields(word: u32) -> Explained {
        if word & LITERAL != 0 {
            return Explained::new("literal", &[("rows", (word ^ LITERAL).count_ones())]);
        }
        if word & FLF == FLF {
            let fields = [
                ("value1", word >> 28 & 1),
                ("nearly", word >> 27 & 1),
                ("value2", word >> 26 & 1),
                ("place", word >> 24 & 3),
                ("groups1", word >> 16 & 0xFF),
                ("byte", word >> 8 & 0xFF),
                ("groups2", word & 0xFF),
            ];
            return Explained::new("fill-literal-fill", &fields);
        }
        let code = word & 0xF << 28;
        if code <= ONES {
            let fields = [("value", u32::from(code == ONES)), ("groups", word & COUNT_MAX)];
            return Explained::new("fill", &fields);
        }
        let (full1, full2) = nearly_full(code);
        let fields = [
            ("nearly1", u32::from(full1)),
            ("nearly2", u32::from(full2)),
            ("place1", word >> 26 & 3),
            ("place2", word >> 24 & 3),
            ("value", word >> 23 & 1),
            ("groups", word >> 16 & 0x7F),
            ("byte1", word >> 8 & 0xFF),
            ("byte2", word & 0xFF),
        ];
        Explained::new("literal-fill-literal", &fields)
    }
}
