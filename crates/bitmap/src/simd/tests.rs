//! Every version of every loop that this machine can run, against the reference.

#![allow(clippy::cast_possible_truncation, reason = "small numbers")]

use super::{BitOp, SLACK, scalar};
use crate::chunk::{ARRAY_MAX, Bits, Ids16};
use crate::sample::Random;

/// The functions of one level, as the dispatcher calls them.
struct Kernels {
    name: &'static str,
    count: fn(&[[u8; 8]]) -> u32,
    zip: fn(BitOp, &Bits, &Bits, &mut Bits) -> u32,
    push_zip: fn(BitOp, &Bits, &Bits, &mut Vec<u8>) -> u32,
    and_count: fn(&Bits, &Bits) -> u32,
    runs_up_to: fn(&Bits, u32) -> Option<u32>,
    count_runs_array: fn(&Ids16) -> u32,
    arrays: [fn(&Ids16, &Ids16, &mut Ids16) -> usize; 4],
    and_count_arrays: fn(&Ids16, &Ids16) -> u32,
    filters: [fn(&Ids16, &Bits, &mut Ids16) -> usize; 2],
    bits_to_ids16: fn(&Bits, &mut Ids16) -> usize,
    push_bits: fn(&Bits, u32, u32, &mut Vec<u32>),
}

/// The functions of a level, wrapped so that their features need no mention in the type.
macro_rules! kernels {
    ($name:literal, $level:ident) => {{
        use super::x86::$level as level;
        // SAFETY: the caller has seen that the machine has the level's features, and hands the
        // wrappers on to nobody else.
        #[allow(unsafe_code)]
        unsafe {
            Kernels {
                name: $name,
                count: |w| level::count(w),
                zip: |op, a, b, out| level::zip(op, a, b, out),
                push_zip: |op, a, b, out| level::push_zip(op, a, b, out),
                and_count: |a, b| level::and_count(a, b),
                runs_up_to: |bits, limit| level::runs_up_to(bits, limit),
                count_runs_array: |ids| level::count_runs_array(ids),
                arrays: [
                    |a, b, out| level::and_arrays(a, b, out),
                    |a, b, out| level::or_arrays(a, b, out),
                    |a, b, out| level::xor_arrays(a, b, out),
                    |a, b, out| level::and_not_arrays(a, b, out),
                ],
                and_count_arrays: |a, b| level::and_count_arrays(a, b),
                filters: [
                    |ids, bits, out| level::filter_array(ids, bits, out),
                    |ids, bits, out| level::filter_array_not(ids, bits, out),
                ],
                bits_to_ids16: |bits, out| level::bits_to_ids16(bits, out),
                push_bits: |bits, base, len, out| level::push_bits(bits, base, len, out),
            }
        }
    }};
}

fn reference() -> Kernels {
    Kernels {
        name: "scalar",
        count: scalar::count,
        zip: scalar::zip,
        push_zip: scalar::push_zip,
        and_count: scalar::and_count,
        runs_up_to: scalar::runs_up_to,
        count_runs_array: scalar::count_runs_array,
        arrays: [
            scalar::and_arrays,
            |a, b, out| scalar::merge_arrays(a, b, out, true),
            |a, b, out| scalar::merge_arrays(a, b, out, false),
            scalar::and_not_arrays,
        ],
        and_count_arrays: scalar::and_count_arrays,
        filters: [
            |ids, bits, out| scalar::filter_array(ids, bits, true, out),
            |ids, bits, out| scalar::filter_array(ids, bits, false, out),
        ],
        bits_to_ids16: scalar::bits_to_ids16,
        push_bits: scalar::push_bits,
    }
}

/// The levels of this machine, the reference first.
fn levels() -> Vec<Kernels> {
    #[allow(unused_mut)]
    let mut levels = vec![reference()];
    #[cfg(target_arch = "x86_64")]
    {
        let level = super::x86::level();
        if level != super::x86::Level::Scalar {
            levels.push(kernels!("avx2", avx2));
        }
        if level == super::x86::Level::Avx512 {
            levels.push(kernels!("avx512", avx512));
        }
    }
    levels
}

/// An ascending list of some length, dense or sparse, at times with the ids at the ends.
fn list(random: &mut Random) -> Vec<[u8; 2]> {
    let most = [0, 1, 5, 31, 32, 33, 64, 300, 4_096][random.below(9) as usize];
    let end = [64, 300, 5_000, 65_536][random.below(4) as usize];
    let start = if random.below(2) == 0 { 0 } else { 65_536 - end };
    let mut ids: Vec<u16> = (0..most).map(|_| (start + random.below(end)) as u16).collect();
    if random.below(3) == 0 {
        ids.extend([0, u16::MAX]);
    }
    ids.sort_unstable();
    ids.dedup();
    ids.truncate(ARRAY_MAX);
    ids.iter().map(|id| id.to_le_bytes()).collect()
}

fn bits(random: &mut Random) -> Bits {
    let kind = random.below(4);
    std::array::from_fn(|_| {
        let word = match kind {
            0 => random.number(),
            1 => {
                random.number()
                    & random.number()
                    & random.number()
                    & random.number()
                    & random.number()
            }
            2 => u64::MAX >> (random.below(64)) << random.below(64),
            _ => [0, u64::MAX][random.below(2) as usize],
        };
        word.to_le_bytes()
    })
}

#[test]
fn every_level_equals_the_reference() {
    let levels = levels();
    let (reference, others) = levels.split_first().unwrap();
    let mut random = Random::new(31);
    for turn in 0..3_000 {
        let (a, b) = (list(&mut random), list(&mut random));
        let (x, y) = (bits(&mut random), bits(&mut random));
        let run = |kernels: &Kernels| {
            let mut lists = Vec::new();
            let (few, both) = (a.len().min(b.len()), a.len() + b.len());
            for (op, room) in kernels.arrays.into_iter().zip([few, both, both, a.len()]) {
                let mut out = vec![[0xAA; 2]; room + SLACK];
                let len = op(&a, &b, &mut out);
                out.truncate(len);
                lists.push(out);
            }
            for op in kernels.filters {
                let mut out = vec![[0xAA; 2]; a.len()];
                let len = op(&a, &x, &mut out);
                out.truncate(len);
                lists.push(out);
            }
            let mut out = vec![[0xAA; 2]; (kernels.count)(&x) as usize + SLACK];
            let len = (kernels.bits_to_ids16)(&x, &mut out);
            out.truncate(len);
            lists.push(out);
            let words = [BitOp::And, BitOp::Or, BitOp::Xor, BitOp::AndNot].map(|op| {
                let mut out = [[0xAA; 8]; 1024];
                let count = (kernels.zip)(op, &x, &y, &mut out);
                let mut bytes = vec![0xAA; 5];
                assert_eq!((kernels.push_zip)(op, &x, &y, &mut bytes), count);
                assert_eq!(bytes[5..], *out.as_flattened());
                (count, out)
            });
            let mut ids = vec![3];
            (kernels.push_bits)(&x, 1 << 20, (kernels.count)(&x), &mut ids);
            let counts = [
                (kernels.count)(&x[turn % 1024..]),
                (kernels.and_count)(&x, &y),
                (kernels.count_runs_array)(&a),
                (kernels.and_count_arrays)(&a, &b),
            ];
            let runs = [0, 10, 500, 2_047, u32::MAX].map(|limit| (kernels.runs_up_to)(&x, limit));
            (lists, words, ids, counts, runs)
        };
        let expected = run(reference);
        for level in others {
            assert!(run(level) == expected, "{} differs in turn {turn}", level.name);
        }
    }
}

#[test]
fn the_reference_counts_runs_across_words() {
    let mut bits: Bits = [[0; 8]; 1024];
    crate::chunk::set_range(&mut bits, 60, 70);
    crate::chunk::set_range(&mut bits, 128 * 64 - 1, 128 * 64);
    crate::chunk::set_range(&mut bits, 65_535, 65_535);
    assert_eq!(scalar::runs_up_to(&bits, 100), Some(3));
    assert_eq!(scalar::runs_up_to(&bits, 2), None);
}

#[test]
fn what_is_written_past_the_cache_is_there() {
    let mut random = Random::new(1);
    for offset in 0..33 {
        let from: [u8; 16] = std::array::from_fn(|_| random.number() as u8);
        let mut bytes = vec![0; 80];
        let written = super::past_cache(|past_cache| {
            let place = bytes[offset..].first_chunk_mut().unwrap();
            past_cache.write(&from, place);
            *place
        });
        assert_eq!(written, from);
        let expected = [&vec![0; offset], &from[..], &vec![0; 64 - offset]].concat();
        assert_eq!(bytes, expected, "at {offset}");
    }
}
