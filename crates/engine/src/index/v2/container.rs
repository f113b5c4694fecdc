//! The file around the sections of version 2: nothing but them, a checksum for every 4,096 bytes,
//! and a directory.
//!
//! ```text
//! header, as in version 1
//! sections, one behind the other
//! CRC-32C of every 4,096 bytes up to here, u32 each
//! directory: CRC-32C of these checksums u32; number of sections varint; for each section:
//!            twice its kind, and one more if it must not be skipped varint, its length varint
//! footer, as in version 1
//! ```

use super::super::format::{
    Entry, FOOTER_LEN, Footer, HEADER_LEN, NO_COLUMN, REQUIRED, blocks, check_field, check_sum,
};
use super::bits::{Reader, push_varint, u32_at};
use crate::error::{Expected, IndexError};

/// What follows the sections, given the checksums of the blocks and the length of all up to there.
pub(super) fn tail(sections: &[(u16, u64)], sums: &[u32], start: u64) -> Vec<u8> {
    let mut target: Vec<u8> = sums.iter().flat_map(|sum| sum.to_le_bytes()).collect();
    let mut directory = Vec::new();
    directory.extend(crc32c::crc32c(&target).to_le_bytes());
    push_varint(sections.len() as u128, &mut directory);
    for &(kind, len) in sections {
        push_varint(2 * u128::from(kind), &mut directory);
        push_varint(len.into(), &mut directory);
    }
    let footer = Footer {
        directory: start + target.len() as u64,
        directory_len: directory.len() as u64,
        file_len: start + (target.len() + directory.len()) as u64 + FOOTER_LEN,
        directory_sum: crc32c::crc32c(&directory),
    };
    target.extend(directory);
    target.extend(footer.encode());
    target
}

/// The checksums of a file, one for each block.
#[derive(Debug, Clone, Copy)]
pub(in super::super) struct Sums {
    /// Where the sections end and the checksums start.
    pub(in super::super) start: u64,
    /// How many blocks there are.
    pub(in super::super) blocks: u64,
}

/// The sections of a file whose header is good, and where its checksums are, which are good.
pub(in super::super) fn decode(file: &[u8]) -> Result<(Vec<Entry>, Sums), IndexError> {
    let (footer, directory) = Footer::decode(file, 1)?;
    let section = || "directory".into();
    let bad = |what, at: usize| {
        let offset = footer.directory + at as u64;
        IndexError::Malformed { section: section(), what, offset }
    };
    let mut reader = Reader::new(directory);
    let sums_sum = reader.take(4).map(|sum| u32_at(sum, 0)).ok_or_else(|| bad("checksum", 0))?;
    let count = reader.varint().ok_or_else(|| bad("number of sections", 4))?;
    // A section takes two bytes of the directory at least.
    let most = Expected::AtMost(directory.len() as u64 / 2);
    check_field(&section, "number of sections", footer.directory + 4, most, count)?;
    let mut entries = Vec::with_capacity(usize::try_from(count).unwrap_or(0));
    let mut offset = HEADER_LEN;
    let mut column = 0;
    for _ in 0..count {
        let at = reader.at;
        let kind = reader.varint().filter(|&kind| kind < 1 << 17);
        let (Some(kind), Some(len)) = (kind, reader.varint()) else {
            return Err(bad("section", at));
        };
        let flags = if kind & 1 == 1 { REQUIRED } else { 0 };
        let kind = u16::try_from(kind >> 1).unwrap_or(u16::MAX);
        let mut entry = Entry { kind, flags, column: NO_COLUMN, offset, len, sums_sum: 0, bit: 0 };
        match entry.known() {
            None if flags != 0 => return Err(IndexError::UnknownSection { kind, offset }),
            Some(_) if flags != 0 => return Err(bad("flags", at)),
            // Columns are numbered as they come.
            Some(kind) if kind.of_flow_column() => (entry.column, column) = (column, column + 1),
            _ => {}
        }
        offset = offset.checked_add(len).ok_or_else(|| bad("length of a section", at))?;
        entries.push(entry);
    }
    if !reader.is_at_end() {
        return Err(bad("end of the directory", reader.at));
    }
    let sums = Sums { start: offset, blocks: blocks(offset) };
    let end = offset.saturating_add(4 * sums.blocks);
    check_field(&section, "end of the sections", offset, Expected::Exactly(footer.directory), end)?;
    let bytes = &file[usize::try_from(offset).unwrap_or(0)..usize::try_from(end).unwrap_or(0)];
    check_sum(&|| "checksums".into(), offset, bytes, sums_sum)?;
    Ok((entries, sums))
}
