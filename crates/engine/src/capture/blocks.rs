//! The blocks of a pcapng file, as bytes, little-endian: for
//! [`CaptureWriter`](super::CaptureWriter), and for a recorder that puts packets together before it
//! has a file for them.

use super::Interface;
use super::pcapng::{
    BLOCK_MIN, BYTE_ORDER_MAGIC, ENHANCED_PACKET, INTERFACE, OPTION_DESCRIPTION, OPTION_END,
    OPTION_NAME, OPTION_TICKS, SECTION_HEADER, STATISTICS,
};

const OPTION_COMMENT: u16 = 1;
const OPTION_APPLICATION: u16 = 4;
const OPTION_FILTER: u16 = 11;

/// Bytes of a packet's block besides the packet.
pub(super) const PACKET_BLOCK_LEN: u32 = 32;

/// Appends the start of a section. An empty comment is left out.
pub fn section(out: &mut Vec<u8>, comment: &str) {
    block(out, SECTION_HEADER, |body| {
        body.extend(BYTE_ORDER_MAGIC.to_le_bytes());
        body.extend([1, 0, 0, 0]); // version 1.0
        body.extend(u64::MAX.to_le_bytes()); // the section's length is not given
        if !comment.is_empty() {
            option(body, OPTION_COMMENT, comment.as_bytes());
        }
        let application = concat!("tapdex ", env!("CARGO_PKG_VERSION"));
        option(body, OPTION_APPLICATION, application.as_bytes());
        option(body, OPTION_END, &[]);
    });
}

/// Appends an interface, whose packets have times in nanoseconds. An empty capture filter is left
/// out.
pub fn interface(out: &mut Vec<u8>, interface: &Interface, filter: &str) {
    block(out, INTERFACE, |body| {
        body.extend(interface.link.to_le_bytes());
        body.extend([0; 2]);
        body.extend(interface.snaplen.to_le_bytes());
        if !interface.name.is_empty() {
            option(body, OPTION_NAME, interface.name.as_bytes());
        }
        if !interface.description.is_empty() {
            option(body, OPTION_DESCRIPTION, interface.description.as_bytes());
        }
        option(body, OPTION_TICKS, &[9]);
        if !filter.is_empty() {
            // A libpcap filter, as text.
            option(body, OPTION_FILTER, &[&[0], filter.as_bytes()].concat());
        }
        option(body, OPTION_END, &[]);
    });
}

/// Appends a packet. `len` is that of its data, which the caller knows to fit.
#[inline]
pub fn packet(out: &mut Vec<u8>, interface: u32, time_ns: u64, wire_len: u32, data: &[u8]) {
    let len = u32::try_from(data.len()).unwrap_or(u32::MAX);
    let (head, tail, tail_start) = packet_frame(interface, time_ns, wire_len, len);
    out.extend_from_slice(&head);
    out.extend_from_slice(data);
    out.extend_from_slice(&tail[tail_start..]);
}

/// How long the block of a packet is.
#[inline]
pub fn packet_len(data_len: usize) -> usize {
    PACKET_BLOCK_LEN as usize + data_len.next_multiple_of(4)
}

/// The bytes before a packet's data and those behind them, and where the latter start.
#[inline]
pub(super) fn packet_frame(
    interface: u32,
    time_ns: u64,
    wire_len: u32,
    len: u32,
) -> ([u8; 28], [u8; 8], usize) {
    let padding = len.next_multiple_of(4) - len;
    let block_len = PACKET_BLOCK_LEN + len + padding;
    let mut head = [0; 28];
    // The high half of the time comes first.
    let [low, high] = halves(time_ns);
    let words = [ENHANCED_PACKET, block_len, interface, high, low, len, wire_len];
    for (target, word) in head.as_chunks_mut().0.iter_mut().zip(words) {
        *target = word.to_le_bytes();
    }
    // As many zeros before the length as needed.
    let mut tail = [0; 8];
    tail[4..].copy_from_slice(&block_len.to_le_bytes());
    (head, tail, 4 - padding as usize)
}

/// Packet counters of an interface for a span of time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Statistics {
    /// The first moment, in nanoseconds since 1970.
    pub start_ns: u64,
    /// The last one.
    pub end_ns: u64,
    /// Packets that passed the capture filter, whether or not they were lost later.
    pub received: u64,
    /// Packets that the interface lost.
    pub lost_by_interface: u64,
    /// Packets that the kernel, or the program that captures, had no room for.
    pub lost_by_kernel: u64,
    /// Packets that are in the file.
    pub delivered: u64,
}

impl Statistics {
    /// Packets that are not in the file.
    pub fn lost(&self) -> u64 {
        self.lost_by_interface.saturating_add(self.lost_by_kernel)
    }

    /// Adds the counters of another time, or of another interface.
    pub(crate) fn add(&mut self, other: &Self) {
        self.start_ns = self.start_ns.min(other.start_ns);
        self.end_ns = self.end_ns.max(other.end_ns);
        self.received = self.received.saturating_add(other.received);
        self.lost_by_interface = self.lost_by_interface.saturating_add(other.lost_by_interface);
        self.lost_by_kernel = self.lost_by_kernel.saturating_add(other.lost_by_kernel);
        self.delivered = self.delivered.saturating_add(other.delivered);
    }
}

/// Appends the packet counters of an interface.
pub fn statistics(out: &mut Vec<u8>, interface: u32, counts: &Statistics) {
    block(out, STATISTICS, |body| {
        body.extend(interface.to_le_bytes());
        let time = |ns: u64| {
            let [low, high] = halves(ns);
            [high.to_le_bytes(), low.to_le_bytes()].concat()
        };
        body.extend(time(counts.end_ns));
        let options: [(u16, Vec<u8>); 7] = [
            (2, time(counts.start_ns)),
            (3, time(counts.end_ns)),
            (4, counts.received.to_le_bytes().into()),
            (5, counts.lost_by_interface.to_le_bytes().into()),
            (6, counts.received.to_le_bytes().into()),
            (7, counts.lost_by_kernel.to_le_bytes().into()),
            (8, counts.delivered.to_le_bytes().into()),
        ];
        for (code, value) in options {
            option(body, code, &value);
        }
        option(body, OPTION_END, &[]);
    });
}

fn halves(number: u64) -> [u32; 2] {
    [number, number >> 32].map(|n| u32::try_from(n & u64::from(u32::MAX)).unwrap_or(0))
}

/// Appends a block.
fn block(out: &mut Vec<u8>, kind: u32, fill: impl FnOnce(&mut Vec<u8>)) {
    let mut body = Vec::new();
    fill(&mut body);
    // Names, filters and comments are cut to what an option can hold, so this fits.
    let len = BLOCK_MIN + u32::try_from(body.len()).unwrap_or(0);
    out.extend(kind.to_le_bytes());
    out.extend(len.to_le_bytes());
    out.extend(body);
    out.extend(len.to_le_bytes());
}

/// Appends an option, cut to the most that one can hold.
fn option(body: &mut Vec<u8>, code: u16, value: &[u8]) {
    let most = value.len().min(usize::from(u16::MAX));
    // Do not cut in the middle of a character.
    let cut = value.get(most).is_some_and(|byte| byte & 0xC0 == 0x80);
    let start = value[..most].iter().rposition(|byte| byte & 0xC0 != 0x80).unwrap_or(0);
    let value = &value[..if cut { start } else { most }];
    body.extend(code.to_le_bytes());
    body.extend(u16::try_from(value.len()).unwrap_or(u16::MAX).to_le_bytes());
    body.extend(value);
    body.resize(body.len().next_multiple_of(4), 0);
}
