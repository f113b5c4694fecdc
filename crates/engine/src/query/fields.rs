//! Fields by the names that Wireshark has for them: in columns, and in the headers of a packet.

use std::ops::RangeInclusive;

use super::filter::{Expr, FieldTest, Test};
use super::plan::{Dialect, Planner, Set};
use crate::archive::names;
use crate::capture::Record;
use crate::error::IndexError;
use crate::packet::{
    ETHERTYPE_ARP, ETHERTYPE_IPV4, ETHERTYPE_IPV6, Encap, Fragment, Headers, LinkType, Tunnel,
    protocol,
};

/// The field that no column tells in full: columns have classes of lengths.
pub(super) const FRAME_LEN: &str = "frame.len";

/// When a packet has a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Guard {
    Always,
    /// Its link has Ethernet headers.
    Ethernet,
    /// Straight behind the Ethernet header.
    EtherType,
    /// It has a tag, or two.
    Tag,
    TwoTags,
    Mpls,
    /// Its network header is of this EtherType.
    Network(u16),
    /// It carries this protocol, and is no later fragment.
    Transport(u8),
    Tunnel,
    /// Its inner packet is of this EtherType.
    Inner(u16),
    /// Its inner packet has ports.
    InnerPorts,
}

/// Where a field is found: one guard and column, or several.
type Places = &'static [(Guard, &'static str)];

/// A field: its name, its places, and the bit of the column that it is, if it is not all of it.
struct Mapping(&'static str, Places, Option<u8>);

const IP4: Guard = Guard::Network(ETHERTYPE_IPV4);
const IP6: Guard = Guard::Network(ETHERTYPE_IPV6);
const ARP: Guard = Guard::Network(ETHERTYPE_ARP);
const INNER4: Guard = Guard::Inner(ETHERTYPE_IPV4);
const INNER6: Guard = Guard::Inner(ETHERTYPE_IPV6);
const TCP: Guard = Guard::Transport(protocol::TCP);
const UDP: Guard = Guard::Transport(protocol::UDP);
const SCTP: Guard = Guard::Transport(protocol::SCTP);
const ICMP: Guard = Guard::Transport(protocol::ICMP);
const ICMP6: Guard = Guard::Transport(protocol::ICMP6);

const MAPPINGS: &[Mapping] = {
    use names::*;
    &[
        Mapping("frame", &[(Guard::Always, LENGTH)], None),
        Mapping("frame.interface_id", &[(Guard::Always, INTERFACE)], None),
        Mapping("eth", &[(Guard::Ethernet, ETH_SRC)], None),
        Mapping("eth.addr", &[(Guard::Ethernet, ETH_SRC), (Guard::Ethernet, ETH_DST)], None),
        Mapping("eth.src", &[(Guard::Ethernet, ETH_SRC)], None),
        Mapping("eth.dst", &[(Guard::Ethernet, ETH_DST)], None),
        Mapping("eth.type", &[(Guard::EtherType, ETH_TYPE)], None),
        Mapping("vlan", &[(Guard::Tag, VLAN)], None),
        Mapping("vlan.id", &[(Guard::Tag, VLAN), (Guard::TwoTags, VLAN_INNER)], None),
        Mapping("mpls", &[(Guard::Mpls, MPLS)], None),
        Mapping("mpls.label", &[(Guard::Mpls, MPLS)], None),
        Mapping("arp", &[(ARP, IP_SRC)], None),
        Mapping("arp.src.proto_ipv4", &[(ARP, IP_SRC)], None),
        Mapping("arp.dst.proto_ipv4", &[(ARP, IP_DST)], None),
        Mapping("ip", &[(IP4, IP_SRC)], None),
        Mapping("ip.addr", &[(IP4, IP_SRC), (IP4, IP_DST)], None),
        Mapping("ip.src", &[(IP4, IP_SRC)], None),
        Mapping("ip.dst", &[(IP4, IP_DST)], None),
        Mapping("ip.proto", &[(IP4, IP_PROTO)], None),
        Mapping("ipv6", &[(IP6, IP6_SRC)], None),
        Mapping("ipv6.addr", &[(IP6, IP6_SRC), (IP6, IP6_DST)], None),
        Mapping("ipv6.src", &[(IP6, IP6_SRC)], None),
        Mapping("ipv6.dst", &[(IP6, IP6_DST)], None),
        Mapping("ipv6.nxt", &[(IP6, IP_PROTO)], None),
        Mapping("tcp", &[(TCP, PORT_SRC)], None),
        Mapping("tcp.port", &[(TCP, PORT_SRC), (TCP, PORT_DST)], None),
        Mapping("tcp.srcport", &[(TCP, PORT_SRC)], None),
        Mapping("tcp.dstport", &[(TCP, PORT_DST)], None),
        Mapping("udp", &[(UDP, PORT_SRC)], None),
        Mapping("udp.port", &[(UDP, PORT_SRC), (UDP, PORT_DST)], None),
        Mapping("udp.srcport", &[(UDP, PORT_SRC)], None),
        Mapping("udp.dstport", &[(UDP, PORT_DST)], None),
        Mapping("sctp", &[(SCTP, PORT_SRC)], None),
        Mapping("sctp.port", &[(SCTP, PORT_SRC), (SCTP, PORT_DST)], None),
        Mapping("sctp.srcport", &[(SCTP, PORT_SRC)], None),
        Mapping("sctp.dstport", &[(SCTP, PORT_DST)], None),
        Mapping("tcp.flags", &[(TCP, TCP_FLAGS)], None),
        Mapping("tcp.flags.fin", &[(TCP, TCP_FLAGS)], Some(0)),
        Mapping("tcp.flags.syn", &[(TCP, TCP_FLAGS)], Some(1)),
        Mapping("tcp.flags.reset", &[(TCP, TCP_FLAGS)], Some(2)),
        Mapping("tcp.flags.push", &[(TCP, TCP_FLAGS)], Some(3)),
        Mapping("tcp.flags.ack", &[(TCP, TCP_FLAGS)], Some(4)),
        Mapping("tcp.flags.urg", &[(TCP, TCP_FLAGS)], Some(5)),
        Mapping("tcp.flags.ece", &[(TCP, TCP_FLAGS)], Some(6)),
        Mapping("tcp.flags.cwr", &[(TCP, TCP_FLAGS)], Some(7)),
        Mapping("icmp", &[(ICMP, ICMP_TYPE)], None),
        Mapping("icmp.type", &[(ICMP, ICMP_TYPE)], None),
        Mapping("icmp.code", &[(ICMP, ICMP_CODE)], None),
        Mapping("icmpv6", &[(ICMP6, ICMP_TYPE)], None),
        Mapping("icmpv6.type", &[(ICMP6, ICMP_TYPE)], None),
        Mapping("icmpv6.code", &[(ICMP6, ICMP_CODE)], None),
        Mapping("tunnel.type", &[(Guard::Tunnel, TUNNEL)], None),
        Mapping("tunnel.id", &[(Guard::Tunnel, TUNNEL_ID)], None),
        Mapping("inner.ip.addr", &[(INNER4, INNER_SRC), (INNER4, INNER_DST)], None),
        Mapping("inner.ip.src", &[(INNER4, INNER_SRC)], None),
        Mapping("inner.ip.dst", &[(INNER4, INNER_DST)], None),
        Mapping("inner.ipv6.addr", &[(INNER6, INNER_SRC), (INNER6, INNER_DST)], None),
        Mapping("inner.ipv6.src", &[(INNER6, INNER_SRC)], None),
        Mapping("inner.ipv6.dst", &[(INNER6, INNER_DST)], None),
        Mapping("inner.ip.proto", &[(Guard::Tunnel, INNER_L4)], None),
        Mapping(
            "inner.port",
            &[(Guard::InnerPorts, INNER_PORT_SRC), (Guard::InnerPorts, INNER_PORT_DST)],
            None,
        ),
        Mapping("inner.port.src", &[(Guard::InnerPorts, INNER_PORT_SRC)], None),
        Mapping("inner.port.dst", &[(Guard::InnerPorts, INNER_PORT_DST)], None),
    ]
};

fn mapping(name: &str) -> Option<&'static Mapping> {
    MAPPINGS.iter().find(|mapping| mapping.0 == name)
}

fn contains(values: &[RangeInclusive<u128>], value: u128) -> bool {
    values.iter().any(|range| range.contains(&value))
}

const TAGGED: [u128; 4] =
    [Encap::Tag as u128, Encap::TwoTags as u128, Encap::ManyTags as u128, Encap::TagsMpls as u128];
const PORTS: [u128; 3] = [protocol::TCP as u128, protocol::UDP as u128, protocol::SCTP as u128];

/// The rows in which a field has one of the values of a test.
pub(super) fn rows<'a>(planner: &Planner<'a>, test: &FieldTest) -> Result<Set<'a>, IndexError> {
    if test.name == FRAME_LEN {
        return planner.length(&test.values);
    }
    let Some(Mapping(_, places, bit)) = mapping(test.name) else {
        return Ok(Set::None);
    };
    let mut found = Vec::with_capacity(places.len());
    for &(guard, column) in *places {
        let value = match bit {
            None => planner.ranges(column, &test.values)?,
            Some(bit) => {
                let digits = (0..=255_u128).filter(|d| contains(&test.values, d >> bit & 1));
                planner.any_value(column, &digits.collect::<Vec<_>>())?
            }
        };
        let guard = match value {
            Set::None => continue,
            _ => guard_rows(planner, guard)?,
        };
        found.push(value.and(guard));
    }
    Ok(Set::any_of(found))
}

fn guard_rows<'a>(planner: &Planner<'a>, guard: Guard) -> Result<Set<'a>, IndexError> {
    let equals = |name, value: u128| planner.equals(name, value);
    Ok(match guard {
        Guard::Always => Set::All,
        Guard::Ethernet if planner.dialect == Dialect::Ethernet => Set::All,
        Guard::Ethernet => Set::None,
        Guard::EtherType if planner.dialect != Dialect::Ethernet => Set::None,
        Guard::EtherType => {
            planner.any_value(names::ENCAP, &[Encap::None as u128, Encap::Mpls as u128])?
        }
        Guard::Tag => planner.any_value(names::ENCAP, &TAGGED)?,
        Guard::TwoTags => equals(names::ENCAP, Encap::TwoTags as u128)?,
        Guard::Mpls => {
            planner.any_value(names::ENCAP, &[Encap::Mpls as u128, Encap::TagsMpls as u128])?
        }
        Guard::Network(kind) => equals(names::ETH_TYPE, kind.into())?,
        Guard::Transport(proto) => {
            let kinds = [u128::from(ETHERTYPE_IPV4), u128::from(ETHERTYPE_IPV6)];
            let later = equals(names::FRAGMENT, Fragment::Later as u128)?;
            Set::all_of(vec![
                equals(names::L4, proto.into())?,
                planner.any_value(names::ETH_TYPE, &kinds)?,
                later.not(planner.index.rows()),
            ])
        }
        Guard::Tunnel => equals(names::TUNNEL, Tunnel::None as u128)?.not(planner.index.rows()),
        Guard::Inner(kind) => equals(names::INNER_TYPE, kind.into())?,
        Guard::InnerPorts => planner.any_value(names::INNER_L4, &PORTS)?,
    })
}

/// The rows with headers that Wireshark looks into and columns have no fields for: in tunnels, in
/// ICMP errors, in PPPoE, behind MPLS labels and behind more than two tags.
pub(super) fn inner_rows<'a>(planner: &Planner<'a>) -> Result<Set<'a>, IndexError> {
    /// A session of PPPoE.
    const PPPOE: u128 = 0x8864;
    const ICMP_ERRORS: [u128; 5] = [3, 4, 5, 11, 12];
    const ICMP6_ERRORS: [u128; 4] = [1, 2, 3, 4];
    let encaps = [Encap::Mpls, Encap::TagsMpls, Encap::ManyTags].map(|encap| encap as u128);
    let icmp = planner.any_value(names::ICMP_TYPE, &ICMP_ERRORS)?;
    let icmp6 = planner.any_value(names::ICMP_TYPE, &ICMP6_ERRORS)?;
    Ok(Set::any_of(vec![
        guard_rows(planner, Guard::Tunnel)?,
        planner.any_value(names::ENCAP, &encaps)?,
        planner.equals(names::ETH_TYPE, PPPOE)?,
        icmp.and(guard_rows(planner, ICMP)?),
        icmp6.and(guard_rows(planner, ICMP6)?),
    ]))
}

/// Whether Wireshark would find a field in inner headers as well.
pub(super) fn may_be_inner(name: &str) -> bool {
    let outer = ["frame", "eth", "vlan", "mpls", "tunnel", "inner"];
    !outer.contains(&name.split('.').next().unwrap_or(name))
}

/// Whether a packet, whose headers were decoded, matches an expression of fields.
pub(super) fn matches(expr: &Expr, headers: &Headers, record: &Record<'_>) -> bool {
    match expr {
        Expr::And(parts) => parts.iter().all(|part| matches(part, headers, record)),
        Expr::Or(parts) => parts.iter().any(|part| matches(part, headers, record)),
        Expr::Not(part) => !matches(part, headers, record),
        Expr::Term(term) => match &term.test {
            Test::Field(test) => matches_test(test, headers, record),
            // No other test comes out of a filter of fields.
            _ => false,
        },
    }
}

fn matches_test(test: &FieldTest, headers: &Headers, record: &Record<'_>) -> bool {
    if test.name == FRAME_LEN {
        return contains(&test.values, record.wire_len.into());
    }
    let Some(Mapping(_, places, bit)) = mapping(test.name) else {
        return false;
    };
    places.iter().any(|&(guard, column)| {
        let value = value(headers, record, column);
        let value = bit.map_or(value, |bit| value >> bit & 1);
        contains(&test.values, value) && guard_holds(headers, record, guard)
    })
}

fn guard_holds(headers: &Headers, record: &Record<'_>, guard: Guard) -> bool {
    let is_ethernet = record.link == LinkType::ETHERNET;
    let is_ip = [ETHERTYPE_IPV4, ETHERTYPE_IPV6].contains(&headers.eth_type);
    let encap = headers.encap as u128;
    match guard {
        Guard::Always => true,
        Guard::Ethernet => is_ethernet,
        Guard::EtherType => is_ethernet && [Encap::None, Encap::Mpls].contains(&headers.encap),
        Guard::Tag => TAGGED.contains(&encap),
        Guard::TwoTags => headers.encap == Encap::TwoTags,
        Guard::Mpls => [Encap::Mpls, Encap::TagsMpls].contains(&headers.encap),
        Guard::Network(kind) => headers.eth_type == kind,
        Guard::Transport(proto) => {
            headers.l4 == proto && is_ip && headers.fragment != Fragment::Later
        }
        Guard::Tunnel => headers.wide && headers.tunnel != Tunnel::None,
        Guard::Inner(kind) => headers.wide && headers.inner.eth_type == kind,
        Guard::InnerPorts => headers.wide && PORTS.contains(&headers.inner.l4.into()),
    }
}

/// The value of a column, from the headers of a packet; 0 for a length, which has a class there.
pub(super) fn value(headers: &Headers, record: &Record<'_>, column: &str) -> u128 {
    let wide = |value: u128| if headers.wide { value } else { 0 };
    match column {
        names::INTERFACE => record.interface.into(),
        names::ENCAP => headers.encap as u128,
        names::ODD => headers.odd.into(),
        names::ETH_TYPE => headers.eth_type.into(),
        names::FRAGMENT => headers.fragment as u128,
        names::IP_PROTO => headers.proto.into(),
        names::IP_SRC => headers.ip_src.into(),
        names::IP_DST => headers.ip_dst.into(),
        names::PORT_SRC => headers.port_src.into(),
        names::PORT_DST => headers.port_dst.into(),
        names::ETH_SRC => headers.eth_src.into(),
        names::ETH_DST => headers.eth_dst.into(),
        names::VLAN => headers.vlan.into(),
        names::VLAN_INNER => headers.vlan_inner.into(),
        names::L4 => headers.l4.into(),
        names::ICMP_TYPE => headers.icmp_type.into(),
        names::ICMP_CODE => headers.icmp_code.into(),
        names::MPLS => headers.mpls.into(),
        names::IP6_SRC => wide(headers.ip6_src),
        names::IP6_DST => wide(headers.ip6_dst),
        names::TUNNEL => wide(headers.tunnel as u128),
        names::TUNNEL_ID => wide(headers.tunnel_id.into()),
        names::INNER_TYPE => wide(headers.inner.eth_type.into()),
        names::INNER_SRC => wide(headers.inner.src),
        names::INNER_DST => wide(headers.inner.dst),
        names::INNER_L4 => wide(headers.inner.l4.into()),
        names::INNER_PORT_SRC => wide(headers.inner.port_src.into()),
        names::INNER_PORT_DST => wide(headers.inner.port_dst.into()),
        names::TCP_FLAGS => headers.tcp_flags.into(),
        _ => 0,
    }
}
