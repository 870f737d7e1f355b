//! What the tests, benches and examples of decklog share: judges of a log, the servers that sinks deliver to, a daemon to start,
//! stories to tell a journal, the simulation of a whole decklog, and a reader of the modules of `src`.
//!
//! Begin with [`judge`], which says whether a log is the truth, and with [`support`], which starts the daemon.

pub mod browser;
pub mod certs;
pub mod dice;
pub mod house;
pub mod incident;
pub mod judge;
pub mod ports;
pub mod server;
pub mod servers;
pub mod simulation;
pub mod story;
pub mod support;
pub mod tale;
pub mod tessera;
pub mod trace;
pub mod world;

use std::path::{Path, PathBuf};

/// Returns the top of the repository.
#[must_use]
pub fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

/// Returns the program that cargo built for this test.
///
/// # Panics
/// If there is none.
#[must_use]
pub fn program() -> PathBuf {
    if let Some(named) = std::env::var_os("CARGO_BIN_EXE_decklog") {
        return named.into();
    }
    let test = std::env::current_exe().expect("a test knows its own path");
    let built = test.ancestors().nth(2).expect("a test stands in target/PROFILE/deps").join("decklog");
    assert!(built.exists(), "{} is not there: cargo builds it for the tests of this package", built.display());
    built
}

/// Returns a directory below the build directory for files that outlive a test.
///
/// # Panics
/// If it cannot be made.
#[must_use]
pub fn scratch() -> PathBuf {
    let dir = program().ancestors().nth(2).expect("the program stands in target/PROFILE").join("tmp");
    std::fs::create_dir_all(&dir).expect("a directory in the build directory");
    dir
}
