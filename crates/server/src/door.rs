//! The locked door: who comes in, and what they may ask.
//!
//! ```text
//! bearer token, or client certificate -> Door::admit -> Identity -> Identity::begin -> Turn
//!                                                    \-> Refusal: 401, 403, 429 or 503
//! ```
//!
//! The door looks at each request whether `tokens.toml` or `roles.toml` have changed, so that
//! revoking works at once. A file that cannot be read or understood closes the door: nobody gets in
//! until it is mended. What a client is told is less than what a log is told ([`Refusal::told`]):
//! whether a token is not known, has expired or was revoked is nobody's business outside.
//!
//! ```
//! use tapdex_server::door::tokens::{NewToken, Tokens};
//! use tapdex_server::door::{Door, WhenEmpty, roles::May};
//! use tapdex_server::state::State;
//!
//! let folder = tempfile::tempdir()?;
//! let state = State::create(&folder.path().join("state"))?;
//! let new = NewToken { name: "soc", role: "search", certificate: None, expires_ns: None };
//! let (_, token) = Tokens::add(&state, &new, 0)?;
//! let token = token.map(|token| token.text());
//!
//! let door = Door::open(&state, WhenEmpty::Locked)?;
//! let peer = "10.0.0.9:5000".parse()?;
//! let identity = door.admit(token.as_deref(), None, peer, 1)?;
//! assert_eq!(identity.name(), "soc");
//! assert!(identity.check(May::Extract).is_err_and(|refusal| refusal.status() == 403));
//! let turn = identity.begin(1)?; // held until the answer is complete
//! # drop(turn);
//!
//! assert!(door.admit(None, None, peer, 1).is_err_and(|refusal| refusal.status() == 401));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod roles;
pub mod tokens;

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::lock;
use crate::state::{Stamp, State, StateError};
use crate::tls::Fingerprint;
use roles::{Limits, May, ROLES_LEN_MAX, Role, RoleError, Roles};
use tokens::{LOCAL, Presented, Standing, TOKENS_NAME, Token, TokenError, TokenId, Tokens};

/// The name of the file that people write roles into.
const ROLES_NAME: &str = "roles.toml";

/// What to do as long as there are no tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WhenEmpty {
    /// Nobody comes in.
    Locked,
    /// Everybody on this machine comes in as `local`, in the role `admin`. Only for a server that
    /// listens on loopback alone.
    Open,
}

/// Why the door is closed for all.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DoorError {
    /// The state folder, or a file in it.
    #[error(transparent)]
    State(#[from] StateError),
    /// The tokens.
    #[error(transparent)]
    Tokens(#[from] TokenError),
    /// The roles.
    #[error("{file}, {error}")]
    Roles {
        /// The file.
        file: String,
        /// What is wrong.
        error: RoleError,
    },
}

impl DoorError {
    fn is_unread(&self) -> bool {
        matches!(self, Self::State(_) | Self::Tokens(TokenError::State(_)))
    }
}

/// Why somebody is not let in, or may not ask. Its text is for the log, [`Refusal::told`] for the
/// client.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// There was neither a token nor a certificate.
    #[error("no token")]
    Missing,
    /// The token or the certificate is none that is known.
    #[error("a token or certificate that is not known{}", shown(.claimed))]
    Unknown {
        /// Whose it claims to be.
        claimed: Option<TokenId>,
    },
    /// The token has expired.
    #[error("token {id} has expired")]
    Expired {
        /// Which.
        id: TokenId,
    },
    /// The token was revoked.
    #[error("token {id} was revoked")]
    Revoked {
        /// Which.
        id: TokenId,
    },
    /// The token has a role that there is not.
    #[error("token {id} has the role {role:?}, which is not in {ROLES_NAME}")]
    RoleUnknown {
        /// Which.
        id: TokenId,
        /// Its role.
        role: String,
    },
    /// The role has changed while the answer was given.
    #[error("the role {role:?} has changed in the meantime")]
    RoleChanged {
        /// Which.
        role: String,
    },
    /// The role may not do that.
    #[error("the role {role:?} may not do what {} may", needed.name())]
    RoleTooSmall {
        /// Which.
        role: String,
        /// What would be needed.
        needed: May,
    },
    /// As many questions as the role may have are being answered.
    #[error("more than {most} questions at once")]
    TooMany {
        /// How many there may be.
        most: u32,
    },
    /// As many questions as the role may ask were asked in the last minute.
    #[error("more than {most} questions a minute")]
    TooOften {
        /// How many there may be.
        most: u32,
        /// When the next one may be asked.
        wait: Duration,
    },
    /// Nobody gets in.
    #[error("the door is closed: {0}")]
    Closed(Arc<DoorError>),
}

fn shown(claimed: &Option<TokenId>) -> String {
    claimed.map(|id| format!(", of {id}")).unwrap_or_default()
}

impl Refusal {
    /// The status of HTTP.
    pub fn status(&self) -> u16 {
        match self {
            Self::Missing | Self::Unknown { .. } | Self::Expired { .. } | Self::Revoked { .. } => {
                401
            }
            Self::RoleUnknown { .. } | Self::RoleChanged { .. } | Self::RoleTooSmall { .. } => 403,
            Self::TooMany { .. } | Self::TooOften { .. } => 429,
            Self::Closed(_) => 503,
        }
    }

    /// What the client is told.
    pub fn told(&self) -> &'static str {
        match self.status() {
            401 => "a valid token or client certificate is needed",
            403 => "your role may not do that",
            429 => "too many questions: wait, or ask fewer at a time",
            _ => "the server cannot tell who may come in; its log says why",
        }
    }

    /// How long the client should wait before it asks again, if that helps.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::TooOften { wait, .. } => Some(*wait),
            Self::TooMany { .. } => Some(Duration::from_secs(1)),
            _ => None,
        }
    }
}

/// What is in the files.
#[derive(Debug)]
struct Lists {
    tokens: Tokens,
    roles: Roles,
}

/// What was read, and from which versions of the files.
#[derive(Debug)]
struct Kept {
    stamps: Option<[Option<Stamp>; 2]>,
    lists: Result<Arc<Lists>, Arc<DoorError>>,
    /// There were tokens once, so the door never opens for all again.
    had_tokens: bool,
}

/// The door of a server.
#[derive(Debug)]
pub struct Door {
    state: State,
    when_empty: WhenEmpty,
    kept: Mutex<Kept>,
    /// How much each token asks now. There are never more than there are tokens.
    usage: Mutex<HashMap<Option<TokenId>, Arc<Mutex<Usage>>>>,
}

impl Door {
    /// Opens the state of a server. Files that cannot be read or understood are an error here;
    /// later they close the door.
    pub fn open(state: &State, when_empty: WhenEmpty) -> Result<Self, DoorError> {
        let stamps = Self::stamps(state)?;
        let lists = Self::read(state)?;
        let had_tokens = !lists.tokens.is_empty();
        let kept = Kept { stamps: Some(stamps), lists: Ok(Arc::new(lists)), had_tokens };
        Ok(Self {
            state: state.clone(),
            when_empty,
            kept: Mutex::new(kept),
            usage: Mutex::default(),
        })
    }

    fn stamps(state: &State) -> Result<[Option<Stamp>; 2], StateError> {
        Ok([state.stamp(TOKENS_NAME)?, state.stamp(ROLES_NAME)?])
    }

    fn read(state: &State) -> Result<Lists, DoorError> {
        let tokens = Tokens::read(state)?;
        Ok(Lists { tokens, roles: read_roles(state)? })
    }

    /// What is in the files now.
    fn lists(&self) -> Result<Arc<Lists>, Refusal> {
        let mut kept = lock(&self.kept);
        // Taken before the files are read: whatever changes in between is seen the next time.
        let stamps = Self::stamps(&self.state);
        let is_same = matches!((&stamps, &kept.stamps), (Ok(now), Some(then)) if now == then);
        if !is_same {
            let (stamps, read) = match stamps {
                Ok(stamps) => (Some(stamps), Self::read(&self.state)),
                Err(error) => (None, Err(error.into())),
            };
            let read = read.and_then(|lists| match lists.tokens.is_empty() && kept.had_tokens {
                true => {
                    let file = self.state.path_of(TOKENS_NAME).display().to_string();
                    Err(TokenError::Gone { file }.into())
                }
                false => Ok(lists),
            });
            // What could not be read may be readable the next time; what could not be understood
            // has to change first.
            let is_unread = read.as_ref().is_err_and(DoorError::is_unread);
            kept.stamps = stamps.filter(|_| !is_unread);
            kept.lists = read.map(Arc::new).map_err(Arc::new);
            kept.had_tokens |= kept.lists.as_ref().is_ok_and(|lists| !lists.tokens.is_empty());
        }
        kept.lists.clone().map_err(Refusal::Closed)
    }

    /// Whether everybody on this machine comes in, because there are no tokens.
    pub fn is_open(&self) -> bool {
        let is_empty = self.lists().is_ok_and(|lists| lists.tokens.is_empty());
        self.when_empty == WhenEmpty::Open && is_empty
    }

    /// Lets somebody in, or not. `bearer` is what stands behind `Bearer` in the request,
    /// `certificate` the certificate that the client has shown during the TLS handshake, which has
    /// to be checked already. If there is a token, it alone decides.
    pub fn admit(
        &self,
        bearer: Option<&str>,
        certificate: Option<&[u8]>,
        peer: SocketAddr,
        now_ns: u64,
    ) -> Result<Identity, Refusal> {
        let lists = self.lists()?;
        let is_local = peer.ip().to_canonical().is_loopback();
        if lists.tokens.is_empty() && self.when_empty == WhenEmpty::Open && is_local {
            let role = Arc::new(Role::built_in(May::Admin));
            return Ok(self.identity(LOCAL, role, None, peer));
        }
        let token = match (bearer, certificate) {
            (Some(text), _) => {
                let presented = Presented::parse(text.trim());
                let presented = presented.ok_or(Refusal::Unknown { claimed: None })?;
                let claimed = Some(presented.id());
                lists.tokens.find(&presented).ok_or(Refusal::Unknown { claimed })?
            }
            (None, Some(certificate)) => {
                let found = lists.tokens.find_certificate(Fingerprint::of(certificate));
                found.ok_or(Refusal::Unknown { claimed: None })?
            }
            (None, None) => return Err(Refusal::Missing),
        };
        self.of_token(&lists, token, peer, now_ns)
    }

    /// Somebody who was let in before and has left something to be done, by the id of the token; by
    /// name at an open door. They are let in as [`admit`](Self::admit) would.
    pub fn known(&self, owner: &str, now_ns: u64) -> Result<Identity, Refusal> {
        let lists = self.lists()?;
        let nowhere = SocketAddr::from(([127, 0, 0, 1], 0));
        if owner == LOCAL && lists.tokens.is_empty() && self.when_empty == WhenEmpty::Open {
            let role = Arc::new(Role::built_in(May::Admin));
            return Ok(self.identity(LOCAL, role, None, nowhere));
        }
        let token = lists.tokens.iter().find(|token| token.id.to_string() == owner);
        let token = token.ok_or(Refusal::Unknown { claimed: None })?;
        self.of_token(&lists, token, nowhere, now_ns)
    }

    /// Lets a program on this machine in that has no way to show a token, in the role `extract`,
    /// whether there are tokens or not. Only for ways in that whoever started the server has opened
    /// by a word of its own.
    pub fn admit_vouched(&self, name: &str, peer: SocketAddr) -> Result<Identity, Refusal> {
        if !peer.ip().to_canonical().is_loopback() {
            return Err(Refusal::Missing);
        }
        // A door that cannot be read is closed for these, too.
        self.lists()?;
        let role = Arc::new(Role::built_in(May::Extract));
        Ok(Identity { is_vouched: true, ..self.identity(name, role, None, peer) })
    }

    /// Whose token it is, if it holds and its role is known.
    fn of_token(
        &self,
        lists: &Lists,
        token: &Token,
        peer: SocketAddr,
        now_ns: u64,
    ) -> Result<Identity, Refusal> {
        let id = token.id;
        match token.standing(now_ns) {
            Standing::Revoked => return Err(Refusal::Revoked { id }),
            Standing::Expired => return Err(Refusal::Expired { id }),
            Standing::Valid => {}
        }
        let role = lists.roles.get(&token.role);
        let role = role.ok_or_else(|| Refusal::RoleUnknown { id, role: token.role.clone() })?;
        Ok(self.identity(&token.name, Arc::clone(role), Some(id), peer))
    }

    fn identity(
        &self,
        name: &str,
        role: Arc<Role>,
        token: Option<TokenId>,
        peer: SocketAddr,
    ) -> Identity {
        let usage = Arc::clone(lock(&self.usage).entry(token).or_default());
        Identity { name: name.to_owned(), role, token, peer, usage, is_vouched: false }
    }

    /// Whether somebody who was let in would be let in now. To be asked from time to time while an
    /// answer takes long: a live view must end when its token is revoked.
    pub fn recheck(&self, identity: &Identity, now_ns: u64) -> Result<(), Refusal> {
        let lists = self.lists()?;
        let Some(id) = identity.token else {
            if identity.is_vouched {
                return Ok(());
            }
            let is_open = lists.tokens.is_empty() && self.when_empty == WhenEmpty::Open;
            return if is_open { Ok(()) } else { Err(Refusal::Missing) };
        };
        let token = lists.tokens.get(id).ok_or(Refusal::Unknown { claimed: Some(id) })?;
        match token.standing(now_ns) {
            Standing::Revoked => return Err(Refusal::Revoked { id }),
            Standing::Expired => return Err(Refusal::Expired { id }),
            Standing::Valid => {}
        }
        let is_same = lists.roles.get(&token.role).is_some_and(|role| **role == *identity.role);
        match is_same {
            true => Ok(()),
            false => Err(Refusal::RoleChanged { role: identity.role.name().to_owned() }),
        }
    }
}

/// The roles of a server: those that are built in, and those of its `roles.toml`.
pub fn read_roles(state: &State) -> Result<Roles, DoorError> {
    match state.read(ROLES_NAME, ROLES_LEN_MAX)? {
        None => Ok(Roles::built_in()),
        Some(text) => Roles::parse(&text).map_err(|error| {
            let file = state.path_of(ROLES_NAME).display().to_string();
            DoorError::Roles { file, error }
        }),
    }
}

/// Somebody who was let in.
#[derive(Debug, Clone)]
pub struct Identity {
    name: String,
    role: Arc<Role>,
    token: Option<TokenId>,
    peer: SocketAddr,
    usage: Arc<Mutex<Usage>>,
    /// Whether it needs no token, even if others do.
    is_vouched: bool,
}

impl Identity {
    /// Whose token it is.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What they may ask.
    pub fn role(&self) -> &Arc<Role> {
        &self.role
    }

    /// Which token; `None` at an open door.
    pub fn token(&self) -> Option<TokenId> {
        self.token
    }

    /// From where.
    pub fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// Refuses what the role may not do.
    pub fn check(&self, needed: May) -> Result<(), Refusal> {
        match self.role.may() >= needed {
            true => Ok(()),
            false => Err(Refusal::RoleTooSmall { role: self.role.name().to_owned(), needed }),
        }
    }

    /// Counts a question, unless it is one too many. It is being answered until the turn is
    /// dropped.
    pub fn begin(&self, now_ns: u64) -> Result<Turn, Refusal> {
        lock(&self.usage).begin(self.role.limits(), now_ns)?;
        Ok(Turn(Arc::clone(&self.usage)))
    }
}

/// A question that is being answered.
#[derive(Debug)]
#[must_use = "the question counts as answered when this is dropped"]
pub struct Turn(Arc<Mutex<Usage>>);

impl Drop for Turn {
    fn drop(&mut self) {
        let mut usage = lock(&self.0);
        usage.at_once = usage.at_once.saturating_sub(1);
    }
}

const MINUTE_NS: u64 = 60_000_000_000;

/// What a token asks.
#[derive(Debug, Default)]
struct Usage {
    /// Questions that are being answered.
    at_once: u32,
    /// When the questions of so far would have been asked, had they come at equal distances.
    paid_ns: u64,
}

impl Usage {
    fn begin(&mut self, limits: Limits, now_ns: u64) -> Result<(), Refusal> {
        if let Some(most) = limits.at_once
            && self.at_once >= most
        {
            return Err(Refusal::TooMany { most });
        }
        if let Some(most) = limits.per_minute {
            // A minute may start with all of its questions. None can be paid for further ahead
            // than that, unless the clock was set back.
            let share = MINUTE_NS / u64::from(most.max(1));
            let ahead = self.paid_ns.saturating_sub(now_ns);
            let ahead = if ahead > MINUTE_NS { 0 } else { ahead };
            if ahead + share > MINUTE_NS {
                let wait = Duration::from_nanos(ahead + share - MINUTE_NS);
                return Err(Refusal::TooOften { most, wait });
            }
            self.paid_ns = now_ns.saturating_add(ahead + share);
        }
        self.at_once = self.at_once.saturating_add(1);
        Ok(())
    }
}
