//! An answer of a server, as far as it was read.

use std::time::Duration;

use reqwest::StatusCode;
use reqwest::header::HeaderMap;

use super::retry_after;
use crate::core::runtime;

/// An answer that was read.
#[derive(Debug)]
pub(in crate::sink) struct Answer {
    pub(in crate::sink) status: StatusCode,
    pub(in crate::sink) headers: HeaderMap,
    pub(in crate::sink) body: Vec<u8>,
    /// Trailers after the body.
    pub(in crate::sink) trailers: HeaderMap,
    pub(in crate::sink) end: End,
}

/// End of the body of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::sink) enum End {
    /// All of it was read.
    Whole,
    /// It is longer than the limit.
    TooLong,
    /// It was cut, or took too long.
    BrokeOff,
}

impl Answer {
    /// An answer of which nothing was read but its status.
    pub(in crate::sink) fn of(status: StatusCode) -> Self {
        Self { status, headers: HeaderMap::new(), body: Vec::new(), trailers: HeaderMap::new(), end: End::BrokeOff }
    }

    /// Reports whether all of its body was read.
    pub(in crate::sink) fn is_whole(&self) -> bool {
        self.end == End::Whole
    }

    /// Returns the wait that the server requests: seconds, or a date.
    pub(in crate::sink) fn wait(&self) -> Option<Duration> {
        retry_after(&self.headers, runtime::now().into())
    }
}
