//! `tapdex-bench peers`: building, sizes and set algebra beside croaring and roaring; searching
//! beside tcpdump, tshark, DuckDB over Parquet, and a croaring bitmap for each value.

mod bitmaps;
mod building;
mod duckdb;
mod searching;
mod sets;

use std::path::PathBuf;

use anyhow::ensure;
use tapdex_bench::Seconds;
use tapdex_bench::page::{self, Head, Target};

use crate::archive::captures::{self, Folder};
use crate::archive::{machine, process};
use duckdb::DuckDb;

/// What to measure.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    target: Target,
    /// Only these parts, with commas between.
    #[arg(long, value_delimiter = ',', value_name = "PART")]
    only: Vec<Part>,
    /// Rows of the columns that are built.
    #[arg(long, default_value_t = 20_000_000)]
    rows: usize,
    /// Only sets whose name contains this.
    #[arg(long, default_value = "")]
    case: String,
    /// Least milliseconds of a round of set algebra.
    #[arg(long, default_value_t = 10)]
    round_ms: u64,
    /// Packets of each of the two captures that are searched.
    #[arg(long, default_value_t = 5_000_000)]
    packets: u64,
    /// Where captures and archives go, to be kept there, and captures used again; without it, into
    /// a temporary folder that is removed at the end.
    #[arg(long, value_name = "DIR")]
    folder: Option<PathBuf>,
    /// Leave tshark out.
    #[arg(long)]
    skip_tshark: bool,
    /// The program that is measured as a process.
    #[arg(long, value_name = "FILE", default_value = "target/release/tapdex")]
    tapdex: PathBuf,
    /// The Python interpreter that has the module duckdb; without that, DuckDB is left out.
    #[arg(long, value_name = "PROGRAM", default_value = "python3")]
    python: PathBuf,
    /// Timed rounds; the median counts.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Seed of columns, sets and captures.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// A part of the measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Part {
    /// Building the index of one column.
    Building,
    /// Sizes of sets, AND, OR and counting.
    Sets,
    /// Indexing captures and searching them.
    Searching,
}

impl Args {
    fn has(&self, part: Part) -> bool {
        self.only.is_empty() || self.only.contains(&part)
    }

    /// Subcommand and arguments that give the same page again, without paths.
    fn command(&self) -> String {
        let mut command = String::from("peers");
        let parts: Vec<String> =
            self.only.iter().map(|part| format!("{part:?}").to_lowercase()).collect();
        if !parts.is_empty() {
            command += &format!(" --only {}", parts.join(","));
        }
        if self.has(Part::Building) {
            command += &format!(" --rows {}", self.rows);
        }
        if self.has(Part::Sets) && !self.case.is_empty() {
            command += &format!(" --case '{}'", self.case);
        }
        if self.has(Part::Searching) {
            command += &format!(" --packets {} --python PYTHON", self.packets);
            command += if self.skip_tshark { " --skip-tshark" } else { "" };
        }
        format!("{command} --rounds {} --seed {}", self.rounds, self.seed)
    }
}

pub fn run(args: &Args) -> anyhow::Result<()> {
    ensure!(args.rounds > 0, "--rounds 0: nothing would be timed");
    ensure!(args.rows > 0, "--rows 0: nothing would be built");
    args.target.check()?;
    let crates = ["croaring", "croaring-sys", "roaring"]
        .map(|name| format!("{name} {}", locked_version(LOCK, name).unwrap_or("of some version")));
    let mut facts = vec![
        ("seed", args.seed.to_string()),
        ("taken", format!("contestants in turn, {} rounds, the median", args.rounds)),
        ("crates", crates.join(", ")),
    ];
    let command = args.command();
    let title = "Building, set algebra and searching, beside other libraries and programs";
    let head = |facts| Head { name: "peers", title, command: &command, facts };
    let libraries = |report: &mut tapdex_report::Report<'_>| {
        if args.has(Part::Building) {
            building::report(args, report)?;
        }
        if args.has(Part::Sets) {
            sets::report(args, report)?;
        }
        anyhow::Ok(())
    };
    if !args.has(Part::Searching) {
        return page::write(&args.target, head(&facts), libraries);
    }

    ensure!(args.packets >= 1_000, "--packets {}: too few to find anything", args.packets);
    let tshark = !args.skip_tshark;
    process::ensure_programs(&args.tapdex, tshark)?;
    let duckdb = DuckDb::start(&args.python)?;
    let version = duckdb.as_ref().map_or("no DuckDB", |duckdb| &duckdb.version);
    facts.push(("programs", format!("{}; {version}", machine::peers(tshark))));
    let folder = Folder::new(args.folder.as_deref())?;
    let packets = captures::packets_that_fit(&folder, args.packets, args.seed)?;
    ensure!(packets == args.packets, "the disk has room for --packets {packets} at most");
    page::write(&args.target, head(&facts), |report| {
        libraries(report)?;
        searching::report(args, &folder, duckdb, report)
    })
}

/// The versions that were built in.
pub const LOCK: &str = include_str!("../Cargo.lock");

/// The version of a crate that was built in.
pub fn locked_version<'a>(lock: &'a str, name: &str) -> Option<&'a str> {
    let package = lock.split("[[package]]").find(|package| {
        package.lines().any(|line| line.strip_prefix("name = ") == Some(&format!("\"{name}\"")))
    })?;
    let version = package.lines().find_map(|line| line.strip_prefix("version = "))?;
    Some(version.trim_matches('"'))
}

/// A number with three digits that count, or more before the point.
fn digits(value: f64) -> String {
    let decimals = match value.abs() {
        value if value >= 100.0 => 0,
        value if value >= 10.0 => 1,
        value if value >= 1.0 => 2,
        _ => 3,
    };
    format!("{value:.decimals$}")
}

/// How many times as long one takes as another.
fn ratio(slow: Seconds, fast: Seconds) -> f64 {
    slow.median / fast.median
}

/// How far the rounds of a contestant were apart, over all that was asked of it.
fn spread(name: &str, times: impl Iterator<Item = Seconds>) -> Option<String> {
    let mut spreads: Vec<f64> = times.map(|time| time.max / time.min).collect();
    spreads.sort_by(f64::total_cmp);
    let (middle, most) = (spreads.get(spreads.len() / 2)?, spreads.last()?);
    Some(format!("{name} {middle:.2}, at most {most:.2}"))
}

/// The line below a table that says how far rounds were apart.
fn spreads(parts: impl IntoIterator<Item = Option<String>>) -> String {
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    format!("Slowest round over fastest, in the middle of all lines: {}.", parts.join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crates_are_told_apart_by_their_whole_names() {
        let lock = "[[package]]\nname = \"croaring-sys\"\nversion = \"5.2.2\"\n\n[[package]]\n\
                    name = \"roaring\"\nversion = \"0.11.5\"\ndependencies = [\n]\n";
        assert_eq!(locked_version(lock, "roaring"), Some("0.11.5"));
        assert_eq!(locked_version(lock, "croaring-sys"), Some("5.2.2"));
        assert_eq!(locked_version(lock, "croaring"), None);
        assert!(locked_version(LOCK, "croaring").is_some());
    }

    #[test]
    fn three_digits_count() {
        assert_eq!(
            [0.1234, 1.234, 12.34, 123.4, 1234.5].map(digits),
            ["0.123", "1.23", "12.3", "123", "1234"]
        );
    }
}
