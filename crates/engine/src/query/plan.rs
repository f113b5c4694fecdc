//! From a filter to the rows of a segment that can match, and those that do for certain.
//!
//! A term is answered from columns where they tell what libpcap's program would; where they do not,
//! its rows are *unknown*. Of a term we have the rows for which it holds, `T`, and the unknown
//! ones, `U`, which have nothing in common. An expression gets an upper bound (every unknown row
//! may match) from the upper bounds of its parts, and, under `not`, from their lower bounds (no
//! unknown row matches). Rows of the upper bound that are unknown to no term match for certain. The
//! others are *candidates*: the compiled program sees their packets.
//!
//! That a row is unknown to one term makes it a candidate even if another term seems to settle it,
//! as in `a or b`: if the program for `b` loads from beyond the end of a packet, the packet does
//! not match, whatever `a` says.

use std::ops::RangeInclusive;

use tapdex_bitmap::{Bitmap, Chunks, Cursor, union};

use super::filter::{Comparison, Direction, Expr, FieldTest, IpVersion, Shift, Term, Test};
use super::lists;
use crate::archive::Columns;
use crate::error::IndexError;
use crate::fields::{Field, length_class, length_class_start};
use crate::index::{FieldIndex, Rows};
use crate::packet::{
    ETHERTYPE_ARP, ETHERTYPE_IPV4, ETHERTYPE_IPV6, ETHERTYPE_MPLS, ETHERTYPE_RARP, ETHERTYPES_VLAN,
    Encap, Fragment, protocol,
};

/// Rows of a segment, or none or all of them, which need not be joined with anything.
pub(crate) enum Set<'a> {
    None,
    All,
    /// With the bytes of the bitmaps that have to be read to know them, a measure of how many they
    /// are at most.
    Rows(Rows<'a>, u64),
}

impl<'a> Set<'a> {
    fn weight(&self) -> u64 {
        match self {
            Self::None => 0,
            Self::All => u64::MAX,
            Self::Rows(_, weight) => *weight,
        }
    }

    /// The rows that are in all of the sets: the smallest first, and none is looked at where
    /// another has no rows.
    pub(crate) fn all_of(sets: Vec<Self>) -> Self {
        let mut rows = Vec::with_capacity(sets.len());
        for set in sets {
            match set {
                Self::None => return Self::None,
                Self::All => {}
                Self::Rows(..) => rows.push(set),
            }
        }
        rows.sort_by_key(Self::weight);
        let join = |left, right| match (left, right) {
            (Self::Rows(a, weight), Self::Rows(b, _)) => Self::Rows(Box::new(a.and(b)), weight),
            (left, _) => left,
        };
        rows.into_iter().reduce(join).unwrap_or(Self::All)
    }

    /// The rows that are in any of the sets.
    pub(crate) fn any_of(sets: Vec<Self>) -> Self {
        let (mut rows, mut weight) = (Vec::with_capacity(sets.len()), 0_u64);
        for set in sets {
            match set {
                Self::None => {}
                Self::All => return Self::All,
                Self::Rows(set, bytes) => {
                    weight = weight.saturating_add(bytes);
                    rows.push(set);
                }
            }
        }
        if rows.len() <= 1 {
            return rows.pop().map_or(Self::None, |only| Self::Rows(only, weight));
        }
        Self::Rows(Box::new(union(rows)), weight)
    }

    /// The rows that are not in the set.
    pub(crate) fn not(self, rows: u32) -> Self {
        match self {
            Self::None => Self::All,
            Self::All => Self::None,
            Self::Rows(set, weight) => {
                Self::Rows(Box::new(set.complement(rows)), u64::MAX - weight.min(u64::MAX / 2))
            }
        }
    }

    pub(crate) fn and(self, other: Self) -> Self {
        Self::all_of(vec![self, other])
    }

    /// A cursor, for a segment of so many rows.
    pub(crate) fn into_rows(self, rows: u32) -> Rows<'a> {
        match self {
            Self::None => Box::new(union::<Cursor<'a>>([])),
            Self::All => Box::new(union::<Cursor<'a>>([]).complement(rows)),
            Self::Rows(set, _) => set,
        }
    }
}

/// What the frames of some interfaces start with, as far as columns know it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Dialect {
    /// An Ethernet header.
    Ethernet,
    /// Something without MAC addresses that leads to a network header.
    Network,
}

/// Expressions within each other that are looked into to find those of few bytes.
const ESTIMATE_DEPTH: usize = 4;

/// Where columns have network headers: behind the link's own, or behind one tag or two. libpcap
/// looks in more places; those have no level.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Level {
    Link,
    Tag,
    TwoTags,
}

impl Level {
    fn of(shift: Shift) -> Option<Self> {
        match shift {
            Shift::Tags(0) => Some(Self::Link),
            Shift::Tags(1) => Some(Self::Tag),
            Shift::Tags(2) => Some(Self::TwoTags),
            Shift::Tags(_) | Shift::Elsewhere => None,
        }
    }

    fn tags(self) -> u8 {
        match self {
            Self::Link => 0,
            Self::Tag => 1,
            Self::TwoTags => 2,
        }
    }
}

/// How columns answer a term.
enum Reading<'t> {
    /// Not at all: all rows are unknown.
    Nowhere,
    /// A field of Wireshark's.
    Field(&'t FieldTest),
    /// The length on the wire is in one of these ranges.
    Length(Vec<RangeInclusive<u128>>),
    /// A test of headers at a level.
    At(Level, &'t Test),
    /// The rows for which that test holds are unknown, and it is false elsewhere.
    Within(Level, &'t Test),
}

/// Answers terms from the columns of a segment.
#[derive(Clone, Copy)]
pub(crate) struct Planner<'a> {
    pub(crate) columns: Columns<'a>,
    pub(crate) dialect: Dialect,
}

type Planned<'a> = Result<Set<'a>, IndexError>;

impl<'a> Planner<'a> {
    /// The rows that can match an expression (`upper`), or those that match if no unknown row does.
    pub(crate) fn bound(&self, expr: &Expr, upper: bool) -> Planned<'a> {
        match expr {
            Expr::And(parts) => {
                let mut sets = Vec::with_capacity(parts.len());
                let mut parts: Vec<(u64, &Expr)> = parts
                    .iter()
                    .map(|part| Ok((self.estimate(part, ESTIMATE_DEPTH)?, part)))
                    .collect::<Result<_, IndexError>>()?;
                parts.sort_by_key(|&(estimate, _)| estimate);
                for (_, part) in parts {
                    match self.bound(part, upper)? {
                        // The rest need not be looked up.
                        Set::None => return Ok(Set::None),
                        set => sets.push(set),
                    }
                }
                Ok(Set::all_of(sets))
            }
            Expr::Or(parts) => {
                let (lists, others) = lists::alike(parts);
                let sets = others.into_iter().map(|part| self.bound(part, upper));
                let lists = lists.iter().map(|list| self.list(list, upper));
                Ok(Set::any_of(sets.chain(lists).collect::<Result<_, _>>()?))
            }
            Expr::Not(part) => Ok(self.bound(part, !upper)?.not(self.columns.rows())),
            Expr::Term(term) => {
                let holds = self.holds(term)?;
                if !upper {
                    return Ok(holds);
                }
                Ok(Set::any_of(vec![holds, self.unknown_to(term)?]))
            }
        }
    }

    /// The rows that can match one of some terms that differ in their values only (`upper`), or
    /// those that match if no unknown row does. What else they ask is looked up once.
    pub(crate) fn list(&self, terms: &[&Term], upper: bool) -> Planned<'a> {
        let Some(first) = terms.first() else { return Ok(Set::None) };
        let found = terms.iter().map(|term| match &term.test {
            Test::Host4 { direction, address, mask, .. } => {
                let end = |field: Field| self.masked(field, (*address).into(), (*mask).into());
                self.ends(*direction, Field::IpSrc, Field::IpDst, &end)
            }
            Test::Host6 { direction, address, mask } => {
                let end = |field: Field| self.masked(field, *address, *mask);
                self.ends(*direction, Field::Ip6Src, Field::Ip6Dst, &end)
            }
            Test::Port { direction, ports, .. } => {
                let range = u128::from(*ports.start())..=u128::from(*ports.end());
                let end = |field: Field| self.range(field, range.clone());
                self.ends(*direction, Field::PortSrc, Field::PortDst, &end)
            }
            _ => self.holds(term),
        });
        let mut found = Set::any_of(found.collect::<Result<_, _>>()?);
        let mut any = (*first).clone();
        let has_value = match &mut any.test {
            Test::Host4 { mask, .. } => std::mem::replace(mask, 0) != 0,
            Test::Host6 { mask, .. } => std::mem::replace(mask, 0) != 0,
            Test::Port { ports, .. } => {
                *ports = 0..=u16::MAX;
                true
            }
            _ => false,
        };
        if has_value && !matches!(found, Set::None) {
            found = found.and(self.holds(&any)?);
        }
        match upper {
            true => Ok(Set::any_of(vec![found, self.unknown_to(first)?])),
            false => Ok(found),
        }
    }

    /// Bytes of the bitmaps that tell most about an expression, found without reading them: those
    /// of few bytes exclude the most.
    fn estimate(&self, expr: &Expr, depth: usize) -> Result<u64, IndexError> {
        let each = |parts: &[Expr]| -> Result<Vec<u64>, IndexError> {
            parts.iter().map(|part| self.estimate(part, depth - 1)).collect()
        };
        Ok(match expr {
            Expr::And(_) | Expr::Or(_) if depth == 0 => u64::MAX / 2,
            Expr::And(parts) => each(parts)?.into_iter().min().unwrap_or(u64::MAX),
            Expr::Or(parts) => each(parts)?.into_iter().fold(0, u64::saturating_add),
            Expr::Not(_) => u64::MAX,
            Expr::Term(term) => match &term.test {
                Test::Host4 { address, mask, .. } => {
                    let (address, mask) = ((*address).into(), (*mask).into());
                    self.digits_len(Field::IpSrc, address, mask)?.saturating_add(self.digits_len(
                        Field::IpDst,
                        address,
                        mask,
                    )?)
                }
                Test::Host6 { address, mask, .. } => self
                    .digits_len(Field::Ip6Src, *address, *mask)?
                    .saturating_add(self.digits_len(Field::Ip6Dst, *address, *mask)?),
                Test::Mac { address, .. } => {
                    self.digits_len(Field::EthSrc, (*address).into(), u128::MAX)?.saturating_add(
                        self.digits_len(Field::EthDst, (*address).into(), u128::MAX)?,
                    )
                }
                Test::Port { ports, .. } if ports.start() == ports.end() => {
                    let port = (*ports.start()).into();
                    self.digits_len(Field::PortSrc, port, u128::MAX)?
                        .saturating_add(self.digits_len(Field::PortDst, port, u128::MAX)?)
                }
                _ => u64::MAX / 2,
            },
        })
    }

    /// Bytes of the smallest bitmap of the whole digits of a value.
    fn digits_len(&self, field: Field, value: u128, mask: u128) -> Result<u64, IndexError> {
        let Some(column) = self.columns.read(field)? else {
            return Ok(0);
        };
        let mut least = u64::MAX / 4;
        for digit in masked_digits(&column, value, mask).filter(|digit| digit.whole) {
            least = least.min(self.columns.bitmap_len(digit.number, digit.wanted)?);
        }
        Ok(least)
    }

    /// The rows that are unknown to any term of an expression.
    pub(crate) fn unknown(&self, expr: &Expr) -> Planned<'a> {
        let mut seen: Vec<&Term> = Vec::new();
        let mut sets = Vec::new();
        for term in expr.terms() {
            // What is unknown depends on less than the whole term; most terms are alike in it.
            let alike = |other: &&Term| {
                other.shift == term.shift
                    && (other.test == term.test
                        || is_plain(&other.test) && is_plain(&term.test)
                        || matches!(
                            (&other.test, &term.test),
                            (Test::Mac { .. }, Test::Mac { .. })
                        ))
            };
            if !seen.iter().any(alike) {
                sets.push(self.unknown_to(term)?);
                seen.push(term);
            }
        }
        Ok(Set::any_of(sets))
    }

    /// The rows for which columns do not tell whether a term holds.
    pub(crate) fn unknown_to(&self, term: &Term) -> Planned<'a> {
        match self.reading(term) {
            Reading::Nowhere => Ok(Set::All),
            Reading::Field(test) => self.unknown_to_field(test),
            Reading::Length(lengths) => self.length_edge(&lengths),
            Reading::At(level, test) => self.unclear(level, test),
            Reading::Within(level, test) => {
                Ok(Set::any_of(vec![self.unclear(level, test)?, self.test(level, test)?]))
            }
        }
    }

    /// The rows for which a term holds, unknown ones left out.
    pub(crate) fn holds(&self, term: &Term) -> Planned<'a> {
        match self.reading(term) {
            // All that may be true is unknown.
            Reading::Nowhere | Reading::Within(..) => Ok(Set::None),
            Reading::Field(test) => self.field(test),
            Reading::Length(lengths) => self.length(&lengths),
            Reading::At(level, test) => {
                let found = self.test(level, test)?;
                if matches!(found, Set::None) {
                    return Ok(Set::None);
                }
                match self.unclear(level, test)? {
                    Set::None => Ok(found),
                    Set::All => Ok(Set::None),
                    unknown => Ok(found.and(unknown.not(self.columns.rows()))),
                }
            }
        }
    }

    /// How a term is read from columns. What has no place in them is read nowhere: only from here
    /// there is a way to the rows of a test.
    fn reading<'t>(&self, term: &'t Term) -> Reading<'t> {
        let test = match &term.test {
            Test::Field(test) => return Reading::Field(test),
            // Lengths are not loaded from the frame.
            &Test::Length(comparison, len) => {
                return Reading::Length(values_of(comparison, len.into(), u32::MAX.into()));
            }
            Test::Opaque { within: None } => return Reading::Nowhere,
            Test::Opaque { within: Some(within) } => within,
            test => test,
        };
        let Some(level) = Level::of(term.shift) else { return Reading::Nowhere };
        match (test, level) {
            // Neither the id of a third tag nor labels behind tags have a column.
            (Test::Vlan(_), Level::TwoTags) | (Test::Mpls(_), Level::Tag | Level::TwoTags) => {
                Reading::Nowhere
            }
            (Test::Mac { .. } | Test::EtherMulticast, _) if self.dialect != Dialect::Ethernet => {
                Reading::Nowhere
            }
            _ if matches!(term.test, Test::Opaque { .. }) => Reading::Within(level, test),
            (Test::Loaded { load, within, .. }, _) if !self.columns.knows(load.field) => {
                Reading::Within(level, within)
            }
            _ => Reading::At(level, test),
        }
    }

    /// The rows for which columns do not tell whether a test holds at a level.
    fn unclear(&self, level: Level, test: &Test) -> Planned<'a> {
        let odd = self.equals(Field::Odd, 1)?;
        match test {
            // MAC addresses are not moved by tags.
            Test::Mac { .. } | Test::EtherMulticast => return Ok(odd),
            Test::Length(..) | Test::Opaque { .. } | Test::Field(_) => {
                return Ok(Set::All);
            }
            _ => {}
        }
        // The type of a tag is not kept, but for the fact that there is one.
        let typed = match test {
            Test::EtherType(kind) if ETHERTYPES_VLAN.contains(kind) => {
                self.encap(&Encap::TAGGED)?
            }
            // It may be cut off.
            Test::Loaded { load, within, .. } if load.is_transport => Set::all_of(vec![
                self.test(level, within)?,
                self.not_later()?,
                self.equals(load.field, 0)?,
            ]),
            _ => Set::None,
        };
        let shifted = match level {
            Level::Link => Set::None,
            Level::Tag => self.encap(&[Encap::None, Encap::Mpls, Encap::TagsMpls])?,
            Level::TwoTags => self.encap(&[Encap::TwoTags])?.not(self.columns.rows()),
        };
        Ok(Set::any_of(vec![odd, typed, shifted]))
    }

    /// The rows for which a test holds at a level; unclear ones may or may not be among them.
    fn test(&self, level: Level, test: &Test) -> Planned<'a> {
        let tags = level.tags();
        let behind = |kind: u16| -> Result<Vec<Set<'a>>, IndexError> {
            Ok(vec![
                self.equals(Field::Encap, tags.into())?,
                self.equals(Field::EthType, kind.into())?,
            ])
        };
        let all = |mut sets: Vec<Set<'a>>, more: Vec<Set<'a>>| {
            sets.extend(more);
            Set::all_of(sets)
        };
        Ok(match test {
            Test::EtherType(kind) if *kind == ETHERTYPE_MPLS && tags == 0 => {
                self.encap(&[Encap::Mpls])?
            }
            Test::EtherType(kind) => Set::all_of(behind(*kind)?),
            Test::IpProto { version, proto } => {
                let v4 = match version {
                    None | Some(IpVersion::V4) => all(
                        behind(ETHERTYPE_IPV4)?,
                        vec![self.equals(Field::IpProto, (*proto).into())?],
                    ),
                    Some(IpVersion::V6) => Set::None,
                };
                let v6 = match version {
                    None | Some(IpVersion::V6) => {
                        let fragment = vec![
                            self.equals(Field::IpProto, protocol::FRAGMENT.into())?,
                            self.equals(Field::L4, (*proto).into())?,
                        ];
                        let direct = self.equals(Field::IpProto, (*proto).into())?;
                        let either = Set::any_of(vec![direct, Set::all_of(fragment)]);
                        all(behind(ETHERTYPE_IPV6)?, vec![either])
                    }
                    Some(IpVersion::V4) => Set::None,
                };
                Set::any_of(vec![v4, v6])
            }
            Test::Host4 { ip, arp, rarp, direction, address, mask } => {
                let kinds = [(*ip, ETHERTYPE_IPV4), (*arp, ETHERTYPE_ARP), (*rarp, ETHERTYPE_RARP)];
                let kinds = kinds.iter().filter(|(wanted, _)| *wanted);
                let kinds: Vec<u128> = kinds.map(|&(_, kind)| kind.into()).collect();
                let end = |field: Field| self.masked(field, (*address).into(), (*mask).into());
                let found = self.ends(*direction, Field::IpSrc, Field::IpDst, &end)?;
                if matches!(found, Set::None) {
                    return Ok(Set::None);
                }
                Set::all_of(vec![
                    self.equals(Field::Encap, tags.into())?,
                    self.any_value(Field::EthType, &kinds)?,
                    found,
                ])
            }
            Test::Host6 { direction, address, mask } => {
                let end = |field: Field| self.masked(field, *address, *mask);
                let found = self.ends(*direction, Field::Ip6Src, Field::Ip6Dst, &end)?;
                all(behind(ETHERTYPE_IPV6)?, vec![found])
            }
            Test::Mac { direction, address } => {
                let end = |field: Field| self.equals(field, (*address).into());
                self.ends(*direction, Field::EthSrc, Field::EthDst, &end)?
            }
            Test::EtherMulticast => {
                let odd_digits: Vec<u16> = (0..=255).filter(|digit| digit & 1 == 1).collect();
                self.first_digit(Field::EthDst, &odd_digits)?
            }
            Test::IpMulticast => {
                let digits: Vec<u16> = (224..=255).collect();
                all(behind(ETHERTYPE_IPV4)?, vec![self.first_digit(Field::IpDst, &digits)?])
            }
            Test::Ip6Multicast => {
                all(behind(ETHERTYPE_IPV6)?, vec![self.first_digit(Field::Ip6Dst, &[255])?])
            }
            Test::Port { transport, direction, ports } => {
                let range = u128::from(*ports.start())..=u128::from(*ports.end());
                let end = |field: Field| self.range(field, range.clone());
                let found = self.ends(*direction, Field::PortSrc, Field::PortDst, &end)?;
                if matches!(found, Set::None) {
                    return Ok(Set::None);
                }
                let all_three = [protocol::TCP, protocol::UDP, protocol::SCTP];
                let protocols: Vec<u128> = match transport {
                    Some(proto) => vec![(*proto).into()],
                    None => all_three.map(u128::from).to_vec(),
                };
                let kinds = [ETHERTYPE_IPV4.into(), ETHERTYPE_IPV6.into()];
                Set::all_of(vec![
                    self.equals(Field::Encap, tags.into())?,
                    self.any_value(Field::EthType, &kinds)?,
                    self.any_value(Field::IpProto, &protocols)?,
                    self.not_later()?,
                    found,
                ])
            }
            Test::Vlan(id) => {
                let (encap, field) = match level {
                    Level::Link => (self.encap(&Encap::TAGGED)?, Field::Vlan),
                    Level::Tag | Level::TwoTags => {
                        (self.encap(&Encap::TAGGED_TWICE)?, Field::VlanInner)
                    }
                };
                match id {
                    None => encap,
                    Some(id) => encap.and(self.equals(field, (*id).into())?),
                }
            }
            Test::Mpls(label) => {
                let encap = self.encap(&[Encap::Mpls])?;
                match label {
                    None => encap,
                    Some(label) => encap.and(self.equals(Field::Mpls, (*label).into())?),
                }
            }
            Test::TcpFlags { mask, comparison, value } => {
                let digits =
                    digits_where(|digit| comparison.holds(digit & u32::from(*mask), *value));
                let more = vec![
                    self.equals(Field::IpProto, protocol::TCP.into())?,
                    self.not_later()?,
                    self.first_digit(Field::TcpFlags, &digits)?,
                ];
                all(behind(ETHERTYPE_IPV4)?, more)
            }
            Test::Icmp { version, code, comparison, value } => {
                let digits = digits_where(|digit| comparison.holds(digit, *value));
                let field = if *code { Field::IcmpCode } else { Field::IcmpType };
                let (kind, proto) = match version {
                    IpVersion::V4 => (ETHERTYPE_IPV4, protocol::ICMP),
                    IpVersion::V6 => (ETHERTYPE_IPV6, protocol::ICMP6),
                };
                let more = vec![
                    self.equals(Field::IpProto, proto.into())?,
                    self.not_later()?,
                    self.first_digit(field, &digits)?,
                ];
                all(behind(kind)?, more)
            }
            Test::Loaded { load, within, .. } => {
                let found = self.first_digit_where(load.field, |digit| test.holds_for(digit))?;
                let whole = match load.is_transport {
                    _ if matches!(found, Set::None) => return Ok(Set::None),
                    true => self.not_later()?,
                    false => Set::All,
                };
                Set::all_of(vec![self.test(level, within)?, whole, found])
            }
            // Unclear in all rows.
            Test::Length(..) | Test::Opaque { .. } | Test::Field(_) => Set::None,
        })
    }

    /// Rows with one of these before their network header.
    pub(crate) fn encap(&self, kinds: &[Encap]) -> Planned<'a> {
        let values: Vec<u128> = kinds.iter().map(|&kind| (kind as u8).into()).collect();
        self.any_value(Field::Encap, &values)
    }

    /// Rows that are no later fragments.
    fn not_later(&self) -> Planned<'a> {
        Ok(self.equals(Field::Fragment, (Fragment::Later as u8).into())?.not(self.columns.rows()))
    }

    /// Joins what holds for the two ends of a packet.
    pub(crate) fn ends(
        &self,
        direction: Direction,
        src: Field,
        dst: Field,
        end: &dyn Fn(Field) -> Planned<'a>,
    ) -> Planned<'a> {
        Ok(match direction {
            Direction::Src => end(src)?,
            Direction::Dst => end(dst)?,
            Direction::Either => Set::any_of(vec![end(src)?, end(dst)?]),
            Direction::Both => Set::all_of(vec![end(src)?, end(dst)?]),
        })
    }

    /// Rows in which a field has a value. A field that a segment does not have is 0 in all rows.
    pub(crate) fn equals(&self, field: Field, value: u128) -> Planned<'a> {
        let Some(column) = self.columns.read(field)? else {
            return Ok(if value == 0 { Set::All } else { Set::None });
        };
        if value > column.value_max() {
            return Ok(Set::None);
        }
        self.masked_columns(&column, value, column.value_max())
    }

    /// Rows in which a field has one of some values.
    pub(crate) fn any_value(&self, field: Field, values: &[u128]) -> Planned<'a> {
        let sets: Result<Vec<_>, _> = values.iter().map(|&v| self.equals(field, v)).collect();
        Ok(Set::any_of(sets?))
    }

    /// Rows in which the bits of a field that count have a value.
    fn masked(&self, field: Field, value: u128, mask: u128) -> Planned<'a> {
        match self.columns.read(field)? {
            None => Ok(if value & mask == 0 { Set::All } else { Set::None }),
            Some(column) => self.masked_columns(&column, value, mask),
        }
    }

    fn masked_columns(&self, field: &FieldIndex<'a>, value: u128, mask: u128) -> Planned<'a> {
        // Whole digits: the bytes of their bitmaps, the column, the digit. And parts of digits.
        let (mut whole, mut parts) = (Vec::new(), Vec::new());
        for Masked { number, wanted, counts, whole: is_whole } in masked_digits(field, value, mask)
        {
            if is_whole {
                match self.columns.bitmap_len(number, wanted)? {
                    0 => return Ok(Set::None),
                    len => whole.push((len, number, wanted)),
                }
            } else if counts != 0 {
                parts.push((number, wanted, counts));
            }
        }
        // The smallest first: where those have no row in common, the others need not be read.
        whole.sort_unstable();
        let mut sets = Vec::with_capacity(whole.len() + parts.len());
        let mut last: Option<Bitmap<'a>> = None;
        for &(len, number, digit) in &whole {
            let Some(bitmap) = self.columns.equals(number, digit)? else {
                return Ok(Set::None);
            };
            if let Some(last) = last.replace(bitmap)
                && is_empty(last.chunks().and(bitmap.chunks()))
            {
                return Ok(Set::None);
            }
            sets.push(Set::Rows(Box::new(bitmap.chunks()), len));
        }
        for (number, wanted, counts) in parts {
            let column = self.columns.column(number)?;
            let digits: Vec<u16> =
                column.keys().filter(|key| key & counts == wanted & counts).collect();
            match self.digits(&column, &digits)? {
                Set::None => return Ok(Set::None),
                set => sets.push(set),
            }
        }
        Ok(Set::all_of(sets))
    }

    /// Rows in which a column has one of some digits.
    fn digits(&self, column: &crate::index::Column<'a>, digits: &[u16]) -> Planned<'a> {
        let found: Vec<usize> = digits.iter().filter_map(|&d| column.position(d)).collect();
        if found.is_empty() {
            return Ok(Set::None);
        }
        if found.len() == column.len() {
            return Ok(Set::All);
        }
        let weight = found.iter().map(|&i| column.bitmap_len(i)).sum();
        Ok(Set::Rows(column.any_of(digits)?, weight))
    }

    /// Rows in which the first digit of a field is one of these.
    fn first_digit(&self, field: Field, digits: &[u16]) -> Planned<'a> {
        let Some(column) = self.columns.read(field)? else {
            return Ok(if digits.contains(&0) { Set::All } else { Set::None });
        };
        match column.columns().next() {
            None => Ok(Set::None),
            Some(column) => self.digits(&column?, digits),
        }
    }

    /// Rows in which something holds of the first digit of a field.
    fn first_digit_where(&self, field: Field, holds: impl Fn(u32) -> bool) -> Planned<'a> {
        let Some(column) = self.columns.read(field)? else {
            return Ok(if holds(0) { Set::All } else { Set::None });
        };
        let Some(column) = column.columns().next().transpose()? else { return Ok(Set::None) };
        let digits: Vec<u16> = column.keys().filter(|&digit| holds(digit.into())).collect();
        self.digits(&column, &digits)
    }

    /// Rows in which a field is in a range.
    pub(crate) fn range(&self, field: Field, values: RangeInclusive<u128>) -> Planned<'a> {
        if values.is_empty() {
            return Ok(Set::None);
        }
        if values.start() == values.end() {
            return self.equals(field, *values.start());
        }
        let Some(column) = self.columns.read(field)? else {
            return Ok(if values.contains(&0) { Set::All } else { Set::None });
        };
        if *values.start() == 0 && *values.end() >= column.value_max() {
            return Ok(Set::All);
        }
        let rows = column.range(values)?;
        Ok(Set::Rows(rows, u64::from(self.columns.rows())))
    }

    /// Rows in which a field is in one of some ranges.
    pub(crate) fn ranges(&self, field: Field, values: &[RangeInclusive<u128>]) -> Planned<'a> {
        let sets: Result<Vec<_>, _> = values.iter().map(|v| self.range(field, v.clone())).collect();
        Ok(Set::any_of(sets?))
    }

    /// Rows whose length is in one of some ranges for certain.
    pub(crate) fn length(&self, lengths: &[RangeInclusive<u128>]) -> Planned<'a> {
        if self.columns.knows(Field::FrameLen) {
            return self.ranges(Field::FrameLen, lengths);
        }
        self.first_digit(Field::Length, &self.classes(lengths, true)?)
    }

    /// Rows whose class has lengths inside and outside of the ranges, where only that is known.
    pub(crate) fn length_edge(&self, lengths: &[RangeInclusive<u128>]) -> Planned<'a> {
        if self.columns.knows(Field::FrameLen) {
            return Ok(Set::None);
        }
        self.first_digit(Field::Length, &self.classes(lengths, false)?)
    }

    /// The classes that lie inside a range, or those that lie on its edge.
    fn classes(
        &self,
        lengths: &[RangeInclusive<u128>],
        inside: bool,
    ) -> Result<Vec<u16>, IndexError> {
        let mut found = Vec::new();
        for class in 0..=length_class(u32::MAX) {
            let (first, end) = (length_class_start(class), length_class_start(class + 1));
            let (first, last) = (u128::from(first), u128::from(end) - 1);
            let contains = lengths.iter().any(|r| r.contains(&first) && r.contains(&last));
            let touches = lengths.iter().any(|r| *r.start() <= last && first <= *r.end());
            if if inside { contains } else { touches && !contains } {
                found.push(class.into());
            }
        }
        Ok(found)
    }

    /// The rows of some interfaces.
    pub(crate) fn interfaces(&self, interfaces: &[u32]) -> Planned<'a> {
        let values: Vec<u128> = interfaces.iter().map(|&i| i.into()).collect();
        self.any_value(Field::Interface, &values)
    }

    fn unknown_to_field(&self, test: &FieldTest) -> Planned<'a> {
        super::fields::unknown_rows(self, test)
    }

    fn field(&self, test: &FieldTest) -> Planned<'a> {
        super::fields::rows(self, test)
    }
}

/// A digit of a value of which some bits count.
struct Masked {
    /// The column.
    number: usize,
    wanted: u16,
    counts: u16,
    /// All of its bits count.
    whole: bool,
}

/// The digits of a value of which some bits count, the most significant first.
fn masked_digits(field: &FieldIndex<'_>, value: u128, mask: u128) -> impl Iterator<Item = Masked> {
    let mut after = field.field().bits();
    field.column_numbers().zip(&field.field().columns).map(move |(number, spec)| {
        let width = spec.width.bits();
        after -= width;
        let full = (1 << width) - 1;
        let digit = |bits: u128| u16::try_from(bits >> after & full).unwrap_or(0);
        let whole = mask >> after & full == full;
        Masked { number, wanted: digit(value), counts: digit(mask), whole }
    })
}

/// Whether a set has no rows.
fn is_empty(mut rows: impl Chunks) -> bool {
    let mut from = 0;
    while let Some(key) = rows.seek(from) {
        if rows.chunk_len() > 0 {
            return false;
        }
        from = key + 1;
    }
    true
}

/// Whether what is unknown to a test is the same for all such tests.
fn is_plain(test: &Test) -> bool {
    match test {
        Test::EtherType(kind) => !ETHERTYPES_VLAN.contains(kind),
        Test::IpProto { .. }
        | Test::Host4 { .. }
        | Test::Host6 { .. }
        | Test::IpMulticast
        | Test::Ip6Multicast
        | Test::Port { .. }
        | Test::TcpFlags { .. }
        | Test::Icmp { .. } => true,
        Test::Mac { .. }
        | Test::EtherMulticast
        | Test::Vlan(_)
        | Test::Mpls(_)
        | Test::Length(..)
        | Test::Loaded { .. }
        | Test::Opaque { .. }
        | Test::Field(_) => false,
    }
}

/// The digits of a byte for which something holds.
fn digits_where(holds: impl Fn(u32) -> bool) -> Vec<u16> {
    (0..=255).filter(|&digit| holds(u32::from(digit))).collect()
}

impl Test {
    /// Whether a test of bytes of a header holds, by the value of the field.
    fn holds_for(&self, value: u32) -> bool {
        match *self {
            Self::Loaded { load, mask, down, comparison, value: with, .. } => {
                comparison.holds((value << load.shift & mask) >> down, with)
            }
            _ => false,
        }
    }
}

impl Comparison {
    /// Whether it holds for two numbers.
    pub fn holds<T: Ord>(self, left: T, right: T) -> bool {
        match self {
            Self::Eq => left == right,
            Self::Ne => left != right,
            Self::Lt => left < right,
            Self::Le => left <= right,
            Self::Gt => left > right,
            Self::Ge => left >= right,
        }
    }
}

/// The values up to `max` for which a comparison with a number holds.
fn values_of(comparison: Comparison, number: u128, max: u128) -> Vec<RangeInclusive<u128>> {
    let below = (number > 0).then(|| 0..=number - 1);
    let above = (number < max).then(|| number + 1..=max);
    let equal = (number <= max).then_some(number..=number);
    let ranges = match comparison {
        Comparison::Eq => [None, equal, None],
        Comparison::Ne => [below, None, above],
        Comparison::Lt => [below, None, None],
        Comparison::Le => [below, equal, None],
        Comparison::Gt => [None, None, above],
        Comparison::Ge => [None, equal, above],
    };
    // Neighbours are one range, or a class that spans them would not be seen inside.
    let mut joined: Vec<RangeInclusive<u128>> = Vec::new();
    for range in ranges.into_iter().flatten() {
        match joined.last_mut() {
            Some(last) if *last.end() + 1 == *range.start() => *last = *last.start()..=*range.end(),
            _ => joined.push(range),
        }
    }
    joined
}
