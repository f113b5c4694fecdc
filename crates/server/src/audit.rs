//! The audit log: who asked what, why, and what was given to them.
//!
//! `audit.jsonl` in the state folder has a JSON object on each line, and is only ever appended to.
//! The lines are a chain:
//!
//! ```text
//! {"seq":1, ..,"prev":"0000..","hash":"5f2a.."}
//! {"seq":2, ..,"prev":"5f2a..","hash":"c01d.."}
//! audit.head: {"seq":2,"hash":"c01d..","bytes":714,"next":[],"most":714,"check":"90a3.."}
//! ```
//!
//! `hash` is the last member of a line: the SHA-256 of all bytes of the line before `,"hash"`.
//! `prev` is the hash of the line before, and 64 zeros in the first. So a line that is edited does
//! not have its hash, and one that is removed, inserted or moved does not fit its neighbours.
//! `audit.head` remembers the last line, so that a cut at the end is noticed, too.
//!
//! Lines that wait at the same time are written together, by a thread of their own:
//!
//! ```text
//! head   the end so far; next: the hashes of up to 8 lines; most: the bytes of the log with them
//! sync
//! log    these lines
//! sync   -> whoever waits for them goes on
//! head   the new end, next: []
//! sync   if nothing else is to be written for a moment
//! ```
//!
//! If the server is killed in between, there are whole lines behind the end that the head knows, a
//! torn one, or both. The next start tells that from tampering: it takes lines over that the head
//! has announced, and no others; it ends the torn one and appends a line with `"what":"torn"`,
//! which has its length and its SHA-256. Anything else that does not fit is an error, and the
//! server does not start: [`verify`] says what is wrong.
//!
//! Whoever can write the folder can make up a whole new chain. Against that, the number and the
//! hash of the last line are to be kept elsewhere from time to time; [`Report::hash_of`] finds out
//! whether the log still has that line.

mod entry;
mod head;
mod line;
mod verify;
mod writer;

use std::io;
use std::path::PathBuf;
use std::sync::Mutex;

use crate::lock;
use crate::state::{State, StateError};

pub use entry::{Entry, Question};
pub use verify::{Report, Wrong, verify, verify_with};

use writer::Log;

/// The name of the log, and of what remembers its end.
pub const AUDIT_NAME: &str = "audit.jsonl";
const HEAD_NAME: &str = "audit.head";

/// What is wrong with the log.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AuditError {
    /// The state folder, or a file in it.
    #[error(transparent)]
    State(#[from] StateError),
    /// Another server has it.
    #[error(
        "{}: another server writes to it; each needs a state folder of its own",
        path.display()
    )]
    Busy {
        /// The log.
        path: PathBuf,
    },
    /// There is no thread to be had that writes the log.
    #[error("cannot start a thread")]
    Thread(#[source] io::Error),
    /// The log could not be written. Nothing more can be given out.
    #[error("cannot write {}", path.display())]
    Write {
        /// The log.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The log could not be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// The log.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The log is not as this server has left it.
    #[error(
        "{}: {why}; tapdex audit verify tells more. To begin a new log, move {AUDIT_NAME} and \
         {HEAD_NAME} elsewhere, together",
        path.display()
    )]
    Changed {
        /// The log.
        path: PathBuf,
        /// What is wrong at its end.
        why: Why,
    },
    /// An earlier line could not be written, and nobody knows how much of it was.
    #[error(
        "{}: an earlier line could not be written; the server has to be started again",
        path.display()
    )]
    Stopped {
        /// The log.
        path: PathBuf,
    },
}

/// The audit log of a running server.
#[derive(Debug)]
pub struct Audit {
    log: Log,
    refusals: Mutex<Refusals>,
}

impl Audit {
    /// Opens the log of a server and locks it. After a crash, completes it.
    ///
    /// This starts a thread: a sandbox is to be entered before.
    pub fn open(state: &State, now_ns: u64) -> Result<Self, AuditError> {
        Ok(Self { log: Log::open(state, now_ns)?, refusals: Mutex::default() })
    }

    /// Appends a line, and returns its number once it is on the disk. On an error nothing may be
    /// given out: it would not be written down.
    ///
    /// This waits for the disk, so it is not for a thread that others wait for: there it panics.
    /// Those who wait at the same time wait once, together.
    pub fn append(&self, entry: &Entry, now_ns: u64) -> Result<u64, AuditError> {
        let written = self.log.send(entry, now_ns);
        written.blocking_recv().unwrap_or_else(|_| Err(self.log.stopped()))
    }

    /// The same for a task, which leaves its thread to others meanwhile.
    pub async fn append_async(&self, entry: &Entry, now_ns: u64) -> Result<u64, AuditError> {
        let written = self.log.send(entry, now_ns);
        written.await.unwrap_or_else(|_| Err(self.log.stopped()))
    }

    /// Appends a line about somebody who was refused, unless there were many in the last minute:
    /// whoever is not let in must not be able to fill the disk, or to keep the log from others.
    /// Those that are left out are counted by the next line.
    pub fn append_refusal(&self, entry: &Entry, now_ns: u64) -> Result<Option<u64>, AuditError> {
        let left_out = match lock(&self.refusals).is_one_more(now_ns) {
            None => return Ok(None),
            Some(left_out) => (left_out > 0).then_some(left_out),
        };
        let written = self.append(&Entry { left_out, ..entry.clone() }, now_ns);
        if written.is_err() {
            lock(&self.refusals).left_out += left_out.unwrap_or(0) + 1;
        }
        written.map(Some)
    }

    /// Checks the chain from its first line to its last.
    pub fn verify(&self) -> Result<Report, AuditError> {
        verify(self.log.path())
    }

    /// The last lines, the newest first.
    pub fn tail(&self, most: usize) -> Result<Vec<serde_json::Value>, AuditError> {
        verify::tail(self.log.path(), most)
    }

    /// The number of the last line, and its hash in hexadecimal.
    pub fn last(&self) -> (u64, String) {
        self.log.last()
    }

    /// How many lines were written since the log was opened, and in how many batches.
    pub fn written(&self) -> [u64; 2] {
        self.log.written()
    }
}

/// Refusals that are written down in a minute.
const REFUSALS_MAX: u32 = 60;
const MINUTE_NS: u64 = 60_000_000_000;

/// The refusals of a minute.
#[derive(Debug, Default)]
struct Refusals {
    /// When the minute began.
    since_ns: u64,
    /// How many were written down in it.
    written: u32,
    left_out: u64,
}

impl Refusals {
    /// Whether one more is written down; then, how many were left out before it.
    fn is_one_more(&mut self, now_ns: u64) -> Option<u64> {
        // A clock that was set back begins another minute, too.
        if now_ns.abs_diff(self.since_ns) >= MINUTE_NS {
            (self.since_ns, self.written) = (now_ns, 0);
        }
        if self.written >= REFUSALS_MAX {
            self.left_out += 1;
            return None;
        }
        self.written += 1;
        Some(std::mem::take(&mut self.left_out))
    }
}

/// What is wrong with a line, or with the end of the log.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Why {
    /// A line that does not have its hash.
    #[error("it was edited: its hash is that of another text")]
    Edited,
    /// A line that is none.
    #[error("it is no line of an audit log")]
    Form,
    /// A line whose number is too high.
    #[error("it has number {found} where {expected} follows: lines were removed or moved")]
    Removed {
        /// The number that follows.
        expected: u64,
        /// The number that is there.
        found: u64,
    },
    /// A line whose number is too low.
    #[error("it has number {found} where {expected} follows: it was inserted, repeated or moved")]
    Inserted {
        /// The number that follows.
        expected: u64,
        /// The number that is there.
        found: u64,
    },
    /// A line that follows another one than that before it.
    #[error("it follows another line than the one before it, which was replaced")]
    Chain,
    /// A line that tells of a torn one that is not there.
    #[error("it tells of a torn line before it, which is not there")]
    Torn,
    /// Lines are missing at the end.
    #[error("the end is missing: the log had {seq} lines and has {found}")]
    Cut {
        /// The number of the last line that was written.
        seq: u64,
        /// The number of the last line that is there.
        found: u64,
    },
    /// Bytes are missing at the end.
    #[error("the end is missing: the log had {expected} bytes and has {found}")]
    CutBytes {
        /// How many there were.
        expected: u64,
        /// How many there are.
        found: u64,
    },
    /// Lines are there that the server has not written.
    #[error("there is more behind line {seq} than a crash can leave: somebody has appended to it")]
    Behind {
        /// The number of the last line that the head knows.
        seq: u64,
    },
    /// The head is that of another log.
    #[error(
        "{HEAD_NAME} has another hash for line {seq}: the log was replaced, or {HEAD_NAME} was"
    )]
    HeadDiffers {
        /// The number of the last line that the head knows.
        seq: u64,
    },
    /// The head is missing.
    #[error("{HEAD_NAME} is missing: whether the end was cut off cannot be told")]
    NoHead,
    /// The head is none.
    #[error("{HEAD_NAME} was edited: it has not the form that the server writes")]
    BadHead,
}
