//! The flows of a segment: found while packets come in, sorted when all are there.

use std::hash::{BuildHasher, RandomState};
use std::ops::Range;

use crate::fields::{Narrow, Place, Wide, is_odd};
use crate::index::Width;

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
    keys: Vec<[u64; N]>,
    secret: u64,
}

const SLOTS_MIN: usize = 1 << 10;
const HIGH_HALF: u64 = !0 << 32;

impl<const N: usize> Interner<N> {
    pub(super) fn new() -> Self {
        let secret = RandomState::new().hash_one(N);
        Self { slots: vec![0; SLOTS_MIN], keys: Vec::new(), secret }
    }

    pub(super) fn keys(&self) -> &[[u64; N]] {
        &self.keys
    }

    pub(super) fn clear(&mut self) {
        self.keys.clear();
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
                let pairs = self.keys[number as usize].iter().zip(key);
                if pairs.fold(0, |differ, (a, b)| differ | (a ^ b)) == 0 {
                    return number;
                }
            }
            slot = (slot + 1) & (self.slots.len() - 1);
        }
    }

    #[cold]
    fn insert(&mut self, slot: usize, key: &[u64; N], hash: u64) -> u32 {
        let number = u32::try_from(self.keys.len()).unwrap_or(u32::MAX - 1);
        self.slots[slot] = hash & HIGH_HALF | u64::from(number + 1);
        self.keys.push(*key);
        if self.keys.len() * 2 > self.slots.len() {
            self.grow();
        }
        number
    }

    fn grow(&mut self) {
        let len = self.slots.len() * 2;
        self.slots.clear();
        self.slots.resize(len, 0);
        for (number, key) in (1_u64..).zip(&self.keys) {
            let hash = hash(key, self.secret);
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
    /// Packets of each flow.
    pub(super) packets: Vec<u32>,
}

/// The word of [`Narrow`] that holds the number of the wide part.
const WIDE_WORD: usize = 2;
const WIDE_SHIFT: u32 = 32;

impl Flows {
    pub(super) fn new() -> Self {
        Self { narrow: Interner::new(), wide: Interner::new(), packets: Vec::new() }
    }

    pub(super) fn clear(&mut self) {
        self.narrow.clear();
        self.wide.clear();
        self.packets.clear();
    }

    pub(super) fn len(&self) -> usize {
        self.narrow.keys().len()
    }

    /// Packets whose headers are odd.
    pub(super) fn odd_packets(&self) -> u64 {
        let flows = self.narrow.keys().iter().zip(&self.packets);
        flows.filter(|(key, _)| is_odd(key)).map(|(_, &packets)| u64::from(packets)).sum()
    }

    /// Gives a flow its wide part.
    pub(super) fn join(&mut self, narrow: &mut Narrow, wide: &Wide, hash: u64) {
        let number = self.wide.number(wide, hash);
        narrow[WIDE_WORD] |= u64::from(number + 1) << WIDE_SHIFT;
    }

    /// The flow of a packet; also counts the packet.
    #[inline(always)]
    pub(super) fn count(&mut self, narrow: &Narrow, hash: u64) -> u32 {
        let flow = self.narrow.number(narrow, hash);
        match self.packets.get_mut(flow as usize) {
            Some(packets) => *packets += 1,
            None => self.packets.push(1),
        }
        flow
    }

    /// The flows in the order of their keys, which gives neighbours as many digits in common as
    /// possible.
    pub(super) fn sorted(&self) -> FlowTable {
        let (wide_order, ranks) = self.wide_ranks();
        let narrow = self.narrow.keys();
        let mut keys: Vec<([u64; 3], u32)> = (0..)
            .zip(narrow)
            .map(|(flow, key)| ([key[0], key[1], ranked(key, &ranks)], flow))
            .collect();
        keys.sort_unstable_by(|a, b| {
            let rest = |flow: u32| &narrow[flow as usize][3..];
            a.0.cmp(&b.0).then_with(|| rest(a.1).cmp(rest(b.1)))
        });
        let mut table = FlowTable::with_capacity(keys.len());
        for (key, flow) in keys {
            let rest = &narrow[flow as usize];
            table.push(&[key[0], key[1], key[2], rest[3], rest[4], rest[5]]);
            table.order.push(flow);
        }
        table.set_wide(wide_order.iter().map(|&i| &self.wide.keys()[i as usize]));
        table
    }

    /// The keys that [`sorted`](Self::sorted) sorts by, for sorting elsewhere.
    pub(super) fn sort_keys(&self) -> SortKeys<'_> {
        let (wide_order, ranks) = self.wide_ranks();
        let narrow = self.narrow.keys();
        let words = std::array::from_fn(|word| match word {
            WIDE_WORD => narrow.iter().map(|key| ranked(key, &ranks)).collect(),
            _ => narrow.iter().map(|key| key[word]).collect(),
        });
        SortKeys { words, wide: self.wide.keys(), wide_order }
    }

    /// The wide parts in sorted order, so that similar addresses are neighbours; and for each
    /// number of a wide part its rank, from 1.
    fn wide_ranks(&self) -> (Vec<u32>, Vec<u64>) {
        let wide = self.wide.keys();
        let mut wide_order: Vec<u32> = (0..).take(wide.len()).collect();
        wide_order.sort_unstable_by_key(|&i| &wide[i as usize]);
        let mut ranks = vec![0_u64; wide.len() + 1];
        for (rank, &i) in (1..).zip(&wide_order) {
            ranks[i as usize + 1] = rank;
        }
        (wide_order, ranks)
    }

    /// The flows in the order in which they came.
    pub(super) fn unsorted(&self) -> FlowTable {
        let narrow = self.narrow.keys();
        let mut table = FlowTable::with_capacity(narrow.len());
        narrow.iter().for_each(|key| table.push(key));
        table.order.extend((0..).take(narrow.len()));
        table.set_wide(self.wide.keys().iter());
        table
    }

    /// The bits that are set in any flow, word by word.
    pub(super) fn bits_used(&self) -> (Narrow, Wide) {
        fn all<const N: usize>(keys: &[[u64; N]]) -> [u64; N] {
            let mut bits = [0; N];
            for key in keys {
                bits.iter_mut().zip(key).for_each(|(bits, word)| *bits |= word);
            }
            bits
        }
        (all(self.narrow.keys()), all(self.wide.keys()))
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
    wide: &'a [Wide],
    wide_order: Vec<u32>,
}

impl SortKeys<'_> {
    pub(super) fn words(&self) -> [&[u64]; 6] {
        self.words.each_ref().map(Vec::as_slice)
    }

    /// Some of the flows, in the form that [`Flows::sorted`] returns.
    pub(super) fn table(&self, flows: &[u32]) -> FlowTable {
        let mut table = FlowTable::with_capacity(flows.len());
        table.order.extend_from_slice(flows);
        for (target, words) in table.narrow.iter_mut().zip(&self.words) {
            target.extend(flows.iter().map(|&flow| words[flow as usize]));
        }
        table.set_wide(self.wide_order.iter().map(|&i| &self.wide[i as usize]));
        table
    }

    /// Like [`FlowTable::wide_flows`], for all flows in the given order.
    pub(super) fn wide_flows(&self, order: &[u32], starts: &[u32]) -> WideFlows {
        // Without any wide part all flows count as one: the first is enough.
        let order = if self.wide.is_empty() { &order[..order.len().min(1)] } else { order };
        let words = &self.words[WIDE_WORD];
        wide_flows(order.iter().map(|&flow| words[flow as usize]), starts)
    }
}

/// The flows of a segment in some order, word by word: a column reads one word of each.
#[derive(Debug)]
pub(super) struct FlowTable {
    /// The number of each flow.
    pub(super) order: Vec<u32>,
    narrow: [Vec<u64>; 6],
    /// The words of wide parts, by their number; those of number 0 are 0.
    wide: [Vec<u64>; 10],
}

impl FlowTable {
    fn with_capacity(flows: usize) -> Self {
        Self {
            order: Vec::with_capacity(flows),
            narrow: std::array::from_fn(|_| Vec::with_capacity(flows)),
            wide: std::array::from_fn(|_| vec![0]),
        }
    }

    #[inline(always)]
    fn push(&mut self, key: &Narrow) {
        self.narrow.iter_mut().zip(key).for_each(|(words, &word)| words.push(word));
    }

    fn set_wide<'a>(&mut self, parts: impl Iterator<Item = &'a Wide>) {
        for part in parts {
            self.wide.iter_mut().zip(part).for_each(|(words, &word)| words.push(word));
        }
    }

    /// The flows to give wide digits for, and where their rows start; the rows of all flows start
    /// at `starts`. Neighbouring flows without a wide part count as one.
    pub(super) fn wide_flows(&self, starts: &[u32]) -> WideFlows {
        wide_flows(self.narrow[WIDE_WORD].iter().copied(), starts)
    }

    /// A digit of the narrow part of each flow of a range.
    pub(super) fn narrow_digits(
        &self,
        flows: Range<usize>,
        (word, shift): (usize, u32),
        width: Width,
        target: &mut Vec<u16>,
    ) {
        target.clear();
        target.extend(self.narrow[word][flows].iter().map(|&word| digit(word, shift, width)));
    }

    /// A digit of the wide part of each flow of a list.
    pub(super) fn wide_digits(
        &self,
        numbers: &[u32],
        (word, shift): (usize, u32),
        width: Width,
        target: &mut Vec<u16>,
    ) {
        let parts = &self.wide[word];
        target.clear();
        target.extend(numbers.iter().map(|&n| digit(parts[n as usize], shift, width)));
    }

    /// A digit of each flow; not for digits that belong to single packets.
    pub(super) fn digits(&self, place: Place, width: Width, target: &mut Vec<u16>) {
        match place {
            Place::Narrow(word, shift) => {
                self.narrow_digits(0..self.order.len(), (word, shift), width, target);
            }
            Place::Wide(word, shift) => {
                let numbers = self.narrow[WIDE_WORD].iter().map(|&key| low_half(key >> WIDE_SHIFT));
                self.wide_digits(&numbers.collect::<Vec<_>>(), (word, shift), width, target);
            }
            Place::Packet(_) => target.clear(),
        }
    }
}

/// Like [`FlowTable::wide_flows`], from the words that hold the numbers of wide parts.
fn wide_flows(words: impl Iterator<Item = u64>, starts: &[u32]) -> WideFlows {
    let mut flows = WideFlows { numbers: Vec::new(), starts: Vec::new() };
    for (word, &start) in words.zip(starts) {
        let number = low_half(word >> WIDE_SHIFT);
        if number != 0 || flows.numbers.last() != Some(&0) {
            flows.numbers.push(number);
            flows.starts.push(start);
        }
    }
    flows
}

/// The flows that wide digits are given for.
#[derive(Debug)]
pub(super) struct WideFlows {
    /// The number of each one's wide part; 0 stands for neighbouring flows without one.
    pub(super) numbers: Vec<u32>,
    /// Where the rows of each start.
    pub(super) starts: Vec<u32>,
}

/// A digit of a word.
#[inline(always)]
fn digit(word: u64, shift: u32, width: Width) -> u16 {
    let [low, high, ..] = (word >> shift).to_le_bytes();
    match width {
        Width::Byte => low.into(),
        Width::Short => u16::from_le_bytes([low, high]),
    }
}
