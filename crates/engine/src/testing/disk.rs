//! A disk that fails, waits, stops or fills up on demand.

use std::collections::BTreeMap;
use std::io::{self, IoSlice};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Duration;

use super::memory_disk::MemoryDisk;
use crate::beneath::Rights;
use crate::storage::{
    AppendFile, Held, Map, Metadata, Publish, ReadFile, Reader, Space, Storage, Whose, WriteFile,
};

/// No call waits longer, however a test ends.
const PATIENCE: Duration = Duration::from_secs(120);

/// "Input/output error".
pub const EIO: i32 = 5;
/// "No space left on device".
pub const ENOSPC: i32 = 28;

/// An operation of a disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Operation {
    /// [`Storage::open`].
    Open,
    /// [`ReadFile::read_at`].
    Read,
    /// [`Storage::map`].
    Map,
    /// [`Storage::metadata`] and [`ReadFile::metadata`].
    Metadata,
    /// [`Storage::list`].
    List,
    /// [`Storage::real_path`].
    RealPath,
    /// [`Publish::create`], [`Storage::create_new`] and [`Storage::open_to_write`].
    Create,
    /// [`AppendFile::append`] and [`WriteFile::write_at`].
    Write,
    /// [`AppendFile::sync`] and [`WriteFile::sync`].
    Sync,
    /// [`WriteFile::cut`].
    Cut,
    /// [`Publish::rename`] and [`Storage::rename_new`].
    Rename,
    /// [`Publish::remove`] and [`Storage::remove_stale`].
    Remove,
    /// [`Storage::make_folder`].
    MakeFolder,
    /// [`Publish::sync_folder`].
    SyncFolder,
    /// [`Storage::lock`].
    Lock,
    /// [`Storage::space`].
    Space,
}

impl Operation {
    /// Whether it changes what is on the disk.
    fn is_change(self) -> bool {
        use Operation::{Create, Cut, MakeFolder, Remove, Rename, Sync, SyncFolder, Write};
        let changes = [Create, Write, Sync, Cut, Rename, Remove, MakeFolder, SyncFolder];
        changes.contains(&self)
    }

    /// Whether it is so frequent that successful calls are not remembered.
    fn is_frequent(self) -> bool {
        use Operation::{Metadata, Read, Space, Write};
        matches!(self, Read | Write | Metadata | Space)
    }
}

/// A call to the disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call {
    /// The operation.
    pub operation: Operation,
    /// The file or folder; the old name, if it was renamed.
    pub path: PathBuf,
    /// Whether a fault made it fail.
    pub failed: bool,
}

/// A disk with faults, over another one or in memory.
#[derive(Debug, Clone)]
pub struct FaultyDisk {
    inner: Arc<dyn Storage>,
    memory: Option<Arc<MemoryDisk>>,
    /// The folders whose files count as those of the disk.
    folders: Vec<PathBuf>,
    faults: Arc<Faults>,
}

#[derive(Debug, Default)]
struct Faults {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    rules: Vec<Rule>,
    rules_made: u64,
    calls: Vec<Call>,
    /// Changes that have succeeded.
    operations: u64,
    operations_max: Option<u64>,
    /// The only change that fails.
    failing: Option<u64>,
    bytes_left: Option<u64>,
    /// Bytes of the disk, and bytes that others use.
    capacity: Option<u64>,
    others: u64,
    lies: bool,
    /// Files that are appended to, with the bytes that they will have.
    growing: BTreeMap<PathBuf, u64>,
}

#[derive(Debug)]
struct Rule {
    id: u64,
    operation: Operation,
    name: String,
    after: u64,
    every: u64,
    times: u64,
    effect: Effect,
    /// Calls that the rule applies to, and those that it has changed.
    seen: u64,
    done: u64,
    /// For a rule that holds calls: those that wait, and those that may pass.
    waiting: u64,
    passes: u64,
}

#[derive(Debug, Clone, Copy)]
enum Effect {
    Fail(i32),
    /// A write fails after half of its bytes.
    FailHalfWay(i32),
    Take(Duration),
    Hold,
}

/// A fault that is being described; see [`FaultyDisk::on`].
#[derive(Debug)]
#[must_use]
pub struct Fault<'a> {
    disk: &'a FaultyDisk,
    rule: Rule,
}

impl Fault<'_> {
    /// Only calls for files or folders whose path has this text in it.
    pub fn named(mut self, text: &str) -> Self {
        self.rule.name = text.to_owned();
        self
    }

    /// The first calls pass.
    pub fn after(mut self, calls: u64) -> Self {
        self.rule.after = calls;
        self
    }

    /// Of the calls after that, one in this many.
    pub fn every(mut self, calls: u64) -> Self {
        self.rule.every = calls;
        self
    }

    /// This many calls, and none after them.
    pub fn times(mut self, calls: u64) -> Self {
        self.rule.times = calls;
        self
    }

    /// These calls fail with an error of the system.
    pub fn fails(self, error: i32) {
        self.takes_effect(Effect::Fail(error));
    }

    /// These writes fail after half of their bytes.
    pub fn fails_half_way(self, error: i32) {
        self.takes_effect(Effect::FailHalfWay(error));
    }

    /// These calls take this long.
    pub fn takes(self, time: Duration) {
        self.takes_effect(Effect::Take(time));
    }

    /// These calls wait until the gate is opened, or dropped.
    pub fn waits(self) -> Gate {
        let faults = Arc::clone(&self.disk.faults);
        Gate { id: self.takes_effect(Effect::Hold), faults }
    }

    fn takes_effect(mut self, effect: Effect) -> u64 {
        let mut state = self.disk.state();
        state.rules_made += 1;
        self.rule.id = state.rules_made;
        self.rule.effect = effect;
        let id = self.rule.id;
        state.rules.push(self.rule);
        id
    }
}

/// Where calls wait.
#[derive(Debug)]
pub struct Gate {
    id: u64,
    faults: Arc<Faults>,
}

impl Gate {
    fn rule<T>(&self, of: impl FnOnce(&mut Rule) -> T) -> Option<T> {
        let mut state = self.faults.state.lock().unwrap();
        let rule = state.rules.iter_mut().find(|rule| rule.id == self.id);
        rule.map(of)
    }

    /// How many calls wait now.
    pub fn waiting(&self) -> u64 {
        self.rule(|rule| rule.waiting).unwrap_or(0)
    }

    /// Lets one call pass: one that waits, or the next.
    pub fn let_one_pass(&self) {
        self.rule(|rule| rule.passes += 1);
        self.faults.changed.notify_all();
    }

    /// Lets all calls pass, also later ones.
    pub fn open(&self) {
        self.faults.state.lock().unwrap().rules.retain(|rule| rule.id != self.id);
        self.faults.changed.notify_all();
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        self.open();
    }
}

impl Default for FaultyDisk {
    fn default() -> Self {
        Self::new()
    }
}

impl FaultyDisk {
    /// An empty disk in memory, without faults.
    pub fn new() -> Self {
        Self::in_memory(MemoryDisk::default())
    }

    fn in_memory(memory: MemoryDisk) -> Self {
        let memory = Arc::new(memory);
        let inner: Arc<dyn Storage> = Arc::<MemoryDisk>::clone(&memory);
        Self { inner, memory: Some(memory), folders: Vec::new(), faults: Arc::default() }
    }

    /// The disk that an archive is on, without faults so far. The files of that archive determine
    /// how full it is.
    pub fn over(archive: &crate::archive::Archive) -> Self {
        let folders = ["packets", "segments", "drafts"];
        let folders = folders.map(|name| archive.folder().join(name)).to_vec();
        let inner = Arc::clone(archive.storage());
        Self { inner, memory: None, folders, faults: Arc::default() }
    }

    /// The same disk, as a storage.
    pub fn storage(&self) -> Arc<dyn Storage> {
        Arc::new(self.clone())
    }

    /// Describes a fault of an operation. Faults that were described before come first.
    pub fn on(&self, operation: Operation) -> Fault<'_> {
        let (name, effect) = (String::new(), Effect::Hold);
        let [id, after, seen, done, waiting, passes] = [0; 6];
        let (every, times) = (1, u64::MAX);
        let rule =
            Rule { id, operation, name, after, every, times, effect, seen, done, waiting, passes };
        Fault { disk: self, rule }
    }

    /// Takes all faults of an operation away.
    pub fn heal(&self, operation: Operation) {
        self.state().rules.retain(|rule| rule.operation != operation);
        self.faults.changed.notify_all();
    }

    /// The calls to the disk, except successful reads, writes and queries of metadata.
    pub fn calls(&self, operation: Operation) -> Vec<Call> {
        let state = self.state();
        state.calls.iter().filter(|call| call.operation == operation).cloned().collect()
    }

    /// The calls that a fault made fail.
    pub fn failed(&self, operation: Operation) -> Vec<PathBuf> {
        let calls = self.calls(operation).into_iter();
        calls.filter(|call| call.failed).map(|call| call.path).collect()
    }

    /// From now on, this many changes succeed and all after them fail.
    pub fn crash_after(&self, operations: u64) {
        let mut state = self.state();
        state.operations_max = Some(state.operations + operations);
    }

    /// From now on, this many changes succeed, the next one fails, and all after it succeed.
    pub fn fail_after(&self, operations: u64) {
        let mut state = self.state();
        state.failing = Some(state.operations + operations);
    }

    /// From now on, there is room for this many bytes.
    pub fn full_after(&self, bytes: u64) {
        self.state().bytes_left = Some(bytes);
    }

    /// The disk has this many bytes.
    pub fn capacity(&self, bytes: u64) {
        self.state().capacity = Some(bytes);
    }

    /// Others use this many bytes of the disk.
    pub fn others(&self, bytes: u64) {
        self.state().others = bytes;
    }

    /// The disk says that it has room when it has none.
    pub fn lies(&self, lies: bool) {
        self.state().lies = lies;
    }

    /// How many changes have succeeded.
    pub fn operations(&self) -> u64 {
        self.state().operations
    }

    /// Bytes of the disk that are in use.
    pub fn used(&self) -> u64 {
        let paths = self.folders.iter().flat_map(|folder| self.inner.list(folder));
        // One may be removed in the meantime.
        let paths: Vec<PathBuf> = paths.flatten().collect();
        let len = |path: &PathBuf| Some(self.inner.metadata(path, Whose::Own).ok()?.len);
        let state = self.state();
        let growing = |path: &PathBuf| state.growing.get(path).copied().unwrap_or(0);
        let ours = paths.iter().filter_map(|path| Some(len(path)?.max(growing(path))));
        ours.sum::<u64>() + state.others
    }

    /// Puts a file there that survives every crash. For a disk in memory.
    pub fn put(&self, path: &Path, bytes: &[u8]) {
        self.memory().put(path, bytes);
    }

    /// What a file holds, if there is one. For a disk in memory.
    pub fn read(&self, path: &Path) -> Option<Vec<u8>> {
        self.memory().read(path)
    }

    /// The names of all files. For a disk in memory.
    pub fn paths(&self) -> Vec<PathBuf> {
        self.memory().paths()
    }

    /// The disk after a restart of the machine, without faults. Of the bytes that were not synced,
    /// some are there, and the rest are missing or zeros. Any of the changes to names that were not
    /// synced may have happened. For a disk in memory.
    pub fn reboot(&self, seed: u64) -> Self {
        Self::in_memory(self.memory().reboot(seed))
    }

    fn memory(&self) -> &MemoryDisk {
        self.memory.as_ref().expect("a disk in memory")
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.faults.state.lock().unwrap()
    }

    /// Applies faults before an operation is done; returns the error of a write that fails
    /// half-way.
    fn before(&self, operation: Operation, paths: &[&Path]) -> io::Result<Option<i32>> {
        let mut state = self.state();
        let change = operation.is_change();
        let next = state.operations;
        if change && state.operations_max.is_some_and(|max| next >= max) {
            return Err(io::Error::other("the machine has stopped"));
        }
        if change && state.failing == Some(next) {
            state.failing = None;
            return Err(io::Error::other("this operation was to fail"));
        }
        let is_named = |name: &str| paths.iter().any(|path| path.to_string_lossy().contains(name));
        let mut effects = Vec::new();
        for rule in &mut state.rules {
            if rule.operation != operation || !is_named(&rule.name) {
                continue;
            }
            rule.seen += 1;
            let turn = rule.seen.saturating_sub(rule.after);
            if turn > 0 && turn.is_multiple_of(rule.every) && rule.done < rule.times {
                rule.done += 1;
                effects.push((rule.id, rule.effect));
            }
        }
        let mut outcome = Ok(None);
        for (id, effect) in effects {
            match effect {
                Effect::Fail(error) => outcome = Err(io::Error::from_raw_os_error(error)),
                Effect::FailHalfWay(error) => outcome = Ok(Some(error)),
                Effect::Take(time) => {
                    drop(state);
                    std::thread::sleep(time);
                    state = self.state();
                }
                Effect::Hold => state = self.wait(state, id),
            }
            if outcome.is_err() {
                break;
            }
        }
        let failed = !matches!(outcome, Ok(None));
        state.operations += u64::from(change && outcome.is_ok());
        if failed || !operation.is_frequent() {
            let path = paths.first().copied().unwrap_or(Path::new("")).to_owned();
            state.calls.push(Call { operation, path, failed });
        }
        outcome
    }

    /// Waits at a gate.
    fn wait<'s>(&self, mut state: MutexGuard<'s, State>, id: u64) -> MutexGuard<'s, State> {
        fn find(state: &mut State, id: u64) -> Option<&mut Rule> {
            state.rules.iter_mut().find(|rule| rule.id == id)
        }
        if let Some(rule) = find(&mut state, id) {
            rule.waiting += 1;
        }
        let closed = |state: &mut State| find(state, id).is_some_and(|rule| rule.passes == 0);
        let waited = self.faults.changed.wait_timeout_while(state, PATIENCE, closed);
        let (mut state, _) = waited.unwrap();
        if let Some(rule) = find(&mut state, id) {
            rule.waiting -= 1;
            rule.passes = rule.passes.saturating_sub(1);
        }
        state
    }

    fn check(&self, operation: Operation, path: &Path) -> io::Result<()> {
        self.before(operation, &[path]).map(drop)
    }

    /// How many of these bytes can be written to a file that has `len` bytes already.
    fn room(&self, offset: u64, len: u64, bytes: usize) -> io::Result<usize> {
        let used = self.used();
        let mut state = self.state();
        let mut most = bytes as u64;
        if let Some(capacity) = state.capacity {
            let free = capacity.saturating_sub(used);
            most = most.min((len + free).saturating_sub(offset));
        }
        if let Some(left) = &mut state.bytes_left {
            most = most.min(*left);
            *left -= most;
        }
        match usize::try_from(most).unwrap() {
            0 if bytes > 0 => Err(io::Error::from_raw_os_error(ENOSPC)),
            most => Ok(most),
        }
    }

    fn faulty<F: ?Sized>(&self, path: &Path, file: Box<F>) -> FaultyFile<F> {
        FaultyFile { disk: self.clone(), path: path.to_owned(), file, len: 0 }
    }
}

impl Publish for FaultyDisk {
    fn create(&self, path: &Path, rights: Rights) -> io::Result<Box<dyn AppendFile>> {
        self.check(Operation::Create, path)?;
        Ok(Box::new(self.faulty(path, self.inner.create(path, rights)?)))
    }

    fn rename(&self, source: &Path, target: &Path) -> io::Result<()> {
        self.before(Operation::Rename, &[source, target])?;
        self.inner.rename(source, target)
    }

    fn sync_folder(&self, folder: &Path) -> io::Result<()> {
        self.check(Operation::SyncFolder, folder)?;
        self.inner.sync_folder(folder)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.check(Operation::Remove, path)?;
        self.inner.remove(path)
    }
}

impl Storage for FaultyDisk {
    fn open(&self, path: &Path, whose: Whose) -> io::Result<Reader> {
        self.check(Operation::Open, path)?;
        let file = self.inner.open(path, whose)?.into_file();
        Ok(Reader::new(Box::new(self.faulty(path, file))))
    }

    fn map(&self, path: &Path, whose: Whose) -> io::Result<Map> {
        self.check(Operation::Map, path)?;
        self.inner.map(path, whose)
    }

    fn metadata(&self, path: &Path, whose: Whose) -> io::Result<Metadata> {
        self.check(Operation::Metadata, path)?;
        self.inner.metadata(path, whose)
    }

    fn list(&self, folder: &Path) -> io::Result<Vec<PathBuf>> {
        self.check(Operation::List, folder)?;
        self.inner.list(folder)
    }

    fn real_path(&self, path: &Path) -> io::Result<PathBuf> {
        self.check(Operation::RealPath, path)?;
        self.inner.real_path(path)
    }

    fn create_new(&self, path: &Path, rights: Rights) -> io::Result<Box<dyn WriteFile>> {
        self.check(Operation::Create, path)?;
        Ok(Box::new(self.faulty(path, self.inner.create_new(path, rights)?)))
    }

    fn open_to_write(&self, path: &Path) -> io::Result<Box<dyn WriteFile>> {
        self.check(Operation::Create, path)?;
        Ok(Box::new(self.faulty(path, self.inner.open_to_write(path)?)))
    }

    fn rename_new(&self, source: &Path, target: &Path) -> io::Result<()> {
        self.before(Operation::Rename, &[source, target])?;
        self.inner.rename_new(source, target)
    }

    fn remove_stale(&self, path: &Path) -> io::Result<()> {
        self.check(Operation::Remove, path)?;
        self.inner.remove_stale(path)
    }

    fn make_folder(&self, path: &Path) -> io::Result<()> {
        self.check(Operation::MakeFolder, path)?;
        self.inner.make_folder(path)
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn Held>> {
        self.check(Operation::Lock, path)?;
        self.inner.lock(path)
    }

    fn is_locked(&self, path: &Path) -> io::Result<bool> {
        self.inner.is_locked(path)
    }

    fn space(&self, folder: &Path) -> io::Result<Space> {
        self.check(Operation::Space, folder)?;
        let State { capacity, lies, .. } = *self.state();
        let Some(capacity) = capacity else { return self.inner.space(folder) };
        let used = self.used();
        let free = if lies { u64::MAX / 4 } else { capacity.saturating_sub(used) };
        Ok(Space { used, free })
    }
}

#[derive(Debug)]
struct FaultyFile<F: ?Sized> {
    disk: FaultyDisk,
    path: PathBuf,
    file: Box<F>,
    /// Bytes that were appended.
    len: u64,
}

impl AppendFile for FaultyFile<dyn AppendFile> {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        let half = self.disk.before(Operation::Write, &[&self.path])?;
        let most = if half.is_some() { bytes.len() / 2 } else { bytes.len() };
        let written = self.disk.room(self.len, self.len, most)?;
        self.file.append(&bytes[..written])?;
        self.len += written as u64;
        self.disk.state().growing.insert(self.path.clone(), self.len);
        match half {
            Some(error) => Err(io::Error::from_raw_os_error(error)),
            None if written < bytes.len() => Err(io::Error::from_raw_os_error(ENOSPC)),
            None => Ok(()),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }

    fn sync(&mut self) -> io::Result<()> {
        self.disk.check(Operation::Sync, &self.path)?;
        self.file.sync()
    }
}

impl<F: ReadFile + ?Sized> ReadFile for FaultyFile<F> {
    fn read_at(&self, target: &mut [u8], offset: u64) -> io::Result<usize> {
        self.disk.check(Operation::Read, &self.path)?;
        self.file.read_at(target, offset)
    }

    fn metadata(&self) -> io::Result<Metadata> {
        self.disk.check(Operation::Metadata, &self.path)?;
        self.file.metadata()
    }

    fn rights(&self) -> io::Result<Rights> {
        self.file.rights()
    }

    fn next_data(&self, offset: u64) -> io::Result<Option<u64>> {
        self.file.next_data(offset)
    }
}

impl WriteFile for FaultyFile<dyn WriteFile> {
    fn write_at(&self, parts: &[IoSlice<'_>], offset: u64) -> io::Result<usize> {
        let half = self.disk.before(Operation::Write, &[&self.path])?;
        let bytes: Vec<u8> = parts.iter().flat_map(|part| part.iter().copied()).collect();
        if let Some(error) = half {
            self.file.write_at(&[IoSlice::new(&bytes[..bytes.len() / 2])], offset)?;
            return Err(io::Error::from_raw_os_error(error));
        }
        let len = self.file.metadata()?.len;
        let most = self.disk.room(offset, len, bytes.len())?;
        self.file.write_at(&[IoSlice::new(&bytes[..most])], offset)
    }

    fn sync(&self) -> io::Result<()> {
        self.disk.check(Operation::Sync, &self.path)?;
        self.file.sync()
    }

    fn cut(&self, len: u64) -> io::Result<()> {
        self.disk.check(Operation::Cut, &self.path)?;
        self.file.cut(len)
    }

    fn hold(&self) -> io::Result<bool> {
        self.file.hold()
    }
}

impl<F: ?Sized> Drop for FaultyFile<F> {
    fn drop(&mut self) {
        self.disk.state().growing.remove(&self.path);
    }
}
