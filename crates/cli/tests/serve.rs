//! `tapdex serve`: the real binary, beside the commands that answer the same questions.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use tapdex_engine::testing::filters;

/// A folder with a capture and its archive.
struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Self {
        let place = Self(tempfile::tempdir().unwrap());
        place.tapdex(&["gen", "--quiet", "-c", "20000", "-w", "a.pcap"]);
        place.tapdex(&["index", "--quiet", "-o", "archive", "a.pcap"]);
        place
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tapdex"));
        command.args(args).current_dir(&self.0).env("TAPDEX_STATE", "state");
        command.env_remove("TAPDEX_ARCHIVE");
        command
    }

    #[track_caller]
    fn tapdex(&self, args: &[&str]) -> Output {
        let output = self.command(args).output().unwrap();
        assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
        output
    }

    /// A shell, with `$URL` for the address of a server.
    fn sh(&self, line: &str, server: &Server) -> Output {
        let mut command = Command::new("sh");
        command.args(["-c", line]).current_dir(&self.0).env("URL", &server.url);
        command.output().unwrap()
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }
}

/// A server that ends with the test.
struct Server {
    child: Child,
    url: String,
}

impl Server {
    fn start(place: &Place, args: &[&str]) -> Self {
        let archive: &[&str] = if args.contains(&"-r") { &[] } else { &["-r", "archive"] };
        let all = [&["serve", "--listen", "127.0.0.1:0"], archive, args].concat();
        let mut command = place.command(&all);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let url = line.trim().trim_end_matches('/').to_owned();
        assert!(url.starts_with("http"), "{line:?}");
        Self { child, url }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn answers_are_those_of_the_commands() {
    let place = Place::new();
    let mut archives = vec!["archive".to_owned()];
    if let Some(traces) = std::env::var_os("TAPDEX_TRACES") {
        let mut traces: Vec<PathBuf> = captures(Path::new(&traces));
        traces.sort();
        for (n, capture) in traces.iter().enumerate() {
            let name = format!("real-{n}");
            let args = ["index", "--quiet", "-o", &name, &capture.to_string_lossy()];
            if place.command(&args).output().unwrap().status.success() {
                archives.push(name);
            }
        }
    }
    let wanted = if archives.len() > 1 { 300 } else { 60 };
    let many = wanted / archives.len() + 1;
    let (mut asked, mut extracted) = (0, 0);
    for (n, archive) in archives.iter().enumerate() {
        let server = Server::start(&place, &["-r", archive]);
        let seeds = (n * many)..((n + 1) * many);
        for filter in seeds.map(|seed| filters::generate(seed as u64)).filter(|f| f.len() < 1_500) {
            let count = place
                .command(&["search", "--count", "-r", archive, "--", &filter])
                .output()
                .unwrap();
            let line = r#"curl -sG "$URL/api/v1/count" --data-urlencode q@-"#;
            let reply = with_input(&place, line, &filter, &server);
            let reply: serde_json::Value = serde_json::from_slice(&reply.stdout).unwrap();
            if count.status.code() == Some(2) {
                assert!(reply["error"].is_string(), "{archive} {filter}: {reply}");
                continue;
            }
            assert_eq!(
                reply["count"].to_string(),
                text(&count.stdout).trim(),
                "{archive} {filter}"
            );
            let complete = count.status.code() == Some(0);
            assert_eq!(reply["complete"], complete, "{archive} {filter}");
            asked += 1;
            let args = ["extract", "-r", archive, "-w", "-", "--allow-incomplete", "--", &filter];
            let own = place.command(&args).output().unwrap();
            let line = r#"curl -sfG "$URL/api/v1/packets" --data-urlencode q@-"#;
            let served = with_input(&place, line, &filter, &server);
            assert!(own.stdout == served.stdout, "{archive} {filter}");
            extracted += usize::from(reply["count"] != 0);
        }
    }
    assert!(asked >= wanted * 2 / 3 && extracted > asked / 10, "{asked} {extracted}");
}

fn with_input(place: &Place, line: &str, input: &str, server: &Server) -> Output {
    std::fs::write(place.path("input"), input).unwrap();
    place.sh(&format!("{line} < input"), server)
}

fn captures(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in folder.read_dir().unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => folders.push(path),
                false if path.metadata().is_ok_and(|meta| meta.len() < 8 << 20) => found.push(path),
                false => {}
            }
        }
    }
    found
}

#[test]
fn the_recipes_of_the_page_work() {
    let place = Place::new();
    let server = Server::start(&place, &[]);
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/serving.md");
    let page = std::fs::read_to_string(page).unwrap();
    let recipes =
        page.split("## Recipes for curl").nth(1).unwrap().split("## The API").next().unwrap();
    let mut tried = 0;
    for recipe in recipes.lines().filter(|line| line.starts_with("curl ")) {
        let line = recipe.replace("http://127.0.0.1:8417", &server.url);
        let output = place.sh(&line, &server);
        assert!(output.status.success(), "{recipe}: {}", text(&output.stderr));
        if !recipe.contains(" -o ") {
            assert!(output.stdout.len() > 2, "{recipe}: {}", text(&output.stdout));
        }
        tried += 1;
    }
    assert_eq!(tried, 10);
    // What Grafana asks for, with the times that it puts in.
    let recipe = page.split("| URL | `").nth(1).unwrap().split('`').next().unwrap();
    let recipe = recipe.replace("${__from:date:iso}", "2026-01-05T08:00:00.000Z");
    let recipe = recipe.replace("${__to:date:iso}", "2026-01-05T08:00:10.000Z");
    let url = recipe.replace("http://127.0.0.1:8417", &server.url);
    let reply = place.sh(&format!("curl -sf '{url}'"), &server);
    let reply: serde_json::Value = serde_json::from_slice(&reply.stdout).unwrap();
    let spans = reply["spans"].as_array().unwrap();
    assert!(
        spans.len() > 10
            && spans.iter().all(|span| {
                span["time"].as_str().unwrap().starts_with("2026-01-05T08:00:0")
                    && span["packets"].is_u64()
            })
    );
    for (file, least) in [("host.pcapng", 1_000), ("a.pcap", 100), ("openapi.json", 1_000)] {
        assert!(place.path(file).metadata().unwrap().len() > least, "{file}");
    }
}

#[test]
fn off_loopback_there_is_tls() {
    let place = Place::new();
    let refused =
        place.command(&["serve", "-r", "archive", "--listen", "0.0.0.0:0"]).output().unwrap();
    assert_eq!(refused.status.code(), Some(2));
    assert!(text(&refused.stderr).contains("--tls-self-signed"), "{}", text(&refused.stderr));
    let token = place.tapdex(&["token", "add", "--name", "soc", "--role", "extract"]).stdout;
    let header = format!("Authorization: Bearer {}\n", text(&token).trim());
    std::fs::write(place.path("header"), header).unwrap();
    let server = Server::start(&place, &["--tls-self-signed"]);
    assert!(server.url.starts_with("https://127.0.0.1:"), "{}", server.url);
    let curl = |rest: &str| {
        place.sh(&format!("curl -s --cacert state/tls/self-signed.pem {rest}"), &server)
    };
    let status = |rest: &str| {
        let output = curl(&format!("-o /dev/null -w '%{{http_code}} %{{http_version}}' {rest}"));
        text(&output.stdout)
    };
    assert_eq!(status("$URL/api/v1/count"), "401 2");
    assert_eq!(status("-H @header $URL/api/v1/count"), "200 2");
    assert_eq!(status("--http1.1 -H @header $URL/api/v1/count"), "200 1.1");
    let own = place.tapdex(&["extract", "-r", "archive", "-w", "-", "udp port 53"]).stdout;
    assert!(curl("-H @header \"$URL/api/v1/packets?q=udp+port+53\"").stdout == own);
    assert!(!place.sh("curl -s -H @header $URL/api/v1/count", &server).status.success());
    place.tapdex(&["token", "revoke", "soc"]);
    assert_eq!(status("-H @header $URL/api/v1/count"), "401 2");
    drop(server);
    place.tapdex(&["audit", "verify"]);
}

#[test]
fn a_server_is_searched_like_its_folder_and_stands_in_front_of_others() {
    let place = Place::new();
    place.tapdex(&["gen", "--quiet", "-c", "5000", "--seed", "7", "-w", "b.pcap"]);
    place.tapdex(&["index", "--quiet", "-o", "other", "b.pcap"]);
    let one = Server::start(&place, &["--state", "state-1"]);
    let two = Server::start(&place, &["--state", "state-2", "-r", "other"]);
    let both = ["--state", "state-3", "-r", &one.url, "-r", &two.url];
    let front = Server::start(&place, &both);
    let ask = |words: &[&str], places: &[&str]| {
        let mut command = place.command(words);
        for place in places {
            command.args(["-r", place]);
        }
        let output = command.output().unwrap();
        assert!(output.status.success(), "{words:?} {places:?}: {}", text(&output.stderr));
        output.stdout
    };
    for words in [
        &["search", "--count", "udp port 53"][..],
        &["search", "--count", "--json", "tcp[20:4] = 0x47455420"],
        &["search", "-c", "50", "icmp or arp"],
        &["search", "--csv", "-c", "9", "tcp"],
        &["top", "src", "-n", "20", "udp"],
        &["top", "port", "--by", "bytes", "--json"],
        &["hist", "--csv", "tcp"],
        &["flows", "-n", "0", "--sort", "start", "udp port 53"],
        &["extract", "-w", "-", "vlan and tcp"],
    ] {
        // Paths are those of the server.
        let plain = |bytes: Vec<u8>| text(&bytes).replace("../", "");
        assert_eq!(plain(ask(words, &[&one.url])), plain(ask(words, &["archive"])), "{words:?}");
        // Programs get the names of the places.
        if words[0] != "extract" && !words.contains(&"--csv") && !words.contains(&"--json") {
            let expected = plain(ask(words, &["archive", "other"]));
            assert_eq!(plain(ask(words, &[&front.url])), expected, "{words:?}");
        }
    }
    let read = |bytes: Vec<u8>| {
        std::fs::write(place.path("read.pcapng"), bytes).unwrap();
        let mut tcpdump = Command::new("tcpdump");
        let output =
            tcpdump.args(["-tt", "-nn", "-x", "-r"]).arg(place.path("read.pcapng")).output();
        output.unwrap().stdout
    };
    let words = ["extract", "-w", "-", "udp"];
    let merged = read(ask(&words, &["archive", "other"]));
    assert!(merged.len() > 10_000);
    assert!(read(ask(&words, &[&front.url])) == merged);
    for words in [&["explain", "udp port 53"][..], &["info", "--segments"]] {
        assert!(text(&ask(words, &[&front.url])).len() > 100, "{words:?}");
    }
    // One of them goes: the rest is right, and it is named.
    let url = two.url.clone();
    drop(two);
    let output = place.command(&["search", "--count", "-r", &front.url, "udp"]).output().unwrap();
    assert_eq!(output.status.code(), Some(3));
    assert_eq!(output.stdout, ask(&["search", "--count", "udp"], &["archive"]));
    assert!(text(&output.stderr).contains(&url), "{}", text(&output.stderr));
}

#[test]
fn it_can_change_nothing_but_its_state() {
    let place = Place::new();
    let server = Server::start(&place, &[]);
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.child.id())).unwrap();
    assert!(status.contains("NoNewPrivs:\t1"), "{status}");
    // All threads, also those that were started later.
    for thread in std::fs::read_dir(format!("/proc/{}/task", server.child.id())).unwrap() {
        let path = thread.unwrap().path().join("status");
        let Ok(status) = std::fs::read_to_string(path) else { continue };
        assert!(status.contains("Seccomp:\t2"), "{status}");
    }
    // Whatever is asked, the archive stays as it is.
    let state = || {
        let mut found: Vec<_> = captures(&place.path("archive"))
            .into_iter()
            .map(|path| (path.metadata().unwrap().modified().unwrap(), path))
            .collect();
        found.sort();
        found
    };
    let before = state();
    for line in [
        r#"curl -sf "$URL/api/v1/packets?q=tcp""#,
        r#"curl -sf "$URL/api/v1/segments""#,
        r#"curl -sf "$URL/api/v1/jobs" --json '{"q":"udp"}'"#,
        r#"curl -sf "$URL/metrics""#,
    ] {
        assert!(place.sh(line, &server).status.success(), "{line}");
    }
    assert_eq!(state(), before);
}

#[test]
fn ctrl_c_ends_it() {
    let place = Place::new();
    let mut server = Server::start(&place, &[]);
    let process = rustix::process::Pid::from_child(&server.child);
    rustix::process::kill_process(process, rustix::process::Signal::INT).unwrap();
    assert_eq!(server.child.wait().unwrap().code(), Some(0));
}
