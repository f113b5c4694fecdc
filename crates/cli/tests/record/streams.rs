//! Captures that come through standard input, and from servers.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use crate::net::{WAIT_MAX, until};
use crate::wire::{Recorder, Wire, same, with_limit};

/// The programs that make the streams, by what comes out of them.
#[test]
fn standard_input_is_recorded_to_its_end() {
    let Some(wire) = Wire::new() else { return };
    wire.sh("tapdex gen -c 20000 --mean-len 200 -w a.pcap && gzip -k a.pcap");
    wire.sh("tapdex gen -c 20000 --mean-len 200 -w a.pcapng && zstd -q a.pcapng");
    for (name, source) in [
        ("a.pcap", "standard input"),
        ("a.pcapng", "gen0"),
        ("a.pcap.gz", "standard input"),
        ("a.pcapng.zst", "gen0"),
    ] {
        std::fs::remove_dir_all(wire.path("archive")).ok();
        let file = std::fs::File::open(wire.path(name)).unwrap();
        let mut recorder = wire.record_from("-i - --rotate 1MiB", file.into());
        recorder.wait().with(0, &["recording standard input", "recorded 20000 packets", "lost 0"]);
        assert_eq!(same(wire.frames("a.pcap", ""), wire.recorded(), 0), 20_000, "{name}");
        assert_eq!(wire.unfinished(), [""; 0]);
        let said = wire.sh(&format!("capinfos -M archive/packets/{}", wire.sealed()[0]));
        assert!(said.contains(&format!("Name = {source}\n")), "{name}: {said}");
        // Times are those of the capture.
        let first = |path: &str| wire.sh(&format!("tcpdump -nn -tt -c 1 -r {path}"));
        let second = format!("archive/packets/{}", wire.sealed()[0]);
        assert_eq!(first("a.pcap"), first(&second));
    }
}

/// Packets of a stream that has nothing to say for the moment are found all the same.
#[test]
fn a_slow_stream_is_searched_while_it_lasts() {
    let Some(wire) = Wire::new() else { return };
    wire.sh("tapdex gen -c 100 --mean-len 200 -w a.pcap");
    let bytes = std::fs::read(wire.path("a.pcap")).unwrap();
    let mut cat = Command::new("cat");
    let mut cat = cat.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut input = cat.stdin.take().unwrap();
    let recorder = wire.record_from("-i -", cat.stdout.take().unwrap().into());
    // All but the end of the last packet.
    input.write_all(&bytes[..bytes.len() - 1]).unwrap();
    until("99 packets", || wire.count("") == 99);
    assert_eq!(wire.unfinished().len(), 1);
    let said = recorder.stop();
    assert!(said.contains("recorded 99 packets"), "{said}");
    assert!(!said.contains("standard input:"), "{said}");
    assert_eq!(wire.count(""), 99);
    drop(input);
    cat.wait().unwrap();
}

#[test]
fn a_stream_that_is_damaged_is_recorded_up_to_the_damage() {
    let Some(wire) = Wire::new() else { return };
    wire.sh("tapdex gen -c 1000 --mean-len 200 -w a.pcap && head -c -1 a.pcap > cut.pcap");
    wire.sh("printf 'no capture at all, but a text' > text && : > empty");
    for (name, packets, message) in [
        ("cut.pcap", 999, "standard input: "),
        ("text", 0, "standard input: not a pcap or pcapng file"),
        ("empty", 0, "standard input: "),
    ] {
        std::fs::remove_dir_all(wire.path("archive")).ok();
        let file = std::fs::File::open(wire.path(name)).unwrap();
        let mut recorder = wire.record_from("-i -", file.into());
        let recorded = format!("tapdex: recorded {packets} packets");
        let ended = recorder.wait();
        assert!(ended.err.contains(message), "{name}: {}", ended.err);
        assert!(ended.err.contains(&recorded), "{name}: {}", ended.err);
        assert_eq!(ended.code, Some(3), "{name}: {}", ended.err);
        assert_eq!(wire.unfinished(), [""; 0]);
    }
}

/// A server that gives the same bytes to whoever connects, and ends the connection then.
struct Server {
    address: String,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<u32>>,
}

impl Server {
    fn new(bytes: Vec<u8>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            let mut served = 0;
            for stream in listener.incoming() {
                if stopped.load(Ordering::Relaxed) {
                    return served;
                }
                served += 1;
                // Who has gone has got enough.
                drop(stream.unwrap().write_all(&bytes));
            }
            served
        });
        Self { address, stop, thread: Some(thread) }
    }

    /// Ends it; how often it has given all, or as much as was taken.
    fn end(mut self) -> u32 {
        self.stop.store(true, Ordering::Relaxed);
        drop(TcpStream::connect(&self.address));
        self.thread.take().unwrap().join().unwrap()
    }
}

/// A recorder outside of the network, where the servers are.
fn record(wire: &Wire, args: &str) -> Recorder {
    let mut recorder = Recorder::outside(wire, &format!("record -w archive {}", with_limit(args)));
    recorder.says("tapdex: recording ");
    recorder
}

#[test]
fn a_server_is_connected_to_again() {
    let Some(wire) = Wire::new() else { return };
    wire.sh("tapdex gen -c 5000 --mean-len 200 -w a.pcap");
    let server = Server::new(std::fs::read(wire.path("a.pcap")).unwrap());
    let mut recorder = record(&wire, &format!("-i tcp://{}", server.address));
    recorder.says("the connection ended: it was closed; it is tried again");
    recorder.says("connected again");
    until("15,000 packets", || wire.status().is_some_and(|s| s.run.packets >= 15_000));
    let said = recorder.stop();
    let served = u64::from(server.end());
    assert!(served >= 3, "{said}");
    let status = wire.status().unwrap();
    let packets = status.run.packets;
    // What was on its way at the end has not been read.
    assert!(packets <= 5000 * served, "{served}: {said}");
    assert_eq!(status.run.lost.sum(), 0);
    assert!(status.sources[0].reopened >= 2);
    let sent: Vec<_> = wire.frames("a.pcap", "").collect();
    // In the files packets are as they came; extract has them by time.
    let mut found = 0_usize;
    for file in wire.sealed() {
        for frame in wire.frames(&format!("archive/packets/{file}"), "") {
            assert!(frame == sent[found % sent.len()], "{found}");
            found += 1;
        }
    }
    assert_eq!(found as u64, packets);
    assert_eq!(wire.count(""), packets);
}

#[test]
fn a_server_may_send_anything() {
    let Some(wire) = Wire::new() else { return };
    wire.sh("tapdex gen -c 100 --mean-len 200 -w a.pcapng");
    let mut bytes = std::fs::read(wire.path("a.pcapng")).unwrap();
    let half = bytes.len() / 2;
    for byte in &mut bytes[half..] {
        *byte = 0xA5;
    }
    let servers = [
        ("text", Server::new(b"HTTP/1.0 400 Bad Request\r\n\r\n".to_vec())),
        ("nothing", Server::new(Vec::new())),
        ("zeros", Server::new(vec![0; 1 << 20])),
        ("damage", Server::new(bytes)),
    ];
    for (name, server) in servers {
        std::fs::remove_dir_all(wire.path("archive")).ok();
        let mut recorder = record(&wire, &format!("-i tcp://{}", server.address));
        recorder.says("the connection ended: ");
        recorder.says("connected again");
        let said = recorder.stop();
        server.end();
        let packets = wire.status().unwrap().run.packets;
        assert_eq!(packets > 0, name == "damage", "{name}: {said}");
        assert_eq!(wire.count(""), packets, "{name}");
        assert_eq!(wire.unfinished(), [""; 0]);
    }
}

#[test]
fn a_server_that_is_not_there_is_an_error() {
    let Some(wire) = Wire::new() else { return };
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let mut recorder = Recorder::outside(&wire, &format!("record -w archive -i tcp://{address}"));
    let message = format!("tapdex: cannot connect to tcp://{address}: Connection refused");
    recorder.wait().with(4, &[&message]);
    assert!(!wire.path("archive").exists());
}

/// A server that says nothing keeps nobody from ending.
#[test]
fn a_server_that_is_silent_does_not_hold_the_end_up() {
    let Some(wire) = Wire::new() else { return };
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let silent = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.set_read_timeout(Some(WAIT_MAX)).unwrap();
        // It ends when the other side does.
        stream.read(&mut [0]).unwrap_or(1)
    });
    let recorder = record(&wire, &format!("-i TCP@{address}"));
    let said = recorder.stop();
    assert!(!said.contains("the connection ended"), "{said}");
    assert_eq!(silent.join().unwrap(), 0);
}
