//! `tapdex record` that is killed at any moment, and on a disk that is too small: the real binary,
//! fed through a pipe with numbered packets.
//!
//! `TAPDEX_KILLS=200` kills it as often, `TAPDEX_DISK_TEST=full` records two gigabytes onto two
//! hundred megabytes.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::fs;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tapdex_engine::archive::Archive;
use tapdex_engine::capture::{self, CaptureWriter, FileFormat, Interface};
use tapdex_record::source::{frame_number, numbered_frame};
use tapdex_record::status::Status;

/// What takes longer never comes.
const PATIENCE: Duration = Duration::from_secs(120);

const FRAME_BYTES: usize = 400;

/// A packet with a number in it.
fn frame(number: u64) -> Vec<u8> {
    numbered_frame(number, FRAME_BYTES)
}

/// The number of a packet, all of which has to be as it was made.
fn number(data: &[u8]) -> u64 {
    frame_number(data).unwrap()
}

/// A folder with an archive.
struct Place {
    folder: PathBuf,
    _owned: Option<tempfile::TempDir>,
}

impl Place {
    fn new() -> Self {
        let owned = tempfile::tempdir().unwrap();
        Self { folder: owned.path().to_owned(), _owned: Some(owned) }
    }

    fn archive(&self) -> PathBuf {
        self.folder.join("archive")
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tapdex"));
        command.args(words).current_dir(&self.folder).env("TAPDEX_ARCHIVE", "archive");
        command
    }

    /// What a command prints that goes well.
    #[track_caller]
    fn run(&self, words: &[&str]) -> String {
        let output = self.command(words).stdin(Stdio::null()).output().unwrap();
        let err = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{words:?}: {:?} {err}", output.status);
        String::from_utf8(output.stdout).unwrap()
    }

    #[track_caller]
    fn count(&self) -> u64 {
        self.run(&["search", "--count", "--allow-incomplete", "udp port 53"])
            .trim_end()
            .parse()
            .unwrap()
    }

    /// How many packets `info` says were recorded, in all runs.
    fn recorded(&self) -> u64 {
        let output = self.command(&["info"]).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let row = text.lines().find_map(|row| row.strip_prefix("recorded "));
        row.map_or(0, |row| row.split_whitespace().next().unwrap().parse().unwrap())
    }

    fn record(&self, options: &[&str]) -> Child {
        let mut command = self.command(&["record", "-i", "-"]);
        command.args(options).stdin(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().unwrap()
    }

    fn status(&self) -> Option<Status> {
        Status::read(&Archive::open(&self.archive()).ok()?)
    }

    /// The numbers of all packets of the archive, extracted.
    #[track_caller]
    fn numbers(&self) -> Vec<u64> {
        let target = self.folder.join("found.pcapng");
        let target_name = target.to_str().unwrap();
        self.run(&["extract", "--allow-incomplete", "-w", target_name, "udp port 53"]);
        let mut reader = capture::open(&target).unwrap();
        let mut numbers = Vec::new();
        while let Some(record) = reader.next().unwrap() {
            numbers.push(number(record.data));
        }
        fs::remove_file(target).unwrap();
        numbers
    }
}

/// Numbered packets on their way into a pipe, from a number on. It ends when nobody reads any more,
/// or it is told to.
struct Feed {
    thread: std::thread::JoinHandle<u64>,
    stop: Arc<AtomicBool>,
}

impl Feed {
    /// `pause` is slept after every 100 packets.
    fn start(child: &mut Child, first: u64, most: u64, pause: Duration) -> Self {
        Self::with_pauses(child, first, most, move |next| {
            if next.is_multiple_of(100) && !pause.is_zero() {
                std::thread::sleep(pause);
            }
        })
    }

    /// `pause` is called after each packet with the number of the next one.
    fn with_pauses(
        child: &mut Child,
        first: u64,
        most: u64,
        pause: impl Fn(u64) + Send + 'static,
    ) -> Self {
        let pipe = child.stdin.take().unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            let interface = Interface::new(1, 1_000_000_000);
            let pipe = BufWriter::with_capacity(1 << 16, pipe);
            let mut next = first;
            let Ok(mut writer) = CaptureWriter::new(pipe, FileFormat::Pcap, &[interface], "")
            else {
                return next;
            };
            let len = u32::try_from(FRAME_BYTES).unwrap();
            while next - first < most && !stopped.load(Ordering::SeqCst) {
                let time_ns = 1_790_000_000_000_000_000 + next * 1_000;
                if writer.packet(0, time_ns, len, &frame(next)).is_err() {
                    break;
                }
                next += 1;
                pause(next);
            }
            if let Ok(mut pipe) = writer.finish() {
                drop(pipe.flush());
            }
            next
        });
        Self { thread, stop }
    }

    /// The number behind the last packet that was sent.
    fn end(self) -> u64 {
        self.stop.store(true, Ordering::SeqCst);
        self.thread.join().unwrap()
    }
}

/// Waits for something that is certain to come.
#[track_caller]
fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let started = Instant::now();
    while !is_so() {
        assert!(started.elapsed() < PATIENCE, "{what}: never");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Waits for a process; kills it if it does not end.
#[track_caller]
fn wait(child: &mut Child) {
    let started = Instant::now();
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            let mut said = String::new();
            if let Some(mut err) = child.stderr.take() {
                std::io::Read::read_to_string(&mut err, &mut said).unwrap();
            }
            assert!(status.success(), "{status}: {said}");
            return;
        }
        if started.elapsed() > PATIENCE {
            child.kill().unwrap();
            panic!("it does not end");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Hidden files of the archive that somebody has left, but for those of the recorder itself, and
/// drafts.
fn left_behind(archive: &Path) -> Vec<String> {
    let names = |folder: &str| -> Vec<String> {
        let entries = fs::read_dir(archive.join(folder)).into_iter().flatten();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    };
    let hidden = ["packets", "segments"].into_iter().flat_map(names);
    hidden.filter(|name| name.starts_with('.')).chain(names("drafts")).collect()
}

/// Milliseconds from a start to a kill: most often early, where files come and go.
fn moments() -> impl Iterator<Item = u64> {
    let mut state = 0x2545_F491_4F6C_DD1D_u64;
    std::iter::repeat_with(move || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let draw = state >> 33;
        match draw % 4 {
            0 => draw / 4 % 120,
            1 => 100 + draw / 4 % 500,
            2 => 300 + draw / 4 % 1_000,
            _ => 1_000 + draw / 4 % 800,
        }
    })
}

#[test]
fn killed_at_any_moment_it_has_what_it_had() {
    let kills = std::env::var("TAPDEX_KILLS").map_or(12, |kills| kills.parse().unwrap());
    let place = Place::new();
    // The last is never reached: what was written then is in a file that nobody has sealed.
    let rotations = ["64KiB,50ms", "256KiB", "1MiB,1000packets", "1GiB"];
    // Packets that are in the archive for good, and the number of the next one to send.
    let (mut safe, mut next) = (0_u64, 0);
    let (mut synced_sum, mut recovered) = (0, 0);
    for (round, moment) in (0..kills).zip(moments()) {
        let rotation = rotations[round % rotations.len()];
        let mut child = place.record(&["--rotate", rotation, "--limit", "100%"]);
        let pid = child.id();
        let feed = Feed::start(&mut child, next, u64::MAX, Duration::from_millis(2));
        std::thread::sleep(Duration::from_millis(moment));
        // What it says of itself, if it has come to say anything in this round.
        let synced = || {
            let status = place.status().filter(|status| status.pid == pid);
            status.map_or(0, |status| status.synced_packets)
        };
        // Once it has: the others may all be killed too early, for this machine.
        if round == rotations.len() - 1 {
            until("packets that are called synced", || synced() > 0);
        }
        let synced = synced();
        child.kill().unwrap();
        child.wait().unwrap();
        next = feed.end();
        synced_sum += synced;
        if !place.archive().join("archive.toml").exists() {
            continue; // killed before there was anything
        }
        let unfinished = !left_behind(&place.archive()).is_empty();
        recovered += u64::from(unfinished);
        assert!(unfinished || synced == 0 || rotation != "1GiB", "round {round}");
        // Nothing has to be started for what is there to be found.
        let found = place.count();
        assert!(found >= safe + synced, "round {round}: {found} of {safe} and {synced}");
        assert_eq!(place.recorded(), found, "round {round}");

        // The next start puts all right, and has nothing to record itself.
        let mut child = place.record(&["--rotate", rotation, "--limit", "100%"]);
        Feed::start(&mut child, next, 0, Duration::ZERO).end();
        wait(&mut child);
        assert_eq!(left_behind(&place.archive()), [""; 0], "round {round}");
        assert_eq!((place.count(), place.recorded()), (found, found), "round {round}");
        safe = found;
        // All of it is looked at now and then, and at the end.
        if round % 10 == 3 || round + 1 == kills {
            place.run(&["verify", "--allow-incomplete"]);
            let numbers = place.numbers();
            assert_eq!(numbers.len() as u64, found);
            assert!(numbers.is_sorted_by(|a, b| a < b), "round {round}: a packet twice");
        } else {
            place.run(&["verify", "--quick", "--allow-incomplete"]);
        }
    }
    eprintln!(
        "{kills} kills: {next} packets sent, {safe} found, {synced_sum} of them had been called \
         synced, {recovered} times something was unfinished"
    );
    assert!(safe > 0 && synced_sum > 0 && recovered > 0);
    let archive = Archive::open(&place.archive()).unwrap();
    assert_eq!(archive.recordings().unwrap().iter().filter(|r| !r.is_sealed()).count(), 0);
    let (segments, failed) = archive.segments().unwrap();
    assert!(failed.is_empty() && segments.iter().all(|segment| !segment.is_draft()));
}

#[test]
fn what_was_sent_before_a_kill_is_there_without_a_gap() {
    let place = Place::new();
    let mut child = place.record(&["--rotate", "256KiB", "--limit", "100%"]);
    let feed = Feed::start(&mut child, 0, u64::MAX, Duration::from_millis(1));
    let mut synced = 0;
    until("2,000 packets that are called synced", || {
        synced = place.status().map_or(0, |status| status.synced_packets);
        synced > 2_000
    });
    child.kill().unwrap();
    child.wait().unwrap();
    let sent = feed.end();
    let numbers = place.numbers();
    let found = numbers.len() as u64;
    assert!(synced <= found && found <= sent);
    assert_eq!(numbers, Vec::from_iter(0..found));
    // The sums are right, and repair does what a start would do.
    place.run(&["repair"]);
    assert_eq!(left_behind(&place.archive()), [""; 0]);
    assert_eq!(place.numbers(), numbers);
    place.run(&["verify", "--allow-incomplete"]);
}

/// Set in the process that has a disk of its own.
const INSIDE: &str = "TAPDEX_TEST_INSIDE";

#[test]
fn a_small_disk_is_never_full() {
    if std::env::var_os(INSIDE).is_some() {
        return on_a_small_disk();
    }
    let me = std::env::current_exe().unwrap();
    let mut command = Command::new("unshare");
    command.args(["-m", "--propagation", "private"]).arg(me);
    command.args(["--exact", "a_small_disk_is_never_full", "--nocapture"]).env(INSIDE, "1");
    let can = Command::new("unshare").args(["-m", "mount", "-t", "tmpfs", "none", "/mnt"]).output();
    if !can.is_ok_and(|output| output.status.success()) {
        eprintln!("no disk of our own can be mounted here: passed over");
        return;
    }
    let output = command.output().unwrap();
    let [out, err] = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text));
    assert!(output.status.success() && out.contains("1 passed"), "{out}{err}");
    eprint!("{err}");
}

/// Percent of the disk in use, and bytes free, as df has them.
fn df(folder: &Path) -> (u64, u64) {
    let output = Command::new("df").args(["-B1", "--output=pcent,avail"]).arg(folder).output();
    let text = String::from_utf8(output.unwrap().stdout).unwrap();
    let mut words = text.lines().last().unwrap().split_whitespace();
    let percent = words.next().unwrap().trim_end_matches('%').parse().unwrap();
    (percent, words.next().unwrap().parse().unwrap())
}

fn on_a_small_disk() {
    let is_full = std::env::var("TAPDEX_DISK_TEST").is_ok_and(|kind| kind == "full");
    let (disk, recorded) = if is_full { ("200M", 2_000_u64) } else { ("24M", 240) };
    let packets = recorded * 1_000_000 / 432;
    let mount = tempfile::tempdir().unwrap();
    let size = format!("size={disk}");
    let mounted =
        Command::new("mount").args(["-t", "tmpfs", "-o", &size, "none"]).arg(mount.path()).status();
    assert!(mounted.unwrap().success());
    let place = Place { folder: mount.path().to_owned(), _owned: None };
    let mut child = place.record(&["-j", "1"]);
    let ended = Arc::<AtomicBool>::default();
    let searches = Arc::<AtomicU64>::default();
    let (is_over, made) = (Arc::clone(&ended), Arc::clone(&searches));
    let feed = Feed::with_pauses(&mut child, 0, packets, move |next| {
        // There are searches while it records, however long they take.
        while next == packets / 2 && made.load(Ordering::SeqCst) <= 3 {
            if is_over.load(Ordering::SeqCst) {
                break;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    });
    let (mut most_percent, mut least_free) = (0, u64::MAX);
    std::thread::scope(|scope| {
        let searching = scope.spawn(|| {
            while !ended.load(Ordering::SeqCst) {
                if place.archive().join("archive.toml").exists() {
                    place.count();
                    searches.fetch_add(1, Ordering::SeqCst);
                }
                std::thread::sleep(Duration::from_millis(20));
            }
        });
        let started = Instant::now();
        while child.try_wait().unwrap().is_none() {
            let (percent, free) = df(&place.folder);
            (most_percent, least_free) = (percent.max(most_percent), free.min(least_free));
            if started.elapsed() > 3 * PATIENCE || searching.is_finished() {
                child.kill().unwrap();
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        ended.store(true, Ordering::SeqCst);
        searching.join().unwrap();
    });
    wait(&mut child);
    assert_eq!(feed.end(), packets);
    assert!(most_percent < 100 && least_free > 0, "{most_percent} %, {least_free} bytes free");
    let status = place.status().unwrap();
    let count = place.count();
    assert!(status.ended && status.run.packets == packets, "{status:?}");
    assert_eq!(count + status.run.removed_packets, packets, "{status:?}");
    assert_eq!((status.run.lost.sum(), status.run.pauses), (0, 0));
    // The newest are there, and nothing is missing between them.
    let numbers = newest(&place, packets - count / 4);
    assert_eq!(numbers, Vec::from_iter(packets - count / 4..packets));
    place.run(&["verify", "--allow-incomplete"]);
    assert_eq!(left_behind(&place.archive()), [""; 0]);
    let searches = searches.load(Ordering::SeqCst);
    assert!(searches > 3, "{searches}");
    eprintln!(
        "{packets} packets of {recorded} MB onto {disk}: at most {most_percent} % in use, at least \
         {least_free} bytes free, {} recordings removed, {count} packets left, {searches} searches",
        status.run.removed_segments
    );
    let unmounted = Command::new("umount").arg("-l").arg(mount.path()).status();
    assert!(unmounted.unwrap().success());
}

/// The numbers of packets from this one on. The disk has no room for them: they come as text.
fn newest(place: &Place, first: u64) -> Vec<u64> {
    let from = format!("{}", 1_790_000_000 + first / 1_000_000);
    // What was removed is from the same second.
    let args = ["extract", "--allow-incomplete", "--from", &from, "-w", "-", "udp port 53"];
    let mut command = place.command(&args);
    let output = command.stdin(Stdio::null()).output().unwrap();
    assert!(output.status.success());
    let mut reader = capture::CaptureReader::open(&output.stdout[..]).unwrap();
    let mut numbers = Vec::new();
    while let Some(record) = reader.next().unwrap() {
        numbers.push(number(record.data));
    }
    numbers.retain(|&number| number >= first);
    numbers
}
