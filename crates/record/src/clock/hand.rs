//! Clocks that are set by hand.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::{Clock, Waiter};
use crate::lock;

/// How often threads look at clocks that stand still.
const LOOK_EVERY: Duration = Duration::from_millis(1);

/// Clocks that stand still until they are moved, and count the waits of each thread.
#[derive(Debug)]
pub struct HandClock {
    now_ns: AtomicU64,
    steady_ns: AtomicU64,
    naps: Mutex<BTreeMap<Waiter, u64>>,
}

impl HandClock {
    /// Clocks at a time, in nanoseconds since 1970.
    pub fn new(now_ns: u64) -> Self {
        let steady_ns = AtomicU64::new(77_000_000_000);
        Self { now_ns: AtomicU64::new(now_ns), steady_ns, naps: Mutex::default() }
    }

    /// Lets time pass.
    pub fn pass(&self, time: Duration) {
        let ns = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.now_ns.fetch_add(ns, Ordering::SeqCst);
        self.steady_ns.fetch_add(ns, Ordering::SeqCst);
    }

    /// Sets the clock that can be set.
    pub fn set(&self, now_ns: u64) {
        self.now_ns.store(now_ns, Ordering::SeqCst);
    }

    /// How often a thread has begun to wait. When this is two more than at some moment, the thread
    /// has looked at the clock after that moment, and has done what was due.
    pub fn naps(&self, who: Waiter) -> u64 {
        let naps = lock(&self.naps);
        naps.get(&who).copied().unwrap_or(0)
    }
}

impl Clock for HandClock {
    fn now_ns(&self) -> u64 {
        self.now_ns.load(Ordering::SeqCst)
    }

    fn steady_ns(&self) -> u64 {
        self.steady_ns.load(Ordering::SeqCst)
    }

    fn nap(&self, who: Waiter, time: Duration) -> Duration {
        *lock(&self.naps).entry(who).or_default() += 1;
        time.min(LOOK_EVERY)
    }
}
