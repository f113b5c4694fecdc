//! `tapdex-bench choice`: which form or codec the columns of a segment should have, and whether
//! `auto` chooses well.

mod columns;

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::ensure;
use tapdex_bench::page::{self, Head, Target};
use tapdex_report::{Bar, Bars, Plot, Report, Sheet};

use crate::archive::captures::Folder;
use columns::{Column, Indexed, KINDS, VALUES_MAX, choices, median};

/// What to measure.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Packets of most captures that are made up; one has four times as many, others fewer.
    #[arg(long, default_value_t = 1_000_000)]
    packets: u64,
    /// Seed of made-up packets.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Timed rounds of look-ups; the median counts.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// A folder that has real captures under `large/*.zst`; without it, the variable
    /// TAPDEX_TRACES names it.
    #[arg(long, value_name = "DIR")]
    traces: Option<PathBuf>,
    /// Where captures and archives go for a while; without it, a temporary folder.
    #[arg(long, value_name = "DIR")]
    folder: Option<PathBuf>,
    #[command(flatten)]
    target: Target,
}

pub fn run(args: &Args) -> anyhow::Result<()> {
    args.target.check()?;
    ensure!(args.rounds > 0, "--rounds 0: nothing would be timed");
    ensure!(args.packets >= 1_000, "--packets {}: too few to choose by", args.packets);
    let folder = Folder::new(args.folder.as_deref())?;
    let made = (args.packets, args.seed);
    let (mut captures, real) = columns::all(&folder, made, args.traces.as_deref(), args.rounds)?;
    let names: Vec<&str> = real.iter().map(|capture| &capture.name[..]).collect();
    let kinds = KINDS.map(|kind| kind.name).join(", ");
    let facts = [
        ("made up", format!("{kinds}; {} packets of most, seed {}", args.packets, args.seed)),
        ("real captures", if names.is_empty() { "none".to_owned() } else { names.join(", ") }),
        ("look-ups", format!("choices in turn, median of {} rounds", args.rounds)),
    ];
    let traces = if names.is_empty() { "" } else { " --traces DIR" };
    let (packets, seed, rounds) = (args.packets, args.seed, args.rounds);
    let command = format!("choice --packets {packets} --seed {seed} --rounds {rounds}{traces}");
    captures.extend(real);
    for capture in &captures {
        let has_looks = |column: &Column| column.looks.iter().any(|looks| !looks.is_empty());
        let measured = capture.columns.values().any(has_looks);
        ensure!(measured, "{}: no column to measure", capture.name);
    }
    let title = "Which form or codec to use when";
    let head = Head { name: "choice", title, command: &command, facts: &facts };
    page::write(&args.target, head, |report| {
        bytes_a_packet(report, &captures)?;
        look_ups(report, &captures)?;
        taken(report, &captures)?;
        shares(report, &captures)
    })
}

/// A table with a column for each choice.
fn sheet(name: &str, title: &str) -> Sheet {
    let choices: Vec<String> = choices().iter().map(ToString::to_string).collect();
    let headings = ["capture"].into_iter().chain(choices.iter().map(|name| &name[..]));
    Sheet::new(name, title, &headings.collect::<Vec<_>>())
}

/// Adds a row for each capture, and one that compares with `auto`. Returns the latter.
fn fill(sheet: &mut Sheet, captures: &[Indexed], rows: &[Vec<f64>]) -> Vec<f64> {
    for (capture, row) in captures.iter().zip(rows) {
        let cells = row.iter().map(|number| format!("{number:.2}"));
        sheet.row([capture.name.clone()].into_iter().chain(cells).collect());
    }
    let to_auto = |at| geometric_mean(rows.iter().map(|row: &Vec<f64>| row[at] / row[0]));
    let means: Vec<f64> = (0..choices().len()).map(to_auto).collect();
    let cells = means.iter().map(|mean| format!("{mean:.2}"));
    sheet.row(["times auto".to_owned()].into_iter().chain(cells).collect());
    sheet.remarks.push("Times auto: geometric mean of the captures.".to_owned());
    means
}

fn geometric_mean(numbers: impl Iterator<Item = f64>) -> f64 {
    let (sum, count) = numbers.fold((0.0, 0.0), |(sum, count), n| (sum + n.ln(), count + 1.0));
    f64::exp(sum / count)
}

fn bars(title: &str, means: &[f64]) -> Plot {
    let choices = choices().into_iter().map(|choice| choice.to_string());
    let bar = |(label, &value)| Bar { label, value, mark: None };
    Plot::Bars(Bars {
        title: title.to_owned(),
        unit: "times auto".to_owned(),
        mark: None,
        bars: choices.zip(means).map(bar).collect(),
    })
}

fn bytes_a_packet(report: &mut Report<'_>, captures: &[Indexed]) -> anyhow::Result<()> {
    let mut sheet = sheet("bytes", "Bytes of index a packet");
    let packets = |capture: &Indexed| capture.packets as f64;
    let row = |capture: &Indexed| {
        capture.bytes.iter().map(|&bytes| bytes as f64 / packets(capture)).collect()
    };
    let rows: Vec<Vec<f64>> = captures.iter().map(row).collect();
    let means = fill(&mut sheet, captures, &rows);
    sheet.remarks.push("Whole files, with what is the same for all choices.".to_owned());
    report.table(&sheet, Some(&bars("Bytes of the index", &means)))?;
    Ok(())
}

/// The mean of what look-ups take, in microseconds.
fn mean(looks: &[f64]) -> f64 {
    1e6 * looks.iter().sum::<f64>() / looks.len() as f64
}

fn look_ups(report: &mut Report<'_>, captures: &[Indexed]) -> anyhow::Result<()> {
    let looks = |capture: &Indexed, at: usize| -> Vec<f64> {
        let columns = capture.columns.values();
        columns.filter_map(|column| column.looks.get(at)).flatten().copied().collect()
    };
    let table = |of: &dyn Fn(Vec<f64>) -> f64| -> Vec<Vec<f64>> {
        let row =
            |capture: &Indexed| (0..choices().len()).map(|at| of(looks(capture, at))).collect();
        captures.iter().map(row).collect()
    };
    let mut half = sheet("look-ups", "Microseconds of a look-up: half of them took less");
    let middle = |looks| 1e6 * median(looks).unwrap_or(f64::NAN);
    let means = fill(&mut half, captures, &table(&middle));
    let all: usize = captures.iter().map(|capture| looks(capture, 0).len()).sum();
    half.remarks.push(format!(
        "{all} look-ups: of each column of each segment up to {VALUES_MAX} values, spread evenly \
         over those that occur; of columns of both ends, as the source. What is found is counted, \
         and has to be as much with all choices. Indexes stay open; checksums are checked in a \
         round before those that are timed."
    ));
    report.table(&half, Some(&bars("Time of a look-up", &means)))?;
    let mut sum = sheet("look-ups-mean", "Microseconds of a look-up: mean of all");
    fill(&mut sum, captures, &table(&|looks: Vec<f64>| mean(&looks)));
    report.table(&sum, None)?;
    Ok(())
}

fn taken(report: &mut Report<'_>, captures: &[Indexed]) -> anyhow::Result<()> {
    let headings = ["column", "forms", "auto", "smallest codec", "bytes", "largest codec", "bytes"];
    let mut sheet = Sheet::new("taken", "What auto takes, and bytes of all captures", &headings);
    let mut names: Vec<&String> = captures.iter().flat_map(|one| one.columns.keys()).collect();
    names.sort();
    names.dedup();
    for name in names {
        let mut bytes = vec![0; choices().len()];
        let mut forms: BTreeMap<&str, u64> = BTreeMap::new();
        for column in captures.iter().filter_map(|one| one.columns.get(name)) {
            bytes.iter_mut().zip(&column.bytes).for_each(|(sum, bytes)| *sum += bytes);
            column.forms.iter().for_each(|form| *forms.entry(form).or_default() += 1);
        }
        let forms: Vec<String> = forms.iter().map(|(form, n)| format!("{form} {n}")).collect();
        let mut row = vec![name.clone(), forms.join(", "), bytes[0].to_string()];
        let codecs = || bytes.iter().zip(choices()).skip(1);
        let (least, most) =
            (codecs().min_by_key(|pair| pair.0), codecs().max_by_key(|pair| pair.0));
        for (bytes, choice) in [least, most].into_iter().flatten() {
            row.extend([choice.to_string(), bytes.to_string()]);
        }
        sheet.row(row);
    }
    sheet.remarks.push("Forms, and how many segments have them.".to_owned());
    report.table(&sheet, None)?;
    Ok(())
}

fn shares(report: &mut Report<'_>, captures: &[Indexed]) -> anyhow::Result<()> {
    let columns: Vec<&Column> = captures.iter().flat_map(|one| one.columns.values()).collect();
    let mut sheet = Sheet::new("agreement", "Does auto choose well?", &["what", "value"]);
    for times in [1.0, 1.1, 1.5, 3.0] {
        let fits = |column: &&&Column| {
            let least = column.bytes.iter().min().copied().unwrap_or(0);
            column.bytes[0] as f64 <= times * least as f64
        };
        let share = columns.iter().filter(fits).count() as f64 / columns.len() as f64;
        let what = format!("columns within {times:.1} times the least bytes, percent");
        sheet.row(vec![what, format!("{:.1}", 100.0 * share)]);
    }
    // By the form that auto takes; columns of several segments may have several.
    let mut ratios: BTreeMap<String, [Vec<f64>; 2]> = BTreeMap::new();
    let mut slowest = (0.0, String::new());
    let named = captures.iter().flat_map(|one| one.columns.iter().map(move |of| (one, of)));
    for (capture, (name, column)) in named {
        let times: Vec<f64> = column.looks.iter().map(|looks| mean(looks)).collect();
        let fastest = times.iter().skip(1).copied().fold(f64::INFINITY, f64::min);
        let smallest = (1..times.len()).min_by_key(|&at| column.bytes[at]);
        let Some(smallest) = smallest.map(|at| times[0] / times[at]) else { continue };
        for group in ["all", &column.forms.join(" and ")] {
            let [to_fastest, to_smallest] = ratios.entry(group.to_owned()).or_default();
            to_fastest.push(times[0] / fastest);
            to_smallest.push(smallest);
        }
        if smallest > slowest.0 {
            slowest = (smallest, format!("{name} of {}", capture.name));
        }
    }
    for (group, ratios) in ratios {
        for (codec, ratios) in ["fastest", "smallest"].into_iter().zip(ratios) {
            let what = format!(
                "time of a look-up with auto to that with the {codec} codec, {group} ({} columns)",
                ratios.len()
            );
            sheet.row(vec![what, format!("{:.2}", geometric_mean(ratios.into_iter()))]);
        }
    }
    let (times, column) = slowest;
    sheet.remarks.push(format!("The most to the smallest codec: {times:.1} times, {column}."));
    sheet.remarks.push(format!(
        "Of {} columns of captures. Bytes are compared with those of all choices. Times are \
         geometric means of the columns, of the mean of each; each column has its own fastest and \
         its own smallest codec.",
        columns.len()
    ));
    report.table(&sheet, None)?;
    Ok(())
}
