//! What older segments of the same capture left behind.

use std::io;
use std::path::{Path, PathBuf};

use super::{Ingest, Input, Run};
use crate::archive::file_names::capture_name;
use crate::archive::note::SourceFile;
use crate::archive::recording::is_recording;
use crate::archive::{Archive, ArchiveError, PACKETS_NAME};

impl Ingest<'_> {
    /// Removes what no longer belongs to a capture, once all its parts are written. `last` is from
    /// the note of its last part.
    pub(super) fn clean_up(
        &self,
        run: &Run<'_>,
        input: usize,
        packets: &Path,
        last: &SourceFile,
    ) -> Result<(), ArchiveError> {
        self.remove_parts_after(packets, last.part)?;
        self.remove_other_names(run, input, packets, last)
    }

    /// Removes what is left of a longer capture of the same name.
    fn remove_parts_after(&self, packets: &Path, part: u32) -> Result<(), ArchiveError> {
        for part in part + 1.. {
            let path = self.archive.index_path(packets, part);
            match self.files().remove(&path) {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::NotFound => break,
                Err(error) => return Err(ArchiveError::io("remove", &path, error)),
            }
        }
        Ok(())
    }

    /// Removes what is left of the same capture from when it had another path, and so other names:
    /// it was moved together with the archive and has changed, or was itself given another name.
    fn remove_other_names(
        &self,
        run: &Run<'_>,
        input: usize,
        packets: &Path,
        source: &SourceFile,
    ) -> Result<(), ArchiveError> {
        let Input::File(path) = &run.inputs[input] else { return Ok(()) };
        let origin = self.archive.real_path(path.clone());
        let version = |source: &SourceFile| (source.len, source.modified_ns);
        let name = self.archive.index_stem(packets);
        for (known_origin, segments) in &run.known {
            let is_this = *known_origin == origin;
            let is_renamed = !self.files().exists(known_origin)
                && segments.iter().any(|(_, note)| {
                    let known = &note.source;
                    (version(known), known.part, known.sum)
                        == (version(source), source.part, source.sum)
                });
            if !is_this && !is_renamed {
                continue;
            }
            for (path, note) in segments {
                // If the capture was continued from these, they are its first parts.
                let is_old = version(&note.source) != version(source) || self.force || is_renamed;
                if capture_name(path) != name && is_old {
                    self.archive.remove_if_there(path)?;
                    if let Some(copy) = self.archive.own_copy(&note.source)
                        && self.files().real_path(&copy).is_ok_and(|copy| copy != packets)
                    {
                        self.archive.remove_if_there(&copy)?;
                    }
                }
            }
        }
        Ok(())
    }
}

impl Archive {
    /// The copy that a segment was made from, if it is one of ours: a name in our folder of
    /// packets. Any other file that a note names may be read, but is not ours to remove.
    fn own_copy(&self, source: &SourceFile) -> Option<PathBuf> {
        let path = source.path();
        let name = path.strip_prefix(Path::new("..").join(PACKETS_NAME)).ok()?;
        let is_name = name.file_name().is_some_and(|found| found == name.as_os_str());
        let is_ours = is_name && !name.to_str().is_none_or(is_recording);
        (source.is_copy() && is_ours).then(|| self.packets_folder().join(name))
    }
}
