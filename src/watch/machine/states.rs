//! Phases of a source, and its knowledge of its position. Each phase names the next one.

use std::time::Duration;

use crate::core::model::{ResourceVersion, Why};

/// Phase of a source. A failure in any phase leads to `Waiting`, unless its description says otherwise; after the wait
/// [`Machine::proceed`](super::Machine::proceed) decides again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Not begun. Goes on as after a wait.
    New,
    /// Asking whether the API server has our position. Goes on to `Opening`, or to `Asking` where it does not have it.
    Probing,
    /// Asking which version the API server has. Goes on to whatever is next, or loses the position and waits.
    Asking,
    /// A list is in progress; the version is known after its first page. Goes on to the next page, to `Committing` after
    /// the last one, or to `Asking` where it is older than the journal for the second time.
    Listing { version: Option<ResourceVersion>, paged: bool },
    /// The complete list is being written. Goes on to `Opening`, or to `Recovering` after the list of an older version.
    Committing(ResourceVersion),
    /// Requests the changes since the position was lost. Goes on to `Opening`, or to `Listing` if they cannot be had.
    Recovering,
    /// A watch was asked for. Goes on to `Watching`.
    Opening,
    /// A watch is open since then; whether it has brought anything new. Its end leads to `Probing` or to `Waiting`; where
    /// the position is lost with it, to `Recovering` or `Listing`.
    Watching { since: Duration, progress: bool },
    /// Waiting before the next try.
    Waiting,
    /// Asking discovery. Goes on to `Gone` or to `Waiting`.
    Confirming,
    /// The resource is gone: nothing follows.
    Gone,
}

/// Position of a source in the API server's changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Position {
    /// The journal has everything up to `resume`, from where a watch goes on.
    Held { resume: ResourceVersion, check: Check },
    /// A list or a recovery is needed.
    Lost(Loss),
}

impl Position {
    /// Position right behind a consistent answer, which the API server therefore has.
    pub(super) const fn at(version: ResourceVersion) -> Self {
        Self::Held { resume: version, check: Check::Nothing }
    }
}

/// Check of the API server before a watch from the present position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Check {
    /// It has shown that it has our position.
    Nothing,
    /// The server has to have our position. Goes on to `Nothing`, or to `Latest` if it does not.
    Position,
    /// The consistent version of the server, which decides between slow and restored: it seems not to have our position. It is
    /// requested at once and until it is answered, because a restored server soon has as high a version again.
    Latest,
}

/// A lost position, until a list or a recovery makes up for it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Loss {
    /// The gap that the next list declares.
    pub(super) why: Option<Why>,
    pub(super) remedy: Remedy,
    /// A list was older than the journal; a second one decides.
    pub(super) older_list: bool,
    /// A list lacked most of what is known; the next one is believed whatever it lacks.
    pub(super) confirmed: bool,
    /// Lists whose pages expired or were of two versions, in a row.
    pub(super) broken_lists: u32,
}

/// Way to make up for a lost position.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum Remedy {
    /// By a list, which declares the gap.
    #[default]
    List,
    /// Changes since the position was lost may be recovered, without a gap. Goes on to `ListAt` if the beginning of them is
    /// gone, and to `List` if they cannot be had.
    Recover,
    /// Changes older than this version are gone, so a list of it declares that gap. Goes on to `Recover`, for the rest.
    ListAt(ResourceVersion),
}

/// The newest list.
#[derive(Clone, Copy, Debug)]
pub(super) struct Listed {
    /// Time at which it was written.
    pub(super) at: Duration,
    /// True if nothing newer has come since.
    pub(super) is_newest: bool,
}
