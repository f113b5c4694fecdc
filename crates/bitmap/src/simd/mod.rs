//! The inner loops over chunks, for the machine at hand.
//!
//! [`scalar`] is the reference and runs everywhere. `x86` compiles the same loops with AVX2 or
//! AVX-512 on, and has hand-written AVX-512 kernels for the loops that a compiler cannot turn into
//! vector code. The choice is made at run time, once per call, from a cached flag.
//!
//! This folder is the only place of the crate where `unsafe` is allowed.

use crate::chunk::{Bits, Ids16};

mod scalar;
pub(crate) mod words;
#[cfg(target_arch = "x86_64")]
mod x86;

/// An operation on two bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BitOp {
    /// Set in both.
    And,
    /// Set in either.
    Or,
    /// Set in exactly one.
    Xor,
    /// Set in the first and not in the second.
    AndNot,
}

/// Asks the processor to fetch an element of a list that will be read soon. The program goes on, so
/// several such reads overlap. Nothing happens if there is no such element.
#[inline(always)]
pub fn prefetch<T>(list: &[T], at: usize) {
    #[cfg(target_arch = "x86_64")]
    if let Some(element) = list.get(at) {
        // SAFETY: the hint has no effect that a program can see, wherever it points.
        #[allow(unsafe_code)]
        unsafe {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(element).cast());
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (list, at);
}

/// Writes that leave the cache to others: see [`past_cache`].
#[derive(Debug)]
pub struct PastCache(());

impl PastCache {
    /// Writes 16 bytes. It is fast if places follow each other, and start at multiples of 16.
    #[inline(always)]
    pub fn write(&self, from: &[u8; 16], to: &mut [u8; 16]) {
        #[cfg(target_arch = "x86_64")]
        if to.as_ptr().addr().is_multiple_of(16) {
            // SAFETY: the place is aligned and ours. Others can see it only when `past_cache` has
            // returned, and that waits for such writes.
            #[allow(unsafe_code)]
            unsafe {
                use std::arch::x86_64::{_mm_loadu_si128, _mm_stream_si128};
                _mm_stream_si128(to.as_mut_ptr().cast(), _mm_loadu_si128(from.as_ptr().cast()));
            }
            return;
        }
        *to = *from;
    }
}

/// Does some work that writes memory which this thread will not read again soon, such as what a
/// device is to copy: writes go past the cache, so that memory is not read before, and the cache
/// keeps what it has.
///
/// ```
/// let mut all = [[0; 16]; 4];
/// tapdex_bitmap::past_cache(|past_cache| past_cache.write(&[7; 16], &mut all[1]));
/// assert_eq!(all, [[0; 16], [7; 16], [0; 16], [0; 16]]);
/// ```
#[inline(always)]
pub fn past_cache<R>(work: impl FnOnce(&PastCache) -> R) -> R {
    /// Has the writes be seen before those that follow, also after a panic.
    struct Done;
    impl Drop for Done {
        fn drop(&mut self) {
            // SAFETY: every x86-64 has it.
            #[cfg(target_arch = "x86_64")]
            #[allow(unsafe_code)]
            unsafe {
                std::arch::x86_64::_mm_sfence();
            }
        }
    }
    let _done = Done;
    work(&PastCache(()))
}

/// Work whose loops the compiler turns into faster code if it may use all instructions of the
/// machine, above all its vectors: see [`run`]. What it calls has to be inlined, too.
pub trait Work {
    /// What comes of it.
    type Result;
    /// Does it; always marked `#[inline(always)]`.
    fn run(self) -> Self::Result;
}

/// Does some work with the best instructions that the machine has. The result is the same on all
/// machines.
///
/// ```
/// # use tapdex_bitmap::{Work, run};
/// struct Sum<'n>(&'n [u32]);
///
/// impl Work for Sum<'_> {
///     type Result = u32;
///     #[inline(always)]
///     fn run(self) -> u32 {
///         self.0.iter().sum()
///     }
/// }
///
/// assert_eq!(run(Sum(&[3, 4, 5])), 12);
/// ```
#[inline]
pub fn run<W: Work>(work: W) -> W::Result {
    #[cfg(target_arch = "x86_64")]
    match x86::level() {
        x86::Level::Avx512 => {
            // SAFETY: `level` saw every feature that `avx512` functions enable.
            #[allow(unsafe_code)]
            return unsafe { x86::avx512::run(work) };
        }
        x86::Level::Avx2 => {
            // SAFETY: `level` saw every feature that `avx2` functions enable.
            #[allow(unsafe_code)]
            return unsafe { x86::avx2::run(work) };
        }
        x86::Level::Scalar => {}
    }
    work.run()
}

/// Ids past the end of a result that kernels may write to: one full 512-bit register.
pub(crate) const SLACK: usize = 32;

/// Declares one function per loop, which runs the best version of it that the machine has.
macro_rules! dispatch {
    ($(
        $(#[$doc:meta])*
        fn $name:ident($($arg:ident: $ty:ty),*) $(-> $ret:ty)? = $scalar:expr;
    )*) => {
        $(
            $(#[$doc])*
            #[inline]
            pub(crate) fn $name($($arg: $ty),*) $(-> $ret)? {
                #[cfg(target_arch = "x86_64")]
                match x86::level() {
                    x86::Level::Avx512 => {
                        // SAFETY: `level` saw every feature that `avx512` functions enable.
                        #[allow(unsafe_code)]
                        return unsafe { x86::avx512::$name($($arg),*) };
                    }
                    x86::Level::Avx2 => {
                        // SAFETY: `level` saw every feature that `avx2` functions enable.
                        #[allow(unsafe_code)]
                        return unsafe { x86::avx2::$name($($arg),*) };
                    }
                    x86::Level::Scalar => {}
                }
                $scalar
            }
        )*
    };
}

dispatch! {
    /// How many bits are set.
    fn count(words: &[[u8; 8]]) -> u32 = scalar::count(words);
    /// Writes `op` of each pair of words and counts the bits of the results.
    fn zip(op: BitOp, a: &Bits, b: &Bits, out: &mut Bits) -> u32 = scalar::zip(op, a, b, out);
    /// Appends `op` of each pair of words and counts the bits of the results.
    fn push_zip(op: BitOp, a: &Bits, b: &Bits, target: &mut Vec<u8>) -> u32
        = scalar::push_zip(op, a, b, target);
    /// How many bits are set in both.
    fn and_count(a: &Bits, b: &Bits) -> u32 = scalar::and_count(a, b);
    /// How many maximal runs of set bits there are, or `None` if there are more than `limit`.
    fn runs_up_to(bits: &Bits, limit: u32) -> Option<u32> = scalar::runs_up_to(bits, limit);
    /// How many maximal runs there are in ascending ids.
    fn count_runs_array(ids: &Ids16) -> u32 = scalar::count_runs_array(ids);
    /// The ids in both lists. `out` is as long as the shorter list and [`SLACK`] more.
    fn and_arrays(a: &Ids16, b: &Ids16, out: &mut Ids16) -> usize = scalar::and_arrays(a, b, out);
    /// How many ids are in both lists.
    fn and_count_arrays(a: &Ids16, b: &Ids16) -> u32 = scalar::and_count_arrays(a, b);
    /// The ids in either list. `out` is as long as both together and [`SLACK`] more.
    fn or_arrays(a: &Ids16, b: &Ids16, out: &mut Ids16) -> usize
        = scalar::merge_arrays(a, b, out, true);
    /// The ids in exactly one of the lists. `out` as in [`or_arrays`].
    fn xor_arrays(a: &Ids16, b: &Ids16, out: &mut Ids16) -> usize
        = scalar::merge_arrays(a, b, out, false);
    /// The ids of `a` that are not in `b`. `out` is as long as `a` and [`SLACK`] more.
    fn and_not_arrays(a: &Ids16, b: &Ids16, out: &mut Ids16) -> usize
        = scalar::and_not_arrays(a, b, out);
    /// The ids whose bit is set. `out` is as long as `ids`.
    fn filter_array(ids: &Ids16, bits: &Bits, out: &mut Ids16) -> usize
        = scalar::filter_array(ids, bits, true, out);
    /// The ids whose bit is not set. `out` is as long as `ids`.
    fn filter_array_not(ids: &Ids16, bits: &Bits, out: &mut Ids16) -> usize
        = scalar::filter_array(ids, bits, false, out);
    /// Writes the ids of the set bits and returns how many. `out` holds them and [`SLACK`] more.
    fn bits_to_ids16(bits: &Bits, out: &mut Ids16) -> usize = scalar::bits_to_ids16(bits, out);
    /// Appends `base` plus the index of every set bit, `len` of them.
    fn push_bits(bits: &Bits, base: u32, len: u32, target: &mut Vec<u32>)
        = scalar::push_bits(bits, base, len, target);
}

#[cfg(test)]
mod tests;
