//! The steps from ids to words that the compiler does not vectorise: those with fewer, or more,
//! results than inputs.

use std::arch::x86_64::*;

use super::super::super::words::{Groups, Items, Len, LinkRule, PairRule, TripleRule};
use crate::cast::{len32, low16, low32, size};
use crate::chunk::{Ids16, id_of};
use crate::codec::triples::LITERAL;

/// Numbers in a register.
const LANES: usize = 16;

/// The numbers at `at` and after it, as many as fit a register, and the mask of their lanes.
#[inline]
#[target_feature(enable = "avx512f")]
fn load(numbers: &[u32], at: usize) -> (__m512i, u16) {
    let rest = &numbers[at..];
    let mask = if rest.len() >= LANES { u16::MAX } else { (1 << rest.len()) - 1 };
    // SAFETY: the mask has a lane for no more numbers than the slice holds, and no other is read.
    (unsafe { _mm512_maskz_loadu_epi32(mask, rest.as_ptr().cast()) }, mask)
}

/// Writes all lanes.
#[inline]
#[target_feature(enable = "avx512f")]
fn put(lanes: __m512i, out: &mut [u32]) {
    let room = &mut out[..LANES];
    // SAFETY: `room` is as long as the register.
    unsafe { _mm512_storeu_epi32(room.as_mut_ptr().cast(), lanes) };
}

/// Writes the lanes of the mask side by side.
#[inline]
#[target_feature(enable = "avx512f")]
fn store(lanes: __m512i, mask: u16, out: &mut [u32]) {
    put(_mm512_maskz_compress_epi32(mask, lanes), out);
}

/// A register whose lanes are those of `lanes`, moved up by `N`; `before` comes in below.
#[inline]
#[target_feature(enable = "avx512f")]
fn moved_up<const N: i32>(lanes: __m512i, before: __m512i) -> __m512i {
    match N {
        1 => _mm512_alignr_epi32::<15>(lanes, before),
        2 => _mm512_alignr_epi32::<14>(lanes, before),
        4 => _mm512_alignr_epi32::<12>(lanes, before),
        _ => _mm512_alignr_epi32::<8>(lanes, before),
    }
}

/// Each id over 31: a multiplication that keeps 33 bits, as a compiler would do it.
#[inline]
#[target_feature(enable = "avx512f")]
fn over_31(ids: __m512i) -> __m512i {
    let factor = _mm512_set1_epi32(0x0842_1085);
    let even = _mm512_srli_epi64::<32>(_mm512_mul_epu32(ids, factor));
    let odd = _mm512_mul_epu32(_mm512_srli_epi64::<32>(ids), factor);
    let high = _mm512_mask_blend_epi32(0xAAAA, even, odd);
    let half = _mm512_srli_epi32::<1>(_mm512_sub_epi32(ids, high));
    _mm512_srli_epi32::<4>(_mm512_add_epi32(half, high))
}

/// See [`words`](super::super::super::words).
#[target_feature(enable = "avx512f,popcnt")]
pub(in super::super::super) fn group_ids(
    ids: &[u32],
    payload: u32,
    gaps: &mut Items,
    payloads: &mut Items,
) -> Groups {
    let (first, last) = (ids.first().copied().unwrap_or(0), ids.last().copied().unwrap_or(0));
    let bounds = (first / 31, last / 31);
    let lanes = |at| {
        let (id, mask) = load(ids, at);
        let group = over_31(id);
        (group, _mm512_sub_epi32(id, times_31(group)), mask)
    };
    match last - first > SPARSE_GAP * len32(ids.len()) {
        true => group::<true>(ids.len(), lanes, bounds, payload, gaps, payloads),
        false => group::<false>(ids.len(), lanes, bounds, payload, gaps, payloads),
    }
}

/// See [`words`](super::super::super::words).
#[target_feature(enable = "avx512f,avx512bw,avx512vl,popcnt")]
pub(in super::super::super) fn group_array(
    base: u32,
    ids: &Ids16,
    payload: u32,
    gaps: &mut Items,
    payloads: &mut Items,
) -> Groups {
    let (first, last) =
        (ids.first().map_or(0, |&id| id_of(id)), ids.last().map_or(0, |&id| id_of(id)));
    let bounds = ((base | first) / 31, (base | last) / 31);
    let (base_group, base_row) = (base / 31, base % 31);
    let (base_group, base_row) =
        (_mm512_set1_epi32(base_group.cast_signed()), _mm512_set1_epi32(base_row.cast_signed()));
    // Below 2^17 a product with a rounded number is exact enough: half a row is added, which keeps
    // it away from whole groups by more than it can be wrong.
    let (factor, half) = (_mm512_set1_ps(1.0 / 31.0), _mm512_set1_ps(0.5 / 31.0));
    let lanes = |at: usize| {
        let rest = &ids[at..];
        let mask = if rest.len() >= LANES { u16::MAX } else { (1 << rest.len()) - 1 };
        // SAFETY: the mask has a lane for no more ids than the slice holds, and no other is read.
        let halves = unsafe { _mm256_maskz_loadu_epi16(mask, rest.as_ptr().cast()) };
        let row = _mm512_add_epi32(_mm512_cvtepu16_epi32(halves), base_row);
        let group = _mm512_fmadd_ps(_mm512_cvtepi32_ps(row), factor, half);
        let group = _mm512_cvttps_epi32(group);
        (_mm512_add_epi32(group, base_group), _mm512_sub_epi32(row, times_31(group)), mask)
    };
    match last - first > SPARSE_GAP * len32(ids.len()) {
        true => group::<true>(ids.len(), lanes, bounds, payload, gaps, payloads),
        false => group::<false>(ids.len(), lanes, bounds, payload, gaps, payloads),
    }
}

/// Ids so far apart that a full register of them hardly ever has two of the same group.
const SPARSE_GAP: u32 = 31 * 64;

/// 31 times each number.
#[inline]
#[target_feature(enable = "avx512f")]
fn times_31(numbers: __m512i) -> __m512i {
    _mm512_sub_epi32(_mm512_slli_epi32::<5>(numbers), numbers)
}

/// Gathers `len` ids into groups; `lanes` has the group of each, its row in the group, and which
/// lanes of a register are ids; `bounds` are the first group and the last.
#[inline]
#[target_feature(enable = "avx512f,popcnt")]
fn group<const SPARSE: bool>(
    len: usize,
    lanes: impl Fn(usize) -> (__m512i, __m512i, u16),
    (first, last): (u32, u32),
    payload: u32,
    gaps: &mut Items,
    payloads: &mut Items,
) -> Groups {
    let (none, one) = (_mm512_set1_epi32(-1), _mm512_set1_epi32(1));
    let first_row = _mm512_set1_epi32(1 << 30);
    let full = _mm512_set1_epi32(i32::MAX);
    // Groups that have started, and those that have ended; both counts start with the first group.
    let (mut started, mut ended) = (1, 1);
    let mut group_before = _mm512_set1_epi32(first.cast_signed());
    let mut payload_before = _mm512_set1_epi32(payload.cast_signed());
    let (mut gap_max, mut gap_min) = (_mm512_setzero_si512(), none);
    let mut has_full = 0;
    for at in (0..len).step_by(LANES) {
        let (group, row, mask) = lanes(at);
        let mut payload = _mm512_srlv_epi32(first_row, row);
        let above = moved_up::<1>(group, group_before);
        let gap = _mm512_sub_epi32(_mm512_sub_epi32(group, above), one);
        // A lane joins the lane before it if they have the same group.
        let joins = _mm512_mask_cmpeq_epi32_mask(mask, group, above);
        if SPARSE && joins == 0 {
            // Sixteen groups of one id each, or fewer at the end.
            gap_max = _mm512_mask_max_epu32(gap_max, mask, gap_max, gap);
            gap_min = _mm512_mask_min_epu32(gap_min, mask, gap_min, gap);
            put(gap, &mut gaps[started..]);
            put(payload, &mut payloads[ended..]);
            started += mask.count_ones() as usize;
            ended += mask.count_ones() as usize;
            (group_before, payload_before) = (group, payload);
            continue;
        }
        // The first lane takes over the rows of the register before; then, after steps by one, two
        // and so on, the last lane of a group has the rows of all of them.
        let from = moved_up::<1>(payload, payload_before);
        payload = _mm512_mask_or_epi32(payload, joins & 1, payload, from);
        let from = moved_up::<1>(payload, none);
        payload = _mm512_mask_or_epi32(payload, joins & !1, payload, from);
        if joins & joins << 1 != 0 {
            let same = _mm512_cmpeq_epi32_mask(group, moved_up::<2>(group, none));
            let from = moved_up::<2>(payload, none);
            payload = _mm512_mask_or_epi32(payload, same, payload, from);
            let same = _mm512_cmpeq_epi32_mask(group, moved_up::<4>(group, none));
            if same != 0 {
                let from = moved_up::<4>(payload, none);
                payload = _mm512_mask_or_epi32(payload, same, payload, from);
                let same = _mm512_cmpeq_epi32_mask(group, moved_up::<8>(group, none));
                let from = moved_up::<8>(payload, none);
                payload = _mm512_mask_or_epi32(payload, same, payload, from);
            }
        }
        let (starts, ends) = (!joins & mask, !(joins >> 1) & mask);
        gap_max = _mm512_mask_max_epu32(gap_max, starts, gap_max, gap);
        gap_min = _mm512_mask_min_epu32(gap_min, starts, gap_min, gap);
        has_full |= _mm512_mask_cmpeq_epi32_mask(ends, payload, full);
        // The last group of the register before has ended only if the first lane does not continue
        // it.
        ended -= usize::from(joins & 1);
        store(gap, starts, &mut gaps[started..]);
        store(payload, ends, &mut payloads[ended..]);
        started += starts.count_ones() as usize;
        ended += ends.count_ones() as usize;
        (group_before, payload_before) = (group, payload);
    }
    let gap_max = _mm512_reduce_max_epu32(gap_max);
    let gap_min = _mm512_reduce_min_epu32(gap_min);
    Groups { len: ended, last, gap_max, gap_min, has_full: has_full != 0 }
}

/// See [`words`](super::super::super::words).
#[target_feature(enable = "avx512f,popcnt")]
pub(in super::super::super) fn run_ids(ids: &[u32], firsts: &mut Items, ends: &mut Items) -> usize {
    let one = _mm512_set1_epi32(1);
    let (mut starts_len, mut ends_len) = (0, 0);
    // No id follows the largest number, so nothing continues it.
    let mut before = _mm512_set1_epi32(-2);
    for at in (0..ids.len()).step_by(LANES) {
        let (id, mask) = load(ids, at);
        let (next, next_mask) = load(ids, at + 1);
        let after = _mm512_add_epi32(id, one);
        let from = _mm512_add_epi32(moved_up::<1>(id, before), one);
        let starts = _mm512_mask_cmpneq_epi32_mask(mask, id, from);
        let stops = _mm512_mask_cmpneq_epi32_mask(mask, after, next) | (mask & !next_mask);
        store(id, starts, &mut firsts[starts_len..]);
        store(after, stops, &mut ends[ends_len..]);
        starts_len += starts.count_ones() as usize;
        ends_len += stops.count_ones() as usize;
        before = id;
    }
    starts_len
}

/// See [`words`](super::super::super::words).
#[target_feature(enable = "avx512f,popcnt")]
pub(in super::super::super) fn chunk_starts(
    ids: &[u32],
    before: u32,
    keys: &mut Items,
    starts: &mut Items,
) -> usize {
    let sixteen = _mm512_set1_epi32(16);
    let mut index = _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
    let mut before = _mm512_set1_epi32(before.cast_signed());
    let mut len = 0;
    for at in (0..ids.len()).step_by(LANES) {
        let (id, mask) = load(ids, at);
        let key = _mm512_srli_epi32::<16>(id);
        let differs = _mm512_mask_cmpneq_epi32_mask(mask, key, moved_up::<1>(key, before));
        store(key, differs, &mut keys[len..]);
        store(index, differs, &mut starts[len..]);
        len += differs.count_ones() as usize;
        index = _mm512_add_epi32(index, sixteen);
        before = key;
    }
    len
}

/// The sixteen numbers at `at`.
#[inline(always)]
fn sixteen(numbers: &[u32], at: usize) -> [u32; LANES] {
    let mut lanes = [0; LANES];
    lanes.copy_from_slice(&numbers[at..at + LANES]);
    lanes
}

/// A register with these numbers.
#[inline]
#[target_feature(enable = "avx512f")]
fn register(lanes: &[u32; LANES]) -> __m512i {
    // SAFETY: the array is as long as the register.
    unsafe { _mm512_loadu_epi32(lanes.as_ptr().cast()) }
}

/// The numbers in a register.
#[inline]
#[target_feature(enable = "avx512f")]
fn lanes(register: __m512i) -> [u32; LANES] {
    let mut lanes = [0; LANES];
    // SAFETY: the array is as long as the register.
    unsafe { _mm512_storeu_epi32(lanes.as_mut_ptr().cast(), register) };
    lanes
}

/// The lanes that hold items, of those from `at` on.
#[inline(always)]
fn lanes_of(len: usize, at: usize) -> u16 {
    if len - at >= LANES { u16::MAX } else { (1 << (len - at)) - 1 }
}

/// Writes the words of the lanes of the mask that are not 0, first and second of each in turn, and
/// returns how many there are.
#[inline]
#[target_feature(enable = "avx512f,popcnt")]
fn store_pairs<const PLAIN: bool>(
    first: __m512i,
    second: __m512i,
    mask: u16,
    out: &mut [u32],
) -> usize {
    if PLAIN {
        let has_first = _mm512_mask_test_epi32_mask(mask, first, first);
        let has_second = _mm512_mask_test_epi32_mask(mask, second, second);
        if has_first & has_second == 0 {
            // At most one word per item: nothing to interleave.
            let word = _mm512_mask_mov_epi32(first, has_second, second);
            store(word, has_first | has_second, out);
            return (has_first | has_second).count_ones() as usize;
        }
    }
    let first = _mm512_maskz_mov_epi32(mask, first);
    let second = _mm512_maskz_mov_epi32(mask, second);
    let low = _mm512_set_epi32(23, 7, 22, 6, 21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
    let high = _mm512_add_epi32(low, _mm512_set1_epi32(8));
    let mut words = 0;
    for order in [low, high] {
        let both = _mm512_permutex2var_epi32(first, order, second);
        let some = _mm512_test_epi32_mask(both, both);
        store(both, some, &mut out[words..]);
        words += some.count_ones() as usize;
    }
    words
}

/// See [`words`](super::super::super::words).
#[target_feature(enable = "avx512f,avx512bw,avx512cd,avx512vl,avx512vpopcntdq,bmi2,popcnt")]
pub(in super::super::super) fn pair_words<R: PairRule>(
    gaps: &Items,
    bodies: &Items,
    len: Len,
    out: &mut [u32],
) -> usize {
    // Compiled for each case: a predictable branch is free, an unpredictable one is not.
    match len.is_plain {
        true => pair_words_of::<R, true>(gaps, bodies, len.items, out),
        false => pair_words_of::<R, false>(gaps, bodies, len.items, out),
    }
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512cd,avx512vl,avx512vpopcntdq,bmi2,popcnt")]
fn pair_words_of<R: PairRule, const PLAIN: bool>(
    gaps: &Items,
    bodies: &Items,
    len: usize,
    out: &mut [u32],
) -> usize {
    let mut words = 0;
    for at in (0..len).step_by(LANES) {
        let (gaps, bodies) = (sixteen(gaps, at), sixteen(bodies, at));
        let (mut first, mut second) = ([0; LANES], [0; LANES]);
        for lane in 0..LANES {
            [first[lane], second[lane]] = R::words(gaps[lane], bodies[lane]);
        }
        let (first, second) = (register(&first), register(&second));
        words += store_pairs::<PLAIN>(first, second, lanes_of(len, at), &mut out[words..]);
    }
    words
}

/// See [`words`](super::super::super::words).
#[target_feature(enable = "avx512f,avx512bw,avx512cd,avx512vl,avx512vpopcntdq,bmi2,popcnt")]
pub(in super::super::super) fn link_words<R: LinkRule>(
    before: (u32, bool),
    gaps: &Items,
    bodies: &Items,
    len: usize,
    out: &mut [u32],
) -> (usize, bool) {
    let mut words = 0;
    let mut open = u32::from(before.1);
    let mut body_before = _mm512_set1_epi32(before.0.cast_signed());
    let mut pair_before = _mm512_set1_epi32(R::pair(before.0).cast_signed());
    for at in (0..len).step_by(LANES) {
        let (gaps, bodies) = (sixteen(gaps, at), sixteen(bodies, at));
        let mut pairs = [0; LANES];
        for lane in 0..LANES {
            pairs[lane] = R::pair(bodies[lane]);
        }
        let (body, pair) = (register(&bodies), register(&pairs));
        let befores = lanes(moved_up::<1>(body, body_before));
        let pairs_before = lanes(moved_up::<1>(pair, pair_before));
        let (mut joins_before, mut joins_own) = ([0; LANES], [0; LANES]);
        for lane in 0..LANES {
            joins_before[lane] = u32::from(R::joins(pairs_before[lane], gaps[lane]));
            joins_own[lane] = u32::from(R::joins(pairs[lane], gaps[lane]));
        }
        let mask = |lanes: &[u32; LANES]| {
            let lanes = register(lanes);
            u32::from(_mm512_test_epi32_mask(lanes, lanes))
        };
        // A body is open if its gap has not joined it, or if the gap joined the body before, which
        // was open: these are the carries of an addition, whose sum shows all of them at once.
        let made = !mask(&joins_own) & 0xFFFF;
        let (x, y) = (made | mask(&joins_before), made);
        let carries = (x + y + open) ^ x ^ y;
        let opens = lanes(_mm512_maskz_set1_epi32(low16(carries), 1));
        let (mut first, mut second) = ([0; LANES], [0; LANES]);
        for lane in 0..LANES {
            let before = [befores[lane], pairs_before[lane]];
            [first[lane], second[lane]] =
                R::words(before, opens[lane] != 0, gaps[lane], pairs[lane]);
        }
        let (first, second) = (register(&first), register(&second));
        words += store_pairs::<false>(first, second, lanes_of(len, at), &mut out[words..]);
        open = carries >> (len - at).min(LANES) & 1;
        (body_before, pair_before) = (body, pair);
    }
    (words, open != 0)
}

/// For eight places where a triple could start, in three fields of 16 bits: the result if none, one
/// or two of the places are taken by a triple before them. The low byte of a field says where
/// triples start, the high byte where the field for the next eight places is.
const GREEDY: [u64; 256] = {
    let mut table = [0; 256];
    let mut could = 0;
    while could < 256 {
        let mut taken = 0;
        while taken < 3 {
            let (mut starts, mut left, mut place) = (0_u64, taken, 0);
            while place < 8 {
                if left > 0 {
                    left -= 1;
                } else if could >> place & 1 != 0 {
                    starts |= 1 << place;
                    left = 2;
                }
                place += 1;
            }
            table[could] |= (starts | left << 12) << (16 * taken);
            taken += 1;
        }
        could += 1;
    }
    table
};

/// Which triples start, from the left, of those that could, and how many of the places after them
/// the last one takes; `taken` is the same number for the places before.
#[inline(always)]
fn greedy<const PLACES: usize>(could: u64, taken: u64) -> (u64, u64) {
    let (mut starts, mut field) = (0, taken << 4);
    for first in (0..PLACES).step_by(8) {
        let found = GREEDY[(could >> first & 0xFF) as usize] >> field;
        starts |= (found & 0xFF) << first;
        field = found >> 8 & 0xFF;
    }
    (starts, field >> 4)
}

/// How many of the places from `end` on are taken by triples before it.
#[inline(always)]
fn taken_from(gone: u64, end: usize) -> u64 {
    [0, 1, 2, 2][(gone >> end & 0b11) as usize]
}

/// See [`words`](super::super::super::words).
#[target_feature(enable = "avx512f,avx512bw,avx512cd,avx512vl,avx512vpopcntdq,bmi2,popcnt")]
pub(in super::super::super) fn triple_words<R: TripleRule>(
    words: &[u32],
    len: usize,
    out: &mut [u32],
) -> (usize, usize) {
    let starts_end = len.saturating_sub(2);
    let (mut written, mut taken) = (0, 0);
    let digest = |words: &[u32; LANES]| {
        let mut digests = [0; LANES];
        for lane in 0..LANES {
            digests[lane] = R::digest(words[lane]);
        }
        register(&digests)
    };
    let mut alone = sixteen(words, 0);
    let mut digests = digest(&alone);
    for at in (0..starts_end).step_by(LANES) {
        let next = sixteen(words, at + LANES);
        let next_digests = digest(&next);
        let [a, b, c] = [
            lanes(digests),
            lanes(_mm512_alignr_epi32::<1>(next_digests, digests)),
            lanes(_mm512_alignr_epi32::<2>(next_digests, digests)),
        ];
        let mut triples = [0; LANES];
        for lane in 0..LANES {
            triples[lane] = R::triple([a[lane], b[lane], c[lane]]);
        }
        let triples = register(&triples);
        let mask = lanes_of(starts_end, at);
        let could = _mm512_mask_test_epi32_mask(mask, triples, triples);
        let before = (1 << taken) - 1;
        let (starts, after) = greedy::<LANES>(could.into(), taken);
        let gone = starts << 1 | starts << 2 | before;
        let end = starts_end - at;
        taken = if end >= LANES { after } else { taken_from(gone, end) };
        let (starts, gone) = (low32(starts), low32(gone));
        let merged = _mm512_mask_mov_epi32(register(&alone), low16(starts), triples);
        let kept = !low16(gone) & mask;
        store(merged, kept, &mut out[written..]);
        written += kept.count_ones() as usize;
        (alone, digests) = (next, next_digests);
    }
    (written, len.min(2) - size(taken))
}

/// See [`words`](super::super::super::words).
#[target_feature(enable = "avx512f,avx512bw,avx512cd,avx512vl,avx512vpopcntdq,bmi2,popcnt")]
pub(in super::super::super) fn turn_words<R: TripleRule>(
    gaps: &Items,
    payloads: &Items,
    len: usize,
    taken: bool,
    out: &mut [u32],
) -> (usize, usize) {
    // The digests of sixteen gaps, and of sixteen literals.
    let digest = |words: &[u32; LANES], literal: u32| {
        let mut digests = [0; LANES];
        for lane in 0..LANES {
            digests[lane] = R::digest(literal | words[lane]);
        }
        register(&digests)
    };
    let (mut gap, mut payload) = (sixteen(gaps, 0), sixteen(payloads, 0));
    let (mut fill, mut literal) = (digest(&gap, 0), digest(&payload, LITERAL));
    let (mut written, mut taken) = (0, u64::from(taken));
    // The last item stays: a gap to come may join it.
    for at in (0..len - 1).step_by(LANES) {
        let (next_gap, next_payload) = (sixteen(gaps, at + LANES), sixteen(payloads, at + LANES));
        let (next_fill, next_literal) = (digest(&next_gap, 0), digest(&next_payload, LITERAL));
        let (a, b) = (lanes(fill), lanes(literal));
        let c = lanes(_mm512_alignr_epi32::<1>(next_fill, fill));
        let d = lanes(_mm512_alignr_epi32::<1>(next_literal, literal));
        let (mut fill_first, mut literal_first) = ([0; LANES], [0; LANES]);
        for lane in 0..LANES {
            fill_first[lane] = R::fill_first([a[lane], b[lane], c[lane]]);
            literal_first[lane] = R::literal_first([b[lane], c[lane], d[lane]]);
        }
        let (fill_first, literal_first) = (register(&fill_first), register(&literal_first));
        // A bit for each word: those of gaps at even places, those of literals at odd ones.
        let mask = lanes_of(len - 1, at);
        let could_fill = _mm512_mask_test_epi32_mask(mask, fill_first, fill_first);
        let could_literal = _mm512_mask_test_epi32_mask(mask, literal_first, literal_first);
        let could = spread(could_fill) | spread(could_literal) << 1;
        let before = (1 << taken) - 1;
        let (starts, after) = greedy::<{ 2 * LANES }>(could, taken);
        let gone = starts << 1 | starts << 2 | before;
        let end = 2 * (len - 1 - at);
        taken = if end >= 2 * LANES { after } else { taken_from(gone, end) };
        let kept = !gone;
        let first = _mm512_mask_mov_epi32(register(&gap), even(starts), fill_first);
        let second = _mm512_or_si512(register(&payload), _mm512_set1_epi32(i32::MIN));
        let second = _mm512_mask_mov_epi32(second, even(starts >> 1), literal_first);
        let first = _mm512_maskz_mov_epi32(even(kept) & mask, first);
        let second = _mm512_maskz_mov_epi32(even(kept >> 1) & mask, second);
        written += store_pairs::<false>(first, second, mask, &mut out[written..]);
        (gap, payload, fill, literal) = (next_gap, next_payload, next_fill, next_literal);
    }
    (written, 2 - size(taken))
}

/// The bits of a mask at the even places of a number.
#[inline]
#[target_feature(enable = "bmi2")]
fn spread(mask: u16) -> u64 {
    _pdep_u64(u64::from(mask), 0x5555_5555)
}

/// The bits at the even places of a number.
#[inline]
#[target_feature(enable = "bmi2")]
fn even(bits: u64) -> u16 {
    low16(low32(_pext_u64(bits, 0x5555_5555)))
}
