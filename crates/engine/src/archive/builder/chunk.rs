//! Packets that follow each other: decoded, and their flows found, apart from all others.
//!
//! A chunk depends only on its packets, so threads make the chunks of a capture at the same time.
//! Where its packets lie in the segment is known when all packets before are read. Until then, a
//! chunk keeps when each was captured and where it starts; then it [marks](Chunk::mark) every 32nd
//! of the segment, and gives that memory to chunks to come. [`join`] puts the marks together.

use std::io::Read;
use std::ops::Range;
use std::sync::Arc;

use super::shortcut::{Shortcut, Usual};
use super::{Ended, Own, Plane, Spare, own};
use crate::archive::device::{
    ChunkFigures, DeviceChunk, Frames, Kept, PacketDevice, PacketKey, SegmentFailed,
};
use crate::archive::flows::{CHUNK_FLOWS_MAX, Flows};
use crate::capture::{CaptureError, CaptureReader, Record};
use crate::fields::{self, FieldSet, Narrow, OWN_DIGITS, Packet, Wide};
use crate::index::{MARK_RECORDS, Mark, PieceSums};
use crate::packet::{self, Headers, LinkType};

/// Packets whose flows are looked up together, so that their memory reads overlap.
const BATCH: usize = 32;

/// The most packets of a chunk: few enough that their flows stay in the cache, and that each has a
/// number even if no two are alike.
pub(in crate::archive) const CHUNK_RECORDS_MAX: usize = CHUNK_FLOWS_MAX;

/// Packets that follow each other.
#[derive(Debug)]
pub(in crate::archive) struct Chunk {
    pub(super) flows: Flows,
    /// The flow of each record.
    pub(super) flow_of: Vec<u32>,
    /// What records have for themselves.
    pub(super) own: Own,
    records: usize,
    /// Where records are, until they are marked.
    places: Places,
    /// Lists of places that nobody uses.
    spare: Arc<Spare<Places>>,
    marks: ChunkMarks,
    base: u64,
    end: u64,
    pub(super) wire_bytes: u64,
    pub(super) captured_bytes: u64,
    /// Its packets, if a device has them: then there are no flows here.
    on_device: Option<OnDevice>,
}

/// Where in the capture records are.
#[derive(Debug, Default)]
pub(in crate::archive) struct Places {
    each: Vec<Place>,
    /// Checksums of the bytes from the start of the chunk to each record, and to its end, if there
    /// are to be any.
    sums: Option<Vec<u32>>,
}

/// Where a record starts, and when it was captured.
#[derive(Debug, Clone, Copy)]
struct Place {
    offset: u64,
    time: u64,
}

/// The earliest and the latest time of some records.
fn time_range(places: &[Place]) -> Option<(u64, u64)> {
    let first = places.first()?.time;
    let widen =
        |(least, most): (u64, u64), place: &Place| (least.min(place.time), most.max(place.time));
    Some(places.iter().fold((first, first), widen))
}

/// The marks of a chunk whose place in its segment is known.
#[derive(Debug, Default, PartialEq, Eq)]
struct ChunkMarks {
    /// The times of the records that belong to the last mark before the chunk.
    head: Option<(u64, u64)>,
    marks: Vec<Mark>,
    /// The checksums up to each mark, and to the end.
    sums: Option<Vec<u32>>,
}

/// What a thread needs to make chunks, one after the other.
#[derive(Debug)]
pub(in crate::archive) struct Decoder {
    mask: Narrow,
    shortcut: Shortcut,
    /// Packets whose flow is still to be looked up.
    pending: Pending,
    headers: Headers,
    /// Only what belongs to single packets is ever set here.
    usual_headers: Headers,
    /// The records of the last chunk, its flows and their wide parts: the next one probably has
    /// about as many.
    expected: [usize; 3],
    spare: Arc<Spare<Places>>,
}

impl Decoder {
    /// For chunks that keep these fields of packets, and use memory that others have used.
    pub(in crate::archive) fn new(keep: FieldSet, spare: &Arc<Spare<Places>>) -> Self {
        let keep = super::with_both_ends(keep);
        Self {
            mask: fields::mask(keep),
            shortcut: Shortcut::new(keep),
            pending: Pending::default(),
            headers: Headers::default(),
            usual_headers: Headers::default(),
            expected: [0; 3],
            spare: Arc::clone(spare),
        }
    }

    /// Another chunk starts.
    fn start(&mut self) {
        self.shortcut.clear();
        (self.pending.len, self.pending.wide_len, self.pending.is_usual) = (0, 0, 0);
    }
}

/// A chunk whose packets are on a device.
#[derive(Debug)]
struct OnDevice {
    device: Arc<dyn PacketDevice>,
    chunk: Box<dyn DeviceChunk>,
    figures: ChunkFigures,
    /// The frames that were not sent yet.
    frames: Option<Frames>,
    /// The first failure; there is no use for the chunk then.
    failed: Option<SegmentFailed>,
}

impl OnDevice {
    /// Sends the frames that are here; `more` will follow. Returns whether that went well.
    fn send(&mut self, more: bool) -> bool {
        let Some(frames) = self.frames.take() else { return false };
        let send = || -> Result<(), SegmentFailed> {
            if !frames.is_empty() {
                self.chunk.add(frames)?;
            }
            if more {
                self.frames = Some(self.device.frames()?);
            }
            Ok(())
        };
        self.failed = send().err();
        self.failed.is_none()
    }
}

/// Packets whose flow is still to be looked up.
#[derive(Debug)]
struct Pending {
    len: usize,
    /// Which of them are of the usual kind, and what these are looked up by.
    is_usual: u32,
    usual: [Usual; BATCH],
    interfaces: [u32; BATCH],

    keys: [Narrow; BATCH],
    hashes: [u64; BATCH],
    /// The wide parts of those that have one, with their hashes, and whose they are.
    wide: [(usize, Wide, u64); BATCH],
    wide_len: usize,
    /// What the packets have for themselves, digit by digit.
    own: [[u16; BATCH]; OWN_DIGITS],
    /// What their lengths are above the least of their classes.
    excess: [u32; BATCH],
}

impl Default for Pending {
    fn default() -> Self {
        Self {
            len: 0,
            is_usual: 0,
            usual: [Usual::default(); BATCH],
            interfaces: [0; BATCH],
            keys: [Narrow::default(); BATCH],
            hashes: [0; BATCH],
            wide: [(0, Wide::default(), 0); BATCH],
            wide_len: 0,
            own: [[0; BATCH]; OWN_DIGITS],
            excess: [0; BATCH],
        }
    }
}

impl Pending {
    /// Takes in what a packet has for itself.
    #[inline(always)]
    fn own_of(&mut self, at: usize, packet: &Packet<'_>) {
        for (digits, digit) in self.own.iter_mut().zip(fields::own(packet)) {
            digits[at] = digit;
        }
    }

    /// Takes in the key of a packet's flow, and fetches what it is looked up in.
    #[inline(always)]
    fn key_of(&mut self, at: usize, packet: &Packet<'_>, flows: &mut Flows, mask: &Narrow) {
        if packet.headers.wide {
            let (mut key, mut wide) = (fields::narrow(packet), fields::wide(packet));
            fields::order_ends(&mut key, Some(&mut wide));
            self.keys[at] = masked(&key, mask);
            // A wide part that is 0 is none: flows are what their fields are.
            if wide != Wide::default() {
                let hash = flows.wide.hash(&wide);
                flows.wide.prefetch_slot(hash);
                self.wide[self.wide_len % BATCH] = (at, wide, hash);
                self.wide_len += 1;
                return;
            }
        } else {
            self.keys[at] = narrow_key(packet, mask);
        }
        self.hashes[at] = flows.narrow.hash(&self.keys[at]);
        flows.narrow.prefetch_slot(self.hashes[at]);
    }
}

/// The key of the flow of a packet that has no wide part.
#[inline(always)]
fn narrow_key(packet: &Packet<'_>, mask: &Narrow) -> Narrow {
    let mut key = fields::narrow(packet);
    fields::order_ends(&mut key, None);
    masked(&key, mask)
}

/// The places of the bits that are set.
#[inline(always)]
fn bits(mut left: u32) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let place = left.trailing_zeros() as usize;
        // Without the lowest bit.
        left &= left.checked_sub(1)?;
        Some(place)
    })
}

#[inline(always)]
fn masked(key: &Narrow, mask: &Narrow) -> Narrow {
    std::array::from_fn(|word| key[word] & mask[word])
}

impl Chunk {
    /// An empty chunk that keeps these fields of packets.
    pub(in crate::archive) fn new(keep: FieldSet) -> Self {
        let keep = super::with_both_ends(keep);
        Self {
            flows: Flows::new(),
            flow_of: Vec::new(),
            own: own(keep),
            records: 0,
            places: Places::default(),
            spare: Arc::default(),
            marks: ChunkMarks::default(),
            base: 0,
            end: 0,
            wire_bytes: 0,
            captured_bytes: 0,
            on_device: None,
        }
    }

    /// Forgets the packets, and keeps the memory. The next packets come from a reader that is
    /// where the chunk starts.
    pub(in crate::archive) fn start<R: Read>(
        &mut self,
        decoder: &mut Decoder,
        reader: &mut CaptureReader<R>,
        with_sums: bool,
    ) {
        decoder.start();
        self.flows.clear();
        self.flow_of.clear();
        self.own.iter_mut().for_each(Plane::clear);
        self.records = 0;
        self.spare = Arc::clone(&decoder.spare);
        if self.places.each.capacity() == 0 {
            self.places = self.spare.take();
        }
        self.places.each.clear();
        self.places.sums = with_sums.then(|| self.places.sums.take().unwrap_or_default());
        self.places.sums.iter_mut().for_each(Vec::clear);
        self.reserve(decoder.expected);
        self.marks = ChunkMarks::default();
        (self.wire_bytes, self.captured_bytes) = (0, 0);
        self.on_device = None;
        self.base = reader.position();
        self.end = self.base;
        if with_sums {
            reader.start_sum(self.base);
        }
    }

    /// Makes room for about so many records, flows and wide parts: lists that grow bit by bit are
    /// copied, and leave memory behind that was used once.
    fn reserve(&mut self, expected: [usize; 3]) {
        let [records, flows, wide] = expected.map(|count| count + count / 4);
        self.flows.reserve(flows, wide);
        self.flow_of.reserve(records);
        self.own.iter_mut().for_each(|plane| plane.reserve(records));
        self.places.each.reserve(records);
    }

    pub(in crate::archive) fn records(&self) -> usize {
        self.records
    }

    /// Its flows, and their wide parts counted twice if these are more.
    pub(in crate::archive) fn flows(&self) -> usize {
        let (flows, wide) = match &self.on_device {
            Some(OnDevice { figures, .. }) => (figures.flows as usize, figures.wide as usize),
            None => (self.flows.len(), self.flows.wide.len()),
        };
        flows.max(2 * wide)
    }

    /// Packets whose headers are odd.
    pub(super) fn odd_packets(&self) -> u64 {
        match &self.on_device {
            Some(OnDevice { figures, .. }) => figures.odd,
            None => self.flows.odd_packets(),
        }
    }

    /// The bits that are set in any flow, word by word, and those in any wide part.
    pub(super) fn bits_used(&self) -> (Narrow, Wide) {
        match &self.on_device {
            Some(OnDevice { figures, .. }) => (figures.bits, figures.wide_bits),
            None => self.flows.bits_used(),
        }
    }

    /// Whether a digit of single packets is 0 in all of them.
    pub(super) fn is_zero(&self, digit: usize) -> bool {
        match &self.on_device {
            Some(OnDevice { figures, .. }) => !figures.own[digit],
            None => self.own[digit].is_zero(),
        }
    }

    /// Its packets on a device.
    pub(in crate::archive) fn on_device(&self) -> Option<&dyn DeviceChunk> {
        self.on_device.as_ref().map(|on_device| &*on_device.chunk)
    }

    /// Where it ends in the capture.
    pub(in crate::archive) fn end(&self) -> u64 {
        self.end
    }

    /// Bytes of memory that it takes.
    pub(in crate::archive) fn bytes(&self) -> usize {
        let of_record = size_of::<u32>() + 2 * OWN_DIGITS;
        let of_place = size_of::<Place>() + size_of::<u32>();
        self.flows.bytes()
            + of_record * self.flow_of.capacity()
            + of_place * self.places.each.capacity()
            + size_of::<Mark>() * self.marks.marks.capacity()
    }

    /// Takes in packets until it has so many, or the reader has reached an offset. What is wrong
    /// with the file itself, rather than with the capture in it, is an error.
    pub(in crate::archive) fn read<R: Read>(
        &mut self,
        decoder: &mut Decoder,
        reader: &mut CaptureReader<R>,
        records: usize,
        end: u64,
    ) -> Result<Ended, CaptureError> {
        if self.on_device.is_some() {
            return self.send_from(reader, records, end);
        }
        while self.records() < records && reader.position() < end {
            match reader.next() {
                Ok(Some(record)) => {
                    let offset = record.offset;
                    self.push(decoder, &record);
                    if let Some(sums) = &mut self.places.sums {
                        sums.push(reader.sum_to(offset));
                    }
                }
                Ok(None) => return Ok(ended(reader.position() < end)),
                Err(error) => return failed(error),
            }
        }
        Ok(Ended::Full)
    }

    /// The same, with all packets sent to the device.
    fn send_from<R: Read>(
        &mut self,
        reader: &mut CaptureReader<R>,
        records: usize,
        end: u64,
    ) -> Result<Ended, CaptureError> {
        while self.records < records && reader.position() < end {
            let Some(on_device) = &mut self.on_device else { break };
            let Some(frames) = &mut on_device.frames else { break };
            let Self { places, records: count, wire_bytes, captured_bytes, .. } = self;
            let ended = frames.write(|writer| {
                while *count < records && !writer.is_full() && reader.position() < end {
                    let record = match reader.next() {
                        Ok(Some(record)) => record,
                        Ok(None) => return Some(Ok(ended(reader.position() < end))),
                        Err(error) => return Some(failed(error)),
                    };
                    let Record { offset, time_ns: time, wire_len, data, .. } = record;
                    *wire_bytes += u64::from(wire_len);
                    *captured_bytes += data.len() as u64;
                    *count += 1;
                    places.each.push(Place { offset, time });
                    let interface = u16::try_from(record.interface).unwrap_or(u16::MAX);
                    writer.push((record.link.0, interface), wire_len, data);
                    if let Some(sums) = &mut places.sums {
                        sums.push(reader.sum_to(offset));
                    }
                }
                None
            });
            if let Some(ended) = ended {
                return ended;
            }
            if frames.is_full() && !on_device.send(true) {
                break;
            }
        }
        Ok(Ended::Full)
    }

    /// Has a device take its packets, from the first one on.
    pub(in crate::archive) fn begin_on(
        &mut self,
        device: &Arc<dyn PacketDevice>,
        kept: &Kept,
    ) -> Result<(), SegmentFailed> {
        let (chunk, frames) = (device.begin(kept)?, Some(device.frames()?));
        let (device, figures) = (Arc::clone(device), ChunkFigures::default());
        self.on_device = Some(OnDevice { device, chunk, figures, frames, failed: None });
        Ok(())
    }

    /// Whether its device has failed.
    pub(in crate::archive) fn has_failed(&self) -> bool {
        self.on_device.as_ref().is_some_and(|on_device| on_device.failed.is_some())
    }

    /// Leaves the device out of it.
    pub(in crate::archive) fn leave_device(&mut self) {
        self.on_device = None;
    }

    /// Whether it has as many packets, at the same places of the capture as far as both are marked.
    pub(in crate::archive) fn has_places_of(&self, other: &Self) -> bool {
        (self.end, self.records, &self.marks) == (other.end, other.records, &other.marks)
    }

    /// The bytes of the capture that it has.
    pub(in crate::archive) fn bytes_of_capture(&self) -> Range<u64> {
        self.base..self.end
    }

    /// Where the packets are that the device has refused; all packets are there.
    pub(in crate::archive) fn refused(&mut self) -> Result<Vec<u64>, SegmentFailed> {
        let Some(on_device) = &mut self.on_device else { return Ok(Vec::new()) };
        on_device.send(false);
        if let Some(failed) = on_device.failed.take() {
            return Err(failed);
        }
        let refused = on_device.chunk.refused()?;
        let place = |&record: &u32| self.places.each.get(record as usize);
        let offset = |record: &u32| place(record).map(|place| place.offset);
        let ascend = refused.is_sorted_by(|a, b| a < b);
        let offsets: Option<Vec<u64>> = refused.iter().map(offset).collect();
        offsets.filter(|_| ascend).ok_or(SegmentFailed::Disorder)
    }

    /// Gives the device what it has refused, and has it find the flows.
    pub(in crate::archive) fn finish_on_device(
        &mut self,
        refused: &[PacketKey],
    ) -> Result<(), SegmentFailed> {
        let records = self.records();
        let Some(on_device) = &mut self.on_device else { return Ok(()) };
        let figures = on_device.chunk.finish(refused)?;
        let is_right = (figures.flows as usize) <= records
            && (figures.wide as usize) <= figures.flows as usize
            && (figures.flows > 0) == (records > 0);
        on_device.figures = figures;
        if is_right { Ok(()) } else { Err(SegmentFailed::Disorder) }
    }

    /// Called after the last packet.
    pub(in crate::archive) fn finish<R: Read>(
        &mut self,
        decoder: &mut Decoder,
        reader: &mut CaptureReader<R>,
    ) {
        self.settle(decoder);
        decoder.expected = [self.flow_of.len(), self.flows.len(), self.flows.wide.len()];
        self.end = reader.position();
        if let Some(sums) = &mut self.places.sums {
            sums.push(reader.sum_to(self.end));
        }
    }

    /// Marks every 32nd record of the segment, where so many records are before the chunk. It is
    /// complete; what was known of each record is forgotten.
    pub(in crate::archive) fn mark(&mut self, before: usize) {
        let Places { each, sums } = &self.places;
        let every = MARK_RECORDS as usize;
        let first = (before.next_multiple_of(every) - before).min(each.len());
        let (head, rest) = each.split_at(first);
        let mark = |some: &[Place]| {
            let (time_min, time_max) = time_range(some)?;
            Some(Mark { offset: some.first()?.offset, time_min, time_max })
        };
        // The last of the checksums is that of the whole chunk.
        let of_marks = |sums: &Vec<u32>| {
            let marked = sums[first..each.len()].iter().step_by(every);
            marked.chain(sums.last()).copied().collect()
        };
        self.marks = ChunkMarks {
            head: time_range(head),
            marks: rest.chunks(every).filter_map(mark).collect(),
            sums: sums.as_ref().map(of_marks),
        };
        self.spare.put(std::mem::take(&mut self.places));
    }

    /// Takes in a packet.
    #[inline(always)]
    fn push(&mut self, decoder: &mut Decoder, record: &Record<'_>) {
        self.wire_bytes += u64::from(record.wire_len);
        self.captured_bytes += record.data.len() as u64;
        let Decoder { mask, shortcut, pending, headers, usual_headers, .. } = decoder;
        let at = pending.len % BATCH;
        self.records += 1;
        self.places.each.push(Place { offset: record.offset, time: record.time_ns });
        pending.excess[at] = fields::length_excess(record.wire_len);
        if shortcut.take(record, &mut pending.usual[at]) {
            pending.is_usual |= 1 << at;
            pending.interfaces[at] = record.interface;
            pending.usual[at].own(usual_headers);
            pending.own_of(at, &Packet::new(record, usual_headers));
        } else {
            packet::decode(record.link, record.swapped, record.data, headers);
            let packet = Packet::new(record, headers);
            pending.own_of(at, &packet);
            pending.key_of(at, &packet, &mut self.flows, mask);
        }
        pending.len = at + 1;
        if pending.len == BATCH {
            self.settle(decoder);
        }
    }

    /// Looks up the flows of the pending packets.
    fn settle(&mut self, decoder: &mut Decoder) {
        let Decoder { mask, shortcut, pending, headers, .. } = decoder;
        let len = std::mem::take(&mut pending.len).min(BATCH);
        if len == 0 {
            return;
        }
        let is_usual = std::mem::take(&mut pending.is_usual);
        // Step by step for all of them: so their memory reads overlap, and no step waits for a
        // branch that could go either way at each packet.
        let mut flows = [0; BATCH];
        let mut unknown = 0_u32;
        for at in bits(is_usual) {
            let flow = shortcut.find(&pending.usual[at]);
            flows[at] = flow.unwrap_or(0);
            unknown |= u32::from(flow.is_none()) << at;
        }
        for at in bits(unknown) {
            packet::decode(LinkType::ETHERNET, false, pending.usual[at].head(), headers);
            let (link, interface) = (LinkType::ETHERNET, pending.interfaces[at]);
            let packet = Packet { headers, link, interface, wire_len: 0 };
            pending.key_of(at, &packet, &mut self.flows, mask);
        }
        // Slots were fetched as keys came, what they lead to is fetched now.
        let wide = &pending.wide[..std::mem::take(&mut pending.wide_len).min(BATCH)];
        wide.iter().for_each(|(_, _, hash)| self.flows.wide.prefetch_key(*hash));
        for (at, part, hash) in wide {
            let key = &mut pending.keys[*at];
            self.flows.join(key, part, *hash);
            pending.hashes[*at] = self.flows.narrow.hash(key);
            self.flows.narrow.prefetch_slot(pending.hashes[*at]);
        }
        let others = u32::MAX >> (BATCH - len) & !is_usual | unknown;
        bits(others).for_each(|at| self.flows.narrow.prefetch_key(pending.hashes[at]));
        for at in bits(others) {
            flows[at] = self.flows.narrow.number(&pending.keys[at], pending.hashes[at]);
        }
        bits(unknown).for_each(|at| shortcut.remember(&pending.usual[at], flows[at]));
        flows[..len].iter().for_each(|&flow| self.flows.narrow.prefetch_entry(flow));
        for (&flow, &excess) in flows[..len].iter().zip(&pending.excess) {
            self.flows.add(flow, excess);
        }
        self.flow_of.extend_from_slice(&flows[..len]);
        for (plane, digits) in self.own.iter_mut().zip(&pending.own) {
            plane.extend(&digits[..len]);
        }
    }

    /// The times of its earliest and its latest packet, once these are marked.
    pub(super) fn times(&self) -> Option<(u64, u64)> {
        let marks = self.marks.marks.iter().map(|mark| (mark.time_min, mark.time_max));
        let ranges = self.marks.head.into_iter().chain(marks);
        ranges.reduce(|(a, b), (least, most)| (a.min(least), b.max(most)))
    }

    /// Appends a record whose flow is known by its key; what it has for itself is appended by
    /// [`extend_own`](Self::extend_own).
    pub(super) fn count(&mut self, key: &mut Narrow, wide: Option<&mut Wide>, excess: u32) {
        let mut wide = wide.filter(|wide| **wide != Wide::default());
        fields::order_ends(key, wide.as_deref_mut());
        if let Some(wide) = wide {
            let hash = self.flows.wide.hash(wide);
            self.flows.join(key, wide, hash);
        }
        let hash = self.flows.narrow.hash(key);
        let flow = self.flows.narrow.number(key, hash);
        self.flows.add(flow, excess);
        self.flow_of.push(flow);
        self.records += 1;
    }

    /// Appends what some records have for themselves.
    pub(super) fn extend_own(&mut self, own: &Own, records: std::ops::Range<usize>) {
        for (plane, all) in self.own.iter_mut().zip(own) {
            plane.extend_from(all, records.clone());
        }
    }
}

/// Why there is no packet, if the reader is before the end of what it was to read, or is not: then
/// it read blocks without packets up to there.
fn ended(is_before_end: bool) -> Ended {
    if is_before_end { Ended::Capture } else { Ended::Full }
}

/// What follows from an error of a reader.
fn failed(error: CaptureError) -> Result<Ended, CaptureError> {
    if error.is_io() { Err(error) } else { Ok(Ended::Damage(error)) }
}

/// The marks of chunks that follow each other, and the checksums of their packets if they have any;
/// `head` is the checksum of the bytes before the first chunk, and where they start.
pub(super) fn join(chunks: &[Chunk], head: (u64, u32)) -> (Vec<Mark>, Option<PieceSums>) {
    let count = chunks.iter().map(|chunk| chunk.marks.marks.len()).sum();
    let mut all: Vec<Mark> = Vec::with_capacity(count);
    let is_summed = chunks.first().is_some_and(|chunk| chunk.marks.sums.is_some());
    let mut pieces = is_summed.then(|| Sums::new(head));
    for chunk in chunks {
        let ChunkMarks { head, marks, sums } = &chunk.marks;
        if let (Some((least, most)), Some(last)) = (*head, all.last_mut()) {
            (last.time_min, last.time_max) = (last.time_min.min(least), last.time_max.max(most));
        }
        all.extend_from_slice(marks);
        if let (Some(pieces), Some(sums)) = (&mut pieces, sums) {
            for (mark, &sum) in marks.iter().zip(sums) {
                pieces.cut(mark.offset - chunk.base, sum);
            }
            pieces.pass(chunk.end - chunk.base, sums.last().copied().unwrap_or(0));
        }
    }
    let end = chunks.last().map_or(head.0, |chunk| chunk.end);
    let sums = pieces.map(|pieces| PieceSums { start: head.0, end, sums: pieces.end() });
    (all, sums)
}

/// Makes checksums of pieces from checksums of everything up to where they start.
struct Sums {
    sums: Vec<u32>,
    /// The checksum of the piece at hand, as far as it lies in chunks before this one.
    begun: u32,
    /// Where the rest of it starts in this chunk, and the checksum up to there.
    from: (u64, u32),
}

impl Sums {
    fn new((_, head): (u64, u32)) -> Self {
        Self { sums: Vec::new(), begun: head, from: (0, 0) }
    }

    /// The checksum of the piece at hand if it ends here.
    fn up_to(&self, offset: u64, sum: u32) -> u32 {
        let (from, before) = self.from;
        // What is between the two: the later checksum less the earlier one, moved on to it.
        let between = sum ^ moved(before, offset - from);
        moved(self.begun, offset - from) ^ between
    }

    /// A piece ends here, and the next one starts.
    fn cut(&mut self, offset: u64, sum: u32) {
        self.sums.push(self.up_to(offset, sum));
        (self.begun, self.from) = (0, (offset, sum));
    }

    /// The chunk ends here.
    fn pass(&mut self, offset: u64, sum: u32) {
        (self.begun, self.from) = (self.up_to(offset, sum), (0, 0));
    }

    fn end(mut self) -> Vec<u32> {
        self.sums.push(self.begun);
        self.sums
    }
}

/// The polynomial of CRC-32C, its bits reversed.
const POLYNOMIAL: u32 = 0x82F6_3B78;

/// The product of two polynomials modulo that of CRC-32C; the highest bit of a number is the lowest
/// power.
const fn product(a: u32, b: u32) -> u32 {
    let (mut sum, mut power, mut bit) = (0, b, 1 << 31);
    while bit != 0 {
        if a & bit != 0 {
            sum ^= power;
        }
        power = if power & 1 == 1 { power >> 1 ^ POLYNOMIAL } else { power >> 1 };
        bit >>= 1;
    }
    sum
}

/// For each place of a hexadecimal digit of a number of bytes, what a checksum is multiplied by for
/// that digit.
static MOVES: [[u32; 16]; 16] = {
    let mut moves = [[0; 16]; 16];
    // Behind one byte: x to the power of 8.
    let (mut place, mut one) = (0, 1_u32 << 23);
    while place < 16 {
        moves[place][0] = 1 << 31;
        let mut digit = 1;
        while digit < 16 {
            moves[place][digit] = product(moves[place][digit - 1], one);
            digit += 1;
        }
        one = product(moves[place][15], one);
        place += 1;
    }
    moves
};

/// What a checksum adds to that of the same bytes and so many more behind them.
fn moved(sum: u32, bytes: u64) -> u32 {
    let (mut sum, mut left) = (sum, bytes);
    for moves in &MOVES {
        let digit = usize::try_from(left & 15).unwrap_or(0);
        if digit != 0 {
            sum = product(sum, moves[digit]);
        }
        left >>= 4;
        if left == 0 {
            break;
        }
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksums_are_put_together() {
        let bytes: Vec<u8> =
            (0..70_000_u32).map(|i| (i.wrapping_mul(i) >> 7).to_le_bytes()[0]).collect();
        for (a, b) in [(0, 0), (0, 1), (1, 1), (13, 4_096), (900, 69_000), (5, 70_000)] {
            let (head, all) = (crc32c::crc32c(&bytes[..a]), crc32c::crc32c(&bytes[..b]));
            assert_eq!(all ^ moved(head, (b - a) as u64), crc32c::crc32c(&bytes[a..b]), "{a} {b}");
        }
        let long = vec![7_u8; 3 << 20];
        let (head, tail) = long.split_at(1_000_003);
        let whole = moved(crc32c::crc32c(head), tail.len() as u64) ^ crc32c::crc32c(tail);
        assert_eq!(whole, crc32c::crc32c(&long));
    }
}
