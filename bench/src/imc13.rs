//! `tapdex-bench imc13`: figures 5 and 6 of the IMC'13 paper, "Indexing million of packets per
//! second using GPUs".

mod fall;
mod figure5;
pub mod gpu;
mod steps;

use std::path::PathBuf;

use anyhow::ensure;
use tapdex_bench::builders;
use tapdex_bench::column::{Column, Shape};
use tapdex_bench::online_wah::OnlineWah;
use tapdex_bench::page::{self, Head, Target};
use tapdex_bitmap::{Bitmap, Chunks, Codec};
use tapdex_engine::index::{Builder, ColumnIndex, CpuBuilder, Digits};
use tapdex_gpu::choice::DeviceChoice;
use tapdex_gpu::measure::peer;

/// The codecs of the paper, and Roaring beside.
const CODECS: [Codec; 3] = [Codec::Wah, Codec::Plwah, Codec::Roaring];
/// The most values: all that 16 bits have.
const VALUES_MAX: usize = 1 << 16;

/// What to measure.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    target: Target,
    /// Records of a column.
    #[arg(long, default_value_t = 20_000_000)]
    records: usize,
    /// Timed rounds; the median counts.
    #[arg(long, default_value_t = 7)]
    rounds: usize,
    /// Seed of the columns.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Threads of the rows that say "all threads"; 0 means one for each core.
    #[arg(long, default_value_t = 0)]
    threads: usize,
    /// GPU to measure beside: auto takes one if it is there, cpu takes none, cuda or cuda:N fails
    /// if it is not there.
    #[arg(long, default_value = "auto")]
    device: DeviceChoice,
    /// Program made from bench/gpu/imc13.cu, to be measured on the same GPU.
    #[arg(long, value_name = "PROGRAM")]
    imc13: Option<PathBuf>,
}

/// A column of the figure's x axis.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Case {
    values: usize,
    bits: u32,
}

/// The paper's five, in 16 bits as it has them; and 256 values in the 8 bits that they need.
const CASES: [Case; 6] = [
    Case { values: 256, bits: 8 },
    Case { values: 256, bits: 16 },
    Case { values: 1_024, bits: 16 },
    Case { values: 4_096, bits: 16 },
    Case { values: 16_384, bits: 16 },
    Case { values: VALUES_MAX, bits: 16 },
];
/// Where the figure starts and where it ends.
const FIRST: Case = CASES[1];
const LAST: Case = CASES[CASES.len() - 1];

impl Case {
    fn column(self, records: usize, seed: u64) -> Column {
        match Column::new(Shape::Uniform, records, self.values, seed) {
            Column::Bytes(digits) if self.bits == 16 => {
                Column::Shorts(digits.into_iter().map(u16::from).collect())
            }
            column => column,
        }
    }

    /// The column, in 16 bits whatever the case says.
    fn shorts(self, records: usize, seed: u64) -> Vec<u16> {
        match self.column(records, seed) {
            Column::Shorts(digits) => digits,
            Column::Bytes(digits) => digits.into_iter().map(u16::from).collect(),
        }
    }

    fn name(self) -> String {
        match self.bits {
            8 => format!("{} values in 8 bits", self.values),
            _ => format!("{} values", self.values),
        }
    }
}

pub fn run(args: &Args) -> anyhow::Result<()> {
    ensure!(args.records > 0 && args.rounds > 0, "nothing would be measured");
    let device = gpu::open(args.device)?;
    let theirs = match &args.imc13 {
        Some(program) => peer::run(program)?,
        None => vec![],
    };
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let threads = if args.threads == 0 { cores } else { args.threads };
    let Args { records, rounds, seed, .. } = *args;
    let peer = if args.imc13.is_some() { " --imc13 PROGRAM" } else { "" };
    let command = format!("imc13 --records {records} --rounds {rounds} --seed {seed}{peer}");
    let gpu_name = device.as_ref().map_or("none".to_owned(), |one| one.facts().name.clone());
    let facts = [
        ("GPU", gpu_name),
        ("columns", format!("{records} records, every value with the same chance, seed {seed}")),
        ("rounds", format!("{rounds}, contestants in turn; medians, after one that warms up")),
        ("all threads", threads.to_string()),
    ];
    let title = "IMC'13, figures 5 and 6: building an index as the number of values grows";
    let head = Head { name: "imc13", title, command: &command, facts: &facts };
    page::write(&args.target, head, |report| {
        figure5::measure(args, threads, device.as_ref(), &theirs, report)?;
        fall::measure(args, report)?;
        steps::measure(args, device.as_ref(), &theirs, report)
    })
}

/// A number for people, or a stroke where there is none.
pub fn cell(value: Option<f64>, digits: usize) -> String {
    value.map_or("-".to_owned(), |value| format!("{value:.digits$}"))
}

/// Million records a second.
fn rate(records: usize, seconds: f64) -> f64 {
    records as f64 / seconds / 1e6
}

/// Fails unless every contestant of the CPU says of a column what the column says.
fn check(column: Digits<'_>, threads: usize) -> anyhow::Result<()> {
    let mut online = OnlineWah::default();
    online.build(column);
    ensure!(builders::equals_wah(&online, column)?, "online WAH and our WAH codec differ");
    let mut rows = Vec::new();
    let ends = match column {
        Digits::Bytes(digits) => builders::sort_rows(digits, VALUES_MAX, &mut rows),
        Digits::Shorts(digits) => builders::sort_rows(digits, VALUES_MAX, &mut rows),
    };
    for codec in CODECS {
        let (mut one, mut all) = (ColumnIndex::default(), ColumnIndex::default());
        CpuBuilder::new(1).build(column, codec, &mut one)?;
        CpuBuilder::new(threads).build(column, codec, &mut all)?;
        ensure!(one == all, "{codec}: {threads} threads give another index");
        ensure!(holds(&one, &rows, &ends)?, "{codec}: not what the column says");
    }
    Ok(())
}

/// Whether an index has for each value the rows that were sorted by value.
fn holds(index: &ColumnIndex, rows: &[u32], ends: &[usize]) -> anyhow::Result<bool> {
    let bytes = index.bitmaps();
    let (mut seen, mut ids) = (0, Vec::new());
    for (key, bounds) in index.keys.iter().zip(index.offsets.windows(2)) {
        let bitmap = &bytes[bounds[0] as usize..bounds[1] as usize];
        ids.clear();
        Bitmap::open(index.codec, bitmap, index.rows)?.chunks().push_ids(&mut ids);
        let end = ends[usize::from(*key)];
        if end < ids.len() || rows[end - ids.len()..end] != ids {
            return Ok(false);
        }
        seen += ids.len();
    }
    Ok(seen == rows.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_index_is_checked_against_its_column() {
        let digits: Vec<u16> = (0..5_000_u32).map(|row| (row * row % 700) as u16).collect();
        check(Digits::Shorts(&digits), 2).unwrap();
        let mut index = ColumnIndex::default();
        CpuBuilder::new(1).build(Digits::Shorts(&digits), Codec::Plwah, &mut index).unwrap();
        let mut rows = Vec::new();
        let ends = builders::sort_rows(&digits, VALUES_MAX, &mut rows);
        assert!(holds(&index, &rows, &ends).unwrap());
        // A value that has a row less, and a row that is another's.
        let place = rows.len() / 2;
        let mut other = rows.clone();
        other[place] = other[place].wrapping_add(1);
        assert!(!holds(&index, &other, &ends).unwrap());
        index.keys.pop();
        index.offsets.pop();
        assert!(!holds(&index, &rows, &ends).unwrap());
    }
}
