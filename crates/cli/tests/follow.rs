//! `--follow`, behind a recorder that gets its packets through standard input; and what signals do
//! to commands.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]
#![allow(unreachable_pub, reason = "modules of a test")]

mod net;
mod place;

use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use net::{comes, root, signal, until, wait};
use place::{Place, TAPDEX};
use tapdex_engine::archive::Archive;
use tapdex_record::status::Status;

/// More than a pipe has room for, printed or as a capture.
const MANY: usize = 20_000;
/// The number of SIGHUP.
const HANGUP: u32 = 1;
/// No process of these tests lives longer.
const LIFE_MAX: Duration = Duration::from_secs(300);

impl Place {
    /// Begins to run tapdex.
    fn start(&self, args: &str) -> Running {
        let mut command = Command::new(TAPDEX);
        command.args(args.split_whitespace()).stdin(Stdio::piped());
        self.spawn(&mut command)
    }

    fn spawn(&self, command: &mut Command) -> Running {
        command.current_dir(self.folder()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.env_remove("TAPDEX_ARCHIVE").env_remove("TAPDEX_DEVICE");
        let mut child = command.spawn().unwrap();
        let said = Arc::<Mutex<String>>::default();
        let (heard, mut lines) = (Arc::clone(&said), BufReader::new(child.stderr.take().unwrap()));
        let listener = std::thread::spawn(move || {
            let mut line = String::new();
            while lines.read_line(&mut line).unwrap_or(0) > 0 {
                heard.lock().unwrap().push_str(&line);
                line.clear();
            }
        });
        let out = BufReader::new(child.stdout.take().unwrap());
        let (input, done) = (child.stdin.take(), Arc::<AtomicBool>::default());
        let (is_done, pid) = (Arc::clone(&done), child.id());
        // What is waited for in vain ends, too.
        std::thread::spawn(move || {
            let started = Instant::now();
            while !is_done.load(Ordering::Relaxed) {
                if started.elapsed() > LIFE_MAX {
                    root(&format!("kill -KILL {pid}"));
                    return;
                }
                std::thread::sleep(Duration::from_millis(50));
            }
        });
        Running { child, input, out: Some(out), said, listener: Some(listener), done }
    }

    /// A recorder that waits for packets, and packets for it: the head of a capture, then each.
    fn record(&self, args: &str, packets: usize) -> (Running, Vec<Vec<u8>>) {
        self.sh(&format!("tapdex gen -c {packets} --mean-len 100 -w fed.pcap --force"));
        let recorder = self.start(&format!("record -i - -w archive --limit 100% {args}"));
        recorder.says("tapdex: recording ");
        (recorder, pieces(&self.path("fed.pcap")))
    }

    /// How many packets libpcap finds in a file; `None` if it does not take it for a capture.
    fn packets(&self, name: &str) -> Option<usize> {
        let mut command = Command::new("tcpdump");
        let output = command.args(["-nn", "-r"]).arg(self.path(name)).output().unwrap();
        let lines = output.stdout.iter().filter(|&&byte| byte == b'\n').count();
        output.status.success().then_some(lines)
    }

    /// What the recorder says of itself.
    fn status(&self) -> Option<Status> {
        Status::read(&Archive::open(&self.path("archive")).ok()?)
    }

    /// Complete recordings.
    fn sealed(&self) -> Vec<String> {
        let entries = self.path("archive/packets").read_dir().unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<String> = names.filter(|name| name.starts_with("rec-")).collect();
        names.sort();
        names
    }
}

/// The head of a pcap file, and its packets.
fn pieces(path: &Path) -> Vec<Vec<u8>> {
    let bytes = std::fs::read(path).unwrap();
    let (mut pieces, mut at) = (vec![bytes[..24].to_vec()], 24);
    while at < bytes.len() {
        let len = u32::from_le_bytes(bytes[at + 8..at + 12].try_into().unwrap());
        let end = at + 16 + len as usize;
        pieces.push(bytes[at..end].to_vec());
        at = end;
    }
    pieces
}

/// A process. It is ended when this is dropped.
struct Running {
    child: Child,
    input: Option<ChildStdin>,
    out: Option<BufReader<ChildStdout>>,
    said: Arc<Mutex<String>>,
    listener: Option<JoinHandle<()>>,
    done: Arc<AtomicBool>,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.done.store(true, Ordering::Relaxed);
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

impl Running {
    fn said(&self) -> String {
        self.said.lock().unwrap().clone()
    }

    #[track_caller]
    fn says(&self, text: &str) {
        let said = comes(|| self.said().contains(text));
        assert!(said, "it does not say: {text}, but: {}", self.said());
    }

    #[track_caller]
    fn signal(&self, name: &str) {
        signal(&self.child, name);
    }

    /// What the kernel says of each of its threads.
    fn threads(&self) -> Vec<Thread> {
        let folder = Path::new("/proc").join(self.child.id().to_string()).join("task");
        let threads = folder.read_dir().into_iter().flatten().flatten();
        let read = |path: &Path| std::fs::read_to_string(path.join("status"));
        threads.filter_map(|thread| Some(Thread(read(&thread.path()).ok()?))).collect()
    }

    /// How often the thread that waits for signals has gone to sleep, if it sleeps.
    fn sleeps(&self) -> Option<u64> {
        self.threads().iter().find(|thread| thread.value("Name:") == "ctrl-c")?.sleeps()
    }

    /// Waits until all threads wait for something that comes from outside.
    #[track_caller]
    fn holds_still(&self) {
        let mut before = None;
        until("all threads sleep", || {
            let now: Option<Vec<u64>> = self.threads().iter().map(Thread::sleeps).collect();
            let now = now.filter(|sleeps| !sleeps.is_empty());
            // None of them was awake between the two looks.
            let last = std::mem::replace(&mut before, now);
            before.is_some() && before == last
        });
    }

    /// Sends a signal, and waits until the process has seen it.
    #[track_caller]
    fn is_told(&self, name: &str) {
        let mut before = None;
        until("a thread that waits for signals", || {
            let last = std::mem::replace(&mut before, self.sleeps());
            before.is_some() && before == last
        });
        self.signal(name);
        until("that the signal is seen", || self.sleeps() > before);
    }

    fn feed(&mut self, pieces: &[Vec<u8>]) {
        let input = self.input.as_mut().unwrap();
        input.write_all(&pieces.concat()).unwrap();
        input.flush().unwrap();
    }

    /// The next line that it prints.
    fn line(&mut self) -> String {
        let mut line = String::new();
        self.out.as_mut().unwrap().read_line(&mut line).unwrap();
        line
    }

    /// Reads all that it prints.
    fn rest(&mut self) -> Vec<u8> {
        let mut rest = Vec::new();
        self.out.take().unwrap().read_to_end(&mut rest).unwrap();
        rest
    }

    /// Waits until it ends, in time; its exit code and what it said.
    #[track_caller]
    fn ends(mut self, code: i32) -> String {
        let ended = wait(&mut self.child);
        drop(self.child.kill());
        self.listener.take().unwrap().join().unwrap();
        assert_eq!(ended, Some(code), "{}", self.said());
        self.said()
    }
}

/// What the kernel says of a thread.
struct Thread(String);

impl Thread {
    fn value(&self, name: &str) -> &str {
        self.0.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default().trim()
    }

    /// How often it has gone to sleep, if it sleeps.
    fn sleeps(&self) -> Option<u64> {
        self.value("State:").strip_prefix('S')?;
        self.value("voluntary_ctxt_switches:").parse().ok()
    }

    /// Whether a signal, by its number, does nothing to it.
    fn is_deaf_to(&self, signal: u32) -> bool {
        let is_in = |name| {
            let mask = u64::from_str_radix(self.value(name), 16).unwrap();
            mask >> (signal - 1) & 1 == 1
        };
        is_in("SigBlk:") || is_in("SigIgn:")
    }
}

/// The part of a line of JSON behind a name.
#[track_caller]
fn member<'a>(line: &'a str, name: &str) -> &'a str {
    let rest = line.split_once(&format!("\"{name}\":")).unwrap_or_else(|| panic!("{line}")).1;
    rest.split([',', '}']).next().unwrap().trim_matches('"')
}

#[test]
fn packets_are_named_by_the_file_that_they_will_be_in() {
    let place = Place::new();
    let (mut recorder, pieces) = place.record("", 10);
    recorder.feed(&pieces[..6]);
    until("five packets", || place.sh("tapdex search -r archive --count") == "5\n");
    let mut follower = place.start("search -r archive --follow --json -c 10");
    let mut lines = String::new();
    for _ in 0..5 {
        lines.push_str(&follower.line());
    }
    assert_eq!(place.sh("tapdex search -r archive --json"), lines);
    recorder.feed(&pieces[6..]);
    for _ in 0..5 {
        lines.push_str(&follower.line());
    }
    assert!(follower.ends(0).contains("matched 10 packets"));
    let segments = place.sh("tapdex info -r archive --json --segments");
    let open = segments.lines().find(|line| line.contains("\"segment\"")).unwrap().to_owned();
    recorder.signal("TERM");
    recorder.ends(0);
    let file = format!("archive/packets/{}", place.sealed()[0]);
    assert_eq!(member(&open, "file"), file);
    assert!(lines.lines().all(|line| member(line, "file") == file), "{lines}");
    // Nothing is different once it is complete and indexed.
    assert_eq!(place.sh("tapdex search -r archive --json"), lines);
}

#[test]
fn ctrl_c_ends_the_first_answer() {
    let place = Place::new();
    place.sh(&format!("tapdex gen -c {MANY} -w a.pcap && tapdex index a.pcap -o archive"));
    let count = |out: &[u8]| out.iter().filter(|&&byte| byte == b'\n').count();
    for args in ["search -r archive --follow", "extract -r archive --follow -w -"] {
        // It has begun, and cannot go on as long as nobody reads.
        let mut follower = place.start(args);
        assert!(!follower.out.as_mut().unwrap().fill_buf().unwrap().is_empty());
        follower.is_told("INT");
        let out = follower.rest();
        assert!(follower.ends(0).contains("matched "));
        if args.starts_with("search") {
            assert!((1..MANY).contains(&count(&out)), "{args}");
        } else {
            std::fs::write(place.path("out.pcapng"), out).unwrap();
            assert!((1..MANY).contains(&place.packets("out.pcapng").unwrap()), "{args}");
        }
        // A second one does not wait for a reader. The pipe is full before the first: what is in
        // the middle of it would end by itself.
        let mut follower = place.start(args);
        assert!(!follower.out.as_mut().unwrap().fill_buf().unwrap().is_empty());
        follower.holds_still();
        follower.is_told("INT");
        follower.signal("INT");
        follower.ends(130);
    }
}

#[test]
fn what_was_followed_is_in_the_file() {
    let place = Place::new();
    let (mut recorder, pieces) = place.record("", 30);
    for (signal, name) in [("INT", "a.pcapng"), ("TERM", "b.pcap")] {
        let follower = place.start(&format!("extract -r archive --follow -w {name}"));
        let first = if signal == "INT" { 0 } else { 21 };
        recorder.feed(&pieces[first..first + if first == 0 { 21 } else { 10 }]);
        let all = if first == 0 { 20 } else { 30 };
        // Whoever cannot wait finds it under its hidden name.
        let hidden = format!(".{name}.tmp");
        until(&format!("{all} packets in {hidden}"), || place.packets(&hidden) == Some(all));
        assert!(!place.path(name).exists());
        follower.signal(signal);
        let said = follower.ends(0);
        assert!(said.contains(&format!("matched {all} packets")), "{said}");
        assert!(!said.contains("no recorder runs"), "{said}");
        assert_eq!(place.packets(name), Some(all));
        assert!(!place.path(&hidden).exists());
    }
    recorder.signal("TERM");
    recorder.ends(0);
}

#[test]
fn it_ends_when_its_reader_is_gone() {
    let place = Place::new();
    place.sh("tapdex gen -c 3 -w a.pcap && tapdex index a.pcap -o archive");
    for args in ["search -r archive --follow", "extract -r archive --follow -w -"] {
        let mut follower = place.start(args);
        follower.says("no recorder is running on archive; waiting");
        let mut some = [0; 10];
        follower.out.as_mut().unwrap().read_exact(&mut some).unwrap();
        // It waits as long as there is a reader.
        assert!(follower.child.try_wait().unwrap().is_none());
        drop(follower.out.take());
        let said = follower.ends(0);
        assert_eq!(said.lines().count(), 1, "{said}");
    }
}

#[test]
fn what_was_removed_before_it_was_read_is_said() {
    let place = Place::new();
    let (mut recorder, pieces) = place.record("--rotate 10packets --max-segments 1", 60);
    recorder.feed(&pieces[..2]);
    let mut follower = place.start("search -r archive --follow");
    assert!(!follower.line().is_empty());
    // When it prints what came after its first answer it has the recording open.
    recorder.feed(&pieces[2..3]);
    assert!(!follower.line().is_empty());
    follower.signal("STOP");
    let mut fed = 2;
    for packets in pieces[3..].chunks(10) {
        recorder.feed(packets);
        fed += packets.len() as u64;
        let packets = || place.status().unwrap_or_default().run.packets;
        until(&format!("{fed} packets"), || packets() == fed);
    }
    // Nothing is removed any more: all that is closed has its name and its index, and has been
    // counted.
    until("three recordings that are gone, and rest", || {
        let status = place.status().unwrap_or_default();
        let there = place.path("archive/packets").read_dir().unwrap().count() as u64;
        status.run.removed_segments >= 3 && status.waiting == 0 && status.segments == there
    });
    follower.signal("CONT");
    follower.says("before they were read");
    follower.signal("INT");
    let printed = String::from_utf8(follower.rest()).unwrap();
    // The one that it had open is read to its end, though it is gone.
    assert!(printed.lines().count() >= 8, "{printed}");
    let said = follower.ends(3);
    assert!(said.contains("tapdex: incomplete: a recording could not be read"), "{said}");
    recorder.signal("TERM");
    recorder.ends(0);
}

#[test]
fn a_damaged_recording_is_said() {
    let place = Place::new();
    let (mut recorder, pieces) = place.record("", 20);
    recorder.feed(&pieces);
    drop(recorder.input.take());
    recorder.ends(0);
    let first = place.sealed().remove(0);
    let mut follower = place.start("search -r archive --follow");
    for _ in 0..20 {
        follower.line();
    }
    follower.says("no recorder is running on archive");
    // The same packets once more, but the last one is cut off.
    let bytes = std::fs::read(place.path(&format!("archive/packets/{first}"))).unwrap();
    let second = first.replace("-0000000001-", "-0000000002-");
    assert_ne!(first, second);
    let end = bytes.len() - 1;
    std::fs::write(place.path("cut"), &bytes[..end]).unwrap();
    place.sh(&format!("mv cut archive/packets/{second}"));
    follower.says("is cut off");
    follower.signal("TERM");
    let printed = String::from_utf8(follower.rest()).unwrap();
    assert!(printed.lines().count() >= 19, "{printed}");
    let said = follower.ends(3);
    assert!(said.contains(&second), "{said}");
    assert_eq!(said.matches("is cut off").count(), 1, "{said}");
}

#[test]
fn info_says_what_a_recorder_does() {
    let place = Place::new();
    let recorder_line = || {
        let out = place.sh("tapdex info -r archive --json");
        out.lines().find(|line| line.starts_with("{\"recorder\"")).unwrap_or_default().to_owned()
    };
    for (signal, code, state) in [("TERM", Some(0), "ended"), ("KILL", None, "killed")] {
        let (mut recorder, pieces) = place.record("", 10);
        recorder.feed(&pieces);
        let pid = recorder.child.id().to_string();
        let mut line = String::new();
        let is_running = |line: &str| {
            !line.is_empty() && member(line, "state") == "running" && member(line, "pid") == pid
        };
        until("a recorder that runs", || {
            line = recorder_line();
            is_running(&line)
        });
        assert!(member(&line, "updated").starts_with("20"), "{line}");
        recorder.signal(signal);
        assert_eq!(wait(&mut recorder.child), code);
        let line = recorder_line();
        assert_eq!((member(&line, "state"), member(&line, "pid")), (state, pid.as_str()));
        let text = place.sh("tapdex info -r archive");
        let mut words = String::new();
        write!(words, "recorder           {state} ").unwrap();
        assert!(text.contains(&words), "{text}");
    }
}

#[test]
fn sigterm_clears_up_as_ctrl_c_does() {
    let place = Place::new();
    // Packets are cut, so that the disk is not full before it is told to stop.
    let writer = place.start("gen -c 1000000000 --snaplen 14 -w big.pcap");
    until("a hidden file", || place.path(".big.pcap.tmp").exists());
    writer.signal("TERM");
    writer.ends(130);
    assert_eq!(place.folder().read_dir().unwrap().count(), 0);
    // What gives no packets for now does not see that it is to stop; the next packet shows it.
    place.sh("tapdex gen -c 100 -w a.pcap");
    let mut indexer = place.start("index - -o archive");
    let pieces = pieces(&place.path("a.pcap"));
    indexer.feed(&pieces[..50]);
    until("a folder for packets", || place.path("archive/packets").is_dir());
    indexer.is_told("TERM");
    indexer.feed(&pieces[50..]);
    drop(indexer.input.take());
    let said = indexer.ends(130);
    assert!(said.contains("interrupted; finished segments are kept"), "{said}");
}

#[test]
fn nohup_goes_on_when_the_terminal_is_gone() {
    let place = Place::new();
    place.sh("tapdex gen -c 3 -w a.pcap && tapdex index a.pcap -o archive");
    let mut command = Command::new("sh");
    let line = format!("trap '' HUP; exec {TAPDEX} search -r archive --follow");
    let mut follower = place.spawn(command.args(["-c", &line]).stdin(Stdio::null()));
    follower.says("no recorder is running on archive");
    let threads = follower.threads();
    assert!(threads.len() > 1 && threads.iter().all(|thread| thread.is_deaf_to(HANGUP)));
    follower.signal("HUP");
    follower.signal("TERM");
    assert_eq!(follower.rest().iter().filter(|&&byte| byte == b'\n').count(), 3);
    follower.ends(0);
}

#[test]
fn what_was_lost_while_it_followed_is_told() {
    use tapdex_engine::capture::Interface;
    use tapdex_engine::capture::blocks::{self, Statistics};
    let place = Place::new();
    let archive = Archive::create(&place.path("archive"), None).unwrap();
    let start = 1_790_000_000_000_000_000;
    // Recordings that come to be one after the other; the second one tells of a loss.
    let put = |lost: u64| {
        let recording = archive.new_recording(start, 0).unwrap();
        let mut bytes = Vec::new();
        blocks::section(&mut bytes, "");
        blocks::interface(&mut bytes, &Interface::new(1, 1_000_000_000), "");
        blocks::packet(&mut bytes, 0, start + lost, 60, &[0; 60]);
        let counts = Statistics {
            start_ns: start,
            end_ns: start + lost,
            received: lost,
            lost_by_kernel: lost,
            ..Statistics::default()
        };
        blocks::statistics(&mut bytes, 0, &counts);
        std::fs::write(recording.unfinished_path(), bytes).unwrap();
        std::fs::rename(recording.unfinished_path(), recording.sealed_path()).unwrap();
    };
    put(0);
    for (args, code) in [("", 3), ("--allow-incomplete", 0), ("--to 2000-01-01T00:00:00Z", 0)] {
        let mut follower = place.start(&format!("search -r archive --follow -c 2 {args}"));
        if code == 3 {
            follower.line();
            put(46_000);
            follower.line();
        }
        let said = follower.ends(code);
        let is_told = said.contains("46000 packets lost while recording");
        assert_eq!(is_told, !args.starts_with("--to"), "{args}: {said}");
    }
    let follower = place.start("extract -r archive --follow -c 2 -w out.pcapng");
    follower.says("no recorder is running");
    put(503);
    assert!(follower.ends(3).contains("46503 packets lost while recording"));
}
