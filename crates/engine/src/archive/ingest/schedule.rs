//! Which thread works on which part of which capture.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, PoisonError};

use super::open::OpenCapture;
use crate::archive::SourceFile;
use crate::lock;

/// A part of a capture to be worked on.
pub(super) struct Job {
    /// Which of the inputs.
    pub(super) input: usize,
    /// Where it goes on; `None` if it was not opened yet.
    pub(super) capture: Option<OpenCapture>,
}

/// The work to be done, and the threads that wait for it.
pub(super) struct Queue {
    jobs: Mutex<Jobs>,
    changed: Condvar,
}

struct Jobs {
    waiting: VecDeque<Job>,
    /// Running jobs that may still add others.
    running: usize,
}

impl Queue {
    /// One job for each input.
    pub(super) fn new(inputs: usize) -> Self {
        let waiting = (0..inputs).map(|input| Job { input, capture: None }).collect();
        Self { jobs: Mutex::new(Jobs { waiting, running: 0 }), changed: Condvar::new() }
    }

    /// The next job. Waits while there is none and another thread may still add one; `None` when no
    /// more can come, or the work is to stop.
    pub(super) fn take(&self, is_stopped: impl Fn() -> bool) -> Option<(Job, Running<'_>)> {
        let mut jobs = lock(&self.jobs);
        loop {
            if is_stopped() {
                break;
            }
            if let Some(job) = jobs.waiting.pop_front() {
                jobs.running += 1;
                return Some((job, Running { queue: self, ended: false }));
            }
            if jobs.running == 0 {
                break;
            }
            jobs = self.changed.wait(jobs).unwrap_or_else(PoisonError::into_inner);
        }
        self.changed.notify_all();
        None
    }
}

/// A job that may add another one as long as this lives. If its thread panics, the others do not
/// wait for it.
pub(super) struct Running<'q> {
    queue: &'q Queue,
    ended: bool,
}

impl Running<'_> {
    /// Ends the job: it adds no other than `next`.
    pub(super) fn end(&mut self, next: Option<Job>) {
        if std::mem::replace(&mut self.ended, true) {
            return;
        }
        let mut jobs = lock(&self.queue.jobs);
        jobs.running -= 1;
        // Before other captures, so that few of them are open at a time.
        if let Some(next) = next {
            jobs.waiting.push_front(next);
        }
        self.queue.changed.notify_all();
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.end(None);
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
