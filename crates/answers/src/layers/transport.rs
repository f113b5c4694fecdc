//! TCP, UDP and SCTP.

use super::reader::{Fields, Reader};
use super::{Layer, Next, names};

pub(super) fn tcp(reader: &mut Reader<'_>, found: &mut Vec<Layer>) -> Option<Next> {
    let mut layer = reader.layer("tcp", "TCP");
    let summary = tcp_fields(&mut layer).unwrap_or_default();
    layer.finish(summary, found);
    Some(Next::Payload)
}

fn tcp_fields(layer: &mut Fields<'_, '_>) -> Option<String> {
    let source = layer.short("tcp.srcport", "Source port")?;
    let target = layer.short("tcp.dstport", "Destination port")?;
    layer.word("tcp.seq_raw", "Sequence")?;
    layer.word("tcp.ack_raw", "Acknowledgment")?;
    let flags = u16::from_be_bytes(layer.take()?);
    let header = 4 * usize::from(flags >> 12);
    layer.field_at("tcp.hdr_len", "Header length", (2, 1), format!("{header} bytes"));
    let set = names::tcp_flags(flags & 0x1FF);
    layer.field("tcp.flags", "Flags", 2, format!("0x{:03x} ({set})", flags & 0xFFF));
    layer.short("tcp.window_size_value", "Window")?;
    layer.short_hex("tcp.checksum", "Checksum")?;
    layer.short("tcp.urgent_pointer", "Urgent pointer")?;
    if header > 20 {
        let bytes = layer.take_some(header - 20);
        layer.field("tcp.options", "Options", bytes.len(), options(&bytes));
    }
    Some(format!("{source} > {target} {set}"))
}

/// The names of options, in their order.
fn options(mut bytes: &[u8]) -> String {
    let mut names: Vec<String> = Vec::new();
    while let Some((&kind, rest)) = bytes.split_first() {
        let name = match kind {
            0 => break,
            1 => {
                names.push("NOP".into());
                bytes = rest;
                continue;
            }
            2 => "MSS",
            3 => "window scale",
            4 => "SACK permitted",
            5 => "SACK",
            8 => "timestamps",
            _ => "",
        };
        let length = usize::from(rest.first().copied().unwrap_or(0));
        let value = bytes.get(2..length).unwrap_or(&[]);
        names.push(match (kind, value) {
            (2, &[a, b]) => format!("MSS {}", u16::from_be_bytes([a, b])),
            (3, &[shift]) => format!("window scale {shift}"),
            _ if name.is_empty() => format!("option {kind}"),
            _ => name.to_owned(),
        });
        // A length below 2 would go on for ever.
        let Some(rest) = bytes.get(length..).filter(|_| length >= 2) else { break };
        bytes = rest;
    }
    names.join(", ")
}

pub(super) fn udp(reader: &mut Reader<'_>, found: &mut Vec<Layer>) -> Option<Next> {
    let mut layer = reader.layer("udp", "UDP");
    let ports = udp_fields(&mut layer);
    let summary = ports.map_or_else(String::new, |(from, to)| format!("{from} > {to}"));
    layer.finish(summary, found);
    match ports? {
        (_, 4789) => Some(Next::Vxlan),
        (2152, _) | (_, 2152) => Some(Next::Gtp),
        _ => Some(Next::Payload),
    }
}

fn udp_fields(layer: &mut Fields<'_, '_>) -> Option<(u16, u16)> {
    let source = layer.short("udp.srcport", "Source port")?;
    let target = layer.short("udp.dstport", "Destination port")?;
    let length = layer.short("udp.length", "Length")?;
    layer.short_hex("udp.checksum", "Checksum")?;
    if length >= 8 {
        layer.end_in(length.into());
    }
    Some((source, target))
}

pub(super) fn sctp(reader: &mut Reader<'_>, found: &mut Vec<Layer>) -> Option<Next> {
    let mut layer = reader.layer("sctp", "SCTP");
    let source = layer.short("sctp.srcport", "Source port");
    let target = layer.short("sctp.dstport", "Destination port");
    for (name, label) in [("sctp.verification_tag", "Tag"), ("sctp.checksum", "Checksum")] {
        if let Some(value) = layer.take().map(u32::from_be_bytes) {
            layer.field(name, label, 4, format!("0x{value:08x}"));
        }
    }
    let summary = match (source, target) {
        (Some(source), Some(target)) => format!("{source} > {target}"),
        _ => String::new(),
    };
    layer.finish(summary, found);
    Some(Next::Payload)
}
