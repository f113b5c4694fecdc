//! An HTTP server for three small pages. It is not meant for the open internet, but no client can
//! stop the recorder or keep others from being answered: requests are bounded in bytes, in time and
//! in number, and one thread serves all.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

/// The most connections that are open at once; for a new one the oldest is closed. A client that
/// has sent its request is answered before that.
pub const CONNECTIONS_MAX: usize = 64;
/// The most bytes of a request line and headers; with more the answer is 431.
pub const HEAD_BYTES_MAX: usize = 8 << 10;
/// The most answers that wait for slow clients; for a new one the oldest is dropped.
pub const ANSWERS_MAX: usize = 4;

/// How long a request may take to arrive, and an answer to be sent.
const TIME_MAX: Duration = Duration::from_secs(2);
/// How long the rest of a refused request is read, so that its sender sees the answer.
const DRAIN_MAX: Duration = Duration::from_millis(300);
/// How long the thread waits before it checks whether to stop.
const TICK_MS: u16 = 100;

type Answer = Arc<dyn Fn() -> String + Send + Sync>;
type Ready = Arc<dyn Fn() -> bool + Send + Sync>;

/// A listening address, before requests are served.
#[derive(Debug)]
pub struct Listening {
    listener: TcpListener,
    address: SocketAddr,
}

impl Listening {
    /// Listens at an address; with port 0 the system picks one.
    pub fn at(address: SocketAddr) -> io::Result<Self> {
        let listener = TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        Ok(Self { listener, address })
    }
}

/// Serves `/metrics`, `/healthz` and `/readyz` until it is dropped.
pub struct MetricsServer {
    address: SocketAddr,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// What is served.
struct Shared {
    answer: Answer,
    ready: Ready,
    stop: Arc<AtomicBool>,
}

impl MetricsServer {
    /// Serves requests at a listening address.
    ///
    /// `answer` makes the page of metrics, `ready` says whether packets are being recorded. Both
    /// are called by a thread of the server's own and should not wait for anything long.
    pub fn serve(listening: Listening, answer: Answer, ready: Ready) -> io::Result<Self> {
        let Listening { listener, address } = listening;
        let stop = Arc::new(AtomicBool::new(false));
        let shared = Shared { answer, ready, stop: stop.clone() };
        let serving = move || serve(&listener, &shared);
        let thread = thread::Builder::new().name("metrics".into()).spawn(serving)?;
        Ok(Self { address, stop, thread: Some(thread) })
    }

    /// Where it listens.
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// Stops listening. Requests that are still open are not answered.
    pub fn stop(mut self) {
        self.end();
    }

    fn end(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // It returns nothing, and if it panicked, that was shown.
            let _ = thread.join();
        }
    }
}

impl Drop for MetricsServer {
    fn drop(&mut self) {
        self.end();
    }
}

impl std::fmt::Debug for MetricsServer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MetricsServer").field("address", &self.address).finish_non_exhaustive()
    }
}

fn serve(listener: &TcpListener, shared: &Shared) {
    // The oldest first.
    let mut clients: Vec<Client> = Vec::new();
    while !shared.stop.load(Ordering::Relaxed) {
        wait(listener, &clients);
        // Not an unlimited number: open requests have to be answered in between.
        for _ in 0..CONNECTIONS_MAX {
            match listener.accept() {
                Ok((stream, _)) => clients.extend(Client::new(stream)),
                Err(error) if is_wait(&error) => break,
                // Mostly because there are no more file descriptors.
                Err(_) => {
                    clients.drain(..clients.len().min(1));
                    thread::sleep(Duration::from_millis(TICK_MS.into()));
                    break;
                }
            }
        }
        let now = Instant::now();
        clients.retain_mut(|client| {
            // A client that went away, or is too slow, is dropped without a message.
            client.go_on(shared).is_ok_and(|more| more) && now < client.until
        });
        let mut more = clients.iter().filter(|client| client.is_answered()).count();
        clients.retain(|client| {
            let goes = client.is_answered() && more > ANSWERS_MAX;
            more -= usize::from(goes);
            !goes
        });
        let more = clients.len().saturating_sub(CONNECTIONS_MAX);
        clients.drain(..more);
    }
}

/// Waits until there is something to do, or for a moment.
fn wait(listener: &TcpListener, clients: &[Client]) {
    let mut waiting = vec![PollFd::new(listener.as_fd(), PollFlags::POLLIN)];
    for client in clients {
        let flags = if client.is_answered() { PollFlags::POLLOUT } else { PollFlags::POLLIN };
        waiting.push(PollFd::new(client.stream.as_fd(), flags));
    }
    if poll(&mut waiting, PollTimeout::from(TICK_MS)).is_err() {
        thread::sleep(Duration::from_millis(TICK_MS.into()));
    }
}

/// Whether a call would block, and may be made again.
fn is_wait(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted)
}

/// A non-blocking connection.
struct Client {
    stream: TcpStream,
    state: State,
    /// When it is closed, whatever it does.
    until: Instant,
}

enum State {
    /// The part of the request line and headers that has arrived.
    Asking(Vec<u8>),
    /// The answer, and how much of it has been sent.
    Answering(Response, usize),
    /// It was refused; the rest of its request is read, or it would not see the answer.
    Draining,
}

impl Client {
    /// `None` if the connection is gone already.
    fn new(stream: TcpStream) -> Option<Self> {
        stream.set_nonblocking(true).ok()?;
        let state = State::Asking(Vec::new());
        Some(Self { stream, state, until: Instant::now() + TIME_MAX })
    }

    /// Whether an answer is on its way to it.
    fn is_answered(&self) -> bool {
        matches!(self.state, State::Answering(..))
    }

    /// Does what can be done without waiting; returns whether there is more to do.
    fn go_on(&mut self, shared: &Shared) -> io::Result<bool> {
        if let State::Asking(head) = &mut self.state {
            let Some(asked) = read_head(&mut self.stream, head)? else { return Ok(true) };
            // If one page cannot be made, the others are still served.
            let made = catch_unwind(AssertUnwindSafe(|| match asked {
                Asked::Whole => respond(head, shared),
                Asked::TooMuch => Response::refused("431 Request Header Fields Too Large"),
            }));
            let Ok(response) = made else { return Ok(false) };
            self.until = Instant::now() + TIME_MAX;
            self.state = State::Answering(response, 0);
        }
        if let State::Answering(response, sent) = &mut self.state {
            while *sent < response.bytes.len() {
                match self.stream.write(&response.bytes[*sent..]) {
                    Ok(0) => return Err(ErrorKind::WriteZero.into()),
                    Ok(len) => *sent += len,
                    Err(error) if is_wait(&error) => return Ok(true),
                    Err(error) => return Err(error),
                }
            }
            self.stream.shutdown(Shutdown::Write)?;
            if !response.refused {
                return Ok(false);
            }
            self.until = Instant::now() + DRAIN_MAX;
            self.state = State::Draining;
        }
        // A piece at a time: others wait.
        match self.stream.read(&mut [0; 16 << 10]) {
            Ok(len) => Ok(len > 0),
            Err(error) if is_wait(&error) => Ok(true),
            Err(error) => Err(error),
        }
    }
}

/// The outcome of reading a request.
enum Asked {
    Whole,
    TooMuch,
}

/// Reads more of a request line and headers; `None` if there is more to come.
fn read_head(stream: &mut TcpStream, head: &mut Vec<u8>) -> io::Result<Option<Asked>> {
    let mut buffer = [0; 1024];
    loop {
        let len = match stream.read(&mut buffer) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(len) => len,
            Err(error) if is_wait(&error) => return Ok(None),
            Err(error) => return Err(error),
        };
        // The end of the headers may have come in two pieces.
        let seen = head.len().saturating_sub(3);
        head.extend_from_slice(&buffer[..len]);
        match head_end(&head[seen..]).map(|at| seen + at) {
            Some(at) if at <= HEAD_BYTES_MAX => {
                head.truncate(at);
                return Ok(Some(Asked::Whole));
            }
            None if head.len() <= HEAD_BYTES_MAX => {}
            _ => return Ok(Some(Asked::TooMuch)),
        }
    }
}

/// Where the headers end: after an empty line. Lines may end without a carriage return.
fn head_end(bytes: &[u8]) -> Option<usize> {
    let newlines = bytes.iter().enumerate().filter(|(_, byte)| **byte == b'\n');
    newlines.map(|(at, _)| at + 1).find_map(|next| match &bytes[next..] {
        [b'\n', ..] => Some(next + 1),
        [b'\r', b'\n', ..] => Some(next + 2),
        _ => None,
    })
}

/// An answer as it is sent.
struct Response {
    bytes: Vec<u8>,
    refused: bool,
}

impl Response {
    fn new(status: &str, kind: &str, body: &str) -> Self {
        let len = body.len();
        let head = format!(
            "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len}\r\n\
             Connection: close\r\n\r\n"
        );
        Self { bytes: [head.as_bytes(), body.as_bytes()].concat(), refused: false }
    }

    /// A short text.
    fn text(status: &str, body: &str) -> Self {
        Self::new(status, "text/plain; charset=utf-8", &format!("{body}\n"))
    }

    /// The answer to an invalid request.
    fn refused(status: &str) -> Self {
        Self { refused: true, ..Self::text(status, status) }
    }

    /// The answer to HEAD: the same headers, without the body.
    fn without_body(mut self) -> Self {
        let end = head_end(&self.bytes).unwrap_or(self.bytes.len());
        self.bytes.truncate(end);
        self
    }
}

fn respond(head: &[u8], shared: &Shared) -> Response {
    let Some((method, path)) = request_line(head) else {
        return Response::refused("400 Bad Request");
    };
    match method {
        "GET" => page(path, shared),
        "HEAD" => page(path, shared).without_body(),
        _ => {
            let mut response = Response::refused("405 Method Not Allowed");
            // The status line is the first one; the order of the rest is free.
            let at = response.bytes.iter().position(|byte| *byte == b'\n').map_or(0, |at| at + 1);
            response.bytes.splice(at..at, *b"Allow: GET, HEAD\r\n");
            response
        }
    }
}

fn page(path: &str, shared: &Shared) -> Response {
    match path {
        "/metrics" => Response::new("200 OK", "text/plain; version=0.0.4", &(shared.answer)()),
        "/healthz" => Response::text("200 OK", "ok"),
        "/readyz" if (shared.ready)() => Response::text("200 OK", "ready"),
        "/readyz" => Response::text("503 Service Unavailable", "not ready"),
        _ => Response::text("404 Not Found", "try /metrics, /healthz or /readyz"),
    }
}

/// The method and the path of a request, without the query.
fn request_line(head: &[u8]) -> Option<(&str, &str)> {
    let line = head.split(|byte| *byte == b'\n').next()?;
    let line = std::str::from_utf8(line.strip_suffix(b"\r").unwrap_or(line)).ok()?;
    let mut words = line.split(' ');
    let (method, target, version) = (words.next()?, words.next()?, words.next()?);
    let sound = words.next().is_none()
        && !method.is_empty()
        && method.bytes().all(|byte| byte.is_ascii_uppercase())
        && matches!(version, "HTTP/1.0" | "HTTP/1.1");
    // Through a proxy the target has the host in it.
    let path = match target.strip_prefix("http://") {
        Some(rest) => rest.find('/').map_or("/", |at| &rest[at..]),
        None => target,
    };
    let path = path.split('?').next().unwrap_or(path);
    (sound && path.starts_with('/')).then_some((method, path))
}
