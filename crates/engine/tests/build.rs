//! The builder against plain code that sorts nothing: one list of rows a value.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use proptest::prelude::*;
use tapdex_bitmap::sample::Random;
use tapdex_bitmap::{Codec, testing};
use tapdex_engine::index::{BuildError, Builder, ColumnIndex, CpuBuilder, Digits, Part};

const BLOCK: usize = 1 << 16;

/// The index as it has to be: every value that occurs, ascending, and the bytes of its rows.
fn expected(column: Digits<'_>, codec: Codec) -> (Vec<u16>, Vec<u64>, Vec<u8>) {
    let mut lists = vec![vec![]; 1 << 16];
    match column {
        Digits::Bytes(digits) => {
            (0..).zip(digits).for_each(|(row, &digit)| lists[usize::from(digit)].push(row));
        }
        Digits::Shorts(digits) => {
            (0..).zip(digits).for_each(|(row, &digit)| lists[usize::from(digit)].push(row));
        }
    }
    let (mut keys, mut offsets, mut bytes) = (vec![], vec![0], vec![]);
    for (key, rows) in (0..=u16::MAX).zip(&lists).filter(|(_, rows)| !rows.is_empty()) {
        codec.encode(rows, &mut bytes);
        keys.push(key);
        offsets.push(bytes.len() as u64);
    }
    (keys, offsets, bytes)
}

fn check(what: &str, builder: &mut CpuBuilder, column: Digits<'_>, codec: Codec) {
    let mut index = ColumnIndex::default();
    builder.build(column, codec, &mut index).unwrap();
    let (keys, offsets, bytes) = expected(column, codec);
    assert_eq!(index.keys, keys, "{what}, {codec}: keys");
    assert_eq!(index.offsets, offsets, "{what}, {codec}: offsets");
    assert!(index.bitmaps() == bytes, "{what}, {codec}: bitmaps");
    assert_eq!((index.codec, index.rows as usize), (codec, column.rows()), "{what}");
}

/// Columns that break builders: with a name and the digits.
fn columns(rows: usize) -> Vec<(&'static str, Vec<u16>)> {
    let random = &mut Random::new(7);
    let mut drawn = |values: u32| -> Vec<u16> {
        (0..rows).map(|_| u16::try_from(random.below(values)).unwrap()).collect()
    };
    let uniform = [2, 256, 257, 1_024, 65_536].map(|values| ("uniform", drawn(values)));
    let skewed = drawn(65_536).iter().zip(drawn(65_536)).map(|(a, b)| a & b & 0xF0FF).collect();
    let mut runs: Vec<u16> = drawn(700).iter().flat_map(|&digit| [digit; 50]).collect();
    runs.truncate(rows);
    let last = |row: usize| u16::try_from(row % 65_536).unwrap();
    let mut columns = vec![
        ("skewed", skewed),
        ("runs", runs),
        ("the least value", vec![0; rows]),
        ("the greatest value", vec![u16::MAX; rows]),
        ("alternating ends", (0..rows).map(|row| [0, u16::MAX][row % 2]).collect()),
        ("ascending", (0..rows).map(last).collect()),
        ("descending", (0..rows).map(|row| u16::MAX - last(row)).collect()),
    ];
    columns.extend(uniform);
    columns
}

fn bytes_of(digits: &[u16]) -> Vec<u8> {
    digits.iter().map(|digit| digit.to_le_bytes()[0]).collect()
}

#[test]
fn every_codec_on_every_column() {
    let builder = &mut CpuBuilder::new(1);
    for rows in [0, 1, 30, 31, 32, 1_000, 70_000] {
        for (what, digits) in columns(rows) {
            for codec in testing::codecs() {
                // A lone id takes up to 2^w / 8 bytes there, for each of many values.
                if matches!(codec, Codec::Hipes(width) if width.get() > 8) && rows > 1_000 {
                    continue;
                }
                check(what, builder, Digits::Shorts(&digits), codec);
                check(what, builder, Digits::Bytes(&bytes_of(&digits)), codec);
            }
        }
    }
}

#[test]
fn across_the_edges_of_blocks() {
    for rows in [BLOCK - 1, BLOCK, BLOCK + 1, 17 * BLOCK, 32 * BLOCK + 70_000] {
        for (what, digits) in columns(rows).into_iter().step_by(2) {
            for codec in [Codec::Secompax, Codec::Roaring] {
                check(what, &mut CpuBuilder::new(1), Digits::Shorts(&digits), codec);
                let bytes = bytes_of(&digits);
                check(what, &mut CpuBuilder::new(1), Digits::Bytes(&bytes), codec);
            }
        }
    }
}

#[test]
fn on_several_threads_it_is_the_same() {
    for threads in [0, 2, 3] {
        let builder = &mut CpuBuilder::new(threads);
        for (what, digits) in columns(16 * BLOCK + 300_000) {
            check(what, builder, Digits::Shorts(&digits), Codec::Plwah);
            check(what, builder, Digits::Bytes(&bytes_of(&digits)), Codec::Plwah);
        }
    }
}

#[test]
fn with_little_memory_it_is_the_same() {
    for (threads, records_max) in [(1, 1), (1, 900), (2, 20_000), (1, 299_999)] {
        let builder = &mut CpuBuilder::new(threads).with_records_max(records_max);
        for (what, digits) in columns(if records_max < 100 { 2_000 } else { 300_000 }) {
            // A pass over the column for each range of values: not too many for a test.
            let digits: Vec<u16> = digits
                .iter()
                .map(|digit| if records_max < 1_000 { digit % 777 } else { *digit })
                .collect();
            check(what, builder, Digits::Shorts(&digits), Codec::Masc);
            check(what, builder, Digits::Bytes(&bytes_of(&digits)), Codec::Roaring);
        }
    }
}

#[test]
fn many_columns_come_in_order() {
    for threads in [1, 2, 3] {
        for rows in [1_000, threads * 16 * BLOCK + 1] {
            let columns: Vec<_> = columns(rows).into_iter().map(|(_, digits)| digits).collect();
            let columns: Vec<_> =
                columns.iter().map(|digits| (Digits::Shorts(digits), Codec::Wah)).collect();
            let mut found = vec![];
            let mut builder = CpuBuilder::new(threads);
            let result: Result<(), BuildError> = builder.build_each(&columns, |index| {
                found.push((index.keys.clone(), index.offsets.clone(), index.bitmaps()));
                Ok(())
            });
            result.unwrap();
            assert_eq!(found.len(), columns.len());
            for (&(column, codec), found) in columns.iter().zip(&found) {
                assert!(expected(column, codec) == *found, "{threads} threads, {rows} rows");
            }
        }
    }
}

#[test]
fn indexes_are_equal_however_they_are_cut() {
    let build = |threads, codec, digits: &[u16]| {
        let mut index = ColumnIndex::default();
        CpuBuilder::new(threads).build(Digits::Shorts(digits), codec, &mut index).unwrap();
        index
    };
    let digits: Vec<u16> = (0..5_000).map(|row| row % 700).collect();
    let one = build(1, Codec::Plwah, &digits);
    let two = build(2, Codec::Plwah, &digits);
    assert!(one.parts.len() < two.parts.len() && one == two);
    assert!(one != build(2, Codec::Wah, &digits) && one != build(2, Codec::Plwah, &digits[1..]));
    let change = |change: fn(&mut ColumnIndex)| {
        let mut changed = two.clone();
        change(&mut changed);
        changed
    };
    assert!(one != change(|index| index.codec = Codec::Wah));
    assert!(one != change(|index| index.rows += 1));
    assert!(one != change(|index| index.keys[3] += 1));
    assert!(one != change(|index| index.offsets[3] += 1));
    assert!(
        one != change(|index| {
            let mut bytes = index.parts[1].to_vec();
            bytes[3] ^= 1;
            index.parts[1] = Part::Owned(bytes);
        })
    );
    assert!(one != change(|index| index.parts.push(Part::Owned(vec![0]))));
    let empty = build(1, Codec::Wah, &[]);
    assert!(empty == ColumnIndex::default() && empty == build(2, Codec::Wah, &[]));
}

#[test]
fn a_target_is_used_again() {
    let builder = &mut CpuBuilder::new(2);
    let mut index = ColumnIndex::default();
    for (what, digits) in columns(5_000) {
        builder.build(Digits::Shorts(&digits), Codec::Plwah, &mut index).unwrap();
        let (keys, offsets, bytes) = expected(Digits::Shorts(&digits), Codec::Plwah);
        assert_eq!((&index.keys, &index.offsets), (&keys, &offsets), "{what}");
        assert!(index.bitmaps() == bytes, "{what}");
    }
}

proptest! {
    #[test]
    fn any_column(
        digits in prop::collection::vec(any::<u16>(), 0..3_000),
        mask in any::<u16>(),
        threads in 1..4_usize,
        records_max in 1..4_000_usize,
    ) {
        let digits: Vec<u16> = digits.iter().map(|digit| digit & mask & 0x1FFF).collect();
        let mut builder = CpuBuilder::new(threads).with_records_max(records_max);
        check("any", &mut builder, Digits::Shorts(&digits), Codec::PlwahPlus);
        check("any", &mut builder, Digits::Bytes(&bytes_of(&digits)), Codec::Compax2);
    }
}
