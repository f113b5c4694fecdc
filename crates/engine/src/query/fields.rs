//! Fields by their Wireshark names: in columns, and in the headers of a packet.

use std::cell::OnceCell;
use std::ops::RangeInclusive;

use super::filter::{Expr, FieldTest, Test};
use super::plan::{Planner, Set};
use crate::archive::OfLinks;
use crate::community_id::CommunityId;
use crate::error::IndexError;
use crate::fields::{self, Ask, Condition, Field, Name, Packet, Part, Presence};
use crate::packet::Encap;

fn contains(values: &[RangeInclusive<u128>], value: u128) -> bool {
    values.iter().any(|range| range.contains(&value))
}

/// Whether the test only asks if the packet has the field.
fn is_any(values: &[RangeInclusive<u128>]) -> bool {
    matches!(values, [all] if *all == (0..=u128::MAX))
}

/// The rows in which a field has one of the values of a test, as far as columns know.
pub(super) fn rows<'a>(planner: &Planner<'a>, test: &FieldTest) -> Result<Set<'a>, IndexError> {
    let FieldTest { field: name, values } = test;
    if name.ask == Ask::Length {
        return planner.length(values);
    }
    let mut found = Vec::with_capacity(name.parts.len());
    for part in name.parts {
        let value = match name.ask {
            _ if is_any(values) => Set::All,
            _ if !planner.columns.knows(part.field) => Set::None,
            Ask::Bit(bit) => {
                let digits = (0..=255_u128).filter(|digit| contains(values, digit >> bit & 1));
                planner.any_value(part.field, &digits.collect::<Vec<_>>())?
            }
            _ => planner.ranges(part.field, values)?,
        };
        let presence = match value {
            Set::None => continue,
            _ => presence_rows(planner, part.presence)?,
        };
        found.push(value.and(presence));
    }
    Ok(Set::any_of(found))
}

/// The rows for which columns do not know whether a field has one of the values of a test.
pub(super) fn unknown_rows<'a>(
    planner: &Planner<'a>,
    test: &FieldTest,
) -> Result<Set<'a>, IndexError> {
    let FieldTest { field: name, values } = test;
    if name.ask == Ask::Length {
        return planner.length_edge(values);
    }
    let is_unknown = |part: &&Part| !is_any(values) && !planner.columns.knows(part.field);
    let parts = name.parts.iter().filter(is_unknown);
    let sets: Result<_, _> = parts.map(|part| presence_rows(planner, part.presence)).collect();
    Ok(Set::any_of(sets?))
}

/// The rows of packets that have a field.
pub(super) fn presence_rows<'a>(
    planner: &Planner<'a>,
    presence: &Presence,
) -> Result<Set<'a>, IndexError> {
    let one_of = |field: Field, values: &[u16]| {
        let values: Vec<u128> = values.iter().map(|&value| value.into()).collect();
        planner.any_value(field, &values)
    };
    let rows = presence.conditions.iter().map(|condition| match *condition {
        Condition::Is(field, values) => one_of(field, values),
        Condition::IsNot(field, values) => Ok(one_of(field, values)?.not(planner.columns.rows())),
        Condition::Link(links) => match planner.columns.of_links(links) {
            OfLinks::All => Ok(Set::All),
            OfLinks::None => Ok(Set::None),
            OfLinks::Interfaces(numbers) => planner.any_value(Field::Interface, &numbers),
        },
    });
    Ok(Set::all_of(rows.collect::<Result<_, _>>()?))
}

/// The rows with headers that Wireshark looks into and columns have no fields for: in tunnels, in
/// ICMP errors, in PPPoE, behind MPLS labels and behind more than two tags.
pub(super) fn inner_rows<'a>(planner: &Planner<'a>) -> Result<Set<'a>, IndexError> {
    /// A session of PPPoE.
    const PPPOE: u128 = 0x8864;
    const ICMP_ERRORS: [u128; 5] = [3, 4, 5, 11, 12];
    const ICMP6_ERRORS: [u128; 4] = [1, 2, 3, 4];
    let encaps = [Encap::Mpls, Encap::TagsMpls, Encap::ManyTags].map(|encap| encap as u128);
    let icmp = planner.any_value(Field::IcmpType, &ICMP_ERRORS)?;
    let icmp6 = planner.any_value(Field::IcmpType, &ICMP6_ERRORS)?;
    Ok(Set::any_of(vec![
        presence_rows(planner, &fields::TUNNEL)?,
        planner.any_value(Field::Encap, &encaps)?,
        planner.equals(Field::EthType, PPPOE)?,
        icmp.and(presence_rows(planner, &fields::ICMP)?),
        icmp6.and(presence_rows(planner, &fields::ICMP6)?),
    ]))
}

/// Whether Wireshark would find a field in inner headers as well.
pub(super) fn may_be_inner(name: &Name) -> bool {
    let outer = ["frame", "eth", "vlan", "mpls", "tunnel", "inner"];
    let name = name.wireshark.unwrap_or_default();
    !outer.contains(&name.split('.').next().unwrap_or(name))
}

/// Whether a packet, whose headers were decoded, matches an expression of fields.
pub(super) fn matches(expr: &Expr, packet: &Packet<'_>) -> bool {
    matches_part(expr, packet, &OnceCell::new())
}

/// The same for a part of the expression. `own_id` is the packet's Community ID, once it is known:
/// there may be thousands of terms that ask for one.
fn matches_part(expr: &Expr, packet: &Packet<'_>, own_id: &OnceCell<Option<CommunityId>>) -> bool {
    match expr {
        Expr::And(parts) => parts.iter().all(|part| matches_part(part, packet, own_id)),
        Expr::Or(parts) => parts.iter().any(|part| matches_part(part, packet, own_id)),
        Expr::Not(part) => !matches_part(part, packet, own_id),
        Expr::Term(term) => match &term.test {
            Test::Field(test) => matches_test(test, packet),
            Test::Flow { id, equal } => {
                let own_id = own_id.get_or_init(|| CommunityId::of(packet.headers));
                own_id.is_some_and(|own_id| (own_id == *id) == *equal)
            }
            // Wireshark filters have no other tests.
            _ => false,
        },
    }
}

fn matches_test(test: &FieldTest, packet: &Packet<'_>) -> bool {
    let FieldTest { field: name, values } = test;
    name.parts.iter().any(|part| {
        let value = match name.ask {
            Ask::Length => packet.wire_len.into(),
            Ask::Bit(bit) => part.field.value(packet) >> bit & 1,
            Ask::Value | Ask::Presence | Ask::Time => part.field.value(packet),
        };
        contains(values, value) && part.presence.holds(packet)
    })
}
