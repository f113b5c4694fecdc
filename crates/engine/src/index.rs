//! The index of a table: for every digit of every field, which rows have which value.

pub mod build;
pub(crate) mod format;
mod lookup;
mod marks;
mod packed;
mod parting;
mod reader;
mod rowmap;
mod runs;
pub mod schema;
mod shares;
mod sort;
mod sums;
mod v2;
mod writer;

pub use build::{BuildError, Builder, ColumnIndex, CpuBuilder, Digits, Part};
pub use format::{
    ALIGN, BLOCK_LEN, ENTRY_LEN, FIELD_BITS_MAX, FIELDS_MAX, FOOTER_LEN, FORMAT_VERSION,
    FORMAT_VERSION_OLDEST, HEADER_LEN, MAGIC, NAME_LEN_MAX, NOTE_LEN_MAX, RowOrder, SectionKind,
    TABLE_VERSION,
};
pub use lookup::{FieldIndex, Rows};
pub use marks::{MARK_RECORDS, Mark, Marks};
pub use packed::{BLOCK_VALUES, Packed, PackedIter};
pub use reader::{Column, Index, PROBLEMS_MAX, SectionInfo, Verified};
pub use rowmap::{BLOCK_ROWS, RowMap};
pub use runs::{RUNS_SAMPLED, RunBuilder, check_runs};
pub use schema::{ColumnSpec, Field, Schema, Width};
pub use shares::Share;
pub use sums::{Piece, PieceSums, Pieces};
#[cfg(feature = "testing")]
pub(crate) use v2::pack_digits;
pub use v2::{
    Conversations, FlowColumn, FlowField, FlowSchema, Form, Found, Sorted, Space, StepCode, Within,
};
pub(crate) use v2::{
    Encoded, FlowIndexWriter, FlowValues, NewColumn, PACKED_BLOCK, PACKED_GROUP, RowValues, Sorter,
    check_permutation, for_each_flow, packed_suffices,
};
pub use writer::IndexWriter;
