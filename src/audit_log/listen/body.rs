//! The body of a request, bounded before and after it is decompressed.

use std::io::Read;

use axum::body::Body;
use axum::http::{HeaderMap, header};
use bytes::Bytes;
use flate2::read::MultiGzDecoder;
use http_body_util::{BodyExt, LengthLimitError, Limited};

use crate::core::runtime;

/// Bytes of a body at most, as it comes and as it is read. The API server sends at most 10 MiB of events together where its
/// truncation is on.
pub(super) const MOST_BYTES: usize = 16 << 20;
/// Bytes that are read of a request that is refused, so that its sender comes to read the answer.
const DISCARDED_BYTES: usize = 64 << 20;

/// Reason why a body is not read.
#[derive(Debug, thiserror::Error)]
pub(super) enum Unfit {
    /// It is too large.
    #[error("the body has more than 16 MiB, as it is or uncompressed; send fewer events together")]
    TooLarge,
    /// It has an encoding that decklog does not read.
    #[error("the Content-Encoding {0:?} is not known here; send gzip, or no encoding")]
    Encoding(String),
    /// It ends early, or is not what its encoding says.
    #[error("the body cannot be read: {0}")]
    Broken(String),
}

/// Reads a body, decompressed.
pub(super) async fn read(headers: &HeaderMap, body: Body, most: usize) -> Result<Bytes, Unfit> {
    let encoding =
        headers.get(header::CONTENT_ENCODING).map(|value| value.to_str().unwrap_or("?").trim().to_lowercase());
    let gzip = match encoding.as_deref() {
        None | Some("" | "identity") => false,
        Some("gzip" | "x-gzip") => true,
        Some(other) => {
            let unfit = Unfit::Encoding(other.to_owned());
            discard(body).await;
            return Err(unfit);
        }
    };
    let length = headers.get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
    if length.is_some_and(|length| length > most as u64) {
        if !headers.contains_key(header::EXPECT) {
            discard(body).await;
        }
        return Err(Unfit::TooLarge);
    }
    let bytes = match whole(body, most).await {
        Ok(bytes) => bytes,
        Err((unfit, rest)) => {
            if let Some(rest) = rest {
                discard(rest).await;
            }
            return Err(unfit);
        }
    };
    if gzip { runtime::blocking(move || decompressed(&bytes, most)).await } else { Ok(bytes) }
}

/// Reads a body up to a bound. Where it has more, what is left of it comes with the error.
async fn whole(mut body: Body, most: usize) -> Result<Bytes, (Unfit, Option<Body>)> {
    let mut limited = Limited::new(&mut body, most);
    let mut bytes = Vec::new();
    let failed = loop {
        match limited.frame().await {
            None => return Ok(bytes.into()),
            Some(Ok(frame)) => {
                if let Some(data) = frame.data_ref() {
                    bytes.extend_from_slice(data);
                }
            }
            Some(Err(error)) => break error,
        }
    };
    if failed.is::<LengthLimitError>() {
        return Err((Unfit::TooLarge, Some(body)));
    }
    Err((Unfit::Broken(failed.to_string()), None))
}

fn decompressed(bytes: &[u8], most: usize) -> Result<Bytes, Unfit> {
    let mut plain = Vec::new();
    let read = MultiGzDecoder::new(bytes).take(most as u64 + 1).read_to_end(&mut plain);
    read.map_err(|error| Unfit::Broken(format!("it is no gzip: {error}")))?;
    if plain.len() > most { Err(Unfit::TooLarge) } else { Ok(plain.into()) }
}

/// Reads what a sender still sends, up to a bound, and keeps nothing of it.
pub(super) async fn discard(body: Body) {
    let mut rest = Limited::new(body, DISCARDED_BYTES);
    while let Some(Ok(_)) = rest.frame().await {}
}
