//! Tables, and what a plain scan of them answers.

use std::path::Path;

use tapdex_bitmap::sample::Random;
use tapdex_bitmap::{ALL_CODECS, Chunks, Codec};

use super::disk::FaultyDisk;
use crate::IndexError;
use crate::index::{
    BLOCK_ROWS, Builder, ColumnIndex, ColumnSpec, CpuBuilder, Digits, Field, Index, IndexWriter,
    MARK_RECORDS, Mark, PieceSums, RowOrder, Rows, Schema, Width,
};
use crate::storage::Publish;

/// A table: the oracle of every look-up.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Table {
    /// Its fields.
    pub schema: Schema,
    /// How many rows it has.
    pub rows: u32,
    /// The digits of each column, row by row.
    pub columns: Vec<Vec<u16>>,
    /// The record of each row.
    pub row_map: Option<Vec<u32>>,
    /// The time of each record.
    pub times: Option<Vec<u64>>,
    /// Where records are and when they were captured.
    pub marks: Option<Vec<Mark>>,
    /// Checksums of the packets.
    pub sums: Option<PieceSums>,
    /// The note.
    pub note: Option<Vec<u8>>,
}

impl Table {
    /// A small table made up from a seed: fields of one to four digits in any codec.
    pub fn sample(seed: u64, rows: u32) -> Self {
        let mut random = Random::new(seed);
        let mut table = Self { rows, ..Self::default() };
        for n in 0..1 + random.below(3) {
            let mut columns = vec![];
            for _ in 0..1 + random.below(4) {
                let short = random.below(3) == 0;
                let width = if short { Width::Short } else { Width::Byte };
                let mut codec = ALL_CODECS[random.below(9) as usize];
                if let Codec::Hipes(_) = codec {
                    codec = Codec::from_id(8, 7 + u8::try_from(random.below(10)).unwrap()).unwrap();
                }
                columns.push(ColumnSpec { width, codec });
                let (base, keys) = (random.below(40), 1 + random.below(5));
                let scale = if short { 1_543 } else { 6 };
                let digit = |random: &mut Random| (base + random.below(keys)) * scale / 2;
                let digits = (0..rows).map(|_| u16::try_from(digit(&mut random)).unwrap());
                table.columns.push(digits.collect());
            }
            table.schema.fields.push(Field { name: format!("f{n}"), columns });
        }
        if random.below(2) == 0 {
            table.times = Some((0..rows).map(|i| u64::from(i / 3) << random.below(8)).collect());
        }
        if random.below(2) == 0 {
            let mut records: Vec<u32> = (0..rows).collect();
            (1..rows).for_each(|i| records.swap(i as usize, random.below(i + 1) as usize));
            table.row_map = Some(records);
        }
        if random.below(2) == 0 {
            let marks = sample_marks(&mut random, rows);
            table.sums = (random.below(2) == 0).then(|| sample_sums(&mut random, &marks));
            table.marks = Some(marks);
        }
        if random.below(2) == 0 {
            table.note = Some(format!("seed {seed}").into());
        }
        table
    }

    /// The value of a field in a row.
    pub fn value(&self, field: usize, row: u32) -> u128 {
        let first: usize = self.schema.fields[..field].iter().map(|f| f.columns.len()).sum();
        let columns = self.schema.fields[field].columns.iter().zip(&self.columns[first..]);
        columns.fold(0, |value, (spec, digits)| {
            value << spec.width.bits() | u128::from(digits[row as usize])
        })
    }

    /// The rows in which a field has a wanted value.
    pub fn scan(&self, field: usize, wanted: impl Fn(u128) -> bool) -> Vec<u32> {
        (0..self.rows).filter(|&row| wanted(self.value(field, row))).collect()
    }

    /// Writes the table's index.
    pub fn write(&self, storage: &dyn Publish, path: &Path) -> Result<u64, IndexError> {
        let mut writer = IndexWriter::create(storage, path, self.rows, self.schema.clone())?;
        let (mut builder, mut index) = (CpuBuilder::new(1), ColumnIndex::default());
        for (spec, digits) in self.schema.columns().zip(&self.columns) {
            let bytes: Vec<u8>;
            let digits = match spec.width {
                Width::Short => Digits::Shorts(digits),
                Width::Byte => {
                    bytes = digits.iter().map(|&digit| u8::try_from(digit).unwrap()).collect();
                    Digits::Bytes(&bytes)
                }
            };
            builder.build(digits, spec.codec, &mut index).unwrap();
            writer.column(&index)?;
        }
        if let Some(records) = &self.row_map {
            writer.row_map(records)?;
        }
        if let Some(times) = &self.times {
            writer.times(times)?;
        }
        if let Some(marks) = &self.marks {
            writer.marks(marks)?;
            if let Some(sums) = &self.sums {
                writer.sums(marks, sums)?;
            }
        }
        if let Some(note) = &self.note {
            writer.note(note)?;
        }
        writer.finish()
    }

    /// The bytes of the table's index.
    pub fn to_bytes(&self) -> Vec<u8> {
        let (disk, path) = (FaultyDisk::new(), Path::new("table.tdx"));
        let len = self.write(&disk, path).unwrap();
        assert_eq!(disk.paths(), [path], "nothing is left but the file");
        let bytes = disk.read(path).unwrap();
        assert_eq!(bytes.len() as u64, len);
        bytes
    }

    /// The table of an index, if in each of its columns each row has exactly one digit.
    pub fn from_index(index: &Index) -> Result<Option<Self>, IndexError> {
        let mut table =
            Self { schema: index.schema().clone(), rows: index.rows(), ..Self::default() };
        for n in 0..index.schema().columns().count() {
            let column = index.column(n)?;
            let mut digits: Vec<Option<u16>> = vec![None; index.rows() as usize];
            for (i, key) in column.keys().enumerate() {
                for row in column.bitmap(i)?.ids() {
                    if digits[row as usize].replace(key).is_some() {
                        return Ok(None);
                    }
                }
            }
            match digits.into_iter().collect() {
                Some(digits) => table.columns.push(digits),
                None => return Ok(None),
            }
        }
        if let Some(map) = index.row_map()? {
            table.row_map = Some(map.iter().collect::<Result<_, _>>()?);
        }
        if let Some(times) = index.times()? {
            table.times = Some(times.iter().collect::<Result<_, _>>()?);
        }
        if let Some(marks) = index.marks()? {
            table.marks = Some(marks.iter().collect::<Result<_, _>>()?);
        }
        if let Some(pieces) = index.pieces()? {
            let head = pieces.head()?;
            let mut sums = PieceSums { start: head.bytes.start, end: head.bytes.end, sums: vec![] };
            sums.sums.push(head.sum);
            for i in 0..pieces.len() {
                let piece = pieces.get(i)?;
                sums.sums.push(piece.sum);
                sums.end = piece.bytes.end;
            }
            table.sums = Some(sums);
        }
        table.note = index.note()?.map(<[u8]>::to_vec);
        Ok(Some(table))
    }
}

/// Marks for this many rows, with ascending offsets and times in any order.
pub fn sample_marks(random: &mut Random, rows: u32) -> Vec<Mark> {
    let (mut offset, shift) = (24, random.below(60));
    let mark = |_| {
        offset += 1 + u64::from(random.below(100_000));
        let time_min = random.number() >> 1 >> shift;
        Mark { offset, time_min, time_max: time_min + u64::from(random.below(1 << 20)) }
    };
    (0..rows.div_ceil(MARK_RECORDS)).map(mark).collect()
}

/// Checksums of the pieces of these marks.
fn sample_sums(random: &mut Random, marks: &[Mark]) -> PieceSums {
    let start = u64::from(random.below(25));
    let last = marks.last().map_or(start, |mark| mark.offset);
    let end = last + 1 + u64::from(random.below(100_000));
    PieceSums { start, end, sums: (0..=marks.len()).map(|_| random.below(u32::MAX)).collect() }
}

fn ids(rows: Result<Rows<'_>, IndexError>) -> Vec<u32> {
    rows.unwrap().ids().collect()
}

/// Compares an index with the table it was built from: all that it holds, and look-ups with values
/// drawn from a seed.
pub fn check_index(index: &Index, table: &Table, seed: u64) {
    assert_eq!((index.rows(), index.schema()), (table.rows, &table.schema));
    let order = if table.row_map.is_some() { RowOrder::Sorted } else { RowOrder::Arrival };
    assert_eq!(index.row_order(), order);
    assert_eq!(Table::from_index(index).unwrap().as_ref(), Some(table));
    check_lookups(index, table, seed);
    let verified = index.verify(&mut |_| {});
    assert!(verified.is_sound(), "{:?}", verified.problems);
    assert_eq!(verified.sections, index.sections().count() as u64);
}

/// Compares look-ups of every kind with a scan of the table.
pub fn check_lookups(index: &Index, table: &Table, seed: u64) {
    let mut random = Random::new(seed);
    for (n, digits) in table.columns.iter().enumerate() {
        let column = index.column(n).unwrap();
        let scan = |wanted: &dyn Fn(u16) -> bool| -> Vec<u32> {
            (0..).zip(digits).filter(|&(_, &digit)| wanted(digit)).map(|(row, _)| row).collect()
        };
        let mut keys = digits.clone();
        keys.sort_unstable();
        keys.dedup();
        assert!(column.keys().eq(keys.iter().copied()));
        for (i, &key) in keys.iter().enumerate() {
            assert_eq!(column.position(key), Some(i));
            let len = column.bitmap(i).unwrap().as_bytes().len() as u64;
            assert_eq!(column.bitmap_len(i), len);
        }
        assert_eq!(column.bitmap_len(keys.len()), 0);
        let draw = |random: &mut Random| match keys.get(random.below(8) as usize) {
            Some(&key) => key,
            None => u16::try_from(random.below(1 << 16)).unwrap(),
        };
        let (a, b, c) = (draw(&mut random), draw(&mut random), draw(&mut random));
        let equal: Vec<u32> =
            column.equals(a).unwrap().map_or(vec![], |bitmap| bitmap.ids().collect());
        assert_eq!(equal, scan(&|digit| digit == a));
        let any = ids(column.any_of(&[c, a, b, a]));
        assert_eq!(any, scan(&|digit| [a, b, c].contains(&digit)));
        for range in [a..=b, b..=a, 0..=c, c..=u16::MAX, 0..=u16::MAX] {
            let found = ids(column.range(range.clone()));
            assert_eq!(found, scan(&|digit| range.contains(&digit)), "{range:?}");
        }
    }
    for (n, spec) in table.schema.fields.iter().enumerate() {
        let field = index.field(&spec.name).unwrap();
        let max = field.value_max();
        let draw = |random: &mut Random| {
            // A value of the table, one like it, or any.
            let value = match table.rows {
                0 => 0,
                rows => table.value(n, random.below(rows)),
            };
            let noise = u128::from(random.number()) << 64 | u128::from(random.number());
            match random.below(4) {
                0 => noise & max,
                1 => value ^ 1 << random.below(spec.bits()),
                _ => value,
            }
        };
        let (a, b, c) = (draw(&mut random), draw(&mut random), draw(&mut random));
        assert_eq!(ids(field.equals(a)), table.scan(n, |value| value == a), "{a}");
        let any = ids(field.any_of(&[b, a, c, b]));
        assert_eq!(any, table.scan(n, |value| [a, b, c].contains(&value)), "{a} {b} {c}");
        for range in [a..=b, b..=a, 0..=c, c..=max, 0..=u128::MAX, max..=u128::MAX] {
            let found = ids(field.range(range.clone()));
            assert_eq!(found, table.scan(n, |value| range.contains(&value)), "{range:?}");
        }
        for bits in [0, random.below(spec.bits()), random.below(spec.bits()), spec.bits()] {
            let high = |value: u128| value.checked_shr(spec.bits() - bits).unwrap_or(0);
            let found = ids(field.prefix(a, bits));
            assert_eq!(found, table.scan(n, |value| high(value) == high(a)), "{a}/{bits}");
        }
    }
    if let (Some(records), Some(map)) = (&table.row_map, index.row_map().unwrap()) {
        for (row, &record) in (0..).zip(records) {
            assert_eq!(map.get(row).unwrap(), record);
        }
        // Some rows, dense and sparse, so that some blocks are skipped and some read in part.
        let mut some = vec![];
        let mut row = random.below(5);
        while row < table.rows {
            some.push(row);
            row += 1 + random.below(3) * random.below(u32::try_from(BLOCK_ROWS).unwrap());
        }
        let mut found = vec![7];
        map.records(&some, &mut found).unwrap();
        assert_eq!((found[0], found.len()), (7, 1 + some.len()));
        assert!(found[1..].iter().eq(some.iter().map(|&row| &records[row as usize])));
    }
    if let (Some(marks), Some(found)) = (&table.marks, index.marks().unwrap()) {
        assert_eq!(found.len() as usize, marks.len());
        for (i, &mark) in (0..).zip(marks) {
            assert_eq!(found.get(i).unwrap(), mark);
        }
    }
    let pieces = index.pieces().unwrap();
    assert_eq!(pieces.is_some(), table.sums.is_some());
    if let (Some(sums), Some(pieces)) = (&table.sums, pieces) {
        let mut end = sums.start;
        let all = (0..pieces.len()).map(|i| pieces.get(i).unwrap());
        for (piece, &sum) in std::iter::once(pieces.head().unwrap()).chain(all).zip(&sums.sums) {
            assert_eq!((piece.bytes.start, piece.sum), (end, sum));
            end = piece.bytes.end;
        }
        assert_eq!(end, sums.end);
    }
    if let (Some(times), Some(packed)) = (&table.times, index.times().unwrap()) {
        let at = times.get(random.below(table.rows.max(1)) as usize).copied().unwrap_or(9);
        if packed.is_ascending() {
            let found = packed.partition_point(|time| time < at).unwrap() as usize;
            assert_eq!(found, times.partition_point(|&time| time < at));
        }
        for (row, &time) in (0..).zip(times) {
            assert_eq!(packed.get(row).unwrap(), time);
        }
    }
}
