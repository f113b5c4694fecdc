//! Blocks of packets on their way from a source to the writer.
//!
//! A source has a fixed number of blocks. It fills one, hands it to the writer, and takes an empty
//! one; the writer gives it back. So there is never more in memory than the blocks hold, and a
//! source that finds no empty block knows that the writer is behind.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, TryRecvError, channel};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use tapdex_engine::capture::{Interface, blocks};

use crate::counters::SourceCounters;
use crate::lock;

/// Bytes of a block: the writer writes this much at a time. The longest packet fits.
pub(crate) const BLOCK_BYTES: usize = 1 << 20;

/// Fewer blocks would make the source wait for the writer at every block.
const BLOCKS_MIN: usize = 4;

/// The most interfaces of all sources: each is in the head of every file. Only a stream can have
/// this many.
const INTERFACES_MAX: usize = 1_024;

/// How long packets wait in a block that is not full.
pub(crate) const FLUSH_AFTER: Duration = Duration::from_millis(200);

/// How long a source that must not wait forever waits for an empty block, while the kernel's ring
/// fills. After that it drops packets and counts them.
const PATIENCE: Duration = Duration::from_millis(100);

/// The interfaces that packets came from, by their number; they are never removed.
#[derive(Debug, Default)]
pub(crate) struct Interfaces {
    list: Mutex<Vec<Registered>>,
}

/// An interface, and the filter of its capture.
#[derive(Debug, Clone)]
pub(crate) struct Registered {
    pub(crate) interface: Interface,
    pub(crate) filter: String,
    pub(crate) counters: Arc<SourceCounters>,
}

impl Interfaces {
    /// Adds an interface and returns its number. One that is known already keeps its number; `None`
    /// if there are too many.
    pub(crate) fn add(&self, new: Registered) -> Option<u32> {
        let mut list = self.lock();
        let same = |known: &Registered| {
            known.interface == new.interface && Arc::ptr_eq(&known.counters, &new.counters)
        };
        let known = list.iter().position(same);
        if known.is_none() && list.len() >= INTERFACES_MAX {
            return None;
        }
        let number = known.unwrap_or_else(|| {
            list.push(new);
            list.len() - 1
        });
        u32::try_from(number).ok()
    }

    pub(crate) fn list(&self) -> Vec<Registered> {
        self.lock().clone()
    }

    pub(crate) fn len(&self) -> usize {
        self.lock().len()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Registered>> {
        lock(&self.list)
    }
}

/// Packets in pcapng form.
#[derive(Debug)]
pub(crate) struct Block {
    pub(crate) bytes: Vec<u8>,
    pub(crate) packets: u64,
    /// Bytes of its packets on the wire.
    pub(crate) wire_bytes: u64,
    /// The least and the greatest time of its packets.
    pub(crate) time_min: u64,
    pub(crate) time_max: u64,
    /// The interfaces of its packets are below this number.
    pub(crate) interfaces: usize,
    /// The source that it came from.
    pub(crate) counters: Arc<SourceCounters>,
    home: Sender<Block>,
}

impl Block {
    /// Gives the block back to its source, empty.
    pub(crate) fn give_back(mut self) {
        self.bytes.clear();
        (self.packets, self.wire_bytes, self.interfaces) = (0, 0, 0);
        (self.time_min, self.time_max) = (u64::MAX, 0);
        let home = self.home.clone();
        // A source that has ended needs none.
        drop(home.send(self));
    }
}

/// Whether a source can be made to wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pressure {
    /// An interface: packets that are not taken are lost.
    Lose,
    /// A stream: it waits.
    Wait,
}

/// Takes packets from a source.
#[derive(Debug)]
pub(crate) struct Feeder {
    block: Option<Block>,
    /// When the block that is being filled has got its first packet.
    since: Option<Instant>,
    empty: Receiver<Block>,
    full: Sender<Block>,
    interfaces: Arc<Interfaces>,
    pub(crate) counters: Arc<SourceCounters>,
    pressure: Pressure,
    stop: Arc<AtomicBool>,
    /// There was no empty block, so packets are dropped.
    losing: bool,
    /// Packets that are still wanted, of all sources together.
    left: Option<Arc<AtomicU64>>,
}

impl Feeder {
    pub(crate) fn new(
        queue_bytes: usize,
        full: Sender<Block>,
        interfaces: Arc<Interfaces>,
        counters: Arc<SourceCounters>,
        pressure: Pressure,
        stop: Arc<AtomicBool>,
    ) -> Self {
        let (home, empty) = channel();
        let blocks = (queue_bytes / BLOCK_BYTES).max(BLOCKS_MIN);
        counters.blocks.store(blocks as u64, Ordering::Relaxed);
        for _ in 0..blocks {
            let block = Block {
                bytes: Vec::new(),
                packets: 0,
                wire_bytes: 0,
                time_min: u64::MAX,
                time_max: 0,
                interfaces: 0,
                counters: Arc::clone(&counters),
                home: home.clone(),
            };
            drop(home.send(block));
        }
        Self {
            block: None,
            since: None,
            empty,
            full,
            interfaces,
            counters,
            pressure,
            stop,
            losing: false,
            left: None,
        }
    }

    /// Takes no more packets than are left, and ends the recorder then.
    pub(crate) fn limit(&mut self, left: Option<Arc<AtomicU64>>) {
        self.left = left;
    }

    /// Whether another packet is wanted.
    fn is_wanted(&self) -> bool {
        let Some(left) = &self.left else { return true };
        let one_less = |left: u64| left.checked_sub(1);
        match left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_less) {
            Ok(before) => {
                if before == 1 {
                    self.stop.store(true, Ordering::Relaxed);
                }
                true
            }
            Err(_) => {
                self.counters.not_wanted.fetch_add(1, Ordering::Relaxed);
                self.stop.store(true, Ordering::Relaxed);
                false
            }
        }
    }

    /// Adds an interface and returns its number, unless there are too many.
    pub(crate) fn add_interface(&self, interface: Interface, filter: &str) -> Option<u32> {
        let counters = Arc::clone(&self.counters);
        self.interfaces.add(Registered { interface, filter: filter.to_owned(), counters })
    }

    /// Takes in a packet, or counts it as lost.
    #[inline]
    pub(crate) fn packet(&mut self, interface: u32, time_ns: u64, wire_len: u32, data: &[u8]) {
        // Longer than any snapshot length: the rest is cut off.
        let data = &data[..data.len().min(BLOCK_BYTES - 64)];
        let needed = blocks::packet_len(data.len());
        let fits = |block: &Block| block.bytes.len() + needed <= BLOCK_BYTES;
        if !self.block.as_ref().is_some_and(fits) {
            self.hand_over();
            if !self.take_empty() {
                self.counters.lose(&self.counters.lost_by_writer, 1, time_ns, time_ns);
                return;
            }
        }
        if !self.is_wanted() {
            return;
        }
        let Some(block) = &mut self.block else { return };
        if block.packets == 0 {
            self.since = Some(Instant::now());
            block.interfaces = self.interfaces.len();
            block.bytes.reserve_exact(BLOCK_BYTES.saturating_sub(block.bytes.len()));
        }
        block.interfaces = block.interfaces.max(interface as usize + 1);
        blocks::packet(&mut block.bytes, interface, time_ns, wire_len, data);
        block.packets += 1;
        block.wire_bytes += u64::from(wire_len);
        block.time_min = block.time_min.min(time_ns);
        block.time_max = block.time_max.max(time_ns);
    }

    /// Hands the block over if its packets have waited long enough.
    pub(crate) fn tick(&mut self) {
        if self.since.is_some_and(|since| since.elapsed() >= FLUSH_AFTER) {
            self.hand_over();
        }
    }

    /// Hands the block over, if there is anything in it.
    pub(crate) fn hand_over(&mut self) {
        if self.block.as_ref().is_some_and(|block| block.packets > 0)
            && let Some(block) = self.block.take()
        {
            self.since = None;
            self.counters.blocks_full.fetch_add(1, Ordering::Relaxed);
            // The writer ends after the sources.
            drop(self.full.send(block));
        }
    }

    /// Takes an empty block if it has none; returns whether it has one now.
    fn take_empty(&mut self) -> bool {
        if self.block.is_some() {
            return true;
        }
        match self.empty.try_recv() {
            Ok(block) => self.block = Some(block),
            Err(TryRecvError::Disconnected) => return false,
            Err(TryRecvError::Empty) if self.losing => return false,
            Err(TryRecvError::Empty) => self.wait_for_empty(),
        }
        self.losing = self.block.is_none();
        self.block.is_some()
    }

    fn wait_for_empty(&mut self) {
        loop {
            match self.empty.recv_timeout(PATIENCE) {
                Ok(block) => {
                    self.block = Some(block);
                    return;
                }
                Err(RecvTimeoutError::Timeout)
                    if self.pressure == Pressure::Wait && !self.stop.load(Ordering::Relaxed) => {}
                Err(_) => return,
            }
        }
    }
}

impl Drop for Feeder {
    fn drop(&mut self) {
        self.hand_over();
    }
}
