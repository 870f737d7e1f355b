//! Bounds of the join.

/// Bounds of a [`Joiner`](super::Joiner). Times are in microseconds.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Most bytes of requests and versions. Beyond, those that would be settled first are forgotten.
    pub bytes: usize,
    /// Longest wait for the side that is behind, after which a version has no actor.
    pub age: i64,
    /// Longest time from a write to the answer of its request.
    pub answer: i64,
    /// Longest time that a request takes, as the API server bounds it (`--request-timeout`).
    pub request: i64,
    /// Most that the clock of an API server differs from the middle of all.
    pub skew: i64,
}

/// Longest time that a request takes, in microseconds: the default of `--request-timeout`.
pub(in crate::audit_log) const REQUEST_MAX: i64 = 60_000_000;

impl Default for Limits {
    /// 64 MiB, an hour, 10 s, 60 s, half a second.
    fn default() -> Self {
        const SECOND: i64 = 1_000_000;
        Self { bytes: 64 << 20, age: 3600 * SECOND, answer: 10 * SECOND, request: REQUEST_MAX, skew: SECOND / 2 }
    }
}
