//! Packets of several segments in the order of their times.
//!
//! Segments overlap in time, and inside a capture clocks jump. From each segment packets are read
//! in order of arrival, a mark's worth at a time, from whichever could have the earliest next one;
//! they wait until nothing that is still to be read can be earlier. What waits is kept whole up to
//! a bound, and beyond that by its place, to be read again.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::archive::{ArchiveError, Packets, Segment, UnreadPackets};
use crate::capture::Record;
use crate::index::MARK_RECORDS;

/// Bytes of packets that wait in memory; of what comes beyond that only the place is kept.
const WAITING_BYTES_MAX: usize = 64 << 20;

/// Packet files that are open at a time; there may be thousands that are read from in turn.
const OPEN_MAX: usize = 32;

/// A packet that waits.
#[derive(Debug)]
struct Waiting {
    time_ns: u64,
    source: u32,
    record: u32,
    /// All of it, or else it is read again. In a box: most often there are few of those, and there
    /// may be millions that are none.
    packet: Option<Box<Packet>>,
}

#[derive(Debug)]
struct Packet {
    offset: u64,
    interface: u32,
    wire_len: u32,
    data: Box<[u8]>,
}

impl Waiting {
    fn key(&self) -> (u64, u32, u32) {
        (self.time_ns, self.source, self.record)
    }
}

impl PartialEq for Waiting {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl Eq for Waiting {}

impl PartialOrd for Waiting {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Waiting {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.key().cmp(&other.key())
    }
}

/// A segment that packets are taken from.
struct Source<'a> {
    segment: &'a Segment,
    records: &'a [u32],
    /// Opened when a packet is needed, and closed when others need the room.
    packets: Option<Packets<'a>>,
    /// For those that were not kept.
    again: Option<Packets<'a>>,
    /// When it was read from last, in steps of the whole.
    used: u64,
    /// For each mark that has one of the records, from its first on; `None` until they are needed.
    times: Option<Vec<Times>>,
    /// The mark that is next.
    mark: usize,
}

/// The times of a mark.
struct Times {
    /// The earliest in it and in all after it.
    earliest: u64,
    latest: u64,
}

impl Source<'_> {
    /// Nothing that is still to be read is earlier.
    fn bound(&self) -> Option<u64> {
        self.records.first()?;
        let time_min = self.segment.note().time_min;
        Some(self.times_at(self.mark).map_or(time_min, |times| times.earliest))
    }

    fn times_at(&self, mark: usize) -> Option<&Times> {
        self.times.as_ref()?.get(mark)
    }

    /// Takes off the records of the mark that is next.
    fn next_mark(&mut self) -> &[u32] {
        let Some(first) = self.records.first() else { return &[] };
        let mark = first / MARK_RECORDS;
        let len = self.records.iter().take_while(|&&r| r / MARK_RECORDS == mark).count();
        let (now, later) = self.records.split_at(len);
        self.records = later;
        self.mark += 1;
        now
    }

    /// Whether all of the mark that is next comes before `others` and before all that comes after
    /// it here.
    fn is_before(&self, others: u64) -> bool {
        let Some(&Times { latest, .. }) = self.times_at(self.mark) else { return false };
        let next = self.times_at(self.mark + 1);
        latest < others && next.is_none_or(|next| latest <= next.earliest)
    }

    /// Does not keep a file open that nothing more is read from: there may be thousands.
    fn close_if_done(&mut self) {
        if self.records.is_empty() {
            self.packets = None;
        }
    }

    /// Files of it that are open.
    fn open_files(&self) -> usize {
        usize::from(self.packets.is_some()) + usize::from(self.again.is_some())
    }

    /// Looks up the times of its marks.
    fn read_times(&mut self) -> Result<(), ArchiveError> {
        let damaged = |error| ArchiveError::index(self.segment.path())(error);
        let mut all = Vec::new();
        if let Some(marks) = self.segment.index().marks().map_err(damaged)? {
            for records in self.records.chunk_by(|a, b| a / MARK_RECORDS == b / MARK_RECORDS) {
                let mark = marks.get(records[0] / MARK_RECORDS).map_err(damaged)?;
                all.push(Times { earliest: mark.time_min, latest: mark.time_max });
            }
            let mut earliest = u64::MAX;
            for times in all.iter_mut().rev() {
                earliest = earliest.min(times.earliest);
                times.earliest = earliest;
            }
        }
        self.times = Some(all);
        Ok(())
    }
}

/// Sees to it that a source has packets to read from, and closes the one that was not read from for
/// the longest time if there are too many; `again` is for those that were not kept.
fn open<'s, 'a>(
    sources: &'s mut [Source<'a>],
    i: usize,
    again: bool,
    step: u64,
) -> Result<&'s mut Source<'a>, ArchiveError> {
    sources[i].used = step;
    let is_open = |source: &Source<'_>| match again {
        true => source.again.is_some(),
        false => source.packets.is_some(),
    };
    if !is_open(&sources[i]) {
        while sources.iter().map(Source::open_files).sum::<usize>() >= OPEN_MAX {
            let others = sources.iter_mut().filter(|source| source.open_files() > 0);
            let Some(oldest) = others.min_by_key(|source| source.used) else { break };
            (oldest.packets, oldest.again) = (None, None);
        }
        let packets = Some(sources[i].segment.packets()?);
        match again {
            true => sources[i].again = packets,
            false => sources[i].packets = packets,
        }
    }
    Ok(&mut sources[i])
}

/// A packet of a segment.
#[derive(Debug, Clone, Copy)]
pub struct Found<'a> {
    /// Which of the segments.
    pub source: usize,
    /// Its number there, in order of arrival.
    pub number: u32,
    /// The packet.
    pub record: Record<'a>,
}

/// Hands packets of several segments, given by their numbers, to `each` in the order of their
/// times, until it says that it has enough. Packets of one time come in the order of the segments,
/// and then of their arrival.
///
/// A segment whose packets cannot be read is left out, from where that shows, and the error is
/// returned at the end. So are packets that are not what was indexed, and no others for them; one
/// that retention has removed in the meantime is left out silently.
pub fn in_time_order(
    answers: &[(&Segment, &[u32])],
    each: &mut dyn FnMut(Found<'_>) -> Result<bool, ArchiveError>,
) -> Result<Vec<ArchiveError>, ArchiveError> {
    let mut sources: Vec<Source<'_>> = answers
        .iter()
        .map(|&(segment, records)| Source {
            segment,
            records,
            packets: None,
            again: None,
            used: 0,
            times: None,
            mark: 0,
        })
        .collect();
    let mut failed = Vec::new();
    let mut waiting: BinaryHeap<Reverse<Waiting>> = BinaryHeap::new();
    let mut bytes = 0;
    let mut unread = UnreadPackets::default();
    let mut together = Together::default();
    for step in 1.. {
        let next = (0..).zip(&sources).filter_map(|(i, s)| Some((s.bound()?, i))).min();
        // What is earlier than all that is to come can go.
        while let Some(Reverse(first)) = waiting.peek()
            && next.is_none_or(|(bound, _)| first.time_ns < bound)
        {
            let Some(Reverse(first)) = waiting.pop() else { break };
            if let Some(packet) = &first.packet {
                bytes -= packet.data.len();
            }
            match hand_over(&mut sources, step, &first, &mut unread, each) {
                Ok(true) => {}
                Ok(false) => return Ok(told(failed, unread)),
                Err(Failure::Reading(error)) => {
                    blame(&sources[first.source as usize], error, &mut failed);
                }
                Err(Failure::Taking(error)) => return Err(error),
            }
        }
        let Some((_, i)) = next else { break };
        let bounds = (0..).zip(&sources).filter(|&(other, _)| other != i);
        let others = bounds.filter_map(|(_, source)| source.bound()).min().unwrap_or(u64::MAX);
        let first = waiting.peek().map_or(u64::MAX, |Reverse(first)| first.time_ns);
        if sources[i].times.is_none() {
            // Its bound is better known after that.
            if let Err(error) = sources[i].read_times() {
                sources[i].records = &[];
                blame(&sources[i], error, &mut failed);
            }
            continue;
        }
        let source = match open(&mut sources, i, false, step) {
            Ok(source) => source,
            Err(error) => {
                sources[i].records = &[];
                blame(&sources[i], error, &mut failed);
                continue;
            }
        };
        if source.is_before(others.min(first)) {
            match together.pass(source, i, &mut unread, each) {
                Ok(true) => {}
                Ok(false) => return Ok(told(failed, unread)),
                Err(Failure::Reading(error)) => {
                    source.records = &[];
                    blame(source, error, &mut failed);
                }
                Err(Failure::Taking(error)) => return Err(error),
            }
            source.close_if_done();
            continue;
        }
        match read_mark(source, i, &mut waiting, &mut bytes) {
            Ok(more) => unread.extend(more),
            Err(error) => {
                source.records = &[];
                blame(source, error, &mut failed);
            }
        }
        source.close_if_done();
    }
    Ok(told(failed, unread))
}

/// All that went wrong.
fn told(mut failed: Vec<ArchiveError>, unread: UnreadPackets) -> Vec<ArchiveError> {
    failed.extend(unread.into_errors());
    failed
}

/// Keeps an error, unless retention has removed the segment: then there is nothing to be missed.
fn blame(source: &Source<'_>, error: ArchiveError, failed: &mut Vec<ArchiveError>) {
    if !source.segment.is_gone() {
        failed.push(error);
    }
}

/// Reads the packets of one mark.
fn read_mark(
    source: &mut Source<'_>,
    i: usize,
    waiting: &mut BinaryHeap<Reverse<Waiting>>,
    bytes: &mut usize,
) -> Result<UnreadPackets, ArchiveError> {
    let now = source.next_mark().to_vec();
    let Some(packets) = &mut source.packets else {
        return Ok(UnreadPackets::default());
    };
    packets.for_each(now, &mut |record, found| {
        let kept = *bytes + found.data.len() <= WAITING_BYTES_MAX;
        let packet = kept.then(|| {
            Box::new(Packet {
                offset: found.offset,
                interface: found.interface,
                wire_len: found.wire_len,
                data: found.data.into(),
            })
        });
        *bytes += packet.as_ref().map_or(0, |packet| packet.data.len());
        let source = u32::try_from(i).unwrap_or(u32::MAX);
        waiting.push(Reverse(Waiting { time_ns: found.time_ns, source, record, packet }));
        Ok(true)
    })
}

/// The packets of a mark that nothing else comes between: put in order by themselves.
#[derive(Default)]
struct Together {
    bytes: Vec<u8>,
    /// The time, number, and all else but the bytes, and where those start.
    packets: Vec<(u64, u32, Record<'static>, usize, usize)>,
}

impl Together {
    fn pass(
        &mut self,
        source: &mut Source<'_>,
        i: usize,
        unread: &mut UnreadPackets,
        each: &mut dyn FnMut(Found<'_>) -> Result<bool, ArchiveError>,
    ) -> Result<bool, Failure> {
        self.bytes.clear();
        self.packets.clear();
        let now = source.next_mark().to_vec();
        let Some(packets) = &mut source.packets else {
            return Ok(true);
        };
        let read = packets.for_each(now, &mut |number, record| {
            let start = self.bytes.len();
            self.bytes.extend_from_slice(record.data);
            let rest = Record { data: &[], ..*record };
            self.packets.push((record.time_ns, number, rest, start, record.data.len()));
            Ok(true)
        });
        self.packets.sort_by_key(|&(time, number, ..)| (time, number));
        for &(_, number, rest, start, len) in &self.packets {
            let record = Record { data: &self.bytes[start..start + len], ..rest };
            if !each(Found { source: i, number, record }).map_err(Failure::Taking)? {
                return Ok(false);
            }
        }
        unread.extend(read.map_err(Failure::Reading)?);
        Ok(true)
    }
}

/// Why a packet did not arrive.
enum Failure {
    Reading(ArchiveError),
    Taking(ArchiveError),
}

fn hand_over(
    sources: &mut [Source<'_>],
    step: u64,
    waiting: &Waiting,
    unread: &mut UnreadPackets,
    each: &mut dyn FnMut(Found<'_>) -> Result<bool, ArchiveError>,
) -> Result<bool, Failure> {
    let i = waiting.source as usize;
    let (number, segment) = (waiting.record, sources[i].segment);
    if let Some(packet) = &waiting.packet {
        let link = segment.link(packet.interface);
        let (link, swapped) = link.unwrap_or((crate::packet::LinkType(u16::MAX), false));
        let record = Record {
            offset: packet.offset,
            time_ns: waiting.time_ns,
            interface: packet.interface,
            link,
            swapped,
            wire_len: packet.wire_len,
            data: &packet.data,
        };
        let found = Found { source: i, number, record };
        return each(found).map_err(Failure::Taking);
    }
    let source = open(sources, i, true, step).map_err(Failure::Reading)?;
    let Some(packets) = &mut source.again else { return Ok(true) };
    let mut outcome = Ok(true);
    let read = packets.for_each([number], &mut |number, record| {
        outcome = each(Found { source: i, number, record: *record });
        Ok(true)
    });
    unread.extend(read.map_err(Failure::Reading)?);
    outcome.map_err(Failure::Taking)
}
