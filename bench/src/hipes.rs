//! `tapdex-bench hipes`: table 2 and figures 1 to 3 of the paper that HiPES is from,
//! "High-Throughput Chunk-Based GPU Bitmap Compression for Dense Retrieval Workloads".

mod bitmap_wah;
mod density;
mod scenarios;
mod seeds;
mod widths;

use anyhow::ensure;
use tapdex_bench::page::{self, Head, Target};
use tapdex_bitmap::{Bitmap, Chunks, Codec};
use tapdex_gpu::choice::DeviceChoice;
use tapdex_gpu::sets::scenarios::{SCENARIOS, SEED, Scenario};

use crate::imc13::gpu;
use crate::peers::{LOCK, locked_version};

/// Bytes of the paper's megabyte.
const MEGABYTE: f64 = (1 << 20) as f64;

/// What to measure.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    target: Target,
    /// Only scenarios of these names, S1 to S8.
    #[arg(long, value_delimiter = ',')]
    scenario: Vec<String>,
    /// Timed rounds; the median counts. The widths take three at most.
    #[arg(long, default_value_t = 7)]
    rounds: usize,
    /// Seeds of the experiment with other draws of the clusters.
    #[arg(long, default_value_t = 20)]
    seeds: u64,
    /// GPU to measure beside: auto takes one if it is there, cpu takes none, cuda or cuda:N fails
    /// if it is not there.
    #[arg(long, default_value = "auto")]
    device: DeviceChoice,
}

impl Args {
    /// The scenarios that are asked for.
    fn scenarios(&self) -> Vec<Scenario> {
        let is_wanted = |one: &Scenario| {
            self.scenario.is_empty() || self.scenario.iter().any(|name| name == one.name)
        };
        SCENARIOS.into_iter().filter(is_wanted).collect()
    }
}

pub fn run(args: &Args) -> anyhow::Result<()> {
    let scenarios = args.scenarios();
    ensure!(!scenarios.is_empty(), "--scenario {:?}: there are S1 to S8", args.scenario);
    ensure!(args.rounds > 0, "nothing would be measured");
    let device = gpu::open(args.device)?;
    let mut command = "hipes".to_owned();
    if !args.scenario.is_empty() {
        command += &format!(" --scenario {}", args.scenario.join(","));
    }
    command += &format!(" --rounds {} --seeds {}", args.rounds, args.seeds);
    let gpu_name = device.as_ref().map_or("none".to_owned(), |one| one.facts().name.clone());
    let crates = ["croaring", "croaring-sys", "roaring"]
        .map(|name| format!("{name} {}", locked_version(LOCK, name).unwrap_or("of some version")));
    let facts = [
        ("GPU", gpu_name),
        ("sets", format!("ids drawn as the paper says, seed {SEED}; ascending")),
        (
            "rounds",
            format!(
                "{}, and {} for the widths, contestants in turn; medians, after one that warms up",
                args.rounds,
                widths::rounds(args)
            ),
        ),
        ("megabyte", "2^20 bytes, as in the paper; of the ids, four bytes each".to_owned()),
        ("crates", crates.join(", ")),
    ];
    let title = "HiPES, table 2 and figures 1 to 3: speed and ratio by scenario and by width";
    let head = Head { name: "hipes", title, command: &command, facts: &facts };
    page::write(&args.target, head, |report| {
        scenarios::measure(args, &scenarios, device.as_ref(), report)?;
        seeds::measure(args, &scenarios, report)?;
        widths::measure(args, &scenarios, device.as_ref(), report)?;
        density::measure(report)
    })
}

/// Megabytes of ids a second.
fn speed(ids: usize, seconds: f64) -> f64 {
    4.0 * ids as f64 / MEGABYTE / seconds
}

/// Bytes of the ids over those that became of them.
fn ratio(ids: usize, bytes: usize) -> f64 {
    4.0 * ids as f64 / bytes.max(1) as f64
}

/// Fails unless the bytes say which ids there are, and no others.
fn check(codec: Codec, bytes: &[u8], ids: &[u32], rows: u32) -> anyhow::Result<()> {
    let mut found = Vec::with_capacity(ids.len());
    Bitmap::open(codec, bytes, rows)?.chunks().push_ids(&mut found);
    ensure!(found == ids, "{codec}: not the ids that were encoded");
    Ok(())
}

/// Whether a published ratio, of two digits behind the point, is the measured one.
fn is_same(published: f64, measured: f64) -> bool {
    (published - measured).abs() <= 0.005 + 1e-9
}

/// How far a ratio is from the published one, in percent; "same" if it is the same at its digits.
fn differs(published: f64, measured: f64) -> String {
    match is_same(published, measured) {
        true => "same".to_owned(),
        false => format!("{:+.1}", 100.0 * (measured / published - 1.0)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_are_compared_at_the_digits_that_were_published() {
        assert_eq!(differs(0.03, 0.0319), "same");
        assert_eq!(differs(3.20, 3.198), "same");
        assert_eq!(differs(5.0, 4.5), "-10.0");
        assert!(is_same(0.59, 0.585) && !is_same(0.59, 0.584));
    }

    #[test]
    fn what_is_encoded_is_checked() {
        let ids = [1, 5, 70_000];
        let mut bytes = vec![];
        Codec::Plwah.encode(&ids, &mut bytes);
        check(Codec::Plwah, &bytes, &ids, 100_000).unwrap();
        assert!(check(Codec::Plwah, &bytes, &ids[1..], 100_000).is_err());
    }
}
