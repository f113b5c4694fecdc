//! Pages of results: what was measured, with which command and where, then tables and plots.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::ensure;
use tapdex_report::{Report, Sheet};

/// Where the files go.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct Target {
    /// Folder for tables.md, and for a CSV and perhaps an SVG of each table; without it,
    /// docs/results/NAME, where NAME is the subcommand.
    #[arg(long, value_name = "FOLDER")]
    pub out: Option<PathBuf>,
}

/// Where results of the repository are.
const RESULTS: &str = "docs/results";

impl Target {
    /// Fails if there is no place for the files: to be asked before hours of work.
    pub fn check(&self) -> anyhow::Result<()> {
        ensure!(
            self.out.is_some() || Path::new(RESULTS).is_dir(),
            "there is no {RESULTS} here; run this from the root of the repository, or name a \
             folder with --out"
        );
        Ok(())
    }
}

/// What a page says at its top.
#[derive(Debug, Clone, Copy)]
pub struct Head<'a> {
    /// The subcommand, which names the folder.
    pub name: &'a str,
    /// What the page is about.
    pub title: &'a str,
    /// Subcommand and arguments that give the same page again, without paths.
    pub command: &'a str,
    /// What else is to be known: seed, data, rounds.
    pub facts: &'a [(&'a str, String)],
}

/// Prints a page and writes its files; `fill` gives the tables.
pub fn write(
    target: &Target,
    head: Head<'_>,
    fill: impl FnOnce(&mut Report<'_>) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    target.check()?;
    let folder = target.out.clone().unwrap_or_else(|| Path::new(RESULTS).join(head.name));
    let mut out = std::io::stdout();
    let mut report = Report::new(&mut out, Some(&folder))?;
    report.words(&format!("# {}", head.title))?;
    report.words(&format!(
        "```sh\ncargo run --release --manifest-path bench/Cargo.toml -- {}\n```",
        head.command
    ))?;
    let mut sheet = Sheet::new("measured", "What is measured", &["what", "value"]).of_words();
    let all = [
        ("date", first_line("date", &["-u", "+%Y-%m-%d"])),
        ("commit", commit()),
        ("machine", machine()),
        ("compiler", first_line("rustc", &["--version"])),
    ];
    let known = all.into_iter().filter_map(|(what, value)| Some((what, value?)));
    for (what, value) in known.chain(head.facts.iter().cloned()) {
        sheet.row(vec![what.to_owned(), value]);
    }
    report.table(&sheet, None)?;
    fill(&mut report)?;
    let files = report.finish()?;
    eprintln!("wrote {files} files into {}", folder.display());
    Ok(())
}

/// The commit that the tree is at, and whether it was changed since.
pub fn commit() -> Option<String> {
    let commit = first_line("git", &["rev-parse", "--short", "HEAD"])?;
    let is_changed = first_line("git", &["status", "--porcelain"]).is_some();
    Some(commit + if is_changed { ", with changes" } else { "" })
}

/// The processor, its cores, and the memory.
pub fn machine() -> Option<String> {
    let cpus = fs::read_to_string("/proc/cpuinfo").ok()?;
    let value = |text: &str, name: &str| {
        let line = text.lines().find(|line| line.starts_with(name))?;
        Some(line.split_once(':')?.1.trim().to_owned())
    };
    let (model, family) = (value(&cpus, "model name")?, value(&cpus, "cpu family"));
    let number = value(&cpus, "model\t");
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let kind = family.zip(number).map_or(String::new(), |(f, n)| format!(", family {f} model {n}"));
    let gibibytes = (memory_bytes()? + (1 << 29)) >> 30;
    Some(format!("{model}{kind}, {cores} cores, {gibibytes} GiB"))
}

/// Bytes of memory that the machine has.
pub fn memory_bytes() -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    Some(1_024 * line.trim().strip_suffix(" kB")?.parse::<u64>().ok()?)
}

/// The first line that a program prints, if it is there and prints one.
pub fn first_line(program: &str, words: &[&str]) -> Option<String> {
    let output = Command::new(program).args(words).output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let line = text.lines().next().map(|line| line.trim_end_matches('.').to_owned());
    line.filter(|_| output.status.success())
}
