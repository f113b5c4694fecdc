//! The page for people: files that were put into the server when it was built.
//!
//! A page is nobody's secret, so it needs no token; what it shows, it asks for. It asks nobody but
//! its own server, runs no script and takes no style but its own, and may not be put into another
//! page: its policy says so, whatever hostile text is in packets.

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::{Path, Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Response, header};
use axum::response::IntoResponse;
use axum::routing::get;

use super::App;
use super::error::ApiError;
use super::identity::check_host;

/// A file of the page.
struct File {
    /// Those of scripts and styles have a hash of what is in them.
    name: &'static str,
    kind: &'static str,
    plain: &'static [u8],
    /// The same, packed by gzip.
    packed: &'static [u8],
}

/// All of them; none, if the server was built without node.
static FILES: &[File] = include!(concat!(env!("OUT_DIR"), "/page.rs"));

/// What is shown if there are none.
const NONE: &str = include_str!("page/none.html");

/// The views of the page. All are one file, which looks at the address.
const VIEWS: [&str; 7] = ["/", "/explore", "/recorder", "/explain", "/jobs", "/audit", "/nodes"];

const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; \
                      connect-src 'self'; base-uri 'none'; form-action 'none'; \
                      frame-ancestors 'none'; require-trusted-types-for 'script'";

/// Headers of everything that belongs to the page.
const HEADERS: [(HeaderName, &str); 6] = [
    (header::CONTENT_SECURITY_POLICY, POLICY),
    // The filter is in the address.
    (header::REFERRER_POLICY, "no-referrer"),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::VARY, "accept-encoding"),
    (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
];

/// A year: a file with a hash in its name never changes.
const FOR_EVER: &str = "public, max-age=31536000, immutable";

/// Adds the addresses of the page.
pub(super) fn add(mut router: Router<Arc<App>>) -> Router<Arc<App>> {
    for path in VIEWS {
        router = router.route(path, get(view));
    }
    router.route("/page/{name}", get(file))
}

async fn view(State(app): State<Arc<App>>, request: Request) -> Response<Body> {
    if let Err(error) = check_host(&app, &request) {
        return error.into_response();
    }
    match FILES.iter().find(|file| file.name == "index.html") {
        Some(file) => answer(file, request.headers()),
        None => with_headers(NONE.into_response(), "text/html; charset=utf-8", "no-cache"),
    }
}

async fn file(
    State(app): State<Arc<App>>,
    Path(name): Path<String>,
    request: Request,
) -> Response<Body> {
    if let Err(error) = check_host(&app, &request) {
        return error.into_response();
    }
    match FILES.iter().find(|file| file.name == name) {
        Some(file) => answer(file, request.headers()),
        None => ApiError::not_found("there is no such file").into_response(),
    }
}

fn answer(file: &'static File, asked: &HeaderMap) -> Response<Body> {
    let encodings = asked.get(header::ACCEPT_ENCODING).and_then(|value| value.to_str().ok());
    let is_packed = encodings.is_some_and(|text| {
        text.split(',').any(|one| one.trim().split(';').next() == Some("gzip"))
    });
    let mut response = if is_packed { file.packed } else { file.plain }.into_response();
    if is_packed {
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    }
    with_headers(response, file.kind, if file.name.contains('-') { FOR_EVER } else { "no-cache" })
}

fn with_headers(
    mut response: Response<Body>,
    kind: &'static str,
    kept: &'static str,
) -> Response<Body> {
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static(kept));
    for (name, value) in HEADERS {
        headers.insert(name, HeaderValue::from_static(value));
    }
    response
}
