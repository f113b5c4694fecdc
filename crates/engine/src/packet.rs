//! Frames and their headers: what the index keeps about a packet.

pub mod decode;
mod link;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

pub use decode::decode;
pub use link::LinkType;

/// EtherType of IPv4.
pub const ETHERTYPE_IPV4: u16 = 0x0800;
/// EtherType of ARP.
pub const ETHERTYPE_ARP: u16 = 0x0806;
/// EtherType of RARP.
pub const ETHERTYPE_RARP: u16 = 0x8035;
/// EtherType of IPv6.
pub const ETHERTYPE_IPV6: u16 = 0x86DD;
/// EtherType of MPLS.
pub const ETHERTYPE_MPLS: u16 = 0x8847;
/// EtherTypes that a VLAN tag may have.
pub const ETHERTYPES_VLAN: [u16; 3] = [0x8100, 0x88A8, 0x9100];

/// IP protocol numbers that have columns of their own.
pub mod protocol {
    /// ICMP.
    pub const ICMP: u8 = 1;
    /// TCP.
    pub const TCP: u8 = 6;
    /// UDP.
    pub const UDP: u8 = 17;
    /// The fragment header of IPv6.
    pub const FRAGMENT: u8 = 44;
    /// GRE.
    pub const GRE: u8 = 47;
    /// ICMP for IPv6.
    pub const ICMP6: u8 = 58;
    /// SCTP.
    pub const SCTP: u8 = 132;

    /// The name of a protocol, if it is a common one.
    pub fn name(number: u8) -> Option<&'static str> {
        Some(match number {
            ICMP => "icmp",
            2 => "igmp",
            4 => "ipip",
            TCP => "tcp",
            UDP => "udp",
            41 => "ipv6",
            GRE => "gre",
            50 => "esp",
            51 => "ah",
            ICMP6 => "icmp6",
            89 => "ospf",
            103 => "pim",
            112 => "vrrp",
            SCTP => "sctp",
            _ => return None,
        })
    }
}

/// The name of an EtherType, if it is a common one.
pub fn ethertype_name(number: u16) -> Option<&'static str> {
    Some(match number {
        ETHERTYPE_IPV4 => "ip",
        ETHERTYPE_IPV6 => "ip6",
        ETHERTYPE_ARP => "arp",
        ETHERTYPE_RARP => "rarp",
        ETHERTYPE_MPLS => "mpls",
        0x88CC => "lldp",
        number if ETHERTYPES_VLAN.contains(&number) => "vlan",
        0x8863 | 0x8864 => "pppoe",
        _ => return None,
    })
}

/// The flags of TCP that are set, a letter each, from FIN to CWR.
pub fn tcp_flags(flags: u8) -> String {
    let names = ['F', 'S', 'R', 'P', 'A', 'U', 'E', 'C'];
    let set = (0..).zip(names).filter(|(bit, _)| flags >> bit & 1 == 1);
    set.map(|(_, name)| name).collect()
}

/// What stands between the link header and the network header.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(u8)]
pub enum Encap {
    /// Nothing.
    #[default]
    None = 0,
    /// A VLAN tag.
    Tag = 1,
    /// Two VLAN tags.
    TwoTags = 2,
    /// Three VLAN tags or more; the network header behind them is not decoded.
    ManyTags = 3,
    /// MPLS labels, straight behind the link header.
    Mpls = 4,
    /// One or two VLAN tags, then MPLS labels.
    TagsMpls = 5,
}

impl Encap {
    /// All of them, by their numbers.
    pub const ALL: [Self; 6] =
        [Self::None, Self::Tag, Self::TwoTags, Self::ManyTags, Self::Mpls, Self::TagsMpls];
    /// Those with a VLAN tag or more.
    pub const TAGGED: [Self; 4] = [Self::Tag, Self::TwoTags, Self::ManyTags, Self::TagsMpls];
    /// Those with two VLAN tags or more, for certain.
    pub const TAGGED_TWICE: [Self; 2] = [Self::TwoTags, Self::ManyTags];
    /// Those with MPLS labels.
    pub const LABELLED: [Self; 2] = [Self::Mpls, Self::TagsMpls];

    /// The numbers that stand for some of them.
    pub const fn numbers<const N: usize>(some: [Self; N]) -> [u16; N] {
        let mut numbers = [0; N];
        let mut at = 0;
        while at < N {
            numbers[at] = some[at] as u16;
            at += 1;
        }
        numbers
    }

    /// The one that a number stands for.
    pub fn of_number(number: u128) -> Option<Self> {
        Self::ALL.into_iter().find(|&one| one as u128 == number)
    }

    /// Its name: the headers in their order.
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Tag => "vlan",
            Self::TwoTags => "vlan.vlan",
            Self::ManyTags => "vlan.vlan.vlan",
            Self::Mpls => "mpls",
            Self::TagsMpls => "vlan.mpls",
        }
    }
}

/// Whether a packet is a fragment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(u8)]
pub enum Fragment {
    /// It is not.
    #[default]
    Whole = 0,
    /// The first one: the transport header is there.
    First = 1,
    /// A later one: there are no ports.
    Later = 2,
}

impl Fragment {
    /// All of them, by their numbers.
    pub const ALL: [Self; 3] = [Self::Whole, Self::First, Self::Later];

    /// The one that a number stands for.
    pub fn of_number(number: u128) -> Option<Self> {
        Self::ALL.into_iter().find(|&one| one as u128 == number)
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Whole => "whole",
            Self::First => "first",
            Self::Later => "later",
        }
    }
}

/// What carries the inner packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(u8)]
pub enum Tunnel {
    /// There is no inner packet.
    #[default]
    None = 0,
    /// IPv4 or IPv6 straight in IPv4 or IPv6.
    Ip = 1,
    /// GRE; its key, if it has one, is the tunnel's id.
    Gre = 2,
    /// VXLAN (UDP port 4789); the id is the VNI.
    Vxlan = 3,
    /// GTP-U (UDP port 2152); the id is the TEID.
    Gtp = 4,
}

impl Tunnel {
    /// All of them, by their numbers.
    pub const ALL: [Self; 5] = [Self::None, Self::Ip, Self::Gre, Self::Vxlan, Self::Gtp];

    /// The one that a number stands for.
    pub fn of_number(number: u128) -> Option<Self> {
        Self::ALL.into_iter().find(|&one| one as u128 == number)
    }

    /// The tunnel of a name; not that of `None`.
    pub fn of_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().skip(1).find(|one| one.name() == name)
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Ip => "ip",
            Self::Gre => "gre",
            Self::Vxlan => "vxlan",
            Self::Gtp => "gtp",
        }
    }

    /// Its name where the context does not show that it is a tunnel.
    pub fn title(self) -> &'static str {
        match self {
            Self::Ip => "ip-in-ip",
            Self::Gtp => "gtp-u",
            Self::None | Self::Gre | Self::Vxlan => self.name(),
        }
    }
}

/// The headers of the packet inside a tunnel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Inner {
    /// EtherType of its network header; 0 if it is not IP.
    pub eth_type: u16,
    /// Its source; an IPv4 address in the low 32 bits.
    pub src: u128,
    /// Its destination; an IPv4 address in the low 32 bits.
    pub dst: u128,
    /// Its transport protocol.
    pub l4: u8,
    /// Its source port.
    pub port_src: u16,
    /// Its destination port.
    pub port_dst: u16,
}

/// The headers of a frame, as far as the index keeps them.
///
/// # Agreement with libpcap
///
/// Filters are answered from these fields as libpcap's compiled program would answer them from the
/// frame. So a field holds what that program loads, from the place where it loads it. If no field
/// can represent that, or a load would reach past the captured bytes and end the program, the frame
/// is [odd](Headers::odd): the program itself then decides on the packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Headers {
    /// The columns lack something that a filter could ask for: the filter has to see the frame.
    pub odd: bool,
    /// What stands before the network header.
    pub encap: Encap,
    /// Destination MAC address, 48 bits; 0 where the link has none.
    pub eth_dst: u64,
    /// Source MAC address, 48 bits; 0 where the link has none.
    pub eth_src: u64,
    /// EtherType (or 802.3 length) behind the tags; before MPLS labels that of MPLS; on links
    /// without an EtherType, that of the network header or 0.
    pub eth_type: u16,
    /// VLAN id of the first tag, 12 bits; 0 without.
    pub vlan: u16,
    /// VLAN id of the second tag, 12 bits; 0 without.
    pub vlan_inner: u16,
    /// Label of the outermost MPLS entry, 20 bits; 0 without.
    pub mpls: u32,
    /// Source of IPv4, or sender address of ARP and RARP.
    pub ip_src: u32,
    /// Destination of IPv4, or target address of ARP and RARP.
    pub ip_dst: u32,
    /// The protocol number in the IPv4 header, or the next header in the IPv6 header.
    pub proto: u8,
    /// The protocol behind all extension headers; for IPv4 the same as `proto`.
    pub l4: u8,
    /// Whether it is a fragment.
    pub fragment: Fragment,
    /// Source port of TCP, UDP or SCTP.
    pub port_src: u16,
    /// Destination port of TCP, UDP or SCTP.
    pub port_dst: u16,
    /// Type of ICMP or ICMPv6.
    pub icmp_type: u8,
    /// Code of ICMP or ICMPv6.
    pub icmp_code: u8,
    /// The flags byte of TCP.
    pub tcp_flags: u8,
    /// The window of TCP, as it is in the header; 0 if the header is cut off before it.
    pub tcp_window: u16,
    /// Time to live of IPv4, or hop limit of IPv6.
    pub ttl: u8,
    /// Differentiated services code point of IPv4 or IPv6, 6 bits.
    pub dscp: u8,
    /// Whether any of the fields that follow may be set; if not, all of them are empty.
    pub wide: bool,
    /// Source of IPv6.
    pub ip6_src: u128,
    /// Destination of IPv6.
    pub ip6_dst: u128,
    /// What carries the inner packet.
    pub tunnel: Tunnel,
    /// The tunnel's id: key, VNI or TEID; 0 without.
    pub tunnel_id: u32,
    /// The inner packet.
    pub inner: Inner,
}

impl Headers {
    /// The addresses of an IP packet, the sender's first; `None` if it is not IP, or cut off before
    /// them.
    pub fn addresses(&self) -> Option<[IpAddr; 2]> {
        match self.eth_type {
            ETHERTYPE_IPV4 if self.odd && (self.ip_src, self.ip_dst, self.proto) == (0, 0, 0) => {
                None
            }
            ETHERTYPE_IPV4 => Some([self.ip_src, self.ip_dst].map(|ip| Ipv4Addr::from(ip).into())),
            ETHERTYPE_IPV6 if self.wide => {
                Some([self.ip6_src, self.ip6_dst].map(|ip| Ipv6Addr::from(ip).into()))
            }
            _ => None,
        }
    }

    /// Whether it is a TCP, UDP or SCTP packet, and not a later fragment of one.
    pub fn has_ports(&self) -> bool {
        [protocol::TCP, protocol::UDP, protocol::SCTP].contains(&self.l4)
            && self.fragment != Fragment::Later
    }
}
