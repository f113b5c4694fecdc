//! Questions as algebra on sets of packets, one set for each value of each header field, with
//! libpcap's meaning.
//!
//! A field is 0 where a packet does not have it. So an address says of itself that there is a
//! header that has addresses, and a port that there is a header that has ports; only that frames
//! with tags are not looked into has to be said. Where few packets are looked for, alternatives are
//! written out, so that each begins with its smallest set.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::ops::RangeInclusive;

use tapdex_engine::fields::Field;
use tapdex_engine::packet::{ETHERTYPE_IPV4, ETHERTYPE_IPV6, protocol};

/// Packets, by the values of their fields.
#[derive(Debug, Clone)]
pub enum Sets {
    /// Those in which a field has one of these values, none of which is 0.
    Values(Field, RangeInclusive<u128>),
    /// Those that are in all of these.
    All(Vec<Self>),
    /// Those that are in at least one of these.
    Any(Vec<Self>),
    /// Those of the first in which the field has none of these values.
    Without(Box<Self>, Field, RangeInclusive<u128>),
}

const ADDRESSES: [Field; 2] = [Field::IpSrc, Field::IpDst];
const PORTS: [Field; 2] = [Field::PortSrc, Field::PortDst];

/// A field has this value.
fn is(field: Field, value: impl Into<u128>) -> Sets {
    let value = value.into();
    Sets::Values(field, value..=value)
}

/// Either end has this value.
fn either(ends: [Field; 2], value: impl Into<u128>) -> Sets {
    let value = value.into();
    Sets::Any(ends.map(|field| is(field, value)).into())
}

/// Frames that have neither tags nor labels.
fn plain(sets: Sets) -> Sets {
    Sets::Without(Box::new(sets), Field::Encap, 1..=u128::from(u8::MAX))
}

/// A TCP flow, or two hosts of IPv4 with a port that is the same twice.
pub fn flow(hosts: [Ipv4Addr; 2], tcp_only: bool, [p, q]: [u16; 2]) -> Sets {
    let [a, b] = hosts.map(u32::from);
    let [src, dst] = PORTS;
    let ports = match p == q {
        true => vec![vec![is(src, p)], vec![is(dst, p)]],
        false => vec![vec![is(src, p), is(dst, q)], vec![is(src, q), is(dst, p)]],
    };
    let mut parts = Vec::new();
    for (from, to) in [(a, b), (b, a)] {
        for ports in &ports {
            let mut part = vec![is(Field::IpSrc, from), is(Field::IpDst, to)];
            part.extend(ports.iter().cloned());
            part.extend(tcp_only.then(|| is(Field::IpProto, protocol::TCP)));
            parts.push(Sets::All(part));
        }
    }
    plain(Sets::Any(parts))
}

/// A host at either end.
pub fn host(host: Ipv4Addr) -> Sets {
    plain(either(ADDRESSES, u32::from(host)))
}

/// A host of IPv6 at either end.
pub fn host6(host: Ipv6Addr) -> Sets {
    plain(either([Field::Ip6Src, Field::Ip6Dst], u128::from(host)))
}

/// An Ethernet address at either end.
pub fn ether(address: u64) -> Sets {
    either([Field::EthSrc, Field::EthDst], address)
}

/// A host of IPv4 at either end, and a port of a protocol at either end.
pub fn host_port(host: Ipv4Addr, protocol: u8, port: u16) -> Sets {
    let mut parts = Vec::new();
    for address in ADDRESSES {
        for end in PORTS {
            let host = is(address, u32::from(host));
            parts.push(Sets::All(vec![host, is(end, port), is(Field::IpProto, protocol)]));
        }
    }
    plain(Sets::Any(parts))
}

/// A protocol of IPv4.
pub fn protocol(protocol: u8) -> Sets {
    plain(Sets::All(vec![is(Field::EthType, ETHERTYPE_IPV4), is(Field::IpProto, protocol)]))
}

/// Flags of TCP over IPv4: of those in the mask, just these, one of which at least is set.
pub fn flags(mask: u8, flags: u8) -> Sets {
    let values = (0..=u8::MAX).filter(|value| value & mask == flags);
    let flags = Sets::Any(values.map(|value| is(Field::TcpFlags, value)).collect());
    plain(Sets::All(vec![is(Field::EthType, ETHERTYPE_IPV4), flags]))
}

/// A port of a protocol at either end, over IPv4 or IPv6; extension headers are not passed over.
pub fn port(protocol: u8, port: u16) -> Sets {
    plain(Sets::All(vec![is(Field::IpProto, protocol), either(PORTS, port)]))
}

/// A network of IPv4 at either end.
pub fn net(net: Ipv4Addr, bits: u32) -> Sets {
    let first = u32::from(net);
    let last = first | u32::MAX.checked_shr(bits).unwrap_or(0);
    let end = |field| Sets::Values(field, first.into()..=last.into());
    plain(Sets::Any(ADDRESSES.map(end).into()))
}

/// A protocol behind one tag, over IPv4 or IPv6; of extension headers, that of fragments is passed
/// over.
pub fn tagged(protocol: u8) -> Sets {
    let proto = || is(Field::IpProto, protocol);
    let behind = vec![is(Field::IpProto, protocol::FRAGMENT), is(Field::L4, protocol)];
    let four = vec![is(Field::EthType, ETHERTYPE_IPV4), proto()];
    let six = vec![is(Field::EthType, ETHERTYPE_IPV6), Sets::Any(vec![proto(), Sets::All(behind)])];
    let network = Sets::Any(vec![Sets::All(four), Sets::All(six)]);
    Sets::All(vec![is(Field::Encap, 1_u8), network])
}
