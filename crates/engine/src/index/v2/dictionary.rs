//! The values of a column, ascending, each once.
//!
//! A value's place among them is its *id*. Values are cut into blocks of 64, each of which is found
//! and read alone:
//!
//! ```text
//! for each block: its first value, as many bytes as a value of the column has
//! for each block but the first: where its differences start, u32
//! for each other value: the difference to the value before it, less one, as a varint
//! ```
//!
//! If values have one or two bytes, and at least every eighth that is possible occurs, there is a
//! bit for each that is possible instead, 32 or 8,192 bytes: the low bits of a byte first.

use std::ops::Range;

use super::bits::{Reader, for_each_bit, push_bits, push_varint, u32_at, words_of};
use super::section::Part;
use crate::error::IndexError;

/// Values of a block.
pub(super) const BLOCK: usize = 64;

/// Bytes of the bits of a dictionary, if that is how so many values of `width` bytes are written.
pub(super) fn bits_len(values: usize, width: usize) -> Option<usize> {
    let possible = if width <= 2 { 1_usize << (8 * width) } else { return None };
    (8 * values >= possible).then_some(possible / 8)
}

/// Appends the dictionary of ascending values of `width` bytes.
pub(super) fn encode(values: &[u128], width: usize, target: &mut Vec<u8>) {
    if let Some(len) = bits_len(values.len(), width) {
        // They have at most two bytes.
        let values = values.iter().map(|&value| usize::try_from(value).unwrap_or(0));
        return push_bits(values, 8 * len, target);
    }
    for block in values.chunks(BLOCK) {
        target.extend(&block[0].to_le_bytes()[..width]);
    }
    let (mut starts, mut gaps) = (Vec::new(), Vec::new());
    for block in values.chunks(BLOCK) {
        starts.extend(u32::try_from(gaps.len()).unwrap_or(u32::MAX).to_le_bytes());
        for pair in block.windows(2) {
            push_varint(pair[1] - pair[0] - 1, &mut gaps);
        }
    }
    target.extend(starts.get(4..).unwrap_or_default());
    target.extend(gaps);
}

/// How many bits are set.
fn count(bits: &[u8]) -> u32 {
    words_of(bits).map(u64::count_ones).sum()
}

/// The dictionary of a column, read in place.
#[derive(Debug, Clone, Copy)]
pub(super) struct Dictionary<'a> {
    /// Its bytes.
    pub(super) part: Part<'a>,
    /// How many values there are.
    pub(super) len: u32,
    /// Bytes of a value.
    pub(super) width: usize,
}

/// The least bytes of a dictionary of so many values.
pub(super) fn least_len(values: usize, width: usize) -> usize {
    let blocks = values.div_ceil(BLOCK);
    bits_len(values, width).unwrap_or(blocks * width + 4 * blocks.saturating_sub(1))
}

impl<'a> Dictionary<'a> {
    /// A bit for each possible value, if there are such.
    fn bits(&self) -> Result<Option<&'a [u8]>, IndexError> {
        match bits_len(self.len as usize, self.width) {
            Some(len) => self.part.read(0, len).map(Some),
            None => Ok(None),
        }
    }

    fn blocks(&self) -> usize {
        (self.len as usize).div_ceil(BLOCK)
    }

    /// The first value of a block.
    fn head(&self, block: usize) -> Result<u128, IndexError> {
        let mut value = [0; 16];
        value[..self.width].copy_from_slice(self.part.read(block * self.width, self.width)?);
        Ok(u128::from_le_bytes(value))
    }

    /// Passes the values of a block to `each`, with their ids, until it returns false.
    fn read_block(
        &self,
        block: usize,
        each: &mut dyn FnMut(u32, u128) -> bool,
    ) -> Result<(), IndexError> {
        let blocks = self.blocks();
        let gaps_start = blocks * self.width + 4 * (blocks - 1);
        // Where the differences of a block start.
        let start = |block: usize| -> Result<usize, IndexError> {
            match block {
                0 => Ok(gaps_start),
                _ if block == blocks => Ok(self.part.len),
                _ => {
                    let at = blocks * self.width + 4 * (block - 1);
                    Ok(gaps_start + u32_at(self.part.read(at, 4)?, 0) as usize)
                }
            }
        };
        let (start, end) = (start(block)?, start(block + 1)?);
        let bytes = self.part.read(start, end.saturating_sub(start))?;
        let mut gaps = Reader::new(bytes);
        let mut value = self.head(block)?;
        let first = block * BLOCK;
        let bad = || self.part.bad("dictionary", start);
        for id in (0..self.len).skip(first).take(BLOCK) {
            if id as usize > first {
                let gap = gaps.varint128().ok_or_else(bad)?;
                value = value.checked_add(gap).and_then(|v| v.checked_add(1)).ok_or_else(bad)?;
            }
            if value.checked_shr(8 * u32::try_from(self.width).unwrap_or(0)).unwrap_or(0) != 0 {
                return Err(bad());
            }
            if !each(id, value) {
                return Ok(());
            }
        }
        match gaps.is_at_end() {
            true => Ok(()),
            false => Err(bad()),
        }
    }

    /// How many values are less than `value`, and whether it occurs itself.
    pub(super) fn position(&self, value: u128) -> Result<(u32, bool), IndexError> {
        if let Some(bits) = self.bits()? {
            let value = usize::try_from(value).unwrap_or(usize::MAX);
            let Some(&byte) = bits.get(value / 8) else { return Ok((self.len, false)) };
            let below = byte & !(u8::MAX << (value % 8));
            let id = count(&bits[..value / 8]) + below.count_ones();
            // Whether there are as many bits as values is not known.
            return Ok((id.min(self.len), byte >> (value % 8) & 1 == 1 && id < self.len));
        }
        let (mut low, mut high) = (0, self.blocks());
        while low < high {
            let middle = low.midpoint(high);
            if self.head(middle)? <= value { low = middle + 1 } else { high = middle }
        }
        let Some(block) = low.checked_sub(1) else { return Ok((0, false)) };
        let mut found = (self.len.min(u32::try_from(low * BLOCK).unwrap_or(u32::MAX)), false);
        self.read_block(block, &mut |id, other| {
            if other >= value {
                found = (id, other == value);
            }
            other < value
        })?;
        Ok(found)
    }

    /// The ids of the values of a range.
    pub(super) fn range(&self, first: u128, last: u128) -> Result<Range<u32>, IndexError> {
        let (end, is_there) = self.position(last)?;
        if first == last {
            return Ok(end..end + u32::from(is_there));
        }
        Ok(self.position(first)?.0..end + u32::from(is_there))
    }

    /// All values in order.
    pub(super) fn values(&self) -> Result<Vec<u128>, IndexError> {
        if let Some(bits) = self.bits()? {
            let mut values = Vec::with_capacity(self.len as usize);
            for_each_bit(bits, &mut |value| values.push(value.into()));
            return match values.len() == self.len as usize && bits.len() == self.part.len {
                true => Ok(values),
                false => Err(self.part.bad("dictionary", 0)),
            };
        }
        let mut values: Vec<u128> = Vec::with_capacity((self.len as usize).min(self.part.len));
        let mut ascend = true;
        for block in 0..self.blocks() {
            self.read_block(block, &mut |_, value| {
                ascend &= values.last().is_none_or(|&before| before < value);
                values.push(value);
                true
            })?;
        }
        match ascend {
            true => Ok(values),
            false => Err(self.part.bad("order of the dictionary", 0)),
        }
    }
}
