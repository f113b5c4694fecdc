//! What a recorder is told while it runs, and what it tells its threads.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Orders to a recorder; signals set them, and so may its caller.
#[derive(Debug, Default)]
pub struct Control {
    /// To end: complete what there is.
    pub stop: AtomicBool,
    /// To end at once: leave indexing to the next start.
    pub hurry: AtomicBool,
    /// To close the recording that is open, and begin another.
    pub rotate: AtomicBool,
}

/// What the threads are told by the one that governs them.
#[derive(Debug, Default)]
pub(crate) struct Orders {
    /// Sources are to end; the writer ends after them.
    pub(crate) stop: Arc<AtomicBool>,
    /// The writer is to begin the next recording.
    pub(crate) rotate: AtomicBool,
}
