//! `tapdex-bench interleave`: what an index would take if the packets of a conversation were in
//! order of arrival, and the direction of each were kept.

use std::collections::HashMap;
use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};
use tapdex_bench::page;
use tapdex_engine::archive::{Archive, CodecChoice};
use tapdex_engine::index::{Index, SectionKind, Space};
use tapdex_engine::testing::OrderedRows;

use crate::archive::captures::{self, Capture, Folder};
use crate::archive::indexing::index_into;

/// What to measure.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Packets of each of the three made-up captures: frames of all lengths, short frames, and SYNs
    /// from random sources.
    #[arg(long, default_value_t = 2_000_000)]
    packets: u64,
    /// A folder that has real captures under `large/*.zst`; without it, the variable TAPDEX_TRACES
    /// names it.
    #[arg(long, value_name = "DIR")]
    traces: Option<PathBuf>,
    /// Seed of the made-up captures.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Where captures and archives go; without it, a temporary folder that is removed at the end.
    #[arg(long, value_name = "DIR")]
    folder: Option<PathBuf>,
}

/// The parts that depend on the order of rows, as tables call them, and the names of their sections
/// or columns.
const PARTS: [(&str, &str); 4] = [
    ("row map", "row map"),
    ("TCP flags", "tcp.flags"),
    ("length class", "length"),
    ("flows", "flows"),
];
const ROW_MAP: usize = 0;
const FLOWS: usize = 3;
const DIRECTION: &str = "direction";
/// Conversations of a block of flows, and bytes of their first flows if all are empty.
const FLOW_BLOCK: usize = 128;
const FLOW_BLOCK_EMPTY: f64 = 2.0;

/// How many directions before a packet's are looked at to foresee its own.
const ORDERS: [u32; 9] = [0, 1, 2, 3, 4, 6, 8, 12, 16];

/// What a capture's segments take, in bytes.
#[derive(Default)]
struct Sizes {
    index: f64,
    /// The parts, today and interleaved.
    parts: [[f64; 2]; PARTS.len()],
    /// Directions as a column, as runs, and as part of the steps of the row map.
    column: f64,
    runs: f64,
    steps: f64,
    /// Directions at best, by order: foreseen from others, and also from flags and length class.
    best: [[f64; ORDERS.len()]; 2],
}

/// Rows in order of conversations, and in each of these in order of arrival. First flows are empty
/// here, so that the row map of second flows is that of conversations.
struct Interleaved {
    rows: OrderedRows,
    /// 1 for each row of a second flow, 0 for the others.
    directions: Vec<u8>,
}

impl Interleaved {
    fn new(today: &OrderedRows) -> anyhow::Result<Self> {
        let mut packets = Vec::with_capacity(today.packets.len());
        // The rows of today, in their new order, and their directions.
        let mut order: Vec<(usize, u8)> = Vec::with_capacity(today.records.len());
        for pair in today.packets.as_chunks::<2>().0 {
            let start = order.len();
            for (direction, &packets) in (0..).zip(pair) {
                let rows = order.len()..order.len() + packets as usize;
                order.extend(rows.map(|row| (row, direction)));
            }
            order[start..].sort_unstable_by_key(|&(row, _)| today.records[row]);
            packets.extend([0, pair[0] + pair[1]]);
        }
        ensure!(order.len() == today.records.len(), "flows and rows differ in number");
        let records = order.iter().map(|&(row, _)| today.records[row]).collect();
        let gather = |(name, values): &(String, Vec<u8>)| {
            (name.clone(), order.iter().map(|&(row, _)| values[row]).collect())
        };
        let columns = today.columns.iter().map(gather).collect();
        let directions = order.iter().map(|&(_, direction)| direction).collect();
        Ok(Self { rows: OrderedRows { packets, records, columns }, directions })
    }

    /// The rows of each conversation.
    fn conversations(&self) -> impl Iterator<Item = Range<usize>> {
        let mut end = 0;
        self.rows.packets.as_chunks::<2>().0.iter().map(move |&[_, packets]| {
            let start = end;
            end += packets as usize;
            start..end
        })
    }

    /// Bytes of the lengths of runs of the same direction, in Elias's gamma code.
    fn runs(&self) -> f64 {
        let runs = self.directions.chunk_by(|a, b| a == b);
        runs.map(|run| f64::from(2 * run.len().ilog2() + 1)).sum::<f64>() / 8.0
    }

    /// Bytes that directions add to the row map if a symbol says whether the direction changes,
    /// too: the entropy of that behind what the code depends on today.
    fn steps(&self) -> f64 {
        let mut seen: HashMap<(u32, u32), [f64; 2]> = HashMap::new();
        for rows in self.conversations() {
            let mut context = 0;
            for row in rows.clone() {
                let (mut bits, mut turns) = (0, self.directions[row] == 1);
                if row > rows.start {
                    let step = self.rows.records[row] - self.rows.records[row - 1] - 1;
                    bits = u32::BITS - step.leading_zeros();
                    turns = self.directions[row] != self.directions[row - 1];
                }
                seen.entry((context, bits)).or_default()[usize::from(turns)] += 1.0;
                context = match (context, bits) {
                    (0, _) => 2,
                    (_, 0) => 3,
                    _ => (4 + bits / 4).min(7),
                };
            }
        }
        let bits =
            |count: f64, all: f64| if count > 0.0 { count * (all / count).log2() } else { 0.0 };
        seen.values().map(|[a, b]| bits(*a, a + b) + bits(*b, a + b)).sum::<f64>() / 8.0
    }

    /// The bytes that an ideal coder takes which foresees each direction from what it has seen
    /// behind the same directions before it, and perhaps the same flags and length class; it
    /// counts both directions from a half (Krichevsky and Trofimov).
    fn best(&self, order: u32, with_columns: bool) -> f64 {
        let mut seen: HashMap<u64, [f64; 2]> = HashMap::new();
        let (mut bits, mut first) = (0.0, 0);
        for rows in self.conversations() {
            // A bit for each direction, and one above them; at first the conversation before's.
            let mut history = if order > 0 { 2 | first } else { 1 };
            first = self.directions.get(rows.start).copied().unwrap_or(0).into();
            for row in rows {
                let mut context = history;
                for (_, values) in self.rows.columns.iter().filter(|_| with_columns) {
                    context = context << 8 | u64::from(values[row]);
                }
                let direction = self.directions[row];
                let counts = seen.entry(context).or_insert([0.5; 2]);
                bits += ((counts[0] + counts[1]) / counts[usize::from(direction)]).log2();
                counts[usize::from(direction)] += 1.0;
                history = history << 1 | u64::from(direction);
                if history >> (order + 1) != 0 {
                    history = history & !(u64::MAX << order) | 1 << order;
                }
            }
        }
        bits / 8.0
    }
}

type Sections = HashMap<String, Vec<u8>>;

/// The sections of an index file that depend on the order of rows, by name; columns of packets by
/// that of their field.
fn sections(path: &Path) -> anyhow::Result<Sections> {
    let (index, bytes) = (Index::open(path)?, fs::read(path)?);
    let mut columns = index.flow_schema().context("not an index of conversations")?.columns.iter();
    let mut found = HashMap::new();
    for section in index.sections() {
        let name = match section.kind {
            Some(kind @ (SectionKind::Flows | SectionKind::RowMap)) => kind.name(),
            Some(SectionKind::Column) => match columns.next() {
                Some(column) if column.space == Space::Packets => &column.names[0],
                _ => continue,
            },
            _ => continue,
        };
        let (start, len) = (usize::try_from(section.offset)?, usize::try_from(section.len_bytes)?);
        found.insert(name.to_owned(), bytes[start..start + len].to_vec());
    }
    Ok(found)
}

/// Adds what a segment takes.
fn add(sizes: &mut Sizes, segment: &Path, scratch: &Path) -> anyhow::Result<()> {
    let index = Index::open(segment)?;
    let today = OrderedRows::read(&index)?;
    let again = scratch.join("again.tdx");
    today.write(&again)?;
    let of_segment = sections(segment)?;
    let differs = "today's order, written again, differs from the segment";
    ensure!(of_segment == sections(&again)?, differs);
    let mut interleaved = Interleaved::new(&today)?;
    sizes.index += index.len_bytes() as f64;
    sizes.runs += interleaved.runs();
    sizes.steps += interleaved.steps();
    for (with_columns, best) in [false, true].into_iter().zip(&mut sizes.best) {
        for (order, best) in ORDERS.into_iter().zip(best) {
            *best += interleaved.best(order, with_columns);
        }
    }
    let Interleaved { rows, directions } = &mut interleaved;
    rows.columns.push((DIRECTION.to_owned(), std::mem::take(directions)));
    rows.write(&again)?;
    let then = sections(&again)?;
    let len = |of: &Sections, name: &str| of.get(name).map_or(0.0, |bytes| bytes.len() as f64);
    for ((_, name), part) in PARTS.iter().zip(&mut sizes.parts) {
        *part = [part[0] + len(&of_segment, name), part[1] + len(&then, name)];
    }
    // Directions tell how many packets first flows have.
    let blocks = (today.packets.len() / 2).div_ceil(FLOW_BLOCK) as f64;
    sizes.parts[FLOWS][1] -= FLOW_BLOCK_EMPTY * blocks;
    sizes.column += len(&then, DIRECTION);
    Ok(())
}

fn measure(folder: &Folder, capture: &Capture) -> anyhow::Result<Sizes> {
    eprintln!("interleave: {}", capture.name);
    let scratch = folder.scratch();
    index_into(scratch.path(), capture, CodecChoice::Auto, 0)?;
    let mut sizes = Sizes::default();
    for segment in Archive::open(scratch.path())?.index_files()? {
        add(&mut sizes, &segment, scratch.path())?;
    }
    Ok(sizes)
}

pub fn run(args: &Args) -> anyhow::Result<()> {
    ensure!(args.packets >= 1_000, "--packets {}: too few to tell anything", args.packets);
    let folder = Folder::new(args.folder.as_deref())?;
    let mut all = captures::traces(&folder, args.traces.as_deref())?;
    all.push(captures::made(&folder, "all lengths", None, args.packets, args.seed)?);
    all.push(captures::made(&folder, "64-byte frames", Some(64), args.packets, args.seed)?);
    all.push(captures::flood(&folder, args.packets, args.seed)?);
    let sizes: Vec<Sizes> =
        all.iter().map(|capture| measure(&folder, capture)).collect::<Result<_, _>>()?;

    println!("# Directions interleaved\n\n```sh");
    println!("cargo run --release --manifest-path bench/Cargo.toml -- \\");
    println!("    interleave --packets {} --seed {} --traces DIR\n```\n", args.packets, args.seed);
    let facts = [page::machine(), page::first_line("date", &["-u", "+%Y-%m-%d"]), page::commit()];
    println!("{}.\n", facts.into_iter().flatten().collect::<Vec<_>>().join("; "));
    println!("Bytes a packet of the parts that depend on the order: today, and interleaved.\n");
    let names: Vec<&str> = PARTS.iter().map(|(name, _)| *name).collect();
    println!("| capture | packets | {} |", names.join(" | "));
    println!("|---|---:|{}", "---:|".repeat(PARTS.len()));
    for (capture, sizes) in all.iter().zip(&sizes) {
        let packets = capture.packets as f64;
        let part = |[today, then]: &[f64; 2]| {
            format!(" {:.3} -> {:.3} |", today / packets, then / packets)
        };
        let parts: String = sizes.parts.iter().map(part).collect();
        println!("| {} | {} |{parts}", capture.name, capture.packets);
    }
    println!("\nBytes a packet of directions.\n");
    println!("| capture | column | runs | steps | at best | at best, knowing flags and class |");
    println!("|---|---:|---:|---:|---:|---:|");
    let least = |tries: &[f64]| tries.iter().copied().fold(f64::INFINITY, f64::min);
    for (capture, sizes) in all.iter().zip(&sizes) {
        let [best, knowing] = [0, 1].map(|which| least(&sizes.best[which]));
        let ways = [sizes.column, sizes.runs, sizes.steps, best, knowing];
        let ways = ways.map(|bytes| format!(" {:.3} |", bytes / capture.packets as f64));
        println!("| {} |{}", capture.name, ways.concat());
    }
    println!("\nBytes a packet of all these, and what changes of the index.\n");
    println!("| capture | today | interleaved | at best | row map only | at best |");
    println!("|---|---:|---:|---:|---:|---:|");
    for (capture, sizes) in all.iter().zip(&sizes) {
        let [today, then] =
            [0, 1].map(|which| sizes.parts.iter().map(|part| part[which]).sum::<f64>());
        let map_only = today - sizes.parts[ROW_MAP][0] + sizes.parts[ROW_MAP][1];
        let written = least(&[sizes.column, sizes.runs, sizes.steps]);
        let [best, knowing] = [0, 1].map(|which| least(&sizes.best[which]));
        let ways = [then + written, then + best.min(knowing), map_only + written, map_only + best];
        let packets = capture.packets as f64;
        let ways = ways.map(|bytes| {
            let percent = 100.0 * (bytes - today) / sizes.index;
            format!(" {:.3} ({percent:+.1} %) |", bytes / packets)
        });
        println!("| {} | {:.3} |{}", capture.name, today / packets, ways.concat());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conversations_are_in_order_of_arrival() {
        let columns = vec![("a".to_owned(), vec![1, 2, 3, 4, 5])];
        let today =
            OrderedRows { packets: vec![2, 2, 1, 0], records: vec![0, 4, 1, 3, 2], columns };
        let Interleaved { rows, directions } = Interleaved::new(&today).unwrap();
        assert_eq!(rows.packets, [0, 4, 0, 1]);
        assert_eq!(rows.records, [0, 1, 3, 4, 2]);
        assert_eq!(rows.columns[0].1, [1, 3, 4, 2, 5]);
        assert_eq!(directions, [0, 1, 1, 0, 0]);
    }

    #[test]
    fn directions_that_can_be_foreseen_take_nothing() {
        let of = |direction: fn(u32) -> u8| Interleaved {
            rows: OrderedRows {
                packets: vec![0, 4_096],
                records: (0..4_096).collect(),
                columns: vec![],
            },
            directions: (0..4_096).map(direction).collect(),
        };
        let same = of(|_| 1);
        assert!(same.runs() < 4.0 && same.steps() < 1.0 && same.best(0, false) < 2.0);
        let turns = of(|row| (row % 2).to_le_bytes()[0]);
        assert!((turns.runs() - 512.0).abs() < 1.0 && turns.steps() < 1.0);
        assert!(turns.best(0, false) > 511.0 && turns.best(1, false) < 4.0);
    }

    #[test]
    fn what_is_written_again_is_the_segment() {
        let folder = Folder::new(None).unwrap();
        let capture = captures::made(&folder, "interleaved", None, 3_000, 5).unwrap();
        let sizes = measure(&folder, &capture).unwrap();
        let today: f64 = sizes.parts.iter().map(|part| part[0]).sum();
        assert!(0.0 < today && today < sizes.index);
    }
}
