//! What the writer needs of a disk, so that tests can put a bad one in its place.
//!
//! A file comes to be in four steps: it is written under a temporary name, synced, renamed to its
//! own name, and the folder is synced. Whenever the machine stops, the name leads to the old file
//! or to the whole new one.

use std::fmt::Debug;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

/// How much the disk gets at a time, where pieces are smaller.
const BUFFER_LEN: usize = 1 << 20;

/// A place for files. [`Disk`] is the real one.
pub trait Storage: Debug {
    /// Creates a file, or empties one that a killed process has left behind, and holds it: until
    /// the file is dropped, another `create` of it fails with [`io::ErrorKind::WouldBlock`].
    fn create(&self, path: &Path) -> io::Result<Box<dyn StorageFile>>;
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

/// The file system.
#[derive(Debug, Clone, Copy, Default)]
pub struct Disk;

impl Storage for Disk {
    fn create(&self, path: &Path) -> io::Result<Box<dyn StorageFile>> {
        loop {
            // Not emptied yet: it may be somebody else's.
            let file = OpenOptions::new().write(true).create(true).truncate(false).open(path)?;
            match file.try_lock() {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => return Err(io::ErrorKind::WouldBlock.into()),
                Err(TryLockError::Error(error)) => return Err(error),
            }
            // Between the two calls its owner may have finished and renamed it: then what is
            // locked is a finished file. Only a locked file that still has the name is ours.
            if is_at(&file, path)? {
                file.set_len(0)?;
                return Ok(Box::new(DiskFile { file: BufWriter::with_capacity(BUFFER_LEN, file) }));
            }
        }
    }

    fn rename(&self, source: &Path, target: &Path) -> io::Result<()> {
        std::fs::rename(source, target)
    }

    fn sync_folder(&self, folder: &Path) -> io::Result<()> {
        // Elsewhere a folder cannot be opened, and a rename is as durable as it gets.
        if cfg!(unix) { File::open(folder)?.sync_all() } else { Ok(()) }
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        std::fs::remove_file(path)
    }
}

/// Whether the path leads to the file.
#[cfg(unix)]
fn is_at(file: &File, path: &Path) -> io::Result<bool> {
    use std::os::unix::fs::MetadataExt;
    let ours = file.metadata()?;
    match std::fs::symlink_metadata(path) {
        // Its owner would rename the link, and not the file.
        Ok(there) if there.is_symlink() => Err(io::ErrorKind::AlreadyExists.into()),
        Ok(there) => Ok((there.dev(), there.ino()) == (ours.dev(), ours.ino())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// Whether the path leads to the file; an open one cannot be renamed here.
#[cfg(not(unix))]
fn is_at(_file: &File, _path: &Path) -> io::Result<bool> {
    Ok(true)
}

#[derive(Debug)]
struct DiskFile {
    file: BufWriter<File>,
}

impl StorageFile for DiskFile {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all(bytes)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.file.flush()?;
        self.file.get_ref().sync_all()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_held_is_not_given_twice() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(".a.tmp");
        let held = Disk.create(&path).unwrap();
        assert_eq!(Disk.create(&path).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        drop(held);
        assert!(Disk.create(&path).is_ok());
    }

    #[test]
    fn a_stale_file_is_emptied() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(".a.tmp");
        std::fs::write(&path, "left behind").unwrap();
        let mut file = Disk.create(&path).unwrap();
        file.append(b"new").unwrap();
        file.sync().unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"new");
    }

    #[test]
    #[cfg(unix)]
    fn a_file_that_was_renamed_is_not_taken_for_the_temporary_one() {
        let folder = tempfile::tempdir().unwrap();
        let (path, renamed) = (folder.path().join(".a.tmp"), folder.path().join("a"));
        let file = File::create(&path).unwrap();
        assert!(is_at(&file, &path).unwrap());
        std::fs::rename(&path, &renamed).unwrap();
        assert!(!is_at(&file, &path).unwrap());
        std::fs::write(&path, "").unwrap();
        assert!(!is_at(&file, &path).unwrap());
    }
}
