//! Whole segments: sorted by flow, and all columns built.

use tapdex_gpu::flow::measure_segment;
use tapdex_report::{Report, Sheet};

use super::Plan;
use crate::cmd::progress::Progress;

/// Rows of the segments: a segment of an archive has at most the first number.
const ROWS: [usize; 2] = [1 << 22, 1 << 25];
/// Records of a flow, in the mean.
const FLOW_RECORDS: [usize; 2] = [4, 16];

const HEADINGS: [&str; 9] = [
    "records",
    "flows",
    "columns",
    "sort ms",
    "columns ms",
    "M records/s",
    "bytes a record",
    "cores busy",
    "runs",
];

/// Steps of the measurement.
pub(super) const STEPS: usize = ROWS.len() * FLOW_RECORDS.len();

pub(super) fn measure(
    plan: &Plan<'_>,
    report: &mut Report<'_>,
    progress: &Progress,
) -> anyhow::Result<()> {
    let title = "Segments: flows sorted, columns of five-tuple, flags and lengths built, roaring";
    let mut sheet = Sheet::new("gpu-segment", title, &HEADINGS);
    for rows in ROWS.map(|rows| rows.min(plan.rows)) {
        for flow_records in FLOW_RECORDS {
            let flows = rows / flow_records;
            progress.step(&format!("a segment of {rows} records, {flows} flows"));
            let measured = measure_segment(plan.device, rows, flows, plan.runs, plan.seed)?;
            let seconds = measured.sort + measured.build;
            let records = measured.rows as f64;
            sheet.row(vec![
                measured.rows.to_string(),
                measured.flows.to_string(),
                measured.columns.to_string(),
                format!("{:.2}", 1e3 * measured.sort),
                format!("{:.2}", 1e3 * measured.build),
                format!("{:.1}", records / seconds / 1e6),
                format!("{:.3}", measured.bytes_out as f64 / records),
                measured.cores().map_or("-".to_owned(), |cores| format!("{cores:.2}")),
                plan.runs.to_string(),
            ]);
        }
    }
    Ok(report.table(&sheet, None)?)
}
