//! Questions about a recording that is still being written.

use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use tapdex_engine::traffic::Profile;

use super::programs::{END_MAX, QUESTION, number, packet_files, status};
use super::wire::{LOOK, Running};
use crate::archive::captures::{self, Folder};
use crate::archive::process;

/// What is asked.
const QUESTIONS: [&str; 4] = [QUESTION, "icmp", "udp port 53 and greater 100", "host 192.0.2.1"];
/// A recorder has made drafts of what has come within this.
const DRAFTS_AFTER: Duration = Duration::from_secs(3);

/// A question, and how long the answer took in the median round.
pub struct Answer {
    pub traffic: &'static str,
    pub packets: u64,
    pub question: &'static str,
    pub found: u64,
    pub tcpdump_seconds: f64,
    pub open_seconds: f64,
    pub sealed_seconds: f64,
}

/// Asks while a recording of so many packets is open, and when it is complete.
pub fn measure(
    profile: &Profile,
    traffic: &'static str,
    rounds: u32,
    tapdex: &Path,
    folder: &Folder,
) -> anyhow::Result<Vec<Answer>> {
    let scratch = folder.scratch();
    fs::create_dir_all(scratch.path())?;
    let capture = scratch.path().join("capture.pcap");
    captures::write(profile, &capture)?;
    let archive = scratch.path().join("archive");
    let mut recorder = Command::new(tapdex);
    recorder.args(["record", "-i", "-", "--quiet", "--limit", "100%", "--rotate", "4GiB,1h", "-w"]);
    recorder.arg(&archive).stdin(Stdio::piped());
    let mut recorder = Running(recorder.spawn()?);
    let mut pipe = recorder.0.stdin.take().context("no pipe")?;
    io::copy(&mut File::open(&capture)?, &mut pipe)?;
    let started = Instant::now();
    while !status(&archive)
        .is_ok_and(|s| number(&s, &["run", "packets"]).ok() == Some(profile.packets))
    {
        ensure!(started.elapsed() < END_MAX, "not all of {} packets come", profile.packets);
        std::thread::sleep(LOOK);
    }
    std::thread::sleep(DRAFTS_AFTER);
    let ask = |question: &str| {
        let mut command = Command::new(tapdex);
        median(command.args(["search", "--count", "-r"]).arg(&archive).arg(question), rounds)
    };
    let mut answers = Vec::new();
    for question in QUESTIONS {
        let (found, open_seconds) = ask(question)?;
        let mut read = Command::new("tcpdump");
        read.args(["-n", "--count", "-r"]).arg(unfinished(&archive)?).arg(question);
        let (expected, tcpdump_seconds) = median(&mut read, rounds)?;
        ensure!(found == expected, "{question}: tapdex finds {found}, tcpdump {expected}");
        let packets = profile.packets;
        let sealed_seconds = f64::NAN;
        answers.push(Answer {
            traffic,
            packets,
            question,
            found,
            tcpdump_seconds,
            open_seconds,
            sealed_seconds,
        });
    }
    drop(pipe);
    let ended = recorder.wait(END_MAX)?;
    ensure!(ended.is_some_and(|status| status.success()), "the recorder ended with {ended:?}");
    ensure!(packet_files(&archive)?.len() == 1, "there is more than one recording");
    for answer in &mut answers {
        let (found, seconds) = ask(answer.question)?;
        ensure!(found == answer.found, "{}: {found}, not {}", answer.question, answer.found);
        answer.sealed_seconds = seconds;
    }
    Ok(answers)
}

/// The number that a program prints, and how long it ran in the median of some rounds.
fn median(command: &mut Command, rounds: u32) -> anyhow::Result<(u64, f64)> {
    let mut times = Vec::new();
    let mut found = 0;
    for _ in 0..rounds {
        let started = Instant::now();
        let output = process::run(command)?;
        times.push(started.elapsed().as_secs_f64());
        found = process::number_after(&output.stdout, None)?;
    }
    times.sort_by(f64::total_cmp);
    Ok((found, times[times.len() / 2]))
}

/// The file that is being written.
fn unfinished(archive: &Path) -> anyhow::Result<std::path::PathBuf> {
    let mut files = fs::read_dir(archive.join("packets"))?.flatten().map(|entry| entry.path());
    files.find(|path| path.extension().is_some_and(|end| end == "part")).context("none is open")
}
