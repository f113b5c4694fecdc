//! The index step of a segment on a device, and what happens if that fails.

use std::sync::Mutex;

use super::{Own, Plane, SegmentBuilder, SortedRows, Target, own, rows32};
use crate::archive::device::{SegmentDevice, SegmentFailed, SegmentKeys, SegmentOrder};
use crate::archive::flows::AllFlows;
use crate::error::IndexError;
use crate::index::check_permutation;
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
        target: &mut Target<'_>,
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
        let rows =
            SortedRows { conversations: &conversations, records: &order.records, own: &in_rows };
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
