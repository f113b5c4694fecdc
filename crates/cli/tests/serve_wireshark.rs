//! An archive in Wireshark: as an interface, and over PCAP-over-IP, judged by tshark.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]
#![allow(unreachable_pub, reason = "modules of a test")]

mod net;
mod place;

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Output, Stdio};
use std::sync::Arc;
use std::time::Duration;

use net::{signal, until, wait};
use place::{Place, TAPDEX};
use tapdex_answers::question::Question;
use tapdex_engine::archive::Archive;
use tapdex_server::audit::{Audit, verify};
use tapdex_server::door::{Door, WhenEmpty};
use tapdex_server::http::{App, Settings, Source};
use tapdex_server::jobs::{JobLimits, Jobs};
use tapdex_server::pcap_over_ip::{self, PcapOverIp};
use tapdex_server::state::State;

/// Everything that distinguishes packets. What tshark finds out from earlier packets is left out:
/// these are the same on both sides.
const FIELDS: [&str; 9] = [
    "frame.time_epoch",
    "frame.len",
    "frame.cap_len",
    "frame.protocols",
    "eth.src",
    "ip.src",
    "ip.dst",
    "udp.port",
    "tcp.port",
];

/// No packet of these tests matches this.
const NOBODY: &str = "host 203.0.113.254 and port 1";

/// All packets of these tests are from later on.
const LONG_AGO: &str = "2020-01-01T00:00:00Z";

impl Place {
    /// A folder with an archive of so many packets.
    fn with_archive(packets: usize) -> Self {
        let place = Self::new();
        place.sh(&format!("tapdex gen -c {packets} -w a.pcap"));
        place.sh("tapdex index --quiet a.pcap -o archive");
        place
    }

    /// A command of this user, whose home is this folder.
    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.current_dir(self.folder()).env("HOME", self.folder()).stdin(Stdio::null());
        command.env("TAPDEX_STATE", self.path("state"));
        for name in ["XDG_CONFIG_HOME", "TAPDEX_ARCHIVE", "WIRESHARK_EXTCAP_DIR"] {
            command.env_remove(name);
        }
        command
    }

    fn extcap(&self, args: &[&str]) -> Output {
        self.command(TAPDEX).arg("extcap").args(args).output().unwrap()
    }

    /// What an extcap prints that went well.
    #[track_caller]
    fn extcap_prints(&self, args: &[&str]) -> String {
        let output = self.extcap(args);
        assert!(output.status.success() && output.stderr.is_empty(), "{args:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// What it says that was refused.
    #[track_caller]
    fn extcap_refuses(&self, args: &[&str]) -> String {
        let output = self.extcap(args);
        assert!(output.stdout.is_empty(), "{args:?}: {output:?}");
        assert!(matches!(output.status.code(), Some(2 | 4)), "{args:?}: {output:?}");
        String::from_utf8(output.stderr).unwrap()
    }

    /// Installs the extcap where the tshark of this user looks.
    fn install(&self) {
        let output = self.extcap(&["--install", "--archive", "archive"]);
        assert!(output.status.success(), "{output:?}");
    }

    /// Reads packets with tshark into a file; what it said.
    #[track_caller]
    fn tshark(&self, args: &[&str]) -> String {
        // Should it wait for ever, the test fails.
        let mut command = self.command("timeout");
        let output = command.args(["120", "tshark", "-q"]).args(args).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(0), "{args:?}: {said}");
        said
    }

    /// The packets of a capture, as tshark reads it.
    #[track_caller]
    fn packets(&self, capture: &str) -> Vec<String> {
        let mut command = self.command("tshark");
        command.args(["-n", "-r", capture, "-T", "fields"]);
        FIELDS.iter().for_each(|field| {
            command.args(["-e", field]);
        });
        let output = command.output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
    }

    /// The packets that extract gives.
    #[track_caller]
    fn extracted(&self, args: &[&str]) -> Vec<String> {
        let mut command = self.command(TAPDEX);
        command.args(["extract", "-r", "archive", "-w", "extracted.pcapng", "--force"]);
        let output = command.args(args).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        self.packets("extracted.pcapng")
    }

    /// Starts a server that sends packets to whoever connects.
    fn serve(&self, args: &[&str]) -> Server {
        let mut command = self.command(TAPDEX);
        command.args(["serve", "-r", "archive", "--quiet", "--listen", "127.0.0.1:0"]);
        command.args(["--pcap-over-ip", "127.0.0.1:0"]).args(args).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let http = lines.next().unwrap().unwrap();
        let address = lines.next().unwrap().unwrap();
        let http = http.trim_start_matches("http://").trim_end_matches('/').parse().unwrap();
        Server { child, http, address }
    }

    /// The lines of the audit log that are about PCAP-over-IP, once there are so many with this
    /// outcome.
    #[track_caller]
    fn audited(&self, outcome: &str, many: usize) -> Vec<String> {
        let outcome = format!("\"outcome\":\"{outcome}\"");
        let mut found = Vec::new();
        until(&format!("{many} lines with {outcome}"), || {
            let text = std::fs::read_to_string(self.path("state/audit.jsonl")).unwrap();
            let ours = text.lines().filter(|line| line.contains("\"what\":\"pcap-over-ip\""));
            found = ours.filter(|line| line.contains(&outcome)).map(str::to_owned).collect();
            found.len() >= many
        });
        assert_eq!(found.len(), many, "{found:?}");
        found
    }
}

/// A server. It is ended when this is dropped.
struct Server {
    child: Child,
    http: SocketAddr,
    /// As Wireshark has it.
    address: String,
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

impl Server {
    fn connect(&self) -> TcpStream {
        connect(self.address.strip_prefix("TCP@").unwrap().parse().unwrap())
    }

    /// Stops it as Ctrl-C does.
    #[track_caller]
    fn stop(&mut self) {
        signal(&self.child, "INT");
        assert_eq!(wait(&mut self.child), Some(0));
    }

    /// A number of its metrics.
    fn metric(&self, name: &str) -> u64 {
        let mut stream = TcpStream::connect(self.http).unwrap();
        let request = "GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
        stream.write_all(request.as_bytes()).unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        let start = format!("{name} ");
        text.lines().find_map(|line| line.strip_prefix(&start)).unwrap().trim().parse().unwrap()
    }
}

fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(net::WAIT_MAX)).unwrap();
    stream
}

/// The part of a line of JSON behind a name.
#[track_caller]
fn member<'a>(line: &'a str, name: &str) -> &'a str {
    let rest = line.split_once(&format!("\"{name}\":")).unwrap_or_else(|| panic!("{line}")).1;
    rest.split([',', '}']).next().unwrap().trim_matches('"')
}

fn sha256(place: &Place, bytes: &[u8]) -> String {
    std::fs::write(place.path("bytes"), bytes).unwrap();
    place.sh("sha256sum bytes").split(' ').next().unwrap().to_owned()
}

#[test]
fn wireshark_is_told_of_the_interface_and_its_options() {
    let place = Place::new();
    let version = env!("CARGO_PKG_VERSION");
    let interfaces = format!(
        "extcap {{version={version}}}{{display=tapdex}}\n\
         interface {{value=tapdex}}{{display=Packet archive}}\n"
    );
    assert_eq!(place.extcap_prints(&["--extcap-interfaces"]), interfaces);
    assert_eq!(place.extcap_prints(&["--extcap-interfaces", "--extcap-version=4.0"]), interfaces);
    let of = ["--extcap-interface", "tapdex"];
    assert_eq!(
        place.extcap_prints(&[&["--extcap-dlts"], &of[..]].concat()),
        "dlt {number=1}{name=EN10MB}{display=Ethernet}\n"
    );
    let config = place.extcap_prints(&[&["--extcap-config"], &of[..]].concat());
    let calls: Vec<&str> = config.lines().map(|line| line.split('}').nth(1).unwrap()).collect();
    let names = ["archive", "filter", "from", "to", "follow"];
    assert_eq!(calls, names.map(|name| format!("{{call=--{name}")));
    for (number, line) in config.lines().enumerate() {
        assert!(line.starts_with(&format!("arg {{number={number}}}{{call=--")), "{line}");
        assert!(line.ends_with('}') && line.contains("{type="), "{line}");
        // Sentences have no nested braces.
        assert_eq!(line.matches('{').count(), line.matches('}').count(), "{line}");
    }
    let default = |archive: &str| {
        let args = ["--extcap-config", "--archive", archive];
        place.extcap_prints(&[&args, &of[..]].concat()).lines().next().unwrap().to_owned()
    };
    assert!(default("/a b").contains("{default=/a b}"));
    // Braces cannot be written there, so such an archive has to be typed.
    for archive in ["/a{b", "/a}b", "/a\nb", ""] {
        assert!(!default(archive).contains("{default"), "{archive:?}");
    }
}

#[test]
fn capture_filters_are_judged() {
    let place = Place::new();
    let judge = |filter: &str| {
        place.extcap_prints(&["--extcap-interface", "tapdex", "--extcap-capture-filter", filter])
    };
    for filter in ["", "tcp port 80", "ip.addr == 10.0.0.0/8 && udp", "not host 10.1.2.3"] {
        assert_eq!(judge(filter), "", "{filter}");
    }
    for filter in ["tcp port", "host", "ip.addr ==", "-x", "\u{1b}[31m", "((((", "port 99999"] {
        let told = judge(filter);
        assert!(told.lines().count() == 1 && !told.contains('\u{1b}'), "{filter}: {told}");
    }
}

#[test]
fn what_makes_no_sense_is_refused_before_anything_is_written() {
    let place = Place::with_archive(100);
    place.sh("mkfifo fifo && echo kept > file && mkdir folder && ln -s fifo link");
    let capture = |args: &[&str]| {
        let all = ["--capture", "--extcap-interface", "tapdex"];
        place.extcap_refuses(&[&all, args].concat())
    };
    let fine = ["--archive", "archive", "--fifo", "fifo"];
    for (args, text) in [
        (&["--archive", "archive"][..], "--capture needs --fifo"),
        (&["--fifo", "fifo"], "which archive?"),
        (&["--fifo", "fifo", "--archive", ""], "which archive?"),
        (&["--fifo", "fifo", "--archive", "gone"], "gone"),
        (&["--fifo", "fifo", "--archive", "http://a/"], "for this machine only"),
        (&["--archive", "archive", "--fifo", "file"], "it is no FIFO"),
        (&["--archive", "archive", "--fifo", "folder"], "it is no FIFO"),
        (&["--archive", "archive", "--fifo", "/dev/null"], "it is no FIFO"),
        (&["--archive", "archive", "--fifo", "none"], "cannot write to none"),
        (&[&fine[..], &["--filter", "tcp prt 80"]].concat(), "prt"),
        (&[&fine[..], &["--extcap-capture-filter", "(("]].concat(), "expected"),
        (&[&fine[..], &["--from", "soon"]].concat(), "from 'soon'"),
        (&[&fine[..], &["--from", "-1h", "--to", "-2h"]].concat(), "no packet is from"),
        (
            &[&fine[..], &["--filter", "ip.src == 10.1.2.3", "--extcap-capture-filter", "tcp"]]
                .concat(),
            "in different languages",
        ),
        (&[&fine[..], &["--fifoo", "x"]].concat(), "--fifoo"),
    ] {
        let said = capture(args);
        assert!(said.starts_with("tapdex: ") && said.contains(text), "{args:?}: {said}");
    }
    assert_eq!(place.sh("cat file"), "kept\n");
    for args in [
        &["--capture", "--extcap-interface", "eth0", "--fifo", "fifo"][..],
        &["--extcap-dlts", "--extcap-interface", "tapdex\u{1b}[31m"],
        &["--extcap-dlts"],
        &["--extcap-interface", "tapdex"],
        &["--capture"],
        &[],
        &["--install", "--uninstall"],
    ] {
        let said = place.extcap_refuses(args);
        assert!(said.starts_with("tapdex: ") && !said.contains('\u{1b}'), "{args:?}: {said}");
    }
}

#[test]
fn it_is_installed_as_a_script_and_removed_again() {
    let place = Place::with_archive(10);
    let script = place.path(".config/wireshark/extcap/tapdex");
    for _ in 0..2 {
        place.install();
        assert_eq!(script.metadata().unwrap().permissions().mode() & 0o777, 0o755);
    }
    let text = std::fs::read_to_string(&script).unwrap();
    let archive = place.folder().canonicalize().unwrap().join("archive");
    assert!(text.starts_with("#!/bin/sh\n") && text.contains(archive.to_str().unwrap()), "{text}");
    // From wherever it is started.
    let output = place.command(script.to_str().unwrap()).arg("--extcap-interfaces").output();
    assert!(output.unwrap().stdout.starts_with(b"extcap {"));
    let listed = place.command("tshark").arg("-D").output().unwrap();
    let listed = String::from_utf8(listed.stdout).unwrap();
    assert!(listed.lines().any(|line| line.ends_with(". tapdex (Packet archive)")), "{listed}");
    assert!(place.extcap(&["--uninstall"]).status.success());
    assert!(!script.exists());
    let again = place.extcap(&["--uninstall"]);
    assert_eq!(String::from_utf8(again.stderr).unwrap(), "tapdex: it is not installed\n");
    // What others have put there stays.
    std::fs::write(&script, "#!/bin/sh\n").unwrap();
    for args in [["--install"], ["--uninstall"]] {
        let said = place.extcap_refuses(&args);
        assert!(said.contains("is not of tapdex"), "{said}");
    }
    assert_eq!(std::fs::read_to_string(&script).unwrap(), "#!/bin/sh\n");
    let dir = ["--dir", "new/it's a \"folder\""];
    assert!(place.extcap(&[&["--install"], &dir[..]].concat()).status.success());
    assert!(place.path(dir[1]).join("tapdex").exists());
    assert!(place.extcap(&[&["--uninstall"], &dir[..]].concat()).status.success());
    assert!(!place.path(dir[1]).join("tapdex").exists());
}

#[test]
fn tshark_reads_from_the_interface_what_extract_gives() {
    let place = Place::with_archive(3_000);
    place.install();
    let times = place.sh("tapdex search -r archive --json -c 1500 | tail -n 1");
    let middle = member(&times, "time").to_owned();
    for (options, capture_filter, args) in [
        (&[][..], None, &[][..]),
        (&["filter:udp port 53"], None, &["udp port 53"]),
        (&["filter:udp.port == 53 || arp"], None, &["udp.port == 53 || arp"]),
        (&[], Some("tcp port 443"), &["tcp port 443"]),
        (&["filter:tcp"], Some("port 443 or port 80"), &["tcp and (port 443 or port 80)"]),
        (&["filter:vlan"], Some("tcp"), &["(vlan) and (tcp)"]),
        (
            &["filter:tcp", &format!("from:{middle}"), "follow:false"],
            None,
            &["tcp", "--from", &middle],
        ),
        (&[&format!("to:{middle}")], Some("ip6"), &["ip6", "--to", &middle]),
        (&[&format!("filter:{NOBODY}")], None, &[NOBODY]),
    ] {
        let mut words = vec!["-i", "tapdex", "-w", "read.pcapng"];
        let options: Vec<String> =
            options.iter().map(|option| format!("extcap.tapdex.{option}")).collect();
        options.iter().for_each(|option| words.extend(["-o", option]));
        capture_filter.iter().for_each(|filter| words.extend(["-f", filter]));
        let said = place.tshark(&words);
        let expected = place.extracted(args);
        assert_eq!(place.packets("read.pcapng"), expected, "{words:?}");
        assert!(!said.contains("Error"), "{said}");
        assert_eq!(expected.is_empty(), args == [NOBODY], "{args:?}");
    }
    let all = place.extracted(&[]);
    assert_eq!(all.len(), 3_000);
    // From a server.
    let server = place.serve(&[]);
    let archive = format!("extcap.tapdex.archive:http://{}/", server.http);
    place.tshark(&["-i", "tapdex", "-o", &archive, "-f", "udp", "-w", "read.pcapng"]);
    assert_eq!(place.packets("read.pcapng"), place.extracted(&["udp"]));
    drop(server);
    // It is no error that Wireshark wants no more.
    let said = place.tshark(&["-i", "tapdex", "-c", "5", "-w", "read.pcapng"]);
    assert!(!said.contains("Error"), "{said}");
    assert_eq!(place.packets("read.pcapng"), all[..5]);
}

#[test]
fn tshark_shows_what_is_wrong() {
    let place = Place::with_archive(10);
    place.install();
    for (option, text) in [
        ("filter:prt 80", "`prt` is not"),
        ("archive:http://sensor/", "for this machine only"),
        ("archive:gone", "gone"),
        ("from:soon", "from 'soon'"),
    ] {
        let option = format!("extcap.tapdex.{option}");
        let mut command = place.command("timeout");
        command.args(["120", "tshark", "-q", "-i", "tapdex", "-o", &option, "-w", "none.pcapng"]);
        let output = command.output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success(), "{said}");
        let (_, told) = said.split_once("Error by extcap pipe: tapdex: ").unwrap();
        assert!(told.contains(text), "{said}");
    }
    // Nothing is wrong, but worth to know.
    let option = ["-o", "extcap.tapdex.from:2030-01-01T00:00:00Z", "-w", "none.pcapng"];
    let said = place.tshark(&[&["-i", "tapdex"], &option[..]].concat());
    assert!(said.contains("0 packets; the archive covers 2026-"), "{said}");
    // What is missing, too.
    std::fs::rename(place.path("a.pcap"), place.path("b.pcap")).unwrap();
    let said = place.tshark(&["-i", "tapdex", "-w", "none.pcapng"]);
    assert!(said.contains("incomplete: 10 packets are missing"), "{said}");
}

/// A recorder that gets its packets from us.
struct Recorder {
    child: Child,
    input: Option<ChildStdin>,
    pieces: Vec<Vec<u8>>,
}

impl Recorder {
    fn new(place: &Place, packets: usize) -> Self {
        place.sh(&format!("tapdex gen -c {packets} --mean-len 100 -w fed.pcap"));
        let bytes = std::fs::read(place.path("fed.pcap")).unwrap();
        let (mut pieces, mut at) = (vec![bytes[..24].to_vec()], 24);
        while at < bytes.len() {
            let len = u32::from_le_bytes(bytes[at + 8..at + 12].try_into().unwrap());
            let end = at + 16 + len as usize;
            pieces.push(bytes[at..end].to_vec());
            at = end;
        }
        let mut command = place.command(TAPDEX);
        command.args("record -i - -w archive --limit 100% --quiet".split(' '));
        let mut child = command.stdin(Stdio::piped()).spawn().unwrap();
        let input = child.stdin.take();
        Self { child, input, pieces }
    }

    /// Records more packets.
    fn feed(&mut self, packets: usize) {
        let take = packets + usize::from(self.pieces.first().is_some_and(|p| p.len() == 24));
        let input = self.input.as_mut().unwrap();
        self.pieces.drain(..take).for_each(|piece| input.write_all(&piece).unwrap());
        input.flush().unwrap();
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        drop(self.input.take());
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// Reads whole blocks of pcapng until there were so many packets; all bytes.
fn read_packets(stream: &mut impl Read, packets: usize) -> Vec<u8> {
    let (mut all, mut found) = (Vec::new(), 0);
    while found < packets {
        let mut head = [0; 8];
        stream.read_exact(&mut head).unwrap();
        let [a, b, c, d, e, f, g, h] = head;
        found += usize::from(u32::from_le_bytes([a, b, c, d]) == 6);
        let len = u32::from_le_bytes([e, f, g, h]) as usize;
        let mut rest = vec![0; len - 8];
        stream.read_exact(&mut rest).unwrap();
        all.extend(head);
        all.extend(rest);
    }
    all
}

#[test]
fn the_interface_follows_and_ends_when_wireshark_does() {
    let place = Place::new();
    let mut recorder = Recorder::new(&place, 60);
    recorder.feed(20);
    until("twenty packets", || {
        let output = place.command(TAPDEX).args(["search", "-r", "archive", "--count"]).output();
        output.unwrap().stdout == b"20\n"
    });
    place.sh("mkfifo fifo");
    let mut command = place.command(TAPDEX);
    command.args(["extcap", "--capture", "--extcap-interface", "tapdex", "--fifo", "fifo"]);
    command.args(["--archive", "archive", "--follow"]).stderr(Stdio::piped());
    let mut extcap = command.spawn().unwrap();
    let mut fifo = File::open(place.path("fifo")).unwrap();
    let mut bytes = read_packets(&mut fifo, 20);
    recorder.feed(20);
    bytes.extend(read_packets(&mut fifo, 20));
    std::fs::write(place.path("read.pcapng"), &bytes).unwrap();
    let read = place.packets("read.pcapng");
    assert_eq!(read.len(), 40);
    until("forty packets", || place.extracted(&[]).len() == 40);
    assert_eq!(read, place.extracted(&[]));
    // Nothing more comes, and yet it notices that nobody reads any more.
    drop(fifo);
    assert_eq!(wait(&mut extcap), Some(0));
    let mut said = String::new();
    extcap.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert_eq!(said, "");
    // tshark ends it by a signal.
    place.install();
    place.tshark(&[
        "-i",
        "tapdex",
        "-o",
        "extcap.tapdex.follow:true",
        "-c",
        "40",
        "-w",
        "t.pcapng",
    ]);
    assert_eq!(place.packets("t.pcapng"), read);
}

#[test]
fn an_interface_that_nobody_reads_ends_by_a_signal() {
    let place = Place::with_archive(10);
    place.sh("mkfifo fifo");
    let mut command = place.command(TAPDEX);
    command.args(["extcap", "--capture", "--extcap-interface", "tapdex", "--fifo", "fifo"]);
    let mut extcap = command.args(["--archive", "archive"]).spawn().unwrap();
    let threads = Path::new("/proc").join(extcap.id().to_string()).join("task");
    // One of them waits for signals.
    until("a second thread", || threads.read_dir().unwrap().count() > 1);
    signal(&extcap, "TERM");
    assert_eq!(wait(&mut extcap), Some(0));
}

#[test]
fn tshark_reads_over_ip_what_extract_gives() {
    let place = Place::with_archive(2_000);
    for filter in [None, Some("udp port 53"), Some("tcp.port == 443")] {
        let mut args = vec!["--pcap-over-ip-from", LONG_AGO];
        filter.iter().for_each(|filter| args.extend(["--pcap-over-ip-filter", filter]));
        let mut server = place.serve(&args);
        let expected = place.extracted(filter.as_slice());
        assert!(!expected.is_empty());
        let many = expected.len().to_string();
        place.tshark(&["-i", &server.address, "-c", &many, "-w", "read.pcapng"]);
        assert_eq!(place.packets("read.pcapng"), expected, "{filter:?}");
        server.stop();
    }
    // Without a time, there is nothing until something is recorded.
    let server = place.serve(&[]);
    let mut client = server.connect();
    let mut start = [0; 8];
    client.read_exact(&mut start).unwrap();
    assert_eq!(start[..4], [0x0a, 0x0d, 0x0d, 0x0a]);
    place.tshark(&["-i", &server.address, "-a", "duration:1", "-w", "read.pcapng"]);
    assert_eq!(place.packets("read.pcapng"), Vec::<String>::new());
}

#[test]
fn packets_go_over_ip_as_they_are_recorded_and_are_written_down() {
    let place = Place::new();
    let mut recorder = Recorder::new(&place, 60);
    recorder.feed(20);
    until("an archive", || place.path("archive/archive.toml").exists());
    let mut server = place.serve(&["--pcap-over-ip-from", LONG_AGO]);
    let mut client = server.connect();
    let mut bytes = read_packets(&mut client, 20);
    recorder.feed(30);
    bytes.extend(read_packets(&mut client, 30));
    std::fs::write(place.path("read.pcapng"), &bytes).unwrap();
    until("fifty packets", || place.extracted(&[]).len() == 50);
    assert_eq!(place.packets("read.pcapng"), place.extracted(&[]));
    place.audited("started", 1);
    // The capture ends as a whole when the server stops.
    server.stop();
    client.read_to_end(&mut bytes).unwrap();
    let line = &place.audited("done", 1)[0];
    assert_eq!(member(line, "packets"), "50");
    assert_eq!(member(line, "bytes"), bytes.len().to_string());
    assert_eq!(member(line, "sha256"), sha256(&place, &bytes));
    assert_eq!(member(line, "who"), "local");
    let report = verify(&place.path("state/audit.jsonl")).unwrap();
    assert!(report.lines >= 2 && report.wrong.is_none(), "{report:?}");
}

#[test]
fn clients_over_ip_are_few_and_leave_nothing_behind() {
    let place = Place::with_archive(500);
    let server = place.serve(&["--pcap-over-ip-from", LONG_AGO]);
    let mut clients: Vec<TcpStream> = (0..pcap_over_ip::CLIENTS)
        .map(|_| {
            let mut client = server.connect();
            read_packets(&mut client, 500);
            client
        })
        .collect();
    assert_eq!(server.metric("tapdex_server_streams"), 16);
    // One more is sent away at once.
    assert_eq!(server.connect().read(&mut [0; 8]).unwrap_or(0), 0);
    // A place is free as soon as somebody leaves, although there is nothing to send.
    drop(clients.pop());
    let line = &place.audited("left", 1)[0];
    assert_eq!(member(line, "packets"), "500");
    until("a place", || server.connect().read(&mut [0; 8]).unwrap_or(0) > 0);
    drop(clients);
    until("no streams", || server.metric("tapdex_server_streams") == 0);
    // What is said there is no request of anybody.
    let mut browser = server.connect();
    let _ = browser.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n");
    let mut bytes = Vec::new();
    let _ = browser.read_to_end(&mut bytes);
    until("no streams", || server.metric("tapdex_server_streams") == 0);
}

#[test]
fn over_ip_the_door_stays_locked() {
    let place = Place::with_archive(100);
    let refused = |args: &[&str]| {
        let mut command = place.command(TAPDEX);
        command.args(["serve", "-r", "archive", "--listen", "127.0.0.1:0"]).args(args);
        let output = command.output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    for address in ["0.0.0.0:0", "[::]:0", "192.0.2.1:57012"] {
        let said = refused(&["--pcap-over-ip", address]);
        assert!(said.contains("is open to others"), "{said}");
        let said = refused(&["--pcap-over-ip", address, "--pcap-over-ip-open"]);
        assert!(said.contains("is open to others"), "{said}");
    }
    for args in [
        &["--pcap-over-ip", "127.0.0.1"][..],
        &["--pcap-over-ip", "127.0.0.1:0", "--pcap-over-ip-filter", "prt 80"],
        &["--pcap-over-ip", "127.0.0.1:0", "--pcap-over-ip-from", "soon"],
        &["--pcap-over-ip-filter", "port 80"],
        &["--pcap-over-ip-open"],
    ] {
        refused(args);
    }
    // The first token closes it, also for those who are there.
    let server = place.serve(&["--pcap-over-ip-from", LONG_AGO]);
    let mut client = server.connect();
    read_packets(&mut client, 100);
    let mut command = place.command(TAPDEX);
    let added = command.args(["token", "add", "--name", "soc", "--role", "search"]).output();
    assert!(added.unwrap().status.success());
    let line = &place.audited("failed", 1)[0];
    assert_eq!(member(line, "packets"), "100");
    assert!(client.read_to_end(&mut Vec::new()).is_err());
    assert_eq!(server.connect().read(&mut [0; 8]).unwrap_or(0), 0);
    drop(server);
    let said = refused(&["--pcap-over-ip", "127.0.0.1:0"]);
    assert!(said.contains("--pcap-over-ip-open"), "{said}");
    // Unless somebody says so.
    let server = place.serve(&["--pcap-over-ip-open", "--pcap-over-ip-from", LONG_AGO]);
    let mut client = server.connect();
    read_packets(&mut client, 100);
    drop(client);
    let line = &place.audited("left", 1)[0];
    assert_eq!((member(line, "who"), member(line, "role")), ("pcap-over-ip", "extract"));
}

#[test]
fn a_client_that_takes_nothing_is_dropped() {
    let place = Place::new();
    // More than the buffers on the way have room for.
    place.sh("tapdex gen -c 30000 --mean-len 1400 -w a.pcap && tapdex index -q a.pcap -o archive");
    let state = State::create(&place.path("state")).unwrap();
    let archive = Archive::open(&place.path("archive")).unwrap();
    let door = Door::open(&state, WhenEmpty::Open).unwrap();
    let settings = Settings { stall_time: Duration::from_millis(300), ..Settings::default() };
    let (jobs, _) = Jobs::open(&state, JobLimits::default(), 0).unwrap();
    let (source, audit) = (Source::Archive(Box::new(archive)), Audit::open(&state, 0).unwrap());
    let app = App::new(source, door, audit, jobs, settings).unwrap();
    let question = Question { from: Some(LONG_AGO.to_owned()), ..Question::default() };
    let sent = PcapOverIp { question, is_vouched: false, clients: 1 };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).unwrap();
    let address = listener.local_addr().unwrap();
    let stop = Arc::new(tokio::sync::Notify::new());
    let (served, stopped) = (Arc::clone(&app), Arc::clone(&stop));
    let task = runtime.spawn(async move {
        pcap_over_ip::serve(served, listener, sent, stopped.notified()).await;
    });
    let idle = connect(address);
    place.audited("left", 1);
    // Its place is free.
    until("a place", || connect(address).read(&mut [0; 8]).unwrap_or(0) > 0);
    drop(idle);
    app.stop();
    stop.notify_one();
    runtime.block_on(task).unwrap();
}
