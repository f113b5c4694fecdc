//! Shared by COMPAX, COMPAX2 and SECOMPAX: three neighbours that become one word.
//!
//! From the left: if a fill, a literal and a fill, or a literal, a fill and a literal, are at the
//! current place and fit the codec's word, they become that word; otherwise the first of them is
//! written alone and the next place is tried. The first word decides the kind, so there is never a
//! choice. A fill or literal alone is a word, too, and a rule can read all it needs to know from
//! that word.

use crate::groups::{Batch, FULL, GroupSink, WordTarget};
use crate::simd::words::{PairRule, TripleRule, pair_words, triple_words, turn_words};

/// Which triples a codec merges, and how it writes a fill alone.
pub trait Rule: TripleRule {
    /// The same rule for words none of which is a nearly full literal.
    type Sparse: TripleRule;
    /// The word of a fill of ones, or `None` if full groups are literals that merge with nothing.
    fn ones(count: u32) -> Option<u32>;
}

/// The word of a literal alone, in all three codecs; that of a fill of zeros is its count.
pub(crate) const LITERAL: u32 = 1 << 31;

/// A nearly full literal has at least this many rows.
pub(crate) const NEARLY_FULL_ROWS: u32 = 23;

/// The bits of byte `place` of a group; the highest has seven.
#[inline(always)]
pub(crate) fn byte_mask(place: u32) -> u32 {
    (0xFF << (8 * (place & 3))) & FULL
}

/// The group that a merged word stands for: one byte, and zeros or ones around it.
#[inline(always)]
pub(crate) fn dirty(nearly_full: bool, place: u32, byte: u32) -> u32 {
    let around = if nearly_full { FULL & !byte_mask(place) } else { 0 };
    around | (byte << (8 * (place & 3))) & byte_mask(place)
}

/// What a rule has to know about a word, in the fields of a number:
///
/// ```text
/// [7: 0][1: fill value][8: groups]
/// [3: 0][1: nearly full][1: dirty][1: short fill][2: place][8: byte]
/// ```
///
/// A *dirty* literal has one byte that is neither all zeros nor, if it is nearly full, all ones. A
/// *short* fill has at most 255 groups.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Digest(pub u32);

impl Digest {
    const SHORT: u32 = 1 << 10;
    const DIRTY: u32 = 1 << 11;
    const NEARLY_FULL: u32 = 1 << 12;

    /// The digest of a word of a codec whose fills of ones have bit `ones_shift` set above their
    /// count, and which merges nearly full literals or not.
    #[inline(always)]
    pub(crate) fn new(word: u32, ones_shift: u32, with_nearly_full: bool) -> Self {
        let payload = word & FULL;
        // The one byte that is odd has the highest odd bit.
        let odd_place = |odd: u32| (31 - (odd | 1).leading_zeros()) / 8;
        let is_odd = |odd: u32, place: u32| odd & !byte_mask(place) == 0;
        let mut place = odd_place(payload);
        let mut dirty = if is_odd(payload, place) { Self::DIRTY } else { 0 };
        if with_nearly_full {
            let full_place = odd_place(payload ^ FULL);
            let is_full = is_odd(payload ^ FULL, full_place) & (dirty == 0);
            place = if is_full { full_place } else { place };
            dirty = if is_full { Self::DIRTY | Self::NEARLY_FULL } else { dirty };
        }
        let byte = payload >> (8 * place) & 0xFF;
        let count = word & ((1 << ones_shift) - 1);
        let short = if count <= 255 { Self::SHORT } else { 0 };
        let ones = word >> ones_shift & 1;
        Self(if word & LITERAL != 0 {
            dirty | place << 8 | byte
        } else {
            ones << 24 | (count & 0xFF) << 16 | short
        })
    }

    /// The digest of a fill of zeros, or of a literal of one row.
    #[inline(always)]
    pub(crate) fn of_single(word: u32) -> Self {
        let place = ((word & FULL).leading_zeros() / 8) ^ 3;
        let byte = (word & FULL) >> (8 * (place & 3)) & 0xFF;
        let short = if word <= 255 { Self::SHORT } else { 0 };
        Self(if word & LITERAL != 0 {
            Self::DIRTY | place << 8 | byte
        } else {
            (word & 0xFF) << 16 | short
        })
    }

    /// Whether it is a literal that can be merged.
    #[inline(always)]
    pub(crate) fn is_dirty(self) -> bool {
        self.0 & Self::DIRTY != 0
    }

    /// Whether it is a fill of at most 255 groups.
    #[inline(always)]
    pub(crate) fn is_short(self) -> bool {
        self.0 & Self::SHORT != 0
    }

    /// 1 for a literal that is nearly full.
    #[inline(always)]
    pub(crate) fn nearly_full(self) -> u32 {
        self.0 >> 12 & 1
    }

    /// Which byte of a literal, from the lowest, is merged.
    #[inline(always)]
    pub(crate) fn place(self) -> u32 {
        self.0 >> 8 & 3
    }

    /// That byte.
    #[inline(always)]
    pub(crate) fn byte(self) -> u32 {
        self.0 & 0xFF
    }

    /// The number of groups of a short fill.
    #[inline(always)]
    pub(crate) fn count(self) -> u32 {
        self.0 >> 16 & 0xFF
    }

    /// 1 for a fill of ones.
    #[inline(always)]
    pub(crate) fn ones(self) -> u32 {
        self.0 >> 24
    }
}

/// Holds two words back until the third is known.
#[derive(Debug)]
pub struct Sink<T, R> {
    target: T,
    held: [u32; 2],
    len: usize,
    rule: std::marker::PhantomData<R>,
}

/// A rule for fills of zeros and literals of one row.
struct Single<R>(std::marker::PhantomData<R>);

impl<R: TripleRule> TripleRule for Single<R> {
    #[inline(always)]
    fn digest(word: u32) -> u32 {
        Digest::of_single(word).0
    }

    #[inline(always)]
    fn fill_first(digests: [u32; 3]) -> u32 {
        R::fill_first(digests)
    }

    #[inline(always)]
    fn literal_first(digests: [u32; 3]) -> u32 {
        R::literal_first(digests)
    }
}

/// A fill of zeros and a literal, each alone.
struct Alone;

impl PairRule for Alone {
    #[inline(always)]
    fn words(gap: u32, payload: u32) -> [u32; 2] {
        [gap, LITERAL | payload]
    }
}

impl<T: WordTarget, R: Rule> Sink<T, R> {
    /// A sink with nothing held back.
    pub(crate) fn new(target: T) -> Self {
        Self { target, held: [0; 2], len: 0, rule: std::marker::PhantomData }
    }

    /// Merges what is held back and the literals of a batch, by the rule `M`.
    #[inline(always)]
    fn merge<M: TripleRule>(&mut self, batch: &mut Batch) {
        let Batch { gaps, payloads, len, words: [alone, merged], .. } = batch;
        let held = &self.held[..self.len];
        let in_turn = match held {
            [] => Some(None),
            [literal] if literal & LITERAL != 0 => Some(Some((1, *literal))),
            [fill, literal] if literal & LITERAL != 0 && fill >> 28 == 0 => {
                Some(Some((*fill, *literal)))
            }
            _ => None,
        };
        let mut items = len.items;
        if let (Some(first), true) = (in_turn, batch.gap_min > 0) {
            // Fills and literals alternate, so each is handled by its own kind. If something is
            // held back, it is the first item; its fill may be gone.
            if let Some((fill, literal)) = first {
                gaps.copy_within(..items, 1);
                payloads.copy_within(..items, 1);
                (gaps[0], payloads[0]) = (fill, literal & FULL);
                items += 1;
            }
            let (gaps, payloads) = (&*gaps, &*payloads);
            let taken = held.len() == 1;
            let (written, left) = if batch.is_single && payloads[0].is_power_of_two() {
                turn_words::<Single<R>>(gaps, payloads, items, taken, merged)
            } else {
                turn_words::<M>(gaps, payloads, items, taken, merged)
            };
            self.target.words(&merged[..written]);
            let last = [gaps[items - 1], LITERAL | payloads[items - 1]];
            self.held[..left].copy_from_slice(&last[2 - left..]);
            self.len = left;
            return;
        }
        let new = pair_words::<Alone>(gaps, payloads, *len, &mut alone[2..]);
        // The words held back come right before it.
        let from = 2 - self.len;
        alone[from..2].copy_from_slice(held);
        let words = &alone[from..];
        let len = self.len + new;
        let (written, left) = triple_words::<M>(words, len, merged);
        self.target.words(&merged[..written]);
        self.held[..left].copy_from_slice(&words[len - left..len]);
        self.len = left;
    }

    #[inline(always)]
    fn item(&mut self, word: u32) {
        if self.len < 2 {
            self.held[self.len] = word;
            self.len += 1;
            return;
        }
        let [first, second] = self.held;
        match R::triple([R::digest(first), R::digest(second), R::digest(word)]) {
            0 => {
                self.target.word(first);
                self.held = [second, word];
            }
            triple => {
                self.target.word(triple);
                self.len = 0;
            }
        }
    }
}

impl<T: WordTarget, R: Rule> GroupSink for Sink<T, R> {
    #[inline(always)]
    fn fill(&mut self, ones: bool, count: u32) {
        if !ones {
            return self.item(count);
        }
        match R::ones(count) {
            Some(word) => self.item(word),
            None => {
                // A full group has four odd bytes, so nothing held back can merge across it.
                self.finish();
                self.target.repeat(LITERAL | FULL, count);
            }
        }
    }

    #[inline(always)]
    fn literal(&mut self, payload: u32) {
        self.item(LITERAL | payload);
    }

    #[inline(always)]
    fn literals(&mut self, batch: &mut Batch) {
        let is_sparse = |&word: &u32| word & LITERAL == 0 || word.count_ones() <= NEARLY_FULL_ROWS;
        if batch.is_sparse && self.held[..self.len].iter().all(is_sparse) {
            self.merge::<R::Sparse>(batch);
        } else {
            self.merge::<R>(batch);
        }
    }

    fn finish(&mut self) {
        self.target.words(&self.held[..self.len]);
        self.len = 0;
    }
}
