//! Everything that reads foreign bytes, fed with bytes that nobody meant.
//!
//! Each target has a corpus in `tests/fuzz/corpus/TARGET/`: files that look real, and every input that ever failed.
//! The corpus is replayed as it is, and then mutated a bounded number of times from a seed, so that a run is the same
//! on every machine. More is searched with
//!
//! ```text
//! DECKLOG_FUZZ_RUNS=1000000 DECKLOG_FUZZ_SEED=7 cargo test --release --test fuzz TARGET
//! ```
//!
//! A failing input is written to a file, which is named with the one command that replays it; in the corpus it stays a
//! test for ever. With `DECKLOG_FUZZ_TRACE=1` every input is written before it is tried, for what ends the process. A target does not only look for panics: it says what must be true of what was read.

#![allow(clippy::too_many_lines, reason = "a test tells its story in one place")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]
#![allow(clippy::print_stdout, reason = "how much was tried, and what to do with an input that fails")]

mod bounds;
mod building;
mod harness;
mod json;
mod kubeconfigs;
mod objects;
mod stored;
mod texts;
