//! The container of an index of conversations, taken apart and put together again without the code
//! that is tested.

use std::ops::Range;

use super::forge::directory;
use crate::index::format::{
    BLOCK_LEN, FOOTER_LEN, FORMAT_VERSION, Footer, HEADER_LEN, MAGIC, SectionKind, blocks, size,
};

/// Whether a file says that it is of the version that has such a container.
pub(super) fn is_of_flows(bytes: &[u8]) -> bool {
    bytes.get(8..10) == Some(&FORMAT_VERSION.to_le_bytes())
}

fn push_varint(mut number: u64, target: &mut Vec<u8>) {
    while number >= 0x80 {
        target.push((number & 0x7F | 0x80).to_le_bytes()[0]);
        number >>= 7;
    }
    target.push(number.to_le_bytes()[0]);
}

/// The next varint, which is taken off the bytes.
fn varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let byte = *bytes.split_off_first()?;
        number |= u64::from(byte & 0x7F) << shift;
        if byte < 0x80 {
            return Some(number);
        }
    }
    None
}

/// What a directory says about each section: its kind with the flag, and its length.
fn entries(mut directory: &[u8]) -> Option<Vec<(u64, u64)>> {
    directory.split_off(..4)?;
    let count = varint(&mut directory)?;
    let mut entries = Vec::new();
    for _ in 0..count {
        entries.push((varint(&mut directory)?, varint(&mut directory)?));
    }
    Some(entries)
}

/// The checksum of each block.
fn block_sums(bytes: &[u8]) -> Vec<u8> {
    let sums = bytes.chunks(size(BLOCK_LEN)).map(crc32c::crc32c);
    sums.flat_map(u32::to_le_bytes).collect()
}

/// Computes the checksums of the blocks again, and the checksum of these, which is in the
/// directory.
pub(super) fn mend_sums(bytes: &mut [u8], directory: Range<usize>) {
    let Some(entries) = entries(&bytes[directory.clone()]) else { return };
    let end = entries.iter().try_fold(HEADER_LEN, |sum, entry| sum.checked_add(entry.1));
    let start = directory.start as u64;
    let Some(end) = end.filter(|&end| end < start && end + 4 * blocks(end) <= start) else {
        return;
    };
    let sums = block_sums(&bytes[..size(end)]);
    bytes[size(end)..size(end) + sums.len()].copy_from_slice(&sums);
    let sum = crc32c::crc32c(&bytes[size(end)..directory.start]);
    bytes[directory.start..directory.start + 4].copy_from_slice(&sum.to_le_bytes());
}

/// The sections of a file.
#[derive(Debug, Clone)]
pub struct Parts {
    header: Vec<u8>,
    /// Kinds, with the flag, and bytes.
    pub sections: Vec<(u64, Vec<u8>)>,
}

impl Parts {
    /// The sections of a sound file.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let header = bytes.get(..size(HEADER_LEN))?.to_vec();
        let mut rest = bytes.get(size(HEADER_LEN)..)?;
        let mut sections = Vec::new();
        for (kind, len) in entries(bytes.get(directory(bytes)?)?)? {
            sections.push((kind, rest.split_off(..usize::try_from(len).ok()?)?.to_vec()));
        }
        Some(Self { header, sections })
    }

    /// The sections of a file that bytes were inserted into or taken from: the longest is as long
    /// as fits.
    pub(super) fn fitted(bytes: &[u8]) -> Option<Self> {
        let end = bytes.len().checked_sub(size(FOOTER_LEN))?;
        let start = end.checked_sub(usize::try_from(Footer::parse(bytes).directory_len).ok()?)?;
        let entries = entries(&bytes[start..end])?;
        // Each block of the sections has a checksum behind them.
        let sums = start.div_ceil(size(BLOCK_LEN) + 4) * 4;
        let mut room = start.checked_sub(sums + size(HEADER_LEN))?;
        let longest = entries.iter().enumerate().max_by_key(|(_, entry)| entry.1)?.0;
        let lens = entries.iter().enumerate().filter(|(at, _)| *at != longest);
        let others = lens.map(|(_, entry)| usize::try_from(entry.1).unwrap_or(usize::MAX));
        let others = others.fold(0, usize::saturating_add);
        room = room.checked_sub(others)?;
        let mut rest = &bytes[size(HEADER_LEN)..];
        let mut sections = Vec::new();
        for (at, &(kind, len)) in entries.iter().enumerate() {
            let len = if at == longest { room } else { usize::try_from(len).ok()? };
            sections.push((kind, rest.split_off(..len)?.to_vec()));
        }
        let mut header = bytes[..size(HEADER_LEN)].to_vec();
        header[..8].copy_from_slice(&MAGIC);
        Some(Self { header, sections })
    }

    /// The bytes of the first section of a kind.
    pub fn section_mut(&mut self, kind: SectionKind) -> Option<&mut Vec<u8>> {
        let is_it = |section: &&mut (u64, Vec<u8>)| section.0 == 2 * kind as u64;
        self.sections.iter_mut().find(is_it).map(|(_, bytes)| bytes)
    }

    /// The file that has these sections, with checksums that are right.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = self.header.clone();
        let sum = crc32c::crc32c(&bytes[..60]);
        bytes[60..].copy_from_slice(&sum.to_le_bytes());
        self.sections.iter().for_each(|(_, section)| bytes.extend(section));
        let sums = block_sums(&bytes);
        bytes.extend(&sums);
        let start = bytes.len();
        bytes.extend(crc32c::crc32c(&sums).to_le_bytes());
        push_varint(self.sections.len() as u64, &mut bytes);
        for (kind, section) in &self.sections {
            push_varint(*kind, &mut bytes);
            push_varint(section.len() as u64, &mut bytes);
        }
        let footer = Footer {
            directory: start as u64,
            directory_len: (bytes.len() - start) as u64,
            file_len: bytes.len() as u64 + FOOTER_LEN,
            directory_sum: crc32c::crc32c(&bytes[start..]),
        };
        bytes.extend(footer.encode());
        bytes
    }
}
