//! Packets of an interface, through libpcap's ring.
//!
//! libpcap shares a ring of memory with the kernel (TPACKET_V3) and puts VLAN tags that the
//! hardware has taken off back into the frames. The handle does not block: we wait ourselves, and
//! stop when told to, however quiet the interface is.

use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use pcap::{Active, Capture, Packet, Precision, Stat};
use tapdex_engine::capture::Interface;

use super::{CaptureOptions, SourceError};
use crate::clock::{Clock, SystemClock};
use crate::counters::SourceCounters;
use crate::messages::{Message, Messages};
use crate::queue::Feeder;

/// After this many milliseconds the kernel hands over a part of its ring that is not full.
const RING_TIMEOUT_MS: i32 = 100;
/// How long a wait for packets lasts; periodic work is done as often.
const WAIT_MS: u16 = 50;
/// How often the kernel is asked what it has lost.
const STATS_EVERY: Duration = Duration::from_millis(200);
/// How long to wait before looking again for an interface that is gone.
const REOPEN_EVERY: Duration = Duration::from_secs(1);
/// How long the ring is emptied at the end.
const DRAIN: Duration = Duration::from_secs(5);
/// If there is nothing to take, the kernel has handed over all packets that came this long ago.
const SETTLED: Duration = Duration::from_secs(1);
/// Packets that are taken out of the ring at a time. Without a limit, nothing else would be done
/// while packets come faster than they are taken.
const PACKETS_AT_ONCE: usize = 1 << 14;
/// libpcap's number for raw IP on Linux; capture files have 101.
const RAW_OF_LINUX: i32 = 12;

/// An interface that is open.
pub(super) struct Live {
    name: String,
    handle: Capture<Active>,
}

/// The names of the interfaces that packets can be captured on.
pub fn list_interfaces() -> Vec<String> {
    // If they cannot be listed, none can be used.
    let devices = pcap::Device::list().unwrap_or_default();
    devices.into_iter().map(|device| device.name).collect()
}

impl Live {
    pub(super) fn open(name: &str, options: &CaptureOptions) -> Result<Self, SourceError> {
        let failed = |error: pcap::Error| explain(name, &error);
        let ring = i32::try_from(options.ring_bytes).unwrap_or(i32::MAX);
        let snaplen = i32::try_from(options.snaplen).unwrap_or(i32::MAX);
        let handle = Capture::from_device(name)
            .map_err(failed)?
            // `any` cannot be promiscuous, and asking for it would be reported like an error.
            .promisc(options.promiscuous && name != "any")
            .snaplen(snaplen)
            .buffer_size(ring)
            .timeout(RING_TIMEOUT_MS)
            .precision(Precision::Nano)
            .open()
            .map_err(failed)?;
        let mut handle = handle.setnonblock().map_err(failed)?;
        if !options.filter.is_empty() {
            handle.filter(&options.filter, true).map_err(|error| SourceError::Filter {
                filter: options.filter.clone(),
                name: name.to_owned(),
                message: error.to_string(),
            })?;
        }
        Ok(Self { name: name.to_owned(), handle })
    }

    pub(super) fn run(
        mut self,
        feeder: &mut Feeder,
        options: &CaptureOptions,
        stop: &AtomicBool,
        messages: &Messages<'_>,
    ) {
        feeder.counters.ring_bytes.store(options.ring_bytes, Ordering::Relaxed);
        loop {
            feeder.counters.up.store(true, Ordering::Relaxed);
            let error = match self.capture(feeder, options, stop) {
                Ok(()) => return,
                Err(error) => error,
            };
            feeder.counters.up.store(false, Ordering::Relaxed);
            feeder.hand_over();
            let Self { name, handle } = self;
            drop(handle);
            feeder.counters.is_back(false, SystemClock.now_ns());
            let text = format!("{name} gives no more packets: {error}; it is looked for again");
            messages.say(Message::warn(text).interface(&name));
            loop {
                if sleep(REOPEN_EVERY, stop) {
                    return;
                }
                if let Ok(opened) = Self::open(&name, options) {
                    self = opened;
                    break;
                }
            }
            feeder.counters.reopened.fetch_add(1, Ordering::Relaxed);
            feeder.counters.is_back(true, SystemClock.now_ns());
            messages.say(Message::warn(format!("{name} is back")).interface(name));
        }
    }

    /// Registers the interface; returns its number.
    pub(super) fn announce(&self, feeder: &Feeder, options: &CaptureOptions) -> Option<u32> {
        let link = match self.handle.get_datalink().0 {
            RAW_OF_LINUX => 101,
            link => u16::try_from(link).unwrap_or(u16::MAX),
        };
        let mut interface = Interface::new(link, 1_000_000_000);
        interface.name.clone_from(&self.name);
        interface.snaplen = options.snaplen;
        feeder.add_interface(interface, &options.filter)
    }

    /// Captures until we are told to stop, or the interface fails.
    fn capture(
        &mut self,
        feeder: &mut Feeder,
        options: &CaptureOptions,
        stop: &AtomicBool,
    ) -> Result<(), pcap::Error> {
        let Some(number) = self.announce(feeder, options) else {
            return Err(pcap::Error::PcapError("there are too many interfaces".to_owned()));
        };
        let mut ring = Ring { asked_ns: SystemClock.now_ns(), ..Ring::default() };
        let outcome = self.follow(number, feeder, &mut ring, stop);
        // Also for an interface that is gone: its ring is still there.
        self.drain(number, feeder, &mut ring);
        outcome
    }

    /// Takes packets out of the ring as they come.
    fn follow(
        &mut self,
        number: u32,
        feeder: &mut Feeder,
        ring: &mut Ring,
        stop: &AtomicBool,
    ) -> Result<(), pcap::Error> {
        let mut asked = Instant::now();
        while !stop.load(Ordering::Relaxed) {
            let looked = Instant::now();
            let got = self.dispatch(PACKETS_AT_ONCE, number, feeder, ring)?;
            feeder.tick();
            if asked.elapsed() >= STATS_EVERY {
                asked = Instant::now();
                ring.update(&self.handle.stats()?, &feeder.counters);
            }
            if got == 0 {
                ring.settle(looked);
                self.wait();
            }
        }
        Ok(())
    }

    /// Takes the packets out of the ring that had arrived when we were told to stop, and no more.
    fn drain(&mut self, number: u32, feeder: &mut Feeder, ring: &mut Ring) {
        // If the kernel does not answer, its last counts are used.
        if let Ok(stat) = self.handle.stats() {
            ring.update(&stat, &feeder.counters);
        }
        let started = Instant::now();
        while ring.waiting() > 0 && started.elapsed() < DRAIN {
            // Checked before taking packets: this thread may be suspended for long at any time.
            let settled = started.elapsed() >= SETTLED;
            let most = usize::try_from(ring.waiting()).unwrap_or(usize::MAX);
            // An interface that is gone returns an error once its ring is empty.
            let got = self.dispatch(most.min(PACKETS_AT_ONCE), number, feeder, ring).unwrap_or(0);
            if got == 0 && settled {
                ring.pass_over(ring.waiting());
            } else if got == 0 {
                std::thread::sleep(Duration::from_millis(10));
            }
        }
        // Packets that could not be taken in this time are lost in the ring.
        feeder.counters.received.fetch_add(ring.waiting(), Ordering::Relaxed);
        let counters = &feeder.counters;
        let now_ns = SystemClock.now_ns();
        counters.lose(&counters.lost_by_kernel, ring.waiting(), ring.asked_ns, now_ns);
        feeder.counters.ring_packets.store(0, Ordering::Relaxed);
    }

    /// Takes packets out of the ring: as many as there are in a part of it, or fewer.
    fn dispatch(
        &mut self,
        most: usize,
        number: u32,
        feeder: &mut Feeder,
        ring: &mut Ring,
    ) -> Result<usize, pcap::Error> {
        let (mut seen, mut bytes) = (0, 0);
        let result = self.handle.dispatch(Some(most), |packet: Packet<'_>| {
            // With the requested precision, the field for microseconds holds nanoseconds.
            let seconds = u64::try_from(packet.header.ts.tv_sec).unwrap_or(0);
            let fraction = u64::try_from(packet.header.ts.tv_usec).unwrap_or(0);
            let time_ns = seconds.saturating_mul(1_000_000_000).saturating_add(fraction);
            feeder.packet(number, time_ns, packet.header.len, packet.data);
            seen += 1;
            bytes += packet.data.len() as u64;
        });
        ring.seen += seen;
        feeder.counters.received.fetch_add(seen, Ordering::Relaxed);
        feeder.counters.seen.fetch_add(seen, Ordering::Relaxed);
        feeder.counters.seen_bytes.fetch_add(bytes, Ordering::Relaxed);
        result
    }

    fn wait(&self) {
        let mut ready = [PollFd::new(self.handle.as_fd(), PollFlags::POLLIN)];
        // A signal or an error shows when packets are asked for again.
        let _ = poll(&mut ready, PollTimeout::from(WAIT_MS));
    }
}

/// What is known about the kernel's ring since it was opened.
#[derive(Debug, Default)]
struct Ring {
    /// Packets that came, including those for which there was no room.
    received: u64,
    lost: u64,
    seen: u64,
    /// Packets that libpcap has taken out of the ring and dropped: packets leaving through the
    /// loopback interface, as they come back in, and packets from before the filter was set.
    passed_over: u64,
    /// How many packets had come and found room at some moment.
    before: Option<(Instant, u64)>,
    /// libpcap's counts, which wrap around after four billion.
    last: [u32; 3],
    /// When the kernel was last asked for them: packets lost since then came after that.
    asked_ns: u64,
}

impl Ring {
    fn update(&mut self, stat: &Stat, counters: &SourceCounters) {
        let now = [stat.received, stat.dropped, stat.if_dropped];
        let [received, lost, by_interface] = [0, 1, 2].map(|i| now[i].wrapping_sub(self.last[i]));
        self.last = now;
        self.received += u64::from(received);
        self.lost += u64::from(lost);
        // If an interface has reset its counter, or is gone, its losses seem to have become fewer.
        let by_interface = if by_interface > u32::MAX / 2 { 0 } else { by_interface };
        let came = self.received.saturating_sub(self.lost);
        self.before.get_or_insert((Instant::now(), came));
        self.passed_over = self.passed_over.min(came.saturating_sub(self.seen));
        counters.received.fetch_add(lost.into(), Ordering::Relaxed);
        let (since, asked) = (self.asked_ns, SystemClock.now_ns());
        counters.lose(&counters.lost_by_kernel, lost.into(), since, asked);
        counters.lose(&counters.lost_by_interface, by_interface.into(), since, asked);
        self.asked_ns = asked;
        counters.ring_packets.store(self.waiting(), Ordering::Relaxed);
    }

    /// Called when there was nothing to take: packets that came long before and were not seen will
    /// never be seen.
    fn settle(&mut self, looked: Instant) {
        let is_long = |then: Instant| looked.saturating_duration_since(then) >= SETTLED;
        if let Some((_, came)) = self.before.take_if(|(then, _)| is_long(*then)) {
            self.pass_over(came.saturating_sub(self.seen).saturating_sub(self.passed_over));
        }
    }

    fn pass_over(&mut self, packets: u64) {
        self.passed_over += packets;
    }

    /// Packets in the ring when the kernel was last asked that are still there.
    fn waiting(&self) -> u64 {
        let gone = self.lost + self.seen + self.passed_over;
        self.received.saturating_sub(gone)
    }
}

/// Sleeps; returns whether we were told to stop.
fn sleep(time: Duration, stop: &AtomicBool) -> bool {
    let until = Instant::now() + time;
    while Instant::now() < until {
        if stop.load(Ordering::Relaxed) {
            return true;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    stop.load(Ordering::Relaxed)
}

/// What an error of libpcap's means.
fn explain(name: &str, error: &pcap::Error) -> SourceError {
    let message = match error {
        pcap::Error::PcapError(message) => message.clone(),
        other => other.to_string(),
    };
    let name = name.to_owned();
    let lower = message.to_lowercase();
    if ["permission", "not permitted", "cap_net_raw"].iter().any(|text| lower.contains(text)) {
        return SourceError::Permission { name };
    }
    if lower.contains("no such device") {
        return SourceError::NoInterface { name, there: list_interfaces().join(", ") };
    }
    let advice = match lower.contains("not up") {
        true => format!("; bring it up: ip link set {name} up"),
        false => String::new(),
    };
    SourceError::Interface { name, message: format!("{message}{advice}") }
}
