//! The task that reads the audit logs.

use super::{Config, Journal, Supervisor, TaskError};
use crate::audit_log;

/// Begins to read who made which change, where the configuration says from where.
pub(super) fn read(config: &Config, journal: &Journal, tasks: &mut Supervisor<TaskError>) {
    if !config.audit_log.is_empty() {
        let (logs, journal, stop) = (config.audit_log.clone(), journal.clone(), tasks.stop());
        tasks.spawn("audit logs", async move { Ok(audit_log::run(journal, logs, stop).await?) });
    }
}
