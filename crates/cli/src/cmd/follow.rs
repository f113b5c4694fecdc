//! Going on with what a recorder writes, until somebody has enough.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tapdex_engine::archive::Archive;
use tapdex_engine::query::{Follow, Fresh, Query};

use super::ask::{Answers, now_ns};
use super::note;

/// How often we look for new packets.
const EVERY: Duration = Duration::from_millis(200);
/// How long after the last time that is wanted packets of it may still be written.
const LATE_NS: i128 = 3_000_000_000;

static STOP: AtomicBool = AtomicBool::new(false);

/// From now on Ctrl-C ends the following, and not the process.
pub(super) fn watch() {
    // Without a handler the process ends at once.
    drop(ctrlc::set_handler(|| STOP.store(true, Ordering::Relaxed)));
}

/// Who gets the packets.
pub(super) trait Follower {
    /// Takes a packet; whether it wants more.
    fn packet(&mut self, fresh: &Fresh<'_>) -> anyhow::Result<bool>;
    /// All that there was has been handed over: time to show it.
    fn pause(&mut self) -> anyhow::Result<()>;
}

/// Hands packets over as they are recorded, until the follower has enough, Ctrl-C, or the time that
/// is wanted is over.
pub(super) fn run(
    archive: &Archive,
    query: &Query,
    answers: &Answers,
    follower: &mut dyn Follower,
) -> anyhow::Result<()> {
    let mut follow = Follow::after(archive, query, answers.segments.iter().map(|(s, _)| s));
    let mut refused = 0;
    loop {
        let mut outcome = Ok(true);
        follow.poll(&mut |fresh| {
            outcome = follower.packet(&fresh);
            Ok(matches!(outcome, Ok(true)) && !STOP.load(Ordering::Relaxed))
        })?;
        let go_on = outcome?;
        follower.pause()?;
        if follow.refused().len() > refused {
            refused = follow.refused().len();
            for (link, message) in follow.refused() {
                note(&format!("packets of {link} are left out: {message}"));
            }
        }
        let (_, to) = query.times();
        let over = to.is_some_and(|to| now_ns() > i128::from(to) + LATE_NS);
        if !go_on || over || STOP.load(Ordering::Relaxed) {
            return Ok(());
        }
        std::thread::sleep(EVERY);
    }
}
