//! Packet files that a recorder writes into the archive.
//!
//! ```text
//! packets/.rec-NUMBER-TIME.pcapng.part       being written; the writer holds a lock on it
//! packets/rec-NUMBER-TIME.pcapng             complete, and not changed any more
//! segments/rec-NUMBER-TIME.pcapng-PART.tdx   its index; as long as there is none, drafts do
//! ```

use std::collections::BTreeSet;
use std::fs::{File, TryLockError};
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::io::Errno;

use super::note::{Note, SourceFile};
use super::segment::Segment;
use super::{Archive, ArchiveError};
use crate::beneath::{Root, cut, open_own};
use crate::capture::{CaptureError, CaptureReader};
use crate::storage::Storage;
use crate::time::format_time;

const PREFIX: &str = "rec-";
const ENDING: &str = ".pcapng";
const UNFINISHED: &str = ".part";
/// Files of a folder that the system tells of in one call, at least.
const LISTED_AT_ONCE: usize = 100;

/// A packet file of a recorder's, complete or not.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Recording {
    name: String,
    folder: PathBuf,
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

    /// Where it is as long as it is written.
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

    /// Its packets, as drafts speak of them: where they are now, and where they will be.
    pub(super) fn as_source(&self) -> SourceFile {
        let near = self.unfinished_path();
        let near = std::path::absolute(&near).unwrap_or(near);
        SourceFile::new(&near, &self.sealed_path(), None)
    }

    /// Opens it to be read, wherever it is now.
    pub fn open(&self) -> io::Result<File> {
        let mut outcome = Err(io::ErrorKind::NotFound.into());
        // It may get its name between two looks.
        for path in [self.sealed_path(), self.unfinished_path(), self.sealed_path()] {
            outcome = open_own(&path);
            match &outcome {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                _ => break,
            }
        }
        outcome
    }

    /// Whether it is complete.
    pub fn is_sealed(&self) -> bool {
        super::is_regular(&self.sealed_path())
    }

    /// Whether all parts of its index are there: from the first packet to the last, without a gap.
    pub fn is_indexed(&self) -> bool {
        let mut before = None::<Note>;
        for part in 0.. {
            let Ok(segment) = Segment::open(&self.index_path(part)) else { return false };
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

/// What became of a recording that was not finished.
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
    /// An archive that is gone is not made again: what is left may be a folder that another disk
    /// was mounted on.
    pub fn new_recording(&self, now_ns: u64, after: u64) -> Result<Recording, ArchiveError> {
        let folder = self.packets_folder();
        if !self.root.exists(&self.folder.join(super::SETTINGS_NAME)) {
            return Err(ArchiveError::NoArchive { path: self.folder.clone() });
        }
        let made = self.root.make_folder(&folder);
        made.map_err(|error| ArchiveError::io("create", &folder, error))?;
        let numbers = self.recordings()?.into_iter().filter_map(|found| found.number());
        let last = numbers.max().unwrap_or(0).max(after);
        let time = format_time(now_ns / 1_000_000_000 * 1_000_000_000);
        let time = time.split('.').next().unwrap_or_default().replace(['-', ':'], "");
        let name = format!("{PREFIX}{:010}-{time}Z{ENDING}", last.saturating_add(1));
        Ok(Recording { name, folder })
    }

    /// The recording of this name, whether it is there or not.
    pub fn recording(&self, name: &str) -> Recording {
        Recording { name: name.to_owned(), folder: self.packets_folder() }
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
        let entries = list_recordings(&folder, &mut names)?;
        if entries > LISTED_AT_ONCE {
            // One that gets its name between two calls of the system may be left out, but it gets
            // it only once.
            list_recordings(&folder, &mut names)?;
        }
        Ok(names.into_iter().map(|name| Recording { name, folder: folder.clone() }).collect())
    }

    /// How many recordings are not indexed to their end, complete or not.
    pub fn unindexed_recordings(&self) -> Result<u64, ArchiveError> {
        let recordings = self.recordings()?;
        Ok(recordings.iter().filter(|recording| !recording.is_indexed()).count() as u64)
    }

    /// Completes recordings that a killed recorder has left unfinished: they are cut behind the
    /// last whole packet and get their name. Those that somebody writes are left alone. One without
    /// a packet is removed. Also returns what is wrong with those that could not be completed. What
    /// is left when `stop` is set stays as it is.
    pub fn seal_unfinished(
        &self,
        stop: &AtomicBool,
    ) -> Result<(Vec<Recovered>, Vec<ArchiveError>), ArchiveError> {
        let (mut recovered, mut failed) = (Vec::new(), Vec::new());
        for recording in self.recordings()? {
            let path = recording.unfinished_path();
            match seal(&self.root, &recording, stop) {
                Ok(Some(done)) => recovered.push(done),
                Ok(None) => {}
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => failed.push(ArchiveError::io("complete", &path, error)),
            }
        }
        Ok((recovered, failed))
    }

    /// Completes a recording whose lock the caller holds, as
    /// [`seal_unfinished`](Self::seal_unfinished) would one that nobody writes.
    pub fn seal_held(&self, recording: &Recording) -> io::Result<Recovered> {
        let file = self.root.write(&recording.unfinished_path())?;
        complete(&self.root, recording, file, &AtomicBool::new(false))
    }

    /// What the indexes of a packet file are called. Those of a file in the archive itself go by
    /// its name alone, so that archives can be moved.
    pub(super) fn index_stem(&self, packets: &Path) -> String {
        let ours = self.packets_folder().canonicalize().ok();
        let parent = packets.parent().and_then(|parent| parent.canonicalize().ok());
        match packets.file_name().and_then(|name| name.to_str()) {
            Some(name) if ours.is_some() && parent == ours => name.to_owned(),
            _ => super::file_names::segment_name(packets),
        }
    }
}

/// Adds the names of all recordings in a folder, and says how many files there are.
fn list_recordings(folder: &Path, names: &mut BTreeSet<String>) -> Result<usize, ArchiveError> {
    let entries = match std::fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
        Err(error) => return Err(ArchiveError::io("list", folder, error)),
    };
    let mut count = 0;
    for entry in entries {
        let entry = entry.map_err(|error| ArchiveError::io("list", folder, error))?;
        count += 1;
        let name = entry.file_name();
        let Some(name) = name.to_str() else { continue };
        let unfinished = name.strip_prefix('.').and_then(|n| n.strip_suffix(UNFINISHED));
        let name = unfinished.unwrap_or(name);
        if is_recording(name) {
            names.insert(name.to_owned());
        }
    }
    Ok(count)
}

/// Completes a recording; `None` if somebody writes it, or it is complete.
fn seal(root: &Root, recording: &Recording, stop: &AtomicBool) -> io::Result<Option<Recovered>> {
    let path = recording.unfinished_path();
    let file = root.write(&path)?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => return Ok(None),
        Err(TryLockError::Error(error)) => return Err(error),
    }
    if !root.exists(&path) {
        // Its owner has completed it in the meantime.
        return Ok(None);
    }
    complete(root, recording, file, stop).map(Some)
}

/// Cuts a recording behind its last whole packet and gives it its name; one that has none is
/// removed.
fn complete(
    root: &Root,
    recording: &Recording,
    mut file: File,
    stop: &AtomicBool,
) -> io::Result<Recovered> {
    let path = recording.unfinished_path();
    let len = file.metadata()?.len();
    let (packets, end) = whole_packets(&mut file, stop)?;
    if packets == 0 {
        root.remove(&path)?;
        return Ok(Recovered { path, packets, bytes_cut: len });
    }
    let sealed = recording.sealed_path();
    if root.exists(&sealed) {
        return Err(two_of_a_name());
    }
    cut(&file, end)?;
    file.sync_all()?;
    root.rename_new(&path, &sealed).map_err(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => two_of_a_name(),
        _ => error,
    })?;
    root.sync_folder(&recording.folder)?;
    Ok(Recovered { path: sealed, packets, bytes_cut: len - end.min(len) })
}

fn two_of_a_name() -> io::Error {
    let what = "there is a complete recording of its name already; compare the two, and remove one";
    io::Error::new(io::ErrorKind::AlreadyExists, what)
}

/// How many whole packets there are, and where the file is to end. That is behind the last of them
/// if what follows is the start of another, or nothing but zeros, which file systems leave after a
/// loss of power. Anything else stays: somebody may want to look at it.
fn whole_packets(file: &mut File, stop: &AtomicBool) -> io::Result<(u64, u64)> {
    let len = file.metadata()?.len();
    let mut reader = match CaptureReader::open(&mut *file) {
        Ok(reader) => reader,
        Err(error) if error.is_io() => return Err(io::Error::other(error)),
        Err(CaptureError::Truncated { .. }) => return Ok((0, 0)),
        // Not written by a recorder, or zeros from the start on.
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
        // At least one, so that it is kept.
        Err(_) => Ok((packets.max(1), len)),
    }
}

/// Whether a file has nothing but zeros from an offset on.
fn is_zero(file: &mut File, mut offset: u64, stop: &AtomicBool) -> io::Result<bool> {
    let mut buffer = vec![0; 1 << 16];
    loop {
        if stop.load(Ordering::Relaxed) {
            return Err(interrupted());
        }
        // Holes, which may be larger than any disk, are passed over.
        match rustix::fs::seek(&*file, rustix::fs::SeekFrom::Data(offset)) {
            Ok(data) => offset = data,
            Err(Errno::NXIO) => return Ok(true),
            Err(_) => offset = file.seek(SeekFrom::Start(offset))?,
        }
        match file.read(&mut buffer)? {
            0 => return Ok(true),
            len if buffer[..len].iter().any(|&byte| byte != 0) => return Ok(false),
            len => offset += len as u64,
        }
    }
}

fn interrupted() -> io::Error {
    io::Error::new(io::ErrorKind::Interrupted, "interrupted before it was complete")
}
