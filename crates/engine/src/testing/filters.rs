//! Filters to try: a written list, filters made from a seed, and the body of the fuzz target.

mod lists;

use crate::query::filter::{Expr, Filter, FilterError, Syntax};

/// Values for filters to ask for; those of a capture make filters that match something.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Values {
    /// IPv4 addresses.
    pub hosts4: Vec<u32>,
    /// IPv6 addresses.
    pub hosts6: Vec<u128>,
    /// MAC addresses.
    pub macs: Vec<u64>,
    /// Ports.
    pub ports: Vec<u16>,
    /// VLAN ids.
    pub vlans: Vec<u16>,
    /// MPLS labels.
    pub labels: Vec<u32>,
    /// IP protocols.
    pub protocols: Vec<u8>,
    /// EtherTypes.
    pub ethertypes: Vec<u16>,
    /// Lengths of packets.
    pub lengths: Vec<u32>,
}

impl Default for Values {
    fn default() -> Self {
        Self {
            hosts4: vec![0x0A00_0001, 0x0A00_0002, 0x0A01_0203, 0xC0A8_0101, 0xE000_0001, 0],
            hosts6: vec![1, 0xFE80 << 112 | 1, 0x2001_0DB8 << 96 | 5, 0xFF02 << 112 | 0xFB],
            macs: vec![0x0200_0000_0001, 0x0200_0000_0002, 0xFFFF_FFFF_FFFF, 0x3333_0000_00FB],
            ports: vec![22, 53, 80, 123, 443, 8080, 33434, 65535],
            vlans: vec![0, 5, 100, 4095],
            labels: vec![0, 16, 100_000, 0xF_FFFF],
            protocols: vec![1, 2, 4, 6, 17, 41, 47, 50, 58, 89, 132],
            ethertypes: vec![0x0800, 0x0806, 0x86DD, 0x8100, 0x8847, 0x8863, 0x8864, 0x88CC],
            lengths: vec![0, 60, 64, 100, 576, 1500, 1514],
        }
    }
}

/// Filters that libpcap compiles for Ethernet, every primitive among them.
pub fn written() -> Vec<String> {
    lines(lists::WRITTEN)
}

/// Filters that libpcap compiles for other links than Ethernet, or for no file.
pub fn of_other_links() -> Vec<String> {
    lines(lists::OTHER_LINKS)
}

fn lines(text: &str) -> Vec<String> {
    text.lines().map(str::trim).filter(|line| !line.is_empty()).map(str::to_owned).collect()
}

/// A filter made from a seed, with values that are made up.
pub fn generate(seed: u64) -> String {
    Values::default().generate(seed)
}

impl Values {
    /// A filter made from a seed, with these values. A list that is empty stands for made-up ones.
    pub fn generate(&self, seed: u64) -> String {
        let fallback = Self::default();
        let mut maker = Maker { values: self, fallback: &fallback, state: seed, moved: false };
        maker.list(3)
    }
}

/// The same filter with a token dropped, doubled, exchanged or put in, by a seed.
pub fn mangled(text: &str, seed: u64) -> String {
    let values = Values::default();
    let mut maker = Maker { values: &values, fallback: &values, state: seed, moved: false };
    let spaced = ['(', ')', '[', ']', '!', '=', '<', '>', '&', '|', '+', '-', '*', '/', ':']
        .iter()
        .fold(text.to_owned(), |text, sign| match sign {
            '-' | ':' | '=' | '<' | '>' | '&' | '|' | '!' | '/' => text,
            _ => text.replace(*sign, &format!(" {sign} ")),
        });
    let mut tokens: Vec<String> = spaced.split_whitespace().map(str::to_owned).collect();
    for _ in 0..=maker.below(2) {
        let at = maker.below(tokens.len().max(1));
        let word = maker.of(TOKENS).to_string();
        match maker.below(5) {
            0 if !tokens.is_empty() => _ = tokens.remove(at),
            1 if !tokens.is_empty() => {
                let other = maker.below(tokens.len());
                tokens.swap(at, other);
            }
            2 if !tokens.is_empty() => tokens.insert(at, tokens[at].clone()),
            3 if !tokens.is_empty() => tokens[at] = word,
            _ => tokens.insert(at.min(tokens.len()), word),
        }
    }
    tokens.join(" ")
}

const TOKENS: &[&str] = &[
    "and",
    "or",
    "not",
    "!",
    "(",
    ")",
    "[",
    "]",
    "host",
    "net",
    "port",
    "portrange",
    "src",
    "dst",
    "proto",
    "protochain",
    "tcp",
    "udp",
    "ip",
    "ip6",
    "arp",
    "ether",
    "icmp",
    "vlan",
    "mpls",
    "pppoes",
    "pppoed",
    "geneve",
    "len",
    "less",
    "greater",
    "byte",
    "broadcast",
    "multicast",
    "mask",
    "10.0.0.1",
    "10.1",
    "10",
    "0x10",
    "010",
    "09",
    "1.2.3.4.5",
    "1.2.3.4.5.6",
    "::1",
    "fe80::/10",
    "fe80::1/64",
    "02:00:00:00:00:01",
    "0200.0000.0001",
    "80",
    "80-90",
    "http",
    "\\tcp",
    "\\ip",
    "+",
    "-",
    "*",
    "/",
    "%",
    "^",
    "&",
    "|",
    "<<",
    ">>",
    "=",
    "==",
    "!=",
    "<",
    "<=",
    ">",
    ">=",
    ":",
    "tcp[13]",
    "ip[0]",
    "icmp6[0]",
    "tcp-syn",
    "llc",
    "ui",
    "iso",
    "isis",
    "l1",
    "stp",
    "decnet",
    "atalk",
    "radio",
    "ah",
    "gateway",
    "type",
    "$1f",
    "0",
    "1",
    "2",
    "4",
    "65536",
    "70000",
];

/// Makes filters.
struct Maker<'v> {
    values: &'v Values,
    fallback: &'v Values,
    state: u64,
    /// A primitive that moves the headers was written: what can follow is limited.
    moved: bool,
}

impl Maker<'_> {
    fn random(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    fn below(&mut self, bound: usize) -> usize {
        let bound = bound.max(1) as u64;
        usize::try_from(self.random() % bound).unwrap()
    }

    fn of<T: Copy>(&mut self, list: &[T]) -> T {
        list[self.below(list.len())]
    }

    fn value<T: Copy>(&mut self, pick: impl Fn(&Values) -> &Vec<T>) -> T {
        let own = pick(self.values);
        let list = if own.is_empty() { pick(self.fallback) } else { own };
        list[self.below(list.len())]
    }

    fn list(&mut self, depth: usize) -> String {
        let mut text = self.operand(depth);
        for _ in 0..self.below(3) {
            let joint = self.of(&[" and ", " or ", " && ", " || ", " and ", " or "]);
            let operand = self.operand(depth);
            text = format!("{text}{joint}{operand}");
        }
        text
    }

    fn operand(&mut self, depth: usize) -> String {
        match self.below(10) {
            0 => format!("not {}", self.operand(depth)),
            1 => format!("! {}", self.operand(depth)),
            2..4 if depth > 0 => format!("({})", self.list(depth - 1)),
            _ => self.primitive(),
        }
    }

    fn host4(&mut self) -> String {
        std::net::Ipv4Addr::from_bits(self.value(|values| &values.hosts4)).to_string()
    }

    fn host6(&mut self) -> String {
        std::net::Ipv6Addr::from_bits(self.value(|values| &values.hosts6)).to_string()
    }

    fn host(&mut self) -> String {
        if self.below(4) == 0 { self.host6() } else { self.host4() }
    }

    fn mac(&mut self) -> String {
        let address = self.value(|values| &values.macs);
        let hex = format!("{address:012x}");
        let pairs: Vec<&str> = (0..6).map(|at| &hex[2 * at..2 * at + 2]).collect();
        match self.below(5) {
            0 => pairs.join("-"),
            1 => pairs.join("."),
            2 => [&hex[..4], &hex[4..8], &hex[8..]].join("."),
            3 => hex,
            _ => pairs.join(":"),
        }
    }

    fn net(&mut self) -> String {
        let address = self.value(|values| &values.hosts4);
        let len = self.of(&[0_u32, 8, 12, 16, 20, 24, 30, 32]);
        let mask = u32::MAX.checked_shl(32 - len).unwrap_or(0);
        let net = std::net::Ipv4Addr::from_bits(address & mask);
        let [a, b, c, _] = net.octets();
        match self.below(6) {
            0 => format!("{a}.{b}"),
            1 => format!("{a}.{b}.{c}"),
            2 => format!("{a}"),
            3 => format!("{net} mask {}", std::net::Ipv4Addr::from_bits(mask)),
            4 => {
                let address = self.value(|values| &values.hosts6);
                let len = self.of(&[0_u32, 10, 32, 64, 127, 128]);
                let mask = u128::MAX.checked_shl(128 - len).unwrap_or(0);
                format!("{}/{len}", std::net::Ipv6Addr::from_bits(address & mask))
            }
            _ => format!("{net}/{len}"),
        }
    }

    fn end(&mut self) -> &'static str {
        self.of(&["", "", "src ", "dst ", "src or dst ", "src and dst ", "dst and src "])
    }

    fn primitive(&mut self) -> String {
        match self.below(24) {
            0..4 => {
                let end = self.end();
                match self.below(4) {
                    0 => format!("{end}host ({} or {})", self.host(), self.host()),
                    1 => format!("{end}host {} or {}", self.host(), self.host()),
                    2 if !self.moved => {
                        let proto = self.of(&["ip", "arp", "rarp"]);
                        format!("{proto} {end}host {}", self.host4())
                    }
                    _ => format!("{end}host {}", self.host()),
                }
            }
            4..6 => format!("{}net {}", self.end(), self.net()),
            6..10 => {
                let proto = self.of(&["", "", "tcp ", "udp ", "sctp "]);
                let (end, port) = (self.end(), self.value(|values| &values.ports));
                let other = self.value(|values| &values.ports);
                match self.below(5) {
                    0 => format!("{proto}{end}portrange {port}-{other}"),
                    1 => format!("{proto}{end}port ({port} or {other})"),
                    2 => format!("{proto}{end}port {port} or {other}"),
                    _ => format!("{proto}{end}port {port}"),
                }
            }
            10..12 => self
                .of(&["ip", "ip6", "tcp", "udp", "icmp", "icmp6", "igmp", "sctp", "esp", "ah"])
                .to_owned(),
            12 if !self.moved => {
                self.of(&["arp", "rarp", "stp", "ipx", "iso", "atalk", "aarp", "llc"]).to_owned()
            }
            13 => {
                let proto = self.value(|values| &values.protocols);
                format!("{}proto {proto}", self.of(&["ip ", "ip6 ", ""]))
            }
            14 if !self.moved => match self.below(3) {
                0 => format!("ether proto {:#x}", self.value(|values| &values.ethertypes)),
                _ => format!("ether {}host {}", self.end(), self.mac()),
            },
            15 if !self.moved => self
                .of(&["broadcast", "multicast", "ether broadcast", "ip multicast", "ip broadcast"])
                .to_owned(),
            16 => {
                let comparison = self.comparison();
                let length = self.value(|values| &values.lengths);
                match self.below(4) {
                    0 => format!("less {length}"),
                    1 => format!("greater {length}"),
                    2 => format!("{length} {comparison} len"),
                    _ => format!("len {comparison} {length}"),
                }
            }
            17..19 => self.flags(),
            19 => {
                let comparison = self.comparison();
                match self.below(3) {
                    0 => format!("icmp[icmptype] {comparison} icmp-echo"),
                    1 => format!("icmp[1] {comparison} {}", self.below(5)),
                    _ => format!("icmp6[icmp6type] {comparison} icmp6-neighborsolicit"),
                }
            }
            20..22 => {
                let (left, right) = (self.arithmetic(2), self.arithmetic(1));
                format!("{left} {} {right}", self.comparison())
            }
            22 if !self.moved => match self.below(5) {
                0 => {
                    self.moved = true;
                    let label = self.value(|values| &values.labels);
                    self.of(&["mpls".to_owned().as_str(), &format!("mpls {label}")]).to_owned()
                }
                1 => {
                    self.moved = true;
                    self.of(&["pppoes", "pppoes 17"]).to_owned()
                }
                2 => "vlan".to_owned(),
                _ => format!("vlan {}", self.value(|values| &values.vlans)),
            },
            _ => format!("tcp port {}", self.value(|values| &values.ports)),
        }
    }

    fn comparison(&mut self) -> &'static str {
        self.of(&["=", "==", "!=", "<", "<=", ">", ">="])
    }

    fn flags(&mut self) -> String {
        let flag = self.of(&["tcp-syn", "tcp-ack", "tcp-fin", "tcp-rst", "tcp-push", "2", "0x12"]);
        let other = self.of(&["tcp-syn", "tcp-ack", "4", "16"]);
        let comparison = self.comparison();
        match self.below(5) {
            0 => format!("tcp[13] & {flag} != 0"),
            1 => format!("tcp[tcpflags] & ({flag}|{other}) {comparison} {other}"),
            2 => format!("tcp[tcpflags] {comparison} {flag}"),
            3 => format!("{flag} {comparison} tcp[12+1]"),
            _ => format!("{flag} & tcp[13] {comparison} {other}"),
        }
    }

    fn arithmetic(&mut self, depth: usize) -> String {
        match self.below(if depth == 0 { 3 } else { 6 }) {
            0 => self.below(300).to_string(),
            1 => "len".to_owned(),
            2 => {
                let protos: &[&str] = if self.moved {
                    &["ip", "ip6", "tcp", "udp", "icmp6"]
                } else {
                    &["ip", "ip6", "tcp", "udp", "icmp", "ether", "arp", "igmp", "icmp6", "sctp"]
                };
                let proto = self.of(protos);
                let size = self.of(&["", "", ":1", ":2", ":4"]);
                format!("{proto}[{}{size}]", self.below(24))
            }
            3 => format!("({})", self.arithmetic(depth - 1)),
            4 => format!("-{}", self.arithmetic(depth - 1)),
            _ => {
                let (left, right) = (self.arithmetic(depth - 1), self.arithmetic(depth - 1));
                format!("{left} {} {right}", self.of(&["+", "-", "*", "&", "|", "^", "<<", "%"]))
            }
        }
    }
}

/// The body of the fuzz target: whatever the text, it is understood or refused, and what was
/// understood is understood again from its own text.
pub fn fuzz_filter_parse(bytes: &[u8]) {
    const NOW_NS: i128 = 1_700_000_000_000_000_000;
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    _ = Filter::parse(text, NOW_NS);
    for syntax in [Syntax::Pcap, Syntax::Wireshark] {
        match Filter::parse_as(syntax, text, NOW_NS) {
            Err(error) => check_error(text, &error),
            Ok(filter) => {
                let Some(expr) = &filter.expr else { continue };
                let shown = expr.to_string();
                let again = match Filter::parse_as(syntax, &shown, NOW_NS) {
                    Ok(again) => again.expr,
                    Err(error) => panic!("`{text}` is shown as\n{}", error.render(&shown)),
                };
                let again = again.expect("an expression");
                assert_eq!(without_spans(expr), without_spans(&again), "`{text}` as `{shown}`");
            }
        }
    }
}

/// Checks that an error points into the text.
pub fn check_error(text: &str, error: &FilterError) {
    let span = &error.span;
    assert!(span.start <= span.end && span.end <= text.len(), "{span:?} of `{text}`");
    assert!(text.get(span.clone()).is_some(), "{span:?} of `{text}` cuts a character");
    assert!(!error.message.is_empty(), "`{text}` is refused without a word");
    assert!(error.render(text).contains('^'), "`{text}`: no mark");
}

/// The same expression with all its places at 0.
pub fn without_spans(expr: &Expr) -> Expr {
    match expr {
        Expr::And(list) => Expr::And(list.iter().map(without_spans).collect()),
        Expr::Or(list) => Expr::Or(list.iter().map(without_spans).collect()),
        Expr::Not(inner) => Expr::Not(Box::new(without_spans(inner))),
        Expr::Term(term) => {
            let mut term = term.clone();
            term.span = 0..0;
            Expr::Term(term)
        }
    }
}
