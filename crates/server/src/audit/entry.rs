//! What is written down about an answer.

use std::net::SocketAddr;

use serde::Serialize;
use sha2::{Digest, Sha256};
use tapdex_engine::time::{TimeRange, format_time};

use super::line::LINE_LEN_MAX;
use crate::door::Identity;
use crate::door::tokens::hex;

/// The most bytes of a text that a client has sent; the rest is left out, and marked.
const TEXT_LEN_MAX: usize = 4 << 10;
/// How many such texts a line has at most.
const TEXTS_MAX: usize = 8;

// No client can send what a line has no room for: a byte becomes six when it is escaped.
const _: () = assert!(TEXTS_MAX * (6 * TEXT_LEN_MAX + 256) < LINE_LEN_MAX);

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
    pub(super) fn shortened(&self) -> Self {
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
