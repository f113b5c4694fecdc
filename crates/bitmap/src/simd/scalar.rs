//! The reference in plain Rust: every other file of this folder has to give the same results.
//!
//! Loops over bitsets are written so that the compiler turns them into vector code when it is
//! allowed to, which is also why they count in 64 bits; the dispatcher compiles them once more
//! with the machine's instructions on.

use std::cmp::Ordering;

use super::BitOp;
use super::words::{Groups, Items, Len, LinkRule, PairRule, ROOM, TripleRule};
use crate::cast::{low16, low32};
use crate::chunk::{Bits, Ids16, gallop, has_bit, id_of};

/// How many bits are set.
#[inline(always)]
pub(super) fn count(words: &[[u8; 8]]) -> u32 {
    low32(words.iter().map(|&word| u64::from(u64::from_le_bytes(word).count_ones())).sum())
}

/// Writes `op` of each pair of words and counts the bits of the results.
#[inline(always)]
pub(super) fn zip(op: BitOp, a: &Bits, b: &Bits, out: &mut Bits) -> u32 {
    #[inline(always)]
    fn each(a: &Bits, b: &Bits, out: &mut Bits, op: impl Fn(u64, u64) -> u64) -> u32 {
        let mut count = 0;
        for ((x, y), out) in a.iter().zip(b).zip(out) {
            let word = op(u64::from_le_bytes(*x), u64::from_le_bytes(*y));
            *out = word.to_le_bytes();
            count += u64::from(word.count_ones());
        }
        low32(count)
    }
    match op {
        BitOp::And => each(a, b, out, |x, y| x & y),
        BitOp::Or => each(a, b, out, |x, y| x | y),
        BitOp::Xor => each(a, b, out, |x, y| x ^ y),
        BitOp::AndNot => each(a, b, out, |x, y| x & !y),
    }
}

/// Appends `op` of each pair of words and counts the bits of the results.
#[inline(always)]
pub(super) fn push_zip(op: BitOp, a: &Bits, b: &Bits, target: &mut Vec<u8>) -> u32 {
    let len_bytes = a.as_flattened().len();
    target.reserve(len_bytes);
    let room = target.spare_capacity_mut().as_mut_ptr().cast::<Bits>();
    // SAFETY: `reserve` made room for as many bytes as a bitset has, which needs no alignment. A
    // bitset of zeros is written there before it is taken for one, and is what the new length
    // covers.
    #[allow(unsafe_code)]
    unsafe {
        room.write_bytes(0, 1);
        let count = zip(op, a, b, &mut *room);
        target.set_len(target.len() + len_bytes);
        count
    }
}

/// Counts the bits that are set in both.
#[inline(always)]
pub(super) fn and_count(a: &Bits, b: &Bits) -> u32 {
    let words = a.iter().zip(b).map(|(x, y)| u64::from_le_bytes(*x) & u64::from_le_bytes(*y));
    low32(words.map(|word| u64::from(word.count_ones())).sum())
}

/// How many maximal runs of set bits there are, or `None` as soon as there are more than `limit`.
#[inline(always)]
pub(super) fn runs_up_to(bits: &Bits, limit: u32) -> Option<u32> {
    // A run ends in a bit that is set while the next is not. Inside a word that is a shift; the
    // bit after bit 63 is in the next word.
    const STEP: usize = 128;
    let ends = |word: u64, next: u64| (word & !(word >> 1 | next << 63)).count_ones();
    let limit = u64::from(limit);
    let mut runs = 0;
    for start in (0..bits.len()).step_by(STEP) {
        let block = &bits[start..start + STEP];
        let next = bits[start + 1..].iter();
        let pairs = block.iter().zip(next);
        let found = pairs.map(|(&a, &b)| ends(u64::from_le_bytes(a), u64::from_le_bytes(b)));
        runs += found.map(u64::from).sum::<u64>();
        if runs > limit {
            return None;
        }
    }
    // The last word has no next.
    runs += u64::from(ends(u64::from_le_bytes(bits[bits.len() - 1]), 0));
    (runs <= limit).then_some(low32(runs))
}

/// How many maximal runs there are in ascending ids.
#[inline(always)]
pub(super) fn count_runs_array(ids: &Ids16) -> u32 {
    let ends = ids.iter().zip(ids.iter().skip(1));
    let ends: u32 = ends
        .map(|(a, b)| u32::from(u16::from_le_bytes(*a).wrapping_add(1) != u16::from_le_bytes(*b)))
        .sum();
    ends + u32::from(!ids.is_empty())
}

/// The ids in both lists; `out` may be as long as the shorter one.
#[inline(always)]
pub(super) fn and_arrays(a: &Ids16, b: &Ids16, out: &mut Ids16) -> usize {
    let mut len = 0;
    for_common(a, b, |id| {
        out[len] = id;
        len += 1;
    });
    len
}

/// How many ids are in both lists.
#[inline(always)]
pub(super) fn and_count_arrays(a: &Ids16, b: &Ids16) -> u32 {
    let mut count = 0;
    for_common(a, b, |_| count += 1);
    count
}

/// Whether one list is so much longer that it is better to search it for each id of the other.
#[inline(always)]
pub(super) fn jumps(a: &Ids16, b: &Ids16) -> bool {
    const FACTOR: usize = 64;
    a.len().min(b.len()) * FACTOR < a.len().max(b.len())
}

#[inline(always)]
fn for_common(a: &Ids16, b: &Ids16, mut each: impl FnMut([u8; 2])) {
    let (few, many) = if a.len() <= b.len() { (a, b) } else { (b, a) };
    if jumps(few, many) {
        let mut rest = many;
        for &id in few {
            rest = &rest[gallop(rest, id_of(id))..];
            if rest.first() == Some(&id) {
                each(id);
            }
        }
        return;
    }
    let (mut i, mut j) = (0, 0);
    while i < few.len() && j < many.len() {
        match id_of(few[i]).cmp(&id_of(many[j])) {
            Ordering::Less => i += 1,
            Ordering::Greater => j += 1,
            Ordering::Equal => {
                each(few[i]);
                (i, j) = (i + 1, j + 1);
            }
        }
    }
}

/// The ids in either list, or, if `both` is false, in exactly one; `out` holds all of them.
#[inline(always)]
pub(super) fn merge_arrays(a: &Ids16, b: &Ids16, out: &mut Ids16, both: bool) -> usize {
    let (mut i, mut j, mut len) = (0, 0, 0);
    while i < a.len() && j < b.len() {
        let (x, y) = (id_of(a[i]), id_of(b[j]));
        out[len] = low16(x.min(y)).to_le_bytes();
        len += usize::from(both || x != y);
        i += usize::from(x <= y);
        j += usize::from(y <= x);
    }
    for rest in [&a[i..], &b[j..]] {
        out[len..len + rest.len()].copy_from_slice(rest);
        len += rest.len();
    }
    len
}

/// The ids of `a` that are not in `b`.
#[inline(always)]
pub(super) fn and_not_arrays(a: &Ids16, b: &Ids16, out: &mut Ids16) -> usize {
    let (mut j, mut len) = (0, 0);
    for &id in a {
        while j < b.len() && id_of(b[j]) < id_of(id) {
            j += 1;
        }
        out[len] = id;
        len += usize::from(j == b.len() || b[j] != id);
    }
    len
}

/// The ids whose bit is `wanted`.
#[inline(always)]
pub(super) fn filter_array(ids: &Ids16, bits: &Bits, wanted: bool, out: &mut Ids16) -> usize {
    let mut len = 0;
    for &id in ids {
        out[len] = id;
        len += usize::from(has_bit(bits, id_of(id)) == wanted);
    }
    len
}

/// Writes the ids of the set bits and returns how many there are; stops when `out` is full.
#[inline(always)]
pub(super) fn bits_to_ids16(bits: &Bits, out: &mut Ids16) -> usize {
    let mut slots = out.iter_mut();
    let mut len = 0;
    for (base, word) in (0..).step_by(64).zip(bits) {
        let mut word = u64::from_le_bytes(*word);
        while word != 0 {
            let Some(slot) = slots.next() else { return len };
            *slot = low16(base + word.trailing_zeros()).to_le_bytes();
            len += 1;
            word &= word - 1;
        }
    }
    len
}

/// Appends `base` plus the index of every set bit, `len` of them.
#[inline(always)]
pub(super) fn push_bits(bits: &Bits, base: u32, len: u32, target: &mut Vec<u32>) {
    target.reserve(len as usize);
    for (offset, word) in (0..).step_by(64).zip(bits) {
        let mut word = u64::from_le_bytes(*word);
        while word != 0 {
            target.push(base + offset + word.trailing_zeros());
            word &= word - 1;
        }
    }
}

/// See [`words`](super::words).
#[inline(always)]
pub(super) fn group_ids(
    ids: &[u32],
    payload: u32,
    gaps: &mut Items,
    payloads: &mut Items,
) -> Groups {
    group(ids.iter().copied(), payload, gaps, payloads)
}

/// See [`words`](super::words).
#[inline(always)]
pub(super) fn group_array(
    base: u32,
    ids: &Ids16,
    payload: u32,
    gaps: &mut Items,
    payloads: &mut Items,
) -> Groups {
    group(ids.iter().map(|&id| base | id_of(id)), payload, gaps, payloads)
}

#[inline(always)]
fn group(
    ids: impl Iterator<Item = u32> + Clone,
    payload: u32,
    gaps: &mut Items,
    payloads: &mut Items,
) -> Groups {
    let first = ids.clone().next().map_or(0, |id| id / 31);
    let mut found = Groups { len: 1, last: first, gap_max: 0, gap_min: u32::MAX, has_full: false };
    payloads[0] = payload;
    for id in ids {
        let group = id / 31;
        let bit = 1 << 30 >> (id - 31 * group);
        if group != found.last {
            let gap = group - found.last - 1;
            gaps[found.len] = gap;
            payloads[found.len] = 0;
            found.gap_max = found.gap_max.max(gap);
            found.gap_min = found.gap_min.min(gap);
            found.last = group;
            found.len += 1;
        }
        payloads[found.len - 1] |= bit;
        found.has_full |= payloads[found.len - 1] == (1 << 31) - 1;
    }
    found
}

/// See [`words`](super::words).
#[inline(always)]
pub(super) fn run_ids(ids: &[u32], firsts: &mut Items, ends: &mut Items) -> usize {
    let mut len = 0;
    let mut end = None;
    for &id in ids {
        if end != Some(id) {
            firsts[len] = id;
            len += 1;
        }
        ends[len - 1] = id + 1;
        end = Some(id + 1);
    }
    len
}

/// See [`words`](super::words).
#[inline(always)]
pub(super) fn chunk_starts(
    ids: &[u32],
    before: u32,
    keys: &mut Items,
    starts: &mut Items,
) -> usize {
    let (mut len, mut before) = (0, before);
    for (index, &id) in (0..).zip(ids) {
        let key = id >> 16;
        (keys[len], starts[len]) = (key, index);
        len += usize::from(key != before);
        before = key;
    }
    len
}

/// See [`words`](super::words).
#[inline(always)]
pub(super) fn count_steps(ids: &[u32]) -> (u32, u32) {
    let pairs = ids.iter().zip(ids.iter().skip(1));
    pairs.fold((0, 0), |(chunks, neighbours), (a, b)| {
        let is_neighbour = b.wrapping_sub(*a) == 1;
        (chunks + u32::from(a >> 16 != b >> 16), neighbours + u32::from(is_neighbour))
    })
}

/// See [`words`](super::words).
#[inline(always)]
pub(super) fn push_halves(ids: &[u32], target: &mut Vec<u8>) {
    let start = target.len();
    target.resize(start + 2 * ids.len(), 0);
    for (slot, &id) in target[start..].as_chunks_mut::<2>().0.iter_mut().zip(ids) {
        *slot = low16(id).to_le_bytes();
    }
}

/// See [`words`](super::words).
#[inline(always)]
pub(super) fn pair_words<R: PairRule>(
    gaps: &Items,
    bodies: &Items,
    len: Len,
    out: &mut [u32],
) -> usize {
    let mut words = 0;
    for (&gap, &body) in gaps.iter().zip(bodies).take(len.items) {
        for word in R::words(gap, body) {
            out[words] = word;
            words += usize::from(word != 0);
        }
    }
    words
}

/// See [`words`](super::words).
#[inline(always)]
pub(super) fn link_words<R: LinkRule>(
    before: (u32, bool),
    gaps: &Items,
    bodies: &Items,
    len: usize,
    out: &mut [u32],
) -> (usize, bool) {
    let (mut before, mut open) = ([before.0, R::pair(before.0)], before.1);
    let mut words = 0;
    for (&gap, &body) in gaps.iter().zip(bodies).take(len) {
        let pair = R::pair(body);
        for word in R::words(before, open, gap, pair) {
            out[words] = word;
            words += usize::from(word != 0);
        }
        open = (open & R::joins(before[1], gap)) | !R::joins(pair, gap);
        before = [body, pair];
    }
    (words, open)
}

/// See [`words`](super::words).
#[inline(always)]
pub(super) fn triple_words<R: TripleRule>(
    words: &[u32],
    len: usize,
    out: &mut [u32],
) -> (usize, usize) {
    let (mut used, mut written) = (0, 0);
    while used + 2 < len {
        let triple = R::triple([0, 1, 2].map(|place| R::digest(words[used + place])));
        out[written] = if triple != 0 { triple } else { words[used] };
        written += 1;
        used += if triple != 0 { 3 } else { 1 };
    }
    (written, len - used)
}

/// See [`words`](super::words).
#[inline(always)]
pub(super) fn turn_words<R: TripleRule>(
    gaps: &Items,
    payloads: &Items,
    len: usize,
    taken: bool,
    out: &mut [u32],
) -> (usize, usize) {
    let mut words = [0; 2 * ROOM];
    for (pair, (&gap, &payload)) in
        words.as_chunks_mut::<2>().0.iter_mut().zip(gaps.iter().zip(payloads))
    {
        *pair = [gap, 1 << 31 | payload];
    }
    let from = usize::from(taken);
    triple_words::<R>(&words[from..], 2 * len - from, out)
}
