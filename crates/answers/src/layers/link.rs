//! What frames start with: Ethernet, cooked captures, loopback; then tags and labels.

use tapdex_engine::packet::LinkType;

use super::reader::{Reader, mac};
use super::{Layer, Next, names};

/// The header of a link; `None` if it is cut, or a kind that is not known.
pub(super) fn read(
    link: LinkType,
    swapped: bool,
    reader: &mut Reader<'_>,
    found: &mut Vec<Layer>,
) -> Option<Next> {
    match link {
        LinkType::ETHERNET => Some(ethernet(reader, found)),
        LinkType::LINUX_SLL => cooked(reader, found),
        LinkType::LINUX_SLL2 => cooked2(reader, found),
        LinkType::NULL => loopback(cfg!(target_endian = "big") != swapped, reader, found),
        LinkType::LOOP => loopback(true, reader, found),
        LinkType::RAW => Some(Next::Version),
        LinkType::IPV4 => Some(Next::Type(0x0800)),
        LinkType::IPV6 => Some(Next::Type(0x86DD)),
        _ => Some(Next::Payload),
    }
}

/// An Ethernet header.
pub(super) fn ethernet(reader: &mut Reader<'_>, found: &mut Vec<Layer>) -> Next {
    let mut layer = reader.layer("eth", "Ethernet");
    let target = layer.mac("eth.dst", "Destination");
    let source = layer.mac("eth.src", "Source");
    let kind = layer.take().map(u16::from_be_bytes);
    if let Some(kind) = kind {
        let name = if kind <= 1500 { "eth.len" } else { "eth.type" };
        let label = if kind <= 1500 { "Length" } else { "Type" };
        layer.field(name, label, 2, names::ethertype(kind));
    }
    let summary = match (source, target) {
        (Some(source), Some(target)) => format!("{source} > {target}"),
        _ => String::new(),
    };
    layer.finish(summary, found);
    match kind {
        Some(kind) if kind > 1500 => Next::Type(kind),
        Some(length) => {
            reader.end_in(length.into());
            Next::Payload
        }
        None => Next::Payload,
    }
}

/// A VLAN tag.
pub(super) fn tag(reader: &mut Reader<'_>, found: &mut Vec<Layer>) -> Option<Next> {
    let mut layer = reader.layer("vlan", "VLAN tag");
    let control = layer.take().map(u16::from_be_bytes);
    if let Some(control) = control {
        layer.field("vlan.priority", "Priority", 2, (control >> 13).to_string());
        layer.field("vlan.dei", "May be dropped", 2, (control >> 12 & 1).to_string());
        layer.field("vlan.id", "Id", 2, (control & 0xFFF).to_string());
    }
    let kind = layer.take().map(u16::from_be_bytes);
    if let Some(kind) = kind {
        layer.field("vlan.etype", "Type", 2, names::ethertype(kind));
    }
    let summary = control.map_or_else(String::new, |control| format!("{}", control & 0xFFF));
    layer.finish(summary, found);
    kind.map(Next::Type)
}

/// An MPLS label; what follows the last one is told by its version.
pub(super) fn mpls(reader: &mut Reader<'_>, found: &mut Vec<Layer>) -> Option<Next> {
    let mut layer = reader.layer("mpls", "MPLS label");
    let entry = layer.take().map(u32::from_be_bytes);
    if let Some(entry) = entry {
        layer.field_at("mpls.label", "Label", (4, 3), (entry >> 12).to_string());
        layer.field_at("mpls.exp", "Traffic class", (2, 1), (entry >> 9 & 7).to_string());
        layer.field_at("mpls.bottom", "Last label", (2, 1), (entry >> 8 & 1).to_string());
        layer.field_at("mpls.ttl", "Time to live", (1, 1), (entry & 0xFF).to_string());
    }
    layer.finish(entry.map_or_else(String::new, |entry| (entry >> 12).to_string()), found);
    match entry? >> 8 & 1 {
        0 => Some(Next::Type(0x8847)),
        _ => {
            reader.enter();
            Some(Next::Version)
        }
    }
}

/// A header of a Linux cooked capture.
fn cooked(reader: &mut Reader<'_>, found: &mut Vec<Layer>) -> Option<Next> {
    let mut layer = reader.layer("sll", "Linux cooked capture");
    layer.short("sll.pkttype", "Packet type");
    layer.short("sll.hatype", "Link type");
    let many = layer.short("sll.halen", "Address length");
    let address = layer.take::<8>();
    if let Some([a, b, c, d, e, f, ..]) = address {
        let text = if many == Some(6) { mac([a, b, c, d, e, f]) } else { String::new() };
        layer.field_at("sll.src.eth", "Source", (8, 6), text);
    }
    let kind = layer.take().map(u16::from_be_bytes);
    if let Some(kind) = kind {
        layer.field("sll.etype", "Type", 2, names::ethertype(kind));
    }
    layer.finish("", found);
    kind.map(Next::Type)
}

/// The same of version 2.
fn cooked2(reader: &mut Reader<'_>, found: &mut Vec<Layer>) -> Option<Next> {
    let mut layer = reader.layer("sll", "Linux cooked capture, version 2");
    let kind = layer.take().map(u16::from_be_bytes);
    if let Some(kind) = kind {
        layer.field("sll.etype", "Type", 2, names::ethertype(kind));
    }
    layer.short("sll.unused", "Reserved");
    layer.word("sll.ifindex", "Interface");
    layer.short("sll.hatype", "Link type");
    layer.byte("sll.pkttype", "Packet type");
    let many = layer.byte("sll.halen", "Address length");
    if let Some([a, b, c, d, e, f, ..]) = layer.take::<8>() {
        let text = if many == Some(6) { mac([a, b, c, d, e, f]) } else { String::new() };
        layer.field_at("sll.src.eth", "Source", (8, 6), text);
    }
    layer.finish("", found);
    kind.map(Next::Type)
}

/// The address family of a loopback frame.
fn loopback(big: bool, reader: &mut Reader<'_>, found: &mut Vec<Layer>) -> Option<Next> {
    let mut layer = reader.layer("null", "Loopback");
    let family =
        layer.take().map(|b| if big { u32::from_be_bytes(b) } else { u32::from_le_bytes(b) });
    if let Some(family) = family {
        layer.field("null.family", "Address family", 4, family.to_string());
    }
    layer.finish("", found);
    match family? {
        2 => Some(Next::Type(0x0800)),
        24 | 28 | 30 => Some(Next::Type(0x86DD)),
        _ => Some(Next::Payload),
    }
}
