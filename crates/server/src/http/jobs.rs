//! Jobs over HTTP: made, listed, fetched in pieces, deleted.

use std::io::{Read, Seek, SeekFrom, Write};
use std::ops::Range;
use std::sync::Arc;

use axum::body::Body;
use axum::http::{HeaderMap, HeaderValue, Method, Response, StatusCode, header};
use axum::response::IntoResponse;
use tapdex_answers::ask::Answer;
use tapdex_answers::capture::Limits;
use tapdex_answers::deliver::{Delivered, Delivery, now_ns};
use tapdex_answers::question::Question;
use tapdex_engine::capture::FileFormat;
use tapdex_engine::query::Control;
use tapdex_engine::time::{TimeRange, format_time};

use super::answers::owner;
use super::error::ApiError;
use super::identity::{forced, is_limited};
use super::params::shown;
use super::pipe::{End, pipe};
use super::source::AskSource;
use super::streams::{Watch, append, count_stream, limit, reason, told};
use super::{App, Asked, Endpoint, json};
use crate::audit::{Entry, Question as Audited};
use crate::door::roles::May;
use crate::door::{Identity, Turn};
use crate::jobs::{Job, JobError, JobState, Order, is_id};
use crate::lanes::{Weight, give_way};

/// Bytes that are read from a result at a time.
const READ_LEN: usize = 256 << 10;

pub(super) async fn answer(
    app: &Arc<App>,
    endpoint: Endpoint,
    method: &Method,
    asked: Asked,
    turn: Turn,
) -> Result<Response<Body>, ApiError> {
    match (endpoint, method) {
        (Endpoint::Jobs, &Method::POST) => create(app, asked).await,
        (Endpoint::Jobs, &Method::GET | &Method::HEAD) => list(app, asked),
        (Endpoint::Job, &Method::GET | &Method::HEAD) => {
            let (job, asked) = find(app, asked)?;
            asked.params.finish()?;
            Ok(json(&job))
        }
        (Endpoint::Job, &Method::DELETE) => {
            let (job, asked) = find(app, asked)?;
            asked.params.finish()?;
            app.jobs.remove(&job.id).map_err(|_| ApiError::failed())?;
            Ok(StatusCode::NO_CONTENT.into_response())
        }
        (Endpoint::JobResult, &Method::GET | &Method::HEAD) => result(app, asked, turn).await,
        _ => Err(super::method_not_allowed()),
    }
}

/// A job that whoever asks may see.
fn find(app: &App, asked: Asked) -> Result<(Job, Asked), ApiError> {
    let missing = || ApiError::not_found("you have no job of this id");
    if !is_id(&asked.id) {
        return Err(missing());
    }
    let job = app.jobs.get(&asked.id, asked.now_ns).ok_or_else(missing)?;
    let is_own = job.owner == owner(&asked.identity);
    match is_own || asked.identity.check(May::Admin).is_ok() {
        true => Ok((job, asked)),
        false => Err(missing()),
    }
}

fn list(app: &App, asked: Asked) -> Result<Response<Body>, ApiError> {
    let Asked { identity, params, now_ns, .. } = asked;
    params.finish()?;
    let own = owner(&identity);
    let sees_all = identity.check(May::Admin).is_ok();
    let mut jobs = app.jobs.list(now_ns);
    jobs.retain(|job| sees_all || job.owner == own);
    Ok(json(&jobs))
}

async fn create(app: &Arc<App>, asked: Asked) -> Result<Response<Body>, ApiError> {
    let Asked { identity, mut params, now_ns, .. } = asked;
    let question = params.question()?;
    let format = params.text("format").unwrap_or_else(|| "pcapng".to_owned());
    format_of(&format)?;
    let order = Order {
        // Whenever it runs, these are the times that were meant.
        question: absolute(question, now_ns)?,
        format,
        limit_packets: params.get("limit_packets", "a number of packets")?,
        limit_bytes: params.get("limit_bytes", "a number of bytes")?,
        whole: params.flag("whole")?,
        reason: reason(params.text("reason")),
    };
    params.finish()?;
    check(&identity, &order, now_ns)?;
    let job = app.jobs.add(&owner(&identity), identity.name(), order, now_ns);
    let job = job.map_err(|error| match error {
        JobError::TooMany => ApiError::new(StatusCode::TOO_MANY_REQUESTS, error.to_string()),
        _ => ApiError::failed(),
    })?;
    start(app, job.clone(), identity);
    let place = HeaderValue::from_str(&format!("/api/v1/jobs/{}", job.id));
    let mut response = json(&job);
    *response.status_mut() = StatusCode::CREATED;
    if let Ok(place) = place {
        response.headers_mut().insert(header::LOCATION, place);
    }
    Ok(response)
}

fn format_of(text: &str) -> Result<FileFormat, ApiError> {
    match text {
        "pcapng" => Ok(FileFormat::Pcapng),
        "pcap" => Ok(FileFormat::Pcap),
        other => Err(ApiError::bad(format!("format={}: expected pcapng or pcap", shown(other)))),
    }
}

/// A question whose times do not depend on when it is asked.
fn absolute(question: Question, now_ns: u64) -> Result<Question, ApiError> {
    let filter = question.filter(now_ns)?;
    let TimeRange { from_ns, to_ns } = question.times(now_ns)?.and(filter.times());
    let text = filter.expr().map(ToString::to_string).unwrap_or_default();
    let language = match filter.syntax() {
        tapdex_engine::query::filter::Syntax::Wireshark => "wireshark",
        tapdex_engine::query::filter::Syntax::Pcap => "pcap",
    };
    Ok(Question {
        q: text,
        syntax: serde_json::from_value(language.into()).ok(),
        from: (from_ns > 0).then(|| format_time(from_ns)),
        to: to_ns.map(format_time),
        utc: true,
        through_tags: false,
    })
}

/// Whether somebody may have that.
fn check(identity: &Identity, order: &Order, now_ns: u64) -> Result<(), ApiError> {
    identity.check(May::Extract)?;
    if order.whole && !identity.role().forced_filters().is_empty() {
        let text = "your role sees packets of its filter only, not those of whole conversations";
        return Err(ApiError::forbidden(text));
    }
    forced(identity.role(), &order.question, now_ns).map(drop)
}

/// Runs jobs again that had not ended when the server did.
pub(super) fn start_again(app: &Arc<App>, jobs: Vec<Job>) {
    for job in jobs {
        match app.door.known(&job.owner, now_ns()) {
            Ok(identity) => start(app, job, identity),
            Err(refusal) => {
                let error = format!("it could not be run again: {refusal}");
                drop(app.jobs.end(&job.id, Err(error), now_ns()));
            }
        }
    }
}

/// Runs a job when it has a place.
fn start(app: &Arc<App>, job: Job, identity: Identity) {
    let app = Arc::clone(app);
    tokio::spawn(async move {
        let outcome = match app.lanes.enter(Weight::Heavy, identity.name()).await {
            Err(_) => Err("too many questions were waiting".to_owned()),
            Ok(place) => {
                let (own, id) = (Arc::clone(&app), job.id.clone());
                let thread = std::thread::Builder::new().name("job".to_owned()).spawn(move || {
                    give_way();
                    run(&own, &job, &identity);
                    drop(place);
                });
                match thread {
                    Ok(_) => return,
                    Err(_) => {
                        drop(app.jobs.end(&id, Err("no thread for it".to_owned()), now_ns()));
                        return;
                    }
                }
            }
        };
        drop(app.jobs.end(&job.id, outcome, now_ns()));
    });
}

fn entry(identity: &Identity, job: &Job, outcome: &str) -> Entry {
    let mut entry = Entry::new(identity, "job", outcome);
    entry.question = Some(Audited {
        filter: job.order.question.q.clone(),
        from: job.order.question.from.clone(),
        to: job.order.question.to.clone(),
        ..Audited::default()
    });
    let why = job.order.reason.clone().unwrap_or_default();
    entry.reason = Some(format!("{why} [job {}]", job.id).trim_start().to_owned());
    entry
}

fn run(app: &Arc<App>, job: &Job, identity: &Identity) {
    let outcome = extract(app, job, identity);
    if app.is_stopping() && outcome.is_err() {
        // It runs again when the server does.
        return;
    }
    let word = if outcome.is_ok() { "done" } else { "failed" };
    let mut line = entry(identity, job, word);
    if let Ok((answer, bytes, sha256)) = &outcome {
        line.packets = Some(answer.value.packets);
        line.complete = Some(answer.complete);
        (line.bytes, line.sha256) = (Some(*bytes), Some(sha256.clone()));
    }
    let written = app.audit.append(&line, now_ns());
    let outcome = match written {
        Ok(_) => outcome,
        Err(_) => Err("the audit log cannot be written, so nothing is given out".to_owned()),
    };
    drop(app.jobs.end(&job.id, outcome, now_ns()));
}

type Extracted = (Answer<Delivered>, u64, String);

fn extract(app: &Arc<App>, job: &Job, identity: &Identity) -> Result<Extracted, String> {
    let role = identity.role();
    let order = &job.order;
    let query = forced(role, &order.question, now_ns()).map_err(|error| error.text().to_owned())?;
    let limited = is_limited(role, now_ns());
    let control = Control::default();
    let failed = |_| "the result cannot be written".to_owned();
    let file = app.jobs.begin(&job.id, &control).map_err(failed)?;
    let mut file = file.ok_or_else(|| "it was deleted".to_owned())?;
    let (source, query, control) = (&app.source, &query, &control);
    let ask = AskSource { source, query, control, is_limited: limited };
    let limits = role.limits();
    let delivery = Delivery {
        format: format_of(&order.format).unwrap_or(FileFormat::Pcapng),
        limits: Limits {
            packets: limit(order.limit_packets, limits.packets),
            bytes: limit(order.limit_bytes, limits.bytes),
        },
        whole_conversations: order.whole,
        follow: false,
        statistics: !limited,
    };
    let watch = Watch::new(app, identity, limits.time);
    let stop = || watch.is_over() || control.is_cancelled();
    let answer = ask.capture(&delivery, &mut file, &stop).map_err(|error| told(&error))?;
    // It was told to stop in the middle: a part is no result.
    if control.is_cancelled() || app.is_stopping() {
        return Err("it was stopped".to_owned());
    }
    if watch.is_late() {
        return Err("it took longer than it may".to_owned());
    }
    if watch.is_refused() {
        return Err("not allowed any more".to_owned());
    }
    let (bytes, sha256) = file.finish().map_err(|_| "the result cannot be written".to_owned())?;
    Ok((answer, bytes, sha256))
}

/// The result of a job, or a part of it.
async fn result(app: &Arc<App>, asked: Asked, turn: Turn) -> Result<Response<Body>, ApiError> {
    // The address ends in `result`; the id stands before it.
    let (job, Asked { identity, params, headers, .. }) = find(app, asked)?;
    params.finish()?;
    identity.check(May::Extract)?;
    let (JobState::Done, Some(len), Some(sha256)) = (job.state, job.bytes, &job.sha256) else {
        let text = match job.state {
            JobState::Failed => format!("the job failed: {}", job.error.unwrap_or_default()),
            _ => "the job is not done yet".to_owned(),
        };
        return Err(ApiError::new(StatusCode::CONFLICT, text).with_retry(1));
    };
    let tag = format!("\"{sha256}\"");
    let (status, range) = match range(&headers, &tag, len) {
        Wanted::All => (StatusCode::OK, 0..len),
        Wanted::Part(range) => (StatusCode::PARTIAL_CONTENT, range),
        Wanted::None => {
            let text = format!("the result has {len} bytes");
            let mut response =
                ApiError::new(StatusCode::RANGE_NOT_SATISFIABLE, text).into_response();
            if let Ok(value) = HeaderValue::from_str(&format!("bytes */{len}")) {
                response.headers_mut().insert(header::CONTENT_RANGE, value);
            }
            return Ok(response);
        }
    };
    let file = app.jobs.result(&job.id).ok().flatten();
    let mut file = file.ok_or_else(|| ApiError::not_found("the result is gone"))?;
    file.seek(SeekFrom::Start(range.start)).map_err(|_| ApiError::failed())?;
    let counted = count_stream(app)?;
    append(app, &entry(&identity, &job, "fetching")).await?;
    let control = Control::default();
    let (mut source, sink) = pipe(&control, app.settings.stall_time);
    let (own, wanted, fetched) = (Arc::clone(app), range.clone(), job.clone());
    let thread = std::thread::Builder::new().name("result".to_owned()).spawn(move || {
        let _held = (turn, counted);
        let mut left = wanted.end - wanted.start;
        let mut buffer = vec![0; READ_LEN];
        while left > 0 {
            let most = usize::try_from(left).unwrap_or(usize::MAX).min(READ_LEN);
            match file.read(&mut buffer[..most]) {
                Ok(read @ 1..) if source.write_all(&buffer[..read]).is_ok() => left -= read as u64,
                _ => break,
            }
        }
        let mut line = entry(&identity, &fetched, if left == 0 { "fetched" } else { "left" });
        (line.bytes, line.sha256) = (Some(source.bytes()), Some(source.sha256()));
        let written = own.audit.append(&line, now_ns()).is_ok();
        own.counts.bytes.fetch_add(source.bytes(), std::sync::atomic::Ordering::Relaxed);
        source.end(match left == 0 && written {
            true => End::Whole(HeaderMap::new()),
            false => End::Broken,
        });
    });
    thread.map_err(|_| ApiError::failed())?;
    let mut response = Response::new(Body::new(sink));
    *response.status_mut() = status;
    let (first, last) = (range.start, range.end.saturating_sub(1));
    let kind = match &*job.order.format {
        "pcap" => "application/vnd.tcpdump.pcap",
        _ => "application/x-pcapng",
    };
    let mut add = |name, value: String| {
        if let Ok(value) = HeaderValue::from_str(&value) {
            response.headers_mut().insert(name, value);
        }
    };
    add(header::CONTENT_TYPE, kind.to_owned());
    add(header::CONTENT_LENGTH, (range.end - range.start).to_string());
    add(header::ACCEPT_RANGES, "bytes".to_owned());
    add(header::ETAG, tag);
    let name = format!("attachment; filename=\"{}.{}\"", job.id, job.order.format);
    add(header::CONTENT_DISPOSITION, name);
    if status == StatusCode::PARTIAL_CONTENT {
        add(header::CONTENT_RANGE, format!("bytes {first}-{last}/{len}"));
    }
    Ok(response)
}

/// What a request wants of a result.
#[derive(Debug, PartialEq, Eq)]
enum Wanted {
    All,
    Part(Range<u64>),
    /// Something that it does not have.
    None,
}

/// What the header `Range` asks for. Several ranges, and what is not understood, are answered by
/// all of it, as HTTP allows; so is a part of a result that is not the one that was begun.
fn range(headers: &HeaderMap, tag: &str, len: u64) -> Wanted {
    let text = |name| headers.get(name).and_then(|value: &HeaderValue| value.to_str().ok());
    if text(header::IF_RANGE).is_some_and(|wanted| wanted != tag) {
        return Wanted::All;
    }
    let Some(text) = text(header::RANGE) else { return Wanted::All };
    let Some(range) = text.strip_prefix("bytes=").map(str::trim) else { return Wanted::All };
    let Some((first, last)) = range.split_once('-') else { return Wanted::All };
    let range = match (first.parse::<u64>(), last.parse::<u64>()) {
        (Ok(first), Ok(last)) if first <= last => first..last.saturating_add(1).min(len),
        (Ok(first), Err(_)) if last.is_empty() => first..len,
        (Err(_), Ok(last)) if first.is_empty() => len.saturating_sub(last)..len,
        _ => return Wanted::All,
    };
    match range.is_empty() {
        true => Wanted::None,
        false => Wanted::Part(range),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_those_of_http() {
        let wanted = |range: &str, tag: Option<&str>| {
            let mut headers = HeaderMap::new();
            headers.insert(header::RANGE, range.parse().unwrap());
            if let Some(tag) = tag {
                headers.insert(header::IF_RANGE, tag.parse().unwrap());
            }
            super::range(&headers, "\"a\"", 100)
        };
        assert_eq!(wanted("bytes=0-9", None), Wanted::Part(0..10));
        assert_eq!(wanted("bytes=90-", None), Wanted::Part(90..100));
        assert_eq!(wanted("bytes=-10", None), Wanted::Part(90..100));
        assert_eq!(wanted("bytes=-1000", None), Wanted::Part(0..100));
        assert_eq!(wanted("bytes=50-1000", None), Wanted::Part(50..100));
        assert_eq!(wanted("bytes=0-18446744073709551615", None), Wanted::Part(0..100));
        for none in ["bytes=100-", "bytes=200-300", "bytes=-0"] {
            assert_eq!(wanted(none, None), Wanted::None, "{none}");
        }
        for all in ["bytes=9-0", "bytes=a-b", "bytes=0-1,5-6", "lines=0-9", "bytes=", "bytes=-"] {
            assert_eq!(wanted(all, None), Wanted::All, "{all}");
        }
        assert_eq!(wanted("bytes=0-9", Some("\"a\"")), Wanted::Part(0..10));
        assert_eq!(wanted("bytes=0-9", Some("\"b\"")), Wanted::All);
        assert_eq!(super::range(&HeaderMap::new(), "", 5), Wanted::All);
    }
}
