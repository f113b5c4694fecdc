//! Which record each row stands for, if similar rows were brought together.
//!
//! Rows of one flow follow each other and their records ascend, by small steps mostly; where a flow
//! ends the next record may be anywhere. So the step from the record before is kept, in two parts:
//! its *class*, which is its direction and its number of bits, in a prefix code; and the bits below
//! the highest one, as they are. The code of a class depends on the class before it: a busy flow
//! stays busy. Rows are cut into blocks of 128 that are independent, so that a block is found and
//! decoded without those before it. Little-endian, in order:
//!
//! ```text
//! rows u32, zero u32
//! lengths of the codes: 4 bits each, 8 contexts of 2 (w + 1) symbols; rows - 1 has w bits
//! where each block starts, and the last one ends, in bytes: packed numbers
//! blocks: w bits of the first record, then for each other row the code of its class and its bits
//! ```
//!
//! It wins on rows in order of flows: most of what is left is the entropy of the classes and the
//! bits after them. It loses on records in random order: those cost nearly all their bits, and a
//! code for the number of bits.

use super::format::{check_field, size};
use super::packed::{self, Packed};
use super::reader::Section;
use super::v2::FlowRowMap;
use super::writer::Append;
use crate::error::{Expected, IndexError};

/// Rows of a block of the row map.
pub const BLOCK_ROWS: usize = 128;
const HEAD_LEN: u64 = 8;
/// Each has a code of its own.
pub(super) const CONTEXTS: usize = 8;
/// The context of the first step of a block.
const CONTEXT_FIRST: usize = 0;
/// Most bits of a code.
pub(super) const CODE_BITS_MAX: u32 = 10;
pub(super) const CODES: usize = 1 << CODE_BITS_MAX;
/// Two directions, with 0 to 32 bits each.
pub(super) const SYMBOLS_MAX: usize = 2 * 33;
/// A record of 32 bits, and 127 steps of the longest code and 31 bits below the highest.
const BLOCK_LEN_MAX: usize = (32 + (BLOCK_ROWS - 1) * (CODE_BITS_MAX as usize + 31)).div_ceil(8);
// A step is read from 64 bits that start with the byte in which it starts.
const _: () = assert!(7 + CODE_BITS_MAX + 31 <= 64);

/// Bits of the greatest record.
pub(super) fn record_bits(rows: u32) -> u32 {
    32 - rows.saturating_sub(1).leading_zeros()
}

/// How many symbols a context has.
fn symbols(record_bits: u32) -> usize {
    2 * (record_bits as usize + 1)
}

/// A step from one record to the next.
#[derive(Debug, Clone, Copy)]
pub(super) struct Step {
    /// Twice the number of bits of the distance minus one; one more if the step goes back.
    pub(super) symbol: usize,
    /// The bits below the highest.
    pub(super) low: u64,
    pub(super) low_bits: u32,
}

impl Step {
    /// Between two records that are not the same.
    #[inline(always)]
    pub(super) fn between(before: u32, record: u32) -> Self {
        let distance = u64::from(before.abs_diff(record)).saturating_sub(1);
        let bits = 64 - distance.leading_zeros();
        let low_bits = bits.saturating_sub(1);
        let low = distance & !(u64::MAX << low_bits);
        Self { symbol: 2 * bits as usize + usize::from(record < before), low, low_bits }
    }
}

/// The context of the step after one with this symbol.
fn context(symbol: usize) -> usize {
    if symbol % 2 == 1 { CONTEXT_FIRST } else { (1 + symbol / 4).min(CONTEXTS - 1) }
}

pub(super) type Lengths = [[u8; SYMBOLS_MAX]; CONTEXTS];

/// The lengths of the best prefix code of at most [`CODE_BITS_MAX`] bits, by package-merge (Larmore
/// and Hirschberg, 1990); 0 for what does not occur.
pub(super) fn code_lengths(counts: &[u64; SYMBOLS_MAX]) -> [u8; SYMBOLS_MAX] {
    let mut lengths = [0; SYMBOLS_MAX];
    let leaves = (0..).zip(counts).filter(|(_, count)| **count > 0);
    let mut leaves: Vec<(u64, Vec<usize>)> = leaves.map(|(s, &n)| (n, vec![s])).collect();
    leaves.sort_by_key(|(count, _)| *count);
    if let [(_, only)] = leaves.as_slice() {
        only.iter().for_each(|&symbol| lengths[symbol] = 1);
        return lengths;
    }
    let mut packages: Vec<(u64, Vec<usize>)> = vec![];
    for level in 1..=CODE_BITS_MAX {
        // Leaves before packages of the same count: the sort is stable.
        let mut merged = leaves.clone();
        merged.append(&mut packages);
        merged.sort_by_key(|(count, _)| *count);
        if level == CODE_BITS_MAX {
            let taken = merged.iter().take((2 * leaves.len()).saturating_sub(2));
            taken.flat_map(|(_, symbols)| symbols).for_each(|&symbol| lengths[symbol] += 1);
            break;
        }
        let pairs = merged.as_chunks().0.iter();
        packages = pairs.map(|[a, b]| (a.0 + b.0, [&*a.1, &*b.1].concat())).collect();
    }
    lengths
}

/// The codes of a context, canonical: shorter ones first, then by symbol. The first bit is the
/// least significant.
fn codes(lengths: &[u8; SYMBOLS_MAX]) -> [u16; SYMBOLS_MAX] {
    let mut codes = [0; SYMBOLS_MAX];
    let mut next = 0_u32;
    for bits in 1..=CODE_BITS_MAX {
        for (code, &length) in codes.iter_mut().zip(lengths) {
            if u32::from(length) == bits {
                *code = u16::try_from(next.reverse_bits() >> (32 - bits)).unwrap_or(0);
                next += 1;
            }
        }
        next <<= 1;
    }
    codes
}

/// Bits, the least significant first.
#[derive(Debug, Default)]
pub(super) struct Bits {
    pub(super) bytes: Vec<u8>,
    /// Those that are not among the bytes yet, less than 32 of them.
    rest: u64,
    rest_bits: u32,
}

impl Bits {
    /// Appends at most 32 bits.
    #[inline(always)]
    pub(super) fn put(&mut self, bits: u64, count: u32) {
        self.rest |= bits << self.rest_bits;
        self.rest_bits += count;
        if self.rest_bits >= 32 {
            self.bytes.extend_from_slice(&self.rest.to_le_bytes()[..4]);
            self.rest >>= 32;
            self.rest_bits -= 32;
        }
    }

    /// Fills the last byte up with zeros.
    pub(super) fn align(&mut self) {
        let len = self.rest_bits.div_ceil(8) as usize;
        self.bytes.extend_from_slice(&self.rest.to_le_bytes()[..len]);
        (self.rest, self.rest_bits) = (0, 0);
    }
}

/// Writes blocks.
struct Encoder {
    record_bits: u32,
    /// The code of each symbol in the high bits, and in the low 4 bits how long it is.
    codes: [[u16; SYMBOLS_MAX]; CONTEXTS],
    target: Bits,
}

impl Encoder {
    fn new(record_bits: u32, lengths: Lengths) -> Self {
        Self { record_bits, codes: codes_with_lengths(&lengths), target: Bits::default() }
    }

    /// Appends the bytes of a block. No record follows itself.
    fn block(&mut self, records: &[u32]) {
        let first = records.first().copied().unwrap_or(0);
        self.target.put(first.into(), self.record_bits);
        let (mut before, mut from) = (first, CONTEXT_FIRST);
        for &record in records.iter().skip(1) {
            let step = Step::between(before, record);
            let code = self.codes[from][step.symbol];
            self.target.put((code >> 4).into(), u32::from(code & 0xF));
            self.target.put(step.low, step.low_bits);
            (before, from) = (record, context(step.symbol));
        }
        self.target.align();
    }

    /// The bytes of a block alone.
    fn block_alone(&mut self, records: &[u32]) -> &[u8] {
        self.target.bytes.clear();
        self.block(records);
        &self.target.bytes
    }
}

/// Appends the row map of records that are known to be a permutation.
pub(crate) fn encode(records: &[u32], append: &mut Append<'_>) -> Result<(), IndexError> {
    let rows = u32::try_from(records.len()).unwrap_or(u32::MAX);
    let record_bits = record_bits(rows);
    let mut counts = [[0; SYMBOLS_MAX]; CONTEXTS];
    for block in records.chunks(BLOCK_ROWS) {
        let mut from = CONTEXT_FIRST;
        for pair in block.windows(2) {
            let symbol = Step::between(pair[0], pair[1]).symbol;
            counts[from][symbol] += 1;
            from = context(symbol);
        }
    }
    let lengths = counts.map(|counts| code_lengths(&counts));
    append(&rows.to_le_bytes())?;
    append(&[0; 4])?;
    append(&lengths_bytes(&lengths, record_bits))?;
    // The starts of all blocks come before their contents, so everything is in memory for a while.
    let mut encoder = Encoder::new(record_bits, lengths);
    let mut starts = vec![0];
    for block in records.chunks(BLOCK_ROWS) {
        encoder.block(block);
        starts.push(encoder.target.bytes.len() as u64);
    }
    let count = u32::try_from(starts.len()).unwrap_or(u32::MAX);
    packed::encode(count, |i| starts[i], append)?;
    append(&encoder.target.bytes)
}

/// The lengths of all codes, as they are written.
pub(super) fn lengths_bytes(lengths: &Lengths, record_bits: u32) -> Vec<u8> {
    let symbols = symbols(record_bits);
    let pairs = lengths.iter().flat_map(|lengths| lengths[..symbols].as_chunks().0);
    pairs.map(|[low, high]| low | high << 4).collect()
}

/// The codes of each context, with how long each is in the low 4 bits.
pub(super) fn codes_with_lengths(lengths: &Lengths) -> [[u16; SYMBOLS_MAX]; CONTEXTS] {
    lengths.map(|lengths| {
        let mut codes = codes(&lengths);
        codes.iter_mut().zip(lengths).for_each(|(c, length)| *c = *c << 4 | u16::from(length));
        codes
    })
}

/// The codes of a row map, ready to be read.
#[derive(Debug)]
pub(crate) struct Codes {
    pub(super) lengths: Box<Lengths>,
    /// For each context, for each of the next bits: symbol, and in the low 4 bits the length of its
    /// code, which is 0 if no code starts with these bits.
    pub(super) table: Box<[[u16; CODES]]>,
}

impl Codes {
    /// Reads the code lengths, which lie in the section from `start` on.
    pub(super) fn open(
        section: Section<'_>,
        start: u64,
        record_bits: u32,
    ) -> Result<Self, IndexError> {
        let symbols = symbols(record_bits);
        let bytes = section.read(start, lengths_len(record_bits))?;
        let mut lengths = Box::new([[0; SYMBOLS_MAX]; CONTEXTS]);
        let mut table: Box<[[u16; CODES]]> = vec![[0; CODES]; CONTEXTS].into();
        for (n, (lengths, table)) in lengths.iter_mut().zip(&mut table).enumerate() {
            let offset = section.offset() + start + (n * symbols / 2) as u64;
            let bytes = &bytes[n * symbols / 2..][..symbols / 2];
            for (pair, byte) in lengths.as_chunks_mut().0.iter_mut().zip(bytes) {
                *pair = [byte & 0xF, byte >> 4];
            }
            let most = lengths.iter().copied().max().unwrap_or(0).into();
            let limit = Expected::AtMost(CODE_BITS_MAX.into());
            check_field(&|| section.name(), "bits of a code", offset, limit, most)?;
            let shares = lengths.iter().filter(|length| **length > 0);
            let sum = shares.map(|length| CODES as u64 >> length).sum();
            let limit = Expected::AtMost(CODES as u64);
            check_field(&|| section.name(), "sum of the codes", offset, limit, sum)?;
            // A code is entered wherever the bits start with it. So the table for codes of one more
            // bit is the table twice, and then the codes of that length.
            let codes = codes(lengths);
            for bits in 1..=u8::try_from(CODE_BITS_MAX).unwrap_or(0) {
                let half = 1 << (bits - 1);
                table.copy_within(..half, half);
                for ((symbol, code), &length) in (0_u16..).zip(codes).zip(lengths.iter()) {
                    if length == bits {
                        table[usize::from(code) % CODES] = symbol << 4 | u16::from(length);
                    }
                }
            }
        }
        Ok(Self { lengths, table })
    }
}

/// Bytes of the lengths of all codes.
pub(super) fn lengths_len(record_bits: u32) -> u64 {
    (CONTEXTS * symbols(record_bits) / 2) as u64
}

/// The row map of an index: which record each row stands for.
///
/// Nothing is decoded before it is asked for, and what is asked for is checked first, so every
/// answer may be an error; a record is always one of the index.
/// [`Index::verify`](super::Index::verify) checks that no two rows have the same record.
#[derive(Debug, Clone, Copy)]
pub struct RowMap<'a>(Kind<'a>);

#[derive(Debug, Clone, Copy)]
enum Kind<'a> {
    Steps(StepMap<'a>),
    Flows(FlowRowMap<'a>),
}

impl<'a> RowMap<'a> {
    /// Checks the head of the section and its length. The codes are read by the first call.
    pub(crate) fn open(
        section: Section<'a>,
        rows: u32,
        codes: &'a std::sync::OnceLock<Codes>,
    ) -> Result<Self, IndexError> {
        StepMap::open(section, rows, codes).map(|map| Self(Kind::Steps(map)))
    }

    pub(crate) fn of_flows(map: FlowRowMap<'a>) -> Self {
        Self(Kind::Flows(map))
    }

    /// How many rows there are.
    pub fn len(&self) -> u32 {
        match &self.0 {
            Kind::Steps(map) => map.rows,
            Kind::Flows(map) => map.len(),
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The record that a row stands for.
    pub fn get(&self, row: u32) -> Result<u32, IndexError> {
        match &self.0 {
            Kind::Steps(map) => map.get(row),
            Kind::Flows(map) => map.get(row),
        }
    }

    /// Appends the record of each of these rows, which ascend, so that no block is decoded twice.
    pub fn records(&self, rows: &[u32], target: &mut Vec<u32>) -> Result<(), IndexError> {
        match &self.0 {
            Kind::Steps(map) => map.records(rows, target),
            Kind::Flows(map) => map.records(rows, target),
        }
    }

    /// The records of all rows, in order. After an error it ends.
    pub fn iter(&self) -> Box<dyn Iterator<Item = Result<u32, IndexError>> + 'a> {
        match self.0 {
            Kind::Steps(map) => Box::new(map.iter()),
            Kind::Flows(map) => match map.all() {
                Ok(records) => Box::new(records.into_iter().map(Ok)),
                Err(error) => Box::new(std::iter::once(Err(error))),
            },
        }
    }

    /// Visits all rows and records, and checks that the bytes are those that the writer writes for
    /// them.
    pub(crate) fn verify(
        &self,
        visit: &mut dyn FnMut(u64, u64) -> Result<(), IndexError>,
    ) -> Result<(), IndexError> {
        match &self.0 {
            Kind::Steps(map) => map.verify(visit),
            Kind::Flows(map) => map.verify(),
        }
    }
}

/// The row map of a table, or of a segment of version 1.
#[derive(Debug, Clone, Copy)]
struct StepMap<'a> {
    section: Section<'a>,
    codes: &'a Codes,
    starts: Packed<'a>,
    /// Where the blocks start in the section.
    blocks_start: u64,
    rows: u32,
}

impl<'a> StepMap<'a> {
    fn open(
        section: Section<'a>,
        rows: u32,
        codes: &'a std::sync::OnceLock<Codes>,
    ) -> Result<Self, IndexError> {
        let at = section.offset();
        let name = || section.name();
        let places = HEAD_LEN + lengths_len(record_bits(rows));
        check_field(&name, "length", at, Expected::AtLeast(places), section.len())?;
        let head = u64::from_le_bytes(*section.read(0, HEAD_LEN)?.first_chunk().unwrap_or(&[0; 8]));
        let (count, reserved) = (head & u64::from(u32::MAX), head >> 32);
        check_field(&name, "number of rows", at, Expected::Exactly(rows.into()), count)?;
        check_field(&name, "reserved field", at + 4, Expected::Exactly(0), reserved)?;
        let blocks = rows.div_ceil(u32::try_from(BLOCK_ROWS).unwrap_or(1));
        let (starts, blocks_start) = Packed::open_part(section, places, blocks + 1)?;
        let len = starts.get(blocks)?;
        let rest = section.len() - blocks_start;
        check_field(&name, "end of the last block", at, Expected::Exactly(rest), len)?;
        // A row takes at least a bit, so the size of the file bounds the cost of reading all of it.
        let least = Expected::AtLeast(u64::from(rows) / 8);
        check_field(&name, "bytes of all blocks", at, least, len)?;
        let codes = match codes.get() {
            Some(codes) => codes,
            None => {
                let read = Codes::open(section, HEAD_LEN, record_bits(rows))?;
                codes.get_or_init(|| read)
            }
        };
        Ok(Self { section, codes, starts, blocks_start, rows })
    }

    fn get(&self, row: u32) -> Result<u32, IndexError> {
        let mut records = [0; BLOCK_ROWS];
        let inside = self.within(row)?;
        self.read_block(row / BLOCK_ROWS_32, inside + 1, &mut records)?;
        Ok(records[inside])
    }

    fn records(&self, rows: &[u32], target: &mut Vec<u32>) -> Result<(), IndexError> {
        let mut records = [0; BLOCK_ROWS];
        for some in rows.chunk_by(|a, b| a / BLOCK_ROWS_32 == b / BLOCK_ROWS_32) {
            let most = some.iter().copied().max().unwrap_or(0);
            let count = self.within(most)? + 1;
            self.read_block(most / BLOCK_ROWS_32, count, &mut records)?;
            target.extend(some.iter().map(|&row| records[row as usize % BLOCK_ROWS]));
        }
        Ok(())
    }

    /// The records of all rows, in order, decoded a block at a time. After an error it ends.
    fn iter(&self) -> RowMapIter<'a> {
        RowMapIter { map: *self, next: 0, records: [0; BLOCK_ROWS], failed: false }
    }

    /// The place of a row in its block.
    fn within(&self, row: u32) -> Result<usize, IndexError> {
        if row < self.rows {
            return Ok(row as usize % BLOCK_ROWS);
        }
        let max = self.rows.saturating_sub(1).into();
        Err(IndexError::TooLarge { what: "row", got: row.into(), max })
    }

    fn block_len(&self, block: u32) -> usize {
        (self.rows as usize - block as usize * BLOCK_ROWS).min(BLOCK_ROWS)
    }

    /// The bytes of a block, and where they start in the file.
    fn block(&self, block: u32) -> Result<(&'a [u8], u64), IndexError> {
        let (start, end) = (self.starts.get(block)?, self.starts.get(block + 1)?);
        let offset = self.section.offset() + self.blocks_start;
        let name = || self.section.name();
        check_field(&name, "end of a block", offset, Expected::AtLeast(start), end)?;
        let most = Expected::AtMost(self.section.len() - self.blocks_start);
        check_field(&name, "end of a block", offset, most, end)?;
        let most = Expected::AtMost(BLOCK_LEN_MAX as u64);
        check_field(&name, "bytes of a block", offset + start, most, end - start)?;
        Ok((self.section.read(self.blocks_start + start, end - start)?, offset + start))
    }

    /// Decodes the first records of a block.
    fn read_block(
        &self,
        block: u32,
        count: usize,
        target: &mut [u32; BLOCK_ROWS],
    ) -> Result<(), IndexError> {
        let (bytes, offset) = self.block(block)?;
        let bad = |what, expected, got| IndexError::BadField {
            section: self.section.name(),
            what,
            offset,
            expected,
            got,
        };
        // Followed by zeros, so that 64 bits can be read wherever a step may start.
        let mut padded = [0; BLOCK_LEN_MAX + 8];
        padded[..bytes.len()].copy_from_slice(bytes);
        let window = |at: u32| {
            let bytes = padded[at as usize / 8..].first_chunk();
            bytes.map_or(0, |bytes| u64::from_le_bytes(*bytes)) >> (at % 8)
        };
        let rows = u64::from(self.rows);
        let known = |record: u64| match u32::try_from(record) {
            Ok(record) if record < self.rows => Ok(record),
            _ => Err(bad("record", Expected::AtMost(rows.saturating_sub(1)), record)),
        };
        let mut at = record_bits(self.rows);
        let mut record = window(0) & !(u64::MAX << at);
        let mut table = &self.codes.table[CONTEXT_FIRST];
        target[0] = known(record)?;
        for slot in &mut target[1..count] {
            let bits = window(at);
            let found = table[size(bits) % CODES];
            let (symbol, length) = (u32::from(found >> 4), u32::from(found & 0xF));
            if length == 0 {
                return Err(bad("code", Expected::Listed, bits % CODES as u64));
            }
            let low_bits = (symbol / 2).saturating_sub(1);
            let low = bits >> length & !(u64::MAX << low_bits);
            let distance = ((1 << (symbol / 2)) >> 1 | low) + 1;
            record = match symbol % 2 {
                0 => record.wrapping_add(distance),
                _ => record.wrapping_sub(distance),
            };
            *slot = known(record)?;
            at += length + low_bits;
            table = &self.codes.table[context(symbol as usize)];
        }
        let most = 8 * bytes.len() as u64;
        if u64::from(at) > most {
            return Err(bad("bits of a block", Expected::AtMost(most), at.into()));
        }
        Ok(())
    }

    /// Visits all rows and records, and checks that the bytes are those that the writer writes for
    /// them with these codes.
    fn verify(
        &self,
        visit: &mut dyn FnMut(u64, u64) -> Result<(), IndexError>,
    ) -> Result<(), IndexError> {
        self.starts.verify(&mut |_, _| Ok(()))?;
        let mut encoder = Encoder::new(record_bits(self.rows), *self.codes.lengths);
        let mut records = [0; BLOCK_ROWS];
        let mut end = 0;
        for block in 0..self.rows.div_ceil(BLOCK_ROWS_32) {
            let count = self.block_len(block);
            self.read_block(block, count, &mut records)?;
            let (bytes, offset) = self.block(block)?;
            let name = || self.section.name();
            let start = self.starts.get(block)?;
            check_field(&name, "start of a block", offset, Expected::Exactly(end), start)?;
            let again = encoder.block_alone(&records[..count]);
            let (expected, got) = (again.len() as u64, bytes.len() as u64);
            check_field(&name, "bytes of a block", offset, Expected::Exactly(expected), got)?;
            for (at, (&expected, &got)) in (offset..).zip(again.iter().zip(bytes)) {
                check_field(&name, "byte", at, Expected::Exactly(expected.into()), got.into())?;
            }
            end += expected;
            for (row, &record) in (u64::from(block) * BLOCK_ROWS as u64..).zip(&records[..count]) {
                visit(row, record.into())?;
            }
        }
        Ok(())
    }
}

/// [`BLOCK_ROWS`], to divide row numbers by.
const BLOCK_ROWS_32: u32 = 128;
const _: () = assert!(BLOCK_ROWS_32 as usize == BLOCK_ROWS);

/// The records of all rows in order.
#[derive(Debug, Clone)]
struct RowMapIter<'a> {
    map: StepMap<'a>,
    next: u32,
    records: [u32; BLOCK_ROWS],
    failed: bool,
}

impl Iterator for RowMapIter<'_> {
    type Item = Result<u32, IndexError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.next >= self.map.rows || self.failed {
            return None;
        }
        let inside = self.next as usize % BLOCK_ROWS;
        if inside == 0 {
            let block = self.next / BLOCK_ROWS_32;
            let count = self.map.block_len(block);
            if let Err(error) = self.map.read_block(block, count, &mut self.records) {
                self.failed = true;
                return Some(Err(error));
            }
        }
        self.next += 1;
        Some(Ok(self.records[inside]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(some: &[u64]) -> [u64; SYMBOLS_MAX] {
        let mut counts = [0; SYMBOLS_MAX];
        counts[..some.len()].copy_from_slice(some);
        counts
    }

    #[test]
    fn codes_are_as_short_as_they_can_be() {
        assert_eq!(code_lengths(&counts(&[])), [0; SYMBOLS_MAX]);
        assert_eq!(code_lengths(&counts(&[0, 9]))[..3], [0, 1, 0]);
        assert_eq!(code_lengths(&counts(&[1, 1, 0, 2, 5]))[..5], [3, 3, 0, 2, 1]);
        assert_eq!(
            code_lengths(&[7; SYMBOLS_MAX]).iter().filter(|&&length| length == 6).count(),
            62
        );
        // Counts that double would have codes of one to twenty bits; ten is the most. No code is
        // left over, and none is longer than that of a symbol that occurs less often.
        let doubling: Vec<u64> = (0..21).map(|i| 1 << i).collect();
        let lengths = code_lengths(&counts(&doubling));
        let sum: u64 = lengths.iter().filter(|&&l| l > 0).map(|&l| CODES as u64 >> l).sum();
        assert_eq!(sum, CODES as u64);
        assert_eq!(lengths[..21].iter().max(), Some(&10));
        assert!(lengths[..21].is_sorted_by(|a, b| a >= b));
    }

    #[test]
    fn codes_are_canonical() {
        let mut lengths = [0; SYMBOLS_MAX];
        lengths[..5].copy_from_slice(&[3, 3, 0, 2, 1]);
        // First bit first: 110, 111, none, 10, 0.
        assert_eq!(codes(&lengths)[..5], [0b011, 0b111, 0, 0b01, 0b0]);
    }

    #[test]
    fn steps_are_cut_into_symbol_and_low_bits() {
        let step = |before, record| {
            let step = Step::between(before, record);
            (step.symbol, step.low, step.low_bits)
        };
        assert_eq!(step(5, 6), (0, 0, 0));
        assert_eq!(step(6, 5), (1, 0, 0));
        assert_eq!(step(5, 7), (2, 0, 0));
        assert_eq!(step(5, 5 + 12), (8, 0b011, 3));
        assert_eq!(step(u32::MAX, 0), (65, 0x7FFF_FFFE, 31));
        assert_eq!([0, 1, 2, 3, 4, 24, 64].map(context), [1, 0, 1, 0, 2, 7, 7]);
    }
}
