//! Looking values up in columns.

use std::ops::RangeInclusive;

use super::{Planned, Planner, Set};
use crate::archive::FieldColumn;
use crate::error::IndexError;
use crate::fields::{Field, length_class, length_class_start};
use crate::packet::{Encap, Fragment};
use crate::query::filter::Direction;

/// What is sought in a field.
#[derive(Debug, Clone)]
pub(crate) enum Sought {
    /// A value.
    Equal(u128),
    /// A value, of which only the bits of a mask count.
    Masked(u128, u128),
    /// A value in a range.
    Range(RangeInclusive<u128>),
}

impl Sought {
    fn holds(&self, value: u128) -> bool {
        match self {
            Self::Equal(sought) => value == *sought,
            Self::Masked(sought, mask) => value & mask == sought & mask,
            Self::Range(values) => values.contains(&value),
        }
    }
}

impl<'a> Planner<'a> {
    /// Rows with one of these before their network header.
    pub(crate) fn encap(&self, kinds: &[Encap]) -> Planned<'a> {
        let values: Vec<u128> = kinds.iter().map(|&kind| (kind as u8).into()).collect();
        self.any_value(Field::Encap, &values)
    }

    /// Rows that are not later fragments.
    pub(super) fn not_later(&self) -> Planned<'a> {
        Ok(self.equals(Field::Fragment, (Fragment::Later as u8).into())?.not(self.columns.rows()))
    }

    /// The rows in which the ends of a packet have what is sought.
    pub(crate) fn ends(
        &self,
        direction: Direction,
        src: Field,
        dst: Field,
        sought: &Sought,
    ) -> Planned<'a> {
        let end = |field: Field| self.look_up(self.columns.read(field)?, sought);
        Ok(match direction {
            Direction::Src => end(src)?,
            Direction::Dst => end(dst)?,
            Direction::Either => match self.columns.read_either(src)? {
                Some(both) => self.look_up(Some(both), sought)?,
                None => Set::any_of(vec![end(src)?, end(dst)?]),
            },
            Direction::Both => Set::all_of(vec![end(src)?, end(dst)?]),
        })
    }

    /// The rows in which a column has what is sought; without a column, the field is 0 in all rows.
    fn look_up(&self, column: Option<FieldColumn<'a>>, sought: &Sought) -> Planned<'a> {
        let Some(column) = column else {
            return Ok(if sought.holds(0) { Set::All } else { Set::None });
        };
        let (most, within) = (column.value_max(), self.within.as_deref());
        match sought {
            Sought::Equal(value) if *value > most => Ok(Set::None),
            Sought::Equal(value) => column.masked(*value, most, within).map(Set::from),
            Sought::Masked(value, mask) => column.masked(*value, *mask, within).map(Set::from),
            Sought::Range(values) if values.is_empty() => Ok(Set::None),
            Sought::Range(values) if values.start() == values.end() => {
                self.look_up(Some(column), &Sought::Equal(*values.start()))
            }
            Sought::Range(values) if *values.start() == 0 && *values.end() >= most => Ok(Set::All),
            Sought::Range(values) => column.range(values.clone(), within).map(Set::from),
        }
    }

    /// Rows in which a field has a value. A field that a segment does not have is 0 in all rows.
    pub(crate) fn equals(&self, field: Field, value: u128) -> Planned<'a> {
        self.look_up(self.columns.read(field)?, &Sought::Equal(value))
    }

    /// Rows in which a field has one of some values.
    pub(crate) fn any_value(&self, field: Field, values: &[u128]) -> Planned<'a> {
        let sets: Result<Vec<_>, _> = values.iter().map(|&v| self.equals(field, v)).collect();
        Ok(Set::any_of(sets?))
    }

    /// Rows in which the first digit of a field is one of these.
    pub(super) fn first_digit(&self, field: Field, digits: &[u16]) -> Planned<'a> {
        self.first_digit_where(field, |value| digits.iter().any(|&digit| u32::from(digit) == value))
    }

    /// Rows in which the first digit of a field satisfies a condition.
    pub(super) fn first_digit_where(
        &self,
        field: Field,
        holds: impl Fn(u32) -> bool,
    ) -> Planned<'a> {
        let Some(column) = self.columns.read(field)? else {
            return Ok(if holds(0) { Set::All } else { Set::None });
        };
        let spec = field.spec();
        let behind = spec.width.bits() * (spec.digits - 1);
        let holds = &mut |digit: u16| holds(digit.into());
        column.first_digit(behind, holds, self.within.as_deref()).map(Set::from)
    }

    /// Rows in which a field is in a range.
    pub(crate) fn range(&self, field: Field, values: RangeInclusive<u128>) -> Planned<'a> {
        self.look_up(self.columns.read(field)?, &Sought::Range(values))
    }

    /// Rows in which a field is in one of some ranges.
    pub(crate) fn ranges(&self, field: Field, values: &[RangeInclusive<u128>]) -> Planned<'a> {
        let sets: Result<Vec<_>, _> = values.iter().map(|v| self.range(field, v.clone())).collect();
        Ok(Set::any_of(sets?))
    }

    /// Rows whose length is in one of some ranges for certain.
    pub(crate) fn length(&self, lengths: &[RangeInclusive<u128>]) -> Planned<'a> {
        if self.columns.knows(Field::FrameLen) {
            return self.ranges(Field::FrameLen, lengths);
        }
        self.first_digit(Field::Length, &self.classes(lengths, true)?)
    }

    /// Rows whose class has lengths inside and outside of the ranges, if only the class is known.
    pub(crate) fn length_edge(&self, lengths: &[RangeInclusive<u128>]) -> Planned<'a> {
        if self.columns.knows(Field::FrameLen) {
            return Ok(Set::None);
        }
        self.first_digit(Field::Length, &self.classes(lengths, false)?)
    }

    /// The classes that lie inside a range, or those that lie on its edge.
    fn classes(
        &self,
        lengths: &[RangeInclusive<u128>],
        inside: bool,
    ) -> Result<Vec<u16>, IndexError> {
        let mut found = Vec::new();
        for class in 0..=length_class(u32::MAX) {
            let (first, end) = (length_class_start(class), length_class_start(class + 1));
            let (first, last) = (u128::from(first), u128::from(end) - 1);
            let contains = lengths.iter().any(|r| r.contains(&first) && r.contains(&last));
            let touches = lengths.iter().any(|r| *r.start() <= last && first <= *r.end());
            if if inside { contains } else { touches && !contains } {
                found.push(class.into());
            }
        }
        Ok(found)
    }

    /// The rows of some interfaces.
    pub(crate) fn interfaces(&self, interfaces: &[u32]) -> Planned<'a> {
        let values: Vec<u128> = interfaces.iter().map(|&i| i.into()).collect();
        self.any_value(Field::Interface, &values)
    }
}
