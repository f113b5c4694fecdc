//! From packets to the index file of a segment.
//!
//! Packets come in [chunks](chunk), each with the flows of its packets. When a segment has all its
//! chunks, their flows are sorted together, rows are put in the order of their flows, and columns
//! are encoded, several at a time if there are threads for that.

mod chunk;
mod from_columns;
mod on_device;
mod shortcut;

use std::borrow::Cow;
use std::io::Read;
use std::ops::RangeBounds;
use std::path::Path;
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use tapdex_bitmap::Codec;

use super::CodecChoice;
use super::device::{Kept, OwnDigits, PackedDigits, SegmentColumn, SortedColumn, SortedPackets};
use super::flows::{AllFlows, CHUNKS_MAX, Conversations, Values};
use super::ingest::{Step, Steps};
use super::note::Note;
use crate::beneath::Rights;
use crate::capture::{CaptureError, CaptureReader};
use crate::error::IndexError;
use crate::fields::{FIELDS, Field, FieldSet, Home, Narrow, OWN_DIGITS, Spec, Wide};
use crate::index::{
    ColumnIndex, CpuBuilder, Digits, Encoded, FlowIndexWriter, Mark, NewColumn, PieceSums, Sorted,
    Sorter, Space, Width,
};
use crate::lock;
use crate::parallel::Parallel;
use crate::storage::Publish;

pub(super) use chunk::{CHUNK_RECORDS_MAX, Chunk, Decoder, Places};
pub use on_device::DeviceReport;
pub(super) use on_device::SharedDevice;

/// Records of a segment: few enough that a segment is built in little memory, many enough that a
/// search opens few files.
pub(super) const RECORDS_MAX: usize = 1 << 22;
/// Flows of the chunks of a segment, those that several chunks have counted as often.
const FLOWS_MAX: usize = 1 << 21;

/// How much fits into a segment. What does not depends on the packets alone, not on who builds the
/// segment.
#[derive(Debug, Clone, Copy)]
pub(super) struct Room {
    records: usize,
    flows: usize,
    chunks: usize,
}

impl Room {
    /// An empty segment, for so many records at most.
    pub(super) fn new(records: usize) -> Self {
        Self { records: records.min(RECORDS_MAX), flows: FLOWS_MAX, chunks: CHUNKS_MAX }
    }

    /// Takes the room for a chunk; returns whether there was enough.
    pub(super) fn take(&mut self, chunk: &Chunk) -> bool {
        let left = |room: usize, needed: usize| room.checked_sub(needed);
        let records = left(self.records, chunk.records());
        let flows = left(self.flows, chunk.flows());
        let (Some(records), Some(flows), Some(chunks)) = (records, flows, left(self.chunks, 1))
        else {
            return false;
        };
        *self = Self { records, flows, chunks };
        true
    }
}

/// Writes the index of a segment, from its chunks.
#[derive(Debug)]
pub(super) struct SegmentBuilder {
    chunks: Vec<Chunk>,
    /// The fields that are kept.
    keep: FieldSet,
    /// Where the bytes before the first chunk start, and their checksum.
    head: (u64, u32),
    /// Marks and checksums, if they do not come from the chunks.
    places: Option<(Vec<Mark>, Option<PieceSums>)>,
    /// The packets in their order, if a device has sorted them.
    sorted: Option<SortedPackets>,
    /// Memory for those of the next segment.
    spare_sorted: SortedPackets,
    /// Whether the lengths of the packets are known, not only their classes.
    has_lengths: bool,
    // Kept for the next segment.
    conversations: Conversations,
    row_map: Vec<u32>,
    row_own: Own,
    scratch: Arc<Spare<Scratch>>,
    places_spare: Arc<Spare<Places>>,
}

/// Room that the encoding of a column takes.
#[derive(Debug, Default)]
pub(super) struct Scratch {
    builder: Option<CpuBuilder>,
    column: ColumnIndex,
    sorter: Sorter,
    values: Values,
    sorted: Sorted,
}

impl SegmentBuilder {
    /// Keeps these fields of packets.
    pub(super) fn new(keep: FieldSet) -> Self {
        Self::with_scratch(keep, Arc::default())
    }

    /// The same, with room that builders share: how much there is depends on how many threads
    /// encode columns at a time, not on how many builders there are.
    pub(super) fn with_scratch(keep: FieldSet, scratch: Arc<Spare<Scratch>>) -> Self {
        let keep = with_both_ends(keep);
        Self {
            chunks: Vec::new(),
            keep,
            head: (0, 0),
            places: None,
            sorted: None,
            spare_sorted: SortedPackets::default(),
            has_lengths: true,
            conversations: Conversations::default(),
            row_map: Vec::new(),
            row_own: own(keep),
            scratch,
            places_spare: Arc::default(),
        }
    }

    /// Starts with the packets of these chunks, which follow each other; returns those of the
    /// segment before, whose memory can be used again. `head` says where the bytes before the first
    /// chunk start, and has their checksum.
    pub(super) fn start(&mut self, chunks: Vec<Chunk>, head: (u64, u32)) -> Vec<Chunk> {
        self.places = None;
        self.sorted = None;
        self.has_lengths = true;
        self.head = head;
        std::mem::replace(&mut self.chunks, chunks)
    }

    /// Memory for packets that a device sorts.
    pub(super) fn sorted_room(&mut self) -> SortedPackets {
        std::mem::take(&mut self.spare_sorted)
    }

    /// The packets of the chunks, as a device has sorted them.
    pub(super) fn take_sorted(&mut self, sorted: SortedPackets) {
        self.sorted = Some(sorted);
    }

    /// Starts with what a reader has from where it is, as much as fits. Returns what is wrong with
    /// the capture, if it ends for that reason.
    pub(super) fn read<R: Read>(
        &mut self,
        reader: &mut CaptureReader<R>,
        records_max: usize,
    ) -> Result<Ended, CaptureError> {
        let mut room = Room::new(records_max);
        let mut used = self.start(Vec::new(), (reader.position(), 0));
        let mut decoder = Decoder::new(self.keep, &self.places_spare);
        let mut records = 0;
        loop {
            // All of it fits, even if each packet is a flow of its own, with a wide part.
            let most = CHUNK_RECORDS_MAX.min(room.records).min(room.flows / 2);
            if most == 0 || room.chunks == 0 {
                return Ok(Ended::Full);
            }
            let mut chunk = used.pop().unwrap_or_else(|| Chunk::new(self.keep));
            chunk.start(&mut decoder, reader, false);
            let ended = chunk.read(&mut decoder, reader, most, u64::MAX)?;
            chunk.finish(&mut decoder, reader);
            chunk.mark(records);
            records += chunk.records();
            let is_full = room.take(&chunk) && matches!(ended, Ended::Full);
            self.chunks.push(chunk);
            if !is_full {
                return Ok(ended);
            }
        }
    }

    pub(super) fn records(&self) -> usize {
        self.chunks.iter().map(Chunk::records).sum()
    }

    /// Fills in the figures of the note that are about the packets, but for the number of flows,
    /// which is known when the index is written.
    pub(super) fn describe(&self, note: &mut Note) {
        let sum = |of: fn(&Chunk) -> u64| self.chunks.iter().map(of).sum();
        note.records = self.records() as u64;
        note.wire_bytes = sum(|chunk| chunk.wire_bytes);
        note.captured_bytes = sum(|chunk| chunk.captured_bytes);
        note.odd = sum(Chunk::odd_packets);
        let times = || self.chunks.iter().filter_map(Chunk::times);
        note.time_min = times().map(|(first, _)| first).min().unwrap_or(0);
        note.time_max = times().map(|(_, last)| last).max().unwrap_or(0);
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
    /// and indexes the rows. The note gets the number of flows.
    pub(super) fn write(
        &mut self,
        file: NewFile<'_>,
        codec: CodecChoice,
        note: &mut Note,
        With { device, parallel, steps }: With<'_>,
    ) -> Result<u64, IndexError> {
        let fields = &self.fields_used();
        let mut target = Target { file, fields, codec, note, parallel, steps };
        if let Some(sorted) = self.sorted.take() {
            return self.write_sorted(&mut target, sorted);
        }
        match self.write_on_device(&mut target, device) {
            Some(written) => written,
            None => self.write_on_cpu(&mut target),
        }
    }

    fn fields_used(&self) -> Vec<&'static Spec> {
        fields_used(&self.chunks, self.keep)
    }

    /// Writes the index: sorts flows, puts the rows in their order, and writes columns.
    fn write_on_cpu(&mut self, target: &mut Target<'_>) -> Result<u64, IndexError> {
        let start = Instant::now();
        let mut conversations = std::mem::take(&mut self.conversations);
        let mut scratch = self.scratch.take();
        let flows =
            AllFlows::new(self.chunks.iter().map(|chunk| &chunk.flows), &mut scratch.sorter);
        flows.sort(&mut scratch.sorter, &mut conversations);
        self.scratch.put(scratch);
        let firsts = flows.into_firsts();
        let (records, own) = self.put_rows(&conversations, &firsts, target.parallel);
        target.steps.add(Step::Sort, start.elapsed());
        let rows = SortedRows::new(&conversations, &records, &own);
        let written = self.write_rows(target, rows, None::<&mut BuildElsewhere<'_, IndexError>>);
        (self.row_map, self.row_own, self.conversations) = (records, own, conversations);
        written
    }

    /// The records, and what they have for themselves, in the order of their flows.
    fn put_rows(
        &mut self,
        conversations: &Conversations,
        firsts: &[u32],
        parallel: Parallel<'_>,
    ) -> (Vec<u32>, Own) {
        let count = self.records();
        let mut records = std::mem::take(&mut self.row_map);
        records.resize(count, 0);
        let records = atomic(records, AtomicU32::new);
        let own = self.row_own.each_mut().map(|plane| plane.cells(count));
        let mut before = 0;
        let befores = self.chunks.iter().map(|chunk| {
            let after = before + rows32(chunk.records());
            std::mem::replace(&mut before, after)
        });
        let chunks: Vec<_> = self.chunks.iter().zip(befores).zip(firsts).collect();
        parallel.map(chunks, |((chunk, before), &first)| {
            // Flows of other chunks have other rows.
            let flows = first as usize..first as usize + chunk.flows.len();
            let mut next = conversations.first_rows[flows].to_vec();
            let row_of = |&flow: &u32| {
                let row = &mut next[flow as usize];
                *row += 1;
                *row - 1
            };
            let rows: Vec<u32> = chunk.flow_of.iter().map(row_of).collect();
            for (record, &row) in (before..).zip(&rows) {
                records[row as usize].store(record, Relaxed);
            }
            chunk.own.iter().zip(&own).for_each(|(plane, cells)| cells.put(plane, &rows));
        });
        (atomic(records, AtomicU32::into_inner), own.map(Cells::into_plane))
    }

    /// Writes the index of a segment whose rows are in order. `built_elsewhere` builds the bitmaps
    /// of a column and passes them on, or returns false if they are to be built here.
    fn write_rows<E: From<IndexError> + Send>(
        &self,
        target: &mut Target<'_>,
        rows: SortedRows<'_>,
        built_elsewhere: Option<&mut BuildElsewhere<'_, E>>,
    ) -> Result<u64, E> {
        let start = Instant::now();
        let NewFile { storage, path, rights } = target.file;
        let shape = (rows.count, rows32(rows.conversations.packets.len() / 2));
        target.note.flows = rows.conversations.flows;
        let mut writer = FlowIndexWriter::create(storage, path, rights, shape)?;
        let (marks, sums) = match &self.places {
            Some((marks, sums)) => (Cow::Borrowed(marks), sums.clone()),
            None => {
                let (marks, sums) = chunk::join(&self.chunks, self.head);
                (Cow::Owned(marks), sums)
            }
        };
        let note = target.note.to_text();
        let mut sections = vec![Section::Flows];
        sections.extend(self.has_lengths.then_some(Section::Volumes));
        sections.extend(target.fields.iter().copied().map(Section::Column));
        sections.extend([Section::RowMap, Section::Marks]);
        sections.extend(sums.as_ref().map(Section::Sums));
        sections.push(Section::Note(&note));
        if let Some(built_elsewhere) = built_elsewhere {
            for section in sections {
                let encoded = self.encode(target, rows, &marks, section, built_elsewhere)?;
                writer.write(encoded)?;
            }
            return Ok(writer.finish()?);
        }
        let (shared, marks) = (&*target, &*marks);
        let encoded = target.parallel.map(sections, |section| {
            self.encode(shared, rows, marks, section, &mut |_, _, _| Ok::<_, IndexError>(None))
        });
        target.steps.add(Step::Encode, start.elapsed());
        target.steps.time(Step::Write, || {
            for section in encoded {
                writer.write(section?)?;
            }
            Ok(writer.finish()?)
        })
    }

    /// A section of the index.
    fn encode<E: From<IndexError>>(
        &self,
        target: &Target<'_>,
        rows: SortedRows<'_>,
        marks: &[Mark],
        section: Section<'_>,
        built_elsewhere: &mut BuildElsewhere<'_, E>,
    ) -> Result<Encoded, E> {
        let SortedRows { conversations, count, map, .. } = rows;
        Ok(match section {
            Section::Flows => Encoded::flows(&conversations.packets),
            Section::Volumes => Encoded::volumes(&conversations.excess),
            Section::Column(spec) => {
                let mut scratch = self.scratch.take();
                let encoded =
                    encode_column(spec, target.codec, rows, &mut scratch, built_elsewhere);
                self.scratch.put(scratch);
                encoded?
            }
            Section::RowMap => match map {
                RowMap::Records(records) => {
                    Encoded::row_map(records, &conversations.starts, target.parallel)?
                }
                RowMap::Encoded(bytes) => Encoded::encoded_row_map(bytes.to_vec()),
            },
            Section::Marks => Encoded::marks(count, marks)?,
            Section::Sums(sums) => Encoded::sums(marks, sums)?,
            Section::Note(note) => Encoded::note(note.as_bytes())?,
        })
    }
}

/// A section that is to be encoded.
#[derive(Clone, Copy)]
enum Section<'s> {
    Flows,
    Volumes,
    Column(&'static Spec),
    RowMap,
    Marks,
    Sums(&'s PieceSums),
    Note(&'s str),
}

/// The column of a field, and of its other end if it has one.
fn encode_column<E: From<IndexError>>(
    spec: &'static Spec,
    codec: CodecChoice,
    rows: SortedRows<'_>,
    scratch: &mut Scratch,
    built_elsewhere: &mut BuildElsewhere<'_, E>,
) -> Result<Encoded, E> {
    let SortedRows { conversations, columns, count, own, .. } = rows;
    let codec = match codec {
        CodecChoice::Fixed(codec) => Some(codec),
        CodecChoice::Auto => None,
    };
    let width = spec.bits().div_ceil(8) as usize;
    let other = spec.other_end().map(|other| other.name);
    let names: Vec<&str> = [Some(spec.name), other].into_iter().flatten().collect();
    let new = |space| NewColumn { space, width, names: &names };
    let own_digits = spec.own_digits();
    let Scratch { builder, column, sorter, values, sorted } = scratch;
    let space = match (spec.is_of_flow(), spec.other_end()) {
        (false, _) => Space::Packets,
        (true, Some(_)) => Space::Ends,
        (true, None) => Space::Conversations,
    };
    if let Some((_, column)) = columns.iter().find(|column| column.0 == spec.field) {
        let packed_len = usize::try_from(column.packed_bytes).ok();
        return Ok(Encoded::column(new(space), &column.sorted, codec, packed_len));
    }
    if own_digits.len() == 1 {
        let (new, digit) = (new(Space::Packets), own_digits.start);
        if let Some(codec) = codec {
            let built = built_elsewhere(SegmentColumn::Own(digit), codec, &|index| {
                let values: Vec<u128> = index.keys.iter().map(|&key| key.into()).collect();
                Encoded::built_packets(new, &values, index, count)
            })?;
            if let Some(encoded) = built {
                return Ok(encoded);
            }
        }
        let digits = match own[digit] {
            RowDigits::Plain(digits) => digits,
            RowDigits::Packed(PackedDigits { values, bytes }) => {
                let values: Vec<u128> = values.iter().map(|&value| value.into()).collect();
                return Ok(Encoded::packed_packets(new, &values, bytes.clone()));
            }
        };
        let builder = builder.get_or_insert_with(|| CpuBuilder::new(1));
        return Ok(Encoded::packets(new, digits, codec, (builder, column))?);
    }
    let ends = [Some(spec), spec.other_end()];
    let conversations_len = conversations.packets.len() / 2;
    let entries = match spec.is_of_flow() {
        true => ends.iter().flatten().count() * conversations_len,
        false => count as usize,
    };
    values.start(spec, entries);
    match spec.is_of_flow() {
        false => {
            values.long.resize(entries, 0);
            for digit in own_digits {
                if let RowDigits::Plain(digits) = own[digit] {
                    append_to(&mut values.long, digits);
                }
            }
        }
        true => {
            for spec in ends.into_iter().flatten() {
                conversations.values(spec, values);
            }
        }
    }
    values.sort(sorter, sorted);
    if let (Some(codec), Some(ids)) = (codec, codec.and_then(|_| sorted.short_ids())) {
        let built = built_elsewhere(SegmentColumn::Entries(&ids), codec, &|index| {
            Encoded::built(new(space), sorted, index)
        })?;
        if let Some(encoded) = built {
            return Ok(encoded);
        }
    }
    Ok(Encoded::column(new(space), sorted, codec, None))
}

/// The columns of chunks that are not 0 in all entries; the length class always. A column of both
/// ends is named by the field of the source.
fn fields_used(chunks: &[Chunk], keep: FieldSet) -> Vec<&'static Spec> {
    let (mut narrow, mut wide) = (Narrow::default(), Wide::default());
    for chunk in chunks {
        let (bits, wide_bits) = chunk.bits_used();
        narrow.iter_mut().zip(bits).for_each(|(all, bits)| *all |= bits);
        wide.iter_mut().zip(wide_bits).for_each(|(all, bits)| *all |= bits);
    }
    let is_in_packets = |digit: usize| chunks.iter().any(|chunk| !chunk.is_zero(digit));
    let is_used = |spec: &Spec| {
        spec.field == Field::Length
            || match spec.home {
                Home::Narrow(..) => spec.home_masks().any(|(word, bits)| narrow[word] & bits != 0),
                Home::Wide(..) => spec.home_masks().any(|(word, bits)| wide[word] & bits != 0),
                Home::Packet => spec.own_digits().any(is_in_packets),
            }
    };
    let kept = FIELDS.iter().filter(|spec| keep.contains(spec.field));
    let columns = kept.filter(|spec| !spec.is_second_end());
    columns.filter(|spec| is_used(spec) || spec.other_end().is_some_and(is_used)).collect()
}

/// The fields to keep if these are wanted: both ends of a field, or neither, because which is the
/// source depends on the packet.
fn with_both_ends(keep: FieldSet) -> FieldSet {
    let has_end = |spec: &&Spec| {
        spec.other_end().is_some_and(|other| keep.contains(other.field))
            || FIELDS.iter().any(|first| {
                keep.contains(first.field)
                    && first.other_end().is_some_and(|other| other.field == spec.field)
            })
    };
    let ends = FIELDS.iter().filter(has_end).map(|spec| spec.field);
    keep.iter().chain(ends).collect()
}

/// What is kept of packets if these fields are.
pub(super) fn kept(keep: FieldSet) -> Kept {
    Kept::of(with_both_ends(keep))
}

/// Why no packets follow those that were read.
#[derive(Debug)]
pub(super) enum Ended {
    /// There may be more, but no more were wanted.
    Full,
    /// The capture has no more.
    Capture,
    /// The capture is damaged.
    Damage(CaptureError),
}

/// Things that are used again.
#[derive(Debug, Default)]
pub(super) struct Spare<T>(Mutex<Vec<T>>);

impl<T: Default> Spare<T> {
    /// One that was used before, or a new one.
    pub(super) fn take(&self) -> T {
        lock(&self.0).pop().unwrap_or_default()
    }

    pub(super) fn put(&self, used: T) {
        lock(&self.0).push(used);
    }
}

/// The rows of a segment in their order.
#[derive(Clone, Copy)]
struct SortedRows<'a> {
    conversations: &'a Conversations,
    /// The columns of flows that are sorted, if not all are still to be sorted.
    columns: &'a [(Field, &'a SortedColumn)],
    count: u32,
    map: RowMap<'a>,
    /// What the record of each row has for itself, digit by digit.
    own: [RowDigits<'a>; OWN_DIGITS],
}

/// Which record each row is.
#[derive(Clone, Copy)]
enum RowMap<'a> {
    Records(&'a [u32]),
    /// As the index has it.
    Encoded(&'a [u8]),
}

/// A digit of each row.
#[derive(Clone, Copy)]
enum RowDigits<'a> {
    Plain(Digits<'a>),
    /// As the index has it: a column of its own.
    Packed(&'a PackedDigits),
}

impl<'a> RowDigits<'a> {
    /// As a device has returned them.
    fn of(digits: &'a OwnDigits) -> Self {
        match digits {
            OwnDigits::Bytes(digits) => Self::Plain(Digits::Bytes(digits)),
            OwnDigits::Shorts(digits) => Self::Plain(Digits::Shorts(digits)),
            OwnDigits::Packed(packed) => Self::Packed(packed),
        }
    }
}

impl<'a> SortedRows<'a> {
    fn new(conversations: &'a Conversations, records: &'a [u32], own: &'a Own) -> Self {
        let (count, map) = (rows32(records.len()), RowMap::Records(records));
        let own = own.each_ref().map(|plane| RowDigits::Plain(plane.digits()));
        Self { conversations, columns: &[], count, map, own }
    }
}

/// Makes a section of the index of a column.
type Encode<'t> = dyn Fn(&ColumnIndex) -> Result<Encoded, IndexError> + 't;
/// Builds a column in a codec and has it encoded; `None` if it cannot.
type BuildElsewhere<'b, E> =
    dyn FnMut(SegmentColumn<'_>, Codec, &Encode<'_>) -> Result<Option<Encoded>, E> + 'b;

/// Where an index is written, and who may read it.
#[derive(Debug, Clone, Copy)]
pub(super) struct NewFile<'a> {
    pub(super) storage: &'a dyn Publish,
    pub(super) path: &'a Path,
    pub(super) rights: Rights,
}

/// What helps to write an index.
#[derive(Clone, Copy)]
pub(super) struct With<'a> {
    pub(super) device: &'a SharedDevice<'a>,
    pub(super) parallel: Parallel<'a>,
    /// Who counts the time that it takes.
    pub(super) steps: &'a Steps,
}

/// What is written, and where to.
struct Target<'a> {
    file: NewFile<'a>,
    fields: &'a [&'static Spec],
    codec: CodecChoice,
    note: &'a mut Note,
    parallel: Parallel<'a>,
    steps: &'a Steps,
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

    /// Makes room for so many digits.
    fn reserve(&mut self, records: usize) {
        match self {
            Self::Unkept => {}
            Self::Bytes(list) => list.reserve(records),
            Self::Shorts(list) => list.reserve(records),
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

    /// Appends the digits of some of the records of another list.
    fn extend_from(&mut self, all: &Self, records: impl RangeBounds<usize>) {
        let records = (records.start_bound().cloned(), records.end_bound().cloned());
        match (self, all) {
            (Self::Bytes(list), Self::Bytes(all)) => list.extend_from_slice(&all[records]),
            (Self::Shorts(list), Self::Shorts(all)) => list.extend_from_slice(&all[records]),
            // All are made by `own`.
            _ => {}
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

    /// Its memory, with room for so many digits that several threads write.
    fn cells(&mut self, count: usize) -> Cells {
        fn of<T: Copy + Default, A>(list: &mut Vec<T>, count: usize, new: fn(T) -> A) -> Vec<A> {
            let mut list = std::mem::take(list);
            list.resize(count, T::default());
            atomic(list, new)
        }
        match self {
            Self::Unkept => Cells::Unkept,
            Self::Bytes(list) => Cells::Bytes(of(list, count, AtomicU8::new)),
            Self::Shorts(list) => Cells::Shorts(of(list, count, AtomicU16::new)),
        }
    }
}

/// Appends a digit to each value.
fn append_to(values: &mut [u64], digits: Digits<'_>) {
    match digits {
        Digits::Bytes(list) => {
            values.iter_mut().zip(list).for_each(|(v, &d)| *v = *v << 8 | u64::from(d));
        }
        Digits::Shorts(list) => {
            values.iter_mut().zip(list).for_each(|(v, &d)| *v = *v << 16 | u64::from(d));
        }
    }
}

/// A plane that several threads write, each other digits of it.
enum Cells {
    Unkept,
    Bytes(Vec<AtomicU8>),
    Shorts(Vec<AtomicU16>),
}

impl Cells {
    /// Writes digits to these rows.
    fn put(&self, digits: &Plane, rows: &[u32]) {
        match (self, digits) {
            (Self::Bytes(cells), Plane::Bytes(digits)) => {
                let pairs = rows.iter().zip(digits);
                pairs.for_each(|(&row, &digit)| cells[row as usize].store(digit, Relaxed));
            }
            (Self::Shorts(cells), Plane::Shorts(digits)) => {
                let pairs = rows.iter().zip(digits);
                pairs.for_each(|(&row, &digit)| cells[row as usize].store(digit, Relaxed));
            }
            // All are made by `own`.
            _ => {}
        }
    }

    fn into_plane(self) -> Plane {
        match self {
            Self::Unkept => Plane::Unkept,
            Self::Bytes(cells) => Plane::Bytes(atomic(cells, AtomicU8::into_inner)),
            Self::Shorts(cells) => Plane::Shorts(atomic(cells, AtomicU16::into_inner)),
        }
    }
}

/// The same numbers, of an atomic type or of a plain one. That takes no memory: both have the same
/// size.
fn atomic<A, B>(list: Vec<A>, new: fn(A) -> B) -> Vec<B> {
    list.into_iter().map(new).collect()
}

/// A segment has at most [`RECORDS_MAX`] rows.
fn rows32(rows: usize) -> u32 {
    u32::try_from(rows).unwrap_or(u32::MAX)
}
