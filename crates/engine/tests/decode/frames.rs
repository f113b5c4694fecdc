//! Frames made by hand: of every kind that the decoder knows, and of some that it does not.

use tapdex_engine::packet::LinkType;

/// Addresses, ports and ids that the frames have, so that filters can ask for them.
pub(crate) const IPS: [u32; 4] = [0x0A00_0001, 0x0A00_0102, 0xE000_0005, 0xC0A8_FFFE];
pub(crate) const IP6S: [u128; 3] = [
    0x2001_0db8_0000_0000_0000_0000_0000_0001,
    0x2001_0db8_0000_0001_a5a5_0000_0000_0002,
    0xff02_0000_0000_0000_0000_0000_0000_0016,
];
pub(crate) const PORTS: [u16; 5] = [53, 443, 2048, 40000, 33024];
pub(crate) const MACS: [u64; 3] = [0x0200_0000_0001, 0x0200_0000_0002, 0xFFFF_FFFF_FFFF];
pub(crate) const VLANS: [u16; 3] = [0, 5, 0xFFE];
pub(crate) const LABELS: [u32; 2] = [16, 0xABCDE];

/// Bytes one after the other.
pub(crate) fn join(parts: &[&[u8]]) -> Vec<u8> {
    parts.concat()
}

/// An Ethernet frame.
pub(crate) fn eth(eth_type: u16, payload: &[u8]) -> Vec<u8> {
    let macs = [MACS[0], MACS[1]].map(u64::to_be_bytes);
    join(&[&macs[0][2..], &macs[1][2..], &eth_type.to_be_bytes(), payload])
}

/// What a tag puts behind its own type.
pub(crate) fn tag(id: u16, eth_type: u16, payload: &[u8]) -> Vec<u8> {
    join(&[&(0x6000 | id).to_be_bytes(), &eth_type.to_be_bytes(), payload])
}

/// An IPv4 packet with options of so many words; `fragment` is the word with flags and offset.
pub(crate) fn ip4_with(proto: u8, words: u8, fragment: u16, payload: &[u8]) -> Vec<u8> {
    let options = vec![1; 4 * usize::from(words)];
    let len = u16::try_from(20 + options.len() + payload.len()).unwrap();
    join(&[
        &[0x45 + words, 0],
        &len.to_be_bytes(),
        &[0, 1],
        &fragment.to_be_bytes(),
        &[64, proto, 0, 0],
        &IPS[0].to_be_bytes(),
        &IPS[1].to_be_bytes(),
        &options,
        payload,
    ])
}

pub(crate) fn ip4(proto: u8, payload: &[u8]) -> Vec<u8> {
    ip4_with(proto, 0, 0x4000, payload)
}

pub(crate) fn ip6(next: u8, payload: &[u8]) -> Vec<u8> {
    let len = u16::try_from(payload.len()).unwrap();
    join(&[
        &[0x60, 0, 0, 1],
        &len.to_be_bytes(),
        &[next, 64],
        &IP6S[0].to_be_bytes(),
        &IP6S[1].to_be_bytes(),
        payload,
    ])
}

pub(crate) fn tcp(flags: u8) -> Vec<u8> {
    let ports = [PORTS[3], PORTS[1]].map(u16::to_be_bytes);
    join(&[&ports[0], &ports[1], &[0, 0, 0, 1, 0, 0, 0, 2, 0x50, flags, 1, 0, 0, 0, 0, 0]])
}

pub(crate) fn udp(src: u16, dst: u16, payload: &[u8]) -> Vec<u8> {
    let len = u16::try_from(8 + payload.len()).unwrap();
    let [src, dst, len] = [src, dst, len].map(u16::to_be_bytes);
    join(&[&src, &dst, &len, &[0, 0], payload])
}

pub(crate) fn dns() -> Vec<u8> {
    udp(PORTS[3], PORTS[0], b"question")
}

/// An extension header of IPv6, eight bytes long.
pub(crate) fn extension(next: u8, payload: &[u8]) -> Vec<u8> {
    join(&[&[next, 0, 1, 4, 0, 0, 0, 0], payload])
}

/// A fragment header; the word has the offset and the flag for more.
pub(crate) fn fragment6(next: u8, word: u16, payload: &[u8]) -> Vec<u8> {
    join(&[&[next, 0], &word.to_be_bytes(), &[0, 0, 0, 9], payload])
}

/// GRE with the optional fields that the flags announce, each four bytes.
pub(crate) fn gre(flags: u16, eth_type: u16, fields: &[u32], payload: &[u8]) -> Vec<u8> {
    let fields = fields.iter().flat_map(|field| field.to_be_bytes()).collect::<Vec<_>>();
    join(&[&flags.to_be_bytes(), &eth_type.to_be_bytes(), &fields, payload])
}

pub(crate) fn vxlan(vni: u32, frame: &[u8]) -> Vec<u8> {
    udp(50000, 4789, &join(&[&[8, 0, 0, 0], &(vni << 8).to_be_bytes(), frame]))
}

/// GTP-U with a packet; `options` stands behind the fixed part.
pub(crate) fn gtp(flags: u8, teid: u32, options: &[u8], packet: &[u8]) -> Vec<u8> {
    let len = u16::try_from(options.len() + packet.len()).unwrap().to_be_bytes();
    udp(2152, 2152, &join(&[&[0x30 | flags, 255], &len, &teid.to_be_bytes(), options, packet]))
}

pub(crate) fn arp() -> Vec<u8> {
    let macs = [MACS[1], 0].map(u64::to_be_bytes);
    let ips = [IPS[0], IPS[1]].map(u32::to_be_bytes);
    join(&[&[0, 1, 8, 0, 6, 4, 0, 1], &macs[0][2..], &ips[0], &macs[1][2..], &ips[1]])
}

/// Network headers by type, with a name, and whether a frame with one is odd when it is whole.
pub(crate) fn payloads() -> Vec<(&'static str, u16, Vec<u8>, bool)> {
    let pad = [0; 30];
    let inner = ip4(6, &tcp(0x10));
    let snap = |tail: &[u8]| join(&[&[0xAA, 0xAA, 3], tail, &pad]);
    vec![
        ("tcp", 0x800, ip4(6, &tcp(0x12)), false),
        ("tcp, padded", 0x800, join(&[&ip4(6, &tcp(0x10)), &pad]), false),
        ("udp", 0x800, ip4(17, &dns()), false),
        ("sctp", 0x800, ip4(132, &udp(PORTS[2], PORTS[4], &pad)), false),
        ("icmp", 0x800, ip4(1, &[8, 0, 1, 2, 3, 4, 5, 6]), false),
        ("igmp", 0x800, ip4_with(2, 1, 0, &[0x16, 0, 1, 2, 224, 0, 0, 5]), false),
        ("options", 0x800, ip4_with(6, 3, 0, &tcp(2)), false),
        ("all options", 0x800, ip4_with(17, 10, 0, &dns()), false),
        ("first fragment", 0x800, ip4_with(17, 0, 0x2000, &dns()), false),
        ("later fragment", 0x800, ip4_with(17, 0, 0x20B9, &pad), false),
        ("last fragment", 0x800, ip4_with(6, 0, 0xB9, &[1, 2, 3]), false),
        ("later icmp", 0x800, ip4_with(1, 0, 1, &[]), false),
        ("ospf", 0x800, ip4(89, &pad), false),
        ("esp", 0x800, ip4(50, &pad), false),
        ("ip in ip", 0x800, ip4(4, &inner), false),
        ("6 in 4", 0x800, ip4(41, &ip6(17, &dns())), false),
        ("gre", 0x800, ip4(47, &gre(0x2000, 0x800, &[7], &inner)), false),
        ("vxlan", 0x800, ip4(17, &vxlan(99, &eth(0x800, &inner))), false),
        ("gtp", 0x800, ip4(17, &gtp(0, 5, &[], &inner)), false),
        ("short header", 0x800, join(&[&[0x44], &ip4(6, &tcp(2))[1..]]), true),
        ("wrong version", 0x800, join(&[&[0x65], &ip4(6, &tcp(2))[1..]]), false),
        ("tcp6", 0x86DD, ip6(6, &tcp(0x11)), false),
        ("udp6", 0x86DD, ip6(17, &dns()), false),
        ("sctp6", 0x86DD, ip6(132, &udp(PORTS[2], PORTS[4], &pad)), false),
        ("icmp6", 0x86DD, ip6(58, &[135, 0, 1, 2, 3, 4, 5, 6]), false),
        ("icmp in 6", 0x86DD, ip6(1, &[8, 0, 1, 2]), false),
        ("mld", 0x86DD, ip6(0, &extension(58, &[143, 0, 1, 2])), false),
        ("extensions", 0x86DD, ip6(0, &extension(43, &extension(60, &[6, 0]))), false),
        ("tcp far", 0x86DD, ip6(0, &extension(60, &extension(6, &tcp(2)))), false),
        ("ah", 0x86DD, ip6(51, &join(&[&[17, 4], &[0; 22], &dns()])), false),
        ("fragment6", 0x86DD, ip6(44, &fragment6(17, 1, &dns())), false),
        ("atomic6", 0x86DD, ip6(44, &fragment6(58, 0, &[128, 3])), false),
        ("later6", 0x86DD, ip6(44, &fragment6(6, 0xB8, &pad)), false),
        ("far fragment", 0x86DD, ip6(60, &extension(44, &fragment6(17, 8, &dns()))), false),
        ("hidden", 0x86DD, ip6(44, &fragment6(60, 1, &extension(17, &dns()))), true),
        ("nothing6", 0x86DD, ip6(59, &[]), false),
        ("6 in 6", 0x86DD, ip6(41, &ip6(6, &tcp(4))), false),
        ("vxlan6", 0x86DD, ip6(17, &vxlan(3, &eth(0x86DD, &ip6(17, &dns())))), false),
        ("version 4 in 6", 0x86DD, join(&[&[0x45], &ip6(6, &tcp(0x11))[1..]]), false),
        ("arp", 0x806, arp(), false),
        ("rarp", 0x8035, join(&[&arp(), &pad]), false),
        ("lldp", 0x88CC, pad.to_vec(), false),
        ("pppoe", 0x8864, join(&[&[0x11, 0, 0, 1, 0, 30, 0, 0x21], &inner]), false),
        ("appletalk", 0x809B, pad.to_vec(), false),
        ("nothing", 0x88B5, vec![], false),
        ("802.3", 38, join(&[&[0x42, 0x42, 3], &pad]), false),
        ("802.3, longest", 1500, join(&[&[0xE0, 0xE0, 3], &pad]), false),
        ("cooked 802.2", 4, join(&[&[0x42, 0x42, 3], &pad]), false),
        ("first type", 1501, pad.to_vec(), false),
        ("snap", 60, snap(&[0, 0, 12, 0x20, 0]), false),
        ("snap ip", 60, snap(&[0, 0, 0, 8, 0]), false),
    ]
}

/// Frames of Ethernet alone, with and without tags.
pub(crate) fn ethernet_only() -> Vec<(&'static str, Vec<u8>, bool)> {
    let pad = [0; 30];
    let snap = |tail: &[u8]| join(&[&[0xAA, 0xAA, 3], tail, &pad]);
    let label = |label: u32, bottom: u32| (label << 12 | bottom << 8 | 64).to_be_bytes();
    let mpls = join(&[&label(LABELS[0], 1), &ip4(6, &tcp(2))]);
    let stack = join(&[&label(LABELS[1], 0), &label(3, 1), &ip6(6, &tcp(2))]);
    vec![
        ("mpls", eth(0x8847, &mpls), false),
        ("mpls stack", eth(0x8847, &stack), false),
        ("tag, mpls", eth(0x8100, &tag(5, 0x8847, &stack)), false),
        ("two tags, mpls", eth(0x88A8, &tag(5, 0x8100, &tag(0, 0x8847, &mpls))), true),
        ("snap appletalk", eth(60, &snap(&[8, 0, 7, 0x80, 0x9B])), true),
        ("snap aarp", eth(60, &snap(&[0, 0, 0, 0x80, 0xF3])), true),
        ("tag, aarp", eth(0x8100, &tag(5, 60, &snap(&[0, 0, 0, 0x80, 0xF3]))), true),
        (
            "three tags",
            eth(0x8100, &tag(5, 0x8100, &tag(5, 0x9100, &tag(5, 0x800, &ip4(6, &tcp(2)))))),
            true,
        ),
    ]
}

/// The same payload as a frame of each link, if the link can have it.
pub(crate) fn framed(
    link: LinkType,
    swapped: bool,
    eth_type: u16,
    payload: &[u8],
) -> Option<Vec<u8>> {
    let family = |v6: u32| match eth_type {
        0x800 => 2_u32,
        0x86DD => v6,
        _ => 7,
    };
    let head = match link {
        LinkType::ETHERNET => return Some(eth(eth_type, payload)),
        LinkType::LINUX_SLL => {
            join(&[&[0, 0, 0, 1, 0, 6, 2, 0, 0, 0, 0, 1, 9, 9], &eth_type.to_be_bytes()])
        }
        LinkType::LINUX_SLL2 => join(&[
            &eth_type.to_be_bytes(),
            &[0, 0, 0, 0, 0, 3, 0, 1, 0, 6, 2, 0, 0, 0, 0, 1, 9, 9],
        ]),
        LinkType::NULL if swapped == cfg!(target_endian = "big") => {
            let v6 = [24, 28, 30][payload.len() % 3];
            family(v6).to_le_bytes().to_vec()
        }
        LinkType::NULL | LinkType::LOOP => {
            let v6 = [24, 28, 30][payload.len() % 3];
            family(v6).to_be_bytes().to_vec()
        }
        LinkType::RAW | LinkType::IPV4 | LinkType::IPV6 => vec![],
        _ => return None,
    };
    Some(join(&[&head, payload]))
}
