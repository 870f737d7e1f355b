//! The real binary over the simulated API server: what it promises under every fault that the simulator knows, the
//! life of the service, and what it says when something is wrong.
//!
//! The simulated cluster lives in the test; decklog is a process of its own, and its log is judged against the
//! simulator's history by the same judge that the tests on real clusters use. Nothing sleeps: everything is waited
//! for, through [`support::until`], with limits that only a defect reaches.

#![allow(clippy::too_many_lines, reason = "a test tells its story in one place")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod absences;
mod announcing;
mod assisting;
mod auditing;
mod bad_input;
mod churning;
mod clusters;
mod commands;
mod completing;
mod delivering;
mod disk;
mod encodings;
mod engines;
mod evidence;
mod faults;
mod following;
mod fullness;
mod host;
mod hostile;
mod matrix;
mod memory;
mod messages;
mod notifying;
mod operation;
mod reading;
mod restarts;
mod scopes;
mod secrets;
mod service;
mod sharing;
mod timelines;
mod ui;
mod witnessing;
use decklog_testkit::judge;
use decklog_testkit::support;
