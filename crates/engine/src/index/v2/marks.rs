//! Where in the packet file the records are, and when they were captured, 32 at a time.
//!
//! ```text
//! unit of the times u8: a power of ten, in nanoseconds
//! for each block of 128 marks but the first: where it starts, u32
//! for each block: offset varint, least time varint of its first mark
//!                 offsets less those before, 0 for the first
//!                 least times less the greatest before, modulo 2^64 (zigzag), 0 for the first
//!                 greatest times less the least
//!                 each of these three as numbers modulo 2^32, packed, and divided by it, packed
//! ```

use std::sync::Mutex;

use super::super::marks::Mark;
use super::bits::{Reader, push_varint, u32_at, unzigzag, zigzag};
use super::packed::{BLOCK, BLOCK_32, push_longs, read_longs};
use super::section::Part;
use crate::error::IndexError;

/// The greatest unit: a second.
const UNIT_MAX: u8 = 9;

fn unit_of(marks: &[Mark]) -> u8 {
    let mut unit = UNIT_MAX;
    for time in marks.iter().flat_map(|mark| [mark.time_min, mark.time_max]) {
        while time % 10_u64.pow(unit.into()) != 0 {
            unit -= 1;
        }
    }
    unit
}

/// Appends marks. Their offsets ascend, and no least time is after the greatest.
pub(super) fn encode(marks: &[Mark], target: &mut Vec<u8>) {
    let unit = unit_of(marks);
    let time = |ns: u64| ns / 10_u64.pow(unit.into());
    let (mut starts, mut bytes) = (Vec::new(), Vec::new());
    for block in marks.chunks(BLOCK) {
        starts.extend(u32::try_from(bytes.len()).unwrap_or(u32::MAX).to_le_bytes());
        push_varint(block[0].offset.into(), &mut bytes);
        push_varint(time(block[0].time_min).into(), &mut bytes);
        let befores = || block[..1].iter().chain(block);
        let offsets = block.iter().zip(befores()).map(|(mark, before)| mark.offset - before.offset);
        push_longs(offsets, &mut bytes);
        let pairs = block.iter().zip(befores()).enumerate();
        let gaps = pairs.map(|(at, (mark, before))| match at {
            0 => 0,
            _ => zigzag(time(mark.time_min).wrapping_sub(time(before.time_max)).cast_signed()),
        });
        push_longs(gaps, &mut bytes);
        push_longs(block.iter().map(|mark| time(mark.time_max) - time(mark.time_min)), &mut bytes);
    }
    target.push(unit);
    target.extend(starts.get(4..).unwrap_or_default());
    target.extend(bytes);
}

/// The number of a block, and its marks.
pub(in super::super) type LastBlock = Mutex<(u32, Vec<Mark>)>;

/// The marks of a segment, read in place.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CompactMarks<'a> {
    part: Part<'a>,
    /// The marks of the block that was read last: neighbours are often asked for one by one.
    last: &'a LastBlock,
    unit_ns: u64,
    len: u32,
}

impl<'a> CompactMarks<'a> {
    pub(super) fn open(part: Part<'a>, len: u32, last: &'a LastBlock) -> Result<Self, IndexError> {
        let unit = part.read(0, 1)?[0];
        if unit > UNIT_MAX {
            return Err(part.bad("unit of the times", 0));
        }
        Ok(Self { part, last, unit_ns: 10_u64.pow(unit.into()), len })
    }

    pub(crate) fn len(&self) -> u32 {
        self.len
    }

    fn blocks(&self) -> u32 {
        self.len.div_ceil(BLOCK_32)
    }

    /// Passes the first marks of a block to `each`, until it returns false.
    pub(crate) fn read_block(
        &self,
        block: u32,
        each: &mut dyn FnMut(Mark) -> bool,
    ) -> Result<(), IndexError> {
        let lists = 1 + 4 * (self.blocks().max(1) - 1) as usize;
        let start = |block: u32| -> Result<usize, IndexError> {
            match block {
                0 => Ok(lists),
                _ if block >= self.blocks() => Ok(self.part.len),
                _ => {
                    let at = 1 + 4 * (block - 1) as usize;
                    Ok(lists + u32_at(self.part.read(at, 4)?, 0) as usize)
                }
            }
        };
        let (from, to) = (start(block)?, start(block + 1)?);
        let mut bytes = Reader::new(self.part.read(from, to.saturating_sub(from))?);
        let bad = || self.part.bad("mark", from);
        let count = (self.len - block * BLOCK_32).min(BLOCK_32) as usize;
        let (offset, time) = (bytes.varint(), bytes.varint());
        let (mut offset, mut time) = offset.zip(time).ok_or_else(bad)?;
        let mut lists = [[0; BLOCK]; 3];
        for list in &mut lists {
            *list = read_longs(&mut bytes, count).ok_or_else(bad)?;
        }
        let [offsets, gaps, spans] = lists;
        let mut next = |at: usize| {
            // Offsets ascend.
            if (at == 0) != (offsets[at] == 0) {
                return None;
            }
            offset = offset.checked_add(offsets[at])?;
            // A gap of more than 63 bits has wrapped around when it was written.
            time = time.wrapping_add_signed(unzigzag(gaps[at]));
            let time_min = time.checked_mul(self.unit_ns)?;
            time = time.checked_add(spans[at])?;
            Some(Mark { offset, time_min, time_max: time.checked_mul(self.unit_ns)? })
        };
        for at in 0..count {
            if !each(next(at).ok_or_else(bad)?) {
                return Ok(());
            }
        }
        match bytes.is_at_end() {
            true => Ok(()),
            false => Err(self.part.bad("end of a block of marks", from)),
        }
    }

    pub(crate) fn get(&self, i: u32) -> Result<Mark, IndexError> {
        if i >= self.len {
            let max = self.len.saturating_sub(1).into();
            return Err(IndexError::TooLarge { what: "row", got: i.into(), max });
        }
        let (number, at) = (i / BLOCK_32, (i % BLOCK_32) as usize);
        // Other threads may be reading elsewhere: then nobody waits.
        let Ok(mut last) = self.last.try_lock() else {
            return Ok(self.block(number)?.get(at).copied().unwrap_or_default());
        };
        if last.0 != number || last.1.is_empty() {
            *last = (number, self.block(number)?);
        }
        Ok(last.1.get(at).copied().unwrap_or_default())
    }

    /// The marks of a block.
    pub(crate) fn block(&self, block: u32) -> Result<Vec<Mark>, IndexError> {
        let mut marks = Vec::with_capacity(BLOCK);
        self.read_block(block, &mut |mark| {
            marks.push(mark);
            true
        })?;
        Ok(marks)
    }

    /// All marks in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Result<Mark, IndexError>> + use<'a> {
        let marks = *self;
        (0..marks.blocks()).flat_map(move |block| match marks.block(block) {
            Ok(block) => block.into_iter().map(Ok).collect(),
            Err(error) => vec![Err(error)],
        })
    }

    /// Checks that offsets ascend, and that the bytes are those that the writer writes.
    pub(crate) fn verify(&self) -> Result<(), IndexError> {
        let marks: Vec<Mark> = self.iter().collect::<Result<_, _>>()?;
        if !marks.is_sorted_by(|a, b| a.offset < b.offset) {
            return Err(self.part.bad("order of the marks", 0));
        }
        let mut again = Vec::new();
        encode(&marks, &mut again);
        match again == self.part.bytes()? {
            true => Ok(()),
            false => Err(self.part.bad("form of the marks", 0)),
        }
    }
}
