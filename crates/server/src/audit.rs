//! The audit log: who asked what, why, and what was given to them.
//!
//! `audit.jsonl` in the state folder has a JSON object on each line, and is only ever appended to.
//! The lines are a chain:
//!
//! ```text
//! {"seq":1, ..,"prev":"0000..","hash":"5f2a.."}
//! {"seq":2, ..,"prev":"5f2a..","hash":"c01d.."}
//! audit.head: {"seq":2,"hash":"c01d..","bytes":714,"check":"90a3.."}
//! ```
//!
//! `hash` is the last member of a line: the SHA-256 of all bytes of the line before `,"hash"`.
//! `prev` is the hash of the line before, and 64 zeros in the first. So a line that is edited does
//! not have its hash, and one that is removed, inserted or moved does not fit its neighbours.
//! `audit.head` remembers the last line, so that a cut at the end is noticed, too.
//!
//! A line is written and synced, then the head. If the server is killed in between, the log is one
//! whole line ahead of its head, or a torn line. The next start tells both from tampering: it takes
//! the whole line over; it ends the torn one and appends a line with `"what":"torn"`, which has its
//! length and its SHA-256. Anything else that does not fit is an error, and the server does not
//! start: [`verify`] says what is wrong.
//!
//! Whoever can write the folder can make up a whole new chain. Against that, the number and the
//! hash of the last line are to be kept elsewhere from time to time; [`Report::hash_of`] finds out
//! whether the log still has that line.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::net::SocketAddr;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use tapdex_engine::beneath::{open_own, read_text};
use tapdex_engine::time::{TimeRange, format_time};

use crate::door::Identity;
use crate::door::tokens::{hex, unhex};
use crate::lock;
use crate::state::{Lock, State, StateError};

/// The name of the log, and of what remembers its end.
pub const AUDIT_NAME: &str = "audit.jsonl";
const HEAD_NAME: &str = "audit.head";
/// The length of the head, which is written in place: less than what a disk writes at once.
const HEAD_LEN: usize = 192;
/// Bytes of the check in it.
const CHECK_LEN: usize = 8;
/// The most bytes of a line.
const LINE_LEN_MAX: usize = 256 << 10;
/// The most bytes of a text that a client has sent; the rest is left out, and marked.
const TEXT_LEN_MAX: usize = 4 << 10;
/// How many such texts a line has at most.
const TEXTS_MAX: usize = 8;

// No client can send what a line has no room for: a byte becomes six when it is escaped.
const _: () = assert!(TEXTS_MAX * (6 * TEXT_LEN_MAX + 256) < LINE_LEN_MAX);

const HASH_MEMBER: &str = ",\"hash\":\"";
/// `,"hash":"`, 64 digits, `"}`.
const HASH_PART_LEN: usize = HASH_MEMBER.len() + 64 + 2;

type Hash = [u8; 32];

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

/// A question, as it was asked and as it was answered.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Question {
    /// The filter as it was asked.
    pub filter: String,
    /// The times as they were asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// The same.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
    /// The filter that was answered: with that of the role, and names resolved.
    pub forced_filter: String,
    /// The times that were answered.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub forced_from: Option<String>,
    /// The same.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub forced_to: Option<String>,
}

impl Question {
    /// What was answered: the filter, and the times.
    #[must_use]
    pub fn forced(self, filter: &str, times: TimeRange) -> Self {
        Self {
            forced_filter: filter.to_owned(),
            forced_from: (times.from_ns > 0).then(|| format_time(times.from_ns)),
            forced_to: times.to_ns.map(format_time),
            ..self
        }
    }
}

/// What is written down. An answer that takes long has two lines, one when it starts and one when
/// it ends: after a crash the first one is all that is left.
#[derive(Debug, Clone, Serialize)]
pub struct Entry {
    /// Who, by the name of the token.
    pub who: String,
    /// Which token; none at an open door, or if nobody was let in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
    /// In which role.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub role: Option<String>,
    /// From which address.
    pub from: String,
    /// What was asked for: `search`, `extract`, `job`.
    pub what: String,
    /// The question, if it is about packets.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub question: Option<Question>,
    /// Why, as the client said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// How many packets were given out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub packets: Option<u64>,
    /// How many bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// The SHA-256 of these bytes, in hexadecimal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sha256: Option<String>,
    /// Whether the answer has all that was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub complete: Option<bool>,
    /// How many refusals before this one were not written down, if some were.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub left_out: Option<u64>,
    /// How it went: `started`, `done`, `refused`, `failed`, `left` if the client went away.
    pub outcome: String,
}

impl Entry {
    /// What somebody asked for who was let in.
    pub fn new(identity: &Identity, what: &str, outcome: &str) -> Self {
        Self {
            who: identity.name().to_owned(),
            token: identity.token().map(|id| id.to_string()),
            role: Some(identity.role().name().to_owned()),
            ..Self::stranger(identity.peer(), what, outcome)
        }
    }

    /// What somebody asked for who was not let in, or what the server did itself.
    pub fn stranger(from: SocketAddr, what: &str, outcome: &str) -> Self {
        Self {
            who: String::new(),
            token: None,
            role: None,
            from: from.to_string(),
            what: what.to_owned(),
            question: None,
            reason: None,
            packets: None,
            bytes: None,
            sha256: None,
            complete: None,
            left_out: None,
            outcome: outcome.to_owned(),
        }
    }

    /// The same with texts of clients cut to what a line has room for.
    fn shortened(&self) -> Self {
        let mut entry = self.clone();
        let texts = [Some(&mut entry.who), Some(&mut entry.what), entry.reason.as_mut()];
        texts.into_iter().flatten().for_each(shorten);
        if let Some(question) = &mut entry.question {
            shorten(&mut question.filter);
            shorten(&mut question.forced_filter);
            [&mut question.from, &mut question.to].into_iter().flatten().for_each(shorten);
        }
        entry
    }
}

/// Cuts a text that is too long, and says what it was.
fn shorten(text: &mut String) {
    if text.len() > TEXT_LEN_MAX {
        let end = (0..=TEXT_LEN_MAX).rev().find(|&at| text.is_char_boundary(at)).unwrap_or(0);
        let (len, hash) = (text.len(), hex(&Sha256::digest(text.as_bytes())));
        text.truncate(end);
        text.push_str(&format!(" .. ({len} bytes, SHA-256 {hash})"));
    }
}

/// The bytes of a line that could not be written as a whole.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Torn {
    bytes: u64,
    sha256: String,
}

impl Torn {
    fn of(bytes: &[u8]) -> Self {
        Self { bytes: bytes.len() as u64, sha256: hex(&Sha256::digest(bytes)) }
    }

    fn is_of(&self, bytes: &[u8]) -> bool {
        let Self { bytes: len, sha256 } = Self::of(bytes);
        self.bytes == len && self.sha256 == sha256
    }
}

#[derive(Serialize)]
struct Line<'a> {
    seq: u64,
    time: String,
    #[serde(flatten)]
    body: Body<'a>,
    prev: String,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Body<'a> {
    Entry(&'a Entry),
    Torn { what: &'static str, torn: &'a Torn },
}

/// JSON without control characters, so that a terminal shows it as it is. Those below U+0020 are
/// escaped by JSON itself.
fn escaped(json: &str) -> String {
    use std::fmt::Write;
    json.chars().fold(String::with_capacity(json.len()), |mut text, letter| {
        match letter.is_control() {
            // Writing to a string does not fail.
            true => {
                let _ = write!(text, "\\u{:04x}", u32::from(letter));
            }
            false => text.push(letter),
        }
        text
    })
}

/// A whole line with its end, and its hash.
fn line(seq: u64, time_ns: u64, body: Body<'_>, prev: &Hash) -> io::Result<(Vec<u8>, Hash)> {
    let line = Line { seq, time: format_time(time_ns), body, prev: hex(prev) };
    let text = escaped(&serde_json::to_string(&line)?);
    let text = text.strip_suffix('}').unwrap_or(&text);
    let hash: Hash = Sha256::digest(text.as_bytes()).into();
    let text = format!("{text}{HASH_MEMBER}{}\"}}\n", hex(&hash));
    match text.len() > LINE_LEN_MAX {
        true => Err(io::Error::new(io::ErrorKind::InvalidInput, "the line is too long")),
        false => Ok((text.into_bytes(), hash)),
    }
}

/// The end of the log, as the head remembers it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Head {
    seq: u64,
    hash: Hash,
    /// How long the log is.
    bytes: u64,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenHead {
    seq: u64,
    hash: String,
    bytes: u64,
    /// Of the others: whoever reads while the server writes may see some of the old and some of the
    /// new.
    check: String,
}

impl Head {
    /// That of an empty log.
    const START: Self = Self { seq: 0, hash: [0; 32], bytes: 0 };

    /// Its bytes: always as many.
    fn text(&self) -> io::Result<Vec<u8>> {
        let Self { seq, hash, bytes } = *self;
        let hash = hex(&hash);
        let check = Sha256::digest(format!("{seq} {hash} {bytes}"));
        let check = hex(&check[..CHECK_LEN]);
        let text = serde_json::to_string(&WrittenHead { seq, hash, bytes, check })?;
        Ok(format!("{text:<width$}\n", width = HEAD_LEN - 1).into_bytes())
    }

    fn parse(text: &str) -> Option<Self> {
        let written: WrittenHead = serde_json::from_str(text).ok()?;
        let head = Self { seq: written.seq, hash: unhex(&written.hash)?, bytes: written.bytes };
        (head.text().ok()? == text.as_bytes()).then_some(head)
    }
}

/// The audit log of a running server.
#[derive(Debug)]
pub struct Audit {
    path: PathBuf,
    inner: Mutex<Inner>,
    refusals: Mutex<Refusals>,
    _lock: Lock,
}

#[derive(Debug)]
struct Inner {
    log: File,
    head_file: File,
    head: Head,
    /// A line could not be written: what the log has behind its head is not known.
    stopped: bool,
}

impl Audit {
    /// Opens the log of a server and locks it. After a crash, completes it.
    pub fn open(state: &State, now_ns: u64) -> Result<Self, AuditError> {
        let path = state.path_of(AUDIT_NAME);
        let held = state.try_lock(AUDIT_NAME)?;
        let held = held.ok_or_else(|| AuditError::Busy { path: path.clone() })?;
        let is_new = state.stamp(AUDIT_NAME)?.is_none() && state.stamp(HEAD_NAME)?.is_none();
        if is_new {
            // The head comes first: without it, a log is one whose head was removed.
            let text = Head::START.text();
            let text = text.map_err(|source| AuditError::Write { path: path.clone(), source })?;
            state.write(HEAD_NAME, &text)?;
        }
        let changed = |why| AuditError::Changed { path: path.clone(), why };
        let head = match state.read(HEAD_NAME, HEAD_LEN as u64)? {
            None => return Err(changed(Why::NoHead)),
            Some(text) => Head::parse(&text).ok_or_else(|| changed(Why::BadHead))?,
        };
        if state.stamp(AUDIT_NAME)?.is_none() && head != Head::START {
            return Err(changed(Why::Cut { seq: head.seq, found: 0 }));
        }
        let log = state.open_to_write(AUDIT_NAME)?;
        let head_file = state.open_to_write(HEAD_NAME)?;
        let inner = Inner { log, head_file, head, stopped: false };
        let audit = Self {
            path: path.clone(),
            inner: Mutex::new(inner),
            refusals: Mutex::default(),
            _lock: held,
        };
        audit.mend(now_ns)?;
        Ok(audit)
    }

    /// Compares the end of the log with its head, and mends what a crash has left.
    fn mend(&self, now_ns: u64) -> Result<(), AuditError> {
        let changed = |why| AuditError::Changed { path: self.path.clone(), why };
        let read = |source| AuditError::Read { path: self.path.clone(), source };
        let mut inner = lock(&self.inner);
        let head = inner.head;
        let len = inner.log.metadata().map_err(read)?.len();
        // The last line, as far as the head knows, and what is behind it.
        let start = head.bytes.saturating_sub(LINE_LEN_MAX as u64);
        let most = 4 * LINE_LEN_MAX as u64;
        inner.log.seek(SeekFrom::Start(start)).map_err(read)?;
        let mut bytes = Vec::new();
        Read::take(&inner.log, most).read_to_end(&mut bytes).map_err(read)?;
        let known = usize::try_from(head.bytes - start).unwrap_or(usize::MAX);
        let Some((known, behind)) = bytes.split_at_checked(known) else {
            return Err(changed(Why::CutBytes { expected: head.bytes, found: len }));
        };
        let last = known.strip_suffix(b"\n");
        let last = last.map(|known| known.rsplit(|&byte| byte == b'\n').next().unwrap_or(known));
        let fits = match last {
            Some(last) => Parsed::of(last).is_ok_and(|l| (l.seq, l.hash) == (head.seq, head.hash)),
            None => head == Head::START,
        };
        if !fits {
            return Err(changed(Why::HeadDiffers { seq: head.seq }));
        }
        if behind.is_empty() {
            return Ok(());
        }
        let (torn, ended) = match behind.strip_suffix(b"\n") {
            Some(torn) => (torn, true),
            None => (behind, false),
        };
        if torn.len() > 2 * LINE_LEN_MAX {
            return Err(changed(Why::Behind { seq: head.seq }));
        }
        let end: &[u8] = if ended { b"" } else { b"\n" };
        // A line that is whole but for its end, perhaps behind a torn one that it tells of.
        let (before, last) = match torn.iter().rposition(|&byte| byte == b'\n') {
            Some(at) => (Some(&torn[..at]), &torn[at + 1..]),
            None => (None, torn),
        };
        let is_sound = |line: &[u8]| Parsed::of(line).is_ok();
        if let Ok(next) = Parsed::of(last) {
            let told = next.torn.as_ref();
            let fits = (next.seq, next.prev) == (head.seq + 1, head.hash)
                && told.is_some() == before.is_some()
                && told.zip(before).is_none_or(|(torn, bytes)| torn.is_of(bytes));
            if !fits {
                return Err(changed(Why::Behind { seq: head.seq }));
            }
            return self.write(
                &mut inner,
                end,
                len,
                Head { seq: next.seq, hash: next.hash, ..head },
            );
        }
        if torn.split(|&byte| byte == b'\n').any(is_sound) {
            return Err(changed(Why::Behind { seq: head.seq }));
        }
        let torn = Torn::of(torn);
        let body = Body::Torn { what: "torn", torn: &torn };
        let write = |source| AuditError::Write { path: self.path.clone(), source };
        let (line, hash) = line(head.seq + 1, now_ns, body, &head.hash).map_err(write)?;
        let text = [end, line.as_slice()].concat();
        self.write(&mut inner, &text, len, Head { seq: head.seq + 1, hash, ..head })
    }

    /// Appends a line, and returns its number once it is on the disk. On an error nothing may be
    /// given out: it would not be written down.
    ///
    /// This waits for the disk twice, one caller after the other, so it is not for a thread that
    /// others wait for.
    pub fn append(&self, entry: &Entry, now_ns: u64) -> Result<u64, AuditError> {
        let mut inner = lock(&self.inner);
        if inner.stopped {
            return Err(AuditError::Stopped { path: self.path.clone() });
        }
        let Head { seq, hash, bytes } = inner.head;
        let line = line(seq + 1, now_ns, Body::Entry(&entry.shortened()), &hash);
        let write = |source| AuditError::Write { path: self.path.clone(), source };
        let (text, hash) = line.map_err(write)?;
        self.write(&mut inner, &text, bytes, Head { seq: seq + 1, hash, bytes })?;
        Ok(seq + 1)
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

    /// Writes at the end of the log, and then its head.
    fn write(&self, inner: &mut Inner, text: &[u8], at: u64, head: Head) -> Result<(), AuditError> {
        let head = Head { bytes: at + text.len() as u64, ..head };
        let written = inner
            .log
            .seek(SeekFrom::Start(at))
            .and_then(|_| inner.log.write_all(text))
            .and_then(|()| inner.log.sync_data());
        if let Err(source) = written {
            // A full disk may have room again: then the log goes on where its head is.
            inner.stopped = tapdex_engine::beneath::cut(&inner.log, at).is_err();
            return Err(AuditError::Write { path: self.path.clone(), source });
        }
        self.remember(inner, head)
    }

    fn remember(&self, inner: &mut Inner, head: Head) -> Result<(), AuditError> {
        let text = head.text();
        let written = text
            .and_then(|text| inner.head_file.write_all_at(&text, 0))
            .and_then(|()| inner.head_file.sync_data());
        if let Err(source) = written {
            // The log is a line ahead of a head that nobody knows any more.
            inner.stopped = true;
            return Err(AuditError::Write { path: self.path.clone(), source });
        }
        inner.head = head;
        Ok(())
    }

    /// Checks the chain from its first line to its last.
    pub fn verify(&self) -> Result<Report, AuditError> {
        verify(&self.path)
    }

    /// The last lines, the newest first.
    pub fn tail(&self, most: usize) -> Result<Vec<serde_json::Value>, AuditError> {
        let read = |source| AuditError::Read { path: self.path.clone(), source };
        let mut log = open_own(&self.path).map_err(read)?;
        let length = log.metadata().map_err(read)?.len();
        // Most lines have less than a kilobyte.
        let wanted = (most as u64).saturating_mul(1 << 10).saturating_add(LINE_LEN_MAX as u64);
        let from = length.saturating_sub(wanted);
        log.seek(SeekFrom::Start(from)).map_err(read)?;
        let mut bytes = Vec::new();
        Read::take(log, wanted).read_to_end(&mut bytes).map_err(read)?;
        let mut lines: Vec<&[u8]> = bytes.split(|&byte| byte == b'\n').collect();
        if from > 0 {
            lines.remove(0);
        }
        let entries = lines.into_iter().rev().filter_map(|line| serde_json::from_slice(line).ok());
        Ok(entries.take(most).collect())
    }

    /// The number of the last line, and its hash in hexadecimal.
    pub fn last(&self) -> (u64, String) {
        let head = lock(&self.inner).head;
        (head.seq, hex(&head.hash))
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

/// What the chain needs of a line.
#[derive(Debug, Clone)]
struct Parsed {
    seq: u64,
    prev: Hash,
    hash: Hash,
    torn: Option<Torn>,
}

#[derive(Deserialize)]
struct WrittenLine {
    seq: u64,
    prev: String,
    #[serde(default)]
    torn: Option<Torn>,
}

impl Parsed {
    /// Reads a line without its end, and compares it with its hash.
    fn of(line: &[u8]) -> Result<Self, Why> {
        let at = line.len().checked_sub(HASH_PART_LEN).ok_or(Why::Form)?;
        let (text, hash) = line.split_at(at);
        let hash = std::str::from_utf8(hash).map_err(|_| Why::Form)?;
        let hash = hash.strip_prefix(HASH_MEMBER).and_then(|hash| hash.strip_suffix("\"}"));
        let hash: Hash = hash.and_then(unhex).ok_or(Why::Form)?;
        if hash != <Hash>::from(Sha256::digest(text)) {
            return Err(Why::Edited);
        }
        let written: WrittenLine = serde_json::from_slice(line).map_err(|_| Why::Form)?;
        let prev = unhex(&written.prev).ok_or(Why::Form)?;
        Ok(Self { seq: written.seq, prev, hash, torn: written.torn })
    }
}

/// What is wrong with a log, first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wrong {
    /// On which line of the file, from 1; `None` if it is the end.
    pub line: Option<u64>,
    /// What.
    pub why: Why,
}

/// What [`verify`] has found.
#[derive(Debug, Clone, Default)]
pub struct Report {
    /// How many lines are sound.
    pub lines: u64,
    /// The number of the last sound line, and its hash in hexadecimal.
    pub last: Option<(u64, String)>,
    /// How many lines were torn by a crash, and are marked as such.
    pub torn: u64,
    /// The log ends with a torn line, which the next start of the server marks, or which is just
    /// being written.
    pub unfinished: bool,
    /// What is wrong, if something is.
    pub wrong: Option<Wrong>,
    /// The hashes that were asked for, by number.
    hashes: Vec<(u64, String)>,
}

impl Report {
    /// The hash of a line whose number was asked for, if the log has that line.
    pub fn hash_of(&self, seq: u64) -> Option<&str> {
        self.hashes.iter().find(|(found, _)| *found == seq).map(|(_, hash)| hash.as_str())
    }
}

/// Checks a log from its first line to its last, and that with its head, which lies beside it.
/// Whether a server writes to it meanwhile makes no difference.
pub fn verify(path: &Path) -> Result<Report, AuditError> {
    verify_with(path, &[])
}

/// The same, and notes the hashes of lines with these numbers.
pub fn verify_with(path: &Path, numbers: &[u64]) -> Result<Report, AuditError> {
    let read = |source| AuditError::Read { path: path.to_owned(), source };
    // Before the log: what the head knows by then must be in the log.
    let before = read_head(path)?;
    let mut report = Report::default();
    let mut chain = Chain::default();
    let mut bytes = 0;
    let mut at_head = Head::START;
    let mut log = match open_own(path) {
        Ok(file) => BufReader::new(file),
        Err(error) if error.kind() == io::ErrorKind::NotFound && before.is_ok() => {
            let seq = before.map_or(0, |head| head.seq);
            report.wrong =
                (seq > 0).then_some(Wrong { line: None, why: Why::Cut { seq, found: 0 } });
            return Ok(report);
        }
        Err(error) => return Err(read(error)),
    };
    let mut line = Vec::new();
    loop {
        line.clear();
        let most = LINE_LEN_MAX as u64 + 1;
        Read::take(&mut log, most).read_until(b'\n', &mut line).map_err(read)?;
        let Some(whole) = line.strip_suffix(b"\n") else {
            if line.len() > LINE_LEN_MAX {
                report.wrong = Some(Wrong { line: Some(chain.lines + 1), why: Why::Form });
                return Ok(report);
            }
            report.unfinished = !line.is_empty();
            break;
        };
        bytes += line.len() as u64;
        if let Err(wrong) = chain.follow(whole) {
            report.wrong = Some(wrong);
            return Ok(report);
        }
        if chain.open.is_some() {
            continue;
        }
        let (seq, hash) = (chain.seq, chain.hash);
        if before.as_ref().is_ok_and(|head| head.seq == seq) {
            at_head = Head { seq, hash, bytes };
        }
        if numbers.contains(&seq) {
            report.hashes.push((seq, hex(&hash)));
        }
        report.lines += 1;
        report.last = Some((seq, hex(&hash)));
        report.torn = chain.torn;
    }
    let after = read_head(path)?;
    let end = |why| Some(Wrong { line: None, why });
    report.wrong = match (chain.open, before, after) {
        // Lines that make no sense are those of a crash only if there are few of them.
        (Some(open), ..) => Some(Wrong { line: Some(open.line), why: open.why }),
        (_, Err(why), _) | (_, _, Err(why)) => end(why),
        (_, Ok(head), _) if chain.seq < head.seq => {
            end(Why::Cut { seq: head.seq, found: chain.seq })
        }
        (_, Ok(head), _) if at_head != head => end(Why::HeadDiffers { seq: head.seq }),
        (_, _, Ok(head)) if chain.seq > head.seq + 1 => end(Why::Behind { seq: head.seq }),
        _ => None,
    };
    Ok(report)
}

/// The head beside a log, or what is wrong with it.
fn read_head(path: &Path) -> Result<Result<Head, Why>, AuditError> {
    let path = path.with_file_name(HEAD_NAME);
    // The server may be writing it just now, but not each time.
    const TRIES: usize = 100;
    for _ in 0..TRIES {
        let text = match open_own(&path).and_then(|file| read_text(file, HEAD_LEN as u64)) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Err(Why::NoHead)),
            Err(error) if error.kind() == io::ErrorKind::InvalidData => continue,
            Err(source) => return Err(AuditError::Read { path, source }),
        };
        if let Some(head) = Head::parse(&text) {
            return Ok(Ok(head));
        }
    }
    Ok(Err(Why::BadHead))
}

/// Lines that make no sense, as long as it is not known whether a crash has left them.
#[derive(Debug)]
struct Open {
    /// The first of them.
    line: u64,
    /// What is wrong with it.
    why: Why,
    bytes: Vec<u8>,
}

/// The chain, up to some line.
#[derive(Debug, Default)]
struct Chain {
    /// Lines of the file so far.
    lines: u64,
    seq: u64,
    hash: Hash,
    open: Option<Open>,
    /// How many lines were torn by a crash.
    torn: u64,
}

impl Chain {
    /// Goes on to the next line.
    fn follow(&mut self, line: &[u8]) -> Result<(), Wrong> {
        self.lines += 1;
        let number = self.lines;
        let wrong = |why| Err(Wrong { line: Some(number), why });
        let next = match (Parsed::of(line), self.open.take()) {
            (Ok(next), None) if next.torn.is_none() => next,
            (Ok(_), None) => return wrong(Why::Torn),
            (Ok(next), Some(open)) => {
                if !next.torn.as_ref().is_some_and(|torn| torn.is_of(&open.bytes)) {
                    return Err(Wrong { line: Some(open.line), why: open.why });
                }
                self.torn += 1;
                next
            }
            (Err(why), None) => {
                self.open = Some(Open { line: number, why, bytes: line.to_vec() });
                return Ok(());
            }
            (Err(_), Some(open)) => {
                // What a crash leaves, and another crash while that was marked.
                if open.bytes.len() + line.len() >= 2 * LINE_LEN_MAX {
                    return Err(Wrong { line: Some(open.line), why: open.why });
                }
                let bytes = [open.bytes.as_slice(), b"\n", line].concat();
                self.open = Some(Open { bytes, ..open });
                return Ok(());
            }
        };
        let (expected, found) = (self.seq + 1, next.seq);
        match found.cmp(&expected) {
            std::cmp::Ordering::Greater => return wrong(Why::Removed { expected, found }),
            std::cmp::Ordering::Less => return wrong(Why::Inserted { expected, found }),
            std::cmp::Ordering::Equal => {}
        }
        if next.prev != self.hash {
            return wrong(Why::Chain);
        }
        (self.seq, self.hash) = (found, next.hash);
        Ok(())
    }
}
