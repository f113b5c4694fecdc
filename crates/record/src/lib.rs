//! From the wire into an archive, and back onto the wire.
//!
//! A packet goes through these, one after the other:
//!
//! 1. [`source`]: an interface, through libpcap's ring, or a stream. It puts packets together into
//!    blocks.
//! 2. `queue`: a fixed number of blocks on their way to the writer. If none is left, a stream
//!    waits, and an interface loses packets, which are counted.
//! 3. `writer`: appends blocks to the recording that is open, and closes it when it has enough.
//! 4. `sealer`: syncs what was written every second, and gives complete recordings their names.
//! 5. `indexer`: indexes complete recordings, and makes drafts of the open one when it has nothing
//!    else to do. It may fall behind: searches index in memory what it has not reached yet.
//!
//! [`keeper`] removes the oldest recordings when there is no room, and those that are too old by
//! [`clock`]. [`recorder`] puts all parts together. [`reporter`] reports events and the [`status`],
//! which is shown on the terminal, written into the archive, served to Prometheus ([`metrics`]),
//! and kept for others in the process ([`live`]). [`replay`] is the way back.

pub mod clock;
pub mod control;
pub mod keeper;
pub mod live;
pub mod messages;
pub mod metrics;
pub mod notify;
pub mod privileges;
pub mod recorder;
pub mod replay;
pub mod reporter;
pub mod sandbox;
pub mod signals;
pub mod source;
pub mod status;
pub mod units;

mod counters;
mod index_queue;
mod indexer;
mod ledger;
mod pipeline;
mod queue;
mod sealer;
mod writer;

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks a mutex, even if a thread panicked while holding it: whoever uses this leaves the value
/// whole at every step.
pub(crate) fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
