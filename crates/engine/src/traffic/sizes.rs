//! How long packets are: chosen to reach the mean.

use tapdex_bitmap::sample::Random;

/// Up to this mean, every frame is as short as it can be.
pub(super) const LEAST_MEAN: u32 = 64;
const MEAN_MIX: u32 = 700;
const LEVEL_MAX: i64 = 1_024;
/// A mean at which the level is about the highest.
const MEAN_MAX: i64 = 1_200;
/// Bytes that are missing so far for each step of the level.
const STEP_BYTES: i64 = 256;

/// Keeps the mean length near what was asked for.
///
/// The *level* says how much data goes into a packet. Below the middle, packets are either full or
/// of random length, and full ones get more frequent with the level; above it, there are also fewer
/// acknowledgements. Bytes that are missing so far raise it.
#[derive(Debug, Clone)]
pub(super) struct Sizes {
    mean: u32,
    missing: i64,
    level: u32,
}

impl Sizes {
    pub(super) fn new(mean: Option<u32>) -> Self {
        let mut sizes = Self { mean: mean.unwrap_or(MEAN_MIX), missing: 0, level: 0 };
        sizes.settle();
        sizes
    }

    /// Whether every frame is as short as it can be.
    pub(super) fn is_least(&self) -> bool {
        self.mean <= LEAST_MEAN
    }

    /// Whether payloads with a natural length have to be cut to get near the mean.
    pub(super) fn is_small(&self) -> bool {
        self.mean < 200
    }

    /// Counts a frame.
    pub(super) fn sent(&mut self, len: u32) {
        self.missing += i64::from(self.mean) - i64::from(len);
        self.settle();
    }

    fn settle(&mut self) {
        let usual = i64::from(self.mean) * LEVEL_MAX / MEAN_MAX;
        let level = usual.min(LEVEL_MAX) + self.missing / STEP_BYTES;
        self.level = u32::try_from(level.clamp(0, LEVEL_MAX)).unwrap_or(0);
    }

    /// Bytes of a payload, at least 8 and at most `max`.
    pub(super) fn payload(&self, max: usize, random: &mut Random) -> usize {
        if random.below(1_024) < 2 * self.level {
            return max;
        }
        let small = 8 + random.below(8 + 2 * self.level.min(512));
        max.min(small as usize)
    }

    /// After how many packets with data an acknowledgement comes.
    pub(super) fn ack_every(&self) -> u32 {
        2 + self.level.saturating_sub(512) / 16
    }
}
