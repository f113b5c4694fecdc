//! What filters do not see: packets behind VLAN tags, and headers inside other headers.

use std::cell::LazyCell;
use std::sync::PoisonError;

use super::answer::records;
use super::bpf::Compiled;
use super::fields;
use super::filter::{Expr, Filter, Shift, Syntax, Term, Test};
use super::plan::{Dialect, Planner, Set};
use super::question::{Query, Time};
use super::search::Answers;
use crate::archive::{ArchiveError, Column, Segment};
use crate::error::IndexError;
use crate::fields::Field;
use crate::packet::{Encap, LinkType};

/// The most packets that are read to find out what a filter does not see.
const READ_MAX: u64 = 20_000;

/// The most bytes of a filter that is run once more to find out what it does not see.
const TEXT_LEN_MAX: usize = 4_096;

/// Packets behind VLAN tags that a filter would match if it looked there, as tcpdump does not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BehindTags {
    /// How many.
    pub packets: u64,
    /// Whether this is the exact number, or only an upper bound.
    pub is_exact: bool,
}

impl Answers {
    /// Packets behind VLAN tags that would match if the filter looked there; `None` if there are
    /// none. `F or (vlan and F) or (vlan and vlan and F)` finds them
    /// ([`Filter::through_tags`]).
    pub fn behind_tags(&self, query: &Query) -> Option<BehindTags> {
        if !is_moved_by_tags(query.filter()) {
            return None;
        }
        let through = LazyCell::new(|| {
            let is_short = query.text().len() <= TEXT_LEN_MAX;
            let through = is_short.then(|| query.filter().through_tags().ok()).flatten()?;
            Some(Query::new(through, query.times()))
        });
        let (mut packets, mut is_exact, mut left) = (0, true, READ_MAX);
        for (segment, answer) in self.segments.iter().filter(|(_, a)| !a.pruned_by_time) {
            // Damage has been reported where it matters to the answer.
            let tagged = tagged(segment).unwrap_or(0);
            if tagged == 0 {
                continue;
            }
            let most = match query.behind_tags(segment) {
                Ok(Some((found, 0))) => {
                    packets += found;
                    continue;
                }
                Ok(Some((found, open))) => found + open,
                _ => tagged,
            };
            // About as many packets are read again as the filter itself had to read, and at most
            // the tagged ones in addition.
            let is_whole = answer.undecided_from_ns.is_none();
            let rest = left.checked_sub(answer.read.saturating_add(tagged)).filter(|_| is_whole);
            match rest.zip(through.as_ref()) {
                Some((rest, through)) => {
                    left = rest;
                    let count = through.count(segment).map_or(0, |through| through.count);
                    packets += count.saturating_sub(answer.count);
                }
                None => (packets, is_exact) = (packets + most, false),
            }
        }
        (packets > 0).then_some(BehindTags { packets, is_exact })
    }

    /// Packets that were judged by their outer headers only, while Wireshark would look inside: in
    /// tunnels, ICMP errors and PPPoE, behind MPLS labels and behind more than two tags. 0 unless
    /// the filter is in Wireshark's language and has a field that can be in there.
    pub fn outer_only(&self, query: &Query) -> u64 {
        let asked = self.segments.iter().filter(|(_, answer)| !answer.pruned_by_time);
        // Damage has been reported where it matters to the answer.
        asked.map(|(segment, _)| query.outer_only(segment).unwrap_or(0)).sum()
    }
}

/// Whether a filter looks for headers that a VLAN tag would move, and has no `vlan`.
fn is_moved_by_tags(filter: &Filter) -> bool {
    let Some(expr) = filter.expr.as_ref().filter(|_| filter.syntax == Syntax::Pcap) else {
        return false;
    };
    let terms = expr.terms();
    let is_fixed = |test: &Test| {
        matches!(test, Test::Mac { .. } | Test::EtherMulticast | Test::Length(..) | Test::Vlan(_))
    };
    let is_moved = |term: &&Term| term.shift == Shift::Tags(0) && !is_fixed(&term.test);
    terms.iter().any(is_moved) && !terms.iter().any(|term| matches!(term.test, Test::Vlan(_)))
}

/// Packets of a segment with VLAN tags.
fn tagged(segment: &Segment) -> Result<u64, IndexError> {
    let columns = segment.columns();
    if columns.get(Field::Encap) != Column::Known {
        return Ok(0);
    }
    let planner = Planner::new(columns, Dialect::Network);
    let tagged = planner.encap(&Encap::TAGGED)?;
    Ok(tagged.count(columns.rows()))
}

impl Query {
    fn outer_only(&self, segment: &Segment) -> Result<u64, ArchiveError> {
        let may_be_inner = |term: &&Term| match &term.test {
            Test::Field(test) => fields::may_be_inner(test.field),
            Test::Flow { .. } => true,
            _ => false,
        };
        let expr = self.filter().expr();
        if !expr.is_some_and(|expr| expr.terms().iter().any(may_be_inner)) {
            return Ok(0);
        }
        let damaged = |error| ArchiveError::index(segment.path())(error);
        let columns = segment.columns();
        let planner = Planner::new(columns, Dialect::Network);
        let inner = fields::inner_rows(&planner).map_err(damaged)?;
        let note = segment.note();
        if self.time_of(note.time_min, note.time_max) == Time::Inside {
            return Ok(inner.count(columns.rows()));
        }
        let times = self.in_time(segment).map_err(damaged)?;
        let (mut count, mut edge) = (0, Vec::new());
        for record in records(segment, inner)? {
            match times.of(record) {
                Time::Inside => count += 1,
                Time::Edge => edge.push(record),
                Time::Outside => {}
            }
        }
        if !edge.is_empty() {
            // What cannot be read has been reported.
            let _ = segment.packets()?.for_each(edge, &mut |_, record| {
                count += u64::from(self.times().contains(record.time_ns));
                Ok(true)
            })?;
        }
        Ok(count)
    }

    /// Packets of a segment that do not match, and would with `F or (vlan and F) or (vlan and vlan
    /// and F)` instead of the filter `F`: how many by the columns, and for how many more columns do
    /// not show it. `None` if packets would have to be read, or the filter is in Wireshark's
    /// language.
    pub fn behind_tags(&self, segment: &Segment) -> Result<Option<(u64, u64)>, ArchiveError> {
        let filter = self.filter();
        let Some(expr) = filter.expr.as_ref().filter(|_| filter.syntax == Syntax::Pcap) else {
            return Ok(None);
        };
        // These move all that follows them, to the end of the longer filter.
        let moves = |term: &&Term| {
            let word = term.text.split(' ').next().unwrap_or_default();
            ["vlan", "mpls", "pppoes", "geneve"].contains(&word)
        };
        if expr.terms().iter().any(moves) {
            return Ok(None);
        }
        let note = segment.note();
        if self.time_of(note.time_min, note.time_max) != Time::Inside {
            return Ok(None);
        }
        let one = behind(expr, 1);
        let links = Self::links(segment);
        let (mut found, mut open) = (0, 0);
        for (&(link, swapped), interfaces) in &links {
            // Of the links whose tags are in columns, libpcap supports `vlan` only on this one.
            if link != LinkType::ETHERNET {
                continue;
            }
            let is_kept = match is_plain(expr) {
                true => self.is_kept(link, swapped),
                false => {
                    let kept = &self.kept_through;
                    let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
                    let compare = || Compiled::is_kept(&through(expr, &one), link, swapped);
                    *kept.entry((link, swapped)).or_insert_with(compare)
                }
            };
            if !is_kept {
                return Ok(None);
            }
            let planner = Planner::new(segment.columns(), Dialect::Ethernet);
            let interfaces = (links.len() > 1).then_some(interfaces.as_slice());
            let counted = count(&planner, interfaces, [expr, &one]);
            let counted = counted.map_err(ArchiveError::index(segment.path()))?;
            (found, open) = (found + counted.0, open + counted.1);
        }
        Ok(Some((found, open)))
    }
}

/// Whether a filter has only protocols, addresses and ports. If the optimiser keeps the meaning of
/// such a filter, it also kept that of the longer one in every case that the tests tried. So the
/// longer filter is not compared with its program, which would take longer than most answers.
fn is_plain(expr: &Expr) -> bool {
    expr.terms().iter().all(|term| {
        matches!(
            term.test,
            Test::EtherType(_)
                | Test::IpProto { .. }
                | Test::Host4 { .. }
                | Test::Host6 { .. }
                | Test::Mac { .. }
                | Test::Port { .. }
        )
    })
}

/// How many rows with tags match only behind the first tag, and for how many rows columns do not
/// show it.
fn count(
    planner: &Planner<'_>,
    interfaces: Option<&[u32]>,
    [expr, one]: [&Expr; 2],
) -> Result<(u64, u64), IndexError> {
    let len = planner.columns.rows();
    let rows = |kinds: &[Encap]| -> Result<Set<'_>, IndexError> {
        let all = interfaces.map_or(Ok(Set::All), |interfaces| planner.interfaces(interfaces))?;
        Ok(planner.encap(kinds)?.and(all))
    };
    // The filter looks for two more tags behind the first one, where these rows have none or one;
    // columns do not cover what is behind more.
    let tagged = [Encap::Tag, Encap::TwoTags];
    let inside = planner.within(&rows(&tagged)?);
    let unknown = || -> Result<Set<'_>, IndexError> {
        let either = Set::any_of(vec![inside.unknown(expr)?, inside.unknown(one)?]);
        let many = rows(&[Encap::ManyTags, Encap::TagsMpls])?;
        Ok(Set::any_of(vec![many, rows(&tagged)?.and(either)]))
    };
    let seen = inside.bound(expr, true)?;
    let behind = vec![rows(&tagged)?, inside.bound(one, true)?];
    let found = Set::all_of(behind).and(seen.not(len)).and(unknown()?.not(len));
    Ok((found.count(len), unknown()?.count(len)))
}

/// An expression that looks behind this many more tags.
fn behind(expr: &Expr, tags: u8) -> Expr {
    let all = |parts: &[Expr]| parts.iter().map(|part| behind(part, tags)).collect();
    match expr {
        Expr::And(parts) => Expr::And(all(parts)),
        Expr::Or(parts) => Expr::Or(all(parts)),
        Expr::Not(part) => Expr::Not(Box::new(behind(part, tags))),
        Expr::Term(term) => {
            let shift = match term.shift {
                Shift::Tags(own) => Shift::Tags(own.saturating_add(tags)),
                Shift::Elsewhere => Shift::Elsewhere,
            };
            Expr::Term(Term { shift, ..term.clone() })
        }
    }
}

/// A filter that also looks behind tags. Each `vlan` moves all that follows it.
fn through(expr: &Expr, one: &Expr) -> Expr {
    let vlan = |tags: u8| {
        let (test, text) = (Test::Vlan(None), "vlan".to_owned());
        Expr::Term(Term { span: 0..0, shift: Shift::Tags(tags), test, text })
    };
    Expr::Or(vec![
        expr.clone(),
        Expr::And(vec![vlan(0), one.clone()]),
        Expr::And(vec![vlan(1), vlan(2), behind(expr, 3)]),
    ])
}
