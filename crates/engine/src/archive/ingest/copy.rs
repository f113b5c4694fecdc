//! Copies of captures that are compressed or come as a stream.

use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use super::{Ingest, Run};
use crate::archive::ArchiveError;
use crate::archive::UnpackLimit;
use crate::beneath::Rights;
use crate::capture::{CaptureReader, DecompressError, is_capture};
use crate::storage::temporary_path;

/// Bytes of a stream that are enough to tell whether it is a capture.
const FIRST_BYTES: usize = 64;

/// How many times larger a compressed capture may be when unpacked, and a size that is always
/// allowed.
const UNPACKED_RATIO: u64 = 100;
const UNPACKED_BYTES: u64 = 256 << 20;

/// A capture that is copied.
pub(super) struct StreamToCopy<'a> {
    /// Its bytes, decompressed.
    pub(super) bytes: &'a mut dyn Read,
    /// The name to use in errors.
    pub(super) name: &'a Path,
    /// If it is compressed: its compressed bytes, as far as they are known.
    pub(super) packed: Option<&'a AtomicU64>,
}

impl Ingest<'_> {
    /// Where our copy of a capture goes.
    pub(super) fn copy_path(&self, name: &str) -> PathBuf {
        self.archive.packets_folder().join(format!("{name}.pcap"))
    }

    /// Copies a stream to a file, which gets its name when it is complete. If the stream breaks
    /// off, what came before is kept, and what was wrong is returned.
    pub(super) fn copy(
        &self,
        run: &Run<'_>,
        stream: StreamToCopy<'_>,
        target: &Path,
        rights: Rights,
    ) -> Result<Option<String>, ArchiveError> {
        let folder = self.archive.packets_folder();
        let files = self.files();
        files.make_folder(&folder).map_err(|e| ArchiveError::io("create", &folder, e))?;
        let temporary = temporary_path(target);
        let failed = |what| move |error| ArchiveError::io(what, target, error);
        let mut file = files.create(&temporary, rights).map_err(failed("create"))?;
        let free = stream.packed.and_then(|_| Some(files.space(&folder).ok()?.free));
        let mut append = |bytes: &[u8]| file.append(bytes).map_err(failed("write"));
        let copied = self.copy_bytes(run, stream, free, &mut append);
        let result = copied.and_then(|broken| {
            file.sync().map_err(failed("write"))?;
            files.rename(&temporary, target).map_err(failed("rename"))?;
            files.sync_folder(&folder).map_err(failed("write"))?;
            Ok(broken)
        });
        if result.is_err() {
            // Overwritten the next time if it cannot be removed.
            drop(files.remove(&temporary));
        }
        result
    }

    /// Appends the bytes of a stream to a file; returns what is wrong with the stream, if it breaks
    /// off.
    fn copy_bytes(
        &self,
        run: &Run<'_>,
        stream: StreamToCopy<'_>,
        free: Option<u64>,
        append: &mut dyn FnMut(&[u8]) -> Result<(), ArchiveError>,
    ) -> Result<Option<String>, ArchiveError> {
        let StreamToCopy { bytes: source, name, packed } = stream;
        let mut buffer = vec![0; 1 << 20];
        let mut copied = 0_u64;
        loop {
            if self.is_stopped() {
                return Err(ArchiveError::Interrupted);
            }
            match source.read(&mut buffer) {
                Ok(0) => return Ok(None),
                Ok(len) => {
                    let bytes = &buffer[..len];
                    if copied == 0 {
                        // Checked before it fills the disk.
                        check_is_capture(bytes, name)?;
                    }
                    copied += len as u64;
                    if let Some(packed) = packed
                        && let Some(limit) = self.unpack_limit(packed, free, copied)
                    {
                        return Err(ArchiveError::Unpacked { path: name.to_owned(), limit });
                    }
                    append(bytes)?;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // The packets until here are good.
                Err(error) if copied > 0 && is_broken_stream(&error) => {
                    return Ok(Some(error.to_string()));
                }
                Err(error) => return Err(ArchiveError::io("read", name, error)),
            }
            self.tell(run);
        }
    }

    /// The limit that this number of unpacked bytes exceeds, if any.
    fn unpack_limit(
        &self,
        packed: &AtomicU64,
        free: Option<u64>,
        bytes: u64,
    ) -> Option<UnpackLimit> {
        let packed = packed.load(Ordering::Relaxed);
        let (most, limit) = match self.unpack_max {
            Some(most) => (most, UnpackLimit::Set { bytes: most }),
            None => {
                let most = packed.saturating_mul(UNPACKED_RATIO).max(UNPACKED_BYTES);
                (most, UnpackLimit::Ratio { bytes: most })
            }
        };
        if bytes > most {
            return Some(limit);
        }
        // Other programs need room, too, and so does the index.
        let most = free.map(|free| free / 10 * 9).filter(|&most| bytes > most)?;
        Some(UnpackLimit::Disk { bytes: most })
    }
}

/// Refuses bytes that do not start like a capture.
fn check_is_capture(bytes: &[u8], name: &Path) -> Result<(), ArchiveError> {
    if is_capture(bytes) {
        return Ok(());
    }
    let opened = CaptureReader::open(&bytes[..bytes.len().min(FIRST_BYTES)]);
    Err(match opened {
        Err(error) => ArchiveError::capture(name)(error),
        Ok(_) => ArchiveError::io("read", name, io::ErrorKind::InvalidData.into()),
    })
}

/// Counts what is read.
pub(super) struct Counted<'a, R> {
    source: R,
    read: &'a AtomicU64,
}

impl<'a, R> Counted<'a, R> {
    pub(super) fn new(source: R, read: &'a AtomicU64) -> Self {
        Self { source, read }
    }
}

impl<R: Read> Read for Counted<'_, R> {
    fn read(&mut self, target: &mut [u8]) -> io::Result<usize> {
        let len = self.source.read(target)?;
        self.read.fetch_add(len as u64, Ordering::Relaxed);
        Ok(len)
    }
}

/// Whether the compressed stream is damaged, rather than the file or pipe that it is read from.
fn is_broken_stream(error: &io::Error) -> bool {
    error.get_ref().is_some_and(|inner| inner.is::<DecompressError>())
}
