//! IPv4, IPv6 and its extension headers.

use std::net::{Ipv4Addr, Ipv6Addr};

use super::reader::{Fields, Reader};
use super::{Layer, Next, names};

/// IP behind something that does not say which: by its first four bits.
pub(super) fn by_version(reader: &mut Reader<'_>, found: &mut Vec<Layer>) -> Option<Next> {
    match reader.rest().first()? >> 4 {
        4 => v4(reader, found),
        6 => v6(reader, found),
        _ => None,
    }
}

/// Whether there is an IP header already: the next one is inside a tunnel.
fn enter(reader: &mut Reader<'_>, found: &[Layer]) {
    if found.iter().any(|layer| layer.name == "ip" || layer.name == "ipv6") {
        reader.enter();
    }
}

pub(super) fn v4(reader: &mut Reader<'_>, found: &mut Vec<Layer>) -> Option<Next> {
    enter(reader, found);
    let mut layer = reader.layer("ip", "IPv4");
    let read = v4_fields(&mut layer);
    let (summary, next) = match read {
        Some((summary, next)) => (summary, next),
        None => (String::new(), None),
    };
    layer.finish(summary, found);
    next
}

fn v4_fields(layer: &mut Fields<'_, '_>) -> Option<(String, Option<Next>)> {
    let [first] = layer.take()?;
    let header = 4 * usize::from(first & 15);
    layer.field("ip.version", "Version", 1, (first >> 4).to_string());
    layer.field("ip.hdr_len", "Header length", 1, format!("{header} bytes"));
    let [service] = layer.take()?;
    layer.field("ip.dsfield.dscp", "DSCP", 1, (service >> 2).to_string());
    layer.field("ip.dsfield.ecn", "ECN", 1, (service & 3).to_string());
    let total = layer.short("ip.len", "Total length")?;
    layer.short_hex("ip.id", "Identification")?;
    let fragment = u16::from_be_bytes(layer.take()?);
    let flags = [(0x8000, "reserved"), (0x4000, "don't fragment"), (0x2000, "more fragments")];
    let set: Vec<&str> =
        flags.iter().filter(|(bit, _)| fragment & bit != 0).map(|(_, name)| *name).collect();
    let set = if set.is_empty() { "none".to_owned() } else { set.join(", ") };
    layer.field_at("ip.flags", "Flags", (2, 1), set);
    let place = 8 * (fragment & 0x1FFF);
    layer.field("ip.frag_offset", "Fragment offset", 2, place.to_string());
    layer.byte("ip.ttl", "Time to live")?;
    let [protocol] = layer.take()?;
    layer.field("ip.proto", "Protocol", 1, names::protocol(protocol));
    layer.short_hex("ip.checksum", "Header checksum")?;
    let source = address4(layer, "ip.src", "Source")?;
    let target = address4(layer, "ip.dst", "Destination")?;
    if header > layer.len() {
        let options = header - layer.len();
        let taken = layer.take_some(options);
        layer.field(
            "ip.options",
            "Options",
            taken.len(),
            crate::counted(taken.len() as u64, "byte"),
        );
    }
    if usize::from(total) >= header {
        layer.end_in(total.into());
    }
    // A later fragment has no transport header.
    let next = (place == 0 && header >= 20).then_some(Next::Protocol(protocol));
    Some((format!("{source} > {target}"), next))
}

fn address4(layer: &mut Fields<'_, '_>, name: &'static str, label: &'static str) -> Option<String> {
    let text = Ipv4Addr::from(layer.take::<4>()?).to_string();
    layer.field(name, label, 4, text.clone());
    Some(text)
}

pub(super) fn v6(reader: &mut Reader<'_>, found: &mut Vec<Layer>) -> Option<Next> {
    enter(reader, found);
    let mut layer = reader.layer("ipv6", "IPv6");
    let (summary, next) = match v6_fields(&mut layer) {
        Some((summary, next)) => (summary, Some(next)),
        None => (String::new(), None),
    };
    layer.finish(summary, found);
    next
}

fn v6_fields(layer: &mut Fields<'_, '_>) -> Option<(String, Next)> {
    let first = u32::from_be_bytes(layer.take()?);
    layer.field_at("ipv6.version", "Version", (4, 1), (first >> 28).to_string());
    layer.field_at("ipv6.tclass.dscp", "DSCP", (4, 2), (first >> 22 & 63).to_string());
    layer.field_at("ipv6.tclass.ecn", "ECN", (3, 1), (first >> 20 & 3).to_string());
    layer.field_at("ipv6.flow", "Flow label", (3, 3), format!("0x{:05x}", first & 0xF_FFFF));
    let length = layer.short("ipv6.plen", "Payload length")?;
    let [next] = layer.take()?;
    layer.field("ipv6.nxt", "Next header", 1, names::protocol(next));
    layer.byte("ipv6.hlim", "Hop limit")?;
    let source = address6(layer, "ipv6.src", "Source")?;
    let target = address6(layer, "ipv6.dst", "Destination")?;
    // 0 is for jumbograms.
    if length > 0 {
        layer.end_in(40 + usize::from(length));
    }
    Some((format!("{source} > {target}"), Next::Protocol(next)))
}

fn address6(layer: &mut Fields<'_, '_>, name: &'static str, label: &'static str) -> Option<String> {
    let text = Ipv6Addr::from(layer.take::<16>()?).to_string();
    layer.field(name, label, 16, text.clone());
    Some(text)
}

/// An extension header of IPv6.
pub(super) fn extension(
    number: u8,
    reader: &mut Reader<'_>,
    found: &mut Vec<Layer>,
) -> Option<Next> {
    let (name, title) = match number {
        0 => ("ipv6.hopopts", "Hop-by-hop options"),
        43 => ("ipv6.routing", "Routing header"),
        44 => ("ipv6.fraghdr", "Fragment header"),
        _ => ("ipv6.dstopts", "Destination options"),
    };
    let mut layer = reader.layer(name, title);
    let next = extension_fields(number, &mut layer);
    layer.finish("", found);
    next.flatten()
}

fn extension_fields(number: u8, layer: &mut Fields<'_, '_>) -> Option<Option<Next>> {
    let [next] = layer.take()?;
    layer.field("ipv6.ext.nxt", "Next header", 1, names::protocol(next));
    if number != 44 {
        let [length] = layer.take()?;
        let length = 8 + 8 * usize::from(length);
        layer.field("ipv6.ext.len", "Length", 1, format!("{length} bytes"));
        layer.skip(length - 2);
        return Some(Some(Next::Protocol(next)));
    }
    layer.skip(1);
    let place = u16::from_be_bytes(layer.take()?);
    layer.field("ipv6.fraghdr.offset", "Fragment offset", 2, (place & 0xFFF8).to_string());
    layer.field_at("ipv6.fraghdr.more", "More fragments", (1, 1), (place & 1).to_string());
    let id = u32::from_be_bytes(layer.take()?);
    layer.field("ipv6.fraghdr.ident", "Identification", 4, format!("0x{id:08x}"));
    Some((place & 0xFFF8 == 0).then_some(Next::Protocol(next)))
}
