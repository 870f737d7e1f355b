//! decklog's sinks against the real servers: each is killed, cut and lied about in the middle, and what a consumer then
//! reads from the server is judged by what the sink promises.
//!
//! `tests/servers/build` makes the servers; `DECKLOG_TEST_SERVERS` names the directory where it put them.

#![allow(clippy::too_many_lines, reason = "a test tells its story in one place")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod certs;
mod elasticsearch;
mod ha;
mod journald;
#[path = "../real/judge.rs"]
#[allow(dead_code, unreachable_pub, reason = "shared with the tests on real clusters, which use more of it")]
mod judge;
mod kafka;
mod nats;
mod otlp;
#[path = "../real/ports.rs"]
mod ports;
mod postgres;
mod proxy;
mod redis;
mod s3;
mod server;
mod shared;
#[path = "../daemon/support.rs"]
#[allow(dead_code, reason = "shared with the tests of the daemon, which use more of it")]
mod support;
mod syslog;
mod timelines;
#[path = "../power/trace.rs"]
#[allow(dead_code, reason = "shared with the tests of power cuts, which use more of it")]
mod trace;
mod trial;

use decklog::core::shared_log;
