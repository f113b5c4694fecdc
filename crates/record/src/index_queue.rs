//! Recordings that wait for the indexer.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use tapdex_engine::archive::Recording;

use crate::clock::{Clock, Moment, Waiter};
use crate::lock;

/// How often the indexer checks whether there is something to make a draft of.
const DRAFT_EVERY: Duration = Duration::from_millis(250);
/// How long after a failure indexing is tried again.
const TRY_AGAIN_AFTER: Duration = Duration::from_secs(60);

/// What the indexer has to do next.
#[derive(Debug, PartialEq)]
pub(crate) enum ToDo {
    /// To index a recording that is complete.
    Index(Recording),
    /// Nothing else: it may make drafts of the open one.
    Draft,
    /// Nothing more.
    End,
}

/// How many recordings wait, and since when the first one has waited, in nanoseconds since 1970; 0
/// if none waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Backlog {
    pub(crate) recordings: u64,
    pub(crate) since_ns: u64,
}

/// The sealer adds recordings, the indexer takes them.
#[derive(Debug)]
pub(crate) struct IndexQueue<'a> {
    clock: &'a dyn Clock,
    waiting: Mutex<Waiting>,
    changed: Condvar,
    abandoned: AtomicBool,
}

#[derive(Debug, Default)]
struct Waiting {
    /// Recordings, and when they were completed.
    queue: VecDeque<(Recording, u64)>,
    /// Those that could not be indexed, and when the last of them was tried.
    failed: VecDeque<(Recording, u64)>,
    failed_at: Option<Moment>,
    /// No more will come.
    ended: bool,
}

impl<'a> IndexQueue<'a> {
    pub(crate) fn new(clock: &'a dyn Clock) -> Self {
        Self {
            clock,
            waiting: Mutex::default(),
            changed: Condvar::new(),
            abandoned: AtomicBool::new(false),
        }
    }

    /// Adds a recording that was completed at a time.
    pub(crate) fn add(&self, recording: &Recording, completed_ns: u64) {
        lock(&self.waiting).queue.push_back((recording.clone(), completed_ns));
        self.changed.notify_all();
    }

    /// No more recordings will come.
    pub(crate) fn end(&self) {
        lock(&self.waiting).ended = true;
        self.changed.notify_all();
    }

    /// Ends indexing at once; recordings that wait are left to the next start.
    pub(crate) fn abandon(&self) {
        self.abandoned.store(true, Ordering::Relaxed);
        self.changed.notify_all();
    }

    /// Set by [`abandon`](Self::abandon).
    pub(crate) fn abandoned(&self) -> &AtomicBool {
        &self.abandoned
    }

    pub(crate) fn is_abandoned(&self) -> bool {
        self.abandoned.load(Ordering::Relaxed)
    }

    /// Waits for something to do. A recording stays in the queue until [`done`](Self::done) or
    /// [`failed`](Self::failed).
    pub(crate) fn next(&self) -> ToDo {
        let mut waiting = lock(&self.waiting);
        let asked = Moment::now(self.clock);
        loop {
            if self.is_abandoned() {
                return ToDo::End;
            }
            if let Some((recording, _)) = waiting.queue.front() {
                return ToDo::Index(recording.clone());
            }
            if waiting.ended {
                return ToDo::End;
            }
            if waiting.failed_at.is_some_and(|at| at.elapsed(self.clock) >= TRY_AGAIN_AFTER) {
                waiting.failed_at = None;
                waiting.queue = std::mem::take(&mut waiting.failed);
                continue;
            }
            let waited = asked.elapsed(self.clock);
            if waited >= DRAFT_EVERY {
                return ToDo::Draft;
            }
            let nap = self.clock.nap(Waiter::Indexer, DRAFT_EVERY.saturating_sub(waited));
            let woken = self.changed.wait_timeout(waiting, nap);
            waiting = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Whether the indexer has more to do than drafts.
    pub(crate) fn is_pressing(&self) -> bool {
        let waiting = lock(&self.waiting);
        !waiting.queue.is_empty() || waiting.ended || self.is_abandoned()
    }

    /// The first recording is indexed, or gone.
    pub(crate) fn done(&self) {
        lock(&self.waiting).queue.pop_front();
    }

    /// The first recording could not be indexed: it is tried again later.
    pub(crate) fn failed(&self) {
        let mut waiting = lock(&self.waiting);
        let first = waiting.queue.pop_front();
        waiting.failed.extend(first);
        waiting.failed_at = Some(Moment::now(self.clock));
    }

    pub(crate) fn backlog(&self) -> Backlog {
        let waiting = lock(&self.waiting);
        let all = || waiting.queue.iter().chain(&waiting.failed);
        let since_ns = all().map(|&(_, completed_ns)| completed_ns).min().unwrap_or(0);
        Backlog { recordings: all().count() as u64, since_ns }
    }
}
