//! A process that reads for somebody on another machine: what it reads, and what it may take. The daemon starts it
//! (`http::reading`).

use std::fs;
use std::sync::OnceLock;

use rustix::process::{Resource, Rlimit, setrlimit};

use super::Failure;
use crate::http::reading::{GUEST, Guest, MEMORY};

static READS_FOR: OnceLock<Guest> = OnceLock::new();

/// For whom this process reads, where that is somebody on another machine.
pub(super) fn get() -> Option<&'static Guest> {
    READS_FOR.get()
}

/// Finds out whether this process reads for somebody elsewhere, and bounds what it may take then.
///
/// # Errors
/// Where that is not said as the daemon says it.
pub(super) fn become_one() -> Result<(), Failure> {
    let Some(text) = std::env::var(GUEST).ok().filter(|text| !text.is_empty()) else { return Ok(()) };
    let guest = serde_json::from_str(&text)
        .map_err(|error| Failure::usage(format!("${GUEST} is for decklog itself, and cannot be read: {error}")))?;
    let most = Rlimit { current: Some(MEMORY), maximum: Some(MEMORY) };
    setrlimit(Resource::Data, most)
        .map_err(|error| Failure::io("cannot bound the memory of this command", &error.into()))?;
    // Where the memory of both ends, this goes and the daemon stays. A system without that file has another way to choose.
    drop(fs::write("/proc/self/oom_score_adj", "1000"));
    READS_FOR.get_or_init(|| guest);
    Ok(())
}
