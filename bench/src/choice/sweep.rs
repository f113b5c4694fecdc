//! Columns made up of runs or bursts of one length, to see where codecs cross.

use tapdex_bitmap::sample::Random;
use tapdex_bitmap::{ALL_CODECS, Codec, Sizes};

use super::columns::runs_of;

/// Rows of such a column.
pub const ROWS: u32 = 1 << 20;
/// Lengths of runs and bursts.
pub const LENGTHS: [u32; 9] = [1, 2, 4, 8, 16, 32, 128, 512, 2_048];
/// Numbers of values.
pub const VALUES: [u32; 6] = [2, 16, 256, 1_024, 4_096, 65_536];

/// How rows follow each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// So many rows have the same value, then so many another one.
    Runs,
    /// So many rows have one of two values, any of them, then so many have one of two others.
    Bursts,
}

/// The sizes of a column with so many values, any of them as often.
pub fn sizes(shape: Shape, values: u32, length: u32, seed: u64) -> Sizes {
    let mut random = Random::new(seed);
    let mut rows: Vec<Vec<u32>> = vec![Vec::new(); values as usize];
    let mut row = 0;
    while row < ROWS {
        // From one row to twice the length less one, so that edges fall anywhere.
        let end = (row + 1 + random.below(2 * length - 1)).min(ROWS);
        let pair = [random.below(values), random.below(values)];
        for row in row..end {
            let value = match shape {
                Shape::Runs => pair[0],
                Shape::Bursts => pair[random.below(2) as usize],
            };
            rows[value as usize].push(row);
        }
        row = end;
    }
    sizes_of(&rows)
}

/// The sizes of a column, from the rows of each value.
fn sizes_of(rows: &[Vec<u32>]) -> Sizes {
    let (mut sizes, mut runs) = (Sizes::default(), Vec::new());
    for rows in rows.iter().filter(|rows| !rows.is_empty()) {
        runs_of(rows.iter().copied(), &mut runs);
        sizes.add(&Sizes::of_runs(&runs));
    }
    sizes
}

/// What `auto` takes for such sizes, where it sees the whole column; of some codecs only.
pub fn rule(sizes: &Sizes, codecs: &[Codec]) -> Codec {
    let bytes = |codec| sizes.of_codec(codec).unwrap_or(u64::MAX);
    let least = codecs.iter().copied().min_by_key(|&codec| (bytes(codec), codec.id()));
    let least = least.unwrap_or(Codec::Roaring);
    let saves = bytes(least).saturating_mul(10) <= bytes(Codec::Roaring).saturating_mul(7);
    if saves { least } else { Codec::Roaring }
}

/// The codecs that `auto` may take.
pub fn candidates() -> Vec<Codec> {
    ALL_CODECS.into_iter().filter(|codec| !matches!(codec, Codec::Hipes(_))).collect()
}

#[cfg(test)]
mod tests {
    use tapdex_engine::index::RunBuilder;

    use super::*;

    #[test]
    fn the_rule_is_that_of_auto() {
        let mut random = Random::new(7);
        let mut taken = Vec::new();
        for (values, length) in [(2, 40), (300, 1), (300, 30), (40_000, 1), (40_000, 9), (9, 3)] {
            let mut digits = Vec::new();
            while digits.len() < 60_000 {
                let digit = random.below(values) as u16;
                digits.extend(std::iter::repeat_n(digit, 1 + random.below(2 * length) as usize));
            }
            let starts: Vec<u32> = (0..digits.len() as u32).collect();
            let auto = RunBuilder::new().choose(&digits, &starts, digits.len() as u32).unwrap();
            let mut rows = vec![Vec::new(); values as usize];
            for (&row, &digit) in starts.iter().zip(&digits) {
                rows[usize::from(digit)].push(row);
            }
            let all = sizes_of(&rows);
            assert_eq!(rule(&all, &candidates()), auto, "{values} {length}");
            taken.push(auto);
        }
        // Otherwise this says little.
        assert!(taken.contains(&Codec::Roaring) && taken.contains(&Codec::Masc), "{taken:?}");
    }

    #[test]
    fn every_row_is_in_a_column_once() {
        // One value in all rows is one run, whatever the shape.
        for shape in [Shape::Runs, Shape::Bursts] {
            let all = Sizes::of_runs(&[(0, ROWS - 1)]);
            assert_eq!(sizes(shape, 1, 5, 3), all, "{shape:?}");
        }
    }
}
