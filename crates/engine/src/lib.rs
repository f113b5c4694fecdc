//! Packet captures that can be searched: from captures to bitmap indexes, from filters to packets.
//!
//! The modules in the order in which a packet goes in and an answer comes out:
//!
//! 1. [`capture`] reads pcap and pcapng: a [`Record`](capture::Record) for each packet.
//! 2. [`packet`] decodes the [`Headers`](packet::Headers) of a frame.
//! 3. [`fields`] declares what is kept of them, once for all others.
//! 4. [`archive`] is a folder of captures and their indexes. [`Ingest`](archive::Ingest) takes
//!    captures in and makes a [`Segment`](archive::Segment) of up to four million packets at a
//!    time.
//! 5. [`index`] is the file of a segment: bitmaps for every value of every column.
//! 6. [`query`] parses filters, plans them, and asks segments: a [`Query`](query::Query) is asked
//!    by [`Archive::search`](archive::Archive::search).
//!
//! Beside them, [`time`] has times and ranges of them, [`storage`] is what a writer needs from a
//! disk, [`beneath`] changes files without leaving a folder, and [`traffic`] generates packets.
//!
//! # Captures
//!
//! ```
//! use std::io::Write;
//! use tapdex_engine::archive::{Archive, Ingest, Input};
//! use tapdex_engine::capture::{CaptureWriter, FileFormat, Interface};
//! use tapdex_engine::query::{Query, filter::Filter};
//! use tapdex_engine::time::TimeRange;
//! use tapdex_engine::traffic::{Profile, Traffic};
//!
//! // A capture of made-up traffic: Ethernet, times in nanoseconds.
//! let folder = tempfile::tempdir()?;
//! let path = folder.path().join("a.pcap");
//! let file = std::io::BufWriter::new(std::fs::File::create(&path)?);
//! let ethernet = Interface::new(1, 1_000_000_000);
//! let mut writer = CaptureWriter::new(file, FileFormat::Pcap, &[ethernet], "")?;
//! let mut traffic = Traffic::new(&Profile { packets: 1_000, ..Profile::default() });
//! while let Some(packet) = traffic.next() {
//!     writer.packet(0, packet.time_ns, packet.wire_len, packet.data)?;
//! }
//! writer.finish()?.flush()?;
//!
//! // Take it in. What is wrong with a capture is in its report.
//! let archive = Archive::create(&folder.path().join("archive"), None)?;
//! let report = Ingest::new(&archive).run(&[Input::File(path)])?;
//! assert_eq!(report.files[0].packets, 1_000);
//!
//! // Ask it. No packet is read for this: columns tell all.
//! let query = Query::new(Filter::parse("tcp or udp", 0)?, TimeRange::ALL);
//! let answers = archive.search(&query)?.count()?;
//! assert!(answers.is_complete() && answers.count() > 500);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! [`query::Search`] goes on from there: packets as a stream, limits, cancellation, counts by field
//! and by time. The folder `examples/` has programs to start from.
//!
//! # Tables
//!
//! The index knows nothing of packets. A table has a row for each packet and a *field* for each
//! number that people ask for: addresses, ports, lengths. A field is cut into digits of 8 or 16
//! bits, and each digit is a *column*. The index of a column says, for every value that occurs in
//! it, in which rows it stands: a compressed set of [`tapdex_bitmap`]. All columns of a table go
//! into one file, `*.tdx`, and a look-up reads the few bitmaps it needs from it.
//!
//! ```
//! use tapdex_bitmap::{Chunks, Codec};
//! use tapdex_engine::index::{
//!     Builder, ColumnSpec, CpuBuilder, Digits, Field, Index, IndexWriter, Schema, Width,
//! };
//! use tapdex_engine::storage::Disk;
//!
//! // Four packets: the network they come from, in two digits, and the port they go to.
//! let columns = [
//!     (Digits::Bytes(&[10, 10, 172, 10]), Codec::Plwah),
//!     (Digits::Bytes(&[1, 2, 16, 1]), Codec::Plwah),
//!     (Digits::Shorts(&[443, 53, 443, 22]), Codec::Roaring),
//! ];
//! let byte = ColumnSpec { width: Width::Byte, codec: Codec::Plwah };
//! let short = ColumnSpec { width: Width::Short, codec: Codec::Roaring };
//! let schema = Schema {
//!     fields: vec![
//!         Field { name: "net".into(), columns: vec![byte, byte] },
//!         Field { name: "port".into(), columns: vec![short] },
//!     ],
//! };
//!
//! // Build and write: a column at a time, in the order of the schema.
//! let folder = tempfile::tempdir()?;
//! let path = folder.path().join("four.tdx");
//! let mut writer = IndexWriter::create(&Disk, &path, 4, schema)?;
//! CpuBuilder::new(1).build_each(&columns, |index| writer.column(index))?;
//! writer.times(&[100, 120, 125, 160])?;
//! writer.finish()?;
//!
//! // Open and look up: nothing but header, footer and schema is read before it is needed.
//! let index = Index::open(&path)?;
//! let (net, port) = (index.field("net")?, index.field("port")?);
//! assert_eq!(net.equals(10 << 8 | 1)?.ids().collect::<Vec<_>>(), [0, 3]);
//! assert_eq!(net.prefix(10 << 8, 8)?.count(), 3);
//! assert_eq!(port.range(0..=1023)?.and(net.prefix(172 << 8, 8)?).count(), 1);
//! let times = index.times()?.ok_or("no times")?;
//! assert_eq!(times.partition_point(|time| time < 125)?, 2);
//!
//! // Or read it all, and list what is wrong.
//! assert!(index.verify(&mut |_| {}).is_sound());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # What holds
//!
//! - A filter in the language of tcpdump matches the packets that libpcap's program matches. What
//!   columns cannot tell is decided by that program, see [`query::bpf`].
//! - A file gets its name only when it is complete and on the disk, and is not changed after that.
//!   See [`IndexWriter`](index::IndexWriter) and [`storage`].
//! - Every byte of a file is covered by a checksum, or compared with what it has to be. What a
//!   look-up touches is checked before it is used, and then remembered to be good; so on a file
//!   that was damaged a look-up gives the right rows or an [`IndexError`].
//! - On a file that was forged, checksums and all, a look-up returns what the bitmaps it reads say,
//!   or an error. Only [`Index::verify`](index::Index::verify) proves that a column's bitmaps have
//!   each row once.
//! - Bytes from a file never lead to a panic. To open and verify one takes no more memory than
//!   twice its size and 128 KiB, whatever it says. A look-up takes at most 200 bytes for each
//!   bitmap it reads, and room for a few chunks of rows, less than 18 KiB each.
//! - The same table gives the same bytes, on every machine and by every
//!   [`Builder`](index::Builder).
//!
//! `docs/format.md` in the repository is the specification of the file, `docs/filters.md` that of
//! filters. Not useful for: what packets carry, tables that change, rows that are deleted, values
//! longer than 128 bits.

pub mod archive;
pub mod beneath;
pub mod capture;
pub mod community_id;
pub mod fields;
pub mod index;
pub mod packet;
pub mod query;
pub mod storage;
#[cfg(feature = "testing")]
pub mod testing;
pub mod time;
pub mod traffic;

mod error;
#[cfg(libpcap_inside)]
mod libpcap;
mod mmap;
mod parallel;

pub use error::{Expected, IndexError, chain};
pub use mmap::map_large_blocks;

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks a mutex, even if a thread panicked while holding it: whoever uses this leaves the value
/// whole at every step.
pub(crate) fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
