//! `tapdex codec sample`: generates sets to try the codecs.

use std::io::Write;

use anyhow::{Context, ensure};
use tapdex_bitmap::sample::Family;

use super::ids;
use crate::cmd::CANNOT_WRITE;

/// Generate a set of ids.
///
/// Prints ids as ranges. The same options give the same ids on every machine:
///
///     tapdex codec sample | tapdex codec stats
///     tapdex codec sample --family uniform --density 0.001 --seed 7 | tapdex codec stats
///     tapdex codec sample --family hipes --rows 10000000 --clusters 100 | head
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(super) struct Args {
    /// Shape of the set.
    #[arg(long, value_enum, default_value_t = Shape::Clustered)]
    family: Shape,
    /// Number of rows, from 1 to 4294967295; all ids are smaller.
    #[arg(
        long,
        value_name = "N",
        default_value_t = 1_000_000,
        value_parser = clap::value_parser!(u32).range(1..)
    )]
    rows: u32,
    /// Share of rows in the set, above 0 and up to 1; hipes does not reach high shares.
    #[arg(
        long,
        value_name = "D",
        default_value_t = 0.05,
        value_parser = parse_density,
        allow_negative_numbers = true
    )]
    density: f64,
    /// For hipes: number of clusters, up to 10000, or 0 for uniform ids [default: 10].
    #[arg(long, value_name = "C", value_parser = clap::value_parser!(u32).range(..=CLUSTERS_MAX))]
    clusters: Option<u32>,
    /// Seed of the random numbers.
    #[arg(long, value_name = "S", default_value_t = 1)]
    seed: u64,
}

/// Each id that is drawn may have to be compared with every stretch.
const CLUSTERS_MAX: i64 = 10_000;
const CLUSTERS_DEFAULT: u32 = 10;
/// Less than one id in the most rows possible; smaller numbers vanish next to 1.
const DENSITY_MIN: f64 = 1e-10;

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Shape {
    /// Every row with the same chance.
    Uniform,
    /// Bursts of 32 rows on average.
    Clustered,
    /// Few long runs and many short ones.
    ZipfRuns,
    /// Nine of ten ids in a few stretches, as in the HiPES paper.
    Hipes,
}

fn parse_density(text: &str) -> Result<f64, &'static str> {
    let density = text.parse().ok().filter(|&density| density > 0.0 && density <= 1.0);
    density.ok_or("expected a number above 0 and up to 1")
}

pub(super) fn run(args: &Args, out: &mut dyn Write) -> anyhow::Result<()> {
    ensure!(
        args.clusters.is_none() || args.family == Shape::Hipes,
        "--clusters is for --family hipes only"
    );
    let density = args.density.max(DENSITY_MIN);
    let family = match args.family {
        Shape::Uniform => Family::Uniform { density },
        Shape::Clustered => Family::Clustered { density },
        Shape::ZipfRuns => Family::ZipfRuns { density },
        Shape::Hipes => {
            let clusters = args.clusters.unwrap_or(CLUSTERS_DEFAULT);
            Family::Hipes { ids: share(args.rows, density), clusters }
        }
    };
    ids::write(&family.ids(args.rows, args.seed), out).context(CANNOT_WRITE)
}

/// This share of the rows, rounded.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "from 0 to rows")]
fn share(rows: u32, density: f64) -> u32 {
    (f64::from(rows) * density).round() as u32
}
