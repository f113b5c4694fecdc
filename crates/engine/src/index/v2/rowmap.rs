//! Which record each row stands for, in the order of conversations.
//!
//! The rows of a flow follow each other, and their records ascend, mostly by small steps. The first
//! record of a flow is near the first of its conversation, or of the conversation before. So steps
//! are kept: from the record before in a flow; and for the first record of a flow, from the first
//! record of the conversation at hand or, if it is that itself, of the one before. Rows are cut
//! into blocks of 256 that are read alone; what would be a step from a record before the block is
//! one from the block's first.
//!
//! A step is a class, its direction and its number of bits, in a prefix code, and the bits below
//! the highest one, as they are. The code depends on where the step is: at the start of a
//! conversation (0), of its second flow (1), at the second record of a flow (2), or behind a step
//! of no bits (3), of 1 to 3 (4), 4 to 7 (5), 8 to 11 (6), or 12 or more (7).
//!
//! ```text
//! lengths of the codes: 4 bits each, 8 contexts of 2 (w + 1) symbols; rows - 1 has w bits
//! for each 32 blocks: where they start, u32
//! for each block: where it starts behind that, u16
//! blocks: w bits of the first record, then for each other row the code of its class and its bits
//! ```

use tapdex_bitmap::{Work, run};

use super::super::rowmap::{
    CODE_BITS_MAX, CODES, CONTEXTS, Codes, Lengths, SYMBOLS_MAX, Step, code_lengths,
    codes_with_lengths, lengths_bytes, lengths_len, record_bits,
};
use super::bits::u32_at;
use super::flows::{FlowCursor, Flows};
use super::section::Part;
use crate::error::IndexError;
use crate::parallel::Parallel;

/// Rows of a block.
const BLOCK_ROWS: usize = 256;
const BLOCK_ROWS_32: u32 = 256;
/// The most bytes that a block can have.
const BLOCK_LEN_MAX: usize = (32 + (BLOCK_ROWS - 1) * (CODE_BITS_MAX as usize + 31)).div_ceil(8);
/// Blocks whose starts are counted from the same place.
const GROUP: usize = 32;
const _: () = assert!(GROUP * BLOCK_LEN_MAX < 1 << 16);

const AT_CONVERSATION: usize = 0;
const AT_SECOND_FLOW: usize = 1;
const AT_SECOND_RECORD: usize = 2;

/// Behind a step of this many bits.
#[inline(always)]
fn behind(bits: usize) -> usize {
    if bits == 0 { 3 } else { (4 + bits / 4).min(CONTEXTS - 1) }
}

/// Where rows stand among flows.
trait Borders {
    /// The first flow that has rows from `row` on, its first row and the row behind its last.
    fn next(&mut self, row: u32) -> Result<(u32, u32, u32), IndexError>;
}

/// The flows of all rows, by the row that each starts at.
struct Starts<'s> {
    starts: &'s [u32],
    flow: usize,
}

impl<'s> Starts<'s> {
    /// Those of the rows from this one on.
    fn at(starts: &'s [u32], row: usize) -> Self {
        let row = u32::try_from(row).unwrap_or(u32::MAX);
        let after = starts.partition_point(|&start| start <= row);
        Self { starts, flow: after.saturating_sub(1).min(starts.len().saturating_sub(2)) }
    }
}

impl Borders for Starts<'_> {
    #[inline(always)]
    fn next(&mut self, row: u32) -> Result<(u32, u32, u32), IndexError> {
        while self.flow + 2 < self.starts.len() && self.starts[self.flow + 1] <= row {
            self.flow += 1;
        }
        let flow = u32::try_from(self.flow).unwrap_or(u32::MAX);
        Ok((flow, self.starts[self.flow], self.starts[self.flow + 1]))
    }
}

impl Borders for (FlowCursor<'_>, u32) {
    fn next(&mut self, row: u32) -> Result<(u32, u32, u32), IndexError> {
        let (cursor, flow) = self;
        // The flow of the row before, or one soon after it; otherwise it is searched for.
        let mut tries = 0;
        while tries < 4 {
            if *flow < cursor.len() {
                let (first, end) = cursor.rows(*flow)?;
                if first <= row && row < end {
                    return Ok((*flow, first, end));
                }
            }
            *flow = flow.saturating_add(1);
            tries += 1;
        }
        *flow = cursor.find(row)?;
        let (first, end) = cursor.rows(*flow)?;
        Ok((*flow, first.min(row), end.max(row + 1)))
    }
}

/// Where the step to a row starts, and which context it has.
struct Walk<'b, B> {
    borders: &'b mut B,
    /// The row behind the flow at hand.
    end: u32,
    flow: u32,
    /// The first record of the conversation at hand, or of the block.
    anchor: u32,
    before: u32,
    context: usize,
}

impl<'b, B: Borders> Walk<'b, B> {
    /// At the first row of a block.
    #[inline(always)]
    fn new(borders: &'b mut B, row: u32, record: u32) -> Result<Self, IndexError> {
        let (flow, first, end) = borders.next(row)?;
        let context = if first == row { AT_SECOND_RECORD } else { behind(0) };
        Ok(Self { borders, end, flow, anchor: record, before: record, context })
    }

    /// Moves to the next row; returns the record that the step to it starts at, and its context.
    #[inline(always)]
    fn step(&mut self, row: u32) -> Result<(u32, usize), IndexError> {
        if row < self.end {
            return Ok((self.before, self.context));
        }
        let (flow, _, end) = self.borders.next(row)?;
        let is_second = flow == self.flow + 1 && flow % 2 == 1;
        (self.flow, self.end) = (flow, end.max(row + 1));
        self.context = if is_second { AT_SECOND_FLOW } else { AT_CONVERSATION };
        Ok((self.anchor, self.context))
    }

    /// Takes in the record of the row, and the symbol of the step to it.
    #[inline(always)]
    fn took(&mut self, record: u32, symbol: usize) {
        if self.context == AT_CONVERSATION {
            self.anchor = record;
        }
        self.context =
            if self.context < AT_SECOND_RECORD { AT_SECOND_RECORD } else { behind(symbol / 2) };
        self.before = record;
    }
}

/// Passes each step of a block to `each`: its context and itself.
#[inline(always)]
fn steps<B: Borders>(
    borders: &mut B,
    first_row: u32,
    records: &[u32],
    mut each: impl FnMut(usize, Step),
) -> Result<(), IndexError> {
    let Some(&first) = records.first() else { return Ok(()) };
    let mut walk = Walk::new(borders, first_row, first)?;
    for (row, &record) in (first_row + 1..).zip(&records[1..]) {
        let (from, context) = walk.step(row)?;
        let step = Step::between(from, record);
        each(context, step);
        walk.took(record, step.symbol);
    }
    Ok(())
}

/// The bits of a block.
struct BlockBits {
    /// Room for all bits that a block can have, and for the last eight bytes written.
    bytes: [u8; BLOCK_LEN_MAX + 8],
    len: usize,
    /// Bits that are not among the bytes yet, less than eight.
    rest: u64,
    rest_bits: u32,
}

impl BlockBits {
    /// Appends at most 56 bits.
    #[inline(always)]
    fn put(&mut self, bits: u64, count: u32) {
        let all = self.rest | bits << self.rest_bits;
        let all_bits = self.rest_bits + count;
        if let Some(place) = self.bytes[self.len..].first_chunk_mut() {
            *place = all.to_le_bytes();
        }
        self.len += all_bits as usize / 8;
        self.rest = all >> (all_bits & !7);
        self.rest_bits = all_bits % 8;
    }

    /// The bytes so far, the last one filled up with zeros; what comes next is another block.
    fn end(&mut self) -> &[u8] {
        let len = std::mem::take(&mut self.len) + usize::from(self.rest_bits > 0);
        (self.rest, self.rest_bits) = (0, 0);
        &self.bytes[..len]
    }
}

/// Writes blocks.
struct Encoder {
    record_bits: u32,
    codes: [[u16; SYMBOLS_MAX]; CONTEXTS],
    block: BlockBits,
}

impl Encoder {
    fn new(record_bits: u32, codes: [[u16; SYMBOLS_MAX]; CONTEXTS]) -> Self {
        let bytes = [0; BLOCK_LEN_MAX + 8];
        Self { record_bits, codes, block: BlockBits { bytes, len: 0, rest: 0, rest_bits: 0 } }
    }

    /// The bytes of a block.
    #[inline(always)]
    fn block<B: Borders>(
        &mut self,
        borders: &mut B,
        first_row: u32,
        records: &[u32],
    ) -> Result<&[u8], IndexError> {
        let Self { record_bits, codes, block } = self;
        block.put(records.first().copied().unwrap_or(0).into(), *record_bits);
        steps(borders, first_row, records, |context, step| {
            let code = codes[context][step.symbol];
            let code_bits = u32::from(code & 0xF);
            block.put(u64::from(code >> 4) | step.low << code_bits, code_bits + step.low_bits);
        })?;
        Ok(block.end())
    }
}

/// Counts how often each context has each symbol in some blocks.
struct CountSteps<'s, I> {
    borders: Starts<'s>,
    blocks: I,
}

impl<'r, I: Iterator<Item = (u32, &'r [u32])>> Work for CountSteps<'_, I> {
    type Result = Result<[[u64; SYMBOLS_MAX]; CONTEXTS], IndexError>;

    #[inline(always)]
    fn run(mut self) -> Self::Result {
        let mut counts = [[0; SYMBOLS_MAX]; CONTEXTS];
        for (row, block) in self.blocks {
            let count = |context: usize, step: Step| counts[context][step.symbol] += 1;
            steps(&mut self.borders, row, block, count)?;
        }
        Ok(counts)
    }
}

/// Makes the bytes of some blocks, and says where each ends.
struct EncodeBlocks<'s, I> {
    encoder: Encoder,
    borders: Starts<'s>,
    blocks: I,
}

impl<'r, I: Iterator<Item = (u32, &'r [u32])>> Work for EncodeBlocks<'_, I> {
    type Result = Result<(Vec<u8>, Vec<usize>), IndexError>;

    #[inline(always)]
    fn run(mut self) -> Self::Result {
        let mut bytes = Vec::with_capacity(BLOCKS_TOGETHER * BLOCK_ROWS);
        let mut ends = Vec::with_capacity(BLOCKS_TOGETHER);
        for (row, block) in self.blocks {
            bytes.extend_from_slice(self.encoder.block(&mut self.borders, row, block)?);
            ends.push(bytes.len());
        }
        Ok((bytes, ends))
    }
}

/// The code of the steps of a row map.
///
/// Whoever encodes a row map counts its steps first, by context and symbol, and then writes them in
/// this code; docs/format.md has all of it.
#[derive(Debug, Clone)]
pub struct StepCode {
    record_bits: u32,
    lengths: Lengths,
    codes: [[u16; StepCode::SYMBOLS]; StepCode::CONTEXTS],
}

impl StepCode {
    /// Where steps may be, each with a code of its own.
    pub const CONTEXTS: usize = CONTEXTS;
    /// Steps that a code tells apart.
    pub const SYMBOLS: usize = SYMBOLS_MAX;
    /// Rows of a block.
    pub const BLOCK_ROWS: usize = BLOCK_ROWS;
    /// Blocks whose starts are counted from the same place.
    pub const GROUP_BLOCKS: usize = GROUP;

    /// The best code for steps that occur so often, among so many rows.
    pub fn new(rows: u32, counts: &[[u64; Self::SYMBOLS]; Self::CONTEXTS]) -> Self {
        let lengths: Lengths = counts.each_ref().map(code_lengths);
        let codes = codes_with_lengths(&lengths);
        Self { record_bits: record_bits(rows), lengths, codes }
    }

    /// Bits of the first record of a block.
    pub fn record_bits(&self) -> u32 {
        self.record_bits
    }

    /// For each context and symbol the code, above four bits that say how many bits it has.
    pub fn codes(&self) -> &[[u16; Self::SYMBOLS]; Self::CONTEXTS] {
        &self.codes
    }

    /// The whole row map of a segment, encoded here: the record of each row, and the rows that the
    /// flows start at, two of each conversation, and the last one ends at.
    #[cfg(feature = "testing")]
    pub fn row_map(records: &[u32], starts: &[u32]) -> Result<Vec<u8>, IndexError> {
        let mut bytes = Vec::new();
        encode(records, starts, Parallel::default(), &mut bytes)?;
        Ok(bytes)
    }

    /// What the row map starts with, before the starts of blocks.
    pub fn head(&self) -> Vec<u8> {
        lengths_bytes(&self.lengths, self.record_bits)
    }

    /// Bytes between that and the blocks of so many rows: where these start.
    pub fn starts_len(rows: usize) -> usize {
        let blocks = rows.div_ceil(BLOCK_ROWS);
        4 * blocks.div_ceil(GROUP) + 2 * blocks
    }
}

/// Blocks that are encoded together, by one thread.
const BLOCKS_TOGETHER: usize = 256;

/// Appends the row map of records that are a permutation; the rows of each flow start at `starts`,
/// and the last ones end there.
pub(super) fn encode(
    records: &[u32],
    starts: &[u32],
    parallel: Parallel<'_>,
    target: &mut Vec<u8>,
) -> Result<(), IndexError> {
    let rows = u32::try_from(records.len()).unwrap_or(u32::MAX);
    let tasks: Vec<usize> = (0..records.len()).step_by(BLOCKS_TOGETHER * BLOCK_ROWS).collect();
    let blocks = |row: usize| {
        let end = records.len().min(row + BLOCKS_TOGETHER * BLOCK_ROWS);
        let first = u32::try_from(row).unwrap_or(u32::MAX);
        (first..).step_by(BLOCK_ROWS).zip(records[row..end].chunks(BLOCK_ROWS))
    };
    let mut counts = [[0; SYMBOLS_MAX]; CONTEXTS];
    let counted = parallel.map(tasks.clone(), |row| {
        run(CountSteps { borders: Starts::at(starts, row), blocks: blocks(row) })
    });
    for some in counted {
        let some = some?;
        let both = counts.as_flattened_mut().iter_mut().zip(some.as_flattened());
        both.for_each(|(sum, some)| *sum += some);
    }
    let code = StepCode::new(rows, &counts);
    let encoded = parallel.map(tasks, |row| {
        let encoder = Encoder::new(code.record_bits, code.codes);
        run(EncodeBlocks { encoder, borders: Starts::at(starts, row), blocks: blocks(row) })
    });
    let encoded = encoded.into_iter().collect::<Result<Vec<_>, _>>()?;
    let mut starts_of_blocks = Vec::with_capacity(records.len() / BLOCK_ROWS + 1);
    let mut before = 0;
    for (bytes, ends) in &encoded {
        let starts = [0].iter().chain(ends).take(ends.len());
        starts_of_blocks.extend(starts.map(|start| before + start));
        before += bytes.len();
    }
    target.extend(code.head());
    let groups = || starts_of_blocks.chunks(GROUP);
    for group in groups() {
        target.extend(u32::try_from(group[0]).unwrap_or(u32::MAX).to_le_bytes());
    }
    for group in groups() {
        for start in group {
            target.extend(u16::try_from(start - group[0]).unwrap_or(u16::MAX).to_le_bytes());
        }
    }
    encoded.iter().for_each(|(bytes, _)| target.extend(bytes));
    Ok(())
}

/// The row map of a segment, read in place.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FlowRowMap<'a> {
    part: Part<'a>,
    flows: Flows<'a>,
    codes: &'a Codes,
    rows: u32,
}

impl<'a> FlowRowMap<'a> {
    pub(super) fn open(
        part: Part<'a>,
        flows: Flows<'a>,
        codes: &'a std::sync::OnceLock<Codes>,
    ) -> Result<Self, IndexError> {
        let rows = flows.rows;
        let codes = match codes.get() {
            Some(codes) => codes,
            None => {
                let read = Codes::open(part.section, 0, record_bits(rows))?;
                codes.get_or_init(|| read)
            }
        };
        let map = Self { part, flows, codes, rows };
        // A row takes a bit at least, so that the size of the file bounds the cost of reading it.
        match map.part.len >= map.blocks_at() + rows as usize / 8 {
            true => Ok(map),
            false => Err(part.bad("length", 0)),
        }
    }

    pub(crate) fn len(&self) -> u32 {
        self.rows
    }

    fn blocks(&self) -> usize {
        (self.rows as usize).div_ceil(BLOCK_ROWS)
    }

    fn groups_at(&self) -> usize {
        usize::try_from(lengths_len(record_bits(self.rows))).unwrap_or(0)
    }

    /// Where the blocks start in the section.
    fn blocks_at(&self) -> usize {
        self.groups_at() + StepCode::starts_len(self.rows as usize)
    }

    /// Where a block starts in the section.
    fn start(&self, block: usize) -> Result<usize, IndexError> {
        if block >= self.blocks() {
            return Ok(self.part.len);
        }
        let group = u32_at(self.part.read(self.groups_at() + 4 * (block / GROUP), 4)?, 0) as usize;
        let at = self.groups_at() + 4 * self.blocks().div_ceil(GROUP) + 2 * block;
        let start = self.part.read(at, 2)?;
        Ok(self.blocks_at() + group + usize::from(u16::from_le_bytes([start[0], start[1]])))
    }

    fn block_len(&self, block: u32) -> usize {
        (self.rows as usize - block as usize * BLOCK_ROWS).min(BLOCK_ROWS)
    }

    fn borders(&self) -> (FlowCursor<'a>, u32) {
        (self.flows.cursor(), u32::MAX)
    }

    /// The record that a row stands for.
    pub(crate) fn get(&self, row: u32) -> Result<u32, IndexError> {
        let mut found = Vec::with_capacity(1);
        self.records(&[row], &mut found)?;
        Ok(found.first().copied().unwrap_or(0))
    }

    /// Appends the record of each of these rows, which ascend.
    pub(crate) fn records(&self, rows: &[u32], target: &mut Vec<u32>) -> Result<(), IndexError> {
        let mut records = [0; BLOCK_ROWS];
        let mut borders = self.borders();
        for some in rows.chunk_by(|a, b| a / BLOCK_ROWS_32 == b / BLOCK_ROWS_32) {
            let most = some.iter().copied().max().unwrap_or(0);
            if most >= self.rows {
                let max = self.rows.saturating_sub(1).into();
                return Err(IndexError::TooLarge { what: "row", got: most.into(), max });
            }
            let count = most as usize % BLOCK_ROWS + 1;
            self.read_block(&mut borders, most / BLOCK_ROWS_32, count, &mut records)?;
            target.extend(some.iter().map(|&row| records[row as usize % BLOCK_ROWS]));
        }
        Ok(())
    }

    /// The records of all rows.
    pub(crate) fn all(&self) -> Result<Vec<u32>, IndexError> {
        let mut target = Vec::with_capacity(self.rows as usize);
        let mut borders = Starts { starts: &self.flows.starts()?, flow: 0 };
        let mut records = [0; BLOCK_ROWS];
        for block in 0..self.rows.div_ceil(BLOCK_ROWS_32) {
            let count = self.block_len(block);
            self.read_block(&mut borders, block, count, &mut records)?;
            target.extend_from_slice(&records[..count]);
        }
        Ok(target)
    }

    /// Decodes the first records of a block.
    fn read_block(
        &self,
        borders: &mut impl Borders,
        block: u32,
        count: usize,
        target: &mut [u32; BLOCK_ROWS],
    ) -> Result<(), IndexError> {
        let (from, to) = (self.start(block as usize)?, self.start(block as usize + 1)?);
        let bad = || self.part.bad("block", from);
        let len = to.checked_sub(from).filter(|&len| len <= BLOCK_LEN_MAX).ok_or_else(bad)?;
        // Followed by zeros, so that 64 bits can be read wherever a step may start.
        let mut padded = [0; BLOCK_LEN_MAX + 8];
        padded[..len].copy_from_slice(self.part.read(from, len)?);
        let window = |at: u32| {
            let bytes = padded.get(at as usize / 8..).and_then(|bytes| bytes.first_chunk());
            bytes.map_or(0, |bytes| u64::from_le_bytes(*bytes)) >> (at % 8)
        };
        let known = |record: u64| u32::try_from(record).ok().filter(|&record| record < self.rows);
        let mut at = record_bits(self.rows);
        let first = known(window(0) & !(u64::MAX << at)).ok_or_else(bad)?;
        target[0] = first;
        let first_row = block * BLOCK_ROWS_32;
        let mut walk = Walk::new(borders, first_row, first)?;
        for (row, slot) in (first_row + 1..).zip(&mut target[1..count]) {
            let (from, context) = walk.step(row)?;
            let bits = window(at);
            let found =
                self.codes.table[context][usize::try_from(bits % CODES as u64).unwrap_or(0)];
            let (symbol, length) = (u32::from(found >> 4), u32::from(found & 0xF));
            if length == 0 {
                return Err(bad());
            }
            let low_bits = (symbol / 2).saturating_sub(1);
            let low = bits >> length & !(u64::MAX << low_bits);
            let distance = ((1 << (symbol / 2)) >> 1 | low) + 1;
            let record = match symbol % 2 {
                0 => u64::from(from).wrapping_add(distance),
                _ => u64::from(from).wrapping_sub(distance),
            };
            *slot = known(record).ok_or_else(bad)?;
            at += length + low_bits;
            walk.took(*slot, symbol as usize);
        }
        match at as usize <= 8 * len {
            true => Ok(()),
            false => Err(bad()),
        }
    }

    /// Checks that each record occurs once, and that the bytes are those that the writer writes.
    pub(crate) fn verify(&self) -> Result<(), IndexError> {
        let records = self.all()?;
        let mut seen = vec![0_u64; records.len().div_ceil(64)];
        for (row, &record) in (0..).zip(&records) {
            let (word, bit) = (&mut seen[record as usize / 64], 1 << (record % 64));
            if *word & bit != 0 {
                let section = self.part.section.name();
                return Err(IndexError::NotPermutation { section, row, record: record.into() });
            }
            *word |= bit;
        }
        let mut again = Vec::new();
        encode(&records, &self.flows.starts()?, Parallel::default(), &mut again)?;
        match again == self.part.bytes()? {
            true => Ok(()),
            false => Err(self.part.bad("form of the row map", 0)),
        }
    }
}
