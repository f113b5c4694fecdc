//! What a recorder reports while it runs: its status, and the messages of its threads.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use tapdex_engine::archive::Archive;

use crate::clock::{Clock, Moment};
use crate::counters::{Counters, SourceCounters};
use crate::index_queue::IndexQueue;
use crate::keeper::Keeper;
use crate::lock;
use crate::messages::{Message, Messages};
use crate::status::{Losses, SourceStatus, Status, Totals};

/// What a recorder reports while it runs.
#[derive(Debug)]
pub enum Event<'a> {
    /// Its status, about every second.
    Status(&'a Status),
    /// What happened.
    Message(Message),
}

/// Puts the status together, writes it into the archive, and reports it.
pub(crate) struct Reporter<'s, 'a> {
    pub(crate) archive: &'a Archive,
    pub(crate) clock: &'a dyn Clock,
    pub(crate) counters: &'s Counters,
    pub(crate) sources: &'s [Arc<SourceCounters>],
    pub(crate) keeper: &'s Mutex<Keeper<'a>>,
    pub(crate) queue: &'s IndexQueue<'a>,
    pub(crate) messages: &'s Messages<'a>,
    /// What earlier runs have recorded.
    pub(crate) before: Totals,
    pub(crate) started_ns: u64,
    pub(crate) device: &'static str,
    /// When the status was last put together, and what had been recorded then.
    pub(crate) last: Option<(Moment, Totals)>,
}

impl Reporter<'_, '_> {
    /// Writes the first status, so that a recorder that is killed within the first second has left
    /// where it began.
    pub(crate) fn begin(&mut self) {
        if let Err(error) = self.status(false).write(self.archive) {
            self.is_not_written(&error);
        }
    }

    /// Reports the messages and the status.
    pub(crate) fn tell(&mut self, tell: &mut dyn FnMut(Event<'_>)) {
        self.report(false, tell);
    }

    /// The same for the last time.
    pub(crate) fn end(mut self, tell: &mut dyn FnMut(Event<'_>)) -> Status {
        self.report(true, tell)
    }

    fn report(&mut self, ended: bool, tell: &mut dyn FnMut(Event<'_>)) -> Status {
        let status = self.status(ended);
        if let Err(error) = status.write(self.archive) {
            // A full disk is reported where it matters.
            if error.kind() != std::io::ErrorKind::StorageFull {
                self.is_not_written(&error);
            }
        }
        for message in self.messages.take() {
            tell(Event::Message(message));
        }
        tell(Event::Status(&status));
        status
    }

    fn is_not_written(&self, error: &std::io::Error) {
        self.messages.say_once(Message::warn("the status cannot be written: ").because(error));
    }

    fn status(&mut self, ended: bool) -> Status {
        let counters = &self.counters;
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let sources: Vec<SourceStatus> =
            self.sources.iter().map(|source| source_status(source)).collect();
        let lost = sources.iter().fold(Losses::default(), |sum, source| sum.add(&source.lost));
        let keeper = lock(self.keeper);
        let (stock, removed, space) = (keeper.stock(), keeper.removed, keeper.space());
        let (index_uses, age_paused) = (keeper.index_uses(), keeper.is_age_paused());
        drop(keeper);
        let space = space.unwrap_or_default();
        let counted = lock(&counters.counted);
        let (packets, wire_bytes) = (get(&counters.packets), get(&counters.wire_bytes));
        let of_last = *counted;
        drop(counted);
        let run = Totals {
            packets,
            wire_bytes,
            lost,
            removed_segments: removed.segments.iter().sum(),
            removed_packets: removed.packets,
            pauses: get(&counters.pauses),
        };
        let now = Moment::now(self.clock);
        let (mut packets_per_second, mut bits_per_second) = (0.0, 0.0);
        if let Some((then, before)) = &self.last {
            let seconds = now.since(*then).as_secs_f64().max(1e-3);
            let gained = |now: u64, before: u64| now.saturating_sub(before) as f64 / seconds;
            packets_per_second = gained(run.packets, before.packets);
            bits_per_second = 8.0 * gained(run.wire_bytes, before.wire_bytes);
        }
        self.last = Some((now, run));
        let open_bytes = get(&counters.open_bytes);
        let open_oldest = Some(get(&counters.open_time_min)).filter(|&ns| ns > 0);
        let (now_ns, backlog) = (self.clock.now_ns(), self.queue.backlog());
        let lag = match backlog.since_ns {
            0 => 0,
            since_ns => now_ns.saturating_sub(since_ns),
        };
        Status {
            pid: std::process::id(),
            folder: self.archive.folder().display().to_string(),
            device: self.device.to_owned(),
            started_ns: self.started_ns,
            updated_ns: now_ns,
            paused: counters.paused.load(Ordering::Relaxed),
            age_paused,
            ended,
            packets_per_second,
            bits_per_second,
            synced_packets: get(&counters.synced),
            written_bytes: get(&counters.bytes),
            last_packet_ns: get(&counters.last_packet_ns),
            sealed: get(&counters.sealed),
            indexed: get(&counters.indexed),
            indexed_packets: get(&counters.indexed_packets),
            index_bytes: get(&counters.index_bytes),
            waiting: backlog.recordings,
            index_lag_seconds: lag as f64 / 1e9,
            segments: stock.segments + u64::from(open_bytes > 0),
            packet_bytes: stock.packet_bytes + open_bytes,
            segment_index_bytes: stock.index_bytes,
            index_uses,
            oldest_packet_ns: stock.oldest_ns.into_iter().chain(open_oldest).min().unwrap_or(0),
            disk_free_bytes: space.free,
            disk_percent: space.percent(),
            removed_by: removed.segments,
            run,
            total: self.before.add(&run),
            counted: Some(of_last),
            sources,
        }
    }
}

fn source_status(counters: &SourceCounters) -> SourceStatus {
    let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    let waiting = get(&counters.blocks_full) as f64;
    SourceStatus {
        name: counters.name.clone(),
        up: counters.up.load(Ordering::Relaxed),
        received: get(&counters.received).saturating_sub(get(&counters.not_wanted)),
        stored: get(&counters.stored),
        stored_bytes: get(&counters.stored_bytes),
        ring_fill: counters.ring_fill(),
        queue_fill: waiting / get(&counters.blocks).max(1) as f64,
        broken: counters.broken.load(Ordering::Relaxed),
        reopened: get(&counters.reopened),
        lost: Losses {
            interface: get(&counters.lost_by_interface),
            kernel: get(&counters.lost_by_kernel),
            writer: get(&counters.lost_by_writer),
            indexer: 0,
        },
    }
}
