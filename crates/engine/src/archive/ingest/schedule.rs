//! Which thread does what: opens a capture, reads a window of one, or writes a segment.
//!
//! Segments are written as soon as they are complete, which gives memory back. Otherwise the
//! captures that are open are read, the first of them before the others. Another one is opened when
//! nothing is left to read of these.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, PoisonError};

use super::stream::{Progressed, Stream, WholeSegment, Window, WindowRead};
use crate::archive::SourceFile;
use crate::archive::builder::Chunk;
use crate::lock;

/// What a thread is to do.
pub(super) enum Job {
    /// Open the capture of this input.
    Open(usize),
    /// Read a window of the capture of this input.
    Read(usize, Window),
    /// Write a segment.
    Write(WholeSegment),
}

/// The work to be done, and the threads that wait for it.
pub(super) struct Queue {
    work: Mutex<Work>,
    changed: Condvar,
    /// Threads that take jobs.
    threads: usize,
    /// Bytes that chunks may take.
    memory: usize,
}

struct Work {
    inputs: VecDeque<usize>,
    streams: Vec<Stream>,
    whole: VecDeque<WholeSegment>,
    /// Jobs that are being done.
    running: usize,
    /// Bytes of all chunks that are finished, and wait for other chunks or to be written.
    held: usize,
}

impl Queue {
    pub(super) fn new(inputs: usize, threads: usize, memory: usize) -> Self {
        let inputs = (0..inputs).collect();
        let work =
            Work { inputs, streams: Vec::new(), whole: VecDeque::new(), running: 0, held: 0 };
        Self { work: Mutex::new(work), changed: Condvar::new(), threads, memory }
    }

    /// The next job. Waits while there is none and another thread may still add one; `None` when no
    /// more can come, or the work is to stop.
    pub(super) fn take(&self, is_stopped: impl Fn() -> bool) -> Option<(Job, Running<'_>)> {
        let mut work = lock(&self.work);
        while !is_stopped() {
            if let Some(job) = self.next(&mut work) {
                work.running += 1;
                return Some((job, Running(self)));
            }
            if work.running == 0 {
                break;
            }
            work = self.changed.wait(work).unwrap_or_else(PoisonError::into_inner);
        }
        self.changed.notify_all();
        None
    }

    fn next(&self, work: &mut Work) -> Option<Job> {
        if let Some(whole) = work.whole.pop_front() {
            return Some(Job::Write(whole));
        }
        // Whatever memory is held, somebody has to go on.
        if work.held < self.memory || work.running == 0 {
            let ahead = 2 * self.threads as u64;
            for stream in &mut work.streams {
                if let Some(window) = stream.next(ahead) {
                    return Some(Job::Read(stream.input, window));
                }
            }
            if work.streams.len() < self.threads {
                return work.inputs.pop_front().map(Job::Open);
            }
        }
        None
    }

    /// Adds a capture that was opened.
    pub(super) fn opened(&self, stream: Stream) {
        lock(&self.work).streams.push(stream);
        self.changed.notify_all();
    }

    /// Takes in a window that was read. Returns what comes of it; segments that are complete are
    /// queued after `begin` has seen them.
    pub(super) fn read(
        &self,
        input: usize,
        number: u64,
        window: WindowRead,
        begin: impl Fn(&WholeSegment),
    ) -> Progressed {
        let mut work = lock(&self.work);
        let Some(at) = work.streams.iter().position(|stream| stream.input == input) else {
            return Progressed::default();
        };
        let mut progressed = work.streams[at].put(number, window);
        if work.streams[at].ended && work.streams[at].reading == 0 {
            work.streams.remove(at);
        }
        let given_back = bytes(&progressed.unused) + progressed.freed;
        work.held = work.held.saturating_sub(given_back);
        for whole in progressed.whole.drain(..) {
            begin(&whole);
            work.whole.push_back(whole);
        }
        self.changed.notify_all();
        progressed
    }

    /// Chunks of so many bytes are held from now on.
    pub(super) fn hold(&self, bytes: usize) {
        lock(&self.work).held += bytes;
    }

    /// Chunks of so many bytes are no longer held.
    pub(super) fn release(&self, bytes: usize) {
        let mut work = lock(&self.work);
        work.held = work.held.saturating_sub(bytes);
        self.changed.notify_all();
    }
}

/// Bytes of memory that chunks take.
pub(super) fn bytes<'c>(chunks: impl IntoIterator<Item = &'c Chunk>) -> usize {
    chunks.into_iter().map(Chunk::bytes).sum()
}

/// A job that is being done. If its thread panics, the others do not wait for it.
pub(super) struct Running<'q>(&'q Queue);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        lock(&self.0.work).running -= 1;
        self.0.changed.notify_all();
    }
}

/// The parts of each input that are being indexed, by several threads.
pub(super) struct AllParts(Mutex<Vec<Parts>>);

#[derive(Debug, Default)]
struct Parts {
    /// Those that are not written yet.
    running: u32,
    /// The source of the last part, as soon as that is written.
    last: Option<SourceFile>,
}

impl AllParts {
    pub(super) fn new(inputs: usize) -> Self {
        Self(Mutex::new((0..inputs).map(|_| Parts::default()).collect()))
    }

    /// Work on a part begins. A part that fails is never written, and stays missing.
    pub(super) fn begin(&self, input: usize) {
        lock(&self.0)[input].running += 1;
    }

    /// A part is written. If all parts are written now, in whichever order, returns the source of
    /// the capture's last part.
    pub(super) fn written(&self, input: usize, source: SourceFile) -> Option<SourceFile> {
        let parts = &mut lock(&self.0)[input];
        parts.running = parts.running.saturating_sub(1);
        if source.last {
            parts.last = Some(source);
        }
        if parts.running == 0 { parts.last.take() } else { None }
    }
}
