//! A running search: its progress, and how to stop it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// A handle of a search. Its clones control the same search, from any thread.
///
/// ```
/// use tapdex_engine::query::Control;
///
/// let control = Control::default();
/// let other = control.clone();
/// std::thread::spawn(move || other.cancel()).join().unwrap();
/// assert!(control.is_cancelled());
/// ```
#[derive(Debug, Clone, Default)]
pub struct Control {
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    cancelled: AtomicBool,
    segments: AtomicU64,
    segments_asked: AtomicU64,
    packets_read: AtomicU64,
    packets_found: AtomicU64,
}

/// The progress of a search.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Progress {
    /// Segments of the archive.
    pub segments: u64,
    /// Segments that have answered.
    pub segments_asked: u64,
    /// Packets that were read to decide whether they match.
    pub packets_read: u64,
    /// Packets that matched and were delivered.
    pub packets_found: u64,
}

impl Control {
    /// Stops the search: it soon ends with [`SearchError::Cancelled`](super::SearchError).
    pub fn cancel(&self) {
        self.shared.cancelled.store(true, Ordering::Relaxed);
    }

    /// Whether the search was told to stop.
    pub fn is_cancelled(&self) -> bool {
        self.shared.cancelled.load(Ordering::Relaxed)
    }

    /// The progress of the search.
    pub fn progress(&self) -> Progress {
        let get = |number: &AtomicU64| number.load(Ordering::Relaxed);
        Progress {
            segments: get(&self.shared.segments),
            segments_asked: get(&self.shared.segments_asked),
            packets_read: get(&self.shared.packets_read),
            packets_found: get(&self.shared.packets_found),
        }
    }

    pub(super) fn set_segments(&self, segments: usize) {
        self.shared.segments.store(segments as u64, Ordering::Relaxed);
    }

    pub(super) fn add_asked(&self) {
        self.shared.segments_asked.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn add_read(&self, packets: u64) {
        self.shared.packets_read.fetch_add(packets, Ordering::Relaxed);
    }

    pub(super) fn add_found(&self) {
        self.shared.packets_found.fetch_add(1, Ordering::Relaxed);
    }
}
