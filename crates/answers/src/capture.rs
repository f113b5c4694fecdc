//! Packets as a capture: with their interfaces, the question, and statistics.

use std::collections::HashMap;
use std::io::Write;

use tapdex_engine::archive::{ArchiveError, Cause, Column, Gap, Segment};
use tapdex_engine::capture::blocks::Statistics;
use tapdex_engine::capture::{CaptureError, CaptureWriter, FileFormat, Interface, Layout, Record};
use tapdex_engine::fields::Field;
use tapdex_engine::packet::LinkType;
use tapdex_engine::query::filter::{Filter, FilterError};
use tapdex_engine::query::{Found, Fresh, Query, count_values, rows_of};
use tapdex_engine::time::{TimeRange, format_time};

/// Why packets could not be written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExtractError {
    /// The target failed, or the format has no room for a packet.
    #[error(transparent)]
    Capture(#[from] CaptureError),
    /// A pcap file has room for one link type only. Write pcapng.
    #[error(
        "a pcap file has one link type, and packets of {first} and of {other} match; -F pcapng \
         has room for both"
    )]
    TwoLinks {
        /// The link type of the packets so far.
        first: LinkType,
        /// That of the next one.
        other: LinkType,
    },
    /// The filter of all packets was not understood; it is a fault of ours.
    #[error(transparent)]
    Filter(#[from] FilterError),
}

/// When to stop.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Limits {
    /// The most packets.
    pub packets: Option<u64>,
    /// The most bytes of packets.
    pub bytes: Option<u64>,
}

/// The question, for whoever finds the capture.
pub fn comment(query: &Query, whole_conversations: bool) -> String {
    const TEXT_MAX: usize = 4_000;
    let mut text: String = query.text().chars().take(TEXT_MAX).collect();
    match query.text().len() {
        0 => text.push_str("all packets"),
        len if len > text.len() => text.push_str(&format!(" ... ({len} bytes)")),
        _ => {}
    }
    let mut comment = format!("filter: {text}");
    let TimeRange { from_ns, to_ns } = query.times();
    if from_ns > 0 {
        comment.push_str(&format!("; from {}", format_time(from_ns)));
    }
    if let Some(to) = to_ns {
        comment.push_str(&format!("; to {}", format_time(to)));
    }
    if whole_conversations {
        comment.push_str("; whole conversations");
    }
    comment
}

/// What the header of a pcap file has to allow for: the finest clock and the longest frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    ticks: u64,
    snaplen: u32,
}

impl Header {
    /// For packets of interfaces that are not known yet.
    pub const ANY: Self = Self { ticks: 1_000_000_000, snaplen: 0 };

    /// For packets of these segments.
    pub fn of<'a>(segments: impl Iterator<Item = &'a Segment>) -> Self {
        let (mut ticks, mut snaplen) = (0, Some(0));
        for interface in segments.flat_map(|segment| &segment.note().layout.interfaces) {
            ticks = interface.ticks.max(ticks);
            snaplen = match (snaplen, interface.snaplen) {
                (None, _) | (_, 0) => None,
                (Some(most), snaplen) => Some(snaplen.max(most)),
            };
        }
        Self { ticks, snaplen: snaplen.unwrap_or(0) }
    }
}

/// A capture that packets are written to.
#[derive(Debug)]
pub struct Extract<W: Write> {
    writer: CaptureWriter<W>,
    format: FileFormat,
    header: Header,
    limits: Limits,
    /// The interfaces that packets came from; the index is the number in the file.
    interfaces: Vec<Interface>,
    /// The same, by what they are.
    numbers: HashMap<Interface, u32>,
    /// Packets of each.
    written: Vec<u64>,
    /// Numbers in the file of each segment's interfaces, once they are known.
    of_segments: Vec<Vec<Option<u32>>>,
    packets: u64,
    /// On the wire.
    bytes: u64,
    captured: u64,
    stopped: bool,
}

impl<W: Write> Extract<W> {
    /// Starts a capture with a comment, if its format has room for one.
    pub fn new(
        target: W,
        format: FileFormat,
        header: Header,
        comment: &str,
        limits: Limits,
    ) -> Result<Self, ExtractError> {
        Ok(Self {
            writer: CaptureWriter::new(target, format, &[], comment)?,
            format,
            header,
            limits,
            interfaces: Vec::new(),
            numbers: HashMap::new(),
            written: Vec::new(),
            of_segments: Vec::new(),
            packets: 0,
            bytes: 0,
            captured: 0,
            stopped: false,
        })
    }

    /// Writes a packet of a search; returns whether there was room within the limits.
    pub fn found(&mut self, packet: &Found<'_>) -> Result<bool, ExtractError> {
        let layout = &packet.segment.note().layout;
        let source = packet.source;
        self.of_segments.resize(self.of_segments.len().max(source + 1), Vec::new());
        let of_segment = &mut self.of_segments[source];
        of_segment.resize(layout.interfaces.len(), None);
        let place = packet.record.interface as usize;
        let known = of_segment.get(place).copied().flatten();
        let Some(number) = self.write(layout, &packet.record, known)? else { return Ok(false) };
        if let Some(known) = self.of_segments[source].get_mut(place) {
            *known = Some(number);
        }
        Ok(true)
    }

    /// Writes a packet that was just recorded; returns whether there was room within the limits.
    pub fn fresh(&mut self, fresh: &Fresh<'_>) -> Result<bool, ExtractError> {
        Ok(self.write(fresh.layout, &fresh.record, None)?.is_some())
    }

    /// Writes a packet whose capture has these interfaces; returns whether there was room.
    pub fn record(&mut self, layout: &Layout, record: &Record<'_>) -> Result<bool, ExtractError> {
        Ok(self.write(layout, record, None)?.is_some())
    }

    /// Writes what is still in a buffer.
    pub fn flush(&mut self) -> std::io::Result<()> {
        self.writer.flush()
    }

    /// Packets so far.
    pub fn packets(&self) -> u64 {
        self.packets
    }

    /// Their bytes on the wire.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Whether a limit was reached.
    pub fn is_stopped(&self) -> bool {
        self.stopped
    }

    /// Readers expect an interface, even if there are no packets: then that of these segments, if
    /// they have one.
    pub fn ensure_interface<'a>(
        &mut self,
        mut segments: impl Iterator<Item = &'a Segment>,
    ) -> Result<(), ExtractError> {
        if self.interfaces.is_empty() {
            let interface = segments.next().and_then(|s| s.note().layout.interfaces.first());
            let interface = interface.map_or(Interface::new(1, 1_000_000_000), Interface::clone);
            self.writer.add_interface(&interface)?;
            self.interfaces.push(interface);
            self.written.push(0);
        }
        Ok(())
    }

    /// Writes how many packets the archive has from each interface and from the requested times,
    /// matching or not, and how many were lost then. It is not known which interface lost them.
    ///
    /// A pcap file has no room for that.
    pub fn write_statistics<'a>(
        &mut self,
        query: &Query,
        segments: impl Iterator<Item = &'a Segment>,
        gaps: &[Gap],
    ) -> Result<(), ExtractError> {
        if self.format == FileFormat::Pcap {
            return Ok(());
        }
        let TimeRange { from_ns: from, to_ns: to } = query.times();
        let all = Query::new(Filter::parse("", 0)?, query.times());
        let mut counts =
            vec![Statistics { start_ns: u64::MAX, ..Default::default() }; self.interfaces.len()];
        let mut places = HashMap::new();
        for (place, interface) in self.interfaces.iter().enumerate() {
            places.entry(same(interface)).or_insert(place);
        }
        for segment in segments {
            let note = segment.note();
            // Damage is reported where packets are read.
            let received = received(segment, &all).unwrap_or_default();
            for (n, interface) in (0_u128..).zip(&note.layout.interfaces) {
                let place = places.get(&same(interface));
                let Some(counts) = place.and_then(|&place| counts.get_mut(place)) else { continue };
                counts.received += received.get(&n).copied().unwrap_or(0);
                counts.start_ns = counts.start_ns.min(note.time_min.max(from));
                let last = to.map_or(note.time_max, |to| note.time_max.min(to.saturating_sub(1)));
                counts.end_ns = counts.end_ns.max(last);
            }
        }
        if let Some(first) = counts.first_mut() {
            for gap in gaps.iter().filter(|gap| gap.cause == Cause::Lost) {
                let lost = gap.packets.unwrap_or(0);
                first.lost_by_kernel = first.lost_by_kernel.saturating_add(lost);
                first.received = first.received.saturating_add(lost);
                first.start_ns = first.start_ns.min(gap.from_ns);
                first.end_ns = first.end_ns.max(gap.to_ns);
            }
        }
        for ((number, mut counts), written) in (0..).zip(counts).zip(&self.written) {
            if counts.end_ns == 0 {
                // There is nothing from these times.
                continue;
            }
            counts.delivered = *written;
            counts.start_ns = counts.start_ns.min(counts.end_ns);
            self.writer.statistics(number, &counts)?;
        }
        Ok(())
    }

    /// Completes the capture and returns the target.
    pub fn finish(self) -> std::io::Result<W> {
        self.writer.finish()
    }

    /// Writes a packet; returns the number of its interface in the file, or `None` if it is beyond
    /// the limits.
    fn write(
        &mut self,
        layout: &Layout,
        record: &Record<'_>,
        known: Option<u32>,
    ) -> Result<Option<u32>, ExtractError> {
        let captured = self.captured.saturating_add(record.data.len() as u64);
        self.stopped = self.packets == self.limits.packets.unwrap_or(u64::MAX)
            || captured > self.limits.bytes.unwrap_or(u64::MAX);
        if self.stopped {
            return Ok(None);
        }
        let number = match known {
            Some(number) => number,
            None => self.interface(layout, record)?,
        };
        self.writer.packet(number, record.time_ns, record.wire_len, &record.data())?;
        if let Some(written) = self.written.get_mut(number as usize) {
            *written += 1;
        }
        self.packets += 1;
        self.bytes += u64::from(record.wire_len);
        self.captured = captured;
        Ok(Some(number))
    }

    /// The number of a packet's interface in the file.
    fn interface(&mut self, layout: &Layout, record: &Record<'_>) -> Result<u32, ExtractError> {
        let there = layout.interfaces.get(record.interface as usize);
        let mut interface = there.map_or(Interface::new(record.link.0, 1), Interface::clone);
        (interface.ticks, interface.offset_s) = (1_000_000_000, 0);
        if self.format == FileFormat::Pcap {
            (interface.ticks, interface.snaplen) = (self.header.ticks, self.header.snaplen);
            (interface.name, interface.description) = (String::new(), String::new());
            if let Some(first) = self.interfaces.first().filter(|i| i.link != interface.link) {
                let [first, other] = [first.link, interface.link].map(LinkType);
                return Err(ExtractError::TwoLinks { first, other });
            }
        }
        if let Some(&number) = self.numbers.get(&interface) {
            return Ok(number);
        }
        let number = self.writer.add_interface(&interface)?;
        self.numbers.insert(interface.clone(), number);
        self.interfaces.push(interface);
        self.written.push(0);
        Ok(number)
    }
}

/// What an interface of the new file has in common with one of the archive; their clocks may
/// differ.
fn same(interface: &Interface) -> (u16, u32, &str, &str) {
    let Interface { link, snaplen, name, description, .. } = interface;
    (*link, *snaplen, name, description)
}

/// How many packets a segment has from each of its interfaces, of those that match.
fn received(segment: &Segment, query: &Query) -> Result<HashMap<u128, u64>, ArchiveError> {
    let (note, times) = (segment.note(), query.times());
    let mut counts = HashMap::new();
    if note.layout.interfaces.len() == 1 {
        counts.insert(0, query.count(segment)?.count);
        return Ok(counts);
    }
    let is_inside = times.contains(note.time_min) && times.contains(note.time_max);
    if is_inside && segment.columns().get(Field::Interface) != Column::Unknown {
        count_values(segment, Field::Interface, None, &mut counts)?;
        return Ok(counts);
    }
    let records = query.records(segment)?.records;
    let rows = rows_of(segment, &records)?;
    count_values(segment, Field::Interface, rows.as_deref(), &mut counts)?;
    Ok(counts)
}
