//! What can be wrong with encoded bytes, with a name, or with a list of ids.

/// Why a byte string is not a bitmap of the codec and row count it was opened with.
///
/// Every variant names the byte offset at which reading stopped. None of them can be mended by
/// trying again: either the bytes are damaged, or they were opened with another codec, another
/// `w`, or a smaller row count than they were written with.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// The bytes end inside a word, a header or a container. Fetch the whole bitmap again.
    #[error("what starts at offset {offset} is cut off, {missing} bytes are missing")]
    Truncated {
        /// Where the item that does not fit starts.
        offset: usize,
        /// How many bytes it lacks.
        missing: usize,
    },
    /// A word that the encoder would not have written here.
    ///
    /// Equal sets are equal bytes, so a stream that encodes the same set in another way is refused:
    /// it was damaged, or another program wrote it in a form of its own.
    #[error("word {got:08X} at offset {offset}, where the encoder writes {expected:08X}")]
    NotCanonical {
        /// Byte offset of the word.
        offset: usize,
        /// What the encoder writes here for the set that the words describe.
        expected: u32,
        /// What was found; 0 if the stream has ended.
        got: u32,
    },
    /// Bytes after the word or container that holds the last id, such as a trailing zero fill.
    #[error("nothing may follow the last id, but bytes go on at offset {offset}")]
    Trailing {
        /// Where the surplus starts.
        offset: usize,
    },
    /// It has ids past the last row: open it with the row count it was written with.
    #[error("rows at or past the row count {rows}, said at offset {offset}")]
    PastEnd {
        /// Byte offset of the word or container with such an id.
        offset: usize,
        /// The row count it was opened with.
        rows: u32,
    },
    /// Chunk or container keys, ids of an array, or runs that do not ascend.
    #[error("{what} {got} at offset {offset} does not come after {previous}")]
    NotAscending {
        /// What is out of order.
        what: &'static str,
        /// Where it stands.
        offset: usize,
        /// The one before it.
        previous: u32,
        /// The one that is not greater.
        got: u32,
    },
    /// A field with a value that it cannot have.
    #[error("{what} at offset {offset} is {got}, expected {expected}")]
    BadField {
        /// Which field.
        what: &'static str,
        /// Where it stands.
        offset: usize,
        /// What it has to be.
        expected: u32,
        /// What it is.
        got: u32,
    },
    /// A chunk or container without any id; they are left out when there is nothing in them.
    #[error("an empty {what} at offset {offset}")]
    Empty {
        /// Which part.
        what: &'static str,
        /// Where it stands.
        offset: usize,
    },
}

impl DecodeError {
    /// The byte offset at which reading stopped.
    pub fn offset(&self) -> usize {
        match *self {
            DecodeError::Truncated { offset, .. }
            | DecodeError::NotCanonical { offset, .. }
            | DecodeError::Trailing { offset }
            | DecodeError::PastEnd { offset, .. }
            | DecodeError::NotAscending { offset, .. }
            | DecodeError::BadField { offset, .. }
            | DecodeError::Empty { offset, .. } => offset,
        }
    }
}

/// A codec name that is not in the table; the message lists the ones that are.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown codec '{name}', expected one of: {}", crate::codec::names())]
pub struct UnknownCodec {
    /// The name that was asked for.
    pub name: String,
}
