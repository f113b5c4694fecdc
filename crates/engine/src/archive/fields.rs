//! The fields of a segment, and the flows that have them.
//!
//! Of a packet the index keeps its *flow*, which is all that the packets of a flow have in common,
//! and two bytes of its own: the TCP flags and the class of its length. A flow is six words, in the
//! order in which flows are sorted; what few packets have, IPv6 and inner packets, lies in a second
//! table, and the flow has its number.

use crate::index::Width;
use crate::packet::Headers;

/// What the packets of a flow have in common.
///
/// ```text
/// 0  interface 16 | encap 8 | odd 8 | EtherType 16 | fragment 8 | protocol 8
/// 1  source 32 | destination 32
/// 2  number of the wide part 32 | source port 16 | destination port 16
/// 3  source MAC 48 | VLAN id 16
/// 4  destination MAC 48 | inner VLAN id 16
/// 5  transport 8 | ICMP type 8 | ICMP code 8 | 0 8 | MPLS label 32
/// ```
pub(super) type Narrow = [u64; 6];

/// What few packets have: IPv6 addresses, tunnel, inner packet.
///
/// ```text
/// 0, 1  IPv6 source      4  tunnel 8 | 0 24 | tunnel id 32      5, 6  inner source
/// 2, 3  IPv6 destination 9  inner EtherType 16 | transport 8    7, 8  inner destination
///                           | 0 8 | source port 16 | destination port 16
/// ```
pub(super) type Wide = [u64; 10];

/// Numbers start with 1; 0 says that there is no wide part.
pub(super) fn narrow(headers: &Headers, interface: u16) -> Narrow {
    [
        u64::from(interface) << 48
            | u64::from(headers.encap as u8) << 40
            | u64::from(headers.odd) << 32
            | u64::from(headers.eth_type) << 16
            | u64::from(headers.fragment as u8) << 8
            | u64::from(headers.proto),
        u64::from(headers.ip_src) << 32 | u64::from(headers.ip_dst),
        u64::from(headers.port_src) << 16 | u64::from(headers.port_dst),
        headers.eth_src << 16 | u64::from(headers.vlan),
        headers.eth_dst << 16 | u64::from(headers.vlan_inner),
        u64::from(headers.l4) << 56
            | u64::from(headers.icmp_type) << 48
            | u64::from(headers.icmp_code) << 40
            | u64::from(headers.mpls),
    ]
}

/// Whether the headers of a flow are odd.
pub(super) fn is_odd(key: &Narrow) -> bool {
    key[0] >> 32 & 1 == 1
}

/// The high and the low half.
fn halves(number: u128) -> [u64; 2] {
    let half = |bits: u128| u64::try_from(bits & u128::from(u64::MAX)).unwrap_or(0);
    [half(number >> 64), half(number)]
}

pub(super) fn wide(headers: &Headers) -> Wide {
    let inner = &headers.inner;
    let [[s1, s0], [d1, d0]] = [halves(headers.ip6_src), halves(headers.ip6_dst)];
    let [[is1, is0], [id1, id0]] = [halves(inner.src), halves(inner.dst)];
    [
        s1,
        s0,
        d1,
        d0,
        u64::from(headers.tunnel as u8) << 56 | u64::from(headers.tunnel_id),
        is1,
        is0,
        id1,
        id0,
        u64::from(inner.eth_type) << 48
            | u64::from(inner.l4) << 40
            | u64::from(inner.port_src) << 16
            | u64::from(inner.port_dst),
    ]
}

/// Where a digit of a field is found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// In a word of the flow, so many bits from its low end.
    Narrow(usize, u32),
    /// In a word of the flow's wide part.
    Wide(usize, u32),
    /// The flags of TCP, which every packet has for itself.
    TcpFlags,
    /// The class of the packet's length.
    LengthClass,
}

/// A field of a segment: its name and where its digits are, the most significant first.
#[derive(Debug, Clone, Copy)]
pub(super) struct FieldPlace {
    pub(super) name: &'static str,
    pub(super) width: Width,
    pub(super) digits: &'static [Place],
}

/// Digits of eight bits, in words that follow each other.
macro_rules! bytes {
    ($kind:ident: $($word:literal @ $($shift:literal)+),+) => {
        &[$($(Place::$kind($word, $shift)),+),+]
    };
}

/// Names of fields, as the index file has them.
pub mod names {
    /// The interface, by its number in the capture.
    pub const INTERFACE: &str = "iface";
    /// What stands before the network header: [`Encap`](crate::packet::Encap).
    pub const ENCAP: &str = "encap";
    /// Whether filters have to see the frame.
    pub const ODD: &str = "odd";
    /// The EtherType.
    pub const ETH_TYPE: &str = "eth.type";
    /// Whether it is a fragment: [`Fragment`](crate::packet::Fragment).
    pub const FRAGMENT: &str = "fragment";
    /// The protocol in the IP header.
    pub const IP_PROTO: &str = "ip.proto";
    /// IPv4 source.
    pub const IP_SRC: &str = "ip.src";
    /// IPv4 destination.
    pub const IP_DST: &str = "ip.dst";
    /// Source port.
    pub const PORT_SRC: &str = "port.src";
    /// Destination port.
    pub const PORT_DST: &str = "port.dst";
    /// Source MAC address.
    pub const ETH_SRC: &str = "eth.src";
    /// Destination MAC address.
    pub const ETH_DST: &str = "eth.dst";
    /// VLAN id.
    pub const VLAN: &str = "vlan";
    /// VLAN id of the second tag.
    pub const VLAN_INNER: &str = "vlan.inner";
    /// The protocol behind all extension headers.
    pub const L4: &str = "l4";
    /// Type of ICMP or ICMPv6.
    pub const ICMP_TYPE: &str = "icmp.type";
    /// Code of ICMP or ICMPv6.
    pub const ICMP_CODE: &str = "icmp.code";
    /// MPLS label.
    pub const MPLS: &str = "mpls";
    /// IPv6 source.
    pub const IP6_SRC: &str = "ip6.src";
    /// IPv6 destination.
    pub const IP6_DST: &str = "ip6.dst";
    /// What carries the inner packet: [`Tunnel`](crate::packet::Tunnel).
    pub const TUNNEL: &str = "tunnel";
    /// The tunnel's id.
    pub const TUNNEL_ID: &str = "tunnel.id";
    /// EtherType of the inner packet.
    pub const INNER_TYPE: &str = "inner.type";
    /// Source of the inner packet.
    pub const INNER_SRC: &str = "inner.src";
    /// Destination of the inner packet.
    pub const INNER_DST: &str = "inner.dst";
    /// Transport protocol of the inner packet.
    pub const INNER_L4: &str = "inner.l4";
    /// Source port of the inner packet.
    pub const INNER_PORT_SRC: &str = "inner.port.src";
    /// Destination port of the inner packet.
    pub const INNER_PORT_DST: &str = "inner.port.dst";
    /// The flags of TCP.
    pub const TCP_FLAGS: &str = "tcp.flags";
    /// The class of the length: [`length_class`](super::length_class).
    pub const LENGTH: &str = "length";
}

/// A row of [`FIELDS`].
const fn field(name: &'static str, width: Width, digits: &'static [Place]) -> FieldPlace {
    FieldPlace { name, width, digits }
}

/// All fields, in the order in which they are written. One that is 0 in all rows is left out.
pub(super) const FIELDS: [FieldPlace; 30] = {
    use Width::{Byte, Short};
    use names::*;
    [
        field(INTERFACE, Short, &[Place::Narrow(0, 48)]),
        field(ENCAP, Byte, &[Place::Narrow(0, 40)]),
        field(ODD, Byte, &[Place::Narrow(0, 32)]),
        field(ETH_TYPE, Short, &[Place::Narrow(0, 16)]),
        field(FRAGMENT, Byte, &[Place::Narrow(0, 8)]),
        field(IP_PROTO, Byte, &[Place::Narrow(0, 0)]),
        field(IP_SRC, Byte, bytes!(Narrow: 1 @ 56 48 40 32)),
        field(IP_DST, Byte, bytes!(Narrow: 1 @ 24 16 8 0)),
        field(PORT_SRC, Short, &[Place::Narrow(2, 16)]),
        field(PORT_DST, Short, &[Place::Narrow(2, 0)]),
        field(ETH_SRC, Byte, bytes!(Narrow: 3 @ 56 48 40 32 24 16)),
        field(ETH_DST, Byte, bytes!(Narrow: 4 @ 56 48 40 32 24 16)),
        field(VLAN, Short, &[Place::Narrow(3, 0)]),
        field(VLAN_INNER, Short, &[Place::Narrow(4, 0)]),
        field(L4, Byte, &[Place::Narrow(5, 56)]),
        field(ICMP_TYPE, Byte, &[Place::Narrow(5, 48)]),
        field(ICMP_CODE, Byte, &[Place::Narrow(5, 40)]),
        field(MPLS, Byte, bytes!(Narrow: 5 @ 16 8 0)),
        field(IP6_SRC, Byte, bytes!(Wide: 0 @ 56 48 40 32 24 16 8 0, 1 @ 56 48 40 32 24 16 8 0)),
        field(IP6_DST, Byte, bytes!(Wide: 2 @ 56 48 40 32 24 16 8 0, 3 @ 56 48 40 32 24 16 8 0)),
        field(TUNNEL, Byte, &[Place::Wide(4, 56)]),
        field(TUNNEL_ID, Byte, bytes!(Wide: 4 @ 24 16 8 0)),
        field(INNER_TYPE, Short, &[Place::Wide(9, 48)]),
        field(INNER_SRC, Byte, bytes!(Wide: 5 @ 56 48 40 32 24 16 8 0, 6 @ 56 48 40 32 24 16 8 0)),
        field(INNER_DST, Byte, bytes!(Wide: 7 @ 56 48 40 32 24 16 8 0, 8 @ 56 48 40 32 24 16 8 0)),
        field(INNER_L4, Byte, &[Place::Wide(9, 40)]),
        field(INNER_PORT_SRC, Short, &[Place::Wide(9, 16)]),
        field(INNER_PORT_DST, Short, &[Place::Wide(9, 0)]),
        field(TCP_FLAGS, Byte, &[Place::TcpFlags]),
        field(LENGTH, Byte, &[Place::LengthClass]),
    ]
};

/// The names of all fields that a segment can have.
pub fn field_names() -> impl Iterator<Item = &'static str> {
    FIELDS.iter().map(|field| field.name)
}

/// The shortest length of the second class, as a power of two.
const LENGTH_BITS_MIN: u32 = 4;
/// Classes between a length and its double, as a power of two.
const CLASS_BITS: u32 = 2;

/// The class of a length on the wire: four classes between a length and its double. Lengths below
/// 16 are one class.
///
/// ```
/// use tapdex_engine::archive::{length_class, length_class_start};
///
/// assert_eq!(length_class(1500), length_class(1280));
/// assert!(length_class(1500) < length_class(1536));
/// assert_eq!(length_class_start(length_class(1500)), 1280);
/// ```
pub fn length_class(len: u32) -> u8 {
    let Some(octave) = len.checked_ilog2().filter(|&octave| octave >= LENGTH_BITS_MIN) else {
        return 0;
    };
    let quarter = len >> (octave - CLASS_BITS) & ((1 << CLASS_BITS) - 1);
    u8::try_from(((octave - LENGTH_BITS_MIN) << CLASS_BITS) + quarter + 1).unwrap_or(u8::MAX)
}

/// The least length of a class; 2^32 of one that does not occur.
pub fn length_class_start(class: u8) -> u64 {
    let Some(class) = u32::from(class).checked_sub(1) else {
        return 0;
    };
    let octave = LENGTH_BITS_MIN + (class >> CLASS_BITS);
    let quarter = class & ((1 << CLASS_BITS) - 1);
    if octave >= 32 {
        return 1 << 32;
    }
    u64::from((1 << CLASS_BITS) + quarter) << (octave - CLASS_BITS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_class_starts_where_the_one_before_ends() {
        for len in (0..70_000).chain([1 << 20, (1 << 24) - 1, u32::MAX - 1, u32::MAX]) {
            let class = length_class(len);
            assert!(length_class_start(class) <= u64::from(len), "{len}");
            assert!(u64::from(len) < length_class_start(class + 1), "{len}");
        }
        assert_eq!(length_class_start(length_class(u32::MAX) + 1), 1 << 32);
    }

    #[test]
    fn every_bit_of_the_headers_is_in_one_digit() {
        let mut narrow = [0_u64; 6];
        let mut wide = [0_u64; 10];
        for field in FIELDS {
            for &place in field.digits {
                let mask = (1_u64 << field.width.bits()) - 1;
                let (word, shift) = match place {
                    Place::Narrow(word, shift) => (&mut narrow[word], shift),
                    Place::Wide(word, shift) => (&mut wide[word], shift),
                    Place::TcpFlags | Place::LengthClass => continue,
                };
                assert_eq!(*word & mask << shift, 0, "{} overlaps", field.name);
                *word |= mask << shift;
            }
        }
        let full = Headers {
            odd: true,
            encap: crate::packet::Encap::TagsMpls,
            eth_dst: (1 << 48) - 1,
            eth_src: (1 << 48) - 1,
            eth_type: u16::MAX,
            vlan: u16::MAX,
            vlan_inner: u16::MAX,
            mpls: (1 << 20) - 1,
            ip_src: u32::MAX,
            ip_dst: u32::MAX,
            proto: u8::MAX,
            l4: u8::MAX,
            fragment: crate::packet::Fragment::Later,
            port_src: u16::MAX,
            port_dst: u16::MAX,
            icmp_type: u8::MAX,
            icmp_code: u8::MAX,
            tcp_flags: u8::MAX,
            wide: true,
            ip6_src: u128::MAX,
            ip6_dst: u128::MAX,
            tunnel: crate::packet::Tunnel::Gtp,
            tunnel_id: u32::MAX,
            inner: crate::packet::Inner {
                eth_type: u16::MAX,
                src: u128::MAX,
                dst: u128::MAX,
                l4: u8::MAX,
                port_src: u16::MAX,
                port_dst: u16::MAX,
            },
        };
        for (word, mask) in super::narrow(&full, u16::MAX).into_iter().zip(narrow) {
            assert_eq!(word & !mask, 0);
        }
        for (word, mask) in super::wide(&full).into_iter().zip(wide) {
            assert_eq!(word & !mask, 0);
        }
    }
}
