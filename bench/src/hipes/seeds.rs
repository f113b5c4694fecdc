//! The clustered scenarios drawn again and again: how much the ratios depend on the draw.
//!
//! The paper's generator takes its seed from its threads, so that nobody has its sets. Here each
//! scenario is drawn from many seeds, in two ways that have the same clusters. The first is that of
//! the other tables: whatever is drawn twice is drawn anew, and nine of ten draws are in clusters;
//! where these are nearly full, more of the ids that are new lie outside. The second draws until
//! exactly nine of ten *ids* are in clusters.

use tapdex_bitmap::Codec;
use tapdex_bitmap::codec::hipes::Width;
use tapdex_bitmap::sample::{Family, Random};
use tapdex_gpu::sets::scenarios::Scenario;
use tapdex_report::{Bar, Bars, Plot, Report, Sheet};

use super::{Args, differs, ratio};

/// Draws an id at most: enough unless the clusters are nearly full.
const DRAWS_MAX: u64 = 64;
/// Section 5.2 of the paper: the ratio of S5 at w = 7.
pub const PUBLISHED_S5: f64 = 0.85;

/// The clusters of a scenario, and the numbers that follow after they were drawn.
struct Clusters {
    starts: Vec<u32>,
    span: u32,
    random: Random,
}

impl Clusters {
    /// As [`Family::Hipes`] draws them.
    fn new(scenario: &Scenario, seed: u64) -> Self {
        let mut random = Random::new(seed);
        let span = scenario.rows / scenario.clusters.max(1).saturating_mul(5);
        let end = scenario.rows - span.min(scenario.rows - 1);
        let starts = (0..scenario.clusters).map(|_| random.below(end)).collect();
        Self { starts, span, random }
    }

    fn contains(&self, id: u32) -> bool {
        self.starts.iter().any(|&start| id.wrapping_sub(start) < self.span)
    }

    /// The share of ids that lie outside, in percent.
    fn outside(&self, ids: &[u32]) -> f64 {
        let outside = ids.iter().filter(|&&id| !self.contains(id)).count();
        100.0 * outside as f64 / ids.len().max(1) as f64
    }

    /// Ids of which exactly nine of ten are in clusters.
    fn exact(&mut self, scenario: &Scenario) -> Vec<u32> {
        let mut words = vec![0_u64; (scenario.rows / 64 + 1) as usize];
        let mut add = |id: u32| {
            let (word, bit) = (&mut words[(id / 64) as usize], 1 << (id % 64));
            let is_new = *word & bit == 0;
            *word |= bit;
            u32::from(is_new)
        };
        let inside = scenario.ids / 10 * 9;
        let (mut count, mut draws) = (0, DRAWS_MAX * u64::from(scenario.ids));
        while count < inside && draws > 0 {
            let start = self.starts[self.random.below(scenario.clusters) as usize];
            count += add(start + self.random.below(self.span.max(1)));
            draws -= 1;
        }
        while count < scenario.ids && draws > 0 {
            let id = self.random.below(scenario.rows);
            if !self.contains(id) {
                count += add(id);
            }
            draws -= 1;
        }
        let mut ids = Vec::with_capacity(count as usize);
        for (word, base) in words.into_iter().zip((0..).step_by(64)) {
            let mut rest = word;
            while rest != 0 {
                ids.push(base + rest.trailing_zeros());
                rest &= rest - 1;
            }
        }
        ids
    }
}

/// How ids are drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Draw {
    AsElsewhere,
    Exact,
}

/// What a seed gives.
#[derive(Debug, Clone, Copy)]
struct Found {
    wah: f64,
    hipes: f64,
    outside: f64,
}

fn measure_seed(scenario: &Scenario, draw: Draw, seed: u64) -> Found {
    let mut clusters = Clusters::new(scenario, seed);
    let ids = match draw {
        Draw::AsElsewhere => {
            let family = Family::Hipes { ids: scenario.ids, clusters: scenario.clusters };
            family.ids(scenario.rows, seed)
        }
        Draw::Exact => clusters.exact(scenario),
    };
    let mut bytes = Vec::new();
    let mut ratio_of = |codec: Codec| {
        bytes.clear();
        codec.encode(&ids, &mut bytes);
        ratio(ids.len(), bytes.len())
    };
    let narrow = Width::new(7).map_or(Codec::Wah, Codec::Hipes);
    let (wah, hipes) = (ratio_of(Codec::Wah), ratio_of(narrow));
    Found { wah, hipes, outside: clusters.outside(&ids) }
}

/// All seeds, side by side, since nothing is timed.
fn measure_seeds(scenario: &Scenario, draw: Draw, seeds: u64) -> Vec<Found> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let one = |thread: usize| {
        (1..=seeds).skip(thread).step_by(threads).map(|seed| measure_seed(scenario, draw, seed))
    };
    std::thread::scope(|scope| {
        let all: Vec<_> =
            (0..threads).map(|thread| scope.spawn(move || one(thread).collect())).collect();
        let found = all.into_iter().filter_map(|thread| thread.join().ok());
        found.collect::<Vec<Vec<Found>>>().concat()
    })
}

/// Least, middle and most.
fn spread(values: impl Iterator<Item = f64>) -> [f64; 3] {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    let at = |place: usize| values.get(place).copied().unwrap_or(f64::NAN);
    [at(0), at(values.len() / 2), at(values.len().saturating_sub(1))]
}

/// Whether a published ratio, of two digits, may be one of those between the least and the most.
fn is_within(published: f64, [least, _, most]: [f64; 3]) -> bool {
    published + 0.005 >= least && published - 0.005 <= most
}

pub fn measure(args: &Args, scenarios: &[Scenario], report: &mut Report<'_>) -> anyhow::Result<()> {
    let title = format!("The clustered scenarios from {} seeds: ratios", args.seeds);
    let headings = [
        "scenario",
        "encoder",
        "ids in clusters",
        "outside, %",
        "least",
        "middle",
        "most",
        "published",
        "middle differs, %",
        "published within",
    ];
    let mut sheet = Sheet::new("seeds", &title, &headings);
    let mut bars = vec![];
    for scenario in scenarios.iter().filter(|one| one.clusters > 0 && args.seeds > 0) {
        eprintln!("seeds: {}", scenario.name);
        for (draw, name, short) in
            [(Draw::AsElsewhere, "9 of 10 draws", "draws"), (Draw::Exact, "9 of 10 ids", "ids")]
        {
            let found = measure_seeds(scenario, draw, args.seeds);
            let outside = spread(found.iter().map(|one| one.outside))[1];
            let mut rows = vec![(
                "wah",
                spread(found.iter().map(|one| one.wah)),
                scenario.published.wah_ratio,
            )];
            if scenario.name == "S5" {
                let hipes = spread(found.iter().map(|one| one.hipes));
                rows.push(("hipes, w = 7", hipes, PUBLISHED_S5));
            }
            for (encoder, range, published) in rows {
                let mut cells = vec![scenario.name.to_owned(), encoder.to_owned(), name.to_owned()];
                cells.push(format!("{outside:.2}"));
                cells.extend(range.map(|ratio| format!("{ratio:.3}")));
                cells.push(format!("{published:.2}"));
                cells.push(differs(published, range[1]));
                cells.push(if is_within(published, range) { "yes" } else { "no" }.to_owned());
                sheet.row(cells);
                let codec = encoder.split(',').next().unwrap_or(encoder);
                let label = format!("{} {codec}, {short}", scenario.name);
                bars.push(Bar { label, value: range[1], mark: Some(published) });
            }
        }
    }
    if sheet.is_empty() {
        return Ok(());
    }
    sheet.remarks.push(
        "9 of 10 draws: as in the other tables; whatever was drawn before is drawn anew, and nine \
         of ten of these draws are in clusters. 9 of 10 ids: drawn until nine of ten different ids \
         are in clusters. Both have the same clusters for the same seed."
            .to_owned(),
    );
    let plot = Plot::Bars(Bars {
        title,
        unit: "bytes of the ids over bytes of the output, the middle of all seeds".to_owned(),
        mark: Some("published".to_owned()),
        bars,
    });
    Ok(report.table(&sheet, Some(&plot))?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tapdex_gpu::sets::scenarios::SCENARIOS;

    fn small(ids: u32, rows: u32) -> Scenario {
        Scenario { ids, rows, clusters: 10, ..SCENARIOS[5] }
    }

    #[test]
    fn clusters_are_those_that_the_family_draws() {
        // So few ids that hardly any is drawn twice.
        let scenario = small(20_000, 50_000_000);
        let ids = Family::Hipes { ids: scenario.ids, clusters: 10 }.ids(scenario.rows, 3);
        let outside = Clusters::new(&scenario, 3).outside(&ids);
        assert!((9.0..11.0).contains(&outside), "{outside}");
        let other = Clusters::new(&scenario, 4).outside(&ids);
        assert!(other > 30.0, "{other}");
    }

    #[test]
    fn exactly_nine_of_ten_ids_are_in_clusters() {
        let scenario = small(10_000, 100_000);
        let mut clusters = Clusters::new(&scenario, 1);
        let ids = clusters.exact(&scenario);
        assert!(ids.len() == 10_000 && ids.is_sorted_by(|a, b| a < b));
        assert_eq!(clusters.outside(&ids), 10.0);
    }

    #[test]
    fn published_digits_may_have_been_rounded() {
        assert!(is_within(0.59, [0.57, 0.576, 0.585]));
        assert!(!is_within(5.09, [4.3, 4.4, 4.42]));
        assert_eq!(spread([3.0, 1.0, 2.0].into_iter()), [1.0, 2.0, 3.0]);
    }
}
