//! Writing a segment whose packets were all read.

use std::path::Path;
use std::sync::Arc;

use super::stream::{Shared, WholeSegment};
use super::{Ingest, Run, Step};
use crate::archive::ArchiveError;
use crate::archive::builder::{Chunk, Decoder, NewFile, SegmentBuilder, With};
use crate::archive::note::Note;
use crate::archive::segment::ends_sum;
use crate::beneath::Rights;
use crate::capture::{CaptureError, CaptureReader, Layout};
use crate::parallel::Parallel;
use crate::storage::{Publish, ReadFile, Reader, Whose};

impl Ingest<'_> {
    /// Writes a segment; after the last one of a capture, removes what no longer belongs to it.
    pub(super) fn write_segment(
        &self,
        run: &Run<'_>,
        builder: &mut SegmentBuilder,
        whole: WholeSegment,
    ) -> Result<(), ArchiveError> {
        let WholeSegment { input, shared, mut source, layout, chunks, statistics, counting } =
            whole;
        let path = &shared.path;
        let failed = |error| ArchiveError::io("read", path, error);
        let sum = ends_sum(&shared.file, source.start, source.end).map_err(failed)?;
        source.sum = sum.unwrap_or(0);
        let head = match shared.with_sums {
            // The head of the file is the head of its first part.
            true if source.part == 0 => (0, head_sum(&shared.file, source.start).map_err(failed)?),
            _ => (source.start, 0),
        };
        let rights = self.rights(path)?;
        let fields = self.archive.settings().fields;
        let room = builder.sorted_room();
        let sorted = run.steps.time(Step::Sort, || run.device.sort(&chunks, fields, room));
        let chunks = match sorted {
            Some(_) => chunks,
            None => self.on_cpu(run, &shared, &layout, chunks)?,
        };
        run.unused(builder.start(chunks, head));
        if let Some(sorted) = sorted {
            builder.take_sorted(sorted);
        }
        let mut note = Note::new(source, (*layout).clone());
        builder.describe(&mut note);
        note.tell(&statistics);
        if !note.source.last {
            note.keep_counting(counting);
        }
        let index_path = self.archive.index_path(path, note.source.part);
        let index_bytes = self.write_index(run, builder, &mut note, (&index_path, rights))?;
        if shared.is_recording && !self.files().exists(path) {
            // Retention has removed it in the meantime.
            return self.archive.remove_if_there(&index_path);
        }
        if let Some(last) = run.parts.written(input, note.source.clone()) {
            self.clean_up(run, input, path, &last)?;
            // Drafts that cannot be removed do no harm.
            if shared.is_recording {
                drop(self.archive.remove_drafts());
            }
        }
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

    /// The same chunks, with their packets here: those that a device has are read again.
    fn on_cpu(
        &self,
        run: &Run<'_>,
        shared: &Shared,
        layout: &Layout,
        chunks: Vec<Chunk>,
    ) -> Result<Vec<Chunk>, ArchiveError> {
        let path = &shared.path;
        let mut decoder = Decoder::new(self.archive.settings().fields, &run.places);
        let mut records = 0;
        let read_again = |mut old: Chunk| {
            let before = records;
            records += old.records();
            if old.on_device().is_none() {
                return Ok(old);
            }
            // Gives the device's memory back.
            old.leave_device();
            let mut chunk = self.empty_chunk(run);
            let mut read = || -> Result<(), CaptureError> {
                let bytes = old.bytes_of_capture();
                let source = Reader::new(Arc::clone(&shared.file));
                let mut reader = CaptureReader::resume(source, layout.clone(), bytes.start)?;
                reader.stop_at(bytes.end);
                chunk.start(&mut decoder, &mut reader, shared.with_sums);
                chunk.read(&mut decoder, &mut reader, old.records(), bytes.end)?;
                if reader.position() < bytes.end {
                    // Behind the last packet there may be other blocks.
                    reader.next()?;
                }
                chunk.finish(&mut decoder, &mut reader);
                chunk.mark(before);
                Ok(())
            };
            read().map_err(ArchiveError::capture(path))?;
            if !chunk.has_places_of(&old) {
                let error = std::io::Error::other("the file has changed while it was read");
                return Err(ArchiveError::io("read", path, error));
            }
            Ok(chunk)
        };
        chunks.into_iter().map(read_again).collect()
    }

    /// Who may read what is made of a file: whoever may read that.
    fn rights(&self, path: &Path) -> Result<Rights, ArchiveError> {
        let file = self.files().open(path, Whose::Named);
        let file = file.map_err(|error| ArchiveError::io("open", path, error))?;
        let rights = file.file().rights();
        Ok(rights.map_err(|error| ArchiveError::io("read", path, error))?.and(Rights::GROUP))
    }

    /// Writes the index; returns its size.
    fn write_index(
        &self,
        run: &Run<'_>,
        builder: &mut SegmentBuilder,
        note: &mut Note,
        (path, rights): (&Path, Rights),
    ) -> Result<u64, ArchiveError> {
        let storage: &dyn Publish = match self.storage {
            Some(storage) => storage,
            None => self.files(),
        };
        let index_file = NewFile { storage, path, rights };
        let parallel = Parallel::new(run.pool.as_ref());
        let with = With { device: &run.device, parallel, steps: &run.steps };
        let written = builder.write(index_file, self.archive.settings().codec, note, with);
        written.map_err(ArchiveError::index(path))
    }
}

/// The checksum of the first bytes of a file.
fn head_sum(file: &dyn ReadFile, len: u64) -> std::io::Result<u32> {
    use std::io::Read;
    let mut bytes = Vec::new();
    Reader::new(file).take(len).read_to_end(&mut bytes)?;
    Ok(crc32c::crc32c(&bytes))
}
