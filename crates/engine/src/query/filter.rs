//! Parsed filters: pcap-filter(7) and the part of Wireshark's language that columns can answer.

mod arithmetic;
mod keyword;
mod lexer;
mod names;
mod parser;
mod primitive;
mod print;

use std::ops::{Range, RangeInclusive};

use crate::community_id::CommunityId;
use crate::fields::{Load, Name};
use crate::time::TimeRange;

/// The language of a filter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Syntax {
    /// pcap-filter(7), as tcpdump takes it.
    Pcap,
    /// Display filters of Wireshark, for indexed fields.
    Wireshark,
}

/// A parsed filter. Only the parsers make one, so its text and its meaning always agree.
#[derive(Debug, Clone, PartialEq)]
pub struct Filter {
    pub(super) syntax: Syntax,
    pub(super) expr: Option<Expr>,
    pub(super) times: TimeRange,
}

/// An expression.
#[derive(Debug, Clone, PartialEq)]
pub enum Expr {
    /// All of them hold. In pcap filters they are in the order of the text.
    And(Vec<Expr>),
    /// One of them holds.
    Or(Vec<Expr>),
    /// It does not hold.
    Not(Box<Expr>),
    /// A single condition.
    Term(Term),
}

impl Expr {
    /// Its terms, in the order of the text.
    pub fn terms(&self) -> Vec<&Term> {
        match self {
            Self::And(parts) | Self::Or(parts) => parts.iter().flat_map(Self::terms).collect(),
            Self::Not(part) => part.terms(),
            Self::Term(term) => vec![term],
        }
    }
}

/// A single condition. Only the parsers make one: its test and its text come from the same words,
/// so they cannot disagree.
#[derive(Debug, Clone, PartialEq)]
pub struct Term {
    pub(crate) span: Range<usize>,
    pub(super) shift: Shift,
    pub(super) test: Test,
    pub(super) text: String,
}

impl Term {
    /// Where it is in the text of the filter.
    pub fn span(&self) -> Range<usize> {
        self.span.clone()
    }

    /// Where it looks for headers: primitives before it in the text may have moved that.
    pub fn shift(&self) -> Shift {
        self.shift
    }

    /// What it asks.
    pub fn test(&self) -> &Test {
        &self.test
    }

    /// Only this condition, in the language of the filter, with names resolved.
    pub fn text(&self) -> &str {
        &self.text
    }
}

/// Where libpcap looks for the network header: `vlan` and the like move it for all that follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shift {
    /// Behind this many VLAN tags.
    Tags(u8),
    /// Behind MPLS labels, PPPoE, Geneve: columns have no data for that.
    Elsewhere,
}

/// Which end of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// The source.
    Src,
    /// The destination.
    Dst,
    /// One or both of them.
    Either,
    /// Both of them.
    Both,
}

/// How two numbers are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Comparison {
    /// Equal.
    Eq,
    /// Not equal.
    Ne,
    /// Less.
    Lt,
    /// Less or equal.
    Le,
    /// Greater.
    Gt,
    /// Greater or equal.
    Ge,
}

/// A version of IP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IpVersion {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

/// What a term asks. All but the last three have the meaning that libpcap gives them.
#[derive(Debug, Clone, PartialEq)]
pub enum Test {
    /// The frame's network protocol, above 1,500: `ip`, `arp`, `ether proto 0x88cc`.
    EtherType(u16),
    /// IP carries this protocol: `tcp`, `icmp6`, `ip proto 47`. Without a version: either.
    IpProto {
        /// The version, if only one will do.
        version: Option<IpVersion>,
        /// The protocol.
        proto: u8,
    },
    /// An IPv4 address, with a mask, in IPv4, ARP or RARP headers: `host`, `net`, `arp host`.
    Host4 {
        /// In IPv4 headers.
        ip: bool,
        /// In ARP headers.
        arp: bool,
        /// In RARP headers.
        rarp: bool,
        /// Which end.
        direction: Direction,
        /// The address.
        address: u32,
        /// The bits of it that count.
        mask: u32,
    },
    /// An IPv6 address, with a mask.
    Host6 {
        /// Which end.
        direction: Direction,
        /// The address.
        address: u128,
        /// The bits of it that count.
        mask: u128,
    },
    /// A MAC address: `ether host`, `ether broadcast`.
    Mac {
        /// Which end.
        direction: Direction,
        /// The address, 48 bits.
        address: u64,
    },
    /// `ether multicast`: the lowest bit of the destination's first byte is set.
    EtherMulticast,
    /// `ip multicast`: the destination's first byte is 224 or more.
    IpMulticast,
    /// `ip6 multicast`: the destination's first byte is 255.
    Ip6Multicast,
    /// A port, or a range of them: `port`, `udp dst portrange`.
    Port {
        /// The IP protocol; `None` is TCP, UDP or SCTP.
        transport: Option<u8>,
        /// Which end.
        direction: Direction,
        /// The ports.
        ports: RangeInclusive<u16>,
    },
    /// `vlan`, with or without an id. What follows is looked for behind the tag.
    Vlan(Option<u16>),
    /// `mpls`, with or without a label, as the first of its kind.
    Mpls(Option<u32>),
    /// `len`, `less`, `greater`: the length on the wire.
    Length(Comparison, u32),
    /// `tcp[tcpflags] & mask`, compared with a number.
    TcpFlags {
        /// The flags that count.
        mask: u8,
        /// How they are compared.
        comparison: Comparison,
        /// With what.
        value: u32,
    },
    /// `icmp[icmptype]` or `icmp[icmpcode]`, or the same of icmp6, compared with a number.
    Icmp {
        /// ICMP or ICMPv6.
        version: IpVersion,
        /// The code, and not the type.
        code: bool,
        /// How it is compared.
        comparison: Comparison,
        /// With what.
        value: u32,
    },
    /// Bytes of a header that are a field of the index, compared with a number: `ip[8] < 5`,
    /// `ip[1] & 0xfc = 0xb8`. Where `within` does not hold, it is false.
    Loaded {
        /// The test for the header.
        within: Box<Test>,
        /// The bytes, and the field.
        load: &'static Load,
        /// The bits that count, of the bytes as a number; all of them belong to the field.
        mask: u32,
        /// By how many bits the result is shifted down.
        down: u32,
        /// How it is compared.
        comparison: Comparison,
        /// With what.
        value: u32,
    },
    /// A test that only the compiled program can decide. Where `within` does not hold, it is false.
    Opaque {
        /// A test that holds wherever this one does, if one is known.
        within: Option<Box<Test>>,
    },
    /// A Wireshark field.
    Field(FieldTest),
    /// A Community ID, in Wireshark's language: `communityid == "1:..."`, `flow 1:...`.
    Flow {
        /// The ID.
        id: CommunityId,
        /// The packet has this ID, or else another.
        equal: bool,
    },
}

/// A test of an indexed field, with the meaning that Wireshark gives it.
#[derive(Debug, Clone, PartialEq)]
pub struct FieldTest {
    /// What its Wireshark name, such as `ip.addr`, stands for.
    pub field: &'static Name,
    /// The values that match, as ranges that do not touch, ascending; all of them if the field only
    /// has to be there.
    pub values: Vec<RangeInclusive<u128>>,
}

impl Filter {
    /// Parses a filter; the language is recognised from the text.
    ///
    /// It is Wireshark's if one of its words is a Wireshark field with a dot, such as `ip.addr`, or
    /// one of the protocols `ipv6` and `icmpv6` (unless the text has `proto` or `protochain`).
    ///
    /// A pcap filter may have times, joined to all of it with `and`: `after 3h ago and before 45m
    /// ago and port 80`. `start` is another word for `after`, and `end` for `before`. Times without
    /// a zone are local, and `3h ago` counts from `now_ns`.
    pub fn parse(text: &str, now_ns: u64) -> Result<Self, FilterError> {
        Self::parse_as(Syntax::of(text), text, now_ns)
    }

    /// Parses a filter in a given language.
    pub fn parse_as(syntax: Syntax, text: &str, now_ns: u64) -> Result<Self, FilterError> {
        match syntax {
            Syntax::Pcap => parser::parse(text, now_ns),
            Syntax::Wireshark => super::wireshark::parse(text, now_ns),
        }
    }

    /// The language it was written in.
    pub fn syntax(&self) -> Syntax {
        self.syntax
    }

    /// What it asks; `None` if every packet matches.
    pub fn expr(&self) -> Option<&Expr> {
        self.expr.as_ref()
    }

    /// What it asks; drops the rest.
    pub fn into_expr(self) -> Option<Expr> {
        self.expr
    }

    /// The times that its time words allow.
    pub fn times(&self) -> TimeRange {
        self.times
    }

    /// A filter that matches where both do. In pcap-filter(7), a `vlan` of the first one moves what
    /// the second one looks for, as if both were written as one.
    ///
    /// It is an error if they are in different languages.
    pub fn and(&self, other: &Self) -> Result<Self, FilterError> {
        if self.syntax != other.syntax {
            let message = "the two filters are in different languages".to_owned();
            return Err(FilterError { message, span: 0..0 });
        }
        let expr = match (&self.expr, &other.expr) {
            (Some(first), Some(second)) => {
                let both = format!("({first}) and ({second})");
                Self::parse_as(self.syntax, &both, 0)?.expr
            }
            (first, second) => first.clone().or_else(|| second.clone()),
        };
        Ok(Self { syntax: self.syntax, expr, times: self.times.and(other.times) })
    }

    /// A filter that also looks behind one and two VLAN tags: for a filter F, that is
    /// `F or (vlan and F) or (vlan and vlan and F)`.
    ///
    /// It is an error if the filter is in Wireshark's language, which looks there anyway.
    pub fn through_tags(&self) -> Result<Self, FilterError> {
        let Some(expr) = &self.expr else { return Ok(self.clone()) };
        if self.syntax != Syntax::Pcap {
            let message = "only filters in tcpdump's language can look through VLAN tags: \
                           Wireshark's filters do so by themselves";
            return Err(FilterError { message: message.to_owned(), span: 0..0 });
        }
        let text = format!("({expr}) or (vlan and ({expr})) or (vlan and vlan and ({expr}))");
        Ok(Self { times: self.times, ..Self::parse_as(Syntax::Pcap, &text, 0)? })
    }
}

impl Syntax {
    /// The language that a filter seems to be written in.
    pub fn of(text: &str) -> Self {
        if super::wireshark::is_likely(text) { Self::Wireshark } else { Self::Pcap }
    }
}

/// Why a filter was not understood.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct FilterError {
    /// What is wrong, and what to do.
    pub message: String,
    /// Where in the text.
    pub span: Range<usize>,
}
