//! The five-tuples of packets, made up or read from captures, as columns of bytes in some order.

use std::path::{Path, PathBuf};

use anyhow::Context;
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

/// Where tuples come from.
#[derive(Debug, Clone)]
pub enum TupleSource {
    /// [`calibrated`].
    Calibrated,
    /// [`made_up`].
    MadeUp,
    /// [`made_up`], then [`spread_addresses`].
    Spread,
    /// A capture.
    Capture(PathBuf),
}

/// All sources: those that are made up, and the captures of a folder, or of the one that the
/// variable `TAPDEX_TRACES` names.
pub fn sources(traces: Option<&Path>) -> anyhow::Result<Vec<TupleSource>> {
    let traces =
        traces.map(Path::to_owned).or_else(|| std::env::var_os("TAPDEX_TRACES").map(Into::into));
    let mut captures: Vec<PathBuf> = Vec::new();
    if let Some(folder) = traces.map(|folder| folder.join("large")) {
        let entries = folder.read_dir().with_context(|| format!("no captures: {folder:?}"))?;
        captures.extend(entries.flatten().map(|entry| entry.path()));
        captures.retain(|path| {
            let name = path.to_string_lossy();
            name.ends_with(".pcap") || name.ends_with(".pcap.zst")
        });
        captures.sort();
    }
    let made = [TupleSource::Calibrated, TupleSource::MadeUp, TupleSource::Spread];
    Ok(made.into_iter().chain(captures.into_iter().map(TupleSource::Capture)).collect())
}

/// How a command line says that there are captures, without saying where.
pub fn traces_option(sources: &[TupleSource]) -> &'static str {
    let is_capture = |source: &TupleSource| matches!(source, TupleSource::Capture(_));
    if sources.iter().any(is_capture) { " --traces DIR" } else { "" }
}

impl TupleSource {
    /// What the tables call it.
    pub fn name(&self) -> String {
        match self {
            Self::Calibrated => "calibrated".to_owned(),
            Self::MadeUp => "made up".to_owned(),
            Self::Spread => "made up, addresses spread".to_owned(),
            Self::Capture(path) => {
                let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
                name.split(".pcap").next().unwrap_or_default().to_owned()
            }
        }
    }

    /// What files are named after it.
    pub fn slug(&self) -> String {
        let name = self.name().replace(", ", "-").replace([' ', '.', '_'], "-");
        name.to_ascii_lowercase()
    }

    /// Whether the tuples come as packets do, so that there is an order of arrival.
    pub fn has_arrival(&self) -> bool {
        !matches!(self, Self::Calibrated)
    }

    /// The tuples: so many if they are made up.
    pub fn tuples(&self, packets: usize, seed: u64) -> anyhow::Result<Vec<Tuple>> {
        let tuples = match self {
            Self::Calibrated => calibrated(packets, seed),
            Self::MadeUp => made_up(packets, seed),
            Self::Spread => {
                let mut tuples = made_up(packets, seed);
                spread_addresses(&mut tuples);
                tuples
            }
            Self::Capture(path) => of_capture(path)?,
        };
        anyhow::ensure!(!tuples.is_empty(), "{}: no IPv4 packets", self.name());
        Ok(tuples)
    }
}

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

/// Of the flows of [`calibrated`], those with a single packet.
const LONE: f64 = 0.64;
/// The others have sizes of a Pareto distribution: its exponent, and where it starts and is cut.
const TAIL: (f64, f64, f64) = (0.7, 2.0, 4_075.0);

/// So many tuples of flows whose sizes are calibrated to the trace of the MASC paper, in no order.
///
/// The trace itself cannot be had, but its sizes are published. Flows here have one packet in 64 of
/// 100 cases and otherwise so many that in hash order, in windows, with zeros to the end, a byte
/// that has all values alike takes as many words as table 2.1 says for byte 4 of the source, in
/// PLWAH and in MASC: two figures for two numbers. Everything else follows: 15.5 packets a flow,
/// that is 0.88 million flows in 13,581,810 packets.
///
/// Addresses have all values alike in each byte, and hardly one comes in two flows: the worst case.
/// Of four flows one has the port of a service on one side, so that ports take about what table 2.3
/// says; other ports are from 1,024 up. Of 100 flows 78 are TCP, 20 UDP, two ICMP without ports.
pub fn calibrated(packets: usize, seed: u64) -> Vec<Tuple> {
    calibrated_but(LONE, packets, seed)
}

/// The next number in 0..1, of 53 bits, since sizes of flows have a long tail.
pub fn unit(random: &mut Random) -> f64 {
    (random.number() >> 11) as f64 / (1_u64 << 53) as f64
}

/// As [`calibrated`], with another share of flows that have a single packet.
pub fn calibrated_but(lone: f64, packets: usize, seed: u64) -> Vec<Tuple> {
    const SERVICES: [u16; 8] = [443, 80, 443, 80, 53, 443, 25, 22];
    let mut random = Random::new(seed);
    let mut tuples = Vec::with_capacity(packets);
    while tuples.len() < packets {
        let size = if unit(&mut random) < lone {
            1
        } else {
            let (exponent, from, to) = TAIL;
            let cut = (from / to).powf(exponent);
            (from / (1.0 - unit(&mut random) * (1.0 - cut)).powf(1.0 / exponent)) as usize
        };
        let mut tuple = [0; BYTES];
        tuple[..8].copy_from_slice(&random.number().to_le_bytes());
        let number = random.number();
        let service = SERVICES[(number % 8) as usize];
        let other = 1_024 + ((number >> 8) % (65_536 - 1_024)) as u16;
        let another = 1_024 + ((number >> 24) % (65_536 - 1_024)) as u16;
        let [from, to] = match number >> 61 {
            0 => [service, other],
            1 => [other, service],
            _ => [another, other],
        };
        let [low, high] = from.to_le_bytes();
        tuple[8..10].copy_from_slice(&[high, low]);
        let [low, high] = to.to_le_bytes();
        tuple[10..12].copy_from_slice(&[high, low]);
        tuple[12] = match (number >> 40) % 100 {
            0..78 => 6,
            78..98 => 17,
            _ => 1,
        };
        if tuple[12] == 1 {
            tuple[8..12].fill(0);
        }
        let left = packets - tuples.len();
        tuples.extend(std::iter::repeat_n(tuple, size.min(left)));
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

/// Gives every address one of 2^`bits` hosts instead, the same each time: flows stay apart by their
/// ports, hosts come back.
pub fn share_hosts(tuples: &mut [Tuple], bits: u32) {
    for tuple in tuples {
        for at in [0, 4] {
            let mut address = [0; 8];
            address[..4].copy_from_slice(&tuple[at..at + 4]);
            let host = Random::new(u64::from_le_bytes(address)).number() >> (64 - bits);
            let address = Random::new(host).number().to_le_bytes();
            tuple[at..at + 4].copy_from_slice(&address[..4]);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calibrated_flows_have_the_sizes_that_are_said() {
        let mut tuples = calibrated(2_000_000, 1);
        assert_eq!(tuples.len(), 2_000_000);
        assert_eq!(tuples[..1_000], calibrated(1_000, 1)[..]);
        sort(&mut tuples, Order::Flow);
        let mean = tuples.len() as f64 / flows(&tuples) as f64;
        assert!((mean - 15.4).abs() < 0.5, "{mean}");
        let lone = tuples.chunk_by(|a, b| a == b).filter(|flow| flow.len() == 1).count();
        let share = lone as f64 / flows(&tuples) as f64;
        assert!((share - LONE).abs() < 0.01, "{share}");
    }

    #[test]
    fn hosts_are_as_many_as_asked_for() {
        let mut tuples = calibrated(200_000, 2);
        share_hosts(&mut tuples, 6);
        let mut hosts: Vec<&[u8]> = tuples.iter().map(|tuple| &tuple[..4]).collect();
        hosts.sort_unstable();
        hosts.dedup();
        assert_eq!(hosts.len(), 64);
    }

    #[test]
    fn flows_stay_together_in_hash_order() {
        let mut tuples = calibrated(100_000, 3);
        sort(&mut tuples, Order::Flow);
        let expected = flows(&tuples);
        sort(&mut tuples, Order::Hash);
        assert_eq!(flows(&tuples), expected);
    }
}
