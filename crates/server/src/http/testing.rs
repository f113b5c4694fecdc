//! The body of the fuzz target, which a test without a fuzzer uses, too.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::LazyLock;

use tapdex_engine::query::Query;

use super::error::ApiError;
use super::identity::forced;
use super::params::Params;
use super::questions::Kind;
use super::{Endpoint, ROUTES, streams};
use crate::door::roles::Roles;

const NOW_NS: u64 = 1_800_000_000_000_000_000;
/// What the role may see at most.
const FILTER: &str = "udp port 53";

static ROLES: LazyLock<Roles> = LazyLock::new(|| {
    let text = format!("[role.dns]\nmay = \"search\"\nfilter = \"{FILTER}\"\nfrom = \"-30d\"\n");
    Roles::parse(&text).unwrap()
});

/// The query that is asked for a request: its address behind `?`, and its body.
fn read(endpoint: Endpoint, query: &str, body: &[u8]) -> Result<Query, ApiError> {
    let question = if endpoint == Endpoint::Stenographer {
        streams::stenographer_question(body)?
    } else {
        let mut params = Params::of_query(query)?;
        if !body.is_empty() {
            params.add_json(body)?;
        }
        let question = params.question()?;
        drop(Kind::read(endpoint, &mut params)?);
        drop(params.text("reason"));
        params.finish()?;
        question
    };
    forced(ROLES.get("dns").unwrap(), &question, NOW_NS)
}

/// Reads a request to one of the addresses. It is understood or refused, and whatever it says,
/// what is asked has the filter and the times of the role.
pub(crate) fn try_request(number: usize, query: &str, body: &[u8]) -> bool {
    let endpoint = ROUTES[number % ROUTES.len()].1;
    match read(endpoint, query, body) {
        Ok(asked) => {
            let earliest = ROLES.get("dns").unwrap().times(NOW_NS).from_ns;
            assert!(asked.text().starts_with(FILTER), "{query} {body:?}: {}", asked.text());
            assert!(asked.times().from_ns >= earliest, "{query} {body:?}");
            true
        }
        Err(error) => {
            assert!(error.status().is_client_error(), "{query} {body:?}");
            false
        }
    }
}

/// The body of the fuzz target: a byte that chooses the address, what is behind `?`, a line end,
/// and the body.
pub fn fuzz_request(bytes: &[u8]) {
    let Some((&number, rest)) = bytes.split_first() else { return };
    let (query, body) = match rest.iter().position(|&byte| byte == b'\n') {
        Some(at) => (&rest[..at], &rest[at + 1..]),
        None => (rest, &rest[..0]),
    };
    let Ok(query) = std::str::from_utf8(query) else { return };
    try_request(number.into(), query, body);
}
