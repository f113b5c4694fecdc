//! Arithmetic in filters: what it computes, what it requires of a packet, and its text.

use super::{Comparison, IpVersion, Test};
use crate::fields::{LOADS, Load};

/// What an expression is, as far as it can become a test.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Shape {
    /// The length of the packet.
    Length,
    /// The byte with the flags of TCP.
    Flags,
    /// The same, and a mask.
    MaskedFlags(u32),
    /// Type or code of ICMP.
    Icmp { version: IpVersion, code: bool },
    /// Bytes that a field holds bits of.
    Loaded(&'static Load),
    /// The same, a mask, and by how many bits the result is shifted down.
    Masked(&'static Load, u32, u32),
    /// Anything else.
    Other,
}

/// How an expression binds, when its text is put into a longer one.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Form {
    /// A number, `len`, or bytes of a header.
    Atom,
    /// A sum or the like, by its operator.
    Binary(Operator),
    /// A negation.
    Negated,
}

/// An operator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Operator {
    Add,
    Sub,
    Mul,
    Div,
    Mod,
    And,
    Or,
    Xor,
    Lsh,
    Rsh,
}

impl Operator {
    /// The operator that a sign stands for.
    pub(super) fn of(sign: &str) -> Option<Self> {
        Some(match sign {
            "+" => Self::Add,
            "-" => Self::Sub,
            "*" => Self::Mul,
            "/" => Self::Div,
            "%" => Self::Mod,
            "&" => Self::And,
            "|" => Self::Or,
            "^" => Self::Xor,
            "<<" => Self::Lsh,
            ">>" => Self::Rsh,
            _ => return None,
        })
    }

    fn sign(self) -> &'static str {
        match self {
            Self::Add => "+",
            Self::Sub => "-",
            Self::Mul => "*",
            Self::Div => "/",
            Self::Mod => "%",
            Self::And => "&",
            Self::Or => "|",
            Self::Xor => "^",
            Self::Lsh => "<<",
            Self::Rsh => ">>",
        }
    }

    /// How tightly it binds; libpcap's grammar has no rank for `%` and `^`.
    fn rank(self) -> Option<u8> {
        match self {
            Self::Or => Some(1),
            Self::And => Some(2),
            Self::Lsh | Self::Rsh => Some(3),
            Self::Add | Self::Sub => Some(4),
            Self::Mul | Self::Div => Some(5),
            Self::Mod | Self::Xor => None,
        }
    }

    /// Whether `a self b next c` is `(a self b) next c`. If an operator has no rank, libpcap's
    /// parser reads on, so that the right side goes first.
    pub(super) fn goes_before(self, next: Self) -> bool {
        match (self.rank(), next.rank()) {
            (Some(rank), Some(next)) => next <= rank,
            _ => false,
        }
    }

    /// Whether `-a self b` is `(-a) self b`.
    pub(super) fn follows_negation(self) -> bool {
        self.rank().is_some()
    }

    fn compute(self, a: u32, b: u32) -> Option<u32> {
        Some(match self {
            Self::Add => a.wrapping_add(b),
            Self::Sub => a.wrapping_sub(b),
            Self::Mul => a.wrapping_mul(b),
            Self::Div => a.checked_div(b)?,
            Self::Mod => a.checked_rem(b)?,
            Self::And => a & b,
            Self::Or => a | b,
            Self::Xor => a ^ b,
            Self::Lsh => a.checked_shl(b)?,
            Self::Rsh => a.checked_shr(b)?,
        })
    }
}

/// An arithmetic expression.
#[derive(Debug, Clone)]
pub(super) struct Arithmetic {
    text: String,
    form: Form,
    shape: Shape,
    /// Its value, if it has numbers only.
    constant: Option<u32>,
    /// The number that its code loads first, if it starts with one.
    first: Option<u32>,
    /// A test that holds for each packet for which it is computed.
    within: Option<Test>,
    /// Parentheses and brackets within each other.
    nesting: usize,
    /// Operators in it.
    operators: usize,
}

impl Arithmetic {
    pub(super) fn number(value: u32) -> Self {
        Self {
            constant: Some(value),
            first: Some(value),
            ..Self::atom(value.to_string(), Shape::Other)
        }
    }

    pub(super) fn length() -> Self {
        Self::atom("len".into(), Shape::Length)
    }

    fn atom(text: String, shape: Shape) -> Self {
        Self {
            text,
            form: Form::Atom,
            shape,
            constant: None,
            first: None,
            within: None,
            nesting: 0,
            operators: 0,
        }
    }

    /// Bytes of a header: one, two or four of them at an index. `None` if the protocol has none
    /// that can be asked for.
    pub(super) fn bytes(proto: &str, index: &Self, size: u32) -> Option<Self> {
        let ip = |proto| Some(Test::IpProto { version: Some(IpVersion::V4), proto });
        let own = match proto {
            "ether" | "radio" | "atalk" => None,
            "ip" => Some(Test::EtherType(0x0800)),
            "arp" => Some(Test::EtherType(0x0806)),
            "rarp" => Some(Test::EtherType(0x8035)),
            "decnet" => Some(Test::EtherType(0x6003)),
            "sca" => Some(Test::EtherType(0x6007)),
            "lat" => Some(Test::EtherType(0x6004)),
            "moprc" => Some(Test::EtherType(0x6002)),
            "mopdl" => Some(Test::EtherType(0x6001)),
            "ip6" => Some(Test::EtherType(0x86DD)),
            "sctp" => ip(132),
            "tcp" => ip(6),
            "udp" => ip(17),
            "icmp" => ip(1),
            "igmp" => ip(2),
            "igrp" => ip(9),
            "pim" => ip(103),
            "vrrp" | "carp" => ip(112),
            "icmp6" => Some(Test::IpProto { version: Some(IpVersion::V6), proto: 58 }),
            _ => return None,
        };
        let shape = match (proto, index.constant, size) {
            ("tcp", Some(13), 1) => Shape::Flags,
            ("icmp", Some(at @ 0..=1), 1) => Shape::Icmp { version: IpVersion::V4, code: at == 1 },
            ("icmp6", Some(at @ 0..=1), 1) => Shape::Icmp { version: IpVersion::V6, code: at == 1 },
            (_, Some(at), _) => LOADS
                .iter()
                .find(|load| (load.header, load.at, load.size) == (proto, at, size))
                .map_or(Shape::Other, Shape::Loaded),
            _ => Shape::Other,
        };
        let text = match size {
            1 => format!("{proto}[{}]", index.text),
            _ => format!("{proto}[{}:{size}]", index.text),
        };
        Some(Self {
            first: index.first,
            within: own.or_else(|| index.within.clone()),
            nesting: index.nesting + 1,
            operators: index.operators + 1,
            ..Self::atom(text, shape)
        })
    }

    pub(super) fn negated(self) -> Self {
        Self {
            text: format!("-{}", self.in_parentheses_unless(self.form == Form::Atom)),
            form: Form::Negated,
            shape: Shape::Other,
            constant: self.constant.map(u32::wrapping_neg),
            first: self.first,
            nesting: self.nesting + 1,
            operators: self.operators + 1,
            within: self.within,
        }
    }

    /// Two of them with an operator between. The result requires of the packet what the left one
    /// requires: libpcap drops the requirements of the right one.
    pub(super) fn joined(self, operator: Operator, right: &Self) -> Result<Self, &'static str> {
        // Operands that have to be computed first are refused by libpcap's optimiser, if it gets
        // that far.
        match (operator, right.first) {
            (Operator::Div, Some(0)) => return Err("libpcap takes this for a division by zero"),
            (Operator::Mod, Some(0)) => return Err("libpcap takes this for a remainder of zero"),
            (Operator::Lsh | Operator::Rsh, Some(32..)) => {
                return Err("libpcap takes this for a shift by more than 31 bits");
            }
            _ => {}
        }
        let bare = match self.form {
            Form::Atom => true,
            Form::Binary(own) => own.goes_before(operator),
            Form::Negated => false,
        };
        let right_bare = right.form == Form::Atom;
        let nesting =
            (self.nesting + usize::from(!bare)).max(right.nesting + usize::from(!right_bare));
        let shape = match (self.shape, operator, right.constant) {
            (Shape::Flags, Operator::And, Some(mask)) => Shape::MaskedFlags(mask),
            (Shape::Loaded(load), Operator::And, Some(mask)) => Shape::Masked(load, mask, 0),
            (Shape::Masked(load, old, 0), Operator::And, Some(mask)) => {
                Shape::Masked(load, old & mask, 0)
            }
            (Shape::Loaded(load), Operator::Rsh, Some(down @ 0..32)) => {
                Shape::Masked(load, u32::MAX, down)
            }
            (Shape::Masked(load, mask, 0), Operator::Rsh, Some(down @ 0..32)) => {
                Shape::Masked(load, mask, down)
            }
            _ => Shape::Other,
        };
        let constant = match (self.constant, right.constant) {
            (Some(left), Some(right)) => operator.compute(left, right),
            _ => None,
        };
        Ok(Self {
            text: format!(
                "{} {} {}",
                self.in_parentheses_unless(bare),
                operator.sign(),
                right.in_parentheses_unless(right_bare)
            ),
            form: Form::Binary(operator),
            shape,
            constant,
            first: self.first,
            within: self.within,
            nesting,
            operators: self.operators + right.operators + 1,
        })
    }

    fn in_parentheses_unless(&self, bare: bool) -> String {
        if bare { self.text.clone() } else { format!("({})", self.text) }
    }

    pub(super) fn nesting(&self) -> usize {
        self.nesting
    }

    pub(super) fn operators(&self) -> usize {
        self.operators
    }

    /// The test that a comparison is, and its text.
    pub(super) fn compared(&self, comparison: Comparison, right: &Self) -> (Test, String) {
        let test = match (self.constant, right.constant) {
            (None, Some(value)) => self.test(comparison, value),
            (Some(value), None) => right.test(mirrored(comparison), value),
            _ => None,
        };
        let test = test.unwrap_or_else(|| Test::Opaque {
            within: self.within.clone().or_else(|| right.within.clone()).map(Box::new),
        });
        (test, format!("{} {} {}", self.text, sign(comparison), right.text))
    }

    fn test(&self, comparison: Comparison, value: u32) -> Option<Test> {
        Some(match self.shape {
            Shape::Length => Test::Length(comparison, value),
            Shape::Flags => Test::TcpFlags { mask: 0xFF, comparison, value },
            Shape::MaskedFlags(mask) => {
                Test::TcpFlags { mask: mask.to_le_bytes()[0], comparison, value }
            }
            Shape::Icmp { version, code } => Test::Icmp { version, code, comparison, value },
            Shape::Loaded(load) => return self.loaded(load, (u32::MAX, 0), comparison, value),
            Shape::Masked(load, mask, down) => {
                return self.loaded(load, (mask, down), comparison, value);
            }
            Shape::Other => return None,
        })
    }

    /// The test of bytes that a field holds bits of, if it has all the bits that count.
    fn loaded(
        &self,
        load: &'static Load,
        (mask, down): (u32, u32),
        comparison: Comparison,
        value: u32,
    ) -> Option<Test> {
        let all = u32::MAX.checked_shr(32 - 8 * load.size).unwrap_or(0);
        // Bits that are shifted out do not count.
        let mask = mask & all & u32::MAX.checked_shl(down).unwrap_or(0);
        if mask & !load.bits != 0 {
            return None;
        }
        let within = Box::new(self.within.clone()?);
        Some(Test::Loaded { within, load, mask, down, comparison, value })
    }
}

/// The comparison that a sign stands for.
pub(super) fn comparison(sign: &str) -> Option<Comparison> {
    Some(match sign {
        "=" => Comparison::Eq,
        "!=" => Comparison::Ne,
        "<" => Comparison::Lt,
        "<=" => Comparison::Le,
        ">" => Comparison::Gt,
        ">=" => Comparison::Ge,
        _ => return None,
    })
}

/// The sign of a comparison.
pub(super) fn sign(comparison: Comparison) -> &'static str {
    match comparison {
        Comparison::Eq => "=",
        Comparison::Ne => "!=",
        Comparison::Lt => "<",
        Comparison::Le => "<=",
        Comparison::Gt => ">",
        Comparison::Ge => ">=",
    }
}

/// The same comparison with its sides exchanged.
fn mirrored(comparison: Comparison) -> Comparison {
    match comparison {
        Comparison::Lt => Comparison::Gt,
        Comparison::Le => Comparison::Ge,
        Comparison::Gt => Comparison::Lt,
        Comparison::Ge => Comparison::Le,
        same => same,
    }
}
