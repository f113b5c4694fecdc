//! Parts of sections, read in place.

use super::super::reader::Section;
use crate::error::IndexError;

/// Some bytes of a section.
#[derive(Debug, Clone, Copy)]
pub(super) struct Part<'a> {
    pub(super) section: Section<'a>,
    /// Where they start in the section.
    pub(super) start: usize,
    /// How many they are; the section has as many.
    pub(super) len: usize,
}

impl<'a> Part<'a> {
    /// All of a section.
    pub(super) fn all(section: Section<'a>) -> Self {
        let len = usize::try_from(section.len()).unwrap_or(usize::MAX);
        Self { section, start: 0, len }
    }

    /// Some of its bytes, from `start` on; an error if it does not have them.
    pub(super) fn part(&self, start: usize, len: usize) -> Result<Self, IndexError> {
        match start.checked_add(len).is_some_and(|end| end <= self.len) {
            true => Ok(Self { section: self.section, start: self.start + start, len }),
            false => Err(self.bad("length", start)),
        }
    }

    /// Reads some of its bytes, which are checked first, unless they were before.
    #[inline]
    pub(super) fn read(&self, start: usize, len: usize) -> Result<&'a [u8], IndexError> {
        let part = self.part(start, len)?;
        self.section.read(part.start as u64, len as u64)
    }

    /// Reads all of them.
    pub(super) fn bytes(&self) -> Result<&'a [u8], IndexError> {
        self.read(0, self.len)
    }

    /// The error for bytes that make no sense.
    #[cold]
    pub(super) fn bad(&self, what: &'static str, at: usize) -> IndexError {
        let offset = self.section.offset() + (self.start + at) as u64;
        IndexError::Malformed { section: self.section.name(), what, offset }
    }
}
