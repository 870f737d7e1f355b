//! Redis streams: at least once, in order, and in effect exactly once where a stream is only ours.
//!
//! An entry's id in the stream is made from the entry: the time at which its epoch began, and its seq. So ids grow with
//! the log, over epochs as well, and Redis itself refuses what it has already. The first entry of a batch goes alone, and the
//! others in one transaction behind it, so that an entry never follows one that is missing, and of two decklogs with
//! copies of one journal only one gets past the first entry that they do not share. What is refused is read back: it is there, or was under way from here and has
//! been taken out, or somebody else writes to the stream.
//!
//! The stream also says how far it goes and with which entry it ends, so that a server that was restored, or lost its last
//! second in a crash, is filled up again, and a journal that was restored is found out. Where a consumer has taken the last
//! entry out, only its id is left: what the cursor cannot confirm then counts as another timeline, because a repeat under
//! a later epoch is better than a hole.

mod link;
mod settings;
#[cfg(test)]
mod tests;

pub use settings::{RedisUrl, Settings};

use std::collections::BTreeMap;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use redis::Value;

use super::template::Template;
use super::{Class, Failure, Item, LESS, Limits, LogPosition, Sink, SinkError, note_first};
use crate::core::model::Seq;
use link::{End, Link, Tail};

/// About how many bytes one transaction carries, unless a single entry is larger.
const BATCH_BYTES: usize = 1 << 20;

/// Suffix of the stream for replayed entries: a stream accepts nothing out of order.
const AGAIN: &str = ":again";

/// A server with streams.
#[derive(Debug)]
pub struct RedisSink {
    link: Link,
    stream: Template,
    max_len: Option<u64>,
    batch_size: usize,
    again: bool,
    /// Last known end of a fixed stream: a server that comes back without it has lost entries.
    known: Option<LogPosition>,
    /// The last id that was sent from here, and that of what was sent and not answered.
    sent: Option<Id>,
    unsure: Option<Id>,
}

/// The id of an entry in a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Id {
    /// Begin of the entry's epoch, in milliseconds.
    begun: u64,
    seq: u64,
}

impl std::fmt::Display for Id {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}-{}", self.begun, self.seq)
    }
}

impl Id {
    /// The id of the entry at a place in the log.
    fn of(position: &LogPosition) -> Result<Self, String> {
        Ok(Self { begun: Self::begun(&position.epoch)?, seq: position.seq.0 })
    }

    /// The place of an entry of which nothing but its id is left, in an epoch that no journal has: the last that can
    /// have begun at that time.
    fn somewhere(self) -> LogPosition {
        LogPosition { epoch: format!("{:012x}{}", self.begun, "f".repeat(20)), seq: Seq(self.seq), entry: None }
    }

    fn parse(text: &str) -> Option<Self> {
        let (begun, seq) = text.split_once('-')?;
        Some(Self { begun: begun.parse().ok()?, seq: seq.parse().ok()? })
    }

    /// The name of an epoch begins with the time at which it began, 48 bits in hexadecimal.
    fn begun(epoch: &str) -> Result<u64, String> {
        let digits = epoch.get(..12).and_then(|digits| u64::from_str_radix(digits, 16).ok());
        digits.ok_or_else(|| format!("the epoch {epoch:?} does not begin with a time"))
    }
}

/// Entries for one stream.
struct Addition<'b> {
    stream: String,
    id: Id,
    /// The entry's own.
    name: String,
    kind: &'static str,
    /// Its place in the log.
    position: LogPosition,
    line: &'b [u8],
}

impl<'b> Addition<'b> {
    fn of(template: &Template, item: &'b Item) -> Result<Self, String> {
        let entry = item.header().map_err(|error| format!("it is {error}"))?;
        Ok(Self {
            stream: template.render(entry, str::to_owned),
            id: Id { begun: Id::begun(&entry.epoch)?, seq: item.seq.0 },
            kind: entry.op.as_str(),
            position: LogPosition::at(entry),
            name: entry.id.to_string(),
            line: &item.line,
        })
    }

    fn add(&self, max_len: Option<u64>, again: bool) -> redis::Cmd {
        let mut command = redis::cmd("XADD");
        if again {
            command.arg(format!("{}{AGAIN}", self.stream));
        } else {
            command.arg(&self.stream);
        }
        if let Some(most) = max_len {
            command.arg("MAXLEN").arg("~").arg(most);
        }
        if again {
            command.arg("*");
        } else {
            command.arg(self.id.to_string());
        }
        command.arg("id").arg(&self.name).arg("seq").arg(self.id.seq).arg("epoch").arg(&self.position.epoch);
        command.arg("type").arg(self.kind).arg("entry").arg(self.line);
        command
    }
}

impl RedisSink {
    /// A sink for the server that the configuration names; nothing is connected yet.
    ///
    /// # Errors
    /// Where the configuration can never work.
    pub fn new(config: &Settings) -> Result<Self, String> {
        Ok(Self {
            link: Link::new(config)?,
            stream: config.stream.clone(),
            max_len: config.max_len,
            batch_size: config.batch_size.max(1),
            again: false,
            known: None,
            sent: None,
            unsure: None,
        })
    }

    /// The one stream that everything goes to, where there is one.
    fn fixed(&self) -> Option<&str> {
        self.stream.fixed()
    }

    async fn send(&mut self, batch: &[Item]) -> Result<(), Failure> {
        let nothing = |error| Failure { taken: 0, error };
        if self.link.ready().await.map_err(nothing)? {
            self.look_for_loss().await.map_err(nothing)?;
        }
        let mut additions = Vec::with_capacity(batch.len());
        let mut never = None;
        for item in batch {
            match Addition::of(&self.stream, item) {
                Ok(_) if item.line.len() as u64 > self.link.largest() => {
                    never = Some(format!(
                        "its {} bytes are more than {} takes in one value; raise proto-max-bulk-len there, or {LESS}",
                        item.line.len(),
                        self.link.shown()
                    ));
                }
                Ok(addition) => additions.push(addition),
                Err(text) => never = Some(text),
            }
            if never.is_some() {
                break;
            }
        }
        if !additions.is_empty() {
            self.add(&additions).await?;
        }
        match never {
            Some(text) => Err(Failure { taken: additions.len(), error: SinkError::Refused { text } }),
            None => Ok(()),
        }
    }

    /// Adds entries. To one stream, what follows the first only when that is there.
    async fn add(&mut self, additions: &[Addition<'_>]) -> Result<(), Failure> {
        let alone = usize::from(additions.len() > 1 && !self.again && self.stream.is_fixed());
        let (first, others) = additions.split_at(alone);
        if !first.is_empty() {
            self.add_at_once(first).await?;
        }
        let behind = |failure: Failure| Failure { taken: alone + failure.taken, ..failure };
        self.add_at_once(others).await.map_err(behind)
    }

    /// One transaction.
    async fn add_at_once(&mut self, additions: &[Addition<'_>]) -> Result<(), Failure> {
        let commands = additions.iter().map(|addition| addition.add(self.max_len, self.again)).collect();
        let counts = !self.again && self.stream.is_fixed();
        let last = additions.last().map(|addition| addition.id).filter(|_| counts);
        self.sent = self.sent.max(last);
        let answers = match self.link.transaction(commands).await {
            Ok(answers) => answers,
            Err(error) => {
                self.unsure = self.unsure.max(last);
                return Err(Failure { taken: 0, error });
            }
        };
        for (taken, (answer, addition)) in answers.iter().zip(additions).enumerate() {
            if let Value::ServerError(error) = answer {
                let failed = |error| Failure { taken, error };
                if !link::is_not_greater(error) {
                    return Err(failed(self.link.meaning(error)));
                }
                self.must_be_there(addition).await.map_err(failed)?;
            }
            if counts && !self.is_known(addition.id) {
                self.known = Some(addition.position.clone());
            }
        }
        // A retry deals with the first entry of the batch alone: what follows it may still be there as well.
        self.unsure = self.unsure.filter(|unsure| last.is_some_and(|last| last < *unsure));
        Ok(())
    }

    /// The stream took this id or a later one already, says the server.
    async fn must_be_there(&mut self, addition: &Addition<'_>) -> Result<(), SinkError> {
        let Addition { stream, id, line, .. } = addition;
        let found = self.link.entry(stream, *id).await?;
        let is_ours = |(name, value): &(String, Vec<u8>)| name == "entry" && value == line;
        match found {
            Some((_, fields)) if fields.iter().any(is_ours) => {
                if self.was_under_way(*id) {
                    return Ok(());
                }
                Err(self.foreign(stream, &format!("got the id {id} from somewhere else")))
            }
            Some(_) => Err(self.foreign(stream, &format!("has another entry under the id {id}"))),
            None => match self.link.tail(stream).await? {
                Some(tail) if self.was_there(*id, &tail) => Ok(()),
                _ => Err(self.foreign(stream, &format!("has ids after {id}, and not that one"))),
            },
        }
    }

    /// Reports whether an id that is missing in the stream was there, and has been removed.
    fn was_there(&self, id: Id, tail: &Tail) -> bool {
        let dropped = tail.first.is_none_or(|first| id < first) || tail.deleted.is_some_and(|deleted| id <= deleted);
        if !self.stream.is_fixed() {
            // Only what this sink adds has ids of this epoch.
            return dropped && tail.last.begun == id.begun && tail.last >= id;
        }
        // It was there before, or nothing is there that was not sent from here.
        dropped && self.was_under_way(id) && (self.is_known(id) || Some(tail.last) <= self.sent)
    }

    /// Reports whether the stream had this id when its end was last read.
    fn is_known(&self, id: Id) -> bool {
        self.known.as_ref().and_then(|known| Id::of(known).ok()).is_some_and(|known| id <= known)
    }

    /// Reports whether an entry in the stream can be from an unanswered attempt of this sink. For many streams only the cursor
    /// tells, which lags after a crash.
    fn was_under_way(&self, id: Id) -> bool {
        !self.stream.is_fixed() || self.is_known(id) || self.unsure.is_some_and(|unsure| id <= unsure)
    }

    fn foreign(&self, stream: &str, what: &str) -> SinkError {
        SinkError::halt(format!(
            "the stream {stream} of {} {what}: something else writes to it; give `stream` a name that only this sink writes to, and send SIGHUP",
            self.link.shown()
        ))
    }

    /// After a connection was made: whether the server still has what it had.
    async fn look_for_loss(&mut self) -> Result<(), SinkError> {
        let (Some(known), Some(stream)) = (self.known.clone(), self.fixed().map(str::to_owned)) else { return Ok(()) };
        let last = Id::of(&known).map_err(SinkError::halt)?;
        let is_there = |tail: Tail| match &tail.end {
            End::Entry(entry) if tail.last == last => entry.is(&known),
            End::Entry(_) | End::Foreign | End::Gone => tail.last >= last,
        };
        if self.link.tail(&stream).await?.is_some_and(is_there) {
            return Ok(());
        }
        self.known = None;
        Err(SinkError::lost(format!(
            "{} came back without entries that it had taken, and gets them again",
            self.link.shown()
        )))
    }

    async fn held(&mut self, cursor: &LogPosition) -> Result<Option<LogPosition>, SinkError> {
        // Of many streams none says what the others hold.
        let Some(stream) = self.fixed().map(str::to_owned) else { return Ok(None) };
        self.link.ready().await?;
        let Some(tail) = self.link.tail(&stream).await? else {
            self.known = None;
            return Ok(Some(LogPosition::before(&cursor.epoch)));
        };
        let last = tail.last;
        let held = match tail.end {
            End::Entry(entry) => Some(entry),
            End::Foreign => return Err(self.foreign(&stream, "ends with something that is not of decklog")),
            End::Gone => self.held_by_id(last, cursor).map_err(SinkError::halt)?,
        };
        self.known.clone_from(&held);
        Ok(held)
    }

    /// Returns the position of a stream whose last entry was removed, by the id of that entry.
    fn held_by_id(&self, last: Id, cursor: &LogPosition) -> Result<Option<LogPosition>, String> {
        if let Some(known) = self.known.as_ref().filter(|known| Id::of(known) == Ok(last)) {
            return Ok(Some(known.clone()));
        }
        let ours = Id::begun(&cursor.epoch)?;
        let is_confirmed = last.seq <= cursor.seq.0 || Some(last) <= self.sent;
        if !is_confirmed || last.begun > ours {
            return Ok(Some(last.somewhere()));
        }
        // Of an earlier epoch nothing more can be said, and the cursor is past it.
        let is_ours = last.begun == ours;
        Ok(is_ours.then(|| LogPosition { epoch: cursor.epoch.clone(), seq: Seq(last.seq), entry: None }))
    }

    /// Reports whether the stream holds this very entry.
    async fn has(&mut self, entry: &LogPosition) -> Result<Option<bool>, SinkError> {
        let (Some(stream), Ok(id)) = (self.fixed().map(str::to_owned), Id::of(entry)) else { return Ok(None) };
        self.link.ready().await?;
        if let Some((_, fields)) = self.link.entry(&stream, id).await? {
            return Ok(Some(link::position(&fields).is_some_and(|found| found.is(entry))));
        }
        // Without an entry before it, it may have been trimmed or deleted.
        let first = self.link.tail(&stream).await?.and_then(|tail| tail.first);
        Ok(first.filter(|first| *first < id).map(|_| false))
    }
}

impl Sink for RedisSink {
    fn class(&self) -> Class {
        Class::AtLeastOnce
    }

    fn limits(&self) -> Limits {
        Limits { entries: self.batch_size, bytes: BATCH_BYTES, linger: Duration::ZERO }
    }

    fn position<'a>(&'a mut self, cursor: &'a LogPosition) -> BoxFuture<'a, Result<Option<LogPosition>, SinkError>> {
        self.held(cursor).boxed()
    }

    fn holds<'a>(&'a mut self, entry: &'a LogPosition) -> BoxFuture<'a, Result<Option<bool>, SinkError>> {
        self.has(entry).boxed()
    }

    fn epochs(&mut self) -> BoxFuture<'_, Result<BTreeMap<String, Seq>, SinkError>> {
        async {
            let mut epochs = BTreeMap::new();
            let Some(stream) = self.fixed().map(str::to_owned) else { return Ok(epochs) };
            self.link.ready().await?;
            let mut from = Id { begun: 0, seq: 0 };
            while let Some((id, fields)) = self.link.first_from(&stream, from).await? {
                let Some(id) = Id::parse(&id) else { break };
                note_first(&mut epochs, link::position(&fields));
                from = Id { begun: id.begun + 1, seq: 0 };
            }
            Ok(epochs)
        }
        .boxed()
    }

    fn deliver<'a>(&'a mut self, batch: &'a [Item]) -> BoxFuture<'a, Result<(), Failure>> {
        self.send(batch).boxed()
    }

    fn reopen(&mut self) {
        self.link.renew();
    }

    fn enter_replay(&mut self) {
        self.again = true;
    }

    fn check(&mut self) -> BoxFuture<'_, Result<(), SinkError>> {
        async {
            self.link.ready().await?;
            let stream = self.fixed().map(str::to_owned);
            if let Some(stream) = &stream {
                self.link.tail(stream).await?;
            }
            // A transaction that is given up changes nothing, and still asks whether it would be allowed.
            self.link.rehearse(stream.as_deref().unwrap_or("decklog")).await
        }
        .boxed()
    }
}
