//! Checksums of the packets themselves: one for each piece that a mark leads to.
//!
//! A piece is the part of the packet file from the start of a mark's first record to the start of
//! the next mark's; the last piece goes on to where the index ends. The bytes before the first
//! mark, such as the header of the file, are the head. The section says where the head starts and
//! where the last piece ends, and has a checksum of the head and of each piece.

use std::ops::Range;

use super::format::{array, check_field};
use super::marks::{Mark, Marks};
use super::reader::Section;
use super::writer::Append;
use crate::error::{Expected, IndexError};

/// Bytes before the list of checksums: where the head starts, and where the last piece ends.
const FRONT_LEN: u64 = 16;

/// The checksums of a packet file, or of the part of it that an index covers.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PieceSums {
    /// Where the head starts.
    pub start: u64,
    /// Where the last piece ends.
    pub end: u64,
    /// CRC-32C of the head, and then of each piece.
    pub sums: Vec<u32>,
}

/// What is wrong with checksums that are to be written beside these marks: what, what it has to be,
/// and what it is.
pub(crate) fn check(marks: &[Mark], sums: &PieceSums) -> Option<(&'static str, Expected, u64)> {
    let (expected, got) = (marks.len() as u64 + 1, sums.sums.len() as u64);
    if expected != got {
        return Some(("number of checksums", Expected::Exactly(expected), got));
    }
    let (first, least) = match marks {
        [] => (sums.end, sums.start),
        [first, .., last] => (first.offset, last.offset.saturating_add(1)),
        [only] => (only.offset, only.offset.saturating_add(1)),
    };
    if sums.start > first {
        return Some(("start", Expected::AtMost(first), sums.start));
    }
    (sums.end < least).then_some(("end", Expected::AtLeast(least), sums.end))
}

/// Appends checksums that were checked.
pub(crate) fn encode(sums: &PieceSums, append: &mut Append<'_>) -> Result<(), IndexError> {
    append(&sums.start.to_le_bytes())?;
    append(&sums.end.to_le_bytes())?;
    for some in sums.sums.chunks(4_096) {
        let bytes: Vec<u8> = some.iter().flat_map(|sum| sum.to_le_bytes()).collect();
        append(&bytes)?;
    }
    Ok(())
}

/// The pieces of a packet file that an index has checksums of.
///
/// Nothing is read before it is asked for, and what is asked for is checked first.
/// [`Index::verify`](super::Index::verify) checks that pieces follow each other.
#[derive(Debug, Clone, Copy)]
pub struct Pieces<'a> {
    section: Section<'a>,
    marks: Marks<'a>,
    start: u64,
    end: u64,
}

/// A piece of a packet file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Piece {
    /// Where it lies.
    pub bytes: Range<u64>,
    /// Its CRC-32C.
    pub sum: u32,
}

impl<'a> Pieces<'a> {
    pub(crate) fn open(section: Section<'a>, marks: Marks<'a>) -> Result<Self, IndexError> {
        let expected = Expected::Exactly(FRONT_LEN + 4 * (u64::from(marks.len()) + 1));
        check_field(&|| section.name(), "length", section.offset(), expected, section.len())?;
        let front = section.read(0, FRONT_LEN)?;
        let number = |at| array(front, at).map_or(0, u64::from_le_bytes);
        Ok(Self { section, marks, start: number(0), end: number(8) })
    }

    /// How many there are, besides the head: one for each mark.
    pub fn len(&self) -> u32 {
        self.marks.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What lies before the first piece.
    pub fn head(&self) -> Result<Piece, IndexError> {
        let end = if self.is_empty() { self.end } else { self.marks.offset(0)? };
        Ok(Piece { bytes: self.start..end, sum: self.sum(0)? })
    }

    /// Piece `i`, that of the records of mark `i`.
    pub fn get(&self, i: u32) -> Result<Piece, IndexError> {
        let start = self.marks.offset(i)?;
        let end = if i + 1 < self.len() { self.marks.offset(i + 1)? } else { self.end };
        Ok(Piece { bytes: start..end, sum: self.sum(u64::from(i) + 1)? })
    }

    fn sum(&self, i: u64) -> Result<u32, IndexError> {
        Ok(array(self.section.read(FRONT_LEN + 4 * i, 4)?, 0).map_or(0, u32::from_le_bytes))
    }

    /// Checks that the head starts before the first piece, and the last piece before its end. The
    /// marks have a check of their own.
    pub(crate) fn verify(&self) -> Result<(), IndexError> {
        let name = || self.section.name();
        let (first, least) = match self.len().checked_sub(1) {
            None => (self.end, self.start),
            Some(last) => (self.marks.offset(0)?, self.marks.offset(last)?.saturating_add(1)),
        };
        let at = self.section.offset();
        check_field(&name, "start", at, Expected::AtMost(first), self.start)?;
        check_field(&name, "end", at + 8, Expected::AtLeast(least), self.end)
    }
}
