//! Several decklogs with one log: who leads is said by a Lease, and decided by the shared log.

pub mod lease;
mod settings;

use std::time::Duration;

pub use lease::{Elector, ElectorHandle, FORMATS, LeaseName, RESOURCE, Standing, VERBS};
pub use settings::Settings;

/// Time for which an unready replica leaves the Lease to others. Longer than the lease duration.
pub const UNREADY_DELAY: Duration = Duration::from_secs(20);
