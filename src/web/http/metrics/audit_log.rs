//! Metrics of the API server's audit logs.

use prometheus_client::registry::Registry;

use super::{Count, Float, register, unix};
use crate::journal::{AuditCounts, JournalError, Reader};

/// Registers what is read of each audit log.
pub(super) fn register_all(registry: &mut Registry, reader: &Reader) -> Result<(), JournalError> {
    let rows: Vec<_> = reader.audit_logs()?.into_iter().filter(|row| row.active).collect();
    if rows.is_empty() {
        return Ok(());
    }
    let events: Count = register(registry, "audit_log_events", "Events of the audit log, by what became of them");
    let upto: Float =
        register(registry, "audit_log_read_timestamp_seconds", "When the audit log was last read to its end");
    for row in rows {
        let AuditCounts { read, cut, unreadable, no_event, foreign, lost, dropped } = row.counts;
        let outcomes = [
            ("read", read),
            ("cut", cut),
            ("unreadable", unreadable),
            ("no_event", no_event),
            ("foreign", foreign),
            ("lost", lost),
            ("dropped", dropped),
        ];
        for (outcome, number) in outcomes {
            let labels = vec![("audit_log", row.name.clone()), ("outcome", outcome.to_owned())];
            events.get_or_create(&labels).inc_by(number);
        }
        upto.get_or_create(&vec![("audit_log", row.name)]).set(unix(row.read_at));
    }
    Ok(())
}
