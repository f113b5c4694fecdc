//! Filters that find from one packet to half of them, chosen from what a capture has in it.

mod sets;
mod sql;

use std::collections::HashMap;
use std::fs::File;
use std::hash::Hash;
use std::net::{Ipv4Addr, Ipv6Addr};

use anyhow::Context;
use tapdex_engine::capture::CaptureReader;
use tapdex_engine::packet::{
    ETHERTYPE_ARP, ETHERTYPE_IPV4, ETHERTYPE_IPV6, Encap, Fragment, Headers, Tunnel, decode,
    protocol,
};

use super::captures::Capture;
pub use sets::Sets;

/// A question, in the languages of the peers.
#[derive(Debug, Clone)]
pub struct Question {
    /// What it finds.
    pub what: &'static str,
    /// For tcpdump and tapdex.
    pub pcap: String,
    /// The same for tshark, whose fields also look into tagged and tunnelled packets where
    /// libpcap's do not.
    pub display: String,
    /// The same for a database of header fields, with libpcap's meaning: queries that all count the
    /// same in a table named `packets`; none if no header field answers it.
    pub sql: Vec<String>,
    /// The same for sets of packets; none if an index has no field that answers it.
    pub sets: Option<Sets>,
}

/// Addresses and ports of a TCP flow, the smaller end first.
type Flow = [(u32, u16); 2];

/// What a capture has in it, of packets that have neither tags nor a tunnel.
#[derive(Default)]
struct Census {
    /// Packets of each TCP flow, and its first one.
    flows: HashMap<Flow, (u32, u64)>,
    /// Packets of each host, ARP's as well, and its first one.
    hosts: HashMap<u32, (u32, u64)>,
    /// Packets with the UDP port 53 of each host, and its first one.
    dns: HashMap<u32, (u32, u64)>,
    /// The same of hosts with IPv6, and of Ethernet addresses, those with tags or a tunnel as well.
    ip6: HashMap<u128, (u32, u64)>,
    ether: HashMap<u64, (u32, u64)>,
}

impl Census {
    fn of(capture: &Capture) -> anyhow::Result<Self> {
        let mut census = Self::default();
        let mut reader = CaptureReader::open(File::open(&capture.path)?)?;
        let mut headers = Headers::default();
        let mut number = 0;
        while let Some(record) = reader.next()? {
            decode(record.link, record.swapped, record.data, &mut headers);
            census.add(&headers, number);
            number += 1;
        }
        Ok(census)
    }

    fn add(&mut self, headers: &Headers, number: u64) {
        for address in [headers.eth_src, headers.eth_dst] {
            self.ether.entry(address).or_insert((0, number)).0 += 1;
        }
        if headers.encap == Encap::None && headers.eth_type == ETHERTYPE_IPV6 {
            for host in [headers.ip6_src, headers.ip6_dst] {
                self.ip6.entry(host).or_insert((0, number)).0 += 1;
            }
        }
        let is_ip = headers.eth_type == ETHERTYPE_IPV4;
        if headers.encap != Encap::None || !(is_ip || headers.eth_type == ETHERTYPE_ARP) {
            return;
        }
        let ends = [(headers.ip_src, headers.port_src), (headers.ip_dst, headers.port_dst)];
        for (host, _) in ends {
            self.hosts.entry(host).or_insert((0, number)).0 += 1;
        }
        let is_tunnel = headers.wide && headers.tunnel != Tunnel::None;
        if !is_ip || headers.odd || headers.fragment != Fragment::Whole || is_tunnel {
            return;
        }
        match headers.proto {
            protocol::TCP => {
                let flow = [ends[0].min(ends[1]), ends[0].max(ends[1])];
                self.flows.entry(flow).or_insert((0, number)).0 += 1;
            }
            protocol::UDP if ends.iter().any(|end| end.1 == 53) => {
                for (host, _) in ends {
                    self.dns.entry(host).or_insert((0, number)).0 += 1;
                }
            }
            _ => {}
        }
    }
}

/// The host whose packets are nearest to so many, of those that come before `end`; the same in
/// every run.
fn nearest<A: Copy + Ord + Hash>(
    hosts: &HashMap<A, (u32, u64)>,
    packets: u64,
    end: u64,
) -> Option<A> {
    let early = hosts.iter().filter(|(_, (_, first))| *first < end);
    let far = early.map(|(&host, &(count, _))| (u64::from(count).abs_diff(packets), host));
    far.min().map(|(_, host)| host)
}

/// The questions for a capture.
pub fn questions(capture: &Capture) -> anyhow::Result<Vec<Question>> {
    let census = Census::of(capture)?;
    // Of what comes in the first tenth, so that it is in the shorter capture, too.
    let tenth = capture.packets / 10;
    let flows = || census.flows.iter().filter(|(_, (_, first))| *first < tenth);
    let rare_flow =
        flows().map(|(flow, (count, first))| (*count, first.abs_diff(tenth / 2), flow)).min();
    let (_, _, rare_flow) = rare_flow.context("no TCP flow")?;
    let busy = flows().map(|(flow, (count, _))| (*count, flow)).max();
    let (_, busy) = busy.context("no TCP flow")?;
    let rare = capture.packets / 100_000;
    let rare_host = nearest(&census.hosts, rare, tenth).context("no host")?.into();
    let dns_host = nearest(&census.dns, capture.packets / 10_000, tenth).context("no DNS")?.into();
    let ip6_host = Ipv6Addr::from(nearest(&census.ip6, rare, tenth).context("no IPv6")?);
    let address = nearest(&census.ether, rare, tenth).context("no Ethernet")?;
    let ether = address.to_be_bytes();
    let ether = ether[2..].iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(":");
    let nobody: Ipv4Addr = (0xC000_0200..=0xC000_02FF)
        .find(|host| !census.hosts.contains_key(host))
        .context("all of 192.0.2.0/24 is there")?
        .into();

    let [(a, p), (b, q)] = rare_flow.map(|(host, port)| (Ipv4Addr::from(host), port));
    let [(c, port_c), (d, port_d)] = busy.map(|(host, port)| (Ipv4Addr::from(host), port));
    let server_port = port_c.min(port_d);
    let question = |what, pcap: String, display: String, sql: Vec<String>, sets| Question {
        what,
        pcap,
        display,
        sql,
        sets,
    };
    let host = |host: Ipv4Addr| {
        format!(
            "(ip.addr#1 == {host} || arp.src.proto_ipv4 == {host} || arp.dst.proto_ipv4 == {host})"
        )
    };
    // A layer is counted among those of its protocol: the first of IPv6 may be in a tunnel of IPv4.
    const TCP: &str = "(ip.proto#1 == 6 || (!ip && ipv6.nxt#1 == 6))";
    const UDP: &str = "(ip.proto#1 == 17 || (!ip && ipv6.nxt#1 == 17))";
    Ok(vec![
        question(
            "a five-tuple",
            format!("tcp and host {a} and host {b} and port {p} and port {q}"),
            format!(
                "!vlan && ip.proto#1 == 6 && ip.addr#1 == {a} && ip.addr#1 == {b} && \
                 tcp.port#1 == {p} && tcp.port#1 == {q}"
            ),
            sql::flow(rare_flow.map(|end| end.0), &[protocol::TCP], rare_flow.map(|end| end.1)),
            Some(sets::flow([a, b], true, [p, q])),
        ),
        question(
            "a rare host",
            format!("host {rare_host}"),
            format!("!vlan && {}", host(rare_host)),
            sql::host(rare_host),
            Some(sets::host(rare_host)),
        ),
        question(
            "an IPv6 host",
            format!("host {ip6_host}"),
            format!("!vlan && eth.type == 0x86dd && ipv6.addr#1 == {ip6_host}"),
            sql::host6(ip6_host),
            Some(sets::host6(ip6_host)),
        ),
        question(
            "an Ethernet host",
            format!("ether host {ether}"),
            format!("eth.addr#1 == {ether}"),
            sql::ether(address),
            Some(sets::ether(address)),
        ),
        question(
            "an absent host",
            format!("host {nobody}"),
            format!("!vlan && {}", host(nobody)),
            sql::host(nobody),
            Some(sets::host(nobody)),
        ),
        question(
            "two hosts and a port",
            format!("host {c} and host {d} and port {server_port}"),
            format!(
                "!vlan && ip.addr#1 == {c} && ip.addr#1 == {d} && ((ip.proto#1 == 6 && \
                 tcp.port#1 == {server_port}) || (ip.proto#1 == 17 && udp.port#1 == {server_port}) \
                 || (ip.proto#1 == 132 && sctp.port#1 == {server_port}))"
            ),
            sql::flow(
                busy.map(|end| end.0),
                &[protocol::TCP, protocol::UDP, protocol::SCTP],
                [server_port; 2],
            ),
            Some(sets::flow([c, d], false, [server_port; 2])),
        ),
        question(
            "DNS of a host",
            format!("udp port 53 and host {dns_host}"),
            format!("!vlan && ip.proto#1 == 17 && udp.port#1 == 53 && ip.addr#1 == {dns_host}"),
            sql::host_port(dns_host, protocol::UDP, 53),
            Some(sets::host_port(dns_host, protocol::UDP, 53)),
        ),
        question(
            "a protocol",
            "icmp".into(),
            "!vlan && ip.proto#1 == 1".into(),
            sql::protocol(protocol::ICMP),
            Some(sets::protocol(protocol::ICMP)),
        ),
        question(
            "flags",
            "tcp[tcpflags] & (tcp-syn|tcp-ack) == tcp-syn".into(),
            "!vlan && ip.proto#1 == 6 && tcp.flags.syn == 1 && tcp.flags.ack == 0".into(),
            sql::flags(0x12, 0x02),
            Some(sets::flags(0x12, 0x02)),
        ),
        question(
            "a port",
            "tcp port 443".into(),
            format!("!vlan && {TCP} && tcp.port#1 == 443"),
            sql::port(protocol::TCP, 443),
            Some(sets::port(protocol::TCP, 443)),
        ),
        question(
            "a network",
            super::HALF.into(),
            "!vlan && (ip.addr#1 == 10.0.0.0/8 || arp.src.proto_ipv4 == 10.0.0.0/8 || \
             arp.dst.proto_ipv4 == 10.0.0.0/8)"
                .into(),
            sql::net(Ipv4Addr::new(10, 0, 0, 0), 8),
            Some(sets::net(Ipv4Addr::new(10, 0, 0, 0), 8)),
        ),
        question(
            "no column knows it",
            "tcp[20:4] = 0x47455420".into(),
            "!vlan && ip.proto#1 == 6 && tcp.hdr_len == 20 && tcp.payload[0:4] == 47:45:54:20"
                .into(),
            vec![],
            None,
        ),
        question(
            "a length",
            "greater 1000".into(),
            "frame.len >= 1000".into(),
            sql::length(1000),
            None,
        ),
        question(
            "tagged",
            "vlan and udp".into(),
            format!("!ieee8021ad && count(vlan.id) == 1 && {UDP}"),
            sql::tagged(protocol::UDP),
            Some(sets::tagged(protocol::UDP)),
        ),
    ])
}
