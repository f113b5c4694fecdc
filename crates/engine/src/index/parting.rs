//! Whether the bitmaps of a column partition the rows: each row is in exactly one of them.
//!
//! Say that row `i` is in `m(i)` bitmaps. That is 1 for every row if `m` steps up by one at row 0,
//! down by one behind the last row, and is level between them. A run of rows in a bitmap, from `a`
//! to `b`, adds a step up at `a` and a step down at `b + 1`. So with a hash `h` of row numbers, the
//! sum of `h(a) - h(b + 1)` over all runs of all bitmaps has to be `h(0) - h(rows)`: this takes one
//! number of memory, and time for the runs, however many rows they have.
//!
//! `h` has 64 bits and a random key that is drawn when the check begins. The file was written
//! before that, so wrong steps give the right sum only by chance.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};

use tapdex_bitmap::{Bitmap, Chunks};

/// Sums of the steps of bitmaps, all modulo 2^64; see the [module](self).
#[derive(Debug)]
pub(super) struct Parting {
    key: u64,
}

impl Parting {
    /// With a random key.
    pub(super) fn new() -> Self {
        Self { key: RandomState::new().build_hasher().finish() }
    }

    /// The sum of a bitmap that has all rows.
    pub(super) fn all(&self, rows: u32) -> u64 {
        self.run(0, rows)
    }

    /// The sum of a bitmap.
    pub(super) fn sum(&self, bitmap: &Bitmap<'_>) -> u64 {
        let (mut sum, mut from) = (0_u64, 0);
        let mut chunks = bitmap.chunks();
        while let Some(key) = chunks.seek(from) {
            // An id is less than the row count, so the row behind it has a number.
            chunks.load().for_each_run(|first, last| {
                sum = sum.wrapping_add(self.run(key << 16 | first, (key << 16 | last) + 1));
            });
            from = key + 1;
        }
        sum
    }

    /// The steps of a run: its first row, and the row behind its last.
    fn run(&self, start: u32, end: u32) -> u64 {
        self.hash(start).wrapping_sub(self.hash(end))
    }

    /// The step of SplitMix64 (Steele, Lea and Flood, 2014).
    fn hash(&self, row: u32) -> u64 {
        let mut hash = self.key.wrapping_add(u64::from(row).wrapping_mul(0x9E37_79B9_7F4A_7C15));
        hash = (hash ^ hash >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        hash = (hash ^ hash >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        hash ^ hash >> 31
    }
}

#[cfg(test)]
mod tests {
    use tapdex_bitmap::ALL_CODECS;

    use super::*;

    /// Whether the sums of the sets, in any codec, add up to that of all rows.
    fn is_parted(rows: u32, sets: &[&[u32]]) -> bool {
        let parting = Parting::new();
        let parted = ALL_CODECS.map(|codec| {
            let sums = sets.iter().map(|ids| {
                let mut bytes = vec![];
                codec.encode(ids, &mut bytes);
                parting.sum(&Bitmap::open(codec, &bytes, rows).unwrap())
            });
            sums.fold(0, u64::wrapping_add) == parting.all(rows)
        });
        assert!(parted.iter().all(|&one| one == parted[0]), "{parted:?}");
        parted[0]
    }

    #[test]
    fn rows_are_parted_if_each_is_in_one_set() {
        let rows = 200_000;
        let all: Vec<u32> = (0..rows).collect();
        let (few, most): (Vec<u32>, Vec<u32>) = all.iter().partition(|&row| row % 1_000 < 3);
        assert!(is_parted(0, &[]) && is_parted(0, &[&[]]));
        assert!(is_parted(rows, &[&all]));
        assert!(is_parted(rows, &[&few, &most]));
        assert!(!is_parted(rows, &[&most]) && !is_parted(rows, &[&all, &few]));
        assert!(!is_parted(rows, &[&all[1..]]) && !is_parted(rows, &[&all[..199_999]]));
        // As many ids as there are rows: one row twice, and one not at all.
        assert!(!is_parted(35, &[&all[..34], &[0]]));
        assert!(!is_parted(rows, &[&few, &most[1..], &few[..1]]));
    }
}
