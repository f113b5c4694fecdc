//! The builder from runs against the builder from rows, byte for byte.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use proptest::collection::vec;
use proptest::prelude::*;
use tapdex_bitmap::sample::Random;
use tapdex_bitmap::{ALL_CODECS, Codec, testing};
use tapdex_engine::index::{
    BuildError, Builder, ColumnIndex, CpuBuilder, Digits, RUNS_SAMPLED, RunBuilder,
};

/// What is used again from column to column, so that what one leaves behind meets the next.
#[derive(Default)]
struct Bench {
    builder: RunBuilder,
    index: ColumnIndex,
}

impl Bench {
    /// Builds a column from its runs, given by digit and length, and from its rows.
    fn check(&mut self, what: &str, runs: &[(u16, u32)], codecs: &[Codec]) {
        let digits: Vec<u16> = runs.iter().map(|run| run.0).collect();
        let mut rows = 0;
        let start_of = |&(_, len): &(u16, u32)| {
            rows += len;
            rows - len
        };
        let starts: Vec<u32> = runs.iter().map(start_of).collect();
        let spread: Vec<u16> =
            runs.iter().flat_map(|&(digit, len)| (0..len).map(move |_| digit)).collect();
        let narrow: Option<Vec<u8>> =
            spread.iter().map(|&digit| u8::try_from(digit).ok()).collect();
        let column = narrow.as_deref().map_or(Digits::Shorts(&spread), Digits::Bytes);
        for &codec in codecs {
            let mut expected = ColumnIndex::default();
            CpuBuilder::new(1).build(column, codec, &mut expected).unwrap();
            self.builder.build(&digits, &starts, rows, codec, &mut self.index).unwrap();
            assert_eq!(self.index.keys, expected.keys, "{what}, {codec}: keys");
            assert_eq!(self.index.offsets, expected.offsets, "{what}, {codec}: offsets");
            assert!(self.index == expected, "{what}, {codec}: bitmaps");
        }
    }
}

/// The codecs in which a lone id is small.
fn small_codecs() -> Vec<Codec> {
    let is_small = |codec: &Codec| !matches!(codec, Codec::Hipes(width) if width.get() > 8);
    testing::codecs().into_iter().filter(is_small).collect()
}

fn column(digits: std::ops::Range<u32>) -> impl Strategy<Value = Vec<(u16, u32)>> {
    let digit = digits.prop_map(|digit| u16::try_from(digit).unwrap());
    let len = prop_oneof![6 => Just(1_u32), 3 => 1..40_u32, 1 => 40..3_000_u32];
    vec((digit, len), 0..600)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn two_values(runs in column(7..9)) {
        Bench::default().check("two values", &runs, &testing::codecs());
    }

    #[test]
    fn bytes(runs in column(0..256)) {
        Bench::default().check("bytes", &runs, &small_codecs());
    }

    #[test]
    fn few_shorts(runs in column(250..300)) {
        Bench::default().check("few shorts", &runs, &small_codecs());
    }

    #[test]
    fn shorts(runs in column(0..65_536)) {
        Bench::default().check("shorts", &runs, &small_codecs());
    }

    #[test]
    fn high_shorts(runs in column(65_000..65_536)) {
        Bench::default().check("high shorts", &runs, &small_codecs());
    }
}

#[test]
fn columns_at_their_limits() {
    let mut bench = Bench::default();
    let all = testing::codecs();
    bench.check("no rows", &[], &all);
    bench.check("one row", &[(0, 1)], &all);
    bench.check("one row of the greatest", &[(u16::MAX, 1)], &all);
    bench.check("one run", &[(300, 200_000)], &all);
    bench.check("one run in pieces", &[(3, 7); 5_000], &all);
    let alternating: Vec<(u16, u32)> = (0..50_000).map(|run| (9 * (run % 2), 1)).collect();
    bench.check("alternating", &alternating, &all);
    let ends: Vec<(u16, u32)> =
        (0..3_000).map(|run| (if run % 3 == 0 { u16::MAX } else { 0 }, 1 + run % 5)).collect();
    bench.check("both ends, some merged", &ends, &small_codecs());
    bench.check("one run again", &[(0, 40)], &all);
}

/// Runs of random digits below `values`, with lengths up to `len_max`.
fn drawn(runs: u32, values: u32, len_max: u32, seed: u64) -> Vec<(u16, u32)> {
    let random = &mut Random::new(seed);
    let mut draw = || (u16::try_from(random.below(values)).unwrap(), 1 + random.below(len_max));
    (0..runs).map(|_| draw()).collect()
}

#[test]
fn every_way_to_sort() {
    let mut bench = Bench::default();
    // Around 64 runs of a column, and of a bucket, counting takes over from comparing.
    for runs in [1, 2, 31, 32, 33, 62, 63, 64, 65, 66, 100, 1_000] {
        for values in [1, 2, 255, 256, 257, 512, 1_024, 65_536] {
            let what = format!("{runs} runs of {values} values");
            bench.check(&what, &drawn(runs, values, 9, 3), &[Codec::Wah, Codec::Roaring]);
        }
    }
    for values in [257, 300, 600, 5_000, 65_536] {
        let what = format!("many runs of {values} values");
        bench.check(&what, &drawn(30_000, values, 20, 4), &[Codec::Plwah, Codec::Roaring]);
    }
}

#[test]
fn columns_with_hardly_a_run() {
    let mut bench = Bench::default();
    // Around two rows a run, rows are built instead of runs.
    for len_max in [1, 2, 3, 4, 5, 6] {
        for values in [2, 256, 3_000] {
            let what = format!("{values} values, lengths up to {len_max}");
            bench.check(&what, &drawn(20_000, values, len_max, 6), &[Codec::Masc, Codec::Roaring]);
        }
    }
    let mut runs = drawn(20_000, 256, 2, 7);
    runs.push((9, 500));
    bench.check("a long run at the end", &runs, &[Codec::Wah]);
    runs.insert(0, (9, 500));
    bench.check("a long run at both ends", &runs, &[Codec::Wah]);
}

#[test]
fn runs_that_do_not_part_the_rows() {
    let mut index = ColumnIndex::default();
    let mut build = |digits: &[u16], starts: &[u32], rows| {
        let builder = &mut RunBuilder::default();
        let built = builder.build(digits, starts, rows, Codec::Wah, &mut index);
        let chosen = builder.choose(digits, starts, rows);
        assert_eq!(built.is_ok(), chosen.is_ok());
        built
    };
    assert!(build(&[], &[], 0).is_ok());
    assert!(build(&[1, 2], &[0, 5], 6).is_ok());
    let bad: [(&[u16], &[u32], u32); 8] = [
        (&[1, 2], &[0, 5], 5),
        (&[1, 2], &[1, 5], 9),
        (&[1, 2], &[0, 0], 9),
        (&[1, 2, 3], &[0, 5, 4], 9),
        (&[1], &[0, 5], 9),
        (&[1, 2], &[0], 9),
        (&[], &[], 1),
        (&[1], &[0], 0),
    ];
    for (digits, starts, rows) in bad {
        assert!(
            matches!(build(digits, starts, rows), Err(BuildError::BadRuns { .. })),
            "{digits:?} {starts:?} {rows}"
        );
    }
}

/// The sum of the sizes of the bitmaps in a codec.
fn bytes_in(codec: Codec, digits: &[u16], starts: &[u32], rows: u32) -> usize {
    let mut index = ColumnIndex::default();
    RunBuilder::default().build(digits, starts, rows, codec, &mut index).unwrap();
    index.parts.iter().map(|part| part.len()).sum()
}

#[test]
fn another_codec_is_chosen_if_it_saves_three_tenths() {
    let mut builder = RunBuilder::default();
    let mut chosen = vec![];
    for (runs, values, len_max) in
        [(3, 2, 100_000), (5_000, 256, 1), (50_000, 4, 1), (2_000, 9, 60), (9_000, 9_000, 40)]
    {
        let runs = drawn(runs, values, len_max, 5);
        let digits: Vec<u16> = runs.iter().map(|run| run.0).collect();
        let mut rows = 0;
        let mut starts = vec![];
        for (_, len) in &runs {
            starts.push(rows);
            rows += len;
        }
        let codec = builder.choose(&digits, &starts, rows).unwrap();
        let size = |codec| bytes_in(codec, &digits, &starts, rows);
        let others = ALL_CODECS.into_iter().filter(|codec| !matches!(codec, Codec::Hipes(_)));
        let (least, roaring) = (others.map(size).min().unwrap(), size(Codec::Roaring));
        let expected = if 10 * least <= 7 * roaring { least } else { roaring };
        assert_eq!(size(codec), expected, "{codec}");
        chosen.push(codec);
    }
    assert!(chosen.contains(&Codec::Roaring), "{chosen:?}");
    assert!(chosen.iter().any(|codec| *codec != Codec::Roaring), "{chosen:?}");
}

#[test]
fn the_first_runs_decide_about_a_long_column() {
    let sampled = u32::try_from(RUNS_SAMPLED).unwrap();
    let choose = |digit: &dyn Fn(u32) -> u16, runs: u32| {
        let digits: Vec<u16> = (0..runs).map(digit).collect();
        let starts: Vec<u32> = (0..runs).map(|run| 5 * run).collect();
        RunBuilder::default().choose(&digits, &starts, 5 * runs).unwrap()
    };
    let few = |run| [4, 7][run as usize % 2];
    let many = |run| u16::try_from(run % 60_000).unwrap();
    let of_few = choose(&few, sampled);
    assert_ne!(of_few, choose(&many, sampled));
    // What comes later is many times as much, but does not count.
    let mixed = |run| if run < sampled + 100 { few(run) } else { many(run) };
    assert_eq!(choose(&mixed, 9 * sampled), of_few);
}
