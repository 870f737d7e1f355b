//! What happens to the disk under decklog: power cuts that lose what was not synced, kills at every single step, and
//! calls that fail. The real binary runs under a shim (`shim.c`) that stands between it and the kernel.
//!
//! `DECKLOG_POWER_IMAGES`, `DECKLOG_POWER_RUNS`, `DECKLOG_POWER_SEED` and `DECKLOG_KILLS` make the search longer or another one:
//! see tests/README.md.

#![allow(clippy::too_many_lines, reason = "a test tells its story in one place")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod calls;
mod collector;
mod cuts;
mod disk;
mod evidence;
mod kills;
mod record;

/// A number from the environment, for longer searches.
fn setting(name: &str, default: usize) -> usize {
    std::env::var(name).ok().map_or(default, |text| text.parse().unwrap_or_else(|_| panic!("{name} is no number")))
}

/// In memory where there is such a place: what is synced there costs nothing, and the order is what counts.
fn scratch() -> tempfile::TempDir {
    let memory = std::path::Path::new("/dev/shm");
    if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() }.unwrap()
}
use decklog_testkit::judge;
use decklog_testkit::support;
use decklog_testkit::tessera;
use decklog_testkit::trace;
