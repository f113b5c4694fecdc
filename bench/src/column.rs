//! Made-up columns, the same for the same seed on every machine.

use tapdex_bitmap::sample::Random;
use tapdex_engine::index::Digits;

/// How the values of a column are spread over its rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Shape {
    /// Every value with the same chance, every row on its own.
    Uniform,
    /// The value of rank r with a chance of 1 / r, every row on its own; any value may have any
    /// rank.
    Zipf,
    /// As with Zipf, but each draw stands for a run of 1 to 63 rows.
    Runs,
}

/// The longest run of [`Shape::Runs`].
const RUN_MAX: u32 = 63;

/// A column that owns its digits.
#[derive(Debug)]
pub enum Column {
    /// Up to 256 values.
    Bytes(Vec<u8>),
    /// Up to 65,536 values.
    Shorts(Vec<u16>),
}

impl Column {
    /// A column of so many rows and of values below `values`, which is from 1 to 65,536.
    pub fn new(shape: Shape, rows: usize, values: usize, seed: u64) -> Self {
        assert!((1..=1 << 16).contains(&values), "{values} values: a digit has 8 or 16 bits");
        if values <= 1 << 8 {
            Self::Bytes(digits(shape, rows, values, seed, |value| value as u8))
        } else {
            Self::Shorts(digits(shape, rows, values, seed, |value| value))
        }
    }

    /// The digits, as a builder takes them.
    pub fn digits(&self) -> Digits<'_> {
        match self {
            Self::Bytes(digits) => Digits::Bytes(digits),
            Self::Shorts(digits) => Digits::Shorts(digits),
        }
    }
}

fn digits<D: Copy>(
    shape: Shape,
    rows: usize,
    values: usize,
    seed: u64,
    digit: impl Fn(u16) -> D,
) -> Vec<D> {
    let mut random = Random::new(seed);
    let mut weights: Vec<f64> = (1..=values)
        .map(|rank| if shape == Shape::Uniform { 1.0 } else { 1.0 / rank as f64 })
        .collect();
    for end in (2..=values).rev() {
        weights.swap(end - 1, random.below(end as u32) as usize);
    }
    let table = AliasTable::new(&weights);
    let mut digits = Vec::with_capacity(rows);
    while digits.len() < rows {
        let value = digit(table.draw(&mut random));
        match shape {
            Shape::Uniform | Shape::Zipf => digits.push(value),
            Shape::Runs => {
                let run = 1 + random.below(RUN_MAX) as usize;
                digits.resize(rows.min(digits.len() + run), value);
            }
        }
    }
    digits
}

/// Draws values by weight, one random number and one look-up each: Walker's alias method.
#[derive(Debug)]
struct AliasTable(Vec<Cell>);

/// One of as many equally likely cells as there are values.
#[derive(Debug, Clone, Copy)]
struct Cell {
    /// The share of the cell, of 2^32, that is the value's own.
    own: u64,
    /// The value that has the rest.
    alias: u16,
}

impl AliasTable {
    fn new(weights: &[f64]) -> Self {
        let mean = weights.iter().sum::<f64>() / weights.len() as f64;
        let mut shares: Vec<f64> = weights.iter().map(|weight| weight / mean).collect();
        let (mut poor, mut rich): (Vec<usize>, Vec<usize>) =
            (0..shares.len()).partition(|&value| shares[value] < 1.0);
        let mut cells = vec![Cell { own: 1 << 32, alias: 0 }; shares.len()];
        while let (Some(&giver), Some(taker)) = (rich.last(), poor.pop()) {
            let own = (shares[taker] * f64::from(1 << 16) * f64::from(1 << 16)) as u64;
            cells[taker] = Cell { own, alias: giver as u16 };
            shares[giver] -= 1.0 - shares[taker];
            if shares[giver] < 1.0 {
                poor.extend(rich.pop());
            }
        }
        Self(cells)
    }

    #[inline]
    fn draw(&self, random: &mut Random) -> u16 {
        let number = random.number();
        let value = ((number >> 32) * self.0.len() as u64) >> 32;
        let cell = self.0[value as usize];
        if number & 0xFFFF_FFFF < cell.own { value as u16 } else { cell.alias }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_occur_as_often_as_their_shape_says() {
        let rows = 1_000_000;
        for (shape, first, last) in
            [(Shape::Uniform, 0.001, 0.001), (Shape::Zipf, 0.1336, 0.0001336)]
        {
            let Column::Shorts(digits) = Column::new(shape, rows, 1_000, 1) else {
                panic!("1,000 values are shorts");
            };
            let mut counts = vec![0; 1_000];
            digits.iter().for_each(|&digit| counts[usize::from(digit)] += 1);
            counts.sort_unstable_by(|a, b| b.cmp(a));
            let share = |count: i32| f64::from(count) / rows as f64;
            assert!((share(counts[0]) / first - 1.0).abs() < 0.2, "{shape:?}: {}", counts[0]);
            assert!((share(counts[990]) / last - 1.0).abs() < 0.4, "{shape:?}: {}", counts[990]);
        }
    }

    #[test]
    fn every_shape_has_its_rows_and_follows_its_seed() {
        for shape in [Shape::Uniform, Shape::Zipf, Shape::Runs] {
            let column = |seed| match Column::new(shape, 12_345, 256, seed) {
                Column::Bytes(digits) => digits,
                Column::Shorts(_) => panic!("256 values are bytes"),
            };
            assert_eq!(column(1).len(), 12_345);
            assert_eq!(column(1), column(1));
            assert_ne!(column(1), column(2));
        }
    }
}
