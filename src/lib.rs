//! decklog keeps the log of everything that happens to the objects of a Kubernetes cluster, and delivers it in order.
//!
//! The modules stand here in the order in which a change passes them. ARCHITECTURE.md draws which may use which.
//!
//! 1. [`cluster`] connects to the API server: kubeconfig, credentials, proxies, and the meaning of each failure.
//! 2. [`watch`] lists and watches each resource, resumes from a stored resourceVersion, and recovers what a watch missed.
//! 3. [`change`] redacts an object and compares its two versions: the patch, the areas, the managers.
//! 4. [`wire`] renders an entry as JSON and reads it again. Nothing else knows that JSON.
//! 5. [`journal`] stores the entries, the objects' last state and every position in SQLite. One thread writes.
//! 6. [`filter`] evaluates `where`, an expression in CEL over an entry.
//! 7. [`delivery`] reads the journal behind the cursor of a sink, and retries, dead-letters or halts.
//! 8. [`sink`] writes entries to files, HTTP endpoints, Kafka, NATS, databases and others.
//!
//! Several decklogs share one log: [`ha`] elects the leader by a Lease, and [`shared_log`] is the contract of the engine that
//! replicates the journal.
//!
//! Readers ask the journal: `query` has the questions about the log and their typed answers, [`words`] renders entries, objects and differences for people, [`churn`] counts useless writes,
//! [`status`] collects every position, [`ui`] is the timeline page with its API, and [`http`] serves health and metrics.
//!
//! [`cli`] has the commands, [`config`] reads `config.toml`, and [`daemon`] puts everything together. [`sim`] is an API server
//! in memory for the tests and `decklog demo`.
//!
//! The other modules are the ground: [`model`] (positions, resources, observations), [`json`] and [`k8s`] (bytes of objects),
//! [`net`] (TLS), [`spelling`] and [`units`] (texts that people write), [`ambient`] (clock and randomness, which a simulation
//! replaces), [`supervise`] (tasks), [`backoff`], [`telemetry`], [`terminal`] and [`systemd`].
//!
//! # Examples
//!
//! A filter selects entries by their JSON:
//!
//! ```
//! use decklog::filter::Filter;
//!
//! let filter = Filter::compile(r#"type == "DELETED" && namespace == "shop""#)?;
//! assert!(filter.selects(br#"{"type":"DELETED","namespace":"shop","name":"web"}"#)?);
//! # Ok::<(), decklog::filter::FilterError>(())
//! ```
//!
//! # Decision: one crate
//!
//! Context: A workspace of crates keeps floors by the compiler, and may build in parallel.
//! Decision: One crate; `tests/tidy` keeps the floors that ARCHITECTURE.md draws. A build after an edit takes seconds, and in
//! the first build our own crate is a fifth of the processor time. The clients of S3, NATS, Redis, PostgreSQL and Kafka stand
//! behind cargo features, because they add minutes.
//! Cost: Every edit compiles the whole crate, on one core.

#![cfg_attr(test, allow(clippy::too_many_lines, reason = "a test tells its story in one place"))]

pub mod cluster;
pub mod watch;

pub mod change;
pub mod wire;

pub mod filter;
pub mod journal;

pub mod delivery;
pub mod sink;

pub mod ha;
pub mod shared_log;

pub mod apiserver_counters;
pub mod churn;
pub mod http;
mod query;
pub mod status;
pub mod ui;
pub mod words;

pub mod cli;
pub mod config;
pub mod daemon;
pub mod sim;

pub mod ambient;
pub mod backoff;
pub mod json;
pub mod k8s;
pub mod model;
pub mod net;
pub mod spelling;
pub mod supervise;
pub mod systemd;
pub mod telemetry;
pub mod terminal;
pub mod units;
