//! Requests: what each asks for, and which faults it can meet.

use super::super::faults::Fault;
use super::exact;

/// What decklog asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ask {
    Watch,
    /// The first page of a list.
    List,
    /// A further page.
    Continue,
    /// Whether a version is there.
    Probe,
    /// Which version is there.
    Latest,
    /// What there was at a version: everything, one object, or how many.
    Exact,
    /// Who the cluster is, what it serves.
    Other,
}

/// What a request asks for, and the source that asks it, as status calls it.
pub(super) fn meaning(uri: &http::Uri) -> (Ask, String) {
    let parts: Vec<&str> = uri.path().split('/').filter(|part| !part.is_empty()).collect();
    let (group, rest) = match parts.as_slice() {
        ["api", _, rest @ ..] => ("", rest),
        ["apis", group, _, rest @ ..] => (*group, rest),
        _ => return (Ask::Other, String::new()),
    };
    let (namespace, plural) = match rest {
        ["namespaces", namespace, plural] => (*namespace, *plural),
        [plural] => ("", *plural),
        _ => return (Ask::Other, String::new()),
    };
    let mut source = plural.to_owned();
    if !group.is_empty() {
        source = format!("{source}.{group}");
    }
    if !namespace.is_empty() {
        source = format!("{source}/{namespace}");
    }
    let query = uri.query().unwrap_or_default();
    let ask = if query.contains("watch=true") {
        Ask::Watch
    } else if query.contains("resourceVersionMatch=NotOlderThan") {
        Ask::Probe
    } else if query.contains("resourceVersionMatch=Exact") {
        Ask::Exact
    } else if query.contains("continue=") {
        Ask::Continue
    } else if query.split('&').any(|part| part == "limit=1") {
        Ask::Latest
    } else {
        Ask::List
    };
    (ask, source)
}

/// The faults that a request can meet.
pub(super) fn possible(ask: Ask) -> &'static [Fault] {
    use Fault as F;
    match ask {
        Ask::Other => &[F::Refused, F::Reset, F::Hang, F::SlowHead, F::TooMany, F::Unavailable, F::Unauthorized],
        Ask::Probe => &[
            F::Refused,
            F::Reset,
            F::Hang,
            F::SlowHead,
            F::TooMany,
            F::Unavailable,
            F::Unauthorized,
            F::Forbidden,
            F::NotFound,
            F::StaleProbe,
        ],
        Ask::Latest => &[F::Refused, F::Reset, F::Hang, F::SlowHead, F::TooMany, F::Unavailable, F::Unauthorized],
        Ask::Exact => exact::FAULTS,
        Ask::List | Ask::Continue => &[
            F::Refused,
            F::Reset,
            F::Hang,
            F::SlowHead,
            F::TooMany,
            F::Unavailable,
            F::Internal,
            F::Unauthorized,
            F::Forbidden,
            F::NotFound,
            F::Empty,
            F::ExpiredContinue,
            F::StaleList,
            F::CutList,
            F::HalfOpen,
            F::SlowBody,
            F::Garbage,
        ],
        Ask::Watch => &[
            F::Refused,
            F::Reset,
            F::Hang,
            F::SlowHead,
            F::TooMany,
            F::Unavailable,
            F::Internal,
            F::Unauthorized,
            F::Forbidden,
            F::NotFound,
            F::Empty,
            F::GoneAtStart,
            F::GoneInStream,
            F::CutInLine,
            F::CutAfterLine,
            F::HalfOpen,
            F::SlowBody,
            F::Garbage,
            F::Undecodable,
            F::Oversize,
            F::Repeated,
            F::TimeOut,
            F::NoBookmarks,
        ],
    }
}

/// A query as the server understands it that gave out versions without an order.
pub(super) fn ordered(uri: &http::Uri) -> String {
    uri.to_string().replace("resourceVersion=%7E", "resourceVersion=").replace("resourceVersion=~", "resourceVersion=")
}
