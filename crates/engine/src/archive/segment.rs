//! A segment: an index, and the packets that it describes.

use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::columns::Columns;
use super::error::{ArchiveError, NoteFault, PacketsFault};
use super::note::Note;
use super::recording::{Recording, is_recording};
use super::unread::{Unread, UnreadPackets};
use crate::capture::{CaptureReader, Record};
use crate::index::{Index, MARK_RECORDS, Piece, Pieces};
use crate::packet::LinkType;
use crate::storage::{ReadFile, Reader, Storage, Whose};

/// Bytes at each end of a segment's packets that identify them.
const SUM_BYTES: u64 = 4_096;

/// An index and the packets that it describes.
#[derive(Debug)]
pub struct Segment {
    storage: Arc<dyn Storage>,
    path: PathBuf,
    index: Index,
    note: Note,
    kind: SegmentKind,
}

/// Where the index of a segment is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SegmentKind {
    /// In the archive, for good.
    Indexed,
    /// Among the drafts.
    Draft,
    /// In memory only.
    InMemory,
}

impl Segment {
    /// Opens the index file of a segment. Its packets are not looked at.
    pub fn open(storage: &Arc<dyn Storage>, path: &Path) -> Result<Self, ArchiveError> {
        let index = Index::open_on(&**storage, path, Whose::Own);
        let index = index.map_err(ArchiveError::index(path))?;
        let bad = |fault| ArchiveError::BadNote { path: path.to_owned(), fault };
        let bytes = index.note().map_err(ArchiveError::index(path))?;
        let note = Note::from_bytes(bytes.ok_or_else(|| bad(NoteFault::Missing))?).map_err(bad)?;
        if index.rows() as usize > super::builder::RECORDS_MAX {
            return Err(bad(NoteFault::TooManyRows { rows: index.rows() }));
        }
        if note.records != u64::from(index.rows()) {
            return Err(bad(NoteFault::OtherRecords { records: note.records }));
        }
        let (storage, path) = (Arc::clone(storage), path.to_owned());
        Ok(Self { storage, path, index, note, kind: SegmentKind::Indexed })
    }

    /// Opens a draft of a recording.
    pub(super) fn open_draft(
        storage: &Arc<dyn Storage>,
        path: &Path,
        recording: &Recording,
    ) -> Result<Self, ArchiveError> {
        let mut draft = Self::open(storage, path)?;
        draft.kind = SegmentKind::Draft;
        // The recorder may see the archive in another place.
        draft.note.source.find_in(recording.as_source());
        Ok(draft)
    }

    /// A segment whose index is in memory only.
    pub(super) fn in_memory(
        storage: Arc<dyn Storage>,
        path: PathBuf,
        index: Index,
        note: Note,
    ) -> Self {
        Self { storage, path, index, note, kind: SegmentKind::InMemory }
    }

    /// Whether its index is in memory only: its packets were recorded a short while ago.
    pub fn is_in_memory(&self) -> bool {
        self.kind == SegmentKind::InMemory
    }

    /// Whether its packets are in a recording that is not indexed yet.
    pub fn is_draft(&self) -> bool {
        self.kind != SegmentKind::Indexed
    }

    /// The name of the recording that its packets are in; `None` if they were not recorded.
    pub fn recording_name(&self) -> Option<&str> {
        Some(super::file_names::capture_name(&self.path)).filter(|name| is_recording(name))
    }

    /// Whether retention has removed it since it was opened, packets and index.
    pub fn is_gone(&self) -> bool {
        // A draft is removed after its packets.
        (self.is_draft() || !self.storage.exists(&self.path))
            && !self.storage.exists(&self.packet_path())
    }

    /// Its index file, or the one that it will have.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its index.
    pub fn index(&self) -> &Index {
        &self.index
    }

    /// Its columns, by field.
    pub fn columns(&self) -> Columns<'_> {
        Columns::new(self)
    }

    /// What it says about itself.
    pub fn note(&self) -> &Note {
        &self.note
    }

    /// What it says about itself; drops the rest.
    pub(super) fn into_note(self) -> Note {
        self.note
    }

    /// The link type of an interface, and whether the capture has another byte order than this
    /// machine.
    pub fn link(&self, interface: u32) -> Option<(LinkType, bool)> {
        let layout = &self.note.layout;
        let link = LinkType(layout.interfaces.get(interface as usize)?.link);
        Some((link, layout.is_swapped(interface)))
    }

    /// The file with its packets, by the name that it has when it is complete.
    pub fn sealed_packet_path(&self) -> PathBuf {
        match self.is_draft() {
            true => self.note.source.absolute_path(),
            false => self.packet_path(),
        }
    }

    /// Where its packets are: the path relative to the index if there is a file, or else the
    /// absolute path.
    pub fn packet_path(&self) -> PathBuf {
        let folder = self.path.parent().unwrap_or(Path::new(""));
        let near = folder.join(self.note.source.path());
        if self.storage.exists(&near) { near } else { self.note.source.absolute_path() }
    }

    /// Opens its packets. An error if the file is gone, or is not the one that was indexed. If
    /// there are checksums of the packets, they show this for each packet.
    pub fn packets(&self) -> Result<Packets<'_>, ArchiveError> {
        let (path, file) = self.open_packets()?;
        let pieces = self.index.pieces().map_err(ArchiveError::index(&self.path))?;
        if pieces.is_none() {
            self.check_ends_of(&path, file.file())?;
        }
        let layout = self.note.layout.clone();
        let reader = CaptureReader::resume(file, layout, self.note.source.start)
            .map_err(ArchiveError::capture(&path))?;
        Ok(Packets { segment: self, path, reader, next: 0, pieces, last: None })
    }

    /// An error unless the first and the last bytes of its packets are those that were indexed.
    pub fn check_ends(&self) -> Result<(), ArchiveError> {
        let (path, file) = self.open_packets()?;
        self.check_ends_of(&path, file.file())
    }

    fn open_packets(&self) -> Result<(PathBuf, Reader), ArchiveError> {
        let mut path = self.packet_path();
        let mut opened = self.storage.open(&path, Whose::Named);
        if self.is_draft() && opened.is_err() {
            // A recording is renamed when it is complete, and that may happen just now.
            path = self.note.source.absolute_path();
            opened = self.storage.open(&path, Whose::Named);
        }
        match opened {
            Ok(file) => Ok((path, file)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                Err(ArchiveError::BadPackets { path, fault: PacketsFault::Missing })
            }
            Err(error) => Err(ArchiveError::io("open", &path, error)),
        }
    }

    fn check_ends_of(&self, path: &Path, file: &dyn ReadFile) -> Result<(), ArchiveError> {
        let source = &self.note.source;
        let sum = ends_sum(file, source.start, source.end);
        let sum = sum.map_err(|error| ArchiveError::io("read", path, error))?;
        if sum == Some(source.sum) {
            return Ok(());
        }
        Err(ArchiveError::BadPackets { path: path.to_owned(), fault: PacketsFault::Other })
    }
}

/// The checksum of the first and the last bytes of a range; `None` if the file does not have it.
pub(super) fn ends_sum(file: &dyn ReadFile, start: u64, end: u64) -> io::Result<Option<u32>> {
    let len = end.saturating_sub(start).min(SUM_BYTES);
    let mut sum = 0;
    let mut bytes = vec![0; usize::try_from(len).unwrap_or(0)];
    for offset in [start, end.saturating_sub(len)] {
        let mut reader = Reader::new(file);
        reader.seek(SeekFrom::Start(offset))?;
        match reader.read_exact(&mut bytes) {
            Ok(()) => sum = crc32c::crc32c_append(sum, &bytes),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
            Err(error) => return Err(error),
        }
    }
    Ok(Some(sum))
}

/// The packets of a segment, by their number in order of arrival.
#[derive(Debug)]
pub struct Packets<'a> {
    segment: &'a Segment,
    path: PathBuf,
    reader: CaptureReader<Reader>,
    /// The record that the reader would give next.
    next: u32,
    /// The checksums, if there are any.
    pieces: Option<Pieces<'a>>,
    /// The piece that was checked last, and whether it is what was indexed.
    last: Option<(u32, bool)>,
}

impl Packets<'_> {
    /// Passes each of some packets, given in ascending order of their numbers, to `each`, which
    /// returns whether to go on. If there are checksums, all packets of a mark are checked before
    /// the first of them is passed on. If they differ, none of them is passed on, and they are
    /// returned.
    pub fn for_each(
        &mut self,
        records: impl IntoIterator<Item = u32>,
        each: &mut dyn FnMut(u32, &Record<'_>) -> Result<bool, ArchiveError>,
    ) -> Result<UnreadPackets, ArchiveError> {
        let segment = self.segment;
        let mut unread = UnreadPackets::default();
        let failed = ArchiveError::index(&segment.path);
        let Some(marks) = segment.index.marks().map_err(failed)? else {
            let (path, fault) = (segment.path.clone(), NoteFault::NoMarks);
            return Err(ArchiveError::BadNote { path, fault });
        };
        for record in records {
            let mark = record / MARK_RECORDS;
            if let Some(pieces) = self.pieces
                && self.last.is_none_or(|(last, _)| last != mark)
            {
                let piece = pieces.get(mark).map_err(ArchiveError::index(&segment.path))?;
                self.check(mark, &piece, &mut unread)?;
            }
            if self.last == Some((mark, false)) {
                continue;
            }
            // Continue from the last packet, if there is no mark in between.
            if self.next > record || self.next < mark * MARK_RECORDS {
                let mark = marks.get(mark).map_err(ArchiveError::index(&segment.path))?;
                self.reader.seek(mark.offset).map_err(ArchiveError::capture(&self.path))?;
                self.next = record / MARK_RECORDS * MARK_RECORDS;
            }
            loop {
                let found = match self.reader.next() {
                    Ok(Some(found)) => found,
                    Ok(None) => {
                        let (path, fault) = (self.path.clone(), PacketsFault::EndsEarly);
                        return Err(ArchiveError::BadPackets { path, fault });
                    }
                    Err(error) => return Err(ArchiveError::capture(&self.path)(error)),
                };
                self.next += 1;
                if self.next > record {
                    if !each(record, &found)? {
                        return Ok(unread);
                    }
                    break;
                }
            }
        }
        Ok(unread)
    }

    /// Compares a piece with its checksum. Afterwards the reader is at the start of the piece, or
    /// before it with no packet in between.
    fn check(
        &mut self,
        mark: u32,
        piece: &Piece,
        unread: &mut UnreadPackets,
    ) -> Result<(), ArchiveError> {
        let first = mark * MARK_RECORDS;
        let follows = mark.checked_sub(1).is_some_and(|before| self.last == Some((before, true)));
        let goes_on = follows && self.next == first && self.reader.position() <= piece.bytes.start;
        if !goes_on {
            self.reader.seek(piece.bytes.start).map_err(ArchiveError::capture(&self.path))?;
            self.next = first;
        }
        let sum = self.reader.sum_ahead(&piece.bytes);
        let is_sound = sum.map_err(ArchiveError::capture(&self.path))? == Some(piece.sum);
        self.last = Some((mark, is_sound));
        if !is_sound {
            let rows = self.segment.index.rows();
            let last = first.saturating_add(MARK_RECORDS).min(rows);
            let number = |n: u32| self.segment.note.source.records_before.saturating_add(n.into());
            let packets = number(first)..number(last);
            unread.add(Unread::new(self.path.clone(), piece.bytes.clone(), packets));
        }
        Ok(())
    }

    /// Compares what lies before the first packet with its checksum, if it has one.
    pub fn check_head(&mut self) -> Result<UnreadPackets, ArchiveError> {
        let mut unread = UnreadPackets::default();
        let Some(pieces) = self.pieces else { return Ok(unread) };
        let head = pieces.head().map_err(ArchiveError::index(&self.segment.path))?;
        let failed = || ArchiveError::capture(&self.path);
        self.reader.seek(head.bytes.start).map_err(failed())?;
        if self.reader.sum_ahead(&head.bytes).map_err(failed())? != Some(head.sum) {
            let first = self.segment.note.source.records_before;
            unread.add(Unread::new(self.path.clone(), head.bytes, first..first));
        }
        self.reader.seek(self.segment.note.source.start).map_err(failed())?;
        (self.next, self.last) = (0, None);
        Ok(unread)
    }
}
