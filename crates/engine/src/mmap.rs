//! A file mapped into memory, and large blocks of memory that are mapped one by one.

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

/// Has blocks of memory of 1 MiB and more mapped one by one, so that they go back to the system
/// when they are freed. For processes whose threads come and go and use much memory for a moment:
/// when the first such block is freed, glibc takes its size for the bound, and later blocks from
/// heaps of which each thread has its own, and which keep what they once had.
///
/// To be called while there is only one thread. With other libraries it does nothing.
pub fn map_large_blocks() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    {
        use std::ffi::c_int;
        /// From malloc.h.
        const M_MMAP_THRESHOLD: c_int = -3;
        const LARGE: c_int = 1 << 20;
        // SAFETY: this is the declaration in malloc.h. It takes two numbers and no pointers, and
        // refuses numbers that make no sense.
        unsafe extern "C" {
            safe fn mallopt(parameter: c_int, value: c_int) -> c_int;
        }
        // If it refuses, memory is used as before.
        let _ = mallopt(M_MMAP_THRESHOLD, LARGE);
    }
}
