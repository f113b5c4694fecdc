//! An hour of traffic with something in it to be found: a scan, a flood and an exfiltration.
//!
//! | minutes | what | from | to |
//! |---|---|---|---|
//! | 21 to 24 | a scan: SYNs, most refused | 10.1.66.6 | hosts of 10.1.0.0/16 |
//! | 40 to 44 | a flood: short UDP | everywhere | 10.1.0.2, port 53 |
//! | 50 to 58 | an exfiltration: long TCP | 10.1.4.23 | 203.0.113.48, port 8443 |

#![allow(clippy::big_endian_bytes, reason = "network headers are big-endian")]

use std::io::{BufWriter, Write};
use std::net::Ipv4Addr;

use anyhow::Context;
use tapdex_engine::capture::{CaptureWriter, FileFormat, Interface};
use tapdex_engine::traffic::{Profile, Traffic};

use super::super::CANNOT_WRITE;
use super::super::progress::Progress;

const MINUTE: u64 = 60_000_000_000;
const HOUR_SECONDS: u64 = 3600;

const SCANNER: Ipv4Addr = Ipv4Addr::new(10, 1, 66, 6);
const FLOODED: Ipv4Addr = Ipv4Addr::new(10, 1, 0, 2);
const LEAK: Ipv4Addr = Ipv4Addr::new(10, 1, 4, 23);
const TAKER: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 48);

/// Flags of TCP.
const SYN: u8 = 0x02;
const RST_ACK: u8 = 0x14;
const ACK: u8 = 0x10;
const PSH_ACK: u8 = 0x18;

/// A part of the story: packets at equal distances between two minutes.
struct Episode {
    from: u64,
    to: u64,
    packets: u64,
    frame: Make,
}

/// Makes the packet of an episode with this number.
type Make = fn(u64) -> Frame;

/// What is sent. One in this many of all packets belongs to each episode.
const EPISODES: [(u64, u64, u64, Make); 3] =
    [(21, 24, 25, scan), (40, 44, 16, flood), (50, 58, 40, leak)];

/// A frame that is made up.
struct Frame {
    ends: [(Ipv4Addr, u16); 2],
    /// The flags of TCP, a sequence number and an acknowledgment; nothing for UDP.
    tcp: Option<(u8, u32, u32)>,
    payload: u16,
}

/// Numbers that look random, the same every time.
fn mixed(n: u64) -> u64 {
    let mut x = n.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    x ^ (x >> 27)
}

/// The low bits of a number.
fn low(n: u64, bits: u32) -> u16 {
    u16::try_from(n & ((1 << bits) - 1)).unwrap_or(0)
}

/// One host asks many for many ports; every third packet is an answer.
fn scan(n: u64) -> Frame {
    const PORTS: [u16; 8] = [22, 23, 80, 139, 443, 445, 3389, 8080];
    let probe = n * 2 / 3;
    let [a, b, ..] = probe.to_le_bytes();
    let target = (Ipv4Addr::new(10, 1, b, a), PORTS[usize::from(low(mixed(probe), 3))]);
    let scanner = (SCANNER, 40_000 + low(probe, 14));
    match n % 3 {
        2 => Frame { ends: [target, scanner], tcp: Some((RST_ACK, 0, 1)), payload: 0 },
        _ => Frame { ends: [scanner, target], tcp: Some((SYN, 7, 0)), payload: 0 },
    }
}

/// Everybody sends to one.
fn flood(n: u64) -> Frame {
    let [a, b, c, ..] = mixed(n).to_le_bytes();
    let source = (Ipv4Addr::new(198, 18 + (a & 1), b, c), 1024 + low(mixed(n) >> 24, 15));
    Frame { ends: [source, (FLOODED, 53)], tcp: None, payload: 18 + low(mixed(n) >> 40, 4) }
}

/// One connection carries much out; every fourth packet confirms it.
fn leak(n: u64) -> Frame {
    let (inside, outside) = ((LEAK, 51_544), (TAKER, 8443));
    let bytes = [n.to_le_bytes()[0], n.to_le_bytes()[1], n.to_le_bytes()[2], 0];
    let at = u32::from_le_bytes(bytes).wrapping_mul(1_448);
    match n {
        0 => Frame { ends: [inside, outside], tcp: Some((SYN, 0, 0)), payload: 0 },
        n if n % 4 == 3 => Frame { ends: [outside, inside], tcp: Some((ACK, 1, at)), payload: 0 },
        _ => Frame { ends: [inside, outside], tcp: Some((PSH_ACK, at, 1)), payload: 1_448 },
    }
}

/// Adds 16-bit words, as checksums of the internet do.
fn sum(bytes: &[u8]) -> u32 {
    let word = |pair: &[u8]| {
        u32::from(pair.first().copied().unwrap_or(0)) << 8
            | u32::from(pair.get(1).copied().unwrap_or(0))
    };
    bytes.chunks(2).map(word).sum()
}

fn checksum(mut sum: u32) -> [u8; 2] {
    while sum > 0xFFFF {
        sum = (sum & 0xFFFF) + (sum >> 16);
    }
    let [_, _, a, b] = (!sum).to_be_bytes();
    [a, b]
}

impl Frame {
    /// Writes the frame into `to`, with right checksums.
    fn write(&self, n: u64, to: &mut Vec<u8>) {
        let [(source, source_port), (target, target_port)] = self.ends;
        let mut transport = Vec::with_capacity(1_500);
        transport.extend(source_port.to_be_bytes());
        transport.extend(target_port.to_be_bytes());
        let (protocol, place) = match self.tcp {
            Some((flags, sequence, acknowledged)) => {
                transport.extend(sequence.to_be_bytes());
                transport.extend(acknowledged.to_be_bytes());
                transport.extend([0x50, flags, 0xFA, 0xF0, 0, 0, 0, 0]);
                (6, 16)
            }
            None => {
                transport.extend((8 + self.payload).to_be_bytes());
                transport.extend([0, 0]);
                (17, 6)
            }
        };
        let made_up = (0..u64::from(self.payload)).map(|at| mixed(n ^ at << 20).to_le_bytes()[0]);
        transport.extend(made_up);
        let length = u16::try_from(transport.len()).unwrap_or(u16::MAX);
        let ends = [source.octets(), target.octets()].concat();
        let pseudo = sum(&ends) + u32::from(protocol) + u32::from(length);
        let check = checksum(pseudo + sum(&transport));
        transport[place..place + 2].copy_from_slice(&check);

        to.clear();
        to.extend([2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0]);
        let mut header = vec![0x45, 0];
        header.extend((20 + length).to_be_bytes());
        header.extend([low(n, 16).to_be_bytes(), [0x40, 0]].concat());
        header.extend([64, protocol, 0, 0]);
        header.extend(ends);
        let check = checksum(sum(&header));
        header[10..12].copy_from_slice(&check);
        to.extend(header);
        to.extend(transport);
        // What Ethernet fills up.
        to.resize(to.len().max(60), 0);
    }
}

/// The next packet of an episode.
struct Teller {
    episode: Episode,
    sent: u64,
}

impl Teller {
    fn next_ns(&self, start_ns: u64) -> Option<u64> {
        let Episode { from, to, packets, .. } = self.episode;
        let length = u128::from((to - from) * MINUTE);
        let since = length * u128::from(self.sent) / u128::from(packets.max(1));
        let since = u64::try_from(since).unwrap_or(u64::MAX);
        (self.sent < packets).then(|| start_ns + from * MINUTE + since)
    }
}

/// Writes an hour of traffic with the episodes in it, as a capture. Returns its bytes.
pub(super) fn write(
    packets: u64,
    output: &mut dyn Write,
    progress: &Progress,
) -> anyhow::Result<u64> {
    const STEP: u64 = 1 << 12;
    let mut tellers = EPISODES.map(|(from, to, share, frame)| Teller {
        episode: Episode { from, to, packets: packets / share, frame },
        sent: 0,
    });
    let rest = packets - tellers.iter().map(|teller| teller.episode.packets).sum::<u64>();
    let rate = rest.div_ceil(HOUR_SECONDS).max(1);
    let profile = Profile { packets: rest, rate, ..Profile::default() };
    let target = BufWriter::with_capacity(1 << 18, output);
    let interface = Interface { name: "demo0".into(), ..Interface::new(1, 1_000_000_000) };
    let mut writer =
        CaptureWriter::new(target, FileFormat::Pcapng, &[interface], "made up by tapdex demo")?;
    let mut traffic = Traffic::new(&profile);
    let (mut frame, mut done) = (Vec::new(), 0_u64);
    loop {
        let packet = traffic.next();
        let until = packet.map_or(u64::MAX, |packet| packet.time_ns);
        // What comes before it, or all that is left.
        loop {
            let next = tellers.iter_mut().filter_map(|teller| {
                let time = teller.next_ns(profile.start_ns)?;
                (time < until).then_some((time, teller))
            });
            let Some((time, teller)) = next.min_by_key(|(time, _)| *time) else { break };
            (teller.episode.frame)(teller.sent).write(teller.sent, &mut frame);
            teller.sent += 1;
            let length = u32::try_from(frame.len()).unwrap_or(u32::MAX);
            writer.packet(0, time, length, &frame)?;
            done += 1;
        }
        let Some(packet) = packet else { break };
        writer.packet(0, packet.time_ns, packet.wire_len, packet.data)?;
        done += 1;
        if done.is_multiple_of(STEP) {
            progress.show_of(done, packets, |_| format!("{done} packets written"));
        }
    }
    let bytes = writer.written();
    drop(writer.finish().context(CANNOT_WRITE)?);
    Ok(bytes)
}
