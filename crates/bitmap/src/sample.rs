//! Generated sets, the same for the same seed on every machine: for tests, benchmarks and examples.

use crate::cast::low32;

/// A shape of set that indexes of packet headers contain.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Family {
    /// Every row with the same chance.
    Uniform {
        /// That chance, from 0 to 1.
        density: f64,
    },
    /// Bursts: runs of neighbouring rows, of 32 rows on average, with gaps between them that keep
    /// the density. What a column of packets in order of arrival looks like.
    Clustered {
        /// The share of rows in the set, from 0 to 1.
        density: f64,
    },
    /// Few long runs and many short ones, their lengths after Zipf's law. What a column looks like
    /// when the packets of a flow stand next to each other.
    ZipfRuns {
        /// The share of rows in the set, from 0 to 1.
        density: f64,
    },
    /// 90 of 100 ids are in `clusters` stretches that may overlap, each of rows / (5 * clusters)
    /// rows at a random place; the rest are outside of all. The clustered scenarios of the HiPES
    /// paper.
    Hipes {
        /// How many ids there are; fewer only if there are not enough rows.
        ids: u32,
        /// How many stretches; 0 for uniform ids.
        clusters: u32,
    },
}

impl Family {
    /// Ascending ids below `rows`.
    pub fn ids(self, rows: u32, seed: u64) -> Vec<u32> {
        let mut random = Random::new(seed);
        if rows == 0 {
            return Vec::new();
        }
        match self {
            Family::Uniform { density } => {
                let gaps = std::iter::repeat_with(|| (random.gap(density), 1));
                spread(rows, gaps)
            }
            Family::Clustered { density } => {
                const RUN_MEAN: f64 = 32.0;
                let gap_mean = RUN_MEAN * (1.0 / density.clamp(1e-9, 1.0) - 1.0);
                let gaps = std::iter::repeat_with(|| {
                    (1 + random.gap(1.0 / (gap_mean + 1.0)), 1 + random.gap(1.0 / RUN_MEAN))
                });
                spread(rows, gaps)
            }
            Family::ZipfRuns { density } => {
                // No run is so long that it alone decides the density.
                let longest = (f64::from(rows) * density / 100.0).clamp(1.0, 65_536.0);
                let gaps = std::iter::repeat_with(|| {
                    // A run of at least n rows with a chance of 1 / n.
                    let length = (1.0 / random.unit()).min(longest);
                    let gap = length * (1.0 / density.clamp(1e-9, 1.0) - 1.0);
                    (1 + whole(gap * 2.0 * random.unit()), whole(length).max(1))
                });
                spread(rows, gaps)
            }
            Family::Hipes { ids, clusters } => {
                let span = rows / clusters.max(1).saturating_mul(5);
                let starts: Vec<u32> =
                    (0..clusters).map(|_| random.below(rows - span.min(rows - 1))).collect();
                let outside = |id: u32| starts.iter().all(|&start| id.wrapping_sub(start) >= span);
                let mut draw = || {
                    if clusters > 0 && random.below(10) < 9 {
                        let start = starts[random.below(clusters) as usize];
                        return start + random.below(span.max(1));
                    }
                    loop {
                        let id = random.below(rows);
                        if outside(id) {
                            return id;
                        }
                    }
                };
                // Until there are enough different ids, or hardly any row is left.
                const ROUNDS: usize = 64;
                let mut drawn: Vec<u32> = Vec::with_capacity(ids as usize);
                for _ in 0..ROUNDS {
                    let missing = ids as usize - drawn.len();
                    if missing == 0 {
                        break;
                    }
                    drawn.extend(std::iter::repeat_with(&mut draw).take(missing));
                    drawn.sort_unstable();
                    drawn.dedup();
                }
                drawn
            }
        }
    }
}

/// Lays out gaps and runs of these lengths until the rows are used up.
fn spread(rows: u32, gaps: impl Iterator<Item = (u64, u64)>) -> Vec<u32> {
    let mut ids = Vec::new();
    let (mut at, end) = (0, u64::from(rows));
    for (gap, run) in gaps {
        at += gap;
        if at >= end {
            break;
        }
        ids.extend(low32(at)..low32((at + run).min(end)));
        at += run;
    }
    ids
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "rounds towards zero")]
fn whole(x: f64) -> u64 {
    x.max(0.0) as u64
}

/// SplitMix64: small, quick, and good enough for made-up data.
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// The sequence of that seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Any number.
    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ z >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ z >> 31
    }

    /// A number below `end`, which is not 0.
    pub fn below(&mut self, end: u32) -> u32 {
        low32(((self.number() >> 32) * u64::from(end)) >> 32)
    }

    /// A number from 0 up to, but not including, 1.
    pub fn unit(&mut self) -> f64 {
        f64::from(low32(self.number() >> 32)) / f64::from(1 << 16) / f64::from(1 << 16)
    }

    /// How many tries fail before one succeeds, at that chance.
    fn gap(&mut self, chance: f64) -> u64 {
        match chance {
            1.0.. => 0,
            f64::MIN_POSITIVE.. => whole((-self.unit()).ln_1p() / (-chance).ln_1p()),
            _ => u64::from(u32::MAX),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_have_the_density_they_were_asked_for() {
        let rows = 4_000_000;
        for density in [0.001, 0.01, 0.1, 0.5, 0.9] {
            for family in [
                Family::Uniform { density },
                Family::Clustered { density },
                Family::ZipfRuns { density },
            ] {
                let ids = family.ids(rows, 1);
                assert!(ids.is_sorted_by(|a, b| a < b) && ids.last().is_none_or(|&id| id < rows));
                let got = ids.len() as f64 / f64::from(rows);
                assert!((got / density - 1.0).abs() < 0.25, "{family:?} has density {got}");
            }
        }
        let hipes = Family::Hipes { ids: 10_000, clusters: 10 }.ids(10_000_000, 1);
        assert!(hipes.len() == 10_000 && hipes.is_sorted_by(|a, b| a < b));
    }

    #[test]
    fn odd_wishes_are_met() {
        assert_eq!(Family::Uniform { density: 0.0 }.ids(1_000, 1), []);
        assert_eq!(Family::Uniform { density: 1.0 }.ids(100, 1).len(), 100);
        assert_eq!(Family::Hipes { ids: 3, clusters: 2 }.ids(0, 1), []);
    }

    #[test]
    fn the_same_seed_gives_the_same_set() {
        let family = Family::Clustered { density: 0.1 };
        assert_eq!(family.ids(100_000, 7), family.ids(100_000, 7));
        assert_ne!(family.ids(100_000, 7), family.ids(100_000, 8));
    }
}
