//! From packets to the index file of a segment.

mod from_columns;
mod on_device;

use std::io::Read;
use std::path::Path;

use tapdex_bitmap::Codec;

use super::CodecChoice;
use super::device::SegmentColumn;
use super::flows::{Conversations, Flows, Values};
use super::note::Note;
use crate::beneath::Rights;
use crate::capture::{CaptureError, CaptureReader, Record};
use crate::error::IndexError;
use crate::fields::{self, FIELDS, Field, FieldSet, Home, Narrow, OWN_DIGITS, Packet, Spec, Wide};
use crate::index::{
    ColumnIndex, CpuBuilder, Digits, FlowIndexWriter, MARK_RECORDS, Mark, NewColumn, PieceSums,
    Sorted, Sorter, Space, Width,
};
use crate::packet::{self, Headers};
use crate::storage::Publish;

pub use on_device::DeviceReport;
pub(super) use on_device::SharedDevice;

/// Packets whose flows are looked up together, so that their memory reads overlap: those of a mark.
const BATCH: usize = MARK_RECORDS as usize;

/// Records of a segment: few enough that a segment is built in little memory, many enough that a
/// search opens few files.
pub(super) const RECORDS_MAX: usize = 1 << 22;
/// Flows of a segment: with the greatest number of both it takes about 300 MB to build.
const FLOWS_MAX: usize = 1 << 20;
/// Segments of that size that are built at a time: all together in less than 1 GiB.
const SEGMENTS_AT_A_TIME: usize = 3;

/// When a segment is closed.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    pub(super) records: usize,
    /// Half as many flows may have wide parts.
    flows: usize,
}

impl Limits {
    /// Limits for a number of threads. Each has a segment in memory, so more threads mean smaller
    /// segments.
    pub(super) fn new(records_max: usize, threads: usize) -> Self {
        let share = |most: usize| most * SEGMENTS_AT_A_TIME / threads.max(SEGMENTS_AT_A_TIME);
        Self { records: records_max.min(share(RECORDS_MAX)), flows: share(FLOWS_MAX) }
    }
}

/// Takes packets in and writes the index of a segment.
#[derive(Debug)]
pub(super) struct SegmentBuilder {
    flows: Flows,
    /// The flow of each record.
    flow_of: Vec<u32>,
    /// What records have for themselves.
    own: Own,
    /// The fields that are kept, and their bits in the key of a flow.
    keep: FieldSet,
    mask: Narrow,
    marks: Vec<Mark>,
    /// Checksums of the packets, if there are to be any.
    sums: Option<PieceSums>,
    /// Packets whose flow is still to be looked up.
    pending: Box<Pending>,
    headers: Headers,
    wire_bytes: u64,
    captured_bytes: u64,
    /// Whether the lengths of the packets are known, not only their classes.
    has_lengths: bool,
    // Kept for the next segment.
    rows: CpuBuilder,
    column: ColumnIndex,
    row_map: Vec<u32>,
    row_own: Own,
    sorter: Sorter,
    conversations: Conversations,
    values: Values,
    sorted: Sorted,
}

/// Packets whose flow is still to be looked up.
#[derive(Debug, Default)]
struct Pending {
    len: usize,
    keys: [Narrow; BATCH],
    hashes: [u64; BATCH],
    /// The wide parts of those that have one, with their hashes, and whose they are.
    wide: [(usize, Wide, u64); BATCH],
    wide_len: usize,
    /// What the packets have for themselves, digit by digit.
    own: [[u16; BATCH]; OWN_DIGITS],
    /// What their lengths are above the least of their classes.
    excess: [u32; BATCH],
    mark: Mark,
}

impl SegmentBuilder {
    /// Keeps these fields of packets.
    pub(super) fn new(keep: FieldSet) -> Self {
        // Both ends of a field, or neither: which is the source depends on the packet.
        let has_end = |spec: &&Spec| {
            spec.other_end().is_some_and(|other| keep.contains(other.field))
                || FIELDS.iter().any(|first| {
                    keep.contains(first.field)
                        && first.other_end().is_some_and(|other| other.field == spec.field)
                })
        };
        let ends = FIELDS.iter().filter(has_end).map(|spec| spec.field);
        let keep: FieldSet = keep.iter().chain(ends).collect();
        Self {
            flows: Flows::new(),
            flow_of: Vec::new(),
            own: own(keep),
            keep,
            mask: fields::mask(keep),
            marks: Vec::new(),
            sums: None,
            pending: Box::default(),
            headers: Headers::default(),
            wire_bytes: 0,
            captured_bytes: 0,
            has_lengths: true,
            rows: CpuBuilder::new(1),
            column: ColumnIndex::default(),
            row_map: Vec::new(),
            row_own: own(keep),
            sorter: Sorter::default(),
            conversations: Conversations::default(),
            values: Values::default(),
            sorted: Sorted::default(),
        }
    }

    /// Forgets the packets, and keeps the memory.
    pub(super) fn clear(&mut self) {
        self.flows.clear();
        self.flow_of.clear();
        self.own.iter_mut().for_each(Plane::clear);
        self.marks.clear();
        self.sums = None;
        (self.pending.len, self.pending.wide_len) = (0, 0);
        (self.wire_bytes, self.captured_bytes) = (0, 0);
        self.has_lengths = true;
    }

    pub(super) fn records(&self) -> usize {
        self.flow_of.len() + self.pending.len
    }

    /// Whether the segment is to be closed before the next packet.
    pub(super) fn is_full(&self, limits: &Limits) -> bool {
        self.records() >= limits.records
            || self.flows.len() + BATCH > limits.flows
            || self.flows.wide.len() >= limits.flows / 2
    }

    /// Keeps checksums of what is read from here on; `start` is where the head of the segment
    /// starts.
    pub(super) fn start_sums<R: Read>(&mut self, reader: &mut CaptureReader<R>, start: u64) {
        reader.start_sum(start);
        self.sums = Some(PieceSums { start, end: start, sums: Vec::new() });
    }

    /// Called after the last packet: ends the last piece where the reader is.
    pub(super) fn end_sums<R: Read>(&mut self, reader: &mut CaptureReader<R>) {
        if let Some(sums) = &mut self.sums {
            sums.end = reader.position();
            sums.sums.push(reader.sum_to(sums.end));
        }
    }

    /// Takes in the next packet; returns whether there was one.
    #[inline(always)]
    pub(super) fn take<R: Read>(
        &mut self,
        reader: &mut CaptureReader<R>,
    ) -> Result<bool, CaptureError> {
        let Some(record) = reader.next()? else { return Ok(false) };
        let offset = record.offset;
        self.push(&record);
        // The first packet of a mark: the piece before it has ended.
        if self.pending.len == 1
            && let Some(sums) = &mut self.sums
        {
            sums.sums.push(reader.sum_to(offset));
        }
        Ok(true)
    }

    /// Takes in a packet.
    #[inline(always)]
    fn push(&mut self, record: &Record<'_>) {
        packet::decode(record.link, record.swapped, record.data, &mut self.headers);
        let packet = Packet::new(record, &self.headers);
        self.wire_bytes += u64::from(record.wire_len);
        self.captured_bytes += record.data.len() as u64;
        let pending = &mut *self.pending;
        let time = record.time_ns;
        if pending.len == 0 {
            pending.mark = Mark { offset: record.offset, time_min: time, time_max: time };
        }
        pending.mark.time_min = pending.mark.time_min.min(time);
        pending.mark.time_max = pending.mark.time_max.max(time);
        let at = pending.len % BATCH;
        let mut key = fields::narrow(&packet);
        let mut is_wide = false;
        if packet.headers.wide {
            let mut wide = fields::wide(&packet);
            fields::order_ends(&mut key, Some(&mut wide));
            // A wide part that is 0 is none: flows are what their fields are.
            is_wide = wide != Wide::default();
            if is_wide {
                let hash = self.flows.wide.hash(&wide);
                self.flows.wide.prefetch_slot(hash);
                pending.wide[pending.wide_len % BATCH] = (at, wide, hash);
                pending.wide_len += 1;
            }
        } else {
            fields::order_ends(&mut key, None);
        }
        let key = std::array::from_fn(|word| key[word] & self.mask[word]);
        if !is_wide {
            pending.hashes[at] = self.flows.narrow.hash(&key);
            self.flows.narrow.prefetch_slot(pending.hashes[at]);
        }
        pending.keys[at] = key;
        for (digits, digit) in pending.own.iter_mut().zip(fields::own(&packet)) {
            digits[at] = digit;
        }
        pending.excess[at] = excess(record.wire_len);
        pending.len = at + 1;
        if pending.len == BATCH {
            self.settle();
        }
    }

    /// Looks up the flows of the pending packets: those of a mark, except at the end of a segment.
    fn settle(&mut self) {
        let pending = &mut *self.pending;
        let len = std::mem::take(&mut pending.len).min(BATCH);
        if len == 0 {
            return;
        }
        // Slots were fetched as packets came, keys are fetched now.
        let wide = &pending.wide[..std::mem::take(&mut pending.wide_len).min(BATCH)];
        wide.iter().for_each(|(_, _, hash)| self.flows.wide.prefetch_key(*hash));
        for (at, part, hash) in wide {
            let key = &mut pending.keys[*at];
            self.flows.join(key, part, *hash);
            pending.hashes[*at] = self.flows.narrow.hash(key);
            self.flows.narrow.prefetch_slot(pending.hashes[*at]);
        }
        pending.hashes[..len].iter().for_each(|&hash| self.flows.narrow.prefetch_key(hash));
        let keys = pending.keys[..len].iter().zip(&pending.hashes).zip(&pending.excess);
        let flows = keys.map(|((key, &hash), &excess)| self.flows.count(key, hash, excess));
        self.flow_of.extend(flows);
        for (plane, digits) in self.own.iter_mut().zip(&pending.own) {
            plane.extend(&digits[..len]);
        }
        self.marks.push(pending.mark);
    }

    /// Fills in the figures of the note that are about the packets.
    pub(super) fn describe(&mut self, note: &mut Note) {
        self.settle();
        note.records = self.records() as u64;
        note.wire_bytes = self.wire_bytes;
        note.captured_bytes = self.captured_bytes;
        note.odd = self.flows.odd_packets();
        note.flows = self.flows.len() as u64;
        note.time_min = self.marks.iter().map(|mark| mark.time_min).min().unwrap_or(0);
        note.time_max = self.marks.iter().map(|mark| mark.time_max).max().unwrap_or(0);
        self.describe_fields(note);
    }

    /// Fills in which fields of the note are 0 in all packets.
    pub(super) fn describe_fields(&self, note: &mut Note) {
        let used = self.fields_used();
        let both = used.iter().flat_map(|spec| [Some(*spec), spec.other_end()]);
        let used: FieldSet = both.flatten().map(|spec| spec.field).collect();
        note.set_zero(self.keep.iter().filter(|&field| !used.contains(field)));
    }

    /// Writes the index of the packets; returns its size in bytes. If there is a device, it sorts
    /// and indexes the rows.
    pub(super) fn write(
        &mut self,
        file: NewFile<'_>,
        codec: CodecChoice,
        note: &Note,
        device: &SharedDevice<'_>,
    ) -> Result<u64, IndexError> {
        self.settle();
        let target = Target { file, fields: &self.fields_used(), codec, note };
        match self.write_on_device(&target, device) {
            Some(written) => written,
            None => self.write_on_cpu(&target),
        }
    }

    /// The columns that are not 0 in all entries; the length class always. A column of both ends is
    /// named by the field of the source.
    fn fields_used(&self) -> Vec<&'static Spec> {
        let (narrow, wide) = self.flows.bits_used();
        let is_used = |spec: &Spec| {
            spec.field == Field::Length
                || match spec.home {
                    Home::Narrow(..) => {
                        spec.home_masks().any(|(word, bits)| narrow[word] & bits != 0)
                    }
                    Home::Wide(..) => spec.home_masks().any(|(word, bits)| wide[word] & bits != 0),
                    Home::Packet => spec.own_digits().any(|digit| !self.own[digit].is_zero()),
                }
        };
        let kept = FIELDS.iter().filter(|spec| self.keep.contains(spec.field));
        let columns = kept.filter(|spec| !spec.is_second_end());
        columns.filter(|spec| is_used(spec) || spec.other_end().is_some_and(is_used)).collect()
    }

    /// Writes the index: sorts flows, puts the rows in their order, and writes columns.
    fn write_on_cpu(&mut self, target: &Target<'_>) -> Result<u64, IndexError> {
        let mut conversations = std::mem::take(&mut self.conversations);
        self.flows.sort(&mut self.sorter, &mut conversations);
        let mut next = conversations.first_rows.clone();
        let mut row_map = std::mem::take(&mut self.row_map);
        row_map.resize(self.records(), 0);
        for (record, &flow) in (0_u32..).zip(&self.flow_of) {
            let row = &mut next[flow as usize];
            row_map[*row as usize] = record;
            *row += 1;
        }
        let rows = SortedRows { conversations: &conversations, records: &row_map };
        let written = self.write_rows(target, rows, &mut |_, _, _| Ok(false));
        (self.row_map, self.conversations) = (row_map, conversations);
        written
    }

    /// Writes the index of a segment whose rows are in order. `built_elsewhere` builds the bitmaps
    /// of a column and passes them on, or returns false if they are to be built here.
    fn write_rows<E: From<IndexError>>(
        &mut self,
        target: &Target<'_>,
        sorted_rows: SortedRows<'_>,
        built_elsewhere: &mut BuildElsewhere<'_, E>,
    ) -> Result<u64, E> {
        let NewFile { storage, path, rights } = target.file;
        let SortedRows { conversations, records } = sorted_rows;
        let mut writer = FlowIndexWriter::create(storage, path, rights, rows32(records.len()))?;
        writer.flows(&conversations.packets)?;
        if self.has_lengths {
            writer.volumes(&conversations.excess)?;
        }
        let Self { rows: by_row, column, row_own, sorter, values, sorted, .. } = self;
        for (plane, target) in self.own.iter().zip(row_own.iter_mut()) {
            plane.gather(records, target);
        }
        let codec = match target.codec {
            CodecChoice::Fixed(codec) => Some(codec),
            CodecChoice::Auto => None,
        };
        for spec in target.fields {
            let width = spec.bits().div_ceil(8) as usize;
            let other = spec.other_end().map(|other| other.name);
            let names: Vec<&str> = [Some(spec.name), other].into_iter().flatten().collect();
            let new = |space| NewColumn { space, width, names: &names };
            let own_digits = spec.own_digits();
            if own_digits.len() == 1 {
                let digit = own_digits.start;
                let new = new(Space::Packets);
                let is_built = match codec {
                    None => false,
                    Some(codec) => {
                        built_elsewhere(SegmentColumn::Own(digit), codec, &mut |index| {
                            let values: Vec<u128> =
                                index.keys.iter().map(|&key| key.into()).collect();
                            writer.built_packets(new, &values, index)
                        })?
                    }
                };
                if !is_built {
                    writer.packets(new, row_own[digit].digits(), codec, (by_row, column))?;
                }
                continue;
            }
            values.start(spec);
            let space = match spec.is_of_flow() {
                false => {
                    values.long.resize(records.len(), 0);
                    own_digits.for_each(|digit| row_own[digit].append_to(&mut values.long));
                    Space::Packets
                }
                true => {
                    let ends = [Some(*spec), spec.other_end()];
                    for spec in ends.into_iter().flatten() {
                        conversations.values(spec, values);
                    }
                    if spec.other_end().is_some() { Space::Ends } else { Space::Conversations }
                }
            };
            values.sort(sorter, sorted);
            let is_built = match (codec, codec.and_then(|_| sorted.short_ids())) {
                (Some(codec), Some(ids)) => {
                    built_elsewhere(SegmentColumn::Entries(&ids), codec, &mut |index| {
                        writer.built(new(space), sorted, index)
                    })?
                }
                _ => false,
            };
            if !is_built {
                writer.column(new(space), sorted, codec)?;
            }
        }
        writer.row_map(records, &conversations.starts)?;
        writer.marks(&self.marks)?;
        if let Some(sums) = &self.sums {
            writer.sums(&self.marks, sums)?;
        }
        writer.note(target.note.to_text().as_bytes())?;
        Ok(writer.finish()?)
    }
}

/// What a length is above the least of its class.
#[inline(always)]
fn excess(wire_len: u32) -> u32 {
    let least = fields::length_class_start(fields::length_class(wire_len));
    wire_len - u32::try_from(least).unwrap_or(0)
}

/// The rows of a segment in their order.
#[derive(Clone, Copy)]
struct SortedRows<'a> {
    conversations: &'a Conversations,
    /// The record of each row.
    records: &'a [u32],
}

/// Takes the index of a column.
type TakeIndex<'t> = dyn FnMut(&ColumnIndex) -> Result<(), IndexError> + 't;
/// Builds a column in a codec; returns whether it did.
type BuildElsewhere<'b, E> =
    dyn FnMut(SegmentColumn<'_>, Codec, &mut TakeIndex<'_>) -> Result<bool, E> + 'b;

/// Where an index is written, and who may read it.
#[derive(Debug, Clone, Copy)]
pub(super) struct NewFile<'a> {
    pub(super) storage: &'a dyn Publish,
    pub(super) path: &'a Path,
    pub(super) rights: Rights,
}

/// What is written, and where to.
struct Target<'a> {
    file: NewFile<'a>,
    fields: &'a [&'static Spec],
    codec: CodecChoice,
    note: &'a Note,
}

/// What records have for themselves.
type Own = [Plane; OWN_DIGITS];

/// Empty lists for what records have for themselves.
fn own(keep: FieldSet) -> Own {
    let packets = FIELDS.iter().filter(|spec| !spec.is_of_flow());
    let width = |spec: &Spec| keep.contains(spec.field).then_some(spec.width);
    let mut widths = packets.flat_map(|spec| spec.own_digits().map(move |_| width(spec)));
    std::array::from_fn(|_| match widths.next().flatten() {
        Some(Width::Short) => Plane::Shorts(Vec::new()),
        Some(Width::Byte) => Plane::Bytes(Vec::new()),
        None => Plane::Unkept,
    })
}

/// A digit of each record.
#[derive(Debug)]
enum Plane {
    /// Of a field that is not kept: it stays empty.
    Unkept,
    Bytes(Vec<u8>),
    Shorts(Vec<u16>),
}

impl Plane {
    fn clear(&mut self) {
        match self {
            Self::Unkept => {}
            Self::Bytes(list) => list.clear(),
            Self::Shorts(list) => list.clear(),
        }
    }

    fn extend(&mut self, digits: &[u16]) {
        match self {
            Self::Unkept => {}
            Self::Bytes(list) => list.extend(digits.iter().map(|digit| digit.to_le_bytes()[0])),
            Self::Shorts(list) => list.extend_from_slice(digits),
        }
    }

    fn is_zero(&self) -> bool {
        match self {
            Self::Unkept => true,
            Self::Bytes(list) => list.iter().all(|&digit| digit == 0),
            Self::Shorts(list) => list.iter().all(|&digit| digit == 0),
        }
    }

    fn digits(&self) -> Digits<'_> {
        match self {
            Self::Unkept => Digits::Bytes(&[]),
            Self::Bytes(list) => Digits::Bytes(list),
            Self::Shorts(list) => Digits::Shorts(list),
        }
    }

    /// Appends each digit to a value.
    fn append_to(&self, values: &mut [u64]) {
        match self {
            Self::Unkept => {}
            Self::Bytes(list) => {
                values.iter_mut().zip(list).for_each(|(v, &d)| *v = *v << 8 | u64::from(d));
            }
            Self::Shorts(list) => {
                values.iter_mut().zip(list).for_each(|(v, &d)| *v = *v << 16 | u64::from(d));
            }
        }
    }

    /// Writes the digits of some records to a list of the same width.
    fn gather(&self, records: &[u32], target: &mut Self) {
        fn pick<T: Copy>(from: &[T], records: &[u32], to: &mut Vec<T>) {
            to.clear();
            to.extend(records.iter().map(|&record| from[record as usize]));
        }
        match (self, target) {
            (Self::Bytes(from), Self::Bytes(to)) => pick(from, records, to),
            (Self::Shorts(from), Self::Shorts(to)) => pick(from, records, to),
            // Both are made by `own`.
            (_, target) => target.clear(),
        }
    }
}

/// A segment has at most [`RECORDS_MAX`] rows.
fn rows32(rows: usize) -> u32 {
    u32::try_from(rows).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_threads_have_no_more_in_memory() {
        for threads in 1..=64 {
            let limits = Limits::new(RECORDS_MAX, threads);
            assert!(limits.records > 0 && limits.flows > 2 * BATCH, "{threads}");
            assert!(limits.records * threads <= SEGMENTS_AT_A_TIME * RECORDS_MAX, "{threads}");
            assert!(limits.flows * threads <= SEGMENTS_AT_A_TIME * FLOWS_MAX, "{threads}");
        }
        assert_eq!(Limits::new(300, 1).records, 300);
    }
}
