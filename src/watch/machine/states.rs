//! What a source is doing, and what it knows of its position. Each state says where it goes next.

use std::time::Duration;

use crate::model::{ResourceVersion, Why};

/// What the source is doing. A failure in any phase leads to `Waiting`, unless something else is said of it; and after the
/// wait [`Machine::proceed`](super::Machine::proceed) decides anew.
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
    /// What happened since the position was lost is asked for. Goes on to `Opening`, or to `Listing` where it cannot be had.
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

/// What the API server has to show before it is watched from the position that we have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Check {
    /// It has shown that it has our position.
    Nothing,
    /// That it has our position. Goes on to `Nothing`, or to `Latest` where it does not have it.
    Position,
    /// Which version it consistently has, which decides between slow and restored: it seems not to have our position. It is
    /// asked at once and until it has answered, because a restored server soon has as high a version again.
    Latest,
}

/// What is known of a position that is lost, until a list or what is recovered makes it good. It is as new while there is a
/// position.
#[derive(Clone, Debug, Default)]
pub(super) struct Loss {
    /// The gap that the next list declares.
    pub(super) why: Option<Why>,
    pub(super) remedy: Remedy,
    /// A list was older than the journal; a second one decides.
    pub(super) older_list: bool,
    /// A list lacked most of what is known; the next one is believed whatever it lacks.
    pub(super) sure: bool,
    /// Lists whose pages expired or were of two versions, in a row.
    pub(super) broken_lists: u32,
}

/// How a lost position is made good.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum Remedy {
    /// By a list, which declares the gap.
    #[default]
    List,
    /// What happened since the position was lost may be recovered, without a gap. Goes on to `ListAt` where the beginning of
    /// it is gone, and to `List` where it cannot be had.
    Recover,
    /// What is older than this version is gone, so a list of it declares that gap. Goes on to `Recover`, for what follows.
    ListAt(ResourceVersion),
}

/// The newest list.
#[derive(Clone, Copy, Debug)]
pub(super) struct Listed {
    /// When it was written.
    pub(super) at: Duration,
    /// Nothing new has come since.
    pub(super) is_newest: bool,
}
