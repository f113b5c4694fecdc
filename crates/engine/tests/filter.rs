//! Filters: what is accepted, what it means, what errors say, and times.
//!
//! libpcap is the other implementation: what it compiles for Ethernet is accepted here and nothing
//! else is, and a filter's own text means to libpcap what was written.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::Path;
use std::process::Command;
use tapdex_engine::fields::{Load, wireshark};
use tapdex_engine::packet::LinkType;
use tapdex_engine::query::bpf::{BpfError, Program};
use tapdex_engine::query::filter::{
    Comparison, Direction, Expr, FieldTest, Filter, FilterError, IpVersion, Shift, Syntax, Term,
    Test,
};
use tapdex_engine::testing::filters;
use tapdex_engine::time::{TimeRange, format_time, parse_time};

fn parse(text: &str) -> Result<Filter, FilterError> {
    Filter::parse_as(Syntax::Pcap, text, NOW_NS)
}

const NOW_NS: u64 = 1_700_000_000_000_000_000;

fn ethernet(text: &str) -> Result<Program, BpfError> {
    Program::compile(text, LinkType::ETHERNET, false)
}

/// Numbers from a seed.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let z = self.0 ^ (self.0 >> 29);
        z.wrapping_mul(0xBF58_476D_1CE4_E5B9) >> 20
    }

    fn below(&mut self, bound: u64) -> usize {
        usize::try_from(self.next() % bound).unwrap()
    }

    fn of<T: Copy>(&mut self, list: &[T]) -> T {
        list[self.below(list.len() as u64)]
    }
}

/// A frame with headers that filters ask for, cut off somewhere at times.
#[allow(clippy::big_endian_bytes, reason = "network headers")]
fn frame(random: &mut Random) -> (Vec<u8>, u32) {
    let values = filters::Values::default();
    let mut bytes = Vec::new();
    for _ in 0..2 {
        bytes.extend_from_slice(&values.macs[random.below(4)].to_be_bytes()[2..]);
    }
    for _ in 0..random.of(&[0, 0, 0, 1, 1, 2]) {
        bytes.extend_from_slice(&random.of(&[0x8100_u16, 0x88A8, 0x9100]).to_be_bytes());
        bytes.extend_from_slice(&random.of(&values.vlans).to_be_bytes());
    }
    let six = random.below(3) == 0;
    let network = if six { 0x86DD } else { 0x0800_u16 };
    match random.below(14) {
        0 => {
            bytes.extend_from_slice(&0x8847_u16.to_be_bytes());
            for _ in 0..random.below(2) {
                bytes.extend_from_slice(&(random.of(&values.labels) << 12).to_be_bytes());
            }
            bytes.extend_from_slice(&(random.of(&values.labels) << 12 | 0x100).to_be_bytes());
        }
        1 => {
            bytes.extend_from_slice(&[0x88, 0x64, 0x11, 0, 0, 17, 0, 60, 0]);
            bytes.push(if six { 0x57 } else { 0x21 });
        }
        2 => {
            bytes.extend_from_slice(&random.of(&[0x0806_u16, 0x8035]).to_be_bytes());
            bytes.extend_from_slice(&[0, 1, 8, 0, 6, 4, 0, 1]);
            bytes.extend_from_slice(&[2; 6]);
            bytes.extend_from_slice(&random.of(&values.hosts4).to_be_bytes());
            bytes.extend_from_slice(&[0; 6]);
            bytes.extend_from_slice(&random.of(&values.hosts4).to_be_bytes());
        }
        3 => {
            bytes.extend_from_slice(&random.of(&[0_u16, 60, 1500, 0x809B, 0x6003]).to_be_bytes());
            bytes.extend_from_slice(&random.of(&[[0xFE; 4], [0x42; 4], [0xE0; 4], [0xAA; 4]]));
            bytes.extend((0..40).map(|_| random.next().to_le_bytes()[0] & 3));
        }
        _ => bytes.extend_from_slice(&network.to_be_bytes()),
    }
    let mut proto = random.of(&[6_u8, 6, 17, 1, 58, 132, 2, 47, 50]);
    if six {
        bytes.extend_from_slice(&[0x60, 0, 0, 0, 0, 40]);
        let fragment = random.below(5) == 0;
        bytes.extend_from_slice(&[if fragment { 44 } else { proto }, 64]);
        bytes.extend_from_slice(&random.of(&values.hosts6).to_be_bytes());
        bytes.extend_from_slice(&random.of(&values.hosts6).to_be_bytes());
        if fragment {
            bytes.extend_from_slice(&[proto, 0, 0, 1, 0, 0, 0, 9]);
        }
    } else {
        if random.below(8) == 0 {
            proto = 51;
        }
        let words = random.of(&[5_u8, 5, 5, 6, 15, 0]);
        let offset = random.of(&[0_u8, 0, 0, 0, 1]);
        bytes.extend_from_slice(&[0x40 | words, 0, 0, 60, 0, 1, 0, offset, 64, proto, 0, 0]);
        bytes.extend_from_slice(&random.of(&values.hosts4).to_be_bytes());
        bytes.extend_from_slice(&random.of(&values.hosts4).to_be_bytes());
        bytes.resize(bytes.len() + usize::from(words.saturating_sub(5)) * 4, 1);
    }
    for _ in 0..2 {
        bytes.extend_from_slice(&random.of(&values.ports).to_be_bytes());
    }
    bytes.extend((0..40).map(|_| random.next().to_le_bytes()[0] & 0x3F));
    if random.below(4) == 0 {
        bytes.truncate(random.below(90));
    }
    let wire_len = u32::try_from(bytes.len()).unwrap() + random.of(&[0, 0, 1000]);
    (bytes, wire_len)
}

fn frames() -> Vec<(Vec<u8>, u32)> {
    let mut random = Random(7);
    (0..400).map(|_| frame(&mut random)).collect()
}

#[test]
fn what_libpcap_compiles_is_accepted() {
    for text in filters::written() {
        if let Err(error) = ethernet(&text) {
            panic!("libpcap refuses the written filter `{text}`: {error}");
        }
        if let Err(error) = parse(&text) {
            panic!("refused:\n{}", error.render(&text));
        }
    }
    assert!(filters::written().len() >= 250);
}

/// What libpcap says of filters that it refuses for Ethernet, or for a file, and takes elsewhere.
const OF_OTHER_LINKS: &[&str] = &[
    "supported only on",
    "not supported on",
    "only supported on",
    "only on PF",
    "only on 802.11",
    "supported only with",
    "radio information not present",
    "aid supported only on ARCnet",
    "ATM",
    "SS7",
];

#[test]
fn filters_of_other_links_are_accepted() {
    for text in filters::of_other_links() {
        let filter = parse(&text).unwrap_or_else(|error| panic!("{}", error.render(&text)));
        let shown = filter.into_expr().unwrap().to_string();
        for text in [&text, &shown] {
            let error = ethernet(text).expect_err(text).to_string();
            let other = OF_OTHER_LINKS.iter().any(|part| error.contains(part));
            assert!(other, "`{text}` is refused for another reason: {error}");
        }
    }
}

/// Whether both take a filter or both refuse it, but for the differences that are meant.
fn check_acceptance(text: &str) -> bool {
    match (parse(text), ethernet(text)) {
        (Ok(_), Ok(_)) => true,
        (Err(error), Err(_)) => {
            filters::check_error(text, &error);
            false
        }
        (Ok(_), Err(error)) => {
            let error = error.to_string();
            let other = OF_OTHER_LINKS.iter().any(|part| error.contains(part));
            // The optimiser works out numbers that are not written as such.
            let optimised = error.contains("by zero") || error.contains("shift by");
            assert!(other || optimised, "`{text}` is accepted here, and libpcap says: {error}");
            false
        }
        (Err(error), Ok(_)) => {
            // Names of hosts, networks and stations are not looked up.
            assert!(error.message.contains("not looked up"), "refused:\n{}", error.render(text));
            false
        }
    }
}

#[test]
fn generated_filters_are_accepted_as_by_libpcap() {
    let accepted = (0..4000).filter(|seed| check_acceptance(&filters::generate(*seed))).count();
    assert!(accepted > 3000, "{accepted} of 4000 are filters");
}

#[test]
fn mangled_filters_are_accepted_as_by_libpcap() {
    let written = filters::written();
    let mut accepted = 0;
    for seed in 0..20_000 {
        let text = match seed % 2 {
            0 => filters::generate(seed),
            _ => written[usize::try_from(seed).unwrap() % written.len()].clone(),
        };
        accepted += usize::from(check_acceptance(&filters::mangled(&text, seed)));
    }
    assert!((2000..18_000).contains(&accepted), "{accepted} of 20000 are filters");
}

#[test]
fn the_text_of_a_filter_means_what_was_written() {
    let frames = frames();
    let mut matched = 0;
    let generated = (0..1500).map(filters::generate);
    for text in filters::written().into_iter().chain(generated) {
        let (Ok(filter), Ok(written)) = (parse(&text), ethernet(&text)) else { continue };
        let expr = filter.into_expr().unwrap();
        let shown = expr.to_string();
        let own = ethernet(&shown).unwrap_or_else(|error| panic!("`{text}` as `{shown}`: {error}"));
        for (frame, wire_len) in &frames {
            let answer = written.matches(frame, *wire_len);
            matched += usize::from(answer);
            assert_eq!(own.matches(frame, *wire_len), answer, "`{text}` as `{shown}`");
        }
        let again = parse(&shown).unwrap_or_else(|error| panic!("{}", error.render(&shown)));
        let again = again.into_expr().unwrap();
        assert_eq!(filters::without_spans(&expr), filters::without_spans(&again), "`{text}`");
        assert_eq!(again.to_string(), shown);
    }
    assert!(matched > 50_000, "{matched} matches");
}

/// A test in words of libpcap's, made from what the test says alone.
fn words(test: &Test) -> Option<String> {
    let end = |direction: &Direction| match direction {
        Direction::Src => "src",
        Direction::Dst => "dst",
        Direction::Either => "src or dst",
        Direction::Both => "src and dst",
    };
    let sign = |comparison: &Comparison| match comparison {
        Comparison::Eq => "=",
        Comparison::Ne => "!=",
        Comparison::Lt => "<",
        Comparison::Le => "<=",
        Comparison::Gt => ">",
        Comparison::Ge => ">=",
    };
    Some(match test {
        Test::EtherType(kind) => format!("ether proto {kind}"),
        Test::IpProto { version: None, proto } => format!("proto {proto}"),
        Test::IpProto { version: Some(IpVersion::V4), proto } => {
            format!("ip and ip[9] = {proto}")
        }
        Test::IpProto { version: Some(IpVersion::V6), proto } => format!("ip6 proto {proto}"),
        Test::Host4 { ip, arp, rarp, direction, address, mask } => {
            let net = |proto| {
                let (address, mask) = (Ipv4Addr::from_bits(*address), Ipv4Addr::from_bits(*mask));
                format!("{proto} {} net {address} mask {mask}", end(direction))
            };
            let protos = [(ip, "ip"), (arp, "arp"), (rarp, "rarp")];
            let nets = protos.iter().filter(|(is, _)| **is).map(|(_, proto)| net(proto));
            nets.collect::<Vec<_>>().join(" or ")
        }
        Test::Host6 { direction, address, mask } => {
            let address = Ipv6Addr::from_bits(*address);
            format!("ip6 {} net {address}/{}", end(direction), mask.count_ones())
        }
        Test::Mac { direction, address } => {
            format!("ether {} {address:012x}", end(direction))
        }
        Test::EtherMulticast => "ether[0] & 1 = 1".to_owned(),
        Test::IpMulticast => "ip[16] >= 224".to_owned(),
        Test::Ip6Multicast => "ip6[24] = 255".to_owned(),
        Test::Port { transport, direction, ports } => {
            let proto = match transport {
                None => "",
                Some(6) => "tcp",
                Some(17) => "udp",
                Some(132) => "sctp",
                Some(other) => panic!("{other} has no ports"),
            };
            format!("{proto} {} portrange {}-{}", end(direction), ports.start(), ports.end())
        }
        Test::Vlan(None) => {
            "ether[12:2] = 0x8100 or ether[12:2] = 0x88a8 or ether[12:2] = 0x9100".to_owned()
        }
        Test::Vlan(Some(id)) => format!("vlan {id}"),
        Test::Mpls(None) => "ether proto 0x8847".to_owned(),
        Test::Mpls(Some(label)) => {
            format!("ether proto 0x8847 and ether[14:4] >> 12 = {label}")
        }
        Test::Length(comparison, value) => format!("len {} {value}", sign(comparison)),
        Test::TcpFlags { mask, comparison, value } => {
            format!("tcp[13] & {mask} {} {value}", sign(comparison))
        }
        Test::Icmp { version, code, comparison, value } => {
            let proto = if *version == IpVersion::V4 { "icmp" } else { "icmp6" };
            format!("{proto}[{}] {} {value}", usize::from(*code), sign(comparison))
        }
        Test::Loaded { load, within, mask, down, comparison, value } => {
            let Load { header, at, size, bits, .. } = load;
            let tcp = Test::IpProto { version: Some(IpVersion::V4), proto: 6 };
            let all = [Test::EtherType(0x0800), Test::EtherType(0x86DD), tcp];
            let headers = ["ip", "ip6", "tcp"].iter().zip(all);
            assert!(headers.into_iter().any(|(name, test)| name == header && test == **within));
            assert_eq!(mask & !bits, 0, "bits that the field does not have");
            format!("({header}[{at}:{size}] & {mask}) >> {down} {} {value}", sign(comparison))
        }
        Test::Opaque { .. } | Test::Field(_) | Test::Flow { .. } => return None,
    })
}

fn terms(expr: &Expr, found: &mut Vec<Term>) {
    match expr {
        Expr::And(list) | Expr::Or(list) => list.iter().for_each(|expr| terms(expr, found)),
        Expr::Not(inner) => terms(inner, found),
        Expr::Term(term) => found.push(term.clone()),
    }
}

#[test]
fn tests_say_what_libpcap_does() {
    let frames = frames();
    let mut seen = BTreeMap::new();
    let generated = (0..1500).map(filters::generate);
    for text in filters::written().into_iter().chain(generated) {
        let Some(expr) = parse(&text).ok().and_then(Filter::into_expr) else { continue };
        let mut found = Vec::new();
        terms(&expr, &mut found);
        for term in found.into_iter().filter(|term| term.shift() == Shift::Tags(0)) {
            let name = format!("{:?}", term.test());
            let name = name.split([' ', '(', '{']).next().unwrap().to_owned();
            let (own, within) = match term.test() {
                Test::Opaque { within: None } => continue,
                Test::Opaque { within: Some(within) } => (words(within), true),
                test => (words(test), false),
            };
            let own = own.unwrap();
            let (Ok(program), Ok(own_program)) = (ethernet(term.text()), ethernet(&own)) else {
                panic!("`{}` and `{own}`", term.text());
            };
            let mut matched = 0;
            for (frame, wire_len) in &frames {
                // A frame that is cut off may reject either before the other: what holds of it is
                // decided by the program.
                if frame.len() < 60 {
                    continue;
                }
                let answer = program.matches(frame, *wire_len);
                let own_answer = own_program.matches(frame, *wire_len);
                matched += usize::from(own_answer);
                let agrees = if within { own_answer || !answer } else { own_answer == answer };
                assert!(agrees, "`{}` is not `{own}` (of `{text}`)", term.text());
            }
            *seen.entry(name).or_insert(0) += matched;
        }
    }
    let kinds: Vec<&str> = seen.iter().filter(|(_, n)| **n > 0).map(|(k, _)| k.as_str()).collect();
    let all = [
        "EtherMulticast",
        "EtherType",
        "Host4",
        "Host6",
        "Icmp",
        "Ip6Multicast",
        "IpMulticast",
        "IpProto",
        "Length",
        "Loaded",
        "Mac",
        "Mpls",
        "Opaque",
        "Port",
        "TcpFlags",
        "Vlan",
    ];
    assert_eq!(kinds, all);
}

#[test]
fn filters_are_taken_apart() {
    // The shift of each term, with its text.
    let shown = |text: &str| {
        let mut found = Vec::new();
        terms(&parse(text).unwrap().into_expr().unwrap(), &mut found);
        let shift = |term: &Term| match term.shift() {
            Shift::Tags(tags) => tags.to_string(),
            Shift::Elsewhere => "-".to_owned(),
        };
        found.iter().map(|term| format!("{}:{}", shift(term), term.text())).collect::<Vec<_>>()
    };
    assert_eq!(
        shown("ip or (vlan 5 and ip) or not vlan and udp"),
        ["0:ip", "0:vlan 5", "1:ip", "1:vlan", "2:udp"]
    );
    assert_eq!(shown("mpls 7 and ip or tcp"), ["0:mpls 7", "-:ip", "-:tcp"]);
    assert_eq!(shown("pppoes and ip"), ["0:pppoes", "-:ip"]);
    assert_eq!(shown("geneve and ip"), ["0:geneve", "-:ip"]);
    let text = |text: &str| parse(text).unwrap().into_expr().unwrap().to_string();
    assert_eq!(text("tcp or udp and icmp"), "tcp or udp and icmp");
    assert_eq!(text("tcp or (udp and icmp)"), "tcp or (udp and icmp)");
    assert_eq!(text("not host 10.0.0.1 and 10.0.0.2"), "not host 10.0.0.1 and host 10.0.0.2");
    assert_eq!(
        text("tcp dst port 21 or 20 or \\ssh"),
        "tcp dst port 21 or tcp dst port 20 or tcp dst port 22"
    );
    assert_eq!(
        text("host (10.0.0.1 or not 10.1)"),
        "host 10.0.0.1 or not net 10.1.0.0 mask 255.255.0.0"
    );
    assert_eq!(text("tcp port 80 or (udp) or 443"), "tcp port 80 or udp or tcp port 443");
    assert_eq!(text("len % 3 + 1 = 2"), "len % (3 + 1) = 2");
    assert_eq!(text("len - 1 - 2 * 3 = 2"), "len - 1 - (2 * 3) = 2");
    assert_eq!(parse("").unwrap().expr(), None);
    assert_eq!(parse(" \n").unwrap().expr(), None);
    // What only the left side of a sum presumes of a packet is presumed of it.
    let within = |text: &str| match parse(text).unwrap().into_expr().unwrap() {
        Expr::Term(term) => match term.test() {
            Test::Opaque { within } => within.clone().map(|within| *within),
            other => panic!("{other:?}"),
        },
        other => panic!("{other:?}"),
    };
    let tcp = Test::IpProto { version: Some(IpVersion::V4), proto: 6 };
    assert_eq!(within("tcp[0] + ip6[0] > 3"), Some(tcp.clone()));
    assert_eq!(within("len + tcp[0] > 3"), None);
    assert_eq!(within("2 & tcp[13] != 0"), None);
    assert_eq!(within("len > tcp[0]"), Some(tcp));
    assert_eq!(within("ether[ip[0]] > 3"), Some(Test::EtherType(0x0800)));
}

#[test]
fn errors_point_at_what_is_wrong() {
    let rendered: String = ERRORS
        .trim()
        .split("\n\n")
        .map(|case| {
            let (_, text) = case.split_once("\n  ").unwrap();
            let text = text.split('\n').next().unwrap();
            let error = Filter::parse(text, NOW_NS).expect_err(text);
            filters::check_error(text, &error);
            format!("{}\n\n", error.render(text))
        })
        .collect();
    assert_eq!(rendered.trim(), ERRORS.trim());
}

/// Messages, filters and the marks under them.
const ERRORS: &str = include_str!("golden/filter_errors.txt");

#[test]
fn deep_filters_are_refused_not_overflowing() {
    for deep in [100_000, 1_000_000] {
        for (open, close) in [("(", ")"), ("not ", ""), ("!", ""), ("ether[", "] = 1"), ("-", "")] {
            for middle in ["tcp", "1", "1 < 2"] {
                let text = format!("{}{middle}{}", open.repeat(deep), close.repeat(deep));
                for syntax in [Syntax::Pcap, Syntax::Wireshark] {
                    let error = Filter::parse_as(syntax, &text, NOW_NS).unwrap_err();
                    filters::check_error(&text, &error);
                }
            }
        }
        for part in ["tcp and udp or ", "1 + ", "len % "] {
            let text = format!("{}tcp", part.repeat(deep));
            assert!(parse(&text).is_err());
        }
    }
    // What is long without being deep is fine.
    let ports = |joint| (0..5000).map(|p| format!("port {p}")).collect::<Vec<_>>().join(joint);
    let Some(Expr::Or(list)) = parse(&ports(" or ")).unwrap().into_expr() else {
        panic!("no list")
    };
    assert_eq!(list.len(), 5000);
    let turns = "tcp and udp or ".repeat(200) + "tcp";
    let shown = parse(&turns).unwrap().into_expr().unwrap().to_string();
    assert_eq!(shown, turns);
}

/// What libpcap takes a thousand times within each other is taken here, on a small stack as well.
#[test]
fn a_thousand_within_each_other() {
    let deep = |open: &str, middle: &str, close: &str| {
        format!("{}{middle}{}", open.repeat(1_000), close.repeat(1_000))
    };
    let texts = [
        deep("(", "tcp", ")"),
        deep("not ", "tcp", ""),
        deep("!(", "tcp", ")"),
        deep("(", "len", ")") + " > 5",
        deep("not (udp or ", "tcp", ")"),
        format!("0 < {}", deep("-", "len", "")),
        format!("len{} > 2000", " + 1".repeat(1_000)),
        "tcp and udp or ".repeat(500) + "tcp",
    ];
    let work = || {
        for text in &texts {
            let expr = parse(text).unwrap_or_else(|error| panic!("{}", error.message)).into_expr();
            let shown = expr.unwrap().to_string();
            let (written, again) = (ethernet(text).unwrap(), ethernet(&shown).unwrap());
            for (frame, wire_len) in frames().iter().take(100) {
                let matches = written.matches(frame, *wire_len);
                assert_eq!(again.matches(frame, *wire_len), matches, "{}", &text[..20]);
            }
            let parsed = parse(&shown).unwrap().into_expr().unwrap();
            assert_eq!(parsed.to_string(), shown);
        }
    };
    let stack = std::thread::Builder::new().stack_size(1 << 20);
    std::thread::scope(|scope| stack.spawn_scoped(scope, work).unwrap().join().unwrap());
}

#[test]
fn times_limit_the_whole_filter() {
    const HOUR: u64 = 3_600_000_000_000;
    let filter = parse("after 3h ago and before 45m ago and port 80").unwrap();
    assert_eq!(filter.times().from_ns, (NOW_NS - 3 * HOUR));
    assert_eq!(filter.times().to_ns, Some(NOW_NS - HOUR * 3 / 4));
    assert_eq!(filter.into_expr().unwrap().to_string(), "port 80");

    let filter = parse("after 2012-11-03T11:05:00-07:00").unwrap();
    assert_eq!(filter.times().from_ns, (1_351_965_900_000_000_000));
    assert_eq!((filter.times().to_ns, filter.expr()), (None, None));

    let filter = parse("port 80 and after 100 and 443 and after 50 && before now").unwrap();
    assert_eq!(filter.times().from_ns, (100_000_000_000));
    assert_eq!(filter.times().to_ns, Some(NOW_NS));
    assert_eq!(filter.into_expr().unwrap().to_string(), "port 80 and port 443");

    let text = "start 2016-09-22 8:40:53 and end 2016-09-22 10:43:54 and host 10.0.0.1";
    let filter = parse(text).unwrap();
    let (from, to) = (filter.times().from_ns, filter.times().to_ns.unwrap());
    assert_eq!(to - from, 2 * HOUR + 181_000_000_000);
    assert_eq!(filter.into_expr().unwrap().to_string(), "host 10.0.0.1");

    let filter = parse("tcp or udp and before 100 and (port 80 or port 53)").unwrap();
    assert_eq!(filter.into_expr().unwrap().to_string(), "tcp or udp and (port 80 or port 53)");
    for text in [
        "after 100 or tcp",
        "tcp and after 100 or udp",
        "tcp or after 100",
        "not after 100",
        "(after 100 and tcp)",
        "(after 100)",
        "after 100 and not before 200",
    ] {
        let message = parse(text).unwrap_err().message;
        assert!(message.starts_with("times belong to the whole filter"), "`{text}`: {message}");
    }
    for text in ["after", "after and tcp", "after noon", "after 2012-13-01", "after 3 hours"] {
        filters::check_error(text, &parse(text).unwrap_err());
    }
}

#[test]
fn times_are_what_people_write() {
    let utc = |text: &str| parse_time(text, NOW_NS, true);
    let known = [
        ("now", NOW_NS),
        (" now ", NOW_NS),
        ("0", 0),
        ("1351965900", 1_351_965_900_000_000_000),
        ("1351965900.5", 1_351_965_900_500_000_000),
        ("1351965900.123456789123456789", 1_351_965_900_123_456_789),
        ("2012-11-03T18:05:00Z", 1_351_965_900_000_000_000),
        ("2012-11-03 18:05:00Z", 1_351_965_900_000_000_000),
        ("2012-11-03T11:05:00-07:00", 1_351_965_900_000_000_000),
        ("2012-11-03T19:05:00.25+01:00", 1_351_965_900_250_000_000),
        ("2012-11-03 18:05:00", 1_351_965_900_000_000_000),
        ("2012-11-03 18:05:00.000000001", 1_351_965_900_000_000_001),
        ("2012-11-03 18:05", 1_351_965_900_000_000_000),
        ("2012-11-03", 1_351_900_800_000_000_000),
        ("1969-12-31T23:59:59Z", 0),
        ("2555-01-01T00:00:00Z", u64::MAX),
        ("-15m", NOW_NS - 900_000_000_000),
        ("15m ago", NOW_NS - 900_000_000_000),
        ("15 m ago", NOW_NS - 900_000_000_000),
        ("1.5h ago", NOW_NS - 5_400_000_000_000),
        ("7ns ago", NOW_NS - 7),
        ("7us ago", NOW_NS - 7_000),
        ("7ms ago", NOW_NS - 7_000_000),
        ("7s ago", NOW_NS - 7_000_000_000),
        ("7d ago", NOW_NS - 604_800_000_000_000),
        ("1w ago", NOW_NS - 604_800_000_000_000),
    ];
    for (text, time) in known {
        assert_eq!(utc(text), Ok(time), "{text}");
    }
    for text in [
        "",
        "-",
        "ago",
        "m ago",
        "5 ago",
        "5x ago",
        "1.2.3",
        "1.",
        ".5",
        "tomorrow",
        "2012-02-30",
        "2012-11-03T25:00:00Z",
        "99999999999999999999999999999999999999999",
        "1e9",
        "T",
        " T:",
        "99999999999999999999999999999999999999w ago",
        "\u{e9} ago",
        "0\u{e9}",
        "12:00",
    ] {
        assert!(utc(text).is_err(), "{text}");
    }
    assert_eq!(format_time(0), "1970-01-01T00:00:00.000000000Z");
    assert_eq!(format_time(NOW_NS + 12), "2023-11-14T22:13:20.000000012Z");
    assert_eq!(format_time(u64::MAX), "2554-07-21T23:34:33.709551615Z");
    for ns in [0, 1, NOW_NS, u64::MAX] {
        assert_eq!(utc(&format_time(ns)), Ok(ns));
    }
}

fn field(name: &'static str, values: Vec<std::ops::RangeInclusive<u128>>) -> Test {
    Test::Field(FieldTest { field: wireshark(name).unwrap(), values })
}

/// An expression of fields as text that shows how it is put together.
fn shape(expr: &Expr) -> String {
    let list = |list: &[Expr]| list.iter().map(shape).collect::<Vec<_>>().join(", ");
    match expr {
        Expr::And(parts) => format!("and({})", list(parts)),
        Expr::Or(parts) => format!("or({})", list(parts)),
        Expr::Not(inner) => format!("not({})", shape(inner)),
        Expr::Term(term) => term.text().to_owned(),
    }
}

#[test]
fn languages_are_told_apart() {
    for text in [
        "ip.addr == 10.0.0.1",
        "tcp.port==80",
        "tcp and ip.src eq 10.0.0.1",
        "!ipv6",
        "icmpv6 or udp.port in {53}",
        "(frame.len>100)",
        "inner.port == 80",
        "tunnel.id == 7",
        "tcp.flags.syn == 1 && tcp.flags.ack == 0",
        "ip.adr == 1",
    ] {
        assert_eq!(Syntax::of(text), Syntax::Wireshark, "{text}");
    }
    for text in filters::written().iter().chain(&filters::of_other_links()) {
        assert_eq!(Syntax::of(text), Syntax::Pcap, "{text}");
    }
    for text in ["", "tcp", "after 2012-11-03 11:05:00.5", "host 10.0.0.1", "ip proto ipv6"] {
        assert_eq!(Syntax::of(text), Syntax::Pcap, "{text}");
    }
    // Words are told apart by more than blanks.
    for text in [
        "!proto ipv6",
        "(proto ipv6-icmp)",
        "not (proto \\ipv6)",
        "tcp or(proto(ipv6))",
        "ip protochain ipv6",
        "proto 6 or ipv6-icmp",
        "ip proto (ipv6 or ipv6-icmp)",
    ] {
        assert_eq!(Syntax::of(text), Syntax::Pcap, "{text}");
        assert!(ethernet(text).is_ok() && Filter::parse(text, NOW_NS).is_ok(), "{text}");
    }
    for text in ["ipv6 and tcp", "(icmpv6)", "not(ipv6)", "!icmpv6||tcp", "ip.proto == 41 && ipv6"]
    {
        assert_eq!(Syntax::of(text), Syntax::Wireshark, "{text}");
    }
}

#[test]
fn display_filters_are_taken_apart() {
    let shape = |text: &str| {
        let filter = Filter::parse_as(Syntax::Wireshark, text, NOW_NS);
        let filter = filter.unwrap_or_else(|error| panic!("{}", error.render(text)));
        shape(&filter.into_expr().unwrap())
    };
    let same = [
        ("tcp || udp && icmp", "or(tcp, and(udp, icmp))"),
        ("(tcp or udp) and icmp", "and(or(tcp, udp), icmp)"),
        ("not tcp and udp", "and(not(tcp), udp)"),
        ("! ip.addr == 10.0.0.1", "not(ip.addr == 10.0.0.1)"),
        ("ip.addr != 10.0.0.1", "and(ip.addr, not(ip.addr == 10.0.0.1))"),
        ("tcp and ip.addr ne 10.0.0.1", "and(tcp, ip.addr, not(ip.addr == 10.0.0.1))"),
        ("ip.addr !== 0.0.0.0", "ip.addr >= 0.0.0.1"),
        ("tcp.port === 80", "and(tcp.port, not(tcp.port in {0..79, 81..65535}))"),
        ("tcp.port any_ne 80", "tcp.port in {0..79, 81..65535}"),
        ("ip.src == 10.1.2.3/8", "ip.src in {10.0.0.0..10.255.255.255}"),
        ("tcp.port in {443, 80 8000..8080, 81}", "tcp.port in {80..81, 443, 8000..8080}"),
        ("tcp.port gt 1023", "tcp.port >= 1024"),
        ("tcp.port lt 0", "tcp.port < 0"),
        ("tcp.dstport ge 0x10", "tcp.dstport >= 16"),
        ("frame.len<=010", "frame.len <= 8"),
        ("eth.addr == 02-00-00-00-00-01", "eth.addr == 02:00:00:00:00:01"),
        ("eth.dst == 0200.0000.0001", "eth.dst == 02:00:00:00:00:01"),
        (
            "ipv6.addr == fe80::/10",
            "ipv6.addr in {fe80::..febf:ffff:ffff:ffff:ffff:ffff:ffff:ffff}",
        ),
        ("tcp.flags.syn == true", "tcp.flags.syn == 1"),
        ("tunnel.type == vxlan", "tunnel.type == 3"),
    ];
    for (text, expected) in same {
        assert_eq!(shape(text), expected, "{text}");
    }
    let single = |text: &str| match Filter::parse(text, NOW_NS).unwrap().into_expr().unwrap() {
        Expr::Term(term) if term.shift() == Shift::Tags(0) => term.test().clone(),
        other => panic!("{other:?}"),
    };
    assert_eq!(single("tcp.flags.syn == 1"), field("tcp.flags.syn", vec![1..=1]));
    assert_eq!(single("tcp.port"), field("tcp.port", vec![0..=u128::MAX]));
    assert_eq!(single("tcp.port < 0"), field("tcp.port", vec![]));
    assert_eq!(single("tcp.port <= 65535"), field("tcp.port", vec![0..=65535]));
    assert_eq!(single("ip.addr == 10.0.0.0/31"), field("ip.addr", vec![167_772_160..=167_772_161]));
    assert_eq!(single("tcp.port in {1..3, 2..5, 6}"), field("tcp.port", vec![1..=6]));
    assert_eq!(single("ipv6.src == ::/0"), field("ipv6.src", vec![0..=u128::MAX]));
}

#[test]
fn display_filters_have_times() {
    let parse = |text: &str| Filter::parse(text, NOW_NS);
    let filter = parse("frame.time >= \"2012-11-03T18:05:00Z\" && frame.time_epoch < 1351965901.5");
    let filter = filter.unwrap();
    assert_eq!(filter.times().from_ns, (1_351_965_900_000_000_000));
    assert_eq!((filter.times().to_ns, filter.expr()), (Some(1_351_965_901_500_000_000), None));
    let filter =
        parse("frame.time_epoch > 1 and tcp.port == 80 and frame.time_epoch <= 2").unwrap();
    assert_eq!(filter.times().from_ns, (1_000_000_001));
    assert_eq!(filter.times().to_ns, Some(2_000_000_001));
    assert_eq!(filter.into_expr().unwrap().to_string(), "tcp.port == 80");
    let filter = parse("frame.time_epoch == 1").unwrap();
    let expected = TimeRange { from_ns: 1_000_000_000, to_ns: Some(1_000_000_001) };
    assert_eq!(filter.times(), expected);
    for text in [
        "frame.time_epoch > 1 or tcp",
        "tcp and frame.time_epoch > 1 or udp",
        "udp or tcp and frame.time_epoch > 1",
        "not frame.time_epoch > 1",
        "(frame.time_epoch > 1)",
    ] {
        let message = parse(text).unwrap_err().message;
        assert!(message.starts_with("times limit the whole filter"), "`{text}`: {message}");
    }
    for text in ["frame.time", "frame.time_epoch != 1", "frame.time > tomorrow", "frame.time >"] {
        filters::check_error(text, &parse(text).unwrap_err());
    }
}

/// The packets of a capture that tshark shows for a display filter; `None` without tshark.
fn tshark(capture: &Path, filter: &str) -> Option<String> {
    let output = Command::new("tshark")
        .args(["-n", "-r"])
        .arg(capture)
        .args(["-Y", filter, "-T", "fields", "-e", "frame.number"])
        .output()
        .ok()?;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(String::from_utf8(output.stdout).unwrap())
}

#[test]
fn the_text_of_a_display_filter_means_what_was_written() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("frames.pcap");
    let mut bytes = Vec::new();
    let words = [0xA1B2_C3D4_u32, 0x0004_0002, 0, 0, 262_144, 1];
    words.iter().for_each(|word| bytes.extend_from_slice(&word.to_le_bytes()));
    for (at, (frame, wire_len)) in frames().iter().enumerate() {
        let len = u32::try_from(frame.len()).unwrap();
        let second = 1_700_000_000 + u32::try_from(at).unwrap();
        let words = [second, 0, len, *wire_len];
        words.iter().for_each(|word| bytes.extend_from_slice(&word.to_le_bytes()));
        bytes.extend_from_slice(frame);
    }
    std::fs::write(&path, bytes).unwrap();
    // Each has several conditions, because tshark takes long to start.
    for text in [
        "ip.addr != 10.0.0.1 or tcp.port in {80, 443, 8000..8080} and not udp",
        "ip.src == 10.0.0.0/8 && !(tcp.flags.syn == 1) || icmp.type >= 8",
        "eth.dst == 02:00:00:00:00:01 and (vlan.id == 5 or vlan.id > 99 or arp) or mpls.label < 17",
        "tcp.port === 80 or udp.port !== 53 or ipv6.addr != fe80::1 or frame.len < 80",
        "ip.proto == 6 or ipv6.nxt == 58 or arp.src.proto_ipv4 == 10.0.0.1 or eth.type lt 0x900",
    ] {
        let shown = Filter::parse(text, NOW_NS).unwrap().into_expr().unwrap().to_string();
        assert_ne!(text, shown);
        let (Some(written), Some(own)) = (tshark(&path, text), tshark(&path, &shown)) else {
            return;
        };
        assert_eq!(written, own, "`{text}` as `{shown}`");
        let count = written.lines().count();
        assert!((5..395).contains(&count), "`{text}` shows {count} of 400");
    }
}

#[test]
fn the_machine_is_libpcaps() {
    let frames = frames();
    let handle = pcap::Capture::dead(pcap::Linktype::ETHERNET).unwrap();
    let mut matched = 0;
    for text in filters::written().into_iter().chain((0..800).map(filters::generate)) {
        let (Ok(own), Ok(theirs)) = (ethernet(&text), handle.compile(&text, true)) else {
            continue;
        };
        for (frame, _) in &frames {
            let wire_len = u32::try_from(frame.len()).unwrap();
            let answer = theirs.filter(frame);
            matched += usize::from(answer);
            assert_eq!(own.matches(frame, wire_len), answer, "`{text}` of {frame:02x?}");
        }
    }
    assert!(matched > 50_000, "{matched} matches");
}
