//! Several decklogs with one log: who leads is said by a Lease, and decided by the shared log.

mod settings;

pub use settings::Settings;
