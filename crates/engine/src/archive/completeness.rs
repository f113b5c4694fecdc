//! Which packets an archive lacks, and from which times.
//!
//! An answer is complete if nothing is missing from the times that it covers. Whatever may be
//! missing is a [`Gap`]. Gaps are found in one place, [`Archive::survey`], from what is read for
//! every question anyway: the notes of segments, the errors of those that could not be opened, and
//! one small file of the archive:
//!
//! ```text
//! missing.toml           what retention removed, and what no recording reports
//! missing.toml.damaged   such a file that could not be parsed
//! ```

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::file_names::capture_name;
use super::note::{Covered, Loss};
use super::recording::{is_recording, recording_number};
use super::segment::Segment;
use super::{Archive, ArchiveError, SettingsFault};
use crate::beneath::Rights;
use crate::chain;
use crate::storage::Whose;
use crate::time::TimeRange;

const MISSING_NAME: &str = "missing.toml";
const DAMAGED_NAME: &str = "missing.toml.damaged";
/// The version of the file that this program writes, and the only one that it reads.
const VERSION: u32 = 1;
/// Entries of the file for each cause; beyond that, entries are merged.
const ENTRIES_MAX: usize = 64;
/// The most bytes that are read of the file: many times what this program writes.
const FILE_LEN_MAX: u64 = 1 << 20;
/// If two recordings are further apart than this, nothing was recorded in between.
const APART_NS: u64 = 1_000_000_000;

/// Why packets may be missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Cause {
    /// They were lost while they were captured: by the interface, the kernel or the writer.
    Lost,
    /// Retention has removed their recording.
    Removed,
    /// No recorder ran, or a source was gone.
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
#[derive(Debug, Clone)]
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
    pub error: Option<Arc<ArchiveError>>,
}

impl Gap {
    fn new(cause: Cause, from_ns: u64, to_ns: u64, packets: Option<u64>) -> Self {
        Self { cause, from_ns, to_ns, packets, bytes: None, what: String::new(), error: None }
    }

    /// Something that could not be opened and whose times are not known.
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
        Self { what, error: Some(Arc::new(error)), ..Self::new(cause, 0, u64::MAX, packets) }
    }

    /// Packets of a segment that could not be read.
    pub fn of_segment(segment: &Segment, error: ArchiveError) -> Self {
        let note = segment.note();
        let (from_ns, to_ns) = (note.time_min, note.time_max);
        Self { from_ns, to_ns, packets: Some(note.records), ..Self::unknown(error) }
    }

    /// Packets of a segment that retention removed during the search.
    pub fn removed(segment: &Segment) -> Self {
        let note = segment.note();
        Self::new(Cause::Removed, note.time_min, note.time_max, Some(note.records))
    }

    /// Packets of a segment that could not be read, or were removed in the meantime.
    pub fn of_lost(segment: &Segment, error: ArchiveError) -> Self {
        match segment.is_gone() {
            true => Self::removed(segment),
            false => Self::of_segment(segment, error),
        }
    }

    /// The packets behind damage in a capture.
    pub(super) fn behind(behind: &Behind) -> Self {
        let cause = if behind.cut_short { Cause::CutShort } else { Cause::Damaged };
        let (from_ns, time_max) = behind.before;
        // A file has no packets later than its last change, unless their times are in the future.
        let last = Some(behind.modified_ns).filter(|&ns| ns > time_max);
        let path = behind.path.display();
        Self {
            bytes: behind.bytes,
            what: format!("{path}: indexed up to the damage: {}", behind.damage),
            ..Self::new(cause, from_ns, last.unwrap_or(u64::MAX), None)
        }
    }

    /// Whether packets from some times may be missing.
    pub fn touches(&self, times: TimeRange) -> bool {
        times.overlaps(self.from_ns, self.to_ns)
    }

    /// The times that it covers; `None` if they are not known.
    pub fn span(&self) -> Option<(u64, u64)> {
        (self.to_ns < u64::MAX).then_some((self.from_ns, self.to_ns))
    }
}

/// Damage in a capture, which can be read up to that point.
pub(super) struct Behind {
    pub(super) path: PathBuf,
    pub(super) damage: String,
    /// The damage is that the file ends early.
    pub(super) cut_short: bool,
    /// How many bytes are behind it.
    pub(super) bytes: Option<u64>,
    /// About when the last packets in front of it came, and the latest of all.
    pub(super) before: (u64, u64),
    pub(super) modified_ns: u64,
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
    pub segments: Vec<Arc<Segment>>,
    /// What may be missing, from all times.
    pub gaps: Vec<Gap>,
    /// What is known about recordings in addition to what their segments say.
    pub(super) loose: Vec<Loose>,
}

/// What is known about a recording but is in none of its segments.
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
        // When the first packet came, for each capture with losses that have an end but no start.
        let mut starts: BTreeMap<&str, u64> = BTreeMap::new();
        let is_open = |losses: &[Loss]| losses.iter().any(|loss| loss.from_ns == 0);
        let loose = self.loose.iter().filter(|loose| is_open(&loose.losses));
        starts.extend(loose.map(|loose| (loose.recording.as_str(), u64::MAX)));
        let open = self.segments.iter().filter(|segment| is_open(&segment.note().losses));
        starts.extend(open.map(|segment| (capture_name(segment.path()), u64::MAX)));
        for segment in self.segments.iter().filter(|segment| segment.note().records > 0) {
            if let Some(start) = starts.get_mut(capture_name(segment.path())) {
                *start = segment.note().time_min.min(*start);
            }
        }
        let lost = |name: &str, loss: Loss| {
            let start = starts.get(name).copied().unwrap_or(0).min(loss.to_ns);
            Gap::from((Cause::Lost, Loss { from_ns: loss.from_ns.max(start), ..loss }))
        };
        let gaps = &mut self.gaps;
        for segment in &self.segments {
            let (note, source) = (segment.note(), &segment.note().source);
            let name = capture_name(segment.path());
            gaps.extend(note.losses.iter().map(|&loss| lost(name, loss)));
            if source.damage.is_empty() {
                continue;
            }
            gaps.push(Gap::behind(&Behind {
                path: archive.real_path(segment.packet_path()),
                damage: source.damage.clone(),
                cut_short: source.cut_short,
                bytes: (!source.is_copy()).then(|| source.len.saturating_sub(source.end)),
                before: (end_of(segment), note.time_max),
                modified_ns: source.modified_ns,
            }));
        }
        for loose in &self.loose {
            gaps.extend(loose.losses.iter().map(|&loss| lost(&loose.recording, loss)));
        }
        let missing = match archive.missing() {
            Ok(mut missing) => {
                missing.settle(archive);
                missing
            }
            Err(error) => {
                self.gaps.push(Gap::unknown(error));
                Missing::default()
            }
        };
        let told = [(Cause::Removed, &missing.removed), (Cause::Lost, &missing.lost)];
        for (cause, entries) in told {
            self.gaps.extend(entries.iter().map(|one| one.gap(cause)));
        }
        for Outage { from_ns, to_ns, source } in &missing.outages {
            self.gaps.push(Gap {
                what: format!("{source} was gone"),
                ..Gap::new(Cause::NotRecorded, *from_ns, *to_ns, None)
            });
        }
        self.find_unrecorded(&missing);
        self.gaps.sort_by_key(|gap| (gap.cause, gap.from_ns, gap.to_ns));
    }

    /// Adds the times between recordings in which nothing was recorded.
    fn find_unrecorded(&mut self, missing: &Missing) {
        let mut recordings: BTreeMap<u64, Known<'_>> = BTreeMap::new();
        for segment in &self.segments {
            let Some(number) = segment.recording_name().and_then(recording_number) else {
                continue;
            };
            let note = segment.note();
            let packets = Covered { from_ns: note.time_min, to_ns: note.time_max };
            let packets = Some(packets).filter(|_| note.records > 0);
            let known = recordings.entry(number).or_default();
            known.add(note.covered, packets);
            let part = |segment: &Segment| segment.note().source.part;
            if known.last.is_none_or(|last| part(last) <= part(segment)) {
                known.last = Some(segment);
            }
        }
        for loose in &self.loose {
            let Some(number) = recording_number(&loose.recording) else { continue };
            recordings.entry(number).or_default().add(loose.covered, loose.packets);
        }
        // For some removed recordings it is not known which time they covered.
        let mut unknown = Vec::new();
        for one in &missing.removed {
            match (recording_number(&one.recording), one.covered) {
                (Some(number), Some(covered)) => {
                    recordings.entry(number).or_default().add(Some(covered), Some(one.times()));
                }
                _ => unknown.push(one.times()),
            }
        }
        let mut before: Option<Known<'_>> = None;
        for known in recordings.into_values() {
            let between = before.as_ref().and_then(|before| before.until(&known));
            before = Some(known);
            let Some(between) = between else { continue };
            if unknown.iter().any(|one| one.is_near(between)) {
                continue;
            }
            let left = missing.covered.iter().fold(vec![between], |left, covered| {
                left.into_iter().flat_map(|one| one.without(*covered)).collect()
            });
            let is_long = |one: &Covered| one.to_ns - one.from_ns > APART_NS;
            self.gaps.extend(
                left.into_iter()
                    .filter(is_long)
                    .map(|one| Gap::new(Cause::NotRecorded, one.from_ns, one.to_ns, None)),
            );
        }
    }
}

/// What is known about the times of a recording.
#[derive(Debug, Default)]
struct Known<'a> {
    /// The time that it says it covers.
    covered: Option<Covered>,
    /// The times of its packets.
    packets: Option<Covered>,
    /// The segment with its last packets.
    last: Option<&'a Segment>,
}

impl Known<'_> {
    fn add(&mut self, covered: Option<Covered>, packets: Option<Covered>) {
        self.covered = both(self.covered, covered);
        self.packets = both(self.packets, packets);
    }

    /// The time in which nothing was recorded, between this one and the next.
    fn until(&self, next: &Self) -> Option<Covered> {
        // A recording that does not say when it began continues where the one before ended.
        let from = next.covered.and_then(|said| both(Some(said), next.packets))?.from_ns;
        if self.covered.is_some_and(|said| said.from_ns <= from && from <= said.to_ns) {
            return None;
        }
        let end = both(self.covered, self.packets)?.to_ns;
        let end = match end <= from {
            true => end,
            // It ended before the next one began: any later packet has a wrong time.
            false => {
                let ends = [self.covered, self.packets].into_iter().flatten().map(|one| one.to_ns);
                ends.chain(self.last.map(end_of)).filter(|&end| end <= from).max()?
            }
        };
        (from - end > APART_NS).then_some(Covered { from_ns: end, to_ns: from })
    }
}

/// The time that spans both.
fn both(a: Option<Covered>, b: Option<Covered>) -> Option<Covered> {
    a.into_iter().chain(b).reduce(Covered::and)
}

impl Covered {
    /// Whether two times touch, or nearly so.
    fn is_near(self, other: Self) -> bool {
        let near = |end: u64| end.saturating_add(APART_NS);
        self.from_ns <= near(other.to_ns) && other.from_ns <= near(self.to_ns)
    }

    /// The parts of it that are not in `other`: one before that, and one after.
    fn without(self, other: Self) -> impl Iterator<Item = Self> {
        let before = Self { to_ns: self.to_ns.min(other.from_ns), ..self };
        let after = Self { from_ns: self.from_ns.max(other.to_ns), ..self };
        [before, after].into_iter().filter(|one| one.from_ns < one.to_ns)
    }
}

/// The earliest time that packets behind the last one of a segment may have: the least of the last
/// few, as packets need not be in order.
pub(super) fn end_of(segment: &Segment) -> u64 {
    let marks = segment.index().marks().ok().flatten();
    let last = marks.and_then(|marks| marks.get(marks.len().checked_sub(1)?).ok());
    last.map_or(segment.note().time_min, |mark| mark.time_min)
}

/// What a recording had that retention has removed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Held {
    /// The times of its packets.
    pub times: Covered,
    /// How many these were; `None` if nobody has counted them.
    pub packets: Option<u64>,
    /// The time that it covered, if it said so.
    pub covered: Option<Covered>,
    /// What was lost while it was recorded.
    pub losses: Vec<Loss>,
}

/// `missing.toml`, as it is written.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Missing {
    version: u32,
    /// What retention has removed.
    #[serde(default)]
    removed: Vec<Entry>,
    /// Losses that are not in the statistics of any recording that still exists.
    #[serde(default)]
    lost: Vec<Entry>,
    /// Times in which a recorder ran and no packet came, which no recording covers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    covered: Vec<Covered>,
    /// Times in which a source was gone while a recorder ran.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    outages: Vec<Outage>,
}

/// A time in which a source gave no packets.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Outage {
    from_ns: u64,
    to_ns: u64,
    source: String,
}

impl Default for Missing {
    fn default() -> Self {
        Self {
            version: VERSION,
            removed: Vec::new(),
            lost: Vec::new(),
            covered: Vec::new(),
            outages: Vec::new(),
        }
    }
}

/// Packets that are missing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Entry {
    from_ns: u64,
    to_ns: u64,
    /// `None` if nobody knows how many.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    packets: Option<u64>,
    /// The last recording that they were in.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    recording: String,
    /// The time that their recordings covered, packets included.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    covered: Option<Covered>,
}

impl Entry {
    fn lost(loss: Loss, recording: &str) -> Self {
        let Loss { from_ns, to_ns, packets } = loss;
        let recording = recording.to_owned();
        Self { from_ns, to_ns, packets: Some(packets), recording, covered: None }
    }

    fn removed(recording: &str, held: &Held) -> Self {
        let Covered { from_ns, to_ns } = held.times;
        let one = Self::lost(Loss::new(from_ns, to_ns, held.packets.unwrap_or(0)), recording);
        let covered = held.covered.map(|said| said.and(one.times()));
        Self { packets: held.packets.and(one.packets), covered, ..one }
    }

    fn times(&self) -> Covered {
        Covered { from_ns: self.from_ns, to_ns: self.to_ns }
    }

    fn gap(&self, cause: Cause) -> Gap {
        Gap::new(cause, self.from_ns, self.to_ns, self.packets)
    }

    /// Whether the packets of `next` come right after these.
    fn goes_on_with(&self, next: &Self) -> bool {
        let number = |one: &Self| recording_number(&one.recording);
        match (self.covered, next.covered) {
            (Some(a), Some(b)) => a.is_near(b),
            // A recording that does not say when it began continues where the one before ended.
            (Some(_), None) => number(self).is_some_and(|n| number(next) == n.checked_add(1)),
            (None, Some(_)) => false,
            (None, None) => self.times().is_near(next.times()),
        }
    }

    /// One entry for both, and for what is between them.
    fn and(self, next: Self) -> Self {
        let times = self.times().and(next.times());
        Self {
            from_ns: times.from_ns,
            to_ns: times.to_ns,
            packets: self
                .packets
                .zip(next.packets)
                .map(|(a, b)| Loss::new(0, 0, a.saturating_add(b)).packets),
            covered: self.covered.map(|a| a.and(next.covered.unwrap_or(next.times()))),
            recording: next.recording,
        }
    }
}

/// Merges entries that follow each other directly, and the first ones if there are too many.
fn join(entries: &mut Vec<Entry>) {
    let mut joined: Vec<Entry> = Vec::new();
    for next in entries.drain(..) {
        match joined.pop() {
            Some(last) if last.goes_on_with(&next) => joined.push(last.and(next)),
            last => joined.extend(last.into_iter().chain([next])),
        }
    }
    while joined.len() > ENTRIES_MAX {
        let second = joined.remove(1);
        joined[0] = joined[0].clone().and(second);
    }
    *entries = joined;
}

impl Missing {
    /// Drops entries that do not count: those about a recording that still exists, because it could
    /// not be removed or the removal was interrupted.
    fn settle(&mut self, archive: &Archive) {
        let is_there = |name: &str| {
            is_recording(name) && !name.contains('/') && archive.recording(name).is_sealed()
        };
        for entries in [&mut self.removed, &mut self.lost] {
            entries.retain(|one| !is_there(&one.recording));
            join(entries);
        }
    }
}

impl Archive {
    fn missing_path(&self) -> PathBuf {
        self.folder.join(MISSING_NAME)
    }

    pub(super) fn missing(&self) -> Result<Missing, ArchiveError> {
        self.read_missing(&mut false)
    }

    /// Reads `missing.toml`. If that fails, sets `is_damaged` if the file is damaged, so that
    /// trying again is of no use.
    fn read_missing(&self, is_damaged: &mut bool) -> Result<Missing, ArchiveError> {
        use io::ErrorKind::{InvalidData, InvalidInput, NotFound};
        let path = self.missing_path();
        let text = match self.storage.read_text(&path, FILE_LEN_MAX) {
            Ok(text) => text,
            Err(error) if error.kind() == NotFound => return Ok(Missing::default()),
            Err(error) => {
                *is_damaged = matches!(error.kind(), InvalidData | InvalidInput);
                return Err(ArchiveError::io("read", &path, error));
            }
        };
        let bad = |fault| ArchiveError::BadMissing { path: path.clone(), fault };
        let version = text.parse::<toml::Table>().ok();
        let version = version.and_then(|table| table.get("version")?.as_integer());
        if let Some(found) = version.filter(|&version| version > VERSION.into()) {
            return Err(bad(SettingsFault::Version { found, known: VERSION }));
        }
        toml::from_str(&text).map_err(|error| {
            *is_damaged = true;
            bad(SettingsFault::Syntax { error: error.message().to_owned() })
        })
    }

    /// The same, but a damaged file is put aside, and what it said is lost.
    fn mended_missing(&self) -> Result<Missing, ArchiveError> {
        let mut is_damaged = false;
        let error = match self.read_missing(&mut is_damaged) {
            Err(error) if is_damaged => error,
            read => return read,
        };
        let path = self.missing_path();
        let until = self.storage.metadata(&path, Whose::Own).map(|data| data.modified_ns);
        if self.storage.rename(&path, &self.folder.join(DAMAGED_NAME)).is_err() {
            return Err(error);
        }
        let times = Covered { from_ns: 0, to_ns: until.unwrap_or(u64::MAX) };
        let held = Held { times, packets: None, covered: None, losses: Vec::new() };
        Ok(Missing { removed: vec![Entry::removed("", &held)], ..Missing::default() })
    }

    fn change_missing(&self, change: impl FnOnce(&mut Missing)) -> Result<(), ArchiveError> {
        let path = self.missing_path();
        let mut read = Ok(());
        let written = self.storage.replace(&path, Rights::USUAL, || {
            let missing = self.mended_missing();
            let mut missing = missing.map_err(|error| read = Err(error)).ok()?;
            change(&mut missing);
            toml::to_string(&missing).ok().map(String::into_bytes)
        });
        read?;
        written.map_err(|error| ArchiveError::io("write", &path, error))
    }

    /// Remembers that a recording is removed, so that answers about its times say so, and remembers
    /// the losses that it reported. The entry counts once the packets are gone. Removing a
    /// recording twice, after an interruption, counts once.
    pub fn remember_removed(&self, recording: &str, held: &Held) -> Result<(), ArchiveError> {
        self.change_missing(|missing| {
            for entries in [&mut missing.removed, &mut missing.lost] {
                entries.retain(|one| recording.is_empty() || one.recording != recording);
            }
            // The new entry is not merged until the next one comes: it may turn out not to count.
            missing.settle(self);
            missing.removed.push(Entry::removed(recording, held));
            let lost = held.losses.iter().map(|&loss| Entry::lost(loss, recording));
            missing.lost.extend(lost);
        })
    }

    /// Remembers packets that were lost while there was no recording to report them.
    pub fn remember_lost(&self, packets: Loss) -> Result<(), ArchiveError> {
        self.change_missing(|missing| {
            missing.settle(self);
            missing.lost.push(Entry::lost(packets, ""));
        })
    }

    /// Remembers a time in which a recorder ran and no packet came, so that no recording covers it.
    pub fn remember_covered(&self, covered: Covered) -> Result<(), ArchiveError> {
        self.change_missing(|missing| {
            missing.covered.push(covered);
            let more = missing.covered.len().saturating_sub(ENTRIES_MAX);
            missing.covered.drain(..more);
        })
    }

    /// Remembers a time in which a source was gone.
    pub fn remember_outage(&self, source: &str, time: Covered) -> Result<(), ArchiveError> {
        self.change_missing(|missing| {
            let Covered { from_ns, to_ns } = time;
            missing.outages.push(Outage { from_ns, to_ns, source: source.to_owned() });
            while missing.outages.len() > ENTRIES_MAX {
                let first = missing.outages.remove(0);
                let next = &mut missing.outages[0];
                next.from_ns = next.from_ns.min(first.from_ns);
                next.to_ns = next.to_ns.max(first.to_ns);
                if next.source != first.source {
                    next.source = "one of several sources".to_owned();
                }
            }
        })
    }
}
