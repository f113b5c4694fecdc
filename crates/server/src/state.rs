//! The state folder of a server: who may come in, what was asked, its own certificate.
//!
//! ```text
//! tokens.toml    tokens, without their secrets
//! roles.toml     roles beside those that are built in; written by hand
//! audit.jsonl    what was asked and what was given; audit.head is its end
//! tls/           the certificate that the server made for itself
//! .NAME.lock     locks: who writes NAME now
//! ```
//!
//! The folder is its owner's alone, or it is not used. Files are written under a hidden name and
//! renamed, so that whoever reads one sees all of the old or all of the new text. Links in it are
//! refused: the folder decides who may read packets, and nothing outside may have a say in that.
//!
//! ```
//! use tapdex_server::state::State;
//!
//! let folder = tempfile::tempdir()?;
//! let state = State::create(&folder.path().join("state"))?;
//! state.write("roles.toml", b"# none\n")?;
//! assert_eq!(state.read("roles.toml", 100)?.as_deref(), Some("# none\n"));
//! assert_eq!(state.read("tokens.toml", 100)?, None);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::ffi::OsStr;
use std::fs::{File, TryLockError};
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use tapdex_engine::beneath::{Dir, Rights, read_text};

/// What is wrong with a state folder or with a file in it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StateError {
    /// It is not said where the folder is.
    #[error("there is no home folder to keep the state of a server in: give --state DIR")]
    Homeless,
    /// The folder cannot be opened or made.
    #[error("cannot open the state folder {}", path.display())]
    Folder {
        /// Where it is.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Others than its owner may look into the folder, or change a file.
    #[error(
        "{} is open to others (mode {mode:o}), and decides who may see packets: chmod {wanted} {}",
        path.display(),
        path.display()
    )]
    Open {
        /// Where it is.
        path: PathBuf,
        /// What others may do.
        mode: u32,
        /// What would be right.
        wanted: &'static str,
    },
    /// It belongs to another user.
    #[error("{} belongs to another user (number {owner})", path.display())]
    Owner {
        /// Where it is.
        path: PathBuf,
        /// The user.
        owner: u32,
    },
    /// A file cannot be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A file cannot be written.
    #[error("cannot write {}", path.display())]
    Write {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

/// What tells one version of a file from the next without reading it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stamp {
    device: u64,
    inode: u64,
    bytes: u64,
    /// The last change of the bytes, and of the inode: the first can be set back, the second
    /// cannot.
    changed: [(i64, i64); 2],
}

/// Rights that nobody but the owner of the folder may have.
const OTHERS: u32 = 0o077;
/// Rights that nobody but the owner of a file may have.
const OTHERS_WRITE: u32 = 0o022;

/// A state folder. A copy leads to the same folder.
#[derive(Debug, Clone)]
pub struct State {
    path: PathBuf,
    dir: Dir,
    owner: u32,
    group: u32,
}

/// A lock that is held until this is dropped.
#[derive(Debug)]
pub struct Lock(File);

impl Drop for Lock {
    fn drop(&mut self) {
        // Closing the file would not do: a process that is just being started has it open, too.
        let _ = self.0.unlock();
    }
}

impl State {
    /// Where the state is unless somebody says otherwise: `$XDG_STATE_HOME/tapdex`, or
    /// `~/.local/state/tapdex`.
    pub fn default_path() -> Result<PathBuf, StateError> {
        let folder = |name| std::env::var_os(name).map(PathBuf::from).filter(|p| p.is_absolute());
        folder("XDG_STATE_HOME")
            .or_else(|| folder("HOME").map(|home| home.join(".local/state")))
            .map(|path| path.join("tapdex"))
            .ok_or(StateError::Homeless)
    }

    /// Opens a folder that is there.
    pub fn open(path: &Path) -> Result<Self, StateError> {
        Self::of(path, Dir::open(path))
    }

    /// Opens a folder, or makes it, for its owner alone.
    pub fn create(path: &Path) -> Result<Self, StateError> {
        Self::of(path, Dir::create_private(path))
    }

    fn of(path: &Path, dir: io::Result<Dir>) -> Result<Self, StateError> {
        let failed = |source| StateError::Folder { path: path.to_owned(), source };
        let dir = dir.map_err(failed)?;
        let found = dir.own_metadata().map_err(failed)?;
        let state = Self { path: path.to_owned(), dir, owner: found.uid(), group: found.gid() };
        let user = rustix::process::geteuid();
        if found.uid() != user.as_raw() && !user.is_root() {
            return Err(StateError::Owner { path: path.to_owned(), owner: found.uid() });
        }
        if found.mode() & OTHERS != 0 {
            let mode = found.mode() & 0o7777;
            return Err(StateError::Open { path: path.to_owned(), mode, wanted: "700" });
        }
        Ok(state)
    }

    /// A folder in this one, made if it is not there.
    pub fn folder(&self, name: &str) -> Result<Self, StateError> {
        let path = self.path.join(name);
        let failed = |source| StateError::Folder { path: path.clone(), source };
        let dir = self.dir.make_private_folder(OsStr::new(name)).map_err(failed)?;
        let found = dir.own_metadata().map_err(failed)?;
        if found.mode() & OTHERS != 0 {
            let mode = found.mode() & 0o7777;
            return Err(StateError::Open { path, mode, wanted: "700" });
        }
        if found.uid() != self.owner && self.gives() {
            dir.give(self.owner, self.group).map_err(failed)?;
        }
        Ok(Self { path, dir, owner: self.owner, group: self.group })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Where a file in it is, for messages.
    pub fn path_of(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// What tells this version of a file from the next; `None` if there is no such file.
    pub fn stamp(&self, name: &str) -> Result<Option<Stamp>, StateError> {
        match self.dir.metadata(OsStr::new(name)) {
            Ok(found) => Ok(Some(Stamp {
                device: found.dev(),
                inode: found.ino(),
                bytes: found.size(),
                changed: [(found.mtime(), found.mtime_nsec()), (found.ctime(), found.ctime_nsec())],
            })),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(source) => Err(StateError::Read { path: self.path_of(name), source }),
        }
    }

    /// The text of a file of at most `most` bytes; `None` if there is no such file.
    pub fn read(&self, name: &str, most: u64) -> Result<Option<String>, StateError> {
        let failed = |source| StateError::Read { path: self.path_of(name), source };
        let Some(file) = self.open_file(name)? else { return Ok(None) };
        read_text(file, most).map(Some).map_err(failed)
    }

    /// The names of all files in it that are not hidden.
    pub fn names(&self) -> Result<Vec<String>, StateError> {
        let failed = |source| StateError::Folder { path: self.path.clone(), source };
        let mut names = Vec::new();
        for entry in self.path.read_dir().map_err(failed)? {
            let name = entry.map_err(failed)?.file_name();
            names.extend(name.to_str().filter(|name| !name.starts_with('.')).map(str::to_owned));
        }
        Ok(names)
    }

    /// Opens a file to be read, if there is one.
    pub fn open_file(&self, name: &str) -> Result<Option<File>, StateError> {
        match self.dir.read(OsStr::new(name)) {
            Ok(file) => self.checked(name, file).map(Some),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(source) => Err(StateError::Read { path: self.path_of(name), source }),
        }
    }

    /// A file that nobody but its owner, or root, may have written.
    fn checked(&self, name: &str, file: File) -> Result<File, StateError> {
        let path = self.path_of(name);
        let found = file.metadata();
        let found = found.map_err(|source| StateError::Read { path: path.clone(), source })?;
        if found.mode() & OTHERS_WRITE != 0 {
            let mode = found.mode() & 0o7777;
            return Err(StateError::Open { path, mode, wanted: "600" });
        }
        match found.uid() == self.owner || found.uid() == 0 {
            true => Ok(file),
            false => Err(StateError::Owner { path, owner: found.uid() }),
        }
    }

    /// Writes a file as a whole: under a hidden name, synced, renamed.
    pub fn write(&self, name: &str, bytes: &[u8]) -> Result<(), StateError> {
        let hidden = format!(".{name}.tmp");
        let (hidden, target) = (OsStr::new(&hidden), OsStr::new(name));
        let write = || {
            let mut file = self.dir.create(hidden, Rights::OWNER)?;
            let written = file
                .write_all(bytes)
                .and_then(|()| self.give_file(&file))
                .and_then(|()| file.sync_all())
                .and_then(|()| self.dir.rename(hidden, target));
            if written.is_err() {
                // Half a file is of no use, and with a full disk the room is.
                drop(self.dir.remove(hidden));
            }
            written?;
            self.dir.sync()
        };
        write().map_err(|source| StateError::Write { path: self.path_of(name), source })
    }

    /// Opens a file to be read and written, or makes an empty one.
    pub fn open_to_write(&self, name: &str) -> Result<File, StateError> {
        let failed = |source| StateError::Write { path: self.path_of(name), source };
        let file = match self.dir.write(OsStr::new(name)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let file = self.dir.create_new(OsStr::new(name), Rights::OWNER).map_err(failed)?;
                self.give_file(&file).map_err(failed)?;
                self.dir.sync().map_err(failed)?;
                file
            }
            opened => opened.map_err(failed)?,
        };
        self.checked(name, file)
    }

    /// Waits until nobody else writes a file.
    pub fn lock(&self, name: &str) -> Result<Lock, StateError> {
        let failed = |source| StateError::Write { path: self.path_of(&lock_name(name)), source };
        let file = self.lock_file(name).map_err(failed)?;
        file.lock().map_err(failed)?;
        Ok(Lock(file))
    }

    /// The same without waiting: `None` if somebody else has the lock.
    pub fn try_lock(&self, name: &str) -> Result<Option<Lock>, StateError> {
        let failed = |source| StateError::Write { path: self.path_of(&lock_name(name)), source };
        let file = self.lock_file(name).map_err(failed)?;
        match file.try_lock() {
            Ok(()) => Ok(Some(Lock(file))),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(source)) => Err(failed(source)),
        }
    }

    fn lock_file(&self, name: &str) -> io::Result<File> {
        let file = self.dir.private_lock_file(OsStr::new(&lock_name(name)))?;
        self.give_file(&file)?;
        Ok(file)
    }

    /// Removes a file, if it is there.
    pub fn remove(&self, name: &str) -> Result<(), StateError> {
        match self.dir.remove(OsStr::new(name)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            outcome => {
                outcome.map_err(|source| StateError::Write { path: self.path_of(name), source })
            }
        }
    }

    /// Whether what is made here is given to the owner of the folder: if root writes into the
    /// folder of another user, that user has to be able to read it. The server gave up root long
    /// ago.
    fn gives(&self) -> bool {
        rustix::process::geteuid().is_root()
    }

    fn give_file(&self, file: &File) -> io::Result<()> {
        let found = file.metadata()?;
        // What has a second name may be a file of somebody else's.
        if found.uid() == self.owner || found.nlink() != 1 || !self.gives() {
            return Ok(());
        }
        let owner = rustix::fs::Uid::from_raw(self.owner);
        let group = rustix::fs::Gid::from_raw(self.group);
        Ok(rustix::fs::fchown(file, Some(owner), Some(group))?)
    }
}

fn lock_name(name: &str) -> String {
    format!(".{name}.lock")
}
