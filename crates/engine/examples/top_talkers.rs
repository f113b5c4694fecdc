//! Prints the addresses that most packets of an archive come from or go to, and packets over time.
//! Run it with `cargo run --example top_talkers ARCHIVE FILTER`.

use std::error::Error;
use std::path::Path;

use tapdex_engine::archive::Archive;
use tapdex_engine::fields;
use tapdex_engine::query::{OverTime, Query, Top, filter::Filter};
use tapdex_engine::time::{TimeRange, format_time};

/// Counts in the index. Packets are read only if the filter needs it.
pub fn run(archive: &str, filter: &str) -> Result<(Top, OverTime), Box<dyn Error>> {
    let archive = Archive::open(Path::new(archive))?;
    let query = Query::new(Filter::parse(filter, 0)?, TimeRange::ALL);
    let mut answers = archive.search(&query)?.records()?;
    let top = answers.top(fields::for_top("addr").ok_or("no such field")?, 10)?;
    for (value, count) in &top.values {
        println!("{count:>10}  {value}");
    }
    // Ten spans over the time that the archive covers.
    let (first, last) = answers.asked_times().ok_or("no packets")?;
    let over_time = answers.over_time(first, (last - first) / 10 + 1, 10)?;
    for (n, count) in (0..).zip(&over_time.counts) {
        println!("{count:>10}  {}", format_time(over_time.start_ns + n * over_time.span_ns));
    }
    for gap in &answers.gaps {
        println!("may be missing: {}: {}", gap.cause.name(), gap.what);
    }
    Ok((top, over_time))
}

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [archive, filter] = &args[..] else { return Err("ARCHIVE FILTER".into()) };
    run(archive, filter).map(drop)
}
