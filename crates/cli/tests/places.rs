//! Several archives at once: folders, servers, and those that do not answer.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

const TAPDEX: &str = env!("CARGO_BIN_EXE_tapdex");

/// A folder with two archives, and one of all their captures.
struct Place(tempfile::TempDir);

/// How a run ended.
#[derive(Debug)]
struct Ended {
    code: Option<i32>,
    out: String,
    err: String,
}

impl Ended {
    #[track_caller]
    fn done(self) -> String {
        assert_eq!(self.code, Some(0), "{}", self.err);
        self.out
    }

    #[track_caller]
    fn failed(self, code: i32, words: &[&str]) -> String {
        assert_eq!(self.code, Some(code), "{}", self.err);
        assert!(words.iter().all(|word| self.err.contains(word)), "{words:?}: {}", self.err);
        self.out
    }
}

impl Place {
    fn new() -> Self {
        let place = Self(tempfile::tempdir().unwrap());
        for (name, seed) in [("a", "1"), ("b", "2")] {
            let capture = format!("{name}.pcap");
            place.run(&["gen", "--quiet", "-c", "3000", "--seed", seed, "-w", &capture]).done();
            place.run(&["index", "--quiet", &capture, "-o", name]).done();
        }
        place.run(&["index", "--quiet", "a.pcap", "b.pcap", "-o", "both"]).done();
        place
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(TAPDEX);
        command.args(args).current_dir(self.0.path()).stdin(Stdio::null());
        command.env_remove("TAPDEX_ARCHIVE").env_remove("TAPDEX_TOKEN");
        command.env("XDG_CONFIG_HOME", self.0.path()).env("TAPDEX_STATE", self.path("state"));
        command
    }

    fn run(&self, args: &[&str]) -> Ended {
        ended(&mut self.command(args))
    }

    /// Runs a command on some archives.
    fn on(&self, archives: &[&str], args: &[&str]) -> Ended {
        let archives = archives.iter().flat_map(|archive| ["-r", archive]);
        let args: Vec<&str> = args.iter().copied().chain(archives).collect();
        self.run(&args)
    }
}

fn ended(command: &mut Command) -> Ended {
    let output = command.output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Ended { code: output.status.code(), out: text(output.stdout), err: text(output.stderr) }
}

/// The lines without what only several archives have, sorted.
fn sorted(text: &str) -> Vec<String> {
    let of = |line: &str| match line.split_once(r#","node":"#) {
        Some((start, _)) => format!("{start}}}"),
        None => line.to_owned(),
    };
    let mut lines: Vec<String> = text.lines().map(of).collect();
    lines.sort();
    lines
}

#[test]
fn two_folders_answer_as_one_archive() {
    let place = Place::new();
    let same = |args: &[&str]| {
        let [two, one] = [&["a", "b"][..], &["both"]].map(|archives| place.on(archives, args));
        assert_eq!(two.done(), one.done(), "{args:?}");
    };
    same(&["search", "--count", "udp port 53"]);
    same(&["search", "icmp"]);
    same(&["search", "-c", "5", "tcp"]);
    same(&["top", "src"]);
    same(&["top", "proto", "--by", "bytes", "--csv"]);
    same(&["top", "port", "-n", "100000", "--json", "tcp"]);
    same(&["hist", "udp"]);
    same(&["hist", "--span", "10ms", "--json", "udp"]);
    let [two, one] = [&["a", "b"][..], &["both"]]
        .map(|archives| place.on(archives, &["search", "--json", "tcp"]).done());
    assert_eq!(sorted(&two), sorted(&one));
    assert!(
        two.lines().all(|line| line.contains(r#""node":"a""#) || line.contains(r#""node":"b""#))
    );
    let csv = place.on(&["a", "b"], &["search", "--csv", "-c", "9", "tcp"]).done();
    assert!(csv.starts_with("time,") && csv.lines().next().unwrap().ends_with(",offset,node"));
    assert!(csv.lines().skip(1).all(|line| line.ends_with(",a") || line.ends_with(",b")));
    let nodes = place.on(&["a", "b"], &["search", "--nodes", "icmp"]).done();
    assert!(nodes.lines().all(|line| line.starts_with("a  20") || line.starts_with("b  20")));
    let one = place.on(&["a"], &["search", "--nodes", "icmp"]).done();
    let plain = place.on(&["a"], &["search", "icmp"]).done();
    assert_eq!(one, plain.lines().map(|line| format!("a  {line}\n")).collect::<String>());

    place.on(&["a", "b"], &["extract", "tcp", "-w", "two.pcapng"]).done();
    place.on(&["both"], &["extract", "tcp", "-w", "one.pcapng"]).done();
    place.on(&["a", "b"], &["extract", "tcp", "-w", "two.pcap"]).done();
    let read = |name: &str| {
        let mut tcpdump = Command::new("tcpdump");
        tcpdump.args(["-tt", "-nn", "-xx", "-r"]).arg(place.path(name));
        let output = tcpdump.output().unwrap();
        assert!(output.status.success());
        output.stdout
    };
    assert!(!read("one.pcapng").is_empty());
    assert_eq!(read("two.pcapng"), read("one.pcapng"));
    assert_eq!(read("two.pcap").len(), read("one.pcapng").len());
}

#[test]
fn each_archive_is_told_apart() {
    let place = Place::new();
    let count = place.on(&["a", "b"], &["search", "--count", "--json", "tcp"]);
    assert!(count.err.contains("tapdex:   a: ") && count.err.contains("tapdex:   b: "));
    assert!(count.done().contains(r#""nodes":[{"node":"a","matched":"#));
    let info = place.on(&["a", "b"], &["info"]).done();
    assert_eq!(info.matches("packets            3000").count(), 2);
    let info = place.on(&["a", "b"], &["info", "--json"]).done();
    assert_eq!(info.matches(r#"{"archive":"#).count(), 2);
    let explain = place.on(&["a", "b"], &["explain", "tcp"]).done();
    assert!(explain.starts_with("place     a\n") && explain.contains("\n\nplace     b\n"));
    let explain = place.on(&["a", "b"], &["explain", "--json", "tcp"]).done();
    assert_eq!(explain.lines().count(), 2);
    let flows = place.on(&["a", "b"], &["flows", "-n", "3"]);
    assert!(flows.err.contains("3 of "), "{}", flows.err);
}

#[test]
fn usage_is_checked() {
    let place = Place::new();
    let failed = |archives: &[&str], code, words: &[&str]| {
        place.on(archives, &["search", "--count", "tcp"]).failed(code, words);
    };
    failed(&["a", "nowhere"], 2, &["nowhere"]);
    failed(&["a", "./a"], 2, &["twice"]);
    failed(&["http://sensor1:1"], 2, &["https://"]);
    failed(&["https://me:secret@sensor1"], 2, &["..@sensor1"]);
    failed(&["http://127.0.0.1:1"], 4, &["cannot connect", "tapdex serve"]);
    // The others' answer.
    let out = place.on(&["a", "http://127.0.0.1:1"], &["search", "--count", "tcp"]);
    let out = out.failed(3, &["http://127.0.0.1:1: cannot connect"]);
    assert_eq!(out, place.on(&["a"], &["search", "--count", "tcp"]).done());
    let args = ["search", "--count", "tcp", "--allow-incomplete"];
    assert_eq!(place.on(&["http://127.0.0.1:1", "a"], &args).done(), out);
    place.on(&["http://127.0.0.1:1", "http://127.0.0.1:2"], &args).failed(4, &[":1: ", ":2: "]);
    // An existing file may be worth more than a part of the answer.
    std::fs::write(place.path("x.pcapng"), "there").unwrap();
    let args = ["extract", "tcp", "-w", "x.pcapng", "--force"];
    place.on(&["a", "http://127.0.0.1:1"], &args).failed(3, &["left as it was"]);
    assert_eq!(std::fs::read(place.path("x.pcapng")).unwrap(), b"there");
    let args = ["extract", "tcp", "-w", "a.pcap", "--force"];
    place.on(&["a", "b"], &args).failed(2, &["packets of the archive"]);
    for args in [
        &["verify", "-r"][..],
        &["repair", "-r"],
        &["upgrade", "-r"],
        &["index", "a.pcap", "-o"],
        &["record", "-i", "-", "-w"],
    ] {
        let args: Vec<&str> = args.iter().copied().chain(["https://sensor1:1"]).collect();
        place.run(&args).failed(2, &["https://sensor1:1", "folder"]);
    }
}

#[test]
fn secrets_that_others_may_read_are_refused() {
    use std::os::unix::fs::PermissionsExt;
    let place = Place::new();
    let token = place.path("token");
    std::fs::write(&token, "tapdex_1_secret\n").unwrap();
    std::fs::set_permissions(&token, std::fs::Permissions::from_mode(0o644)).unwrap();
    let args = ["search", "--count", "--token-file", "token"];
    place.on(&["http://127.0.0.1:1"], &args).failed(2, &["chmod 600"]);
    std::fs::set_permissions(&token, std::fs::Permissions::from_mode(0o600)).unwrap();
    let ended = place.on(&["http://127.0.0.1:1"], &args);
    assert!(!ended.err.contains("secret"));
    ended.failed(4, &["cannot connect"]);
}

/// A server of an archive.
struct Server {
    child: Child,
    address: String,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Place {
    fn serve(&self, archive: &str, more: &[&str]) -> Server {
        let mut args = vec!["serve", "-r", archive, "--listen", "127.0.0.1:0"];
        args.extend(more);
        let mut command = self.command(&args);
        command.env("TAPDEX_STATE", self.path(&format!("state-{archive}")));
        let log = std::fs::File::create(self.path("serve.log")).unwrap();
        let mut child = command.stdout(Stdio::piped()).stderr(log).spawn().unwrap();
        let mut address = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut address).unwrap();
        let address = address.trim().trim_end_matches('/').to_owned();
        Server { child, address }
    }
}

#[test]
fn a_server_answers_as_its_folder() {
    let place = Place::new();
    let server = place.serve("both", &[]);
    let there = server.address.as_str();
    for args in [
        &["search", "--count", "udp port 53"][..],
        &["search", "icmp or arp"],
        &["search", "-c", "7", "tcp"],
        &["search", "--count", "ip.addr == 10.0.0.0/8 && tcp.port in {80, 443}"],
        &["search", "--from", "2026-01-05T08:00:00.01Z", "--to", "2026-01-05T08:00:00.02Z"],
        &["top", "src"],
        &["top", "port", "--by", "bytes", "--json"],
        &["hist", "--csv", "tcp"],
        &["hist", "--span", "10ms"],
        &["flows", "-n", "5"],
        &["flows", "--sort", "duration", "--json", "udp"],
        &["flows", "--whole", "--csv", "port 53"],
    ] {
        let [remote, local] = [there, "both"].map(|place_of| place.on(&[place_of], args).done());
        assert_eq!(remote, local, "{args:?}");
    }
    for (number, args) in [
        &["tcp port 443"][..],
        &[],
        &["-c", "10", "udp"],
        &["--flow", "tcp[tcpflags] & tcp-rst != 0"],
        &["-F", "pcap", "udp"],
        &["--limit-bytes", "5000", "tcp"],
        &["host 1.2.3.4"],
    ]
    .iter()
    .enumerate()
    {
        let [remote, local] = [(there, "remote"), ("both", "local")].map(|(from, name)| {
            let name = format!("{name}{number}");
            let all: Vec<&str> =
                ["extract", "-w", &name].into_iter().chain(args.iter().copied()).collect();
            place.on(&[from], &all).done();
            std::fs::read(place.path(&name)).unwrap()
        });
        assert!(remote == local, "{args:?}");
    }
    let info = place.on(&[there], &["info"]).done();
    assert!(info.contains(there) && info.contains("packets            6000"), "{info}");
    assert!(place.on(&[there], &["explain", "tcp"]).done().starts_with("filter "));
    let json = place.on(&[there], &["search", "--json", "-c", "1", "tcp"]).done();
    assert!(json.contains(r#""id":""#) && !json.contains(r#""node""#), "{json}");
    place.on(&[there], &["search", "-q", "host 1.2.3.4"]).failed(1, &[]);
    place.on(&[there], &["search", "tcp port htpp"]).failed(2, &["^^^^"]);
}

#[test]
fn servers_and_folders_answer_as_one_archive() {
    let place = Place::new();
    let server = place.serve("b", &[]);
    let both = ["a", server.address.as_str()];
    for args in [
        &["search", "--count", "udp port 53"][..],
        &["search", "icmp"],
        &["top", "proto"],
        &["hist", "udp"],
    ] {
        assert_eq!(place.on(&both, args).done(), place.on(&["both"], args).done(), "{args:?}");
    }
    place.on(&both, &["extract", "tcp", "-w", "two.pcapng"]).done();
    place.run(&["index", "--quiet", "two.pcapng", "-o", "again"]).done();
    let count = |archive: &str| place.on(&[archive], &["search", "--count", "tcp"]).done();
    assert_eq!(count("again"), count("both"));
}

#[test]
fn the_door_is_explained_and_opened() {
    use std::os::unix::fs::PermissionsExt;
    let place = Place::new();
    let server = place.serve("a", &["--tls-self-signed"]);
    let there = server.address.as_str();
    assert!(there.starts_with("https://"), "{there}");
    let args = ["search", "--count", "tcp"];
    place.on(&[there], &args).failed(2, &["not trusted", "--ca", "fingerprint"]);
    // The fingerprint, as the server has printed it.
    let said = until(&place.path("serve.log"), "SHA256:");
    let fingerprint = said.split_whitespace().find(|word| word.starts_with("SHA256:")).unwrap();
    std::fs::create_dir(place.path("tapdex")).unwrap();
    let file = place.path("tapdex/credentials.toml");
    let write = |text: &str| {
        std::fs::write(&file, format!("[\"{there}\"]\n{text}\n")).unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
    };
    write(&format!("fingerprint = \"SHA256:{}\"", "0".repeat(64)));
    place.on(&[there], &args).failed(2, &["somebody else may be answering", fingerprint]);
    write(&format!("fingerprint = \"{fingerprint}\""));
    let count = place.on(&[there], &args).done();
    assert_eq!(count, place.on(&["a"], &args).done());
    // From now on, a token is needed.
    let state = place.path("state-a");
    let add = ["token", "add", "--name", "me", "--role", "extract", "--expires", "1d"];
    let token = ended(place.command(&add).env("TAPDEX_STATE", &state)).done();
    let token = token.trim();
    place.on(&[there], &args).failed(5, &["TAPDEX_TOKEN", "--token-file"]);
    let of_env =
        ended(place.command(&["search", "-r", there, "--count", "tcp"]).env("TAPDEX_TOKEN", token));
    assert_eq!(of_env.done(), count);
    write(&format!("fingerprint = \"{fingerprint}\"\ntoken = \"{token}\""));
    assert_eq!(place.on(&[there], &args).done(), count);
    place.on(&[there, "b"], &["extract", "-w", "x.pcapng", "--reason", "ticket 7"]).done();
    write(&format!("fingerprint = \"{fingerprint}\"\ntoken = \"{token}x\""));
    let wrong = place.on(&[there], &args);
    assert!(!wrong.err.contains(token));
    wrong.failed(5, &[there]);
}

/// What a file says, once it has some words.
fn until(path: &std::path::Path, words: &str) -> String {
    for _ in 0..500 {
        let said = std::fs::read_to_string(path).unwrap();
        if said.contains(words) && said.ends_with('\n') {
            return said;
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    panic!("it does not say {words}");
}
