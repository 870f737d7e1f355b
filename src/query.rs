//! Questions about the log, and their answers as types.
//!
//! A question is asked of a [`Reader`](crate::journal::Reader), and knows no terminal, no HTTP and no configuration. The
//! commands render its answer, and the API of the timeline page gives it as JSON, so both say the same.
//!
//! Begin with [`difference::between`].

pub(crate) mod coverage;
pub(crate) mod difference;
pub(crate) mod ownership;

use jiff::Timestamp;
use serde::Serializer;

/// Returns a time, given in microseconds since 1970, in RFC 3339 and UTC, with microseconds.
pub(crate) fn stamp(micros: i64) -> String {
    Timestamp::from_microsecond(micros).map_or_else(|_| String::new(), |time| format!("{time:.6}"))
}

/// Serializes a time as [`stamp`] writes it.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde gives a reference")]
fn as_stamp<S: Serializer>(micros: &i64, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&stamp(*micros))
}

/// Serializes a time, or null, as [`stamp`] writes it.
#[expect(clippy::ref_option, reason = "serde gives a reference")]
fn as_stamps<S: Serializer>(micros: &Option<i64>, serializer: S) -> Result<S::Ok, S::Error> {
    match micros {
        Some(micros) => serializer.serialize_some(&stamp(*micros)),
        None => serializer.serialize_none(),
    }
}
