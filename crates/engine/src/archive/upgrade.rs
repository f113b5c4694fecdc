//! Writing segments of version 1 anew, in the version that is written now.
//!
//! Everything that the new index has follows from the old one, so packets are not read, and need
//! not be there. What the old one does not have is the length of each packet, unless `frame.len`
//! was kept: then the bytes of flows are left out, and are read from packets when they are asked
//! for.
//!
//! The new file is made in memory. The name of the old one is held only while it is written, so
//! others who write the same segment hardly ever meet; and it gets the name only if that still
//! leads to the file that was read.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::builder::{NewFile, SegmentBuilder, SharedDevice, With};
use super::ingest::Steps;
use super::segment::Segment;
use super::{Archive, ArchiveError};
use crate::beneath::Rights;
use crate::chain;
use crate::index::FORMAT_VERSION;
use crate::parallel::Parallel;
use crate::storage::{FileVersion, Memory, Metadata, ReadFile, Whose};

/// How many times to retry, and how long to pause, while others write the same segment.
const TRIES: u32 = 20;
const PAUSE: Duration = Duration::from_millis(50);

/// What an upgrade found and did.
#[derive(Debug, Default)]
pub struct UpgradeReport {
    /// Index files that were looked at.
    pub segments: usize,
    /// Those that were written anew.
    pub upgraded: usize,
    /// The bytes that these had.
    pub bytes_before: u64,
    /// The bytes that they have now.
    pub bytes_after: u64,
    /// Index files that are still as they were although they should not be, and why.
    pub failed: Vec<(PathBuf, String)>,
}

/// Writes segments of older versions anew.
pub struct Upgrade<'a> {
    archive: &'a Archive,
    stop: Option<&'a AtomicBool>,
    progress: Option<&'a dyn Fn(usize, usize)>,
}

impl std::fmt::Debug for Upgrade<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Upgrade").field("archive", &self.archive).finish_non_exhaustive()
    }
}

/// What became of an index file.
enum Outcome {
    /// It has the version that is written now, or is gone.
    Left,
    /// It was written anew.
    Upgraded { bytes_before: u64, bytes_after: u64 },
    /// Others write it, or have written it in the meantime.
    Contended,
    /// It is damaged or could not be read.
    Failed(String),
}

impl<'a> Upgrade<'a> {
    /// Upgrades this archive.
    pub fn new(archive: &'a Archive) -> Self {
        Self { archive, stop: None, progress: None }
    }

    /// Stops soon after this is set; segments that are written by then stay, and the others are as
    /// they were.
    #[must_use]
    pub fn stop(mut self, stop: &'a AtomicBool) -> Self {
        self.stop = Some(stop);
        self
    }

    /// Calls this with the number of segments that are done, and of all segments.
    #[must_use]
    pub fn progress(mut self, progress: &'a dyn Fn(usize, usize)) -> Self {
        self.progress = Some(progress);
        self
    }

    /// Runs the upgrade. Whenever it ends, each name leads to the old index or to the whole new
    /// one. An error if an index could not be written, such as on a full disk: those that were
    /// written before stay, and the next run goes on.
    pub fn run(&self) -> Result<UpgradeReport, ArchiveError> {
        let files = self.archive.index_files()?;
        let mut report = UpgradeReport { segments: files.len(), ..UpgradeReport::default() };
        for (n, path) in files.iter().enumerate() {
            match self.upgrade_if_free(path)? {
                Outcome::Left => {}
                Outcome::Upgraded { bytes_before, bytes_after } => {
                    report.upgraded += 1;
                    report.bytes_before += bytes_before;
                    report.bytes_after += bytes_after;
                }
                Outcome::Contended => {
                    report.failed.push((path.clone(), "another process writes it".into()));
                }
                Outcome::Failed(why) => report.failed.push((path.clone(), why)),
            }
            if let Some(progress) = self.progress {
                progress(n + 1, files.len());
            }
        }
        Ok(report)
    }

    /// Upgrades a segment. If others write it, looks again at what they have written.
    fn upgrade_if_free(&self, path: &Path) -> Result<Outcome, ArchiveError> {
        for _ in 1..TRIES {
            match self.upgrade(path)? {
                Outcome::Contended => std::thread::sleep(PAUSE),
                outcome => return Ok(outcome),
            }
        }
        self.upgrade(path)
    }

    fn upgrade(&self, path: &Path) -> Result<Outcome, ArchiveError> {
        self.check_stop()?;
        let storage = &self.archive.storage;
        // Before it is opened: if another file gets the name in between, versions differ.
        let Ok((Metadata { version, .. }, rights)) = self.look_at(path) else {
            return Ok(self.failed(path, Segment::open(storage, path).err()));
        };
        let segment = match Segment::open(storage, path) {
            Ok(segment) => segment,
            Err(error) => return Ok(self.failed(path, Some(error))),
        };
        if segment.index().version() >= FORMAT_VERSION {
            return Ok(Outcome::Left);
        }
        // A damaged index must not become one whose checksums are right.
        if let Some(problem) = segment.index().verify(&mut |_| {}).problems.first() {
            return Ok(Outcome::Failed(chain(problem)));
        }
        self.check_stop()?;
        let mut builder = match SegmentBuilder::from_columns(&segment) {
            Ok(builder) => builder,
            Err(error) => return Ok(Outcome::Failed(chain(&error))),
        };
        self.check_stop()?;
        let mut note = segment.note().clone();
        builder.describe_fields(&mut note);
        let memory = Memory::default();
        let file = NewFile { storage: &memory, path, rights };
        let codec = self.archive.settings().codec;
        let (device, steps) = (&SharedDevice::new(None), &Steps::default());
        let with = With { device, parallel: Parallel::default(), steps };
        let written = builder.write(file, codec, &mut note, with);
        drop(builder);
        if let Err(error) = written {
            // In memory, only what the columns have can be wrong.
            return Ok(Outcome::Failed(chain(&error)));
        }
        self.check_stop()?;
        let (bytes_before, bytes) = (segment.index().len_bytes(), memory.into_bytes());
        let bytes_after = bytes.len() as u64;
        match self.publish(&segment, version, rights, bytes)? {
            true => Ok(Outcome::Upgraded { bytes_before, bytes_after }),
            false => Ok(Outcome::Contended),
        }
    }

    /// Puts the new index of a segment in place of the one that has this version; returns whether
    /// it did.
    fn publish(
        &self,
        segment: &Segment,
        version: FileVersion,
        rights: Rights,
        bytes: Vec<u8>,
    ) -> Result<bool, ArchiveError> {
        let (storage, path) = (&self.archive.storage, segment.path());
        let packets = segment.packet_path();
        let had_packets = storage.exists(&packets);
        let is_same =
            || storage.metadata(path, Whose::Own).is_ok_and(|data| data.version == version);
        match storage.replace_if(path, rights, || is_same().then_some(bytes), is_same) {
            Ok(false) => return Ok(false),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
            done => done.map_err(|error| ArchiveError::io("write", path, error))?,
        };
        if had_packets && segment.recording_name().is_some() && !storage.exists(&packets) {
            // Retention has removed the recording in the meantime.
            self.archive.remove_if_there(path)?;
            return Ok(false);
        }
        Ok(true)
    }

    /// The file of a name, and who may read it.
    fn look_at(&self, path: &Path) -> io::Result<(Metadata, Rights)> {
        let file = self.archive.storage.open(path, Whose::Own)?;
        Ok((file.file().metadata()?, file.file().rights()?))
    }

    /// What a segment that could not be opened counts as.
    fn failed(&self, path: &Path, error: Option<ArchiveError>) -> Outcome {
        match error {
            // Retention has removed it since the folder was listed.
            _ if !self.archive.storage.has_name(path) => Outcome::Left,
            None => Outcome::Contended,
            Some(ArchiveError::Index { source, .. }) => Outcome::Failed(chain(&source)),
            Some(ArchiveError::BadNote { fault, .. }) => {
                Outcome::Failed(format!("not the index of a segment: {fault}"))
            }
            Some(error) => Outcome::Failed(chain(&error)),
        }
    }

    fn check_stop(&self) -> Result<(), ArchiveError> {
        match self.stop.is_some_and(|stop| stop.load(Ordering::Relaxed)) {
            true => Err(ArchiveError::Interrupted),
            false => Ok(()),
        }
    }
}
