//! `tapdex-bench beside`: two builds of tapdex in turn, on the same captures and questions.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, ensure};
use tapdex_bench::page::{self, Head, Target};
use tapdex_report::Sheet;

use crate::archive::captures::{self, Capture, Folder, Scratch, Setting};
use crate::archive::census::{Question, questions};
use crate::archive::indexing::{Job, summary};
use crate::archive::process;
use crate::trust::{bytes_below, cells, timed};

/// What to measure.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Packets of each of the two made-up captures: short frames, and frames of all lengths.
    #[arg(long, default_value_t = 4_000_000)]
    packets: u64,
    /// Timed rounds of indexing; the median counts.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Timed rounds of every search.
    #[arg(long, default_value_t = 15)]
    search_rounds: usize,
    /// The other build of tapdex.
    #[arg(long, value_name = "FILE")]
    before: PathBuf,
    /// The tapdex-bench of that build, to compare searches inside a process, too.
    #[arg(long, value_name = "FILE")]
    bench_before: Option<PathBuf>,
    /// A folder that has real captures under `large/*.zst`, to compare sizes of indexes of; without
    /// it, the variable TAPDEX_TRACES names it.
    #[arg(long, value_name = "DIR")]
    traces: Option<PathBuf>,
    #[command(flatten)]
    setting: Setting,
    #[command(flatten)]
    target: Target,
}

/// The commands that are asked, with their words before the filter.
const COMMANDS: [(&str, &[&str]); 6] = [
    ("search --count", &["search", "--count"]),
    ("search -c 5", &["search", "-c", "5"]),
    ("search", &["search"]),
    ("extract", &["extract", "-F", "pcap", "-w", "/dev/null"]),
    ("top src", &["top", "src"]),
    ("hist", &["hist", "--bins", "60"]),
];

/// Commands that print a line a packet are left out for questions that find more packets.
const LINES_MAX: u64 = 100_000;

/// Packets of the flood, at most: each is a flow.
const FLOOD_MAX: u64 = 4_000_000;

/// Names of the builds, older first.
const NAMES: [&str; 2] = ["before", "now"];

pub fn run(args: &Args) -> anyhow::Result<()> {
    args.target.check()?;
    let Setting { seed, tapdex, folder } = &args.setting;
    ensure!(args.rounds > 0 && args.search_rounds > 0, "no rounds: nothing would be timed");
    ensure!(args.packets >= 1_000, "--packets {}: too few to find anything", args.packets);
    let programs = [args.before.as_path(), tapdex.as_path()];
    for program in programs {
        ensure!(program.is_file(), "there is no {}", program.display());
    }
    let folder = Folder::new(folder.as_deref())?;
    let captures = [
        captures::made(&folder, "short", Some(64), args.packets, *seed)?,
        captures::made(&folder, "mixed", None, args.packets, *seed)?,
    ];
    let mut indexed = captures.to_vec();
    indexed.push(captures::flood(&folder, args.packets.min(FLOOD_MAX), *seed)?);
    indexed.extend(captures::traces(&folder, args.traces.as_deref())?);
    let mut sheets = vec![indexing(&folder, programs, &indexed, args.rounds)?];
    let benches = match &args.bench_before {
        None => None,
        Some(before) => Some([before.clone(), std::env::current_exe()?]),
    };
    for capture in &captures {
        let archives = programs.map(|_| folder.scratch());
        for (program, archive) in programs.iter().zip(&archives) {
            index(program, &capture.path, archive.path(), "0")?;
        }
        let questions = questions(capture)?;
        if let Some(benches) = &benches {
            sheets.push(in_process(benches, &archives, capture, &questions, args.search_rounds)?);
        }
        sheets.push(searching(programs, &archives, capture, &questions, args.search_rounds)?);
    }
    let command = format!(
        "beside --packets {} --rounds {} --search-rounds {} --seed {seed} --before FILE",
        args.packets, args.rounds, args.search_rounds
    );
    let version = |program: &Path| {
        page::first_line(&program.to_string_lossy(), &["--version"]).unwrap_or_default()
    };
    let facts = [
        ("captures", format!("made up from seed {seed}, {} packets each", args.packets)),
        ("before", version(programs[0])),
        ("now", version(programs[1])),
        ("rounds", "builds in turn, one round to warm up; medians, fastest, slowest".to_owned()),
        ("checked", "both builds print the same".to_owned()),
    ];
    let title = "Two builds of tapdex";
    let head = Head { name: "beside", title, command: &command, facts: &facts };
    page::write(&args.target, head, |report| {
        for sheet in &sheets {
            report.table(sheet, None)?;
        }
        Ok(())
    })
}

fn index(program: &Path, capture: &Path, target: &Path, threads: &str) -> anyhow::Result<()> {
    let mut command = Command::new(program);
    command.args(["index", "--quiet", "--device", "cpu", "--threads", threads, "-o"]);
    process::run(command.arg(target).arg(capture)).map(drop)
}

/// How fast captures are indexed on one thread.
fn indexing(
    folder: &Folder,
    programs: [&Path; 2],
    captures: &[Capture],
    rounds: usize,
) -> anyhow::Result<Sheet> {
    let headings = [
        "capture, build",
        "seconds",
        "from",
        "to",
        "CPU seconds",
        "M packets/s",
        "packets/s to before",
        "index, bytes a packet",
    ];
    let title = "`tapdex index --threads 1`, as a process";
    let mut sheet = Sheet::new("indexing", title, &headings);
    for capture in captures {
        eprintln!("indexing {}", capture.name);
        let mut sizes = [0; 2];
        let mut jobs: Vec<Job<'_, Scratch>> = Vec::new();
        for (program, size) in programs.iter().zip(&mut sizes) {
            let call = move || {
                let scratch = folder.scratch();
                index(program, &capture.path, scratch.path(), "1")?;
                *size = bytes_below(scratch.path())?;
                Ok(scratch)
            };
            jobs.push(Job { rounds: 0..rounds + 1, call: Box::new(call) });
        }
        let times = timed(&mut jobs)?;
        drop(jobs);
        let packets = capture.packets as f64;
        for ((name, time), size) in NAMES.iter().zip(&times).zip(sizes) {
            let mut row = vec![format!("{}, {name}", capture.name)];
            row.extend(cells(time.wall, 1.0));
            row.push(format!("{:.3}", time.cpu.median));
            row.push(format!("{:.3}", packets / time.wall.median / 1e6));
            row.push(format!("{:.3}", times[0].wall.median / time.wall.median));
            row.push(format!("{:.3}", size as f64 / packets));
            sheet.row(row);
        }
    }
    Ok(sheet)
}

/// What a command prints about a filter.
fn ask(program: &Path, archive: &Path, words: &[&str], filter: &str) -> anyhow::Result<Vec<u8>> {
    let mut command = Command::new(program);
    let command = command.args(words).arg("-r").arg(archive).arg(filter);
    let output = command.output()?;
    // Nothing found is an answer.
    ensure!(
        matches!(output.status.code(), Some(0 | 1)),
        "{command:?}: {}: {}",
        output.status,
        String::from_utf8_lossy(&output.stderr).trim_end()
    );
    Ok(output.stdout)
}

/// The headings of a table of searches.
fn headings(what: &'static str) -> [&'static str; 9] {
    let times = ["before, ms", "from", "to", "now, ms", "from", "to"];
    let [a, b, c, d, e, f] = times;
    [what, "packets", a, b, c, d, e, f, "speed to before"]
}

/// How long it takes to count what matches, without starting a process. In each round, each build
/// asks several times, and the median counts.
fn in_process(
    benches: &[PathBuf; 2],
    archives: &[Scratch; 2],
    capture: &Capture,
    questions: &[Question],
    rounds: usize,
) -> anyhow::Result<Sheet> {
    let headings = headings("question");
    let title = format!("Counting in {}, inside a process", capture.name);
    let mut sheet = Sheet::new(&format!("in-process-{}", capture.name), &title, &headings);
    for question in questions {
        eprintln!("in process: {}", question.what);
        let mut found = None;
        let mut times = [Vec::new(), Vec::new()];
        for _ in 0..rounds {
            for ((bench, archive), times) in benches.iter().zip(archives).zip(&mut times) {
                let mut command = Command::new(bench);
                let output =
                    process::run(command.arg("ask").arg(archive.path()).arg(&question.pcap))?;
                let text = String::from_utf8(output.stdout)?;
                let (count, seconds) = text.trim().split_once(' ').context("no answer")?;
                let expected = found.get_or_insert_with(|| count.to_owned());
                ensure!(count == expected, "{question:?}: the builds differ");
                times.push(seconds.parse()?);
            }
        }
        let times = times.map(summary);
        let mut row = vec![question.what.to_owned(), found.unwrap_or_default()];
        row.extend(times.iter().flat_map(|time| cells(*time, 1e3)));
        row.push(format!("{:.3}", times[0].median / times[1].median));
        sheet.row(row);
    }
    Ok(sheet)
}

/// How long searches take.
fn searching(
    programs: [&Path; 2],
    archives: &[Scratch; 2],
    capture: &Capture,
    questions: &[Question],
    rounds: usize,
) -> anyhow::Result<Sheet> {
    let headings = headings("command, question");
    let title = format!("Searching {}, as a process", capture.name);
    let mut sheet = Sheet::new(&format!("searching-{}", capture.name), &title, &headings);
    for question in questions {
        let filter = &question.pcap;
        let count = ask(programs[0], archives[0].path(), COMMANDS[0].1, filter)?;
        let packets = process::number_after(&count, None)?;
        for (what, words) in COMMANDS {
            if packets > LINES_MAX && matches!(what, "search" | "extract") {
                continue;
            }
            eprintln!("{what}: {}", question.what);
            let expected = &ask(programs[0], archives[0].path(), words, filter)?;
            let mut jobs: Vec<Job<'_, ()>> = Vec::new();
            for (program, archive) in programs.iter().zip(archives) {
                let call = move || {
                    let printed = ask(program, archive.path(), words, filter)?;
                    ensure!(printed == *expected, "{what} {filter}: the builds differ");
                    Ok(())
                };
                jobs.push(Job { rounds: 0..rounds + 1, call: Box::new(call) });
            }
            let times = timed(&mut jobs)?;
            let mut row = vec![format!("{what}, {}", question.what), packets.to_string()];
            row.extend(times.iter().flat_map(|time| cells(time.wall, 1e3)));
            row.push(format!("{:.3}", times[0].wall.median / times[1].wall.median));
            sheet.row(row);
        }
    }
    Ok(sheet)
}
