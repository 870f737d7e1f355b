//! Several decklogs with one log: who leads is said by a Lease, and decided by the shared log.
//!
//! # Decision: a fresh start does not lead at once
//!
//! Context: A replica whose watches cannot resume would begin with a gap, and may hold the Lease under its former name.
//! Decision: It leaves the Lease to others until it watches, or for 20 seconds. The simulation of pairs found that.
//! Cost: A single replica leads later.

mod candidacy;
pub mod lease;
mod settings;

use std::time::Duration;

pub use candidacy::{Candidacy, Condition};
pub use lease::{Elector, ElectorHandle, FORMATS, Leadership, LeaseName, RESOURCE, VERBS};
pub use settings::Settings;

/// Time for which an unready replica leaves the Lease to others. Longer than the lease duration.
pub const UNREADY_DELAY: Duration = Duration::from_secs(20);
