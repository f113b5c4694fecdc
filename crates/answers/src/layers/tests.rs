//! Fields beside those of tshark, and bytes that lie.

use std::collections::BTreeMap;
use std::process::{Command, Stdio};

use tapdex_engine::capture::{CaptureWriter, FileFormat, Interface};
use tapdex_engine::packet::LinkType;
use tapdex_engine::traffic::{Profile, Traffic};

use super::layers;

fn frames(packets: u64) -> Vec<Vec<u8>> {
    let profile = Profile { packets, tunnel_share: 0.05, other_share: 0.2, ..Profile::default() };
    let mut traffic = Traffic::new(&profile);
    let mut frames = Vec::new();
    while let Some(packet) = traffic.next() {
        frames.push(packet.data.to_vec());
    }
    frames
}

/// Fields that tshark has at the same bytes, though it may write their values differently.
const COMPARED: [&str; 34] = [
    "eth.dst",
    "eth.src",
    "eth.type",
    "vlan.id",
    "ip.len",
    "ip.id",
    "ip.ttl",
    "ip.proto",
    "ip.checksum",
    "ip.src",
    "ip.dst",
    "ipv6.plen",
    "ipv6.nxt",
    "ipv6.hlim",
    "ipv6.src",
    "ipv6.dst",
    "tcp.srcport",
    "tcp.dstport",
    "tcp.seq_raw",
    "tcp.ack_raw",
    "tcp.flags",
    "tcp.window_size_value",
    "tcp.checksum",
    "udp.srcport",
    "udp.dstport",
    "udp.length",
    "udp.checksum",
    "icmp.type",
    "icmp.code",
    "icmpv6.type",
    "arp.opcode",
    "arp.src.proto_ipv4",
    "vxlan.vni",
    "gre.key",
];

/// An attribute of an element on a line of PDML.
fn attribute<'a>(line: &'a str, name: &str) -> Option<&'a str> {
    let (_, rest) = line.split_once(&format!(" {name}=\""))?;
    rest.split('"').next()
}

#[test]
fn fields_are_where_tshark_finds_them() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.pcap");
    let frames = frames(4_000);
    let file = std::fs::File::create(&path).unwrap();
    let ethernet = Interface::new(1, 1_000_000_000);
    let mut writer = CaptureWriter::new(file, FileFormat::Pcap, &[ethernet], "").unwrap();
    for (n, frame) in (0..).zip(&frames) {
        writer.packet(0, n, u32::try_from(frame.len()).unwrap(), frame).unwrap();
    }
    drop(writer.finish().unwrap());
    let mut command = Command::new("tshark");
    let command = command
        .args(["-n", "-o", "ip.defragment:FALSE", "-T", "pdml", "-r"])
        .arg(&path)
        .stdin(Stdio::null());
    let Ok(output) = command.output() else {
        println!("tshark is not installed: fields are not compared");
        return;
    };
    let text = String::from_utf8_lossy(&output.stdout);
    let mut compared: BTreeMap<&str, usize> = BTreeMap::new();
    for (frame, packet) in frames.iter().zip(text.split("<packet>").skip(1)) {
        let found = layers(LinkType::ETHERNET, false, frame);
        let has = |name: &str, at: &str, length: &str| {
            found.iter().flat_map(|layer| &layer.fields).any(|field| {
                (&*field.name, field.offset.to_string(), field.length.to_string())
                    == (name, at.to_owned(), length.to_owned())
            })
        };
        // What ICMP errors quote is payload here.
        let packet = packet.split("<proto name=\"icmp").next().unwrap_or_default();
        for line in packet.lines().filter(|line| line.trim_start().starts_with("<field ")) {
            let Some(name) = attribute(line, "name") else { continue };
            let Some(name) = COMPARED.into_iter().find(|&known| known == name) else { continue };
            let (Some(at), Some(length)) = (attribute(line, "pos"), attribute(line, "size")) else {
                continue;
            };
            // Two of them are parts of the bytes that tshark gives for them.
            let length = if name == "vxlan.vni" { "3" } else { length };
            assert!(has(name, at, length), "{name} at {at}, {length} bytes: {found:#?}");
            *compared.entry(name).or_default() += 1;
        }
    }
    assert!(compared.len() > 20, "{compared:?}");
}

#[test]
fn bytes_that_lie_or_end_early_are_no_error() {
    for frame in frames(400) {
        for end in 0..frame.len().min(120) {
            let found = layers(LinkType::ETHERNET, false, &frame[..end]);
            assert!(found.iter().all(|layer| (layer.offset + layer.length) as usize <= end));
        }
        let mut state = 1_u32;
        let mut broken = frame.clone();
        for byte in &mut broken {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            if state >> 28 == 0 {
                *byte = (state >> 8).to_le_bytes()[0];
            }
        }
        for link in [0, 1, 101, 108, 113, 228, 229, 276, 105] {
            for layer in layers(LinkType(link), false, &broken) {
                for field in layer.fields {
                    assert!((field.offset + field.length) as usize <= broken.len());
                }
            }
        }
    }
}

#[test]
fn fields_of_outer_headers_are_filters() {
    let frame = frames(50).into_iter().find(|f| f[12..14] == [8, 0] && f[23] == 6).unwrap();
    let found = layers(LinkType::ETHERNET, false, &frame);
    let filters: Vec<&str> =
        found.iter().flat_map(|l| &l.fields).filter_map(|f| f.filter.as_deref()).collect();
    assert!(filters.iter().any(|filter| filter.starts_with("ip.src == ")), "{filters:?}");
    for filter in filters {
        tapdex_engine::query::filter::Filter::parse(filter, 0).unwrap();
    }
}
