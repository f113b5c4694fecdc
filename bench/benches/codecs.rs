//! Single jobs of single codecs, timed by divan: to look at one thing while working on it.
//!
//! `cargo bench --manifest-path bench/Cargo.toml`. The tables with the peers come from
//! `tapdex-bench codecs`, which times all contestants in turn.

use divan::Bencher;
use divan::counter::ItemsCount;
use tapdex_bench::contest::{Encoded, JOBS, Sets, ours};
use tapdex_bench::{Case, cases};
use tapdex_bitmap::{ALL_CODECS, Codec};

fn main() {
    divan::main();
}

/// The cases that are small enough to run them all in a minute or two.
fn small_cases() -> impl Iterator<Item = Case> {
    cases().into_iter().filter(|case| ["uniform 1 %", "clustered 10 %"].contains(&case.name))
}

/// Every job of every codec on every small case.
fn arguments() -> Vec<(usize, &'static str, Codec)> {
    let mut arguments = Vec::new();
    for case in small_cases() {
        for codec in ALL_CODECS {
            arguments.extend((0..JOBS.len()).map(|job| (job, case.name, codec)));
        }
    }
    arguments
}

#[divan::bench(args = arguments().into_iter().map(|(job, case, codec)| {
    format!("{case}, {codec}, {}", JOBS[job])
}), sample_count = 10)]
fn codec(bencher: Bencher, name: &str) {
    let named = |&(job, case, codec): &(usize, &str, Codec)| {
        format!("{case}, {codec}, {}", JOBS[job]) == name
    };
    let Some((job, case, codec)) = arguments().into_iter().find(named) else { return };
    let Some(case) = small_cases().find(|small| small.name == case) else { return };
    let sets = Sets::new(&case, 1);
    let encoded = Encoded::new(codec, &sets);
    let Ok(mut contestant) = ours(&sets, &encoded) else { return };
    let job_fn = &mut contestant.jobs[job];
    bencher.counter(ItemsCount::new(sets.work()[job] as usize)).bench_local(job_fn);
}
