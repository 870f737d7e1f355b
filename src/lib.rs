//! decklog keeps the deck log of a Kubernetes cluster.

pub mod change;
pub mod config;
pub mod filter;
pub mod journal;
pub mod model;
pub mod systemd;
pub mod telemetry;
pub mod wire;
