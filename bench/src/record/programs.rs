//! The programs that record: how they are started and ended, and what they say.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::wire::{FAR, LOOK, Running, Wire};
use crate::archive::process;

/// Packets of a recording of ours: it is then completed and indexed while others arrive.
pub const ROTATE_PACKETS: u64 = 100_000;
/// The question that libpcap's filter code answers, too.
pub const QUESTION: &str = "tcp port 443";

/// A program that is not ready, or does not end, within these, never is.
const READY_MAX: Duration = Duration::from_secs(10);
pub const END_MAX: Duration = Duration::from_secs(60);
/// Nothing was written for so long.
const QUIET: Duration = Duration::from_millis(100);

/// A program that records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Program {
    Tapdex,
    Tcpdump,
    Dumpcap,
}

impl Program {
    pub fn name(self) -> &'static str {
        match self {
            Self::Tapdex => "tapdex",
            Self::Tcpdump => "tcpdump",
            Self::Dumpcap => "dumpcap",
        }
    }
}

/// A program and how it is set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Contestant {
    pub program: Program,
    /// As it is without options, instead of with the same ring as all.
    pub own: bool,
}

impl Contestant {
    /// What tables call it.
    pub fn name(self) -> &'static str {
        match (self.program, self.own) {
            (program, false) => program.name(),
            (Program::Tapdex, true) => "tapdex, defaults",
            (Program::Tcpdump, true) => "tcpdump, defaults",
            (Program::Dumpcap, true) => "dumpcap, defaults",
        }
    }

    /// Its options, with a ring of so many MiB.
    pub fn options(self, ring_mib: u64) -> String {
        let Self { program, own } = self;
        let ring = match program {
            _ if own => String::new(),
            // What waits for the disk gets no more room than the ring has.
            Program::Tapdex => format!(
                " --buffer {ring_mib}MiB --queue {ring_mib}MiB --rotate {ROTATE_PACKETS}packets"
            ),
            Program::Tcpdump => format!(" -B {}", ring_mib << 10),
            Program::Dumpcap => format!(" -B {ring_mib}"),
        };
        match program {
            Program::Tapdex => format!("record -i {FAR}{ring} -w"),
            // It would become another user, who may not write there.
            Program::Tcpdump => format!("-n -Z root -i {FAR}{ring} -w"),
            Program::Dumpcap => format!("-q -i {FAR}{ring} -w"),
        }
    }

    /// What it says when it has opened the interface.
    fn ready(self) -> &'static str {
        match self.program {
            Program::Tapdex => "tapdex: recording ",
            Program::Tcpdump => "listening on ",
            Program::Dumpcap => "File: ",
        }
    }

    /// How long packets may lie in a part of the ring that is not full. tapdex takes them out of it
    /// when it is told to end; the others leave them there, so they are given this time.
    fn linger(self) -> Option<Duration> {
        match self.program {
            Program::Tapdex => None,
            Program::Tcpdump => Some(Duration::from_millis(1_200)),
            Program::Dumpcap => Some(Duration::from_millis(400)),
        }
    }
}

/// What a program has stored, and what it says of itself.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Stored {
    /// Packets in its files, as capinfos counts them.
    pub packets: u64,
    /// Losses that it reports.
    pub lost: u64,
    /// From when the first packet could come to the end, user and system.
    pub cpu_seconds: f64,
    /// From being told to end to the end.
    pub end_seconds: f64,
}

/// A program that records now.
pub struct Recorder<'a> {
    contestant: Contestant,
    tapdex: &'a Path,
    folder: &'a Path,
    process: Running,
    cpu_before: f64,
}

impl<'a> Recorder<'a> {
    /// Starts a program, and waits until it records into the folder.
    pub fn start(
        contestant: Contestant,
        ring_mib: u64,
        wire: &Wire,
        tapdex: &'a Path,
        folder: &'a Path,
    ) -> anyhow::Result<Self> {
        let mut command = match contestant.program {
            Program::Tapdex => wire.command(tapdex),
            Program::Tcpdump => wire.command("tcpdump"),
            Program::Dumpcap => wire.command("dumpcap"),
        };
        command
            .args(contestant.options(ring_mib).split(' '))
            .arg(target(contestant.program, folder));
        command.stderr(File::create(said_path(folder))?);
        let process = Running(command.spawn()?);
        let mut recorder = Self { contestant, tapdex, folder, process, cpu_before: 0.0 };
        let started = Instant::now();
        while !recorder.said()?.contains(contestant.ready()) {
            let ended = recorder.process.0.try_wait()?;
            let late = started.elapsed() > READY_MAX;
            ensure!(
                ended.is_none() && !late,
                "{} does not record: {}",
                contestant.name(),
                recorder.said()?.trim_end()
            );
            std::thread::sleep(LOOK);
        }
        recorder.cpu_before = cpu_of(recorder.process.0.id());
        Ok(recorder)
    }

    fn said(&self) -> anyhow::Result<String> {
        Ok(String::from_utf8_lossy(&fs::read(said_path(self.folder))?).into_owned())
    }

    /// Ends it, after what is in the ring is written, and counts.
    pub fn end(mut self) -> anyhow::Result<Stored> {
        if let Some(linger) = self.contestant.linger() {
            self.wait_for_quiet(linger)?;
        }
        let name = self.contestant.name();
        let pid = Pid::from_raw(i32::try_from(self.process.0.id())?);
        let others = process::cpu_of_children()?;
        let started = Instant::now();
        kill(pid, Signal::SIGINT).with_context(|| format!("{name} is gone: {:?}", self.said()))?;
        let status = self.process.wait(END_MAX)?;
        let end_seconds = started.elapsed().as_secs_f64();
        let cpu_seconds = process::cpu_of_children()? - others - self.cpu_before;
        let said = self.said()?;
        let ended_well = status.is_some_and(|status| status.success());
        ensure!(ended_well, "{name} ended with {status:?}: {}", said.trim_end());
        let (packets, lost) = match self.contestant.program {
            Program::Tapdex => self.check_archive()?,
            Program::Tcpdump => (stored(&[self.target()])?, lost_by_tcpdump(&said)?),
            Program::Dumpcap => (stored(&[self.target()])?, lost_by_dumpcap(&said)?),
        };
        Ok(Stored { packets, lost, cpu_seconds, end_seconds })
    }

    fn target(&self) -> PathBuf {
        target(self.contestant.program, self.folder)
    }

    /// Waits until it has nothing to do, at least for so long.
    fn wait_for_quiet(&self, least: Duration) -> anyhow::Result<()> {
        let pid = self.process.0.id();
        let started = Instant::now();
        let (mut written, mut since) = (written_by(pid)?, Instant::now());
        while started.elapsed() < least || since.elapsed() < QUIET {
            ensure!(started.elapsed() < END_MAX, "{} goes on for ever", self.contestant.name());
            std::thread::sleep(LOOK);
            let now = written_by(pid)?;
            if now != written || is_busy(pid) {
                (written, since) = (now, Instant::now());
            }
        }
        Ok(())
    }

    /// Packets in an archive and the losses it tells of. All packets have to be found by the index,
    /// and as many of a filter as libpcap finds.
    fn check_archive(&self) -> anyhow::Result<(u64, u64)> {
        let archive = self.target();
        let status = status(&archive)?;
        let files = packet_files(&archive)?;
        let packets = stored(&files)?;
        ensure!(
            number(&status, &["waiting"])? == 0
                && number(&status, &["indexed_packets"])? == packets,
            "not all of {packets} packets were indexed: {status}"
        );
        ensure!(self.search(&archive, "")? == packets, "not all of {packets} packets are found");
        let mut expected = 0;
        for file in &files {
            let mut command = Command::new("tcpdump");
            command.args(["-n", "--count", "-r"]).arg(file).arg(QUESTION);
            expected += process::number_after(&process::run(&mut command)?.stdout, None)?;
        }
        let found = self.search(&archive, QUESTION)?;
        ensure!(found == expected, "{QUESTION}: tapdex finds {found}, tcpdump {expected}");
        Ok((packets, lost_by_tapdex(&status)?))
    }

    fn search(&self, archive: &Path, filter: &str) -> anyhow::Result<u64> {
        let mut command = Command::new(self.tapdex);
        command.args(["search", "--count", "-r"]).arg(archive).arg(filter);
        process::number_after(&process::run(&mut command)?.stdout, None)
    }
}

fn said_path(folder: &Path) -> PathBuf {
    folder.join("said")
}

fn target(program: Program, folder: &Path) -> PathBuf {
    folder.join(match program {
        Program::Tapdex => "archive",
        Program::Tcpdump => "recorded.pcap",
        Program::Dumpcap => "recorded.pcapng",
    })
}

/// What a recorder of ours says of itself.
pub fn status(archive: &Path) -> anyhow::Result<toml::Table> {
    Ok(fs::read_to_string(archive.join("recording.toml"))?.parse()?)
}

/// The files of packets of an archive, all of which have to be complete.
pub fn packet_files(archive: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(archive.join("packets"))? {
        let path = entry?.path();
        let is_complete = path.extension().is_some_and(|end| end == "pcapng");
        ensure!(is_complete, "{} was left behind", path.display());
        files.push(path);
    }
    files.sort();
    Ok(files)
}

/// Packets in files, as capinfos counts them.
fn stored(files: &[PathBuf]) -> anyhow::Result<u64> {
    if files.is_empty() {
        return Ok(0);
    }
    let output = process::run(Command::new("capinfos").args(["-T", "-r", "-c"]).args(files))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let counts: Option<Vec<u64>> =
        text.lines().map(|line| line.rsplit('\t').next()?.trim().parse().ok()).collect();
    let counts = counts.filter(|counts| counts.len() == files.len());
    Ok(counts.with_context(|| format!("capinfos does not count: {text}"))?.iter().sum())
}

/// Seconds of processor time that the threads of a process have had.
fn cpu_of(pid: u32) -> f64 {
    let of_thread = |path: PathBuf| {
        let text = fs::read_to_string(path.join("schedstat")).ok()?;
        text.split_whitespace().next()?.parse::<u64>().ok()
    };
    // Where the kernel does not tell, the start counts.
    let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) else { return 0.0 };
    let ns: u64 = threads.flatten().filter_map(|entry| of_thread(entry.path())).sum();
    ns as f64 / 1e9
}

/// Bytes that a process has written.
fn written_by(pid: u32) -> anyhow::Result<u64> {
    process::number_after(&fs::read(format!("/proc/{pid}/io"))?, Some("wchar:"))
}

/// Whether a process runs, or waits for the disk.
fn is_busy(pid: u32) -> bool {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = text.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next());
    matches!(state, Some('R' | 'D'))
}

/// Losses that tcpdump reports: in the ring, and by the interface.
fn lost_by_tcpdump(said: &str) -> anyhow::Result<u64> {
    let mut losses = said.lines().filter(|line| line.contains(" dropped by ")).peekable();
    ensure!(losses.peek().is_some(), "tcpdump does not say what it has lost: {said}");
    losses.map(|line| process::number_after(line.as_bytes(), None)).sum()
}

/// Losses that dumpcap reports: in the ring, in itself, and at its end.
fn lost_by_dumpcap(said: &str) -> anyhow::Result<u64> {
    let rest = said.split_once("Packets received/dropped on interface ");
    let counts = rest.and_then(|(_, rest)| rest.split_once("': ")?.1.split_once('/'));
    let lost = counts.and_then(|(_, rest)| rest.split(' ').next()?.parse().ok());
    lost.with_context(|| format!("dumpcap does not say what it has lost: {said}"))
}

/// Losses that a recorder of ours reports, of all stages.
fn lost_by_tapdex(status: &toml::Table) -> anyhow::Result<u64> {
    let stages = ["interface", "kernel", "writer", "indexer"];
    stages.iter().map(|stage| number(status, &["run", "lost", stage])).sum()
}

/// A number of a status, which may lie in tables.
pub fn number(status: &toml::Table, keys: &[&str]) -> anyhow::Result<u64> {
    let (last, tables) = keys.split_last().context("no name")?;
    let table = tables.iter().try_fold(status, |table, key| table.get(*key)?.as_table());
    let value = table.and_then(|table| table.get(*last)?.as_integer());
    let value = value.with_context(|| format!("no {} in {status}", keys.join(".")))?;
    Ok(u64::try_from(value)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn losses_that_tcpdump_reports() {
        let said = "tcpdump: listening on v1, link-type EN10MB (Ethernet), snapshot length 262144 \
                    bytes\n90 packets captured\n100 packets received by filter\n10 packets dropped \
                    by kernel\n";
        assert_eq!(lost_by_tcpdump(said).unwrap(), 10);
        let with_interface = format!("{said}1 packet dropped by interface\n");
        assert_eq!(lost_by_tcpdump(&with_interface).unwrap(), 11);
        assert!(lost_by_tcpdump("tcpdump: v1: No such device exists\n").is_err());
    }

    #[test]
    fn losses_that_dumpcap_reports() {
        let said = "Capturing on 'v1'\nFile: /a/b.pcapng\nPackets captured: 90\nPackets \
                    received/dropped on interface 'v1': 90/10 (pcap:9/dumpcap:1/flushed:0/\
                    ps_ifdrop:0) (90.0%)\n";
        assert_eq!(lost_by_dumpcap(said).unwrap(), 10);
        assert!(lost_by_dumpcap("Capturing on 'v1'\n").is_err());
    }

    #[test]
    fn losses_that_tapdex_reports() {
        let status = "waiting = 3\n[run]\npackets = 5\n[run.lost]\ninterface = 1\nkernel = 20\n\
                      writer = 300\nindexer = 0\n";
        let status: toml::Table = status.parse().unwrap();
        assert_eq!(lost_by_tapdex(&status).unwrap(), 321);
        assert_eq!(number(&status, &["waiting"]).unwrap(), 3);
        assert!(number(&status, &["run", "kernel"]).is_err());
        assert!(lost_by_tapdex(&toml::Table::new()).is_err());
    }
}
