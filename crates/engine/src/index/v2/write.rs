//! From the flows of a segment to its index file.

use std::path::{Path, PathBuf};

use tapdex_bitmap::Codec;

use super::super::build::{Builder, ColumnIndex, Digits};
use super::super::format::{
    BLOCK_LEN, FORMAT_VERSION, NOTE_LEN_MAX, SectionKind, encode_header, size,
};
use super::super::marks::{self, Mark};
use super::super::sums::{self, PieceSums};
use super::super::writer::{Pending, bad_input};
use super::bits::push_varint;
use super::container::tail;
use super::postings::{self, Form, PackedWeight, Sorted};
use super::schema::{FlowColumn, FlowSchema, Space};
use super::{dictionary, flows, rowmap, volumes};
use crate::beneath::Rights;
use crate::error::{Expected, IndexError};
use crate::parallel::Parallel;
use crate::storage::{Publish, temporary_path};

/// The bytes of a column.
pub(super) fn encode_column(sorted: &Sorted, column: &FlowColumn) -> Vec<u8> {
    let mut bytes = head(sorted, column);
    let implied = column.space == Space::Packets;
    postings::encode_form(sorted, column.form, implied, &mut bytes);
    bytes
}

/// What precedes the entries of a column: its values, and the first byte of each entry's value.
fn head(sorted: &Sorted, column: &FlowColumn) -> Vec<u8> {
    let first_bytes = column.has_first_bytes().then(|| first_bytes(sorted, column.width));
    head_of(&sorted.values, column.width, first_bytes.as_ref())
}

/// The first bytes of the values of entries: a column of their own, in bitmaps or lists.
fn first_bytes(sorted: &Sorted, width: usize) -> Vec<u8> {
    let shift = 8 * (width - 1);
    let (mut of_entries, mut counts) = (vec![0_u8; sorted.entries.len()], [0_u32; 256]);
    for (id, value) in sorted.values.iter().enumerate() {
        let byte = (value >> shift).to_le_bytes()[0];
        let list = sorted.list(id);
        list.iter().for_each(|&entry| of_entries[entry as usize] = byte);
        counts[usize::from(byte)] += u32::try_from(list.len()).unwrap_or(u32::MAX);
    }
    let mut bytes = Sorted { starts: vec![0], ..Sorted::default() };
    // Where the next entry of each byte goes.
    let (mut places, mut end) = ([0; 256], 0);
    for (byte, place) in places.iter_mut().enumerate().filter(|(byte, _)| counts[*byte] > 0) {
        *place = end;
        end += counts[byte];
        bytes.values.push(byte as u128);
        bytes.starts.push(end);
    }
    bytes.entries.resize(of_entries.len(), 0);
    for (entry, &byte) in (0..).zip(&of_entries) {
        let place = &mut places[usize::from(byte)];
        bytes.entries[*place as usize] = entry;
        *place += 1;
    }
    let mut target = vec![0; 3];
    target.extend(bytes.values.iter().map(|value| value.to_le_bytes()[0]));
    let form = postings::choose(&bytes, PackedWeight::NEVER, false, None, &mut target);
    target[..2].copy_from_slice(&form.code());
    target[2] = u8::try_from(bytes.len().saturating_sub(1)).unwrap_or(u8::MAX);
    target
}

fn head_of(values: &[u128], width: usize, first_bytes: Option<&Vec<u8>>) -> Vec<u8> {
    let (mut bytes, mut all) = (Vec::new(), Vec::new());
    dictionary::encode(values, width, &mut all);
    push_varint(values.len() as u128, &mut bytes);
    push_varint(all.len() as u128, &mut bytes);
    if let Some(first_bytes) = first_bytes {
        push_varint(first_bytes.len() as u128, &mut bytes);
    }
    bytes.extend(all);
    bytes.extend(first_bytes.into_iter().flatten());
    bytes
}

/// A column to be written: what it is of, the bytes of a value, and the names of its fields.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NewColumn<'n> {
    pub(crate) space: Space,
    pub(crate) width: usize,
    pub(crate) names: &'n [&'n str],
}

impl NewColumn<'_> {
    fn with(&self, form: Form) -> FlowColumn {
        let names = self.names.iter().map(|&name| name.to_owned()).collect();
        FlowColumn { space: self.space, width: self.width, form, names }
    }
}

/// A section of the index file of a segment, ready to be written.
#[derive(Debug)]
pub(crate) struct Encoded {
    kind: SectionKind,
    parts: [Vec<u8>; 2],
    /// What the schema says of it, if it is a column.
    column: Option<FlowColumn>,
}

impl Encoded {
    fn new(kind: SectionKind, encode: impl FnOnce(&mut Vec<u8>)) -> Self {
        let mut bytes = Vec::new();
        encode(&mut bytes);
        Self { kind, parts: [bytes, Vec::new()], column: None }
    }

    fn column_of(column: FlowColumn, head: Vec<u8>, bytes: Vec<u8>) -> Self {
        Self { kind: SectionKind::Column, parts: [head, bytes], column: Some(column) }
    }

    /// How many packets the flows have, two for each conversation.
    pub(crate) fn flows(packets: &[u32]) -> Self {
        Self::new(SectionKind::Flows, |bytes| flows::encode(packets, bytes))
    }

    /// The excess of the flows, two for each conversation.
    pub(crate) fn volumes(excess: &[u64]) -> Self {
        Self::new(SectionKind::Volumes, |bytes| volumes::encode(excess, bytes))
    }

    /// A column, in bitmaps of a codec or in the form that fits it best. The packed form has so
    /// many bytes, if that is known.
    pub(crate) fn column(
        new: NewColumn<'_>,
        sorted: &Sorted,
        codec: Option<Codec>,
        packed_len: Option<usize>,
    ) -> Self {
        let (mut bytes, head) = (Vec::new(), head(sorted, &new.with(Form::Lists)));
        let implied = new.space == Space::Packets;
        let form = match codec {
            Some(codec) => {
                let form = Form::Bitmaps(codec);
                postings::encode_form(sorted, form, implied, &mut bytes);
                form
            }
            None => {
                let weight = if implied { PackedWeight::PACKETS } else { PackedWeight::FLOWS };
                postings::choose(sorted, weight, implied, packed_len, &mut bytes)
            }
        };
        Self::column_of(new.with(form), head, bytes)
    }

    /// A column of packets whose bitmaps were built before; its keys stand for these values.
    pub(crate) fn built_packets(
        new: NewColumn<'_>,
        values: &[u128],
        index: &ColumnIndex,
        rows: u32,
    ) -> Result<Self, IndexError> {
        Self::built_of(new, head_of(values, new.width, None), values.len(), index, rows)
    }

    /// A column whose bitmaps were built before, from the ids of its values.
    pub(crate) fn built(
        new: NewColumn<'_>,
        sorted: &Sorted,
        index: &ColumnIndex,
    ) -> Result<Self, IndexError> {
        let head = head(sorted, &new.with(Form::Bitmaps(index.codec)));
        let entries = u32::try_from(sorted.entries.len()).unwrap_or(u32::MAX);
        Self::built_of(new, head, sorted.len(), index, entries)
    }

    fn built_of(
        new: NewColumn<'_>,
        head: Vec<u8>,
        values: usize,
        index: &ColumnIndex,
        entries: u32,
    ) -> Result<Self, IndexError> {
        let counts = [
            ("number of entries", entries.into(), index.rows.into()),
            ("number of values", values as u64, index.keys.len() as u64),
            ("number of bitmaps", values as u64 + 1, index.offsets.len() as u64),
        ];
        for (what, right, got) in counts {
            let expected = Expected::Exactly(right);
            if !expected.allows(got) {
                return Err(bad_input(SectionKind::Column, what, expected, got));
            }
        }
        let bytes = Self::bitmaps_of(index, new.space)?;
        Ok(Self::column_of(new.with(Form::Bitmaps(index.codec)), head, bytes))
    }

    /// The bytes of bitmaps that were built before.
    fn bitmaps_of(index: &ColumnIndex, space: Space) -> Result<Vec<u8>, IndexError> {
        let all = index.bitmaps();
        if index.offsets.last() != Some(&(all.len() as u64)) || !index.offsets.is_sorted() {
            let expected = Expected::Exactly(all.len() as u64);
            let got = index.offsets.last().copied().unwrap_or(0);
            return Err(bad_input(SectionKind::Column, "bytes of bitmaps", expected, got));
        }
        let bitmap = |id: usize, target: &mut Vec<u8>| {
            target.extend_from_slice(&all[size(index.offsets[id])..size(index.offsets[id + 1])]);
        };
        let mut bytes = Vec::new();
        let implied = space == Space::Packets;
        postings::encode_bitmaps(&bitmap, index.keys.len(), implied, &mut bytes);
        Ok(bytes)
    }

    /// A column of packets, in bitmaps of a codec or in the form that fits it best.
    ///
    /// The rule is that of other columns, but there are no lists: bitmaps of MASC or the packed
    /// form, whichever has the fewest bytes, those of the packed form counted twice. Bitmaps count
    /// as [`masc_least`](postings::masc_least) at least, even if one is left out.
    pub(crate) fn packets(
        new: NewColumn<'_>,
        digits: Digits<'_>,
        codec: Option<Codec>,
        (builder, column): (&mut dyn Builder, &mut ColumnIndex),
    ) -> Result<Self, IndexError> {
        let rows = u32::try_from(digits.rows()).unwrap_or(u32::MAX);
        let values = |column: &ColumnIndex| -> Vec<u128> {
            column.keys.iter().map(|&key| key.into()).collect()
        };
        if let Some(codec) = codec {
            builder.build(digits, codec, column)?;
            return Self::built_packets(new, &values(column), column, rows);
        }
        let (keys, packed, runs) = match digits {
            Digits::Bytes(digits) => postings::pack_digits(digits, |&digit| digit.into()),
            Digits::Shorts(digits) => postings::pack_digits(digits, |&digit| digit),
        };
        if !packed_suffices(packed.len(), keys.len(), runs) {
            let most = PackedWeight::PACKETS.of(packed.len());
            builder.build(digits, Codec::Masc, column)?;
            let bytes = Self::bitmaps_of(column, new.space)?;
            if bytes.len() <= most {
                return Self::built_packets(new, &values(column), column, rows);
            }
        }
        Ok(Self::packed_packets(new, &keys, packed))
    }

    /// A column of packets in the packed form: the values that occur, and which packet has which.
    pub(crate) fn packed_packets(new: NewColumn<'_>, values: &[u128], packed: Vec<u8>) -> Self {
        Self::column_of(new.with(Form::Packed), head_of(values, new.width, None), packed)
    }

    /// The record of each row, a permutation; flows start at these rows, and the last one ends
    /// there.
    pub(crate) fn row_map(
        records: &[u32],
        starts: &[u32],
        parallel: Parallel<'_>,
    ) -> Result<Self, IndexError> {
        let mut bytes = Vec::new();
        rowmap::encode(records, starts, parallel, &mut bytes)?;
        Ok(Self::encoded_row_map(bytes))
    }

    /// A row map that was encoded before.
    pub(crate) fn encoded_row_map(bytes: Vec<u8>) -> Self {
        Self::new(SectionKind::RowMap, |target| *target = bytes)
    }

    /// A mark for every [`MARK_RECORDS`](super::super::MARK_RECORDS) records.
    pub(crate) fn marks(rows: u32, marks: &[Mark]) -> Result<Self, IndexError> {
        if let Some((what, expected, got)) = marks::check(rows, marks) {
            return Err(bad_input(SectionKind::Marks, what, expected, got));
        }
        Ok(Self::new(SectionKind::Marks, |bytes| super::marks::encode(marks, bytes)))
    }

    /// The checksums of the pieces that these marks lead to.
    pub(crate) fn sums(marks: &[Mark], sums: &PieceSums) -> Result<Self, IndexError> {
        if let Some((what, expected, got)) = sums::check(marks, sums) {
            return Err(bad_input(SectionKind::Sums, what, expected, got));
        }
        let mut bytes = Vec::new();
        sums::encode(sums, &mut |some| {
            bytes.extend_from_slice(some);
            Ok(())
        })?;
        Ok(Self::new(SectionKind::Sums, |target| *target = bytes))
    }

    /// Bytes that mean something to the writer of the file.
    pub(crate) fn note(note: &[u8]) -> Result<Self, IndexError> {
        let (expected, got) = (Expected::AtMost(NOTE_LEN_MAX), note.len() as u64);
        if !expected.allows(got) {
            return Err(bad_input(SectionKind::Note, "length", expected, got));
        }
        Ok(Self::new(SectionKind::Note, |bytes| bytes.extend_from_slice(note)))
    }
}

/// Whether a column of packets is packed, whatever its bitmaps would be: they have so many values
/// and runs.
pub(crate) fn packed_suffices(packed: usize, values: usize, runs: usize) -> bool {
    postings::masc_least(runs, values) > PackedWeight::PACKETS.of(packed)
}

/// Refuses records of which one is there twice or does not exist.
pub(crate) fn check_permutation(records: &[u32]) -> Result<(), IndexError> {
    let mut seen = vec![0_u64; records.len().div_ceil(64)];
    for &record in records {
        let word = seen.get_mut(record as usize / 64);
        let bit = 1 << (record % 64);
        match word.filter(|_| (record as usize) < records.len()) {
            Some(word) if *word & bit == 0 => *word |= bit,
            _ => {
                let (expected, what) = (Expected::AtMost(0), "second row of a record");
                return Err(bad_input(SectionKind::RowMap, what, expected, record.into()));
            }
        }
    }
    Ok(())
}

/// Writes the index file of a segment, section after section, and gives it its name when it is
/// complete. Until then, an index that was there before under the same name is as it was; if the
/// writer is dropped, or after an error, the temporary file is removed.
#[derive(Debug)]
pub(crate) struct FlowIndexWriter<'s> {
    pending: Pending<'s>,
    path: PathBuf,
    schema: FlowSchema,
    sections: Vec<(u16, u64)>,
    sums: BlockSums,
}

/// Checksums of the blocks of what is written.
#[derive(Debug)]
struct BlockSums {
    sums: Vec<u32>,
    /// That of the block that is not full yet, and how many bytes it has room for.
    sum: u32,
    room: u64,
}

impl BlockSums {
    fn add(&mut self, bytes: &[u8]) {
        let mut rest = bytes;
        while !rest.is_empty() {
            let (head, tail) = rest.split_at(rest.len().min(size(self.room)));
            self.sum = crc32c::crc32c_append(self.sum, head);
            self.room -= head.len() as u64;
            if self.room == 0 {
                self.sums.push(self.sum);
                (self.sum, self.room) = (0, BLOCK_LEN);
            }
            rest = tail;
        }
    }

    fn end(&mut self) -> &[u32] {
        if self.room < BLOCK_LEN {
            self.sums.push(self.sum);
        }
        &self.sums
    }
}

impl<'s> FlowIndexWriter<'s> {
    /// Starts a file that only those with these rights may read.
    pub(crate) fn create(
        storage: &'s dyn Publish,
        path: &Path,
        rights: Rights,
        (rows, conversations): (u32, u32),
    ) -> Result<Self, IndexError> {
        let mut writer = Self {
            pending: Pending::create(storage, temporary_path(path), rights)?,
            path: path.to_owned(),
            schema: FlowSchema { rows, conversations, columns: Vec::new() },
            sections: Vec::new(),
            sums: BlockSums { sums: Vec::new(), sum: 0, room: BLOCK_LEN },
        };
        writer.append(&encode_header(FORMAT_VERSION))?;
        Ok(writer)
    }

    fn append(&mut self, bytes: &[u8]) -> Result<(), IndexError> {
        self.sums.add(bytes);
        let result = self.pending.append(bytes);
        self.pending.settle(result)
    }

    /// Writes the next section.
    pub(crate) fn write(&mut self, section: Encoded) -> Result<(), IndexError> {
        let Encoded { kind, parts, column } = section;
        parts.iter().try_for_each(|part| self.append(part))?;
        let len = parts.iter().map(|part| part.len() as u64).sum();
        self.sections.push((kind as u16, len));
        self.schema.columns.extend(column);
        Ok(())
    }

    /// Completes the file and gives it its name; returns how many bytes it has.
    pub(crate) fn finish(mut self) -> Result<u64, IndexError> {
        let schema = self.schema.encode();
        self.write(Encoded::new(SectionKind::Schema, |bytes| *bytes = schema))?;
        let tail = tail(&self.sections, self.sums.end(), self.pending.len);
        let result = self.pending.append(&tail);
        self.pending.settle(result)?;
        let result = self.pending.publish(&self.path);
        self.pending.settle(result)?;
        Ok(self.pending.len)
    }
}
