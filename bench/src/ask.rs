//! `tapdex-bench ask`: how long one process takes to answer filters from an archive.
//!
//! `beside` starts it from two builds: linked into one program, they would be the same build.

use std::path::PathBuf;
use std::time::Instant;

use tapdex_engine::archive::Archive;
use tapdex_engine::query::Query;
use tapdex_engine::query::filter::{Filter, Syntax};
use tapdex_engine::time::TimeRange;

/// What to ask.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The archive.
    archive: PathBuf,
    /// A filter of tcpdump's.
    filter: String,
    /// How often to ask; the median counts.
    #[arg(long, default_value_t = 21)]
    rounds: usize,
}

/// Prints how many packets match, and the seconds that it took to open the archive, read the filter
/// and count.
pub fn run(args: &Args) -> anyhow::Result<()> {
    anyhow::ensure!(args.rounds > 0, "no rounds: nothing would be timed");
    let mut seconds = Vec::new();
    let mut found = 0;
    for _ in 0..args.rounds {
        let start = Instant::now();
        let filter = Filter::parse_as(Syntax::Pcap, &args.filter, 0)?;
        let query = Query::new(filter, TimeRange::ALL);
        let answers = Archive::open(&args.archive)?.search(&query)?.count()?;
        seconds.push(start.elapsed().as_secs_f64());
        anyhow::ensure!(answers.is_complete(), "{}: {:?}", args.filter, answers.gaps);
        found = answers.count();
    }
    seconds.sort_by(f64::total_cmp);
    println!("{found} {:.9}", seconds[seconds.len() / 2]);
    Ok(())
}
