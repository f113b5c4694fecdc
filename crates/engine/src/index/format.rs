//! The bytes of an index file that are neither bitmaps nor packed numbers: header, footer,
//! directory, checksums and schema. `docs/format.md` and, for tables, `docs/format-1.md` are the
//! specification.

use std::collections::BTreeSet;

use tapdex_bitmap::Codec;

use super::schema::{ColumnSpec, Field, Schema, Width};
use crate::error::{Expected, IndexError};

/// First and last bytes of a file. The first one is not ASCII, and the magic number contains both
/// kinds of line ends, so that a transfer in text mode is detected.
pub const MAGIC: [u8; 8] = [0x89, b'T', b'D', b'X', b'\r', b'\n', 0x1A, b'\n'];

/// The version that is written. It grows when a reader of the version before would misread a file;
/// what such a reader can skip is a new section kind instead.
pub const FORMAT_VERSION: u16 = 2;

/// The version of tables, which `index-file` writes, and of the segments of older archives.
pub const TABLE_VERSION: u16 = 1;

/// The oldest version that is read.
pub const FORMAT_VERSION_OLDEST: u16 = 1;

/// Bytes of the header.
pub const HEADER_LEN: u64 = 64;
/// Bytes of the footer.
pub const FOOTER_LEN: u64 = 40;
/// Bytes of an entry of the directory.
pub const ENTRY_LEN: u64 = 32;
/// Sections and the directory start at multiples of this.
pub const ALIGN: u64 = 64;
/// Bytes that have a checksum of their own: those of a page, so that a look-up checks little more
/// than it reads.
pub const BLOCK_LEN: u64 = 1 << 12;
/// Stands in place of the column in sections that belong to no column.
pub(crate) const NO_COLUMN: u32 = u32::MAX;
/// Flag of a section that a reader must not skip if it does not know its kind.
pub(crate) const REQUIRED: u16 = 1;
/// Most fields of a schema.
pub const FIELDS_MAX: usize = u16::MAX as usize;
/// Most bytes of a field's name.
pub const NAME_LEN_MAX: usize = u8::MAX as usize;
/// Most bytes of a note.
pub const NOTE_LEN_MAX: u64 = 1 << 24;
/// Most bits of a field.
pub const FIELD_BITS_MAX: u32 = 128;

const HEADER_SUM: usize = 60;
const FOOTER_SUM: usize = 28;
const FOOTER_MAGIC: usize = 32;
const SCHEMA_HEAD_LEN: usize = 8;
// The sections behind the header start aligned without padding.
const _: () = assert!(HEADER_LEN.is_multiple_of(ALIGN));
const _: () = assert!(FOOTER_MAGIC + MAGIC.len() == size(FOOTER_LEN));

/// What a section holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[repr(u16)]
pub enum SectionKind {
    /// Row count, row order, fields and columns.
    Schema = 1,
    /// The keys of a column.
    Keys = 2,
    /// Where each key's bitmap starts.
    Offsets = 3,
    /// The bitmaps of a column.
    Bitmaps = 4,
    /// The record that each row stands for.
    RowMap = 5,
    /// The time of each record.
    Times = 6,
    /// Where records lie in the packet file, and their times, some at a time.
    Marks = 7,
    /// Bytes that the writer of the file added.
    Note = 8,
    /// Checksums of the packets, some at a time.
    Sums = 9,
    /// How many packets each flow has.
    Flows = 10,
    /// A column of packets, conversations or their ends.
    Column = 11,
    /// How many bytes each flow has.
    Volumes = 12,
}

impl SectionKind {
    pub(crate) fn from_code(code: u16) -> Option<Self> {
        const KINDS: [SectionKind; 12] = [
            SectionKind::Schema,
            SectionKind::Keys,
            SectionKind::Offsets,
            SectionKind::Bitmaps,
            SectionKind::RowMap,
            SectionKind::Times,
            SectionKind::Marks,
            SectionKind::Note,
            SectionKind::Sums,
            SectionKind::Flows,
            SectionKind::Column,
            SectionKind::Volumes,
        ];
        KINDS.into_iter().find(|kind| *kind as u16 == code)
    }

    /// Its name in messages.
    pub fn name(self) -> &'static str {
        match self {
            Self::Schema => "schema",
            Self::Keys => "keys",
            Self::Offsets => "offsets",
            Self::Bitmaps => "bitmaps",
            Self::RowMap => "row map",
            Self::Times => "times",
            Self::Marks => "marks",
            Self::Note => "note",
            Self::Sums => "packet sums",
            Self::Flows => "flows",
            Self::Column => "column",
            Self::Volumes => "bytes of flows",
        }
    }

    /// Whether there is one for every column of an index of conversations.
    pub(crate) fn of_flow_column(self) -> bool {
        self == Self::Column
    }

    /// Whether there is one for every column of a table.
    pub(crate) fn of_column(self) -> bool {
        matches!(self, Self::Keys | Self::Offsets | Self::Bitmaps)
    }
}

/// The order of the rows of an index.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[repr(u8)]
pub enum RowOrder {
    /// Row and record have the same number.
    Arrival = 0,
    /// Similar rows are next to each other; the row map leads back to the records.
    Sorted = 1,
}

impl RowOrder {
    /// Its name: `arrival` or `sorted`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Arrival => "arrival",
            Self::Sorted => "sorted",
        }
    }
}

/// A number of bytes that are in memory.
#[expect(clippy::cast_possible_truncation, reason = "it was compared with a slice's length")]
pub(crate) const fn size(len: u64) -> usize {
    len as usize
}

/// The next multiple of [`ALIGN`].
pub(crate) fn aligned(offset: u64) -> Option<u64> {
    offset.checked_next_multiple_of(ALIGN)
}

/// How many checksums a section has.
pub(crate) fn blocks(len: u64) -> u64 {
    len.div_ceil(BLOCK_LEN)
}

/// The numbers at the start of a byte string, from the first on.
pub(crate) fn array<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..)?.first_chunk().copied()
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    array(bytes, at).map_or(0, u16::from_le_bytes)
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    array(bytes, at).map_or(0, u32::from_le_bytes)
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    array(bytes, at).map_or(0, u64::from_le_bytes)
}

/// An error unless the number is what it has to be.
pub(crate) fn check_field(
    section: &dyn Fn() -> Box<str>,
    what: &'static str,
    offset: u64,
    expected: Expected,
    got: u64,
) -> Result<(), IndexError> {
    if expected.allows(got) {
        return Ok(());
    }
    Err(IndexError::BadField { section: section(), what, offset, expected, got })
}

/// An error unless the checksum of the bytes is the stored one.
pub(crate) fn check_sum(
    section: &dyn Fn() -> Box<str>,
    offset: u64,
    bytes: &[u8],
    expected: u32,
) -> Result<(), IndexError> {
    let got = crc32c::crc32c(bytes);
    if got == expected {
        return Ok(());
    }
    Err(IndexError::Checksum { section: section(), offset, expected, got })
}

fn check_magic(bytes: &[u8], offset: u64) -> Result<(), IndexError> {
    let got = array(bytes, size(offset)).unwrap_or_default();
    if got == MAGIC { Ok(()) } else { Err(IndexError::NotAnIndex { offset, got }) }
}

/// The header of a file of a version.
pub(crate) fn encode_header(version: u16) -> [u8; size(HEADER_LEN)] {
    let mut header = [0; size(HEADER_LEN)];
    header[..8].copy_from_slice(&MAGIC);
    header[8..10].copy_from_slice(&version.to_le_bytes());
    let sum = crc32c::crc32c(&header[..HEADER_SUM]);
    header[HEADER_SUM..].copy_from_slice(&sum.to_le_bytes());
    header
}

/// Checks the header of a file, and returns the version of its format.
pub(crate) fn decode_header(file: &[u8]) -> Result<u16, IndexError> {
    let section = || "header".into();
    check_magic(file, 0)?;
    let least = HEADER_LEN + FOOTER_LEN;
    check_field(&section, "file length", 0, Expected::AtLeast(least), file.len() as u64)?;
    check_sum(&section, 0, &file[..HEADER_SUM], u32_at(file, HEADER_SUM))?;
    let (got, oldest, newest) = (u16_at(file, 8), FORMAT_VERSION_OLDEST, FORMAT_VERSION);
    if !(oldest..=newest).contains(&got) {
        return Err(IndexError::Version { got, oldest, newest });
    }
    let zeros = file[10..HEADER_SUM].iter().position(|&byte| byte != 0);
    if let Some(at) = zeros {
        let (offset, got) = (10 + at as u64, file[10 + at].into());
        check_field(&section, "reserved byte", offset, Expected::Exactly(0), got)?;
    }
    Ok(u16_at(file, 8))
}

/// Where the directory lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Footer {
    pub(crate) directory: u64,
    pub(crate) directory_len: u64,
    pub(crate) file_len: u64,
    pub(crate) directory_sum: u32,
}

impl Footer {
    pub(crate) fn encode(&self) -> [u8; size(FOOTER_LEN)] {
        let mut footer = [0; size(FOOTER_LEN)];
        footer[..8].copy_from_slice(&self.directory.to_le_bytes());
        footer[8..16].copy_from_slice(&self.directory_len.to_le_bytes());
        footer[16..24].copy_from_slice(&self.file_len.to_le_bytes());
        footer[24..28].copy_from_slice(&self.directory_sum.to_le_bytes());
        let sum = crc32c::crc32c(&footer[..FOOTER_SUM]);
        footer[FOOTER_SUM..FOOTER_MAGIC].copy_from_slice(&sum.to_le_bytes());
        footer[FOOTER_MAGIC..].copy_from_slice(&MAGIC);
        footer
    }

    /// The footer at the end of a file that is long enough for one.
    pub(crate) fn parse(file: &[u8]) -> Self {
        let footer = &file[file.len().saturating_sub(size(FOOTER_LEN))..];
        Self {
            directory: u64_at(footer, 0),
            directory_len: u64_at(footer, 8),
            file_len: u64_at(footer, 16),
            directory_sum: u32_at(footer, 24),
        }
    }

    /// The footer of a file whose header is good, and its directory's bytes, checked. The directory
    /// has a multiple of `entry_len` bytes.
    pub(crate) fn decode(file: &[u8], entry_len: u64) -> Result<(Self, &[u8]), IndexError> {
        let section = || "footer".into();
        let file_len = file.len() as u64;
        let at = file_len.saturating_sub(FOOTER_LEN);
        check_magic(file, at + FOOTER_MAGIC as u64)?;
        let stored = u32_at(file, size(at) + FOOTER_SUM);
        check_sum(&section, at, &file[size(at)..size(at) + FOOTER_SUM], stored)?;
        let footer = Self::parse(file);
        let exactly = Expected::Exactly;
        check_field(&section, "file length", at + 16, exactly(file_len), footer.file_len)?;
        let most = Expected::AtMost(at - HEADER_LEN);
        check_field(&section, "directory length", at + 8, most, footer.directory_len)?;
        let entries = footer.directory_len / entry_len * entry_len;
        check_field(&section, "directory length", at + 8, exactly(entries), footer.directory_len)?;
        let start = at - footer.directory_len;
        check_field(&section, "directory offset", at, exactly(start), footer.directory)?;
        let directory = &file[size(start)..size(at)];
        check_sum(&|| "directory".into(), start, directory, footer.directory_sum)?;
        Ok((footer, directory))
    }
}

/// A section, as the directory has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) kind: u16,
    pub(crate) flags: u16,
    pub(crate) column: u32,
    pub(crate) offset: u64,
    pub(crate) len: u64,
    /// Checksum of the checksums that lie behind the section.
    pub(crate) sums_sum: u32,
    /// Not in the file: the number of the section's first bit among those that record what has been
    /// checked.
    pub(crate) bit: u32,
}

// Opening a file takes no more memory for the directory than the directory has bytes.
const _: () = assert!(size_of::<Entry>() as u64 == ENTRY_LEN);

impl Entry {
    pub(crate) fn encode(&self) -> [u8; size(ENTRY_LEN)] {
        let mut entry = [0; size(ENTRY_LEN)];
        entry[..2].copy_from_slice(&self.kind.to_le_bytes());
        entry[2..4].copy_from_slice(&self.flags.to_le_bytes());
        entry[4..8].copy_from_slice(&self.column.to_le_bytes());
        entry[8..16].copy_from_slice(&self.offset.to_le_bytes());
        entry[16..24].copy_from_slice(&self.len.to_le_bytes());
        entry[24..28].copy_from_slice(&self.sums_sum.to_le_bytes());
        entry
    }

    pub(crate) fn parse(entry: &[u8]) -> Self {
        Self {
            kind: u16_at(entry, 0),
            flags: u16_at(entry, 2),
            column: u32_at(entry, 4),
            offset: u64_at(entry, 8),
            len: u64_at(entry, 16),
            sums_sum: u32_at(entry, 24),
            bit: 0,
        }
    }

    pub(crate) fn known(&self) -> Option<SectionKind> {
        SectionKind::from_code(self.kind)
    }

    /// Where the section's checksums end; `None` if that overflows.
    pub(crate) fn end(&self) -> Option<u64> {
        self.offset.checked_add(self.len)?.checked_add(4 * blocks(self.len))
    }

    /// Bits that record what has been checked: one for the checksums, one for each block.
    fn bits(&self) -> u64 {
        1 + blocks(self.len)
    }
}

/// The sections of a file whose footer is good, and how many bits they need.
///
/// They lie one behind the other, with no more between them than it takes to align them, and fill
/// the file from header to directory.
pub(crate) fn decode_directory(
    footer: &Footer,
    directory: &[u8],
) -> Result<(Vec<Entry>, u64), IndexError> {
    let section = || "directory".into();
    let mut entries = Vec::with_capacity(directory.len() / size(ENTRY_LEN));
    let (mut end, mut bits, mut offset) = (HEADER_LEN, 0_u64, footer.directory);
    for bytes in directory.chunks_exact(size(ENTRY_LEN)) {
        let mut entry = Entry::parse(bytes);
        let exactly = Expected::Exactly;
        let start = aligned(end).unwrap_or(u64::MAX);
        check_field(&section, "section offset", offset + 8, exactly(start), entry.offset)?;
        let room = footer.directory.saturating_sub(entry.offset);
        let len = entry.end().map_or(u64::MAX, |end| end - entry.offset);
        let what = "section length with checksums";
        check_field(&section, what, offset + 16, Expected::AtMost(room), len)?;
        let reserved = u32_at(bytes, 28).into();
        check_field(&section, "reserved field", offset + 28, exactly(0), reserved)?;
        match entry.known() {
            None if entry.flags & REQUIRED != 0 => {
                return Err(IndexError::UnknownSection { kind: entry.kind, offset: entry.offset });
            }
            None => {}
            Some(_) => {
                check_field(&section, "flags", offset + 2, exactly(0), entry.flags.into())?;
            }
        }
        end = entry.end().unwrap_or(u64::MAX);
        entry.bit = u32::try_from(bits).unwrap_or(u32::MAX);
        bits += entry.bits();
        // A section of no bytes takes no room, but an entry does, so the file bounds this too.
        check_field(&section, "checksums", offset, Expected::AtMost(u32::MAX.into()), bits)?;
        entries.push(entry);
        offset += ENTRY_LEN;
    }
    let start = Expected::Exactly(aligned(end).unwrap_or(u64::MAX));
    let at = offset;
    check_field(&|| "footer".into(), "directory offset", at, start, footer.directory)?;
    Ok((entries, bits))
}

/// An error if an index cannot have these fields.
pub(crate) fn check_schema(schema: &Schema) -> Result<(), IndexError> {
    let bad = |field: &Field, what, expected, got: usize| IndexError::BadSchema {
        field: field.name.as_str().into(),
        what,
        expected,
        got: got as u64,
    };
    if let Some(field) = schema.fields.get(FIELDS_MAX) {
        let most = Expected::AtMost(FIELDS_MAX as u64);
        return Err(bad(field, "number of fields", most, schema.fields.len()));
    }
    let mut names = BTreeSet::new();
    for field in &schema.fields {
        let len = field.name.len();
        if len == 0 {
            return Err(bad(field, "length of the name", Expected::AtLeast(1), len));
        }
        if len > NAME_LEN_MAX {
            let most = Expected::AtMost(NAME_LEN_MAX as u64);
            return Err(bad(field, "length of the name", most, len));
        }
        if field.columns.is_empty() {
            return Err(bad(field, "number of columns", Expected::AtLeast(1), 0));
        }
        let bits = field.columns.iter().map(|column| column.width.bits() as usize).sum();
        if bits > FIELD_BITS_MAX as usize {
            return Err(bad(field, "bits", Expected::AtMost(FIELD_BITS_MAX.into()), bits));
        }
        if !names.insert(field.name.as_str()) {
            return Err(bad(field, "fields of that name", Expected::Exactly(1), 2));
        }
    }
    Ok(())
}

/// The bytes of the schema section. The schema has been checked.
pub(crate) fn encode_schema(rows: u32, order: RowOrder, schema: &Schema) -> Vec<u8> {
    let mut target = vec![];
    target.extend(rows.to_le_bytes());
    target.extend([order as u8, 0]);
    let fields = u16::try_from(schema.fields.len()).unwrap_or(u16::MAX);
    target.extend(fields.to_le_bytes());
    for field in &schema.fields {
        let len = |len: usize| u8::try_from(len).unwrap_or(u8::MAX);
        target.extend([len(field.name.len()), len(field.columns.len())]);
        target.extend(field.name.as_bytes());
        for column in &field.columns {
            let bits = if column.width == Width::Byte { 8 } else { 16 };
            target.extend([bits, column.codec.id() as u8, column.codec.parameter()]);
        }
    }
    target
}

/// The schema section of a file; `offset` is where it starts, for messages. One with more columns
/// than `columns_max` is refused before memory is taken for them.
pub(crate) fn decode_schema(
    bytes: &[u8],
    offset: u64,
    columns_max: u64,
) -> Result<(u32, RowOrder, Schema), IndexError> {
    let section = || "schema".into();
    let (exactly, most) = (Expected::Exactly, Expected::AtMost(columns_max));
    let listed = |what, offset, got: u8| IndexError::BadField {
        section: section(),
        what,
        offset,
        expected: Expected::Listed,
        got: got.into(),
    };
    let mut at = 0;
    // The next `len` bytes, if there are as many.
    let mut take = |len: usize| {
        let from = at;
        let (most, len) = ((bytes.len() - from) as u64, len as u64);
        check_field(&section, "bytes needed", offset + from as u64, Expected::AtMost(most), len)?;
        at += size(len);
        Ok::<_, IndexError>((&bytes[from..at], offset + from as u64))
    };
    let (head, start) = take(SCHEMA_HEAD_LEN)?;
    let order = match head[4] {
        0 => RowOrder::Arrival,
        1 => RowOrder::Sorted,
        got => return Err(listed("row order", start + 4, got)),
    };
    check_field(&section, "reserved byte", start + 5, exactly(0), head[5].into())?;
    // Every field has a column.
    let count = u16_at(head, 6);
    check_field(&section, "number of fields", start + 6, most, count.into())?;
    let mut schema = Schema { fields: Vec::with_capacity(count.into()) };
    let mut columns_count = 0;
    for _ in 0..count {
        let (lens, start) = take(2)?;
        columns_count += u64::from(lens[1]);
        check_field(&section, "number of columns", start + 1, most, columns_count)?;
        let (name, start) = take(lens[0].into())?;
        let name = str::from_utf8(name);
        let name = name.map_err(|_| IndexError::BadName { section: section(), offset: start })?;
        let (specs, start) = take(3 * usize::from(lens[1]))?;
        let mut columns = Vec::with_capacity(lens[1].into());
        for (&[bits, id, parameter], at) in
            specs.as_chunks::<3>().0.iter().zip((start..).step_by(3))
        {
            let width = match bits {
                8 => Width::Byte,
                16 => Width::Short,
                _ => return Err(listed("width", at, bits)),
            };
            let codec = Codec::from_id(id, parameter);
            let codec = codec.ok_or_else(|| listed("codec", at + 1, id))?;
            columns.push(ColumnSpec { width, codec });
        }
        schema.fields.push(Field { name: name.to_owned(), columns });
    }
    let end = offset + at as u64;
    check_field(&section, "bytes left over", end, exactly(0), (bytes.len() - at) as u64)?;
    check_schema(&schema)?;
    Ok((u32_at(bytes, 0), order, schema))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exactly_these_kinds_are_known() {
        let known = (0..=u16::MAX).filter_map(SectionKind::from_code);
        assert_eq!(known.map(|kind| kind as u16).collect::<Vec<_>>(), (1..=12).collect::<Vec<_>>());
    }

    #[test]
    fn schema_survives() {
        let column = |width, codec| ColumnSpec { width, codec };
        let hipes = Codec::from_id(8, 9).unwrap();
        let schema = Schema {
            fields: vec![
                Field { name: "a".into(), columns: vec![column(Width::Byte, hipes); 16] },
                Field { name: "b.c".into(), columns: vec![column(Width::Short, Codec::Masc)] },
            ],
        };
        let bytes = encode_schema(7, RowOrder::Sorted, &schema);
        assert_eq!(decode_schema(&bytes, 0, 17).unwrap(), (7, RowOrder::Sorted, schema));
        for len in 0..bytes.len() {
            assert!(decode_schema(&bytes[..len], 0, 17).is_err());
        }
        for columns_max in 0..17 {
            let error = decode_schema(&bytes, 0, columns_max).unwrap_err();
            let what = if columns_max < 2 { "number of fields" } else { "number of columns" };
            assert!(matches!(error, IndexError::BadField { what: w, .. } if w == what), "{error}");
        }
    }

    #[test]
    fn schema_has_limits() {
        let spec = ColumnSpec { width: Width::Byte, codec: Codec::Wah };
        let field = |name: &str, columns| Field { name: name.into(), columns: vec![spec; columns] };
        let bad = [
            vec![field("", 1)],
            vec![field(&"x".repeat(256), 1)],
            vec![field("a", 0)],
            vec![field("a", 17)],
            vec![field("a", 1), field("a", 2)],
        ];
        for fields in bad {
            let error = check_schema(&Schema { fields });
            assert!(matches!(error, Err(IndexError::BadSchema { .. })), "{error:?}");
        }
        let fields = vec![field(&"x".repeat(255), 16), field("a", 1)];
        assert!(check_schema(&Schema { fields }).is_ok());
    }
}
