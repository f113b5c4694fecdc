//! How filters are answered from headers, and the same filters as libpcap's programs.

use std::io::Write as _;
use std::net::{Ipv4Addr, Ipv6Addr};

use pcap::{BpfProgram, Capture, Offline};
use tapdex_engine::packet::{
    ETHERTYPE_ARP, ETHERTYPE_IPV4, ETHERTYPE_IPV6, ETHERTYPE_RARP, Encap, Fragment, Headers,
    LinkType, protocol,
};
use tempfile::NamedTempFile;

/// Which end of a packet.
#[derive(Debug, Clone, Copy)]
pub(crate) enum End {
    Src,
    Dst,
    Either,
    Both,
}

pub(crate) const ENDS: [End; 4] = [End::Src, End::Dst, End::Either, End::Both];

impl End {
    fn text(self) -> &'static str {
        match self {
            Self::Src => "src",
            Self::Dst => "dst",
            Self::Either => "src or dst",
            Self::Both => "src and dst",
        }
    }

    fn holds(self, src: bool, dst: bool) -> bool {
        match self {
            Self::Src => src,
            Self::Dst => dst,
            Self::Either => src || dst,
            Self::Both => src && dst,
        }
    }
}

/// A primitive.
#[derive(Debug, Clone)]
pub(crate) enum Ask {
    Type(u16),
    /// `ip proto`, `ip6 proto` or, without a version, either.
    Proto(Option<u8>, u8),
    /// In headers of these types; all three have no word of their own.
    Host4(&'static [u16], End, u32, u32),
    Host6(End, u128, u8),
    Mac(End, u64),
    EtherMulticast,
    IpMulticast,
    Ip6Multicast,
    Port(Option<u8>, End, u16, u16),
    Vlan(Option<u16>),
    Mpls(Option<u32>),
    TcpFlags(u8, u8),
    /// Version, whether the code, value.
    Icmp(u8, bool, u8),
}

pub(crate) const ANY_HOST: &[u16] = &[ETHERTYPE_IPV4, ETHERTYPE_ARP, ETHERTYPE_RARP];

impl Ask {
    pub(crate) fn text(&self) -> String {
        let word = |proto: Option<u8>| match proto {
            None => "",
            Some(protocol::TCP) => "tcp ",
            Some(protocol::UDP) => "udp ",
            _ => "sctp ",
        };
        match *self {
            Self::Type(eth_type) => format!("ether proto {eth_type:#x}"),
            Self::Proto(None, proto) => format!("proto {proto}"),
            Self::Proto(Some(4), proto) => format!("ip proto {proto}"),
            Self::Proto(_, proto) => format!("ip6 proto {proto}"),
            Self::Host4(types, end, address, mask) => {
                let kind = match *types {
                    [ETHERTYPE_IPV4] => "ip ",
                    [ETHERTYPE_ARP] => "arp ",
                    [ETHERTYPE_RARP] => "rarp ",
                    _ => "",
                };
                let (address, mask) = (Ipv4Addr::from(address & mask), Ipv4Addr::from(mask));
                format!("{kind}{} net {address} mask {mask}", end.text())
            }
            Self::Host6(end, address, bits) => {
                let kept = address & prefix(bits);
                format!("{} net {}/{bits}", end.text(), Ipv6Addr::from(kept))
            }
            Self::Mac(end, mac) => {
                let bytes = mac.to_be_bytes();
                let bytes = bytes[2..].iter().map(|byte| format!("{byte:02x}"));
                format!("ether {} {}", end.text(), bytes.collect::<Vec<_>>().join(":"))
            }
            Self::EtherMulticast => "ether multicast".into(),
            Self::IpMulticast => "ip multicast".into(),
            Self::Ip6Multicast => "ip6 multicast".into(),
            Self::Port(proto, end, from, to) if from == to => {
                format!("{}{} port {from}", word(proto), end.text())
            }
            Self::Port(proto, end, from, to) => {
                format!("{}{} portrange {from}-{to}", word(proto), end.text())
            }
            Self::Vlan(None) => "vlan".into(),
            Self::Vlan(Some(id)) => format!("vlan {id}"),
            Self::Mpls(None) => "mpls".into(),
            Self::Mpls(Some(label)) => format!("mpls {label}"),
            Self::TcpFlags(mask, value) => format!("tcp[13] & {mask} = {value}"),
            Self::Icmp(version, code, value) => {
                let word = if version == 4 { "icmp" } else { "icmp6" };
                format!("{word}[{}] = {value}", u8::from(code))
            }
        }
    }

    /// Whether it holds for headers that are not odd, behind so many `vlan and`, which hold too.
    pub(crate) fn holds(&self, headers: &Headers, level: usize) -> bool {
        let h = headers;
        let here = match level {
            0 => matches!(h.encap, Encap::None | Encap::Mpls),
            1 => matches!(h.encap, Encap::Tag | Encap::TagsMpls),
            _ => h.encap == Encap::TwoTags,
        };
        let is = |eth_type: u16| here && h.eth_type == eth_type;
        let (v4, v6) = (is(ETHERTYPE_IPV4), is(ETHERTYPE_IPV6));
        let whole = h.fragment != Fragment::Later;
        match *self {
            Self::Type(eth_type) => is(eth_type),
            Self::Proto(version, proto) => {
                let fragment = h.proto == protocol::FRAGMENT && h.l4 == proto;
                version != Some(6) && v4 && h.proto == proto
                    || version != Some(4) && v6 && (h.proto == proto || fragment)
            }
            Self::Host4(types, end, address, mask) => {
                let same = |ip: u32| ip & mask == address & mask;
                types.iter().any(|&eth_type| is(eth_type))
                    && end.holds(same(h.ip_src), same(h.ip_dst))
            }
            Self::Host6(end, address, bits) => {
                let same = |ip: u128| ip & prefix(bits) == address & prefix(bits);
                v6 && end.holds(same(h.ip6_src), same(h.ip6_dst))
            }
            Self::Mac(end, mac) => end.holds(h.eth_src == mac, h.eth_dst == mac),
            Self::EtherMulticast => h.eth_dst >> 40 & 1 != 0,
            Self::IpMulticast => v4 && h.ip_dst >> 24 >= 224,
            Self::Ip6Multicast => v6 && h.ip6_dst >> 120 == 255,
            Self::Port(proto, end, from, to) => {
                let within = |port: u16| (from..=to).contains(&port);
                let one = |known: u8| h.proto == known && proto.is_none_or(|proto| proto == known);
                (v4 && whole || v6)
                    && [protocol::TCP, protocol::UDP, protocol::SCTP].into_iter().any(one)
                    && end.holds(within(h.port_src), within(h.port_dst))
            }
            Self::Vlan(id) => {
                let (tagged, found) = match level {
                    0 => (!matches!(h.encap, Encap::None | Encap::Mpls), h.vlan),
                    1 => (matches!(h.encap, Encap::TwoTags | Encap::ManyTags), h.vlan_inner),
                    _ => (h.encap == Encap::ManyTags, 0),
                };
                tagged && id.is_none_or(|id| id == found)
            }
            Self::Mpls(label) => {
                let found = [Encap::Mpls, Encap::TagsMpls].get(level) == Some(&h.encap);
                found && label.is_none_or(|label| label == h.mpls)
            }
            Self::TcpFlags(mask, value) => {
                v4 && whole && h.proto == protocol::TCP && h.tcp_flags & mask == value
            }
            Self::Icmp(version, code, value) => {
                let found = if code { h.icmp_code } else { h.icmp_type };
                let (right, proto) =
                    if version == 4 { (v4 && whole, protocol::ICMP) } else { (v6, 58) };
                right && h.proto == proto && found == value
            }
        }
    }
}

fn prefix(bits: u8) -> u128 {
    u128::MAX.checked_shl(128 - u32::from(bits)).unwrap_or(0)
}

/// A capture file with these frames.
pub(crate) fn file(link: LinkType, swapped: bool, frames: &[Vec<u8>]) -> NamedTempFile {
    let little = swapped == cfg!(target_endian = "big");
    let number = |value: u32| if little { value.to_le_bytes() } else { value.to_be_bytes() };
    let mut file = NamedTempFile::new().unwrap();
    file.write_all(&number(0xA1B2_C3D4)).unwrap();
    file.write_all(if little { &[2, 0, 4, 0] } else { &[0, 2, 0, 4] }).unwrap();
    for value in [0, 0, 0xFFFF, u32::from(link.0)] {
        file.write_all(&number(value)).unwrap();
    }
    for frame in frames {
        let len = u32::try_from(frame.len()).unwrap();
        for value in [0, 0, len, len] {
            file.write_all(&number(value)).unwrap();
        }
        file.write_all(frame).unwrap();
    }
    file.flush().unwrap();
    file
}

/// A handle on a file with this kind of frames: libpcap has rules that hold for files only.
pub(crate) fn handle(link: LinkType, swapped: bool) -> Capture<Offline> {
    Capture::from_file(file(link, swapped, &[]).path()).unwrap()
}

/// A primitive at a level, as programs; `None` accepts nothing.
pub(crate) struct Question {
    pub(crate) ask: Ask,
    pub(crate) level: usize,
    programs: [Option<BpfProgram>; 3],
}

const BEFORE: [&str; 3] = ["", "vlan and ", "vlan and vlan and "];

impl Question {
    /// `None` if libpcap has no such filter for the link.
    pub(crate) fn compile(handle: &Capture<Offline>, ask: Ask, level: usize) -> Option<Self> {
        let (before, text) = (BEFORE[level], ask.text());
        let compile = |text: &str, optimize| match handle.compile(text, optimize) {
            Ok(program) => Some(Some(program)),
            Err(error) => error.to_string().contains("rejects all packets").then_some(None),
        };
        let plain = format!("{before}({text})");
        let programs = [
            compile(&plain, true)?,
            compile(&plain, false)?,
            // Where a load reaches past the end, this is false as well.
            compile(&format!("{before}not ({text})"), true)?,
        ];
        Some(Self { ask, level, programs })
    }

    /// Compares the programs with the headers, which are not odd.
    pub(crate) fn check(&self, name: &str, frame: &[u8], headers: &Headers) {
        let tags = match headers.encap {
            Encap::None | Encap::Mpls => 0,
            Encap::Tag | Encap::TagsMpls => 1,
            Encap::TwoTags => 2,
            Encap::ManyTags => 3,
        };
        let reached = tags >= self.level;
        let holds = reached && self.ask.holds(headers, self.level);
        let expected = [holds, holds, reached && !holds];
        let got = self
            .programs
            .each_ref()
            .map(|program| program.as_ref().is_some_and(|program| program.filter(frame)));
        assert_eq!(
            got,
            expected,
            "{name}: {}{}\n{frame:02x?}\n{headers:#?}",
            BEFORE[self.level],
            self.ask.text()
        );
    }
}
