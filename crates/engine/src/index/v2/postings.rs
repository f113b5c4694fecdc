//! Which entries of a column have which value, in one of three forms: [lists], [packed ids](ids),
//! or bitmaps of one codec.
//!
//! Bitmaps are laid out as lists are: a varint with the number of bytes, and the bitmap. In a
//! column of packets the longest bitmap, the first of those if there are several, is left out and
//! has no bytes: the value is that of all entries that are in no other bitmap.

mod choose;
mod ids;
mod lists;

use std::ops::Range;

use tapdex_bitmap::{BitSet, Bitmap, Chunks, Codec, union};

use super::bits::{Reader, for_each_bit, push_varint, u32_at, words_of};
use super::packed::{self, push_numbers};
use super::section::Part;
use crate::error::IndexError;
pub(crate) use choose::pack_digits;
pub(super) use choose::{PackedWeight, choose, masc_least};
use lists::{List, encode_lists};

/// Lists of a block.
const BLOCK: usize = 64;

/// How a column says which entries have which value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Form {
    /// A list of entries for each value.
    Lists,
    /// The id of the value of each entry.
    Packed,
    /// A bitmap for each value.
    Bitmaps(Codec),
}

impl Form {
    pub(super) fn code(self) -> [u8; 2] {
        match self {
            Self::Lists => [0, 0],
            Self::Packed => [1, 0],
            Self::Bitmaps(codec) => [0x80 | codec.id() as u8, codec.parameter()],
        }
    }

    pub(super) fn from_code([code, parameter]: [u8; 2]) -> Option<Self> {
        match (code, parameter) {
            (0, 0) => Some(Self::Lists),
            (1, 0) => Some(Self::Packed),
            (0x80.., _) => Codec::from_id(code & 0x7F, parameter).map(Self::Bitmaps),
            _ => None,
        }
    }
}

/// Its name: `lists`, `packed`, or that of the codec.
impl std::fmt::Display for Form {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Lists => f.write_str("lists"),
            Self::Packed => f.write_str("packed"),
            Self::Bitmaps(codec) => codec.fmt(f),
        }
    }
}

/// Entries sorted by their values, and ascending for each value.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Sorted {
    /// The values that occur, ascending.
    pub values: Vec<u128>,
    /// Where the entries of each value start, and where the last ones end.
    pub starts: Vec<u32>,
    /// The entries.
    pub entries: Vec<u32>,
}

impl Sorted {
    pub(super) fn list(&self, id: usize) -> &[u32] {
        &self.entries[self.starts[id] as usize..self.starts[id + 1] as usize]
    }

    pub(super) fn len(&self) -> usize {
        self.values.len()
    }

    /// How many bytes the packed form has.
    #[cfg(feature = "testing")]
    pub(crate) fn packed_len(&self) -> usize {
        let mut bytes = Vec::new();
        push_numbers(&ids_of(self), &mut bytes);
        bytes.len()
    }

    /// The id of each entry's value, if 16 bits are enough for all ids.
    pub(crate) fn short_ids(&self) -> Option<Vec<u16>> {
        let mut ids = vec![0; self.entries.len()];
        for id in 0..self.len() {
            let short = u16::try_from(id).ok()?;
            self.list(id).iter().for_each(|&entry| ids[entry as usize] = short);
        }
        Some(ids)
    }
}

/// Blocks of byte strings: where each block but the first starts, then all of them.
fn push_blocks(count: usize, mut push: impl FnMut(usize, &mut Vec<u8>), target: &mut Vec<u8>) {
    let starts_at = target.len();
    target.resize(starts_at + 4 * (count.div_ceil(BLOCK).max(1) - 1), 0);
    let bytes_at = target.len();
    for id in 0..count {
        if id % BLOCK == 0 && id > 0 {
            let start = u32::try_from(target.len() - bytes_at).unwrap_or(u32::MAX);
            let slot = starts_at + 4 * (id / BLOCK - 1);
            target[slot..slot + 4].copy_from_slice(&start.to_le_bytes());
        }
        push(id, target);
    }
}

/// The id of each entry.
fn ids_of(sorted: &Sorted) -> Vec<u32> {
    let mut ids = vec![0; sorted.entries.len()];
    for id in 0..sorted.len() {
        for &entry in sorted.list(id) {
            ids[entry as usize] = u32::try_from(id).unwrap_or(u32::MAX);
        }
    }
    ids
}

/// Appends the bitmaps of a column; the longest is left out if `implied`.
pub(super) fn encode_bitmaps(
    bitmaps: &dyn Fn(usize, &mut Vec<u8>),
    count: usize,
    implied: bool,
    target: &mut Vec<u8>,
) {
    let mut all = Vec::new();
    let mut starts = vec![0];
    for id in 0..count {
        bitmaps(id, &mut all);
        starts.push(all.len());
    }
    let lens = || starts.windows(2).map(|pair| pair[1] - pair[0]);
    let longest = lens().max().unwrap_or(0);
    let left_out = lens().position(|len| len == longest).filter(|_| implied && count > 1);
    push_blocks(
        count,
        |id, target| {
            let bitmap = match left_out == Some(id) {
                true => &[],
                false => &all[starts[id]..starts[id + 1]],
            };
            push_varint(bitmap.len() as u128, target);
            target.extend_from_slice(bitmap);
        },
        target,
    );
}

/// Appends a column in a form.
pub(super) fn encode_form(sorted: &Sorted, form: Form, implied: bool, target: &mut Vec<u8>) {
    match form {
        Form::Lists => encode_lists(sorted, target),
        Form::Packed => push_numbers(&ids_of(sorted), target),
        Form::Bitmaps(codec) => {
            let bitmap = |id: usize, target: &mut Vec<u8>| codec.encode(sorted.list(id), target);
            encode_bitmaps(&bitmap, sorted.len(), implied, target);
        }
    }
}

/// Passes the runs of a set to `each`, as their first and last ids.
pub(super) fn for_each_run(mut set: impl Chunks, each: &mut dyn FnMut(u32, u32)) {
    let mut from = 0;
    while let Some(key) = set.seek(from) {
        set.load().for_each_run(|first, last| each(key << 16 | first, key << 16 | last));
        from = key + 1;
    }
}

/// Which entries have which value, read in place.
#[derive(Debug, Clone, Copy)]
pub(super) struct Postings<'a> {
    pub(super) part: Part<'a>,
    pub(super) form: Form,
    /// How many values there are.
    pub(super) values: u32,
    /// How many entries.
    pub(super) entries: u32,
}

impl<'a> Postings<'a> {
    /// Passes the bytes of the lists or bitmaps of some values to `each`, with their ids and where
    /// they start.
    fn strings(
        &self,
        ids: Range<u32>,
        each: &mut dyn FnMut(u32, usize, &mut Reader<'a>) -> Result<(), IndexError>,
    ) -> Result<(), IndexError> {
        let blocks = (self.values as usize).div_ceil(BLOCK).max(1);
        let (starts_at, end) = match self.form {
            Form::Lists => self.lists_head().map(|head| (head.starts, head.bits))?,
            Form::Packed | Form::Bitmaps(_) => (0, self.part.len),
        };
        let bytes_at = starts_at + 4 * (blocks - 1);
        let start = |block: usize| -> Result<usize, IndexError> {
            match block {
                0 => Ok(bytes_at),
                _ if block >= blocks => Ok(end),
                _ => {
                    let start = self.part.read(starts_at + 4 * (block - 1), 4)?;
                    Ok(bytes_at + u32_at(start, 0) as usize)
                }
            }
        };
        if ids.is_empty() {
            return Ok(());
        }
        let first_block = ids.start as usize / BLOCK;
        for block in first_block..(ids.end as usize).div_ceil(BLOCK).min(blocks) {
            let (from, to) = (start(block)?, start(block + 1)?);
            let mut reader = Reader::new(self.part.read(from, to.saturating_sub(from))?);
            let first = u32::try_from(block * BLOCK).unwrap_or(u32::MAX);
            for id in (first..self.values).take(BLOCK) {
                if id >= ids.end {
                    return Ok(());
                }
                let before = reader;
                let skipped = match self.form {
                    Form::Lists => List::read(&mut reader, self.entries).map(drop),
                    Form::Packed | Form::Bitmaps(_) => reader
                        .varint()
                        .and_then(|len| reader.take(usize::try_from(len).ok()?).map(drop)),
                };
                skipped.ok_or_else(|| self.part.bad("length of a list", from + before.at))?;
                if id >= ids.start {
                    each(id, from + before.at, &mut { before })?;
                }
            }
            if !reader.is_at_end() {
                return Err(self.part.bad("end of a block of lists", from + reader.at));
            }
        }
        Ok(())
    }

    /// Passes the entries of each of some values to `each`, as the value's id and the first and the
    /// last entry of a run. The runs of a value ascend; those of the packed form do together.
    pub(super) fn runs_of(
        &self,
        ids: Range<u32>,
        each: &mut dyn FnMut(u32, u32, u32),
    ) -> Result<(), IndexError> {
        match self.form {
            Form::Lists => self.strings(ids, &mut |id, at, reader| {
                let each = &mut |entry| each(id, entry, entry);
                let read = match List::read(reader, self.entries) {
                    Some(List::Bits) => {
                        for_each_bit(self.bits(id)?, each);
                        Some(())
                    }
                    list => list.and_then(|list| list.decode(self.entries, each)),
                };
                read.ok_or_else(|| self.part.bad("list", at))
            }),
            Form::Packed => self.packed_blocks(&mut |first, block| {
                let mut numbers = [0; packed::BLOCK];
                block.numbers(&mut numbers)?;
                for (entry, &id) in (first..self.entries).zip(&numbers) {
                    if id >= self.values {
                        return None;
                    }
                    if ids.contains(&id) {
                        each(id, entry, entry);
                    }
                }
                Some(())
            }),
            Form::Bitmaps(_) => {
                let mut left_out = None;
                self.bitmaps(ids, &mut |id, bitmap| match bitmap {
                    Some(bitmap) => for_each_run(bitmap.chunks(), &mut |a, b| each(id, a, b)),
                    None => left_out = Some(id),
                })?;
                if let Some(id) = left_out {
                    for_each_run(self.in_no_bitmap()?, &mut |a, b| each(id, a, b));
                }
                Ok(())
            }
        }
    }

    /// Adds the entries of some values to a set.
    pub(super) fn add_to(&self, ids: Range<u32>, set: &mut BitSet) -> Result<(), IndexError> {
        match self.form {
            Form::Lists => self.strings(ids, &mut |id, at, reader| {
                let read = match List::read(reader, self.entries) {
                    Some(List::Bits) => {
                        let words = set.words_mut().iter_mut();
                        words.zip(words_of(self.bits(id)?)).for_each(|(word, more)| *word |= more);
                        Some(())
                    }
                    list => list
                        .and_then(|list| list.decode(self.entries, &mut |entry| set.insert(entry))),
                };
                read.ok_or_else(|| self.part.bad("list", at))
            }),
            _ => self.runs_of(ids, &mut |_, first, last| set.insert_run(first, last)),
        }
    }

    /// The entries that are in no bitmap: those of the value whose bitmap is left out.
    pub(super) fn in_no_bitmap(&self) -> Result<impl Chunks + use<'a>, IndexError> {
        let mut others = Vec::new();
        self.bitmaps(0..self.values, &mut |_, bitmap| {
            others.extend(bitmap.map(|bitmap| bitmap.chunks()));
        })?;
        Ok(union(others).complement(self.entries))
    }

    /// Passes the bitmaps of some values to `each`: `None` for the one that is left out.
    pub(super) fn bitmaps(
        &self,
        ids: Range<u32>,
        each: &mut dyn FnMut(u32, Option<Bitmap<'a>>),
    ) -> Result<(), IndexError> {
        let Form::Bitmaps(codec) = self.form else { return Ok(()) };
        self.strings(ids, &mut |id, at, reader| {
            let bytes = reader.varint().and_then(|len| reader.take(usize::try_from(len).ok()?));
            let bytes = bytes.unwrap_or_default();
            if bytes.is_empty() {
                each(id, None);
                return Ok(());
            }
            let bitmap = Bitmap::open(codec, bytes, self.entries)
                .map_err(|_| self.part.bad("bitmap", at))?;
            each(id, Some(bitmap));
            Ok(())
        })
    }

    /// Bytes that a look-up of some values reads: a measure of how many entries they have.
    pub(super) fn weight(&self, ids: Range<u32>) -> Result<u64, IndexError> {
        if self.form == Form::Packed {
            return Ok(self.part.len as u64);
        }
        if ids.len() > BLOCK {
            return Ok(self.part.len as u64 * u64::from(ids.end - ids.start)
                / u64::from(self.values.max(1)));
        }
        let mut weight = 0;
        self.strings(ids, &mut |_, _, reader| {
            weight += match self.form {
                Form::Lists => {
                    let start = reader.at;
                    match List::read(reader, self.entries) {
                        Some(List::Bits) => u64::from(self.entries) / 8,
                        _ => (reader.at - start) as u64,
                    }
                }
                _ => match reader.varint().unwrap_or(0) {
                    // The one that is left out is the longest.
                    0 => self.part.len as u64,
                    len => len,
                },
            };
            Ok(())
        })?;
        Ok(weight)
    }
}
