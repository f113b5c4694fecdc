//! Sets encoded on the device are those of the CPU's codecs, byte for byte.
//!
//! Runs on the kernels compiled for this machine's CPU, or with `TAPDEX_DEVICE=cuda` on a GPU.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::sync::Arc;

use tapdex_bitmap::Codec;
use tapdex_bitmap::codec::hipes::Width;
use tapdex_bitmap::sample::{Family, Random};
use tapdex_gpu::device::Device;
use tapdex_gpu::host::HostDevice;
use tapdex_gpu::sets::scenarios::{self, SCENARIOS, Scenario};
use tapdex_gpu::sets::{Encoded, Form, IdSource, Path, SetBuilder, SetError, Target};
use tapdex_gpu::testing::on_gpu;

const PATHS: [Path; 2] = [Path::Direct, Path::Published];

fn device() -> Arc<dyn Device> {
    tapdex_gpu::testing::device(1).unwrap()
}

fn builder(rows: u32) -> SetBuilder {
    let mut builder = SetBuilder::new(device());
    builder.set_rows(rows);
    builder
}

fn width(w: u8) -> Width {
    Width::new(w).unwrap()
}

/// What the CPU makes of ids in any order.
fn on_cpu(codec: Codec, ids: &[u32]) -> Vec<u8> {
    let mut ids = ids.to_vec();
    ids.sort_unstable();
    ids.dedup();
    let mut bytes = vec![];
    codec.encode(&ids, &mut bytes);
    bytes
}

fn shuffled(ids: &[u32], seed: u64) -> Vec<u32> {
    let (mut ids, mut random) = (ids.to_vec(), Random::new(seed));
    for last in (1..ids.len()).rev() {
        ids.swap(last, random.below(u32::try_from(last).unwrap() + 1) as usize);
    }
    ids
}

fn bitmap(ids: &[u32]) -> Vec<u32> {
    let mut words = vec![0; ids.iter().max().map_or(0, |&id| id as usize / 32 + 1)];
    ids.iter().for_each(|&id| words[id as usize / 32] |= 1 << (id % 32));
    words
}

/// Says where bytes differ: the sets are too long to print.
fn assert_same(got: &[u8], expected: &[u8], what: &str) {
    let differs = got.iter().zip(expected).position(|(a, b)| a != b);
    assert!(
        got == expected,
        "{what}: {} bytes, {} expected, the first difference at {differs:?}",
        got.len(),
        expected.len()
    );
}

/// Leaves words in the output memory that a set must overwrite.
fn spoil_output(builder: &mut SetBuilder) {
    builder.wah_from_bitmap(&[0xA5A5_A5A5; 3_000], Form::Published).unwrap();
}

fn check_hipes(builder: &mut SetBuilder, ids: &[u32], w: u8, what: &str) {
    let expected = on_cpu(Codec::Hipes(width(w)), ids);
    for path in PATHS {
        spoil_output(builder);
        let got = builder.hipes(ids, width(w), path).unwrap();
        assert_same(&got, &expected, &format!("{what}, w = {w}, {path:?}"));
    }
}

fn check_wah(builder: &mut SetBuilder, ids: &[u32], what: &str) {
    let expected = on_cpu(Codec::Wah, ids);
    spoil_output(builder);
    let got = builder.wah_from_ids(ids, Form::Canonical).unwrap();
    assert_same(&got, &expected, &format!("{what}, from ids"));
    spoil_output(builder);
    let got = builder.wah_from_bitmap(&bitmap(ids), Form::Canonical).unwrap();
    assert_same(&got, &expected, &format!("{what}, from a bitmap"));
}

/// Sets below 300,000 of all kinds.
fn sets() -> Vec<(String, Vec<u32>)> {
    const ROWS: u32 = 300_000;
    let mut sets = vec![
        ("empty".to_owned(), vec![]),
        ("the first row".to_owned(), vec![0]),
        ("one id".to_owned(), vec![70_000]),
        ("one id, often".to_owned(), vec![123_456; 700]),
        ("all of 10,000 rows".to_owned(), (0..10_000).collect()),
        ("all but some".to_owned(), (0..20_000).filter(|id| id % 1_117 != 5).collect()),
        ("edges of chunks".to_owned(), (1..5).flat_map(|c| [c * 65_536 - 1, c * 65_536]).collect()),
        ("edges of groups".to_owned(), (1..90).flat_map(|g| [g * 93 - 1, g * 93]).collect()),
        ("full groups".to_owned(), (0..9_000).filter(|id| id / 31 % 3 != 0).collect()),
        ("long runs".to_owned(), (0..99_200).filter(|id| id / 31 / 700 % 2 == 1).collect()),
        ("descending".to_owned(), (0..3_000).rev().map(|id| id * 97).collect()),
    ];
    let families = [
        ("sparse", Family::Uniform { density: 0.001 }),
        ("dense", Family::Uniform { density: 0.1 }),
        ("in bursts", Family::Clustered { density: 0.03 }),
        ("in runs", Family::ZipfRuns { density: 0.05 }),
        ("in stretches", Family::Hipes { ids: 9_000, clusters: 5 }),
    ];
    for (seed, (name, family)) in (1..).zip(families) {
        let ids = family.ids(ROWS, seed);
        let twice: Vec<u32> = ids.iter().chain(&ids).copied().collect();
        sets.push((format!("{name}, unsorted"), shuffled(&ids, seed)));
        sets.push((format!("{name}, repeated"), twice));
        sets.push((name.to_owned(), ids));
    }
    sets
}

#[test]
fn hipes_is_that_of_the_cpu() {
    let mut builder = builder(300_000);
    for (name, ids) in sets() {
        check_hipes(&mut builder, &ids, 16, &name);
        check_hipes(&mut builder, &ids, 9, &name);
    }
}

#[test]
fn wah_is_that_of_the_cpu() {
    let mut builder = builder(300_000);
    for (name, ids) in sets() {
        check_wah(&mut builder, &ids, &name);
    }
}

#[test]
fn every_width_is_that_of_the_cpu() {
    let mut builder = builder(90_000);
    let mut ids = shuffled(&Family::Clustered { density: 0.005 }.ids(90_000, 3), 3);
    ids.extend([0, 127, 128, 89_999, 127]);
    for w in 7..=29 {
        check_hipes(&mut builder, &ids, w, "every width");
    }
}

#[test]
fn the_highest_ids_have_their_place() {
    let mut builder = SetBuilder::new(device());
    let ids = [u32::MAX - 1, 0, 1 << 31, u32::MAX - 66_000, u32::MAX - 1];
    check_hipes(&mut builder, &ids, 16, "the highest ids");
    check_hipes(&mut builder, &ids, 12, "the highest ids");
    if on_gpu() {
        check_wah(&mut builder, &ids, "the highest ids");
        check_hipes(&mut builder, &ids, 29, "the highest ids");
        check_hipes(&mut builder, &ids, 7, "the highest ids");
    }
}

/// Shared memory ends at 2^18 rows a chunk; both sides of it are built, with many ids a chunk.
#[test]
fn chunks_around_the_end_of_shared_memory() {
    let mut builder = builder(1 << 20);
    let ids = shuffled(&Family::Uniform { density: 0.01 }.ids(1 << 20, 9), 9);
    check_hipes(&mut builder, &ids, 18, "around the end");
    check_hipes(&mut builder, &ids, 19, "around the end");
}

/// More flag words than one block lists.
#[test]
fn many_chunks_are_listed_by_several_blocks() {
    let rows = 1 << 24;
    let mut builder = builder(rows);
    let ids: Vec<u32> = (0..400).map(|i| i * 41_941).collect();
    check_hipes(&mut builder, &ids, 7, "many chunks");
}

/// More units than the one block that adds them up takes at a time.
#[test]
fn wah_of_many_units() {
    const SEAM: u32 = 8_192 * 512 * 31;
    let mut builder = builder(SEAM + 100_000);
    let ids = [5, 1_000_000, SEAM - 40_000, SEAM - 1, SEAM + 31, SEAM + 90_000];
    check_wah(&mut builder, &ids, "many units");
}

#[test]
fn small_slices_give_the_same() {
    let mut builder = builder(300_000);
    for slice in [1, 100, 1_000] {
        builder.set_slice(slice);
        for (name, ids) in sets() {
            check_hipes(&mut builder, &ids, 13, &format!("{name}, slices of {slice}"));
        }
    }
}

/// Ids that ascend wherever they are sampled, and nowhere else: what is written early is wrong, and
/// must be written again. All chunks have ids, so that one more has no room.
#[test]
fn ids_that_only_seem_to_ascend() {
    for (name, odd) in [("a late one", 7), ("the highest in the middle", 255_999)] {
        let mut builder = builder(256_000);
        builder.set_slice(64);
        let mut ids: Vec<u32> = (0..6_400).map(|i| i * 40).collect();
        ids[3_333] = odd;
        for w in [7, 10, 14] {
            check_hipes(&mut builder, &ids, w, name);
            // What is left of it does not show in the next set.
            check_hipes(&mut builder, &[1, 2, 250_000], w, "after it");
        }
    }
}

/// Low ids wherever they are sampled, high ones elsewhere: the output is larger than thought.
#[test]
fn ids_that_only_seem_to_be_low() {
    let mut builder = builder(1 << 24);
    builder.set_slice(64);
    let len = 6_400;
    let sampled: Vec<u32> = (0..=64).map(|i| (len - 1) * i / 64).collect();
    let low = |at: u32| sampled.contains(&at) || at % 64 == 63;
    let ids: Vec<u32> = (0..len).map(|at| if low(at) { at } else { at * 2_621 }).collect();
    check_hipes(&mut builder, &ids, 14, "low and high");
    check_hipes(&mut builder, &[1, 2, 250_000], 14, "after it");
}

#[test]
fn ids_past_the_rows_are_refused() {
    let mut builder = builder(1_000);
    for target in [
        Target::Hipes(Width::DEFAULT, Path::Direct),
        Target::Hipes(Width::DEFAULT, Path::Published),
        Target::Wah(Form::Canonical),
    ] {
        for ids in [[5, 1_000, 7], [u32::MAX, 3, 4], [3, 999, 1_001]] {
            let error = builder.build(&ids, target).unwrap_err();
            assert!(matches!(error, SetError::PastEnd { rows: 1_000 }), "{error}");
        }
        check_hipes(&mut builder, &[999, 3], 16, "after a failure");
        check_wah(&mut builder, &[999, 3], "after a failure");
    }
    let mut all = SetBuilder::new(device());
    let error = all.hipes(&[u32::MAX], Width::DEFAULT, Path::Direct).unwrap_err();
    assert!(matches!(error, SetError::PastEnd { .. }), "{error}");
}

#[test]
fn many_sets_in_flight() {
    let mut builder = builder(300_000);
    let sets = sets();
    let mut pinned = vec![];
    for (_, ids) in &sets {
        let mut input = builder.input(ids.len()).unwrap();
        input.put(0, ids);
        pinned.push(input);
    }
    let sources: Vec<IdSource> = pinned.iter().map(IdSource::from).collect();
    for (target, codec) in [
        (Target::Hipes(width(14), Path::Auto), Codec::Hipes(width(14))),
        (Target::Hipes(width(14), Path::Published), Codec::Hipes(width(14))),
        (Target::Wah(Form::Canonical), Codec::Wah),
    ] {
        let mut kept: Vec<(usize, Encoded)> = vec![];
        builder.build_many(&sources, target, |at, encoded| kept.push((at, encoded))).unwrap();
        assert_eq!(kept.len(), sets.len());
        for (expected, ((at, encoded), (name, ids))) in kept.iter().zip(&sets).enumerate() {
            assert_eq!(*at, expected);
            assert_same(encoded, &on_cpu(codec, ids), &format!("{name}, {target:?}"));
        }
    }
    builder.build_many(&[], Target::Wah(Form::Canonical), |_, _| panic!("no set")).unwrap();
}

#[test]
fn measured_sets_are_the_same() {
    let mut builder = builder(300_000);
    for (name, ids) in sets() {
        for path in PATHS {
            let target = Target::Hipes(Width::DEFAULT, path);
            let (got, timings) = builder.build_timed(&ids, target).unwrap();
            assert_same(&got, &on_cpu(Codec::Hipes(Width::DEFAULT), &ids), &name);
            assert_eq!(timings.kernels.is_empty(), ids.is_empty(), "{name}");
        }
        let (got, _) = builder.build_timed(&ids, Target::Wah(Form::Canonical)).unwrap();
        assert_same(&got, &on_cpu(Codec::Wah, &ids), &name);
    }
}

/// The automatic path is the direct one as long as the bitmap of the rows is small enough.
#[test]
fn the_path_follows_from_the_rows() {
    let mut builder = builder(1 << 20);
    let mut phases = |direct_max| {
        builder.set_direct_max(direct_max);
        let target = Target::Hipes(Width::DEFAULT, Path::Auto);
        let (_, timings) = builder.build_timed(&[1, 2, 3], target).unwrap();
        timings.kernels.iter().map(|phase| phase.0).collect::<Vec<_>>()
    };
    assert!(phases((1 << 20) / 8).contains(&"gather"));
    assert!(phases((1 << 20) / 8 - 1).contains(&"scatter"));
}

/// Words of a bitmap, and what the published form of WAH makes of them.
fn published_vectors() -> Vec<(&'static str, Vec<u32>, Vec<u32>)> {
    let mut first = vec![0_u32; 31];
    for (at, word) in [(0, 8), (3, 1 << 30), (5, 0xFC00_0000), (6, u32::MAX), (7, 0x00FF_FFFF)] {
        first[at] = word;
    }
    let first_words =
        vec![0x0000_0008, 0x8000_0003, 0x0000_0004, 0x8000_0001, 0xC000_0002, 0x8000_0018];
    let of_992 = |value: fn(usize) -> u32| (0..992).map(value).collect::<Vec<u32>>();
    vec![
        ("several kinds of words", first.clone(), first_words.clone()),
        ("the same, often", first.repeat(32), first_words.repeat(32)),
        ("nothing", vec![0; 992], vec![0x8000_0400]),
        (
            "a full word at every other warp",
            of_992(|at| if at % 62 == 0 { u32::MAX } else { 0 }),
            [0xC000_0001, 0x0000_0001, 0x8000_003E].repeat(16),
        ),
        (
            "fills of two warps",
            of_992(|at| if at / 62 % 2 == 1 { u32::MAX } else { 0 }),
            [0x8000_0040, 0xC000_0040].repeat(8),
        ),
        (
            "a literal at the end of a warp",
            of_992(|at| if at % 31 == 30 { 88 } else { 0 }),
            [0x8000_001F, 0x0000_002C].repeat(32),
        ),
    ]
}

#[test]
fn published_wah_vectors() {
    let mut builder = builder(1);
    for (name, bitmap, words) in published_vectors() {
        let got = builder.wah_from_bitmap(&bitmap, Form::Published).unwrap();
        let expected: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        assert_same(&got, &expected, name);
    }
}

/// The two sets that the HiPES paper goes through.
#[test]
fn published_hipes_sets() {
    let mut builder = builder(1 << 22);
    let a: Vec<u32> = (0..=10).chain([131_075, 2_228_227]).collect();
    let b: Vec<u32> = (0..=8).chain([65_536, 131_075, 2_228_227]).collect();
    for path in PATHS {
        let got = builder.hipes(&a, Width::DEFAULT, path).unwrap();
        assert_eq!(got.len(), 24_588);
        let chunks: Vec<&[u8]> = got.chunks(8_196).map(|chunk| &chunk[..8]).collect();
        let expected: [&[u8]; 3] =
            [&[0, 0, 0, 0, 0xFF, 7, 0, 0], &[2, 0, 0, 0, 8, 0, 0, 0], &[34, 0, 0, 0, 8, 0, 0, 0]];
        assert_eq!(chunks, expected);
        drop(got);
        assert_eq!(builder.hipes(&b, Width::DEFAULT, path).unwrap().len(), 32_784);
    }
}

/// Too little memory is an error, and so is a lost device.
#[test]
fn failures_of_the_device_come_back() {
    if on_gpu() {
        // They are made up by the device of the CPU; there is nothing to learn of a GPU.
        return;
    }
    let host = HostDevice::new(5).unwrap();
    let mut builder = SetBuilder::new(host.clone());
    builder.set_rows(100_000);
    let mut failures = 0;
    // A little more each time, so that every allocation fails once. What a set that failed has left
    // does not show in the next.
    for limit in (16_000..).step_by(16) {
        host.fail_alloc_above(limit);
        let ids = [1, 2 * failures + 10];
        match builder.hipes(&ids, Width::DEFAULT, Path::Direct) {
            Ok(got) => {
                assert_same(&got, &on_cpu(Codec::Hipes(Width::DEFAULT), &ids), "in the end");
                break;
            }
            Err(error) => {
                assert!(matches!(error, SetError::Device(_)), "{error}");
                failures += 1;
            }
        }
    }
    assert!(failures > 10);
    host.lose_at(2);
    let error = builder.hipes(&[1, 2, 3], Width::DEFAULT, Path::Direct).unwrap_err();
    assert!(matches!(error, SetError::Device(_)), "{error}");
}

/// The ids of the scenarios are like the paper's: they take as many bytes as it says.
#[test]
fn scenarios_have_the_ratios_of_the_paper() {
    for scenario in SCENARIOS {
        let (input, chunks) = (4.0 * f64::from(scenario.ids), scenario.rows.div_ceil(65_536));
        let ratio = input / (8_196.0 * f64::from(chunks));
        assert!((ratio - scenario.published.hipes_ratio).abs() < 0.005, "{}", scenario.name);
    }
    for at in [0, 2, 4, 6] {
        let (scenario, ids) = (SCENARIOS[at], SCENARIOS[at].ids());
        assert_eq!(ids.len(), scenario.ids as usize);
        assert!(ids.is_sorted_by(|a, b| a < b));
        let (bytes, expected) = (on_cpu(Codec::Wah, &ids).len(), scenario.published.wah_ratio);
        let ratio = 4e6 / f64::from(u32::try_from(bytes).unwrap());
        assert!((ratio / expected - 1.0).abs() < 0.1, "{}: {ratio}", scenario.name);
    }
}

#[test]
fn a_scenario_is_measured() {
    let scenario = Scenario { ids: 2_000, rows: 200_000, clusters: 3, ..SCENARIOS[5] };
    let result = scenarios::measure_scenario(&device(), scenario, 2).unwrap();
    for measured in [&result.direct, &result.published, &result.wah] {
        for spread in [measured.single, measured.pipelined, measured.device] {
            assert!(0.0 < spread.min && spread.min <= spread.median && spread.median <= spread.max);
        }
        assert!(!measured.phases.is_empty());
    }
    assert_eq!(result.direct.bytes, on_cpu(Codec::Hipes(Width::DEFAULT), &scenario.ids()).len());
    assert_eq!(result.wah.bytes, on_cpu(Codec::Wah, &scenario.ids()).len());
}
