//! A line of the log: an object of JSON that ends with the hash of all that is before it.

use std::io;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use tapdex_engine::time::format_time;

use super::Why;
use super::entry::Entry;
use crate::door::tokens::{hex, unhex};

/// The most bytes of a line.
pub(super) const LINE_LEN_MAX: usize = 256 << 10;

const HASH_MEMBER: &str = ",\"hash\":\"";
/// `,"hash":"`, 64 digits, `"}`.
const HASH_PART_LEN: usize = HASH_MEMBER.len() + 64 + 2;

pub(super) type Hash = [u8; 32];

/// The bytes of a line that could not be written as a whole.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Torn {
    bytes: u64,
    sha256: String,
}

impl Torn {
    pub(super) fn of(bytes: &[u8]) -> Self {
        Self { bytes: bytes.len() as u64, sha256: hex(&Sha256::digest(bytes)) }
    }

    pub(super) fn is_of(&self, bytes: &[u8]) -> bool {
        let Self { bytes: len, sha256 } = Self::of(bytes);
        self.bytes == len && self.sha256 == sha256
    }
}

#[derive(Serialize)]
struct Line<'a> {
    seq: u64,
    time: String,
    #[serde(flatten)]
    body: Body<'a>,
    prev: String,
}

#[derive(Serialize)]
#[serde(untagged)]
pub(super) enum Body<'a> {
    Entry(&'a Entry),
    Torn { what: &'static str, torn: &'a Torn },
}

/// JSON without control characters, so that a terminal shows it as it is. Those below U+0020 are
/// escaped by JSON itself.
fn escaped(json: &str) -> String {
    use std::fmt::Write;
    json.chars().fold(String::with_capacity(json.len()), |mut text, letter| {
        match letter.is_control() {
            // Writing to a string does not fail.
            true => {
                let _ = write!(text, "\\u{:04x}", u32::from(letter));
            }
            false => text.push(letter),
        }
        text
    })
}

/// A whole line with its end, and its hash.
pub(super) fn line(
    seq: u64,
    time_ns: u64,
    body: Body<'_>,
    prev: &Hash,
) -> io::Result<(Vec<u8>, Hash)> {
    let line = Line { seq, time: format_time(time_ns), body, prev: hex(prev) };
    let text = escaped(&serde_json::to_string(&line)?);
    let text = text.strip_suffix('}').unwrap_or(&text);
    let hash: Hash = Sha256::digest(text.as_bytes()).into();
    let text = format!("{text}{HASH_MEMBER}{}\"}}\n", hex(&hash));
    match text.len() > LINE_LEN_MAX {
        true => Err(io::Error::new(io::ErrorKind::InvalidInput, "the line is too long")),
        false => Ok((text.into_bytes(), hash)),
    }
}

/// What the chain needs of a line.
#[derive(Debug, Clone)]
pub(super) struct Parsed {
    pub(super) seq: u64,
    pub(super) prev: Hash,
    pub(super) hash: Hash,
    pub(super) torn: Option<Torn>,
}

#[derive(Deserialize)]
struct WrittenLine {
    seq: u64,
    prev: String,
    #[serde(default)]
    torn: Option<Torn>,
}

impl Parsed {
    /// Reads a line without its end, and compares it with its hash.
    pub(super) fn of(line: &[u8]) -> Result<Self, Why> {
        let at = line.len().checked_sub(HASH_PART_LEN).ok_or(Why::Form)?;
        let (text, hash) = line.split_at(at);
        let hash = std::str::from_utf8(hash).map_err(|_| Why::Form)?;
        let hash = hash.strip_prefix(HASH_MEMBER).and_then(|hash| hash.strip_suffix("\"}"));
        let hash: Hash = hash.and_then(unhex).ok_or(Why::Form)?;
        if hash != <Hash>::from(Sha256::digest(text)) {
            return Err(Why::Edited);
        }
        let written: WrittenLine = serde_json::from_slice(line).map_err(|_| Why::Form)?;
        let prev = unhex(&written.prev).ok_or(Why::Form)?;
        Ok(Self { seq: written.seq, prev, hash, torn: written.torn })
    }
}
