//! What became of streams: for clients that cannot read trailers.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::http::Response;
use serde::Serialize;
use tapdex_answers::ask::Answer;
use tapdex_answers::deliver::Delivered;

use super::error::ApiError;
use super::{App, Asked, json};
use crate::lock;

/// How long the end of a stream is remembered.
const KEPT: Duration = Duration::from_secs(300);
/// Streams that are remembered.
const KEPT_MAX: usize = 10_000;

/// Streams by their ids.
#[derive(Debug, Default)]
pub(super) struct Registry(Mutex<Kept>);

#[derive(Debug, Default)]
struct Kept {
    streams: BTreeMap<String, Known>,
    /// Those that have ended, and when.
    ended: VecDeque<(Instant, String)>,
}

/// A stream, and whose it is.
#[derive(Debug)]
struct Known {
    owner: String,
    outcome: Outcome,
}

/// What became of a stream.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Outcome {
    state: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    sha256: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    answer: Option<Answer<Delivered>>,
}

impl Outcome {
    fn running() -> Self {
        Self { state: "running", error: None, sha256: None, bytes: None, answer: None }
    }

    pub(super) fn done(answer: Answer<Delivered>, sha256: String, bytes: u64) -> Self {
        let (sha256, bytes, answer) = (Some(sha256), Some(bytes), Some(answer));
        Self { state: "done", sha256, bytes, answer, ..Self::running() }
    }

    pub(super) fn failed(error: String) -> Self {
        Self { state: "failed", error: Some(error), ..Self::running() }
    }
}

impl Registry {
    /// Remembers a stream that starts; the id cannot be guessed.
    pub(super) fn start(&self, owner: &str) -> Result<String, ApiError> {
        let mut random = [0; 16];
        getrandom::fill(&mut random).map_err(|_| ApiError::failed())?;
        let id: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
        let known = Known { owner: owner.to_owned(), outcome: Outcome::running() };
        lock(&self.0).streams.insert(id.clone(), known);
        Ok(id)
    }

    /// Remembers how a stream ended.
    pub(super) fn end(&self, id: &str, outcome: Outcome) {
        let mut kept = lock(&self.0);
        if let Some(known) = kept.streams.get_mut(id) {
            known.outcome = outcome;
            kept.ended.push_back((Instant::now(), id.to_owned()));
        }
        while kept.ended.len() > KEPT_MAX
            || kept.ended.front().is_some_and(|(when, _)| when.elapsed() > KEPT)
        {
            let Some((_, old)) = kept.ended.pop_front() else { break };
            kept.streams.remove(&old);
        }
    }

    fn get(&self, id: &str, owner: &str) -> Option<Outcome> {
        let kept = lock(&self.0);
        kept.streams.get(id).filter(|known| known.owner == owner).map(|k| k.outcome.clone())
    }
}

/// Whose stream it is: nobody else learns what became of it.
pub(super) fn owner(identity: &crate::door::Identity) -> String {
    identity.token().map_or_else(|| identity.name().to_owned(), |id| id.to_string())
}

/// Tells what became of a stream.
pub(super) fn tell(app: &App, asked: Asked) -> Result<Response<Body>, ApiError> {
    let Asked { identity, params, id, .. } = asked;
    params.finish()?;
    let outcome = app.registry.get(&id, &owner(&identity));
    let outcome = outcome.ok_or_else(|| ApiError::not_found("no answer of yours has this id"))?;
    Ok(json(&outcome))
}
