//! The audit log of the API server says who sent each request. This room takes its events from files ([`file`](mod@file)) and senders
//! ([`listen`]), puts the requests into the journal (`feed`), joins them with the versions of the log ([`join`]), and records the senders
//! of changes as ACTOR entries (`follow`). What wrote nothing is counted (`unwritten`), and so are changes without a request (`unexplained`).
//!
//! Of a body that an event carries it keeps uid and resourceVersion, and of an answer to `generateName` the name; it never builds a tree
//! of a body's values, because that may be megabytes and may hold a Secret. Events are read out of every envelope in which they arrive:
//!
//! | envelope | recognised by | cluster | time of what was cut off |
//! |---|---|---|---|
//! | an event of `audit.k8s.io/v1` or `v1beta1` | `kind` and `apiVersion`, or `auditID` and `stage` | – | the caller's |
//! | `EventList` | `kind` | – | the caller's |
//! | JSON Lines, values in a row, and arrays of any of these | – | – | – |
//! | gzip, and base64 of gzip or JSON | its first bytes | – | – |
//! | CloudWatch subscription | `messageType` | `logGroup` | `timestamp` of the log event |
//! | Firehose delivery | `records[].data` | – | `timestamp` of the delivery |
//! | Pub/Sub push | `message.data` | – | `publishTime` |
//! | Cloud Logging `LogEntry` | `protoPayload` | `project/location/cluster` | – |
//! | Azure diagnostic record, or `records` of them | `category` and `properties` | `resourceId` | `time` |
//! | line of a log shipper | `message` or `log`, without `kubernetes` | – | the caller's |
//!
//! An event that was cut off (AKS does so at 16 KiB, CloudWatch at 256 KiB) is read as far as it goes, if that is far enough:
//! [`AuditedRequest::cut`].
//!
//! It may use `core` and `journal`. Begin with [`run`]; [`read`] is the parser, and `event` says what is taken of one event.
//!
//! # Examples
//!
//! ```
//! use decklog::audit_log::{Outcome, read};
//!
//! let line = br#"{"kind":"Event","apiVersion":"audit.k8s.io/v1","level":"Metadata","auditID":"7a","stage":"ResponseComplete",
//!     "requestURI":"/apis/apps/v1/namespaces/shop/deployments/cart?fieldManager=kubectl-edit","verb":"patch","user":{"username":"alice"},
//!     "objectRef":{"resource":"deployments","namespace":"shop","name":"cart","apiGroup":"apps","apiVersion":"v1"},
//!     "responseStatus":{"metadata":{},"code":200}}"#;
//! let received = read(line, None);
//! let Outcome::Request(request) = &received.records[0].outcome else { panic!("no request") };
//! assert_eq!((request.sender.user.as_str(), request.manager.as_str()), ("alice", "kubectl-edit"));
//! assert!(request.writes());
//! ```

mod body;
mod envelope;
mod event;
mod feed;
pub mod file;
mod follow;
mod google;
pub mod join;
pub mod lines;
pub mod listen;
mod outcome;
mod prefix;
mod raw;
mod settings;
#[cfg(test)]
mod tests;
mod unexplained;
mod unwritten;
mod uri;
mod versions;

pub use crate::core::k8s::audited::{AuditedRequest, Sender, Unexplained};
pub use envelope::{Received, Record, read, read_line};
pub use feed::PROBE;
pub use follow::Suspects;
pub use outcome::{Outcome, Reason};
pub use settings::{Mistake, Settings};
pub use unwritten::Suspect;

use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use std::sync::Arc;

use crate::core::change::redact::Redactor;
use crate::core::net::server::BindError;
use crate::core::runtime::watch;
use crate::journal::{AuditLogRow, Journal, JournalError};
use feed::{Feed, Handing};
use follow::Followed;
use listen::Receiver;

/// Error that ends the reading of audit logs.
#[derive(Debug, thiserror::Error)]
pub enum AuditLogError {
    /// An address cannot be bound.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// A socket has failed.
    #[error(transparent)]
    Socket(#[from] std::io::Error),
    /// The journal has failed.
    #[error(transparent)]
    Journal(#[from] JournalError),
}

/// Returns the time from which an audit log is read, microseconds since 1970. One that is new, or has another name now, begins where the
/// others are: a file that is read again from its start would count requests a second time.
fn begin_of(rows: &[AuditLogRow], name: &str) -> i64 {
    let is_known = rows.iter().any(|row| row.name == name && row.complete > 0);
    let newest = rows.iter().map(|row| row.complete).max().filter(|newest| *newest > 0 && !is_known);
    newest.unwrap_or(i64::MIN)
}

/// Number of batches that wait for the join.
const NEWS: usize = 16;

/// Rules of redaction as they are now, for senders.
pub type Rules = watch::Receiver<Arc<Redactor>>;

/// Reads audit logs, records the senders of changes, and counts requests that wrote nothing, until `stop`. A standby waits until it
/// leads. Without any it notes that none is read. What the rules take out of a sender is in no request and no entry. An object whose version the log may lack is handed to
/// the suspects, and what the audit logs do not explain to the last.
///
/// # Errors
/// Where an address cannot be bound, or the journal cannot be read or written.
pub async fn run(
    journal: Journal,
    logs: Vec<Settings>,
    (rules, suspects, unexplained): (Rules, Suspects, watch::Sender<Unexplained>),
    stop: CancellationToken,
) -> Result<(), AuditLogError> {
    if !follow::leads(&journal, &stop).await {
        return Ok(());
    }
    let names: Vec<String> = logs.iter().map(Settings::name).collect();
    journal.audit_logs(names).await?;
    if logs.is_empty() {
        stop.cancelled().await;
        return Ok(());
    }
    let rows = journal.reader()?.audit_logs()?;
    let (sender, receiver) = mpsc::channel(NEWS);
    let mut tasks: JoinSet<Result<(), AuditLogError>> = JoinSet::new();
    let (own, halt, its_rules) = (journal.clone(), stop.clone(), rules.clone());
    let followed = logs
        .iter()
        .map(|settings| Followed { name: settings.name(), begins: settings.file.as_deref().and_then(feed::begins) });
    let followed: Vec<Followed> = followed.collect();
    let skew = settings::clock_skew(&logs);
    tasks.spawn(async move {
        Ok(follow::follow(own, (followed, skew), (its_rules, suspects, unexplained), receiver, halt).await?)
    });
    for settings in logs {
        let bound = Receiver::bind(&settings).await?;
        let floor = begin_of(&rows, &settings.name());
        let feed = Feed::new(journal.clone(), settings, rules.clone(), sender.clone())?.since(floor);
        let halt = stop.clone();
        let Some(bound) = bound else {
            tasks.spawn(async move { Ok(feed.follow(halt).await?) });
            continue;
        };
        let (feed, serving) = (Arc::new(feed), stop.clone());
        let handing = Handing(Arc::clone(&feed));
        tasks.spawn(async move { Ok(bound.serve(handing, serving).await?) });
        tasks.spawn(async move { Ok(feed.wait(halt).await?) });
    }
    drop((journal, sender));
    while let Some(ended) = tasks.join_next().await {
        ended.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic()))?;
    }
    Ok(())
}
