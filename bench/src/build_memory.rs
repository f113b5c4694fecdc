//! `tapdex-bench build-memory`: how much memory a builder takes beside its input and its output.

use std::fs::{self, File};
use std::io::Write;
use std::path::PathBuf;

use anyhow::Context;
use tapdex_bench::builders;
use tapdex_bench::column::{Column, Shape};
use tapdex_bitmap::Codec;
use tapdex_engine::index::{ColumnIndex, CpuBuilder};

use crate::build::build_rate;

/// Values of a byte column.
const VALUES: usize = 256;
/// The shapes that the columns take in turn.
const SHAPES: [Shape; 3] = [Shape::Uniform, Shape::Zipf, Shape::Runs];

/// What to build.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Rows of each column.
    #[arg(long, default_value_t = 200_000_000)]
    rows: usize,
    /// How many byte columns are built, one after the other.
    #[arg(long, default_value_t = 13)]
    columns: usize,
    /// The codec of all of them.
    #[arg(long, default_value = "plwah")]
    codec: Codec,
    /// Threads of the builder.
    #[arg(long, default_value_t = 2)]
    threads: usize,
    /// Seed of the first column; the others have the next.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Where the bitmaps are written; without it they are dropped.
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
}

pub fn run(args: &Args) -> anyhow::Result<()> {
    let mut output = args.output.as_ref().map(File::create).transpose()?;
    let mut builder = CpuBuilder::new(args.threads);
    let mut target = ColumnIndex::default();
    let mut largest = 0;
    let start = resident("VmRSS:")?;
    println!(
        "Seed {}, {} columns of {} rows, {}, {} threads.\n",
        args.seed,
        args.columns,
        args.rows,
        builders::name(args.codec),
        args.threads
    );
    println!("| column | shape | M records/s | bytes | bytes a record | peak MB so far |");
    println!("|---:|---|---:|---:|---:|---:|");
    for number in 0..args.columns {
        let shape = SHAPES[number % SHAPES.len()];
        let seed = args.seed + number as u64;
        // Dropped at the end of the turn, so that there is one at a time.
        let column = Column::new(shape, args.rows, VALUES, seed);
        let rate = build_rate(&mut builder, column.digits(), args.codec, &mut target)?;
        if let Some(file) = &mut output {
            target.parts.iter().try_for_each(|part| file.write_all(part))?;
        }
        let bytes = builders::len_bytes(&target);
        largest = largest.max(bytes);
        println!(
            "| {} | {shape:?} | {rate:.1} | {bytes} | {:.2} | {:.1} |",
            number + 1,
            bytes as f64 / args.rows as f64,
            megabytes(resident("VmHWM:")?)
        );
    }
    let peak = resident("VmHWM:")?;
    println!("\n| memory | MB |\n|---|---:|");
    for (name, bytes) in [
        ("peak resident", peak),
        ("resident before the first column", start),
        ("input held: one column", args.rows),
        ("output held: the largest column's bitmaps", largest),
        (
            "the rest: the builder, and slack in the output",
            peak.saturating_sub(start + args.rows + largest),
        ),
    ] {
        println!("| {name} | {:.1} |", megabytes(bytes));
    }
    Ok(())
}

fn megabytes(bytes: usize) -> f64 {
    bytes as f64 / 1e6
}

/// Bytes of this process's memory, as Linux counts them under that name.
fn resident(name: &str) -> anyhow::Result<usize> {
    let status = fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB")).context("no memory count")?;
    Ok(kib.parse::<usize>()? * 1_024)
}
