//! The oracle and the checks that tests, property tests and fuzz targets share.
//!
//! The oracle is a sorted `Vec<u32>`: every answer of the crate is compared with one computed from
//! it by plain code. A check panics when something is wrong. Fuzz targets only wrap the functions
//! whose names start with `fuzz_`; the property tests run the same bodies.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "checks panic")]

use crate::codec::hipes::Width;
use crate::codec::masc::Windowed;
use crate::sample::{Family, Random};
use crate::{ALL_CODECS, Bitmap, Chunks, Codec, Sizes, intersection, union};

/// The codecs of the table, and HiPES at its ends and on both sides of its default.
pub fn codecs() -> Vec<Codec> {
    let widths = [7, 8, 13, 15, 17, 20].map(|w| Codec::Hipes(Width::new(w).unwrap()));
    ALL_CODECS.into_iter().chain(widths).collect()
}

/// Sets that break codecs: with a name, a row count and their ids.
pub fn data_sets() -> Vec<(&'static str, u32, Vec<u32>)> {
    let group = 31;
    let chunk = 1 << 16;
    let mut sets = vec![
        ("empty", 100, vec![]),
        ("no rows", 0, vec![]),
        ("first row", 1, vec![0]),
        ("last row of a group", group, vec![group - 1]),
        ("first row of a group", group + 1, vec![group]),
        ("one full group", group, (0..group).collect()),
        ("one full group and a row", 64, (0..=group).collect()),
        ("a group but its last row", 64, (0..group - 1).collect()),
        ("one full chunk", chunk, (0..chunk).collect()),
        ("a chunk and a row", chunk + 1, (0..=chunk).collect()),
        ("across a chunk's edge", 2 * chunk, (chunk - 40..chunk + 40).collect()),
        ("ends of a chunk", 2 * chunk, vec![0, chunk - 1, chunk, 2 * chunk - 1]),
        ("4,096 ids in a chunk", chunk, (0..8_192).step_by(2).collect()),
        ("4,097 ids in a chunk", chunk, (0..8_194).step_by(2).collect()),
        ("every other row", 200_000, (0..200_000).step_by(2).collect()),
        ("every 32nd row", 200_000, (0..200_000).step_by(32).collect()),
        ("all but every 31st", 100_000, (0..100_000).filter(|id| id % 31 != 5).collect()),
        ("all but every 62nd", 100_000, (0..100_000).filter(|id| id % 62 != 40).collect()),
        ("the last id there is", u32::MAX, vec![u32::MAX - 1]),
        ("the last group there is", u32::MAX, vec![u32::MAX - 3, u32::MAX - 2]),
        ("last row of a chunk", chunk, vec![chunk - 1]),
        ("far apart", u32::MAX, vec![0, 1 << 25, 1 << 30, 1 << 31, u32::MAX - 1]),
        ("fills of 255 and 256", 40_000, vec![3, 31 * 256 + 3, 31 * 513 + 3, 31 * 514 + 9]),
        ("fills of 127 and 128", 40_000, vec![3, 31 * 128 + 3, 31 * 257 + 3, 31 * 258 + 3]),
        ("whole windows of MASC", 3_968 * 3, (3_968 - 5..3_968 * 2 + 5).collect()),
        ("three containers of runs", 3 * chunk, {
            (0..3).flat_map(|key| key * chunk + 100..key * chunk + 5_000).collect()
        }),
        ("five containers, some of runs", 5 * chunk, {
            let runs = (0..3).flat_map(|key| key * chunk + 100..key * chunk + 5_000);
            runs.chain([3 * chunk + 1, 4 * chunk + 2]).collect()
        }),
    ];
    for density in [0.0001, 0.003, 0.03, 0.3, 0.97] {
        let rows = 300_000;
        sets.push(("uniform", rows, Family::Uniform { density }.ids(rows, 1)));
        sets.push(("clustered", rows, Family::Clustered { density }.ids(rows, 2)));
        sets.push(("zipf runs", rows, Family::ZipfRuns { density }.ids(rows, 3)));
    }
    sets.push(("hipes", 2_000_000, Family::Hipes { ids: 5_000, clusters: 10 }.ids(2_000_000, 4)));
    sets
}

/// A small set of mixed shapes drawn from `random`, and its row count.
pub fn small_set(random: &mut Random) -> (u32, Vec<u32>) {
    let most = [100, 4_000, 70_000, 200_000][random.below(4) as usize];
    let rows = 1 + random.below(most);
    let mut ids = Vec::new();
    let mut at = random.below(70);
    let (gap_max, run_max) = (1 + random.below(3_000), 1 + random.below(200));
    let gap_shift = random.below(10);
    while at < rows && ids.len() < 20_000 {
        let run = if random.below(2) == 0 { 1 } else { 1 + random.below(run_max) };
        ids.extend(at..(at + run).min(rows));
        at += run + 1 + (random.below(gap_max) >> random.below(gap_shift + 1));
    }
    (rows, ids)
}

fn encoded(codec: Codec, ids: &[u32]) -> Vec<u8> {
    let mut bytes = Vec::new();
    codec.encode(ids, &mut bytes);
    bytes
}

/// Everything that must hold for one codec and one set.
pub fn check_codec(codec: Codec, rows: u32, ids: &[u32]) {
    let mut bytes = vec![0xEE; 3];
    codec.encode(ids, &mut bytes);
    assert_eq!(bytes[..3], [0xEE; 3], "{codec:?} appends");
    let bytes = bytes.split_off(3);
    if let Some(size) = Sizes::of(ids).of_codec(codec) {
        assert_eq!(size, bytes.len() as u64, "{codec:?} has the size that was foretold");
    }

    let set =
        Bitmap::open(codec, &bytes, rows).unwrap_or_else(|error| panic!("{codec:?}: {error}"));
    let mut decoded = vec![7];
    codec.decode(&bytes, rows, &mut decoded).unwrap();
    assert_eq!(decoded.remove(0), 7, "{codec:?} appends");
    assert_eq!(decoded, ids, "{codec:?} decodes");
    assert!(set.ids().eq(ids.iter().copied()), "{codec:?} iterates");
    assert_eq!(set.cardinality(), ids.len() as u64, "{codec:?} counts");
    assert_eq!(set.chunks().count(), ids.len() as u64, "{codec:?} counts its chunks");

    let mut random = Random::new(9);
    let any = (0..20).map(|_| random.below(rows.max(1)));
    let near = (0..20).filter(|_| !ids.is_empty()).map(|i| ids[i * (ids.len() - 1) / 19]);
    let probes: Vec<u32> =
        any.chain(near.flat_map(|id| [id.saturating_sub(1), id, id + 1])).collect();
    for &id in &probes {
        let below = ids.partition_point(|&other| other <= id);
        assert_eq!(set.contains(id), ids.binary_search(&id).is_ok(), "{codec:?} contains {id}");
        assert_eq!(set.rank(id), below as u64, "{codec:?} rank of {id}");
        assert_eq!(set.select(below as u64), ids.get(below).copied(), "{codec:?} select {below}");
    }

    if let Some(&last) = ids.last() {
        assert!(Bitmap::open(codec, &bytes, last).is_err(), "{codec:?} refuses an id past the end");
        assert!(Bitmap::open(codec, &bytes, last + 1).is_ok(), "{codec:?} takes the last row");
    }
    for target in codecs() {
        if !too_large(target, ids) {
            let mut other = Vec::new();
            set.chunks().encode(target, &mut other);
            assert_eq!(other, encoded(target, ids), "{codec:?} re-encoded in {target:?}");
        }
    }
    check_explained(codec, &bytes);
    check_cursor(&format!("{codec:?}"), || set.chunks());
    check_cursor(&format!("complement of {codec:?}"), || set.chunks().complement(rows));
}

/// What is explained covers the bytes, and in codecs made of words every row, without a gap.
fn check_explained(codec: Codec, bytes: &[u8]) {
    let lines = codec.explain(bytes);
    let mut at = 0;
    for line in &lines {
        assert!(line.offset >= at && !line.kind.starts_with("not a"), "{codec:?} {line:?}");
        at = line.offset + line.width;
    }
    match codec {
        Codec::Hipes(_) => assert!(at <= bytes.len()),
        _ => assert_eq!(at, bytes.len(), "{codec:?} explains all there is"),
    }
    if !matches!(codec, Codec::Hipes(_) | Codec::Roaring) {
        let mut next = 0;
        for line in &lines {
            let (first, last) = line.rows.unwrap();
            assert!(first == next && last >= first, "{codec:?} {line:?}");
            next = last + 1;
        }
    }
}

/// The contract of [`Chunks`]: keys ascend and keep to their bounds, a cursor never moves back.
fn check_cursor<C: Chunks>(what: &str, make: impl Fn() -> C) {
    let mut cursor = make();
    let (most, end) = (cursor.chunks_max(), cursor.keys_end());
    let (mut from, mut seen) = (0, 0);
    let mut keys = Vec::new();
    while let Some(key) = cursor.seek(from) {
        assert!(key >= from && key < end, "{what}: key {key} of {end}");
        assert_eq!(cursor.seek(key), Some(key), "{what} stays");
        assert_eq!(cursor.seek(0), Some(key), "{what} does not move back");
        if !cursor.load().is_empty() {
            keys.push(key);
        }
        seen += 1;
        from = key + 1;
    }
    assert!(seen <= most, "{what}: {seen} chunks of {most}");
    assert_eq!(cursor.seek(from), None, "{what} stays at its end");
    // A jump lands where a walk would have.
    for &target in keys.iter().step_by(keys.len() / 8 + 1) {
        let mut jumped = make();
        assert_eq!(jumped.seek(target), Some(target), "{what}");
        assert!(!jumped.load().is_empty(), "{what}");
        let mut counted = make();
        counted.seek(target);
        assert_eq!(counted.count(), count_from(make(), target), "{what} from {target}");
    }
}

/// How many ids the chunks from `key` on hold.
fn count_from(mut cursor: impl Chunks, key: u32) -> u64 {
    let (mut count, mut from) = (0, key);
    while let Some(key) = cursor.seek(from) {
        count += u64::from(cursor.load().len());
        from = key + 1;
    }
    count
}

/// Whether the encoded set would be too large for a test that encodes many.
pub fn too_large(codec: Codec, ids: &[u32]) -> bool {
    match codec {
        Codec::Hipes(w) => {
            let chunks = ids.chunk_by(|a, b| a >> w.get() == b >> w.get()).count();
            chunks << w.get() >> 3 > 4 << 20
        }
        _ => false,
    }
}

/// Results of the set operations on sorted ids, by plain code.
pub mod oracle {
    use std::collections::BTreeSet;

    fn set(ids: &[u32]) -> BTreeSet<u32> {
        ids.iter().copied().collect()
    }
    /// Ids in both.
    pub fn and(a: &[u32], b: &[u32]) -> Vec<u32> {
        set(a).intersection(&set(b)).copied().collect()
    }
    /// Ids in either.
    pub fn or(a: &[u32], b: &[u32]) -> Vec<u32> {
        set(a).union(&set(b)).copied().collect()
    }
    /// Ids in exactly one.
    pub fn xor(a: &[u32], b: &[u32]) -> Vec<u32> {
        set(a).symmetric_difference(&set(b)).copied().collect()
    }
    /// Ids of `a` that are not in `b`.
    pub fn and_not(a: &[u32], b: &[u32]) -> Vec<u32> {
        set(a).difference(&set(b)).copied().collect()
    }
    /// Ids below `rows` that are not in `a`.
    pub fn complement(a: &[u32], rows: u32) -> Vec<u32> {
        let a = set(a);
        (0..rows).filter(|id| !a.contains(id)).collect()
    }
}

fn check_result<C: Chunks>(what: &str, target: Codec, make: impl Fn() -> C, expected: &[u32]) {
    assert!(make().ids().eq(expected.iter().copied()), "{what}: ids");
    assert_eq!(make().count(), expected.len() as u64, "{what}: count");
    let mut ids = Vec::new();
    make().push_ids(&mut ids);
    assert_eq!(ids, expected, "{what}: decoded");
    let mut bytes = Vec::new();
    make().encode(target, &mut bytes);
    assert_eq!(bytes, encoded(target, expected), "{what}: encoded in {target:?}");
}

/// Every operation on two encoded sets, against the oracle.
pub fn check_algebra(a: (Codec, &[u32]), b: (Codec, &[u32]), rows: u32, target: Codec) {
    let (a_bytes, b_bytes) = (encoded(a.0, a.1), encoded(b.0, b.1));
    let x = Bitmap::open(a.0, &a_bytes, rows).unwrap();
    let y = Bitmap::open(b.0, &b_bytes, rows).unwrap();
    let name = |op: &str| format!("{:?} {op} {:?}", a.0, b.0);
    let (x, y) = (|| x.chunks(), || y.chunks());
    check_result(&name("and"), target, || x().and(y()), &oracle::and(a.1, b.1));
    check_result(&name("or"), target, || x().or(y()), &oracle::or(a.1, b.1));
    check_result(&name("xor"), target, || x().xor(y()), &oracle::xor(a.1, b.1));
    check_result(&name("and not"), target, || x().and_not(y()), &oracle::and_not(a.1, b.1));
    let not = oracle::complement(a.1, rows);
    check_result(&name("complement"), target, || x().complement(rows), &not);
    let nested = oracle::or(&oracle::and(a.1, b.1), &oracle::and_not(b.1, a.1));
    let tree = || -> Box<dyn Chunks> { Box::new(x().and(y()).or(y().and_not(x()))) };
    check_result(&name("nested"), target, tree, &nested);
}

/// Union and intersection of many sets, against the oracle.
pub fn check_many(sets: &[(Codec, Vec<u32>)], rows: u32, target: Codec) {
    let bytes: Vec<Vec<u8>> = sets.iter().map(|(codec, ids)| encoded(*codec, ids)).collect();
    let cursors = || {
        let opened = sets.iter().zip(&bytes);
        opened.map(|((codec, _), bytes)| Bitmap::open(*codec, bytes, rows).unwrap().chunks())
    };
    let either = sets.iter().fold(vec![], |all, (_, ids)| oracle::or(&all, ids));
    check_result("union", target, || union(cursors()), &either);
    let both = sets.iter().map(|(_, ids)| ids.clone()).reduce(|all, ids| oracle::and(&all, &ids));
    let both = both.unwrap_or_default();
    check_result("intersection", target, || intersection(cursors()), &both);
}

/// Any bytes, opened as a bitmap of `codec`: an error, or a set that is exactly these bytes.
///
/// Returns the set when there is one.
pub fn check_bytes(codec: Codec, bytes: &[u8], rows: u32) -> Option<Vec<u32>> {
    // Explaining takes any bytes.
    let _ = codec.explain(bytes);
    let mut ids = Vec::new();
    if codec.decode(bytes, rows, &mut ids).is_err() {
        assert!(ids.is_empty(), "{codec:?} gives nothing after an error");
        assert!(Bitmap::open(codec, bytes, rows).is_err());
        return None;
    }
    assert!(ids.is_sorted_by(|a, b| a < b), "{codec:?} ascends");
    assert!(ids.last().is_none_or(|&id| id < rows), "{codec:?} keeps to the rows");
    let again = encoded(codec, &ids);
    if codec == Codec::Roaring {
        // The public format has several forms of a set; ours is equivalent.
        let mut same = Vec::new();
        codec.decode(&again, rows, &mut same).unwrap();
        assert_eq!(same, ids, "{codec:?} says the same in our form");
    } else {
        assert_eq!(again, bytes, "{codec:?} re-encodes to itself");
    }
    let set = Bitmap::open(codec, bytes, rows).unwrap();
    assert_eq!(set.cardinality(), ids.len() as u64);
    assert!(set.ids().eq(ids.iter().copied()));
    Some(ids)
}

/// The most rows a fuzzed set may have: enough for every limit of the formats but the longest runs.
const FUZZ_ROWS: u32 = 1 << 17;

/// Body of the fuzz targets `decode_NAME`: the first two bytes choose the row count (and `w`).
pub fn fuzz_decode(codec: Codec, data: &[u8]) {
    let Some((&[a, b], bytes)) = data.split_first_chunk() else { return };
    let rows = (u32::from(a) << 8 | u32::from(b)) * (FUZZ_ROWS >> 16) + 1;
    let codec = match codec {
        Codec::Hipes(_) => Codec::Hipes(Width::new(7 + a % 11).unwrap()),
        other => other,
    };
    check_bytes(codec, bytes, rows);
    if codec == Codec::Masc
        && let Ok(set) = Windowed::open(bytes, rows)
    {
        let ids: Vec<u32> = set.chunks().ids().collect();
        let mut again = Vec::new();
        Windowed::encode(&ids, &mut again);
        assert_eq!(again, bytes, "windowed MASC re-encodes to itself");
        let range = u32::from(b) * 64..u32::from(a) * 512;
        let mut found = Vec::new();
        set.range(range.clone(), |first, last| found.extend(first..=last));
        assert!(ids.iter().filter(|id| range.contains(id)).eq(&found), "windowed MASC has ranges");
    }
}

/// Body of the fuzz target `ops_vs_oracle`: bytes that become two sets and what to do with them.
///
/// Returns the two sets and the row count, for comparing with other libraries.
pub fn fuzz_algebra(data: &[u8]) -> Option<(Vec<u32>, Vec<u32>, u32)> {
    let (&[a, b, target, split, shift], rest) = data.split_first_chunk()?;
    let all = codecs();
    let pick = |byte: u8| all[usize::from(byte) % all.len()];
    let rows = FUZZ_ROWS;
    let (left, right) = rest.split_at(rest.len() * usize::from(split) / 256);
    let (left, right) = (fuzz_ids(left, shift & 15, rows), fuzz_ids(right, shift >> 4, rows));
    let sets = (pick(a), pick(b), pick(target));
    let large = [(sets.0, &left), (sets.1, &right), (sets.2, &left)];
    if large.iter().any(|(codec, ids)| too_large(*codec, ids)) {
        return None;
    }
    check_algebra((sets.0, &left), (sets.1, &right), rows, sets.2);
    let many = [(sets.0, left.clone()), (sets.1, right.clone()), (sets.2, left.clone())];
    check_many(&many, rows, sets.1);
    Some((left, right, rows))
}

/// Ids from bytes: each pair is a gap, stretched by `shift`, and a run.
fn fuzz_ids(bytes: &[u8], shift: u8, rows: u32) -> Vec<u32> {
    let mut ids = Vec::new();
    let mut at = 0;
    for pair in bytes.as_chunks::<2>().0 {
        at += u32::from(pair[0]) << (shift % 9);
        let run = match pair[1] {
            byte @ 0..=127 => 1 + u32::from(byte & 7),
            byte => 1 << (byte & 15),
        };
        if at >= rows {
            break;
        }
        ids.extend(at..(at + run).min(rows));
        at += run + 1;
    }
    ids
}
