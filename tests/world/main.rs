//! The world that decklog meets: clusters, networks and files that differ from the ones of its authors. Each file is a kind of
//! difference, as a table: a row says what the server, the proxy or the file does, what kubectl does with it, and what decklog
//! has to do. A row that another suite proves more cheaply does not stand here.

#![allow(clippy::too_many_lines, reason = "a test tells its story in one place")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod kubeconfig;

#[path = "../real/judge.rs"]
#[allow(dead_code, unreachable_pub, reason = "shared with the tests on real clusters, which use more of it")]
mod judge;
mod objects;
#[path = "../real/ports.rs"]
#[allow(dead_code, reason = "shared with other suites, which use more of it")]
mod ports;
mod proxies;
#[path = "../daemon/support.rs"]
#[allow(dead_code, reason = "shared with the tests of the daemon, which use more of it")]
mod support;

mod discovery;
mod limits;
mod receivers;
mod sink_proxies;
mod tls;
