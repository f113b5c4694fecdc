//! What several tests share.

#![allow(dead_code, unreachable_pub, reason = "a module of tests, each of which needs some of it")]

use std::net::SocketAddr;
use std::path::PathBuf;

use tapdex_server::door::tokens::{NewToken, TokenId, Tokens};
use tapdex_server::door::{Door, Refusal, WhenEmpty};
use tapdex_server::state::State;
use tempfile::TempDir;

pub const SECOND: u64 = 1_000_000_000;
pub const MINUTE: u64 = 60 * SECOND;
pub const NOW: u64 = 1_800_000_000 * SECOND;

/// A state folder in a folder of its own.
pub struct Place {
    pub folder: TempDir,
    pub state: State,
}

impl Place {
    pub fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let state = State::create(&folder.path().join("state")).unwrap();
        Self { folder, state }
    }

    /// A file of the state folder.
    pub fn path(&self, name: &str) -> PathBuf {
        self.state.path_of(name)
    }

    /// Writes a file as somebody with an editor does.
    pub fn write(&self, name: &str, text: impl AsRef<[u8]>) {
        self.state.write(name, text.as_ref()).unwrap();
    }

    /// The door, which lets nobody in without a token.
    pub fn door(&self) -> Door {
        Door::open(&self.state, WhenEmpty::Locked).unwrap()
    }

    /// Adds a token that does not expire.
    pub fn add(&self, name: &str, role: &str) -> (TokenId, String) {
        self.add_until(name, role, None)
    }

    pub fn add_until(&self, name: &str, role: &str, expires_ns: Option<u64>) -> (TokenId, String) {
        let new = NewToken { name, role, certificate: None, expires_ns };
        let (id, token) = Tokens::add(&self.state, &new, NOW).unwrap();
        (id, token.unwrap().text())
    }
}

/// An address on another machine.
pub fn far() -> SocketAddr {
    "10.0.0.9:5000".parse().unwrap()
}

/// An address on this one.
pub fn near() -> SocketAddr {
    "127.0.0.1:5000".parse().unwrap()
}

/// The refusal of a request from another machine.
#[track_caller]
pub fn refused(door: &Door, bearer: Option<&str>, now: u64) -> Refusal {
    door.admit(bearer, None, far(), now).unwrap_err()
}

/// The token with another last digit.
pub fn forged(token: &str) -> String {
    let (rest, last) = token.split_at(token.len() - 1);
    format!("{rest}{}", if last == "0" { "1" } else { "0" })
}
