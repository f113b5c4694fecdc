//! `tapdex-bench masc`: the sizes of the MASC paper's tables 2 to 4, and of PLWAH+'s figure 2.

use std::path::{Path, PathBuf};

use anyhow::ensure;
use tapdex_bench::tuples::{self, NAMES, Order, Tuple};
use tapdex_bitmap::{ALL_CODECS, Codec};
use tapdex_engine::index::{Builder, ColumnIndex, CpuBuilder, Digits};

/// Packets of the trace that both papers use.
const PACKETS: usize = 13_581_810;
/// Rows of the papers' windows.
const WINDOW: usize = 3_968;

/// What to measure.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Packets that are made up.
    #[arg(long, default_value_t = PACKETS)]
    packets: usize,
    /// Seed of the made-up packets.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// A folder that has real captures under `large/*.zst`; without it, the variable
    /// TAPDEX_TRACES names it.
    #[arg(long, value_name = "DIR")]
    traces: Option<PathBuf>,
}

/// MASC, per byte, against PLWAH and against COMPAX as the paper's tables 3 and 4 have it, in
/// percent.
const PUBLISHED: [(f64, f64); 12] = [
    (-16.19, -11.00),
    (-17.53, -16.85),
    (-19.03, -18.41),
    (-19.70, -19.56),
    (-16.49, -10.30),
    (-18.70, -16.39),
    (-19.22, -18.42),
    (-19.60, -19.24),
    (-15.59, -16.18),
    (-14.85, -15.18),
    (-13.81, -15.11),
    (-12.09, -13.49),
];

/// How the rows are laid out.
#[derive(Debug, Clone, Copy)]
enum Layout {
    /// Windows of 3,968 rows, each with bitmaps of its own.
    Windows {
        /// Whether the zeros behind the last row of a bitmap take a word.
        to_the_end: bool,
    },
    /// The whole column at once.
    Whole,
}

/// The settings that are compared.
const SETTINGS: [(&str, Order, Layout); 6] = [
    ("order of arrival, windows", Order::Arrival, Layout::Windows { to_the_end: false }),
    ("hash order, windows, zeros to the end", Order::Hash, Layout::Windows { to_the_end: true }),
    ("hash order, windows", Order::Hash, Layout::Windows { to_the_end: false }),
    ("hash order, whole columns", Order::Hash, Layout::Whole),
    ("flow order, windows", Order::Flow, Layout::Windows { to_the_end: false }),
    ("flow order, whole columns", Order::Flow, Layout::Whole),
];

pub fn run(args: &Args) -> anyhow::Result<()> {
    ensure!(args.packets > 0, "--packets 0: nothing would be measured");
    let mut made = tuples::made_up(args.packets, args.seed);
    measure(&format!("made up, seed {}", args.seed), made.clone())?;
    tuples::spread_addresses(&mut made);
    measure(&format!("made up, seed {}, addresses spread", args.seed), made)?;
    let traces = args.traces.clone().or_else(|| std::env::var_os("TAPDEX_TRACES").map(Into::into));
    for path in traces.iter().flat_map(|folder| captures(&folder.join("large"))) {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        measure(name.trim_end_matches(".zst"), tuples::of_capture(&path)?)?;
    }
    Ok(())
}

fn captures(folder: &Path) -> Vec<PathBuf> {
    let entries = folder.read_dir().into_iter().flatten().flatten().map(|entry| entry.path());
    let mut found: Vec<PathBuf> = entries
        .filter(|path| path.to_string_lossy().contains(".pcap"))
        .filter(|path| path.extension().is_some_and(|end| end == "zst" || end == "pcap"))
        .collect();
    found.sort();
    found
}

/// Codecs that are measured: those whose size does not grow with the number of values alone.
fn codecs() -> impl Iterator<Item = Codec> {
    ALL_CODECS.into_iter().filter(|codec| !matches!(codec, Codec::Hipes(_)))
}

fn measure(name: &str, mut tuples: Vec<Tuple>) -> anyhow::Result<()> {
    ensure!(!tuples.is_empty(), "{name}: no IPv4 packets");
    let packets = tuples.len() as f64;
    let names: Vec<&str> = codecs().map(Codec::name).collect();
    words(name, "order of arrival", &tuples);
    for (number, (setting, order, layout)) in SETTINGS.into_iter().enumerate() {
        tuples::sort(&mut tuples, order);
        if number == 1 {
            words(name, "hash order", &tuples);
        }
        println!("\n## {name}: {setting}\n");
        if order == Order::Flow {
            println!("{} packets, {} flows.\n", tuples.len(), tuples::flows(&tuples));
        }
        println!("Bytes a packet; MASC against PLWAH and against COMPAX2 in percent.\n");
        println!(
            "| byte | {} | to PLWAH | published | to COMPAX2 | published |",
            names.join(" | ")
        );
        println!("|---|{}", "---:|".repeat(names.len() + 4));
        let mut sums = vec![0_u64; names.len()];
        for (byte, what) in NAMES.into_iter().enumerate() {
            let column = tuples::column(&tuples, byte);
            let sizes: Vec<u64> = match layout {
                Layout::Whole => {
                    codecs().map(|codec| whole(&column, codec)).collect::<Result<_, _>>()?
                }
                Layout::Windows { to_the_end } => windows(&column, to_the_end),
            };
            sums.iter_mut().zip(&sizes).for_each(|(sum, size)| *sum += size);
            row(what, &sizes, packets, PUBLISHED.get(byte));
        }
        row("all", &sums, packets, None);
    }
    Ok(())
}

/// PLWAH+, figure 2: words and literals of both codecs, in windows.
fn words(name: &str, order: &str, tuples: &[Tuple]) {
    println!("\n## {name}: {order}, windows, words\n");
    println!("| codec | words | literals | percent of the bytes |");
    println!("|---|---:|---:|---:|");
    let mut counts = [(Codec::Plwah, 0_u64, 0_u64), (Codec::PlwahPlus, 0, 0)];
    let mut target = Vec::new();
    for byte in 0..NAMES.len() {
        for_each_bitmap(&tuples::column(tuples, byte), |runs, _| {
            for (codec, words, literals) in &mut counts {
                target.clear();
                codec.encode_runs(runs, &mut target);
                let (found, _) = target.as_chunks::<4>();
                *words += found.len() as u64;
                // The highest bit of a literal is 0, in both.
                *literals += found.iter().filter(|word| word[3] < 0x80).count() as u64;
            }
        });
    }
    let bytes = (tuples.len() * NAMES.len()) as f64;
    for (codec, words, literals) in counts {
        println!("| {codec} | {words} | {literals} | {:.1} |", 400.0 * words as f64 / bytes);
    }
}

fn row(what: &str, sizes: &[u64], packets: f64, published: Option<&(f64, f64)>) {
    let size = |wanted: Codec| {
        codecs()
            .zip(sizes)
            .find(|(codec, _)| *codec == wanted)
            .map_or(0.0, |(_, &size)| size as f64)
    };
    let cells: Vec<String> =
        sizes.iter().map(|&size| format!("{:.3}", size as f64 / packets)).collect();
    let percent = |of: Codec| format!("{:.1}", 100.0 * (size(Codec::Masc) / size(of) - 1.0));
    let shown = |value: Option<f64>| value.map_or("-".to_owned(), |value| format!("{value:.1}"));
    println!(
        "| {what} | {} | {} | {} | {} | {} |",
        cells.join(" | "),
        percent(Codec::Plwah),
        shown(published.map(|pair| pair.0)),
        percent(Codec::Compax2),
        shown(published.map(|pair| pair.1)),
    );
}

/// The bytes of a column's bitmaps.
fn whole(column: &[u8], codec: Codec) -> anyhow::Result<u64> {
    let mut index = ColumnIndex::default();
    CpuBuilder::new(0).build(Digits::Bytes(column), codec, &mut index)?;
    Ok(index.offsets.last().copied().unwrap_or(0))
}

/// The bytes of the bitmaps of all windows, by codec.
fn windows(column: &[u8], to_the_end: bool) -> Vec<u64> {
    let mut sizes = vec![0; codecs().count()];
    let mut target = Vec::new();
    for_each_bitmap(column, |runs, rows| {
        let last = runs.last().map_or(0, |run| run.1 as usize + 1);
        for (codec, size) in codecs().zip(&mut sizes) {
            target.clear();
            codec.encode_runs(runs, &mut target);
            // Groups behind that of the last row; MASC counts rows.
            let rows_left = match codec {
                Codec::Masc => rows - last,
                Codec::Roaring => 0,
                _ => rows.saturating_sub(last.next_multiple_of(31)),
            };
            let fill = if to_the_end && rows_left > 0 { 4 } else { 0 };
            *size += target.len() as u64 + fill;
        }
    });
    sizes
}

/// Calls `each` for every value of every window, with its runs and the rows of the window.
fn for_each_bitmap(column: &[u8], mut each: impl FnMut(&[(u32, u32)], usize)) {
    let mut runs: Vec<Vec<(u32, u32)>> = vec![Vec::new(); 256];
    for window in column.chunks(WINDOW) {
        let mut start = 0_u32;
        for run in window.chunk_by(|a, b| a == b) {
            let end = start + u32::try_from(run.len()).unwrap_or(u32::MAX);
            runs[usize::from(run[0])].push((start, end - 1));
            start = end;
        }
        for runs in runs.iter_mut().filter(|runs| !runs.is_empty()) {
            each(runs, window.len());
            runs.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_window_is_a_column() {
        let column: Vec<u8> = (0..WINDOW as u32).map(|row| (row * row / 90) as u8 % 9).collect();
        for (codec, size) in codecs().zip(windows(&column, false)) {
            assert_eq!(whole(&column, codec).unwrap(), size, "{codec}");
        }
        // The last rows have no other value, so that every other one's zeros take a word.
        let mut ended = column;
        ended[WINDOW - 40..].fill(0);
        let words = |to_the_end| windows(&ended, to_the_end)[0] / 4;
        assert_eq!(words(true) - words(false), 8);
    }
}
