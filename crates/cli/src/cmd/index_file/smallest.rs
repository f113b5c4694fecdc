//! Which codec makes a column smallest.

use tapdex_bitmap::{ALL_CODECS, Codec, Sizes};

use super::store::Column;

/// Rows from the start of a column that are looked at.
const SAMPLE_ROWS: usize = 1 << 20;

/// The codec, HiPES aside, in which the bitmaps of the first rows have the fewest bytes together;
/// if several are equal, the one with the lowest number.
pub(super) fn codec(column: &Column) -> Codec {
    let rows = column.digits().rows().min(SAMPLE_ROWS);
    let values = || column.values(0..rows);
    // The rows of each digit, one digit after the other.
    let mut ends = vec![0_usize; 1 << 16];
    values().for_each(|digit| ends[digit] += 1);
    let mut end = 0;
    for count in &mut ends {
        end += std::mem::replace(count, end);
    }
    let mut ids = vec![0_u32; rows];
    for (row, digit) in (0..).zip(values()) {
        ids[ends[digit]] = row;
        ends[digit] += 1;
    }
    let mut totals = [0_u64; ALL_CODECS.len()];
    let mut start = 0;
    for &end in &ends {
        if start < end {
            let sizes = Sizes::of(&ids[start..end]);
            for (total, codec) in totals.iter_mut().zip(ALL_CODECS) {
                *total += sizes.of_codec(codec).unwrap_or(0);
            }
            start = end;
        }
    }
    let candidates = ALL_CODECS.into_iter().zip(totals);
    let candidates = candidates.filter(|(codec, _)| !matches!(codec, Codec::Hipes(_)));
    candidates.min_by_key(|&(_, total)| total).map_or(Codec::Roaring, |(codec, _)| codec)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tapdex_bitmap::sample::Random;

    /// The bytes of all bitmaps of a column.
    fn bytes(digits: &[u8], codec: Codec) -> usize {
        let mut target = vec![];
        for digit in 0..=u8::MAX {
            let rows = (0..).zip(digits).filter(|&(_, &other)| other == digit);
            let ids: Vec<u32> = rows.map(|(row, _)| row).collect();
            if !ids.is_empty() {
                codec.encode(&ids, &mut target);
            }
        }
        target.len()
    }

    #[test]
    fn no_other_codec_is_smaller() {
        let mut random = Random::new(1);
        let mut sample = |keys: u32, run: usize| -> Vec<u8> {
            let digits = (0..4_000).map(|_| random.below(keys).to_le_bytes()[0]);
            digits.flat_map(|digit| std::iter::repeat_n(digit, run)).collect()
        };
        let mut found = vec![];
        for (keys, run) in [(1, 1), (2, 1), (8, 1), (200, 1), (2, 40), (200, 40)] {
            let digits = sample(keys, run);
            let chosen = codec(&Column::Bytes(digits.clone()));
            let least = bytes(&digits, chosen);
            for other in ALL_CODECS.into_iter().filter(|c| !matches!(c, Codec::Hipes(_))) {
                assert!(least <= bytes(&digits, other), "{chosen} and {other}, {keys} {run}");
            }
            found.push(chosen.name());
        }
        found.dedup();
        assert!(found.len() > 1, "{found:?}");
    }
}
