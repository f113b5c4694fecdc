//! Packets of several segments in order of time, as a stream.
//!
//! Segments overlap in time, and inside a capture clocks jump. The stream reads from the segment
//! that could have the earliest next packet: a mark's worth of packets at a time, in order of
//! arrival. Packets wait until nothing that is still to be read can be earlier. Up to a limit they
//! wait in memory; beyond it only their place is kept, and they are read again.
//!
//! A segment is asked when the stream gets to its first packet, together with the ones after it. If
//! there is a limit, that is one segment at first, then twice as many each time: the first packets
//! come at once, and a reader that stops early saves the rest of the work. Without a limit it is
//! more from the start, so that all cores have work.

use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::Range;
use std::sync::Arc;

use super::answer::Wanted;
use super::control::Control;
use super::question::Query;
use super::search::{Answers, Search, SearchError, ask_all};
use crate::archive::{ArchiveError, Gap, Packets, Segment, UnreadPackets};
use crate::capture::Record;
use crate::index::MARK_RECORDS;
use crate::packet::LinkType;

/// Bytes of packets that wait in memory. Beyond that, only the place of a packet is kept.
const WAITING_BYTES_MAX: usize = 64 << 20;

/// The most packet files that are open at a time. Thousands may be read in turn.
const OPEN_MAX: usize = 32;

/// Segments that are asked together, at most.
const WAVE_MAX: usize = 64;

/// Segments that are asked first if all packets are wanted: enough for many cores.
const WAVE_ALL: usize = 16;

/// A packet that matches.
#[derive(Debug, Clone, Copy)]
pub struct Found<'a> {
    /// The segment that it is in.
    pub segment: &'a Segment,
    /// Which of the stream's segments that is, from 0.
    pub source: usize,
    /// Its number there, in order of arrival.
    pub number: u32,
    /// The packet.
    pub record: Record<'a>,
}

impl Found<'_> {
    /// Its number in its capture file, from 1.
    pub fn number_in_file(&self) -> u64 {
        let before = self.segment.note().source.records_before;
        before.saturating_add(u64::from(self.number)).saturating_add(1)
    }
}

/// Limits of what a stream holds.
#[derive(Debug, Clone, Copy)]
struct Bounds {
    waiting_bytes: usize,
    open_files: usize,
}

/// Packets that match, in order of time. Packets of the same time come in the order of their
/// segments, and then of their arrival.
///
/// If packets of a segment cannot be read, the stream goes on with the others, and
/// [`finish`](Self::finish) reports it.
#[derive(Debug)]
#[must_use = "finish() tells what is missing"]
pub struct PacketStream<'a> {
    /// `None` if all segments have answered.
    query: Option<&'a Query>,
    control: Control,
    /// How many packets are still wanted.
    left: u64,
    sources: Vec<SegmentCursor<'a>>,
    /// Sources that may have more packets, by the time of the earliest.
    bounds: BinaryHeap<Reverse<(u64, usize)>>,
    /// The first source that was not asked yet, and how many are asked next time.
    unasked: usize,
    wave: usize,
    waiting: BinaryHeap<Reverse<Waiting>>,
    waiting_bytes: usize,
    most: Bounds,
    /// Sources that have files open.
    open: Vec<usize>,
    batch: Batch,
    /// The bytes of the packet that was returned last, if it is not in the batch.
    current: Box<[u8]>,
    /// Counts steps, to find the file that was not read for the longest time.
    step: u64,
    unread: UnreadPackets,
    failed: Vec<ArchiveError>,
    /// Segments that retention has removed in the meantime.
    removed: Vec<Gap>,
    answers: Answers,
}

impl<'a> PacketStream<'a> {
    /// The packets of a search. Its segments are still to be asked.
    pub(super) fn asking(search: &'a Search<'_>) -> Self {
        search.control.set_segments(search.segments.len());
        let sources =
            search.segments.iter().map(|segment| SegmentCursor::new(segment, None)).collect();
        let left = search.limit.unwrap_or(u64::MAX);
        Self::new(Some(search.query), Answers::new(search), left, sources)
    }

    /// The packets of segments that have answered.
    pub(super) fn of_answers(answers: &'a Answers) -> Self {
        let sources =
            answers.found().map(|(segment, records)| SegmentCursor::new(segment, Some(records)));
        let sources = sources.collect();
        Self::new(None, answers.without_segments(), u64::MAX, sources)
    }

    fn new(
        query: Option<&'a Query>,
        answers: Answers,
        left: u64,
        sources: Vec<SegmentCursor<'a>>,
    ) -> Self {
        let bounds = (0..).zip(&sources).filter_map(|(i, s)| Some(Reverse((s.bound()?, i))));
        Self {
            query,
            control: answers.control.clone(),
            left,
            bounds: bounds.collect(),
            sources,
            unasked: 0,
            wave: if left == u64::MAX { WAVE_ALL } else { 1 },
            waiting: BinaryHeap::new(),
            waiting_bytes: 0,
            most: Bounds { waiting_bytes: WAITING_BYTES_MAX, open_files: OPEN_MAX },
            open: Vec::new(),
            batch: Batch::default(),
            current: Box::default(),
            step: 0,
            unread: UnreadPackets::default(),
            failed: Vec::new(),
            removed: Vec::new(),
            answers,
        }
    }

    /// Sets smaller limits, so that tests reach them.
    #[cfg(feature = "testing")]
    pub fn with_bounds(mut self, waiting_bytes: usize, open_files: usize) -> Self {
        self.most = Bounds { waiting_bytes, open_files };
        self
    }

    /// The next packet; `None` after the last one, or if the limit is reached.
    #[expect(clippy::should_implement_trait, reason = "the packet is lent, not given")]
    pub fn next(&mut self) -> Result<Option<Found<'_>>, SearchError> {
        if self.left == 0 {
            return Ok(None);
        }
        let Some(ready) = self.ready()? else { return Ok(None) };
        self.left -= 1;
        self.control.add_found();
        let Ready { source, number, rest, bytes } = ready;
        let data = match bytes {
            Some(range) => &self.batch.bytes[range],
            None => &self.current,
        };
        let record = Record { data, ..rest };
        Ok(Some(Found { segment: self.sources[source].segment, source, number, record }))
    }

    /// Whether more packets may match, after a limit or for a reader that stops early.
    pub fn may_have_more(&self) -> bool {
        let may_have_more = |source: &SegmentCursor<'_>| source.bound().is_some();
        self.batch.has_next() || !self.waiting.is_empty() || self.sources.iter().any(may_have_more)
    }

    /// The answers of a search, and what could not be read. If the stream was read to its end, all
    /// segments have answered. It is an error if the filter cannot be compiled for any link.
    ///
    /// A stream of [`Answers::packets`] has no answers of its own; see
    /// [`into_gaps`](Self::into_gaps).
    pub fn finish(mut self) -> Result<Answers, SearchError> {
        self.answers.add_failed(self.failed);
        self.answers.add_unread(self.unread);
        self.answers.gaps.extend(self.removed);
        self.answers.check_refused()?;
        Ok(self.answers)
    }

    /// What could not be read, for [`Answers::add_gaps`].
    pub fn into_gaps(self) -> Vec<Gap> {
        let failed = self.failed.into_iter().chain(self.unread.into_errors());
        failed.map(Gap::unknown).chain(self.removed).collect()
    }

    /// Works until a packet is ready.
    fn ready(&mut self) -> Result<Option<Ready>, SearchError> {
        loop {
            if self.control.is_cancelled() {
                return Err(SearchError::Cancelled);
            }
            if let Some(ready) = self.batch.next() {
                return Ok(Some(ready));
            }
            let bound = self.bounds.peek().map(|Reverse(bound)| *bound);
            // A packet before all that are still to come is ready. What is read later from the same
            // source has arrived later.
            if let Some(Reverse(first)) = self.waiting.peek()
                && bound.is_none_or(|bound| (first.time_ns, first.source as usize) <= bound)
            {
                match self.take_waiting() {
                    Some(ready) => return Ok(Some(ready)),
                    None => continue,
                }
            }
            let Some(Reverse((_, source))) = self.bounds.pop() else {
                // Segments without packets are asked, too: they may have to be reported.
                match self.query.is_some() && self.unasked < self.sources.len() {
                    true => self.ask_wave(self.sources.len() - 1)?,
                    false => return Ok(None),
                }
                continue;
            };
            if self.sources[source].bound().is_none() {
                continue;
            }
            self.step += 1;
            if let Err(error) = self.advance(source)? {
                self.give_up(source, error);
            }
            if let Some(bound) = self.sources[source].bound() {
                self.bounds.push(Reverse((bound, source)));
            }
        }
    }

    /// Does the next step for a source: asks it, looks up its times, or reads a mark's packets. The
    /// outer error ends the search; the inner one concerns only this source.
    fn advance(&mut self, i: usize) -> Result<Result<(), ArchiveError>, SearchError> {
        if self.sources[i].is_unasked {
            self.ask_wave(i)?;
            return Ok(Ok(()));
        }
        if self.sources[i].times.is_none() {
            // Its bound is better known after that.
            return Ok(self.sources[i].read_times());
        }
        if self.sources[i].is_undecided() {
            self.ask_rest(i)?;
            return Ok(Ok(()));
        }
        if let Err(error) = self.open(i, Use::First) {
            return Ok(Err(error));
        }
        let others = self.bounds.peek().map_or(u64::MAX, |Reverse((time, _))| *time);
        let first = self.waiting.peek().map_or(u64::MAX, |Reverse(first)| first.time_ns);
        let source = &mut self.sources[i];
        let read = match source.is_before(others.min(first)) {
            true => self.batch.fill(source, i),
            false => {
                let room = self.most.waiting_bytes;
                read_mark(source, i, &mut self.waiting, &mut self.waiting_bytes, room)
            }
        };
        if self.sources[i].rest().is_empty() {
            // There may be thousands.
            self.sources[i].packets = None;
            self.forget_closed();
        }
        Ok(read.map(|unread| self.unread.extend(unread)))
    }

    /// Asks some segments, starting with the one that the stream has reached.
    fn ask_wave(&mut self, i: usize) -> Result<(), SearchError> {
        // Segments are sorted by their first packet. Only segments without packets lie in between.
        let end = self.sources.len().min((self.unasked + self.wave).max(i + 1));
        let asked = self.unasked..end;
        self.unasked = end;
        self.wave = (2 * self.wave).min(WAVE_MAX);
        let Some(query) = self.query else { return Ok(()) };
        let wanted = match self.left {
            u64::MAX => Wanted::Records,
            left => Wanted::Earliest(left),
        };
        let segments: Vec<Arc<Segment>> =
            self.sources[asked.clone()].iter().map(|source| Arc::clone(source.segment)).collect();
        let answers = ask_all(query, &segments, wanted, &self.control);
        for (source, answer) in self.sources[asked].iter_mut().zip(answers) {
            source.is_unasked = false;
            let answer = answer.map(|mut answer| {
                source.records = Cow::Owned(std::mem::take(&mut answer.records));
                source.undecided_from_ns = answer.undecided_from_ns;
                answer
            });
            self.answers.add(source.segment, answer)?;
        }
        Ok(())
    }

    /// Asks a segment for the packets that were left undecided. The earliest ones were not enough:
    /// some of them could not be read.
    fn ask_rest(&mut self, i: usize) -> Result<(), SearchError> {
        let source = &mut self.sources[i];
        source.undecided_from_ns = None;
        let Some(query) = self.query else { return Ok(()) };
        match query.ask(source.segment, Wanted::Records, &self.control) {
            Ok(mut answer) => {
                let mut records = std::mem::take(&mut answer.records);
                let read = &source.records[..source.next];
                records.retain(|record| read.binary_search(record).is_err());
                source.set_records(records);
                self.answers.replace(source.segment, answer);
            }
            Err(error @ ArchiveError::Interrupted) => return Err(error.into()),
            Err(error) => self.give_up(i, error),
        }
        Ok(())
    }

    /// Takes the first packet that waits; `None` if it cannot be read again.
    fn take_waiting(&mut self) -> Option<Ready> {
        let Reverse(first) = self.waiting.pop()?;
        let (source, number) = (first.source as usize, first.record);
        if first.packet.is_none() && self.sources[source].is_broken {
            return None;
        }
        if let Some(packet) = first.packet {
            self.waiting_bytes -= packet.data.len();
            let link = self.sources[source].segment.link(packet.interface);
            let (link, swapped) = link.unwrap_or((LinkType(u16::MAX), false));
            let rest = Record {
                offset: packet.offset,
                time_ns: first.time_ns,
                interface: packet.interface,
                link,
                swapped,
                wire_len: packet.wire_len,
                data: &[],
            };
            self.current = packet.data;
            return Some(Ready { source, number, rest, bytes: None });
        }
        self.step += 1;
        match self.read_again(source, number) {
            Ok(rest) => rest.map(|rest| Ready { source, number, rest, bytes: None }),
            Err(error) => {
                self.give_up(source, error);
                None
            }
        }
    }

    fn read_again(
        &mut self,
        i: usize,
        number: u32,
    ) -> Result<Option<Record<'static>>, ArchiveError> {
        self.open(i, Use::Again)?;
        let Some(packets) = &mut self.sources[i].again else { return Ok(None) };
        let (mut rest, current) = (None, &mut self.current);
        let unread = packets.for_each([number], &mut |_, record| {
            *current = record.data.into();
            rest = Some(Record { data: &[], ..*record });
            Ok(true)
        })?;
        self.unread.extend(unread);
        Ok(rest)
    }

    /// Opens a source's packets, and closes those that were not read for the longest time if too
    /// many are open.
    fn open(&mut self, i: usize, how: Use) -> Result<(), ArchiveError> {
        self.sources[i].used = self.step;
        if self.sources[i].is_open(how) {
            return Ok(());
        }
        let open_files = |stream: &Self| -> usize {
            stream.open.iter().map(|&i| stream.sources[i].open_files()).sum()
        };
        while open_files(self) >= self.most.open_files {
            let oldest = self.open.iter().min_by_key(|&&i| self.sources[i].used);
            let Some(&oldest) = oldest else { break };
            (self.sources[oldest].packets, self.sources[oldest].again) = (None, None);
            self.forget_closed();
        }
        let segment: &'a Segment = self.sources[i].segment;
        let packets = Some(segment.packets()?);
        match how {
            Use::First => self.sources[i].packets = packets,
            Use::Again => self.sources[i].again = packets,
        }
        if !self.open.contains(&i) {
            self.open.push(i);
        }
        Ok(())
    }

    /// Takes sources without open files off the list.
    fn forget_closed(&mut self) {
        let sources = &self.sources;
        self.open.retain(|&i| sources[i].open_files() > 0);
    }

    /// Continues without a segment whose packets cannot be read.
    fn give_up(&mut self, i: usize, error: ArchiveError) {
        let source = &mut self.sources[i];
        source.set_records(Vec::new());
        source.undecided_from_ns = None;
        if !std::mem::replace(&mut source.is_broken, true) {
            match source.segment.is_gone() {
                true => self.removed.push(Gap::removed(source.segment)),
                false => self.failed.push(error),
            }
        }
    }
}

/// A packet that can be returned.
struct Ready {
    source: usize,
    number: u32,
    /// All of it but the bytes.
    rest: Record<'static>,
    /// Where the bytes are in the batch; `None` if they are the current ones.
    bytes: Option<Range<usize>>,
}

/// What a packet file is opened for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Use {
    /// To read on in order of arrival.
    First,
    /// To read what was not kept.
    Again,
}

/// A packet that waits.
#[derive(Debug)]
struct Waiting {
    time_ns: u64,
    source: u32,
    record: u32,
    /// The packet, or `None` if it is to be read again. Boxed: there may be millions of entries
    /// without a packet.
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
#[derive(Debug)]
struct SegmentCursor<'a> {
    segment: &'a Arc<Segment>,
    is_unasked: bool,
    /// From when on packets were not decided, if only the earliest were asked for.
    undecided_from_ns: Option<u64>,
    /// Its packets cannot be read.
    is_broken: bool,
    /// The records that are still to be read are those from `next` on.
    records: Cow<'a, [u32]>,
    next: usize,
    /// Opened when a packet is needed, and closed when too many files are open.
    packets: Option<Packets<'a>>,
    /// For packets that were not kept.
    again: Option<Packets<'a>>,
    /// The step in which it was last read from.
    used: u64,
    /// For each mark that has one of the records, from its first on; `None` until they are needed.
    times: Option<Vec<Times>>,
    /// The mark that is next.
    mark: usize,
}

/// The times of a mark.
#[derive(Debug)]
struct Times {
    /// The earliest in it and in all after it.
    earliest: u64,
    latest: u64,
}

impl<'a> SegmentCursor<'a> {
    /// A segment and the records that it has answered, if it was asked.
    fn new(segment: &'a Arc<Segment>, records: Option<&'a [u32]>) -> Self {
        Self {
            segment,
            is_unasked: records.is_none(),
            undecided_from_ns: None,
            is_broken: false,
            records: Cow::Borrowed(records.unwrap_or_default()),
            next: 0,
            packets: None,
            again: None,
            used: 0,
            times: None,
            mark: 0,
        }
    }

    fn rest(&self) -> &[u32] {
        self.records.get(self.next..).unwrap_or_default()
    }

    /// A lower bound of the times still to be read; `None` if nothing is left to read.
    fn bound(&self) -> Option<u64> {
        let note = self.segment.note();
        if self.is_unasked {
            return (note.records > 0).then_some(note.time_min);
        }
        self.known_from().into_iter().chain(self.undecided_from_ns).min()
    }

    /// The same for packets that are known to match.
    fn known_from(&self) -> Option<u64> {
        self.rest().first()?;
        let times = self.times_at(self.mark);
        Some(times.map_or(self.segment.note().time_min, |times| times.earliest))
    }

    /// Whether the next packet may be one that was not decided. These have arrived after those that
    /// were, so of packets of the same time they come later.
    fn is_undecided(&self) -> bool {
        let known = self.known_from();
        self.undecided_from_ns.is_some_and(|from| known.is_none_or(|known| known > from))
    }

    /// Starts over with other records.
    fn set_records(&mut self, records: Vec<u32>) {
        self.records = Cow::Owned(records);
        (self.next, self.mark, self.times) = (0, 0, None);
    }

    fn times_at(&self, mark: usize) -> Option<&Times> {
        self.times.as_ref()?.get(mark)
    }

    /// Takes the records of the next mark.
    fn next_mark(&mut self) -> Vec<u32> {
        let rest = self.rest();
        let Some(first) = rest.first() else { return Vec::new() };
        let mark = first / MARK_RECORDS;
        let len = rest.iter().take_while(|&&record| record / MARK_RECORDS == mark).count();
        let now = rest[..len].to_vec();
        self.next += len;
        self.mark += 1;
        now
    }

    /// Whether all packets of the next mark come before `others`, and before all later packets of
    /// this segment.
    fn is_before(&self, others: u64) -> bool {
        let Some(&Times { latest, .. }) = self.times_at(self.mark) else { return false };
        let next = self.times_at(self.mark + 1);
        let is_decided = self.undecided_from_ns.is_none_or(|undecided| latest <= undecided);
        is_decided && latest < others && next.is_none_or(|next| latest <= next.earliest)
    }

    fn is_open(&self, how: Use) -> bool {
        match how {
            Use::First => self.packets.is_some(),
            Use::Again => self.again.is_some(),
        }
    }

    fn open_files(&self) -> usize {
        usize::from(self.packets.is_some()) + usize::from(self.again.is_some())
    }

    /// Looks up the times of its marks.
    fn read_times(&mut self) -> Result<(), ArchiveError> {
        let damaged = |error| ArchiveError::index(self.segment.path())(error);
        let mut all = Vec::new();
        if let Some(marks) = self.segment.index().marks().map_err(damaged)? {
            for records in self.rest().chunk_by(|a, b| a / MARK_RECORDS == b / MARK_RECORDS) {
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

/// Reads the packets of one mark and lets them wait.
fn read_mark(
    source: &mut SegmentCursor<'_>,
    i: usize,
    waiting: &mut BinaryHeap<Reverse<Waiting>>,
    bytes: &mut usize,
    room: usize,
) -> Result<UnreadPackets, ArchiveError> {
    let now = source.next_mark();
    let Some(packets) = &mut source.packets else {
        return Ok(UnreadPackets::default());
    };
    packets.for_each(now, &mut |record, found| {
        let is_kept = *bytes + found.data.len() <= room;
        let packet = is_kept.then(|| {
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

/// The packets of a mark, in order of time, if no other packets come between them.
#[derive(Debug, Default)]
struct Batch {
    source: usize,
    bytes: Vec<u8>,
    packets: Vec<(u32, Record<'static>, Range<usize>)>,
    /// The packet that is next.
    next: usize,
}

impl Batch {
    fn fill(
        &mut self,
        source: &mut SegmentCursor<'_>,
        i: usize,
    ) -> Result<UnreadPackets, ArchiveError> {
        self.bytes.clear();
        self.packets.clear();
        (self.source, self.next) = (i, 0);
        let now = source.next_mark();
        let Some(packets) = &mut source.packets else {
            return Ok(UnreadPackets::default());
        };
        let read = packets.for_each(now, &mut |number, record| {
            let start = self.bytes.len();
            self.bytes.extend_from_slice(record.data);
            let rest = Record { data: &[], ..*record };
            self.packets.push((number, rest, start..self.bytes.len()));
            Ok(true)
        });
        self.packets.sort_by_key(|(number, rest, _)| (rest.time_ns, *number));
        read
    }

    fn has_next(&self) -> bool {
        self.next < self.packets.len()
    }

    fn next(&mut self) -> Option<Ready> {
        let (number, rest, bytes) = self.packets.get(self.next)?;
        self.next += 1;
        let (number, rest, bytes) = (*number, *rest, Some(bytes.clone()));
        Some(Ready { source: self.source, number, rest, bytes })
    }
}
