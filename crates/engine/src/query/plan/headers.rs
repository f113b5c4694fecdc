//! The rows for which a test of headers holds.

use std::ops::RangeInclusive;

use super::{Level, Planned, Planner, Set, Sought};
use crate::fields::{Field, Load};
use crate::packet::{
    ETHERTYPE_ARP, ETHERTYPE_IPV4, ETHERTYPE_IPV6, ETHERTYPE_MPLS, ETHERTYPE_RARP, Encap, protocol,
};
use crate::query::filter::{Comparison, Direction, IpVersion, Test};

impl<'a> Planner<'a> {
    /// The rows for which a test holds at a level; unknown ones may or may not be among them.
    pub(super) fn test(&self, level: Level, test: &Test) -> Planned<'a> {
        match *test {
            Test::EtherType(kind) => self.ether_type(level, kind),
            Test::IpProto { version, proto } => self.ip_proto(level, version, proto),
            Test::Host4 { ip, arp, rarp, direction, address, mask } => {
                let kinds = [(ip, ETHERTYPE_IPV4), (arp, ETHERTYPE_ARP), (rarp, ETHERTYPE_RARP)];
                self.host4(level, kinds, direction, (address, mask))
            }
            Test::Host6 { direction, address, mask } => {
                let sought = Sought::Masked(address, mask);
                let found = self.ends(direction, Field::Ip6Src, Field::Ip6Dst, &sought)?;
                self.behind(level, ETHERTYPE_IPV6, vec![found])
            }
            Test::Mac { direction, address } => {
                let sought = Sought::Equal(address.into());
                self.ends(direction, Field::EthSrc, Field::EthDst, &sought)
            }
            Test::EtherMulticast => {
                self.first_digit(Field::EthDst, &digits_where(|digit| digit & 1 == 1))
            }
            Test::IpMulticast => {
                let first = digits_where(|digit| digit >= 224);
                self.behind(level, ETHERTYPE_IPV4, vec![self.first_digit(Field::IpDst, &first)?])
            }
            Test::Ip6Multicast => {
                self.behind(level, ETHERTYPE_IPV6, vec![self.first_digit(Field::Ip6Dst, &[255])?])
            }
            Test::Port { transport, direction, ref ports } => {
                self.port(level, transport, direction, ports)
            }
            Test::Vlan(id) => self.vlan(level, id),
            Test::Mpls(label) => {
                let encap = self.encap(&[Encap::Mpls])?;
                match label {
                    None => Ok(encap),
                    Some(label) => Ok(encap.and(self.equals(Field::Mpls, label.into())?)),
                }
            }
            Test::TcpFlags { mask, comparison, value } => {
                let digits = digits_where(|digit| comparison.holds(digit & u32::from(mask), value));
                let flags = self.first_digit(Field::TcpFlags, &digits)?;
                self.transport(level, ETHERTYPE_IPV4, protocol::TCP, flags)
            }
            Test::Icmp { version, code, comparison, value } => {
                let digits = digits_where(|digit| comparison.holds(digit, value));
                let field = if code { Field::IcmpCode } else { Field::IcmpType };
                let (kind, proto) = match version {
                    IpVersion::V4 => (ETHERTYPE_IPV4, protocol::ICMP),
                    IpVersion::V6 => (ETHERTYPE_IPV6, protocol::ICMP6),
                };
                self.transport(level, kind, proto, self.first_digit(field, &digits)?)
            }
            Test::Loaded { load, ref within, mask, down, comparison, value } => {
                let holds = |digit| loaded_holds(load, (mask, down), (comparison, value), digit);
                self.loaded(level, load, within, holds)
            }
            // Unknown in all rows.
            Test::Length(..) | Test::Opaque { .. } | Test::Field(_) | Test::Flow { .. } => {
                Ok(Set::None)
            }
        }
    }

    /// Rows with a network protocol at a level for which something else holds, too.
    fn behind(&self, level: Level, kind: u16, more: Vec<Set<'a>>) -> Planned<'a> {
        let mut sets = vec![
            self.equals(Field::Encap, level.tags().into())?,
            self.equals(Field::EthType, kind.into())?,
        ];
        sets.extend(more);
        Ok(Set::all_of(sets))
    }

    fn ether_type(&self, level: Level, kind: u16) -> Planned<'a> {
        match (kind, level) {
            (ETHERTYPE_MPLS, Level::Link) => self.encap(&[Encap::Mpls]),
            _ => self.behind(level, kind, Vec::new()),
        }
    }

    fn ip_proto(&self, level: Level, version: Option<IpVersion>, proto: u8) -> Planned<'a> {
        let direct = || self.equals(Field::IpProto, proto.into());
        let v4 = || self.behind(level, ETHERTYPE_IPV4, vec![direct()?]);
        let v6 = || {
            // libpcap looks behind a fragment header, too.
            let fragment = vec![
                self.equals(Field::IpProto, protocol::FRAGMENT.into())?,
                self.equals(Field::L4, proto.into())?,
            ];
            let either = Set::any_of(vec![direct()?, Set::all_of(fragment)]);
            self.behind(level, ETHERTYPE_IPV6, vec![either])
        };
        match version {
            Some(IpVersion::V4) => v4(),
            Some(IpVersion::V6) => v6(),
            None => Ok(Set::any_of(vec![v4()?, v6()?])),
        }
    }

    /// An IPv4 address with a mask, in headers of the wanted kinds.
    fn host4(
        &self,
        level: Level,
        kinds: [(bool, u16); 3],
        direction: Direction,
        (address, mask): (u32, u32),
    ) -> Planned<'a> {
        let sought = Sought::Masked(address.into(), mask.into());
        let found = self.ends(direction, Field::IpSrc, Field::IpDst, &sought)?;
        if matches!(found, Set::None) {
            return Ok(Set::None);
        }
        let kinds = kinds.iter().filter(|(wanted, _)| *wanted);
        let kinds: Vec<u128> = kinds.map(|&(_, kind)| kind.into()).collect();
        Ok(Set::all_of(vec![
            self.equals(Field::Encap, level.tags().into())?,
            self.any_value(Field::EthType, &kinds)?,
            found,
        ]))
    }

    fn port(
        &self,
        level: Level,
        transport: Option<u8>,
        direction: Direction,
        ports: &RangeInclusive<u16>,
    ) -> Planned<'a> {
        let range = u128::from(*ports.start())..=u128::from(*ports.end());
        let found = self.ends(direction, Field::PortSrc, Field::PortDst, &Sought::Range(range))?;
        if matches!(found, Set::None) {
            return Ok(Set::None);
        }
        let all_three = [protocol::TCP, protocol::UDP, protocol::SCTP];
        let protocols: Vec<u128> = match transport {
            Some(proto) => vec![proto.into()],
            None => all_three.map(u128::from).to_vec(),
        };
        let kinds = [ETHERTYPE_IPV4.into(), ETHERTYPE_IPV6.into()];
        Ok(Set::all_of(vec![
            self.equals(Field::Encap, level.tags().into())?,
            self.any_value(Field::EthType, &kinds)?,
            self.any_value(Field::IpProto, &protocols)?,
            self.not_later()?,
            found,
        ]))
    }

    fn vlan(&self, level: Level, id: Option<u16>) -> Planned<'a> {
        let (encap, field) = match level {
            Level::Link => (self.encap(&Encap::TAGGED)?, Field::Vlan),
            Level::Tag | Level::TwoTags => (self.encap(&Encap::TAGGED_TWICE)?, Field::VlanInner),
        };
        match id {
            None => Ok(encap),
            Some(id) => Ok(encap.and(self.equals(field, id.into())?)),
        }
    }

    /// Rows with the header of an IP protocol that are also in `found`.
    fn transport(&self, level: Level, kind: u16, proto: u8, found: Set<'a>) -> Planned<'a> {
        let proto = self.equals(Field::IpProto, proto.into())?;
        self.behind(level, kind, vec![proto, self.not_later()?, found])
    }

    /// Rows that match a comparison of header bytes that are a field of the index.
    fn loaded(
        &self,
        level: Level,
        load: &Load,
        within: &Test,
        holds: impl Fn(u32) -> bool,
    ) -> Planned<'a> {
        let found = self.first_digit_where(load.field, holds)?;
        if matches!(found, Set::None) {
            return Ok(Set::None);
        }
        let whole = match load.is_transport {
            true => self.not_later()?,
            false => Set::All,
        };
        Ok(Set::all_of(vec![self.test(level, within)?, whole, found]))
    }
}

/// Whether a comparison of bytes of a header holds, by the value of the field that they are.
fn loaded_holds(
    load: &Load,
    (mask, down): (u32, u32),
    (comparison, with): (Comparison, u32),
    value: u32,
) -> bool {
    comparison.holds((value << load.shift & mask) >> down, with)
}

/// The digits of a byte for which something holds.
fn digits_where(holds: impl Fn(u32) -> bool) -> Vec<u16> {
    (0..=255).filter(|&digit| holds(u32::from(digit))).collect()
}
