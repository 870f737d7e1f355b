//! The task that reads the audit logs.

use std::sync::Arc;

use super::{Config, Journal, Supervisor, TaskError};
use crate::audit_log::{self, Rules, Suspect, Suspects};
use crate::watch::SourceManagerHandle;

/// Begins to read who made which change, where the configuration says from where, and else notes that it does not. Objects of which the log may lack a version go to the
/// audits of their sources.
pub(super) fn read(
    config: &Config,
    rules: Rules,
    journal: &Journal,
    sources: SourceManagerHandle,
    tasks: &mut Supervisor<TaskError>,
) {
    let (logs, journal, stop) = (config.audit_log.clone(), journal.clone(), tasks.stop());
    let suspects: Suspects = Arc::new(move |suspect| {
        let Suspect { group, resource, namespace, name } = suspect;
        sources.suspect(&group, &resource, &namespace, &name);
    });
    tasks.spawn("audit logs", async move { Ok(audit_log::run(journal, logs, (rules, suspects), stop).await?) });
}
