//! Whole numbers in as few bits as their neighbours allow.
//!
//! Values are cut into blocks of 128. A block keeps its least value and, for each value, the
//! difference to it, in as many bits as the largest difference has. Little-endian, in order:
//!
//! ```text
//! count u32, flags u16 (bit 0: the values ascend), zero u16
//! for each block: base u64, place u64 (low byte: bits of a difference; rest: its first word)
//! words u64: value i of a block is at bit i * bits, counted from the least significant
//! ```
//!
//! A block starts at a new word, so any value is found with two look-ups. Numbers that ascend cost
//! few bits; random numbers cost all their bits. A list is a section, or a part of one.

use super::format::{check_field, size};
use super::reader::Section;
use super::writer::Append;
use crate::error::{Expected, IndexError};

/// Values of a block.
pub const BLOCK_VALUES: usize = 128;
const HEAD_LEN: u64 = 8;
const PLACE_LEN: u64 = 16;
const ASCENDING: u16 = 1;
/// A full block of 64-bit differences.
const WORDS_MAX: usize = BLOCK_VALUES;

fn words(values: usize, bits: u32) -> usize {
    (values * bits as usize).div_ceil(64)
}

fn mask(bits: u32) -> u64 {
    u64::MAX.checked_shr(64 - bits).unwrap_or(0)
}

/// A block's least value, its bits, and its words.
struct Block {
    base: u64,
    bits: u32,
    words: [u64; WORDS_MAX],
}

impl Block {
    /// Packs at most [`BLOCK_VALUES`] values.
    fn encode(values: &[u64]) -> Self {
        let base = values.iter().copied().min().unwrap_or(0);
        let most = values.iter().copied().max().unwrap_or(0) - base;
        let bits = 64 - most.leading_zeros();
        let mut words = [0; WORDS_MAX];
        for (i, value) in values.iter().enumerate() {
            let (value, at) = (value - base, i * bits as usize);
            words[at / 64] |= value << (at % 64);
            if at % 64 + bits as usize > 64 {
                words[at / 64 + 1] |= value >> (64 - at % 64);
            }
        }
        Self { base, bits, words }
    }
}

/// Appends the packed form of the values.
pub(crate) fn encode(
    len: u32,
    value: impl Fn(usize) -> u64,
    append: &mut Append<'_>,
) -> Result<(), IndexError> {
    let len = len as usize;
    let mut buffer = [0; BLOCK_VALUES];
    let mut each = |from: usize, visit: &mut dyn FnMut(&[u64]) -> Result<(), IndexError>| {
        let to = len.min(from + BLOCK_VALUES);
        (from..to).zip(&mut buffer).for_each(|(i, slot)| *slot = value(i));
        visit(&buffer[..to - from])
    };
    let flags = if (1..len).all(|i| value(i - 1) <= value(i)) { ASCENDING } else { 0 };
    let mut head = [0; size(HEAD_LEN)];
    head[..4].copy_from_slice(&u32::try_from(len).unwrap_or(u32::MAX).to_le_bytes());
    head[4..6].copy_from_slice(&flags.to_le_bytes());
    append(&head)?;
    // First where every block is, then its contents: two passes, and no copy of the whole.
    let mut word = 0_u64;
    for from in (0..len).step_by(BLOCK_VALUES) {
        each(from, &mut |values| {
            let block = Block::encode(values);
            append(&block.base.to_le_bytes())?;
            append(&(word << 8 | u64::from(block.bits)).to_le_bytes())?;
            word += words(values.len(), block.bits) as u64;
            Ok(())
        })?;
    }
    for from in (0..len).step_by(BLOCK_VALUES) {
        each(from, &mut |values| {
            let block = Block::encode(values);
            let words = &block.words[..words(values.len(), block.bits)];
            let mut bytes = [0; 8 * WORDS_MAX];
            for (target, word) in bytes.as_chunks_mut().0.iter_mut().zip(words) {
                *target = word.to_le_bytes();
            }
            append(&bytes[..8 * words.len()])
        })?;
    }
    Ok(())
}

/// Packed numbers of an index file, such as its times.
///
/// Nothing is unpacked before it is asked for, and what is asked for is checked first, so every
/// answer may be an error.
#[derive(Debug, Clone, Copy)]
pub struct Packed<'a> {
    section: Section<'a>,
    /// Where they start in the section.
    start: u64,
    len: u32,
    ascending: bool,
}

impl<'a> Packed<'a> {
    /// The numbers that a section consists of.
    pub(crate) fn open(section: Section<'a>, len: u32) -> Result<Self, IndexError> {
        Self::open_last(section, 0, len)
    }

    /// The numbers that lie from `start` to the end of a section.
    pub(crate) fn open_last(
        section: Section<'a>,
        start: u64,
        len: u32,
    ) -> Result<Self, IndexError> {
        let (packed, end) = Self::open_part(section, start, len)?;
        let exactly = Expected::Exactly(end);
        check_field(&|| section.name(), "length", section.offset(), exactly, section.len())?;
        Ok(packed)
    }

    /// The numbers that lie in a section from `start` on, and where they end in it. The head is
    /// checked, and that the section has as many bytes as the last block needs.
    pub(crate) fn open_part(
        section: Section<'a>,
        start: u64,
        len: u32,
    ) -> Result<(Self, u64), IndexError> {
        let at = section.offset() + start;
        let check = |what, offset, expected, got| {
            check_field(&|| section.name(), what, offset, expected, got)
        };
        let has = |end| check("length", section.offset(), Expected::AtLeast(end), section.len());
        has(start + HEAD_LEN)?;
        let head = section.read(start, HEAD_LEN)?;
        let number = |from: usize, len: usize| {
            head[from..from + len].iter().rev().fold(0, |sum, &byte| sum << 8 | u64::from(byte))
        };
        check("number of values", at, Expected::Exactly(len.into()), number(0, 4))?;
        check("flags", at + 4, Expected::AtMost(ASCENDING.into()), number(4, 2))?;
        check("reserved field", at + 6, Expected::Exactly(0), number(6, 2))?;
        let packed = Self { section, start, len, ascending: number(4, 2) != 0 };
        has(packed.words_start())?;
        let words = match packed.blocks().checked_sub(1) {
            None => 0,
            Some(last) => {
                let (_, word, bits) = packed.place(last)?;
                word + words(packed.block_len(last), bits) as u64
            }
        };
        // A word's number has 56 bits: this does not overflow.
        let end = packed.words_start() + 8 * words;
        has(end)?;
        Ok((packed, end))
    }

    /// Where a block's place is in the section.
    fn place_start(&self, block: u64) -> u64 {
        self.start + HEAD_LEN + PLACE_LEN * block
    }

    /// Where the words start in the section.
    fn words_start(&self) -> u64 {
        self.place_start(self.blocks())
    }

    /// How many numbers there are.
    pub fn len(&self) -> u32 {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether no number is smaller than the one before it, as the writer found.
    pub fn is_ascending(&self) -> bool {
        self.ascending
    }

    /// Number `i`, in constant time.
    pub fn get(&self, i: u32) -> Result<u64, IndexError> {
        if i >= self.len {
            let max = self.len.saturating_sub(1).into();
            return Err(IndexError::TooLarge { what: "row", got: i.into(), max });
        }
        let (block, i) = (u64::from(i) / BLOCK_VALUES as u64, i as usize % BLOCK_VALUES);
        let (base, word, bits) = self.place(block)?;
        if bits == 0 {
            return Ok(base);
        }
        let at = i * bits as usize;
        let needed = (at % 64 + bits as usize).div_ceil(64);
        let bytes = self.words(word + (at / 64) as u64, needed)?;
        let mut pair = [0; 16];
        pair[..bytes.len()].copy_from_slice(bytes);
        let difference = u128::from_le_bytes(pair) >> (at % 64) & u128::from(mask(bits));
        self.sum(block, base, u64::try_from(difference).unwrap_or(0))
    }

    /// All numbers in order, unpacked a block at a time. After an error it ends.
    pub fn iter(&self) -> PackedIter<'a> {
        PackedIter { packed: *self, next: 0, buffer: [0; BLOCK_VALUES], failed: false }
    }

    /// How many numbers at the start satisfy `before`, which has to be false for every number after
    /// the first that it is false for. For numbers that [ascend](Packed::is_ascending); for others
    /// the result is some place at which `before` changes.
    pub fn partition_point(&self, before: impl Fn(u64) -> bool) -> Result<u32, IndexError> {
        // The least value of an ascending block is its first: search those, then inside the block.
        let (mut low, mut high) = (0, self.blocks());
        while low < high {
            let middle = low.midpoint(high);
            if before(self.place(middle)?.0) { low = middle + 1 } else { high = middle }
        }
        let Some(block) = low.checked_sub(1) else {
            return Ok(0);
        };
        let mut values = [0; BLOCK_VALUES];
        let len = self.read_block(block, &mut values)?;
        let inside = values[..len].partition_point(|&value| before(value));
        Ok(u32::try_from(block * BLOCK_VALUES as u64).unwrap_or(u32::MAX)
            + u32::try_from(inside).unwrap_or(0))
    }

    fn blocks(&self) -> u64 {
        u64::from(self.len).div_ceil(BLOCK_VALUES as u64)
    }

    fn block_len(&self, block: u64) -> usize {
        size((u64::from(self.len) - block * BLOCK_VALUES as u64).min(BLOCK_VALUES as u64))
    }

    /// A block's least value, its first word, and the bits of a difference.
    fn place(&self, block: u64) -> Result<(u64, u64, u32), IndexError> {
        let at = self.place_start(block);
        let bytes = self.section.read(at, PLACE_LEN)?;
        let number = |from: usize| {
            bytes[from..from + 8].iter().rev().fold(0, |sum, &byte| sum << 8 | u64::from(byte))
        };
        let (base, place) = (number(0), number(8));
        let bits = u32::from(bytes[8]);
        let offset = self.section.offset() + at + 8;
        let name = || self.section.name();
        check_field(&name, "bits of a difference", offset, Expected::AtMost(64), bits.into())?;
        Ok((base, place >> 8, bits))
    }

    /// The bytes of some words.
    fn words(&self, first: u64, count: usize) -> Result<&'a [u8], IndexError> {
        // A word's number has 56 bits: none of this overflows.
        let start = self.words_start() + 8 * first;
        let (end, len) = (start + 8 * count as u64, self.section.len());
        let (name, offset) = (|| self.section.name(), self.section.offset());
        check_field(&name, "end of a block", offset, Expected::AtMost(len), end)?;
        self.section.read(start, 8 * count as u64)
    }

    /// A value of a block: its difference added to the least value.
    fn sum(&self, block: u64, base: u64, difference: u64) -> Result<u64, IndexError> {
        base.checked_add(difference).ok_or_else(|| IndexError::BadField {
            section: self.section.name(),
            what: "difference to a least value",
            offset: self.section.offset() + self.place_start(block),
            expected: Expected::AtMost(u64::MAX - base),
            got: difference,
        })
    }

    /// Unpacks a block and returns how many values it has.
    fn read_block(
        &self,
        block: u64,
        target: &mut [u64; BLOCK_VALUES],
    ) -> Result<usize, IndexError> {
        let len = self.block_len(block);
        let (base, first, bits) = self.place(block)?;
        let bytes = self.words(first, words(len, bits))?;
        let mut words = [0; WORDS_MAX + 1];
        for (word, bytes) in words.iter_mut().zip(bytes.as_chunks().0) {
            *word = u64::from_le_bytes(*bytes);
        }
        let mask = mask(bits);
        for (i, value) in target[..len].iter_mut().enumerate() {
            let at = i * bits as usize;
            let pair = u128::from(words[at / 64 + 1]) << 64 | u128::from(words[at / 64]);
            let difference = u64::try_from(pair >> (at % 64) & u128::from(mask)).unwrap_or(0);
            *value = self.sum(block, base, difference)?;
        }
        Ok(len)
    }

    /// Visits all values, and checks that the bytes are those that the writer writes for them.
    pub(crate) fn verify(
        &self,
        visit: &mut dyn FnMut(u64, u64) -> Result<(), IndexError>,
    ) -> Result<(), IndexError> {
        let section = || self.section.name();
        let exactly = Expected::Exactly;
        let (mut next, mut previous, mut ascending) = (0, 0, true);
        let mut values = [0; BLOCK_VALUES];
        for block in 0..self.blocks() {
            let len = self.read_block(block, &mut values)?;
            let (base, first, bits) = self.place(block)?;
            let again = Block::encode(&values[..len]);
            let at = self.section.offset() + self.place_start(block);
            check_field(&section, "least value", at, exactly(again.base), base)?;
            let (expected, got) = (exactly(again.bits.into()), bits.into());
            check_field(&section, "bits of a difference", at + 8, expected, got)?;
            check_field(&section, "first word", at + 8, exactly(next), first)?;
            let bytes = self.words(first, words(len, bits))?;
            let words_at = self.words_start() + 8 * first;
            for (i, (word, bytes)) in again.words.iter().zip(bytes.as_chunks().0).enumerate() {
                let at = self.section.offset() + words_at + 8 * i as u64;
                check_field(&section, "word", at, exactly(*word), u64::from_le_bytes(*bytes))?;
            }
            next += words(len, bits) as u64;
            for (row, &value) in (block * BLOCK_VALUES as u64..).zip(&values[..len]) {
                ascending &= previous <= value;
                previous = value;
                visit(row, value)?;
            }
        }
        let at = self.section.offset() + self.start + 4;
        check_field(&section, "flags", at, exactly(ascending.into()), self.ascending.into())
    }
}

/// Packed numbers in order; made by [`Packed::iter`].
#[derive(Debug, Clone)]
pub struct PackedIter<'a> {
    packed: Packed<'a>,
    next: u32,
    buffer: [u64; BLOCK_VALUES],
    failed: bool,
}

impl Iterator for PackedIter<'_> {
    type Item = Result<u64, IndexError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.next >= self.packed.len || self.failed {
            return None;
        }
        let inside = self.next as usize % BLOCK_VALUES;
        if inside == 0 {
            let block = u64::from(self.next) / BLOCK_VALUES as u64;
            if let Err(error) = self.packed.read_block(block, &mut self.buffer) {
                self.failed = true;
                return Some(Err(error));
            }
        }
        self.next += 1;
        Some(Ok(self.buffer[inside]))
    }
}
