//! What is missing from an answer, summed up by cause.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use tapdex_engine::archive::{Cause, Gap};
use tapdex_engine::time::format_time;

use crate::counted;
use crate::json::Time;

/// What is missing for one reason: lost packets and the like are summed up, while each fault that
/// can be repaired has an entry of its own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Missing {
    /// The name of the cause.
    pub cause: Cow<'static, str>,
    /// Packets, if their number is known.
    pub packets: Option<u64>,
    /// Bytes, if their number is known.
    pub bytes: Option<u64>,
    /// The start of the times, if known.
    pub from: Option<Time>,
    /// Their end.
    pub to: Option<Time>,
    /// How many intervals there are.
    pub intervals: u64,
    /// What it is about.
    pub what: String,
    /// Packets that were counted, if others were not.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub at_least: u64,
    /// How long the intervals are together, in nanoseconds.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub ns: u64,
    /// The node that it is missing from, if several were asked.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub node: String,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// One interval that something is missing from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Interval {
    /// The name of the cause.
    pub cause: Cow<'static, str>,
    /// Its start.
    pub from: Time,
    /// Its end.
    pub to: Time,
    /// Packets, if their number is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub packets: Option<u64>,
    /// The node that it is missing from, if several were asked.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub node: String,
}

/// The most intervals that are told one by one.
const INTERVALS_MAX: usize = 500;

/// The intervals that something is missing from, in order of time: the longest, if there are many.
pub fn intervals<'a>(gaps: impl IntoIterator<Item = &'a Gap>) -> Vec<Interval> {
    let interval = |gap: &Gap| {
        let (from, to) = gap.span()?;
        let cause = gap.cause.name().into();
        let (from, to) = (Time(from), Time(to));
        Some(Interval { cause, from, to, packets: gap.packets, node: String::new() })
    };
    let mut all: Vec<Interval> = gaps.into_iter().filter_map(interval).collect();
    if all.len() > INTERVALS_MAX {
        all.sort_by_key(|one| std::cmp::Reverse(one.to.0.saturating_sub(one.from.0)));
        all.truncate(INTERVALS_MAX);
    }
    all.sort_by_key(|one| one.from);
    all
}

/// What is missing.
pub fn missing<'a>(gaps: impl IntoIterator<Item = &'a Gap>) -> Vec<Missing> {
    let mut all: Vec<Missing> = Vec::new();
    for gap in gaps {
        let span = gap.span();
        let (from, to) = (span.map(|(from, _)| Time(from)), span.map(|(_, to)| Time(to)));
        let ns = span.map_or(0, |(from, to)| to - from.min(to));
        let is_sum = matches!(gap.cause, Cause::Lost | Cause::Removed | Cause::NotRecorded);
        let is_same =
            |other: &&mut Missing| (&*other.cause, &other.what) == (gap.cause.name(), &gap.what);
        let Some(same) = all.iter_mut().find(|other| is_sum && is_same(other)) else {
            all.push(Missing {
                cause: gap.cause.name().into(),
                packets: gap.packets,
                bytes: gap.bytes,
                from,
                to,
                intervals: 1,
                what: gap.what.clone(),
                at_least: 0,
                ns,
                node: String::new(),
            });
            continue;
        };
        let known = same.known().saturating_add(gap.packets.unwrap_or(0));
        same.from = same.from.zip(from).map(|(a, b)| a.min(b));
        same.to = same.to.zip(to).map(|(a, b)| a.max(b));
        same.packets = same.packets.zip(gap.packets).map(|_| known);
        same.at_least = if same.packets.is_some() { 0 } else { known };
        same.intervals += 1;
        same.ns = same.ns.saturating_add(ns);
    }
    all
}

impl Missing {
    /// A fault in a few words.
    pub fn fault(cause: Cause, what: String) -> Self {
        Self {
            cause: cause.name().into(),
            packets: None,
            bytes: None,
            from: None,
            to: None,
            intervals: 1,
            what,
            at_least: 0,
            ns: 0,
            node: String::new(),
        }
    }

    /// Packets that are known to be missing.
    pub fn known(&self) -> u64 {
        self.packets.unwrap_or(self.at_least)
    }

    /// For people.
    pub fn text(&self) -> String {
        let packets = self.packets.map(|packets| counted(packets, "packet"));
        let known = match (&packets, self.at_least) {
            (Some(packets), _) => packets.clone(),
            (None, 0) => "an unknown number of packets".to_owned(),
            (None, packets) => format!("at least {}", counted(packets, "packet")),
        };
        let when = match self.from.zip(self.to) {
            Some((from, to)) => {
                let [from, to] = [from, to].map(|time| format_time(time.0));
                match self.intervals {
                    1 => format!(", from {from} to {to}"),
                    n => format!(", in {n} intervals between {from} and {to}"),
                }
            }
            None => String::new(),
        };
        let text = if self.cause == Cause::Lost.name() {
            format!("{known} lost while recording{when}")
        } else if self.cause == Cause::Removed.name() {
            format!("{known} removed by retention{when}")
        } else if self.cause == Cause::NotRecorded.name() {
            let what = if self.what.is_empty() { "nothing was recorded" } else { &self.what };
            format!("{what} for {:.3} s{when}", self.ns as f64 / 1e9)
        } else {
            let packets = packets.map(|packets| format!("; {packets} missing"));
            let bytes = self.bytes.map(|bytes| format!("; {} not indexed", counted(bytes, "byte")));
            [Some(self.what.clone()), packets, bytes].into_iter().flatten().collect()
        };
        match self.node.is_empty() {
            true => text,
            false => format!("{}: {text}", self.node),
        }
    }
}

/// How much is missing, in a few words.
pub fn sum(missing: &[Missing]) -> String {
    let known = missing.iter().map(Missing::known).fold(0, u64::saturating_add);
    match (known, missing.iter().all(|one| one.packets.is_some())) {
        (0, _) => "packets are missing, see above".to_owned(),
        (1, true) => "1 packet is missing, see above".to_owned(),
        (n, true) => format!("{n} packets are missing, see above"),
        (n, false) => format!("at least {n} packets are missing, see above"),
    }
}
