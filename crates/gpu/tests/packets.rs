//! Packets that the device decodes, groups and sorts are those of a plain model, in full.
//!
//! Runs on the kernels compiled for this machine's CPU, or with `TAPDEX_DEVICE=cuda` on a GPU,
//! where the chunks are larger unless `TAPDEX_PARITY=small`. Which frames the device's decoder
//! refuses makes no difference.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]
#![allow(clippy::cast_possible_truncation, reason = "numbers that fit, or bits of random ones")]
#![allow(clippy::big_endian_bytes, reason = "headers are in network order")]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tapdex_bitmap::sample::Random;
use tapdex_engine::archive::device::{
    BATCH_FRAMES, CHUNK_FRAMES_MAX, ChunkFigures, DeviceChunk, FlowColumn, Frames, Kept,
    OWN_DIGITS, PacketDevice, PacketKey, SegmentDevice, SegmentFailed, SortedPackets, WIDE_WORDS,
};
use tapdex_engine::fields::{FIELDS, Field, FieldSet, Packet};
use tapdex_engine::packet::{Headers, LinkType, decode};
use tapdex_engine::testing::sorted_packets;
use tapdex_gpu::device::Device;
use tapdex_gpu::flow::SegmentIndexer;
use tapdex_gpu::host::HostDevice;
use tapdex_gpu::packets::{GpuPackets, RECORDS_MAX};
use tapdex_gpu::testing::{is_large, on_gpu};

fn packets(seed: u64) -> GpuPackets {
    GpuPackets::with_slabs(tapdex_gpu::testing::device(seed).unwrap(), 0)
}

fn below(random: &mut Random, end: usize) -> usize {
    (random.number() % end as u64) as usize
}

#[derive(Debug, Clone)]
struct Frame {
    link: LinkType,
    interface: u16,
    wire_len: u32,
    data: Vec<u8>,
}

impl Frame {
    fn key(&self, kept: &Kept) -> PacketKey {
        let mut headers = Headers::default();
        decode(self.link, false, &self.data, &mut headers);
        let Frame { link, interface, wire_len, .. } = *self;
        let interface = interface.into();
        PacketKey::of(&Packet { headers: &headers, link, interface, wire_len }, kept)
    }
}

/// A TCP or UDP header between two of a few ports.
fn transport(is_tcp: bool, [source, target]: [u16; 2]) -> Vec<u8> {
    let mut bytes = [source.to_be_bytes(), target.to_be_bytes()].concat();
    if is_tcp {
        bytes.extend([0, 0, 0, 1, 0, 0, 0, 2, 0x50, 0x10, 0x20, 0, 0, 0, 0, 0]);
    } else {
        bytes.extend([0, 20, 0, 0]);
    }
    bytes
}

/// The first frame of a flow with this number; the others differ in flags, window and length.
fn first_frame(kind: Kind, flow: u64) -> Frame {
    let mut random = Random::new(flow.wrapping_mul(0x9E37_79B9_7F4A_7C15));
    let bits = random.number();
    let [a, b] = [(bits & 0x3FF) as u16, (bits >> 10 & 0x3FF) as u16];
    let ports = [(bits >> 32) as u16, [53, 80, 443, 8080][bits as usize >> 50 & 3]];
    let ports = if bits >> 63 == 1 { [ports[1], ports[0]] } else { ports };
    let is_tcp = bits >> 60 & 1 == 0;
    let payload = transport(is_tcp, ports);
    let is_wide = match kind {
        Kind::Narrow => false,
        Kind::Wide => true,
        Kind::Mixed => bits >> 61 & 1 == 1,
        Kind::OneWide => bits >> 55 & 3 == 0,
        Kind::Noise => {
            let len = below(&mut random, 160);
            let data = (0..len).map(|_| random.number() as u8).collect();
            let link =
                [LinkType::ETHERNET, LinkType::RAW, LinkType(147)][(bits >> 50) as usize % 3];
            return Frame { link, interface: 0, wire_len: len as u32, data };
        }
    };
    let protocol = if is_tcp { 6 } else { 17 };
    let mut ip = Vec::new();
    if is_wide {
        ip.extend([0x60, 0, 0, 0, 0, payload.len() as u8, protocol, 64]);
        for host in [a, b] {
            let host = if matches!(kind, Kind::OneWide) { 7 } else { host };
            ip.extend([0x20, 1, 0x0D, 0xB8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
            ip.extend(host.to_be_bytes());
        }
    } else {
        ip.extend([0x45, 0, 0, 20 + payload.len() as u8, 0, 0, 0, 0, 64, protocol, 0, 0]);
        ip.extend([10, 0, (a >> 8) as u8, a as u8, 10, 1, (b >> 8) as u8, b as u8]);
    }
    ip.extend(payload);
    let interface = (bits >> 58 & 1) as u16;
    if bits >> 40 & 7 == 0 {
        return Frame { link: LinkType::RAW, interface, wire_len: 0, data: ip };
    }
    let mut data = vec![2, 0, 0, 0, 0, a as u8, 2, 0, 0, 0, 1, b as u8];
    if bits >> 43 & 3 == 0 {
        data.extend([0x81, 0, 0, (bits >> 45 & 7) as u8]);
    }
    data.extend(if is_wide { [0x86, 0xDD] } else { [8, 0] });
    data.extend(ip);
    Frame { link: LinkType::ETHERNET, interface, wire_len: 0, data }
}

/// What flows are made of.
#[derive(Debug, Clone, Copy)]
enum Kind {
    Narrow,
    Wide,
    Mixed,
    /// Some flows have a wide part, and it is always the same, whatever the direction.
    OneWide,
    /// Bytes that are hardly ever headers.
    Noise,
}

/// So many frames of flows with the numbers from `first` on.
fn frames(kind: Kind, len: usize, flows: usize, first: u64, seed: u64) -> Vec<Frame> {
    let mut random = Random::new(seed);
    let mut known: BTreeMap<u64, Frame> = BTreeMap::new();
    let mut of_flow = |flow| known.entry(flow).or_insert_with(|| first_frame(kind, flow)).clone();
    (0..len)
        .map(|at| {
            // Each flow once if there are enough packets, and then some more often than others.
            let flow = match at < flows {
                true => at,
                false => {
                    let end = 1 + below(&mut random, flows);
                    below(&mut random, end)
                }
            };
            let mut frame = of_flow(first + flow as u64);
            let bits = random.number();
            // The last bytes of TCP: flags and window are among them.
            let end = frame.data.len();
            if end >= 34 && bits & 1 == 1 && !matches!(kind, Kind::Noise) {
                frame.data[end - 7] = (bits >> 8) as u8 & 0x1F;
                frame.data[end - 5] = (bits >> 16) as u8;
            }
            frame.wire_len = frame.data.len() as u32 + (bits >> 20) as u32 % 1_400;
            if bits >> 40 & 7 == 0 {
                // More than is sent to the device.
                frame.data.resize(end + below(&mut random, 200), 0);
                frame.wire_len = frame.wire_len.max(frame.data.len() as u32);
            }
            frame
        })
        .collect()
}

fn all_kept() -> Kept {
    Kept::of(FIELDS.iter().fold(FieldSet::default(), |set, spec| set.with(spec.field)))
}

/// A chunk, in batches of so many frames.
fn build(
    device: &dyn PacketDevice,
    kept: &Kept,
    frames: &[Frame],
    batch: usize,
) -> Result<(Box<dyn DeviceChunk>, ChunkFigures), SegmentFailed> {
    let mut chunk = device.begin(kept)?;
    let mut room: Option<Frames> = None;
    for frame in frames {
        if room.as_ref().is_some_and(|room| room.len() == batch)
            && let Some(full) = room.take()
        {
            chunk.add(full)?;
        }
        if room.is_none() {
            room = Some(device.frames()?);
        }
        if let Some(room) = &mut room {
            assert!(!room.is_full());
            room.push((frame.link.0, frame.interface), frame.wire_len, &frame.data);
        }
    }
    if let Some(rest) = room {
        chunk.add(rest)?;
    }
    let refused = chunk.refused()?;
    assert!(refused.is_sorted_by(|a, b| a < b));
    let keys: Vec<PacketKey> =
        refused.iter().map(|&record| frames[record as usize].key(kept)).collect();
    let figures = chunk.finish(&keys)?;
    Ok((chunk, figures))
}

/// What is to be known of a chunk.
fn model_figures(kept: &Kept, frames: &[Frame]) -> ChunkFigures {
    let keys: Vec<PacketKey> = frames.iter().map(|frame| frame.key(kept)).collect();
    let mut figures = ChunkFigures::default();
    let mut flows = BTreeSet::new();
    let mut wides = BTreeSet::new();
    for key in &keys {
        flows.insert((key.narrow, key.wide));
        if key.wide != [0; WIDE_WORDS] {
            wides.insert(key.wide);
        }
        figures.bits.iter_mut().zip(key.narrow).for_each(|(bits, word)| *bits |= word);
        figures.wide_bits.iter_mut().zip(key.wide).for_each(|(bits, word)| *bits |= word);
        for digit in 0..OWN_DIGITS {
            figures.own[digit] |= kept.own[digit] && key.own[digit] != 0;
        }
        figures.odd += key.narrow[0] >> 32 & 1;
    }
    (figures.flows, figures.wide) = (flows.len() as u32, wides.len() as u32);
    figures
}

/// What a sort is to return that is asked for these columns.
fn model_columns(kept: &Kept, frames: &[Frame], columns: &[FlowColumn]) -> SortedPackets {
    let keys: Vec<PacketKey> = frames.iter().map(|frame| frame.key(kept)).collect();
    sorted_packets(&keys, kept.own, columns).unwrap()
}

/// The same, of all columns.
fn model_sorted(kept: &Kept, frames: &[Frame]) -> SortedPackets {
    model_columns(kept, frames, &FlowColumn::all())
}

fn sort(
    device: &dyn PacketDevice,
    chunks: &[&dyn DeviceChunk],
    columns: &[FlowColumn],
) -> Result<SortedPackets, SegmentFailed> {
    let mut sorted = SortedPackets::default();
    device.sort(chunks, columns, &mut sorted)?;
    Ok(sorted)
}

fn is_same(what: &str, found: &SortedPackets, expected: &SortedPackets) {
    assert!(found.flows == expected.flows, "{what}: number of flows");
    assert!(found.packets == expected.packets, "{what}: packets of flows");
    assert!(found.excess == expected.excess, "{what}: excess of flows");
    assert!(found.row_map == expected.row_map, "{what}: row map");
    assert_eq!(found.columns.len(), expected.columns.len());
    for (column, (found, expected)) in found.columns.iter().zip(&expected.columns).enumerate() {
        assert_eq!(found.packed_bytes, expected.packed_bytes, "{what}: column {column}");
        let (found, expected) = (&found.sorted, &expected.sorted);
        assert!(found.values == expected.values, "{what}: values of column {column}");
        assert!(found.starts == expected.starts, "{what}: starts of column {column}");
        assert!(found.entries == expected.entries, "{what}: entries of column {column}");
    }
    for (digit, own) in found.own.iter().enumerate() {
        assert!(*own == expected.own[digit], "{what}: digit {digit} of packets");
    }
}

/// Builds the chunks and sorts them.
fn check(
    device: &dyn PacketDevice,
    what: &str,
    kept: &Kept,
    chunks: &[Vec<Frame>],
    batch: usize,
    columns: &[FlowColumn],
) -> Result<(), SegmentFailed> {
    let mut built = Vec::new();
    for (at, frames) in chunks.iter().enumerate() {
        let (chunk, figures) = build(device, kept, frames, batch)?;
        assert_eq!(figures, model_figures(kept, frames), "{what}: chunk {at}");
        built.push(chunk);
    }
    let refs: Vec<&dyn DeviceChunk> = built.iter().map(|chunk| &**chunk).collect();
    // What was sorted before makes no difference.
    let mut sorted = model_columns(kept, &frames(Kind::Mixed, 50, 20, 0, 9), &few_columns());
    device.sort(&refs, columns, &mut sorted)?;
    is_same(what, &sorted, &model_columns(kept, &chunks.concat(), columns));
    Ok(())
}

fn sound(device: &dyn PacketDevice, what: &str, kept: &Kept, chunks: &[Vec<Frame>], batch: usize) {
    let columns = FlowColumn::all();
    check(device, what, kept, chunks, batch, &columns)
        .unwrap_or_else(|error| panic!("{what}: {error}"));
}

#[test]
fn chunks_of_every_kind() {
    let kept = all_kept();
    for seed in if on_gpu() { 1..2 } else { 1..4 } {
        let device = packets(seed);
        let go = |what: &str, chunks: &[Vec<Frame>], batch| {
            sound(&device, &format!("{what}, seed {seed}"), &kept, chunks, batch);
        };
        assert_eq!(sort(&device, &[], &[]).unwrap(), SortedPackets::default());
        go("an empty chunk", &[vec![]], 1);
        for len in [1, 31, 32, 33] {
            let chunk = frames(Kind::Mixed, len, len.div_ceil(3), 0, seed);
            go("few packets", &[chunk], 7);
        }
        for kind in [Kind::Narrow, Kind::Wide, Kind::Mixed, Kind::OneWide, Kind::Noise] {
            for flows in [1, 9, 600] {
                go(&format!("{kind:?}, {flows}"), &[frames(kind, 600, flows, 0, seed)], 250);
            }
        }
        // More than are on their way at a time.
        go("many batches", &[frames(Kind::Mixed, 600, 90, 0, seed)], 9);
        let shared = |at: u64| frames(Kind::Mixed, 150, 60, 20 * at, seed + at);
        let mut several: Vec<_> = (0..5).map(shared).collect();
        several.insert(2, vec![]);
        several.push(vec![]);
        go("shared flows", &several, 64);
        let kinds = [Kind::Narrow, Kind::OneWide, Kind::Narrow, Kind::Noise];
        let kinds: Vec<_> = kinds.map(|kind| frames(kind, 90, 30, 0, seed)).into();
        go("chunks of many kinds", &kinds, 64);
    }
}

#[test]
fn what_is_not_kept_is_not_there() {
    let device = packets(3);
    let chunks = [frames(Kind::Mixed, 200, 40, 0, 1), frames(Kind::Mixed, 100, 40, 0, 2)];
    let few = [Field::IpSrc, Field::IpDst, Field::IpProto];
    let few = few.into_iter().fold(FieldSet::default(), FieldSet::with);
    sound(&device, "addresses", &Kept::of(few), &chunks, 128);
    sound(&device, "nothing", &Kept::of(FieldSet::default()), &chunks, 128);
    let mut some = all_kept();
    for digit in 0..OWN_DIGITS {
        some.own = std::array::from_fn(|at| at == digit);
        sound(&device, &format!("digit {digit}"), &some, &chunks, 128);
    }
}

#[test]
fn whole_batches_and_more() {
    let kept = all_kept();
    let device = packets(7);
    for (len, flows) in [(BATCH_FRAMES, 3_000), (BATCH_FRAMES + 700, BATCH_FRAMES + 700)] {
        let chunk = frames(Kind::Mixed, len, flows, 0, 5);
        sound(&device, "a batch", &kept, &[chunk], BATCH_FRAMES);
    }
    let chunks =
        [frames(Kind::Narrow, BATCH_FRAMES + 1, 1, 0, 5), frames(Kind::Narrow, 3_000, 2_000, 0, 5)];
    sound(&device, "one flow", &kept, &chunks, BATCH_FRAMES);
    if is_large() {
        let many: Vec<_> =
            (0..16).map(|at| frames(Kind::Mixed, CHUNK_FRAMES_MAX, 30_000, 900 * at, at)).collect();
        sound(&device, "as much as there may be", &kept, &many, BATCH_FRAMES);
        let flood: Vec<_> = (0..4)
            .map(|at| frames(Kind::Wide, CHUNK_FRAMES_MAX, CHUNK_FRAMES_MAX, at << 18, at))
            .collect();
        sound(&device, "a flood", &kept, &flood, BATCH_FRAMES);
    }
}

#[test]
fn threads_build_and_sort_at_the_same_time() {
    let kept = all_kept();
    let device = packets(11);
    let (chunks_each, len) = if is_large() { (8, 65_536) } else { (2, 120) };
    std::thread::scope(|scope| {
        for thread in 0..4_u64 {
            let (device, kept) = (&device, &kept);
            scope.spawn(move || {
                for round in 0..3 {
                    let seed = thread << 8 | round;
                    let chunk = |at| frames(Kind::Mixed, len, len / 3, at * 7, seed + at);
                    let chunks: Vec<_> = (0..chunks_each).map(chunk).collect();
                    sound(device, &format!("thread {thread}"), kept, &chunks, 50);
                }
            });
        }
    });
    // Those of several threads make one segment.
    let chunks: Vec<_> = (0..4).map(|at| frames(Kind::Mixed, len, 50, 0, at)).collect();
    let built: Vec<_> = std::thread::scope(|scope| {
        let (device, kept) = (&device, &kept);
        let one = |chunk| scope.spawn(move || build(device, kept, chunk, 64).unwrap().0);
        let threads: Vec<_> = chunks.iter().map(|chunk| one(chunk)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let refs: Vec<&dyn DeviceChunk> = built.iter().map(|chunk| &**chunk).collect();
    let sorted = sort(&device, &refs, &FlowColumn::all()).unwrap();
    is_same("one segment of all", &sorted, &model_sorted(&kept, &chunks.concat()));
}

#[test]
fn memory_is_used_again() {
    if on_gpu() {
        return;
    }
    let host = HostDevice::new(1).unwrap();
    let device = GpuPackets::with_slabs(Arc::clone(&host) as Arc<dyn Device>, 0);
    let kept = all_kept();
    let chunks = [frames(Kind::Mixed, 300, 90, 0, 1), frames(Kind::Mixed, 300, 90, 0, 2)];
    let mut used = Vec::new();
    for round in 0..30 {
        sound(&device, &format!("round {round}"), &kept, &chunks, 50);
        used.push((host.memory_used(), host.memory_pinned()));
    }
    // After some rounds there are as many places and rooms as there will ever be.
    assert_eq!(used[20], used[29]);
    device.release();
    assert!(host.memory_used() < used[29].0);
    sound(&device, "afterwards", &kept, &chunks, 50);
    drop(device);
    assert_eq!((host.memory_used(), host.memory_pinned()), (0, 0));
}

fn is_device_failure<T>(result: Result<T, SegmentFailed>) -> bool {
    matches!(result, Err(SegmentFailed::Device(why)) if !why.to_string().is_empty())
}

#[test]
fn what_does_not_fit_together_is_refused() {
    let kept = all_kept();
    let (device, other) = (packets(1), packets(2));
    let few = frames(Kind::Mixed, 40, 10, 0, 1);
    let (good, _) = build(&device, &kept, &few, 64).unwrap();
    let (strange, _) = build(&other, &kept, &few, 64).unwrap();
    assert!(
        is_device_failure(sort(&device, &[&*good, &*strange], &FlowColumn::all())),
        "of another device"
    );
    let mut open = device.begin(&kept).unwrap();
    assert!(
        is_device_failure(sort(&device, &[&*good, &*open], &FlowColumn::all())),
        "not finished"
    );
    let mut some = kept;
    some.own[0] = false;
    let (less, _) = build(&device, &some, &few, 64).unwrap();
    assert!(
        is_device_failure(sort(&device, &[&*good, &*less], &FlowColumn::all())),
        "other fields"
    );

    // More keys than frames were refused.
    let mut room = device.frames().unwrap();
    for frame in &few {
        room.push((frame.link.0, frame.interface), frame.wire_len, &frame.data);
    }
    open.add(room).unwrap();
    let refused = open.refused().unwrap();
    assert_eq!(open.refused().unwrap(), refused);
    let keys = vec![PacketKey::default(); refused.len() + 1];
    assert!(is_device_failure(open.finish(&keys)));
    assert!(is_device_failure(open.refused()));
    assert!(is_device_failure(open.add(device.frames().unwrap())));
    assert!(is_device_failure(sort(&device, &[&*open], &FlowColumn::all())));

    // Longer than a segment.
    let (long, _) = build(&device, &kept, &frames(Kind::Narrow, 9_000, 3, 0, 1), 9_000).unwrap();
    let many = vec![&*long; RECORDS_MAX / 9_000 + 1];
    assert!(is_device_failure(sort(&device, &many, &FlowColumn::all())));

    // Longer than a chunk.
    let mut open = device.begin(&kept).unwrap();
    for first in (0..CHUNK_FRAMES_MAX + 1).step_by(BATCH_FRAMES) {
        let mut room = device.frames().unwrap();
        for _ in 0..BATCH_FRAMES {
            room.push((1, 0), 60, &[]);
        }
        let added = open.add(room);
        assert_eq!(added.is_ok(), first < CHUNK_FRAMES_MAX, "{first}");
    }

    let sorted = sort(&device, &[&*good], &FlowColumn::all()).unwrap();
    is_same("the good one", &sorted, &model_sorted(&kept, &few));
    let sorted = sort(&device, &[&*good, &*good], &FlowColumn::all()).unwrap();
    is_same("twice", &sorted, &model_sorted(&kept, &[few.clone(), few].concat()));
}

#[test]
fn frames_may_come_in_any_memory() {
    let kept = all_kept();
    let device = packets(4);
    let few = frames(Kind::Mixed, 50, 20, 0, 3);
    let mut chunk = device.begin(&kept).unwrap();
    for frames in few.chunks(20) {
        let mut room = Frames::new(Box::new(vec![0; Frames::BYTES]));
        for frame in frames {
            room.push((frame.link.0, frame.interface), frame.wire_len, &frame.data);
        }
        chunk.add(room).unwrap();
    }
    let keys: Vec<_> =
        chunk.refused().unwrap().iter().map(|&at| few[at as usize].key(&kept)).collect();
    assert_eq!(chunk.finish(&keys).unwrap(), model_figures(&kept, &few));
    let sorted = sort(&device, &[&*chunk], &FlowColumn::all()).unwrap();
    is_same("vectors", &sorted, &model_sorted(&kept, &few));
}

#[test]
fn an_indexer_takes_packets() {
    let indexer = SegmentIndexer::new(tapdex_gpu::testing::device(1).unwrap());
    let device = indexer.packets().unwrap();
    let chunks = [frames(Kind::Mixed, 80, 30, 0, 1)];
    sound(&*device, "of an indexer", &all_kept(), &chunks, 64);
}

/// A column of each kind: of one end and of both, of narrow and of wide keys.
fn few_columns() -> Vec<FlowColumn> {
    let mut kinds = BTreeSet::new();
    let mut columns = FlowColumn::all();
    columns.retain(|FlowColumn { first, second }| {
        kinds.insert((first.is_wide, first.bits > 64, second.is_some()))
    });
    columns
}

/// Two chunks, the second one in several batches.
fn small_segment() -> [Vec<Frame>; 2] {
    [frames(Kind::Mixed, 40, 12, 0, 1), frames(Kind::Mixed, 70, 30, 6, 2)]
}

#[test]
fn a_device_may_be_lost_at_any_call() {
    if on_gpu() {
        return;
    }
    let kept = all_kept();
    let segment = small_segment();
    let run = |host: &Arc<HostDevice>| {
        let device = GpuPackets::with_slabs(Arc::clone(host) as Arc<dyn Device>, 0);
        let result = check(&device, "lost", &kept, &segment, 30, &few_columns());
        if result.is_err() {
            // It is not asked again.
            let calls = host.calls();
            assert!(is_device_failure(device.frames()));
            assert!(is_device_failure(device.begin(&kept)));
            assert!(is_device_failure(sort(&device, &[], &[])));
            assert_eq!(host.calls(), calls);
        }
        result
    };
    let host = HostDevice::new(1).unwrap();
    run(&host).unwrap();
    let (calls, launches) = (host.calls(), host.launches());
    println!("{calls} calls, {launches} launches");
    assert!(calls > 100 && launches > 40);
    for call in 1..=calls {
        let host = HostDevice::new(call).unwrap();
        host.lose_at_call(call);
        assert!(is_device_failure(run(&host)), "call {call}");
        assert_eq!((host.memory_used(), host.memory_pinned()), (0, 0), "call {call}");
    }
    for launch in (1..=launches).step_by(7) {
        let host = HostDevice::new(launch).unwrap();
        host.lose_at(launch);
        assert!(is_device_failure(run(&host)), "launch {launch}");
        assert_eq!((host.memory_used(), host.memory_pinned()), (0, 0), "launch {launch}");
    }
}

#[test]
fn memory_may_run_out_at_any_allocation() {
    if on_gpu() {
        return;
    }
    assert!(run_out_of_memory(0) > 40);
    // Small memory is cut from slabs then; large memory is still allocated by itself.
    assert!(run_out_of_memory(1 << 14) < 60);
}

/// Has memory run out at any allocation; returns how many there are.
fn run_out_of_memory(slab_bytes: usize) -> u64 {
    let kept = all_kept();
    let segment = small_segment();
    let host = HostDevice::new(1).unwrap();
    let device = GpuPackets::with_slabs(Arc::clone(&host) as Arc<dyn Device>, slab_bytes);
    let columns = few_columns();
    let sound = |device: &GpuPackets, what: &str| {
        let result = check(device, what, &kept, &segment, 30, &columns);
        result.unwrap_or_else(|error| panic!("{what}: {error}"));
    };
    sound(&device, "enough");
    let allocations = host.allocations();
    println!("{allocations} allocations with slabs of {slab_bytes} bytes");
    for at in 1..=allocations {
        let host = HostDevice::new(at).unwrap();
        let device = GpuPackets::with_slabs(Arc::clone(&host) as Arc<dyn Device>, slab_bytes);
        // Once: what is idle is freed, and the second try succeeds.
        host.fail_allocations(at, 1);
        sound(&device, &format!("allocation {at}, once"));
        device.release();
        // From some allocation on: an error, and then all is well again.
        host.fail_allocations(at.div_ceil(2), u64::MAX);
        let result = check(&device, "out of memory", &kept, &segment, 30, &columns);
        let is_enough = result.is_ok();
        assert!(is_enough || is_device_failure(result), "allocation {at}");
        assert!(!is_enough || at > allocations / 2, "allocation {at} of {allocations}");
        host.fail_allocations(0, 0);
        sound(&device, &format!("after allocation {at}"));
        drop(device);
        assert_eq!((host.memory_used(), host.memory_pinned()), (0, 0), "allocation {at}");
    }
    allocations
}
