//! The same pass over what is written while the daemon runs, for its metrics.

use std::sync::{Arc, Mutex, PoisonError};

use tokio_util::sync::CancellationToken;

use super::{Churn, OfResource};
use crate::core::model::Seq;
use crate::core::runtime;
use crate::journal::{Journal, JournalError, Reader};

/// Number of objects, managers and fields that are remembered.
const ROOM: usize = 4000;
/// Number of resources with time series of their own, each at most one for each kind of write: definitions of custom resources
/// can come and go as long as the daemon runs.
const RESOURCES: usize = 500;
/// Number of entries that are read at once.
const PAGE: usize = 256;
/// … and about so many bytes.
const BYTES: usize = 4 << 20;

/// Counts of writes since the start; cheap to clone.
#[derive(Clone, Debug)]
pub struct Meter(Arc<Mutex<Churn>>);

impl Default for Meter {
    fn default() -> Self {
        Self(Arc::new(Mutex::new(Churn::with_room(ROOM).naming(RESOURCES))))
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
                (reader, after) = runtime::blocking(move || meter.page(reader, after, upto)).await;
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::model::{Cluster, EntryType, Evidence};
    use crate::core::wire::{EntryBuilder, render};
    use crate::query::churn::{Class, OTHERS};

    /// Whatever is watched and whoever writes: the time series are those of a bounded number of resources.
    #[test]
    fn thousands_of_kinds_and_managers_make_a_bounded_number_of_series() {
        let (meter, cluster) = (Meter::default(), Cluster { name: "c".into(), uid: "u".into() });
        let mut seq = 0;
        let mut write = |resource: &str, manager: &str| {
            seq += 1;
            let object = format!(
                r#"{{"metadata":{{"managedFields":[{{"manager":"{manager}","operation":"Update","time":"2026-11-21T00:00:00Z"}}]}}}}"#
            );
            let draft = EntryBuilder {
                seq: Seq(seq),
                epoch: "e",
                time: "2026-11-21T00:00:00.000000Z",
                happened: None,
                happened_between: None,
                op: EntryType::Added,
                evidence: Some(Evidence::Watched),
                cluster: &cluster,
                api_version: "example.com/v1",
                kind: "Thing",
                resource,
                namespace: manager,
                name: manager,
                uid: "u",
                version: "1",
                managers: None,
                change: None,
                object: Some(object.as_bytes()),
                gap: None,
                actor: None,
                redacted: &[],
            };
            meter.0.lock().unwrap().take(&render(&draft).line).unwrap();
        };
        for turn in 0..5_000 {
            write(&format!("things-{turn}"), &format!("manager-{turn}"));
            // The first keep their names for good: a counter never goes back.
            write("things-0", &format!("other-{turn}"));
        }
        let resources = meter.resources();
        assert_eq!(resources.len(), RESOURCES + 1);
        let writes =
            |name: &str| resources.iter().find(|(of, _)| of == name).map(|(_, of)| of.classes[&Class::Created].writes);
        assert_eq!(writes("things-0.example.com"), Some(5_001));
        assert_eq!(writes(OTHERS), Some(4_500));
        let all: u64 = resources.iter().flat_map(|(_, of)| of.classes.values()).map(|count| count.writes).sum();
        assert_eq!(all, 10_000, "nothing is left out of the sum");
    }
}
