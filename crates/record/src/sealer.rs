//! Makes sure that packets survive a loss of power, and gives recordings their names.

use std::io;
use std::sync::Mutex;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use tapdex_engine::archive::{Archive, Recording};

use crate::clock::{Clock, Moment, Waiter};
use crate::counters::Counters;
use crate::index_queue::IndexQueue;
use crate::keeper::{Keeper, Kept};
use crate::lock;
use crate::messages::{Message, Messages};
use crate::writer::{Closed, Current};

/// How often what was written is synced.
const SYNC_EVERY: Duration = Duration::from_secs(1);

/// The most recordings that could not be completed and are tried again.
const FAILED_MAX: usize = 16;

/// What the sealer works with.
#[derive(Debug)]
pub(crate) struct Context<'s, 'a> {
    pub(crate) archive: &'a Archive,
    pub(crate) clock: &'a dyn Clock,
    pub(crate) keeper: &'s Mutex<Keeper<'a>>,
    pub(crate) messages: &'s Messages<'a>,
    pub(crate) counters: &'s Counters,
    pub(crate) current: &'s Current,
    pub(crate) queue: &'s IndexQueue<'a>,
}

/// Completes recordings until the writer has ended.
pub(crate) fn run(context: &Context<'_, '_>, closed: &Receiver<Closed>) {
    let mut synced = Moment::now(context.clock);
    let mut failed: Vec<Closed> = Vec::new();
    loop {
        let left = SYNC_EVERY.saturating_sub(synced.elapsed(context.clock));
        match closed.recv_timeout(context.clock.nap(Waiter::Sealer, left)) {
            Ok(closed) => failed.extend(complete(context, closed)),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break,
        }
        if synced.elapsed(context.clock) >= SYNC_EVERY {
            sync(context);
            failed = failed.into_iter().filter_map(|closed| complete(context, closed)).collect();
            synced = Moment::now(context.clock);
        }
        if failed.len() > FAILED_MAX {
            // It can be searched under its hidden name, and the next start completes it.
            lock(context.keeper).closed(failed.remove(0).bytes);
        }
    }
    for closed in failed {
        complete(context, closed);
    }
}

/// Syncs the recording that is open, and its name.
fn sync(context: &Context<'_, '_>) {
    let Some(growing) = context.current.get() else { return };
    let packets = growing.packets.load(Ordering::Relaxed);
    let folder = context.archive.packets_folder();
    match growing.file.sync().and_then(|()| context.archive.storage().sync_folder(&folder)) {
        Ok(()) if growing.sync_failed.load(Ordering::Relaxed) => {}
        Ok(()) => context.counters.synced(packets),
        Err(error) => {
            growing.sync_failed.store(true, Ordering::Relaxed);
            let message = Message::error("packets cannot be synced: ").because(&error);
            context.messages.say_once(message.file(growing.recording.unfinished_path()));
        }
    }
}

/// Completes a recording; returns it if that failed.
fn complete(context: &Context<'_, '_>, mut closed: Closed) -> Option<Closed> {
    let bytes = closed.bytes;
    let done = if closed.broken { mend(context, &closed) } else { seal(context, &mut closed) };
    let Err(error) = done else {
        lock(context.keeper).trim();
        return None;
    };
    let recording = &closed.recording;
    if !recording.is_sealed() && !recording.is_unfinished() {
        // The archive was removed, or its disk is gone.
        take_back(context, &closed, closed.packets);
        lock(context.keeper).closed(bytes);
        let text = format!("{} is gone, and its packets with it", recording.name());
        let message = Message::error(text).file(recording.sealed_path());
        context.messages.say(message.packets(closed.packets));
        return None;
    }
    if !std::mem::replace(&mut closed.failed, true) {
        let path = closed.recording.unfinished_path();
        let text = format!("{} cannot be completed: {error}", path.display());
        context.messages.say(Message::warn(text).file(path));
    }
    Some(closed)
}

fn seal(context: &Context<'_, '_>, closed: &mut Closed) -> io::Result<()> {
    let recording = &closed.recording;
    let (hidden, path) = (recording.unfinished_path(), recording.sealed_path());
    let storage = context.archive.storage();
    // The system reports only once that something is not on the disk.
    closed.file.sync().inspect_err(|_| closed.sync_failed = true)?;
    if !storage.has_name(&path) {
        storage.rename(&hidden, &path)?;
    }
    storage.sync_folder(path.parent().ok_or(io::ErrorKind::NotFound)?)?;
    let mut keeper = lock(context.keeper);
    keeper.add(recording.name(), kept(closed, closed.packets));
    keeper.closed(closed.bytes);
    drop(keeper);
    let safe = if closed.sync_failed { 0 } else { closed.packets };
    finish(context, recording, closed, safe);
    Ok(())
}

/// Completes a recording that could not be written to its end, and counts what is missing.
fn mend(context: &Context<'_, '_>, closed: &Closed) -> io::Result<()> {
    let recording = &closed.recording;
    // Bytes that were not counted as written are written elsewhere, or lost.
    closed.file.cut(closed.bytes)?;
    let there = context.archive.seal_held(recording)?.packets;
    take_back(context, closed, closed.packets.saturating_sub(there));
    let mut keeper = lock(context.keeper);
    keeper.closed(closed.bytes);
    if there > 0 {
        keeper.add(recording.name(), kept(closed, there));
        keeper.indexed(recording);
        drop(keeper);
        finish(context, recording, closed, there);
    }
    Ok(())
}

/// What is known about a recording with this many packets.
fn kept(closed: &Closed, packets: u64) -> Kept {
    let mut kept = Kept {
        packets,
        is_counted: true,
        packet_bytes: closed.bytes,
        time_min: closed.time_min,
        time_max: closed.time_max,
        ..Kept::default()
    };
    kept.tell(&closed.told);
    kept
}

/// Counts packets as lost that had been counted as stored.
fn take_back(context: &Context<'_, '_>, closed: &Closed, mut missing: u64) {
    context.counters.packets.fetch_sub(missing, Ordering::Relaxed);
    // The last ones of the file are missing.
    for (source, packets) in closed.from.iter().rev() {
        let of_this = missing.min(*packets);
        source.stored.fetch_sub(of_this, Ordering::Relaxed);
        source.lose(&source.lost_by_writer, of_this, closed.time_min, closed.time_max);
        missing -= of_this;
    }
}

/// A recording has its name, and this many of its packets are safe.
fn finish(context: &Context<'_, '_>, recording: &Recording, closed: &Closed, safe: u64) {
    context.counters.sealed.fetch_add(1, Ordering::Relaxed);
    context.counters.sealed_packets(safe);
    let path = recording.sealed_path();
    let text = format!("{}: complete", path.display());
    let message = Message::debug(text).file(path).packets(closed.packets);
    context.messages.say(message.bytes(closed.bytes));
    context.queue.add(recording, context.clock.now_ns());
}
