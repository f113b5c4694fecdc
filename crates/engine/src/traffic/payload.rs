//! What packets carry: a few pages of bytes, made once, with their sums.
#![allow(clippy::big_endian_bytes, reason = "checksums add big-endian words")]

use super::frame::{len16, sum};
use tapdex_bitmap::sample::Random;

/// No payload is longer.
const PAGE_LEN: usize = 1_536;

/// Which page is which.
pub(super) const FILLER: usize = 0;
pub(super) const TLS: usize = 1;
pub(super) const QUIC: usize = 2;
pub(super) const SYSLOG: usize = 3;
/// The first of [`WEB_PAGES`] requests; the responses follow.
pub(super) const REQUEST: usize = 4;
pub(super) const WEB_PAGES: usize = 4;
pub(super) const RESPONSE: usize = REQUEST + WEB_PAGES;

const SYSLOG_TEXT: &str = "<134>filter: action=pass proto=tcp rule=42 in=eth0 out=eth1";
const PATHS: [&str; WEB_PAGES] = ["/", "/index.html", "/api/v1/items?page=2", "/img/map.png"];

/// Bytes to take payloads from.
#[derive(Debug, Clone)]
pub(super) struct Page {
    bytes: Box<[u8; PAGE_LEN]>,
    /// `sums[n]` is the sum of the first `n` words of 16 bits.
    sums: Box<[u32; PAGE_LEN / 2 + 1]>,
    text_len: usize,
    record: bool,
}

impl Page {
    /// A text, followed by random bytes.
    fn new(text: &[u8], record: bool, random: &mut Random) -> Self {
        let mut bytes = Box::new([0; PAGE_LEN]);
        for word in bytes.as_chunks_mut::<8>().0 {
            *word = random.number().to_le_bytes();
        }
        bytes[..text.len()].copy_from_slice(text);
        let mut sums = Box::new([0; PAGE_LEN / 2 + 1]);
        for (i, &word) in bytes.as_chunks::<2>().0.iter().enumerate() {
            sums[i + 1] = sums[i] + u32::from(u16::from_be_bytes(word));
        }
        Self { bytes, sums, text_len: text.len(), record }
    }

    pub(super) fn bytes(&self) -> &[u8; PAGE_LEN] {
        &self.bytes
    }

    /// How long the text at the start is.
    pub(super) fn text_len(&self) -> usize {
        self.text_len
    }

    /// The sum of the first `len` bytes.
    pub(super) fn sum(&self, len: usize) -> u32 {
        let odd = if len % 2 == 1 { sum(&self.bytes[len - 1..len]) } else { 0 };
        self.sums[len / 2] + odd
    }

    /// The length field of a TLS record that fills a payload.
    pub(super) fn record_len(&self, len: usize) -> Option<u16> {
        (self.record && len > 5).then(|| len16(len - 5))
    }
}

/// All pages, the same for every seed.
pub(super) fn pages() -> Vec<Page> {
    let mut random = Random::new(1);
    let mut pages = vec![
        Page::new(b"", false, &mut random),
        Page::new(&[23, 3, 3, 0, 0], true, &mut random),
        Page::new(&[0x43], false, &mut random),
        Page::new(SYSLOG_TEXT.as_bytes(), false, &mut random),
    ];
    for path in PATHS {
        let text = format!(
            "GET {path} HTTP/1.1\r\nHost: www.example.com\r\nUser-Agent: tapdex\r\n\
             Accept: */*\r\nConnection: keep-alive\r\n\r\n"
        );
        pages.push(Page::new(text.as_bytes(), false, &mut random));
    }
    for path in PATHS {
        let text = format!(
            "HTTP/1.1 200 OK\r\nServer: example\r\nContent-Type: text/html\r\n\
             Content-Location: {path}\r\n\r\n<!doctype html><title>Example</title>\n"
        );
        pages.push(Page::new(text.as_bytes(), false, &mut random));
    }
    pages
}
