//! How long the threads that take captures in spend on each step.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// A step of taking captures in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Step {
    /// Packets are read and, without a device, decoded and grouped into flows.
    Read,
    /// A thread waits until the device has decoded and grouped packets.
    Device,
    /// The packets of a segment are sorted.
    Sort,
    /// Sections of an index are encoded.
    Encode,
    /// An index file is written and synced.
    Write,
    /// A thread has nothing to do, because all that is left is done by others.
    Idle,
}

impl Step {
    /// All of them, in their order.
    pub const ALL: [Self; 6] =
        [Self::Read, Self::Device, Self::Sort, Self::Encode, Self::Write, Self::Idle];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Device => "device",
            Self::Sort => "sort",
            Self::Encode => "encode",
            Self::Write => "write",
            Self::Idle => "idle",
        }
    }
}

/// The time that threads have spent on each step, together. Threads that help with a step count
/// only once, as the one that they help.
#[derive(Debug, Default)]
pub(in crate::archive) struct Steps([AtomicU64; Step::ALL.len()]);

impl Steps {
    /// Does something that is a step.
    pub(in crate::archive) fn time<T>(&self, step: Step, what: impl FnOnce() -> T) -> T {
        let start = Instant::now();
        let result = what();
        self.add(step, start.elapsed());
        result
    }

    pub(in crate::archive) fn add(&self, step: Step, time: Duration) {
        let nanoseconds = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.0[step as usize].fetch_add(nanoseconds, Relaxed);
    }

    /// A step was part of another one, as which it was counted.
    pub(in crate::archive) fn take_off(&self, step: Step, time: Duration) {
        let nanoseconds = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.0[step as usize].fetch_sub(nanoseconds, Relaxed);
    }

    /// The time of each.
    pub(in crate::archive) fn times(&self) -> [(Step, Duration); Step::ALL.len()] {
        Step::ALL.map(|step| (step, Duration::from_nanos(self.0[step as usize].load(Relaxed))))
    }
}
