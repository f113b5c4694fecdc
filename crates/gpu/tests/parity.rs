//! The device's indexes are those of the CPU, byte for byte.
//!
//! Runs on the kernels compiled for this machine's CPU, or with `TAPDEX_DEVICE=cuda` on a GPU,
//! where the columns are larger unless `TAPDEX_PARITY=small`.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]
#![allow(clippy::cast_possible_truncation, reason = "digits are the low bits, rows are few")]

use std::sync::Arc;

use tapdex_bitmap::codec::hipes::Width;
use tapdex_bitmap::codec::masc::Windowed;
use tapdex_bitmap::{ALL_CODECS, Codec};
use tapdex_engine::index::{BuildError, Builder, ColumnIndex, CpuBuilder, Digits};
use tapdex_gpu::device::Device;
use tapdex_gpu::testing::{is_large, on_gpu};
use tapdex_gpu::{ColumnSource, Form, GpuBuilder};

fn device() -> Arc<dyn Device> {
    tapdex_gpu::testing::device(1).unwrap()
}

/// Rows of the larger columns.
fn rows_large() -> usize {
    match (on_gpu(), is_large()) {
        (true, true) => 5_000_000,
        _ => 40_000,
    }
}

/// Numbers that look random and are the same everywhere.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }
}

/// Columns of all kinds, by name.
fn columns(rows: usize) -> Vec<(String, Vec<u16>)> {
    let mut random = Random(rows as u64);
    let mut found = Vec::new();
    let mut add = |name: &str, column: Vec<u16>| found.push((format!("{name} {rows}"), column));
    add("uniform", (0..rows).map(|_| random.next() as u16).collect());
    add("few values", (0..rows).map(|_| random.below(7) as u16 * 4_099).collect());
    let skewed = (0..rows).map(|_| (random.next() | 1 << 40).trailing_zeros() as u16 * 257);
    add("skewed", skewed.collect());
    add("constant", vec![0xABCD; rows]);
    add("zero", vec![0; rows]);
    add("alternating", (0..rows).map(|row| [3, 0xFF03][row % 2]).collect());
    add("rising", (0..rows).map(|row| (row / 3) as u16).collect());
    add("groups", (0..rows).map(|row| (row / 31 % 5) as u16).collect());
    add("long groups", (0..rows).map(|row| (row / 310 % 3) as u16).collect());
    for longest in [3, 20, 70, 500, 9_000] {
        let mut column = Vec::with_capacity(rows);
        while column.len() < rows {
            let digit = random.next() as u16 & [0x0303, 0xFFFF][longest % 2];
            let len = 1 + random.below(longest as u64) as usize;
            column.resize((column.len() + len).min(rows), digit);
        }
        add(&format!("runs to {longest}"), column);
    }
    // Mostly one value, so that the others are far apart and its own groups nearly full.
    for often in [2, 8, 60, 900] {
        let odd = |random: &mut Random| match random.below(often) {
            0 => 1 + random.below(3) as u16 * 256,
            _ => 9,
        };
        add(&format!("odd one in {often}"), (0..rows).map(|_| odd(&mut random)).collect());
    }
    found
}

fn forms() -> Vec<Codec> {
    ALL_CODECS.into_iter().collect()
}

/// Fails at the first difference, in words.
fn assert_same(what: &str, got: &ColumnIndex, expected: &ColumnIndex) {
    assert_eq!(got.rows, expected.rows, "{what}: rows");
    assert_eq!(got.keys, expected.keys, "{what}: keys");
    let (got_bytes, expected_bytes) = (got.bitmaps(), expected.bitmaps());
    if got.offsets != expected.offsets || got_bytes != expected_bytes {
        let key = expected.offsets.windows(2).zip(got.offsets.windows(2)).position(|(a, b)| {
            let part = |bytes: &[u8], range: &[u64]| {
                bytes.get(range[0] as usize..range[1] as usize).map(<[u8]>::to_vec)
            };
            a != b || part(&expected_bytes, a) != part(&got_bytes, b)
        });
        let Some(key) = key else { panic!("{what}: other offsets") };
        let words = |bytes: &[u8], offsets: &[u64]| -> Vec<String> {
            let end = (offsets[key + 1] as usize).min(bytes.len());
            let bytes = &bytes[offsets[key] as usize..end.max(offsets[key] as usize)];
            bytes
                .chunks(4)
                .take(40)
                .map(|word| {
                    let mut padded = [0; 4];
                    padded[..word.len()].copy_from_slice(word);
                    format!("{:08X}", u32::from_le_bytes(padded))
                })
                .collect()
        };
        panic!(
            "{what}: key {} at {:?} should be at {:?}\n got {:?}\nwant {:?}",
            expected.keys[key],
            &got.offsets[key..key + 2],
            &expected.offsets[key..key + 2],
            words(&got_bytes, &got.offsets),
            words(&expected_bytes, &expected.offsets),
        );
    }
    assert!(got == expected, "{what}");
}

/// Whether an index would have gigabytes: bitsets of 8 KiB for many keys, say.
fn is_huge(column: &[u16], codec: Codec) -> bool {
    let Codec::Hipes(width) = codec else { return false };
    let keys: std::collections::BTreeSet<u16> = column.iter().copied().collect();
    let chunks = (column.len() >> width.get()) + 1;
    keys.len().min(column.len()) * chunks * (1 << (width.get() - 3)) > 1 << 31
}

/// Builds each column in each codec on the device and on the CPU, and compares.
fn check(columns: &[(String, Vec<u16>)], codecs: &[Codec]) -> usize {
    let mut gpu = GpuBuilder::new(device());
    let (mut cpu, mut expected) = (CpuBuilder::new(1), ColumnIndex::default());
    let mut compared = 0;
    for (name, shorts) in columns {
        let bytes: Vec<u8> = shorts.iter().map(|&digit| digit as u8).collect();
        let sources = [Digits::Shorts(shorts), Digits::Bytes(&bytes)];
        let all: Vec<_> = sources
            .iter()
            .flat_map(|&digits| codecs.iter().map(move |&codec| (digits, codec)))
            .filter(|&(digits, codec)| match digits {
                Digits::Shorts(digits) => !is_huge(digits, codec),
                Digits::Bytes(_) => true,
            })
            .collect();
        let mut at = 0;
        gpu.build_each::<BuildError>(&all, |index| {
            let (digits, codec) = all[at];
            cpu.build(digits, codec, &mut expected)?;
            let what = format!("{name}, {codec} {}, {:?}", codec.parameter(), digits.width());
            assert_same(&what, index, &expected);
            at += 1;
            Ok(())
        })
        .unwrap();
        assert_eq!(at, all.len());
        compared += at;
        if let Some(trouble) = gpu.trouble() {
            panic!("{name}: {trouble}");
        }
    }
    let built = gpu.built();
    let empty = columns.iter().filter(|(_, column)| column.is_empty()).count();
    assert_eq!(built.cpu as usize, 2 * empty * codecs.len(), "all but empty ones on the device");
    compared
}

#[test]
fn columns_of_every_kind() {
    let compared = check(&columns(rows_large()), &forms());
    println!("{compared} columns of {} rows, all equal", rows_large());
}

#[test]
fn small_columns() {
    let mut all = Vec::new();
    for rows in [0, 1, 2, 30, 31, 32, 62, 63, 1_000] {
        let kinds = columns(rows);
        // Each kind in some sizes where a launch takes a while, in all on a GPU.
        let picked = kinds.into_iter().enumerate();
        all.extend(picked.filter(|(kind, _)| is_large() || (kind + rows) % 4 == 0).map(|(_, c)| c));
    }
    println!("{} small columns, all equal", check(&all, &forms()));
}

#[test]
fn ends_of_tiles_and_chunks() {
    let mut random = Random(5);
    let mut all = Vec::new();
    for edge in [8_192, 16_384, 65_536] {
        for rows in [edge - 1, edge, edge + 1] {
            let mut column = vec![1; rows];
            for row in [0, 1, edge - 2, edge - 1, edge] {
                if row < rows {
                    column[row] = random.below(3) as u16;
                }
            }
            all.push((format!("edge of {edge}, {rows} rows"), column));
        }
    }
    println!("{} columns with edges, all equal", check(&all, &forms()));
}

#[test]
fn every_width_of_hipes() {
    let all: Vec<_> = (7..=29).filter_map(Width::new).map(Codec::Hipes).collect();
    let mut column = vec![1; 3_000];
    column[130] = 2;
    column[2_999] = 2;
    let narrow: Vec<_> = all.iter().copied().filter(|codec| codec.parameter() < 20).collect();
    check(&[("two values".into(), column)], &narrow);
    // A chunk of 2^29 rows has 64 MiB.
    check(&[("constant".into(), vec![7; 500])], &all);
}

#[test]
fn runs_that_the_caller_knows() {
    let mut gpu = GpuBuilder::new(device());
    let (mut cpu, mut expected) = (CpuBuilder::new(1), ColumnIndex::default());
    for (name, column) in columns(3_000) {
        // Cut at changes, and now and then where nothing changes.
        let heads: Vec<usize> = (0..column.len())
            .filter(|&row| row == 0 || column[row] != column[row - 1] || row % 97 == 0)
            .collect();
        let digits: Vec<u16> = heads.iter().map(|&row| column[row]).collect();
        let starts: Vec<u32> = heads.iter().map(|&row| row as u32).collect();
        let source = ColumnSource::Runs(&digits, &starts, column.len() as u32);
        let all: Vec<_> = forms().into_iter().map(|codec| (source, Form::Whole(codec))).collect();
        gpu.build_sources::<BuildError>(&all, |index| {
            cpu.build(Digits::Shorts(&column), index.codec, &mut expected)?;
            assert_same(&format!("{name}, runs, {}", index.codec), index, &expected);
            Ok(())
        })
        .unwrap();
        assert!(gpu.trouble().is_none());
    }
}

#[test]
fn windows_of_masc() {
    let mut gpu = GpuBuilder::new(device());
    for (name, column) in columns(20_000) {
        // Not too many keys: each has a word for every window.
        let column: Vec<u16> = column.iter().map(|&digit| digit & 0x01FF).collect();
        let mut keys = column.clone();
        keys.sort_unstable();
        keys.dedup();
        let (mut expected, mut offsets) = (Vec::new(), vec![0]);
        for &key in &keys {
            let ids = (0_u32..).zip(&column).filter(|&(_, &digit)| digit == key);
            Windowed::encode(&ids.map(|(row, _)| row).collect::<Vec<_>>(), &mut expected);
            offsets.push(expected.len() as u64);
        }
        let all = [(ColumnSource::Rows(Digits::Shorts(&column)), Form::MascWindows)];
        gpu.build_sources::<BuildError>(&all, |index| {
            assert_eq!((&index.keys, &index.offsets), (&keys, &offsets), "{name}");
            assert!(index.bitmaps() == expected, "{name}");
            Ok(())
        })
        .unwrap();
        assert!(gpu.trouble().is_none());
    }
}

/// So many rows that every loop over tiles goes round more than once; on a GPU only, in memory that
/// the device reads by itself.
#[test]
fn columns_as_long_as_can_be() {
    if !is_large() {
        return;
    }
    let mut gpu = GpuBuilder::new(device());
    let rows = 1 << 27;
    let mut column = gpu.pinned(rows).unwrap();
    let mut random = Random(27);
    column.iter_mut().for_each(|digit| *digit = random.next() as u8);
    let mut cpu = CpuBuilder::new(0);
    let mut expected = ColumnIndex::default();
    let codecs = [Codec::Wah, Codec::Secompax, Codec::Roaring];
    for (digits, what) in
        [(Digits::Bytes(&column), "bytes"), (Digits::Shorts(&column.shorts()[..1 << 26]), "shorts")]
    {
        let all = codecs.map(|codec| (digits, codec));
        gpu.build_each::<BuildError>(&all, |index| {
            cpu.build(digits, index.codec, &mut expected)?;
            assert_same(&format!("{what}, {}", index.codec), index, &expected);
            Ok(())
        })
        .unwrap();
    }
    assert!(gpu.trouble().is_none() && gpu.built().cpu == 0);
    println!("{} columns of {rows} rows and half of it, all equal", 2 * codecs.len());
}

#[test]
fn pinned_columns() {
    let mut gpu = GpuBuilder::new(device());
    let (mut cpu, mut expected) = (CpuBuilder::new(1), ColumnIndex::default());
    let mut random = Random(3);
    let pinned: Vec<_> = (0..9)
        .map(|_| {
            let mut column = gpu.pinned(20_000).unwrap();
            column.iter_mut().for_each(|digit| *digit = random.next() as u8 & 0x1F);
            column
        })
        .collect();
    let all: Vec<_> =
        pinned.iter().zip(ALL_CODECS).map(|(c, codec)| (Digits::Bytes(c), codec)).collect();
    let mut at = 0;
    gpu.build_each::<BuildError>(&all, |index| {
        cpu.build(all[at].0, all[at].1, &mut expected)?;
        assert_same("pinned", index, &expected);
        at += 1;
        Ok(())
    })
    .unwrap();
    assert!(gpu.trouble().is_none() && at == 9);
}

#[test]
fn runs_that_part_nothing_are_refused() {
    let mut gpu = GpuBuilder::new(device());
    for (digits, starts) in [
        (&[3, 4][..], &[5, 2][..]),
        (&[3, 4], &[1, 2]),
        (&[3, 4], &[0, 5, 7]),
        (&[3, 4], &[0]),
        (&[3, 4], &[0, 50]),
        (&[], &[]),
    ] {
        for codec in [Codec::Wah, Codec::Compax, Codec::Roaring] {
            let all = [(ColumnSource::Runs(digits, starts, 10), Form::Whole(codec))];
            let built = gpu.build_sources::<BuildError>(&all, |index| panic!("{index:?}"));
            assert!(matches!(built, Err(BuildError::BadRuns { .. })), "{digits:?} {starts:?}");
        }
    }
    let good = [(ColumnSource::Runs(&[3, 4], &[0, 5], 10), Form::Whole(Codec::Wah))];
    gpu.build_sources::<BuildError>(&good, |_| Ok(())).unwrap();
    assert_eq!((gpu.built().device, gpu.trouble().is_none()), (1, true));
}

/// A column put together from stretches of all kinds, so that what follows what is left to chance.
fn random_column(random: &mut Random) -> Vec<u16> {
    let bits = random.below(13);
    let rows = 1 + random.below(1 << bits) as usize;
    let digits: Vec<u16> = (0..1 + random.below(6)).map(|_| random.next() as u16).collect();
    let digit = |random: &mut Random| digits[random.below(digits.len() as u64) as usize];
    let mut column = Vec::with_capacity(rows);
    while column.len() < rows {
        let bits = random.below(11);
        let len = 1 + random.below(1 << bits) as usize;
        let (a, b) = (digit(random), digit(random));
        let often = 1 + random.below(64);
        match random.below(4) {
            // A run, often of whole groups.
            0 => column.resize(column.len() + len.next_multiple_of(31), a),
            1 => column.resize(column.len() + len, a),
            // Mostly one digit.
            2 => column.extend((0..len).map(|_| if random.below(often) == 0 { b } else { a })),
            _ => column.extend((0..len).map(|_| digit(random))),
        }
    }
    column.truncate(rows);
    column
}

/// So many columns as `TAPDEX_CASES` says, from the seed that `TAPDEX_SEED` names.
#[test]
fn columns_left_to_chance() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse().ok());
    let cases = number("TAPDEX_CASES").unwrap_or(24);
    let mut random = Random(number("TAPDEX_SEED").unwrap_or(5));
    let mut gpu = GpuBuilder::new(device());
    let (mut cpu, mut expected) = (CpuBuilder::new(1), ColumnIndex::default());
    for case in 0..cases {
        let before = random.0;
        let shorts = random_column(&mut random);
        let bytes: Vec<u8> = shorts.iter().map(|&digit| digit as u8).collect();
        let digits = match random.below(2) {
            0 => Digits::Bytes(&bytes),
            _ => Digits::Shorts(&shorts),
        };
        let width = Width::new(7 + random.below(12) as u8).unwrap();
        let codecs = ALL_CODECS.map(|codec| match codec {
            Codec::Hipes(_) => Codec::Hipes(width),
            other => other,
        });
        let all = codecs.map(|codec| (digits, codec));
        let mut at = 0;
        gpu.build_each::<BuildError>(&all, |index| {
            cpu.build(digits, all[at].1, &mut expected)?;
            let what = format!("case {case}, TAPDEX_SEED={before}, {}", all[at].1);
            assert_same(&what, index, &expected);
            at += 1;
            Ok(())
        })
        .unwrap();
        assert_eq!((at, gpu.trouble().is_none()), (9, true), "TAPDEX_SEED={before}");
    }
    println!("{cases} columns in nine codecs, all equal");
}
