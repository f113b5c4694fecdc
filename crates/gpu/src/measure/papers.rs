//! The experiments of the papers on GPU-built indexes, on the device at hand.

use std::sync::Arc;
use std::time::Instant;

use tapdex_bitmap::Codec;
use tapdex_bitmap::codec::masc::Windowed;
use tapdex_engine::index::{BuildError, Builder, ColumnIndex, CpuBuilder, Digits, Width};

use super::{Columns, check, median};
use crate::builder::GpuBuilder;
use crate::column::{ColumnSource, Form, Steps};
use crate::device::{Device, DeviceError};

/// How many different values the columns of IMC'13's figure 5 have.
pub const CARDINALITIES: [u64; 5] = [256, 1_024, 4_096, 16_384, 65_536];
/// Records of a column there.
pub const RECORDS: usize = 20_000_000;

/// A column of random values, built alone.
#[derive(Debug, Clone)]
pub struct OneColumn {
    /// How many different values it has.
    pub values: u64,
    /// The codec.
    pub codec: Codec,
    /// Seconds from the column on the host to the index on the host, of each run.
    pub seconds: Vec<f64>,
    /// Seconds of each step, in the mean of the runs.
    pub steps: Steps,
    /// Records a second of ten such columns in a row.
    pub in_a_row: f64,
    /// Bytes of the index.
    pub bytes: u64,
}

/// IMC'13, figures 5 and 6: columns of 16 bits with increasing numbers of values, WAH and PLWAH.
pub fn cardinalities(
    device: &Arc<dyn Device>,
    records: usize,
    runs: usize,
    seed: u64,
) -> Result<Vec<OneColumn>, DeviceError> {
    const IN_A_ROW: usize = 10;
    let mut found = Vec::new();
    for values in CARDINALITIES {
        let columns = Columns::uniform(device, Width::Short, 1, records, values, seed)?;
        for codec in [Codec::Wah, Codec::Plwah] {
            let column =
                columns.digits().map(|digits| (ColumnSource::Rows(digits), Form::Whole(codec)));
            let column: Vec<_> = column.collect();
            let mut alone = GpuBuilder::new(Arc::clone(device)).with_in_flight(1);
            let (mut seconds, mut bytes, mut before) = (Vec::new(), 0, Steps::default());
            for run in 0..super::WARM_UPS + runs {
                if run == super::WARM_UPS {
                    before = alone.steps();
                }
                let start = Instant::now();
                let built = alone.build_sources::<BuildError>(&column, |index| {
                    bytes = index.offsets.last().copied().unwrap_or(0);
                    Ok(())
                });
                if run >= super::WARM_UPS {
                    seconds.push(start.elapsed().as_secs_f64());
                }
                check(&alone, built)?;
            }
            let after = alone.steps();
            #[allow(clippy::cast_precision_loss, reason = "few runs")]
            let mean = |from: f64, to: f64| (to - from) / runs.max(1) as f64;
            let steps = Steps {
                copy_in: mean(before.copy_in, after.copy_in),
                measure: mean(before.measure, after.measure),
                write: mean(before.write, after.write),
                copy_out: mean(before.copy_out, after.copy_out),
            };
            let row = super::measure(device, &columns, codec, IN_A_ROW, runs)?;
            let in_a_row = row.rates().0;
            found.push(OneColumn { values, codec, seconds, steps, in_a_row, bytes });
        }
    }
    Ok(found)
}

/// MASC on the device and on one core of the host.
#[derive(Debug, Clone)]
pub struct MascPair {
    /// What the columns are like.
    pub data: &'static str,
    /// Whether in windows of 3,968 rows, as in the paper, or over the whole column.
    pub in_windows: bool,
    /// Records: rows of all columns.
    pub records: u64,
    /// Seconds on the device, host to host, of each run.
    pub device: Vec<f64>,
    /// Seconds on one core of the host.
    pub core: Vec<f64>,
    /// Bytes of the indexes, the same on both.
    pub bytes: u64,
}

/// GPU-MASC: byte columns in MASC, whole and in windows, compared with one core. Fails if the
/// results differ.
pub fn masc(
    device: &Arc<dyn Device>,
    columns: &Columns,
    runs: usize,
) -> Result<Vec<MascPair>, DeviceError> {
    let mut found = Vec::new();
    for form in [Form::Whole(Codec::Masc), Form::MascWindows] {
        let sources: Vec<_> =
            columns.digits().map(|digits| (ColumnSource::Rows(digits), form)).collect();
        let mut builder = GpuBuilder::new(Arc::clone(device));
        let (mut on_device, mut built_bytes) = (Vec::new(), Vec::new());
        for run in 0..super::WARM_UPS + runs {
            built_bytes.clear();
            let start = Instant::now();
            let built = builder.build_sources::<BuildError>(&sources, |index| {
                built_bytes.push(index.offsets.last().copied().unwrap_or(0));
                Ok(())
            });
            if run >= super::WARM_UPS {
                on_device.push(start.elapsed().as_secs_f64());
            }
            check(&builder, built)?;
        }
        let mut core = Vec::new();
        let mut core_bytes = Vec::new();
        // The first run takes memory.
        for run in 0..3 {
            core_bytes.clear();
            let start = Instant::now();
            for digits in columns.digits() {
                core_bytes.push(masc_on_core(digits, form == Form::MascWindows));
            }
            if run > 0 {
                core.push(start.elapsed().as_secs_f64());
            }
        }
        if core_bytes != built_bytes {
            let why = format!("{built_bytes:?} bytes on the device, {core_bytes:?} on the CPU");
            return Err(DeviceError::Lost { at: "comparing MASC", why });
        }
        found.push(MascPair {
            data: columns.name,
            in_windows: form == Form::MascWindows,
            records: sources.iter().map(|(source, _)| source.rows() as u64).sum(),
            device: on_device,
            core,
            bytes: built_bytes.iter().sum(),
        });
    }
    Ok(found)
}

/// Encodes a column in MASC on the calling thread, whole or in windows; returns the size in bytes.
pub fn masc_on_core(digits: Digits<'_>, in_windows: bool) -> u64 {
    if !in_windows {
        let mut index = ColumnIndex::default();
        let built = CpuBuilder::new(1).build(digits, Codec::Masc, &mut index);
        return built.map_or(0, |()| index.offsets.last().copied().unwrap_or(0));
    }
    // By counting: the rows of each value one after the other, then each value in windows.
    let values: &mut dyn Iterator<Item = u16> = match digits {
        Digits::Bytes(digits) => &mut digits.iter().map(|&digit| digit.into()),
        Digits::Shorts(digits) => &mut digits.iter().copied(),
    };
    let mut rows = vec![Vec::new(); 1 << digits.width().bits()];
    for (row, value) in (0_u32..).zip(values) {
        rows[usize::from(value)].push(row);
    }
    let (mut bytes, mut target) = (0, Vec::new());
    for ids in rows.iter().filter(|ids| !ids.is_empty()) {
        target.clear();
        Windowed::encode(ids, &mut target);
        bytes += target.len() as u64;
    }
    bytes
}

impl MascPair {
    /// Records a second on the device and on the core, in the median.
    pub fn rates(&self) -> (f64, f64) {
        #[allow(clippy::cast_precision_loss, reason = "records, for people")]
        let rate = |seconds: &[f64]| self.records as f64 / median(&mut seconds.to_vec());
        (rate(&self.device), rate(&self.core))
    }
}
