//! Packets inside packets: one level of them.
//!
//! A tunnel's own header must be complete and valid, or there is no tunnel. The packet inside is
//! kept as far as it is there.

use super::{
    ETHERTYPE_IPV4, ETHERTYPE_IPV6, ETHERTYPES_VLAN, Fragment, Headers, Inner, Tunnel, addresses,
    behind_extensions, half, protocol, word,
};

/// UDP port of VXLAN.
const PORT_VXLAN: u16 = 4789;
/// UDP port of GTP-U.
const PORT_GTP: u16 = 2152;
/// Protocol number of IPv4 in IP.
const IPV4_IN_IP: u8 = 4;
/// Protocol number of IPv6 in IP.
const IPV6_IN_IP: u8 = 41;
/// The type that GRE has for an Ethernet frame.
const ETHERTYPE_BRIDGED: u16 = 0x6558;
/// The GTP-U message that has a packet in it.
const GTP_PACKET: u8 = 255;

/// Whether a UDP datagram with one of its ports being this may have a packet inside.
#[inline(always)]
pub(crate) fn is_tunnel_port(port: u16) -> bool {
    port == PORT_VXLAN || port == PORT_GTP
}

/// The packet inside a UDP datagram, whose ports are in `target`.
#[inline]
pub(super) fn udp(datagram: &[u8], target: &mut Headers) {
    // Most datagrams are ruled out here.
    if target.port_dst == PORT_VXLAN {
        enter(vxlan(datagram), target);
    } else if target.port_dst == PORT_GTP || target.port_src == PORT_GTP {
        enter(gtp(datagram), target);
    }
}

/// The packet inside an IP packet with some other protocol.
#[inline]
pub(super) fn ip(proto: u8, payload: &[u8], target: &mut Headers) {
    match proto {
        IPV4_IN_IP => enter(straight(ETHERTYPE_IPV4, payload), target),
        IPV6_IN_IP => enter(straight(ETHERTYPE_IPV6, payload), target),
        protocol::GRE => enter(gre(payload), target),
        _ => {}
    }
}

/// A tunnel, its id, and what is in it.
type Found = Option<(Tunnel, u32, Inner)>;

fn enter(found: Found, target: &mut Headers) {
    let Some((tunnel, id, inner)) = found else { return };
    target.wide = true;
    (target.tunnel, target.tunnel_id, target.inner) = (tunnel, id, inner);
}

#[inline(never)]
fn straight(eth_type: u16, payload: &[u8]) -> Found {
    Some((Tunnel::Ip, 0, network(eth_type, payload)?))
}

#[inline(never)]
fn gre(payload: &[u8]) -> Found {
    let (header, mut rest) = payload.split_first_chunk::<4>()?;
    let (flags, eth_type) = (half(header, 0), half(header, 2));
    // Version 1 is for PPP, and routing was never used.
    if flags & 0x4007 != 0 {
        return None;
    }
    if flags & 0x8000 != 0 {
        rest = rest.get(4..)?;
    }
    let mut id = 0;
    if flags & 0x2000 != 0 {
        let (key, behind) = rest.split_first_chunk::<4>()?;
        (id, rest) = (word(key, 0), behind);
    }
    if flags & 0x1000 != 0 {
        rest = rest.get(4..)?;
    }
    let inner = if eth_type == ETHERTYPE_BRIDGED { bridged(rest) } else { network(eth_type, rest) };
    Some((Tunnel::Gre, id, inner.unwrap_or_default()))
}

#[inline(never)]
fn vxlan(datagram: &[u8]) -> Found {
    let (header, rest) = datagram.split_first_chunk::<16>()?;
    // The flag for a valid id.
    if header[8] & 8 == 0 {
        return None;
    }
    Some((Tunnel::Vxlan, word(header, 12) >> 8, bridged(rest).unwrap_or_default()))
}

#[inline(never)]
fn gtp(datagram: &[u8]) -> Found {
    let (header, mut rest) = datagram.split_first_chunk::<16>()?;
    let flags = header[8];
    // Version 1, and not GTP'.
    if flags & 0xF0 != 0x30 || header[9] != GTP_PACKET {
        return None;
    }
    if flags & 7 != 0 {
        let (options, behind) = rest.split_first_chunk::<4>()?;
        rest = behind;
        let mut next = if flags & 4 != 0 { options[3] } else { 0 };
        while next != 0 {
            // A length of 0 would go on for ever.
            let len_bytes = 4 * usize::from(*rest.first().filter(|&&len| len != 0)?);
            next = *rest.get(len_bytes - 1)?;
            rest = rest.get(len_bytes..)?;
        }
    }
    let eth_type = match rest.first().map(|byte| byte >> 4) {
        Some(4) => ETHERTYPE_IPV4,
        Some(6) => ETHERTYPE_IPV6,
        _ => 0,
    };
    let inner = network(eth_type, rest).unwrap_or_default();
    Some((Tunnel::Gtp, word(header, 12), inner))
}

/// An Ethernet frame, with at most two tags.
fn bridged(frame: &[u8]) -> Option<Inner> {
    let (header, mut rest) = frame.split_first_chunk::<14>()?;
    let mut eth_type = half(header, 12);
    for _ in 0..2 {
        if ETHERTYPES_VLAN.contains(&eth_type) {
            let (tag, behind) = rest.split_first_chunk::<4>()?;
            (eth_type, rest) = (half(tag, 2), behind);
        }
    }
    network(eth_type, rest)
}

/// An IP packet, whose version must be the one that was announced.
fn network(eth_type: u16, packet: &[u8]) -> Option<Inner> {
    let mut inner = Inner { eth_type, ..Inner::default() };
    let rest = match eth_type {
        ETHERTYPE_IPV4 => {
            let header = packet.first_chunk::<20>().filter(|header| header[0] >> 4 == 4)?;
            inner.src = word(header, 12).into();
            inner.dst = word(header, 16).into();
            inner.l4 = header[9];
            let len_bytes = 4 * usize::from(header[0] & 15);
            if len_bytes < 20 || half(header, 6) & 0x1FFF != 0 {
                return Some(inner);
            }
            packet.get(len_bytes..).unwrap_or(&[])
        }
        ETHERTYPE_IPV6 => {
            let (header, rest) =
                packet.split_first_chunk::<40>().filter(|(header, _)| header[0] >> 4 == 6)?;
            [inner.src, inner.dst] = addresses(header);
            let (l4, fragment, rest) = behind_extensions(header[6], rest);
            inner.l4 = l4;
            if fragment == Fragment::Later {
                return Some(inner);
            }
            rest
        }
        _ => return None,
    };
    if let protocol::TCP | protocol::UDP | protocol::SCTP = inner.l4
        && let Some(ports) = rest.first_chunk::<4>()
    {
        (inner.port_src, inner.port_dst) = (half(ports, 0), half(ports, 2));
    }
    Some(inner)
}
