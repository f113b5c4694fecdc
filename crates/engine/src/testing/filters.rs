//! Filters to try: a written list, filters made from a seed, and the body of the fuzz target.

mod lists;
mod maker;

use crate::query::filter::{Expr, Filter, FilterError, Syntax};
use maker::Maker;

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

/// One in this many filters of the whole grammar is a long list, for which libpcap takes seconds.
const LONG_EACH: usize = 2_000;

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
    /// A filter made from a seed, with these values. An empty list stands for made-up values.
    pub fn generate(&self, seed: u64) -> String {
        let fallback = Self::default();
        let mut maker = Maker::new(self, &fallback, seed);
        maker.list(3)
    }

    /// A filter made from a seed, with these values, of the whole grammar: all primitives in any
    /// order. libpcap refuses some of them.
    pub fn generate_any(&self, seed: u64) -> String {
        let fallback = Self::default();
        let mut maker = Maker::new(self, &fallback, seed).unbound();
        if maker.below(LONG_EACH) == 0 {
            return maker.long();
        }
        let depth = maker.below(4);
        maker.list(depth)
    }
}

/// The same filter with a token dropped, doubled, exchanged or put in, by a seed.
pub fn mangled(text: &str, seed: u64) -> String {
    let values = Values::default();
    let mut maker = Maker::new(&values, &values, seed);
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

/// The body of the fuzz target: every text is either parsed or refused, and a parsed filter can be
/// parsed again from its own text.
pub fn fuzz_filter_parse(bytes: &[u8]) {
    const NOW_NS: u64 = 1_700_000_000_000_000_000;
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    _ = Filter::parse(text, NOW_NS);
    for syntax in [Syntax::Pcap, Syntax::Wireshark] {
        match Filter::parse_as(syntax, text, NOW_NS) {
            Err(error) => check_error(text, &error),
            Ok(filter) => {
                let Some(expr) = filter.expr() else { continue };
                let shown = expr.to_string();
                let again = match Filter::parse_as(syntax, &shown, NOW_NS) {
                    Ok(again) => again.into_expr(),
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
