//! Cosignatures for the logs of other decklogs (c2sp.org/tlog-witness): the signature on a checkpoint is all that lets its sender in.

use std::sync::Arc;

use axum::Router;
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, Path, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::post;

use super::members::Clusters;
use crate::evidence::witness::{REQUEST_LEN_MAX, Refusal, SIZE, Witness};

/// Routes of the witness.
pub(super) fn routes(witness: Arc<Witness>) -> Router {
    let add = |State(witness): State<Arc<Witness>>, body: Bytes| answer(witness, body);
    let add = post(add).layer(DefaultBodyLimit::max(REQUEST_LEN_MAX)).with_state(witness);
    Router::new().route("/witness/add-checkpoint", add)
}

/// Routes of the witnesses of a process with several clusters.
pub(super) fn routes_of_several(clusters: Clusters) -> Router {
    let add = post(add_to_one).layer(DefaultBodyLimit::max(REQUEST_LEN_MAX)).with_state(clusters);
    Router::new().route("/witness/{cluster}/add-checkpoint", add)
}

async fn add_to_one(State(clusters): State<Clusters>, Path(cluster): Path<String>, body: Bytes) -> Response {
    let members = clusters.named(Some(&cluster)).unwrap_or_default();
    let witness = members
        .into_iter()
        .find_map(|(_, member)| member.endpoints.borrow().as_ref().and_then(|endpoints| endpoints.witness.clone()));
    match witness {
        Some(witness) => answer(witness, body).await,
        None => (StatusCode::NOT_FOUND, format!("there is no witness for {cluster:?} here\n")).into_response(),
    }
}

async fn answer(witness: Arc<Witness>, body: Bytes) -> Response {
    const TEXT: &str = "text/plain; charset=utf-8";
    match witness.add_checkpoint(body).await {
        Ok(signatures) => ([(header::CONTENT_TYPE, TEXT)], signatures).into_response(),
        Err(refusal) => {
            let status = StatusCode::from_u16(refusal.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
            let kind = if matches!(refusal, Refusal::Conflict(_)) { SIZE } else { TEXT };
            (status, [(header::CONTENT_TYPE, kind)], format!("{refusal}\n")).into_response()
        }
    }
}
