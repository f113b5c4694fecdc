//! The sections of an open index: bytes that are checked when they are first read.

use super::super::format::{BLOCK_LEN, Entry, blocks, check_field, check_sum, size};
use super::{Index, SectionInfo, Verified};
use crate::error::{Expected, IndexError};

/// A section of an open index.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Section<'a> {
    pub(super) index: &'a Index,
    pub(super) entry: usize,
}

impl<'a> Section<'a> {
    pub(super) fn entry(&self) -> &'a Entry {
        &self.index.entries[self.entry]
    }

    /// Where it starts in the file.
    pub(crate) fn offset(&self) -> u64 {
        self.entry().offset
    }

    /// How many bytes it has.
    pub(crate) fn len(&self) -> u64 {
        self.entry().len
    }

    /// Its name in messages.
    pub(crate) fn name(&self) -> Box<str> {
        let entry = self.entry();
        match entry.known() {
            None => format!("section of kind {}", entry.kind).into(),
            Some(kind) if kind.of_column() || kind.of_flow_column() => {
                self.index.column_name(kind, entry.column as usize)
            }
            Some(kind) => kind.name().into(),
        }
    }

    pub(super) fn info(&self) -> SectionInfo {
        let entry = self.entry();
        let of_column = entry.known().is_some_and(|kind| kind.of_column() || kind.of_flow_column());
        let has_sums = self.index.sums.is_none();
        SectionInfo {
            kind: entry.known(),
            kind_code: entry.kind,
            column: of_column.then_some(entry.column as usize),
            offset: entry.offset,
            len_bytes: entry.len,
            checksum_bytes: if has_sums { 4 * blocks(entry.len) } else { 0 },
        }
    }

    /// The checksums that lie behind it, not checked.
    pub(super) fn sums(&self) -> &'a [[u8; 4]] {
        let entry = self.entry();
        // The directory was checked: section and checksums are inside the file.
        let start = size(entry.offset + entry.len);
        self.index.bytes.bytes()[start..start + 4 * size(blocks(entry.len))].as_chunks().0
    }

    /// The bytes of a block, not checked.
    pub(super) fn block(&self, block: u64) -> &'a [u8] {
        let entry = self.entry();
        let start = entry.offset + block * BLOCK_LEN;
        let end = (start + BLOCK_LEN).min(entry.offset + entry.len);
        &self.index.bytes.bytes()[size(start)..size(end)]
    }

    pub(super) fn check_sums(&self) -> Result<(), IndexError> {
        let entry = self.entry();
        let name = || format!("checksums of the {}", self.name()).into();
        let sums = self.sums().as_flattened();
        check_sum(&name, entry.offset + entry.len, sums, entry.sums_sum)
    }

    pub(super) fn check_block(&self, block: u64) -> Result<(), IndexError> {
        let stored = self.sums().get(size(block)).copied().map_or(0, u32::from_le_bytes);
        let offset = self.offset() + block * BLOCK_LEN;
        check_sum(&|| self.name(), offset, self.block(block), stored)
    }

    /// `len` bytes from `start` on, counted from the start of the section. The blocks that they are
    /// in are checked first, unless that was done before.
    pub(crate) fn read(&self, start: u64, len: u64) -> Result<&'a [u8], IndexError> {
        let (entry, index) = (self.entry(), self.index);
        let end = start.saturating_add(len);
        let most = Expected::AtMost(entry.len);
        check_field(&|| self.name(), "end of what is read", entry.offset, most, end)?;
        if len == 0 {
            return Ok(&[]);
        }
        if let Some(sums) = index.sums {
            let (start, end) = (entry.offset + start, entry.offset + end);
            for block in start / BLOCK_LEN..=(end - 1) / BLOCK_LEN {
                if !index.is_checked(block) {
                    index.check_file_block(sums, block)?;
                    index.set_checked(block);
                }
            }
            return Ok(&index.file()[size(start)..size(end)]);
        }
        for block in start / BLOCK_LEN..=(end - 1) / BLOCK_LEN {
            let first = u64::from(entry.bit);
            let bit = first + 1 + block;
            if index.is_checked(bit) {
                continue;
            }
            if !index.is_checked(first) {
                self.check_sums()?;
                index.set_checked(first);
            }
            self.check_block(block)?;
            index.set_checked(bit);
        }
        let at = size(entry.offset + start);
        Ok(&index.bytes.bytes()[at..at + size(len)])
    }

    pub(super) fn all(&self) -> Result<&'a [u8], IndexError> {
        self.read(0, self.len())
    }

    /// Compares all checksums, whether that was done before or not.
    pub(super) fn verify(&self, found: &mut Verified) {
        if let Err(error) = self.check_sums() {
            found.add(error);
            // Damaged checksums say nothing about the blocks.
            return;
        }
        for block in 0..blocks(self.len()) {
            if let Err(error) = self.check_block(block) {
                found.add(error);
            }
        }
    }
}
