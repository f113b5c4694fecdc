//! Who sends a request, and whether they may.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::extract::Request;
use axum::http::{HeaderMap, StatusCode, header};
use tapdex_answers::deliver::now_ns;
use tapdex_answers::question::{Question, check_times};
use tapdex_engine::query::Query;
use tapdex_engine::time::TimeRange;

use super::error::ApiError;
use super::{App, Endpoint, peer_of};
use crate::audit::Entry;
use crate::door::roles::{May, Role};
use crate::door::{Identity, Refusal};

/// The other end of a connection.
#[derive(Debug, Clone)]
pub struct Peer {
    /// Its address.
    pub address: SocketAddr,
    /// The certificate that it has shown, checked already.
    pub certificate: Option<Arc<[u8]>>,
}

/// Lets somebody in, or not.
pub(super) fn admit(app: &Arc<App>, request: &Request) -> Result<Identity, ApiError> {
    check_host(app, request)?;
    let peer = peer_of(request);
    let bearer = bearer(request.headers());
    let identity = app.door.admit(bearer, peer.certificate.as_deref(), peer.address, now_ns());
    identity.map_err(|refusal| {
        // Whoever has no token at all has not tried to get in.
        if !matches!(refusal, Refusal::Missing) {
            let mut entry = Entry::stranger(peer.address, "door", "refused");
            entry.reason = Some(refusal.to_string());
            write(app, &entry);
        }
        refusal.into()
    })
}

/// Writes a line of the audit log that no answer depends on.
fn write(app: &Arc<App>, entry: &Entry) {
    // A log that cannot be written stops answers that deliver packets; this is none. The thread of
    // connections does not wait for the disk.
    let (app, entry) = (Arc::clone(app), entry.clone());
    drop(tokio::task::spawn_blocking(move || app.audit.append_refusal(&entry, now_ns())));
}

/// The token of a request.
fn bearer(headers: &HeaderMap) -> Option<&str> {
    let text = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, token) = text.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

/// A server without tokens trusts all programs on this machine, and a browser is one: a page from
/// elsewhere must not ask through it. Its requests name another host, or another origin.
pub(super) fn check_host(app: &App, request: &Request) -> Result<(), ApiError> {
    let headers = request.headers();
    let text =
        |name| headers.get(name).and_then(|value: &axum::http::HeaderValue| value.to_str().ok());
    let authority = request.uri().authority().map(|authority| authority.as_str());
    let host = authority.or_else(|| text(header::HOST));
    let is_ours = |host: &str| {
        let name = host_name(host);
        name.eq_ignore_ascii_case("localhost")
            || name.parse().is_ok_and(|ip: std::net::IpAddr| ip.to_canonical().is_loopback())
            || app.settings.hosts.iter().any(|own| own.eq_ignore_ascii_case(name))
    };
    if app.settings.is_open && !host.is_some_and(is_ours) {
        let text = "this server answers requests for localhost only";
        return Err(ApiError::new(StatusCode::MISDIRECTED_REQUEST, text));
    }
    if let Some(origin) = text(header::ORIGIN) {
        let site = origin.split_once("://").map(|(_, host)| host);
        if site.is_none() || site != host {
            return Err(ApiError::forbidden("requests of other sites are not answered"));
        }
    }
    Ok(())
}

/// A host without its port.
fn host_name(host: &str) -> &str {
    match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or(rest),
        None => host.rsplit_once(':').map_or(host, |(name, _)| name),
    }
}

/// Whether somebody may ask for something.
pub(super) fn check(
    app: &Arc<App>,
    identity: &Identity,
    endpoint: Endpoint,
) -> Result<(), ApiError> {
    let needed = match endpoint {
        Endpoint::Packets
        | Endpoint::Live
        | Endpoint::Stenographer
        | Endpoint::Jobs
        | Endpoint::Job
        | Endpoint::JobResult
        | Endpoint::PcapOverIp => May::Extract,
        Endpoint::Audit => May::Admin,
        _ => May::Search,
    };
    identity.check(needed).map_err(|refusal| {
        let mut entry = Entry::new(identity, name(endpoint), "refused");
        entry.reason = Some(refusal.to_string());
        write(app, &entry);
        ApiError::from(refusal)
    })?;
    // These are about the whole archive.
    let is_whole = matches!(
        endpoint,
        Endpoint::Explain | Endpoint::Segments | Endpoint::Interfaces | Endpoint::Audit
    );
    match is_whole && is_limited(identity.role(), now_ns()) {
        true => Err(ApiError::forbidden("your role sees a part of the archive only")),
        false => Ok(()),
    }
}

/// What is asked for, in the audit log.
pub(super) fn name(endpoint: Endpoint) -> &'static str {
    match endpoint {
        Endpoint::Search => "search",
        Endpoint::Packets => "extract",
        Endpoint::Live => "live",
        Endpoint::Stenographer => "query",
        Endpoint::Packet => "packet",
        Endpoint::Jobs | Endpoint::Job | Endpoint::JobResult => "job",
        Endpoint::PcapOverIp => "pcap-over-ip",
        Endpoint::Audit => "audit",
        _ => "question",
    }
}

/// Whether a role sees a part of the archive only.
pub(super) fn is_limited(role: &Role, now_ns: u64) -> bool {
    !role.forced_filters().is_empty() || role.times(now_ns) != TimeRange::ALL
}

/// The query that is asked in place of a question: no packet matches it that the role must not see.
pub(super) fn forced(role: &Role, question: &Question, now_ns: u64) -> Result<Query, ApiError> {
    let (filter, times) = (question.filter(now_ns)?, question.times(now_ns)?);
    // That the role's times leave nothing of it is no mistake of a question.
    check_times(&Query::new(filter.clone(), times))?;
    Ok(role.force(&filter, times, now_ns)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_lose_their_ports() {
        for (host, name) in [
            ("localhost:8080", "localhost"),
            ("127.0.0.1", "127.0.0.1"),
            ("[::1]:80", "::1"),
            ("[::1]", "::1"),
            ("sensor.example:443", "sensor.example"),
            ("", ""),
        ] {
            assert_eq!(host_name(host), name);
        }
    }
}
