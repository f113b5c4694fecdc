//! Where in the packet file the records are, and when they were captured, 32 at a time.
//!
//! A mark says where the first of 32 records in order of arrival starts, and the least and the
//! greatest time of them. So a search finds the few pieces of the packet file that it has to read,
//! and leaves out those from other times. The section is three lists of packed numbers, one after
//! the other: offsets, least times, and the differences from the least to the greatest times.

use super::packed::{self, Packed};
use super::reader::Section;
use super::v2::CompactMarks;
use super::writer::Append;
use crate::error::{Expected, IndexError};

/// Records of a mark, in order of arrival; the last mark may have fewer.
pub const MARK_RECORDS: u32 = 32;

/// Where records are and when they were captured, for [`MARK_RECORDS`] of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Mark {
    /// Where in the packet file the first of them starts.
    pub offset: u64,
    /// The least of their times, in nanoseconds since 1970.
    pub time_min: u64,
    /// The greatest of them.
    pub time_max: u64,
}

/// How many marks there are for a number of rows.
pub(crate) fn count(rows: u32) -> u32 {
    rows.div_ceil(MARK_RECORDS)
}

/// What is wrong with marks that are to be written: what, what it has to be, and what it is.
pub(crate) fn check(rows: u32, marks: &[Mark]) -> Option<(&'static str, Expected, u64)> {
    let (expected, got) = (count(rows).into(), marks.len() as u64);
    if expected != got {
        return Some(("number of marks", Expected::Exactly(expected), got));
    }
    if let Some(pair) = marks.windows(2).find(|pair| pair[0].offset >= pair[1].offset) {
        let least = pair[0].offset.saturating_add(1);
        return Some(("offset", Expected::AtLeast(least), pair[1].offset));
    }
    let mark = marks.iter().find(|mark| mark.time_min > mark.time_max)?;
    Some(("greatest time", Expected::AtLeast(mark.time_min), mark.time_max))
}

/// Appends marks that were checked.
pub(crate) fn encode(marks: &[Mark], append: &mut Append<'_>) -> Result<(), IndexError> {
    let count = u32::try_from(marks.len()).unwrap_or(u32::MAX);
    packed::encode(count, |i| marks[i].offset, append)?;
    packed::encode(count, |i| marks[i].time_min, append)?;
    packed::encode(count, |i| marks[i].time_max - marks[i].time_min, append)
}

/// The marks of an index.
///
/// Nothing is unpacked before it is asked for, and what is asked for is checked first, so every
/// answer may be an error. [`Index::verify`](super::Index::verify) checks that offsets ascend.
#[derive(Debug, Clone, Copy)]
pub struct Marks<'a>(Kind<'a>);

#[derive(Debug, Clone, Copy)]
enum Kind<'a> {
    Packed(PackedMarks<'a>),
    Compact(CompactMarks<'a>),
}

impl<'a> Marks<'a> {
    pub(crate) fn open(section: Section<'a>, rows: u32) -> Result<Self, IndexError> {
        PackedMarks::open(section, rows).map(|marks| Self(Kind::Packed(marks)))
    }

    pub(crate) fn of_compact(marks: CompactMarks<'a>) -> Self {
        Self(Kind::Compact(marks))
    }

    /// How many there are.
    pub fn len(&self) -> u32 {
        match &self.0 {
            Kind::Packed(marks) => marks.len(),
            Kind::Compact(marks) => marks.len(),
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Mark `i`, that of the records from `i` times [`MARK_RECORDS`] on.
    pub fn get(&self, i: u32) -> Result<Mark, IndexError> {
        match &self.0 {
            Kind::Packed(marks) => marks.get(i),
            Kind::Compact(marks) => marks.get(i),
        }
    }

    /// Where the records of mark `i` start.
    pub(crate) fn offset(&self, i: u32) -> Result<u64, IndexError> {
        match &self.0 {
            Kind::Packed(marks) => marks.offsets.get(i),
            Kind::Compact(marks) => marks.get(i).map(|mark| mark.offset),
        }
    }

    /// All marks in order, unpacked many at a time. Do not use it after an error.
    pub fn iter(&self) -> Box<dyn Iterator<Item = Result<Mark, IndexError>> + 'a> {
        match self.0 {
            Kind::Packed(marks) => Box::new(marks.iter()),
            Kind::Compact(marks) => Box::new(marks.iter()),
        }
    }

    /// Checks that offsets ascend, that times are valid, and that the bytes are those that the
    /// writer writes.
    pub(crate) fn verify(&self) -> Result<(), IndexError> {
        match &self.0 {
            Kind::Packed(marks) => marks.verify(),
            Kind::Compact(marks) => marks.verify(),
        }
    }
}

/// The marks of a table, or of a segment of version 1.
#[derive(Debug, Clone, Copy)]
struct PackedMarks<'a> {
    section: Section<'a>,
    offsets: Packed<'a>,
    times: Packed<'a>,
    spans: Packed<'a>,
}

impl<'a> PackedMarks<'a> {
    fn open(section: Section<'a>, rows: u32) -> Result<Self, IndexError> {
        let count = count(rows);
        let (offsets, end) = Packed::open_part(section, 0, count)?;
        let (times, end) = Packed::open_part(section, end, count)?;
        let spans = Packed::open_last(section, end, count)?;
        Ok(Self { section, offsets, times, spans })
    }

    fn len(&self) -> u32 {
        self.offsets.len()
    }

    fn get(&self, i: u32) -> Result<Mark, IndexError> {
        self.mark(self.offsets.get(i)?, self.times.get(i)?, self.spans.get(i)?)
    }

    fn mark(&self, offset: u64, time_min: u64, span: u64) -> Result<Mark, IndexError> {
        let time_max = time_min.checked_add(span).ok_or_else(|| IndexError::BadField {
            section: self.section.name(),
            what: "difference to a least time",
            offset: self.section.offset(),
            expected: Expected::AtMost(u64::MAX - time_min),
            got: span,
        })?;
        Ok(Mark { offset, time_min, time_max })
    }

    fn iter(&self) -> impl Iterator<Item = Result<Mark, IndexError>> + use<'a> {
        let marks = *self;
        let numbers = marks.offsets.iter().zip(marks.times.iter()).zip(marks.spans.iter());
        numbers.map(move |((offset, time), span)| marks.mark(offset?, time?, span?))
    }

    fn verify(&self) -> Result<(), IndexError> {
        let mut previous = None;
        self.offsets.verify(&mut |_, got| match previous.replace(got) {
            Some(before) if before >= got => Err(IndexError::NotAscending {
                section: self.section.name(),
                what: "offset",
                offset: self.section.offset(),
                previous: before,
                got,
            }),
            _ => Ok(()),
        })?;
        self.times.verify(&mut |_, _| Ok(()))?;
        self.spans.verify(&mut |_, _| Ok(()))?;
        self.iter().try_for_each(|mark| mark.map(|_| ()))
    }
}
