//! What COMPAX, COMPAX2 and SECOMPAX share: three neighbours that become one word.
//!
//! From the left: when a fill, a literal and a fill, or a literal, a fill and a literal, stand at
//! the place at hand and fit the codec's word, they become that word; otherwise the first of them
//! is written alone and the next place is tried. The first word decides the kind, so there is
//! never a choice. A fill or literal alone is a word too, and all that a rule has to know of it
//! can be read off that word.

use crate::groups::{Batch, FULL, GroupSink, WordTarget};
use crate::simd::words::{PairRule, TripleRule, pair_words, triple_words};

/// Which triples a codec merges, and how it writes a fill alone.
pub trait Rule: TripleRule {
    /// The word of a fill of ones, or `None` if full groups are literals that merge with nothing.
    fn ones(count: u32) -> Option<u32>;
}

/// The word of a literal alone, in all three codecs; that of a fill of zeros is its count.
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

/// A literal's word as the one byte in which it differs from a group of equal rows.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Dirty {
    /// Whether it is a literal that differs in one byte only.
    pub is: bool,
    /// Which byte, from the lowest.
    pub place: u32,
    /// That byte.
    pub byte: u32,
}

impl Dirty {
    /// As it differs from a group of rows that are all set, or all not.
    #[inline(always)]
    pub(crate) fn of(word: u32, full: bool) -> Self {
        let odd = (word ^ if full { FULL } else { 0 }) & FULL;
        let place = (31 - (odd | 1).leading_zeros()) / 8;
        let is = word & LITERAL != 0 && odd & !byte_mask(place) == 0;
        Self { is, place, byte: word >> (8 * place) & (byte_mask(place) >> (8 * place)) }
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

    #[inline(always)]
    fn item(&mut self, word: u32) {
        if self.len < 2 {
            self.held[self.len] = word;
            self.len += 1;
            return;
        }
        let [first, second] = self.held;
        match R::triple([first, second, word]) {
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
        let Batch { gaps, payloads, len, words: [alone, merged], .. } = batch;
        let words = pair_words::<Alone>(gaps, payloads, *len, merged);
        alone[..self.len].copy_from_slice(&self.held[..self.len]);
        alone[self.len..self.len + words].copy_from_slice(&merged[..words]);
        let words = self.len + words;
        let (len, left) = triple_words::<R>(alone, words, merged);
        self.target.words(&merged[..len]);
        self.held[..left].copy_from_slice(&alone[words - left..words]);
        self.len = left;
    }

    fn finish(&mut self) {
        self.target.words(&self.held[..self.len]);
        self.len = 0;
    }
}
