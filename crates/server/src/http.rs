//! The server: who asks what over HTTP, and what they get.
//!
//! ```text
//! request -> host, origin -> door -> parameters -> role's filter and times -> lane -> answer
//!              421, 403    401, 403     400               400, 403             429
//! ```
//!
//! The page for people (`page.rs`) is files; all that it shows, it asks like everybody else. Short
//! answers are made in memory (`questions.rs`), packets are streams (`streams.rs`). Both are
//! made by threads that may wait for a disk; what serves connections never does.

mod answers;
mod blocks;
mod error;
mod identity;
mod inventory;
mod jobs;
mod openapi;
mod page;
mod params;
mod pipe;
mod questions;
mod source;
mod streams;
mod suggest;
#[cfg(any(test, feature = "testing"))]
mod testing;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, Response, StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::{any, get};
use http_body_util::{BodyExt, Limited};
use tapdex_answers::deliver::now_ns;
use tapdex_answers::question::Question;
use tapdex_record::live::Live;
use tapdex_record::metrics::{Exposition, Histogram};

use crate::audit::Audit;
use crate::door::Door;
use crate::jobs::{Job, Jobs};
use crate::lanes::{LaneSizes, Lanes, give_way};
use answers::Registry;
use error::ApiError;
use params::Params;

pub use identity::Peer;
pub use openapi::document as openapi_document;
pub use questions::value_text;
pub use source::Source;
pub use streams::file_name;
#[cfg(any(test, feature = "testing"))]
pub use testing::fuzz_request;

/// The longest body of a request: a question with a list of some hundred thousand addresses.
const BODY_LEN_MAX: usize = 16 << 20;
/// How long a body may take to arrive.
const BODY_TIME_MAX: Duration = Duration::from_secs(10);
/// Upper bounds of the seconds that answers take.
const SECONDS: [f64; 10] = [0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 60.0];

/// How a server behaves.
#[derive(Debug, Clone)]
pub struct Settings {
    /// What the archive is called in answers.
    pub name: String,
    /// How long an answer that is made in memory may take.
    pub answer_time: Duration,
    /// How long a client may take nothing of a stream.
    pub stall_time: Duration,
    /// Streams at a time, slow clients included.
    pub streams: usize,
    /// Host names, apart from those of loopback, by which clients call the server. If there are
    /// none, requests for any host are answered.
    pub hosts: Vec<String>,
    /// Whether only programs on this machine can ask, and need no token: then web pages of others,
    /// which a browser here may show, must not be able to.
    pub is_open: bool,
    /// Whether the traffic was made up, to be looked at: the page then asks other questions first.
    pub is_demo: bool,
    /// The recorder of the archive, if it runs in this process.
    pub recorder: Option<Arc<Live>>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            name: "archive".to_owned(),
            answer_time: Duration::from_secs(60),
            stall_time: Duration::from_secs(60),
            streams: 256,
            hosts: Vec::new(),
            is_open: true,
            is_demo: false,
            recorder: None,
        }
    }
}

/// Everything that requests share.
#[derive(Debug)]
pub struct App {
    source: Source,
    door: Door,
    audit: Audit,
    jobs: Jobs,
    settings: Settings,
    lanes: Lanes,
    /// Threads that answer light questions; heavy ones take those of the process.
    light: rayon::ThreadPool,
    registry: Registry,
    streams: AtomicU64,
    is_stopping: AtomicBool,
    counts: Counts,
}

/// What metrics are made of.
#[derive(Debug)]
struct Counts {
    requests: AtomicU64,
    refused: AtomicU64,
    failed: AtomicU64,
    packets: AtomicU64,
    bytes: AtomicU64,
    seconds: Histogram,
}

/// Why a server cannot be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AppError {
    /// There are no threads to be had.
    #[error("cannot start threads")]
    Threads(#[from] rayon::ThreadPoolBuildError),
}

impl App {
    /// Serves an archive, or what other servers have, to those whom `door` lets in.
    pub fn new(
        source: Source,
        door: Door,
        audit: Audit,
        jobs: Jobs,
        settings: Settings,
    ) -> Result<Arc<Self>, AppError> {
        let cores = std::thread::available_parallelism().map_or(2, usize::from);
        let light = rayon::ThreadPoolBuilder::new()
            .num_threads(2 * cores)
            .thread_name(|n| format!("light-{n}"))
            .build()?;
        // If it was built before, its threads are as important as others.
        let heavy = rayon::ThreadPoolBuilder::new()
            .thread_name(|n| format!("heavy-{n}"))
            .start_handler(|_| give_way());
        drop(heavy.build_global());
        let sizes = LaneSizes { light: 2 * cores, heavy: cores.max(2), waiting: 4_096 };
        Ok(Arc::new(Self {
            source,
            door,
            audit,
            jobs,
            settings,
            lanes: Lanes::new(sizes),
            light,
            registry: Registry::default(),
            streams: AtomicU64::new(0),
            is_stopping: AtomicBool::new(false),
            counts: Counts {
                requests: AtomicU64::new(0),
                refused: AtomicU64::new(0),
                failed: AtomicU64::new(0),
                packets: AtomicU64::new(0),
                bytes: AtomicU64::new(0),
                seconds: Histogram::new(&SECONDS),
            },
        }))
    }

    /// Runs jobs again that had not ended when the server did; to be called where its tasks run.
    pub fn start_again(self: &Arc<Self>, unfinished: Vec<Job>) {
        jobs::start_again(self, unfinished);
    }

    /// Ends streams that would go on for ever, so that the server can stop.
    pub fn stop(&self) {
        self.is_stopping.store(true, Ordering::Relaxed);
    }

    /// How long a client may take nothing of a stream.
    pub(crate) fn stall_time(&self) -> Duration {
        self.settings.stall_time
    }

    /// Counts somebody who gets no answer.
    pub(crate) fn count_refused(&self) {
        self.counts.refused.fetch_add(1, Ordering::Relaxed);
    }

    fn is_stopping(&self) -> bool {
        self.is_stopping.load(Ordering::Relaxed)
    }

    /// What monitoring asks for.
    fn metrics(&self) -> String {
        let mut text = Exposition::default();
        let counts = &self.counts;
        let get = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let labels: &[(&str, &str)] = &[("version", env!("CARGO_PKG_VERSION"))];
        text.gauge("tapdex_server_build_info", "The server.", labels, 1_u64);
        let requests = get(&counts.requests);
        text.counter("tapdex_server_requests_total", "Requests to the API.", &[], requests);
        for (reason, count) in [("refused", &counts.refused), ("failed", &counts.failed)] {
            let about = "Requests without an answer.";
            text.counter("tapdex_query_errors_total", about, &[("reason", reason)], get(count));
        }
        let packets = get(&counts.packets);
        text.counter("tapdex_query_packets_returned_total", "Packets delivered.", &[], packets);
        let bytes = get(&counts.bytes);
        text.counter("tapdex_query_bytes_returned_total", "Bytes of streams.", &[], bytes);
        let seconds = &counts.seconds;
        text.histogram("tapdex_query_duration_seconds", "Time to an answer.", &[], seconds);
        let [lines, batches] = self.audit.written();
        let about = "Lines of the audit log.";
        text.counter("tapdex_server_audit_lines_total", about, &[], lines);
        let about = "Times that lines of the audit log were written, several at once.";
        text.counter("tapdex_server_audit_writes_total", about, &[], batches);
        let streams = get(&self.streams);
        text.gauge("tapdex_server_streams", "Streams under way.", &[], streams);
        for (lane, waiting) in ["light", "heavy"].into_iter().zip(self.lanes.waiting()) {
            let about = "Questions that wait for their turn.";
            let waiting = u64::try_from(waiting).unwrap_or(u64::MAX);
            text.gauge("tapdex_server_waiting", about, &[("lane", lane)], waiting);
        }
        text.finish()
    }
}

/// What can be asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Endpoint {
    Count,
    Top,
    Histogram,
    Flows,
    Explain,
    Search,
    Packets,
    Live,
    Packet,
    Answer,
    Segments,
    Status,
    Fields,
    Interfaces,
    Audit,
    Jobs,
    Job,
    JobResult,
    Stenographer,
    /// Has no address: see [`live`].
    PcapOverIp,
}

/// The addresses of the API.
pub(crate) const ROUTES: [(&str, Endpoint); 19] = [
    ("/api/v1/count", Endpoint::Count),
    ("/api/v1/top", Endpoint::Top),
    ("/api/v1/histogram", Endpoint::Histogram),
    ("/api/v1/flows", Endpoint::Flows),
    ("/api/v1/explain", Endpoint::Explain),
    ("/api/v1/search", Endpoint::Search),
    ("/api/v1/packets", Endpoint::Packets),
    ("/api/v1/live.pcapng", Endpoint::Live),
    ("/api/v1/packets/{id}", Endpoint::Packet),
    ("/api/v1/answers/{id}", Endpoint::Answer),
    ("/api/v1/segments", Endpoint::Segments),
    ("/api/v1/status", Endpoint::Status),
    ("/api/v1/fields", Endpoint::Fields),
    ("/api/v1/interfaces", Endpoint::Interfaces),
    ("/api/v1/audit", Endpoint::Audit),
    ("/api/v1/jobs", Endpoint::Jobs),
    ("/api/v1/jobs/{id}", Endpoint::Job),
    ("/api/v1/jobs/{id}/result", Endpoint::JobResult),
    ("/query", Endpoint::Stenographer),
];

/// What answers requests. Each has a [`Peer`] among its extensions.
pub fn router(app: Arc<App>) -> Router {
    let mut router = Router::new()
        .route("/metrics", get(metrics))
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(ready))
        .route("/openapi.json", get(openapi));
    for (path, endpoint) in ROUTES {
        let handle = move |State(app): State<Arc<App>>, request: Request| async move {
            handle(app, endpoint, request).await
        };
        router = router.route(path, any(handle));
    }
    page::add(router).fallback(unknown).with_state(app)
}

async fn unknown() -> ApiError {
    ApiError::not_found("there is nothing at this address").with_hint("/openapi.json lists them")
}

async fn metrics(State(app): State<Arc<App>>, request: Request) -> Response<Body> {
    // Numbers tell what is going on, so that they are for those who may ask.
    if let Err(error) = identity::admit(&app, &request) {
        return error.into_response();
    }
    let mut text = app.metrics();
    if let Ok(status) = tokio::task::spawn_blocking(move || inventory::recorder_metrics(&app)).await
    {
        text.push_str(&status);
    }
    let kind = "text/plain; version=0.0.4; charset=utf-8";
    ([(header::CONTENT_TYPE, kind)], text).into_response()
}

async fn ready(State(app): State<Arc<App>>) -> Response<Body> {
    let not_yet = |why: &'static str| (StatusCode::SERVICE_UNAVAILABLE, why).into_response();
    match &app.settings.recorder {
        _ if app.is_stopping() => not_yet("stopping\n"),
        Some(recorder) if !recorder.is_ready() => not_yet("not recording\n"),
        _ => "ready\n".into_response(),
    }
}

async fn openapi() -> Response<Body> {
    let text = openapi_document().to_string();
    ([(header::CONTENT_TYPE, "application/json")], text).into_response()
}

/// A request that was let in.
struct Asked {
    identity: crate::door::Identity,
    params: Params,
    /// The last part of the address, for those that have one.
    id: String,
    headers: HeaderMap,
    now_ns: u64,
}

async fn handle(app: Arc<App>, endpoint: Endpoint, request: Request) -> Response<Body> {
    let started = Instant::now();
    app.counts.requests.fetch_add(1, Ordering::Relaxed);
    let is_head = request.method() == Method::HEAD;
    let outcome = answer(&app, endpoint, request).await;
    app.counts.seconds.observe(started.elapsed().as_secs_f64());
    let mut response = match outcome {
        Ok(response) => response,
        Err(error) => {
            let failed = error.status().is_server_error();
            let count = if failed { &app.counts.failed } else { &app.counts.refused };
            count.fetch_add(1, Ordering::Relaxed);
            error.into_response()
        }
    };
    let headers = response.headers_mut();
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    if is_head {
        *response.body_mut() = Body::empty();
    }
    response
}

async fn answer(
    app: &Arc<App>,
    endpoint: Endpoint,
    request: Request,
) -> Result<Response<Body>, ApiError> {
    let identity = identity::admit(app, &request)?;
    identity::check(app, &identity, endpoint)?;
    let now_ns = now_ns();
    let turn = identity.begin(now_ns)?;
    let (parts, body) = request.into_parts();
    let path = parts.uri.path();
    let path = match endpoint {
        Endpoint::JobResult => path.strip_suffix("/result").unwrap_or(path),
        _ => path,
    };
    let id = path.rsplit('/').next().unwrap_or_default();
    let id = percent_encoding::percent_decode_str(id).decode_utf8_lossy().into_owned();
    let mut params = Params::default();
    let is_post = parts.method == Method::POST;
    if endpoint == Endpoint::Stenographer {
        if !is_post {
            return Err(method_not_allowed());
        }
        let body = read_body(body).await?;
        let asked = Asked { identity, params, id, headers: parts.headers, now_ns };
        return streams::stenographer(app, asked, &body, turn).await;
    }
    match parts.method {
        Method::DELETE if endpoint == Endpoint::Job => {}
        Method::GET | Method::HEAD | Method::POST => {
            params = Params::of_query(parts.uri.query().unwrap_or_default())?;
        }
        _ => return Err(method_not_allowed()),
    }
    if is_post {
        let body = read_body(body).await?;
        if !body.is_empty() {
            params.add_json(&body)?;
        }
    }
    let asked = Asked { identity, params, id, headers: parts.headers, now_ns };
    match endpoint {
        Endpoint::Count
        | Endpoint::Top
        | Endpoint::Histogram
        | Endpoint::Flows
        | Endpoint::Explain => questions::answer(app, endpoint, asked, turn).await,
        Endpoint::Search => streams::search(app, asked, turn).await,
        Endpoint::Packets => streams::packets(app, asked, turn, false).await,
        Endpoint::Live => streams::packets(app, asked, turn, true).await,
        Endpoint::Answer => answers::tell(app, asked),
        Endpoint::Jobs | Endpoint::Job | Endpoint::JobResult => {
            jobs::answer(app, endpoint, &parts.method, asked, turn).await
        }
        Endpoint::Packet
        | Endpoint::Segments
        | Endpoint::Status
        | Endpoint::Fields
        | Endpoint::Audit
        | Endpoint::Interfaces => inventory::answer(app, endpoint, asked, turn).await,
        Endpoint::Stenographer | Endpoint::PcapOverIp => Err(method_not_allowed()),
    }
}

/// A capture for whoever has connected without a request: the packets of a question, then others as
/// they are recorded. Nothing if they may not have it. Whoever `is_vouched` for needs no token.
pub(crate) async fn live(
    app: &Arc<App>,
    peer: SocketAddr,
    question: &Question,
    is_vouched: bool,
) -> Option<Body> {
    app.counts.requests.fetch_add(1, Ordering::Relaxed);
    let outcome = streams::over_ip(app, peer, question, is_vouched).await;
    if outcome.is_err() {
        app.count_refused();
    }
    outcome.ok()
}

fn method_not_allowed() -> ApiError {
    ApiError::new(StatusCode::METHOD_NOT_ALLOWED, "not by this method")
        .with_hint("GET with parameters, or POST with a JSON object; /query takes POST")
}

/// A body, if it is short enough and arrives in time.
async fn read_body(body: Body) -> Result<Bytes, ApiError> {
    let collected = tokio::time::timeout(BODY_TIME_MAX, Limited::new(body, BODY_LEN_MAX).collect());
    match collected.await {
        Ok(Ok(collected)) => Ok(collected.to_bytes()),
        Ok(Err(error)) if error.is::<http_body_util::LengthLimitError>() => {
            let text = format!("the body is longer than {BODY_LEN_MAX} bytes");
            Err(ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, text))
        }
        Ok(Err(_)) => Err(ApiError::bad("the body did not arrive")),
        Err(_) => {
            Err(ApiError::new(StatusCode::REQUEST_TIMEOUT, "the body took too long to arrive"))
        }
    }
}

/// An answer as JSON.
fn json(value: &impl serde::Serialize) -> Response<Body> {
    let text = tapdex_answers::json::text(value) + "\n";
    ([(header::CONTENT_TYPE, "application/json")], text).into_response()
}

/// Where a request is from.
pub(crate) fn peer_of(request: &Request) -> Peer {
    request
        .extensions()
        .get::<Peer>()
        .cloned()
        .unwrap_or_else(|| Peer { address: SocketAddr::from(([0, 0, 0, 0], 0)), certificate: None })
}
