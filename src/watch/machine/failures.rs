//! Repeated failures.

use std::time::Duration;

/// Failures that mean more the longer they last. A success of the same kind ends each of them.
#[derive(Clone, Debug, Default)]
pub(super) struct FailureHistory {
    /// Not found since.
    pub(super) not_found: Option<Duration>,
    /// The API server is behind our position since.
    pub(super) ahead: Option<Duration>,
    /// Errors without a meaning since.
    pub(super) server: Option<Duration>,
    /// Newest recovery around objects that the API server cannot read, for as long as it cannot.
    pub(super) unreadable: Option<Duration>,
    /// Short watches in a row.
    pub(super) short: u32,
    /// Watches in a row that broke off before they had shown that the connection is well.
    pub(super) cut: u32,
    /// Lines that did not decode, in a row.
    pub(super) undecodable: u32,
    /// Lists in a row that were given up, because they do not end or the journal has no room for them.
    pub(super) given_up: u32,
    /// Refused watches in a row.
    pub(super) refused: u32,
    /// Replacement of watches by lists.
    pub(super) relist: Relist,
}

/// Lists that stand in for watches which bring nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Relist {
    /// Watches are well, or have not failed for long. Goes on to `Due`.
    #[default]
    No,
    /// Watches have failed for so long that a list is due, once there is anything new. Goes on to `Made`.
    Due,
    /// Watches bring nothing, although what was new has been listed. Ends with a watch that is well.
    Made {
        /// Number of lists.
        lists: u32,
        /// Watches that brought nothing since the newest of these lists.
        empty_watches: u32,
    },
}

impl Relist {
    /// Reports whether watches have brought nothing often enough since the newest list for another one: twice as often after
    /// each list that did not help.
    pub(super) const fn is_due(self) -> bool {
        match self {
            Self::No => false,
            Self::Due => true,
            Self::Made { lists, empty_watches } => {
                let doublings = if lists - 1 < RARELY { lists - 1 } else { RARELY };
                empty_watches >= 1 << doublings
            }
        }
    }

    /// Watches bring nothing for too long. Where a list has not helped, their number decides. Says whether that is news.
    pub(super) fn ask(&mut self) -> bool {
        let first = !matches!(self, Self::Made { .. });
        if first {
            *self = Self::Due;
        }
        first
    }

    /// A watch brought nothing. Says whether that counts.
    pub(super) const fn watched_fruitlessly(&mut self) -> bool {
        match self {
            Self::No | Self::Due => false,
            Self::Made { empty_watches, .. } => {
                *empty_watches += 1;
                true
            }
        }
    }

    /// Handles that a list has begun.
    pub(super) const fn listed(&mut self) {
        let before = match self {
            Self::No | Self::Due => 0,
            Self::Made { lists, .. } => *lists,
        };
        *self = Self::Made { lists: before + 1, empty_watches: 0 };
    }
}

/// Watches that bring nothing are not borne longer than this power of two between two lists.
const RARELY: u32 = 4;
