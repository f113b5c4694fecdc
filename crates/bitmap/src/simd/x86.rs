//! x86-64: the loops of [`scalar`](super::scalar) with AVX2 or AVX-512, chosen at run time.
#![allow(unsafe_code)]

use std::sync::atomic::{AtomicU8, Ordering};

use super::words::{Groups, Items, Len, LinkRule, PairRule, TripleRule};
use super::{BitOp, Work, scalar};
use crate::chunk::{Bits, Ids16};

/// What the machine can run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Level {
    /// AVX-512 with byte and word instructions, word compression, population count and leading
    /// zeros of lanes.
    Avx512,
    /// AVX2 with the bit-manipulation instructions.
    Avx2,
    /// Neither.
    Scalar,
}

/// The best level of this machine.
#[inline]
pub(super) fn level() -> Level {
    // One byte, written once: asking the standard library for each feature costs more than some
    // of the loops behind it.
    static FOUND: AtomicU8 = AtomicU8::new(0);
    match FOUND.load(Ordering::Relaxed) {
        3 => Level::Avx512,
        2 => Level::Avx2,
        1 => Level::Scalar,
        _ => {
            let (level, number) = detect();
            FOUND.store(number, Ordering::Relaxed);
            level
        }
    }
}

#[cold]
fn detect() -> (Level, u8) {
    if is_x86_feature_detected!("avx512vpopcntdq")
        && is_x86_feature_detected!("avx512vbmi2")
        && is_x86_feature_detected!("avx512cd")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512vl")
        && is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("bmi1")
        && is_x86_feature_detected!("bmi2")
        && is_x86_feature_detected!("lzcnt")
        && is_x86_feature_detected!("popcnt")
    {
        (Level::Avx512, 3)
    } else if is_x86_feature_detected!("avx2")
        && is_x86_feature_detected!("bmi1")
        && is_x86_feature_detected!("bmi2")
        && is_x86_feature_detected!("lzcnt")
        && is_x86_feature_detected!("popcnt")
    {
        (Level::Avx2, 2)
    } else {
        (Level::Scalar, 1)
    }
}

/// The loops of the reference, compiled once more with `$features` on.
macro_rules! recompile {
    ($features:literal: $($name:ident $(<$rule:ident: $bound:path>)? ($($arg:ident: $ty:ty),*)
        $(-> $ret:ty)? = $body:expr;)*) => {
        $(
            #[target_feature(enable = $features)]
            pub(in super::super) fn $name $(<$rule: $bound>)? ($($arg: $ty),*) $(-> $ret)? {
                $body
            }
        )*
    };
}

/// Loops that are fastest as the compiler vectorises them.
macro_rules! plain_loops {
    ($features:literal) => {
        recompile! { $features:
            count(words: &[[u8; 8]]) -> u32 = scalar::count(words);
            zip(op: BitOp, a: &Bits, b: &Bits, out: &mut Bits) -> u32
                = scalar::zip(op, a, b, out);
            push_zip(op: BitOp, a: &Bits, b: &Bits, target: &mut Vec<u8>) -> u32
                = scalar::push_zip(op, a, b, target);
            and_count(a: &Bits, b: &Bits) -> u32 = scalar::and_count(a, b);
            runs_up_to(bits: &Bits, limit: u32) -> Option<u32> = scalar::runs_up_to(bits, limit);
            count_runs_array(ids: &Ids16) -> u32 = scalar::count_runs_array(ids);
            filter_array(ids: &Ids16, bits: &Bits, out: &mut Ids16) -> usize
                = scalar::filter_array(ids, bits, true, out);
            filter_array_not(ids: &Ids16, bits: &Bits, out: &mut Ids16) -> usize
                = scalar::filter_array(ids, bits, false, out);
            count_steps(ids: &[u32]) -> (u32, u32) = scalar::count_steps(ids);
            push_halves(ids: &[u32], target: &mut Vec<u8>) -> () = scalar::push_halves(ids, target);
            run<W: Work>(work: W) -> W::Result = work.run();
        }
    };
}

pub(super) mod avx2 {
    use super::{BitOp, Bits, Groups, Ids16, Items, Len, Work, scalar};
    use super::{LinkRule, PairRule, TripleRule};

    plain_loops! { "avx2,bmi1,bmi2,lzcnt,popcnt" }

    recompile! { "avx2,bmi1,bmi2,lzcnt,popcnt":
        and_arrays(a: &Ids16, b: &Ids16, out: &mut Ids16) -> usize = scalar::and_arrays(a, b, out);
        and_count_arrays(a: &Ids16, b: &Ids16) -> u32 = scalar::and_count_arrays(a, b);
        and_not_arrays(a: &Ids16, b: &Ids16, out: &mut Ids16) -> usize
            = scalar::and_not_arrays(a, b, out);
        or_arrays(a: &Ids16, b: &Ids16, out: &mut Ids16) -> usize
            = scalar::merge_arrays(a, b, out, true);
        xor_arrays(a: &Ids16, b: &Ids16, out: &mut Ids16) -> usize
            = scalar::merge_arrays(a, b, out, false);
        bits_to_ids16(bits: &Bits, out: &mut Ids16) -> usize = scalar::bits_to_ids16(bits, out);
        push_bits(bits: &Bits, base: u32, len: u32, target: &mut Vec<u32>)
            = scalar::push_bits(bits, base, len, target);
        group_ids(ids: &[u32], payload: u32, gaps: &mut Items, payloads: &mut Items) -> Groups
            = scalar::group_ids(ids, payload, gaps, payloads);
        group_array(base: u32, ids: &Ids16, payload: u32, gaps: &mut Items, payloads: &mut Items)
            -> Groups = scalar::group_array(base, ids, payload, gaps, payloads);
        run_ids(ids: &[u32], firsts: &mut Items, ends: &mut Items) -> usize
            = scalar::run_ids(ids, firsts, ends);
        chunk_starts(ids: &[u32], before: u32, keys: &mut Items, starts: &mut Items) -> usize
            = scalar::chunk_starts(ids, before, keys, starts);
        pair_words<R: PairRule>(gaps: &Items, bodies: &Items, len: Len, out: &mut [u32])
            -> usize = scalar::pair_words::<R>(gaps, bodies, len, out);
        link_words<R: LinkRule>(before: (u32, bool), gaps: &Items, bodies: &Items, len: usize,
            out: &mut [u32]) -> (usize, bool)
            = scalar::link_words::<R>(before, gaps, bodies, len, out);
        triple_words<R: TripleRule>(words: &[u32], len: usize, out: &mut [u32]) -> (usize, usize)
            = scalar::triple_words::<R>(words, len, out);
        turn_words<R: TripleRule>(gaps: &Items, payloads: &Items, len: usize, taken: bool,
            out: &mut [u32]) -> (usize, usize)
            = scalar::turn_words::<R>(gaps, payloads, len, taken, out);
    }
}

pub(super) mod avx512;
