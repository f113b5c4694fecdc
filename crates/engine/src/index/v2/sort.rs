//! Sorting by counting: no number is compared with another.

use super::postings::Sorted;

/// Bits that are sorted by in a pass, at most.
const PASS_BITS: u32 = 11;
const BUCKETS: usize = 1 << PASS_BITS;
/// Values below this are sorted in one pass.
const SMALL: u64 = 1 << 16;

/// Where the passes that sort by these bits start, the lowest first. Bits that are not set are the
/// same in all numbers.
fn passes(mut bits: u64) -> impl Iterator<Item = u32> {
    std::iter::from_fn(move || {
        if bits == 0 {
            return None;
        }
        let shift = bits.trailing_zeros();
        bits &= u64::MAX.checked_shl(shift + PASS_BITS).unwrap_or(0);
        Some(shift)
    })
}

/// Sorts items by their numbers, stable; `other` is room.
fn radix_sort<N: Copy + Default + Into<u64>, T: Copy + Default>(
    items: &mut Vec<(N, T)>,
    other: &mut Vec<(N, T)>,
) {
    let Some(&(first, _)) = items.first() else { return };
    let first: u64 = first.into();
    let differ = items.iter().fold(0, |bits, item| bits | (item.0.into() ^ first));
    if other.len() < items.len() {
        other.resize(items.len(), (N::default(), T::default()));
    }
    other.truncate(items.len());
    for shift in passes(differ) {
        let bucket = |number: N| {
            let bits = number.into() >> shift & (BUCKETS as u64 - 1);
            usize::try_from(bits).unwrap_or(0)
        };
        let mut next = [0_u32; BUCKETS];
        items.iter().for_each(|item| next[bucket(item.0)] += 1);
        let mut sum = 0;
        for slot in &mut next {
            sum += std::mem::replace(slot, sum);
        }
        for &item in items.iter() {
            let place = &mut next[bucket(item.0)];
            other[*place as usize] = item;
            *place += 1;
        }
        std::mem::swap(items, other);
    }
}

/// Entries that follow each other and have the same value: the first, and how many.
type Run = (u32, u32);

/// Room for sorting, which is used again.
#[derive(Debug, Default)]
pub(crate) struct Sorter {
    short: [Vec<(u32, u32)>; 2],
    long: [Vec<(u64, u32)>; 2],
    runs: [Vec<(u64, Run)>; 2],
    firsts: Vec<u64>,
}

fn low(value: u128) -> u64 {
    u64::try_from(value & u128::from(u64::MAX)).unwrap_or(0)
}

fn index32(index: usize) -> u32 {
    u32::try_from(index).unwrap_or(u32::MAX)
}

/// Passes the runs of equal values to `each`: the value, and where the run is.
fn for_each_run<V: PartialEq + Copy>(values: &[V], mut each: impl FnMut(V, Run)) {
    let mut rest = values;
    while let Some(&value) = rest.first() {
        let len = rest.iter().position(|&other| other != value).unwrap_or(rest.len());
        each(value, (index32(values.len() - rest.len()), index32(len)));
        rest = &rest[len..];
    }
}

impl Sorter {
    /// Sorts entries by their values, those of the same value by their numbers.
    pub(crate) fn sort_values(&mut self, values: &[u64], sorted: &mut Sorted) {
        sorted.clear();
        // The greatest value has no higher bit than these, which are found many at a time.
        let bits = values.iter().fold(0, |bits, value| bits | value);
        if bits < SMALL {
            return sort_small(values, usize::try_from(bits).unwrap_or(0), sorted);
        }
        let runs = 1 + values.windows(2).filter(|pair| pair[0] != pair[1]).count();
        sorted.entries.reserve(values.len());
        if runs > values.len() / 2 && u32::try_from(bits).is_ok() {
            let [items, other] = &mut self.short;
            items.clear();
            let short = |value: u64| u32::try_from(value).unwrap_or(0);
            items.extend(values.iter().map(|&value| short(value)).zip(0..));
            radix_sort(items, other);
            items.iter().for_each(|&(value, entry)| sorted.push(value.into(), (entry, 1)));
        } else {
            let [items, other] = &mut self.runs;
            items.clear();
            for_each_run(values, |value, run| items.push((value, run)));
            radix_sort(items, other);
            items.iter().for_each(|&(value, run)| sorted.push(value.into(), run));
        }
        sorted.starts.push(index32(values.len()));
    }

    /// The same for wide values.
    pub(crate) fn sort_wide(&mut self, values: &[u128], sorted: &mut Sorted) {
        sorted.clear();
        let [items, other] = &mut self.runs;
        items.clear();
        for_each_run(values, |value, run| items.push((low(value), run)));
        radix_sort(items, other);
        for (word, run) in items.iter_mut() {
            *word = low(values[run.0 as usize] >> 64);
        }
        radix_sort(items, other);
        items.iter().for_each(|&(_, run)| sorted.push(values[run.0 as usize], run));
        sorted.starts.push(index32(values.len()));
    }

    /// The numbers of so many pairs of words in the order of the pairs; of equals the first comes
    /// first. `place` says which of the pairs is a number's.
    pub(crate) fn sort_pairs(
        &mut self,
        count: usize,
        pairs: impl Iterator<Item = ([u64; 2], u32)>,
        place: impl Fn(u32) -> usize,
    ) -> Vec<u32> {
        let [items, other] = &mut self.long;
        items.clear();
        items.reserve(count);
        let firsts = &mut self.firsts;
        firsts.clear();
        firsts.reserve(count);
        // Pairs may lie far apart in memory, and are read once.
        items.extend(pairs.map(|([first, second], number)| {
            firsts.push(first);
            (second, number)
        }));
        radix_sort(items, other);
        if firsts.windows(2).any(|pair| pair[0] != pair[1]) {
            items.iter_mut().for_each(|item| item.0 = firsts[place(item.1)]);
            radix_sort(items, other);
        }
        items.iter().map(|&(_, number)| number).collect()
    }

    /// The numbers of keys in the order of the keys; `word` has the words of each.
    pub(crate) fn sort_keys<const WORDS: usize>(
        &mut self,
        count: usize,
        word: impl Fn(usize, usize) -> u64,
    ) -> Vec<u32> {
        let [items, other] = &mut self.long;
        items.clear();
        items.extend((0..index32(count)).map(|number| (0, number)));
        for at in (0..WORDS).rev() {
            items.iter_mut().for_each(|item| item.0 = word(item.1 as usize, at));
            radix_sort(items, other);
        }
        items.iter().map(|&(_, number)| number).collect()
    }
}

/// Sorts entries by values that are at most `most`, and below [`SMALL`], in one pass.
fn sort_small(values: &[u64], most: usize, sorted: &mut Sorted) {
    let small = |value: u64| usize::try_from(value).unwrap_or(0);
    let mut next = vec![0_u32; most + 1];
    values.iter().for_each(|&value| next[small(value)] += 1);
    let mut sum = 0;
    for (value, slot) in next.iter_mut().enumerate() {
        let count = std::mem::replace(slot, sum);
        if count > 0 {
            sorted.values.push(value as u128);
            sorted.starts.push(sum);
            sum += count;
        }
    }
    sorted.starts.push(sum);
    sorted.entries.resize(values.len(), 0);
    for (entry, &value) in (0..).zip(values) {
        let place = &mut next[small(value)];
        sorted.entries[*place as usize] = entry;
        *place += 1;
    }
}

impl Sorted {
    fn clear(&mut self) {
        self.values.clear();
        self.starts.clear();
        self.entries.clear();
    }

    /// Appends entries with the next value; values ascend.
    #[inline(always)]
    fn push(&mut self, value: u128, (first, count): Run) {
        if self.values.last() != Some(&value) {
            self.starts.push(index32(self.entries.len()));
            self.values.push(value);
        }
        self.entries.extend(first..first + count);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_sorted_with_their_entries() {
        let values = [5, 0, 1 << 100, 5, 0, 1 << 64 | 3, 7, 1 << 100];
        let mut sorted = Sorted::default();
        Sorter::default().sort_wide(&values, &mut sorted);
        assert_eq!(sorted.values, [0, 5, 7, 1 << 64 | 3, 1 << 100]);
        assert_eq!(sorted.entries, [1, 4, 0, 3, 6, 5, 2, 7]);
        assert_eq!(sorted.starts, [0, 2, 4, 5, 6, 8]);
        Sorter::default().sort_wide(&[], &mut sorted);
        assert_eq!((sorted.len(), sorted.starts), (0, vec![0]));
    }

    #[test]
    fn values_of_all_sizes_are_sorted_alike() {
        let (mut sorter, mut sorted) = (Sorter::default(), Sorted::default());
        for bits in [0, 1, 8, 15, 16, 17, 31, 32, 33, 48, 63] {
            let random = |i: u64| i.wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(29);
            // Each value alone, and in runs.
            for run in [1, 3] {
                let value = |i: u64| random(i / run % 1_900) & ((1 << bits) - 1);
                let values: Vec<u64> = (0..3_000).map(value).collect();
                sorter.sort_values(&values, &mut sorted);
                let mut expected: Vec<u32> = (0..3_000).collect();
                expected.sort_by_key(|&entry| values[entry as usize]);
                assert_eq!(sorted.entries, expected);
                for id in 0..sorted.len() {
                    let value = |&entry: &u32| u128::from(values[entry as usize]);
                    assert!(sorted.list(id).iter().all(|entry| value(entry) == sorted.values[id]));
                }
                assert!(sorted.values.is_sorted_by(|a, b| a < b));
                let wide: Vec<u128> = values.iter().map(|&value| value.into()).collect();
                let found = (sorted.values.clone(), sorted.starts.clone(), sorted.entries.clone());
                sorter.sort_wide(&wide, &mut sorted);
                assert_eq!((&sorted.values, &sorted.starts), (&found.0, &found.1));
                assert_eq!(sorted.entries, found.2);
            }
        }
        sorter.sort_values(&[], &mut sorted);
        assert_eq!((sorted.len(), sorted.starts), (0, vec![0]));
    }

    #[test]
    fn keys_are_sorted_by_all_their_words() {
        let random = |i: u64| i.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let few = (0..999).map(|i| [0, i % 3, i % 7, random(i) >> 58, 0, i]);
        let one_pair = (0..999).map(|i| [1, 2, random(i), i % 2, random(i) >> 9, 5]);
        let all: [Vec<[u64; 6]>; 2] = [few.collect(), one_pair.collect()];
        for keys in all {
            let mut expected: Vec<u32> = (0..999).collect();
            expected.sort_by_key(|&number| keys[number as usize]);
            assert_eq!(
                Sorter::default().sort_keys::<6>(keys.len(), |at, word| keys[at][word]),
                expected
            );
            let pairs = keys.iter().map(|key| [key[0], key[1]]).zip(0..);
            expected.sort_by_key(|&number| (&keys[number as usize][..2], number));
            let found = Sorter::default().sort_pairs(999, pairs, |number| number as usize);
            assert_eq!(found, expected);
        }
        assert_eq!(Sorter::default().sort_keys::<6>(0, |_, _| 0), []);
    }
}
