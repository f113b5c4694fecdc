//! When a packet has a field.

use super::{Field, Packet};
use crate::packet::{
    ETHERTYPE_ARP, ETHERTYPE_IPV4, ETHERTYPE_IPV6, ETHERTYPE_RARP, Encap, Fragment, LinkType,
    Tunnel, protocol,
};

/// A condition on a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Condition {
    /// A field has one of these values.
    Is(Field, &'static [u16]),
    /// A field has none of these values.
    IsNot(Field, &'static [u16]),
    /// It is from a link of one of these kinds.
    Link(&'static [LinkType]),
}

/// When a packet has a field: all of its conditions hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Presence {
    /// The conditions.
    pub conditions: &'static [Condition],
    /// Which packets these are, in words.
    pub text: &'static str,
}

impl Presence {
    /// Whether a packet has it.
    pub fn holds(&self, packet: &Packet<'_>) -> bool {
        self.conditions.iter().all(|condition| match *condition {
            Condition::Is(field, values) => is_one_of(field, values, packet),
            Condition::IsNot(field, values) => !is_one_of(field, values, packet),
            Condition::Link(links) => links.contains(&packet.link),
        })
    }
}

fn is_one_of(field: Field, values: &[u16], packet: &Packet<'_>) -> bool {
    let value = field.value(packet);
    values.iter().any(|&one| u128::from(one) == value)
}

macro_rules! presences {
    ($($name:ident = $text:literal [$($condition:expr),*];)+) => {
        $(pub(crate) static $name: Presence =
            Presence { conditions: &[$($condition),*], text: $text };)+
    };
}

const IS_IP: Condition = Condition::Is(Field::EthType, &[ETHERTYPE_IPV4, ETHERTYPE_IPV6]);
const IS_IP4: Condition = Condition::Is(Field::EthType, &[ETHERTYPE_IPV4]);
const IS_IP6: Condition = Condition::Is(Field::EthType, &[ETHERTYPE_IPV6]);
const NOT_LATER: Condition = Condition::IsNot(Field::Fragment, &[Fragment::Later as u16]);
const ETHERNET_LINK: Condition = Condition::Link(&[LinkType::ETHERNET]);
const PORTS: &[u16] = &[protocol::TCP as u16, protocol::UDP as u16, protocol::SCTP as u16];

const fn carries(proto: &'static [u16]) -> Condition {
    Condition::Is(Field::L4, proto)
}

const fn tagged(encaps: &'static [u16]) -> Condition {
    Condition::Is(Field::Encap, encaps)
}

presences! {
    ALWAYS = "all" [];
    ETHERNET = "with an Ethernet header" [ETHERNET_LINK];
    SOURCE_MAC = "with an Ethernet header, or of Linux cooked captures" [
        Condition::Link(&[LinkType::ETHERNET, LinkType::LINUX_SLL, LinkType::LINUX_SLL2])
    ];
    ETHERTYPE = "with an Ethernet header and no VLAN tag" [
        ETHERNET_LINK, tagged(&[Encap::None as u16, Encap::Mpls as u16])
    ];
    TAG = "with a VLAN tag" [tagged(&Encap::numbers(Encap::TAGGED))];
    TWO_TAGS = "with two VLAN tags" [tagged(&[Encap::TwoTags as u16])];
    TAGGED_TWICE = "with two VLAN tags or more" [tagged(&Encap::numbers(Encap::TAGGED_TWICE))];
    LABEL = "with MPLS labels" [tagged(&Encap::numbers(Encap::LABELLED))];
    ARP = "of ARP" [Condition::Is(Field::EthType, &[ETHERTYPE_ARP])];
    ARP_RARP = "of ARP and RARP" [Condition::Is(Field::EthType, &[ETHERTYPE_ARP, ETHERTYPE_RARP])];
    IP = "of IP" [IS_IP];
    IP4 = "of IPv4" [IS_IP4];
    IP6 = "of IPv6" [IS_IP6];
    NOT_IP = "of anything but IP" [
        Condition::IsNot(Field::EthType, &[ETHERTYPE_IPV4, ETHERTYPE_IPV6])
    ];
    TRANSPORT = "of TCP, UDP and SCTP, but for later fragments" [IS_IP, carries(PORTS), NOT_LATER];
    TCP = "of TCP, but for later fragments" [IS_IP, carries(&[protocol::TCP as u16]), NOT_LATER];
    UDP = "of UDP, but for later fragments" [IS_IP, carries(&[protocol::UDP as u16]), NOT_LATER];
    SCTP = "of SCTP, but for later fragments" [
        IS_IP, carries(&[protocol::SCTP as u16]), NOT_LATER
    ];
    ICMP = "of ICMP, but for later fragments" [
        IS_IP, carries(&[protocol::ICMP as u16]), NOT_LATER
    ];
    ICMP6 = "of ICMPv6, but for later fragments" [
        IS_IP, carries(&[protocol::ICMP6 as u16]), NOT_LATER
    ];
    IP4_ICMP = "of ICMP in IPv4, but for later fragments" [
        IS_IP4, carries(&[protocol::ICMP as u16]), NOT_LATER
    ];
    IP6_ICMP6 = "of ICMPv6 in IPv6, but for later fragments" [
        IS_IP6, carries(&[protocol::ICMP6 as u16]), NOT_LATER
    ];
    TUNNEL = "in a tunnel" [Condition::IsNot(Field::Tunnel, &[Tunnel::None as u16])];
    INNER_IP = "with IP in a tunnel" [
        Condition::Is(Field::InnerType, &[ETHERTYPE_IPV4, ETHERTYPE_IPV6])
    ];
    INNER_IP4 = "with IPv4 in a tunnel" [Condition::Is(Field::InnerType, &[ETHERTYPE_IPV4])];
    INNER_IP6 = "with IPv6 in a tunnel" [Condition::Is(Field::InnerType, &[ETHERTYPE_IPV6])];
    INNER_PORTS = "with TCP, UDP or SCTP in a tunnel" [Condition::Is(Field::InnerL4, PORTS)];
}
