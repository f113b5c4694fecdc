//! A recorder that answers questions while it records.

use std::io::Write;
use std::process::{Command, Stdio};

use crate::net::{comes, until};
use crate::sandbox::of_threads;
use crate::wire::{Recorder, Wire};

/// Where it answers, once it does.
fn address(recorder: &mut Recorder) -> String {
    recorder.says("tapdex: answers at http");
    let said = recorder.said();
    let url = said.split_once("answers at ").unwrap().1.lines().next().unwrap();
    url.trim_end_matches('/').to_owned()
}

impl Wire {
    /// What it answers to a question in the form of an address.
    #[track_caller]
    fn asks(&self, url: &str, path: &str) -> String {
        self.sh(&format!("curl -sSf '{url}{path}'"))
    }

    /// The value of a member of an answer, as text.
    fn member(text: &str, name: &str) -> String {
        let start = format!("\"{name}\":");
        let rest = text.split_once(&start).unwrap_or_else(|| panic!("{name}: {text}")).1;
        rest.split([',', '}', ']']).next().unwrap().trim_matches('"').to_owned()
    }
}

#[test]
fn it_answers_what_the_commands_do() {
    let Some(wire) = Wire::new() else { return };
    wire.space.inside("ip link set lo up");
    wire.sh("tapdex gen -c 6000 --mean-len 200 -w sent.pcap");
    let args = "-i v1 --serve 127.0.0.1:0 --state state --rotate 2000packets";
    let mut recorder = wire.record(args);
    let url = address(&mut recorder);
    // Before the first packet: what it says comes from the recorder, not from the archive.
    comes(|| wire.asks(&url, "/api/v1/interfaces") == "[{\"name\":\"v1\",\"description\":\"\"}]\n");
    until("that it is ready", || wire.sh(&format!("curl -s '{url}/readyz'")).contains("ready"));
    let status = wire.asks(&url, "/api/v1/status");
    assert_eq!(Wire::member(&status, "pid"), recorder.pid().to_string());
    assert_eq!(Wire::member(&status, "state"), "running");
    let mut follows = wire.space.command("curl");
    follows.args(["-sSf", &format!("{url}/api/v1/live.pcapng?limit_packets=100&q=tcp"), "-o"]);
    let mut follows = follows.arg(wire.path("live.pcapng")).spawn().unwrap();
    let metric = |name: &str| {
        let page = wire.asks(&url, "/metrics");
        let line = page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.unwrap_or_else(|| panic!("{name}: {page}")).parse::<f64>().unwrap()
    };
    until("somebody who follows", || metric("tapdex_server_streams") == 1.0);
    let sent = wire.send("--file sent.pcap --pps 10000").packets;
    wire.settles(sent);
    assert!(follows.wait().unwrap().success());
    assert_eq!(wire.frames("live.pcapng", "tcp").count(), 100);
    comes(|| metric("tapdex_capture_packets_total{iface=\"v1\"}") == sent as f64);
    for filter in ["", "tcp", "udp port 53", "net 10.0.0.0/8 and not port 443", "tcp[13] = 2"] {
        let asked =
            wire.sh(&format!("curl -sSf -G '{url}/api/v1/count' --data-urlencode 'q={filter}'"));
        assert_eq!(Wire::member(&asked, "count"), wire.count(filter).to_string(), "{filter}");
    }
    wire.sh(&format!("curl -sSf '{url}/api/v1/packets?q=udp&reason=test' -o served.pcapng"));
    wire.sh("tapdex extract -r archive udp -w own.pcapng");
    let read = |name: &str| wire.sh(&format!("tcpdump -nn -tt -x -r {name} 2> read.err"));
    assert!(read("served.pcapng") == read("own.pcapng") && !read("own.pcapng").is_empty());
    let interfaces = wire.asks(&url, "/api/v1/interfaces");
    assert!(interfaces.contains("\"link\":") && interfaces.matches("name").count() == 1);
    // The threads that answer are confined like those that record.
    for (name, value) in [("Seccomp", "2"), ("NoNewPrivs", "1"), ("CapBnd", "0000000000000000")] {
        let found = of_threads(&recorder, name);
        assert!(found.len() >= 8 && found.iter().all(|one| one == value), "{name}: {found:?}");
    }
    recorder.stop();
    assert_eq!(wire.count(""), sent);
    let audit = wire.sh("tapdex audit verify --state state");
    assert!(audit.starts_with("sound: "), "{audit}");
    assert!(wire.sh("cat state/audit.jsonl").contains("\"reason\":\"test\""));
}

#[test]
fn whoever_has_a_token_may_ask_a_recorder_of_a_stream() {
    let Some(wire) = Wire::new() else { return };
    wire.space.inside("ip link set lo up");
    wire.sh("tapdex gen -c 500 --mean-len 200 -w a.pcap");
    wire.sh("tapdex token add --state state --name soc --role extract 2> told > soc.token");
    wire.sh("printf 'Authorization: Bearer %s\\n' \"$(cat soc.token)\" > soc.header");
    let config = "serve = '127.0.0.1:0'\n\
                  access = { state = 'state', tls-self-signed = true, name = 'sensor' }\n\
                  interfaces = ['-']\nlimit = '100%'\n";
    std::fs::write(wire.path("record.toml"), config).unwrap();
    let bytes = std::fs::read(wire.path("a.pcap")).unwrap();
    let mut cat = Command::new("cat");
    let mut cat = cat.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut input = cat.stdin.take().unwrap();
    input.write_all(&bytes).unwrap();
    let mut recorder = wire.record_from("--config record.toml", cat.stdout.take().unwrap().into());
    let url = address(&mut recorder);
    assert!(url.starts_with("https://"), "{url}");
    let code = |header: &str| {
        let line = format!("curl -sk {header} -o answer -w '%{{http_code}}' '{url}/api/v1/count'");
        wire.sh(&line)
    };
    assert_eq!(code(""), "401");
    until("500 packets", || {
        assert_eq!(code("-H @soc.header"), "200");
        let answer = std::fs::read_to_string(wire.path("answer")).unwrap();
        Wire::member(&answer, "count") == "500"
    });
    assert!(wire.sh(&format!("curl -sk -H @soc.header '{url}/api/v1/status'")).contains("sensor"));
    wire.sh("tapdex token revoke --state state soc");
    assert_eq!(code("-H @soc.header"), "401");
    drop(input);
    cat.wait().unwrap();
    recorder.wait().with(0, &["recorded 500 packets"]);
}

#[test]
fn what_cannot_be_served_is_said_at_the_start() {
    let Some(wire) = Wire::new() else { return };
    for (options, message) in [
        ("--serve here", "--serve 'here': expected 127.0.0.1:8417"),
        ("--serve 0.0.0.0:0", "packets need TLS"),
        ("--serve 127.0.0.1:0 --tls-cert none.pem --tls-key none.key", "none.pem"),
        ("--metrics 127.0.0.1:8417 --serve 127.0.0.1:8417", "cannot listen at 127.0.0.1:8417"),
        ("--host sensor", "--host is about who may ask"),
    ] {
        let line = format!("record -i v1 -w archive --limit 100% --state state {options}");
        let ended = wire.run(&line);
        assert!(ended.code != Some(0) && ended.err.contains(message), "{options}: {}", ended.err);
    }
}
