//! What the benches share: the sets and columns they run on, who takes part, and how the time is
//! taken.

pub mod builders;
pub mod column;
pub mod contest;
pub mod online_wah;
pub mod page;
pub mod tuples;
pub mod windows;

use std::hint::black_box;
use std::time::{Duration, Instant};

use tapdex_bitmap::sample::Family;

/// A set shape to measure, with its row count.
#[derive(Debug, Clone, Copy)]
pub struct Case {
    /// What the tables call it.
    pub name: &'static str,
    /// The shape.
    pub family: Family,
    /// How many rows it is drawn from.
    pub rows: u32,
}

impl Case {
    /// The ids of the case; another seed gives another set of the same shape.
    pub fn ids(&self, seed: u64) -> Vec<u32> {
        self.family.ids(self.rows, seed)
    }
}

/// Four families: uniform, bursts, Zipf runs, and the eight scenarios of the HiPES paper.
pub fn cases() -> Vec<Case> {
    let uniform = |name, density| Case { name, family: Family::Uniform { density }, rows: 1 << 25 };
    let burst = |name, density| Case { name, family: Family::Clustered { density }, rows: 1 << 25 };
    let zipf = |name, density| Case { name, family: Family::ZipfRuns { density }, rows: 1 << 25 };
    let hipes =
        |name, ids, rows, clusters| Case { name, family: Family::Hipes { ids, clusters }, rows };
    vec![
        uniform("uniform 0.01 %", 0.0001),
        uniform("uniform 0.1 %", 0.001),
        uniform("uniform 1 %", 0.01),
        uniform("uniform 10 %", 0.1),
        uniform("uniform 50 %", 0.5),
        burst("clustered 1 %", 0.01),
        burst("clustered 10 %", 0.1),
        burst("clustered 50 %", 0.5),
        zipf("zipf runs 1 %", 0.01),
        zipf("zipf runs 10 %", 0.1),
        zipf("zipf runs 50 %", 0.5),
        hipes("HiPES S1", 1_000_000, 100_000_000, 0),
        hipes("HiPES S2", 10_000_000, 100_000_000, 0),
        hipes("HiPES S3", 1_000_000, 1_000_000_000, 0),
        hipes("HiPES S4", 10_000_000, 1_000_000_000, 0),
        hipes("HiPES S5", 1_000_000, 100_000_000, 10),
        hipes("HiPES S6", 10_000_000, 100_000_000, 10),
        hipes("HiPES S7", 1_000_000, 1_000_000_000, 50),
        hipes("HiPES S8", 10_000_000, 1_000_000_000, 50),
    ]
}

/// Seconds a call took: the median of all rounds, and their spread.
#[derive(Debug, Clone, Copy)]
pub struct Seconds {
    /// Half the rounds were faster.
    pub median: f64,
    /// The fastest round.
    pub min: f64,
    /// The slowest round.
    pub max: f64,
}

/// Times contestants in turn, round after round, so that what the machine does besides falls on
/// all of them alike. Each round repeats a call until `round` has passed. What a call returns is
/// dropped off the clock.
pub fn race<T>(
    rounds: usize,
    round: Duration,
    contestants: &mut [impl FnMut() -> T],
) -> Vec<Seconds> {
    let mut times = vec![Vec::new(); contestants.len()];
    for turn in 0..=rounds {
        for (contestant, times) in contestants.iter_mut().zip(&mut times) {
            let mut spent = Duration::ZERO;
            let mut calls = 0;
            while calls == 0 || spent < round {
                let start = Instant::now();
                let product = black_box(contestant());
                spent += start.elapsed();
                drop(product);
                calls += 1;
            }
            // The first turn warms caches and buffers.
            if turn > 0 {
                times.push(spent.as_secs_f64() / f64::from(calls));
            }
        }
    }
    let summary = |mut times: Vec<f64>| {
        times.sort_by(f64::total_cmp);
        Seconds { median: times[times.len() / 2], min: times[0], max: times[times.len() - 1] }
    };
    times.into_iter().map(summary).collect()
}
