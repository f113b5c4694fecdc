//! `tapdex-bench trust`: what checksums of the packets cost, and long lists of addresses, beside an
//! older tapdex and tcpdump.

mod lists;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, ensure};
use tapdex_bench::Seconds;
use tapdex_bench::page::{self, Head, Target};
use tapdex_report::Sheet;

use crate::archive::captures::{self, Capture, Folder, Scratch, Setting};
use crate::archive::census::{Question, questions};
use crate::archive::indexing::{Job, in_turns, summary};
use crate::archive::process;

/// What to measure.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Packets of each of the three made-up captures: short frames, frames of all lengths, and
    /// short frames of which some are cut off.
    #[arg(long, default_value_t = 4_000_000)]
    packets: u64,
    /// Timed rounds of indexing; the median counts.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Timed rounds of every search.
    #[arg(long, default_value_t = 15)]
    search_rounds: usize,
    /// Timed rounds of every list.
    #[arg(long, default_value_t = 5)]
    list_rounds: usize,
    /// An older tapdex that takes part.
    #[arg(long, value_name = "FILE")]
    before: Option<PathBuf>,
    #[command(flatten)]
    setting: Setting,
    #[command(flatten)]
    target: Target,
}

/// The questions that are asked; the first one's packets are also written.
const ASKED: [&str; 4] = ["a rare host", "an absent host", "a port", "no column knows it"];

/// A program, and whether it keeps checksums.
struct Contestant<'a> {
    name: &'static str,
    program: &'a Path,
    has_sums: bool,
}

impl Contestant<'_> {
    /// Indexes a capture, on as many threads; 0 are one for each core.
    fn index(&self, capture: &Path, target: &Path, threads: u32) -> anyhow::Result<()> {
        let mut command = Command::new(self.program);
        command.args(["index", "--quiet", "--threads", &threads.to_string(), "-o"]);
        command.arg(target);
        if self.has_sums {
            command.arg("--sums");
        }
        process::run(command.arg(capture)).map(drop)
    }
}

/// How long a process took, and how much of that the processor worked for it.
#[derive(Debug, Clone, Copy)]
pub struct Times {
    pub wall: Seconds,
    pub cpu: Seconds,
}

/// Lets processes take turns. All have to take part in the same rounds.
pub fn timed<T>(jobs: &mut [Job<'_, T>]) -> anyhow::Result<Vec<Times>> {
    let count = jobs.len();
    let mut cpu = Vec::new();
    let walls = in_turns(jobs, |call| {
        let (before, start) = (process::cpu_of_children()?, Instant::now());
        let product = call()?;
        let wall = start.elapsed().as_secs_f64();
        cpu.push(process::cpu_of_children()? - before);
        // What a process has written is removed off the clock.
        drop(product);
        Ok(wall)
    })?;
    // The first round warms caches.
    let of = |job| summary(cpu.iter().skip(count + job).step_by(count).copied().collect());
    Ok(walls.into_iter().enumerate().map(|(job, wall)| Times { wall, cpu: of(job) }).collect())
}

/// Median and spread, in parts of a second.
pub fn cells(time: Seconds, parts: f64) -> [String; 3] {
    [time.median, time.min, time.max].map(|seconds| format!("{:.3}", parts * seconds))
}

pub fn run(args: &Args) -> anyhow::Result<()> {
    args.target.check()?;
    let Setting { seed, tapdex, folder } = &args.setting;
    let rounds = [args.rounds, args.search_rounds, args.list_rounds];
    ensure!(rounds.iter().all(|&rounds| rounds > 0), "no rounds: nothing would be timed");
    ensure!(args.packets >= 1_000, "--packets {}: too few to find anything", args.packets);
    process::ensure_programs(tapdex, false)?;
    let folder = Folder::new(folder.as_deref())?;
    let before = args.before.as_deref();
    let older = before.map(|program| Contestant { name: "older", program, has_sums: false });
    let mut contestants: Vec<Contestant<'_>> = older.into_iter().collect();
    for (name, has_sums) in [("without sums", false), ("with sums", true)] {
        contestants.push(Contestant { name, program: tapdex, has_sums });
    }

    let short = captures::made(&folder, "short", Some(64), args.packets, *seed)?;
    let mixed = captures::made(&folder, "mixed", None, args.packets, *seed)?;
    let indexing = indexing(&folder, &contestants, &[&short, &mixed], args.rounds)?;
    let searching = searching(&folder, &contestants, &mixed, args.search_rounds)?;
    let lists = lists::measure(&folder, tapdex, (args.packets, *seed), args.list_rounds)?;

    let [rounds, search_rounds, list_rounds] = rounds;
    let command = format!(
        "trust --packets {} --rounds {rounds} --search-rounds {search_rounds} --list-rounds \
         {list_rounds} --seed {seed}{}",
        args.packets,
        if before.is_some() { " --before FILE" } else { "" }
    );
    let version = |program: &Path| page::first_line(&program.to_string_lossy(), &["--version"]);
    let facts = [
        ("captures", format!("made up from seed {seed}, {} packets each", args.packets)),
        ("older", before.map_or("none".to_owned(), |path| version(path).unwrap_or_default())),
        ("tcpdump", page::first_line("tcpdump", &["--version"]).unwrap_or_default()),
        (
            "rounds",
            format!(
                "contestants in turn, one round to warm up; indexing {rounds}, searching \
                 {search_rounds}, lists {list_rounds}; medians, and the fastest and slowest round"
            ),
        ),
        (
            "checked",
            "every count of a filter against tcpdump's, that of a list against one by hand"
                .to_owned(),
        ),
    ];
    let title = "Checksums of the packets, and long lists of addresses";
    let head = Head { name: "trust", title, command: &command, facts: &facts };
    page::write(&args.target, head, |report| {
        for sheet in [&indexing, &searching, &lists] {
            report.table(sheet, None)?;
        }
        Ok(())
    })
}

/// Bytes of all files in a folder and those below it.
pub fn bytes_below(folder: &Path) -> anyhow::Result<u64> {
    let mut bytes = 0;
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let is_folder = entry.file_type()?.is_dir();
        bytes += if is_folder { bytes_below(&entry.path())? } else { entry.metadata()?.len() };
    }
    Ok(bytes)
}

/// How fast captures are indexed on one thread.
fn indexing(
    folder: &Folder,
    contestants: &[Contestant<'_>],
    captures: &[&Capture],
    rounds: usize,
) -> anyhow::Result<Sheet> {
    let first = contestants.first().map_or("", |contestant| contestant.name);
    let headings = [
        "capture, who",
        "bytes a frame",
        "seconds",
        "from",
        "to",
        "CPU seconds",
        "M packets/s",
        &format!("packets/s to those of {first}"),
        "index, bytes a packet",
    ];
    let title = "`tapdex index --threads 1`, as a process; the index is on the disk at the end";
    let mut sheet = Sheet::new("indexing", title, &headings);
    for capture in captures {
        eprintln!("indexing {}", capture.name);
        let mut sizes = vec![0; contestants.len()];
        let mut jobs: Vec<Job<'_, Scratch>> = Vec::new();
        for (contestant, size) in contestants.iter().zip(&mut sizes) {
            let call = move || {
                let scratch = folder.scratch();
                contestant.index(&capture.path, scratch.path(), 1)?;
                *size = bytes_below(scratch.path())?;
                Ok(scratch)
            };
            jobs.push(Job { rounds: 0..rounds + 1, call: Box::new(call) });
        }
        let times = timed(&mut jobs)?;
        drop(jobs);
        let packets = capture.packets as f64;
        for ((contestant, time), size) in contestants.iter().zip(&times).zip(sizes) {
            let mut row = vec![
                format!("{}, {}", capture.name, contestant.name),
                format!("{:.0}", capture.wire_bytes as f64 / packets),
            ];
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

/// Asks an archive; says how many packets were found.
fn ask(program: &Path, archive: &Path, writes: bool, filter: &str) -> anyhow::Result<u64> {
    let mut command = Command::new(program);
    let words: &[&str] = match writes {
        true => &["extract", "-F", "pcap", "-w", "/dev/null"],
        false => &["search", "--count"],
    };
    let output = process::run(command.args(words).arg("-r").arg(archive).arg(filter))?;
    match writes {
        true => process::number_after(&output.stderr, Some("matched")),
        false => process::number_after(&output.stdout, None),
    }
}

/// How long searches take.
fn searching(
    folder: &Folder,
    contestants: &[Contestant<'_>],
    capture: &Capture,
    rounds: usize,
) -> anyhow::Result<Sheet> {
    let archives: Vec<Scratch> = contestants.iter().map(|_| folder.scratch()).collect();
    for (contestant, archive) in contestants.iter().zip(&archives) {
        contestant.index(&capture.path, archive.path(), 0)?;
    }
    let first = contestants.first().map_or("", |contestant| contestant.name);
    let headings = [
        "command, who",
        "packets found",
        "ms",
        "from",
        "to",
        "CPU ms",
        "from",
        "to",
        &format!("ms to those of {first}"),
    ];
    let title = format!("Searching {}, as a process", capture.name);
    let mut sheet = Sheet::new("searching", &title, &headings);
    let all = questions(capture)?;
    let find = |what| all.iter().find(|question| question.what == what).context("no question");
    let asked: Vec<&Question> = ASKED.into_iter().map(find).collect::<anyhow::Result<_>>()?;
    let counts = asked.iter().map(|question| (false, &question.pcap));
    for (writes, filter) in counts.chain(asked.first().map(|question| (true, &question.pcap))) {
        let what = if writes { "extract" } else { "search --count" };
        eprintln!("{what} {filter}");
        let mut tcpdump = Command::new("tcpdump");
        tcpdump.args(["-n", "--count", "-r"]).arg(&capture.path).arg(filter);
        let expected = process::number_after(&process::run(&mut tcpdump)?.stdout, None)?;
        let mut jobs: Vec<Job<'_, ()>> = Vec::new();
        for (contestant, archive) in contestants.iter().zip(&archives) {
            let call = move || {
                let found = ask(contestant.program, archive.path(), writes, filter)?;
                let name = contestant.name;
                ensure!(found == expected, "{filter}: {name} finds {found}, tcpdump {expected}");
                Ok(())
            };
            jobs.push(Job { rounds: 0..rounds + 1, call: Box::new(call) });
        }
        let times = timed(&mut jobs)?;
        for (contestant, time) in contestants.iter().zip(&times) {
            let who = format!("`{what} '{filter}'`, {}", contestant.name);
            let mut row = vec![who, expected.to_string()];
            row.extend(cells(time.wall, 1e3).into_iter().chain(cells(time.cpu, 1e3)));
            row.push(format!("{:.3}", time.wall.median / times[0].wall.median));
            sheet.row(row);
        }
    }
    Ok(sheet)
}
