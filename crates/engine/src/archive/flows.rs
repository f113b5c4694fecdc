//! The flows of a segment: found while packets come in, sorted when all are there.

use std::hash::{BuildHasher, RandomState};

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
    /// The number of a key plus one in the low half, the upper half of its hash in the high half; 0
    /// is free. There is a power of two of them, and at most half are taken.
    slots: Vec<u64>,
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
const HIGH_HALF: u64 = !0 << 32;

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

    #[inline(always)]
    fn slot(&self, hash: u64) -> usize {
        // The low half picks the slot; the high half is kept in the slot to tell most other keys
        // apart.
        low_half(hash) as usize & (self.slots.len() - 1)
    }

    /// The first slot of the search for a hash. Reading it early lets several such memory reads
    /// overlap.
    #[inline(always)]
    pub(super) fn peek(&self, hash: u64) -> u64 {
        self.slots[self.slot(hash)]
    }

    /// A word of the key that a slot leads to, for the same reason.
    #[inline(always)]
    pub(super) fn peek_key(&self, slot: u64) -> u64 {
        self.entries.get(low_half(slot).wrapping_sub(1) as usize).map_or(0, |entry| entry.key[0])
    }

    /// The number of a key.
    #[inline(always)]
    pub(super) fn number(&mut self, key: &[u64; N], hash: u64) -> u32 {
        let mut slot = self.slot(hash);
        loop {
            let found = self.slots[slot];
            if found == 0 {
                return self.insert(slot, key, hash);
            }
            if (found ^ hash) & HIGH_HALF == 0 {
                let number = low_half(found) - 1;
                // No branch for each word: usually all words are equal.
                let pairs = self.entries[number as usize].key.iter().zip(key);
                if pairs.fold(0, |differ, (a, b)| differ | (a ^ b)) == 0 {
                    return number;
                }
            }
            slot = (slot + 1) & (self.slots.len() - 1);
        }
    }

    #[cold]
    fn insert(&mut self, slot: usize, key: &[u64; N], hash: u64) -> u32 {
        let number = u32::try_from(self.entries.len()).unwrap_or(u32::MAX - 1);
        self.slots[slot] = hash & HIGH_HALF | u64::from(number + 1);
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
        for (number, entry) in (1_u64..).zip(&self.entries) {
            let hash = hash(&entry.key, self.secret);
            let mut slot = low_half(hash) as usize & (len - 1);
            while self.slots[slot] != 0 {
                slot = (slot + 1) & (len - 1);
            }
            self.slots[slot] = hash & HIGH_HALF | number;
        }
    }
}

#[inline(always)]
fn low_half(word: u64) -> u32 {
    u32::try_from(word & !HIGH_HALF).unwrap_or(0)
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

    /// The flows in the order of their keys, which gives neighbours as many digits in common as
    /// possible, and brings the two of a conversation together.
    pub(super) fn sorted(&self, sorter: &mut Sorter) -> FlowTable {
        let (wide_order, ranks) = self.wide_ranks();
        let heads = |word: usize| self.narrow.keys().map(move |key| key[word]);
        let order = sorter.sort_pairs(heads(0), heads(1));
        // All of a flow is read once, from wherever it lies; from here on flows lie in order.
        let mut flows: Vec<(Narrow, Volume, u32)> = Vec::with_capacity(order.len());
        for flow in order {
            let Entry { mut key, volume } = self.narrow.entries[flow as usize];
            key[WIDE_WORD] = ranked(&key, &ranks);
            flows.push((key, volume, flow));
        }
        // Those of the same two hosts lie together: mostly a few.
        for group in flows.chunk_by_mut(|a, b| a.0[..2] == b.0[..2]) {
            match group.len() {
                1 => {}
                0..=FEW_FLOWS => group.sort_unstable_by_key(|flow| flow.0),
                _ => {
                    let keys: Vec<Narrow> = group.iter().map(|flow| flow.0).collect();
                    let order = sorter.sort_keys(&keys);
                    let sorted: Vec<_> = order.iter().map(|&at| group[at as usize]).collect();
                    group.copy_from_slice(&sorted);
                }
            }
        }
        let mut table = FlowTable::with_capacity(flows.len());
        flows.iter().for_each(|(key, volume, flow)| table.push(key, *volume, *flow));
        table.set_wide(wide_order.iter().map(|&i| self.wide.key(i)));
        table
    }

    /// The keys that [`sorted`](Self::sorted) sorts by, for sorting elsewhere.
    pub(super) fn sort_keys(&self) -> SortKeys<'_> {
        let (wide_order, ranks) = self.wide_ranks();
        let words = std::array::from_fn(|word| match word {
            WIDE_WORD => self.narrow.keys().map(|key| ranked(key, &ranks)).collect(),
            _ => self.narrow.keys().map(|key| key[word]).collect(),
        });
        SortKeys { words, flows: self, wide_order }
    }

    /// The wide parts in sorted order, so that similar addresses are neighbours; and for each
    /// number of a wide part its rank, from 1.
    fn wide_ranks(&self) -> (Vec<u32>, Vec<u64>) {
        let mut wide_order: Vec<u32> = (0..).take(self.wide.len()).collect();
        wide_order.sort_unstable_by_key(|&i| self.wide.key(i));
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

    /// The flows in an order, in the form that [`Flows::sorted`] returns.
    pub(super) fn table(&self, order: &[u32]) -> FlowTable {
        let mut table = FlowTable::with_capacity(order.len());
        for &flow in order {
            let key = self.words.each_ref().map(|words| words[flow as usize]);
            table.push(&key, self.flows.narrow.entries[flow as usize].volume, flow);
        }
        table.set_wide(self.wide_order.iter().map(|&i| self.flows.wide.key(i)));
        table
    }
}

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

    pub(super) fn sort(&self, sorter: &mut Sorter) -> Sorted {
        match self.is_wide {
            true => sorter.sort_wide(&self.wide),
            false => sorter.sort_values(&self.long),
        }
    }
}

/// The flows of a segment in some order, word by word: a column reads one word of each.
#[derive(Debug)]
pub(super) struct FlowTable {
    /// The number of each flow.
    pub(super) order: Vec<u32>,
    volumes: Vec<Volume>,
    narrow: [Vec<u64>; 6],
    /// The words of wide parts, by their number; those of number 0 are 0.
    wide: [Vec<u64>; 10],
}

impl FlowTable {
    fn with_capacity(flows: usize) -> Self {
        Self {
            order: Vec::with_capacity(flows),
            volumes: Vec::with_capacity(flows),
            narrow: std::array::from_fn(|_| Vec::with_capacity(flows)),
            wide: std::array::from_fn(|_| vec![0]),
        }
    }

    #[inline(always)]
    fn push(&mut self, key: &Narrow, volume: Volume, flow: u32) {
        self.narrow.iter_mut().zip(key).for_each(|(words, &word)| words.push(word));
        self.volumes.push(volume);
        self.order.push(flow);
    }

    fn set_wide<'a>(&mut self, parts: impl Iterator<Item = &'a Wide>) {
        for part in parts {
            self.wide.iter_mut().zip(part).for_each(|(words, &word)| words.push(word));
        }
    }

    /// Appends the value of a field of flows in each of some flows.
    pub(super) fn values(&self, spec: &Spec, flows: &[u32], target: &mut Values) {
        let mask = u64::MAX >> (64 - spec.home_bits().min(64));
        match spec.home {
            Home::Narrow(word, shift) => {
                let words = &self.narrow[word];
                target.long.extend(flows.iter().map(|&flow| words[flow as usize] >> shift & mask));
            }
            Home::Wide(word, _) if target.is_wide => {
                let (high, low) = (&self.wide[word], &self.wide[word + 1]);
                target.wide.extend(flows.iter().map(|&flow| {
                    let number = self.wide_number(flow);
                    u128::from(high[number]) << 64 | u128::from(low[number])
                }));
            }
            Home::Wide(word, shift) => {
                let words = &self.wide[word];
                let value = |&flow: &u32| words[self.wide_number(flow)] >> shift & mask;
                target.long.extend(flows.iter().map(value));
            }
            Home::Packet => {}
        }
    }

    /// The number of the wide part of a flow.
    fn wide_number(&self, flow: u32) -> usize {
        low_half(self.narrow[WIDE_WORD][flow as usize] >> WIDE_SHIFT) as usize
    }

    /// The conversations of the flows, if they are sorted.
    pub(super) fn conversations(&self) -> Conversations {
        let len = self.order.len();
        let mut found = Conversations {
            flows: Vec::with_capacity(len),
            packets: Vec::with_capacity(2 * len),
            excess: Vec::with_capacity(2 * len),
            starts: Vec::with_capacity(2 * len + 1),
            first_rows: vec![0; len],
        };
        let mut row = 0;
        for (place, (&flow, volume)) in (0_usize..).zip(self.order.iter().zip(&self.volumes)) {
            let key = |word: usize| self.narrow[word][place];
            let direction = key(DIRECTION_WORD) & 1;
            let is_second = direction == 1
                && place > 0
                && (0..self.narrow.len()).all(|word| {
                    let differ = key(word) ^ self.narrow[word][place - 1];
                    differ == u64::from(word == DIRECTION_WORD)
                });
            let Volume { packets, excess } = *volume;
            found.first_rows[flow as usize] = row;
            if is_second {
                if let (Some(second), Some(more)) =
                    (found.packets.last_mut(), found.excess.last_mut())
                {
                    (*second, *more) = (packets, excess);
                }
            } else {
                found.flows.push(u32::try_from(place).unwrap_or(u32::MAX));
                found.packets.extend(if direction == 0 { [packets, 0] } else { [0, packets] });
                found.excess.extend(if direction == 0 { [excess, 0] } else { [0, excess] });
            }
            row += packets;
        }
        let mut row = 0;
        for packets in &found.packets {
            found.starts.push(row);
            row += packets;
        }
        found.starts.push(row);
        found
    }
}

/// The conversations of a segment.
#[derive(Debug)]
pub(super) struct Conversations {
    /// One flow of each, by its place in the sorted table.
    pub(super) flows: Vec<u32>,
    /// Packets of the two flows of each.
    pub(super) packets: Vec<u32>,
    /// What their lengths are above the least of their classes.
    pub(super) excess: Vec<u64>,
    /// The row that each flow starts at, and the number of rows.
    pub(super) starts: Vec<u32>,
    /// The row that each flow of the segment starts at, by the flow's number.
    pub(super) first_rows: Vec<u32>,
}
