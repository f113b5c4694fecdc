//! `tapdex index-file get`: finds rows.

use std::io::{self, Write};
use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Context, bail};
use tapdex_bitmap::{Chunks, intersection, union};
use tapdex_engine::IndexError;
use tapdex_engine::index::{Index, Packed, Rows};

use super::condition::Condition;
use crate::cmd::codec::ids;
use crate::cmd::{CANNOT_WRITE, note};

/// List the rows of an index file that meet conditions.
///
/// Prints row numbers, from 0, in the order of the original table:
///
///     tapdex index-file get flows.tdx port=443
///     tapdex index-file get flows.tdx 'src=10.0.0.0/8' 'port!=53' --count
///     tapdex index-file get flows.tdx port=53,1000..2000 src=10.0.0.1,0x0A000002 --any --ranges
///
/// A condition is FIELD=VALUES, or FIELD!=VALUES for all other rows. Values are separated by
/// commas. A value is a number or an address, as for build; a range such as 1000..2000; or a prefix
/// such as 10.0.0.0/8, for all values that start with the same bits. A row must meet all
/// conditions, or at least one with --any.
///
/// The number of rows and the search time are printed on standard error. Each printed row takes 4
/// bytes of memory.
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(super) struct Args {
    /// Index file.
    #[arg(value_name = "INDEX")]
    path: PathBuf,
    /// Conditions that rows must meet.
    #[arg(value_name = "CONDITION", required = true)]
    conditions: Vec<String>,
    /// List rows that meet at least one condition.
    #[arg(long)]
    any: bool,
    /// Print only the number of rows.
    #[arg(long, conflicts_with_all = ["ranges", "times"])]
    count: bool,
    /// Print consecutive rows as ranges, such as 44-80.
    #[arg(long, conflicts_with = "times")]
    ranges: bool,
    /// Print a tab and the time after each row.
    #[arg(long)]
    times: bool,
}

pub(super) fn run(args: &Args, out: &mut dyn Write) -> anyhow::Result<()> {
    let start = Instant::now();
    let index = Index::open(&args.path)?;
    let in_file = || format!("cannot read {}", args.path.display());
    let times = match args.times {
        true => index.times().with_context(in_file)?,
        false => None,
    };
    if args.times && times.is_none() {
        bail!("--times: {} has no times; build it with --time", args.path.display());
    }
    let conditions = args.conditions.iter().map(|text| Condition::parse(&index, text));
    let conditions = conditions.collect::<anyhow::Result<Vec<_>>>()?;
    let rows = join(&conditions, args.any, index.rows()).with_context(in_file)?;
    let (count, found) = match args.count {
        true => (rows.count(), Vec::new()),
        false => {
            let found = records(&index, rows).with_context(in_file)?;
            (found.len() as u64, found)
        }
    };
    let taken = start.elapsed();
    match (args.count, &times) {
        (true, _) => writeln!(out, "{count}").context(CANNOT_WRITE)?,
        (_, Some(times)) => write_times(&found, times, &in_file, out)?,
        _ if args.ranges => ids::write(&found, out).context(CANNOT_WRITE)?,
        _ => write_rows(&found, out).context(CANNOT_WRITE)?,
    }
    out.flush().context(CANNOT_WRITE)?;
    let milliseconds = 1e3 * taken.as_secs_f64();
    note(&format!("matched {count} of {} rows in {milliseconds:.2} ms", index.rows()));
    Ok(())
}

/// The rows that meet all conditions, or any of them.
fn join<'i>(conditions: &[Condition<'i>], any: bool, rows: u32) -> Result<Rows<'i>, IndexError> {
    let parts = conditions.iter().map(|condition| condition.rows(rows));
    let mut parts = parts.collect::<Result<Vec<_>, _>>()?;
    Ok(match parts.len() {
        1 => parts.remove(0),
        _ if any => Box::new(union(parts)),
        _ => Box::new(intersection(parts)),
    })
}

/// The records that rows stand for, ascending.
fn records(index: &Index, rows: Rows<'_>) -> Result<Vec<u32>, IndexError> {
    let mut found = Vec::new();
    rows.push_ids(&mut found);
    if let Some(map) = index.row_map()? {
        let mut records = Vec::with_capacity(found.len());
        map.records(&found, &mut records)?;
        records.sort_unstable();
        found = records;
    }
    Ok(found)
}

/// Writes a number a line.
fn write_rows(rows: &[u32], out: &mut dyn Write) -> io::Result<()> {
    rows.iter().try_for_each(|row| writeln!(out, "{row}"))
}

fn write_times(
    rows: &[u32],
    times: &Packed<'_>,
    in_file: &dyn Fn() -> String,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    for &row in rows {
        let time = times.get(row).with_context(in_file)?;
        writeln!(out, "{row}\t{time}").context(CANNOT_WRITE)?;
    }
    Ok(())
}
