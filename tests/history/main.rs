//! What `log`, `get --at`, `diff` and `blame` print of a journal with fixed times and contents, and whether it is true.

#![allow(clippy::too_many_lines, reason = "a test tells its story in one place")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod causes;
mod drift;
mod golden;
mod hands;
mod paging;
mod past;
mod provenance;
mod rewrites;
mod screens;
mod silence;
mod who;
mod why;
mod zones;
use decklog_testkit::{incident, story};
