//! The task that reads the audit logs.

use std::sync::Arc;

use super::{Config, Journal, Supervisor, TaskError};
use crate::audit_log::{self, AuditLogError, Rules, Suspect, Suspects, Unexplained};
use crate::core::runtime::{self, watch};
use crate::watch::SourceManagerHandle;

/// Begins to read who made which change, where the configuration says from where, and else notes that it does not. Objects of which the log may lack a version go to the
/// audits of their sources. The threads that read let those of the watches go first: a sender may come late, and a change may not.
/// Returns what the audit logs do not explain.
pub(super) fn read(
    config: &Config,
    rules: Rules,
    journal: &Journal,
    sources: SourceManagerHandle,
    tasks: &mut Supervisor<TaskError>,
) -> watch::Receiver<Unexplained> {
    let (logs, journal, stop) = (config.audit_log.clone(), journal.clone(), tasks.stop());
    let suspects: Suspects = Arc::new(move |suspect| {
        let Suspect { group, resource, namespace, name } = suspect;
        sources.suspect(&group, &resource, &namespace, &name);
    });
    let is_none = logs.is_empty();
    let unexplained = watch::Sender::new(Unexplained::default());
    let told = unexplained.subscribe();
    let reading = audit_log::run(journal, logs, (rules, suspects, unexplained), stop);
    tasks.spawn("audit logs", async move {
        if is_none {
            return Ok(reading.await?);
        }
        Ok(runtime::behind("audit log", reading).await.map_err(AuditLogError::from)??)
    });
    told
}
