//! Opening, verifying and searching a file takes memory within bounds, whatever the file says.
#![allow(clippy::unwrap_used, reason = "a failed test panics")]

use std::path::Path;

use peak_alloc::PeakAlloc;
use tapdex_bitmap::{Chunks, Codec};
use tapdex_engine::IndexError;
use tapdex_engine::archive::CodecChoice;
use tapdex_engine::index::{BLOCK_LEN, ColumnSpec, Field, Index, Schema, SectionKind, Width};
use tapdex_engine::testing::segment::{segment_of, varied};
use tapdex_engine::testing::{Parts, Table, mend, relocate};

// The only test of this file: others in the same process would be counted with it.
#[global_allocator]
static MEMORY: PeakAlloc = PeakAlloc;

/// A chunk that a cursor unpacks, a hundred messages and the like: what does not grow.
const FIXED: usize = 128 << 10;
/// Room for a chunk: an array, a bitset and some runs.
const CHUNK: usize = 18 << 10;
/// The codes of a row map, ready to be read, and what writes a block of it again.
const CODES: usize = 20 << 10;
/// A bitmap, the cursor over it, and their share of lists that have grown.
const CURSOR: usize = 200;
/// A row of an index of conversations while it is verified, with two ends that have values of their
/// own.
const ROW: usize = 256;
/// A byte of the directory and the schema of an index of conversations while it is opened.
const DIRECTORY: usize = 64;

/// How much memory `work` takes at its peak, besides what there was before.
fn peak(work: impl FnOnce()) -> usize {
    let before = MEMORY.current_usage();
    MEMORY.reset_peak_usage();
    work();
    MEMORY.peak_usage() - before
}

/// How much memory it takes to open and verify bytes; what opening has to say.
fn opened(bytes: Vec<u8>) -> (usize, Option<IndexError>) {
    let mut error = None;
    let found = peak(|| match Index::from_bytes(bytes) {
        Ok(index) => drop(index.verify(&mut |_| {})),
        Err(found) => error = Some(found),
    });
    (found, error)
}

/// A table of one field of one column.
fn table_of(name: &str, codec: Codec, digits: Vec<u16>) -> Table {
    let columns = vec![ColumnSpec { width: Width::Short, codec }];
    let schema = Schema { fields: vec![Field { name: name.into(), columns }] };
    let rows = u32::try_from(digits.len()).unwrap();
    Table { schema, rows, columns: vec![digits], ..Table::default() }
}

/// A file of a schema, and of as many sections more that have no bytes and that nobody knows.
fn with_schema(schema: &[u8], more: usize) -> Vec<u8> {
    let file = Table::default().to_bytes();
    let directory = file.len() - 72..file.len() - 40;
    let mut bytes = file[..64].to_vec();
    bytes.extend(schema);
    bytes.resize(
        (bytes.len() + 4 * schema.len().div_ceil(usize::try_from(BLOCK_LEN).unwrap()))
            .next_multiple_of(64),
        0,
    );
    let mut entry = file[directory].to_vec();
    entry[16..24].copy_from_slice(&(schema.len() as u64).to_le_bytes());
    bytes.extend(&entry);
    entry[..2].copy_from_slice(&[0xFF, 0x7F]);
    entry[16..24].fill(0);
    (0..more).for_each(|_| bytes.extend(&entry));
    let mut footer = file[file.len() - 40..].to_vec();
    footer[8..16].copy_from_slice(&(32 + 32 * more as u64).to_le_bytes());
    bytes.extend(footer);
    relocate(&mut bytes);
    mend(&mut bytes);
    bytes
}

#[test]
fn memory_is_bounded_by_the_file() {
    forged_numbers();
    many_columns();
    more_columns_than_sections();
    sections_without_bytes();
    many_problems();
    look_ups();
    long_lists();
    segments();
    forged_segments();
    many_columns_of_a_segment();
}

/// Opening takes memory for directory and schema, verifying for the rows.
fn segments() {
    for (packets, codec) in [(1_000, CodecChoice::Auto), (20_000, CodecChoice::Auto)]
        .into_iter()
        .chain([(5_000, CodecChoice::Fixed(Codec::Roaring))])
    {
        let mut profile = varied(packets, 1);
        (profile.scan_share, profile.flood_share) = (0.45, 0.45);
        let bytes = segment_of(&profile, codec);
        let len = bytes.len();
        let mut index = None;
        let found = peak(|| index = Some(Index::from_bytes(bytes).unwrap()));
        assert!(found <= CHUNK + DIRECTORY * 1_024, "{packets} packets: {found} to open");
        let index = index.unwrap();
        let found = peak(|| assert!(index.verify(&mut |_| {}).is_sound()));
        let most = FIXED + 2 * len + ROW * index.rows() as usize;
        assert!(found <= most, "{packets} packets: {found} of {most}");
    }
}

/// A row takes a bit of the file at least.
fn forged_segments() {
    let sound = segment_of(&varied(60, 1), CodecChoice::Auto);
    for at in 0..sound.len() {
        for forged in [[0xFF; 8], [0xFF, 0xFF, 0xFF, 0x7F, 0, 0, 0, 0], [0; 8]] {
            for len in [1, 2, 4, 8] {
                let mut bytes = sound.clone();
                let end = (at + len).min(sound.len());
                bytes[at..end].copy_from_slice(&forged[..end - at]);
                mend(&mut bytes);
                let most = FIXED + ROW * 8 * bytes.len();
                let (found, _) = opened(bytes);
                assert!(found <= most, "offset {at}, {len} bytes: {found} of {most}");
            }
        }
    }
}

/// No rows, and the shortest columns.
fn many_columns_of_a_segment() {
    const COLUMNS: u16 = 10_000;
    let mut parts = Parts::decode(&segment_of(&varied(1, 1), CodecChoice::Auto)).unwrap();
    let section = |kind: SectionKind, bytes: Vec<u8>| (2 * kind as u64, bytes);
    let mut schema =
        vec![0, 0, 0x80 | (COLUMNS & 0x7F).to_le_bytes()[0], (COLUMNS >> 7).to_le_bytes()[0]];
    for number in 0..COLUMNS {
        schema.extend([0, 1, 0, 0, 4]);
        schema.extend(format!("{number:04x}").as_bytes());
    }
    parts.sections =
        vec![section(SectionKind::Flows, vec![]), section(SectionKind::RowMap, vec![])];
    parts.sections.extend((0..COLUMNS).map(|_| section(SectionKind::Column, vec![])));
    let most = FIXED + DIRECTORY * (schema.len() + 2 * parts.sections.len());
    parts.sections.push(section(SectionKind::Schema, schema));
    let (found, error) = opened(parts.encode());
    assert!(error.is_none() && found <= most, "{error:?}: {found} of {most}");
}

fn forged_numbers() {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/index.v1.tdx");
    for file in [std::fs::read(golden).unwrap(), Table::sample(11, 40).to_bytes()] {
        for at in 0..file.len() {
            for forged in [[0xFF; 8], [0xFF, 0xFF, 0xFF, 0x7F, 0, 0, 0, 0], [0; 8]] {
                for len in [1, 2, 4, 8] {
                    let mut bytes = file.clone();
                    let end = (at + len).min(file.len());
                    bytes[at..end].copy_from_slice(&forged[..end - at]);
                    mend(&mut bytes);
                    let most = CHUNK + CODES + bytes.len();
                    let (found, _) = opened(bytes);
                    assert!(found <= most, "offset {at}, {len} bytes: {found} of {most}");
                }
            }
        }
    }
}

/// No rows: the least bytes for a column.
fn many_columns() {
    for (fields, columns) in [(20_000, 1), (1_000, 16)] {
        let spec = ColumnSpec { width: Width::Byte, codec: Codec::Wah };
        let field = |n| Field { name: format!("{n:x}"), columns: vec![spec; columns] };
        let schema = Schema { fields: (0..fields).map(field).collect() };
        let table = Table { columns: vec![vec![]; fields * columns], schema, ..Table::default() };
        let bytes = table.to_bytes();
        let most = FIXED + 2 * bytes.len();
        let (found, error) = opened(bytes);
        assert!(error.is_none() && found <= most, "{fields} by {columns}: {found} of {most}");
    }
}

/// A schema of as many columns as there can be, and too few sections for them.
fn more_columns_than_sections() {
    let mut schema = vec![0, 0, 0, 0, 0, 0, 0xFF, 0xFF];
    for _ in 0..u16::MAX {
        schema.extend([1, 16, b'a']);
        schema.extend([8, 1, 0].repeat(16));
    }
    for (more, refused) in [(0, "number of fields"), (3 * 65_535, "number of columns")] {
        let bytes = with_schema(&schema, more);
        let most = FIXED + 2 * bytes.len();
        let (found, error) = opened(bytes);
        assert!(matches!(error, Some(IndexError::BadField { what, .. }) if what == refused));
        assert!(found <= most, "{refused}: {found} of {most}");
    }
}

fn sections_without_bytes() {
    let bytes = with_schema(&[0; 8], 100_000);
    let most = FIXED + 2 * bytes.len();
    let (found, error) = opened(bytes);
    assert!(error.is_none() && found <= most, "{found} of {most}");
}

/// The longest name in as many messages as there are.
fn many_problems() {
    let mut bytes = table_of(&"x".repeat(255), Codec::Masc, (0..250).collect()).to_bytes();
    let index = Index::from_bytes(bytes.clone()).unwrap();
    let bitmaps = index.sections().find(|s| s.kind == Some(SectionKind::Bitmaps)).unwrap();
    let start = usize::try_from(bitmaps.offset).unwrap();
    bytes[start..start + usize::try_from(bitmaps.len_bytes).unwrap()].fill(0);
    mend(&mut bytes);
    let most = FIXED + 2 * bytes.len();
    let (found, error) = opened(bytes);
    assert!(error.is_none() && found <= most, "{found} of {most}");
}

fn look_ups() {
    let digits: Vec<u16> = (0..=u16::MAX).chain(0..=u16::MAX).collect();
    for codec in [Codec::Wah, Codec::Masc, Codec::Roaring] {
        let index = Index::from_bytes(table_of("a", codec, digits.clone()).to_bytes()).unwrap();
        // What is remembered of the bitmaps of a column belongs to opening it.
        assert!(index.verify(&mut |_| {}).is_sound());
        for keys in [1, 100, 10_000] {
            let found = peak(|| {
                let rows = index.field("a").unwrap().range(0..=keys - 1).unwrap();
                assert_eq!(u128::from(rows.count()), 2 * keys);
            });
            let most = 4 * CHUNK + CURSOR * usize::try_from(keys).unwrap();
            assert!(found <= most, "{codec}, {keys} keys: {found} of {most}");
        }
    }
}

/// A list of values whose digits are joined one by one: each has a few cursors, and none keeps a
/// chunk when its turn is over.
fn long_lists() {
    const VALUE: usize = 1 << 10;
    let (high, low): (Vec<u16>, Vec<u16>) = (0..20_000).map(|row| (row, row % 7)).unzip();
    for codec in [Codec::Plwah, Codec::Masc, Codec::Roaring] {
        let spec = ColumnSpec { width: Width::Short, codec };
        let field = Field { name: "a".to_owned(), columns: vec![spec; 2] };
        let schema = Schema { fields: vec![field] };
        let columns = vec![high.clone(), low.clone()];
        let table = Table { rows: 20_000, columns, schema, ..Table::default() };
        let index = Index::from_bytes(table.to_bytes()).unwrap();
        assert!(index.verify(&mut |_| {}).is_sound());
        let values: Vec<u128> = (0..2_000).map(|row| row << 16 | (row % 7)).collect();
        let found = peak(|| {
            let rows = index.field("a").unwrap().any_of(&values).unwrap();
            assert_eq!(rows.count(), 2_000);
        });
        let most = 8 * CHUNK + VALUE * values.len();
        assert!(found <= most, "{codec}: {found} of {most}");
    }
}
