//! Orders to a running recorder, and its orders to its threads.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Orders to a recorder; signals set them, and so may its caller.
#[derive(Debug, Default)]
pub struct Control {
    /// To end: complete the recordings first.
    pub stop: AtomicBool,
    /// To end at once: leave indexing to the next start.
    pub hurry: AtomicBool,
    /// To close the recording that is open, and begin another.
    pub rotate: AtomicBool,
}

/// Orders from the governor to the other threads.
#[derive(Debug, Default)]
pub(crate) struct Orders {
    /// Sources have to end; the writer ends after them.
    pub(crate) stop: Arc<AtomicBool>,
    /// The writer has to begin the next recording.
    pub(crate) rotate: AtomicBool,
}
