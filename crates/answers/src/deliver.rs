//! Delivering packets as they are found, and then as they are recorded.

use std::borrow::Cow;
use std::io::{self, Write};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use tapdex_engine::archive::{ArchiveError, Cause, Segment};
use tapdex_engine::capture::FileFormat;
use tapdex_engine::query::{Answers, Follow, Fresh, Query, SearchError};

use crate::ask::{Answer, Ask};
use crate::capture::{Extract, ExtractError, Header, Limits, comment};
use crate::json::Digits;
use crate::lines::Packet;
use crate::missing::Missing;

/// How often to look for packets that were recorded.
const EVERY: Duration = Duration::from_millis(200);
/// How long after the end of the requested times their packets may still be written.
const LATE_NS: u64 = 3_000_000_000;

/// Why a delivery ended before it was complete.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DeliverError {
    /// The search failed.
    #[error(transparent)]
    Search(#[from] SearchError),
    /// The capture could not be written.
    #[error(transparent)]
    Extract(#[from] ExtractError),
    /// Whoever receives the packets does not take them any more.
    #[error("cannot deliver packets")]
    Target(#[from] io::Error),
}

impl From<ArchiveError> for DeliverError {
    fn from(error: ArchiveError) -> Self {
        Self::Search(error.into())
    }
}

/// What was delivered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Delivered {
    /// Packets.
    pub packets: u64,
    /// Their bytes on the wire.
    pub bytes: u64,
    /// Whether a limit ended it, so that more may match.
    pub stopped: bool,
}

/// How packets are delivered as a capture.
#[derive(Debug, Clone, Copy)]
pub struct Delivery {
    /// The format of the capture.
    pub format: FileFormat,
    /// When to stop.
    pub limits: Limits,
    /// Whether to deliver the other packets of the conversations, too.
    pub whole_conversations: bool,
    /// Whether to go on with packets as they are recorded.
    pub follow: bool,
    /// Whether the capture says how many packets the archive has, matching or not.
    pub statistics: bool,
}

impl Default for Delivery {
    fn default() -> Self {
        Self {
            format: FileFormat::Pcapng,
            limits: Limits::default(),
            whole_conversations: false,
            follow: false,
            statistics: true,
        }
    }
}

/// Writes the packets of a question as a capture: those that were recorded so far, in order of
/// time, then, if it follows, others as they come, until `stop` says so or the requested times are
/// over.
///
/// The first packets are written before the last segments are asked, if it is a pcapng file: the
/// header of a pcap file depends on all of them.
pub fn capture<W: Write>(
    ask: &Ask<'_>,
    delivery: &Delivery,
    target: W,
    stop: &dyn Fn() -> bool,
) -> Result<Answer<Delivered>, DeliverError> {
    let started = Instant::now();
    let search = ask.search()?;
    let Delivery { format, limits, whole_conversations, follow, .. } = *delivery;
    let text = comment(ask.query(), whole_conversations);
    // What the archive has from the requested times, whether a limit ends the search or not.
    let times = ask.query().times();
    let overlaps =
        |segment: &&Segment| times.overlaps(segment.note().time_min, segment.note().time_max);
    let segments: Vec<_> = search.segments().to_vec();
    let first_of = || segments.iter().map(|segment| &**segment);
    let mut extract;
    let mut answers = if whole_conversations || (format == FileFormat::Pcap && !follow) {
        let mut answers = search.records()?;
        if whole_conversations && answers.count() > 0 {
            answers.add_conversations(ask.query())?;
        }
        let header = Header::of(answers.found().map(|(segment, _)| &**segment));
        extract = Extract::new(target, format, header, &text, limits)?;
        let mut packets = answers.packets();
        while let Some(packet) = packets.next()? {
            if stop() || !extract.found(&packet)? {
                break;
            }
        }
        let gaps = packets.into_gaps();
        answers.add_gaps(gaps);
        answers
    } else {
        extract = Extract::new(target, format, Header::ANY, &text, limits)?;
        // One more shows that the limit is reached.
        let most = limits.packets.map_or(u64::MAX, |most| most.saturating_add(1));
        let search = search.with_limit(most);
        let mut packets = search.packets();
        while let Some(packet) = packets.next()? {
            if stop() || !extract.found(&packet)? {
                break;
            }
        }
        packets.finish()?
    };
    let mut missed = Vec::new();
    if follow && !extract.is_stopped() {
        extract.flush()?;
        missed = follow_on(ask, &answers, stop, &mut extract)?;
        answers.look_again(ask.archive());
    }
    extract.ensure_interface(first_of())?;
    if delivery.statistics && !follow {
        extract.write_statistics(ask.query(), first_of().filter(overlaps), &answers.gaps)?;
    }
    let (packets, bytes) = (extract.packets(), extract.bytes());
    let delivered = Delivered { packets, bytes, stopped: extract.is_stopped() };
    extract.finish()?.flush()?;
    Ok(with_missed(ask.answer(delivered, &answers, started), missed))
}

/// Passes the packets of a question on, as lines; otherwise as [`capture`] does. `file` turns the
/// capture of a segment into text.
pub fn packets(
    ask: &Ask<'_>,
    limit: Option<u64>,
    follow: bool,
    file: &dyn Fn(&Segment) -> String,
    each: &mut dyn FnMut(Option<Packet<'_>>) -> io::Result<bool>,
    stop: &dyn Fn() -> bool,
) -> Result<Answer<Delivered>, DeliverError> {
    let started = Instant::now();
    let most = limit.unwrap_or(u64::MAX);
    let search = ask.search()?.with_limit(most);
    let mut stream = search.packets();
    let mut files: Vec<Option<String>> = Vec::new();
    let mut delivered = Delivered::default();
    let mut goes_on = most > 0;
    while goes_on && let Some(packet) = stream.next()? {
        files.resize(files.len().max(packet.source + 1), None);
        let file = files[packet.source].get_or_insert_with(|| file(packet.segment));
        let mut line = Packet::new(file, packet.number_in_file(), packet.record);
        line.id = packet_id(packet.segment, packet.number);
        delivered.packets += 1;
        delivered.bytes += u64::from(packet.record.wire_len);
        goes_on = each(Some(line))? && delivered.packets < most && !stop();
    }
    delivered.stopped = !goes_on && stream.may_have_more();
    let mut answers = stream.finish()?;
    let mut missed = Vec::new();
    if follow && goes_on {
        let mut lines = Lines { each, delivered: &mut delivered, most, file: Default::default() };
        lines.pause()?;
        missed = follow_on(ask, &answers, stop, &mut lines)?;
        answers.look_again(ask.archive());
    }
    Ok(with_missed(ask.answer(delivered, &answers, started), missed))
}

/// The name of a packet that stays the same: its segment, and its number there.
pub fn packet_id(segment: &Segment, number: u32) -> String {
    let name = segment.path().file_stem().map(|name| name.to_string_lossy().into_owned());
    format!("{}:{number}", name.unwrap_or_default())
}

fn with_missed<T>(mut answer: Answer<T>, missed: Vec<String>) -> Answer<T> {
    let missed = missed.into_iter().map(|what| Missing::fault(Cause::Unreadable, what));
    answer.incomplete.extend(missed);
    Answer { complete: answer.incomplete.is_empty(), ..answer }
}

/// Receives packets as they are recorded.
trait Receiver {
    /// Takes a packet; returns whether it wants more.
    fn packet(&mut self, fresh: &Fresh<'_>) -> Result<bool, DeliverError>;
    /// Called when all packets so far have been passed on, and now and then without any.
    fn pause(&mut self) -> Result<(), DeliverError>;
}

impl<W: Write> Receiver for Extract<W> {
    fn packet(&mut self, fresh: &Fresh<'_>) -> Result<bool, DeliverError> {
        Ok(self.fresh(fresh)?)
    }

    fn pause(&mut self) -> Result<(), DeliverError> {
        Ok(self.flush()?)
    }
}

struct Lines<'a> {
    each: &'a mut dyn FnMut(Option<Packet<'_>>) -> io::Result<bool>,
    delivered: &'a mut Delivered,
    most: u64,
    /// The recording that the last packet was in, and what it is called.
    file: (String, String),
}

impl Receiver for Lines<'_> {
    fn packet(&mut self, fresh: &Fresh<'_>) -> Result<bool, DeliverError> {
        if self.file.0 != fresh.recording.name() {
            let path = fresh.recording.sealed_path();
            let name = path.file_name().map(|name| name.to_string_lossy().into_owned());
            self.file = (fresh.recording.name().to_owned(), name.unwrap_or_default());
        }
        let line = Packet::new(&self.file.1, fresh.number + 1, fresh.record);
        let wants_more = (self.each)(Some(line))?;
        self.delivered.packets += 1;
        self.delivered.bytes += u64::from(fresh.record.wire_len);
        self.delivered.stopped = self.delivered.packets >= self.most;
        Ok(wants_more && !self.delivered.stopped)
    }

    fn pause(&mut self) -> Result<(), DeliverError> {
        (self.each)(None)?;
        Ok(())
    }
}

/// Passes packets on as they are recorded. Returns what could not be read.
fn follow_on(
    ask: &Ask<'_>,
    answers: &Answers,
    stop: &dyn Fn() -> bool,
    receiver: &mut dyn Receiver,
) -> Result<Vec<String>, DeliverError> {
    let segments = answers.segments.iter().map(|(segment, _)| segment);
    let mut follow = Follow::after(ask.archive(), ask.query(), segments);
    loop {
        let mut outcome = Ok(true);
        follow.poll(&mut |fresh| {
            if stop() {
                return Ok(false);
            }
            outcome = receiver.packet(&fresh);
            Ok(matches!(outcome, Ok(true)))
        })?;
        let goes_on = outcome?;
        receiver.pause()?;
        if !goes_on || stop() || is_over(ask.query()) {
            return Ok(follow.missed().iter().map(|error| tapdex_engine::chain(error)).collect());
        }
        std::thread::sleep(EVERY);
    }
}

/// Whether no more packets can come from the times of a query.
fn is_over(query: &Query) -> bool {
    query.times().to_ns.is_some_and(|to| now_ns() > to.saturating_add(LATE_NS))
}

/// Nanoseconds since 1970.
pub fn now_ns() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
}

/// An answer without a value, to be told about a part of several.
pub fn unanswered(cause: &'static str, what: String, node: String) -> Answer<()> {
    let mut missing = Missing::fault(Cause::Unreadable, what);
    missing.cause = Cow::Borrowed(cause);
    missing.node = node;
    Answer {
        value: (),
        complete: false,
        incomplete: vec![missing],
        intervals: Vec::new(),
        behind_tags: None,
        notes: Vec::new(),
        matched: 0,
        read: 0,
        first: None,
        last: None,
        segments_read: 0,
        segments: 0,
        seconds: Digits(0.0),
        nodes: Vec::new(),
    }
}
