//! What the primitives of a filter ask, and where libpcap refuses them.

use super::names;
use super::{Direction, IpVersion, Shift, Test};
use std::net::{Ipv4Addr, Ipv6Addr};

/// Which end a qualifier names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    /// None was named.
    Default,
    /// The source.
    Src,
    /// The destination.
    Dst,
    /// `src or dst`.
    Or,
    /// `src and dst`.
    And,
    /// An address of an 802.11 frame, by its keyword.
    Wlan(&'static str),
}

/// What kind of thing a qualifier names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TypeQualifier {
    Default,
    Host,
    Net,
    Port,
    Portrange,
    Gateway,
    Proto,
    Protochain,
}

impl TypeQualifier {
    pub(super) fn of(key: &str) -> Option<Self> {
        Some(match key {
            "host" => Self::Host,
            "net" => Self::Net,
            "port" => Self::Port,
            "portrange" => Self::Portrange,
            "gateway" => Self::Gateway,
            "proto" => Self::Proto,
            "protochain" => Self::Protochain,
            _ => return None,
        })
    }

    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Default | Self::Host => "host",
            Self::Net => "net",
            Self::Port => "port",
            Self::Portrange => "portrange",
            Self::Gateway => "gateway",
            Self::Proto => "proto",
            Self::Protochain => "protochain",
        }
    }
}

/// The qualifiers before an id. What follows `and` or `or` without any inherits them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Qualifiers {
    pub(super) proto: Option<&'static str>,
    pub(super) end: End,
    pub(super) kind: TypeQualifier,
}

/// A test and its text, or what is wrong.
pub(super) type Made = Result<(Test, String), String>;

/// An id: what follows the qualifiers.
#[derive(Debug, Clone, Copy)]
pub(super) enum Id<'t> {
    Number(u32),
    Dotted(&'t str),
    /// An address and the length of its mask.
    Prefix(&'t str, u32),
    /// An address and its mask.
    Masked(&'t str, &'t str),
    Six(u128),
    SixPrefix(u128, u32),
    Mac(u64),
    Arcnet(u8),
    Name(&'t str),
}

/// Registers that libpcap has for arithmetic.
const REGISTERS: usize = 16;

/// What libpcap has learned from the primitives so far.
#[derive(Debug)]
pub(super) struct Place {
    /// Where headers are looked for.
    pub(super) shift: Shift,
    /// Behind MPLS labels there are only IPv4 and IPv6.
    labels: bool,
    /// Behind PPPoE there is no Ethernet.
    ppp: bool,
    /// The place differs from packet to packet.
    variable: bool,
    registers: usize,
}

const IPV4: u32 = 0x0800;
const IPV6: u32 = 0x86DD;

impl Place {
    pub(super) fn new() -> Self {
        Self { shift: Shift::Tags(0), labels: false, ppp: false, variable: false, registers: 0 }
    }

    /// Takes a register, as libpcap does for each intermediate number.
    pub(super) fn take_register(&mut self) -> Result<(), String> {
        if self.registers == REGISTERS {
            return Err(format!(
                "libpcap has {REGISTERS} registers, and this filter needs more: write it with \
                 fewer parentheses"
            ));
        }
        self.registers += 1;
        Ok(())
    }

    /// Gives a register back.
    pub(super) fn free_register(&mut self) {
        self.registers = self.registers.saturating_sub(1);
    }

    /// An error if a network protocol cannot be asked for here.
    fn link(&self, protocol: u32) -> Result<(), String> {
        if self.labels && protocol != IPV4 && protocol != IPV6 {
            return Err(
                "after `mpls` only IPv4 and IPv6 can be asked for: put this before it".to_owned()
            );
        }
        Ok(())
    }

    /// An error if the link has no MAC addresses here.
    fn ethernet(&self, what: &str) -> Result<(), String> {
        if self.ppp {
            return Err(format!("after `pppoes` there is no {what}: put this before it"));
        }
        Ok(())
    }

    /// A protocol by its name alone.
    pub(super) fn abbreviation(&self, name: &'static str) -> Made {
        let both = |proto| Test::IpProto { version: None, proto };
        let four = |proto| Test::IpProto { version: Some(IpVersion::V4), proto };
        let test = match name {
            "tcp" => both(6),
            "udp" => both(17),
            "sctp" => both(132),
            "pim" => both(103),
            "ah" => both(51),
            "esp" => both(50),
            "icmp" => four(1),
            "igmp" => four(2),
            "igrp" => four(9),
            "vrrp" | "carp" => four(112),
            "icmp6" => Test::IpProto { version: Some(IpVersion::V6), proto: 58 },
            "ip" => self.ether_proto(IPV4)?,
            "ip6" => self.ether_proto(IPV6)?,
            "arp" => self.ether_proto(0x0806)?,
            "rarp" => self.ether_proto(0x8035)?,
            "decnet" => self.ether_proto(0x6003)?,
            "lat" => self.ether_proto(0x6004)?,
            "sca" => self.ether_proto(0x6007)?,
            "mopdl" => self.ether_proto(0x6001)?,
            "moprc" => self.ether_proto(0x6002)?,
            "ether" => {
                return Err("the name of the link alone asks nothing: write `ether host`, `ether \
                            proto` or the like"
                    .to_owned());
            }
            "radio" => {
                return Err("`radio` alone asks nothing: write `radio[...]`".to_owned());
            }
            // AppleTalk, and protocols behind LLC.
            _ => self.ether_proto(0)?,
        };
        Ok((test, name.to_owned()))
    }

    /// A network protocol by its number. Protocols behind LLC are not in the EtherType.
    fn ether_proto(&self, protocol: u32) -> Result<Test, String> {
        self.link(protocol)?;
        Ok(match u16::try_from(protocol) {
            Ok(0x809B | 0x80F3) => Test::Opaque { within: None },
            Ok(plain) if plain > 1500 => Test::EtherType(plain),
            _ => Test::Opaque { within: None },
        })
    }

    /// An error if bytes of a protocol cannot be indexed here.
    pub(super) fn index(&self, proto: &str) -> Result<(), String> {
        match proto {
            "arp" | "rarp" | "decnet" | "sca" | "lat" | "moprc" | "mopdl" | "atalk" => self.link(0),
            _ => Ok(()),
        }
    }

    /// An id with its qualifiers.
    pub(super) fn id(&mut self, qualifiers: Qualifiers, id: Id<'_>) -> Made {
        let kind = qualifiers.kind;
        if kind == TypeQualifier::Gateway {
            return Err("libpcap is built without `gateway`: write `ether host MAC and not host \
                        ADDRESS`"
                .to_owned());
        }
        match (id, kind) {
            (Id::Number(value), TypeQualifier::Port) => {
                self.port(qualifiers, port(value)?, None, None)
            }
            (Id::Number(value), TypeQualifier::Portrange) => {
                let value = port(value)?;
                self.port(qualifiers, value, Some(value), None)
            }
            (Id::Number(value), TypeQualifier::Proto) => self.proto(qualifiers.proto, value),
            (Id::Number(value), TypeQualifier::Protochain) => {
                self.protochain(qualifiers.proto, value)
            }
            (Id::Number(value), _) => self.number(qualifiers, value),
            (Id::Name(name), _) => self.name(qualifiers, name),
            (Id::Mac(_) | Id::Arcnet(_), _) => self.mac(qualifiers, id),
            (
                Id::Dotted(text),
                TypeQualifier::Default | TypeQualifier::Host | TypeQualifier::Net,
            ) => {
                if qualifiers.proto == Some("decnet") {
                    return self.decnet(qualifiers, decnet_address(text)?);
                }
                let (address, bits) = four(text)?;
                let mask = u32::MAX << (32 - bits);
                self.host4(qualifiers, address, mask)
            }
            (Id::Prefix(text, len), TypeQualifier::Net) => {
                let (address, _) = four(text)?;
                if len > 32 {
                    return Err("the prefix of an IPv4 network has at most 32 bits".to_owned());
                }
                let mask = u32::MAX.checked_shl(32 - len).unwrap_or(0);
                network_bits(address & !mask != 0, &format!("{text}/{len}"))?;
                self.host4(qualifiers, address, mask)
            }
            (Id::Masked(text, mask_text), TypeQualifier::Net) => {
                let (address, _) = four(text)?;
                let (mask, _) = four(mask_text)?;
                network_bits(address & !mask != 0, &format!("{text} mask {mask_text}"))?;
                self.host4(qualifiers, address, mask)
            }
            (
                Id::Six(address),
                TypeQualifier::Default | TypeQualifier::Host | TypeQualifier::Net,
            ) => self.host6(qualifiers, address, 128),
            (
                Id::SixPrefix(address, len),
                TypeQualifier::Default | TypeQualifier::Host | TypeQualifier::Net,
            ) => {
                if len > 128 {
                    return Err("the prefix of an IPv6 network has at most 128 bits".to_owned());
                }
                if len < 128 && kind != TypeQualifier::Net {
                    return Err("a prefix belongs after `net`".to_owned());
                }
                let mask = u128::MAX.checked_shl(128 - len).unwrap_or(0);
                let text = format!("{}/{len}", Ipv6Addr::from_bits(address));
                network_bits(address & !mask != 0, &text)?;
                self.host6(qualifiers, address, len)
            }
            (Id::Prefix(..) | Id::Masked(..), TypeQualifier::Default | TypeQualifier::Host) => {
                Err("a mask belongs after `net`".to_owned())
            }
            _ => Err(format!("expected {}, not an address", expected(kind))),
        }
    }

    /// A number behind `host` or `net`.
    fn number(&self, qualifiers: Qualifiers, value: u32) -> Made {
        match qualifiers.proto {
            Some("decnet") => self.decnet(qualifiers, value),
            Some("ether") => Err(MAC_EXPECTED.to_owned()),
            _ if qualifiers.kind == TypeQualifier::Net => {
                // A network may be written short: its first byte is the first that is not zero.
                let zeros = if value == 0 { 0 } else { value.leading_zeros() / 8 * 8 };
                self.host4(qualifiers, value << zeros, u32::MAX << zeros)
            }
            _ => self.host4(qualifiers, value, u32::MAX),
        }
    }

    fn name(&mut self, qualifiers: Qualifiers, name: &str) -> Made {
        match qualifiers.kind {
            TypeQualifier::Port => {
                let (port, transport) = service(name)?;
                self.port(qualifiers, port, None, transport.map(|transport| (transport, name)))
            }
            TypeQualifier::Portrange => {
                let (first, last, transport) = port_range(name)?;
                let transport = transport.map(|transport| (transport, name));
                self.port(qualifiers, first, Some(last), transport)
            }
            TypeQualifier::Proto => {
                let number = protocol(qualifiers.proto, name)?;
                self.proto(qualifiers.proto, number)
            }
            TypeQualifier::Protochain => {
                let number = protocol(qualifiers.proto, name)?;
                self.protochain(qualifiers.proto, number)
            }
            TypeQualifier::Net => {
                Err("names of networks are not looked up; write the address".to_owned())
            }
            _ if qualifiers.proto == Some("ether") => {
                Err("names of stations are not looked up; write the MAC address".to_owned())
            }
            _ => Err("host names are not looked up; write the address".to_owned()),
        }
    }

    fn mac(&self, qualifiers: Qualifiers, id: Id<'_>) -> Made {
        if !matches!(qualifiers.kind, TypeQualifier::Default | TypeQualifier::Host)
            || qualifiers.proto != Some("ether")
        {
            return Err(
                "a MAC address belongs after `ether host`, `ether src` or `ether dst`".to_owned()
            );
        }
        self.ethernet("MAC address")?;
        let (address, shown) = match id {
            Id::Mac(address) => (Some(address), mac_text(address)),
            Id::Arcnet(station) => (None, format!("${station:02x}")),
            _ => return Err(MAC_EXPECTED.to_owned()),
        };
        let text = format!("ether {}host {shown}", end_text(qualifiers.end));
        let test = match (address, direction(qualifiers.end)) {
            (Some(address), Some(direction)) => Test::Mac { direction, address },
            _ => Test::Opaque { within: None },
        };
        Ok((test, text))
    }

    fn host4(&self, qualifiers: Qualifiers, address: u32, mask: u32) -> Made {
        let (ip, arp, rarp) = match qualifiers.proto {
            None if self.labels => (true, false, false),
            None => (true, true, true),
            Some("ip") => (true, false, false),
            Some("arp") => (false, true, false),
            Some("rarp") => (false, false, true),
            Some("ether") => return Err(MAC_EXPECTED.to_owned()),
            Some("ip6") => return Err("expected an IPv6 address after `ip6`".to_owned()),
            Some(other) => return Err(not_of(other, qualifiers.kind)),
        };
        if arp || rarp {
            self.link(0)?;
        }
        let direction = end(qualifiers.end, "IP addresses")?;
        let test = Test::Host4 { ip, arp, rarp, direction, address, mask };
        let proto = qualifiers.proto.map(|proto| format!("{proto} ")).unwrap_or_default();
        let (end, shown) = (end_text(qualifiers.end), Ipv4Addr::from_bits(address));
        let text = if mask == u32::MAX {
            format!("{proto}{end}host {shown}")
        } else {
            format!("{proto}{end}net {shown} mask {}", Ipv4Addr::from_bits(mask))
        };
        Ok((test, text))
    }

    fn decnet(&self, qualifiers: Qualifiers, address: u32) -> Made {
        self.link(0)?;
        end(qualifiers.end, "DECnet addresses")?;
        let within = Some(Box::new(Test::EtherType(0x6003)));
        let text = format!("decnet {}host {address}", end_text(qualifiers.end));
        Ok((Test::Opaque { within }, text))
    }

    fn host6(&self, qualifiers: Qualifiers, address: u128, len: u32) -> Made {
        match qualifiers.proto {
            None | Some("ip6") => {}
            Some("ether") => return Err(MAC_EXPECTED.to_owned()),
            Some(other @ ("ip" | "arp" | "rarp")) => {
                return Err(format!("expected an IPv4 address after `{other}`"));
            }
            Some(other) => return Err(not_of(other, qualifiers.kind)),
        }
        let direction = end(qualifiers.end, "IP addresses")?;
        let mask = u128::MAX.checked_shl(128 - len).unwrap_or(0);
        let (end, shown) = (end_text(qualifiers.end), Ipv6Addr::from_bits(address));
        let text = if len == 128 {
            format!("ip6 {end}host {shown}")
        } else {
            format!("ip6 {end}net {shown}/{len}")
        };
        Ok((Test::Host6 { direction, address, mask }, text))
    }

    /// A port, or ports up to `last`; `named` is the transport that the name of a service implies.
    fn port(
        &self,
        qualifiers: Qualifiers,
        first: u16,
        last: Option<u16>,
        named: Option<(u8, &str)>,
    ) -> Made {
        let own = match qualifiers.proto {
            None => None,
            Some("tcp") => Some(6),
            Some("udp") => Some(17),
            Some("sctp") => Some(132),
            Some(other) => return Err(not_of(other, qualifiers.kind)),
        };
        if let (Some(own), Some((named, name))) = (own, named)
            && own != named
        {
            return Err(format!("`{name}` is a port of {}", transport_name(named)));
        }
        let transport = own.or(named.map(|(transport, _)| transport));
        let direction = end(qualifiers.end, "ports")?;
        let ports = first.min(last.unwrap_or(first))..=first.max(last.unwrap_or(first));
        let proto = transport.map(|transport| format!("{} ", transport_name(transport)));
        let (proto, end) = (proto.unwrap_or_default(), end_text(qualifiers.end));
        let text = match last {
            None => format!("{proto}{end}port {first}"),
            Some(_) => format!("{proto}{end}portrange {}-{}", ports.start(), ports.end()),
        };
        Ok((Test::Port { transport, direction, ports }, text))
    }

    fn proto(&self, proto: Option<&str>, number: u32) -> Made {
        let ip = |version, within| match u8::try_from(number) {
            Ok(proto) => Test::IpProto { version, proto },
            Err(_) => Test::Opaque { within },
        };
        let four = || Some(Box::new(Test::EtherType(0x0800)));
        let six = || Some(Box::new(Test::EtherType(0x86DD)));
        let test = match proto {
            None => ip(None, None),
            Some("ip") => ip(Some(IpVersion::V4), four()),
            Some("ip6") => ip(Some(IpVersion::V6), six()),
            Some("ether") => self.ether_proto(number)?,
            Some("iso" | "isis") => self.ether_proto(0)?,
            Some(other) => {
                return Err(format!("`{other}` has no protocols after it that can be asked for"));
            }
        };
        let proto = proto.map(|proto| format!("{proto} ")).unwrap_or_default();
        Ok((test, format!("{proto}proto {number}")))
    }

    fn protochain(&mut self, proto: Option<&str>, number: u32) -> Made {
        if self.variable {
            return Err("after `geneve` there is no `protochain`: put this before it".to_owned());
        }
        self.take_register()?;
        let within = match proto {
            None => {
                // This register is not given back: libpcap forgets it.
                self.take_register()?;
                None
            }
            Some("ip") => Some(Box::new(Test::EtherType(0x0800))),
            Some("ip6") => Some(Box::new(Test::EtherType(0x86DD))),
            Some(_) => {
                return Err("`protochain` goes with `ip` and `ip6` only".to_owned());
            }
        };
        self.free_register();
        let proto = proto.map(|proto| format!("{proto} ")).unwrap_or_default();
        Ok((Test::Opaque { within }, format!("{proto}protochain {number}")))
    }

    pub(super) fn broadcast(&self, proto: Option<&str>) -> Made {
        match proto {
            None | Some("ether") => {
                self.ethernet("broadcast")?;
                let address = 0xFFFF_FFFF_FFFF;
                let test = Test::Mac { direction: Direction::Dst, address };
                Ok((test, "ether broadcast".to_owned()))
            }
            Some("ip") => {
                let within = Some(Box::new(Test::EtherType(0x0800)));
                Ok((Test::Opaque { within }, "ip broadcast".to_owned()))
            }
            Some(_) => Err("`broadcast` goes with `ether` and `ip` only".to_owned()),
        }
    }

    pub(super) fn multicast(&self, proto: Option<&str>) -> Made {
        match proto {
            None | Some("ether") => {
                self.ethernet("multicast")?;
                Ok((Test::EtherMulticast, "ether multicast".to_owned()))
            }
            Some("ip") => Ok((Test::IpMulticast, "ip multicast".to_owned())),
            Some("ip6") => Ok((Test::Ip6Multicast, "ip6 multicast".to_owned())),
            Some(_) => Err("`multicast` goes with `ether`, `ip` and `ip6` only".to_owned()),
        }
    }

    pub(super) fn llc(&self) -> Result<(), String> {
        self.ethernet("LLC")
    }

    pub(super) fn vlan(&mut self, id: Option<u32>) -> Made {
        if self.labels {
            return Err("after `mpls` there are no VLAN tags: put `vlan` before it".to_owned());
        }
        self.ethernet("VLAN tag")?;
        let id = limited(id, 0xFFF, "the id of a VLAN")?;
        let test = match self.shift {
            Shift::Tags(_) => Test::Vlan(id.and_then(|id| u16::try_from(id).ok())),
            Shift::Elsewhere => Test::Opaque { within: None },
        };
        self.shift = match self.shift {
            Shift::Tags(tags) => tags.checked_add(1).map_or(Shift::Elsewhere, Shift::Tags),
            Shift::Elsewhere => Shift::Elsewhere,
        };
        Ok((test, with_number("vlan", id)))
    }

    pub(super) fn mpls(&mut self, label: Option<u32>) -> Made {
        let label = limited(label, 0xF_FFFF, "an MPLS label")?;
        let test = match self.shift {
            Shift::Tags(0) => Test::Mpls(label),
            _ => Test::Opaque { within: None },
        };
        self.labels = true;
        self.shift = Shift::Elsewhere;
        Ok((test, with_number("mpls", label)))
    }

    pub(super) fn pppoed(&self) -> Made {
        Ok((self.ether_proto(0x8863)?, "pppoed".to_owned()))
    }

    pub(super) fn pppoes(&mut self, session: Option<u32>) -> Made {
        let session = limited(session, 0xFFFF, "a PPPoE session")?;
        let plain = self.ether_proto(0x8864)?;
        let test = match session {
            None => plain,
            Some(_) => Test::Opaque { within: Some(Box::new(plain)) },
        };
        self.ppp = true;
        self.shift = Shift::Elsewhere;
        Ok((test, with_number("pppoes", session)))
    }

    pub(super) fn geneve(&mut self, network: Option<u32>) -> Made {
        let network = limited(network, 0xFF_FFFF, "a Geneve network")?;
        let carrier =
            Test::Port { transport: Some(17), direction: Direction::Dst, ports: 6081..=6081 };
        for _ in 0..3 {
            self.take_register()?;
        }
        self.variable = true;
        self.ppp = false;
        self.shift = Shift::Elsewhere;
        let test = Test::Opaque { within: Some(Box::new(carrier)) };
        Ok((test, with_number("geneve", network)))
    }
}

const MAC_EXPECTED: &str = "expected a MAC address after `ether`";

/// What belongs behind a qualifier.
pub(super) fn expected(kind: TypeQualifier) -> &'static str {
    match kind {
        TypeQualifier::Default => "an address after `src` or `dst`",
        TypeQualifier::Host => "an address after `host`",
        TypeQualifier::Net => "a network after `net`",
        TypeQualifier::Port => "a port number or name after `port`",
        TypeQualifier::Portrange => "ports after `portrange`, such as 6000-6008",
        TypeQualifier::Gateway => "a name after `gateway`",
        TypeQualifier::Proto => "a protocol number or name after `proto`",
        TypeQualifier::Protochain => "a protocol number or name after `protochain`",
    }
}

fn not_of(proto: &str, kind: TypeQualifier) -> String {
    format!("`{proto}` does not go with `{}`", kind.word())
}

fn with_number(word: &str, number: Option<u32>) -> String {
    number.map_or_else(|| word.to_owned(), |number| format!("{word} {number}"))
}

fn limited(number: Option<u32>, most: u32, what: &str) -> Result<Option<u32>, String> {
    match number {
        Some(number) if number > most => Err(format!("{what} is at most {most}")),
        number => Ok(number),
    }
}

fn network_bits(set: bool, text: &str) -> Result<(), String> {
    if set {
        return Err(format!("`{text}` has bits set after the mask"));
    }
    Ok(())
}

fn direction(end: End) -> Option<Direction> {
    match end {
        End::Default | End::Or => Some(Direction::Either),
        End::Src => Some(Direction::Src),
        End::Dst => Some(Direction::Dst),
        End::And => Some(Direction::Both),
        End::Wlan(_) => None,
    }
}

/// The direction, where 802.11 addresses are not allowed.
fn end(end: End, of: &str) -> Result<Direction, String> {
    direction(end).ok_or_else(|| format!("{} does not go with {of}", end_text(end).trim_end()))
}

fn end_text(end: End) -> String {
    match end {
        End::Default | End::Or => String::new(),
        End::Src => "src ".to_owned(),
        End::Dst => "dst ".to_owned(),
        End::And => "src and dst ".to_owned(),
        End::Wlan(word) => format!("{word} "),
    }
}

/// A MAC address as text.
fn mac_text(address: u64) -> String {
    let [_, _, bytes @ ..] = address.swap_bytes().to_le_bytes();
    let bytes: Vec<String> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    bytes.join(":")
}

/// An IPv4 address of one to four bytes, at the left, and how many bits were written.
fn four(text: &str) -> Result<(u32, u32), String> {
    let mut address = 0_u32;
    let mut bits = 0_u32;
    for part in text.split('.') {
        let byte = part.parse::<u8>().ok().filter(|_| bits < 32);
        let byte = byte.ok_or_else(|| {
            format!("`{text}` is not an IPv4 address: each part is a decimal number up to 255")
        })?;
        bits += 8;
        address |= u32::from(byte) << (32 - bits);
    }
    Ok((address, bits))
}

fn decnet_address(text: &str) -> Result<u32, String> {
    let mut parts = text.split('.').map(str::parse::<u32>);
    match (parts.next(), parts.next()) {
        (Some(Ok(area)), Some(Ok(node))) => Ok((area << 10) & 0xFC00 | node & 0x3FF),
        _ => Err(format!("`{text}` is not a DECnet address: write AREA.NODE")),
    }
}

fn port(number: u32) -> Result<u16, String> {
    u16::try_from(number).map_err(|_| format!("{number} is not a port: they end at 65535"))
}

fn transport_name(transport: u8) -> &'static str {
    match transport {
        6 => "tcp",
        17 => "udp",
        _ => "sctp",
    }
}

fn service(name: &str) -> Result<(u16, Option<u8>), String> {
    if let Ok(number) = name.parse::<u16>() {
        return Ok((number, None));
    }
    names::service(name).ok_or_else(|| format!("there is no service `{name}`; write its number"))
}

/// Two ports with a `-` between them.
fn port_range(name: &str) -> Result<(u16, u16, Option<u8>), String> {
    let error = || format!("`{name}` is not a range of ports; write it like 6000-6008");
    let (first, last) = name.split_once('-').ok_or_else(error)?;
    // libpcap reads digits, and ignores what follows them.
    let leading = |text: &str| {
        let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
        text.get(..digits).filter(|digits| !digits.is_empty()).map(str::to_owned)
    };
    if first.bytes().all(|byte| byte.is_ascii_digit())
        && let (Some(first), Some(last)) = (leading(first), leading(last))
    {
        let number = |text: String| {
            let number = text.parse::<u32>().map_err(|_| error())?;
            port(number)
        };
        return Ok((number(first)?, number(last)?, None));
    }
    let ((first, one), (last, other)) = (service(first)?, service(last)?);
    Ok((first, last, if one == other { one } else { None }))
}

fn protocol(proto: Option<&str>, name: &str) -> Result<u32, String> {
    let number = match proto {
        None | Some("ip" | "ip6") => names::ip_proto(name),
        Some("ether") => names::ether_proto(name),
        Some("iso") => names::iso_proto(name),
        Some(_) => None,
    };
    number.ok_or_else(|| format!("there is no protocol `{name}` here; write its number"))
}
