//! What the writer needs of a disk, so that tests can put a bad one in its place.
//!
//! A file comes to be in four steps: it is written under a temporary name, synced, renamed to its
//! own name, and the folder is synced. Whenever the machine stops, the name leads to the old file
//! or to the whole new one.

use std::fmt::Debug;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use crate::beneath::{Dir, Rights, split};

#[cfg(not(unix))]
compile_error!("tapdex needs Unix: links, locks and folders that can be synced");

/// A place for files. [`Disk`] is the real one, [`Root`](crate::beneath::Root) that of an archive.
pub trait Storage: Debug {
    /// Creates a file, in the place of one that a killed process has left behind, and holds it:
    /// until the file is dropped, another `create` of it fails with
    /// [`io::ErrorKind::WouldBlock`]. What has a second name, by a symbolic or a hard link, is not
    /// replaced: [`io::ErrorKind::AlreadyExists`].
    fn create(&self, path: &Path, rights: Rights) -> io::Result<Box<dyn StorageFile>>;
    /// Gives a file another name, in the same folder; what had that name before is gone.
    fn rename(&self, source: &Path, target: &Path) -> io::Result<()>;
    /// Sees to it that the names in a folder outlast a crash.
    fn sync_folder(&self, folder: &Path) -> io::Result<()>;
    /// Removes a file.
    fn remove(&self, path: &Path) -> io::Result<()>;
}

/// A file that is being written.
pub trait StorageFile: Debug {
    /// Adds bytes at the end.
    fn append(&mut self, bytes: &[u8]) -> io::Result<()>;
    /// Sees to it that the bytes outlast the process, and that others can read them.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
    /// Sees to it that the bytes outlast a crash.
    fn sync(&mut self) -> io::Result<()>;
}

/// The temporary name of a file: hidden, and in the same folder.
///
/// ```
/// # use std::path::Path;
/// # use tapdex_engine::storage::temporary_path;
/// assert_eq!(temporary_path(Path::new("day/1.tdx")), Path::new("day/.1.tdx.tmp"));
/// ```
pub fn temporary_path(path: &Path) -> PathBuf {
    let mut name = std::ffi::OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push(".tmp");
    path.with_file_name(name)
}

/// Writes a whole file: what has its name is the old one or all of the new one.
pub fn write_file(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let temporary = temporary_path(path);
    let mut file = Disk.create(&temporary, Rights::USUAL)?;
    let written = file.append(bytes).and_then(|()| file.sync());
    let renamed = written.and_then(|()| Disk.rename(&temporary, path));
    if renamed.is_err() {
        // What is left over is overwritten the next time.
        let _ = Disk.remove(&temporary);
    }
    renamed?;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    Disk.sync_folder(folder.unwrap_or(Path::new(".")))
}

/// The file system, for files that the user has named. A link to a folder is followed, one in the
/// place of the file is not.
#[derive(Debug, Clone, Copy, Default)]
pub struct Disk;

impl Storage for Disk {
    fn create(&self, path: &Path, rights: Rights) -> io::Result<Box<dyn StorageFile>> {
        let (folder, name) = split(path)?;
        Dir::open(folder)?.start(name, rights)
    }

    fn rename(&self, source: &Path, target: &Path) -> io::Result<()> {
        let ((folder, source), (_, target)) = (split(source)?, split(target)?);
        Dir::open(folder)?.rename(source, target)
    }

    fn sync_folder(&self, folder: &Path) -> io::Result<()> {
        Dir::open(folder)?.sync()
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let (folder, name) = split(path)?;
        Dir::open(folder)?.remove(name)
    }
}

/// A file in memory, for what is gone when the process ends.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    bytes: Arc<Mutex<Vec<u8>>>,
}

impl Memory {
    /// What was written.
    pub(crate) fn into_bytes(self) -> Vec<u8> {
        std::mem::take(&mut *self.bytes.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Storage for Memory {
    fn create(&self, _path: &Path, _rights: Rights) -> io::Result<Box<dyn StorageFile>> {
        Ok(Box::new(MemoryFile { bytes: Arc::clone(&self.bytes) }))
    }

    fn rename(&self, _source: &Path, _target: &Path) -> io::Result<()> {
        Ok(())
    }

    fn sync_folder(&self, _folder: &Path) -> io::Result<()> {
        Ok(())
    }

    fn remove(&self, _path: &Path) -> io::Result<()> {
        Ok(())
    }
}

#[derive(Debug)]
struct MemoryFile {
    bytes: Arc<Mutex<Vec<u8>>>,
}

impl StorageFile for MemoryFile {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.bytes.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(bytes);
        Ok(())
    }

    fn sync(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_held_is_not_given_twice() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(".a.tmp");
        let held = Disk.create(&path, Rights::USUAL).unwrap();
        assert_eq!(
            Disk.create(&path, Rights::USUAL).unwrap_err().kind(),
            io::ErrorKind::WouldBlock
        );
        drop(held);
        assert!(Disk.create(&path, Rights::USUAL).is_ok());
    }

    #[test]
    fn what_was_flushed_is_there_for_others() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(".a.tmp");
        let mut file = Disk.create(&path, Rights::USUAL).unwrap();
        file.append(b"new").unwrap();
        file.flush().unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"new");
    }

    #[test]
    fn a_stale_file_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(".a.tmp");
        std::fs::write(&path, "left behind").unwrap();
        let mut file = Disk.create(&path, Rights::USUAL).unwrap();
        file.append(b"new").unwrap();
        file.sync().unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"new");
    }

    #[test]
    fn a_file_with_a_second_name_is_not_emptied() {
        let folder = tempfile::tempdir().unwrap();
        let (path, other) = (folder.path().join(".a.tmp"), folder.path().join("other"));
        std::fs::write(&other, "precious").unwrap();
        for link in [std::fs::hard_link::<&Path, &Path>, std::os::unix::fs::symlink] {
            link(&other, &path).unwrap();
            assert_eq!(
                Disk.create(&path, Rights::USUAL).unwrap_err().kind(),
                io::ErrorKind::AlreadyExists
            );
            assert_eq!(std::fs::read(&other).unwrap(), b"precious");
            std::fs::remove_file(&path).unwrap();
        }
        assert!(Disk.create(&path, Rights::USUAL).is_ok());
    }
}
