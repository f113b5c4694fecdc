//! A disk in memory that stops, forgets or fills up when it is told to.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};

use tapdex_bitmap::sample::Random;

use crate::beneath::Rights;
use crate::storage::{Storage, StorageFile};

/// A disk in memory. Bytes last when their file was synced, names when the folder was; what else
/// there is after a crash is a matter of luck, that is of [`reboot`](FaultyDisk::reboot)'s seed.
#[derive(Debug, Default)]
pub struct FaultyDisk {
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
    held: BTreeSet<usize>,
    operations: u64,
    operations_max: Option<u64>,
    /// The operation that fails, as the only one.
    failing: Option<u64>,
    bytes_left: Option<u64>,
}

#[derive(Debug, Default, Clone)]
struct Content {
    bytes: Vec<u8>,
    /// How many of the bytes are sure to be there after a crash.
    durable: usize,
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
    /// Counts an operation; an error if the machine has stopped before it.
    fn operation(&mut self) -> io::Result<()> {
        if self.operations_max.is_some_and(|max| self.operations >= max) {
            return Err(io::Error::other("the machine has stopped"));
        }
        if self.failing == Some(self.operations) {
            self.failing = None;
            return Err(io::Error::other("this operation was to fail"));
        }
        self.operations += 1;
        Ok(())
    }

    fn change(&mut self, change: Change) {
        change.apply(&mut self.names);
        self.changes.push(change);
    }
}

impl FaultyDisk {
    /// An empty disk without faults.
    pub fn new() -> Self {
        Self::default()
    }

    /// From now on, so many operations succeed and all after them fail.
    pub fn crash_after(&self, operations: u64) {
        let mut state = self.state();
        state.operations_max = Some(state.operations + operations);
    }

    /// From now on, so many operations succeed, the next one fails, and all after it succeed.
    pub fn fail_after(&self, operations: u64) {
        let mut state = self.state();
        state.failing = Some(state.operations + operations);
    }

    /// From now on, there is room for so many bytes.
    pub fn full_after(&self, bytes: u64) {
        self.state().bytes_left = Some(bytes);
    }

    /// How many operations have succeeded.
    pub fn operations(&self) -> u64 {
        self.state().operations
    }

    /// Puts a file there that outlasts every crash.
    pub fn put(&self, path: &Path, bytes: &[u8]) {
        let mut state = self.state();
        let file = state.files.len();
        state.files.push(Content { bytes: bytes.to_vec(), durable: bytes.len() });
        state.names.insert(path.to_owned(), file);
        state.names_durable.insert(path.to_owned(), file);
    }

    /// What a file holds, if there is one.
    pub fn read(&self, path: &Path) -> Option<Vec<u8>> {
        let state = self.state();
        state.names.get(path).map(|&file| state.files[file].bytes.clone())
    }

    /// The names of all files.
    pub fn paths(&self) -> Vec<PathBuf> {
        self.state().names.keys().cloned().collect()
    }

    /// The disk after the machine was started again, without faults. Of bytes that were not synced
    /// a part is there, and the rest is missing, or zeros; of the changes to names that were not
    /// synced any may have happened.
    pub fn reboot(&self, seed: u64) -> Self {
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
        let files = state.files;
        let names_durable = names.clone();
        let state = State { files, names, names_durable, ..State::default() };
        Self { state: Arc::new(Mutex::new(state)) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }
}

impl Storage for FaultyDisk {
    fn create(&self, path: &Path, _rights: Rights) -> io::Result<Box<dyn StorageFile>> {
        let mut state = self.state();
        state.operation()?;
        let file = match state.names.get(path) {
            Some(file) if state.held.contains(file) => {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            Some(&file) => {
                state.files[file] = Content::default();
                file
            }
            None => {
                let file = state.files.len();
                state.files.push(Content::default());
                state.change(Change::Create(path.to_owned(), file));
                file
            }
        };
        state.held.insert(file);
        Ok(Box::new(FaultyFile { state: Arc::clone(&self.state), file }))
    }

    fn rename(&self, source: &Path, target: &Path) -> io::Result<()> {
        let mut state = self.state();
        state.operation()?;
        let file = *state.names.get(source).ok_or(io::ErrorKind::NotFound)?;
        state.change(Change::Rename(source.to_owned(), target.to_owned(), file));
        Ok(())
    }

    fn sync_folder(&self, _folder: &Path) -> io::Result<()> {
        let mut state = self.state();
        state.operation()?;
        state.names_durable = state.names.clone();
        state.changes.clear();
        Ok(())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let mut state = self.state();
        state.operation()?;
        state.names.get(path).ok_or(io::ErrorKind::NotFound)?;
        state.change(Change::Remove(path.to_owned()));
        Ok(())
    }
}

#[derive(Debug)]
struct FaultyFile {
    state: Arc<Mutex<State>>,
    file: usize,
}

impl StorageFile for FaultyFile {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        let mut state = self.state.lock().unwrap();
        state.operation()?;
        let room = state.bytes_left.map_or(bytes.len(), |left| usize::try_from(left).unwrap());
        let written = room.min(bytes.len());
        state.files[self.file].bytes.extend_from_slice(&bytes[..written]);
        state.bytes_left = state.bytes_left.map(|left| left - written as u64);
        if written < bytes.len() { Err(io::ErrorKind::StorageFull.into()) } else { Ok(()) }
    }

    fn sync(&mut self) -> io::Result<()> {
        let mut state = self.state.lock().unwrap();
        state.operation()?;
        let file = &mut state.files[self.file];
        file.durable = file.bytes.len();
        Ok(())
    }
}

impl Drop for FaultyFile {
    fn drop(&mut self) {
        self.state.lock().unwrap().held.remove(&self.file);
    }
}
