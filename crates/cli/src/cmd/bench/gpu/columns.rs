//! Columns of generated data, in every codec.

use tapdex_bitmap::Codec;
use tapdex_engine::index::{Digits, Width};
use tapdex_gpu::device::DeviceError;
use tapdex_gpu::measure::{self, Columns, Measured, TUPLE};
use tapdex_report::{Bar, Bars, Plot, Report, Sheet};

use super::{Plan, only};
use crate::cmd::progress::Progress;

/// Bytes of a column in HiPES beyond which it is left out: a set of few ids takes a whole chunk.
const HIPES_BYTES_MAX: u64 = 8 << 30;

const HEADINGS: [&str; 9] = [
    "codec",
    "G records/s",
    "least",
    "most",
    "kernels alone",
    "bytes a record",
    "limit",
    "percent",
    "both busy",
];

/// Steps of the measurement: generating each data set, and each codec.
pub(super) fn steps(plan: &Plan<'_>) -> usize {
    let widths = [Width::Byte, Width::Short].into_iter().filter(|&width| plan.only.width(width));
    let data = only::DATA.into_iter().filter(|data| plan.only.data(data));
    widths.count() * data.count() * (1 + plan.only.codecs().count())
}

pub(super) fn measure(
    plan: &Plan<'_>,
    report: &mut Report<'_>,
    progress: &Progress,
) -> anyhow::Result<()> {
    for width in [Width::Byte, Width::Short] {
        for data in only::DATA {
            if plan.only.width(width) && plan.only.data(data) {
                data_set(plan, data, width, report, progress)?;
            }
        }
    }
    Ok(())
}

fn data_set(
    plan: &Plan<'_>,
    data: &str,
    width: Width,
    report: &mut Report<'_>,
    progress: &Progress,
) -> anyhow::Result<()> {
    let bits = width.bits();
    progress.step(&format!("making up columns of {bits} bits, {data}"));
    let columns = make(plan, data, width)?;
    let count = columns.digits().count();
    let mut sheet = Sheet::new(
        &format!("gpu-columns-{data}-{bits}"),
        &format!("{count} columns of {bits} bits, {} rows each, {}", plan.rows, columns.name),
        &HEADINGS,
    );
    let mut bars = Bars {
        title: sheet.title.clone(),
        unit: "G records/s from host to host, the median".to_owned(),
        mark: Some("the limit of the bus".to_owned()),
        bars: vec![],
    };
    for codec in plan.only.codecs() {
        let name = codec.name();
        if let Some(bytes) = too_large(&columns, codec) {
            let gib = bytes >> 30;
            sheet.remarks.push(format!("{name}: left out, a column would take {gib} GiB"));
            continue;
        }
        progress.step(&format!("{bits} bits, {data}: {name}"));
        match measure::measure(plan.device, &columns, codec, plan.rounds, plan.runs) {
            Ok(measured) => row(plan, &measured, &mut sheet, &mut bars),
            Err(error @ DeviceError::OutOfMemory { .. }) => {
                sheet.remarks.push(format!("{name}: left out, {error}"));
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(report.table(&sheet, Some(&Plot::Bars(bars)))?)
}

fn make(plan: &Plan<'_>, data: &str, width: Width) -> Result<Columns, DeviceError> {
    let (device, rows, seed) = (plan.device, plan.rows, plan.seed);
    let columns = match width {
        Width::Byte => TUPLE,
        Width::Short => TUPLE - 1,
    };
    match data {
        "uniform" => Columns::uniform(device, width, columns, rows, 1 << width.bits(), seed),
        "zipf" => Columns::zipf(device, width, columns, rows, seed),
        _ => Columns::flows(device, width, rows, seed),
    }
}

fn row(plan: &Plan<'_>, measured: &Measured, sheet: &mut Sheet, bars: &mut Bars) {
    let (median, least, most) = measured.rates();
    let records = measured.records as f64;
    let limit = records / plan.bus.least(measured.bytes_in, measured.bytes_out);
    let both_busy = records / plan.bus.both_busy(measured.bytes_in, measured.bytes_out);
    let giga = |rate: f64| format!("{:.2}", rate / 1e9);
    sheet.row(vec![
        measured.codec.name().to_owned(),
        giga(median),
        giga(least),
        giga(most),
        giga(records / measured.kernels),
        format!("{:.3}", measured.bytes_out as f64 / records),
        giga(limit),
        format!("{:.1}", 100.0 * median / limit),
        format!("{:.1}", 100.0 * median / both_busy),
    ]);
    bars.bars.push(Bar {
        label: measured.codec.name().to_owned(),
        value: median / 1e9,
        mark: Some(limit / 1e9),
    });
}

/// The bytes of the largest column, if they are too many.
fn too_large(columns: &Columns, codec: Codec) -> Option<u64> {
    let Codec::Hipes(width) = codec else { return None };
    let chunk_bytes = width.chunk_bytes() as u64;
    let bytes = columns.digits().map(|digits| chunks(digits, 1 << width.get()) * chunk_bytes);
    bytes.max().filter(|&bytes| bytes > HIPES_BYTES_MAX)
}

/// The chunks of all values of a column together.
fn chunks(digits: Digits<'_>, chunk_rows: usize) -> u64 {
    fn count<T: Copy + Into<usize>>(digits: &[T], chunk_rows: usize) -> u64 {
        let mut seen = vec![0_u32; 1 << 16];
        let mut chunks = 0;
        for (number, chunk) in (1..).zip(digits.chunks(chunk_rows)) {
            for &digit in chunk {
                let last = &mut seen[digit.into()];
                chunks += u64::from(*last != number);
                *last = number;
            }
        }
        chunks
    }
    match digits {
        Digits::Bytes(digits) => count(digits, chunk_rows),
        Digits::Shorts(digits) => count(digits, chunk_rows),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_are_those_that_hipes_writes() {
        use tapdex_engine::index::{Builder, ColumnIndex, CpuBuilder};
        let digits: Vec<u16> = (0..5_000_u32).map(|row| (row * row % 701) as u16).collect();
        let codec = tapdex_bitmap::codec::hipes::Width::new(7).map(Codec::Hipes).unwrap();
        let Codec::Hipes(width) = codec else { panic!("{codec}") };
        let mut index = ColumnIndex::default();
        CpuBuilder::new(1).build(Digits::Shorts(&digits), codec, &mut index).unwrap();
        let written: usize = index.parts.iter().map(|part| part.len()).sum();
        let counted = chunks(Digits::Shorts(&digits), 128);
        assert_eq!(written as u64, counted * width.chunk_bytes() as u64);
    }
}
