//! The shared log: what a journal holds, kept in an engine that outlives the machine, one *unit* after the other.
//!
//! A unit is everything that one transaction of the journal brings: entries, the objects' states, checkpoints and cursors.
//! Units are numbered without a hole, and a unit is appended only where the one before it is the newest. That is all the
//! safety there is: whoever leads reads the log to its end and appends a unit that says so; whoever led before finds its
//! next number taken. An engine knows nothing of leaders, and a unit is bytes to it.
//!
//! Where somebody deletes a unit, there is a hole. No engine takes what comes before it for the whole log, and none gives its
//! number to another unit: what is behind it has happened, and who reads has to learn that something is missing.
//!
//! A *base* is the whole journal behind the unit with its number, in parts. It stands in the place of all units up to that
//! one, which may then be removed, so the log does not grow for ever.
//!
//! # Decision: the shared log is the journal's rows
//!
//! Context: A restore from entries would have to rebuild everything that is no entry: silent states, cursors, marks, half
//! lists.
//! Decision: A unit is the set of rows that a transaction touched, noted by triggers, for every table. A standby is a copy row
//! by row, and a restore follows from nothing. A base is all rows at one moment. Units name their schema; new columns get
//! their defaults.
//! Cost: Our own format, and migrations that do more than add need a rule in `rows.rs`.
//!
//! # Decision: a unit's number is the fence
//!
//! Context: Two leaders must never both write.
//! Decision: An engine accepts unit N only behind N-1. Who takes over reads to the end and appends; the former leader finds
//! its number taken. A conditional PUT is enough for that, and a lost answer is healed by comparing bytes. Each unit has the
//! digest of the previous one. JetStream has the condition over one subject; Kafka has none, and keeps no shared log.
//! Cost: One exchange with the engine for each commit.

use bytes::Bytes;
use futures::future::BoxFuture;

/// About how many bytes a part of a base has, and how many bytes of units are read at once.
pub const PART_BYTES: usize = 4 << 20;

/// Reason why an engine did not carry out a request. The texts are for people and say what to do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LogError {
    /// It may work later.
    #[error("{0}")]
    Retry(String),
    /// Permanent: an operator has to act first.
    #[error("{0}")]
    Halt(String),
}

/// Result of an append.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Appended {
    /// The unit is there for good. Also where it was there already, to the byte: the answer to an earlier try was lost.
    Done,
    /// Another unit has this number, or had it, because there are later ones: somebody else leads.
    Taken,
    /// The newest is this one, which is not the one before: the engine was restored to an earlier state. Also where the one
    /// before is there and is another one than this handle appended or read: then this is the last that both may share.
    Behind(u64),
}

/// Contents of an engine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Extent {
    /// The oldest unit that is there; none where there is no unit.
    pub oldest: Option<u64>,
    /// The newest unit or base, also where one before it is missing; 0 where there is nothing. Numbers begin with 1.
    pub newest: u64,
    /// The bases that are whole, the oldest first.
    pub bases: Vec<Base>,
}

/// A base that is whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Base {
    /// The unit behind which it is the journal.
    pub number: u64,
    /// Number of parts, numbered from 0.
    pub parts: u32,
}

/// A unit as it is read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Numbered {
    /// Its number.
    pub number: u64,
    /// Contents of the unit.
    pub bytes: Bytes,
}

/// An engine. Every future may be dropped at any await, and the engine is used again afterwards; what was asked for may then
/// be done or not.
pub trait SharedLog: Send {
    /// Returns the location in a sentence, without secrets.
    fn shown(&self) -> String;

    /// Returns the extent of the log. Called at a start, and at a take-over.
    fn extent(&mut self) -> BoxFuture<'_, Result<Extent, LogError>>;

    /// Keeps everybody out who appended before, where the engine does not refuse by number alone. Called once by whoever takes
    /// over, before it reads to the end.
    fn fence(&mut self) -> BoxFuture<'_, Result<(), LogError>> {
        Box::pin(std::future::ready(Ok(())))
    }

    /// Appends one unit, atomically and durably, where `number - 1` is the newest unit or base. A number that is free and has later
    /// ones behind it is a hole, and stays one.
    fn append(&mut self, number: u64, bytes: Bytes) -> BoxFuture<'_, Result<Appended, LogError>>;

    /// The units after this one, in order, without a hole, as far as they are there: about `bytes` of them, and one at least
    /// where there is one. Nothing where the next one is not there: yet, or any more; what comes behind it is not given. Who has the
    /// unit `after` goes on where it is missing there. Where the one with the number is there and
    /// is another one than this handle appended or read, that is an error once; who asks again compares.
    fn read(&mut self, after: u64, bytes: usize) -> BoxFuture<'_, Result<Vec<Numbered>, LogError>>;

    /// Stores a part of a base. It is nothing before [`SharedLog::finish_base`]; written again it is replaced.
    fn put_part(&mut self, number: u64, part: u32, bytes: Bytes) -> BoxFuture<'_, Result<(), LogError>>;

    /// All parts of a base are stored: it is whole from here on. From then on a unit may follow it, also where the
    /// units before it are not there.
    fn finish_base(&mut self, base: Base) -> BoxFuture<'_, Result<(), LogError>>;

    /// A part of a base that is whole.
    fn part(&mut self, number: u64, part: u32) -> BoxFuture<'_, Result<Bytes, LogError>>;

    /// Removes units up to this one, and bases of before it, as far as a base stands in their place: up to the newest base
    /// that is not after `upto`. What is gone already is no error.
    fn truncate(&mut self, upto: u64) -> BoxFuture<'_, Result<(), LogError>>;

    /// Returns what has to exist beside the objects of the sink itself, as a text that an operator can apply without decklog.
    /// `None`: nothing.
    fn provisioning_script(&self) -> Option<String> {
        None
    }

    /// Makes what [`SharedLog::provisioning_script`] says, for `decklog sink init`. What exists already stays. Gives a sentence
    /// about what was made; none where there is nothing to make.
    fn provision(&mut self) -> BoxFuture<'_, Result<Option<String>, LogError>> {
        Box::pin(std::future::ready(Ok(None)))
    }

    /// Checks for obstacles, for `decklog check`. Changes nothing.
    fn check(&mut self) -> BoxFuture<'_, Result<(), LogError>>;
}
