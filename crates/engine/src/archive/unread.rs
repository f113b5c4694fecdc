//! Packets that are not what was indexed.

use std::fmt;
use std::ops::Range;
use std::path::PathBuf;

use super::ArchiveError;

/// Packets that were not read, since their bytes do not have the checksum that they had when they
/// were indexed: the disk, a copy or a person has changed them.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Unread {
    /// The packet file.
    pub path: PathBuf,
    /// Where in it the bytes are. After the path, ranges are ordered by their start.
    start: u64,
    end: u64,
    /// The numbers of the packets in the file, from 0.
    first: u64,
    packets: u64,
}

impl Unread {
    /// The packets with these numbers; an empty range stands for the bytes before the first packet.
    pub(super) fn new(path: PathBuf, bytes: Range<u64>, packets: Range<u64>) -> Self {
        let first = packets.start;
        let packets = packets.end.saturating_sub(first);
        Self { path, start: bytes.start, end: bytes.end, first, packets }
    }

    /// Where in the file the bytes lie.
    pub fn bytes(&self) -> Range<u64> {
        self.start..self.end
    }

    /// The numbers of the packets in the file, from 0.
    pub fn packets(&self) -> Range<u64> {
        self.first..self.first.saturating_add(self.packets)
    }
}

impl fmt::Display for Unread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { path, start, end, packets, .. } = self;
        let last = end.saturating_sub(1);
        write!(f, "{}: bytes {start} to {last}, ", path.display())?;
        match packets {
            0 => write!(f, "before the first packet,")?,
            1 => write!(f, "with 1 packet,")?,
            n => write!(f, "with {n} packets,")?,
        }
        let what = "have another checksum than when they were indexed";
        write!(f, " {what}; put a sound copy of the file in its place")
    }
}

/// All packets that were not read, to be reported.
#[must_use = "an answer without these packets is incomplete"]
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct UnreadPackets {
    ranges: Vec<Unread>,
}

impl UnreadPackets {
    /// Adds some.
    pub(super) fn add(&mut self, more: Unread) {
        match self.ranges.last_mut() {
            Some(last) if last.end == more.start && last.path == more.path => {
                if last.packets == 0 {
                    last.first = more.first;
                }
                last.end = more.end;
                last.packets = last.packets.saturating_add(more.packets);
            }
            _ => self.ranges.push(more),
        }
    }

    /// Adds those of another list.
    pub fn extend(&mut self, more: Self) {
        more.ranges.into_iter().for_each(|more| self.add(more));
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Each range of bytes, in the order in which they were found.
    pub fn iter(&self) -> impl Iterator<Item = &Unread> {
        self.ranges.iter()
    }

    /// An error for each range of bytes, by file and offset; adjacent ranges are merged.
    pub fn into_errors(mut self) -> Vec<ArchiveError> {
        self.ranges.sort_unstable();
        self.ranges.dedup();
        let mut merged = Self::default();
        self.ranges.into_iter().for_each(|range| merged.add(range));
        merged.ranges.into_iter().map(ArchiveError::Unread).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lies_side_by_side_is_told_once() {
        let piece = |path: &str, start, first| {
            Unread::new(path.into(), start..start + 10, first..first + 2)
        };
        let mut all = UnreadPackets::default();
        for (path, start, first) in [("a", 20, 2), ("b", 30, 4), ("a", 40, 6), ("a", 30, 4)] {
            all.add(piece(path, start, first));
        }
        let mut again = UnreadPackets::default();
        again.add(piece("a", 30, 4));
        again.add(Unread::new("a".into(), 0..20, 0..0));
        all.extend(again);
        let text: Vec<String> = all.into_errors().iter().map(ToString::to_string).collect();
        assert_eq!(text.len(), 2);
        assert!(text[0].starts_with("a: bytes 0 to 49, ") && text[0].contains("6 packets"));
        assert!(text[1].starts_with("b: bytes 30 to 39, ") && text[1].contains("2 packets"));
    }
}
