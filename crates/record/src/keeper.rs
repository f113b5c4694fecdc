//! Retention: which recordings stay.
//!
//! The keeper knows all recordings of the archive, including those of earlier runs, and the space
//! they take. Before the writer continues, it asks for room; the oldest recordings are removed
//! until there is enough. Captures that were added to the archive are not touched.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use tapdex_engine::archive::{Archive, ArchiveError, Covered, Held, Loss, Recording, Segment};
use tapdex_engine::capture::CaptureReader;
use tapdex_engine::capture::blocks::Statistics;
use tapdex_engine::storage::{Space, Whose};

use crate::clock::{AgeClock, Clock, Judged};
use crate::messages::Message;
use crate::status::IndexUse;
use crate::units::Retention;

/// The most that the writer may write before it asks again.
const GRANT_MAX: u64 = 64 << 20;
/// Bytes of a disk that are always left free, for indexes and folders.
const RESERVE: u64 = 4 << 20;

/// A clock that is this far ahead of the newest packet at the start may be wrong.
const FAR: Duration = Duration::from_secs(24 * 3_600);

/// Why a recording was removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// There were more bytes than allowed.
    Bytes,
    /// More of the disk was in use than allowed, or it was full.
    Disk,
    /// It was too old.
    Age,
    /// There were more recordings than allowed.
    Segments,
}

/// All reasons.
pub const REASONS: [Reason; 4] = [Reason::Bytes, Reason::Disk, Reason::Age, Reason::Segments];

impl Reason {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Bytes => "bytes",
            Self::Disk => "disk",
            Self::Age => "age",
            Self::Segments => "segments",
        }
    }
}

/// What was removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Removed {
    /// Recordings, by reason.
    pub(crate) segments: [u64; REASONS.len()],
    pub(crate) packets: u64,
}

/// A recording that is complete.
#[derive(Debug, Clone, Default)]
pub(crate) struct Kept {
    pub(crate) packets: u64,
    /// Whether the number of packets is exact: they were counted.
    pub(crate) is_counted: bool,
    pub(crate) packet_bytes: u64,
    pub(crate) index_bytes: u64,
    /// Index files.
    pub(crate) parts: u32,
    /// Whether it is indexed to its end.
    pub(crate) is_indexed: bool,
    pub(crate) time_min: u64,
    pub(crate) time_max: u64,
    /// The time that it covers, if it says so, and what was lost in that time.
    pub(crate) covered: Option<Covered>,
    pub(crate) losses: Vec<Loss>,
    /// What the bytes of the index are used for: places in the keeper's `uses`, and bytes.
    pub(crate) uses: Vec<(usize, u64)>,
}

impl Kept {
    /// Takes over the losses and the covered time from its statistics.
    pub(crate) fn tell(&mut self, told: &[Statistics]) {
        self.losses = Loss::of(told, self.time_min);
        self.covered = Covered::by(told);
    }

    fn held(&self) -> Held {
        let Self { time_min, time_max, .. } = *self;
        Held {
            times: Covered { from_ns: time_min.min(time_max), to_ns: time_max },
            packets: Some(self.packets).filter(|_| self.is_counted),
            covered: self.covered,
            losses: self.losses.clone(),
        }
    }
}

/// The space that the recordings take.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Stock {
    pub(crate) segments: u64,
    pub(crate) packet_bytes: u64,
    pub(crate) index_bytes: u64,
    /// The time of the oldest packet.
    pub(crate) oldest_ns: Option<u64>,
}

#[derive(Debug)]
pub(crate) struct Keeper<'a> {
    archive: &'a Archive,
    retention: Retention,
    clock: &'a dyn Clock,
    age_clock: AgeClock,
    /// Messages for the user.
    says: Vec<Message>,
    /// Removals that could not be written to the archive yet.
    unwritten: Vec<(String, Held)>,
    /// The user was told about that.
    is_unwritten_said: bool,
    is_age_paused: bool,
    table: BTreeMap<String, Kept>,
    /// What the bytes of all indexes in the table are used for.
    uses: Vec<IndexUse>,
    pub(crate) removed: Removed,
    /// Recordings that are closed and not complete yet, and their bytes.
    closing: (u64, u64),
}

impl<'a> Keeper<'a> {
    /// Looks at all recordings.
    pub(crate) fn new(
        archive: &'a Archive,
        retention: Retention,
        clock: &'a dyn Clock,
    ) -> Result<Self, ArchiveError> {
        let mut keeper = Self {
            archive,
            retention,
            clock,
            age_clock: AgeClock::new(clock, false),
            says: Vec::new(),
            unwritten: Vec::new(),
            is_unwritten_said: false,
            is_age_paused: false,
            table: BTreeMap::new(),
            uses: Vec::new(),
            removed: Removed::default(),
            closing: (0, 0),
        };
        for recording in archive.recordings()?.into_iter().filter(Recording::is_sealed) {
            let kept = keeper.look_at(&recording);
            keeper.add(recording.name(), kept);
        }
        // Either there was no recorder for a long time, or the clock is wrong.
        let newest = keeper.table.values().map(|kept| kept.time_max).max();
        let far = retention.age.map_or(FAR, |age| age.min(FAR));
        let far_ns = u64::try_from(far.as_nanos()).unwrap_or(u64::MAX);
        let is_far = newest.is_some_and(|newest| newest.saturating_add(far_ns) < clock.now_ns());
        let is_doubtful = is_far && !keeper.too_old(clock.now_ns()).is_empty();
        keeper.age_clock = AgeClock::new(clock, is_doubtful);
        Ok(keeper)
    }

    fn look_at(&mut self, recording: &Recording) -> Kept {
        let mut kept = Kept { time_min: u64::MAX, ..Kept::default() };
        let path = recording.sealed_path();
        let storage = self.archive.storage();
        let Ok(metadata) = storage.metadata(&path, Whose::Named) else { return kept };
        kept.packet_bytes = metadata.len;
        for part in 0_u32.. {
            let index = recording.index_path(part);
            let Ok(data) = storage.metadata(&index, Whose::Named) else { break };
            kept.parts += 1;
            kept.index_bytes += data.len;
            let Ok(segment) = Segment::open(storage, &index) else { continue };
            let note = segment.note();
            kept.packets += note.records;
            kept.time_min = kept.time_min.min(note.time_min);
            kept.time_max = kept.time_max.max(note.time_max);
            kept.covered = kept.covered.into_iter().chain(note.covered).reduce(Covered::and);
            kept.losses.extend_from_slice(&note.losses);
            for share in segment.index().shares() {
                let codec = share.form.map_or("none".to_owned(), |form| form.to_string());
                let number = self.use_number(share.name, codec);
                kept.uses.push((number, share.bytes));
            }
        }
        kept.is_indexed = recording.is_indexed();
        kept.is_counted = kept.is_indexed;
        if !kept.is_indexed {
            let (first, told) = head(recording).unwrap_or((u64::MAX, Vec::new()));
            kept.time_min = kept.time_min.min(first);
            if kept.parts == 0 {
                kept.tell(&told);
            }
            kept.time_max = kept.time_max.max(metadata.modified_ns);
        }
        kept
    }

    fn use_number(&mut self, field: String, codec: String) -> usize {
        let known = self.uses.iter().position(|one| one.field == field && one.codec == codec);
        known.unwrap_or_else(|| {
            self.uses.push(IndexUse { field, codec, bytes: 0 });
            self.uses.len() - 1
        })
    }

    /// Bytes of all indexes by use.
    pub(crate) fn index_uses(&self) -> Vec<IndexUse> {
        self.uses.clone()
    }

    /// Recordings that are not indexed to their end, the oldest first.
    pub(crate) fn unindexed(&self) -> BTreeSet<String> {
        let left = self.table.iter().filter(|(_, kept)| !kept.is_indexed);
        left.map(|(name, _)| name.clone()).collect()
    }

    /// A recording is complete, or was looked at again.
    pub(crate) fn add(&mut self, name: &str, kept: Kept) {
        self.forget(name);
        for &(number, bytes) in &kept.uses {
            self.uses[number].bytes += bytes;
        }
        self.table.insert(name.to_owned(), kept);
    }

    /// A recording is not there any more.
    fn forget(&mut self, name: &str) {
        for (number, bytes) in self.table.remove(name).unwrap_or_default().uses {
            self.uses[number].bytes -= bytes;
        }
    }

    /// Whether a recording is still there.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.table.contains_key(name)
    }

    /// Whether a recording is indexed to its end.
    pub(crate) fn is_indexed(&self, name: &str) -> bool {
        self.table.get(name).is_some_and(|kept| kept.is_indexed)
    }

    /// A recording was indexed. What is known about it is looked up again.
    pub(crate) fn indexed(&mut self, recording: &Recording) {
        let Some(before) = self.table.get(recording.name()).cloned() else { return };
        let mut kept = self.look_at(recording);
        if !kept.is_indexed && before.is_counted {
            // The writer's counts are better than those of an incomplete index.
            let Kept { packet_bytes, index_bytes, parts, uses, .. } = kept;
            kept = Kept { packet_bytes, index_bytes, parts, uses, ..before };
        }
        self.add(recording.name(), kept);
    }

    /// A recording of this many bytes is closed; it is not in the table until it is complete.
    pub(crate) fn closing(&mut self, bytes: u64) {
        self.closing.0 += 1;
        self.closing.1 += bytes;
    }

    /// Such a recording is complete, or was given up.
    pub(crate) fn closed(&mut self, bytes: u64) {
        self.closing.0 -= 1;
        self.closing.1 -= bytes;
    }

    /// Whether there is such a recording.
    pub(crate) fn is_closing(&self) -> bool {
        self.closing.0 > 0
    }

    pub(crate) fn stock(&self) -> Stock {
        let oldest = self.table.values().map(|kept| kept.time_min).min();
        Stock {
            segments: self.table.len() as u64,
            packet_bytes: self.table.values().map(|kept| kept.packet_bytes).sum(),
            index_bytes: self.table.values().map(|kept| kept.index_bytes).sum(),
            oldest_ns: oldest.filter(|&ns| ns < u64::MAX),
        }
    }

    /// Bytes that may be kept; `None` if there is no limit.
    pub(crate) fn bytes_kept(&self) -> Option<u64> {
        let space = self.space().ok()?;
        [self.retention.bytes, self.share_of(&space)].into_iter().flatten().min()
    }

    /// Bytes of the disk that may be in use; `None` if there is no limit.
    fn share_of(&self, space: &Space) -> Option<u64> {
        let percent = self.retention.percent?;
        Some(whole(percent / 100.0 * (space.used + space.free) as f64))
    }

    pub(crate) fn space(&self) -> io::Result<Space> {
        self.archive.storage().space(&self.archive.packets_folder())
    }

    /// Recordings that are too old at a given time, the oldest first.
    fn too_old(&self, now_ns: u64) -> Vec<String> {
        let Some(age) = self.retention.age else { return Vec::new() };
        let age = u64::try_from(age.as_nanos()).unwrap_or(u64::MAX);
        let old = self.table.iter().filter(|(_, kept)| kept.time_max.saturating_add(age) < now_ns);
        old.map(|(name, _)| name.clone()).collect()
    }

    /// Removes the oldest recording if it is too old; returns whether there was one. One at a time:
    /// the writer needs the keeper, too.
    pub(crate) fn expire_one(&mut self) -> bool {
        if self.retention.age.is_none() {
            return false;
        }
        let judged = self.age_clock.judge(self.clock);
        self.is_age_paused = matches!(judged, Judged::Paused(_));
        let now_ns = match judged {
            Judged::Now(now_ns) => now_ns,
            Judged::Resumed(now_ns) => {
                self.says.push(Message::warn("recordings are removed by age again"));
                now_ns
            }
            Judged::Paused(text) => {
                self.says.extend(text.map(Message::warn));
                return false;
            }
        };
        // A recording that cannot be removed is tried again next time.
        self.too_old(now_ns).iter().any(|name| self.remove(name, Reason::Age).is_some())
    }

    /// Whether nothing is removed by age because of the clock.
    pub(crate) fn is_age_paused(&self) -> bool {
        self.is_age_paused
    }

    /// Takes the messages for the user.
    pub(crate) fn says(&mut self) -> Vec<Message> {
        std::mem::take(&mut self.says)
    }

    /// Writes to the archive what was removed, including earlier removals that could not be
    /// written.
    pub(crate) fn remember(&mut self) {
        while let Some((name, held)) = self.unwritten.first() {
            if let Err(error) = self.archive.remember_removed(name, held) {
                if !std::mem::replace(&mut self.is_unwritten_said, true) {
                    let text = "what was removed cannot be written down, and is tried again: ";
                    self.says.push(Message::warn(text).because(&error));
                }
                return;
            }
            self.unwritten.remove(0);
            self.is_unwritten_said = false;
        }
    }

    /// Removes recordings until there is room for this many more bytes than the open recording has.
    /// Returns how much may be written: less than that if nothing more may be removed.
    pub(crate) fn make_room(&mut self, bytes: u64, open_bytes: u64) -> u64 {
        let space = self.space().unwrap_or(Space { used: 0, free: u64::MAX / 2 });
        // The bytes of a removed file that is still open are not free yet: removed bytes are
        // counted here.
        let mut freed = 0_u64;
        // A recording that cannot be removed is not tried twice.
        let mut stuck = BTreeSet::new();
        loop {
            let stock = self.stock();
            let used = stock.packet_bytes + stock.index_bytes + self.closing.1 + open_bytes;
            let mut grants = vec![(Reason::Disk, (space.free + freed).saturating_sub(RESERVE))];
            if let Some(most) = self.retention.bytes {
                grants.push((Reason::Bytes, most.saturating_sub(used)));
            }
            if let Some(most) = self.share_of(&space) {
                let used = space.used.saturating_sub(freed);
                grants.push((Reason::Disk, most.saturating_sub(used)));
            }
            if let Some(most) = self.retention.segments {
                // The open one counts.
                let over = stock.segments + self.closing.0 + 1 > most;
                grants.push((Reason::Segments, if over { 0 } else { u64::MAX }));
            }
            let least = grants.into_iter().min_by_key(|&(_, grant)| grant);
            let (reason, grant) = least.unwrap_or((Reason::Disk, GRANT_MAX));
            if grant >= bytes.max(1) {
                return grant.min(GRANT_MAX.max(bytes));
            }
            let oldest = self.table.keys().find(|name| !stuck.contains(*name)).cloned();
            match oldest {
                Some(name) => match self.remove(&name, reason) {
                    Some(bytes) => freed += bytes,
                    None => drop(stuck.insert(name)),
                },
                // A limit on the number of recordings does not stop the open one from growing.
                None if reason == Reason::Segments => return GRANT_MAX.max(bytes),
                None => return grant,
            }
        }
    }

    /// Which limit leaves no room, in words.
    pub(crate) fn shortage(&self) -> String {
        let space = self.space().unwrap_or_default();
        match (self.retention.percent, self.retention.bytes) {
            _ if space.free <= RESERVE + (1 << 20) => "the disk is full".to_owned(),
            (Some(percent), _) if space.percent() >= percent => format!(
                "{:.0} % of the disk is in use, by whomever, and the limit is {percent} %",
                space.percent()
            ),
            (_, Some(bytes)) => format!("recordings may take {bytes} bytes"),
            _ => "there is no room on the disk".to_owned(),
        }
    }

    /// Removes what exceeds the limits: recordings are completed and indexed after their room was
    /// asked for. The last recording stays.
    pub(crate) fn trim(&mut self) {
        let most = self.retention.bytes;
        let space = self.space().ok();
        let of_disk = space.and_then(|space| self.share_of(&space));
        let space = space.unwrap_or_default();
        let mut freed = 0_u64;
        let names: Vec<String> = self.table.keys().cloned().collect();
        for name in names.iter().rev().skip(1).rev() {
            let stock = self.stock();
            let used = stock.packet_bytes + stock.index_bytes + self.closing.1;
            let segments = stock.segments + self.closing.0;
            let reason = if self.retention.segments.is_some_and(|most| segments > most) {
                Reason::Segments
            } else if most.is_some_and(|most| used > most) {
                Reason::Bytes
            } else if of_disk.is_some_and(|most| space.used.saturating_sub(freed) > most) {
                Reason::Disk
            } else {
                return;
            };
            freed += self.remove(name, reason).unwrap_or(0);
        }
    }

    /// Removes the oldest recording that can be removed; returns whether there is one. For disks
    /// that are full although they report free space.
    pub(crate) fn remove_oldest(&mut self) -> bool {
        let names: Vec<String> = self.table.keys().cloned().collect();
        names.iter().any(|name| self.remove(name, Reason::Disk).is_some())
    }

    /// Removes a recording, its index first: if this is interrupted, packets are left that can be
    /// indexed again. `None` if it cannot be removed.
    fn remove(&mut self, name: &str, reason: Reason) -> Option<u64> {
        let kept = self.table.get(name).cloned().unwrap_or_default();
        let recording = self.archive.recording(name);
        // Before it is removed: from then on answers are incomplete, whatever happens to this
        // process. The entry counts once the packets are gone.
        self.unwritten.retain(|(other, _)| other != name);
        self.unwritten.push((name.to_owned(), kept.held()));
        self.remember();
        let indexes = || {
            // While it is being indexed, a part may be there before those that precede it.
            let listed = if kept.is_indexed { None } else { self.archive.index_files().ok() };
            let of_it =
                |path: &PathBuf| self.archive.recording_of(path).as_ref() == Some(&recording);
            let is_there = |path: &PathBuf| self.archive.storage().exists(path);
            let more = (0..).map(|part| recording.index_path(part)).take_while(is_there);
            listed.map_or_else(|| more.collect(), |all| all.into_iter().filter(of_it).collect())
        };
        // From the end: a search can use an index of the first packets.
        let before: Vec<PathBuf> = indexes();
        for path in before.iter().rev().chain([&recording.sealed_path()]) {
            self.archive.storage().remove_if_there(path).ok()?;
        }
        // Another process may have indexed it in the meantime.
        for path in indexes() {
            self.archive.storage().remove_if_there(&path).ok()?;
        }
        // If the disk was full, there is room now.
        self.remember();
        if !kept.is_indexed {
            // Drafts that stay do no harm, and are removed at the next start.
            drop(self.archive.remove_drafts());
        }
        self.forget(name);
        let bytes = kept.packet_bytes + kept.index_bytes;
        let place = REASONS.iter().position(|&other| other == reason).unwrap_or(0);
        self.removed.segments[place] += 1;
        self.removed.packets += kept.packets;
        let path = recording.sealed_path();
        let text = format!("{}: removed (limit: {})", path.display(), reason.name());
        let message = Message::debug(text).file(path).packets(kept.packets);
        self.says.push(message.bytes(bytes));
        Some(bytes)
    }
}

/// The time of the first packet of a recording, and the statistics before it.
fn head(recording: &Recording) -> Option<(u64, Vec<Statistics>)> {
    let mut reader = CaptureReader::open(recording.open().ok()?).ok()?;
    reader.gather_statistics();
    let first = reader.next().ok()??.time_ns;
    Some((first, reader.take_statistics()))
}

/// A number of bytes, rounded down.
fn whole(bytes: f64) -> u64 {
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a share of a disk, which is neither negative nor beyond any disk"
    )]
    let whole = bytes.max(0.0) as u64;
    whole
}

#[cfg(test)]
#[allow(clippy::panic, reason = "a test fails by panicking")]
mod tests;
