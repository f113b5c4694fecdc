//! From packets to the index file of a segment.

mod on_device;

use std::io::Read;
use std::ops::Range;
use std::path::Path;

use tapdex_bitmap::Codec;

use super::flows::{FlowTable, Flows, WideFlows};
use super::note::Note;
use super::{CodecChoice, Order};
use crate::beneath::Rights;
use crate::capture::{CaptureError, CaptureReader, Record};
use crate::error::IndexError;
use crate::fields::{self, FIELDS, Field, FieldSet, Narrow, OWN_DIGITS, Packet, Place, Spec, Wide};
use crate::index::{
    BuildError, Builder, ColumnIndex, ColumnSpec, CpuBuilder, Digits, IndexWriter, MARK_RECORDS,
    Mark, PieceSums, RunBuilder, Schema, Width,
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
    // Kept for the next segment.
    runs: RunBuilder,
    rows: CpuBuilder,
    column: ColumnIndex,
    digits: Vec<u16>,
    row_map: Vec<u32>,
    row_own: Own,
}

/// Packets whose flow is still to be looked up.
#[derive(Debug, Default)]
struct Pending {
    len: usize,
    keys: [Narrow; BATCH],
    hashes: [u64; BATCH],
    /// The wide parts of those that have one, and whose they are.
    wide: [(usize, Wide); BATCH],
    wide_len: usize,
    /// What the packets have for themselves, digit by digit.
    own: [[u16; BATCH]; OWN_DIGITS],
    mark: Mark,
}

impl SegmentBuilder {
    /// Keeps these fields of packets.
    pub(super) fn new(keep: FieldSet) -> Self {
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
            runs: RunBuilder::default(),
            rows: CpuBuilder::new(1),
            column: ColumnIndex::default(),
            digits: Vec::new(),
            row_map: Vec::new(),
            row_own: own(keep),
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
    }

    pub(super) fn records(&self) -> usize {
        self.flow_of.len() + self.pending.len
    }

    /// Whether the segment is to be closed before the next packet.
    pub(super) fn is_full(&self, limits: &Limits) -> bool {
        self.records() >= limits.records
            || self.flows.len() + BATCH > limits.flows
            || self.flows.wide.keys().len() >= limits.flows / 2
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
        let key = fields::narrow(&packet);
        pending.keys[at] = std::array::from_fn(|word| key[word] & self.mask[word]);
        if packet.headers.wide {
            pending.wide[pending.wide_len % BATCH] = (at, fields::wide(&packet));
            pending.wide_len += 1;
        }
        for (digits, digit) in pending.own.iter_mut().zip(fields::own(&packet)) {
            digits[at] = digit;
        }
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
        // First all reads from the tables, then the work on what was read.
        let mut seen = 0;
        let wide = &pending.wide[..std::mem::take(&mut pending.wide_len).min(BATCH)];
        for ((_, part), hash) in wide.iter().zip(&mut pending.hashes) {
            *hash = self.flows.wide.hash(part);
            seen |= self.flows.wide.peek(*hash);
        }
        std::hint::black_box(seen);
        for ((at, part), &hash) in wide.iter().zip(&pending.hashes) {
            self.flows.join(&mut pending.keys[*at], part, hash);
        }
        for (key, hash) in pending.keys[..len].iter().zip(&mut pending.hashes) {
            *hash = self.flows.narrow.hash(key);
            seen |= self.flows.narrow.peek(*hash);
        }
        std::hint::black_box(seen);
        let keys = pending.keys[..len].iter().zip(&pending.hashes);
        self.flow_of.extend(keys.map(|(key, &hash)| self.flows.count(key, hash)));
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
        let used: FieldSet = self.fields_used().iter().map(|spec| spec.field).collect();
        note.set_zero(self.keep.iter().filter(|&field| !used.contains(field)));
    }

    /// Writes the index of the packets; returns its size in bytes. If there is a device, it sorts
    /// and indexes rows in flow order.
    pub(super) fn write(
        &mut self,
        file: NewFile<'_>,
        order: Order,
        codec: CodecChoice,
        note: &Note,
        device: &SharedDevice<'_>,
    ) -> Result<u64, IndexError> {
        self.settle();
        let target = Target { file, fields: &self.fields_used(), codec, note };
        match order {
            Order::Flow => match self.write_on_device(&target, device) {
                Some(written) => written,
                None => self.write_by_flow(&target),
            },
            Order::Arrival => self.write_by_arrival(&target),
        }
    }

    /// The fields that are not 0 in all rows; the length class always.
    fn fields_used(&self) -> Vec<&'static Spec> {
        let (narrow, wide) = self.flows.bits_used();
        let is_used = |spec: &&Spec| {
            let mask = (1_u64 << spec.width.bits()) - 1;
            spec.field == Field::Length
                || spec.places().any(|place| match place {
                    Place::Narrow(word, shift) => narrow[word] >> shift & mask != 0,
                    Place::Wide(word, shift) => wide[word] >> shift & mask != 0,
                    Place::Packet(digit) => !self.own[digit].is_zero(),
                })
        };
        let kept = FIELDS.iter().filter(|spec| self.keep.contains(spec.field));
        kept.filter(is_used).collect()
    }

    fn write_by_flow(&mut self, target: &Target<'_>) -> Result<u64, IndexError> {
        let rows = rows32(self.records());
        let table = self.flows.sorted();
        // Where the rows of each flow start, by the flow's place in the order and by its number.
        let mut starts = Vec::with_capacity(table.order.len());
        let mut next = vec![0_u32; table.order.len()];
        let mut start = 0;
        for &flow in &table.order {
            starts.push(start);
            next[flow as usize] = start;
            start += self.flows.packets[flow as usize];
        }
        self.row_map.resize(self.records(), 0);
        for (record, &flow) in (0_u32..).zip(&self.flow_of) {
            let row = &mut next[flow as usize];
            self.row_map[*row as usize] = record;
            *row += 1;
        }
        let Self { runs, rows: by_row, column, digits, row_map, row_own, .. } = self;
        for (plane, target) in self.own.iter().zip(row_own.iter_mut()) {
            plane.gather(row_map, target);
        }
        let wide = table.wide_flows(&starts);
        let narrow = Sample::new(&starts, rows);
        let sample = FlowSample {
            flows: narrow.flows.clone(),
            narrow,
            table: &table,
            wide: Sample::new(&wide.starts, rows),
            wide_flows: &wide,
            own: row_own,
        };
        let schema = sample.schema(target, runs, digits)?;
        let mut writer = target.create(rows, schema.clone())?;
        for ((width, place), spec) in places(target.fields).zip(schema.columns()) {
            match place {
                Place::Packet(digit) => {
                    by_row.build(row_own[digit].digits(), spec.codec, column)?;
                }
                Place::Narrow(word, shift) => {
                    let flows = 0..table.order.len();
                    table.narrow_digits(flows, (word, shift), width, digits);
                    runs.build(digits, &starts, rows, spec.codec, column)?;
                }
                Place::Wide(word, shift) => {
                    table.wide_digits(&wide.numbers, (word, shift), width, digits);
                    runs.build(digits, &wide.starts, rows, spec.codec, column)?;
                }
            }
            writer.column(column)?;
        }
        writer.row_map(row_map)?;
        target.finish(writer, &self.marks, self.sums.as_ref())
    }

    fn write_by_arrival(&mut self, target: &Target<'_>) -> Result<u64, IndexError> {
        let rows = rows32(self.records());
        let Self { flows, runs, rows: by_row, column, digits: by_flow, flow_of, .. } = self;
        let table = flows.unsorted();
        let mut spread = Spread::default();
        let schema = schema(target, &mut |field, place| match place {
            Place::Packet(digit) => choose(runs, self.own[digit].first(SAMPLE_ROWS)),
            Place::Narrow(..) | Place::Wide(..) => {
                table.digits(place, field.width, by_flow);
                {
                    let digits = flow_of.iter().take(SAMPLE_ROWS);
                    choose(runs, digits.map(|&flow| by_flow[flow as usize]).collect())
                }
            }
        })?;
        let mut writer = target.create(rows, schema.clone())?;
        for ((width, place), spec) in places(target.fields).zip(schema.columns()) {
            let digits = match place {
                Place::Packet(digit) => self.own[digit].digits(),
                Place::Narrow(..) | Place::Wide(..) => {
                    table.digits(place, width, by_flow);
                    spread.fill(by_flow, flow_of, width)
                }
            };
            by_row.build(digits, spec.codec, column)?;
            writer.column(column)?;
        }
        target.finish(writer, &self.marks, self.sums.as_ref())
    }
}

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

impl<'a> Target<'a> {
    fn create(&self, rows: u32, schema: Schema) -> Result<IndexWriter<'a>, IndexError> {
        let NewFile { storage, path, rights } = self.file;
        IndexWriter::with_rights(storage, path, rows, schema, rights)
    }

    /// Writes what follows the columns.
    fn finish(
        &self,
        mut writer: IndexWriter<'_>,
        marks: &[Mark],
        sums: Option<&PieceSums>,
    ) -> Result<u64, IndexError> {
        writer.marks(marks)?;
        if let Some(sums) = sums {
            writer.sums(marks, sums)?;
        }
        writer.note(self.note.to_text().as_bytes())?;
        writer.finish()
    }
}

/// What records have for themselves.
type Own = [Plane; OWN_DIGITS];

/// Empty lists for what records have for themselves.
fn own(keep: FieldSet) -> Own {
    let packets = FIELDS.iter().filter(|spec| !spec.is_of_flow());
    let width = |spec: &Spec| keep.contains(spec.field).then_some(spec.width);
    let mut widths = packets.flat_map(|spec| spec.places().map(move |_| width(spec)));
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

    /// The first digits, `most` of them at most.
    fn first(&self, most: usize) -> Vec<u16> {
        match self {
            Self::Unkept => Vec::new(),
            Self::Bytes(list) => list.iter().take(most).map(|&digit| digit.into()).collect(),
            Self::Shorts(list) => list.iter().take(most).copied().collect(),
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

/// A digit for each row, from a digit for each flow.
#[derive(Default)]
struct Spread {
    bytes: Vec<u8>,
    shorts: Vec<u16>,
}

impl Spread {
    fn fill(&mut self, by_flow: &[u16], flow_of: &[u32], width: Width) -> Digits<'_> {
        let digits = flow_of.iter().map(|&flow| by_flow[flow as usize]);
        match width {
            Width::Byte => {
                self.bytes.clear();
                self.bytes.extend(digits.map(|digit| digit.to_le_bytes()[0]));
                Digits::Bytes(&self.bytes)
            }
            Width::Short => {
                self.shorts.clear();
                self.shorts.extend(digits);
                Digits::Shorts(&self.shorts)
            }
        }
    }
}

/// A segment has at most [`RECORDS_MAX`] rows.
fn rows32(rows: usize) -> u32 {
    u32::try_from(rows).unwrap_or(u32::MAX)
}

/// The columns of some fields.
fn places(fields: &[&'static Spec]) -> impl Iterator<Item = (Width, Place)> {
    fields.iter().flat_map(|spec| spec.places().map(|place| (spec.width, place)))
}

/// The schema of an index; `auto` chooses the codec of a column if none is fixed.
fn schema(
    target: &Target<'_>,
    auto: &mut dyn FnMut(&Spec, Place) -> Result<Codec, BuildError>,
) -> Result<Schema, BuildError> {
    let mut schema = Schema { fields: Vec::with_capacity(target.fields.len()) };
    for field in target.fields {
        let mut columns = Vec::with_capacity(field.digits as usize);
        for place in field.places() {
            let codec = match target.codec {
                CodecChoice::Fixed(codec) => codec,
                CodecChoice::Auto => auto(field, place)?,
            };
            columns.push(ColumnSpec { width: field.width, codec });
        }
        schema.fields.push(crate::index::Field { name: field.name.into(), columns });
    }
    Ok(schema)
}

/// Flows that are looked at to choose the codec of a column.
const SAMPLE_FLOWS: usize = 1 << 15;

/// The flows that are looked at: those in the middle of the order, which are the most typical.
struct Sample {
    flows: Range<usize>,
    /// Where their rows start, relative to the first row of the sample.
    starts: Vec<u32>,
    rows: u32,
}

impl Sample {
    fn new(starts: &[u32], rows: u32) -> Self {
        let first = starts.len().saturating_sub(SAMPLE_FLOWS) / 2;
        let end = starts.len().min(first + SAMPLE_FLOWS);
        let base = starts.get(first).copied().unwrap_or(0);
        let rows = starts.get(end).copied().unwrap_or(rows) - base;
        let starts = starts[first..end].iter().map(|start| start - base).collect();
        Self { flows: first..end, starts, rows }
    }
}

/// The sample that codecs are chosen by if rows are in flow order.
struct FlowSample<'a> {
    /// Has the flows that are looked at, and perhaps others; `flows` says where they are in it.
    table: &'a FlowTable,
    flows: Range<usize>,
    narrow: Sample,
    wide_flows: &'a WideFlows,
    wide: Sample,
    /// Of all rows, or of the first [`SAMPLE_ROWS`].
    own: &'a Own,
}

impl FlowSample<'_> {
    fn schema(
        &self,
        target: &Target<'_>,
        runs: &mut RunBuilder,
        digits: &mut Vec<u16>,
    ) -> Result<Schema, BuildError> {
        schema(target, &mut |field, place| match place {
            Place::Packet(digit) => choose(runs, self.own[digit].first(SAMPLE_ROWS)),
            Place::Narrow(word, shift) => {
                let flows = self.flows.clone();
                self.table.narrow_digits(flows, (word, shift), field.width, digits);
                runs.choose(digits, &self.narrow.starts, self.narrow.rows)
            }
            Place::Wide(word, shift) => {
                let numbers = &self.wide_flows.numbers[self.wide.flows.clone()];
                self.table.wide_digits(numbers, (word, shift), field.width, digits);
                runs.choose(digits, &self.wide.starts, self.wide.rows)
            }
        })
    }
}

/// Rows that are looked at to choose the codec of a column that is not made of runs.
const SAMPLE_ROWS: usize = 1 << 16;

/// The codec of a column, by its first rows.
fn choose(runs: &mut RunBuilder, digits: Vec<u16>) -> Result<Codec, BuildError> {
    let rows = rows32(digits.len());
    let starts: Vec<u32> = (0..rows).collect();
    runs.choose(&digits, &starts, rows)
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
