//! decklog keeps the log of everything that happens to the objects of a Kubernetes cluster, and delivers it in order.
//!
//! A room is a folder of `src` with a front page. They stand here along the way of a change, with the rooms beside it; ARCHITECTURE.md
//! draws which may use which.
//!
//! 1. [`watch`] connects to the API server, lists and watches each resource, resumes from a stored resourceVersion, and recovers
//!    what a watch missed.
//! 2. [`audit_log`] reads who sent a request out of the API server's audit log, in whatever envelope it arrives.
//! 3. [`journal`] stores the entries, the objects' last state and every position in SQLite. One thread writes.
//! 4. [`delivery`] reads the journal behind the cursor of a sink, and retries, dead-letters or halts.
//! 5. [`sink`] writes entries to files, HTTP endpoints, Kafka, NATS, databases and others.
//! 6. [`query`] has the questions about the log and their typed answers, and renders entries and objects for people.
//! 7. [`evidence`] signs the log, and checks copies of it.
//! 8. [`web`] serves health, metrics, questions and the timeline page.
//! 9. [`app`] has the commands and the service, and the election of a leader where several share one log.
//! 10. [`sim`] is an API server in memory, for the tests and `decklog demo`.
//! 11. [`core`] is the ground of all: entries, changes, redaction, filters, Kubernetes' words, clock and randomness.
//!
//! Each front page says what its room may use, where to begin reading, and has an example where one can stand alone.
//!
//! # Decision: one crate
//!
//! Context: A workspace of crates keeps walls by the compiler, and may build in parallel.
//! Decision: One crate; `tests/tidy` keeps the walls that ARCHITECTURE.md draws. A build after an edit takes seconds, and our
//! own crate takes half of the processor time of an optimized build. The clients of S3, NATS, Redis, PostgreSQL and Kafka stand
//! behind cargo features, because they add minutes.
//! Cost: Every edit compiles the whole crate, on one core.

#![cfg_attr(test, allow(clippy::too_many_lines, reason = "a test tells its story in one place"))]

#[cfg(all(feature = "daemon", not(target_os = "linux")))]
compile_error!("the daemon is for Linux: build the client with --no-default-features");

pub mod watch;

pub mod audit_log;

pub mod journal;

pub mod delivery;
pub mod sink;

pub mod evidence;
pub mod query;
pub mod web;

pub mod app;
#[cfg(feature = "daemon")]
pub mod sim;

pub mod core;
