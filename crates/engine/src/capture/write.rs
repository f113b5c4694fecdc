//! Writing capture files.

use std::io::{self, Write};

use super::blocks::{self, PACKET_BLOCK_LEN, Statistics};
use super::error::CaptureError;
use super::{Interface, block_max, frame_max};
use crate::error::Expected;

/// The format of a capture file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileFormat {
    /// pcapng.
    Pcapng,
    /// pcap.
    Pcap,
}

impl FileFormat {
    fn name(self) -> &'static str {
        match self {
            Self::Pcapng => "pcapng",
            Self::Pcap => "pcap",
        }
    }
}

const NANO: u64 = 1_000_000_000;
const MICROS: u64 = 1_000_000;

/// Writes a capture, little-endian.
///
/// It writes in small pieces, so give it a [`BufWriter`](io::BufWriter) or a `Vec`.
///
/// - **pcapng**: a section header with the program's name and the comment, a block for each
///   interface, and an enhanced packet block for each packet, with its time in nanoseconds.
/// - **pcap**: one link type. Times are in nanoseconds if a clock of the interfaces is finer than a
///   microsecond, and otherwise cut to microseconds. Names and the comment are dropped.
#[derive(Debug)]
pub struct CaptureWriter<W> {
    target: W,
    format: FileFormat,
    /// Link type and longest frame of each interface.
    links: Vec<(u16, u32)>,
    /// For a pcap file, nanoseconds in a unit of its times.
    unit_ns: u64,
    /// For a pcap file, the snapshot length that its header will have.
    snaplen: u32,
    /// Whether the header of a pcap file is written. It is written with the first packet, so that
    /// interfaces added before still count.
    started: bool,
    written: u64,
}

impl<W: Write> CaptureWriter<W> {
    /// Starts a file with these interfaces. An empty comment is left out.
    pub fn new(
        target: W,
        format: FileFormat,
        interfaces: &[Interface],
        comment: &str,
    ) -> Result<Self, CaptureError> {
        let mut writer = Self {
            target,
            format,
            links: Vec::new(),
            unit_ns: 1000,
            snaplen: 0,
            started: false,
            written: 0,
        };
        if format == FileFormat::Pcapng {
            let mut block = Vec::new();
            blocks::section(&mut block, comment);
            writer.put(&block)?;
        }
        for interface in interfaces {
            writer.add_interface(interface)?;
        }
        Ok(writer)
    }

    /// Adds an interface and returns its number.
    ///
    /// A pcap file takes only interfaces with the link type of the first one, and after its first
    /// packet only those whose clock and frame length its header allows.
    pub fn add_interface(&mut self, interface: &Interface) -> Result<u32, CaptureError> {
        let Ok(number) = u32::try_from(self.links.len()) else {
            let expected = Expected::AtMost(u32::MAX.into());
            return Err(self.unwritable("interface", expected, u64::MAX));
        };
        let most = interface.frame_max();
        match self.format {
            FileFormat::Pcapng => {
                let mut block = Vec::new();
                blocks::interface(&mut block, interface, "");
                self.put(&block)?;
            }
            FileFormat::Pcap => {
                if let Some(&(link, _)) =
                    self.links.first().filter(|first| first.0 != interface.link)
                {
                    let expected = Expected::Exactly(link.into());
                    return Err(self.unwritable("link type", expected, interface.link.into()));
                }
                let unit_ns = if interface.ticks > MICROS { 1 } else { self.unit_ns };
                if self.started && unit_ns < self.unit_ns {
                    let expected = Expected::AtMost(MICROS);
                    return Err(self.unwritable("ticks a second", expected, interface.ticks));
                }
                if self.started && most > self.snaplen {
                    let expected = Expected::AtMost(self.snaplen.into());
                    return Err(self.unwritable("snapshot length", expected, most.into()));
                }
                self.unit_ns = unit_ns;
                self.snaplen = self.snaplen.max(most);
            }
        }
        self.links.push((interface.link, most));
        Ok(number)
    }

    /// Writes a packet of the interface with that number.
    ///
    /// Its data may not be longer than the interface's frames: readers would cut them or stop.
    #[inline]
    pub fn packet(
        &mut self,
        interface: u32,
        time_ns: u64,
        wire_len: u32,
        data: &[u8],
    ) -> Result<(), CaptureError> {
        let Some(&(link, most)) = self.links.get(interface as usize) else {
            let last = (self.links.len() as u64).saturating_sub(1);
            let expected = Expected::AtMost(last);
            return Err(self.unwritable("a packet of interface", expected, interface.into()));
        };
        let most = most.min(match self.format {
            FileFormat::Pcapng => block_max(link) - PACKET_BLOCK_LEN,
            FileFormat::Pcap => frame_max(link),
        });
        let len = match u32::try_from(data.len()) {
            Ok(len) if len <= most => len,
            _ => {
                let expected = Expected::AtMost(most.into());
                return Err(self.unwritable("a packet of length", expected, data.len() as u64));
            }
        };
        match self.format {
            FileFormat::Pcapng => self.write_block(interface, time_ns, wire_len, len, data),
            FileFormat::Pcap => self.write_record(time_ns, wire_len, len, data),
        }
    }

    /// Writes the statistics of an interface; a pcap file has no place for them.
    pub fn statistics(&mut self, interface: u32, counts: &Statistics) -> Result<(), CaptureError> {
        if self.format == FileFormat::Pcap {
            return Ok(());
        }
        let mut block = Vec::new();
        blocks::statistics(&mut block, interface, counts);
        self.put(&block)
    }

    #[inline]
    fn write_block(
        &mut self,
        interface: u32,
        time_ns: u64,
        wire_len: u32,
        len: u32,
        data: &[u8],
    ) -> Result<(), CaptureError> {
        let (head, tail, tail_start) = blocks::packet_frame(interface, time_ns, wire_len, len);
        self.put(&head)?;
        self.put(data)?;
        self.put(&tail[tail_start..])
    }

    #[inline]
    fn write_record(
        &mut self,
        time_ns: u64,
        wire_len: u32,
        len: u32,
        data: &[u8],
    ) -> Result<(), CaptureError> {
        let (seconds, fraction) = (time_ns / NANO, time_ns % NANO / self.unit_ns);
        let Ok(seconds) = u32::try_from(seconds) else {
            let expected = Expected::AtMost(u32::MAX.into());
            return Err(self.unwritable("seconds since 1970", expected, seconds));
        };
        if !self.started {
            self.write_header().map_err(|error| self.error(error))?;
        }
        let mut head = [0; 16];
        for (target, word) in
            head.as_chunks_mut().0.iter_mut().zip([seconds, low(fraction), len, wire_len])
        {
            *target = word.to_le_bytes();
        }
        self.put(&head)?;
        self.put(data)
    }

    #[inline(never)]
    fn write_header(&mut self) -> io::Result<()> {
        // Without interfaces, the link type is not known.
        let link = self.links.first().map_or(1, |&(link, _)| link);
        let magic: u32 = if self.unit_ns == 1 { 0xA1B2_3C4D } else { 0xA1B2_C3D4 };
        let snaplen = if self.snaplen == 0 { frame_max(link) } else { self.snaplen };
        self.started = true;
        let version = 4 << 16 | 2;
        for word in [magic, version, 0, 0, snaplen, link.into()] {
            self.target.write_all(&word.to_le_bytes())?;
            self.written += 4;
        }
        Ok(())
    }

    /// Writes the rest of the file, flushes it, and returns the target.
    pub fn finish(mut self) -> io::Result<W> {
        if self.format == FileFormat::Pcap && !self.started {
            self.write_header()?;
        }
        self.target.flush()?;
        Ok(self.target)
    }

    /// Flushes what was written so far, for readers of a growing file.
    pub fn flush(&mut self) -> io::Result<()> {
        self.target.flush()
    }

    /// How many bytes were written.
    pub fn written(&self) -> u64 {
        self.written
    }

    #[inline]
    fn put(&mut self, bytes: &[u8]) -> Result<(), CaptureError> {
        self.target.write_all(bytes).map_err(|error| self.error(error))?;
        self.written += bytes.len() as u64;
        Ok(())
    }

    #[cold]
    fn error(&self, source: io::Error) -> CaptureError {
        CaptureError::io("write the capture", self.written, source)
    }

    #[cold]
    fn unwritable(&self, what: &'static str, expected: Expected, got: u64) -> CaptureError {
        CaptureError::Unwritable { what, format: self.format.name(), expected, got }
    }
}

fn low(number: u64) -> u32 {
    u32::try_from(number & u64::from(u32::MAX)).unwrap_or(u32::MAX)
}
