//! The headers of a packet, field by field, with the bytes that each of them is.
//!
//! Names are those of Wireshark. There is no dissection beyond headers: what is behind them is
//! payload. Hostile bytes give fewer fields, never an error: a layer that ends before its header
//! does is `cut`, and has the fields that are there.
//!
//! ```
//! use tapdex_answers::layers::layers;
//! use tapdex_engine::packet::LinkType;
//!
//! let frame = [
//!     2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0, // Ethernet
//!     0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2, // IPv4
//!     0, 53, 0x80, 0, 0, 8, 0, 0, // UDP
//! ];
//! let found = layers(LinkType::ETHERNET, false, &frame);
//! let names: Vec<&str> = found.iter().map(|layer| &*layer.name).collect();
//! assert_eq!(names, ["eth", "ip", "udp"]);
//! let port = found[2].fields.iter().find(|field| field.name == "udp.srcport");
//! assert_eq!(port.map(|port| (&*port.value, port.offset, port.length)), Some(("53", 34, 2)));
//! ```

#![allow(clippy::big_endian_bytes, reason = "network headers are big-endian")]

mod arp;
mod icmp;
mod ip;
mod link;
mod names;
mod reader;
mod transport;
mod tunnel;

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use tapdex_engine::packet::LinkType;

use reader::Reader;

/// The most layers of a packet: tunnels can be stacked as long as a frame lasts.
const LAYERS_MAX: usize = 32;

/// A header of a packet, or what is behind all of them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Layer {
    /// Its name, as in Wireshark.
    pub name: Cow<'static, str>,
    /// The same for people.
    pub title: Cow<'static, str>,
    /// The most important of it, in a few words.
    pub summary: String,
    /// Where it starts in the frame.
    pub offset: u32,
    /// Its bytes.
    pub length: u32,
    /// The frame ends before the header does.
    #[serde(default, skip_serializing_if = "is_false")]
    pub cut: bool,
    /// Its fields in their order.
    pub fields: Vec<LayerField>,
}

/// A field of a header.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LayerField {
    /// Its name, as in Wireshark.
    pub name: Cow<'static, str>,
    /// The same for people.
    pub label: Cow<'static, str>,
    /// Its value, for people.
    pub value: String,
    /// Where it starts in the frame.
    pub offset: u32,
    /// Its bytes; those that it shares with others are counted for each.
    pub length: u32,
    /// A filter in Wireshark's language for packets that have this value, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub filter: Option<String>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
fn is_false(value: &bool) -> bool {
    !value
}

/// What comes next in a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Next {
    /// By an EtherType.
    Type(u16),
    /// By the number of an IP protocol.
    Protocol(u8),
    /// An Ethernet frame in a tunnel.
    Ethernet,
    /// A VXLAN header.
    Vxlan,
    /// A GTP-U header.
    Gtp,
    /// IP, told by its version.
    Version,
    /// Nothing that is looked into.
    Payload,
}

/// The layers of a frame; `swapped` as [`decode`](tapdex_engine::packet::decode()) takes it.
pub fn layers(link: LinkType, swapped: bool, frame: &[u8]) -> Vec<Layer> {
    let mut reader = Reader::new(frame);
    let mut found = Vec::new();
    let mut next = link::read(link, swapped, &mut reader, &mut found);
    while let Some(kind) = next {
        if reader.is_at_end() || found.len() >= LAYERS_MAX {
            break;
        }
        next = match kind {
            Next::Type(number) => by_type(number, &mut reader, &mut found),
            Next::Protocol(number) => by_protocol(number, &mut reader, &mut found),
            Next::Ethernet => Some(link::ethernet(&mut reader, &mut found)),
            Next::Vxlan => tunnel::vxlan(&mut reader, &mut found),
            Next::Gtp => tunnel::gtp(&mut reader, &mut found),
            Next::Version => ip::by_version(&mut reader, &mut found),
            Next::Payload => None,
        };
    }
    payload(&mut reader, &mut found);
    found
}

fn by_type(number: u16, reader: &mut Reader<'_>, found: &mut Vec<Layer>) -> Option<Next> {
    match number {
        0x0800 => ip::v4(reader, found),
        0x86DD => ip::v6(reader, found),
        0x0806 | 0x8035 => arp::read(number, reader, found),
        0x8100 | 0x88A8 | 0x9100 => link::tag(reader, found),
        0x8847 | 0x8848 => link::mpls(reader, found),
        0x6558 => Some(Next::Ethernet),
        _ => None,
    }
}

fn by_protocol(number: u8, reader: &mut Reader<'_>, found: &mut Vec<Layer>) -> Option<Next> {
    match number {
        1 => icmp::read(icmp::V4, reader, found),
        58 => icmp::read(icmp::V6, reader, found),
        6 => transport::tcp(reader, found),
        17 => transport::udp(reader, found),
        132 => transport::sctp(reader, found),
        4 => ip::v4(reader, found),
        41 => ip::v6(reader, found),
        47 => tunnel::gre(reader, found),
        0 | 43 | 44 | 60 => ip::extension(number, reader, found),
        _ => None,
    }
}

/// What no layer has looked into.
fn payload(reader: &mut Reader<'_>, found: &mut Vec<Layer>) {
    let (offset, rest) = (reader.offset(), reader.rest());
    if rest.is_empty() {
        return;
    }
    let length = u32::try_from(rest.len()).unwrap_or(u32::MAX);
    let field = LayerField {
        name: "data.data".into(),
        label: "Bytes".into(),
        // Payload is nobody's business who may see headers only.
        value: crate::counted(length.into(), "byte"),
        offset,
        length,
        filter: None,
    };
    found.push(Layer {
        name: "data".into(),
        title: "Payload".into(),
        summary: format!("{}, not decoded", crate::counted(length.into(), "byte")),
        offset,
        length,
        cut: false,
        fields: vec![field],
    });
}

#[cfg(test)]
mod tests;
