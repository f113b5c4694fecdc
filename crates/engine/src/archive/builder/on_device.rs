//! The index step of a segment on a device, and what happens if that fails.

use std::sync::Mutex;

use super::{Plane, SegmentBuilder, SortedRows, Target, rows32};
use crate::archive::device::{SegmentDevice, SegmentFailed, SegmentKeys, SegmentOrder};
use crate::error::IndexError;
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
    /// What went wrong last, if anything did.
    pub trouble: Option<String>,
}

/// A device that threads share, if there is one.
#[derive(Debug)]
pub(in crate::archive) struct SharedDevice<'a> {
    device: Option<&'a Mutex<dyn SegmentDevice>>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    report: DeviceReport,
    failures_in_a_row: u32,
}

impl<'a> SharedDevice<'a> {
    pub(in crate::archive) fn new(device: Option<&'a Mutex<dyn SegmentDevice>>) -> Self {
        Self { device, state: Mutex::default() }
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
        target: &Target<'_>,
        shared: &SharedDevice<'_>,
    ) -> Option<Result<u64, IndexError>> {
        let device = shared.device?;
        if self.records() == 0 {
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
        target: &Target<'_>,
        device: &Mutex<dyn SegmentDevice>,
    ) -> Result<u64, SegmentFailed> {
        let keys = self.flows.sort_keys(&mut self.sorter);
        let own = self.own.iter().map(Plane::digits).collect();
        let segment = SegmentKeys { words: keys.words(), flow_of: &self.flow_of, own };
        // Held until the columns are built: the device builds them for the segment it sorted last.
        let mut device = lock(device);
        let order = device.sort(&segment)?;
        check(&order, self.flows.len(), rows32(self.records()))?;
        let mut conversations = std::mem::take(&mut self.conversations);
        keys.put_in_order(&order.flows, &mut conversations);
        let starts = order.flows.iter().map(|&flow| conversations.first_rows[flow as usize]);
        if !starts.eq(order.starts.iter().copied()) {
            return Err(SegmentFailed::Disorder);
        }
        let rows = SortedRows { conversations: &conversations, records: &order.records };
        let written = self.write_rows(target, rows, &mut |column, codec, take| {
            let mut taken = 0;
            device.columns(&[(column, codec)], &mut |index| {
                taken += 1;
                take(index)
            })?;
            match taken {
                1 => Ok(true),
                _ => Err(SegmentFailed::Disorder),
            }
        });
        self.conversations = conversations;
        written
    }
}

/// Checks whether what a device returned can be the order of a segment, as far as it is used before
/// the writer sees it. The writer itself checks that each record is there once.
fn check(order: &SegmentOrder, flows: usize, rows: u32) -> Result<(), SegmentFailed> {
    let SegmentOrder { flows: numbers, starts, records } = order;
    let is_right = numbers.len() == flows
        && starts.len() == flows
        && records.len() == rows as usize
        && numbers.iter().all(|&flow| (flow as usize) < flows)
        && records.iter().all(|&record| record < rows)
        && starts.first() == Some(&0)
        && starts.is_sorted_by(|a, b| a < b)
        && starts.last().is_some_and(|&start| start < rows);
    match is_right {
        true => Ok(()),
        false => Err(SegmentFailed::Disorder),
    }
}
