//! Several decklogs with one log: who leads is said by a Lease, and decided by the shared log.

pub mod lease;
mod settings;

pub use lease::{Elector, ElectorHandle, FORMATS, LeaseName, RESOURCE, Standing, VERBS};
pub use settings::Settings;
