//! decklog keeps the deck log of a Kubernetes cluster.

pub mod ambient;
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
pub mod model;
pub mod net;
pub mod requests;
pub mod sim;
pub mod sink;
pub mod spelling;
pub mod status;
pub mod supervise;
pub mod systemd;
pub mod telemetry;
pub mod units;
pub mod watch;
pub mod wire;
