//! decklog keeps the deck log of a Kubernetes cluster.

pub mod change;
pub mod config;
pub mod delivery;
pub mod journal;
pub mod model;
pub mod sink;
pub mod wire;
