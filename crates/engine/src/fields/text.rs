//! Values as people write them, and the table of names.

use std::fmt::{Display, Formatter};
use std::net::{Ipv4Addr, Ipv6Addr};

use super::{FieldKind, NAMES, Name, length_class_start};
use crate::packet::{self, Encap, Fragment, Tunnel, protocol, tcp_flags};

/// Up to this value an EtherType is not a type but the length of an 802.3 frame.
pub const LENGTH_802_3_MAX: u128 = 1_500;

/// A value, written as people write one of its kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Shown(pub FieldKind, pub u128);

impl Display for Shown {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        let Self(kind, value) = *self;
        let named = |f: &mut Formatter<'_>, name: Option<&str>| match name {
            Some(name) => f.write_str(name),
            None => write!(f, "{value}"),
        };
        match kind {
            FieldKind::Ipv4 => write!(f, "{}", Ipv4Addr::from(u32::try_from(value).unwrap_or(0))),
            FieldKind::Ipv6 => write!(f, "{}", Ipv6Addr::from(value)),
            FieldKind::Mac => {
                let [f0, f1, f2, f3, f4, f5, ..] = value.to_le_bytes();
                write!(f, "{f5:02x}:{f4:02x}:{f3:02x}:{f2:02x}:{f1:02x}:{f0:02x}")
            }
            FieldKind::Number(_) | FieldKind::Interface => write!(f, "{value}"),
            FieldKind::Protocol => match u8::try_from(value).ok().and_then(protocol::name) {
                Some(name) => f.write_str(name),
                None => write!(f, "ip-proto-{value}"),
            },
            FieldKind::EtherType => {
                match u16::try_from(value).ok().and_then(packet::ethertype_name) {
                    Some(name) => f.write_str(name),
                    None if value <= LENGTH_802_3_MAX => f.write_str("802.3"),
                    None => write!(f, "0x{value:04x}"),
                }
            }
            FieldKind::Encap => named(f, Encap::of_number(value).map(Encap::name)),
            FieldKind::Fragment => named(f, Fragment::of_number(value).map(Fragment::name)),
            FieldKind::Tunnel => named(f, Tunnel::of_number(value).map(Tunnel::name)),
            FieldKind::Flags => {
                let set = tcp_flags(u8::try_from(value & 0xFF).unwrap_or(0));
                f.write_str(if set.is_empty() { "none" } else { &set })
            }
            FieldKind::LengthClass => {
                let class = u8::try_from(value).unwrap_or(u8::MAX);
                let next = length_class_start(class.saturating_add(1));
                write!(f, "{}-{}", length_class_start(class), next.saturating_sub(1))
            }
        }
    }
}

/// The table of all names, in Markdown: that of `docs/filters.md`, line by line. Names that follow
/// each other and have the same value in the same packets share a line.
pub fn table() -> String {
    let mut text = String::from(
        "| in display filters | for `top` | in pcap-filter | value | of which packets |\n\
         |---|---|---|---|---|\n",
    );
    let packets = |name: &Name| {
        let mut texts: Vec<&str> = name.parts.iter().map(|part| part.presence.text).collect();
        texts.dedup();
        if texts.is_empty() { "all".to_owned() } else { texts.join("; ") }
    };
    let is_alike =
        |a: &Name, b: &Name| (packets(a), a.about) == (packets(b), b.about) && !a.about.is_empty();
    for group in NAMES.chunk_by(is_alike) {
        let Some(first) = group.first() else { continue };
        let quoted = |names: Vec<&str>| {
            names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
        };
        let wireshark = quoted(group.iter().filter_map(|name| name.wireshark).collect());
        let top = quoted(group.iter().flat_map(|name| name.top).copied().collect());
        let mut pcap: Vec<&str> = group.iter().map(|name| name.pcap).collect();
        pcap.retain(|words| !words.is_empty());
        pcap.dedup();
        let about = if first.about.is_empty() { "whether it is there" } else { first.about };
        let cells = [&wireshark, &top, &pcap.join(", "), about, &packets(first)];
        text.push('|');
        for cell in cells {
            text.push_str(&format!(" {cell} |").replace("  |", " |"));
        }
        text.push('\n');
    }
    text
}
