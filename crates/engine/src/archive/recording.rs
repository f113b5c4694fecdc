//! Packet files that a recorder writes into the archive.
//!
//! ```text
//! packets/.rec-NUMBER-TIME.pcapng.part       being written; the writer holds a lock on it
//! packets/rec-NUMBER-TIME.pcapng             complete, and no longer changed
//! segments/rec-NUMBER-TIME.pcapng-PART.tdx   its index; until there is one, drafts are used
//! ```

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::note::{Note, SourceFile};
use super::segment::Segment;
use super::{Archive, ArchiveError};
use crate::capture::{CaptureError, CaptureReader};
use crate::storage::{ReadFile, Reader, Storage, Whose, WriteFile};
use crate::time::format_time;

const PREFIX: &str = "rec-";
const ENDING: &str = ".pcapng";
const UNFINISHED: &str = ".part";
/// The least number of files of a folder that the system lists in one call.
const LISTED_AT_ONCE: usize = 100;

/// A packet file of a recorder's, complete or not. Recordings are compared by where they are.
#[derive(Debug, Clone)]
pub struct Recording {
    name: String,
    folder: PathBuf,
    storage: Arc<dyn Storage>,
}

impl PartialEq for Recording {
    fn eq(&self, other: &Self) -> bool {
        (&self.name, &self.folder) == (&other.name, &other.folder)
    }
}

impl Eq for Recording {}

impl std::hash::Hash for Recording {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        (&self.name, &self.folder).hash(state);
    }
}

impl Recording {
    /// What it is called when it is complete. Names are in the order in which recordings began.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its number.
    pub fn number(&self) -> Option<u64> {
        recording_number(&self.name)
    }

    /// Where it is when it is complete.
    pub fn sealed_path(&self) -> PathBuf {
        self.folder.join(&self.name)
    }

    /// Where it is while it is being written.
    pub fn unfinished_path(&self) -> PathBuf {
        self.folder.join(format!(".{}{UNFINISHED}", self.name))
    }

    /// The index of a part of it.
    pub fn index_path(&self, part: u32) -> PathBuf {
        self.beside(super::SEGMENTS_NAME, part)
    }

    /// The draft of a part of it.
    pub(super) fn draft_path(&self, part: u32) -> PathBuf {
        self.beside(super::DRAFTS_NAME, part)
    }

    /// An index of a part of it in another folder of the archive.
    fn beside(&self, folder: &str, part: u32) -> PathBuf {
        let archive = self.folder.parent().unwrap_or(Path::new(""));
        archive.join(folder).join(super::index_name(&self.name, part))
    }

    /// Its packets, as the notes of drafts name them: where they are now, and where they will be.
    pub(super) fn as_source(&self) -> SourceFile {
        let near = self.unfinished_path();
        let near = std::path::absolute(&near).unwrap_or(near);
        SourceFile::new(&near, &self.sealed_path(), None)
    }

    /// Opens it to be read, wherever it is now.
    pub fn open(&self) -> io::Result<Reader> {
        let mut outcome = Err(io::ErrorKind::NotFound.into());
        // It may be renamed between two tries.
        for path in [self.sealed_path(), self.unfinished_path(), self.sealed_path()] {
            outcome = self.storage.open(&path, Whose::Own);
            match &outcome {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                _ => break,
            }
        }
        outcome
    }

    /// Whether it is complete.
    pub fn is_sealed(&self) -> bool {
        super::is_regular(&*self.storage, &self.sealed_path())
    }

    /// Whether it still has the name of an unfinished recording.
    pub fn is_unfinished(&self) -> bool {
        self.storage.exists(&self.unfinished_path())
    }

    /// Whether all parts of its index are there: from the first packet to the last, without a gap.
    pub fn is_indexed(&self) -> bool {
        let mut before = None::<Note>;
        for part in 0.. {
            let Ok(segment) = Segment::open(&self.storage, &self.index_path(part)) else {
                return false;
            };
            let note = segment.into_note();
            if !before.map_or(note.is_first(), |before| note.follows(&before)) {
                return false;
            }
            if note.source.last {
                return true;
            }
            before = Some(note);
        }
        false
    }
}

/// Whether a packet file of the archive is a recording, by its name.
pub(super) fn is_recording(name: &str) -> bool {
    name.starts_with(PREFIX) && name.ends_with(ENDING)
}

/// The number of a recording, by its name.
pub(crate) fn recording_number(name: &str) -> Option<u64> {
    name.strip_prefix(PREFIX)?.split('-').next()?.parse().ok()
}

/// What was done with an unfinished recording.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recovered {
    /// Where it is now; where it was, if it had no packet and is gone.
    pub path: PathBuf,
    /// Packets that it has.
    pub packets: u64,
    /// Bytes of an unfinished packet behind them, which were cut off.
    pub bytes_cut: u64,
}

impl Archive {
    /// A recording that is to begin now: its number is greater than `after`, and than those of all
    /// that are there.
    ///
    /// An archive that is gone is not created again: what is left may be the mount point of a disk
    /// that is no longer mounted.
    pub fn new_recording(&self, now_ns: u64, after: u64) -> Result<Recording, ArchiveError> {
        let folder = self.packets_folder();
        if !self.storage.has_name(&self.folder.join(super::SETTINGS_NAME)) {
            return Err(ArchiveError::NoArchive { path: self.folder.clone() });
        }
        let made = self.storage.make_folder(&folder);
        made.map_err(|error| ArchiveError::io("create", &folder, error))?;
        let numbers = self.recordings()?.into_iter().filter_map(|found| found.number());
        let last = numbers.max().unwrap_or(0).max(after);
        let time = format_time(now_ns / 1_000_000_000 * 1_000_000_000);
        let time = time.split('.').next().unwrap_or_default().replace(['-', ':'], "");
        let name = format!("{PREFIX}{:010}-{time}Z{ENDING}", last.saturating_add(1));
        Ok(Recording { name, folder, storage: Arc::clone(&self.storage) })
    }

    /// The recording of this name, whether it is there or not.
    pub fn recording(&self, name: &str) -> Recording {
        let (name, folder) = (name.to_owned(), self.packets_folder());
        Recording { name, folder, storage: Arc::clone(&self.storage) }
    }

    /// The recording that an index file is about; `None` if it is about something else.
    pub fn recording_of(&self, index_file: &Path) -> Option<Recording> {
        let name = super::file_names::capture_name(index_file);
        is_recording(name).then(|| self.recording(name))
    }

    /// All recordings, complete or not, in the order in which they began.
    pub fn recordings(&self) -> Result<Vec<Recording>, ArchiveError> {
        let folder = self.packets_folder();
        let mut names = BTreeSet::new();
        let entries = self.list_recordings(&mut names)?;
        if entries > LISTED_AT_ONCE {
            // A recording that is renamed between two system calls may be missed, but it is renamed
            // only once.
            self.list_recordings(&mut names)?;
        }
        let found = |name| {
            let (folder, storage) = (folder.clone(), Arc::clone(&self.storage));
            Recording { name, folder, storage }
        };
        Ok(names.into_iter().map(found).collect())
    }

    /// How many recordings are not indexed to their end, complete or not.
    pub fn unindexed_recordings(&self) -> Result<u64, ArchiveError> {
        let recordings = self.recordings()?;
        Ok(recordings.iter().filter(|recording| !recording.is_indexed()).count() as u64)
    }

    /// Completes recordings that a killed recorder has left unfinished: they are cut behind the
    /// last whole packet and get their name. Those that are being written are left alone. One
    /// without a packet is removed. Also returns what is wrong with those that could not be
    /// completed. Those left when `stop` is set stay as they are.
    pub fn seal_unfinished(
        &self,
        stop: &AtomicBool,
    ) -> Result<(Vec<Recovered>, Vec<ArchiveError>), ArchiveError> {
        let (mut recovered, mut failed) = (Vec::new(), Vec::new());
        for recording in self.recordings()? {
            let path = recording.unfinished_path();
            match seal(&recording, stop) {
                Ok(Some(done)) => recovered.push(done),
                Ok(None) => {}
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => failed.push(ArchiveError::io("complete", &path, error)),
            }
        }
        Ok((recovered, failed))
    }

    /// Completes a recording whose lock the caller holds, as
    /// [`seal_unfinished`](Self::seal_unfinished) does if nobody is writing it.
    pub fn seal_held(&self, recording: &Recording) -> io::Result<Recovered> {
        let file = self.storage.open_to_write(&recording.unfinished_path())?;
        complete(recording, &*file, &AtomicBool::new(false))
    }

    /// The prefix of the names of a packet file's indexes. For a file in the archive itself it is
    /// made from the file's name alone, so that archives can be moved.
    pub(super) fn index_stem(&self, packets: &Path) -> String {
        let ours = self.storage.real_path(&self.packets_folder()).ok();
        let parent = packets.parent().and_then(|parent| self.storage.real_path(parent).ok());
        match packets.file_name().and_then(|name| name.to_str()) {
            Some(name) if ours.is_some() && parent == ours => name.to_owned(),
            _ => super::file_names::segment_name(packets),
        }
    }

    /// Adds the names of all recordings; returns how many files are in the folder.
    fn list_recordings(&self, names: &mut BTreeSet<String>) -> Result<usize, ArchiveError> {
        let folder = self.packets_folder();
        let paths = match self.storage.list(&folder) {
            Ok(paths) => paths,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
            Err(error) => return Err(ArchiveError::io("list", &folder, error)),
        };
        for path in &paths {
            let Some(name) = path.file_name().and_then(|name| name.to_str()) else { continue };
            let unfinished = name.strip_prefix('.').and_then(|n| n.strip_suffix(UNFINISHED));
            let name = unfinished.unwrap_or(name);
            if is_recording(name) {
                names.insert(name.to_owned());
            }
        }
        Ok(paths.len())
    }
}

/// Completes a recording; `None` if it is being written, or is complete already.
fn seal(recording: &Recording, stop: &AtomicBool) -> io::Result<Option<Recovered>> {
    let path = recording.unfinished_path();
    let file = recording.storage.open_to_write(&path)?;
    // Its owner is writing it, or has completed it in the meantime.
    if !file.hold()? || !recording.storage.has_name(&path) {
        return Ok(None);
    }
    complete(recording, &*file, stop).map(Some)
}

/// Cuts a recording behind its last whole packet and gives it its name; one that has none is
/// removed.
fn complete(
    recording: &Recording,
    file: &dyn WriteFile,
    stop: &AtomicBool,
) -> io::Result<Recovered> {
    let (storage, path) = (&recording.storage, recording.unfinished_path());
    let len = file.metadata()?.len;
    let (packets, end) = whole_packets(file, stop)?;
    if packets == 0 {
        storage.remove(&path)?;
        return Ok(Recovered { path, packets, bytes_cut: len });
    }
    let sealed = recording.sealed_path();
    if storage.has_name(&sealed) {
        return Err(two_of_a_name());
    }
    file.cut(end)?;
    file.sync()?;
    storage.rename_new(&path, &sealed).map_err(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => two_of_a_name(),
        _ => error,
    })?;
    storage.sync_folder(&recording.folder)?;
    Ok(Recovered { path: sealed, packets, bytes_cut: len - end.min(len) })
}

fn two_of_a_name() -> io::Error {
    let what = "there is a complete recording of its name already; compare the two, and remove one";
    io::Error::new(io::ErrorKind::AlreadyExists, what)
}

/// How many whole packets there are, and where the file is to end. That is behind the last of them
/// if what follows is the start of another, or nothing but zeros, which file systems leave after a
/// loss of power. Anything else stays: somebody may want to look at it.
fn whole_packets(file: &dyn ReadFile, stop: &AtomicBool) -> io::Result<(u64, u64)> {
    let len = file.metadata()?.len;
    let mut reader = match CaptureReader::open(Reader::new(file)) {
        Ok(reader) => reader,
        Err(error) if error.is_io() => return Err(io::Error::other(error)),
        Err(CaptureError::Truncated { .. }) => return Ok((0, 0)),
        // Not written by a recorder, or nothing but zeros.
        Err(_) => return Ok((u64::from(!is_zero(file, 0, stop)?), len)),
    };
    let mut packets = 0;
    let outcome = loop {
        match reader.next() {
            Ok(Some(_)) if stop.load(Ordering::Relaxed) => return Err(interrupted()),
            Ok(Some(_)) => packets += 1,
            Ok(None) => break Ok(()),
            Err(error) => break Err(error),
        }
    };
    let end = reader.position();
    match outcome {
        Ok(()) | Err(CaptureError::Truncated { .. }) => Ok((packets, end)),
        Err(error) if error.is_io() => Err(io::Error::other(error)),
        Err(_) if is_zero(file, end, stop)? => Ok((packets, end)),
        // Count at least one, so that the file is kept.
        Err(_) => Ok((packets.max(1), len)),
    }
}

/// Whether a file has nothing but zeros from an offset on.
fn is_zero(file: &dyn ReadFile, mut offset: u64, stop: &AtomicBool) -> io::Result<bool> {
    let mut buffer = vec![0; 1 << 16];
    loop {
        if stop.load(Ordering::Relaxed) {
            return Err(interrupted());
        }
        match file.next_data(offset)? {
            Some(data) => offset = data,
            None => return Ok(true),
        }
        match file.read_at(&mut buffer, offset)? {
            0 => return Ok(true),
            len if buffer[..len].iter().any(|&byte| byte != 0) => return Ok(false),
            len => offset += len as u64,
        }
    }
}

fn interrupted() -> io::Error {
    io::Error::new(io::ErrorKind::Interrupted, "interrupted before it was complete")
}
