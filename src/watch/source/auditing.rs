//! Schedule of a source's audits, and their consequences. Audits run beside an open watch, because a watch catches up.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use tokio::time::Instant;

use super::Driver;
use crate::core::backoff::random_up_to;
use crate::core::model::Seq;
use crate::journal::{JournalError, Role};
use crate::watch::audit::{Auditor, Findings};
use crate::watch::requests::Stop;

/// An audit on its way.
pub(super) type Auditing = Pin<Box<dyn Future<Output = Result<Option<Findings>, Stop>> + Send>>;

impl Driver {
    /// A watch is open: from now on an audit may come due.
    pub(super) fn schedule_audit(&mut self) {
        if self.stats.linked_upto() == Seq(0) {
            // What comes from here on is looked before.
            self.stats.link_upto(*self.shared.journal.head().borrow());
        }
        if let Some(period) = self.shared.timings.audit
            && self.audit_due.is_none()
        {
            // Spread, so that the sources do not come all at once, and not at the start, which lists or resumes.
            self.audit_due = Some(Instant::now() + period / 2 + random_up_to(period / 2));
        }
    }

    /// Begins an audit when it is due, and ends with it. Otherwise it never ends.
    pub(super) async fn audit(&self, audit: &mut Option<Auditing>) -> Result<Option<Findings>, Stop> {
        let (None, Some(due)) = (&audit, self.audit_due) else {
            return match audit {
                Some(audit) => audit.await,
                None => std::future::pending().await,
            };
        };
        let shared = self.shared.journal.shared().borrow().clone();
        if shared.role == Role::Standby {
            // It would compare the cluster with the journal of another one. The next line of the watch looks again.
            return std::future::pending().await;
        }
        let period = self.shared.timings.audit.unwrap_or_default();
        // Who takes over does not audit everything at once.
        let spread = period / 4 * (u32::try_from(self.id.0 % 16).unwrap_or_default()) / 16;
        let due = shared.led_since.map_or(due, |since| due.max(since + spread));
        tokio::time::sleep_until(due).await;
        let auditor = Auditor {
            shared: Arc::clone(&self.shared),
            api: self.api.clone(),
            generation: self.generation.unwrap_or_default(),
            spec: self.spec.clone(),
            fields: self.fields.clone(),
            id: self.id,
            journal: self.journal.clone(),
            stats: Arc::clone(&self.stats),
            position: self.position.subscribe(),
        };
        audit.insert(Box::pin(auditor.audit())).await
    }

    /// Takes note of an audit. Says whether the watch has lost something that is not in the log yet.
    pub(super) async fn audited(&mut self, found: Result<Option<Findings>, Stop>) -> Result<bool, JournalError> {
        let period = self.shared.timings.audit.unwrap_or_default();
        self.audit_due = Some(Instant::now() + period * 3 / 4 + random_up_to(period / 4));
        let Findings { audit, lost } = match found {
            Ok(Some(findings)) => findings,
            Ok(None) => {
                self.stats.undecided();
                return Ok(false);
            }
            Err(Stop::Failure(failure)) => {
                tracing::debug!(source = self.spec.name(), %failure, "an audit failed");
                self.stats.undecided();
                return Ok(false);
            }
            Err(Stop::Journal(error)) => return Err(error),
        };
        let differences = audit.differences;
        self.journal.audited(audit).await?;
        tracing::debug!(source = self.spec.name(), differences, "an audit is done");
        if lost > 0 {
            tracing::warn!(
                source = self.spec.name(),
                differences = lost,
                "an audit found that the log and the API server differ"
            );
            // Whoever answered the audit may not be whom we watch.
            self.unverified_since = Some(Instant::now());
        }
        Ok(lost > 0)
    }
}
