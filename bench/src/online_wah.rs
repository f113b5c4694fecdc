//! The baseline of the papers: an index in WAH built online, one append for each row.
//!
//! Every value has a growing list of words, its open literal and the group that it belongs to. A
//! row goes to its value's bitmap: into the open literal if that is the row's group, else the
//! literal is written, then a fill for the groups in between, and a new literal is opened. Rows are
//! taken in order, so the group and the bit are counted along, and an append takes no division.

use tapdex_engine::index::{Digits, Width};

/// Rows of a group.
pub const GROUP_ROWS: usize = 31;
/// A literal with every row of its group.
const FULL: u32 = (1 << GROUP_ROWS) - 1;
/// A word that counts empty groups.
const ZEROS: u32 = 0b10 << 30;
/// A word that counts full groups.
const ONES: u32 = 0b11 << 30;

/// The index of a column while it is built, and after.
#[derive(Debug, Default)]
pub struct OnlineWah(Vec<Bitmap>);

impl OnlineWah {
    /// Builds the index of `column`, in the memory of the one before.
    pub fn build(&mut self, column: Digits<'_>) {
        self.begin(column.width());
        match column {
            Digits::Bytes(digits) => self.append(0, digits),
            Digits::Shorts(digits) => self.append(0, digits),
        }
        self.end();
    }

    /// Starts the index of a column, in the memory of the one before.
    pub fn begin(&mut self, width: Width) {
        self.0.resize_with(1 << width.bits(), Bitmap::default);
        self.0.iter_mut().for_each(Bitmap::clear);
    }

    /// Appends the rows of whole groups, of which `first` is the number of the first; only the last
    /// group of a column may have fewer rows than [`GROUP_ROWS`].
    pub fn append(&mut self, first: u32, digits: &[impl Copy + Into<usize>]) {
        for (group, digits) in (first..).zip(digits.chunks(GROUP_ROWS)) {
            let mut bit = 1 << GROUP_ROWS;
            for &digit in digits {
                bit >>= 1;
                self.0[digit.into()].add(group, bit);
            }
        }
    }

    /// Writes the literals that are still open.
    pub fn end(&mut self) {
        self.0.iter_mut().for_each(Bitmap::close);
    }

    /// The words of every value, those that do not occur included.
    pub fn words(&self) -> impl Iterator<Item = &[u32]> {
        self.0.iter().map(|bitmap| bitmap.words.as_slice())
    }

    /// Bytes of all bitmaps.
    pub fn len_bytes(&self) -> usize {
        self.words().map(size_of_val).sum()
    }
}

/// The bitmap of one value.
#[derive(Debug, Default)]
struct Bitmap {
    words: Vec<u32>,
    /// The open literal; 0 if there is none.
    open: u32,
    /// The groups that the words and the open literal speak of.
    groups: u32,
}

impl Bitmap {
    fn clear(&mut self) {
        self.words.clear();
        (self.open, self.groups) = (0, 0);
    }

    #[inline(always)]
    fn add(&mut self, group: u32, bit: u32) {
        if self.groups == group + 1 {
            self.open |= bit;
            return;
        }
        let gap = group - self.groups;
        if gap > 0 && (1..FULL).contains(&self.open) {
            // By far the most frequent: both words at once, with one look at the capacity.
            self.words.extend_from_slice(&[self.open, ZEROS | gap]);
        } else {
            self.close();
            if gap > 0 {
                self.words.push(ZEROS | gap);
            }
        }
        (self.open, self.groups) = (bit, group + 1);
    }

    #[inline(always)]
    fn close(&mut self) {
        match (self.open, self.words.last_mut()) {
            (0, _) => {}
            (FULL, Some(last)) if *last >= ONES => *last += 1,
            (FULL, _) => self.words.push(ONES | 1),
            (literal, _) => self.words.push(literal),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::builders::equals_wah;
    use crate::column::{Column, Shape};

    #[test]
    fn words_are_those_of_the_wah_codec() {
        let mut online = OnlineWah::default();
        for shape in [Shape::Uniform, Shape::Zipf, Shape::Runs] {
            // Few values give full groups, many give long gaps.
            for (rows, values) in [(0, 2), (1, 1), (310, 1), (50_000, 2), (50_003, 256)] {
                check(&mut online, Column::new(shape, rows, values, 1));
            }
            check(&mut online, Column::new(shape, 100_000, 65_536, 1));
        }
    }

    #[test]
    fn a_column_may_come_group_by_group() {
        let column = Column::new(Shape::Uniform, 1_000, 300, 1);
        let Column::Shorts(digits) = &column else { panic!("300 values are shorts") };
        let mut online = OnlineWah::default();
        online.begin(Width::Short);
        for (group, digits) in (0..).zip(digits.chunks(GROUP_ROWS)) {
            online.append(group, digits);
        }
        online.end();
        assert!(equals_wah(&online, column.digits()).unwrap());
    }

    fn check(online: &mut OnlineWah, column: Column) {
        online.build(column.digits());
        assert!(equals_wah(online, column.digits()).unwrap());
    }
}
