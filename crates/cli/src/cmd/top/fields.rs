//! Fields by the names that people give them, which packets have them, and how values are written.
//!
//! A column is 0 where a packet does not have the field. So values are counted among the rows in
//! which other columns say that it has it.

use std::collections::HashMap;
use std::fmt::{Display, Formatter};
use std::net::{Ipv4Addr, Ipv6Addr};

use tapdex_bitmap::Chunks;
use tapdex_engine::archive::{ArchiveError, Segment, length_class_start, names};
use tapdex_engine::index::Rows;
use tapdex_engine::packet::{
    ETHERTYPE_ARP, ETHERTYPE_IPV4, ETHERTYPE_IPV6, ETHERTYPE_MPLS, ETHERTYPE_RARP, Encap, Fragment,
    LinkType, protocol,
};
use tapdex_engine::query::count_values;

use crate::cmd::packet_line::mac;
use crate::cmd::shown_packets;

/// How values are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Kind {
    Ipv4,
    Ipv6,
    Mac,
    Number,
    Protocol,
    EtherType,
    Encap,
    Fragment,
    Tunnel,
    Flags,
    Length,
    /// By its name in the segment.
    Interface,
}

/// A value of a field.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Value {
    #[allow(private_interfaces, reason = "only this file looks inside")]
    Number(Kind, u128),
    Text(String),
}

/// The rows that have a value of a column that is one of these.
type OneOf = (&'static str, &'static [u16]);

/// A column, and the packets that have it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Part {
    column: &'static str,
    kind: Kind,
    /// All of them hold.
    when: &'static [OneOf],
    /// None of them holds.
    unless: &'static [OneOf],
    /// Interfaces of these links; empty for all.
    links: &'static [LinkType],
}

/// A field: one column or several.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Field(&'static [Part]);

const IPV4: OneOf = (names::ETH_TYPE, &[ETHERTYPE_IPV4]);
const IPV6: OneOf = (names::ETH_TYPE, &[ETHERTYPE_IPV6]);
const IP: OneOf = (names::ETH_TYPE, &[ETHERTYPE_IPV4, ETHERTYPE_IPV6]);
const ARP: OneOf = (names::ETH_TYPE, &[ETHERTYPE_ARP, ETHERTYPE_RARP]);
const WITH_PORTS: OneOf =
    (names::L4, &[protocol::TCP as u16, protocol::UDP as u16, protocol::SCTP as u16]);
const TCP: OneOf = (names::L4, &[protocol::TCP as u16]);
const UDP: OneOf = (names::L4, &[protocol::UDP as u16]);
const SCTP: OneOf = (names::L4, &[protocol::SCTP as u16]);
const ICMP: OneOf = (names::L4, &[protocol::ICMP as u16]);
const ICMP6: OneOf = (names::L4, &[protocol::ICMP6 as u16]);
const LATER: OneOf = (names::FRAGMENT, &[Fragment::Later as u16]);
const TAGGED: OneOf = (
    names::ENCAP,
    &[Encap::Tag as u16, Encap::TwoTags as u16, Encap::ManyTags as u16, Encap::TagsMpls as u16],
);
const TAGGED_TWICE: OneOf = (names::ENCAP, &[Encap::TwoTags as u16, Encap::ManyTags as u16]);
const LABELLED: OneOf = (names::ENCAP, &[Encap::Mpls as u16, Encap::TagsMpls as u16]);
const TUNNELED: OneOf = (names::TUNNEL, &[1, 2, 3, 4]);
const INNER_IPV4: OneOf = (names::INNER_TYPE, &[ETHERTYPE_IPV4]);
const INNER_IPV6: OneOf = (names::INNER_TYPE, &[ETHERTYPE_IPV6]);
const INNER_IP: OneOf = (names::INNER_TYPE, &[ETHERTYPE_IPV4, ETHERTYPE_IPV6]);
const INNER_PORTS: OneOf =
    (names::INNER_L4, &[protocol::TCP as u16, protocol::UDP as u16, protocol::SCTP as u16]);

const fn part(column: &'static str, kind: Kind, when: &'static [OneOf]) -> Part {
    Part { column, kind, when, unless: &[], links: &[] }
}

/// A part that later fragments do not have.
const fn whole(column: &'static str, kind: Kind, when: &'static [OneOf]) -> Part {
    Part { column, kind, when, unless: &[LATER], links: &[] }
}

const IP_SRC: Part = part(names::IP_SRC, Kind::Ipv4, &[IPV4]);
const IP_DST: Part = part(names::IP_DST, Kind::Ipv4, &[IPV4]);
const IP6_SRC: Part = part(names::IP6_SRC, Kind::Ipv6, &[IPV6]);
const IP6_DST: Part = part(names::IP6_DST, Kind::Ipv6, &[IPV6]);
const PORT_SRC: Part = whole(names::PORT_SRC, Kind::Number, &[IP, WITH_PORTS]);
const PORT_DST: Part = whole(names::PORT_DST, Kind::Number, &[IP, WITH_PORTS]);
const ETH_SRC: Part = Part {
    links: &[LinkType::ETHERNET, LinkType::LINUX_SLL, LinkType::LINUX_SLL2],
    ..part(names::ETH_SRC, Kind::Mac, &[])
};
const ETH_DST: Part = Part { links: &[LinkType::ETHERNET], ..part(names::ETH_DST, Kind::Mac, &[]) };

/// Up to here it is no type but the length of an 802.3 frame.
const LENGTH_802_3_MAX: u128 = 1_500;

/// Names, and what they stand for.
const FIELDS: &[(&[&str], &[Part])] = &[
    (&["src"], &[IP_SRC, IP6_SRC]),
    (&["dst"], &[IP_DST, IP6_DST]),
    (&["addr", "host"], &[IP_SRC, IP_DST, IP6_SRC, IP6_DST]),
    (&["ip.src"], &[IP_SRC]),
    (&["ip.dst"], &[IP_DST]),
    (&["ip.addr"], &[IP_SRC, IP_DST]),
    (&["ip6.src", "ipv6.src"], &[IP6_SRC]),
    (&["ip6.dst", "ipv6.dst"], &[IP6_DST]),
    (&["ip6.addr", "ipv6.addr"], &[IP6_SRC, IP6_DST]),
    (&["port.src", "srcport"], &[PORT_SRC]),
    (&["port.dst", "dstport"], &[PORT_DST]),
    (&["port"], &[PORT_SRC, PORT_DST]),
    (&["tcp.srcport"], &[whole(names::PORT_SRC, Kind::Number, &[IP, TCP])]),
    (&["tcp.dstport"], &[whole(names::PORT_DST, Kind::Number, &[IP, TCP])]),
    (
        &["tcp.port"],
        &[
            whole(names::PORT_SRC, Kind::Number, &[IP, TCP]),
            whole(names::PORT_DST, Kind::Number, &[IP, TCP]),
        ],
    ),
    (&["udp.srcport"], &[whole(names::PORT_SRC, Kind::Number, &[IP, UDP])]),
    (&["udp.dstport"], &[whole(names::PORT_DST, Kind::Number, &[IP, UDP])]),
    (
        &["udp.port"],
        &[
            whole(names::PORT_SRC, Kind::Number, &[IP, UDP]),
            whole(names::PORT_DST, Kind::Number, &[IP, UDP]),
        ],
    ),
    (
        &["sctp.port"],
        &[
            whole(names::PORT_SRC, Kind::Number, &[IP, SCTP]),
            whole(names::PORT_DST, Kind::Number, &[IP, SCTP]),
        ],
    ),
    (
        &["proto", "protocol"],
        &[
            part(names::L4, Kind::Protocol, &[IP]),
            Part { unless: &[IP], ..part(names::ETH_TYPE, Kind::EtherType, &[]) },
        ],
    ),
    (&["l4"], &[part(names::L4, Kind::Protocol, &[IP])]),
    (&["ip.proto"], &[part(names::IP_PROTO, Kind::Protocol, &[IP])]),
    (&["fragment"], &[part(names::FRAGMENT, Kind::Fragment, &[IP])]),
    (&["eth.src"], &[ETH_SRC]),
    (&["eth.dst"], &[ETH_DST]),
    (&["mac", "eth.addr"], &[ETH_SRC, ETH_DST]),
    (&["eth.type"], &[part(names::ETH_TYPE, Kind::EtherType, &[])]),
    (&["arp.src"], &[part(names::IP_SRC, Kind::Ipv4, &[ARP])]),
    (&["arp.dst"], &[part(names::IP_DST, Kind::Ipv4, &[ARP])]),
    (&["vlan", "vlan.id"], &[part(names::VLAN, Kind::Number, &[TAGGED])]),
    (&["vlan.inner"], &[part(names::VLAN_INNER, Kind::Number, &[TAGGED_TWICE])]),
    (&["mpls", "mpls.label"], &[part(names::MPLS, Kind::Number, &[LABELLED])]),
    (&["encap"], &[part(names::ENCAP, Kind::Encap, &[])]),
    (&["iface", "interface"], &[part(names::INTERFACE, Kind::Interface, &[])]),
    (&["length", "len"], &[part(names::LENGTH, Kind::Length, &[])]),
    (&["tcp.flags"], &[whole(names::TCP_FLAGS, Kind::Flags, &[IP, TCP])]),
    (&["icmp.type"], &[whole(names::ICMP_TYPE, Kind::Number, &[IPV4, ICMP])]),
    (&["icmp.code"], &[whole(names::ICMP_CODE, Kind::Number, &[IPV4, ICMP])]),
    (&["icmp6.type", "icmpv6.type"], &[whole(names::ICMP_TYPE, Kind::Number, &[IPV6, ICMP6])]),
    (&["icmp6.code", "icmpv6.code"], &[whole(names::ICMP_CODE, Kind::Number, &[IPV6, ICMP6])]),
    (&["tunnel", "tunnel.type"], &[part(names::TUNNEL, Kind::Tunnel, &[TUNNELED])]),
    (&["tunnel.id"], &[part(names::TUNNEL_ID, Kind::Number, &[TUNNELED])]),
    (&["inner.type"], &[part(names::INNER_TYPE, Kind::EtherType, &[TUNNELED])]),
    (
        &["inner.src"],
        &[
            part(names::INNER_SRC, Kind::Ipv4, &[INNER_IPV4]),
            part(names::INNER_SRC, Kind::Ipv6, &[INNER_IPV6]),
        ],
    ),
    (
        &["inner.dst"],
        &[
            part(names::INNER_DST, Kind::Ipv4, &[INNER_IPV4]),
            part(names::INNER_DST, Kind::Ipv6, &[INNER_IPV6]),
        ],
    ),
    (&["inner.l4"], &[part(names::INNER_L4, Kind::Protocol, &[INNER_IP])]),
    (&["inner.port.src"], &[part(names::INNER_PORT_SRC, Kind::Number, &[INNER_PORTS])]),
    (&["inner.port.dst"], &[part(names::INNER_PORT_DST, Kind::Number, &[INNER_PORTS])]),
];

/// A field by one of its names.
pub(super) fn parse(text: &str) -> Result<Field, String> {
    let found = FIELDS.iter().find(|(names, _)| names.contains(&text));
    found.map(|(_, parts)| Field(parts)).ok_or_else(|| {
        let names: Vec<&str> = FIELDS.iter().map(|(names, _)| names[0]).collect();
        format!("expected one of {}", names.join(", "))
    })
}

impl Field {
    /// Counts the values among some rows of a segment, or among all of them.
    pub(super) fn count(
        &self,
        segment: &Segment,
        rows: Option<&[u32]>,
        counts: &mut HashMap<Value, u64>,
    ) -> Result<(), ArchiveError> {
        self.0.iter().try_for_each(|part| part.count(segment, rows, counts))
    }
}

impl Part {
    fn count(
        &self,
        segment: &Segment,
        rows: Option<&[u32]>,
        counts: &mut HashMap<Value, u64>,
    ) -> Result<(), ArchiveError> {
        let damaged = |source| ArchiveError::Index { path: segment.path().to_owned(), source };
        let odd = one_of(segment, &(names::ODD, &[1])).map_err(damaged)?;
        let mut found = HashMap::new();
        match (self.rows(segment).map_err(damaged)?, odd) {
            (Some(None), _) => return Ok(()),
            (None, None) => count_values(segment, self.column, rows, &mut found)?,
            (had, odd) => {
                let mut had = match (had, rows) {
                    (None, None) => (0..segment.index().rows()).collect(),
                    (None, Some(rows)) => rows.to_vec(),
                    (Some(Some(had)), None) => had.ids().collect(),
                    (Some(Some(had)), Some(rows)) => common(had.ids(), rows),
                    (Some(None), _) => Vec::new(),
                };
                if let Some(odd) = odd {
                    // A header that is cut off is 0 in the columns, and nobody knows what it was.
                    let odd = common(odd.ids(), &had);
                    had.retain(|row| odd.binary_search(row).is_err());
                    count_values(segment, self.column, Some(&odd), &mut found)?;
                    if !matches!(self.kind, Kind::Encap | Kind::Interface | Kind::Length) {
                        found.remove(&0);
                    }
                }
                count_values(segment, self.column, Some(&had), &mut found)?;
            }
        }
        for (value, count) in found {
            *counts.entry(self.value(segment, value)).or_default() += count;
        }
        Ok(())
    }

    /// The rows that have the field: `None` if all do, `Some(None)` if none does.
    fn rows<'a>(
        &self,
        segment: &'a Segment,
    ) -> Result<Option<Option<Rows<'a>>>, tapdex_engine::IndexError> {
        let mut had: Option<Rows<'a>> = None;
        let and = |had: Option<Rows<'a>>, rows: Rows<'a>| -> Option<Rows<'a>> {
            Some(match had {
                Some(had) => Box::new(had.and(rows)),
                None => rows,
            })
        };
        for condition in self.when {
            let Some(rows) = one_of(segment, condition)? else { return Ok(Some(None)) };
            had = and(had, rows);
        }
        if !self.links.is_empty() {
            let interfaces = &segment.note().layout.interfaces;
            let fits = |link: u16| self.links.contains(&LinkType(link));
            let numbers = || (0_u128..).zip(interfaces).filter(|(_, i)| fits(i.link));
            if numbers().count() < interfaces.len() {
                let numbers: Vec<u128> = numbers().map(|(number, _)| number).collect();
                let Some(field) = segment.index().find_field(names::INTERFACE) else {
                    // All packets are of the first one.
                    return Ok(if numbers.contains(&0) { None } else { Some(None) });
                };
                had = and(had, field.any_of(&numbers)?);
            }
        }
        for condition in self.unless {
            let Some(rows) = one_of(segment, condition)? else { continue };
            had = Some(match had {
                Some(had) => Box::new(had.and_not(rows)),
                None => Box::new(rows.complement(segment.index().rows())),
            });
        }
        Ok(had.map(Some))
    }

    fn value(&self, segment: &Segment, value: u128) -> Value {
        if self.kind == Kind::EtherType && value <= LENGTH_802_3_MAX {
            return Value::Number(self.kind, 0);
        }
        if self.kind != Kind::Interface {
            return Value::Number(self.kind, value);
        }
        let interfaces = &segment.note().layout.interfaces;
        let named = usize::try_from(value).ok().and_then(|number| interfaces.get(number));
        Value::Text(match named.filter(|interface| !interface.name.is_empty()) {
            Some(interface) => interface.name.clone(),
            None => format!("{value} of {}", shown_packets(segment)),
        })
    }
}

/// The rows in which a condition holds; `None` if no row can.
fn one_of<'a>(
    segment: &'a Segment,
    (name, values): &OneOf,
) -> Result<Option<Rows<'a>>, tapdex_engine::IndexError> {
    let Some(field) = segment.index().find_field(name) else { return Ok(None) };
    let values: Vec<u128> = values.iter().map(|&value| value.into()).collect();
    field.any_of(&values).map(Some)
}

/// What two ascending lists have in common.
fn common(a: impl Iterator<Item = u32>, b: &[u32]) -> Vec<u32> {
    let mut b = b.iter().copied().peekable();
    a.filter(|&id| {
        while b.next_if(|&other| other < id).is_some() {}
        b.next_if_eq(&id).is_some()
    })
    .collect()
}

impl Display for Value {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        let (kind, value) = match self {
            Self::Text(text) => return f.write_str(text),
            Self::Number(kind, value) => (kind, *value),
        };
        match kind {
            Kind::Ipv4 => write!(f, "{}", Ipv4Addr::from(u32::try_from(value).unwrap_or(0))),
            Kind::Ipv6 => write!(f, "{}", Ipv6Addr::from(value)),
            Kind::Mac => f.write_str(&mac(u64::try_from(value).unwrap_or(0))),
            Kind::Number | Kind::Interface => write!(f, "{value}"),
            Kind::Protocol => match protocol_name(value) {
                Some(name) => f.write_str(name),
                None => write!(f, "ip-proto-{value}"),
            },
            Kind::EtherType => match ethertype_name(value) {
                Some(name) => f.write_str(name),
                None if value <= LENGTH_802_3_MAX => f.write_str("802.3"),
                None => write!(f, "0x{value:04x}"),
            },
            Kind::Encap => f.write_str(match value {
                0 => "none",
                1 => "vlan",
                2 => "vlan.vlan",
                3 => "vlan.vlan.vlan",
                4 => "mpls",
                _ => "vlan.mpls",
            }),
            Kind::Fragment => f.write_str(match value {
                0 => "whole",
                1 => "first",
                _ => "later",
            }),
            Kind::Tunnel => f.write_str(match value {
                1 => "ip",
                2 => "gre",
                3 => "vxlan",
                4 => "gtp",
                _ => "none",
            }),
            Kind::Flags => {
                let names = ['F', 'S', 'R', 'P', 'A', 'U', 'E', 'C'];
                let set = (0..).zip(names).filter(|(n, _)| value >> n & 1 == 1);
                let set: String = set.map(|(_, name)| name).collect();
                f.write_str(if set.is_empty() { "none" } else { &set })
            }
            Kind::Length => {
                let class = u8::try_from(value).unwrap_or(u8::MAX);
                let next = length_class_start(class.saturating_add(1));
                write!(f, "{}-{}", length_class_start(class), next.saturating_sub(1))
            }
        }
    }
}

fn protocol_name(number: u128) -> Option<&'static str> {
    Some(match number {
        1 => "icmp",
        2 => "igmp",
        4 => "ipip",
        6 => "tcp",
        17 => "udp",
        41 => "ipv6",
        47 => "gre",
        50 => "esp",
        51 => "ah",
        58 => "icmp6",
        89 => "ospf",
        103 => "pim",
        112 => "vrrp",
        132 => "sctp",
        _ => return None,
    })
}

fn ethertype_name(number: u128) -> Option<&'static str> {
    Some(match u16::try_from(number).ok()? {
        ETHERTYPE_IPV4 => "ip",
        ETHERTYPE_IPV6 => "ip6",
        ETHERTYPE_ARP => "arp",
        ETHERTYPE_RARP => "rarp",
        ETHERTYPE_MPLS => "mpls",
        0x88CC => "lldp",
        0x8100 | 0x88A8 | 0x9100 => "vlan",
        0x8863 | 0x8864 => "pppoe",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_column_is_reachable_by_its_name() {
        // Whether filters have to see the frame is nobody's question.
        for name in tapdex_engine::archive::field_names().filter(|&name| name != names::ODD) {
            let Field(parts) = parse(name).unwrap();
            assert!(parts.iter().all(|part| part.column == name), "{name}");
        }
    }

    #[test]
    fn names_are_given_once() {
        let mut names: Vec<&str> = FIELDS.iter().flat_map(|(names, _)| *names).copied().collect();
        let len = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), len);
    }

    #[test]
    fn lists_meet_where_they_are_equal() {
        assert_eq!(common([1, 3, 5, 9].into_iter(), &[0, 3, 4, 9, 10]), [3, 9]);
        assert_eq!(common([1, 2].into_iter(), &[]), []);
    }

    #[test]
    fn values_are_written_as_people_write_them() {
        let text = |kind, value| Value::Number(kind, value).to_string();
        assert_eq!(text(Kind::Ipv4, 0x0A00_0001), "10.0.0.1");
        assert_eq!(text(Kind::Ipv6, 1), "::1");
        assert_eq!(text(Kind::Mac, 0x0011_2233_4455), "00:11:22:33:44:55");
        assert_eq!(text(Kind::Protocol, 132), "sctp");
        assert_eq!(text(Kind::Protocol, 250), "ip-proto-250");
        assert_eq!(text(Kind::EtherType, 0x86DD), "ip6");
        assert_eq!(text(Kind::Flags, 0x12), "SA");
        assert_eq!(text(Kind::Length, 0), "0-15");
        let class = tapdex_engine::archive::length_class(1500);
        assert_eq!(text(Kind::Length, class.into()), "1280-1535");
    }
}
