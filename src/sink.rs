//! A sink is where the log is delivered to. What it promises is its [`Class`]; who drives it is [`crate::delivery`].
//!
//! A sink takes a batch in order and says how many entries of it it has for good. It never decides what to do about a
//! failure: it only says of which sort it is ([`SinkError`]), and delivery retries, asks for the position again, dead-letters or halts.
//!
//! It may use `core`. Begin with [`Sink`], then with [`mod@file`], which has every promise in it; [`registry`] is the list.
//!
//! # Examples
//!
//! ```
//! use decklog::sink::SinkError;
//!
//! let error = SinkError::retry("the server does not answer");
//! assert_eq!(error.to_string(), "the server does not answer");
//! ```

mod connect;
pub mod elasticsearch;
pub mod file;
pub mod http;
pub mod journald;
// Where its client was left out, the settings are all that there is of a sink.
#[cfg(feature = "kafka")]
pub mod kafka;
#[cfg(not(feature = "kafka"))]
#[path = "sink/kafka/settings.rs"]
pub mod kafka;
pub(crate) mod link;
#[cfg(feature = "nats")]
pub mod nats;
#[cfg(not(feature = "nats"))]
#[path = "sink/nats/settings.rs"]
pub mod nats;
pub mod notify;
pub mod otlp;
#[cfg(feature = "postgres")]
pub mod postgres;
#[cfg(not(feature = "postgres"))]
#[path = "sink/postgres/settings.rs"]
pub mod postgres;
#[cfg(feature = "redis")]
pub mod redis;
#[cfg(not(feature = "redis"))]
#[path = "sink/redis/settings.rs"]
pub mod redis;
pub mod registry;
#[cfg(feature = "s3")]
pub mod s3;
#[cfg(not(feature = "s3"))]
#[path = "sink/s3/settings.rs"]
pub mod s3;
pub mod settings;
#[cfg(any(feature = "kafka", feature = "nats", feature = "postgres", feature = "s3"))]
#[allow(dead_code, reason = "a build may have only some of the engines, and each needs only some of it")]
mod shared;
pub mod stdout;
pub mod syslog;
mod template;
pub(crate) mod tls;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;

use crate::core::checkpoint_handle::CheckpointHandle;
use crate::core::credential_files::FileError;
use crate::core::model::{Cluster, EntryType, Seq};
use crate::core::wire::{self, EntryError, Header};
use notify::Incident;
pub use template::Template;

/// Placeholder for the name of a sink in a sentence before [`Sink::bind`] has set it.
const UNNAMED: &str = "NAME";

/// The least wait after a refusal of credentials or rights, which heals when somebody renews them.
const CREDENTIALS_WAIT: Duration = Duration::from_secs(15);

/// Delivery guarantee of a sink.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Each seq once, in order, across crashes: the position lives where the output lives.
    ExactlyOnce,
    /// In order; a repeat has the same id and the same bytes, and only follows a crash or a lost answer.
    AtLeastOnce,
    /// Holes are visible by seq.
    BestEffort,
}

/// A place in the log of one journal, and which entry stands there. A journal that is restored gives seqs out a second
/// time, and until that is found out in the same epoch: only the entry itself shows whose timeline an output holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogPosition {
    /// The journal.
    pub epoch: String,
    /// The last seq that is there.
    pub seq: Seq,
    /// The entry of that seq; none where that is not known, and before the first.
    pub entry: Option<EntryKey>,
}

/// Identity of an entry among all that were ever assigned its epoch and seq: the change, and the microsecond in which it was
/// journaled.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct EntryKey {
    /// The entry's id.
    pub id: String,
    /// The entry's time.
    pub time: String,
}

impl LogPosition {
    /// Before the first entry of a journal.
    #[must_use]
    pub fn before(epoch: &str) -> Self {
        Self { epoch: epoch.to_owned(), seq: Seq(0), entry: None }
    }

    /// The place of an entry, from its line.
    ///
    /// # Errors
    /// Where the line does not begin as an entry does.
    pub fn of(line: &[u8]) -> Result<Self, EntryError> {
        Header::parse(line).map(|header| Self::at(&header))
    }

    /// The place of an entry whose header is read already.
    #[must_use]
    pub fn at(entry: &Header<'_>) -> Self {
        let mark = EntryKey { id: entry.id.to_string(), time: entry.time.to_string() };
        Self { epoch: entry.epoch.to_string(), seq: entry.seq(), entry: Some(mark) }
    }

    /// Reports whether both are the position of the same entry, as far as both know it.
    #[must_use]
    pub fn is(&self, other: &Self) -> bool {
        let same_entry = match (&self.entry, &other.entry) {
            (Some(own), Some(other)) => own == other,
            _ => true,
        };
        self.epoch == other.epoch && self.seq == other.seq && same_entry
    }
}

/// One entry as a sink gets it.
#[derive(Clone, Debug)]
pub struct Item {
    /// Its place in the journal.
    pub seq: Seq,
    /// Type of the change.
    pub op: EntryType,
    /// The entry after `payload`, without a newline: the same bytes at every delivery.
    pub line: Bytes,
    /// The incident that a message is about, where the sink notifies.
    pub incident: Option<Arc<Incident>>,
    /// Read when somebody asks for it, and then once.
    header: OnceLock<Result<Header<'static>, EntryError>>,
}

/// Remedy for an entry that is too large, besides raising a limit.
pub(crate) const LESS: &str = "deliver less with payload = \"diff\" or \"metadata\"";

impl Item {
    /// An entry to be delivered.
    #[must_use]
    pub const fn new(seq: Seq, op: EntryType, line: Bytes) -> Self {
        Self { seq, op, line, incident: None, header: OnceLock::new() }
    }

    /// The same, with the incident that a message is about.
    #[must_use]
    pub fn about(self, incident: Option<Incident>) -> Self {
        Self { incident: incident.map(Arc::new), ..self }
    }

    /// The same in another place of the log: an update shows the entry that its incident began with, and stands where the last one does.
    #[must_use]
    pub fn at(self, seq: Seq) -> Self {
        Self { seq, ..self }
    }

    /// Returns the header of the entry. It is parsed once at the first call: a sink that only needs bytes costs no parsing.
    ///
    /// # Errors
    /// Where the line does not begin as an entry does.
    pub fn header(&self) -> Result<&Header<'static>, EntryError> {
        self.header.get_or_init(|| Header::parse(&self.line)).as_ref().map_err(|error| *error)
    }

    /// The entry without its object, which is read much faster than all of it.
    #[must_use]
    pub fn without_object(&self) -> Cow<'_, [u8]> {
        wire::apart(&self.line).0
    }
}

/// Limits of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Number of entries that are read for one batch at most.
    pub entries: usize,
    /// About how many bytes they have together.
    pub bytes: usize,
    /// Time that entries wait for others, if each batch is expensive. Zero: no wait.
    pub linger: Duration,
}

/// Error of a sink. The texts are for people: they say what to do, and never quote an entry or a secret.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SinkError {
    /// It may work later.
    #[error("{text}")]
    Retry {
        /// The failure.
        text: String,
        /// Not before this time has passed, where the sink knows.
        after: Option<Duration>,
    },
    /// The output does not hold what it held: it was restored from a backup, say. It may work after the sink was asked
    /// for its position again.
    #[error("{text}")]
    Lost {
        /// The contradiction.
        text: String,
    },
    /// The first entry that was not taken will never be taken.
    #[error("{text}")]
    Refused {
        /// Why.
        text: String,
    },
    /// Permanent: an operator has to act before the next delivery.
    #[error("{text}")]
    Halt {
        /// The remedy.
        text: String,
    },
}

impl From<FileError> for SinkError {
    fn from(error: FileError) -> Self {
        Self::retry(error.to_string())
    }
}

impl SinkError {
    /// It may work later.
    pub fn retry(text: impl Into<String>) -> Self {
        Self::Retry { text: text.into(), after: None }
    }

    /// It may work when somebody has renewed credentials or granted a right: it is tried again, but not all the time.
    pub fn renew(text: impl Into<String>) -> Self {
        Self::Retry { text: text.into(), after: Some(CREDENTIALS_WAIT) }
    }

    /// The output does not hold what it held.
    pub fn lost(text: impl Into<String>) -> Self {
        Self::Lost { text: text.into() }
    }

    /// An operator must act.
    pub fn halt(text: impl Into<String>) -> Self {
        Self::Halt { text: text.into() }
    }
}

/// Answer of a receiver to a message of an incident.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Receipt {
    /// Its name for the message, by which an update finds it.
    Named(String),
    /// The answer has none. The text says what to do, and never quotes an entry or a secret.
    Unnamed(String),
    /// It does not update the message. The text says why, and never quotes an entry or a secret.
    Final(String),
}

/// A batch that was not taken as a whole.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{error} (after {taken} entries)")]
pub struct Failure {
    /// Number of leading entries that the sink has stored durably.
    pub taken: usize,
    /// Error of the next entry.
    pub error: SinkError,
}

/// Notes the first seq of each epoch that these entries are of.
pub(crate) fn note_first(epochs: &mut BTreeMap<String, Seq>, entries: impl IntoIterator<Item = LogPosition>) {
    for LogPosition { epoch, seq, .. } in entries {
        let first = epochs.entry(epoch).or_insert(seq);
        *first = seq.min(*first);
    }
}

/// A place that the log is delivered to.
///
/// **Cancel safety.** Every future of a sink may be dropped at any await, and the sink is used again afterwards: delivery gives
/// [`Sink::deliver`] and [`Sink::position`] up after some seconds when it stops or is asked to. What was under way may then be in
/// the output or not, so a sink keeps nothing of a batch that it could take for delivered, and is asked for its position, or
/// gets the same entries again. Work that cannot stop in the middle (a write on a blocking thread) may end by itself, as
/// long as the next call waits for it or begins again.
pub trait Sink: Send {
    /// Returns the delivery guarantee.
    fn class(&self) -> Class;

    /// Returns the limits of a batch.
    fn limits(&self) -> Limits;

    /// Returns the position of the output. `None` if it is unknown or empty: then the cursor counts. `cursor` is the journal's
    /// knowledge: everything up to it is durable in the output, entries beyond it may be torn.
    fn position<'a>(&'a mut self, cursor: &'a LogPosition) -> BoxFuture<'a, Result<Option<LogPosition>, SinkError>>;

    /// Tells the sink that its entries after this seq are of another timeline: the next delivery replaces them.
    fn diverged(&mut self, _after: Seq) {}

    /// Reports whether the output holds this very entry. Called only if the last entry of the output is of another timeline
    /// than the journal's, to find the last common one. `None` if it cannot look, or if the entry may have been removed since:
    /// one older than all that is there.
    fn holds<'a>(&'a mut self, _entry: &'a LogPosition) -> BoxFuture<'a, Result<Option<bool>, SinkError>> {
        std::future::ready(Ok(None)).boxed()
    }

    /// The epochs that the output holds entries of, and the first seq of each: from there on it takes back what earlier ones
    /// said. Asked as [`Sink::holds`] is; none where it cannot look.
    fn epochs(&mut self) -> BoxFuture<'_, Result<BTreeMap<String, Seq>, SinkError>> {
        std::future::ready(Ok(BTreeMap::new())).boxed()
    }

    /// Takes entries in order, all of them or as many as the error says, and has them for good when it returns.
    fn deliver<'a>(&'a mut self, batch: &'a [Item]) -> BoxFuture<'a, Result<(), Failure>>;

    /// Returns the answers to messages of the last [`Sink::deliver`], by the seqs of their items, and forgets them. None where the
    /// receiver updates no messages.
    fn receipts(&mut self) -> Vec<(Seq, Receipt)> {
        Vec::new()
    }

    /// The operator asks to open files again (SIGHUP). Takes effect with the next use.
    fn reopen(&mut self);

    /// Called before the first use, with the sink's name and the cluster as far as it is known. Sinks that share a place
    /// with others keep what is theirs apart by it.
    fn bind(&mut self, _sink: &str, _cluster: &Cluster) {}

    /// Called before the first use where the log is signed. A sink whose output is files or objects asks for a checkpoint when one is
    /// finished, and never waits for it.
    fn sign_with(&mut self, _notary: &CheckpointHandle) {}

    /// Switches to a replay: it repeats entries that may be there already, and moves no stored position.
    fn enter_replay(&mut self) {}

    /// Returns what has to exist at the destination, as a text that an operator can apply without decklog. `None`: nothing.
    fn provisioning_script(&self) -> Option<String> {
        None
    }

    /// Makes what [`Sink::provisioning_script`] says, for `decklog sink init`. What exists already stays. Gives a sentence about what
    /// was made.
    fn provision(&mut self) -> BoxFuture<'_, Result<String, SinkError>> {
        std::future::ready(Ok("it needs nothing to be made".to_owned())).boxed()
    }

    /// The proxy that it delivers through, as a part of a sentence: ` through http://proxy.example:3128 ($HTTPS_PROXY)`. Empty
    /// where it connects directly.
    fn through(&self) -> String {
        String::new()
    }

    /// Checks for obstacles, for `decklog check`. Delivers nothing and changes nothing.
    fn check(&mut self) -> BoxFuture<'_, Result<(), SinkError>>;
}

#[cfg(test)]
pub(crate) mod tests {
    use super::registry::SinkKind;
    use super::*;
    use crate::core::model::{Cluster, Evidence};
    use crate::core::wire::{EntryBuilder, render};

    /// An entry of epoch `e`, whose length varies with its seq.
    pub(crate) fn item(seq: u64) -> Item {
        item_of("e", seq)
    }

    /// An entry of any epoch.
    pub(crate) fn item_of(epoch: &str, seq: u64) -> Item {
        let object = format!(r#"{{"metadata":{{"name":"web"}},"spec":"{}"}}"#, "é".repeat((seq % 5) as usize));
        let line = render(&EntryBuilder {
            seq: Seq(seq),
            epoch,
            time: "2026-11-21T10:15:00.000000Z",
            happened: None,
            happened_between: None,
            op: EntryType::Modified,
            evidence: Some(Evidence::Watched),
            cluster: &Cluster { name: "prod".into(), uid: "c".into() },
            api_version: "apps/v1",
            kind: "Deployment",
            resource: "deployments",
            namespace: "shop",
            name: "web",
            uid: "u",
            version: &seq.to_string(),
            managers: None,
            change: Some(r#"{"areas":["spec"],"patch":[],"managers":[]}"#),
            object: Some(object.as_bytes()),
            gap: None,
            actor: None,
            redacted: &[],
        })
        .line;
        Item::new(Seq(seq), EntryType::Modified, line.into())
    }

    #[test]
    fn a_build_without_a_client_says_so() {
        for (has, config) in [
            (cfg!(feature = "kafka"), serde_json::json!({"type": "kafka", "brokers": ["k:9092"], "topic": "t"})),
            (cfg!(feature = "nats"), serde_json::json!({"type": "nats", "addresses": ["nats://n:1"], "stream": "s"})),
            (cfg!(feature = "postgres"), serde_json::json!({"type": "postgres", "url": "postgres://me@h/db"})),
            (cfg!(feature = "redis"), serde_json::json!({"type": "redis", "url": "redis://h:1/"})),
            (cfg!(feature = "s3"), serde_json::json!({"type": "s3", "url": "s3://bucket"})),
        ] {
            let kind: SinkKind = serde_json::from_value(config).unwrap();
            let told = kind.open().err().filter(|error| error.contains("cargo feature"));
            let wanted = (!has).then(|| settings::left_out(kind.word()));
            assert_eq!(told, wanted, "{}", kind.word());
        }
    }

    #[test]
    fn every_type_of_the_configuration_opens() {
        for (word, url, class) in [
            ("stdout", "", Class::BestEffort),
            ("elasticsearch", "http://127.0.0.1:1/", Class::AtLeastOnce),
            ("http", "http://127.0.0.1:1/", Class::AtLeastOnce),
            ("journald", "", Class::BestEffort),
            ("nats", "nats://127.0.0.1:1", Class::ExactlyOnce),
            ("otlp", "http://127.0.0.1:1/", Class::AtLeastOnce),
            ("postgres", "postgres://me@127.0.0.1/db", Class::ExactlyOnce),
            ("redis", "redis://127.0.0.1:1/", Class::AtLeastOnce),
            ("s3", "s3://bucket", Class::ExactlyOnce),
            ("syslog", "tcp://127.0.0.1:1/", Class::BestEffort),
        ] {
            let config = serde_json::json!({"type": word, "url": url, "addresses": [url], "stream": "s"});
            let config: SinkKind = serde_json::from_value(config).unwrap();
            match config.open() {
                // Which those are, the test above says.
                Err(error) if error == settings::left_out(word) => {}
                opened => assert_eq!((opened.unwrap().class(), config.word()), (class, word)),
            }
        }
    }
}
