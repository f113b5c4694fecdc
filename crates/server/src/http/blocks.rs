//! Counting the packets of a capture while it is written.

/// The types of blocks that have a packet: simple and enhanced ones.
const PACKETS: [u32; 2] = [3, 6];
/// The type and the length of a block.
const HEAD_LEN: usize = 8;

/// Counts the packets among the bytes of a pcapng file of ours, however they are cut. Only those
/// count that are there as a whole.
#[derive(Debug, Default)]
pub(super) struct Blocks {
    head: [u8; HEAD_LEN],
    /// Bytes of the block so far.
    len: usize,
    packets: u64,
}

impl Blocks {
    /// Packets so far.
    pub(super) fn packets(&self) -> u64 {
        self.packets
    }

    /// Takes the next bytes.
    pub(super) fn add(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let missing = HEAD_LEN.saturating_sub(self.len);
            let end = match missing {
                0 => self.end(),
                _ => HEAD_LEN,
            };
            let take = end.saturating_sub(self.len).min(bytes.len());
            let (now, rest) = bytes.split_at(take);
            if let Some(room) = self.head.get_mut(self.len..self.len.saturating_add(take)) {
                room.copy_from_slice(now);
            }
            self.len += take;
            bytes = rest;
            if self.len >= HEAD_LEN && self.len >= self.end() {
                let [a, b, c, d, ..] = self.head;
                self.packets += u64::from(PACKETS.contains(&u32::from_le_bytes([a, b, c, d])));
                self.len = 0;
            }
        }
    }

    /// Where the block ends. No block ends in its head.
    fn end(&self) -> usize {
        let [_, _, _, _, a, b, c, d] = self.head;
        usize::try_from(u32::from_le_bytes([a, b, c, d])).unwrap_or(usize::MAX).max(HEAD_LEN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_are_counted_however_they_are_cut() {
        let block = |kind: u32, len: u32| {
            let mut bytes = [kind.to_le_bytes(), len.to_le_bytes()].concat();
            // Bytes that look like heads.
            bytes.extend((8..len).map(|n| if n % 4 == 0 { 6 } else { 0 }));
            bytes
        };
        let parts = [(0x0a0d_0d0a, 28), (1, 20), (6, 96), (6, 32), (3, 16), (5, 24), (6, 70_000)];
        let all: Vec<u8> = parts.iter().flat_map(|&(kind, len)| block(kind, len)).collect();
        for cut in [1, 3, 7, 8, 9, 4_096, all.len()] {
            let mut blocks = Blocks::default();
            all.chunks(cut).for_each(|bytes| blocks.add(bytes));
            assert_eq!(blocks.packets(), 4, "{cut}");
            let mut blocks = Blocks::default();
            all[..all.len() - 1].chunks(cut).for_each(|bytes| blocks.add(bytes));
            assert_eq!(blocks.packets(), 3, "{cut}");
        }
    }
}
