//! The index step of a segment on a device, and what happens if that fails.

use std::sync::{Arc, Mutex};

use super::{
    BuildElsewhere, Chunk, Own, Plane, RowDigits, RowMap, SegmentBuilder, SortedRows, Target,
    fields_used, own, rows32, with_both_ends,
};
use crate::archive::CodecChoice;
use crate::archive::device::{
    DeviceChunk, FlowColumn, OwnDigits, PackedDigits, PacketDevice, SegmentDevice, SegmentFailed,
    SegmentKeys, SegmentOrder, SortedColumn, SortedPackets, StepCode,
};
use crate::archive::flows::AllFlows;
use crate::error::IndexError;
use crate::fields::FieldSet;
use crate::index::{Sorted, check_permutation};
use crate::lock;

/// Failures in a row after which the device is not used again.
const FAILURES_MAX: u32 = 3;

/// What a device did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DeviceReport {
    /// Segments that it indexed.
    pub segments: u64,
    /// Segments that were indexed on the CPU because it could not.
    pub segments_on_cpu: u64,
    /// Packets that the CPU decoded for it, because its own decoder does not do them.
    pub refused: u64,
    /// What went wrong last, if anything did.
    pub trouble: Option<String>,
}

/// A device that threads share, if there is one.
#[derive(Debug)]
pub(in crate::archive) struct SharedDevice<'a> {
    device: Option<&'a Mutex<dyn SegmentDevice>>,
    /// The same device, if it is to take frames.
    packets: Option<Arc<dyn PacketDevice>>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    report: DeviceReport,
    /// With segments, and with the frames of windows.
    failures_in_a_row: u32,
    failures_with_frames: u32,
}

impl<'a> SharedDevice<'a> {
    pub(in crate::archive) fn new(device: Option<&'a Mutex<dyn SegmentDevice>>) -> Self {
        Self { device, packets: None, state: Mutex::default() }
    }

    /// One that takes frames, if it can. Segments whose columns are bitmaps of a codec are sorted
    /// by it in another way, because it then builds the bitmaps, too.
    pub(in crate::archive) fn for_frames(
        device: Option<&'a Mutex<dyn SegmentDevice>>,
        codec: CodecChoice,
    ) -> Self {
        let device_for_frames = device.filter(|_| matches!(codec, CodecChoice::Auto));
        let packets = device_for_frames.and_then(|device| lock(device).packets());
        Self { packets, ..Self::new(device) }
    }

    /// The device, if it takes frames, and did not fail too often.
    pub(in crate::archive) fn packets(&self) -> Option<&Arc<dyn PacketDevice>> {
        let packets = self.packets.as_ref()?;
        let state = lock(&self.state);
        let failures = state.failures_in_a_row.max(state.failures_with_frames);
        (failures < FAILURES_MAX).then_some(packets)
    }

    /// Whether segments come to it as frames, or not at all.
    fn takes_frames(&self) -> bool {
        self.packets.is_some()
    }

    /// It failed while it took in frames, which the CPU takes in now.
    pub(in crate::archive) fn frames_failed(&self, trouble: &SegmentFailed) {
        let mut state = lock(&self.state);
        state.failures_with_frames += 1;
        state.report.trouble = Some(trouble.to_string());
    }

    /// It has found the flows of a chunk, for which the CPU decoded so many packets.
    pub(in crate::archive) fn frames_done(&self, refused: u64) {
        let mut state = lock(&self.state);
        state.failures_with_frames = 0;
        state.report.refused += refused;
    }

    /// Has it sort the packets of a segment, in memory that was used before; `None` if the CPU has
    /// to do that, from the start.
    pub(in crate::archive) fn sort(
        &self,
        chunks: &[Chunk],
        keep: FieldSet,
        mut target: SortedPackets,
    ) -> Option<SortedPackets> {
        let records: usize = chunks.iter().map(Chunk::records).sum();
        if records == 0 {
            return None;
        }
        self.packets.as_ref()?;
        let with_packets = chunks.iter().filter(|chunk| chunk.records() > 0);
        let all: Option<Vec<&dyn DeviceChunk>> = with_packets.map(Chunk::on_device).collect();
        let (Some(packets), Some(all)) = (self.packets(), all) else {
            self.failed(None);
            return None;
        };
        let keep = with_both_ends(keep);
        let columns = fields_used(chunks, keep);
        let columns: Vec<_> = columns.into_iter().filter_map(FlowColumn::of).collect();
        let sorted = packets
            .sort(&all, &columns, &mut target)
            .and_then(|()| check_sorted(&target, chunks, &columns, &own(keep)));
        match sorted {
            Ok(()) => {
                self.done();
                Some(target)
            }
            Err(error) => {
                self.failed(Some(error.to_string()));
                None
            }
        }
    }

    /// What it did so far.
    pub(in crate::archive) fn report(&self) -> DeviceReport {
        lock(&self.state).report.clone()
    }

    fn done(&self) {
        let mut state = lock(&self.state);
        state.report.segments += 1;
        state.failures_in_a_row = 0;
    }

    fn failed(&self, trouble: Option<String>) {
        let mut state = lock(&self.state);
        state.report.segments_on_cpu += 1;
        if trouble.is_some() {
            state.failures_in_a_row += 1;
            state.report.trouble = trouble;
        }
    }
}

impl SegmentBuilder {
    /// Writes the index with the help of the device; `None` if it has to be written without it.
    pub(super) fn write_on_device(
        &mut self,
        target: &mut Target<'_>,
        shared: &SharedDevice<'_>,
    ) -> Option<Result<u64, IndexError>> {
        let device = shared.device?;
        if self.records() == 0 || shared.takes_frames() {
            return None;
        }
        if lock(&shared.state).failures_in_a_row >= FAILURES_MAX {
            shared.failed(None);
            return None;
        }
        let trouble = match self.try_on_device(target, device) {
            Ok(bytes) => {
                shared.done();
                return Some(Ok(bytes));
            }
            Err(error @ (SegmentFailed::Device(_) | SegmentFailed::Disorder)) => error.to_string(),
            // What the device returned cannot be an index.
            Err(SegmentFailed::Index(
                error @ (IndexError::BadInput { .. } | IndexError::Build(_)),
            )) => error.to_string(),
            Err(SegmentFailed::Index(error)) => return Some(Err(error)),
        };
        shared.failed(Some(trouble));
        None
    }

    fn try_on_device(
        &mut self,
        target: &mut Target<'_>,
        device: &Mutex<dyn SegmentDevice>,
    ) -> Result<u64, SegmentFailed> {
        let mut scratch = self.scratch.take();
        let flows =
            AllFlows::new(self.chunks.iter().map(|chunk| &chunk.flows), &mut scratch.sorter);
        self.scratch.put(scratch);
        let words = flows.sort_words();
        let (flow_of, arrived) = self.in_one_list(flows.firsts());
        let segment = SegmentKeys {
            words: words.each_ref().map(Vec::as_slice),
            flow_of: &flow_of,
            own: arrived.iter().map(Plane::digits).collect(),
        };
        // Held until the columns are built: the device builds them for the segment it sorted last.
        let mut device = lock(device);
        let order = device.sort(&segment)?;
        check(&order, flows.len(), rows32(self.records()))?;
        let mut conversations = std::mem::take(&mut self.conversations);
        flows.put_in_order(&words, &order.flows, &mut conversations);
        let starts = order.flows.iter().map(|&flow| conversations.first_rows[flow as usize]);
        if !starts.eq(order.starts.iter().copied()) {
            return Err(SegmentFailed::Disorder);
        }
        let mut in_rows = own(self.keep);
        for (plane, target) in arrived.iter().zip(&mut in_rows) {
            plane.gather(&order.records, target);
        }
        let rows = SortedRows::new(&conversations, &order.records, &in_rows);
        let written = self.write_rows(
            target,
            rows,
            Some(&mut |column, codec, encode| {
                let mut encoded = Vec::new();
                device.columns(&[(column, codec)], &mut |index| {
                    encoded.push(encode(index)?);
                    Ok(())
                })?;
                match encoded.len() {
                    1 => Ok(encoded.pop()),
                    _ => Err(SegmentFailed::Disorder),
                }
            }),
        );
        self.conversations = conversations;
        written
    }

    /// Writes the index of packets that a device has sorted.
    pub(super) fn write_sorted(
        &mut self,
        target: &mut Target<'_>,
        sorted: SortedPackets,
    ) -> Result<u64, IndexError> {
        let mut conversations = std::mem::take(&mut self.conversations);
        conversations.take_sorted(&sorted);
        let SortedPackets { columns, row_map, own, .. } = &sorted;
        let of_flows = target.fields.iter().filter(|spec| spec.is_of_flow());
        let columns: Vec<_> = of_flows.map(|spec| spec.field).zip(columns).collect();
        let rows = SortedRows {
            conversations: &conversations,
            columns: &columns,
            count: rows32(self.records()),
            map: RowMap::Encoded(row_map),
            own: own.each_ref().map(RowDigits::of),
        };
        let written = self.write_rows(target, rows, None::<&mut BuildElsewhere<'_, IndexError>>);
        (self.conversations, self.spare_sorted) = (conversations, sorted);
        written
    }

    /// The flow of each record, counted through all chunks, and what records have for themselves.
    fn in_one_list(&self, firsts: &[u32]) -> (Vec<u32>, Own) {
        let mut flow_of = Vec::with_capacity(self.records());
        let mut all = own(self.keep);
        for (chunk, first) in self.chunks.iter().zip(firsts) {
            flow_of.extend(chunk.flow_of.iter().map(|flow| first + flow));
            for (plane, chunk) in all.iter_mut().zip(&chunk.own) {
                plane.extend_from(chunk, ..);
            }
        }
        (flow_of, all)
    }
}

/// Checks whether what a device returned can be the packets of these chunks in order.
fn check_sorted(
    sorted: &SortedPackets,
    chunks: &[Chunk],
    asked: &[FlowColumn],
    kept: &Own,
) -> Result<(), SegmentFailed> {
    let SortedPackets { flows, packets, excess, columns, row_map, own } = sorted;
    let records: usize = chunks.iter().map(Chunk::records).sum();
    let flows_most: usize = chunks.iter().map(Chunk::flows).sum();
    let conversations = packets.len() / 2;
    let is_kept = |(plane, digits): (&Plane, &OwnDigits)| match (plane, digits) {
        (Plane::Unkept, digits) => digits.is_empty(),
        (Plane::Bytes(_), OwnDigits::Bytes(digits)) => digits.len() == records,
        (Plane::Shorts(_), OwnDigits::Shorts(digits)) => digits.len() == records,
        (_, OwnDigits::Packed(PackedDigits { values, bytes })) => {
            values.is_sorted_by(|a, b| a < b) && bytes.len() >= 2 * records.div_ceil(PACKED)
        }
        _ => false,
    };
    let is_sorted = |(column, sorted): (&FlowColumn, &SortedColumn)| {
        let SortedColumn { sorted: Sorted { values, starts, entries }, packed_bytes } = sorted;
        let len = conversations * if column.second.is_some() { 2 } else { 1 };
        entries.len() == len
            && *packed_bytes >= 2 * len.div_ceil(PACKED) as u64
            && entries.iter().all(|&entry| (entry as usize) < len)
            && values.is_sorted_by(|a, b| a < b)
            && starts.len() == values.len() + 1
            && starts.is_sorted_by(|a, b| a < b)
            && starts.first() == Some(&0)
            && starts.last().is_some_and(|&end| end as usize == len)
    };
    let is_right = row_map.len() >= StepCode::starts_len(records) + records / 8
        && conversations > 0
        && packets.len() == 2 * conversations
        && excess.len() == packets.len()
        && *flows == packets.iter().filter(|&&packets| packets > 0).count() as u64
        && *flows <= flows_most as u64
        && packets.as_chunks::<2>().0.iter().all(|pair| *pair != [0, 0])
        && packets.iter().map(|&packets| u64::from(packets)).sum::<u64>() == records as u64
        && columns.len() == asked.len()
        && asked.iter().zip(columns).all(is_sorted)
        && kept.iter().zip(own).all(is_kept);
    if is_right { Ok(()) } else { Err(SegmentFailed::Disorder) }
}

/// Packets of a packed block, which takes two bytes at least.
const PACKED: usize = PackedDigits::BLOCK;

/// Checks whether what a device returned can be the order of a segment.
fn check(order: &SegmentOrder, flows: usize, rows: u32) -> Result<(), SegmentFailed> {
    check_permutation(&order.records)?;
    let SegmentOrder { flows: numbers, starts, records } = order;
    let is_right = numbers.len() == flows
        && starts.len() == flows
        && records.len() == rows as usize
        && numbers.iter().all(|&flow| (flow as usize) < flows)
        && starts.first() == Some(&0)
        && starts.is_sorted_by(|a, b| a < b)
        && starts.last().is_some_and(|&start| start < rows);
    match is_right {
        true => Ok(()),
        false => Err(SegmentFailed::Disorder),
    }
}
