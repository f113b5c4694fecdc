//! Lists: for each value the entries that have it.
//!
//! Blocks of 64 lists are found alone:
//!
//! ```text
//! how many values have bits varint, their ids varints
//! for each block but the first: where its lists start, u32
//! for each value: a varint; if it is even, its half is the only entry
//!                 if it is odd, its half is
//!                 0: the value has bits
//!                 1 to 7, d: varint first entry, then d differences between neighbours, less
//!                 one, as varints
//!                 8 and more: that many bytes, less 8, follow: varint entries less 9, varint first
//!                 entry, then the differences, less one: 64 at a time
//!                 if 8 or more are left: their bits u8, then packed; otherwise varints
//! for each value that has bits: one for each entry of the column, the low bits of a byte first
//! ```
//!
//! A value has bits if it has more than eight entries, and at least every eighth of the column; or
//! if it has 16,384 entries, and at least every sixteenth. Bits are read where they are needed, and
//! fast.

use super::super::bits::{Reader, bits_of, pack, packed_len, push_bits, push_varint, unpack};
use super::super::field::push_run;
use super::{Postings, Sorted, push_blocks};
use crate::error::IndexError;

/// Differences of a list that are packed together.
const GAPS: usize = 64;
/// Fewer than this are varints.
const PACKED_FROM: usize = 8;
/// A value that at least one of so many entries has is written as bits, if its list is not long,
/// and if it is: then bits take more bytes, but less time.
const BITS_SHARE: usize = 8;
const BITS_SHARE_LONG: usize = 16;
/// Entries of a long list, at least.
const LONG: usize = 16_384;

/// Whether a list of so many entries of a column is written as bits.
fn is_bits(list: usize, entries: usize) -> bool {
    let share = if list < LONG { BITS_SHARE } else { BITS_SHARE_LONG };
    list > PACKED_FROM && list * share >= entries
}

/// Appends the lists of a column.
pub(super) fn encode_lists(sorted: &Sorted, target: &mut Vec<u8>) {
    let mut body = Vec::new();
    let entries = sorted.entries.len();
    let with_bits: Vec<usize> =
        (0..sorted.len()).filter(|&id| is_bits(sorted.list(id).len(), entries)).collect();
    push_varint(with_bits.len() as u128, target);
    with_bits.iter().for_each(|&id| push_varint(id as u128, target));
    push_blocks(
        sorted.len(),
        |id, target| {
            let list = sorted.list(id);
            let (&[first, ref rest @ ..], true) = (list, list.len() > 1) else {
                return push_varint(2 * u128::from(list[0]), target);
            };
            if is_bits(list.len(), entries) {
                return push_varint(1, target);
            }
            let mut before = first;
            if rest.len() < PACKED_FROM {
                push_varint(2 * rest.len() as u128 + 1, target);
                push_varint(first.into(), target);
                for &entry in rest {
                    push_varint((entry - before - 1).into(), target);
                    before = entry;
                }
                return;
            }
            body.clear();
            push_varint((rest.len() - PACKED_FROM) as u128, &mut body);
            push_varint(first.into(), &mut body);
            let mut gaps = [0; GAPS];
            for block in rest.chunks(GAPS) {
                for (gap, &entry) in gaps.iter_mut().zip(block) {
                    *gap = entry - before - 1;
                    before = entry;
                }
                let gaps = &gaps[..block.len()];
                if gaps.len() < PACKED_FROM {
                    gaps.iter().for_each(|&gap| push_varint(gap.into(), &mut body));
                } else {
                    let bits = bits_of(gaps.iter().fold(0, |bits, gap| bits | gap));
                    body.extend(bits.to_le_bytes().first());
                    pack(gaps, bits, &mut body);
                }
            }
            push_varint(2 * (body.len() + PACKED_FROM) as u128 + 1, target);
            target.extend_from_slice(&body);
        },
        target,
    );
    for id in with_bits {
        push_bits(sorted.list(id).iter().map(|&entry| entry as usize), entries, target);
    }
}

/// Where the lists of a column are, and which values have bits instead.
pub(super) struct ListsHead {
    /// Where the starts of blocks are.
    pub(super) starts: usize,
    /// Where the lists end and the bits start.
    pub(super) bits: usize,
    /// The ids of the values that have bits, and how many those are.
    ids: [u32; BITS_SHARE_LONG],
    count: usize,
}

impl ListsHead {
    /// Which of the bits are those of a value.
    fn place(&self, id: u32) -> Option<usize> {
        self.ids[..self.count].iter().position(|&other| other == id)
    }
}

/// The list of a value, read in place.
pub(super) enum List<'a> {
    /// The only entry.
    One(u32),
    /// So many differences follow, as varints.
    Few(usize, Reader<'a>),
    /// The differences, packed, and whatever follows in the file.
    Many(Reader<'a>, &'a [u8]),
    /// There is a bit for each entry, elsewhere.
    Bits,
}

impl<'a> List<'a> {
    /// Reads a list of a column of so many entries, and what follows it.
    #[inline]
    pub(super) fn read(bytes: &mut Reader<'a>, entries: u32) -> Option<Self> {
        let head = bytes.varint()?;
        if head & 1 == 0 {
            return u32::try_from(head >> 1).ok().filter(|&entry| entry < entries).map(Self::One);
        }
        match usize::try_from(head >> 1).ok()? {
            0 => Some(Self::Bits),
            few @ 1..PACKED_FROM => {
                let list = *bytes;
                (0..=few).try_for_each(|_| bytes.varint32().map(drop))?;
                Some(Self::Few(few, list))
            }
            len => {
                let all = bytes.rest();
                Some(Self::Many(Reader::new(bytes.take(len - PACKED_FROM)?), all))
            }
        }
    }

    /// Passes its entries to `each`, ascending; `None` if they are none below `entries`, or bits.
    #[inline(always)]
    pub(super) fn decode(self, entries: u32, each: &mut impl FnMut(u32)) -> Option<()> {
        let (mut left, mut list, all) = match self {
            Self::One(entry) => {
                each(entry);
                return Some(());
            }
            Self::Bits => return None,
            Self::Few(left, list) => (left, list, None),
            Self::Many(mut list, all) => {
                let left = (list.varint32()? as usize).checked_add(PACKED_FROM)?;
                (left, list, Some(all))
            }
        };
        let mut entry = list.varint32().filter(|&entry| entry < entries)?;
        // Every difference has at most 32 bits, so with a wider sum this cannot overflow.
        let mut sum = u64::from(entry);
        each(entry);
        let mut gaps = [0; GAPS];
        while left > 0 {
            let gaps = &mut gaps[..left.min(GAPS)];
            if gaps.len() < PACKED_FROM {
                for gap in gaps.iter_mut() {
                    *gap = list.varint32()?;
                }
            } else {
                let bits = u32::from(list.byte()?);
                if bits > 32 {
                    return None;
                }
                let packed = all?.get(list.at..)?;
                list.take(packed_len(gaps.len(), bits))?;
                unpack(packed, bits, gaps);
            }
            // They ascend, so it is enough to check the last one.
            sum += gaps.iter().map(|&gap| u64::from(gap) + 1).sum::<u64>();
            if sum >= u64::from(entries) {
                return None;
            }
            for &gap in gaps.iter() {
                entry += gap + 1;
                each(entry);
            }
            left -= gaps.len();
        }
        (all.is_none() || list.is_at_end()).then_some(())
    }
}

impl<'a> Postings<'a> {
    pub(super) fn lists_head(&self) -> Result<ListsHead, IndexError> {
        let mut reader =
            Reader::new(self.part.read(0, self.part.len.min(5 * (1 + BITS_SHARE_LONG)))?);
        let mut read = || {
            let count = reader.varint32()? as usize;
            let mut head = ListsHead { starts: 0, bits: 0, ids: [0; BITS_SHARE_LONG], count };
            for id in head.ids.get_mut(..count)? {
                *id = reader.varint32()?;
            }
            head.starts = reader.at;
            let bits = count.checked_mul((self.entries as usize).div_ceil(8))?;
            head.bits = self.part.len.checked_sub(bits).filter(|&end| end >= head.starts)?;
            Some(head)
        };
        read().ok_or_else(|| self.part.bad("head of the lists", 0))
    }

    /// The bits of a value that has such.
    pub(super) fn bits(&self, id: u32) -> Result<&'a [u8], IndexError> {
        let (head, len) = (self.lists_head()?, (self.entries as usize).div_ceil(8));
        let bad = || self.part.bad("bits of a value", head.bits);
        let bits = self.part.read(head.bits + head.place(id).ok_or_else(bad)? * len, len)?;
        // No bit stands for an entry that is not there.
        let past = bits.last().copied().unwrap_or(0) >> (self.entries % 8);
        match self.entries.is_multiple_of(8) || past == 0 {
            true => Ok(bits),
            false => Err(bad()),
        }
    }

    /// Whether each of some entries has a value that has bits; `None` if it has no bits. Only the
    /// bits of these entries are read, which are given as runs; those that have it are, too.
    pub(in super::super) fn bits_in(
        &self,
        id: u32,
        entries: &[(u32, u32)],
    ) -> Result<Option<Vec<(u32, u32)>>, IndexError> {
        let (head, len) = (self.lists_head()?, (self.entries as usize).div_ceil(8));
        let Some(place) = head.place(id) else { return Ok(None) };
        let start = head.bits + place * len;
        let mut found = Vec::new();
        for &(first, last) in entries {
            let (from, to) = (first as usize / 8, last as usize / 8);
            let bytes = self.part.read(start + from, to + 1 - from)?;
            for entry in first..=last {
                if bytes[entry as usize / 8 - from] >> (entry % 8) & 1 == 1 {
                    push_run(&mut found, entry, entry + 1);
                }
            }
        }
        Ok(Some(found))
    }
}
