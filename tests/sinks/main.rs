//! decklog's sinks against the real servers: each is killed, cut and lied about in the middle, and what a consumer then
//! reads from the server is judged by what the sink promises.
//!
//! `tests/servers/build` makes the servers; `DECKLOG_TEST_SERVERS` names the directory where it put them.

#![allow(clippy::too_many_lines, reason = "a test tells its story in one place")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod elasticsearch;
mod ha;
mod journald;
mod kafka;
mod nats;
mod otlp;
mod postgres;
mod proxy;
mod redis;
mod s3;
mod shared;
mod syslog;
mod timelines;
mod trial;

use decklog::core::shared_log;
use decklog_testkit::certs;
use decklog_testkit::judge;
use decklog_testkit::server;
use decklog_testkit::support;
use decklog_testkit::trace;
