//! Columns built on the device, several of them in flight.

use std::collections::VecDeque;
use std::sync::Arc;

use tapdex_bitmap::Codec;
use tapdex_bitmap::codec::masc::Windowed;
use tapdex_engine::index::{
    BuildError, Builder, ColumnIndex, CpuBuilder, Digits, Part, RunBuilder, check_runs,
};

use crate::column::{ColumnSource, Form, ROW_BYTES, ROWS_MAX, Slot, Steps};
use crate::device::{Device, DeviceError};
use crate::memory::Pinned;

/// Columns in flight: one is copied in, one is worked on, one is copied out, and one waits.
const IN_FLIGHT: usize = 4;

/// Builds on a CUDA device; the indexes are, byte for byte, those of [`CpuBuilder`].
///
/// Columns follow each other through the device: while one is copied in, another is worked on and a
/// third is copied out. Columns in [pinned](Self::pinned) memory are read by the device itself;
/// others are copied by the driver. The indexes it returns are in pinned memory, too.
///
/// Nothing is lost if the device fails. When its memory is full, fewer columns are in flight from
/// then on, and a column that does not fit at all is built on the CPU. When it no longer answers,
/// all columns from then on are built on the CPU, those in flight included.
/// [`trouble`](Self::trouble) says what happened.
#[derive(Debug)]
pub struct GpuBuilder {
    device: Option<Arc<dyn Device>>,
    idle: Vec<Slot>,
    in_flight_max: usize,
    rows: CpuBuilder,
    runs: RunBuilder,
    trouble: Option<DeviceError>,
    built: Built,
    steps: Steps,
}

/// How many columns the device and the CPU built.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Built {
    /// Columns that the device built.
    pub device: u64,
    /// Columns that the CPU built because the device could not.
    pub cpu: u64,
}

/// A column on the device.
struct Flight<'c> {
    slot: Slot,
    column: (ColumnSource<'c>, Form),
    is_written: bool,
}

impl GpuBuilder {
    /// A builder on a device.
    pub fn new(device: Arc<dyn Device>) -> Self {
        Self {
            device: Some(device),
            idle: Vec::new(),
            in_flight_max: IN_FLIGHT,
            rows: CpuBuilder::new(0),
            runs: RunBuilder::new(),
            trouble: None,
            built: Built::default(),
            steps: Steps::default(),
        }
    }

    /// The builder, with at most this many columns in flight.
    #[must_use]
    pub fn with_in_flight(mut self, columns: usize) -> Self {
        self.in_flight_max = columns.max(1);
        self
    }

    /// How long each step took, for all columns so far. If several were in flight, this includes
    /// the time they waited for each other.
    pub fn steps(&self) -> Steps {
        self.steps
    }

    /// Memory for a column that the device reads by itself.
    pub fn pinned(&self, bytes: usize) -> Result<Pinned, DeviceError> {
        match &self.device {
            Some(device) => Pinned::new(device, bytes),
            None => Err(self.trouble.clone().unwrap_or(DeviceError::OutOfMemory { bytes })),
        }
    }

    /// What went wrong with the device last, if anything did.
    pub fn trouble(&self) -> Option<&DeviceError> {
        self.trouble.as_ref()
    }

    /// How many columns the device and the CPU built.
    pub fn built(&self) -> Built {
        self.built
    }

    /// Builds the index of each column and passes it to `done`, in order.
    pub fn build_sources<E: From<BuildError>>(
        &mut self,
        columns: &[(ColumnSource<'_>, Form)],
        mut done: impl FnMut(&ColumnIndex) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut index = ColumnIndex::default();
        let mut flights: VecDeque<Flight<'_>> = VecDeque::new();
        let mut next = 0;
        let mut result = Ok(());
        while result.is_ok() && (next < columns.len() || !flights.is_empty()) {
            let has_room = |&&(source, _): &&(ColumnSource<'_>, _)| {
                flights.len() < self.in_flight(source.rows())
            };
            let Some(&column) = columns.get(next).filter(has_room) else {
                result = self.finish(&mut flights, &mut next, &mut index, &mut done);
                continue;
            };
            match self.begin(column) {
                Ok(Some(slot)) => {
                    flights.push_back(Flight { slot, column, is_written: false });
                    next += 1;
                }
                Err(trouble @ DeviceError::OutOfMemory { .. }) if self.can_shrink(&flights) => {
                    self.shrink(trouble);
                    // Finish those in flight first; then there is more room.
                    result = self.finish(&mut flights, &mut next, &mut index, &mut done);
                }
                other if flights.is_empty() => {
                    self.note(other.err());
                    next += 1;
                    result = self.build_here(column, &mut index, &mut done);
                }
                // Columns are delivered in order: first those before it.
                other => {
                    self.note(other.err());
                    result = self.finish(&mut flights, &mut next, &mut index, &mut done);
                }
            }
            // The newest is still on its way; meanwhile the others are written.
            let behind = flights.len().saturating_sub(1);
            Self::write(flights.iter_mut().take(behind));
        }
        // The columns may be freed once the device has read them; giving memory back waits for
        // that.
        drop(flights);
        result
    }

    /// Whether the device builds such a column.
    fn is_for_device(&self, source: &ColumnSource<'_>) -> bool {
        let is_good = match *source {
            ColumnSource::Rows(_) => true,
            // If they are invalid, the CPU builder reports it.
            ColumnSource::Runs(digits, starts, rows) => check_runs(digits, starts, rows).is_ok(),
        };
        self.device.is_some() && is_good && (1..=ROWS_MAX).contains(&source.rows())
    }

    /// How many columns of this many rows are in flight: as many as the device has memory for.
    fn in_flight(&self, rows: usize) -> usize {
        let memory = self.device.as_ref().map_or(0, |device| device.facts().memory_free);
        (memory / (ROW_BYTES * rows.max(1))).clamp(1, self.in_flight_max)
    }

    /// Whether fewer columns in flight would leave more memory.
    fn can_shrink(&self, flights: &VecDeque<Flight<'_>>) -> bool {
        !flights.is_empty() || !self.idle.is_empty()
    }

    /// Keeps fewer columns in flight from now on.
    fn shrink(&mut self, trouble: DeviceError) {
        self.trouble = Some(trouble);
        self.in_flight_max = (self.in_flight_max / 2).max(1);
        self.idle.clear();
    }

    /// Notes what went wrong. A device that is lost is not used again.
    fn note(&mut self, trouble: Option<DeviceError>) {
        let Some(trouble) = trouble else { return };
        if !matches!(trouble, DeviceError::OutOfMemory { .. }) {
            self.device = None;
            self.idle.clear();
        }
        self.trouble = Some(trouble);
    }

    /// Sends a column to the device; `None` if the device does not build it.
    fn begin(
        &mut self,
        (source, form): (ColumnSource<'_>, Form),
    ) -> Result<Option<Slot>, DeviceError> {
        let Some(device) = self.device.clone().filter(|_| self.is_for_device(&source)) else {
            return Ok(None);
        };
        let mut slot = self.idle.pop().unwrap_or_else(|| Slot::new(&device));
        slot.measure(source, form)?;
        Ok(Some(slot))
    }

    /// Starts writing the columns that are not being written yet. Errors show when the column is
    /// collected.
    fn write<'f, 'c: 'f>(flights: impl Iterator<Item = &'f mut Flight<'c>>) {
        for flight in flights.filter(|flight| !flight.is_written) {
            let written = flight.slot.wait_measured().and_then(|()| flight.slot.write());
            flight.is_written = written.is_ok();
            if written.is_err() {
                break;
            }
        }
    }

    /// Delivers the first of the columns in flight. If there is no room for its index, all of them
    /// start again, fewer at a time: `next` goes back to the first.
    fn finish<E: From<BuildError>>(
        &mut self,
        flights: &mut VecDeque<Flight<'_>>,
        next: &mut usize,
        index: &mut ColumnIndex,
        done: &mut impl FnMut(&ColumnIndex) -> Result<(), E>,
    ) -> Result<(), E> {
        let Some(mut flight) = flights.pop_front() else { return Ok(()) };
        match Self::collect(&mut flight, index) {
            Ok(()) => {
                self.built.device += 1;
                self.steps += flight.slot.steps().unwrap_or_default();
                let result = done(index);
                // The memory is used again only if nobody still holds it.
                index.parts.clear();
                self.idle.push(flight.slot);
                result
            }
            Err(trouble @ DeviceError::OutOfMemory { .. }) if self.can_shrink(flights) => {
                *next -= 1 + flights.len();
                flights.clear();
                self.shrink(trouble);
                Ok(())
            }
            Err(trouble) => {
                self.note(Some(trouble));
                drop(flight.slot);
                self.build_here(flight.column, index, done)
            }
        }
    }

    /// Waits for a column and takes its index.
    fn collect(flight: &mut Flight<'_>, index: &mut ColumnIndex) -> Result<(), DeviceError> {
        let slot = &mut flight.slot;
        if !flight.is_written {
            slot.wait_measured()?;
            slot.write()?;
        }
        let (source, form) = flight.column;
        take_index(slot, source.rows(), form, index)
    }

    /// Builds a column on the CPU.
    fn build_here<E: From<BuildError>>(
        &mut self,
        (source, form): (ColumnSource<'_>, Form),
        index: &mut ColumnIndex,
        done: &mut impl FnMut(&ColumnIndex) -> Result<(), E>,
    ) -> Result<(), E> {
        self.built.cpu += 1;
        let codec = form.codec();
        match source {
            ColumnSource::Rows(digits) => self.rows.build(digits, codec, index)?,
            ColumnSource::Runs(digits, starts, rows) => {
                self.runs.build(digits, starts, rows, codec, index)?;
            }
        }
        if form == Form::MascWindows {
            cut_into_windows(index);
        }
        done(index)
    }
}

/// Waits for a column that is being written and takes its index.
pub(crate) fn take_index(
    slot: &mut Slot,
    rows: usize,
    form: Form,
    index: &mut ColumnIndex,
) -> Result<(), DeviceError> {
    index.codec = form.codec();
    index.rows = u32::try_from(rows).unwrap_or(u32::MAX);
    index.offsets = slot.wait_copied(&mut index.keys)?;
    index.parts.clear();
    if let Some(pinned) = slot.host_out.get() {
        let lent = Lent { pinned: Arc::clone(pinned), len: slot.bytes };
        index.parts.push(Part::Shared(Arc::new(lent)));
    }
    Ok(())
}

/// Replaces the bitmaps of an index in MASC by those in windows.
fn cut_into_windows(index: &mut ColumnIndex) {
    let bytes: Vec<u8> = index.bitmaps();
    let (mut ids, mut cut, mut offsets) = (Vec::new(), Vec::new(), vec![0]);
    for bounds in index.offsets.windows(2) {
        let range = || Some(usize::try_from(bounds[0]).ok()?..usize::try_from(bounds[1]).ok()?);
        let bitmap = range().and_then(|range| bytes.get(range)).unwrap_or_default();
        ids.clear();
        // It was just encoded, so it can be decoded.
        let _decoded = Codec::Masc.decode(bitmap, index.rows, &mut ids);
        Windowed::encode(&ids, &mut cut);
        offsets.push(cut.len() as u64);
    }
    (index.offsets, index.parts) = (offsets, vec![Part::Owned(cut)]);
}

/// The part of pinned memory that an index takes.
struct Lent {
    pinned: Arc<Pinned>,
    len: usize,
}

impl AsRef<[u8]> for Lent {
    fn as_ref(&self) -> &[u8] {
        &self.pinned[..self.len]
    }
}

impl Builder for GpuBuilder {
    fn build(
        &mut self,
        column: Digits<'_>,
        codec: Codec,
        target: &mut ColumnIndex,
    ) -> Result<(), BuildError> {
        // An earlier index in it may hold the memory that is needed.
        target.parts.clear();
        self.build_sources(&[(ColumnSource::Rows(column), Form::Whole(codec))], |index| {
            target.clone_from(index);
            Ok(())
        })
    }

    fn build_each<E: From<BuildError>>(
        &mut self,
        columns: &[(Digits<'_>, Codec)],
        done: impl FnMut(&ColumnIndex) -> Result<(), E>,
    ) -> Result<(), E> {
        let columns: Vec<_> = columns
            .iter()
            .map(|&(digits, codec)| (ColumnSource::Rows(digits), Form::Whole(codec)))
            .collect();
        self.build_sources(&columns, done)
    }
}
