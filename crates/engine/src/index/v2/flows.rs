//! Conversations, and the rows of their packets.
//!
//! A conversation has two ends. The rows of the packets from its first end to its second are one
//! *flow*, those of the packets in the other direction are the next, and then comes the next
//! conversation: flow `2 c` and flow `2 c + 1` belong to conversation `c`, and rows are numbered
//! through. So the numbers of packets are all there is to keep:
//!
//! ```text
//! for each block of 128 conversations but the first: its first row u32, where it starts u32
//! for each block: packets of its conversations less one, packed
//!                 packets of their first flows, packed
//! ```

use std::ops::Range;

use super::bits::{Reader, u32_at};
use super::packed::{BLOCK, BLOCK_32, Block, push_block};
use super::section::Part;
use crate::error::IndexError;

/// Appends how many packets each flow has.
pub(super) fn encode(packets: &[u32], target: &mut Vec<u8>) {
    let conversations = packets.as_chunks::<2>().0;
    let (mut heads, mut bytes) = (Vec::new(), Vec::new());
    let mut row = 0_u32;
    for block in conversations.chunks(BLOCK) {
        heads.extend(row.to_le_bytes());
        heads.extend(u32::try_from(bytes.len()).unwrap_or(u32::MAX).to_le_bytes());
        let (mut all, mut firsts) = ([0; BLOCK], [0; BLOCK]);
        for ((all, first), [one, other]) in all.iter_mut().zip(&mut firsts).zip(block) {
            (*all, *first) = ((one + other).saturating_sub(1), *one);
            row += one + other;
        }
        push_block(&all[..block.len()], &mut bytes);
        push_block(&firsts[..block.len()], &mut bytes);
    }
    target.extend(heads.get(8..).unwrap_or_default());
    target.extend(bytes);
}

/// The flows of a segment, read in place.
#[derive(Debug, Clone, Copy)]
pub(super) struct Flows<'a> {
    pub(super) part: Part<'a>,
    pub(super) conversations: u32,
    pub(super) rows: u32,
}

/// The least bytes of the flows of so many conversations.
pub(super) fn least_len(conversations: u32) -> u64 {
    let blocks = u64::from(conversations.div_ceil(BLOCK_32));
    4 * blocks + 8 * blocks.saturating_sub(1)
}

/// The bits of a block.
fn places(words: &[u64]) -> u128 {
    let word = |at: usize| u128::from(words.get(at).copied().unwrap_or(0));
    word(0) | word(1) << 64
}

/// The packets of some conversations of a block of so many, bit by bit: from what the block starts
/// with, or from its rows if these are all.
#[inline(always)]
fn packets_in(places: u128, len: usize, mut bytes: Reader<'_>, rows: Range<u32>) -> Option<u64> {
    let all = u128::MAX >> (BLOCK - len);
    if places & all == all {
        return Some(u64::from(rows.end.saturating_sub(rows.start)));
    }
    let sum = Block::read(&mut bytes, len)?.sum(places)?;
    Some(sum + u64::from((places & all).count_ones()))
}

/// The rows of a block of conversations.
#[derive(Debug, Clone)]
struct FlowBlock<'a> {
    number: u32,
    len: usize,
    /// The first row of each conversation, and then the row behind the last.
    starts: [u32; BLOCK + 1],
    /// The packets of the first flows, as bytes and, once they were read, as numbers.
    firsts: Reader<'a>,
    first_packets: Option<[u32; BLOCK]>,
}

impl FlowBlock<'_> {
    /// Its number and its rows; `None` if none was read.
    fn rows(&self) -> Option<(u32, Range<u32>)> {
        let rows = self.starts[0]..self.starts[self.len];
        (self.number != u32::MAX).then_some((self.number, rows))
    }
}

impl<'a> Flows<'a> {
    /// How many flows there are.
    pub(super) fn len(&self) -> u32 {
        2 * self.conversations
    }

    pub(super) fn blocks(&self) -> u32 {
        self.conversations.div_ceil(BLOCK_32)
    }

    /// A number about a block that is neither the first nor behind the last: its first row (0), or
    /// where it starts (1).
    fn head(&self, block: u32, which: usize) -> Result<u32, IndexError> {
        Ok(u32_at(self.part.read(8 * (block as usize - 1) + 4 * which, 4)?, 0))
    }

    /// The first row of a block; behind the last one, the number of rows.
    fn first_row(&self, block: u32) -> Result<u32, IndexError> {
        match block {
            0 => Ok(0),
            _ if block >= self.blocks() => Ok(self.rows),
            _ => self.head(block, 0),
        }
    }

    fn start(&self, block: u32) -> Result<usize, IndexError> {
        let heads = 8 * (self.blocks().max(1) - 1) as usize;
        match block {
            0 => Ok(heads),
            _ if block >= self.blocks() => Ok(self.part.len),
            _ => Ok(heads + self.head(block, 1)? as usize),
        }
    }

    /// The conversations of a block.
    fn block_len(&self, number: u32) -> usize {
        (self.conversations - number * BLOCK_32).min(BLOCK_32) as usize
    }

    /// The packets less one of the conversations of a block, and what follows them.
    fn packets(&self, number: u32) -> Result<(Block<'a>, Reader<'a>), IndexError> {
        let (from, to) = (self.start(number)?, self.start(number + 1)?);
        let mut bytes = Reader::new(self.part.read(from, to.saturating_sub(from))?);
        let block = Block::read(&mut bytes, self.block_len(number));
        Ok((block.ok_or_else(|| self.part.bad("packets of flows", from))?, bytes))
    }

    /// The rows of a block, if its conversations have so many packets.
    fn block_rows(&self, number: u32, packets: u64) -> Result<Range<u32>, IndexError> {
        let (start, end) = (self.first_row(number)?, self.first_row(number + 1)?);
        match u64::from(start) + packets == u64::from(end) && end <= self.rows {
            true => Ok(start..end),
            false => Err(self.part.bad("packets of flows", 0)),
        }
    }

    fn read_block(&self, number: u32, target: &mut FlowBlock<'a>) -> Result<(), IndexError> {
        target.number = u32::MAX;
        let (packets, firsts) = self.packets(number)?;
        let len = self.block_len(number);
        let mut numbers = [0; BLOCK];
        packets.numbers(&mut numbers).ok_or_else(|| self.part.bad("packets of flows", 0))?;
        let all = numbers[..len].iter().map(|&packets| u64::from(packets) + 1).sum();
        let rows = self.block_rows(number, all)?;
        let mut row = rows.start;
        for (start, &packets) in target.starts.iter_mut().zip(&numbers[..len]) {
            *start = row;
            // The sum was checked.
            row = row.wrapping_add(packets).wrapping_add(1);
        }
        target.starts[len] = rows.end;
        (target.number, target.len) = (number, len);
        (target.firsts, target.first_packets) = (firsts, None);
        Ok(())
    }

    /// The packets of some conversations of a block, bit by bit.
    fn packets_of(&self, number: u32, places: u128) -> Result<u64, IndexError> {
        if places == 0 {
            return Ok(0);
        }
        let rows = self.first_row(number)?..self.first_row(number + 1)?;
        let (from, to) = (self.start(number)?, self.start(number + 1)?);
        let bytes = Reader::new(self.part.read(from, to.saturating_sub(from))?);
        let found = packets_in(places, self.block_len(number), bytes, rows);
        found.ok_or_else(|| self.part.bad("packets of flows", from))
    }

    /// The packets of conversations, given as ascending runs that do not touch.
    pub(super) fn packets_of_runs(&self, runs: &[(u32, u32)]) -> Result<u64, IndexError> {
        let mut sum = 0;
        // The block at hand, and its conversations in runs so far.
        let (mut block, mut places) = (0, 0_u128);
        for &(first, last) in runs {
            let (first_block, last_block) = (first / BLOCK_32, last / BLOCK_32);
            if first_block != block {
                sum += self.packets_of(block, std::mem::take(&mut places))?;
            }
            block = first_block;
            let from = u128::MAX << (first % BLOCK_32);
            let to = u128::MAX >> (BLOCK_32 - 1 - last % BLOCK_32);
            if first_block == last_block {
                places |= from & to;
                continue;
            }
            sum += self.packets_of(block, places | from)?;
            // Whole blocks are in between.
            let rows = |block: u32| self.first_row(block).map(u64::from);
            sum += rows(last_block)?.saturating_sub(rows(first_block + 1)?);
            (block, places) = (last_block, to);
        }
        Ok(sum + self.packets_of(block, places)?)
    }

    /// Passes the blocks that have bits set in one of two lists to `each`: their bits, what starts
    /// with their packets, and their rows, as far as the heads tell.
    fn for_each_block(
        &self,
        [first, second]: [&[u64]; 2],
        each: &mut impl FnMut([u128; 2], usize, Reader<'a>, Range<u32>) -> Option<u64>,
    ) -> Result<u64, IndexError> {
        let bytes = self.part.bytes()?;
        let blocks = self.blocks();
        let body = 8 * (blocks.max(1) - 1) as usize;
        let (mut row, mut start, mut sum) = (0, body, 0);
        for (block, (first, second)) in (0..blocks).zip(first.chunks(2).zip(second.chunks(2))) {
            let head = 8 * block as usize;
            let (end_row, end) = match block + 1 == blocks {
                true => (self.rows, bytes.len()),
                false => (u32_at(bytes, head), body + u32_at(bytes, head + 4) as usize),
            };
            let both = [first, second].map(places);
            if both[0] | both[1] != 0 {
                let reader = bytes.get(start..end).map(Reader::new);
                let len = self.block_len(block);
                let found = reader.and_then(|reader| each(both, len, reader, row..end_row));
                sum += found.ok_or_else(|| self.part.bad("packets of flows", start))?;
            }
            (row, start) = (end_row, end);
        }
        Ok(sum)
    }

    /// The packets of conversations, a bit for each.
    pub(super) fn packets_of_bits(&self, words: &[u64]) -> Result<u64, IndexError> {
        self.for_each_block([words, words], &mut |[places, _], len, reader, rows| {
            packets_in(places, len, reader, rows)
        })
    }

    /// The packets of the first flows of some conversations, and of the second flows of some, a bit
    /// for each.
    pub(super) fn packets_of_flows(
        &self,
        firsts: &[u64],
        seconds: &[u64],
    ) -> Result<u64, IndexError> {
        self.for_each_block([firsts, seconds], &mut |[first, second], len, mut reader, _| {
            let packets = Block::read(&mut reader, len)?;
            let of_firsts = Block::read(&mut reader, len)?;
            let second = second & u128::MAX >> (BLOCK - len);
            let both = packets.sum(second)? + u64::from(second.count_ones());
            // No first flow has more packets than its conversation.
            Some(of_firsts.sum(first)? + both.checked_sub(of_firsts.sum(second)?)?)
        })
    }

    /// The row that each conversation starts at, and the number of rows.
    pub(super) fn conversation_starts(&self) -> Result<Vec<u32>, IndexError> {
        let mut starts = Vec::with_capacity(self.conversations as usize + 1);
        let mut cursor = self.cursor();
        for block in 0..self.blocks() {
            cursor.go_to(block)?;
            starts.extend_from_slice(&cursor.block.starts[..cursor.block.len]);
        }
        starts.push(self.rows);
        Ok(starts)
    }

    /// The row that each flow starts at, and the number of rows.
    pub(super) fn starts(&self) -> Result<Vec<u32>, IndexError> {
        let mut starts = Vec::with_capacity(self.len() as usize + 1);
        let mut cursor = self.cursor();
        for conversation in 0..self.conversations {
            let (start, middle, _) = cursor.flows(conversation)?;
            starts.extend([start, middle]);
        }
        starts.push(self.rows);
        Ok(starts)
    }

    /// A cursor, to look flows up in ascending order.
    pub(super) fn cursor(&self) -> FlowCursor<'a> {
        let block = FlowBlock {
            number: u32::MAX,
            len: 0,
            starts: [0; BLOCK + 1],
            firsts: Reader::new(&[]),
            first_packets: None,
        };
        FlowCursor { flows: *self, block }
    }
}

/// Passes the flows that have some of these rows to `each`, with their first and last ones. Rows
/// are ascending runs; `starts` has the row that each flow starts at, and the number of rows.
pub(crate) fn for_each_flow(
    rows: &[(u32, u32)],
    starts: &[u32],
    each: &mut dyn FnMut(u32, (u32, u32)),
) {
    let mut flow = 0;
    for &(first, last) in rows {
        // Runs may be far from each other: in steps that double, then by binary search.
        let mut step = 1;
        while starts.get(flow + step).is_some_and(|&start| start <= first) {
            flow += step;
            step *= 2;
        }
        let near = &starts[flow..starts.len().min(flow + step)];
        flow += near.partition_point(|&start| start <= first).saturating_sub(1);
        let mut next = first;
        while let Some(&end) = starts.get(flow + 1) {
            if end > next {
                let until = last.min(end - 1);
                each(u32::try_from(flow).unwrap_or(u32::MAX), (next, until));
                next = until.saturating_add(1);
            }
            if next > last || end > last {
                break;
            }
            flow += 1;
        }
    }
}

/// Looks flows up; fast if they are asked for in ascending order.
#[derive(Debug, Clone)]
pub(super) struct FlowCursor<'a> {
    flows: Flows<'a>,
    block: FlowBlock<'a>,
}

impl FlowCursor<'_> {
    /// How many flows there are.
    pub(super) fn len(&self) -> u32 {
        self.flows.len()
    }

    #[inline(always)]
    fn go_to(&mut self, block: u32) -> Result<(), IndexError> {
        if self.block.number != block {
            let before = self.block.rows();
            self.flows.read_block(block, &mut self.block)?;
            // Rows ascend even if a block between the two is wrong, which nobody has read.
            let ascends = match (before, self.block.rows()) {
                (Some((before, earlier)), Some((_, later))) if before < block => {
                    earlier.end <= later.start
                }
                (Some((_, later)), Some((_, earlier))) => earlier.end <= later.start,
                _ => true,
            };
            if !ascends {
                self.block.number = u32::MAX;
                return Err(self.flows.part.bad("first row of a block", 0));
            }
        }
        Ok(())
    }

    /// The row that a conversation starts at; behind the last one, the number of rows.
    #[inline]
    pub(super) fn start(&mut self, conversation: u32) -> Result<u32, IndexError> {
        if conversation >= self.flows.conversations {
            return Ok(self.flows.rows);
        }
        self.go_to(conversation / BLOCK_32)?;
        Ok(self.block.starts[(conversation % BLOCK_32) as usize])
    }

    /// The rows that the flows of a conversation start at, and the row behind them. There is such a
    /// conversation.
    #[inline]
    pub(super) fn flows(&mut self, conversation: u32) -> Result<(u32, u32, u32), IndexError> {
        self.go_to(conversation / BLOCK_32)?;
        let bad = || self.flows.part.bad("packets of flows", 0);
        let firsts = match &self.block.first_packets {
            Some(firsts) => firsts,
            None => {
                let (mut numbers, mut bytes) = ([0; BLOCK], self.block.firsts);
                let block = Block::read(&mut bytes, self.block.len).ok_or_else(bad)?;
                block.numbers(&mut numbers).ok_or_else(bad)?;
                if !bytes.is_at_end() {
                    return Err(bad());
                }
                self.block.first_packets.insert(numbers)
            }
        };
        let at = (conversation % BLOCK_32) as usize;
        let (start, end) = (self.block.starts[at], self.block.starts[at + 1]);
        let middle = start.checked_add(firsts[at]).filter(|&row| row <= end).ok_or_else(bad)?;
        Ok((start, middle, end))
    }

    /// The rows of a flow, which may be none: the first, and the one behind the last.
    #[inline]
    pub(super) fn rows(&mut self, flow: u32) -> Result<(u32, u32), IndexError> {
        let (start, middle, end) = self.flows(flow / 2)?;
        Ok(if flow.is_multiple_of(2) { (start, middle) } else { (middle, end) })
    }

    /// The flow that a row belongs to. There is such a row.
    pub(super) fn find(&mut self, row: u32) -> Result<u32, IndexError> {
        let (mut low, mut high) = (0, self.flows.blocks());
        while low < high {
            let middle = low.midpoint(high);
            if self.flows.first_row(middle)? <= row { low = middle + 1 } else { high = middle }
        }
        let block = low.saturating_sub(1);
        self.go_to(block)?;
        let starts = &self.block.starts[..self.block.len];
        let at = starts.partition_point(|&start| start <= row).max(1) - 1;
        let conversation = block * BLOCK_32 + u32::try_from(at).unwrap_or(0);
        let (_, middle, _) = self.flows(conversation)?;
        Ok(2 * conversation + u32::from(row >= middle))
    }
}
