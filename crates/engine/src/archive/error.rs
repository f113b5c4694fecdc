//! What can go wrong with an archive.

use std::io;
use std::path::{Path, PathBuf};

use super::{SETTINGS_NAME, Unread};
use crate::capture::CaptureError;
use crate::error::IndexError;

/// Why something could not be done with an archive.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ArchiveError {
    /// A file or folder could not be read or written.
    #[error("cannot {what} {}", path.display())]
    Io {
        /// What was to be done.
        what: &'static str,
        /// With what.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// There is no archive. Index a capture to make one.
    #[error(
        "{} is not an archive: it has no {SETTINGS_NAME}; tapdex index makes one", path.display()
    )]
    NoArchive {
        /// Where it was looked for.
        path: PathBuf,
    },
    /// The settings of the archive are not understood. They are text: correct them, or rewrite them
    /// with [`Archive::mend`](super::Archive::mend).
    #[error("{}: {fault}{}", path.display(), fault.advice())]
    BadSettings {
        /// The file that has them.
        path: PathBuf,
        /// What is wrong.
        fault: SettingsFault,
    },
    /// The file that lists what is missing from the archive is not understood. Remove it to go on
    /// without it.
    #[error(
        "{}: {fault}; it tells what is missing from the archive; remove it to go on without it",
        path.display()
    )]
    BadMissing {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        fault: SettingsFault,
    },
    /// An index file is damaged, or could not be read or written.
    #[error("{}: {source}", path.display())]
    Index {
        /// The index file.
        path: PathBuf,
        /// What is wrong with it.
        source: IndexError,
    },
    /// An index file does not belong to a segment. Index the capture again.
    #[error("{}: not the index of a segment: {fault}", path.display())]
    BadNote {
        /// The index file.
        path: PathBuf,
        /// What is wrong.
        fault: NoteFault,
    },
    /// A capture is not fully indexed: indexing is under way or was interrupted, or an index file
    /// was removed. Index it again.
    #[error("{} is not indexed to its end; tapdex index goes on with it", path.display())]
    MissingPart {
        /// The capture.
        path: PathBuf,
    },
    /// The file with the packets of a segment is not there, or is not what was indexed.
    #[error("{}: {fault}", path.display())]
    BadPackets {
        /// The packet file.
        path: PathBuf,
        /// What is wrong.
        fault: PacketsFault,
    },
    /// Some packets of a segment are not what was indexed: the disk or a copy has changed them.
    #[error("{0}")]
    Unread(Unread),
    /// A capture is damaged, or could not be read.
    #[error("{}", path.display())]
    Capture {
        /// The capture.
        path: PathBuf,
        /// What is wrong with it.
        source: CaptureError,
    },
    /// A compressed capture has more bytes than the limit for unpacking. Nothing of it is kept.
    #[error("{}: unpacked it has {limit}", path.display())]
    Unpacked {
        /// The capture.
        path: PathBuf,
        /// Which limit.
        limit: UnpackLimit,
    },
    /// The work was interrupted. What was finished before stays valid; run it again to go on.
    #[error("interrupted")]
    Interrupted,
}

impl ArchiveError {
    pub(crate) fn io(what: &'static str, path: &Path, source: io::Error) -> Self {
        Self::Io { what, path: path.to_owned(), source }
    }

    pub(crate) fn index(path: &Path) -> impl FnOnce(IndexError) -> Self + '_ {
        |source| Self::Index { path: path.to_owned(), source }
    }

    pub(crate) fn capture(path: &Path) -> impl FnOnce(CaptureError) -> Self + '_ {
        |source| Self::Capture { path: path.to_owned(), source }
    }
}

/// What is wrong with a settings file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SettingsFault {
    /// It is not a text file of a sensible length.
    #[error("{what}")]
    NoText {
        /// What it is instead.
        what: String,
    },
    /// It is not TOML, or has other keys than it should.
    #[error("{}", error.trim_end().replace('\n', "\n  "))]
    Syntax {
        /// What the parser says, and where.
        error: String,
    },
    /// A newer program has written it.
    #[error("version {found} is not known, only {known} is")]
    Version {
        /// Its version.
        found: i64,
        /// The version that this program knows.
        known: u32,
    },
    /// It names a codec that does not exist.
    #[error("there is no codec {name:?}")]
    Codec {
        /// The name.
        name: String,
    },
    /// It names a field that does not exist.
    #[error("there is no field {name:?}")]
    Field {
        /// The name.
        name: String,
    },
}

impl SettingsFault {
    /// What to do about damaged settings.
    fn advice(&self) -> &'static str {
        match self {
            Self::Version { .. } => "",
            _ => "\n  tapdex repair writes it again",
        }
    }
}

/// Why an index file is not that of a segment.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NoteFault {
    /// It has no note.
    #[error("it has no note")]
    Missing,
    /// Its note is not text.
    #[error("{0}")]
    NoText(#[from] std::str::Utf8Error),
    /// Its note is not TOML, or lacks something.
    #[error("{error}")]
    Syntax {
        /// What the parser says.
        error: String,
    },
    /// A newer program has written it.
    #[error("its version is {found}, and {known} is known")]
    Version {
        /// Its version.
        found: u32,
        /// The newest version that this program knows.
        known: u32,
    },
    /// What it says about the sections of its capture is impossible.
    #[error("its sections do not fit its interfaces")]
    Sections,
    /// What it says about times is impossible.
    #[error("its first packet is later than its last")]
    Times,
    /// It has more rows than a segment can have.
    #[error("it has {rows} rows")]
    TooManyRows {
        /// How many.
        rows: u32,
    },
    /// Its note has another number of packets than it has rows.
    #[error("its note is about {records} packets")]
    OtherRecords {
        /// How many.
        records: u64,
    },
    /// It does not say where its packets are.
    #[error("it does not say where its packets are")]
    NoMarks,
}

/// What is wrong with the packets of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PacketsFault {
    /// The file is gone.
    #[error("the packets are not there; put the file back, or index it where it is")]
    Missing,
    /// Its length has changed since it was indexed.
    #[error("the file has changed since it was indexed; tapdex index takes it in again")]
    Changed,
    /// Its bytes have changed since it was indexed.
    #[error("the file is not what was indexed; tapdex index or repair takes it in again")]
    Other,
    /// It has fewer packets than when it was indexed.
    #[error("it ends before its last packet")]
    EndsEarly,
    /// It is a copy of a stream that nobody has indexed.
    #[error("our copy of a stream is not indexed; tapdex repair does that")]
    NotIndexed,
    /// It is a folder, a link, a device or the like.
    #[error("it is not a regular file; remove it")]
    NoFile,
    /// Retention has removed it while it was read.
    #[error("it was removed before it was read to its end")]
    Removed,
    /// Retention has removed earlier recordings before they were read.
    #[error("{}", removed_before(*recordings))]
    RemovedBefore {
        /// How many.
        recordings: u64,
    },
}

fn removed_before(recordings: u64) -> String {
    match recordings {
        1 => "the recording before it was removed before it was read".to_owned(),
        n => format!("{n} recordings before it were removed before they were read"),
    }
}

/// A limit for captures that are unpacked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum UnpackLimit {
    /// The one that the user has set.
    #[error("more than {bytes} bytes, which is what --unpack-max allows")]
    Set {
        /// Bytes at most.
        bytes: u64,
    },
    /// A multiple of its compressed size.
    #[error(
        "more than {bytes} bytes, a hundred times what it has packed; to unpack it all the same, \
         say how far with --unpack-max"
    )]
    Ratio {
        /// Bytes at most.
        bytes: u64,
    },
    /// Most of what was free on the disk.
    #[error("more than {bytes} bytes, nine tenths of what was free on the archive's disk")]
    Disk {
        /// Bytes at most.
        bytes: u64,
    },
}
