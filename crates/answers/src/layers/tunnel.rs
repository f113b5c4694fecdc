//! GRE, VXLAN and GTP-U, and what is in them.

use super::reader::{Fields, Reader};
use super::{Layer, Next, names};

pub(super) fn gre(reader: &mut Reader<'_>, found: &mut Vec<Layer>) -> Option<Next> {
    let mut layer = reader.layer("gre", "GRE");
    let next = gre_fields(&mut layer);
    layer.enter();
    layer.finish("", found);
    next.flatten()
}

fn gre_fields(layer: &mut Fields<'_, '_>) -> Option<Option<Next>> {
    let flags = layer.short_hex("gre.flags_and_version", "Flags, version")?;
    let kind = u16::from_be_bytes(layer.take()?);
    layer.field("gre.proto", "Type", 2, names::ethertype(kind));
    if flags & 0x8000 != 0 {
        layer.short_hex("gre.checksum", "Checksum")?;
        layer.short("gre.offset", "Offset")?;
    }
    if flags & 0x2000 != 0 {
        layer.word("gre.key", "Key")?;
    }
    if flags & 0x1000 != 0 {
        layer.word("gre.sequence_number", "Sequence")?;
    }
    // Version 1 is for PPP, and routing was never used.
    Some((flags & 0x4007 == 0).then_some(Next::Type(kind)))
}

pub(super) fn vxlan(reader: &mut Reader<'_>, found: &mut Vec<Layer>) -> Option<Next> {
    let mut layer = reader.layer("vxlan", "VXLAN");
    layer.short_hex("vxlan.flags", "Flags");
    layer.short("vxlan.gbp", "Policy");
    let id = layer.take().map(u32::from_be_bytes);
    if let Some(id) = id {
        layer.field_at("vxlan.vni", "Network", (4, 3), (id >> 8).to_string());
    }
    layer.enter();
    layer.finish(id.map_or_else(String::new, |id| (id >> 8).to_string()), found);
    id.map(|_| Next::Ethernet)
}

pub(super) fn gtp(reader: &mut Reader<'_>, found: &mut Vec<Layer>) -> Option<Next> {
    let mut layer = reader.layer("gtp", "GTP-U");
    let next = gtp_fields(&mut layer);
    layer.enter();
    layer.finish("", found);
    next
}

fn gtp_fields(layer: &mut Fields<'_, '_>) -> Option<Next> {
    let [flags] = layer.take()?;
    layer.field("gtp.flags", "Flags", 1, format!("0x{flags:02x}"));
    let kind = layer.byte("gtp.message", "Message")?;
    layer.short("gtp.length", "Length")?;
    let id = u32::from_be_bytes(layer.take()?);
    layer.field("gtp.teid", "Tunnel", 4, format!("0x{id:08x}"));
    if flags & 7 != 0 {
        layer.short("gtp.seq_number", "Sequence")?;
        layer.byte("gtp.npdu_number", "N-PDU")?;
        let mut next = layer.byte("gtp.next", "Next extension")?;
        while next != 0 {
            let [length] = layer.take()?;
            // A length of 0 would go on for ever.
            let length = 4 * usize::from(length).max(1);
            let rest = layer.take_some(length - 1);
            layer.field("gtp.ext_hdr", "Extension", rest.len(), format!("{next}"));
            next = *rest.get(length - 2)?;
        }
    }
    // Version 1, and a message that has a packet in it.
    (flags & 0xF0 == 0x30 && kind == 255).then_some(Next::Version)
}
