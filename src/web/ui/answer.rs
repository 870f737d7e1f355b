//! Answers: JSON, or a sentence that says what to do.

use axum::body::Body;
use axum::http::{HeaderName, HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;

use crate::core::rights::{Refusal, Refused};
use crate::journal::JournalError;
use crate::query::render::{Exit, Failure};

/// Content security policy: no resources, scripts or requests of other origins, and no framing.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; frame-ancestors 'none'; base-uri 'none'; form-action 'none'";

/// Error answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Problem {
    status: StatusCode,
    /// A sentence that says what to do.
    pub(crate) text: String,
    pub(super) key: Option<&'static str>,
}

#[derive(Serialize)]
struct ErrorBody<'a> {
    error: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<&'static str>,
}

impl Problem {
    fn new(status: StatusCode, text: impl Into<String>) -> Self {
        Self { status, text: text.into(), key: None }
    }

    /// Error for the value of this key.
    pub(super) fn wrong(key: &'static str, text: impl Into<String>) -> Self {
        Self { key: Some(key), ..Self::new(StatusCode::BAD_REQUEST, text) }
    }

    /// It is about this key of the query.
    pub(super) fn of(self, key: &'static str) -> Self {
        Self { key: Some(key), ..self }
    }

    pub(super) fn missing(text: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, text)
    }

    pub(super) fn forbidden(text: &str) -> Self {
        Self::new(StatusCode::FORBIDDEN, text)
    }

    pub(super) fn unknown(text: &str) -> Self {
        Self::new(StatusCode::UNAUTHORIZED, text)
    }

    pub(super) fn busy(text: impl Into<String>) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, text)
    }

    pub(super) fn method() -> Self {
        Self::new(StatusCode::METHOD_NOT_ALLOWED, "this page only reads: GET and HEAD are all that it takes")
    }

    pub(super) fn bug(text: impl Into<String>) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, text)
    }
}

impl From<Refusal> for Problem {
    fn from(refusal: Refusal) -> Self {
        Self::new(status_of(refusal.is), refusal.text)
    }
}

/// The code of a refusal.
const fn status_of(is: Refused) -> StatusCode {
    match is {
        Refused::Unknown => StatusCode::UNAUTHORIZED,
        Refused::Forbidden => StatusCode::FORBIDDEN,
        Refused::Away => StatusCode::SERVICE_UNAVAILABLE,
    }
}

impl From<JournalError> for Problem {
    fn from(error: JournalError) -> Self {
        if let JournalError::Refused(refusal) = error {
            return refusal.into();
        }
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string())
    }
}

impl From<Failure> for Problem {
    fn from(failure: Failure) -> Self {
        let of_exit = match failure.exit() {
            Exit::Usage => StatusCode::BAD_REQUEST,
            Exit::No => StatusCode::NOT_FOUND,
            Exit::Done | Exit::Unknown | Exit::Internal | Exit::Io | Exit::Held | Exit::Config => {
                StatusCode::INTERNAL_SERVER_ERROR
            }
        };
        let status = failure.refused().map_or(of_exit, status_of);
        Self { key: failure.key(), ..Self::new(status, failure.text()) }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let told = ErrorBody { error: &self.text, key: self.key };
        let mut response = json(self.status, &told);
        if self.status == StatusCode::UNAUTHORIZED {
            response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        if self.status == StatusCode::METHOD_NOT_ALLOWED {
            response.headers_mut().insert(header::ALLOW, HeaderValue::from_static("GET, HEAD"));
        }
        response
    }
}

fn json(status: StatusCode, value: &impl Serialize) -> Response {
    match serde_json::to_vec(value) {
        Ok(bytes) => (status, [(header::CONTENT_TYPE, "application/json")], bytes).into_response(),
        Err(error) => {
            let text = format!("{{\"error\":\"the answer cannot be written ({error}); this is a bug\"}}");
            (StatusCode::INTERNAL_SERVER_ERROR, [(header::CONTENT_TYPE, "application/json")], text).into_response()
        }
    }
}

/// JSON.
pub(super) fn good(value: &impl Serialize) -> Response {
    json(StatusCode::OK, value)
}

/// Adds the headers that every answer has.
pub(super) fn sealed(mut response: Response, method: &Method) -> Response {
    for (name, value) in [
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::X_FRAME_OPTIONS, "DENY"),
        (header::CACHE_CONTROL, "no-store"),
        (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
        (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    ] {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    if *method == Method::HEAD {
        *response.body_mut() = Body::empty();
    }
    response
}
