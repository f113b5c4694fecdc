//! Headers of frames: against libpcap's programs, against etherparse, and tunnels by hand.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::big_endian_bytes,
    reason = "a test fails by panicking, and frames are big-endian"
)]

#[path = "decode/frames.rs"]
mod frames;
#[path = "decode/rules.rs"]
mod rules;

use std::collections::HashMap;
use std::hash::Hash;
use std::path::{Path, PathBuf};
use std::process::Command;

use etherparse::{PacketBuilder, SlicedPacket, TransportSlice, VlanId};
use frames::{IP6S, IPS, LABELS, MACS, PORTS, VLANS};
use pcap::Capture;
use rules::{ANY_HOST, Ask, ENDS, End, Question, handle};
use tapdex_engine::packet::{
    ETHERTYPE_ARP, ETHERTYPE_IPV4, ETHERTYPE_IPV6, ETHERTYPE_RARP, Encap, Fragment, Headers, Inner,
    LinkType, Tunnel, decode, protocol,
};
use tapdex_engine::testing::fuzz_decode_frame;

/// Links and byte orders.
const LINKS: [(LinkType, bool); 10] = [
    (LinkType::ETHERNET, false),
    (LinkType::NULL, false),
    (LinkType::NULL, true),
    (LinkType::LOOP, false),
    (LinkType::LOOP, true),
    (LinkType::RAW, false),
    (LinkType::LINUX_SLL, false),
    (LinkType::LINUX_SLL2, true),
    (LinkType::IPV4, false),
    (LinkType::IPV6, false),
];

/// Numbers that are the same in every run.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        usize::try_from(self.0 >> 33).unwrap() % limit
    }

    fn byte(&mut self) -> u8 {
        u8::try_from(self.below(256)).unwrap()
    }

    fn bytes<const N: usize>(&mut self) -> [u8; N] {
        [(); N].map(|()| self.byte())
    }
}

fn decoded(link: LinkType, swapped: bool, frame: &[u8]) -> Headers {
    let mut headers = Headers::default();
    decode(link, swapped, frame, &mut headers);
    headers
}

/// What filters ask for.
#[derive(Default)]
struct Values {
    types: Vec<u16>,
    protos: Vec<u8>,
    ips: Vec<u32>,
    ip6s: Vec<u128>,
    macs: Vec<u64>,
    ports: Vec<u16>,
    vlans: Vec<u16>,
    labels: Vec<u32>,
    icmps: Vec<u8>,
    /// Each bit of an address by itself.
    bits: bool,
}

fn asks(values: &Values) -> Vec<Ask> {
    let mut asks = vec![Ask::EtherMulticast, Ask::IpMulticast, Ask::Ip6Multicast];
    asks.extend(values.types.iter().map(|&eth_type| Ask::Type(eth_type)));
    for &proto in &values.protos {
        asks.extend([None, Some(4), Some(6)].map(|version| Ask::Proto(version, proto)));
    }
    let all = u32::MAX;
    for &ip in &values.ips {
        asks.extend(ENDS.map(|end| Ask::Host4(ANY_HOST, end, ip, all)));
        let some: [&[u16]; 3] = [&[ETHERTYPE_IPV4], &[ETHERTYPE_ARP], &[ETHERTYPE_RARP]];
        asks.extend(some.map(|types| Ask::Host4(types, End::Src, ip, all)));
        asks.extend(some.map(|types| Ask::Host4(types, End::Dst, ip, all << 8)));
    }
    for &ip in &values.ip6s {
        asks.extend(ENDS.map(|end| Ask::Host6(end, ip, 128)));
        asks.extend([1, 31, 64, 65, 120].map(|bits| Ask::Host6(End::Src, ip, bits)));
        asks.extend([16, 48, 96, 100, 127].map(|bits| Ask::Host6(End::Dst, ip, bits)));
    }
    if values.bits {
        for bit in 0..32 {
            let ends = [End::Src, End::Dst];
            asks.extend(ends.map(|end| Ask::Host4(ANY_HOST, end, 1 << bit, 1 << bit)));
        }
        asks.extend((0..8).map(|bit| Ask::TcpFlags(1 << bit, 1 << bit)));
    }
    for &mac in &values.macs {
        asks.extend(ENDS.map(|end| Ask::Mac(end, mac)));
    }
    for (i, &port) in values.ports.iter().enumerate() {
        asks.extend(ENDS.map(|end| Ask::Port(None, end, port, port)));
        let protos = [protocol::TCP, protocol::UDP, protocol::SCTP];
        asks.extend(protos.map(|proto| Ask::Port(Some(proto), ENDS[i % 4], port, port)));
        let low = port & 0xFF00;
        asks.extend(protos.map(|proto| Ask::Port(Some(proto), ENDS[i % 4], low, low | 0xFF)));
        asks.extend(
            [0x7FFF, 0xFFF, 0x3F]
                .map(|mask: u16| Ask::Port(None, ENDS[(i + 1) % 4], port & !mask, port | mask)),
        );
    }
    asks.push(Ask::Vlan(None));
    asks.extend(values.vlans.iter().map(|&id| Ask::Vlan(Some(id))));
    asks.push(Ask::Mpls(None));
    asks.extend(values.labels.iter().map(|&label| Ask::Mpls(Some(label))));
    asks.extend([(0x12, 2), (0x12, 0x12), (0xFF, 0x10), (4, 0)].map(|(m, v)| Ask::TcpFlags(m, v)));
    for &value in &values.icmps {
        asks.extend(
            [(4, false), (4, true), (6, false), (6, true)]
                .map(|(version, code)| Ask::Icmp(version, code, value)),
        );
    }
    asks
}

fn questions(link: LinkType, swapped: bool, values: &Values) -> Vec<Question> {
    let handle = handle(link, swapped);
    let levels = if link == LinkType::ETHERNET { 3 } else { 1 };
    let mut questions = Vec::new();
    for level in 0..levels {
        for ask in asks(values) {
            // A third tag makes a frame odd, and its id has no field.
            if level == 2 && matches!(ask, Ask::Vlan(_)) {
                continue;
            }
            questions.extend(Question::compile(&handle, ask, level));
        }
    }
    questions
}

fn made_up_values() -> Values {
    Values {
        types: vec![
            0x800, 0x806, 0x8035, 0x86DD, 0x8847, 0x88CC, 0x8864, 0x809B, 0x80F3, 0x88B5, 1501,
        ],
        protos: vec![0, 1, 2, 4, 6, 17, 41, 43, 44, 47, 50, 51, 58, 59, 60, 89, 132],
        ips: IPS.to_vec(),
        ip6s: IP6S.to_vec(),
        macs: MACS.to_vec(),
        ports: PORTS.to_vec(),
        vlans: VLANS.to_vec(),
        labels: LABELS.to_vec(),
        icmps: vec![0, 3, 8, 128, 135],
        bits: true,
    }
}

/// Every frame that is made by hand for a link, its name, and whether it is odd when it is whole.
fn frames_of(link: LinkType, swapped: bool) -> Vec<(String, Vec<u8>, bool)> {
    let mut all = Vec::new();
    for (name, eth_type, payload, odd) in frames::payloads() {
        let other = match link {
            // Links without other types take the rest for what they carry, and may not find it.
            LinkType::IPV4 => eth_type != ETHERTYPE_IPV4,
            LinkType::IPV6 => eth_type != ETHERTYPE_IPV6,
            LinkType::RAW => ![ETHERTYPE_IPV4, ETHERTYPE_IPV6].contains(&eth_type),
            _ => false,
        } || name.contains("version") && link == LinkType::RAW;
        let frame = frames::framed(link, swapped, eth_type, &payload).unwrap();
        let odd = if other { decoded(link, swapped, &frame).odd } else { odd };
        // Only Ethernet and Linux have ways to say it.
        let odd = odd && (other || link == LinkType::ETHERNET || eth_type > 1500);
        all.push((name.to_owned(), frame, odd));
        if link == LinkType::ETHERNET {
            let one = frames::eth(0x8100, &frames::tag(5, eth_type, &payload));
            all.push((format!("tag, {name}"), one, odd));
            let two = frames::tag(0xFFE, 0x88A8, &frames::tag(0, eth_type, &payload));
            all.push((format!("two tags, {name}"), frames::eth(0x9100, &two), odd));
        }
    }
    if link == LinkType::ETHERNET {
        let only = frames::ethernet_only().into_iter();
        all.extend(only.map(|(name, frame, odd)| (name.to_owned(), frame, odd)));
    }
    if link == LinkType::LINUX_SLL {
        let snap = [0xAA, 0xAA, 3, 0, 0, 0, 0x80, 0xF3];
        let frame = frames::framed(link, swapped, 4, &snap).unwrap();
        all.push(("snap aarp".to_owned(), frame, true));
    }
    all
}

fn ask_all(
    questions: &[Question],
    name: &str,
    link: LinkType,
    swapped: bool,
    frame: &[u8],
) -> bool {
    let headers = decoded(link, swapped, frame);
    if !headers.odd {
        questions.iter().for_each(|question| question.check(name, frame, &headers));
    }
    !headers.odd
}

#[test]
fn frames_at_every_length_are_what_libpcap_says() {
    for (link, swapped) in LINKS {
        let questions = questions(link, swapped, &made_up_values());
        assert!(questions.len() > 150, "{link}: {}", questions.len());
        for (name, frame, odd) in frames_of(link, swapped) {
            assert_eq!(decoded(link, swapped, &frame).odd, odd, "{link}, {name}");
            for len in 0..=frame.len() {
                ask_all(&questions, &name, link, swapped, &frame[..len]);
            }
        }
    }
}

#[test]
fn mutated_frames_are_what_libpcap_says() {
    const TELLING: [u8; 24] = [
        0, 1, 2, 4, 6, 8, 17, 41, 43, 44, 47, 51, 58, 60, 0x45, 0x46, 0x60, 0x80, 0x81, 0x86, 0x88,
        0xDD, 132, 255,
    ];
    for (i, (link, swapped)) in LINKS.into_iter().enumerate() {
        let mut random = Random(7 + i as u64);
        let questions = questions(link, swapped, &made_up_values());
        let frames = frames_of(link, swapped);
        let rounds = if link == LinkType::ETHERNET { 40_000 } else { 8_000 };
        let mut even = 0;
        for _ in 0..rounds {
            let (name, frame, _) = &frames[random.below(frames.len())];
            let mut frame = frame.clone();
            for _ in 0..=random.below(3) {
                let at = random.below(frame.len().clamp(1, 80));
                let byte = match random.below(3) {
                    0 => random.byte(),
                    _ => TELLING[random.below(TELLING.len())],
                };
                if let Some(target) = frame.get_mut(at) {
                    *target = byte;
                }
            }
            if random.below(4) == 0 {
                frame.truncate(random.below(frame.len() + 1));
            }
            even += usize::from(ask_all(&questions, name, link, swapped, &frame));
        }
        assert!(even > rounds / 4, "{link}: {even} of {rounds}");
    }
}

#[test]
fn frames_at_every_length_are_what_plain_loads_say() {
    let links = [(8, LinkType::ETHERNET), (0, LinkType::NULL), (1, LinkType::RAW)];
    let others = [(3, LinkType::LINUX_SLL), (4, LinkType::LINUX_SLL2), (6, LinkType::IPV6)];
    for (choice, link) in links.into_iter().chain(others) {
        for (_, frame, _) in frames_of(link, false) {
            for len in 0..=frame.len() {
                fuzz_decode_frame(&frames::join(&[&[choice, 5], &frame[..len]]));
            }
        }
    }
}

#[test]
fn ordinary_frames_are_not_odd_when_cut() {
    for (link, swapped) in LINKS {
        for (name, frame, odd) in frames_of(link, swapped) {
            let padded = frames::join(&[&frame, &[0; 128]]);
            let ordinary = !name.contains("options") && !name.contains("tags");
            for len in [64, 68, 96, 128] {
                let cut = decoded(link, swapped, &padded[..len]);
                assert!(odd || !cut.odd || !ordinary, "{link}, {name}, cut to {len}: {cut:?}");
            }
        }
    }
    let whole = [
        (frames::eth(ETHERTYPE_ARP, &frames::arp()), 42),
        (frames::eth(ETHERTYPE_IPV4, &frames::ip4(protocol::TCP, &frames::tcp(0x10))), 54),
        (frames::eth(ETHERTYPE_IPV4, &frames::ip4(protocol::UDP, &frames::udp(1, 2, &[]))), 42),
        (frames::eth(ETHERTYPE_IPV6, &frames::ip6(protocol::UDP, &frames::udp(1, 2, &[]))), 62),
    ];
    for (frame, len) in whole {
        assert_eq!(frame.len(), len);
        assert!(!decoded(LinkType::ETHERNET, false, &frame).odd, "{frame:02x?}");
    }
}

#[test]
fn what_was_there_before_does_not_shine_through() {
    let full = Headers {
        odd: true,
        encap: Encap::TagsMpls,
        eth_dst: 1,
        eth_src: 2,
        eth_type: 3,
        vlan: 4,
        vlan_inner: 5,
        mpls: 6,
        ip_src: 7,
        ip_dst: 8,
        proto: 9,
        l4: 10,
        fragment: Fragment::Later,
        port_src: 11,
        port_dst: 12,
        icmp_type: 13,
        icmp_code: 14,
        tcp_flags: 15,
        tcp_window: 19,
        ttl: 20,
        dscp: 21,
        wide: true,
        ip6_src: 16,
        ip6_dst: 17,
        tunnel: Tunnel::Gtp,
        tunnel_id: 18,
        inner: Inner { eth_type: 1, src: 2, dst: 3, l4: 4, port_src: 5, port_dst: 6 },
    };
    for (link, swapped) in LINKS.into_iter().chain([(LinkType(147), false)]) {
        for (name, frame, _) in frames_of(link_or_ethernet(link), swapped) {
            let clean = decoded(link, swapped, &frame);
            let mut used = full;
            decode(link, swapped, &frame, &mut used);
            assert_eq!(used, clean, "{link}, {name}");
        }
    }
}

#[test]
fn headers_do_not_depend_on_the_frames_before() {
    let mut random = Random(11);
    let all: Vec<_> = LINKS
        .into_iter()
        .chain([(LinkType(147), false)])
        .map(|(link, swapped)| (link, swapped, frames_of(link_or_ethernet(link), swapped)))
        .collect();
    let mut used = Headers::default();
    for _ in 0..200_000 {
        let (link, swapped, frames) = &all[random.below(all.len())];
        let (name, frame, _) = &frames[random.below(frames.len())];
        let mut frame = frame.clone();
        if random.below(2) == 0 {
            let at = random.below(frame.len().max(1));
            if let Some(target) = frame.get_mut(at) {
                *target = random.byte();
            }
            frame.truncate(random.below(frame.len() + 1));
        }
        decode(*link, *swapped, &frame, &mut used);
        assert_eq!(used, decoded(*link, *swapped, &frame), "{link}, {name}");
    }
}

/// Unknown links get the frames of Ethernet.
fn link_or_ethernet(link: LinkType) -> LinkType {
    if link.name().is_some() { link } else { LinkType::ETHERNET }
}

#[test]
fn an_unknown_link_is_odd_and_nothing_more() {
    let frame = frames::eth(ETHERTYPE_IPV6, &frames::ip6(protocol::TCP, &frames::tcp(2)));
    let empty = Headers { odd: true, ..Headers::default() };
    assert_eq!(decoded(LinkType(105), false, &frame), empty);
}

#[test]
fn etherparse_sees_the_same() {
    let mut random = Random(3);
    for round in 0..20_000 {
        let macs: [[u8; 6]; 2] = [random.bytes(), random.bytes()];
        let mut id = || VlanId::try_new(u16::try_from(random.below(4096)).unwrap()).unwrap();
        let ids = [id(), id()];
        let v6 = random.below(2) == 0;
        let ips: [[u8; 16]; 2] = [random.bytes(), random.bytes()];
        let start = PacketBuilder::ethernet2(macs[0], macs[1]);
        let [a, b] = ips;
        let [c, d] = ips.map(|ip| *ip.first_chunk::<4>().unwrap());
        let ip = match (random.below(3), v6) {
            (0, false) => start.ipv4(c, d, 9),
            (0, true) => start.ipv6(a, b, 9),
            (1, false) => start.single_vlan(ids[0]).ipv4(c, d, 9),
            (1, true) => start.single_vlan(ids[0]).ipv6(a, b, 9),
            (_, false) => start.double_vlan(ids[0], ids[1]).ipv4(c, d, 9),
            (_, true) => start.double_vlan(ids[0], ids[1]).ipv6(a, b, 9),
        };
        let ports = [u16::from_be_bytes(random.bytes()), u16::from_be_bytes(random.bytes())];
        let (mut frame, payload) = (Vec::new(), [0; 40]);
        let payload = &payload[..random.below(40)];
        match random.below(4) {
            0 => ip.udp(ports[0], ports[1]).write(&mut frame, payload).unwrap(),
            1 => ip.tcp(ports[0], ports[1], 7, 9).psh().ack(1).write(&mut frame, payload).unwrap(),
            2 => ip.tcp(ports[0], ports[1], 7, 9).syn().write(&mut frame, payload).unwrap(),
            _ if v6 => ip
                .icmpv6_raw(random.byte(), random.byte(), [0; 4])
                .write(&mut frame, payload)
                .unwrap(),
            _ => ip
                .icmpv4_raw(random.byte(), random.byte(), [0; 4])
                .write(&mut frame, payload)
                .unwrap(),
        }
        let headers = decoded(LinkType::ETHERNET, false, &frame);
        assert!(!headers.odd, "round {round}: {headers:?}");
        compare_with_etherparse(&frame, &headers);
    }
}

fn compare_with_etherparse(frame: &[u8], headers: &Headers) {
    let parsed = SlicedPacket::from_ethernet(frame).unwrap();
    let number = |bytes: &[u8]| bytes.iter().fold(0, |sum, &b| sum << 8 | u128::from(b));
    let Some(etherparse::LinkSlice::Ethernet2(link)) = &parsed.link else { panic!("no link") };
    assert_eq!(number(&link.destination()), headers.eth_dst.into());
    assert_eq!(number(&link.source()), headers.eth_src.into());
    let ids = parsed.vlan_ids();
    let ids = ids.iter().map(|id| id.value()).collect::<Vec<_>>();
    let encap = [Encap::None, Encap::Tag, Encap::TwoTags][ids.len()];
    let id = |i: usize| ids.get(i).copied().unwrap_or(0);
    assert_eq!((headers.encap, headers.vlan, headers.vlan_inner), (encap, id(0), id(1)));
    match parsed.net.as_ref().unwrap() {
        etherparse::NetSlice::Ipv4(ip) => {
            assert_eq!(headers.eth_type, ETHERTYPE_IPV4);
            let header = ip.header();
            assert_eq!(u32::from(header.source_addr()), headers.ip_src);
            assert_eq!(u32::from(header.destination_addr()), headers.ip_dst);
            assert_eq!((header.protocol().0, headers.proto), (headers.proto, headers.l4));
        }
        etherparse::NetSlice::Ipv6(ip) => {
            assert_eq!((headers.eth_type, headers.wide), (ETHERTYPE_IPV6, true));
            let header = ip.header();
            assert_eq!(u128::from(header.source_addr()), headers.ip6_src);
            assert_eq!(u128::from(header.destination_addr()), headers.ip6_dst);
            assert_eq!(header.next_header().0, headers.proto);
            assert_eq!(ip.payload().ip_number.0, headers.l4);
        }
        etherparse::NetSlice::Arp(_) => panic!("no ARP was made"),
    }
    let (ports, icmp) = match parsed.transport.as_ref().unwrap() {
        TransportSlice::Udp(udp) => ([udp.source_port(), udp.destination_port()], [0, 0]),
        TransportSlice::Tcp(tcp) => {
            let flags = [tcp.fin(), tcp.syn(), tcp.rst(), tcp.psh(), tcp.ack(), tcp.urg()];
            let flags = flags.iter().rev().fold(0, |sum, &flag| sum << 1 | u8::from(flag));
            assert_eq!(headers.tcp_flags, flags);
            ([tcp.source_port(), tcp.destination_port()], [0, 0])
        }
        TransportSlice::Icmpv4(icmp) => ([0, 0], [icmp.type_u8(), icmp.code_u8()]),
        TransportSlice::Icmpv6(icmp) => ([0, 0], [icmp.type_u8(), icmp.code_u8()]),
        other => panic!("{other:?} was not made"),
    };
    assert_eq!([headers.port_src, headers.port_dst], ports);
    assert_eq!([headers.icmp_type, headers.icmp_code], icmp);
}

#[test]
fn extension_headers_are_passed() {
    let (dns, tcp) = (frames::dns(), frames::tcp(0x12));
    let authentication = frames::join(&[&[17, 4], &[0; 22], &dns]);
    let long = frames::join(&[&[6, 2], &[0; 22], &tcp]);
    let extension = frames::extension;
    let fragment = frames::fragment6;
    let ports = |dst: u16| (PORTS[3], dst);
    let (udp_ports, tcp_ports) = (ports(PORTS[0]), ports(PORTS[1]));
    let cases = [
        (51, authentication, protocol::UDP, Fragment::Whole, udp_ports),
        (43, long, protocol::TCP, Fragment::Whole, tcp_ports),
        (0, extension(60, &extension(17, &dns)), protocol::UDP, Fragment::Whole, udp_ports),
        (135, extension(139, &extension(140, &extension(59, &dns))), 59, Fragment::Whole, (0, 0)),
        (44, fragment(17, 0, &dns), protocol::UDP, Fragment::Whole, udp_ports),
        (44, fragment(6, 1, &tcp), protocol::TCP, Fragment::First, tcp_ports),
        (44, fragment(6, 8, &tcp), protocol::TCP, Fragment::Later, (0, 0)),
        (44, fragment(60, 9, &extension(6, &tcp)), 60, Fragment::Later, (0, 0)),
        (60, extension(44, &fragment(17, 1, &dns)), protocol::UDP, Fragment::First, udp_ports),
        (0, extension(43, &[6, 1, 0, 0, 0, 0, 0, 0]), 43, Fragment::Whole, (0, 0)),
        (0, vec![], 0, Fragment::Whole, (0, 0)),
        (50, dns.clone(), 50, Fragment::Whole, (0, 0)),
    ];
    for (proto, payload, l4, fragment, (src, dst)) in cases {
        let headers = decoded(LinkType::IPV6, false, &frames::ip6(proto, &payload));
        let expected = (false, proto, l4, fragment, src, dst);
        let h = &headers;
        assert_eq!((h.odd, h.proto, h.l4, h.fragment, h.port_src, h.port_dst), expected);
        let flags = if l4 == protocol::TCP && src != 0 { 0x12 } else { 0 };
        assert_eq!(headers.tcp_flags, flags, "{headers:?}");
    }
    let icmp = frames::ip6(0, &extension(58, &[143, 7, 0, 0]));
    let headers = decoded(LinkType::RAW, false, &icmp);
    assert_eq!((headers.l4, headers.icmp_type, headers.icmp_code), (58, 143, 7));
}

#[test]
fn cooked_frames_have_a_source() {
    for link in [LinkType::LINUX_SLL, LinkType::LINUX_SLL2] {
        let frame = frames::framed(link, false, ETHERTYPE_ARP, &frames::arp()).unwrap();
        let headers = decoded(link, false, &frame);
        assert_eq!((headers.eth_src, headers.eth_dst), (MACS[0], 0), "{link}");
    }
}

/// A tunnel: its name, the protocol and payload of the packet that carries it, and what is to be
/// found: the kind, the id, and the packet inside.
type Carried = (&'static str, u8, Vec<u8>, Tunnel, u32, Inner);

fn tunnels() -> Vec<Carried> {
    let v4 = frames::ip4(protocol::TCP, &frames::tcp(2));
    let v6 = frames::ip6(protocol::UDP, &frames::dns());
    let far = frames::ip6(0, &frames::extension(protocol::UDP, &frames::dns()));
    let later = frames::ip4_with(protocol::UDP, 0, 5, &frames::dns());
    let in4 = Inner {
        eth_type: ETHERTYPE_IPV4,
        src: IPS[0].into(),
        dst: IPS[1].into(),
        l4: protocol::TCP,
        port_src: PORTS[3],
        port_dst: PORTS[1],
    };
    let in6 = Inner {
        eth_type: ETHERTYPE_IPV6,
        src: IP6S[0],
        dst: IP6S[1],
        l4: protocol::UDP,
        port_src: PORTS[3],
        port_dst: PORTS[0],
    };
    let in_later = Inner { l4: protocol::UDP, port_src: 0, port_dst: 0, ..in4 };
    let empty = Inner::default();
    let bridged = frames::eth(0x8100, &frames::tag(7, 0x86DD, &v6));
    let lldp = frames::eth(0x88CC, &[0; 20]);
    let gre = |flags, eth_type, fields: &[u32], payload: &[u8]| {
        frames::gre(flags, eth_type, fields, payload)
    };
    let extended = [0, 0, 0, 0x85, 1, 2, 3, 0x40, 1, 2, 3, 0];
    let mut no_id = frames::vxlan(9, &bridged);
    no_id[8] = 0;
    let mut echo = frames::gtp(0, 5, &[], &v4);
    echo[9] = 1;
    vec![
        ("4 in 4", 4, v4.clone(), Tunnel::Ip, 0, in4),
        ("6 in 4", 41, v6.clone(), Tunnel::Ip, 0, in6),
        ("6 in 4, far", 41, far, Tunnel::Ip, 0, in6),
        ("4 in 4, later", 4, later, Tunnel::Ip, 0, in_later),
        ("4 in 4, not 4", 4, v6.clone(), Tunnel::None, 0, empty),
        ("6 in 4, cut", 41, v6[..39].to_vec(), Tunnel::None, 0, empty),
        ("gre", 47, gre(0, 0x800, &[], &v4), Tunnel::Gre, 0, in4),
        ("gre key", 47, gre(0x2000, 0x86DD, &[0xABCD_EF01], &v6), Tunnel::Gre, 0xABCD_EF01, in6),
        ("gre all", 47, gre(0xB000, 0x800, &[0, 8, 1], &v4), Tunnel::Gre, 8, in4),
        ("gre sum", 47, gre(0x9000, 0x6558, &[0, 1], &bridged), Tunnel::Gre, 0, in6),
        ("gre cut", 47, gre(0x3000, 0x800, &[7], &[]), Tunnel::None, 0, empty),
        ("gre other", 47, gre(0x2000, 0x88CC, &[7], &[1, 2, 3]), Tunnel::Gre, 7, empty),
        ("pptp", 47, gre(0x2001, 0x880B, &[7], &v4), Tunnel::None, 0, empty),
        ("vxlan", 17, frames::vxlan(0xABCDEF, &bridged), Tunnel::Vxlan, 0xABCDEF, in6),
        ("vxlan other", 17, frames::vxlan(9, &lldp), Tunnel::Vxlan, 9, empty),
        ("vxlan without id", 17, no_id, Tunnel::None, 0, empty),
        ("gtp", 17, frames::gtp(0, 0xFEDC_BA98, &[], &v4), Tunnel::Gtp, 0xFEDC_BA98, in4),
        ("gtp number", 17, frames::gtp(2, 1, &[0, 9, 0, 0x85], &v6), Tunnel::Gtp, 1, in6),
        ("gtp extended", 17, frames::gtp(4, 1, &extended, &v4), Tunnel::Gtp, 1, in4),
        ("gtp endless", 17, frames::gtp(4, 1, &[0, 0, 0, 1, 0], &v4), Tunnel::None, 0, empty),
        ("gtp echo", 17, echo, Tunnel::None, 0, empty),
    ]
}

#[test]
fn tunnels_are_entered() {
    for (name, proto, payload, tunnel, id, inner) in tunnels() {
        let outer4 = frames::eth(ETHERTYPE_IPV4, &frames::ip4(proto, &payload));
        let outer6 = frames::ip6(60, &frames::extension(proto, &payload));
        let outer6 = frames::eth(0x8100, &frames::tag(1, ETHERTYPE_IPV6, &outer6));
        for frame in [outer4, outer6] {
            let headers = decoded(LinkType::ETHERNET, false, &frame);
            let got = (headers.tunnel, headers.tunnel_id, headers.inner);
            assert_eq!(got, (tunnel, id, inner), "{name}");
            assert!(!headers.odd, "{name}");
            assert_eq!(
                headers.wide,
                tunnel != Tunnel::None || headers.eth_type == ETHERTYPE_IPV6,
                "{name}"
            );
        }
        let later = frames::eth(ETHERTYPE_IPV4, &frames::ip4_with(proto, 0, 3, &payload));
        assert!(!decoded(LinkType::ETHERNET, false, &later).wide, "{name}");
    }
}

#[test]
fn wireshark_enters_the_same_tunnels() {
    let tunnels = tunnels();
    let frames = tunnels
        .iter()
        .map(|(_, proto, payload, ..)| frames::eth(ETHERTYPE_IPV4, &frames::ip4(*proto, payload)));
    let file = rules::file(LinkType::ETHERNET, false, &frames.collect::<Vec<_>>());
    let fields = "gre.key vxlan.vni gtp.teid ip.src ipv6.src tcp.srcport udp.srcport \
                  udp.dstport tcp.dstport";
    let mut command = Command::new("tshark");
    command.args(["-n", "-r"]).arg(file.path()).args(["-T", "fields", "-E", "separator=;"]);
    command.args(fields.split_whitespace().flat_map(|field| ["-e", field]));
    // Without Wireshark there is nothing to compare with.
    let Ok(output) = command.output() else { return };
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(text.lines().count(), tunnels.len());
    for (line, (name, _, _, tunnel, id, inner)) in text.lines().zip(&tunnels) {
        let columns = line.split(';').collect::<Vec<_>>();
        let last = |column: usize| columns[column].split(',').next_back().unwrap();
        let number = |text: &str| match text.strip_prefix("0x") {
            Some(digits) => u32::from_str_radix(digits, 16).unwrap(),
            None => text.parse().unwrap_or(0),
        };
        let id_column = match tunnel {
            Tunnel::None => continue,
            Tunnel::Ip => None,
            Tunnel::Gre => Some(0),
            Tunnel::Vxlan => Some(1),
            Tunnel::Gtp => Some(2),
        };
        assert_eq!(*id, id_column.map_or(0, |column| number(last(column))), "{name}: {line}");
        match inner.eth_type {
            ETHERTYPE_IPV4 => {
                let ip = last(3).parse::<std::net::Ipv4Addr>().unwrap();
                assert_eq!(inner.src, u32::from(ip).into(), "{name}: {line}");
            }
            ETHERTYPE_IPV6 => {
                let ip = last(4).parse::<std::net::Ipv6Addr>().unwrap();
                assert_eq!(inner.src, u128::from(ip), "{name}: {line}");
            }
            _ => continue,
        }
        let [src, dst] = if inner.l4 == protocol::TCP { [5, 8] } else { [6, 7] };
        if inner.port_src != 0 {
            let ports = [number(last(src)), number(last(dst))];
            assert_eq!(ports, [inner.port_src, inner.port_dst].map(u32::from), "{name}: {line}");
        }
    }
}

/// The most frequent of some values.
fn frequent<T: Copy + Eq + Hash + Ord>(values: impl Iterator<Item = T>, most: usize) -> Vec<T> {
    let mut counts = HashMap::new();
    values.for_each(|value| *counts.entry(value).or_insert(0_u32) += 1);
    let mut values = counts.into_iter().map(|(value, n)| (n, value)).collect::<Vec<_>>();
    values.sort_unstable_by(|a, b| b.cmp(a));
    values.into_iter().map(|(_, value)| value).take(most).collect()
}

fn occurring(headers: &[Headers]) -> Values {
    let each = |most, pick: fn(&Headers) -> u32| {
        let values = frequent(headers.iter().map(pick), most).into_iter();
        values.map(|value| u16::try_from(value).unwrap()).collect::<Vec<_>>()
    };
    let byte = |value: u16| u8::try_from(value).unwrap();
    let tpids = [0x8100, 0x88A8, 0x9100];
    let type_asked = |eth_type: &u16| *eth_type > 1500 && !tpids.contains(eth_type);
    let ips = headers.iter().flat_map(|h| [h.ip_src, h.ip_dst]);
    let ip6s = headers.iter().filter(|h| h.wide).flat_map(|h| [h.ip6_src, h.ip6_dst]);
    let macs = headers.iter().flat_map(|h| [h.eth_src, h.eth_dst]);
    Values {
        types: each(10, |h| h.eth_type.into()).into_iter().filter(type_asked).collect(),
        protos: each(6, |h| h.proto.into()).into_iter().map(byte).collect(),
        ips: frequent(ips, 4),
        ip6s: frequent(ip6s, 2),
        macs: frequent(macs, 3),
        ports: [each(2, |h| h.port_src.into()), each(2, |h| h.port_dst.into())].concat(),
        vlans: each(3, |h| h.vlan.into()),
        labels: frequent(headers.iter().map(|h| h.mpls), 2),
        icmps: each(2, |h| h.icmp_type.into()).into_iter().map(byte).collect(),
        bits: false,
    }
}

/// Every capture of a folder laid out like that of the traces, unpacked where need be.
fn captures(traces: &Path, room: &Path) -> Vec<PathBuf> {
    let list = |name: &str| {
        let entries = std::fs::read_dir(traces.join(name)).into_iter().flatten();
        let mut paths = entries.map(|entry| entry.unwrap().path()).collect::<Vec<_>>();
        paths.sort();
        paths
    };
    let mut all = [list("zoo"), list("zoo-derived")].concat();
    for packed in list("large").into_iter().filter(|path| path.extension() == Some("zst".as_ref()))
    {
        let target = room.join(packed.file_stem().unwrap());
        let mut file = std::fs::File::create(&target).unwrap();
        zstd::stream::copy_decode(std::fs::File::open(&packed).unwrap(), &mut file).unwrap();
        all.push(target);
    }
    all
}

/// Whether the numbers of a capture file have the other byte order than this machine.
fn is_swapped(path: &Path) -> bool {
    let bytes = std::fs::read(path).unwrap();
    let big = match bytes.get(..4) {
        Some([0x0A, 0x0D, 0x0D, 0x0A]) => bytes.get(8) == Some(&0x1A),
        Some([0xA1, ..]) => true,
        _ => false,
    };
    big != cfg!(target_endian = "big")
}

#[test]
fn real_captures_are_what_libpcap_says() {
    let Some(traces) = std::env::var_os("TAPDEX_TRACES").map(PathBuf::from) else { return };
    let room = tempfile::tempdir().unwrap();
    let mut total = [0_usize; 3];
    for path in captures(&traces, room.path()) {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let Ok(mut capture) = Capture::from_file(&path) else { continue };
        // In files raw frames have another number than in libpcap.
        let link = match capture.get_datalink().0 {
            12 => LinkType::RAW,
            other => LinkType(u16::try_from(other).unwrap()),
        };
        let swapped = is_swapped(&path);
        let mut frames = Vec::new();
        while let Ok(packet) = capture.next_packet() {
            frames.push(packet.data.to_vec());
        }
        let headers = frames.iter().map(|frame| decoded(link, swapped, frame)).collect::<Vec<_>>();
        let odd = headers.iter().filter(|headers| headers.odd).count();
        total = [total[0] + 1, total[1] + frames.len(), total[2] + odd];
        if odd > 0 {
            println!("{name}: {link}, {odd} of {} packets odd", frames.len());
        }
        if link.name().is_none() || odd == frames.len() {
            continue;
        }
        let questions = questions(link, swapped, &occurring(&headers));
        for (frame, headers) in frames.iter().zip(&headers).filter(|(_, headers)| !headers.odd) {
            questions.iter().for_each(|question| question.check(&name, frame, headers));
        }
    }
    println!("{} captures, {} packets, {} odd", total[0], total[1], total[2]);
    assert!(total[0] > 0, "no capture in {}", traces.display());
}
