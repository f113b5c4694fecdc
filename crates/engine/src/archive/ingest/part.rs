//! One part of a capture becomes one segment.

use std::path::{Path, PathBuf};

use super::open::OpenCapture;
use super::schedule::{Job, Running};
use super::{Ingest, Run};
use crate::archive::ArchiveError;
use crate::archive::builder::{NewFile, SegmentBuilder};
use crate::archive::note::Note;
use crate::archive::recording::is_recording;
use crate::archive::segment::ends_sum;
use crate::beneath::Rights;
use crate::capture::CaptureError;
use crate::storage::{Publish, ReadFile, Whose};

/// Packets between two checks of the clock and of whether to stop.
const STEP_RECORDS: usize = 1 << 14;

/// A part that was read: the note of its segment, and who may read it.
struct PartRead {
    packets: PathBuf,
    is_recording: bool,
    note: Note,
    rights: Rights,
}

impl Ingest<'_> {
    /// Indexes the next part of a capture, and opens it before if it is the first. As soon as the
    /// part is read, another thread can take the part after it.
    pub(super) fn index_part(
        &self,
        run: &Run<'_>,
        builder: &mut SegmentBuilder,
        input: usize,
        capture: Option<OpenCapture>,
        running: &mut Running<'_>,
    ) -> Result<(), ArchiveError> {
        let capture = match capture {
            Some(capture) => Some(capture),
            None => self.open(run, input)?,
        };
        let Some(mut capture) = capture else { return Ok(()) };
        // Before the part after it can begin.
        run.parts.begin(input);
        let part = self.read_part(run, builder, &mut capture)?;
        let next = (!part.note.source.last).then(|| {
            capture.source.go_on(&part.note);
            Job { input, capture: Some(capture) }
        });
        running.end(next);
        let index_path = self.archive.index_path(&part.packets, part.note.source.part);
        let index_bytes = self.write_part(run, builder, &part, &index_path)?;
        if part.is_recording && !self.files().exists(&part.packets) {
            // Retention has removed it in the meantime.
            return self.archive.remove_if_there(&index_path);
        }
        if let Some(last) = run.parts.written(input, part.note.source.clone()) {
            self.clean_up(run, input, &part.packets, &last)?;
            // Drafts that cannot be removed do no harm.
            if part.is_recording {
                drop(self.archive.remove_drafts());
            }
        }
        let note = part.note;
        run.report(input, |report| {
            report.packets += note.records;
            report.wire_bytes += note.wire_bytes;
            report.index_bytes += index_bytes;
            report.segments += 1;
            if !note.source.damage.is_empty() {
                report.damage = Some(note.source.damage);
            }
        });
        Ok(())
    }

    /// Reads packets until the segment is full or the capture ends.
    fn read_part(
        &self,
        run: &Run<'_>,
        builder: &mut SegmentBuilder,
        capture: &mut OpenCapture,
    ) -> Result<PartRead, ArchiveError> {
        builder.clear();
        let is_recording = is_recording(&self.archive.index_stem(&capture.path));
        if self.archive.settings().sums || is_recording {
            // The head of the file is the head of its first part.
            let start = if capture.source.part == 0 { 0 } else { capture.source.start };
            builder.start_sums(&mut capture.reader, start);
        }
        let ended = self.fill(run, builder, capture)?;
        builder.end_sums(&mut capture.reader);
        let packets = capture.path.clone();
        let (note, rights) = self.describe(builder, capture, ended)?;
        Ok(PartRead { packets, is_recording, note, rights })
    }

    /// The note of the segment, and who may read it: whoever may read the packets.
    fn describe(
        &self,
        builder: &mut SegmentBuilder,
        capture: &mut OpenCapture,
        ended: Option<CaptureError>,
    ) -> Result<(Note, Rights), ArchiveError> {
        let failed = |what| {
            let path = &capture.path;
            move |error| ArchiveError::io(what, path, error)
        };
        let file = self.files().open(&capture.path, Whose::Named).map_err(failed("open"))?;
        let len = file.file().metadata().map_err(failed("read"))?.len;
        let rights = file.file().rights().map_err(failed("read"))?.and(Rights::GROUP);
        let mut source = capture.source.clone();
        source.end = capture.reader.position();
        let sum = ends_sum(file.file(), source.start, source.end).map_err(failed("read"))?;
        source.sum = sum.unwrap_or(0);
        // A full segment may still be the last one.
        source.last = !builder.is_full(&self.limits()) || source.end == len;
        source.cut_short = matches!(ended, Some(CaptureError::Truncated { .. }));
        let mut damage = ended.map(|error| error.to_string());
        if source.last && damage.is_none() {
            damage = capture.broken.take();
        }
        source.damage = damage.unwrap_or_default();
        let is_last = source.last;
        let mut note = Note::new(source, capture.reader.layout().clone());
        builder.describe(&mut note);
        note.tell(&capture.reader.take_statistics());
        if !is_last {
            note.keep_counting(capture.reader.counting());
        }
        Ok((note, rights))
    }

    /// Writes the index; returns its size.
    fn write_part(
        &self,
        run: &Run<'_>,
        builder: &mut SegmentBuilder,
        part: &PartRead,
        path: &Path,
    ) -> Result<u64, ArchiveError> {
        let codec = self.archive.settings().codec;
        let storage: &dyn Publish = match self.storage {
            Some(storage) => storage,
            None => self.files(),
        };
        let index_file = NewFile { storage, path, rights: part.rights };
        let written = builder.write(index_file, codec, &part.note, &run.device);
        written.map_err(ArchiveError::index(path))
    }

    /// Reads packets until the segment is full or the capture ends. Returns what is wrong with the
    /// capture, if it ends for that reason.
    fn fill(
        &self,
        run: &Run<'_>,
        builder: &mut SegmentBuilder,
        capture: &mut OpenCapture,
    ) -> Result<Option<CaptureError>, ArchiveError> {
        let limits = self.limits();
        let mut position_before = capture.reader.position();
        loop {
            let records_before = builder.records();
            let step = STEP_RECORDS.min(limits.records - records_before);
            let ended = take_records(builder, capture, step);
            let position = capture.reader.position();
            let packets = builder.records() - records_before;
            run.meter.add(position.saturating_sub(position_before), packets as u64);
            position_before = position;
            self.tell(run);
            if self.is_stopped() {
                return Err(ArchiveError::Interrupted);
            }
            match ended {
                Ok(true) if builder.is_full(&limits) => return Ok(None),
                Ok(true) => {}
                Ok(false) => return Ok(None),
                Err(error) if error.is_io() => {
                    return Err(ArchiveError::capture(&capture.path)(error));
                }
                Err(error) => return Ok(Some(error)),
            }
        }
    }
}

/// Takes in this many packets; returns whether there may be more.
fn take_records(
    builder: &mut SegmentBuilder,
    capture: &mut OpenCapture,
    records: usize,
) -> Result<bool, CaptureError> {
    for _ in 0..records {
        if !builder.take(&mut capture.reader)? {
            return Ok(false);
        }
    }
    Ok(true)
}
