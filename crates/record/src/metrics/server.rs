//! An HTTP server for three small pages. It is no match for the open internet, but nobody who
//! reaches it can stop the recorder: requests are bounded in bytes and in time.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use nix::sys::socket::{setsockopt, sockopt};
use nix::sys::time::{TimeVal, TimeValLike};

/// The most connections that are served at once; others are closed.
pub const CONNECTIONS_MAX: usize = 4;
/// The most bytes of a request line and headers; after more the answer is 431.
pub const HEAD_BYTES_MAX: usize = 8 << 10;

/// How long a request may take to come, and an answer to go.
const TIME_MAX: Duration = Duration::from_secs(2);
/// How long the rest of a refused request is read, so that its sender sees the answer.
const DRAIN_MAX: Duration = Duration::from_millis(300);
/// How long a thread waits before it looks whether to stop.
const TICK: Duration = Duration::from_millis(100);

type Answer = Arc<dyn Fn() -> String + Send + Sync>;
type Ready = Arc<dyn Fn() -> bool + Send + Sync>;

/// Serves `/metrics`, `/healthz` and `/readyz` until it is dropped.
pub struct MetricsServer {
    address: SocketAddr,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// What the threads share.
#[derive(Clone)]
struct Shared {
    answer: Answer,
    ready: Ready,
    stop: Arc<AtomicBool>,
    served: Arc<AtomicUsize>,
}

impl MetricsServer {
    /// Listens at an address; with port 0 the system picks one, see [`local_addr`].
    ///
    /// `answer` makes the page of metrics, `ready` says whether packets are being recorded. Both
    /// are called by threads of the server's own and should not wait for anything long.
    ///
    /// [`local_addr`]: MetricsServer::local_addr
    pub fn start(address: SocketAddr, answer: Answer, ready: Ready) -> io::Result<Self> {
        let listener = TcpListener::bind(address)?;
        let address = listener.local_addr()?;
        // On Linux this bounds accept, too: nothing else is needed to look at `stop` in time.
        let tick =
            i64::try_from(TICK.as_millis()).map_or(TimeVal::seconds(1), TimeVal::milliseconds);
        setsockopt(&listener, sockopt::ReceiveTimeout, &tick)?;
        let stop = Arc::new(AtomicBool::new(false));
        let shared = Shared { answer, ready, stop: stop.clone(), served: Arc::default() };
        let accepting = move || accept(&listener, &shared);
        let thread = thread::Builder::new().name("metrics".into()).spawn(accepting)?;
        Ok(Self { address, stop, thread: Some(thread) })
    }

    /// Where it listens.
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// Listens no longer. Requests that have not been answered are not answered any more.
    pub fn stop(mut self) {
        self.end();
    }

    fn end(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // It has nothing to say, and if it panicked, that was shown.
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

/// One of the places that connections have; free again when dropped, even by a panic.
struct Place(Arc<AtomicUsize>);

impl Place {
    fn take(served: &Arc<AtomicUsize>) -> Option<Self> {
        // Taken in one thread only: between the two lines it can but become less.
        let free = served.load(Ordering::Acquire) < CONNECTIONS_MAX;
        free.then(|| {
            served.fetch_add(1, Ordering::AcqRel);
            Self(served.clone())
        })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

fn accept(listener: &TcpListener, shared: &Shared) {
    while !shared.stop.load(Ordering::Relaxed) {
        match listener.accept() {
            Ok((stream, _)) => {
                let Some(place) = Place::take(&shared.served) else { continue };
                let shared = shared.clone();
                let serving = move || {
                    let _place = place;
                    // A client that went away or was too slow is nobody to report to.
                    let _ = serve(stream, &shared);
                };
                // Without a thread the connection is closed, as if there were too many.
                let _ = thread::Builder::new().name("metrics-client".into()).spawn(serving);
            }
            Err(error) if is_wait(&error) => {}
            // No more file descriptors, above all: that may pass.
            Err(_) => thread::sleep(TICK),
        }
    }
}

/// Whether a call ended without a result because its time was over, and may be made again.
fn is_wait(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted)
}

fn serve(stream: TcpStream, shared: &Shared) -> io::Result<()> {
    stream.set_read_timeout(Some(TICK))?;
    stream.set_write_timeout(Some(TICK))?;
    let mut client = Client { stream, stop: &shared.stop };
    let response = match client.head()? {
        Some(head) => respond(&head, shared),
        None => Response::refused("431 Request Header Fields Too Large"),
    };
    client.send(&response.bytes)?;
    client.stream.shutdown(Shutdown::Write)?;
    if response.refused {
        // Closing while bytes are unread would take the answer away from the other side.
        client.drain()?;
    }
    Ok(())
}

/// A connection whose every call has a bound.
struct Client<'a> {
    stream: TcpStream,
    stop: &'a AtomicBool,
}

impl Client<'_> {
    /// The request line and the headers; nothing if they are too long.
    fn head(&mut self) -> io::Result<Option<Vec<u8>>> {
        let end = Instant::now() + TIME_MAX;
        let mut head = Vec::with_capacity(1024);
        let mut buffer = [0; 1024];
        loop {
            let len = self.read(&mut buffer, end)?;
            if len == 0 {
                return Err(ErrorKind::UnexpectedEof.into());
            }
            // The end of the headers may have come in two pieces.
            let seen = head.len().saturating_sub(3);
            head.extend_from_slice(&buffer[..len]);
            match head_end(&head[seen..]).map(|at| seen + at) {
                Some(at) if at <= HEAD_BYTES_MAX => {
                    head.truncate(at);
                    return Ok(Some(head));
                }
                None if head.len() <= HEAD_BYTES_MAX => {}
                _ => return Ok(None),
            }
        }
    }

    fn read(&mut self, buffer: &mut [u8], end: Instant) -> io::Result<usize> {
        loop {
            self.check(end)?;
            match self.stream.read(buffer) {
                Err(error) if is_wait(&error) => {}
                result => return result,
            }
        }
    }

    fn send(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        let end = Instant::now() + TIME_MAX;
        while !bytes.is_empty() {
            self.check(end)?;
            match self.stream.write(bytes) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(len) => bytes = &bytes[len..],
                Err(error) if is_wait(&error) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Reads what is still to come, for a moment.
    fn drain(&mut self) -> io::Result<()> {
        let end = Instant::now() + DRAIN_MAX;
        let mut buffer = [0; 4096];
        while self.read(&mut buffer, end)? > 0 {}
        Ok(())
    }

    fn check(&self, end: Instant) -> io::Result<()> {
        let over = self.stop.load(Ordering::Relaxed) || Instant::now() >= end;
        if over { Err(ErrorKind::TimedOut.into()) } else { Ok(()) }
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

/// An answer as it goes out.
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

    /// An answer to what is no sound request.
    fn refused(status: &str) -> Self {
        Self { refused: true, ..Self::text(status, status) }
    }

    /// The answer to HEAD: as long as it says, but without the body.
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

/// The method and the path of a request, without what was asked of the path.
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
