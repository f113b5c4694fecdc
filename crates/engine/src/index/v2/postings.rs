//! Which entries of a column have which value, in one of three forms.
//!
//! **Lists.** For each value the entries that have it. Blocks of 64 lists are found alone:
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
//!
//! **Packed.** The id of each entry's value, in blocks of 128 numbers ([`packed`](super::packed)):
//!
//! ```text
//! for each 64 blocks but the first: where they start, u32
//! blocks
//! ```
//!
//! **Bitmaps** of one codec, laid out as lists are: a varint with the number of bytes, and the
//! bitmap. In a column of packets the longest bitmap, the first of those if there are several, is
//! left out and has no bytes: the value is that of all entries that are in no other bitmap.

use std::ops::Range;

use tapdex_bitmap::{BitSet, Bitmap, Chunks, Codec, union};

use super::bits::{Reader, bits_of, pack, packed_len, push_varint, u32_at, unpack};
use super::field::push_run;
use super::packed::{self, Wanted, push_numbers};
use super::section::Part;
use crate::error::IndexError;

/// Lists of a block.
const BLOCK: usize = 64;
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
#[derive(Debug, Default)]
pub(crate) struct Sorted {
    /// The values that occur, ascending.
    pub(crate) values: Vec<u128>,
    /// Where the entries of each value start, and where the last ones end.
    pub(crate) starts: Vec<u32>,
    pub(crate) entries: Vec<u32>,
}

impl Sorted {
    pub(super) fn list(&self, id: usize) -> &[u32] {
        &self.entries[self.starts[id] as usize..self.starts[id + 1] as usize]
    }

    pub(super) fn len(&self) -> usize {
        self.values.len()
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
        let start = target.len();
        target.resize(start + entries.div_ceil(8), 0);
        let bits = &mut target[start..];
        sorted.list(id).iter().for_each(|&entry| bits[entry as usize / 8] |= 1 << (entry % 8));
    }
}

/// Where the lists of a column are, and which values have bits instead.
struct ListsHead {
    /// Where the starts of blocks are.
    starts: usize,
    /// Where the lists end and the bits start.
    bits: usize,
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
enum List<'a> {
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
    fn read(bytes: &mut Reader<'a>, entries: u32) -> Option<Self> {
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
    fn decode(self, entries: u32, each: &mut impl FnMut(u32)) -> Option<()> {
        let (mut left, mut list, all) = match self {
            Self::One(entry) => {
                each(entry);
                return Some(());
            }
            Self::Bits => return None,
            Self::Few(left, list) => (left, list, &[][..]),
            Self::Many(mut list, all) => (list.varint32()?.checked_add(8)? as usize, list, all),
        };
        let is_many = !all.is_empty();
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
                let packed = all.get(list.at..)?;
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
        (!is_many || list.is_at_end()).then_some(())
    }
}

/// The bits of bytes as words, the last one filled up with zeros.
pub(super) fn words_of(bits: &[u8]) -> impl Iterator<Item = u64> {
    bits.chunks(8).map(|bytes| match bytes.first_chunk() {
        Some(word) => u64::from_le_bytes(*word),
        None => {
            let mut word = [0; 8];
            word[..bytes.len()].copy_from_slice(bytes);
            u64::from_le_bytes(word)
        }
    })
}

/// Passes the numbers of the bits that are set to `each`.
#[inline(always)]
pub(super) fn for_each_bit(bits: &[u8], each: &mut impl FnMut(u32)) {
    for (base, mut word) in (0..).step_by(64).zip(words_of(bits)) {
        while word != 0 {
            each(base + word.trailing_zeros());
            word &= word - 1;
        }
    }
}

/// The id of each entry.
fn ids(sorted: &Sorted) -> Vec<u32> {
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

/// How many times as long as the packed form the others may be: a look-up reads one list or bitmap,
/// but all packed blocks.
#[derive(Debug, Clone, Copy)]
pub(super) struct PackedWeight(Option<usize>);

impl PackedWeight {
    /// In a column of packets: their values are asked for in large groups, as are the flags of TCP.
    pub(super) const PACKETS: Self = Self(Some(2));
    /// In a column of conversations or of their ends, where single values are looked for.
    pub(super) const FLOWS: Self = Self(Some(3));
    /// The packed form is not considered.
    pub(super) const NEVER: Self = Self(None);

    /// What so many packed bytes weigh.
    pub(super) fn of(self, packed: usize) -> usize {
        self.0.map_or(usize::MAX, |weight| weight * packed)
    }
}

/// The least bytes of bitmaps of MASC that have so many runs: a run takes a word at least, and a
/// bitmap a byte for its length.
pub(super) fn masc_least(runs: usize, values: usize) -> usize {
    4 * runs + values
}

/// The values that occur among digits, their packed form, and how many runs of the same digit there
/// are.
pub(super) fn pack_digits<D: PartialEq>(
    digits: &[D],
    value: impl Fn(&D) -> u16,
) -> (Vec<u128>, Vec<u8>, usize) {
    let mut ids = vec![u32::MAX; 1 << (8 * size_of::<D>())];
    digits.iter().for_each(|digit| ids[usize::from(value(digit))] = 0);
    let mut values = Vec::new();
    for (value, id) in ids.iter_mut().enumerate().filter(|(_, id)| **id == 0) {
        *id = u32::try_from(values.len()).unwrap_or(u32::MAX);
        values.push(value as u128);
    }
    let runs = digits.windows(2).filter(|pair| pair[0] != pair[1]).count() + 1;
    let mut numbers = [0; packed::BLOCK];
    let mut packed = packed::Numbers::new(digits.len());
    for block in digits.chunks(packed::BLOCK) {
        for (number, digit) in numbers.iter_mut().zip(block) {
            *number = ids[usize::from(value(digit))];
        }
        packed.push(&numbers[..block.len()]);
    }
    (values, packed.bytes, runs)
}

/// The form of a column, and its bytes; the longest bitmap is left out if `implied`.
///
/// The rule, on the whole column: bitmaps of MASC (runs), lists, or the packed form, whichever has
/// the fewest bytes, those of the packed form [weighed](PackedWeight), since a look-up reads all of
/// them. Of equals the first. Bitmaps count as [`masc_least`] at least, even if one is left out.
pub(super) fn choose(
    sorted: &Sorted,
    weight: PackedWeight,
    implied: bool,
    target: &mut Vec<u8>,
) -> Form {
    let start = target.len();
    let runs: usize = (0..sorted.len()).map(|id| count_runs(sorted.list(id))).sum();
    let masc_least = masc_least(runs, sorted.len());
    let encode_masc = || {
        let mut masc = Vec::new();
        encode_form(sorted, Form::Bitmaps(Codec::Masc), implied, &mut masc);
        masc
    };
    // If runs are few, the other forms need not be tried: a list takes a byte, and one more for
    // every 64 differences; a packed block of 128 takes two.
    let (values, entries) = (sorted.len(), sorted.entries.len());
    let others_least = (values + (entries - values) / 64).min(weight.of(entries / 64));
    let mut masc = None;
    if masc_least <= others_least {
        let bytes = masc.insert(encode_masc());
        if bytes.len() <= others_least {
            target.extend_from_slice(bytes);
            return Form::Bitmaps(Codec::Masc);
        }
    }
    encode_lists(sorted, target);
    let lists_len = target.len() - start;
    let mut packed = Vec::new();
    if weight.0.is_some() {
        push_numbers(&ids(sorted), &mut packed);
    }
    let others = lists_len.min(weight.of(packed.len()));
    if masc_least <= others {
        let masc = masc.unwrap_or_else(encode_masc);
        if masc.len() <= others {
            target.truncate(start);
            target.extend(masc);
            return Form::Bitmaps(Codec::Masc);
        }
    }
    if lists_len <= weight.of(packed.len()) {
        return Form::Lists;
    }
    target.truncate(start);
    target.extend(packed);
    Form::Packed
}

/// How many runs ascending entries have.
fn count_runs(list: &[u32]) -> usize {
    1 + list.windows(2).filter(|pair| pair[0] + 1 != pair[1]).count()
}

/// Appends a column in a form.
pub(super) fn encode_form(sorted: &Sorted, form: Form, implied: bool, target: &mut Vec<u8>) {
    match form {
        Form::Lists => encode_lists(sorted, target),
        Form::Packed => push_numbers(&ids(sorted), target),
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

/// Decodes packed blocks, in ascending order.
struct PackedCursor<'a> {
    postings: Postings<'a>,
    /// The blocks whose starts are counted from the same place, and where in the part they start.
    group: usize,
    reader: Reader<'a>,
    at: usize,
    /// The block that comes next in the group.
    next: u32,
    /// The block whose numbers are here.
    here: Option<u32>,
    numbers: [u32; packed::BLOCK],
    len: usize,
}

impl<'a> PackedCursor<'a> {
    fn new(postings: Postings<'a>) -> Self {
        let (group, reader, numbers) = (usize::MAX, Reader::new(&[]), [0; packed::BLOCK]);
        Self { postings, group, reader, at: 0, next: 0, here: None, numbers, len: 0 }
    }

    /// Goes to the start of a group of blocks.
    fn go_to(&mut self, group: usize) -> Result<(), IndexError> {
        let part = self.postings.part;
        let blocks = (self.postings.entries as usize).div_ceil(packed::BLOCK);
        let groups = blocks.div_ceil(packed::GROUP).max(1);
        let heads = 4 * (groups - 1);
        let start = |group: usize| -> Result<usize, IndexError> {
            match group {
                0 => Ok(heads),
                _ if group >= groups => Ok(part.len),
                _ => Ok(heads + u32_at(part.read(4 * (group - 1), 4)?, 0) as usize),
            }
        };
        let (from, to) = (start(group)?, start(group + 1)?);
        self.reader = Reader::new(part.read(from, to.saturating_sub(from))?);
        (self.group, self.at) = (group, from);
        self.next = u32::try_from(group * packed::GROUP).unwrap_or(u32::MAX);
        Ok(())
    }

    /// A block. There is such a one.
    fn block(&mut self, block: u32) -> Result<packed::Block<'a>, IndexError> {
        let group = block as usize / packed::GROUP;
        if group != self.group || block < self.next {
            self.go_to(group)?;
        }
        loop {
            let first = self.next.saturating_mul(packed::BLOCK_32);
            let left = self.postings.entries.saturating_sub(first);
            let len = left.min(packed::BLOCK_32) as usize;
            let at = self.at + self.reader.at;
            let found = match len {
                0 => None,
                _ => packed::Block::read(&mut self.reader, len),
            };
            let found = found.ok_or_else(|| self.postings.part.bad("ids", at))?;
            self.next += 1;
            if self.next > block {
                return Ok(found);
            }
        }
    }

    /// The numbers of a block.
    fn numbers(&mut self, block: u32) -> Result<&[u32], IndexError> {
        if self.here != Some(block) {
            self.here = None;
            let found = self.block(block)?;
            let bad = || self.postings.part.bad("ids", self.at);
            found.numbers(&mut self.numbers).ok_or_else(bad)?;
            (self.here, self.len) = (Some(block), found.len());
        }
        Ok(&self.numbers[..self.len])
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
    fn lists_head(&self) -> Result<ListsHead, IndexError> {
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
    fn bits(&self, id: u32) -> Result<&'a [u8], IndexError> {
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
    pub(super) fn bits_in(
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

    /// Passes the packed blocks to `each`, with their first entries; an error if it returns `None`.
    fn packed_blocks(
        &self,
        each: &mut dyn FnMut(u32, packed::Block<'a>) -> Option<()>,
    ) -> Result<(), IndexError> {
        let blocks = (self.entries as usize).div_ceil(packed::BLOCK);
        let starts = 4 * (blocks.div_ceil(packed::GROUP).max(1) - 1);
        let mut reader = Reader::new(self.part.bytes()?);
        reader.take(starts).ok_or_else(|| self.part.bad("starts of the ids", 0))?;
        for first in (0..self.entries).step_by(packed::BLOCK) {
            let len = (self.entries - first).min(packed::BLOCK_32) as usize;
            let (at, block) = (reader.at, packed::Block::read(&mut reader, len));
            block.and_then(|block| each(first, block)).ok_or_else(|| self.part.bad("ids", at))?;
        }
        match reader.is_at_end() {
            true => Ok(()),
            false => Err(self.part.bad("end of the ids", reader.at)),
        }
    }

    /// Passes the ids of the values of some entries to `each`, if the form is packed: the place of
    /// the run, and the ids of some of its entries. Runs are first and last entries; they ascend
    /// and do not overlap. Only the blocks that they touch are decoded.
    pub(super) fn packed_runs(
        &self,
        runs: &[(u32, u32)],
        each: &mut dyn FnMut(usize, &[u32]),
    ) -> Result<(), IndexError> {
        let mut blocks = PackedCursor::new(*self);
        for (place, &(first, last)) in runs.iter().enumerate() {
            let mut next = first;
            while next <= last {
                let block = next / packed::BLOCK_32;
                let numbers = blocks.numbers(block)?;
                let start = (next % packed::BLOCK_32) as usize;
                let end = (last - block * packed::BLOCK_32) as usize + 1;
                let some = numbers.get(start..end.min(numbers.len())).unwrap_or_default();
                if some.is_empty() {
                    let max = self.entries.saturating_sub(1).into();
                    return Err(IndexError::TooLarge { what: "row", got: last.into(), max });
                }
                each(place, some);
                next = (block + 1).saturating_mul(packed::BLOCK_32);
            }
        }
        Ok(())
    }

    /// Those of some entries that have some values, as ascending runs, if the form is packed. The
    /// entries are given as ascending runs, too; only the blocks that they touch are read.
    pub(super) fn packed_entries_in(
        &self,
        ids: &[Range<u32>],
        entries: &[(u32, u32)],
    ) -> Result<Vec<(u32, u32)>, IndexError> {
        let (mut cursor, mut found) = (PackedCursor::new(*self), Vec::new());
        // The block at hand, and where some values are in it.
        let (mut block, mut places) = (u32::MAX, 0_u128);
        for &(first, last) in entries {
            let last = last.min(self.entries.saturating_sub(1));
            let mut next = first;
            while next <= last {
                if next / packed::BLOCK_32 != block {
                    block = next / packed::BLOCK_32;
                    let here = cursor.block(block)?.places(Wanted { ranges: ids });
                    places = here.ok_or_else(|| self.part.bad("ids", cursor.at))?;
                }
                let start = block * packed::BLOCK_32;
                let end = last.min(start + (packed::BLOCK_32 - 1));
                let to = u128::MAX >> (packed::BLOCK_32 - 1 - (end - start));
                let mut here = places & to & u128::MAX << (next - start);
                while here != 0 {
                    let from = here.trailing_zeros();
                    let len = (!(here >> from)).trailing_zeros();
                    push_run(&mut found, start + from, start + from + len);
                    here &= u128::MAX.checked_shl(from + len).unwrap_or(0);
                }
                let Some(behind) = end.checked_add(1) else { return Ok(found) };
                next = behind;
            }
        }
        Ok(found)
    }

    /// The entries that have some values, if the form is packed.
    pub(super) fn packed_entries(&self, ids: &[Range<u32>]) -> Result<BitSet, IndexError> {
        let mut found = BitSet::new(self.entries);
        let words = found.words_mut();
        self.packed_blocks(&mut |first, block| {
            let places = block.places(Wanted { ranges: ids })?;
            let [low, high] = [places, places >> 64].map(|half| half & u128::from(u64::MAX));
            let at = first as usize / 64;
            words[at] = u64::try_from(low).unwrap_or(0);
            if let Some(word) = words.get_mut(at + 1) {
                *word = u64::try_from(high).unwrap_or(0);
            }
            Some(())
        })?;
        Ok(found)
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
