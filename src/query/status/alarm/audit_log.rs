//! Alarms of audit logs.

use jiff::{SignedDuration, Timestamp};

use super::{AUDIT_LOG_INCOMPLETE, AUDIT_LOG_UNREAD, Alarm, GAP_NEWS_PERIOD, Status};

/// Largest age of the last read to the end, which comes every few seconds.
pub(super) const UNREAD_LIMIT: SignedDuration = SignedDuration::from_mins(5);

/// Returns an alarm for each audit log that the daemon does not read.
pub(super) fn unread(status: &Status) -> Vec<Alarm> {
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
        let parts = match log.counts.lost {
            1 => "1 part of it was gone before it was read".to_owned(),
            lost => format!("{lost} parts of it were gone before they were read"),
        };
        let dropped = match log.counts.dropped {
            1 => "the API server dropped 1 event".to_owned(),
            dropped => format!("the API server dropped {dropped} events"),
        };
        let which = match (log.counts.lost, log.counts.dropped) {
            (_, 0) => parts,
            (0, _) => dropped,
            _ => format!("{parts}, and {dropped}"),
        };
        let when = log.missing.map_or_else(String::new, |(from, to)| format!(" from {from:.0} to {to:.0}"));
        Some(Alarm {
            alarm: AUDIT_LOG_INCOMPLETE,
            about: log.name.clone(),
            since: Some(last),
            what: format!(
                "events of the audit log are missing{when}: {which}; a change of that time may have no sender"
            ),
            remedy: "keep more rotated files (--audit-log-maxbackup), or give the API server's backend room \
                     (--audit-webhook-batch-buffer-size) and look at what it sends to"
                .to_owned(),
        })
    });
    lost.collect()
}
