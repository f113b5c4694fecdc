//! The clock of a recorder: it decides when recordings are closed and expire, when drafts are made,
//! and when the status is reported. All threads wait by it, so a test with a clock of its own does
//! not really wait; only sources do not use it, as they wait for the machine.
//!
//! The system's clock can be set, by hand or over the network, and be wrong for a moment. Age is
//! judged by it only while it agrees with a clock that cannot be set, which counts from the start
//! of the machine. When a recorder starts, the only other times are those of the packets in the
//! archive: if the newest packet is much older than the clock says, this has to stay so for a while
//! before any recording counts as too old.

use std::fmt::Debug;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::time::{ClockId, clock_gettime};

#[cfg(any(test, feature = "testing"))]
pub use hand::HandClock;

#[cfg(any(test, feature = "testing"))]
mod hand;

/// The threads of a recorder that wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Waiter {
    /// The writer of packets.
    Writer,
    /// Completes recordings.
    Sealer,
    /// Indexes them, and makes drafts.
    Indexer,
    /// Passes on orders to the other threads.
    Governor,
    /// Reports the status.
    Teller,
}

/// The clocks of a machine.
pub trait Clock: Debug + Sync {
    /// Nanoseconds since 1970, by the clock that can be set.
    fn now_ns(&self) -> u64;
    /// Nanoseconds since some start, by a clock that cannot be set and does not stop while the
    /// machine sleeps.
    fn steady_ns(&self) -> u64;
    /// Called by a thread that has done what was due and would wait this long for more; returns how
    /// long it may sleep before it looks at the clock again.
    fn nap(&self, _who: Waiter, time: Duration) -> Duration {
        time
    }
}

/// A moment by the steady clock.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Moment(u64);

impl Moment {
    pub(crate) fn now(clock: &dyn Clock) -> Self {
        Self(clock.steady_ns())
    }

    pub(crate) fn elapsed(self, clock: &dyn Clock) -> Duration {
        Self::now(clock).since(self)
    }

    pub(crate) fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

/// The clocks of this machine.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now_ns(&self) -> u64 {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
    }

    fn steady_ns(&self) -> u64 {
        let time = clock_gettime(ClockId::Boottime);
        let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
        seconds
            .saturating_mul(1_000_000_000)
            .saturating_add(u64::try_from(time.tv_nsec).unwrap_or(0))
    }
}

/// The largest jump of the clock that does not make it doubtful.
const TOLERANCE: Duration = Duration::from_secs(60);
/// A clock that jumped is trusted again after this time without another jump.
const BELIEVED_AFTER: Duration = Duration::from_secs(24 * 3_600);
/// How long a clock that is far ahead of all packets at the start has to run on without a jump.
const START_WAIT: Duration = Duration::from_secs(600);

fn nanos(time: Duration) -> i128 {
    i128::try_from(time.as_nanos()).unwrap_or(i128::MAX)
}

/// Whether recordings may be removed by age.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Judged {
    /// They may, and this is the time.
    Now(u64),
    /// Not for now; with a message if that has just begun.
    Paused(Option<String>),
    /// They may again.
    Resumed(u64),
}

/// Compares the two clocks.
#[derive(Debug)]
pub(crate) struct AgeClock {
    /// How far the settable clock is ahead of the other, as long as they agree.
    ahead: i128,
    /// How far it is ahead since it was set, and since when by the steady clock.
    doubted: Option<Doubted>,
}

#[derive(Debug, Clone, Copy)]
struct Doubted {
    ahead: i128,
    since: i128,
    /// How long it has to run without another jump.
    wait: i128,
    is_said: bool,
}

impl AgeClock {
    /// Starts to compare. `is_doubtful` says whether the clock may be wrong from the start.
    pub(crate) fn new(clock: &dyn Clock, is_doubtful: bool) -> Self {
        let (steady, now) = (i128::from(clock.steady_ns()), i128::from(clock.now_ns()));
        let ahead = now - steady;
        let wait = nanos(START_WAIT);
        let doubted = is_doubtful.then_some(Doubted { ahead, since: steady, wait, is_said: false });
        Self { ahead, doubted }
    }

    /// Looks at both clocks.
    pub(crate) fn judge(&mut self, clock: &dyn Clock) -> Judged {
        let (steady, now_ns) = (i128::from(clock.steady_ns()), clock.now_ns());
        let ahead = i128::from(now_ns) - steady;
        let is_near = |other: i128| (ahead - other).abs() <= nanos(TOLERANCE);
        let Some(doubted) = &mut self.doubted else {
            if is_near(self.ahead) {
                // Small steps are normal corrections.
                self.ahead = ahead;
                return Judged::Now(now_ns);
            }
            let wait = nanos(BELIEVED_AFTER);
            self.doubted = Some(Doubted { ahead, since: steady, wait, is_said: true });
            let seconds = (ahead - self.ahead) / 1_000_000_000;
            let direction = if seconds < 0 { "back" } else { "ahead" };
            return Judged::Paused(Some(format!(
                "the system clock has jumped {} s {direction}: recordings are not removed by age \
                 until it is as before, or has stayed so for a day",
                seconds.abs()
            )));
        };
        let is_start = doubted.wait == nanos(START_WAIT);
        if !is_near(doubted.ahead) {
            // It was set again.
            if !is_start && is_near(self.ahead) {
                self.ahead = ahead;
                self.doubted = None;
                return Judged::Resumed(now_ns);
            }
            (doubted.ahead, doubted.since) = (ahead, steady);
        }
        if steady - doubted.since >= doubted.wait {
            self.ahead = ahead;
            self.doubted = None;
            return Judged::Resumed(now_ns);
        }
        doubted.ahead = ahead;
        let is_said = std::mem::replace(&mut doubted.is_said, true);
        Judged::Paused((!is_said).then(|| {
            "the system clock is far ahead of the newest recording: none is removed by age until \
             it has stayed so for ten minutes"
                .to_owned()
        }))
    }
}

#[cfg(test)]
#[allow(clippy::panic, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;
    const YEAR: u64 = 365 * 24 * 3_600 * SECOND;

    fn may_remove(judged: &Judged) -> bool {
        !matches!(judged, Judged::Paused(_))
    }

    #[test]
    fn a_jump_pauses_until_it_is_undone() {
        for jump in [61 * SECOND, 3_600 * SECOND, 20 * YEAR] {
            for is_ahead in [true, false] {
                let clock = HandClock::new(50 * YEAR);
                let mut age = AgeClock::new(&clock, false);
                clock.pass(Duration::from_secs(10));
                assert_eq!(age.judge(&clock), Judged::Now(clock.now_ns()));
                if is_ahead {
                    clock.set(clock.now_ns() + jump)
                } else {
                    clock.set(clock.now_ns() - jump)
                }
                let Judged::Paused(Some(text)) = age.judge(&clock) else { panic!("{jump}") };
                let way = if is_ahead { "ahead" } else { "back" };
                assert!(text.contains(&format!("{} s {way}", jump / SECOND)), "{text}");
                for _ in 0..100 {
                    clock.pass(Duration::from_secs(60));
                    assert_eq!(age.judge(&clock), Judged::Paused(None), "said once");
                }
                if is_ahead {
                    clock.set(clock.now_ns() - jump)
                } else {
                    clock.set(clock.now_ns() + jump)
                }
                assert_eq!(age.judge(&clock), Judged::Resumed(clock.now_ns()));
                clock.pass(Duration::from_secs(1));
                assert_eq!(age.judge(&clock), Judged::Now(clock.now_ns()));
            }
        }
    }

    #[test]
    fn small_steps_are_followed_however_many() {
        let clock = HandClock::new(50 * YEAR);
        let mut age = AgeClock::new(&clock, false);
        for _ in 0..1_000 {
            clock.pass(Duration::from_secs(1));
            clock.set(clock.now_ns() + 30 * SECOND);
            assert!(may_remove(&age.judge(&clock)));
        }
    }

    #[test]
    fn a_sleep_of_the_machine_is_no_jump() {
        let clock = HandClock::new(50 * YEAR);
        let mut age = AgeClock::new(&clock, false);
        clock.pass(Duration::from_secs(30 * 24 * 3_600));
        assert!(may_remove(&age.judge(&clock)));
    }

    #[test]
    fn what_stays_for_a_day_is_believed() {
        let clock = HandClock::new(50 * YEAR);
        let mut age = AgeClock::new(&clock, false);
        clock.set(clock.now_ns() + YEAR);
        assert!(!may_remove(&age.judge(&clock)));
        clock.pass(Duration::from_secs(24 * 3_600 - 1));
        // It is set again: the day begins again.
        clock.set(clock.now_ns() + YEAR);
        assert!(!may_remove(&age.judge(&clock)));
        clock.pass(Duration::from_secs(24 * 3_600 - 1));
        assert!(!may_remove(&age.judge(&clock)));
        clock.pass(Duration::from_secs(1));
        assert_eq!(age.judge(&clock), Judged::Resumed(clock.now_ns()));
        assert_eq!(age.judge(&clock), Judged::Now(clock.now_ns()));
    }

    #[test]
    fn a_clock_that_is_wrong_at_the_start_removes_nothing() {
        let clock = HandClock::new(50 * YEAR);
        clock.set(clock.now_ns() + 5 * YEAR);
        let mut age = AgeClock::new(&clock, true);
        let Judged::Paused(Some(text)) = age.judge(&clock) else { panic!("it starts paused") };
        assert!(text.contains("ten minutes"), "{text}");
        clock.pass(Duration::from_secs(1));
        clock.set(clock.now_ns() - 5 * YEAR);
        // From here on it is right, and that has to be noticed, too.
        assert_eq!(age.judge(&clock), Judged::Paused(None));
        clock.pass(Duration::from_secs(599));
        assert_eq!(age.judge(&clock), Judged::Paused(None));
        clock.pass(Duration::from_secs(1));
        assert_eq!(age.judge(&clock), Judged::Resumed(clock.now_ns()));
    }

    #[test]
    fn the_clocks_of_this_machine_move() {
        let (now, steady) = (SystemClock.now_ns(), SystemClock.steady_ns());
        assert!(now > 1_600_000_000 * SECOND && steady > 0);
        assert!(SystemClock.steady_ns() >= steady);
    }
}
