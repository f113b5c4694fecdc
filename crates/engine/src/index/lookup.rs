//! From a question about a column or a field to the rows that answer it.

use std::ops::RangeInclusive;

use tapdex_bitmap::{Bitmap, Chunks, Cursor, intersection, union};

use super::reader::{Column, Index};
use super::schema::Field;
use crate::error::IndexError;

/// Rows that answer a question: a cursor, to be joined with others, counted or listed.
pub type Rows<'a> = Box<dyn Chunks + 'a>;

/// Up to this many keys are looked up one by one. For more, all keys of the column are checked
/// first, which makes each look-up faster.
const FEW_KEYS: usize = 16;

/// No rows.
fn none<'a>() -> Rows<'a> {
    Box::new(union::<Cursor<'a>>([]))
}

/// All rows.
fn all<'a>(rows: u32) -> Rows<'a> {
    Box::new(union::<Cursor<'a>>([]).complement(rows))
}

/// The rows of any of the bitmaps.
fn any<'a>(bitmaps: &[Bitmap<'a>]) -> Rows<'a> {
    match bitmaps {
        [only] => Box::new(only.chunks()),
        _ => Box::new(union(bitmaps.iter().map(Bitmap::chunks))),
    }
}

impl<'a> Column<'a> {
    /// The rows with this digit; `None` if there are none.
    pub fn equals(&self, digit: u16) -> Result<Option<Bitmap<'a>>, IndexError> {
        self.position(digit).map(|i| self.bitmap(i)).transpose()
    }

    /// The rows with any of these digits, which may come in any order and more than once.
    pub fn any_of(&self, digits: &[u16]) -> Result<Rows<'a>, IndexError> {
        let mut found: Vec<usize> = digits.iter().filter_map(|&d| self.position(d)).collect();
        found.sort_unstable();
        found.dedup();
        let bitmaps = found.into_iter().map(|i| self.bitmap(i));
        Ok(any(&bitmaps.collect::<Result<Vec<_>, _>>()?))
    }

    /// The rows with a digit in the range; none if it ends before it starts.
    ///
    /// Every row has one digit, so the rows inside a range are those that are not outside it:
    /// whichever has fewer bytes is read.
    pub fn range(&self, digits: RangeInclusive<u16>) -> Result<Rows<'a>, IndexError> {
        let (first, last) = digits.into_inner();
        let start = self.keys_below(first);
        let end = last.checked_add(1).map_or(self.len(), |end| self.keys_below(end));
        if start >= end {
            return Ok(none());
        }
        let inside = self.bitmap_bytes_of(start..end);
        if inside <= self.bitmap_bytes() - inside {
            let bitmaps = (start..end).map(|i| self.bitmap(i));
            return Ok(any(&bitmaps.collect::<Result<Vec<_>, _>>()?));
        }
        let outside = (0..start).chain(end..self.len()).map(|i| self.bitmap(i));
        let outside = any(&outside.collect::<Result<Vec<_>, _>>()?);
        Ok(Box::new(outside.complement(self.rows())))
    }
}

/// The index of a field: look-ups by whole values, put together from the field's columns.
///
/// Answers are exact.
#[derive(Debug, Clone, Copy)]
pub struct FieldIndex<'a> {
    index: &'a Index,
    field: &'a Field,
    /// Its first column.
    first: usize,
}

/// Some rows, or none or all, which need not be joined with anything.
enum Found<'a> {
    All,
    None,
    Some(Rows<'a>),
}

impl<'a> FieldIndex<'a> {
    pub(crate) fn new(index: &'a Index, field: &'a Field, first: usize) -> Self {
        Self { index, field, first }
    }

    /// Its name and columns.
    pub fn field(&self) -> &'a Field {
        self.field
    }

    /// The row count of the index.
    pub fn rows(&self) -> u32 {
        self.index.rows()
    }

    /// The greatest value that fits into it.
    pub fn value_max(&self) -> u128 {
        u128::MAX.checked_shr(128 - self.field.bits()).unwrap_or(0)
    }

    /// The columns of its digits, most significant first.
    pub fn columns(&self) -> impl Iterator<Item = Result<Column<'a>, IndexError>> + use<'a> {
        let (index, first) = (self.index, self.first);
        (0..self.field.columns.len()).map(move |digit| index.column(first + digit))
    }

    /// The numbers of its columns, for [`Index::equals`] and [`Index::bitmap_len`].
    pub fn column_numbers(&self) -> std::ops::Range<usize> {
        self.first..self.first + self.field.columns.len()
    }

    fn column(&self, digit: usize) -> Result<Column<'a>, IndexError> {
        self.index.column(self.first + digit)
    }

    /// Bits of the digits after this one.
    fn bits_after(&self, digit: usize) -> u32 {
        self.field.columns[digit + 1..].iter().map(|column| column.width.bits()).sum()
    }

    /// A digit and the digits after it, of a value without the digits before.
    fn split(&self, digit: usize, value: u128) -> (u16, u128) {
        let bits = self.bits_after(digit);
        let low = value & !u128::MAX.checked_shl(bits).unwrap_or(0);
        (u16::try_from(value >> bits & 0xFFFF).unwrap_or(0), low)
    }

    fn fit(&self, value: u128) -> Result<(), IndexError> {
        let max = self.value_max();
        if value <= max {
            return Ok(());
        }
        Err(IndexError::TooLarge { what: "value", got: value, max })
    }

    fn rows_of(&self, found: Found<'a>) -> Rows<'a> {
        match found {
            Found::All => all(self.index.rows()),
            Found::None => none(),
            Found::Some(rows) => rows,
        }
    }

    /// The rows with this value. One that does not fit into the field is an error.
    pub fn equals(&self, value: u128) -> Result<Rows<'a>, IndexError> {
        self.fit(value)?;
        let mut bitmaps = Vec::with_capacity(self.field.columns.len());
        let mut rest = value;
        for digit in 0..self.field.columns.len() {
            let (first, low) = self.split(digit, rest);
            match self.index.equals(self.first + digit, first)? {
                Some(bitmap) => bitmaps.push(bitmap),
                None => return Ok(none()),
            }
            rest = low;
        }
        if let [only] = bitmaps.as_slice() {
            return Ok(Box::new(only.chunks()));
        }
        // Few bytes usually mean few rows: those come first, as they exclude the most.
        bitmaps.sort_by_key(|bitmap| bitmap.as_bytes().len());
        Ok(Box::new(intersection(bitmaps.iter().map(Bitmap::chunks))))
    }

    /// The rows with any of these values, which may come in any order and more than once. One that
    /// does not fit into the field is an error.
    pub fn any_of(&self, values: &[u128]) -> Result<Rows<'a>, IndexError> {
        values.iter().try_for_each(|&value| self.fit(value))?;
        let mut values = values.to_vec();
        values.sort_unstable();
        values.dedup();
        self.any_of_sorted(0, &values)
    }

    /// The same for values without the digits before this one, ascending: those that start with the
    /// same digit share one look-up of it.
    fn any_of_sorted(&self, digit: usize, values: &[u128]) -> Result<Rows<'a>, IndexError> {
        let n = self.first + digit;
        if self.bits_after(digit) == 0 {
            let digits = values.iter().map(|&value| self.split(digit, value).0);
            if values.len() > FEW_KEYS {
                return self.column(digit)?.any_of(&digits.collect::<Vec<_>>());
            }
            let bitmaps = digits.map(|digit| self.index.equals(n, digit));
            return Ok(any(&bitmaps
                .filter_map(Result::transpose)
                .collect::<Result<Vec<_>, _>>()?));
        }
        let mut parts = vec![];
        for alike in values.chunk_by(|&a, &b| self.split(digit, a).0 == self.split(digit, b).0) {
            if let Some(bitmap) = self.index.equals(n, self.split(digit, alike[0]).0)? {
                let lows: Vec<u128> = alike.iter().map(|&v| self.split(digit, v).1).collect();
                let rest = self.any_of_sorted(digit + 1, &lows)?;
                parts.push(Box::new(bitmap.chunks().and(rest)) as Rows<'a>);
            }
        }
        Ok(self.rows_of(joined(parts)))
    }

    /// The rows whose value has the same first `bits` bits as `value`; the rest of `value` is
    /// ignored. With 0 bits, all rows match. More bits than the field has, or a value that does not
    /// fit into it, are errors.
    pub fn prefix(&self, value: u128, bits: u32) -> Result<Rows<'a>, IndexError> {
        self.fit(value)?;
        let Some(free) = self.field.bits().checked_sub(bits) else {
            let max = self.field.bits().into();
            return Err(IndexError::TooLarge { what: "bits of a prefix", got: bits.into(), max });
        };
        // Whole digits of the prefix are equal at both ends, and the last one is a range.
        let low = !u128::MAX.checked_shl(free).unwrap_or(0);
        self.range(value & !low..=value | low)
    }

    /// The rows with a value in the range; none if it ends before it starts. Ends that do not fit
    /// into the field are allowed: no row has such a value.
    pub fn range(&self, values: RangeInclusive<u128>) -> Result<Rows<'a>, IndexError> {
        let (first, last) = values.into_inner();
        let last = last.min(self.value_max());
        if first > last {
            return Ok(none());
        }
        Ok(self.rows_of(self.range_from(0, first, last)?))
    }

    /// The same for ends without the digits before this one, the first not after the last.
    fn range_from(&self, digit: usize, first: u128, last: u128) -> Result<Found<'a>, IndexError> {
        let bits = self.bits_after(digit);
        let width = self.field.columns[digit].width.bits();
        let max = u128::MAX.checked_shr(128 - bits - width).unwrap_or(0);
        if first == 0 && last == max {
            return Ok(Found::All);
        }
        let ((mut from, first), (to, last)) = (self.split(digit, first), self.split(digit, last));
        if bits == 0 && from == to {
            let found = self.index.equals(self.first + digit, from)?;
            return Ok(found.map_or(Found::None, |bitmap| Found::Some(Box::new(bitmap.chunks()))));
        }
        if bits == 0 {
            return Ok(Found::Some(self.column(digit)?.range(from..=to)?));
        }
        let max = !u128::MAX.checked_shl(bits).unwrap_or(0);
        // The rows with a digit at an end of the range, and a part of the digits after it.
        let part = |end: u16, first, last| -> Result<Option<Rows<'a>>, IndexError> {
            let Some(bitmap) = self.index.equals(self.first + digit, end)? else {
                return Ok(None);
            };
            Ok(match self.range_from(digit + 1, first, last)? {
                Found::All => Some(Box::new(bitmap.chunks())),
                Found::None => None,
                Found::Some(rows) => Some(Box::new(bitmap.chunks().and(rows))),
            })
        };
        if from == to {
            return Ok(part(from, first, last)?.map_or(Found::None, Found::Some));
        }
        // The ends, if not all of their lower digits are wanted, and the digits between them.
        let mut parts = vec![];
        if first != 0 {
            parts.extend(part(from, first, max)?);
            from += 1;
        }
        let between = if last == max { Some(to) } else { to.checked_sub(1) };
        if let Some(between) = between.filter(|&between| from <= between) {
            parts.push(self.column(digit)?.range(from..=between)?);
        }
        if last != max {
            parts.extend(part(to, 0, last)?);
        }
        Ok(joined(parts))
    }
}

/// Look-ups that say how much they read, for planning.
impl<'a> FieldIndex<'a> {
    /// The digits of a masked value, the most significant first.
    fn masked_digits(&self, value: u128, mask: u128) -> impl Iterator<Item = Masked> + use<'a> {
        let mut after = self.field.bits();
        self.column_numbers().zip(&self.field.columns).map(move |(number, spec)| {
            let width = spec.width.bits();
            after -= width;
            let full = (1 << width) - 1;
            let digit = |bits: u128| u16::try_from(bits >> after & full).unwrap_or(0);
            let whole = mask >> after & full == full;
            Masked { number, wanted: digit(value), counts: digit(mask), whole }
        })
    }

    /// The rows in which the bits that `mask` selects have a value.
    pub fn masked(&self, value: u128, mask: u128) -> Result<super::Found<'a>, IndexError> {
        // Whole digits: the bytes of their bitmaps, the column, the digit. And parts of digits.
        let (mut whole, mut parts) = (Vec::new(), Vec::new());
        for Masked { number, wanted, counts, whole: is_whole } in self.masked_digits(value, mask) {
            if is_whole {
                match self.index.bitmap_len(number, wanted)? {
                    0 => return Ok(super::Found::None),
                    len => whole.push((len, number, wanted)),
                }
            } else if counts != 0 {
                parts.push((number, wanted, counts));
            }
        }
        // The smallest first: if those have no row in common, the others need not be read.
        whole.sort_unstable();
        let mut sets: Vec<(u64, Rows<'a>)> = Vec::with_capacity(whole.len() + parts.len());
        let mut last: Option<Bitmap<'a>> = None;
        for &(len, number, digit) in &whole {
            let Some(bitmap) = self.index.equals(number, digit)? else {
                return Ok(super::Found::None);
            };
            if let Some(last) = last.replace(bitmap)
                && is_empty(last.chunks().and(bitmap.chunks()))
            {
                return Ok(super::Found::None);
            }
            sets.push((len, Box::new(bitmap.chunks())));
        }
        for (number, wanted, counts) in parts {
            let column = self.index.column(number)?;
            match digits_where(&column, &mut |key| key & counts == wanted & counts)? {
                super::Found::None => return Ok(super::Found::None),
                super::Found::All => {}
                super::Found::Some(rows, weight) => sets.push((weight, rows)),
                super::Found::Conversations(found, weight) => {
                    sets.push((weight, Box::new(found.into_rows())));
                }
            }
        }
        sets.sort_by_key(|&(weight, _)| weight);
        let mut sets = sets.into_iter();
        let Some((weight, first)) = sets.next() else { return Ok(super::Found::All) };
        let join = |a: Rows<'a>, (_, b): (u64, Rows<'a>)| -> Rows<'a> { Box::new(a.and(b)) };
        Ok(super::Found::Some(sets.fold(first, join), weight))
    }

    /// The rows in which the first digit satisfies a condition.
    pub fn first_digit_where(
        &self,
        holds: &mut dyn FnMut(u16) -> bool,
    ) -> Result<super::Found<'a>, IndexError> {
        digits_where(&self.column(0)?, holds)
    }

    /// Bytes of the smallest bitmap of the whole digits of a value.
    pub fn weight(&self, value: u128, mask: u128) -> Result<u64, IndexError> {
        let mut least = u64::MAX / 4;
        for digit in self.masked_digits(value, mask).filter(|digit| digit.whole) {
            least = least.min(self.index.bitmap_len(digit.number, digit.wanted)?);
        }
        Ok(least)
    }

    /// The value of every row.
    fn values(&self) -> Result<Vec<u128>, IndexError> {
        let mut values = vec![0_u128; self.index.rows() as usize];
        let mut after = self.field.bits();
        for column in self.columns() {
            let column = column?;
            after -= column.width().bits();
            for (i, key) in column.keys().enumerate().filter(|&(_, key)| key != 0) {
                let digit = u128::from(key) << after;
                let bitmap = column.bitmap(i)?;
                let mut chunks = bitmap.chunks();
                let mut from = 0;
                while let Some(key) = chunks.seek(from) {
                    let base = (key as usize) << 16;
                    chunks.load().for_each_run(|first, last| {
                        let run = base + first as usize..=base + last as usize;
                        values[run].iter_mut().for_each(|value| *value |= digit);
                    });
                    from = key + 1;
                }
            }
        }
        Ok(values)
    }

    /// How many of some rows have each value; of all rows if there is no list.
    ///
    /// Rows of one value that follow each other, as in flow order most do, are counted at once.
    pub fn count(&self, rows: Option<&[u32]>) -> Result<Vec<(u128, u64)>, IndexError> {
        let values = self.values()?;
        let mut counts = std::collections::HashMap::new();
        let mut add = |value: u128, count: u64| *counts.entry(value).or_insert(0) += count;
        let mut run: Option<(u128, u64)> = None;
        let mut take = |value: u128| match &mut run {
            Some((last, count)) if *last == value => *count += 1,
            _ => {
                if let Some((value, count)) = run.replace((value, 1)) {
                    add(value, count);
                }
            }
        };
        match rows {
            None => values.iter().for_each(|&value| take(value)),
            Some(rows) => {
                rows.iter().filter_map(|&row| values.get(row as usize)).for_each(|&v| take(v));
            }
        }
        if let Some((value, count)) = run {
            add(value, count);
        }
        Ok(counts.into_iter().collect())
    }

    /// Passes every row's value to `each`, as runs of rows: the value, the first and the last row.
    pub fn for_each_run(&self, each: &mut dyn FnMut(u128, u32, u32)) -> Result<(), IndexError> {
        (0..).zip(self.values()?).for_each(|(row, value)| each(value, row, row));
        Ok(())
    }
}

/// A digit of a masked value.
struct Masked {
    /// The column.
    number: usize,
    wanted: u16,
    counts: u16,
    /// All of its bits count.
    whole: bool,
}

/// The rows in which a digit satisfies a condition.
fn digits_where<'a>(
    column: &Column<'a>,
    holds: &mut dyn FnMut(u16) -> bool,
) -> Result<super::Found<'a>, IndexError> {
    let digits: Vec<u16> = column.keys().filter(|&key| holds(key)).collect();
    if digits.is_empty() {
        return Ok(super::Found::None);
    }
    if digits.len() == column.len() {
        return Ok(super::Found::All);
    }
    let len = |&digit: &u16| column.position(digit).map_or(0, |i| column.bitmap_len(i));
    let weight = digits.iter().map(len).sum();
    Ok(super::Found::Some(column.any_of(&digits)?, weight))
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

/// The rows of any of the parts.
fn joined(mut parts: Vec<Rows<'_>>) -> Found<'_> {
    match parts.len() {
        0 => Found::None,
        1 => parts.pop().map_or(Found::None, Found::Some),
        _ => Found::Some(Box::new(union(parts))),
    }
}
