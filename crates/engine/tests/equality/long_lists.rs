//! Long lists of addresses, networks and ports.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, Ipv6Addr};

use tapdex_engine::packet::{Headers, LinkType, decode};
use tapdex_engine::query::Query;
use tapdex_engine::query::filter::{Filter, Syntax};
use tapdex_engine::time::TimeRange;

use crate::compare::{Asked, NOW_NS, Tally, compare, index};
use crate::made::{PPI, WIFI, odd_frames, pcap, traffic};
use crate::oracle::Truth;

/// Every so many-th value of the packets, and others up to a number.
struct Found {
    fours: Vec<Ipv4Addr>,
    sixes: Vec<Ipv6Addr>,
    ports: Vec<u16>,
}

fn found(truth: &Truth, step: usize, count: u32) -> Found {
    let (mut fours, mut sixes, mut ports) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    let mut headers = Headers::default();
    for packet in truth.packets.iter().step_by(step) {
        let record = packet.record();
        decode(record.link, record.swapped, record.data, &mut headers);
        fours.extend([headers.ip_src, headers.ip_dst]);
        if headers.wide {
            sixes.extend([headers.ip6_src, headers.ip6_dst]);
        }
        ports.extend([headers.port_src, headers.port_dst]);
    }
    let mut list = Found {
        fours: fours.into_iter().map(Ipv4Addr::from).collect(),
        sixes: sixes.into_iter().map(Ipv6Addr::from).collect(),
        ports: ports.into_iter().collect(),
    };
    for n in 0..count {
        list.fours.push(Ipv4Addr::from(0x0A00_0000 + n * 7919));
        list.sixes.push(Ipv6Addr::from((0x2001_0DB8_u128 << 96) + u128::from(n * 31)));
        list.ports.push(u16::try_from(n * 13 % 65_536).unwrap());
    }
    list
}

fn joined(word: &str, values: impl Iterator<Item = impl ToString>, joint: &str) -> String {
    let conditions = values.map(|value| format!("{word} {}", value.to_string()));
    conditions.collect::<Vec<_>>().join(joint)
}

/// Lists that libpcap compiles in a moment, on frames that are cut and on others.
#[test]
fn lists_that_libpcap_can_compile() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let ethernet = LinkType::ETHERNET;
    let mut captures = vec![
        pcap(path("odd"), ethernet, false, &odd_frames(ethernet, false, 7)),
        pcap(path("cut"), ethernet, false, &traffic(3_000, 3, 48)),
    ];
    for link in [LinkType::RAW, LinkType::LINUX_SLL, LinkType::NULL] {
        let name = format!("link-{}", link.0);
        captures.push(pcap(path(&name), link, false, &odd_frames(link, false, 8)));
    }
    let tally = Tally::default();
    for capture in captures {
        let truth = Truth::read(&capture);
        let Found { mut fours, mut sixes, mut ports } = found(&truth, 40, 70);
        fours.truncate(110);
        sixes.truncate(110);
        ports.truncate(90);
        let nets = fours.iter().map(|four| Ipv4Addr::from(four.to_bits() & !0xFF));
        let nets = joined("net", nets.map(|net| format!("{net}/24")), " or ");
        let hosts = joined("host", fours.iter(), " or ");
        let wide = joined("host", sixes.iter(), " or ");
        let lists = [
            joined("src host", fours.iter(), " or "),
            format!("not {}", joined("host", fours.iter(), " and not ")),
            format!("{hosts} or {wide}"),
            format!("({wide}) and not tcp"),
            format!("vlan and ({hosts})"),
            format!("({nets}) and ({})", joined("port", ports.iter(), " or ")),
            joined("udp src port", ports.iter(), " or "),
            hosts,
        ];
        let asked: Vec<Asked> = lists.into_iter().map(Asked::new).collect();
        let indexed = ["auto", "roaring"].map(|codec| index(&capture, codec, 1_000));
        compare(&truth, &indexed, &asked, &tally);
    }
    tally.finish("long lists", 80, 40);
}

/// Lists of 8 KiB and more, on frames that are cut at every length up to 80.
#[test]
fn lists_beyond_the_optimiser() {
    let folder = tempfile::tempdir().unwrap();
    let mut frames = Vec::new();
    let whole = odd_frames(LinkType::ETHERNET, false, 11).into_iter().chain(traffic(150, 5, 90));
    for (at, (wire_len, data)) in whole.enumerate() {
        // Three lengths of each, all lengths in all.
        for len in [at % 81, (at + 27) % 81, (at + 54) % 81] {
            frames.push((wire_len, data[..data.len().min(len)].to_vec()));
        }
        frames.push((wire_len, data));
    }
    let capture = pcap(folder.path().join("cut"), LinkType::ETHERNET, false, &frames);
    let truth = Truth::read(&capture);
    let Found { mut fours, mut sixes, ports } = found(&truth, 20, 450);
    fours.truncate(200);
    sixes.truncate(450);
    let macs = truth.values().macs.into_iter().chain(0x0200_0000_0000..);
    let macs = macs.take(400).map(|mac| {
        let byte = |at: u32| format!("{:02x}", mac >> (40 - 8 * at) & 0xFF);
        (0..6).map(byte).collect::<Vec<_>>().join(":")
    });
    let macs = joined("ether host", macs, " or ");
    let heads = sixes.iter().map(|six| six.to_bits()).take(60);
    let heads = heads.chain((0..350).map(|n| (0x2001_0DB8_u128 << 96) + (n << 64)));
    let nets = heads.map(|head| Ipv6Addr::from(head & u128::MAX << 64));
    let nets = joined("net", nets.map(|net| format!("{net}/64")), " or ");
    let wide = joined("host", sixes.iter(), " or ");
    // What one side has often, and others.
    let others = fours.iter().cycle().skip(7);
    let ends = fours.iter().cycle().zip(others).zip(ports.iter().cycle()).take(125);
    let ends = ends.map(|((a, b), port)| {
        format!("(host {a} and host {b} and tcp port {port} and port {})", port / 2)
    });
    let ends = ends.collect::<Vec<_>>().join(" or ");
    let pairs = fours.iter().zip(fours.iter().skip(1));
    let pairs = pairs.map(|(a, b)| format!("(src host {a} and dst host {b})"));
    let pairs = pairs.collect::<Vec<_>>().join(" or ");
    let mut asked = Vec::new();
    for list in [wide, nets, macs, ends, pairs] {
        assert!(list.len() > 8 << 10, "{} bytes", list.len());
        asked.push(Asked::new(format!("not ({list})")));
        asked.push(Asked::new(format!("udp or ({list})")));
        asked.push(Asked::new(format!("vlan and not ({list})")));
        asked.push(Asked::new(list));
    }
    let tally = Tally::default();
    compare(&truth, &[index(&capture, "auto", 1_000)], &asked, &tally);
    tally.finish("lists of 8 KiB", 20, 10);
}

/// Links whose headers have a length of their own, which programs load.
#[test]
fn lists_where_headers_have_to_be_found() {
    let folder = tempfile::tempdir().unwrap();
    for link in [PPI, WIFI] {
        let frames = odd_frames(link, false, 5);
        let capture = pcap(folder.path().join(format!("{}", link.0)), link, false, &frames);
        let truth = Truth::read(&capture);
        let nets = (0..400_u128).map(|n| Ipv6Addr::from((0x2001_0DB8_u128 << 96) + (n << 64)));
        let nets = joined("src net", nets.map(|net| format!("{net}/64")), " or ");
        let hosts = (0..450_u32).map(|n| Ipv4Addr::from(0x0A00_0001 + n));
        let hosts = joined("src or dst host", hosts, " or ");
        let mut asked = Vec::new();
        for list in [nets, hosts] {
            assert!(list.len() > 8 << 10, "{} bytes", list.len());
            asked.push(Asked::new(format!("not ({list})")));
            asked.push(Asked::new(list));
        }
        let tally = Tally::default();
        compare(&truth, &[index(&capture, "auto", 1_000)], &asked, &tally);
        tally.finish("lists on other links", 4, 0);
    }
}

/// Ten thousand hosts, which libpcap does not compile: what each of them finds, together.
#[test]
fn ten_thousand_hosts() {
    let folder = tempfile::tempdir().unwrap();
    let mut frames = odd_frames(LinkType::ETHERNET, false, 9);
    frames.extend(traffic(2_000, 4, 60));
    let capture = pcap(folder.path().join("hosts"), LinkType::ETHERNET, false, &frames);
    let truth = Truth::read(&capture);
    let fours = found(&truth, 3, 10_000).fours;
    let indexed = index(&capture, "auto", 1_500);
    let ask = |text: &str| {
        let filter = Filter::parse_as(Syntax::Pcap, text, NOW_NS).unwrap();
        indexed.ask(&Query::new(filter, TimeRange::ALL)).unwrap().0
    };
    let mut expected = BTreeSet::new();
    for few in fours.chunks(25) {
        expected.extend(ask(&joined("host", few.iter(), " or ")));
    }
    let all = ask(&joined("host", fours.iter(), " or "));
    assert!(all.len() > 100 && all.len() < truth.packets.len(), "{}", all.len());
    assert_eq!(all, expected.into_iter().collect::<Vec<_>>());
}
