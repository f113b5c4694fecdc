//! A device for frames that runs on the CPU, and fails on demand.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

use crate::archive::device::{
    ChunkFigures, DeviceChunk, FRAME_BYTES, FlowColumn, Frames, HEAD_BYTES, KEY_WORDS, Kept,
    KeyPlace, OWN_DIGITS, OwnDigits, PackedDigits, PacketDevice, PacketKey, SegmentFailed, Sorted,
    SortedColumn, SortedPackets, StepCode, WIDE_WORDS,
};
use crate::fields::{Packet, is_odd};
use crate::packet::{self, Headers, LinkType};

/// What a [`PlainPackets`] does wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PacketFault {
    /// It has no room for frames.
    Frames,
    /// It begins no chunk.
    Begin,
    /// It takes no frames.
    Add,
    /// It does not say what it refuses.
    Refused,
    /// It says that it refuses a frame that does not exist.
    RefusesTooMuch,
    /// It does not finish a chunk.
    Finish,
    /// It finishes a chunk with more flows than packets.
    TooManyFlows,
    /// It does not sort.
    Sort,
    /// The order that it returns is cut off.
    RowMapCut,
    /// The flows it returns have more packets than there are.
    TooManyPackets,
    /// The values of a column are not in order.
    ValuesTurned,
    /// A column has an entry that does not exist.
    StrangeEntry,
    /// It returns no digits of single packets.
    NoDigits,
}

/// Does the work of a device for frames in the simplest way.
#[derive(Debug, Default)]
pub struct PlainPackets {
    refuse_every: u32,
    fault: Option<(PacketFault, u64, u64)>,
    /// Calls that the fault could have hit.
    calls: AtomicU64,
    /// Segments that it sorted.
    pub sorted: AtomicU64,
    /// The packets of chunks, by their numbers.
    chunks: Mutex<HashMap<u64, (Kept, Vec<PacketKey>)>>,
    next: AtomicU64,
}

impl PlainPackets {
    /// One that refuses every so-manieth frame; none if it is 0.
    pub fn refusing(refuse_every: u32) -> Self {
        Self { refuse_every, ..Self::default() }
    }

    /// One that does something wrong, from the so-manieth of such calls on, and so often.
    pub fn with_fault(fault: PacketFault, from: u64, times: u64) -> Self {
        Self { fault: Some((fault, from, times)), ..Self::default() }
    }

    /// Chunks whose memory was not given back.
    pub fn chunks(&self) -> usize {
        self.chunks.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    fn fails(&self, fault: PacketFault) -> bool {
        let Some((wrong, from, times)) = self.fault else { return false };
        wrong == fault && (from..from + times).contains(&self.calls.fetch_add(1, Relaxed))
    }

    fn check(&self, fault: PacketFault) -> Result<(), SegmentFailed> {
        match self.fails(fault) {
            true => Err(SegmentFailed::Device(format!("{fault:?}").into())),
            false => Ok(()),
        }
    }
}

/// Digits as a device returns those of a column: packed, if that is the best form for sure.
fn packed(digits: OwnDigits) -> OwnDigits {
    let list: Vec<u16> = match &digits {
        OwnDigits::Bytes(list) => list.iter().map(|&digit| digit.into()).collect(),
        OwnDigits::Shorts(list) => list.clone(),
        OwnDigits::Packed(_) => return digits,
    };
    if list.is_empty() {
        return digits;
    }
    let (packed, runs) = PackedDigits::pack(&list);
    match PackedDigits::suffices(packed.bytes.len(), packed.values.len(), runs) {
        true => OwnDigits::Packed(packed),
        false => digits,
    }
}

#[derive(Debug)]
struct PlainChunk {
    device: Arc<PlainPackets>,
    number: u64,
    kept: Kept,
    keys: Vec<PacketKey>,
    refused: Vec<u32>,
}

impl Drop for PlainChunk {
    fn drop(&mut self) {
        self.device.chunks.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.number);
    }
}

impl PacketDevice for Arc<PlainPackets> {
    fn frames(&self) -> Result<Frames, SegmentFailed> {
        self.check(PacketFault::Frames)?;
        Ok(Frames::new(Box::new(vec![0xA5; Frames::BYTES])))
    }

    fn begin(&self, kept: &Kept) -> Result<Box<dyn DeviceChunk>, SegmentFailed> {
        self.check(PacketFault::Begin)?;
        let number = self.next.fetch_add(1, Relaxed);
        let (device, kept) = (Arc::clone(self), *kept);
        Ok(Box::new(PlainChunk { device, number, kept, keys: Vec::new(), refused: Vec::new() }))
    }

    fn sort(
        &self,
        chunks: &[&dyn DeviceChunk],
        columns: &[FlowColumn],
        target: &mut SortedPackets,
    ) -> Result<(), SegmentFailed> {
        self.check(PacketFault::Sort)?;
        self.sorted.fetch_add(1, Relaxed);
        let all = self.chunks.lock().unwrap_or_else(PoisonError::into_inner);
        let (mut packets, mut kept) = (Vec::new(), [false; OWN_DIGITS]);
        for chunk in chunks {
            let chunk = all.get(&chunk.number()).ok_or(SegmentFailed::Disorder)?;
            kept = chunk.0.own;
            packets.extend(&chunk.1);
        }
        let mut sorted = sorted_packets(&packets, kept, columns)?;
        if self.fails(PacketFault::RowMapCut) {
            sorted.row_map.truncate(packets.len() / 8);
        }
        if self.fails(PacketFault::TooManyPackets) {
            sorted.packets[0] += 1;
        }
        if self.fails(PacketFault::ValuesTurned) {
            let mut columns = sorted.columns.iter_mut().map(|column| &mut column.sorted.values);
            columns.find(|values| values.len() > 1).unwrap().swap(0, 1);
        }
        if self.fails(PacketFault::StrangeEntry) {
            *sorted.columns[0].sorted.entries.last_mut().unwrap() = u32::MAX;
        }
        if self.fails(PacketFault::NoDigits) {
            sorted.own[0] = OwnDigits::default();
        }
        *target = sorted;
        Ok(())
    }
}

/// What a device makes of packets, in the simplest way.
pub fn sorted_packets(
    packets: &[PacketKey],
    kept: [bool; OWN_DIGITS],
    columns: &[FlowColumn],
) -> Result<SortedPackets, SegmentFailed> {
    let mut sorted = SortedPackets::default();
    let is_byte = [true, true, false, false, false];
    if packets.is_empty() {
        sorted.columns = columns.iter().map(|_| SortedColumn::default()).collect();
        for digit in (0..OWN_DIGITS).filter(|&digit| kept[digit] && !is_byte[digit]) {
            sorted.own[digit] = OwnDigits::Shorts(Vec::new());
        }
        return Ok(sorted);
    }
    // Flows are in the order of their keys, those of equal narrow keys in that of their wide parts.
    let mut wides: Vec<_> = packets.iter().map(|packet| packet.wide).collect();
    wides.retain(|wide| *wide != [0; WIDE_WORDS]);
    wides.sort_unstable();
    wides.dedup();
    let mut order: Vec<_> =
        (0_u32..).zip(packets.iter().map(|packet| (ranked(packet, &wides), packet))).collect();
    order.sort_by_key(|&(record, (narrow, _))| (narrow, record));

    let mut starts: Vec<u32> = Vec::new();
    let mut conversations: Vec<&PacketKey> = Vec::new();
    let (mut row, mut last) = (0, None);
    for flow in order.chunk_by(|(_, (a, _)), (_, (b, _))| a == b) {
        let (mut narrow, packet) = flow[0].1;
        // The direction is the last bit of the last word.
        let direction = usize::try_from(narrow[KEY_WORDS - 1] & 1).unwrap();
        narrow[KEY_WORDS - 1] &= !1;
        if last != Some(narrow) {
            last = Some(narrow);
            conversations.push(packet);
            starts.extend([row, row]);
            sorted.packets.extend([0, 0]);
            sorted.excess.extend([0, 0]);
        }
        let at = 2 * conversations.len() - 2 + direction;
        let len = u32::try_from(flow.len()).unwrap();
        sorted.flows += 1;
        sorted.packets[at] = len;
        sorted.excess[at] = flow.iter().map(|(_, (_, packet))| u64::from(packet.excess)).sum();
        row += len;
        if direction == 0 {
            *starts.last_mut().unwrap() = row;
        }
    }
    starts.push(row);
    let records: Vec<u32> = order.iter().map(|&(record, _)| record).collect();
    sorted.row_map = StepCode::row_map(&records, &starts)?;
    for column in columns {
        let places = [Some(column.first), column.second];
        let values = places
            .iter()
            .flatten()
            .flat_map(|place| conversations.iter().map(move |packet| value(place, packet)));
        sorted.columns.push(sorted_column(values));
    }
    for digit in (0..OWN_DIGITS).filter(|&digit| kept[digit]) {
        let all = order.iter().map(|(_, (_, packet))| packet.own[digit]);
        let own = match is_byte[digit] {
            true => OwnDigits::Bytes(all.map(|digit| u8::try_from(digit).unwrap()).collect()),
            false => OwnDigits::Shorts(all.collect()),
        };
        // The first three are columns of one digit.
        sorted.own[digit] = if digit < 3 { packed(own) } else { own };
    }
    Ok(sorted)
}

/// The key of a packet with the rank of its wide part, from 1.
fn ranked(packet: &PacketKey, wides: &[[u64; WIDE_WORDS]]) -> [u64; KEY_WORDS] {
    let mut narrow = packet.narrow;
    let rank = wides.binary_search(&packet.wide).map_or(0, |at| at as u64 + 1);
    narrow[2] = narrow[2] & 0xFFFF_FFFF | rank << 32;
    narrow
}

/// The value of a column in the key of a packet.
fn value(place: &KeyPlace, packet: &PacketKey) -> u128 {
    let words: &[u64] = if place.is_wide { &packet.wide } else { &packet.narrow };
    match place.bits {
        128 => u128::from(words[place.word]) << 64 | u128::from(words[place.word + 1]),
        bits => u128::from(words[place.word] >> place.shift) & ((1 << bits) - 1),
    }
}

/// Entries sorted by their values.
fn sorted_column(values: impl Iterator<Item = u128>) -> SortedColumn {
    let mut pairs: Vec<(u128, u32)> = values.zip(0..).collect();
    pairs.sort_unstable();
    let mut sorted = Sorted::default();
    for (at, &(value, entry)) in (0..).zip(&pairs) {
        if sorted.values.last() != Some(&value) {
            sorted.values.push(value);
            sorted.starts.push(at);
        }
        sorted.entries.push(entry);
    }
    sorted.starts.push(u32::try_from(pairs.len()).unwrap());
    let packed_bytes = sorted.packed_len() as u64;
    SortedColumn { sorted, packed_bytes }
}

impl DeviceChunk for PlainChunk {
    fn add(&mut self, frames: Frames) -> Result<(), SegmentFailed> {
        self.device.check(PacketFault::Add)?;
        let mut headers = Headers::default();
        for head in frames.heads().chunks_exact(HEAD_BYTES) {
            let (words, _) = head.as_chunks::<4>();
            let [start, captured, wire_len, source] =
                [0, 1, 2, 3].map(|word| u32::from_le_bytes(words[word]));
            let record = u32::try_from(self.keys.len()).unwrap();
            let every = self.device.refuse_every;
            if captured as usize > FRAME_BYTES || every > 0 && record % every == 0 {
                self.refused.push(record);
                self.keys.push(PacketKey::default());
                continue;
            }
            let frame = &frames.data()[start as usize..][..captured as usize];
            let link = LinkType(u16::try_from(source >> 16).unwrap());
            // Frames in another byte order are refused, as by all devices.
            if link == LinkType::NULL {
                self.refused.push(record);
                self.keys.push(PacketKey::default());
                continue;
            }
            packet::decode(link, false, frame, &mut headers);
            let packet = Packet { headers: &headers, link, interface: source & 0xFFFF, wire_len };
            self.keys.push(PacketKey::of(&packet, &self.kept));
        }
        Ok(())
    }

    fn refused(&mut self) -> Result<Vec<u32>, SegmentFailed> {
        self.device.check(PacketFault::Refused)?;
        let mut refused = self.refused.clone();
        if self.device.fails(PacketFault::RefusesTooMuch) {
            refused.push(u32::try_from(self.keys.len()).unwrap());
        }
        Ok(refused)
    }

    fn finish(&mut self, refused: &[PacketKey]) -> Result<ChunkFigures, SegmentFailed> {
        self.device.check(PacketFault::Finish)?;
        assert_eq!(refused.len(), self.refused.len());
        for (&record, key) in self.refused.iter().zip(refused) {
            self.keys[record as usize] = *key;
        }
        let mut flows: Vec<_> = self.keys.iter().map(|key| (key.narrow, key.wide)).collect();
        flows.sort_unstable();
        flows.dedup();
        let mut wide: Vec<_> = flows.iter().map(|flow| flow.1).collect();
        wide.retain(|wide| *wide != [0; WIDE_WORDS]);
        wide.sort_unstable();
        wide.dedup();
        let mut figures = ChunkFigures {
            flows: u32::try_from(flows.len()).unwrap(),
            wide: u32::try_from(wide.len()).unwrap(),
            ..ChunkFigures::default()
        };
        for key in &self.keys {
            figures.bits.iter_mut().zip(key.narrow).for_each(|(bits, word)| *bits |= word);
            figures.wide_bits.iter_mut().zip(key.wide).for_each(|(bits, word)| *bits |= word);
            let kept = key.own.iter().zip(self.kept.own);
            let used = kept.map(|(&digit, kept)| kept && digit != 0);
            figures.own.iter_mut().zip(used).for_each(|(all, used)| *all |= used);
            figures.odd += u64::from(is_odd(&key.narrow));
        }
        if self.device.fails(PacketFault::TooManyFlows) {
            figures.flows += u32::try_from(self.keys.len()).unwrap();
        }
        let mut chunks = self.device.chunks.lock().unwrap_or_else(PoisonError::into_inner);
        chunks.insert(self.number, (self.kept, std::mem::take(&mut self.keys)));
        Ok(figures)
    }

    fn number(&self) -> u64 {
        self.number
    }
}
