//! A disk in memory that loses unsynced data when the machine stops.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, IoSlice};
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};

use tapdex_bitmap::sample::Random;

use crate::beneath::Rights;
use crate::storage::{
    AppendFile, FileKind, FileVersion, Held, Map, Metadata, Publish, ReadFile, Reader, Space,
    Storage, Whose, WriteFile,
};

/// The free space that a disk in memory reports.
const FREE: u64 = 1 << 40;

/// A disk in memory. Bytes survive a crash if their file was synced, names if the folder was; what
/// else survives is a matter of luck, that is, of [`reboot`](MemoryDisk::reboot)'s seed.
#[derive(Debug, Default)]
pub(super) struct MemoryDisk {
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default, Clone)]
struct State {
    files: Vec<Content>,
    /// The names that a program sees, and those that are sure to be there after a crash.
    names: BTreeMap<PathBuf, usize>,
    names_durable: BTreeMap<PathBuf, usize>,
    /// What was done to names since the folder was last synced.
    changes: Vec<Change>,
    folders: BTreeSet<PathBuf>,
    held: BTreeSet<usize>,
    locks: BTreeSet<PathBuf>,
    /// The time of the disk's clock, in nanoseconds.
    now_ns: u64,
}

#[derive(Debug, Default, Clone)]
struct Content {
    bytes: Vec<u8>,
    /// How many of the bytes are sure to be there after a crash.
    durable: usize,
    modified_ns: u64,
}

#[derive(Debug, Clone)]
enum Change {
    Create(PathBuf, usize),
    Rename(PathBuf, PathBuf, usize),
    Remove(PathBuf),
}

impl Change {
    fn apply(&self, names: &mut BTreeMap<PathBuf, usize>) {
        match self {
            Change::Create(path, file) => {
                names.insert(path.clone(), *file);
            }
            Change::Rename(source, target, file) => {
                names.remove(source);
                names.insert(target.clone(), *file);
            }
            Change::Remove(path) => {
                names.remove(path);
            }
        }
    }
}

impl State {
    fn change(&mut self, change: Change) {
        change.apply(&mut self.names);
        self.changes.push(change);
    }

    fn file(&self, path: &Path) -> io::Result<usize> {
        self.names.get(&plain(path)).copied().ok_or(io::ErrorKind::NotFound.into())
    }

    /// Makes a file and holds it.
    fn create(&mut self, path: &Path) -> usize {
        self.now_ns += 1;
        let file = self.files.len();
        self.files.push(Content { modified_ns: self.now_ns, ..Content::default() });
        self.change(Change::Create(plain(path), file));
        self.held.insert(file);
        file
    }

    fn change_bytes(&mut self, file: usize, change: impl FnOnce(&mut Vec<u8>)) {
        self.now_ns += 1;
        let content = &mut self.files[file];
        change(&mut content.bytes);
        content.durable = content.durable.min(content.bytes.len());
        content.modified_ns = self.now_ns;
    }

    fn metadata(&self, file: usize) -> Metadata {
        let Content { bytes, modified_ns, .. } = &self.files[file];
        let version = FileVersion([file as u64, *modified_ns, 0, 0]);
        let (kind, len) = (FileKind::File, bytes.len() as u64);
        Metadata { kind, len, modified_ns: *modified_ns, version }
    }
}

/// A path without `.` and `..`: the only path of a file, as there are no links.
fn plain(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir => drop(plain.pop()),
            part => plain.push(part),
        }
    }
    plain
}

impl MemoryDisk {
    /// Puts a file there that survives every crash.
    pub(super) fn put(&self, path: &Path, bytes: &[u8]) {
        let mut state = self.state();
        let file = state.files.len();
        let content = Content { bytes: bytes.to_vec(), durable: bytes.len(), modified_ns: 1 };
        state.files.push(content);
        state.names.insert(plain(path), file);
        state.names_durable.insert(plain(path), file);
    }

    /// What a file holds, if there is one.
    pub(super) fn read(&self, path: &Path) -> Option<Vec<u8>> {
        let state = self.state();
        state.file(path).ok().map(|file| state.files[file].bytes.clone())
    }

    /// The names of all files.
    pub(super) fn paths(&self) -> Vec<PathBuf> {
        self.state().names.keys().cloned().collect()
    }

    /// The disk after a restart of the machine. Of the bytes that were not synced, some are there,
    /// and the rest are missing or zeros. Any of the changes to names that were not synced may have
    /// happened.
    pub(super) fn reboot(&self, seed: u64) -> Self {
        let mut random = Random::new(seed);
        let mut state = self.state().clone();
        for file in &mut state.files {
            let unsure = u32::try_from(file.bytes.len() - file.durable).unwrap();
            let kept = file.durable + random.below(unsure + 1) as usize;
            match random.below(3) {
                0 => file.bytes.truncate(kept),
                1 => file.bytes[kept..].fill(0),
                _ => {}
            }
            file.durable = file.bytes.len();
        }
        let mut names = state.names_durable.clone();
        for change in &state.changes {
            if random.below(2) == 0 {
                change.apply(&mut names);
            }
        }
        let State { files, folders, now_ns, .. } = state;
        let names_durable = names.clone();
        let state = State { files, names, names_durable, folders, now_ns, ..State::default() };
        Self { state: Arc::new(Mutex::new(state)) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    fn opened(&self, file: usize, holds: bool) -> MemoryFile {
        MemoryFile { state: Arc::clone(&self.state), file, holds: holds.into() }
    }
}

impl Publish for MemoryDisk {
    fn create(&self, path: &Path, _rights: Rights) -> io::Result<Box<dyn AppendFile>> {
        self.remove_stale(path)?;
        let file = self.state().create(path);
        Ok(Box::new(self.opened(file, true)))
    }

    fn rename(&self, source: &Path, target: &Path) -> io::Result<()> {
        let mut state = self.state();
        let file = state.file(source)?;
        state.change(Change::Rename(plain(source), plain(target), file));
        Ok(())
    }

    fn sync_folder(&self, _folder: &Path) -> io::Result<()> {
        let mut state = self.state();
        state.names_durable = state.names.clone();
        state.changes.clear();
        Ok(())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let mut state = self.state();
        state.file(path)?;
        state.change(Change::Remove(plain(path)));
        Ok(())
    }
}

impl Storage for MemoryDisk {
    fn open(&self, path: &Path, _whose: Whose) -> io::Result<Reader> {
        let file = self.state().file(path)?;
        Ok(Reader::new(Box::new(self.opened(file, false))))
    }

    fn map(&self, path: &Path, _whose: Whose) -> io::Result<Map> {
        Ok(self.read(path).ok_or(io::ErrorKind::NotFound)?.into())
    }

    fn metadata(&self, path: &Path, _whose: Whose) -> io::Result<Metadata> {
        let (state, path) = (self.state(), plain(path));
        let version = FileVersion([0; 4]);
        let folder = Metadata { kind: FileKind::Folder, len: 0, modified_ns: 0, version };
        let is_folder = state.folders.contains(&path)
            || state.names.keys().any(|name| name.parent() == Some(path.as_path()));
        if is_folder { Ok(folder) } else { Ok(state.metadata(state.file(&path)?)) }
    }

    fn list(&self, folder: &Path) -> io::Result<Vec<PathBuf>> {
        if !self.metadata(folder, Whose::Named)?.is_folder() {
            return Err(io::ErrorKind::NotADirectory.into());
        }
        let state = self.state();
        let all = state.names.keys().chain(&state.folders);
        let inside = all.filter(|path| path.parent() == Some(plain(folder).as_path()));
        Ok(inside.filter_map(|path| Some(folder.join(path.file_name()?))).collect())
    }

    fn real_path(&self, path: &Path) -> io::Result<PathBuf> {
        self.metadata(path, Whose::Named).map(|_| plain(path))
    }

    fn create_new(&self, path: &Path, _rights: Rights) -> io::Result<Box<dyn WriteFile>> {
        let mut state = self.state();
        if state.file(path).is_ok() {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let file = state.create(path);
        Ok(Box::new(self.opened(file, true)))
    }

    fn open_to_write(&self, path: &Path) -> io::Result<Box<dyn WriteFile>> {
        let file = self.state().file(path)?;
        Ok(Box::new(self.opened(file, false)))
    }

    fn rename_new(&self, source: &Path, target: &Path) -> io::Result<()> {
        if self.state().file(target).is_ok() {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        self.rename(source, target)
    }

    fn remove_stale(&self, path: &Path) -> io::Result<()> {
        let mut state = self.state();
        match state.file(path) {
            Ok(file) if state.held.contains(&file) => Err(io::ErrorKind::WouldBlock.into()),
            Ok(_) => {
                state.change(Change::Remove(plain(path)));
                Ok(())
            }
            Err(_) => Ok(()),
        }
    }

    fn make_folder(&self, path: &Path) -> io::Result<()> {
        self.state().folders.insert(plain(path));
        Ok(())
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn Held>> {
        match self.state().locks.insert(plain(path)) {
            true => Ok(Box::new(MemoryLock { state: Arc::clone(&self.state), path: plain(path) })),
            false => Err(io::ErrorKind::WouldBlock.into()),
        }
    }

    fn is_locked(&self, path: &Path) -> io::Result<bool> {
        Ok(self.state().locks.contains(&plain(path)))
    }

    fn space(&self, _folder: &Path) -> io::Result<Space> {
        let state = self.state();
        let used = state.names.values().map(|&file| state.files[file].bytes.len() as u64).sum();
        Ok(Space { used, free: FREE })
    }
}

#[derive(Debug)]
struct MemoryLock {
    state: Arc<Mutex<State>>,
    path: PathBuf,
}

impl Held for MemoryLock {}

impl Drop for MemoryLock {
    fn drop(&mut self) {
        self.state.lock().unwrap().locks.remove(&self.path);
    }
}

#[derive(Debug)]
struct MemoryFile {
    state: Arc<Mutex<State>>,
    file: usize,
    holds: std::sync::atomic::AtomicBool,
}

impl AppendFile for MemoryFile {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        let mut state = self.state.lock().unwrap();
        state.change_bytes(self.file, |there| there.extend_from_slice(bytes));
        Ok(())
    }

    fn sync(&mut self) -> io::Result<()> {
        WriteFile::sync(self)
    }
}

impl ReadFile for MemoryFile {
    fn read_at(&self, target: &mut [u8], offset: u64) -> io::Result<usize> {
        let state = self.state.lock().unwrap();
        let bytes = &state.files[self.file].bytes;
        let rest = bytes.get(usize::try_from(offset).unwrap()..).unwrap_or_default();
        let len = rest.len().min(target.len());
        target[..len].copy_from_slice(&rest[..len]);
        Ok(len)
    }

    fn metadata(&self) -> io::Result<Metadata> {
        Ok(self.state.lock().unwrap().metadata(self.file))
    }

    fn rights(&self) -> io::Result<Rights> {
        Ok(Rights::GROUP)
    }
}

impl WriteFile for MemoryFile {
    fn write_at(&self, parts: &[IoSlice<'_>], offset: u64) -> io::Result<usize> {
        let bytes: Vec<u8> = parts.iter().flat_map(|part| part.iter().copied()).collect();
        let start = usize::try_from(offset).unwrap();
        let mut state = self.state.lock().unwrap();
        state.files[self.file].durable = state.files[self.file].durable.min(start);
        state.change_bytes(self.file, |there| {
            there.resize(there.len().max(start + bytes.len()), 0);
            there[start..start + bytes.len()].copy_from_slice(&bytes);
        });
        Ok(bytes.len())
    }

    fn sync(&self) -> io::Result<()> {
        let mut state = self.state.lock().unwrap();
        let file = &mut state.files[self.file];
        file.durable = file.bytes.len();
        Ok(())
    }

    fn cut(&self, len: u64) -> io::Result<()> {
        let mut state = self.state.lock().unwrap();
        state.change_bytes(self.file, |there| there.truncate(usize::try_from(len).unwrap()));
        Ok(())
    }

    fn hold(&self) -> io::Result<bool> {
        use std::sync::atomic::Ordering::SeqCst;
        let held = self.state.lock().unwrap().held.insert(self.file);
        self.holds.fetch_or(held, SeqCst);
        Ok(held)
    }
}

impl Drop for MemoryFile {
    fn drop(&mut self) {
        if *self.holds.get_mut() {
            self.state.lock().unwrap().held.remove(&self.file);
        }
    }
}
