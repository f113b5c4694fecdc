//! Columns of flows: the entries of each sorted by value (`columns.cu`).

use std::sync::Arc;

use tapdex_engine::archive::device::{FlowColumn, KEY_WORDS, KeyPlace, WIDE_WORDS};

use super::Shared;
use super::pool::{Lent, Pool};
use super::rows::packed_blocks;
use crate::column::{args, u32_of};
use crate::device::{Address, Arg, DeviceError, Stream};
use crate::radix::{Keys, Radix, launch, shifts};

/// Where the flows of a segment are on the device, in the order of their keys.
#[derive(Debug, Clone, Copy)]
pub(super) struct SortedFlows {
    /// Their keys, word by word, for so many flows, and how many there are.
    pub(super) words: Address,
    pub(super) room: usize,
    pub(super) count: Address,
    pub(super) packets: Address,
    pub(super) excess: Address,
    /// The numbers of flows: two for each conversation.
    pub(super) numbers: Address,
    /// The wide parts, in order.
    pub(super) wides: Address,
}

/// The bits that are set in any key, and those that are not set in all.
#[derive(Debug, Clone, Copy)]
pub(super) struct KeyBits {
    pub(super) narrow: [[u64; KEY_WORDS]; 2],
    /// Those of wide parts; a key that has none has no bits.
    pub(super) wide: [[u64; WIDE_WORDS]; 2],
}

/// The conversations of a segment.
#[derive(Debug)]
pub(super) struct Conversations {
    flows: SortedFlows,
    count: usize,
    firsts: Lent,
    pub(super) packets: Lent,
    pub(super) excess: Lent,
    pub(super) columns: Vec<Column>,
}

/// A column, sorted.
#[derive(Debug)]
pub(super) struct Column {
    /// How many entries it has, and words of 64 bits a value.
    pub(super) len: usize,
    pub(super) word_count: usize,
    /// The entries in order.
    pub(super) order: Lent,
    /// The values that differ, word by word, the high one first, and where the entries of each
    /// start.
    pub(super) values: Lent,
    pub(super) starts: Lent,
}

impl Conversations {
    /// Room for so many.
    pub(super) fn new(
        pool: &Arc<Pool>,
        flows: SortedFlows,
        count: usize,
    ) -> Result<Self, DeviceError> {
        Ok(Self {
            flows,
            count,
            firsts: pool.lend(4 * count)?,
            packets: pool.lend(8 * count)?,
            excess: pool.lend(16 * count)?,
            columns: Vec::new(),
        })
    }

    /// Sorts the columns, and has the host told how many values each has, and how many bytes its
    /// packed blocks.
    pub(super) fn sort(
        &mut self,
        shared: &Shared,
        radix: &Radix<'_>,
        columns: &[FlowColumn],
        bits: &KeyBits,
        host: Address,
    ) -> Result<(), DeviceError> {
        let Self { flows, count, firsts, packets, excess, .. } = self;
        let fill = |at: &Lent, bytes| shared.device.fill(Stream::Compute, at.address(), 0, bytes);
        fill(packets, 8 * *count)?;
        fill(excess, 16 * *count)?;
        let args = args![
            flows.numbers,
            flows.count,
            u32_of(flows.room),
            flows.packets,
            flows.excess,
            packets.address(),
            excess.address(),
            firsts.address(),
        ];
        shared.launch("columns", "columns_conversations", flows.room, args)?;
        for (at, column) in (0..).zip(columns) {
            let sorting = Sorting::new(&shared.pool, *count, column)?;
            sorting.gather(shared, flows, (firsts.address(), *count), column)?;
            let sorted = sorting.sort(shared, radix, column, bits, host + 8 * at)?;
            self.columns.push(sorted);
        }
        Ok(())
    }
}

/// The memory that a column is sorted in. Most of it is given back as soon as all kernels that use
/// it are requested: the next column takes it.
#[derive(Debug)]
struct Sorting {
    len: usize,
    word_count: usize,
    words: Lent,
    orders: [Lent; 2],
    places: Lent,
    values: Lent,
    starts: Lent,
    ids: Lent,
    /// The bytes of packed blocks, and of all of them.
    lens: Lent,
}

impl Sorting {
    fn new(pool: &Arc<Pool>, count: usize, column: &FlowColumn) -> Result<Self, DeviceError> {
        let len = if column.second.is_some() { 2 * count } else { count };
        let word_count = if column.first.bits > 64 { 2 } else { 1 };
        Ok(Self {
            len,
            word_count,
            words: pool.lend(8 * word_count * len)?,
            orders: [pool.lend(4 * len)?, pool.lend(4 * len)?],
            places: pool.lend(4 * (len + 1))?,
            values: pool.lend(8 * word_count * len)?,
            starts: pool.lend(4 * len)?,
            ids: pool.lend(4 * len)?,
            lens: pool.lend(4 * (packed_blocks(len) + 1))?,
        })
    }

    /// The values of all entries.
    fn gather(
        &self,
        shared: &Shared,
        flows: &SortedFlows,
        (firsts, count): (Address, usize),
        column: &FlowColumn,
    ) -> Result<(), DeviceError> {
        let (stride, count32) = (u32_of(flows.room), u32_of(count));
        for (end, place) in [Some(column.first), column.second].into_iter().flatten().enumerate() {
            for word in 0..self.word_count {
                let target = self.words.address() + 8 * (word * self.len + end * count) as u64;
                let (from, mask) = (u32_of(place.word + word), mask(&place));
                match place.is_wide {
                    false => {
                        let args = args![
                            flows.words,
                            stride,
                            firsts,
                            count32,
                            from,
                            place.shift,
                            mask,
                            target,
                        ];
                        shared.launch("columns", "columns_narrow", count, args)?;
                    }
                    // No flow has a wide part: all values are 0.
                    true if flows.wides == 0 => {
                        shared.device.fill(Stream::Compute, target, 0, 8 * count)?;
                    }
                    true => {
                        let args = args![
                            flows.words,
                            stride,
                            firsts,
                            count32,
                            flows.wides,
                            from,
                            place.shift,
                            mask,
                            target,
                        ];
                        shared.launch("columns", "columns_wide", count, args)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Sorts the entries by those bits of their values that differ.
    fn sort(
        self,
        shared: &Shared,
        radix: &Radix<'_>,
        column: &FlowColumn,
        bits: &KeyBits,
        host: Address,
    ) -> Result<Column, DeviceError> {
        let Self { len, word_count, words, orders, places, values, starts, ids, lens } = self;
        let keys = words.address();
        let mut passes = Vec::new();
        // The low word first: later passes have precedence.
        for word in (0..word_count).rev() {
            let at = keys + 8 * (word * len) as u64;
            let shifts = shifts(differing(column, word, bits));
            passes.extend(shifts.map(|shift| (Keys::Words(at), shift)));
        }
        let at = radix.sort(len, orders.each_ref().map(Lent::address), &passes)?;
        let [first, second] = orders;
        let order = if at == first.address() { first } else { second };
        let (len32, word_count32) = (u32_of(len), u32_of(word_count));
        let args = args![keys, word_count32, at, len32, places.address()];
        shared.launch("group", "group_heads", len + 1, args)?;
        radix.scan(places.address(), len + 1)?;
        let args = args![
            keys,
            word_count32,
            at,
            len32,
            places.address(),
            values.address(),
            starts.address(),
            ids.address(),
        ];
        shared.launch("columns", "columns_values", len, args)?;
        let blocks = packed_blocks(len);
        let args = args![ids.address(), len32, u32_of(blocks), lens.address()];
        shared.launch("packed", "packed_measure_u32", 32 * (blocks + 1), args)?;
        radix.scan(lens.address(), blocks + 1)?;
        let count = places.address() + 4 * len as u64;
        let bytes = lens.address() + 4 * blocks as u64;
        for (number, host) in [(count, host), (bytes, host + 4)] {
            let args = args![number, 1_u32, host];
            launch(&*shared.device, "scan", "scan_publish", (1, 32), args)?;
        }
        Ok(Column { len, word_count, order, values, starts })
    }
}

/// The bits of a value in a word.
fn mask(place: &KeyPlace) -> u64 {
    u64::MAX >> (64 - place.bits.clamp(1, 64))
}

/// The bits of a word of values that are not the same in all of them.
fn differing(column: &FlowColumn, word: usize, bits: &KeyBits) -> u64 {
    let (mut set, mut missing) = (0, 0);
    for place in [Some(column.first), column.second].into_iter().flatten() {
        let at = place.word + word;
        let [of_any, not_of_all] = match place.is_wide {
            false => bits.narrow.map(|words| words[at]),
            true => bits.wide.map(|words| words[at]),
        };
        set |= of_any >> place.shift & mask(&place);
        missing |= not_of_all >> place.shift & mask(&place);
    }
    set & missing
}
