//! A table in memory: the digits of its fields, column by column.

use std::ops::Range;

use tapdex_engine::index::{Digits, Width};

use super::field;
use super::value::{Value, ValueKind};

/// The digits of a column, row by row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Column {
    Bytes(Vec<u8>),
    Shorts(Vec<u16>),
}

impl Column {
    pub(super) fn new(width: Width) -> Self {
        match width {
            Width::Byte => Column::Bytes(Vec::new()),
            Width::Short => Column::Shorts(Vec::new()),
        }
    }

    pub(super) fn digits(&self) -> Digits<'_> {
        match self {
            Column::Bytes(digits) => Digits::Bytes(digits),
            Column::Shorts(digits) => Digits::Shorts(digits),
        }
    }

    /// The digits of some rows, as numbers.
    pub(super) fn values(&self, rows: Range<usize>) -> Box<dyn Iterator<Item = usize> + '_> {
        match self {
            Column::Bytes(digits) => Box::new(digits[rows].iter().map(|&digit| digit.into())),
            Column::Shorts(digits) => Box::new(digits[rows].iter().map(|&digit| digit.into())),
        }
    }

    /// Puts the rows into another order.
    fn reorder(&mut self, order: &[u32]) {
        match self {
            Column::Bytes(digits) => {
                *digits = order.iter().map(|&row| digits[row as usize]).collect();
            }
            Column::Shorts(digits) => {
                *digits = order.iter().map(|&row| digits[row as usize]).collect();
            }
        }
    }
}

/// A field whose values are complete: its columns, most significant first.
#[derive(Debug)]
pub(super) struct Stored {
    pub(super) name: String,
    pub(super) columns: Vec<Column>,
}

/// A table whose values are complete.
#[derive(Debug)]
pub(super) struct Table {
    pub(super) rows: u32,
    pub(super) fields: Vec<Stored>,
    pub(super) times: Option<Vec<u64>>,
}

impl Table {
    /// Sorts the rows by fields, the first of which counts most, and returns the original number of
    /// each row. Equal rows stay in order. Times stay where they are.
    pub(super) fn sort(&mut self, by: &[usize]) -> Vec<u32> {
        let mut order: Vec<u32> = (0..self.rows).collect();
        let mut target = vec![0; order.len()];
        // From the digit that counts least to the one that counts most.
        for &field in by.iter().rev() {
            for column in self.fields[field].columns.iter().rev() {
                let sorted = match column {
                    Column::Bytes(digits) => pass(digits, &order, &mut target),
                    Column::Shorts(digits) => pass(digits, &order, &mut target),
                };
                if sorted {
                    std::mem::swap(&mut order, &mut target);
                }
            }
        }
        drop(target);
        for column in self.fields.iter_mut().flat_map(|field| &mut field.columns) {
            column.reorder(&order);
        }
        order
    }
}

/// Sorts rows by their digits into `target`; does nothing if all are the same, and returns whether
/// it did something.
fn pass<D: Copy + Into<usize>>(digits: &[D], order: &[u32], target: &mut [u32]) -> bool {
    let mut starts = vec![0_usize; 1 << 16];
    digits.iter().for_each(|&digit| starts[digit.into()] += 1);
    if starts.contains(&digits.len()) {
        return false;
    }
    let mut start = 0;
    for count in &mut starts {
        start += std::mem::replace(count, start);
    }
    for &row in order {
        let at = &mut starts[digits[row as usize].into()];
        target[*at] = row;
        *at += 1;
    }
    true
}

/// A field whose values are coming in, byte by byte, least significant first.
///
/// If its width is not given, it starts with one byte and gets more when a value needs them; the
/// rows before have zeros there.
#[derive(Debug)]
pub(super) struct Planes {
    name: String,
    bits: Option<u32>,
    planes: Vec<Vec<u8>>,
    /// Kinds other than numbers that have come in.
    kinds: Vec<ValueKind>,
}

/// Widths that a field gets if none is given.
const BITS_FOUND: [u32; 5] = [8, 16, 32, 64, 128];

impl Planes {
    pub(super) fn new(name: &str, bits: Option<u32>) -> Self {
        let bytes = bits.map_or(1, |bits| bits as usize / 8);
        Self { name: name.to_owned(), bits, planes: vec![Vec::new(); bytes], kinds: Vec::new() }
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Adds the value of the next row; the error says why it is not allowed.
    pub(super) fn push(&mut self, value: Value) -> Result<(), String> {
        let rest = value.number.checked_shr(8 * planes_len(&self.planes)).unwrap_or(0);
        if rest != 0 || value.kind != ValueKind::Number {
            self.admit(value)?;
        }
        for (plane, byte) in self.planes.iter_mut().zip(value.number.to_le_bytes()) {
            plane.push(byte);
        }
        Ok(())
    }

    /// Makes room for a value that is wide or an address.
    fn admit(&mut self, value: Value) -> Result<(), String> {
        if let Some(bits) = self.bits {
            return value.misfit(bits).map_or(Ok(()), Err);
        }
        if value.kind != ValueKind::Number && !self.kinds.contains(&value.kind) {
            self.kinds.push(value.kind);
        }
        let bytes = value.bits().max(value.kind.bits().unwrap_or(0)).div_ceil(8) as usize;
        let rows = self.planes[0].len();
        if bytes > self.planes.len() {
            self.planes.resize_with(bytes, || vec![0; rows]);
        }
        Ok(())
    }

    /// The columns of the field, or what is wrong with its values taken together.
    pub(super) fn finish(mut self, digits: Option<Width>) -> Result<Stored, String> {
        let needed = 8 * planes_len(&self.planes);
        let found = || match self.kinds.contains(&ValueKind::Mac) && needed <= 48 {
            true => 48,
            false => BITS_FOUND.into_iter().find(|&bits| bits >= needed).unwrap_or(needed),
        };
        let bits = self.bits.unwrap_or_else(found);
        if let Some(kind) = self.kinds.iter().find(|kind| kind.bits() != Some(bits)) {
            return Err(format!(
                "column '{}' mixes {} with a value of {bits} bits, but a field holds one kind",
                crate::cmd::shown(self.name.as_bytes()),
                kind.name(),
            ));
        }
        let rows = self.planes[0].len();
        self.planes.resize_with(bits as usize / 8, || vec![0; rows]);
        let mut columns = Vec::new();
        for width in field::widths(bits, digits) {
            let high = self.planes.pop().unwrap_or_default();
            columns.push(match width {
                Width::Byte => Column::Bytes(high),
                Width::Short => {
                    let low = self.planes.pop().unwrap_or_default();
                    let both = low.iter().zip(&high);
                    Column::Shorts(both.map(|(&l, &h)| u16::from_le_bytes([l, h])).collect())
                }
            });
        }
        Ok(Stored { name: self.name, columns })
    }
}

/// A value has 16 bytes at most.
fn planes_len(planes: &[Vec<u8>]) -> u32 {
    u32::try_from(planes.len()).unwrap_or(16)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cmd::index_file::value;

    fn planes(bits: Option<u32>, values: &[&str]) -> Result<Vec<Column>, String> {
        let mut planes = Planes::new("f", bits);
        for value in values {
            planes.push(value::parse(value.as_bytes()).unwrap())?;
        }
        planes.finish(None).map(|stored| stored.columns)
    }

    #[test]
    fn widths_are_found_as_values_come() {
        let bytes = |digits: &[u8]| Column::Bytes(digits.to_vec());
        assert_eq!(planes(None, &[]).unwrap(), [bytes(&[])]);
        assert_eq!(planes(None, &["1", "255"]).unwrap(), [bytes(&[1, 255])]);
        assert_eq!(planes(None, &["1", "256"]).unwrap(), [Column::Shorts(vec![1, 256])]);
        let wide = [bytes(&[0, 0]), bytes(&[0, 1]), bytes(&[0, 0]), bytes(&[1, 2])];
        assert_eq!(planes(None, &["1", "65538"]).unwrap(), wide);
        assert_eq!(planes(None, &["1", "4294967296"]).unwrap().len(), 8);
        assert_eq!(planes(None, &["0", "0.0.0.1"]).unwrap().len(), 4);
        assert_eq!(planes(None, &["00:00:00:00:00:01"]).unwrap().len(), 6);
        assert_eq!(planes(None, &["::", "0"]).unwrap().len(), 16);
    }

    #[test]
    fn a_field_holds_one_kind() {
        assert!(planes(None, &["1.2.3.4", "::"]).is_err());
        assert!(planes(None, &["1.2.3.4", "4294967296"]).is_err());
        assert!(planes(Some(128), &["1.2.3.4"]).is_err());
        assert!(planes(Some(8), &["256"]).is_err());
    }

    #[test]
    fn rows_are_sorted_and_equal_ones_stay_in_order() {
        let field = |columns| Stored { name: "f".into(), columns };
        let mut table = Table {
            rows: 5,
            fields: vec![
                field(vec![Column::Bytes(vec![1, 0, 1, 0, 1]), Column::Bytes(vec![2, 3, 1, 3, 1])]),
                field(vec![Column::Shorts(vec![9, 300, 7, 2, 8])]),
            ],
            times: None,
        };
        assert_eq!(table.sort(&[0]), [1, 3, 2, 4, 0]);
        assert_eq!(table.fields[1].columns, [Column::Shorts(vec![300, 2, 7, 8, 9])]);
        assert_eq!(table.sort(&[0, 1]), [1, 0, 2, 3, 4]);
    }
}
