//! `tapdex-bench masc`: what the MASC paper measures, tables 2 to 4, section V.C, figures 19 to 35.

mod experiments;
mod matching;
mod query;
mod sizes;
mod speed;

use std::path::PathBuf;

use anyhow::ensure;
use tapdex_bench::page::{self, Head, Target};
use tapdex_bench::tuples::{self, TupleSource};
use tapdex_gpu::choice::DeviceChoice;

/// Packets of the trace that the paper uses.
pub const PACKETS: usize = 13_581_810;

/// What to measure.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Packets that are made up.
    #[arg(long, default_value_t = PACKETS)]
    packets: usize,
    /// Seed of the made-up packets.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Timed rounds of the encoding speed; the median counts.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// A folder that has real captures under `large/`; without it, the variable TAPDEX_TRACES
    /// names it.
    #[arg(long, value_name = "DIR")]
    traces: Option<PathBuf>,
    /// GPU to measure figure 35 on: auto, cpu for none, cuda, or cuda:N.
    #[arg(long, value_name = "DEVICE", default_value = "auto")]
    device: DeviceChoice,
    #[command(flatten)]
    target: Target,
}

pub fn run(args: &Args) -> anyhow::Result<()> {
    ensure!(args.packets > 0, "--packets 0: nothing would be measured");
    ensure!(args.rounds > 0, "--rounds 0: nothing would be timed");
    let (packets, seed, rounds) = (args.packets, args.seed, args.rounds);
    let sources = tuples::sources(args.traces.as_deref())?;
    let names: Vec<String> = sources.iter().map(TupleSource::name).collect();
    let head = Head {
        name: "masc",
        title: "MASC: tables 2 to 4, section V.C, figures 19 to 35",
        command: &format!(
            "masc --packets {packets} --seed {seed} --rounds {rounds}{}",
            tuples::traces_option(&sources)
        ),
        facts: &[
            ("packets", format!("{packets} of each kind that is made up, seed {seed}")),
            ("data", names.join(", ")),
            ("columns", "the 13 bytes of the IPv4 five-tuple".to_owned()),
        ],
    };
    page::write(&args.target, head, |report| {
        let mut settings = sizes::Settings::new();
        for source in &sources {
            eprintln!("sizes of {}", source.name());
            settings.measure(source, source.tuples(packets, seed)?)?;
        }
        settings.report(report)?;
        eprintln!("merges of COMPAX2");
        experiments::compax_merges(TupleSource::Calibrated.tuples(packets, seed)?, report)?;
        eprintln!("values that are not alike");
        experiments::skew(TupleSource::Calibrated.tuples(packets, seed)?, seed, report)?;
        eprintln!("sizes of flows");
        experiments::flow_sizes(packets, seed, report)?;
        eprintln!("hosts that come back");
        experiments::hosts(&TupleSource::Calibrated.tuples(packets, seed)?, report)?;
        eprintln!("matching rows and sizes");
        matching::measure(TupleSource::MadeUp.tuples(packets, seed)?, report)?;
        eprintln!("the query table");
        query::measure(TupleSource::Calibrated.tuples(packets, seed)?, seed, report)?;
        eprintln!("speed");
        let calibrated = TupleSource::Calibrated.tuples(packets, seed)?;
        speed::measure(calibrated, rounds, seed, args.device, report)
    })
}
