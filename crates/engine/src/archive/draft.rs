//! Indexes of recordings that have none yet.
//!
//! A recording can be searched from its first packet on, but is indexed only when it is complete.
//! Until then its packets are in drafts: ordinary segments, in a codec that is fast to build.
//!
//! ```text
//! drafts/rec-NUMBER-TIME.pcapng-PART.tdx   made by the recorder, while the recording is open
//! in memory                                of the packets after those, built by each search
//! ```
//!
//! Nothing depends on a draft. If one is missing, cannot be opened, or does not fit the packets, it
//! is left out together with all that follow it, and their packets are indexed in memory. Damage
//! behind its head is found when that part is read, as in all indexes, and repair removes such a
//! draft.

use std::collections::{HashMap, HashSet};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use super::builder::{Ended, NewFile, RECORDS_MAX, SegmentBuilder, SharedDevice, With};
use super::completeness::{Behind, Gap, Loose, Survey, end_of};
use super::file_names::capture_name;
use super::ingest::Steps;
use super::note::{Covered, Loss, Note, SourceFile, chained};
use super::recording::{Recording, is_recording};
use super::segment::{Segment, ends_sum};
use super::{Archive, ArchiveError, CodecChoice};
use crate::beneath::Rights;
use crate::capture::{CaptureError, CaptureReader};
use crate::index::Index;
use crate::parallel::Parallel;
use crate::storage::{Memory, Publish, ReadFile, Reader, Storage};
use crate::time::TimeRange;

/// Packets of a draft that a recorder makes, at most: some hundredths of a second.
const DRAFT_RECORDS: usize = 1 << 18;

/// Makes drafts of a recording, one after the other, while it is written.
#[derive(Debug)]
pub struct Drafter<'a> {
    archive: &'a Archive,
    recording: Recording,
    reader: CaptureReader<Reader>,
    /// The same file, to look again at what was read.
    file: Reader,
    /// What is behind the last draft.
    rest: SourceFile,
    /// Nothing more will be written to it.
    is_sealed: bool,
    /// What keeps it from being read to its end.
    damage: Option<CaptureError>,
}

impl<'a> Drafter<'a> {
    /// Starts with the first packet of a recording; `None` if the recording is gone, or has no head
    /// yet.
    pub fn new(archive: &'a Archive, recording: &Recording) -> Result<Option<Self>, ArchiveError> {
        Self::after(archive, recording, None)
    }

    /// Starts behind a part of the recording.
    fn after(
        archive: &'a Archive,
        recording: &Recording,
        last: Option<&Note>,
    ) -> Result<Option<Self>, ArchiveError> {
        let path = recording.sealed_path();
        // Checked first: a recording that is sealed by now has all its packets.
        let is_sealed = recording.is_sealed();
        // Two, since each has its own place in the file.
        let opened = recording.open().and_then(|file| Ok((file, recording.open()?)));
        let (file, other) = match opened {
            Ok(files) => files,
            // Retention has removed it.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(ArchiveError::io("open", &path, error)),
        };
        let reader = match last {
            Some(note) => CaptureReader::resume(other, note.layout.clone(), note.source.end),
            None => CaptureReader::open(other),
        };
        let mut reader = match reader {
            Ok(reader) => reader,
            // Its head is not written yet.
            Err(CaptureError::Truncated { .. }) if !is_sealed => return Ok(None),
            Err(error) => return Err(ArchiveError::capture(&path)(error)),
        };
        reader.gather_statistics();
        let mut rest = recording.as_source();
        rest.start = reader.position();
        if let Some(note) = last {
            rest.go_on(note);
        }
        let recording = recording.clone();
        Ok(Some(Self { archive, recording, reader, file, rest, is_sealed, damage: None }))
    }

    /// The recording.
    pub fn recording(&self) -> &Recording {
        &self.recording
    }

    /// Bytes and packets of the recording that drafts cover.
    pub fn reached(&self) -> (u64, u64) {
        (self.rest.start, self.rest.records_before)
    }

    /// Writes a draft of the packets since the last one, or of as many as fit into a draft. Returns
    /// how many these are.
    pub fn write(&mut self, storage: &dyn Publish) -> Result<u64, ArchiveError> {
        let mut builder = SegmentBuilder::new(self.archive.settings().fields);
        let Some((mut note, _)) = self.read(&mut builder, DRAFT_RECORDS)? else { return Ok(0) };
        let folder = self.archive.drafts_folder();
        // Creates the folder of drafts, but not an archive that is gone.
        let made = self.archive.storage.make_folder(&folder);
        made.map_err(|error| ArchiveError::io("create", &folder, error))?;
        let path = self.recording.draft_path(note.source.part);
        let rights =
            self.file.file().rights().map_err(|error| ArchiveError::io("read", &path, error))?;
        let file = NewFile { storage, path: &path, rights: rights.and(Rights::GROUP) };
        write(&mut builder, file, &mut note)?;
        self.rest.go_on(&note);
        Ok(note.records)
    }

    /// Segments in memory of all packets that can be read.
    fn in_memory(&mut self) -> Result<Vec<Segment>, ArchiveError> {
        let mut builder = SegmentBuilder::new(self.archive.settings().fields);
        let mut segments = Vec::new();
        while let Some((mut note, ended)) = self.read(&mut builder, RECORDS_MAX)? {
            let path = self.recording.index_path(note.source.part);
            let memory = Memory::default();
            let file = NewFile { storage: &memory, path: &path, rights: Rights::GROUP };
            write(&mut builder, file, &mut note)?;
            let index = Index::from_bytes(memory.into_bytes());
            let index = index.map_err(ArchiveError::index(&path))?;
            self.rest.go_on(&note);
            let storage = Arc::clone(&self.archive.storage);
            segments.push(Segment::in_memory(storage, path, index, note));
            if !matches!(ended, Ended::Full) {
                break;
            }
        }
        Ok(segments)
    }

    /// Reads packets until there are enough for a segment, or no more whole ones. Returns the note
    /// of the segment, if there is one, and why it ended. A damaged file ends at the damage.
    fn read(
        &mut self,
        builder: &mut SegmentBuilder,
        records_max: usize,
    ) -> Result<Option<(Note, Ended)>, ArchiveError> {
        let path = self.recording.sealed_path();
        // There may be more now behind the place where it ended last time.
        self.reader.reread(self.rest.start).map_err(ArchiveError::capture(&path))?;
        let mut ended =
            builder.read(&mut self.reader, records_max).map_err(ArchiveError::capture(&path))?;
        if let Ended::Damage(error) = ended {
            self.damage = self.is_damage(&error).then_some(error);
            ended = Ended::Capture;
        }
        if builder.records() == 0 {
            return Ok(None);
        }
        let mut source = self.rest.clone();
        source.end = self.reader.position();
        let sum = ends_sum(self.file.file(), source.start, source.end);
        source.sum = sum.map_err(|error| ArchiveError::io("read", &path, error))?.unwrap_or(0);
        let mut note = Note::new(source, self.reader.layout().clone());
        builder.describe(&mut note);
        note.tell(&self.reader.take_statistics());
        Ok(Some((note, ended)))
    }

    /// Whether an error means that something is missing; not so if more may still be written.
    fn is_damage(&self, error: &CaptureError) -> bool {
        self.is_sealed || !matches!(error, CaptureError::Truncated { .. })
    }

    /// The gap behind the last segment of all that can be read.
    fn gap(&self, before: Option<(u64, u64)>) -> Option<Gap> {
        let damage = self.damage.as_ref()?;
        let data = self.file.file().metadata().ok();
        let len = data.map_or(0, |data| data.len);
        Some(Gap::behind(&Behind {
            path: self.archive.real_path(self.recording.sealed_path()),
            damage: damage.to_string(),
            cut_short: matches!(damage, CaptureError::Truncated { .. }),
            bytes: Some(len.saturating_sub(self.reader.position())),
            before: before.unwrap_or_default(),
            modified_ns: data.map_or(0, |data| data.modified_ns),
        }))
    }

    /// Whether there is a packet from these times, or damage. Extends `seen` to the times of all
    /// packets read.
    fn has_times(
        &mut self,
        times: TimeRange,
        seen: &mut Option<Covered>,
    ) -> Result<bool, ArchiveError> {
        loop {
            match self.reader.next() {
                Ok(Some(record)) => {
                    let time = record.time_ns;
                    let one = Covered { from_ns: time, to_ns: time };
                    *seen = Some(seen.map_or(one, |seen| seen.and(one)));
                    if times.contains(time) {
                        return Ok(true);
                    }
                }
                Err(error) if error.is_io() => {
                    return Err(ArchiveError::capture(&self.recording.sealed_path())(error));
                }
                Err(error) => return Ok(self.is_damage(&error)),
                Ok(None) => return Ok(false),
            }
        }
    }
}

/// Writes the index of a draft.
fn write(
    builder: &mut SegmentBuilder,
    file: NewFile<'_>,
    note: &mut Note,
) -> Result<(), ArchiveError> {
    let codec = CodecChoice::Fixed(tapdex_bitmap::Codec::Roaring);
    let (device, steps) = (&SharedDevice::new(None), &Steps::default());
    let with = With { device, parallel: Parallel::default(), steps };
    let written = builder.write(file, codec, note, with);
    written.map(drop).map_err(ArchiveError::index(file.path))
}

impl Archive {
    pub(super) fn drafts_folder(&self) -> PathBuf {
        self.folder.join(super::DRAFTS_NAME)
    }

    /// The files of drafts, and of those that are being written, the last first.
    pub(super) fn draft_files(&self) -> Result<Vec<(Recording, PathBuf)>, ArchiveError> {
        let folder = self.drafts_folder();
        let mut paths: Vec<PathBuf> = match self.storage.list(&folder) {
            Ok(paths) => paths,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(ArchiveError::io("list", &folder, error)),
        };
        paths.sort_unstable();
        let of_recording = |path: PathBuf| {
            let recording = self.recording(capture_name(&path).trim_start_matches('.'));
            is_recording(recording.name()).then_some((recording, path))
        };
        Ok(paths.into_iter().rev().filter_map(of_recording).collect())
    }

    /// Removes drafts that nobody needs: those of recordings that are gone, or indexed. A draft
    /// that cannot be removed does no harm, and the others are still removed.
    pub fn remove_drafts(&self) -> Result<(), ArchiveError> {
        let mut outcome = Ok(());
        let mut is_needed = HashMap::new();
        for (recording, path) in self.draft_files()? {
            let is_needed = is_needed
                .entry(recording)
                .or_insert_with_key(|found| found.open().is_ok() && !found.is_indexed());
            if !*is_needed {
                outcome = self.remove_if_there(&path).and(outcome);
            }
        }
        outcome
    }

    /// Adds drafts of all parts of recordings that are not indexed. Drafts are built in memory only
    /// if they have packets from these times. Indexes of a recording that come after a gap are
    /// taken out: drafts have their packets, too.
    pub(super) fn unindexed(
        &self,
        damaged: &[&str],
        times: TimeRange,
        survey: &mut Survey,
    ) -> Result<(), ArchiveError> {
        use rayon::iter::{IntoParallelIterator, ParallelIterator};
        let recordings = self.recordings()?;
        let names: HashSet<&str> = recordings.iter().map(Recording::name).collect();
        let mut parts: HashMap<String, Vec<usize>> = HashMap::new();
        for (place, segment) in survey.segments.iter().enumerate() {
            let name = capture_name(segment.path());
            if names.contains(name) {
                parts.entry(name.to_owned()).or_default().push(place);
            }
        }
        let mut behind_gaps = HashSet::new();
        let mut rest = Vec::new();
        for recording in &recordings {
            if damaged.contains(&recording.name()) {
                continue;
            }
            let note = |&place: &usize| survey.segments[place].note();
            let mut parts = parts.remove(recording.name()).unwrap_or_default();
            parts.sort_by_key(|place| note(place).source.part);
            let whole = chained(parts.iter().map(note));
            let last = parts[..whole].last().map(note);
            behind_gaps.extend(parts[whole..].iter().copied());
            if !last.is_some_and(|last| last.source.last) {
                rest.push((recording.clone(), last.cloned()));
            }
        }
        let mut places = 0..;
        survey.segments.retain(|_| places.next().is_none_or(|place| !behind_gaps.contains(&place)));
        let made: Vec<_> = match rest.len() {
            0 => return Ok(()),
            // Starting threads takes longer than reading most unfinished recordings.
            1 => rest.iter().map(|(r, after)| self.drafts(r, after.as_ref(), times)).collect(),
            _ => rest
                .into_par_iter()
                .map(|(recording, after)| self.drafts(&recording, after.as_ref(), times))
                .collect(),
        };
        for made in made {
            match made {
                Ok(made) => {
                    survey.segments.extend(made.segments);
                    survey.loose.extend(made.loose);
                    survey.gaps.extend(made.gaps);
                }
                Err(error) => survey.gaps.push(Gap::unknown(error)),
            }
        }
        Ok(())
    }

    /// Drafts of a recording, from behind an indexed part of it on.
    fn drafts(
        &self,
        recording: &Recording,
        after: Option<&Note>,
        times: TimeRange,
    ) -> Result<Survey, ArchiveError> {
        let mut drafts = match after {
            Some(_) => Vec::new(),
            None => recorded_drafts(&self.storage, recording),
        };
        let after = drafts.last().map(Segment::note).or(after);
        let (mut loose, mut gaps) = (Vec::new(), Vec::new());
        let last = after.map(|note| (note.time_min, note.time_max));
        if let Some(mut rest) = Drafter::after(self, recording, after)? {
            let mut packets = None;
            if times == TimeRange::ALL || rest.has_times(times, &mut packets)? {
                drafts.extend(rest.in_memory()?);
                let last_draft = drafts.last().map(|draft| (end_of(draft), draft.note().time_max));
                gaps.extend(rest.gap(last_draft.or(last)));
            }
            // Statistics behind the last packet, or about packets outside these times.
            let told = rest.reader.take_statistics();
            let recording = recording.name().to_owned();
            let (losses, covered) = (Loss::of(&told, 0), Covered::by(&told));
            loose.push(Loose { recording, losses, covered, packets });
        }
        let segments = drafts.into_iter().map(Arc::new).collect();
        Ok(Survey { segments, loose, gaps })
    }
}

/// The drafts that a recorder made of a recording, up to the first that cannot be used.
fn recorded_drafts(storage: &Arc<dyn Storage>, recording: &Recording) -> Vec<Segment> {
    let mut drafts: Vec<Segment> = Vec::new();
    let Ok(file) = recording.open() else { return drafts };
    for part in 0.. {
        let path = recording.draft_path(part);
        let Ok(draft) = Segment::open_draft(storage, &path, recording) else { break };
        let note = draft.note();
        let follows = match drafts.last() {
            Some(last) => note.follows(last.note()),
            None => note.is_first(),
        };
        let sum = ends_sum(file.file(), note.source.start, note.source.end);
        if !follows || !sum.is_ok_and(|sum| sum == Some(note.source.sum)) {
            break;
        }
        drafts.push(draft);
    }
    drafts
}
