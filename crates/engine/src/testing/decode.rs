//! The decoder of frames against loads at fixed places, one by one.

use crate::packet::{
    ETHERTYPE_ARP, ETHERTYPE_IPV4, ETHERTYPE_IPV6, ETHERTYPE_MPLS, ETHERTYPE_RARP, ETHERTYPES_VLAN,
    Encap, Fragment, Headers, Inner, LinkType, Tunnel, decode, protocol,
};

/// Decodes any bytes as a frame: the first chooses the link, the second how many bytes are added.
///
/// Whether the frame is odd, and the fields that filters ask for, must be what plain loads say.
/// Nothing may depend on what was decoded before, and padding must not change what is not odd.
pub fn fuzz_decode_frame(bytes: &[u8]) {
    let [choice, padding, frame @ ..] = bytes else { return };
    let swapped = choice & 0x80 != 0;
    let link = match choice & 15 {
        0 => LinkType::NULL,
        1 => LinkType::RAW,
        2 => LinkType::LOOP,
        3 => LinkType::LINUX_SLL,
        4 => LinkType::LINUX_SLL2,
        5 => LinkType::IPV4,
        6 => LinkType::IPV6,
        7 => LinkType(147),
        _ => LinkType::ETHERNET,
    };
    let mut clean = Headers::default();
    decode(link, swapped, frame, &mut clean);
    let mut used = Headers {
        wide: true,
        ip6_src: 1,
        ip6_dst: 2,
        tunnel: Tunnel::Gtp,
        tunnel_id: 3,
        inner: Inner { eth_type: 4, src: 5, dst: 6, l4: 7, port_src: 8, port_dst: 9 },
        ..Headers::default()
    };
    decode(LinkType::ETHERNET, false, &[0x81; 40], &mut used);
    decode(link, swapped, frame, &mut used);
    assert_eq!(used, clean, "an earlier frame is seen");

    let Some(loads) = loads(link, swapped, frame) else {
        assert!(clean.odd, "a load that cannot be made, or has no field: {clean:?}");
        return;
    };
    assert!(!clean.odd, "every load can be made: {clean:?}");
    let got = Headers { l4: loads.l4, fragment: loads.fragment, ..with_wide_of(&clean, &loads) };
    let beyond = loads.eth_type == ETHERTYPE_IPV6 && !TRANSPORT6.contains(&loads.proto);
    if beyond {
        // No program loads what is behind extension headers.
        let hidden =
            Headers { port_src: 0, port_dst: 0, icmp_type: 0, icmp_code: 0, tcp_flags: 0, ..got };
        let hidden = Headers { tcp_window: 0, ..hidden };
        assert_eq!(Headers { wide: loads.wide, ..hidden }, loads);
        assert!(loads.proto != protocol::FRAGMENT || clean.l4 == loads.l4);
    } else {
        let flags = if loads.eth_type == ETHERTYPE_IPV4 { got.tcp_flags } else { 0 };
        // The window may be cut off, and no column answers for it.
        let got = Headers { tcp_flags: flags, tcp_window: 0, ..got };
        assert_eq!(Headers { wide: loads.wide, ..got }, loads);
        assert_eq!((clean.l4, clean.fragment), (loads.l4, loads.fragment));
    }
    if loads.wide {
        assert!(clean.wide);
        assert_eq!((clean.ip6_src, clean.ip6_dst), (loads.ip6_src, loads.ip6_dst));
    }

    if beyond {
        // With more bytes, a chain of extension headers may lead further.
        return;
    }
    let mut padded = frame.to_vec();
    padded.resize(frame.len() + usize::from(*padding), *padding);
    let mut more = Headers::default();
    decode(link, swapped, &padded, &mut more);
    // So may a tunnel, and the TCP flags in IPv6 may be cut off without the frame being odd.
    let flags = if loads.wide { clean.tcp_flags } else { more.tcp_flags };
    let more = Headers { wide: clean.wide, tcp_flags: flags, ..with_wide_of(&more, &clean) };
    let more = Headers { tcp_window: clean.tcp_window, ..more };
    assert_eq!(more, clean, "padding was decoded");
}

/// Protocols whose header a program looks for straight behind that of IPv6.
const TRANSPORT6: [u8; 4] = [protocol::TCP, protocol::UDP, protocol::SCTP, protocol::ICMP6];

/// The first with the wide fields of the second.
fn with_wide_of(headers: &Headers, wide: &Headers) -> Headers {
    Headers {
        ip6_src: wide.ip6_src,
        ip6_dst: wide.ip6_dst,
        tunnel: wide.tunnel,
        tunnel_id: wide.tunnel_id,
        inner: wide.inner,
        ..*headers
    }
}

/// As many bytes as a big-endian number; `None` past the end.
fn load(frame: &[u8], at: usize, len: usize) -> Option<u128> {
    let bytes = frame.get(at..at.checked_add(len)?)?;
    Some(bytes.iter().fold(0, |sum, &byte| sum << 8 | u128::from(byte)))
}

fn half(frame: &[u8], at: usize) -> Option<u16> {
    u16::try_from(load(frame, at, 2)?).ok()
}

fn word(frame: &[u8], at: usize) -> Option<u32> {
    u32::try_from(load(frame, at, 4)?).ok()
}

fn mac(frame: &[u8], at: usize) -> Option<u64> {
    u64::try_from(load(frame, at, 6)?).ok()
}

/// What the programs for a frame load, in the fields that these loads are compared with. `None` if
/// a load would end a program, or has no field. Nothing behind extension headers, no tunnels.
fn loads(link: LinkType, swapped: bool, frame: &[u8]) -> Option<Headers> {
    let mut found = Headers::default();
    let (eth_type, at) = match link {
        LinkType::ETHERNET => ethernet(frame, &mut found)?,
        LinkType::LINUX_SLL => {
            let eth_type = half(frame, 14)?;
            if half(frame, 4)? == 6 {
                found.eth_src = mac(frame, 6)?;
            }
            if eth_type == 4 {
                no_appletalk(frame, 16)?;
            }
            (eth_type, 16)
        }
        LinkType::LINUX_SLL2 => {
            load(frame, 0, 20)?;
            if frame[11] == 6 {
                found.eth_src = mac(frame, 12)?;
            }
            (half(frame, 0)?, 20)
        }
        LinkType::RAW => match frame.first()? >> 4 {
            4 => (ETHERTYPE_IPV4, 0),
            6 => (ETHERTYPE_IPV6, 0),
            _ => (0, 0),
        },
        LinkType::IPV4 => (ETHERTYPE_IPV4, 0),
        LinkType::IPV6 => (ETHERTYPE_IPV6, 0),
        LinkType::NULL | LinkType::LOOP => {
            let family = word(frame, 0)?;
            let here = if cfg!(target_endian = "little") { family.swap_bytes() } else { family };
            let family = match link {
                LinkType::LOOP => family,
                _ if swapped => here.swap_bytes(),
                _ => here,
            };
            let eth_type = match family {
                2 => ETHERTYPE_IPV4,
                24 | 28 | 30 => ETHERTYPE_IPV6,
                _ => 0,
            };
            (eth_type, 4)
        }
        _ => return None,
    };
    found.eth_type = eth_type;
    match eth_type {
        _ if matches!(found.encap, Encap::Mpls | Encap::TagsMpls) => {}
        ETHERTYPE_ARP | ETHERTYPE_RARP => {
            found.ip_src = word(frame, at + 14)?;
            found.ip_dst = word(frame, at + 24)?;
        }
        ETHERTYPE_IPV4 => ipv4(frame, at, &mut found)?,
        ETHERTYPE_IPV6 => ipv6(frame, at, &mut found)?,
        _ => {}
    }
    Some(found)
}

/// The type behind all tags, and where its payload is.
fn ethernet(frame: &[u8], found: &mut Headers) -> Option<(u16, usize)> {
    found.eth_dst = mac(frame, 0)?;
    found.eth_src = mac(frame, 6)?;
    let (mut at, mut ids) = (12, Vec::new());
    while ETHERTYPES_VLAN.contains(&half(frame, at)?) {
        ids.push(half(frame, at + 2)? & 0xFFF);
        at += 4;
        // The third id has no field.
        (ids.len() < 3).then_some(())?;
    }
    found.vlan = ids.first().copied().unwrap_or(0);
    found.vlan_inner = ids.get(1).copied().unwrap_or(0);
    let eth_type = half(frame, at)?;
    found.encap = match (eth_type, ids.len()) {
        (ETHERTYPE_MPLS, 0) => Encap::Mpls,
        (ETHERTYPE_MPLS, 1) => Encap::TagsMpls,
        (ETHERTYPE_MPLS, _) => return None,
        (_, tags) => [Encap::None, Encap::Tag, Encap::TwoTags][tags],
    };
    if eth_type == ETHERTYPE_MPLS {
        found.mpls = word(frame, at + 2)? >> 12;
    }
    if eth_type <= 1500 {
        no_appletalk(frame, at + 2)?;
    }
    Some((eth_type, at + 2))
}

/// `None` if programs for AppleTalk and its ARP find them, or do not get that far.
fn no_appletalk(frame: &[u8], at: usize) -> Option<()> {
    let header = load(frame, at, 8)?;
    (![0xAAAA_0308_0007_809B, 0xAAAA_0300_0000_80F3].contains(&header)).then_some(())
}

fn ipv4(frame: &[u8], at: usize, found: &mut Headers) -> Option<()> {
    found.ip_src = word(frame, at + 12)?;
    found.ip_dst = word(frame, at + 16)?;
    (found.ttl, found.dscp) = (frame[at + 8], frame[at + 1] >> 2);
    found.proto = frame[at + 9];
    found.l4 = found.proto;
    found.fragment = match half(frame, at + 6)? & 0x3FFF {
        0 => Fragment::Whole,
        0x2000 => Fragment::First,
        _ => Fragment::Later,
    };
    let len_bytes = usize::from(frame[at] & 15) * 4;
    (len_bytes >= 20).then_some(())?;
    if found.fragment == Fragment::Later {
        return Some(());
    }
    transport(frame, at + len_bytes, protocol::ICMP, found)?;
    if found.proto == protocol::TCP {
        found.tcp_flags = *frame.get(at + len_bytes + 13)?;
    }
    Some(())
}

fn ipv6(frame: &[u8], at: usize, found: &mut Headers) -> Option<()> {
    found.wide = true;
    found.ip6_src = load(frame, at + 8, 16)?;
    found.ip6_dst = load(frame, at + 24, 16)?;
    found.ttl = frame[at + 7];
    found.dscp = u8::try_from(half(frame, at)? >> 6 & 0x3F).ok()?;
    found.proto = frame[at + 6];
    found.l4 = found.proto;
    transport(frame, at + 40, protocol::ICMP6, found)?;
    if found.proto == protocol::FRAGMENT {
        found.l4 = *frame.get(at + 40)?;
        // The decoder continues behind these, and finds what programs do not see.
        let first = half(frame, at + 42).is_some_and(|word| word & 0xFFF8 == 0);
        let goes_on = matches!(found.l4, 0 | 43 | 44 | 51 | 60 | 135 | 139 | 140);
        let unknown = load(frame, at + 40, 4).is_none() && found.l4 != protocol::FRAGMENT;
        if unknown || first && goes_on && leads_elsewhere(frame, at + 40) {
            return None;
        }
    }
    Some(())
}

/// Whether the protocol behind a chain of headers that starts with a fragment header is another
/// than the one that this header names.
fn leads_elsewhere(frame: &[u8], at: usize) -> bool {
    let named = frame[at];
    let (mut next, mut at) = (named, at + 8);
    while let Some(header) = frame.get(at..).and_then(|rest| rest.first_chunk::<4>()) {
        let words = usize::from(header[1]);
        let behind = match next {
            protocol::FRAGMENT if header[2] == 0 && header[3] & 0xF8 == 0 => {
                frame.len().min(at + 8)
            }
            protocol::FRAGMENT => return header[0] != named,
            51 => at + 4 * (words + 2),
            0 | 43 | 60 | 135 | 139 | 140 => at + 8 * (words + 1),
            _ => break,
        };
        if behind > frame.len() {
            break;
        }
        (next, at) = (header[0], behind);
    }
    next != named
}

/// Ports, or type and code, straight behind the network header.
fn transport(frame: &[u8], at: usize, icmp: u8, found: &mut Headers) -> Option<()> {
    if [protocol::TCP, protocol::UDP, protocol::SCTP].contains(&found.proto) {
        found.port_src = half(frame, at)?;
        found.port_dst = half(frame, at + 2)?;
    } else if found.proto == icmp {
        load(frame, at, 2)?;
        (found.icmp_type, found.icmp_code) = (frame[at], frame[at + 1]);
    }
    Some(())
}
