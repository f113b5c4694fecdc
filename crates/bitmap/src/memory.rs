//! Sets in memory: runs of ids, or a bit for each id.

use crate::chunk::{Bits, CHUNK_ROWS, Chunk, Room, WORDS};
use crate::chunks::Chunks;
use crate::runs::count_chunks;

/// A cursor over a set that is a list of runs in memory.
///
/// ```
/// # use tapdex_bitmap::{Chunks, RunSet};
/// let (a, b) = (RunSet::new(vec![(2, 9), (70_000, 70_001)]), RunSet::new(vec![(5, 70_000)]));
/// assert_eq!(a.and(b).ids().collect::<Vec<_>>(), [5, 6, 7, 8, 9, 70_000]);
/// ```
#[derive(Debug)]
pub struct RunSet {
    /// First and last id of each run.
    runs: Vec<(u32, u32)>,
    /// The first run that reaches into the chunk under the cursor, or behind it.
    at: usize,
    key: u32,
    room: Room,
}

impl RunSet {
    /// The set of these runs, given as first and last ids. They ascend and do not overlap.
    pub fn new(runs: Vec<(u32, u32)>) -> Self {
        Self { runs, at: 0, key: 0, room: Room::default() }
    }

    /// The runs that reach into the chunk under the cursor, cut to it.
    fn here(&self) -> impl Iterator<Item = (u32, u32)> {
        let (start, end) = (self.key << 16, self.key << 16 | (CHUNK_ROWS - 1));
        let runs = self.runs[self.at..].iter().take_while(move |run| run.0 <= end);
        runs.map(move |run| (run.0.max(start) - start, run.1.min(end) - start))
    }
}

impl Chunks for RunSet {
    fn seek(&mut self, key: u32) -> Option<u32> {
        let ends_before = |run: &(u32, u32)| run.1 >> 16 < key;
        // In steps that double, then by binary search.
        let mut step = 1;
        while self.runs.get(self.at + step - 1).is_some_and(ends_before) {
            self.at += step;
            step *= 2;
        }
        let rest = self.runs.get(self.at..(self.at + step).min(self.runs.len()))?;
        self.at += rest.partition_point(ends_before);
        self.key = key.max(self.key).max(self.runs.get(self.at)?.0 >> 16);
        Some(self.key)
    }

    fn load(&mut self) -> Chunk<'_> {
        let mut room = std::mem::take(&mut self.room);
        let buffer = room.get();
        buffer.clear();
        self.here().for_each(|(first, last)| buffer.push_run(first, last));
        self.room = room;
        self.room.get().chunk()
    }

    fn chunk_len(&mut self) -> u32 {
        self.here().map(|(first, last)| last - first + 1).sum()
    }

    fn release(&mut self) {
        self.room.release();
    }

    fn chunks_max(&self) -> usize {
        count_chunks(&self.runs[self.at.min(self.runs.len())..])
    }

    fn keys_end(&self) -> u32 {
        self.runs.last().map_or(0, |run| (run.1 >> 16) + 1)
    }
}

/// A cursor over a set in memory that has a bit for each id.
///
/// ```
/// # use tapdex_bitmap::{BitSet, Chunks};
/// let mut set = BitSet::new(70_000);
/// set.words_mut()[1] = 0b101;
/// set.insert_run(69_998, 69_999);
/// assert_eq!(set.ids().collect::<Vec<_>>(), [64, 66, 69_998, 69_999]);
/// ```
#[derive(Debug)]
pub struct BitSet {
    words: Vec<u64>,
    key: u32,
    room: Option<Box<Bits>>,
}

impl BitSet {
    /// The empty set of ids below `ids`.
    pub fn new(ids: u32) -> Self {
        Self { words: vec![0; (ids as usize).div_ceil(64)], key: 0, room: None }
    }

    /// The set of these bits, 64 to a word, the low ones first.
    pub fn from_words(words: Vec<u64>) -> Self {
        Self { words, key: 0, room: None }
    }

    /// The bits, 64 to a word, the low ones first.
    pub fn words_mut(&mut self) -> &mut [u64] {
        &mut self.words
    }

    /// The same, for keeps.
    pub fn into_words(self) -> Vec<u64> {
        self.words
    }

    /// Adds an id. It is below the number that the set was made with.
    #[inline(always)]
    pub fn insert(&mut self, id: u32) {
        self.words[id as usize / 64] |= 1 << (id % 64);
    }

    /// Adds the ids from `first` to `last`. All are below the number that the set was made with.
    pub fn insert_run(&mut self, first: u32, last: u32) {
        let (a, b) = (first as usize / 64, last as usize / 64);
        let (low, high) = (u64::MAX << (first % 64), u64::MAX >> (63 - last % 64));
        if a == b {
            self.words[a] |= low & high;
            return;
        }
        self.words[a] |= low;
        self.words[a + 1..b].fill(u64::MAX);
        self.words[b] |= high;
    }

    /// Calls `each` with the first and the last id of every run, in order.
    pub fn for_each_run(&self, mut each: impl FnMut(u32, u32)) {
        let mut open: Option<u32> = None;
        for (base, &word) in (0_u32..).step_by(64).zip(&self.words) {
            // Most words are all in a run, or outside of all.
            let (mut rest, mut at) = (word, 0);
            loop {
                let len = if open.is_some() { rest.trailing_ones() } else { rest.trailing_zeros() };
                at += len;
                if at >= 64 {
                    break;
                }
                match open.take() {
                    Some(first) => each(first, base + at - 1),
                    None => open = Some(base + at),
                }
                rest = word >> at;
            }
        }
        if let Some(first) = open {
            each(first, u32::try_from(64 * self.words.len() - 1).unwrap_or(u32::MAX));
        }
    }

    /// The words of the chunk under the cursor.
    fn here(&self) -> &[u64] {
        let start = (self.key as usize * WORDS).min(self.words.len());
        &self.words[start..self.words.len().min(start + WORDS)]
    }
}

impl Chunks for BitSet {
    fn seek(&mut self, key: u32) -> Option<u32> {
        self.key = self.key.max(key);
        let rest = self.words.get(self.key as usize * WORDS..)?;
        let at = rest.iter().position(|&word| word != 0)?;
        self.key += u32::try_from(at / WORDS).unwrap_or(u32::MAX);
        Some(self.key)
    }

    fn load(&mut self) -> Chunk<'_> {
        let mut room = self.room.take().unwrap_or_else(|| Box::new([[0; 8]; WORDS]));
        let words = self.here();
        let mut len = 0;
        for (slot, word) in room.iter_mut().zip(words) {
            *slot = word.to_le_bytes();
            len += word.count_ones();
        }
        room[words.len()..].fill([0; 8]);
        Chunk::Bits { bits: self.room.insert(room), len }
    }

    fn chunk_len(&mut self) -> u32 {
        self.here().iter().map(|word| word.count_ones()).sum()
    }

    fn release(&mut self) {
        self.room = None;
    }

    fn chunks_max(&self) -> usize {
        self.words.len().div_ceil(WORDS).saturating_sub(self.key as usize)
    }

    fn keys_end(&self) -> u32 {
        u32::try_from(self.words.len().div_ceil(WORDS)).unwrap_or(u32::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sets() -> Vec<Vec<(u32, u32)>> {
        vec![
            vec![],
            vec![(0, 0)],
            vec![(0, 199_999)],
            vec![(63, 64), (127, 130), (65_535, 65_536), (199_999, 199_999)],
            (0..900).map(|i| (i * 200 + i % 7, i * 200 + 7 + i % 90)).collect(),
            vec![(70_000, 140_000)],
        ]
    }

    #[test]
    fn sets_in_memory_have_the_ids_they_were_given() {
        for runs in sets() {
            let ids: Vec<u32> = runs.iter().flat_map(|run| run.0..=run.1).collect();
            let bits = || {
                let mut bits = BitSet::new(200_000);
                runs.iter().for_each(|run| bits.insert_run(run.0, run.1));
                bits
            };
            assert_eq!(bits().ids().collect::<Vec<_>>(), ids);
            assert_eq!(RunSet::new(runs.clone()).ids().collect::<Vec<_>>(), ids);
            assert_eq!(bits().count(), ids.len() as u64);
            assert_eq!(RunSet::new(runs.clone()).count(), ids.len() as u64);
            let mut again = Vec::new();
            bits().for_each_run(|first, last| again.push((first, last)));
            assert_eq!(again, runs);
            for other in sets() {
                let in_other = |id: &&u32| other.iter().any(|run| (run.0..=run.1).contains(*id));
                let both: Vec<u32> = ids.iter().filter(in_other).copied().collect();
                let other = || RunSet::new(other.clone());
                assert_eq!(bits().and(other()).ids().collect::<Vec<_>>(), both);
                assert_eq!(RunSet::new(runs.clone()).and(other()).count(), both.len() as u64);
                assert_eq!(bits().and_not(other()).count(), (ids.len() - both.len()) as u64);
            }
        }
    }
}
