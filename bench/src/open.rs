//! `tapdex-bench open`: how long it takes to open a large index file and to ask it.

use std::fs;
use std::path::PathBuf;
use std::time::Instant;

use anyhow::Context;
use tapdex_bench::column::{Column, Shape};
use tapdex_bitmap::{Chunks, Codec};
use tapdex_engine::index::{
    Builder, ColumnIndex, ColumnSpec, CpuBuilder, Field, Index, IndexWriter, Schema, Width,
};
use tapdex_engine::storage::Disk;

/// Values of a byte column.
const VALUES: usize = 256;

/// What to write and open.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Rows of the table.
    #[arg(long, default_value_t = 20_000_000)]
    rows: usize,
    /// How many byte columns it has, four a field; all of them uniform.
    #[arg(long, default_value_t = 16)]
    columns: usize,
    /// The codec of all of them.
    #[arg(long, default_value = "plwah")]
    codec: Codec,
    /// How often the file is opened.
    #[arg(long, default_value_t = 101)]
    times: usize,
    /// Seed of the first column; the others have the next.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// The file; it is removed at the end.
    #[arg(long, value_name = "FILE", default_value = "open-bench.tdx")]
    file: PathBuf,
}

pub fn run(args: &Args) -> anyhow::Result<()> {
    let bytes = write(args)?;
    println!(
        "Seed {}, {} rows, {} byte columns, {}: a file of {:.2} GB.\n",
        args.seed,
        args.rows,
        args.columns,
        args.codec,
        bytes as f64 / 1e9
    );
    let mut opened = Vec::new();
    for _ in 0..args.times {
        let before = page_faults()?;
        let start = Instant::now();
        let index = Index::open(&args.file)?;
        let seconds = start.elapsed().as_secs_f64();
        opened.push((seconds, page_faults()? - before, index));
    }
    let first = opened[0].0;
    let faults = opened.iter().map(|&(_, faults, _)| faults).max().unwrap_or(0);
    let mut seconds: Vec<f64> = opened.iter().map(|&(seconds, _, _)| seconds).collect();
    seconds.sort_by(f64::total_cmp);
    println!("| page cache warm | microseconds |\n|---|---:|");
    let micro = |what: &str, seconds: f64| println!("| {what} | {:.1} |", 1e6 * seconds);
    micro("opening, first in the process", first);
    micro("opening, median", seconds[seconds.len() / 2]);
    micro("opening, slowest", seconds[seconds.len() - 1]);

    // One index that nothing has touched yet, asked the same twice.
    let index = &opened[opened.len() / 2].2;
    for time in ["first", "second"] {
        let start = Instant::now();
        let found = index.field("f0")?.equals(0x0102_0304)?.count();
        micro(
            &format!("a value of 32 bits, {time} time: {found} rows"),
            start.elapsed().as_secs_f64(),
        );
    }
    for time in ["first", "second"] {
        let start = Instant::now();
        let found = index.field("f0")?.prefix(0x0A0B_0000, 16)?.count();
        micro(
            &format!("a prefix of 16 bits, {time} time: {found} rows"),
            start.elapsed().as_secs_f64(),
        );
    }
    println!("\nPages that opening touched, at most: {faults}.");
    fs::remove_file(&args.file).context("cannot remove the file")
}

/// Writes the file and returns its size.
fn write(args: &Args) -> anyhow::Result<u64> {
    let spec = ColumnSpec { width: Width::Byte, codec: args.codec };
    let fields = (0..args.columns.div_ceil(4)).map(|number| Field {
        name: format!("f{number}"),
        columns: vec![spec; (args.columns - 4 * number).min(4)],
    });
    let schema = Schema { fields: fields.collect() };
    let rows = u32::try_from(args.rows).context("too many rows")?;
    let mut writer = IndexWriter::create(&Disk, &args.file, rows, schema)?;
    let mut builder = CpuBuilder::new(0);
    let mut index = ColumnIndex::default();
    for number in 0..args.columns {
        let column = Column::new(Shape::Uniform, args.rows, VALUES, args.seed + number as u64);
        builder.build(column.digits(), args.codec, &mut index)?;
        writer.column(&index)?;
    }
    Ok(writer.finish()?)
}

/// Page faults of this process so far, those without I/O and those with.
fn page_faults() -> anyhow::Result<u64> {
    let stat = fs::read_to_string("/proc/self/stat")?;
    // Behind the name, which is in brackets and may hold blanks: the 8th and the 10th field.
    let (_, fields) = stat.rsplit_once(')').context("no process state")?;
    let fields: Vec<&str> = fields.split_whitespace().collect();
    let field = |at: usize| fields.get(at).and_then(|text| text.parse::<u64>().ok());
    field(7).zip(field(9)).map(|(minor, major)| minor + major).context("no page faults")
}
