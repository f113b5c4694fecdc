//! Answers that say why there is no answer.

use axum::body::Body;
use axum::http::{HeaderValue, Response, StatusCode, header};
use axum::response::IntoResponse;
use serde::Serialize;
use tapdex_answers::ask::AskError;
use tapdex_answers::question::QuestionError;
use tapdex_client::ClientError;
use tapdex_engine::query::SearchError;

use crate::door::Refusal;
use crate::door::roles::ForceError;

/// Why a request has no answer: a status, and what the client is told.
#[derive(Debug)]
pub(super) struct ApiError {
    status: StatusCode,
    body: ErrorBody,
    retry_after_s: Option<u64>,
}

/// What the client is told.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct ErrorBody {
    error: String,
    /// Where the filter is wrong, in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    offset: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    length: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    hint: Option<String>,
    /// What may have been meant: to be written in the place of what is wrong.
    #[serde(skip_serializing_if = "Option::is_none")]
    fix: Option<&'static str>,
}

impl ApiError {
    pub(super) fn new(status: StatusCode, error: impl Into<String>) -> Self {
        let error = error.into();
        let body = ErrorBody { error, offset: None, length: None, hint: None, fix: None };
        Self { status, body, retry_after_s: None }
    }

    /// The request makes no sense.
    pub(super) fn bad(error: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, error)
    }

    /// There is no such thing.
    pub(super) fn not_found(error: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, error)
    }

    /// The role may not do that.
    pub(super) fn forbidden(error: impl Into<String>) -> Self {
        Self::new(StatusCode::FORBIDDEN, error)
    }

    /// Something of ours failed; what it is stands in the log, not in the answer.
    pub(super) fn failed() -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "the server failed; its log says why")
    }

    pub(super) fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.body.hint = Some(hint.into());
        self
    }

    pub(super) fn with_retry(mut self, seconds: u64) -> Self {
        self.retry_after_s = Some(seconds);
        self
    }

    pub(super) fn text(&self) -> &str {
        &self.body.error
    }

    pub(super) fn status(&self) -> StatusCode {
        self.status
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response<Body> {
        let text = tapdex_answers::json::text(&self.body);
        let mut response = Response::new(Body::from(text + "\n"));
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if let Some(seconds) = self.retry_after_s {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        if self.status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}

impl From<Refusal> for ApiError {
    fn from(refusal: Refusal) -> Self {
        let status = StatusCode::from_u16(refusal.status()).unwrap_or(StatusCode::FORBIDDEN);
        let error = Self::new(status, refusal.told());
        match refusal.retry_after() {
            Some(wait) => error.with_retry(wait.as_secs().max(1)),
            None => error,
        }
    }
}

impl From<QuestionError> for ApiError {
    fn from(error: QuestionError) -> Self {
        let mut made = Self::bad(error.to_string());
        if let QuestionError::Filter { error, text } = &error {
            let span = error.span.clone();
            made.body.offset = Some(span.start);
            made.body.length = Some(span.len());
            made.body.fix = text.get(span).and_then(super::suggest::nearest);
            made.body.hint = made.body.fix.map(|word| format!("did you mean {word}?"));
        }
        made
    }
}

impl From<ForceError> for ApiError {
    fn from(error: ForceError) -> Self {
        Self::bad(error.to_string())
    }
}

impl From<SearchError> for ApiError {
    fn from(error: SearchError) -> Self {
        match error {
            SearchError::Refused(refusal) => Self::bad(refusal.to_string()),
            SearchError::TooManyConversations { .. } | SearchError::Conversations(_) => {
                let hint = "narrow the filter or the times";
                Self::new(StatusCode::PAYLOAD_TOO_LARGE, error.to_string()).with_hint(hint)
            }
            SearchError::Cancelled => {
                let text = "the question took longer than it may";
                let hint = "narrow the filter or the times";
                Self::new(StatusCode::PAYLOAD_TOO_LARGE, text).with_hint(hint)
            }
            // Paths of the server are nobody's business outside.
            _ => Self::failed(),
        }
    }
}

impl From<ClientError> for ApiError {
    fn from(error: ClientError) -> Self {
        match error {
            ClientError::Ask(error) => (*error).into(),
            ClientError::Cancelled => SearchError::Cancelled.into(),
            // Of what is served, nothing has answered; who that is, is known to whoever asks.
            error @ (ClientError::Nobody(_) | ClientError::Server { .. }) => {
                Self::new(StatusCode::BAD_GATEWAY, tapdex_engine::chain(&error))
            }
            _ => Self::failed(),
        }
    }
}

impl From<AskError> for ApiError {
    fn from(error: AskError) -> Self {
        match error {
            AskError::Search(error) => error.into(),
            AskError::TooManySpans { spans } => {
                Self::bad(format!("{spans} spans are too many: take a longer span"))
            }
            _ => Self::failed(),
        }
    }
}
