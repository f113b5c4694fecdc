//! The flows of a segment: found while packets come in, sorted when all are there.

use std::hash::{BuildHasher, RandomState};

use tapdex_bitmap::prefetch;

use crate::fields::{DIRECTION_WORD, Home, Narrow, Spec, Wide, is_odd};
use crate::index::{Sorted, Sorter};

/// Mixes two words into one.
#[inline(always)]
fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    let half = |bits: u128| u64::try_from(bits & u128::from(u64::MAX)).unwrap_or(0);
    half(product) ^ half(product >> 64)
}

/// The hash of a key, with a secret that a sender of crafted packets cannot guess.
#[inline(always)]
pub(super) fn hash<const N: usize>(key: &[u64; N], secret: u64) -> u64 {
    let (pairs, _) = key.as_chunks::<2>();
    let mut hash = secret;
    for (i, [a, b]) in (1..).zip(pairs) {
        hash ^= fold(a ^ secret.rotate_left(11 * i), b ^ secret.rotate_left(11 * i + 32) | 1);
    }
    fold(hash, 0x9E37_79B9_7F4A_7C15)
}

/// Numbers keys as they come: the same key, the same number.
#[derive(Debug)]
pub(super) struct Interner<const N: usize> {
    /// The number of a key plus one in the low bits, as many as the number of slots has, and bits
    /// of its hash above; 0 is free. There is a power of two of them, and at most half are taken.
    slots: Vec<u32>,
    entries: Vec<Entry<N>>,
    secret: u64,
}

/// A key, and what was counted of it. Those of flows are as long as a line of the cache.
#[derive(Debug, Clone, Copy)]
#[repr(align(64))]
struct Entry<const N: usize> {
    key: [u64; N],
    volume: Volume,
}

const SLOTS_MIN: usize = 1 << 10;

impl<const N: usize> Interner<N> {
    pub(super) fn new() -> Self {
        let secret = RandomState::new().hash_one(N);
        Self { slots: vec![0; SLOTS_MIN], entries: Vec::new(), secret }
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// The keys, by their numbers.
    pub(super) fn keys(&self) -> impl Iterator<Item = &[u64; N]> + Clone {
        self.entries.iter().map(|entry| &entry.key)
    }

    fn key(&self, number: u32) -> &[u64; N] {
        &self.entries[number as usize].key
    }

    pub(super) fn clear(&mut self) {
        self.entries.clear();
        self.slots.fill(0);
    }

    #[inline(always)]
    pub(super) fn hash(&self, key: &[u64; N]) -> u64 {
        hash(key, self.secret)
    }

    /// The bits of a slot that hold a number.
    #[inline(always)]
    fn number_bits(&self) -> u32 {
        low_half(self.slots.len() as u64 - 1)
    }

    /// Fetches the first slot of the search for a hash.
    #[inline(always)]
    pub(super) fn prefetch_slot(&self, hash: u64) {
        prefetch(&self.slots, (low_half(hash) & self.number_bits()) as usize);
    }

    /// Fetches the key that this slot leads to.
    #[inline(always)]
    pub(super) fn prefetch_key(&self, hash: u64) {
        let bits = self.number_bits();
        let slot = self.slots[(low_half(hash) & bits) as usize];
        prefetch(&self.entries, (slot & bits).wrapping_sub(1) as usize);
    }

    /// The number of a key.
    #[inline(always)]
    pub(super) fn number(&mut self, key: &[u64; N], hash: u64) -> u32 {
        // The low half picks the slot; bits of the high half are kept in the slot to tell most
        // other keys apart.
        let bits = self.number_bits();
        let (mut slot, high) = (low_half(hash) & bits, low_half(hash >> 32));
        loop {
            let found = self.slots[slot as usize];
            if found == 0 {
                return self.insert(slot as usize, key, hash);
            }
            if (found ^ high) & !bits == 0 {
                let number = (found & bits) - 1;
                // No branch for each word: usually all words are equal.
                let pairs = self.entries[number as usize].key.iter().zip(key);
                if pairs.fold(0, |differ, (a, b)| differ | (a ^ b)) == 0 {
                    return number;
                }
            }
            slot = (slot + 1) & bits;
        }
    }

    #[cold]
    fn insert(&mut self, slot: usize, key: &[u64; N], hash: u64) -> u32 {
        let number = u32::try_from(self.entries.len()).unwrap_or(u32::MAX - 1);
        self.slots[slot] = low_half(hash >> 32) & !self.number_bits() | (number + 1);
        self.entries.push(Entry { key: *key, volume: Volume::default() });
        if self.entries.len() * 2 > self.slots.len() {
            self.grow();
        }
        number
    }

    fn grow(&mut self) {
        let len = self.slots.len() * 2;
        self.slots.clear();
        self.slots.resize(len, 0);
        let bits = self.number_bits();
        for (number, entry) in (1_u32..).zip(&self.entries) {
            let hash = hash(&entry.key, self.secret);
            let mut slot = low_half(hash) & bits;
            while self.slots[slot as usize] != 0 {
                slot = (slot + 1) & bits;
            }
            self.slots[slot as usize] = low_half(hash >> 32) & !bits | number;
        }
    }
}

#[inline(always)]
fn low_half(word: u64) -> u32 {
    u32::try_from(word & u64::from(u32::MAX)).unwrap_or(0)
}

/// The flows of a segment.
#[derive(Debug)]
pub(super) struct Flows {
    pub(super) narrow: Interner<6>,
    pub(super) wide: Interner<10>,
}

/// The packets of a flow, and what their lengths are above the least of their classes.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Volume {
    pub(super) packets: u32,
    pub(super) excess: u64,
}

/// The word of [`Narrow`] that holds the number of the wide part.
const WIDE_WORD: usize = 2;
const WIDE_SHIFT: u32 = 32;

impl Flows {
    pub(super) fn new() -> Self {
        Self { narrow: Interner::new(), wide: Interner::new() }
    }

    pub(super) fn clear(&mut self) {
        self.narrow.clear();
        self.wide.clear();
    }

    pub(super) fn len(&self) -> usize {
        self.narrow.len()
    }

    /// Packets whose headers are odd.
    pub(super) fn odd_packets(&self) -> u64 {
        let odd = self.narrow.entries.iter().filter(|entry| is_odd(&entry.key));
        odd.map(|entry| u64::from(entry.volume.packets)).sum()
    }

    /// Gives a flow its wide part.
    pub(super) fn join(&mut self, narrow: &mut Narrow, wide: &Wide, hash: u64) {
        let number = self.wide.number(wide, hash);
        narrow[WIDE_WORD] |= u64::from(number + 1) << WIDE_SHIFT;
    }

    /// The flow of a packet; also counts the packet.
    #[inline(always)]
    pub(super) fn count(&mut self, narrow: &Narrow, hash: u64, excess: u32) -> u32 {
        let flow = self.narrow.number(narrow, hash);
        let volume = &mut self.narrow.entries[flow as usize].volume;
        volume.packets += 1;
        volume.excess += u64::from(excess);
        flow
    }

    /// Puts the flows in the order of their keys, which gives neighbours as many digits in common
    /// as possible, and brings the two of a conversation together.
    pub(super) fn sort(&self, sorter: &mut Sorter, target: &mut Conversations) {
        let (wide_order, ranks) = self.wide_ranks(sorter);
        target.clear(self.len());
        let heads = |word: usize| self.narrow.keys().map(move |key| key[word]);
        let order = sorter.sort_pairs(heads(0), heads(1));
        // Those of the same two hosts lie together: mostly a few.
        let mut group: Vec<(Narrow, Volume, u32)> = Vec::new();
        for flows in order.chunks(READ_TOGETHER) {
            // Flows lie anywhere in memory.
            flows.iter().for_each(|&flow| prefetch(&self.narrow.entries, flow as usize));
            for &flow in flows {
                let Entry { mut key, volume } = self.narrow.entries[flow as usize];
                key[WIDE_WORD] = ranked(&key, &ranks);
                if group.first().is_some_and(|first| first.0[..2] != key[..2]) {
                    target.push_group(&mut group, sorter);
                }
                group.push((key, volume, flow));
            }
        }
        target.push_group(&mut group, sorter);
        target.finish(wide_order.iter().map(|&i| self.wide.key(i)));
    }

    /// The keys that [`sort`](Self::sort) sorts by, for sorting elsewhere.
    pub(super) fn sort_keys(&self, sorter: &mut Sorter) -> SortKeys<'_> {
        let (wide_order, ranks) = self.wide_ranks(sorter);
        let words = std::array::from_fn(|word| match word {
            WIDE_WORD => self.narrow.keys().map(|key| ranked(key, &ranks)).collect(),
            _ => self.narrow.keys().map(|key| key[word]).collect(),
        });
        SortKeys { words, flows: self, wide_order }
    }

    /// The wide parts in sorted order, so that similar addresses are neighbours; and for each
    /// number of a wide part its rank, from 1.
    fn wide_ranks(&self, sorter: &mut Sorter) -> (Vec<u32>, Vec<u64>) {
        let entries = &self.wide.entries;
        let wide_order = sorter.sort_keys::<10>(entries.len(), |at, word| entries[at].key[word]);
        let mut ranks = vec![0_u64; self.wide.len() + 1];
        for (rank, &i) in (1..).zip(&wide_order) {
            ranks[i as usize + 1] = rank;
        }
        (wide_order, ranks)
    }

    /// The bits that are set in any flow, word by word.
    pub(super) fn bits_used(&self) -> (Narrow, Wide) {
        fn all<const N: usize>(keys: &Interner<N>) -> [u64; N] {
            let mut bits = [0; N];
            for key in keys.keys() {
                bits.iter_mut().zip(key).for_each(|(bits, word)| *bits |= word);
            }
            bits
        }
        (all(&self.narrow), all(&self.wide))
    }
}

/// The number of a flow's wide part, from 1; 0 if it has none.
fn wide_number(key: &Narrow) -> usize {
    usize::try_from(key[WIDE_WORD] >> WIDE_SHIFT).unwrap_or(0)
}

/// The word that holds the number of a flow's wide part, with its rank in place of the number.
fn ranked(key: &Narrow, ranks: &[u64]) -> u64 {
    let ports = key[WIDE_WORD] & !(!0 << WIDE_SHIFT);
    ranks[wide_number(key)] << WIDE_SHIFT | ports
}

/// What flows are sorted by, word by word.
#[derive(Debug)]
pub(super) struct SortKeys<'a> {
    words: [Vec<u64>; 6],
    flows: &'a Flows,
    wide_order: Vec<u32>,
}

impl SortKeys<'_> {
    pub(super) fn words(&self) -> [&[u64]; 6] {
        self.words.each_ref().map(Vec::as_slice)
    }

    /// Puts the flows in an order, as [`Flows::sort`] does.
    pub(super) fn put_in_order(&self, order: &[u32], target: &mut Conversations) {
        target.clear(self.flows.len());
        for &flow in order {
            let key = self.words.each_ref().map(|words| words[flow as usize]);
            target.push(&key, self.flows.narrow.entries[flow as usize].volume, flow);
        }
        target.finish(self.wide_order.iter().map(|&i| self.flows.wide.key(i)));
    }
}

/// Flows that are fetched together.
const READ_TOGETHER: usize = 32;
/// Flows of the same two hosts that are sorted by comparing them, at most.
const FEW_FLOWS: usize = 32;

/// Values of a column: in 64 bits if these are enough for its field.
#[derive(Debug, Default)]
pub(super) struct Values {
    is_wide: bool,
    pub(super) long: Vec<u64>,
    wide: Vec<u128>,
}

impl Values {
    /// Forgets the values; those of a field follow.
    pub(super) fn start(&mut self, spec: &Spec) {
        self.is_wide = spec.bits() > 64;
        self.long.clear();
        self.wide.clear();
    }

    pub(super) fn sort(&self, sorter: &mut Sorter, sorted: &mut Sorted) {
        match self.is_wide {
            true => sorter.sort_wide(&self.wide, sorted),
            false => sorter.sort_values(&self.long, sorted),
        }
    }
}

/// The conversations of a segment, made from flows in an order that has the two of a conversation
/// next to each other.
#[derive(Debug, Default)]
pub(super) struct Conversations {
    /// The words of the key of each, without the direction: a column reads one word of each.
    narrow: [Vec<u64>; 6],
    /// The words of wide parts, by their number; those of number 0 are 0.
    wide: [Vec<u64>; 10],
    /// The key of the last flow.
    last: Narrow,
    /// The rows of all flows so far.
    rows: u32,
    /// Packets of the two flows of each.
    pub(super) packets: Vec<u32>,
    /// What their lengths are above the least of their classes.
    pub(super) excess: Vec<u64>,
    /// The row that each of the two flows starts at, and the number of rows.
    pub(super) starts: Vec<u32>,
    /// The row that each flow of the segment starts at, by the flow's number.
    pub(super) first_rows: Vec<u32>,
}

impl Conversations {
    /// Forgets the conversations, and keeps the memory; so many flows follow.
    fn clear(&mut self, flows: usize) {
        self.narrow.iter_mut().for_each(Vec::clear);
        for words in &mut self.wide {
            words.clear();
            words.push(0);
        }
        self.packets.clear();
        self.excess.clear();
        self.starts.clear();
        self.first_rows.clear();
        self.first_rows.resize(flows, 0);
        self.rows = 0;
    }

    /// Appends the next flow.
    #[inline(always)]
    fn push(&mut self, key: &Narrow, volume: Volume, flow: u32) {
        let Volume { packets, excess } = volume;
        self.first_rows[flow as usize] = self.rows;
        let is_second = self.rows > 0 && is_answer(key, &self.last);
        self.last = *key;
        if let (true, [.., second], [.., more]) =
            (is_second, self.packets.as_mut_slice(), self.excess.as_mut_slice())
        {
            (*second, *more) = (packets, excess);
        } else {
            let is_first = key[DIRECTION_WORD] & 1 == 0;
            self.narrow.iter_mut().zip(key).for_each(|(words, &word)| words.push(word));
            self.packets.extend(if is_first { [packets, 0] } else { [0, packets] });
            self.excess.extend(if is_first { [excess, 0] } else { [0, excess] });
            let second = if is_first { self.rows + packets } else { self.rows };
            self.starts.extend([self.rows, second]);
        }
        self.rows += packets;
    }

    /// Appends flows of the same two hosts, and empties the list of them.
    fn push_group(&mut self, group: &mut Vec<(Narrow, Volume, u32)>, sorter: &mut Sorter) {
        if group.len() <= FEW_FLOWS {
            if group.len() > 1 {
                group.sort_unstable_by_key(|flow| flow.0);
            }
            group.iter().for_each(|(key, volume, flow)| self.push(key, *volume, *flow));
        } else {
            for at in sorter.sort_keys::<6>(group.len(), |at, word| group[at].0[word]) {
                let (key, volume, flow) = &group[at as usize];
                self.push(key, *volume, *flow);
            }
        }
        group.clear();
    }

    /// Takes in the wide parts, by their ranks; all flows are there.
    fn finish<'a>(&mut self, parts: impl Iterator<Item = &'a Wide>) {
        self.starts.push(self.rows);
        for part in parts {
            self.wide.iter_mut().zip(part).for_each(|(words, &word)| words.push(word));
        }
    }

    /// Appends the value of a field of flows in each conversation.
    pub(super) fn values(&self, spec: &Spec, target: &mut Values) {
        let mask = u64::MAX >> (64 - spec.home_bits().min(64));
        let numbers =
            self.narrow[WIDE_WORD].iter().map(|word| low_half(word >> WIDE_SHIFT) as usize);
        match spec.home {
            Home::Narrow(word, shift) => {
                target.long.extend(self.narrow[word].iter().map(|word| word >> shift & mask));
            }
            Home::Wide(word, _) if target.is_wide => {
                let (high, low) = (&self.wide[word], &self.wide[word + 1]);
                target
                    .wide
                    .extend(numbers.map(|at| u128::from(high[at]) << 64 | u128::from(low[at])));
            }
            Home::Wide(word, shift) => {
                let words = &self.wide[word];
                target.long.extend(numbers.map(|at| words[at] >> shift & mask));
            }
            Home::Packet => {}
        }
    }
}

/// Whether a flow is the second of the conversation that another is the first of.
#[inline(always)]
fn is_answer(key: &Narrow, other: &Narrow) -> bool {
    let differ = |word: usize| key[word] ^ other[word] ^ u64::from(word == DIRECTION_WORD);
    key[DIRECTION_WORD] & 1 == 1 && (0..key.len()).fold(0, |all, word| all | differ(word)) == 0
}
