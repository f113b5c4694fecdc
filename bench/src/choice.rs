//! `tapdex-bench choice`: which codec to use when, and whether `auto` agrees.

mod columns;
mod looks;
mod sweep;
mod table;

use std::path::PathBuf;

use anyhow::ensure;
use tapdex_bench::page::{self, Head, Target};
use tapdex_bitmap::{ALL_CODECS, Codec};
use tapdex_report::{Bar, Bars, Line as Curve, Lines, Plot, Report, Sheet};

use crate::archive::captures::Folder;
use columns::{Column, Group, Part};
use looks::place;
use sweep::{Shape, candidates};
use table::{Table, Tree};

/// What to measure.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Packets of most captures that are made up; one has four times as many, others fewer.
    #[arg(long, default_value_t = 1_000_000)]
    packets: u64,
    /// The first of four seeds: tables are found on two, and tried on the other two.
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

/// The share of columns that a table is to get right.
const WANTED: f64 = 0.95;
/// Share of the columns that another line of a table has to get right.
const SLACK: f64 = 0.005;
/// Questions of the tree that a table is compared with.
const DEPTH: usize = 6;

pub fn run(args: &Args) -> anyhow::Result<()> {
    args.target.check()?;
    ensure!(args.rounds > 0, "--rounds 0: nothing would be timed");
    ensure!(args.packets >= 1_000, "--packets {}: too few to choose by", args.packets);
    ensure!(args.seed < u64::MAX - 4, "--seed {}: there are to be four seeds", args.seed);
    let folder = Folder::new(args.folder.as_deref())?;
    let mut columns = Vec::new();
    for number in 0..4 {
        // Look-ups of one seed are enough.
        let (part, rounds) = match number {
            0 | 1 => (Part::Learnt, 0),
            2 => (Part::Tried, args.rounds),
            _ => (Part::Tried, 0),
        };
        let seed = args.seed + number;
        columns.extend(columns::made_up(&folder, args.packets, seed, part, rounds)?);
    }
    columns.extend(columns::real(&folder, args.traces.as_deref(), args.rounds)?);
    let mut names: Vec<&str> = Vec::new();
    for column in columns.iter().filter(|column| column.part == Part::Real) {
        if !names.contains(&&column.data[..]) {
            names.push(&column.data);
        }
    }
    let real = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
    let kinds: Vec<&str> = columns::KINDS.iter().map(|kind| kind.name).collect();
    let (first, last) = (args.seed, args.seed + 3);
    let facts = [
        ("made up", format!("{}; seeds {first} to {last}", kinds.join(", "))),
        ("packets", format!("{} of most captures", args.packets)),
        ("real captures", real),
        ("tables found on", format!("seeds {first} and {}, made up", first + 1)),
        ("tables tried on", format!("seeds {} and {last}, and the real captures", first + 2)),
        ("look-ups", format!("codecs in turn, median of {} rounds", args.rounds)),
    ];
    let traces = if names.is_empty() { "" } else { " --traces DIR" };
    let command = format!(
        "choice --packets {} --seed {} --rounds {}{traces}",
        args.packets, args.seed, args.rounds
    );
    let title = "Which codec to use when";
    let head = Head { name: "choice", title, command: &command, facts: &facts };
    page::write(&args.target, head, |report| {
        let goals = goals(&columns);
        agreement(report, &columns, &goals)?;
        tables(report, &columns, &goals)?;
        by_data(report, &columns, &goals)?;
        costs(report, &columns, &goals)?;
        look_ups(report, &columns)?;
        fields(report, &columns)?;
        crossings(report, args.seed)
    })
}

/// Says what is right for a column.
type Right = Box<dyn Fn(&Column) -> Codec>;

/// What a table is to say, and the table that says it best.
struct Goal {
    name: &'static str,
    /// The same in more words.
    words: &'static str,
    /// What is right for a column.
    right: Right,
    table: Table,
}

impl Goal {
    fn is_right(&self, column: &Column, said: Codec) -> bool {
        (self.right)(column) == said
    }
}

/// The goals, that of `auto` as it is first.
fn goals(columns: &[Column]) -> Vec<Goal> {
    let learnt: Vec<&Column> = of_part(columns, Part::Learnt);
    let slack = SLACK * learnt.len() as f64;
    let goal = |name, words, right: Right| {
        let cost = |column: &Column, codec| f64::from(right(column) != codec);
        Goal { name, words, table: Table::find(&learnt, slack, cost), right }
    };
    let of_some =
        |codecs: Vec<Codec>| Box::new(move |column: &Column| sweep::rule(&column.sizes, &codecs));
    let own = |column: &Column| match column.group() {
        Group::OfPacket => Codec::PlwahPlus,
        _ => sweep::rule(&column.sizes, &[Codec::Roaring, Codec::Masc]),
    };
    let three = vec![Codec::Roaring, Codec::Masc, Codec::PlwahPlus];
    let two = vec![Codec::Roaring, Codec::Masc];
    vec![
        goal("auto", "what auto takes today", Box::new(|column| column.auto)),
        goal(
            "whole columns",
            "what auto would take if it saw whole columns, not a sample",
            of_some(candidates()),
        ),
        goal("three codecs", "the same, of Roaring, MASC and PLWAH+ only", of_some(three)),
        goal("two codecs", "the same, of Roaring and MASC only", of_some(two)),
        goal("two, and PLWAH+", "the same, but PLWAH+ for TCP flags and length", Box::new(own)),
    ]
}

fn of_part(columns: &[Column], part: Part) -> Vec<&Column> {
    columns.iter().filter(|column| column.part == part).collect()
}

fn percent(share: f64) -> String {
    if share.is_finite() { format!("{:.1}", 100.0 * share) } else { "-".to_owned() }
}

/// The share of columns for which something holds, and the same by their bytes.
fn share(columns: &[&Column], holds: impl Fn(&Column) -> bool) -> (f64, f64) {
    let (mut count, mut bytes, mut all) = (0.0, 0.0, 0.0);
    for column in columns {
        let size = column.bytes(column.auto) as f64;
        all += size;
        if holds(column) {
            count += 1.0;
            bytes += size;
        }
    }
    (count / columns.len() as f64, bytes / all)
}

/// How many columns the tables get right.
fn agreement(report: &mut Report<'_>, columns: &[Column], goals: &[Goal]) -> anyhow::Result<()> {
    let mut sheet = Sheet::new(
        "agreement",
        "Percent of the columns for which a table says what is taken",
        &[
            "what is taken",
            "lines",
            "learnt",
            "tried",
            "of their bytes",
            "real",
            "of their bytes",
            "64 lines: tried",
            "real",
        ],
    );
    let [learnt, tried, real] =
        [Part::Learnt, Part::Tried, Part::Real].map(|part| of_part(columns, part));
    let mut bars = Vec::new();
    for goal in goals {
        let says = |column: &Column| goal.is_right(column, goal.table.codec(column));
        let [on_learnt, on_tried, on_real] =
            [&learnt, &tried, &real].map(|columns| share(columns, says));
        let mut row = vec![
            goal.name.to_owned(),
            goal.table.0.len().to_string(),
            percent(on_learnt.0),
            percent(on_tried.0),
            percent(on_tried.1),
            percent(on_real.0),
            percent(on_real.1),
        ];
        let tree = Tree::grow(&learnt, DEPTH, &goal.right);
        for columns in [&tried, &real] {
            let knows = |column: &Column| goal.is_right(column, tree.codec(column));
            row.push(percent(share(columns, knows).0));
        }
        sheet.row(row);
        let new: Vec<&Column> = tried.iter().chain(&real).copied().collect();
        let all = share(&new, says).0;
        let (label, value) = (goal.name.to_owned(), 100.0 * all);
        bars.push(Bar { label, value, mark: Some(100.0 * WANTED) });
        let verdict = if all >= WANTED { "met" } else { "missed" };
        sheet.remarks.push(format!(
            "{}, {}: {} of {} new columns, {} %; the goal of {} % is {verdict}.",
            goal.name,
            goal.words,
            new.iter().filter(|column| says(column)).count(),
            new.len(),
            percent(all),
            percent(WANTED),
        ));
    }
    let exact = sweep_rule_of_all();
    for (name, columns) in [("made up", &tried), ("real", &real)] {
        if columns.is_empty() {
            continue;
        }
        let same = share(columns, |column| column.auto == exact(column)).0;
        let close = share(columns, second_is_close).0;
        sheet.remarks.push(format!(
            "{name}: auto looks at a sample, and takes what the whole column would have it take \
             for {} % of the columns. For {} %, another codec would have been taken if sizes were \
             5 % different.",
            percent(same),
            percent(close),
        ));
    }
    sheet.remarks.push(format!(
        "64 lines: a tree of {DEPTH} questions about rows, values, rows a run, runs and rows a \
         value. Bytes are those that auto takes."
    ));
    let plot = Plot::Bars(Bars {
        title: "Columns that were not learnt from, for which a table says what is taken".to_owned(),
        unit: "percent".to_owned(),
        mark: Some("goal".to_owned()),
        bars,
    });
    report.table(&sheet, Some(&plot))?;
    Ok(())
}

/// The rule of auto, for a whole column.
fn sweep_rule_of_all() -> impl Fn(&Column) -> Codec {
    let codecs = candidates();
    move |column| sweep::rule(&column.sizes, &codecs)
}

/// Whether the choice hangs on 5 % of the size of what is taken.
fn second_is_close(column: &Column) -> bool {
    let bytes = |codec| column.bytes(codec) as f64;
    let taken = sweep::rule(&column.sizes, &candidates());
    let roaring = 0.7 * bytes(Codec::Roaring);
    let others = candidates().into_iter().filter(|&codec| codec != Codec::Roaring);
    match taken {
        Codec::Roaring => others.map(bytes).any(|size| size <= 1.05 * roaring),
        _ => {
            let size = bytes(taken);
            let rival = others.filter(|&codec| codec != taken).map(bytes).fold(roaring, f64::min);
            rival <= 1.05 * size
        }
    }
}

/// The tables themselves.
fn tables(report: &mut Report<'_>, columns: &[Column], goals: &[Goal]) -> anyhow::Result<()> {
    let mut sheet = Sheet::new(
        "tables",
        "The decision tables",
        &["what is taken", "rows and fields", "when", "codec", "new columns", "right, percent"],
    )
    .of_words();
    for goal in goals {
        for line in &goal.table.0 {
            let new = columns.iter().filter(|column| column.part != Part::Learnt);
            let new: Vec<&Column> = new.filter(|column| line.has(column)).collect();
            let right = share(&new, |column| goal.is_right(column, line.codec)).0;
            sheet.row(vec![
                goal.name.to_owned(),
                line.group.name().to_owned(),
                line.when(),
                line.codec.to_string(),
                new.len().to_string(),
                percent(right),
            ]);
        }
    }
    report.table(&sheet, None)?;
    Ok(())
}

/// How right the tables are on each capture.
fn by_data(report: &mut Report<'_>, columns: &[Column], goals: &[Goal]) -> anyhow::Result<()> {
    let mut headings = vec!["capture", "columns"];
    headings.extend(goals.iter().map(|goal| goal.name));
    let title = "Percent of the new columns of each capture for which a table says what is taken";
    let mut sheet = Sheet::new("captures", title, &headings);
    let mut known: Vec<&str> = Vec::new();
    for column in columns.iter().filter(|column| column.part != Part::Learnt) {
        if !known.contains(&&column.data[..]) {
            known.push(&column.data);
        }
    }
    for data in known {
        let new = columns.iter().filter(|column| column.part != Part::Learnt);
        let new: Vec<&Column> = new.filter(|column| column.data == data).collect();
        let mut row = vec![data.to_owned(), new.len().to_string()];
        for goal in goals {
            let says = |column: &Column| goal.is_right(column, goal.table.codec(column));
            row.push(percent(share(&new, says).0));
        }
        sheet.row(row);
    }
    report.table(&sheet, None)?;
    Ok(())
}

/// A way to take codecs.
type Way<'a> = (String, Box<dyn Fn(&Column) -> Codec + 'a>);

/// What it costs to go by a table, in bytes and in time.
fn costs(report: &mut Report<'_>, columns: &[Column], goals: &[Goal]) -> anyhow::Result<()> {
    let mut ways: Vec<Way<'_>> = Vec::new();
    for codec in [Codec::Roaring, Codec::Masc, Codec::PlwahPlus, Codec::Secompax] {
        ways.push((format!("always {codec}"), Box::new(move |_| codec)));
    }
    let smallest = |column: &Column| {
        let all = candidates().into_iter().min_by_key(|&codec| (column.bytes(codec), codec.id()));
        all.unwrap_or(Codec::Roaring)
    };
    ways.push(("always the smallest".to_owned(), Box::new(smallest)));
    for (number, goal) in goals.iter().enumerate() {
        ways.push((goal.name.to_owned(), Box::new(|column| (goal.right)(column))));
        // Goals may have the same table.
        if goals[..number].iter().all(|other| other.table != goal.table) {
            let table = &goal.table;
            let name = format!("table: {}", goal.name);
            ways.push((name, Box::new(|column| table.codec(column))));
        }
    }
    for Chosen { name, columns: chosen } in chosen(columns) {
        let title = match name {
            "real" => "real captures",
            _ => "made up, seeds that were not learnt from",
        };
        let mut sheet = Sheet::new(
            &format!("costs-{name}"),
            &format!("What codecs cost, {title}"),
            &["codecs", "bytes", "percent of Roaring", "count, ns", "visit, ns"],
        );
        let mut bars = Vec::new();
        let roaring: u64 = chosen.iter().map(|column| column.bytes(Codec::Roaring)).sum();
        for (way, codec) in &ways {
            let bytes: u64 = chosen.iter().map(|column| column.bytes(codec(column))).sum();
            let part = bytes as f64 / roaring as f64;
            let (count, visit) = mean_look(&chosen, codec);
            sheet.row(vec![
                way.clone(),
                bytes.to_string(),
                percent(part),
                format!("{count:.0}"),
                format!("{visit:.0}"),
            ]);
            bars.push(Bar { label: way.clone(), value: 100.0 * part, mark: None });
        }
        sheet.remarks.push(
            "Bytes are of bitmaps, without keys, offsets and row map. A look-up is of up to 8 \
             values of each column; the mean over columns."
                .to_owned(),
        );
        let unit = "percent of the bytes of Roaring".to_owned();
        let plot = Plot::Bars(Bars { title: sheet.title.clone(), unit, mark: None, bars });
        report.table(&sheet, Some(&plot))?;
    }
    Ok(())
}

/// Nanoseconds of a look-up, the mean over columns: to count, and to visit.
fn mean_look(columns: &[&Column], codec: impl Fn(&Column) -> Codec) -> (f64, f64) {
    let (mut count, mut visit, mut all) = (0.0, 0.0, 0.0);
    for column in columns {
        if let Some(looks) = &column.looks {
            let place = place(codec(column));
            count += looks.count[place];
            visit += looks.visit[place];
            all += 1.0;
        }
    }
    (count / all, visit / all)
}

/// How fast values are looked up, by codec and by the runs a value has.
fn look_ups(report: &mut Report<'_>, columns: &[Column]) -> anyhow::Result<()> {
    const EDGES: [f64; 7] = [1.0, 2.0, 8.0, 64.0, 512.0, 4_096.0, f64::INFINITY];
    let mut headings = vec!["runs a value", "columns"];
    headings.extend(ALL_CODECS.iter().map(|codec| codec.name()));
    let title = "Nanoseconds to check and count the rows of a value";
    let mut sheet = Sheet::new("look-ups", title, &headings);
    let mut curves: Vec<Curve> = ALL_CODECS
        .iter()
        .map(|codec| Curve { label: codec.to_string(), points_only: false, points: vec![] })
        .collect();
    for pair in EDGES.windows(2) {
        let timed = columns.iter().filter(|column| column.looks.is_some());
        let within: Vec<&Column> = timed
            .filter(|column| (pair[0]..pair[1]).contains(&table::Feature::RunsAValue.of(column)))
            .collect();
        if within.is_empty() {
            continue;
        }
        let name = match pair[1].is_finite() {
            true => format!("{} to {}", pair[0], pair[1]),
            false => format!("{} or more", pair[0]),
        };
        let mut row = vec![name, within.len().to_string()];
        for (codec, curve) in ALL_CODECS.into_iter().zip(&mut curves) {
            let ns = mean_look(&within, |_| codec).0;
            row.push(format!("{ns:.0}"));
            curve.points.push((pair[0], ns));
        }
        sheet.row(row);
    }
    sheet.remarks.push("Made up and real; the mean over columns.".to_owned());
    let plot = Plot::Lines(Lines {
        title: title.to_owned(),
        x: "runs a value, from".to_owned(),
        y: "ns".to_owned(),
        log_x: true,
        log_y: true,
        lines: curves,
    });
    report.table(&sheet, Some(&plot))?;
    Ok(())
}

/// New columns of a kind.
struct Chosen<'a> {
    /// Part of the names of files: real or made.
    name: &'static str,
    columns: Vec<&'a Column>,
}

/// The new columns, those of a kind together; kinds that there are none of left out.
fn chosen(columns: &[Column]) -> Vec<Chosen<'_>> {
    let of = |part| Chosen {
        name: if part == Part::Real { "real" } else { "made" },
        columns: of_part(columns, part),
    };
    let parts = [Part::Tried, Part::Real].into_iter();
    parts.map(of).filter(|chosen| !chosen.columns.is_empty()).collect()
}

/// The sizes of all fields in all codecs.
fn fields(report: &mut Report<'_>, columns: &[Column]) -> anyhow::Result<()> {
    for Chosen { name, columns: chosen } in chosen(columns) {
        let title = if name == "real" { "real captures" } else { "made up" };
        let mut headings = vec!["field", "columns", "runs a value", "auto takes", "auto"];
        headings.extend(ALL_CODECS.iter().map(|codec| codec.name()));
        let mut sheet = Sheet::new(
            &format!("fields-{name}"),
            &format!("Bytes a row of every field, {title}"),
            &headings,
        );
        let mut names: Vec<&str> = Vec::new();
        for column in &chosen {
            if !names.contains(&&column.field[..]) {
                names.push(&column.field);
            }
        }
        for name in names {
            let of_field: Vec<&Column> =
                chosen.iter().copied().filter(|column| column.field == name).collect();
            sheet.row(field_row(name, &of_field));
        }
        sheet.remarks.push("Of the segments that have the field.".to_owned());
        report.table(&sheet, None)?;
    }
    Ok(())
}

fn field_row(name: &str, columns: &[&Column]) -> Vec<String> {
    let sum = |of: &dyn Fn(&Column) -> u64| columns.iter().map(|column| of(column)).sum::<u64>();
    let mut taken: Vec<(Codec, usize)> = Vec::new();
    for codec in ALL_CODECS {
        let count = columns.iter().filter(|column| column.auto == codec).count();
        taken.extend((count > 0).then_some((codec, count)));
    }
    let taken: Vec<String> =
        taken.into_iter().map(|(codec, count)| format!("{codec} {count}")).collect();
    let runs = sum(&|column| column.runs) as f64 / sum(&|column| column.values) as f64;
    // Rows of a segment count once, however many columns the field has.
    let rows = sum(&|column| if column.digit == 0 { column.rows } else { 0 }) as f64;
    let mut row =
        vec![name.to_owned(), columns.len().to_string(), format!("{runs:.1}"), taken.join(", ")];
    row.push(format!("{:.4}", sum(&|column| column.bytes(column.auto)) as f64 / rows));
    for codec in ALL_CODECS {
        row.push(format!("{:.4}", sum(&|column| column.bytes(codec)) as f64 / rows));
    }
    row
}

/// Where codecs cross, on columns of runs and bursts of one length.
fn crossings(report: &mut Report<'_>, seed: u64) -> anyhow::Result<()> {
    let codecs = candidates();
    let shapes = [(Shape::Runs, "runs", "runs"), (Shape::Bursts, "bursts", "bursts of two values")];
    for (shape, name, words) in shapes {
        let lengths: Vec<String> =
            sweep::LENGTHS.iter().map(|length| format!("{length} rows")).collect();
        let mut headings = vec!["values"];
        headings.extend(lengths.iter().map(|length| &length[..]));
        let title = format!("The smallest codec, and its percent of Roaring, for {words}");
        let mut map = Sheet::new(&format!("map-{name}"), &title, &headings).of_words();
        for values in sweep::VALUES {
            let mut headings = vec!["rows"];
            headings.extend(codecs.iter().map(|codec| codec.name()));
            let title = format!("Bytes a row of {values} values in {words}");
            let mut sheet = Sheet::new(&format!("sweep-{name}-{values}"), &title, &headings);
            let mut curves: Vec<Curve> = codecs
                .iter()
                .map(|codec| Curve { label: codec.to_string(), points_only: false, points: vec![] })
                .collect();
            let mut cells = vec![values.to_string()];
            for length in sweep::LENGTHS {
                let sizes = sweep::sizes(shape, values, length, seed);
                let bytes = |codec| sizes.of_codec(codec).unwrap_or(0) as f64;
                let mut row = vec![length.to_string()];
                for (&codec, curve) in codecs.iter().zip(&mut curves) {
                    let a_row = bytes(codec) / f64::from(sweep::ROWS);
                    row.push(format!("{a_row:.5}"));
                    curve.points.push((f64::from(length), a_row));
                }
                sheet.row(row);
                let least = codecs
                    .iter()
                    .copied()
                    .min_by_key(|&codec| (sizes.of_codec(codec).unwrap_or(u64::MAX), codec.id()));
                let least = least.unwrap_or(Codec::Roaring);
                let part = 100.0 * bytes(least) / bytes(Codec::Roaring);
                let is_taken = sweep::rule(&sizes, &codecs) == least;
                let mark = if is_taken && least != Codec::Roaring { "**" } else { "" };
                cells.push(format!("{mark}{least}{mark} {part:.0}"));
            }
            map.row(cells);
            // Three of them show what there is to see.
            if [16, 256, 4_096].contains(&values) {
                let plot = Plot::Lines(Lines {
                    title,
                    x: format!("rows of the {name}, on average"),
                    y: "bytes a row".to_owned(),
                    log_x: true,
                    log_y: true,
                    lines: curves,
                });
                report.table(&sheet, Some(&plot))?;
            }
        }
        map.remarks.push(format!(
            "Columns of {} rows. Bold: three tenths or more below Roaring, so that auto's rule \
             takes it.",
            sweep::ROWS
        ));
        report.table(&map, None)?;
    }
    Ok(())
}
