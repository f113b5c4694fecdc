//! A stream from a thread that finds packets to a client that takes them.
//!
//! The thread writes into a buffer of bounded size, and waits while it is full. The client's side
//! takes what is there: at once if that is much, after a moment if it is little, so that a few
//! packets do not wait for more. If the client goes away, the next write fails, and the search is
//! cancelled without waiting for one.
//!
//! The buffer is a queue of chunks of one size. A single block that grows is copied again and
//! again, and blocks of all sizes, made by one thread and freed by another, leave an allocator with
//! holes that it keeps.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use axum::body::Bytes;
use axum::http::HeaderMap;
use http_body::Frame;
use sha2::{Digest, Sha256};
use tapdex_engine::query::Control;
use tokio::time::Sleep;

use crate::lock;

/// Bytes that wait for the client, at most.
const BUFFER_LEN: usize = 1 << 20;
/// Bytes of a chunk, which is sent without waiting for more.
const CHUNK_LEN: usize = 64 << 10;
/// How long fewer bytes wait for more.
const PATIENCE: Duration = Duration::from_millis(20);

/// What becomes of a stream that a client does not take.
#[derive(Debug)]
struct Shared {
    inner: Mutex<Inner>,
    /// There is room, or the client is gone.
    room: Condvar,
}

#[derive(Debug, Default)]
struct Inner {
    /// All but the last one are full.
    chunks: VecDeque<Vec<u8>>,
    /// Bytes in them.
    len: usize,
    /// The client is gone.
    closed: bool,
    end: Option<End>,
    waker: Option<Waker>,
}

impl Inner {
    /// Adds what there is room for in the last chunk, or in a new one; returns how much that is.
    fn add(&mut self, bytes: &[u8]) -> usize {
        if self.chunks.back().is_none_or(|last| last.len() >= CHUNK_LEN) {
            self.chunks.push_back(Vec::with_capacity(CHUNK_LEN));
        }
        let Some(last) = self.chunks.back_mut() else { return 0 };
        let added = bytes.len().min(CHUNK_LEN - last.len());
        last.extend_from_slice(&bytes[..added]);
        self.len += added;
        added
    }

    fn take(&mut self) -> Vec<u8> {
        let chunk = self.chunks.pop_front().unwrap_or_default();
        self.len -= chunk.len();
        chunk
    }
}

/// How a stream ended.
#[derive(Debug)]
pub(super) enum End {
    /// All was sent, and these are the trailers.
    Whole(HeaderMap),
    /// It broke off. The client must notice.
    Broken,
}

/// The side of the thread.
#[derive(Debug)]
pub(super) struct Source {
    shared: Arc<Shared>,
    sha256: Sha256,
    bytes: u64,
    /// How long the client may take nothing.
    stall: Duration,
}

/// A stream, as the body of an answer. Dropping it cancels the search.
#[derive(Debug)]
pub(super) struct Sink {
    shared: Arc<Shared>,
    control: Control,
    sleep: Option<Pin<Box<Sleep>>>,
    is_over: bool,
}

/// Both sides of a stream. A client that takes nothing for as long as `stall` is gone.
pub(super) fn pipe(control: &Control, stall: Duration) -> (Source, Sink) {
    let shared = Arc::new(Shared { inner: Mutex::default(), room: Condvar::new() });
    let source = Source { shared: Arc::clone(&shared), sha256: Sha256::new(), bytes: 0, stall };
    let sink = Sink { shared, control: control.clone(), sleep: None, is_over: false };
    (source, sink)
}

impl Source {
    /// Bytes that were written.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The SHA-256 of these, in hexadecimal.
    pub(super) fn sha256(&self) -> String {
        let digest = self.sha256.clone().finalize();
        digest.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// Whether the client is gone.
    pub(super) fn is_closed(&self) -> bool {
        lock(&self.shared.inner).closed
    }

    /// Whether the client has to take something before more can be written.
    pub(super) fn is_full(&self) -> bool {
        lock(&self.shared.inner).len >= BUFFER_LEN
    }

    /// Ends the stream.
    pub(super) fn end(self, end: End) {
        let mut inner = lock(&self.shared.inner);
        inner.end.get_or_insert(end);
        wake(&mut inner);
    }
}

impl Drop for Source {
    fn drop(&mut self) {
        // A thread that failed has not ended its stream.
        let mut inner = lock(&self.shared.inner);
        inner.end.get_or_insert(End::Broken);
        wake(&mut inner);
    }
}

fn wake(inner: &mut Inner) {
    if let Some(waker) = inner.waker.take() {
        waker.wake();
    }
}

impl Write for Source {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut inner = lock(&self.shared.inner);
        let since = Instant::now();
        while inner.len >= BUFFER_LEN && !inner.closed {
            let left = self.stall.saturating_sub(since.elapsed());
            if left.is_zero() {
                inner.closed = true;
                inner.end.get_or_insert(End::Broken);
                wake(&mut inner);
                return Err(io::ErrorKind::TimedOut.into());
            }
            let waited = self.shared.room.wait_timeout(inner, left);
            inner = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        if inner.closed {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        let (was_short, was_empty) = (inner.len < CHUNK_LEN, inner.len == 0);
        let added = inner.add(bytes);
        if was_empty || (was_short && inner.len >= CHUNK_LEN) {
            wake(&mut inner);
        }
        drop(inner);
        self.sha256.update(&bytes[..added]);
        self.bytes += added as u64;
        Ok(added)
    }

    fn flush(&mut self) -> io::Result<()> {
        let mut inner = lock(&self.shared.inner);
        wake(&mut inner);
        match inner.closed {
            true => Err(io::ErrorKind::BrokenPipe.into()),
            false => Ok(()),
        }
    }
}

impl http_body::Body for Sink {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        if self.is_over {
            return Poll::Ready(None);
        }
        let shared = Arc::clone(&self.shared);
        let mut inner = lock(&shared.inner);
        if inner.len == 0 {
            self.sleep = None;
            match inner.end.take() {
                None => {
                    inner.waker = Some(context.waker().clone());
                    return Poll::Pending;
                }
                Some(End::Whole(trailers)) => {
                    self.is_over = true;
                    return Poll::Ready(Some(Ok(Frame::trailers(trailers))));
                }
                Some(End::Broken) => {
                    self.is_over = true;
                    return Poll::Ready(Some(Err(io::ErrorKind::UnexpectedEof.into())));
                }
            }
        }
        if inner.len < CHUNK_LEN && inner.end.is_none() {
            inner.waker = Some(context.waker().clone());
            let sleep = self.sleep.get_or_insert_with(|| Box::pin(tokio::time::sleep(PATIENCE)));
            if sleep.as_mut().poll(context).is_pending() {
                return Poll::Pending;
            }
        }
        self.sleep = None;
        let bytes = inner.take();
        drop(inner);
        shared.room.notify_one();
        Poll::Ready(Some(Ok(Frame::data(bytes.into()))))
    }
}

impl Drop for Sink {
    fn drop(&mut self) {
        if !self.is_over {
            self.control.cancel();
        }
        lock(&self.shared.inner).closed = true;
        self.shared.room.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;

    use super::*;

    fn run<F: Future>(future: F) -> F::Output {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        runtime.enable_time().build().unwrap().block_on(future)
    }

    #[test]
    fn all_bytes_arrive_in_order_with_their_trailers() {
        let control = Control::default();
        let (mut source, sink) = pipe(&control, Duration::from_secs(60));
        let expected: Vec<u8> = (0..5_000_000_u32).map(|n| (n >> 3).to_le_bytes()[0]).collect();
        let sent = expected.clone();
        let writer = std::thread::spawn(move || {
            sent.chunks(4_999).for_each(|chunk| source.write_all(chunk).unwrap());
            let (bytes, sha256) = (source.bytes(), source.sha256());
            let trailers = HeaderMap::from_iter([(
                axum::http::HeaderName::from_static("tapdex-complete"),
                axum::http::HeaderValue::from_static("true"),
            )]);
            source.end(End::Whole(trailers));
            (bytes, sha256)
        });
        let collected = run(sink.collect()).unwrap();
        assert_eq!(collected.trailers().unwrap()["tapdex-complete"], "true");
        let bytes = collected.to_bytes();
        let (len, sha256) = writer.join().unwrap();
        assert!(bytes == expected && len == 5_000_000);
        let own: String =
            Sha256::digest(&expected).iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(sha256, own);
        assert!(!control.is_cancelled());
    }

    #[test]
    fn a_client_that_leaves_ends_the_work() {
        let control = Control::default();
        let (mut source, sink) = pipe(&control, Duration::from_secs(60));
        let writer = std::thread::spawn(move || {
            let chunk = [0; 1000];
            loop {
                if let Err(error) = source.write_all(&chunk) {
                    return (error.kind(), source.bytes(), source.is_closed());
                }
            }
        });
        drop(sink);
        let (kind, bytes, is_closed) = writer.join().unwrap();
        assert!(kind == io::ErrorKind::BrokenPipe && is_closed);
        assert!(bytes <= 2 * BUFFER_LEN as u64);
        assert!(control.is_cancelled());
    }

    #[test]
    fn a_stream_that_breaks_off_is_no_whole_one() {
        let (mut source, sink) = pipe(&Control::default(), Duration::from_secs(60));
        source.write_all(b"half").unwrap();
        drop(source);
        assert!(run(sink.collect()).is_err());
    }

    #[test]
    fn a_client_that_takes_nothing_is_gone() {
        let (mut source, sink) = pipe(&Control::default(), Duration::from_millis(1));
        source.write_all(&vec![0; BUFFER_LEN]).unwrap();
        assert!(source.is_full());
        let error = source.write_all(b"more").unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        drop(sink);
    }
}
