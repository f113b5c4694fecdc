//! What there is: segments, status, fields, interfaces, and single packets.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::sync::Arc;

use axum::body::Body;
use axum::http::Response;
use serde::Serialize;
use tapdex_answers::deliver::packet_id;
use tapdex_answers::inventory::recorder;
use tapdex_answers::json::Time;
use tapdex_answers::layers::{Layer, layers};
use tapdex_answers::lines::{Packet, Recorder};
use tapdex_engine::archive::{Archive, Segment};
use tapdex_engine::fields::NAMES;
use tapdex_engine::packet::Headers;
use tapdex_engine::query::filter::Filter;
use tapdex_engine::query::{Control, Query};
use tapdex_engine::time::TimeRange;
use tapdex_record::metrics::Histogram;
use tapdex_record::status::Status;

use super::error::ApiError;
use super::identity::is_limited;
use super::questions::within;
use super::streams::file_name;
use super::{App, Asked, Endpoint, json};
use crate::audit::Entry;
use crate::door::roles::May;
use crate::door::{Identity, Turn};
use crate::lanes::Weight;

/// The server and its recorder.
#[derive(Debug, Serialize)]
struct ServerStatus {
    node: String,
    version: &'static str,
    now: Time,
    who: String,
    role: String,
    may: &'static str,
    /// What the role forces on questions.
    filters: Vec<String>,
    from: Option<Time>,
    to: Option<Time>,
    limited: bool,
    /// The traffic was made up by `tapdex demo`.
    demo: bool,
    kept: Option<Kept>,
    recorder: Option<Recorder>,
    /// Places that answer as one.
    nodes: Vec<String>,
}

/// The most lines of the audit log in an answer.
const AUDIT_MAX: usize = 10_000;

/// What is asked and given out.
#[derive(Debug, Serialize)]
struct AuditLines {
    entries: Vec<serde_json::Value>,
    lines: u64,
    wrong: Option<String>,
}

/// What is kept, summed up.
#[derive(Debug, Serialize)]
struct Kept {
    packets: u64,
    wire_bytes: u64,
    index_bytes: u64,
    segments: u64,
    first: Option<Time>,
    last: Option<Time>,
}

/// A field that packets can be counted by.
#[derive(Debug, Serialize)]
struct FieldLine {
    field: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    wireshark: Option<&'static str>,
    pcap: &'static str,
    about: &'static str,
}

/// An interface that packets came from.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
struct InterfaceLine {
    name: String,
    description: String,
    /// Not known before the first packet.
    #[serde(skip_serializing_if = "Option::is_none")]
    link: Option<String>,
}

/// A packet with its bytes, for those who may see them.
#[derive(Debug, Serialize)]
struct OnePacket<'a> {
    packet: Packet<'a>,
    link: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    hex: Option<String>,
    /// Its headers, field by field.
    layers: Vec<Layer>,
}

pub(super) async fn answer(
    app: &Arc<App>,
    endpoint: Endpoint,
    asked: Asked,
    turn: Turn,
) -> Result<Response<Body>, ApiError> {
    let Asked { identity, mut params, id, now_ns, .. } = asked;
    drop(params.text("reason"));
    let most = match endpoint {
        Endpoint::Audit => params.get("n", "a number")?.unwrap_or(100),
        _ => 0,
    };
    params.finish()?;
    let (time, who) = (app.settings.answer_time, identity.name().to_owned());
    within(app, Weight::Light, &who, time, turn, move |app, control| match endpoint {
        Endpoint::Segments => {
            let inventory = app.source.inventory(&app.settings.name, control);
            let inventory = inventory.map_err(ApiError::from)?;
            Ok(json(&inventory))
        }
        Endpoint::Status => Ok(json(&status(app, &identity, now_ns, control))),
        Endpoint::Fields => Ok(json(&fields())),
        Endpoint::Audit => audit_lines(app, most),
        Endpoint::Interfaces => interfaces(app),
        _ => packet(app, &identity, &id, now_ns),
    })
    .await
}

/// Who asks, what is served, and its recorder.
fn status(app: &App, identity: &Identity, now_ns: u64, control: &Control) -> ServerStatus {
    let role = identity.role();
    let limited = is_limited(role, now_ns);
    let times = role.times(now_ns);
    ServerStatus {
        node: app.settings.name.clone(),
        version: env!("CARGO_PKG_VERSION"),
        now: Time(now_ns),
        who: identity.name().to_owned(),
        role: role.name().to_owned(),
        may: role.may().name(),
        filters: role.forced_filters().to_vec(),
        from: (times.from_ns > 0).then_some(Time(times.from_ns)),
        to: times.to_ns.map(Time),
        limited,
        demo: app.settings.is_demo,
        kept: if limited { None } else { kept(app, control) },
        recorder: if limited { None } else { running(app) },
        nodes: if limited { Vec::new() } else { app.source.places() },
    }
}

fn kept(app: &App, control: &Control) -> Option<Kept> {
    let of = |sum: tapdex_answers::lines::Archive| Kept {
        packets: sum.packets,
        wire_bytes: sum.wire_bytes,
        index_bytes: sum.index_bytes,
        segments: sum.segments,
        first: sum.first,
        last: sum.last,
    };
    let Some(archive) = app.source.archive() else {
        return app.source.inventory(&app.settings.name, control).ok().map(|all| of(all.archive));
    };
    let survey = archive.survey(TimeRange::ALL).ok()?;
    let segments = || survey.segments.iter().filter(|segment| segment.note().records > 0);
    let sum = |of: &dyn Fn(&Segment) -> u64| segments().map(|segment| of(segment)).sum();
    Some(Kept {
        packets: sum(&|segment| segment.note().records),
        wire_bytes: sum(&|segment| segment.note().wire_bytes),
        index_bytes: sum(&|s| if s.is_draft() { 0 } else { s.index().len_bytes() }),
        segments: segments().count() as u64,
        first: segments().map(|segment| Time(segment.note().time_min)).min(),
        last: segments().map(|segment| Time(segment.note().time_max)).max(),
    })
}

/// The recorder: that of this process, or what another one has left in the archive.
fn running(app: &App) -> Option<Recorder> {
    match &app.settings.recorder {
        Some(own) => own.status().map(|status| Recorder::new(&status, !status.ended)),
        None => app.source.archive().and_then(recorder),
    }
}

fn fields() -> Vec<FieldLine> {
    let line = |name: &tapdex_engine::fields::Name| {
        let field = name.top.first().copied()?;
        Some(FieldLine { field, wireshark: name.wireshark, pcap: name.pcap, about: name.about })
    };
    NAMES.iter().filter_map(line).collect()
}

fn interfaces(app: &App) -> Result<Response<Body>, ApiError> {
    let survey = of_one(app)?.survey(TimeRange::ALL).map_err(|_| ApiError::failed())?;
    let mut lines = BTreeSet::new();
    for segment in &survey.segments {
        for interface in &segment.note().layout.interfaces {
            let line = InterfaceLine {
                name: interface.name.clone(),
                description: interface.description.clone(),
                link: Some(tapdex_engine::packet::LinkType(interface.link).to_string()),
            };
            lines.insert(line);
        }
    }
    // Those that are being recorded from, and have given no packet yet.
    let status = app.settings.recorder.as_ref().and_then(|recorder| recorder.status());
    for source in status.map(|status| status.sources).unwrap_or_default() {
        if !lines.iter().any(|line: &InterfaceLine| line.name == source.name) {
            let (name, description) = (source.name, String::new());
            lines.insert(InterfaceLine { name, description, link: None });
        }
    }
    Ok(json(&lines.into_iter().collect::<Vec<_>>()))
}

/// The last lines of the audit log, the newest first, and whether its chain holds.
fn audit_lines(app: &App, most: usize) -> Result<Response<Body>, ApiError> {
    let failed = |_| ApiError::failed();
    let report = app.audit.verify().map_err(failed)?;
    let entries = app.audit.tail(most.min(AUDIT_MAX)).map_err(failed)?;
    let wrong = report.wrong.map(|wrong| match wrong.line {
        Some(line) => format!("line {line}: {}", wrong.why),
        None => wrong.why.to_string(),
    });
    Ok(json(&AuditLines { entries, lines: report.lines, wrong }))
}

/// The archive, if there is a single one.
fn of_one(app: &App) -> Result<&Archive, ApiError> {
    let text = "this server stands in front of others; ask the one that has the packets";
    app.source.archive().ok_or_else(|| ApiError::not_found(text))
}

/// A packet by its id: that of its segment, and its number there.
fn packet(
    app: &App,
    identity: &Identity,
    id: &str,
    now_ns: u64,
) -> Result<Response<Body>, ApiError> {
    let missing = || ApiError::not_found("there is no such packet, or you may not see it");
    let number = id.rsplit_once(':').and_then(|(_, number)| number.parse::<u32>().ok());
    let number = number.ok_or_else(missing)?;
    let survey = of_one(app)?.survey(TimeRange::ALL).map_err(|_| ApiError::failed())?;
    let segment = survey.segments.iter().find(|segment| packet_id(segment, number) == id);
    let segment = segment.ok_or_else(missing)?;
    if u64::from(number) >= segment.note().records {
        return Err(missing());
    }
    let all = Filter::parse("", now_ns).map_err(|_| ApiError::failed())?;
    let query: Query = identity.role().force(&all, TimeRange::ALL, now_ns)?;
    let mut found = None;
    let name = file_name(segment);
    let before = segment.note().source.records_before;
    let mut packets = segment.packets().map_err(|_| missing())?;
    let unread = packets.for_each([number], &mut |_, record| {
        let mut headers = Headers::default();
        if query.scan(record, &mut headers).unwrap_or(false) {
            let in_file = before.saturating_add(u64::from(number)).saturating_add(1);
            let mut line = Packet::new(&name, in_file, *record);
            id.clone_into(&mut line.id);
            let hex = identity.check(May::Extract).is_ok().then(|| {
                let mut text = String::with_capacity(2 * record.data.len());
                for byte in record.data {
                    let _ = write!(text, "{byte:02x}");
                }
                text
            });
            let sha256 = hex.as_ref().map(|_| sha256_of(record.data));
            let link = record.link.to_string();
            let layers = layers(record.link, record.swapped, record.data);
            found = Some((OnePacket { packet: line, link, hex, layers }, sha256));
        }
        Ok(false)
    });
    let is_sound = unread.is_ok_and(|unread| unread.into_errors().is_empty());
    let Some((packet, sha256)) = found.filter(|_| is_sound) else { return Err(missing()) };
    let mut entry = Entry::new(identity, "packet", "done");
    entry.reason = Some(format!("packet {id}"));
    entry.packets = Some(1);
    entry.bytes = packet.hex.as_ref().map(|hex| hex.len() as u64 / 2);
    entry.sha256 = sha256;
    if app.audit.append(&entry, now_ns).is_err() {
        let text = "the audit log cannot be written, so nothing is given out";
        return Err(ApiError::new(axum::http::StatusCode::SERVICE_UNAVAILABLE, text));
    }
    Ok(json(&packet))
}

fn sha256_of(bytes: &[u8]) -> String {
    use sha2::{Digest, Sha256};
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The numbers of the recorder, if there is one.
pub(super) fn recorder_metrics(app: &App) -> String {
    if let Some(own) = &app.settings.recorder {
        return own.exposition();
    }
    let running = app.source.archive().filter(|archive| Status::is_running(archive));
    match running.and_then(Status::read) {
        Some(status) => status.exposition(&Histogram::new(&[])),
        None => String::new(),
    }
}
