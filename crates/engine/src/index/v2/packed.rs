//! Numbers in blocks of 128, each block as small as its numbers allow.
//!
//! ```text
//! a block: head u8: bits, and 64 times the kind
//!   kind 0, near:      least varint; a number is the least and what is packed
//!   kind 1, few:       how many less one u8, the numbers that occur: the first varint, the others
//!                      less the one before, less one, varints; packed is the place among these
//!   kind 2, ascending: first varint, least step varint; packed is the step from the number before,
//!                      less the least one, and 0 for the first
//!   kind 3, patched:   like near, for all but some: how many less one u8, for each its place u8
//!                      and, as a varint, what is not packed; packed is 0 there
//!   what is packed: bit 0 of each of the numbers, then bit 1 of each, and so on: for each as many
//!                   bytes as it takes, the low bits of a byte first
//! ```
//!
//! Of the kinds that can hold the numbers, the shortest is written, of equals the first. Few are at
//! most 16. Patched has the bits that make it shortest, of equals the least.
//!
//! Since the bits of all numbers lie together, a number is looked for in all of a block at once, in
//! a few operations on 128 bits.

use std::ops::Range;

use tapdex_bitmap::{Work, run};

use super::bits::{Reader, bits_of, push_varint, varint_len};

/// Numbers of a block.
pub(crate) const BLOCK: usize = 128;
pub(super) const BLOCK_32: u32 = 128;
/// Numbers that a block of the kind *few* has, at most.
const FEW: usize = 16;

const NEAR: u8 = 0;
const ASCENDING: u8 = 2;
const PATCHED: u8 = 3;
const KIND_FEW: u8 = 1;

/// Rows and columns of 8 by 8 bits change places: bit `j` of byte `i` becomes bit `i` of byte `j`.
#[inline(always)]
fn transpose(mut x: u64) -> u64 {
    let swap = |x: u64, mask: u64, shift: u32| {
        let differ = (x ^ x >> shift) & mask;
        x ^ differ ^ differ << shift
    };
    x = swap(x, 0x00AA_00AA_00AA_00AA, 7);
    x = swap(x, 0x0000_CCCC_0000_CCCC, 14);
    swap(x, 0x0000_0000_F0F0_F0F0, 28)
}

/// Appends the lowest bits of numbers: first bit 0 of each, then bit 1, and so on.
#[inline(always)]
fn push_planes(numbers: &[u32; BLOCK], len: usize, bits: u32, target: &mut Vec<u8>) {
    let plane = len.div_ceil(8);
    let start = target.len();
    target.resize(start + plane * bits as usize, 0);
    let bytes = &mut target[start..];
    for (at, eight) in numbers.as_chunks::<8>().0[..plane].iter().enumerate() {
        for lane in 0..bits.div_ceil(8) {
            let low = eight.map(|number| (number >> (8 * lane)).to_le_bytes()[0]);
            let columns = transpose(u64::from_le_bytes(low)).to_le_bytes();
            let first = 8 * lane;
            for (bit, &column) in (first..bits.min(first + 8)).zip(&columns) {
                bytes[bit as usize * plane + at] = column;
            }
        }
    }
}

/// Appends a block of 1 to 128 numbers.
pub(super) fn push_block(numbers: &[u32], target: &mut Vec<u8>) {
    run(PushBlock { numbers, target });
}

/// A block that is to be appended.
struct PushBlock<'b> {
    numbers: &'b [u32],
    target: &'b mut Vec<u8>,
}

impl Work for PushBlock<'_> {
    type Result = ();

    #[inline(always)]
    fn run(self) {
        push_block_by(self.numbers, self.target);
    }
}

#[inline(always)]
fn push_block_by(numbers: &[u32], target: &mut Vec<u8>) {
    let len = numbers.len().min(BLOCK);
    let numbers = &numbers[..len];
    let plane = len.div_ceil(8);
    let range = |(least, most): (u32, u32), &number: &u32| (least.min(number), most.max(number));
    let (least, most) = numbers.iter().fold((u32::MAX, 0), range);
    let mut held = [0; BLOCK];
    let near_bits = bits_of(most - least);
    let near_len = varint_len(least.into()) + near_bits as usize * plane;
    let mut best = (near_len, NEAR, near_bits);
    let few = if near_bits > 1 { few(numbers, least, near_bits) } else { None };
    if let Some((list, count)) = &few {
        let bits = bits_of(u32::try_from(*count).unwrap_or(1) - 1);
        let steps =
            list[..*count].windows(2).map(|pair| varint_len((pair[1] - pair[0] - 1).into()));
        let bytes = 1 + varint_len(list[0].into()) + steps.sum::<usize>() + bits as usize * plane;
        best = best.min((bytes, KIND_FEW, bits));
    }
    let mut least_step = 0;
    if near_bits > 0 && numbers.is_sorted() {
        let steps = || numbers.windows(2).map(|pair| pair[1] - pair[0]);
        least_step = steps().min().unwrap_or(0);
        let bits = bits_of(steps().max().unwrap_or(0) - least_step);
        let bytes =
            varint_len(numbers[0].into()) + varint_len(least_step.into()) + bits as usize * plane;
        best = best.min((bytes, ASCENDING, bits));
    }
    if near_bits > 1 {
        let widths = widths(numbers, least, near_bits);
        let (mut patches, mut patched) = (0, 0);
        for bits in (0..near_bits).rev() {
            let wider = widths[bits as usize + 1];
            patches += wider * (1 + (bits as usize + 1).div_ceil(7));
            patched += wider;
            if patched > 0 {
                let bytes = 1 + varint_len(least.into()) + patches + bits as usize * plane;
                best = best.min((bytes, PATCHED, bits));
            }
        }
    }
    let (_, kind, bits) = best;
    target.push(kind << 6 | bits.to_le_bytes()[0]);
    match kind {
        KIND_FEW => {
            let Some((list, count)) = few else { return };
            let list = &list[..count];
            target.push(u8::try_from(count - 1).unwrap_or(0));
            push_varint(list[0].into(), target);
            list.windows(2).for_each(|pair| push_varint((pair[1] - pair[0] - 1).into(), target));
            for (slot, number) in held.iter_mut().zip(numbers) {
                *slot = list.iter().map(|other| u32::from(other < number)).sum();
            }
        }
        ASCENDING => {
            push_varint(numbers[0].into(), target);
            push_varint(least_step.into(), target);
            for (slot, pair) in held[1..].iter_mut().zip(numbers.windows(2)) {
                *slot = pair[1] - pair[0] - least_step;
            }
        }
        _ => {
            push_varint(least.into(), target);
            for (slot, number) in held.iter_mut().zip(numbers) {
                *slot = number - least;
            }
            if kind == PATCHED {
                let is_wide = |number: &u32| bits_of(*number) > bits;
                let count = held.iter().filter(|number| is_wide(number)).count();
                target.push(u8::try_from(count - 1).unwrap_or(0));
                for (place, slot) in (0..).zip(&mut held) {
                    if is_wide(slot) {
                        target.push(place);
                        push_varint(std::mem::take(slot).into(), target);
                    }
                }
            }
        }
    }
    push_planes(&held, len, bits, target);
}

/// How many numbers have how many bits above the least; all have at most `bits`, which is not 0.
#[inline(always)]
fn widths(numbers: &[u32], least: u32, bits: u32) -> [usize; 33] {
    let mut widths = [0; 33];
    if bits > 8 {
        numbers.iter().for_each(|number| widths[bits_of(number - least) as usize] += 1);
        return widths;
    }
    // If there are few widths, looking at all numbers for each is faster.
    let mut before = 0;
    for width in 0..bits {
        let up_to = numbers.iter().map(|number| u32::from((number - least) >> width == 0));
        let up_to = up_to.sum::<u32>() as usize;
        widths[width as usize] = up_to - before;
        before = up_to;
    }
    widths[bits as usize] = numbers.len() - before;
    widths
}

/// The numbers that occur, ascending, and how many they are; `None` if they are too many. All have
/// at most `bits` above the least.
#[inline(always)]
fn few(numbers: &[u32], least: u32, bits: u32) -> Option<([u32; FEW], usize)> {
    let mut list = [0; FEW];
    let mut count = 0;
    if bits <= 6 {
        let mut left = numbers.iter().fold(0_u64, |bits, number| bits | 1 << (number - least));
        if left.count_ones() as usize > FEW {
            return None;
        }
        while left != 0 {
            list[count] = least + left.trailing_zeros();
            left &= left - 1;
            count += 1;
        }
        return Some((list, count));
    }
    for &number in numbers {
        if list[..count].contains(&number) {
            continue;
        }
        if count == FEW {
            return None;
        }
        list[count] = number;
        count += 1;
    }
    list[..count].sort_unstable();
    Some((list, count))
}

/// Some numbers, as ascending ranges that do not touch.
#[derive(Debug, Clone, Copy)]
pub(super) struct Wanted<'w> {
    pub(super) ranges: &'w [Range<u32>],
}

impl Wanted<'_> {
    fn contains(&self, number: u32) -> bool {
        let at = self.ranges.partition_point(|range| range.end <= number);
        self.ranges.get(at).is_some_and(|range| range.start <= number)
    }
}

/// A block, read in place.
#[derive(Debug, Clone, Copy)]
pub(super) struct Block<'a> {
    kind: u8,
    bits: u32,
    len: usize,
    /// The least number, or the first one.
    least: u32,
    /// The least step, or how many numbers or patches there are.
    other: u32,
    /// Of the numbers that occur, or of the patches.
    list: Reader<'a>,
    planes: &'a [u8],
}

impl<'a> Block<'a> {
    /// Reads the block of `len` numbers, 1 to 128, that comes next; `None` if it is none.
    #[inline(always)]
    pub(super) fn read(bytes: &mut Reader<'a>, len: usize) -> Option<Self> {
        let head = bytes.byte()?;
        let (kind, bits) = (head >> 6, u32::from(head & 63));
        let mut few = 0;
        if kind == KIND_FEW {
            few = bytes.byte()?;
        }
        let least = bytes.varint32()?;
        let mut other = u32::from(few) + 1;
        match kind {
            ASCENDING => other = bytes.varint32()?,
            PATCHED => other = u32::from(bytes.byte()?) + 1,
            KIND_FEW if usize::from(few) >= FEW => return None,
            _ => {}
        }
        let list = *bytes;
        match kind {
            KIND_FEW => {
                for _ in 1..other {
                    bytes.varint32()?;
                }
            }
            PATCHED => {
                for _ in 0..other {
                    bytes.byte()?;
                    bytes.varint32()?;
                }
            }
            _ => {}
        }
        if bits > 32 {
            return None;
        }
        let planes = bytes.take(len.div_ceil(8) * bits as usize)?;
        Some(Self { kind, bits, len, least, other, list, planes })
    }

    /// A bit of each number.
    #[inline(always)]
    fn plane(&self, bit: u32) -> u128 {
        let plane = self.len.div_ceil(8);
        let bytes = &self.planes[bit as usize * plane..];
        match bytes.first_chunk() {
            Some(bytes) if plane == 16 => u128::from_le_bytes(*bytes),
            _ => {
                let mut all = [0; 16];
                all[..plane].copy_from_slice(&bytes[..plane]);
                u128::from_le_bytes(all)
            }
        }
    }

    /// How many numbers it has.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// All places.
    #[inline(always)]
    fn all(&self) -> u128 {
        u128::MAX >> (BLOCK - self.len)
    }

    /// Where what is packed is a number.
    #[inline(always)]
    fn equal(&self, number: u32) -> u128 {
        let mut found = self.all();
        for bit in 0..self.bits {
            let plane = self.plane(bit);
            found &= if number >> bit & 1 == 1 { plane } else { !plane };
        }
        found
    }

    /// Where what is packed is less than a number, which may have one bit more.
    #[inline(always)]
    fn below(&self, number: u64) -> u128 {
        if number >> self.bits != 0 {
            return self.all();
        }
        let (mut less, mut equal) = (0, self.all());
        for bit in (0..self.bits).rev() {
            let plane = self.plane(bit);
            if number >> bit & 1 == 1 {
                less |= equal & !plane;
                equal &= plane;
            } else {
                equal &= !plane;
            }
        }
        less
    }

    /// Where what is packed is in a range.
    #[inline(always)]
    fn inside(&self, start: u64, end: u64) -> u128 {
        if start + 1 == end {
            return match u32::try_from(start) {
                Ok(number) if start >> self.bits == 0 => self.equal(number),
                _ => 0,
            };
        }
        self.below(end) & !self.below(start)
    }

    /// Where a number is one of those that are wanted, bit by bit; `None` if the block is none.
    #[inline(always)]
    pub(super) fn places(&self, wanted: Wanted<'_>) -> Option<u128> {
        match self.kind {
            NEAR => Some(self.near(wanted)),
            KIND_FEW => {
                let (mut found, mut from) = (0, None);
                let (mut list, mut number) = (self.list, self.least);
                for place in 0..self.other {
                    if place > 0 {
                        number = number.checked_add(list.varint32()?)?.checked_add(1)?;
                    }
                    match (wanted.contains(number), from) {
                        (true, None) => from = Some(place),
                        (false, Some(start)) => {
                            found |= self.inside(u64::from(start), place.into());
                            from = None;
                        }
                        _ => {}
                    }
                }
                if let Some(start) = from {
                    found |= self.inside(start.into(), self.other.into());
                }
                Some(found)
            }
            PATCHED => {
                let mut found = self.near(wanted);
                let mut list = self.list;
                for _ in 0..self.other {
                    let (place, more) = (list.byte()?, list.varint32()?);
                    let number = self.least.checked_add(more)?;
                    let bit = 1_u128.checked_shl(place.into())?;
                    found = if wanted.contains(number) { found | bit } else { found & !bit };
                }
                Some(found & self.all())
            }
            _ => {
                if wanted.ranges.last().is_none_or(|range| range.end <= self.least) {
                    return Some(0);
                }
                let mut numbers = [0; BLOCK];
                self.numbers(&mut numbers)?;
                let (first, last) = (self.least, numbers[self.len - 1]);
                let at = wanted.ranges.partition_point(|range| range.end <= first);
                let near = wanted.ranges[at..].iter().take_while(|range| range.start <= last);
                let mut found = 0;
                for range in near {
                    let start = numbers[..self.len].partition_point(|&n| n < range.start);
                    let end = numbers[..self.len].partition_point(|&n| n < range.end);
                    if start < end {
                        found |= u128::MAX >> (BLOCK - (end - start)) << start;
                    }
                }
                Some(found)
            }
        }
    }

    #[inline(always)]
    fn near(&self, wanted: Wanted<'_>) -> u128 {
        let ranges = match wanted.ranges {
            [_] => wanted.ranges,
            many => &many[many.partition_point(|range| range.end <= self.least)..],
        };
        let end = u64::from(self.least) + (1_u64 << self.bits);
        let mut found = 0;
        for range in ranges.iter().take_while(|range| u64::from(range.start) < end) {
            if range.end > self.least {
                let start = range.start.saturating_sub(self.least);
                found |= self.inside(start.into(), (range.end - self.least).into());
            }
        }
        found
    }

    /// The sum of the numbers at some places, bit by bit; `None` if the block is none.
    #[inline(always)]
    pub(super) fn sum(&self, places: u128) -> Option<u64> {
        let places = places & self.all();
        let count = |places: u128| u64::from(places.count_ones());
        match self.kind {
            KIND_FEW => {
                let (mut sum, mut found) = (0, 0);
                let (mut list, mut number) = (self.list, self.least);
                for place in 0..self.other {
                    if place > 0 {
                        number = number.checked_add(list.varint32()?)?.checked_add(1)?;
                    }
                    let here = count(self.inside(place.into(), u64::from(place) + 1) & places);
                    sum += here * u64::from(number);
                    found += here;
                }
                (found == count(places)).then_some(sum)
            }
            ASCENDING => {
                let mut numbers = [0; BLOCK];
                self.numbers(&mut numbers)?;
                let chosen = numbers[..self.len].iter().zip(0..).map(|(&number, place)| {
                    if places >> place & 1 == 1 { u64::from(number) } else { 0 }
                });
                Some(chosen.sum())
            }
            _ => {
                let mut sum = count(places) * u64::from(self.least);
                for bit in 0..self.bits {
                    sum += count(self.plane(bit) & places) << bit;
                }
                let mut bytes = self.list;
                for _ in 0..if self.kind == PATCHED { self.other } else { 0 } {
                    let (place, more) = (bytes.byte()?, bytes.varint32()?);
                    let is_chosen = usize::from(place) < self.len && places >> place & 1 == 1;
                    sum += if is_chosen { u64::from(more) } else { 0 };
                }
                Some(sum)
            }
        }
    }

    /// The numbers; `None` if the block is none.
    #[inline(always)]
    pub(super) fn numbers(&self, target: &mut [u32; BLOCK]) -> Option<()> {
        let plane = self.len.div_ceil(8);
        *target = [0; BLOCK];
        for (at, eight) in target.as_chunks_mut::<8>().0[..plane].iter_mut().enumerate() {
            for lane in 0..self.bits.div_ceil(8) {
                let first = 8 * lane;
                let mut columns = [0; 8];
                for (bit, column) in (first..self.bits.min(first + 8)).zip(&mut columns) {
                    *column = self.planes[bit as usize * plane + at];
                }
                let low = transpose(u64::from_le_bytes(columns)).to_le_bytes();
                for (number, low) in eight.iter_mut().zip(low) {
                    *number |= u32::from(low) << first;
                }
            }
        }
        let target = &mut target[..self.len];
        match self.kind {
            KIND_FEW => {
                let mut list = [0_u32; FEW];
                let (mut bytes, mut number) = (self.list, self.least);
                for (place, slot) in list[..self.other as usize].iter_mut().enumerate() {
                    if place > 0 {
                        number = number.checked_add(bytes.varint32()?)?.checked_add(1)?;
                    }
                    *slot = number;
                }
                for number in target {
                    *number = *list[..self.other as usize].get(*number as usize)?;
                }
            }
            ASCENDING => {
                let mut sum = u64::from(self.least);
                let step = u64::from(self.other);
                target[0] = 0;
                for (at, number) in target.iter_mut().enumerate() {
                    if at > 0 {
                        sum += step + u64::from(*number);
                    }
                    *number = u32::try_from(sum).ok()?;
                }
            }
            _ => {
                let mut bytes = self.list;
                for _ in 0..if self.kind == PATCHED { self.other } else { 0 } {
                    let (place, more) = (bytes.byte()?, bytes.varint32()?);
                    *target.get_mut(usize::from(place))? = more;
                }
                for number in target {
                    *number = number.checked_add(self.least)?;
                }
            }
        }
        Some(())
    }
}

/// Appends a list of numbers: where each 64 blocks start, but the first, u32; then the blocks.
pub(super) fn push_numbers(numbers: &[u32], target: &mut Vec<u8>) {
    let mut list = Numbers::new(numbers.len());
    numbers.chunks(BLOCK).for_each(|block| list.push(block));
    target.extend(list.bytes);
}

/// A list of numbers that is written block by block.
#[derive(Debug)]
pub(super) struct Numbers {
    pub(super) bytes: Vec<u8>,
    blocks: usize,
    start: usize,
}

impl Numbers {
    /// A list of so many numbers.
    pub(super) fn new(len: usize) -> Self {
        let groups = len.div_ceil(BLOCK).div_ceil(GROUP);
        let start = 4 * (groups.max(1) - 1);
        Self { bytes: vec![0; start], blocks: 0, start }
    }

    /// Adds 128 numbers, or the last ones.
    pub(super) fn push(&mut self, block: &[u32]) {
        if self.blocks > 0 && self.blocks.is_multiple_of(GROUP) {
            let start = u32::try_from(self.bytes.len() - self.start).unwrap_or(u32::MAX);
            let slot = 4 * (self.blocks / GROUP - 1);
            self.bytes[slot..slot + 4].copy_from_slice(&start.to_le_bytes());
        }
        push_block(block, &mut self.bytes);
        self.blocks += 1;
    }
}

/// Appends a block of 1 to 128 numbers of 64 bits, as two blocks: what they are modulo 2^32, and
/// divided by it.
pub(super) fn push_longs(numbers: impl Iterator<Item = u64> + Clone, target: &mut Vec<u8>) {
    for shift in [0, 32] {
        let mut halves = [0; BLOCK];
        let mut len = 0;
        for (half, number) in halves.iter_mut().zip(numbers.clone()) {
            *half = u32::try_from(number >> shift & u64::from(u32::MAX)).unwrap_or(0);
            len += 1;
        }
        push_block(&halves[..len], target);
    }
}

/// Reads `len` numbers of 64 bits; `None` if they are none.
pub(super) fn read_longs(bytes: &mut Reader<'_>, len: usize) -> Option<[u64; BLOCK]> {
    let (mut longs, mut halves) = ([0; BLOCK], [0; BLOCK]);
    for shift in [0, 32] {
        Block::read(bytes, len)?.numbers(&mut halves)?;
        for (long, &half) in longs.iter_mut().zip(&halves[..len]) {
            *long |= u64::from(half) << shift;
        }
    }
    Some(longs)
}

/// Blocks whose starts are counted from the same place.
pub(crate) const GROUP: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    fn shapes() -> Vec<Vec<u32>> {
        let mut random = 1_u64;
        let mut next = || {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            u32::try_from(random >> 33).unwrap_or(0)
        };
        let mut shapes = Vec::new();
        for len in [1, 2, 7, 8, 9, 64, 100, 127, 128] {
            for bits in 0..=32 {
                let mask = u32::try_from((1_u64 << bits) - 1).unwrap_or(0);
                shapes.push((0..len).map(|_| (next() << 1 ^ next()) & mask).collect());
                shapes.push((0..len).map(|i| (i * 3).min(mask)).collect());
                shapes.push((0..len).map(|i| 1_000 + i % 3 * (mask / 4)).collect());
                shapes.push((0..len).map(|i| if i % 50 == 3 { mask } else { 5 }).collect());
                shapes.push((0..len).map(|i| u32::MAX - i % 2 * (mask >> 1)).collect());
            }
        }
        shapes
    }

    #[test]
    fn numbers_come_back_and_are_found() {
        let mut kinds = [0; 4];
        for numbers in shapes() {
            let mut bytes = Vec::new();
            push_block(&numbers, &mut bytes);
            let mut reader = Reader::new(&bytes);
            let block = Block::read(&mut reader, numbers.len()).unwrap();
            assert!(reader.is_at_end());
            kinds[usize::from(block.kind)] += 1;
            let mut again = [0; BLOCK];
            block.numbers(&mut again).unwrap();
            assert_eq!(again[..numbers.len()], numbers);
            for places in [0, 1, 0x0F0F_3355 << 70 | 0x8421_FACE, u128::MAX] {
                let chosen = (0..).zip(&numbers).filter(|(place, _)| places >> place & 1 == 1);
                let sum: u64 = chosen.map(|(_, &number)| u64::from(number)).sum();
                assert_eq!(block.sum(places), Some(sum), "{numbers:?}");
            }
            let (least, most) = (*numbers.iter().min().unwrap(), *numbers.iter().max().unwrap());
            let some = [numbers[0], numbers[numbers.len() / 2], least, most, 0, 7, u32::MAX - 1];
            for number in some {
                let end = number.saturating_add(1);
                let some: [&[(u32, u32)]; 4] = [
                    &[(number, end)],
                    &[(0, end)],
                    &[(number, u32::MAX)],
                    &[(0, number / 2), (number, end)],
                ];
                for pairs in some {
                    let ranges = pairs.iter().map(|&(start, end)| start..end);
                    let ranges: Vec<_> = ranges.filter(|range| !range.is_empty()).collect();
                    let found = block.places(Wanted { ranges: &ranges }).unwrap();
                    let expected = (0..).zip(&numbers).fold(0_u128, |bits, (at, number)| {
                        let is_in = ranges.iter().any(|range| range.contains(number));
                        bits | u128::from(is_in) << at
                    });
                    assert_eq!(found, expected, "{ranges:?} {:?}", block.kind);
                }
            }
            for cut in 0..bytes.len() {
                assert!(Block::read(&mut Reader::new(&bytes[..cut]), numbers.len()).is_none());
            }
        }
        assert!(kinds.iter().all(|&count| count > 20), "{kinds:?}");
    }
}
