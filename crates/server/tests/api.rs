//! The API over real connections: answers beside those of the engine, roles that see a part only,
//! and clients that are wrong, slow, greedy or gone.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::Value;
use tapdex_answers::ask::Ask;
use tapdex_answers::deliver::{Delivery, capture, now_ns};
use tapdex_answers::question::Question;
use tapdex_engine::archive::{Archive, Ingest, Input};
use tapdex_engine::capture::{CaptureWriter, FileFormat, Interface};
use tapdex_engine::testing::filters;
use tapdex_engine::traffic::{Profile, Traffic};
use tapdex_server::audit::{AUDIT_NAME, Audit, verify};
use tapdex_server::door::tokens::{NewToken, Tokens};
use tapdex_server::door::{Door, WhenEmpty};
use tapdex_server::http::{App, Settings, Source, openapi_document, router};
use tapdex_server::jobs::{JobLimits, Jobs};
use tapdex_server::listen::{Connections, serve};
use tapdex_server::state::State;
use tokio::sync::Notify;

const PACKETS: u64 = 20_000;

/// A server on loopback, with what it serves.
struct Server {
    folder: tempfile::TempDir,
    address: SocketAddr,
    stop: Arc<Notify>,
    app: Arc<App>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Server {
    fn new() -> Self {
        Self::with(PACKETS, |_| {}, Connections::default(), Settings::default())
    }

    /// One whose state is prepared before it starts.
    fn with(
        packets: u64,
        prepare: impl FnOnce(&State),
        connections: Connections,
        settings: Settings,
    ) -> Self {
        let folder = tempfile::tempdir().unwrap();
        make_archive(folder.path(), packets);
        let state = State::create(&folder.path().join("state")).unwrap();
        prepare(&state);
        let archive = Archive::open(&folder.path().join("archive")).unwrap();
        let door = Door::open(&state, WhenEmpty::Open).unwrap();
        let audit = Audit::open(&state, 0).unwrap();
        let settings = Settings { is_open: door.is_open(), ..settings };
        let (jobs, unfinished) = Jobs::open(&state, JobLimits::default(), 0).unwrap();
        let app =
            App::new(Source::Archive(Box::new(archive)), door, audit, jobs, settings).unwrap();
        let stop = Arc::new(Notify::new());
        let (sender, receiver) = std::sync::mpsc::channel();
        let (served, stopped) = (Arc::clone(&app), Arc::clone(&stop));
        let thread = std::thread::spawn(move || {
            let mut runtime = tokio::runtime::Builder::new_multi_thread();
            let runtime = runtime.worker_threads(2).enable_all().build().unwrap();
            runtime.block_on(async {
                let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
                sender.send(listener.local_addr().unwrap()).unwrap();
                served.start_again(unfinished);
                serve(listener, None, router(served), connections, stopped.notified()).await;
            });
        });
        let address = receiver.recv().unwrap();
        Self { folder, address, stop, app, thread: Some(thread) }
    }

    fn archive(&self) -> Archive {
        Archive::open(&self.folder.path().join("archive")).unwrap()
    }

    fn state(&self) -> State {
        State::open(&self.folder.path().join("state")).unwrap()
    }

    fn send(&self, request: &str) -> TcpStream {
        let mut stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        stream
    }

    /// Sends a request as it is, and reads the answer to its end.
    fn raw(&self, request: &str) -> Reply {
        let mut bytes = Vec::new();
        let mut stream = self.send(request);
        let outcome = stream.read_to_end(&mut bytes);
        Reply::parse(&bytes, outcome.is_ok())
    }

    fn get(&self, path: &str) -> Reply {
        self.raw(&head("GET", path, "", ""))
    }

    fn get_as(&self, token: &str, path: &str) -> Reply {
        self.raw(&head("GET", path, &format!("Authorization: Bearer {token}\r\n"), ""))
    }

    fn post(&self, path: &str, headers: &str, body: &str) -> Reply {
        self.raw(&head("POST", path, headers, body))
    }

    /// What one more client is told, if it is told something: it may be closed right away.
    fn one_more(&self) -> Option<Reply> {
        let mut stream = TcpStream::connect(self.address).ok()?;
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        stream.write_all(head("GET", "/api/v1/count", "", "").as_bytes()).ok()?;
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).ok()?;
        (!bytes.is_empty()).then(|| Reply::parse(&bytes, true))
    }

    /// Waits until one more client is told this.
    #[track_caller]
    fn tells_one_more(&self, status: u16) -> Reply {
        let since = Instant::now();
        loop {
            match self.one_more() {
                Some(reply) if reply.status == status => return reply,
                reply => assert!(since.elapsed() < Duration::from_secs(60), "{reply:?}"),
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Waits until one more client comes in.
    #[track_caller]
    fn comes_in(&self) {
        self.tells_one_more(200);
    }

    /// Lines of the audit log.
    fn audit(&self) -> Vec<Value> {
        let text = std::fs::read_to_string(self.state().path_of(AUDIT_NAME)).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.app.stop();
        self.stop.notify_one();
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}

fn head(method: &str, path: &str, headers: &str, body: &str) -> String {
    let len = body.len();
    let own = format!("Host: localhost\r\nConnection: close\r\nTE: trailers\r\n{headers}");
    format!("{method} {path} HTTP/1.1\r\n{own}Content-Length: {len}\r\n\r\n{body}")
}

/// An answer.
#[derive(Debug)]
struct Reply {
    status: u16,
    head: String,
    body: Vec<u8>,
    trailers: String,
    /// Whether the body came to its end.
    whole: bool,
}

impl Reply {
    fn parse(bytes: &[u8], ended_well: bool) -> Self {
        let end = bytes.windows(4).position(|four| four == b"\r\n\r\n");
        let Some(end) = end else {
            let (head, trailers) = (String::new(), String::new());
            return Self { status: 0, head, body: Vec::new(), trailers, whole: false };
        };
        let head = String::from_utf8(bytes[..end].to_vec()).unwrap().to_lowercase();
        let status = head[9..12].parse().unwrap();
        let rest = &bytes[end + 4..];
        if !head.contains("transfer-encoding: chunked") {
            let (body, trailers) = (rest.to_vec(), String::new());
            return Self { status, head, body, trailers, whole: ended_well };
        }
        let (mut body, mut at) = (Vec::new(), 0);
        loop {
            let Some(line) = rest[at..].windows(2).position(|two| two == b"\r\n") else {
                return Self { status, head, body, trailers: String::new(), whole: false };
            };
            let size = std::str::from_utf8(&rest[at..at + line]).unwrap();
            let size = usize::from_str_radix(size, 16).unwrap();
            at += line + 2;
            if size == 0 {
                let trailers = String::from_utf8(rest[at..].to_vec()).unwrap().to_lowercase();
                return Self { status, head, body, trailers, whole: true };
            }
            let Some(chunk) = rest.get(at..at + size) else {
                return Self { status, head, body, trailers: String::new(), whole: false };
            };
            body.extend_from_slice(chunk);
            at += size + 2;
        }
    }

    #[track_caller]
    fn json(&self) -> Value {
        assert_eq!(self.status, 200, "{}", String::from_utf8_lossy(&self.body));
        serde_json::from_slice(&self.body).unwrap()
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    fn lines(&self) -> Vec<Value> {
        self.text()
            .lines()
            .filter(|l| !l.is_empty())
            .map(|l| serde_json::from_str(l).unwrap())
            .collect()
    }

    fn header(&self, name: &str) -> Option<&str> {
        let prefix = format!("{name}: ");
        self.head.lines().find_map(|line| line.strip_prefix(&prefix))
    }
}

fn make_archive(folder: &Path, packets: u64) {
    let capture = folder.join("a.pcap");
    let ethernet = Interface::new(1, 1_000_000_000);
    let file = std::io::BufWriter::new(std::fs::File::create(&capture).unwrap());
    let mut writer = CaptureWriter::new(file, FileFormat::Pcap, &[ethernet], "").unwrap();
    let mut traffic = Traffic::new(&Profile { packets, ..Profile::default() });
    while let Some(packet) = traffic.next() {
        writer.packet(0, packet.time_ns, packet.wire_len, packet.data).unwrap();
    }
    writer.finish().unwrap().flush().unwrap();
    let archive = Archive::create(&folder.join("archive"), None).unwrap();
    Ingest::new(&archive).run(&[Input::File(capture)]).unwrap();
}

/// Text as it stands in an address.
fn encoded(text: &str) -> String {
    text.bytes()
        .map(|byte| match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'.' | b'-' => char::from(byte).to_string(),
            other => format!("%{other:02X}"),
        })
        .collect()
}

fn question(q: &str) -> Question {
    Question { q: q.to_owned(), utc: true, ..Question::default() }
}

#[test]
fn answers_are_those_of_the_engine() {
    let server = Server::new();
    let archive = server.archive();
    let mut asked = 0;
    let written = filters::written().into_iter();
    for filter in written.chain((0..150).map(filters::generate)).filter(|f| f.len() < 2_000) {
        let reply = server.get(&format!("/api/v1/count?q={}", encoded(&filter)));
        let Ok(query) = question(&filter).query(0) else {
            assert_eq!(reply.status, 400, "{filter}: {}", reply.text());
            continue;
        };
        let ask = Ask::new(&archive, &query);
        match ask.count() {
            Ok(answer) => {
                let found = reply.json();
                assert_eq!(found["count"], answer.value.count, "{filter}");
                assert_eq!(
                    (&found["complete"], &found["incomplete"]),
                    (&true.into(), &Value::Array(vec![]))
                );
                asked += 1;
            }
            Err(error) => assert_eq!(reply.status, 400, "{filter}: {error} {}", reply.text()),
        }
    }
    assert!(asked > 150, "{asked}");
}

#[test]
fn captures_are_those_of_the_engine_byte_for_byte() {
    let server = Server::new();
    let archive = server.archive();
    for (format, name) in [(FileFormat::Pcapng, "pcapng"), (FileFormat::Pcap, "pcap")] {
        for q in ["", "udp port 53", "tcp[20:4] = 0x47455420", "host 203.0.113.7", "less 60"] {
            let query = question(q).query(0).unwrap();
            let delivery = Delivery { format, ..Delivery::default() };
            let mut expected = Vec::new();
            let answer =
                capture(&Ask::new(&archive, &query), &delivery, &mut expected, &|| false).unwrap();
            let path = format!("/api/v1/packets?format={name}&q={}", encoded(q));
            let reply = server.get(&path);
            assert!(reply.whole && reply.body == expected, "{q} {}", reply.status);
            let packets = format!("tapdex-packets: {}", answer.value.packets);
            assert!(reply.trailers.contains(&packets), "{}", reply.trailers);
            assert!(reply.trailers.contains("tapdex-complete: true"));
            let id = reply.header("tapdex-answer").unwrap();
            let end = server.get(&format!("/api/v1/answers/{id}")).json();
            assert_eq!((&end["state"], &end["bytes"]), (&"done".into(), &expected.len().into()));
            assert!(reply.trailers.contains(end["sha256"].as_str().unwrap()));
            assert_eq!(end["answer"]["packets"], answer.value.packets);
        }
    }
    // What was given out is in the log, with its hash, and the chain holds.
    let done: Vec<Value> = server.audit().into_iter().filter(|l| l["outcome"] == "done").collect();
    assert_eq!(done.len(), 10);
    assert!(done.iter().all(|line| line["what"] == "extract" && line["sha256"].is_string()));
    assert!(verify(&server.state().path_of(AUDIT_NAME)).unwrap().wrong.is_none());
}

#[test]
fn lines_come_in_order_and_end_with_what_is_known() {
    let server = Server::new();
    let reply = server.get("/api/v1/search?q=udp+port+53&limit_packets=5");
    let lines = reply.lines();
    assert_eq!((reply.status, lines.len()), (200, 6));
    let end = &lines[5]["end"];
    assert_eq!((&end["packets"], &end["stopped"]), (&5.into(), &true.into()));
    let times: Vec<&str> = lines[..5].iter().map(|line| line["time"].as_str().unwrap()).collect();
    assert!(times.is_sorted());
    // Each line names its packet.
    let id = lines[0]["id"].as_str().unwrap();
    let one = server.get(&format!("/api/v1/packets/{}", encoded(id))).json();
    assert_eq!(one["packet"]["time"], lines[0]["time"]);
    let hex = one["hex"].as_str().unwrap();
    assert_eq!(hex.len() as u64, 2 * one["packet"]["captured"].as_u64().unwrap());
    for id in ["x", "x:1", ":", "a:99999999", "..%2F..%2Fetc%2Fpasswd:0"] {
        assert_eq!(server.get(&format!("/api/v1/packets/{id}")).status, 404, "{id}");
    }
}

#[test]
fn tops_histograms_flows_and_plans_have_their_members() {
    let server = Server::new();
    let top = server.get("/api/v1/top?field=src,proto&n=3&q=udp").json();
    assert_eq!(top["top"].as_array().unwrap().len(), 2);
    assert_eq!(top["top"][1]["values"][0]["value"], "udp");
    let count = server.get("/api/v1/count?q=udp").json()["count"].as_u64().unwrap();
    assert_eq!(top["matched"], count);
    let histogram = server.get("/api/v1/histogram?bins=10&q=udp").json();
    let spans = histogram["spans"].as_array().unwrap();
    assert!((1..=10).contains(&spans.len()));
    assert_eq!(spans.iter().map(|s| s["packets"].as_u64().unwrap()).sum::<u64>(), count);
    let flows = server.get("/api/v1/flows?n=0&q=udp").json();
    let all = flows["flows"].as_array().unwrap();
    assert_eq!(flows["conversations"], all.len());
    let sum = |name: &str| all.iter().map(|f| f[name].as_u64().unwrap()).sum::<u64>();
    assert_eq!(sum("client_packets") + sum("server_packets"), count);
    let plan = server.get("/api/v1/explain?q=udp+port+53").json();
    assert_eq!(plan["explain"]["filter"], "udp port 53");
    let posted = server.post("/api/v1/count", "", r#"{"q":"udp","from":"2020-01-01"}"#).json();
    assert_eq!(posted["count"], count);
    for path in ["segments", "status", "fields", "interfaces"] {
        server.get(&format!("/api/v1/{path}")).json();
    }
    assert_eq!(server.get("/healthz").text(), "ok\n");
    assert_eq!(server.get("/readyz").status, 200);
    let metrics = server.get("/metrics").text();
    assert!(metrics.contains("tapdex_query_duration_seconds_count"), "{metrics}");
    assert_eq!(server.get("/openapi.json").json(), openapi_document());
}

#[test]
fn what_is_wrong_is_told_with_its_place() {
    let server = Server::new();
    let reply = server.get("/api/v1/count?q=tcp+prot+443");
    let error: Value = serde_json::from_slice(&reply.body).unwrap();
    assert_eq!((reply.status, &error["offset"], &error["length"]), (400, &4.into(), &4.into()));
    assert_eq!((&error["hint"], &error["fix"]), (&"did you mean port?".into(), &"port".into()));
    for (path, status) in [
        ("/api/v1/count?n=1", 400),
        ("/api/v1/count?q=udp&q=tcp", 400),
        ("/api/v1/count?from=yesterdayish", 400),
        ("/api/v1/count?from=2026-01-02&to=2026-01-01", 400),
        ("/api/v1/top", 400),
        ("/api/v1/top?field=nothing", 400),
        ("/api/v1/histogram?span=1ns", 400),
        ("/api/v1/histogram?span=1s&bins=4", 400),
        ("/api/v1/flows?sort=size", 400),
        ("/api/v1/packets?format=csv", 400),
        ("/api/v1/packets?whole&follow", 400),
        ("/api/v1/answers/00", 404),
        ("/api/v2/count", 404),
        ("/page/nothing.js", 404),
        ("/api/v1/../../etc/passwd", 404),
        ("/api/v1/count?q=%ff%fe", 400),
        ("/query", 405),
    ] {
        let reply = server.get(path);
        assert_eq!(reply.status, status, "{path}: {}", reply.text());
        if status != 404 || path.starts_with("/api/v1/a") {
            assert!(serde_json::from_slice::<Value>(&reply.body).unwrap()["error"].is_string());
        }
    }
    assert_eq!(server.raw(&head("DELETE", "/api/v1/count", "", "")).status, 405);
    let body = server.raw(&head("HEAD", "/api/v1/count?q=udp", "", "")).body;
    assert!(body.is_empty());
}

#[test]
fn an_open_server_answers_nobody_elsewhere() {
    let server = Server::new();
    let ask = |host: &str, more: &str| {
        server.raw(&format!(
            "GET /api/v1/count HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n{more}\r\n"
        ))
    };
    // A page of another site, whose name leads to this machine.
    assert_eq!(ask("evil.example", "").status, 421);
    assert_eq!(ask("localhost.evil.example", "").status, 421);
    assert_eq!(ask("127.0.0.1:80", "Origin: http://evil.example\r\n").status, 403);
    assert_eq!(ask("localhost", "Origin: null\r\n").status, 403);
    for host in ["localhost", "127.0.0.1:8417", "[::1]:8417", "LOCALHOST:1"] {
        assert_eq!(ask(host, "").status, 200, "{host}");
    }
    assert_eq!(ask("localhost:8", "Origin: http://localhost:8\r\n").status, 200);
}

#[test]
fn stenographer_requests_work() {
    let server = Server::new();
    let archive = server.archive();
    let expected = |q: &str| {
        let asked = Question { through_tags: !q.contains("vlan"), ..question(q) };
        let query = asked.query(now_ns()).unwrap();
        Ask::new(&archive, &query).count().unwrap().value.count
    };
    // As in the examples of its documentation.
    for q in [
        "host 10.1.1.173",
        "host 10.1.1.173 and tcp",
        "(port 53 or port 443) and udp",
        "net 10.0.0.0/8 and tcp and port 443",
        "net 10.0.0.0 mask 255.0.0.0 && port 53",
        "ip proto 6",
        "icmp",
        "vlan 10",
        "after 2012-11-03T11:05:00Z and before 2030-11-03T11:05:00-07:00 and port 53",
        "after 3h ago and port 80",
    ] {
        let reply = server.post("/query", "", q);
        assert_eq!((reply.status, reply.whole), (200, true), "{q}: {}", reply.text());
        let count = pcap_packets(&reply.body);
        assert_eq!(count, expected(q), "{q}");
    }
    let limited = server.post("/query", "Steno-Limit-Packets: 3\r\n", "port 53");
    assert_eq!(pcap_packets(&limited.body), 3);
    let limited = server.post("/query", "Steno-Limit-Bytes: 300\r\n", "port 53");
    assert!(limited.body.len() < 400 && pcap_packets(&limited.body) > 0);
    assert_eq!(server.post("/query", "Steno-Limit-Packets: many\r\n", "port 53").status, 400);
    assert_eq!(server.post("/query", "", "port htpp").status, 400);
}

/// Packets of a pcap file.
fn pcap_packets(bytes: &[u8]) -> u64 {
    let (mut at, mut packets) = (24, 0);
    while at < bytes.len() {
        let len = u32::from_le_bytes(bytes[at + 8..at + 12].try_into().unwrap());
        at += 16 + usize::try_from(len).unwrap();
        packets += 1;
    }
    assert_eq!(at, bytes.len());
    packets
}

/// Makes a token of a role and returns it.
fn token(state: &State, name: &str, role: &str, expires_ns: Option<u64>) -> String {
    let new = NewToken { name, role, certificate: None, expires_ns };
    Tokens::add(state, &new, 0).unwrap().1.unwrap().text()
}

#[test]
fn every_address_wants_a_token_that_holds_and_a_role_that_may() {
    let server = Server::new();
    let state = server.state();
    let [search, extract, gone] =
        ["search", "extract", "admin"].map(|role| token(&state, role, role, None));
    let old = token(&state, "old", "admin", Some(1));
    Tokens::revoke(&state, "admin", 0).unwrap();
    let wrong = format!("{}x", &search[..search.len() - 1]);
    let paths = [
        "/api/v1/count",
        "/api/v1/top?field=src",
        "/api/v1/histogram",
        "/api/v1/flows",
        "/api/v1/explain",
        "/api/v1/search",
        "/api/v1/packets",
        "/api/v1/live.pcapng",
        "/api/v1/packets/x:0",
        "/api/v1/answers/0",
        "/api/v1/segments",
        "/api/v1/status",
        "/api/v1/fields",
        "/api/v1/interfaces",
        "/api/v1/audit",
        "/query",
        "/metrics",
    ];
    for path in paths {
        assert_eq!(server.get(path).status, 401, "{path}");
        assert_eq!(server.post(path, "", "{}").status, if path == "/metrics" { 405 } else { 401 });
        for token in [&old, &gone, &wrong, "", "tapdex_", "tapdex_x_y"] {
            let reply = server.get_as(token, path);
            assert_eq!(reply.status, 401, "{path} {token}");
            assert!(reply.header("www-authenticate").is_some() || path == "/metrics");
            assert!(!reply.text().contains(&search[..20]));
        }
    }
    assert_eq!(server.get_as(&search, "/api/v1/count").status, 200);
    assert_eq!(server.get_as(&search, "/api/v1/search?limit_packets=1").status, 200);
    for path in ["/api/v1/packets", "/api/v1/live.pcapng", "/api/v1/audit", "/query"] {
        assert_eq!(server.get_as(&search, path).status, 403, "{path}");
    }
    assert!(server.get_as(&extract, "/api/v1/packets?q=udp+port+53").whole);
    // Headers, but no bytes.
    let lines = server.get_as(&search, "/api/v1/search?limit_packets=1").lines();
    let id = lines[0]["id"].as_str().unwrap();
    let one = format!("/api/v1/packets/{}", encoded(id));
    assert!(server.get_as(&search, &one).json()["hex"].is_null());
    assert!(server.get_as(&extract, &one).json()["hex"].is_string());
    // Nobody learns what became of the streams of others.
    let reply = server.get_as(&extract, "/api/v1/packets?q=udp+port+53");
    let answer = format!("/api/v1/answers/{}", reply.header("tapdex-answer").unwrap());
    assert_eq!(server.get_as(&search, &answer).status, 404);
    assert_eq!(server.get_as(&extract, &answer).status, 200);
    Tokens::revoke(&state, "search", 0).unwrap();
    assert_eq!(server.get_as(&search, "/api/v1/count").status, 401);
    // No secret is ever written down.
    let log = std::fs::read_to_string(state.path_of(AUDIT_NAME)).unwrap();
    for token in [&search, &extract, &gone, &old, &wrong] {
        let secret = token.rsplit('_').next().unwrap();
        assert!(!log.contains(secret));
    }
}

#[test]
fn no_question_widens_a_role() {
    const ROLES: &str = "[role.dns]\nmay = \"extract\"\nfilter = \"udp port 53\"\n\
                         [role.early]\nmay = \"extract\"\nto = \"2026-01-05T08:00:00.05Z\"\n\
                         [role.few]\nmay = \"extract\"\npackets = 3\n";
    let server = Server::with(
        PACKETS,
        |state| state.write("roles.toml", ROLES.as_bytes()).unwrap(),
        Connections::default(),
        Settings::default(),
    );
    let state = server.state();
    let [dns, early, few] = ["dns", "early", "few"].map(|role| token(&state, role, role, None));
    let archive = server.archive();
    let count =
        |q: &str| Ask::new(&archive, &question(q).query(0).unwrap()).count().unwrap().value.count;
    let most = count("udp port 53");
    let mut tried: Vec<String> = [
        "",
        "tcp",
        "udp port 53 or tcp",
        "tcp or udp port 53",
        "not udp port 53",
        "(udp port 53) or (tcp)",
        ") or (tcp",
        "tcp) or (tcp",
        "1 = 1 or tcp",
        "len > 0",
        "udp port 53) or tcp or (tcp",
        "not (udp port 53)",
        "vlan or tcp",
        "vlan and tcp",
        "udp port 53 # and nothing",
        "udp port 53 -- ",
        "tcp\nor tcp",
        "tcp\u{0}or tcp",
        "ip[0] >= 0",
        "ether[0] >= 0 or tcp",
        "greater 0",
        "less 65535 or ip6",
        "after 2000-01-01 and tcp",
        "before 2100-01-01 and (tcp or udp)",
        "inner tcp",
        "tcp.port == 443",
        "ip.addr == 0.0.0.0/0",
        "frame.len > 0",
        "!(udp.port == 53)",
        "udp.port == 53 || tcp",
        "mpls or tcp",
        "pppoes or tcp",
        "geneve or tcp",
        "ip protochain 6",
    ]
    .map(str::to_owned)
    .to_vec();
    tried.extend((0..170).map(filters::generate).filter(|filter| filter.len() < 1_500));
    assert!(tried.len() >= 190);
    let is_dns = |line: &Value| {
        line["protocol"] == "UDP" && [&line["src_port"], &line["dst_port"]].contains(&&53.into())
    };
    let (mut seen, mut refused) = (0, 0);
    for q in &tried {
        for more in ["", "&through_tags=true", "&syntax=pcap", "&syntax=wireshark"] {
            let reply = server.get_as(&dns, &format!("/api/v1/count?q={}{more}", encoded(q)));
            match reply.status {
                200 => {
                    let found = reply.json();
                    assert!(found["count"].as_u64().unwrap() <= most, "{q}{more}");
                    // Not even a note about packets that are not its own.
                    let notes = found["notes"].to_string();
                    assert!(!notes.contains("behind VLAN") && !notes.contains("covers"), "{notes}");
                }
                400 => refused += 1,
                status => panic!("{q}{more}: {status} {}", reply.text()),
            }
        }
        let path = format!("/api/v1/search?limit_packets=20&q={}", encoded(q));
        let reply = server.get_as(&dns, &path);
        if reply.status == 200 {
            for line in reply.lines().iter().filter(|line| line["time"].is_string()) {
                assert!(is_dns(line), "{q}: {line}");
                seen += 1;
            }
        }
        let reply =
            server.raw(&head("POST", "/query", &format!("Authorization: Bearer {dns}\r\n"), q));
        if reply.status == 200 {
            assert!(pcap_packets(&reply.body) <= most, "{q}");
        }
    }
    assert!(seen > 100 && refused > 10, "{seen} {refused}");
    for path in [
        "/api/v1/packets?whole&q=udp",
        "/api/v1/flows?whole&q=udp",
        "/api/v1/explain?q=tcp",
        "/api/v1/segments",
        "/api/v1/interfaces",
    ] {
        assert_eq!(server.get_as(&dns, path).status, 403, "{path}");
    }
    // The statistics of an extract would tell how many packets there are.
    let extract = server.get_as(&dns, "/api/v1/packets?q=udp+port+53&statistics=true");
    let plain = server.get_as(&dns, "/api/v1/packets?q=udp+port+53&statistics=false");
    assert!(extract.whole && extract.body == plain.body);
    // A packet that is not its own is none.
    let any = |token: &str, q: &str| {
        let path = format!("/api/v1/search?limit_packets=1&q={}", encoded(q));
        let lines = server.get_as(token, &path).lines();
        format!("/api/v1/packets/{}", encoded(lines[0]["id"].as_str().unwrap()))
    };
    assert_eq!(server.get_as(&dns, &any(&few, "tcp")).status, 404);
    assert_eq!(server.get_as(&dns, &any(&few, "udp port 53")).status, 200);
    // Times and limits hold as well.
    let within = count("before 2026-01-05T08:00:00.05Z");
    assert!(within > 0 && within < PACKETS);
    for q in
        ["", "&from=2000-01-01", "&to=2100-01-01", "&q=before+2100-01-01", "&q=ip+or+ip6+or+arp"]
    {
        let found = server.get_as(&early, &format!("/api/v1/count?x{q}").replace("x&", ""));
        let found = if q.is_empty() { server.get_as(&early, "/api/v1/count") } else { found };
        assert!(found.json()["count"].as_u64().unwrap() <= within, "{q}");
    }
    let late = server.get_as(&early, "/api/v1/count?from=2026-01-05T08:00:00.06Z").json();
    assert_eq!((&late["count"], &late["notes"]), (&0.into(), &Value::Array(vec![])));
    for (path, lines) in [("/api/v1/search?limit_packets=100", 4), ("/api/v1/search", 4)] {
        assert_eq!(server.get_as(&few, path).lines().len(), lines, "{path}");
    }
    let reply = server.post("/query", &format!("Authorization: Bearer {few}\r\n"), "udp");
    assert_eq!(pcap_packets(&reply.body), 3);
}

#[test]
fn a_client_that_leaves_frees_its_work() {
    let settings = Settings { streams: 2, ..Settings::default() };
    let server = Server::with(200_000, |_| {}, Connections::default(), settings);
    let streams = || {
        let metrics = server.get("/metrics").text();
        let line = metrics.lines().find(|line| line.starts_with("tapdex_server_streams ")).unwrap();
        line.rsplit(' ').next().unwrap().parse::<u64>().unwrap()
    };
    // Both take nothing, so that their streams cannot end.
    let held: Vec<TcpStream> = (0..2)
        .map(|_| {
            let mut stream = server.send(&head("GET", "/api/v1/packets", "", ""));
            let mut first = [0; 100];
            stream.read_exact(&mut first).unwrap();
            stream
        })
        .collect();
    assert_eq!(streams(), 2);
    let refused = server.get("/api/v1/packets");
    assert_eq!((refused.status, refused.header("retry-after")), (429, Some("10")));
    // Others are answered meanwhile.
    assert_eq!(server.get("/api/v1/count").status, 200);
    drop(held);
    let since = Instant::now();
    while streams() > 0 {
        assert!(since.elapsed() < Duration::from_secs(20), "streams do not end");
        std::thread::yield_now();
    }
    assert!(server.get("/api/v1/packets?limit_packets=10").whole);
    let left = server.audit().into_iter().filter(|line| line["outcome"] == "left").count();
    assert_eq!(left, 2);
}

#[test]
fn greedy_and_slow_clients_are_cut_off() {
    let connections = Connections { most: 8, head_time: Duration::from_millis(300) };
    let server = Server::with(100, |_| {}, connections, Settings::default());
    // A head that never ends.
    let slow = server.send("GET /api/v1/count HTTP/1.1\r\nHost: localhost\r\nX-Slow: ");
    let closed = |mut stream: TcpStream| {
        let mut bytes = Vec::new();
        // Whether it is reset or ended, it is over.
        drop(stream.read_to_end(&mut bytes));
        String::from_utf8_lossy(&bytes).into_owned()
    };
    let told = closed(slow);
    assert!(told.is_empty() || told.starts_with("HTTP/1.1 408"), "{told}");
    // A head of a hundred megabytes: it is not read to its end.
    let mut greedy = server.send("GET /api/v1/count HTTP/1.1\r\nHost: localhost\r\n");
    let line = format!("X-Large: {}\r\n", "x".repeat(10_000));
    let sent = (0..10_000).take_while(|_| greedy.write_all(line.as_bytes()).is_ok()).count();
    assert!(sent < 2_000, "{sent}");
    let told = closed(greedy);
    assert!(told.is_empty() || told.starts_with("HTTP/1.1 431"), "{told}");
    // A body that is too long, and one that says so only.
    let body = format!("{{\"q\":\"{}\"}}", "x".repeat(17 << 20));
    let len = body.len();
    let mut long = server.send(&format!(
        "POST /api/v1/count HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\
         Content-Length: {len}\r\n\r\n"
    ));
    drop(long.write_all(body.as_bytes()));
    let told = closed(long);
    assert!(told.is_empty() || told.starts_with("HTTP/1.1 413"), "{told}");
    // More connections than there may be: those that say nothing are closed, and others come in.
    let idle: Vec<TcpStream> =
        (0..50).map(|_| TcpStream::connect(server.address).unwrap()).collect();
    server.comes_in();
    drop(idle);
    for garbage in
        ["\r\n\r\n", "GET\r\n\r\n", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\nxxxx", "\u{16}\u{3}\u{1}"]
    {
        drop(closed(server.send(garbage)));
    }
    assert_eq!(server.get("/api/v1/count").status, 200);
}

/// Connections that somebody opens who says nothing.
const MANY: u64 = 10_000;

#[test]
fn ten_thousand_idle_connections_keep_nobody_out_who_is_in() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    // Both ends of each are in this process.
    let limit = getrlimit(Resource::Nofile);
    let most = limit.maximum.unwrap_or(u64::MAX).min(4 * MANY);
    setrlimit(Resource::Nofile, Rlimit { current: Some(most), ..limit }).unwrap();
    let places = Connections::default().most;
    let many = MANY.min(most.saturating_sub(places as u64 + 500));
    if many < MANY {
        println!("only {many} connections: there are {most} file descriptors");
    }
    let head_time = Duration::from_secs(120);
    let connections = Connections { head_time, ..Connections::default() };
    let server = Server::with(100, |_| {}, connections, Settings::default());
    let mut inside = TcpStream::connect(server.address).unwrap();
    inside.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let mut asks = || {
        inside.write_all(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
        let mut answer = [0; 1024];
        let len = inside.read(&mut answer).unwrap();
        assert!(answer[..len].starts_with(b"HTTP/1.1 200"));
    };
    asks();
    // From many sides: the kernel may have one of them try again after a second.
    const SIDES: u64 = 25;
    let connect = || TcpStream::connect(server.address).unwrap();
    let side = || (0..many / SIDES).map(|_| connect()).collect::<Vec<_>>();
    let idle: Vec<TcpStream> = std::thread::scope(|scope| {
        let sides: Vec<_> = (0..SIDES).map(|_| scope.spawn(side)).collect();
        sides.into_iter().flat_map(|side| side.join().unwrap()).collect()
    });
    asks();
    if idle.len() > places {
        // Whoever comes now is not kept waiting.
        let reply = server.tells_one_more(503);
        assert_eq!(reply.header("retry-after"), Some("10"));
        assert_eq!(reply.body, b"{\"error\":\"too many connections\"}\n");
    }
    asks();
    drop(idle);
    server.comes_in();
    asks();
}

#[test]
fn jobs_are_made_fetched_in_pieces_and_deleted() {
    let server = Server::new();
    let made = server.post("/api/v1/jobs", "", r#"{"q":"udp port 53","reason":"case 7"}"#);
    assert_eq!(made.status, 201, "{}", made.text());
    let job: Value = serde_json::from_slice(&made.body).unwrap();
    let path = made.header("location").unwrap().to_owned();
    assert!(path.ends_with(job["id"].as_str().unwrap()));
    let job = wait(&server, "", &path);
    assert_eq!((&job["state"], &job["answer"]["complete"]), (&"done".into(), &true.into()));
    let direct = server.get("/api/v1/packets?q=udp+port+53").body;
    let whole = server.get(&format!("{path}/result"));
    assert!(whole.status == 200 && whole.body == direct);
    assert_eq!(job["bytes"], direct.len());
    let tag = whole.header("etag").unwrap().to_owned();
    assert_eq!(tag.trim_matches('"'), job["sha256"].as_str().unwrap());
    // As a client does whose connection broke off.
    let part = |range: &str, more: &str| {
        let headers = format!("Range: bytes={range}\r\n{more}");
        server.raw(&head("GET", &format!("{path}/result"), &headers, ""))
    };
    let [first, rest] = [part("0-999", ""), part("1000-", &format!("If-Range: {tag}\r\n"))];
    assert_eq!((first.status, rest.status), (206, 206));
    assert_eq!([first.body, rest.body].concat(), direct);
    let expected = format!("bytes 1000-{}/{}", direct.len() - 1, direct.len());
    assert_eq!(rest.head.lines().find_map(|l| l.strip_prefix("content-range: ")), Some(&*expected));
    assert_eq!(part("1000-", "If-Range: \"other\"\r\n").body, direct);
    assert_eq!(part("999999999-", "").status, 416);
    let listed = server.get("/api/v1/jobs").json();
    assert_eq!(listed.as_array().unwrap().len(), 1);
    assert_eq!(server.raw(&head("DELETE", &path, "", "")).status, 204);
    for gone in [path.clone(), format!("{path}/result")] {
        assert_eq!(server.get(&gone).status, 404);
    }
    for id in ["x", "..%2f..%2fetc", &"0".repeat(32), &"A".repeat(32)] {
        assert_eq!(server.get(&format!("/api/v1/jobs/{id}")).status, 404, "{id}");
    }
    assert_eq!(server.post("/api/v1/jobs", "", r#"{"q":"port htpp"}"#).status, 400);
    let files = std::fs::read_dir(server.state().path_of("jobs")).unwrap().count();
    assert_eq!(files, 0);
    let lines = server.audit();
    let done = lines.iter().find(|l| l["what"] == "job" && l["outcome"] == "done").unwrap();
    assert!(done["reason"].as_str().unwrap().starts_with("case 7"));
    assert_eq!(done["sha256"], job["sha256"]);
}

/// Waits until a job has ended.
fn wait(server: &Server, headers: &str, path: &str) -> Value {
    let since = Instant::now();
    loop {
        let job = server.raw(&head("GET", path, headers, "")).json();
        if job["state"] == "done" || job["state"] == "failed" {
            return job;
        }
        assert!(since.elapsed() < Duration::from_secs(60), "{job}");
        std::thread::yield_now();
    }
}

#[test]
fn jobs_are_seen_by_their_owner_and_keep_to_the_role() {
    const ROLES: &str = "[role.dns]\nmay = \"extract\"\nfilter = \"udp port 53\"\n";
    let server = Server::with(
        PACKETS,
        |state| state.write("roles.toml", ROLES.as_bytes()).unwrap(),
        Connections::default(),
        Settings::default(),
    );
    let state = server.state();
    let bearer = |name: &str, role: &str| {
        format!("Authorization: Bearer {}\r\n", token(&state, name, role, None))
    };
    let [dns, other] = [bearer("dns", "dns"), bearer("other", "extract")];
    let [admin, search] = [bearer("admin", "admin"), bearer("search", "search")];
    let made = server.post("/api/v1/jobs", &dns, r#"{"q":"udp"}"#);
    let path = made.header("location").unwrap().to_owned();
    let job = wait(&server, &dns, &path);
    let archive = server.archive();
    let count =
        |q: &str| Ask::new(&archive, &question(q).query(0).unwrap()).count().unwrap().value.count;
    assert_eq!(job["packets"], count("udp port 53"));
    assert!(count("udp") > count("udp port 53"));
    let get = |who: &str, path: &str| server.raw(&head("GET", path, who, "")).status;
    assert_eq!((get(&other, &path), get(&admin, &path), get(&search, &path)), (404, 200, 403));
    assert_eq!(get(&other, &format!("{path}/result")), 404);
    assert_eq!(server.raw(&head("DELETE", &path, &other, "")).status, 404);
    assert_eq!(server.post("/api/v1/jobs", &dns, r#"{"q":"udp","whole":true}"#).status, 403);
    assert_eq!(server.post("/api/v1/jobs", &search, r#"{"q":"udp"}"#).status, 403);
    assert_eq!(server.raw(&head("GET", "/api/v1/jobs", &other, "")).json(), Value::Array(vec![]));
}

#[test]
fn the_page_asks_nobody_else_and_is_for_everybody() {
    let server = Server::new();
    for path in ["/", "/explore?q=udp", "/recorder", "/explain", "/jobs", "/audit", "/nodes"] {
        let reply = server.get(path);
        assert_eq!(reply.status, 200, "{path}");
        assert_eq!(reply.header("content-type"), Some("text/html; charset=utf-8"));
        assert_eq!(reply.header("referrer-policy"), Some("no-referrer"));
        assert_eq!(reply.header("cache-control"), Some("no-cache"));
        let policy = reply.header("content-security-policy").unwrap();
        assert!(policy.starts_with("default-src 'none'; script-src 'self'"), "{policy}");
        assert!(!policy.contains("'un") && !policy.contains("http"), "{policy}");
    }
    // A page of another site, whose name leads to this machine.
    assert_eq!(server.raw("GET / HTTP/1.0\r\nHost: evil.example\r\n\r\n").status, 421);
    // What is built without node has no more than that.
    let text = server.get("/").text();
    let Some((_, rest)) = text.split_once("src=\"") else {
        assert!(text.contains("no page"), "{text}");
        return;
    };
    let script = rest.split('"').next().unwrap();
    let plain = server.get(script);
    assert_eq!(plain.header("cache-control"), Some("public, max-age=31536000, immutable"));
    let packed = server.raw(&head("GET", script, "Accept-Encoding: br, gzip\r\n", ""));
    assert_eq!(packed.header("content-encoding"), Some("gzip"));
    assert!(plain.header("content-encoding").is_none() && packed.body.len() < plain.body.len());
    let text = plain.text();
    assert!(!text.contains("https://") && !text.contains(".innerHTML=`"), "the script asks others");
    // It needs no token, and shows nothing without one.
    let state = server.state();
    token(&state, "soc", "search", None);
    assert_eq!(server.get("/").status, 200);
    assert_eq!(server.get("/api/v1/status").status, 401);
}

fn sum(numbers: &Value) -> u64 {
    numbers.as_array().unwrap().iter().map(|number| number.as_u64().unwrap()).sum()
}

#[test]
fn histograms_by_value_add_up() {
    let server = Server::new();
    for q in ["", "udp", "net 10.0.0.0/8 and len > 200", "tcp[tcpflags] & tcp-syn != 0"] {
        let get = |more: &str| server.get(&format!("/api/v1/{more}&q={}", encoded(q))).json();
        let plain = get("histogram?bins=30");
        let sum_of = |answer: &Value, name: &str| -> u64 {
            let spans = answer["spans"].as_array().unwrap().iter();
            spans.map(|span| span[name].as_u64().unwrap()).sum()
        };
        for field in ["proto", "src", "port", "vlan", "frame.len", "iface"] {
            let stacked = get(&format!("histogram?bins=30&stack={field}&stack_n=4"));
            assert!(stacked["by"].is_null());
            assert_eq!(stacked["spans"], plain["spans"], "{field} {q}");
            let tops = get(&format!("top?field={field}&n=4"));
            let stack = &stacked["stack"];
            let top = tops["top"][0]["values"].as_array().unwrap();
            assert_eq!(stack["values"].as_array().unwrap().len(), top.len(), "{field} {q}");
            for (n, one) in top.iter().enumerate() {
                assert_eq!(stack["values"][n], one["value"], "{field} {q}");
                let counted = one["count"].as_u64().unwrap();
                // A packet with two of the values counts once.
                match field {
                    "port" => assert!(sum(&stack["counts"][n]) <= counted),
                    _ => assert_eq!(sum(&stack["counts"][n]), counted, "{field} {n} {q}"),
                }
            }
            let bytes = get(&format!("histogram?bins=30&stack={field}&stack_n=4&by=bytes"));
            assert_eq!(bytes["by"], "bytes");
            assert_eq!(sum_of(&bytes, "packets"), sum_of(&plain, "packets"));
            if field == "proto" || field == "src" {
                let tops = get(&format!("top?field={field}&n=4&by=bytes"));
                for (n, one) in tops["top"][0]["values"].as_array().unwrap().iter().enumerate() {
                    let counts = &bytes["stack"]["counts"][n];
                    assert_eq!(sum(counts), one["bytes"].as_u64().unwrap(), "{field} {n} {q}");
                }
            }
        }
    }
    assert_eq!(server.get("/api/v1/histogram?stack=nothing").status, 400);
    assert_eq!(server.get("/api/v1/histogram?by=weight").status, 400);
    // Bytes of all are those of the archive.
    let bytes = server.get("/api/v1/histogram?by=bytes").json();
    let all: u64 =
        bytes["spans"].as_array().unwrap().iter().map(|s| s["bytes"].as_u64().unwrap()).sum();
    assert_eq!(server.get("/api/v1/segments").json()["archive"]["wire_bytes"], all);
}

#[test]
fn fields_without_time_are_skipped() {
    let server = Server::new();
    let tops = server.get("/api/v1/top?field=src,dst,port&budget_ms=0").json();
    let skipped = |n: usize| tops["top"][n]["skipped"] == Value::Bool(true);
    assert!(!skipped(0) && skipped(1) && skipped(2), "{tops}");
    let tops = server.get("/api/v1/top?field=src,dst&budget_ms=60000").json();
    assert!(tops["top"][1]["skipped"].is_null() && tops["top"][1]["total"].as_u64() > Some(0));
}

#[test]
fn packets_behind_tags_are_counted() {
    let server = Server::new();
    let outer = server.get("/api/v1/count?q=tcp+port+443").json();
    let through = server.get("/api/v1/count?q=tcp+port+443&through_tags").json();
    let more = through["count"].as_u64().unwrap() - outer["count"].as_u64().unwrap();
    assert!(more > 0);
    assert_eq!(outer["behind_tags"], serde_json::json!({"packets": more, "exact": true}));
    assert!(through["behind_tags"].is_null());
}

#[test]
fn a_packet_has_its_fields_and_their_bytes() {
    let server = Server::new();
    let state = server.state();
    let [search, extract] = ["search", "extract"].map(|role| token(&state, role, role, None));
    let lines = server.get_as(&search, "/api/v1/search?q=tcp&limit_packets=20").lines();
    for line in lines.iter().filter(|line| line["id"].is_string()) {
        let path = format!("/api/v1/packets/{}", encoded(line["id"].as_str().unwrap()));
        let (seen, whole) =
            (server.get_as(&search, &path).json(), server.get_as(&extract, &path).json());
        assert_eq!(seen["layers"], whole["layers"]);
        assert!(seen["hex"].is_null());
        let hex = whole["hex"].as_str().unwrap();
        let mut found = 0;
        for field in
            whole["layers"].as_array().unwrap().iter().flat_map(|l| l["fields"].as_array().unwrap())
        {
            let place = |name: &str| usize::try_from(field[name].as_u64().unwrap()).unwrap();
            let bytes = &hex[2 * place("offset")..2 * (place("offset") + place("length"))];
            match field["name"].as_str().unwrap() {
                "ip.src" => {
                    let address: std::net::Ipv4Addr =
                        field["value"].as_str().unwrap().parse().unwrap();
                    assert_eq!(u32::from_str_radix(bytes, 16).unwrap(), u32::from(address));
                    assert_eq!(line["src"], field["value"]);
                }
                "tcp.dstport" => {
                    assert_eq!(u64::from_str_radix(bytes, 16).ok(), line["dst_port"].as_u64());
                    // The filter of a field finds the packet.
                    let q = format!(
                        "{} && frame.len == {}",
                        field["filter"].as_str().unwrap(),
                        line["length"]
                    );
                    let count =
                        server.get_as(&search, &format!("/api/v1/count?q={}", encoded(&q))).json();
                    assert!(count["count"].as_u64() > Some(0), "{q}");
                }
                _ => continue,
            }
            found += 1;
        }
        assert!(found > 0, "{whole}");
    }
}

#[test]
fn status_tells_who_asks_and_the_audit_log_what() {
    const ROLES: &str = "[role.dns]\nmay = \"search\"\nfilter = \"udp port 53\"\n";
    let server = Server::with(
        PACKETS,
        |state| state.write("roles.toml", ROLES.as_bytes()).unwrap(),
        Connections::default(),
        Settings::default(),
    );
    let state = server.state();
    let [extract, dns, admin] =
        ["extract", "dns", "admin"].map(|role| token(&state, role, role, None));
    let status = server.get_as(&extract, "/api/v1/status").json();
    assert_eq!((&status["may"], &status["kept"]["packets"]), (&"extract".into(), &PACKETS.into()));
    assert_eq!(status["limited"], false);
    // A role with a filter learns nothing about the rest.
    let status = server.get_as(&dns, "/api/v1/status").json();
    assert_eq!((&status["role"], &status["filters"][0]), (&"dns".into(), &"udp port 53".into()));
    assert!(status["kept"].is_null() && status["recorder"].is_null());
    assert_eq!(server.get_as(&dns, "/api/v1/fields").status, 200);
    assert!(server.get_as(&extract, "/api/v1/packets?q=icmp&reason=case+7").whole);
    assert_eq!(server.get_as(&extract, "/api/v1/audit").status, 403);
    let log = server.get_as(&admin, "/api/v1/audit?n=2").json();
    assert_eq!((&log["wrong"], log["entries"].as_array().map(Vec::len)), (&Value::Null, Some(2)));
    let all = server.get_as(&admin, "/api/v1/audit").json();
    let entries = all["entries"].as_array().unwrap();
    assert!(entries.iter().any(|entry| entry["reason"] == "case 7" && entry["outcome"] == "done"));
    assert!(entries.windows(2).all(|two| two[0]["seq"].as_u64() > two[1]["seq"].as_u64()));
    assert_eq!(all["lines"].as_u64().unwrap(), entries.len() as u64);
    // Nobody who edits the log gets away with it.
    let path = state.path_of(AUDIT_NAME);
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, text.replacen("case 7", "case 8", 1)).unwrap();
    assert!(server.get_as(&admin, "/api/v1/audit").json()["wrong"].is_string());
}
