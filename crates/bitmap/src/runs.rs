//! Runs of neighbouring ids: found without looking at each id, and used without expanding them.

use crate::cast::len32;
use crate::chunk::CHUNK_ROWS;
use crate::groups::BATCHED_FROM;
use crate::simd::words::BATCH;

/// How many ids at the start of the slice follow each other without a gap; the slice is not empty.
///
/// The ids ascend strictly, so `n` of them lie without a gap exactly when the last is `n - 1` above
/// the first: the end of the run is found in steps that double, then by binary search.
#[inline(always)]
pub(crate) fn run_len(ids: &[u32]) -> usize {
    let first = ids[0];
    let joined = |n: usize| ids.get(n - 1).is_some_and(|&id| id - first == len32(n) - 1);
    if !joined(2) {
        return 1;
    }
    let mut step = 2;
    while joined(2 * step) {
        step *= 2;
    }
    let (mut inside, mut outside) = (step, 2 * step);
    while outside - inside > 1 {
        let middle = inside + (outside - inside) / 2;
        if joined(middle) {
            inside = middle;
        } else {
            outside = middle;
        }
    }
    inside
}

/// Whether runs are what [`Codec::encode_runs`](crate::Codec::encode_runs) asks for.
pub(crate) fn are_apart(runs: &[(u32, u32)]) -> bool {
    runs.iter().all(|&(first, last)| first <= last && last < u32::MAX)
        && runs.is_sorted_by(|a, b| a.1 < b.0 && b.0 - a.1 > 1)
}

/// How many ids the runs hold.
pub(crate) fn count_ids(runs: &[(u32, u32)]) -> usize {
    // Fewer than 2^32, because they are different.
    runs.iter().map(|&(first, last)| last - first + 1).sum::<u32>() as usize
}

/// An encoder that takes ids and runs in turn.
pub(crate) trait TakeRuns {
    /// Adds ascending ids, all above what was added before.
    fn take_ids(&mut self, ids: &[u32]);
    /// Adds ascending runs that lie apart, all above what was added before.
    fn take_runs(&mut self, runs: &[(u32, u32)]);
}

/// Runs whose ids are copied at once if each of them has one id.
const BLOCK: usize = 16;

/// Adds ascending runs that lie apart, as ids if they have one each: encoders take a batch of ids
/// faster than as many runs.
#[inline(always)]
pub(crate) fn push_runs(runs: &[(u32, u32)], encoder: &mut impl TakeRuns) {
    if runs.len() < BATCHED_FROM {
        return encoder.take_runs(runs);
    }
    let mut ids = [0; BATCH];
    let mut held = 0;
    let mut rest = runs;
    while !rest.is_empty() {
        let len = rest.chunks(BLOCK).take_while(|block| !are_single(block)).map(<[_]>::len).sum();
        if len > 0 {
            encoder.take_ids(&ids[..held]);
            held = 0;
            encoder.take_runs(&rest[..len]);
            rest = &rest[len..];
            continue;
        }
        let (block, after) = rest.split_at(rest.len().min(BLOCK));
        for (slot, run) in ids[held..].iter_mut().zip(block) {
            *slot = run.0;
        }
        held += block.len();
        if held > BATCH - BLOCK {
            encoder.take_ids(&ids[..held]);
            held = 0;
        }
        rest = after;
    }
    encoder.take_ids(&ids[..held]);
}

/// Whether each of the runs has one id.
#[inline(always)]
fn are_single(runs: &[(u32, u32)]) -> bool {
    runs.iter().fold(0, |differ, run| differ | run.0 ^ run.1) == 0
}

/// The ids of runs most of which have one.
pub(crate) fn spread(runs: &[(u32, u32)], ids: usize) -> Vec<u32> {
    let mut target = Vec::with_capacity(ids);
    for block in runs.chunks(BLOCK) {
        if are_single(block) {
            target.extend(block.iter().map(|run| run.0));
        } else {
            block.iter().for_each(|&(first, last)| target.extend(first..last + 1));
        }
    }
    target
}

/// The part of ascending runs that lies in one chunk.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ChunkRuns<'r> {
    /// The runs that reach into the chunk.
    runs: &'r [(u32, u32)],
    /// The first and the last row of the part.
    ends: (u32, u32),
}

impl ChunkRuns<'_> {
    /// The key of the chunk.
    #[inline(always)]
    pub(crate) fn key(&self) -> u32 {
        self.ends.0 >> 16
    }

    /// How many runs there are.
    #[inline(always)]
    pub(crate) fn runs(&self) -> u32 {
        len32(self.runs.len())
    }

    /// How many ids they hold.
    #[inline(always)]
    pub(crate) fn ids(&self) -> u32 {
        // Outside of the part lie at most the start of the first run and the end of the last.
        let whole =
            self.runs.iter().fold(0_u32, |sum, &(first, last)| sum.wrapping_add(last - first + 1));
        let (first, last) = self.ends;
        let before = self.runs.first().map_or(0, |run| first - run.0);
        let after = self.runs.last().map_or(0, |run| run.1 - last);
        whole.wrapping_sub(before).wrapping_sub(after)
    }

    /// The first and the last id of each run, counted from the start of the chunk.
    #[inline(always)]
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, u32)> {
        let (from, to) = self.ends;
        let cut = move |&(first, last): &(u32, u32)| {
            (first.max(from) & (CHUNK_ROWS - 1), last.min(to) & (CHUNK_ROWS - 1))
        };
        self.runs.iter().map(cut)
    }
}

/// Cuts ascending runs into chunks.
#[inline(always)]
pub(crate) fn for_each_chunk<'r>(runs: &'r [(u32, u32)], mut each: impl FnMut(ChunkRuns<'r>)) {
    let mut rest = runs;
    let mut from = 0;
    while let Some(&(first, _)) = rest.first() {
        from = first.max(from);
        let end = from | (CHUNK_ROWS - 1);
        // In steps that double, then by binary search: a chunk may have few of many runs, or many.
        let starts_here = |n: usize| rest.get(n - 1).is_some_and(|run| run.0 <= end);
        let mut inside = 1;
        while starts_here(2 * inside) {
            inside *= 2;
        }
        let outside = rest.len().min(2 * inside);
        let here = inside + rest[inside..outside].partition_point(|run| run.0 <= end);
        let last = rest[here - 1].1;
        each(ChunkRuns { runs: &rest[..here], ends: (from, last.min(end)) });
        if last > end {
            rest = &rest[here - 1..];
            from = end + 1;
        } else {
            rest = &rest[here..];
        }
    }
}

/// How many chunks ascending runs lie in.
pub(crate) fn count_chunks(runs: &[(u32, u32)]) -> usize {
    let inside: usize =
        runs.iter().map(|&(first, last)| (last >> 16) as usize - (first >> 16) as usize).sum();
    let pairs = runs.iter().zip(runs.get(1..).unwrap_or_default());
    let between: u32 = pairs.map(|(a, b)| u32::from(a.1 >> 16 != b.0 >> 16)).sum();
    inside + between as usize + usize::from(!runs.is_empty())
}
