//! How a filter is answered, for people.

use super::lists;
use super::plan::{Dialect, Planner, Set};
use super::question::Query;
use super::search::Answers;
use crate::archive::{ArchiveError, Segment};
use crate::packet::LinkType;

/// How a term is answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TermPlan {
    /// The term. For a long list, its first term and how many more there are.
    pub text: String,
    /// Rows that match it by columns.
    pub rows: u64,
    /// Rows that columns cannot decide.
    pub unknown: u64,
    /// Bytes of bitmaps that are read for it, as far as that is known in advance.
    pub weight: u64,
}

/// How a filter was answered.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Explained {
    /// Its terms, in the order of the text.
    pub terms: Vec<TermPlan>,
    /// Packets of the segments that were asked.
    pub packets: u64,
}

impl Answers {
    /// How the terms of the filter were answered, over all segments that were asked.
    ///
    /// What cannot be read is left out and becomes a [`Gap`](crate::archive::Gap).
    pub fn explain(&mut self, query: &Query) -> Explained {
        let mut explained = Explained::default();
        let mut failed = Vec::new();
        for (segment, _) in self.segments.iter().filter(|(_, answer)| !answer.pruned_by_time) {
            explained.packets += segment.note().records;
            match query.explain(segment) {
                Ok(plans) => explained.add(plans),
                Err(error) => failed.push(error),
            }
        }
        self.add_failed(failed);
        explained
    }
}

impl Explained {
    fn add(&mut self, plans: Vec<TermPlan>) {
        if self.terms.is_empty() {
            self.terms = plans;
            return;
        }
        for (term, plan) in self.terms.iter_mut().zip(plans) {
            term.rows += plan.rows;
            term.unknown += plan.unknown;
            term.weight += plan.weight;
        }
    }
}

impl Query {
    /// What each term of the filter finds in a segment, in the order of the text.
    pub fn explain(&self, segment: &Segment) -> Result<Vec<TermPlan>, ArchiveError> {
        let Some(expr) = self.filter().expr() else {
            return Ok(Vec::new());
        };
        let index = segment.index();
        let damaged = |error| ArchiveError::index(segment.path())(error);
        let ethernet = Self::links(segment).keys().any(|(link, _)| *link == LinkType::ETHERNET);
        let dialect = if ethernet { Dialect::Ethernet } else { Dialect::Network };
        let planner = Planner::new(segment.columns(), dialect);
        let mut plans = Vec::new();
        for alike in lists::rows_alike(expr.terms()) {
            let Some(term) = alike.first() else { continue };
            let holds = match alike.len() {
                1 => planner.holds(term),
                _ => planner.list(&alike, false),
            };
            let holds = holds.map_err(damaged)?;
            let weight = match &holds {
                Set::Rows(_, weight) | Set::Conversations(_, weight) => *weight,
                Set::None | Set::All => 0,
            };
            let unknown = planner.unknown_to(term).map_err(damaged)?;
            plans.push(TermPlan {
                text: match alike.len() - 1 {
                    0 => term.text.clone(),
                    more => format!("{} and {more} more like it", term.text),
                },
                rows: holds.count(index.rows()),
                unknown: unknown.count(index.rows()),
                weight,
            });
        }
        index.check_flows().map_err(damaged)?;
        Ok(plans)
    }
}
