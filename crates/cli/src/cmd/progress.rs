//! A line on the terminal that says how far the work has come.

use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

const INTERVAL: Duration = Duration::from_millis(100);

/// The line; it is cleared when this is dropped. Where standard error is no terminal there is none.
#[derive(Debug)]
pub(super) struct Progress {
    on: bool,
    started: Instant,
    shown: Option<Instant>,
}

impl Progress {
    pub(super) fn new() -> Self {
        Self { on: io::stderr().is_terminal(), started: Instant::now(), shown: None }
    }

    /// One that is never seen.
    pub(super) fn hidden() -> Self {
        Self { on: false, ..Self::new() }
    }

    /// How long it has been there.
    pub(super) fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    /// Puts another text in place of the last one, unless that is very young. The text is told how
    /// long the work has taken.
    pub(super) fn show(&mut self, text: impl FnOnce(Duration) -> String) {
        if self.on && self.shown.is_none_or(|shown| shown.elapsed() >= INTERVAL) {
            let text = super::escaped(&text(self.elapsed()));
            drop(write!(io::stderr(), "\r\x1b[K{text}"));
            self.shown = Some(Instant::now());
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.shown.is_some() {
            drop(write!(io::stderr(), "\r\x1b[K"));
        }
    }
}
