//! The proof that the journal is whole and unaltered.

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::journal::Verified;
use crate::query::render::Failure;
use crate::query::{Log, Put, Question};

/// Interval at which an answer says how far it is.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(250);

/// Asks whether the journal is whole.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Verify {}

/// A part of the answer.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Item {
    /// Number of entries that are verified, and of all.
    Progress(u64, u64),
    /// The place of the journal, and what was found.
    Found(String, Box<Verified>),
}

impl Question for Verify {
    const NAME: &'static str = "verify";
    type Item = Item;

    fn answer(self, log: &Log<'_>, put: &mut Put<'_, Item>) -> Result<(), Failure> {
        let mut reader = log.open_all()?;
        let mut said = Instant::now();
        let found = reader.verify(|done, total| {
            if said.elapsed() >= PROGRESS_INTERVAL {
                said = Instant::now();
                // Who has gone ends the reading as well.
                drop(put(Item::Progress(done, total)));
            }
        })?;
        put(Item::Found(log.dir.display().to_string(), Box::new(found)))
    }
}
