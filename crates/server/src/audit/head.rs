//! The head of the log: where it ends, and what is being written behind that.

use std::io;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::line::Hash;
use crate::door::tokens::{hex, unhex};

/// The length of the head, which is written in place: what a disk writes at once.
pub(super) const HEAD_LEN: usize = 512;
/// The most lines that are written at once: so many marks fit into the head.
pub(super) const BATCH_MAX: usize = 8;
/// Bytes of a mark.
const MARK_LEN: usize = 16;
/// Bytes of the check.
const CHECK_LEN: usize = 8;

// Three numbers of 20 digits, the hash, the marks in quotes with commas, the check, and 64 for the
// names of all that.
const _: () = assert!(64 + 3 * 20 + 64 + BATCH_MAX * (2 * MARK_LEN + 3) + 2 * CHECK_LEN < HEAD_LEN);

/// The first half of the hash of a line.
type Mark = [u8; MARK_LEN];

fn mark(hash: &Hash) -> Mark {
    std::array::from_fn(|at| hash[at])
}

/// The end of a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct End {
    /// The number of the last line.
    pub(super) seq: u64,
    /// Its hash.
    pub(super) hash: Hash,
    /// How long the log is.
    pub(super) bytes: u64,
}

impl End {
    /// That of an empty log.
    pub(super) const START: Self = Self { seq: 0, hash: [0; 32], bytes: 0 };
}

/// What the head says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Head {
    /// Up to here the log is complete.
    pub(super) end: End,
    /// The lines that are written next.
    next: Vec<Mark>,
    /// How long the log is with them.
    most: u64,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenHead {
    seq: u64,
    hash: String,
    bytes: u64,
    next: Vec<String>,
    most: u64,
    /// Of the others: whoever reads while the server writes may see some of the old and some of the
    /// new.
    check: String,
}

impl Head {
    /// That of a log behind which nothing is written.
    pub(super) fn at(end: End) -> Self {
        Self { end, next: Vec::new(), most: end.bytes }
    }

    /// The same, before lines with these hashes are written: then the log is as long as `most`.
    pub(super) fn announcing(end: End, hashes: &[Hash], most: u64) -> Self {
        Self { end, next: hashes.iter().map(mark).collect(), most }
    }

    /// The most bytes that the log may have.
    pub(super) fn most(&self) -> u64 {
        self.most
    }

    /// Whether a line with this hash is written next.
    pub(super) fn announces(&self, hash: &Hash) -> bool {
        self.next.contains(&mark(hash))
    }

    /// Its bytes: always as many.
    pub(super) fn text(&self) -> io::Result<Vec<u8>> {
        let End { seq, hash, bytes } = self.end;
        let (hash, most) = (hex(&hash), self.most);
        let next: Vec<String> = self.next.iter().map(|mark| hex(mark)).collect();
        let check = Sha256::digest(format!("{seq} {hash} {bytes} {} {most}", next.join(",")));
        let check = hex(&check[..CHECK_LEN]);
        let written = WrittenHead { seq, hash, bytes, next, most, check };
        let text = serde_json::to_string(&written)?;
        Ok(format!("{text:<width$}\n", width = HEAD_LEN - 1).into_bytes())
    }

    pub(super) fn parse(text: &str) -> Option<Self> {
        let WrittenHead { seq, hash, bytes, next, most, .. } = serde_json::from_str(text).ok()?;
        let next: Option<Vec<Mark>> = next.iter().map(|text| unhex(text)).collect();
        let head = Self { end: End { seq, hash: unhex(&hash)?, bytes }, next: next?, most };
        let fits = match head.next.len() {
            0 => most == bytes,
            lines => lines <= BATCH_MAX && most > bytes,
        };
        (fits && head.text().ok()? == text.as_bytes()).then_some(head)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_head_has_room() {
        let end = End { seq: u64::MAX, hash: [0xff; 32], bytes: u64::MAX - 1 };
        let head = Head::announcing(end, &[[0xff; 32]; BATCH_MAX], u64::MAX);
        let text = String::from_utf8(head.text().unwrap()).unwrap();
        assert_eq!(text.len(), HEAD_LEN);
        assert_eq!(Head::parse(&text), Some(head));
        let start = Head::at(End::START);
        assert_eq!(start.text().unwrap().len(), HEAD_LEN);
    }
}
