//! What COMPAX, COMPAX2 and SECOMPAX share: three neighbours that become one word.
//!
//! From the left: when a fill, a literal and a fill, or a literal, a fill and a literal, stand at
//! the place at hand and fit the codec's word, they become that word; otherwise the first of them
//! is written alone and the next place is tried. The first word decides the kind, so there is
//! never a choice.

use crate::groups::{FULL, GroupSink, WordTarget};

/// A fill or a literal.
#[derive(Debug, Clone, Copy)]
pub enum Item {
    /// `count` equal groups.
    Fill {
        /// Whether they are full.
        ones: bool,
        /// How many there are.
        count: u32,
    },
    /// A group with exactly one byte that is neither all zeros nor, if `nearly_full`, all ones.
    Dirty {
        /// The group.
        payload: u32,
        /// Whether the other three bytes are ones.
        nearly_full: bool,
        /// Which byte, from the lowest.
        place: u32,
        /// That byte.
        byte: u32,
    },
    /// Any other group.
    Literal {
        /// The group.
        payload: u32,
    },
}

/// Which triples a codec merges, and how it writes what is left alone.
pub trait Rule {
    /// The word for three neighbours, if there is one.
    fn triple(items: [Item; 3]) -> Option<u32>;
    /// The word of a fill alone.
    fn fill(ones: bool, count: u32) -> u32;
    /// Whether a full group is a fill; if not, it is a literal that merges with nothing.
    const FILLS_OF_ONES: bool;
}

/// The word of a literal alone, in all three codecs.
pub(crate) const LITERAL: u32 = 1 << 31;

/// The bits of byte `place` of a group; the highest has seven.
#[inline(always)]
pub(crate) fn byte_mask(place: u32) -> u32 {
    (0xFF << (8 * (place & 3))) & FULL
}

/// The group that a merged word says: one byte, and zeros or ones around it.
#[inline(always)]
pub(crate) fn dirty(nearly_full: bool, place: u32, byte: u32) -> u32 {
    let around = if nearly_full { FULL & !byte_mask(place) } else { 0 };
    around | (byte << (8 * (place & 3))) & byte_mask(place)
}

/// The one byte in which `payload` differs from `around`, or `None` if there are more.
#[inline(always)]
fn odd_byte(payload: u32, around: u32) -> Option<u32> {
    let place = (31 - (payload ^ around).leading_zeros()) / 8;
    ((payload ^ around) & !byte_mask(place) == 0).then_some(place)
}

impl Item {
    /// The literal with that payload, which is neither empty nor full.
    #[inline(always)]
    fn literal(payload: u32) -> Self {
        let (place, nearly_full) = match odd_byte(payload, 0) {
            Some(place) => (place, false),
            None => match odd_byte(payload, FULL) {
                Some(place) => (place, true),
                None => return Item::Literal { payload },
            },
        };
        let byte = (payload & byte_mask(place)) >> (8 * place);
        Item::Dirty { payload, nearly_full, place, byte }
    }
}

/// Holds two items back until the third is known.
#[derive(Debug)]
pub struct Sink<T, R> {
    target: T,
    open: [Option<Item>; 2],
    rule: std::marker::PhantomData<R>,
}

impl<T: WordTarget, R: Rule> Sink<T, R> {
    /// A sink with nothing held back.
    pub(crate) fn new(target: T) -> Self {
        Self { target, open: [None; 2], rule: std::marker::PhantomData }
    }

    #[inline(always)]
    fn item(&mut self, item: Item) {
        match self.open {
            [Some(first), Some(second)] => {
                if let Some(word) = R::triple([first, second, item]) {
                    self.open = [None; 2];
                    self.target.word(word);
                } else {
                    self.write(first);
                    self.open = [Some(second), Some(item)];
                }
            }
            [Some(_), None] => self.open[1] = Some(item),
            [None, _] => self.open[0] = Some(item),
        }
    }

    #[inline(always)]
    fn write(&mut self, item: Item) {
        self.target.word(match item {
            Item::Fill { ones, count } => R::fill(ones, count),
            Item::Dirty { payload, .. } | Item::Literal { payload } => LITERAL | payload,
        });
    }
}

impl<T: WordTarget, R: Rule> GroupSink for Sink<T, R> {
    #[inline(always)]
    fn fill(&mut self, ones: bool, count: u32) {
        if ones && !R::FILLS_OF_ONES {
            // A full group has four odd bytes, so nothing held back can merge across it.
            self.finish();
            return self.target.repeat(LITERAL | FULL, count);
        }
        self.item(Item::Fill { ones, count });
    }

    #[inline(always)]
    fn literal(&mut self, payload: u32) {
        self.item(Item::literal(payload));
    }

    fn finish(&mut self) {
        for item in std::mem::take(&mut self.open).into_iter().flatten() {
            self.write(item);
        }
    }
}
