//! Decision tables: found on some columns, tried on others.

use super::columns::{Column, GROUPS, Group};
use tapdex_bitmap::{ALL_CODECS, Codec};

/// What can be seen of a column without encoding it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Feature {
    RunsAValue,
    RunLen,
    RowsAValue,
    Values,
    Rows,
}

pub const FEATURES: [Feature; 5] =
    [Feature::RunsAValue, Feature::RunLen, Feature::RowsAValue, Feature::Values, Feature::Rows];

impl Feature {
    pub fn name(self) -> &'static str {
        match self {
            Self::RunsAValue => "runs a value",
            Self::RunLen => "rows a run",
            Self::RowsAValue => "rows a value",
            Self::Values => "values",
            Self::Rows => "rows",
        }
    }

    pub fn of(self, column: &Column) -> f64 {
        let (rows, values) = (column.rows as f64, column.values as f64);
        match self {
            Self::RunsAValue => column.runs as f64 / values,
            Self::RunLen => rows / column.runs as f64,
            Self::RowsAValue => rows / values,
            Self::Values => values,
            Self::Rows => rows,
        }
    }
}

/// Where a table may be cut: few numbers, so that it can be kept in mind.
const CUTS: [f64; 22] = [
    2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0, 24.0, 32.0, 48.0, 64.0, 96.0, 128.0, 256.0, 512.0,
    1_024.0, 2_048.0, 4_096.0, 8_192.0, 16_384.0, 65_536.0, 262_144.0,
];

/// Rows of a segment at which a table may part large ones from small ones.
const ROW_CUTS: [u64; 6] = [1 << 16, 1 << 17, 1 << 18, 1 << 19, 1 << 20, 1 << 21];

/// A line of a table: columns of that group, of segments with so many rows, whose feature is within
/// these bounds, the upper ones not included.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Line {
    pub group: Group,
    pub rows: (u64, u64),
    pub feature: Feature,
    pub from: f64,
    pub below: f64,
    pub codec: Codec,
}

impl Line {
    /// When it is to be taken, in words.
    pub fn when(&self) -> String {
        let name = self.feature.name();
        let value = match (self.from > 0.0, self.below.is_finite()) {
            (false, false) => "always".to_owned(),
            (false, true) => format!("fewer than {} {name}", self.below),
            (true, false) => format!("{} {name} or more", self.from),
            (true, true) => format!("{} to {} {name}", self.from, self.below),
        };
        match self.rows {
            (0, u64::MAX) => value,
            (0, below) => format!("{value}; below {below} rows"),
            (from, _) => format!("{value}; {from} rows or more"),
        }
    }

    pub fn has(&self, column: &Column) -> bool {
        let value = self.feature.of(column);
        self.group == column.group()
            && (self.rows.0..self.rows.1).contains(&column.rows)
            && (self.from..self.below).contains(&value)
    }
}

/// A decision table: a few lines for each group.
#[derive(Debug, Clone, PartialEq)]
pub struct Table(pub Vec<Line>);

/// Lines of a group, at most; twice as many where large segments are apart.
const LINES: usize = 3;

impl Table {
    /// The table with the least cost, where `cost` is that of a codec for a column. More lines
    /// have to save `slack` each.
    pub fn find(columns: &[&Column], slack: f64, cost: impl Fn(&Column, Codec) -> f64) -> Self {
        let mut lines = Vec::new();
        for group in GROUPS {
            let of_group: Vec<&Column> =
                columns.iter().copied().filter(|column| column.group() == group).collect();
            let within = |rows: (u64, u64)| {
                let columns = of_group.iter().copied();
                let columns: Vec<&Column> =
                    columns.filter(|column| (rows.0..rows.1).contains(&column.rows)).collect();
                best_lines(&columns, (group, rows), slack, &cost)
            };
            let mut best = within((0, u64::MAX));
            for cut in ROW_CUTS {
                let (low, high) = (within((0, cut)), within((cut, u64::MAX)));
                let cost = low.0 + high.0 + slack;
                if cost < best.0 {
                    best = (cost, low.1.into_iter().chain(high.1).collect());
                }
            }
            lines.extend(best.1);
        }
        Self(lines)
    }

    /// What it says for a column: Roaring where nothing was learnt.
    pub fn codec(&self, column: &Column) -> Codec {
        self.0.iter().find(|line| line.has(column)).map_or(Codec::Roaring, |line| line.codec)
    }
}

/// The lines with the least cost for columns of a group and of so many rows, and that cost.
fn best_lines(
    columns: &[&Column],
    of: (Group, (u64, u64)),
    slack: f64,
    cost: &impl Fn(&Column, Codec) -> f64,
) -> (f64, Vec<Line>) {
    let mut best: Option<(f64, Vec<Line>)> = None;
    for feature in FEATURES {
        let cells = Cells::new(columns, feature, cost);
        for cuts in all_cuts() {
            let (cost, lines) = cells.lines(of, &cuts);
            let cost = cost + slack * cuts.len() as f64;
            if best.as_ref().is_none_or(|(least, _)| cost < *least) {
                best = Some((cost, lines));
            }
        }
    }
    best.unwrap_or_default()
}

/// All ways to cut: the numbers of the cuts, none to [`LINES`] - 1 of them.
fn all_cuts() -> Vec<Vec<usize>> {
    let mut all = vec![Vec::new()];
    let mut last: Vec<Vec<usize>> = all.clone();
    for _ in 1..LINES {
        let longer = last.iter().flat_map(|cuts| {
            let from = cuts.last().map_or(0, |cut| cut + 1);
            (from..CUTS.len()).map(|cut| cuts.iter().copied().chain([cut]).collect())
        });
        last = longer.collect();
        all.extend(last.iter().cloned());
    }
    all
}

/// The costs of all codecs, for the columns below each cut.
struct Cells {
    feature: Feature,
    below: Vec<[f64; ALL_CODECS.len()]>,
}

impl Cells {
    fn new(columns: &[&Column], feature: Feature, cost: &impl Fn(&Column, Codec) -> f64) -> Self {
        let mut below = vec![[0.0; ALL_CODECS.len()]; CUTS.len() + 1];
        for column in columns {
            let value = feature.of(column);
            let first = CUTS.partition_point(|&cut| cut <= value);
            let costs = ALL_CODECS.map(|codec| cost(column, codec));
            for sums in &mut below[first..] {
                sums.iter_mut().zip(costs).for_each(|(sum, cost)| *sum += cost);
            }
        }
        Self { feature, below }
    }

    /// The cost of a table that is cut so, and its lines.
    fn lines(&self, (group, rows): (Group, (u64, u64)), cuts: &[usize]) -> (f64, Vec<Line>) {
        let (mut all, mut lines, mut before) = (0.0, Vec::<Line>::new(), None::<usize>);
        for &cut in cuts.iter().chain([&CUTS.len()]) {
            let start = before.map_or([0.0; ALL_CODECS.len()], |cut| self.below[cut]);
            let costs = self.below[cut].iter().zip(start).map(|(end, start)| end - start);
            let least = ALL_CODECS.into_iter().zip(costs).min_by(|a, b| a.1.total_cmp(&b.1));
            let (codec, cost) = least.unwrap_or((Codec::Roaring, 0.0));
            all += cost;
            lines.push(Line {
                group,
                rows,
                feature: self.feature,
                from: before.map_or(0.0, |cut| CUTS[cut]),
                below: CUTS.get(cut).copied().unwrap_or(f64::INFINITY),
                codec,
            });
            before = Some(cut);
        }
        (all, lines)
    }
}

/// A tree of questions about all features, to see what a table with many more lines could do.
pub enum Tree {
    Leaf(Codec),
    Fork { feature: Feature, cut: f64, sides: Box<[Tree; 2]> },
}

impl Tree {
    /// A tree that asks up to `depth` questions of a column, each the best one at its place.
    pub fn grow(columns: &[&Column], depth: usize, goal: &impl Fn(&Column) -> Codec) -> Self {
        let most = |columns: &[&Column]| {
            let count = |codec| columns.iter().filter(|column| goal(column) == codec).count();
            ALL_CODECS.into_iter().map(|codec| (codec, count(codec))).max_by_key(|pair| pair.1)
        };
        let (leaf, right) = most(columns).unwrap_or((Codec::Roaring, 0));
        if depth == 0 || right == columns.len() {
            return Self::Leaf(leaf);
        }
        let mut best: Option<(f64, Feature, f64)> = None;
        for feature in FEATURES {
            if let Some((mixed, cut)) = best_cut(columns, feature, goal)
                && best.is_none_or(|(least, ..)| mixed < least)
            {
                best = Some((mixed, feature, cut));
            }
        }
        let Some((_, feature, cut)) = best else { return Self::Leaf(leaf) };
        let (low, high): (Vec<_>, Vec<_>) =
            columns.iter().partition(|column| feature.of(column) < cut);
        let side = |columns: &[&Column]| Self::grow(columns, depth - 1, goal);
        Self::Fork { feature, cut, sides: Box::new([side(&low), side(&high)]) }
    }

    pub fn codec(&self, column: &Column) -> Codec {
        match self {
            Self::Leaf(codec) => *codec,
            Self::Fork { feature, cut, sides } => {
                sides[usize::from(feature.of(column) >= *cut)].codec(column)
            }
        }
    }
}

/// Columns on each side of a cut, at least.
const SIDE_MIN: usize = 5;

/// Where a feature parts columns best, and how mixed both sides are then (Gini's measure).
fn best_cut(
    columns: &[&Column],
    feature: Feature,
    goal: &impl Fn(&Column) -> Codec,
) -> Option<(f64, f64)> {
    let mut sorted: Vec<(f64, usize)> =
        columns.iter().map(|column| (feature.of(column), goal(column).id() as usize)).collect();
    sorted.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut sides = [[0.0_f64; 32]; 2];
    sorted.iter().for_each(|(_, codec)| sides[1][*codec] += 1.0);
    let mixed = |counts: &[f64]| {
        let all: f64 = counts.iter().sum();
        all - counts.iter().map(|count| count * count).sum::<f64>() / all.max(1.0)
    };
    let mut best: Option<(f64, f64)> = None;
    for (number, pair) in sorted.windows(2).enumerate() {
        sides[0][pair[0].1] += 1.0;
        sides[1][pair[0].1] -= 1.0;
        let low = number + 1;
        if pair[0].0 == pair[1].0 || low < SIDE_MIN || sorted.len() - low < SIDE_MIN {
            continue;
        }
        let both = mixed(&sides[0]) + mixed(&sides[1]);
        if best.is_none_or(|(least, _)| both < least) {
            best = Some((both, (pair[0].0 + pair[1].0) / 2.0));
        }
    }
    best
}

#[cfg(test)]
mod tests {
    use tapdex_bitmap::Sizes;

    use super::*;
    use crate::choice::columns::Part;

    fn column(field: &str, values: u64, runs: u64) -> Column {
        Column {
            data: String::new(),
            part: Part::Learnt,
            field: field.to_owned(),
            digit: 0,
            rows: 100_000,
            values,
            runs,
            sizes: Sizes::default(),
            auto: Codec::Roaring,
            looks: None,
        }
    }

    /// What the tables are to find: few runs a value are for MASC.
    fn goal(column: &Column) -> Codec {
        match column.group() {
            Group::OfPacket => Codec::Plwah,
            Group::OfFlow if column.runs / column.values < 6 => Codec::Masc,
            Group::OfFlow => Codec::Roaring,
        }
    }

    fn columns() -> Vec<Column> {
        let shapes = (1..40).flat_map(|times| [(5, 5 * times), (700, 700 * times)]);
        let of = |(values, runs)| ["vlan", "length"].map(|name| column(name, values, runs));
        shapes.flat_map(of).collect()
    }

    #[test]
    fn tables_find_what_is_there() {
        let columns = columns();
        let all: Vec<&Column> = columns.iter().collect();
        let table = Table::find(&all, 0.1, |column, codec| f64::from(goal(column) != codec));
        assert!(columns.iter().all(|column| table.codec(column) == goal(column)));
        let said: Vec<(String, Codec)> =
            table.0.iter().map(|line| (line.when(), line.codec)).collect();
        let expected = [
            ("fewer than 6 runs a value".to_owned(), Codec::Masc),
            ("6 runs a value or more".to_owned(), Codec::Roaring),
            ("always".to_owned(), Codec::Plwah),
        ];
        assert_eq!(said, expected);
    }

    #[test]
    fn large_segments_may_be_apart() {
        let goal = |column: &Column| match column.runs / column.values {
            0..4 => Codec::Masc,
            4..12 if column.rows > 300_000 => Codec::Masc,
            _ => Codec::Roaring,
        };
        let mut columns = columns();
        columns.retain(|column| column.group() == Group::OfFlow);
        let large = columns.clone().into_iter().map(|column| Column { rows: 900_000, ..column });
        columns.extend(large.collect::<Vec<_>>());
        let all: Vec<&Column> = columns.iter().collect();
        let table = Table::find(&all, 0.1, |column, codec| f64::from(goal(column) != codec));
        assert!(columns.iter().all(|column| table.codec(column) == goal(column)));
        let first = table.0.first().map(Line::when);
        assert_eq!(first.as_deref(), Some("fewer than 4 runs a value; below 131072 rows"));
    }

    #[test]
    fn trees_find_what_is_there() {
        let columns: Vec<Column> =
            columns().into_iter().filter(|column| column.group() == Group::OfFlow).collect();
        let all: Vec<&Column> = columns.iter().collect();
        let tree = Tree::grow(&all, 2, &goal);
        assert!(columns.iter().all(|column| tree.codec(column) == goal(column)));
        let leaf = Tree::grow(&all, 0, &goal);
        assert!(columns.iter().all(|column| leaf.codec(column) == Codec::Roaring));
    }

    #[test]
    fn every_way_to_cut_is_tried_once() {
        let cuts = all_cuts();
        let n = CUTS.len();
        assert_eq!(cuts.len(), 1 + n + n * (n - 1) / 2);
        assert!(cuts.iter().all(|cuts| cuts.is_sorted_by(|a, b| a < b)));
    }
}
