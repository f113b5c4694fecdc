//! `tapdex-bench codecs`: every codec on four families of sets, beside the peers.

use std::time::Duration;

use tapdex_bench::contest::{self, Encoded, JOBS, Peers, Sets};
use tapdex_bench::{Case, Seconds, cases, race};
use tapdex_bitmap::{ALL_CODECS, Codec};

/// What to measure.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Only cases whose name contains this.
    #[arg(long, default_value = "")]
    case: String,
    /// Only this codec, the roaring codec and the peers.
    #[arg(long)]
    codec: Option<Codec>,
    /// Only the job of this name; the others show no time.
    #[arg(long, value_parser = JOBS)]
    job: Option<String>,
    /// Timed rounds; the median counts.
    #[arg(long, default_value_t = 7)]
    rounds: usize,
    /// Least milliseconds of a round.
    #[arg(long, default_value_t = 20)]
    round_ms: u64,
    /// Seed of the first set; the second has the next.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// The ratio of the peers' times to ours, per case and job.
type Ratios = Vec<(&'static str, [Vec<f64>; 2])>;

pub fn run(args: &Args) -> anyhow::Result<()> {
    println!(
        "Seed {}, {} rounds of at least {} ms each, contestants in turn; medians.",
        args.seed, args.rounds, args.round_ms
    );
    println!(
        "Rates are million ids a second, and after the slash gigabytes of encoded sets a second."
    );
    let mut summary: Ratios = Vec::new();
    for case in cases().iter().filter(|case| case.name.contains(&args.case)) {
        summary.push((case.name, measure(args, case)?));
    }
    println!("\n## Time of the croaring crate over the roaring codec's: above 1, ours is faster\n");
    print_ratios(&summary, 0);
    println!("\n## The same, when croaring is asked for run containers as our codec writes them\n");
    print_ratios(&summary, 1);
    Ok(())
}

fn print_ratios(summary: &Ratios, which: usize) {
    println!("| case | {} |", JOBS.join(" | "));
    println!("|---|{}", "---:|".repeat(JOBS.len()));
    for (name, ratios) in summary {
        let cells: Vec<String> = ratios[which].iter().map(|ratio| format!("{ratio:.2}")).collect();
        println!("| {name} | {} |", cells.join(" | "));
    }
}

fn measure(args: &Args, case: &Case) -> anyhow::Result<[Vec<f64>; 2]> {
    let sets = Sets::new(case, args.seed);
    let codecs: Vec<Codec> = match args.codec {
        Some(codec) => vec![codec, Codec::Roaring],
        None => ALL_CODECS.to_vec(),
    };
    let encoded: Vec<Encoded> = codecs.iter().map(|&codec| Encoded::new(codec, &sets)).collect();
    let roaring = &encoded[encoded.len() - 1];
    let peers = Peers::new(roaring);
    let mut contestants = contest::everybody(&sets, &encoded, &peers)?;

    let round = Duration::from_millis(args.round_ms);
    let seconds: Vec<Vec<Seconds>> = (0..JOBS.len())
        .map(|job| {
            if args.job.as_ref().is_some_and(|only| only != JOBS[job]) {
                return vec![
                    Seconds { median: f64::NAN, min: f64::NAN, max: f64::NAN };
                    contestants.len()
                ];
            }
            let mut jobs: Vec<_> = contestants.iter_mut().map(|one| &mut one.jobs[job]).collect();
            race(args.rounds, round, &mut jobs)
        })
        .collect();

    let wah = Encoded::new(Codec::Wah, &sets).bytes()[0] as f64;
    println!("\n## {}: {} ids of {} rows\n", case.name, sets.pair[0].len(), sets.rows);
    println!("| codec | bytes | of WAH | {} |", JOBS.join(" | "));
    println!("|---|---:|---:|{}", "---:|".repeat(JOBS.len()));
    for (index, contestant) in contestants.iter().enumerate() {
        // The peers hold the containers of our roaring codec.
        let bytes = encoded.get(index).unwrap_or(roaring).bytes();
        let cells: Vec<String> = (0..JOBS.len())
            .map(|job| {
                let time = seconds[job][index].median;
                format!(
                    "{:.0} / {:.1}",
                    sets.work()[job] / time / 1e6,
                    bytes[job] as f64 / time / 1e9
                )
            })
            .collect();
        let size = bytes[0] as f64 / wah;
        println!("| {} | {} | {size:.2} | {} |", contestant.name, bytes[0], cells.join(" | "));
    }
    let ours = encoded.len() - 1;
    for (peer, name) in [(ours + 1, "croaring crate"), (ours + 3, "roaring crate")] {
        let spread: Vec<String> = seconds
            .iter()
            .zip(JOBS)
            .map(|(column, job)| {
                let (us, them) = (column[ours], column[peer]);
                let (worst, best) = (them.min / us.max, them.max / us.min);
                format!("{job} {:.2} ({worst:.2} to {best:.2})", them.median / us.median)
            })
            .collect();
        println!("\n{name}'s time over the roaring codec's: {}.", spread.join(", "));
    }
    let ratio = |peer: usize| {
        seconds.iter().map(move |column| column[peer].median / column[ours].median).collect()
    };
    Ok([ratio(ours + 1), ratio(ours + 2)])
}
