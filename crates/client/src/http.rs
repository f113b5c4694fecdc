//! One server, asked over HTTP.
//!
//! All questions are sent as JSON in the body of a POST: filters may be long, and addresses end up
//! in logs. Redirects are not followed, since a token must not go elsewhere, and no proxy is used.
//!
//! What a server sends is bounded: answers to [`ANSWER_LEN_MAX`] bytes, lines to [`LINE_LEN_MAX`].
//! If nothing comes for the time that was given, or hardly anything, the server counts as stalled.

use std::io::{self, BufRead, BufReader, Read};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustls::{AlertDescription, ClientConfig};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tapdex_answers::ask::Answer;
use tapdex_answers::deliver::Delivered;
use tapdex_answers::lines::Packet;
use tapdex_answers::question::Question;
use tapdex_engine::query::Control;
use tapdex_engine::query::filter::FilterError;
use ureq::http::header::{CONTENT_TYPE, RETRY_AFTER};
use ureq::http::{HeaderMap, Response, StatusCode, Uri};
use ureq::unversioned::resolver::DefaultResolver;
use ureq::unversioned::transport::{Connector, TcpConnector};
use ureq::{Agent, Body, BodyReader, Timeout};

use crate::credentials::{Secret, Sources, hex};
use crate::error::{ClientError, HttpError};
use crate::tls::{Mismatch, TlsConnector};

/// The most bytes of an answer in JSON.
pub const ANSWER_LEN_MAX: u64 = 64 << 20;
/// The most bytes of a line.
pub const LINE_LEN_MAX: u64 = 1 << 20;

/// How long connecting may take, with TLS.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// The most bytes of the headers of an answer.
const HEADERS_LEN_MAX: usize = 64 << 10;
/// The most bytes that are read of an error.
const ERROR_LEN_MAX: u64 = 64 << 10;
/// With fewer bytes in the time after which a server counts as stalled, it counts as such, too.
const FEW_BYTES: u64 = 64;
/// How long a server may take to sum up a capture that it has sent.
const SUM_TIMEOUT: Duration = Duration::from_secs(5);

/// Ends questions from another thread.
#[derive(Debug, Clone, Default)]
pub struct Stopper {
    control: Control,
    agents: Arc<Mutex<Vec<Agent>>>,
}

impl Stopper {
    /// Ends all questions at once.
    pub fn stop(&self) {
        self.control.cancel();
        self.hang_up();
    }

    /// Whether they were ended.
    pub fn is_stopped(&self) -> bool {
        self.control.is_cancelled()
    }

    /// What ends searches in folders.
    pub fn control(&self) -> &Control {
        &self.control
    }

    /// Ends the connections to servers.
    pub(crate) fn hang_up(&self) {
        self.agents().drain(..).for_each(Agent::shutdown);
    }

    fn agents(&self) -> MutexGuard<'_, Vec<Agent>> {
        self.agents.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes an agent in, to be stopped.
    fn add(&self, agent: &Agent) -> Result<(), HttpError> {
        let mut agents = self.agents();
        if self.is_stopped() {
            return Err(HttpError::Cancelled);
        }
        agents.push(agent.clone());
        Ok(())
    }
}

/// A server.
#[derive(Debug, Clone)]
pub struct Server {
    /// Its address, without a slash at the end.
    address: String,
    token: Option<Secret>,
    tls: Option<Arc<ClientConfig>>,
    timeout: Duration,
    reason: Option<String>,
}

/// What a server says when it does not answer.
#[derive(Debug, Default, Deserialize)]
struct Refusal {
    #[serde(default)]
    error: String,
    offset: Option<usize>,
    length: Option<usize>,
    hint: Option<String>,
}

impl Server {
    /// Whether a place is the address of a server, and not a folder.
    pub fn is_address(place: &str) -> bool {
        let starts = |scheme: &str| {
            place.get(..scheme.len()).is_some_and(|start| start.eq_ignore_ascii_case(scheme))
        };
        starts("https://") || starts("http://")
    }

    /// The server at an address. It is not asked yet.
    ///
    /// After `timeout` without data it counts as stalled. `reason` is for its log.
    pub fn new(
        address: &str,
        sources: &Sources,
        timeout: Duration,
        reason: Option<String>,
    ) -> Result<Self, ClientError> {
        let address = address.trim_end_matches('/');
        let is_tls = check_address(address).map_err(|error| error.of(&shown(address)))?;
        let credentials = sources.of_server(address)?;
        let tls = match is_tls {
            true => Some(Arc::new(crate::tls::config(&credentials)?)),
            false => None,
        };
        let address = address.to_owned();
        Ok(Self { address, token: credentials.token, tls, timeout, reason })
    }

    /// Its address.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Asks for an answer in JSON.
    pub fn ask<T: DeserializeOwned>(
        &self,
        what: &str,
        question: &Question,
        more: Value,
        stopper: &Stopper,
    ) -> Result<T, HttpError> {
        let asked = self.body(question, more)?;
        let response = self.call(what, Some((&asked, question)), Some(self.timeout), stopper)?;
        self.json(response, stopper)
    }

    /// Asks for something that is about the whole archive.
    pub fn get<T: DeserializeOwned>(&self, what: &str, stopper: &Stopper) -> Result<T, HttpError> {
        let response = self.call(what, None, Some(self.timeout), stopper)?;
        self.json(response, stopper)
    }

    /// Asks for packets, a line for each.
    pub fn lines(
        &self,
        question: &Question,
        limit: Option<u64>,
        follow: bool,
        stopper: &Stopper,
    ) -> Result<Lines, HttpError> {
        let asked = self.body(question, json!({"limit_packets": limit, "follow": follow}))?;
        let response =
            self.call("search", Some((&asked, question)), Some(self.timeout), stopper)?;
        let patient = Patient::new(response.into_body(), (!follow).then_some(self.timeout));
        let timeout = self.timeout;
        Ok(Lines {
            reader: BufReader::with_capacity(1 << 16, patient),
            hash: Sha256::new(),
            timeout,
            stopper: stopper.clone(),
        })
    }

    /// Asks for a capture. With `more`, what `packets` takes beside the question.
    ///
    /// A capture that follows an archive may be silent for as long as the network is.
    pub fn capture(
        &self,
        question: &Question,
        more: Value,
        follow: bool,
        stopper: &Stopper,
    ) -> Result<Capture, HttpError> {
        let asked = self.body(question, more)?;
        let timeout = (!follow).then_some(self.timeout);
        let response = self.call("packets", Some((&asked, question)), timeout, stopper)?;
        let id = response.headers().get("tapdex-answer").and_then(|id| id.to_str().ok());
        let is_id = |id: &&str| {
            !id.is_empty()
                && id.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
        };
        let id = id.filter(is_id).ok_or_else(|| {
            HttpError::Damaged("a capture without the header Tapdex-Answer".to_owned())
        })?;
        Ok(Capture {
            server: self.clone(),
            id: id.to_owned(),
            reader: Patient::new(response.into_body(), timeout),
            hash: Sha256::new(),
            failed: Mutex::default(),
            stopper: stopper.clone(),
        })
    }

    /// A question and what else is asked, as one object.
    fn body(&self, question: &Question, more: Value) -> Result<Vec<u8>, HttpError> {
        let failed = |error: serde_json::Error| HttpError::Failed(error.to_string());
        let mut asked = serde_json::to_value(question).map_err(failed)?;
        if let (Value::Object(asked), Value::Object(more)) = (&mut asked, more) {
            asked.extend(more.into_iter().filter(|(_, value)| !value.is_null()));
            if let Some(reason) = &self.reason {
                asked.insert("reason".to_owned(), reason.as_str().into());
            }
        }
        serde_json::to_vec(&asked).map_err(failed)
    }

    /// Sends a question, and returns the answer if it is one.
    fn call(
        &self,
        what: &str,
        asked: Option<(&[u8], &Question)>,
        stall: Option<Duration>,
        stopper: &Stopper,
    ) -> Result<Response<Body>, HttpError> {
        let config = Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(0)
            .proxy(None)
            .user_agent(concat!("tapdex/", env!("CARGO_PKG_VERSION")))
            .max_response_header_size(HEADERS_LEN_MAX)
            .timeout_resolve(Some(CONNECT_TIMEOUT))
            .timeout_connect(Some(CONNECT_TIMEOUT))
            .timeout_recv_response(Some(self.timeout))
            .timeout_per_read(stall)
            .timeout_per_write(Some(self.timeout))
            // A connection for each question: one that was kept may be dead.
            .max_idle_connections(0)
            .build();
        let connector = TcpConnector::default().chain(TlsConnector(self.tls.clone()));
        let agent = Agent::with_parts(config, connector, DefaultResolver::default());
        stopper.add(&agent)?;
        let url = format!("{}/api/v1/{what}", self.address);
        let token = self.token.as_ref().map(|token| format!("Bearer {}", token.text()));
        let response = match asked {
            Some((asked, _)) => {
                let mut request = agent.post(&url).header(CONTENT_TYPE, "application/json");
                if let Some(token) = &token {
                    request = request.header("Authorization", token);
                }
                request.send(asked)
            }
            None => {
                let mut request = agent.get(&url);
                if let Some(token) = &token {
                    request = request.header("Authorization", token);
                }
                request.call()
            }
        };
        let response = response.map_err(|error| self.failed(error, stopper))?;
        if response.status() == StatusCode::OK {
            return Ok(response);
        }
        Err(self.refused(response, asked.map(|(_, question)| question)))
    }

    /// What another status than 200 means.
    fn refused(&self, response: Response<Body>, question: Option<&Question>) -> HttpError {
        let status = response.status();
        let retry_after = number(response.headers(), RETRY_AFTER.as_str());
        let mut text = Vec::new();
        let body = Patient::new(response.into_body(), Some(self.timeout));
        // What cannot be read is not said.
        let _ = body.take(ERROR_LEN_MAX).read_to_end(&mut text);
        let refusal: Refusal = serde_json::from_slice(&text).unwrap_or_default();
        let said = |otherwise: &str| match refusal.error.is_empty() {
            true => otherwise.to_owned(),
            false => refusal.error.clone(),
        };
        match status {
            StatusCode::BAD_REQUEST => HttpError::Question { text: rendered(&refusal, question) },
            StatusCode::UNAUTHORIZED => HttpError::Token { text: said("it asks who you are") },
            StatusCode::FORBIDDEN => HttpError::Forbidden { text: said("it does not allow this") },
            StatusCode::TOO_MANY_REQUESTS => {
                HttpError::Busy { text: said("it has too much to do"), retry_after }
            }
            status if status.is_redirection() => HttpError::Status {
                code: status.as_u16(),
                text: "redirects are not followed: give the address that it really has".to_owned(),
            },
            status => HttpError::Status { code: status.as_u16(), text: said("") },
        }
    }

    /// An answer in JSON.
    fn json<T: DeserializeOwned>(
        &self,
        response: Response<Body>,
        stopper: &Stopper,
    ) -> Result<T, HttpError> {
        let mut text = Vec::new();
        let body = Patient::new(response.into_body(), Some(self.timeout));
        let read = body.take(ANSWER_LEN_MAX + 1).read_to_end(&mut text);
        read.map_err(|error| self.failed(error.into(), stopper))?;
        if text.len() as u64 > ANSWER_LEN_MAX {
            let most = ANSWER_LEN_MAX >> 20;
            return Err(HttpError::Damaged(format!("it has more than {most} MiB")));
        }
        serde_json::from_slice(&text).map_err(|error| HttpError::Damaged(error.to_string()))
    }

    fn failed(&self, error: ureq::Error, stopper: &Stopper) -> HttpError {
        match stopper.is_stopped() {
            true => HttpError::Cancelled,
            false => told(error, self.timeout),
        }
    }
}

/// Whether an address is one of a server with TLS; an error if it is none.
fn check_address(address: &str) -> Result<bool, HttpError> {
    let wrong = |reason: &str| HttpError::Address { reason: reason.to_owned() };
    let uri: Uri = address.parse().map_err(|_| wrong("it cannot be read"))?;
    let authority = uri.authority().ok_or_else(|| wrong("it has no name"))?;
    if authority.as_str().contains('@') {
        return Err(wrong("a name or password in it would be seen by others"));
    }
    if uri.query().is_some() || address.contains('#') {
        return Err(wrong("it has more than a path"));
    }
    let host = authority.host().trim_start_matches('[').trim_end_matches(']');
    if host.is_empty() {
        return Err(wrong("it has no name"));
    }
    let is_loopback = host.eq_ignore_ascii_case("localhost")
        || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback());
    match uri.scheme_str() {
        Some("https") => Ok(true),
        Some("http") if is_loopback => Ok(false),
        Some("http") => Err(HttpError::NotLoopback),
        _ => Err(wrong("it starts with neither https:// nor http://")),
    }
}

/// An address for messages, without what may be a password.
fn shown(address: &str) -> String {
    match address.split_once('@') {
        Some((_, host)) => format!("..@{host}"),
        None => address.to_owned(),
    }
}

fn number(headers: &HeaderMap, name: &str) -> Option<u64> {
    headers.get(name)?.to_str().ok()?.trim().parse().ok()
}

/// What is wrong with a question, with a caret under the place.
fn rendered(refusal: &Refusal, question: Option<&Question>) -> String {
    let mut message = match refusal.error.is_empty() {
        true => "it does not understand the question".to_owned(),
        false => refusal.error.clone(),
    };
    if let Some(hint) = refusal.hint.as_ref().filter(|hint| !message.contains(hint.as_str())) {
        message.push_str(&format!("; {hint}"));
    }
    let (Some(offset), Some(question)) = (refusal.offset, question) else { return message };
    let end = offset.saturating_add(refusal.length.unwrap_or(0));
    if question.q.get(offset..end).is_none() {
        return message;
    }
    let text = FilterError { message, span: offset..end }.render(&question.q);
    text.strip_prefix("error: ").unwrap_or(&text).to_owned()
}

/// An error in our words.
fn told(error: ureq::Error, timeout: Duration) -> HttpError {
    match error {
        ureq::Error::Timeout(Timeout::Connect | Timeout::Resolve) => {
            HttpError::Connect(format!("no answer within {} s", CONNECT_TIMEOUT.as_secs()))
        }
        ureq::Error::Timeout(_) => HttpError::Stalled(timeout),
        ureq::Error::HostNotFound => HttpError::Connect("nobody knows this name".to_owned()),
        ureq::Error::ConnectionFailed => HttpError::Connect("no connection".to_owned()),
        ureq::Error::Tls(text) => HttpError::Tls(text.to_owned()),
        ureq::Error::LargeResponseHeader(..) | ureq::Error::Http(_) | ureq::Error::Protocol(_) => {
            HttpError::Damaged(error.to_string())
        }
        ureq::Error::Io(error) => told_io(error, timeout),
        error => HttpError::Broken(error.to_string()),
    }
}

fn told_io(error: io::Error, timeout: Duration) -> HttpError {
    if let Some(error) = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
        return told_tls(error);
    }
    match error.kind() {
        io::ErrorKind::ConnectionRefused
        | io::ErrorKind::HostUnreachable
        | io::ErrorKind::NetworkUnreachable
        | io::ErrorKind::AddrNotAvailable
        | io::ErrorKind::NotFound => HttpError::Connect(error.to_string()),
        io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock => HttpError::Stalled(timeout),
        io::ErrorKind::UnexpectedEof => HttpError::Broken("it ended in the middle".to_owned()),
        _ => match error.into_inner().map(|inner| inner.downcast::<ureq::Error>()) {
            Some(Ok(error)) => told(*error, timeout),
            Some(Err(error)) => HttpError::Broken(error.to_string()),
            None => HttpError::Broken("it ended in the middle".to_owned()),
        },
    }
}

fn told_tls(error: &rustls::Error) -> HttpError {
    match error {
        rustls::Error::Other(other) => match other.0.downcast_ref::<Mismatch>() {
            Some(Mismatch { expected, found }) => {
                HttpError::Fingerprint { expected: expected.clone(), found: found.clone() }
            }
            None => HttpError::Tls(error.to_string()),
        },
        rustls::Error::InvalidCertificate(reason) => {
            HttpError::Untrusted { reason: reason.to_string() }
        }
        rustls::Error::AlertReceived(AlertDescription::CertificateRequired) => HttpError::Tls(
            "it wants a certificate of the client: name certificate and key in the credentials \
             file"
                .to_owned(),
        ),
        error => HttpError::Tls(error.to_string()),
    }
}

/// Reads what a server sends, and notices if that is next to nothing for too long.
struct Patient {
    reader: BodyReader<'static>,
    stall: Option<Duration>,
    /// How long was waited for the last bytes, and how many they are.
    waited: Duration,
    bytes: u64,
}

impl Patient {
    fn new(body: Body, stall: Option<Duration>) -> Self {
        let reader = body.into_with_config().limit(u64::MAX).reader();
        Self { reader, stall, waited: Duration::ZERO, bytes: 0 }
    }
}

impl Read for Patient {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let started = Instant::now();
        let read = self.reader.read(buffer)?;
        self.waited += started.elapsed();
        self.bytes += read as u64;
        if self.bytes >= FEW_BYTES {
            (self.waited, self.bytes) = (Duration::ZERO, 0);
        }
        if read > 0 && self.stall.is_some_and(|stall| self.waited > stall) {
            return Err(io::ErrorKind::TimedOut.into());
        }
        Ok(read)
    }
}

/// A line of an answer to `search`.
#[derive(Debug)]
pub enum Line {
    /// A packet.
    Packet(Box<Packet<'static>>),
    /// There is nothing new for now.
    Quiet,
    /// There is nothing more.
    End(Box<Answer<Delivered>>),
}

/// The last line: either of the first two.
#[derive(Deserialize)]
struct Last {
    end: Option<Box<Answer<Delivered>>>,
    error: Option<String>,
    /// Of the lines before.
    sha256: Option<String>,
}

/// Packets, a line for each.
pub struct Lines {
    reader: BufReader<Patient>,
    hash: Sha256,
    timeout: Duration,
    stopper: Stopper,
}

impl Lines {
    /// The next line. After the end there is none.
    pub fn read(&mut self) -> Result<Line, HttpError> {
        let mut line = Vec::new();
        let read = (&mut self.reader).take(LINE_LEN_MAX).read_until(b'\n', &mut line);
        if let Err(error) = read {
            return Err(match self.stopper.is_stopped() {
                true => HttpError::Cancelled,
                false => told(error.into(), self.timeout),
            });
        }
        if line.last() != Some(&b'\n') {
            return Err(match line.len() as u64 {
                LINE_LEN_MAX => HttpError::Damaged(format!("a line of {LINE_LEN_MAX} bytes")),
                _ if self.stopper.is_stopped() => HttpError::Cancelled,
                _ => HttpError::Broken("it ended without its last line".to_owned()),
            });
        }
        let whole = &line;
        let line = line.trim_ascii();
        let damaged = |error: serde_json::Error| HttpError::Damaged(error.to_string());
        if line.starts_with(b"{\"end\"") || line.starts_with(b"{\"error\"") {
            let Last { end, error, sha256 } = serde_json::from_slice(line).map_err(damaged)?;
            let found = hex(&std::mem::take(&mut self.hash).finalize());
            return match (end, sha256) {
                (Some(_), Some(expected)) if !expected.eq_ignore_ascii_case(&found) => {
                    Err(HttpError::Hash { expected, found })
                }
                (Some(answer), _) => Ok(Line::End(answer)),
                (None, _) => Err(HttpError::Failed(error.unwrap_or_default())),
            };
        }
        self.hash.update(whole);
        if line.is_empty() {
            return Ok(Line::Quiet);
        }
        serde_json::from_slice(line).map(Line::Packet).map_err(damaged)
    }
}

/// A capture as a server sends it.
pub struct Capture {
    server: Server,
    id: String,
    reader: Patient,
    hash: Sha256,
    /// What went wrong; others see only that something did.
    failed: Mutex<Option<HttpError>>,
    stopper: Stopper,
}

/// What a server says about a capture that it has sent.
#[derive(Deserialize)]
struct Sent {
    state: String,
    error: Option<String>,
    sha256: Option<String>,
    answer: Option<Answer<Delivered>>,
}

impl Read for Capture {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self.reader.read(buffer) {
            Ok(read) => {
                self.hash.update(buffer.get(..read).unwrap_or_default());
                Ok(read)
            }
            Err(error) => {
                let kind = error.kind();
                let failed = self.failed.get_mut().unwrap_or_else(PoisonError::into_inner);
                *failed = Some(self.server.failed(error.into(), &self.stopper));
                Err(kind.into())
            }
        }
    }
}

impl Capture {
    /// Why reading has failed, if it has.
    pub fn failure(&self) -> Option<HttpError> {
        self.failed.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// What the server says about the capture, now that all of it was read: an error if that is
    /// not what it has sent.
    pub fn finish(&self) -> Result<Answer<Delivered>, HttpError> {
        let found = hex(&self.hash.clone().finalize());
        let started = Instant::now();
        loop {
            let what = format!("answers/{}", self.id);
            let sent: Sent = self.server.get(&what, &self.stopper)?;
            match sent.state.as_str() {
                "done" => {
                    let expected = sent.sha256.unwrap_or_default().to_ascii_lowercase();
                    if expected != found {
                        return Err(HttpError::Hash { expected, found });
                    }
                    return sent.answer.ok_or_else(|| {
                        HttpError::Damaged("nothing is said about the capture".to_owned())
                    });
                }
                "failed" => return Err(HttpError::Failed(sent.error.unwrap_or_default())),
                "running" if started.elapsed() < SUM_TIMEOUT => {
                    std::thread::sleep(Duration::from_millis(20));
                }
                _ => {
                    return Err(HttpError::Broken("the capture ended before its end".to_owned()));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_checked() {
        for (address, tls) in [
            ("https://sensor1:8443", true),
            ("https://[2001:db8::1]:8443", true),
            ("https://proxy/sensors/1", true),
            ("http://127.0.0.1:8080", false),
            ("http://[::1]:8080", false),
            ("http://localhost:8080", false),
        ] {
            assert_eq!(check_address(address).unwrap(), tls, "{address}");
        }
        for address in ["http://sensor1:8080", "http://10.0.0.1", "http://localhost.evil.org"] {
            assert!(matches!(check_address(address), Err(HttpError::NotLoopback)), "{address}");
        }
        for address in
            ["https://", "ftp://x", "https://me:secret@x", "https://x?a=b", "https://x#y", "x y"]
        {
            let error = check_address(address).unwrap_err();
            assert!(matches!(error, HttpError::Address { .. }), "{address}: {error}");
            assert!(!error.to_string().contains("secret"));
        }
        assert_eq!(shown("https://me:secret@x:1"), "..@x:1");
    }

    #[test]
    fn a_caret_is_under_the_place() {
        let question = Question { q: "tcp port htpp".to_owned(), ..Question::default() };
        let refusal = |offset, length| Refusal {
            error: "unknown port 'htpp'".to_owned(),
            offset: Some(offset),
            length: Some(length),
            hint: Some("http".to_owned()),
        };
        let text = rendered(&refusal(9, 4), Some(&question));
        assert!(text.contains("tcp port htpp\n") && text.contains("         ^^^^"), "{text}");
        for (offset, length) in [(9, 5), (14, 1), (usize::MAX, 1), (1, usize::MAX)] {
            assert_eq!(rendered(&refusal(offset, length), Some(&question)).lines().count(), 1);
        }
    }
}
