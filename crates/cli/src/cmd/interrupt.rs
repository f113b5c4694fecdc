//! What Ctrl-C does to a file that is not complete yet.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// As shells have it: 128 and the number of the signal.
const EXIT_INTERRUPTED: i32 = 130;

/// The file that must not stay if the process is told to stop.
static PENDING: Mutex<Option<PathBuf>> = Mutex::new(None);

fn pending() -> std::sync::MutexGuard<'static, Option<PathBuf>> {
    PENDING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// From now on Ctrl-C removes the pending file, if there is one, before the process ends.
pub(super) fn watch() {
    // Without a handler the process ends all the same, and the next build clears up.
    drop(ctrlc::set_handler(|| {
        // Held until the end, so that nothing is renamed in the meantime.
        let pending = pending();
        if let Some(path) = pending.as_deref() {
            drop(std::fs::remove_file(path));
        }
        std::process::exit(EXIT_INTERRUPTED);
    }));
}

/// A file that Ctrl-C removes as long as this lives.
#[derive(Debug)]
pub(super) struct Pending;

impl Pending {
    pub(super) fn new(path: &Path) -> Self {
        *pending() = Some(path.to_owned());
        Self
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        *pending() = None;
    }
}
