//! The schema of a table: fields, and the columns that their values are cut into.

use tapdex_bitmap::Codec;

/// How many bits a column's digit has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Width {
    /// 8 bits: at most 256 keys.
    Byte,
    /// 16 bits: at most 65,536 keys.
    Short,
}

impl Width {
    /// The number of bits.
    pub fn bits(self) -> u32 {
        match self {
            Width::Byte => 8,
            Width::Short => 16,
        }
    }
}

/// One column: a digit of a field, and how its bitmaps are encoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ColumnSpec {
    /// Bits of the digit.
    pub width: Width,
    /// Codec of all its bitmaps.
    pub codec: Codec,
}

/// What a look-up can name: a number in every row, cut into digits.
///
/// The most significant digit comes first: an IPv4 address is four byte columns, `10.1.2.3` being
/// 10, 1, 2 and 3. The digits have 128 bits together at most.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Field {
    /// Its name, such as `ip.src`.
    pub name: String,
    /// Its digits, most significant first.
    pub columns: Vec<ColumnSpec>,
}

impl Field {
    /// Bits of a value.
    pub fn bits(&self) -> u32 {
        self.columns.iter().map(|column| column.width.bits()).sum()
    }
}

/// The fields of a table, in order; their columns are numbered through in that order.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Schema {
    /// The fields.
    pub fields: Vec<Field>,
}

impl Schema {
    /// All columns, in order.
    pub fn columns(&self) -> impl Iterator<Item = ColumnSpec> + '_ {
        self.fields.iter().flat_map(|field| field.columns.iter().copied())
    }
}
