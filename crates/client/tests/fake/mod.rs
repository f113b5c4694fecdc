//! Archives of made-up packets, and a small server of such an archive that can misbehave.

#![allow(dead_code, unreachable_pub, reason = "not every test needs all of it")]
#![allow(clippy::big_endian_bytes, reason = "network headers are big-endian")]

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde::Serialize;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tapdex_answers::ask::{Ask, SpanLen};
use tapdex_answers::capture::Limits;
use tapdex_answers::deliver::{self, Delivery};
use tapdex_answers::inventory::Inventory;
use tapdex_answers::lines::By;
use tapdex_answers::question::Question;
use tapdex_engine::archive::{Archive, Ingest, Input};
use tapdex_engine::capture::{CaptureWriter, FileFormat, Interface};
use tapdex_engine::fields;
use tapdex_engine::query::{FlowOrder, Query, Value as Field};

/// The time of the first packets.
pub const START_NS: u64 = 1_767_600_000_000_000_000;

/// The time of the packets that a server goes on with.
pub const LIVE_NS: u64 = START_NS + 3_600_000_000_000;

/// A made-up packet of UDP.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Made {
    pub time_ns: u64,
    pub src: u8,
    pub port: u16,
    pub len: u16,
}

impl Made {
    /// As a frame of Ethernet.
    pub fn frame(&self) -> Vec<u8> {
        let mut frame = vec![2, 0, 0, 0, 0, self.src, 2, 0, 0, 0, 1, 0, 8, 0];
        let udp_len = 8 + self.len;
        frame.extend([0x45, 0]);
        frame.extend((20 + udp_len).to_be_bytes());
        frame.extend([0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, self.src, 10, 1, 0, 1]);
        frame.extend(self.port.to_be_bytes());
        frame.extend(53_u16.to_be_bytes());
        frame.extend(udp_len.to_be_bytes());
        frame.extend([0, 0]);
        frame.resize(frame.len() + usize::from(self.len), self.src);
        frame
    }
}

/// Packets of a node: its number is in their source, so that nodes have no flow in common.
pub fn made(node: u8, packets: u64) -> Vec<Made> {
    let of = |n: u64| Made {
        time_ns: START_NS + n * 1_000_003 + u64::from(node) * 101,
        src: node,
        port: 1_000 + u16::try_from(n % 7).unwrap(),
        len: u16::try_from(n % 13).unwrap(),
    };
    (0..packets).map(of).collect()
}

/// Writes packets of an interface as a capture.
pub fn write_capture(path: &Path, interface: &str, packets: &[Made]) {
    let file = std::fs::File::create(path).unwrap();
    let mut of = Interface::new(1, 1_000_000_000);
    of.name = interface.to_owned();
    let mut writer = CaptureWriter::new(file, FileFormat::Pcapng, &[of], "").unwrap();
    for packet in packets {
        let frame = packet.frame();
        let len = u32::try_from(frame.len()).unwrap();
        writer.packet(0, packet.time_ns, len, &frame).unwrap();
    }
    writer.finish().unwrap();
}

/// Folders of a test.
pub struct Folders(pub tempfile::TempDir);

impl Folders {
    pub fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    /// An archive of captures that have these packets.
    pub fn archive(&self, name: &str, captures: &[&[Made]]) -> PathBuf {
        self.part(name, 0, captures)
    }

    /// The same, with the number of its first capture, and so the name of the interface.
    pub fn part(&self, name: &str, first: usize, captures: &[&[Made]]) -> PathBuf {
        let folder = self.0.path().join(name);
        let mut inputs = Vec::new();
        for (number, packets) in captures.iter().enumerate() {
            let path = self.0.path().join(format!("{name}-{number}.pcapng"));
            write_capture(&path, &format!("if{}", first + number), packets);
            inputs.push(Input::File(path));
        }
        let archive = Archive::create(&folder, None).unwrap();
        Ingest::new(&archive).threads(1).run(&inputs).unwrap();
        folder
    }
}

/// How a server behaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    Honest,
    /// Closes the connection after this many bytes of the body.
    Killed(usize),
    /// Says nothing more after this many bytes of the body.
    Stalled(usize),
    /// A byte now and then.
    Dripping,
    /// A few bytes at a time, but all of them.
    Slow,
    /// The body has another byte at a place, from its end.
    Changed(usize),
    /// The packets are those of other times.
    OtherTimes,
    /// The second half of the packets comes first.
    OutOfOrder,
    /// This status and body to everything.
    Says(u16, &'static str),
    /// JSON that is none.
    Garbage,
    /// A line without an end.
    Endless,
    /// Goes on with so many packets, one after the other, and then is alive but quiet.
    Live(u64),
    /// Redirects to another server.
    Redirects(SocketAddr),
}

/// A server.
pub struct Fake {
    pub address: SocketAddr,
    stop: Arc<AtomicBool>,
    pub asked: Arc<AtomicU64>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Drop for Fake {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let _ = TcpStream::connect(self.address);
        self.thread.take().unwrap().join().unwrap();
    }
}

struct Shared {
    archive: Archive,
    way: Way,
    stop: Arc<AtomicBool>,
    asked: Arc<AtomicU64>,
    answers: Mutex<HashMap<String, Value>>,
}

impl Fake {
    /// Serves an archive in some way.
    pub fn of(folder: &Path, way: Way) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, asked) = (Arc::<AtomicBool>::default(), Arc::<AtomicU64>::default());
        let shared = Arc::new(Shared {
            archive: Archive::open(folder).unwrap(),
            way,
            stop: Arc::clone(&stop),
            asked: Arc::clone(&asked),
            answers: Mutex::default(),
        });
        let thread = std::thread::spawn(move || {
            for stream in listener.incoming() {
                if shared.stop.load(Ordering::Relaxed) {
                    return;
                }
                let (shared, stream) = (Arc::clone(&shared), stream.unwrap());
                std::thread::spawn(move || shared.answer(stream));
            }
        });
        Self { address, stop, asked, thread: Some(thread) }
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }
}

fn number(asked: &Value, name: &str) -> Option<u64> {
    asked.get(name).and_then(Value::as_u64)
}

fn text(asked: &Value, name: &str) -> String {
    asked.get(name).and_then(Value::as_str).unwrap_or_default().to_owned()
}

fn flag(asked: &Value, name: &str) -> bool {
    asked.get(name).and_then(Value::as_bool).unwrap_or(false)
}

fn json_of(answer: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(answer).unwrap()
}

impl Shared {
    fn answer(&self, mut stream: TcpStream) {
        let Some((path, body)) = request(&stream) else { return };
        self.asked.fetch_add(1, Ordering::Relaxed);
        let is_capture = path.ends_with("/packets");
        match self.way {
            Way::Says(status, text) => {
                let head = format!(
                    "HTTP/1.1 {status} X\r\nRetry-After: 7\r\nContent-Length: {}\r\n\r\n{text}",
                    text.len()
                );
                let _ = stream.write_all(head.as_bytes());
                return;
            }
            Way::Redirects(to) => {
                let head = format!(
                    "HTTP/1.1 307 X\r\nLocation: http://{to}{path}\r\nContent-Length: 0\r\n\r\n"
                );
                let _ = stream.write_all(head.as_bytes());
                return;
            }
            _ => {}
        }
        let id = format!("a{}", self.asked.load(Ordering::Relaxed));
        let head =
            format!("HTTP/1.1 200 OK\r\nTapdex-Answer: {id}\r\nTransfer-Encoding: chunked\r\n\r\n");
        if stream.write_all(head.as_bytes()).is_err() {
            return;
        }
        if self.way == Way::Garbage {
            send(&mut stream, b"{\"count\": seven}\n");
            let _ = stream.write_all(b"0\r\n\r\n");
            return;
        }
        if self.way == Way::Endless {
            let many = vec![b'['; 1 << 16];
            while !self.stop.load(Ordering::Relaxed) && send(&mut stream, &many) {}
            return;
        }
        if let Way::Live(packets) = self.way {
            self.live(&mut stream, &path, &body, packets);
            return;
        }
        let body = match path.strip_prefix("/api/v1/answers/") {
            Some(id) => json_of(&self.answers.lock().unwrap()[id]),
            None => self.body(&path, &body, &id),
        };
        let is_answer = path.contains("/answers/");
        match self.way {
            Way::Killed(after) if !is_answer => {
                send(&mut stream, &body[..after.min(body.len())]);
                return;
            }
            Way::Stalled(after) if !is_answer => {
                send(&mut stream, &body[..after.min(body.len())]);
                while !self.stop.load(Ordering::Relaxed) && !is_gone(&stream) {
                    std::thread::sleep(Duration::from_millis(20));
                }
                return;
            }
            Way::Dripping => {
                for byte in body {
                    std::thread::sleep(Duration::from_millis(50));
                    if self.stop.load(Ordering::Relaxed) || !send(&mut stream, &[byte]) {
                        return;
                    }
                }
            }
            Way::Slow => {
                for part in body.chunks(body.len() / 10 + 1) {
                    std::thread::sleep(Duration::from_millis(20));
                    send(&mut stream, part);
                }
            }
            Way::Changed(from_end) if is_capture => {
                let mut body = body;
                let at = body.len() - from_end;
                body[at] ^= 1;
                send(&mut stream, &body);
            }
            _ => {
                send(&mut stream, &body);
            }
        }
        let _ = stream.write_all(b"0\r\n\r\n");
    }

    /// What is there, and then more, as if it was recorded.
    fn live(&self, stream: &mut TcpStream, path: &str, body: &[u8], packets: u64) {
        let is_lines = path.ends_with("/search");
        let history = self.body(path, body, "live");
        // Without what comes at the end: the last line, or statistics.
        let end = if is_lines { history.trim_ascii_end() } else { &history };
        let end =
            end.iter().rposition(|&byte| is_lines && byte == b'\n').map_or(end.len(), |n| n + 1);
        send(stream, &history[..end]);
        let fresh = (0..packets).map(|n| Made { time_ns: LIVE_NS + n, src: 9, port: 1, len: 1 });
        let fresh: Vec<Made> = fresh.collect();
        let mut writer = CaptureWriter::new(Vec::new(), FileFormat::Pcapng, &[], "").unwrap();
        writer.add_interface(&Interface::new(1, 1_000_000_000)).unwrap();
        let start = writer.written();
        for packet in &fresh {
            let frame = packet.frame();
            writer.packet(0, packet.time_ns, u32::try_from(frame.len()).unwrap(), &frame).unwrap();
        }
        let start = usize::try_from(start).unwrap();
        let blocks = writer.finish().unwrap().split_off(start);
        let len = blocks.len() / fresh.len().max(1);
        send(stream, if is_lines { b"\n" } else { b"" });
        for (number, packet) in fresh.iter().enumerate() {
            std::thread::sleep(Duration::from_millis(20));
            let frame = packet.frame();
            let record = tapdex_engine::capture::Record {
                offset: 0,
                time_ns: packet.time_ns,
                interface: 0,
                link: tapdex_engine::packet::LinkType(1),
                swapped: false,
                wire_len: u32::try_from(frame.len()).unwrap(),
                data: &frame,
            };
            let mut line = json_of(&tapdex_answers::lines::Packet::new("live", 1, record));
            line.push(b'\n');
            send(stream, if is_lines { &line } else { &blocks[number * len..][..len] });
        }
        while !self.stop.load(Ordering::Relaxed) && !is_gone(stream) {
            std::thread::sleep(Duration::from_millis(50));
            send(stream, if is_lines { b"\n" } else { b"" });
        }
    }

    /// The answer of an honest server, from honest packets or others.
    fn body(&self, path: &str, body: &[u8], id: &str) -> Vec<u8> {
        if path == "/api/v1/segments" {
            let inventory = Inventory::new(&self.archive, "over there".into(), |_| String::new());
            return json_of(&inventory.unwrap());
        }
        let asked: Value = serde_json::from_slice(body).unwrap();
        let mut question = Question {
            q: text(&asked, "q"),
            syntax: serde_json::from_value(asked["syntax"].clone()).unwrap(),
            from: asked.get("from").and_then(Value::as_str).map(str::to_owned),
            to: asked.get("to").and_then(Value::as_str).map(str::to_owned),
            utc: true,
            through_tags: false,
        };
        if self.way == Way::OtherTimes {
            (question.from, question.to) = (None, None);
        }
        let query: Query = question.query(0).unwrap();
        let ask = Ask::new(&self.archive, &query);
        let limit = number(&asked, "limit_packets");
        let n = usize::try_from(number(&asked, "n").unwrap_or(10)).unwrap();
        let n = if n == 0 { usize::MAX } else { n };
        match path.strip_prefix("/api/v1/").unwrap() {
            "count" => json_of(&ask.count().unwrap()),
            "top" => {
                let fields = text(&asked, "field");
                let names: Vec<_> =
                    fields.split(',').map(|name| fields::for_top(name).unwrap()).collect();
                let by = if text(&asked, "by") == "bytes" { By::Bytes } else { By::Packets };
                json_of(&ask.top(&names, by, n, Field::to_string).unwrap())
            }
            "histogram" => {
                let len = match number(&asked, "span_ns") {
                    Some(span) => SpanLen::Each(span),
                    None => SpanLen::AtMost(number(&asked, "bins").unwrap()),
                };
                json_of(&ask.histogram(len).unwrap())
            }
            "flows" => {
                let order = match text(&asked, "sort").as_str() {
                    "packets" => FlowOrder::Packets,
                    "duration" => FlowOrder::Duration,
                    "start" => FlowOrder::Start,
                    _ => FlowOrder::Bytes,
                };
                json_of(&ask.flows(order, n, flag(&asked, "whole"), |_| {}).unwrap())
            }
            "explain" => json_of(&ask.explain().unwrap()),
            "search" => {
                let mut lines: Vec<Vec<u8>> = Vec::new();
                let answer = deliver::packets(
                    &ask,
                    limit,
                    false,
                    &|_| "there.pcapng".to_owned(),
                    &mut |packet| {
                        lines.extend(packet.map(|packet| json_of(&packet)));
                        Ok(true)
                    },
                    &|| false,
                );
                if self.way == Way::OutOfOrder {
                    let half = lines.len() / 2;
                    lines.rotate_left(half);
                }
                lines.push(Vec::new());
                let mut body = lines.join(&b'\n');
                let end = json!({"end": answer.unwrap(), "sha256": sha256(&body)});
                if let Way::Changed(_) = self.way {
                    let text = String::from_utf8(body).unwrap();
                    body = text.replacen("10.1.0.1", "10.1.0.2", 1).into_bytes();
                }
                body.extend(json_of(&end));
                body.push(b'\n');
                body
            }
            "packets" => {
                let format = match text(&asked, "format").as_str() {
                    "pcap" => FileFormat::Pcap,
                    _ => FileFormat::Pcapng,
                };
                let delivery = Delivery {
                    format,
                    limits: Limits { packets: limit, bytes: number(&asked, "limit_bytes") },
                    whole_conversations: flag(&asked, "whole"),
                    follow: false,
                    statistics: flag(&asked, "statistics"),
                };
                let mut bytes = Vec::new();
                let answer = deliver::capture(&ask, &delivery, &mut bytes, &|| false).unwrap();
                if self.way == Way::OutOfOrder {
                    bytes = reversed(&bytes);
                }
                let sent = json!({"state": "done", "sha256": sha256(&bytes), "answer": answer});
                self.answers.lock().unwrap().insert(id.to_owned(), sent);
                bytes
            }
            other => panic!("nobody asks for {other}"),
        }
    }
}

fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The packets of a capture, the last one first.
fn reversed(bytes: &[u8]) -> Vec<u8> {
    let mut reader = tapdex_engine::capture::CaptureReader::open(bytes).unwrap();
    let mut packets = Vec::new();
    while let Some(record) = reader.next().unwrap() {
        packets.push((record.time_ns, record.wire_len, record.data.to_vec()));
    }
    let interface = Interface::new(1, 1_000_000_000);
    let mut writer = CaptureWriter::new(Vec::new(), FileFormat::Pcapng, &[interface], "").unwrap();
    for (time_ns, wire_len, data) in packets.iter().rev() {
        writer.packet(0, *time_ns, *wire_len, data).unwrap();
    }
    writer.finish().unwrap()
}

/// Whether the client has closed the connection.
fn is_gone(stream: &TcpStream) -> bool {
    stream.set_nonblocking(true).unwrap();
    let peeked = stream.peek(&mut [0]);
    stream.set_nonblocking(false).unwrap();
    matches!(peeked, Ok(0))
}

/// Sends a chunk; returns whether somebody takes it.
fn send(stream: &mut TcpStream, bytes: &[u8]) -> bool {
    if bytes.is_empty() {
        return true;
    }
    let mut chunk = format!("{:x}\r\n", bytes.len()).into_bytes();
    chunk.extend(bytes);
    chunk.extend(b"\r\n");
    stream.write_all(&chunk).is_ok()
}

/// The path and the body of a request.
fn request(stream: &TcpStream) -> Option<(String, Vec<u8>)> {
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    reader.read_line(&mut line).ok()?;
    let path = line.split(' ').nth(1)?.to_owned();
    let mut len = 0;
    loop {
        let mut header = String::new();
        reader.read_line(&mut header).ok()?;
        if header.trim().is_empty() {
            break;
        }
        if let Some((name, value)) = header.split_once(':')
            && name.eq_ignore_ascii_case("content-length")
        {
            len = value.trim().parse().ok()?;
        }
    }
    let mut body = vec![0; len];
    reader.read_exact(&mut body).ok()?;
    Some((path, body))
}
