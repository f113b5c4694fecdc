//! A cable, what is sent into it, and a recorder at its end.

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use tapdex_engine::archive::Archive;
use tapdex_record::status::Status;

use crate::net::{self, Namespace, comes, hand_on, packets_in, until, wait};

pub const TAPDEX: &str = env!("CARGO_BIN_EXE_tapdex");

/// How a run ended.
#[derive(Debug)]
pub struct Ended {
    pub code: Option<i32>,
    pub err: String,
}

impl Ended {
    /// It ended with that code and said that.
    #[track_caller]
    pub fn with(self, code: i32, messages: &[&str]) {
        assert_eq!(self.code, Some(code), "{}", self.err);
        for message in messages {
            assert!(self.err.contains(message), "{message}: {}", self.err);
        }
    }
}

/// A folder for captures and an archive, and a network: `v0` is connected to `v1`.
pub struct Wire {
    pub space: Namespace,
    folder: tempfile::TempDir,
}

/// The options, and one that lets a test record on a disk that is nearly full.
pub fn with_limit(args: &str) -> String {
    let has_its_own = ["--limit", "--config"].iter().any(|option| args.contains(option));
    format!("{args} {}", if has_its_own { "" } else { "--limit 100%" })
}

impl Wire {
    /// Nothing where namespaces cannot be made, which is said.
    pub fn new() -> Option<Self> {
        let space = Namespace::new("record")?;
        space.cable("v0", "v1");
        Some(Self { space, folder: tempfile::tempdir().unwrap() })
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Runs a line of the shell in the folder and in the network; what it prints.
    #[track_caller]
    pub fn sh(&self, line: &str) -> String {
        let line = line.replace("tapdex ", &format!("{TAPDEX} "));
        let mut command = self.space.command("sh");
        let output = command.args(["-c", &line]).current_dir(self.folder.path()).output().unwrap();
        assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    fn tapdex(&self, args: &str) -> Command {
        let mut command = self.space.command(TAPDEX);
        command.args(words(args)).current_dir(self.folder.path());
        command.env_remove("TAPDEX_ARCHIVE").env_remove("TAPDEX_DEVICE");
        command
    }

    /// Runs tapdex to its end, which is soon.
    pub fn run(&self, args: &str) -> Ended {
        Recorder::start(self, args).wait()
    }

    /// Begins to record into `archive`, and waits until it does.
    #[track_caller]
    pub fn record(&self, args: &str) -> Recorder {
        self.record_from(args, Stdio::null())
    }

    #[track_caller]
    pub fn record_from(&self, args: &str, input: Stdio) -> Recorder {
        let mut command = self.tapdex(&format!("record -w archive {}", with_limit(args)));
        let mut recorder = Recorder::spawn(command.stdin(input));
        recorder.says("tapdex: recording ");
        recorder
    }

    /// Sends a capture into the cable; what came to its end.
    #[track_caller]
    pub fn send(&self, args: &str) -> Came {
        let cable = self.watch("v0", "v1");
        cable.came(sent(self.sending("v0", args)))
    }

    /// Begins to send to an interface.
    pub fn sending(&self, interface: &str, args: &str) -> Child {
        let mut command = self.tapdex(&format!("replay -i {interface} {args}"));
        command.stdin(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap()
    }

    /// Counts what comes through a cable from now on.
    pub fn watch<'a>(&'a self, near: &'a str, far: &'a str) -> Cable<'a> {
        let space = &self.space;
        let (before, thrown_away) = (space.arrived(far), space.thrown_away(near));
        Cable { space, ends: [near, far], before, thrown_away }
    }

    /// tcpdump at `v1`, once it listens.
    #[track_caller]
    pub fn tcpdump(&self, name: &str, filter: &str) -> Tcpdump {
        let mut command = self.space.command("tcpdump");
        // In its ring is room for all that is sent, since packets take what they need of it: not so
        // with --immediate-mode.
        command.args(["-Z", "root", "-i", "v1", "-U", "-B", "65536", "-w"]);
        command.arg(self.path(name)).arg(filter);
        let mut tcpdump = Recorder::spawn(command.stdin(Stdio::null()));
        tcpdump.says("listening on v1");
        Tcpdump { process: tcpdump, file: self.path(name) }
    }

    /// How many packets of the archive match, as `tapdex search` says.
    #[track_caller]
    pub fn count(&self, filter: &str) -> u64 {
        // What is missing is looked at where it matters.
        let search = "tapdex search -r archive --count --allow-incomplete";
        self.sh(&format!("{search} '{filter}'")).trim().parse().unwrap()
    }

    /// The packets of a capture or a filter's share of them, as libpcap reads them.
    pub fn frames(&self, name: &str, filter: &str) -> Frames {
        Frames::open(&self.path(name), filter)
    }

    /// All packets of the archive, in the order of their times.
    #[track_caller]
    pub fn recorded(&self) -> Frames {
        self.sh("tapdex extract -r archive --allow-incomplete -w recorded.pcapng --force");
        self.frames("recorded.pcapng", "")
    }

    /// Files of packets in the archive, by their names.
    pub fn files(&self) -> Vec<String> {
        let Ok(entries) = self.path("archive/packets").read_dir() else { return Vec::new() };
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<_> = names.collect();
        names.sort();
        names
    }

    /// Those that are complete.
    pub fn sealed(&self) -> Vec<String> {
        self.files().into_iter().filter(|name| !name.starts_with('.')).collect()
    }

    /// Those that are not.
    pub fn unfinished(&self) -> Vec<String> {
        self.files().into_iter().filter(|name| name.starts_with('.')).collect()
    }

    /// What the recorder says of itself in the archive.
    pub fn status(&self) -> Option<Status> {
        Status::read(&Archive::open(&self.path("archive")).ok()?)
    }

    /// Waits until the recorder has said so often how it is, from now on.
    #[track_caller]
    pub fn tells_again(&self, times: usize) {
        for _ in 0..times {
            let updated = || self.status().map(|status| status.updated_ns);
            let before = updated();
            until("it says how it is", || updated() > before);
        }
    }

    /// How many packets the recorder says are stored or lost in this run.
    pub fn settled(&self) -> u64 {
        self.status().map_or(0, |status| status.run.packets + status.run.lost.sum())
    }

    /// Waits until the recorder says that so many packets are stored or lost.
    #[track_caller]
    pub fn settles(&self, packets: u64) {
        let settled = comes(|| self.settled() == packets);
        assert!(settled, "{packets} packets have come, and not all were seen: {:?}", self.status());
    }
}

/// A cable between two interfaces, or an interface that gets what it sends.
pub struct Cable<'a> {
    space: &'a Namespace,
    ends: [&'a str; 2],
    before: (u64, u64),
    thrown_away: u64,
}

impl Cable<'_> {
    /// Packets that have come to its end.
    pub fn packets(&self) -> u64 {
        self.space.arrived(self.ends[1]).0 - self.before.0
    }

    /// What has come to its end of so many packets and bytes. All of it is where it can be
    /// captured.
    #[track_caller]
    pub fn came(&self, (packets, bytes): (u64, u64)) -> Came {
        hand_on();
        let [near, far] = self.ends;
        let arrived = self.space.arrived(far);
        let arrived = (arrived.0 - self.before.0, arrived.1 - self.before.1);
        let thrown_away = self.space.thrown_away(near) - self.thrown_away;
        let missing = packets.checked_sub(arrived.0);
        let missing = missing.unwrap_or_else(|| panic!("{arrived:?} of {packets} packets"));
        // Where there is no cable, nobody counts what is thrown away, nor the bytes of headers.
        if near != far {
            assert!(missing <= thrown_away, "{missing} are missing, {thrown_away} thrown away");
            assert!(missing > 0 || arrived.1 == bytes, "{arrived:?} of {bytes} bytes");
        }
        Came { packets: arrived.0, bytes: arrived.1, missing, left: arrived.0 + thrown_away }
    }
}

/// What came to the end of a cable.
#[derive(Debug, Clone, Copy)]
pub struct Came {
    pub packets: u64,
    pub bytes: u64,
    /// Packets that were sent and did not come: the kernel had no room for them.
    pub missing: u64,
    /// Packets that were seen where they left.
    pub left: u64,
}

/// Words, with those in quotation marks kept together.
fn words(text: &str) -> Vec<String> {
    let split = |(at, part): (usize, &str)| -> Vec<String> {
        match at % 2 {
            0 => part.split_whitespace().map(str::to_owned).collect(),
            _ => vec![part.to_owned()],
        }
    };
    text.split('\'').enumerate().flat_map(split).collect()
}

/// What a replay has sent, when it has.
#[track_caller]
pub fn sent(child: Child) -> (u64, u64) {
    let output = child.wait_with_output().unwrap();
    let err = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{err}");
    let rest = err.split_once("tapdex: sent ").unwrap().1;
    let mut numbers = rest.split(|c: char| !c.is_ascii_digit()).filter_map(|n| n.parse().ok());
    (numbers.next().unwrap(), numbers.next().unwrap())
}

/// A process that records. It is ended when this is dropped.
pub struct Recorder {
    child: Child,
    said: Arc<Mutex<String>>,
    listener: Option<JoinHandle<()>>,
}

impl Drop for Recorder {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

impl Recorder {
    /// Runs tapdex in the network.
    pub fn start(wire: &Wire, args: &str) -> Self {
        Self::spawn(wire.tapdex(args).stdin(Stdio::null()))
    }

    /// Runs tapdex outside of it.
    pub fn outside(wire: &Wire, args: &str) -> Self {
        let mut command = Command::new(TAPDEX);
        command.args(words(args)).current_dir(wire.folder.path()).stdin(Stdio::null());
        Self::spawn(&mut command)
    }

    fn spawn(command: &mut Command) -> Self {
        let command = command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let said = Arc::<Mutex<String>>::default();
        let mut lines = BufReader::new(child.stderr.take().unwrap());
        let heard = Arc::clone(&said);
        let listener = std::thread::spawn(move || {
            let mut line = String::new();
            while lines.read_line(&mut line).unwrap_or(0) > 0 {
                heard.lock().unwrap().push_str(&line);
                line.clear();
            }
        });
        Self { child, said, listener: Some(listener) }
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// All that it has said.
    pub fn said(&self) -> String {
        self.said.lock().unwrap().clone()
    }

    /// Waits until it says something.
    #[track_caller]
    pub fn says(&mut self, text: &str) {
        self.says_times(text, 1);
    }

    /// Waits until it has said something so often.
    #[track_caller]
    pub fn says_times(&mut self, text: &str, times: usize) {
        let mut ended = false;
        let has_said = |said: &str| said.matches(text).count() >= times;
        comes(|| {
            ended = self.child.try_wait().unwrap().is_some();
            ended || has_said(&self.said())
        });
        if ended && let Some(listener) = self.listener.take() {
            listener.join().unwrap();
        }
        assert!(has_said(&self.said()), "it does not say: {text}, but: {}", self.said());
    }

    #[track_caller]
    pub fn signal(&self, name: &str) {
        net::signal(&self.child, name);
    }

    /// Waits until it ends by itself.
    pub fn wait(&mut self) -> Ended {
        let code = wait(&mut self.child);
        drop(self.child.kill());
        if let Some(listener) = self.listener.take() {
            listener.join().unwrap();
        }
        Ended { code, err: self.said() }
    }

    /// Ends it as it should be ended; what it said.
    #[track_caller]
    pub fn stop(mut self) -> String {
        self.signal("TERM");
        let ended = self.wait();
        assert_eq!(ended.code, Some(0), "{}", ended.err);
        assert!(ended.err.contains("tapdex: recorded "), "{}", ended.err);
        ended.err
    }
}

/// A tcpdump that captures.
pub struct Tcpdump {
    process: Recorder,
    file: PathBuf,
}

impl Tcpdump {
    /// Packets that it has written.
    pub fn packets(&self) -> u64 {
        packets_in(&self.file)
    }

    /// Ends it, when it has written so many packets: those in its ring it does not write any more.
    /// It has lost nothing.
    #[track_caller]
    pub fn end(mut self, packets: u64) {
        until(&format!("{packets} packets in tcpdump's file"), || self.packets() >= packets);
        self.process.signal("INT");
        self.process.wait().with(0, &["\n0 packets dropped by kernel"]);
    }
}

/// A packet: its bytes, and its length on the wire.
pub type Frame = (Vec<u8>, u32);

/// The packets of a capture, one after the other, as tcpdump writes them in the old format.
pub struct Frames {
    child: Child,
    bytes: BufReader<ChildStdout>,
    pub link: u32,
}

impl Frames {
    fn open(path: &Path, filter: &str) -> Self {
        let mut command = Command::new("tcpdump");
        command.arg("-r").arg(path).args(["-w", "-", filter]);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut bytes = BufReader::with_capacity(1 << 20, child.stdout.take().unwrap());
        let mut head = [0; 24];
        bytes.read_exact(&mut head).unwrap();
        assert_eq!(number(&head, 0), 0xA1B2_C3D4, "a capture of this machine's byte order");
        Self { child, bytes, link: number(&head, 20) }
    }
}

impl Drop for Frames {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

impl Iterator for Frames {
    type Item = Frame;

    fn next(&mut self) -> Option<Frame> {
        if self.bytes.fill_buf().unwrap().is_empty() {
            assert!(self.child.wait().unwrap().success(), "tcpdump cannot read it to its end");
            return None;
        }
        let mut head = [0; 16];
        self.bytes.read_exact(&mut head).unwrap();
        let mut data = vec![0; number(&head, 8) as usize];
        self.bytes.read_exact(&mut data).unwrap();
        Some((data, number(&head, 12)))
    }
}

fn number(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap())
}

/// Found are the packets that are expected, in the same order, but for so many that are missing.
/// How many there are.
#[track_caller]
pub fn same(
    mut expected: impl Iterator<Item = Frame>,
    found: impl Iterator<Item = Frame>,
    mut missing: u64,
) -> u64 {
    let mut packets = 0;
    for frame in found {
        packets += 1;
        let mut wanted = expected.next();
        while missing > 0 && wanted.is_some() && wanted.as_ref() != Some(&frame) {
            missing -= 1;
            wanted = expected.next();
        }
        assert!(wanted.as_ref() == Some(&frame), "{packets}: {wanted:?} became {frame:?}");
    }
    assert_eq!(expected.count() as u64, missing, "more are missing: only {packets} packets");
    packets
}
