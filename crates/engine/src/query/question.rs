//! A question: a filter and times, and how both are decided for single packets.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use super::bpf::{BpfError, Compiled, Notice};
use super::fields;
use super::filter::{Expr, Filter, Shift, Syntax, Term, Test};
use crate::archive::Segment;
use crate::capture::Record;
use crate::fields::Packet;
use crate::packet::{Headers, LinkType, decode};
use crate::time::TimeRange;

/// The compiled filter, or why there is none, for each kind of link and byte order of its captures.
type Programs = BTreeMap<(LinkType, bool), Result<Arc<Compiled>, Refusal>>;

/// A kind of link that the filter cannot be compiled for.
#[derive(Debug, Clone, thiserror::Error)]
#[error("the filter cannot be used on {link}: {reason}")]
pub struct Refusal {
    /// The kind of link.
    pub link: LinkType,
    /// Why.
    pub reason: Arc<BpfError>,
}

impl PartialEq for Refusal {
    fn eq(&self, other: &Self) -> bool {
        self.link == other.link && self.reason.to_string() == other.reason.to_string()
    }
}

impl Eq for Refusal {}

/// A question: a filter, and the times that packets have to be from.
///
/// [`Archive::search`](crate::archive::Archive::search) asks it of a whole archive. A query that is
/// used again is not compiled again.
#[derive(Debug)]
pub struct Query {
    filter: Filter,
    /// What libpcap compiles.
    text: String,
    times: TimeRange,
    programs: Mutex<Programs>,
    /// Whether the optimised programs mean what the filter says.
    kept: Mutex<BTreeMap<(LinkType, bool), bool>>,
    /// The same for the filter that also looks behind tags.
    pub(super) kept_through: Mutex<BTreeMap<(LinkType, bool), bool>>,
    notice: Option<Notice>,
}

/// Whether the packets of a mark are from the right time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Time {
    Inside,
    Outside,
    /// Some are.
    Edge,
}

impl Query {
    /// A question about packets from some times. Times that the filter itself names hold as well.
    pub fn new(filter: Filter, times: TimeRange) -> Self {
        let text = filter.expr.as_ref().map(Expr::to_string).unwrap_or_default();
        Self {
            times: filter.times.and(times),
            filter,
            text,
            programs: Mutex::default(),
            kept: Mutex::default(),
            kept_through: Mutex::default(),
            notice: None,
        }
    }

    /// Calls `notice` with a message if a long filter takes long to compile, or if something cannot
    /// be done for a filter as long as this one.
    #[must_use]
    pub fn with_notice(self, notice: fn(&str)) -> Self {
        Self { notice: Some(notice), ..self }
    }

    /// The filter.
    pub fn filter(&self) -> &Filter {
        &self.filter
    }

    /// The filter with names as numbers and with all parentheses.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The times that packets have to be from.
    pub fn times(&self) -> TimeRange {
        self.times
    }

    /// How the filter is decided for single packets of a link.
    pub(super) fn judge(&self, link: LinkType, swapped: bool) -> Result<Judge<'_>, Refusal> {
        match (&self.filter.expr, self.filter.syntax) {
            (None, _) => Ok(Judge::All),
            (Some(expr), Syntax::Wireshark) => Ok(Judge::Fields(expr)),
            (Some(expr), Syntax::Pcap) => {
                let mut programs = self.programs.lock().unwrap_or_else(PoisonError::into_inner);
                let program = programs.entry((link, swapped)).or_insert_with(|| {
                    let program = Compiled::of(expr, link, swapped, self.notice);
                    program.map(Arc::new).map_err(|error| Refusal { link, reason: error.into() })
                });
                program.clone().map(Judge::Program)
            }
        }
    }

    /// Whether libpcap's optimiser kept the meaning of the filter, so that columns may answer.
    pub(super) fn is_kept(&self, link: LinkType, swapped: bool) -> bool {
        let expr = match &self.filter.expr {
            Some(expr) if self.filter.syntax == Syntax::Pcap => expr,
            _ => return true,
        };
        let single = match expr {
            Expr::Term(_) => true,
            Expr::Not(inner) => matches!(**inner, Expr::Term(_)),
            _ => false,
        };
        if single {
            return true;
        }
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        *kept.entry((link, swapped)).or_insert_with(|| Compiled::is_kept(expr, link, swapped))
    }

    /// Whether no packet of a segment's links can ever match: libpcap refuses such a filter with
    /// "expression rejects all packets".
    pub fn rejects_all(&self, segment: &Segment) -> bool {
        // libpcap may take long for more than that.
        const TEXT_LEN_MAX: usize = 8 << 10;
        if self.text.len() > TEXT_LEN_MAX {
            return false;
        }
        Self::links(segment).keys().all(|&(link, swapped)| match self.judge(link, swapped) {
            Ok(Judge::Program(program)) => program.rejects_all(),
            _ => false,
        })
    }

    /// Whether the filter has terms that columns cannot answer, so that packets are read for it.
    pub fn reads_packets(&self) -> bool {
        let is_unknown = |term: &&Term| {
            matches!(term.test, Test::Opaque { .. } | Test::Loaded { .. } | Test::Flow { .. })
                || term.shift == Shift::Elsewhere
        };
        self.filter.expr.as_ref().is_some_and(|expr| expr.terms().iter().any(is_unknown))
    }

    /// The links of a segment's interfaces, and which interfaces have each.
    pub(super) fn links(segment: &Segment) -> BTreeMap<(LinkType, bool), Vec<u32>> {
        let mut links: BTreeMap<_, Vec<u32>> = BTreeMap::new();
        let interfaces = segment.note().layout.interfaces.len();
        for interface in (0..).take(interfaces) {
            if let Some(link) = segment.link(interface) {
                links.entry(link).or_default().push(interface);
            }
        }
        links
    }

    /// Whether all packets of a segment are from the right time.
    pub(super) fn time_of(&self, time_min: u64, time_max: u64) -> Time {
        if !self.times.overlaps(time_min, time_max) {
            Time::Outside
        } else if self.times.contains(time_min) && self.times.contains(time_max) {
            Time::Inside
        } else {
            Time::Edge
        }
    }

    /// Decides a single packet, without an index.
    pub fn scan(&self, record: &Record<'_>, headers: &mut Headers) -> Result<bool, Refusal> {
        let judge = self.judge(record.link, record.swapped)?;
        Ok(judge.matches(record, headers) && self.times.contains(record.time_ns))
    }
}

/// Decides single packets.
pub(super) enum Judge<'a> {
    All,
    Program(Arc<Compiled>),
    Fields(&'a Expr),
}

impl Judge<'_> {
    pub(super) fn matches(&self, record: &Record<'_>, headers: &mut Headers) -> bool {
        match self {
            Self::All => true,
            Self::Program(program) => program.matches(record.data, record.wire_len),
            Self::Fields(expr) => {
                decode(record.link, record.swapped, record.data, headers);
                fields::matches(expr, &Packet::new(record, headers))
            }
        }
    }
}
