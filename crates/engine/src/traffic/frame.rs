//! A frame, written header by header, with its checksums.
#![allow(clippy::big_endian_bytes, reason = "network headers are big-endian")]

use super::payload::Page;

/// The least length of an Ethernet frame, without its checksum.
pub(super) const FRAME_MIN: usize = 60;
const FRAME_MAX: usize = 2048;

/// The bytes of a MAC address.
pub(super) type Mac = [u8; 6];

pub(super) const ETH_LEN: usize = 14;
pub(super) const UDP_LEN: usize = 8;
const IPV4_LEN: usize = 20;
const IPV6_LEN: usize = 40;

/// What a network header says.
#[derive(Debug, Clone, Copy)]
pub(super) struct Network {
    pub(super) v6: bool,
    pub(super) src: u128,
    pub(super) dst: u128,
    pub(super) proto: u8,
    pub(super) ttl: u8,
    pub(super) id: u16,
    /// Flags and offset of an IPv4 fragment.
    pub(super) fragment: u16,
}

/// How long a network header is.
pub(super) const fn network_len(v6: bool) -> usize {
    if v6 { IPV6_LEN } else { IPV4_LEN }
}

/// The low 8 bits.
pub(super) const fn low8(x: u64) -> u8 {
    x.to_le_bytes()[0]
}

/// The low 16 bits.
pub(super) const fn low16(x: u64) -> u16 {
    let bytes = x.to_le_bytes();
    u16::from_le_bytes([bytes[0], bytes[1]])
}

/// The low 32 bits.
pub(super) const fn low32(x: u64) -> u32 {
    let bytes = x.to_le_bytes();
    u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
}

/// A length, as a header holds it. No frame is longer than [`FRAME_MAX`].
pub(super) const fn len16(len: usize) -> u16 {
    low16(len as u64)
}

/// The low 32 bits of an address: all of an IPv4 address.
pub(super) fn v4(address: u128) -> u32 {
    let bytes = address.to_le_bytes();
    u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
}

/// The sum of big-endian 16-bit words, the last one filled up with a zero.
pub(super) fn sum(bytes: &[u8]) -> u32 {
    let (words, rest) = bytes.as_chunks::<2>();
    let words: u32 = words.iter().map(|&word| u32::from(u16::from_be_bytes(word))).sum();
    words + rest.first().map_or(0, |&byte| u32::from(byte) << 8)
}

/// The Internet checksum of what has that sum.
pub(super) fn checksum(sum: u32) -> u16 {
    let sum = (sum & 0xFFFF) + (sum >> 16);
    let sum = (sum & 0xFFFF) + (sum >> 16);
    !low16(sum.into())
}

/// The one buffer in which every frame is written.
#[derive(Debug, Clone)]
pub(super) struct Frame {
    bytes: Box<[u8; FRAME_MAX]>,
    len: usize,
}

impl Frame {
    pub(super) fn new() -> Self {
        Self { bytes: Box::new([0; FRAME_MAX]), len: 0 }
    }

    pub(super) fn clear(&mut self) {
        self.len = 0;
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    /// Appends bytes.
    pub(super) fn put(&mut self, bytes: &[u8]) {
        self.bytes[self.len..self.len + bytes.len()].copy_from_slice(bytes);
        self.len += bytes.len();
    }

    pub(super) fn put16(&mut self, number: u16) {
        self.put(&number.to_be_bytes());
    }

    pub(super) fn put32(&mut self, number: u32) {
        self.put(&number.to_be_bytes());
    }

    /// Overwrites two bytes.
    pub(super) fn set16(&mut self, at: usize, number: u16) {
        self.bytes[at..at + 2].copy_from_slice(&number.to_be_bytes());
    }

    /// Overwrites bytes.
    pub(super) fn set(&mut self, at: usize, bytes: &[u8]) {
        self.bytes[at..at + bytes.len()].copy_from_slice(bytes);
    }

    /// The bytes from there on.
    pub(super) fn from(&self, at: usize) -> &[u8] {
        &self.bytes[at..self.len]
    }

    /// Fills up with zeros to the least length of a frame.
    pub(super) fn pad(&mut self) {
        if self.len < FRAME_MIN {
            self.bytes[self.len..FRAME_MIN].fill(0);
            self.len = FRAME_MIN;
        }
    }

    /// An Ethernet header with its tags: VLAN ids, the outermost first.
    pub(super) fn link(&mut self, dst: Mac, src: Mac, tags: &[u16], ether_type: u16) {
        self.put(&dst);
        self.put(&src);
        for (i, &tag) in tags.iter().enumerate() {
            // Only the outer one of two tags is a service tag.
            self.put16(if i + 1 < tags.len() { 0x88A8 } else { 0x8100 });
            self.put16(tag);
        }
        self.put16(ether_type);
    }

    /// A network header in front of `len` bytes. Returns the sum of its pseudo header.
    pub(super) fn network(&mut self, network: &Network, len: usize) -> u32 {
        let start = self.len;
        let both = if network.v6 {
            self.put32(6 << 28);
            self.put16(len16(len));
            self.put(&[network.proto, network.ttl]);
            self.put(&network.src.to_be_bytes());
            self.put(&network.dst.to_be_bytes());
            sum(&self.bytes[start + 8..start + IPV6_LEN])
        } else {
            self.put(&[0x45, 0]);
            self.put16(len16(IPV4_LEN + len));
            self.put16(network.id);
            self.put16(network.fragment);
            self.put(&[network.ttl, network.proto, 0, 0]);
            self.put32(v4(network.src));
            self.put32(v4(network.dst));
            let header = checksum(sum(&self.bytes[start..start + IPV4_LEN]));
            self.set16(start + 10, header);
            sum(&self.bytes[start + 12..start + IPV4_LEN])
        };
        both + u32::from(network.proto) + u32::from(len16(len))
    }

    /// A UDP header in front of `len` bytes, its checksum left out.
    pub(super) fn udp(&mut self, src: u16, dst: u16, len: usize) {
        self.put16(src);
        self.put16(dst);
        self.put16(len16(UDP_LEN + len));
        self.put16(0);
    }

    /// The first bytes of a page. Returns their sum, without looking at them.
    pub(super) fn payload(&mut self, page: &Page, len: usize) -> u32 {
        let at = self.len;
        self.put(&page.bytes()[..len]);
        let mut sum = page.sum(len);
        if let Some(record) = page.record_len(len) {
            // A length in bytes 3 and 4, where the page has zeros.
            self.set16(at + 3, record);
            let [high, low] = record.to_be_bytes();
            sum += u32::from(high) + (u32::from(low) << 8);
        }
        sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksums_are_those_of_the_rfc() {
        // The example of RFC 1071, section 3.
        let bytes = [0x00, 0x01, 0xF2, 0x03, 0xF4, 0xF5, 0xF6, 0xF7];
        assert_eq!(checksum(sum(&bytes)), !0xDDF2);
        assert_eq!(sum(&[1, 2, 3]), 0x0402);
    }

    #[test]
    fn pages_know_their_sums() {
        for page in super::super::payload::pages() {
            for len in 0..1_461 {
                let mut frame = Frame::new();
                let got = frame.payload(&page, len);
                assert_eq!(checksum(got), checksum(sum(frame.bytes())), "{len} bytes");
            }
        }
    }
}
