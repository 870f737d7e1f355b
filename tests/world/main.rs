//! The world that decklog meets: clusters, networks and files that differ from the ones of its authors. Each file is a kind of
//! difference, as a table: a row says what the server, the proxy or the file does, what kubectl does with it, and what decklog
//! has to do. A row that another suite proves more cheaply does not stand here.

#![allow(clippy::too_many_lines, reason = "a test tells its story in one place")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod kubeconfig;

mod objects;
mod proxies;

mod discovery;
mod limits;
mod receivers;
mod sink_proxies;
mod tls;
use decklog_testkit::support;
