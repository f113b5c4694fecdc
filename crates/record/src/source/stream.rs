//! Packets of a stream: a capture that comes through standard input or over TCP.
//!
//! A stream that comes faster than it can be written is made to wait; nothing is lost here.

use std::cell::RefCell;
use std::io::{self, Read};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{setsockopt, sockopt};
use tapdex_engine::capture::{CaptureReader, Interface, decompress};
use tapdex_engine::chain;

use super::SourceName;
use crate::clock::{Clock, SystemClock};
use crate::messages::{Message, Messages};
use crate::queue::Feeder;

const WAIT_MS: u16 = 50;
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// The first pause before reconnecting after a connection was lost.
const RECONNECT_FIRST: Duration = Duration::from_secs(1);
/// The longest pause, if connections deliver no packets.
const RECONNECT_LAST: Duration = Duration::from_secs(60);

/// A connection to a server.
pub(super) type Connection = TcpStream;

pub(super) fn connect(address: &str) -> io::Result<Connection> {
    connect_to(address.to_socket_addrs()?)
}

/// Connects to the first of some addresses that answers.
fn connect_to(addresses: impl IntoIterator<Item = SocketAddr>) -> io::Result<Connection> {
    let mut last = io::Error::new(io::ErrorKind::NotFound, "no such address");
    for address in addresses {
        match TcpStream::connect_timeout(&address, CONNECT_TIMEOUT) {
            Ok(stream) => {
                // A server that loses power does not close the connection: keepalive notices after
                // a minute.
                setsockopt(&stream, sockopt::KeepAlive, &true)?;
                setsockopt(&stream, sockopt::TcpKeepIdle, &30)?;
                setsockopt(&stream, sockopt::TcpKeepInterval, &10)?;
                setsockopt(&stream, sockopt::TcpKeepCount, &3)?;
                return Ok(stream);
            }
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// Delivers the packets of a stream until it ends. Lost connections to a server are opened again.
pub(super) fn run(
    name: &SourceName,
    connection: Option<Connection>,
    feeder: &mut Feeder,
    stop: &AtomicBool,
    messages: &Messages<'_>,
) {
    let SourceName::Tcp(address) = name else {
        feeder.counters.up.store(true, Ordering::Relaxed);
        let stdin = io::stdin();
        if let Err(error) = read(name, &stdin, feeder, stop)
            && !stop.load(Ordering::Relaxed)
        {
            feeder.counters.broken.store(true, Ordering::Relaxed);
            let message = Message::error(format!("standard input: {error}"));
            messages.say(message.interface(name.to_string()));
        }
        return;
    };
    let mut connection = connection;
    // In the sandbox, names cannot be resolved again.
    let known = connection.as_ref().and_then(|stream| stream.peer_addr().ok());
    let mut pause = RECONNECT_FIRST;
    while !stop.load(Ordering::Relaxed) {
        if let Some(stream) = connection.take() {
            feeder.counters.up.store(true, Ordering::Relaxed);
            let before = feeder.counters.seen.load(Ordering::Relaxed);
            let result = read(name, &stream, feeder, stop);
            feeder.counters.up.store(false, Ordering::Relaxed);
            feeder.hand_over();
            if stop.load(Ordering::Relaxed) {
                return;
            }
            feeder.counters.is_back(false, SystemClock.now_ns());
            let why = result.err().unwrap_or("it was closed".to_owned());
            let text = format!("{name}: the connection ended: {why}; it is tried again");
            messages.say(Message::warn(text).interface(name.to_string()));
            pause = match feeder.counters.seen.load(Ordering::Relaxed) > before {
                true => RECONNECT_FIRST,
                // A server that sends only garbage is not asked every second.
                false => RECONNECT_LAST.min(2 * pause),
            };
        }
        let until = Instant::now() + pause;
        while Instant::now() < until && !stop.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_millis(20));
        }
        connection = connect(address).or_else(|_| connect_to(known)).ok();
        if connection.is_some() {
            feeder.counters.reopened.fetch_add(1, Ordering::Relaxed);
            feeder.counters.is_back(true, SystemClock.now_ns());
            let message = Message::warn(format!("{name}: connected again"));
            messages.say(message.interface(name.to_string()));
        }
    }
}

/// Reads a stream to its end, or until we are told to stop.
fn read(
    name: &SourceName,
    file: &impl AsFd,
    feeder: &mut Feeder,
    stop: &AtomicBool,
) -> Result<(), String> {
    let feeder = RefCell::new(feeder);
    let plain = decompress(Patient { file, stop, feeder: &feeder });
    let reader = plain.and_then(CaptureReader::open);
    // If we were told to stop in the middle, the stream is not at fault.
    if reader.is_err() && stop.load(Ordering::Relaxed) {
        return Ok(());
    }
    let mut reader = reader.map_err(|error| chain(&error))?;
    // The numbers that the stream's interfaces have in our files, once a packet has come from them.
    let mut numbers: Vec<Option<u32>> = Vec::new();
    loop {
        let record = match reader.next() {
            Ok(Some(record)) => record,
            Ok(None) => return Ok(()),
            Err(_) if stop.load(Ordering::Relaxed) => return Ok(()),
            Err(error) => return Err(chain(&error)),
        };
        let at = record.interface as usize;
        if let Some(&Some(number)) = numbers.get(at) {
            take(&mut feeder.borrow_mut(), number, record.time_ns, record.wire_len, &record.data());
            continue;
        }
        // The reader has the interfaces, and cannot be asked while the record is borrowed.
        let (time, wire, data) = (record.time_ns, record.wire_len, record.data().into_owned());
        let known = reader.layout().interfaces.get(at);
        let mut interface = known.map_or(Interface::new(1, 1), Interface::clone);
        (interface.ticks, interface.offset_s) = (1_000_000_000, 0);
        if interface.name.is_empty() {
            interface.name = name.to_string();
        }
        let Some(number) = feeder.borrow().add_interface(interface, "") else {
            return Err("it has too many interfaces".to_owned());
        };
        numbers.resize(numbers.len().max(at + 1), None);
        numbers[at] = Some(number);
        take(&mut feeder.borrow_mut(), number, time, wire, &data);
    }
}

fn take(feeder: &mut Feeder, number: u32, time_ns: u64, wire_len: u32, data: &[u8]) {
    feeder.counters.received.fetch_add(1, Ordering::Relaxed);
    feeder.counters.seen.fetch_add(1, Ordering::Relaxed);
    feeder.counters.seen_bytes.fetch_add(data.len() as u64, Ordering::Relaxed);
    feeder.packet(number, time_ns, wire_len, data);
}

/// Reads from a source that may be silent for long, and ends when we are told to stop. While it
/// waits, earlier packets go on to the writer.
struct Patient<'a, 'f, F> {
    file: &'a F,
    stop: &'a AtomicBool,
    feeder: &'a RefCell<&'f mut Feeder>,
}

impl<F: AsFd> Read for Patient<'_, '_, F> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            self.feeder.borrow_mut().tick();
            if self.stop.load(Ordering::Relaxed) {
                return Ok(0);
            }
            let mut ready = [PollFd::new(self.file.as_fd(), PollFlags::POLLIN)];
            match poll(&mut ready, PollTimeout::from(WAIT_MS)) {
                Ok(0) | Err(nix::errno::Errno::EINTR) => {}
                Ok(_) => match nix::unistd::read(self.file, buffer) {
                    // Another process has made it non-blocking, and has read from it.
                    Err(nix::errno::Errno::EAGAIN | nix::errno::Errno::EINTR) => {}
                    read => return Ok(read?),
                },
                Err(error) => return Err(error.into()),
            }
        }
    }
}
