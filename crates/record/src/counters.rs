//! What is counted, and where.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::lock;
use crate::status::Counted;

/// Of a source: an interface or a stream.
#[derive(Debug, Default)]
pub(crate) struct SourceCounters {
    /// Its name.
    pub(crate) name: String,
    /// Packets that came to us: those that were taken out of the kernel's ring, or that it had no
    /// room for; all packets of a stream.
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
    /// Packets that came when there were as many as were asked for.
    pub(crate) not_wanted: AtomicU64,
    /// Bytes of the kernel's ring; 0 if there is none.
    pub(crate) ring_bytes: AtomicU64,
    /// Packets in it, when the kernel was last asked.
    pub(crate) ring_packets: AtomicU64,
    /// All blocks, and those that wait for the writer.
    pub(crate) blocks: AtomicU64,
    pub(crate) blocks_full: AtomicU64,
    /// It gives packets at the moment.
    pub(crate) up: AtomicBool,
    /// It could not be read to its end.
    pub(crate) broken: AtomicBool,
    /// How often it was opened again.
    pub(crate) reopened: AtomicU64,
    /// Of the packets that were lost, those that a recording tells of.
    pub(crate) lost_told: AtomicU64,
    /// When the others may have come, from the first to the last of them.
    lost_span: Mutex<Option<(u64, u64)>>,
    /// Times in which it was gone; the last one may not have ended.
    outages: Mutex<Vec<(u64, Option<u64>)>>,
}

impl SourceCounters {
    pub(crate) fn new(name: &str) -> Self {
        Self { name: name.to_owned(), ..Self::default() }
    }

    /// Counts packets as lost, in one of the counters above, that may have come between two times.
    pub(crate) fn lose(&self, counter: &AtomicU64, packets: u64, from_ns: u64, to_ns: u64) {
        if packets > 0 {
            self.widen_lost_span(from_ns, to_ns);
            counter.fetch_add(packets, Ordering::Relaxed);
        }
    }

    /// Packets that were lost between two times are not in the recording that was to tell of them.
    pub(crate) fn not_told(&self, packets: u64, from_ns: u64, to_ns: u64) {
        self.lost_told.fetch_sub(packets, Ordering::Relaxed);
        self.widen_lost_span(from_ns, to_ns);
    }

    /// Packets were lost between two times, which no recording tells of yet.
    pub(crate) fn widen_lost_span(&self, from_ns: u64, to_ns: u64) {
        let mut span = lock(&self.lost_span);
        let (from, to) = span.unwrap_or((u64::MAX, 0));
        *span = Some((from.min(from_ns), to.max(to_ns)));
    }

    /// When packets may have come that were lost since this was last asked.
    pub(crate) fn take_lost_span(&self) -> Option<(u64, u64)> {
        lock(&self.lost_span).take()
    }

    /// It is gone, or back.
    pub(crate) fn is_back(&self, is_back: bool, now_ns: u64) {
        let mut outages = lock(&self.outages);
        if !is_back {
            outages.push((now_ns, None));
        } else if let Some((_, until @ None)) = outages.last_mut() {
            *until = Some(now_ns);
        }
    }

    /// When it was gone and came back, since this was last asked.
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

    /// How full the kernel's ring is, from 0 to 1, as far as that can be told from the number of
    /// packets in it and the lengths of those before them.
    pub(crate) fn ring_fill(&self) -> f64 {
        /// What the kernel puts before each packet.
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

/// Of the writer and those behind it.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    /// Packets in the files, and their bytes on the wire.
    pub(crate) packets: AtomicU64,
    pub(crate) wire_bytes: AtomicU64,
    /// What of the last recording is in these two; held by whoever changes or reads all three.
    pub(crate) counted: Mutex<Counted>,
    /// Bytes of the files.
    pub(crate) bytes: AtomicU64,
    /// The time of the last packet.
    pub(crate) last_packet_ns: AtomicU64,
    /// Packets that would outlast a loss of power, and those of them that are in complete
    /// recordings.
    pub(crate) synced: AtomicU64,
    sealed_packets: AtomicU64,
    /// Bytes of the recording that is open, and the least time of its packets; 0 if none is.
    pub(crate) open_bytes: AtomicU64,
    pub(crate) open_time_min: AtomicU64,
    pub(crate) sealed: AtomicU64,
    /// Recordings, packets and bytes of index that the indexer has done.
    pub(crate) indexed: AtomicU64,
    pub(crate) indexed_packets: AtomicU64,
    pub(crate) index_bytes: AtomicU64,
    /// The disk is full, and nothing may go.
    pub(crate) paused: AtomicBool,
    /// How often that was so.
    pub(crate) pauses: AtomicU64,
}

impl Counters {
    /// A recording was completed: so many of its packets are safe.
    pub(crate) fn sealed_packets(&self, packets: u64) {
        let all = self.sealed_packets.fetch_add(packets, Ordering::Relaxed) + packets;
        self.synced.fetch_max(all, Ordering::Relaxed);
    }

    /// So many packets of the open recording are safe.
    pub(crate) fn synced(&self, packets: u64) {
        let all = self.sealed_packets.load(Ordering::Relaxed) + packets;
        self.synced.fetch_max(all, Ordering::Relaxed);
    }
}
