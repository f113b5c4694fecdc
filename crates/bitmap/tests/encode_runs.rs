//! Runs, and arrays of chunks, are encoded to the bytes that their ids are encoded to, in every
//! codec.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use proptest::collection::vec;
use proptest::prelude::*;
use tapdex_bitmap::testing::{codecs, data_sets, too_large};
use tapdex_bitmap::{ALL_CODECS, Bitmap, Codec, Sizes};

const CHUNK: u32 = 65_536;
/// More ids than this are too slow to compare.
const IDS_MAX: usize = 400_000;

fn ids_of(runs: &[(u32, u32)]) -> Vec<u32> {
    runs.iter().flat_map(|&(first, last)| first..=last).collect()
}

fn runs_of(ids: &[u32]) -> Vec<(u32, u32)> {
    ids.chunk_by(|a, b| b - a == 1).map(|run| (run[0], run[run.len() - 1])).collect()
}

/// The ids chunk by chunk: keys, and low halves.
fn arrays_of(ids: &[u32]) -> Vec<(u32, Vec<[u8; 2]>)> {
    let chunks = ids.chunk_by(|a, b| a / CHUNK == b / CHUNK);
    let half = |id: u32| [id.to_le_bytes()[0], id.to_le_bytes()[1]];
    let halves = |ids: &[u32]| ids.iter().map(|&id| half(id)).collect();
    chunks.map(|ids| (ids[0] / CHUNK, halves(ids))).collect()
}

/// Compares the bytes and the sizes, in the codecs in which the set is not overly large.
fn check(runs: &[(u32, u32)]) {
    let ids = ids_of(runs);
    for codec in codecs() {
        if too_large(codec, &ids) {
            continue;
        }
        // What stands in the target before is kept.
        let (mut expected, mut got) = (vec![7], vec![7]);
        codec.encode(&ids, &mut expected);
        codec.encode_runs(runs, &mut got);
        assert!(
            got == expected,
            "{codec:?}, {} runs: {:?}",
            runs.len(),
            &runs[..runs.len().min(9)]
        );
        let (arrays, rows) = (arrays_of(&ids), ids.last().map_or(0, |&id| id.saturating_add(1)));
        let mut got = vec![7];
        codec.encode_arrays(arrays.iter().map(|(key, ids)| (*key, &ids[..])), rows, &mut got);
        assert!(got == expected, "{codec:?}, {} arrays", arrays.len());
    }
    let sizes = Sizes::of_runs(runs);
    assert_eq!(sizes, Sizes::of(&ids));
    for codec in ALL_CODECS.into_iter().filter(|&codec| !too_large(codec, &ids)) {
        let mut bytes = vec![];
        codec.encode(&ids, &mut bytes);
        assert_eq!(sizes.of_codec(codec), Some(bytes.len() as u64), "{codec}");
    }
}

/// Runs from the gap before each and its length, both at least 1, as far as they fit.
fn spread(start: u32, steps: &[(u32, u32)]) -> Vec<(u32, u32)> {
    let (mut runs, mut ids) = (Vec::new(), 0);
    let mut first = Some(start);
    for &(gap, len) in steps {
        let Some(last) = first.and_then(|first| first.checked_add(len - 1)) else { break };
        ids += len as usize;
        if last == u32::MAX || ids > IDS_MAX {
            break;
        }
        runs.push((last - (len - 1), last));
        first = last.checked_add(1).and_then(|end| end.checked_add(gap));
    }
    runs
}

/// Lengths, or gaps, of every kind.
fn length() -> impl Strategy<Value = u32> {
    prop_oneof![
        8 => Just(1_u32),
        4 => 1..10_u32,
        2 => 25..40_u32,
        2 => (1..5_u32, 0..3_u32).prop_map(|(groups, off)| 31 * groups + off - 1),
        1 => 60..3_000_u32,
        1 => (1..3_u32, 0..3_u32).prop_map(|(chunks, off)| CHUNK * chunks + off - 1),
    ]
}

/// Places to start at: zero, edges of groups and chunks, far out, just below the limit.
fn start() -> impl Strategy<Value = u32> {
    prop_oneof![
        Just(0_u32),
        0..100_u32,
        CHUNK - 40..CHUNK + 3,
        any::<u32>(),
        u32::MAX - 70_000..u32::MAX,
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn mixed(start in start(), steps in vec((length(), length()), 0..80)) {
        check(&spread(start, &steps));
    }

    #[test]
    fn single_rows(start in start(), gaps in vec(length(), 0..700)) {
        let steps: Vec<(u32, u32)> = gaps.iter().map(|&gap| (gap, 1)).collect();
        check(&spread(start, &steps));
    }

    #[test]
    fn short_runs_and_gaps(start in start(), steps in vec((1..12_u32, 1..12_u32), 0..1_500)) {
        check(&spread(start, &steps));
    }

    #[test]
    fn long_runs(start in start(), steps in vec((length(), 30..40_000_u32), 0..30)) {
        check(&spread(start, &steps));
    }

    #[test]
    fn far_apart(start in start(), steps in vec((1..400_000_000_u32, length()), 0..30)) {
        check(&spread(start, &steps));
    }
}

#[test]
fn every_edge() {
    check(&[]);
    let edges = [0, 1, 29, 30, 31, 32, 61, 62, 63, 64, CHUNK - 2, CHUNK - 1, CHUNK, CHUNK + 1];
    let edges = edges.into_iter().chain([2 * CHUNK - 1, 2 * CHUNK, 3 * CHUNK + 30]);
    let edges: Vec<u32> = edges.collect();
    for (index, &first) in edges.iter().enumerate() {
        for &last in &edges[index..] {
            check(&[(first, last)]);
            check(&[(first, last), (last + 2, last + 2)]);
            check(&[(first, last), (last + 70, last + 70 + CHUNK), (5 * CHUNK, 7 * CHUNK - 1)]);
        }
    }
    check(&[(u32::MAX - 1, u32::MAX - 1)]);
    check(&[(0, 0), (u32::MAX - 100_000, u32::MAX - 1)]);
}

#[test]
fn containers_of_every_form_at_their_limits() {
    // Around 4,096 ids an array becomes a bitset, and around 2,047 runs no longer pay.
    for count in [2_046, 2_047, 2_048, 2_049, 4_095, 4_096, 4_097] {
        for (len, gap) in [(1, 1), (1, 2), (1, 9), (2, 1), (3, 1), (9, 3), (12, 4)] {
            let steps = vec![(gap, len); count];
            let all = spread(CHUNK - 100, &steps);
            check(&all);
            // Runs in a later container than the first move the header.
            let later = spread(2 * CHUNK, &steps);
            let before = (0..40).map(|index| (index * 50, index * 50));
            check(&before.chain(later).collect::<Vec<_>>());
        }
    }
}

#[test]
fn every_data_set() {
    for (name, _, ids) in data_sets() {
        eprintln!("{name}");
        check(&runs_of(&ids));
    }
}

#[test]
fn runs_of_millions_of_rows() {
    let runs = [(10, 10), (12, 3_000_000), (3_000_002, 3_000_002), (3_000_100, 7_000_000)];
    let ids = ids_of(&runs);
    for codec in ALL_CODECS {
        let (mut expected, mut got) = (vec![], vec![]);
        codec.encode(&ids, &mut expected);
        codec.encode_runs(&runs, &mut got);
        assert!(got == expected, "{codec}");
    }
}

#[test]
fn a_run_of_all_rows() {
    let runs = [(5, u32::MAX - 1)];
    let sizes = Sizes::of_runs(&runs);
    for codec in ALL_CODECS.into_iter().filter(|codec| !matches!(codec, Codec::Hipes(_))) {
        let mut bytes = vec![];
        codec.encode_runs(&runs, &mut bytes);
        assert_eq!(sizes.of_codec(codec), Some(bytes.len() as u64), "{codec}");
        let bitmap = Bitmap::open(codec, &bytes, u32::MAX).unwrap();
        assert_eq!(bitmap.cardinality(), u64::from(u32::MAX) - 5, "{codec}");
        assert!(!bitmap.contains(4) && bitmap.contains(5), "{codec}");
    }
}
