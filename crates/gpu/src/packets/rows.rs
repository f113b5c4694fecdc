//! The rows of a sorted segment, encoded: its row map (`rowmap.cu`), and the columns of single
//! packets that are best packed (`packed.cu`).
//!
//! The device counts first. The host makes a code of what it has counted, and chooses what to pack.
//! Then the device encodes, and all is copied out.

use std::sync::Arc;

use tapdex_engine::archive::device::{HostMemory, OWN_DIGITS, PackedDigits, StepCode};
use tapdex_engine::index::Width;

use super::chunk::longs;
use super::pool::{Busy, Lent, Pool, Room};
use super::{BadPackets, Failed, Shared};
use crate::column::{BLOCK_ALONE, args, u32_of};
use crate::device::{Address, Arg, DeviceError, Stream};
use crate::radix::{Radix, launch};

/// Words of the marks of all digits.
pub(crate) const MARKS: usize = (1 << 16) / 32;
/// Digits that a thread looks at, about, to find those that occur.
const DIGITS_EACH: usize = 32;
/// Numbers of 32 bits that the counts of steps are.
const COUNTS: usize = StepCode::CONTEXTS * StepCode::SYMBOLS;
/// Bytes of the codes.
const CODES_BYTES: usize = 2 * COUNTS;
/// Numbers that are published together at most, by one block.
const PUBLISHED: usize = 1024;

/// Where the rows of a segment are on the device.
#[derive(Debug, Clone, Copy)]
pub(super) struct SortedRows {
    pub(super) rows: usize,
    /// The keys of flows, word by word, for so many flows, and how many there are.
    pub(super) words: Address,
    pub(super) flows_room: usize,
    pub(super) flows: Address,
    /// The record of each row, and the rank of each record's flow.
    pub(super) order: Address,
    pub(super) ranks: Address,
    /// What packets have for themselves, row by row, and whether it is a column of its own.
    pub(super) own: [Option<(Address, Width)>; OWN_DIGITS],
}

/// The memory that rows are encoded in.
#[derive(Debug)]
pub(super) struct Rows {
    at: SortedRows,
    heads: Lent,
    numbers: Lent,
    /// How often steps occur, then for each digit how many runs, values and bytes it has.
    counts: Lent,
    codes: Lent,
    lens: Lent,
    packed: [Option<Packed>; OWN_DIGITS],
}

/// The memory that a column is packed in.
#[derive(Debug)]
struct Packed {
    digits: Address,
    width: Width,
    seen: Lent,
    places: Lent,
    values: Lent,
    lens: Lent,
}

/// What the device has counted.
#[derive(Debug)]
pub(super) struct Counted {
    pub(super) code: StepCode,
    pub(super) conversations: usize,
    packed: [Option<Counts>; OWN_DIGITS],
}

#[derive(Debug, Clone, Copy)]
struct Counts {
    runs: usize,
    values: usize,
    bytes: usize,
}

/// Bytes on the device, ready to be copied out.
#[derive(Debug)]
pub(super) struct Encoded {
    /// The row map behind the head of its code, and the most bytes that it may have.
    pub(super) map: (Lent, usize),
    /// Of each column that is packed the numbers, and the values that occur.
    pub(super) packed: [Option<(Lent, usize, usize)>; OWN_DIGITS],
}

impl Rows {
    pub(super) fn new(pool: &Arc<Pool>, at: SortedRows) -> Result<Self, DeviceError> {
        let blocks = at.rows.div_ceil(StepCode::BLOCK_ROWS);
        let mut packed = [const { None }; OWN_DIGITS];
        for (packed, own) in packed.iter_mut().zip(at.own) {
            let Some((digits, width)) = own else { continue };
            *packed = Some(Packed {
                digits,
                width,
                seen: pool.lend(4 * MARKS)?,
                places: pool.lend(4 * MARKS)?,
                values: pool.lend(2 << 16)?,
                lens: pool.lend(4 * (packed_blocks(at.rows) + 1))?,
            });
        }
        Ok(Self {
            at,
            heads: pool.lend(4 * (at.flows_room + 1))?,
            numbers: pool.lend(4 * at.flows_room)?,
            counts: pool.lend(4 * (COUNTS + 3 * OWN_DIGITS))?,
            codes: pool.lend(CODES_BYTES)?,
            lens: pool.lend(4 * (blocks + 1))?,
            packed,
        })
    }

    /// Where a number of a digit is among the counts.
    fn figure(&self, digit: usize, which: usize) -> Address {
        self.counts.address() + 4 * (COUNTS + 3 * digit + which) as u64
    }

    /// Counts steps, and measures packed columns.
    pub(super) fn count(&self, shared: &Shared, radix: &Radix<'_>) -> Result<(), DeviceError> {
        let SortedRows { rows, words, flows_room, flows, order, ranks, .. } = self.at;
        let (len, rows32) = (u32_of(flows_room), u32_of(rows));
        let fill =
            |memory: &Lent, bytes| shared.device.fill(Stream::Compute, memory.address(), 0, bytes);
        fill(&self.counts, 4 * (COUNTS + 3 * OWN_DIGITS))?;
        let (heads, numbers) = (self.heads.address(), self.numbers.address());
        let run = |kernel, items, args: &[Arg]| shared.launch("rowmap", kernel, items, args);
        run("rowmap_heads", flows_room + 1, args![words, len, flows, heads])?;
        radix.scan(heads, flows_room + 1)?;
        run("rowmap_numbers", flows_room, args![words, len, flows, heads, numbers])?;
        let blocks = rows.div_ceil(StepCode::BLOCK_ROWS);
        run("rowmap_count", blocks, args![order, ranks, numbers, rows32, self.counts.address()])?;
        for (digit, packed) in self.packed.iter().enumerate() {
            let Some(packed) = packed else { continue };
            fill(&packed.seen, 4 * MARKS)?;
            let (digits, seen) = (packed.digits, packed.seen.address());
            let places = packed.places.address();
            let run = |kernel, items, args: &[Arg]| shared.launch("packed", kernel, items, args);
            let [see, measure, _] = packed.kernels();
            let runs = self.figure(digit, 0);
            run(see, rows.div_ceil(DIGITS_EACH), args![digits, rows32, seen, runs])?;
            let args = args![seen, places, packed.values.address(), self.figure(digit, 1)];
            launch(&*shared.device, "packed", "packed_places", (1, BLOCK_ALONE), args)?;
            let blocks = packed_blocks(rows);
            let lens = packed.lens.address();
            let args = args![digits, rows32, seen, places, u32_of(blocks), lens];
            run(measure, 32 * (blocks + 1), args)?;
            radix.scan(lens, blocks + 1)?;
        }
        Ok(())
    }

    /// Tells the host what was counted, behind what it is told besides.
    pub(super) fn publish(&self, shared: &Shared, host: Address) -> Result<(), DeviceError> {
        let publish = |from: Address, len: usize, to: usize| {
            let args = args![from, u32_of(len), host + 4 * to as u64];
            let threads = u32_of(len.next_multiple_of(32));
            launch(&*shared.device, "scan", "scan_publish", (1, threads), args)
        };
        publish(self.counts.address(), COUNTS + 3 * OWN_DIGITS, 0)?;
        let conversations = self.heads.address() + 4 * self.at.flows_room as u64;
        publish(conversations, 1, COUNTS + 3 * OWN_DIGITS)?;
        for (digit, packed) in self.packed.iter().enumerate() {
            let Some(packed) = packed else { continue };
            let total = packed.lens.address() + 4 * packed_blocks(self.at.rows) as u64;
            publish(total, 1, COUNTS + 3 * digit + 2)?;
        }
        Ok(())
    }

    /// What was published.
    pub(super) fn counted(&self, published: &[u8]) -> Result<Counted, Failed> {
        let numbers: Vec<u32> = longs(published).take(COUNTS + 3 * OWN_DIGITS + 1).collect();
        let (steps, figures) = numbers.split_at_checked(COUNTS).ok_or(BadPackets::Disorder)?;
        let conversations = figures.last().map_or(0, |&number| number as usize);
        let mut counts = [[0; StepCode::SYMBOLS]; StepCode::CONTEXTS];
        let each = counts.as_flattened_mut().iter_mut().zip(steps);
        each.for_each(|(count, &step)| *count = step.into());
        let rows = self.at.rows;
        let firsts = rows.div_ceil(StepCode::BLOCK_ROWS);
        let is_right = steps.iter().map(|&step| step as usize).sum::<usize>() + firsts == rows;
        let mut packed = [None; OWN_DIGITS];
        for (digit, (packed, numbers)) in packed.iter_mut().zip(figures.chunks(3)).enumerate() {
            if self.packed[digit].is_none() {
                continue;
            }
            let &[runs, values, bytes] = numbers else { return Err(BadPackets::Disorder.into()) };
            let [runs, values, bytes] = [runs, values, bytes].map(|number| number as usize);
            let bytes_max = packed_blocks(rows) * PACKED_MAX;
            if runs == 0 || runs > rows || values == 0 || values > runs || bytes > bytes_max {
                return Err(BadPackets::Disorder.into());
            }
            let bytes = packed_starts(rows) + bytes;
            *packed = Some(Counts { runs, values, bytes });
        }
        match is_right {
            true => {
                let code = StepCode::new(u32_of(rows), &counts);
                Ok(Counted { code, conversations, packed })
            }
            false => Err(BadPackets::Disorder.into()),
        }
    }

    /// Encodes the row map, and the columns that are best packed. The room is one to use for that;
    /// afterwards it says how many bytes the row map has.
    pub(super) fn encode(
        &self,
        shared: &Shared,
        radix: &Radix<'_>,
        counted: &Counted,
        mut room: Room,
    ) -> Result<(Encoded, Busy), Failed> {
        let SortedRows { rows, order, ranks, .. } = self.at;
        let blocks = rows.div_ceil(StepCode::BLOCK_ROWS);
        let bytes_max = StepCode::starts_len(rows) + blocks * BLOCK_BYTES_MAX;
        let map = shared.pool.lend(bytes_max)?;
        let mut packed = [const { None }; OWN_DIGITS];
        for (packed, counts) in packed.iter_mut().zip(counted.packed) {
            let Some(Counts { runs, values, bytes }) = counts else { continue };
            if PackedDigits::suffices(bytes, values, runs) {
                *packed = Some((shared.pool.lend(bytes)?, bytes, values));
            }
        }

        let (places, _) = room.bytes_mut().as_chunks_mut::<2>();
        let codes = counted.code.codes().as_flattened();
        places.iter_mut().zip(codes).for_each(|(place, code)| *place = code.to_le_bytes());
        let sent = room.bytes().get(..CODES_BYTES).unwrap_or_default();
        shared.device.copy_in(Stream::Compute, sent, self.codes.address())?;
        let rows32 = u32_of(rows);
        let args = args![
            order,
            ranks,
            self.numbers.address(),
            rows32,
            self.codes.address(),
            counted.code.record_bits(),
            u32_of(blocks),
            self.lens.address(),
            map.address(),
        ];
        let [measure @ .., _] = args;
        shared.launch("rowmap", "rowmap_measure", blocks + 1, measure)?;
        radix.scan(self.lens.address(), blocks + 1)?;
        shared.launch("rowmap", "rowmap_write", blocks, args)?;
        let total = self.lens.address() + 4 * blocks as u64;
        let host = room.address() + CODES_BYTES as u64;
        launch(&*shared.device, "scan", "scan_publish", (1, 32), args![total, 1_u32, host])?;
        for (memory, packed) in self.packed.iter().zip(&packed) {
            let (Some(memory), Some((target, ..))) = (memory, packed) else { continue };
            let blocks = packed_blocks(rows);
            let args = args![
                memory.digits,
                rows32,
                memory.seen.address(),
                memory.places.address(),
                u32_of(blocks),
                memory.lens.address(),
                target.address(),
            ];
            let [.., write] = memory.kernels();
            shared.launch("packed", write, 32 * blocks, args)?;
        }
        let busy = Busy::new(&shared.device, Stream::Compute, room)?;
        Ok((Encoded { map: (map, bytes_max), packed }, busy))
    }

    /// How many bytes the row map has behind its head: published by [`encode`](Self::encode).
    pub(super) fn map_len(&self, published: &[u8], bytes_max: usize) -> Result<usize, Failed> {
        let blocks = longs(published.get(CODES_BYTES..).unwrap_or_default()).next();
        let len = StepCode::starts_len(self.at.rows) + blocks.map_or(0, |bytes| bytes as usize);
        if len <= bytes_max { Ok(len) } else { Err(BadPackets::Disorder.into()) }
    }

    /// Where the numbers of flows are: two for each conversation.
    pub(super) fn numbers(&self) -> Address {
        self.numbers.address()
    }

    /// Where the values of a packed column are.
    pub(super) fn values(&self, digit: usize) -> Address {
        self.packed[digit].as_ref().map_or(0, |packed| packed.values.address())
    }
}

impl Packed {
    /// Those that find digits, measure, and write.
    fn kernels(&self) -> [&'static str; 3] {
        match self.width {
            Width::Byte => ["packed_seen_u8", "packed_measure_u8", "packed_write_u8"],
            Width::Short => ["packed_seen_u16", "packed_measure_u16", "packed_write_u16"],
        }
    }
}

/// The most bytes of a block of the row map: the record of its first row, and for each other one a
/// code of ten bits and 31 bits behind it.
const BLOCK_BYTES_MAX: usize = (32 + (StepCode::BLOCK_ROWS - 1) * (10 + 31)).div_ceil(8);
/// The most bytes of a packed block of numbers of 16 bits: none is longer than one of kind *near*.
const PACKED_MAX: usize = 1 + 3 + 16 * PackedDigits::BLOCK / 8;

const _: () = assert!(CODES_BYTES + 4 <= super::pool::ROOM_BYTES);
const _: () = assert!(COUNTS + 3 * OWN_DIGITS <= PUBLISHED);

pub(super) fn packed_blocks(rows: usize) -> usize {
    rows.div_ceil(PackedDigits::BLOCK)
}

/// Bytes that say where groups of packed blocks start.
pub(super) fn packed_starts(rows: usize) -> usize {
    4 * (packed_blocks(rows).div_ceil(PackedDigits::GROUP_BLOCKS).max(1) - 1)
}
