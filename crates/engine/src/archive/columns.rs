//! The columns of a segment, by field: present, left out, or unknown.

use std::ops::RangeInclusive;

use super::note::Note;
use super::segment::Segment;
use crate::error::IndexError;
use crate::fields::{Field, FieldSet};
use crate::index::{FieldIndex, FlowField, Found, Index, Within};
use crate::packet::LinkType;

/// What a segment knows about a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Column {
    /// Its value in every row.
    Known,
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

/// The column of a field: in tables and segments of version 1 it is cut into digits, since then it
/// is a dictionary of values.
#[derive(Debug, Clone, Copy)]
pub enum FieldColumn<'a> {
    /// Cut into digits.
    Digits(FieldIndex<'a>),
    /// By whole values.
    Values(FlowField<'a>),
}

impl<'a> FieldColumn<'a> {
    /// The greatest value that fits into it.
    pub fn value_max(&self) -> u128 {
        match self {
            Self::Digits(field) => field.value_max(),
            Self::Values(field) => field.value_max(),
        }
    }

    /// The rows in which the bits of the value that `mask` selects are these. Here and in the other
    /// look-ups, what is found only has to be right [`within`](Within) some conversations.
    pub fn masked(
        &self,
        value: u128,
        mask: u128,
        within: Option<&Within>,
    ) -> Result<Found<'a>, IndexError> {
        match self {
            Self::Digits(field) => field.masked(value, mask),
            Self::Values(field) => field.masked(value, mask, within),
        }
    }

    /// The rows with a value in a range.
    pub fn range(
        &self,
        values: RangeInclusive<u128>,
        within: Option<&Within>,
    ) -> Result<Found<'a>, IndexError> {
        match self {
            Self::Digits(field) => {
                field.range(values).map(|rows| Found::Some(rows, field.rows().into()))
            }
            Self::Values(field) => field.range(values, within),
        }
    }

    /// The rows in which the first digit of the value, which has `behind` more bits, satisfies a
    /// condition.
    pub(crate) fn first_digit(
        &self,
        behind: u32,
        holds: &mut dyn FnMut(u16) -> bool,
        within: Option<&Within>,
    ) -> Result<Found<'a>, IndexError> {
        match self {
            Self::Digits(field) => field.first_digit_where(holds),
            Self::Values(field) => field.matching(
                &mut |value| u16::try_from(value >> behind).is_ok_and(&mut *holds),
                within,
            ),
        }
    }

    /// Bytes that have to be read for a masked value, about; 0 if no row has it.
    pub fn weight(&self, value: u128, mask: u128) -> Result<u64, IndexError> {
        match self {
            Self::Digits(field) => field.weight(value, mask),
            Self::Values(field) => field.weight(value, mask),
        }
    }

    /// How many of some rows have each value; of all rows if there is no list. Rows are ascending
    /// runs, given by their first and last.
    pub fn count(&self, rows: Option<&[(u32, u32)]>) -> Result<Vec<(u128, u64)>, IndexError> {
        match self {
            Self::Digits(field) => {
                let ids = |rows: &[(u32, u32)]| -> Vec<u32> {
                    rows.iter().flat_map(|&(first, last)| first..=last).collect()
                };
                field.count(rows.map(ids).as_deref())
            }
            Self::Values(field) => field.count(rows),
        }
    }

    /// Passes every row's value to `each`, as runs of rows: the value, the first and the last row.
    pub fn for_each_run(&self, each: &mut dyn FnMut(u128, u32, u32)) -> Result<(), IndexError> {
        match self {
            Self::Digits(field) => field.for_each_run(each),
            Self::Values(field) => field.for_each_run(each),
        }
    }
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
    pub fn get(&self, field: Field) -> Column {
        let name = field.name();
        let is_known = match self.index.flow_schema() {
            Some(schema) => {
                schema.columns.iter().any(|column| column.names.iter().any(|other| other == name))
            }
            None => self.index.find_field(name).is_some(),
        };
        match is_known {
            true => Column::Known,
            false if self.note.known_zero().contains(field) => Column::Zero,
            false => Column::Unknown,
        }
    }

    /// The column of a field, `None` if it is 0 in all rows. An error if the segment does not know
    /// it: callers that may meet such a segment use [`get`](Self::get) first.
    pub fn read(&self, field: Field) -> Result<Option<FieldColumn<'a>>, IndexError> {
        let name = field.name();
        let found = match self.index.flow_schema() {
            Some(_) => self.index.flow_field(name)?.map(FieldColumn::Values),
            None => self.index.find_field(name).map(FieldColumn::Digits),
        };
        match found {
            Some(column) => Ok(Some(column)),
            None if self.note.known_zero().contains(field) => Ok(None),
            None => {
                let known = FieldSet::ALL.iter().filter(|&field| self.knows(field));
                let known: Vec<&str> = known.map(Field::name).collect();
                Err(IndexError::UnknownField { name: name.into(), known: known.join(", ").into() })
            }
        }
    }

    /// The column of both ends of a packet, by the field of the source, if the segment keeps them
    /// together: a look-up finds the rows in which either has the value.
    pub(crate) fn read_either(&self, src: Field) -> Result<Option<FieldColumn<'a>>, IndexError> {
        let field = self.index.flow_field(src.name())?;
        Ok(field.and_then(FlowField::either_end).map(FieldColumn::Values))
    }

    /// Whether the segment knows a field.
    pub fn knows(&self, field: Field) -> bool {
        self.get(field) != Column::Unknown
    }

    /// Rows of the segment.
    pub fn rows(&self) -> u32 {
        self.index.rows()
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
