//! Several decklogs with one log: who leads is said by a Lease, and decided by the shared log.

pub mod lease;
mod settings;

use std::time::Duration;

pub use lease::{Elector, ElectorHandle, FORMATS, LeaseName, RESOURCE, Standing, VERBS};
pub use settings::Settings;

/// So long a decklog that is not fit to lead leaves the Lease to others: longer than one that nobody renews lasts.
pub const GRACE: Duration = Duration::from_secs(20);
