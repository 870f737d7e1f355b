//! decklog keeps the deck log of a Kubernetes cluster.

pub mod ambient;
pub mod apiserver_counters;
pub mod backoff;
pub mod change;
pub mod churn;
pub mod cli;
pub mod cluster;
pub mod config;
pub mod daemon;
pub mod delivery;
pub mod filter;
pub mod http;
pub mod journal;
pub mod json;
pub mod k8s;
pub mod model;
pub mod sim;
pub mod sink;
pub mod status;
pub mod supervise;
pub mod systemd;
pub mod telemetry;
pub mod terminal;
pub mod watch;
pub mod wire;
