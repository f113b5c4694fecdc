//! Looking values up in columns.

use std::ops::RangeInclusive;

use tapdex_bitmap::{Bitmap, Chunks};

use super::{Planned, Planner, Set};
use crate::error::IndexError;
use crate::fields::{Field, length_class, length_class_start};
use crate::index::FieldIndex;
use crate::packet::{Encap, Fragment};
use crate::query::filter::Direction;

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

    /// Combines the rows of the two ends of a packet.
    pub(crate) fn ends(
        &self,
        direction: Direction,
        src: Field,
        dst: Field,
        end: &dyn Fn(Field) -> Planned<'a>,
    ) -> Planned<'a> {
        Ok(match direction {
            Direction::Src => end(src)?,
            Direction::Dst => end(dst)?,
            Direction::Either => Set::any_of(vec![end(src)?, end(dst)?]),
            Direction::Both => Set::all_of(vec![end(src)?, end(dst)?]),
        })
    }

    /// Rows in which a field has a value. A field that a segment does not have is 0 in all rows.
    pub(crate) fn equals(&self, field: Field, value: u128) -> Planned<'a> {
        let Some(column) = self.columns.read(field)? else {
            return Ok(if value == 0 { Set::All } else { Set::None });
        };
        if value > column.value_max() {
            return Ok(Set::None);
        }
        self.masked_columns(&column, value, column.value_max())
    }

    /// Rows in which a field has one of some values.
    pub(crate) fn any_value(&self, field: Field, values: &[u128]) -> Planned<'a> {
        let sets: Result<Vec<_>, _> = values.iter().map(|&v| self.equals(field, v)).collect();
        Ok(Set::any_of(sets?))
    }

    /// Rows in which the bits of a field that `mask` selects have a value.
    pub(super) fn masked(&self, field: Field, value: u128, mask: u128) -> Planned<'a> {
        match self.columns.read(field)? {
            None => Ok(if value & mask == 0 { Set::All } else { Set::None }),
            Some(column) => self.masked_columns(&column, value, mask),
        }
    }

    fn masked_columns(&self, field: &FieldIndex<'a>, value: u128, mask: u128) -> Planned<'a> {
        // Whole digits: the bytes of their bitmaps, the column, the digit. And parts of digits.
        let (mut whole, mut parts) = (Vec::new(), Vec::new());
        for Masked { number, wanted, counts, whole: is_whole } in masked_digits(field, value, mask)
        {
            if is_whole {
                match self.columns.bitmap_len(number, wanted)? {
                    0 => return Ok(Set::None),
                    len => whole.push((len, number, wanted)),
                }
            } else if counts != 0 {
                parts.push((number, wanted, counts));
            }
        }
        // The smallest first: if those have no row in common, the others need not be read.
        whole.sort_unstable();
        let mut sets = Vec::with_capacity(whole.len() + parts.len());
        let mut last: Option<Bitmap<'a>> = None;
        for &(len, number, digit) in &whole {
            let Some(bitmap) = self.columns.equals(number, digit)? else {
                return Ok(Set::None);
            };
            if let Some(last) = last.replace(bitmap)
                && is_empty(last.chunks().and(bitmap.chunks()))
            {
                return Ok(Set::None);
            }
            sets.push(Set::Rows(Box::new(bitmap.chunks()), len));
        }
        for (number, wanted, counts) in parts {
            let column = self.columns.column(number)?;
            let digits: Vec<u16> =
                column.keys().filter(|key| key & counts == wanted & counts).collect();
            match self.digits(&column, &digits)? {
                Set::None => return Ok(Set::None),
                set => sets.push(set),
            }
        }
        Ok(Set::all_of(sets))
    }

    /// Rows in which a column has one of some digits.
    fn digits(&self, column: &crate::index::Column<'a>, digits: &[u16]) -> Planned<'a> {
        let found: Vec<usize> = digits.iter().filter_map(|&d| column.position(d)).collect();
        if found.is_empty() {
            return Ok(Set::None);
        }
        if found.len() == column.len() {
            return Ok(Set::All);
        }
        let weight = found.iter().map(|&i| column.bitmap_len(i)).sum();
        Ok(Set::Rows(column.any_of(digits)?, weight))
    }

    /// Rows in which the first digit of a field is one of these.
    pub(super) fn first_digit(&self, field: Field, digits: &[u16]) -> Planned<'a> {
        let Some(column) = self.columns.read(field)? else {
            return Ok(if digits.contains(&0) { Set::All } else { Set::None });
        };
        match column.columns().next() {
            None => Ok(Set::None),
            Some(column) => self.digits(&column?, digits),
        }
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
        let Some(column) = column.columns().next().transpose()? else { return Ok(Set::None) };
        let digits: Vec<u16> = column.keys().filter(|&digit| holds(digit.into())).collect();
        self.digits(&column, &digits)
    }

    /// Rows in which a field is in a range.
    pub(crate) fn range(&self, field: Field, values: RangeInclusive<u128>) -> Planned<'a> {
        if values.is_empty() {
            return Ok(Set::None);
        }
        if values.start() == values.end() {
            return self.equals(field, *values.start());
        }
        let Some(column) = self.columns.read(field)? else {
            return Ok(if values.contains(&0) { Set::All } else { Set::None });
        };
        if *values.start() == 0 && *values.end() >= column.value_max() {
            return Ok(Set::All);
        }
        let rows = column.range(values)?;
        Ok(Set::Rows(rows, u64::from(self.columns.rows())))
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

/// A digit of a masked value.
pub(super) struct Masked {
    /// The column.
    pub(super) number: usize,
    pub(super) wanted: u16,
    counts: u16,
    /// All of its bits count.
    pub(super) whole: bool,
}

/// The digits of a masked value, the most significant first.
pub(super) fn masked_digits(
    field: &FieldIndex<'_>,
    value: u128,
    mask: u128,
) -> impl Iterator<Item = Masked> {
    let mut after = field.field().bits();
    field.column_numbers().zip(&field.field().columns).map(move |(number, spec)| {
        let width = spec.width.bits();
        after -= width;
        let full = (1 << width) - 1;
        let digit = |bits: u128| u16::try_from(bits >> after & full).unwrap_or(0);
        let whole = mask >> after & full == full;
        Masked { number, wanted: digit(value), counts: digit(mask), whole }
    })
}

/// Whether a set has no rows.
fn is_empty(mut rows: impl Chunks) -> bool {
    let mut from = 0;
    while let Some(key) = rows.seek(from) {
        if rows.chunk_len() > 0 {
            return false;
        }
        from = key + 1;
    }
    true
}
