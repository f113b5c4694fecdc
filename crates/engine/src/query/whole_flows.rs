//! Flows that were found whole: the index knows their bytes, so no packet is read for them.

use crate::archive::Segment;
use crate::error::IndexError;
use crate::fields::{Field, length_class_start};
use crate::index::{RowValues, for_each_flow};

/// What tells the bytes of flows.
pub(super) struct Volumes<'a> {
    /// What they are above the least of the length classes, by flow.
    excess: Vec<u64>,
    /// The length classes; `None` if all are 0.
    classes: Option<RowValues<'a>>,
    /// The least lengths of the classes, by the ids of these.
    least: Vec<u64>,
}

impl<'a> Volumes<'a> {
    /// Those of a segment; `None` if it does not say.
    pub(super) fn open(segment: &'a Segment) -> Result<Option<Self>, IndexError> {
        let index = segment.index();
        let Some(excess) = index.flow_excess()? else { return Ok(None) };
        let classes = match index.flow_field(Field::Length.name())? {
            Some(lengths) => lengths.of_rows()?,
            None => None,
        };
        let least = |class: &u128| length_class_start(u8::try_from(*class).unwrap_or(u8::MAX));
        let least = classes.iter().flat_map(|classes| &classes.values).map(least).collect();
        Ok(Some(Self { excess, classes, least }))
    }

    /// The bytes of some flows, which ascend.
    pub(super) fn bytes(&self, flows: &[WholeFlow]) -> Result<Vec<u64>, IndexError> {
        let excess = |one: &WholeFlow| self.excess.get(one.flow as usize).copied().unwrap_or(0);
        let mut bytes: Vec<u64> = flows.iter().map(excess).collect();
        let Some(classes) = &self.classes else { return Ok(bytes) };
        let runs: Vec<(u32, u32)> = flows.iter().map(|flow| flow.rows).collect();
        classes.ids_of(&runs, &mut |place, ids| {
            let least = |&id: &u32| self.least.get(id as usize).copied().unwrap_or(0);
            let sum: u64 = ids.iter().map(least).sum();
            bytes[place] = bytes[place].saturating_add(sum);
        })?;
        Ok(bytes)
    }
}

/// A flow that was found whole.
#[derive(Debug, Clone, Copy)]
pub(super) struct WholeFlow {
    pub(super) flow: u32,
    /// Its first and last row.
    pub(super) rows: (u32, u32),
}

/// The flows that runs of rows have whole, and the rows of the others. `starts` has the row that
/// each flow starts at, and the number of rows.
pub(super) fn split(rows: &[(u32, u32)], starts: &[u32]) -> (Vec<WholeFlow>, Vec<(u32, u32)>) {
    let (mut whole, mut parts) = (Vec::new(), Vec::new());
    for_each_flow(rows, starts, &mut |flow, rows| {
        let end = starts.get(flow as usize + 1).map_or(0, |end| end.saturating_sub(1));
        match (starts[flow as usize], end) == rows {
            true => whole.push(WholeFlow { flow, rows }),
            false => parts.push(rows),
        }
    });
    (whole, parts)
}
