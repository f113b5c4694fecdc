//! Changing files in a folder without ever leaving it.
//!
//! This is the only module that creates, writes, cuts, renames or removes files of an archive. It
//! holds a handle
//! of a folder and takes single names in it: no path, no `..`, no link. Whatever a note, a link or
//! a name in an archive says, nothing outside the archive's own folders can be changed.
//!
//! ```text
//! Dir    a folder, by its handle; links to folders are followed only in paths that the user named
//! Root   an archive: its folder, and in it segments/, packets/ and drafts/
//! ```
//!
//! What is read may lie elsewhere: captures stay where they are. [`open_named`] opens such a file,
//! [`open_own`] one that has to be the archive's own. Both refuse at once anything but a regular
//! file: a FIFO would make us wait, and a device has no end.

use std::ffi::OsStr;
use std::fs::{File, Metadata, TryLockError};
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{AtFlags, FileType, Gid, Mode, OFlags, RenameFlags, Uid};
use rustix::io::Errno;

/// How many times to try creating a file while other processes create, finish or remove it.
const ATTEMPTS_MAX: usize = 100;

/// The folders that an archive has in its own.
const FOLDERS: [&str; 3] = ["segments", "packets", "drafts"];

/// The mode of a folder that only its owner may look into.
const PRIVATE_MODE: u32 = 0o700;

/// Who may read a file that is to be created. Its owner always may: whoever creates it could read
/// what it is made from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rights {
    mode: u32,
    /// The group that the group rights are for; `None` if they are for any group.
    group: Option<u32>,
}

impl Rights {
    /// Those that the user has chosen for new files (`umask`).
    pub const USUAL: Self = Self { mode: 0o666, group: None };
    /// Its owner alone.
    pub const OWNER: Self = Self { mode: 0o600, group: None };
    /// The owner and the group of whoever makes it.
    pub const GROUP: Self = Self { mode: 0o640, group: None };

    /// The rights of a file, for files made from it: whoever may read it may read those.
    pub fn of(file: &File) -> io::Result<Self> {
        let metadata = file.metadata()?;
        let mut mode = metadata.mode() & 0o644 | 0o600;
        if has_access_list(file) {
            // With an access list, the group bits of the mode are the most that anybody on the list
            // may do, not what the group may do.
            mode &= !0o070;
        }
        if mode & 0o040 == 0 {
            // Members of its group may count as others for the new file.
            mode &= !0o004;
        }
        // If everybody may read it, so may the members of any group.
        let all = mode & 0o044 == 0o044;
        Ok(Self { mode, group: (!all).then(|| metadata.gid()) })
    }

    /// Those who may read under both.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        let mut mode = self.mode & other.mode;
        if self.group.zip(other.group).is_some_and(|(a, b)| a != b) {
            mode &= !0o070;
        }
        Self { mode, group: self.group.or(other.group) }
    }

    /// The mode of a file that belongs to a group.
    fn mode(self, group: u32) -> Mode {
        let is_other = self.group.is_some_and(|own| own != group);
        Mode::from_raw_mode(if is_other { self.mode & !0o070 } else { self.mode })
    }
}

/// Whether a file has a list of users and groups that may read it, beside its mode; `true` also if
/// that is unknown.
fn has_access_list(file: &File) -> bool {
    let len = rustix::fs::fgetxattr(file, "system.posix_acl_access", &mut [0_u8; 0]);
    !matches!(len, Err(Errno::NODATA | Errno::OPNOTSUPP))
}

fn refused(what: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, what)
}

/// A name in a folder, and nothing more.
fn plain(name: &OsStr) -> io::Result<&OsStr> {
    let bytes = name.as_bytes();
    match bytes {
        b"" | b"." | b".." => Err(refused(format!("{name:?} is no name of a file"))),
        _ if bytes.contains(&b'/') => Err(refused(format!("{name:?} is no name of a file"))),
        _ => Ok(name),
    }
}

/// The folder that a path is in, and its name there.
pub(crate) fn split(path: &Path) -> io::Result<(&Path, &OsStr)> {
    let name = path.file_name().ok_or_else(|| refused(format!("{path:?} is no file")))?;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    Ok((folder.unwrap_or(Path::new(".")), name))
}

fn kind(mode: u32) -> &'static str {
    match FileType::from_raw_mode(mode) {
        FileType::RegularFile => "a file",
        FileType::Directory => "a folder",
        FileType::Symlink => "a link",
        FileType::Fifo => "a FIFO",
        FileType::Socket => "a socket",
        FileType::CharacterDevice | FileType::BlockDevice => "a device",
        FileType::Unknown => "nothing known",
    }
}

/// An error unless the mode is that of a regular file.
fn check_regular(mode: u32) -> io::Result<()> {
    if FileType::from_raw_mode(mode) == FileType::RegularFile {
        return Ok(());
    }
    Err(refused(format!("it is {}, and no regular file", kind(mode))))
}

/// A folder, by its handle. It takes names, never paths, and follows no link.
#[derive(Debug, Clone)]
pub struct Dir {
    handle: Arc<OwnedFd>,
}

impl Dir {
    /// Opens a folder that the user has named: where its path has links, they are followed.
    pub fn open(path: &Path) -> io::Result<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let handle = rustix::fs::open(path, flags, Mode::empty())?;
        Ok(Self { handle: Arc::new(handle) })
    }

    /// Opens a folder that the user has named, or makes it, and those above it, for its owner
    /// alone.
    pub fn create_private(path: &Path) -> io::Result<Self> {
        match Self::open(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                std::fs::DirBuilder::new().recursive(true).mode(PRIVATE_MODE).create(path)?;
                Self::open(path)
            }
            opened => opened,
        }
    }

    /// A folder in this one. A link to a folder is refused.
    pub fn folder(&self, name: &OsStr) -> io::Result<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let opened = rustix::fs::openat(&self.handle, plain(name)?, flags, Mode::empty());
        let handle = opened.map_err(|error| match error {
            rustix::io::Errno::NOTDIR | rustix::io::Errno::LOOP => {
                let shown = name.display();
                refused(format!("{shown} is a link, or no folder, and nothing is changed in it"))
            }
            error => error.into(),
        })?;
        Ok(Self { handle: Arc::new(handle) })
    }

    /// Makes a folder in this one, unless there is one.
    pub fn make_folder(&self, name: &OsStr) -> io::Result<Self> {
        self.make_folder_with(name, 0o777)
    }

    /// The same for its owner alone.
    pub fn make_private_folder(&self, name: &OsStr) -> io::Result<Self> {
        self.make_folder_with(name, PRIVATE_MODE)
    }

    fn make_folder_with(&self, name: &OsStr, mode: u32) -> io::Result<Self> {
        let mode = Mode::from_raw_mode(mode);
        match rustix::fs::mkdirat(&self.handle, plain(name)?, mode) {
            Ok(()) | Err(rustix::io::Errno::EXIST) => self.folder(name),
            Err(error) => Err(error.into()),
        }
    }

    /// What has a name, links not followed.
    fn stat(&self, name: &OsStr) -> io::Result<rustix::fs::Stat> {
        Ok(rustix::fs::statat(&self.handle, plain(name)?, AtFlags::SYMLINK_NOFOLLOW)?)
    }

    /// Whether there is something of this name, be it a link that leads nowhere.
    fn exists(&self, name: &OsStr) -> bool {
        self.stat(name).is_ok()
    }

    /// What has a name, links not followed.
    pub fn metadata(&self, name: &OsStr) -> io::Result<Metadata> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let found = rustix::fs::openat(&self.handle, plain(name)?, flags, Mode::empty())?;
        File::from(found).metadata()
    }

    /// Opens a regular file that is there.
    fn open_file(&self, name: &OsStr, how: OFlags) -> io::Result<File> {
        // Opening a device may have an effect, so it is not opened.
        check_regular(self.stat(name)?.st_mode)?;
        let flags = how | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let file = File::from(rustix::fs::openat(&self.handle, name, flags, Mode::empty())?);
        check_regular(file.metadata()?.mode())?;
        Ok(file)
    }

    /// Opens a file to be read.
    pub fn read(&self, name: &OsStr) -> io::Result<File> {
        self.open_file(name, OFlags::RDONLY)
    }

    /// Opens a file to be changed. One that has a second name is not ours alone, and is refused.
    pub fn write(&self, name: &OsStr) -> io::Result<File> {
        let file = self.open_file(name, OFlags::RDWR)?;
        match file.metadata()?.nlink() {
            0 | 1 => Ok(file),
            _ => Err(refused("it has a second name (a hard link), and is not changed".into())),
        }
    }

    /// Creates a file that must not be there yet, and locks it.
    pub fn create_new(&self, name: &OsStr, rights: Rights) -> io::Result<File> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL;
        let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        // The folder may give its group to the files in it. Rights that this group must not have
        // are not granted even at first: a process that has opened the file keeps it open.
        let folder = rustix::fs::fstat(&self.handle)?;
        let gives_group = Mode::from_raw_mode(folder.st_mode).contains(Mode::SGID);
        let own = rustix::process::getegid().as_raw();
        let mode = rights.mode(if gives_group { folder.st_gid } else { own });
        let file = File::from(rustix::fs::openat(&self.handle, plain(name)?, flags, mode)?);
        let made = file.metadata()?;
        let most = rights.mode(made.gid());
        if mode & !most != Mode::empty() {
            // The file system assigns groups in a way of its own.
            rustix::fs::fchmod(&file, most & Mode::from_raw_mode(made.mode()))?;
        }
        // While it is locked, no process takes it for a stale file.
        file.try_lock().map_err(io::Error::from)?;
        match self.is_at(&file, name)? {
            true => Ok(file),
            // Another process took it for stale before it was locked, and removed it.
            false => Err(io::ErrorKind::NotFound.into()),
        }
    }

    /// Creates a file and locks it, in place of one that a killed process has left behind. If
    /// somebody else holds that one, this fails with [`io::ErrorKind::WouldBlock`]. A link, or a
    /// file that has a second name, is not replaced: [`io::ErrorKind::AlreadyExists`].
    pub fn create(&self, name: &OsStr, rights: Rights) -> io::Result<File> {
        for _ in 0..ATTEMPTS_MAX {
            match self.create_new(name, rights) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) if error.kind() == io::ErrorKind::NotFound && self.is_there() => {
                    continue;
                }
                outcome => return outcome,
            }
            self.remove_stale(name)?;
        }
        // Each time another process finished this file in the meantime: it is theirs.
        Err(io::ErrorKind::WouldBlock.into())
    }

    /// Whether the folder still exists.
    fn is_there(&self) -> bool {
        rustix::fs::fstat(&self.handle).is_ok_and(|stat| stat.st_nlink > 0)
    }

    /// Removes a file that a killed process has left behind; it is no error if it is gone. If
    /// somebody else holds it, this fails with [`io::ErrorKind::WouldBlock`].
    pub fn remove_stale(&self, name: &OsStr) -> io::Result<()> {
        let stat = match self.stat(name) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            stat => stat?,
        };
        let not_ours = |what: &str| {
            let shown = name.display();
            let what = format!("{shown} is {what}; remove it if it is not wanted");
            io::Error::new(io::ErrorKind::AlreadyExists, what)
        };
        if check_regular(stat.st_mode).is_err() {
            return Err(not_ours(kind(stat.st_mode)));
        }
        let file = match self.read(name) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            file => file?,
        };
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(io::ErrorKind::WouldBlock.into()),
            Err(TryLockError::Error(error)) => return Err(error),
        }
        // Between the two calls its owner may have finished and renamed it: then what is locked is
        // a finished file. Only a locked file that still has the name was left behind.
        if !self.is_at(&file, name)? {
            return Ok(());
        }
        if file.metadata()?.nlink() > 1 {
            return Err(not_ours("a file with a second name (a hard link)"));
        }
        // Removed while locked; otherwise it could be another process's file by now.
        self.remove(name)
    }

    /// Whether a name leads to a file.
    fn is_at(&self, file: &File, name: &OsStr) -> io::Result<bool> {
        let ours = file.metadata()?;
        match self.stat(name) {
            Ok(there) => Ok((there.st_dev, there.st_ino) == (ours.dev(), ours.ino())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Opens or creates a file that is used only for its lock.
    pub fn lock_file(&self, name: &OsStr) -> io::Result<File> {
        self.lock_file_with(name, Rights::USUAL)
    }

    /// The same for its owner alone: others can neither hold the lock nor see that there is one.
    pub fn private_lock_file(&self, name: &OsStr) -> io::Result<File> {
        self.lock_file_with(name, Rights::OWNER)
    }

    fn lock_file_with(&self, name: &OsStr, rights: Rights) -> io::Result<File> {
        match self.open_file(name, OFlags::WRONLY) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::NONBLOCK;
                let mode = Mode::from_raw_mode(rights.mode);
                let file = rustix::fs::openat(&self.handle, name, flags | OFlags::CLOEXEC, mode)?;
                let file = File::from(file);
                check_regular(file.metadata()?.mode())?;
                Ok(file)
            }
            opened => opened,
        }
    }

    /// Gives a file another name in the folder; what had that name before is gone.
    pub fn rename(&self, source: &OsStr, target: &OsStr) -> io::Result<()> {
        Ok(rustix::fs::renameat(&self.handle, plain(source)?, &self.handle, plain(target)?)?)
    }

    /// Gives a file another name in the folder, unless something has that name already:
    /// [`io::ErrorKind::AlreadyExists`].
    pub fn rename_new(&self, source: &OsStr, target: &OsStr) -> io::Result<()> {
        let (source, target) = (plain(source)?, plain(target)?);
        let once = RenameFlags::NOREPLACE;
        match rustix::fs::renameat_with(&self.handle, source, &self.handle, target, once) {
            // Not every file system can do it in one step.
            Err(Errno::INVAL | Errno::NOSYS) if self.exists(target) => {
                Err(io::ErrorKind::AlreadyExists.into())
            }
            Err(Errno::INVAL | Errno::NOSYS) => self.rename(source, target),
            outcome => Ok(outcome?),
        }
    }

    /// Removes a file; if it is a link, the link itself.
    pub fn remove(&self, name: &OsStr) -> io::Result<()> {
        Ok(rustix::fs::unlinkat(&self.handle, plain(name)?, AtFlags::empty())?)
    }

    /// Makes the names in the folder survive a crash.
    pub fn sync(&self) -> io::Result<()> {
        Ok(rustix::fs::fsync(self.opened()?)?)
    }

    /// Who owns the folder, and what may be done with it.
    pub fn own_metadata(&self) -> io::Result<Metadata> {
        File::from(self.opened()?).metadata()
    }

    /// Gives the folder to a user and a group: for root, who makes it for somebody else.
    pub fn give(&self, owner: u32, group: u32) -> io::Result<()> {
        let (owner, group) = (Uid::from_raw(owner), Gid::from_raw(group));
        Ok(rustix::fs::fchown(self.opened()?, Some(owner), Some(group))?)
    }

    /// The folder itself, opened for what a handle of its path is not enough for.
    fn opened(&self) -> io::Result<OwnedFd> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(rustix::fs::openat(&self.handle, ".", flags, Mode::empty())?)
    }
}

/// The folder of an archive: all changes to an archive go through it.
///
/// Its methods take the paths that the archive has for its files. Such a path only says which of
/// the folders is meant, its own or one of the three in it, and which name in it; all others are
/// refused.
#[derive(Debug, Clone)]
pub struct Root {
    path: PathBuf,
    top: Dir,
}

impl Root {
    /// Opens the folder. If its path has links, they are followed, once: the user has named it.
    pub fn open(path: &Path) -> io::Result<Self> {
        let shown = if path.as_os_str().is_empty() { Path::new(".") } else { path };
        Ok(Self { path: path.to_owned(), top: Dir::open(shown)? })
    }

    /// Opens the folder, or makes it and those above it.
    pub fn create(path: &Path) -> io::Result<Self> {
        match Self::open(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                std::fs::create_dir_all(path)?;
                Self::open(path)
            }
            opened => opened,
        }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Makes one of the archive's folders, unless it is there.
    pub fn make_folder(&self, path: &Path) -> io::Result<()> {
        match self.parts(path)? {
            (Some(folder), None) => self.top.make_folder(folder).map(drop),
            _ => Err(outside(path)),
        }
    }

    /// Which of the archive's folders a path means, and which name in it.
    fn parts<'p>(&self, path: &'p Path) -> io::Result<(Option<&'p OsStr>, Option<&'p OsStr>)> {
        let rest = path.strip_prefix(&self.path).map_err(|_| outside(path))?;
        let mut parts = rest.components();
        let is_folder = |name: &OsStr| FOLDERS.iter().any(|folder| name == *folder);
        match (parts.next(), parts.next(), parts.next()) {
            (None, ..) => Ok((None, None)),
            (Some(Component::Normal(folder)), None, _) if is_folder(folder) => {
                Ok((Some(folder), None))
            }
            (Some(Component::Normal(name)), None, _) => Ok((None, Some(name))),
            (Some(Component::Normal(folder)), Some(Component::Normal(name)), None)
                if is_folder(folder) =>
            {
                Ok((Some(folder), Some(name)))
            }
            _ => Err(outside(path)),
        }
    }

    /// One of the archive's folders.
    fn dir(&self, folder: Option<&OsStr>) -> io::Result<Dir> {
        folder.map_or_else(|| Ok(self.top.clone()), |folder| self.top.folder(folder))
    }

    /// A folder of the archive, or its own.
    pub(crate) fn folder(&self, path: &Path) -> io::Result<Dir> {
        match self.parts(path)? {
            (name, None) => self.dir(name),
            _ => Err(outside(path)),
        }
    }

    /// The archive's own folder and the name there, of a file that is in no folder beneath it.
    pub(crate) fn in_top<'p>(&self, path: &'p Path) -> Option<(&Dir, &'p OsStr)> {
        match self.parts(path) {
            Ok((None, Some(name))) => Some((&self.top, name)),
            _ => None,
        }
    }

    /// The folder that has a file, and its name there.
    pub(crate) fn place<'p>(&self, path: &'p Path) -> io::Result<(Dir, &'p OsStr)> {
        let (folder, name) = self.parts(path)?;
        Ok((self.dir(folder)?, name.ok_or_else(|| outside(path))?))
    }

    /// A folder, and the names that two files have in it.
    pub(crate) fn neighbours<'p>(
        &self,
        source: &'p Path,
        target: &'p Path,
    ) -> io::Result<(Dir, &'p OsStr, &'p OsStr)> {
        let ((from, _), (to, target)) = (self.parts(source)?, self.parts(target)?);
        if from != to {
            return Err(refused("files stay in their folder".into()));
        }
        let (folder, source) = self.place(source)?;
        Ok((folder, source, target.unwrap_or_default()))
    }
}

fn outside(path: &Path) -> io::Error {
    refused(format!("{} is none of the archive's own files", path.display()))
}

/// Cuts off what is behind an offset of a file that was opened or created here. A file that is
/// shorter stays as it is.
pub fn cut(file: &File, len: u64) -> io::Result<()> {
    if file.metadata()?.len() > len {
        file.set_len(len)?;
    }
    Ok(())
}

/// Opens a regular file to be read, with flags of our own.
fn open_regular(path: &Path, metadata: io::Result<Metadata>, flags: OFlags) -> io::Result<File> {
    // Opening a device may have an effect, so it is not opened.
    check_regular(metadata?.mode())?;
    let flags = flags | OFlags::NONBLOCK | OFlags::NOCTTY;
    let flags = i32::try_from(flags.bits()).unwrap_or_default();
    let file = File::options().read(true).custom_flags(flags).open(path)?;
    check_regular(file.metadata()?.mode())?;
    Ok(file)
}

/// Opens a regular file that the user has named for reading, links followed. Anything but a regular
/// file is refused at once: [`io::ErrorKind::InvalidInput`].
pub fn open_named(path: &Path) -> io::Result<File> {
    open_regular(path, path.metadata(), OFlags::empty())
}

/// Opens anything that can be read: a file, a pipe, standard input by its name. This may wait, and
/// what is read may have no end, so it is for streams that the user has named.
pub fn open_stream(path: &Path) -> io::Result<File> {
    File::open(path)
}

/// Opens a regular file of an archive to be read. A link is refused, too.
pub fn open_own(path: &Path) -> io::Result<File> {
    open_regular(path, path.symlink_metadata(), OFlags::NOFOLLOW)
}

/// The text of a file of at most `most` bytes.
pub fn read_text(file: impl Read, most: u64) -> io::Result<String> {
    let mut text = String::new();
    let len = file.take(most.saturating_add(1)).read_to_string(&mut text)?;
    if len as u64 > most {
        let message = format!("it has more than {most} bytes");
        return Err(io::Error::new(io::ErrorKind::InvalidData, message));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::{Publish, Storage, Whose};
    use std::fs;
    use std::os::unix::fs::symlink;

    /// An archive with its folders, next to a file that does not belong to it.
    fn rooted() -> (tempfile::TempDir, Root) {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::create(&folder.path().join("archive")).unwrap();
        for name in FOLDERS {
            root.make_folder(&root.path().join(name)).unwrap();
        }
        fs::write(folder.path().join("precious"), "precious").unwrap();
        (folder, root)
    }

    #[test]
    fn paths_that_lead_elsewhere_are_refused() {
        let (folder, root) = rooted();
        let precious = folder.path().join("precious");
        let inside = |name: &str| root.path().join(name);
        let outside = [
            precious.clone(),
            PathBuf::new(),
            inside("../precious"),
            inside("packets/../../precious"),
            inside("packets/../precious"),
            inside("other/precious"),
            inside("packets/a/b"),
            inside("packets"),
            inside(""),
            inside(".."),
            PathBuf::from("/"),
        ];
        for path in outside {
            assert!(root.remove(&path).is_err(), "{path:?}");
            assert!(root.create(&path, Rights::USUAL).is_err(), "{path:?}");
            assert!(root.create_new(&path, Rights::USUAL).is_err(), "{path:?}");
            assert!(root.open_to_write(&path).is_err(), "{path:?}");
            assert!(root.lock(&path).is_err(), "{path:?}");
            assert!(root.rename(&inside("packets/a"), &path).is_err(), "{path:?}");
            assert!(root.rename(&path, &inside("packets/a")).is_err(), "{path:?}");
        }
        assert_eq!(fs::read(precious).unwrap(), b"precious");
        let name = OsStr::from_bytes(b"a\0b");
        assert!(root.create(&inside("packets").join(name), Rights::USUAL).is_err());
    }

    #[test]
    fn links_and_second_names_are_not_written_to() {
        let (folder, root) = rooted();
        let precious = folder.path().join("precious");
        for (at, target) in [("linked", precious.clone()), ("dangling", folder.path().join("new"))]
        {
            let path = root.path().join("packets").join(at);
            symlink(target, &path).unwrap();
            assert!(root.open_to_write(&path).is_err());
            assert!(root.lock(&path).is_err() && open_own(&path).is_err());
            let created = root.create(&path, Rights::USUAL).unwrap_err();
            assert_eq!(created.kind(), io::ErrorKind::AlreadyExists);
        }
        let second = root.path().join("packets/second");
        fs::hard_link(&precious, &second).unwrap();
        assert!(root.open(&second, Whose::Own).is_ok() && root.open_to_write(&second).is_err());
        assert!(root.create(&second, Rights::USUAL).is_err());
        root.remove(&second).unwrap();
        // A link in the place of a folder.
        fs::remove_dir(root.path().join("drafts")).unwrap();
        symlink(folder.path(), root.path().join("drafts")).unwrap();
        let path = root.path().join("drafts/precious");
        assert!(root.remove(&path).is_err() && root.open_to_write(&path).is_err());
        assert!(root.create(&root.path().join("drafts/new"), Rights::USUAL).is_err());
        assert!(root.make_folder(&root.path().join("drafts")).is_err());
        assert_eq!(fs::read(precious).unwrap(), b"precious");
        assert!(!folder.path().join("new").exists());
    }

    #[test]
    fn a_file_that_was_renamed_is_not_taken_for_the_temporary_one() {
        let (_folder, root) = rooted();
        let [temporary, own] = [".a.tmp", "a"].map(|name| root.path().join("segments").join(name));
        let (dir, name) = root.place(&temporary).unwrap();
        let file = dir.create_new(name, Rights::USUAL).unwrap();
        assert!(dir.is_at(&file, name).unwrap());
        root.rename(&temporary, &own).unwrap();
        assert!(!dir.is_at(&file, name).unwrap());
        fs::write(&temporary, "").unwrap();
        assert!(!dir.is_at(&file, name).unwrap());
        // Held under its own name, it is no reason not to replace the other.
        assert!(root.create(&temporary, Rights::USUAL).is_ok());
    }

    #[test]
    fn rights_are_those_that_all_sources_give() {
        let rights = |mode, group| Rights { mode, group };
        let ours = Mode::from_raw_mode;
        let group = rights(0o640, Some(7));
        assert_eq!((group.mode(7), group.mode(8)), (ours(0o640), ours(0o600)));
        assert_eq!(Rights::USUAL.and(group), group);
        assert_eq!(group.and(rights(0o640, Some(8))).mode(7), ours(0o600));
        assert_eq!(group.and(rights(0o600, Some(7))).mode(7), ours(0o600));
        assert_eq!(rights(0o644, None).and(Rights::GROUP).mode(9), ours(0o640));
        assert_eq!(rights(0o644, None).and(group).mode(9), ours(0o600));
    }

    #[test]
    fn nobody_gets_a_right_by_a_detour() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("source");
        let file = File::create(&path).unwrap();
        let of = |mode: u32| {
            rustix::fs::fchmod(&file, Mode::from_raw_mode(mode)).unwrap();
            Rights::of(&file).unwrap().mode
        };
        // What others may read and the group may not: in another group its members are others.
        assert_eq!([of(0o644), of(0o640), of(0o604), of(0o600)], [0o644, 0o640, 0o600, 0o600]);
        // A user on the list may read it, its group may not; the mode says 0640.
        let list: [(u16, u16, u32); 5] = [
            (1, 6, u32::MAX),
            (2, 4, 65534),
            (4, 0, u32::MAX),
            (16, 4, u32::MAX),
            (32, 0, u32::MAX),
        ];
        let mut bytes = 2_u32.to_le_bytes().to_vec();
        for (tag, rights, id) in list {
            bytes.extend(tag.to_le_bytes().into_iter().chain(rights.to_le_bytes()));
            bytes.extend(id.to_le_bytes());
        }
        let name = "system.posix_acl_access";
        match rustix::fs::fsetxattr(&file, name, &bytes, rustix::fs::XattrFlags::empty()) {
            Ok(()) => {
                assert_eq!((file.metadata().unwrap().mode() & 0o777, of(0o640)), (0o640, 0o600))
            }
            Err(error) => eprintln!("not tried, no lists of rights here: {error}"),
        }
    }

    #[test]
    fn private_folders_are_their_owners_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a/b");
        let mode = |path: &Path| path.metadata().unwrap().mode() & 0o7777;
        let dir = Dir::create_private(&path).unwrap();
        dir.make_private_folder(OsStr::new("c")).unwrap();
        for made in [folder.path().join("a"), path.clone(), path.join("c")] {
            assert_eq!(mode(&made), 0o700, "{made:?}");
        }
        drop(dir.private_lock_file(OsStr::new(".lock")).unwrap());
        assert_eq!(mode(&path.join(".lock")), 0o600);
        assert!(Dir::create_private(&path).is_ok());
        let file = path.join("file");
        fs::write(&file, "").unwrap();
        assert!(Dir::create_private(&file).is_err());
        assert!(dir.make_private_folder(OsStr::new("file")).is_err());
    }

    #[test]
    fn a_text_has_an_end() {
        let (folder, root) = rooted();
        let text = |most| read_text(open_named(&folder.path().join("precious")).unwrap(), most);
        assert_eq!(text(8).unwrap(), "precious");
        assert_eq!(text(7).unwrap_err().kind(), io::ErrorKind::InvalidData);
        assert!(open_named(root.path()).is_err() && open_named(Path::new("/dev/zero")).is_err());
    }
}
