//! Answers of several places become one.
//!
//! Numbers are sums, times the outermost. What is missing is named with its place; a place that
//! has not answered is missing as a whole. Packets that two places have are counted twice.

use std::collections::HashMap;
use std::time::Instant;

use tapdex_answers::ask::{
    Answer, AskError, Explained, Flows, Histogram, SPANS_MAX, Share, Tagged, Tops, spans_between,
};
use tapdex_answers::inventory::Inventory;
use tapdex_answers::json::{Digits, Time};
use tapdex_answers::lines::{By, Explanation, Flow, TopValues, spans};
use tapdex_answers::{counted, deliver};
use tapdex_engine::fields::{FieldKind, Name, Shown};
use tapdex_engine::query::{FlowOrder, Value};

use serde::{Deserialize, Serialize};
use std::cmp::Reverse;

use crate::error::{ClientError, HttpError};

/// The name of the cause of what is missing because a server has not answered.
pub const UNREACHABLE: &str = "unreachable";
/// The same for a folder.
const UNREADABLE: &str = "unreadable";

/// What came from a place.
#[derive(Debug)]
pub struct Reply<T> {
    /// Its folder or address.
    pub node: String,
    /// How long it took.
    pub seconds: f64,
    /// Its answer.
    pub answer: Result<Answer<T>, ClientError>,
}

/// How each place answers a filter.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Explanations {
    /// In the order of the places.
    pub explain: Vec<OfNode<Explanation>>,
}

/// What each place has.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Inventories {
    /// In the order of the places.
    pub nodes: Vec<Inventory>,
}

/// Something of a place.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OfNode<T> {
    /// The place.
    pub node: String,
    /// What it has.
    #[serde(flatten)]
    pub value: T,
}

/// The same answer with another value.
pub(crate) fn with<T, U>(answer: Answer<T>, value: U) -> Answer<U> {
    answer.map(|_| value)
}

/// What an error says, without the name of the place that it is about.
fn what(error: &ClientError) -> String {
    match error {
        ClientError::Server { error, .. } => tapdex_engine::chain(&**error),
        error => tapdex_engine::chain(error),
    }
}

/// What is known about an answer, and its parts with their places.
pub type Parts<T> = (Answer<()>, Vec<(String, T)>);

/// One answer of several, and the values that came, with their places. An error if none came.
///
/// The answer of a single place stays as it is.
pub fn merged<T>(replies: Vec<Reply<T>>, started: Instant) -> Result<Parts<T>, ClientError> {
    let is_one = replies.len() == 1;
    let (mut values, mut all, mut errors) = (Vec::new(), Vec::new(), Vec::new());
    for Reply { node, seconds, answer } in replies {
        let answer = match answer {
            Ok(answer) => answer,
            Err(error) => {
                let what = what(&error);
                let cause = match error {
                    ClientError::Server { .. } | ClientError::Lying(_) => UNREACHABLE,
                    _ => UNREADABLE,
                };
                let mut answer = deliver::unanswered(cause, what.clone(), node.clone());
                answer.nodes = vec![Share {
                    node: node.clone(),
                    matched: 0,
                    seconds: Digits(seconds),
                    error: Some(what),
                }];
                errors.push((node, error));
                all.push(answer);
                continue;
            }
        };
        let mut value = None;
        let mut answer = answer.map(|it| value = Some(it));
        values.extend(value.map(|value| (node.clone(), value)));
        if !is_one {
            for missing in &mut answer.incomplete {
                // What a server has from others, it has named already.
                missing.node = below(&node, &missing.node);
            }
            for interval in &mut answer.intervals {
                interval.node = below(&node, &interval.node);
            }
            let share = Share {
                node: node.clone(),
                matched: answer.matched,
                seconds: answer.seconds,
                error: None,
            };
            let others = std::mem::take(&mut answer.nodes).into_iter();
            let others = others.map(|other| Share { node: below(&node, &other.node), ..other });
            answer.nodes = std::iter::once(share).chain(others).collect();
        }
        all.push(answer);
    }
    if values.is_empty() {
        return Err(match errors.len() {
            1 => errors.remove(0).1,
            _ => ClientError::Nobody(Nobody(errors)),
        });
    }
    if is_one {
        return Ok((all.remove(0), values));
    }
    let notes = notes(&all);
    let outermost = |times: &mut dyn Iterator<Item = Time>, later: bool| {
        times.reduce(|a, b| if (a < b) == later { b } else { a })
    };
    let sum = |of: &dyn Fn(&Answer<()>) -> u64| all.iter().map(of).fold(0, u64::saturating_add);
    let answer = Answer {
        value: (),
        complete: all.iter().all(|answer| answer.complete),
        notes,
        matched: sum(&|answer| answer.matched),
        read: sum(&|answer| answer.read),
        first: outermost(&mut all.iter().filter_map(|answer| answer.first), false),
        last: outermost(&mut all.iter().filter_map(|answer| answer.last), true),
        segments_read: sum(&|answer| answer.segments_read),
        segments: sum(&|answer| answer.segments),
        seconds: Digits(started.elapsed().as_secs_f64()),
        incomplete: all.iter().flat_map(|answer| answer.incomplete.clone()).collect(),
        intervals: all.iter().flat_map(|answer| answer.intervals.clone()).collect(),
        behind_tags: behind_tags(&all),
        nodes: all.into_iter().flat_map(|answer| answer.nodes).collect(),
    };
    Ok((answer, values))
}

/// Packets behind VLAN tags, of all places.
fn behind_tags(all: &[Answer<()>]) -> Option<Tagged> {
    let parts = all.iter().filter_map(|answer| answer.behind_tags);
    parts.reduce(|a, b| Tagged {
        packets: a.packets.saturating_add(b.packets),
        exact: a.exact && b.exact,
    })
}

/// The name of a place that another place has asked.
fn below(node: &str, other: &str) -> String {
    match other.is_empty() {
        true => node.to_owned(),
        false => format!("{node}, {other}"),
    }
}

/// What people should know, with the places that say so; once, if all of them say the same.
fn notes(all: &[Answer<()>]) -> Vec<String> {
    let answered = || all.iter().filter(|answer| answer.nodes.iter().all(|n| n.error.is_none()));
    let mut notes = Vec::new();
    for answer in answered() {
        let node = answer.nodes.first().map_or("", |share| share.node.as_str());
        for note in &answer.notes {
            if answered().count() > 1 && answered().all(|other| other.notes.contains(note)) {
                if !notes.contains(note) {
                    notes.push(note.clone());
                }
            } else {
                notes.push(format!("{node}: {note}"));
            }
        }
    }
    notes
}

/// No place has answered.
#[derive(Debug)]
pub struct Nobody(pub Vec<(String, ClientError)>);

impl std::fmt::Display for Nobody {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("no place has answered")?;
        self.0.iter().try_for_each(|(node, error)| write!(f, "\n  {node}: {}", what(error)))
    }
}

/// Frequent values: counted together, the first `most` of each field.
pub fn tops(
    answer: &mut Answer<()>,
    parts: Vec<(String, Tops)>,
    names: &[&Name],
    by: By,
    most: usize,
) -> Tops {
    let mut packets_read = 0_u64;
    let mut counts: Vec<HashMap<String, u64>> = names.iter().map(|_| HashMap::new()).collect();
    let mut totals = vec![0_u64; names.len()];
    for (node, part) in parts {
        packets_read = packets_read.saturating_add(part.packets_read);
        for ((counts, total), top) in counts.iter_mut().zip(&mut totals).zip(part.top) {
            let left_out = top.distinct.saturating_sub(top.values.len() as u64);
            if left_out > 0 {
                let values = counted(left_out, "value");
                let text = format!("{node} has left out {values} of {}, its rarest", top.field);
                answer.notes.push(text);
            }
            *total = total.saturating_add(top.total);
            for value in top.values {
                let number = value.number();
                let count = counts.entry(value.value).or_default();
                *count = count.saturating_add(number);
            }
        }
    }
    let top = names.iter().zip(counts).zip(totals).map(|((name, counts), total)| {
        let distinct = counts.len() as u64;
        let order = Order::of(name);
        let mut values: Vec<(Value, String, u64)> =
            counts.into_iter().map(|(text, number)| (order.value(&text), text, number)).collect();
        values.sort_unstable_by(|a, b| b.2.cmp(&a.2).then_with(|| (&a.0, &a.1).cmp(&(&b.0, &b.1))));
        let values = values.into_iter().take(most).map(|(_, text, number)| (text, number));
        TopValues::of(name.top.first().copied().unwrap_or_default(), by, values, distinct, total)
    });
    Tops { top: top.collect(), packets_read }
}

/// Turns the text of a value back into the value, so that equally frequent ones are in the order
/// that one archive has.
struct Order {
    kinds: Vec<FieldKind>,
    /// Names of values, of kinds that have few.
    named: HashMap<String, Shown>,
}

impl Order {
    fn of(name: &Name) -> Self {
        const NAMED_BITS: u32 = 16;
        let mut kinds: Vec<FieldKind> = name.kind().into_iter().collect();
        if kinds.iter().all(|kind| !matches!(kind, FieldKind::Number(_))) {
            kinds.extend(name.parts.iter().map(|part| part.kind));
        }
        kinds.sort_unstable();
        kinds.dedup();
        let mut named = HashMap::new();
        for &kind in &kinds {
            let is_plain = matches!(
                kind,
                FieldKind::Ipv4 | FieldKind::Ipv6 | FieldKind::Mac | FieldKind::Number(_)
            );
            if !is_plain && kind.most() < 1 << NAMED_BITS {
                for value in 0..=kind.most() {
                    let shown = Shown(kind, value);
                    named.entry(shown.to_string()).or_insert(shown);
                }
            }
        }
        Self { kinds, named }
    }

    fn value(&self, text: &str) -> Value {
        if let Some(&shown) = self.named.get(text) {
            return Value::Field(shown);
        }
        let plain = self.kinds.iter().find_map(|&kind| {
            let value = match kind {
                FieldKind::Ipv4 => text.parse::<std::net::Ipv4Addr>().ok()?.to_bits().into(),
                FieldKind::Ipv6 => text.parse::<std::net::Ipv6Addr>().ok()?.to_bits(),
                FieldKind::Mac => u128::from_str_radix(&text.replace(':', ""), 16).ok()?,
                FieldKind::Number(_) => text.parse().ok()?,
                _ => return None,
            };
            Some(Value::Field(Shown(kind, value)))
        });
        plain.unwrap_or_else(|| Value::Interface(text.to_owned()))
    }
}

/// Packets over time, from the earliest span to the last.
pub fn histogram(parts: &[(String, Histogram)], span_ns: u64) -> Result<Histogram, ClientError> {
    let parts = || parts.iter().map(|(_, part)| part).filter(|part| !part.spans.is_empty());
    let end = |part: &Histogram| {
        let len = (part.spans.len() as u64).saturating_sub(1);
        part.start_ns.saturating_add(len.saturating_mul(span_ns))
    };
    let (Some(first), Some(last)) =
        (parts().map(|part| part.start_ns).min(), parts().map(end).max())
    else {
        return Ok(Histogram::EMPTY);
    };
    let span = span_ns.max(1);
    let many = spans_between(first, last, span);
    let len = usize::try_from(many).ok().filter(|_| many <= SPANS_MAX);
    let Some(len) = len else { return Err(AskError::TooManySpans { spans: many }.into()) };
    let mut counts = vec![0_u64; len];
    for part in parts() {
        let start = usize::try_from((part.start_ns - first) / span).unwrap_or(usize::MAX);
        for (count, more) in counts.iter_mut().skip(start).zip(&part.spans) {
            *count = count.saturating_add(more.packets);
        }
    }
    let spans = spans(first, span, &counts, &[]);
    Ok(Histogram { start_ns: first, span_ns: span, spans, ..Histogram::EMPTY })
}

/// An error if a histogram is not one with spans of this length.
pub(crate) fn check_histogram(part: &Histogram, span_ns: u64) -> Result<(), HttpError> {
    let is_sound = part.spans.is_empty()
        || (part.span_ns == span_ns
            && span_ns > 0
            && part.start_ns.is_multiple_of(span_ns)
            && part.spans.len() as u64 <= SPANS_MAX);
    match is_sound {
        true => Ok(()),
        false => Err(HttpError::Damaged("a histogram with other spans".to_owned())),
    }
}

/// Conversations: the first `most` of all. One that two places have seen is two.
pub fn flows(parts: Vec<(String, Flows)>, order: FlowOrder, most: usize) -> Flows {
    let mut all =
        Flows { flows: Vec::new(), conversations: 0, packets: 0, bytes: 0, other_packets: 0 };
    for (_, part) in parts {
        all.flows.extend(part.flows);
        for (sum, more) in [
            (&mut all.conversations, part.conversations),
            (&mut all.packets, part.packets),
            (&mut all.bytes, part.bytes),
            (&mut all.other_packets, part.other_packets),
        ] {
            *sum = sum.saturating_add(more);
        }
    }
    let size = |flow: &Flow| match order {
        FlowOrder::Bytes => flow.client_bytes.saturating_add(flow.server_bytes),
        FlowOrder::Packets => flow.client_packets.saturating_add(flow.server_packets),
        FlowOrder::Duration => flow.duration.0,
        FlowOrder::Start => 0,
    };
    all.flows.sort_by_key(|flow| (Reverse(size(flow)), flow.start));
    all.flows.truncate(most);
    all
}

/// How each place answers a filter.
pub fn explanations(parts: Vec<(String, Explained)>) -> Explanations {
    let of = |(node, part): (String, Explained)| OfNode { node, value: part.explain };
    Explanations { explain: parts.into_iter().map(of).collect() }
}
