//! PLWAH+: PLWAH that pairs a fill with the literal before or after it, of up to four odd rows.
//!
//! ```text
//! literal  [0][31: bit 30 - i set <=> id 31 * group + i is in the set]
//! fill     [1][0][1: 0 empty, 1 full][0][00000][23: number of groups, at least 1]
//! pair     [1][1: 0 fill first, 1 literal first][1: fill value][1: 0 nearly empty, 1 nearly full]
//!          [5: p1][5: p2][5: p3][5: p4][8: number of groups in the fill, 1 to 255]
//! ```
//!
//! A literal of one to four rows is *nearly empty*, one that lacks one to four rows *nearly full*;
//! its odd rows are listed ascending, 1 for the first row of the group, unused places 0. Either
//! kind pairs with a fill of either value. Pairs are formed from the left: an item that can pair
//! with the one before it does. A run of more groups than 23 bits can hold is split, full pieces
//! first.
//!
//! ```
//! # use tapdex_bitmap::Codec;
//! let mut bytes = vec![];
//! Codec::PlwahPlus.encode(&[153, 154], &mut bytes); // four empty groups, then 29 and 30 of one
//! assert_eq!(bytes, 0x8F7C_0004_u32.to_le_bytes());
//! ```
//!
//! Wins over PLWAH where literals have two to four rows, or stand before a fill. Loses to it on
//! fills of 256 groups and more, which take nothing in. No random access.
//! Source: "PLWAH+: a bitmap index compressing scheme based on PLWAH", ANCS 2014; the figure that
//! fixes the three header bits was not printed, their order is ours.

use crate::codec::{Codec, Explained};
use crate::groups::{
    Batch, FULL, GROUP_ROWS, GroupCodec, GroupSink, Piece, Pieces, WordTarget, one, two,
};
use crate::simd::words::{LinkRule, link_words};

const FILL: u32 = 1 << 31;
const LITERAL_FIRST: u32 = 1 << 30;
const ONES: u32 = 1 << 29;
const NEARLY_FULL: u32 = 1 << 28;
const POSITIONS: u32 = 4;
const FIRST_POSITION_SHIFT: u32 = 23;
const COUNT_MAX: u32 = (1 << FIRST_POSITION_SHIFT) - 1;
const PAIR_COUNT_MAX: u32 = 255;

/// See the [module](self).
#[derive(Debug, Clone, Copy)]
pub struct PlwahPlus;

/// The four position fields of a pair, first to last.
fn positions(word: u32) -> [u32; 4] {
    std::array::from_fn(|i| word >> (FIRST_POSITION_SHIFT - 5 * [0, 1, 2, 3][i]) & 31)
}

impl GroupCodec for PlwahPlus {
    const CODEC: Codec = Codec::PlwahPlus;
    type Sink<T: WordTarget> = Sink<T>;

    fn sink<T: WordTarget>(target: T) -> Sink<T> {
        Sink { target, open: Item::None }
    }

    #[inline(always)]
    fn unpack(word: u32) -> Pieces {
        if word & FILL == 0 {
            return one(Piece::literal(word));
        }
        let ones = word & ONES != 0;
        if positions(word)[0] == 0 {
            return one(Piece::fill(ones, word & COUNT_MAX));
        }
        let fill = Piece::fill(ones, word & PAIR_COUNT_MAX);
        let odd = positions(word).iter().fold(0, |odd, &position| odd | FILL >> position) & FULL;
        let literal = Piece::literal(if word & NEARLY_FULL != 0 { FULL ^ odd } else { odd });
        if word & LITERAL_FIRST != 0 { two(literal, fill) } else { two(fill, literal) }
    }

    fn fields(word: u32) -> Explained {
        if word & FILL == 0 {
            return Explained::new("literal", &[("rows", word.count_ones())]);
        }
        let value = ("value", word >> 29 & 1);
        let [p1, p2, p3, p4] = positions(word);
        if p1 == 0 {
            return Explained::new("fill", &[value, ("groups", word & COUNT_MAX)]);
        }
        let kind = if word & LITERAL_FIRST != 0 { "literal-fill" } else { "fill-literal" };
        let fields = [
            value,
            ("nearly", word >> 28 & 1),
            ("p1", p1),
            ("p2", p2),
            ("p3", p3),
            ("p4", p4),
            ("groups", word & PAIR_COUNT_MAX),
        ];
        Explained::new(kind, &fields)
    }
}

/// An item that waits for a partner.
#[derive(Debug, Clone, Copy)]
enum Item {
    None,
    Fill {
        ones: bool,
        count: u32,
    },
    /// The literal, and its pair word without the fill, 0 if there is none.
    Literal {
        payload: u32,
        pair: u32,
    },
}

/// Holds one item back until the next is known.
#[derive(Debug)]
pub struct Sink<T> {
    target: T,
    open: Item,
}

/// The pair word of a literal with few odd rows, without the fill; 0 if it has more.
#[inline(always)]
fn pair_of(payload: u32) -> u32 {
    let rows = payload.count_ones();
    let (mut odd, nearly) =
        if rows <= POSITIONS { (payload, 0) } else { (payload ^ FULL, NEARLY_FULL) };
    let mut pair = FILL | nearly;
    for place in 0..POSITIONS {
        // Without an odd row left the position is 0, and bit 31, which no payload has, flips.
        let position = odd.leading_zeros() & 31;
        pair |= position << (FIRST_POSITION_SHIFT - 5 * place);
        odd ^= FILL >> position;
    }
    if rows <= POSITIONS || rows >= GROUP_ROWS - POSITIONS { pair } else { 0 }
}

impl LinkRule for PlwahPlus {
    #[inline(always)]
    fn pair(payload: u32) -> u32 {
        pair_of(payload)
    }

    #[inline(always)]
    fn joins(pair: u32, gap: u32) -> bool {
        (pair != 0) & (gap.wrapping_sub(1) < PAIR_COUNT_MAX)
    }

    #[inline(always)]
    fn words([before, pair_before]: [u32; 2], open: bool, gap: u32, pair: u32) -> [u32; 2] {
        let joins_before = Self::joins(pair_before, gap);
        let left = if joins_before { pair_before | LITERAL_FIRST | gap } else { before };
        let right = if Self::joins(pair, gap) { pair | gap } else { FILL | gap };
        let is_gone = (open & joins_before) | (gap == 0);
        [if open { left } else { 0 }, if is_gone { 0 } else { right }]
    }
}

/// The rule for literals of one row.
struct Single;

impl LinkRule for Single {
    #[inline(always)]
    fn pair(payload: u32) -> u32 {
        FILL | payload.leading_zeros() << FIRST_POSITION_SHIFT
    }

    #[inline(always)]
    fn joins(pair: u32, gap: u32) -> bool {
        PlwahPlus::joins(pair, gap)
    }

    #[inline(always)]
    fn words(before: [u32; 2], open: bool, gap: u32, pair: u32) -> [u32; 2] {
        PlwahPlus::words(before, open, gap, pair)
    }
}

impl<T: WordTarget> Sink<T> {
    #[inline(always)]
    fn piece(&mut self, ones: bool, count: u32) {
        if let Item::Literal { pair, .. } = self.open
            && count <= PAIR_COUNT_MAX
            && pair != 0
        {
            self.open = Item::None;
            return self.target.word(pair | LITERAL_FIRST | u32::from(ones) << 29 | count);
        }
        self.finish();
        self.open = Item::Fill { ones, count };
    }
}

impl<T: WordTarget> GroupSink for Sink<T> {
    #[inline(always)]
    fn fill(&mut self, ones: bool, mut count: u32) {
        while count > COUNT_MAX {
            self.piece(ones, COUNT_MAX);
            count -= COUNT_MAX;
        }
        self.piece(ones, count);
    }

    #[inline(always)]
    fn literal(&mut self, payload: u32) {
        let pair = pair_of(payload);
        if let Item::Fill { ones, count } = self.open
            && count <= PAIR_COUNT_MAX
            && pair != 0
        {
            self.open = Item::None;
            return self.target.word(pair | u32::from(ones) << 29 | count);
        }
        self.finish();
        self.open = Item::Literal { payload, pair };
    }

    #[inline(always)]
    fn literals(&mut self, batch: &mut Batch) {
        let before = match self.open {
            Item::None => (0, false),
            Item::Literal { payload, .. } => (payload, true),
            Item::Fill { .. } => return self.each(batch),
        };
        if batch.gap_max > COUNT_MAX {
            return self.each(batch);
        }
        let Batch { gaps, payloads, len, words: [words, _], .. } = batch;
        let last = payloads[len.items - 1];
        let (len, open) = if batch.is_single && before.0.count_ones() <= 1 {
            link_words::<Single>(before, gaps, payloads, len.items, words)
        } else {
            link_words::<PlwahPlus>(before, gaps, payloads, len.items, words)
        };
        self.target.words(&words[..len]);
        self.open = Item::None;
        if open {
            self.open = Item::Literal { payload: last, pair: pair_of(last) };
        }
    }

    #[inline(always)]
    fn finish(&mut self) {
        match std::mem::replace(&mut self.open, Item::None) {
            Item::None => {}
            Item::Fill { ones, count } => self.target.word(FILL | u32::from(ones) << 29 | count),
            Item::Literal { payload, .. } => self.target.word(payload),
        }
    }
}
