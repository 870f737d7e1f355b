//! Answers that outlast the rights on which they stand, as where a client reads slowly.
//!
//! What is ready waits for its client, and a right may be taken away meanwhile. So the rights of an answer are looked at when a part of
//! it is sent, and not when it is made.

use std::io;

use axum::body::{Body, HttpBody as _};
use axum::http::header;
use axum::response::Response;
use bytes::Bytes;
use futures::{StreamExt as _, stream};

use crate::core::rights::{Refusal, Sight};
use crate::core::runtime;

/// Bytes that are sent without another look: no more than a connection has ready for its client at any time.
const PIECE_BYTES: usize = 16 << 10;

/// Reviews the rights on which an answer stands, where they have run out, before a part of it is sent.
///
/// # Errors
/// Where one of them has been taken away, or the API server does not decide.
pub(super) async fn stands(sight: &Sight) -> Result<(), Refusal> {
    if !sight.has_run_out() {
        return Ok(());
    }
    let sight = sight.clone();
    runtime::blocking(move || sight.renew()).await
}

/// Breaks an answer off where it no longer [`stands`], so that its client does not take it for whole.
pub(super) fn breaking_off(answer: Response, sight: &Sight) -> Response {
    let is_short = answer.body().size_hint().upper().is_some_and(|bytes| bytes <= PIECE_BYTES as u64);
    if is_short || matches!(sight, Sight::All) {
        return answer;
    }
    let (mut head, body) = answer.into_parts();
    // Nobody knows yet how long it will be.
    head.headers.remove(header::CONTENT_LENGTH);
    let begun = (body.into_data_stream(), Bytes::new(), sight.clone());
    let pieces = stream::try_unfold(begun, |(mut body, mut rest, sight)| async move {
        while rest.is_empty() {
            let Some(part) = body.next().await else { return Ok(None) };
            rest = part.map_err(io::Error::other)?;
        }
        stands(&sight).await.map_err(io::Error::other)?;
        let piece = rest.split_to(rest.len().min(PIECE_BYTES));
        Ok::<_, io::Error>(Some((piece, (body, rest, sight))))
    });
    Response::from_parts(head, Body::from_stream(pieces))
}
