//! `tapdex-bench plwah-plus`: figure 2 of the PLWAH+ paper, words and literals against PLWAH.

use std::path::PathBuf;

use anyhow::ensure;
use tapdex_bench::page::{self, Head, Target};
use tapdex_bench::tuples::{self, NAMES, Order, Tuple, TupleSource};
use tapdex_bench::windows::{self, Zeros, encode, for_each_bitmap};
use tapdex_bitmap::Codec;
use tapdex_report::{Bar, Bars, Plot, Report, Sheet};

/// What to measure.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Packets that are made up.
    #[arg(long, default_value_t = super::masc::PACKETS)]
    packets: usize,
    /// Seed of the made-up packets.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// A folder that has real captures under `large/`; without it, the variable TAPDEX_TRACES
    /// names it.
    #[arg(long, value_name = "DIR")]
    traces: Option<PathBuf>,
    #[command(flatten)]
    target: Target,
}

/// Positions that the papers' PLWAH may have in a fill.
const POSITIONS: [u32; 4] = [1, 2, 3, 4];
/// What is published: percent of the columns' bytes, fewer words than PLWAH, fewer literals.
const PUBLISHED: [f64; 3] = [43.2, -3.0, -20.0];

/// Words, and how many of them are literals.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Count {
    words: u64,
    literals: u64,
}

/// PLWAH+, and PLWAH by the number of positions that a fill has room for.
#[derive(Debug, Clone, Copy, Default)]
struct Counts {
    plus: Count,
    plwah: [Count; 4],
}

pub fn run(args: &Args) -> anyhow::Result<()> {
    ensure!(args.packets > 0, "--packets 0: nothing would be measured");
    let (packets, seed) = (args.packets, args.seed);
    let sources = tuples::sources(args.traces.as_deref())?;
    let names: Vec<String> = sources.iter().map(TupleSource::name).collect();
    let head = Head {
        name: "plwah-plus",
        title: "PLWAH+: figure 2",
        command: &format!(
            "plwah-plus --packets {packets} --seed {seed}{}",
            tuples::traces_option(&sources)
        ),
        facts: &[
            ("packets", format!("{packets} of each kind that is made up, seed {seed}")),
            ("data", names.join(", ")),
            ("columns", "the 13 bytes of the IPv4 five-tuple, in windows of 3,968 rows".to_owned()),
        ],
    };
    page::write(&args.target, head, |report| {
        let mut figure = Figure::new();
        for source in &sources {
            eprintln!("words of {}", source.name());
            let mut tuples = source.tuples(packets, seed)?;
            if source.has_arrival() {
                figure.add(source, "order of arrival", &tuples);
            }
            tuples::sort(&mut tuples, Order::Hash);
            figure.add(source, "hash order", &tuples);
        }
        figure.report(report)
    })
}

/// The words of all bitmaps of all columns.
fn count(tuples: &[Tuple]) -> Counts {
    let (mut counts, mut target) = (Counts::default(), Vec::new());
    for byte in 0..NAMES.len() {
        for_each_bitmap(&tuples::column(tuples, byte), windows::ROWS, |_, runs, rows| {
            encode(Codec::PlwahPlus, runs, rows, Zeros::Joined, &mut target);
            for word in windows::words(&target) {
                counts.plus.words += 1;
                // The highest bit of a literal is 0.
                counts.plus.literals += u64::from(word >> 31 == 0);
            }
            encode(Codec::Wah, runs, rows, Zeros::Joined, &mut target);
            let words: Vec<u32> = windows::words(&target).collect();
            for (positions, count) in POSITIONS.into_iter().zip(&mut counts.plwah) {
                let found = absorb(&words, positions);
                count.words += found.words;
                count.literals += found.literals;
            }
        });
    }
    counts
}

/// What is left of WAH's words when a fill takes in a literal after it that differs from it in so
/// many bits at most.
fn absorb(words: &[u32], positions: u32) -> Count {
    let mut count = Count::default();
    let mut words = words.iter().peekable();
    while let Some(&word) = words.next() {
        count.words += 1;
        if word >> 31 == 0 {
            count.literals += 1;
            continue;
        }
        let fill = if word >> 30 == 0b11 { 0x7FFF_FFFF } else { 0 };
        words.next_if(|&&next| next >> 31 == 0 && (next ^ fill).count_ones() <= positions);
    }
    count
}

/// The tables and the plot.
struct Figure {
    figure: Sheet,
    by_positions: Sheet,
    bars: Bars,
}

impl Figure {
    fn new() -> Self {
        let title = "Figure 2: words and literals of PLWAH+ and PLWAH";
        let headings = [
            "data",
            "rows",
            "plwah-plus words",
            "literals",
            "% of bytes",
            "published",
            "words to PLWAH, 1 position, %",
            "4 positions, %",
            "published",
            "literals to PLWAH, 1 position, %",
            "4 positions, %",
            "published",
        ];
        let positions = "PLWAH by the positions that a fill has room for: words, literals";
        let columns = ["data", "rows", "1", "literals", "2", "literals", "3", "literals", "4"];
        let columns: Vec<&str> = columns.into_iter().chain(["literals"]).collect();
        Self {
            figure: Sheet::new("plwah-plus-figure2", title, &headings),
            by_positions: Sheet::new("plwah-positions", positions, &columns),
            bars: Bars {
                title: "Words in hash order, windows: PLWAH+ and PLWAH".to_owned(),
                unit: "words in % of the columns' own bytes, four of them a word".to_owned(),
                mark: Some("published for PLWAH+".to_owned()),
                bars: vec![],
            },
        }
    }

    fn add(&mut self, source: &TupleSource, rows: &str, tuples: &[Tuple]) {
        let Counts { plus, plwah } = count(tuples);
        let share = |words: u64| 400.0 * words as f64 / (tuples.len() * NAMES.len()) as f64;
        let percent = |part: u64, of: u64| 100.0 * (part as f64 / of as f64 - 1.0);
        let (one, four) = (plwah[0], plwah[3]);
        let mut cells = vec![source.name(), rows.to_owned()];
        cells.extend([plus.words.to_string(), plus.literals.to_string()]);
        cells.extend([share(plus.words), PUBLISHED[0]].map(|value| format!("{value:.1}")));
        for (of, value, published) in [
            ([one.words, four.words], plus.words, PUBLISHED[1]),
            ([one.literals, four.literals], plus.literals, PUBLISHED[2]),
        ] {
            cells.extend(of.map(|of| format!("{:.1}", percent(value, of))));
            cells.push(format!("{published:.0}"));
        }
        self.figure.row(cells);
        let mut cells = vec![source.name(), rows.to_owned()];
        for count in plwah {
            cells.extend([count.words.to_string(), count.literals.to_string()]);
        }
        self.by_positions.row(cells);
        if rows == "hash order" {
            let counts = [("plwah", one), ("plwah, 4 positions", four), ("plwah-plus", plus)];
            for (codec, count) in counts {
                self.bars.bars.push(Bar {
                    label: format!("{}, {codec}", source.name()),
                    value: share(count.words),
                    mark: (codec == "plwah-plus").then_some(PUBLISHED[0]),
                });
            }
        }
    }

    fn report(self, report: &mut Report<'_>) -> anyhow::Result<()> {
        report.table(&self.figure, Some(&Plot::Bars(self.bars)))?;
        Ok(report.table(&self.by_positions, None)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_position_is_the_codec_plwah() {
        let tuples = tuples::made_up(20_000, 1);
        let found = count(&tuples);
        let (mut words, mut target) = (0, Vec::new());
        for byte in 0..NAMES.len() {
            for_each_bitmap(&tuples::column(&tuples, byte), windows::ROWS, |_, runs, rows| {
                words += encode(Codec::Plwah, runs, rows, Zeros::Joined, &mut target) as u64 / 4;
            });
        }
        assert_eq!(found.plwah[0].words, words);
        let falling = found.plwah.is_sorted_by(|a, b| a.words >= b.words);
        assert!(falling && found.plus.words <= found.plwah[3].words, "{found:?}");
    }

    #[test]
    fn fills_take_in_what_is_near_to_them() {
        let words = [0x8000_0003, 0b101, 0b1, 0xC000_0002, 0x7FFF_FFFE, 0x8000_0001];
        assert_eq!(absorb(&words, 1), Count { words: 5, literals: 2 });
        assert_eq!(absorb(&words, 2), Count { words: 4, literals: 1 });
    }
}
