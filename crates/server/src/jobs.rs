//! Extracts that take long: made once, kept for a while, fetched in pieces.
//!
//! The folder `jobs` of the state has two files for each: `ID.json` says what was asked and what
//! became of it, `ID.capture` has the packets. The first is the truth: a capture that it does not
//! call done is removed when the server starts, and the job runs again, if whoever asked still may.
//! Results go after a day. If there is no room for another one within the quota, the oldest go
//! before that.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::sync::Mutex;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use tapdex_answers::ask::Answer;
use tapdex_answers::deliver::Delivered;
use tapdex_answers::json::Time;
use tapdex_answers::question::Question;
use tapdex_engine::query::Control;

use crate::lock;
use crate::state::{State, StateError};

/// Jobs that somebody may have, done or not.
pub const JOBS_MAX: usize = 100;
/// The longest description of a job.
const RECORD_LEN_MAX: u64 = 64 << 20;
const BUFFER_LEN: usize = 1 << 18;

/// What jobs may take.
#[derive(Debug, Clone, Copy)]
pub struct JobLimits {
    /// Bytes of all results.
    pub quota: u64,
    /// How long a result is kept.
    pub keep: Duration,
}

impl Default for JobLimits {
    fn default() -> Self {
        Self { quota: 10 << 30, keep: Duration::from_secs(24 * 3600) }
    }
}

/// What is to be extracted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Order {
    /// The question, as it was asked, with absolute times.
    pub question: Question,
    /// `pcapng` or `pcap`.
    pub format: String,
    /// The most packets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit_packets: Option<u64>,
    /// The most bytes of packets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit_bytes: Option<u64>,
    /// Whether to extract whole conversations.
    #[serde(default)]
    pub whole: bool,
    /// Why, as the client said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// How far a job is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum JobState {
    /// It waits for its turn.
    Waiting,
    /// Packets are being written.
    Running,
    /// The result can be fetched.
    Done,
    /// There will be no result.
    Failed,
}

/// A job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Job {
    /// Its id, which cannot be guessed.
    pub id: String,
    /// The token of whoever asked; their name at an open door.
    pub owner: String,
    /// Their name.
    pub who: String,
    /// When they asked.
    pub created: Time,
    /// When it ended.
    pub ended: Option<Time>,
    /// How far it is.
    pub state: JobState,
    /// Why it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// What is to be extracted.
    pub order: Order,
    /// Packets written so far.
    pub packets: u64,
    /// Bytes of the result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// The SHA-256 of the result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sha256: Option<String>,
    /// What is known about the answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer: Option<Answer<Delivered>>,
}

/// All jobs of a server.
#[derive(Debug)]
pub struct Jobs {
    folder: State,
    limits: JobLimits,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    jobs: BTreeMap<String, Job>,
    /// Of those that run.
    controls: BTreeMap<String, Control>,
}

/// Why a job cannot be taken.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JobError {
    /// The folder of jobs failed.
    #[error(transparent)]
    State(#[from] StateError),
    /// There are too many of the same owner.
    #[error("you have {JOBS_MAX} jobs; delete some")]
    TooMany,
    /// There is no randomness to be had.
    #[error("no random numbers")]
    Random,
}

impl Jobs {
    /// Opens the jobs of a state folder. Those that have not ended are returned: they are to be run
    /// again.
    pub fn open(
        state: &State,
        limits: JobLimits,
        now_ns: u64,
    ) -> Result<(Self, Vec<Job>), JobError> {
        let folder = state.folder("jobs")?;
        let mut inner = Inner::default();
        for name in folder.names()? {
            let Some(id) = name.strip_suffix(".json") else { continue };
            let text = folder.read(&name, RECORD_LEN_MAX)?.unwrap_or_default();
            match serde_json::from_str::<Job>(&text) {
                Ok(job) if job.id == id => drop(inner.jobs.insert(job.id.clone(), job)),
                // Nobody can ask for it; its capture is removed below.
                _ => folder.remove(&name)?,
            }
        }
        for name in folder.names()? {
            let is_done = |id: &str| inner.jobs.get(id).is_some_and(|j| j.state == JobState::Done);
            if name.strip_suffix(".capture").is_some_and(|id| !is_done(id)) {
                folder.remove(&name)?;
            }
        }
        let jobs = Self { folder, limits, inner: Mutex::new(inner) };
        jobs.expire(now_ns);
        let unfinished = |job: &&Job| matches!(job.state, JobState::Waiting | JobState::Running);
        let again = lock(&jobs.inner).jobs.values().filter(unfinished).cloned().collect();
        Ok((jobs, again))
    }

    /// Takes a job, which then waits for its turn.
    pub fn add(&self, owner: &str, who: &str, order: Order, now_ns: u64) -> Result<Job, JobError> {
        self.expire(now_ns);
        let mut random = [0; 16];
        getrandom::fill(&mut random).map_err(|_| JobError::Random)?;
        let job = Job {
            id: random.iter().map(|byte| format!("{byte:02x}")).collect(),
            owner: owner.to_owned(),
            who: who.to_owned(),
            created: Time(now_ns),
            ended: None,
            state: JobState::Waiting,
            error: None,
            order,
            packets: 0,
            bytes: None,
            sha256: None,
            answer: None,
        };
        let mut inner = lock(&self.inner);
        if inner.jobs.values().filter(|job| job.owner == owner).count() >= JOBS_MAX {
            return Err(JobError::TooMany);
        }
        self.save(&job)?;
        inner.jobs.insert(job.id.clone(), job.clone());
        Ok(job)
    }

    /// A job, with the packets that it has written so far.
    pub fn get(&self, id: &str, now_ns: u64) -> Option<Job> {
        self.expire(now_ns);
        let inner = lock(&self.inner);
        inner.jobs.get(id).map(|job| inner.with_progress(job))
    }

    /// All jobs, the newest first.
    pub fn list(&self, now_ns: u64) -> Vec<Job> {
        self.expire(now_ns);
        let inner = lock(&self.inner);
        let mut jobs: Vec<Job> = inner.jobs.values().map(|job| inner.with_progress(job)).collect();
        jobs.sort_by_key(|job| std::cmp::Reverse(job.created));
        jobs
    }

    /// Removes a job and its result; if it runs, it ends.
    pub fn remove(&self, id: &str) -> Result<(), JobError> {
        let mut inner = lock(&self.inner);
        if let Some(control) = inner.controls.remove(id) {
            control.cancel();
        }
        inner.jobs.remove(id);
        // The description first: without it, nobody takes a part for the whole.
        self.folder.remove(&record_name(id))?;
        Ok(self.folder.remove(&capture_name(id))?)
    }

    /// The result of a job that is done.
    pub fn result(&self, id: &str) -> Result<Option<File>, JobError> {
        Ok(self.folder.open_file(&capture_name(id))?)
    }

    /// Begins to write the result of a job; `None` if it was removed in the meantime.
    pub fn begin(&self, id: &str, control: &Control) -> Result<Option<ResultFile<'_>>, JobError> {
        let mut inner = lock(&self.inner);
        let Some(job) = inner.jobs.get_mut(id) else { return Ok(None) };
        job.state = JobState::Running;
        let saved = self.save(job);
        inner.controls.insert(id.to_owned(), control.clone());
        drop(inner);
        saved?;
        self.folder.remove(&capture_name(id))?;
        let file = self.folder.open_to_write(&capture_name(id))?;
        Ok(Some(ResultFile {
            jobs: self,
            id: id.to_owned(),
            file: BufWriter::with_capacity(BUFFER_LEN, file),
            sha256: Sha256::new(),
            bytes: 0,
            checked: 0,
        }))
    }

    /// Remembers how a job ended.
    pub fn end(
        &self,
        id: &str,
        outcome: Result<(Answer<Delivered>, u64, String), String>,
        now_ns: u64,
    ) -> Result<(), JobError> {
        let mut inner = lock(&self.inner);
        inner.controls.remove(id);
        let Some(job) = inner.jobs.get_mut(id) else {
            drop(inner);
            return Ok(self.folder.remove(&capture_name(id))?);
        };
        job.ended = Some(Time(now_ns));
        match outcome {
            Ok((answer, bytes, sha256)) => {
                job.state = JobState::Done;
                job.packets = answer.value.packets;
                (job.answer, job.bytes, job.sha256) = (Some(answer), Some(bytes), Some(sha256));
            }
            Err(error) => {
                (job.state, job.error) = (JobState::Failed, Some(error));
                self.folder.remove(&capture_name(id))?;
            }
        }
        Ok(self.save(job)?)
    }

    fn save(&self, job: &Job) -> Result<(), StateError> {
        self.folder.write(&record_name(&job.id), tapdex_answers::json::text(job).as_bytes())
    }

    /// Removes what was kept long enough.
    fn expire(&self, now_ns: u64) {
        let keep = u64::try_from(self.limits.keep.as_nanos()).unwrap_or(u64::MAX);
        let is_old = |job: &Job| job.ended.is_some_and(|end| now_ns.saturating_sub(end.0) > keep);
        let old: Vec<String> = {
            let inner = lock(&self.inner);
            inner.jobs.values().filter(|job| is_old(job)).map(|job| job.id.clone()).collect()
        };
        // If a file cannot be removed, that is tried again the next time the server starts.
        old.iter().for_each(|id| drop(self.remove(id)));
    }

    /// Whether there is room for so many bytes of a result that is being written; if not, which of
    /// the others is the oldest.
    fn room(&self, id: &str, bytes: u64) -> Result<(), Option<String>> {
        let inner = lock(&self.inner);
        let others = inner.jobs.values().filter(|job| job.id != id);
        let done = others.filter(|job| job.state == JobState::Done);
        let used: u64 = done.clone().filter_map(|job| job.bytes).sum();
        match used.saturating_add(bytes) <= self.limits.quota {
            true => Ok(()),
            false => Err(done.min_by_key(|job| job.ended).map(|job| job.id.clone())),
        }
    }

    /// Makes room for so many bytes of a result that is being written; the oldest go first.
    fn make_room(&self, id: &str, bytes: u64) -> io::Result<()> {
        while let Err(oldest) = self.room(id, bytes) {
            if bytes > self.limits.quota {
                return Err(io::ErrorKind::QuotaExceeded.into());
            }
            let oldest = oldest.ok_or(io::ErrorKind::QuotaExceeded)?;
            self.remove(&oldest).map_err(io::Error::other)?;
        }
        Ok(())
    }
}

impl Inner {
    fn with_progress(&self, job: &Job) -> Job {
        let mut job = job.clone();
        if let Some(control) = self.controls.get(&job.id) {
            job.packets = control.progress().packets_found;
        }
        job
    }
}

fn record_name(id: &str) -> String {
    format!("{id}.json")
}

fn capture_name(id: &str) -> String {
    format!("{id}.capture")
}

/// Whether this can be the id of a job: it becomes the name of a file.
pub fn is_id(text: &str) -> bool {
    text.len() == 32
        && text.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
}

/// The result of a job, while it is written.
#[derive(Debug)]
pub struct ResultFile<'a> {
    jobs: &'a Jobs,
    id: String,
    file: BufWriter<File>,
    sha256: Sha256,
    bytes: u64,
    /// For how many bytes there is room.
    checked: u64,
}

/// It is checked for so many bytes at a time whether there is room.
const ROOM_STEP: u64 = 16 << 20;

impl ResultFile<'_> {
    /// Completes the result; returns its bytes and their SHA-256.
    pub fn finish(mut self) -> io::Result<(u64, String)> {
        self.file.flush()?;
        self.file.get_ref().sync_all()?;
        let digest = self.sha256.finalize();
        Ok((self.bytes, digest.iter().map(|byte| format!("{byte:02x}")).collect()))
    }
}

impl Write for ResultFile<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let end = self.bytes.saturating_add(bytes.len() as u64);
        if end > self.checked {
            let wanted = end.saturating_add(ROOM_STEP);
            self.checked = match self.jobs.room(&self.id, wanted) {
                Ok(()) => wanted,
                Err(_) => {
                    self.jobs.make_room(&self.id, end)?;
                    end
                }
            };
        }
        self.file.write_all(bytes)?;
        self.sha256.update(bytes);
        self.bytes = end;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}
