//! Experiments on why sizes differ from the published ones, all of calibrated flows.

use tapdex_bench::tuples::{self, NAMES, Order, Tuple};
use tapdex_bench::windows::{self, Zeros, encode, for_each_bitmap};
use tapdex_bitmap::Codec;
use tapdex_bitmap::sample::Random;
use tapdex_report::{Line, Lines, Plot, Report, Sheet};

use super::sizes::{
    OURS, PAPER, PUBLISHED, PUBLISHED_PACKETS, SETTINGS, THREE, codecs, percent, sizes,
};

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

/// How the values of a byte are drawn for flows.
#[derive(Debug, Clone, Copy)]
enum Values {
    /// Value `i` in proportion to 1 / (i + 1)^exponent.
    Zipf(f64),
    /// One value with this share, all others alike.
    OneOften(f64),
}

/// What is tried.
const VALUES: [Values; 11] = [
    Values::Zipf(0.0),
    Values::Zipf(0.5),
    Values::Zipf(0.75),
    Values::Zipf(1.0),
    Values::Zipf(1.25),
    Values::Zipf(1.5),
    Values::OneOften(0.05),
    Values::OneOften(0.1),
    Values::OneOften(0.2),
    Values::OneOften(0.3),
    Values::OneOften(0.4),
];

impl Values {
    fn name(self) -> String {
        match self {
            Self::Zipf(exponent) => format!("Zipf, exponent {exponent}"),
            Self::OneOften(share) => format!("one with {:.0} %, others alike", 100.0 * share),
        }
    }

    /// The chance of each value.
    fn chances(self) -> Vec<f64> {
        let weights: Vec<f64> = match self {
            Self::Zipf(exponent) => (1..=256).map(|rank| f64::from(rank).powf(-exponent)).collect(),
            Self::OneOften(share) => {
                let rest = (1.0 - share) / 255.0;
                std::iter::once(share).chain(std::iter::repeat_n(rest, 255)).collect()
            }
        };
        let all: f64 = weights.iter().sum();
        weights.iter().map(|weight| weight / all).collect()
    }
}

/// PLWAH, COMPAX2 and MASC of a column in the paper's setting, in bytes a row.
fn three(column: &[u8]) -> anyhow::Result<[f64; 3]> {
    let found = sizes(column, SETTINGS[PAPER].2)?;
    let size = |wanted: Codec| {
        let size = codecs().zip(&found).find(|(codec, _)| *codec == wanted);
        size.map_or(0.0, |(_, &size)| size as f64 / column.len() as f64)
    };
    Ok(THREE.map(size))
}

fn cells(name: String, [plwah, compax2, masc]: [f64; 3]) -> Vec<String> {
    let mut cells = vec![name];
    cells.extend([plwah, compax2, masc].map(|size| format!("{size:.3}")));
    cells.extend([plwah, compax2].map(|of| format!("{:.1}", percent(masc, of))));
    cells
}

/// What values that are not alike do to a byte.
pub fn skew(mut tuples: Vec<Tuple>, seed: u64, report: &mut Report<'_>) -> anyhow::Result<()> {
    let title = "A byte by how its values are drawn: calibrated, paper's setting, bytes a packet";
    let headings = ["values", "plwah", "compax2", "masc", "MASC to PLWAH, %", "to COMPAX2, %"];
    let mut sheet = Sheet::new("masc-skew", title, &headings);
    tuples::sort(&mut tuples, Order::Hash);
    let mut points: [Vec<(f64, f64)>; 2] = Default::default();
    for values in VALUES {
        let found = three(&drawn(&tuples, values, seed))?;
        sheet.row(cells(values.name(), found));
        let [plwah, compax2, masc] = found;
        if let Values::Zipf(exponent) = values {
            points[0].push((exponent, percent(masc, plwah)));
            points[1].push((exponent, percent(masc, compax2)));
        }
    }
    for (name, byte) in [("source IP 1", 0), ("source port 1", 8), ("destination port 2", 11)] {
        let published = PUBLISHED[byte].map(|bits| bits as f64 / 8.0 / PUBLISHED_PACKETS);
        sheet.row(cells(format!("published, {name}"), published));
    }
    let lines = ["to PLWAH", "to COMPAX2"].into_iter().zip(points).map(|(label, points)| Line {
        label: label.to_owned(),
        points_only: false,
        points,
    });
    let plot = Plot::Lines(Lines {
        title: "MASC against PLWAH and COMPAX2 as values follow Zipf's law".to_owned(),
        x: "exponent".to_owned(),
        y: "percent".to_owned(),
        lines: lines.collect(),
        ..Lines::default()
    });
    Ok(report.table(&sheet, Some(&plot))?)
}

/// A column with a drawn value for each flow.
fn drawn(sorted: &[Tuple], values: Values, seed: u64) -> Vec<u8> {
    let mut sums: Vec<f64> = Vec::with_capacity(256);
    for chance in values.chances() {
        sums.push(sums.last().unwrap_or(&0.0) + chance);
    }
    let mut random = Random::new(seed);
    let mut column = Vec::with_capacity(sorted.len());
    for flow in sorted.chunk_by(|a, b| a == b) {
        let draw = tuples::unit(&mut random);
        let value = sums.partition_point(|&sum| sum < draw).min(255) as u8;
        column.resize(column.len() + flow.len(), value);
    }
    column
}

/// Shares of flows with a single packet.
const LONE: [f64; 5] = [0.0, 0.3, 0.64, 0.8, 0.95];

/// What the sizes of flows do to a byte that has all values alike.
pub fn flow_sizes(packets: usize, seed: u64, report: &mut Report<'_>) -> anyhow::Result<()> {
    let title = "A byte by the flows that have one packet: paper's setting, bytes a packet";
    let headings =
        ["flows of one packet, %", "plwah", "compax2", "masc", "MASC to PLWAH, %", "to COMPAX2, %"];
    let mut sheet = Sheet::new("masc-flow-sizes", title, &headings);
    for lone in LONE {
        let mut tuples = tuples::calibrated_but(lone, packets, seed);
        tuples::sort(&mut tuples, Order::Hash);
        let found = three(&tuples::column(&tuples, 3))?;
        sheet.row(cells(format!("{:.0}", 100.0 * lone), found));
    }
    Ok(report.table(&sheet, None)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_merges_of_zero_fills_are_those_of_the_codec() {
        let merges = Merges::new(true, true, true);
        let column: Vec<u8> = (100..3_900_u32).map(|row| (row * row / 90) as u8).collect();
        let (mut wah, mut ours, mut theirs, mut target) = (0, 0, 0, Vec::new());
        // No value fills a group, so that there are no fills of ones.
        for_each_bitmap(&column, windows::ROWS, |_, runs, rows| {
            theirs += encode(Codec::Compax2, runs, rows, Zeros::Joined, &mut target) as u64 / 4;
            encode(Codec::Wah, runs, rows, Zeros::Joined, &mut target);
            let words: Vec<u32> = windows::words(&target).collect();
            assert!(words.iter().all(|word| word >> 30 != 0b11));
            wah += words.len() as u64;
            ours += joined(&words, merges);
        });
        assert_eq!(ours, theirs);
        // Most are joined.
        assert!(wah > 2 * ours, "{wah} {ours}");
    }

    #[test]
    fn values_are_drawn_as_often_as_the_exponent_says() {
        let mut tuples = tuples::calibrated(300_000, 1);
        tuples::sort(&mut tuples, Order::Hash);
        let flows = tuples::flows(&tuples);
        for values in [Values::Zipf(0.0), Values::Zipf(1.0), Values::OneOften(0.3)] {
            let column = drawn(&tuples, values, 1);
            let alike: f64 = values.chances().iter().map(|chance| chance.powi(2)).sum();
            assert_eq!(column.len(), tuples.len());
            // Runs end between flows, but where two neighbours have the same value.
            let runs = column.chunk_by(|a, b| a == b).count();
            let joined = 1.0 - runs as f64 / flows as f64;
            assert!((joined - alike).abs() < 0.01, "{values:?}: {joined} {alike}");
        }
    }
}
