//! Redis streams: at least once, in order, and in effect exactly once where a stream is only ours.
//!
//! An entry's id in the stream is made from the entry: the time at which its epoch began, and its seq. So ids grow with
//! the log, over epochs as well, and Redis itself refuses what it has already. A batch is one transaction, so that an
//! entry never follows one that is missing. What is refused is read back: it is there, or was and has been trimmed, or
//! somebody else writes to the stream.
//!
//! The stream also says how far it goes, so that a server that was put back, or lost its last second in a crash, is
//! filled up again.

mod link;
#[cfg(test)]
mod tests;

use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use redis::Value;

use super::template::Template;
use super::{Class, Failure, Item, LESS, Limits, Position, Sink, SinkError};
use crate::config;
use crate::model::Seq;
use crate::wire::Entry;
use link::{Link, Stored};

/// About how many bytes one transaction carries, unless a single entry is larger.
const BATCH_BYTES: usize = 1 << 20;

/// What is added to the name of a stream for what is replayed: a stream takes nothing out of order.
const AGAIN: &str = ":again";

/// A server with streams.
#[derive(Debug)]
pub struct RedisSink {
    link: Link,
    stream: Template,
    max_len: Option<u64>,
    batch_size: usize,
    again: bool,
    /// The last id that the stream got, where there is one stream: a server that comes back without it has lost
    /// entries.
    last: Option<(String, Id)>,
}

/// The id of an entry in a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Id {
    /// When the entry's epoch began, in milliseconds.
    begun: u64,
    seq: u64,
}

impl std::fmt::Display for Id {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}-{}", self.begun, self.seq)
    }
}

impl Id {
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

/// What goes to a stream.
struct Addition<'b> {
    stream: String,
    id: Id,
    /// The entry's own.
    name: String,
    epoch: String,
    kind: &'static str,
    line: &'b [u8],
}

impl<'b> Addition<'b> {
    fn of(template: &Template, item: &'b Item) -> Result<Self, String> {
        let identity = item.identity();
        let entry = Entry::parse(&identity).map_err(|error| format!("it is {error}"))?;
        Ok(Self {
            stream: template.render(&entry, str::to_owned),
            id: Id { begun: Id::begun(&entry.epoch)?, seq: item.seq.0 },
            kind: entry.kind().as_str(),
            name: entry.id.into_owned(),
            epoch: entry.epoch.into_owned(),
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
        command.arg("id").arg(&self.name).arg("seq").arg(self.id.seq).arg("epoch").arg(&self.epoch);
        command.arg("type").arg(self.kind).arg("entry").arg(self.line);
        command
    }
}

impl RedisSink {
    /// A sink for the server that the configuration names; nothing is connected yet.
    ///
    /// # Errors
    /// Where the configuration can never work.
    pub fn new(config: &config::RedisSink) -> Result<Self, String> {
        Ok(Self {
            link: Link::new(config)?,
            stream: Template::parse(&config.stream).map_err(|(found, _)| format!("`stream` is {found}"))?,
            max_len: config.max_len,
            batch_size: config.batch_size.max(1),
            again: false,
            last: None,
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

    /// One transaction.
    async fn add(&mut self, additions: &[Addition<'_>]) -> Result<(), Failure> {
        let commands = additions.iter().map(|addition| addition.add(self.max_len, self.again)).collect();
        let answers = match self.link.transaction(commands).await {
            Ok(answers) => answers,
            Err(error) => return Err(Failure { taken: 0, error }),
        };
        for (taken, (answer, addition)) in answers.iter().zip(additions).enumerate() {
            if let Value::ServerError(error) = answer {
                let failed = |error| Failure { taken, error };
                if !link::is_not_greater(error) {
                    return Err(failed(self.link.meaning(error)));
                }
                self.must_be_there(addition).await.map_err(failed)?;
            }
            if !self.again && self.stream.is_fixed() {
                self.last = Some((addition.stream.clone(), addition.id));
            }
        }
        Ok(())
    }

    /// The stream took this id or a later one already, says the server.
    async fn must_be_there(&mut self, addition: &Addition<'_>) -> Result<(), SinkError> {
        let Addition { stream, id, line, .. } = addition;
        let mut range = redis::cmd("XRANGE");
        range.arg(stream).arg(id.to_string()).arg(id.to_string());
        let found: Vec<Stored> = self.link.ask(&range).await?;
        let is_ours = |(name, value): &(String, Vec<u8>)| name == "entry" && value == line;
        let shown = self.link.shown().to_owned();
        let foreign = |what: &str| {
            SinkError::halt(format!(
                "the stream {stream} of {shown} {what}: something else writes to it; give `stream` a name that only this sink writes to, and send SIGHUP"
            ))
        };
        match found.first() {
            Some((_, fields)) if fields.iter().any(is_ours) => Ok(()),
            Some(_) => Err(foreign(&format!("has another entry under the id {id}"))),
            // It came before a later one, and only what this sink adds has ids of this epoch.
            None if self
                .link
                .tail(stream)
                .await?
                .is_some_and(|tail| tail.last.begun == id.begun && tail.last >= *id) =>
            {
                Ok(())
            }
            None => Err(foreign(&format!("has ids after {id}, and not that one"))),
        }
    }

    /// After a connection was made: whether the server still has what it had.
    async fn look_for_loss(&mut self) -> Result<(), SinkError> {
        let Some((stream, last)) = self.last.clone() else { return Ok(()) };
        let tail = self.link.tail(&stream).await?;
        if tail.is_some_and(|tail| tail.last >= last) {
            return Ok(());
        }
        self.last = None;
        Err(SinkError::lost(format!(
            "{} came back without entries that it had taken, and gets them again",
            self.link.shown()
        )))
    }

    async fn held(&mut self, cursor: &Position) -> Result<Option<Position>, SinkError> {
        // Of many streams none says what the others hold.
        let Some(stream) = self.fixed().map(str::to_owned) else { return Ok(None) };
        self.link.ready().await?;
        let Some(tail) = self.link.tail(&stream).await? else {
            return Ok(Some(Position { epoch: cursor.epoch.clone(), seq: Seq(0) }));
        };
        // The last id outlives the entries themselves, which a consumer may have taken out.
        let ours = Id::begun(&cursor.epoch).map_err(SinkError::halt)?;
        Ok(if tail.last.begun == ours {
            Some(Position { epoch: cursor.epoch.clone(), seq: Seq(tail.last.seq) })
        } else {
            tail.epoch.map(|epoch| Position { epoch, seq: Seq(tail.last.seq) })
        })
    }
}

impl Sink for RedisSink {
    fn class(&self) -> Class {
        Class::AtLeastOnce
    }

    fn limits(&self) -> Limits {
        Limits { entries: self.batch_size, bytes: BATCH_BYTES, linger: Duration::ZERO }
    }

    fn position<'a>(&'a mut self, cursor: &'a Position) -> BoxFuture<'a, Result<Option<Position>, SinkError>> {
        self.held(cursor).boxed()
    }

    fn deliver<'a>(&'a mut self, batch: &'a [Item]) -> BoxFuture<'a, Result<(), Failure>> {
        self.send(batch).boxed()
    }

    fn reopen(&mut self) {
        self.link.renew();
    }

    fn again(&mut self) {
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
