//! Where files are kept: one trait, so that another storage can replace the disk.
//!
//! ```text
//! Publish   what the writer of a file needs: create, rename, sync the folder, remove
//! Storage   all of that, and: open, map, list, look at, change in place, lock, free space
//! ```
//!
//! Two storages are real. [`Disk`] takes any path, for files that the user has named.
//! [`Root`](crate::beneath::Root) belongs to an archive, and changes nothing outside its folder.
//! An [`Archive`](crate::archive::Archive) and a recorder do everything through the storage that
//! the archive was opened on. `testing` has a faulty one.
//!
//! A file comes to be in four steps: it is written under a temporary name, synced, renamed to its
//! own name, and the folder is synced. Whenever the machine stops, the name leads to the old file
//! or to the whole new one.

mod disk;

use std::fmt::Debug;
use std::io::{self, IoSlice, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use crate::beneath::{Rights, read_text, split};

pub use crate::mmap::Map;
pub use disk::Disk;

#[cfg(not(unix))]
compile_error!("tapdex needs Unix: links, locks and folders that can be synced");

/// What the writer of a file needs from a storage.
pub trait Publish: Debug + Send + Sync {
    /// Creates a file, in place of one that a killed process has left behind, and locks it: until
    /// the file is dropped, another `create` of it fails with [`io::ErrorKind::WouldBlock`]. What
    /// has a second name, by a symbolic or a hard link, is not replaced:
    /// [`io::ErrorKind::AlreadyExists`].
    fn create(&self, path: &Path, rights: Rights) -> io::Result<Box<dyn AppendFile>>;
    /// Gives a file another name, in the same folder; what had that name before is gone.
    fn rename(&self, source: &Path, target: &Path) -> io::Result<()>;
    /// Makes the names in a folder survive a crash.
    fn sync_folder(&self, folder: &Path) -> io::Result<()>;
    /// Removes a file.
    fn remove(&self, path: &Path) -> io::Result<()>;
}

/// A place for files.
///
/// Files may be read anywhere: captures stay where they are. Changes are confined to the root of
/// the storage, if it has one.
pub trait Storage: Publish {
    /// Opens a regular file to be read. Anything else is refused at once:
    /// [`io::ErrorKind::InvalidInput`].
    fn open(&self, path: &Path, whose: Whose) -> io::Result<Reader>;
    /// The bytes of a finished file, which no longer changes.
    fn map(&self, path: &Path, whose: Whose) -> io::Result<Map>;
    /// What is at a path.
    fn metadata(&self, path: &Path, whose: Whose) -> io::Result<Metadata>;
    /// The paths of everything in a folder, in no particular order.
    fn list(&self, folder: &Path) -> io::Result<Vec<PathBuf>>;
    /// The canonical path of a file, without links and `..`.
    fn real_path(&self, path: &Path) -> io::Result<PathBuf>;
    /// Creates a file that must not be there yet, and holds it as [`create`](Publish::create) does.
    fn create_new(&self, path: &Path, rights: Rights) -> io::Result<Box<dyn WriteFile>>;
    /// Opens a file to be changed in place. One that has a second name is refused.
    fn open_to_write(&self, path: &Path) -> io::Result<Box<dyn WriteFile>>;
    /// Gives a file another name, in the same folder, unless something has that name already:
    /// [`io::ErrorKind::AlreadyExists`].
    fn rename_new(&self, source: &Path, target: &Path) -> io::Result<()>;
    /// Removes a file that a killed process has left behind; it is no error if it is gone. If
    /// somebody else holds it, this fails with [`io::ErrorKind::WouldBlock`].
    fn remove_stale(&self, path: &Path) -> io::Result<()>;
    /// Makes a folder, unless there is one.
    fn make_folder(&self, path: &Path) -> io::Result<()>;
    /// Takes a lock that lasts until it is dropped, or the process ends. If another process has
    /// it, this fails with [`io::ErrorKind::WouldBlock`].
    fn lock(&self, path: &Path) -> io::Result<Box<dyn Held>>;
    /// Whether somebody has that lock.
    fn is_locked(&self, path: &Path) -> io::Result<bool>;
    /// How much space there is on the disk of a folder.
    fn space(&self, folder: &Path) -> io::Result<Space>;
}

/// Whose file is to be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Whose {
    /// The user has named it: links are followed.
    Named,
    /// It has to be the archive's own: a link in its place is refused.
    Own,
}

/// What is at a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Metadata {
    /// What it is.
    pub kind: FileKind,
    /// Bytes that it has.
    pub len: u64,
    /// When it was changed last, in nanoseconds since 1970; 0 if that is not known.
    pub modified_ns: u64,
    /// Tells it from another file of the same name, and from itself after a change.
    pub version: FileVersion,
}

/// Tells a file from another one of the same name, and from itself after a change. What the numbers
/// mean is up to the storage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileVersion(pub [u64; 4]);

/// What is at a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileKind {
    /// A regular file.
    File,
    /// A folder.
    Folder,
    /// A link, a pipe, a device and the like.
    Other,
}

impl Metadata {
    /// Whether it is a regular file.
    pub fn is_file(&self) -> bool {
        self.kind == FileKind::File
    }

    /// Whether it is a folder.
    pub fn is_folder(&self) -> bool {
        self.kind == FileKind::Folder
    }
}

/// The space on a disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Space {
    /// Bytes that are in use.
    pub used: u64,
    /// Bytes that we may still use.
    pub free: u64,
}

impl Space {
    /// Percent that is in use, as `df` has it.
    pub fn percent(&self) -> f64 {
        100.0 * self.used as f64 / (self.used + self.free).max(1) as f64
    }
}

/// A file that is written from its start to its end.
pub trait AppendFile: Debug {
    /// Adds bytes at the end.
    fn append(&mut self, bytes: &[u8]) -> io::Result<()>;
    /// Makes the bytes survive the process, and visible to others.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
    /// Makes the bytes survive a crash.
    fn sync(&mut self) -> io::Result<()>;
}

/// A file that is read.
pub trait ReadFile: Debug + Send + Sync {
    /// Reads bytes from an offset on; returns how many, 0 at the end of the file.
    fn read_at(&self, target: &mut [u8], offset: u64) -> io::Result<usize>;
    /// What it is now.
    fn metadata(&self) -> io::Result<Metadata>;
    /// Who may read files made from it.
    fn rights(&self) -> io::Result<Rights>;
    /// The first offset from this one on that holds more than zeros, as far as the storage knows;
    /// `None` if there is none.
    fn next_data(&self, offset: u64) -> io::Result<Option<u64>> {
        Ok(Some(offset))
    }
}

/// A file that is written in place.
pub trait WriteFile: ReadFile {
    /// Writes bytes at an offset; returns how many.
    fn write_at(&self, parts: &[IoSlice<'_>], offset: u64) -> io::Result<usize>;
    /// Makes what was written survive a crash.
    fn sync(&self) -> io::Result<()>;
    /// Cuts off what is behind an offset. A file that is shorter stays as it is.
    fn cut(&self, len: u64) -> io::Result<()>;
    /// Locks the file until it is dropped; `false` if somebody else holds it.
    fn hold(&self) -> io::Result<bool>;
}

/// A lock, until it is dropped.
pub trait Held: Debug + Send + Sync {}

impl<T: ReadFile + ?Sized> ReadFile for Box<T> {
    fn read_at(&self, target: &mut [u8], offset: u64) -> io::Result<usize> {
        (**self).read_at(target, offset)
    }

    fn metadata(&self) -> io::Result<Metadata> {
        (**self).metadata()
    }

    fn rights(&self) -> io::Result<Rights> {
        (**self).rights()
    }

    fn next_data(&self, offset: u64) -> io::Result<Option<u64>> {
        (**self).next_data(offset)
    }
}

impl<T: ReadFile + ?Sized> ReadFile for &T {
    fn read_at(&self, target: &mut [u8], offset: u64) -> io::Result<usize> {
        (**self).read_at(target, offset)
    }

    fn metadata(&self) -> io::Result<Metadata> {
        (**self).metadata()
    }

    fn rights(&self) -> io::Result<Rights> {
        (**self).rights()
    }

    fn next_data(&self, offset: u64) -> io::Result<Option<u64>> {
        (**self).next_data(offset)
    }
}

impl<T: ReadFile + ?Sized> ReadFile for Arc<T> {
    fn read_at(&self, target: &mut [u8], offset: u64) -> io::Result<usize> {
        (**self).read_at(target, offset)
    }

    fn metadata(&self) -> io::Result<Metadata> {
        (**self).metadata()
    }

    fn rights(&self) -> io::Result<Rights> {
        (**self).rights()
    }

    fn next_data(&self, offset: u64) -> io::Result<Option<u64>> {
        (**self).next_data(offset)
    }
}

/// A file, and a place in it to read on from.
#[derive(Debug)]
pub struct Reader<F = Box<dyn ReadFile>> {
    file: F,
    position: u64,
}

impl<F: ReadFile> Reader<F> {
    /// Reads from the start.
    pub fn new(file: F) -> Self {
        Self { file, position: 0 }
    }

    /// The file.
    pub fn file(&self) -> &F {
        &self.file
    }

    /// The file alone.
    pub fn into_file(self) -> F {
        self.file
    }
}

impl<F: ReadFile> Read for Reader<F> {
    fn read(&mut self, target: &mut [u8]) -> io::Result<usize> {
        let len = self.file.read_at(target, self.position)?;
        self.position += len as u64;
        Ok(len)
    }
}

impl<F: ReadFile> Seek for Reader<F> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let moved = match to {
            SeekFrom::Start(offset) => Some(offset),
            SeekFrom::End(by) => self.file.metadata()?.len.checked_add_signed(by),
            SeekFrom::Current(by) => self.position.checked_add_signed(by),
        };
        self.position = moved.ok_or(io::ErrorKind::InvalidInput)?;
        Ok(self.position)
    }
}

impl<'s> dyn Storage + 's {
    /// Whether a path leads to something, links followed.
    pub fn exists(&self, path: &Path) -> bool {
        self.metadata(path, Whose::Named).is_ok()
    }

    /// Whether there is something of this name, even a link that leads nowhere.
    pub fn has_name(&self, path: &Path) -> bool {
        self.metadata(path, Whose::Own).is_ok()
    }

    /// Whether a path leads to a regular file, links followed.
    pub fn is_file(&self, path: &Path) -> bool {
        self.metadata(path, Whose::Named).is_ok_and(|data| data.is_file())
    }

    /// The text of a file of the archive's own, of at most `most` bytes.
    pub fn read_text(&self, path: &Path, most: u64) -> io::Result<String> {
        read_text(self.open(path, Whose::Own)?, most)
    }

    /// Removes a file; it is no error if it is gone.
    pub fn remove_if_there(&self, path: &Path) -> io::Result<()> {
        match self.remove(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            outcome => outcome,
        }
    }

    /// Writes a whole file: its name leads to the old one or to all of the new one. `prepare` makes
    /// the bytes while nobody else can write the file. If it returns none, the file is left as it
    /// is.
    pub fn replace(
        &self,
        path: &Path,
        rights: Rights,
        prepare: impl FnOnce() -> Option<Vec<u8>>,
    ) -> io::Result<()> {
        self.replace_if(path, rights, prepare, || true).map(drop)
    }

    /// `replace`, if `holds` still says so just before the new file gets the name;
    /// returns whether it got it.
    pub fn replace_if(
        &self,
        path: &Path,
        rights: Rights,
        prepare: impl FnOnce() -> Option<Vec<u8>>,
        holds: impl FnOnce() -> bool,
    ) -> io::Result<bool> {
        let temporary = temporary_path(path);
        let mut file = self.create(&temporary, rights)?;
        let publish = |bytes: &[u8]| {
            file.append(bytes)?;
            file.sync()?;
            match holds() {
                true => self.rename(&temporary, path).map(|()| true),
                false => Ok(false),
            }
        };
        let done = prepare().map_or(Ok(false), |bytes| publish(&bytes));
        if !matches!(done, Ok(true)) {
            // If this fails, the next call removes it.
            drop(self.remove(&temporary));
        }
        if done? {
            self.sync_folder(split(path)?.0)?;
            return Ok(true);
        }
        Ok(false)
    }

    /// Writes a whole file that is written often: it is not synced.
    pub fn put(&self, path: &Path, bytes: &[u8], rights: Rights) -> io::Result<()> {
        let temporary = temporary_path(path);
        // A file that another process has left, or a link that was put there.
        self.remove_if_there(&temporary)?;
        let file = self.create_new(&temporary, rights)?;
        let mut done = 0;
        while done < bytes.len() {
            match file.write_at(&[IoSlice::new(&bytes[done..])], done as u64) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(len) => done += len,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        self.rename(&temporary, path)
    }
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

/// Writes a whole file that the user has named: its name leads to the old one or to all of the new
/// one.
pub fn write_file(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let disk: &dyn Storage = &Disk;
    disk.replace(path, Rights::USUAL, || Some(bytes.to_vec()))
}

/// A file in memory, for data that need not outlive the process.
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

impl Publish for Memory {
    fn create(&self, _path: &Path, _rights: Rights) -> io::Result<Box<dyn AppendFile>> {
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

impl AppendFile for MemoryFile {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.bytes.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(bytes);
        Ok(())
    }

    fn sync(&mut self) -> io::Result<()> {
        Ok(())
    }
}
