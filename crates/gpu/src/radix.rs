//! Sorts numbers by what they stand for, eight bits at a time: `radix.cu`.

use crate::column::{BLOCK_ALONE, BUCKETS, SCAN_TILE, THREADS, TILE_THREADS, args, blocks, u32_of};
use crate::device::{Address, Arg, Device, DeviceError, Launch, Stream};

/// Numbers of a tile that is sorted.
pub(crate) const NUMBERS_TILE: usize = 4096;

/// Bits of a pass.
const PASS_BITS: u32 = BUCKETS.trailing_zeros();

/// What to sort by: a word for each number.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Keys {
    /// Words of 64 bits.
    Words(Address),
    /// Words of 32 bits.
    Longs(Address),
}

/// What sorts, and the memory that it takes on the device.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Radix<'d> {
    pub(crate) device: &'d dyn Device,
    /// Room for as many bytes as [`room`](Self::room) says.
    pub(crate) counts: Address,
    pub(crate) sums: Address,
    /// A number that nobody reads.
    pub(crate) unread: Address,
}

impl Radix<'_> {
    /// Bytes of `counts` and `sums` that sorting so many numbers takes, or adding them up.
    pub(crate) fn room(len: usize) -> [usize; 2] {
        let counts = BUCKETS * len.div_ceil(NUMBERS_TILE);
        [4 * counts, 4 * counts.max(len).div_ceil(SCAN_TILE)]
    }

    /// Sorts the numbers below `len` by groups of bits, the most significant last; returns where
    /// they are.
    pub(crate) fn sort(
        &self,
        len: usize,
        [mut from, mut to]: [Address; 2],
        passes: &[(Keys, u32)],
    ) -> Result<Address, DeviceError> {
        let (len32, tiles) = (u32_of(len), blocks(len, NUMBERS_TILE));
        let (device, counts) = (self.device, self.counts);
        let grid = (blocks(len, THREADS as usize), THREADS);
        launch(device, "radix", "radix_numbers", grid, args![from, len32])?;
        for &(keys, shift) in passes {
            let (words, count, scatter) = match keys {
                Keys::Words(at) => (at, "radix_count_u64", "radix_scatter_u64"),
                Keys::Longs(at) => (at, "radix_count_u32", "radix_scatter_u32"),
            };
            let grid = (tiles, TILE_THREADS);
            let args = args![words, shift, from, len32, tiles, counts];
            launch(device, "radix", count, grid, args)?;
            self.scan(counts, BUCKETS * tiles as usize)?;
            let args = args![words, shift, from, len32, tiles, counts, to];
            launch(device, "radix", scatter, grid, args)?;
            (from, to) = (to, from);
        }
        Ok(from)
    }

    /// Replaces numbers by the sums of those before.
    pub(crate) fn scan(&self, values: Address, len: usize) -> Result<(), DeviceError> {
        let (device, tiles) = (self.device, blocks(len, SCAN_TILE));
        let args = args![values, u32_of(len), 0_u64, self.sums];
        launch(device, "scan", "scan_tiles", (tiles, THREADS), args)?;
        let sums = args![self.sums, tiles, self.unread];
        launch(device, "scan", "scan_sums", (1, BLOCK_ALONE), sums)?;
        launch(device, "scan", "scan_apply", (tiles, THREADS), args)
    }
}

/// Runs a kernel, with so many blocks and threads of each.
pub(crate) fn launch(
    device: &dyn Device,
    stem: &'static str,
    kernel: &'static str,
    (blocks, threads): (u32, u32),
    args: &[Arg],
) -> Result<(), DeviceError> {
    let launch = Launch { stem, kernel, blocks, threads, shared: 0 };
    device.launch(Stream::Compute, launch, args)
}

/// All bits that numbers up to this one may have.
pub(crate) fn bits_up_to(last: u64) -> u64 {
    u64::MAX.checked_shr(last.leading_zeros()).unwrap_or(0)
}

/// Where the passes that sort by these bits start, the lowest first; every pass covers at least one
/// of them.
pub(crate) fn shifts(mut bits: u64) -> impl Iterator<Item = u32> {
    std::iter::from_fn(move || {
        let shift = (bits != 0).then(|| bits.trailing_zeros())?;
        bits &= u64::MAX.checked_shl(shift + PASS_BITS).unwrap_or(0);
        Some(shift)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passes_leave_out_bits_that_are_the_same() {
        let of = |bits| shifts(bits).collect::<Vec<_>>();
        assert_eq!(of(0), []);
        assert_eq!(of(1), [0]);
        assert_eq!(of(0xFF), [0]);
        assert_eq!(of(0x1FF), [0, 8]);
        assert_eq!(of(0xFF << 4), [4]);
        assert_eq!(of(1 << 63 | 1 << 20 | 1 << 19), [19, 63]);
        assert_eq!(of(u64::MAX), [0, 8, 16, 24, 32, 40, 48, 56]);
        assert_eq!(of(u64::MAX << 60), [60]);
    }
}
