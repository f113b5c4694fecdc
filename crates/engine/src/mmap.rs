//! A file mapped into memory.

#![allow(unsafe_code, reason = "mapping a file is a promise that it will not change")]

use std::fs::File;
use std::io;

/// The bytes of a finished file: mapped, and read from the disk when they are looked at, or all of
/// them in memory.
#[derive(Debug)]
pub struct Map {
    bytes: Bytes,
}

#[derive(Debug)]
enum Bytes {
    Mapped(memmap2::Mmap),
    Owned(Vec<u8>),
}

impl Map {
    /// Maps a finished index file that is a regular one.
    pub(crate) fn of(file: &File) -> io::Result<Self> {
        // SAFETY: the mapped bytes must not change or vanish while the map lives. Index files are
        // written under a hidden name and renamed when they are complete and on the disk; after
        // that nothing of tapdex writes to them or cuts them: a new index is a new file, renamed
        // over the name, and the map keeps the old one. Users are told (docs/format.md) not to
        // change a file in place. The map is read-only, and only bytes are ever read from it, for
        // which every bit pattern is valid.
        let map = unsafe { memmap2::Mmap::map(file)? };
        Ok(Self { bytes: Bytes::Mapped(map) })
    }

    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        match &self.bytes {
            Bytes::Mapped(map) => map,
            Bytes::Owned(bytes) => bytes,
        }
    }
}

impl From<Vec<u8>> for Map {
    fn from(bytes: Vec<u8>) -> Self {
        Self { bytes: Bytes::Owned(bytes) }
    }
}
