//! Alarms of audit logs.

use jiff::{SignedDuration, Timestamp};

use super::{AUDIT_LOG_INCOMPLETE, AUDIT_LOG_NAMES_NOBODY, AUDIT_LOG_UNREAD, Alarm, GAP_NEWS_PERIOD, Role, Status};

/// Largest age of the last read to the end, which comes every few seconds.
pub(super) const UNREAD_LIMIT: SignedDuration = SignedDuration::from_mins(5);

/// Remedy for files that go too early.
const KEEP: &str = "keep more rotated files (--audit-log-maxbackup)";
/// Remedy for events that an API server drops.
const ROOM: &str =
    "give the API server's backend room (--audit-webhook-batch-buffer-size), and look at what it sends to";

fn parts(number: u64) -> String {
    if number == 1 { "1 part".to_owned() } else { format!("{number} parts") }
}

fn events(number: u64) -> String {
    if number == 1 { "1 event".to_owned() } else { format!("{number} events") }
}

/// Returns an alarm for each audit log that the daemon does not read. A standby reads none.
pub(super) fn unread(status: &Status) -> Vec<Alarm> {
    if status.ha.as_ref().is_some_and(|view| view.role == Role::Standby) {
        return Vec::new();
    }
    let late = |since: &Timestamp| status.time.duration_since(*since) > UNREAD_LIMIT;
    let unread = status.audit_logs.iter().filter_map(|log| {
        let since = log.caught_up.max(status.daemon.started).filter(late)?;
        Some(Alarm {
            alarm: AUDIT_LOG_UNREAD,
            about: log.name.clone(),
            since: Some(since),
            what: "the audit log is not read to its end, so no newer change gets a sender".to_owned(),
            remedy: "`decklog check` says whether the file can be read and whether events arrive; decklog's own log says what failed"
                .to_owned(),
        })
    });
    unread.collect()
}

/// Returns an alarm for each audit log that has lost events within the last hour.
pub(super) fn incomplete(status: &Status) -> Vec<Alarm> {
    let lost = status.audit_logs.iter().filter_map(|log| {
        let last = log.last_lost.filter(|last| status.time.duration_since(*last) < GAP_NEWS_PERIOD)?;
        let parts = format!("{} in all gone before decklog read them", parts(log.counts.lost));
        let dropped = format!("{} in all dropped by the API server", events(log.counts.dropped));
        let which = match (log.counts.lost, log.counts.dropped) {
            (_, 0) => parts,
            (0, _) => dropped,
            _ => format!("{parts}, {dropped}"),
        };
        let remedy = match (log.counts.lost, log.counts.dropped) {
            (_, 0) => KEEP.to_owned(),
            (0, _) => ROOM.to_owned(),
            _ => format!("{KEEP}; {ROOM}"),
        };
        let when = log.missing.map_or_else(String::new, |(from, to)| format!(" from {from:.0} to {to:.0}"));
        Some(Alarm {
            alarm: AUDIT_LOG_INCOMPLETE,
            about: log.name.clone(),
            since: Some(last),
            what: format!(
                "events of the audit log are missing{when}: {which}; a change of that time may have no sender"
            ),
            remedy,
        })
    });
    lost.collect()
}

/// Returns an alarm where no change has a request in any audit log. Of one that is not read nothing follows.
pub(super) fn names_nobody(status: &Status) -> Option<Alarm> {
    let run = status.unexplained_run.as_ref().filter(|_| unread(status).is_empty())?;
    let names: Vec<&str> = status.audit_logs.iter().map(|log| log.name.as_str()).collect();
    let about = names.join(", ");
    let (logs, question) = match names.as_slice() {
        [] => return None,
        [_] => ("log", "is it of this cluster's API servers, and does its policy log writes?"),
        _ => ("logs", "are they of this cluster's API servers, and do their policies log writes?"),
    };
    let changes = run.changes;
    Some(Alarm {
        alarm: AUDIT_LOG_NAMES_NOBODY,
        since: Some(run.since),
        what: format!("no request in the audit {logs} {about} explains any of the last {changes} changes"),
        remedy: format!("{question} `decklog check` says more"),
        about,
    })
}
