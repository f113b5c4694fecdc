//! How fast filters are answered.

use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{anyhow, ensure};
use tapdex_bench::Seconds;
use tapdex_engine::archive::{Archive, CodecChoice};
use tapdex_engine::query::filter::{Filter, Syntax};
use tapdex_engine::query::{Query, Search};
use tapdex_engine::time::TimeRange;

use super::captures::{Capture, Folder, Pair};
use super::census::{Question, questions};
use super::indexing::{Job, index_into, take_turns};
use super::process;

/// Where the archive of a capture is.
pub fn archive_path(folder: &Folder, capture: &Capture) -> PathBuf {
    folder.path().join(format!("{}.archive", capture.name))
}

/// The program, a capture and its archive.
pub struct Side<'a> {
    tapdex: &'a Path,
    capture: &'a Capture,
    archive: PathBuf,
    /// What was found first, which all have to find.
    pub found: Cell<Option<u64>>,
}

impl<'a> Side<'a> {
    /// Indexes the capture.
    pub fn new(folder: &Folder, tapdex: &'a Path, capture: &'a Capture) -> anyhow::Result<Self> {
        let archive = archive_path(folder, capture);
        index_into(&archive, capture, CodecChoice::Auto, 0)?;
        Ok(Self { tapdex, capture, archive, found: Cell::new(None) })
    }

    /// Whether somebody found as many packets as those before.
    pub fn check(&self, who: &str, question: &Question, found: u64) -> anyhow::Result<()> {
        let expected = self.found.get().unwrap_or(found);
        self.found.set(Some(expected));
        ensure!(
            found == expected,
            "{}: {who} finds {found} packets, another {expected}: {question:?}",
            self.capture.name
        );
        Ok(())
    }

    /// Counts in this process, everything from scratch.
    pub fn count_here(&self, question: &Question) -> anyhow::Result<()> {
        let query = query(question)?;
        self.count_again(&self.open()?.search(&query)?, question)
    }

    /// Opens the archive.
    pub fn open(&self) -> anyhow::Result<Archive> {
        Ok(Archive::open(&self.archive)?)
    }

    /// Counts in this process, where the archive is open and the filter read.
    pub fn count_again(&self, search: &Search<'_>, question: &Question) -> anyhow::Result<()> {
        let answers = search.count()?;
        ensure!(answers.is_complete(), "{question:?}: {:?}", answers.gaps);
        self.check("tapdex, in process", question, answers.count())
    }

    fn tapdex(&self, words: &[&str], question: &Question) -> Command {
        let mut command = Command::new(self.tapdex);
        command.args(words).arg("-r").arg(&self.archive).arg(&question.pcap);
        command
    }

    /// Counts with a process.
    pub fn count(&self, question: &Question) -> anyhow::Result<()> {
        let output = process::run(&mut self.tapdex(&["search", "--count"], question))?;
        let found = process::number_after(&output.stdout, None)?;
        self.check("tapdex search --count", question, found)
    }

    /// Writes packets to nowhere with a process.
    pub fn extract(&self, question: &Question) -> anyhow::Result<()> {
        let words = ["extract", "-F", "pcap", "-w", "/dev/null"];
        let output = process::run(&mut self.tapdex(&words, question))?;
        let found = process::number_after(&output.stderr, Some("matched"))?;
        self.check("tapdex extract", question, found)
    }

    fn tcpdump(&self, words: &[&str], question: &Question) -> Command {
        let mut command = Command::new("tcpdump");
        command.args(["-n", "-r"]).arg(&self.capture.path).args(words).arg(&question.pcap);
        command
    }

    /// Counts with tcpdump.
    pub fn tcpdump_count(&self, question: &Question) -> anyhow::Result<()> {
        let output = process::run(&mut self.tcpdump(&["--count"], question))?;
        let found = process::number_after(&output.stdout, None)?;
        self.check("tcpdump --count", question, found)
    }

    /// It does not say how many packets it writes.
    pub fn tcpdump_write(&self, question: &Question) -> anyhow::Result<()> {
        process::run(&mut self.tcpdump(&["-w", "/dev/null"], question)).map(drop)
    }

    /// Counts with tshark.
    pub fn tshark(&self, question: &Question) -> anyhow::Result<()> {
        let mut command = Command::new("tshark");
        // Ports of whole datagrams would otherwise be found in their last fragments.
        command.args(["-n", "-o", "ip.defragment:FALSE", "-T", "fields", "-e", "frame.number"]);
        command.arg("-r").arg(&self.capture.path).arg("-Y").arg(&question.display);
        let output = process::run(&mut command)?;
        let found = output.stdout.iter().filter(|byte| **byte == b'\n').count();
        self.check("tshark", question, found as u64)
    }
}

/// The filter of a question, read.
pub fn query(question: &Question) -> anyhow::Result<Query> {
    let filter = Filter::parse_as(Syntax::Pcap, &question.pcap, 0)?;
    Ok(Query::new(filter, TimeRange::ALL))
}

/// What a filter found, and how long everybody took.
struct Line {
    question: Question,
    found: u64,
    found_tenth: u64,
    times: Vec<Seconds>,
}

/// Prints how fast filters are answered from a pair of captures; without rounds, tshark is left
/// out.
pub fn contest(
    folder: &Folder,
    pair: &Pair,
    tapdex: &Path,
    rounds: usize,
    tshark_rounds: usize,
) -> anyhow::Result<()> {
    let whole = Side::new(folder, tapdex, &pair.whole)?;
    let tenth = Side::new(folder, tapdex, &pair.tenth)?;
    let mut lines = Vec::new();
    for question in questions(&pair.whole)? {
        eprintln!("searching {}: {}", pair.whole.name, question.pcap);
        whole.found.set(None);
        tenth.found.set(None);
        let (whole, tenth, asked) = (&whole, &tenth, &question);
        let all = 0..rounds + 1;
        let mut jobs: Vec<Job<'_, ()>> = vec![
            Job { rounds: all.clone(), call: Box::new(|| whole.count_here(asked)) },
            Job { rounds: all.clone(), call: Box::new(|| whole.count(asked)) },
            Job { rounds: all.clone(), call: Box::new(|| whole.tcpdump_count(asked)) },
            Job { rounds: all.clone(), call: Box::new(|| whole.extract(asked)) },
            Job { rounds: all.clone(), call: Box::new(|| whole.tcpdump_write(asked)) },
        ];
        if tshark_rounds > 0 {
            jobs.push(Job { rounds: all, call: Box::new(|| tenth.count(asked)) });
            let rounds = 1..tshark_rounds + 1;
            jobs.push(Job { rounds, call: Box::new(|| tenth.tshark(asked)) });
        }
        let times = take_turns(&mut jobs)?;
        drop(jobs);
        let found = whole.found.get().ok_or_else(|| anyhow!("nobody answered {question:?}"))?;
        let found_tenth = tenth.found.get().unwrap_or(0);
        lines.push(Line { question, found, found_tenth, times });
    }
    print(pair, &lines, tshark_rounds);
    Ok(())
}

fn milliseconds(time: Seconds) -> String {
    let milliseconds = 1e3 * time.median;
    let decimals = if milliseconds < 100.0 { 2 } else { 0 };
    format!("{milliseconds:.decimals$}")
}

fn times(slow: Seconds, fast: Seconds) -> String {
    let ratio = slow.median / fast.median;
    let decimals = if ratio < 10.0 { 1 } else { 0 };
    format!("{ratio:.decimals$}")
}

fn print(pair: &Pair, lines: &[Line], tshark_rounds: usize) {
    let Capture { name, packets, .. } = &pair.whole;
    println!("\n### {name}: {packets} packets\n");
    println!("Everybody finds the same number of packets, which is checked. Milliseconds:");
    println!("*in process* opens the archive, reads the filter and counts; the others are whole");
    println!("processes. Those that write, write a pcap file to /dev/null.\n");
    println!(
        "| filter | packets | percent | in process | `search --count` | `tcpdump --count` | times \
         as fast | `extract` | `tcpdump -w` | times as fast |"
    );
    println!("|---|{}", "---:|".repeat(9));
    for line in lines {
        let [here, count, tcpdump, extract, write] = [0, 1, 2, 3, 4].map(|at| line.times[at]);
        println!(
            "| {}: `{}` | {} | {:.4} | {} | {} | {} | {} | {} | {} | {} |",
            line.question.what,
            // A bar ends a cell, also in code.
            line.question.pcap.replace('|', "\\|"),
            line.found,
            100.0 * line.found as f64 / *packets as f64,
            milliseconds(here),
            milliseconds(count),
            milliseconds(tcpdump),
            times(tcpdump, count),
            milliseconds(extract),
            milliseconds(write),
            times(write, extract)
        );
    }
    if tshark_rounds == 0 {
        return;
    }
    let Capture { name, packets, .. } = &pair.tenth;
    println!("\nOn {name}, {packets} packets, `tshark -Y` with a display filter that finds the");
    println!("same packets, {tshark_rounds} of the rounds:\n");
    println!("| filter | display filter | packets | `search --count` | tshark | times as fast |");
    println!("|---|---|{}", "---:|".repeat(4));
    for line in lines {
        let (count, tshark) = (line.times[5], line.times[6]);
        println!(
            "| {} | `{}` | {} | {} | {} | {} |",
            line.question.what,
            line.question.display.replace('|', "\\|"),
            line.found_tenth,
            milliseconds(count),
            milliseconds(tshark),
            times(tshark, count)
        );
    }
}
