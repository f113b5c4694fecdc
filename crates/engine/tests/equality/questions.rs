//! Questions that libpcap does not know: times, counts, and filters of Wireshark's language.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::Path;
use std::process::Command;

use rayon::iter::{IntoParallelRefIterator, ParallelIterator};
use tapdex_bitmap::sample::Random;
use tapdex_engine::packet::LinkType;
use tapdex_engine::query::Query;
use tapdex_engine::query::filter::{Filter, Syntax};
use tapdex_engine::testing::filters::Values;
use tapdex_engine::time::TimeRange;
use tapdex_engine::traffic::{Profile, Traffic};

use crate::compare::{Indexed, NOW_NS, Tally, index, index_all};
use crate::made::{Times, mixed, odd_frames, pcap, pcapng, traffic};
use crate::oracle::{Truth, Verdict};

const SECOND: u64 = 1_000_000_000;

/// Times of packets, a nanosecond beside them, and times before and after all.
fn time_near(truth: &Truth, random: &mut Random) -> Option<u64> {
    let count = u32::try_from(truth.packets.len()).unwrap();
    let time = truth.packets[random.below(count) as usize].time_ns;
    Some(match random.below(12) {
        0 => return None,
        1 => 0,
        2 => u64::MAX,
        3 => time - 1,
        4 => time + 1,
        5 => time + 1_000_000_000,
        _ => time,
    })
}

/// `from` is the first time that counts, `to` the first that does not, also where times of a
/// capture go back.
#[test]
fn time_limits() {
    let folder = tempfile::tempdir().unwrap();
    let frames: Vec<_> = (0..6_000).map(|_| 0).zip(traffic(6_000, 3, 100)).collect();
    let tally = Tally::default();
    for kind in [Times::Rising, Times::Jumping] {
        let path = folder.path().join(format!("times-{}.pcapng", kind == Times::Rising));
        let capture = pcapng(path, &[LinkType::ETHERNET], kind, &frames);
        let truth = Truth::read(&capture);
        let back = truth.packets.windows(2).filter(|pair| pair[1].time_ns < pair[0].time_ns);
        assert_eq!(back.count() > 20, kind == Times::Jumping);
        let indexed = [
            index(&capture, "auto", 2_500),
            index(&capture, "masc", 1_000),
            index(&capture, "roaring", 1 << 20),
        ];
        let texts = [
            "",
            "tcp",
            "udp",
            "not ip",
            "ip[8] > 60",
            "len > 300",
            "vlan and ip",
            "tcp[13] & 2 != 0",
        ];
        for (text, seed) in texts.iter().zip(1..) {
            let Verdict::Matches(matches) = truth.ask(text) else { panic!("{text}") };
            let mut random = Random::new(seed);
            for _ in 0..30 {
                let mut near = || time_near(&truth, &mut random);
                let mut filter = Filter::parse_as(Syntax::Pcap, text, NOW_NS).unwrap();
                let [from, to] = [near(), near()];
                // Limits in the filter hold as well as those beside it.
                let mut own = [None, None];
                if near().is_none() {
                    own = [near(), near()];
                    for (word, time) in ["after", "before"].iter().zip(own) {
                        let Some(ns) = time else { continue };
                        let time = format!("{word} {}.{:09}", ns / SECOND, ns % SECOND);
                        let time = Filter::parse_as(Syntax::Pcap, &time, NOW_NS).unwrap();
                        filter = filter.and(&time).unwrap();
                    }
                }
                let in_time = |time: u64| {
                    [from, own[0]].into_iter().flatten().all(|from| time >= from)
                        && [to, own[1]].into_iter().flatten().all(|to| time < to)
                };
                let numbers = (0..).zip(&truth.packets).zip(&matches);
                let expected = numbers.filter(|((_, p), m)| **m && in_time(p.time_ns));
                let expected: Vec<u64> = expected.map(|((number, _), _)| number).collect();
                let limits = (from, to, own);
                let query = Query::new(filter, TimeRange { from_ns: from.unwrap_or(0), to_ns: to });
                check(&truth, &indexed, &query, Some(&expected), &tally, || {
                    format!("`{text}` {limits:?}")
                });
            }
        }
    }
    tally.finish("time limits", 1_400, 700);
}

/// Compares archives with a scan, and the scan with what is expected.
fn check(
    truth: &Truth,
    indexed: &[Indexed],
    query: &Query,
    expected: Option<&[u64]>,
    tally: &Tally,
    text: impl Fn() -> String,
) {
    let scanned = truth.scan(query, 0);
    let scanned: Vec<u64> = (0..)
        .zip(scanned)
        .filter(|(_, yes)| *yes == Some(true))
        .map(|(number, _)| number)
        .collect();
    if expected.is_some_and(|expected| expected != scanned) {
        tally.differs(format!("{:?}: {}: scan of {}", truth.path, text(), scanned.len()));
    }
    for archive in indexed {
        match archive.ask(query) {
            Ok((found, _)) if found == scanned => {}
            Ok((found, _)) => {
                let first = |a: &[u64], b: &[u64]| a.iter().find(|x| !b.contains(x)).copied();
                tally.differs(format!(
                    "{:?}: {}: {}: {} packets, scan {}; too many {:?}, missing {:?}",
                    truth.path,
                    archive.name,
                    text(),
                    found.len(),
                    scanned.len(),
                    first(&found, &scanned),
                    first(&scanned, &found)
                ));
            }
            Err(error) => {
                tally.differs(format!("{:?}: {}: {}: {error}", truth.path, archive.name, text()));
            }
        }
    }
    tally.compared(truth, indexed.len(), scanned.len(), truth.packets.len());
}

/// Fields, and values for them: of a capture, and one that it hardly has.
fn fields(values: &Values) -> Vec<(&'static str, Vec<String>)> {
    let some = |list: &[u64]| -> Vec<u64> {
        let step = list.len().div_ceil(6).max(1);
        list.iter().copied().step_by(step).collect()
    };
    let numbers = |list: &[u64]| some(list).iter().map(u64::to_string).collect::<Vec<_>>();
    let wide = |list: &[u32]| list.iter().map(|&n| n.into()).collect::<Vec<u64>>();
    let short = |list: &[u16]| list.iter().map(|&n| n.into()).collect::<Vec<u64>>();
    let bytes = |list: &[u8]| list.iter().map(|&n| n.into()).collect::<Vec<u64>>();
    let ip4: Vec<String> = some(&wide(&values.hosts4))
        .iter()
        .map(|&ip| Ipv4Addr::from_bits(u32::try_from(ip).unwrap()).to_string())
        .collect();
    let hosts6 = values.hosts6.iter().step_by(values.hosts6.len().div_ceil(6).max(1));
    let mut ip6: Vec<String> = hosts6.map(|&ip| Ipv6Addr::from_bits(ip).to_string()).collect();
    ip6.push("2001:db8::1".into());
    let macs: Vec<String> = some(&values.macs)
        .iter()
        .map(|mac| mac.to_be_bytes()[2..].iter().map(|b| format!("{b:02x}")).collect::<Vec<_>>())
        .map(|pairs| pairs.join(":"))
        .collect();
    let ports = numbers(&short(&values.ports));
    let vlans = numbers(&short(&values.vlans));
    let protocols = numbers(&bytes(&values.protocols));
    let small: Vec<String> = [0, 1, 3, 8, 16, 18, 128, 135].map(|n: u8| n.to_string()).to_vec();
    let flag = vec!["0".to_owned(), "1".to_owned()];
    let mut list = vec![
        ("frame.len", numbers(&wide(&values.lengths))),
        ("frame.interface_id", small[..3].to_vec()),
        ("eth.type", numbers(&short(&values.ethertypes))),
        ("vlan.id", vlans),
        ("mpls.label", numbers(&wide(&values.labels))),
        ("tunnel.type", vec!["ip".into(), "gre".into(), "vxlan".into(), "gtp".into()]),
        ("tunnel.id", vec!["5".into(), "7".into(), "99".into()]),
    ];
    let of = |names: &[&'static str], values: &[String]| {
        names.iter().map(|name| (*name, values.to_vec())).collect::<Vec<_>>()
    };
    list.extend(of(&["eth.addr", "eth.src", "eth.dst"], &macs));
    let names = [
        "ip.addr",
        "ip.src",
        "ip.dst",
        "arp.src.proto_ipv4",
        "arp.dst.proto_ipv4",
        "inner.ip.addr",
        "inner.ip.src",
        "inner.ip.dst",
    ];
    list.extend(of(&names, &ip4));
    let names = [
        "ipv6.addr",
        "ipv6.src",
        "ipv6.dst",
        "inner.ipv6.addr",
        "inner.ipv6.src",
        "inner.ipv6.dst",
    ];
    list.extend(of(&names, &ip6));
    list.extend(of(&["ip.proto", "ipv6.nxt", "inner.ip.proto"], &protocols));
    let names = [
        "tcp.port",
        "tcp.srcport",
        "tcp.dstport",
        "udp.port",
        "udp.srcport",
        "udp.dstport",
        "sctp.port",
        "sctp.srcport",
        "sctp.dstport",
        "inner.port",
        "inner.port.src",
        "inner.port.dst",
    ];
    list.extend(of(&names, &ports));
    let names = ["tcp.flags", "icmp.type", "icmp.code", "icmpv6.type", "icmpv6.code"];
    list.extend(of(&names, &small));
    let names = ["tcp.flags.fin", "tcp.flags.syn", "tcp.flags.reset", "tcp.flags.ack"];
    list.extend(of(&names, &flag));
    list
}

/// Filters of single fields, and of fields joined at random.
fn display_filters(values: &Values, joined: usize) -> Vec<String> {
    let mut random = Random::new(11);
    let mut pick = |bound: usize| random.below(u32::try_from(bound).unwrap()) as usize;
    let mut texts: Vec<String> = [
        "frame", "eth", "vlan", "mpls", "arp", "ip", "ipv6", "tcp", "udp", "sctp", "icmp", "icmpv6",
    ]
    .map(String::from)
    .to_vec();
    for (name, values) in fields(values) {
        texts.push(name.to_owned());
        for value in &values {
            texts.push(format!("{name} == {value}"));
        }
        let mut value = || values[pick(values.len())].clone();
        for comparison in ["!=", "<", "<=", ">", ">=", "===", "!=="] {
            texts.push(format!("{name} {comparison} {}", value()));
        }
        texts.push(format!("{name} in {{{}, {}}}", value(), value()));
        texts.push(format!("{name} in {{{}..{}}}", value(), value()));
    }
    let read = |text: &String| Filter::parse_as(Syntax::Wireshark, text, NOW_NS).is_ok();
    texts.retain(read);
    for _ in 0..joined {
        let mut one = || {
            let text = texts[pick(texts.len())].clone();
            if pick(4) == 0 { format!("not ({text})") } else { text }
        };
        let (a, b, c) = (one(), one(), one());
        texts.push(match pick(3) {
            0 => format!("{a} and {b}"),
            1 => format!("{a} or {b} and {c}"),
            _ => format!("not (({a} or {b}) and {c})"),
        });
    }
    texts
}

/// Filters of fields find what a scan finds.
#[test]
fn fields_of_wireshark() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let frames = |link| odd_frames(link, false, 6);
    let (ethernet, cooked) = (LinkType::ETHERNET, LinkType::LINUX_SLL);
    let captures = [
        pcap(path("fields-odd.pcap"), ethernet, false, &frames(ethernet)),
        pcap(path("fields-traffic.pcap"), ethernet, false, &traffic(4_000, 8, 300)),
        pcap(path("fields-cooked.pcap"), cooked, false, &frames(cooked)),
        mixed(folder.path()),
    ];
    let tally = Tally::default();
    for capture in captures {
        let truth = Truth::read(&capture);
        let indexed = index_all(&capture, 1_500);
        let texts = display_filters(&truth.values(), 150);
        assert!(texts.len() > 450, "only {} filters are understood", texts.len());
        texts.par_iter().for_each(|text| {
            let filter = Filter::parse_as(Syntax::Wireshark, text, NOW_NS).unwrap();
            let query = Query::new(filter, TimeRange::ALL);
            check(&truth, &indexed, &query, None, &tally, || format!("`{text}`"));
        });
    }
    tally.finish("fields of Wireshark", 18_000, 8_000);
}

/// The packets that match by tshark; `None` if it is not installed.
fn tshark(capture: &Path, filter: &str) -> Option<Vec<u64>> {
    let output = Command::new("tshark")
        .args(["-n", "-o", "ip.defragment:FALSE", "-o", "tcp.desegment_tcp_streams:FALSE"])
        .args(["-T", "fields", "-e", "frame.number", "-Y", filter, "-r"])
        .arg(capture)
        .output()
        .ok()?;
    assert!(output.status.success(), "{filter}: {}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    Some(text.lines().map(|line| line.parse::<u64>().unwrap() - 1).collect())
}

/// Where both know a field and there is no tunnel, tshark finds the same.
#[test]
fn display_filters_of_tshark() {
    let folder = tempfile::tempdir().unwrap();
    let mut made = Traffic::new(&Profile {
        seed: 21,
        packets: 3_000,
        tunnel_share: 0.0,
        vlan_share: 0.2,
        ipv6_share: 0.3,
        other_share: 0.3,
        concurrent_flows: 100,
        ..Profile::default()
    });
    let mut frames = Vec::new();
    while let Some(packet) = made.next() {
        frames.push((packet.wire_len, packet.data.to_vec()));
    }
    let path = folder.path().join("tshark.pcap");
    let capture = pcap(path, LinkType::ETHERNET, false, &frames);
    let truth = Truth::read(&capture);
    let values = truth.values();
    let host = Ipv4Addr::from_bits(*values.hosts4.iter().max().unwrap());
    let host6 = Ipv6Addr::from_bits(values.hosts6[0]);
    let texts = [
        "ip".to_owned(),
        format!("ip.addr == {host}"),
        format!("ip.addr != {host}"),
        format!("ip.src == {host} or ip.dst > {host}"),
        format!("ipv6.addr == {host6}"),
        "ipv6 and not icmpv6".to_owned(),
        "tcp.port in {1..1023}".to_owned(),
        "tcp.flags.syn == 1 and tcp.flags.ack == 0".to_owned(),
        "udp.port in {53, 1000..40000}".to_owned(),
        "tcp.srcport >= 1024 and frame.len > 200".to_owned(),
        "vlan.id == 10 or vlan.id == 32".to_owned(),
        "arp or icmp or sctp.port".to_owned(),
        "not (tcp or udp)".to_owned(),
        "eth.type == 0x0800".to_owned(),
        "icmpv6.type == 135".to_owned(),
        "ip.proto == 17 and not udp".to_owned(),
    ];
    let indexed = [index(&capture, "auto", 1_000)];
    let tally = Tally::default();
    for text in &texts {
        let Some(expected) = tshark(&capture, text) else { return };
        let filter = Filter::parse_as(Syntax::Wireshark, text, NOW_NS).unwrap();
        let query = Query::new(filter, TimeRange::ALL);
        check(&truth, &indexed, &query, Some(&expected), &tally, || text.clone());
    }
    tally.finish("tshark", texts.len() as u64, texts.len() as u64 - 1);
}
