//! Sending packets to an interface.
//!
//! A [`Sender`] puts Ethernet frames onto an interface, as they are, many with one call. A
//! [`Schedule`] says when a frame is due, and a [`Replay`] brings both together: frames that are
//! due go together, and nothing is sent early.
//!
//! ```no_run
//! use std::sync::atomic::AtomicBool;
//! use tapdex_engine::packet::LinkType;
//! use tapdex_record::replay::{Frame, Pace, Replay, Sender};
//!
//! let stop = AtomicBool::new(false);
//! let mut replay = Replay::new(Sender::open("eth1")?, Pace::PerSecond(1_000), u64::MAX, &stop);
//! replay.push(Frame { time_ns: 0, link: LinkType::ETHERNET, wire_len: 60, data: &[0; 60] })?;
//! replay.finish()?;
//! assert_eq!(replay.counts().frames, 1);
//! # Ok::<(), tapdex_record::replay::SendError>(())
//! ```
//!
//! The kernel is asked for a raw packet socket, which needs `CAP_NET_RAW`. It is bound to no
//! protocol, so nothing that arrives is copied to it.

use std::io::{self, IoSlice};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::ifaddrs::getifaddrs;
use nix::libc;
use nix::sys::socket::{
    AddressFamily, ControlMessage, LinkAddr, MsgFlags, MultiHeaders, SockFlag, SockType, bind,
    sendmmsg, setsockopt, socket, sockopt,
};
use nix::sys::time::{TimeVal, TimeValLike};
use tapdex_engine::packet::LinkType;

/// Frames that are passed to the kernel with one call; one by one is slower.
pub const BATCH_FRAMES: usize = 64;

/// Two addresses and a type: anything shorter is not an Ethernet frame.
const HEADER_BYTES: usize = 14;

/// How long a call may wait for room in the socket before it checks whether to stop.
const CALL_MS: i64 = 100;
/// How long to wait after the interface had no room.
const FULL_WAIT: Duration = Duration::from_micros(50);
/// An interface that accepts nothing for this long is stuck.
const STUCK_AFTER: Duration = Duration::from_secs(10);

/// The system wakes sleepers some tens of microseconds late, so the end of a wait is spent awake.
const SPIN_MAX: Duration = Duration::from_micros(100);
/// The longest sleep before checking again whether to stop.
const SLEEP_MAX: Duration = Duration::from_millis(50);

/// Why frames cannot be sent.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SendError {
    /// There is no such interface. Take one of the existing ones.
    #[error("there is no interface '{interface}'; there are {}", there.join(", "))]
    NoInterface {
        /// What was asked for.
        interface: String,
        /// The existing interfaces.
        there: Vec<String>,
    },
    /// Send to another interface: captures hold Ethernet frames.
    #[error("{interface} is no Ethernet interface (its type is {kind}); send to one that is")]
    NotEthernet {
        /// What was asked for.
        interface: String,
        /// ARPHRD_ number of its link.
        kind: u16,
    },
    /// Only root, and processes with the capability, may send frames.
    #[error("no permission to send on {interface}: run as root, or with CAP_NET_RAW")]
    Permission {
        /// Where to.
        interface: String,
    },
    /// Bring it up.
    #[error("{interface} is down; `ip link set {interface} up` brings it up")]
    Down {
        /// Where to.
        interface: String,
        /// What the system says.
        source: io::Error,
    },
    /// See whether there is a link, and what the interface's queue does.
    #[error(
        "{interface} has taken no frame for {} seconds; see `ip -s link show {interface}`",
        STUCK_AFTER.as_secs()
    )]
    Stuck {
        /// Where to.
        interface: String,
        /// What the system said last.
        source: io::Error,
    },
    /// See what the system says.
    #[error("cannot send on {interface}")]
    Io {
        /// Where to.
        interface: String,
        /// What the system says.
        source: io::Error,
    },
}

impl SendError {
    /// Whether the user lacks a permission that another user may have.
    pub fn is_permission(&self) -> bool {
        matches!(self, Self::Permission { .. })
    }

    fn new(interface: &str, error: Errno) -> Self {
        let interface = interface.to_owned();
        match error {
            Errno::EPERM | Errno::EACCES => Self::Permission { interface },
            Errno::ENETDOWN => Self::Down { interface, source: error.into() },
            _ => Self::Io { interface, source: error.into() },
        }
    }
}

/// A frame to send.
#[derive(Debug, Clone, Copy)]
pub struct Frame<'a> {
    /// When it was captured, in nanoseconds since 1970.
    pub time_ns: u64,
    /// The link that it was captured on; only frames of Ethernet can be sent.
    pub link: LinkType,
    /// How long it was on the wire.
    pub wire_len: u32,
    /// What is sent.
    pub data: &'a [u8],
}

/// Frames in memory, one after the other.
#[derive(Debug, Default)]
pub struct Frames {
    bytes: Vec<u8>,
    places: Vec<Place>,
}

#[derive(Debug)]
struct Place {
    time_ns: u64,
    start: usize,
    len: usize,
    wire_len: u32,
    link: LinkType,
}

impl Place {
    fn is_sendable(&self) -> bool {
        self.link == LinkType::ETHERNET && self.len >= HEADER_BYTES
    }
}

impl Frames {
    /// Adds a frame. The bytes of a frame that cannot be sent are not kept.
    pub fn push(&mut self, frame: Frame<'_>) {
        let Frame { time_ns, link, wire_len, data } = frame;
        let data = if link == LinkType::ETHERNET { data } else { &[] };
        let start = self.bytes.len();
        self.places.push(Place { time_ns, start, len: data.len(), wire_len, link });
        self.bytes.extend_from_slice(data);
    }

    /// Takes all frames out.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.places.clear();
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// Memory that they take.
    pub fn memory_bytes(&self) -> usize {
        self.bytes.len() + size_of_val(self.places.as_slice())
    }

    /// All of them, in the order in which they came.
    pub fn iter(&self) -> impl Iterator<Item = Frame<'_>> {
        (0..).zip(&self.places).map(|(i, &Place { time_ns, link, wire_len, .. })| Frame {
            time_ns,
            link,
            wire_len,
            data: self.data(i),
        })
    }

    /// The bytes of a frame; empty if there is no such frame.
    fn data(&self, i: usize) -> &[u8] {
        self.places.get(i).map_or(&[], |place| &self.bytes[place.start..place.start + place.len])
    }
}

/// How many frames were sent or left out.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Frames that the kernel took.
    pub frames: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Those among them that were cut when they were captured.
    pub cut: u64,
    /// Frames that were left out: of another link than Ethernet.
    pub other_link: u64,
    /// Frames that were left out: longer than the interface takes.
    pub too_long: u64,
    /// Frames that were left out: shorter than the header of an Ethernet frame.
    pub too_short: u64,
    /// Calls that were repeated because the interface had no room.
    pub retried: u64,
}

impl Counts {
    /// A frame was sent.
    fn add(&mut self, place: &Place) {
        self.frames += 1;
        self.bytes += place.len as u64;
        self.cut += u64::from(place.len < place.wire_len as usize);
    }

    /// Frames that were left out.
    pub fn skipped(&self) -> u64 {
        self.other_link + self.too_long + self.too_short
    }
}

/// Sends frames to an interface.
#[derive(Debug)]
pub struct Sender {
    interface: String,
    socket: OwnedFd,
    headers: MultiHeaders<()>,
    counts: Counts,
}

impl Sender {
    /// Opens an interface of Ethernet frames by its name.
    pub fn open(interface: &str) -> Result<Self, SendError> {
        let failed = |error| SendError::new(interface, error);
        let address = address(interface)?;
        // No protocol: it would receive a copy of every packet otherwise.
        let flags = SockFlag::SOCK_CLOEXEC;
        let socket = socket(AddressFamily::Packet, SockType::Raw, flags, None).map_err(failed)?;
        bind(socket.as_raw_fd(), &address).map_err(failed)?;
        let call_max = TimeVal::milliseconds(CALL_MS);
        setsockopt(&socket, sockopt::SendTimeout, &call_max).map_err(failed)?;
        Ok(Self {
            interface: interface.to_owned(),
            socket,
            headers: MultiHeaders::preallocate(BATCH_FRAMES, None),
            counts: Counts::default(),
        })
    }

    /// The counts of all frames so far.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Sends frames, in order, unless `stop` says to stop. Those that the interface cannot take are
    /// left out and counted.
    pub fn send(&mut self, frames: &Frames, stop: &AtomicBool) -> Result<(), SendError> {
        let mut next = 0;
        let mut refused: Option<Instant> = None;
        while next < frames.len() && !stop.load(Ordering::Relaxed) {
            let first = &frames.places[next];
            if !first.is_sendable() {
                let is_ethernet = first.link == LinkType::ETHERNET;
                let Counts { other_link, too_short, .. } = &mut self.counts;
                *(if is_ethernet { too_short } else { other_link }) += 1;
                next += 1;
                continue;
            }
            match self.call(frames, next) {
                Ok(sent) => {
                    frames.places[next..]
                        .iter()
                        .take(sent)
                        .for_each(|place| self.counts.add(place));
                    next += sent;
                    refused = None;
                }
                // An error is about the first frame; the others were not tried.
                Err(Errno::EMSGSIZE) => {
                    self.counts.too_long += 1;
                    next += 1;
                }
                Err(Errno::EINTR) => {}
                Err(error @ (Errno::ENOBUFS | Errno::EAGAIN)) => {
                    self.counts.retried += 1;
                    if refused.get_or_insert_with(Instant::now).elapsed() > STUCK_AFTER {
                        let (interface, source) = (self.interface.clone(), error.into());
                        return Err(SendError::Stuck { interface, source });
                    }
                    thread::sleep(FULL_WAIT);
                }
                Err(error) => return Err(SendError::new(&self.interface, error)),
            }
        }
        Ok(())
    }

    /// Passes frames to the kernel; returns how many it took, at least one.
    fn call(&mut self, frames: &Frames, first: usize) -> Result<usize, Errno> {
        let places = frames.places[first..].iter().take(BATCH_FRAMES);
        let batch = places.take_while(|place| place.is_sendable()).count();
        let slices: [[IoSlice<'_>; 1]; BATCH_FRAMES] =
            std::array::from_fn(|i| [IoSlice::new(frames.data(first + i))]);
        let no_control: [ControlMessage<'_>; 0] = [];
        let sent = sendmmsg(
            self.socket.as_raw_fd(),
            &mut self.headers,
            slices.iter().take(batch),
            [None; BATCH_FRAMES],
            no_control,
            MsgFlags::empty(),
        )?;
        Ok(sent.count())
    }
}

/// The address of an interface, to bind to.
fn address(interface: &str) -> Result<LinkAddr, SendError> {
    let mut there = Vec::new();
    for entry in getifaddrs().map_err(|error| SendError::new(interface, error))? {
        // Every interface has one such address, and any number of others.
        let address = entry.address.as_ref().and_then(|address| address.as_link_addr());
        let Some(address) = address else { continue };
        if entry.interface_name != interface {
            there.push(entry.interface_name);
            continue;
        }
        let kind = address.hatype();
        if ![libc::ARPHRD_ETHER, libc::ARPHRD_LOOPBACK].contains(&kind) {
            return Err(SendError::NotEthernet { interface: interface.to_owned(), kind });
        }
        return Ok(*address);
    }
    Err(SendError::NoInterface { interface: interface.to_owned(), there })
}

/// How fast frames are sent.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Pace {
    /// This many times as fast as they were captured; 1 keeps the gaps.
    Recorded(f64),
    /// This many frames in a second.
    PerSecond(u64),
    /// This many millions of bits in a second, by the lengths on the wire.
    Megabits(f64),
    /// As fast as the interface takes them.
    Top,
}

/// Says when frames are due. All times count from the start, so that errors do not add up.
#[derive(Debug)]
pub struct Schedule {
    pace: Pace,
    /// Frames so far.
    frames: u64,
    /// Their bits on the wire.
    bits: u64,
    /// The time of the first frame of this pass.
    first_ns: Option<u64>,
    /// Frames of this pass.
    pass_frames: u32,
    /// When this pass started.
    base: Duration,
    /// When the last frame was due.
    last: Duration,
}

impl Schedule {
    /// A schedule that starts with the next frame.
    pub fn new(pace: Pace) -> Self {
        Self {
            pace,
            frames: 0,
            bits: 0,
            first_ns: None,
            pass_frames: 0,
            base: Duration::ZERO,
            last: Duration::ZERO,
        }
    }

    /// When the next frame is due, from the start on.
    pub fn due(&mut self, time_ns: u64, wire_len: u32) -> Duration {
        let due = match self.pace {
            Pace::Recorded(speed) => {
                let first = *self.first_ns.get_or_insert(time_ns);
                let gap = Duration::from_nanos(time_ns.saturating_sub(first));
                self.base.saturating_add(divided(gap, speed))
            }
            Pace::PerSecond(rate) => {
                let rate = rate.max(1);
                let rest_ns = self.frames % rate * 1_000_000_000 / rate;
                Duration::from_secs(self.frames / rate) + Duration::from_nanos(rest_ns)
            }
            // A million bits in a second are a bit in a microsecond.
            Pace::Megabits(rate) => divided(Duration::from_micros(self.bits), rate),
            Pace::Top => Duration::ZERO,
        };
        self.frames += 1;
        self.pass_frames = self.pass_frames.saturating_add(1);
        self.bits = self.bits.saturating_add(u64::from(wire_len) * 8);
        // Clocks of captures jump back; frames stay in order.
        self.last = self.last.max(due);
        self.last
    }

    /// The next frames have times of their own. They follow after the mean gap of those before.
    pub fn next_pass(&mut self) {
        let took = self.last.saturating_sub(self.base);
        let gap = took.checked_div(self.pass_frames.saturating_sub(1)).unwrap_or(Duration::ZERO);
        self.base = self.last.saturating_add(gap);
        (self.first_ns, self.pass_frames) = (None, 0);
    }
}

/// A time divided by a speed. A result that is too long becomes the longest duration.
fn divided(time: Duration, speed: f64) -> Duration {
    if speed == 1.0 {
        return time;
    }
    Duration::try_from_secs_f64(time.as_secs_f64() / speed).unwrap_or(Duration::MAX)
}

/// Frames on their way to an interface, each when it is due.
#[derive(Debug)]
pub struct Replay<'a> {
    sender: Sender,
    schedule: Schedule,
    stop: &'a AtomicBool,
    frames_max: u64,
    /// Frames that are due.
    batch: Frames,
    /// When the first frame was due.
    started: Option<Instant>,
    /// The time when the clock was last read, from the start on.
    now: Duration,
}

impl<'a> Replay<'a> {
    /// Sends at most `frames_max` frames, and none once `stop` is set.
    pub fn new(sender: Sender, pace: Pace, frames_max: u64, stop: &'a AtomicBool) -> Self {
        Self {
            sender,
            schedule: Schedule::new(pace),
            stop,
            frames_max,
            batch: Frames::default(),
            started: None,
            now: Duration::ZERO,
        }
    }

    /// Sends a frame when it is due: waits for that, and may keep the frame until the next one
    /// comes. Returns whether more frames are wanted.
    pub fn push(&mut self, frame: Frame<'_>) -> Result<bool, SendError> {
        let started = *self.started.get_or_insert_with(Instant::now);
        let left = self.frames_max.saturating_sub(self.sender.counts.frames);
        let queued = self.batch.len();
        if queued == BATCH_FRAMES || queued as u64 >= left {
            self.flush()?;
            if self.sender.counts.frames >= self.frames_max {
                return Ok(false);
            }
        }
        if frame.link != LinkType::ETHERNET {
            // It takes no time, and is counted even at the limit.
            self.sender.counts.other_link += 1;
            return Ok(true);
        }
        let due = self.schedule.due(frame.time_ns, frame.wire_len);
        if due > self.now {
            self.now = started.elapsed();
        }
        if due > self.now {
            self.flush()?;
            self.wait(started, due);
        }
        if self.stop.load(Ordering::Relaxed) {
            return Ok(false);
        }
        self.batch.push(frame);
        Ok(true)
    }

    /// Waits until a time from the start on, or until it is told to stop.
    fn wait(&mut self, started: Instant, due: Duration) {
        while !self.stop.load(Ordering::Relaxed) {
            self.now = started.elapsed();
            let left = due.saturating_sub(self.now);
            if left.is_zero() {
                return;
            }
            match left.checked_sub(SPIN_MAX) {
                Some(sleep) if !sleep.is_zero() => thread::sleep(sleep.min(SLEEP_MAX)),
                _ => std::hint::spin_loop(),
            }
        }
    }

    fn flush(&mut self) -> Result<(), SendError> {
        let sent = self.sender.send(&self.batch, self.stop);
        self.batch.clear();
        sent
    }

    /// The next frames have times of their own.
    pub fn next_pass(&mut self) {
        self.schedule.next_pass();
    }

    /// Sends the remaining frames. Returns how long everything took.
    pub fn finish(&mut self) -> Result<Duration, SendError> {
        self.flush()?;
        Ok(self.elapsed())
    }

    /// The time since the first frame.
    pub fn elapsed(&self) -> Duration {
        self.started.map_or(Duration::ZERO, |started| started.elapsed())
    }

    /// How many frames were sent or left out.
    pub fn counts(&self) -> Counts {
        self.sender.counts()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn due(pace: Pace, frames: &[(u64, u32)]) -> Vec<u128> {
        let mut schedule = Schedule::new(pace);
        frames.iter().map(|&(time, len)| schedule.due(time, len).as_nanos()).collect()
    }

    #[test]
    fn gaps_are_as_recorded() {
        let frames = [(5_000, 60), (5_001, 60), (9_000, 60)];
        assert_eq!(due(Pace::Recorded(1.0), &frames), [0, 1, 4_000]);
        let frames = [(5_000, 60), (6_000, 60), (9_000, 60)];
        assert_eq!(due(Pace::Recorded(2.0), &frames), [0, 500, 2_000]);
        assert_eq!(due(Pace::Recorded(0.5), &frames), [0, 2_000, 8_000]);
    }

    #[test]
    fn a_clock_that_jumps_back_does_not_stop_the_frames() {
        let frames = [(5_000, 60), (7_000, 60), (1_000, 60), (6_000, 60), (8_000, 60)];
        assert_eq!(due(Pace::Recorded(1.0), &frames), [0, 2_000, 2_000, 2_000, 3_000]);
    }

    #[test]
    fn times_of_the_far_future_are_no_overflow() {
        let frames = [(0, 60), (u64::MAX, 60), (u64::MAX, u32::MAX)];
        let far = due(Pace::Recorded(1e-300), &frames);
        assert_eq!(far, [0, Duration::MAX.as_nanos(), Duration::MAX.as_nanos()]);
        let mut schedule = Schedule::new(Pace::Recorded(1e-300));
        assert_eq!(schedule.due(0, 60), Duration::ZERO);
        assert_eq!(schedule.due(u64::MAX, 60), Duration::MAX);
        schedule.next_pass();
        assert_eq!(schedule.due(7, 60), Duration::MAX);
    }

    #[test]
    fn rates_do_not_drift() {
        let mut schedule = Schedule::new(Pace::PerSecond(3));
        let times: Vec<u128> = (0..7).map(|_| schedule.due(0, 60).as_nanos()).collect();
        let third = 333_333_333;
        let second = 1_000_000_000;
        let expected = [0, third, 2 * third, second, second + third, second + 2 * third];
        assert_eq!(times[..6], expected);
        assert_eq!(times[6], 2 * second);
        // 100 bytes are 800 bits, which take 80 us at 10 Mb/s.
        let frames = [(9, 100), (9, 50), (9, 1)];
        assert_eq!(due(Pace::Megabits(10.0), &frames), [0, 80_000, 120_000]);
        assert_eq!(due(Pace::Top, &frames), [0, 0, 0]);
    }

    #[test]
    fn another_pass_follows_after_the_mean_gap() {
        let mut schedule = Schedule::new(Pace::Recorded(1.0));
        for time in [100, 110, 140] {
            schedule.due(time, 60);
        }
        schedule.next_pass();
        assert_eq!(schedule.due(100, 60).as_nanos(), 60);
        assert_eq!(schedule.due(110, 60).as_nanos(), 70);
        // A single frame has no gap.
        schedule.next_pass();
        schedule.due(100, 60);
        schedule.next_pass();
        assert_eq!(schedule.due(100, 60).as_nanos(), 80);
    }

    #[test]
    fn frames_come_out_as_they_went_in() {
        let mut frames = Frames::default();
        assert!(frames.is_empty());
        for (time_ns, data) in [(1, &b"abc"[..]), (2, b""), (3, b"defg")] {
            frames.push(Frame { time_ns, link: LinkType::ETHERNET, wire_len: 9, data });
        }
        let out: Vec<_> = frames.iter().map(|f| (f.time_ns, f.wire_len, f.data)).collect();
        assert_eq!(out, [(1, 9, &b"abc"[..]), (2, 9, b""), (3, 9, b"defg")]);
        assert_eq!(frames.len(), 3);
        frames.clear();
        assert!(frames.is_empty() && frames.iter().next().is_none());
    }

    #[test]
    fn an_interface_that_is_not_there_is_named_with_those_that_are() {
        let error = Sender::open("no-such-if").err().map(|error| error.to_string());
        let error = error.unwrap_or_default();
        assert!(error.starts_with("there is no interface 'no-such-if'; there are "), "{error}");
    }
}
