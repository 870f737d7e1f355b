//! The way from the file of an audit log into the journal.

use std::collections::BTreeSet;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use super::file::{FileBatch, FilePosition, Tail};
use super::follow::{News, now};
use super::settings::Settings;
use super::{Outcome, read_line};
use crate::core::backoff::Backoff;
use crate::core::k8s::audited::AuditedRequest;
use crate::core::runtime;
use crate::journal::{AuditBatch, AuditCounts, Journal, JournalError, Reader};

/// Interval at which a file is looked at that had nothing more.
const POLL_INTERVAL: Duration = Duration::from_millis(200);
/// Backoff between attempts at a file that cannot be read.
const BACKOFF: Backoff = Backoff { first: Duration::from_secs(1), most: Duration::from_secs(30) };
/// Interval at which the place of a quiet file is stored.
const NOTE_INTERVAL: Duration = Duration::from_secs(10);

/// Reads the file of an audit log into the journal from where it was left, until `stop`.
///
/// # Errors
/// Where the journal cannot be read or written.
pub(super) async fn feed(
    journal: Journal,
    settings: Settings,
    news: mpsc::Sender<News>,
    stop: CancellationToken,
) -> Result<(), JournalError> {
    let name = settings.name();
    let reader = journal.reader()?;
    let row = reader.audit_logs()?.into_iter().find(|row| row.name == name);
    let from = row.and_then(|row| serde_json::from_str::<FilePosition>(&row.position?).ok());
    let mut tail = Tail::new(&settings.file, from);
    let (mut failures, mut noted, mut problem) = (0, Instant::now(), String::new());
    loop {
        let began = now();
        let (next, result) = runtime::blocking(move || {
            let result = tail.read();
            (tail, result)
        })
        .await;
        tail = next;
        let mut wait = POLL_INTERVAL;
        match result {
            Ok(batch) => {
                failures = 0;
                problem.clear();
                if !batch.caught_up {
                    wait = Duration::ZERO;
                }
                let is_news = !batch.lines.is_empty() || batch.lost || noted.elapsed() >= NOTE_INTERVAL;
                let (audit, some) = batch_of(&name, batch, began, settings.lag.as_micros(), &watched(&reader)?);
                if is_news {
                    noted = Instant::now();
                    journal.audited(audit).await?;
                }
                if news.send(some).await.is_err() {
                    return Ok(());
                }
            }
            Err(error) => {
                failures += 1;
                let text = error.to_string();
                if text != problem {
                    tracing::warn!(
                        "the audit log {name} cannot be read ({text}): let the user of decklog read it, for example with a group \
                         or an ACL on its directory; it is tried again"
                    );
                    problem = text;
                }
                wait = BACKOFF.wait(failures);
            }
        }
        tokio::select! {
            biased;
            () = stop.cancelled() => return Ok(()),
            () = sleep(wait) => {}
        }
    }
}

/// Watched resources, by group and plural.
fn watched(reader: &Reader) -> Result<BTreeSet<(String, String)>, JournalError> {
    let sources = reader.sources()?.into_iter().filter(|source| source.active);
    Ok(sources.map(|source| (source.resource.group, source.resource.plural)).collect())
}

/// Returns what the lines of a batch say, for the journal and for the join.
fn batch_of(
    name: &str,
    batch: FileBatch,
    began: i64,
    lag: u128,
    watched: &BTreeSet<(String, String)>,
) -> (AuditBatch, News) {
    let mut counts = AuditCounts { lost: u64::from(batch.lost), ..AuditCounts::default() };
    let (mut requests, mut newest): (Vec<AuditedRequest>, i64) = (Vec::new(), 0);
    for line in batch.lines.iter().filter(|line| !line.bytes.is_empty()) {
        for record in read_line(&line.bytes).records {
            match record.outcome {
                Outcome::Request(request) => {
                    counts.read += 1;
                    counts.cut += u64::from(request.cut);
                    newest = newest.max(request.completed);
                    let resource = (request.group.clone(), request.resource.clone());
                    if request.writes() && watched.contains(&resource) {
                        requests.push(*request);
                    }
                }
                Outcome::Other(_) => counts.read += 1,
                Outcome::Unreadable(_) => counts.unreadable += 1,
            }
        }
    }
    // Where nothing more is there, all is read that was written before it was looked at.
    let upto = if batch.caught_up { began } else { newest };
    let complete = upto.saturating_sub(i64::try_from(lag).unwrap_or(i64::MAX)).max(0);
    let position = batch.position.map(|place| serde_json::to_string(&place).expect("numbers always serialise"));
    let audit = AuditBatch { log: name.to_owned(), position, complete, requests: requests.clone(), counts };
    (audit, News { log: name.to_owned(), requests, complete })
}
