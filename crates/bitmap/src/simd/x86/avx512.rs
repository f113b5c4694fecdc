//! AVX-512: the loops of the reference that the compiler vectorises, and those that it cannot.
//!
//! There are two ways to combine two ascending arrays:
//!
//! - *meet*: one instruction compares eight ids with eight others, and one writes those that
//!   matched side by side. For intersection and difference.
//! - *merge*: two ascending registers of 32 ids become their 32 smallest and their 32 greatest
//!   ids, both ascending, by a network of minima and maxima. The smallest leave, the greatest stay
//!   for the next register. Equal ids are then neighbours. For union and symmetric difference.

use std::arch::x86_64::*;

use super::super::{BitOp, Work, scalar};
use crate::cast::{len32, low8, low16};
use crate::chunk::{Bits, Ids16, WORDS, id_of};

mod words;
pub(in super::super) use words::{
    chunk_starts, group_array, group_ids, link_words, pair_words, run_ids, triple_words, turn_words,
};

/// Ids in a register.
const LANES: usize = 32;

plain_loops! { "avx512bw,avx512cd,avx512vl,avx512vbmi2,avx512vpopcntdq,bmi1,bmi2,lzcnt,popcnt" }

recompile! { "avx512bw,avx512cd,avx512vl,avx512vbmi2,avx512vpopcntdq,bmi1,bmi2,lzcnt,popcnt":
    push_bits(bits: &Bits, base: u32, len: u32, target: &mut Vec<u32>)
        = scalar::push_bits(bits, base, len, target);
}

/// The first ids of a list, as many as fit a register, and the mask of the lanes they are in.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn load(ids: &Ids16) -> (__m512i, u32) {
    let mask = if ids.len() >= LANES { u32::MAX } else { (1 << ids.len()) - 1 };
    // SAFETY: the mask has a lane for no more ids than the slice holds, and no other is read.
    (unsafe { _mm512_maskz_loadu_epi16(mask, ids.as_ptr().cast()) }, mask)
}

/// Writes the lanes of the mask side by side and returns how many they are.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi2,popcnt")]
fn store(lanes: __m512i, mask: u32, out: &mut Ids16) -> usize {
    let packed = _mm512_maskz_compress_epi16(mask, lanes);
    let room = &mut out[..LANES];
    // SAFETY: `room` is as long as the register.
    unsafe { _mm512_storeu_epi16(room.as_mut_ptr().cast(), packed) };
    mask.count_ones() as usize
}

/// Writes the lanes of the mask side by side and returns how many they are.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vbmi2,popcnt")]
fn store_eight(lanes: __m128i, mask: u8, out: &mut Ids16) -> usize {
    let packed = _mm_maskz_compress_epi16(mask, lanes);
    let room = &mut out[..8];
    // SAFETY: `room` is as long as the register.
    unsafe { _mm_storeu_epi16(room.as_mut_ptr().cast(), packed) };
    mask.count_ones() as usize
}

/// As [`store_eight`], of sixteen.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vbmi2,popcnt")]
fn store_sixteen(lanes: __m256i, mask: u16, out: &mut Ids16) -> usize {
    let packed = _mm256_maskz_compress_epi16(mask, lanes);
    let room = &mut out[..16];
    // SAFETY: `room` is as long as the register.
    unsafe { _mm256_storeu_epi16(room.as_mut_ptr().cast(), packed) };
    mask.count_ones() as usize
}

/// A list, eight ids at a time.
struct Eights<'a> {
    whole: std::slice::Iter<'a, [[u8; 2]; 8]>,
    rest: &'a Ids16,
}

/// Eight ids or fewer: the register, zeros after them; the mask of their lanes; the last of them.
#[derive(Clone, Copy)]
struct Eight {
    lanes: __m128i,
    mask: u8,
    last: u32,
}

impl<'a> Eights<'a> {
    #[inline(always)]
    fn new(ids: &'a Ids16) -> Self {
        let (whole, rest) = ids.as_chunks::<8>();
        Self { whole: whole.iter(), rest }
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl")]
    fn next(&mut self) -> Option<Eight> {
        if let Some(eight) = self.whole.next() {
            // SAFETY: the array has the size of the register.
            let lanes = unsafe { _mm_loadu_si128(eight.as_ptr().cast()) };
            return Some(Eight { lanes, mask: u8::MAX, last: id_of(eight[7]) });
        }
        let rest = std::mem::take(&mut self.rest);
        let last = id_of(*rest.last()?);
        let mask = (1 << rest.len()) - 1;
        // SAFETY: the mask has a lane for no more ids than there are, and no other is read.
        let lanes = unsafe { _mm_maskz_loadu_epi16(mask, rest.as_ptr().cast()) };
        Some(Eight { lanes, mask, last })
    }
}

/// Calls `each` with every eight ids of `a`, the mask of valid lanes, and the mask of those in `b`.
///
/// The string instruction compares each of eight ids with each of eight others, up to the first
/// zero of either. So zeros pad the rest at the end of a list, and the id 0, which can only be the
/// first, is handled separately.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,sse4.2,popcnt")]
fn meet(a: &Ids16, b: &Ids16, mut each: impl FnMut(__m128i, u8, u8)) {
    const ZERO: Option<&[u8; 2]> = Some(&[0; 2]);
    let (mut a, mut b) = (a, b);
    let zeros = (a.first() == ZERO, b.first() == ZERO);
    if zeros.1 {
        b = &b[1..];
    }
    if zeros.0 {
        a = &a[1..];
        each(_mm_setzero_si128(), 1, u8::from(zeros.1));
    }
    let (mut xs, mut ys) = (Eights::new(a), Eights::new(b));
    let Some(mut x) = xs.next() else { return };
    let mut found = 0;
    let mut next_y = ys.next();
    while let Some(y) = next_y {
        let equal = _mm_cmpistrm::<ANY>(y.lanes, x.lanes);
        found |= low8(_mm_cvtsi128_si32(equal).cast_unsigned());
        // Branches, although they cannot be predicted in long lists: waiting for the result of a
        // comparison before every load costs more.
        let y_ends = y.last <= x.last;
        if x.last <= y.last {
            each(x.lanes, x.mask, found);
            found = 0;
            match xs.next() {
                Some(next) => x = next,
                None => return,
            }
        }
        if y_ends {
            next_y = ys.next();
        }
    }
    each(x.lanes, x.mask, found);
    while let Some(x) = xs.next() {
        each(x.lanes, x.mask, 0);
    }
}

/// Calls `each` with sixteen ids at a time and the mask of those that are in both lists, and
/// returns what is left when one of them has fewer than sixteen; for long lists.
///
/// Which list's block ends first cannot be predicted in long lists, so it is not a branch, and the
/// blocks are as long as the latency of the next load allows.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,sse4.2,popcnt")]
fn meet_sixteen<'a>(
    a: &'a Ids16,
    b: &'a Ids16,
    mut each: impl FnMut(__m256i, u16),
) -> (&'a Ids16, &'a Ids16) {
    const LONG: usize = 128;
    const BLOCK: usize = 16;
    if a.len().min(b.len()) < LONG || a[0] == [0; 2] || b[0] == [0; 2] {
        return (a, b);
    }
    let (mut i, mut j) = (0, 0);
    while let (Some(x), Some(y)) = (a.get(i..i + BLOCK), b.get(j..j + BLOCK)) {
        // SAFETY: the slices have the size of the register.
        let (lanes, other) = unsafe {
            (_mm256_loadu_epi16(x.as_ptr().cast()), _mm256_loadu_epi16(y.as_ptr().cast()))
        };
        let halves =
            |lanes: __m256i| (_mm256_castsi256_si128(lanes), _mm256_extracti128_si256::<1>(lanes));
        let ((x0, x1), (y0, y1)) = (halves(lanes), halves(other));
        let low = _mm_or_si128(_mm_cmpistrm::<ANY>(y0, x0), _mm_cmpistrm::<ANY>(y1, x0));
        let high = _mm_or_si128(_mm_cmpistrm::<ANY>(y0, x1), _mm_cmpistrm::<ANY>(y1, x1));
        let both = _mm_unpacklo_epi8(low, high);
        each(lanes, low16(_mm_cvtsi128_si32(both).cast_unsigned()));
        let (x, y) = (id_of(x[BLOCK - 1]), id_of(y[BLOCK - 1]));
        i += BLOCK * usize::from(x <= y);
        j += BLOCK * usize::from(y <= x);
    }
    (&a[i..], &b[j..])
}

/// Compare words, each with any, and give a bit for each.
const ANY: i32 = _SIDD_UWORD_OPS | _SIDD_CMP_EQUAL_ANY | _SIDD_BIT_MASK;

recompile! { "avx512bw,avx512cd,avx512vl,avx512vbmi2,avx512vpopcntdq,bmi1,bmi2,lzcnt,popcnt":
    and_arrays(a: &Ids16, b: &Ids16, out: &mut Ids16) -> usize = {
        if scalar::jumps(a, b) {
            return scalar::and_arrays(a, b, out);
        }
        let mut len = 0;
        let (a, b) = meet_sixteen(a, b, |lanes, found| {
            len += store_sixteen(lanes, found, &mut out[len..]);
        });
        meet(a, b, |lanes, _, found| len += store_eight(lanes, found, &mut out[len..]));
        len
    };
    and_count_arrays(a: &Ids16, b: &Ids16) -> u32 = {
        if scalar::jumps(a, b) {
            return scalar::and_count_arrays(a, b);
        }
        let mut count = 0;
        let (a, b) = meet_sixteen(a, b, |_, found| count += found.count_ones());
        meet(a, b, |_, _, found| count += found.count_ones());
        count
    };
    and_not_arrays(a: &Ids16, b: &Ids16, out: &mut Ids16) -> usize = {
        let mut len = 0;
        meet(a, b, |lanes, mask, found| {
            len += store_eight(lanes, mask & !found, &mut out[len..]);
        });
        len
    };
}

/// Lane numbers in which the bits of `flip` are inverted.
const fn flipped(flip: u16) -> [u16; LANES] {
    let mut lanes = [0; LANES];
    let mut lane = 0;
    while lane < 32 {
        lanes[lane as usize] = lane ^ flip;
        lane += 1;
    }
    lanes
}

/// Two ascending registers as their smallest and their greatest ids, both ascending.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn merge(a: __m512i, b: __m512i) -> (__m512i, __m512i) {
    const REVERSED: [u16; LANES] = flipped(31);
    const BY_16: [u16; LANES] = flipped(16);
    const BY_8: [u16; LANES] = flipped(8);
    const BY_4: [u16; LANES] = flipped(4);
    const BY_2: [u16; LANES] = flipped(2);
    const BY_1: [u16; LANES] = flipped(1);
    let swap = |lanes: __m512i, order: &[u16; LANES]| {
        // SAFETY: the array has the size of the register.
        let order = unsafe { _mm512_loadu_epi16(order.as_ptr().cast()) };
        _mm512_permutexvar_epi16(order, lanes)
    };
    // Half a cleaner: lanes of `mask` take the greater of the pair, the others the smaller.
    let clean = |lanes: __m512i, order: &[u16; LANES], mask: u32| {
        let other = swap(lanes, order);
        let small = _mm512_min_epu16(lanes, other);
        _mm512_mask_max_epu16(small, mask, lanes, other)
    };
    let sort = |lanes: __m512i| {
        let lanes = clean(lanes, &BY_16, 0xFFFF_0000);
        let lanes = clean(lanes, &BY_8, 0xFF00_FF00);
        let lanes = clean(lanes, &BY_4, 0xF0F0_F0F0);
        let lanes = clean(lanes, &BY_2, 0xCCCC_CCCC);
        clean(lanes, &BY_1, 0xAAAA_AAAA)
    };
    let b = swap(b, &REVERSED);
    (sort(_mm512_min_epu16(a, b)), sort(_mm512_max_epu16(a, b)))
}

/// No id: what the lanes past the end of a list hold, greater than or equal to every id.
const NONE: u16 = u16::MAX;

/// The list without its last id if that equals [`NONE`], and whether it did.
fn split_none(ids: &Ids16) -> (&Ids16, bool) {
    match ids.split_last() {
        Some((&last, rest)) if u16::from_le_bytes(last) == NONE => (rest, true),
        _ => (ids, false),
    }
}

/// The ids of two lists; if `both` is false, without those that are in both.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vbmi2,popcnt")]
fn merge_arrays(a: &Ids16, b: &Ids16, out: &mut Ids16, both: bool) -> usize {
    let ((mut a, a_none), (mut b, b_none)) = (split_none(a), split_none(b));
    let none = _mm512_set1_epi16(-1);
    let next_of = |list: &mut &Ids16| {
        let (lanes, mask) = load(list);
        *list = &list[mask.count_ones() as usize..];
        _mm512_mask_blend_epi16(mask, none, lanes)
    };
    // For every lane the one before it, across the edge to the register before, and the one after.
    const BEFORE: [u16; LANES] = shifted(LANES - 1);
    const AFTER: [u16; LANES] = shifted(1);
    const fn shifted(by: usize) -> [u16; LANES] {
        let mut lanes = [0; LANES];
        let mut lane = 0;
        while lane < LANES {
            #[expect(clippy::cast_possible_truncation, reason = "below 64")]
            let from = (lane + by) as u16;
            lanes[lane] = from;
            lane += 1;
        }
        lanes
    }
    // SAFETY: the arrays have the size of the register.
    let (before, after) = unsafe {
        (_mm512_loadu_epi16(BEFORE.as_ptr().cast()), _mm512_loadu_epi16(AFTER.as_ptr().cast()))
    };
    let mut len = 0;
    let mut write = |previous: __m512i, lanes: __m512i, next: __m512i| {
        let previous = _mm512_permutex2var_epi16(previous, before, lanes);
        let mut keep = _mm512_cmpneq_epi16_mask(lanes, previous);
        if !both {
            let next = _mm512_permutex2var_epi16(lanes, after, next);
            keep &= _mm512_cmpneq_epi16_mask(lanes, next);
        }
        keep &= _mm512_cmpneq_epi16_mask(lanes, none);
        len += store(lanes, keep, &mut out[len..]);
    };

    // `lanes` waits for the register after it, `high` for the ids that are still to be read.
    let (mut previous, mut lanes, mut high) = (none, none, next_of(&mut a));
    let mut is_first = true;
    loop {
        let list = match (a.first(), b.first()) {
            (Some(&x), Some(&y)) if id_of(x) <= id_of(y) => &mut a,
            (Some(_), None) => &mut a,
            (_, Some(_)) => &mut b,
            (None, None) => break,
        };
        let low;
        (low, high) = merge(high, next_of(list));
        if !is_first {
            write(previous, lanes, low);
            previous = lanes;
        }
        (lanes, is_first) = (low, false);
    }
    if !is_first {
        write(previous, lanes, high);
        previous = lanes;
    }
    write(previous, high, none);
    if if both { a_none | b_none } else { a_none ^ b_none } {
        out[len] = NONE.to_le_bytes();
        len += 1;
    }
    len
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vbmi2,popcnt")]
pub(in super::super) fn or_arrays(a: &Ids16, b: &Ids16, out: &mut Ids16) -> usize {
    merge_arrays(a, b, out, true)
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vbmi2,popcnt")]
pub(in super::super) fn xor_arrays(a: &Ids16, b: &Ids16, out: &mut Ids16) -> usize {
    merge_arrays(a, b, out, false)
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vbmi2,popcnt")]
pub(in super::super) fn bits_to_ids16(bits: &Bits, out: &mut Ids16) -> usize {
    // First the halves of words that are not zero, with their numbers, without a branch; then the
    // bits of each. In sparse chunks, where this is used, most halves are zero.
    const HALVES: usize = 2 * WORDS;
    const STEP: usize = 16;
    let (mut halves, mut numbers) = ([0_u32; HALVES + STEP], [0_u32; HALVES + STEP]);
    let mut used = 0;
    for (index, block) in bits.as_chunks::<{ STEP / 2 }>().0.iter().enumerate() {
        let number = _mm512_set1_epi32(len32(STEP * index).cast_signed());
        let number = _mm512_add_epi32(number, ascending());
        let (halves, numbers) = (&mut halves[used..][..STEP], &mut numbers[used..][..STEP]);
        // SAFETY: the block and the two slices have the size of the register.
        unsafe {
            let block = _mm512_loadu_epi32(block.as_ptr().cast());
            let mask = _mm512_test_epi32_mask(block, block);
            let packed = _mm512_maskz_compress_epi32(mask, block);
            _mm512_storeu_epi32(halves.as_mut_ptr().cast(), packed);
            let packed = _mm512_maskz_compress_epi32(mask, number);
            _mm512_storeu_epi32(numbers.as_mut_ptr().cast(), packed);
            used += mask.count_ones() as usize;
        }
    }
    let lanes: [u16; LANES] = flipped(0);
    // SAFETY: the array has the size of the register.
    let lanes = unsafe { _mm512_loadu_epi16(lanes.as_ptr().cast()) };
    let mut len = 0;
    for (&half, &number) in halves[..used].iter().zip(&numbers[..used]) {
        let base = _mm512_set1_epi16(low16(32 * number).cast_signed());
        len += store(_mm512_add_epi16(lanes, base), half, &mut out[len..]);
    }
    len
}

/// The numbers from 0 to 15.
#[inline]
#[target_feature(enable = "avx512f")]
fn ascending() -> __m512i {
    _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0)
}
