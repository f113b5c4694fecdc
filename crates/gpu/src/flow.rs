//! The index step of a segment in flow order, on the device.
//!
//! [`SegmentIndexer`] gets the keys of a segment's flows and the flow of each record. The device
//! sorts the flows by their keys and the records by their flows, sends the order back, and keeps
//! what the columns are made from; a column of the flows' keys is then extracted on the device, and
//! only its index comes back.

use std::collections::VecDeque;
use std::sync::Arc;

use tapdex_bitmap::Codec;
use tapdex_engine::IndexError;
use tapdex_engine::archive::device::{
    KEY_WORDS, PacketDevice, SegmentColumn, SegmentDevice, SegmentFailed, SegmentKeys, SegmentOrder,
};
use tapdex_engine::index::{Builder, ColumnIndex, CpuBuilder, Digits, Width, check_runs};

use crate::builder::take_index;
use crate::column::{ColumnSource, Form, List, ROWS_MAX, Slot, THREADS, args, blocks, u32_of};
use crate::device::{Address, Arg, Device, DeviceError, Event, Stream, record};
use crate::memory::{Buffer, HostBuffer, bytes_of};
use crate::packets::GpuPackets;
use crate::radix::{Keys, Radix, bits_up_to, launch, shifts};

mod measure;

pub use measure::{SegmentMeasured, measure_segment};

/// Columns in flight: one is worked on, one is copied out, and the others wait.
const IN_FLIGHT: usize = 4;

/// Words of a tile in `flow.cu`.
pub(crate) const WORDS_TILE: usize = 2048;

/// In `starts`, a flow without records: all bits.
const NO_ROW: u8 = 0xFF;

/// Sorts segments and builds their columns on a device.
///
/// A failure of the device is a [`SegmentFailed::Device`]; columns in flight are then waited for,
/// and memory is given back. If memory ran out, the device is used again for the next segment, with
/// fewer columns in flight; a device that is lost is not used again.
#[derive(Debug)]
pub struct SegmentIndexer {
    device: Arc<dyn Device>,
    buffers: Buffers,
    host: HostBuffers,
    idle: Vec<Slot>,
    in_flight_max: usize,
    segment: Option<Segment>,
    packets: Arc<GpuPackets>,
    lost: Option<DeviceError>,
}

/// The memory that a segment takes on the device.
#[derive(Debug, Default)]
struct Buffers {
    words: Buffer,
    flow_orders: [Buffer; 2],
    ranks: Buffer,
    starts: Buffer,
    flow_of: Buffer,
    keys: Buffer,
    record_orders: [Buffer; 2],
    own: Vec<OwnBuffers>,
    counts: Buffer,
    sums: Buffer,
    small: Buffer,
}

/// The memory for one list of what belongs to single records, in order of arrival and in row order.
#[derive(Debug, Default)]
struct OwnBuffers {
    records: Buffer,
    rows: Buffer,
}

/// The host memory that the device writes to.
#[derive(Debug, Default)]
struct HostBuffers {
    small: HostBuffer,
    flows: HostBuffer,
    starts: HostBuffer,
    records: HostBuffer,
}

/// The segment that was sorted last.
#[derive(Debug, Clone, Default)]
struct Segment {
    rows: usize,
    flows: usize,
    /// Which of the two lists of flows is sorted.
    flow_order: Address,
    at: Places,
    own: Vec<OwnList>,
}

/// A list of what belongs to single records: where it is in order of arrival and in row order, and
/// its width. Empty lists have no memory.
#[derive(Debug, Clone, Copy)]
struct OwnList {
    records: Address,
    rows: Address,
    width: Width,
    is_empty: bool,
}

/// Where a segment is.
#[derive(Debug, Clone, Copy, Default)]
struct Places {
    words: Address,
    flow_orders: [Address; 2],
    ranks: Address,
    starts: Address,
    flow_of: Address,
    keys: Address,
    record_orders: [Address; 2],
    counts: Address,
    sums: Address,
    small: Address,
    host_small: Address,
    host_flows: Address,
    host_starts: Address,
    host_records: Address,
}

/// The few numbers that kernels leave for the host: for each word, the bits that differ, and then
/// how many flows and records do not fit together. A sum that is not read comes after them.
const SMALL_LEN: usize = 2 * KEY_WORDS + 1;

/// Where flows and records that do not fit together are counted.
fn odd_at(at: &Places) -> Address {
    at.small + 8 * KEY_WORDS as u64
}

/// A column on the device.
struct Flight {
    slot: Slot,
    form: Form,
    /// Rows or entries of the column.
    rows: usize,
    is_written: bool,
}

impl SegmentIndexer {
    /// An indexer on a device.
    pub fn new(device: Arc<dyn Device>) -> Self {
        Self {
            packets: Arc::new(GpuPackets::new(Arc::clone(&device))),
            device,
            buffers: Buffers::default(),
            host: HostBuffers::default(),
            idle: Vec::new(),
            in_flight_max: IN_FLIGHT,
            segment: None,
            lost: None,
        }
    }

    /// Gives back all memory, once the device is done with it.
    fn release(&mut self) {
        self.segment = None;
        self.idle.clear();
        self.buffers = Buffers::default();
        self.host = HostBuffers::default();
        self.packets.release();
    }

    /// Notes a failure, after which nothing is in flight.
    fn failed(&mut self, error: DeviceError) -> SegmentFailed {
        self.release();
        if !matches!(error, DeviceError::OutOfMemory { .. }) {
            self.lost = Some(error.clone());
        }
        SegmentFailed::Device(error.into())
    }

    fn alive(&self) -> Result<(), SegmentFailed> {
        self.lost.clone().map_or(Ok(()), |error| Err(SegmentFailed::Device(error.into())))
    }

    fn launch(
        &self,
        stem: &'static str,
        kernel: &'static str,
        grid: (u32, u32),
        args: &[Arg],
    ) -> Result<(), DeviceError> {
        launch(&*self.device, stem, kernel, grid, args)
    }

    /// What sorts numbers in the memory of a segment.
    fn radix(&self, at: &Places) -> Radix<'_> {
        let Places { counts, sums, small, .. } = *at;
        Radix { device: &*self.device, counts, sums, unread: small + 4 * SMALL_LEN as u64 }
    }

    /// Runs a kernel of `flow.cu` with a thread for each of some items.
    fn launch_each(
        &self,
        kernel: &'static str,
        items: usize,
        args: &[Arg],
    ) -> Result<(), DeviceError> {
        self.launch("flow", kernel, (blocks(items, THREADS as usize), THREADS), args)
    }

    /// Sorts; the order stays in the host's buffers.
    fn try_sort(&mut self, keys: &SegmentKeys<'_>) -> Result<Segment, DeviceError> {
        let (rows, flows) = (keys.flow_of.len(), keys.words[0].len());
        let at = self.reserve(rows, flows)?;
        let own = self.reserve_own(&keys.own)?;
        let mut segment = Segment { rows, flows, flow_order: 0, at, own };
        for (word, list) in (0..).zip(&keys.words) {
            let target = at.words + 8 * word * flows as u64;
            self.device.copy_in(Stream::In, bytes_of(list), target)?;
        }
        let found = self.find_bits(&segment)?;
        self.device.copy_in(Stream::In, bytes_of(keys.flow_of), at.flow_of)?;
        for (digits, list) in keys.own.iter().zip(&segment.own).filter(|(_, list)| !list.is_empty) {
            let bytes = match digits {
                Digits::Bytes(bytes) => bytes,
                Digits::Shorts(shorts) => bytes_of(shorts),
            };
            self.device.copy_in(Stream::In, bytes, list.records)?;
        }
        found.wait()?;
        segment.flow_order = self.sort_flows(&segment)?;
        self.copy_out(segment.flow_order, at.host_flows, 4 * flows)?;
        let record_order = self.sort_records(&segment)?;
        self.copy_out(record_order, at.host_records, 4 * rows)?;
        self.gather_rows(&segment, record_order)?;
        self.publish(&at)?;
        self.copy_out(at.starts, at.host_starts, 4 * flows)?;
        record(&self.device, Stream::Out)?.wait()?;
        Ok(segment)
    }

    fn reserve(&mut self, rows: usize, flows: usize) -> Result<Places, DeviceError> {
        let (device, b, host) = (&self.device, &mut self.buffers, &mut self.host);
        let [counts, sums] = Radix::room(rows.max(flows));
        let [flow_order, other_flow_order] = &mut b.flow_orders;
        let [record_order, other_record_order] = &mut b.record_orders;
        Ok(Places {
            words: b.words.reserve(device, 8 * KEY_WORDS * flows)?,
            flow_orders: [
                flow_order.reserve(device, 4 * flows)?,
                other_flow_order.reserve(device, 4 * flows)?,
            ],
            ranks: b.ranks.reserve(device, 4 * flows)?,
            starts: b.starts.reserve(device, 4 * flows)?,
            flow_of: b.flow_of.reserve(device, 4 * rows)?,
            keys: b.keys.reserve(device, 4 * rows)?,
            record_orders: [
                record_order.reserve(device, 4 * rows)?,
                other_record_order.reserve(device, 4 * rows)?,
            ],
            counts: b.counts.reserve(device, counts)?,
            sums: b.sums.reserve(device, sums)?,
            small: b.small.reserve(device, 4 * (SMALL_LEN + 1))?,
            host_small: host.small.reserve(device, 4 * SMALL_LEN)?,
            host_flows: host.flows.reserve(device, 4 * flows)?,
            host_starts: host.starts.reserve(device, 4 * flows)?,
            host_records: host.records.reserve(device, 4 * rows)?,
        })
    }

    /// Makes room for what belongs to single records.
    fn reserve_own(&mut self, own: &[Digits<'_>]) -> Result<Vec<OwnList>, DeviceError> {
        let (device, buffers) = (&self.device, &mut self.buffers.own);
        buffers.resize_with(own.len(), OwnBuffers::default);
        own.iter()
            .zip(buffers)
            .map(|(digits, buffers)| {
                let (rows, width) = (digits.rows(), digits.width());
                if rows == 0 {
                    return Ok(OwnList { records: 0, rows: 0, width, is_empty: true });
                }
                let bytes = rows * (width.bits() / 8) as usize;
                Ok(OwnList {
                    records: buffers.records.reserve(device, bytes)?,
                    // Columns are read sixteen bytes at a time.
                    rows: buffers.rows.reserve(device, bytes.next_multiple_of(16))?,
                    width,
                    is_empty: false,
                })
            })
            .collect()
    }

    /// Finds the bits of the words that are not the same in all flows; the event says when.
    fn find_bits(&self, segment: &Segment) -> Result<Event, DeviceError> {
        let Segment { flows, at, .. } = segment;
        self.wait_for_copies()?;
        self.device.fill(Stream::Compute, at.small, 0, 4 * SMALL_LEN)?;
        let tiles = blocks(*flows, WORDS_TILE);
        let grid = (tiles * u32_of(KEY_WORDS), THREADS);
        self.launch("flow", "flow_bits", grid, args![at.words, u32_of(*flows), tiles, at.small])?;
        self.publish(at)?;
        record(&self.device, Stream::Compute)
    }

    /// Sorts the flows by their keys.
    fn sort_flows(&self, segment: &Segment) -> Result<Address, DeviceError> {
        let Segment { flows, at, .. } = segment;
        let halves = numbers(&self.host.small, 2 * KEY_WORDS);
        let mut passes = Vec::new();
        // The last word first: later passes have precedence.
        for (word, halves) in halves.chunks_exact(2).enumerate().rev() {
            let words = at.words + 8 * (word * flows) as u64;
            let bits = u64::from(halves[0]) | u64::from(halves[1]) << 32;
            passes.extend(shifts(bits).map(|shift| (Keys::Words(words), shift)));
        }
        self.radix(at).sort(*flows, at.flow_orders, &passes)
    }

    /// Sorts the records by the places of their flows.
    fn sort_records(&self, segment: &Segment) -> Result<Address, DeviceError> {
        let Segment { rows, flows, flow_order, at, .. } = segment;
        let args = args![*flow_order, u32_of(*flows), at.ranks];
        self.launch_each("flow_ranks", *flows, args)?;
        self.wait_for_copies()?;
        let flows = u32_of(*flows);
        let args = args![at.flow_of, u32_of(*rows), at.ranks, flows, at.keys, odd_at(at)];
        self.launch_each("flow_keys", *rows, args)?;
        let in_use = bits_up_to(u64::from(flows) - 1);
        let passes: Vec<_> = shifts(in_use).map(|shift| (Keys::Longs(at.keys), shift)).collect();
        self.radix(at).sort(*rows, at.record_orders, &passes)
    }

    /// Finds where flows start, and gathers what belongs to each row.
    fn gather_rows(&self, segment: &Segment, order: Address) -> Result<(), DeviceError> {
        let Segment { rows, flows, at, own, .. } = segment;
        self.device.fill(Stream::Compute, at.starts, NO_ROW, 4 * flows)?;
        let args = args![order, u32_of(*rows), at.keys, at.starts];
        self.launch_each("flow_rows", *rows, args)?;
        for list in own.iter().filter(|list| !list.is_empty) {
            let kernel = match list.width {
                Width::Byte => "flow_own_u8",
                Width::Short => "flow_own_u16",
            };
            let args = args![order, u32_of(*rows), list.records, list.rows];
            self.launch_each(kernel, *rows, args)?;
        }
        self.launch_each("flow_check", *flows, args![at.starts, u32_of(*flows), odd_at(at)])
    }

    /// Makes the kernels that follow wait for the copies requested so far.
    fn wait_for_copies(&self) -> Result<(), DeviceError> {
        let arrived = record(&self.device, Stream::In)?;
        self.device.wait_in(Stream::Compute, arrived.handle)
    }

    /// Copies out what the kernels so far have written.
    fn copy_out(&self, from: Address, to: Address, bytes: usize) -> Result<(), DeviceError> {
        let written = record(&self.device, Stream::Compute)?;
        self.device.wait_in(Stream::Out, written.handle)?;
        self.device.copy_out(Stream::Out, from, to, bytes)
    }

    /// Sends the few numbers to the host.
    fn publish(&self, at: &Places) -> Result<(), DeviceError> {
        let args = args![at.small, u32_of(SMALL_LEN), at.host_small];
        self.launch("scan", "scan_publish", (1, 32), args)
    }

    /// Sends a column to the device.
    fn begin(
        &mut self,
        segment: &Segment,
        column: SegmentColumn<'_>,
        form: Form,
    ) -> Result<Slot, DeviceError> {
        let mut slot = self.idle.pop().unwrap_or_else(|| Slot::new(&self.device));
        let Segment { rows, flows, flow_order, at, .. } = *segment;
        match column {
            SegmentColumn::Runs(digits, starts) => {
                slot.measure(ColumnSource::Runs(digits, starts, u32_of(rows)), form)?;
            }
            SegmentColumn::Entries(digits) => {
                slot.measure(ColumnSource::Rows(Digits::Shorts(digits)), form)?;
            }
            SegmentColumn::Own(list) => {
                let OwnList { rows: digits, width, .. } = segment.own[list];
                let is_short = width == Width::Short;
                slot.measure_list(List { digits, is_short, len: rows, starts: 0, rows }, form)?;
            }
            SegmentColumn::Key { word, shift, width } => {
                let is_short = width == Width::Short;
                let (bytes, kernel) = match width {
                    Width::Byte => (flows, "flow_digits_u8"),
                    Width::Short => (2 * flows, "flow_digits_u16"),
                };
                let digits = slot.reserve_digits(bytes)?;
                let words = at.words + 8 * (word * flows) as u64;
                let args = args![words, shift, flow_order, u32_of(flows), digits];
                self.launch_each(kernel, flows, args)?;
                let starts = at.starts;
                slot.measure_list(List { digits, is_short, len: flows, starts, rows }, form)?;
            }
        }
        Ok(slot)
    }

    /// Builds columns; those in flight when it fails are left there.
    fn build(
        &mut self,
        segment: &Segment,
        columns: &[(SegmentColumn<'_>, Codec)],
        flights: &mut VecDeque<Flight>,
        done: &mut dyn FnMut(&ColumnIndex) -> Result<(), IndexError>,
    ) -> Result<(), Failed> {
        let mut index = ColumnIndex::default();
        let mut next = 0;
        while next < columns.len() || !flights.is_empty() {
            if next < columns.len() && flights.len() < self.in_flight_max {
                let (column, codec) = columns[next];
                let form = Form::Whole(codec);
                match self.begin(segment, column, form) {
                    Ok(slot) => {
                        let rows = match column {
                            SegmentColumn::Entries(digits) => digits.len(),
                            _ => segment.rows,
                        };
                        flights.push_back(Flight { slot, form, rows, is_written: false });
                        next += 1;
                        write_behind(flights)?;
                        continue;
                    }
                    Err(DeviceError::OutOfMemory { .. }) if self.can_shrink(flights) => {
                        self.in_flight_max = (self.in_flight_max / 2).max(1);
                        self.idle.clear();
                    }
                    Err(error) => return Err(error.into()),
                }
            }
            let Some(mut flight) = flights.pop_front() else { continue };
            match finish(&mut flight, &mut index) {
                Err(DeviceError::OutOfMemory { .. }) if self.can_shrink(flights) => {
                    // Those after it start again once it is done.
                    next -= flights.len();
                    self.in_flight_max = 1;
                    flights.clear();
                    self.idle.clear();
                    finish(&mut flight, &mut index)?;
                }
                other => other?,
            }
            let result = done(&index);
            // The memory is used again only if nobody still holds it.
            index.parts.clear();
            self.idle.push(flight.slot);
            result?;
        }
        Ok(())
    }

    /// Whether fewer columns in flight would leave more memory.
    fn can_shrink(&self, flights: &VecDeque<Flight>) -> bool {
        !flights.is_empty() || !self.idle.is_empty()
    }
}

/// Starts writing all columns that are not being written yet, except the last one, which may still
/// be measured. A column whose index does not fit now stays as it is.
fn write_behind(flights: &mut VecDeque<Flight>) -> Result<(), DeviceError> {
    let behind = flights.len().saturating_sub(1);
    for flight in flights.iter_mut().take(behind).filter(|flight| !flight.is_written) {
        match flight.slot.wait_measured().and_then(|()| flight.slot.write()) {
            Ok(()) => flight.is_written = true,
            Err(DeviceError::OutOfMemory { .. }) => break,
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Waits for a column and takes its index.
fn finish(flight: &mut Flight, index: &mut ColumnIndex) -> Result<(), DeviceError> {
    if !flight.is_written {
        flight.slot.wait_measured()?;
        flight.slot.write()?;
        flight.is_written = true;
    }
    take_index(&mut flight.slot, flight.rows, flight.form, index)
}

/// Why columns were not built.
enum Failed {
    Device(DeviceError),
    Index(IndexError),
}

impl From<DeviceError> for Failed {
    fn from(error: DeviceError) -> Self {
        Failed::Device(error)
    }
}

impl From<IndexError> for Failed {
    fn from(error: IndexError) -> Self {
        Failed::Index(error)
    }
}

/// Numbers that the device has written.
fn numbers(buffer: &HostBuffer, len: usize) -> Vec<u32> {
    let bytes = buffer.get().map(|pinned| &pinned[..]).unwrap_or_default();
    let (longs, _) = bytes.as_chunks::<4>();
    longs.iter().take(len).map(|&long| u32::from_le_bytes(long)).collect()
}

/// Why a segment cannot be sorted or built.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
enum BadSegment {
    #[error("flows or records that lack something")]
    Lacking,
    #[error("{rows} records: a segment has at most {ROWS_MAX}")]
    TooManyRows { rows: usize },
    #[error("{flows} flows cannot have {rows} records")]
    Flows { flows: usize, rows: usize },
    #[error("flows without records, or records without a flow")]
    Unequal,
    #[error("no segment is sorted")]
    NotSorted,
    #[error("a column of {entries} entries")]
    Entries { entries: usize },
    #[error("records have no list {list}")]
    NoList { list: usize },
    #[error("a key has no bit {shift} in word {word}")]
    NoBit { word: usize, shift: u32 },
}

fn refuse(why: impl std::error::Error + Send + Sync + 'static) -> SegmentFailed {
    SegmentFailed::Device(Box::new(why))
}

fn check_keys(keys: &SegmentKeys<'_>) -> Result<(), SegmentFailed> {
    let (rows, flows) = (keys.flow_of.len(), keys.words[0].len());
    if keys.words.iter().any(|word| word.len() != flows)
        || keys.own.iter().any(|own| own.rows() != 0 && own.rows() != rows)
    {
        return Err(refuse(BadSegment::Lacking));
    }
    if rows > ROWS_MAX {
        return Err(refuse(BadSegment::TooManyRows { rows }));
    }
    if flows > rows || (flows == 0) != (rows == 0) {
        return Err(refuse(BadSegment::Flows { flows, rows }));
    }
    Ok(())
}

fn check_column(column: &SegmentColumn<'_>, segment: &Segment) -> Result<(), SegmentFailed> {
    let rows = segment.rows;
    match *column {
        SegmentColumn::Own(list) if segment.own.get(list).is_none_or(|own| own.is_empty) => {
            Err(refuse(BadSegment::NoList { list }))
        }
        SegmentColumn::Key { word, shift, .. } if word >= KEY_WORDS || shift >= u64::BITS => {
            Err(refuse(BadSegment::NoBit { word, shift }))
        }
        SegmentColumn::Entries(digits) if digits.is_empty() || digits.len() > 2 * ROWS_MAX => {
            Err(refuse(BadSegment::Entries { entries: digits.len() }))
        }
        SegmentColumn::Runs(digits, starts) => {
            let rows = u32::try_from(rows).unwrap_or(u32::MAX);
            check_runs(digits, starts, rows).map_err(refuse)
        }
        _ => Ok(()),
    }
}

/// Delivers the indexes of columns without rows.
fn build_empty(
    columns: &[(SegmentColumn<'_>, Codec)],
    done: &mut dyn FnMut(&ColumnIndex) -> Result<(), IndexError>,
) -> Result<(), SegmentFailed> {
    let mut index = ColumnIndex::default();
    for &(_, codec) in columns {
        let built = CpuBuilder::new(1).build(Digits::Bytes(&[]), codec, &mut index);
        built.map_err(IndexError::from)?;
        done(&index)?;
    }
    Ok(())
}

impl SegmentDevice for SegmentIndexer {
    fn sort(&mut self, segment: &SegmentKeys<'_>) -> Result<SegmentOrder, SegmentFailed> {
        self.alive()?;
        self.segment = None;
        check_keys(segment)?;
        if segment.flow_of.is_empty() {
            self.segment = Some(Segment::default());
            return Ok(SegmentOrder::default());
        }
        let sorted = match self.try_sort(segment) {
            Err(DeviceError::OutOfMemory { .. }) => {
                // The columns of the segment before may hold the memory that is missing.
                self.release();
                self.try_sort(segment)
            }
            other => other,
        };
        let sorted = sorted.map_err(|error| self.failed(error))?;
        if numbers(&self.host.small, SMALL_LEN).last() != Some(&0) {
            return Err(refuse(BadSegment::Unequal));
        }
        let order = SegmentOrder {
            flows: numbers(&self.host.flows, sorted.flows),
            starts: numbers(&self.host.starts, sorted.flows),
            records: numbers(&self.host.records, sorted.rows),
        };
        self.segment = Some(sorted);
        Ok(order)
    }

    fn columns(
        &mut self,
        columns: &[(SegmentColumn<'_>, Codec)],
        done: &mut dyn FnMut(&ColumnIndex) -> Result<(), IndexError>,
    ) -> Result<(), SegmentFailed> {
        self.alive()?;
        let segment = self.segment.clone().ok_or_else(|| refuse(BadSegment::NotSorted))?;
        if segment.rows == 0 {
            return build_empty(columns, done);
        }
        for (column, _) in columns {
            check_column(column, &segment)?;
        }
        let mut flights = VecDeque::new();
        let result = self.build(&segment, columns, &mut flights, done);
        // The columns may be freed once the device has read them; giving memory back waits for
        // that.
        drop(flights);
        result.map_err(|failed| match failed {
            Failed::Device(error) => self.failed(error),
            Failed::Index(error) => error.into(),
        })
    }

    fn packets(&self) -> Option<Arc<dyn PacketDevice>> {
        Some(Arc::clone(&self.packets) as Arc<dyn PacketDevice>)
    }
}
