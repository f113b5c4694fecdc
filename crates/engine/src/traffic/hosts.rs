//! The hosts: clients of some networks, servers that differ in popularity, and their addresses.
//!
//! Addresses are private or set aside for documentation and benchmarks, so none belongs to anybody.
#![allow(clippy::big_endian_bytes, reason = "network headers are big-endian")]

use super::frame::{Mac, low16};
use tapdex_bitmap::sample::Random;

/// The first 16 bits of the clients' addresses.
const CLIENT_NETS: [u32; 6] = [0x0A01, 0x0A02, 0x0A07, 0x0A14, 0xC0A8, 0xAC14];
const CLIENT_SUBNETS: u32 = 63;
/// Ranks of servers have at most this many bits: there are 4,095 servers.
const SERVER_BITS: u32 = 12;
/// Servers in 203.0.113.0/24: the most popular ones.
const SERVERS_NEAR: u32 = 64;
const DOC6: u128 = 0x2001_0db8 << 96;

/// The way out of the network.
pub(super) const ROUTER: Mac = [0x02, 0, 0, 0, 0, 1];

/// TCP ports of servers, in order of popularity.
const PORTS: [u16; 15] =
    [443, 80, 8080, 22, 993, 8443, 25, 9000, 8000, 8081, 587, 9090, 4443, 7000, 8888];

/// One end of a conversation.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Host {
    pub(super) address: u128,
    pub(super) mac: Mac,
    pub(super) ttl: u8,
}

/// A number below `2^bits - 1`, number n with a chance in proportion to 1 / (n + 1).
pub(super) fn zipf(bits: u32, random: &mut Random) -> u32 {
    // Every octave has the same chance, and within it every number.
    let octave = 1 << random.below(bits);
    octave - 1 + random.below(octave)
}

/// Mixes the bits of a number: the same for the same number.
pub(super) fn mix(number: u32) -> u64 {
    Random::new(number.into()).number()
}

fn station(v4: u32) -> Mac {
    let [a, b, c, d] = v4.to_be_bytes();
    [0x02, 0x10, a, b, c, d]
}

/// A client; its network is more often a popular one.
pub(super) fn client(v6: bool, random: &mut Random) -> Host {
    let net = zipf(CLIENT_SUBNETS.count_ones(), random);
    let high = CLIENT_NETS[net as usize % CLIENT_NETS.len()];
    let v4 = high << 16 | (4 * net + 1) << 8 | (1 + random.below(254));
    let address = if v6 {
        let id = u128::from(v4 >> 16) << 40 | 0xFF_FE00_0000 | u128::from(v4 & 0xFFFF);
        DOC6 | u128::from(0x1000 + net) << 80 | id
    } else {
        u128::from(v4)
    };
    Host { address, mac: station(v4), ttl: 64 }
}

/// A server of that rank.
pub(super) fn server(v6: bool, rank: u32) -> Host {
    let mixed = mix(rank);
    let (v4, mac) = if rank < SERVERS_NEAR {
        (0xCB00_7100 | (1 + rank), ROUTER)
    } else if rank.is_multiple_of(4) {
        let v4 = 0xAC10_0000 | rank << 4 | 5;
        (v4, station(v4))
    } else {
        (0xC612_0000 | u32::from(low16(mixed)) | (rank & 1) << 16, ROUTER)
    };
    let address =
        if v6 { DOC6 | u128::from(rank >> 4) << 64 | u128::from(1 + rank) } else { u128::from(v4) };
    let hops = u8::try_from(mixed >> 32 & 15).unwrap_or(0);
    Host { address, mac, ttl: 64 - if mac == ROUTER { hops } else { 0 } }
}

/// A rank of a server, and the TCP port on which that server mostly listens.
pub(super) fn popular(random: &mut Random) -> (u32, u16) {
    let rank = zipf(SERVER_BITS, random);
    // A server has one port; one in eight conversations is with another.
    let mut own = Random::new(if random.below(8) == 0 { random.number() } else { mix(rank) });
    (rank, PORTS[zipf(PORTS.len().count_ones(), &mut own) as usize])
}

/// Any address of 198.18.0.0/15.
pub(super) fn anybody(random: &mut Random) -> Host {
    let v4 = 0xC612_0000 | random.below(1 << 17);
    Host { address: v4.into(), mac: ROUTER, ttl: 64 - low8_below(random, 24) }
}

fn low8_below(random: &mut Random, end: u32) -> u8 {
    u8::try_from(random.below(end)).unwrap_or(0)
}

/// A gateway of tunnels.
pub(super) fn gateway(number: u32) -> Host {
    let v4 = 0xAC1F_0001 | number << 8;
    Host { address: v4.into(), mac: station(v4), ttl: 255 }
}
