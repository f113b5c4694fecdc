//! From a filter to the rows of a segment that can match, and those that do for certain.
//!
//! A term is answered from columns for rows where they show what libpcap's program would find;
//! other rows are *unknown*. Each term gives the rows for which it holds, `T`, and the unknown
//! ones, `U`, which have nothing in common. An expression gets an upper bound (every unknown row
//! may match) from the upper bounds of its parts, and, under `not`, from their lower bounds (no
//! unknown row matches). Rows of the upper bound that are unknown to no term match for certain. The
//! others are *candidates*: the compiled program sees their packets.
//!
//! A row that is unknown to one term is a candidate even if another term seems to settle it, as in
//! `a or b`: if the program for `b` loads from beyond the end of a packet, the packet does not
//! match, whatever `a` says.

mod headers;
mod lookup;

use std::ops::RangeInclusive;
use std::rc::Rc;

use tapdex_bitmap::{Chunks, Cursor, union};

use super::filter::{Comparison, Expr, FieldTest, Shift, Term, Test};
use super::lists;
use crate::archive::Columns;
use crate::error::IndexError;
use crate::fields::Field;
use crate::index::{Conversations, Found, Rows, Within};
use crate::packet::{ETHERTYPE_IPV4, ETHERTYPE_IPV6, ETHERTYPES_VLAN, Encap};
pub(crate) use lookup::Sought;

/// Rows of a segment, or none or all of them, which need not be joined with anything.
pub(crate) enum Set<'a> {
    None,
    All,
    /// With the bytes of the bitmaps that have to be read for them: a measure of how many rows
    /// there are at most.
    Rows(Rows<'a>, u64),
    /// All rows of some flows, but not of all.
    Conversations(Conversations<'a>, u64),
}

impl<'a> From<Found<'a>> for Set<'a> {
    fn from(found: Found<'a>) -> Self {
        match found {
            Found::None => Self::None,
            Found::All => Self::All,
            Found::Some(rows, weight) => Self::Rows(rows, weight),
            Found::Conversations(found, weight) => Self::of_conversations(found, weight),
        }
    }
}

impl<'a> Set<'a> {
    fn weight(&self) -> u64 {
        match self {
            Self::None => 0,
            Self::All => u64::MAX,
            Self::Rows(_, weight) | Self::Conversations(_, weight) => *weight,
        }
    }

    fn of_conversations(found: Conversations<'a>, weight: u64) -> Self {
        match () {
            () if found.is_empty() => Self::None,
            () if found.is_all() => Self::All,
            () => Self::Conversations(found, weight),
        }
    }

    /// The rows that are in all of the sets: the smallest set first, and no set is looked at where
    /// another has no rows.
    pub(crate) fn all_of(sets: Vec<Self>) -> Self {
        let mut rows = Vec::with_capacity(sets.len());
        let mut common: Option<(Conversations<'a>, u64)> = None;
        for set in sets {
            match set {
                Self::None => return Self::None,
                Self::All => {}
                Self::Rows(..) => rows.push(set),
                Self::Conversations(found, weight) => {
                    let both = match common.take() {
                        None => (found, weight),
                        Some((other, bytes)) => (other.and(found), weight.min(bytes)),
                    };
                    if both.0.is_empty() {
                        return Self::None;
                    }
                    common = Some(both);
                }
            }
        }
        if let Some((found, weight)) = common {
            if rows.is_empty() {
                return Self::of_conversations(found, weight);
            }
            rows.push(Self::Rows(Box::new(found.into_rows()), weight));
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
        let mut joined: Vec<Conversations<'a>> = Vec::new();
        for set in sets {
            weight = weight.saturating_add(set.weight());
            match set {
                Self::None => {}
                Self::All => return Self::All,
                Self::Rows(set, _) => rows.push(set),
                Self::Conversations(found, _) => joined.push(found),
            }
        }
        // By pairs, so that long lists of sets are not copied once for each.
        while joined.len() > 1 {
            let mut rest = std::mem::take(&mut joined).into_iter();
            while let Some(one) = rest.next() {
                joined.push(match rest.next() {
                    Some(other) => one.or(other),
                    None => one,
                });
            }
        }
        if let Some(found) = joined.pop() {
            if rows.is_empty() || found.is_all() {
                return Self::of_conversations(found, weight);
            }
            rows.push(Box::new(found.into_rows()));
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
            Self::Conversations(found, weight) => {
                Self::of_conversations(found.complement(), u64::MAX - weight.min(u64::MAX / 2))
            }
        }
    }

    pub(crate) fn and(self, other: Self) -> Self {
        Self::all_of(vec![self, other])
    }

    /// How many rows are in the set, in a segment of this many rows.
    pub(crate) fn count(self, rows: u32) -> u64 {
        match self {
            Self::None => 0,
            Self::All => rows.into(),
            Self::Rows(set, _) => set.count(),
            Self::Conversations(found, _) => found.rows_len(),
        }
    }

    /// A cursor, for a segment of this many rows.
    pub(crate) fn into_rows(self, rows: u32) -> Rows<'a> {
        match self {
            Self::None => Box::new(union::<Cursor<'a>>([])),
            Self::All => Box::new(union::<Cursor<'a>>([]).complement(rows)),
            Self::Rows(set, _) => set,
            Self::Conversations(found, _) => Box::new(found.into_rows()),
        }
    }
}

/// What the frames of some interfaces start with, as far as columns cover it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Dialect {
    /// An Ethernet header.
    Ethernet,
    /// Something without MAC addresses that leads to a network header.
    Network,
}

/// How many levels of nested expressions are searched for those of few bytes.
const ESTIMATE_DEPTH: usize = 4;

/// Where columns have network headers: right behind the link header, or behind one or two tags.
/// libpcap looks in more places; those have no level.
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
    /// A Wireshark field.
    Field(&'t FieldTest),
    /// The name of a conversation. Any IP packet may be in it.
    Flow,
    /// The length on the wire is in one of these ranges.
    Length(Vec<RangeInclusive<u128>>),
    /// A test of headers at a level.
    At(Level, &'t Test),
    /// The rows for which that test holds are unknown, and it is false elsewhere.
    Within(Level, &'t Test),
}

/// Answers terms from the columns of a segment.
#[derive(Clone)]
pub(crate) struct Planner<'a> {
    pub(crate) columns: Columns<'a>,
    dialect: Dialect,
    /// Answers need not be right for other conversations.
    within: Option<Rc<Within>>,
}

type Planned<'a> = Result<Set<'a>, IndexError>;

impl<'a> Planner<'a> {
    pub(crate) fn new(columns: Columns<'a>, dialect: Dialect) -> Self {
        Self { columns, dialect, within: None }
    }

    /// A planner whose answers need not be right outside of a set, if that saves time.
    pub(crate) fn within(&self, set: &Set<'_>) -> Self {
        let within = match set {
            Set::Conversations(found, _) => found.within().map(Rc::new),
            _ => None,
        };
        Self { within: within.or_else(|| self.within.clone()), ..self.clone() }
    }

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
                // As soon as no conversation is left, the other operands need not be looked up; and
                // if few are left, only for these.
                let (mut common, mut planner) = (Set::All, self.clone());
                for (_, part) in parts {
                    match planner.bound(part, upper)? {
                        set @ Set::Rows(..) => sets.push(set),
                        set => {
                            common = common.and(set);
                            planner = self.within(&common);
                        }
                    }
                    if matches!(common, Set::None) {
                        return Ok(Set::None);
                    }
                }
                sets.push(common);
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
    /// those that match if no unknown row does. What they have in common is looked up once.
    pub(crate) fn list(&self, terms: &[&Term], upper: bool) -> Planned<'a> {
        let Some(first) = terms.first() else { return Ok(Set::None) };
        let found = terms.iter().map(|term| match &term.test {
            Test::Host4 { direction, address, mask, .. } => {
                let sought = Sought::Masked((*address).into(), (*mask).into());
                self.ends(*direction, Field::IpSrc, Field::IpDst, &sought)
            }
            Test::Host6 { direction, address, mask } => {
                let sought = Sought::Masked(*address, *mask);
                self.ends(*direction, Field::Ip6Src, Field::Ip6Dst, &sought)
            }
            Test::Port { direction, ports, .. } => {
                let range = u128::from(*ports.start())..=u128::from(*ports.end());
                self.ends(*direction, Field::PortSrc, Field::PortDst, &Sought::Range(range))
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

    /// Bytes of the most selective bitmaps of an expression, found without reading them: bitmaps of
    /// few bytes exclude the most.
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
                    self.ends_len(Field::IpSrc, Field::IpDst, (*address).into(), (*mask).into())?
                }
                Test::Host6 { address, mask, .. } => {
                    self.ends_len(Field::Ip6Src, Field::Ip6Dst, *address, *mask)?
                }
                Test::Mac { address, .. } => {
                    self.ends_len(Field::EthSrc, Field::EthDst, (*address).into(), u128::MAX)?
                }
                Test::Port { ports, .. } if ports.start() == ports.end() => {
                    let port = (*ports.start()).into();
                    self.ends_len(Field::PortSrc, Field::PortDst, port, u128::MAX)?
                }
                _ => u64::MAX / 2,
            },
        })
    }

    /// Bytes of what is read for a value of the source or of the destination.
    fn ends_len(&self, src: Field, dst: Field, value: u128, mask: u128) -> Result<u64, IndexError> {
        match self.columns.read_either(src)? {
            Some(both) => both.weight(value, mask),
            None => {
                let (src, dst) =
                    (self.digits_len(src, value, mask)?, self.digits_len(dst, value, mask)?);
                Ok(src.saturating_add(dst))
            }
        }
    }

    /// Bytes of the smallest bitmap of the whole digits of a value.
    fn digits_len(&self, field: Field, value: u128, mask: u128) -> Result<u64, IndexError> {
        let Some(column) = self.columns.read(field)? else {
            return Ok(0);
        };
        column.weight(value, mask)
    }

    /// The rows that are unknown to any term of an expression.
    pub(crate) fn unknown(&self, expr: &Expr) -> Planned<'a> {
        let mut seen: Vec<&Term> = Vec::new();
        let mut sets = Vec::new();
        for term in expr.terms() {
            // Which rows are unknown depends on only a part of the term; most terms agree in that
            // part.
            let alike = |other: &&Term| {
                other.shift == term.shift
                    && (other.test == term.test
                        || is_plain(&other.test) && is_plain(&term.test)
                        || matches!(
                            (&other.test, &term.test),
                            (Test::Mac { .. }, Test::Mac { .. })
                                | (Test::Flow { .. }, Test::Flow { .. })
                        ))
            };
            if !seen.iter().any(alike) {
                sets.push(self.unknown_to(term)?);
                seen.push(term);
            }
        }
        Ok(Set::any_of(sets))
    }

    /// The rows for which columns do not show whether a term holds.
    pub(crate) fn unknown_to(&self, term: &Term) -> Planned<'a> {
        match self.reading(term) {
            Reading::Nowhere => Ok(Set::All),
            Reading::Field(test) => self.unknown_to_field(test),
            Reading::Flow => {
                let types = [ETHERTYPE_IPV4, ETHERTYPE_IPV6].map(u128::from);
                self.any_value(Field::EthType, &types)
            }
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
            // All rows that may match are unknown.
            Reading::Nowhere | Reading::Within(..) | Reading::Flow => Ok(Set::None),
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

    /// How a term is read from columns. Terms that columns have nothing for are read nowhere: only
    /// what is returned here leads to the rows of a test.
    fn reading<'t>(&self, term: &'t Term) -> Reading<'t> {
        let test = match &term.test {
            Test::Field(test) => return Reading::Field(test),
            Test::Flow { .. } => return Reading::Flow,
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

    /// The rows for which columns do not show whether a test holds at a level.
    fn unclear(&self, level: Level, test: &Test) -> Planned<'a> {
        let odd = self.equals(Field::Odd, 1)?;
        match test {
            // MAC addresses are not moved by tags.
            Test::Mac { .. } | Test::EtherMulticast => return Ok(odd),
            Test::Length(..) | Test::Opaque { .. } | Test::Field(_) | Test::Flow { .. } => {
                return Ok(Set::All);
            }
            _ => {}
        }
        // The type of a tag is not kept, only that there is a tag.
        let typed = match test {
            Test::EtherType(kind) if ETHERTYPES_VLAN.contains(kind) => {
                self.encap(&Encap::TAGGED)?
            }
            // The field may be cut off.
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

    fn unknown_to_field(&self, test: &FieldTest) -> Planned<'a> {
        super::fields::unknown_rows(self, test)
    }

    fn field(&self, test: &FieldTest) -> Planned<'a> {
        super::fields::rows(self, test)
    }
}

/// Whether the test is of the kind for which the unknown rows are always the same.
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
        | Test::Field(_)
        | Test::Flow { .. } => false,
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
    // Adjacent ranges are merged; otherwise a class that spans both would not count as inside.
    let mut joined: Vec<RangeInclusive<u128>> = Vec::new();
    for range in ranges.into_iter().flatten() {
        match joined.last_mut() {
            Some(last) if *last.end() + 1 == *range.start() => *last = *last.start()..=*range.end(),
            _ => joined.push(range),
        }
    }
    joined
}
