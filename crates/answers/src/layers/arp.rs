//! ARP and RARP.

use std::net::Ipv4Addr;

use super::reader::Reader;
use super::{Layer, Next, names};

pub(super) fn read(kind: u16, reader: &mut Reader<'_>, found: &mut Vec<Layer>) -> Option<Next> {
    let title = if kind == 0x0806 { "ARP" } else { "RARP" };
    let mut layer = reader.layer("arp", title);
    layer.short("arp.hw.type", "Hardware type");
    if let Some(kind) = layer.take().map(u16::from_be_bytes) {
        layer.field("arp.proto.type", "Protocol type", 2, names::ethertype(kind));
    }
    let hardware = layer.byte("arp.hw.size", "Hardware size");
    let protocol = layer.byte("arp.proto.size", "Protocol size");
    let operation = layer.take().map(u16::from_be_bytes);
    if let Some(operation) = operation {
        let name = match operation {
            1 => " (request)",
            2 => " (reply)",
            _ => "",
        };
        layer.field("arp.opcode", "Operation", 2, format!("{operation}{name}"));
    }
    let mut ends = Vec::new();
    if (hardware, protocol) == (Some(6), Some(4)) {
        for (mac, ip, label) in [
            ("arp.src.hw_mac", "arp.src.proto_ipv4", ["Sender MAC", "Sender IP"]),
            ("arp.dst.hw_mac", "arp.dst.proto_ipv4", ["Target MAC", "Target IP"]),
        ] {
            layer.mac(mac, label[0]);
            if let Some(address) = layer.take::<4>() {
                let address = Ipv4Addr::from(address).to_string();
                layer.field(ip, label[1], 4, address.clone());
                ends.push(address);
            }
        }
    }
    let summary = match (operation, ends.as_slice()) {
        (Some(1), [from, to]) => format!("who has {to}? tell {from}"),
        (Some(2), [from, _]) => format!("{from} is here"),
        _ => String::new(),
    };
    layer.finish(summary, found);
    // What follows is padding.
    reader.end_in(0);
    None
}
