//! The names that people ask by, in filters and in `top`.

use super::presence::{self as when, Presence};
use super::{Field, FieldKind};

/// A field, and the packets that have it by some name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Part {
    /// The field.
    pub field: Field,
    /// What kind of number it is in these packets.
    pub kind: FieldKind,
    /// When a packet has it.
    pub presence: &'static Presence,
}

/// What a name asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ask {
    /// The value of its fields.
    Value,
    /// One bit of its field.
    Bit(u8),
    /// Whether the packet has it: a protocol, which has no value.
    Presence,
    /// The length on the wire, which the column has in classes.
    Length,
    /// The time of the packet, which is no field.
    Time,
}

/// The names of one thing that can be asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Name {
    /// Its name in display filters, if it has one.
    pub wireshark: Option<&'static str>,
    /// Its names for `top`; the first is the one that is shown.
    pub top: &'static [&'static str],
    /// How pcap-filter(7) asks for it, as an example.
    pub pcap: &'static str,
    /// What its value is, in words.
    pub about: &'static str,
    /// What it asks for.
    pub ask: Ask,
    /// Where it is found: a packet may have it several times.
    pub parts: &'static [Part],
}

impl Name {
    /// What kind of value it has; none for a protocol or a time.
    pub fn kind(&self) -> Option<FieldKind> {
        let first = self.parts.first()?;
        match self.ask {
            Ask::Value => Some(first.kind),
            Ask::Bit(_) => Some(FieldKind::Number(1)),
            Ask::Length => Some(FieldKind::Number(32)),
            Ask::Presence | Ask::Time => None,
        }
    }
}

/// The name of a display filter.
pub fn wireshark(name: &str) -> Option<&'static Name> {
    NAMES.iter().find(|one| one.wireshark == Some(name))
}

/// A name that `top` takes.
pub fn for_top(name: &str) -> Option<&'static Name> {
    NAMES.iter().find(|one| one.top.contains(&name))
}

/// Declares a name: that of display filters or `-`, those for `top`, the words of pcap-filter, what
/// it is, what it asks for, and its parts.
macro_rules! names {
    ($(
        $wireshark:tt, [$($top:literal),*], $pcap:literal, $about:literal,
        $ask:ident $(($bit:literal))?
        [$($field:ident $kind:expr, $presence:ident);*];
    )+) => {
        /// All names, in the order of the table in `docs/filters.md`.
        pub static NAMES: &[Name] = &[$(Name {
            wireshark: names!(@ $wireshark),
            top: &[$($top),*],
            pcap: $pcap,
            about: $about,
            ask: Ask::$ask $(($bit))?,
            parts: &[$(
                Part { field: Field::$field, kind: $kind, presence: &when::$presence }
            ),*],
        }),+];
    };
    (@ -) => { None };
    (@ $name:literal) => { Some($name) };
}

use FieldKind::{
    Encap, EtherType, Flags, Fragment, Interface, Ipv4, Ipv6, LengthClass, Mac, Number, Protocol,
    Tunnel,
};

names! {
    "frame", [], "", "", Presence [Length LengthClass, ALWAYS];
    "frame.len", [], "`len`, `less`, `greater`",
        "bytes on the wire",
        Length [FrameLen Number(32), ALWAYS];
    -, ["frame.len"], "`len`, `less`, `greater`", "bytes on the wire",
        Value [FrameLen Number(32), ALWAYS];
    -, ["length", "len"], "`len`, `less`, `greater`", "class of lengths",
        Value [Length LengthClass, ALWAYS];
    "frame.time", [], "`after`, `before`",
        "a time, in quotes where it has blanks; see Times", Time [];
    "frame.time_epoch", [], "`after`, `before`",
        "a time, in quotes where it has blanks; see Times", Time [];
    "frame.interface_id", [], "", "number of the interface in its capture",
        Value [Interface Interface, ALWAYS];
    -, ["iface", "interface"], "", "name of the interface, or its number",
        Value [Interface Interface, ALWAYS];
    -, ["encap"], "`vlan`, `mpls`", "what is before the network header",
        Value [Encap Encap, ALWAYS];
    "eth", [], "", "", Presence [EthSrc Mac, ETHERNET];
    "eth.src", [], "`ether src`", "MAC address", Value [EthSrc Mac, ETHERNET];
    "eth.dst", ["eth.dst"], "`ether dst`", "MAC address", Value [EthDst Mac, ETHERNET];
    "eth.addr", [], "`ether host`", "MAC address",
        Value [EthSrc Mac, ETHERNET; EthDst Mac, ETHERNET];
    -, ["eth.src"], "`ether src`", "MAC address", Value [EthSrc Mac, SOURCE_MAC];
    -, ["mac", "eth.addr"], "`ether host`", "MAC address",
        Value [EthSrc Mac, SOURCE_MAC; EthDst Mac, ETHERNET];
    "eth.type", [], "`ether proto`", "EtherType, or 802.3 length",
        Value [EthType EtherType, ETHERTYPE];
    -, ["eth.type"], "`ether proto`", "EtherType behind tags", Value [EthType EtherType, ALWAYS];
    "vlan", [], "`vlan`", "", Presence [Vlan Number(12), TAG];
    "vlan.id", [], "`vlan N`",
        "id of the first and the second tag; with three and more, or with MPLS behind them, of the \
         first only",
        Value [Vlan Number(12), TAG; VlanInner Number(12), TWO_TAGS];
    -, ["vlan", "vlan.id"], "`vlan N`", "id of the first tag", Value [Vlan Number(12), TAG];
    -, ["vlan.inner"], "`vlan and vlan N`", "id of the second tag",
        Value [VlanInner Number(12), TAGGED_TWICE];
    "mpls", [], "`mpls`", "", Presence [Mpls Number(20), LABEL];
    "mpls.label", ["mpls", "mpls.label"], "`mpls N`", "label of the outermost entry",
        Value [Mpls Number(20), LABEL];
    "arp", [], "`arp`", "", Presence [IpSrc Ipv4, ARP];
    "arp.src.proto_ipv4", [], "`arp src host`", "IPv4 address of the sender",
        Value [IpSrc Ipv4, ARP];
    -, ["arp.src"], "`arp src host`", "IPv4 address of the sender", Value [IpSrc Ipv4, ARP_RARP];
    "arp.dst.proto_ipv4", [], "`arp dst host`", "IPv4 address of the target",
        Value [IpDst Ipv4, ARP];
    -, ["arp.dst"], "`arp dst host`", "IPv4 address of the target", Value [IpDst Ipv4, ARP_RARP];
    -, ["src"], "`src host`", "address",
        Value [IpSrc Ipv4, IP4; Ip6Src Ipv6, IP6];
    -, ["dst"], "`dst host`", "address",
        Value [IpDst Ipv4, IP4; Ip6Dst Ipv6, IP6];
    -, ["addr", "host"], "`host`", "address",
        Value [IpSrc Ipv4, IP4; IpDst Ipv4, IP4; Ip6Src Ipv6, IP6; Ip6Dst Ipv6, IP6];
    -, ["proto", "protocol"], "", "what IP carries, or what the frame carries if that is not IP",
        Value [L4 Protocol, IP; EthType EtherType, NOT_IP];
    -, ["l4"], "", "protocol behind all extension headers", Value [L4 Protocol, IP];
    -, ["fragment"], "", "whether it is a fragment", Value [Fragment Fragment, IP];
    "ip", [], "`ip`", "", Presence [IpSrc Ipv4, IP4];
    "ip.src", ["ip.src"], "`src host`, `src net`", "IPv4 address", Value [IpSrc Ipv4, IP4];
    "ip.dst", ["ip.dst"], "`dst host`, `dst net`", "IPv4 address", Value [IpDst Ipv4, IP4];
    "ip.addr", ["ip.addr"], "`host`, `net`", "IPv4 address",
        Value [IpSrc Ipv4, IP4; IpDst Ipv4, IP4];
    "ip.proto", [], "`ip proto`", "protocol in the IPv4 header", Value [IpProto Protocol, IP4];
    -, ["ip.proto"], "`ip proto`, `ip6 proto`", "protocol or next header in the IP header",
        Value [IpProto Protocol, IP];
    "ip.ttl", [], "`ip[8]`", "time to live", Value [IpTtl Number(8), IP4];
    "ip.dsfield.dscp", [], "`ip[1] & 0xfc`", "differentiated services code point",
        Value [IpDscp Number(6), IP4];
    -, ["ip.ttl"], "`ip[8]`, `ip6[7]`", "time to live, or hop limit", Value [IpTtl Number(8), IP];
    -, ["ip.dscp"], "`ip[1] & 0xfc`, `ip6[0:2] & 0xfc0`", "differentiated services code point",
        Value [IpDscp Number(6), IP];
    "ipv6", [], "`ip6`", "", Presence [Ip6Src Ipv6, IP6];
    "ipv6.src", ["ip6.src", "ipv6.src"], "`src host`, `src net`", "IPv6 address",
        Value [Ip6Src Ipv6, IP6];
    "ipv6.dst", ["ip6.dst", "ipv6.dst"], "`dst host`, `dst net`", "IPv6 address",
        Value [Ip6Dst Ipv6, IP6];
    "ipv6.addr", ["ip6.addr", "ipv6.addr"], "`host`, `net`", "IPv6 address",
        Value [Ip6Src Ipv6, IP6; Ip6Dst Ipv6, IP6];
    "ipv6.nxt", [], "`ip6 proto`", "next header in the IPv6 header",
        Value [IpProto Protocol, IP6];
    "ipv6.hlim", [], "`ip6[7]`", "hop limit", Value [IpTtl Number(8), IP6];
    "ipv6.tclass.dscp", [], "`ip6[0:2] & 0xfc0`", "differentiated services code point",
        Value [IpDscp Number(6), IP6];
    -, ["port.src", "srcport"], "`src port`", "port", Value [PortSrc Number(16), TRANSPORT];
    -, ["port.dst", "dstport"], "`dst port`", "port", Value [PortDst Number(16), TRANSPORT];
    -, ["port"], "`port`, `portrange`", "port",
        Value [PortSrc Number(16), TRANSPORT; PortDst Number(16), TRANSPORT];
    "tcp", [], "`tcp`", "", Presence [PortSrc Number(16), TCP];
    "tcp.srcport", ["tcp.srcport"], "`tcp src port`", "port", Value [PortSrc Number(16), TCP];
    "tcp.dstport", ["tcp.dstport"], "`tcp dst port`", "port", Value [PortDst Number(16), TCP];
    "tcp.port", ["tcp.port"], "`tcp port`", "port",
        Value [PortSrc Number(16), TCP; PortDst Number(16), TCP];
    "udp", [], "`udp`", "", Presence [PortSrc Number(16), UDP];
    "udp.srcport", ["udp.srcport"], "`udp src port`", "port", Value [PortSrc Number(16), UDP];
    "udp.dstport", ["udp.dstport"], "`udp dst port`", "port", Value [PortDst Number(16), UDP];
    "udp.port", ["udp.port"], "`udp port`", "port",
        Value [PortSrc Number(16), UDP; PortDst Number(16), UDP];
    "sctp", [], "`sctp`", "", Presence [PortSrc Number(16), SCTP];
    "sctp.srcport", ["sctp.srcport"], "`sctp src port`", "port", Value [PortSrc Number(16), SCTP];
    "sctp.dstport", ["sctp.dstport"], "`sctp dst port`", "port", Value [PortDst Number(16), SCTP];
    "sctp.port", ["sctp.port"], "`sctp port`", "port",
        Value [PortSrc Number(16), SCTP; PortDst Number(16), SCTP];
    "tcp.flags", ["tcp.flags"], "`tcp[tcpflags]`, `tcp[13]`",
        "the eight flags from FIN to CWR as a number", Value [TcpFlags Flags, TCP];
    "tcp.flags.fin", [], "`tcp[tcpflags] & MASK`", "0, 1, `false`, `true`",
        Bit(0) [TcpFlags Flags, TCP];
    "tcp.flags.syn", [], "`tcp[tcpflags] & MASK`", "0, 1, `false`, `true`",
        Bit(1) [TcpFlags Flags, TCP];
    "tcp.flags.reset", [], "`tcp[tcpflags] & MASK`", "0, 1, `false`, `true`",
        Bit(2) [TcpFlags Flags, TCP];
    "tcp.flags.push", [], "`tcp[tcpflags] & MASK`", "0, 1, `false`, `true`",
        Bit(3) [TcpFlags Flags, TCP];
    "tcp.flags.ack", [], "`tcp[tcpflags] & MASK`", "0, 1, `false`, `true`",
        Bit(4) [TcpFlags Flags, TCP];
    "tcp.flags.urg", [], "`tcp[tcpflags] & MASK`", "0, 1, `false`, `true`",
        Bit(5) [TcpFlags Flags, TCP];
    "tcp.flags.ece", [], "`tcp[tcpflags] & MASK`", "0, 1, `false`, `true`",
        Bit(6) [TcpFlags Flags, TCP];
    "tcp.flags.cwr", [], "`tcp[tcpflags] & MASK`", "0, 1, `false`, `true`",
        Bit(7) [TcpFlags Flags, TCP];
    "tcp.window_size_value", ["tcp.window"], "`tcp[14:2]`",
        "window as it stands in the header", Value [TcpWindow Number(16), TCP];
    "icmp", [], "`icmp`", "", Presence [IcmpType Number(8), ICMP];
    "icmp.type", [], "`icmp[icmptype]`", "a number", Value [IcmpType Number(8), ICMP];
    "icmp.code", [], "`icmp[icmpcode]`", "a number", Value [IcmpCode Number(8), ICMP];
    -, ["icmp.type"], "`icmp[icmptype]`", "a number", Value [IcmpType Number(8), IP4_ICMP];
    -, ["icmp.code"], "`icmp[icmpcode]`", "a number", Value [IcmpCode Number(8), IP4_ICMP];
    "icmpv6", [], "`icmp6`", "", Presence [IcmpType Number(8), ICMP6];
    "icmpv6.type", [], "`icmp6[icmp6type]`", "a number", Value [IcmpType Number(8), ICMP6];
    "icmpv6.code", [], "`icmp6[icmp6code]`", "a number", Value [IcmpCode Number(8), ICMP6];
    -, ["icmp6.type", "icmpv6.type"], "`icmp6[icmp6type]`", "a number",
        Value [IcmpType Number(8), IP6_ICMP6];
    -, ["icmp6.code", "icmpv6.code"], "`icmp6[icmp6code]`", "a number",
        Value [IcmpCode Number(8), IP6_ICMP6];
    "tunnel.type", ["tunnel", "tunnel.type"], "", "`ip`, `gre`, `vxlan`, `gtp`",
        Value [Tunnel Tunnel, TUNNEL];
    "tunnel.id", ["tunnel.id"], "", "GRE key, VNI or TEID; 0 without",
        Value [TunnelId Number(32), TUNNEL];
    -, ["inner.type"], "", "EtherType of the inner packet", Value [InnerType EtherType, TUNNEL];
    -, ["inner.src"], "", "address",
        Value [InnerSrc Ipv4, INNER_IP4; InnerSrc Ipv6, INNER_IP6];
    -, ["inner.dst"], "", "address",
        Value [InnerDst Ipv4, INNER_IP4; InnerDst Ipv6, INNER_IP6];
    "inner.ip.src", [], "", "IPv4 address", Value [InnerSrc Ipv4, INNER_IP4];
    "inner.ip.dst", [], "", "IPv4 address", Value [InnerDst Ipv4, INNER_IP4];
    "inner.ip.addr", [], "", "IPv4 address",
        Value [InnerSrc Ipv4, INNER_IP4; InnerDst Ipv4, INNER_IP4];
    "inner.ipv6.src", [], "", "IPv6 address", Value [InnerSrc Ipv6, INNER_IP6];
    "inner.ipv6.dst", [], "", "IPv6 address", Value [InnerDst Ipv6, INNER_IP6];
    "inner.ipv6.addr", [], "", "IPv6 address",
        Value [InnerSrc Ipv6, INNER_IP6; InnerDst Ipv6, INNER_IP6];
    "inner.ip.proto", [], "", "transport protocol of the inner packet",
        Value [InnerL4 Protocol, TUNNEL];
    -, ["inner.l4"], "", "transport protocol of the inner packet",
        Value [InnerL4 Protocol, INNER_IP];
    "inner.port.src", ["inner.port.src"], "", "port", Value [InnerPortSrc Number(16), INNER_PORTS];
    "inner.port.dst", ["inner.port.dst"], "", "port", Value [InnerPortDst Number(16), INNER_PORTS];
    "inner.port", [], "", "port",
        Value [InnerPortSrc Number(16), INNER_PORTS; InnerPortDst Number(16), INNER_PORTS];
}
