//! Every look-up in an index that was written and read again equals a scan of the table.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a failed test panics")]

use std::path::Path;

use proptest::collection::vec;
use proptest::prelude::*;
use tapdex_bitmap::{ALL_CODECS, Chunks, Codec};
use tapdex_engine::IndexError;
use tapdex_engine::index::{
    BLOCK_LEN, BLOCK_VALUES, Builder, ColumnIndex, ColumnSpec, CpuBuilder, Digits, Field, Index,
    IndexWriter, Mark, RowOrder, Schema, Width,
};
use tapdex_engine::storage::{Disk, temporary_path};
use tapdex_engine::testing::{FaultyDisk, Table, check_index, check_lookups, sample_marks};

fn column(width: Width, codec: Codec) -> ColumnSpec {
    ColumnSpec { width, codec }
}

fn codecs() -> Vec<Codec> {
    tapdex_bitmap::testing::codecs()
}

/// Tables of any shape: digits spread out or close by, few rows and some.
fn tables() -> impl Strategy<Value = Table> {
    let digit = (any::<bool>(), 0..codecs().len(), 1..300_u32, any::<u16>());
    let fields = vec(vec(digit, 1..=5), 0..4);
    (fields, 0..400_u32, any::<u64>(), any::<[bool; 3]>()).prop_map(|(fields, rows, seed, has)| {
        let mut random = tapdex_bitmap::sample::Random::new(seed);
        let mut table = Table { rows, ..Table::default() };
        for (n, field) in fields.iter().enumerate() {
            let mut columns = vec![];
            for &(short, codec, keys, base) in field {
                let (width, most) = match short {
                    true => (Width::Short, u32::from(u16::MAX)),
                    false => (Width::Byte, 255),
                };
                columns.push(column(width, codecs()[codec]));
                let digit = |_| (u32::from(base) + random.below(keys) * 7) % (most + 1);
                let digits = (0..rows).map(digit).map(|digit| u16::try_from(digit).unwrap());
                table.columns.push(digits.collect());
            }
            table.schema.fields.push(Field { name: format!("field {n}"), columns });
        }
        if has[0] {
            let width = random.below(64);
            table.times = Some((0..rows).map(|_| random.number() >> width).collect());
        }
        if has[1] {
            let mut records: Vec<u32> = (0..rows).collect();
            (1..rows).for_each(|i| records.swap(i as usize, random.below(i + 1) as usize));
            table.row_map = Some(records);
        }
        if has[2] {
            table.marks = Some(sample_marks(&mut random, rows));
            table.note = Some(vec![7; random.below(1_000) as usize]);
        }
        table
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn an_index_answers_like_a_scan(table in tables(), seed in any::<u64>()) {
        let index = Index::from_bytes(table.to_bytes()).unwrap();
        check_index(&index, &table, seed);
        for more in 0..8 {
            check_lookups(&index, &table, seed ^ more);
        }
    }

    #[test]
    fn packed_numbers_come_back(
        values in vec(any::<u64>(), 0..700), width in 0..64_u32, ascending in any::<bool>()
    ) {
        let mut values: Vec<u64> = values.iter().map(|value| value >> width).collect();
        if ascending {
            values.sort_unstable();
        }
        let rows = u32::try_from(values.len()).unwrap();
        let table = Table { rows, times: Some(values.clone()), ..Table::default() };
        let index = Index::from_bytes(table.to_bytes()).unwrap();
        let times = index.times().unwrap().unwrap();
        assert_eq!(times.is_ascending(), values.is_sorted());
        for (i, &value) in (0..).zip(&values) {
            assert_eq!(times.get(i).unwrap(), value);
            if times.is_ascending() {
                let found = times.partition_point(|time| time < value).unwrap() as usize;
                assert_eq!(found, values.partition_point(|&time| time < value));
            }
        }
        assert!(matches!(times.get(rows), Err(IndexError::TooLarge { .. })));
        assert_eq!(times.iter().collect::<Result<Vec<_>, _>>().unwrap(), values);
        assert!(index.verify(&mut |_| {}).is_sound());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    /// Flows of any lengths and paces, in any order.
    #[test]
    fn row_maps_come_back(
        flows in vec((1..400_usize, 0..20_u32, any::<u32>()), 0..40), shuffled in any::<bool>()
    ) {
        let mut packets: Vec<(u64, usize)> = vec![];
        for (flow, &(len, pace, start)) in flows.iter().enumerate() {
            let times = (0..len as u64).map(|i| u64::from(start) + (i << pace));
            packets.extend(times.map(|time| (time, flow)));
        }
        packets.sort_unstable();
        let mut records: Vec<u32> = (0..u32::try_from(packets.len()).unwrap()).collect();
        records.sort_by_key(|&record| match shuffled {
            true => usize::try_from(record.wrapping_mul(2_654_435_761)).unwrap(),
            false => packets[record as usize].1,
        });
        let rows = u32::try_from(records.len()).unwrap();
        let table = Table { rows, row_map: Some(records), ..Table::default() };
        let index = Index::from_bytes(table.to_bytes()).unwrap();
        check_index(&index, &table, 1);
        let map = index.row_map().unwrap().unwrap();
        assert_eq!((map.len(), map.is_empty()), (rows, rows == 0));
        assert!(matches!(map.get(rows), Err(IndexError::TooLarge { .. })));
        let beyond = map.records(&[rows], &mut vec![]);
        assert!(matches!(beyond, Err(IndexError::TooLarge { .. })));
    }
}

#[test]
fn a_row_map_takes_the_bits_of_its_steps() {
    let bits = |records: Vec<u32>| {
        let rows = u32::try_from(records.len()).unwrap();
        let table = Table { rows, row_map: Some(records), ..Table::default() };
        let index = Index::from_bytes(table.to_bytes()).unwrap();
        let map = index.sections().find(|section| section.name() == "row map").unwrap();
        8.0 * map.len_bytes as f64 / f64::from(rows)
    };
    let rows = 1 << 17;
    // A bit for a step, and for each 128 rows a record of 17 bits and the start of a block.
    assert!(bits((0..rows).collect()) < 1.5);
    // Two flows in turn: steps of two.
    assert!(bits((0..rows).step_by(2).chain((1..rows).step_by(2)).collect()) < 1.5);
    // A step of 2 to 5 or so, two kinds of which have a bit behind the highest.
    let of_flow = |flow: u32| (0..rows).filter(move |n| (n / 3 + n % 7) % 4 == flow);
    assert!(bits((0..4).flat_map(of_flow).collect()) < 4.0);
    // Anywhere: all bits, and a code for how many they are.
    let mut random = tapdex_bitmap::sample::Random::new(3);
    let mut records: Vec<u32> = (0..rows).collect();
    (1..rows).for_each(|i| records.swap(i as usize, random.below(i + 1) as usize));
    assert!(bits(records) < 18.5);
}

#[test]
fn marks_need_not_be_in_order_of_time() {
    let mark = |offset, time_min, time_max| Mark { offset, time_min, time_max };
    let marks = vec![mark(0, u64::MAX, u64::MAX), mark(1, 0, u64::MAX), mark(u64::MAX, 5, 6)];
    let table = Table { rows: 65, marks: Some(marks), ..Table::default() };
    let index = Index::from_bytes(table.to_bytes()).unwrap();
    check_index(&index, &table, 1);
    let past = index.marks().unwrap().unwrap().get(3);
    assert!(matches!(past, Err(IndexError::TooLarge { .. })));
}

#[test]
fn packed_numbers_take_the_bits_of_their_differences() {
    let len = |value: &dyn Fn(u32) -> u64| {
        let rows = 10 * u32::try_from(BLOCK_VALUES).unwrap();
        let table = Table { rows, times: Some((0..rows).map(value).collect()), ..Table::default() };
        let index = Index::from_bytes(table.to_bytes()).unwrap();
        index.sections().find(|section| section.name() == "times").unwrap().len_bytes
    };
    // A head, ten places, and 128 values of so many bits each.
    assert_eq!(len(&|_| 1 << 60), 8 + 160);
    assert_eq!(len(&|i| 1 << 60 | u64::from(i % 2)), 8 + 160 + 10 * 16);
    assert_eq!(len(&|i| if i % 2 == 0 { 0 } else { u64::MAX }), 8 + 160 + 10 * 16 * 64);
}

/// 70,000 rows, so that there are two chunks, sections of several checksum blocks, and an IPv4
/// field with many values.
fn larger() -> Table {
    let rows = 70_000;
    let mut random = tapdex_bitmap::sample::Random::new(5);
    let mut digits = |keys: u32| -> Vec<u16> {
        (0..rows).map(|_| u16::try_from(random.below(keys)).unwrap()).collect()
    };
    let columns = vec![digits(3), digits(200), digits(7), digits(256), digits(60_000)];
    let bytes = [Codec::Roaring, Codec::Wah, Codec::Masc, Codec::Compax2];
    let fields = vec![
        Field { name: "ip".into(), columns: bytes.map(|c| column(Width::Byte, c)).into() },
        Field { name: "port".into(), columns: vec![column(Width::Short, Codec::Plwah)] },
    ];
    let times = Some((0..rows).map(|row| 1_700_000_000_000 + 17 * u64::from(row)).collect());
    let row_map = Some((0..rows).rev().collect());
    let marks = Some(sample_marks(&mut random, rows));
    Table {
        schema: Schema { fields },
        rows,
        columns,
        row_map,
        times,
        marks,
        sums: None,
        note: None,
    }
}

#[test]
fn a_larger_table_from_a_file_from_several_threads() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("larger.tdx");
    let table = larger();
    let len = table.write(&Disk, &path).unwrap();
    assert_eq!(std::fs::metadata(&path).unwrap().len(), len);
    let index = Index::open(&path).unwrap();
    assert_eq!((index.len_bytes(), index.row_order()), (len, RowOrder::Sorted));
    assert!(index.sections().any(|section| section.len_bytes > 2 * BLOCK_LEN));
    std::thread::scope(|scope| {
        for seed in 0..3 {
            let (index, table) = (&index, &table);
            scope.spawn(move || (0..3).for_each(|n| check_lookups(index, table, 3 * seed + n)));
        }
    });
    check_index(&index, &table, 99);
}

#[test]
fn every_prefix_of_an_address() {
    let table = larger();
    let index = Index::from_bytes(table.to_bytes()).unwrap();
    let field = index.field("ip").unwrap();
    let address = table.value(0, 777);
    for bits in 0..=32 {
        let found: Vec<u32> = field.prefix(address, bits).unwrap().ids().collect();
        let shift = 32 - bits;
        assert_eq!(found, table.scan(0, |value| value >> shift == address >> shift), "/{bits}");
    }
}

#[test]
fn all_128_bits_are_used() {
    let spec = column(Width::Short, Codec::Roaring);
    let schema = Schema { fields: vec![Field { name: "ip6".into(), columns: vec![spec; 8] }] };
    let mut columns = vec![vec![0; 3]; 8];
    for (n, column) in columns.iter_mut().enumerate() {
        column[1] = u16::MAX;
        column[2] = u16::try_from(0x2001 + n).unwrap();
    }
    let table = Table { schema, rows: 3, columns, ..Table::default() };
    let index = Index::from_bytes(table.to_bytes()).unwrap();
    let field = index.field("ip6").unwrap();
    assert_eq!(field.value_max(), u128::MAX);
    let ids = |rows: Result<tapdex_engine::index::Rows<'_>, IndexError>| -> Vec<u32> {
        rows.unwrap().ids().collect()
    };
    assert_eq!(ids(field.equals(u128::MAX)), [1]);
    assert_eq!(ids(field.range(1..=u128::MAX)), [1, 2]);
    assert_eq!(ids(field.range(0..=u128::MAX - 1)), [0, 2]);
    assert_eq!(ids(field.prefix(0x2001 << 112, 16)), [2]);
    assert_eq!(ids(field.prefix(7, 0)), [0, 1, 2]);
    (0..64).for_each(|seed| check_lookups(&index, &table, seed));
}

#[test]
fn marks_ascend() {
    let (disk, path) = (FaultyDisk::new(), Path::new("x.tdx"));
    let mut writer = IndexWriter::create(&disk, path, 33, Schema::default()).unwrap();
    let mark = |offset| Mark { offset, time_min: 1, time_max: 1 };
    let error = writer.marks(&[mark(7), mark(7)]).unwrap_err();
    assert_eq!(error.to_string(), "cannot write marks: offset 7, expected at least 8");
}

#[test]
fn an_index_of_no_rows_and_one_of_no_fields() {
    let fields = vec![Field { name: "a".into(), columns: vec![column(Width::Byte, Codec::Wah)] }];
    let empty = Table { schema: Schema { fields }, columns: vec![vec![]], ..Table::default() };
    let index = Index::from_bytes(empty.to_bytes()).unwrap();
    check_index(&index, &empty, 1);
    assert!(index.column(0).unwrap().is_empty());
    for rows in [0, 1, 2] {
        let row_map = Some((0..rows).rev().collect());
        let marks = Some(vec![Mark::default(); usize::from(rows > 0)]);
        let table = Table { rows, row_map, marks, note: Some(vec![]), ..Table::default() };
        check_index(&Index::from_bytes(table.to_bytes()).unwrap(), &table, 1);
    }
    let bare = Table { rows: 10, ..Table::default() };
    check_index(&Index::from_bytes(bare.to_bytes()).unwrap(), &bare, 1);
}

#[test]
fn questions_that_cannot_be_answered_are_errors() {
    let table = larger();
    let index = Index::from_bytes(table.to_bytes()).unwrap();
    let error = index.field("udp").unwrap_err();
    assert_eq!(error.to_string(), "no field 'udp', expected one of: ip, port");
    assert!(index.find_field("udp").is_none());
    assert_eq!(index.find_field("port").unwrap().field().name, "port");
    let error = index.column(5).unwrap_err();
    assert_eq!(error.to_string(), "column 5, expected at most 4");
    let port = index.field("port").unwrap();
    let error = port.equals(65_536).map(|_| ()).unwrap_err();
    assert_eq!(error.to_string(), "value 65536, expected at most 65535");
    let error = port.any_of(&[80, 1 << 40]).map(|_| ()).unwrap_err();
    assert!(matches!(error, IndexError::TooLarge { got, .. } if got == 1 << 40));
    let error = port.prefix(0, 17).map(|_| ()).unwrap_err();
    assert_eq!(error.to_string(), "bits of a prefix 17, expected at most 16");
    let column = index.column(0).unwrap();
    assert!(matches!(column.bitmap(3), Err(IndexError::TooLarge { got: 3, max: 2, .. })));
    // Ends of a range need not fit.
    assert_eq!(port.range(65_536..=1 << 90).unwrap().count(), 0);
    assert_eq!(port.range(0..=1 << 90).unwrap().count(), 70_000);
}

/// A writer on a disk of its own, for a byte column of three rows.
fn with_writer(change: impl FnOnce(&mut IndexWriter<'_>, ColumnIndex) -> Result<(), IndexError>) {
    let (disk, path) = (FaultyDisk::new(), Path::new("folder/x.tdx"));
    disk.put(path, b"old");
    let fields = vec![Field { name: "a".into(), columns: vec![column(Width::Byte, Codec::Wah)] }];
    let mut writer = IndexWriter::create(&disk, path, 3, Schema { fields }).unwrap();
    let mut index = ColumnIndex::default();
    CpuBuilder::new(1).build(Digits::Bytes(&[7, 9, 7]), Codec::Wah, &mut index).unwrap();
    let error = change(&mut writer, index).unwrap_err();
    let is_refused = matches!(error, IndexError::BadInput { .. } | IndexError::WrongCodec { .. });
    assert!(is_refused, "{error}");
    assert_eq!(disk.paths(), [path], "after an error the temporary file is gone");
    let error = writer.finish().unwrap_err();
    assert!(matches!(error, IndexError::BadInput { .. }), "{error}");
    assert_eq!(disk.read(path).unwrap(), b"old");
}

#[test]
fn what_does_not_agree_is_not_written() {
    let damage: [fn(&mut ColumnIndex); 8] = [
        |index| index.keys.swap(0, 1),
        |index| index.keys[1] = 256,
        |index| index.offsets[0] = 1,
        |index| index.offsets[1] = index.offsets[2],
        |index| index.offsets.truncate(2),
        |index| index.parts.push(tapdex_engine::index::Part::Owned(vec![0])),
        |index| index.parts.clear(),
        |index| *index = ColumnIndex { rows: 3, ..ColumnIndex::default() },
    ];
    for damage in damage {
        with_writer(|writer, mut index| {
            damage(&mut index);
            writer.column(&index)
        });
    }
    with_writer(|writer, index| {
        writer.column(&index).unwrap();
        writer.column(&index)
    });
    with_writer(|writer, _| writer.row_map(&[0, 1]));
    with_writer(|writer, _| writer.row_map(&[0, 1, 1]));
    with_writer(|writer, _| writer.row_map(&[0, 1, 3]));
    with_writer(|writer, _| writer.times(&[0, 1, 3, 4]));
    with_writer(|writer, _| {
        writer.times(&[0, 1, 3]).unwrap();
        writer.times(&[0, 1, 3])
    });
    let mark = |offset, time_min, time_max| Mark { offset, time_min, time_max };
    with_writer(|writer, _| writer.marks(&[]));
    with_writer(|writer, _| writer.marks(&[mark(0, 1, 1), mark(5, 1, 1)]));
    with_writer(|writer, _| writer.marks(&[mark(0, 2, 1)]));
    with_writer(|writer, _| {
        writer.marks(&[mark(0, 1, 1)]).unwrap();
        writer.marks(&[mark(0, 1, 1)])
    });
    with_writer(|writer, _| writer.note(&vec![0; (1 << 24) + 1]));
    with_writer(|writer, _| {
        writer.note(b"a").unwrap();
        writer.note(b"b")
    });
    with_writer(|writer, _| {
        writer.row_map(&[2, 1, 0]).unwrap();
        writer.row_map(&[2, 1, 0])
    });
}

#[test]
fn a_column_that_was_built_for_another_schema_is_not_written() {
    let write = |digits: Digits<'_>, codec, expected: &str| {
        with_writer(|writer, mut index| {
            CpuBuilder::new(1).build(digits, codec, &mut index).unwrap();
            let error = writer.column(&index).unwrap_err();
            assert_eq!(error.to_string(), expected);
            Err(error)
        });
    };
    let codec = "cannot write column 0: its codec is Plwah, expected Wah";
    write(Digits::Bytes(&[7, 9, 7]), Codec::Plwah, codec);
    for digits in [[7, 9].as_slice(), &[7, 9, 7, 9]] {
        let rows = digits.len();
        let text = format!("cannot write column 0: number of rows {rows}, expected 3");
        write(Digits::Bytes(digits), Codec::Wah, &text);
    }
    let width = "cannot write column 0: last key 256, expected at most 255";
    write(Digits::Shorts(&[7, 256, 7]), Codec::Wah, width);
    // The width of a HiPES chunk belongs to the codec.
    let widths = [7, 8].map(|width| Codec::from_id(8, width).unwrap());
    let columns = vec![column(Width::Byte, widths[0])];
    let schema = Schema { fields: vec![Field { name: "a".into(), columns }] };
    let disk = FaultyDisk::new();
    let mut writer = IndexWriter::create(&disk, Path::new("x.tdx"), 1, schema).unwrap();
    let columns = [(Digits::Bytes(&[7]), widths[1])];
    let built = CpuBuilder::new(1).build_each(&columns, |index| writer.column(index));
    assert!(matches!(built, Err(IndexError::WrongCodec { column: 0, .. })), "{built:?}");
}

#[test]
fn a_file_gets_its_name_when_it_is_complete() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.tdx");
    let mut table = Table::sample(3, 50);
    table.write(&Disk, &path).unwrap();
    let before = std::fs::read(&path).unwrap();
    let old = Index::open(&path).unwrap();

    // Dropped without finish, and a second one at the same time.
    let writer = IndexWriter::create(&Disk, &path, 3, Schema::default()).unwrap();
    assert!(temporary_path(&path).exists());
    let second = IndexWriter::create(&Disk, &path, 3, Schema::default()).unwrap_err();
    assert!(matches!(second, IndexError::Busy { .. }), "{second}");
    assert!(temporary_path(&path).exists(), "the first one still has its file");
    drop(writer);
    assert!(!temporary_path(&path).exists());
    assert_eq!(std::fs::read(&path).unwrap(), before);

    // What a killed process has left is overwritten, and an open index keeps the old file.
    std::fs::write(temporary_path(&path), vec![7; 100_000]).unwrap();
    let old_table = table;
    table = Table::sample(4, 60);
    table.write(&Disk, &path).unwrap();
    check_index(&Index::open(&path).unwrap(), &table, 1);
    check_index(&old, &old_table, 1);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
}

#[test]
fn what_is_no_file_is_an_error_with_its_path() {
    let folder = tempfile::tempdir().unwrap();
    let missing = folder.path().join("missing.tdx");
    assert!(Index::open(&missing).unwrap_err().to_string().contains("missing.tdx"));
    assert!(matches!(Index::open(folder.path()), Err(IndexError::Io { .. })));
    for text in ["", "hello", &"x".repeat(5_000)] {
        std::fs::write(&missing, text).unwrap();
        let error = Index::open(&missing).unwrap_err();
        assert!(matches!(error, IndexError::InFile { .. }), "{error}");
        assert!(matches!(error.without_path(), IndexError::NotAnIndex { offset: 0, .. }));
    }
    for path in ["", "/", ".."] {
        let error = IndexWriter::create(&Disk, Path::new(path), 3, Schema::default()).unwrap_err();
        assert!(matches!(error, IndexError::Io { .. }), "{error}");
    }
    let nowhere = folder.path().join("no/such.tdx");
    let error = IndexWriter::create(&Disk, &nowhere, 3, Schema::default()).unwrap_err();
    assert!(matches!(error, IndexError::Io { operation: "create", .. }), "{error}");
}

#[test]
fn every_codec_in_both_widths() {
    for codec in codecs() {
        for width in [Width::Byte, Width::Short] {
            let fields = vec![Field { name: "a".into(), columns: vec![column(width, codec)] }];
            let digits = (0..2_000_u16).map(|row| row / 7 * (row % 13) % 251).collect();
            let schema = Schema { fields };
            let table = Table { schema, rows: 2_000, columns: vec![digits], ..Table::default() };
            let index = Index::from_bytes(table.to_bytes()).unwrap();
            check_index(&index, &table, 1);
            let column = index.column(0).unwrap();
            assert_eq!((column.codec(), column.width(), column.number()), (codec, width, 0));
        }
    }
    assert!(ALL_CODECS.iter().all(|codec| codecs().contains(codec)));
}

#[test]
fn shares_are_all_bytes_once() {
    let index = Index::from_bytes(larger().to_bytes()).unwrap();
    let shares = index.shares();
    assert_eq!(shares.iter().map(|share| share.bytes).sum::<u64>(), index.len_bytes());
    let fields = &index.schema().fields;
    assert!(!fields.is_empty());
    let mut before = 0;
    for field in fields {
        let columns = before..before + field.columns.len();
        before = columns.end;
        let of_field = || shares.iter().filter(|share| share.name == field.name);
        assert_eq!(of_field().map(|share| share.columns).sum::<u64>(), columns.len() as u64);
        let mut codecs: Vec<String> = of_field().map(|s| s.form.unwrap().to_string()).collect();
        codecs.sort_unstable();
        codecs.dedup();
        assert_eq!(codecs.len(), of_field().count());
        let sections = index.sections().filter(|s| s.column.is_some_and(|c| columns.contains(&c)));
        let bytes: u64 = sections.map(|section| section.len_bytes).sum();
        assert_eq!(of_field().map(|share| share.bytes).sum::<u64>(), bytes, "{}", field.name);
    }
}
