//! One line on the terminal that shows how far the work has come, and the time left.
//!
//! The line is on standard error, and only if that is a terminal. Everything else that is printed
//! on the terminal meanwhile goes through [`beside`] or [`Beside`], which take the line away and
//! put it back below.

use std::io::{self, IsTerminal, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use indicatif::{FormattedDuration, ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};

use super::{interrupt, note};

/// Time between two updates, so that callers can report every step.
const INTERVAL: Duration = Duration::from_millis(100);
/// Shorter work shows no line.
const DELAY: Duration = Duration::from_millis(250);

/// The line that is on the terminal now.
static LINE: Mutex<Option<ProgressBar>> = Mutex::new(None);

fn line() -> MutexGuard<'static, Option<ProgressBar>> {
    LINE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether a command reports only problems.
#[derive(Debug, Clone, Copy, Default, clap::Args)]
pub(crate) struct QuietArg {
    /// Report only problems: no progress, no summary.
    #[arg(short, long)]
    pub(crate) quiet: bool,
}

impl QuietArg {
    /// The progress of the command.
    pub(super) fn progress(self) -> Progress {
        if self.quiet { Progress::hidden() } else { Progress::new() }
    }

    /// Reports something other than a problem.
    pub(super) fn note(self, text: &str) {
        if !self.quiet {
            note(text);
        }
    }
}

/// The progress of a command. Its line disappears when this is dropped.
#[derive(Debug)]
pub(super) struct Progress {
    /// `None` if nobody can see it.
    bar: Option<ProgressBar>,
    started: Instant,
    updated: Mutex<Option<Instant>>,
    /// Steps that were started.
    steps: AtomicU64,
}

impl Progress {
    /// A line, unless standard error is not a terminal. Ctrl-C removes it; a command with a handler
    /// of its own installs that first.
    pub(super) fn new() -> Self {
        let mut progress = Self::hidden();
        let is_dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        if !io::stderr().is_terminal() || is_dumb {
            return progress;
        }
        interrupt::watch();
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::hidden());
        bar.set_style(spinner());
        let weak = bar.downgrade();
        std::thread::spawn(move || {
            std::thread::sleep(DELAY);
            if let Some(bar) = weak.upgrade()
                && !bar.is_finished()
            {
                bar.set_draw_target(ProgressDrawTarget::stderr());
                bar.enable_steady_tick(INTERVAL);
            }
        });
        *line() = Some(bar.clone());
        progress.bar = Some(bar);
        progress
    }

    /// No line.
    pub(super) fn hidden() -> Self {
        Self {
            bar: None,
            started: Instant::now(),
            updated: Mutex::new(None),
            steps: AtomicU64::new(0),
        }
    }

    /// The time since the start of the work.
    pub(super) fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    /// Starts a stage of the work whose length is not known yet.
    pub(super) fn stage(&self, text: &str) {
        if let Some(bar) = &self.bar {
            bar.unset_length();
            bar.set_style(spinner());
            bar.reset();
            bar.set_message(super::escaped(text));
        }
    }

    /// Updates the text, unless the last update is very recent. The text gets the time since the
    /// start of the work.
    pub(super) fn show(&self, text: impl FnOnce(Duration) -> String) {
        if let Some(bar) = self.due() {
            bar.set_message(super::escaped(&text(self.elapsed())));
        }
    }

    /// The same with a bar and the time left, for work of known length.
    pub(super) fn show_of(&self, done: u64, total: u64, text: impl FnOnce(Duration) -> String) {
        let Some(bar) = self.due() else { return };
        if bar.length().is_none() {
            bar.set_style(bar_style());
        }
        // The position is never set before the total: a bar past its end shows nonsense.
        bar.set_length(total.max(1));
        bar.set_position(done.min(total));
        bar.set_message(super::escaped(&text(self.elapsed())));
    }

    /// Starts work that consists of this many steps.
    pub(super) fn steps(&self, total: u64) {
        if let Some(bar) = &self.bar {
            bar.reset();
            bar.set_style(bar_style());
            bar.set_length(total.max(1));
            self.steps.store(0, Ordering::Relaxed);
        }
    }

    /// Starts a step. The one before it is done.
    pub(super) fn step(&self, text: &str) {
        if let Some(bar) = &self.bar {
            bar.set_position(self.steps.fetch_add(1, Ordering::Relaxed));
            bar.set_message(super::escaped(text));
        }
    }

    /// The bar, if there is one and it is time for an update.
    fn due(&self) -> Option<&ProgressBar> {
        let bar = self.bar.as_ref()?;
        // If another thread is updating, there is nothing newer to show.
        let mut updated = self.updated.try_lock().ok()?;
        if updated.is_some_and(|updated| updated.elapsed() < INTERVAL) {
            return None;
        }
        *updated = Some(Instant::now());
        Some(bar)
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(bar) = self.bar.take() {
            *line() = None;
            bar.finish_and_clear();
        }
    }
}

fn spinner() -> ProgressStyle {
    styled(ProgressStyle::default_spinner(), "{spinner} {elapsed_precise}  {wide_msg}")
        .tick_chars("|/-\\ ")
}

fn bar_style() -> ProgressStyle {
    let left = |state: &ProgressState, target: &mut dyn std::fmt::Write| {
        let _ = match state.eta() {
            Duration::ZERO => target.write_str("--:--:--"),
            left => write!(target, "{}", FormattedDuration(left)),
        };
    };
    styled(ProgressStyle::default_bar(), "[{bar:24}] {percent:>3} %  {left} left  {wide_msg}")
        .progress_chars("=> ")
        .with_key("left", left)
}

/// The style with a template; ours are sound, so the default never remains.
fn styled(style: ProgressStyle, template: &str) -> ProgressStyle {
    style.clone().template(template).unwrap_or(style)
}

/// Prints something on the terminal while there may be a line.
pub(crate) fn beside<T>(print: impl FnOnce() -> T) -> T {
    match &*line() {
        Some(bar) => bar.suspend(print),
        None => print(),
    }
}

/// Removes the line before the process ends.
pub(crate) fn clear() {
    // If another thread is printing, the line is gone already.
    if let Ok(line) = LINE.try_lock()
        && let Some(bar) = &*line
    {
        bar.finish_and_clear();
    }
}

/// Standard output, which may be the same terminal as the line.
pub(crate) struct Beside<W> {
    target: W,
    is_terminal: bool,
}

impl<W: Write + IsTerminal> Beside<W> {
    pub(crate) fn new(target: W) -> Self {
        let is_terminal = target.is_terminal();
        Self { target, is_terminal }
    }
}

impl<W: Write> Write for Beside<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self.is_terminal {
            // All of it: other output between two parts would be in the middle of a line.
            true => beside(|| self.target.write_all(bytes)).map(|()| bytes.len()),
            false => self.target.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self.is_terminal {
            true => beside(|| self.target.flush()),
            false => self.target.flush(),
        }
    }
}
