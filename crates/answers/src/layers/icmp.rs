//! ICMP and ICMPv6.

use super::reader::Reader;
use super::{Layer, Next};

/// Layer, title, and names of the fields.
pub(super) type Names = [&'static str; 7];

pub(super) const V4: Names =
    ["icmp", "ICMP", "icmp.type", "icmp.code", "icmp.checksum", "icmp.ident", "icmp.seq"];
pub(super) const V6: Names = [
    "icmpv6",
    "ICMPv6",
    "icmpv6.type",
    "icmpv6.code",
    "icmpv6.checksum",
    "icmpv6.echo.identifier",
    "icmpv6.echo.sequence_number",
];

pub(super) fn read(names: Names, reader: &mut Reader<'_>, found: &mut Vec<Layer>) -> Option<Next> {
    let [name, title, kind, code, checksum, id, sequence] = names;
    let mut layer = reader.layer(name, title);
    let number = layer.byte(kind, "Type");
    layer.byte(code, "Code");
    layer.short_hex(checksum, "Checksum");
    let is_echo = match name {
        "icmp" => matches!(number, Some(0 | 8)),
        _ => matches!(number, Some(128 | 129)),
    };
    if is_echo {
        layer.short(id, "Identifier");
        layer.short(sequence, "Sequence");
    }
    let summary = match (name, number) {
        ("icmp", Some(0)) | ("icmpv6", Some(129)) => "echo reply".to_owned(),
        ("icmp", Some(8)) | ("icmpv6", Some(128)) => "echo request".to_owned(),
        (_, Some(number)) => format!("type {number}"),
        _ => String::new(),
    };
    layer.finish(summary, found);
    Some(Next::Payload)
}
