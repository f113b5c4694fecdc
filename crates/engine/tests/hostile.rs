//! Damaged and forged files: an error of the right kind, or the right answer; never a panic.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a failed test panics")]

use std::ops::Range;
use std::path::Path;

use tapdex_bitmap::{Chunks, Codec};
use tapdex_engine::index::{
    ColumnIndex, ColumnSpec, ENTRY_LEN, FOOTER_LEN, Field, Index, IndexWriter, PROBLEMS_MAX, Part,
    Schema, SectionKind, Verified, Width,
};
use tapdex_engine::testing::{FaultyDisk, Table, fuzz_index_open, mend, relocate};
use tapdex_engine::{Expected, IndexError};

fn golden() -> Vec<u8> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/sums.v1.tdx");
    std::fs::read(path).unwrap()
}

fn verify(index: &Index) -> Verified {
    index.verify(&mut |_| {})
}

/// The first problem of a file: that of opening it, or the first that `verify` finds.
fn problem(bytes: Vec<u8>) -> Option<IndexError> {
    match Index::from_bytes(bytes) {
        Err(error) => Some(error),
        Ok(index) => verify(&index).problems.into_iter().next(),
    }
}

#[test]
fn every_truncation_is_refused() {
    let golden = golden();
    for len in 0..golden.len() {
        assert!(Index::from_bytes(golden[..len].to_vec()).is_err(), "{len} bytes");
    }
    for more in [1, 40, 64, 4_096] {
        let mut longer = golden.clone();
        longer.resize(golden.len() + more, 0);
        assert!(Index::from_bytes(longer).is_err(), "{more} bytes more");
    }
}

#[test]
fn every_flipped_bit_is_found() {
    let golden = golden();
    let sound = Index::from_bytes(golden.clone()).unwrap();
    assert!(verify(&sound).is_sound());
    // What each field answers, counted, for a value that occurs and a range.
    let answers = |index: &Index| -> Vec<Option<[u64; 2]>> {
        let answer = |name: &str| {
            let field = index.field(name).ok()?;
            let key = field.columns().next()?.ok()?.keys().next()?;
            let value =
                u128::from(key) << (field.field().bits() - field.field().columns[0].width.bits());
            Some([field.prefix(value, 8).ok()?.count(), field.range(7..=value + 9).ok()?.count()])
        };
        sound.schema().fields.iter().map(|field| answer(&field.name)).collect()
    };
    let right = answers(&sound);
    assert!(right.iter().all(Option::is_some));
    for bit in 0..8 * golden.len() {
        let mut bytes = golden.clone();
        bytes[bit / 8] ^= 1 << (bit % 8);
        let Ok(index) = Index::from_bytes(bytes) else {
            continue;
        };
        // Look-ups first, while nothing has been checked.
        for (found, right) in answers(&index).iter().zip(&right) {
            assert!(found.is_none() || found == right, "bit {bit} changes an answer");
        }
        assert!(!verify(&index).is_sound(), "bit {bit} was not found");
        assert!(!verify(&index).is_sound(), "bit {bit} was not found again");
    }
}

#[test]
fn forged_numbers_never_panic() {
    for file in [golden(), Table::sample(11, 40).to_bytes(), Table::sample(6, 0).to_bytes()] {
        let mut data = vec![1];
        data.extend(&file);
        for at in 1..data.len() {
            for len in [1, 2, 4, 8] {
                let Some(field) = data.get(at..at + len) else {
                    continue;
                };
                let number = field.iter().rev().fold(0, |sum, &byte| sum << 8 | u64::from(byte));
                let most = u64::MAX >> (64 - 8 * len);
                for forged in [0, 1, most, most >> 1, number.wrapping_add(1), number << 1] {
                    if forged & most != number {
                        let mut data = data.clone();
                        data[at..at + len].copy_from_slice(&forged.to_le_bytes()[..len]);
                        fuzz_index_open(&data);
                    }
                }
            }
        }
    }
}

#[test]
fn cut_and_joined_files_never_panic() {
    let mut data = vec![3];
    data.extend(Table::sample(11, 40).to_bytes());
    for at in (1..data.len()).step_by(3) {
        for len in [1, 8, 32, 64, 100] {
            let mut shorter = data.clone();
            shorter.drain(at..(at + len).min(data.len()));
            fuzz_index_open(&shorter);
            let mut longer = data.clone();
            longer.splice(at..at, data.iter().copied().cycle().skip(at).take(len));
            fuzz_index_open(&longer);
        }
    }
}

/// The golden file, to be forged.
struct Forgery {
    bytes: Vec<u8>,
}

impl Forgery {
    fn new() -> Self {
        Self { bytes: golden() }
    }

    /// The number of a section's entry, and where the section lies.
    fn section(&self, kind: SectionKind, column: Option<usize>) -> (usize, Range<usize>) {
        let index = Index::from_bytes(golden()).unwrap();
        let mut sections = index.sections().enumerate();
        let wanted = (Some(kind), column);
        let (n, info) = sections.find(|(_, info)| (info.kind, info.column) == wanted).unwrap();
        let start = usize::try_from(info.offset).unwrap();
        (n, start..start + usize::try_from(info.len_bytes).unwrap())
    }

    fn directory(&self) -> usize {
        let entries = Index::from_bytes(golden()).unwrap().sections().count();
        self.bytes.len()
            - usize::try_from(FOOTER_LEN).unwrap()
            - entries * usize::try_from(ENTRY_LEN).unwrap()
    }

    /// Overwrites bytes of a section.
    fn set(mut self, kind: SectionKind, column: Option<usize>, at: usize, new: &[u8]) -> Self {
        let start = self.section(kind, column).1.start + at;
        self.bytes[start..start + new.len()].copy_from_slice(new);
        self
    }

    /// Overwrites bytes of a section's entry.
    fn entry(mut self, kind: SectionKind, column: Option<usize>, at: usize, new: &[u8]) -> Self {
        let start = self.directory() + self.section(kind, column).0 * 32 + at;
        self.bytes[start..start + new.len()].copy_from_slice(new);
        self
    }

    fn mended(mut self) -> Vec<u8> {
        mend(&mut self.bytes);
        self.bytes
    }

    fn problem(self) -> IndexError {
        problem(self.mended()).expect("the forgery was not found")
    }
}

/// The message of a problem.
fn message(error: &IndexError) -> String {
    error.to_string()
}

#[test]
fn mending_a_sound_file_changes_nothing() {
    assert_eq!(Forgery::new().mended(), golden());
    let mut moved = golden();
    relocate(&mut moved);
    assert_eq!(moved, golden());
}

#[test]
fn damage_is_named_with_section_and_offset() {
    let (_, range) = Forgery::new().section(SectionKind::Bitmaps, Some(2));
    let mut bytes = golden();
    bytes[range.start + 5] ^= 0x10;
    let index = Index::from_bytes(bytes).unwrap();
    let error = index.column(2).unwrap().bitmap(0).unwrap_err();
    let text = message(&error);
    let start = format!(
        "bitmaps of column 2 (ip.src digit 2): checksum of what starts at offset {}",
        range.start
    );
    assert!(text.starts_with(&start), "{text}");
    assert!(matches!(error, IndexError::Checksum { offset, .. } if offset == range.start as u64));
    // The others are as good as before.
    assert!(index.column(1).unwrap().bitmap(0).is_ok());
    assert_eq!(verify(&index).problems.len(), 1);
}

#[test]
fn versions_that_are_not_known_are_refused() {
    for version in [0_u16, 3, 0x100, u16::MAX] {
        let mut forged = Forgery::new();
        forged.bytes[8..10].copy_from_slice(&version.to_le_bytes());
        let error = forged.problem();
        assert!(
            matches!(error, IndexError::Version { got, oldest: 1, newest: 2 } if got == version),
            "{error}"
        );
    }
}

#[test]
fn unknown_sections_are_passed_over_unless_they_are_required() {
    let unknown = Forgery::new().entry(SectionKind::Times, None, 0, &[0x0F, 0x27]);
    let index = Index::from_bytes(unknown.mended()).unwrap();
    assert!(index.times().unwrap().is_none());
    assert!(verify(&index).is_sound());
    assert!(index.sections().any(|s| s.kind.is_none() && s.kind_code == 9_999));
    let required = Forgery::new().entry(SectionKind::Times, None, 0, &[0x0F, 0x27, 1, 0]);
    assert!(matches!(required.problem(), IndexError::UnknownSection { kind: 9_999, .. }));
    // Flags that a known kind does not have are an error, and so is damage to what is passed over.
    let flags = Forgery::new().entry(SectionKind::Times, None, 2, &[2, 0]);
    assert!(matches!(flags.problem(), IndexError::BadField { what: "flags", .. }));
    let mut damaged = Forgery::new().entry(SectionKind::Times, None, 0, &[0x0F, 0x27]).mended();
    damaged[Forgery::new().section(SectionKind::Times, None).1.start] ^= 1;
    assert!(matches!(problem(damaged), Some(IndexError::Checksum { .. })));
}

#[test]
fn sections_that_are_missing_or_too_many_are_refused() {
    use SectionKind::{Bitmaps, Keys, Marks, Note, Offsets, RowMap, Schema, Times};
    let nine = 9_u32.to_le_bytes();
    let is_missing =
        |forged: Forgery| matches!(forged.problem(), IndexError::MissingSection { .. });
    let is_surplus =
        |forged: Forgery| matches!(forged.problem(), IndexError::SurplusSection { .. });
    for kind in [Keys, Offsets, Bitmaps] {
        assert!(is_missing(Forgery::new().entry(kind, Some(3), 0, &[99, 0])));
        assert!(is_surplus(Forgery::new().entry(kind, Some(3), 4, &nine)));
        assert!(is_surplus(Forgery::new().entry(kind, Some(3), 4, &[4, 0, 0, 0])));
    }
    assert!(is_missing(Forgery::new().entry(Schema, None, 0, &[99, 0])));
    assert!(is_missing(Forgery::new().entry(RowMap, None, 0, &[99, 0])));
    assert!(is_surplus(Forgery::new().entry(Times, None, 0, &[1, 0])));
    assert!(is_surplus(Forgery::new().entry(Times, None, 0, &[5, 0])));
    for kind in [Times, Marks, Note, RowMap, Schema] {
        assert!(is_surplus(Forgery::new().entry(kind, None, 4, &nine)));
        assert!(is_surplus(Forgery::new().entry(kind, None, 4, &[0; 4])));
    }
    // Rows in order of arrival, and yet a row map.
    assert!(is_surplus(Forgery::new().set(Schema, None, 4, &[0])));
}

#[test]
fn forged_columns_are_found() {
    use SectionKind::{Bitmaps, Keys, Offsets};
    let error = Forgery::new().set(Keys, Some(5), 2, &443_u16.to_le_bytes()).problem();
    let expected = "keys of column 5 (port digit 0): key 443 at offset";
    assert!(message(&error).starts_with(expected), "{error}");
    assert!(matches!(error, IndexError::NotAscending { previous: 443, got: 443, .. }));
    let error = Forgery::new().set(Keys, Some(0), 2, &300_u16.to_le_bytes()).problem();
    assert!(matches!(error, IndexError::BadField { what: "last key", got: 300, .. }), "{error}");
    let error = Forgery::new().set(Offsets, Some(5), 0, &[1]).problem();
    assert!(matches!(error, IndexError::BadField { what: "first offset", .. }), "{error}");
    let error = Forgery::new().set(Offsets, Some(5), 4, &[0, 0]).problem();
    assert!(matches!(error, IndexError::NotAscending { what: "offset", .. }), "{error}");
    let error = Forgery::new().set(Offsets, Some(5), 4, &u32::MAX.to_le_bytes()).problem();
    assert!(matches!(error, IndexError::NotAscending { what: "offset", .. }), "{error}");
    let (_, offsets) = Forgery::new().section(Offsets, Some(5));
    let last = offsets.len() - 4;
    let error = Forgery::new().set(Offsets, Some(5), last, &u32::MAX.to_le_bytes()).problem();
    assert!(matches!(error, IndexError::BadField { what: "last offset", .. }), "{error}");
    // The first bitmap of the column of 10 and 192: 290 rows. One fewer, and it is still a bitmap.
    let error = Forgery::new().set(Bitmaps, Some(0), 0, &[8, 0, 0, 0xC0]).problem();
    assert!(matches!(error, IndexError::Cardinality { expected: 300, .. }), "{error}");
    let error = Forgery::new().set(Bitmaps, Some(0), 0, &[0, 0, 0, 0x80]).problem();
    let text = message(&error);
    assert!(
        text.starts_with("bitmaps of column 0 (ip.src digit 0): the bitmap of key 10"),
        "{text}"
    );
    assert!(matches!(error, IndexError::Bitmap { key: 10, .. }));
}

/// A file with good checksums whose one column has these bitmaps.
fn with_bitmaps(codec: Codec, rows: u32, bitmaps: &[&[u32]]) -> Index {
    let mut column = ColumnIndex { codec, rows, ..ColumnIndex::default() };
    let mut bytes = Vec::new();
    for (key, ids) in (1..).zip(bitmaps) {
        column.keys.push(key);
        codec.encode(ids, &mut bytes);
        column.offsets.push(bytes.len() as u64);
    }
    column.parts.push(Part::Owned(bytes));
    let columns = vec![ColumnSpec { width: Width::Byte, codec }];
    let schema = Schema { fields: vec![Field { name: "a".into(), columns }] };
    let (disk, path) = (FaultyDisk::new(), Path::new("forged.tdx"));
    let mut writer = IndexWriter::create(&disk, path, rows, schema).unwrap();
    writer.column(&column).unwrap();
    writer.finish().unwrap();
    Index::from_bytes(disk.read(path).unwrap()).unwrap()
}

#[test]
fn bitmaps_that_do_not_part_the_rows_are_found() {
    let all: Vec<u32> = (0..35).collect();
    for codec in tapdex_bitmap::ALL_CODECS {
        assert!(verify(&with_bitmaps(codec, 35, &[&all[..34], &[34]])).is_sound(), "{codec}");
        // As many ids as rows, but row 0 twice and row 34 not at all.
        let index = with_bitmaps(codec, 35, &[&all[..34], &[0]]);
        let problems = verify(&index).problems;
        assert!(matches!(problems[..], [IndexError::NotPartition { .. }]), "{codec}: {problems:?}");
        assert_eq!(
            message(&problems[0]),
            "bitmaps of column 0 (a digit 0): a row is in two of the bitmaps, and another in none"
        );
        // What is looked up is what the bitmap says.
        assert_eq!(index.field("a").unwrap().equals(2).unwrap().count(), 1);
    }
}

#[test]
fn keys_without_rows_are_found() {
    // In the other codecs an empty set has no bytes, and offsets have to ascend.
    let all: Vec<u32> = (0..35).collect();
    let index = with_bitmaps(Codec::Roaring, 35, &[&all, &[]]);
    let problems = verify(&index).problems;
    assert!(matches!(problems[..], [IndexError::EmptyBitmap { key: 2, .. }]), "{problems:?}");
    assert_eq!(index.field("a").unwrap().equals(2).unwrap().count(), 0);
}

#[test]
fn forged_schemas_are_found() {
    use SectionKind::Schema;
    let error = Forgery::new().set(Schema, None, 4, &[2]).problem();
    let IndexError::BadField { what, expected, .. } = error else {
        panic!("{error}");
    };
    assert_eq!((what, expected), ("row order", Expected::Listed));
    let field = |what| {
        move |error: IndexError| match error {
            IndexError::BadField { what: found, .. } => assert_eq!(found, what),
            error => panic!("{error}"),
        }
    };
    // The first field: two lengths at 8, its name at 10, its columns at 16.
    field("reserved byte")(Forgery::new().set(Schema, None, 5, &[1]).problem());
    field("bytes needed")(Forgery::new().set(Schema, None, 6, &[6]).problem());
    // There are 33 sections: too few for twelve columns.
    field("number of fields")(Forgery::new().set(Schema, None, 6, &[12]).problem());
    field("number of columns")(Forgery::new().set(Schema, None, 9, &[12]).problem());
    field("bytes left over")(Forgery::new().set(Schema, None, 6, &[4]).problem());
    field("width")(Forgery::new().set(Schema, None, 16, &[9]).problem());
    field("codec")(Forgery::new().set(Schema, None, 17, &[0]).problem());
    field("codec")(Forgery::new().set(Schema, None, 18, &[1]).problem());
    let error = Forgery::new().set(Schema, None, 10, &[0xFF]).problem();
    assert!(matches!(error, IndexError::BadName { .. }), "{error}");
    // Fewer rows than the bitmaps have, and more.
    let error = Forgery::new().set(Schema, None, 0, &[0, 1]).problem();
    assert!(matches!(error, IndexError::Bitmap { .. }), "{error}");
    let error = Forgery::new().set(Schema, None, 0, &[0xFF; 4]).problem();
    assert!(matches!(error, IndexError::Cardinality { .. }), "{error}");
}

/// Which number of a forged file is found to be wrong.
fn what(forged: Forgery) -> &'static str {
    match forged.problem() {
        IndexError::BadField { what, .. } => what,
        error => panic!("{error}"),
    }
}

#[test]
fn forged_times_and_marks_are_found() {
    use SectionKind::{Marks, Times};
    for kind in [Times, Marks] {
        assert_eq!(what(Forgery::new().set(kind, None, 0, &[0x2D])), "number of values");
        assert_eq!(what(Forgery::new().set(kind, None, 4, &[2])), "flags");
        assert_eq!(what(Forgery::new().set(kind, None, 6, &[2])), "reserved field");
        assert_eq!(what(Forgery::new().set(kind, None, 16, &[65])), "bits of a difference");
        let largest = Forgery::new().set(kind, None, 8, &u64::MAX.to_le_bytes());
        assert_eq!(what(largest), "difference to a least value");
        assert_eq!(what(Forgery::new().set(kind, None, 4, &[0])), "flags");
    }
    assert_eq!(what(Forgery::new().set(Times, None, 16, &[64])), "end of a block");
    assert_eq!(what(Forgery::new().set(Times, None, 17, &[1])), "first word");
    assert_eq!(what(Forgery::new().set(Times, None, 48, &[40])), "length");
    // The lists of the marks: offsets are 0 to 27,000 more than the first, so 15 bits each, ten of
    // which are three words; least times are 0 to 81 more, 7 bits each, two words.
    let (times, spans) = (8 + 16 + 24, 8 + 16 + 24 + 8 + 16 + 16);
    for list in [times, spans] {
        assert_eq!(what(Forgery::new().set(Marks, None, list, &[9])), "number of values");
        assert_eq!(what(Forgery::new().set(Marks, None, list + 4, &[0])), "flags");
    }
    // Longer than they are: then the next one starts in the words of another, or is not there.
    assert_eq!(what(Forgery::new().set(Marks, None, 16, &[16 + 15])), "number of values");
    assert_eq!(what(Forgery::new().set(Marks, None, 17, &[99])), "length");
    assert_eq!(what(Forgery::new().set(Marks, None, spans + 16, &[64])), "length");
    let late = Forgery::new().set(Marks, None, times + 8, &(u64::MAX - 100).to_le_bytes());
    assert_eq!(what(late), "difference to a least time");
    // Offset 1 is 3,000 more than the first, in bits 15 to 29: as much as the first.
    let (_, section) = Forgery::new().section(Marks, None);
    let last = golden()[section.start + 27] & 0xC0;
    let error = Forgery::new().set(Marks, None, 24, &[0, 0, 0, last]).problem();
    assert!(matches!(error, IndexError::NotAscending { what: "offset", .. }), "{error}");
}

#[test]
fn forged_packet_sums_are_found() {
    use SectionKind::{Marks, Sums};
    assert_eq!(what(Forgery::new().set(Sums, None, 0, &[25])), "start");
    assert_eq!(what(Forgery::new().set(Sums, None, 8, &27_024_u64.to_le_bytes())), "end");
    // One checksum too few: what it leaves behind is found, too, as padding that is not zero.
    let short = Forgery::new().entry(Sums, None, 16, &[56]).mended();
    let found = verify(&Index::from_bytes(short).unwrap()).problems;
    let is_length = |e: &IndexError| matches!(e, IndexError::BadField { what: "length", .. });
    assert!(found.iter().any(is_length), "{found:?}");
    // Without marks nobody knows what they are of.
    let error = Forgery::new().entry(Marks, None, 0, &[99]).problem();
    assert!(matches!(error, IndexError::SurplusSection { .. }), "{error}");
}

#[test]
fn forged_row_maps_are_found() {
    use SectionKind::RowMap;
    // 300 rows have records of nine bits: eight contexts of 20 codes. Then three blocks' starts,
    // and the end of the last.
    let starts = 8 + 80;
    assert_eq!(what(Forgery::new().set(RowMap, None, 0, &[0x2D])), "number of rows");
    assert_eq!(what(Forgery::new().set(RowMap, None, 4, &[2])), "reserved field");
    assert_eq!(what(Forgery::new().set(RowMap, None, 8, &[0xBB; 10])), "bits of a code");
    assert_eq!(what(Forgery::new().set(RowMap, None, 8, &[0x11; 10])), "sum of the codes");
    assert_eq!(what(Forgery::new().set(RowMap, None, 8, &[0; 80])), "code");
    assert_eq!(what(Forgery::new().set(RowMap, None, starts, &[3])), "number of values");
    assert_eq!(what(Forgery::new().set(RowMap, None, starts + 8, &[1])), "end of the last block");
    let (_, section) = Forgery::new().section(RowMap, None);
    // Four numbers of seven bits, in one word.
    let words = starts + 8 + 16;
    let mut word = [0; 8];
    word.copy_from_slice(&golden()[section.start + words..][..8]);
    let start = |block: usize| {
        let start = u64::from_le_bytes(word) >> (7 * block) & 0x7F;
        words + 8 + usize::try_from(start).unwrap()
    };
    assert_eq!((start(0), start(3)), (words + 8, section.len()));
    assert_eq!(what(Forgery::new().set(RowMap, None, words, &[1])), "least value");
    // The first block without its last byte.
    let shorter = (u64::from_le_bytes(word) - (1 << 7)).to_le_bytes();
    assert_eq!(what(Forgery::new().set(RowMap, None, words, &shorter)), "bits of a block");
    // The second block starts behind its end: found by whoever reads it.
    let forged = Forgery::new().set(RowMap, None, words, &[0x80, 0x3F]);
    let index = Index::from_bytes(forged.mended()).unwrap();
    let error = index.row_map().unwrap().unwrap().get(130).unwrap_err();
    assert!(matches!(error, IndexError::BadField { what: "end of a block", .. }), "{error}");
    assert!(!verify(&index).is_sound());
    // The first record of the first block, in nine bits: there are 300 records.
    assert_eq!(what(Forgery::new().set(RowMap, None, start(0), &[0xFF, 0xFF])), "record");
    // The last block starts with a record less: so all of its records are one less, and others are
    // named a second time.
    let first = golden()[section.start + start(2)];
    let error = Forgery::new().set(RowMap, None, start(2), &[first - 1]).problem();
    assert!(matches!(error, IndexError::NotPermutation { .. }), "{error}");
    // Bits behind the last step.
    assert_eq!(golden()[section.end - 1], 0);
    assert_eq!(what(Forgery::new().set(RowMap, None, section.len() - 1, &[0x80])), "byte");
}

#[test]
fn a_note_that_is_too_long_is_refused() {
    let (disk, path) = (FaultyDisk::new(), Path::new("note.tdx"));
    let mut writer = IndexWriter::create(&disk, path, 0, Schema::default()).unwrap();
    writer.note(&vec![7; 1 << 24]).unwrap();
    writer.finish().unwrap();
    let bytes = disk.read(path).unwrap();
    let index = Index::from_bytes(bytes.clone()).unwrap();
    assert_eq!(index.note().unwrap().map(<[u8]>::len), Some(1 << 24));
    // One byte more, and room for it.
    let start = usize::try_from(index.sections().next().unwrap().offset).unwrap();
    let mut longer = bytes.clone();
    longer.splice(start..start, [7; 64]);
    let entry = longer.len() - usize::try_from(FOOTER_LEN + 2 * ENTRY_LEN).unwrap();
    longer[entry + 16..entry + 24].copy_from_slice(&((1_u64 << 24) + 1).to_le_bytes());
    relocate(&mut longer);
    mend(&mut longer);
    let error = Index::from_bytes(longer).unwrap_err();
    assert!(matches!(error, IndexError::BadField { what: "length", .. }), "{error}");
}

#[test]
fn padding_is_zeros() {
    let (_, schema) = Forgery::new().section(SectionKind::Schema, None);
    let mut bytes = golden();
    // Behind the schema and its one checksum.
    assert!((schema.end + 4) % 64 != 0);
    bytes[schema.end + 4] = 1;
    let error = problem(bytes).unwrap();
    let expected = format!("padding: byte at offset {} is 1, expected 0", schema.end + 4);
    assert_eq!(message(&error), expected);
}

#[test]
fn problems_are_counted_when_they_are_too_many_to_list() {
    // A bitmap for each of 250 rows, overwritten with zeros: MASC writes no such words.
    let mut table = Table::sample(2, 250);
    table.schema.fields.truncate(1);
    table.schema.fields[0].columns.truncate(1);
    table.columns = vec![(0..250).collect()];
    table.schema.fields[0].columns[0].codec = Codec::Masc;
    (table.row_map, table.times, table.marks, table.note) = (None, None, None, None);
    table.sums = None;
    let mut bytes = table.to_bytes();
    let sections: Vec<_> = Index::from_bytes(bytes.clone()).unwrap().sections().collect();
    let bitmaps = sections.iter().find(|s| s.kind == Some(SectionKind::Bitmaps)).unwrap();
    let start = usize::try_from(bitmaps.offset).unwrap();
    bytes[start..start + usize::try_from(bitmaps.len_bytes).unwrap()].fill(0);
    mend(&mut bytes);
    let found = verify(&Index::from_bytes(bytes).unwrap());
    assert_eq!(found.problems.len() as u64 + found.problems_more, 250);
    assert_eq!(found.problems.len(), PROBLEMS_MAX);
}
