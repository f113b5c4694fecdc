//! From blocks to files.
//!
//! The writer appends blocks to the recording that is open, and closes it when it has enough.
//! Writes start at multiples of 4 KiB: bytes after the last multiple are kept, and written again
//! before the next block, so that no page is written in two halves.
//!
//! Searches see written packets at once. The sealer syncs it every second, and gives the file its
//! name when it is closed.

use std::io::{self, IoSlice};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tapdex_engine::archive::{Archive, ArchiveError, Covered, Recording};
use tapdex_engine::beneath::Rights;
use tapdex_engine::capture::blocks::{self, Statistics};
use tapdex_engine::storage::WriteFile;

use crate::clock::{Clock, Moment, Waiter};
use crate::control::Orders;
use crate::counters::{Counters, SourceCounters};
use crate::keeper::Keeper;
use crate::lock;
use crate::messages::{Message, Messages};
use crate::queue::{Block, Interfaces, Registered};
use crate::units::Rotation;

const ALIGN: usize = 4_096;
/// How often the clock is looked at while nothing comes.
const TICK: Duration = Duration::from_millis(50);
/// How often losses are written to the file, while there are any.
const LOSSES_EVERY: Duration = Duration::from_secs(1);
/// A time without packets at the end that is long enough to be written down.
const QUIET_NS: u64 = 1_000_000_000;
/// How many times to retry after an error other than a full disk before recording counts as paused.
const ERROR_TRIES: u32 = 3;
/// How long to wait before trying a full disk again.
const FULL_RETRY: Duration = Duration::from_millis(100);
/// How many times to retry, once we have to stop, before giving up on what cannot be written.
const STOP_TRIES: u32 = 20;
/// How many times to retry before the wait for a recording that is being completed counts as a
/// pause.
const SEALING_TRIES: u32 = 50;

/// A recording that is closed and not complete yet.
#[derive(Debug)]
pub(crate) struct Closed {
    pub(crate) recording: Recording,
    pub(crate) file: Arc<dyn WriteFile>,
    pub(crate) packets: u64,
    pub(crate) bytes: u64,
    pub(crate) time_min: u64,
    pub(crate) time_max: u64,
    /// The statistics in it.
    pub(crate) told: Vec<Statistics>,
    /// The sources of its packets, in their order, and how many each gave.
    pub(crate) from: Vec<(Arc<SourceCounters>, u64)>,
    /// Not all of it could be written, or there is no packet in it.
    pub(crate) broken: bool,
    /// It could not be synced once.
    pub(crate) sync_failed: bool,
    /// It could not be completed once.
    pub(crate) failed: bool,
}

/// The file that is written now, for the sealer and the indexer.
#[derive(Debug, Default)]
pub(crate) struct Current(Mutex<Option<Growing>>);

/// A file that is being written, and the packets that are in it to their last byte.
#[derive(Debug, Clone)]
pub(crate) struct Growing {
    pub(crate) recording: Recording,
    pub(crate) since: Moment,
    pub(crate) file: Arc<dyn WriteFile>,
    pub(crate) packets: Arc<AtomicU64>,
    /// It could not be synced once: the system would not report that again.
    pub(crate) sync_failed: Arc<AtomicBool>,
}

impl Current {
    pub(crate) fn get(&self) -> Option<Growing> {
        lock(&self.0).clone()
    }

    fn set(&self, file: Option<Growing>) {
        *lock(&self.0) = file;
    }
}

/// The recording that is open.
#[derive(Debug)]
struct Open {
    recording: Recording,
    growing: Growing,
    /// Where the tail is written: a multiple of the alignment.
    offset: u64,
    /// The bytes after that, written or not.
    tail: Vec<u8>,
    tail_written: usize,
    /// Interfaces that are in the file.
    interfaces: usize,
    packets: u64,
    time_min: u64,
    time_max: u64,
    from: Vec<(Arc<SourceCounters>, u64)>,
    /// Losses that it reports, each with the offset where the report ends.
    lost: Vec<(u64, Lost)>,
    /// All statistics in it, each with the offset where they end.
    told: Vec<(u64, Statistics)>,
    /// The end of the time that the recordings before it cover.
    told_before_ns: u64,
}

impl Open {
    fn bytes(&self) -> u64 {
        self.offset + self.tail.len() as u64
    }

    /// Writes the tail and what follows it.
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        let len = self.tail.len() + bytes.len();
        let whole = len - len % ALIGN;
        if whole == 0 {
            self.tail.extend_from_slice(bytes);
            return Ok(());
        }
        let cut = whole - self.tail.len();
        let file = self.growing.file.as_ref();
        let written = write_all(file, [&self.tail, &bytes[..cut]], self.offset);
        if written.is_err() {
            // No part of it must stay: it is written again, perhaps to another file. If cutting
            // fails, too, the file is cut when it is completed.
            drop(file.cut(self.offset + self.tail_written as u64));
        }
        written?;
        self.offset += whole as u64;
        self.tail.clear();
        self.tail.extend_from_slice(&bytes[cut..]);
        self.tail_written = 0;
        Ok(())
    }

    /// Writes the tail, so that searches find what is in it.
    fn flush(&mut self) -> io::Result<()> {
        if self.tail_written < self.tail.len() {
            write_all(self.growing.file.as_ref(), [&self.tail, &[]], self.offset)?;
            self.tail_written = self.tail.len();
        }
        self.growing.packets.store(self.packets, Ordering::Relaxed);
        Ok(())
    }
}

fn write_all(file: &dyn WriteFile, parts: [&[u8]; 2], offset: u64) -> io::Result<()> {
    let all = parts[0].len() + parts[1].len();
    let mut done = 0;
    while done < all {
        let first = &parts[0][done.min(parts[0].len())..];
        let second = &parts[1][done.saturating_sub(parts[0].len())..];
        let slices = [IoSlice::new(first), IoSlice::new(second)];
        match file.write_at(&slices, offset + done as u64) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => done += written,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Which statistics are written into a recording.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Tell {
    /// Everything, up to now.
    All,
    /// Losses, if there were any.
    Losses,
}

/// Statistics to be written into a recording.
struct Told {
    bytes: Vec<u8>,
    /// What all recordings together will then have reported for each interface.
    counts: Vec<Statistics>,
    /// The end of the time that will then be covered.
    until_ns: u64,
    /// Losses that are in it.
    lost: Vec<Lost>,
    /// All that is in it.
    blocks: Vec<Statistics>,
}

impl Told {
    fn tell(&mut self, number: u32, counts: Statistics) {
        blocks::statistics(&mut self.bytes, number, &counts);
        self.blocks.push(counts);
    }

    /// It could not be written: the time of the losses is reported later.
    fn is_not_told(&self) {
        for Lost { source, counts } in &self.lost {
            source.widen_lost_span(counts.start_ns, counts.end_ns);
        }
    }
}

/// Packets of a source that were lost.
#[derive(Debug)]
struct Lost {
    source: Arc<SourceCounters>,
    counts: Statistics,
}

/// What the writer works with.
#[derive(Debug)]
pub(crate) struct Context<'s, 'a> {
    pub(crate) archive: &'a Archive,
    pub(crate) clock: &'a dyn Clock,
    pub(crate) keeper: &'s Mutex<Keeper<'a>>,
    pub(crate) messages: &'s Messages<'a>,
    pub(crate) counters: &'s Counters,
    pub(crate) interfaces: &'s Interfaces,
    pub(crate) current: &'s Current,
    pub(crate) orders: &'s Orders,
    /// When a recording is closed.
    pub(crate) rotation: Rotation,
    /// The comment in every recording.
    pub(crate) comment: String,
}

impl Context<'_, '_> {
    fn is_to_stop(&self) -> bool {
        self.orders.stop.load(Ordering::Relaxed)
    }
}

/// Writes blocks until all sources have ended.
pub(crate) struct Writer<'s, 'a> {
    context: Context<'s, 'a>,
    closed: SyncSender<Closed>,
    open: Option<Open>,
    /// Bytes that may be written before the keeper is asked again.
    allowance: u64,
    /// What all recordings so far have reported for each interface.
    told: Vec<Statistics>,
    /// The end of the time that they cover, and when they last reported losses.
    told_ns: u64,
    losses_told: Moment,
    /// No recording of this run has reported when the run began.
    is_first: bool,
    /// The number of the last recording of this run.
    last_number: u64,
    /// Something could not be written before we had to stop. Everything else is tried once.
    gave_up: bool,
}

impl<'s, 'a> Writer<'s, 'a> {
    pub(crate) fn new(context: Context<'s, 'a>, closed: SyncSender<Closed>) -> Self {
        let (now_ns, now) = (context.clock.now_ns(), Moment::now(context.clock));
        Self {
            context,
            closed,
            open: None,
            allowance: 0,
            told: Vec::new(),
            told_ns: now_ns,
            losses_told: now,
            is_first: true,
            last_number: 0,
            gave_up: false,
        }
    }

    pub(crate) fn run(mut self, full: &Receiver<Block>) {
        loop {
            match full.recv_timeout(self.context.clock.nap(Waiter::Writer, TICK)) {
                Ok(block) => self.take(block),
                Err(RecvTimeoutError::Timeout) => {
                    self.retrying(0, Self::flush);
                }
                Err(RecvTimeoutError::Disconnected) => break,
            }
            // If the clock is set back, follow it: it was wrong before, or is now.
            self.told_ns = self.told_ns.min(self.context.clock.now_ns());
            self.tell_losses();
            self.rotate_if_due();
        }
        self.close();
        self.remember_quiet();
    }

    /// Notes in the archive the time since the last recording, in which no packet came and which no
    /// recording covers.
    fn remember_quiet(&self) {
        let now_ns = self.context.clock.now_ns();
        if now_ns.saturating_sub(self.told_ns) < QUIET_NS {
            return;
        }
        let covered = Covered { from_ns: self.told_ns, to_ns: now_ns };
        if let Err(error) = self.context.archive.remember_covered(covered) {
            let message = Message::warn("times without packets cannot be written down: ");
            self.context.messages.say_once(message.because(&error));
        }
    }

    /// Writes a block. If that is not possible before we are told to stop, its packets are lost.
    fn take(&mut self, block: Block) {
        // No more packets than fit into one index, or than were asked for.
        let packets = self.open.as_ref().map_or(0, |open| open.packets);
        if packets > 0 && packets + block.packets > self.context.rotation.packets {
            self.close();
        }
        let written = self.retrying(block.bytes.len() as u64, |this| this.write(&block));
        let counters = &self.context.counters;
        block.counters.blocks_full.fetch_sub(1, Ordering::Relaxed);
        if written {
            block.counters.stored.fetch_add(block.packets, Ordering::Relaxed);
            block.counters.stored_bytes.fetch_add(block.wire_bytes, Ordering::Relaxed);
            let open = self.open.as_ref();
            counters.open_bytes.store(open.map_or(0, Open::bytes), Ordering::Relaxed);
            counters.open_time_min.store(open.map_or(0, |o| o.time_min), Ordering::Relaxed);
            let mut counted = lock(&counters.counted);
            counted.add(self.last_number, block.packets, block.wire_bytes);
            counters.packets.fetch_add(block.packets, Ordering::Relaxed);
            counters.wire_bytes.fetch_add(block.wire_bytes, Ordering::Relaxed);
            drop(counted);
            counters.last_packet_ns.fetch_max(block.time_max, Ordering::Relaxed);
        } else {
            let (counters, packets) = (&block.counters, block.packets);
            counters.lose(&counters.lost_by_writer, packets, block.time_min, block.time_max);
        }
        block.give_back();
    }

    /// Does something that needs room on the disk, and repeats it until it succeeds. Fails only
    /// when the recorder ends.
    fn retrying(
        &mut self,
        bytes: u64,
        mut step: impl FnMut(&mut Self) -> Result<(), ArchiveError>,
    ) -> bool {
        let mut tried = 0_u32;
        loop {
            let had_room = self.has_room(bytes);
            let result = if had_room { step(self) } else { Err(full()) };
            let Err(error) = result else {
                // At the end, a step that needs no room does not show whether there is some.
                if bytes > 0 || !self.context.is_to_stop() {
                    self.resume();
                }
                return true;
            };
            if is_full(&error) {
                // The keeper removes what it may, and reports what is free then.
                self.allowance = 0;
                if tried == 0 && self.has_room(bytes.max(1 << 20)) {
                    tried += 1;
                    continue;
                }
                if !self.make_way(had_room, tried) {
                    let why = lock(self.context.keeper).shortage();
                    self.pause(&format!("{why}, and no recording is left that may go"));
                }
            } else {
                let message = Message::warn("it is tried again: ").because(&error);
                self.context.messages.say_once(message);
                if tried > ERROR_TRIES {
                    self.pause("packets cannot be written");
                }
                // Perhaps only this file cannot be written: what it has stays as it is.
                self.hand_over(true);
            }
            tried = tried.saturating_add(1);
            if self.context.is_to_stop() && (self.gave_up || tried > STOP_TRIES) {
                self.gave_up = true;
                return false;
            }
            std::thread::sleep(self.context.clock.nap(Waiter::Writer, FULL_RETRY));
        }
    }

    /// Tries to make room if the keeper found none, or the disk was full although it did; returns
    /// whether there was anything to do.
    fn make_way(&mut self, had_room: bool, tried: u32) -> bool {
        // With a quota, or with removed files that are still open, the disk does not report what is
        // really free.
        if had_room && lock(self.context.keeper).remove_oldest() {
            return true;
        }
        if tried < SEALING_TRIES && lock(self.context.keeper).is_closing() {
            return true;
        }
        // The open recording may be removed once it is complete.
        let has_packets = self.open.as_ref().is_some_and(|open| open.packets > 0);
        let closes = has_packets && self.flush().is_ok();
        if closes {
            self.hand_over(false);
        }
        closes
    }

    /// Writes what was kept back, so that searches find it.
    fn flush(&mut self) -> Result<(), ArchiveError> {
        let Some(open) = &mut self.open else { return Ok(()) };
        let path = open.recording.unfinished_path();
        open.flush().map_err(|source| ArchiveError::Io { what: "write", path, source })
    }

    fn has_room(&mut self, bytes: u64) -> bool {
        if self.allowance < bytes {
            let unsealed = self.open.as_ref().map_or(0, Open::bytes);
            self.allowance = lock(self.context.keeper).make_room(bytes, unsealed);
        }
        self.allowance >= bytes
    }

    fn pause(&mut self, why: &str) {
        if !self.context.counters.paused.swap(true, Ordering::Relaxed) {
            self.context.counters.pauses.fetch_add(1, Ordering::Relaxed);
            self.context.messages.say(Message::error(format!(
                "PAUSED: {why}; packets are counted as lost until that has changed"
            )));
        }
    }

    fn resume(&mut self) {
        if self.context.counters.paused.swap(false, Ordering::Relaxed) {
            self.context.messages.say(Message::error("recording goes on"));
        }
    }

    fn write(&mut self, block: &Block) -> Result<(), ArchiveError> {
        if self.open.is_none() {
            self.open = Some(self.begin()?);
        }
        let Some(open) = &mut self.open else { return Ok(()) };
        let path = open.recording.unfinished_path();
        let failed = |source| ArchiveError::Io { what: "write", path: path.clone(), source };
        if open.interfaces < block.interfaces {
            let list = self.context.interfaces.list();
            let new = &list[open.interfaces..];
            let mut bytes = Vec::new();
            for registered in new {
                blocks::interface(&mut bytes, &registered.interface, &registered.filter);
            }
            open.append(&bytes).map_err(failed)?;
            open.interfaces = list.len();
        }
        open.append(&block.bytes).map_err(failed)?;
        open.packets += block.packets;
        open.time_min = open.time_min.min(block.time_min);
        open.time_max = open.time_max.max(block.time_max);
        match open.from.last_mut() {
            Some((source, packets)) if Arc::ptr_eq(source, &block.counters) => {
                *packets += block.packets;
            }
            _ => open.from.push((Arc::clone(&block.counters), block.packets)),
        }
        let written = block.bytes.len() as u64;
        self.allowance = self.allowance.saturating_sub(written);
        self.context.counters.bytes.fetch_add(written, Ordering::Relaxed);
        // If this fails, the block is kept all the same, and it is tried again.
        drop(open.flush());
        Ok(())
    }

    /// Opens the next recording, with the known interfaces.
    fn begin(&mut self) -> Result<Open, ArchiveError> {
        let now_ns = self.context.clock.now_ns();
        let recording = self.context.archive.new_recording(now_ns, self.last_number)?;
        self.last_number = recording.number().unwrap_or(self.last_number);
        let path = recording.unfinished_path();
        let failed = |source| ArchiveError::Io { what: "create", path: path.clone(), source };
        let storage = self.context.archive.storage();
        let file = storage.create_new(&path, Rights::GROUP).map_err(failed)?;
        let growing = Growing {
            recording: recording.clone(),
            since: Moment::now(self.context.clock),
            file: Arc::from(file),
            packets: Arc::default(),
            sync_failed: Arc::default(),
        };
        let mut open = Open {
            recording,
            growing: growing.clone(),
            offset: 0,
            tail: Vec::new(),
            tail_written: 0,
            interfaces: 0,
            packets: 0,
            time_min: u64::MAX,
            time_max: 0,
            from: Vec::new(),
            lost: Vec::new(),
            told: Vec::new(),
            told_before_ns: self.told_ns,
        };
        let mut head = Vec::new();
        blocks::section(&mut head, &self.context.comment);
        for registered in self.context.interfaces.list() {
            blocks::interface(&mut head, &registered.interface, &registered.filter);
            open.interfaces += 1;
        }
        // The first recording of a run reports when the run began; all others continue where the
        // one before ended.
        let what = if self.is_first { Tell::All } else { Tell::Losses };
        let told = self.statistics(open.interfaces, what);
        head.extend_from_slice(&told.bytes);
        if let Err(error) = open.append(&head) {
            // The next try has a name of its own.
            drop(storage.remove_if_there(&path));
            told.is_not_told();
            return Err(failed(error));
        }
        self.has_told(told, &mut open);
        self.is_first = false;
        self.context.current.set(Some(growing));
        Ok(open)
    }

    fn rotate_if_due(&mut self) {
        let asked = self.context.orders.rotate.swap(false, Ordering::Relaxed);
        let Some(open) = &self.open else { return };
        let limits = &self.context.rotation;
        let due = open.bytes() >= limits.bytes
            || open.packets >= limits.packets
            || open.growing.since.elapsed(self.context.clock) >= limits.time;
        if due || asked {
            self.close();
        }
    }

    /// Ends the recording that is open and hands it to the sealer.
    fn close(&mut self) {
        let broken = !self.retrying(0, Self::flush);
        let Some(open) = &self.open else { return };
        let told = self.statistics(open.interfaces, Tell::All);
        // Packets matter more than their statistics: on a full disk these are left out.
        if broken {
            told.is_not_told();
        } else if let Some(mut open) = self.open.take() {
            let end = open.bytes();
            if open.append(&told.bytes).and_then(|()| open.flush()).is_err() {
                drop(open.growing.file.cut(end));
                open.tail.clear();
                open.offset = end;
                told.is_not_told();
            } else {
                self.has_told(told, &mut open);
            }
            self.open = Some(open);
        }
        self.hand_over(broken);
    }

    /// Writes into the recording that is open how many packets were lost, and when, so that packets
    /// and losses stay together whatever happens to this process.
    fn tell_losses(&mut self) {
        let Some(open) = &self.open else { return };
        if self.losses_told.elapsed(self.context.clock) < LOSSES_EVERY {
            return;
        }
        let told = self.statistics(open.interfaces, Tell::Losses);
        self.losses_told = Moment::now(self.context.clock);
        if told.bytes.is_empty() {
            return;
        }
        // If it cannot be written now, it is reported with the next losses, or with the next
        // recording.
        if let Some(mut open) = self.open.take() {
            if open.append(&told.bytes).is_ok() {
                self.has_told(told, &mut open);
                // If this fails, it is tried again.
                drop(open.flush());
            } else {
                told.is_not_told();
            }
            self.open = Some(open);
        }
    }

    /// The statistics of each interface since the last report. No moment is left out, not even the
    /// time before the first packet of a recording. Losses are reported with the time in which they
    /// happened, in blocks of their own.
    fn statistics(&self, interfaces: usize, what: Tell) -> Told {
        let mut told = Told {
            bytes: Vec::new(),
            counts: self.told.clone(),
            until_ns: self.told_ns,
            lost: Vec::new(),
            blocks: Vec::new(),
        };
        let now_ns = self.context.clock.now_ns();
        let told_ns = self.told_ns.min(now_ns);
        let mut list = self.context.interfaces.list();
        list.truncate(interfaces);
        told.counts.resize(list.len().max(told.counts.len()), Statistics::default());
        for (at, registered) in list.iter().enumerate() {
            // A source counts for all its interfaces together; that is reported once, with the last
            // of them.
            let same = |other: &Registered| Arc::ptr_eq(&other.counters, &registered.counters);
            if list[at + 1..].iter().any(same) {
                continue;
            }
            let number = u32::try_from(at).unwrap_or(u32::MAX);
            let now = statistics(registered);
            let before = list.iter().zip(&told.counts).filter(|(other, _)| same(other));
            let before =
                before.map(|(_, told)| *told).max_by_key(|told| (told.received, told.lost()));
            let before = before.unwrap_or_default();
            let mut last_start = before.start_ns;
            let mut counts = Statistics {
                start_ns: distinct(told_ns, before.start_ns),
                end_ns: now_ns,
                received: now.received.saturating_sub(before.received),
                lost_by_interface: now.lost_by_interface.saturating_sub(before.lost_by_interface),
                lost_by_kernel: now.lost_by_kernel.saturating_sub(before.lost_by_kernel),
                delivered: now.delivered.saturating_sub(before.delivered),
            };
            if counts.lost() > 0 {
                let span = registered.counters.take_lost_span();
                let (from_ns, to_ns) = span.unwrap_or((told_ns, now_ns));
                let lost = Statistics {
                    start_ns: distinct(from_ns, before.start_ns),
                    end_ns: to_ns.max(from_ns),
                    received: counts.received.min(counts.lost_by_kernel),
                    delivered: 0,
                    ..counts
                };
                told.tell(number, lost);
                let source = Arc::clone(&registered.counters);
                told.lost.push(Lost { source, counts: lost });
                counts.start_ns = distinct(counts.start_ns, lost.start_ns);
                counts.received -= lost.received;
                last_start = lost.start_ns;
                (counts.lost_by_interface, counts.lost_by_kernel) = (0, 0);
            }
            let mut reached = now;
            match what {
                Tell::All => {
                    told.tell(number, counts);
                    last_start = counts.start_ns;
                }
                Tell::Losses => {
                    reached.received -= counts.received;
                    reached.delivered -= counts.delivered;
                }
            }
            reached.start_ns = last_start;
            let of_source = list.iter().zip(&mut told.counts).filter(|(other, _)| same(other));
            of_source.for_each(|(_, told)| *told = reached);
        }
        if what == Tell::All {
            told.until_ns = now_ns;
        }
        told
    }

    /// Notes that statistics are now in a recording.
    fn has_told(&mut self, told: Told, open: &mut Open) {
        (self.told, self.told_ns) = (told.counts, told.until_ns);
        let end = open.bytes();
        open.told.extend(told.blocks.into_iter().map(|block| (end, block)));
        for lost in told.lost {
            lost.source.lost_told.fetch_add(lost.counts.lost(), Ordering::Relaxed);
            open.lost.push((end, lost));
        }
    }

    /// A recording could not be written to its end: losses that it does not report are reported
    /// again.
    fn take_back(&mut self, open: &Open) {
        let written = open.offset + open.tail_written as u64;
        if open.packets == 0 {
            // It is removed.
            (self.is_first, self.told_ns) = (true, open.told_before_ns);
        }
        let is_there = |end: u64| open.packets > 0 && end <= written;
        let list = self.context.interfaces.list();
        for (_, Lost { source, counts }) in open.lost.iter().filter(|(end, _)| !is_there(*end)) {
            source.not_told(counts.lost(), counts.start_ns, counts.end_ns);
            let of_source = list.iter().zip(&mut self.told);
            let of_source = of_source.filter(|(other, _)| Arc::ptr_eq(&other.counters, source));
            for (_, told) in of_source {
                told.received -= counts.received;
                told.lost_by_interface -= counts.lost_by_interface;
                told.lost_by_kernel -= counts.lost_by_kernel;
            }
        }
    }

    /// Hands the recording that is open to the sealer, as far as it is written.
    fn hand_over(&mut self, broken: bool) {
        let Some(open) = self.open.take() else { return };
        if broken || open.packets == 0 {
            self.take_back(&open);
        }
        self.context.current.set(None);
        self.context.counters.open_bytes.store(0, Ordering::Relaxed);
        self.context.counters.open_time_min.store(0, Ordering::Relaxed);
        lock(self.context.keeper).closing(open.bytes());
        // Ask the keeper for the next one: there may be too many recordings.
        self.allowance = 0;
        let written = open.offset + open.tail_written as u64;
        let told = open.told.iter().filter(|(end, _)| *end <= written);
        let closed = Closed {
            told: told.map(|(_, block)| *block).collect(),
            packets: open.packets,
            bytes: open.bytes(),
            time_min: open.time_min,
            time_max: open.time_max,
            recording: open.recording,
            sync_failed: open.growing.sync_failed.load(Ordering::Relaxed),
            file: open.growing.file,
            from: open.from,
            broken: broken || open.packets == 0,
            failed: false,
        };
        // The sealer ends after the writer.
        drop(self.closed.send(closed));
    }
}

/// A time that differs from another one, a nanosecond earlier if needed: statistics with the same
/// start continue each other's counters.
fn distinct(ns: u64, other_ns: u64) -> u64 {
    ns - u64::from(ns == other_ns && ns > 0)
}

fn full() -> ArchiveError {
    let source = io::ErrorKind::StorageFull.into();
    ArchiveError::Io { what: "write", path: "packets".into(), source }
}

fn is_full(error: &ArchiveError) -> bool {
    use io::ErrorKind::{QuotaExceeded, StorageFull};
    let ArchiveError::Io { source, .. } = error else { return false };
    matches!(source.kind(), StorageFull | QuotaExceeded)
}

fn statistics(registered: &Registered) -> Statistics {
    let counters = &registered.counters;
    Statistics {
        received: counters
            .received
            .load(Ordering::Relaxed)
            .saturating_sub(counters.not_wanted.load(Ordering::Relaxed)),
        lost_by_interface: counters.lost_by_interface.load(Ordering::Relaxed),
        lost_by_kernel: counters.lost_by_kernel.load(Ordering::Relaxed)
            + counters.lost_by_writer.load(Ordering::Relaxed),
        delivered: counters.stored.load(Ordering::Relaxed),
        ..Statistics::default()
    }
}
