//! A conversation, and the packet that comes next in it.
#![allow(clippy::big_endian_bytes, reason = "network headers are big-endian")]

use super::frame::{
    ETH_LEN, FRAME_MIN, Frame, Mac, Network, UDP_LEN, checksum, len16, low8, low16, low32,
    network_len, sum, v4,
};
use super::hosts::{self, Host, ROUTER, gateway};
use super::payload::{FILLER, Page, QUIC, REQUEST, RESPONSE, SYSLOG, TLS, WEB_PAGES};
use super::sizes::Sizes;
use crate::packet::{ETHERTYPE_ARP, ETHERTYPE_IPV4, ETHERTYPE_IPV6, protocol};
use tapdex_bitmap::sample::Random;

const TCP_LEN: usize = 20;
const FIN: u8 = 1;
const SYN: u8 = 2;
const RST: u8 = 4;
const PSH: u8 = 8;
const ACK: u8 = 16;
/// MSS 1,460, SACK permitted, window scale 7, two fillers.
const SYN_OPTIONS: [u8; 12] = [2, 4, 0x05, 0xB4, 4, 2, 1, 3, 3, 7, 1, 0];
const WINDOW: u16 = 64_240;
const DONT_FRAGMENT: u16 = 0x4000;
const MORE_FRAGMENTS: u16 = 0x2000;
const IP_MAX: usize = 1_500;
/// The most bytes that the outer headers of a tunnel take, rounded up.
const TUNNEL_MAX: usize = 64;
const QUIC_MAX: usize = 1_350;

/// Ends of a flow.
pub(super) const CLIENT: usize = 0;
pub(super) const SERVER: usize = 1;

/// What a flow consists of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FlowKind {
    Tcp,
    Quic,
    /// Packets of one size, both ways.
    Media,
    Syslog,
    Dns,
    Echo,
    Arp,
    Neighbour,
    Lldp,
    Sctp,
    /// UDP datagrams, each in two fragments.
    Fragments,
    /// SYNs from one host to many.
    Scan,
    /// SYNs from everywhere to one host.
    Flood,
}

/// What carries a flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tunnel {
    None,
    Ip,
    Gre { key: Option<u32> },
    Vxlan { id: u32 },
    Gtp { id: u32 },
}

/// An end of a flow.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct End {
    pub(super) host: Host,
    pub(super) port: u16,
    /// The sequence number of what it sends next.
    pub(super) seq: u32,
}

/// A conversation.
#[derive(Debug, Clone, Copy)]
pub(super) struct Flow {
    pub(super) kind: FlowKind,
    pub(super) v6: bool,
    pub(super) tags: [u16; 2],
    pub(super) tag_count: u8,
    pub(super) tunnel: Tunnel,
    /// Client and server.
    pub(super) ends: [End; 2],
    /// Packets sent, and to be sent.
    pub(super) sent: u32,
    pub(super) total: u32,
    /// Packets of all flows between two of this one's, in 16ths.
    pub(super) gap: u64,
    /// Its share of all packets, in 2^-32.
    pub(super) load: u64,
    /// Which end sends the data.
    pub(super) sender: usize,
    /// Whether it ends with a reset.
    pub(super) reset: bool,
    /// Data packets that nobody has acknowledged; for fragments, bytes of the second one.
    pub(super) waiting: u32,
    /// A number that stays the same: picks names and texts, is the id of echoes.
    pub(super) label: u32,
    pub(super) id: u16,
}

/// What packets are made with.
#[derive(Debug)]
pub(super) struct Tools<'a> {
    pub(super) frame: &'a mut Frame,
    pub(super) pages: &'a [Page],
    pub(super) random: &'a mut Random,
    pub(super) sizes: &'a Sizes,
}

impl Flow {
    /// Writes the next packet.
    pub(super) fn write(&mut self, tools: &mut Tools<'_>) {
        tools.frame.clear();
        match self.kind {
            FlowKind::Tcp => self.tcp(tools),
            FlowKind::Quic | FlowKind::Media | FlowKind::Syslog => self.udp(tools),
            FlowKind::Dns => self.dns(tools),
            FlowKind::Echo => self.echo(tools),
            FlowKind::Arp => self.arp(tools),
            FlowKind::Neighbour => self.neighbour(tools),
            FlowKind::Lldp => self.lldp(tools),
            FlowKind::Sctp => self.sctp(tools),
            FlowKind::Fragments => self.fragment(tools),
            FlowKind::Scan => {
                // The next host, the same port.
                self.ends[SERVER].host.address += 1;
                self.probe(tools);
            }
            FlowKind::Flood => {
                self.ends[CLIENT].host = hosts::anybody(tools.random);
                self.ends[CLIENT].port = ephemeral(tools.random);
                self.probe(tools);
            }
        }
        tools.frame.pad();
        self.sent += 1;
        self.id = self.id.wrapping_add(1);
    }

    fn tags(&self) -> &[u16] {
        &self.tags[..usize::from(self.tag_count)]
    }

    /// Bytes of all headers before the transport header.
    fn lower_len(&self) -> usize {
        let outer = match self.tunnel {
            Tunnel::None => 0,
            Tunnel::Ip => 20,
            Tunnel::Gre { key } => 24 + if key.is_some() { 4 } else { 0 },
            Tunnel::Vxlan { .. } => 20 + UDP_LEN + 8 + ETH_LEN,
            Tunnel::Gtp { .. } => 20 + UDP_LEN + 8,
        };
        ETH_LEN + 4 * usize::from(self.tag_count) + outer + network_len(self.v6)
    }

    /// Bytes that fit behind a transport header of that length.
    fn payload_max(&self, header: usize) -> usize {
        let outer = if self.tunnel == Tunnel::None { 0 } else { TUNNEL_MAX };
        IP_MAX - outer - network_len(self.v6) - header
    }

    /// Bytes of a payload behind a transport header of that length.
    fn payload_len(&self, header: usize, max: usize, tools: &mut Tools<'_>) -> usize {
        let max = max.min(self.payload_max(header));
        if tools.sizes.is_least() {
            // As much as fills the frame, or as little as other programs accept as a payload.
            let room = FRAME_MIN.saturating_sub(self.lower_len() + header);
            return if room < 6 { 8 } else { room };
        }
        tools.sizes.payload(max, tools.random)
    }

    /// All headers up to the transport header, in front of `len` bytes. Returns the sum of the
    /// pseudo header.
    fn lower(&self, frame: &mut Frame, from: usize, proto: u8, len: usize) -> u32 {
        self.lower_fragment(frame, from, proto, len, if self.v6 { 0 } else { DONT_FRAGMENT })
    }

    fn lower_fragment(
        &self,
        frame: &mut Frame,
        from: usize,
        proto: u8,
        len: usize,
        fragment: u16,
    ) -> u32 {
        let (src, dst) = (self.ends[from].host, self.ends[1 - from].host);
        let inner = Network {
            v6: self.v6,
            src: src.address,
            dst: dst.address,
            proto,
            ttl: src.ttl,
            id: self.id,
            fragment,
        };
        let inner_type = if self.v6 { ETHERTYPE_IPV6 } else { ETHERTYPE_IPV4 };
        if self.tunnel == Tunnel::None {
            frame.link(dst.mac, src.mac, self.tags(), inner_type);
            return frame.network(&inner, len);
        }
        let pair = 2 * (self.label % 4);
        let out = [gateway(pair), gateway(pair + 1)];
        let (src_out, dst_out) = (out[from], out[1 - from]);
        let inner_len = network_len(self.v6) + len;
        let (proto_out, len_out) = match self.tunnel {
            Tunnel::None | Tunnel::Ip => (if self.v6 { 41 } else { 4 }, inner_len),
            Tunnel::Gre { key: None } => (protocol::GRE, 4 + inner_len),
            Tunnel::Gre { key: Some(_) } => (protocol::GRE, 8 + inner_len),
            Tunnel::Vxlan { .. } => (protocol::UDP, UDP_LEN + 8 + ETH_LEN + inner_len),
            Tunnel::Gtp { .. } => (protocol::UDP, UDP_LEN + 8 + inner_len),
        };
        frame.link(dst_out.mac, src_out.mac, self.tags(), ETHERTYPE_IPV4);
        let outer = Network {
            v6: false,
            src: src_out.address,
            dst: dst_out.address,
            proto: proto_out,
            ttl: src_out.ttl,
            id: self.id,
            fragment: DONT_FRAGMENT,
        };
        frame.network(&outer, len_out);
        // The outer UDP checksum is 0, "none", as IPv4 allows and these tunnels do.
        match self.tunnel {
            Tunnel::None | Tunnel::Ip => {}
            Tunnel::Gre { key } => {
                frame.put16(if key.is_some() { 0x2000 } else { 0 });
                frame.put16(inner_type);
                if let Some(key) = key {
                    frame.put32(key);
                }
            }
            Tunnel::Vxlan { id } => {
                frame.udp(low16(self.label.into()) | 0xC000, 4789, len_out - UDP_LEN);
                frame.put32(1 << 27);
                frame.put32(id << 8);
                frame.link(dst.mac, src.mac, &[], inner_type);
            }
            Tunnel::Gtp { id } => {
                frame.udp(2152, 2152, len_out - UDP_LEN);
                frame.put(&[0x30, 0xFF]);
                frame.put16(len16(inner_len));
                frame.put32(id);
            }
        }
        frame.network(&inner, len)
    }

    /// A TCP segment.
    fn segment(
        &mut self,
        tools: &mut Tools<'_>,
        from: usize,
        flags: u8,
        payload: Option<(usize, usize)>,
    ) {
        let options: &[u8] =
            if flags & SYN != 0 && !tools.sizes.is_least() { &SYN_OPTIONS } else { &[] };
        let header = TCP_LEN + options.len();
        let (page, len) = payload.unwrap_or((FILLER, 0));
        let pseudo = self.lower(tools.frame, from, protocol::TCP, header + len);
        let (sender, receiver) = (self.ends[from], self.ends[1 - from]);
        let start = tools.frame.len();
        tools.frame.put16(sender.port);
        tools.frame.put16(receiver.port);
        tools.frame.put32(sender.seq);
        tools.frame.put32(if flags & ACK != 0 { receiver.seq } else { 0 });
        tools.frame.put(&[low8((header as u64 / 4) << 4), flags]);
        tools.frame.put16(if flags & RST != 0 { 0 } else { WINDOW });
        tools.frame.put32(0);
        tools.frame.put(options);
        let sums =
            pseudo + sum(tools.frame.from(start)) + tools.frame.payload(&tools.pages[page], len);
        tools.frame.set16(start + 16, checksum(sums));
        let used = u32::from(len16(len)) + u32::from(flags & (SYN | FIN) != 0);
        self.ends[from].seq = sender.seq.wrapping_add(used);
    }

    fn probe(&mut self, tools: &mut Tools<'_>) {
        self.ends[CLIENT].seq = low32(tools.random.number());
        self.segment(tools, CLIENT, SYN, None);
    }

    fn tcp(&mut self, tools: &mut Tools<'_>) {
        let left = self.total - self.sent;
        let closing = if self.reset || self.total < 7 { 1 } else { 3 };
        match (self.sent, left) {
            (0, _) => self.segment(tools, CLIENT, SYN, None),
            // Nobody listens.
            (1, 1) => self.segment(tools, SERVER, RST | ACK, None),
            (1, _) => self.segment(tools, SERVER, SYN | ACK, None),
            (2, 2..) => self.segment(tools, CLIENT, ACK, None),
            (_, left) if left > closing => self.data(tools),
            (_, 3) => self.segment(tools, self.sender, FIN | ACK, None),
            (_, 2) => self.segment(tools, 1 - self.sender, FIN | ACK, None),
            _ if closing == 3 => self.segment(tools, self.sender, ACK, None),
            _ => self.segment(tools, CLIENT, RST | ACK, None),
        }
    }

    fn data(&mut self, tools: &mut Tools<'_>) {
        const REQUEST_CHANCE: u32 = 32;
        let port = self.ends[SERVER].port;
        let (web, tls) = (matches!(port, 80 | 8000 | 8080), matches!(port, 443 | 993 | 8443));
        let text = self.label as usize % WEB_PAGES;
        let first = self.sent == 3;
        if first || self.waiting == 0 && tools.random.below(REQUEST_CHANCE) == 0 {
            self.waiting = 0;
            let max = if web { tools.pages[REQUEST + text].text_len() } else { 300 };
            let mut len = self.payload_len(TCP_LEN, max, tools);
            if web && !tools.sizes.is_small() {
                len = max;
            }
            let page = if web {
                REQUEST + text
            } else if tls {
                TLS
            } else {
                FILLER
            };
            return self.segment(tools, CLIENT, PSH | ACK, Some((page, len)));
        }
        if self.waiting >= tools.sizes.ack_every() {
            self.waiting = 0;
            return self.segment(tools, 1 - self.sender, ACK, None);
        }
        self.waiting += 1;
        let len = self.payload_len(TCP_LEN, IP_MAX, tools);
        let page = match (web && self.sender == SERVER, tls) {
            (true, _) if self.sent == 4 => RESPONSE + text,
            (_, true) => TLS,
            _ => FILLER,
        };
        let push = if len < self.payload_max(TCP_LEN) { PSH } else { 0 };
        self.segment(tools, self.sender, ACK | push, Some((page, len)));
    }

    /// A UDP datagram that carries the start of a page.
    fn datagram(&self, tools: &mut Tools<'_>, from: usize, page: usize, len: usize) {
        let pseudo = self.lower(tools.frame, from, protocol::UDP, UDP_LEN + len);
        let start = tools.frame.len();
        tools.frame.udp(self.ends[from].port, self.ends[1 - from].port, len);
        let sums =
            pseudo + sum(tools.frame.from(start)) + tools.frame.payload(&tools.pages[page], len);
        tools.frame.set16(start + 6, not_zero(checksum(sums)));
    }

    fn udp(&mut self, tools: &mut Tools<'_>) {
        match self.kind {
            FlowKind::Quic => {
                let request = self.sent == 0 || self.waiting >= tools.sizes.ack_every() + 2;
                self.waiting = if request { 0 } else { self.waiting + 1 };
                let from = if request { 1 - self.sender } else { self.sender };
                let max = if request && self.sent > 0 { 60 } else { QUIC_MAX };
                let len = self.payload_len(UDP_LEN, max, tools);
                self.datagram(tools, from, QUIC, len);
            }
            FlowKind::Syslog => {
                let text = tools.pages[SYSLOG].text_len();
                let len = self.payload_len(UDP_LEN, text, tools);
                let len = if tools.sizes.is_small() { len } else { text };
                self.datagram(tools, CLIENT, SYSLOG, len);
            }
            _ => {
                let max = 160 + (self.label as usize % 64) * 16;
                let len = if tools.sizes.is_small() {
                    self.payload_len(UDP_LEN, max, tools)
                } else {
                    max.min(self.payload_max(UDP_LEN))
                };
                self.datagram(tools, self.sent as usize % 2, FILLER, len);
            }
        }
    }

    fn dns(&mut self, tools: &mut Tools<'_>) {
        const NAMES: [&[u8]; 8] =
            [b"www", b"api", b"mail", b"cdn", b"img", b"login", b"static", b"ns1"];
        const DOMAIN: &[u8] = b"\x07example\x03com\x00";
        let name = NAMES[self.label as usize % NAMES.len()];
        // A query, then its answer; with more to send, another query follows.
        let (answer, round) = (self.sent % 2 == 1, self.sent / 2);
        let long = self.label >> 8 & 1 == 1;
        let record = if long { 28 } else { 1 };
        let data_len = if long { 16 } else { 4 };
        let question = 12 + 1 + name.len() + DOMAIN.len() + 4;
        let len = question + if answer { 12 + data_len } else { 0 };
        let from = if answer { SERVER } else { CLIENT };
        let pseudo = self.lower(tools.frame, from, protocol::UDP, UDP_LEN + len);
        let frame = &mut *tools.frame;
        let start = frame.len();
        frame.udp(self.ends[from].port, self.ends[1 - from].port, len);
        frame.put16(low16(u64::from(self.label >> 16) + u64::from(round)));
        frame.put16(if answer { 0x8180 } else { 0x0100 });
        frame.put(&[0, 1, 0, u8::from(answer), 0, 0, 0, 0]);
        frame.put(&[low8(name.len() as u64)]);
        frame.put(name);
        frame.put(DOMAIN);
        frame.put(&[0, record, 0, 1]);
        if answer {
            frame.put(&[0xC0, 12, 0, record, 0, 1, 0, 0, 1, 44, 0, low8(data_len as u64)]);
            let address = hosts::server(long, self.label % 64).address.to_be_bytes();
            frame.put(&address[16 - data_len..]);
        }
        let sums = pseudo + sum(frame.from(start));
        frame.set16(start + 6, not_zero(checksum(sums)));
    }

    fn echo(&mut self, tools: &mut Tools<'_>) {
        let reply = self.sent % 2 == 1;
        let len = if tools.sizes.is_small() { 1 } else { 56 };
        let proto = if self.v6 { protocol::ICMP6 } else { protocol::ICMP };
        let kind = match (self.v6, reply) {
            (false, false) => 8,
            (false, true) => 0,
            (true, false) => 128,
            (true, true) => 129,
        };
        let pseudo = self.lower(tools.frame, usize::from(reply), proto, 8 + len);
        let start = tools.frame.len();
        tools.frame.put(&[kind, 0, 0, 0]);
        tools.frame.put16(low16(self.label.into()));
        tools.frame.put16(low16(1 + u64::from(self.sent / 2)));
        let own = sum(tools.frame.from(start)) + tools.frame.payload(&tools.pages[FILLER], len);
        tools.frame.set16(start + 2, checksum(own + if self.v6 { pseudo } else { 0 }));
    }

    fn arp(&mut self, tools: &mut Tools<'_>) {
        const NOBODY: Mac = [0; 6];
        const EVERYBODY: Mac = [0xFF; 6];
        let reply = self.sent % 2 == 1;
        let (from, to) = if reply { (SERVER, CLIENT) } else { (CLIENT, SERVER) };
        let (from, to) = (self.ends[from].host, self.ends[to].host);
        let frame = &mut *tools.frame;
        frame.link(if reply { to.mac } else { EVERYBODY }, from.mac, self.tags(), ETHERTYPE_ARP);
        frame.put(&[0, 1, 8, 0, 6, 4, 0, if reply { 2 } else { 1 }]);
        frame.put(&from.mac);
        frame.put32(v4(from.address));
        frame.put(if reply { &to.mac } else { &NOBODY });
        frame.put32(v4(to.address));
    }

    fn neighbour(&mut self, tools: &mut Tools<'_>) {
        let reply = self.sent % 2 == 1;
        let (from, to) = if reply { (SERVER, CLIENT) } else { (CLIENT, SERVER) };
        let (from, mut to) = (self.ends[from].host, self.ends[to].host);
        let target = if reply { from.address } else { to.address };
        if !reply {
            // To all hosts whose address ends like the target's.
            let [_, _, _, _, _, _, _, _, _, _, _, _, _, b, c, d] = target.to_be_bytes();
            to.address = 0xFF02_u128 << 112 | 0x1_FF00_0000 | target & 0xFF_FFFF;
            to.mac = [0x33, 0x33, 0xFF, b, c, d];
        }
        let frame = &mut *tools.frame;
        frame.link(to.mac, from.mac, self.tags(), ETHERTYPE_IPV6);
        let network = Network {
            v6: true,
            src: from.address,
            dst: to.address,
            proto: protocol::ICMP6,
            ttl: 255,
            id: 0,
            fragment: 0,
        };
        let pseudo = frame.network(&network, 32);
        let start = frame.len();
        frame.put(&[if reply { 136 } else { 135 }, 0, 0, 0]);
        // Solicited, and overriding.
        frame.put32(if reply { 0x6000_0000 } else { 0 });
        frame.put(&target.to_be_bytes());
        frame.put(&[if reply { 2 } else { 1 }, 1]);
        frame.put(&from.mac);
        let sums = pseudo + sum(frame.from(start));
        frame.set16(start + 2, checksum(sums));
    }

    fn lldp(&mut self, tools: &mut Tools<'_>) {
        const EVERY_BRIDGE: Mac = [0x01, 0x80, 0xC2, 0, 0, 0x0E];
        const PORT: &[u8] = b"\x05Eth1/1";
        const NAME: &[u8] = b"sw1.example.net";
        let frame = &mut *tools.frame;
        frame.link(EVERY_BRIDGE, ROUTER, &[], 0x88CC);
        frame.put(&[2, 7, 4]);
        frame.put(&ROUTER);
        frame.put(&[4, low8(PORT.len() as u64)]);
        frame.put(PORT);
        frame.put(&[6, 2, 0, 120, 10, low8(NAME.len() as u64)]);
        frame.put(NAME);
        frame.put(&[0, 0]);
    }

    fn sctp(&mut self, tools: &mut Tools<'_>) {
        const COMMON_LEN: usize = 12;
        const CHUNK_LEN: usize = 16;
        let data = self.sent % 3 != 2;
        let from = if data { CLIENT } else { SERVER };
        let header = COMMON_LEN + CHUNK_LEN;
        let len = if data { self.payload_len(header, 400, tools).next_multiple_of(4) } else { 0 };
        self.lower(tools.frame, from, protocol::SCTP, header + len);
        let frame = &mut *tools.frame;
        let start = frame.len();
        frame.put16(self.ends[from].port);
        frame.put16(self.ends[1 - from].port);
        frame.put32(self.label ^ if data { 0 } else { u32::MAX });
        frame.put32(0);
        if data {
            frame.put(&[0, 3]);
            frame.put16(len16(CHUNK_LEN + len));
            frame.put32(self.ends[CLIENT].seq);
            frame.put32(self.ends[CLIENT].seq & 0xFFFF);
            frame.put32(0);
            frame.payload(&tools.pages[FILLER], len);
            self.ends[CLIENT].seq = self.ends[CLIENT].seq.wrapping_add(1);
        } else {
            frame.put(&[3, 0]);
            frame.put16(len16(CHUNK_LEN));
            frame.put32(self.ends[CLIENT].seq.wrapping_sub(1));
            frame.put32(65_536);
            frame.put32(0);
        }
        let crc = crc32c::crc32c(frame.from(start));
        frame.set(start + 8, &crc.to_le_bytes());
    }

    fn fragment(&mut self, tools: &mut Tools<'_>) {
        let first_len = if tools.sizes.is_small() { 24 } else { IP_MAX - 20 };
        if self.sent % 2 == 1 {
            // The rest of the datagram, under the same id.
            self.id = self.id.wrapping_sub(1);
            let offset = len16(first_len / 8);
            let len = self.waiting as usize;
            self.lower_fragment(tools.frame, CLIENT, protocol::UDP, len, offset);
            tools.frame.payload(&tools.pages[QUIC], len);
            return;
        }
        self.waiting = if tools.sizes.is_small() { 24 } else { 8 + tools.random.below(800) };
        let rest = self.waiting as usize;
        let pseudo =
            self.lower_fragment(tools.frame, CLIENT, protocol::UDP, first_len, MORE_FRAGMENTS);
        // The pseudo header covers the whole datagram.
        let pseudo = pseudo + self.waiting;
        let start = tools.frame.len();
        let len = first_len - UDP_LEN;
        tools.frame.udp(self.ends[CLIENT].port, self.ends[SERVER].port, len + rest);
        let sums = pseudo
            + sum(tools.frame.from(start))
            + tools.frame.payload(&tools.pages[FILLER], len)
            + tools.pages[QUIC].sum(rest);
        tools.frame.set16(start + 6, not_zero(checksum(sums)));
    }
}

/// A UDP checksum: 0 would mean that there is none.
fn not_zero(checksum: u16) -> u16 {
    if checksum == 0 { u16::MAX } else { checksum }
}

/// A port of a client.
pub(super) fn ephemeral(random: &mut Random) -> u16 {
    low16(u64::from(32_768 + random.below(28_232)))
}
