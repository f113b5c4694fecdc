//! `tapdex-bench build`: the index of one column, each codec beside the papers' baseline and peers.

use std::time::{Duration, Instant};

use anyhow::ensure;
use tapdex_bench::builders::{self, Contestant, HIPES_VALUES_MAX};
use tapdex_bench::column::{Column, Shape};
use tapdex_bench::online_wah::OnlineWah;
use tapdex_bench::{Seconds, race};
use tapdex_bitmap::{ALL_CODECS, Codec};
use tapdex_engine::index::{Builder, ColumnIndex, CpuBuilder, Digits};

/// Cases that might write more are left out.
const BYTES_MAX: usize = 4_000_000_000;
/// Contestants before the codecs: online WAH in new memory and in memory that is used again.
const BASELINES: usize = 2;

/// What to measure.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Rows of the column.
    #[arg(long, default_value_t = 20_000_000)]
    rows: usize,
    /// How many values there are; a column has 8 bits a row up to 256, and 16 above.
    #[arg(long, value_delimiter = ',', default_values_t = [256, 1_024, 4_096, 16_384, 65_536])]
    values: Vec<usize>,
    /// Only this shape; uniform and zipf unless said otherwise.
    #[arg(long)]
    shape: Option<Shape>,
    /// Only this codec, online WAH and the peers.
    #[arg(long)]
    codec: Option<Codec>,
    /// Threads of the second table, 2 unless said otherwise; 1 leaves it out. With `--once`, the
    /// threads of the builder, 1 unless said otherwise.
    #[arg(long)]
    threads: Option<usize>,
    /// Timed rounds; the median counts.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Seed of the columns.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Build the first column this often with the codec and do nothing else, for a profiler.
    #[arg(long, requires = "codec", value_name = "TIMES")]
    once: Option<usize>,
}

pub fn run(args: &Args) -> anyhow::Result<()> {
    for values in &args.values {
        ensure!((1..=1 << 16).contains(values), "--values {values}: from 1 to 65536 are possible");
    }
    let shapes = args.shape.map_or(vec![Shape::Uniform, Shape::Zipf], |shape| vec![shape]);
    if let (Some(times), Some(codec)) = (args.once, args.codec) {
        return repeat(args, shapes[0], codec, times);
    }
    println!("Seed {}, {} rows; {} rounds of one build each,", args.seed, args.rows, args.rounds);
    println!(
        "contestants in turn. Rates are million records a second: the median, and the slowest"
    );
    println!(
        "and the fastest round. Our codecs and croaring's sort use their memory again; online"
    );
    println!("WAH is shown both ways. Freeing memory is not timed. HiPES has w = 7 above");
    println!("{HIPES_VALUES_MAX} values.");
    let mut summary = Vec::new();
    for shape in shapes {
        for &values in &args.values {
            summary.push(measure(args, shape, values)?);
        }
    }
    println!(
        "\n## On one thread: rates, times as fast as online WAH, and as it with memory reused\n"
    );
    let names: Vec<&str> = codecs(args).into_iter().map(Codec::name).collect();
    let peers = "roaring crate | croaring crate";
    println!("| column | online WAH | memory reused | {} | {peers} |", names.join(" | "));
    println!("|---|{}", "---:|".repeat(names.len() + BASELINES + 2));
    summary.iter().for_each(|line| println!("{line}"));
    Ok(())
}

fn codecs(args: &Args) -> Vec<Codec> {
    args.codec.map_or(ALL_CODECS.to_vec(), |codec| vec![codec])
}

/// Prints the tables of one column; returns its line of the summary.
fn measure(args: &Args, shape: Shape, values: usize) -> anyhow::Result<String> {
    let column = Column::new(shape, args.rows, values, args.seed);
    let column = column.digits();
    let mut online = OnlineWah::default();
    online.build(column);
    ensure!(builders::equals_wah(&online, column)?, "online WAH and our WAH codec differ");
    drop(online);

    let fitted = codecs(args).into_iter().map(|codec| builders::fitted(codec, values));
    let (codecs, left_out): (Vec<Codec>, Vec<Codec>) =
        fitted.partition(|&codec| builders::bytes_max(codec, args.rows, values) <= BYTES_MAX);
    let threads = args.threads.unwrap_or(2);
    let mut contestants = Vec::from([false, true].map(|reuse| builders::online_wah(column, reuse)));
    for &codec in &codecs {
        contestants.push(builders::ours(column, codec, 1)?);
    }
    contestants.extend([builders::roaring(column), builders::croaring(column)]);
    let singles = contestants.len();
    if threads != 1 {
        for &codec in &codecs {
            contestants.push(builders::ours(column, codec, threads)?);
        }
    }
    let mut jobs: Vec<_> = contestants.iter_mut().map(|one| &mut one.job).collect();
    let seconds = race(args.rounds, Duration::ZERO, &mut jobs);
    let rates: Vec<Rate> = seconds.iter().map(|&time| Rate::new(args.rows, time)).collect();
    let ratio = |a: usize, b: usize| rates[a].median / rates[b].median;

    println!("\n## {shape:?}, {values} values: {} rows\n", args.rows);
    println!("| builder | M/s | range | of online WAH | of it, memory reused | bytes a record |");
    println!("|---|---:|---:|---:|---:|---:|");
    for (index, Contestant { name, bytes, .. }) in contestants[..singles].iter().enumerate() {
        let size = *bytes as f64 / args.rows as f64;
        let (fresh, reused) = (ratio(index, 0), ratio(index, 1));
        println!("| {name} | {} | {fresh:.2} | {reused:.2} | {size:.2} |", rates[index]);
    }
    for codec in left_out {
        println!("\n{} is left out: it might write over 4 GB.", builders::name(codec));
    }
    if threads != 1 {
        println!("\n| {threads} threads | M/s | range | of one thread |");
        println!("|---|---:|---:|---:|");
        for (index, contestant) in contestants.iter().enumerate().skip(singles) {
            let one = index - singles + BASELINES;
            println!("| {} | {} | {:.2} |", contestant.name, rates[index], ratio(index, one));
        }
    }

    let cell = |index: usize| {
        let rate = rates[index].median;
        format!(" {rate:.0} ({:.2}, {:.2}) |", ratio(index, 0), ratio(index, 1))
    };
    let mut line = format!("| {shape:?}, {values} |{}{}", cell(0), cell(1));
    for codec in self::codecs(args) {
        let place = codecs.iter().position(|&taken| taken.id() == codec.id());
        line += &place.map_or(" - |".to_owned(), |place| cell(BASELINES + place));
    }
    Ok(line + &cell(singles - 2) + &cell(singles - 1))
}

/// Million records a second.
struct Rate {
    median: f64,
    slowest: f64,
    fastest: f64,
}

impl Rate {
    fn new(rows: usize, time: Seconds) -> Self {
        let rate = |seconds: f64| rows as f64 / seconds / 1e6;
        Self { median: rate(time.median), slowest: rate(time.max), fastest: rate(time.min) }
    }
}

impl std::fmt::Display for Rate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:.1} | {:.1} to {:.1}", self.median, self.slowest, self.fastest)
    }
}

/// `--once`: nothing but the builder runs after the column is made.
fn repeat(args: &Args, shape: Shape, codec: Codec, times: usize) -> anyhow::Result<()> {
    let values = args.values[0];
    let codec = builders::fitted(codec, values);
    let column = Column::new(shape, args.rows, values, args.seed);
    let mut builder = CpuBuilder::new(args.threads.unwrap_or(1));
    let mut target = ColumnIndex::default();
    for _ in 0..times {
        let rate = build_rate(&mut builder, column.digits(), codec, &mut target)?;
        println!("{shape:?}, {values} values, {}: {rate:.1} M records/s", builders::name(codec));
    }
    Ok(())
}

/// Builds once; million records a second.
pub fn build_rate(
    builder: &mut impl Builder,
    column: Digits<'_>,
    codec: Codec,
    target: &mut ColumnIndex,
) -> anyhow::Result<f64> {
    let start = Instant::now();
    builder.build(column, codec, target)?;
    Ok(column.rows() as f64 / start.elapsed().as_secs_f64() / 1e6)
}
