//! `tapdex replay`: sends packets to an interface.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use tapdex_answers::ask::{left_out, unseen};
use tapdex_answers::missing::missing as missing_of;
use tapdex_engine::archive::{Archive, ArchiveError, Gap};
use tapdex_engine::capture::{self, CaptureError, Record};
use tapdex_engine::packet::LinkType;
use tapdex_engine::query::{Answers, Query};
use tapdex_record::replay::{Frame, Frames, Pace, Replay, Sender};

use super::ask::{ArchiveArg, QuestionArgs, notes, searched};
use super::missing;
use super::progress::Progress;
use super::{Damaged, Interrupted, chain, counted, interrupt, note};

/// Send packets to an interface, for tests.
///
/// Sends the packets of an archive in order of time, with the gaps they had when they were
/// captured. A filter and times select packets, as for extract. With --file, captures are sent
/// without an archive, one after the other:
///
///     tapdex replay -i eth1
///     tapdex replay -i eth1 -r archive --from -15m 'udp port 53'
///     tapdex replay -i eth1 --file monday.pcapng tuesday.pcap.gz --speed 10x
///     tapdex replay -i eth1 --file a.pcap --pps 50000 --loop 10
///     tapdex replay -i eth1 --file a.pcap --preload --top
///
/// Packets are not changed: addresses, VLAN tags and checksums are those of the capture. So use a
/// test network, never one that others use.
///
/// Only Ethernet frames are sent. Frames of other link types, frames that exceed the MTU, and
/// frames without a complete Ethernet header are skipped. Packets that were truncated when they
/// were captured are sent truncated. The summary counts all of these. A packet counts as sent when
/// the interface has accepted it; `ip -s link` shows what happened to it there.
///
/// Between two files, and between two passes of --loop, the gap is the mean gap so far. If the
/// interface is too slow, packets are sent late, not skipped.
///
/// Needs root or CAP_NET_RAW; otherwise the exit code is 5. Ctrl-C ends it and prints the summary.
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Args {
    /// Interface to send to.
    #[arg(short = 'i', long, value_name = "IFACE")]
    interface: String,
    #[command(flatten)]
    archive: ArchiveArg,
    #[command(flatten)]
    question: QuestionArgs,
    /// Captures to send: pcap or pcapng, plain or compressed with gzip or zstd. No archive is read,
    /// even with -r.
    #[arg(
        long = "file",
        value_name = "FILE",
        num_args = 1..,
        conflicts_with_all = ["filter", "from", "to", "utc"]
    )]
    files: Vec<PathBuf>,
    #[command(flatten)]
    pace: PaceArgs,
    /// Send everything this many times.
    #[arg(long = "loop", value_name = "N", default_value_t = 1,
          value_parser = clap::value_parser!(u64).range(1..))]
    passes: u64,
    /// Send at most this many packets in total.
    #[arg(short = 'c', value_name = "N")]
    count_max: Option<u64>,
    /// Read all packets into memory before sending.
    #[arg(long)]
    preload: bool,
}

/// How fast to send.
#[derive(Debug, clap::Args)]
#[group(multiple = false)]
struct PaceArgs {
    /// Speed relative to the capture: 2x is twice as fast, 0.5x half as fast.
    #[arg(long, value_name = "SPEED", value_parser = parse_speed, default_value = "recorded")]
    speed: f64,
    /// Packets per second.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pps: Option<u64>,
    /// Megabits per second, by the packets' lengths on the wire.
    #[arg(long, value_name = "N", value_parser = parse_positive)]
    mbps: Option<f64>,
    /// As fast as possible.
    #[arg(long)]
    top: bool,
}

impl PaceArgs {
    fn pace(&self) -> Pace {
        match (self.pps, self.mbps) {
            _ if self.top => Pace::Top,
            (Some(rate), _) => Pace::PerSecond(rate),
            (None, Some(rate)) => Pace::Megabits(rate),
            (None, None) => Pace::Recorded(self.speed),
        }
    }
}

fn parse_speed(text: &str) -> Result<f64, String> {
    if text == "recorded" {
        return Ok(1.0);
    }
    let times = text.strip_suffix('x').and_then(|number| parse_positive(number).ok());
    times.ok_or_else(|| "expected recorded, or a factor such as 2x or 0.5x".into())
}

fn parse_positive(text: &str) -> Result<f64, String> {
    let number = text.parse().ok().filter(|number: &f64| number.is_finite() && *number > 0.0);
    number.ok_or_else(|| "expected a number above 0".into())
}

/// Set by Ctrl-C.
static STOP: AtomicBool = AtomicBool::new(false);

fn is_stopped() -> bool {
    STOP.load(Ordering::Relaxed)
}

/// Ctrl-C ends sending; if that is not quick enough, a second one ends the process.
fn watch() {
    // Without a handler the process also ends, but without a summary.
    interrupt::handle(|| {
        if STOP.swap(true, Ordering::Relaxed) {
            interrupt::exit();
        }
    });
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let query = args.question.query()?;
    args.files.iter().try_for_each(|path| check(path))?;
    // Before a long search: sending may not be possible at all.
    let sender = Sender::open(&args.interface)?;
    watch();
    let mut progress = Progress::new();
    progress.show(|_| "searching".to_owned());
    let mut source = FrameSource::open(args, &query)?;
    let most = args.count_max.unwrap_or(u64::MAX);
    let mut replay = Replay::new(sender, args.pace.pace(), most, &STOP);
    let played = if args.preload {
        play_preloaded(args, &source, &mut replay, &mut progress)
    } else {
        play(args, &source, &mut replay, &mut progress)
    };
    let finished = replay.finish();
    let seconds = replay.elapsed().as_secs_f64();
    drop(progress);
    // Also after an error: what was sent is on the wire.
    summary(&replay, seconds);
    let gaps = played?;
    finished?;
    if is_stopped() {
        return Err(Interrupted.into());
    }
    if let FrameSource::Archive(answers) = &mut source {
        answers.add_gaps(gaps);
        notes(&unseen(answers, &query));
        missing::report(&missing_of(&answers.gaps), args.question.allow)?;
    }
    Ok(())
}

/// Refuses files that are not captures before anything is sent. A pipe can be opened only once.
fn check(path: &Path) -> anyhow::Result<()> {
    if path.is_file() || !path.exists() {
        capture::open(path).map_err(|error| capture_error(path, error))?;
    }
    Ok(())
}

fn capture_error(path: &Path, source: CaptureError) -> anyhow::Error {
    if source.is_io() {
        return ArchiveError::Capture { path: path.to_owned(), source }.into();
    }
    Damaged(format!("{}: {}; {}", path.display(), chain(&source), source.advice())).into()
}

fn frame<'a>(record: &Record<'a>) -> Frame<'a> {
    let &Record { time_ns, link, wire_len, data, .. } = record;
    Frame { time_ns, link, wire_len, data }
}

/// Where packets come from.
enum FrameSource<'a> {
    Archive(Answers),
    Files(&'a [PathBuf]),
}

/// Receives the packets.
trait Target {
    /// Takes a packet; returns whether more are wanted.
    fn packet(&mut self, frame: Frame<'_>) -> anyhow::Result<bool>;

    /// The next packet has nothing to do with those before it.
    fn next_pass(&mut self);
}

impl<'a> FrameSource<'a> {
    fn open(args: &'a Args, query: &Query) -> anyhow::Result<Self> {
        if !args.files.is_empty() {
            return Ok(Self::Files(&args.files));
        }
        let archive = Archive::open(args.archive.folder()?)?;
        let answers = searched(searched(archive.search(query))?.records())?;
        notes(&left_out(&answers, query));
        Ok(Self::Archive(answers))
    }

    /// Passes on all packets once, as long as they are wanted. Returns whether more are wanted, and
    /// what could not be read.
    fn read(&self, target: &mut dyn Target) -> anyhow::Result<(bool, Vec<Gap>)> {
        match self {
            Self::Archive(answers) => read_archive(answers, target),
            Self::Files(files) => Ok((read_files(files, target)?, Vec::new())),
        }
    }
}

fn read_archive(answers: &Answers, target: &mut dyn Target) -> anyhow::Result<(bool, Vec<Gap>)> {
    let mut packets = answers.packets();
    let mut is_wanted = true;
    while is_wanted && let Some(packet) = searched(packets.next())? {
        is_wanted = target.packet(frame(&packet.record))?;
    }
    target.next_pass();
    Ok((is_wanted, packets.into_gaps()))
}

fn read_files(files: &[PathBuf], target: &mut dyn Target) -> anyhow::Result<bool> {
    for path in files {
        let failed = |error| capture_error(path, error);
        let mut reader = capture::open(path).map_err(failed)?;
        while let Some(record) = reader.next().map_err(failed)? {
            if !target.packet(frame(&record))? {
                return Ok(false);
            }
        }
        target.next_pass();
    }
    Ok(true)
}

/// The interface, and a line that shows the progress.
struct Wire<'a, 'b> {
    replay: &'a mut Replay<'b>,
    progress: &'a mut Progress,
}

impl Target for Wire<'_, '_> {
    fn packet(&mut self, frame: Frame<'_>) -> anyhow::Result<bool> {
        let goes_on = self.replay.push(frame)?;
        let sent = self.replay.counts().frames;
        self.progress.show(|_| {
            let rate = sent as f64 / self.replay.elapsed().as_secs_f64().max(1e-9);
            format!("{sent} packets sent, {rate:.0} packets/s")
        });
        Ok(goes_on)
    }

    fn next_pass(&mut self) {
        self.replay.next_pass();
    }
}

/// Sends while it reads.
fn play(
    args: &Args,
    source: &FrameSource<'_>,
    replay: &mut Replay<'_>,
    progress: &mut Progress,
) -> anyhow::Result<Vec<Gap>> {
    let mut gaps = Vec::new();
    for _ in 0..args.passes {
        let (goes_on, now_gaps) = source.read(&mut Wire { replay, progress })?;
        // The gaps are the same in every pass.
        gaps = now_gaps;
        if !goes_on || is_stopped() {
            break;
        }
    }
    Ok(gaps)
}

/// Packets in memory.
struct Memory<'a> {
    /// Those of each pass.
    passes: Vec<Frames>,
    /// How many more can be sent.
    left: u64,
    progress: &'a mut Progress,
}

impl Target for Memory<'_> {
    fn packet(&mut self, frame: Frame<'_>) -> anyhow::Result<bool> {
        if is_stopped() || self.left == 0 {
            return Ok(false);
        }
        self.left -= u64::from(frame.link == LinkType::ETHERNET);
        if let Some(frames) = self.passes.last_mut() {
            frames.push(frame);
            self.progress.show(|_| format!("{} packets read", frames.len()));
        }
        Ok(true)
    }

    fn next_pass(&mut self) {
        self.passes.push(Frames::default());
    }
}

/// Reads all, then sends all.
fn play_preloaded(
    args: &Args,
    source: &FrameSource<'_>,
    replay: &mut Replay<'_>,
    progress: &mut Progress,
) -> anyhow::Result<Vec<Gap>> {
    let started = Instant::now();
    let left = args.count_max.unwrap_or(u64::MAX);
    let mut memory = Memory { passes: vec![Frames::default()], left, progress };
    let (_, gaps) = source.read(&mut memory)?;
    let mut passes = memory.passes;
    passes.retain(|frames| !frames.is_empty());
    let packets: usize = passes.iter().map(Frames::len).sum();
    let bytes: usize = passes.iter().map(Frames::memory_bytes).sum();
    let (mib, seconds) = (bytes as f64 / f64::from(1 << 20), started.elapsed().as_secs_f64());
    let packets = counted(packets as u64, "packet");
    note(&format!("read {packets} into {mib:.1} MiB of memory, {seconds:.2} s"));
    for _ in 0..args.passes {
        for frames in &passes {
            let mut wire = Wire { replay, progress };
            for frame in frames.iter() {
                if !wire.packet(frame)? {
                    return Ok(gaps);
                }
            }
            wire.next_pass();
        }
        if is_stopped() {
            break;
        }
    }
    Ok(gaps)
}

/// Prints what was sent, on one line, and what was skipped or truncated.
fn summary(replay: &Replay<'_>, seconds: f64) {
    let counts = replay.counts();
    let rate = |number: f64| if seconds > 0.0 { number / seconds } else { 0.0 };
    note(&format!(
        "sent {}, {} bytes, {} skipped, {} retried, {seconds:.3} s, {:.0} packets/s, {:.3} Gb/s",
        counted(counts.frames, "packet"),
        counts.bytes,
        counts.skipped(),
        counts.retried,
        rate(counts.frames as f64),
        rate(counts.bytes as f64 * 8.0 / 1e9),
    ));
    let reasons = [
        (counts.cut, "truncated in the capture, and sent truncated"),
        (counts.other_link, "skipped: not Ethernet"),
        (counts.too_long, "skipped: longer than the interface's MTU"),
        (counts.too_short, "skipped: incomplete Ethernet header"),
    ];
    for (number, reason) in reasons {
        if number > 0 {
            let were = if number == 1 { "was" } else { "were" };
            note(&format!("{} {were} {reason}", counted(number, "packet")));
        }
    }
}
