//! A type for each kind of line that programs read. `docs/output.md` describes them.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use tapdex_engine::fields::Name;
use tapdex_engine::packet::{protocol, tcp_flags};
use tapdex_engine::query::filter::Syntax;
use tapdex_engine::query::{
    Answer, Answers, Endpoint, Explained, Flow as EngineFlow, Query, TermPlan, Top, Value,
};
use tapdex_engine::time::{TimeRange, format_time};
use tapdex_record::status::{Losses, SourceStatus, Status, Totals};

use crate::ask::Share;
use crate::json::{Digits, Seconds, Time};
use crate::missing::{Missing, missing};

pub use crate::packet::Packet;

const SECOND: u64 = 1_000_000_000;

/// How many packets match: `search --count --json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Count {
    /// The packets.
    pub count: u64,
    /// What is missing.
    pub incomplete: Vec<Missing>,
    /// What each node had, if several were asked.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nodes: Vec<Share>,
}

/// What is missing for one reason, on a line of its own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Incomplete {
    /// What is missing.
    pub incomplete: Missing,
}

/// A value of a field and how often it occurs: `top --json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TopValue {
    /// The value as text.
    pub value: String,
    /// Packets, or ends of packets, that have it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count: Option<u64>,
    /// Bytes of these packets on the wire, if bytes were asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// Its share of the sum over all values.
    pub share: Digits<6>,
}

/// The most frequent values of a field.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TopValues {
    /// The field.
    pub field: String,
    /// The values, most frequent first.
    pub values: Vec<TopValue>,
    /// How many there are; some may have been left out.
    pub distinct: u64,
    /// The sum over all of them.
    pub total: u64,
    /// There was no time left to count them.
    #[serde(default, skip_serializing_if = "is_false")]
    pub skipped: bool,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
fn is_false(value: &bool) -> bool {
    !value
}

/// What values are counted by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum By {
    /// Packets that have the value.
    #[default]
    Packets,
    /// Bytes of these packets on the wire.
    Bytes,
}

impl By {
    /// The name of the number in a [`TopValue`].
    pub fn heading(self) -> &'static str {
        match self {
            Self::Packets => "count",
            Self::Bytes => "bytes",
        }
    }
}

impl TopValues {
    /// What the engine has counted; `shown` turns a value into text.
    pub fn new(name: &Name, by: By, top: &Top, shown: impl Fn(&Value) -> String) -> Self {
        let values = top.values.iter().map(|(value, number)| (shown(value), *number));
        let field = name.top.first().copied().unwrap_or_default();
        Self::of(field, by, values, top.distinct as u64, top.total)
    }

    /// Values with their numbers, sorted already.
    pub fn of(
        field: &str,
        by: By,
        values: impl Iterator<Item = (String, u64)>,
        distinct: u64,
        total: u64,
    ) -> Self {
        let value = |(value, number): (String, u64)| TopValue {
            value,
            count: (by == By::Packets).then_some(number),
            bytes: (by == By::Bytes).then_some(number),
            share: Digits(number as f64 / total.max(1) as f64),
        };
        let (field, values) = (field.to_owned(), values.map(value).collect());
        Self { field, values, distinct, total, skipped: false }
    }

    /// A field that nobody had time for.
    pub fn skipped(name: &Name) -> Self {
        let field = name.top.first().copied().unwrap_or_default().to_owned();
        Self { field, values: Vec::new(), distinct: 0, total: 0, skipped: true }
    }
}

impl TopValue {
    /// Its packets or bytes, whichever were asked for.
    pub fn number(&self) -> u64 {
        self.count.or(self.bytes).unwrap_or(0)
    }
}

/// A span of time and the packets from it: `hist --json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Span {
    /// Its start, with as many digits as it needs.
    pub time: String,
    /// The packets.
    pub packets: u64,
    /// Their bytes on the wire, if they were asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
}

/// The values of a field over time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stacked {
    /// The field.
    pub field: String,
    /// Its most frequent values. A packet that has several of them is counted at the first.
    pub values: Vec<String>,
    /// Of each value, packets or bytes in each span.
    pub counts: Vec<Vec<u64>>,
}

/// The spans of a histogram, with bytes where there are any.
pub fn spans(start_ns: u64, span_ns: u64, packets: &[u64], bytes: &[u64]) -> Vec<Span> {
    let time = |n: u64| start_ns.saturating_add(span_ns.saturating_mul(n));
    let bytes = bytes.iter().copied().map(Some).chain(std::iter::repeat(None));
    let span = |((n, &packets), bytes)| Span { time: span_time(time(n), span_ns), packets, bytes };
    (0..).zip(packets).zip(bytes).map(span).collect()
}

/// A time with as many digits as the span needs.
pub fn span_time(time_ns: u64, span_ns: u64) -> String {
    let text = format_time(time_ns);
    let digits = [(SECOND, 10), (1_000_000, 6), (1_000, 3)];
    // The point is removed as well if no digit is left.
    let cut = digits.iter().find(|(unit, _)| span_ns.is_multiple_of(*unit));
    let cut = cut.map_or(0, |(_, cut)| *cut);
    let plain = text.strip_suffix('Z').unwrap_or(&text);
    format!("{}Z", plain.get(..plain.len().saturating_sub(cut)).unwrap_or(plain))
}

/// A conversation: `flows --json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Flow {
    /// The time of its first packet.
    pub start: Time,
    /// Seconds until the last one.
    pub duration: Seconds,
    /// What IP carries.
    pub protocol: Cow<'static, str>,
    /// The address of the end that started it.
    pub client: String,
    /// Its port, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_port: Option<u16>,
    /// The address of the other end.
    pub server: String,
    /// Its port, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server_port: Option<u16>,
    /// The type of the client's messages, for ICMP and ICMPv6.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub icmp_type: Option<u8>,
    /// VLAN ids, outer first; empty without.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub vlan: String,
    /// Packets that the client has sent.
    pub client_packets: u64,
    /// Packets that the server has sent.
    pub server_packets: u64,
    /// Bytes on the wire of the client's packets.
    pub client_bytes: u64,
    /// Bytes on the wire of the server's packets.
    pub server_bytes: u64,
    /// All TCP flags that the client has sent.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub client_flags: String,
    /// All TCP flags that the server has sent.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub server_flags: String,
    /// How a TCP connection went, in the letters of Zeek.
    #[serde(default, skip_serializing_if = "str::is_empty")]
    pub state: Cow<'static, str>,
    /// Community ID, version 1.
    pub community_id: String,
}

impl From<&EngineFlow> for Flow {
    fn from(flow: &EngineFlow) -> Self {
        let port = |end: &Endpoint| end.port;
        let protocol = protocol::name(flow.protocol);
        Self {
            start: Time(flow.first_ns),
            duration: Seconds(flow.duration_ns()),
            protocol: protocol.map_or_else(|| flow.protocol.to_string().into(), Cow::Borrowed),
            client: flow.client.address.to_string(),
            client_port: port(&flow.client),
            server: flow.server.address.to_string(),
            server_port: port(&flow.server),
            icmp_type: flow.icmp_type,
            vlan: match flow.vlans {
                [0, 0] => String::new(),
                [outer, 0] => outer.to_string(),
                [outer, inner] => format!("{outer}.{inner}"),
            },
            client_packets: flow.from_client.packets,
            server_packets: flow.from_server.packets,
            client_bytes: flow.from_client.bytes,
            server_bytes: flow.from_server.bytes,
            client_flags: tcp_flags(flow.from_client.tcp_flags),
            server_flags: tcp_flags(flow.from_server.tcp_flags),
            state: flow.state().unwrap_or_default().into(),
            community_id: flow.community_id().to_string(),
        }
    }
}

/// How a filter is understood and answered: `explain --json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Explanation {
    /// The filter with names resolved.
    pub filter: String,
    /// Its language.
    pub language: Cow<'static, str>,
    /// The first time asked about.
    pub from: Option<Time>,
    /// The end of the times asked about.
    pub to: Option<Time>,
    /// Its conditions.
    pub terms: Vec<Condition>,
    /// Segments of the archive.
    pub segments: u64,
    /// Segments that were skipped because of their times.
    pub pruned_by_time: u64,
    /// Segments that were skipped because a value does not occur in them.
    pub pruned_by_keys: u64,
    /// Segments that were searched.
    pub asked: u64,
    /// Packets of these.
    pub packets: u64,
    /// Packets that were read.
    pub read: u64,
    /// Packets that match.
    pub matches: u64,
    /// Time of the search.
    pub seconds: Digits<6>,
    /// Messages about the filter.
    pub notes: Vec<String>,
    /// What is missing.
    pub incomplete: Vec<Missing>,
}

/// A condition of a filter.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Condition {
    /// The condition.
    pub text: String,
    /// What it was answered by.
    pub by: Cow<'static, str>,
    /// Rows that match it.
    pub rows: u64,
    /// Rows that columns do not decide.
    pub unknown: u64,
    /// The least number of bytes of bitmaps that are read for it.
    pub weight: u64,
}

impl Condition {
    fn new(term: &TermPlan, packets: u64) -> Self {
        let by = match term.unknown {
            0 => "columns",
            unknown if unknown == packets => "packets",
            _ if term.rows == 0 => "packets",
            _ => "partly",
        };
        let TermPlan { text, rows, unknown, weight, .. } = term;
        Self { text: text.clone(), by: by.into(), rows: *rows, unknown: *unknown, weight: *weight }
    }
}

impl Explanation {
    /// How a question was answered in `seconds`; `notes` are messages about its filter.
    pub fn new(query: &Query, answers: &mut Answers, seconds: f64, notes: Vec<String>) -> Self {
        let Explained { terms, packets } = answers.explain(query);
        let answers = &*answers;
        let count = |by: fn(&Answer) -> bool| {
            answers.segments.iter().filter(|(_, answer)| by(answer)).count() as u64
        };
        let (asked, all) = answers.segments_read();
        let TimeRange { from_ns, to_ns } = query.times();
        Self {
            filter: query.text().to_owned(),
            language: match query.filter().syntax() {
                Syntax::Pcap => "pcap-filter",
                Syntax::Wireshark => "wireshark",
            }
            .into(),
            from: (from_ns > 0).then_some(Time(from_ns)),
            to: to_ns.map(Time),
            terms: terms.iter().map(|term| Condition::new(term, packets)).collect(),
            segments: all as u64,
            pruned_by_time: count(|answer| answer.pruned_by_time),
            pruned_by_keys: count(|answer| answer.pruned_by_keys),
            asked: asked as u64,
            packets,
            read: answers.segments.iter().map(|(_, answer)| answer.read).sum(),
            matches: answers.count(),
            seconds: Digits(seconds),
            notes,
            incomplete: missing(&answers.gaps),
        }
    }
}

/// An archive: the first line of `info --json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Archive {
    /// Its folder, or its address.
    pub archive: String,
    /// The codec of its indexes.
    #[serde(default)]
    pub codec: String,
    /// Segments.
    pub segments: u64,
    /// Packets.
    pub packets: u64,
    /// Their bytes on the wire.
    pub wire_bytes: u64,
    /// Their bytes in captures.
    pub captured_bytes: u64,
    /// Flows, counted in each segment.
    pub flows: u64,
    /// The time of the first packet.
    pub first: Option<Time>,
    /// The time of the last packet.
    pub last: Option<Time>,
    /// Bytes of the indexes.
    pub index_bytes: u64,
    /// Packets that no index on disk has yet.
    pub unindexed: u64,
    /// Times between segments without packets.
    pub gaps: u64,
    /// Things that cannot be read.
    pub damaged: u64,
    /// What is missing.
    pub incomplete: Vec<Missing>,
}

/// A field of an archive: `info --json --fields`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Field {
    /// Its name, or that of a part of the index.
    pub field: String,
    /// What it takes in all segments.
    pub bytes: u64,
    /// Its columns.
    pub columns: u64,
    /// How many of these are in each form.
    pub codecs: BTreeMap<String, u64>,
}

/// A segment of an archive: `info --json --segments`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Segment {
    /// Its index.
    pub segment: String,
    /// Its capture.
    pub file: String,
    /// Packets.
    pub packets: u64,
    /// The time of the first one.
    pub first: Time,
    /// The time of the last one.
    pub last: Time,
    /// Bytes of the index.
    pub index_bytes: u64,
    /// The order of its rows.
    pub order: Cow<'static, str>,
    /// What is wrong with the capture.
    pub damage: String,
}

/// A time from which there are no packets: `info --json`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct GapLine {
    /// The time.
    pub gap: Gap,
}

/// A time from which there are no packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gap {
    /// The last packet before it.
    pub from: Time,
    /// The first packet after it.
    pub to: Time,
    /// How long it is.
    pub ns: u64,
}

/// The recorder of an archive: `info --json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RecorderLine {
    /// The recorder.
    pub recorder: Recorder,
}

/// A recorder.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Recorder {
    /// Its state, in a word.
    pub state: Cow<'static, str>,
    /// Its process.
    pub pid: u32,
    /// When it last told its status.
    pub updated: Time,
    /// Whether it runs.
    pub running: bool,
    /// What it has done since it was started.
    pub run: Sums,
    /// What all runs have done.
    pub total: Sums,
    /// Recordings that wait to be indexed.
    pub waiting: u64,
    /// Packets that it stores in a second.
    pub packets_per_second: Digits<1>,
    /// Bits of these on the wire.
    pub bits_per_second: Digits<1>,
    /// Where it takes packets from.
    pub sources: Vec<Source>,
    /// When it began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started: Option<Time>,
    /// What builds its indexes.
    #[serde(default)]
    pub device: String,
    /// How long the oldest recording waits to be indexed.
    #[serde(default = "no_digits")]
    pub index_lag_seconds: Digits<1>,
    /// Packets that it has indexed.
    #[serde(default)]
    pub indexed_packets: u64,
    /// Bytes of the packets that are kept.
    #[serde(default)]
    pub packet_bytes: u64,
    /// Bytes of their indexes.
    #[serde(default)]
    pub index_bytes: u64,
    /// Bytes that are free on the disk.
    #[serde(default)]
    pub disk_free_bytes: u64,
    /// How full the disk is.
    #[serde(default = "no_digits")]
    pub disk_percent: Digits<1>,
}

fn no_digits<const N: usize>() -> Digits<N> {
    Digits(0.0)
}

/// Counts of one run, or of all runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sums {
    /// Packets that were stored.
    pub packets: u64,
    /// Their bytes on the wire.
    pub wire_bytes: u64,
    /// Packets that were lost, by stage.
    pub lost: Lost,
    /// Recordings that retention has removed.
    pub removed_segments: u64,
    /// Their packets.
    pub removed_packets: u64,
    /// How often it had to wait for room on the disk.
    pub pauses: u64,
}

/// An interface or a stream that a recorder takes packets from.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Source {
    /// Its name.
    pub name: String,
    /// Whether it is there.
    pub up: bool,
    /// Packets that came from it.
    pub received: u64,
    /// Packets of these that were stored.
    pub stored: u64,
    /// Packets of these that were lost, by stage.
    pub lost: Lost,
    /// How full the kernel's ring is, from 0 to 1; estimated.
    #[serde(default = "no_digits")]
    pub ring_fill: Digits<3>,
    /// How full the queue to the disk is.
    #[serde(default = "no_digits")]
    pub queue_fill: Digits<3>,
}

/// Packets that were lost, by stage. Stages are in the order in which packets pass them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lost(pub Vec<(Cow<'static, str>, u64)>);

impl Serialize for Lost {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(stage, packets)| (stage, packets)))
    }
}

impl<'de> Deserialize<'de> for Lost {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let stages = BTreeMap::<String, u64>::deserialize(deserializer)?;
        Ok(Self(stages.into_iter().map(|(stage, packets)| (stage.into(), packets)).collect()))
    }
}

impl Lost {
    /// All of them.
    pub fn sum(&self) -> u64 {
        self.0.iter().map(|(_, packets)| packets).sum()
    }
}

impl From<&Losses> for Lost {
    fn from(lost: &Losses) -> Self {
        Self(lost.by_stage().map(|(stage, packets)| (stage.into(), packets)).to_vec())
    }
}

impl Recorder {
    /// What a recorder says of itself; `running` says whether it still does.
    pub fn new(status: &Status, running: bool) -> Self {
        let sums = |totals: &Totals| Sums {
            packets: totals.packets,
            wire_bytes: totals.wire_bytes,
            lost: (&totals.lost).into(),
            removed_segments: totals.removed_segments,
            removed_packets: totals.removed_packets,
            pauses: totals.pauses,
        };
        let source = |source: &SourceStatus| Source {
            name: source.name.clone(),
            up: source.up,
            received: source.received,
            stored: source.stored,
            lost: (&source.lost).into(),
            ring_fill: Digits(if running { source.ring_fill } else { 0.0 }),
            queue_fill: Digits(if running { source.queue_fill } else { 0.0 }),
        };
        Self {
            state: match (running, status.ended, status.paused) {
                (true, _, true) => "paused",
                (true, ..) => "running",
                (_, true, _) => "ended",
                _ => "killed",
            }
            .into(),
            pid: status.pid,
            updated: Time(status.updated_ns),
            running,
            run: sums(&status.run),
            total: sums(&status.total),
            waiting: status.waiting,
            packets_per_second: Digits(if running { status.packets_per_second } else { 0.0 }),
            bits_per_second: Digits(if running { status.bits_per_second } else { 0.0 }),
            sources: status.sources.iter().map(source).collect(),
            started: (status.started_ns > 0).then_some(Time(status.started_ns)),
            device: status.device.clone(),
            index_lag_seconds: Digits(if running { status.index_lag_seconds } else { 0.0 }),
            indexed_packets: status.indexed_packets,
            packet_bytes: status.packet_bytes,
            index_bytes: status.segment_index_bytes,
            disk_free_bytes: status.disk_free_bytes,
            disk_percent: Digits(status.disk_percent),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_the_digits_of_the_span() {
        let time = 1_767_600_001_234_567_891;
        assert_eq!(span_time(time, SECOND), "2026-01-05T08:00:01Z");
        assert_eq!(span_time(time, 5_000_000), "2026-01-05T08:00:01.234Z");
        assert_eq!(span_time(time, 1_000), "2026-01-05T08:00:01.234567Z");
        assert_eq!(span_time(time, 1), "2026-01-05T08:00:01.234567891Z");
    }
}
