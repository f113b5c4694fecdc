//! Made-up traffic: the same bytes for a seed, near its profile, and right in the eyes of others.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use etherparse::{NetSlice, SlicedPacket, TcpSlice, TransportSlice};
use std::collections::{HashMap, HashSet};
use std::fs;
use std::net::IpAddr;
use std::path::Path;
use std::process::Command;
use tapdex_engine::traffic::{Profile, Traffic};

const FINGERPRINT: u64 = 0x6457_D137_6E95_6B7E;

fn profile(packets: u64) -> Profile {
    Profile { packets, ..Profile::default() }
}

/// Time, length on the wire, and bytes of every packet.
fn packets(profile: &Profile) -> Vec<(u64, u32, Vec<u8>)> {
    let mut traffic = Traffic::new(profile);
    let mut all = Vec::new();
    while let Some(packet) = traffic.next() {
        all.push((packet.time_ns, packet.wire_len, packet.data.to_vec()));
    }
    assert!(traffic.next().is_none(), "it goes on after its end");
    all
}

/// A number that changes with every byte, time and length (FNV-1a).
fn fingerprint(profile: &Profile) -> u64 {
    let mut traffic = Traffic::new(profile);
    let mut hash = 0xCBF2_9CE4_8422_2325_u64;
    while let Some(packet) = traffic.next() {
        let (time, len) = (packet.time_ns.to_le_bytes(), packet.wire_len.to_le_bytes());
        for &byte in time.iter().chain(&len).chain(packet.data) {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3);
        }
    }
    hash
}

#[test]
fn a_seed_gives_the_same_bytes_on_every_machine() {
    // Written down once: another number means other bytes for a seed that people have used.
    assert_eq!(fingerprint(&profile(50_000)), FINGERPRINT, "bytes changed");
    let other = Profile { seed: 2, ..profile(50_000) };
    assert_ne!(fingerprint(&other), FINGERPRINT);
}

#[test]
fn more_packets_start_with_the_same_ones() {
    let (few, many) = (packets(&profile(3_000)), packets(&profile(9_000)));
    assert_eq!((few.len(), many.len()), (3_000, 9_000));
    assert!(few[..] == many[..3_000]);
    assert!(packets(&profile(0)).is_empty());
}

#[test]
fn a_snapshot_length_cuts_the_bytes_only() {
    let whole = packets(&profile(3_000));
    let cut = packets(&Profile { snap_len: 96, ..profile(3_000) });
    for ((time, len, bytes), (time_cut, len_cut, bytes_cut)) in whole.iter().zip(&cut) {
        assert_eq!((time, len, bytes.len()), (time_cut, len_cut, *len as usize));
        assert_eq!(bytes_cut[..], bytes[..bytes.len().min(96)]);
    }
}

#[test]
fn times_ascend_at_the_rate() {
    for rate in [1_000, 100_000, 10_000_000] {
        let profile = Profile { rate, ..profile(100_000) };
        let all = packets(&profile);
        assert_eq!(all[0].0, profile.start_ns);
        assert!(all.is_sorted_by(|a, b| a.0 < b.0), "times go back at {rate} packets a second");
        let seconds = (all[99_999].0 - all[0].0) as f64 / 1e9;
        let got = 100_000.0 / seconds;
        assert!((got / rate as f64 - 1.0).abs() < 0.05, "{got} instead of {rate} packets a second");
    }
}

#[test]
fn the_mean_length_is_what_was_asked_for() {
    for (asked, expected) in [
        (None, 700.0),
        (Some(64), 64.0),
        (Some(80), 80.0),
        (Some(128), 128.0),
        (Some(400), 400.0),
        (Some(1_000), 1_000.0),
    ] {
        let all = packets(&Profile { mean_len: asked, ..profile(100_000) });
        let mean = all.iter().map(|packet| f64::from(packet.1)).sum::<f64>() / all.len() as f64;
        assert!((mean / expected - 1.0).abs() < 0.03, "mean length {mean} instead of {expected}");
        assert!(all.iter().all(|packet| (60..=1_600).contains(&packet.1)));
        let least = all.iter().filter(|packet| packet.1 == 60).count();
        assert!(asked != Some(64) || least > 70_000, "only {least} frames of the least length");
    }
}

/// Addresses and ports, both directions alike.
type FlowKey = (u8, (IpAddr, u16), (IpAddr, u16));

/// What a look at every frame finds.
#[derive(Default)]
struct Census {
    packets: u64,
    ipv6: u64,
    vlan: u64,
    two_tags: u64,
    tunnel: u64,
    syns_alone: u64,
    other: u64,
    flows: HashMap<FlowKey, u64>,
    /// The sequence number that comes next, by source and destination.
    next: HashMap<(IpAddr, u16, IpAddr, u16), u32>,
    wrong_sequence: u64,
    macs: HashMap<IpAddr, HashSet<[u8; 6]>>,
}

impl Census {
    fn of(profile: &Profile) -> Self {
        let mut census = Self::default();
        let mut traffic = Traffic::new(profile);
        while let Some(packet) = traffic.next() {
            census.frame(packet.data);
        }
        census
    }

    fn frame(&mut self, bytes: &[u8]) {
        let sliced = SlicedPacket::from_ethernet(bytes).unwrap();
        self.packets += 1;
        self.vlan += u64::from(!sliced.vlan_ids().is_empty());
        self.two_tags += u64::from(sliced.vlan_ids().len() == 2);
        let (src, dst, proto): (IpAddr, IpAddr, u8) = match &sliced.net {
            Some(NetSlice::Ipv4(ip)) => {
                let header = ip.header();
                let right = header.to_header().calc_header_checksum();
                assert_eq!(header.header_checksum(), right, "IPv4 header checksum");
                let (src, dst) = (header.source_addr(), header.destination_addr());
                (src.into(), dst.into(), header.protocol().0)
            }
            Some(NetSlice::Ipv6(ip)) => {
                self.ipv6 += 1;
                let header = ip.header();
                let (src, dst) = (header.source_addr(), header.destination_addr());
                (src.into(), dst.into(), header.next_header().0)
            }
            _ => {
                self.other += 1;
                return;
            }
        };
        assert!(is_nobodys(src) && (is_nobodys(dst) || dst.is_multicast()), "{src} > {dst}");
        self.macs.entry(src).or_default().insert(bytes[6..12].try_into().unwrap());
        let (port_src, port_dst) = match &sliced.transport {
            Some(TransportSlice::Tcp(tcp)) => {
                self.tcp(src, dst, tcp);
                (tcp.source_port(), tcp.destination_port())
            }
            Some(TransportSlice::Udp(udp)) => (udp.source_port(), udp.destination_port()),
            // The rest of a datagram, which was counted with its first fragment.
            None if proto == 17 => {
                self.other += 1;
                return;
            }
            _ => (0, 0),
        };
        let tunnel = matches!(proto, 4 | 41 | 47) || proto == 17 && matches!(port_dst, 2152 | 4789);
        self.tunnel += u64::from(tunnel);
        let dns = proto == 17 && (port_src == 53 || port_dst == 53);
        let fragment = proto == 17 && port_dst == 5_001;
        self.other += u64::from(dns || fragment || matches!(proto, 1 | 58 | 132));
        let (a, b) = ((src, port_src), (dst, port_dst));
        *self.flows.entry((proto, a.min(b), a.max(b))).or_default() += 1;
    }

    fn tcp(&mut self, src: IpAddr, dst: IpAddr, tcp: &TcpSlice<'_>) {
        self.syns_alone += u64::from(tcp.syn() && !tcp.ack());
        let key = (src, tcp.source_port(), dst, tcp.destination_port());
        let seq = tcp.sequence_number();
        // A SYN may begin a connection between ports that had one before.
        if let Some(&next) = self.next.get(&key).filter(|_| !tcp.syn()) {
            self.wrong_sequence += u64::from(next != seq);
        }
        if tcp.ack() {
            let back = (dst, tcp.destination_port(), src, tcp.source_port());
            let acknowledged = self.next.get(&back).copied();
            self.wrong_sequence += u64::from(acknowledged != Some(tcp.acknowledgment_number()));
        }
        let used = tcp.payload().len() as u64 + u64::from(tcp.syn()) + u64::from(tcp.fin());
        self.next.insert(key, seq.wrapping_add(u32::try_from(used).unwrap()));
    }
}

/// Whether the address is private, or set aside for documentation or benchmarks.
fn is_nobodys(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => {
            let [a, b, ..] = v4.octets();
            v4.is_private() || v4.is_documentation() || (a, b & 0xFE) == (198, 18)
        }
        IpAddr::V6(v6) => v6.segments()[..2] == [0x2001, 0x0DB8],
    }
}

#[track_caller]
fn near(what: &str, count: u64, of: u64, share: f64, tolerance: f64) {
    let got = count as f64 / of as f64;
    assert!((got / share - 1.0).abs() <= tolerance, "{what}: {got} instead of {share}");
}

#[test]
fn shares_and_flows_are_near_the_profile() {
    for (seed, packets) in [(1, 100_000), (2, 400_000), (3, 400_000)] {
        let profile = Profile { seed, ..profile(packets) };
        let census = Census::of(&profile);
        assert_eq!(census.packets, packets);
        near("IPv6", census.ipv6, packets, profile.ipv6_share, 0.25);
        near("VLAN", census.vlan, packets, profile.vlan_share, 0.25);
        near("tunnels", census.tunnel, packets, profile.tunnel_share, 0.3);
        near("others", census.other, packets, profile.other_share, 0.1);
        near("flows", census.flows.len() as u64, packets, 1.0 / 15.0, 0.1);
        assert!(census.two_tags > 0);
        // What each address sends has one source: its own station, or the router.
        assert!(census.macs.values().all(|macs| macs.len() == 1));

        let mut lengths: Vec<u64> = census.flows.values().copied().collect();
        lengths.sort_unstable();
        let short = lengths.iter().filter(|&&len| len <= 20).count();
        assert!(short * 10 > lengths.len() * 8, "{short} of {} are short", lengths.len());
        let long: u64 = lengths.iter().rev().take(lengths.len() / 100).sum();
        assert!(long * 100 > packets * 30, "the longest flows have {long} packets");
    }
}

#[test]
fn shares_can_be_nothing_or_much() {
    let none = Profile {
        ipv6_share: 0.0,
        vlan_share: 0.0,
        tunnel_share: 0.0,
        scan_share: 0.0,
        flood_share: 0.0,
        other_share: 0.0,
        ..profile(100_000)
    };
    let census = Census::of(&none);
    let few = [census.ipv6, census.vlan, census.tunnel, census.other];
    assert_eq!(few, [0; 4]);
    near("flows", census.flows.len() as u64, census.packets, 1.0 / 15.0, 0.1);

    let census = Census::of(&Profile { flood_share: 0.2, scan_share: 0.1, ..none.clone() });
    near("SYNs", census.syns_alone, census.packets, 0.3, 0.15);
    let census = Census::of(&Profile { ipv6_share: 1.0, vlan_share: 1.0, ..none.clone() });
    near("IPv6", census.ipv6, census.packets, 1.0, 0.2);
    near("VLAN", census.vlan, census.packets, 1.0, 0.2);
    let census = Census::of(&Profile { ipv6_share: 0.5, vlan_share: 0.6, ..none });
    near("half IPv6", census.ipv6, census.packets, 0.5, 0.15);
    near("much VLAN", census.vlan, census.packets, 0.6, 0.15);
}

#[test]
fn connections_count_their_bytes() {
    let tcp_only = Profile {
        scan_share: 0.0,
        flood_share: 0.0,
        other_share: 0.0,
        tunnel_share: 0.0,
        ..profile(100_000)
    };
    let census = Census::of(&tcp_only);
    assert!(census.next.len() > 1_000);
    // Two connections of the same ports at the same time disturb each other; that is seldom.
    assert!(census.wrong_sequence < 100, "{} wrong numbers", census.wrong_sequence);
}

#[test]
fn scans_and_floods_fan_out() {
    let profile = Profile { scan_share: 0.05, flood_share: 0.05, ..profile(100_000) };
    let mut traffic = Traffic::new(&profile);
    let (mut targets, mut sources) = (HashMap::new(), HashMap::new());
    while let Some(packet) = traffic.next() {
        let sliced = SlicedPacket::from_ethernet(packet.data).unwrap();
        let (Some(NetSlice::Ipv4(ip)), Some(TransportSlice::Tcp(tcp))) =
            (&sliced.net, &sliced.transport)
        else {
            continue;
        };
        if tcp.syn() && !tcp.ack() {
            let (src, dst) = (ip.header().source_addr(), ip.header().destination_addr());
            let port = tcp.destination_port();
            targets.entry((src, port)).or_insert_with(HashSet::new).insert(dst);
            sources.entry((dst, port)).or_insert_with(HashSet::new).insert(src);
        }
    }
    assert!(targets.values().any(|hosts| hosts.len() > 200), "nobody scans");
    assert!(sources.values().any(|hosts| hosts.len() > 200), "nobody is flooded");
}

fn write_pcap(profile: &Profile, path: &Path) {
    let mut bytes = Vec::new();
    // Nanoseconds, version 2.4, 65,535 bytes at most, Ethernet.
    for number in [0xA1B2_3C4D, 0x0004_0002, 0, 0, 65_535, 1_u32] {
        bytes.extend(number.to_le_bytes());
    }
    for (time, len, data) in packets(profile) {
        let (seconds, rest) = (time / 1_000_000_000, time % 1_000_000_000);
        for number in [seconds, rest, data.len() as u64, len.into()] {
            bytes.extend(u32::try_from(number).unwrap().to_le_bytes());
        }
        bytes.extend(data);
    }
    fs::write(path, bytes).unwrap();
}

/// What a program prints; `None` where it is not installed.
fn printed(program: &str, path: &Path, arguments: &[&str]) -> Option<String> {
    let output = Command::new(program).arg("-r").arg(path).args(arguments).output().ok()?;
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program}: {errors}");
    Some(String::from_utf8(output.stdout).unwrap())
}

#[test]
fn others_read_it_without_complaint() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("made-up.pcap");
    for mean_len in [None, Some(64), Some(150)] {
        write_pcap(&Profile { mean_len, ..profile(20_000) }, &path);
        let wrong = "_ws.malformed or ip.checksum.status==0 or tcp.checksum.status==0 \
                     or udp.checksum.status==0 or icmp.checksum.status==0 \
                     or icmpv6.checksum.status==0 or sctp.checksum.status==0";
        let checks = [
            "-n",
            "-o",
            "ip.check_checksum:TRUE",
            "-o",
            "tcp.check_checksum:TRUE",
            "-o",
            "udp.check_checksum:TRUE",
            "-o",
            "sctp.checksum:TRUE",
        ];
        if let Some(found) = printed("tshark", &path, &[&checks[..], &["-Y", wrong]].concat()) {
            let first: Vec<&str> = found.lines().take(5).collect();
            assert!(found.is_empty(), "mean {mean_len:?}: {first:#?}");
        }
        for filter in [
            "tcp[13]=2",
            "arp",
            "ip6",
            "vlan",
            "vlan 10",
            "vlan 20",
            "icmp",
            "port 53",
            "sctp",
            "ip proto 47",
            "udp port 4789",
            "udp port 2152",
            "ip proto 4",
            "ip[6:2] & 0x1fff != 0",
            "ether proto 0x88cc",
        ] {
            if let Some(found) = printed("tcpdump", &path, &["-n", filter]) {
                assert!(!found.is_empty(), "mean {mean_len:?}: nothing for {filter}");
            }
        }
    }
}
