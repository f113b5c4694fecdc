//! Packets as they are found: as lines, and as captures.

use std::io::{self, Write};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use axum::body::{Body, Bytes};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode, header};
use tapdex_answers::ask::Answer;
use tapdex_answers::capture::Limits;
use tapdex_answers::deliver::{DeliverError, Delivered, Delivery, now_ns};
use tapdex_answers::json;
use tapdex_answers::lines::Packet;
use tapdex_answers::question::Question;
use tapdex_client::ClientError;
use tapdex_engine::archive::Segment;
use tapdex_engine::capture::FileFormat;
use tapdex_engine::query::{Control, Query, SearchError};

use super::answers::{Outcome, owner};
use super::blocks::Blocks;
use super::error::ApiError;
use super::identity::{check, forced, is_limited, name};
use super::params::shown;
use super::pipe::{End, Sink, Source, pipe};
use super::source::AskSource;
use super::{App, Asked, Endpoint};
use crate::audit::{Entry, Question as Audited};
use crate::door::{Identity, Turn};
use crate::lanes::{Place, Weight, give_way};

/// With at most this many packets, a question that the index answers is a light one.
const LIGHT_PACKETS: u64 = 1_000;
/// How often it is checked whether somebody who takes a stream still may.
const RECHECK_MS: u64 = 1_000;
/// How often a stream without packets shows that it is alive.
const ALIVE: Duration = Duration::from_secs(1);
/// The longest text of a reason.
const REASON_LEN_MAX: usize = 1_000;

/// What is to be streamed.
struct Stream {
    identity: Identity,
    endpoint: Endpoint,
    query: Query,
    /// The question as it was asked.
    question: Question,
    reason: Option<String>,
    form: Form,
    limits: Limits,
    follow: bool,
    /// Whether the role sees a part of the archive only.
    is_limited: bool,
    time: Option<Duration>,
}

/// How packets are written.
#[derive(Clone, Copy)]
enum Form {
    Lines,
    Capture { format: FileFormat, whole: bool, statistics: bool },
}

impl Stream {
    fn weight(&self) -> Weight {
        let few = self.limits.packets.is_some_and(|most| most <= LIGHT_PACKETS);
        let whole = matches!(self.form, Form::Capture { whole: true, .. });
        // One that follows does not end by itself, whatever it is limited to.
        match few && !whole && !self.follow && !self.query.reads_packets() {
            true => Weight::Light,
            false => Weight::Heavy,
        }
    }

    fn entry(&self, outcome: &str) -> Entry {
        let mut entry = Entry::new(&self.identity, name(self.endpoint), outcome);
        let asked = Audited {
            filter: self.question.q.clone(),
            from: self.question.from.clone(),
            to: self.question.to.clone(),
            ..Audited::default()
        };
        entry.question = Some(asked.forced(self.query.text(), self.query.times()));
        entry.reason = self.reason.clone();
        entry
    }
}

/// Both limits: what was asked for, and what the role allows.
pub(super) fn limit(asked: Option<u64>, role: Option<u64>) -> Option<u64> {
    match (asked, role) {
        (Some(asked), Some(role)) => Some(asked.min(role)),
        (asked, role) => asked.or(role),
    }
}

/// A line for each packet, and one at the end.
pub(super) async fn search(
    app: &Arc<App>,
    asked: Asked,
    turn: Turn,
) -> Result<Response<Body>, ApiError> {
    let Asked { identity, mut params, now_ns, .. } = asked;
    let question = params.question()?;
    let most = params.get("limit_packets", "a number of packets")?;
    let follow = params.flag("follow")?;
    let reason = reason(params.text("reason"));
    params.finish()?;
    let limits = identity.role().limits();
    let stream = Stream {
        endpoint: Endpoint::Search,
        query: forced(identity.role(), &question, now_ns)?,
        question,
        reason,
        form: Form::Lines,
        limits: Limits { packets: limit(most, limits.packets), bytes: None },
        follow,
        is_limited: is_limited(identity.role(), now_ns),
        time: limits.time,
        identity,
    };
    start(app, stream, turn, "application/x-ndjson").await
}

/// A capture.
pub(super) async fn packets(
    app: &Arc<App>,
    asked: Asked,
    turn: Turn,
    live: bool,
) -> Result<Response<Body>, ApiError> {
    let Asked { identity, mut params, now_ns, .. } = asked;
    let mut question = params.question()?;
    let format = match params.text("format").as_deref() {
        None | Some("pcapng") => FileFormat::Pcapng,
        Some("pcap") => FileFormat::Pcap,
        Some(other) => {
            let text = format!("format={}: expected pcapng or pcap", shown(other));
            return Err(ApiError::bad(text));
        }
    };
    let packets = params.get("limit_packets", "a number of packets")?;
    let bytes = params.get("limit_bytes", "a number of bytes")?;
    let whole = params.flag("whole")?;
    let follow = params.flag("follow")? || live;
    let statistics = params.text("statistics").is_none_or(|text| text != "false");
    let reason = reason(params.text("reason"));
    params.finish()?;
    if live && question.from.is_none() {
        question.from = Some("now".to_owned());
    }
    if whole && follow {
        return Err(ApiError::bad("whole conversations cannot be followed"));
    }
    let role = identity.role();
    if whole && !role.forced_filters().is_empty() {
        let text = "your role sees packets of its filter only, not those of whole conversations";
        return Err(ApiError::forbidden(text));
    }
    let limits = role.limits();
    let is_limited = is_limited(role, now_ns);
    let stream = Stream {
        endpoint: if live { Endpoint::Live } else { Endpoint::Packets },
        query: forced(role, &question, now_ns)?,
        question,
        reason,
        form: Form::Capture { format, whole, statistics: statistics && !is_limited },
        limits: Limits {
            packets: limit(packets, limits.packets),
            bytes: limit(bytes, limits.bytes),
        },
        follow,
        is_limited,
        time: limits.time,
        identity,
    };
    let kind = match format {
        FileFormat::Pcapng => "application/x-pcapng",
        _ => "application/vnd.tcpdump.pcap",
    };
    start(app, stream, turn, kind).await
}

/// A question in Stenographer's language, which is a part of ours, with its headers.
///
/// Stenographer looks behind VLAN tags, so this does as well, unless the question is about tags.
pub(super) async fn stenographer(
    app: &Arc<App>,
    asked: Asked,
    body: &Bytes,
    turn: Turn,
) -> Result<Response<Body>, ApiError> {
    let Asked { identity, headers, now_ns, .. } = asked;
    let number = |name: &'static str| {
        let Some(value) = headers.get(name) else { return Ok(None) };
        let number = value.to_str().ok().and_then(|text| text.trim().parse::<u64>().ok());
        let error = || ApiError::bad(format!("{name}: expected a number"));
        // There, 0 is no limit.
        number.map(|number| Some(number).filter(|&n| n > 0)).ok_or_else(error)
    };
    let (packets, bytes) = (number("steno-limit-packets")?, number("steno-limit-bytes")?);
    let question = stenographer_question(body)?;
    let role = identity.role();
    let limits = role.limits();
    let stream = Stream {
        endpoint: Endpoint::Stenographer,
        query: forced(role, &question, now_ns)?,
        question,
        reason: None,
        form: Form::Capture { format: FileFormat::Pcap, whole: false, statistics: false },
        limits: Limits {
            packets: limit(packets, limits.packets),
            bytes: limit(bytes, limits.bytes),
        },
        follow: false,
        is_limited: is_limited(role, now_ns),
        time: limits.time,
        identity,
    };
    start(app, stream, turn, "application/octet-stream").await
}

/// The question in a query of Stenographer's.
pub(super) fn stenographer_question(body: &[u8]) -> Result<Question, ApiError> {
    let text = std::str::from_utf8(body).map_err(|_| ApiError::bad("the query is not UTF-8"))?;
    let is_about_tags = text
        .split(|c: char| !c.is_ascii_alphanumeric())
        .any(|word| ["vlan", "mpls"].contains(&word));
    Ok(Question {
        q: text.trim().to_owned(),
        syntax: Some(tapdex_answers::question::Language::Pcap),
        utc: true,
        through_tags: !is_about_tags,
        ..Question::default()
    })
}

/// A capture without a request: the packets of a question, then others as they are recorded.
pub(super) async fn over_ip(
    app: &Arc<App>,
    peer: SocketAddr,
    question: &Question,
    is_vouched: bool,
) -> Result<Body, ApiError> {
    let (now_ns, endpoint) = (now_ns(), Endpoint::PcapOverIp);
    if app.is_stopping() {
        return Err(ApiError::failed());
    }
    let identity = match is_vouched {
        true => app.door.admit_vouched(name(endpoint), peer)?,
        false => app.door.admit(None, None, peer, now_ns)?,
    };
    check(app, &identity, endpoint)?;
    let turn = identity.begin(now_ns)?;
    let role = identity.role();
    let limits = role.limits();
    let stream = Stream {
        endpoint,
        query: forced(role, question, now_ns)?,
        question: question.clone(),
        reason: None,
        form: Form::Capture { format: FileFormat::Pcapng, whole: false, statistics: false },
        limits: Limits { packets: limits.packets, bytes: limits.bytes },
        follow: true,
        is_limited: is_limited(role, now_ns),
        time: limits.time,
        identity,
    };
    let response = start(app, stream, turn, "application/x-pcapng").await?;
    Ok(response.into_body())
}

pub(super) fn reason(text: Option<String>) -> Option<String> {
    let text = text.filter(|text| !text.trim().is_empty())?;
    Some(text.chars().take(REASON_LEN_MAX).collect())
}

/// A place among all streams.
pub(super) struct Counted(Arc<App>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.streams.fetch_sub(1, Ordering::Relaxed);
    }
}

pub(super) fn count_stream(app: &Arc<App>) -> Result<Counted, ApiError> {
    let most = u64::try_from(app.settings.streams).unwrap_or(u64::MAX);
    let counted = Counted(Arc::clone(app));
    match app.streams.fetch_add(1, Ordering::Relaxed) >= most {
        true => {
            let text = "too many streams are under way";
            Err(ApiError::new(StatusCode::TOO_MANY_REQUESTS, text).with_retry(10))
        }
        false => Ok(counted),
    }
}

async fn start(
    app: &Arc<App>,
    stream: Stream,
    turn: Turn,
    kind: &'static str,
) -> Result<Response<Body>, ApiError> {
    let weight = stream.weight();
    // Light ones are over soon, whether their client takes them or not.
    let counted = match weight {
        Weight::Light => None,
        Weight::Heavy => Some(count_stream(app)?),
    };
    let full = |_| {
        let text = "too many questions are waiting already";
        ApiError::new(StatusCode::TOO_MANY_REQUESTS, text).with_retry(5)
    };
    // Before anything is given out: what cannot be written down is not given. Of a few lines, the
    // last one waits until they are written down; that is enough.
    if weight == Weight::Heavy || !matches!(stream.form, Form::Lines) {
        append(app, &stream.entry("started")).await?;
    }
    let place = app.lanes.enter(weight, stream.identity.name()).await.map_err(full)?;
    let id = app.registry.start(&owner(&stream.identity))?;
    let control = Control::default();
    let (source, sink) = pipe(&control, app.settings.stall_time);
    let work = Work { app: Arc::clone(app), control, id: id.clone(), _held: (turn, counted) };
    match weight {
        // It is over soon; starting a thread would take as long.
        Weight::Light => {
            drop(tokio::task::spawn_blocking(move || work.run(&stream, source, place)))
        }
        Weight::Heavy => {
            let thread = std::thread::Builder::new().name("stream".to_owned());
            let spawned = thread.spawn(move || {
                // For good, so that the thread can do nothing else afterwards.
                give_way();
                work.run(&stream, source, place);
            });
            spawned.map_err(|_| ApiError::failed())?;
        }
    }
    Ok(response(sink, kind, &id))
}

/// Writes a line of the audit log; an error means that nothing may be given out.
pub(super) async fn append(app: &Arc<App>, entry: &Entry) -> Result<(), ApiError> {
    match app.audit.append_async(entry, now_ns()).await {
        Ok(_) => Ok(()),
        Err(_) => {
            let text = "the audit log cannot be written, so nothing is given out";
            Err(ApiError::new(StatusCode::SERVICE_UNAVAILABLE, text))
        }
    }
}

const TRAILERS: &str = "tapdex-packets, tapdex-bytes, tapdex-sha256, tapdex-complete";

fn response(sink: Sink, kind: &'static str, id: &str) -> Response<Body> {
    let mut response = Response::new(Body::new(sink));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(header::TRAILER, HeaderValue::from_static(TRAILERS));
    if let Ok(id) = HeaderValue::from_str(id) {
        headers.insert(HeaderName::from_static("tapdex-answer"), id);
    }
    response
}

/// A stream that is under way.
struct Work {
    app: Arc<App>,
    control: Control,
    id: String,
    _held: (Turn, Option<Counted>),
}

impl Work {
    fn run(self, stream: &Stream, source: Source, place: Place) {
        let watch = Watch::new(&self.app, &stream.identity, stream.time);
        let stop = || watch.is_over() || self.control.is_cancelled();
        let blocks = Blocks::default();
        let mut target = Target { source, blocks, place: Some(place), work: &self, stream };
        let delivered = self.deliver(stream, &mut target, &stop);
        let Target { mut source, blocks, place, .. } = target;
        drop(place);
        let delivered = match delivered {
            // It was told to stop in the middle: a part, which must not be taken for all.
            Ok(_) if watch.is_refused() => Err("not allowed any more".to_owned()),
            Ok(_) if !stream.follow && watch.is_late() => {
                Err("it took longer than it may".to_owned())
            }
            Ok(_) if !stream.follow && self.app.is_stopping() => {
                Err("the server was stopped".to_owned())
            }
            Ok(_) if source.is_closed() => Err("the client went away".to_owned()),
            Ok(answer) => Ok(answer),
            Err(_) if source.is_closed() => Err("the client went away".to_owned()),
            Err(error) => Err(told(&error)),
        };
        let is_gone = source.is_closed();
        let outcome = match (&delivered, is_gone) {
            (Ok(_), _) => "done",
            (Err(_), true) => "left",
            (Err(_), false) => "failed",
        };
        if let (Form::Lines, false) = (stream.form, is_gone) {
            // If the client goes away now, it misses only this.
            let written = match &delivered {
                Ok(answer) => {
                    let sha256 = source.sha256();
                    json::line(&mut source, &LastLine { end: answer, sha256 })
                }
                Err(error) => json::line(&mut source, &ErrorLine { error }),
            };
            drop(written);
        }
        let (bytes, sha256) = (source.bytes(), source.sha256());
        let mut entry = stream.entry(outcome);
        entry.bytes = Some(bytes);
        entry.sha256 = Some(sha256.clone());
        if let Form::Capture { format: FileFormat::Pcapng, .. } = stream.form {
            // Also of one that broke off: a live one mostly ends when its client leaves.
            entry.packets = Some(blocks.packets());
        }
        if let Ok(answer) = &delivered {
            entry.packets = Some(answer.value.packets);
            entry.complete = Some(answer.complete);
            self.app.counts.packets.fetch_add(answer.value.packets, Ordering::Relaxed);
        }
        self.app.counts.bytes.fetch_add(bytes, Ordering::Relaxed);
        let is_written = self.app.audit.append(&entry, now_ns()).is_ok();
        match delivered {
            Ok(answer) if is_written => {
                let trailers = trailers(&answer, &sha256, bytes);
                self.app.registry.end(&self.id, Outcome::done(answer, sha256, bytes));
                source.end(End::Whole(trailers));
            }
            Ok(_) => {
                let error = "the audit log cannot be written".to_owned();
                self.app.registry.end(&self.id, Outcome::failed(error));
                source.end(End::Broken);
            }
            Err(error) => {
                self.app.registry.end(&self.id, Outcome::failed(error));
                // The last line has told those who read lines.
                match stream.form {
                    Form::Lines => source.end(End::Whole(HeaderMap::new())),
                    Form::Capture { .. } => source.end(End::Broken),
                }
            }
        }
    }

    fn deliver(
        &self,
        stream: &Stream,
        target: &mut Target<'_>,
        stop: &(dyn Fn() -> bool + Sync),
    ) -> Result<Answer<Delivered>, ClientError> {
        let ask = AskSource {
            source: &self.app.source,
            query: &stream.query,
            control: &self.control,
            is_limited: stream.is_limited,
        };
        match stream.form {
            Form::Capture { format, whole, statistics } => {
                let delivery = Delivery {
                    format,
                    limits: stream.limits,
                    whole_conversations: whole,
                    follow: stream.follow,
                    statistics,
                };
                ask.capture(&delivery, target, stop)
            }
            Form::Lines => {
                let mut alive = Instant::now();
                let mut each = |packet: Option<Packet<'_>>| {
                    match packet {
                        Some(packet) => {
                            alive = Instant::now();
                            json::line(target, &packet)?;
                        }
                        None => {
                            if alive.elapsed() > ALIVE {
                                alive = Instant::now();
                                target.write_all(b"\n")?;
                            }
                            target.flush()?;
                        }
                    }
                    Ok(true)
                };
                ask.packets(stream.limits.packets, stream.follow, &mut each, stop)
            }
        }
    }
}

/// The capture of a segment, for those outside: nobody there needs to know its folder.
pub fn file_name(segment: &Segment) -> String {
    let path = segment.sealed_packet_path();
    path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}

/// What a client is told of an error.
pub(super) fn told(error: &ClientError) -> String {
    let is_archive = match error {
        ClientError::Archive(_) => true,
        ClientError::Deliver(error) => {
            matches!(**error, DeliverError::Search(SearchError::Archive(_)))
        }
        _ => false,
    };
    match is_archive {
        true => "the archive cannot be read; the server's log says why".to_owned(),
        false => tapdex_engine::chain(error),
    }
}

/// Whether somebody may still have what is being made for them.
pub(super) struct Watch<'a> {
    app: &'a App,
    identity: &'a Identity,
    started: Instant,
    time: Option<Duration>,
    /// Milliseconds after the start when it was checked last.
    checked_ms: AtomicU64,
    refused: AtomicBool,
}

impl<'a> Watch<'a> {
    pub(super) fn new(app: &'a App, identity: &'a Identity, time: Option<Duration>) -> Self {
        let (checked_ms, refused) = (AtomicU64::new(0), AtomicBool::new(false));
        Self { app, identity, started: Instant::now(), time, checked_ms, refused }
    }

    /// Whether it has to end: its time is up, its token was revoked, or the server stops.
    pub(super) fn is_over(&self) -> bool {
        let now = u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX);
        if now.saturating_sub(self.checked_ms.load(Ordering::Relaxed)) > RECHECK_MS {
            self.checked_ms.store(now, Ordering::Relaxed);
            let refused = self.app.door.recheck(self.identity, now_ns()).is_err();
            self.refused.store(refused, Ordering::Relaxed);
        }
        self.is_late() || self.is_refused() || self.app.is_stopping()
    }

    pub(super) fn is_late(&self) -> bool {
        self.time.is_some_and(|most| self.started.elapsed() > most)
    }

    pub(super) fn is_refused(&self) -> bool {
        self.refused.load(Ordering::Relaxed)
    }
}

fn trailers(answer: &Answer<Delivered>, sha256: &str, bytes: u64) -> HeaderMap {
    let mut trailers = HeaderMap::new();
    let mut add = |name: &'static str, value: String| {
        if let Ok(value) = HeaderValue::from_str(&value) {
            trailers.insert(HeaderName::from_static(name), value);
        }
    };
    add("tapdex-packets", answer.value.packets.to_string());
    add("tapdex-bytes", bytes.to_string());
    add("tapdex-sha256", sha256.to_owned());
    add("tapdex-complete", (answer.complete && !answer.value.stopped).to_string());
    trailers
}

/// The last line of packets as lines.
#[derive(serde::Serialize)]
struct LastLine<'a> {
    end: &'a Answer<Delivered>,
    /// Of all bytes before this line.
    sha256: String,
}

/// The last line if the stream broke off.
#[derive(serde::Serialize)]
struct ErrorLine<'a> {
    error: &'a str,
}

/// Where a stream goes. While the client takes nothing, others get the place; a stream that follows
/// needs none.
struct Target<'a> {
    source: Source,
    blocks: Blocks,
    place: Option<Place>,
    work: &'a Work,
    stream: &'a Stream,
}

impl Write for Target<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.source.is_full() {
            drop(self.place.take());
        }
        let written = self.source.write(bytes)?;
        if let Some(bytes) = bytes.get(..written) {
            self.blocks.add(bytes);
        }
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.stream.follow {
            // From here on it waits for packets, mostly.
            drop(self.place.take());
        }
        if self.work.control.is_cancelled() {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        self.source.flush()
    }
}
