//! Tests that the table of fields is consistent.

use super::*;
use crate::packet::{Encap, Fragment, Inner, Tunnel};

fn full() -> Headers {
    Headers {
        odd: true,
        encap: Encap::TagsMpls,
        eth_dst: (1 << 48) - 1,
        eth_src: (1 << 48) - 1,
        eth_type: u16::MAX,
        vlan: u16::MAX,
        vlan_inner: u16::MAX,
        mpls: (1 << 20) - 1,
        ip_src: u32::MAX,
        ip_dst: u32::MAX,
        proto: u8::MAX,
        l4: u8::MAX,
        fragment: Fragment::Later,
        port_src: u16::MAX,
        port_dst: u16::MAX,
        icmp_type: u8::MAX,
        icmp_code: u8::MAX,
        tcp_flags: u8::MAX,
        tcp_window: u16::MAX,
        ttl: u8::MAX,
        dscp: 0x3F,
        wide: true,
        ip6_src: u128::MAX,
        ip6_dst: u128::MAX,
        tunnel: Tunnel::Gtp,
        tunnel_id: u32::MAX,
        inner: Inner {
            eth_type: u16::MAX,
            src: u128::MAX,
            dst: u128::MAX,
            l4: u8::MAX,
            port_src: u16::MAX,
            port_dst: u16::MAX,
        },
    }
}

#[test]
fn the_table_is_in_the_order_of_the_numbers() {
    for (number, spec) in FIELDS.iter().enumerate() {
        assert_eq!(spec.field as usize, number);
        assert_eq!(Field::of_name(spec.name), Some(spec.field));
    }
}

#[test]
fn the_first_version_had_these_fields() {
    let names: Vec<&str> = FieldSet::FIRST.iter().map(Field::name).collect();
    let first = "iface encap odd eth.type fragment ip.proto ip.src ip.dst port.src port.dst \
                 eth.src eth.dst vlan vlan.inner l4 icmp.type icmp.code mpls ip6.src ip6.dst \
                 tunnel tunnel.id inner.type inner.src inner.dst inner.l4 inner.port.src \
                 inner.port.dst tcp.flags length";
    assert_eq!(names.join(" "), first);
}

#[test]
fn every_bit_of_the_headers_is_in_one_digit() {
    let mut narrow = Narrow::default();
    let mut wide = Wide::default();
    let mut own = [false; OWN_DIGITS];
    for spec in &FIELDS {
        let mask = (1_u64 << spec.width.bits()) - 1;
        assert_eq!(spec.places().count(), spec.digits as usize);
        for place in spec.places() {
            let (word, shift) = match place {
                Place::Narrow(word, shift) => (&mut narrow[word], shift),
                Place::Wide(word, shift) => (&mut wide[word], shift),
                Place::Packet(digit) => {
                    assert!(!std::mem::replace(&mut own[digit], true), "{}", spec.name);
                    continue;
                }
            };
            assert_eq!(*word & mask << shift, 0, "{} overlaps", spec.name);
            *word |= mask << shift;
        }
    }
    assert_eq!(own, [true; OWN_DIGITS]);
    let headers = full();
    let link = LinkType::ETHERNET;
    let packet = Packet { headers: &headers, link, interface: u32::MAX, wire_len: u32::MAX };
    for (word, mask) in super::narrow(&packet).into_iter().zip(narrow) {
        assert_eq!(word & !mask, 0);
    }
    for (word, mask) in super::wide(&packet).into_iter().zip(wide) {
        assert_eq!(word & !mask, 0);
    }
}

#[test]
fn a_value_is_put_together_from_its_digits() {
    let mut headers = full();
    headers.ip6_src = 0x0123_4567_89AB_CDEF_0011_2233_4455_6677;
    headers.inner.dst = 0x8123_4567_89AB_CDEF_0011_2233_4455_6678;
    (headers.ip_src, headers.ip_dst, headers.mpls) = (0x0A01_0203, 0xC0A8_0001, 0x0001_2345);
    (headers.eth_src, headers.tunnel_id) = (0x0102_0304_0506, 0x0708_090A);
    let link = LinkType::ETHERNET;
    let packet = Packet { headers: &headers, link, interface: 7, wire_len: 70_000 };
    let (narrow, wide, own) = (narrow(&packet), wide(&packet), own(&packet));
    for spec in &FIELDS {
        let mask = (1_u64 << spec.width.bits()) - 1;
        let value = spec.places().fold(0_u128, |value, place| {
            let digit = match place {
                Place::Narrow(word, shift) => narrow[word] >> shift & mask,
                Place::Wide(word, shift) => wide[word] >> shift & mask,
                Place::Packet(digit) => own[digit].into(),
            };
            value << spec.width.bits() | u128::from(digit)
        });
        assert_eq!(value, spec.field.value(&packet), "{}", spec.name);
    }
}

#[test]
fn names_are_given_once() {
    let wireshark = NAMES.iter().filter_map(|name| name.wireshark);
    let top = NAMES.iter().flat_map(|name| name.top).copied();
    for mut names in [wireshark.collect::<Vec<_>>(), top.collect()] {
        let len = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), len);
    }
}

#[test]
fn every_field_is_reachable_by_its_name() {
    // Nobody asks whether filters have to see the frame.
    for field in FieldSet::ALL.iter().filter(|&field| field != Field::Odd) {
        let name = for_top(field.name()).unwrap();
        assert!(name.parts.iter().all(|part| part.field == field), "{}", field.name());
    }
}

#[test]
fn values_are_written_as_people_write_them() {
    let text = |kind, value| Shown(kind, value).to_string();
    assert_eq!(text(FieldKind::Ipv4, 0x0A00_0001), "10.0.0.1");
    assert_eq!(text(FieldKind::Ipv6, 1), "::1");
    assert_eq!(text(FieldKind::Mac, 0x0011_2233_4455), "00:11:22:33:44:55");
    assert_eq!(text(FieldKind::Protocol, 132), "sctp");
    assert_eq!(text(FieldKind::Protocol, 250), "ip-proto-250");
    assert_eq!(text(FieldKind::EtherType, 0x86DD), "ip6");
    assert_eq!(text(FieldKind::Flags, 0x12), "SA");
    assert_eq!(text(FieldKind::LengthClass, 0), "0-15");
    assert_eq!(text(FieldKind::LengthClass, length_class(1500).into()), "1280-1535");
    assert_eq!(text(FieldKind::Encap, 2), "vlan.vlan");
    assert_eq!(text(FieldKind::Tunnel, 4), "gtp");
}

/// The table of `docs/filters.md`. `TAPDEX_PRINT_TABLE=1` prints what it has to be.
#[test]
fn the_documentation_has_the_table_of_names() {
    let docs = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/filters.md");
    if std::env::var_os("TAPDEX_PRINT_TABLE").is_some() {
        print!("{}", table());
    }
    let docs = std::fs::read_to_string(docs).unwrap();
    assert!(docs.contains(&table()), "docs/filters.md has another table of fields:\n{}", table());
}
