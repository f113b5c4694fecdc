//! The columns of a segment, by field: present, left out, or unknown.

use tapdex_bitmap::Bitmap;

use super::note::Note;
use super::segment::Segment;
use crate::error::IndexError;
use crate::fields::{Field, FieldSet};
use crate::index::{self, FieldIndex, Index};
use crate::packet::LinkType;

/// What a segment knows about a field.
pub enum Column<'a> {
    /// Its value in every row.
    Known(FieldIndex<'a>),
    /// It is 0 in all rows, so it was left out.
    Zero,
    /// Nothing: the program that wrote the segment did not know the field, or was set not to keep
    /// it. It may have any value in any row, so the packets have to be read.
    Unknown,
}

/// The columns of a segment.
///
/// A field that is 0 in all rows is left out of a segment, and so is one that its writer did not
/// know: the note tells these apart. This is the only way from a [`Field`] to its column, so that
/// no caller confuses the two.
#[derive(Debug, Clone, Copy)]
pub struct Columns<'a> {
    index: &'a Index,
    note: &'a Note,
}

/// Which rows are from links of some kinds.
pub(crate) enum OfLinks {
    All,
    None,
    /// Those of these interfaces.
    Interfaces(Vec<u128>),
}

impl<'a> Columns<'a> {
    pub(super) fn new(segment: &'a Segment) -> Self {
        Self { index: segment.index(), note: segment.note() }
    }

    /// What the segment knows about a field.
    pub fn get(&self, field: Field) -> Column<'a> {
        match self.index.find_field(field.name()) {
            Some(column) => Column::Known(column),
            None if self.note.known_zero().contains(field) => Column::Zero,
            None => Column::Unknown,
        }
    }

    /// The column of a field, `None` if it is 0 in all rows. An error if the segment does not know
    /// it: callers that may meet such a segment use [`get`](Self::get) first.
    pub(crate) fn read(&self, field: Field) -> Result<Option<FieldIndex<'a>>, IndexError> {
        match self.get(field) {
            Column::Known(column) => Ok(Some(column)),
            Column::Zero => Ok(None),
            Column::Unknown => {
                let known = FieldSet::ALL.iter().filter(|&field| self.knows(field));
                let known: Vec<&str> = known.map(Field::name).collect();
                let name = field.name().into();
                Err(IndexError::UnknownField { name, known: known.join(", ").into() })
            }
        }
    }

    /// Whether the segment knows a field.
    pub fn knows(&self, field: Field) -> bool {
        !matches!(self.get(field), Column::Unknown)
    }

    /// Rows of the segment.
    pub fn rows(&self) -> u32 {
        self.index.rows()
    }

    /// Bytes of the bitmap of a digit; 0 if it does not occur.
    pub(crate) fn bitmap_len(&self, column: usize, digit: u16) -> Result<u64, IndexError> {
        self.index.bitmap_len(column, digit)
    }

    /// The rows in which a column has a digit, if there are any.
    pub(crate) fn equals(
        &self,
        column: usize,
        digit: u16,
    ) -> Result<Option<Bitmap<'a>>, IndexError> {
        self.index.equals(column, digit)
    }

    /// A column, by its number.
    pub(crate) fn column(&self, number: usize) -> Result<index::Column<'a>, IndexError> {
        self.index.column(number)
    }

    /// The rows that are from links of some kinds.
    pub(crate) fn of_links(&self, links: &[LinkType]) -> OfLinks {
        let interfaces = &self.note.layout.interfaces;
        let fits = |link: u16| links.contains(&LinkType(link));
        let numbers = (0_u128..).zip(interfaces).filter(|(_, one)| fits(one.link));
        let numbers: Vec<u128> = numbers.map(|(number, _)| number).collect();
        match numbers.len() {
            0 => OfLinks::None,
            len if len == interfaces.len() => OfLinks::All,
            _ => OfLinks::Interfaces(numbers),
        }
    }
}
