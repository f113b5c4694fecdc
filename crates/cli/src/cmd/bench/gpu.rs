//! `tapdex bench gpu`: how fast a GPU builds indexes, compared with the limit of its bus.

mod columns;
mod only;
mod papers;
mod scenarios;
mod segment;

use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;

use tapdex_gpu::choice::DeviceChoice;
use tapdex_gpu::device::Device;
use tapdex_gpu::measure::Bus;
use tapdex_report::{Report, Sheet};

use crate::cmd::progress::Progress;
use crate::cmd::{device, note};
use only::Only;

/// Rows of a column by default.
const ROWS: u32 = 64 << 20;
/// The most rows of a column: the GPU builds no index of more.
const ROWS_MAX: i64 = 1 << 27;
/// Copies that are measured; the fastest one is the limit of the bus.
const BUS_RUNS: usize = 10;

/// Measure how fast a GPU builds indexes, compared with the limit of its bus.
///
/// Measures the bus first. Then indexes generated columns with every codec (columns): 13 columns of
/// 8 bits, as a five-tuple has, and 12 of 16 bits, with uniform values, with Zipf-distributed
/// values (zipf), and with five-tuples in flow order (flows). Times are measured from columns on
/// the host to indexes on the host; the limit is the time that the bus needs for the same bytes.
/// Then sorts and indexes whole segments (segment), encodes sets of ids as in the HiPES paper
/// (scenarios), and repeats the experiments of IMC'13 and GPU-MASC (papers).
///
/// --only selects parts (columns, segment, scenarios, papers), data, codecs and bits. If nothing of
/// a kind is named, all of it is measured:
///
///     tapdex bench gpu --only columns,uniform,8,roaring
///
/// With --out, the tables are also written as Markdown, CSV and plots: tables.md, gpu-*.csv,
/// gpu-*.svg.
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(super) struct Args {
    /// GPU to measure: cuda, or cuda:N with N from 0.
    #[arg(long, value_name = "DEVICE", default_value = "cuda", value_parser = device::parse)]
    device: DeviceChoice,
    /// Rows per column, up to 134217728.
    #[arg(
        long,
        value_name = "N",
        default_value_t = ROWS,
        value_parser = clap::value_parser!(u32).range(1..=ROWS_MAX)
    )]
    rows: u32,
    /// Number of runs; the median, the slowest and the fastest are shown.
    #[arg(
        long,
        value_name = "N",
        default_value_t = 10,
        value_parser = clap::value_parser!(u16).range(1..)
    )]
    runs: u16,
    /// How often a run repeats the columns.
    #[arg(
        long,
        value_name = "N",
        default_value_t = 1,
        value_parser = clap::value_parser!(u16).range(1..)
    )]
    rounds: u16,
    /// Seed of the random numbers.
    #[arg(long, value_name = "S", default_value_t = 1)]
    seed: u64,
    /// Measure only what is named.
    #[arg(long, value_name = "NAME,..", value_delimiter = ',', value_parser = only::parse)]
    only: Vec<String>,
    /// Program built from bench/gpu/imc13.cu, to compare with.
    #[arg(long, value_name = "PROGRAM")]
    imc13: Option<PathBuf>,
    /// Folder for tables and plots; created if it does not exist.
    #[arg(long, value_name = "FOLDER")]
    out: Option<PathBuf>,
}

/// The settings of all measurements.
struct Plan<'a> {
    device: &'a Arc<dyn Device>,
    bus: Bus,
    rows: usize,
    runs: usize,
    rounds: usize,
    seed: u64,
    only: Only,
    imc13: Option<&'a std::path::Path>,
}

pub(super) fn run(args: &Args, out: &mut dyn Write) -> anyhow::Result<()> {
    let device = device::open_gpu(args.device)?;
    let progress = Progress::new();
    progress.stage("measuring the bus");
    let plan = Plan {
        device: &device,
        bus: Bus::measure(&device, BUS_RUNS)?,
        rows: args.rows as usize,
        runs: args.runs.into(),
        rounds: args.rounds.into(),
        seed: args.seed,
        only: Only::new(&args.only),
        imc13: args.imc13.as_deref(),
    };
    let mut report = Report::new(out, args.out.as_deref())?;
    measure(&plan, &mut report, &progress)?;
    let files = report.finish()?;
    drop(progress);
    if let Some(folder) = &args.out {
        note(&format!("wrote {files} files into {}", folder.display()));
    }
    Ok(())
}

/// To add a table, add a line here and a name in [`only::PARTS`].
fn measure(plan: &Plan<'_>, report: &mut Report<'_>, progress: &Progress) -> anyhow::Result<()> {
    progress.steps(steps(plan));
    report.table(&machine(plan), None)?;
    report.table(&bus(&plan.bus), None)?;
    if plan.only.part("columns") {
        columns::measure(plan, report, progress)?;
    }
    if plan.only.part("segment") {
        segment::measure(plan, report, progress)?;
    }
    if plan.only.part("scenarios") {
        scenarios::measure(plan, report, progress)?;
    }
    if plan.only.part("papers") {
        papers::measure(plan, plan.imc13, report, progress)?;
    }
    Ok(())
}

/// The steps that the parts report.
fn steps(plan: &Plan<'_>) -> u64 {
    let parts = [
        ("columns", columns::steps(plan)),
        ("segment", segment::STEPS),
        ("scenarios", scenarios::STEPS),
        ("papers", papers::STEPS + usize::from(plan.imc13.is_some())),
    ];
    let wanted = parts.iter().filter(|(part, _)| plan.only.part(part));
    wanted.map(|&(_, steps)| steps as u64).sum()
}

/// What was measured, and how.
fn machine(plan: &Plan<'_>) -> Sheet {
    let facts = plan.device.facts();
    let mut sheet = Sheet::new("gpu-machine", "What is measured", &["what", "value"]).of_words();
    let mut row = |what: &str, value: String| sheet.row(vec![what.to_owned(), value]);
    row("GPU", facts.name.clone());
    row("its memory", format!("{} MB free", facts.memory_free / 1_000_000));
    row("its multiprocessors", facts.processors.to_string());
    if let Some(version) = driver() {
        row("driver", version);
    }
    if let Some(cpu) = super::processor() {
        row("host", cpu);
    }
    row("tapdex", env!("CARGO_PKG_VERSION").to_owned());
    row("rows of a column", plan.rows.to_string());
    row("runs", format!("{}, besides those that only warm up", plan.runs));
    row("rounds of a run", plan.rounds.to_string());
    row("seed", plan.seed.to_string());
    sheet
}

/// The version of NVIDIA's driver, if the system reports it.
fn driver() -> Option<String> {
    version_in(&std::fs::read_to_string("/proc/driver/nvidia/version").ok()?)
}

/// The first word such as 570.86.15.
fn version_in(text: &str) -> Option<String> {
    let is_version =
        |word: &&str| word.contains('.') && word.split('.').all(|part| part.parse::<u32>().is_ok());
    text.split_whitespace().find(is_version).map(str::to_owned)
}

fn bus(bus: &Bus) -> Sheet {
    let title = "The bus: copies of 256 MiB in pinned memory, the fastest";
    let mut sheet = Sheet::new("gpu-bus", title, &["way", "GB/s"]);
    for (way, rate) in [
        ("to the GPU", bus.to_device),
        ("from the GPU", bus.from_device),
        ("both ways at once, each", bus.both_ways),
        ("filling its memory", bus.on_device),
    ] {
        sheet.row(vec![way.to_owned(), format!("{:.1}", rate / 1e9)]);
    }
    sheet
}

#[cfg(test)]
mod tests {
    use super::*;

    use tapdex_gpu::host::HostDevice;

    #[test]
    fn versions_are_found_in_what_the_driver_says() {
        let closed = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar  5\nGCC";
        assert_eq!(version_in(closed).as_deref(), Some("550.54.15"));
        let open = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.86.15  Release";
        assert_eq!(version_in(open).as_deref(), Some("570.86.15"));
        assert_eq!(version_in("no. version here."), None);
    }

    #[test]
    fn tables_and_plots_of_a_device_that_is_the_host() {
        let device: Arc<dyn Device> = HostDevice::new(1).unwrap();
        let bus = Bus { to_device: 4e9, from_device: 3e9, both_ways: 2e9, on_device: 9e9 };
        let words = ["columns", "uniform", "8", "wah", "hipes"].map(str::to_owned);
        let only = Only::new(&words);
        let plan = Plan {
            device: &device,
            bus,
            rows: 2_000,
            runs: 2,
            rounds: 1,
            seed: 7,
            only,
            imc13: None,
        };
        let folder = tempfile::tempdir().unwrap();
        let mut out = vec![];
        let mut report = Report::new(&mut out, Some(folder.path())).unwrap();
        measure(&plan, &mut report, &Progress::hidden()).unwrap();
        assert_eq!(report.finish().unwrap(), 5);
        let text = String::from_utf8(out).unwrap();
        for expected in ["GPU", "the host", "seed", "to the GPU", "4.0", "wah", "hipes"] {
            assert!(text.contains(expected), "{expected}: {text}");
        }
        assert!(!text.contains("plwah"), "{text}");
        let read = |name: &str| std::fs::read_to_string(folder.path().join(name)).unwrap();
        assert!(read("tables.md").contains("(gpu-columns-uniform-8.svg)"));
        assert_eq!(read("gpu-columns-uniform-8.csv").lines().count(), 3);
        assert!(read("gpu-columns-uniform-8.svg").contains("hipes"));
        assert!(read("gpu-machine.csv").contains("\nseed,7\n"));
    }
}
