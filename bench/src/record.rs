//! `tapdex-bench record`: packets from the wire into a searchable archive, beside tcpdump and
//! dumpcap.

mod open;
mod programs;
mod tables;
mod wire;

use std::fs;

use anyhow::ensure;
use tapdex_bench::page::{self, Head, Target};
use tapdex_engine::traffic::Profile;

use crate::archive::captures::{self, Capture, Folder, Setting};
use crate::archive::process;
use open::Answer;
use programs::{Contestant, Program, QUESTION, Recorder, Stored};
use wire::{Load, Sent, Wire};

/// What to measure.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Packets a second that are sent, step by step; after them come one sender and two senders as
    /// fast as they can.
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "100000,200000,300000,400000,600000",
        value_parser = clap::value_parser!(u64).range(1..)
    )]
    rates: Vec<u64>,
    /// Rounds of every step; in each, all programs take their turn.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// How long a sender sends at a given rate; up to three times as long until it has filled the
    /// ring four times.
    #[arg(long, default_value_t = 1.0)]
    seconds: f64,
    /// MiB of the kernel's ring, the same for all programs. It has to be small beside what is sent,
    /// or it hides who cannot keep up.
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u64).range(1..=1_024))]
    ring: u64,
    /// Packets that a sender sends at most, and as fast as it can.
    #[arg(long, default_value_t = 600_000, value_parser = clap::value_parser!(u64).range(1_000..))]
    packets: u64,
    /// Packets of the recording that questions are asked about while it is open: mixed frames, and
    /// small ones.
    #[arg(
        long,
        value_delimiter = ',',
        default_values_t = [1_400_000, 4_000_000],
        value_parser = clap::value_parser!(u64).range(1_000..)
    )]
    open_packets: Vec<u64>,
    /// Leave out the small frames.
    #[arg(long)]
    skip_small: bool,
    /// Leave out the programs with their own defaults.
    #[arg(long)]
    skip_defaults: bool,
    #[command(flatten)]
    setting: Setting,
    #[command(flatten)]
    target: Target,
}

/// Those that are compared: with the same ring, in all rounds.
const SAME: [Contestant; 3] = [
    Contestant { program: Program::Tapdex, own: false },
    Contestant { program: Program::Dumpcap, own: false },
    Contestant { program: Program::Tcpdump, own: false },
];
/// As they are without options, in the first round.
const OWN: [Contestant; 3] = [
    Contestant { program: Program::Tapdex, own: true },
    Contestant { program: Program::Dumpcap, own: true },
    Contestant { program: Program::Tcpdump, own: true },
];
/// Mean length of small frames: as short as their headers allow.
const SMALL_LEN: u32 = 64;
/// How often what is sent fills the ring, at least, if that does not take too long.
const RING_FILLS: f64 = 4.0;
/// Bytes that a packet takes in the ring besides its own, about.
const RING_HEAD_BYTES: f64 = 96.0;
/// Bytes on the disk that a packet takes at most, on average.
const PACKET_BYTES: u64 = 800;

/// What was recorded of one kind of traffic.
struct Measured {
    name: &'static str,
    /// Mean length of a frame in bytes.
    mean_len: f64,
    contestants: Vec<Contestant>,
    loads: Vec<Load>,
    cells: Vec<Cell>,
}

/// A program at a step in a round.
#[derive(Debug, Clone, Copy)]
struct Cell {
    round: u32,
    /// Which of the loads, and which of the contestants.
    load: usize,
    contestant: usize,
    sent: Sent,
    stored: Stored,
}

impl Cell {
    /// Packets that are not in the files.
    fn lost(&self) -> u64 {
        self.sent.packets.saturating_sub(self.stored.packets)
    }

    /// Whether each packet was stored or is counted as lost.
    fn is_balanced(&self) -> bool {
        self.stored.packets + self.stored.lost == self.sent.packets
    }

    fn packets_a_second(&self) -> f64 {
        self.sent.packets as f64 / self.sent.seconds
    }

    fn gigabits_a_second(&self) -> f64 {
        8e-9 * self.sent.bytes as f64 / self.sent.seconds
    }

    /// Processor time of a packet that was stored.
    fn cpu_ns(&self) -> f64 {
        1e9 * self.stored.cpu_seconds / self.stored.packets.max(1) as f64
    }

    /// Packets a second up to the end of the program.
    fn done_a_second(&self) -> f64 {
        self.stored.packets as f64 / (self.sent.seconds + self.stored.end_seconds)
    }
}

pub fn run(args: &Args) -> anyhow::Result<()> {
    args.target.check()?;
    ensure!(
        args.seconds.is_finite() && args.seconds > 0.0,
        "--seconds {}: nothing would be sent",
        args.seconds
    );
    ensure!(args.open_packets.len() == 2, "--open-packets takes two numbers");
    process::ensure_programs(&args.setting.tapdex, false)?;
    for program in ["dumpcap", "capinfos", "unshare", "nsenter", "setpriv"] {
        ensure!(process::is_there(program), "{program} is not installed");
    }
    let folder = Folder::new(args.setting.folder.as_deref())?;
    // A capture, what two senders send of it, and some to spare.
    let most = args.open_packets.iter().map(|packets| 2 * packets).max().unwrap_or(0);
    let needed = most.max(5 * args.packets) * PACKET_BYTES;
    let free = process::free_bytes(folder.path())?;
    ensure!(
        free > needed,
        "{free} bytes are free, {needed} are needed: --packets, --open-packets, --folder"
    );
    let wire = Wire::new()?;
    let mut kinds = vec![("mixed", None), ("small", Some(SMALL_LEN))];
    if args.skip_small {
        kinds.pop();
    }
    let mut measured = Vec::new();
    for &(name, mean_len) in &kinds {
        measured.push(measure(args, &folder, &wire, name, mean_len)?);
    }
    drop(wire);
    let mut answers = Vec::new();
    for (&(name, mean_len), &packets) in kinds.iter().zip(&args.open_packets) {
        eprintln!("{name}: asking about {packets} packets while they are recorded");
        let profile = Profile { seed: args.setting.seed, packets, mean_len, ..Profile::default() };
        answers.extend(open::measure(&profile, name, args.rounds, &args.setting.tapdex, &folder)?);
    }
    write(args, &folder, &measured, &answers)
}

/// Takes one kind of traffic through all steps.
fn measure(
    args: &Args,
    folder: &Folder,
    wire: &Wire,
    name: &'static str,
    mean_len: Option<u32>,
) -> anyhow::Result<Measured> {
    let scratch = folder.scratch();
    fs::create_dir_all(scratch.path())?;
    let path = scratch.path().join(format!("{name}.pcap"));
    eprintln!("{name}: making up {} packets", args.packets);
    let profile =
        Profile { seed: args.setting.seed, packets: args.packets, mean_len, ..Profile::default() };
    captures::write(&profile, &path)?;
    let capture = Capture::read(name, &path)?;
    let mut rates = args.rates.clone();
    rates.sort_unstable();
    rates.dedup();
    let mut loads: Vec<Load> = rates.into_iter().map(Load::PerSecond).collect();
    loads.extend([Load::Top, Load::TwoAtTop]);
    let mut contestants = SAME.to_vec();
    if mean_len.is_none() && !args.skip_defaults {
        contestants.extend(OWN);
    }
    let mut cells = Vec::new();
    for round in 0..args.rounds {
        for (load, _) in loads.iter().enumerate() {
            for contestant in turns(&contestants, round) {
                let cell = (round, load, contestant);
                let side = (contestants[contestant], loads[load]);
                cells.push(measure_cell(args, folder, wire, &capture, cell, side)?);
            }
        }
    }
    Ok(Measured { name, mean_len: mean_bytes(&capture), contestants, loads, cells })
}

/// The mean length of a frame in bytes.
fn mean_bytes(capture: &Capture) -> f64 {
    capture.wire_bytes as f64 / capture.packets as f64
}

/// Who takes part in a round: another one begins in each, and own defaults are in the first.
fn turns(contestants: &[Contestant], round: u32) -> Vec<usize> {
    let takes_part = |&number: &usize| round == 0 || !contestants[number].own;
    let mut turns: Vec<usize> = (0..contestants.len()).filter(takes_part).collect();
    let first = round as usize % turns.len().max(1);
    turns.rotate_left(first);
    turns
}

fn measure_cell(
    args: &Args,
    folder: &Folder,
    wire: &Wire,
    capture: &Capture,
    (round, load, contestant): (u32, usize, usize),
    (who, how): (Contestant, Load),
) -> anyhow::Result<Cell> {
    let scratch = folder.scratch();
    fs::create_dir_all(scratch.path())?;
    let recorder = Recorder::start(who, args.ring, wire, &args.setting.tapdex, scratch.path())?;
    let ring_bytes = (args.ring << 20) as f64;
    let least = RING_FILLS * ring_bytes / (mean_bytes(capture) + RING_HEAD_BYTES);
    let packets = how.packets(args.seconds, least as u64, args.packets);
    let sent = wire.send(&args.setting.tapdex, &capture.path, how, packets)?;
    let stored = recorder.end()?;
    let cell = Cell { round, load, contestant, sent, stored };
    eprintln!(
        "{}, {} packets/s, round {}: {}: {:.0} packets/s, {} of {} stored, {} reported as lost{}",
        capture.name,
        how.name(),
        round + 1,
        who.name(),
        cell.packets_a_second(),
        stored.packets,
        sent.packets,
        stored.lost,
        if cell.is_balanced() { "" } else { ": NOT BALANCED" }
    );
    // Removed, not written to the disk while the next one records.
    drop(scratch);
    Ok(cell)
}

fn write(
    args: &Args,
    folder: &Folder,
    measured: &[Measured],
    answers: &[Answer],
) -> anyhow::Result<()> {
    let rates: Vec<String> = args.rates.iter().map(u64::to_string).collect();
    let mut command = format!(
        "record --rates {} --rounds {} --seconds {} --ring {} --packets {} --open-packets {} \
         --seed {}",
        rates.join(","),
        args.rounds,
        args.seconds,
        args.ring,
        args.packets,
        args.open_packets.iter().map(u64::to_string).collect::<Vec<_>>().join(","),
        args.setting.seed
    );
    for (is_given, option) in [(args.skip_small, "small"), (args.skip_defaults, "defaults")] {
        if is_given {
            command.push_str(&format!(" --skip-{option}"));
        }
    }
    let traffic: Vec<String> = measured
        .iter()
        .map(|one| format!("{}: frames of {:.0} bytes on average", one.name, one.mean_len))
        .collect();
    let options = |who: &Contestant| format!("`{} {}`", who.program.name(), who.options(args.ring));
    let lines: Vec<String> = SAME.iter().map(options).collect();
    let mut facts = vec![
        ("traffic", format!("made up from seed {}; {}", args.setting.seed, traffic.join("; "))),
        ("programs", lines.join(", ")),
    ];
    for (what, program) in [("tcpdump", "tcpdump"), ("dumpcap", "dumpcap")] {
        facts.extend(page::first_line(program, &["--version"]).map(|line| (what, line)));
    }
    facts.extend([
        ("kernel", page::first_line("uname", &["-sr"]).unwrap_or_default()),
        ("disk", file_system(folder)),
        ("rounds", format!("{}, all programs in turn in each; defaults in the first", args.rounds)),
        (
            "checked",
            format!(
                "every time: stored packets as capinfos counts them; every archive of tapdex: \
                 all packets indexed and found, and `{QUESTION}` as often as tcpdump finds it"
            ),
        ),
    ]);
    let title = "Recording beside tcpdump and dumpcap";
    let head = Head { name: "recording", title, command: &command, facts: &facts };
    page::write(&args.target, head, |report| tables::write(report, measured, answers))
}

/// The file system that is recorded to.
fn file_system(folder: &Folder) -> String {
    let path = folder.path().to_string_lossy();
    let kind = page::first_line("findmnt", &["-n", "-o", "FSTYPE", "--target", &path]);
    kind.unwrap_or_else(|| "unknown".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_begins_in_turn_and_defaults_are_in_the_first_round() {
        let all: Vec<Contestant> = SAME.into_iter().chain(OWN).collect();
        assert_eq!(turns(&all, 0), [0, 1, 2, 3, 4, 5]);
        assert_eq!(turns(&all, 1), [1, 2, 0]);
        assert_eq!(turns(&all, 2), [2, 0, 1]);
        assert_eq!(turns(&all, 3), [0, 1, 2]);
    }

    #[test]
    fn what_a_cell_comes_to() {
        let sent = Sent { packets: 1_000, bytes: 125_000, seconds: 0.5, delivered: 1_000 };
        let stored = Stored { packets: 800, lost: 200, cpu_seconds: 0.0004, end_seconds: 0.3 };
        let cell = Cell { round: 0, load: 0, contestant: 0, sent, stored };
        assert_eq!(cell.lost(), 200);
        assert!(cell.is_balanced());
        assert_eq!(cell.packets_a_second(), 2_000.0);
        assert!((cell.gigabits_a_second() - 0.002).abs() < 1e-12);
        assert!((cell.cpu_ns() - 500.0).abs() < 1e-9);
        assert_eq!(cell.done_a_second(), 1_000.0);
        let more = Cell { stored: Stored { packets: 1_001, lost: 0, ..stored }, ..cell };
        assert!(more.lost() == 0 && !more.is_balanced());
    }
}
