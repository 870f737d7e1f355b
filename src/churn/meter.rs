//! The same pass over what is written while the daemon runs, for its metrics.

use std::sync::{Arc, Mutex, PoisonError};

use tokio_util::sync::CancellationToken;

use super::{Churn, OfResource};
use crate::ambient;
use crate::journal::{Journal, JournalError, Reader};
use crate::model::Seq;

/// So many objects, managers and fields are remembered.
const ROOM: usize = 4000;
/// So many entries are read at once …
const PAGE: usize = 256;
/// … and about so many bytes.
const BYTES: usize = 4 << 20;

/// What was written since the start, for whoever asks; cheap to clone.
#[derive(Clone, Debug)]
pub struct Meter(Arc<Mutex<Churn>>);

impl Default for Meter {
    fn default() -> Self {
        Self(Arc::new(Mutex::new(Churn::with_room(ROOM))))
    }
}

impl Meter {
    /// By resource.
    #[must_use]
    pub fn resources(&self) -> Vec<(String, OfResource)> {
        let churn = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        churn.resources().iter().map(|(name, of)| (name.clone(), of.clone())).collect()
    }

    /// Follows the log from where it is now until `stop`.
    ///
    /// # Errors
    /// Where the journal cannot be opened.
    pub async fn follow(self, journal: Journal, stop: CancellationToken) -> Result<(), JournalError> {
        let mut head = journal.head();
        let mut after = *head.borrow_and_update();
        let mut reader = journal.reader()?;
        // What it waits for does not keep the journal open.
        drop(journal);
        loop {
            tokio::select! {
                biased;
                () = stop.cancelled() => return Ok(()),
                changed = head.changed() => if changed.is_err() { return Ok(()) },
            }
            let upto = *head.borrow_and_update();
            while after < upto && !stop.is_cancelled() {
                let meter = self.clone();
                (reader, after) = ambient::blocking(move || meter.page(reader, after, upto)).await;
            }
        }
    }

    /// Takes a page, and says how far it came.
    fn page(&self, mut reader: Reader, after: Seq, upto: Seq) -> (Reader, Seq) {
        let entries = match reader.entries_after(after, PAGE, BYTES) {
            Ok(entries) => entries,
            // Metrics are not worth more than a word about it: whoever needs the entry says so.
            Err(error) => {
                tracing::debug!(%error, "entries are missing from the metrics of churn");
                return (reader, upto);
            }
        };
        let mut churn = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for entry in &entries {
            if let Err(error) = churn.take(&entry.line) {
                tracing::debug!(%error, seq = entry.seq.0, "an entry is missing from the metrics of churn");
            }
        }
        drop(churn);
        let reached = entries.last().map_or(upto, |entry| entry.seq);
        (reader, reached)
    }
}
