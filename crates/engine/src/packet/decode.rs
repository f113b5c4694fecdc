//! From the bytes of a frame to its headers.
//!
//! A field holds what libpcap's programs load, from where they load it; [`Headers`] says why. What
//! follows from that here:
//!
//! - The EtherType alone decides what a network header is. The version is looked at only where
//!   libpcap looks at it: on links that have no type.
//! - An IPv4 header has the length that is written in it. Below 20 bytes its ports would lie in the
//!   header itself: the frame is odd.
//! - Programs see the ports of IPv6 only if the transport header follows the IPv6 header directly.
//!   Ports behind extension headers are decoded too; `proto` tells the two apart.
//! - If a program can load bytes that the frame does not have, the frame is odd. Which ones those
//!   are depends on what the bytes before them say, so a frame may be short and not odd.
//! - Levels: before the word `vlan`, a program tests the type at its usual place, which is that of
//!   the tag if there is one. [`Encap`] says at which level the headers are.
//! - AppleTalk and its ARP have a type, but libpcap finds them behind 802.2 headers as well: frames
//!   that have them there are odd.
//!
//! Only tapdex looks into tunnels, no libpcap program does: nothing about them makes a frame odd.
//!
//! # Example
//!
//! ```
//! use tapdex_engine::packet::{ETHERTYPE_IPV4, Headers, LinkType, decode, protocol};
//!
//! let frame = [
//!     2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0, // Ethernet
//!     0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2, // IPv4
//!     0, 53, 0x80, 0, 0, 8, 0, 0, // UDP
//! ];
//! let mut headers = Headers::default();
//! decode(LinkType::ETHERNET, false, &frame, &mut headers);
//! assert!(!headers.odd);
//! assert_eq!((headers.eth_type, headers.proto), (ETHERTYPE_IPV4, protocol::UDP));
//! assert_eq!((headers.ip_src, headers.ip_dst), (0x0A00_0001, 0x0A00_0002));
//! assert_eq!((headers.port_src, headers.port_dst), (53, 0x8000));
//!
//! // Without the ports, a filter that asks for them has to see the frame.
//! decode(LinkType::ETHERNET, false, &frame[..34], &mut headers);
//! assert!(headers.odd);
//! ```

#![allow(clippy::big_endian_bytes, reason = "network headers are big-endian")]

mod tunnel;

pub(crate) use tunnel::is_tunnel_port;

use super::{
    ETHERTYPE_ARP, ETHERTYPE_IPV4, ETHERTYPE_IPV6, ETHERTYPE_MPLS, ETHERTYPE_RARP, ETHERTYPES_VLAN,
    Encap, Fragment, Headers, Inner, LinkType, Tunnel, protocol,
};

/// The largest number that is the length of an 802.3 frame, and not a type.
const LENGTH_MAX: u16 = 1500;
/// The type that Linux cooked captures give a frame with an 802.2 header.
const COOKED_802_2: u16 = 4;
/// SNAP headers of AppleTalk and of its ARP.
const SNAPS: [[u8; 8]; 2] =
    [[0xAA, 0xAA, 3, 8, 0, 7, 0x80, 0x9B], [0xAA, 0xAA, 3, 0, 0, 0, 0x80, 0xF3]];
/// Address families of IPv4, and of IPv6 on the systems that write loopback frames.
const FAMILY_IPV4: u32 = 2;
const FAMILIES_IPV6: [u32; 3] = [24, 28, 30];

/// Decodes the headers of a frame into `target`. Nothing that was in it before is left.
///
/// `swapped`: the byte order of the machine that captured is not the one of this machine, which
/// [`LinkType::NULL`] needs to know. A frame of a link without a name in [`LinkType`] is odd, and
/// is not decoded.
pub fn decode(link: LinkType, swapped: bool, frame: &[u8], target: &mut Headers) {
    reset(target);
    let decoded = match link {
        LinkType::ETHERNET => ethernet(frame, target),
        LinkType::LINUX_SLL => cooked(frame, target),
        LinkType::LINUX_SLL2 => cooked2(frame, target),
        LinkType::RAW => raw(frame, target),
        LinkType::NULL => loopback(frame, cfg!(target_endian = "big") != swapped, target),
        LinkType::LOOP => loopback(frame, true, target),
        LinkType::IPV4 => typed(ETHERTYPE_IPV4, frame, target),
        LinkType::IPV6 => typed(ETHERTYPE_IPV6, frame, target),
        _ => None,
    };
    target.odd = decoded.is_none();
}

/// Makes all fields those of a frame without headers. The wide fields are empty already unless
/// [`Headers::wide`] is set, so for most frames they need not be written.
#[inline]
fn reset(target: &mut Headers) {
    // Destructured, so that no new field can be forgotten.
    let Headers {
        odd,
        encap,
        eth_dst,
        eth_src,
        eth_type,
        vlan,
        vlan_inner,
        mpls,
        ip_src,
        ip_dst,
        proto,
        l4,
        fragment,
        port_src,
        port_dst,
        icmp_type,
        icmp_code,
        tcp_flags,
        tcp_window,
        ttl,
        dscp,
        wide,
        ip6_src,
        ip6_dst,
        tunnel,
        tunnel_id,
        inner,
    } = target;
    if std::mem::take(wide) {
        (*ip6_src, *ip6_dst) = (0, 0);
        (*tunnel, *tunnel_id, *inner) = (Tunnel::None, 0, Inner::default());
    }
    (*odd, *encap, *fragment) = (false, Encap::None, Fragment::Whole);
    (*eth_dst, *eth_src, *eth_type) = (0, 0, 0);
    (*vlan, *vlan_inner, *mpls) = (0, 0, 0);
    (*ip_src, *ip_dst, *proto, *l4) = (0, 0, 0, 0);
    (*port_src, *port_dst) = (0, 0);
    (*icmp_type, *icmp_code, *tcp_flags, *tcp_window) = (0, 0, 0, 0);
    (*ttl, *dscp) = (0, 0);
}

/// The 16 bits at a fixed place of a header.
#[inline]
fn half<const N: usize>(header: &[u8; N], at: usize) -> u16 {
    u16::from_be_bytes([header[at], header[at + 1]])
}

/// The 32 bits at a fixed place of a header.
#[inline]
fn word<const N: usize>(header: &[u8; N], at: usize) -> u32 {
    u32::from_be_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]])
}

/// The 48 bits at a fixed place of a header.
#[inline]
fn mac<const N: usize>(header: &[u8; N], at: usize) -> u64 {
    u64::from(word(header, at)) << 16 | u64::from(half(header, at + 4))
}

// From here on, `None` means an odd frame. What was found before that stays in the fields.

#[inline]
fn ethernet(frame: &[u8], target: &mut Headers) -> Option<()> {
    let (header, rest) = frame.split_first_chunk::<14>()?;
    target.eth_dst = mac(header, 0);
    target.eth_src = mac(header, 6);
    let eth_type = half(header, 12);
    if eth_type == ETHERTYPE_IPV4 {
        typed(eth_type, rest, target)
    } else if ETHERTYPES_VLAN.contains(&eth_type) {
        tagged(rest, target)
    } else {
        untagged(eth_type, rest, target)
    }
}

/// What follows the first type, if that is the type of a tag.
fn tagged(rest: &[u8], target: &mut Headers) -> Option<()> {
    target.encap = Encap::Tag;
    let (tag, rest) = rest.split_first_chunk::<4>()?;
    target.vlan = half(tag, 0) & 0xFFF;
    let eth_type = half(tag, 2);
    if !ETHERTYPES_VLAN.contains(&eth_type) {
        return untagged(eth_type, rest, target);
    }
    target.encap = Encap::TwoTags;
    let (tag, rest) = rest.split_first_chunk::<4>()?;
    target.vlan_inner = half(tag, 0) & 0xFFF;
    let eth_type = half(tag, 2);
    if ETHERTYPES_VLAN.contains(&eth_type) {
        // The id of the third tag has no field.
        target.encap = Encap::ManyTags;
        target.eth_type = eth_type;
        return None;
    }
    untagged(eth_type, rest, target)?;
    // No field tells these apart from frames with one tag and labels.
    (target.encap != Encap::TagsMpls).then_some(())
}

/// What follows the type of an Ethernet frame and its tags.
fn untagged(eth_type: u16, rest: &[u8], target: &mut Headers) -> Option<()> {
    if eth_type <= LENGTH_MAX {
        target.eth_type = eth_type;
        return without_snap(rest);
    }
    if eth_type == ETHERTYPE_MPLS {
        let tagged = target.encap != Encap::None;
        target.eth_type = eth_type;
        target.encap = if tagged { Encap::TagsMpls } else { Encap::Mpls };
        target.mpls = word(rest.first_chunk::<4>()?, 0) >> 12;
        return Some(());
    }
    typed(eth_type, rest, target)
}

/// Whether an 802.2 frame is neither AppleTalk nor its ARP.
fn without_snap(rest: &[u8]) -> Option<()> {
    let header = rest.first_chunk::<8>()?;
    (!SNAPS.contains(header)).then_some(())
}

fn cooked(frame: &[u8], target: &mut Headers) -> Option<()> {
    let (header, rest) = frame.split_first_chunk::<16>()?;
    if half(header, 4) == 6 {
        target.eth_src = mac(header, 6);
    }
    let eth_type = half(header, 14);
    typed(eth_type, rest, target)?;
    if eth_type == COOKED_802_2 { without_snap(rest) } else { Some(()) }
}

fn cooked2(frame: &[u8], target: &mut Headers) -> Option<()> {
    let (header, rest) = frame.split_first_chunk::<20>()?;
    if header[11] == 6 {
        target.eth_src = mac(header, 12);
    }
    typed(half(header, 0), rest, target)
}

fn raw(frame: &[u8], target: &mut Headers) -> Option<()> {
    match frame.first()? >> 4 {
        4 => typed(ETHERTYPE_IPV4, frame, target),
        6 => typed(ETHERTYPE_IPV6, frame, target),
        _ => Some(()),
    }
}

fn loopback(frame: &[u8], big_endian: bool, target: &mut Headers) -> Option<()> {
    let (header, rest) = frame.split_first_chunk::<4>()?;
    let family = word(header, 0);
    let family = if big_endian { family } else { family.swap_bytes() };
    if family == FAMILY_IPV4 {
        typed(ETHERTYPE_IPV4, rest, target)
    } else if FAMILIES_IPV6.contains(&family) {
        typed(ETHERTYPE_IPV6, rest, target)
    } else {
        Some(())
    }
}

/// A network header, by the type before it.
#[inline]
fn typed(eth_type: u16, rest: &[u8], target: &mut Headers) -> Option<()> {
    target.eth_type = eth_type;
    match eth_type {
        ETHERTYPE_IPV4 => ipv4(rest, target),
        ETHERTYPE_IPV6 => ipv6(rest, target),
        ETHERTYPE_ARP | ETHERTYPE_RARP => {
            // The addresses are where Ethernet has them, whatever the length fields say.
            let header = rest.first_chunk::<28>()?;
            target.ip_src = word(header, 14);
            target.ip_dst = word(header, 24);
            Some(())
        }
        _ => Some(()),
    }
}

#[inline]
fn ipv4(packet: &[u8], target: &mut Headers) -> Option<()> {
    let header = packet.first_chunk::<20>()?;
    let proto = header[9];
    target.ip_src = word(header, 12);
    target.ip_dst = word(header, 16);
    target.proto = proto;
    target.l4 = proto;
    (target.ttl, target.dscp) = (header[8], header[1] >> 2);
    let fragment = half(header, 6);
    let len_bytes = usize::from(header[0] & 15) * 4;
    if len_bytes < 20 {
        return None;
    }
    if fragment & 0x3FFF != 0 {
        target.fragment = if fragment & 0x1FFF == 0 { Fragment::First } else { Fragment::Later };
        if target.fragment == Fragment::Later {
            return Some(());
        }
    }
    let rest = packet.get(len_bytes..).unwrap_or(&[]);
    match proto {
        protocol::TCP => {
            ports(rest.first_chunk()?, target);
            target.tcp_flags = rest.first_chunk::<14>()?[13];
            target.tcp_window = window(rest);
        }
        protocol::UDP => {
            ports(rest.first_chunk()?, target);
            tunnel::udp(rest, target);
        }
        protocol::ICMP => [target.icmp_type, target.icmp_code] = *rest.first_chunk()?,
        protocol::SCTP => ports(rest.first_chunk()?, target),
        _ => tunnel::ip(proto, rest, target),
    }
    Some(())
}

#[inline]
fn ports(header: &[u8; 4], target: &mut Headers) {
    target.port_src = half(header, 0);
    target.port_dst = half(header, 2);
}

fn ipv6(packet: &[u8], target: &mut Headers) -> Option<()> {
    let (header, rest) = packet.split_first_chunk::<40>()?;
    target.wide = true;
    [target.ip6_src, target.ip6_dst] = addresses(header);
    let proto = header[6];
    target.proto = proto;
    target.l4 = proto;
    // Behind the four bits of the version.
    (target.ttl, target.dscp) = (header[7], header[0] << 2 & 0x3C | header[1] >> 6);
    match proto {
        protocol::TCP => {
            ports(rest.first_chunk()?, target);
            target.tcp_flags = rest.get(13).copied().unwrap_or(0);
            target.tcp_window = window(rest);
        }
        protocol::UDP => {
            ports(rest.first_chunk()?, target);
            tunnel::udp(rest, target);
        }
        protocol::ICMP6 => [target.icmp_type, target.icmp_code] = *rest.first_chunk()?,
        protocol::SCTP => ports(rest.first_chunk()?, target),
        _ => return extended6(proto, rest, target),
    }
    Some(())
}

/// The window of a TCP header; 0 if it is cut off before that.
#[inline]
fn window(rest: &[u8]) -> u16 {
    rest.first_chunk::<16>().map_or(0, |header| half(header, 14))
}

/// Both addresses of an IPv6 header.
#[inline]
fn addresses(header: &[u8; 40]) -> [u128; 2] {
    let address = |at: usize| {
        let mut bytes = [0; 16];
        bytes.copy_from_slice(&header[at..at + 16]);
        u128::from_be_bytes(bytes)
    };
    [address(8), address(24)]
}

/// What follows an IPv6 header, if that is not one of the usual transport headers.
#[inline(never)]
fn extended6(proto: u8, payload: &[u8], target: &mut Headers) -> Option<()> {
    let (l4, fragment, rest) = behind_extensions(proto, payload);
    target.l4 = l4;
    target.fragment = fragment;
    if fragment != Fragment::Later {
        // No program looks here, so headers may be cut off.
        match l4 {
            protocol::TCP | protocol::UDP | protocol::SCTP => {
                if let Some(header) = rest.first_chunk() {
                    ports(header, target);
                }
                if l4 == protocol::TCP {
                    target.tcp_flags = rest.get(13).copied().unwrap_or(0);
                    target.tcp_window = window(rest);
                } else if l4 == protocol::UDP {
                    tunnel::udp(rest, target);
                }
            }
            protocol::ICMP6 => {
                if let Some(&header) = rest.first_chunk() {
                    [target.icmp_type, target.icmp_code] = header;
                }
            }
            _ => tunnel::ip(l4, rest, target),
        }
    }
    // Programs do look at the first byte of a fragment header that comes first: it must name the
    // protocol.
    if proto == protocol::FRAGMENT && payload.first() != Some(&l4) {
        return None;
    }
    Some(())
}

/// Skips the extension headers of IPv6. Returns the protocol behind them, whether this is a
/// fragment, and the bytes of that protocol. Stops before a header that is cut off.
#[inline]
fn behind_extensions(first: u8, rest: &[u8]) -> (u8, Fragment, &[u8]) {
    let (mut proto, mut rest, mut fragment) = (first, rest, Fragment::Whole);
    while let 0 | 43 | 44 | 51 | 60 | 135 | 139 | 140 = proto {
        let Some(header) = rest.first_chunk::<4>() else { break };
        let behind = match proto {
            // The part of it that is needed is there.
            protocol::FRAGMENT => Some(rest.get(8..).unwrap_or(&[])),
            // Authentication counts words of four bytes.
            51 => rest.get(4 * (usize::from(header[1]) + 2)..),
            _ => rest.get(8 * (usize::from(header[1]) + 1)..),
        };
        let Some(behind) = behind else { break };
        if proto == protocol::FRAGMENT {
            let word = half(header, 2);
            if word & 0xFFF8 != 0 {
                return (header[0], Fragment::Later, behind);
            }
            if word & 1 != 0 {
                fragment = Fragment::First;
            }
        }
        (proto, rest) = (header[0], behind);
    }
    (proto, fragment, rest)
}
