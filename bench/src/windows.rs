//! Columns as the papers cut them: windows of rows, each with bitmaps of its own.

use tapdex_bitmap::Codec;

/// Rows of a window: 128 groups of 31.
pub const ROWS: usize = 3_968;
/// Rows that a word of the grouping codecs stands for.
const GROUP: usize = 31;

/// The rows of a value in a window, as runs of first and last row.
pub type Runs = Vec<(u32, u32)>;

/// Calls `each` with every value that a window of so many rows has, its runs, which `each` may
/// change, and the rows of the window.
pub fn for_each_bitmap(column: &[u8], rows: usize, mut each: impl FnMut(u8, &mut Runs, usize)) {
    let mut runs: Vec<Runs> = vec![Vec::new(); 256];
    for window in column.chunks(rows) {
        let mut start = 0_u32;
        for run in window.chunk_by(|a, b| a == b) {
            let end = start + u32::try_from(run.len()).unwrap_or(u32::MAX);
            runs[usize::from(run[0])].push((start, end - 1));
            start = end;
        }
        for (value, runs) in (0..=255).zip(&mut runs).filter(|(_, runs)| !runs.is_empty()) {
            each(value, runs, window.len());
            runs.clear();
        }
    }
}

/// What becomes of the zeros behind the last row that a bitmap has in its window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Zeros {
    /// They are left out, as tapdex does.
    LeftOut,
    /// They are a word that stays apart, also where the codec could join it with others.
    Apart,
    /// They are a word like any other.
    Joined,
}

/// Puts the rows of a window into `target`, which is cleared; how many bytes the bitmap takes. Of
/// those, zeros at the end that stay apart are not in `target`.
///
/// No codec has a call for zeros at the end. So that they are joined, a group of ones is put behind
/// the window: it takes a word that nothing before it can join, and that is not counted.
pub fn encode(
    codec: Codec,
    runs: &mut Runs,
    rows: usize,
    zeros: Zeros,
    target: &mut Vec<u8>,
) -> usize {
    target.clear();
    let end = runs.last().map_or(0, |run| run.1 as usize + 1);
    let covered = match codec {
        Codec::Masc => end,
        _ => end.next_multiple_of(GROUP),
    };
    let rows = rows.next_multiple_of(GROUP);
    let none = covered >= rows || matches!(codec, Codec::Roaring | Codec::Hipes(_));
    if zeros != Zeros::Joined || none {
        codec.encode_runs(runs, target);
        return target.len() + if zeros == Zeros::Apart && !none { 4 } else { 0 };
    }
    let first = u32::try_from(rows).unwrap_or(u32::MAX - GROUP as u32);
    runs.push((first, first + GROUP as u32 - 1));
    codec.encode_runs(runs, target);
    runs.pop();
    target.truncate(target.len() - 4);
    target.len()
}

/// The words of an encoded bitmap.
pub fn words(encoded: &[u8]) -> impl Iterator<Item = u32> {
    encoded.as_chunks::<4>().0.iter().map(|word| u32::from_le_bytes(*word))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(codec: Codec, rows: &[(u32, u32)], zeros: Zeros) -> usize {
        encode(codec, &mut rows.to_vec(), ROWS, zeros, &mut Vec::new()) / 4
    }

    #[test]
    fn zeros_at_the_end_are_joined_as_the_codec_does() {
        // A group of zeros, one with a one, and zeros.
        let one = [(40, 40)];
        for (codec, left_out, joined) in [
            (Codec::Wah, 2, 3),
            (Codec::Plwah, 1, 2),
            (Codec::Compax, 2, 1),
            (Codec::Compax2, 2, 1),
            (Codec::Secompax, 2, 1),
            (Codec::PlwahPlus, 1, 2),
            (Codec::Masc, 1, 2),
        ] {
            assert_eq!(count(codec, &one, Zeros::LeftOut), left_out, "{codec}");
            assert_eq!(count(codec, &one, Zeros::Apart), left_out + 1, "{codec}");
            assert_eq!(count(codec, &one, Zeros::Joined), joined, "{codec}");
        }
        // A one in the first group: only PLWAH+ and the like join it with zeros behind it.
        assert_eq!(count(Codec::PlwahPlus, &[(5, 5)], Zeros::Joined), 1);
        assert_eq!(count(Codec::Plwah, &[(5, 5)], Zeros::Joined), 2);
    }

    #[test]
    fn nothing_is_added_behind_the_last_group() {
        let last = ROWS as u32 - 1;
        for codec in [Codec::Wah, Codec::Plwah, Codec::PlwahPlus, Codec::Compax2] {
            for rows in [[(last - 3, last - 3)], [(last, last)], [(last - 30, last)]] {
                let counts = [Zeros::LeftOut, Zeros::Apart, Zeros::Joined];
                let counts = counts.map(|zeros| count(codec, &rows, zeros));
                assert!(counts.iter().all(|&count| count == counts[0]), "{codec} {counts:?}");
            }
        }
        assert_eq!(count(Codec::Masc, &[(last, last)], Zeros::Joined), 1);
        assert_eq!(count(Codec::Masc, &[(last - 1, last - 1)], Zeros::Joined), 2);
        assert_eq!(count(Codec::Masc, &[(last - 1, last - 1)], Zeros::Apart), 2);
    }

    #[test]
    fn every_row_is_in_one_bitmap_of_its_window() {
        let column: Vec<u8> = (0..10_000_u32).map(|row| (row * row / 90) as u8 % 9).collect();
        let (mut seen, mut windows) = (vec![false; column.len()], 0);
        let mut previous = u8::MAX;
        for_each_bitmap(&column, ROWS, |value, runs, rows| {
            windows += usize::from(value <= previous);
            previous = value;
            let start = (windows - 1) * ROWS;
            assert_eq!(rows, ROWS.min(column.len() - start));
            for row in runs.iter().flat_map(|&(first, last)| first..=last) {
                let row = start + row as usize;
                assert!(!std::mem::replace(&mut seen[row], true) && column[row] == value);
            }
        });
        assert!(windows == 3 && seen.iter().all(|&seen| seen));
    }
}
