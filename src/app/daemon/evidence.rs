//! Evidence: begun before anything is delivered, signed while decklog runs, and once more at its end.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use super::DaemonError;
use super::error::TaskError;
use crate::app::config::{self, Config};
use crate::core::checkpoint_handle::CheckpointHandle;
use crate::core::supervise::Supervisor;
use crate::evidence::publish::{Pace, Publisher, Signing};
use crate::evidence::settings::ALONE;
use crate::evidence::submit::{Progress, Witnesses};
use crate::evidence::witness::Witness;
use crate::journal::Journal;
use crate::query::status::{Trouble, WitnessStatus, in_one_line};

/// Time limit for the last checkpoint.
const LAST_CHECKPOINT_TIMEOUT: Duration = Duration::from_secs(5);

/// The signing of the daemon, if the configuration has some.
pub(super) struct Evidence {
    publisher: Option<Publisher>,
    state: watch::Sender<Signing>,
    /// The witness of other logs, if some are configured.
    pub(super) witness: Option<Arc<Witness>>,
}

impl Evidence {
    /// Reads the keys, and opens the places.
    pub(super) fn new(config: &Config) -> Result<Self, DaemonError> {
        let publisher = config.evidence.as_ref().map(|settings| {
            Ok(Publisher::new(settings.keys()?, config::evidence::places(settings)?, Witnesses::new(settings)))
        });
        let publisher = publisher.transpose().map_err(DaemonError::Config)?;
        if config.ha.is_some() && config.evidence.as_ref().is_some_and(|settings| !settings.witnessed.is_empty()) {
            return Err(DaemonError::Config(ALONE.to_owned()));
        }
        let witness = config.evidence.as_ref().map(|settings| Witness::open(settings, &config.state.path)).transpose();
        let witness = witness.map_err(DaemonError::Config)?.flatten().map(Arc::new);
        Ok(Self { publisher, state: watch::Sender::default(), witness })
    }

    /// Returns the handle of the signing for the sinks.
    pub(super) fn checkpoints(&self) -> CheckpointHandle {
        self.publisher.as_ref().map(Publisher::checkpoints).unwrap_or_default()
    }

    /// Begins or ends the tree of the journal, which leads. Nothing is delivered before.
    pub(super) async fn begin(&self, journal: &Journal) -> Result<(), DaemonError> {
        match &self.publisher {
            Some(publisher) => Ok(publisher.begin(journal).await?),
            None if journal.reader()?.trees()?.last().is_some_and(|tree| !tree.is_closed) => {
                Ok(journal.end_tree().await?)
            }
            None => Ok(()),
        }
    }

    /// Signs while the tasks run.
    pub(super) fn spawn(&self, journal: &Journal, tasks: &mut Supervisor<TaskError>) {
        if let Some(publisher) = self.publisher.clone() {
            let (journal, state, stop) = (journal.clone(), self.state.clone(), tasks.stop());
            tasks.spawn("signing", async move {
                publisher.run(&journal, &state, stop).await;
                Ok(())
            });
        }
    }

    /// Returns the reason why a place lacks the newest checkpoint.
    pub(super) fn failing(&self) -> Option<Trouble> {
        let Signing { problem, failing_since, .. } = self.state.borrow().clone();
        problem.zip(failing_since).map(|(why, since)| Trouble { since, why: in_one_line(&why), times: 1 })
    }

    /// Returns the progress of the witnesses.
    pub(super) fn witnesses(&self) -> Vec<WitnessStatus> {
        let status = |Progress { name, url, signed, missed, failing }: &Progress| WitnessStatus {
            name: name.clone(),
            url: url.clone(),
            signed_at: *signed,
            failing: failing.as_ref().map(|(since, why)| Trouble {
                since: *since,
                why: in_one_line(why),
                times: *missed,
            }),
        };
        self.state.borrow().witnesses.iter().map(status).collect()
    }

    /// Signs once more, for what came last.
    pub(super) async fn end(&self, journal: &Journal) {
        if let Some(publisher) = &self.publisher {
            drop(
                tokio::time::timeout(
                    LAST_CHECKPOINT_TIMEOUT,
                    publisher.sign_and_report(journal, &self.state, Pace::LAST),
                )
                .await,
            );
        }
    }
}
