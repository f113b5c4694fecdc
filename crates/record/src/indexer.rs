//! Indexes recordings that are complete, one after the other, and makes drafts of the open one.
//!
//! The indexer reads files, not the queue: however far it is behind, no packet waits for it.

use std::io;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::Ordering;
use std::time::Instant;

use tapdex_engine::archive::device::SegmentDevice;
use tapdex_engine::archive::{Archive, ArchiveError, Drafter, Ingest, Input, Recording};
use tapdex_engine::beneath::Rights;
use tapdex_engine::storage::{AppendFile, Publish};

use crate::clock::{Clock, Moment};
use crate::counters::Counters;
use crate::index_queue::{IndexQueue, ToDo};
use crate::keeper::Keeper;
use crate::lock;
use crate::messages::{Message, Messages};
use crate::metrics::Histogram;
use crate::units::Rotation;
use crate::writer::Current;

/// Other threads come first: this one gets the CPU time that they leave.
const NICE: i32 = 10;

/// Bytes or packets between two drafts, which a search has to index itself.
const DRAFT_BYTES: u64 = 32 << 20;
const DRAFT_PACKETS: u64 = 1 << 17;
/// A recording that will be complete within this time is indexed soon anyway.
const SOON: f64 = 2.0;
/// Drafts are for convenience: they are not made on a disk that has less room.
const DRAFT_ROOM: u64 = 256 << 20;

/// What the indexer works with.
pub(crate) struct Context<'s, 'a> {
    pub(crate) archive: &'a Archive,
    pub(crate) clock: &'a dyn Clock,
    pub(crate) keeper: &'s Mutex<Keeper<'a>>,
    pub(crate) messages: &'s Messages<'a>,
    pub(crate) counters: &'s Counters,
    pub(crate) current: &'s Current,
    pub(crate) queue: &'s IndexQueue<'a>,
    /// When a recording is closed.
    pub(crate) rotation: Rotation,
    pub(crate) threads: usize,
    /// The device that builds columns in place of the CPU.
    pub(crate) device: Option<&'s Mutex<dyn SegmentDevice>>,
    /// How long recordings take.
    pub(crate) build_seconds: &'s Histogram,
}

/// Indexes until the sealer has ended and all is done, or the recorder has to stop at once.
pub(crate) fn run(context: &Context<'_, '_>) {
    // Without it, this thread competes with the capture; that shows in the losses.
    let _ = rustix::process::setpriority_process(Some(rustix::thread::gettid()), NICE);
    let storage = Guarded { archive: context.archive, keeper: context.keeper };
    let mut drafts = Drafts::default();
    loop {
        match context.queue.next() {
            ToDo::Index(recording) => index(context, &storage, &recording),
            ToDo::Draft => drafts.go_on(context, &storage),
            ToDo::End => break,
        }
    }
}

/// Bytes of memory for indexing, on any machine: packets that come in need memory, too.
const MEMORY: u64 = 1 << 30;

/// Indexes a recording, or puts that off.
fn index(context: &Context<'_, '_>, storage: &Guarded<'_, '_>, recording: &Recording) {
    if !lock(context.keeper).has(recording.name()) {
        return context.queue.done();
    }
    let started = Instant::now();
    let mut ingest = Ingest::new(context.archive)
        .threads(context.threads)
        .memory(Some(MEMORY))
        .storage(storage)
        .stop(context.queue.abandoned());
    if let Some(device) = context.device {
        ingest = ingest.device(device);
    }
    let result = ingest.run(&[Input::File(recording.sealed_path())]);
    let mut done = (0, 0);
    let failed = match result {
        Ok(mut report) => {
            if let Some(trouble) = report.device.trouble {
                let text = format!("the device failed, the CPU went on: {trouble}");
                context.messages.say(Message::warn(text).file(recording.sealed_path()));
            }
            let file = report.files.pop().unwrap_or_default();
            context.counters.indexed_packets.fetch_add(file.packets, Ordering::Relaxed);
            context.counters.index_bytes.fetch_add(file.index_bytes, Ordering::Relaxed);
            done = (file.packets, file.index_bytes);
            file.error
        }
        Err(error) => Some(error),
    };
    let mut keeper = lock(context.keeper);
    keeper.indexed(recording);
    keeper.trim();
    let is_there = keeper.has(recording.name());
    let is_indexed = keeper.is_indexed(recording.name());
    drop(keeper);
    let abandoned = context.queue.is_abandoned();
    match failed {
        None => {
            let seconds = started.elapsed().as_secs_f64();
            context.counters.indexed.fetch_add(1, Ordering::Relaxed);
            context.build_seconds.observe(seconds);
            let path = recording.sealed_path();
            let message = Message::debug(format!("{}: indexed", path.display())).file(path);
            context.messages.say(message.packets(done.0).bytes(done.1).seconds(seconds));
        }
        // The interruption may have come when everything was done.
        Some(_) if !is_there || abandoned && is_indexed => {}
        // It stays in the queue, for the next start.
        Some(_) if abandoned => return,
        Some(error) => {
            let path = recording.sealed_path();
            let what = format!(
                "{} is not indexed yet; every search does that itself, and it is tried again: ",
                path.display()
            );
            context.messages.say_once(Message::warn(what).file(path).because(&error));
            return context.queue.failed();
        }
    }
    context.queue.done();
}

/// How much of a recording was written at a time.
#[derive(Debug, Clone, Copy)]
struct Written {
    at: Moment,
    bytes: u64,
    packets: u64,
}

impl Written {
    /// How long a recording will stay open at the rate since an earlier time.
    fn seconds_left(&self, limits: &Rotation, before: &Self, since: Moment) -> f64 {
        let seconds = self.at.since(before.at).as_secs_f64();
        let until = |limit: u64, before: u64, now: u64| {
            seconds * limit.saturating_sub(now) as f64 / now.saturating_sub(before) as f64
        };
        let open = self.at.since(since);
        let of_time = limits.time.saturating_sub(open).as_secs_f64();
        let of_packets = until(limits.packets, before.packets, self.packets);
        of_time.min(until(limits.bytes, before.bytes, self.bytes)).min(of_packets)
    }
}

/// Drafts of the recording that is open.
#[derive(Debug, Default)]
struct Drafts<'a> {
    drafter: Option<Drafter<'a>>,
    /// What was written at the last check, and to which recording.
    last: Option<(Recording, Written)>,
    /// A recording that no more drafts can be made of.
    given_up: Option<Recording>,
}

impl<'a> Drafts<'a> {
    /// Makes drafts of what has come, if it is enough.
    fn go_on(&mut self, context: &Context<'_, 'a>, storage: &Guarded<'_, '_>) {
        let Some(growing) = context.current.get() else {
            self.drafter = None;
            return;
        };
        let recording = &growing.recording;
        let now = Written {
            at: Moment::now(context.clock),
            bytes: context.counters.open_bytes.load(Ordering::Relaxed),
            packets: growing.packets.load(Ordering::Relaxed),
        };
        let last = self.last.replace((recording.clone(), now));
        let last = last.filter(|(other, _)| other == recording).map(|(_, written)| written);
        let before = last.unwrap_or(Written { at: growing.since, bytes: 0, packets: 0 });
        let has_room = lock(context.keeper).space().is_ok_and(|space| space.free >= DRAFT_ROOM);
        if !has_room
            || self.given_up.as_ref() == Some(recording)
            || now.seconds_left(&context.rotation, &before, growing.since) < SOON
        {
            return;
        }
        if let Err(error) = self.write(context, storage, recording, &now) {
            // A recording that was completed in this moment is indexed next.
            if recording.is_unfinished() {
                let message = Message::warn("searches have to read the open recording: ");
                let message = message.file(recording.unfinished_path());
                context.messages.say_once(message.because(&error));
            }
            self.given_up = Some(recording.clone());
        }
    }

    /// Makes drafts up to about what was written.
    fn write(
        &mut self,
        context: &Context<'_, 'a>,
        storage: &Guarded<'_, '_>,
        recording: &Recording,
        written: &Written,
    ) -> Result<(), ArchiveError> {
        let is_much = |(bytes, packets): (u64, u64)| {
            written.bytes.saturating_sub(bytes) >= DRAFT_BYTES
                || written.packets.saturating_sub(packets) >= DRAFT_PACKETS
        };
        if self.drafter.as_ref().is_none_or(|drafter| drafter.recording() != recording) {
            if !is_much((0, 0)) {
                return Ok(());
            }
            self.drafter = Drafter::new(context.archive, recording)?;
        }
        let Some(drafter) = &mut self.drafter else { return Ok(()) };
        while is_much(drafter.reached())
            && !context.queue.is_pressing()
            && drafter.write(storage)? > 0
        {}
        Ok(())
    }
}

/// The disk, on which an index appears only if its packets are still there.
#[derive(Debug)]
struct Guarded<'s, 'a> {
    archive: &'a Archive,
    keeper: &'s Mutex<Keeper<'a>>,
}

impl Publish for Guarded<'_, '_> {
    fn create(&self, path: &Path, rights: Rights) -> io::Result<Box<dyn AppendFile>> {
        self.archive.storage().create(path, rights)
    }

    fn rename(&self, source: &Path, target: &Path) -> io::Result<()> {
        // Retention removes index and packets under the same lock.
        let _keeper = lock(self.keeper);
        let recording = self.archive.recording_of(target);
        if recording.is_none_or(|recording| recording.open().is_err()) {
            return Err(io::ErrorKind::NotFound.into());
        }
        self.archive.storage().rename(source, target)
    }

    fn sync_folder(&self, folder: &Path) -> io::Result<()> {
        self.archive.storage().sync_folder(folder)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.archive.storage().remove(path)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::clock::HandClock;

    #[test]
    fn the_first_limit_at_the_last_pace_tells_how_long_it_takes() {
        let limits = Rotation { bytes: 1_000, packets: 100, time: Duration::from_secs(60) };
        let clock = HandClock::new(0);
        let since = Moment::now(&clock);
        let at = |seconds, bytes, packets| {
            let clock = HandClock::new(0);
            clock.pass(Duration::from_secs(seconds));
            Written { at: Moment::now(&clock), bytes, packets }
        };
        let left = |now: Written, before| now.seconds_left(&limits, &before, since);
        assert_eq!(left(at(10, 500, 0), at(0, 0, 0)), 10.0);
        assert_eq!(left(at(10, 500, 80), at(0, 0, 0)), 2.5);
        assert_eq!(left(at(11, 500, 80), at(10, 500, 60)), 1.0);
        // Much came at first, and nothing comes now.
        assert_eq!(left(at(20, 999, 99), at(10, 999, 99)), 40.0);
        assert_eq!(left(at(20, 1_000, 99), at(10, 1_000, 99)), 40.0);
        assert_eq!(left(at(20, 1_000, 99), at(10, 900, 99)), 0.0);
        assert_eq!(left(at(70, 0, 0), at(60, 0, 0)), 0.0);
    }
}
