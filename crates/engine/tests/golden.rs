//! One table, one file, for ever.
//!
//! `golden/index.v1.tdx` was written once and is not made again: a new version of the format gets
//! a new file, and this one stays readable. `golden/sums.v1.tdx` is the same with a section that
//! came later. `golden/index.v2.tdx` is the segment of some made-up traffic.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a failed test panics")]

use std::path::{Path, PathBuf};

use tapdex_bitmap::{ALL_CODECS, Chunks, Codec};
use tapdex_engine::archive::CodecChoice;
use tapdex_engine::fields::{FIELDS, length_class_start};
use tapdex_engine::index::{
    ALIGN, BLOCK_LEN, BLOCK_ROWS, BLOCK_VALUES, ColumnSpec, ENTRY_LEN, FIELD_BITS_MAX, FIELDS_MAX,
    FOOTER_LEN, FORMAT_VERSION, Field, HEADER_LEN, Index, MAGIC, MARK_RECORDS, Mark, NAME_LEN_MAX,
    NOTE_LEN_MAX, PieceSums, RowOrder, Rows, Schema, SectionKind, TABLE_VERSION, Width,
};
use tapdex_engine::testing::segment::{check_lookups, segment_of, varied};
use tapdex_engine::testing::{Table, check_index, forge_note};

const ROWS: u16 = 300;

fn golden_path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name)
}

/// Every codec, both widths, fields of one digit and of several, a row map, times, marks and a
/// note.
fn golden_table() -> Table {
    let byte = |codec| ColumnSpec { width: Width::Byte, codec };
    let short = |codec| ColumnSpec { width: Width::Short, codec };
    let hipes = Codec::from_id(8, 7).unwrap();
    let address = [Codec::Wah, Codec::Plwah, Codec::PlwahPlus, Codec::Compax].map(byte);
    let fields = vec![
        Field { name: "ip.src".into(), columns: address.into() },
        Field { name: "ip.proto".into(), columns: vec![byte(Codec::Compax2)] },
        Field { name: "port".into(), columns: vec![short(Codec::Secompax)] },
        Field { name: "mixed".into(), columns: vec![byte(Codec::Masc), short(hipes)] },
        Field { name: "len".into(), columns: vec![short(Codec::Roaring)] },
    ];
    let digits = |digit: fn(u16) -> u16| (0..ROWS).map(digit).collect();
    let columns = vec![
        digits(|row| if row < 290 { 10 } else { 192 }),
        digits(|row| if row < 290 { 0 } else { 168 }),
        digits(|row| row / 100),
        digits(|row| row % 4),
        digits(|row| if row % 31 == 7 { 17 } else { 6 }),
        digits(|row| if row < 200 { 443 } else { 50_000 + row % 3 }),
        digits(|row| row / 64),
        digits(|row| row / 128 * 300),
        digits(|row| [40, 1_500, 1_500, 65_535][usize::from(row / 5 % 4)]),
    ];
    // The records of four flows, one behind the other.
    let mut row_map: Vec<u32> = (0..ROWS.into()).collect();
    row_map.sort_by_key(|&record| record * record / 3 % 5);
    let times = (0..u64::from(ROWS)).map(|record| 1_700_000_000_000_000_000 + record * record);
    let times = Some(times.collect());
    let mark = |i: u64| {
        let time_min = 1_700_000_000_000_000_000 + i * i;
        Mark { offset: 24 + 3_000 * i, time_min, time_max: time_min + 61 * i }
    };
    Table {
        schema: Schema { fields },
        rows: ROWS.into(),
        columns,
        row_map: Some(row_map),
        times,
        marks: Some((0..10).map(mark).collect()),
        sums: None,
        note: Some(b"packets = \"a.pcap\"\n".to_vec()),
    }
}

/// The same with checksums of packets.
fn golden_table_with_sums() -> Table {
    let sums = (0..11_u32).map(|i| i.wrapping_mul(0x9E37_79B9)).collect();
    Table { sums: Some(PieceSums { start: 0, end: 29_500, sums }), ..golden_table() }
}

#[test]
fn the_golden_files_are_written_byte_for_byte() {
    let tables = [("index.v1.tdx", golden_table()), ("sums.v1.tdx", golden_table_with_sums())];
    for (name, table) in tables {
        let golden = std::fs::read(golden_path(name)).unwrap();
        assert!(table.to_bytes() == golden, "{name}: the writer has changed");
    }
}

/// Traffic of every kind, with another note: the one that is written says where the packets are.
fn golden_segment() -> Vec<u8> {
    let written = segment_of(&varied(300, 1), CodecChoice::Auto);
    forge_note(&written, |_| "a note".to_owned()).unwrap()
}

/// While the version of the format has not been released, a changed writer writes the file again:
/// `TAPDEX_WRITE_GOLDEN=1 cargo test -p tapdex-engine --test golden`.
#[test]
fn the_golden_segment_is_written_byte_for_byte() {
    if std::env::var_os("TAPDEX_WRITE_GOLDEN").is_some() {
        std::fs::write(golden_path("index.v2.tdx"), golden_segment()).unwrap();
    }
    let golden = std::fs::read(golden_path("index.v2.tdx")).unwrap();
    assert!(golden_segment() == golden, "the writer has changed");
}

#[test]
fn the_golden_segment_is_read() {
    let index = Index::open(&golden_path("index.v2.tdx")).unwrap();
    assert_eq!((index.version(), index.rows(), index.row_order()), (2, 300, RowOrder::Sorted));
    assert!(index.verify(&mut |_| {}).is_sound());
    check_lookups(&index, &[80, 443, 6, 17]).unwrap();
    assert_eq!(index.note().unwrap(), Some(&b"a note"[..]));
    assert_eq!(index.pieces().unwrap().unwrap().len(), 10);
}

#[test]
fn the_golden_file_with_sums_is_read() {
    let index = Index::open(&golden_path("sums.v1.tdx")).unwrap();
    assert_eq!((index.version(), index.rows()), (1, 300));
    check_index(&index, &golden_table_with_sums(), 1);
    assert!(index.verify(&mut |_| {}).is_sound());
    let pieces = index.pieces().unwrap().unwrap();
    assert_eq!((pieces.len(), pieces.head().unwrap().bytes), (10, 0..24));
    let second = pieces.get(1).unwrap();
    assert_eq!((second.bytes, second.sum), (3_024..6_024, 0x3C6E_F372));
    assert_eq!(pieces.get(9).unwrap().bytes, 27_024..29_500);
}

#[test]
fn the_golden_file_is_read() {
    let index = Index::open(&golden_path("index.v1.tdx")).unwrap();
    assert_eq!((index.version(), index.rows(), index.row_order()), (1, 300, RowOrder::Sorted));
    let codecs: Vec<u8> = index.schema().columns().map(|column| column.codec.id() as u8).collect();
    assert_eq!(codecs, ALL_CODECS.map(|codec| codec.id() as u8));
    check_index(&index, &golden_table(), 1);

    let ids = |rows: Rows<'_>| rows.ids().collect::<Vec<u32>>();
    let source = index.field("ip.src").unwrap();
    let address = |digits: [u8; 4]| digits.iter().fold(0, |sum, &d| sum << 8 | u128::from(d));
    assert_eq!(ids(source.equals(address([192, 168, 2, 3])).unwrap()), [291, 295, 299]);
    assert_eq!(source.prefix(address([10, 0, 1, 0]), 24).unwrap().count(), 100);
    assert_eq!(source.prefix(address([10, 0, 0, 0]), 8).unwrap().count(), 290);
    let protocol = index.field("ip.proto").unwrap();
    assert_eq!(ids(protocol.equals(17).unwrap()), [7, 38, 69, 100, 131, 162, 193, 224, 255, 286]);
    let port = index.field("port").unwrap();
    assert_eq!(port.equals(443).unwrap().count(), 200);
    assert_eq!(port.any_of(&[50_000, 50_002]).unwrap().count(), 67);
    let mixed = index.field("mixed").unwrap();
    assert_eq!(ids(mixed.equals(4 << 16 | 600).unwrap()), (256..300).collect::<Vec<u32>>());
    let len = index.field("len").unwrap();
    assert_eq!(ids(len.range(100..=2_000).unwrap())[..6], [5, 6, 7, 8, 9, 10]);
    let map = index.row_map().unwrap().unwrap();
    assert_eq!((map.get(0).unwrap(), map.get(43).unwrap(), map.get(299).unwrap()), (0, 131, 297));
    let times = index.times().unwrap().unwrap();
    assert!(times.is_ascending());
    assert_eq!(times.get(12).unwrap(), 1_700_000_000_000_000_144);
    assert_eq!(times.partition_point(|time| time < 1_700_000_000_000_000_145).unwrap(), 13);
    let marks = index.marks().unwrap().unwrap();
    let second = Mark {
        offset: 3_024,
        time_min: 1_700_000_000_000_000_001,
        time_max: 1_700_000_000_000_000_062,
    };
    assert_eq!((marks.len(), marks.get(1).unwrap()), (10, second));
    assert_eq!(index.note().unwrap(), Some(b"packets = \"a.pcap\"\n".as_slice()));
    let keys: Vec<u16> = index.column(5).unwrap().keys().collect();
    assert_eq!(keys, [443, 50_000, 50_001, 50_002]);
}

fn page(name: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    std::fs::read_to_string(folder.join(name)).unwrap()
}

fn thousands(number: u64) -> String {
    let mut text = number.to_string();
    for at in
        (1..text.len()).rev().filter(|at| (text.len() - at).is_multiple_of(3)).collect::<Vec<_>>()
    {
        text.insert(at, ',');
    }
    text
}

/// What the pages of both versions say.
fn check_page(page: &str, version: u16, kinds: &[SectionKind], said: Vec<String>) {
    let magic: Vec<String> = MAGIC.iter().map(|byte| format!("{byte:02X}")).collect();
    let both = [
        format!("| magic | 0 | 8 | {}", magic.join(" ")),
        format!("| version | 8 | 2 | {version} |"),
        format!("|  {HEADER_LEN} bytes"),
        format!("|  {FOOTER_LEN} bytes"),
        format!("blocks of {} bytes", thousands(BLOCK_LEN)),
        format!("a mark for every {MARK_RECORDS} records"),
        format!("| bytes of a note | {} |", thousands(NOTE_LEN_MAX)),
        format!("| bytes of a name | {NAME_LEN_MAX} |"),
    ];
    let kinds = kinds.iter().map(|&kind| format!("| {} | {} |", kind as u16, kind.name()));
    for text in both.into_iter().chain(kinds).chain(said) {
        assert!(page.contains(&text), "the page of version {version} does not say: {text}");
    }
    for codec in ALL_CODECS {
        let link = format!("](codecs/{codec}.md)");
        let row = page.lines().find(|line| line.contains(&link)).unwrap();
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        let at = cells.iter().position(|cell| cell.ends_with(&link)).unwrap();
        assert_eq!(cells[at - 1], (codec.id() as u8).to_string(), "{codec}");
    }
}

#[test]
fn the_specification_has_the_numbers_of_the_code() {
    use SectionKind::{
        Bitmaps, Column, Flows, Keys, Marks, Note, Offsets, RowMap, Schema, Sums, Times, Volumes,
    };
    let said = vec![
        format!("blocks of {BLOCK_VALUES};"),
        format!("blocks of {BLOCK_ROWS} rows;"),
        format!("| directory: {ENTRY_LEN} bytes a section"),
        format!("| zeros up to a multiple of {ALIGN} "),
        format!("| fields | {} |", thousands(FIELDS_MAX as u64)),
        format!("| bits of a field | {FIELD_BITS_MAX} |"),
        format!("| columns of a field | {} |", FIELD_BITS_MAX / Width::Byte.bits()),
    ];
    let kinds = [Schema, Keys, Offsets, Bitmaps, RowMap, Times, Marks, Note, Sums];
    check_page(&page("format-1.md"), TABLE_VERSION, &kinds, said);

    let mut said = vec![
        format!("| packets | {} |", thousands(u32::MAX.into())),
        format!("| bytes of a value | {} |", FIELD_BITS_MAX / 8),
    ];
    for spec in FIELDS.iter().filter(|spec| !spec.name.ends_with(".dst")) {
        let other = spec.name.strip_suffix(".src").map(|stem| format!("{stem}.dst"));
        let (names, of) = match other {
            Some(other) => (format!("`{}`, `{other}`", spec.name), "ends"),
            None if spec.is_of_flow() => (format!("`{}`", spec.name), "conversations"),
            None => (format!("`{}`", spec.name), "packets"),
        };
        said.push(format!("| {names} | {of} | {} |", spec.digits * spec.width.bits() / 8));
    }
    for (class, lengths) in [(0, "0 to 15"), (5, "32 to 39"), (26, "1,280 to 1,535")] {
        let start = length_class_start(class);
        let end = length_class_start(class + 1) - 1;
        assert_eq!(format!("{} to {}", thousands(start), thousands(end)), lengths);
        said.push(format!("| {class} | {lengths} |"));
    }
    let kinds = [Schema, RowMap, Marks, Note, Sums, Flows, Column, Volumes];
    check_page(&page("format.md"), FORMAT_VERSION, &kinds, said);
}
