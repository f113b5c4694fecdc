//! Synthetic traffic from a seed: frames for tests, benchmarks and demonstrations.
//!
//! ```
//! use tapdex_engine::traffic::{Profile, Traffic};
//!
//! let mut traffic = Traffic::new(&Profile { packets: 1_000, ..Profile::default() });
//! let (mut count, mut bytes) = (0, 0);
//! while let Some(packet) = traffic.next() {
//!     count += 1;
//!     bytes += packet.data.len();
//! }
//! assert_eq!(count, 1_000);
//! assert!(bytes > 60 * count);
//! ```
//!
//! # What it looks like
//!
//! - Ethernet frames without their checksum. Flows are heavy-tailed: most have a few packets, and
//!   a few have most of the packets. They are sent in bursts that mix with those of other flows.
//! - TCP connections with handshake, data, acknowledgements, and an end by FIN or RST; some that
//!   nobody answers. QUIC-like and other UDP. Servers, ports and client networks differ in
//!   popularity after Zipf's law.
//! - In between: DNS, ICMP and ICMPv6 echoes, ARP, neighbour discovery, LLDP, SCTP, and fragments
//!   of IPv4. VLAN tags (ids 10, 20 and 32), seldom two of them. IP in IP, GRE, VXLAN and GTP-U.
//! - Episodes: scans of many hosts by one, and floods of SYNs from everywhere to one.
//! - All checksums are right: IPv4, TCP, UDP, ICMP and SCTP. Only the outer UDP header of a tunnel
//!   has none, as its specifications recommend.
//! - Addresses are private (10/8, 172.16/12, 192.168/16) or set aside for benchmarks and
//!   documentation (198.18/15, 203.0.113/24, 2001:db8::/32).
//!
//! # What holds
//!
//! - The same [`Profile`] gives the same bytes and times, on every machine. A profile that differs
//!   only in the number of packets gives the same packets from the start, fewer or more of them.
//! - There is one flow (two addresses, protocol, two ports, both directions together) for about 15
//!   packets, as long as scans, floods and other packets keep near to their usual shares.
//! - Shares are met in the long run. Flows are long, so a few thousand packets may be far off.
//! - No packet costs an allocation. Memory is for the flows that are under way, and some KiB.
//!
//! Not useful for: replies that fit their requests, losses and retransmissions, anything that reads
//! more than the first packet of a payload.

mod flow;
mod frame;
mod hosts;
mod payload;
mod sizes;

use flow::{CLIENT, End, Flow, FlowKind, SERVER, Tools, Tunnel, ephemeral};
use frame::{Frame, low32};
use hosts::{Host, client, popular, server, zipf};
use payload::{Page, pages};
use sizes::Sizes;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use tapdex_bitmap::sample::Random;

/// What the traffic should look like. Shares are of all packets, from 0 to 1.
#[derive(Debug, Clone, PartialEq)]
pub struct Profile {
    /// Another seed, other packets of the same kind.
    pub seed: u64,
    /// How many packets.
    pub packets: u64,
    /// The mean length of a frame in bytes, without its checksum; `None` is a mix with a mean of
    /// 700.
    ///
    /// Up to 64, every frame is as short as its headers allow: 60 bytes for TCP over IPv4, which
    /// is 64 with the checksum that a capture does not have. Above about 1,100, handshakes and
    /// acknowledgements keep the mean below what is asked for.
    pub mean_len: Option<u32>,
    /// Frames are cut to this many bytes, as in a capture with a snapshot length.
    pub snap_len: u32,
    /// Packets with IPv6.
    pub ipv6_share: f64,
    /// Packets with a VLAN tag.
    pub vlan_share: f64,
    /// Packets in a tunnel.
    pub tunnel_share: f64,
    /// Packets of scans.
    pub scan_share: f64,
    /// Packets of floods.
    pub flood_share: f64,
    /// Packets of other kinds: DNS, ICMP, ARP, LLDP, SCTP, fragments.
    pub other_share: f64,
    /// About how many flows are active at a time. It takes 64 times as many packets until this
    /// number is reached.
    pub concurrent_flows: u32,
    /// When the first packet comes, in nanoseconds since 1970.
    pub start_ns: u64,
    /// Packets in a second, on average.
    pub rate: u64,
}

impl Default for Profile {
    fn default() -> Self {
        Self {
            seed: 1,
            packets: 1_000_000,
            mean_len: None,
            snap_len: 65_535,
            ipv6_share: 0.12,
            vlan_share: 0.08,
            tunnel_share: 0.02,
            scan_share: 0.005,
            flood_share: 0.005,
            other_share: 0.05,
            concurrent_flows: 2_000,
            // 2026-01-05 08:00 UTC, a Monday.
            start_ns: 1_767_600_000_000_000_000,
            rate: 100_000,
        }
    }
}

/// A packet, borrowed until the next one is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Packet<'a> {
    /// When it came, in nanoseconds since 1970; later than the one before.
    pub time_ns: u64,
    /// How long the frame was, without its checksum.
    pub wire_len: u32,
    /// The frame, up to the snapshot length.
    pub data: &'a [u8],
}

/// A part of 2^32.
const ONE: u64 = 1 << 32;
/// Packets for each flow.
const FLOW_PACKETS: f64 = 15.0;
/// A flow is started at least once in this many packets.
const FLOW_PACKETS_MAX: f64 = 60.0;
/// A flow takes at most one packet in this many.
const FLOW_PACE: u64 = 8;
/// The length from which a flow counts as long.
const LONG: u32 = 64;
const LONGEST: u64 = 65_536;

/// Parts of 2^32.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped before")]
fn parts(share: f64) -> u64 {
    (share.clamp(0.0, 1.0) * 4_294_967_296.0) as u64
}

fn part_of(number: u64, parts: u64) -> u64 {
    u64::try_from((u128::from(number) * u128::from(parts)) >> 32).unwrap_or(u64::MAX)
}

/// Keeps a share of the packets.
#[derive(Debug, Clone)]
struct Share {
    parts: u64,
    planned: u64,
}

impl Share {
    fn new(share: f64) -> Self {
        Self { parts: parts(share), planned: 0 }
    }

    /// Whether fewer packets than the share of `total` are planned.
    fn is_short(&self, total: u64) -> bool {
        self.planned < part_of(total, self.parts)
    }

    /// Whether a flow of `len` packets is to belong to it.
    fn take(&mut self, len: u32, total: u64, random: &mut Random) -> bool {
        let (len, due) = (u64::from(len), part_of(total, self.parts));
        let taken = if len >= LONG.into() {
            // A long flow moves the share: only when there is room for it.
            self.planned + len / 2 < due
        } else {
            let chance = if self.planned < due { self.parts * 3 / 2 } else { self.parts / 2 };
            random.number() >> 32 < chance
        };
        self.planned += if taken { len } else { 0 };
        taken
    }
}

/// Generates packets, one after the other.
///
/// Active flows are in a queue, ordered by when their next burst is due, counted in packets. A flow
/// is started whenever there are too few of them for the packets sent; how long it may be depends
/// on the load, the sum of the shares that flows claim.
#[derive(Debug)]
pub struct Traffic {
    random: Random,
    sizes: Sizes,
    frame: Frame,
    pages: Vec<Page>,
    flows: Vec<Flow>,
    free: Vec<u32>,
    queue: BinaryHeap<Reverse<(u64, u32)>>,
    /// The flow whose burst is being sent, its time, and packets left of it.
    burst: (u32, u64, u32),
    /// When the last burst was due, in packets.
    due: u64,
    load: u64,
    sent: u64,
    packets: u64,
    /// Packets of all flows begun.
    planned: u64,
    /// Flows begun, without those of scans and floods, and how many for a packet.
    begun: u64,
    begun_parts: u64,
    ipv6: Share,
    vlan: Share,
    tunnel: Share,
    scan: Share,
    flood: Share,
    other: Share,
    concurrent: u64,
    snap_len: usize,
    time_ns: u64,
    start_ns: u64,
    /// Time since the start by the rate, and between packets, in 2^-16 ns.
    elapsed: u128,
    gap: u128,
}

impl Traffic {
    /// The traffic of a profile.
    pub fn new(profile: &Profile) -> Self {
        // Scans and floods add flows of their own, so fewer ordinary flows are started.
        let episodes = (profile.scan_share + profile.flood_share).clamp(0.0, 0.9);
        let begun =
            ((1.0 / FLOW_PACKETS - episodes) / (1.0 - episodes)).max(1.0 / FLOW_PACKETS_MAX);
        let gap = (1_000_000_000_u128 << 16) / u128::from(profile.rate.max(1));
        Self {
            random: Random::new(profile.seed),
            sizes: Sizes::new(profile.mean_len),
            frame: Frame::new(),
            pages: pages(),
            flows: Vec::new(),
            free: Vec::new(),
            queue: BinaryHeap::new(),
            burst: (0, 0, 0),
            due: 0,
            load: 0,
            sent: 0,
            packets: profile.packets,
            planned: 0,
            begun: 0,
            begun_parts: parts(begun),
            ipv6: Share::new(profile.ipv6_share),
            vlan: Share::new(profile.vlan_share),
            tunnel: Share::new(profile.tunnel_share),
            scan: Share::new(profile.scan_share),
            flood: Share::new(profile.flood_share),
            other: Share::new(profile.other_share),
            concurrent: profile.concurrent_flows.max(1).into(),
            snap_len: profile.snap_len as usize,
            time_ns: profile.start_ns,
            start_ns: profile.start_ns,
            elapsed: 0,
            gap,
        }
    }

    /// The next packet, in a buffer that the one after it overwrites; `None` after the last.
    #[expect(clippy::should_implement_trait, reason = "an iterator cannot lend its buffer")]
    pub fn next(&mut self) -> Option<Packet<'_>> {
        if self.sent == self.packets {
            return None;
        }
        let first = self.burst.2 == 0;
        if first {
            self.burst = self.next_burst();
        }
        let (slot, due, left) = self.burst;
        let flow = &mut self.flows[slot as usize];
        flow.write(&mut Tools {
            frame: &mut self.frame,
            pages: &self.pages,
            random: &mut self.random,
            sizes: &self.sizes,
        });
        self.burst.2 = left - 1;
        if flow.sent == flow.total {
            self.burst.2 = 0;
            self.load -= flow.load;
            self.free.push(slot);
        } else if left == 1 {
            self.queue.push(Reverse((due, slot)));
        }
        let wire_len = u32::from(frame::len16(self.frame.len()));
        self.sizes.sent(wire_len);
        self.advance(first, wire_len);
        self.sent += 1;
        let data = self.frame.bytes();
        Some(Packet {
            time_ns: self.time_ns,
            wire_len,
            data: &data[..data.len().min(self.snap_len)],
        })
    }

    /// Moves the clock: within a burst by the time that a frame takes, and for a new burst to the
    /// time that the rate gives.
    fn advance(&mut self, first: bool, wire_len: u32) {
        if self.sent == 0 {
            return;
        }
        // Nearly exponential, from whole numbers: halvings, and a part of one, 1.5 on average.
        let number = self.random.number();
        let halvings = number.trailing_zeros().min(32) << 16 | low32(number >> 48);
        self.elapsed += (self.gap * u128::from(halvings) * 2 / 3) >> 16;
        let elapsed = u64::try_from(self.elapsed >> 16).unwrap_or(u64::MAX);
        let at = self.start_ns.saturating_add(elapsed);
        // At 10 Gbit/s, with preamble, checksum and gap.
        let frame_ns = u64::from(wire_len + 24) * 8 / 10;
        let gap_ns = u64::try_from(self.gap >> 17).unwrap_or(u64::MAX);
        let next = self.time_ns.saturating_add(frame_ns.min(gap_ns).max(1));
        self.time_ns = if first { next.max(at) } else { next };
    }

    /// The flow that sends next, when it is due again, and how many packets it sends.
    fn next_burst(&mut self) -> (u32, u64, u32) {
        let slot = if self.scan.is_short(self.sent) {
            self.begin_episode(FlowKind::Scan)
        } else if self.flood.is_short(self.sent) {
            self.begin_episode(FlowKind::Flood)
        } else if self.other.is_short(self.sent) {
            self.begin_other()
        } else if self.begun <= part_of(self.sent, self.begun_parts) {
            self.begin_flow()
        } else if let Some(Reverse((due, slot))) = self.queue.pop() {
            self.due = due;
            slot
        } else {
            self.begin_flow()
        };
        let flow = &self.flows[slot as usize];
        let burst = match flow.kind {
            FlowKind::Fragments => 2,
            // Powers of two, the long ones seldom; longer ones in long flows.
            _ => {
                let most = if flow.total < LONG { 3 } else { 5 };
                let octave = self.random.below(most);
                1 + self.random.below(1 << octave)
            }
        };
        // From half to one and a half of the gap that keeps the pace.
        let jitter = u64::from(512 + self.random.below(1_024));
        let gap = (flow.gap * u64::from(burst) * jitter) >> 14;
        (slot, self.due + gap.max(1), burst)
    }

    /// For how many packets a flow is active.
    fn lifetime(&self) -> u64 {
        15 * self.concurrent.min(16 + self.sent / 64)
    }

    /// Adds a flow to the active ones, spread over that many packets.
    fn begin(&mut self, mut flow: Flow, lifetime: u64) -> u32 {
        let total = u64::from(flow.total);
        flow.gap = lifetime * 16 / total;
        flow.load = total * ONE / lifetime.max(1);
        self.load += flow.load;
        self.planned += total;
        if let Some(slot) = self.free.pop() {
            self.flows[slot as usize] = flow;
            return slot;
        }
        self.flows.push(flow);
        low32(self.flows.len() as u64 - 1)
    }

    fn begin_episode(&mut self, kind: FlowKind) -> u32 {
        // No episode is so long that it alone decides the share.
        let share = if kind == FlowKind::Scan { &self.scan } else { &self.flood };
        let longest = part_of(self.sent, share.parts) / 4;
        let total = 32 + self.random.below(low32(longest.clamp(32, 4_096)));
        let mut flow = self.flow(kind, total, false);
        let random = &mut self.random;
        if kind == FlowKind::Scan {
            let (third, net) =
                (random.below(200), [0x0A01, 0x0A02, 0xC0A8][random.below(3) as usize]);
            flow.ends[CLIENT].host = hosts::anybody(random);
            flow.ends[SERVER].host.address = u128::from(net << 16 | third << 8);
            flow.ends[SERVER].host.mac = hosts::ROUTER;
            const PORTS: [u16; 7] = [22, 23, 445, 3389, 8080, 5900, 6379];
            flow.ends[SERVER].port = PORTS[zipf(3, random) as usize];
            self.scan.planned += u64::from(total);
            return self.begin(flow, 6 * u64::from(total));
        }
        flow.ends[SERVER].host = server(false, zipf(5, random));
        flow.ends[SERVER].port = if random.below(4) == 0 { 80 } else { 443 };
        self.flood.planned += u64::from(total);
        self.begin(flow, 3 * u64::from(total))
    }

    fn begin_other(&mut self) -> u32 {
        let (kind, total) = match self.random.below(100) {
            0..=57 => (FlowKind::Dns, 2),
            58..=69 => (FlowKind::Echo, 2 * (1 + self.random.below(5))),
            70..=83 => (FlowKind::Arp, 1 + self.random.below(2)),
            84..=89 => (FlowKind::Neighbour, 2),
            90..=93 => (FlowKind::Sctp, 3 + self.random.below(12)),
            94..=97 => (FlowKind::Fragments, 2 * (1 + self.random.below(4))),
            _ => (FlowKind::Lldp, 1),
        };
        let v6 = match kind {
            FlowKind::Dns | FlowKind::Echo => self.ipv6.take(total, self.planned, &mut self.random),
            FlowKind::Neighbour => {
                self.ipv6.planned += u64::from(total);
                true
            }
            _ => false,
        };
        self.other.planned += u64::from(total);
        let mut flow = self.flow(kind, total, v6);
        let random = &mut self.random;
        match kind {
            FlowKind::Arp | FlowKind::Neighbour => {
                // A host of the same network.
                let host = flow.ends[CLIENT].host;
                let last = u128::from(1 + random.below(254));
                flow.ends[SERVER].host = Host { address: host.address & !0xFF | last, ..host };
                flow.ends[SERVER].host.mac[5] = u8::try_from(last).unwrap_or(1);
            }
            FlowKind::Dns => {
                flow.ends[SERVER].host = server(v6, random.below(3));
                flow.ends[SERVER].port = 53;
            }
            FlowKind::Sctp => flow.ends[SERVER].port = 7_000,
            FlowKind::Fragments => flow.ends[SERVER].port = 5001,
            _ => {}
        }
        let ip = !matches!(kind, FlowKind::Arp | FlowKind::Lldp);
        self.begun += u64::from(ip);
        if ip {
            self.tag(&mut flow);
        }
        let pace = 8 + u64::from(self.random.below(256));
        self.begin(flow, pace * u64::from(total))
    }

    fn begin_flow(&mut self) -> u32 {
        let total = self.flow_len();
        let kind = match (self.random.below(100), total) {
            (0..=69, _) => FlowKind::Tcp,
            (_, LONG..) | (70..=91, _) => FlowKind::Quic,
            (92..=96, _) => FlowKind::Media,
            _ => FlowKind::Syslog,
        };
        let v6 = self.ipv6.take(total, self.planned, &mut self.random);
        let mut flow = self.flow(kind, total, v6);
        match kind {
            FlowKind::Quic => flow.ends[SERVER].port = 443,
            FlowKind::Media => flow.ends[SERVER].port = 50_000 + (flow.ends[CLIENT].port & 0xFFE),
            FlowKind::Syslog => {
                flow.ends[SERVER].port = 514;
                flow.ends[SERVER].host = server(v6, 64);
            }
            _ => {}
        }
        self.tag(&mut flow);
        if self.tunnel.take(total, self.planned, &mut self.random) {
            let id = 1 + self.random.below(64);
            flow.tunnel = match self.random.below(5) {
                0 => Tunnel::Ip,
                1 => Tunnel::Gre { key: None },
                2 => Tunnel::Gre { key: Some(id) },
                3 => Tunnel::Vxlan { id: 5_000 + id },
                _ => Tunnel::Gtp { id: id << 16 | u32::from(flow.ends[CLIENT].port) },
            };
        }
        self.begun += 1;
        let jitter = 512 + u64::from(self.random.below(1_024));
        let lifetime = self.lifetime() * jitter / 1_024;
        self.begin(flow, lifetime.max(FLOW_PACE * u64::from(total)))
    }

    /// Packets of a flow: after Pareto, with an exponent of about 1.14, but long ones only where
    /// the load leaves room for them.
    fn flow_len(&mut self) -> u32 {
        // A flow is twice as long with a chance of 29 in 64.
        const OCTAVE_CHANCE: u32 = 29;
        const ROOMY: u64 = ONE / 5 * 4;
        let random = &mut self.random;
        let (mut octave, most) = match self.load {
            ..ROOMY => (6, 16),
            ROOMY..=ONE => (1, 16),
            _ => (1, 4),
        };
        // A few fail: nobody answers, or the server refuses.
        if random.below(16) == 0 {
            return 1 + random.below(3);
        }
        while octave < most && random.below(64) < OCTAVE_CHANCE {
            octave += 1;
        }
        let len = (2_u32 << octave) + random.below(2 << octave);
        // No flow is so long that it dominates what has been sent so far.
        len.min(low32((self.sent / 16).clamp(256, LONGEST)))
    }

    /// A flow between a client and a server, without what depends on its kind.
    fn flow(&mut self, kind: FlowKind, total: u32, v6: bool) -> Flow {
        let random = &mut self.random;
        let (rank, port) = popular(random);
        let numbers = random.number();
        let end = |host, port, seq| End { host, port, seq };
        let from = end(client(v6, random), ephemeral(random), low32(numbers));
        let to = end(server(v6, rank), port, low32(numbers >> 32));
        Flow {
            kind,
            v6,
            tags: [0; 2],
            tag_count: 0,
            tunnel: Tunnel::None,
            ends: [from, to],
            sent: 0,
            total,
            gap: 0,
            load: 0,
            sender: if random.below(8) == 0 { CLIENT } else { SERVER },
            reset: random.below(6) == 0,
            waiting: 0,
            label: low32(random.number()),
            id: frame::low16(random.number()),
        }
    }

    /// Gives the flow VLAN tags, if its share asks for it.
    fn tag(&mut self, flow: &mut Flow) {
        if self.vlan.take(flow.total, self.planned, &mut self.random) {
            let id = [10, 10, 20, 32][self.random.below(4) as usize];
            (flow.tags, flow.tag_count) =
                if self.random.below(12) == 0 { ([100, id], 2) } else { ([id, 0], 1) };
        }
    }
}
