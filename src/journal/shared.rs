//! A journal that is shared: what it records is in a log that outlives the machine, before anybody sees it.
//!
//! The journal of the leader is a prefix of the shared log at every moment. Its writer's transaction stays open until the
//! engine has taken the unit that it makes; only then it is committed, and seen. So nothing is ever taken back: a leader that
//! is refused drops the open transaction, and follows. The journal of a standby is the same prefix, a little later. Beside it
//! the standby keeps what its own watches have brought beyond that (the *backlog*), and when it takes over it hands that to the
//! writer, to which it is no other than what a watch brings after a reconnect.

use std::path::PathBuf;
use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::core::shared_log::SharedLog;

/// Parameters of a journal that is shared.
pub struct Sharing {
    /// The engine.
    pub log: Box<dyn SharedLog>,
    /// Identity of this decklog.
    pub identity: String,
    /// Bytes of changes beyond the shared log that a standby keeps.
    pub backlog: u64,
    /// Fingerprint of the redaction key.
    pub key: String,
    /// Interval at which a standby polls for new units.
    pub poll: Duration,
    /// Units are worth a new base when they have so many bytes, and as many as the last base.
    pub worth_a_base: u64,
}

impl std::fmt::Debug for Sharing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sharing")
            .field("log", &self.log.shown())
            .field("identity", &self.identity)
            .finish_non_exhaustive()
    }
}

/// Role of a journal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Role {
    /// It is shared with nobody.
    #[default]
    Alone,
    /// It follows the shared log.
    Standby,
    /// It writes the shared log.
    Leader,
}

/// State of a journal that is shared.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Shared {
    /// Its part.
    pub role: Role,
    /// Term of the newest unit.
    pub term: u64,
    /// Leader, by the newest unit.
    pub leader: String,
    /// Since when it leads.
    pub led_since: Option<tokio::time::Instant>,
    /// The newest unit that the journal has.
    pub number: u64,
    /// The newest unit that the engine was seen to have.
    pub newest: u64,
    /// Time at which the journal was last seen to have all of the shared log.
    pub caught_up: Option<Timestamp>,
    /// Bytes of changes that the shared log does not have yet.
    pub backlog: u64,
    /// Number of overflows of the backlog, each of which dropped changes.
    pub overflows: u64,
    /// The unit that follows, where the engine has later ones, and neither that one nor a base in its place.
    pub missing: Option<u64>,
    /// Error of the engine, while it lasts.
    pub problem: Option<String>,
    /// The journals that were set apart.
    pub apart: Vec<Apart>,
}

/// A journal as it was before it was built again from the shared log, which lacks some of its entries.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Apart {
    /// The file, which is a journal.
    pub file: PathBuf,
    /// The epoch that its newest entries have.
    pub epoch: String,
    /// The first entry that the shared log does not have, where that is known.
    pub first: u64,
    /// Its newest entry.
    pub last: u64,
    /// The newest entry of the shared log when that was read to its end; none before that.
    pub shared: Option<u64>,
    /// True if the shared log ended before it, or continued otherwise.
    pub is_beyond: bool,
}

impl Apart {
    /// Names the entries that only the set-apart journal has.
    #[must_use]
    pub fn sentence(&self) -> String {
        let Self { file, epoch, first, last, shared, .. } = self;
        let others = match shared.unwrap_or_default() {
            newest if newest < *first => format!("which ends with entry {newest}"),
            newest => format!("which has others from {first} to {newest}"),
        };
        format!(
            "the entries {first} to {last} of epoch {epoch}, which this decklog had, are not in the shared log, {others}: they are in {}",
            file.display()
        )
    }
}

impl Shared {
    /// Reports whether there is nothing yet to continue from.
    #[must_use]
    pub fn is_blank(&self) -> bool {
        self.caught_up.is_some() && self.newest == 0 && self.number == 0
    }

    /// Reports whether it leads and may become a standby again: everything that it alone has seen is in the shared log. Until
    /// then it continues without the Lease, which does no harm, because the engine refuses it once another decklog leads.
    #[must_use]
    pub fn may_stand_by(&self) -> bool {
        self.role == Role::Leader && self.backlog == 0
    }
}
