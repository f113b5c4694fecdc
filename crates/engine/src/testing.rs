//! A disk and a device that fail, tables with a plain scan as the oracle, rows to be written in
//! another order, and the body of the fuzz target.
//!
//! A check panics when something is wrong. The fuzz target only wraps [`fuzz_index_open`].

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "checks panic")]

mod capture;
mod container;
mod decode;
mod disk;
pub mod filters;
mod forge;
mod memory_disk;
pub mod mutate;
mod order;
mod packet_device;
mod recording;
pub mod segment;
mod segment_device;
mod table;

pub use capture::fuzz_pcap_read;
pub use container::Parts;
pub use decode::fuzz_decode_frame;
pub use disk::{Call, EIO, ENOSPC, FaultyDisk, Gate, Operation};
pub use forge::{forge_note, fuzz_index_open, mend, relocate};
pub use order::OrderedRows;
pub use packet_device::{PacketFault, PlainPackets, sorted_packets};
pub use recording::fuzz_recording;
pub use segment_device::{Fault, PlainDevice};
pub use table::{Table, check_index, check_lookups, sample_marks};
