//! The columns of an open index: their keys and bitmaps.

use std::ops::Range;

use tapdex_bitmap::{Bitmap, Codec};

use super::super::format::check_field;
use super::super::parting::Parting;
use super::super::schema::Width;
use super::{ColumnState, Index, Section, Verified, ascend, offset_at, offset_len};
use crate::error::{Expected, IndexError};

/// The index of a column: the values that occur in it, and the bitmap of each.
#[derive(Debug, Clone, Copy)]
pub struct Column<'a> {
    pub(super) index: &'a Index,
    pub(super) n: usize,
    pub(super) state: &'a ColumnState,
    pub(super) keys: &'a [[u8; 2]],
    pub(super) offsets: &'a [u8],
    pub(super) bitmaps: Section<'a>,
}

impl<'a> Column<'a> {
    /// Whether keys and offsets ascend and end where they have to. The lengths are known to agree.
    pub(super) fn check(&self, keys: Section<'_>, offsets: Section<'_>) -> Result<(), IndexError> {
        let not_ascending = |section: Section<'_>, what, at: u64, previous, got| {
            let (offset, section) = (section.offset() + at, section.name());
            IndexError::NotAscending { section, what, offset, previous, got }
        };
        if !ascend(self.keys, u16::from_le_bytes) {
            let mut pairs = (0..).step_by(2).zip(self.keys().zip(self.keys().skip(1)));
            if let Some((at, (before, key))) = pairs.find(|(_, (before, key))| before >= key) {
                return Err(not_ascending(keys, "key", at + 2, before.into(), key.into()));
            }
        }
        if let (Some(last), Width::Byte) = (self.keys().next_back(), self.state.spec.width) {
            let at = keys.offset() + keys.len() - 2;
            let most = Expected::AtMost(u8::MAX.into());
            check_field(&|| keys.name(), "last key", at, most, last.into())?;
        }
        let name = || offsets.name();
        let exactly = Expected::Exactly;
        check_field(&name, "first offset", offsets.offset(), exactly(0), self.offset(0))?;
        let len = offset_len(self.bitmaps.len());
        let is_ascending = match len {
            4 => ascend(self.offsets.as_chunks().0, u32::from_le_bytes),
            _ => ascend(self.offsets.as_chunks().0, u64::from_le_bytes),
        };
        if !is_ascending {
            let mut pairs = (1..=self.len()).map(|i| (i, self.offset(i - 1), self.offset(i)));
            if let Some((i, before, offset)) = pairs.find(|(_, before, offset)| before >= offset) {
                return Err(not_ascending(offsets, "offset", i as u64 * len, before, offset));
            }
        }
        let (at, last) = (offsets.offset() + offsets.len() - len, self.offset(self.len()));
        check_field(&name, "last offset", at, exactly(self.bitmaps.len()), last)
    }

    /// Where the bitmap of key number `i` starts in the section.
    pub(super) fn offset(&self, i: usize) -> u64 {
        offset_at(self.offsets, offset_len(self.bitmaps.len()), i)
    }

    /// Its number among the columns of the index.
    pub fn number(&self) -> usize {
        self.n
    }

    /// The row count of the index.
    pub fn rows(&self) -> u32 {
        self.index.rows
    }

    /// Bits of a digit.
    pub fn width(&self) -> Width {
        self.state.spec.width
    }

    /// The codec of its bitmaps.
    pub fn codec(&self) -> Codec {
        self.state.spec.codec
    }

    /// How many values occur in it.
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// Whether no value occurs in it, because there are no rows.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// The values that occur in it, ascending.
    pub fn keys(&self) -> impl DoubleEndedIterator<Item = u16> + Clone + use<'a> {
        self.keys.iter().map(|&key| u16::from_le_bytes(key))
    }

    /// How many bytes its bitmaps have together.
    pub fn bitmap_bytes(&self) -> u64 {
        self.bitmaps.len()
    }

    /// How many bytes the bitmap of key number `i` has; 0 if there is no such key.
    pub fn bitmap_len(&self, i: usize) -> u64 {
        if i < self.len() { self.offset(i + 1) - self.offset(i) } else { 0 }
    }

    /// How many bytes the bitmaps of some keys have together, by the numbers of the keys.
    pub(crate) fn bitmap_bytes_of(&self, keys: Range<usize>) -> u64 {
        self.offset(keys.end) - self.offset(keys.start)
    }

    /// How many keys are less than `value`.
    pub(crate) fn keys_below(&self, value: u16) -> usize {
        self.keys.partition_point(|&key| u16::from_le_bytes(key) < value)
    }

    /// The number of a key, if it occurs.
    pub fn position(&self, value: u16) -> Option<usize> {
        self.keys.binary_search_by_key(&value, |&key| u16::from_le_bytes(key)).ok()
    }

    /// The rows that have key number `i`.
    pub fn bitmap(&self, i: usize) -> Result<Bitmap<'a>, IndexError> {
        if i >= self.len() {
            let max = self.len().saturating_sub(1) as u128;
            return Err(IndexError::TooLarge { what: "number of a key", got: i as u128, max });
        }
        let (key, range) = (u16::from_le_bytes(self.keys[i]), self.offset(i)..self.offset(i + 1));
        self.index.open_bitmap(self.state, i, key, range)
    }

    pub(super) fn verify(
        &self,
        parting: &Parting,
        found: &mut Verified,
        add: &mut dyn FnMut(&mut Verified, IndexError),
    ) {
        let expected = self.index.rows.into();
        let (mut rows, mut sum, mut all) = (0, 0_u64, true);
        for i in 0..self.len() {
            match self.bitmap(i) {
                Ok(bitmap) => {
                    let count = bitmap.cardinality();
                    if count == 0 {
                        let (section, key) =
                            (self.bitmaps.name(), u16::from_le_bytes(self.keys[i]));
                        let offset = self.bitmaps.offset() + self.offset(i);
                        add(found, IndexError::EmptyBitmap { section, key, offset });
                    }
                    rows += count;
                    // Beyond that the column is wrong in any case, and a few bytes may stand for
                    // many rows.
                    if rows <= expected {
                        sum = sum.wrapping_add(parting.sum(&bitmap));
                    }
                    found.bitmaps += 1;
                }
                Err(error) => {
                    all = false;
                    add(found, error);
                }
            }
        }
        if all && rows != expected {
            let section = self.bitmaps.name();
            add(found, IndexError::Cardinality { section, expected, got: rows });
        } else if all && sum != parting.all(self.index.rows) {
            add(found, IndexError::NotPartition { section: self.bitmaps.name() });
        }
    }
}
