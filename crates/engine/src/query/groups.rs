//! Counting by field and by time, from the index.

use std::collections::HashMap;
use std::fmt::{Display, Formatter};
use std::path::PathBuf;

use tapdex_bitmap::Chunks;

use super::fields::presence_rows;
use super::plan::{Dialect, Planner, Set};
use super::search::{Answers, SearchError};
use crate::archive::{ArchiveError, Segment, UnreadPackets};
use crate::capture::Record;
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
    fn of(segment: &Segment, Shown(kind, value): Shown) -> Self {
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
    /// The most frequent values of a field among the packets that [`Search::records`] has found.
    ///
    /// What cannot be read is left out and becomes a [`Gap`](crate::archive::Gap).
    ///
    /// [`Search::records`]: super::Search::records
    pub fn top(&mut self, name: &Name, most: usize) -> Result<Top, SearchError> {
        let mut counts: HashMap<Value, u64> = HashMap::new();
        let packets_read = self.each_found(&mut |segment, records| {
            let rows = rows_of(segment, records)?;
            count_name(segment, name, records, rows.as_deref(), &mut |shown, count| {
                *counts.entry(Value::of(segment, shown)).or_default() += count;
            })
        })?;
        Ok(Top::of(counts, most, packets_read))
    }

    /// The same by bytes on the wire: the values whose packets have the most. The numbers are bytes
    /// then. All packets that were found are read, for their lengths.
    pub fn top_by_bytes(&mut self, name: &Name, most: usize) -> Result<Top, SearchError> {
        let parts: Vec<&Part> = name.parts.iter().collect();
        let mut bytes: HashMap<Value, u64> = HashMap::new();
        let packets_read = self.each_found(&mut |segment, records| {
            let len = |record: &Record<'_>| record.wire_len.into();
            let unread = sum_read(segment, &parts, records, len, &mut |shown, sum| {
                *bytes.entry(Value::of(segment, shown)).or_default() += sum;
            })?;
            Ok((records.len() as u64, unread))
        })?;
        Ok(Top::of(bytes, most, packets_read))
    }

    /// How many of the packets that [`Search::records`] has found are in each of `len` spans.
    ///
    /// What cannot be read is left out and becomes a [`Gap`](crate::archive::Gap).
    ///
    /// [`Search::records`]: super::Search::records
    pub fn over_time(
        &mut self,
        start_ns: u64,
        span_ns: u64,
        len: usize,
    ) -> Result<OverTime, SearchError> {
        let mut counts = vec![0; len];
        let packets_read = self.each_found(&mut |segment, records| {
            count_times(segment, records, start_ns, span_ns, &mut counts)
        })?;
        Ok(OverTime { start_ns, span_ns, counts, packets_read })
    }

    /// Counts in each segment that has packets. Returns how many packets were read.
    fn each_found(&mut self, count: &mut CountSegment<'_>) -> Result<u64, SearchError> {
        self.rows_to_records();
        let (mut read, mut unread, mut failed) = (0, UnreadPackets::default(), Vec::new());
        for (segment, records) in self.found() {
            if self.control.is_cancelled() {
                return Err(SearchError::Cancelled);
            }
            match count(segment, records) {
                Ok((packets, more)) => {
                    read += packets;
                    unread.extend(more);
                }
                Err(error) => failed.push(error),
            }
        }
        self.add_failed(failed);
        self.add_unread(unread);
        Ok(read)
    }
}

/// Counts packets of a segment. Returns how many had to be read, and those that could not be read.
type CountSegment<'c> =
    dyn FnMut(&Segment, &[u32]) -> Result<(u64, UnreadPackets), ArchiveError> + 'c;

/// The rows of some records of a segment, ascending; `None` if these are all there are.
pub fn rows_of(segment: &Segment, records: &[u32]) -> Result<Option<Vec<u32>>, ArchiveError> {
    let rows = segment.index().rows() as usize;
    if records.len() == rows {
        return Ok(None);
    }
    let damaged = |source| ArchiveError::index(segment.path())(source);
    let Some(row_map) = segment.index().row_map().map_err(damaged)? else {
        return Ok(Some(records.to_vec()));
    };
    // The row map only leads from rows to records.
    let mut wanted = vec![false; rows];
    for &record in records {
        if let Some(wanted) = wanted.get_mut(record as usize) {
            *wanted = true;
        }
    }
    let mut found = Vec::with_capacity(records.len());
    for (row, record) in (0..).zip(row_map.iter()) {
        if wanted.get(record.map_err(damaged)? as usize) == Some(&true) {
            found.push(row);
        }
    }
    Ok(Some(found))
}

/// Counts the values of what a name stands for among some packets of a segment, given by their
/// numbers; `rows` are theirs, ascending, or `None` if these are all packets.
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
    rows: Option<&[u32]>,
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
    rows: Option<&[u32]>,
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
            let mut had = match (had, rows) {
                (Set::All, None) => (0..columns.rows()).collect(),
                (Set::All, Some(rows)) => rows.to_vec(),
                (had, None) => had.into_rows(columns.rows()).ids().collect(),
                (had, Some(rows)) => common(had.into_rows(columns.rows()).ids(), rows),
            };
            if !matches!(odd, Set::None) {
                // Fields of a header that is cut off are 0 in the columns; their values are not
                // known.
                let odd = common(odd.into_rows(columns.rows()).ids(), &had);
                had.retain(|row| odd.binary_search(row).is_err());
                count_values(segment, part.field, Some(&odd), &mut found)?;
                if !is_never_cut_off(part.field) {
                    found.remove(&0);
                }
            }
            segment.index().check_flows().map_err(damaged)?;
            count_values(segment, part.field, Some(&had), &mut found)?;
        }
    }
    for (value, count) in found {
        each(Shown(part.kind, value), count);
    }
    Ok(())
}

/// What two ascending lists have in common.
fn common(a: impl Iterator<Item = u32>, b: &[u32]) -> Vec<u32> {
    let mut b = b.iter().copied().peekable();
    a.filter(|&id| {
        while b.next_if(|&other| other < id).is_some() {}
        b.next_if_eq(&id).is_some()
    })
    .collect()
}

/// How many rows have each value of a field. An error if the segment does not know it: see
/// [`Columns`](crate::archive::Columns).
pub fn count_values(
    segment: &Segment,
    field: Field,
    rows: Option<&[u32]>,
    counts: &mut HashMap<u128, u64>,
) -> Result<(), ArchiveError> {
    let damaged = |error| ArchiveError::index(segment.path())(error);
    let columns = segment.columns();
    let len = rows.map_or(columns.rows() as usize, <[u32]>::len) as u64;
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
    fn lists_meet_where_they_are_equal() {
        assert_eq!(common([1, 3, 5, 9].into_iter(), &[0, 3, 4, 9, 10]), [3, 9]);
        assert_eq!(common([1, 2].into_iter(), &[]), []);
    }
}
