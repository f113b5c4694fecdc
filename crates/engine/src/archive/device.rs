//! The seam to a device that does the index step of a segment.

use tapdex_bitmap::Codec;

use crate::error::IndexError;
use crate::index::{ColumnIndex, Digits, Width};

/// Words of a flow's key: flows are sorted by them, the first word before the others.
pub const KEY_WORDS: usize = 6;

/// Does the index step of a segment in flow order: sorts, and builds the columns.
///
/// If it fails, with whatever error, the segment is indexed on the CPU instead, and the result is
/// the same, byte for byte.
pub trait SegmentDevice: Send + std::fmt::Debug {
    /// Sorts the flows of a segment by their keys, and its records by flow, those of a flow in
    /// order of arrival. The device keeps what the columns are built from.
    fn sort(&mut self, segment: &SegmentKeys<'_>) -> Result<SegmentOrder, SegmentFailed>;

    /// Builds columns of the segment that was sorted last, and passes each to `done`, in order.
    fn columns(
        &mut self,
        columns: &[(SegmentColumn<'_>, Codec)],
        done: &mut dyn FnMut(&ColumnIndex) -> Result<(), IndexError>,
    ) -> Result<(), SegmentFailed>;
}

/// What a segment is sorted by.
#[derive(Debug, Clone)]
pub struct SegmentKeys<'a> {
    /// For each word of a key, that word of every flow. No two flows are alike.
    pub words: [&'a [u64]; KEY_WORDS],
    /// The flow of each record, in order of arrival.
    pub flow_of: &'a [u32],
    /// What belongs to single records rather than to flows: lists of digits, each with the digit of
    /// every record, in order of arrival. The list of a field that is not kept is empty, and no
    /// column is built from it.
    pub own: Vec<Digits<'a>>,
}

/// The order of a segment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SegmentOrder {
    /// The flows in order of their keys.
    pub flows: Vec<u32>,
    /// The row that each of them starts at.
    pub starts: Vec<u32>,
    /// The records in order of their flows.
    pub records: Vec<u32>,
}

/// A column of a segment in flow order.
#[derive(Debug, Clone, Copy)]
pub enum SegmentColumn<'a> {
    /// The bits of a word of each flow's key, from `shift` up.
    Key {
        /// Which word.
        word: usize,
        /// Where the digit starts in it.
        shift: u32,
        /// How many bits the digit has.
        width: Width,
    },
    /// What belongs to single records: the list with this number in [`SegmentKeys::own`].
    Own(usize),
    /// Digits of runs, and the row that each run starts at.
    Runs(&'a [u16], &'a [u32]),
    /// A digit of each entry of a column that has other entries than rows: conversations, or their
    /// ends.
    Entries(&'a [u16]),
}

/// Why a device did not index a segment.
#[derive(Debug, thiserror::Error)]
pub enum SegmentFailed {
    /// The device failed.
    #[error("{0}")]
    Device(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// What the device returned is not in order.
    #[error("what the device sorted is not in order")]
    Disorder,
    /// The index could not be written.
    #[error(transparent)]
    Index(#[from] IndexError),
}
