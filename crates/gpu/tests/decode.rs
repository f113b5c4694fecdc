//! Frames decoded on the device are to the index what the CPU's decoder makes of them.
//!
//! Runs on the kernel compiled for this machine's CPU, or with `TAPDEX_DEVICE=cuda` on a GPU. There
//! `TAPDEX_FRAMES` says how many frames `frames_at_random` compares: 50 million take about a minute
//! on 16 cores. With `TAPDEX_TRACES`, a folder of real captures, their frames are compared, too.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]
#![allow(clippy::cast_possible_truncation, reason = "numbers that fit, or bits of random ones")]
#![allow(clippy::big_endian_bytes, reason = "network headers are big-endian")]

#[path = "../../engine/tests/decode/frames.rs"]
#[allow(dead_code, reason = "filters ask for some of it")]
mod frames;

use std::num::NonZero;
use std::path::PathBuf;
use std::sync::Arc;

use frames::{eth, extension, fragment6, gre, gtp, ip4, ip4_with, ip6, join, tag, vxlan};
use tapdex_bitmap::sample::Random;
use tapdex_engine::archive::device::{
    BATCH_FRAMES, FRAME_BYTES, Frames, HostMemory, Kept, OWN_DIGITS, PacketKey,
};
use tapdex_engine::capture;
use tapdex_engine::fields::{FIELDS, FieldSet, Packet};
use tapdex_engine::packet::{Headers, LinkType, Tunnel, decode};
use tapdex_engine::testing::mutate::mutated;
use tapdex_engine::traffic::{Profile, Traffic};
use tapdex_gpu::decode::FrameDecoder;
use tapdex_gpu::device::Device;
use tapdex_gpu::testing::{is_large, on_gpu};

/// Links with a name, and one without.
const LINKS: [LinkType; 9] = [
    LinkType::ETHERNET,
    LinkType::LINUX_SLL,
    LinkType::LINUX_SLL2,
    LinkType::RAW,
    LinkType::LOOP,
    LinkType::IPV4,
    LinkType::IPV6,
    LinkType::NULL,
    LinkType(147),
];

/// Lengths on the wire at which classes begin and end.
const WIRE_LENS: [u32; 14] =
    [0, 1, 15, 16, 19, 20, 60, 1279, 1280, 65_535, 65_536, (1 << 31) - 1, 1 << 31, u32::MAX];

/// Frames of a round; on the host, two batches that are not full.
const ROUND: usize = 6_000;

fn device(seed: u64) -> Arc<dyn Device> {
    tapdex_gpu::testing::device(seed).unwrap()
}

fn below(random: &mut Random, end: usize) -> usize {
    random.below(end as u32) as usize
}

fn of<T: Copy>(random: &mut Random, list: &[T]) -> T {
    list[below(random, list.len())]
}

/// What was compared.
#[derive(Debug, Clone, Copy, Default)]
struct Tally {
    compared: u64,
    refused: u64,
    /// Refused, although two fillings of the bytes that the device does not have changed nothing.
    /// The decoder may have looked at them nevertheless.
    doubtful: u64,
    /// Of what was decoded: odd frames, those with a wide part, and how many there are of each kind
    /// of tunnel, of tags and labels, and of fragments.
    odd: u64,
    wide: u64,
    tunnels: [u64; 5],
    encaps: [u64; 6],
    fragments: [u64; 3],
    /// With IPv4 or IPv6 in a tunnel.
    inners: [u64; 2],
}

impl Tally {
    fn add(&mut self, other: &Self) {
        let pairs = |to: &mut [u64], from: &[u64]| {
            to.iter_mut().zip(from).for_each(|(to, from)| *to += from);
        };
        self.compared += other.compared;
        self.refused += other.refused;
        self.doubtful += other.doubtful;
        self.odd += other.odd;
        self.wide += other.wide;
        pairs(&mut self.tunnels, &other.tunnels);
        pairs(&mut self.encaps, &other.encaps);
        pairs(&mut self.fragments, &other.fragments);
        pairs(&mut self.inners, &other.inners);
    }

    /// A frame that was decoded.
    fn count(&mut self, headers: &Headers) {
        self.odd += u64::from(headers.odd);
        self.wide += u64::from(headers.wide);
        self.tunnels[headers.tunnel as usize] += 1;
        self.encaps[headers.encap as usize] += 1;
        self.fragments[headers.fragment as usize] += 1;
        self.inners[0] += u64::from(headers.inner.eth_type == 0x800);
        self.inners[1] += u64::from(headers.inner.eth_type == 0x86DD);
    }

    /// Every kind of frame was decoded, and most were not refused.
    fn is_fair(&self) {
        let kinds = [&[self.odd, self.wide][..], &self.tunnels, &self.encaps, &self.fragments];
        let least = kinds.into_iter().chain([&self.inners[..]]).flatten().min().unwrap();
        assert!(least * 1_000 >= self.compared, "a kind of frame is rare: {self:?}");
        assert!(self.refused * 4 < self.compared, "many were refused: {self:?}");
    }

    fn print(&self, what: &str) {
        let Self { compared, refused, doubtful, .. } = self;
        println!(
            "{what}: {compared} frames compared, {refused} of them refused ({doubtful} in doubt)"
        );
    }
}

/// A frame that is compared.
#[derive(Debug)]
struct Sample {
    link: LinkType,
    interface: u16,
    wire_len: u32,
    data: Vec<u8>,
}

impl Sample {
    fn headers(&self, captured: usize) -> Headers {
        let mut headers = Headers::default();
        decode(self.link, false, &self.data[..captured], &mut headers);
        headers
    }

    fn key(&self, headers: &Headers, kept: &Kept) -> PacketKey {
        let Self { link, interface, wire_len, .. } = *self;
        let packet = Packet { headers, link, interface: interface.into(), wire_len };
        let mut key = PacketKey::of(&packet, kept);
        key.own.iter_mut().zip(kept.own).filter(|(_, kept)| !kept).for_each(|(own, _)| *own = 0);
        key
    }

    /// Whether the first bytes alone give something else than all of them.
    fn needs_more(&self) -> bool {
        let first = self.headers(FRAME_BYTES);
        let mut other = Self { data: self.data.clone(), ..*self };
        other.data[FRAME_BYTES..].iter_mut().for_each(|byte| *byte = !*byte);
        let whole = self.data.len();
        first != self.headers(whole) || first != other.headers(whole)
    }
}

/// Collects frames, and compares them in rounds.
struct Checker {
    decoder: FrameDecoder,
    random: Random,
    round: usize,
    memory: Vec<Box<dyn HostMemory>>,
    samples: Vec<Sample>,
    rounds: u64,
    tally: Tally,
}

impl Checker {
    fn new(device: Arc<dyn Device>, seed: u64) -> Self {
        let mut random = Random::new(seed);
        // What lies between frames is not 0.
        let memory = (0..2)
            .map(|_| {
                let bytes = (0..Frames::BYTES).map(|_| random.number() as u8).collect::<Vec<u8>>();
                Box::new(bytes) as Box<dyn HostMemory>
            })
            .collect();
        Self {
            decoder: FrameDecoder::new(device),
            random,
            round: if is_large() { BATCH_FRAMES } else { ROUND },
            memory,
            samples: Vec::new(),
            rounds: seed,
            tally: Tally::default(),
        }
    }

    /// Compares a frame, now or later. `None` is some length on the wire.
    fn push(&mut self, link: LinkType, wire_len: Option<u32>, data: Vec<u8>) {
        let wire_len = match wire_len {
            Some(len) => len,
            None if self.random.below(4) == 0 => self.random.number() as u32,
            None => of(&mut self.random, &WIRE_LENS),
        };
        let interface = of(&mut self.random, &[0, 0, 1, 7, 0x8000, u16::MAX]);
        self.samples.push(Sample { link, interface, wire_len, data });
        if self.samples.len() == self.round {
            self.check();
        }
    }

    /// All combinations of digits in turn, with some bits of keys.
    fn kept(&mut self) -> Kept {
        let own: [bool; OWN_DIGITS] = std::array::from_fn(|digit| self.rounds >> digit & 1 == 0);
        let some = |random: &mut Random| FIELDS.iter().filter(|_| random.below(4) > 0).count();
        let fields: FieldSet = match self.rounds % 4 {
            0 => FieldSet::ALL,
            1 => FieldSet::FIRST,
            2 => {
                let first = some(&mut self.random);
                FieldSet::ALL.iter().skip(first).collect()
            }
            _ => {
                let random = &mut self.random;
                FieldSet::ALL.iter().filter(|_| random.below(2) == 0).collect()
            }
        };
        let mask = match self.rounds % 8 {
            7 => std::array::from_fn(|_| self.random.number()),
            _ => Kept::of(fields).mask,
        };
        Kept { mask, own }
    }

    /// Compares the frames that were collected.
    fn check(&mut self) {
        let kept = self.kept();
        self.rounds += 1;
        // The second batch begins at a record that is no round number.
        let first = if self.samples.len() > BATCH_FRAMES / 2 {
            self.samples.len()
        } else {
            below(&mut self.random, self.samples.len() + 1)
        };
        let mut batches: Vec<Frames> = self.memory.drain(..).map(Frames::new).collect();
        for (at, sample) in self.samples.iter().enumerate() {
            let source = (sample.link.0, sample.interface);
            batches[usize::from(at >= first)].push(source, sample.wire_len, &sample.data);
        }
        let decoded = self.decoder.decode(&batches, &kept).unwrap();
        self.memory.extend(batches.into_iter().map(Frames::into_memory));

        let mut refused = decoded.refused.clone();
        refused.sort_unstable();
        let expected = decoded.keys.iter().zip(0_u32..).filter(|(key, _)| key.is_none());
        assert!(refused.iter().copied().eq(expected.map(|(_, at)| at)), "refused twice, or nobody");
        let mut wides = 0;
        for (sample, key) in self.samples.iter().zip(&decoded.keys) {
            self.tally.compared += 1;
            let Some(key) = key else {
                self.tally.refused += 1;
                assert!(
                    sample.link == LinkType::NULL || sample.data.len() > FRAME_BYTES,
                    "refused: {sample:02x?}"
                );
                let needed = sample.link == LinkType::NULL || sample.needs_more();
                self.tally.doubtful += u64::from(!needed);
                continue;
            };
            assert!(sample.link != LinkType::NULL, "not refused: {sample:02x?}");
            let headers = sample.headers(sample.data.len());
            let expected = sample.key(&headers, &kept);
            assert!(
                *key == expected,
                "{sample:02x?}\n{headers:x?}\n{kept:x?}\nexpected {expected:x?}\nfound    {key:x?}"
            );
            self.tally.count(&headers);
            wides += u32::from(expected.wide.iter().any(|&word| word != 0));
        }
        assert_eq!(decoded.wides, wides, "places of wide parts");
        self.samples.clear();
    }

    fn finish(mut self, what: &str) -> Tally {
        self.check();
        self.tally.print(what);
        self.tally
    }
}

/// A frame of each link with a payload: those that are made by hand.
fn frames_of(link: LinkType) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    let framed = if link.name().is_some() { link } else { LinkType::ETHERNET };
    for (_, eth_type, payload, _) in frames::payloads() {
        all.push(frames::framed(framed, false, eth_type, &payload).unwrap());
        if link == LinkType::ETHERNET {
            all.push(eth(0x8100, &tag(5, eth_type, &payload)));
            all.push(eth(0x9100, &tag(0xFFE, 0x88A8, &tag(0, eth_type, &payload))));
        }
    }
    if link == LinkType::ETHERNET {
        all.extend(frames::ethernet_only().into_iter().map(|(_, frame, _)| frame));
    }
    if link == LinkType::LINUX_SLL {
        let snap = [0xAA, 0xAA, 3, 0, 0, 0, 0x80, 0xF3];
        all.push(frames::framed(link, false, 4, &snap).unwrap());
    }
    all
}

/// Every tunnel, with options and without, in every IP packet, with every packet inside.
fn tunnels() -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    for (_, eth_type, packet, _) in frames::payloads() {
        let frame = eth(eth_type, &packet);
        let tagged = eth(0x8100, &tag(1, 0x88A8, &tag(2, eth_type, &packet)));
        let many = eth(0x8100, &tag(1, 0x88A8, &tag(2, 0x8100, &tag(3, eth_type, &packet))));
        let next = [1, 0, 0, 0x85, 1, 9, 9, 0xC0, 2, 1, 1, 1, 1, 1, 1, 0];
        let without_id = join(&[&vxlan(7, &frame)[..8], &[0; 8], &frame]);
        let payloads = [
            (if eth_type == 0x800 { 4 } else { 41 }, packet.clone()),
            (47, gre(0, eth_type, &[], &packet)),
            (47, gre(0x2000, eth_type, &[0xFFFF_FFFE], &packet)),
            (47, gre(0xB000, eth_type, &[1, 2, 3], &packet)),
            (47, gre(0x9000, 0x6558, &[1, 2], &tagged)),
            (47, gre(0x2001, eth_type, &[7], &packet)),
            (47, gre(0x6000, eth_type, &[7], &packet)),
            (17, vxlan(0xAB_CDEF, &frame)),
            (17, vxlan(1, &tagged)),
            (17, vxlan(0, &many)),
            (17, without_id),
            (17, gtp(0, 5, &[], &packet)),
            (17, gtp(2, 6, &[0, 1, 0, 0], &packet)),
            (17, gtp(4, 7, &next, &packet)),
            (17, gtp(4, 8, &[0, 0, 0, 1, 0, 1, 1, 0], &packet)),
            (17, gtp(0x20, 9, &[], &packet)),
        ];
        for (proto, payload) in payloads {
            all.push(eth(0x800, &ip4(proto, &payload)));
            all.push(eth(0x800, &ip4_with(proto, 10, 0x2000, &payload)));
            all.push(eth(0x86DD, &ip6(proto, &payload)));
            let far = ip6(0, &extension(44, &fragment6(60, 1, &extension(proto, &payload))));
            all.push(eth(0x8100, &tag(9, 0x86DD, &far)));
        }
    }
    all
}

/// Frames of traffic, cut to some length.
fn traffic(packets: u64, seed: u64, snap_len: u32) -> Vec<(u32, Vec<u8>)> {
    let (ipv6_share, vlan_share, tunnel_share, other_share) = (0.35, 0.4, 0.4, 0.2);
    let profile = Profile {
        seed,
        packets,
        snap_len,
        ipv6_share,
        vlan_share,
        tunnel_share,
        other_share,
        ..Profile::default()
    };
    let (mut traffic, mut all) = (Traffic::new(&profile), Vec::new());
    while let Some(packet) = traffic.next() {
        all.push((packet.wire_len, packet.data.to_vec()));
    }
    all
}

#[test]
fn made_up_traffic() {
    let mut checker = Checker::new(device(1), 1);
    let packets = if is_large() { 500_000 } else { 9_000 };
    for (seed, snap_len) in (1..).zip([65_535, 160, 128, 96, 60]) {
        for (wire_len, data) in traffic(packets, seed, snap_len) {
            checker.push(LinkType::ETHERNET, Some(wire_len), data);
        }
    }
    let tally = checker.finish("traffic");
    assert_eq!(tally.compared, 5 * packets);
    assert!(tally.refused * 10 < tally.compared, "{tally:?}");
    assert!(tally.tunnels.iter().all(|&one| one * 100 > tally.compared), "{tally:?}");
}

#[test]
fn real_captures() {
    let Some(folder) = std::env::var_os("TAPDEX_TRACES") else { return };
    let mut checker = Checker::new(device(7), 7);
    let (mut folders, mut captures) = (vec![PathBuf::from(folder)], 0);
    while let Some(folder) = folders.pop() {
        for entry in folder.read_dir().unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let Ok(mut reader) = capture::open(&path) else { continue };
            captures += 1;
            while let Ok(Some(record)) = reader.next() {
                checker.push(record.link, Some(record.wire_len), record.data.to_vec());
            }
        }
    }
    let tally = checker.finish("real captures");
    println!("{captures} captures: {tally:?}");
    assert!(tally.compared > 0, "no capture");
}

#[test]
fn hand_made_frames_at_every_length() {
    let mut checker = Checker::new(device(2), 2);
    for link in LINKS {
        for frame in frames_of(link) {
            // With padding, up to where the device does not see it.
            let padded = join(&[&frame, &[0x5A; 2 * FRAME_BYTES]]);
            let around = FRAME_BYTES - 2..FRAME_BYTES + 3;
            for len in (0..=frame.len()).chain(around).chain([padded.len()]) {
                checker.push(link, None, padded[..len].to_vec());
            }
        }
    }
    checker.finish("at every length").is_fair();
}

#[test]
fn tunnels_at_many_lengths() {
    let mut checker = Checker::new(device(3), 3);
    let mut random = Random::new(3);
    for frame in tunnels() {
        let padded = join(&[&frame, &[0x45; FRAME_BYTES]]);
        if is_large() {
            (0..=padded.len()).for_each(|len| {
                checker.push(LinkType::ETHERNET, None, padded[..len].to_vec());
            });
        }
        for _ in 0..8 {
            let len = match random.below(4) {
                0 => padded.len() - below(&mut random, FRAME_BYTES + 1),
                1 => FRAME_BYTES - 8 + below(&mut random, 16),
                _ => 34 + below(&mut random, frame.len() - 33),
            };
            checker.push(LinkType::ETHERNET, None, padded[..len.min(padded.len())].to_vec());
        }
        checker.push(LinkType::ETHERNET, None, frame);
    }
    let tally = checker.finish("tunnels");
    assert!(tally.tunnels[1..].iter().all(|&one| one * 50 > tally.compared), "{tally:?}");
    assert!(tally.inners.iter().all(|&one| one * 50 > tally.compared), "{tally:?}");
}

#[test]
fn every_link_type() {
    let mut checker = Checker::new(device(4), 4);
    let frame = eth(0x800, &ip4(6, &frames::tcp(2)));
    for link in 0..=u16::MAX {
        let has_name = LinkType(link).name().is_some();
        if has_name || link < 512 || link % 31 == 0 || is_large() {
            checker.push(LinkType(link), None, frame.clone());
            checker.push(LinkType(link), None, frame[14..].to_vec());
            checker.push(LinkType(link), None, Vec::new());
        }
    }
    let tally = checker.finish("links");
    assert_eq!(tally.refused, 3, "only one link is refused");
}

#[test]
fn every_type_protocol_and_length() {
    let mut checker = Checker::new(device(8), 8);
    let packet = ip4(17, &frames::dns());
    for eth_type in 0..=u16::MAX {
        checker.push(LinkType::ETHERNET, None, eth(eth_type, &packet));
    }
    let random = &mut Random::new(8);
    for eth_type in (0..=u16::MAX).step_by(7).chain([0x8100, 0x88A8, 0x9100, 0x8847, 1500]) {
        let cooked = |link| frames::framed(link, false, eth_type, &packet).unwrap();
        checker.push(LinkType::LINUX_SLL, None, cooked(LinkType::LINUX_SLL));
        checker.push(LinkType::LINUX_SLL2, None, cooked(LinkType::LINUX_SLL2));
        checker.push(LinkType::ETHERNET, None, eth(0x9100, &tag(4095, eth_type, &packet)));
        let bridged = ip4(47, &gre(0, 0x6558, &[], &eth(eth_type, &packet)));
        checker.push(LinkType::IPV4, None, bridged);
    }
    for proto in 0..=255 {
        let payloads = [
            extension(17, &frames::dns()),
            extension(6, &frames::tcp(8)),
            frames::tcp(1),
            vec![proto, 1, 0, 1],
            join(&[&[proto], &[0x60; 50]]),
            (0..40).map(|_| random.number() as u8).collect(),
        ];
        for payload in payloads {
            let inside = ip6(proto, &payload);
            checker.push(LinkType::IPV4, None, ip4(proto, &payload));
            checker.push(LinkType::IPV4, None, ip4_with(proto, 1, 0x2000, &payload));
            checker.push(LinkType::IPV6, None, ip6(44, &fragment6(proto, 0, &payload)));
            checker.push(LinkType::IPV4, None, ip4(41, &inside));
            checker.push(LinkType::IPV4, None, ip4(4, &ip4(proto, &payload)));
            checker.push(LinkType::IPV6, None, inside);
        }
    }
    for family in 0..40_u32 {
        let frame = join(&[&family.to_be_bytes(), &packet]);
        checker.push(LinkType::LOOP, None, frame);
    }
    for bit in 0..32 {
        for len in [0_u32, 1, 2, 3].map(|quarter| (1 << bit) + (quarter << bit >> 2)) {
            for len in [len.wrapping_sub(1), len, len.saturating_add(1)] {
                checker.push(LinkType::RAW, Some(len), packet.clone());
            }
        }
    }
    let tally = checker.finish("types and protocols");
    assert!(tally.refused == 0 && tally.odd * 50 < tally.compared, "{tally:?}");
}

#[test]
fn few_frames_and_none() {
    let mut decoder = FrameDecoder::new(device(5));
    let kept = Kept::of(FieldSet::ALL);
    let none = || Frames::new(Box::new(vec![0xFF; Frames::BYTES]));
    assert_eq!(decoder.decode(&[], &kept).unwrap().keys, []);
    assert_eq!(decoder.decode(&[none()], &kept).unwrap().keys, []);
    let mut checker = Checker::new(device(5), 5);
    for count in 0..70 {
        for _ in 0..count {
            checker.push(LinkType::ETHERNET, None, eth(0x86DD, &ip6(6, &frames::tcp(1))));
        }
        checker.check();
    }
    let tally = checker.finish("few frames");
    assert_eq!((tally.compared, tally.refused), (69 * 35, 0));
}

/// What frames at random are made from.
struct Pool {
    made: Vec<(LinkType, Vec<u8>)>,
}

impl Pool {
    fn new() -> Self {
        let by_hand = LINKS.into_iter().flat_map(|link| {
            // Ethernet as often as all others together.
            let times = if link == LinkType::ETHERNET { 3 } else { 1 };
            let frames = (0..times).flat_map(move |_| frames_of(link));
            frames.map(move |frame| (link, frame))
        });
        let tunnels = tunnels().into_iter().step_by(3).map(|frame| (LinkType::ETHERNET, frame));
        let traffic = traffic(700, 9, 300).into_iter().map(|(_, data)| (LinkType::ETHERNET, data));
        Self { made: by_hand.chain(tunnels).chain(traffic).collect() }
    }

    /// A frame with something put in, exchanged, flipped, cut off or added.
    fn frame(&self, random: &mut Random) -> (LinkType, Vec<u8>) {
        const TELLING: [u8; 28] = [
            0, 1, 2, 4, 6, 8, 17, 41, 43, 44, 47, 51, 58, 60, 0x30, 0x45, 0x46, 0x60, 0x65, 0x80,
            0x81, 0x86, 0x88, 0xDD, 132, 135, 139, 255,
        ];
        let &(mut link, ref frame) = &self.made[below(random, self.made.len())];
        let mut frame = match random.below(4) {
            0 => frame.clone(),
            _ => mutated(link, frame, random).1,
        };
        if random.below(4) == 0 {
            // Bytes behind a start that leads somewhere.
            let keep = below(random, 60);
            let len = keep + below(random, 120);
            frame.truncate(keep);
            while frame.len() < len {
                let byte = random.number() as u8;
                let telling = of(random, &TELLING);
                frame.push(if random.below(2) == 0 { byte } else { telling });
            }
        }
        for _ in 0..of(random, &[0, 0, 1, 2, 3]) {
            let at = below(random, frame.len().clamp(1, 150));
            let byte = random.number() as u8;
            let byte = if random.below(3) == 0 { byte } else { of(random, &TELLING) };
            if let Some(target) = frame.get_mut(at) {
                *target = byte;
            }
        }
        match random.below(12) {
            0 => frame.truncate(below(random, frame.len() + 1)),
            1 => frame.resize(FRAME_BYTES - 6 + below(random, 12), random.number() as u8),
            2 => frame.resize(frame.len() + below(random, 100), random.number() as u8),
            _ => {}
        }
        if random.below(30) == 0 {
            link = of(random, &LINKS);
        }
        (link, frame)
    }
}

#[test]
fn frames_at_random() {
    let wanted = std::env::var("TAPDEX_FRAMES").ok().map(|text| text.trim().parse().unwrap());
    let usual = if is_large() { 2_000_000 } else { 500_000 };
    // Not under a sanitizer.
    let count: u64 = wanted.filter(|_| is_large() || !on_gpu()).unwrap_or(usual);
    let threads = match on_gpu() {
        true => std::thread::available_parallelism().map_or(1, NonZero::get) as u64,
        false => 2,
    };
    let (pool, mut tally) = (Pool::new(), Tally::default());
    let device = on_gpu().then(|| device(6));
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|thread| {
                let (pool, device) = (&pool, device.clone());
                scope.spawn(move || {
                    let device = device.unwrap_or_else(|| self::device(60 + thread));
                    let mut checker = Checker::new(device, 600 + thread);
                    let mut random = Random::new(6_000 + thread);
                    for _ in (thread..count).step_by(threads as usize) {
                        let (link, frame) = pool.frame(&mut random);
                        checker.push(link, None, frame);
                    }
                    checker.check();
                    checker.tally
                })
            })
            .collect();
        for worker in workers {
            tally.add(&worker.join().unwrap());
        }
    });
    tally.print("at random");
    println!("{tally:?}");
    assert_eq!(tally.compared, count);
    if count >= 20_000 {
        tally.is_fair();
    }
    assert_eq!(Tunnel::ALL.len(), tally.tunnels.len());
}
