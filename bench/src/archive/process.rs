//! Other programs: running them, what they count, and the memory they take.

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use nix::sys::resource::{UsageWho, getrusage};

/// Between two looks at a process that has run for a while.
const LOOK: Duration = Duration::from_millis(5);
/// A process is looked at all the time until it has run for so long.
const START: Duration = Duration::from_millis(100);

/// Whether a program can be run.
pub fn is_there(program: &str) -> bool {
    let mut command = Command::new(program);
    command.arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok()
}

/// Fails, with what to do, if a program that is measured is missing.
pub fn ensure_programs(tapdex: &Path, tshark: bool) -> anyhow::Result<()> {
    ensure!(
        tapdex.is_file(),
        "there is no {}; build it with `cargo build --release -p tapdex`, run this from the root \
         of the repository, or name the program with --tapdex",
        tapdex.display()
    );
    ensure!(is_there("tcpdump"), "tcpdump is not installed");
    ensure!(!tshark || is_there("tshark"), "tshark is not installed: --skip-tshark");
    Ok(())
}

/// Runs a program to its end, which has to be a good one.
pub fn run(command: &mut Command) -> anyhow::Result<Output> {
    let output = command
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("cannot run {:?}", command.get_program()))?;
    ensure!(
        output.status.success(),
        "{command:?}: {}: {}",
        output.status,
        String::from_utf8_lossy(&output.stderr).trim_end()
    );
    Ok(output)
}

/// Seconds of CPU time of all processes that we have started and that have ended.
pub fn cpu_of_children() -> anyhow::Result<f64> {
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN)?;
    let seconds =
        |time: nix::sys::time::TimeVal| time.tv_sec() as f64 + time.tv_usec() as f64 / 1e6;
    Ok(seconds(usage.user_time()) + seconds(usage.system_time()))
}

/// Bytes that are free on the disk where a folder is.
pub fn free_bytes(folder: &Path) -> anyhow::Result<u64> {
    let mut command = Command::new("df");
    let output = run(command.args(["--output=avail", "-B1"]).arg(folder))?;
    number_after(&output.stdout, Some("Avail"))
}

/// The number that stands first in a text, or behind a word.
pub fn number_after(text: &[u8], word: Option<&str>) -> anyhow::Result<u64> {
    let text = String::from_utf8_lossy(text);
    let mut words = text.split_whitespace();
    if let Some(word) = word {
        words.find(|&found| found == word);
    }
    let number = words.next().and_then(|number| number.parse().ok());
    number.with_context(|| format!("no number of packets in {text:?}"))
}

/// The most memory that a process had, in bytes.
#[derive(Debug, Clone, Copy, Default)]
pub struct Peak {
    /// Of all kinds; Linux keeps the count itself.
    pub resident: u64,
    /// Of the process's own, at one of the looks.
    pub anonymous: u64,
}

/// Runs a program and watches its memory.
pub fn peak(command: &mut Command) -> anyhow::Result<Peak> {
    let mut child = command.stdin(Stdio::null()).stderr(Stdio::null()).spawn()?;
    let start = Instant::now();
    let path = format!("/proc/{}/status", child.id());
    let mut peak = Peak::default();
    let status = loop {
        // When the process has ended, its memory is not told any more.
        let text = fs::read_to_string(&path).unwrap_or_default();
        let of = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name));
            let kib = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<u64>().ok());
            1_024 * kib.unwrap_or(0)
        };
        peak.resident = peak.resident.max(of("VmHWM:"));
        peak.anonymous = peak.anonymous.max(of("RssAnon:"));
        if let Some(status) = child.try_wait()? {
            break status;
        }
        if start.elapsed() > START {
            std::thread::sleep(LOOK);
        }
    };
    ensure!(status.success(), "{command:?}: {status}");
    peak.resident = peak.resident.max(peak_by_time(command)?.unwrap_or(0));
    Ok(peak)
}

/// The same as time(1) tells it, which misses nothing however short the run is; `None` where it is
/// not installed.
fn peak_by_time(command: &Command) -> anyhow::Result<Option<u64>> {
    const TIME: &str = "/usr/bin/time";
    if !Path::new(TIME).is_file() {
        return Ok(None);
    }
    let mut timed = Command::new(TIME);
    timed.args(["-f", "%M"]).arg(command.get_program()).args(command.get_args());
    let output = run(&mut timed)?;
    let text = String::from_utf8_lossy(&output.stderr);
    let kib = text.lines().last().and_then(|line| line.parse::<u64>().ok());
    Ok(kib.map(|kib| 1_024 * kib))
}
