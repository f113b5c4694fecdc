//! Flows: found chunk by chunk while packets come in, joined and sorted when a segment is there.
//!
//! A chunk is a few hundred thousand packets at most, so its hash table stays in the cache. A flow
//! that several chunks have is found in each, and becomes one when the flows of all chunks are
//! sorted: then its parts are neighbours, in the order of the chunks.

use std::hash::{BuildHasher, RandomState};

use tapdex_bitmap::prefetch;

use super::device::SortedPackets;
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
        hash ^= fold(a ^ secret.rotate_left(11 * i), b ^ secret.rotate_left(11 * i + 32));
    }
    fold(hash, 0x9E37_79B9_7F4A_7C15)
}

/// Whether keys are equal, without a branch for each word: usually they are.
#[inline(always)]
fn are_equal<const N: usize>(a: &[u64; N], b: &[u64; N]) -> bool {
    a.iter().zip(b).fold(0, |differ, (a, b)| differ | (a ^ b)) == 0
}

/// Numbers keys as they come: the same key, the same number.
#[derive(Debug)]
pub(super) struct Interner<const N: usize> {
    /// The number of a key plus one in the low bits, as many as the number of slots has, and bits
    /// of its hash above; 0 is free. There is a power of two of them, and at most half are taken.
    slots: Vec<u32>,
    entries: Vec<Entry<N>>,
    /// The bits that are set in any key, word by word.
    bits: [u64; N],
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
        Self { slots: vec![0; SLOTS_MIN], entries: Vec::new(), bits: [0; N], secret }
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// The keys, by their numbers.
    pub(super) fn keys(&self) -> impl Iterator<Item = &[u64; N]> {
        self.entries.iter().map(|entry| &entry.key)
    }

    pub(super) fn clear(&mut self) {
        self.entries.clear();
        self.bits = [0; N];
        self.slots.fill(0);
    }

    /// Makes room for so many keys; there are none yet.
    fn reserve(&mut self, keys: usize) {
        self.entries.reserve(keys);
        let slots = (2 * keys).next_power_of_two();
        if slots > self.slots.len() {
            self.slots = vec![0; slots];
        }
    }

    fn bytes(&self) -> usize {
        size_of::<Entry<N>>() * self.entries.capacity() + 4 * self.slots.len()
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

    /// Fetches a key and what was counted of it.
    #[inline(always)]
    pub(super) fn prefetch_entry(&self, number: u32) {
        prefetch(&self.entries, number as usize);
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
                if are_equal(&self.entries[number as usize].key, key) {
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
        self.bits.iter_mut().zip(key).for_each(|(bits, word)| *bits |= word);
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

/// The flows of a chunk.
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

    /// Makes room for so many flows and wide parts; there are none yet.
    pub(super) fn reserve(&mut self, flows: usize, wide: usize) {
        self.narrow.reserve(flows);
        self.wide.reserve(wide);
    }

    /// Bytes of memory that they take.
    pub(super) fn bytes(&self) -> usize {
        self.narrow.bytes() + self.wide.bytes()
    }

    pub(super) fn len(&self) -> usize {
        self.narrow.len()
    }

    /// Packets whose headers are odd.
    pub(super) fn odd_packets(&self) -> u64 {
        if !is_odd(&self.narrow.bits) {
            return 0;
        }
        let odd = self.narrow.entries.iter().filter(|entry| is_odd(&entry.key));
        odd.map(|entry| u64::from(entry.volume.packets)).sum()
    }

    /// Gives a flow its wide part.
    pub(super) fn join(&mut self, narrow: &mut Narrow, wide: &Wide, hash: u64) {
        let number = self.wide.number(wide, hash);
        narrow[WIDE_WORD] |= u64::from(number + 1) << WIDE_SHIFT;
    }

    /// Counts a packet of a flow.
    #[inline(always)]
    pub(super) fn add(&mut self, flow: u32, excess: u32) {
        let volume = &mut self.narrow.entries[flow as usize].volume;
        volume.packets += 1;
        volume.excess += u64::from(excess);
    }

    /// The bits that are set in any flow, word by word, and those in any wide part.
    pub(super) fn bits_used(&self) -> (Narrow, Wide) {
        (self.narrow.bits, self.wide.bits)
    }
}

/// Bits of the number of a flow in its chunk; above them is the number of the chunk.
const LOCAL_BITS: u32 = 18;
const LOCAL: u32 = (1 << LOCAL_BITS) - 1;
/// The most flows of a chunk.
pub(super) const CHUNK_FLOWS_MAX: usize = 1 << LOCAL_BITS;
/// The most chunks of a segment.
pub(super) const CHUNKS_MAX: usize = 1 << (32 - LOCAL_BITS);

/// The flows of all chunks of a segment.
#[derive(Debug)]
pub(super) struct AllFlows<'c> {
    chunks: Vec<&'c Flows>,
    /// For each chunk, how many flows those before it have; the last one is for all of them.
    before: Vec<u32>,
    /// Wide parts that differ, in sorted order, so that similar addresses are neighbours.
    wide: Vec<&'c Wide>,
    /// The rank, from 1, of each wide part of each chunk.
    ranks: Vec<Vec<u64>>,
}

impl<'c> AllFlows<'c> {
    pub(super) fn new(chunks: impl Iterator<Item = &'c Flows>, sorter: &mut Sorter) -> Self {
        let chunks: Vec<&Flows> = chunks.collect();
        let mut before = vec![0];
        for flows in &chunks {
            before.push(before.last().copied().unwrap_or(0) + rows32(flows.len()));
        }
        let mut all = Self { chunks, before, wide: Vec::new(), ranks: Vec::new() };
        all.rank_wide(sorter);
        all
    }

    fn rank_wide(&mut self, sorter: &mut Sorter) {
        let parts: Vec<(usize, usize)> = (0..)
            .zip(&self.chunks)
            .flat_map(|(chunk, flows)| (0..flows.wide.len()).map(move |at| (chunk, at)))
            .collect();
        let key = |part: u32| {
            let (chunk, at) = parts[part as usize];
            &self.chunks[chunk].wide.entries[at].key
        };
        self.ranks = self.chunks.iter().map(|flows| vec![0; flows.wide.len() + 1]).collect();
        for part in sorter.sort_keys::<10>(parts.len(), |at, word| key(rows32(at))[word]) {
            let (chunk, at) = parts[part as usize];
            if self.wide.last() != Some(&key(part)) {
                self.wide.push(key(part));
            }
            self.ranks[chunk][at + 1] = self.wide.len() as u64;
        }
    }

    /// The flows of all chunks, those that several have as often.
    pub(super) fn len(&self) -> usize {
        self.before.last().map_or(0, |&all| all as usize)
    }

    /// The place of each chunk's first flow among those of all chunks.
    pub(super) fn firsts(&self) -> &[u32] {
        &self.before
    }

    /// The same, alone.
    pub(super) fn into_firsts(self) -> Vec<u32> {
        self.before
    }

    /// The numbers of the flows of all chunks.
    fn numbers(&self) -> impl Iterator<Item = u32> {
        let of_chunk = |(chunk, flows): (u32, &&Flows)| {
            (0..rows32(flows.len())).map(move |at| chunk << LOCAL_BITS | at)
        };
        (0..).zip(&self.chunks).flat_map(of_chunk)
    }

    fn entry(&self, number: u32) -> (Narrow, Volume) {
        let chunk = (number >> LOCAL_BITS) as usize;
        let Entry { mut key, volume } =
            self.chunks[chunk].narrow.entries[(number & LOCAL) as usize];
        key[WIDE_WORD] = ranked(&key, &self.ranks[chunk]);
        (key, volume)
    }

    /// The place of a flow among those of all chunks.
    fn place(&self, number: u32) -> u32 {
        self.before[(number >> LOCAL_BITS) as usize] + (number & LOCAL)
    }

    /// Puts the flows in the order of their keys, which gives neighbours as many digits in common
    /// as possible, and brings the two of a conversation together.
    pub(super) fn sort(&self, sorter: &mut Sorter, target: &mut Conversations) {
        target.clear(self.len());
        let heads = self.chunks.iter().flat_map(|flows| flows.narrow.keys());
        let pairs = heads.map(|key| [key[0], key[1]]).zip(self.numbers());
        let order = sorter.sort_pairs(self.len(), pairs, |flow| self.place(flow) as usize);
        // Those of the same two hosts lie together: mostly a few.
        let mut group: Vec<(Narrow, u32, Volume)> = Vec::new();
        for flows in order.chunks(READ_TOGETHER) {
            // Flows lie anywhere in memory.
            for &flow in flows {
                let chunk = self.chunks[(flow >> LOCAL_BITS) as usize];
                prefetch(&chunk.narrow.entries, (flow & LOCAL) as usize);
            }
            for &flow in flows {
                let (key, volume) = self.entry(flow);
                if group.first().is_some_and(|first| first.0[..2] != key[..2]) {
                    target.push_group(&mut group, sorter);
                }
                group.push((key, self.place(flow), volume));
            }
        }
        target.push_group(&mut group, sorter);
        self.finish(target);
    }

    /// The keys that [`sort`](Self::sort) sorts by, word by word, for sorting elsewhere.
    pub(super) fn sort_words(&self) -> [Vec<u64>; 6] {
        std::array::from_fn(|word| self.numbers().map(|flow| self.entry(flow).0[word]).collect())
    }

    /// Puts the flows in an order, as [`sort`](Self::sort) does; `words` are those sorted by.
    pub(super) fn put_in_order(
        &self,
        words: &[Vec<u64>; 6],
        order: &[u32],
        target: &mut Conversations,
    ) {
        target.clear(self.len());
        let volumes: Vec<Volume> = self.numbers().map(|flow| self.entry(flow).1).collect();
        for &flow in order {
            let key = words.each_ref().map(|words| words[flow as usize]);
            target.push(&key, volumes[flow as usize], flow);
        }
        self.finish(target);
    }

    fn finish(&self, target: &mut Conversations) {
        target.finish(self.wide.iter().copied());
    }
}

#[inline(always)]
fn rows32(rows: usize) -> u32 {
    u32::try_from(rows).unwrap_or(u32::MAX)
}

/// The number of a flow's wide part, from 1; 0 if it has none.
pub(super) fn wide_number(key: &Narrow) -> usize {
    usize::try_from(key[WIDE_WORD] >> WIDE_SHIFT).unwrap_or(0)
}

/// The word that holds the number of a flow's wide part, with its rank in place of the number.
fn ranked(key: &Narrow, ranks: &[u64]) -> u64 {
    let ports = key[WIDE_WORD] & !(!0 << WIDE_SHIFT);
    ranks[wide_number(key)] << WIDE_SHIFT | ports
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
    /// Forgets the values; those of a field follow, so many.
    pub(super) fn start(&mut self, spec: &Spec, count: usize) {
        self.is_wide = spec.bits() > 64;
        self.long.clear();
        self.wide.clear();
        match self.is_wide {
            true => self.wide.reserve(count),
            false => self.long.reserve(count),
        }
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
    /// The row that the packets of each flow of each chunk start at.
    pub(super) first_rows: Vec<u32>,
    /// How many flows there are.
    pub(super) flows: u64,
}

impl Conversations {
    /// Forgets the conversations, and keeps the memory; so many flows follow.
    fn clear(&mut self, flows: usize) {
        for words in &mut self.narrow {
            words.clear();
            words.reserve(flows);
        }
        for words in &mut self.wide {
            words.clear();
            words.push(0);
        }
        self.packets.clear();
        self.packets.reserve(2 * flows);
        self.excess.clear();
        self.excess.reserve(2 * flows);
        self.starts.clear();
        self.starts.reserve(2 * flows + 1);
        self.first_rows.clear();
        self.first_rows.resize(flows, 0);
        self.rows = 0;
        self.flows = 0;
    }

    /// Takes in the volumes of flows that a device has sorted: it has columns and rows, too.
    pub(super) fn take_sorted(&mut self, sorted: &SortedPackets) {
        self.clear(0);
        self.packets.extend_from_slice(&sorted.packets);
        self.excess.extend_from_slice(&sorted.excess);
        self.flows = sorted.flows;
    }

    /// Appends the next flow of a chunk, which may be the same as the one before it.
    #[inline(always)]
    fn push(&mut self, key: &Narrow, volume: Volume, flow: u32) {
        let Volume { packets, excess } = volume;
        self.first_rows[flow as usize] = self.rows;
        if self.rows > 0 && are_equal(key, &self.last) {
            self.add(volume);
            return;
        }
        let is_second = self.rows > 0 && is_answer(key, &self.last);
        self.last = *key;
        self.flows += 1;
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

    /// Adds what the next chunk has of the last flow.
    fn add(&mut self, volume: Volume) {
        let is_first = self.last[DIRECTION_WORD] & 1 == 0;
        let at = self.packets.len() - if is_first { 2 } else { 1 };
        self.packets[at] += volume.packets;
        self.excess[at] += volume.excess;
        if let Some(second) = self.starts.last_mut().filter(|_| is_first) {
            // The second flow has no packets yet, and starts behind the first.
            *second += volume.packets;
        }
        self.rows += volume.packets;
    }

    /// Appends flows of the same two hosts, and empties the list of them. Of a flow that several
    /// chunks have, the part of the first chunk comes first.
    fn push_group(&mut self, group: &mut Vec<(Narrow, u32, Volume)>, sorter: &mut Sorter) {
        if group.len() <= FEW_FLOWS {
            if group.len() > 1 {
                group.sort_unstable_by_key(|&(key, flow, _)| (key, flow));
            }
            group.iter().for_each(|(key, flow, volume)| self.push(key, *volume, *flow));
        } else {
            for at in sorter.sort_keys::<6>(group.len(), |at, word| group[at].0[word]) {
                let (key, flow, volume) = &group[at as usize];
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
