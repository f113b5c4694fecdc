//! A chunk: decoded batch by batch, then grouped into flows.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tapdex_engine::archive::device::{
    BATCH_FRAMES, CHUNK_FRAMES_MAX, ChunkFigures, DeviceChunk, FRAME_BYTES, Frames, HEAD_BYTES,
    HostMemory, KEY_WORDS, Kept, OWN_DIGITS, PacketKey, SegmentFailed, WIDE_WORDS,
};
use tapdex_engine::index::Width;

use super::pool::{Busy, DATA_START, Lent, Pool, ROOM_BYTES, addresses, lock};
use super::{BadPackets, Failed, SENT_WORDS, Shared, figures};
use crate::column::{args, u32_of};
use crate::device::{Arg, DeviceError, Stream};
use crate::memory::Memory;
use crate::radix::launch;

/// Bytes of a packet that the host has decoded, and how many are sent together.
const SENT_BYTES: usize = 8 * SENT_WORDS;
const SENT_TOGETHER: usize = ROOM_BYTES / SENT_BYTES;
/// Records of a thread that computes figures.
const RECORDS_EACH: usize = 4;

/// The few numbers of a chunk: how many frames were refused, slots of wide parts, flows and wide
/// parts, each in 32 bits; then the figures.
const COUNTS_LEN: usize = 4;
const SMALL_BYTES: usize = 4 * COUNTS_LEN + 8 * figures::LEN;
const FLOWS_AT: u64 = 8;
const WIDES_AT: u64 = 12;
const FIGURES_AT: u64 = 16;
/// Threads that publish the few numbers, each one of 32 bits.
const SMALL_THREADS: u32 = 96;

// What docs/gpu.md says.
const _: () = assert!(BATCH_FRAMES == 16_384 && FRAME_BYTES == 128 && CHUNK_FRAMES_MAX == 1 << 18);
const _: () = assert!(SMALL_BYTES <= 4 * SMALL_THREADS as usize);
const _: () = assert!(4 * (2 + CHUNK_FRAMES_MAX) <= ROOM_BYTES);

/// A chunk on a device.
#[derive(Debug)]
pub(super) struct Chunk {
    shared: Arc<Shared>,
    number: u64,
    kept: Kept,
    mask: Arc<Memory>,
    frames: usize,
    small: Lent,
    state: State,
}

#[derive(Debug)]
enum State {
    /// Takes frames.
    Open(Decoded),
    /// Takes the keys of those that were refused, and knows how many slots of wide parts are taken.
    Asked(Decoded, Vec<u32>, usize),
    /// Takes nothing any more.
    Closed,
}

/// What is known of each packet.
#[derive(Debug)]
struct Decoded {
    /// For how many packets there is room.
    room: usize,
    keys: Lent,
    wide_of: Lent,
    wides: Lent,
    excess: Lent,
    own: [Option<Lent>; OWN_DIGITS],
    refused: Lent,
}

impl Decoded {
    fn new(shared: &Shared, kept: &Kept, room: usize) -> Result<Self, DeviceError> {
        let pool = &shared.pool;
        Ok(Self {
            room,
            keys: pool.lend(8 * KEY_WORDS * room)?,
            wide_of: pool.lend(4 * room)?,
            wides: pool.lend(8 * WIDE_WORDS * room)?,
            excess: pool.lend(4 * room)?,
            own: lend_own(shared, kept, room)?,
            refused: pool.lend(4 * room)?,
        })
    }

    fn stride(&self) -> u32 {
        u32_of(self.room)
    }
}

/// Memory for what so many packets have for themselves.
pub(super) fn lend_own(
    shared: &Shared,
    kept: &Kept,
    records: usize,
) -> Result<[Option<Lent>; OWN_DIGITS], DeviceError> {
    let mut own = [const { None }; OWN_DIGITS];
    for ((own, is_kept), width) in own.iter_mut().zip(kept.own).zip(shared.widths) {
        if is_kept {
            *own = Some(shared.pool.lend(bytes_of_width(width) * records)?);
        }
    }
    Ok(own)
}

pub(super) fn bytes_of_width(width: Width) -> usize {
    match width {
        Width::Byte => 1,
        Width::Short => 2,
    }
}

/// Memory in which flows are found.
#[derive(Debug)]
struct Groups {
    /// The tables of flows and of wide parts, one behind the other.
    table: Lent,
    flow_entries: usize,
    wide_entries: usize,
    flow_of: Lent,
    number_of: Lent,
    leaders: Lent,
    packets: Lent,
    excess: Lent,
    wide: Option<WideGroups>,
}

/// Memory in which wide parts are found.
#[derive(Debug)]
struct WideGroups {
    leader_of: Lent,
    number_of: Lent,
    leaders: Lent,
}

impl Groups {
    fn new(pool: &Arc<Pool>, records: usize, slots: usize) -> Result<Self, DeviceError> {
        // At most half of the entries are taken.
        let entries = |keys: usize| if keys == 0 { 0 } else { (2 * keys).next_power_of_two() };
        let (flow_entries, wide_entries) = (entries(records), entries(slots));
        let wide = match slots {
            0 => None,
            _ => Some(WideGroups {
                leader_of: pool.lend(4 * slots)?,
                number_of: pool.lend(4 * slots)?,
                leaders: pool.lend(4 * slots)?,
            }),
        };
        Ok(Self {
            table: pool.lend(8 * (flow_entries + wide_entries))?,
            flow_entries,
            wide_entries,
            flow_of: pool.lend(4 * records)?,
            number_of: pool.lend(4 * records)?,
            leaders: pool.lend(4 * records)?,
            packets: pool.lend(4 * records)?,
            excess: pool.lend(8 * records)?,
            wide,
        })
    }
}

/// What is kept of a chunk.
#[derive(Debug)]
pub(super) struct Finished {
    pub(super) kept: Kept,
    pub(super) records: usize,
    pub(super) flows: usize,
    pub(super) wides: usize,
    /// The bits that are set in any key, and those that are not set in all.
    pub(super) bits: [[u64; KEY_WORDS]; 2],
    pub(super) wide_bits: [[u64; WIDE_WORDS]; 2],
    /// Null if it has no packets.
    pub(super) at: Option<FinishedMemory>,
}

#[derive(Debug)]
pub(super) struct FinishedMemory {
    pub(super) words: Lent,
    pub(super) packets: Lent,
    pub(super) excess: Lent,
    pub(super) wides: Option<Lent>,
    pub(super) flow_of: Lent,
    pub(super) own: [Option<Lent>; OWN_DIGITS],
}

impl Chunk {
    pub(super) fn new(shared: &Arc<Shared>, number: u64, kept: &Kept) -> Result<Self, Failed> {
        let room = shared.frames_first.load(Ordering::Relaxed);
        let small = shared.pool.lend(SMALL_BYTES)?;
        let _handing = lock(&shared.handing);
        shared.device.fill(Stream::Compute, small.address(), 0, SMALL_BYTES)?;
        Ok(Self {
            number,
            kept: *kept,
            mask: shared.mask(&kept.mask)?,
            frames: 0,
            small,
            state: State::Open(Decoded::new(shared, kept, room)?),
            shared: Arc::clone(shared),
        })
    }

    /// Does something; if it fails, the chunk is of no use any more.
    fn tried<T>(
        &mut self,
        what: impl FnOnce(&mut Self, &Arc<Shared>) -> Result<T, Failed>,
    ) -> Result<T, SegmentFailed> {
        let shared = Arc::clone(&self.shared);
        let result = shared.tried(|| what(self, &shared));
        if result.is_err() {
            self.state = State::Closed;
        }
        result
    }

    /// Makes room for so many packets.
    fn make_room(&mut self, shared: &Shared, packets: usize) -> Result<&Decoded, Failed> {
        if let State::Asked(..) = self.state
            && let State::Asked(decoded, ..) = std::mem::replace(&mut self.state, State::Closed)
        {
            self.state = State::Open(decoded);
        }
        let State::Open(decoded) = &mut self.state else { return Err(BadPackets::Closed.into()) };
        if decoded.room < packets {
            let room = packets.next_power_of_two();
            let larger = Decoded::new(shared, &self.kept, room)?;
            shared.frames_first.fetch_max(room, Ordering::Relaxed);
            let mut args = args![decoded.keys.address(), decoded.stride()].to_vec();
            args.extend(args![
                decoded.wide_of.address(),
                decoded.wides.address(),
                decoded.excess.address(),
            ]);
            args.extend(addresses(&decoded.own).map(Arg::from));
            args.extend(args![
                decoded.refused.address(),
                self.small.address(),
                u32_of(self.frames),
                larger.keys.address(),
                larger.stride(),
                larger.wide_of.address(),
                larger.wides.address(),
                larger.excess.address(),
            ]);
            args.extend(addresses(&larger.own).map(Arg::from));
            args.push(larger.refused.address().into());
            shared.launch("group", "group_move", self.frames, &args)?;
            *decoded = larger;
        }
        Ok(decoded)
    }

    fn try_add(&mut self, shared: &Shared, frames: Frames) -> Result<(), Failed> {
        let count = frames.len();
        let (heads, bytes) = (frames.heads(), frames.data());
        let is_whole = heads.len() == HEAD_BYTES * count && count <= BATCH_FRAMES;
        if !is_whole || bytes.len() > FRAME_BYTES * BATCH_FRAMES {
            let (heads, bytes) = (heads.len() / HEAD_BYTES, bytes.len());
            return Err(BadPackets::Frames { frames: count, heads, bytes }.into());
        }
        let (first, records) = (self.frames, self.frames + count);
        if records > CHUNK_FRAMES_MAX {
            return Err(BadPackets::TooMany { records, most: CHUNK_FRAMES_MAX }.into());
        }
        let (mask, small) = (self.mask.address(), self.small.address());
        let _handing = lock(&shared.handing);
        let decoded = self.make_room(shared, records)?;
        if count == 0 {
            return Ok(());
        }
        let (device, sending) = (&shared.device, &shared.sending);
        let stage = sending.stage(&shared.pool)?;
        let data = stage.address() + DATA_START as u64;
        match frames.heads_and_data() {
            Some(all) => device.copy_in(Stream::In, all, stage.address())?,
            None => {
                device.copy_in(Stream::In, heads, stage.address())?;
                if !bytes.is_empty() {
                    device.copy_in(Stream::In, bytes, data)?;
                }
            }
        }
        sending.sent(device, frames.into_memory())?;
        let mut args = args![
            stage.address(),
            data,
            u32_of(count),
            u32_of(first),
            decoded.stride(),
            mask,
            decoded.keys.address(),
            decoded.wide_of.address(),
            decoded.wides.address(),
            decoded.excess.address(),
        ]
        .to_vec();
        args.extend(addresses(&decoded.own).map(Arg::from));
        args.extend(args![decoded.refused.address(), small]);
        shared.launch("decode", "decode_frames", count, &args)?;
        sending.give_back(device, stage)?;
        self.frames = records;
        Ok(())
    }

    fn try_refused(&mut self, shared: &Shared) -> Result<Vec<u32>, Failed> {
        if let State::Asked(_, refused, _) = &self.state {
            return Ok(refused.clone());
        }
        let State::Open(decoded) = &self.state else { return Err(BadPackets::Closed.into()) };
        let (mut refused, mut slots) = (Vec::new(), 0);
        if self.frames > 0 {
            let room = shared.pool.room()?;
            let records = u32_of(self.frames);
            let (small, list) = (self.small.address(), decoded.refused.address());
            let args = args![small, list, records, room.address()];
            let handing = lock(&shared.handing);
            shared.launch("group", "group_refused", self.frames, args)?;
            let busy = Busy::new(&shared.device, Stream::Compute, room)?;
            drop(handing);
            let room = busy.wait()?;
            let mut numbers = longs(room.bytes());
            let mut next = || numbers.next().map_or(usize::MAX, |number| number as usize);
            let count = next();
            slots = next();
            if count > self.frames || slots > self.frames {
                return Err(BadPackets::Disorder.into());
            }
            refused.extend(numbers.take(count));
            refused.sort_unstable();
            let is_known = refused.last().is_none_or(|&last| last < records);
            if !is_known || refused.windows(2).any(|pair| pair[0] == pair[1]) {
                return Err(BadPackets::Disorder.into());
            }
        }
        if let State::Open(decoded) = std::mem::replace(&mut self.state, State::Closed) {
            self.state = State::Asked(decoded, refused.clone(), slots);
        }
        Ok(refused)
    }

    fn try_finish(
        &mut self,
        shared: &Arc<Shared>,
        keys: &[PacketKey],
    ) -> Result<ChunkFigures, Failed> {
        self.try_refused(shared)?;
        let State::Asked(decoded, refused, slots) =
            std::mem::replace(&mut self.state, State::Closed)
        else {
            return Err(BadPackets::Closed.into());
        };
        if keys.len() != refused.len() {
            let (given, expected) = (keys.len(), refused.len());
            return Err(BadPackets::Keys { given, expected }.into());
        }
        let mut finished = Finished {
            kept: self.kept,
            records: self.frames,
            flows: 0,
            wides: 0,
            bits: [[0; KEY_WORDS]; 2],
            wide_bits: [[0; WIDE_WORDS]; 2],
            at: None,
        };
        let mut figures = ChunkFigures::default();
        if self.frames > 0 {
            let is_wide = |key: &&PacketKey| key.wide != [0; WIDE_WORDS];
            let slots = slots + keys.iter().filter(is_wide).count();
            if slots > decoded.room {
                return Err(BadPackets::Disorder.into());
            }
            self.send_keys(shared, &decoded, &refused, keys)?;
            let groups = Groups::new(&shared.pool, self.frames, slots)?;
            let busy = {
                let _handing = lock(&shared.handing);
                self.group(shared, &decoded, &groups)?;
                self.publish(shared)?
            };
            let room = busy.wait()?;
            figures = self.figures(room.bytes(), slots, &mut finished)?;
            drop(room);
            finished.at = Some(self.keep(shared, &decoded, &groups, &finished)?);
        }
        lock(&shared.finished).insert(self.number, Arc::new(finished));
        Ok(figures)
    }

    /// Sends the keys of packets to their places.
    fn send_keys(
        &self,
        shared: &Shared,
        decoded: &Decoded,
        records: &[u32],
        keys: &[PacketKey],
    ) -> Result<(), Failed> {
        let (device, sending) = (&shared.device, &shared.sending);
        for (records, keys) in records.chunks(SENT_TOGETHER).zip(keys.chunks(SENT_TOGETHER)) {
            sending.make_way()?;
            let mut room = shared.pool.room()?;
            let (places, _) = room.bytes_mut().as_chunks_mut::<SENT_BYTES>();
            for ((place, &record), key) in places.iter_mut().zip(records).zip(keys) {
                pack(place, record, key);
            }
            let _handing = lock(&shared.handing);
            let stage = sending.stage(&shared.pool)?;
            let sent = room.bytes().get(..keys.len() * SENT_BYTES).unwrap_or_default();
            device.copy_in(Stream::In, sent, stage.address())?;
            sending.sent(device, Box::new(room))?;
            let mut args = args![
                stage.address(),
                u32_of(keys.len()),
                decoded.stride(),
                decoded.keys.address(),
                decoded.wide_of.address(),
                decoded.wides.address(),
                decoded.excess.address(),
            ]
            .to_vec();
            args.extend(addresses(&decoded.own).map(Arg::from));
            args.push(self.small.address().into());
            shared.launch("group", "group_place", keys.len(), &args)?;
            sending.give_back(device, stage)?;
        }
        Ok(())
    }

    /// Finds the flows of all packets.
    fn group(&self, shared: &Shared, decoded: &Decoded, groups: &Groups) -> Result<(), Failed> {
        let (records, stride) = (u32_of(self.frames), decoded.stride());
        let (small, table) = (self.small.address(), groups.table.address());
        let (keys, wide_of) = (decoded.keys.address(), decoded.wide_of.address());
        let run = |kernel, items, args: &[Arg]| shared.launch("group", kernel, items, args);
        let mask = |entries: usize| u32_of(entries.saturating_sub(1));

        let has_wide = u32::from(groups.wide.is_some());
        let mut args = args![keys, stride, records, wide_of].to_vec();
        args.extend(args![decoded.wides.address(), has_wide]);
        args.extend(addresses(&decoded.own).map(Arg::from));
        args.extend(args![
            small + FIGURES_AT,
            table,
            u32_of(groups.flow_entries + groups.wide_entries),
            groups.packets.address(),
            groups.excess.address(),
        ]);
        run("group_prepare", self.frames.div_ceil(RECORDS_EACH), &args)?;

        if let Some(wide) = &groups.wide {
            let args = args![
                wide_of,
                records,
                decoded.wides.address(),
                shared.secret,
                table + 8 * groups.flow_entries as u64,
                mask(groups.wide_entries),
                wide.leader_of.address(),
                wide.number_of.address(),
                wide.leaders.address(),
                small + WIDES_AT,
            ];
            run("group_wides", self.frames, args)?;
            let (leader_of, number_of) = (wide.leader_of.address(), wide.number_of.address());
            let args = args![wide_of, records, leader_of, number_of, stride, keys];
            run("group_join", self.frames, args)?;
        }

        let (flow_of, number_of) = (groups.flow_of.address(), groups.number_of.address());
        let args = args![
            keys,
            stride,
            records,
            shared.secret,
            table,
            mask(groups.flow_entries),
            flow_of,
            number_of,
            groups.leaders.address(),
            small + FLOWS_AT,
        ];
        run("group_flows", self.frames, args)?;
        let args = args![
            flow_of,
            number_of,
            records,
            decoded.excess.address(),
            groups.packets.address(),
            groups.excess.address(),
        ];
        Ok(run("group_count", self.frames, args)?)
    }

    /// Has the few numbers put into a room.
    fn publish(&self, shared: &Shared) -> Result<Busy, Failed> {
        let room = shared.pool.room()?;
        let args = args![self.small.address(), u32_of(SMALL_BYTES / 4), room.address()];
        launch(&*shared.device, "scan", "scan_publish", (1, SMALL_THREADS), args)?;
        Ok(Busy::new(&shared.device, Stream::Compute, room)?)
    }

    /// What the few numbers say.
    fn figures(
        &self,
        small: &[u8],
        slots: usize,
        finished: &mut Finished,
    ) -> Result<ChunkFigures, Failed> {
        let mut counts = longs(small).skip(COUNTS_LEN - 2);
        let (flows, wide) = (counts.next().unwrap_or(0), counts.next().unwrap_or(0));
        let is_right = flows >= 1 && flows as usize <= self.frames && wide as usize <= slots;
        let (words, _) = small.get(4 * COUNTS_LEN..).unwrap_or_default().as_chunks::<8>();
        let words = words.get(..figures::LEN).unwrap_or_default();
        if !is_right || words.is_empty() {
            return Err(BadPackets::Disorder.into());
        }
        let word = |at: usize| u64::from_le_bytes(words[at]);
        (finished.flows, finished.wides) = (flows as usize, wide as usize);
        finished.bits = [figures::BITS, figures::MISSING]
            .map(|first| std::array::from_fn(|at| word(first + at)));
        finished.wide_bits = [figures::WIDE_BITS, figures::WIDE_MISSING]
            .map(|first| std::array::from_fn(|at| word(first + at)));
        let own = word(figures::OWN);
        Ok(ChunkFigures {
            flows,
            wide,
            bits: finished.bits[0],
            wide_bits: finished.wide_bits[0],
            own: std::array::from_fn(|digit| self.kept.own[digit] && own >> digit & 1 == 1),
            odd: word(figures::ODD),
        })
    }

    /// Copies what is kept into memory of its size.
    fn keep(
        &self,
        shared: &Shared,
        decoded: &Decoded,
        groups: &Groups,
        finished: &Finished,
    ) -> Result<FinishedMemory, Failed> {
        let (pool, Finished { records, flows, wides, .. }) = (&shared.pool, finished);
        let kept = FinishedMemory {
            words: pool.lend(8 * KEY_WORDS * flows)?,
            packets: pool.lend(4 * flows)?,
            excess: pool.lend(8 * flows)?,
            wides: match wides {
                0 => None,
                _ => Some(pool.lend(8 * WIDE_WORDS * wides)?),
            },
            flow_of: pool.lend(4 * records)?,
            own: lend_own(shared, &self.kept, *records)?,
        };
        let wide_leaders = groups.wide.as_ref().map_or(0, |wide| wide.leaders.address());
        let mut args = args![
            decoded.keys.address(),
            decoded.stride(),
            groups.leaders.address(),
            u32_of(*flows),
            groups.packets.address(),
            groups.excess.address(),
            decoded.wides.address(),
            wide_leaders,
            u32_of(*wides),
            groups.flow_of.address(),
            u32_of(*records),
        ]
        .to_vec();
        args.extend(addresses(&decoded.own).map(Arg::from));
        args.extend(args![
            kept.words.address(),
            kept.packets.address(),
            kept.excess.address(),
            kept.wides.as_ref().map_or(0, Lent::address),
            kept.flow_of.address(),
        ]);
        args.extend(addresses(&kept.own).map(Arg::from));
        let _handing = lock(&shared.handing);
        shared.launch("group", "group_keep", *records, &args)?;
        Ok(kept)
    }
}

impl DeviceChunk for Chunk {
    fn add(&mut self, frames: Frames) -> Result<(), SegmentFailed> {
        self.tried(|chunk, shared| chunk.try_add(shared, frames))
    }

    fn refused(&mut self) -> Result<Vec<u32>, SegmentFailed> {
        self.tried(|chunk, shared| chunk.try_refused(shared))
    }

    fn finish(&mut self, refused: &[PacketKey]) -> Result<ChunkFigures, SegmentFailed> {
        self.tried(|chunk, shared| chunk.try_finish(shared, refused))
    }

    fn number(&self) -> u64 {
        self.number
    }
}

impl Drop for Chunk {
    fn drop(&mut self) {
        lock(&self.shared.finished).remove(&self.number);
    }
}

/// Writes a packet that the host has decoded, as `group_place` reads it.
fn pack(place: &mut [u8; SENT_BYTES], record: u32, key: &PacketKey) {
    let own = key.own.map(u64::from);
    let word =
        |from: usize| own.iter().skip(from).take(4).rev().fold(0, |word, digit| word << 16 | digit);
    let words = std::iter::once(u64::from(key.excess) << 32 | u64::from(record))
        .chain(key.narrow)
        .chain(key.wide)
        .chain([word(0), word(4)]);
    let (places, _) = place.as_chunks_mut::<8>();
    places.iter_mut().zip(words).for_each(|(place, word)| *place = word.to_le_bytes());
}

/// Bytes as numbers of 32 bits.
pub(super) fn longs(bytes: &[u8]) -> impl Iterator<Item = u32> {
    bytes.as_chunks::<4>().0.iter().map(|&long| u32::from_le_bytes(long))
}

const _: () = assert!(SENT_WORDS == 1 + KEY_WORDS + WIDE_WORDS + OWN_DIGITS.div_ceil(4));
