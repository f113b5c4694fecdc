//! What can be wrong with a capture file, or with what is to be written into one.

use std::io;

use super::Compression;
use crate::error::Expected;

/// Why a capture could not be read on, or written.
///
/// Every packet before the offset that the error names was delivered. [`advice`](Self::advice) says
/// in a sentence what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CaptureError {
    /// The system failed, or unpacking a packed file did. The source says why; for a packed file it
    /// is a [`DecompressError`].
    #[error("cannot {operation} at offset {offset}")]
    Io {
        /// What was to be done.
        operation: &'static str,
        /// How far the capture had been read or written.
        offset: u64,
        /// What the system answered.
        source: io::Error,
    },
    /// The first bytes are not those of pcap or pcapng. Convert the file with a program that
    /// knows its format.
    #[error("not a pcap or pcapng file: it starts with {found:02X?}, expected a magic number")]
    NotACapture {
        /// What it starts with.
        found: [u8; 4],
    },
    /// The file ends in the middle of something. It was cut off, by a full disk or an unfinished
    /// copy, or it is still being written: the packets before the end are good.
    #[error("{what} at offset {offset} is cut off: {got} bytes are left, expected {expected}")]
    Truncated {
        /// What is cut off.
        what: &'static str,
        /// Where it starts.
        offset: u64,
        /// How long it has to be.
        expected: u64,
        /// How many bytes there are.
        got: u64,
    },
    /// A number that is not valid there: the file is damaged from here on, or was written by a
    /// faulty program. The packets before it are good.
    #[error("{what} at offset {offset} is {got}, expected {expected}")]
    BadField {
        /// Which number.
        what: &'static str,
        /// Where its record or block starts.
        offset: u64,
        /// What it has to be.
        expected: Expected,
        /// What it is.
        got: u64,
    },
    /// What was to be written does not fit into a file of this format; nothing of it was written.
    #[error("cannot write {what} {got} into a {format} file, expected {expected}")]
    Unwritable {
        /// What was to be written.
        what: &'static str,
        /// Into which format.
        format: &'static str,
        /// What it may be.
        expected: Expected,
        /// What it is.
        got: u64,
    },
}

impl CaptureError {
    pub(crate) fn io(operation: &'static str, offset: u64, source: io::Error) -> Self {
        Self::Io { operation, offset, source }
    }

    /// Whether the system is at fault rather than the file: trying again may help.
    ///
    /// A packed file that is cut off or damaged is at fault itself.
    pub fn is_io(&self) -> bool {
        matches!(self, Self::Io { source, .. } if !is_packed(source))
    }

    /// What to do about it, in a sentence.
    pub fn advice(&self) -> &'static str {
        match self {
            Self::Io { source, .. } if is_packed(source) => {
                "the packets before it were read; for the rest copy the file again"
            }
            Self::Io { .. } => "see what the system says, and try again",
            Self::NotACapture { .. } => {
                "if another program captured it, convert it with `editcap -F pcapng IN OUT`"
            }
            Self::Truncated { .. } => {
                "the packets before it were read; for the rest copy the file again, or wait until \
                 it is written"
            }
            Self::BadField { .. } => {
                "the packets before it were read; the file is damaged from there on, so copy it \
                 again from where it was captured"
            }
            Self::Unwritable { format: "pcap", .. } => "write pcapng instead",
            Self::Unwritable { .. } => "leave it out",
        }
    }
}

fn is_packed(error: &io::Error) -> bool {
    error.get_ref().is_some_and(|inner| inner.is::<DecompressError>())
}

/// Why a packed file could not be unpacked to its end.
#[derive(Debug, thiserror::Error)]
#[error("the {compression} stream is {} behind {unpacked} unpacked bytes: {source}", word(*cut))]
pub struct DecompressError {
    /// How it is packed.
    pub compression: Compression,
    /// Whether it ended too early; if not, it was damaged.
    pub cut: bool,
    /// How many bytes could be unpacked before.
    pub unpacked: u64,
    /// What the decoder says.
    pub source: io::Error,
}

fn word(cut: bool) -> &'static str {
    if cut { "cut off" } else { "damaged" }
}
