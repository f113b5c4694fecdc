//! Whether a capture is new, unchanged or partly indexed, and where to read on.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;

use super::copy::{Counted, StreamToCopy};
use super::{Ingest, Input, Run};
use crate::archive::ArchiveError;
use crate::archive::file_names::{capture_name, copy_name, relative, segment_name};
use crate::archive::note::{Note, SourceFile, chained};
use crate::archive::recording::is_recording;
use crate::archive::segment::{Segment, ends_sum};
use crate::beneath::{Rights, open_stream};
use crate::capture::blocks::Statistics;
use crate::capture::{CaptureReader, Compression, decompress};
use crate::lock;
use crate::storage::{Metadata, ReadFile, Reader, Whose};

/// The segments of captures, by the path of the capture: their index files and notes.
pub(super) type Known = BTreeMap<PathBuf, Vec<(PathBuf, Note)>>;

/// A capture that is being read, and where it goes on.
pub(super) struct OpenCapture {
    pub(super) reader: CaptureReader<Reader>,
    /// What all its segments say about it.
    pub(super) source: SourceFile,
    pub(super) path: PathBuf,
    /// What was wrong with the stream, if this is our copy of one.
    pub(super) broken: Option<String>,
    /// It is a recording of this archive.
    pub(super) is_recording: bool,
    /// Its packets get checksums.
    pub(super) with_sums: bool,
    /// The last counters of interfaces that later statistics may continue.
    pub(super) counting: Vec<(u32, Statistics)>,
}

/// The compressed capture that a copy was made of.
struct Origin<'a> {
    path: &'a Path,
    len: u64,
    modified_ns: u64,
}

impl Ingest<'_> {
    /// The existing segments, by the capture that they were made from.
    pub(super) fn known(&self, inputs: &[Input]) -> Result<Known, ArchiveError> {
        let folder = self.archive.segments_folder();
        // The segments of recordings are known by their names.
        let recording = |input: &Input| match input {
            Input::File(path) => Some(self.archive.index_stem(path)).filter(|n| is_recording(n)),
            Input::Stdin(_) => None,
        };
        let recordings: Option<BTreeSet<String>> = inputs.iter().map(recording).collect();
        let is_wanted = |path: &Path| match &recordings {
            Some(names) => names.contains(capture_name(path)),
            None => true,
        };
        let mut known = Known::new();
        for path in self.archive.index_files()?.into_iter().filter(|path| is_wanted(path)) {
            // A segment that cannot be opened does not count: its capture is indexed again.
            let Ok(segment) = Segment::open(self.archive.storage(), &path) else { continue };
            let note = segment.note();
            let origin = folder.join(note.source.origin());
            let origin = self.archive.real_path(origin);
            known.entry(origin).or_default().push((path, note.clone()));
        }
        known.values_mut().for_each(|parts| parts.sort_by_key(|(_, note)| note.source.part));
        Ok(known)
    }

    /// Opens a capture, or goes on where its last segment ends; `None` if there is nothing to do.
    pub(super) fn open(
        &self,
        run: &Run<'_>,
        input: usize,
    ) -> Result<Option<OpenCapture>, ArchiveError> {
        let path = match &run.inputs[input] {
            Input::Stdin(name) => {
                run.report(input, |report| report.path = name.into());
                return self.open_stream(run, Path::new("/dev/stdin"), name).map(Some);
            }
            Input::File(path) => path,
        };
        run.report(input, |report| report.path = path.clone());
        let failed = |what| move |error| ArchiveError::io(what, path, error);
        let origin = self.files().real_path(path).map_err(failed("open"))?;
        let metadata = self.files().metadata(&origin, Whose::Named).map_err(failed("read"))?;
        if metadata.is_folder() {
            return Err(failed("read")(io::ErrorKind::IsADirectory.into()));
        }
        if !metadata.is_file() {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            return self.open_stream(run, path, &name).map(Some);
        }
        // If it was given twice, two threads would get in each other's way.
        if !lock(&run.taken).insert(origin.clone()) {
            run.report(input, |report| report.skipped = true);
            return Ok(None);
        }
        if let Some(last) = self.unchanged(run, &origin, &metadata) {
            run.meter.add(last.source.end, 0);
            if last.source.last {
                run.report(input, |report| report.skipped = true);
                return Ok(None);
            }
            return self.resume(last).map(Some);
        }
        let mut file = self.files().open(&origin, Whose::Named).map_err(failed("open"))?;
        let rights = file.file().rights().map_err(failed("read"))?.and(Rights::GROUP);
        let mut plain = decompress(&mut file).map_err(ArchiveError::capture(&origin))?;
        if plain.compression() == Compression::None {
            return self.start(&origin, None).map(Some);
        }
        let copy = self.copy_path(&copy_name(self.files(), &origin));
        let packed = AtomicU64::new(metadata.len);
        let stream = StreamToCopy { bytes: &mut plain, name: &origin, packed: Some(&packed) };
        let broken = self.copy(run, stream, &copy, rights)?;
        let Metadata { len, modified_ns, .. } = metadata;
        let origin = Origin { path: &origin, len, modified_ns };
        let mut capture = self.start(&copy, Some(origin))?;
        capture.broken = broken;
        Ok(Some(capture))
    }

    /// The note of the last segment of a capture, if its segments still fit the capture.
    fn unchanged<'r>(
        &self,
        run: &'r Run<'_>,
        origin: &Path,
        metadata: &Metadata,
    ) -> Option<&'r Note> {
        if self.force {
            return None;
        }
        let known = run.known.get(origin)?;
        let version = (metadata.len, metadata.modified_ns);
        let is_current = |source: &SourceFile| (source.len, source.modified_ns) == version;
        let holds = chained(known.iter().map(|(_, note)| note)) == known.len()
            && known.iter().all(|(_, note)| is_current(&note.source))
            && self.has_same_packets(known);
        known.last().filter(|_| holds).map(|(_, note)| note)
    }

    /// Goes on behind the last segment of a capture.
    fn resume(&self, last: &Note) -> Result<OpenCapture, ArchiveError> {
        let mut source = last.source.clone();
        let path = self.archive.segments_folder().join(source.path());
        let failed = |path: &Path, error| ArchiveError::io("open", path, error);
        let path = self.files().real_path(&path).map_err(|e| failed(&path, e))?;
        let file = self.files().open(&path, Whose::Named).map_err(|e| failed(&path, e))?;
        let reader = CaptureReader::resume(file, last.layout.clone(), source.end)
            .map_err(ArchiveError::capture(&path))?;
        source.go_on(last);
        Ok(self.reading(reader, source, path, last.counting().collect()))
    }

    /// Whether the packets of segments are those that were indexed.
    fn has_same_packets(&self, known: &[(PathBuf, Note)]) -> bool {
        let folder = self.archive.segments_folder();
        known.iter().all(|(_, note)| {
            let source = &note.source;
            let file = self.files().open(&folder.join(source.path()), Whose::Named);
            let sum = file.and_then(|file| ends_sum(file.file(), source.start, source.end));
            sum.is_ok_and(|sum| sum == Some(source.sum))
        })
    }

    /// Copies a stream into the archive, under a name that nothing there has.
    fn open_stream(
        &self,
        run: &Run<'_>,
        stream: &Path,
        name: &str,
    ) -> Result<OpenCapture, ArchiveError> {
        let names = std::iter::once(name.to_owned()).chain((2..).map(|n| format!("{name}-{n}")));
        let mut paths = names.map(|name| self.copy_path(&segment_name(Path::new(&name))));
        let copy = paths.find(|path| !self.files().has_name(path)).unwrap_or_default();
        let file = open_stream(stream).map_err(|e| ArchiveError::io("open", stream, e))?;
        let metadata = file.metadata().map_err(|e| ArchiveError::io("read", stream, e))?;
        // The permissions of a pipe mean nothing; those of a file on standard input do.
        let rights = match metadata.is_file() {
            true => Rights::of(&file).map_err(|e| ArchiveError::io("read", stream, e))?,
            false => Rights::GROUP,
        };
        let rights = rights.and(Rights::GROUP);
        let read = AtomicU64::new(0);
        let mut plain =
            decompress(Counted::new(file, &read)).map_err(ArchiveError::capture(stream))?;
        let packed = (plain.compression() != Compression::None).then_some(&read);
        let to_copy = StreamToCopy { bytes: &mut plain, name: stream, packed };
        let broken = self.copy(run, to_copy, &copy, rights)?;
        let capture = self.start(&copy, None);
        if matches!(&capture, Err(ArchiveError::Capture { source, .. }) if !source.is_io()) {
            // Not a capture, so not worth keeping.
            drop(self.files().remove(&copy));
        }
        let mut capture = capture?;
        capture.broken = broken;
        Ok(capture)
    }

    /// Starts with the first packet of a file.
    fn start(&self, path: &Path, origin: Option<Origin<'_>>) -> Result<OpenCapture, ArchiveError> {
        let failed = |what| move |error| ArchiveError::io(what, path, error);
        let path = self.files().real_path(path).map_err(failed("open"))?;
        let file = self.files().open(&path, Whose::Named).map_err(failed("open"))?;
        let metadata = file.file().metadata().map_err(failed("read"))?;
        let reader = CaptureReader::open(file).map_err(ArchiveError::capture(&path))?;
        let folder = self.archive.segments_folder();
        let folder =
            self.files().real_path(&folder).map_err(|e| ArchiveError::io("open", &folder, e))?;
        let near = |path: &Path| relative(&folder, path);
        let near_origin = origin.as_ref().map(|origin| near(origin.path));
        let mut source = SourceFile::new(&near(&path), &path, near_origin.as_deref());
        (source.len, source.modified_ns) = match origin {
            Some(origin) => (origin.len, origin.modified_ns),
            None => (metadata.len, metadata.modified_ns),
        };
        source.start = reader.position();
        Ok(self.reading(reader, source, path, Vec::new()))
    }

    /// A capture that is read from where its reader is.
    fn reading(
        &self,
        reader: CaptureReader<Reader>,
        source: SourceFile,
        path: PathBuf,
        counting: Vec<(u32, Statistics)>,
    ) -> OpenCapture {
        let is_recording = is_recording(&self.archive.index_stem(&path));
        let with_sums = self.archive.settings().sums || is_recording;
        OpenCapture { reader, source, path, broken: None, is_recording, with_sums, counting }
    }
}
