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
        vlan: 0x0FFF,
        vlan_inner: 0x0FFF,
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
    narrow[DIRECTION_WORD] = 1;
    for spec in &FIELDS {
        for digit in spec.own_digits() {
            assert!(!std::mem::replace(&mut own[digit], true), "{}", spec.name);
        }
        for (word, mask) in spec.home_masks() {
            let word =
                if let Home::Narrow(..) = spec.home { &mut narrow[word] } else { &mut wide[word] };
            assert_eq!(*word & mask, 0, "{} overlaps", spec.name);
            *word |= mask;
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
fn a_value_is_put_together_from_its_parts() {
    let mut headers = full();
    headers.ip6_src = 0x0123_4567_89AB_CDEF_0011_2233_4455_6677;
    headers.inner.dst = 0x8123_4567_89AB_CDEF_0011_2233_4455_6678;
    (headers.ip_src, headers.ip_dst, headers.mpls) = (0x0A01_0203, 0xC0A8_0001, 0x0001_2345);
    (headers.eth_src, headers.tunnel_id) = (0x0102_0304_0506, 0x0708_090A);
    let link = LinkType::ETHERNET;
    let packet = Packet { headers: &headers, link, interface: 7, wire_len: 70_000 };
    let (narrow, wide, own) = (narrow(&packet), wide(&packet), own(&packet));
    for spec in &FIELDS {
        let digits = spec.own_digits().map(|digit| (u64::from(own[digit]), spec.width.bits()));
        let words = spec.home_masks().map(|(word, mask)| {
            let word = if let Home::Narrow(..) = spec.home { narrow[word] } else { wide[word] };
            ((word & mask) >> mask.trailing_zeros(), mask.count_ones())
        });
        let value = digits
            .chain(words)
            .fold(0_u128, |value, (part, bits)| value << bits | u128::from(part));
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

/// Headers whose fields are all set, to different values.
fn mixed(seed: u64) -> Headers {
    let word = |n: u64| (seed.wrapping_add(n)).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(29);
    let half = |n| u32::try_from(word(n) >> 32).unwrap();
    let short = |n| u16::try_from(word(n) >> 48).unwrap();
    let long = |n| u128::from(word(n)) << 64 | u128::from(word(n + 100));
    let full = full();
    Headers {
        eth_src: word(1) >> 16,
        eth_dst: word(2) >> 16,
        vlan: short(3) & 0x0FFF,
        vlan_inner: short(4) & 0x0FFF,
        ip_src: half(5),
        ip_dst: half(6),
        port_src: short(7),
        port_dst: short(8),
        ip6_src: long(9),
        ip6_dst: long(10),
        inner: Inner {
            src: long(11),
            dst: long(12),
            port_src: short(13),
            port_dst: short(14),
            ..full.inner
        },
        ..full
    }
}

fn keys(headers: &Headers) -> (Narrow, Wide) {
    let link = LinkType::ETHERNET;
    let packet = Packet { headers, link, interface: 1, wire_len: 100 };
    (narrow(&packet), wide(&packet))
}

/// The packet that the destination sends to the source.
fn answer(headers: &Headers) -> Headers {
    let inner = headers.inner;
    Headers {
        eth_src: headers.eth_dst,
        eth_dst: headers.eth_src,
        ip_src: headers.ip_dst,
        ip_dst: headers.ip_src,
        port_src: headers.port_dst,
        port_dst: headers.port_src,
        ip6_src: headers.ip6_dst,
        ip6_dst: headers.ip6_src,
        inner: Inner {
            src: inner.dst,
            dst: inner.src,
            port_src: inner.port_dst,
            port_dst: inner.port_src,
            ..inner
        },
        ..*headers
    }
}

#[test]
fn both_directions_have_the_same_key() {
    for seed in 0..1_000 {
        let mut headers = mixed(seed);
        // What decides: IPv4, IPv6, ports, MAC addresses.
        if seed % 4 > 0 {
            headers.ip_dst = headers.ip_src;
        }
        if seed % 4 > 1 {
            headers.ip6_dst = headers.ip6_src;
        }
        if seed % 4 > 2 {
            headers.port_dst = headers.port_src;
        }
        let Headers { ip_src, ip_dst, ip6_src, ip6_dst, .. } = headers;
        let Headers { port_src, port_dst, eth_src, eth_dst, .. } = headers;
        let expected = (ip_src, ip6_src, port_src, eth_src) > (ip_dst, ip6_dst, port_dst, eth_dst);
        let mut there = keys(&headers);
        let mut back = keys(&answer(&headers));
        assert_ne!(there, back);
        assert_eq!(order_ends(&mut there.0, Some(&mut there.1)), expected, "{headers:?}");
        assert_eq!(order_ends(&mut back.0, Some(&mut back.1)), !expected, "{headers:?}");
        assert_eq!(there.0[DIRECTION_WORD] & 1, u64::from(expected));
        // Ordering twice changes nothing.
        for keys in [&mut there, &mut back] {
            let before = *keys;
            assert!(!order_ends(&mut keys.0, Some(&mut keys.1)));
            assert_eq!(*keys, before);
        }
        there.0[DIRECTION_WORD] ^= 1;
        assert_eq!(there, back);
        // And without a wide part, which decides nothing else here.
        if seed % 4 != 1 {
            let (mut there, mut back) = (keys(&headers).0, keys(&answer(&headers)).0);
            assert_eq!(order_ends(&mut there, None), expected);
            assert_eq!(order_ends(&mut back, None), !expected);
            there[DIRECTION_WORD] ^= 1;
            assert_eq!(there, back);
        }
    }
    // Of a packet to itself there is one direction.
    let mut headers = mixed(1);
    headers.eth_dst = headers.eth_src;
    (headers.ip_dst, headers.ip6_dst) = (headers.ip_src, headers.ip6_src);
    headers.port_dst = headers.port_src;
    let mut same = keys(&headers);
    assert!(!order_ends(&mut same.0, Some(&mut same.1)));
    assert_eq!(same, keys(&headers));
}

#[test]
fn fields_of_both_ends_are_swapped_together() {
    let value = |spec: &Spec, (narrow, wide): &(Narrow, Wide)| {
        spec.home_masks().fold(0_u128, |value, (word, mask)| {
            let word = if let Home::Narrow(..) = spec.home { narrow[word] } else { wide[word] };
            value << mask.count_ones() | u128::from((word & mask) >> mask.trailing_zeros())
        })
    };
    let mut pairs = 0;
    for seed in 0..100 {
        let before = keys(&mixed(seed));
        let mut after = before;
        let is_swapped = order_ends(&mut after.0, Some(&mut after.1));
        for spec in FIELDS.iter().filter(|spec| spec.is_of_flow()) {
            match spec.other_end() {
                None if spec.is_second_end() => continue,
                None => assert_eq!(value(spec, &after), value(spec, &before), "{}", spec.name),
                Some(other) => {
                    let [src, dst] = [spec, other].map(|spec| value(spec, &before));
                    assert_ne!(src, dst, "{}", spec.name);
                    let expected = if is_swapped { [dst, src] } else { [src, dst] };
                    assert_eq!([spec, other].map(|spec| value(spec, &after)), expected);
                    pairs += usize::from(is_swapped);
                }
            }
        }
    }
    assert!(pairs > 100, "{pairs}");
    // Each has its other end.
    let ends = |ending: &str| FIELDS.iter().filter(|spec| spec.name.ends_with(ending)).count();
    assert_eq!(ends(".src"), ends(".dst"));
    assert_eq!(FIELDS.iter().filter(|spec| spec.other_end().is_some()).count(), ends(".src"));
}
