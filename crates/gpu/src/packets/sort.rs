//! The packets of several chunks, sorted together, and their rows encoded.

use std::collections::VecDeque;
use std::sync::Arc;

use tapdex_engine::archive::device::{
    FlowColumn, HostMemory, KEY_WORDS, Kept, OWN_DIGITS, OwnDigits, PackedDigits, SortedColumn,
    SortedPackets, WIDE_WORDS,
};
use tapdex_engine::index::Width;

use super::chunk::{Finished, FinishedMemory, bytes_of_width, lend_own, longs};
use super::columns::{Conversations, KeyBits, SortedFlows};
use super::pool::{Busy, Lent, Pool, ROOM_BYTES, Stage, addresses, lock};
use super::rows::{Rows, SortedRows, packed_starts};
use super::{BadPackets, CHUNK_WORDS, Failed, Shared};
use crate::column::{args, u32_of};
use crate::device::{Address, Arg, DeviceError, Stream};
use crate::radix::{Keys, Radix, bits_up_to, launch, shifts};

/// Rooms that one sort copies to at a time.
const OUT_TOGETHER: usize = 4;
/// Bytes of a chunk in the table.
const CHUNK_BYTES: usize = 8 * CHUNK_WORDS;
/// The most chunks that are sorted together.
const CHUNKS_MAX: usize = ROOM_BYTES / CHUNK_BYTES;

/// The word of a key whose high half is the number of the wide part.
const WIDE_WORD: usize = 2;

/// How much there is to sort.
#[derive(Debug, Clone, Copy, Default)]
struct Sizes {
    records: usize,
    flows: usize,
    wides: usize,
}

impl Sizes {
    /// With those of one more chunk.
    fn with(self, chunk: &Finished) -> Self {
        Self {
            records: self.records + chunk.records,
            flows: self.flows + chunk.flows,
            wides: self.wides + chunk.wides,
        }
    }
}

/// Memory to sort keys, and to find those that are equal.
#[derive(Debug)]
struct Keyed {
    len: usize,
    words: Lent,
    word_count: usize,
    orders: [Lent; 2],
    places: Lent,
    ranks: Lent,
    firsts: Lent,
    /// The keys that differ, in order.
    out: Lent,
}

impl Keyed {
    fn new(pool: &Arc<Pool>, len: usize, word_count: usize) -> Result<Self, DeviceError> {
        Ok(Self {
            len,
            words: pool.lend(8 * word_count * len)?,
            word_count,
            orders: [pool.lend(4 * len)?, pool.lend(4 * len)?],
            places: pool.lend(4 * (len + 1))?,
            ranks: pool.lend(4 * len)?,
            firsts: pool.lend(4 * len)?,
            out: pool.lend(8 * word_count * len)?,
        })
    }

    /// Where the number of keys that differ is.
    fn ranks_len(&self) -> Address {
        self.places.address() + 4 * self.len as u64
    }
}

/// The memory of a sort.
#[derive(Debug)]
struct Sorting {
    flows: Keyed,
    wides: Option<Keyed>,
    packets: Lent,
    excess: Lent,
    keys: Lent,
    orders: [Lent; 2],
    own: [Option<Lent>; OWN_DIGITS],
    counts: Lent,
    sums: Lent,
    unread: Lent,
}

impl Sorting {
    fn new(shared: &Shared, kept: &Kept, sizes: Sizes) -> Result<Self, DeviceError> {
        let (pool, Sizes { records, flows, wides }) = (&shared.pool, sizes);
        // There may be as many conversations as flows, and each has two ends.
        let [counts, sums] = Radix::room(records.max(2 * flows + 1).max(wides + 1));
        Ok(Self {
            flows: Keyed::new(pool, flows, KEY_WORDS)?,
            wides: match wides {
                0 => None,
                _ => Some(Keyed::new(pool, wides, WIDE_WORDS)?),
            },
            packets: pool.lend(4 * flows)?,
            excess: pool.lend(8 * flows)?,
            keys: pool.lend(4 * records)?,
            orders: [pool.lend(4 * records)?, pool.lend(4 * records)?],
            own: lend_own(shared, kept, records)?,
            counts: pool.lend(counts)?,
            sums: pool.lend(sums)?,
            unread: pool.lend(4)?,
        })
    }
}

/// What is copied out, and where it goes.
#[derive(Debug, Clone, Copy)]
enum Part {
    Packets,
    Excess,
    Values(usize),
    Starts(usize),
    Entries(usize),
    RowMap,
    Own(usize),
    Packed(usize),
    Digits(usize),
}

impl Shared {
    pub(super) fn sort(
        &self,
        chunks: &[Arc<Finished>],
        columns: &[FlowColumn],
        sorted: &mut SortedPackets,
    ) -> Result<(), Failed> {
        let kept = chunks.first().map(|chunk| &chunk.kept);
        clear(sorted, columns.len(), kept);
        let Some(kept) = kept else { return Ok(()) };
        let filled: Vec<(&Finished, &FinishedMemory)> =
            chunks.iter().filter_map(|chunk| Some((&**chunk, chunk.at.as_ref()?))).collect();
        if filled.is_empty() {
            let kept = (0..OWN_DIGITS).filter(|&digit| kept.own[digit]);
            kept.for_each(|digit| plain(&mut sorted.own[digit], self.widths[digit]));
            return Ok(());
        }
        if filled.len() > CHUNKS_MAX {
            return Err(BadPackets::TooManyChunks { chunks: filled.len() }.into());
        }
        let sizes = filled.iter().fold(Sizes::default(), |sizes, (chunk, _)| sizes.with(chunk));
        let turn = lock(&self.turn);
        let memory = Sorting::new(self, kept, sizes)?;
        let stage = self.send_table(&filled)?;
        let order = self.sort_all(&filled, stage.address(), sizes, &memory)?;
        self.sending.give_back(&self.device, stage)?;
        let single = |digit: usize| {
            let own = memory.own[digit].as_ref().filter(|_| self.is_single[digit]);
            own.map(|own| (own.address(), self.widths[digit]))
        };
        let rows = SortedRows {
            rows: sizes.records,
            words: memory.flows.out.address(),
            flows_room: sizes.flows,
            flows: memory.flows.ranks_len(),
            order,
            ranks: memory.keys.address(),
            own: std::array::from_fn(single),
        };
        let rows = Rows::new(&self.pool, rows)?;
        let radix = self.radix(&memory);
        rows.count(self, &radix)?;
        let room = self.publish(&memory, &rows)?.wait()?;
        let [flows, wides] = totals(&memory, room.bytes());
        if flows == 0 || flows > sizes.flows || wides > sizes.wides {
            return Err(BadPackets::Disorder.into());
        }
        let counted = rows.counted(room.bytes().get(TOTALS_BYTES..).unwrap_or_default())?;
        if counted.conversations == 0 || counted.conversations > flows {
            return Err(BadPackets::Disorder.into());
        }
        let (sorted_flows, bits) = (flows_of(&memory, &rows), key_bits(&filled));
        let mut conversations =
            Conversations::new(&self.pool, sorted_flows, counted.conversations)?;
        let values = self.pool.room()?;
        let tried = conversations.sort(self, &radix, columns, &bits, values.address());
        // Whatever has failed, kernels may write to the room.
        let values = Busy::new(&self.device, Stream::Compute, values)?;
        tried?;
        let (encoded, busy) = rows.encode(self, &radix, &counted, room)?;
        drop(turn);
        let room = busy.wait()?;
        let map_len = rows.map_len(room.bytes(), encoded.map.1)?;
        drop(room);
        let values = values.wait()?;

        let mut parts: Vec<(Part, Address, usize)> = Vec::new();
        sorted.flows = flows as u64;
        parts.push((Part::Packets, conversations.packets.address(), 8 * counted.conversations));
        parts.push((Part::Excess, conversations.excess.address(), 16 * counted.conversations));
        let published = longs(values.bytes()).map(|number| number as usize);
        let mut published = published.take(2 * columns.len()).collect::<Vec<_>>().into_iter();
        drop(values);
        for (at, column) in conversations.columns.iter().enumerate() {
            let (Some(count), Some(bytes)) = (published.next(), published.next()) else { break };
            if count == 0 || count > column.len {
                return Err(BadPackets::Disorder.into());
            }
            sorted.columns[at].packed_bytes = (packed_starts(column.len) + bytes) as u64;
            for word in 0..column.word_count {
                let from = column.values.address() + 8 * (word * column.len) as u64;
                parts.push((Part::Values(at), from, 8 * count));
            }
            parts.push((Part::Starts(at), column.starts.address(), 4 * count));
            parts.push((Part::Entries(at), column.order.address(), 4 * column.len));
        }
        sorted.row_map.extend(counted.code.head());
        parts.push((Part::RowMap, encoded.map.0.address(), map_len));
        for (digit, own) in memory.own.iter().enumerate() {
            if let Some((packed, bytes, values)) = &encoded.packed[digit] {
                if !matches!(sorted.own[digit], OwnDigits::Packed(_)) {
                    sorted.own[digit] = OwnDigits::Packed(PackedDigits::default());
                }
                parts.push((Part::Packed(digit), packed.address(), *bytes));
                parts.push((Part::Digits(digit), rows.values(digit), 2 * values));
            } else if let Some(own) = own {
                plain(&mut sorted.own[digit], self.widths[digit]);
                let bytes = bytes_of_width(self.widths[digit]) * sizes.records;
                parts.push((Part::Own(digit), own.address(), bytes));
            }
        }
        Ok(self.copy_out(&parts, sorted)?)
    }

    /// Sends the table of the chunks; returns where it is.
    fn send_table(&self, chunks: &[(&Finished, &FinishedMemory)]) -> Result<Stage, Failed> {
        self.sending.make_way()?;
        let mut room = self.pool.room()?;
        let (places, _) = room.bytes_mut().as_chunks_mut::<CHUNK_BYTES>();
        let mut before = Sizes::default();
        for (place, (chunk, at)) in places.iter_mut().zip(chunks) {
            let words = [
                before.records as u64,
                before.flows as u64,
                before.wides as u64,
                chunk.flows as u64,
                at.words.address(),
                at.packets.address(),
                at.excess.address(),
                at.wides.as_ref().map_or(0, Lent::address),
                at.flow_of.address(),
            ];
            let words = words.into_iter().chain(addresses(&at.own));
            let (places, _) = place.as_chunks_mut::<8>();
            places.iter_mut().zip(words).for_each(|(place, word)| *place = word.to_le_bytes());
            before = before.with(chunk);
        }
        let stage = self.sending.stage(&self.pool)?;
        let table = room.bytes().get(..chunks.len() * CHUNK_BYTES).unwrap_or_default();
        self.device.copy_in(Stream::In, table, stage.address())?;
        self.sending.sent(&self.device, Box::new(room))?;
        Ok(stage)
    }

    /// Sorts flows, then records; returns where the order of the records is.
    fn sort_all(
        &self,
        chunks: &[(&Finished, &FinishedMemory)],
        table: Address,
        sizes: Sizes,
        memory: &Sorting,
    ) -> Result<Address, DeviceError> {
        let count = u32_of(chunks.len());
        let radix = self.radix(memory);
        let run = |kernel, items, args: &[Arg]| self.launch("group", kernel, items, args);
        let mut wide_ranks = 0;
        if let Some(wides) = &memory.wides {
            let (len, words) = (u32_of(wides.len), wides.words.address());
            run("group_wide_words", wides.len, args![table, count, len, words])?;
            self.rank(&radix, wides, &differing(chunks.iter().map(|(chunk, _)| chunk.wide_bits)))?;
            wide_ranks = wides.ranks.address();
            let args =
                args![words, len, wides.firsts.address(), wides.ranks_len(), wides.out.address()];
            run("group_wide_out", wides.len, args)?;
        }

        let flows = &memory.flows;
        let (len, words) = (u32_of(flows.len), flows.words.address());
        run("group_flow_words", flows.len, args![table, count, len, wide_ranks, words])?;
        let mut bits = differing(chunks.iter().map(|(chunk, _)| chunk.bits));
        bits[WIDE_WORD] |= bits_up_to(sizes.wides as u64) << 32;
        self.rank(&radix, flows, &bits)?;
        let (packets, excess) = (memory.packets.address(), memory.excess.address());
        self.device.fill(Stream::Compute, packets, 0, 4 * flows.len)?;
        self.device.fill(Stream::Compute, excess, 0, 8 * flows.len)?;
        let args = args![
            table,
            count,
            words,
            len,
            flows.firsts.address(),
            flows.ranks.address(),
            flows.ranks_len(),
            flows.out.address(),
            packets,
            excess,
        ];
        run("group_flow_out", flows.len, args)?;

        let (records, keys) = (u32_of(sizes.records), memory.keys.address());
        let args = args![table, count, records, flows.ranks.address(), keys];
        run("group_record_keys", sizes.records, args)?;
        let in_use = bits_up_to(sizes.flows as u64 - 1);
        let passes: Vec<_> = shifts(in_use).map(|shift| (Keys::Longs(keys), shift)).collect();
        let orders = memory.orders.each_ref().map(Lent::address);
        let order = radix.sort(sizes.records, orders, &passes)?;
        let mut args = args![table, count, order, records].to_vec();
        args.extend(addresses(&memory.own).map(Arg::from));
        run("group_rows", sizes.records, &args)?;
        Ok(order)
    }

    /// Sorts keys by those of their bits that differ, and ranks them: equal keys have one rank.
    fn rank(&self, radix: &Radix<'_>, keyed: &Keyed, bits: &[u64]) -> Result<(), DeviceError> {
        let (len, words) = (keyed.len, keyed.words.address());
        let mut passes = Vec::new();
        // The last word first: later passes have precedence.
        for (word, &bits) in bits.iter().enumerate().rev() {
            let at = words + (8 * word * len) as u64;
            passes.extend(shifts(bits).map(|shift| (Keys::Words(at), shift)));
        }
        let order = radix.sort(len, keyed.orders.each_ref().map(Lent::address), &passes)?;
        let places = keyed.places.address();
        let args = args![words, u32_of(keyed.word_count), order, u32_of(len), places];
        self.launch("group", "group_heads", len + 1, args)?;
        radix.scan(places, len + 1)?;
        let (ranks, firsts) = (keyed.ranks.address(), keyed.firsts.address());
        let args = args![order, u32_of(len), places, ranks, firsts];
        self.launch("group", "group_ranks", len, args)
    }

    fn radix<'d>(&'d self, memory: &Sorting) -> Radix<'d> {
        Radix {
            device: &*self.device,
            counts: memory.counts.address(),
            sums: memory.sums.address(),
            unread: memory.unread.address(),
        }
    }

    /// Has the host told how many flows and wide parts differ, and what was counted of the rows.
    fn publish(&self, memory: &Sorting, rows: &Rows) -> Result<Busy, DeviceError> {
        let room = self.pool.room()?;
        let lens = [Some(&memory.flows), memory.wides.as_ref()];
        for (place, keyed) in (0..).zip(lens) {
            let Some(keyed) = keyed else { continue };
            let args = args![keyed.ranks_len(), 1_u32, room.address() + 4 * place];
            launch(&*self.device, "scan", "scan_publish", (1, 32), args)?;
        }
        rows.publish(self, room.address() + TOTALS_BYTES as u64)?;
        Busy::new(&self.device, Stream::Compute, room)
    }

    /// Copies parts out, one room after the other. The kernels that write them are done.
    fn copy_out(
        &self,
        parts: &[(Part, Address, usize)],
        sorted: &mut SortedPackets,
    ) -> Result<(), DeviceError> {
        for &(part, _, bytes) in parts {
            reserve(sorted, part, bytes);
        }
        let pieces = parts.iter().flat_map(|&(part, from, bytes)| {
            let piece = move |at: usize| (part, from + at as u64, (bytes - at).min(ROOM_BYTES));
            (0..bytes).step_by(ROOM_BYTES).map(piece)
        });
        let mut under_way = VecDeque::with_capacity(OUT_TOGETHER);
        let mut take = |(busy, part, bytes): (Busy, Part, usize)| {
            let room = busy.wait()?;
            append(sorted, part, room.bytes().get(..bytes).unwrap_or_default());
            Ok::<_, DeviceError>(())
        };
        for (part, from, bytes) in pieces {
            if under_way.len() == OUT_TOGETHER
                && let Some(oldest) = under_way.pop_front()
            {
                take(oldest)?;
            }
            let room = self.pool.room()?;
            self.device.copy_out(Stream::Out, from, room.address(), bytes)?;
            under_way.push_back((Busy::new(&self.device, Stream::Out, room)?, part, bytes));
        }
        under_way.into_iter().try_for_each(take)?;
        for SortedColumn { sorted: column, .. } in &mut sorted.columns {
            let count = column.starts.len();
            if column.values.len() > count {
                // The high words of all values, and then the low ones.
                let low = column.values.split_off(count);
                column
                    .values
                    .iter_mut()
                    .zip(low)
                    .for_each(|(value, low)| *value = *value << 64 | low);
            }
            column.starts.push(u32_of(column.entries.len()));
        }
        Ok(())
    }
}

/// The numbers of flows and of wide parts that differ, which take so many bytes.
fn totals(memory: &Sorting, published: &[u8]) -> [usize; 2] {
    let mut numbers = longs(published).map(|number| number as usize);
    let flows = numbers.next().unwrap_or(0);
    let wides = numbers.next().filter(|_| memory.wides.is_some()).unwrap_or(0);
    [flows, wides]
}

const TOTALS_BYTES: usize = 8;

/// Forgets what was sorted before, and keeps the memory of what is kept of packets now.
fn clear(sorted: &mut SortedPackets, columns: usize, kept: Option<&Kept>) {
    let SortedPackets { flows, packets, excess, columns: all, row_map, own } = sorted;
    *flows = 0;
    packets.clear();
    excess.clear();
    row_map.clear();
    all.resize_with(columns, SortedColumn::default);
    for SortedColumn { sorted, packed_bytes } in all {
        *packed_bytes = 0;
        sorted.values.clear();
        sorted.starts.clear();
        sorted.entries.clear();
    }
    for (digit, own) in own.iter_mut().enumerate() {
        match own {
            own if kept.is_none_or(|kept| !kept.own[digit]) => *own = OwnDigits::default(),
            OwnDigits::Bytes(list) => list.clear(),
            OwnDigits::Shorts(list) => list.clear(),
            OwnDigits::Packed(PackedDigits { values, bytes }) => {
                values.clear();
                bytes.clear();
            }
        }
    }
}

/// Makes them digits of this width, none yet.
fn plain(own: &mut OwnDigits, width: Width) {
    match (own, width) {
        (OwnDigits::Bytes(_), Width::Byte) | (OwnDigits::Shorts(_), Width::Short) => {}
        (own, Width::Byte) => *own = OwnDigits::Bytes(Vec::new()),
        (own, Width::Short) => *own = OwnDigits::Shorts(Vec::new()),
    }
}

/// Where the flows are that were sorted.
fn flows_of(memory: &Sorting, rows: &Rows) -> SortedFlows {
    SortedFlows {
        words: memory.flows.out.address(),
        room: memory.flows.len,
        count: memory.flows.ranks_len(),
        packets: memory.packets.address(),
        excess: memory.excess.address(),
        numbers: rows.numbers(),
        wides: memory.wides.as_ref().map_or(0, |wides| wides.out.address()),
    }
}

/// The bits of the keys of all chunks.
fn key_bits(chunks: &[(&Finished, &FinishedMemory)]) -> KeyBits {
    let mut bits = KeyBits { narrow: [[0; KEY_WORDS]; 2], wide: [[0; WIDE_WORDS]; 2] };
    for (chunk, _) in chunks {
        let narrow = bits.narrow.as_flattened_mut().iter_mut().zip(chunk.bits.as_flattened());
        narrow.for_each(|(all, chunk)| *all |= chunk);
        let wide = bits.wide[0].iter_mut().zip(chunk.wide_bits[0]);
        wide.for_each(|(all, chunk)| *all |= chunk);
    }
    // Some flows may have no wide part.
    bits.wide[1] = [u64::MAX; WIDE_WORDS];
    bits
}

/// The bits that are set in some key, and not in all.
fn differing<const N: usize>(bits: impl Iterator<Item = [[u64; N]; 2]>) -> [u64; N] {
    let mut all = [[0; N]; 2];
    for chunk in bits {
        for (all, chunk) in all.iter_mut().flatten().zip(chunk.iter().flatten()) {
            *all |= chunk;
        }
    }
    std::array::from_fn(|word| all[0][word] & all[1][word])
}

fn reserve(sorted: &mut SortedPackets, part: Part, bytes: usize) {
    match part {
        Part::Packets => sorted.packets.reserve_exact(bytes / 4),
        Part::Excess => sorted.excess.reserve_exact(bytes / 8),
        Part::Values(at) => sorted.columns[at].sorted.values.reserve(bytes / 8),
        Part::Starts(at) => sorted.columns[at].sorted.starts.reserve(bytes / 4 + 1),
        Part::Entries(at) => sorted.columns[at].sorted.entries.reserve(bytes / 4),
        Part::RowMap => sorted.row_map.reserve_exact(bytes),
        Part::Own(digit) | Part::Packed(digit) => match &mut sorted.own[digit] {
            OwnDigits::Bytes(own) => own.reserve_exact(bytes),
            OwnDigits::Shorts(own) => own.reserve_exact(bytes / 2),
            OwnDigits::Packed(packed) => packed.bytes.reserve_exact(bytes),
        },
        Part::Digits(_) => {}
    }
}

fn append(sorted: &mut SortedPackets, part: Part, bytes: &[u8]) {
    let words = || bytes.as_chunks::<8>().0.iter().map(|&word| u64::from_le_bytes(word));
    match part {
        Part::Packets => sorted.packets.extend(longs(bytes)),
        Part::Excess => sorted.excess.extend(words()),
        Part::Values(at) => sorted.columns[at].sorted.values.extend(words().map(u128::from)),
        Part::Starts(at) => sorted.columns[at].sorted.starts.extend(longs(bytes)),
        Part::Entries(at) => sorted.columns[at].sorted.entries.extend(longs(bytes)),
        Part::RowMap => sorted.row_map.extend_from_slice(bytes),
        Part::Own(digit) | Part::Packed(digit) => match &mut sorted.own[digit] {
            OwnDigits::Bytes(own) => own.extend_from_slice(bytes),
            OwnDigits::Shorts(own) => {
                let shorts = bytes.as_chunks::<2>().0.iter();
                own.extend(shorts.map(|&short| u16::from_le_bytes(short)));
            }
            OwnDigits::Packed(packed) => packed.bytes.extend_from_slice(bytes),
        },
        Part::Digits(digit) => {
            if let OwnDigits::Packed(packed) = &mut sorted.own[digit] {
                let shorts = bytes.as_chunks::<2>().0.iter();
                packed.values.extend(shorts.map(|&short| u16::from_le_bytes(short)));
            }
        }
    }
}
