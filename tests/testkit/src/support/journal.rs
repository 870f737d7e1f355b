//! The journal of a daemon under test, read by this process: tests wait for what it says, and a process for each look, twenty a
//! second, took a fifth of the machine.

use std::path::Path;

use decklog::core::model::Seq;
use decklog::journal::{JournalError, Reader};
use decklog::query::status::Status;
use jiff::Timestamp;
use serde_json::Value;

/// More entries than the log of a test has.
const MOST: usize = 1_000_000;

/// The document that `decklog status -o json` prints.
pub fn status(state: &Path) -> Result<Value, String> {
    let gather = || Status::gather(&mut Reader::open(state)?, state, Timestamp::now());
    let status = gather().map_err(|error: JournalError| error.to_string())?;
    serde_json::to_value(&status).map_err(|error| error.to_string())
}

/// The lines that `decklog tail -o json` prints of the whole log.
pub fn lines(state: &Path) -> Result<Vec<String>, String> {
    let read = || Reader::open(state)?.entries_after(Seq(0), MOST, usize::MAX);
    let entries = read().map_err(|error: JournalError| error.to_string())?;
    Ok(entries.into_iter().map(|entry| String::from_utf8_lossy(&entry.line).into_owned()).collect())
}
