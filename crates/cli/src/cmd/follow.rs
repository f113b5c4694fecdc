//! `--follow`: continues with packets as they are recorded.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Context;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tapdex_engine::archive::Archive;
use tapdex_engine::query::{Answers, Follow, Fresh, Query};
use tapdex_record::status::Status;

use super::ask::now_ns;
use super::{CANNOT_WRITE, Incomplete, chain, interrupt, note};

/// How often to check for new packets.
const EVERY: Duration = Duration::from_millis(200);
/// How long after the end of the requested times their packets may still be written.
const LATE_NS: u64 = 3_000_000_000;

static STOP: AtomicBool = AtomicBool::new(false);

/// From now on Ctrl-C ends following, but not the process; a second one ends the process, too.
pub(super) fn watch() {
    interrupt::handle(|| {
        if STOP.swap(true, Ordering::Relaxed) {
            interrupt::exit();
        }
    });
}

/// Whether Ctrl-C, or a signal with the same effect, has ended following.
pub(super) fn is_stopped() -> bool {
    STOP.load(Ordering::Relaxed)
}

/// Receives the packets.
pub(super) trait Follower {
    /// Takes a packet; returns whether it wants more.
    fn packet(&mut self, fresh: &Fresh<'_>) -> anyhow::Result<bool>;
    /// Called when all packets so far have been passed on: time to show them.
    fn pause(&mut self) -> anyhow::Result<()>;
    /// Whether the packets go to standard output.
    fn is_on_stdout(&self) -> bool;
}

/// Passes packets on as they are recorded, until the follower has enough, Ctrl-C is pressed, or the
/// requested times are over. Returns how many recordings could not be read to their end; they have
/// been reported.
pub(super) fn run(
    archive: &Archive,
    query: &Query,
    answers: &Answers,
    follower: &mut dyn Follower,
) -> anyhow::Result<usize> {
    let mut follow = Follow::after(archive, query, answers.segments.iter().map(|(s, _)| s));
    let (mut refused, mut missed) = (0, 0);
    let to = query.times().to_ns;
    let is_over = || to.is_some_and(|to| now_ns() > to.saturating_add(LATE_NS));
    if !is_stopped() && !is_over() && !Status::is_running(archive) {
        let archive = archive.folder().display();
        note(&format!("no recorder is running on {archive}; waiting for one, until Ctrl-C"));
    }
    loop {
        let mut outcome = Ok(true);
        follow.poll(&mut |fresh| {
            if is_stopped() {
                return Ok(false);
            }
            outcome = follower.packet(&fresh);
            Ok(matches!(outcome, Ok(true)))
        })?;
        let go_on = outcome?;
        follower.pause()?;
        if follow.refused().len() > refused {
            refused = follow.refused().len();
            for (link, refusal) in follow.refused() {
                note(&format!("packets of {link} are skipped: {}", refusal.reason));
            }
        }
        for error in &follow.missed()[missed..] {
            note(&chain(error));
        }
        missed = follow.missed().len();
        if !go_on || is_over() || is_stopped() {
            return Ok(missed);
        }
        if follower.is_on_stdout() && !has_reader() {
            // As if we had written something and got this error.
            let gone = io::Error::from(io::ErrorKind::BrokenPipe);
            return Err(gone).context(CANNOT_WRITE);
        }
        std::thread::sleep(EVERY);
    }
}

/// Whether standard output has a reader, or may get one later.
pub(super) fn has_reader() -> bool {
    let stdout = io::stdout();
    let mut asked = [PollFd::new(&stdout, PollFlags::empty())];
    // If it cannot be polled, it is written to until that fails.
    let answered = poll(&mut asked, Some(&Timespec::default()));
    let gone = PollFlags::ERR | PollFlags::HUP;
    answered.is_err() || !asked[0].revents().intersects(gone)
}

/// An error for an incomplete answer, if recordings could not be read to their end.
pub(super) fn finish(missed: usize) -> anyhow::Result<()> {
    match missed {
        0 => Ok(()),
        1 => Err(Incomplete("a recording could not be read, see above".into()).into()),
        n => Err(Incomplete(format!("{n} recordings could not be read, see above")).into()),
    }
}
