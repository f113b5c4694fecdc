//! The five-tuples of packets, made up or read from captures, as columns of bytes in some order.

use std::path::Path;

use tapdex_bitmap::sample::Random;
use tapdex_engine::capture::{CaptureReader, decompress};
use tapdex_engine::packet::{self, Headers, LinkType};
use tapdex_engine::traffic::{Profile, Traffic};

/// Bytes of a five-tuple: addresses, ports, protocol.
pub const BYTES: usize = 13;

/// What the bytes are, in order.
pub const NAMES: [&str; BYTES] = [
    "source IP 1",
    "source IP 2",
    "source IP 3",
    "source IP 4",
    "destination IP 1",
    "destination IP 2",
    "destination IP 3",
    "destination IP 4",
    "source port 1",
    "source port 2",
    "destination port 1",
    "destination port 2",
    "protocol",
];

/// A five-tuple.
pub type Tuple = [u8; BYTES];

/// The order of the rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// As they came.
    Arrival,
    /// By a hash of the tuple, as in the MASC paper: packets of a flow together, flows anywhere.
    Hash,
    /// By the tuple itself.
    Flow,
}

/// The tuple of an IPv4 packet; none for others.
fn tuple_of(headers: &Headers) -> Option<Tuple> {
    if headers.eth_type != packet::ETHERTYPE_IPV4 {
        return None;
    }
    let mut tuple = [0; BYTES];
    let mut put = |at: usize, bytes: &[u8]| {
        // The first byte of an address is its highest.
        for (target, byte) in tuple[at..].iter_mut().zip(bytes.iter().rev()) {
            *target = *byte;
        }
    };
    put(0, &headers.ip_src.to_le_bytes());
    put(4, &headers.ip_dst.to_le_bytes());
    put(8, &headers.port_src.to_le_bytes());
    put(10, &headers.port_dst.to_le_bytes());
    put(12, &[headers.proto]);
    Some(tuple)
}

/// So many made-up tuples: IPv4 without tags and tunnels.
pub fn made_up(packets: usize, seed: u64) -> Vec<Tuple> {
    let profile = Profile {
        seed,
        // Some are not IPv4.
        packets: packets as u64 + packets as u64 / 8 + 1_000,
        mean_len: Some(64),
        ipv6_share: 0.0,
        vlan_share: 0.0,
        tunnel_share: 0.0,
        ..Profile::default()
    };
    let (mut traffic, mut headers) = (Traffic::new(&profile), Headers::default());
    let mut tuples = Vec::with_capacity(packets);
    while let Some(frame) = traffic.next() {
        packet::decode(LinkType::ETHERNET, false, frame.data, &mut headers);
        tuples.extend(tuple_of(&headers));
        if tuples.len() == packets {
            break;
        }
    }
    tuples
}

/// The tuples of a capture, which may be compressed.
pub fn of_capture(path: &Path) -> anyhow::Result<Vec<Tuple>> {
    let file = std::io::BufReader::new(std::fs::File::open(path)?);
    let mut reader = CaptureReader::open(decompress(file)?)?;
    let (mut headers, mut tuples) = (Headers::default(), Vec::new());
    while let Some(record) = reader.next()? {
        packet::decode(record.link, record.swapped, record.data, &mut headers);
        tuples.extend(tuple_of(&headers));
    }
    Ok(tuples)
}

/// Gives every address another one that looks random, the same each time: flows stay what they are,
/// and every byte of an address has all values.
pub fn spread_addresses(tuples: &mut [Tuple]) {
    for tuple in tuples {
        for at in [0, 4] {
            let mut address = [0; 8];
            address[..4].copy_from_slice(&tuple[at..at + 4]);
            let spread = Random::new(u64::from_le_bytes(address)).number().to_le_bytes();
            tuple[at..at + 4].copy_from_slice(&spread[..4]);
        }
    }
}

/// Sorts the tuples. Once sorted, they cannot be brought back to the order of their arrival.
pub fn sort(tuples: &mut [Tuple], order: Order) {
    match order {
        Order::Arrival => {}
        Order::Flow => tuples.sort_unstable(),
        // Equal tuples are alike, so that a sort need not be stable.
        Order::Hash => tuples.sort_by_cached_key(hash),
    }
}

/// A hash that spreads tuples evenly.
fn hash(tuple: &Tuple) -> u64 {
    tuple.chunks(8).fold(0, |hash, part| {
        let mut bytes = [0; 8];
        bytes[..part.len()].copy_from_slice(part);
        Random::new(hash ^ u64::from_le_bytes(bytes)).number()
    })
}

/// A byte of each tuple.
pub fn column(tuples: &[Tuple], byte: usize) -> Vec<u8> {
    tuples.iter().map(|tuple| tuple[byte]).collect()
}

/// How many flows there are in sorted tuples.
pub fn flows(sorted: &[Tuple]) -> usize {
    sorted.chunk_by(|a, b| a == b).count()
}
