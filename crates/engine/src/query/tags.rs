//! What filters do not see: packets behind VLAN tags.

use std::sync::PoisonError;

use super::bpf::Compiled;
use super::filter::{Expr, Shift, Syntax, Term, Test};
use super::plan::{Dialect, Planner, Set};
use super::search::{Query, Time};
use crate::archive::{ArchiveError, Segment};
use crate::error::IndexError;
use crate::packet::{Encap, LinkType};
use tapdex_bitmap::Chunks;

impl Query {
    /// Packets of a segment that do not match, and would with `F or (vlan and F) or (vlan and vlan
    /// and F)` instead of the filter `F`: how many, as columns tell, and of how many more they do
    /// not tell. `None` if that takes a look at packets, or the filter is in Wireshark's language.
    pub fn behind_tags(&self, segment: &Segment) -> Result<Option<(u64, u64)>, ArchiveError> {
        let filter = self.filter();
        let Some(expr) = filter.expr.as_ref().filter(|_| filter.syntax == Syntax::Pcap) else {
            return Ok(None);
        };
        // These move what follows them, up to the end of the longer filter.
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
            // libpcap has `vlan` for no other link that columns know tags of.
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
            let planner = Planner { columns: segment.columns(), dialect: Dialect::Ethernet };
            let interfaces = (links.len() > 1).then_some(interfaces.as_slice());
            let counted = count(&planner, interfaces, [expr, &one]);
            let counted = counted.map_err(ArchiveError::index(segment.path()))?;
            (found, open) = (found + counted.0, open + counted.1);
        }
        Ok(Some((found, open)))
    }
}

/// Whether a filter has protocols, addresses and ports only. Where the optimiser keeps the meaning
/// of such a filter, it has kept that of the longer one in all that the tests tried. So that is not
/// compared with its program, which takes longer than most answers.
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

/// Rows with tags that match behind the first one only, and rows of which columns do not tell.
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
    // The last two tags are looked for behind the first one, where these have none or one; columns
    // do not know what is behind more.
    let tagged = [Encap::Tag, Encap::TwoTags];
    let unknown = || -> Result<Set<'_>, IndexError> {
        let either = Set::any_of(vec![planner.unknown(expr)?, planner.unknown(one)?]);
        let many = rows(&[Encap::ManyTags, Encap::TagsMpls])?;
        Ok(Set::any_of(vec![many, rows(&tagged)?.and(either)]))
    };
    let seen = planner.bound(expr, true)?;
    let behind = vec![rows(&tagged)?, planner.bound(one, true)?];
    let found = Set::all_of(behind).and(seen.not(len)).and(unknown()?.not(len));
    Ok((found.into_rows(len).count(), unknown()?.into_rows(len).count()))
}

/// An expression that looks behind so many tags more.
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

/// A filter that looks behind tags, too. Each `vlan` moves all that follows it.
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
