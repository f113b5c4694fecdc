//! From the wire into an archive, and back onto the wire.
//!
//! A packet goes through these, one after the other:
//!
//! 1. [`source`]: an interface, through libpcap's ring, or a stream. It puts packets together into
//!    blocks.
//! 2. `queue`: a fixed number of blocks on their way to the writer. Where there is none left, a
//!    stream waits, and an interface loses packets, which are counted.
//! 3. `writer`: appends blocks to the recording that is open, and closes it when it has enough.
//! 4. `sealer`: syncs what was written every second, and gives complete recordings their names.
//! 5. `indexer`: indexes complete recordings, and makes drafts of the open one when it has nothing
//!    else to do. It may be as far behind as it likes; searches index in memory what it has not got
//!    to.
//!
//! [`keeper`] removes the oldest recordings when there is no room, and those that are too old by
//! [`clock`]. [`recorder`] has it all
//! together, and [`status`] is what it says of itself: on the terminal, in the archive, and to
//! Prometheus ([`metrics`]). [`replay`] is the way back.

pub mod clock;
pub mod disk;
pub mod keeper;
pub mod metrics;
pub mod notify;
pub mod privileges;
pub mod recorder;
pub mod replay;
pub mod sandbox;
pub mod signals;
pub mod source;
pub mod status;
pub mod units;

mod counters;
mod indexer;
mod queue;
mod sealer;
mod writer;
