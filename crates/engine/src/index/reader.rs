//! An index file, read in place.

mod column;
mod section;

use std::ops::Range;
use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use tapdex_bitmap::Bitmap;

use super::format::{
    ENTRY_LEN, Entry, Footer, HEADER_LEN, NO_COLUMN, NOTE_LEN_MAX, RowOrder, SectionKind,
    TABLE_VERSION, array, check_field, decode_directory, decode_header, decode_schema, size,
};
use super::lookup::FieldIndex;
use super::marks::Marks;
use super::packed::Packed;
use super::parting::Parting;
use super::rowmap::{Codes, RowMap};
use super::schema::{ColumnSpec, Schema};
use super::sums::Pieces;
use super::v2::{FlowParts, LastBlock, Sums, decode_container};
use crate::error::{Expected, IndexError};
use crate::storage::{Disk, Map, Storage, Whose};

pub use column::Column;
pub(crate) use section::Section;

/// Most problems that [`Index::verify`] describes; it counts the others.
pub const PROBLEMS_MAX: usize = 100;

/// An index: which rows have which value in which field.
///
/// Opening reads header, footer, directory and schema, and nothing else: they grow with the number
/// of columns, not with that of the rows. What a look-up touches is checked when it is first
/// touched: the checksum of each block of 4 KiB, the order of a column's keys if many of them are
/// needed, and that a bitmap is valid. After that the same look-up checks a few bits. An index can
/// be searched from many threads at once.
///
/// A look-up reads some of a column's bitmaps and trusts what they say. Whether each row is in
/// exactly one of them can only be seen from all of them: [`verify`](Index::verify) checks it.
#[derive(Debug)]
pub struct Index {
    bytes: Map,
    version: u16,
    rows: u32,
    order: RowOrder,
    schema: Schema,
    entries: Vec<Entry>,
    /// A bit for the checksums of each section and one for each of its blocks; set once they were
    /// found good.
    checked: Box<[AtomicU64]>,
    columns: Vec<ColumnState>,
    /// The entries of the sections that belong to no column.
    lists: Lists,
    /// The codes of the row map, once they were read.
    row_codes: OnceLock<Codes>,
    /// What an index of conversations has instead of schema and columns.
    flow: Option<FlowParts>,
    /// Where the checksums of the whole file are, if it has such.
    sums: Option<Sums>,
    /// The row that each conversation starts at, once they were read; none if that failed.
    starts: OnceLock<Vec<u32>>,
    /// Set if rows of flows were looked up, and the file is damaged there.
    flows_damaged: OnceLock<()>,
    last_marks: LastBlock,
}

/// The entries of the sections that belong to no column, as far as they exist.
#[derive(Debug, Clone, Copy, Default)]
struct Lists {
    row_map: Option<usize>,
    times: Option<usize>,
    marks: Option<usize>,
    note: Option<usize>,
    sums: Option<usize>,
}

const _: () = {
    const fn shared<T: Send + Sync>() {}
    shared::<Index>();
};

/// What is known about a column.
#[derive(Debug)]
struct ColumnState {
    spec: ColumnSpec,
    /// Its entries: keys, offsets, bitmaps.
    sections: [u32; 3],
    /// Set when all keys and offsets were found good.
    ordered: OnceLock<()>,
    /// A bit for each key; set once its bitmap was found good.
    opened: OnceLock<Box<[AtomicU64]>>,
}

impl ColumnState {
    fn new(spec: ColumnSpec) -> Self {
        let (ordered, opened) = (OnceLock::new(), OnceLock::new());
        Self { spec, sections: [MISSING; 3], ordered, opened }
    }
}

/// The number of an entry that was not found.
const MISSING: u32 = u32::MAX;

/// Where a section lies and what it holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SectionInfo {
    /// Its kind; `None` for one that this version does not know and skips.
    pub kind: Option<SectionKind>,
    /// The kind's number in the file.
    pub kind_code: u16,
    /// The column it belongs to, if any.
    pub column: Option<usize>,
    /// Where it starts in the file.
    pub offset: u64,
    /// How many bytes it has.
    pub len_bytes: u64,
    /// How many bytes of checksums lie behind it.
    pub checksum_bytes: u64,
}

impl SectionInfo {
    /// The name of its kind.
    pub fn name(&self) -> &'static str {
        self.kind.map_or("unknown", SectionKind::name)
    }
}

/// What [`Index::verify`] has found.
#[derive(Debug, Default)]
pub struct Verified {
    /// How many sections were read.
    pub sections: u64,
    /// How many bitmaps were opened.
    pub bitmaps: u64,
    /// How many bytes the file has.
    pub len_bytes: u64,
    /// What is wrong; empty for a sound file. First problems with checksums and padding, in order
    /// of the file, then with columns, row map, times and marks. At most [`PROBLEMS_MAX`].
    pub problems: Vec<IndexError>,
    /// How many more problems there are.
    pub problems_more: u64,
}

impl Verified {
    /// Whether nothing is wrong.
    pub fn is_sound(&self) -> bool {
        self.problems.is_empty()
    }

    fn add(&mut self, problem: IndexError) {
        if self.problems.len() < PROBLEMS_MAX {
            self.problems.push(problem);
        } else {
            self.problems_more += 1;
        }
    }
}

impl Index {
    /// Opens an index file. It must not be changed in place while it is open.
    pub fn open(path: &Path) -> Result<Self, IndexError> {
        Self::open_on(&Disk, path, Whose::Named)
    }

    /// Opens an index file of a storage.
    pub(crate) fn open_on(
        storage: &dyn Storage,
        path: &Path,
        whose: Whose,
    ) -> Result<Self, IndexError> {
        let map = storage.map(path, whose);
        Self::new(map.map_err(|error| IndexError::io("open", path, error))?)
            .map_err(|error| IndexError::InFile { path: path.to_owned(), source: error.into() })
    }

    /// Opens an index that lies in memory.
    pub fn from_bytes(bytes: Vec<u8>) -> Result<Self, IndexError> {
        Self::new(bytes.into())
    }

    fn new(bytes: Map) -> Result<Self, IndexError> {
        let file = bytes.bytes();
        let version = decode_header(file)?;
        let (entries, bits, sums) = match version {
            TABLE_VERSION => {
                let (footer, directory) = Footer::decode(file, ENTRY_LEN)?;
                let (entries, bits) = decode_directory(&footer, directory)?;
                (entries, bits, None)
            }
            _ => {
                let (entries, sums) = decode_container(file)?;
                (entries, sums.blocks, Some(sums))
            }
        };
        let checked = zeros(bits);
        let mut index = Self {
            bytes,
            version,
            rows: 0,
            order: RowOrder::Arrival,
            schema: Schema::default(),
            entries,
            checked,
            columns: vec![],
            lists: Lists::default(),
            row_codes: OnceLock::new(),
            flow: None,
            sums,
            starts: OnceLock::new(),
            flows_damaged: OnceLock::new(),
            last_marks: LastBlock::default(),
        };
        if version == TABLE_VERSION {
            index.read_schema()?;
        } else {
            let flow = FlowParts::open(&index)?;
            (index.rows, index.order) = (flow.schema.rows, RowOrder::Sorted);
            index.flow = Some(flow);
        }
        index.place_sections()?;
        Ok(index)
    }

    fn read_schema(&mut self) -> Result<(), IndexError> {
        let mut found = self.entries.iter().enumerate();
        let mut found = found.by_ref().filter(|(_, e)| e.known() == Some(SectionKind::Schema));
        let name = || SectionKind::Schema.name().into();
        let Some((at, entry)) = found.next() else {
            return Err(IndexError::MissingSection { section: name() });
        };
        if let Some((_, second)) = found.next() {
            let offset = second.offset;
            return Err(IndexError::SurplusSection { section: name(), offset });
        }
        if entry.column != NO_COLUMN {
            return Err(self.surplus(at));
        }
        // Keys, offsets and bitmaps of each column.
        let columns_max = self.entries.len() as u64 / 3;
        let decoded = decode_schema(self.section(at).all()?, entry.offset, columns_max)?;
        (self.rows, self.order, self.schema) = decoded;
        Ok(())
    }

    /// Finds each column's sections, and sees that all are there once and have lengths that agree.
    fn place_sections(&mut self) -> Result<(), IndexError> {
        let mut columns = Vec::with_capacity(self.schema.columns().count());
        columns.extend(self.schema.columns().map(ColumnState::new));
        let mut lists = Lists::default();
        for (at, entry) in self.entries.iter().enumerate() {
            let Some(kind) = entry.known() else {
                continue;
            };
            let slot = match kind {
                SectionKind::Schema => continue,
                SectionKind::Flows | SectionKind::Column | SectionKind::Volumes
                    if self.flow.is_some() =>
                {
                    continue;
                }
                SectionKind::Flows | SectionKind::Column | SectionKind::Volumes => {
                    return Err(self.surplus(at));
                }
                SectionKind::Times if self.flow.is_some() => return Err(self.surplus(at)),
                SectionKind::RowMap => &mut lists.row_map,
                SectionKind::Times => &mut lists.times,
                SectionKind::Marks => &mut lists.marks,
                SectionKind::Note => &mut lists.note,
                SectionKind::Sums => &mut lists.sums,
                SectionKind::Keys | SectionKind::Offsets | SectionKind::Bitmaps => {
                    let which = kind as usize - SectionKind::Keys as usize;
                    let column = columns.get_mut(entry.column as usize);
                    match column.map(|column| &mut column.sections[which]) {
                        Some(slot) if *slot == MISSING => {
                            *slot = u32::try_from(at).unwrap_or(MISSING);
                            continue;
                        }
                        _ => return Err(self.surplus(at)),
                    }
                }
            };
            if entry.column != NO_COLUMN || slot.replace(at).is_some() {
                return Err(self.surplus(at));
            }
        }
        for (n, column) in columns.iter().enumerate() {
            for (which, kind) in [SectionKind::Keys, SectionKind::Offsets, SectionKind::Bitmaps]
                .into_iter()
                .enumerate()
            {
                if column.sections[which] == MISSING {
                    let section = self.column_name(kind, n);
                    return Err(IndexError::MissingSection { section });
                }
            }
            self.check_lengths(column)?;
        }
        if (self.order == RowOrder::Sorted) != lists.row_map.is_some() {
            let section = SectionKind::RowMap.name().into();
            return Err(match lists.row_map {
                None => IndexError::MissingSection { section },
                Some(at) => self.surplus(at),
            });
        }
        if let Some(note) = lists.note.map(|at| self.section(at)) {
            let most = Expected::AtMost(NOTE_LEN_MAX);
            check_field(&|| note.name(), "length", note.offset(), most, note.len())?;
        }
        if let (Some(at), None) = (lists.sums, lists.marks) {
            return Err(self.surplus(at));
        }
        (self.columns, self.lists) = (columns, lists);
        Ok(())
    }

    pub(super) fn surplus(&self, at: usize) -> IndexError {
        let section = Section { index: self, entry: at };
        IndexError::SurplusSection { section: section.name(), offset: section.offset() }
    }

    /// Whether keys, offsets and bitmaps of a column have lengths that fit together.
    fn check_lengths(&self, column: &ColumnState) -> Result<(), IndexError> {
        let [keys, offsets, bitmaps] = column.sections.map(|at| self.section(at as usize));
        let check = |section: Section<'_>, expected, got| {
            check_field(&|| section.name(), "length", section.offset(), expected, got)
        };
        let count = keys.len() / 2;
        check(keys, Expected::Exactly(2 * count), keys.len())?;
        let most = u64::from(self.rows).min(1 << column.spec.width.bits());
        check(keys, Expected::AtMost(2 * most), keys.len())?;
        check(keys, Expected::AtLeast(2 * most.min(1)), keys.len())?;
        check(offsets, Expected::Exactly((count + 1) * offset_len(bitmaps.len())), offsets.len())?;
        // The bitmap of a key that occurs has at least a byte.
        check(bitmaps, Expected::AtLeast(count), bitmaps.len())
    }

    /// The version of the file's format.
    pub fn version(&self) -> u16 {
        self.version
    }

    pub(super) fn last_marks(&self) -> &LastBlock {
        &self.last_marks
    }

    pub(super) fn starts_cell(&self) -> &OnceLock<Vec<u32>> {
        &self.starts
    }

    pub(super) fn flows_damaged(&self) -> &OnceLock<()> {
        &self.flows_damaged
    }

    /// What an index of conversations has.
    pub(super) fn flow_part(&self) -> Option<&FlowParts> {
        self.flow.as_ref()
    }

    /// The numbers of the sections of a kind.
    pub(super) fn entries_of(&self, kind: SectionKind) -> impl Iterator<Item = usize> {
        let of_kind = move |(_, entry): &(usize, &Entry)| entry.known() == Some(kind);
        self.entries.iter().enumerate().filter(of_kind).map(|(at, _)| at)
    }

    pub(super) fn file(&self) -> &[u8] {
        self.bytes.bytes()
    }

    /// How many rows there are.
    pub fn rows(&self) -> u32 {
        self.rows
    }

    /// The fields and their columns.
    pub fn schema(&self) -> &Schema {
        &self.schema
    }

    /// The order of the rows.
    pub fn row_order(&self) -> RowOrder {
        self.order
    }

    /// How many bytes the file has.
    pub fn len_bytes(&self) -> u64 {
        self.bytes.bytes().len() as u64
    }

    fn state(&self, n: usize) -> Result<&ColumnState, IndexError> {
        self.columns.get(n).ok_or_else(|| {
            let max = self.columns.len().saturating_sub(1) as u128;
            IndexError::TooLarge { what: "column", got: n as u128, max }
        })
    }

    /// The index of column `n`, counted through all fields from 0. All its keys and offsets are
    /// checked; [`equals`](Index::equals) and [`bitmap_len`](Index::bitmap_len) need fewer.
    pub fn column(&self, n: usize) -> Result<Column<'_>, IndexError> {
        let state = self.state(n)?;
        let [keys, offsets, bitmaps] = state.sections.map(|at| self.section(at as usize));
        let column = Column {
            index: self,
            n,
            state,
            keys: keys.all()?.as_chunks().0,
            offsets: offsets.all()?,
            bitmaps,
        };
        if state.ordered.get().is_none() {
            column.check(keys, offsets)?;
            state.ordered.get_or_init(|| ());
        }
        Ok(column)
    }

    /// The rows with this digit in column `n`; `None` if there are none.
    ///
    /// The same as looking it up in the [`column`](Index::column), and faster for the first
    /// look-ups in a column with many keys: only the keys and offsets that the search touches are
    /// read and checked.
    pub fn equals(&self, n: usize, digit: u16) -> Result<Option<Bitmap<'_>>, IndexError> {
        let found = self.find_key(n, digit)?;
        found.map(|(i, range)| self.open_bitmap(self.state(n)?, i, digit, range)).transpose()
    }

    /// How many bytes the bitmap of this digit has in column `n`; 0 if it does not occur. No bitmap
    /// is read.
    pub fn bitmap_len(&self, n: usize, digit: u16) -> Result<u64, IndexError> {
        Ok(self.find_key(n, digit)?.map_or(0, |(_, range)| range.end - range.start))
    }

    /// The number of a key and where in the section its bitmap is, if it occurs.
    fn find_key(&self, n: usize, digit: u16) -> Result<Option<(usize, Range<u64>)>, IndexError> {
        let state = self.state(n)?;
        if state.ordered.get().is_some() {
            let column = self.column(n)?;
            let found = column.position(digit);
            return Ok(found.map(|i| (i, column.offset(i)..column.offset(i + 1))));
        }
        let [keys, offsets, bitmaps] = state.sections.map(|at| self.section(at as usize));
        let (mut low, mut high) = (0, keys.len() / 2);
        while low < high {
            let middle = low.midpoint(high);
            let key = keys.read(2 * middle, 2)?.first_chunk().copied();
            let key = key.map_or(0, u16::from_le_bytes);
            if key < digit {
                low = middle + 1;
            } else if key > digit {
                high = middle;
            } else {
                let len = offset_len(bitmaps.len());
                let pair = offsets.read(middle * len, 2 * len)?;
                let (start, end) = (offset_at(pair, len, 0), offset_at(pair, len, 1));
                if start >= end {
                    let (section, offset) = (offsets.name(), offsets.offset() + middle * len);
                    let (what, previous, got) = ("offset", start, end);
                    return Err(IndexError::NotAscending { section, what, offset, previous, got });
                }
                return Ok(Some((size(middle), start..end)));
            }
        }
        Ok(None)
    }

    /// The bitmap of a key, by the number of the key and its place in the section.
    fn open_bitmap<'a>(
        &'a self,
        state: &'a ColumnState,
        i: usize,
        key: u16,
        range: Range<u64>,
    ) -> Result<Bitmap<'a>, IndexError> {
        let [keys, _, bitmaps] = state.sections.map(|at| self.section(at as usize));
        let bytes = bitmaps.read(range.start, range.end - range.start)?;
        let opened = state.opened.get_or_init(|| zeros(keys.len() / 2));
        let codec = state.spec.codec;
        if is_set(opened, i as u64) {
            return Ok(Bitmap::reopen(codec, bytes, self.rows));
        }
        let bitmap = Bitmap::open(codec, bytes, self.rows).map_err(|source| {
            let (section, offset) = (bitmaps.name(), bitmaps.offset() + range.start);
            IndexError::Bitmap { section, key, offset, source }
        })?;
        set(opened, i as u64);
        Ok(bitmap)
    }

    /// The index of a field.
    pub fn field(&self, name: &str) -> Result<FieldIndex<'_>, IndexError> {
        self.find_field(name).ok_or_else(|| {
            let known: Vec<&str> = self.schema.fields.iter().map(|f| f.name.as_str()).collect();
            IndexError::UnknownField { name: name.into(), known: known.join(", ").into() }
        })
    }

    /// The index of a field, if there is a field of that name.
    pub fn find_field(&self, name: &str) -> Option<FieldIndex<'_>> {
        let mut first = 0;
        for field in &self.schema.fields {
            if field.name == name {
                return Some(FieldIndex::new(self, field, first));
            }
            first += field.columns.len();
        }
        None
    }

    /// Which record each row stands for; `None` if rows are in order of arrival.
    pub fn row_map(&self) -> Result<Option<RowMap<'_>>, IndexError> {
        let open = |at| match self.flow {
            None => RowMap::open(self.section(at), self.rows, &self.row_codes),
            Some(_) => self.flow_row_map(at, &self.row_codes).map(RowMap::of_flows),
        };
        self.lists.row_map.map(open).transpose()
    }

    /// The time of each record, in order of arrival, in nanoseconds since 1970; `None` if they
    /// were not kept.
    pub fn times(&self) -> Result<Option<Packed<'_>>, IndexError> {
        self.lists.times.map(|at| Packed::open(self.section(at), self.rows)).transpose()
    }

    /// Where records lie in the packet file, and their times; `None` if there are no marks.
    pub fn marks(&self) -> Result<Option<Marks<'_>>, IndexError> {
        let open = |at| match self.flow {
            None => Marks::open(self.section(at), self.rows),
            Some(_) => self.compact_marks(at).map(Marks::of_compact),
        };
        self.lists.marks.map(open).transpose()
    }

    /// The pieces of the packet file that the marks lead to, with their checksums; `None` if there
    /// are no checksums.
    pub fn pieces(&self) -> Result<Option<Pieces<'_>>, IndexError> {
        let Some((at, marks)) = self.lists.sums.zip(self.marks()?) else { return Ok(None) };
        Pieces::open(self.section(at), marks).map(Some)
    }

    /// Whether there are checksums of the packets.
    pub fn has_pieces(&self) -> bool {
        self.lists.sums.is_some()
    }

    /// The note that the writer of the file added, if any.
    pub fn note(&self) -> Result<Option<&[u8]>, IndexError> {
        self.lists.note.map(|at| self.section(at).all()).transpose()
    }

    /// The sections of the file, in order.
    pub fn sections(&self) -> impl Iterator<Item = SectionInfo> + '_ {
        (0..self.entries.len()).map(|at| self.section(at).info())
    }

    /// Reads the whole file: all checksums, all keys, offsets and bitmaps, whether each column's
    /// bitmaps have each row once, and whether the row map names each record once.
    ///
    /// `each` is called when a section's checksums have been compared. Problems are collected as
    /// far as possible. Whether each row is there once is checked with a hash whose key is drawn
    /// for each call: a forged file passes only by chance.
    pub fn verify(&self, each: &mut dyn FnMut(&SectionInfo)) -> Verified {
        let len_bytes = self.len_bytes();
        let mut found = Verified { len_bytes, ..Verified::default() };
        if let Some(sums) = self.sums {
            let wrong = (0..sums.blocks).filter_map(|at| self.check_file_block(sums, at).err());
            wrong.for_each(|error| found.add(error));
        }
        let mut end = HEADER_LEN;
        for at in 0..self.entries.len() {
            let section = self.section(at);
            if self.sums.is_none() {
                self.verify_padding(end..section.offset(), &mut found);
                section.verify(&mut found);
                end = section.entry().end().unwrap_or(len_bytes);
            }
            found.sections += 1;
            each(&section.info());
        }
        if self.sums.is_none() {
            let directory = Footer::parse(self.bytes.bytes()).directory;
            self.verify_padding(end..directory, &mut found);
        }
        // A damaged block has been reported already: do not report it again for each bitmap in it.
        let mut add = |found: &mut Verified, error| match error {
            IndexError::Checksum { .. } => {}
            error => found.add(error),
        };
        let parting = Parting::new();
        for n in 0..self.columns.len() {
            match self.column(n) {
                Ok(column) => column.verify(&parting, &mut found, &mut add),
                Err(error) => add(&mut found, error),
            }
        }
        if self.flow.is_some() {
            self.verify_flows(&mut found, &mut add);
        }
        if let Err(error) = self.verify_row_map() {
            add(&mut found, error);
        }
        let times = self
            .times()
            .and_then(|times| times.map_or(Ok(()), |times| times.verify(&mut |_, _| Ok(()))));
        let marks = self.marks().and_then(|marks| marks.map_or(Ok(()), |marks| marks.verify()));
        let pieces = self.pieces().and_then(|pieces| pieces.map_or(Ok(()), |all| all.verify()));
        for error in [times, marks, pieces].into_iter().filter_map(Result::err) {
            add(&mut found, error);
        }
        found
    }

    fn verify_padding(&self, range: Range<u64>, found: &mut Verified) {
        let bytes = self.bytes.bytes().get(size(range.start)..size(range.end)).unwrap_or_default();
        for (offset, &byte) in (range.start..).zip(bytes) {
            let (section, expected) = (|| "padding".into(), Expected::Exactly(0));
            if let Err(error) = check_field(&section, "byte", offset, expected, byte.into()) {
                found.add(error);
            }
        }
    }

    fn verify_row_map(&self) -> Result<(), IndexError> {
        let (Some(map), Some(at)) = (self.row_map()?, self.lists.row_map) else {
            return Ok(());
        };
        let section = self.section(at);
        let mut seen = vec![0_u64; (self.rows as usize).div_ceil(64)];
        map.verify(&mut |row: u64, record: u64| {
            // The row map returns only records of the index.
            let (word, bit) = (&mut seen[size(record / 64)], 1 << (record % 64));
            if *word & bit != 0 {
                return Err(IndexError::NotPermutation { section: section.name(), row, record });
            }
            *word |= bit;
            Ok(())
        })
    }

    pub(super) fn section(&self, entry: usize) -> Section<'_> {
        Section { index: self, entry }
    }

    /// The name of a section of a column, in messages.
    fn column_name(&self, kind: SectionKind, column: usize) -> Box<str> {
        if let Some(column) = self.flow.as_ref().and_then(|flow| flow.schema.columns.get(column)) {
            return format!("column of {}", column.names.join(", ")).into();
        }
        let mut digit = column;
        for field in &self.schema.fields {
            if digit < field.columns.len() {
                let (kind, field) = (kind.name(), &field.name);
                return format!("{kind} of column {column} ({field} digit {digit})").into();
            }
            digit -= field.columns.len();
        }
        format!("{} of column {column}", kind.name()).into()
    }

    fn is_checked(&self, bit: u64) -> bool {
        is_set(&self.checked, bit)
    }

    fn set_checked(&self, bit: u64) {
        set(&self.checked, bit);
    }
}

/// This many bits, none of them set.
fn zeros(bits: u64) -> Box<[AtomicU64]> {
    (0..bits.div_ceil(64)).map(|_| AtomicU64::new(0)).collect()
}

/// Whether a bit is set. No memory ordering is needed: the bytes that it is about never change.
fn is_set(bits: &[AtomicU64], bit: u64) -> bool {
    let word = bits.get(size(bit / 64));
    word.is_some_and(|word| word.load(Ordering::Relaxed) >> (bit % 64) & 1 == 1)
}

fn set(bits: &[AtomicU64], bit: u64) {
    if let Some(word) = bits.get(size(bit / 64)) {
        word.fetch_or(1 << (bit % 64), Ordering::Relaxed);
    }
}

/// Bytes of an offset, in a column whose bitmaps have this many bytes.
fn offset_len(bitmaps_len: u64) -> u64 {
    if u32::try_from(bitmaps_len).is_ok() { 4 } else { 8 }
}

/// An offset of a list, `len` bytes each.
fn offset_at(offsets: &[u8], len: u64, i: usize) -> u64 {
    let offset = match len {
        4 => array(offsets, 4 * i).map(|bytes| u32::from_le_bytes(bytes).into()),
        _ => array(offsets, 8 * i).map(u64::from_le_bytes),
    };
    offset.unwrap_or(0)
}

/// Whether little-endian numbers ascend strictly. Many at a time, without an early exit between
/// them, so that it compiles to vector instructions.
fn ascend<T: Copy + PartialOrd, const N: usize>(
    numbers: &[[u8; N]],
    from_bytes: impl Fn([u8; N]) -> T,
) -> bool {
    let pairs = numbers.iter().zip(numbers.get(1..).unwrap_or_default());
    pairs.fold(true, |so_far, (&a, &b)| so_far & (from_bytes(a) < from_bytes(b)))
}
