//! Makes filters from a seed.

use super::{Values, lists};

/// Makes filters.
pub(super) struct Maker<'v> {
    values: &'v Values,
    fallback: &'v Values,
    state: u64,
    /// A primitive that moves the headers was written: what can follow is limited.
    moved: bool,
    /// Everything is written, even what libpcap may refuse at its place.
    unbound: bool,
}

impl<'v> Maker<'v> {
    /// Missing values are taken from `fallback`.
    pub(super) fn new(values: &'v Values, fallback: &'v Values, seed: u64) -> Self {
        Self { values, fallback, state: seed, moved: false, unbound: false }
    }

    /// The same, for the whole grammar.
    pub(super) fn unbound(self) -> Self {
        Self { unbound: true, ..self }
    }

    fn random(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    pub(super) fn below(&mut self, bound: usize) -> usize {
        let bound = bound.max(1) as u64;
        usize::try_from(self.random() % bound).unwrap()
    }

    pub(super) fn of<T: Copy>(&mut self, list: &[T]) -> T {
        list[self.below(list.len())]
    }

    fn value<T: Copy>(&mut self, pick: impl Fn(&Values) -> &Vec<T>) -> T {
        let own = pick(self.values);
        let list = if own.is_empty() { pick(self.fallback) } else { own };
        list[self.below(list.len())]
    }

    pub(super) fn list(&mut self, depth: usize) -> String {
        let mut text = self.operand(depth);
        for _ in 0..self.below(3) {
            let joint = self.of(&[" and ", " or ", " && ", " || ", " and ", " or "]);
            let operand = self.operand(depth);
            text = format!("{text}{joint}{operand}");
        }
        text
    }

    /// A long list of one kind of conditions, of 8 KiB and more at times, alone or beside others.
    pub(super) fn long(&mut self) -> String {
        let kind = self.below(7);
        let end = self.of(&["", "", "src ", "dst "]);
        // libpcap takes long for more conditions of one word.
        let len = match (kind, self.below(3)) {
            (0..5, 0) => 8_500 + self.below(3_000),
            _ => 300 + self.below(3_000),
        };
        let (or, none) = (self.below(4) != 0, self.below(4) == 0);
        let mut list = String::new();
        while list.len() < len {
            let condition = match kind {
                0 => format!("{end}host {}", std::net::Ipv6Addr::from_bits(self.near6())),
                1 => {
                    let mask = u128::MAX << 64;
                    let net = std::net::Ipv6Addr::from_bits(self.near6() & mask);
                    format!("{end}net {net}/64")
                }
                2 => format!("ether {end}host {}", self.mac()),
                3 => {
                    let (a, b) = (self.near4(), self.near4());
                    let ports = [(); 2].map(|()| self.value(|values| &values.ports));
                    let transport = self.of(&["tcp ", "udp ", ""]);
                    format!(
                        "(host {a} and host {b} and {transport}port {} and port {})",
                        ports[0], ports[1]
                    )
                }
                4 => format!("(src host {} and dst host {})", self.host(), self.near4()),
                5 => format!("{end}host {}", self.near4()),
                _ => format!("{end}port {}", self.value(|values| &values.ports)),
            };
            let joint = match (list.is_empty(), or) {
                (true, _) => "",
                (false, true) => " or ",
                (false, false) => " and not ",
            };
            list = format!("{list}{joint}{condition}");
        }
        let list = if none { format!("not ({list})") } else { list };
        match self.below(6) {
            0 => format!("({list}) and {}", self.primitive()),
            1 => format!("{} or {list}", self.primitive()),
            2 => format!("{} and ({list})", self.primitive()),
            3 => format!("vlan and ({list})"),
            _ => list,
        }
    }

    /// An address of the values, or one like it.
    fn near4(&mut self) -> std::net::Ipv4Addr {
        let address = self.value(|values| &values.hosts4);
        std::net::Ipv4Addr::from_bits(address ^ self.of(&[0, 0, 1, 0x100]))
    }

    fn near6(&mut self) -> u128 {
        let address = self.value(|values| &values.hosts6);
        address ^ self.of(&[0, 0, 1, 1 << 40, 1 << 66])
    }

    fn operand(&mut self, depth: usize) -> String {
        match self.below(10) {
            4..7 if self.unbound => self.any_primitive(),
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
            19 if self.below(2) == 0 => self.loaded(),
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

    /// Bytes of a header that are a field of the index, or nearly.
    fn loaded(&mut self) -> String {
        let number = self.of(&[0, 1, 5, 32, 63, 64, 127, 128, 184, 255, 256, 2_048]);
        let bytes = self.of(&[
            "ip[8]",
            "ip6[7]",
            "ip[8] & 0xf0",
            "ip[8:1] >> 4",
            "ip[1] & 0xfc",
            "ip[1] & 0xe0",
            "(ip[1] & 0xfc) >> 2",
            "ip[1] >> 2",
            "ip[1] >> 1",
            "ip6[0:2] & 0xfc0",
            "(ip6[0:2] & 0xfff) >> 6",
            "(ip[8] & 0x7f) & 0xf8",
            "tcp[14:2]",
            "tcp[14:2]",
            "tcp[14:2] & 0xff00",
            "tcp[14:2] >> 7",
        ]);
        let comparison = self.comparison();
        match self.below(4) {
            0 => format!("{number} {comparison} {bytes}"),
            _ => format!("{bytes} {comparison} {number}"),
        }
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

    /// A primitive of the whole grammar.
    fn any_primitive(&mut self) -> String {
        match self.below(26) {
            0..3 => self.mover(),
            3 => {
                let lines: Vec<&str> = lists::WRITTEN.lines().filter(|l| !l.is_empty()).collect();
                format!("({})", self.of(&lines))
            }
            4 if self.below(4) == 0 => {
                let lines: Vec<&str> =
                    lists::OTHER_LINKS.lines().filter(|l| !l.is_empty()).collect();
                self.of(&lines).to_owned()
            }
            4..7 => {
                let (end, mac) = (self.end(), self.mac());
                let link = self.of(&["ether", "ether", "ether", "link", "fddi", "wlan"]);
                match self.below(4) {
                    0 => format!("{link} {end}host ({mac} or {})", self.mac()),
                    1 => format!("{link} {end}host {mac} or {}", self.mac()),
                    _ => format!("{link} {end}host {mac}"),
                }
            }
            7 => self
                .of(&[
                    "broadcast",
                    "multicast",
                    "ether broadcast",
                    "ether multicast",
                    "ip broadcast",
                    "ip multicast",
                    "ip6 multicast",
                ])
                .to_owned(),
            8 => {
                let kind = match self.below(3) {
                    0 => format!("{:#x}", self.value(|values| &values.ethertypes)),
                    1 => self.below(1502).to_string(),
                    _ => self
                        .of(&["\\ip", "\\ip6", "\\arp", "\\stp", "\\atalk", "\\ipx", "\\iso"])
                        .to_owned(),
                };
                format!("ether proto {kind}")
            }
            9 => {
                let proto = self.value(|values| &values.protocols);
                let word = self.of(&["proto", "proto", "protochain"]);
                let names = ["\\tcp", "\\udp", "\\icmp", "ipv6", "ipv6-icmp", "gre", "\\ah"];
                let shown = match self.below(3) {
                    0 => self.of(&names).to_owned(),
                    1 => format!("({proto} or {})", self.value(|values| &values.protocols)),
                    _ => proto.to_string(),
                };
                format!("{}{word} {shown}", self.of(&["", "ip ", "ip6 "]))
            }
            10 => {
                let proto = self.of(&["ip ", "arp ", "rarp ", "ip6 ", ""]);
                let (end, net) = (self.end(), self.net());
                match self.below(3) {
                    0 => format!("{proto}{end}net {net} or {}", self.net()),
                    1 => format!("{proto}{end}net ({net} or {})", self.net()),
                    _ => format!("{proto}{end}net {net}"),
                }
            }
            11 => {
                let proto = self.of(&["ip ", "ip6 ", "arp ", "rarp ", ""]);
                let (end, host) = (self.end(), self.host());
                match self.below(4) {
                    0 => format!("{proto}{end}host not {host}"),
                    1 => format!(
                        "{proto}{end}host {host} or not ({} or {})",
                        self.host(),
                        self.host()
                    ),
                    2 => format!("{proto}{end}{host} or {} and {}", self.host(), self.host()),
                    _ => format!("{proto}{end}host {host}"),
                }
            }
            12 => {
                let kind = self.of(&["i", "s", "u", "rr", "rnr", "rej", "ui", "ua", "xid", "test"]);
                self.of(&["llc".to_owned().as_str(), &format!("llc {kind}")]).to_owned()
            }
            13 => self
                .of(&[
                    "stp", "ipx", "netbeui", "atalk", "aarp", "decnet", "lat", "sca", "moprc",
                    "mopdl", "iso", "clnp", "esis", "isis", "l1", "l2", "iih", "lsp", "snp",
                    "csnp", "psnp", "pim", "igrp", "vrrp", "carp", "ah", "esp", "arp", "rarp",
                ])
                .to_owned(),
            14 => {
                format!("byte {} {} {}", self.below(20), self.of(&["=", "<", ">"]), self.below(9))
            }
            15 => {
                let word = self.of(&["port", "src port", "dst port", "tcp port", "udp dst port"]);
                let [a, b, c] = [0; 3].map(|_| self.value(|values| &values.ports));
                match self.below(4) {
                    0 => format!("{word} {a} or not {b} and {c}"),
                    1 => format!("{word} (({a}) or {b})"),
                    2 => format!("{word} {a} or (src host {} and {b})", self.host()),
                    _ => format!("{word} not ({a} or {b})"),
                }
            }
            16..18 => {
                // Operands that depend little or not at all on the packet.
                let zero = self.of(&["& 0", "* 0", "| 0xff", "& 0x100", "- 0", "+ 0", "^ 0"]);
                let left = match self.below(3) {
                    0 => self.accessor(),
                    1 => "tcp[tcpflags]".to_owned(),
                    _ => self
                        .of(&[
                            "icmp[icmptype]",
                            "icmp6[icmp6code]",
                            "len",
                            "ip[8]",
                            "ip[1]",
                            "ip6[7]",
                        ])
                        .to_owned(),
                };
                let number = self.of(&[0, 1, 16, 255, 256, 65_535, 1 << 31]);
                format!("{left} {zero} {} {number}", self.comparison())
            }
            18 => format!("{} {} {}", self.below(3), self.comparison(), self.below(3)),
            _ => {
                let (left, right) = (self.any_arithmetic(2), self.any_arithmetic(1));
                format!("{left} {} {right}", self.comparison())
            }
        }
    }

    /// A primitive that moves the place where headers are looked for.
    fn mover(&mut self) -> String {
        let (word, number) = match self.below(7) {
            0..3 => ("vlan", u32::from(self.value(|values| &values.vlans))),
            3..5 => ("mpls", self.value(|values| &values.labels)),
            5 => ("pppoes", self.of(&[1, 17, 0x27])),
            _ => ("geneve", self.of(&[5, 7, 0xFF_FFFF])),
        };
        match self.below(5) {
            0 => format!("{word} {number}"),
            1 => format!("{word} ({number})"),
            2 if word == "pppoes" => "pppoed".to_owned(),
            _ => word.to_owned(),
        }
    }

    /// Bytes of any header.
    fn accessor(&mut self) -> String {
        let proto = self.of(&[
            "ip", "ip6", "tcp", "udp", "icmp", "icmp6", "ether", "link", "arp", "rarp", "igmp",
            "sctp", "pim", "vrrp", "igrp", "carp", "atalk", "decnet", "lat", "tcp", "ip", "ether",
            "udp", "tcp",
        ]);
        let size = self.of(&["", "", "", ":1", ":2", ":4"]);
        let at = match self.below(12) {
            0 => {
                self.of(&["tcpflags", "icmptype", "icmpcode", "icmp6type", "icmp6code"]).to_owned()
            }
            1 => format!("({}[{}] & 0xf) << 2", self.of(&["ip", "tcp", "udp"]), self.below(13)),
            2 => format!("len - {}", self.below(80)),
            3 => self.of(&[60, 100, 1500, 70_000, 0xFFFF_FFFF_u32]).to_string(),
            4 => format!("{} + {}", self.below(14), self.below(14)),
            5..8 => self.of(&[0, 1, 13]).to_string(),
            _ => self.below(30).to_string(),
        };
        format!("{proto}[{at}{size}]")
    }

    fn any_arithmetic(&mut self, depth: usize) -> String {
        match self.below(if depth == 0 { 5 } else { 9 }) {
            0 => self.of(&[0, 1, 2, 16, 31, 32, 255, 256, 2048, 65_535, u32::MAX]).to_string(),
            1 => "len".to_owned(),
            2..5 => self.accessor(),
            5 => format!("({})", self.any_arithmetic(depth - 1)),
            6 => format!("-{}", self.any_arithmetic(depth - 1)),
            _ => {
                let left = self.any_arithmetic(depth - 1);
                let right = self.any_arithmetic(depth - 1);
                let signs = ["+", "-", "*", "/", "%", "&", "|", "^", "<<", ">>"];
                format!("{left} {} {right}", self.of(&signs))
            }
        }
    }
}
