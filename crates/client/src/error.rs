//! Why there is no answer.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use tapdex_answers::ask::AskError;
use tapdex_answers::capture::ExtractError;
use tapdex_answers::deliver::DeliverError;
use tapdex_answers::json::Time;
use tapdex_engine::archive::ArchiveError;
use tapdex_engine::capture::CaptureError;
use tapdex_engine::query::SearchError;
use tapdex_engine::time::format_time;

use crate::merge::Nobody;

/// Why places have not answered.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClientError {
    /// A folder is not an archive, or cannot be read.
    #[error(transparent)]
    Archive(Box<ArchiveError>),
    /// A folder cannot answer.
    #[error(transparent)]
    Ask(Box<AskError>),
    /// The packets of a folder cannot be delivered.
    #[error(transparent)]
    Deliver(Box<DeliverError>),
    /// The capture cannot be written.
    #[error(transparent)]
    Extract(#[from] ExtractError),
    /// Packets cannot be passed on.
    #[error("cannot pass packets on")]
    Target(#[source] io::Error),
    /// A thread cannot be started, or has no pipe to another.
    #[error("cannot start another thread")]
    Thread(#[source] io::Error),
    /// A server has not answered.
    #[error("{server}: {error}")]
    Server {
        /// Its address.
        server: String,
        /// Why.
        #[source]
        error: Box<HttpError>,
    },
    /// The credentials cannot be used.
    #[error(transparent)]
    Credentials(#[from] CredentialsError),
    /// The same place is named twice. Its packets would be found twice: name it once.
    #[error("{place} is named twice")]
    Twice {
        /// The place.
        place: String,
    },
    /// A place has sent packets that it does not have to be believed.
    #[error("{0}; what it has sent before counts")]
    Lying(Lie),
    /// Of several places, none has answered.
    #[error("{0}")]
    Nobody(Nobody),
    /// It was told to stop.
    #[error("the search was cancelled")]
    Cancelled,
}

/// How packets show that a place is not to be trusted.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Lie {
    /// A packet is earlier than one before it.
    #[error(
        "its packets are not in order of time: one of {} comes after one of {}",
        format_time(packet.0), format_time(before.0)
    )]
    Order {
        /// The time of the packet.
        packet: Time,
        /// The time of one before it.
        before: Time,
    },
    /// A packet is from another time than was asked for.
    #[error("it has sent a packet of {}, which was not asked for", format_time(packet.0))]
    Times {
        /// The time of the packet.
        packet: Time,
    },
}

impl From<ArchiveError> for ClientError {
    fn from(error: ArchiveError) -> Self {
        Self::Archive(Box::new(error))
    }
}

impl From<AskError> for ClientError {
    fn from(error: AskError) -> Self {
        Self::Ask(Box::new(error))
    }
}

impl From<DeliverError> for ClientError {
    fn from(error: DeliverError) -> Self {
        Self::Deliver(Box::new(error))
    }
}

impl ClientError {
    /// Whether somebody has cancelled it.
    pub fn is_cancelled(&self) -> bool {
        match self {
            Self::Cancelled => true,
            Self::Ask(error) => matches!(**error, AskError::Search(SearchError::Cancelled)),
            Self::Deliver(error) => {
                matches!(**error, DeliverError::Search(SearchError::Cancelled))
            }
            Self::Server { error, .. } => matches!(**error, HttpError::Cancelled),
            _ => false,
        }
    }
}

/// Why a server has not answered.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HttpError {
    /// The address is not one of a server. Write it as `https://sensor1:8443`.
    #[error("not an address of a server: {reason}; write it as https://NAME:PORT")]
    Address {
        /// What is wrong.
        reason: String,
    },
    /// Without TLS, anybody on the way could read packets and tokens.
    #[error("http:// is for this machine only: write https://, and tapdex serve needs --tls-..")]
    NotLoopback,
    /// Nobody listens there, or the name is unknown.
    #[error("cannot connect: {0}; does tapdex serve run there?")]
    Connect(String),
    /// Nothing vouches for the certificate.
    #[error(
        "its certificate is not trusted: {reason}; give the certificate of its authority with \
         --ca FILE, or the server's fingerprint in the credentials file (see docs/serving.md)"
    )]
    Untrusted {
        /// What is wrong with it.
        reason: String,
    },
    /// Another certificate than the credentials file says.
    #[error(
        "its certificate has the fingerprint {found}, the credentials file has {expected}: \
         somebody else may be answering; if it was renewed, correct the file"
    )]
    Fingerprint {
        /// That of the file.
        expected: String,
        /// That of the server.
        found: String,
    },
    /// The two do not agree on how to encrypt.
    #[error("TLS failed: {0}")]
    Tls(String),
    /// It wants to know who asks.
    #[error(
        "{text}; put a token into the environment as TAPDEX_TOKEN, into a file for --token-file, \
         or into the credentials file"
    )]
    Token {
        /// What it says.
        text: String,
    },
    /// It knows who asks, and says no.
    #[error("{text}; ask its administrator for another role")]
    Forbidden {
        /// What it says.
        text: String,
    },
    /// It does not understand the question.
    #[error("{text}")]
    Question {
        /// What is wrong, with a caret under the place.
        text: String,
    },
    /// It has too much to do.
    #[error("{text}; try again{}", after(.retry_after))]
    Busy {
        /// What it says.
        text: String,
        /// When to try again.
        retry_after: Option<u64>,
    },
    /// It answers otherwise.
    #[error("it answers with status {code}{}", of(.text))]
    Status {
        /// The number.
        code: u16,
        /// What it says.
        text: String,
    },
    /// It sends nothing any more.
    #[error("nothing has come for {:.0} s; --timeout waits longer", .0.as_secs_f64().ceil())]
    Stalled(Duration),
    /// The connection ended in the middle.
    #[error("the connection broke off: {0}")]
    Broken(String),
    /// It has failed in the middle of its answer.
    #[error("it could not go on: {0}")]
    Failed(String),
    /// The answer is not what `tapdex serve` sends.
    #[error("its answer is damaged: {0}")]
    Damaged(String),
    /// The capture is not one.
    #[error("its answer is damaged: {0}")]
    Capture(#[from] CaptureError),
    /// What came is not what was sent.
    #[error("its answer was changed on the way: its SHA-256 is {found}, not {expected}")]
    Hash {
        /// What the server says.
        expected: String,
        /// What has come.
        found: String,
    },
    /// It was told to stop.
    #[error("the search was cancelled")]
    Cancelled,
}

fn after(retry_after: &Option<u64>) -> String {
    retry_after.map_or(" later".to_owned(), |seconds| format!(" in {seconds} s"))
}

fn of(text: &str) -> String {
    if text.is_empty() { String::new() } else { format!(": {text}") }
}

impl HttpError {
    /// With the server that it is about.
    pub(crate) fn of(self, server: &str) -> ClientError {
        ClientError::Server { server: server.to_owned(), error: Box::new(self) }
    }
}

/// Why credentials cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CredentialsError {
    /// A file cannot be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// Others could read the secret.
    #[error("others may read {}: chmod 600 takes that away", path.display())]
    Open {
        /// The file.
        path: PathBuf,
    },
    /// It is not TOML as expected. The text of the error has no secret: it names lines and keys.
    #[error("{}:{line}: {reason}", path.display())]
    Syntax {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// What is wrong there.
        reason: String,
    },
    /// A token has other characters than tokens have.
    #[error("the token in {place} is not one: it starts with tapdex_ and is on one line")]
    Token {
        /// Where it is from.
        place: String,
    },
    /// A fingerprint is not one.
    #[error(
        "{}: the fingerprint of {server} is not SHA256: and 64 hexadecimal digits",
        path.display()
    )]
    Fingerprint {
        /// The file.
        path: PathBuf,
        /// The server.
        server: String,
    },
    /// A certificate or a key cannot be used.
    #[error("{}: {reason}", path.display())]
    Certificate {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// A certificate of the client needs its key, and the other way round.
    #[error("{}: {server} has a certificate without a key, or a key without one", path.display())]
    Key {
        /// The file.
        path: PathBuf,
        /// The server.
        server: String,
    },
}
