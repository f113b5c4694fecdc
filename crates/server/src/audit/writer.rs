//! The thread that writes the log: what waits at the same time is written together.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use tapdex_engine::beneath::cut;
use tokio::sync::oneshot;

use super::entry::Entry;
use super::head::{BATCH_MAX, End, HEAD_LEN, Head};
use super::line::{Body, Hash, LINE_LEN_MAX, Parsed, Torn, line};
use super::verify::Chain;
use super::{AUDIT_NAME, AuditError, HEAD_NAME, Why};
use crate::door::tokens::hex;
use crate::lock;
use crate::state::{Lock, State};

/// How long nothing has to be written before the head is synced once more.
const SETTLE_TIME: Duration = Duration::from_millis(20);

/// A log with its thread.
#[derive(Debug)]
pub(super) struct Log {
    path: PathBuf,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    /// Until the thread has ended.
    _lock: Lock,
}

impl Log {
    /// Opens and locks it, completes it after a crash, and starts its thread.
    pub(super) fn open(state: &State, now_ns: u64) -> Result<Self, AuditError> {
        let path = state.path_of(AUDIT_NAME);
        let held = state.try_lock(AUDIT_NAME)?;
        let held = held.ok_or_else(|| AuditError::Busy { path: path.clone() })?;
        let mut writer = Writer::open(state, path.clone())?;
        writer.mend(now_ns)?;
        let shared = Arc::new(Shared::new(writer.end));
        let own = Arc::clone(&shared);
        let thread = std::thread::Builder::new().name("audit".to_owned());
        let thread = thread.spawn(move || writer.run(&own)).map_err(AuditError::Thread)?;
        Ok(Self { path, shared, thread: Some(thread), _lock: held })
    }

    /// Has a line written. What it returns is ready when that is on the disk.
    pub(super) fn send(
        &self,
        entry: &Entry,
        now_ns: u64,
    ) -> oneshot::Receiver<Result<u64, AuditError>> {
        let (done, written) = oneshot::channel();
        let waiting = Waiting { entry: entry.shortened(), now_ns, done };
        let mut queue = lock(&self.shared.queue);
        // Otherwise nobody would write it; whoever waits is told so.
        if !queue.is_over {
            queue.waiting.push_back(waiting);
            self.shared.more.notify_one();
        }
        written
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// What those are told whose line nobody writes.
    pub(super) fn stopped(&self) -> AuditError {
        AuditError::Stopped { path: self.path.clone() }
    }

    pub(super) fn last(&self) -> (u64, String) {
        let End { seq, hash, .. } = lock(&self.shared.queue).end;
        (seq, hex(&hash))
    }

    pub(super) fn written(&self) -> [u64; 2] {
        lock(&self.shared.queue).written
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        lock(&self.shared.queue).is_over = true;
        self.shared.more.notify_one();
        if let Some(thread) = self.thread.take() {
            // If it panicked, that was shown.
            let _ = thread.join();
        }
    }
}

/// An entry that is not written yet.
#[derive(Debug)]
struct Waiting {
    entry: Entry,
    now_ns: u64,
    done: oneshot::Sender<Result<u64, AuditError>>,
}

/// What the thread shares with those who wait.
#[derive(Debug)]
struct Shared {
    queue: Mutex<Queue>,
    /// Something waits, or all is over.
    more: Condvar,
}

#[derive(Debug)]
struct Queue {
    waiting: VecDeque<Waiting>,
    /// What waits is still written, but nothing after that.
    is_over: bool,
    /// The end of what is on the disk.
    end: End,
    /// Lines, and batches.
    written: [u64; 2],
}

/// What the thread does next.
#[derive(Debug)]
enum Next {
    Write(VecDeque<Waiting>),
    Settle,
    End,
}

impl Shared {
    fn new(end: End) -> Self {
        let queue = Queue { waiting: VecDeque::new(), is_over: false, end, written: [0; 2] };
        Self { queue: Mutex::new(queue), more: Condvar::new() }
    }

    /// Waits for entries, and takes as many as are written at once.
    fn next(&self, is_settled: bool) -> Next {
        let mut queue = lock(&self.queue);
        loop {
            let many = queue.waiting.len().min(BATCH_MAX);
            if many > 0 {
                return Next::Write(queue.waiting.drain(..many).collect());
            }
            if queue.is_over {
                return Next::End;
            }
            if is_settled {
                queue = self.more.wait(queue).unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            let waited = self.more.wait_timeout(queue, SETTLE_TIME);
            let (again, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
            queue = again;
            if timeout.timed_out() && queue.waiting.is_empty() && !queue.is_over {
                return Next::Settle;
            }
        }
    }
}

/// Tells those who wait that nobody writes any more, whatever the thread ends of.
struct Over<'a>(&'a Shared);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        let mut queue = lock(&self.0.queue);
        queue.is_over = true;
        queue.waiting.clear();
    }
}

/// Both files.
#[derive(Debug)]
struct Writer {
    path: PathBuf,
    log: File,
    head_file: File,
    /// What the head said when it was opened.
    head: Head,
    /// The end of what is on the disk.
    end: End,
    /// Whether the head is on the disk as it is.
    is_settled: bool,
    /// Something could not be written, and nobody knows how much of it was.
    stopped: bool,
}

impl Writer {
    fn open(state: &State, path: PathBuf) -> Result<Self, AuditError> {
        let is_new = state.stamp(AUDIT_NAME)?.is_none() && state.stamp(HEAD_NAME)?.is_none();
        if is_new {
            // The head comes first: without it, a log is one whose head was removed.
            let text = Head::at(End::START).text();
            let text = text.map_err(|source| AuditError::Write { path: path.clone(), source })?;
            state.write(HEAD_NAME, &text)?;
        }
        let changed = |why| AuditError::Changed { path: path.clone(), why };
        let head = match state.read(HEAD_NAME, HEAD_LEN as u64)? {
            None => return Err(changed(Why::NoHead)),
            Some(text) => Head::parse(&text).ok_or_else(|| changed(Why::BadHead))?,
        };
        if state.stamp(AUDIT_NAME)?.is_none() && head.end != End::START {
            return Err(changed(Why::Cut { seq: head.end.seq, found: 0 }));
        }
        let log = state.open_to_write(AUDIT_NAME)?;
        let head_file = state.open_to_write(HEAD_NAME)?;
        let end = head.end;
        Ok(Self { path, log, head_file, head, end, is_settled: true, stopped: false })
    }

    fn failed(&self, source: io::Error) -> AuditError {
        AuditError::Write { path: self.path.clone(), source }
    }

    /// Compares the end of the log with its head, and mends what a crash has left.
    fn mend(&mut self, now_ns: u64) -> Result<(), AuditError> {
        let changed = |why| AuditError::Changed { path: self.path.clone(), why };
        let read = |source| AuditError::Read { path: self.path.clone(), source };
        let End { seq, hash, bytes: known } = self.end;
        let len = self.log.metadata().map_err(read)?.len();
        // The last line, as far as the head knows, and what is behind it.
        let start = known.saturating_sub(LINE_LEN_MAX as u64);
        let most = 4 * LINE_LEN_MAX as u64;
        self.log.seek(SeekFrom::Start(start)).map_err(read)?;
        let mut bytes = Vec::new();
        Read::take(&self.log, most).read_to_end(&mut bytes).map_err(read)?;
        let at = usize::try_from(known - start).unwrap_or(usize::MAX);
        let Some((before, behind)) = bytes.split_at_checked(at) else {
            return Err(changed(Why::CutBytes { expected: known, found: len }));
        };
        let last = before.strip_suffix(b"\n");
        let last = last.map(|lines| lines.rsplit(|&byte| byte == b'\n').next().unwrap_or(lines));
        let fits = match last {
            Some(last) => Parsed::of(last).is_ok_and(|line| (line.seq, line.hash) == (seq, hash)),
            None => self.end == End::START,
        };
        if !fits {
            return Err(changed(Why::HeadDiffers { seq }));
        }
        if behind.is_empty() {
            return Ok(());
        }
        if len > self.head.most() {
            return Err(changed(Why::Behind { seq }));
        }
        // Whole lines that were announced, and then what is left of others.
        let mut chain = Chain::behind(self.end);
        for line in behind.split_inclusive(|&byte| byte == b'\n') {
            // A line that is whole but for its end is whole.
            let line = line.strip_suffix(b"\n").unwrap_or(line);
            let is_foreign = Parsed::of(line).is_ok_and(|line| !self.head.announces(&line.hash));
            if is_foreign || chain.follow(line).is_err() {
                return Err(changed(Why::Behind { seq }));
            }
        }
        let end: &[u8] = if behind.ends_with(b"\n") { b"" } else { b"\n" };
        match chain.open {
            None => {
                // What others wrote may not be on the disk yet.
                self.put(end, len).map_err(|error| self.failed(error))?;
                self.end = chain.end;
                self.remember(&Head::at(self.end)).map_err(|error| self.failed(error))?;
            }
            Some(open) => {
                self.end = chain.end;
                let torn = Torn::of(&open.bytes);
                let body = Body::Torn { what: "torn", torn: &torn };
                let next = line(self.end.seq + 1, now_ns, body, &self.end.hash);
                let (text, hash) = next.map_err(|error| self.failed(error))?;
                let text = [end, &text].concat();
                self.write(&text, len, &[hash]).map_err(|error| self.failed(error))?;
            }
        }
        self.settle().map_err(|error| self.failed(error))
    }

    fn run(mut self, shared: &Shared) {
        let _over = Over(shared);
        loop {
            match shared.next(self.is_settled) {
                Next::Write(mut batch) => {
                    while !batch.is_empty() {
                        self.write_batch(&mut batch, shared);
                    }
                }
                // If that fails, nothing more is written.
                Next::Settle => drop(self.settle()),
                Next::End => {
                    drop(self.settle());
                    return;
                }
            }
        }
    }

    /// Writes as many entries as there is room for in a batch, and tells those who wait for them.
    fn write_batch(&mut self, batch: &mut VecDeque<Waiting>, shared: &Shared) {
        if self.stopped {
            for Waiting { done, .. } in batch.drain(..) {
                drop(done.send(Err(AuditError::Stopped { path: self.path.clone() })));
            }
            return;
        }
        let (mut text, mut hashes, mut written) = (Vec::new(), Vec::new(), Vec::new());
        let (mut seq, mut prev) = (self.end.seq, self.end.hash);
        while let Some(next) = batch.pop_front() {
            match line(seq + 1, next.now_ns, Body::Entry(&next.entry), &prev) {
                Err(error) => drop(next.done.send(Err(self.failed(error)))),
                // What a crash tears has to be of bounded length.
                Ok((bytes, _)) if !text.is_empty() && text.len() + bytes.len() > LINE_LEN_MAX => {
                    batch.push_front(next);
                    break;
                }
                Ok((bytes, hash)) => {
                    text.extend_from_slice(&bytes);
                    hashes.push(hash);
                    (seq, prev) = (seq + 1, hash);
                    written.push((next.done, seq));
                }
            }
        }
        if written.is_empty() {
            return;
        }
        let outcome = self.write(&text, self.end.bytes, &hashes);
        if outcome.is_ok() {
            let mut queue = lock(&shared.queue);
            queue.end = self.end;
            queue.written[0] += written.len() as u64;
            queue.written[1] += 1;
        }
        for (done, seq) in written {
            let told = match &outcome {
                Ok(()) => Ok(seq),
                Err(error) => Err(self.failed(same(error))),
            };
            // Whoever is gone does not want to know.
            drop(done.send(told));
        }
    }

    /// Announces lines, which have these hashes, and then writes them.
    fn write(&mut self, text: &[u8], at: u64, hashes: &[Hash]) -> io::Result<()> {
        let bytes = at + text.len() as u64;
        let Some(&hash) = hashes.last() else { return Ok(()) };
        self.remember(&Head::announcing(self.end, hashes, bytes))?;
        self.settle()?;
        self.put(text, at)?;
        self.end = End { seq: self.end.seq + hashes.len() as u64, hash, bytes };
        self.remember(&Head::at(self.end))
    }

    /// Writes at the end of the log, and syncs that.
    fn put(&mut self, text: &[u8], at: u64) -> io::Result<()> {
        let written = self
            .log
            .seek(SeekFrom::Start(at))
            .and_then(|_| self.log.write_all(text))
            .and_then(|()| self.log.sync_data());
        if written.is_err() {
            // A full disk may have room again: then the log goes on where its head is.
            let mended = cut(&self.log, at).and_then(|()| self.log.sync_data());
            self.stopped |= mended.is_err();
        }
        written
    }

    /// Writes the head. It outlives this process, but not a loss of power.
    fn remember(&mut self, head: &Head) -> io::Result<()> {
        let written = head.text().and_then(|text| self.head_file.write_all_at(&text, 0));
        self.is_settled = false;
        // Nobody knows any more what it says.
        self.stopped |= written.is_err();
        written
    }

    /// Syncs the head.
    fn settle(&mut self) -> io::Result<()> {
        if self.is_settled {
            return Ok(());
        }
        let synced = self.head_file.sync_data();
        self.is_settled = true;
        self.stopped |= synced.is_err();
        synced
    }
}

/// The same error for another one who waits.
fn same(error: &io::Error) -> io::Error {
    match error.raw_os_error() {
        Some(code) => io::Error::from_raw_os_error(code),
        None => io::Error::new(error.kind(), error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::audit::verify;

    const NOW: u64 = 1_800_000_000_000_000_000;

    fn writer(state: &State) -> Writer {
        Writer::open(state, state.path_of(AUDIT_NAME)).unwrap()
    }

    /// Entries that wait before there is anybody to write them, of so many bytes each.
    fn waiting(
        shared: &Shared,
        many: usize,
        len: usize,
    ) -> Vec<oneshot::Receiver<Result<u64, AuditError>>> {
        let wait = |n: usize| {
            let mut entry = Entry::stranger("10.0.0.9:5000".parse().unwrap(), "search", "done");
            entry.reason = Some(format!("{n}").repeat(len));
            let (done, written) = oneshot::channel();
            lock(&shared.queue).waiting.push_back(Waiting { entry, now_ns: NOW, done });
            written
        };
        (0..many).map(wait).collect()
    }

    #[test]
    fn what_waits_together_is_written_together_and_in_order() {
        let folder = tempfile::tempdir().unwrap();
        let state = State::create(&folder.path().join("state")).unwrap();
        for (many, len, lines, batches) in [(0, 1, 0, 0), (20, 1, 20, 3), (4, 100_000, 4, 2)] {
            let mut writer = writer(&state);
            writer.mend(NOW).unwrap();
            let before = writer.end.seq;
            let shared = Shared::new(writer.end);
            let written = waiting(&shared, many, len);
            lock(&shared.queue).is_over = true;
            writer.run(&shared);
            for (line, written) in (1..).zip(written) {
                assert_eq!(written.blocking_recv().unwrap().unwrap(), before + line);
            }
            assert_eq!(lock(&shared.queue).written, [lines, batches]);
            let report = verify(&state.path_of(AUDIT_NAME)).unwrap();
            assert_eq!((report.wrong, report.lines), (None, before + lines));
        }
    }

    #[test]
    fn a_line_that_is_too_long_fails_alone() {
        let folder = tempfile::tempdir().unwrap();
        let state = State::create(&folder.path().join("state")).unwrap();
        let writer = writer(&state);
        let shared = Shared::new(writer.end);
        let mut written = waiting(&shared, 1, 1);
        written.extend(waiting(&shared, 2, LINE_LEN_MAX));
        written.extend(waiting(&shared, 1, 1));
        lock(&shared.queue).is_over = true;
        writer.run(&shared);
        let outcomes: Vec<_> = written.into_iter().map(|w| w.blocking_recv().unwrap()).collect();
        assert!(matches!(outcomes[..], [Ok(1), Err(_), Err(_), Ok(2)]), "{outcomes:?}");
        // Whoever comes now is told that nobody writes.
        let report = verify(&state.path_of(AUDIT_NAME)).unwrap();
        assert_eq!((report.wrong, report.lines), (None, 2));
    }

    #[test]
    fn those_who_come_when_all_is_over_do_not_wait() {
        let folder = tempfile::tempdir().unwrap();
        let state = State::create(&folder.path().join("state")).unwrap();
        let log = Log::open(&state, NOW).unwrap();
        lock(&log.shared.queue).is_over = true;
        log.shared.more.notify_one();
        let entry = Entry::stranger("10.0.0.9:5000".parse().unwrap(), "search", "done");
        assert!(log.send(&entry, NOW).blocking_recv().is_err());
    }
}
