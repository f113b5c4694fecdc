//! What an archive does not have, and from which times.
//!
//! An answer is complete if nothing is missing from the times that it is about. Whatever may be
//! missing is a [`Gap`]. They are found in one place, [`Archive::survey`], from what is read for
//! every question anyway: the notes of segments, the errors of those that could not be opened, and
//! one small file of the archive:
//!
//! ```text
//! missing.toml   what retention has removed, and losses that no recording could tell of
//! ```

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::note::{Covered, Loss};
use super::recording::{Times, recording_number};
use super::segment::Segment;
use super::{Archive, ArchiveError};
use crate::beneath::{Rights, read_text};
use crate::chain;

const MISSING_NAME: &str = "missing.toml";
/// The version of the file that this program writes, and the only one that it reads.
const VERSION: u32 = 1;
/// Entries of the file for each cause; more are put together.
const ENTRIES_MAX: usize = 64;
/// What is read of the file: many times what this program writes.
const FILE_LEN_MAX: u64 = 1 << 20;
/// Recordings that are so much apart have a time between them in which nothing was recorded.
const APART_NS: u64 = 1_000_000_000;

/// Why packets may be missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Cause {
    /// They were lost while they were captured: by the interface, the kernel or the writer.
    Lost,
    /// Retention has removed their recording.
    Removed,
    /// No recorder ran.
    NotRecorded,
    /// A capture ends in the middle of something.
    CutShort,
    /// A capture is damaged.
    Damaged,
    /// An index does not have all its parts.
    MissingPart,
    /// An index or a packet file cannot be read.
    Unreadable,
}

impl Cause {
    /// Its name, which does not change.
    pub fn name(self) -> &'static str {
        match self {
            Self::Lost => "lost",
            Self::Removed => "removed",
            Self::NotRecorded => "not_recorded",
            Self::CutShort => "cut_short",
            Self::Damaged => "damaged",
            Self::MissingPart => "missing_part",
            Self::Unreadable => "unreadable",
        }
    }
}

/// Packets that the archive may lack.
#[derive(Debug)]
pub struct Gap {
    /// Why.
    pub cause: Cause,
    /// The first nanosecond since 1970 that they may be from.
    pub from_ns: u64,
    /// The last one; `u64::MAX` if that is not known.
    pub to_ns: u64,
    /// How many; `None` if nobody knows.
    pub packets: Option<u64>,
    /// Bytes of a capture that were not indexed.
    pub bytes: Option<u64>,
    /// What happened, where, and what to do; empty if the cause says it all.
    pub what: String,
    /// What could not be opened.
    pub error: Option<ArchiveError>,
}

impl Gap {
    fn new(cause: Cause, from_ns: u64, to_ns: u64, packets: Option<u64>) -> Self {
        Self { cause, from_ns, to_ns, packets, bytes: None, what: String::new(), error: None }
    }

    /// Something that could not be opened, of which no times are known.
    pub fn unknown(error: ArchiveError) -> Self {
        let cause = match error {
            ArchiveError::MissingPart { .. } => Cause::MissingPart,
            _ => Cause::Unreadable,
        };
        let packets = match &error {
            ArchiveError::Unread(unread) => {
                let packets = unread.packets();
                Some(packets.end - packets.start)
            }
            _ => None,
        };
        let what = chain(&error);
        Self { what, error: Some(error), ..Self::new(cause, 0, u64::MAX, packets) }
    }

    /// Packets of a segment that could not be read.
    pub fn of_segment(segment: &Segment, error: ArchiveError) -> Self {
        let note = segment.note();
        let (from_ns, to_ns) = (note.time_min, note.time_max);
        Self { from_ns, to_ns, packets: Some(note.records), ..Self::unknown(error) }
    }

    /// Whether packets from some times may be missing.
    pub fn touches(&self, (from, to): Times) -> bool {
        self.to_ns >= from && to.is_none_or(|to| self.from_ns < to)
    }

    /// The time that it is about; `None` if that is not known.
    pub fn span(&self) -> Option<(u64, u64)> {
        (self.to_ns < u64::MAX).then_some((self.from_ns, self.to_ns))
    }
}

impl From<(Cause, Loss)> for Gap {
    fn from((cause, loss): (Cause, Loss)) -> Self {
        Self::new(cause, loss.from_ns, loss.to_ns, Some(loss.packets))
    }
}

/// All segments of an archive, and what it lacks.
#[derive(Debug, Default)]
pub struct Survey {
    /// The segments that could be opened, by the time of their first packet.
    pub segments: Vec<Segment>,
    /// What may be missing, from all times.
    pub gaps: Vec<Gap>,
    /// What is known of recordings beside what their segments say.
    pub(super) loose: Vec<Loose>,
}

/// What is known of a recording that is in none of its segments.
#[derive(Debug)]
pub(super) struct Loose {
    pub(super) recording: String,
    pub(super) losses: Vec<Loss>,
    pub(super) covered: Option<Covered>,
    /// The times of packets that have no segment.
    pub(super) packets: Option<Covered>,
}

impl Survey {
    /// Adds what the segments say is missing.
    pub(super) fn find_gaps(&mut self, archive: &Archive) {
        for segment in &self.segments {
            let (note, source) = (segment.note(), &segment.note().source);
            self.gaps.extend(note.losses.iter().map(|&loss| Gap::from((Cause::Lost, loss))));
            if source.damage.is_empty() {
                continue;
            }
            let cause = if source.cut_short { Cause::CutShort } else { Cause::Damaged };
            // A file has no packets from after it was changed last, unless it is from the future.
            let last = Some(source.modified_ns).filter(|&ns| ns > note.time_max);
            let path = segment.packet_path();
            let path = path.canonicalize().unwrap_or(path);
            self.gaps.push(Gap {
                bytes: (!source.is_copy()).then(|| source.len.saturating_sub(source.end)),
                what: format!("{}: indexed up to the damage: {}", path.display(), source.damage),
                ..Gap::new(cause, end_of(segment), last.unwrap_or(u64::MAX), None)
            });
        }
        for loose in &self.loose {
            self.gaps.extend(loose.losses.iter().map(|&loss| Gap::from((Cause::Lost, loss))));
        }
        let missing = match archive.missing() {
            Ok(missing) => missing,
            Err(error) => {
                self.gaps.push(Gap::unknown(error));
                Missing::default()
            }
        };
        let removed = missing.removed.iter().map(|one| Gap::from((Cause::Removed, one.loss())));
        let lost = missing.lost.iter().map(|one| Gap::from((Cause::Lost, one.loss())));
        self.gaps.extend(removed.chain(lost));
        self.find_unrecorded(&missing);
        self.gaps.sort_by_key(|gap| (gap.cause, gap.from_ns, gap.to_ns));
    }

    /// Adds the times between recordings in which nothing was recorded.
    fn find_unrecorded(&mut self, missing: &Missing) {
        // Of each recording the time that it speaks for, and that of its packets.
        let mut recordings: BTreeMap<u64, (Option<Covered>, Option<Covered>)> = BTreeMap::new();
        let both =
            |a: Option<Covered>, b: Option<Covered>| a.into_iter().chain(b).reduce(Covered::and);
        for segment in &self.segments {
            let Some(number) = segment.recording_name().and_then(recording_number) else {
                continue;
            };
            let note = segment.note();
            let packets = Covered { from_ns: note.time_min, to_ns: note.time_max };
            let known = recordings.entry(number).or_default();
            known.0 = both(known.0, note.covered);
            known.1 = both(known.1, Some(packets).filter(|_| note.records > 0));
        }
        for loose in &self.loose {
            let Some(number) = recording_number(&loose.recording) else { continue };
            let known = recordings.entry(number).or_default();
            known.0 = both(known.0, loose.covered);
            known.1 = both(known.1, loose.packets);
        }
        let mut before: Option<u64> = None;
        for (covered, packets) in recordings.into_values() {
            let all = both(covered, packets);
            // One that does not say when it began goes on where the one before has ended.
            let said = all.filter(|_| covered.is_some());
            if let (Some(end), Some(said)) = (before, said)
                && said.from_ns > end.saturating_add(APART_NS)
                && !missing
                    .removed
                    .iter()
                    .any(|one| one.from_ns <= said.from_ns && one.to_ns >= end)
            {
                self.gaps.push(Gap::new(Cause::NotRecorded, end, said.from_ns, None));
            }
            before = all.and_then(|all| before.max(Some(all.to_ns)));
        }
    }
}

/// The time from which on packets behind the last one of a segment may be: the least of the last
/// few, as they need not be in order.
fn end_of(segment: &Segment) -> u64 {
    let marks = segment.index().marks().ok().flatten();
    let last = marks.and_then(|marks| marks.get(marks.len().checked_sub(1)?).ok());
    last.map_or(segment.note().time_min, |mark| mark.time_min)
}

/// `missing.toml`, as it is written.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Missing {
    version: u32,
    /// What retention has removed.
    #[serde(default)]
    removed: Vec<Entry>,
    /// What was lost and is in no recording's statistics.
    #[serde(default)]
    lost: Vec<Entry>,
}

impl Default for Missing {
    fn default() -> Self {
        Self { version: VERSION, removed: Vec::new(), lost: Vec::new() }
    }
}

/// Packets that are missing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Entry {
    from_ns: u64,
    to_ns: u64,
    packets: u64,
    /// The last recording that they were in.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    recording: String,
}

impl Entry {
    fn new(loss: Loss, recording: &str) -> Self {
        let Loss { from_ns, to_ns, packets } = loss;
        Self { from_ns, to_ns, packets, recording: recording.to_owned() }
    }

    fn loss(&self) -> Loss {
        Loss { from_ns: self.from_ns, to_ns: self.to_ns, packets: self.packets }
    }
}

/// Adds an entry. One that goes on where the last one ended becomes a part of that.
fn add(entries: &mut Vec<Entry>, new: Entry) {
    let join = |last: &mut Entry, new: &Entry| {
        let Loss { from_ns, to_ns, packets } = last.loss().and(new.loss());
        *last = Entry { from_ns, to_ns, packets, recording: new.recording.clone() };
    };
    match entries.last_mut() {
        // Its removal was interrupted, and it is removed again.
        Some(last) if !new.recording.is_empty() && last.recording == new.recording => return,
        Some(last) if new.from_ns <= last.to_ns.saturating_add(APART_NS) => join(last, &new),
        _ => entries.push(new),
    }
    while entries.len() > ENTRIES_MAX {
        let second = entries.remove(1);
        join(&mut entries[0], &second);
    }
}

impl Archive {
    fn missing_path(&self) -> PathBuf {
        self.folder.join(MISSING_NAME)
    }

    pub(super) fn missing(&self) -> Result<Missing, ArchiveError> {
        let path = self.missing_path();
        let text = match self.root.read(&path).and_then(|file| read_text(file, FILE_LEN_MAX)) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Missing::default()),
            Err(error) => return Err(ArchiveError::io("read", &path, error)),
        };
        let bad = |message: String| ArchiveError::BadSettings { path: path.clone(), message };
        let advice = "it tells what is missing of the archive; remove it to go on without";
        let missing: Missing =
            toml::from_str(&text).map_err(|error| bad(format!("{}; {advice}", error.message())))?;
        if missing.version != VERSION {
            let found = missing.version;
            return Err(bad(format!("version {found} is not known, only {VERSION} is; {advice}")));
        }
        Ok(missing)
    }

    fn change_missing(&self, change: impl FnOnce(&mut Missing)) -> Result<(), ArchiveError> {
        let path = self.missing_path();
        let written = self.root.replace(&path, Rights::USUAL, || {
            // What cannot be read is replaced: what comes now is known.
            let mut missing = self.missing().unwrap_or_default();
            change(&mut missing);
            toml::to_string(&missing).ok().map(String::into_bytes)
        });
        written.map_err(|error| ArchiveError::io("write", &path, error))
    }

    /// Remembers that a recording is removed, so that answers about its times say so. Removing one
    /// twice, after an interruption, counts once.
    pub fn remember_removed(&self, recording: &str, packets: Loss) -> Result<(), ArchiveError> {
        self.change_missing(|missing| add(&mut missing.removed, Entry::new(packets, recording)))
    }

    /// Remembers packets that were lost when there was no recording to say so.
    pub fn remember_lost(&self, packets: Loss) -> Result<(), ArchiveError> {
        self.change_missing(|missing| add(&mut missing.lost, Entry::new(packets, "")))
    }
}
