//! Words that stand for something: keywords, constants, services, protocols.

use super::lexer::Token;
use std::collections::HashMap;
use std::sync::OnceLock;

/// Protocols that can qualify, in one spelling each.
const PROTOS: &[&str] = &[
    "ether", "ip", "arp", "rarp", "sctp", "tcp", "udp", "icmp", "igmp", "igrp", "pim", "vrrp",
    "carp", "radio", "ip6", "icmp6", "ah", "esp", "atalk", "aarp", "decnet", "lat", "sca", "moprc",
    "mopdl", "iso", "esis", "isis", "l1", "l2", "iih", "lsp", "snp", "csnp", "psnp", "clnp", "stp",
    "ipx", "netbeui",
];

/// Other spellings of protocols.
const PROTO_ALIASES: &[(&str, &str)] = &[
    ("link", "ether"),
    ("ppp", "ether"),
    ("slip", "ether"),
    ("fddi", "ether"),
    ("tr", "ether"),
    ("wlan", "ether"),
    ("es-is", "esis"),
    ("is-is", "isis"),
];

/// Keywords that are no protocols, in one spelling each.
const KEYS: &[&str] = &[
    "dst",
    "src",
    "host",
    "net",
    "mask",
    "port",
    "portrange",
    "proto",
    "protochain",
    "gateway",
    "type",
    "subtype",
    "dir",
    "addr1",
    "addr2",
    "addr3",
    "addr4",
    "ra",
    "ta",
    "less",
    "greater",
    "byte",
    "broadcast",
    "multicast",
    "and",
    "or",
    "not",
    "len",
    "inbound",
    "outbound",
    "ifindex",
    "vlan",
    "mpls",
    "pppoed",
    "pppoes",
    "geneve",
    "lane",
    "llc",
    "metac",
    "bcc",
    "oam",
    "oamf4",
    "oamf4ec",
    "oamf4sc",
    "sc",
    "ilmic",
    "vpi",
    "vci",
    "connectmsg",
    "metaconnect",
    "on",
    "rset",
    "rnr",
    "srnr",
    "reason",
    "action",
    "fisu",
    "lssu",
    "msu",
    "hfisu",
    "hlssu",
    "hmsu",
    "sio",
    "opc",
    "dpc",
    "sls",
    "hsio",
    "hopc",
    "hdpc",
    "hsls",
];

/// Other spellings of keywords.
const KEY_ALIASES: &[(&str, &str)] = &[
    ("direction", "dir"),
    ("address1", "addr1"),
    ("address2", "addr2"),
    ("address3", "addr3"),
    ("address4", "addr4"),
    ("length", "len"),
    ("ifname", "on"),
    ("ruleset", "rset"),
    ("rulenum", "rnr"),
    ("subrulenum", "srnr"),
    ("lsu", "lssu"),
];

/// Names of numbers: offsets, flags and types.
const NUMBERS: &[(&str, u32)] = &[
    ("icmptype", 0),
    ("icmpcode", 1),
    ("icmp-echoreply", 0),
    ("icmp-unreach", 3),
    ("icmp-sourcequench", 4),
    ("icmp-redirect", 5),
    ("icmp-echo", 8),
    ("icmp-routeradvert", 9),
    ("icmp-routersolicit", 10),
    ("icmp-timxceed", 11),
    ("icmp-paramprob", 12),
    ("icmp-tstamp", 13),
    ("icmp-tstampreply", 14),
    ("icmp-ireq", 15),
    ("icmp-ireqreply", 16),
    ("icmp-maskreq", 17),
    ("icmp-maskreply", 18),
    ("icmp6type", 0),
    ("icmp6code", 1),
    ("icmp6-destinationunreach", 1),
    ("icmp6-packettoobig", 2),
    ("icmp6-timeexceeded", 3),
    ("icmp6-parameterproblem", 4),
    ("icmp6-echo", 128),
    ("icmp6-echoreply", 129),
    ("icmp6-multicastlistenerquery", 130),
    ("icmp6-multicastlistenerreportv1", 131),
    ("icmp6-multicastlistenerdone", 132),
    ("icmp6-routersolicit", 133),
    ("icmp6-routeradvert", 134),
    ("icmp6-neighborsolicit", 135),
    ("icmp6-neighboradvert", 136),
    ("icmp6-redirect", 137),
    ("icmp6-routerrenum", 138),
    ("icmp6-nodeinformationquery", 139),
    ("icmp6-nodeinformationresponse", 140),
    ("icmp6-ineighbordiscoverysolicit", 141),
    ("icmp6-ineighbordiscoveryadvert", 142),
    ("icmp6-multicastlistenerreportv2", 143),
    ("icmp6-homeagentdiscoveryrequest", 144),
    ("icmp6-homeagentdiscoveryreply", 145),
    ("icmp6-mobileprefixsolicit", 146),
    ("icmp6-mobileprefixadvert", 147),
    ("icmp6-certpathsolicit", 148),
    ("icmp6-certpathadvert", 149),
    ("icmp6-multicastrouteradvert", 151),
    ("icmp6-multicastroutersolicit", 152),
    ("icmp6-multicastrouterterm", 153),
    ("tcpflags", 13),
    ("tcp-fin", 0x01),
    ("tcp-syn", 0x02),
    ("tcp-rst", 0x04),
    ("tcp-push", 0x08),
    ("tcp-ack", 0x10),
    ("tcp-urg", 0x20),
    ("tcp-ece", 0x40),
    ("tcp-cwr", 0x80),
];

/// Protocols behind `ether proto`.
const ETHER_PROTOS: &[(&str, u32)] = &[
    ("aarp", 0x80F3),
    ("arp", 0x0806),
    ("atalk", 0x809B),
    ("decnet", 0x6003),
    ("ip", 0x0800),
    ("ip6", 0x86DD),
    ("lat", 0x6004),
    ("loopback", 0x9000),
    ("mopdl", 0x6001),
    ("moprc", 0x6002),
    ("rarp", 0x8035),
    ("sca", 0x6007),
    ("iso", 0xFE),
    ("stp", 0x42),
    ("ipx", 0xE0),
    ("netbeui", 0xF0),
];

/// Protocols behind `iso proto`.
const ISO_PROTOS: &[(&str, u32)] = &[("esis", 0x82), ("isis", 0x83), ("clnp", 0x81)];

/// Services for machines without `/etc/services`: name, port, TCP, UDP.
const SERVICES: &[(&str, u16, bool, bool)] = &[
    ("ftp-data", 20, true, false),
    ("ftp", 21, true, false),
    ("ssh", 22, true, false),
    ("telnet", 23, true, false),
    ("smtp", 25, true, false),
    ("domain", 53, true, true),
    ("bootps", 67, false, true),
    ("bootpc", 68, false, true),
    ("tftp", 69, false, true),
    ("http", 80, true, false),
    ("kerberos", 88, true, true),
    ("pop3", 110, true, false),
    ("sunrpc", 111, true, true),
    ("nntp", 119, true, false),
    ("ntp", 123, false, true),
    ("netbios-ns", 137, false, true),
    ("netbios-dgm", 138, false, true),
    ("netbios-ssn", 139, true, false),
    ("imap2", 143, true, false),
    ("imap", 143, true, false),
    ("snmp", 161, true, true),
    ("snmp-trap", 162, true, true),
    ("bgp", 179, true, false),
    ("ldap", 389, true, true),
    ("https", 443, true, true),
    ("microsoft-ds", 445, true, true),
    ("isakmp", 500, false, true),
    ("syslog", 514, false, true),
    ("ldaps", 636, true, true),
    ("imaps", 993, true, false),
    ("pop3s", 995, true, false),
    ("nfs", 2049, true, true),
    ("mysql", 3306, true, false),
    ("sip", 5060, true, true),
    ("postgresql", 5432, true, false),
];

/// IP protocols for machines without `/etc/protocols`.
const IP_PROTOS: &[(&str, u32)] = &[
    ("ip", 0),
    ("icmp", 1),
    ("igmp", 2),
    ("ipencap", 4),
    ("tcp", 6),
    ("egp", 8),
    ("igp", 9),
    ("udp", 17),
    ("ipv6", 41),
    ("ipv6-route", 43),
    ("ipv6-frag", 44),
    ("rsvp", 46),
    ("gre", 47),
    ("esp", 50),
    ("ah", 51),
    ("ipv6-icmp", 58),
    ("ipv6-nonxt", 59),
    ("ipv6-opts", 60),
    ("eigrp", 88),
    ("ospf", 89),
    ("pim", 103),
    ("vrrp", 112),
    ("l2tp", 115),
    ("sctp", 132),
    ("udplite", 136),
];

/// Types of 802.11 frames.
pub(super) const WLAN_TYPES: &[(&str, u32)] =
    &[("data", 0x08), ("mgt", 0x00), ("management", 0x00), ("ctl", 0x04), ("control", 0x04)];

/// Subtypes of 802.11 frames, by type, in the order in which they are searched.
pub(super) const WLAN_SUBTYPES: &[(u32, &[(&str, u32)])] = &[
    (
        0x00,
        &[
            ("assocreq", 0x00),
            ("assoc-req", 0x00),
            ("assocresp", 0x10),
            ("assoc-resp", 0x10),
            ("reassocreq", 0x20),
            ("reassoc-req", 0x20),
            ("reassocresp", 0x30),
            ("reassoc-resp", 0x30),
            ("probereq", 0x40),
            ("probe-req", 0x40),
            ("proberesp", 0x50),
            ("probe-resp", 0x50),
            ("beacon", 0x80),
            ("atim", 0x90),
            ("disassoc", 0xA0),
            ("disassociation", 0xA0),
            ("auth", 0xB0),
            ("authentication", 0xB0),
            ("deauth", 0xC0),
            ("deauthentication", 0xC0),
        ],
    ),
    (
        0x04,
        &[
            ("ps-poll", 0xA0),
            ("rts", 0xB0),
            ("cts", 0xC0),
            ("ack", 0xD0),
            ("cf-end", 0xE0),
            ("cf-end-ack", 0xF0),
        ],
    ),
    (
        0x08,
        &[
            ("data", 0x00),
            ("data-cf-ack", 0x10),
            ("data-cf-poll", 0x20),
            ("data-cf-ack-poll", 0x30),
            ("null", 0x40),
            ("cf-ack", 0x50),
            ("cf-poll", 0x60),
            ("cf-ack-poll", 0x70),
            ("qos-data", 0x80),
            ("qos-data-cf-ack", 0x90),
            ("qos-data-cf-poll", 0xA0),
            ("qos-data-cf-ack-poll", 0xB0),
            ("qos", 0xC0),
            ("qos-cf-poll", 0xE0),
            ("qos-cf-ack-poll", 0xF0),
        ],
    ),
];

/// Directions of 802.11 frames.
pub(super) const WLAN_DIRECTIONS: &[(&str, u32)] =
    &[("nods", 0), ("tods", 1), ("fromds", 2), ("dstods", 3)];

/// Kinds of LLC frames.
pub(super) const LLC_KINDS: &[&str] =
    &["i", "s", "u", "rr", "rnr", "rej", "ui", "ua", "disc", "dm", "sabme", "test", "xid", "frmr"];

/// Reasons in the header that OpenBSD's packet filter writes.
pub(super) const PF_REASONS: &[(&str, u32)] = &[
    ("match", 0),
    ("bad-offset", 1),
    ("fragment", 2),
    ("short", 3),
    ("normalize", 4),
    ("memory", 5),
    ("bad-timestamp", 6),
    ("congestion", 7),
    ("ip-option", 8),
    ("proto-cksum", 9),
    ("state-mismatch", 10),
    ("state-insert", 11),
    ("state-limit", 12),
    ("src-limit", 13),
    ("synproxy", 14),
];

/// Actions in the header that OpenBSD's packet filter writes.
pub(super) const PF_ACTIONS: &[&str] = &[
    "pass",
    "accept",
    "drop",
    "block",
    "scrub",
    "noscrub",
    "nat",
    "nonat",
    "binat",
    "nobinat",
    "rdr",
    "nordr",
    "synproxy-drop",
];

/// What a word is, if it is not just a name.
pub(super) fn keyword(word: &str) -> Option<Token<'static>> {
    let same = |list: &'static [&'static str]| list.iter().copied().find(|name| *name == word);
    let alias = |list: &'static [(&'static str, &'static str)]| find(list, word);
    if let Some(name) = same(PROTOS).or_else(|| alias(PROTO_ALIASES)) {
        return Some(Token::Proto(name));
    }
    if let Some(name) = same(KEYS).or_else(|| alias(KEY_ALIASES)) {
        return Some(Token::Key(name));
    }
    find(NUMBERS, word).map(Token::Number)
}

/// What a table has for a name.
pub(super) fn find<T: Copy>(table: &[(&str, T)], name: &str) -> Option<T> {
    table.iter().find(|(entry, _)| *entry == name).map(|(_, value)| *value)
}

/// The same without regard to case.
pub(super) fn find_any_case<T: Copy>(table: &[(&str, T)], name: &str) -> Option<T> {
    table.iter().find(|(entry, _)| entry.eq_ignore_ascii_case(name)).map(|(_, value)| *value)
}

/// Whether a list has a name, without regard to case.
pub(super) fn is_any_case(list: &[&str], name: &str) -> bool {
    list.iter().any(|entry| entry.eq_ignore_ascii_case(name))
}

/// A subtype of an 802.11 type by its name.
pub(super) fn wlan_subtype(kind: u32, name: &str) -> Option<u32> {
    let (_, table) = WLAN_SUBTYPES.iter().find(|(own, _)| *own == kind)?;
    find_any_case(table, name)
}

/// The number of a protocol behind `ether proto`.
pub(super) fn ether_proto(name: &str) -> Option<u32> {
    find(ETHER_PROTOS, name)
}

/// The number of a protocol behind `iso proto`.
pub(super) fn iso_proto(name: &str) -> Option<u32> {
    find(ISO_PROTOS, name)
}

/// The number of an IP protocol.
pub(super) fn ip_proto(name: &str) -> Option<u32> {
    static TABLE: OnceLock<HashMap<String, u32>> = OnceLock::new();
    let table = TABLE.get_or_init(|| {
        let mut table = HashMap::new();
        for (names, number) in lines(&read("/etc/protocols")) {
            if let Ok(number) = number.parse() {
                for name in names {
                    table.entry(name.to_owned()).or_insert(number);
                }
            }
        }
        for (name, number) in IP_PROTOS {
            table.entry((*name).to_owned()).or_insert(*number);
        }
        table
    });
    table.get(name).copied()
}

/// A service: its port, and the transport if it has only one.
pub(super) fn service(name: &str) -> Option<(u16, Option<u8>)> {
    static TABLE: OnceLock<HashMap<String, [Option<u16>; 2]>> = OnceLock::new();
    let table = TABLE.get_or_init(|| {
        let mut table: HashMap<String, [Option<u16>; 2]> = HashMap::new();
        for (names, number) in lines(&read("/etc/services")) {
            let Some((port, transport)) = number.split_once('/') else { continue };
            let Ok(port) = port.parse::<u16>() else { continue };
            for name in names {
                let [tcp, udp] = table.entry(name.to_owned()).or_default();
                match transport {
                    "tcp" => _ = tcp.get_or_insert(port),
                    "udp" => _ = udp.get_or_insert(port),
                    _ => {}
                }
            }
        }
        for (name, port, tcp, udp) in SERVICES {
            let ports = [tcp.then_some(*port), udp.then_some(*port)];
            table.entry((*name).to_owned()).or_insert(ports);
        }
        table
    });
    match table.get(name)? {
        [Some(tcp), Some(udp)] if tcp == udp => Some((*tcp, None)),
        [Some(tcp), _] => Some((*tcp, Some(6))),
        [None, Some(udp)] => Some((*udp, Some(17))),
        [None, None] => None,
    }
}

/// The text of a file; empty without one, so that only the tables here are used.
fn read(path: &str) -> String {
    std::fs::read(path)
        .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
        .unwrap_or_default()
}

/// Lines of a name, a number and more names: all names of each, and its number.
fn lines(text: &str) -> impl Iterator<Item = (Vec<&str>, &str)> {
    text.lines().filter_map(|line| {
        let line = line.split('#').next().unwrap_or("");
        let mut words = line.split_ascii_whitespace();
        let (name, number) = (words.next()?, words.next()?);
        Some((std::iter::once(name).chain(words).collect(), number))
    })
}
