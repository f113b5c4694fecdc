//! Makes sure that packets outlast a loss of power, and gives recordings their names.

use std::io;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use tapdex_engine::archive::Recording;
use tapdex_engine::storage::Storage;

use crate::clock::Waiter;
use crate::keeper::Kept;
use crate::recorder::Shared;
use crate::writer::Closed;

/// How often what was written is synced.
const SYNC_EVERY: Duration = Duration::from_secs(1);

/// Recordings that could not be completed and are tried again, at most.
const FAILED_MAX: usize = 16;

/// Completes recordings until the writer has ended.
pub(crate) fn run(shared: &Shared<'_>, closed: &Receiver<Closed>) {
    let mut synced = shared.moment();
    let mut failed: Vec<Closed> = Vec::new();
    loop {
        let left = SYNC_EVERY.saturating_sub(synced.elapsed(shared.clock));
        match closed.recv_timeout(shared.clock.nap(Waiter::Sealer, left)) {
            Ok(closed) => failed.extend(complete(shared, closed)),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break,
        }
        if synced.elapsed(shared.clock) >= SYNC_EVERY {
            sync(shared);
            failed = failed.into_iter().filter_map(|closed| complete(shared, closed)).collect();
            synced = shared.moment();
        }
        if failed.len() > FAILED_MAX {
            // It is searched under its hidden name, and completed by the next start.
            shared.keeper().closed(failed.remove(0).bytes);
        }
    }
    for closed in failed {
        complete(shared, closed);
    }
}

/// Syncs the recording that is open, and its name.
fn sync(shared: &Shared<'_>) {
    let Some(growing) = shared.current.get() else { return };
    let packets = growing.packets.load(Ordering::Relaxed);
    let folder = shared.archive.packets_folder();
    match growing.file.sync().and_then(|()| shared.archive.root().sync_folder(&folder)) {
        Ok(()) if growing.sync_failed.load(Ordering::Relaxed) => {}
        Ok(()) => shared.synced(packets),
        Err(error) => {
            growing.sync_failed.store(true, Ordering::Relaxed);
            shared.complain("packets cannot be synced: ", &error);
        }
    }
}

/// Completes a recording; gives it back if that failed.
fn complete(shared: &Shared<'_>, mut closed: Closed) -> Option<Closed> {
    let bytes = closed.bytes;
    let done = if closed.broken { mend(shared, &closed) } else { seal(shared, &mut closed) };
    let Err(error) = done else {
        shared.keeper().trim();
        return None;
    };
    let recording = &closed.recording;
    if !recording.sealed_path().exists() && !recording.unfinished_path().exists() {
        // The archive was removed, or its disk is gone.
        take_back(shared, &closed, closed.packets);
        shared.keeper().closed(bytes);
        shared.trouble(format!("{} is gone, and its packets with it", recording.name()));
        return None;
    }
    if !std::mem::replace(&mut closed.failed, true) {
        let path = closed.recording.unfinished_path();
        shared.trouble(format!("{} cannot be completed: {error}", path.display()));
    }
    Some(closed)
}

fn seal(shared: &Shared<'_>, closed: &mut Closed) -> io::Result<()> {
    let recording = &closed.recording;
    let (hidden, path) = (recording.unfinished_path(), recording.sealed_path());
    let root = shared.archive.root();
    // The system says only once that something is not on the disk.
    closed.file.sync().inspect_err(|_| closed.sync_failed = true)?;
    if !root.exists(&path) {
        root.rename(&hidden, &path)?;
    }
    root.sync_folder(path.parent().ok_or(io::ErrorKind::NotFound)?)?;
    let mut keeper = shared.keeper();
    keeper.add(recording.name(), kept(closed, closed.packets));
    keeper.closed(closed.bytes);
    drop(keeper);
    finish(shared, recording, if closed.sync_failed { 0 } else { closed.packets });
    Ok(())
}

/// Completes a recording that could not be written to its end, and counts what is missing.
fn mend(shared: &Shared<'_>, closed: &Closed) -> io::Result<()> {
    let recording = &closed.recording;
    // What was not counted as written is written elsewhere, or lost.
    closed.file.cut(closed.bytes)?;
    let there = shared.archive.seal_held(recording)?.packets;
    take_back(shared, closed, closed.packets.saturating_sub(there));
    let mut keeper = shared.keeper();
    keeper.closed(closed.bytes);
    if there > 0 {
        keeper.add(recording.name(), kept(closed, there));
        keeper.indexed(recording);
        drop(keeper);
        finish(shared, recording, there);
    }
    Ok(())
}

/// What is known of a recording that has so many packets.
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

/// Counts packets as lost that were taken for stored.
fn take_back(shared: &Shared<'_>, closed: &Closed, mut missing: u64) {
    shared.counters.packets.fetch_sub(missing, Ordering::Relaxed);
    // The last ones of the file are missing.
    for (source, packets) in closed.from.iter().rev() {
        let of_this = missing.min(*packets);
        source.stored.fetch_sub(of_this, Ordering::Relaxed);
        source.lose(&source.lost_by_writer, of_this, closed.time_min, closed.time_max);
        missing -= of_this;
    }
}

fn finish(shared: &Shared<'_>, recording: &Recording, packets: u64) {
    shared.counters.sealed.fetch_add(1, Ordering::Relaxed);
    shared.sealed_packets(packets);
    shared.to_index(recording, shared.clock.now_ns());
}
