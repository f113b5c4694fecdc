//! x86-64: the loops of [`scalar`](super::scalar) with AVX2 or AVX-512, chosen at run time.
#![allow(unsafe_code)]

use super::scalar;
use crate::chunk::{Bits, Ids16};

/// What the machine can run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Level {
    /// AVX-512 with byte and word instructions, word compression and vector population count.
    Avx512,
    /// AVX2 with the bit-manipulation instructions.
    Avx2,
    /// Neither.
    Scalar,
}

/// The best level of this machine; the standard library caches the answer.
#[inline]
pub(super) fn level() -> Level {
    if is_x86_feature_detected!("avx512vpopcntdq")
        && is_x86_feature_detected!("avx512vbmi2")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512vl")
        && is_x86_feature_detected!("bmi2")
    {
        Level::Avx512
    } else if is_x86_feature_detected!("avx2")
        && is_x86_feature_detected!("bmi2")
        && is_x86_feature_detected!("bmi1")
        && is_x86_feature_detected!("popcnt")
    {
        Level::Avx2
    } else {
        Level::Scalar
    }
}

/// The loops of the reference, compiled once more with `$features` on.
macro_rules! recompile {
    ($features:literal: $($name:ident($($arg:ident: $ty:ty),*) $(-> $ret:ty)? = $body:expr;)*) => {
        $(
            #[target_feature(enable = $features)]
            pub(in super::super) fn $name($($arg: $ty),*) $(-> $ret)? {
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
            and(a: &Bits, b: &Bits, out: &mut Bits) -> u32
                = scalar::zip_words(a, b, out, |x, y| x & y);
            or(a: &Bits, b: &Bits, out: &mut Bits) -> u32
                = scalar::zip_words(a, b, out, |x, y| x | y);
            and_not(a: &Bits, b: &Bits, out: &mut Bits) -> u32
                = scalar::zip_words(a, b, out, |x, y| x & !y);
            and_count(a: &Bits, b: &Bits) -> u32 = scalar::and_count(a, b);
            count_runs(bits: &Bits) -> u32 = scalar::count_runs(bits);
            count_runs_array(ids: &Ids16) -> u32 = scalar::count_runs_array(ids);
            and_not_arrays(a: &Ids16, b: &Ids16, out: &mut Ids16) -> usize
                = scalar::and_not_arrays(a, b, out);
            filter_array(ids: &Ids16, bits: &Bits, out: &mut Ids16) -> usize
                = scalar::filter_array(ids, bits, true, out);
            filter_array_not(ids: &Ids16, bits: &Bits, out: &mut Ids16) -> usize
                = scalar::filter_array(ids, bits, false, out);
        }
    };
}

pub(super) mod avx2 {
    use super::{Bits, Ids16, scalar};

    plain_loops! { "avx2,bmi1,bmi2,popcnt" }

    recompile! { "avx2,bmi1,bmi2,popcnt":
        and_arrays(a: &Ids16, b: &Ids16, out: &mut Ids16) -> usize = scalar::and_arrays(a, b, out);
        and_count_arrays(a: &Ids16, b: &Ids16) -> u32 = scalar::and_count_arrays(a, b);
        or_arrays(a: &Ids16, b: &Ids16, out: &mut Ids16) -> usize
            = scalar::merge_arrays(a, b, out, true);
        xor_arrays(a: &Ids16, b: &Ids16, out: &mut Ids16) -> usize
            = scalar::merge_arrays(a, b, out, false);
        bits_to_ids16(bits: &Bits, out: &mut Ids16) -> usize = scalar::bits_to_ids16(bits, out);
        push_bits(bits: &Bits, base: u32, len: u32, target: &mut Vec<u32>)
            = scalar::push_bits(bits, base, len, target);
    }
}

pub(super) mod avx512 {
    use super::{Bits, Ids16, scalar};

    plain_loops! { "avx512f,avx512bw,avx512vl,avx512vbmi2,avx512vpopcntdq,bmi1,bmi2,popcnt" }

    recompile! { "avx512f,avx512bw,avx512vl,avx512vbmi2,avx512vpopcntdq,bmi1,bmi2,popcnt":
        and_arrays(a: &Ids16, b: &Ids16, out: &mut Ids16) -> usize = scalar::and_arrays(a, b, out);
        and_count_arrays(a: &Ids16, b: &Ids16) -> u32 = scalar::and_count_arrays(a, b);
        or_arrays(a: &Ids16, b: &Ids16, out: &mut Ids16) -> usize
            = scalar::merge_arrays(a, b, out, true);
        xor_arrays(a: &Ids16, b: &Ids16, out: &mut Ids16) -> usize
            = scalar::merge_arrays(a, b, out, false);
        bits_to_ids16(bits: &Bits, out: &mut Ids16) -> usize = scalar::bits_to_ids16(bits, out);
        push_bits(bits: &Bits, base: u32, len: u32, target: &mut Vec<u32>)
            = scalar::push_bits(bits, base, len, target);
    }
}
