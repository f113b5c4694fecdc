//! Bytes of each flow, as far as they do not follow from the length classes of its packets.
//!
//! The length class of a packet says what its length on the wire is at least. What the lengths of
//! a flow's packets are above that, together, is its *excess*.
//!
//! ```text
//! for each block of 128 conversations but the first: where it starts, u32
//! for each block: excess of the first flows, modulo 2^32, packed; divided by it, packed
//!                 the same of the second flows
//! ```

use super::bits::{Reader, u32_at};
use super::packed::{BLOCK, BLOCK_32, push_longs, read_longs};
use super::section::Part;
use crate::error::IndexError;

/// Appends the excess of each flow.
pub(super) fn encode(excess: &[u64], target: &mut Vec<u8>) {
    let conversations = excess.as_chunks::<2>().0;
    let (mut starts, mut bytes) = (Vec::new(), Vec::new());
    for block in conversations.chunks(BLOCK) {
        starts.extend(u32::try_from(bytes.len()).unwrap_or(u32::MAX).to_le_bytes());
        for side in 0..2 {
            push_longs(block.iter().map(|flows| flows[side]), &mut bytes);
        }
    }
    target.extend(starts.get(4..).unwrap_or_default());
    target.extend(bytes);
}

/// The excess of each flow, read in place.
#[derive(Debug, Clone, Copy)]
pub(super) struct Volumes<'a> {
    pub(super) part: Part<'a>,
    pub(super) conversations: u32,
}

impl Volumes<'_> {
    fn start(&self, block: u32) -> Result<usize, IndexError> {
        let blocks = self.conversations.div_ceil(BLOCK_32);
        let heads = 4 * (blocks.max(1) - 1) as usize;
        match block {
            0 => Ok(heads),
            _ if block >= blocks => Ok(self.part.len),
            _ => Ok(heads + u32_at(self.part.read(4 * (block as usize - 1), 4)?, 0) as usize),
        }
    }

    /// The excess of both flows of each of 128 conversations, or of the last ones.
    pub(super) fn block(&self, block: u32) -> Result<Vec<[u64; 2]>, IndexError> {
        let (from, to) = (self.start(block)?, self.start(block + 1)?);
        let bad = || self.part.bad("bytes of flows", from);
        let mut bytes = Reader::new(self.part.read(from, to.saturating_sub(from))?);
        let len = (self.conversations - block * BLOCK_32).min(BLOCK_32) as usize;
        let mut all = vec![[0; 2]; len];
        for side in 0..2 {
            let excess = read_longs(&mut bytes, len).ok_or_else(bad)?;
            all.iter_mut().zip(excess).for_each(|(flows, excess)| flows[side] = excess);
        }
        match bytes.is_at_end() {
            true => Ok(all),
            false => Err(bad()),
        }
    }

    /// The excess of each flow.
    pub(super) fn all(&self) -> Result<Vec<u64>, IndexError> {
        let mut all = Vec::with_capacity(2 * self.conversations as usize);
        for block in 0..self.conversations.div_ceil(BLOCK_32) {
            all.extend(self.block(block)?.into_iter().flatten());
        }
        Ok(all)
    }

    /// Checks that the bytes are those that the writer writes.
    pub(super) fn verify(&self) -> Result<(), IndexError> {
        let mut again = Vec::new();
        encode(&self.all()?, &mut again);
        match again == self.part.bytes()? {
            true => Ok(()),
            false => Err(self.part.bad("form of the bytes of flows", 0)),
        }
    }
}
