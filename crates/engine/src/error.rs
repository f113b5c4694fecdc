//! What can be wrong with an index file, with what is to be written into one, or with a question.

use std::io;
use std::path::PathBuf;

use tapdex_bitmap::{Codec, DecodeError};

use crate::index::BuildError;

/// Why an index could not be written, opened or searched.
///
/// Errors about bytes name the section and the offset in the file. Trying again does not mend
/// damage: build the index again from its capture. `tapdex` never changes a finished file, so a
/// damaged one was damaged by the disk, by a copy that was cut short, or by another program.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum IndexError {
    /// The file system refused. The source says why: a full disk, a missing folder, no permission.
    /// An index that was being written has not got its name, and one that was there before is as
    /// it was.
    #[error("cannot {operation} {}", path.display())]
    Io {
        /// What was to be done.
        operation: &'static str,
        /// To which file or folder.
        path: PathBuf,
        /// What the system answered.
        source: io::Error,
    },
    /// The new index is complete and has its name, but its folder could not be synced: after a
    /// crash of the machine the old one may be back, or none. Sync the folder, or build it again.
    #[error("{} is written, but may not outlast a crash: cannot sync its folder", path.display())]
    NotDurable {
        /// The new index.
        path: PathBuf,
        /// What the system answered.
        source: io::Error,
    },
    /// Another process is building this file. Wait for it, or write under another name.
    #[error("{} is being written by another process", path.display())]
    Busy {
        /// The temporary file that the other one holds.
        path: PathBuf,
    },
    /// The file at `path` cannot be opened as an index; the source says why.
    #[error("{} cannot be opened", path.display())]
    InFile {
        /// Which file.
        path: PathBuf,
        /// What is wrong with it.
        source: Box<IndexError>,
    },
    /// The bytes do not start, or do not end, with the magic number. It is another kind of file,
    /// or it was cut off, or changed on the way by a transfer in text mode.
    #[error("not an index file: the magic number at offset {offset} is {got:02X?}")]
    NotAnIndex {
        /// Where the number should stand.
        offset: u64,
        /// What was found; zeros if the file has ended.
        got: [u8; 8],
    },
    /// A newer tapdex wrote it: use that one. Or it is older than this one can read: build the
    /// index again.
    #[error("format version {got}, expected {oldest} to {newest}")]
    Version {
        /// The version of the file.
        got: u16,
        /// The oldest that can be read.
        oldest: u16,
        /// The newest.
        newest: u16,
    },
    /// The bytes are not those that were written. Build the index again, and mistrust the disk.
    #[error(
        "{section}: checksum of what starts at offset {offset} is {got:08X}, expected \
         {expected:08X}"
    )]
    Checksum {
        /// In which section.
        section: Box<str>,
        /// Where the summed bytes start.
        offset: u64,
        /// The checksum that was stored.
        expected: u32,
        /// That of the bytes.
        got: u32,
    },
    /// A number that is not valid there. If the checksums are good, another program wrote the file.
    #[error("{section}: {what} at offset {offset} is {got}, expected {expected}")]
    BadField {
        /// In which section.
        section: Box<str>,
        /// Which number.
        what: &'static str,
        /// Where it stands.
        offset: u64,
        /// What it has to be.
        expected: Expected,
        /// What it is.
        got: u64,
    },
    /// Bytes that make no sense there. If the checksums are good, another program wrote the file.
    #[error("{section}: {what} at offset {offset} cannot be read")]
    Malformed {
        /// In which section.
        section: Box<str>,
        /// What it should be.
        what: &'static str,
        /// Where it stands, or where the part starts that it belongs to.
        offset: u64,
    },
    /// Numbers that have to ascend do not.
    #[error("{section}: {what} {got} at offset {offset} does not come after {previous}")]
    NotAscending {
        /// In which section.
        section: Box<str>,
        /// Which numbers.
        what: &'static str,
        /// Where the one stands that is too small.
        offset: u64,
        /// The one before it.
        previous: u64,
        /// The one that is too small.
        got: u64,
    },
    /// A section that this version does not know and that must not be skipped. Use the tapdex
    /// that wrote the file.
    #[error("section of kind {kind} at offset {offset}: unknown, and marked as required")]
    UnknownSection {
        /// Its kind.
        kind: u16,
        /// Where it starts.
        offset: u64,
    },
    /// A section that has to be there is not.
    #[error("there is no section with the {section}")]
    MissingSection {
        /// Which one.
        section: Box<str>,
    },
    /// A section that occurs twice, or belongs to a column that does not exist.
    #[error("a second or needless section with the {section} at offset {offset}")]
    SurplusSection {
        /// Which one.
        section: Box<str>,
        /// Where the second one starts.
        offset: u64,
    },
    /// A field's name that is not UTF-8.
    #[error("{section}: the name at offset {offset} is not UTF-8")]
    BadName {
        /// In which section.
        section: Box<str>,
        /// Where the name starts.
        offset: u64,
    },
    /// A schema that an index cannot have.
    #[error("field '{field}': {what} {got}, expected {expected}")]
    BadSchema {
        /// The field at fault.
        field: Box<str>,
        /// What is wrong with it.
        what: &'static str,
        /// What it has to be.
        expected: Expected,
        /// What it is.
        got: u64,
    },
    /// Bytes that are not a bitmap of the column's codec.
    #[error("{section}: the bitmap of key {key} at offset {offset} cannot be read")]
    Bitmap {
        /// In which section.
        section: Box<str>,
        /// Of which key.
        key: u16,
        /// Where the bitmap starts; the source counts from there.
        offset: u64,
        /// What is wrong with it.
        source: DecodeError,
    },
    /// Every row has one key, so the bitmaps of a column have as many ids as there are rows.
    #[error("{section}: the bitmaps hold {got} rows together, expected {expected}")]
    Cardinality {
        /// Of which column.
        section: Box<str>,
        /// How many rows there are.
        expected: u64,
        /// How many ids the bitmaps have.
        got: u64,
    },
    /// A column's bitmaps have as many ids as there are rows, but a row is in two of them, and so
    /// another is in none.
    #[error("{section}: a row is in two of the bitmaps, and another in none")]
    NotPartition {
        /// Of which column.
        section: Box<str>,
    },
    /// A key without rows; a value that does not occur has no key.
    #[error("{section}: the bitmap of key {key} at offset {offset} has no rows")]
    EmptyBitmap {
        /// In which section.
        section: Box<str>,
        /// Of which key.
        key: u16,
        /// Where the bitmap starts.
        offset: u64,
    },
    /// A record that two rows of the row map stand for.
    #[error("{section}: row {row} stands for record {record}, as a row before it does")]
    NotPermutation {
        /// The row map.
        section: Box<str>,
        /// The second row.
        row: u64,
        /// The record.
        record: u64,
    },
    /// There is no field of that name; the message lists the existing ones.
    #[error("no field '{name}', expected one of: {known}")]
    UnknownField {
        /// The name that was asked for.
        name: Box<str>,
        /// The existing names.
        known: Box<str>,
    },
    /// A column, key, row or value number that is too large, or a prefix that is too long.
    #[error("{what} {got}, expected at most {max}")]
    TooLarge {
        /// What was asked for.
        what: &'static str,
        /// The number.
        got: u128,
        /// The largest possible number.
        max: u128,
    },
    /// What was to be written does not agree with what was announced, or with itself.
    #[error("cannot write {section}: {what} {got}, expected {expected}")]
    BadInput {
        /// The section that it was for.
        section: Box<str>,
        /// What is wrong with it.
        what: &'static str,
        /// What it has to be.
        expected: Expected,
        /// What it is.
        got: u64,
    },
    /// A column that was built in another codec than the schema has for it.
    #[error("cannot write column {column}: its codec is {got:?}, expected {expected:?}")]
    WrongCodec {
        /// Which column.
        column: usize,
        /// The codec in the schema.
        expected: Codec,
        /// That of the bitmaps.
        got: Codec,
    },
    /// A column could not be built, so there is nothing to write.
    #[error("cannot build the index of a column")]
    Build(#[from] BuildError),
}

impl IndexError {
    /// What is wrong, without the file that it is in.
    pub fn without_path(&self) -> &Self {
        match self {
            Self::InFile { source, .. } => source.without_path(),
            _ => self,
        }
    }

    pub(crate) fn io(operation: &'static str, path: impl Into<PathBuf>, source: io::Error) -> Self {
        Self::Io { operation, path: path.into(), source }
    }
}

/// What a number has to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Expected {
    /// This and nothing else.
    Exactly(u64),
    /// No more than this.
    AtMost(u64),
    /// No less than this.
    AtLeast(u64),
    /// One of the numbers in the list of the format's documentation.
    Listed,
}

impl Expected {
    /// Whether the number is so; one from a list has been looked up already.
    pub(crate) fn allows(self, got: u64) -> bool {
        match self {
            Expected::Exactly(number) => got == number,
            Expected::AtMost(most) => got <= most,
            Expected::AtLeast(least) => got >= least,
            Expected::Listed => false,
        }
    }
}

impl std::fmt::Display for Expected {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Expected::Exactly(number) => write!(f, "{number}"),
            Expected::AtMost(most) => write!(f, "at most {most}"),
            Expected::AtLeast(least) => write!(f, "at least {least}"),
            Expected::Listed => f.write_str("a known one"),
        }
    }
}

/// An error and what led to it, on one line. Text of a source that an error already includes is not
/// repeated.
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        let cause = error.to_string();
        if !text.ends_with(&cause) {
            text.push_str(&format!(": {cause}"));
        }
        source = error.source();
    }
    text
}
