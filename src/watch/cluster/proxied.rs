//! Requests to a server inside the cluster, through the API server's proxy.
//!
//! # Decision: the token of the kubeconfig is shown twice
//!
//! Context: The API server takes `Authorization` away from what its proxy sends on, so that decklog would not know who asks. Tokens come
//! from files, plugins and OIDC, and only kube's layer has them.
//! Decision: Below that layer the header is copied into decklog's own, for requests that are marked as decklog's.
//! Cost: decklog sees a token that the API server accepts. Nothing else inside the cluster may be asked this way.

use http::request::Builder;
use http::{HeaderMap, Request, StatusCode, header};
use kube::client::Body;
use serde_json::Value;

use super::{Failure, failure};
use crate::core::net::TOKEN_HEADER;

/// Mark of a request that decklog answers inside the cluster.
#[derive(Clone, Copy)]
struct ToDecklog;

/// Copies the token of a request that is marked, where the request brings no other for decklog.
pub(super) fn shown_again(mut request: Request<Body>) -> Request<Body> {
    let is_marked = request.extensions().get::<ToDecklog>().is_some();
    if is_marked
        && !request.headers().contains_key(TOKEN_HEADER)
        && let Some(token) = request.headers().get(header::AUTHORIZATION).cloned()
    {
        request.headers_mut().insert(TOKEN_HEADER, token);
    }
    request
}

/// Marks a request as one of decklog's.
pub(super) fn marked(request: Builder) -> Builder {
    request.extension(ToDecklog)
}

/// An answer of the API server in the place of the one that decklog would have given.
#[derive(Debug)]
pub struct Instead {
    /// Its meaning.
    pub failure: Failure,
    /// Its own sentence, bounded.
    pub message: String,
}

/// Returns the refusal of the API server; nothing where decklog itself has answered.
#[must_use]
pub fn refusal(code: StatusCode, headers: &HeaderMap, body: &[u8]) -> Option<Instead> {
    let status = serde_json::from_slice::<Value>(body).ok().filter(|status| status["kind"] == "Status")?;
    let message = failure::bounded(status["message"].as_str().unwrap_or_default());
    Some(Instead { failure: failure::answer(code, headers, body), message })
}
