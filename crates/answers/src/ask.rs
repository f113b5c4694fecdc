//! Asking an archive: every answer comes with what is missing from it, and with what people should
//! know about it.
//!
//! ```no_run
//! use tapdex_answers::ask::Ask;
//! use tapdex_answers::question::Question;
//! use tapdex_engine::archive::Archive;
//!
//! let archive = Archive::open("tapdex-archive".as_ref())?;
//! let query = Question { q: "udp port 53".into(), ..Question::default() }.query(0)?;
//! let answer = Ask::new(&archive, &query).count()?;
//! println!("{} packets, complete: {}", answer.value.count, answer.complete);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use tapdex_engine::archive::Archive;
use tapdex_engine::fields::Name;
use tapdex_engine::query::filter::Syntax;
use tapdex_engine::query::{
    Answers, BehindTags, Control, FlowOrder, Query, Search, SearchError, Stack, Value,
};
use tapdex_engine::time::{TimeRange, format_time};

use crate::counted;
use crate::json::{Digits, Time};
use crate::lines::{By, Explanation, Flow, Span, Stacked, TopValues, spans};
use crate::missing::{Interval, Missing, intervals, missing};

/// More spans than anybody needs.
pub const SPANS_MAX: u64 = 1_000_000;

const SECOND: u64 = 1_000_000_000;
const MINUTE: u64 = 60 * SECOND;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AskError {
    /// The search failed.
    #[error(transparent)]
    Search(#[from] SearchError),
    /// There would be more spans than can be shown. Take longer ones.
    #[error("{spans} spans are too many: take a longer --span")]
    TooManySpans {
        /// How many there would be.
        spans: u64,
    },
}

/// An answer, and what is known about it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Answer<T> {
    /// The answer itself.
    #[serde(flatten)]
    pub value: T,
    /// Whether nothing is missing, as far as is known.
    pub complete: bool,
    /// What is missing.
    pub incomplete: Vec<Missing>,
    /// When something is missing: the intervals whose times are known, as far as they are few.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub intervals: Vec<Interval>,
    /// Packets that would match behind VLAN tags, where the filter does not look.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub behind_tags: Option<Tagged>,
    /// What people may not expect of the answer.
    pub notes: Vec<String>,
    /// Packets that match.
    pub matched: u64,
    /// Packets that were read to decide whether they match.
    #[serde(default)]
    pub read: u64,
    /// The first time that was looked at.
    pub first: Option<Time>,
    /// The last time that was looked at.
    pub last: Option<Time>,
    /// Segments that were searched.
    pub segments_read: u64,
    /// All segments.
    pub segments: u64,
    /// How long the search took.
    pub seconds: Digits<6>,
    /// What each node had, if several were asked.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nodes: Vec<Share>,
}

/// Packets behind VLAN tags that a filter does not look at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tagged {
    /// How many would match.
    pub packets: u64,
    /// Whether these are all; otherwise there may be fewer.
    pub exact: bool,
}

/// What one of several nodes had of an answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Share {
    /// The folder or the address of the node.
    pub node: String,
    /// Packets that match there.
    pub matched: u64,
    /// How long it took.
    pub seconds: Digits<6>,
    /// Why it has not answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

impl<T> Answer<T> {
    /// The same about another value.
    pub fn map<U>(self, of: impl FnOnce(T) -> U) -> Answer<U> {
        Answer {
            value: of(self.value),
            complete: self.complete,
            incomplete: self.incomplete,
            intervals: self.intervals,
            behind_tags: self.behind_tags,
            notes: self.notes,
            matched: self.matched,
            read: self.read,
            first: self.first,
            last: self.last,
            segments_read: self.segments_read,
            segments: self.segments,
            seconds: self.seconds,
            nodes: self.nodes,
        }
    }
}

/// How many packets match.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Count {
    /// The packets.
    pub count: u64,
}

/// The most frequent values of some fields.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Tops {
    /// Those of each field, as they were asked for.
    pub top: Vec<TopValues>,
    /// Packets that were read because their segments do not know a field.
    pub packets_read: u64,
}

/// Packets over time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Histogram {
    /// The start of the first span, in nanoseconds since 1970.
    pub start_ns: u64,
    /// How long each is.
    pub span_ns: u64,
    /// The spans.
    pub spans: Vec<Span>,
    /// `bytes`, if values are counted by bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<By>,
    /// The same by the values of a field, if that was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stack: Option<Stacked>,
}

impl Histogram {
    /// Of no packets.
    pub const EMPTY: Self =
        Self { start_ns: 0, span_ns: 0, spans: Vec::new(), by: None, stack: None };
}

/// Conversations.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Flows {
    /// The first ones in the order that was asked for.
    pub flows: Vec<Flow>,
    /// How many there are.
    pub conversations: u64,
    /// Packets of all of them.
    pub packets: u64,
    /// Their bytes on the wire.
    pub bytes: u64,
    /// Packets in none of them.
    pub other_packets: u64,
}

/// How a filter is understood and answered.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Explained {
    /// The plan and what it took.
    pub explain: Explanation,
}

/// How long the spans of a histogram are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SpanLen {
    /// As long as this, in nanoseconds.
    Each(u64),
    /// As short as they can be, round, with at most so many of them.
    AtMost(u64),
}

/// A question to an archive.
#[derive(Debug)]
pub struct Ask<'a> {
    archive: &'a Archive,
    query: &'a Query,
    control: Control,
    beyond: bool,
}

impl<'a> Ask<'a> {
    /// Asks `query`.
    pub fn new(archive: &'a Archive, query: &'a Query) -> Self {
        Self { archive, query, control: Control::default(), beyond: true }
    }

    /// Lets another thread cancel the search and see its progress.
    #[must_use]
    pub fn with_control(self, control: &Control) -> Self {
        Self { control: control.clone(), ..self }
    }

    /// Tells nothing about packets that do not match the query: for those who may not know.
    #[must_use]
    pub fn nothing_beyond(self) -> Self {
        Self { beyond: false, ..self }
    }

    /// The archive.
    pub fn archive(&self) -> &'a Archive {
        self.archive
    }

    /// The query.
    pub fn query(&self) -> &'a Query {
        self.query
    }

    /// The search, to go on with by oneself.
    pub fn search(&self) -> Result<Search<'a>, SearchError> {
        Ok(self.archive.search(self.query)?.with_control(&self.control))
    }

    /// How many packets match.
    pub fn count(&self) -> Result<Answer<Count>, AskError> {
        let started = Instant::now();
        let answers = self.search()?.count()?;
        let count = Count { count: answers.count() };
        Ok(self.answer(count, &answers, started))
    }

    /// The most frequent values of some fields, `most` of each; `shown` turns a value into text.
    /// Fields for which there is no time left are marked as skipped, but for the first.
    pub fn top_within(
        &self,
        names: &[&Name],
        by: By,
        most: usize,
        time: Option<Duration>,
        shown: impl Fn(&Value) -> String,
    ) -> Result<Answer<Tops>, AskError> {
        let started = Instant::now();
        let mut answers = self.search()?.rows()?;
        let (mut top, mut packets_read) = (Vec::new(), 0);
        for name in names {
            if !top.is_empty() && time.is_some_and(|time| started.elapsed() > time) {
                top.push(TopValues::skipped(name));
                continue;
            }
            let values = match by {
                By::Packets => answers.top(name, most)?,
                By::Bytes => answers.top_by_bytes(name, most)?,
            };
            packets_read += values.packets_read;
            top.push(TopValues::new(name, by, &values, &shown));
        }
        Ok(self.answer(Tops { top, packets_read }, &answers, started))
    }

    /// The same, however long it takes.
    pub fn top(
        &self,
        names: &[&Name],
        by: By,
        most: usize,
        shown: impl Fn(&Value) -> String,
    ) -> Result<Answer<Tops>, AskError> {
        self.top_within(names, by, most, None, shown)
    }

    /// Packets over time.
    pub fn histogram(&self, len: SpanLen) -> Result<Answer<Histogram>, AskError> {
        let started = Instant::now();
        let mut answers = self.search()?.rows()?;
        let mut histogram = Histogram::EMPTY;
        if let Some((start_ns, span_ns, len)) = Self::spans(&answers, len)? {
            let over_time = answers.over_time(start_ns, span_ns, len)?;
            let spans = spans(start_ns, span_ns, &over_time.counts, &[]);
            histogram = Histogram { start_ns, span_ns, spans, ..histogram };
        }
        Ok(self.answer(histogram, &answers, started))
    }

    /// The same by the `most` most frequent values of a field, if one is given, and with bytes, if
    /// these are wanted.
    pub fn histogram_by(
        &self,
        len: SpanLen,
        by: By,
        stack: Option<(&Name, usize)>,
        shown: impl Fn(&Value) -> String,
    ) -> Result<Answer<Histogram>, AskError> {
        let started = Instant::now();
        let mut answers = self.search()?.rows()?;
        let mut histogram = Histogram::EMPTY;
        if let Some((start_ns, span_ns, len)) = Self::spans(&answers, len)? {
            let values: Vec<Value> = match stack {
                None => Vec::new(),
                Some((name, most)) => {
                    let top = match by {
                        By::Packets => answers.top(name, most)?,
                        By::Bytes => answers.top_by_bytes(name, most)?,
                    };
                    top.values.into_iter().map(|(value, _)| value).collect()
                }
            };
            let wanted = stack.map(|(name, _)| Stack { name, values: &values });
            let found = answers.over_time_by(wanted, by == By::Bytes, (start_ns, span_ns, len))?;
            let stack = stack.map(|(name, _)| Stacked {
                field: name.top.first().copied().unwrap_or_default().to_owned(),
                values: values.iter().map(&shown).collect(),
                counts: found.values,
            });
            let spans = spans(start_ns, span_ns, &found.packets, &found.bytes);
            let by = (by == By::Bytes).then_some(by);
            histogram = Histogram { start_ns, span_ns, spans, by, stack };
        }
        Ok(self.answer(histogram, &answers, started))
    }

    /// Start, length and number of the spans of an answer; `None` if there are no packets.
    fn spans(answers: &Answers, len: SpanLen) -> Result<Option<(u64, u64, usize)>, AskError> {
        let Some((first, last)) = answers.asked_times() else { return Ok(None) };
        let span = match len {
            SpanLen::Each(span) => span.max(1),
            SpanLen::AtMost(most) => round_span(first, last, most),
        };
        let many = spans_between(first, last, span);
        let len = usize::try_from(many).ok().filter(|_| many <= SPANS_MAX);
        let len = len.ok_or(AskError::TooManySpans { spans: many })?;
        Ok(Some((first / span * span, span, len)))
    }

    /// Conversations, `most` of them at most. If `whole`, the other packets of the conversations
    /// count as well; `found` is called with the number of packets before they are summed up.
    pub fn flows(
        &self,
        order: FlowOrder,
        most: usize,
        whole: bool,
        found: impl FnOnce(u64),
    ) -> Result<Answer<Flows>, AskError> {
        let started = Instant::now();
        let search = self.search()?;
        // Other orders need the times of all packets.
        let by_size = matches!(order, FlowOrder::Bytes | FlowOrder::Packets) && !whole;
        let mut answers = if by_size { search.rows_of_flows()? } else { search.records()? };
        let matched = answers.count();
        found(matched);
        let flows = match whole {
            true => answers.whole_flows(self.query, order, most)?,
            false => answers.flows(order, most)?,
        };
        let value = Flows {
            flows: flows.flows.iter().map(Flow::from).collect(),
            conversations: flows.len as u64,
            packets: flows.packets,
            bytes: flows.bytes,
            other_packets: flows.other_packets,
        };
        Ok(Answer { matched, ..self.answer(value, &answers, started) })
    }

    /// How the filter is understood and answered.
    pub fn explain(&self) -> Result<Answer<Explained>, AskError> {
        let started = Instant::now();
        let mut answers = self.search()?.count()?;
        let seconds = started.elapsed().as_secs_f64();
        let notes = answers.behind_tags(self.query).map(tagged).into_iter().collect();
        let explain = Explanation::new(self.query, &mut answers, seconds, notes);
        let answer = self.answer(Explained { explain }, &answers, started);
        Ok(Answer { notes: left_out(&answers, self.query), ..answer })
    }

    /// What is known about an answer.
    pub fn answer<T>(&self, value: T, answers: &Answers, started: Instant) -> Answer<T> {
        let (segments_read, segments) = answers.segments_read();
        let (incomplete, times) = (missing(&answers.gaps), answers.asked_times());
        let mut notes = left_out(answers, self.query);
        let mut behind = None;
        if self.beyond {
            behind = answers.behind_tags(self.query);
            notes.extend(beyond(answers, self.query, behind));
        }
        Answer {
            value,
            complete: incomplete.is_empty(),
            incomplete,
            intervals: intervals(&answers.gaps),
            behind_tags: behind.map(|tags| Tagged { packets: tags.packets, exact: tags.is_exact }),
            notes,
            matched: answers.count(),
            read: answers.segments.iter().map(|(_, answer)| answer.read).sum(),
            first: times.map(|(first, _)| Time(first)),
            last: times.map(|(_, last)| Time(last)),
            segments_read: segments_read as u64,
            segments: segments as u64,
            seconds: Digits(started.elapsed().as_secs_f64()),
            nodes: Vec::new(),
        }
    }
}

const UNITS: [(&str, u64); 7] = [
    ("ns", 1),
    ("us", 1_000),
    ("ms", 1_000_000),
    ("s", SECOND),
    ("m", MINUTE),
    ("h", HOUR),
    ("d", DAY),
];

/// The nanoseconds of a length of time, such as `100us`, `10ms`, `60s`, `5m`, `1h` or `1d`; `None`
/// if it is written in another way, or 0.
pub fn parse_span(text: &str) -> Option<u64> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let unit = UNITS.iter().find(|(name, _)| *name == unit)?.1;
    number.parse::<u64>().ok()?.checked_mul(unit).filter(|&span| span > 0)
}

/// Spans that people count in, ascending.
fn round_spans() -> impl Iterator<Item = u64> {
    let decimal = (0..9).flat_map(|power| [1, 2, 5].map(|n| n * 10_u64.pow(power)));
    let seconds = [1, 2, 5, 10, 15, 30].map(|n| n * SECOND);
    let minutes = [1, 2, 5, 10, 15, 30].map(|n| n * MINUTE);
    let hours = [1, 2, 3, 6, 12].map(|n| n * HOUR);
    let days = (0..20).map(|power| DAY << power).take_while(|&span| span < u64::MAX / 4);
    decimal.chain(seconds).chain(minutes).chain(hours).chain(days)
}

/// The shortest round span of which there are at most `most` between two times.
pub fn round_span(first: u64, last: u64, most: u64) -> u64 {
    round_spans().find(|&span| spans_between(first, last, span) <= most).unwrap_or(u64::MAX)
}

/// How many spans there are between two times, from the first one's start.
pub fn spans_between(first: u64, last: u64, span: u64) -> u64 {
    (last / span - first / span).saturating_add(1)
}

/// Which links are left out, and whether no packet can match, which is an error in tcpdump.
pub fn left_out(answers: &Answers, query: &Query) -> Vec<String> {
    let refused = answers.refused();
    let text = |refusal: &tapdex_engine::query::Refusal| {
        format!("packets of {} are left out: {}", refusal.link, refusal.reason)
    };
    let mut notes: Vec<String> = refused.iter().map(text).collect();
    if answers.rejects_all(query) {
        let text = "the filter rejects all packets (libpcap: expression rejects all packets)";
        notes.push(text.to_owned());
    }
    notes
}

/// What users of tcpdump may not expect, and why there may be no results.
pub fn unseen(answers: &Answers, query: &Query) -> Vec<String> {
    beyond(answers, query, answers.behind_tags(query))
}

fn beyond(answers: &Answers, query: &Query, behind: Option<BehindTags>) -> Vec<String> {
    let mut notes = Vec::new();
    let packets = answers.outer_only(query);
    if packets > 0 {
        let verb = if packets == 1 { "was" } else { "were" };
        let packets = counted(packets, "packet");
        notes.push(format!(
            "{packets} in tunnels, ICMP errors or PPPoE, or behind MPLS, {verb} judged by outer \
             headers only; Wireshark would look inside"
        ));
    }
    notes.extend(behind.map(tagged));
    if answers.count() == 0 {
        notes.extend(other_times(answers, query));
    }
    notes
}

/// Which times the archive has packets from, if the query is about other times only.
fn other_times(answers: &Answers, query: &Query) -> Option<String> {
    if answers.segments.iter().any(|(_, answer)| !answer.pruned_by_time) {
        return None;
    }
    let Some((first, last)) = answers.covered() else {
        return Some("0 packets; the archive has none".to_owned());
    };
    let TimeRange { from_ns, to_ns } = query.times();
    let asked = [
        (from_ns > 0).then(|| format!("from {}", format_time(from_ns))),
        to_ns.map(|to| format!("to {}", format_time(to))),
    ];
    let asked: Vec<String> = asked.into_iter().flatten().collect();
    let [first, last] = [first, last].map(format_time);
    let asked = asked.join(" ");
    Some(format!("0 packets; the archive covers {first} to {last}, you asked {asked}"))
}

/// The message that a filter does not look behind VLAN tags.
fn tagged(BehindTags { packets, is_exact }: BehindTags) -> String {
    let most = if is_exact { "" } else { "up to " };
    format!(
        "{most}{} behind VLAN tags would match, too; this filter does not look there, as tcpdump \
         would not: --through-tags does",
        counted(packets, "packet")
    )
}

/// What `!=` means in Wireshark's language, if a filter that was written like this has it.
pub fn unequal(text: &str, query: &Query) -> Option<String> {
    let words = || text.split_whitespace();
    let has_it = text.replace("!==", "").contains("!=") || words().any(|word| word == "ne");
    let meaning = "with !=, a packet matches that has the field and in which no value of it \
                   equals the one given, as in Wireshark: of ip.addr neither end";
    (query.filter().syntax() == Syntax::Wireshark && has_it).then(|| meaning.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_understood() {
        assert_eq!(parse_span("60s"), Some(MINUTE));
        assert_eq!(parse_span("100us"), Some(100_000));
        for text in ["", "s", "60", "0s", "-1s", "1 s", "99999999999d", "1w"] {
            assert_eq!(parse_span(text), None, "{text}");
        }
    }

    #[test]
    fn spans_are_round_and_ascend() {
        let spans: Vec<u64> = round_spans().collect();
        assert!(spans.is_sorted_by(|a, b| a < b));
        assert!(spans.contains(&(15 * MINUTE)) && spans.contains(&500_000_000));
    }
}
