//! Looking fields up in the columns of a segment.

use std::borrow::Cow;
use std::ops::{Range, RangeInclusive};
use std::sync::Arc;

use tapdex_bitmap::{BitSet, Chunks, RunSet, union};

use super::super::lookup::Rows;
use super::super::reader::Index;
use super::bits::Reader;
use super::conversations::{Conversations, Members, Within};
use super::dictionary::Dictionary;
use super::flows::{Flows, for_each_flow};
use super::postings::{self, Form, Postings, Sorted};
use super::schema::{FlowColumn, Space};
use super::section::Part;
use crate::error::IndexError;

/// Rows that a look-up found.
pub enum Found<'a> {
    /// No row.
    None,
    /// All of them.
    All,
    /// Some, with the bytes that were read for them: a measure of how many there are.
    Some(Rows<'a>, u64),
    /// All rows of some conversations, with the bytes that were read for them.
    Conversations(Conversations<'a>, u64),
}

/// Entries of a column for a byte of what is looked up, at most, where runs are used.
const BITS_FROM: u64 = 256;
/// The same for bitmaps, whose bytes stand for runs.
const BITS_FROM_BITMAPS: u64 = 32;
/// Values whose entries are kept as runs, at most.
const RUNS_VALUES: usize = 64;

/// Which rows an entry of a column stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Side {
    /// It is a row.
    Packet,
    /// All of a conversation.
    Conversation,
    /// The packets from that end.
    Source,
    /// The packets to that end.
    Destination,
    /// All packets of the conversation that has that end.
    Either,
}

/// Which of the two fields of a column of ends is meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    /// That of the source.
    Source,
    /// That of the destination.
    Destination,
}

/// A field of a segment of conversations.
#[derive(Debug, Clone, Copy)]
pub struct FlowField<'a> {
    index: &'a Index,
    column: &'a FlowColumn,
    part: Part<'a>,
    flows: Flows<'a>,
    dictionary: Dictionary<'a>,
    /// The first byte of each entry's value, if there are such.
    first_bytes: Part<'a>,
    postings: Postings<'a>,
    side: Side,
}

/// Ids of some values, given as ascending ranges that do not touch.
type Ids = Vec<Range<u32>>;

/// First and last of each of some runs, ascending.
pub(super) type Runs = Vec<(u32, u32)>;

/// Entries of a column.
enum Picked {
    /// As ascending runs.
    Runs(Vec<(u32, u32)>),
    Bits(BitSet),
}

/// Values of a range for which the first bytes are not looked at: there are few lists to read.
const FEW_VALUES: u32 = 64;

impl<'a> FlowField<'a> {
    /// The field of a name; `None` if the segment does not have it.
    pub(in super::super) fn find(index: &'a Index, name: &str) -> Result<Option<Self>, IndexError> {
        let Some(schema) = index.flow_schema() else { return Ok(None) };
        for (number, column) in schema.columns.iter().enumerate() {
            let Some(which) = column.names.iter().position(|other| other == name) else { continue };
            let end = if which == 0 { End::Source } else { End::Destination };
            return Self::open(index, number, end).map(Some);
        }
        Ok(None)
    }

    /// A field of a column: the source or the destination, if it is of ends.
    pub(super) fn open(index: &'a Index, number: usize, end: End) -> Result<Self, IndexError> {
        let (schema, flows) = index.flow_parts()?;
        let column = &schema.columns[number];
        let part = Part::all(index.flow_column_section(number));
        let entries = schema.entries(column.space);
        let head = part.read(0, part.len.min(30))?;
        let mut reader = Reader::new(head);
        let (values, len) = (reader.varint32(), reader.varint32());
        let first_bytes = if column.has_first_bytes() { reader.varint32() } else { Some(0) };
        let (Some(values), Some(len), Some(first_bytes)) = (values, len, first_bytes) else {
            return Err(part.bad("head", 0));
        };
        if values > entries || values == 0 && entries > 0 {
            return Err(part.bad("number of values", 0));
        }
        let dictionary = part.part(reader.at, len as usize)?;
        if dictionary.len < super::dictionary::least_len(values as usize, column.width) {
            return Err(part.bad("length of the dictionary", 0));
        }
        let start = reader.at + len as usize;
        let first_bytes = part.part(start, first_bytes as usize)?;
        let start = start + first_bytes.len;
        let side = match (column.space, end) {
            (Space::Packets, _) => Side::Packet,
            (Space::Conversations, _) => Side::Conversation,
            (Space::Ends, End::Source) => Side::Source,
            (Space::Ends, End::Destination) => Side::Destination,
        };
        Ok(Self {
            index,
            column,
            part,
            flows,
            dictionary: Dictionary { part: dictionary, len: values, width: column.width },
            first_bytes,
            postings: Postings {
                part: part.part(start, part.len - start)?,
                form: column.form,
                values,
                entries,
            },
            side,
        })
    }

    /// This field or its other end, if its column is of ends: the rows in which one of the two, or
    /// both, have a value.
    #[must_use]
    pub fn either_end(mut self) -> Option<Self> {
        let is_end = matches!(self.side, Side::Source | Side::Destination);
        self.side = Side::Either;
        is_end.then_some(self)
    }

    /// Its column.
    pub fn column(&self) -> &'a FlowColumn {
        self.column
    }

    /// The greatest value that fits into it.
    pub fn value_max(&self) -> u128 {
        u128::MAX >> (128 - 8 * self.column.width.min(16))
    }

    /// How many values occur in it.
    pub fn len(&self) -> u32 {
        self.dictionary.len
    }

    /// Whether there are none, since there are no packets.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The rows in which it has a value. Here and in the other look-ups, what is found only has to
    /// be right [`within`](Within) some conversations.
    pub fn equals(&self, value: u128, within: Option<&Within>) -> Result<Found<'a>, IndexError> {
        match self.dictionary.position(value)? {
            (id, true) => self.rows(std::iter::once(id..id + 1).collect(), within),
            (_, false) => Ok(Found::None),
        }
    }

    /// The rows in which it is in a range.
    pub fn range(
        &self,
        values: RangeInclusive<u128>,
        within: Option<&Within>,
    ) -> Result<Found<'a>, IndexError> {
        if values.is_empty() {
            return Ok(Found::None);
        }
        let (first, last) = (*values.start(), *values.end());
        let ids = self.dictionary.range(first, last)?;
        if self.first_bytes.len == 0 || ids.end - ids.start <= FEW_VALUES {
            return self.rows(vec![ids], within);
        }
        // Whole first bytes, and what is left at both ends of the range.
        let shift = 8 * u32::try_from(self.column.width - 1).unwrap_or(0);
        let whole = |value: u128| u32::try_from(value >> shift).unwrap_or(u32::MAX);
        let low = whole(first) + u32::from(u128::from(whole(first)) << shift != first);
        let high = match last.checked_add(1) {
            Some(end) => whole(end),
            None => 256,
        };
        if low >= high || ids.end - ids.start == self.len() {
            return self.rows(vec![ids], within);
        }
        let (bytes, first_bytes) = self.first_bytes()?;
        let place = |byte: u32| {
            let place = bytes.partition_point(|&other| u32::from(other) < byte);
            u32::try_from(place).unwrap_or(u32::MAX)
        };
        let mut weight = first_bytes.weight(place(low)..place(high))?;
        let bytes = std::iter::once(place(low)..place(high)).collect();
        let mut picked = picked(&first_bytes, bytes, weight)?;
        let below = self.dictionary.position(u128::from(low) << shift)?.0;
        let above = match u128::from(high).checked_shl(shift).filter(|_| high < 256) {
            Some(value) => self.dictionary.position(value)?.0,
            None => self.len(),
        };
        let edges = [ids.start..below.max(ids.start), above.min(ids.end)..ids.end];
        if edges.iter().any(|edge| !edge.is_empty()) {
            let mut bits = picked.into_bits(self.postings.entries);
            for edge in edges {
                weight += self.postings.weight(edge.clone())?;
                self.postings.add_to(edge, &mut bits)?;
            }
            picked = Picked::Bits(bits);
        }
        self.found(picked, weight)
    }

    /// The first bytes that occur, and which entries have them.
    fn first_bytes(&self) -> Result<(&'a [u8], Postings<'a>), IndexError> {
        let part = self.first_bytes;
        let bad = || part.bad("first bytes", 0);
        let &[form, parameter, last] = part.read(0, 3)? else { return Err(bad()) };
        let form = Form::from_code([form, parameter]).filter(|&form| form != Form::Packed);
        let start = 4 + usize::from(last);
        let (values, form) = (part.read(3, start - 3)?, form.ok_or_else(bad)?);
        let entries = self.postings.entries;
        let part = part.part(start, part.len - start)?;
        Ok((values, Postings { part, form, values: u32::from(last) + 1, entries }))
    }

    /// The rows in which the bits that `mask` selects have a value.
    pub fn masked(
        &self,
        value: u128,
        mask: u128,
        within: Option<&Within>,
    ) -> Result<Found<'a>, IndexError> {
        let mask = mask & self.value_max();
        let free = !mask & self.value_max();
        // Bits that are free below all that count: a range of values.
        if free & (free.wrapping_add(1)) == 0 {
            return self.range(value & mask..=value & mask | free, within);
        }
        self.matching(&mut |other| other & mask == value & mask, within)
    }

    /// The rows in which its value satisfies a condition.
    pub fn matching(
        &self,
        holds: &mut dyn FnMut(u128) -> bool,
        within: Option<&Within>,
    ) -> Result<Found<'a>, IndexError> {
        let mut ids = Ids::new();
        for (id, value) in (0..).zip(self.dictionary.values()?) {
            if !holds(value) {
                continue;
            }
            match ids.last_mut() {
                Some(last) if last.end == id => last.end += 1,
                _ => ids.push(id..id + 1),
            }
        }
        self.rows(ids, within)
    }

    /// Bytes that a look-up of a masked value reads; 0 if no value fits.
    pub fn weight(&self, value: u128, mask: u128) -> Result<u64, IndexError> {
        let mask = mask & self.value_max();
        let free = !mask & self.value_max();
        if free & (free.wrapping_add(1)) != 0 {
            return Ok(self.part.len as u64);
        }
        let ids = self.dictionary.range(value & mask, value & mask | free)?;
        if ids.is_empty() { Ok(0) } else { self.postings.weight(ids) }
    }

    /// The rows of some values.
    fn rows(&self, mut ids: Ids, within: Option<&Within>) -> Result<Found<'a>, IndexError> {
        ids.retain(|ids| !ids.is_empty());
        let count: u32 = ids.iter().map(|ids| ids.end - ids.start).sum();
        if count == 0 {
            return Ok(Found::None);
        }
        if count == self.len() {
            return Ok(Found::All);
        }
        let weight = weight_of(&self.postings, &ids)?;
        if let (Side::Packet, Form::Bitmaps(_)) = (self.side, self.column.form) {
            return Ok(Found::Some(self.bitmaps(&ids)?, weight));
        }
        let inside = within.map_or(Ok(None), |within| self.picked_within(&ids, within))?;
        let picked = match inside {
            Some(runs) => Picked::Runs(runs),
            None => picked(&self.postings, ids, weight)?,
        };
        self.found(picked, weight)
    }

    /// The entries of some values that belong to some conversations, if it saves time to look at no
    /// others.
    fn picked_within(&self, ids: &Ids, within: &Within) -> Result<Option<Runs>, IndexError> {
        let entries = || -> Result<Cow<'_, Runs>, IndexError> {
            Ok(match self.side {
                Side::Packet => Cow::Borrowed(within.rows(self.index)?),
                Side::Conversation => Cow::Borrowed(within.conversations()),
                Side::Source | Side::Destination | Side::Either => {
                    Cow::Owned(within.ends(self.flows.conversations))
                }
            })
        };
        match (&ids[..], self.column.form) {
            (_, Form::Packed) => self.postings.packed_entries_in(ids, &entries()?).map(Some),
            ([only], Form::Lists) if only.len() == 1 => {
                self.postings.bits_in(only.start, &entries()?)
            }
            _ => Ok(None),
        }
    }

    /// The rows of some entries.
    fn found(&self, picked: Picked, weight: u64) -> Result<Found<'a>, IndexError> {
        if self.side == Side::Packet {
            let rows: Rows<'a> = match picked {
                Picked::Bits(bits) => Box::new(bits),
                Picked::Runs(runs) if runs.is_empty() => return Ok(Found::None),
                Picked::Runs(runs) => Box::new(RunSet::new(runs)),
            };
            return Ok(Found::Some(rows, weight));
        }
        let found = self.conversations_of(picked);
        Ok(match found.is_empty() {
            true => Found::None,
            false => Found::Conversations(found, weight),
        })
    }

    /// The rows of some values of a column of packets that is bitmaps.
    fn bitmaps(&self, ids: &[Range<u32>]) -> Result<Rows<'a>, IndexError> {
        let (mut inside, mut outside) = (Vec::new(), Vec::new());
        let mut left_out = None;
        self.postings.bitmaps(0..self.len(), &mut |id, bitmap| {
            let is_wanted = ids.iter().any(|ids| ids.contains(&id));
            match bitmap {
                None => left_out = Some(is_wanted),
                Some(bitmap) if is_wanted => inside.push(bitmap.chunks()),
                Some(bitmap) => outside.push(bitmap.chunks()),
            }
        })?;
        Ok(match left_out {
            Some(true) => Box::new(union(outside).complement(self.postings.entries)),
            _ => Box::new(union(inside)),
        })
    }

    /// The conversations with such a first end, and those with such a second end.
    fn ends_of(&self, entries: Picked) -> [Members; 2] {
        let second = self.flows.conversations;
        match entries {
            Picked::Bits(bits) => halves(bits.into_words(), second).map(Members::Bits),
            Picked::Runs(runs) => {
                let (mut firsts, mut seconds) = (Vec::new(), Vec::new());
                for (first, last) in runs {
                    if first < second {
                        push_run(&mut firsts, first, last.min(second - 1) + 1);
                    }
                    if last >= second {
                        push_run(&mut seconds, first.max(second) - second, last - second + 1);
                    }
                }
                [firsts, seconds].map(Members::Runs)
            }
        }
    }

    /// The conversations, or flows of them, that have some entries.
    fn conversations_of(&self, entries: Picked) -> Conversations<'a> {
        let ends = match (self.side, entries) {
            (Side::Source | Side::Destination | Side::Either, entries) => self.ends_of(entries),
            (_, Picked::Bits(bits)) => {
                return Conversations::new(self.index, Members::Bits(bits.into_words()));
            }
            (_, Picked::Runs(runs)) => {
                return Conversations::new(self.index, Members::Runs(runs));
            }
        };
        let [first, second] = ends;
        match self.side {
            Side::Source => Conversations::of_flows(self.index, first, second),
            // The first flow is that to the second end.
            Side::Destination => Conversations::of_flows(self.index, second, first),
            _ => {
                let both = first.or(second, self.flows.conversations);
                Conversations::new(self.index, both)
            }
        }
    }

    /// How many of some rows have each value; of all rows if there is no list. Rows are ascending
    /// runs, given by their first and last.
    pub fn count(&self, rows: Option<&[(u32, u32)]>) -> Result<Vec<(u128, u64)>, IndexError> {
        let mut counts = vec![0_u64; self.len() as usize];
        let mut add = |id: u32, count: u32| {
            if let Some(sum) = counts.get_mut(id as usize) {
                *sum += u64::from(count);
            }
        };
        match rows {
            None if self.side == Side::Packet => {
                let mut each = |id, first, last| add(id, last - first + 1);
                self.postings.runs_of(0..self.len(), &mut each)?;
            }
            Some(rows) if self.side == Side::Packet => {
                if let Some(values) = self.of_rows()? {
                    values.ids_of(rows, &mut |_, ids| ids.iter().for_each(|&id| add(id, 1)))?;
                }
            }
            _ => {
                let (ids, starts) = (self.ids()?, self.flows.starts()?);
                let all = [(0, starts.last().map_or(0, |end| end.saturating_sub(1)))];
                for_each_flow(rows.unwrap_or(&all), &starts, &mut |flow, (first, last)| {
                    let id = ids.get(self.entry_of(flow) as usize).copied();
                    add(id.unwrap_or(u32::MAX), last - first + 1);
                });
            }
        }
        let values = self.dictionary.values()?.into_iter().zip(counts);
        Ok(values.filter(|&(_, count)| count > 0).collect())
    }

    /// The entry that says the value of the packets of a flow.
    fn entry_of(&self, flow: u32) -> u32 {
        let second = self.flows.conversations;
        match (self.side, flow % 2) {
            (Side::Packet | Side::Conversation | Side::Either, _) => flow / 2,
            (Side::Source, 0) | (Side::Destination, 1) => flow / 2,
            (Side::Source | Side::Destination, _) => second + flow / 2,
        }
    }

    /// The id of each entry's value.
    fn ids(&self) -> Result<Vec<u32>, IndexError> {
        let mut ids = vec![u32::MAX; self.postings.entries as usize];
        self.postings.runs_of(0..self.len(), &mut |id, first, last| {
            ids[first as usize..=last as usize].fill(id);
        })?;
        Ok(ids)
    }

    /// Its value in each flow; `None` if it is a field of packets.
    pub(crate) fn of_flows(&self) -> Result<Option<FlowValues<'a>>, IndexError> {
        if self.side == Side::Packet {
            return Ok(None);
        }
        let values = self.dictionary.values()?;
        // One value needs no ids.
        let ids = if values.len() > 1 { self.ids()? } else { Vec::new() };
        Ok(Some(FlowValues { field: *self, of_entries: Arc::new((ids, values)) }))
    }

    /// Its value in each row; `None` if it is a field of flows.
    pub(crate) fn of_rows(&self) -> Result<Option<RowValues<'a>>, IndexError> {
        if self.side != Side::Packet {
            return Ok(None);
        }
        // Packed ids are decoded where they are needed.
        let ids = if self.column.form == Form::Packed { Vec::new() } else { self.ids()? };
        Ok(Some(RowValues { field: *self, ids, values: self.dictionary.values()? }))
    }

    /// Passes every row's value to `each`, as runs of rows: the value, the first and the last row.
    pub fn for_each_run(&self, each: &mut dyn FnMut(u128, u32, u32)) -> Result<(), IndexError> {
        let (ids, values) = (self.ids()?, self.dictionary.values()?);
        let value = |entry: u32| {
            let id = ids.get(entry as usize).copied().unwrap_or(u32::MAX);
            values.get(id as usize).copied().unwrap_or(0)
        };
        if self.side == Side::Packet {
            (0..self.postings.entries).for_each(|row| each(value(row), row, row));
            return Ok(());
        }
        for (flow, pair) in (0..).zip(self.flows.starts()?.windows(2)) {
            if pair[0] < pair[1] {
                each(value(self.entry_of(flow)), pair[0], pair[1] - 1);
            }
        }
        Ok(())
    }

    /// Checks that each entry has one value, and that the bytes are those that the writer writes.
    pub(super) fn verify(&self) -> Result<(), IndexError> {
        let values = self.dictionary.values()?;
        let mut sorted = Sorted { values, starts: vec![0], entries: Vec::new() };
        let mut seen = vec![false; self.postings.entries as usize];
        let mut twice = false;
        let mut lists: Vec<Vec<u32>> = vec![Vec::new(); self.len() as usize];
        let mut left = self.postings.entries;
        self.postings.runs_of(0..self.len(), &mut |id, first, last| {
            for entry in first..=last {
                twice |= std::mem::replace(&mut seen[entry as usize], true);
                // Wrong in any case, and a few bytes may stand for many entries.
                if twice {
                    return;
                }
                left = left.saturating_sub(1);
                lists[id as usize].push(entry);
            }
        })?;
        if twice || left > 0 {
            return Err(IndexError::NotPartition { section: self.part.section.name() });
        }
        for list in lists {
            sorted.entries.extend(list);
            sorted.starts.push(u32::try_from(sorted.entries.len()).unwrap_or(u32::MAX));
        }
        if sorted.starts.windows(2).any(|pair| pair[0] == pair[1]) {
            return Err(self.part.bad("value without entries", 0));
        }
        let again = super::write::encode_column(&sorted, self.column);
        match again == self.part.bytes()? {
            true => Ok(()),
            false => Err(self.part.bad("form of the column", 0)),
        }
    }

    /// How many values occur, for [`Verified`](super::super::Verified).
    pub(super) fn values_len(&self) -> u64 {
        if matches!(self.column.form, postings::Form::Bitmaps(_)) { self.len().into() } else { 0 }
    }
}

/// The values of a field in each flow.
#[derive(Debug)]
pub(crate) struct FlowValues<'a> {
    field: FlowField<'a>,
    /// The id of each entry's value, none if there is only one value; and the values.
    of_entries: Arc<(Vec<u32>, Vec<u128>)>,
}

impl FlowValues<'_> {
    /// That of a flow.
    #[inline]
    pub(crate) fn get(&self, flow: u32) -> u128 {
        let (ids, values) = &*self.of_entries;
        let id = match values.len() {
            1 => 0,
            _ => ids.get(self.field.entry_of(flow) as usize).copied().unwrap_or(u32::MAX),
        };
        values.get(id as usize).copied().unwrap_or(0)
    }

    /// The values of the destination, if these are those of the source.
    pub(crate) fn of_destination(&self) -> Option<Self> {
        let field = FlowField { side: Side::Destination, ..self.field };
        let of_entries = Arc::clone(&self.of_entries);
        (self.field.side == Side::Source).then_some(Self { field, of_entries })
    }
}

/// The values of a field in each row.
#[derive(Debug)]
pub(crate) struct RowValues<'a> {
    field: FlowField<'a>,
    /// The id of each row's value; empty if they are packed.
    ids: Vec<u32>,
    /// The values that occur, by their ids.
    pub(crate) values: Vec<u128>,
}

impl RowValues<'_> {
    /// Passes the ids of the values of some rows to `each`: the place of the run, and the ids of
    /// some of its rows. Runs are first and last rows; they ascend and do not overlap.
    pub(crate) fn ids_of(
        &self,
        runs: &[(u32, u32)],
        each: &mut dyn FnMut(usize, &[u32]),
    ) -> Result<(), IndexError> {
        if self.field.column.form == Form::Packed {
            return self.field.postings.packed_runs(runs, each);
        }
        for (place, &(first, last)) in runs.iter().enumerate() {
            each(place, self.ids.get(first as usize..=last as usize).unwrap_or_default());
        }
        Ok(())
    }
}

/// Bytes that a look-up of some values reads.
fn weight_of(postings: &Postings<'_>, ids: &[Range<u32>]) -> Result<u64, IndexError> {
    let mut weight = 0;
    for ids in ids {
        weight += postings.weight(ids.clone())?;
    }
    Ok(weight)
}

/// The entries of some values, which take so many bytes.
fn picked(postings: &Postings<'_>, ids: Ids, weight: u64) -> Result<Picked, IndexError> {
    if postings.form == Form::Packed {
        return postings.packed_entries(&ids).map(Picked::Bits);
    }
    // Every entry has one value: whatever takes fewer bytes is read.
    let (total, entries) = (postings.part.len as u64, postings.entries);
    let is_inverse = weight > total - weight.min(total);
    let ids = if is_inverse { gaps(&ids, postings.values) } else { ids };
    let bytes = if is_inverse { weight_of(postings, &ids)? } else { weight };
    // Of many entries, a bit for each is faster than runs. The bytes of many values are no more
    // than an estimate.
    let count: usize = ids.iter().map(Range::len).sum();
    let from = if postings.form == Form::Lists { BITS_FROM } else { BITS_FROM_BITMAPS };
    let picked = if bytes > u64::from(entries) / from || count > RUNS_VALUES {
        let mut bits = BitSet::new(entries);
        for ids in ids {
            postings.add_to(ids, &mut bits)?;
        }
        Picked::Bits(bits)
    } else {
        let mut runs: Vec<(u32, u32)> = Vec::new();
        for ids in &ids {
            postings.runs_of(ids.clone(), &mut |_, first, last| match runs.last_mut() {
                Some(before) if before.1.checked_add(1) == Some(first) => before.1 = last,
                _ => runs.push((first, last)),
            })?;
        }
        // The entries of one value ascend.
        if !matches!(&ids[..], [only] if only.len() == 1) {
            runs.sort_unstable();
            runs = joined(runs);
        }
        Picked::Runs(runs)
    };
    Ok(if is_inverse { picked.inverse(entries) } else { picked })
}

/// Runs as a bit for each of so many numbers.
pub(super) fn bits_of_runs(runs: &[(u32, u32)], numbers: u32) -> BitSet {
    let mut bits = BitSet::new(numbers);
    runs.iter().for_each(|&(first, last)| bits.insert_run(first, last));
    bits
}

/// Appends the rows of a range, unless it is empty.
pub(super) fn push_run(runs: &mut Vec<(u32, u32)>, start: u32, end: u32) {
    if start >= end {
        return;
    }
    match runs.last_mut() {
        Some(last) if last.1.checked_add(1) == Some(start) => last.1 = end - 1,
        _ => runs.push((start, end - 1)),
    }
}

impl Picked {
    /// A bit for each of so many entries.
    fn into_bits(self, entries: u32) -> BitSet {
        match self {
            Self::Bits(bits) => bits,
            Self::Runs(runs) => bits_of_runs(&runs, entries),
        }
    }

    /// The entries that are not among these.
    fn inverse(self, entries: u32) -> Self {
        match self {
            Self::Runs(runs) => Self::Runs(inverse(&runs, entries)),
            Self::Bits(bits) => {
                let mut words = bits.into_words();
                invert(&mut words, entries);
                Self::Bits(BitSet::from_words(words))
            }
        }
    }
}

/// Inverts the bits of so many entries.
pub(super) fn invert(words: &mut [u64], entries: u32) {
    words.iter_mut().for_each(|word| *word = !*word);
    if let (Some(last), 1..) = (words.last_mut(), entries % 64) {
        *last &= u64::MAX >> (64 - entries % 64);
    }
}

/// The bits of the first `half` entries, and those of the others.
fn halves(mut words: Vec<u64>, half: u32) -> [Vec<u64>; 2] {
    let (start, shift) = (half as usize / 64, half % 64);
    let len = (half as usize).div_ceil(64);
    let word = |at: usize| words.get(at).copied().unwrap_or(0);
    let high = |at: usize| word(at + 1).checked_shl(64 - shift).unwrap_or(0);
    let second = (start..start + len).map(|at| word(at) >> shift | high(at)).collect();
    words.truncate(len);
    // The first word of the second half may be the last of the first.
    if let (Some(last), 1..) = (words.last_mut(), shift) {
        *last &= u64::MAX >> (64 - shift);
    }
    [words, second]
}

/// Two ascending lists of runs as one, ordered by where they start.
pub(super) fn merged(a: Vec<(u32, u32)>, b: Vec<(u32, u32)>) -> Vec<(u32, u32)> {
    if a.is_empty() || b.is_empty() {
        return if a.is_empty() { b } else { a };
    }
    let mut merged = Vec::with_capacity(a.len() + b.len());
    let (mut a, mut b) = (a.into_iter().peekable(), b.into_iter().peekable());
    loop {
        let next = match (a.peek(), b.peek()) {
            (Some(x), Some(y)) if x < y => a.next(),
            (Some(_), None) => a.next(),
            _ => b.next(),
        };
        let Some(run) = next else { return merged };
        merged.push(run);
    }
}

/// Runs that are ordered by where they start, with those joined that touch or overlap.
pub(super) fn joined(mut runs: Vec<(u32, u32)>) -> Vec<(u32, u32)> {
    runs.dedup_by(|next, before| {
        let joins = next.0 <= before.1.saturating_add(1);
        if joins {
            before.1 = before.1.max(next.1);
        }
        joins
    });
    runs
}

/// The entries that are in no run.
pub(super) fn inverse(runs: &[(u32, u32)], entries: u32) -> Vec<(u32, u32)> {
    let mut rest = Vec::with_capacity(runs.len() + 1);
    let mut next = 0;
    for &(first, last) in runs {
        push_run(&mut rest, next, first);
        next = last + 1;
    }
    push_run(&mut rest, next, entries);
    rest
}

/// The ids that are in no range.
fn gaps(ids: &[Range<u32>], len: u32) -> Ids {
    let mut rest = Ids::new();
    let mut next = 0;
    for ids in ids {
        rest.push(next..ids.start);
        next = ids.end;
    }
    rest.push(next..len);
    rest.retain(|ids| !ids.is_empty());
    rest
}
