//! The real disk, for files that the user has named and for those of an archive.
//!
//! Both do the same. They differ in where a path may lead: see [`Place`].

use std::ffi::OsStr;
use std::fmt::Debug;
use std::fs::{File, TryLockError};
use std::io::{self, BufWriter, IoSlice, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use rustix::fs::SeekFrom;
use rustix::io::Errno;

use super::{
    AppendFile, FileKind, FileVersion, Held, Map, Metadata, Publish, ReadFile, Reader, Space,
    Storage, Whose, WriteFile,
};
use crate::beneath::{self, Dir, Rights, Root, open_named, open_own, split};

/// Bytes written to the disk at a time; smaller pieces are gathered.
const BUFFER_LEN: usize = 1 << 20;

/// The file system, for files that the user has named. Links to folders are followed; a link in
/// place of the file is not.
#[derive(Debug, Clone, Copy, Default)]
pub struct Disk;

/// Where changes may be made.
trait Place: Debug + Send + Sync {
    /// The folder that has a file, and the file's name there.
    fn place<'p>(&self, path: &'p Path) -> io::Result<(Dir, &'p OsStr)>;
    /// A folder.
    fn folder(&self, path: &Path) -> io::Result<Dir>;
    /// A folder, and the names that two files have in it.
    fn neighbours<'p>(
        &self,
        source: &'p Path,
        target: &'p Path,
    ) -> io::Result<(Dir, &'p OsStr, &'p OsStr)>;
    /// Makes a folder, unless there is one.
    fn make_folder(&self, path: &Path) -> io::Result<()>;
    /// A file that is read through the folder's handle, even if the folder has been moved.
    fn pinned<'p>(&self, path: &'p Path) -> Option<(&Dir, &'p OsStr)>;
}

impl Place for Disk {
    fn place<'p>(&self, path: &'p Path) -> io::Result<(Dir, &'p OsStr)> {
        let (folder, name) = split(path)?;
        Ok((Dir::open(folder)?, name))
    }

    fn folder(&self, path: &Path) -> io::Result<Dir> {
        Dir::open(path)
    }

    fn neighbours<'p>(
        &self,
        source: &'p Path,
        target: &'p Path,
    ) -> io::Result<(Dir, &'p OsStr, &'p OsStr)> {
        let (folder, source) = self.place(source)?;
        Ok((folder, source, split(target)?.1))
    }

    fn make_folder(&self, path: &Path) -> io::Result<()> {
        let (folder, name) = self.place(path)?;
        folder.make_folder(name).map(drop)
    }

    fn pinned<'p>(&self, _path: &'p Path) -> Option<(&Dir, &'p OsStr)> {
        None
    }
}

impl Place for Root {
    fn place<'p>(&self, path: &'p Path) -> io::Result<(Dir, &'p OsStr)> {
        Root::place(self, path)
    }

    fn folder(&self, path: &Path) -> io::Result<Dir> {
        Root::folder(self, path)
    }

    fn neighbours<'p>(
        &self,
        source: &'p Path,
        target: &'p Path,
    ) -> io::Result<(Dir, &'p OsStr, &'p OsStr)> {
        Root::neighbours(self, source, target)
    }

    fn make_folder(&self, path: &Path) -> io::Result<()> {
        Root::make_folder(self, path)
    }

    // The settings and the list of what is missing: what is written is derived from what was read.
    fn pinned<'p>(&self, path: &'p Path) -> Option<(&Dir, &'p OsStr)> {
        self.in_top(path)
    }
}

impl<P: Place> Publish for P {
    fn create(&self, path: &Path, rights: Rights) -> io::Result<Box<dyn AppendFile>> {
        let (folder, name) = self.place(path)?;
        let file = folder.create(name, rights)?;
        Ok(Box::new(Growing { file: BufWriter::with_capacity(BUFFER_LEN, file) }))
    }

    fn rename(&self, source: &Path, target: &Path) -> io::Result<()> {
        let (folder, source, target) = self.neighbours(source, target)?;
        folder.rename(source, target)
    }

    fn sync_folder(&self, folder: &Path) -> io::Result<()> {
        self.folder(folder)?.sync()
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let (folder, name) = self.place(path)?;
        folder.remove(name)
    }
}

impl<P: Place> Storage for P {
    fn open(&self, path: &Path, whose: Whose) -> io::Result<Reader> {
        let file = match (whose, self.pinned(path)) {
            (Whose::Named, _) => open_named(path),
            (Whose::Own, None) => open_own(path),
            (Whose::Own, Some((folder, name))) => folder.read(name),
        };
        Ok(Reader::new(Box::new(file?)))
    }

    fn map(&self, path: &Path, whose: Whose) -> io::Result<Map> {
        let file = match whose {
            Whose::Named => open_named(path),
            Whose::Own => open_own(path),
        };
        Map::of(&file?)
    }

    fn metadata(&self, path: &Path, whose: Whose) -> io::Result<Metadata> {
        let data = match (whose, self.pinned(path)) {
            (Whose::Named, _) => path.metadata(),
            (Whose::Own, None) => path.symlink_metadata(),
            (Whose::Own, Some((folder, name))) => folder.metadata(name),
        };
        data.map(|data| metadata(&data))
    }

    fn list(&self, folder: &Path) -> io::Result<Vec<PathBuf>> {
        let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
        folder.read_dir()?.map(|entry| Ok(entry?.path())).collect()
    }

    fn real_path(&self, path: &Path) -> io::Result<PathBuf> {
        path.canonicalize()
    }

    fn create_new(&self, path: &Path, rights: Rights) -> io::Result<Box<dyn WriteFile>> {
        let (folder, name) = self.place(path)?;
        Ok(Box::new(folder.create_new(name, rights)?))
    }

    fn open_to_write(&self, path: &Path) -> io::Result<Box<dyn WriteFile>> {
        let (folder, name) = self.place(path)?;
        Ok(Box::new(folder.write(name)?))
    }

    fn rename_new(&self, source: &Path, target: &Path) -> io::Result<()> {
        let (folder, source, target) = self.neighbours(source, target)?;
        folder.rename_new(source, target)
    }

    fn remove_stale(&self, path: &Path) -> io::Result<()> {
        let (folder, name) = self.place(path)?;
        folder.remove_stale(name)
    }

    fn make_folder(&self, path: &Path) -> io::Result<()> {
        Place::make_folder(self, path)
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn Held>> {
        let (folder, name) = self.place(path)?;
        let file = folder.lock_file(name)?;
        match hold(&file)? {
            true => Ok(Box::new(file)),
            false => Err(io::ErrorKind::WouldBlock.into()),
        }
    }

    fn is_locked(&self, path: &Path) -> io::Result<bool> {
        let file = open_own(path)?;
        Ok(matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock)))
    }

    fn space(&self, folder: &Path) -> io::Result<Space> {
        let stat = rustix::fs::statvfs(folder)?;
        let used = stat.f_blocks.saturating_sub(stat.f_bfree).saturating_mul(stat.f_frsize);
        Ok(Space { used, free: stat.f_bavail.saturating_mul(stat.f_frsize) })
    }
}

fn metadata(data: &std::fs::Metadata) -> Metadata {
    let kind = match data.file_type() {
        kind if kind.is_file() => FileKind::File,
        kind if kind.is_dir() => FileKind::Folder,
        _ => FileKind::Other,
    };
    let since = data.modified().ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
    let modified_ns = since.and_then(|time| u64::try_from(time.as_nanos()).ok()).unwrap_or(0);
    let changed = [data.ctime(), data.ctime_nsec()].map(i64::cast_unsigned);
    let version = FileVersion([data.dev(), data.ino(), changed[0], changed[1]]);
    Metadata { kind, len: data.len(), modified_ns, version }
}

fn hold(file: &File) -> io::Result<bool> {
    match file.try_lock() {
        Ok(()) => Ok(true),
        Err(TryLockError::WouldBlock) => Ok(false),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

#[derive(Debug)]
struct Growing {
    file: BufWriter<File>,
}

impl AppendFile for Growing {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }

    fn sync(&mut self) -> io::Result<()> {
        self.file.flush()?;
        self.file.get_ref().sync_all()
    }
}

impl ReadFile for File {
    fn read_at(&self, target: &mut [u8], offset: u64) -> io::Result<usize> {
        FileExt::read_at(self, target, offset)
    }

    fn metadata(&self) -> io::Result<Metadata> {
        Ok(metadata(&File::metadata(self)?))
    }

    fn rights(&self) -> io::Result<Rights> {
        Rights::of(self)
    }

    // Skips holes, which may be larger than any disk.
    fn next_data(&self, offset: u64) -> io::Result<Option<u64>> {
        match rustix::fs::seek(self, SeekFrom::Data(offset)) {
            Ok(data) => Ok(Some(data)),
            Err(Errno::NXIO) => Ok(None),
            // Not every file system can tell.
            Err(_) => Ok(Some(offset)),
        }
    }
}

impl WriteFile for File {
    fn write_at(&self, parts: &[IoSlice<'_>], offset: u64) -> io::Result<usize> {
        Ok(rustix::io::pwritev(self, parts, offset)?)
    }

    fn sync(&self) -> io::Result<()> {
        self.sync_data()
    }

    fn cut(&self, len: u64) -> io::Result<()> {
        beneath::cut(self, len)
    }

    fn hold(&self) -> io::Result<bool> {
        hold(self)
    }
}

impl Held for File {}

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
