//! From column indexes to a file.

use std::path::{Path, PathBuf};

use super::build::ColumnIndex;
use super::format::{
    BLOCK_LEN, Entry, Footer, NO_COLUMN, NOTE_LEN_MAX, RowOrder, SectionKind, TABLE_VERSION,
    aligned, check_schema, encode_header, encode_schema, size,
};
use super::marks::{self, Mark};
use super::packed;
use super::rowmap;
use super::schema::{ColumnSpec, Schema};
use super::sums::{self, PieceSums};
use crate::beneath::Rights;
use crate::error::{Expected, IndexError};
use crate::storage::{AppendFile, Publish, temporary_path};

const ZEROS: [u8; size(super::format::ALIGN)] = [0; size(super::format::ALIGN)];

/// Takes the bytes of a section, piece by piece.
pub(crate) type Append<'a> = dyn FnMut(&[u8]) -> Result<(), IndexError> + 'a;

/// Writes an index file, section after section, and gives it its name when it is complete.
///
/// Until [`finish`](IndexWriter::finish) is called, an index that was there before under the same
/// name is as it was. After an error, or when the writer is dropped, the temporary file is removed;
/// a writer that has returned an error cannot be used again.
///
/// A column's index is written at once and is not kept: columns may be built one at a time.
#[derive(Debug)]
pub struct IndexWriter<'s> {
    pending: Pending<'s>,
    path: PathBuf,
    rows: u32,
    schema: Schema,
    columns: Vec<ColumnSpec>,
    columns_written: usize,
    order: RowOrder,
    entries: Vec<Entry>,
}

impl<'s> IndexWriter<'s> {
    /// Starts a file for a table of this many rows, in order of arrival.
    pub fn create(
        storage: &'s dyn Publish,
        path: &Path,
        rows: u32,
        schema: Schema,
    ) -> Result<Self, IndexError> {
        Self::with_rights(storage, path, rows, schema, Rights::USUAL)
    }

    /// Starts a file that only those with these rights may read.
    pub fn with_rights(
        storage: &'s dyn Publish,
        path: &Path,
        rows: u32,
        schema: Schema,
        rights: Rights,
    ) -> Result<Self, IndexError> {
        check_schema(&schema)?;
        if path.file_name().is_none() {
            let error = std::io::ErrorKind::InvalidInput.into();
            return Err(IndexError::io("create", path, error));
        }
        let mut writer = Self {
            pending: Pending::create(storage, temporary_path(path), rights)?,
            path: path.to_owned(),
            rows,
            columns: schema.columns().collect(),
            schema,
            columns_written: 0,
            order: RowOrder::Arrival,
            entries: vec![],
        };
        writer.pending.append(&encode_header(TABLE_VERSION))?;
        Ok(writer)
    }

    /// Writes the index of the next column of the schema.
    pub fn column(&mut self, index: &ColumnIndex) -> Result<(), IndexError> {
        let result = self.try_column(index);
        self.pending.settle(result)
    }

    fn try_column(&mut self, index: &ColumnIndex) -> Result<(), IndexError> {
        let n = self.columns_written;
        let check = |what, expected: Expected, got: u64| match expected.allows(got) {
            true => Ok(()),
            false => {
                let section = format!("column {n}").into();
                Err(IndexError::BadInput { section, what, expected, got })
            }
        };
        let columns = self.columns.len() as u64;
        check("number of columns", Expected::AtMost(columns), n as u64 + 1)?;
        let spec = self.columns[n];
        if index.codec != spec.codec {
            let (expected, got) = (spec.codec, index.codec);
            return Err(IndexError::WrongCodec { column: n, expected, got });
        }
        check("number of rows", Expected::Exactly(self.rows.into()), index.rows.into())?;
        let (keys, offsets) = (&index.keys, &index.offsets);
        // Every row has a key, and every key a row.
        let keys_len = keys.len() as u64;
        check("number of keys", Expected::AtMost(self.rows.into()), keys_len)?;
        check("number of keys", Expected::AtLeast(u64::from(self.rows.min(1))), keys_len)?;
        let key_max = (1_u64 << spec.width.bits()) - 1;
        if let Some(&last) = keys.last() {
            check("last key", Expected::AtMost(key_max), last.into())?;
        }
        if let Some(pair) = keys.windows(2).find(|pair| pair[0] >= pair[1]) {
            check("key", Expected::AtLeast(u64::from(pair[0]) + 1), pair[1].into())?;
        }
        check("number of offsets", Expected::Exactly(keys_len + 1), offsets.len() as u64)?;
        check("first offset", Expected::Exactly(0), offsets[0])?;
        if let Some(pair) = offsets.windows(2).find(|pair| pair[0] >= pair[1]) {
            check("offset", Expected::AtLeast(pair[0] + 1), pair[1])?;
        }
        let len = index.parts.iter().map(|part| part.len() as u64).sum();
        let end = offsets[keys.len()];
        check("bytes of bitmaps", Expected::Exactly(end), len)?;

        let column = u32::try_from(n).unwrap_or(NO_COLUMN);
        self.section(SectionKind::Keys, column, &mut |append| {
            append_numbers(keys, |key| key.to_le_bytes(), append)
        })?;
        self.section(SectionKind::Offsets, column, &mut |append| match u32::try_from(len) {
            Ok(_) => append_numbers(offsets, |offset| offset32(offset).to_le_bytes(), append),
            Err(_) => append_numbers(offsets, u64::to_le_bytes, append),
        })?;
        self.section(SectionKind::Bitmaps, column, &mut |append| {
            index.parts.iter().try_for_each(|part| append(part))
        })?;
        self.columns_written += 1;
        Ok(())
    }

    /// Writes, for each row in order of the rows, the number of the record that it stands for,
    /// records being counted from 0 in order of arrival. Each record occurs once. It is needed if
    /// rows are not in order of arrival; without it, row and record have the same number.
    pub fn row_map(&mut self, records: &[u32]) -> Result<(), IndexError> {
        let result = self.try_row_map(records);
        self.pending.settle(result)
    }

    fn try_row_map(&mut self, records: &[u32]) -> Result<(), IndexError> {
        let bad = |what, expected, got| bad_input(SectionKind::RowMap, what, expected, got);
        self.only_one(SectionKind::RowMap)?;
        let rows = u64::from(self.rows);
        if records.len() as u64 != rows {
            let got = records.len() as u64;
            return Err(bad("number of rows", Expected::Exactly(rows), got));
        }
        let mut seen = vec![0_u64; records.len().div_ceil(64)];
        for &record in records {
            let Some(word) = seen.get_mut(record as usize / 64).filter(|_| record < self.rows)
            else {
                let most = Expected::AtMost(rows.saturating_sub(1));
                return Err(bad("record", most, record.into()));
            };
            if *word >> (record % 64) & 1 == 1 {
                return Err(bad("rows of one record", Expected::Exactly(1), 2));
            }
            *word |= 1 << (record % 64);
        }
        self.section(SectionKind::RowMap, NO_COLUMN, &mut |append| {
            rowmap::encode(records, append)
        })?;
        self.order = RowOrder::Sorted;
        Ok(())
    }

    /// Writes the time of each record, in order of arrival, in nanoseconds since 1970.
    pub fn times(&mut self, times_ns: &[u64]) -> Result<(), IndexError> {
        let result = self.try_times(times_ns);
        self.pending.settle(result)
    }

    fn try_times(&mut self, times_ns: &[u64]) -> Result<(), IndexError> {
        self.only_one(SectionKind::Times)?;
        let (rows, got) = (self.rows, times_ns.len() as u64);
        if got != u64::from(rows) {
            let expected = Expected::Exactly(rows.into());
            return Err(bad_input(SectionKind::Times, "number of times", expected, got));
        }
        self.section(SectionKind::Times, NO_COLUMN, &mut |append| {
            packed::encode(rows, |record| times_ns[record], append)
        })
    }

    /// Writes a mark for every [`MARK_RECORDS`](super::MARK_RECORDS) records, in order of arrival.
    /// Their offsets ascend strictly, and no least time is after the greatest.
    pub fn marks(&mut self, marks: &[Mark]) -> Result<(), IndexError> {
        let result = self.try_marks(marks);
        self.pending.settle(result)
    }

    fn try_marks(&mut self, marks: &[Mark]) -> Result<(), IndexError> {
        self.only_one(SectionKind::Marks)?;
        if let Some((what, expected, got)) = marks::check(self.rows, marks) {
            return Err(bad_input(SectionKind::Marks, what, expected, got));
        }
        self.section(SectionKind::Marks, NO_COLUMN, &mut |append| marks::encode(marks, append))
    }

    /// Writes the checksums of the pieces that these marks lead to, which were written before.
    pub fn sums(&mut self, marks: &[Mark], sums: &PieceSums) -> Result<(), IndexError> {
        let result = self.try_sums(marks, sums);
        self.pending.settle(result)
    }

    fn try_sums(&mut self, marks: &[Mark], sums: &PieceSums) -> Result<(), IndexError> {
        self.only_one(SectionKind::Sums)?;
        if self.only_one(SectionKind::Marks).is_ok() {
            let expected = Expected::Exactly(1);
            return Err(bad_input(SectionKind::Marks, "number of sections", expected, 0));
        }
        if let Some((what, expected, got)) = sums::check(marks, sums) {
            return Err(bad_input(SectionKind::Sums, what, expected, got));
        }
        self.section(SectionKind::Sums, NO_COLUMN, &mut |append| sums::encode(sums, append))
    }

    /// Writes bytes that mean something to the writer of the file; at most [`NOTE_LEN_MAX`].
    pub fn note(&mut self, note: &[u8]) -> Result<(), IndexError> {
        let result = self.try_note(note);
        self.pending.settle(result)
    }

    fn try_note(&mut self, note: &[u8]) -> Result<(), IndexError> {
        self.only_one(SectionKind::Note)?;
        let (expected, got) = (Expected::AtMost(NOTE_LEN_MAX), note.len() as u64);
        if !expected.allows(got) {
            return Err(bad_input(SectionKind::Note, "length", expected, got));
        }
        self.section(SectionKind::Note, NO_COLUMN, &mut |append| append(note))
    }

    /// An error if there is a section of that kind.
    fn only_one(&self, kind: SectionKind) -> Result<(), IndexError> {
        if self.entries.iter().all(|entry| entry.kind != kind as u16) {
            return Ok(());
        }
        Err(bad_input(kind, "number of sections", Expected::AtMost(1), 2))
    }

    /// Completes the file and gives it its name; returns how many bytes it has.
    ///
    /// After an error the name leads to what it led to before, with one exception: after
    /// [`IndexError::NotDurable`] it leads to the new index, which may not survive a crash.
    pub fn finish(mut self) -> Result<u64, IndexError> {
        let result = self.try_finish();
        self.pending.settle(result)
    }

    fn try_finish(&mut self) -> Result<u64, IndexError> {
        if self.columns_written != self.columns.len() {
            return Err(IndexError::BadInput {
                section: "schema".into(),
                what: "number of columns",
                expected: Expected::Exactly(self.columns.len() as u64),
                got: self.columns_written as u64,
            });
        }
        let schema = encode_schema(self.rows, self.order, &self.schema);
        self.section(SectionKind::Schema, NO_COLUMN, &mut |append| append(&schema))?;
        self.pending.align()?;
        let directory: Vec<u8> = self.entries.iter().flat_map(Entry::encode).collect();
        let start = self.pending.len;
        self.pending.append(&directory)?;
        let footer = Footer {
            directory: start,
            directory_len: directory.len() as u64,
            file_len: self.pending.len + super::format::FOOTER_LEN,
            directory_sum: crc32c::crc32c(&directory),
        };
        self.pending.append(&footer.encode())?;
        self.pending.publish(&self.path)?;
        Ok(self.pending.len)
    }

    /// Writes a section: what `write` appends, and then the checksums of its blocks.
    fn section(
        &mut self,
        kind: SectionKind,
        column: u32,
        write: &mut dyn FnMut(&mut Append<'_>) -> Result<(), IndexError>,
    ) -> Result<(), IndexError> {
        self.pending.align()?;
        let offset = self.pending.len;
        let (mut sums, mut sum, mut room) = (vec![], 0, BLOCK_LEN);
        let pending = &mut self.pending;
        write(&mut |bytes| {
            let mut rest = bytes;
            while !rest.is_empty() {
                let (head, tail) = rest.split_at(rest.len().min(size(room)));
                sum = crc32c::crc32c_append(sum, head);
                room -= head.len() as u64;
                if room == 0 {
                    sums.extend(sum.to_le_bytes());
                    (sum, room) = (0, BLOCK_LEN);
                }
                rest = tail;
            }
            pending.append(bytes)
        })?;
        if room < BLOCK_LEN {
            sums.extend(sum.to_le_bytes());
        }
        let len = self.pending.len - offset;
        self.pending.append(&sums)?;
        let (kind, sums_sum) = (kind as u16, crc32c::crc32c(&sums));
        self.entries.push(Entry { kind, flags: 0, column, offset, len, sums_sum, bit: 0 });
        Ok(())
    }
}

/// The error for bad input to a section.
pub(super) fn bad_input(
    kind: SectionKind,
    what: &'static str,
    expected: Expected,
    got: u64,
) -> IndexError {
    IndexError::BadInput { section: kind.name().into(), what, expected, got }
}

/// An offset into bitmaps whose length fits into 32 bits.
fn offset32(offset: u64) -> u32 {
    u32::try_from(offset).unwrap_or(u32::MAX)
}

/// Appends numbers, some thousand at a time.
fn append_numbers<T: Copy, const N: usize>(
    numbers: &[T],
    to_bytes: impl Fn(T) -> [u8; N],
    append: &mut Append<'_>,
) -> Result<(), IndexError> {
    for some in numbers.chunks(4_096) {
        let bytes: Vec<u8> = some.iter().flat_map(|&number| to_bytes(number)).collect();
        append(&bytes)?;
    }
    Ok(())
}

/// A file under its temporary name. It is removed unless it is published.
#[derive(Debug)]
pub(super) struct Pending<'s> {
    storage: &'s dyn Publish,
    /// The temporary name.
    path: PathBuf,
    /// `None` once it was published or removed.
    file: Option<Box<dyn AppendFile>>,
    pub(super) len: u64,
}

impl<'s> Pending<'s> {
    pub(super) fn create(
        storage: &'s dyn Publish,
        path: PathBuf,
        rights: Rights,
    ) -> Result<Self, IndexError> {
        match storage.create(&path, rights) {
            Ok(file) => Ok(Self { storage, path, file: Some(file), len: 0 }),
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                Err(IndexError::Busy { path })
            }
            Err(error) => Err(IndexError::io("create", path, error)),
        }
    }

    /// The file; an error if it was removed after an earlier one.
    fn file(&mut self) -> Result<&mut dyn AppendFile, IndexError> {
        match &mut self.file {
            Some(file) => Ok(file.as_mut()),
            None => Err(IndexError::BadInput {
                section: "file".into(),
                what: "number of errors before",
                expected: Expected::Exactly(0),
                got: 1,
            }),
        }
    }

    pub(super) fn append(&mut self, bytes: &[u8]) -> Result<(), IndexError> {
        let result = self.file()?.append(bytes);
        result.map_err(|error| IndexError::io("write", &self.path, error))?;
        self.len += bytes.len() as u64;
        Ok(())
    }

    /// Pads with zeros to where a section may start.
    fn align(&mut self) -> Result<(), IndexError> {
        let padding = aligned(self.len).map_or(0, |end| end - self.len);
        self.append(&ZEROS[..size(padding)])
    }

    /// Passes a result on; after an error the file is removed.
    pub(super) fn settle<T>(&mut self, result: Result<T, IndexError>) -> Result<T, IndexError> {
        if result.is_err() {
            self.remove();
        }
        result
    }

    /// Makes the file durable and gives it its own name.
    pub(super) fn publish(&mut self, target: &Path) -> Result<(), IndexError> {
        let result = self.file()?.sync();
        result.map_err(|error| IndexError::io("sync", &self.path, error))?;
        let renamed = self.storage.rename(&self.path, target);
        renamed.map_err(|error| IndexError::io("rename", &self.path, error))?;
        // Locked until it has its own name; after that there is nothing to remove.
        self.file = None;
        let folder = target.parent().filter(|folder| !folder.as_os_str().is_empty());
        let folder = folder.unwrap_or(Path::new("."));
        let synced = self.storage.sync_folder(folder);
        synced.map_err(|source| IndexError::NotDurable { path: target.to_owned(), source })
    }

    fn remove(&mut self) {
        if let Some(file) = self.file.take() {
            // Removed while it is locked; otherwise it could be another process's file by now. If
            // that fails there is nothing left to try: the next build of this name overwrites it.
            let _ = self.storage.remove(&self.path);
            drop(file);
        }
    }
}

impl Drop for Pending<'_> {
    fn drop(&mut self) {
        self.remove();
    }
}
