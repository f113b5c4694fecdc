//! The packed form: the id of each entry's value, in blocks of 128 numbers
//! ([`packed`](super::super::packed)):
//!
//! ```text
//! for each 64 blocks but the first: where they start, u32
//! blocks
//! ```

use std::ops::Range;

use tapdex_bitmap::BitSet;

use super::super::bits::{Reader, u32_at};
use super::super::field::push_run;
use super::super::packed::{self, Wanted};
use super::Postings;
use crate::error::IndexError;

/// Decodes packed blocks, in ascending order.
struct PackedCursor<'a> {
    postings: Postings<'a>,
    /// The blocks whose starts are counted from the same place, and where in the part they start.
    group: usize,
    reader: Reader<'a>,
    at: usize,
    /// The block that comes next in the group.
    next: u32,
    /// The block whose numbers are here.
    here: Option<u32>,
    numbers: [u32; packed::BLOCK],
    len: usize,
}

impl<'a> PackedCursor<'a> {
    fn new(postings: Postings<'a>) -> Self {
        let (group, reader, numbers) = (usize::MAX, Reader::new(&[]), [0; packed::BLOCK]);
        Self { postings, group, reader, at: 0, next: 0, here: None, numbers, len: 0 }
    }

    /// Goes to the start of a group of blocks.
    fn go_to(&mut self, group: usize) -> Result<(), IndexError> {
        let part = self.postings.part;
        let blocks = (self.postings.entries as usize).div_ceil(packed::BLOCK);
        let groups = blocks.div_ceil(packed::GROUP).max(1);
        let heads = 4 * (groups - 1);
        let start = |group: usize| -> Result<usize, IndexError> {
            match group {
                0 => Ok(heads),
                _ if group >= groups => Ok(part.len),
                _ => Ok(heads + u32_at(part.read(4 * (group - 1), 4)?, 0) as usize),
            }
        };
        let (from, to) = (start(group)?, start(group + 1)?);
        self.reader = Reader::new(part.read(from, to.saturating_sub(from))?);
        (self.group, self.at) = (group, from);
        self.next = u32::try_from(group * packed::GROUP).unwrap_or(u32::MAX);
        Ok(())
    }

    /// A block. There is such a one.
    fn block(&mut self, block: u32) -> Result<packed::Block<'a>, IndexError> {
        let group = block as usize / packed::GROUP;
        if group != self.group || block < self.next {
            self.go_to(group)?;
        }
        loop {
            let first = self.next.saturating_mul(packed::BLOCK_32);
            let left = self.postings.entries.saturating_sub(first);
            let len = left.min(packed::BLOCK_32) as usize;
            let at = self.at + self.reader.at;
            let found = match len {
                0 => None,
                _ => packed::Block::read(&mut self.reader, len),
            };
            let found = found.ok_or_else(|| self.postings.part.bad("ids", at))?;
            self.next += 1;
            if self.next > block {
                return Ok(found);
            }
        }
    }

    /// The numbers of a block.
    fn numbers(&mut self, block: u32) -> Result<&[u32], IndexError> {
        if self.here != Some(block) {
            self.here = None;
            let found = self.block(block)?;
            let bad = || self.postings.part.bad("ids", self.at);
            found.numbers(&mut self.numbers).ok_or_else(bad)?;
            (self.here, self.len) = (Some(block), found.len());
        }
        Ok(&self.numbers[..self.len])
    }
}

impl<'a> Postings<'a> {
    /// Passes the packed blocks to `each`, with their first entries; an error if it returns `None`.
    pub(super) fn packed_blocks(
        &self,
        each: &mut dyn FnMut(u32, packed::Block<'a>) -> Option<()>,
    ) -> Result<(), IndexError> {
        let blocks = (self.entries as usize).div_ceil(packed::BLOCK);
        let starts = 4 * (blocks.div_ceil(packed::GROUP).max(1) - 1);
        let mut reader = Reader::new(self.part.bytes()?);
        reader.take(starts).ok_or_else(|| self.part.bad("starts of the ids", 0))?;
        for first in (0..self.entries).step_by(packed::BLOCK) {
            let len = (self.entries - first).min(packed::BLOCK_32) as usize;
            let (at, block) = (reader.at, packed::Block::read(&mut reader, len));
            block.and_then(|block| each(first, block)).ok_or_else(|| self.part.bad("ids", at))?;
        }
        match reader.is_at_end() {
            true => Ok(()),
            false => Err(self.part.bad("end of the ids", reader.at)),
        }
    }

    /// Passes the ids of the values of some entries to `each`, if the form is packed: the place of
    /// the run, and the ids of some of its entries. Runs are first and last entries; they ascend
    /// and do not overlap. Only the blocks that they touch are decoded.
    pub(in super::super) fn packed_runs(
        &self,
        runs: &[(u32, u32)],
        each: &mut dyn FnMut(usize, &[u32]),
    ) -> Result<(), IndexError> {
        let mut blocks = PackedCursor::new(*self);
        for (place, &(first, last)) in runs.iter().enumerate() {
            let mut next = first;
            while next <= last {
                let block = next / packed::BLOCK_32;
                let numbers = blocks.numbers(block)?;
                let start = (next % packed::BLOCK_32) as usize;
                let end = (last - block * packed::BLOCK_32) as usize + 1;
                let some = numbers.get(start..end.min(numbers.len())).unwrap_or_default();
                if some.is_empty() {
                    let max = self.entries.saturating_sub(1).into();
                    return Err(IndexError::TooLarge { what: "row", got: last.into(), max });
                }
                each(place, some);
                next = (block + 1).saturating_mul(packed::BLOCK_32);
            }
        }
        Ok(())
    }

    /// Those of some entries that have some values, as ascending runs, if the form is packed. The
    /// entries are given as ascending runs, too; only the blocks that they touch are read.
    pub(in super::super) fn packed_entries_in(
        &self,
        ids: &[Range<u32>],
        entries: &[(u32, u32)],
    ) -> Result<Vec<(u32, u32)>, IndexError> {
        let (mut cursor, mut found) = (PackedCursor::new(*self), Vec::new());
        // The block at hand, and where some values are in it.
        let (mut block, mut places) = (u32::MAX, 0_u128);
        for &(first, last) in entries {
            let last = last.min(self.entries.saturating_sub(1));
            let mut next = first;
            while next <= last {
                if next / packed::BLOCK_32 != block {
                    block = next / packed::BLOCK_32;
                    let here = cursor.block(block)?.places(Wanted { ranges: ids });
                    places = here.ok_or_else(|| self.part.bad("ids", cursor.at))?;
                }
                let start = block * packed::BLOCK_32;
                let end = last.min(start + (packed::BLOCK_32 - 1));
                let to = u128::MAX >> (packed::BLOCK_32 - 1 - (end - start));
                let mut here = places & to & u128::MAX << (next - start);
                while here != 0 {
                    let from = here.trailing_zeros();
                    let len = (!(here >> from)).trailing_zeros();
                    push_run(&mut found, start + from, start + from + len);
                    here &= u128::MAX.checked_shl(from + len).unwrap_or(0);
                }
                let Some(behind) = end.checked_add(1) else { return Ok(found) };
                next = behind;
            }
        }
        Ok(found)
    }

    /// The entries that have some values, if the form is packed.
    pub(in super::super) fn packed_entries(
        &self,
        ids: &[Range<u32>],
    ) -> Result<BitSet, IndexError> {
        let mut found = BitSet::new(self.entries);
        let words = found.words_mut();
        self.packed_blocks(&mut |first, block| {
            let places = block.places(Wanted { ranges: ids })?;
            let [low, high] = [places, places >> 64].map(|half| half & u128::from(u64::MAX));
            let at = first as usize / 64;
            words[at] = u64::try_from(low).unwrap_or(0);
            if let Some(word) = words.get_mut(at + 1) {
                *word = u64::try_from(high).unwrap_or(0);
            }
            Some(())
        })?;
        Ok(found)
    }
}
