//! Sets of fields.

use super::{FIELDS, FIRST_FIELDS, Field};

/// A set of fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FieldSet(u64);

const _: () = assert!(FIELDS.len() <= 64);

impl FieldSet {
    /// All that this program knows.
    pub const ALL: Self = Self(u64::MAX >> (64 - FIELDS.len()));
    /// Those of the first version: the ones that a segment knows if it does not say which.
    pub const FIRST: Self = Self(u64::MAX >> (64 - FIRST_FIELDS));

    /// Those that a segment keeps if nothing else is asked for.
    pub const USUAL: Self = Self::FIRST;

    /// Whether a field is in it.
    pub fn contains(self, field: Field) -> bool {
        self.0 >> (field as u8) & 1 == 1
    }

    /// The set with one more field.
    #[must_use]
    pub fn with(self, field: Field) -> Self {
        Self(self.0 | 1 << (field as u8))
    }

    /// The fields of both.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Those that are kept only if they are asked for.
    #[must_use]
    pub fn extra(self) -> Self {
        Self(self.0 & !Self::USUAL.0)
    }

    /// Its fields, in the order in which they are written.
    pub fn iter(self) -> impl Iterator<Item = Field> {
        FIELDS.iter().map(|spec| spec.field).filter(move |&field| self.contains(field))
    }
}

impl FromIterator<Field> for FieldSet {
    fn from_iter<I: IntoIterator<Item = Field>>(fields: I) -> Self {
        fields.into_iter().fold(Self::default(), Self::with)
    }
}
