//! Numbers: top, hist, info and explain, beside a program that reads every packet.

use std::collections::BTreeMap;

use super::*;

/// Lines of CSV, without the headings.
fn csv(text: &str) -> BTreeMap<String, u64> {
    let lines = text.lines().skip(1);
    let cells = lines.map(|line| line.split(',').collect::<Vec<_>>());
    cells.map(|cells| (cells[0].to_owned(), cells[1].parse().unwrap())).collect()
}

/// The values of all packets, as a program says that reads each of them.
fn tally(place: &Place, value: impl Fn(&Headers) -> Vec<String>) -> BTreeMap<String, u64> {
    let mut counts = BTreeMap::new();
    let mut headers = Headers::default();
    for name in ["a.pcap", "b.pcapng"] {
        for (_, _, data) in packets(&place.path(name)) {
            let ethernet = tapdex_engine::packet::LinkType::ETHERNET;
            decode(ethernet, false, &data, &mut headers);
            for value in value(&headers) {
                *counts.entry(value).or_default() += 1;
            }
        }
    }
    counts
}

#[test]
fn values_are_counted_where_packets_have_them() {
    use std::net::{Ipv4Addr, Ipv6Addr};
    let place = indexed();
    let top = |field: &str| csv(&place.run(&["top", field, "--csv", "-n", "1000000"]).done());
    let v4 = |headers: &Headers, address: u32| {
        let is = headers.eth_type == ETHERTYPE_IPV4;
        is.then(|| Ipv4Addr::from(address).to_string())
    };
    let v6 = |headers: &Headers, address: u128| {
        let is = headers.eth_type == ETHERTYPE_IPV6;
        is.then(|| Ipv6Addr::from(address).to_string())
    };
    let src = top("ip.src");
    assert!(!src.contains_key("0.0.0.0"), "a packet without IPv4 was counted");
    assert_eq!(src, tally(&place, |h| v4(h, h.ip_src).into_iter().collect()));
    assert_eq!(top("ip6.dst"), tally(&place, |h| v6(h, h.ip6_dst).into_iter().collect()));
    assert_eq!(
        top("addr"),
        tally(&place, |h| {
            let narrow = [v4(h, h.ip_src), v4(h, h.ip_dst)].into_iter().flatten();
            let wide = [v6(h, h.ip6_src), v6(h, h.ip6_dst)].into_iter().flatten();
            narrow.chain(wide).collect()
        })
    );
    let has_ports = |h: &Headers| {
        [ETHERTYPE_IPV4, ETHERTYPE_IPV6].contains(&h.eth_type)
            && [6, 17, 132].contains(&h.l4)
            && h.fragment != tapdex_engine::packet::Fragment::Later
    };
    assert_eq!(
        top("port.dst"),
        tally(&place, |h| has_ports(h).then(|| h.port_dst.to_string()).into_iter().collect())
    );
    assert_eq!(
        top("vlan"),
        tally(&place, |h| (h.vlan > 0).then(|| h.vlan.to_string()).into_iter().collect())
    );
    let mac = |mac: u64| {
        let bytes: Vec<String> = format!("{mac:012x}")
            .as_bytes()
            .chunks(2)
            .map(|pair| String::from_utf8(pair.to_vec()).unwrap())
            .collect();
        bytes.join(":")
    };
    assert_eq!(top("mac"), tally(&place, |h| vec![mac(h.eth_src), mac(h.eth_dst)]));
    let proto = top("proto");
    for (name, filter) in [("tcp", "tcp or (vlan and tcp)"), ("arp", "arp.src.proto_ipv4")] {
        assert!(proto[name] >= place.count(filter) && proto[name] > 0, "{name}");
    }
    assert_eq!(proto.values().sum::<u64>(), 30_000);
}

#[test]
fn a_filter_limits_what_is_counted() {
    let place = indexed();
    let args = ["top", "udp.port", "--csv", "-n", "3", "udp port 53"];
    let ports = csv(&place.run(&args).done());
    assert_eq!((ports.len(), ports["53"]), (3, place.count("udp port 53")));
    let text = place.words("top src -n 2 tcp").done();
    assert_eq!(text.lines().count(), 4);
    assert!(text.lines().nth(3).unwrap().contains(" others)"), "{text}");
    assert!(text.contains("percent") && text.lines().nth(1).unwrap().ends_with('#'), "{text}");
    let json = place.words("top l4 -n 1 --json tcp").done();
    assert!(json.starts_with("{\"value\":\"tcp\",\"count\":"), "{json}");
    assert!(json.ends_with("\"share\":1.000000}\n"), "{json}");
    assert_eq!(place.run(&["top", "src", "--csv", "arp"]).done(), "value,count,share\n");
    let said = place.words("top colour").failed(2);
    assert!(said.contains("possible values: ") && said.contains(" src, dst, addr,"), "{said}");
}

#[test]
fn bars_add_up_to_all_that_match() {
    let place = indexed();
    for filter in ["", "udp port 53", "tcp[13] == 2"] {
        let mut times: Vec<u64> = vec![];
        place.run(&["extract", filter, "-w", "some.pcapng", "--force"]).done();
        times.extend(packets(&place.path("some.pcapng")).iter().map(|packet| packet.0));
        let text = place.run(&["hist", "--span", "10ms", "--csv", filter]).done();
        let counts = csv(&text);
        assert_eq!(counts.values().sum::<u64>(), times.len() as u64);
        assert_eq!(counts.len(), 21, "{text}");
        let start = 1_767_600_000_000_000_000;
        let third = |time: &&u64| **time / 10_000_000 == start / 10_000_000 + 3;
        let expected = times.iter().filter(third).count() as u64;
        assert_eq!(counts["2026-01-05T08:00:00.030Z"], expected, "{filter}");
    }
    let text = place.words("hist --bins 7 tcp").done();
    assert!((4..=7).contains(&text.lines().count()), "{text}");
    assert!(text.contains(&"#".repeat(50)) && !text.contains(&"#".repeat(51)), "{text}");
    let json = place.words("hist --span 1s --json").done();
    assert_eq!(json, "{\"time\":\"2026-01-05T08:00:00Z\",\"packets\":30000}\n");
    place.words("hist --span 1ns").failed(2);
    place.words("hist --span 0s").failed(2);
}

#[test]
fn info_adds_up() {
    let place = indexed();
    let json = place.words("info --json --fields --segments").done();
    let number = |line: &str, name: &str| -> u64 {
        let rest = line.split(&format!("\"{name}\":")).nth(1).unwrap();
        rest.split([',', '}']).next().unwrap().parse().unwrap()
    };
    let head = json.lines().next().unwrap();
    assert_eq!((number(head, "packets"), number(head, "segments")), (30_000, 2));
    let all: Vec<_> = ["a.pcap", "b.pcapng"].map(|n| packets(&place.path(n))).concat();
    let wire: u64 = all.iter().map(|packet| u64::from(packet.1)).sum();
    assert_eq!(number(head, "wire_bytes"), wire);
    let sizes: u64 = place.index_files().iter().map(|f| f.metadata().unwrap().len()).sum();
    assert_eq!(number(head, "index_bytes"), sizes);
    let of = |kind: &str, name: &str| -> u64 {
        let lines = json.lines().filter(|line| line.starts_with(&format!("{{\"{kind}\":")));
        lines.map(|line| number(line, name)).sum()
    };
    assert_eq!(of("field", "bytes"), sizes);
    assert_eq!((of("segment", "packets"), of("segment", "index_bytes")), (30_000, sizes));
    let text = place.words("info --fields --segments").done();
    assert!(text.contains("packets            30000") && text.contains("ip.src"), "{text}");
    assert!(text.contains("b.pcapng") && text.contains("row map"), "{text}");
}

#[test]
fn gaps_are_found() {
    let place = Place::new();
    place.words("gen -c 10 --rate 1000 -w a.pcap").done();
    let shifted = "editcap -t 3600 a.pcap later.pcap && tapdex index a.pcap later.pcap";
    place.sh(shifted).done();
    let text = place.words("info").done();
    assert!(text.contains("gaps               1"), "{text}");
    let json = place.words("info --json").done();
    assert!(json.contains("{\"gap\":{\"from\":\"2026-01-05T08:00:00."), "{json}");
}

#[test]
fn plans_say_what_was_done() {
    let place = indexed();
    let text = place.run(&["explain", "tcp port https and ip[8] < 64"]).done();
    assert!(text.contains("filter    tcp port 443 and ip[8] < 64"), "{text}");
    assert!(text.contains("language  pcap-filter"), "{text}");
    let matches = place.count("tcp port https and ip[8] < 64");
    assert!(text.contains(&format!("\nmatches   {matches}\n")), "{text}");
    let line = |start: &str| {
        let line = text.lines().find(|line| line.starts_with(start)).unwrap();
        line.split_whitespace().map(str::to_owned).collect::<Vec<_>>()
    };
    let port = line("tcp port 443 ");
    assert_eq!(port[3..5], ["columns".to_owned(), place.count("tcp port 443").to_string()]);
    assert!(line("ip[8] < 64").contains(&"packets".to_owned()), "{text}");
    assert!(text.contains("behind VLAN tags would match"), "{text}");
    let text = place.run(&["explain", "ip.addr != 203.0.113.1"]).done();
    assert!(text.contains("language  wireshark"), "{text}");
    assert!(text.contains("neither end") && !text.contains("VLAN"), "{text}");
    let args = ["explain", "--json", "--from", "2030-01-01T00:00:00Z", "tcp"];
    let json = place.run(&args).done();
    assert!(json.contains("\"pruned_by_time\":2,\"pruned_by_keys\":0,\"asked\":0"), "{json}");
    let json = place.run(&["explain", "--json", "host 1.2.3.4"]).done();
    assert!(json.contains("\"pruned_by_keys\":2,\"asked\":0"), "{json}");
    assert!(json.contains("\"read\":0,\"matches\":0"), "{json}");
}
