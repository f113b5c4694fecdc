//! Tokens: who may come in, by a secret or by a certificate.
//!
//! A token is shown once, when it is made:
//!
//! ```text
//! tapdex_k3v9x2ab_0f3c..  the id: 8 of a-z and 0-9; the secret: 32 random bytes in hexadecimal
//! ```
//!
//! `tokens.toml` has the id and the SHA-256 of the secret, never the secret itself. Guessing 32
//! random bytes is hopeless, so a slow hash would make nothing safer, only each question slower.
//! Where a client is known by its certificate, the entry has the SHA-256 of that in place of the
//! secret's.
//!
//! Only `tapdex token` writes the file, holding its lock. Entries are never removed: a name in an
//! old line of the audit log always leads to what it stood for.

use std::fmt::{self, Debug};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use subtle::{Choice, ConstantTimeEq};
use tapdex_engine::time::{format_time, parse_time};

use crate::state::{State, StateError};
use crate::tls::Fingerprint;

/// The name of the file.
pub(super) const TOKENS_NAME: &str = "tokens.toml";
/// The most bytes of it: some ten thousand tokens.
pub(super) const TOKENS_LEN_MAX: u64 = 4 << 20;
/// A file that is there once there were tokens: losing them must not look like never having had
/// any.
const MADE_NAME: &str = ".tokens.toml.made";

const ID_LEN: usize = 8;
const SECRET_LEN: usize = 32;
const PREFIX: &str = "tapdex_";
/// The longest name.
const NAME_LEN_MAX: usize = 64;
/// The letters of an id.
const LETTERS: &[u8; 36] = b"abcdefghijklmnopqrstuvwxyz0123456789";
/// Who asks at an open door. No token may have that name.
pub(super) const LOCAL: &str = "local";

/// What is wrong with tokens, or with a change of them.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TokenError {
    /// The file cannot be read or written.
    #[error(transparent)]
    State(#[from] StateError),
    /// The file is not what `tapdex token` writes.
    #[error("{file}, line {line}: {what}")]
    Form {
        /// The file.
        file: String,
        /// Where, from 1.
        line: usize,
        /// What is wrong.
        what: String,
    },
    /// An entry that `tapdex token` would not have written.
    #[error("{file}: token {number} has {what}")]
    Entry {
        /// The file.
        file: String,
        /// Which entry, from 1.
        number: usize,
        /// What is wrong.
        what: &'static str,
    },
    /// The file is gone, although there were tokens.
    #[error("{file} is missing, although there were tokens: nobody is let in until it is restored")]
    Gone {
        /// The file.
        file: String,
    },
    /// A name that cannot be one.
    #[error("{0:?} is no name for a token: it needs 1 to {NAME_LEN_MAX} printable characters")]
    Name(String),
    /// A name that is taken.
    #[error("there is a token named {0:?} already: revoke it first, or choose another name")]
    Taken(String),
    /// A certificate that has an entry.
    #[error("that certificate is known already, as {0:?}")]
    Known(String),
    /// There is no such token.
    #[error("there is no valid token {0:?}; tapdex token list shows them")]
    Unknown(String),
    /// The file would be longer than it may be.
    #[error("there are too many tokens, revoked ones included: remove old entries from {file}")]
    Full {
        /// The file.
        file: String,
    },
    /// The system has no random bytes.
    #[error("the system gives no random bytes: {0}")]
    Random(String),
}

/// The id of a token.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TokenId([u8; ID_LEN]);

impl TokenId {
    fn parse(text: &str) -> Option<Self> {
        let id: [u8; ID_LEN] = text.as_bytes().try_into().ok()?;
        id.iter().all(|letter| LETTERS.contains(letter)).then_some(Self(id))
    }

    fn random() -> Result<Self, TokenError> {
        let mut id = [0; ID_LEN];
        for letter in &mut id {
            *letter = loop {
                let [byte] = random()?;
                // Bytes from 252 on would make some letters likelier.
                if byte < 252 {
                    break LETTERS[usize::from(byte) % LETTERS.len()];
                }
            };
        }
        Ok(Self(id))
    }
}

impl fmt::Display for TokenId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|&letter| write!(f, "{}", char::from(letter)))
    }
}

impl Debug for TokenId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

fn random<const N: usize>() -> Result<[u8; N], TokenError> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).map_err(|error| TokenError::Random(error.to_string()))?;
    Ok(bytes)
}

/// A token as somebody presents it. It is never printed; only its text, once, when it is made.
#[derive(Clone)]
pub struct Presented {
    id: TokenId,
    secret: [u8; SECRET_LEN],
}

impl Debug for Presented {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "tapdex_{}_..", self.id)
    }
}

impl Presented {
    /// The token of a text, in its one form.
    pub fn parse(text: &str) -> Option<Self> {
        let (id, secret) = text.strip_prefix(PREFIX)?.split_once('_')?;
        Some(Self { id: TokenId::parse(id)?, secret: unhex(secret)? })
    }

    fn random() -> Result<Self, TokenError> {
        Ok(Self { id: TokenId::random()?, secret: random()? })
    }

    /// Whose token it claims to be.
    pub fn id(&self) -> TokenId {
        self.id
    }

    /// The text that its owner keeps.
    pub fn text(&self) -> String {
        format!("{PREFIX}{}_{}", self.id, hex(&self.secret))
    }

    fn hash(&self) -> [u8; 32] {
        Sha256::digest(self.secret).into()
    }
}

/// Bytes in hexadecimal.
pub(crate) fn hex(bytes: &[u8]) -> String {
    use fmt::Write;

    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a string does not fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Bytes from lower case hexadecimal of just their length.
pub(crate) fn unhex<const N: usize>(text: &str) -> Option<[u8; N]> {
    let digit = |digit: u8| match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        _ => None,
    };
    let digits = text.as_bytes();
    if digits.len() != 2 * N {
        return None;
    }
    let mut bytes = [0; N];
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        let [high, low] = pair else { return None };
        *byte = digit(*high)? << 4 | digit(*low)?;
    }
    Some(bytes)
}

/// What opens the door.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Key {
    /// A secret with this SHA-256.
    Secret([u8; 32]),
    /// A client certificate.
    Certificate(Fingerprint),
}

/// An entry of the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Token {
    /// Its id.
    pub id: TokenId,
    /// Whose it is.
    pub name: String,
    /// The name of a role.
    pub role: String,
    /// What opens the door.
    pub key: Key,
    /// When it was made, in nanoseconds since 1970.
    pub created_ns: u64,
    /// When it expires, if it does.
    pub expires_ns: Option<u64>,
    /// When it was revoked, if it was.
    pub revoked_ns: Option<u64>,
}

/// Whether a token opens the door.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// It does.
    Valid,
    /// Not any more.
    Expired,
    /// Somebody has revoked it.
    Revoked,
}

impl Token {
    /// Whether it opens the door at that time.
    pub fn standing(&self, now_ns: u64) -> Standing {
        match (self.revoked_ns, self.expires_ns) {
            (Some(_), _) => Standing::Revoked,
            (None, Some(expires)) if expires <= now_ns => Standing::Expired,
            _ => Standing::Valid,
        }
    }
}

/// An entry as it is written.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    id: String,
    name: String,
    role: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    secret: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    certificate: Option<String>,
    created: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    expires: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    revoked: Option<String>,
}

#[derive(Serialize, Deserialize, Default)]
#[serde(deny_unknown_fields)]
struct WrittenTokens {
    #[serde(default)]
    token: Vec<Written>,
}

/// A time in its one form: a form that counts from now would never expire.
fn written_time(text: &str) -> Result<u64, &'static str> {
    let time = parse_time(text, 0, true).ok().filter(|&ns| format_time(ns) == text);
    time.ok_or("a time that is not as 2026-11-19T20:00:00.000000000Z")
}

impl Written {
    fn of(token: &Token) -> Self {
        let (secret, certificate) = match &token.key {
            Key::Secret(hash) => (Some(format!("sha256:{}", hex(hash))), None),
            Key::Certificate(fingerprint) => (None, Some(fingerprint.to_string())),
        };
        Self {
            id: token.id.to_string(),
            name: token.name.clone(),
            role: token.role.clone(),
            secret,
            certificate,
            created: format_time(token.created_ns),
            expires: token.expires_ns.map(format_time),
            revoked: token.revoked_ns.map(format_time),
        }
    }

    fn read(self) -> Result<Token, &'static str> {
        let key = match (&self.secret, &self.certificate) {
            (Some(secret), None) => secret.strip_prefix("sha256:").and_then(unhex).map(Key::Secret),
            (None, Some(certificate)) => Fingerprint::parse(certificate).map(Key::Certificate),
            _ => return Err("not just one of secret and certificate"),
        };
        let time = |text: &Option<String>| text.as_deref().map(written_time).transpose();
        if !is_name(&self.name) {
            return Err("a name that is none");
        }
        Ok(Token {
            id: TokenId::parse(&self.id).ok_or("an id that is none")?,
            key: key.ok_or("a hash that is none")?,
            created_ns: written_time(&self.created)?,
            expires_ns: time(&self.expires)?,
            revoked_ns: time(&self.revoked)?,
            name: self.name,
            role: self.role,
        })
    }
}

/// Whether a text can be a name: it is shown in lists and in the audit log.
fn is_name(name: &str) -> bool {
    let is_shown = !name.contains(char::is_control) && name.trim() == name;
    !name.is_empty() && name.len() <= NAME_LEN_MAX && is_shown && name != LOCAL
}

/// All tokens, in the order in which they were made.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tokens {
    tokens: Vec<Token>,
}

/// A token to be made.
#[derive(Debug, Clone)]
pub struct NewToken<'a> {
    /// Whose it is.
    pub name: &'a str,
    /// The name of a role. Whoever adds a token checks that there is one.
    pub role: &'a str,
    /// The certificate that opens the door; a secret is made if there is none.
    pub certificate: Option<Fingerprint>,
    /// When it expires, if it does.
    pub expires_ns: Option<u64>,
}

impl Tokens {
    /// Reads the tokens of a server. A file that was never there has none; one that is gone is an
    /// error, as is one that is not understood as a whole.
    pub fn read(state: &State) -> Result<Self, TokenError> {
        let file = || state.path_of(TOKENS_NAME).display().to_string();
        match state.read(TOKENS_NAME, TOKENS_LEN_MAX)? {
            Some(text) => Self::parse(&text, &file()),
            None if state.stamp(MADE_NAME)?.is_some() => Err(TokenError::Gone { file: file() }),
            None => Ok(Self::default()),
        }
    }

    /// The tokens of a text. `file` is its name in messages.
    pub fn parse(text: &str, file: &str) -> Result<Self, TokenError> {
        let written: WrittenTokens = toml::from_str(text).map_err(|error| {
            let start = error.span().map_or(0, |span| span.start);
            let before = text.as_bytes().get(..start).unwrap_or_default();
            TokenError::Form {
                file: file.to_owned(),
                line: 1 + before.iter().filter(|&&byte| byte == b'\n').count(),
                what: error.message().trim().replace('\n', " "),
            }
        })?;
        let mut tokens: Vec<Token> = Vec::new();
        for (index, token) in written.token.into_iter().enumerate() {
            let fails = |what| {
                let file = file.to_owned();
                TokenError::Entry { file, number: index + 1, what }
            };
            let token = token.read().map_err(fails)?;
            if tokens.iter().any(|other| other.id == token.id) {
                return Err(fails("an id that another token has"));
            }
            tokens.push(token);
        }
        Ok(Self { tokens })
    }

    fn text(&self) -> Result<String, TokenError> {
        let token = self.tokens.iter().map(Written::of).collect();
        let text = toml::to_string(&WrittenTokens { token });
        let text = text.map_err(|error| StateError::Write {
            path: TOKENS_NAME.into(),
            source: std::io::Error::other(error),
        })?;
        Ok(format!(
            "# Written by tapdex token. Secrets are not in here, only their SHA-256.\n{text}"
        ))
    }

    /// The tokens, in the order in which they were made.
    pub fn iter(&self) -> impl Iterator<Item = &Token> {
        self.tokens.iter()
    }

    /// Whether there are none, not even revoked ones.
    pub fn is_empty(&self) -> bool {
        self.tokens.is_empty()
    }

    /// A token by its id.
    pub fn get(&self, id: TokenId) -> Option<&Token> {
        self.tokens.iter().find(|token| token.id == id)
    }

    /// The token that was presented, if the secret is right. An id that is not known takes the
    /// steps that a wrong secret takes.
    pub fn find(&self, presented: &Presented) -> Option<&Token> {
        let hash = presented.hash();
        let token = self.get(presented.id);
        // What no secret can have: a hash of other bytes than 32.
        let nobody: [u8; 32] = Sha256::digest(b"nobody").into();
        let (expected, is_secret) = match token.map(|token| token.key) {
            Some(Key::Secret(expected)) => (expected, 1),
            _ => (nobody, 0),
        };
        let is_right = expected.ct_eq(&hash) & Choice::from(is_secret);
        token.filter(|_| is_right.into())
    }

    /// The token of a certificate. If a certificate has several, the one that was not revoked.
    pub fn find_certificate(&self, fingerprint: Fingerprint) -> Option<&Token> {
        let is_it = |token: &&Token| token.key == Key::Certificate(fingerprint);
        let mut found = self.tokens.iter().rev().filter(is_it);
        let last = found.next()?;
        match last.revoked_ns {
            None => Some(last),
            Some(_) => Some(found.find(|token| token.revoked_ns.is_none()).unwrap_or(last)),
        }
    }

    /// Makes a token. What is returned has its text, unless a certificate takes its place: nobody
    /// can find it out later.
    pub fn add(
        state: &State,
        new: &NewToken<'_>,
        now_ns: u64,
    ) -> Result<(TokenId, Option<Presented>), TokenError> {
        if !is_name(new.name) {
            return Err(TokenError::Name(new.name.to_owned()));
        }
        let presented = Presented::random()?;
        let (id, key) = match new.certificate {
            Some(fingerprint) => (presented.id, Key::Certificate(fingerprint)),
            None => (presented.id, Key::Secret(presented.hash())),
        };
        Self::change(state, |tokens| {
            let valid = |token: &&Token| token.standing(now_ns) == Standing::Valid;
            if tokens.iter().filter(valid).any(|token| token.name == new.name) {
                return Err(TokenError::Taken(new.name.to_owned()));
            }
            let known = |fingerprint| tokens.find_certificate(fingerprint).filter(valid);
            if let Some(token) = new.certificate.and_then(known) {
                return Err(TokenError::Known(token.name.clone()));
            }
            if tokens.get(id).is_some() {
                // One in a million million: whoever meets it tries again.
                return Err(TokenError::Random("an id came twice".to_owned()));
            }
            tokens.tokens.push(Token {
                id,
                name: new.name.to_owned(),
                role: new.role.to_owned(),
                key,
                created_ns: now_ns,
                expires_ns: new.expires_ns,
                revoked_ns: None,
            });
            Ok(())
        })?;
        Ok((id, new.certificate.is_none().then_some(presented)))
    }

    /// Revokes the token of that id, or else of that name.
    pub fn revoke(state: &State, which: &str, now_ns: u64) -> Result<Token, TokenError> {
        Self::change(state, |tokens| {
            let by_id = TokenId::parse(which);
            let is_it = |token: &Token| token.revoked_ns.is_none();
            let id = |token: &Token| Some(token.id) == by_id && is_it(token);
            let name = |token: &Token| token.name == which && is_it(token);
            // Of those with a name, the last: those before it have expired.
            let at = tokens.tokens.iter().position(id);
            let at = at.or_else(|| tokens.tokens.iter().rposition(name));
            let token = at.and_then(|at| tokens.tokens.get_mut(at));
            let token = token.ok_or_else(|| TokenError::Unknown(which.to_owned()))?;
            token.revoked_ns = Some(now_ns);
            Ok(token.clone())
        })
    }

    /// Reads, changes and writes the tokens while nobody else does.
    fn change<T>(
        state: &State,
        change: impl FnOnce(&mut Self) -> Result<T, TokenError>,
    ) -> Result<T, TokenError> {
        let _lock = state.lock(TOKENS_NAME)?;
        let mut tokens = Self::read(state)?;
        let changed = change(&mut tokens)?;
        let text = tokens.text()?;
        if text.len() as u64 > TOKENS_LEN_MAX {
            // Nobody could read it, and the door would be closed.
            let file = state.path_of(TOKENS_NAME).display().to_string();
            return Err(TokenError::Full { file });
        }
        state.write(TOKENS_NAME, text.as_bytes())?;
        if state.stamp(MADE_NAME)?.is_none() {
            state.write(MADE_NAME, b"")?;
        }
        Ok(changed)
    }
}
