//! Asking one segment which of its packets match.
//!
//! Four steps, each of which leaves less for the next one:
//!
//! 1. The segment's times: does it overlap the times that were asked for at all?
//! 2. Columns: which rows match for certain, and which packets have to be read?
//! 3. Marks: which of those are from the wrong time?
//! 4. Packets: the filter decides the rest.

use std::collections::{BTreeMap, BinaryHeap};

use tapdex_bitmap::{Chunks, RunSet};

use super::control::Control;
use super::filter::{Expr, Syntax};
use super::plan::{Dialect, Planner, Set};
use super::question::{Judge, Query, Refusal, Time};
use crate::archive::{ArchiveError, Packets, Segment, UnreadPackets};
use crate::error::IndexError;
use crate::index::MARK_RECORDS;
use crate::packet::{Headers, LinkType};

/// Marks whose packets are read before the search checks whether it has enough.
const MARKS_AT_ONCE: usize = 16;
/// If this many times fewer rows are found than there are, their packets are read sooner than the
/// flows of all.
const FEW_ROWS: u32 = 64;

/// The answer of a segment.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Answer {
    /// How many packets match. If only the earliest were asked for, there may be more.
    pub count: u64,
    /// Which ones, by their number in order of arrival, ascending; empty if only the count was
    /// asked for.
    pub records: Vec<u32>,
    /// More of them, if [`Search::rows`](super::Search::rows) asked: rows of the index, as
    /// ascending runs that do not touch, given by their first and last.
    pub rows: Vec<(u32, u32)>,
    /// If only the earliest were asked for: no packet before this time is undecided, and some from
    /// then on are. `None` if all packets were decided.
    pub undecided_from_ns: Option<u64>,
    /// Rows that matched by the index alone.
    pub certain: u64,
    /// Packets that were read to decide whether they match.
    pub read: u64,
    /// The segment has packets from other times only; nothing was looked up.
    pub pruned_by_time: bool,
    /// No key of the filter is in the segment, or none together with another.
    pub pruned_by_keys: bool,
    /// Link types of the segment that the filter cannot be compiled for.
    pub refused: Vec<Refusal>,
    /// Packets that should have been read, but have changed since they were indexed. They are not
    /// counted.
    pub unread: UnreadPackets,
}

/// What is wanted from a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wanted {
    /// How many packets match.
    Count,
    /// Which ones.
    Records,
    /// Which ones, as rows of the index where it decides.
    Rows,
    /// The same where it can sum up their flows, unless they are few.
    RowsOfFlows,
    /// At least this many of the earliest ones.
    Earliest(u64),
}

impl Query {
    /// How many packets of a segment match. Packets are read only where columns do not suffice.
    pub fn count(&self, segment: &Segment) -> Result<Answer, ArchiveError> {
        self.ask(segment, Wanted::Count, &Control::default())
    }

    /// Which packets of a segment match.
    pub fn records(&self, segment: &Segment) -> Result<Answer, ArchiveError> {
        self.ask(segment, Wanted::Records, &Control::default())
    }

    /// Asks a segment. If the search is cancelled, the error is [`ArchiveError::Interrupted`].
    pub(super) fn ask(
        &self,
        segment: &Segment,
        wanted: Wanted,
        control: &Control,
    ) -> Result<Answer, ArchiveError> {
        let note = segment.note();
        let time = match note.records {
            0 => Time::Outside,
            _ => self.time_of(note.time_min, note.time_max),
        };
        if time == Time::Outside {
            return Ok(Answer { pruned_by_time: true, ..Answer::default() });
        }
        let mut asking = Asking {
            query: self,
            segment,
            wanted,
            control,
            time,
            answer: Answer { pruned_by_keys: true, ..Answer::default() },
            counted: 0,
            matching: Vec::new(),
            open: Vec::new(),
        };
        asking.ask_columns()?;
        asking.ask_marks()?;
        asking.ask_packets()?;
        segment.index().check_flows().map_err(asking.damaged())?;
        Ok(asking.finish())
    }

    /// What the marks of a segment say about the times of its packets.
    pub(super) fn in_time(&self, segment: &Segment) -> Result<InTime, IndexError> {
        let Some(marks) = segment.index().marks()? else { return Ok(InTime(Vec::new())) };
        let times = marks.iter().map(|mark| mark.map(|m| self.time_of(m.time_min, m.time_max)));
        Ok(InTime(times.collect::<Result<_, IndexError>>()?))
    }
}

/// Whether the packets of each mark are from the right time.
pub(super) struct InTime(Vec<Time>);

impl InTime {
    /// The same for one record.
    pub(super) fn of(&self, record: u32) -> Time {
        self.0.get((record / MARK_RECORDS) as usize).copied().unwrap_or(Time::Edge)
    }
}

/// A segment that is being asked.
struct Asking<'a> {
    query: &'a Query,
    segment: &'a Segment,
    wanted: Wanted,
    control: &'a Control,
    /// Whether all its packets are from the right time, or only some.
    time: Time,
    answer: Answer,
    /// How many rows match, if it does not matter which.
    counted: u64,
    /// Records that match.
    matching: Vec<u32>,
    /// Records whose packets have to be read, and the judge that decides on them.
    open: Vec<(Judge<'a>, Vec<u32>)>,
}

/// A mark and the times of its packets.
struct MarkTimes {
    number: u32,
    /// No packet of the mark is earlier, and none is later.
    first_ns: u64,
    last_ns: u64,
}

/// Goes through ascending records, mark by mark.
#[derive(Clone, Copy)]
struct Cursor<'r> {
    rest: &'r [u32],
}

impl<'r> Cursor<'r> {
    /// Takes the records of a mark; those of marks before it have been taken.
    fn take_mark(&mut self, mark: u32) -> &'r [u32] {
        let len = self.rest.iter().take_while(|&&record| record / MARK_RECORDS == mark).count();
        let (taken, rest) = self.rest.split_at(len);
        self.rest = rest;
        taken
    }
}

/// The earliest matches so far, each by an upper bound of its time.
struct Earliest {
    most: u64,
    times: BinaryHeap<u64>,
}

impl Earliest {
    fn add(&mut self, time_ns: u64) {
        self.times.push(time_ns);
        if self.times.len() as u64 > self.most {
            self.times.pop();
        }
    }

    /// Whether there are enough, and no packet from this time on can be among them. Of two packets
    /// with the same time, the one that comes later in the segment is the later one.
    fn are_before(&self, time_ns: u64) -> bool {
        let is_before = |&last: &u64| last <= time_ns;
        self.times.len() as u64 >= self.most && self.times.peek().is_none_or(is_before)
    }
}

/// Interfaces of a segment that have the same kind of link.
struct Link<'a> {
    link: LinkType,
    swapped: bool,
    interfaces: &'a [u32],
    /// All interfaces of the segment are among them.
    is_only: bool,
}

impl<'a> Asking<'a> {
    fn damaged(&self) -> impl FnOnce(IndexError) -> ArchiveError + use<'a> {
        ArchiveError::index(self.segment.path())
    }

    /// Finds the rows that match for certain, and those whose packets have to be read.
    fn ask_columns(&mut self) -> Result<(), ArchiveError> {
        let links: BTreeMap<_, _> = Query::links(self.segment);
        for (&(link, swapped), interfaces) in &links {
            if self.control.is_cancelled() {
                return Err(ArchiveError::Interrupted);
            }
            // On Ethernet, libpcap accepts every filter that columns can answer. On other links it
            // compiles the filter first, so that it refuses a filter whether or not there is a
            // packet that could match.
            if (link != LinkType::ETHERNET || self.query.reads_packets())
                && let Err(refusal) = self.query.judge(link, swapped)
            {
                self.answer.refused.push(refusal);
                continue;
            }
            let link = Link { link, swapped, interfaces, is_only: links.len() == 1 };
            let planned = self.plan(&link).map_err(self.damaged())?;
            if let Some((sure, unsure)) = planned {
                self.answer.pruned_by_keys = false;
                self.take(&link, sure, unsure)?;
            }
        }
        self.answer.certain = self.counted + self.matching.len() as u64;
        Ok(())
    }

    /// The rows of a link that match for certain, and those that columns cannot decide; `None` if
    /// no row can match.
    fn plan(&self, link: &Link<'_>) -> Result<Option<Plan<'a>>, IndexError> {
        let dialect = match link.link {
            LinkType::ETHERNET => Dialect::Ethernet,
            _ => Dialect::Network,
        };
        let planner = Planner::new(self.segment.columns(), dialect);
        let all = || match link.is_only {
            true => Ok(Set::All),
            false => planner.interfaces(link.interfaces),
        };
        let filter = self.query.filter();
        let Some(expr) = filter.expr() else {
            return Ok(Some((all()?, None)));
        };
        // On links that are not decoded, libpcap's programs may look at the frame whatever is
        // asked: those for PPI do so even for the length.
        let decoded = link.link.name().is_some() || filter.syntax() == Syntax::Wireshark;
        if decoded && !self.query.is_kept(link.link, link.swapped) {
            // Only the program itself can tell what it matches.
            return Ok(Some((Set::None, Some(all()?))));
        }
        plan(&planner, expr, decoded, &all)
    }

    /// Takes the rows of a link that match, and those that are still undecided.
    fn take(
        &mut self,
        link: &Link<'_>,
        sure: Set<'a>,
        unsure: Option<Set<'a>>,
    ) -> Result<(), ArchiveError> {
        let index = self.segment.index();
        match self.wanted {
            Wanted::Count if self.time == Time::Inside => {
                self.counted += sure.count(index.rows());
            }
            Wanted::Rows if self.time == Time::Inside => {
                let runs = runs(sure, index.rows());
                self.take_rows(runs);
            }
            Wanted::RowsOfFlows if self.time == Time::Inside && index.has_volumes() => {
                self.take_rows_of_flows(sure)?;
            }
            _ => self.matching.extend(records(self.segment, sure)?),
        }
        let Some(unsure) = unsure else { return Ok(()) };
        let found = records(self.segment, unsure)?;
        if !found.is_empty() {
            match self.query.judge(link.link, link.swapped) {
                Ok(judge) => self.open.push((judge, found)),
                Err(refusal) => self.answer.refused.push(refusal),
            }
        }
        Ok(())
    }

    /// Takes rows that match as they are, unless they are so few that their packets are read soon.
    fn take_rows_of_flows(&mut self, sure: Set<'a>) -> Result<(), ArchiveError> {
        let rows = self.segment.index().rows();
        let runs = runs(sure, rows);
        if are_few(&runs, rows) {
            self.matching.extend(records_of_rows(self.segment, &runs)?);
        } else {
            self.take_rows(runs);
        }
        Ok(())
    }

    fn take_rows(&mut self, runs: Vec<(u32, u32)>) {
        self.counted += count(&runs);
        self.answer.rows.extend(runs);
    }

    /// Drops records whose marks say that they are from the wrong time. If a mark has packets from
    /// both, they have to be read.
    fn ask_marks(&mut self) -> Result<(), ArchiveError> {
        if self.time != Time::Edge {
            return Ok(());
        }
        let times = self.query.in_time(self.segment).map_err(self.damaged())?;
        let mut edge = Vec::new();
        self.matching.retain(|&record| {
            let time = times.of(record);
            edge.extend((time == Time::Edge).then_some(record));
            time == Time::Inside
        });
        for (_, records) in &mut self.open {
            records.retain(|&record| times.of(record) != Time::Outside);
        }
        self.open.push((Judge::All, edge));
        Ok(())
    }

    /// Reads the packets that nothing else has decided.
    fn ask_packets(&mut self) -> Result<(), ArchiveError> {
        self.open.retain(|(_, records)| !records.is_empty());
        if self.open.is_empty() {
            return Ok(());
        }
        match self.wanted {
            Wanted::Earliest(most) => self.read_earliest(most),
            Wanted::Count | Wanted::Records | Wanted::Rows | Wanted::RowsOfFlows => self.read_all(),
        }
    }

    fn read_all(&mut self) -> Result<(), ArchiveError> {
        for (judge, records) in std::mem::take(&mut self.open) {
            let mut packets = self.segment.packets()?;
            self.read(&mut packets, &judge, records, &mut |_| {})?;
        }
        Ok(())
    }

    /// Reads in order of arrival, until all remaining packets are later than the matches that are
    /// wanted.
    fn read_earliest(&mut self, most: u64) -> Result<(), ArchiveError> {
        let mut certain = std::mem::take(&mut self.matching);
        let mut open = std::mem::take(&mut self.open);
        // The records of several links were appended one after the other.
        certain.sort_unstable();
        open.iter_mut().for_each(|(_, records)| records.sort_unstable());
        let mut certain = Cursor { rest: &certain };
        let mut lists: Vec<(&Judge<'_>, Cursor<'_>)> =
            open.iter().map(|(judge, records)| (judge, Cursor { rest: records })).collect();
        let cursors = std::iter::once(certain).chain(lists.iter().map(|(_, cursor)| *cursor));
        let marks = self.marks_of(cursors)?;
        // The earliest time in each batch and in all after it.
        let mut earliest: Vec<u64> = vec![u64::MAX];
        for batch in marks.chunks(MARKS_AT_ONCE).rev() {
            let first = batch.iter().map(|mark| mark.first_ns).min().unwrap_or(u64::MAX);
            earliest.push(first.min(earliest[earliest.len() - 1]));
        }
        earliest.pop();
        let mut found = Earliest { most, times: BinaryHeap::new() };
        let mut packets = self.segment.packets()?;
        for (batch, rest) in marks.chunks(MARKS_AT_ONCE).zip(earliest.into_iter().rev()) {
            for mark in batch {
                let records = certain.take_mark(mark.number);
                self.matching.extend(records);
                records.iter().for_each(|_| found.add(mark.last_ns));
            }
            for (judge, cursor) in &mut lists {
                let records = batch.iter().flat_map(|mark| cursor.take_mark(mark.number)).copied();
                self.read(&mut packets, judge, records.collect(), &mut |time| found.add(time))?;
            }
            if found.are_before(rest) {
                self.answer.undecided_from_ns = Some(rest).filter(|&rest| rest < u64::MAX);
                break;
            }
        }
        Ok(())
    }

    /// The marks that have one of some records, in order of arrival.
    fn marks_of<'r>(
        &self,
        lists: impl Iterator<Item = Cursor<'r>>,
    ) -> Result<Vec<MarkTimes>, ArchiveError> {
        let marks_len = self.segment.index().rows().div_ceil(MARK_RECORDS);
        let mut is_wanted = vec![false; marks_len as usize];
        for record in lists.flat_map(|list| list.rest) {
            if let Some(is_wanted) = is_wanted.get_mut((record / MARK_RECORDS) as usize) {
                *is_wanted = true;
            }
        }
        let times = self.segment.index().marks().map_err(self.damaged())?;
        let mut marks = Vec::new();
        for (number, _) in (0..).zip(is_wanted).filter(|(_, is_wanted)| *is_wanted) {
            let (mut first_ns, mut last_ns) = (0, u64::MAX);
            if let Some(times) = times {
                let times = times.get(number).map_err(self.damaged())?;
                (first_ns, last_ns) = (times.time_min, times.time_max);
            }
            marks.push(MarkTimes { number, first_ns, last_ns });
        }
        Ok(marks)
    }

    /// Reads packets and keeps those that match; `found` gets the time of each.
    fn read(
        &mut self,
        packets: &mut Packets<'_>,
        judge: &Judge<'_>,
        records: Vec<u32>,
        found: &mut dyn FnMut(u64),
    ) -> Result<(), ArchiveError> {
        let len = records.len() as u64;
        let (query, control, matching) = (self.query, self.control, &mut self.matching);
        let mut headers = Headers::default();
        let unread = packets.for_each(records, &mut |number, record| {
            let in_time = query.times().contains(record.time_ns);
            if in_time && judge.matches(record, &mut headers) {
                matching.push(number);
                found(record.time_ns);
            }
            Ok(!control.is_cancelled())
        })?;
        if control.is_cancelled() {
            return Err(ArchiveError::Interrupted);
        }
        self.answer.read += len;
        self.answer.unread.extend(unread);
        control.add_read(len);
        Ok(())
    }

    fn finish(mut self) -> Answer {
        self.answer.count = self.counted + self.matching.len() as u64;
        if self.wanted != Wanted::Count {
            self.matching.sort_unstable();
            self.answer.records = self.matching;
        }
        // Those of several links were appended one after the other.
        self.answer.rows.sort_unstable();
        self.answer.rows = joined(self.answer.rows);
        self.answer
    }
}

/// The rows that match for certain, and those whose packets have to be read.
type Plan<'a> = (Set<'a>, Option<Set<'a>>);

/// Plans an expression. If frames are not `decoded`, all packets that can match are read. `None` if
/// no row can match.
fn plan<'a>(
    planner: &Planner<'a>,
    expr: &Expr,
    decoded: bool,
    of_link: &dyn Fn() -> Result<Set<'a>, IndexError>,
) -> Result<Option<Plan<'a>>, IndexError> {
    let possible = || -> Result<Set<'a>, IndexError> {
        Ok(Set::all_of(vec![planner.bound(expr, true)?, of_link()?]))
    };
    let upper = possible()?;
    if matches!(upper, Set::None) {
        return Ok(None);
    }
    let (rows, inside) = (planner.columns.rows(), planner.within(&upper));
    match if decoded { inside.unknown(expr)? } else { Set::All } {
        Set::None => Ok(Some((upper, None))),
        Set::All => Ok(Some((Set::None, Some(upper)))),
        unknown => {
            let sure = upper.and(unknown.not(rows));
            Ok(Some((sure, Some(possible()?.and(inside.unknown(expr)?)))))
        }
    }
}

/// The records of some rows, ascending.
pub(super) fn records(segment: &Segment, set: Set<'_>) -> Result<Vec<u32>, ArchiveError> {
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

/// The records of runs of rows, ascending. Runs ascend, and do not overlap.
pub(super) fn records_of_rows(
    segment: &Segment,
    runs: &[(u32, u32)],
) -> Result<Vec<u32>, ArchiveError> {
    let set = match runs {
        [] => Set::None,
        &[(0, last)] if last + 1 == segment.index().rows() => Set::All,
        _ => Set::Rows(Box::new(RunSet::new(runs.to_vec())), 0),
    };
    records(segment, set)
}

/// Whether runs have so few of the rows that reading their packets is faster than reading what the
/// index says about the flows of all.
pub(super) fn are_few(runs: &[(u32, u32)], rows: u32) -> bool {
    count(runs) < u64::from(rows / FEW_ROWS)
}

/// How many rows are in runs.
pub(super) fn count(runs: &[(u32, u32)]) -> u64 {
    runs.iter().map(|&(first, last)| u64::from(last - first) + 1).sum()
}

/// A set of rows as ascending runs.
pub(super) fn runs(set: Set<'_>, rows: u32) -> Vec<(u32, u32)> {
    let mut runs = Vec::new();
    if matches!(set, Set::None) || rows == 0 {
        return runs;
    }
    if matches!(set, Set::All) {
        return vec![(0, rows - 1)];
    }
    let mut set = set.into_rows(rows);
    let mut from = 0;
    while let Some(key) = set.seek(from) {
        set.load().for_each_run(|first, last| runs.push((key << 16 | first, key << 16 | last)));
        from = key + 1;
    }
    joined(runs)
}

/// Ascending runs, with those joined that touch.
pub(super) fn joined(mut runs: Vec<(u32, u32)>) -> Vec<(u32, u32)> {
    runs.dedup_by(|next, before| {
        let joins = before.1.checked_add(1) == Some(next.0);
        if joins {
            before.1 = next.1;
        }
        joins
    });
    runs
}

/// Sorts records, each of which occurs once and is below `rows`.
fn sort_records(records: &mut Vec<u32>, rows: u32) {
    /// Walking a bitmap of all rows is cheaper than sorting, unless records are this many times
    /// fewer.
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
