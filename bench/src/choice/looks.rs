//! How long it takes to look a value up, by codec.

use std::hint::black_box;
use std::time::Instant;

use anyhow::ensure;
use tapdex_bitmap::{ALL_CODECS, Bitmap, Chunks, Codec};

/// Values of a column that are looked up, at most.
const VALUES: usize = 8;

/// Nanoseconds of a look-up, by codec, in the order of [`ALL_CODECS`].
#[derive(Debug, Clone, PartialEq)]
pub struct Looks {
    /// To check the bitmap of a value and count its rows.
    pub count: [f64; ALL_CODECS.len()],
    /// To check it and visit each of its runs of rows.
    pub visit: [f64; ALL_CODECS.len()],
}

/// The place of a codec.
pub fn place(codec: Codec) -> usize {
    ALL_CODECS.iter().position(|&other| other == codec).unwrap_or(0)
}

/// The bitmaps of some values of a column, in every codec.
pub struct Samples {
    rows: u32,
    /// Every so many values one is taken; 0 is none.
    step: usize,
    /// By codec, the bitmaps one after the other, and where each ends.
    bitmaps: [(Vec<u8>, Vec<usize>); ALL_CODECS.len()],
}

impl Samples {
    /// Samples of a column with so many rows and values.
    pub fn new(rows: u32, values: usize, is_wanted: bool) -> Self {
        let step = if is_wanted { values.div_ceil(VALUES).max(1) } else { 0 };
        Self { rows, step, bitmaps: Default::default() }
    }

    /// Takes a value, if it is one of those that are looked up.
    pub fn take(&mut self, value: usize, runs: &[(u32, u32)]) {
        if self.step == 0 || !value.is_multiple_of(self.step) {
            return;
        }
        for (codec, (bytes, ends)) in ALL_CODECS.into_iter().zip(&mut self.bitmaps) {
            codec.encode_runs(runs, bytes);
            ends.push(bytes.len());
        }
    }

    /// The time of a look-up: codecs in turn, the median of the rounds. All have to find the same.
    pub fn time(&self, rounds: usize) -> anyhow::Result<Option<Looks>> {
        let values = self.bitmaps[0].1.len();
        if values == 0 || rounds == 0 {
            return Ok(None);
        }
        let mut times = [const { [const { Vec::<f64>::new() }; ALL_CODECS.len()] }; 2];
        let mut found = [None; 2];
        for round in 0..=rounds {
            for (way, times) in times.iter_mut().enumerate() {
                for (codec, times) in ALL_CODECS.into_iter().zip(times.iter_mut()) {
                    let start = Instant::now();
                    let sum = black_box(self.look(codec, way == 1)?);
                    let ns = start.elapsed().as_secs_f64() * 1e9;
                    let expected = *found[way].get_or_insert(sum);
                    ensure!(sum == expected, "{codec}: {sum}, others: {expected}");
                    // The first round warms caches.
                    if round > 0 {
                        times.push(ns / values as f64);
                    }
                }
            }
        }
        let [count, visit] = times.map(|times| {
            times.map(|mut times| {
                times.sort_by(f64::total_cmp);
                times[times.len() / 2]
            })
        });
        Ok(Some(Looks { count, visit }))
    }

    /// Looks all samples up: the number of their rows, or a sum over their runs.
    fn look(&self, codec: Codec, visits: bool) -> anyhow::Result<u64> {
        let (bytes, ends) = &self.bitmaps[place(codec)];
        let (mut sum, mut start) = (0_u64, 0);
        for &end in ends {
            let bitmap = Bitmap::open(codec, &bytes[start..end], self.rows)?;
            start = end;
            if !visits {
                sum += bitmap.cardinality();
                continue;
            }
            let mut chunks = bitmap.chunks();
            let mut key = 0;
            while let Some(found) = chunks.seek(key) {
                chunks.load().for_each_run(|first, last| {
                    sum = sum.wrapping_add(u64::from(first) ^ u64::from(last) << 20);
                });
                key = found + 1;
            }
        }
        Ok(sum)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_codecs_find_the_same() {
        let mut samples = Samples::new(300_000, 17, true);
        for value in 0..17_u32 {
            samples.take(value as usize, &[(value, value + 5), (70_000 + value, 290_000)]);
        }
        // Every third of 17 values.
        assert_eq!(samples.bitmaps[0].1.len(), 6);
        let looks = samples.time(2).unwrap().unwrap();
        assert!(looks.count.iter().chain(&looks.visit).all(|ns| *ns > 0.0));
        assert!(Samples::new(9, 3, false).time(2).unwrap().is_none());
    }
}
