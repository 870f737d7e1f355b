//! decklog keeps the deck log of a Kubernetes cluster.

pub mod model;
