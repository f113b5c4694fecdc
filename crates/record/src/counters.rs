//! What is counted, and where.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::lock;
use crate::status::Counted;

/// Counters of a source: an interface or a stream.
#[derive(Debug, Default)]
pub(crate) struct SourceCounters {
    /// Its name.
    pub(crate) name: String,
    /// Packets received: those taken out of the kernel's ring and those it had no room for; all
    /// packets of a stream.
    pub(crate) received: AtomicU64,
    /// Packets that the interface lost.
    pub(crate) lost_by_interface: AtomicU64,
    /// Packets that the kernel had no room for.
    pub(crate) lost_by_kernel: AtomicU64,
    /// Packets for which there was no empty block.
    pub(crate) lost_by_writer: AtomicU64,
    /// Packets that were taken out of the kernel's ring.
    pub(crate) seen: AtomicU64,
    /// Bytes of those, as they were captured.
    pub(crate) seen_bytes: AtomicU64,
    /// Packets in the files, and their bytes on the wire.
    pub(crate) stored: AtomicU64,
    pub(crate) stored_bytes: AtomicU64,
    /// Packets that came after the requested number was reached.
    pub(crate) not_wanted: AtomicU64,
    /// Bytes of the kernel's ring; 0 if there is none.
    pub(crate) ring_bytes: AtomicU64,
    /// Packets in it, when the kernel was last asked.
    pub(crate) ring_packets: AtomicU64,
    /// All blocks, and those that wait for the writer.
    pub(crate) blocks: AtomicU64,
    pub(crate) blocks_full: AtomicU64,
    /// It delivers packets at the moment.
    pub(crate) up: AtomicBool,
    /// It could not be read to its end.
    pub(crate) broken: AtomicBool,
    /// How often it was opened again.
    pub(crate) reopened: AtomicU64,
    /// Lost packets that a recording reports.
    pub(crate) lost_told: AtomicU64,
    /// When the other lost packets may have come, from the first to the last.
    lost_span: Mutex<Option<(u64, u64)>>,
    /// Times in which it was gone; the last one may not have ended.
    outages: Mutex<Vec<(u64, Option<u64>)>>,
}

impl SourceCounters {
    pub(crate) fn new(name: &str) -> Self {
        Self { name: name.to_owned(), ..Self::default() }
    }

    /// Counts packets that may have come between two times as lost, in one of the counters above.
    pub(crate) fn lose(&self, counter: &AtomicU64, packets: u64, from_ns: u64, to_ns: u64) {
        if packets > 0 {
            self.widen_lost_span(from_ns, to_ns);
            counter.fetch_add(packets, Ordering::Relaxed);
        }
    }

    /// The recording that was to report packets lost between two times does not report them.
    pub(crate) fn not_told(&self, packets: u64, from_ns: u64, to_ns: u64) {
        self.lost_told.fetch_sub(packets, Ordering::Relaxed);
        self.widen_lost_span(from_ns, to_ns);
    }

    /// Packets were lost between two times, and no recording reports them yet.
    pub(crate) fn widen_lost_span(&self, from_ns: u64, to_ns: u64) {
        let mut span = lock(&self.lost_span);
        let (from, to) = span.unwrap_or((u64::MAX, 0));
        *span = Some((from.min(from_ns), to.max(to_ns)));
    }

    /// When the packets lost since the last call may have come.
    pub(crate) fn take_lost_span(&self) -> Option<(u64, u64)> {
        lock(&self.lost_span).take()
    }

    /// Notes that the source is gone, or back.
    pub(crate) fn is_back(&self, is_back: bool, now_ns: u64) {
        let mut outages = lock(&self.outages);
        if !is_back {
            outages.push((now_ns, None));
        } else if let Some((_, until @ None)) = outages.last_mut() {
            *until = Some(now_ns);
        }
    }

    /// The outages that ended since the last call.
    pub(crate) fn take_outages(&self) -> Vec<(u64, u64)> {
        let mut outages = lock(&self.outages);
        let over = outages.iter().filter_map(|&(from, until)| Some((from, until?))).collect();
        outages.retain(|(_, until)| until.is_none());
        over
    }

    /// Packets that were lost, for whatever reason.
    pub(crate) fn lost(&self) -> u64 {
        let counters = [&self.lost_by_interface, &self.lost_by_kernel, &self.lost_by_writer];
        counters.iter().map(|counter| counter.load(Ordering::Relaxed)).sum()
    }

    /// How full the kernel's ring is, from 0 to 1, estimated from the number of packets in it and
    /// the lengths of earlier packets.
    pub(crate) fn ring_fill(&self) -> f64 {
        /// Bytes that the kernel puts before each packet.
        const RING_HEADER_BYTES: u64 = 96;
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let ring = get(&self.ring_bytes);
        if ring == 0 {
            return 0.0;
        }
        let mean = get(&self.seen_bytes) / get(&self.seen).max(1) + RING_HEADER_BYTES;
        (get(&self.ring_packets) as f64 * mean as f64 / ring as f64).min(1.0)
    }
}

/// Counters of the writer and the threads after it.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    /// Packets in the files, and their bytes on the wire.
    pub(crate) packets: AtomicU64,
    pub(crate) wire_bytes: AtomicU64,
    /// How much of the last recording is in these two; locked by whoever changes or reads all
    /// three.
    pub(crate) counted: Mutex<Counted>,
    /// Bytes of the files.
    pub(crate) bytes: AtomicU64,
    /// The time of the last packet.
    pub(crate) last_packet_ns: AtomicU64,
    /// Packets that would survive a loss of power, and those of them that are in complete
    /// recordings.
    pub(crate) synced: AtomicU64,
    sealed_packets: AtomicU64,
    /// Bytes of the recording that is open, and the least time of its packets; 0 if none is.
    pub(crate) open_bytes: AtomicU64,
    pub(crate) open_time_min: AtomicU64,
    pub(crate) sealed: AtomicU64,
    /// Recordings and packets that were indexed, and bytes of their indexes.
    pub(crate) indexed: AtomicU64,
    pub(crate) indexed_packets: AtomicU64,
    pub(crate) index_bytes: AtomicU64,
    /// The disk is full, and nothing may be removed.
    pub(crate) paused: AtomicBool,
    /// How often that was so.
    pub(crate) pauses: AtomicU64,
}

impl Counters {
    /// A recording was completed: this many of its packets are safe.
    pub(crate) fn sealed_packets(&self, packets: u64) {
        let all = self.sealed_packets.fetch_add(packets, Ordering::Relaxed) + packets;
        self.synced.fetch_max(all, Ordering::Relaxed);
    }

    /// This many packets of the open recording are safe.
    pub(crate) fn synced(&self, packets: u64) {
        let all = self.sealed_packets.load(Ordering::Relaxed) + packets;
        self.synced.fetch_max(all, Ordering::Relaxed);
    }
}
