//! Capture files: reading and writing pcap and pcapng.
//!
//! [`CaptureReader`] walks through the packets of a file, from its start or from the middle, and
//! [`CaptureWriter`] writes them. Files that are packed with gzip or zstd are unpacked on the way
//! by [`decompress`]; [`open`] does that for a path.
//!
//! ```
//! use tapdex_engine::capture::{CaptureReader, CaptureWriter, FileFormat, Interface};
//!
//! let eth = Interface { name: "eth0".into(), ..Interface::new(1, 1_000_000_000) };
//! let mut writer = CaptureWriter::new(Vec::new(), FileFormat::Pcapng, &[eth], "")?;
//! writer.packet(0, 1_700_000_000_000_000_001, 60, &[0; 60])?;
//! let bytes = writer.finish()?;
//!
//! let mut reader = CaptureReader::open(&bytes[..])?;
//! while let Some(record) = reader.next()? {
//!     assert_eq!(record.time_ns, 1_700_000_000_000_000_001);
//!     assert_eq!(record.data.len(), 60);
//! }
//! assert_eq!(reader.layout().interfaces[0].name, "eth0");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # What is read
//!
//! The packets that libpcap 1.10 delivers before it reports an error, if it does: the same bytes,
//! lengths and times. The exceptions:
//!
//! - libpcap ends where an interface has another link type or snapshot length than the first one,
//!   or where a section has another byte order. These files are sound, and are read in full.
//! - Seconds and fractions in pcap records are unsigned, so they reach to 2106. libpcap reads them
//!   as signed numbers in files in the machine's byte order.
//! - Times in pcapng before 1970 are 1970, and those after 2554 are the last nanosecond that a
//!   `u64` can count.

pub mod blocks;
mod compression;
mod error;
mod guess;
mod layout;
mod pcapng;
mod pseudo;
mod read;
mod write;

pub use compression::{Compression, Decompressed, decompress};
pub use error::{CaptureError, DecompressError};
pub(crate) use guess::{GUESS_LEN, next_start};
pub(crate) use pcapng::Gathered;
pub use read::{CaptureReader, Record, is_capture};
pub use write::{CaptureWriter, FileFormat};

use std::fs::File;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::beneath::open_stream;

/// Opens the capture at `path`, packed or not.
pub fn open(path: impl AsRef<Path>) -> Result<CaptureReader<Decompressed<File>>, CaptureError> {
    let file = open_stream(path.as_ref())
        .map_err(|source| CaptureError::io("open the file", 0, source))?;
    CaptureReader::open(decompress(file)?)
}

/// A source of packets, as a capture file describes it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Interface {
    /// LINKTYPE_ number of its frames.
    pub link: u16,
    /// Frames are cut to this many bytes; 0 if they are not cut.
    pub snaplen: u32,
    /// Ticks of its clock in a second.
    pub ticks: u64,
    /// Seconds to add to its times.
    pub offset_s: i64,
    /// Its name; empty if it has none.
    pub name: String,
    /// What it is; empty if the file does not say.
    pub description: String,
}

impl Interface {
    /// An interface without a name that does not cut its frames.
    pub fn new(link: u16, ticks: u64) -> Self {
        Self {
            link,
            snaplen: 0,
            ticks,
            offset_s: 0,
            name: String::new(),
            description: String::new(),
        }
    }

    /// The most bytes that a frame of it can have: the snapshot length, or the most that libpcap
    /// reads for this link type.
    pub(crate) fn frame_max(&self) -> u32 {
        match self.snaplen {
            0 | 0x8000_0000.. => frame_max(self.link),
            snaplen => snaplen,
        }
    }
}

/// A part of a file with a byte order of its own: a pcapng section, or a whole pcap file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Section {
    /// Where it starts.
    pub offset: u64,
    /// Whether its numbers have the most significant byte first.
    pub big_endian: bool,
    /// The first of its interfaces in [`Layout::interfaces`].
    pub first_interface: u32,
}

/// What has to be known about a file to read packets from the middle of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "layout::LayoutText", into = "layout::LayoutText")]
pub struct Layout {
    /// Whether the file is pcapng; otherwise it is pcap.
    pub pcapng: bool,
    /// The form of the records of a pcap file.
    pub records: RecordForm,
    /// Its sections, in order.
    pub sections: Vec<Section>,
    /// The interfaces of all sections, in order.
    pub interfaces: Vec<Interface>,
    /// The sections and interfaces that start before this offset are in the lists.
    pub known: u64,
}

impl Layout {
    /// Whether the packets of an interface come from a file or section with another byte order
    /// than this machine.
    pub fn is_swapped(&self, interface: u32) -> bool {
        let after = self.sections.partition_point(|section| section.first_interface <= interface);
        let section = after.checked_sub(1).and_then(|section| self.sections.get(section));
        section.is_some_and(|section| section.big_endian != cfg!(target_endian = "big"))
    }
}

/// The form of the records of a pcap file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct RecordForm {
    /// Their headers have 24 bytes instead of 16: the "modified" format.
    pub long: bool,
    /// Which of the two lengths comes first.
    pub lengths: Lengths,
}

/// Which of the two lengths in the header of a pcap record comes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum Lengths {
    /// The captured length, as in all files of today.
    #[default]
    Captured,
    /// The length on the wire: files of versions up to 2.2, and of DG/UX.
    Wire,
    /// The smaller one is the captured length: files of version 2.3.
    Smaller,
}

/// The most bytes of a frame that libpcap reads for a link type, unless the file has a smaller
/// limit.
pub(crate) fn frame_max(link: u16) -> u32 {
    match link {
        231 => 128 << 20, // D-Bus
        279 => 8 << 20,   // Elektrobit High Speed Capture and Replay
        249 => 1 << 20,   // USBPcap
        _ => 256 << 10,
    }
}

/// The longest block of a pcapng file that libpcap reads, once an interface of this link is known:
/// a packet block with the longest frame and 128 KiB of options.
pub(crate) fn block_max(link: u16) -> u32 {
    BLOCK_MAX.max(frame_max(link) + (128 << 10) + 32)
}

/// The longest block before any interface is known.
pub(crate) const BLOCK_MAX: u32 = 16 << 20;

/// Link types that other systems number differently: raw IP of BSD/OS and of OpenBSD.
pub(crate) fn link_type(number: u32) -> u16 {
    match u16::try_from(number) {
        Ok(12 | 14) => 101,
        Ok(link) => link,
        // libpcap has room for 26 bits. None of these is assigned, and the last 16-bit number is
        // not either.
        Err(_) => u16::MAX,
    }
}
