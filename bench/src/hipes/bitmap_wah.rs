//! WAH the way that GPU-WAH takes, on one core: through a bitmap of all rows.
//!
//! Our codec goes from id to id. GPU-WAH sets a bit for each id in a bitmap of all rows, cuts that
//! into groups of 31, and looks at each of them; so does this. The words are the same.

/// Rows of a group.
const GROUP_ROWS: u32 = 31;
/// A group with all of its rows.
const FULL: u32 = (1 << GROUP_ROWS) - 1;
/// A word that counts empty groups.
const ZEROS: u32 = 0b10 << 30;
/// A word that counts full groups.
const ONES: u32 = 0b11 << 30;

/// Memory that is used again.
#[derive(Debug, Default)]
pub struct BitmapWah {
    bits: Vec<u64>,
    /// What was encoded last.
    pub target: Vec<u8>,
}

impl BitmapWah {
    /// Encodes ascending ids below `rows`.
    pub fn encode(&mut self, ids: &[u32], rows: u32) {
        self.bits.clear();
        // One word more than there are rows for, so that a group may reach into the next.
        self.bits.resize(rows as usize / 64 + 2, 0);
        self.target.clear();
        ids.iter().for_each(|&id| self.bits[id as usize / 64] |= 1 << (id % 64));
        let groups = ids.last().map_or(0, |last| last / GROUP_ROWS + 1);
        // The fill at hand: its kind and how many groups it has.
        let (mut kind, mut count) = (ZEROS, 0);
        for group in 0..groups {
            let word = match self.group(group) {
                0 => ZEROS,
                FULL => ONES,
                literal => literal,
            };
            if word != kind && count > 0 {
                self.push(kind | count);
                count = 0;
            }
            match word {
                ZEROS | ONES => (kind, count) = (word, count + 1),
                literal => self.push(literal),
            }
        }
        if count > 0 {
            self.push(kind | count);
        }
    }

    /// The rows of a group, the first one highest.
    fn group(&self, group: u32) -> u32 {
        let start = group as usize * GROUP_ROWS as usize;
        let pair = [self.bits[start / 64], self.bits[start / 64 + 1]];
        let both = u128::from(pair[1]) << 64 | u128::from(pair[0]);
        let rows = (both >> (start % 64)) as u32 & FULL;
        rows.reverse_bits() >> 1
    }

    fn push(&mut self, word: u32) {
        self.target.extend_from_slice(&word.to_le_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tapdex_bitmap::Codec;
    use tapdex_bitmap::sample::Family;

    #[test]
    fn words_are_those_of_the_wah_codec() {
        let mut wah = BitmapWah::default();
        let rows = 100_000;
        let families = [
            Family::Uniform { density: 0.01 },
            Family::Uniform { density: 0.9 },
            Family::Uniform { density: 1.0 },
            Family::ZipfRuns { density: 0.5 },
            Family::Hipes { ids: 10, clusters: 2 },
            Family::Uniform { density: 0.0 },
        ];
        for family in families {
            let ids = family.ids(rows, 1);
            let mut expected = vec![];
            Codec::Wah.encode(&ids, &mut expected);
            wah.encode(&ids, rows);
            assert_eq!(wah.target, expected, "{family:?}");
        }
    }
}
