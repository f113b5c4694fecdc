//! Asking a segment: which of its packets match.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use tapdex_bitmap::Chunks;

use super::bpf::{Compiled, Notice};
use super::fields;
use super::filter::{Expr, Filter, Shift, Syntax, Test};
use super::lists;
use super::plan::{Dialect, Planner, Set};
use crate::archive::{ArchiveError, Segment, UnreadPackets};
use crate::capture::Record;
use crate::error::IndexError;
use crate::fields::Packet;
use crate::index::{MARK_RECORDS, Marks};
use crate::packet::{Headers, LinkType, decode};

/// From so many segments on several are asked at a time.
const SEGMENTS_PARALLEL: usize = 32;

/// The filter compiled for links, and whether their captures have the other byte order; or why it
/// could not be.
type Programs = BTreeMap<(LinkType, bool), Result<Arc<Compiled>, String>>;

/// A question: a filter, and the times that packets have to be from.
#[derive(Debug)]
pub struct Query {
    filter: Filter,
    /// What libpcap compiles.
    text: String,
    from_ns: u64,
    /// The first nanosecond that is too late; `None` if none is.
    to_ns: Option<u64>,
    programs: Mutex<Programs>,
    /// Whether the optimised programs mean what the filter says.
    kept: Mutex<BTreeMap<(LinkType, bool), bool>>,
    /// The same of the filter that looks behind tags, too.
    pub(super) kept_through: Mutex<BTreeMap<(LinkType, bool), bool>>,
    notice: Option<Notice>,
}

/// The answer of a segment.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Answer {
    /// How many packets match.
    pub count: u64,
    /// Which ones, by their number in order of arrival, ascending; empty if only the number was
    /// asked for.
    pub records: Vec<u32>,
    /// Rows that matched by the index alone.
    pub certain: u64,
    /// Packets that had to be read to be sure.
    pub read: u64,
    /// The segment is about other times; nothing was looked up.
    pub pruned_by_time: bool,
    /// No key of the filter is in the segment, or none together with another.
    pub pruned_by_keys: bool,
    /// Links of the segment that the filter cannot be asked of, with libpcap's words.
    pub refused: Vec<(LinkType, String)>,
    /// Packets that would have to be read to be sure, and are not what was indexed: they are not
    /// counted.
    pub unread: UnreadPackets,
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
    /// A question. Times are nanoseconds since 1970, the first one that is allowed and the first
    /// one that is not; those in the filter hold as well.
    pub fn new(filter: Filter, from_ns: Option<i128>, to_ns: Option<i128>) -> Self {
        let clamp = |ns: i128| u64::try_from(ns.max(0)).unwrap_or(u64::MAX);
        let from = from_ns.max(filter.from_ns).map_or(0, clamp);
        let to = [to_ns, filter.to_ns].into_iter().flatten().min().map(clamp);
        let text = filter.expr.as_ref().map(Expr::to_string).unwrap_or_default();
        Self {
            filter,
            text,
            from_ns: from,
            to_ns: to,
            programs: Mutex::default(),
            kept: Mutex::default(),
            kept_through: Mutex::default(),
            notice: None,
        }
    }

    /// Has something told what takes long, or cannot be done for a filter as long as this one.
    #[must_use]
    pub fn with_notice(self, notice: fn(&str)) -> Self {
        Self { notice: Some(notice), ..self }
    }

    /// The filter.
    pub fn filter(&self) -> &Filter {
        &self.filter
    }

    /// The filter with names as numbers and all parentheses: what is asked.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The first nanosecond that is allowed, and the first one that is not.
    pub fn times(&self) -> (u64, Option<u64>) {
        (self.from_ns, self.to_ns)
    }

    /// How the filter is decided for single packets of a link.
    pub(super) fn judge(&self, link: LinkType, swapped: bool) -> Result<Judge<'_>, String> {
        match (&self.filter.expr, self.filter.syntax) {
            (None, _) => Ok(Judge::All),
            (Some(expr), Syntax::Wireshark) => Ok(Judge::Fields(expr)),
            (Some(expr), Syntax::Pcap) => {
                let mut programs = self.programs.lock().unwrap_or_else(PoisonError::into_inner);
                let program = programs.entry((link, swapped)).or_insert_with(|| {
                    let program = Compiled::of(expr, link, swapped, self.notice);
                    program.map(Arc::new).map_err(|error| error.to_string())
                });
                program.clone().map(Judge::Program)
            }
        }
    }

    /// Whether libpcap's optimiser left the filter its meaning, so that columns may answer.
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

    /// Whether no packet of a segment's links can match, whatever it is: libpcap refuses such a
    /// filter as "expression rejects all packets".
    pub fn rejects_all(&self, segment: &Segment) -> bool {
        // libpcap may take its time for more than that.
        const TEXT_LEN_MAX: usize = 8 << 10;
        if self.text.len() > TEXT_LEN_MAX {
            return false;
        }
        Self::links(segment).keys().all(|&(link, swapped)| match self.judge(link, swapped) {
            Ok(Judge::Program(program)) => program.rejects_all(),
            _ => false,
        })
    }

    /// Packets of a segment with headers that Wireshark would look into as well: in tunnels, ICMP
    /// errors and PPPoE, behind MPLS labels and behind more than two tags. 0 if the filter has no
    /// field that can be in there, or is not in Wireshark's language.
    pub fn outer_only(&self, segment: &Segment) -> Result<u64, IndexError> {
        let may_be_inner = |term: &&super::filter::Term| match &term.test {
            Test::Field(test) => fields::may_be_inner(test.field),
            _ => false,
        };
        if !self.filter.expr.as_ref().is_some_and(|expr| expr.terms().iter().any(may_be_inner)) {
            return Ok(0);
        }
        let columns = segment.columns();
        let planner = Planner { columns, dialect: Dialect::Network };
        Ok(fields::inner_rows(&planner)?.into_rows(columns.rows()).count())
    }

    /// How many packets of a segment match. Packets are read only where columns do not suffice.
    pub fn count(&self, segment: &Segment) -> Result<Answer, ArchiveError> {
        self.answer(segment, false)
    }

    /// Which packets of a segment match.
    pub fn records(&self, segment: &Segment) -> Result<Answer, ArchiveError> {
        self.answer(segment, true)
    }

    /// [`count`](Query::count) for many segments, several at a time where packets are read.
    pub fn count_all(&self, segments: &[Segment]) -> Vec<Result<Answer, ArchiveError>> {
        self.ask_all(segments, false)
    }

    /// [`records`](Query::records) for many segments, several at a time where packets are read.
    pub fn records_all(&self, segments: &[Segment]) -> Vec<Result<Answer, ArchiveError>> {
        self.ask_all(segments, true)
    }

    fn ask_all(&self, segments: &[Segment], wanted: bool) -> Vec<Result<Answer, ArchiveError>> {
        use rayon::iter::{IntoParallelRefIterator, ParallelIterator};
        // Threads take longer to start than a few segments take to answer.
        if segments.len() < SEGMENTS_PARALLEL && !self.reads_packets() {
            return segments.iter().map(|segment| self.answer(segment, wanted)).collect();
        }
        segments.par_iter().map(|segment| self.answer(segment, wanted)).collect()
    }

    /// Whether the filter has terms that columns do not know, so that packets are read for it.
    fn reads_packets(&self) -> bool {
        let is_unknown = |term: &&super::filter::Term| {
            matches!(term.test, Test::Opaque { .. } | Test::Loaded { .. })
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
        let too_late = |time| self.to_ns.is_some_and(|to| time >= to);
        if time_max < self.from_ns || too_late(time_min) {
            Time::Outside
        } else if time_min >= self.from_ns && !too_late(time_max) {
            Time::Inside
        } else {
            Time::Edge
        }
    }

    fn answer(&self, segment: &Segment, wanted: bool) -> Result<Answer, ArchiveError> {
        let mut answer = Answer::default();
        let note = segment.note();
        let time = self.time_of(note.time_min, note.time_max);
        if note.records == 0 || time == Time::Outside {
            answer.pruned_by_time = true;
            return Ok(answer);
        }
        let index = segment.index();
        let damaged = |error| ArchiveError::index(segment.path())(error);
        let links = Self::links(segment);
        answer.pruned_by_keys = true;
        // Records that match but for the time, and records that have to be read.
        let (mut certain, mut candidates) = (Vec::new(), Vec::new());
        // Rows that match, where nobody wants to know which.
        let mut counted = 0;
        for (&(link, swapped), interfaces) in &links {
            // What columns answer, libpcap takes on Ethernet. Else it is asked before, so that a
            // filter is refused whether or not there is a packet that could match.
            if (link != LinkType::ETHERNET || self.reads_packets())
                && let Err(message) = self.judge(link, swapped)
            {
                answer.refused.push((link, message));
                continue;
            }
            let dialect = match link {
                LinkType::ETHERNET => Dialect::Ethernet,
                _ => Dialect::Network,
            };
            let planner = Planner { columns: segment.columns(), dialect };
            let of_link = || match links.len() {
                1 => Ok(Set::All),
                _ => planner.interfaces(interfaces),
            };
            // libpcap's programs may look at frames that are not decoded whatever is asked: those
            // of PPI do even for the length.
            let decoded = link.name().is_some() || self.filter.syntax == Syntax::Wireshark;
            let planned = match self.filter.expr.as_ref() {
                // Nothing but the program says what it finds.
                Some(_) if decoded && !self.is_kept(link, swapped) => {
                    of_link().map(|all| Some((Set::None, Some(all))))
                }
                expr => plan(&planner, expr, decoded, &of_link),
            };
            let Some((sure, unsure)) = planned.map_err(damaged)? else {
                continue;
            };
            answer.pruned_by_keys = false;
            if !wanted && time == Time::Inside {
                counted += sure.into_rows(index.rows()).count();
            } else {
                certain.extend(records(segment, sure)?);
            }
            if let Some(unsure) = unsure {
                let found = records(segment, unsure)?;
                if !found.is_empty() {
                    match self.judge(link, swapped) {
                        Ok(judge) => candidates.push((judge, found)),
                        Err(message) => answer.refused.push((link, message)),
                    }
                }
            }
        }
        answer.certain = counted + certain.len() as u64;
        // What the marks say of their times.
        let mut sure = Vec::new();
        let mut edge = Vec::new();
        if time == Time::Edge {
            let marks = segment.index().marks().map_err(damaged)?;
            let times = self.mark_times(marks).map_err(damaged)?;
            let time_of = |record: u32| {
                times.get((record / MARK_RECORDS) as usize).copied().unwrap_or(Time::Edge)
            };
            for record in certain {
                match time_of(record) {
                    Time::Inside => sure.push(record),
                    Time::Edge => edge.push(record),
                    Time::Outside => {}
                }
            }
            for (_, records) in &mut candidates {
                records.retain(|&record| time_of(record) != Time::Outside);
            }
        } else {
            sure = certain;
        }
        if !edge.is_empty() {
            candidates.push((Judge::All, edge));
        }
        for (judge, records) in candidates {
            if records.is_empty() {
                continue;
            }
            answer.read += records.len() as u64;
            let mut headers = Headers::default();
            let unread = segment.packets()?.for_each(records, &mut |number, record| {
                let in_time = self.time_of(record.time_ns, record.time_ns) == Time::Inside;
                if in_time && judge.matches(record, &mut headers) {
                    sure.push(number);
                }
                Ok(true)
            })?;
            answer.unread.extend(unread);
        }
        answer.count = counted + sure.len() as u64;
        if wanted {
            sure.sort_unstable();
            answer.records = sure;
        }
        Ok(answer)
    }

    fn mark_times(&self, marks: Option<Marks<'_>>) -> Result<Vec<Time>, IndexError> {
        let Some(marks) = marks else { return Ok(Vec::new()) };
        marks
            .iter()
            .map(|mark| mark.map(|mark| self.time_of(mark.time_min, mark.time_max)))
            .collect()
    }

    /// Decides single packets by what they are, without an index.
    pub fn scan(&self, record: &Record<'_>, headers: &mut Headers) -> Result<bool, String> {
        let in_time = self.time_of(record.time_ns, record.time_ns) == Time::Inside;
        Ok(self.judge(record.link, record.swapped)?.matches(record, headers) && in_time)
    }
}

/// The rows that match for certain and those whose packets have to be read, which are all where
/// frames are not `decoded`; `None` if no row can match.
fn plan<'a>(
    planner: &Planner<'a>,
    expr: Option<&Expr>,
    decoded: bool,
    of_link: &dyn Fn() -> Result<Set<'a>, IndexError>,
) -> Result<Option<(Set<'a>, Option<Set<'a>>)>, IndexError> {
    let Some(expr) = expr else {
        return Ok(Some((of_link()?, None)));
    };
    let possible = || -> Result<Set<'a>, IndexError> {
        Ok(Set::all_of(vec![planner.bound(expr, true)?, of_link()?]))
    };
    let upper = possible()?;
    if matches!(upper, Set::None) {
        return Ok(None);
    }
    let rows = planner.columns.rows();
    match if decoded { planner.unknown(expr)? } else { Set::All } {
        Set::None => Ok(Some((upper, None))),
        Set::All => Ok(Some((Set::None, Some(upper)))),
        unknown => {
            let sure = upper.and(unknown.not(rows));
            Ok(Some((sure, Some(possible()?.and(planner.unknown(expr)?)))))
        }
    }
}

/// The records of some rows, ascending.
fn records(segment: &Segment, set: Set<'_>) -> Result<Vec<u32>, ArchiveError> {
    let index = segment.index();
    let damaged = |error| ArchiveError::index(segment.path())(error);
    let mut rows = Vec::new();
    if matches!(set, Set::None) {
        return Ok(rows);
    }
    let row_map = index.row_map().map_err(damaged)?;
    if matches!(set, Set::All) {
        return Ok((0..index.rows()).collect());
    }
    set.into_rows(index.rows()).push_ids(&mut rows);
    let Some(row_map) = row_map else {
        return Ok(rows);
    };
    let mut records = Vec::with_capacity(rows.len());
    row_map.records(&rows, &mut records).map_err(damaged)?;
    sort_records(&mut records, index.rows());
    Ok(records)
}

/// Sorts records, each of which occurs once and is below `rows`.
fn sort_records(records: &mut Vec<u32>, rows: u32) {
    /// A bitmap of all rows is cheaper to go through than so many times fewer records to sort.
    const SPARSE: usize = 64;
    if records.len() < rows as usize / SPARSE {
        records.sort_unstable();
        return;
    }
    let mut bits = vec![0_u64; (rows as usize).div_ceil(64)];
    for &record in records.iter() {
        if let Some(word) = bits.get_mut(record as usize / 64) {
            *word |= 1 << (record % 64);
        }
    }
    records.clear();
    for (base, mut word) in (0..).step_by(64).zip(bits) {
        while word != 0 {
            records.push(base + word.trailing_zeros());
            word &= word - 1;
        }
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

/// How the rows of a segment are found, for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TermPlan {
    /// The term; of a long list the first one, and how many are like it.
    pub text: String,
    /// Rows for which the columns say that it holds.
    pub rows: u64,
    /// Rows that the columns leave open.
    pub unknown: u64,
    /// Bytes of bitmaps that are read for it, as far as that is known before they are.
    pub weight: u64,
}

impl Query {
    /// What each term of the filter finds in a segment, in the order of the text.
    pub fn explain(&self, segment: &Segment) -> Result<Vec<TermPlan>, ArchiveError> {
        let Some(expr) = &self.filter.expr else {
            return Ok(Vec::new());
        };
        let index = segment.index();
        let damaged = |error| ArchiveError::index(segment.path())(error);
        let ethernet = Self::links(segment).keys().any(|(link, _)| *link == LinkType::ETHERNET);
        let dialect = if ethernet { Dialect::Ethernet } else { Dialect::Network };
        let planner = Planner { columns: segment.columns(), dialect };
        let mut plans = Vec::new();
        for alike in lists::rows_alike(expr.terms()) {
            let Some(term) = alike.first() else { continue };
            let holds = match alike.len() {
                1 => planner.holds(term),
                _ => planner.list(&alike, false),
            };
            let holds = holds.map_err(damaged)?;
            let weight = match &holds {
                Set::Rows(_, weight) => *weight,
                Set::None | Set::All => 0,
            };
            let unknown = planner.unknown_to(term).map_err(damaged)?;
            plans.push(TermPlan {
                text: match alike.len() - 1 {
                    0 => term.text.clone(),
                    more => format!("{} and {more} more like it", term.text),
                },
                rows: holds.into_rows(index.rows()).count(),
                unknown: unknown.into_rows(index.rows()).count(),
                weight,
            });
        }
        Ok(plans)
    }
}
