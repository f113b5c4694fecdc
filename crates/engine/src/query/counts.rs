//! Counting by field and by time, from the index.

use std::collections::HashMap;

use tapdex_bitmap::Chunks;

use crate::archive::{ArchiveError, Segment, UnreadPackets, names};
use crate::index::MARK_RECORDS;

/// How many packets have each value of a field.
///
/// Rows of one value that follow each other, as in flow order most do, are counted at once.
pub fn count_values(
    segment: &Segment,
    field: &str,
    rows: Option<&[u32]>,
    counts: &mut HashMap<u128, u64>,
) -> Result<(), ArchiveError> {
    let damaged = |error| ArchiveError::index(segment.path())(error);
    let index = segment.index();
    let rows_len = index.rows() as usize;
    let mut values =
        vec![0_u128; if rows.is_none_or(|rows| !rows.is_empty()) { rows_len } else { 0 }];
    if values.is_empty() {
        return Ok(());
    }
    if let Some(found) = index.find_field(field) {
        let mut after = found.field().bits();
        for column in found.columns() {
            let column = column.map_err(damaged)?;
            after -= column.width().bits();
            for (i, key) in column.keys().enumerate().filter(|&(_, key)| key != 0) {
                let digit = u128::from(key) << after;
                let bitmap = column.bitmap(i).map_err(damaged)?;
                let mut chunks = bitmap.chunks();
                let mut from = 0;
                while let Some(key) = chunks.seek(from) {
                    let base = (key as usize) << 16;
                    chunks.load().for_each_run(|first, last| {
                        let run = base + first as usize..=base + last as usize;
                        values[run].iter_mut().for_each(|value| *value |= digit);
                    });
                    from = key + 1;
                }
            }
        }
    }
    let mut add = |value: u128, count: u64| *counts.entry(value).or_default() += count;
    let mut run: Option<(u128, u64)> = None;
    let mut take = |value: u128| match &mut run {
        Some((last, count)) if *last == value => *count += 1,
        _ => {
            if let Some((value, count)) = run.replace((value, 1)) {
                add(value, count);
            }
        }
    };
    match rows {
        None => values.iter().for_each(|&value| take(value)),
        Some(rows) => rows.iter().for_each(|&row| take(values[row as usize])),
    }
    if let Some((value, count)) = run {
        add(value, count);
    }
    Ok(())
}

/// Whether a segment can have a field of this name.
pub fn is_field(name: &str) -> bool {
    name != names::LENGTH && crate::archive::field_names().any(|field| field == name)
}

/// How many of some packets fall into each of a number of equal spans of time.
///
/// Marks tell the times of all their packets at once where they fall into one span; packets are
/// read only where they do not. How many were read, and those that are not what was indexed.
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
