//! Experiments on why sizes differ from the published ones, all of calibrated flows.

use tapdex_bench::tuples::{self, NAMES, Order, Tuple};
use tapdex_bench::windows::{self, Zeros, encode, for_each_bitmap};
use tapdex_bitmap::Codec;
use tapdex_bitmap::sample::Random;
use tapdex_report::{Line, Lines, Plot, Report, Sheet};

use super::sizes::{OURS, PAPER, PUBLISHED, SETTINGS, THREE, codecs, percent, sizes};

/// Which triples an encoder joins.
#[derive(Debug, Clone, Copy)]
struct Merges {
    fill_literal_fill: bool,
    literal_fill_literal: bool,
    /// Whether the zeros at the end of a window are part of a triple.
    at_the_end: bool,
}

impl Merges {
    const ALL: [(&'static str, Self); 5] = [
        ("none, which is WAH", Self::new(false, false, true)),
        ("literal, fill, literal", Self::new(false, true, true)),
        ("both, but zeros at the end of a window stay apart", Self::new(true, true, false)),
        ("fill, literal, fill", Self::new(true, false, true)),
        ("both, as in codec compax2", Self::new(true, true, true)),
    ];

    const fn new(fill_literal_fill: bool, literal_fill_literal: bool, at_the_end: bool) -> Self {
        Self { fill_literal_fill, literal_fill_literal, at_the_end }
    }
}

/// What COMPAX2 would take with fewer merges.
pub fn compax_merges(mut tuples: Vec<Tuple>, report: &mut Report<'_>) -> anyhow::Result<()> {
    let title = "COMPAX2 by what it joins: calibrated, hash order, windows, source IP 4";
    let headings = ["triples that are joined", "words", "to published, %", "MASC to it, %"];
    let headings: Vec<&str> = headings.into_iter().chain(["published"]).collect();
    let mut sheet = Sheet::new("masc-compax-merges", title, &headings);
    tuples::sort(&mut tuples, Order::Hash);
    let column = tuples::column(&tuples, 3);
    let (mut counts, mut masc, mut target) = ([0_u64; Merges::ALL.len()], 0, Vec::new());
    for_each_bitmap(&column, windows::ROWS, |_, runs, rows| {
        masc += encode(Codec::Masc, runs, rows, Zeros::Joined, &mut target) as u64 / 4;
        let left_out = encode(Codec::Wah, runs, rows, Zeros::LeftOut, &mut target) / 4;
        encode(Codec::Wah, runs, rows, Zeros::Joined, &mut target);
        let words: Vec<u32> = windows::words(&target).collect();
        for ((_, merges), count) in Merges::ALL.iter().zip(&mut counts) {
            let (first, apart) = match merges.at_the_end {
                true => (&words[..], 0),
                false => (&words[..left_out], words.len() - left_out),
            };
            *count += joined(first, *merges) + apart as u64;
        }
    });
    let [_, compax, published_masc] = PUBLISHED[3].map(|bits| bits as f64 / 32.0);
    for ((name, _), count) in Merges::ALL.iter().zip(counts) {
        sheet.row(vec![
            (*name).to_owned(),
            count.to_string(),
            format!("{:.1}", percent(count as f64, compax)),
            format!("{:.1}", percent(masc as f64, count as f64)),
            format!("{:.1}", percent(published_masc, compax)),
        ]);
    }
    Ok(report.table(&sheet, None)?)
}

/// Bits of an address that tell its hosts apart, in the experiment on how often hosts come back;
/// none is as many hosts as flows.
const HOST_BITS: [Option<u32>; 4] = [None, Some(18), Some(16), Some(14)];

/// How much flow order gains, by how many hosts share the flows.
pub fn hosts(tuples: &[Tuple], report: &mut Report<'_>) -> anyhow::Result<()> {
    let title = "MASC by the number of hosts: calibrated, bytes a packet";
    let headings = ["hosts on each side", "paper's setting", "flow order, whole columns"];
    let headings: Vec<&str> = headings.into_iter().chain(["times smaller"]).collect();
    let mut sheet = Sheet::new("masc-hosts", title, &headings);
    for bits in HOST_BITS {
        let mut tuples = tuples.to_vec();
        if let Some(bits) = bits {
            tuples::share_hosts(&mut tuples, bits);
        }
        let mut of_setting = |setting: usize| -> anyhow::Result<f64> {
            let (_, order, layout) = SETTINGS[setting];
            tuples::sort(&mut tuples, order);
            let mut bytes = 0;
            for byte in 0..NAMES.len() {
                let sizes = sizes(&tuples::column(&tuples, byte), layout)?;
                bytes += codecs()
                    .zip(sizes)
                    .filter(|size| size.0 == Codec::Masc)
                    .map(|size| size.1)
                    .sum::<u64>();
            }
            Ok(bytes as f64 / tuples.len() as f64)
        };
        let (was, is) = (of_setting(PAPER)?, of_setting(OURS)?);
        sheet.row(vec![
            bits.map_or("as many as flows".to_owned(), |bits| (1_u64 << bits).to_string()),
            format!("{was:.3}"),
            format!("{is:.3}"),
            format!("{:.1}", was / is),
        ]);
    }
    Ok(report.table(&sheet, None)?)
}

/// Words that are left of WAH's when triples of fills of zeros and literals with one byte are
/// joined, from left to right.
fn joined(words: &[u32], merges: Merges) -> u64 {
    let fill = |word: u32| word >> 30 == 0b10 && word & 0x3FFF_FFFF <= 255;
    let literal = |word: u32| {
        let bytes = [0xFF, 0xFF00, 0xFF_0000, 0x7F00_0000];
        word >> 31 == 0 && bytes.iter().filter(|&&mask| word & mask != 0).count() == 1
    };
    let (mut count, mut at) = (0, 0);
    while at < words.len() {
        let joins = match words[at..] {
            [a, b, c, ..] => {
                (merges.fill_literal_fill && fill(a) && literal(b) && fill(c))
                    || (merges.literal_fill_literal && literal(a) && fill(b) && literal(c))
            }
            _ => false,
        };
        count += 1;
        at += if joins { 3 } else { 1 };
    }
    count
}

/// How unlike the values of a byte are: value `i` in proportion to 1 / (i + 1)^exponent.
const EXPONENTS: [f64; 7] = [0.0, 0.25, 0.5, 0.75, 1.0, 1.25, 1.5];

/// What values that are not alike do to a byte.
pub fn skew(mut tuples: Vec<Tuple>, seed: u64, report: &mut Report<'_>) -> anyhow::Result<()> {
    let title = "A byte by how unlike its values are: calibrated, paper's setting, bytes a packet";
    let headings = [
        "exponent",
        "chance that two are alike, %",
        "plwah",
        "compax2",
        "masc",
        "MASC to PLWAH, %",
        "MASC to COMPAX2, %",
    ];
    let mut sheet = Sheet::new("masc-skew", title, &headings);
    tuples::sort(&mut tuples, Order::Hash);
    let mut points: [Vec<(f64, f64)>; 2] = Default::default();
    for exponent in EXPONENTS {
        let (column, alike) = skewed(&tuples, exponent, seed);
        let found = sizes(&column, SETTINGS[PAPER].2)?;
        let size = |wanted: Codec| {
            let size = codecs().zip(&found).find(|(codec, _)| *codec == wanted);
            size.map_or(0.0, |(_, &size)| size as f64 / column.len() as f64)
        };
        let [plwah, compax2, masc] = THREE.map(size);
        let percents = [percent(masc, plwah), percent(masc, compax2)];
        let mut cells = vec![format!("{exponent}"), format!("{:.2}", 100.0 * alike)];
        cells.extend([plwah, compax2, masc].map(|size| format!("{size:.3}")));
        cells.extend(percents.map(|percent| format!("{percent:.1}")));
        sheet.row(cells);
        for (points, percent) in points.iter_mut().zip(percents) {
            points.push((exponent, percent));
        }
    }
    let lines = ["to PLWAH", "to COMPAX2"].into_iter().zip(points).map(|(label, points)| Line {
        label: label.to_owned(),
        points_only: false,
        points,
    });
    let plot = Plot::Lines(Lines {
        title: "MASC against PLWAH and COMPAX2 as values grow unlike".to_owned(),
        x: "exponent".to_owned(),
        y: "percent".to_owned(),
        lines: lines.collect(),
        ..Lines::default()
    });
    Ok(report.table(&sheet, Some(&plot))?)
}

/// A column with a drawn value for each flow, and the chance that two flows have the same.
fn skewed(sorted: &[Tuple], exponent: f64, seed: u64) -> (Vec<u8>, f64) {
    let weights: Vec<f64> = (1..=256).map(|rank| f64::from(rank).powf(-exponent)).collect();
    let all: f64 = weights.iter().sum();
    let alike = weights.iter().map(|weight| (weight / all).powi(2)).sum();
    let mut sums: Vec<f64> = Vec::with_capacity(256);
    for weight in weights {
        sums.push(sums.last().unwrap_or(&0.0) + weight / all);
    }
    let mut random = Random::new(seed);
    let mut column = Vec::with_capacity(sorted.len());
    for flow in sorted.chunk_by(|a, b| a == b) {
        let draw = (random.number() >> 11) as f64 / (1_u64 << 53) as f64;
        let value = sums.partition_point(|&sum| sum < draw).min(255) as u8;
        column.resize(column.len() + flow.len(), value);
    }
    (column, alike)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_merges_of_zero_fills_are_those_of_the_codec() {
        let merges = Merges::new(true, true, true);
        let column: Vec<u8> = (100..3_900_u32).map(|row| (row * row / 90) as u8 % 9).collect();
        let (mut ours, mut theirs, mut target) = (0, 0, Vec::new());
        // No value fills a group, so that there are no fills of ones.
        for_each_bitmap(&column, windows::ROWS, |_, runs, rows| {
            theirs += encode(Codec::Compax2, runs, rows, Zeros::Joined, &mut target) as u64 / 4;
            encode(Codec::Wah, runs, rows, Zeros::Joined, &mut target);
            let words: Vec<u32> = windows::words(&target).collect();
            assert!(words.iter().all(|word| word >> 30 != 0b11));
            ours += joined(&words, merges);
        });
        assert_eq!(ours, theirs);
    }

    #[test]
    fn values_are_drawn_as_often_as_the_exponent_says() {
        let mut tuples = tuples::calibrated(300_000, 1);
        tuples::sort(&mut tuples, Order::Hash);
        let flows = tuples::flows(&tuples);
        for exponent in [0.0, 1.0] {
            let (column, alike) = skewed(&tuples, exponent, 1);
            assert_eq!(column.len(), tuples.len());
            // Runs end between flows, but where two neighbours have the same value.
            let runs = column.chunk_by(|a, b| a == b).count();
            let joined = 1.0 - runs as f64 / flows as f64;
            assert!((joined - alike).abs() < 0.01, "{exponent}: {joined} {alike}");
        }
    }
}
