//! Packets or bytes over time, by the values of a field.
//!
//! Every row of a segment gets a class, that of its value, and the records that were found are
//! counted class by class, mark by mark. Only packets of marks that lie in two spans are read, and
//! those of segments that do not know the field.

use std::collections::HashMap;
use std::sync::Arc;

use super::answer::{Answer, runs};
use super::control::Control;
use super::fields::presence_rows;
use super::groups::Value;
use super::plan::{Dialect, Planner};
use super::search::{Answers, SearchError};
use crate::archive::{ArchiveError, Segment, UnreadPackets};
use crate::capture::Record;
use crate::error::IndexError;
use crate::fields::{Field, Name, Packet, Part, Shown};
use crate::index::MARK_RECORDS;
use crate::packet::{Headers, decode};

/// What is counted over time.
#[derive(Debug, Clone, Copy)]
pub struct Stack<'a> {
    /// The field whose values are told apart.
    pub name: &'a Name,
    /// Its values. A packet that has several of them is counted at the first; at most 254 are told
    /// apart.
    pub values: &'a [Value],
}

/// What matches in each of a number of equal spans of time, by value.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct OverTimeBy {
    /// Packets in each span.
    pub packets: Vec<u64>,
    /// Their bytes on the wire; empty if they were not asked for.
    pub bytes: Vec<u64>,
    /// Of each value, packets in each span, or bytes if these were asked for.
    pub values: Vec<Vec<u64>>,
    /// Packets that were read.
    pub packets_read: u64,
}

/// Marks that are counted before the search checks whether it is still wanted.
const MARKS_AT_ONCE: u32 = 1 << 12;
/// The class of packets that have none of the values.
const NONE: u8 = u8::MAX;

/// The spans that are counted in.
struct Spans {
    start_ns: u64,
    span_ns: u64,
    is_bytes: bool,
    found: OverTimeBy,
}

impl Spans {
    fn slot(&self, time_ns: u64) -> Option<u64> {
        time_ns.checked_sub(self.start_ns).map(|since| since / self.span_ns)
    }

    fn add(&mut self, slot: Option<u64>, class: u8, len_bytes: u64) {
        let Some(slot) = slot.and_then(|slot| usize::try_from(slot).ok()) else { return };
        let Some(packets) = self.found.packets.get_mut(slot) else { return };
        *packets += 1;
        if let Some(bytes) = self.found.bytes.get_mut(slot) {
            *bytes += len_bytes;
        }
        let values = self.found.values.get_mut(usize::from(class));
        if let Some(count) = values.and_then(|counts| counts.get_mut(slot)) {
            *count += if self.is_bytes { len_bytes } else { 1 };
        }
    }
}

impl Answers {
    /// How many of the packets that [`Search::rows`] or [`Search::records`] has found are in each
    /// of `len` spans, by value; with their bytes on the wire, if `is_bytes`.
    ///
    /// What cannot be read is left out and becomes a [`Gap`](crate::archive::Gap).
    ///
    /// [`Search::rows`]: super::Search::rows
    /// [`Search::records`]: super::Search::records
    pub fn over_time_by(
        &mut self,
        stack: Option<Stack<'_>>,
        is_bytes: bool,
        (start_ns, span_ns, len): (u64, u64, usize),
    ) -> Result<OverTimeBy, SearchError> {
        self.rows_to_records();
        let values = stack.map_or(0, |stack| stack.values.len().min(usize::from(NONE)));
        let found = OverTimeBy {
            packets: vec![0; len],
            bytes: vec![0; if is_bytes { len } else { 0 }],
            values: vec![vec![0; len]; values],
            packets_read: 0,
        };
        let mut spans = Spans { start_ns, span_ns: span_ns.max(1), is_bytes, found };
        let control = self.control.clone();
        let read = self.each_found(&mut |segment, answer| {
            count(segment, answer, stack, &control, &mut spans)
        })?;
        Ok(OverTimeBy { packets_read: read, ..spans.found })
    }
}

fn count(
    segment: &Arc<Segment>,
    answer: &Answer,
    stack: Option<Stack<'_>>,
    control: &Control,
    spans: &mut Spans,
) -> Result<(u64, UnreadPackets), ArchiveError> {
    // A question that is typed is given up at the next key.
    let go_on = || match control.is_cancelled() {
        true => Err(ArchiveError::Interrupted),
        false => Ok(()),
    };
    let damaged = |error| ArchiveError::index(segment.path())(error);
    let columns = segment.columns();
    let knows_field = stack.is_none_or(|s| s.name.parts.iter().all(|p| columns.knows(p.field)));
    let knows_length = !spans.is_bytes || columns.knows(Field::FrameLen);
    let marks = segment.index().marks().map_err(damaged)?;
    let Some(marks) = marks.filter(|_| knows_field && knows_length) else {
        return read(segment, &answer.records, stack, spans);
    };
    let classes = match stack {
        Some(stack) => classes(segment, stack).map_err(damaged)?,
        None => Vec::new(),
    };
    go_on()?;
    let lengths = if spans.is_bytes { lengths(segment).map_err(damaged)? } else { Vec::new() };
    let mut unsure = Vec::new();
    let mut rest = answer.records.as_slice();
    while let Some(&first) = rest.first() {
        let mark = first / MARK_RECORDS;
        if mark.is_multiple_of(MARKS_AT_ONCE) {
            go_on()?;
        }
        let len = rest.iter().take_while(|&&record| record / MARK_RECORDS == mark).count();
        let (now, later) = rest.split_at(len);
        rest = later;
        let times = marks.get(mark).map_err(damaged)?;
        let slot = spans.slot(times.time_min);
        if slot != spans.slot(times.time_max) {
            unsure.extend_from_slice(now);
            continue;
        }
        for &record in now {
            let class = classes.get(record as usize).copied().unwrap_or(NONE);
            let bytes = lengths.get(record as usize).copied().unwrap_or(0);
            spans.add(slot, class, bytes.into());
        }
    }
    read(segment, &unsure, stack, spans)
}

/// The class of every record of a segment.
fn classes(segment: &Segment, stack: Stack<'_>) -> Result<Vec<u8>, IndexError> {
    let columns = segment.columns();
    let planner = Planner::new(columns, Dialect::Network);
    let mut classes = vec![NONE; columns.rows() as usize];
    // What a packet has first counts.
    for part in stack.name.parts.iter().rev() {
        let wanted = wanted(segment, part, stack.values);
        let mut own = vec![NONE; classes.len()];
        let mut set = |class: u8, first: u32, last: u32| {
            if let Some(rows) = own.get_mut(first as usize..=last as usize) {
                rows.fill(class);
            }
        };
        match columns.read(part.field)? {
            Some(column) => {
                let mut before = (u128::MAX, NONE);
                column.for_each_run(&mut |value, first, last| {
                    if value != before.0 {
                        before = (value, wanted(value));
                    }
                    if before.1 != NONE {
                        set(before.1, first, last);
                    }
                })?;
            }
            None => set(wanted(0), 0, columns.rows().saturating_sub(1)),
        }
        for (first, last) in runs(presence_rows(&planner, part.presence)?, columns.rows()) {
            let rows = first as usize..=last as usize;
            let Some((own, rows)) = own.get(rows.clone()).zip(classes.get_mut(rows)) else {
                continue;
            };
            for (row, &class) in rows.iter_mut().zip(own) {
                if class != NONE {
                    *row = class;
                }
            }
        }
    }
    by_record(segment, &classes, NONE)
}

/// Finds the class of a number of a field.
fn wanted<'a>(
    segment: &'a Segment,
    part: &'a Part,
    values: &'a [Value],
) -> impl Fn(u128) -> u8 + 'a {
    let mut known: HashMap<&Value, u8> = HashMap::new();
    for (value, class) in values.iter().zip(0..NONE) {
        known.entry(value).or_insert(class);
    }
    move |number| {
        let value = Value::of(segment, Shown(part.kind, number));
        known.get(&value).copied().unwrap_or(NONE)
    }
}

/// The length on the wire of every record of a segment.
fn lengths(segment: &Segment) -> Result<Vec<u32>, IndexError> {
    let columns = segment.columns();
    let mut lengths = vec![0_u32; columns.rows() as usize];
    if let Some(column) = columns.read(Field::FrameLen)? {
        column.for_each_run(&mut |value, first, last| {
            if let Some(rows) = lengths.get_mut(first as usize..=last as usize) {
                rows.fill(u32::try_from(value).unwrap_or(u32::MAX));
            }
        })?;
    }
    by_record(segment, &lengths, 0)
}

/// What rows have, in the order of records.
fn by_record<T: Copy>(segment: &Segment, rows: &[T], none: T) -> Result<Vec<T>, IndexError> {
    let Some(row_map) = segment.index().row_map()? else { return Ok(rows.to_vec()) };
    let mut records = vec![none; rows.len()];
    for (value, record) in rows.iter().zip(row_map.iter()) {
        if let Some(place) = records.get_mut(record? as usize) {
            *place = *value;
        }
    }
    Ok(records)
}

/// Counts packets that have to be read.
fn read(
    segment: &Segment,
    records: &[u32],
    stack: Option<Stack<'_>>,
    spans: &mut Spans,
) -> Result<(u64, UnreadPackets), ArchiveError> {
    if records.is_empty() {
        return Ok((0, UnreadPackets::default()));
    }
    let parts: Vec<_> = stack.map_or_else(Vec::new, |stack| {
        let parts = stack.name.parts.iter();
        parts.map(|part| (part, wanted(segment, part, stack.values))).collect()
    });
    let mut headers = Headers::default();
    let mut each = |_: u32, record: &Record<'_>| {
        decode(record.link, record.swapped, record.data, &mut headers);
        let packet = Packet::new(record, &headers);
        let has = |part: &Part| part.presence.holds(&packet);
        let mut classes = parts.iter().filter(|(part, _)| has(part));
        let class = classes.find_map(|(part, class)| {
            Some(class(part.field.value(&packet))).filter(|&class| class != NONE)
        });
        let slot = spans.slot(record.time_ns);
        spans.add(slot, class.unwrap_or(NONE), record.wire_len.into());
        Ok(true)
    };
    let unread = segment.packets()?.for_each(records.iter().copied(), &mut each)?;
    Ok((records.len() as u64, unread))
}
