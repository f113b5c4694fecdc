//! What the index knows about a packet: every field, declared once.
//!
//! A [`Field`] is a number that every packet has, 0 where it does not apply. [`FIELDS`] has, for
//! each, its name in the index file, what kind of number it is, how it is cut into digits, where it
//! is kept and how it is taken from a packet. Everything else uses this table: the key of a flow is
//! packed by this table, columns are written in its order, filters and `top` find fields by it, and
//! `repair` compares packets with it.
//!
//! People ask by [`Name`]: `ip.addr` is two fields, and `tcp.port` is a part of two. [`NAMES`] has
//! those of both filter languages and of `top`; the table in `docs/filters.md` is printed from it.
//! The value 0 does not show whether a packet has the field. A [`Presence`] does, by other fields:
//! it is looked up in columns or in a decoded packet, with the same result.
//!
//! # A new field
//!
//! 1. [`Headers`] gets a place for it, and the decoder fills that.
//! 2. It gets an entry at the end of [`FIELDS`], and its names an entry in [`NAMES`].
//!
//! A segment that was written before does not know the field, and says so: see
//! [`Columns`](crate::archive::Columns).
//!
//! # Example
//!
//! ```
//! use tapdex_engine::fields::{self, Field, Packet};
//! use tapdex_engine::packet::{Headers, LinkType, decode};
//!
//! let frame = [
//!     2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0, // Ethernet
//!     0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2, // IPv4
//!     0, 53, 0x80, 0, 0, 8, 0, 0, // UDP
//! ];
//! let mut headers = Headers::default();
//! decode(LinkType::ETHERNET, false, &frame, &mut headers);
//! let link = LinkType::ETHERNET;
//! let packet = Packet { headers: &headers, link, interface: 0, wire_len: 42 };
//! assert_eq!(Field::PortSrc.value(&packet), 53);
//!
//! // Two fields by one name, and a packet that has them.
//! let name = fields::wireshark("udp.port").ok_or("unknown")?;
//! assert_eq!(name.parts.iter().map(|part| part.field.name()).collect::<Vec<_>>(),
//!     ["port.src", "port.dst"]);
//! assert!(name.parts.iter().all(|part| part.presence.holds(&packet)));
//! let name = fields::wireshark("tcp.port").ok_or("unknown")?;
//! assert!(!name.parts.iter().any(|part| part.presence.holds(&packet)));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod key;
mod length;
mod names;
mod presence;
mod set;
mod text;

pub(crate) use key::{DIRECTION_WORD, Narrow, Wide, is_odd, mask, order_ends};
pub use length::{length_class, length_class_start, length_excess};
pub use names::{Ask, NAMES, Name, Part, for_top, wireshark};
pub use presence::{Condition, Presence};
pub(crate) use presence::{ICMP, ICMP6, TUNNEL};
pub use set::FieldSet;
pub use text::{LENGTH_802_3_MAX, Shown, table};

use std::ops::Range;

use crate::capture::Record;
use crate::index::Width;
use crate::packet::{Headers, LinkType};

/// What fields are taken from: the headers of a packet, and its record.
#[derive(Debug, Clone, Copy)]
pub struct Packet<'a> {
    /// Its headers.
    pub headers: &'a Headers,
    /// What it starts with.
    pub link: LinkType,
    /// The interface, by its number in the capture.
    pub interface: u32,
    /// Its length on the wire.
    pub wire_len: u32,
}

impl<'a> Packet<'a> {
    /// A record and its headers, which were decoded.
    #[inline(always)]
    pub fn new(record: &Record<'_>, headers: &'a Headers) -> Self {
        let Record { link, interface, wire_len, .. } = *record;
        Self { headers, link, interface, wire_len }
    }
}

/// What kind of number a field is: how it is written and read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FieldKind {
    /// An IPv4 address.
    Ipv4,
    /// An IPv6 address.
    Ipv6,
    /// A MAC address.
    Mac,
    /// A number of this many bits.
    Number(u32),
    /// The flags of TCP.
    Flags,
    /// The number of an IP protocol.
    Protocol,
    /// An EtherType, or the length of an 802.3 frame.
    EtherType,
    /// What stands before the network header: [`Encap`](crate::packet::Encap).
    Encap,
    /// Whether it is a fragment: [`Fragment`](crate::packet::Fragment).
    Fragment,
    /// What carries the inner packet: [`Tunnel`](crate::packet::Tunnel).
    Tunnel,
    /// An interface, by its number in the capture.
    Interface,
    /// The class of a length: [`length_class`].
    LengthClass,
}

impl FieldKind {
    /// The greatest value that people may ask for.
    pub fn most(self) -> u128 {
        let bits = match self {
            Self::Ipv4 | Self::Interface => 32,
            Self::Ipv6 => return u128::MAX,
            Self::Mac => 48,
            Self::Number(bits) => bits,
            // Wireshark has four more, which the index does not have.
            Self::Flags => 12,
            Self::EtherType => 16,
            Self::Protocol | Self::Encap | Self::Fragment | Self::Tunnel | Self::LengthClass => 8,
        };
        (1 << bits) - 1
    }
}

/// Where a field is kept until it is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Home {
    /// In a word of the key of a flow, this many bits from its low end.
    Narrow(usize, u32),
    /// In the key of the wide part of a flow, which few packets have: 128 bits take the word and
    /// the next one.
    Wide(usize, u32),
    /// With each packet.
    Packet,
}

/// The description of a field.
#[derive(Debug, Clone, Copy)]
pub struct Spec {
    /// Which one it is.
    pub field: Field,
    /// Its name in the index file.
    pub name: &'static str,
    /// What it is, in a sentence.
    pub about: &'static str,
    /// What kind of number it is.
    pub kind: FieldKind,
    /// Bits of a digit.
    pub width: Width,
    /// How many digits it has, the most significant first.
    pub digits: u32,
    pub(crate) home: Home,
    /// Taken from the headers, whether or not its home is there.
    take: fn(&Packet<'_>) -> u128,
}

impl Spec {
    /// Bits of a value.
    pub(crate) const fn bits(&self) -> u32 {
        self.digits
            * match self.width {
                Width::Byte => 8,
                Width::Short => 16,
            }
    }

    /// Bits that it has in its home.
    pub(crate) const fn home_bits(&self) -> u32 {
        match self.kind {
            FieldKind::Number(bits) if bits < self.bits() => bits,
            _ => self.bits(),
        }
    }

    /// The field that has the same at the other end, if this one is of the source: of `ip.src`,
    /// `ip.dst`.
    pub(crate) fn other_end(&self) -> Option<&'static Self> {
        let name = self.name.strip_suffix(".src")?;
        FIELDS.iter().find(|other| other.name.strip_suffix(".dst") == Some(name))
    }

    /// Whether it is the other end of a field.
    pub(crate) fn is_second_end(&self) -> bool {
        self.name.ends_with(".dst")
    }

    /// Whether all packets of a flow have the same value.
    pub fn is_of_flow(&self) -> bool {
        self.home != Home::Packet
    }

    /// Which of the digits that belong to single packets are its own, the most significant first.
    pub(crate) fn own_digits(&self) -> Range<usize> {
        let first = own_digits_before(self.field);
        first..first + if self.is_of_flow() { 0 } else { self.digits as usize }
    }

    /// The words of its home, and the bits that it has there.
    pub(crate) fn home_masks(&self) -> impl Iterator<Item = (usize, u64)> + use<> {
        let (word, shift) = match self.home {
            Home::Narrow(word, shift) | Home::Wide(word, shift) => (word, shift),
            Home::Packet => (0, 0),
        };
        let bits = if self.is_of_flow() { self.home_bits() } else { 0 };
        let words = bits.div_ceil(64);
        let mask = move |bits: u32| u64::MAX.checked_shr(64 - bits).unwrap_or(0);
        (0..words).map(move |at| (word + at as usize, mask(bits.min(64)) << shift))
    }
}

/// How many digits that belong to single packets come from fields before this one.
fn own_digits_before(field: Field) -> usize {
    let before = FIELDS.iter().take(field as usize).filter(|spec| !spec.is_of_flow());
    before.map(|spec| spec.digits as usize).sum()
}

/// Declares fields: the enum, the table, and what packs keys by it.
macro_rules! fields {
    ($(
        $(#[doc = $about:literal])+
        $id:ident: $name:literal, $kind:expr, $digits:literal $width:ident, $home:expr,
        |$packet:ident| $value:expr;
    )+) => {
        /// A field of a segment.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        pub enum Field {
            $($(#[doc = $about])+ $id),+
        }

        /// All fields, in the order in which they are written. A segment leaves out those that are
        /// 0 in all its rows.
        pub static FIELDS: [Spec; [$(Field::$id),+].len()] = [$(Spec {
            field: Field::$id,
            name: $name,
            about: concat!($($about),+).trim_ascii_start(),
            kind: $kind,
            width: Width::$width,
            digits: $digits,
            home: $home,
            take: |$packet| $value,
        }),+];

        /// How many digits belong to single packets.
        pub const OWN_DIGITS: usize =
            0 $(+ if let Home::Packet = $home { $digits } else { 0 })+;

        /// The key of a packet's flow, but for the number of its wide part.
        #[inline(always)]
        pub(crate) fn narrow(packet: &Packet<'_>) -> Narrow {
            let mut key = Narrow::default();
            $(if let Home::Narrow(word, shift) = $home {
                let $packet = packet;
                let value: u128 = $value;
                key[word] |= key::low(value) << shift;
            })+
            key
        }

        /// The key of the wide part of a packet's flow, if its headers are wide.
        #[inline(always)]
        pub(crate) fn wide(packet: &Packet<'_>) -> Wide {
            let mut key = Wide::default();
            $(if let Home::Wide(word, shift) = $home {
                let $packet = packet;
                let value: u128 = $value;
                let is_long = Width::$width.bits() * $digits > 64;
                if is_long {
                    key[word] |= key::high(value);
                }
                key[word + usize::from(is_long)] |= key::low(value) << shift;
            })+
            key
        }

        /// The digits that belong to the packet rather than to its flow.
        #[inline(always)]
        pub(crate) fn own(packet: &Packet<'_>) -> [u16; OWN_DIGITS] {
            let mut own = [0; OWN_DIGITS];
            let mut next = 0;
            $(if let Home::Packet = $home {
                let $packet = packet;
                let value: u128 = $value;
                let mut digit = $digits;
                while digit > 0 {
                    digit -= 1;
                    own[next] = key::digit(value, Width::$width.bits() * digit, Width::$width);
                    next += 1;
                }
            })+
            own
        }
    };
}

fields! {
    /// The interface, by its number in the capture; those from 65,535 on have that number.
    Interface: "iface", FieldKind::Interface, 1 Short, Home::Narrow(0, 48),
        |p| u16::try_from(p.interface).unwrap_or(u16::MAX).into();
    /// What stands before the network header.
    Encap: "encap", FieldKind::Encap, 1 Byte, Home::Narrow(0, 40),
        |p| p.headers.encap as u128;
    /// Whether filters have to see the frame.
    Odd: "odd", FieldKind::Number(1), 1 Byte, Home::Narrow(0, 32),
        |p| p.headers.odd.into();
    /// The EtherType behind tags, or an 802.3 length.
    EthType: "eth.type", FieldKind::EtherType, 1 Short, Home::Narrow(0, 16),
        |p| p.headers.eth_type.into();
    /// Whether it is a fragment.
    Fragment: "fragment", FieldKind::Fragment, 1 Byte, Home::Narrow(0, 8),
        |p| p.headers.fragment as u128;
    /// The protocol in the IPv4 header, or the next header in that of IPv6.
    IpProto: "ip.proto", FieldKind::Protocol, 1 Byte, Home::Narrow(0, 0),
        |p| p.headers.proto.into();
    /// The source of IPv4, or the sender of ARP and RARP.
    IpSrc: "ip.src", FieldKind::Ipv4, 4 Byte, Home::Narrow(1, 32),
        |p| p.headers.ip_src.into();
    /// The destination of IPv4, or the target of ARP and RARP.
    IpDst: "ip.dst", FieldKind::Ipv4, 4 Byte, Home::Narrow(1, 0),
        |p| p.headers.ip_dst.into();
    /// The source port.
    PortSrc: "port.src", FieldKind::Number(16), 1 Short, Home::Narrow(2, 16),
        |p| p.headers.port_src.into();
    /// The destination port.
    PortDst: "port.dst", FieldKind::Number(16), 1 Short, Home::Narrow(2, 0),
        |p| p.headers.port_dst.into();
    /// The source MAC address.
    EthSrc: "eth.src", FieldKind::Mac, 6 Byte, Home::Narrow(3, 16),
        |p| p.headers.eth_src.into();
    /// The destination MAC address.
    EthDst: "eth.dst", FieldKind::Mac, 6 Byte, Home::Narrow(4, 16),
        |p| p.headers.eth_dst.into();
    /// The id of the first VLAN tag.
    Vlan: "vlan", FieldKind::Number(12), 1 Short, Home::Narrow(3, 0),
        |p| p.headers.vlan.into();
    /// The id of the second VLAN tag.
    VlanInner: "vlan.inner", FieldKind::Number(12), 1 Short, Home::Narrow(4, 0),
        |p| p.headers.vlan_inner.into();
    /// The protocol behind all extension headers.
    L4: "l4", FieldKind::Protocol, 1 Byte, Home::Narrow(5, 56),
        |p| p.headers.l4.into();
    /// The type of ICMP or ICMPv6.
    IcmpType: "icmp.type", FieldKind::Number(8), 1 Byte, Home::Narrow(5, 48),
        |p| p.headers.icmp_type.into();
    /// The code of ICMP or ICMPv6.
    IcmpCode: "icmp.code", FieldKind::Number(8), 1 Byte, Home::Narrow(5, 40),
        |p| p.headers.icmp_code.into();
    /// The label of the outermost MPLS entry.
    Mpls: "mpls", FieldKind::Number(20), 3 Byte, Home::Narrow(5, 4),
        |p| p.headers.mpls.into();
    /// The source of IPv6.
    Ip6Src: "ip6.src", FieldKind::Ipv6, 16 Byte, Home::Wide(0, 0),
        |p| p.headers.ip6_src;
    /// The destination of IPv6.
    Ip6Dst: "ip6.dst", FieldKind::Ipv6, 16 Byte, Home::Wide(2, 0),
        |p| p.headers.ip6_dst;
    /// What carries the inner packet.
    Tunnel: "tunnel", FieldKind::Tunnel, 1 Byte, Home::Wide(4, 56),
        |p| p.headers.tunnel as u128;
    /// The tunnel's id: key, VNI or TEID.
    TunnelId: "tunnel.id", FieldKind::Number(32), 4 Byte, Home::Wide(4, 0),
        |p| p.headers.tunnel_id.into();
    /// The EtherType of the inner packet; 0 if it is not IP.
    InnerType: "inner.type", FieldKind::EtherType, 1 Short, Home::Wide(9, 48),
        |p| p.headers.inner.eth_type.into();
    /// The source of the inner packet.
    InnerSrc: "inner.src", FieldKind::Ipv6, 16 Byte, Home::Wide(5, 0),
        |p| p.headers.inner.src;
    /// The destination of the inner packet.
    InnerDst: "inner.dst", FieldKind::Ipv6, 16 Byte, Home::Wide(7, 0),
        |p| p.headers.inner.dst;
    /// The transport protocol of the inner packet.
    InnerL4: "inner.l4", FieldKind::Protocol, 1 Byte, Home::Wide(9, 40),
        |p| p.headers.inner.l4.into();
    /// The source port of the inner packet.
    InnerPortSrc: "inner.port.src", FieldKind::Number(16), 1 Short, Home::Wide(9, 16),
        |p| p.headers.inner.port_src.into();
    /// The destination port of the inner packet.
    InnerPortDst: "inner.port.dst", FieldKind::Number(16), 1 Short, Home::Wide(9, 0),
        |p| p.headers.inner.port_dst.into();
    /// The flags of TCP, from FIN to CWR.
    TcpFlags: "tcp.flags", FieldKind::Flags, 1 Byte, Home::Packet,
        |p| p.headers.tcp_flags.into();
    /// The class of the length on the wire.
    Length: "length", FieldKind::LengthClass, 1 Byte, Home::Packet,
        |p| length_class(p.wire_len).into();
    // The fields up to here are those of the first version.
    /// Time to live of IPv4, or hop limit of IPv6.
    IpTtl: "ip.ttl", FieldKind::Number(8), 1 Byte, Home::Narrow(5, 32),
        |p| p.headers.ttl.into();
    /// Differentiated services code point of IPv4 or IPv6.
    IpDscp: "ip.dscp", FieldKind::Number(6), 1 Byte, Home::Narrow(5, 24),
        |p| p.headers.dscp.into();
    /// The window of TCP, as it stands in the header.
    TcpWindow: "tcp.window", FieldKind::Number(16), 1 Short, Home::Packet,
        |p| p.headers.tcp_window.into();
    /// The length on the wire.
    FrameLen: "frame.len", FieldKind::Number(32), 2 Short, Home::Packet,
        |p| p.wire_len.into();
}

/// How many fields a segment knows if it does not say which: those of the first version.
pub(crate) const FIRST_FIELDS: usize = 30;

/// Bytes of a header, as pcap-filter(7) loads them, that a field holds bits of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Load {
    /// The field.
    pub field: Field,
    /// The header.
    pub header: &'static str,
    /// Where in it the bytes start.
    pub at: u32,
    /// How many there are.
    pub size: u32,
    /// Which bits of these bytes, read as a number, the field has, from `shift` up.
    pub bits: u32,
    /// Where these start.
    pub shift: u32,
    /// It is behind the network header: later fragments do not have it, and if the frame ends
    /// before it, the field is 0.
    pub is_transport: bool,
}

impl Load {
    /// All bits of a byte of a network header, or some of two.
    const fn new(field: Field, (header, at, size): (&'static str, u32, u32), bits: u32) -> Self {
        let shift = bits.trailing_zeros();
        Self { field, header, at, size, bits, shift, is_transport: false }
    }
}

/// Loads from headers that are a field of one digit. All packets with the header have the field: if
/// the header ends before the bytes, the frame is odd, or the field is 0.
pub static LOADS: &[Load] = &[
    Load::new(Field::IpTtl, ("ip", 8, 1), 0xFF),
    Load::new(Field::IpTtl, ("ip6", 7, 1), 0xFF),
    Load::new(Field::IpDscp, ("ip", 1, 1), 0xFC),
    Load::new(Field::IpDscp, ("ip6", 0, 2), 0x0FC0),
    Load { is_transport: true, ..Load::new(Field::TcpWindow, ("tcp", 14, 2), 0xFFFF) },
];

impl Field {
    /// Its description.
    pub fn spec(self) -> &'static Spec {
        &FIELDS[self as usize]
    }

    /// Its name in the index file.
    pub fn name(self) -> &'static str {
        self.spec().name
    }

    /// The field of a name in an index file, if it is one of ours.
    pub fn of_name(name: &str) -> Option<Self> {
        FIELDS.iter().find(|spec| spec.name == name).map(|spec| spec.field)
    }

    /// Its value in a packet; 0 where it does not apply.
    pub fn value(self, packet: &Packet<'_>) -> u128 {
        (self.spec().take)(packet)
    }
}

#[cfg(test)]
mod tests;
