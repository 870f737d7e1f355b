//! What goes wrong again and again.

use std::time::Duration;

/// Failures that mean more the longer they last. A success of the same kind ends each of them.
#[derive(Clone, Debug, Default)]
pub(super) struct Trouble {
    /// Not found since.
    pub(super) not_found: Option<Duration>,
    /// The API server is behind our position since.
    pub(super) ahead: Option<Duration>,
    /// Errors without a meaning since.
    pub(super) server: Option<Duration>,
    /// Short watches in a row.
    pub(super) short: u32,
    /// Watches in a row that broke off before they had shown that the connection is well.
    pub(super) cut: u32,
    /// Lines that did not decode, in a row.
    pub(super) undecodable: u32,
    /// Refused watches in a row.
    pub(super) refused: u32,
    /// Watches bring nothing for so long that what is new has to be listed.
    pub(super) due: bool,
    /// Lists that were made of that, since a watch was well.
    pub(super) lists: u32,
    /// Watches that brought nothing since the newest of these lists.
    pub(super) vain: u32,
}

impl Trouble {
    /// Whether watches have brought nothing often enough since the newest list for another one: each time that a list
    /// did not help, twice as often as before.
    pub(super) fn wants_a_list(&self) -> bool {
        self.due || self.lists > 0 && self.vain >= 1 << (self.lists - 1).min(RARELY)
    }
}

/// Watches that bring nothing are not borne longer than this power of two between two lists.
const RARELY: u32 = 4;
