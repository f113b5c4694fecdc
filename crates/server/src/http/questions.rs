//! Answers that are made in memory: count, top, histogram, flows, explain.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::{Response, StatusCode};
use tapdex_answers::ask::{SpanLen, unequal};
use tapdex_answers::lines::By;
use tapdex_engine::fields::{self, Name};
use tapdex_engine::query::{Control, FlowOrder, Query, Value};
use tokio::sync::oneshot;

use super::error::ApiError;
use super::identity::{forced, is_limited};
use super::params::{Params, shown};
use super::source::AskSource;
use super::{App, Asked, Endpoint, json};
use crate::door::Turn;
use crate::lanes::Weight;

/// The most values of a field, and the most conversations, in an answer.
pub(super) const LINES_MAX: usize = 1 << 20;
/// The most values that a histogram tells apart.
const STACK_MAX: usize = 32;
/// The most fields that are counted for one question.
const FIELDS_MAX: usize = 16;

/// What is asked about the packets that match.
pub(super) enum Kind {
    Count,
    Top { names: Vec<&'static Name>, by: By, most: usize, time: Option<Duration> },
    Histogram { len: SpanLen, by: By, stack: Option<(&'static Name, usize)> },
    Flows { order: FlowOrder, most: usize, whole: bool },
    Explain,
}

impl Kind {
    pub(super) fn read(endpoint: Endpoint, params: &mut Params) -> Result<Self, ApiError> {
        Ok(match endpoint {
            Endpoint::Top => Self::Top {
                names: names(params)?,
                by: by(params)?,
                most: most(params)?,
                time: params.get("budget_ms", "milliseconds")?.map(Duration::from_millis),
            },
            Endpoint::Histogram => {
                let (len, by) = (span(params)?, by(params)?);
                let most = params.get("stack_n", "a number")?.unwrap_or(5);
                let stack = params.text("stack").map(|text| name(&text)).transpose()?;
                Self::Histogram { len, by, stack: stack.map(|name| (name, STACK_MAX.min(most))) }
            }
            Endpoint::Flows => Self::Flows {
                order: match params.text("sort").as_deref() {
                    None | Some("bytes") => FlowOrder::Bytes,
                    Some("packets") => FlowOrder::Packets,
                    Some("duration") => FlowOrder::Duration,
                    Some("start") => FlowOrder::Start,
                    Some(other) => {
                        let expected = "expected bytes, packets, duration or start";
                        return Err(ApiError::bad(format!("sort={}: {expected}", shown(other))));
                    }
                },
                most: most(params)?,
                whole: params.flag("whole")?,
            },
            Endpoint::Explain => Self::Explain,
            _ => Self::Count,
        })
    }

    /// Whether packets are read for it.
    fn weight(&self, query: &Query) -> Weight {
        let reads = match self {
            Self::Flows { order, whole, .. } => {
                *whole || matches!(order, FlowOrder::Duration | FlowOrder::Start)
            }
            _ => false,
        };
        if reads || query.reads_packets() { Weight::Heavy } else { Weight::Light }
    }
}

/// What is counted.
fn by(params: &mut Params) -> Result<By, ApiError> {
    match params.text("by").as_deref() {
        None | Some("packets") => Ok(By::Packets),
        Some("bytes") => Ok(By::Bytes),
        Some(other) => {
            Err(ApiError::bad(format!("by={}: expected packets or bytes", shown(other))))
        }
    }
}

/// The fields that there are, for whoever has named another one.
fn field_hint() -> String {
    let names = fields::NAMES.iter().filter_map(|name| name.top.first().copied());
    format!("fields: {}", names.collect::<Vec<_>>().join(", "))
}

fn name(text: &str) -> Result<&'static Name, ApiError> {
    let name = text.trim();
    let error = || ApiError::bad(format!("there is no field {}", shown(name)));
    fields::for_top(name).ok_or_else(|| error().with_hint(field_hint()))
}

fn names(params: &mut Params) -> Result<Vec<&'static Name>, ApiError> {
    let Some(text) = params.text("field") else {
        return Err(ApiError::bad("field is missing").with_hint(field_hint()));
    };
    let names: Vec<&Name> = text.split(',').map(name).collect::<Result<_, _>>()?;
    match names.len() > FIELDS_MAX {
        true => Err(ApiError::bad(format!("more than {FIELDS_MAX} fields"))),
        false => Ok(names),
    }
}

/// The number of lines that are asked for; 0 is as many as there may be.
fn most(params: &mut Params) -> Result<usize, ApiError> {
    Ok(match params.get("n", "a number")? {
        None => 10,
        Some(0) => LINES_MAX,
        Some(most) => usize::min(most, LINES_MAX),
    })
}

fn span(params: &mut Params) -> Result<SpanLen, ApiError> {
    let ns: Option<u64> = params.get("span_ns", "nanoseconds")?;
    let text = params.text("span");
    let bins: Option<u64> = params.get("bins", "a number")?;
    match (ns, text, bins) {
        (None, None, bins) => Ok(SpanLen::AtMost(bins.unwrap_or(40).clamp(1, 100_000))),
        (Some(ns), None, None) if ns > 0 => Ok(SpanLen::Each(ns)),
        (None, Some(text), None) => {
            let span = tapdex_answers::ask::parse_span(&text);
            let expected = "expected a number and a unit, such as 100us, 10ms, 60s, 5m, 1h, 1d";
            let error = || ApiError::bad(format!("span={}: {expected}", shown(&text)));
            span.map(SpanLen::Each).ok_or_else(error)
        }
        _ => Err(ApiError::bad("give one of span, span_ns and bins")),
    }
}

/// A value for people; nobody outside needs to know where captures are.
pub fn value_text(value: &Value) -> String {
    match value {
        Value::UnnamedInterface { capture, number } => {
            let name = capture.file_name().map(|name| name.to_string_lossy().into_owned());
            format!("{number} of {}", name.unwrap_or_default())
        }
        value => value.to_string(),
    }
}

pub(super) async fn answer(
    app: &Arc<App>,
    endpoint: Endpoint,
    asked: Asked,
    turn: Turn,
) -> Result<Response<Body>, ApiError> {
    let Asked { identity, mut params, now_ns, .. } = asked;
    let question = params.question()?;
    drop(params.text("reason"));
    let kind = Kind::read(endpoint, &mut params)?;
    params.finish()?;
    let role = identity.role();
    let query = forced(role, &question, now_ns)?;
    let limited = is_limited(role, now_ns);
    if matches!(kind, Kind::Flows { whole: true, .. }) && !role.forced_filters().is_empty() {
        return Err(ApiError::forbidden(
            "your role sees packets of its filter only, not the others",
        ));
    }
    let weight = kind.weight(&query);
    let time = role
        .limits()
        .time
        .map_or(app.settings.answer_time, |time| Duration::min(time, app.settings.answer_time));
    within(app, weight, identity.name(), time, turn, move |app, control| {
        let (source, query) = (&app.source, &query);
        let ask = AskSource { source, query, control, is_limited: limited };
        Ok(match &kind {
            Kind::Count => json(&ask.count()?),
            Kind::Top { names, by, most, time } => json(&ask.top(names, *by, *most, *time)?),
            Kind::Histogram { len, by, stack } => json(&ask.histogram(*len, *by, *stack)?),
            Kind::Flows { order, most, whole } => json(&ask.flows(*order, *most, *whole)?),
            Kind::Explain => {
                let mut answer = ask.explain()?;
                answer.value.explain.notes.splice(0..0, unequal(&question.q, query));
                json(&answer)
            }
        })
    })
    .await
}

/// Cancels a search when it is dropped: when its client has gone away.
pub(super) struct CancelOnDrop(pub(super) Control);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

/// Waits for a place, then works on a thread until there is an answer, time is up, or the client
/// goes away.
pub(super) async fn within(
    app: &Arc<App>,
    weight: Weight,
    who: &str,
    time: Duration,
    turn: Turn,
    work: impl FnOnce(&App, &Control) -> Result<Response<Body>, ApiError> + Send + 'static,
) -> Result<Response<Body>, ApiError> {
    let control = Control::default();
    let gone = CancelOnDrop(control.clone());
    let deadline = tokio::time::sleep(time);
    let answer = async {
        let full = |_| {
            let text = "too many questions are waiting already";
            ApiError::new(StatusCode::TOO_MANY_REQUESTS, text).with_retry(5)
        };
        let place = app.lanes.enter(weight, who).await.map_err(full)?;
        let (own, shared) = (Arc::clone(app), control.clone());
        let (done, answer) = oneshot::channel();
        let task = move || {
            // Both are free only when the work has ended, not when its client has gone.
            let _held = (place, turn);
            // A panic was shown; whoever waits is told by the end of the channel.
            let answer = catch_unwind(AssertUnwindSafe(|| work(&own, &shared)));
            if let Ok(answer) = answer {
                drop(done.send(answer));
            }
        };
        match weight {
            Weight::Light => app.light.spawn(task),
            // The pool of the process gives way to others.
            Weight::Heavy => rayon::spawn(task),
        }
        answer.await.unwrap_or_else(|_| Err(ApiError::failed()))
    };
    let answer = tokio::select! {
        answer = answer => answer,
        () = deadline => {
            let text = format!("no answer within {} s", time.as_secs_f64());
            let hint = "narrow the filter or the times";
            Err(ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, text).with_hint(hint))
        }
    };
    drop(gone);
    answer
}

#[cfg(test)]
mod tests {
    use crate::http::testing::try_request;

    /// A stream of numbers that looks random.
    struct Random(u64);

    impl Random {
        fn next(&mut self, below: usize) -> usize {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            usize::try_from(self.0 % below as u64).unwrap()
        }

        fn pick<'a>(&mut self, words: &[&'a str]) -> &'a str {
            words[self.next(words.len())]
        }
    }

    const NAMES: [&str; 24] = [
        "q",
        "syntax",
        "from",
        "to",
        "utc",
        "through_tags",
        "reason",
        "field",
        "by",
        "n",
        "span",
        "span_ns",
        "bins",
        "sort",
        "whole",
        "limit_packets",
        "limit_bytes",
        "format",
        "follow",
        "",
        "Q",
        "q%00",
        "id",
        "statistics",
    ];
    const VALUES: [&str; 48] = [
        "",
        "0",
        "1",
        "-1",
        "true",
        "false",
        "18446744073709551616",
        "1e9",
        "udp",
        "tcp or udp",
        ") or (tcp",
        "not udp port 53",
        "vlan and tcp",
        "udp%20port%2053",
        "%ff%fe",
        "%",
        "%2",
        "ip.addr == 10.0.0.0/8",
        "tcp.port in {80, 443}",
        "ip[0] > 0",
        "len > 0",
        "pcap",
        "wireshark",
        "auto",
        "-1h",
        "now",
        "3h ago",
        "2026-01-05",
        "2026-01-05T08:00:00.05Z",
        "9999-12-31T23:59:59Z",
        "src",
        "src,dst",
        "src,,dst",
        "port.dst",
        "nothing",
        "packets",
        "bytes",
        "duration",
        "60s",
        "0s",
        "1ns",
        "99999999999d",
        "pcapng",
        "\u{0}",
        "\u{1f600}",
        "after 3h ago and tcp",
        "host 1.2.3.4 # x",
        "((((((((",
    ];

    fn address(random: &mut Random) -> String {
        let pairs = (0..random.next(6)).map(|_| {
            let mut value = random.pick(&VALUES).to_owned();
            for _ in 0..random.next(3) {
                let at = random.next(value.len() + 1);
                if value.is_char_boundary(at) {
                    value.insert_str(at, random.pick(&VALUES));
                }
            }
            format!("{}{}{value}", random.pick(&NAMES), random.pick(&["=", "=", "=", ""]))
        });
        pairs.collect::<Vec<_>>().join("&")
    }

    /// Parameters are understood or refused, and no question of a role leaves out its filter.
    /// `TAPDEX_FUZZ` is how many are tried.
    #[test]
    fn any_parameters_are_understood_or_refused() {
        let many = std::env::var("TAPDEX_FUZZ").map_or(50_000, |text| text.parse().unwrap());
        let mut random = Random(0x9E37_79B9_7F4A_7C15);
        let (mut understood, mut refused) = (0_u64, 0_u64);
        for _ in 0..many {
            let text = address(&mut random);
            match try_request(random.next(256), &text, b"") {
                true => understood += 1,
                false => refused += 1,
            }
        }
        assert!(understood > many / 50 && refused > many / 50, "{understood} {refused}");
    }
}
