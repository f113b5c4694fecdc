//! Counting by field and by time, from the index.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt::{Display, Formatter};
use std::path::PathBuf;
use std::sync::Arc;

use tapdex_bitmap::RunSet;

use super::answer::{Answer, are_few, count as count_rows, joined, records_of_rows, runs};
use super::fields::presence_rows;
use super::plan::{Dialect, Planner, Set};
use super::search::{Answers, SearchError};
use super::whole_flows::{Volumes, split};
use crate::archive::{ArchiveError, FieldColumn, Gap, Segment, UnreadPackets};
use crate::capture::Record;
use crate::error::IndexError;
use crate::fields::{Field, FieldKind, LENGTH_802_3_MAX, Name, Packet, Part, Shown};
use crate::index::MARK_RECORDS;
use crate::packet::{Headers, decode};

/// A value that packets are grouped by.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Value {
    /// A value of a field.
    Field(Shown),
    /// The name of an interface.
    Interface(String),
    /// An interface without a name.
    UnnamedInterface {
        /// The capture that it is in.
        capture: PathBuf,
        /// Its number there.
        number: u128,
    },
}

impl Value {
    pub(super) fn of(segment: &Segment, Shown(kind, value): Shown) -> Self {
        match kind {
            // These are lengths of IEEE 802.3 frames, which have no type.
            FieldKind::EtherType if value <= LENGTH_802_3_MAX => Self::Field(Shown(kind, 0)),
            FieldKind::Interface => {
                let interfaces = &segment.note().layout.interfaces;
                let named = usize::try_from(value).ok().and_then(|number| interfaces.get(number));
                match named.filter(|interface| !interface.name.is_empty()) {
                    Some(interface) => Self::Interface(interface.name.clone()),
                    None => {
                        let capture = segment.sealed_packet_path();
                        Self::UnnamedInterface { capture, number: value }
                    }
                }
            }
            _ => Self::Field(Shown(kind, value)),
        }
    }
}

impl Display for Value {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Interface(text) => f.write_str(text),
            Self::UnnamedInterface { capture, number } => {
                write!(f, "{number} of {}", capture.display())
            }
            Self::Field(shown) => shown.fmt(f),
        }
    }
}

/// The most frequent values of a field.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Top {
    /// The values and how often each occurs, the most frequent first. By bytes: how many bytes the
    /// packets have in which it occurs.
    pub values: Vec<(Value, u64)>,
    /// How many values there are; some may have been left out.
    pub distinct: usize,
    /// How often all of them occur.
    pub total: u64,
    /// Packets that were read because their segments do not know the field.
    pub packets_read: u64,
}

impl Top {
    fn of(counts: HashMap<Value, u64>, most: usize, packets_read: u64) -> Self {
        let (distinct, total) = (counts.len(), counts.values().sum());
        let mut values: Vec<(Value, u64)> = counts.into_iter().collect();
        values.sort_unstable_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
        values.truncate(most);
        Self { values, distinct, total, packets_read }
    }
}

/// How many packets match in each of a number of equal spans of time.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct OverTime {
    /// The start of the first span.
    pub start_ns: u64,
    /// How long each is.
    pub span_ns: u64,
    /// Packets in each.
    pub counts: Vec<u64>,
    /// Packets that were read because the index does not have their times exactly enough.
    pub packets_read: u64,
}

impl Answers {
    /// The most frequent values of a field among the packets that [`Search::rows`] has found.
    ///
    /// What cannot be read is left out and becomes a [`Gap`](crate::archive::Gap).
    ///
    /// [`Search::rows`]: super::Search::rows
    pub fn top(&mut self, name: &Name, most: usize) -> Result<Top, SearchError> {
        let mut counts: HashMap<Value, u64> = HashMap::new();
        let packets_read = self.each_found(&mut |segment, answer| {
            let rows = rows_of_answer(segment, answer)?;
            let is_known = |part: &Part| segment.columns().knows(part.field);
            // Only packets that are read need numbers.
            let records = match name.parts.iter().all(is_known) {
                true => Cow::default(),
                false => records_of_answer(segment, answer)?,
            };
            count_name(segment, name, &records, rows.as_deref(), &mut |shown, count| {
                *counts.entry(Value::of(segment, shown)).or_default() += count;
            })
        })?;
        Ok(Top::of(counts, most, packets_read))
    }

    /// The same by bytes on the wire: the values whose packets have the most. The numbers are bytes
    /// then. The index sums up flows that were found whole; other packets are read.
    pub fn top_by_bytes(&mut self, name: &Name, most: usize) -> Result<Top, SearchError> {
        let mut bytes: HashMap<Value, u64> = HashMap::new();
        let packets_read = self.each_found(&mut |segment, answer| {
            sum_bytes(segment, answer, name, &mut |shown, sum| {
                *bytes.entry(Value::of(segment, shown)).or_default() += sum;
            })
        })?;
        Ok(Top::of(bytes, most, packets_read))
    }

    /// How many of the packets that [`Search::rows`] or [`Search::records`] has found are in each
    /// of `len` spans.
    ///
    /// What cannot be read is left out and becomes a [`Gap`](crate::archive::Gap).
    ///
    /// [`Search::rows`]: super::Search::rows
    /// [`Search::records`]: super::Search::records
    pub fn over_time(
        &mut self,
        start_ns: u64,
        span_ns: u64,
        len: usize,
    ) -> Result<OverTime, SearchError> {
        let mut counts = vec![0; len];
        self.rows_to_records();
        let packets_read = self.each_found(&mut |segment, answer| {
            count_times(segment, &answer.records, start_ns, span_ns, &mut counts)
        })?;
        Ok(OverTime { start_ns, span_ns, counts, packets_read })
    }

    /// Counts in each segment that has packets. Returns how many packets were read.
    pub(super) fn each_found(&mut self, count: &mut CountSegment<'_>) -> Result<u64, SearchError> {
        let (mut read, mut unread, mut failed) = (0, UnreadPackets::default(), Vec::new());
        for (segment, answer) in &self.segments {
            if self.control.is_cancelled() {
                return Err(SearchError::Cancelled);
            }
            if answer.records.is_empty() && answer.rows.is_empty() {
                continue;
            }
            match count(segment, answer) {
                Ok((packets, more)) => {
                    read += packets;
                    unread.extend(more);
                }
                Err(error) => failed.push(Gap::of_lost(segment, error)),
            }
        }
        self.add_gaps(failed);
        self.add_unread(unread);
        Ok(read)
    }
}

/// Counts packets of a segment. Returns how many had to be read, and those that could not be read.
pub(super) type CountSegment<'c> =
    dyn FnMut(&Arc<Segment>, &Answer) -> Result<(u64, UnreadPackets), ArchiveError> + 'c;

/// Rows as ascending runs, given by their first and last.
type Runs = [(u32, u32)];

/// The packets that a segment has found, by their numbers.
fn records_of_answer<'a>(
    segment: &Segment,
    answer: &'a Answer,
) -> Result<Cow<'a, [u32]>, ArchiveError> {
    if answer.rows.is_empty() {
        return Ok(Cow::Borrowed(&answer.records));
    }
    let mut records = records_of_rows(segment, &answer.rows)?;
    if !answer.records.is_empty() {
        records.extend(&answer.records);
        records.sort_unstable();
    }
    Ok(Cow::Owned(records))
}

/// The rows that a segment has found, as ascending runs; `None` if these are all there are.
fn rows_of_answer<'a>(
    segment: &Segment,
    answer: &'a Answer,
) -> Result<Option<Cow<'a, Runs>>, ArchiveError> {
    if answer.rows.is_empty() {
        return Ok(rows_of(segment, &answer.records)?.map(Cow::Owned));
    }
    let all = [(0, segment.index().rows().saturating_sub(1))];
    let mut rows = Cow::Borrowed(answer.rows.as_slice());
    if !answer.records.is_empty() {
        let some = rows_of(segment, &answer.records)?;
        rows.to_mut().extend(some.as_deref().unwrap_or(&all));
        rows.to_mut().sort_unstable();
        rows = Cow::Owned(joined(rows.into_owned()));
    }
    Ok(Some(rows).filter(|rows| **rows != all))
}

/// The rows of some records of a segment, as ascending runs, given by their first and last; `None`
/// if these are all there are.
pub fn rows_of(
    segment: &Segment,
    records: &[u32],
) -> Result<Option<Vec<(u32, u32)>>, ArchiveError> {
    let rows = segment.index().rows() as usize;
    if records.len() == rows {
        return Ok(None);
    }
    let damaged = |source| ArchiveError::index(segment.path())(source);
    let Some(row_map) = segment.index().row_map().map_err(damaged)? else {
        return Ok(Some(joined(records.iter().map(|&row| (row, row)).collect())));
    };
    // The row map only leads from rows to records.
    let mut wanted = vec![false; rows];
    for &record in records {
        if let Some(wanted) = wanted.get_mut(record as usize) {
            *wanted = true;
        }
    }
    let mut found = Vec::new();
    for (row, record) in (0..).zip(row_map.iter()) {
        if wanted.get(record.map_err(damaged)? as usize) == Some(&true) {
            found.push((row, row));
        }
    }
    Ok(Some(joined(found)))
}

/// Counts the values of what a name stands for among some packets of a segment, given by their
/// numbers, which matter only if there are fields that the segment does not know; `rows` are
/// theirs, as ascending runs, or `None` if these are all packets.
///
/// A field is 0 where a packet does not have it. So values are counted among the packets that have
/// it. If a packet's headers are cut off, a 0 means nothing, and is not counted. Columns answer all
/// of this, but for fields that the segment does not know, packets are read. Returns how many, and
/// those that have changed since they were indexed.
///
/// `each` is called with every value and how often it occurs, and again with the same value if
/// several fields have it.
pub fn count_name(
    segment: &Segment,
    name: &Name,
    records: &[u32],
    rows: Option<&[(u32, u32)]>,
    each: &mut dyn FnMut(Shown, u64),
) -> Result<(u64, UnreadPackets), ArchiveError> {
    let columns = segment.columns();
    let (known, unknown): (Vec<&Part>, Vec<&Part>) =
        name.parts.iter().partition(|part| columns.knows(part.field));
    for part in known {
        count_part(segment, part, rows, each)?;
    }
    if unknown.is_empty() || records.is_empty() {
        return Ok((0, UnreadPackets::default()));
    }
    let unread = sum_read(segment, &unknown, records, |_| 1, each)?;
    Ok((records.len() as u64, unread))
}

/// Sums up bytes on the wire by the values of what a name stands for, among the packets that a
/// segment has found. Returns how many packets were read, and those that have changed.
fn sum_bytes(
    segment: &Segment,
    answer: &Answer,
    name: &Name,
    each: &mut dyn FnMut(Shown, u64),
) -> Result<(u64, UnreadPackets), ArchiveError> {
    let damaged = |error| ArchiveError::index(segment.path())(error);
    let records = match sum_flows(segment, answer, name, each).map_err(damaged)? {
        // Those of flows that were found in part, and those that were read before.
        Some(rows) => {
            let mut records = records_of_rows(segment, &rows)?;
            records.extend(&answer.records);
            records.sort_unstable();
            Cow::Owned(records)
        }
        None => records_of_answer(segment, answer)?,
    };
    if records.is_empty() {
        return Ok((0, UnreadPackets::default()));
    }
    let parts: Vec<&Part> = name.parts.iter().collect();
    let len = |record: &Record<'_>| record.wire_len.into();
    let unread = sum_read(segment, &parts, &records, len, each)?;
    Ok((records.len() as u64, unread))
}

/// Sums up the bytes of flows that a segment has found whole, without reading packets. Returns the
/// other rows; `None`, and then nothing was summed up, if the index does not know what is needed,
/// or the packets are few.
fn sum_flows(
    segment: &Segment,
    answer: &Answer,
    name: &Name,
    each: &mut dyn FnMut(Shown, u64),
) -> Result<Option<Vec<(u32, u32)>>, IndexError> {
    let (columns, index) = (segment.columns(), segment.index());
    if are_few(&answer.rows, columns.rows()) || !columns.knows(Field::Length) {
        return Ok(None);
    }
    let Some(volumes) = Volumes::open(segment)? else { return Ok(None) };
    // The value of each field in each flow; none if it is 0 in all.
    let mut values = Vec::new();
    for part in name.parts {
        if !columns.knows(part.field) {
            return Ok(None);
        }
        values.push(match columns.read(part.field)? {
            None => None,
            Some(FieldColumn::Digits(_)) => return Ok(None),
            Some(FieldColumn::Values(column)) => match column.of_flows()? {
                Some(values) => Some(values),
                // Packets of a flow differ in it.
                None => return Ok(None),
            },
        });
    }
    let (whole, rest) = split(&answer.rows, &index.flow_starts()?);
    let bytes = volumes.bytes(&whole)?;
    let planner = Planner::new(columns, Dialect::Network);
    let odd = runs(planner.equals(Field::Odd, 1)?, columns.rows());
    for (part, values) in name.parts.iter().zip(&values) {
        // Packets of a flow have the same headers, so its first one tells.
        let had = runs(presence_rows(&planner, part.presence)?, columns.rows());
        let (mut had, mut odd) = (had.as_slice(), odd.as_slice());
        let mut sums: HashMap<u128, u64> = HashMap::new();
        for (flow, bytes) in whole.iter().zip(&bytes) {
            let value = values.as_ref().map_or(0, |values| values.get(flow.flow));
            let (is_had, is_odd) =
                (is_next_in(&mut had, flow.rows.0), is_next_in(&mut odd, flow.rows.0));
            if is_had && (value != 0 || !is_odd || is_never_cut_off(part.field)) {
                *sums.entry(value).or_default() += bytes;
            }
        }
        sums.into_iter().for_each(|(value, sum)| each(Shown(part.kind, value), sum));
    }
    Ok(Some(rest))
}

/// Whether ascending runs have a row; rows are asked for in ascending order.
fn is_next_in(runs: &mut &[(u32, u32)], row: u32) -> bool {
    while let [(_, last), rest @ ..] = runs
        && *last < row
    {
        *runs = rest;
    }
    runs.first().is_some_and(|&(first, _)| first <= row)
}

/// Reads packets and sums up what they weigh, by the values of fields. Returns those that have
/// changed since they were indexed.
fn sum_read(
    segment: &Segment,
    parts: &[&Part],
    records: &[u32],
    weight: impl Fn(&Record<'_>) -> u64,
    each: &mut dyn FnMut(Shown, u64),
) -> Result<UnreadPackets, ArchiveError> {
    let mut headers = Headers::default();
    let mut sums = HashMap::new();
    let unread = segment.packets()?.for_each(records.iter().copied(), &mut |_, record| {
        decode(record.link, record.swapped, record.data, &mut headers);
        let packet = Packet::new(record, &headers);
        for part in parts {
            let value = part.field.value(&packet);
            let says = value != 0 || !headers.odd || is_never_cut_off(part.field);
            if says && part.presence.holds(&packet) {
                *sums.entry(Shown(part.kind, value)).or_insert(0) += weight(record);
            }
        }
        Ok(true)
    })?;
    sums.into_iter().for_each(|(value, sum)| each(value, sum));
    Ok(unread)
}

/// Whether a 0 of this field never comes from a header that is cut off.
fn is_never_cut_off(field: Field) -> bool {
    matches!(field, Field::Encap | Field::Interface | Field::Length | Field::FrameLen)
}

/// Counts the values of a field that the segment knows, among the rows that have it.
fn count_part(
    segment: &Segment,
    part: &Part,
    rows: Option<&[(u32, u32)]>,
    each: &mut dyn FnMut(Shown, u64),
) -> Result<(), ArchiveError> {
    let damaged = |error| ArchiveError::index(segment.path())(error);
    let columns = segment.columns();
    let planner = Planner::new(columns, Dialect::Network);
    let odd = planner.equals(Field::Odd, 1).map_err(damaged)?;
    let mut found = HashMap::new();
    match (presence_rows(&planner, part.presence).map_err(damaged)?, odd) {
        (Set::None, _) => return Ok(()),
        (Set::All, Set::None) => count_values(segment, part.field, rows, &mut found)?,
        (had, odd) => {
            let set = |rows: &[(u32, u32)]| {
                Set::Rows(Box::new(RunSet::new(rows.to_vec())), rows.len() as u64)
            };
            let had = match rows {
                Some(rows) => runs(set(rows).and(had), columns.rows()),
                None => runs(had, columns.rows()),
            };
            let mut sound = had;
            if !matches!(odd, Set::None) {
                // Fields of a header that is cut off are 0 in the columns; their values are not
                // known.
                let odd = runs(set(&sound).and(odd), columns.rows());
                sound = runs(set(&sound).and(set(&odd).not(columns.rows())), columns.rows());
                count_values(segment, part.field, Some(&odd), &mut found)?;
                if !is_never_cut_off(part.field) {
                    found.remove(&0);
                }
            }
            segment.index().check_flows().map_err(damaged)?;
            count_values(segment, part.field, Some(&sound), &mut found)?;
        }
    }
    for (value, count) in found {
        each(Shown(part.kind, value), count);
    }
    Ok(())
}

/// How many rows have each value of a field. An error if the segment does not know it: see
/// [`Columns`](crate::archive::Columns).
pub fn count_values(
    segment: &Segment,
    field: Field,
    rows: Option<&[(u32, u32)]>,
    counts: &mut HashMap<u128, u64>,
) -> Result<(), ArchiveError> {
    let damaged = |error| ArchiveError::index(segment.path())(error);
    let columns = segment.columns();
    let len = rows.map_or(columns.rows().into(), count_rows);
    if len == 0 {
        return Ok(());
    }
    let found = match columns.read(field).map_err(damaged)? {
        Some(column) => column.count(rows).map_err(damaged)?,
        None => vec![(0, len)],
    };
    for (value, count) in found {
        *counts.entry(value).or_default() += count;
    }
    Ok(())
}

/// How many of some packets fall into each of a number of equal spans of time.
///
/// If all packets of a mark fall into one span, the mark is enough; otherwise they are read.
/// Returns how many were read, and those that have changed since they were indexed.
pub fn count_times(
    segment: &Segment,
    records: &[u32],
    start_ns: u64,
    span_ns: u64,
    counts: &mut [u64],
) -> Result<(u64, UnreadPackets), ArchiveError> {
    let damaged = |error| ArchiveError::index(segment.path())(error);
    let span = span_ns.max(1);
    let slot = |time: u64| time.checked_sub(start_ns).map(|since| since / span);
    let mut add = |slot: Option<u64>, count: u64| {
        let place = slot.and_then(|slot| usize::try_from(slot).ok());
        if let Some(place) = place.and_then(|place| counts.get_mut(place)) {
            *place += count;
        }
    };
    let Some(marks) = segment.index().marks().map_err(damaged)? else {
        return Ok((0, UnreadPackets::default()));
    };
    let mut unsure = Vec::new();
    let mut rest = records;
    while let Some(&first) = rest.first() {
        let mark = first / MARK_RECORDS;
        let len = rest.iter().take_while(|&&record| record / MARK_RECORDS == mark).count();
        let (now, later) = rest.split_at(len);
        rest = later;
        let times = marks.get(mark).map_err(damaged)?;
        if slot(times.time_min) == slot(times.time_max) {
            add(slot(times.time_min), now.len() as u64);
        } else {
            unsure.extend_from_slice(now);
        }
    }
    let read = unsure.len() as u64;
    let mut unread = UnreadPackets::default();
    if read > 0 {
        unread = segment.packets()?.for_each(unsure, &mut |_, record| {
            add(slot(record.time_ns), 1);
            Ok(true)
        })?;
    }
    Ok((read, unread))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_found_in_runs() {
        let runs = [(1, 3), (5, 5), (8, 9)];
        let mut rest = &runs[..];
        let found: Vec<u32> = (0..12).filter(|&row| is_next_in(&mut rest, row)).collect();
        assert_eq!(found, [1, 2, 3, 5, 8, 9]);
    }
}
