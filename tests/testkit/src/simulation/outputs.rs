//! Outputs that outlive decklog and can be taken from it: a table that holds a position of its own, a place that holds
//! none, and the gate before any of them, at which a sink finds nobody or waits for ever.
//!
//! The table stands in for an engine that keeps the cursor beside the entries and moves both in one transaction.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use decklog::core::model::Seq;
use decklog::sink::file::FileSink;
use decklog::sink::file::Settings as FileConfig;
use decklog::sink::{Class, Failure, Item, Limits, LogPosition, Sink, SinkError};
use futures::FutureExt;
use futures::future::BoxFuture;
use tokio::time::{Instant, sleep};

use super::faults::Fault;
use super::stage::Stage;

/// What names an entry for a consumer.
pub type Key = (String, u64);

/// One entry as an output holds it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    pub key: Key,
    pub text: Arc<str>,
    /// What it says, whatever its epoch is called.
    pub told: Told,
}

/// A seq, and an entry without the name of its epoch: an output whose numbers are taken may get it under a later one.
pub type Told = (u64, Arc<str>);

impl Line {
    /// Reads what names it off its beginning, where the contract has it.
    pub fn of(text: &str) -> Result<Self, String> {
        let read = || {
            let (seq, rest) = text.strip_prefix(r#"{"v":1,"seq":"#)?.split_once(r#","epoch":""#)?;
            let (epoch, _) = rest.split_once('"')?;
            Some((epoch.to_owned(), seq.parse().ok()?))
        };
        match read() {
            Some(key) => {
                let told = (key.1, text.replace(&key.0, "").into());
                Ok(Self { key, text: text.into(), told })
            }
            None => Err(format!("no entry: {text:.120}")),
        }
    }

    fn of_item(item: &Item) -> Result<Self, String> {
        Self::of(&String::from_utf8_lossy(&item.line))
    }
}

/// Whether anybody is behind a gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Behind {
    /// Nobody takes the connection, or the disk is not mounted.
    Nobody,
    /// Somebody who takes it and says nothing.
    Silence,
}

/// What stands between a sink and its output, and opens again by itself.
#[derive(Debug, Default)]
pub struct Gate(Mutex<Option<(Behind, Instant)>>);

impl Gate {
    pub fn shut(&self, behind: Behind, time: Duration) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some((behind, Instant::now() + time));
    }

    pub fn open(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    pub fn is_shut(&self) -> Option<Behind> {
        let shut = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        shut.filter(|(_, until)| *until > Instant::now()).map(|(behind, _)| behind)
    }

    /// Comes back when the output is there, or with what a sink says where it is not.
    async fn pass(&self) -> Result<(), SinkError> {
        loop {
            match self.is_shut() {
                None => return Ok(()),
                Some(Behind::Nobody) => return Err(SinkError::retry("nobody answers there; start it")),
                Some(Behind::Silence) => sleep(Duration::from_millis(500)).await,
            }
        }
    }
}

/// A sink behind a gate. What a dead process still asks for reaches nobody.
pub struct Gated {
    pub name: String,
    pub stage: Arc<Stage>,
    pub alive: Arc<AtomicBool>,
    pub gate: Arc<Gate>,
    pub inner: Box<dyn Sink>,
}

impl Sink for Gated {
    fn class(&self) -> Class {
        self.inner.class()
    }

    fn limits(&self) -> Limits {
        self.inner.limits()
    }

    fn position<'a>(&'a mut self, cursor: &'a LogPosition) -> BoxFuture<'a, Result<Option<LogPosition>, SinkError>> {
        async move {
            self.gate.pass().await?;
            if !self.alive.load(Ordering::Relaxed) {
                return std::future::pending().await;
            }
            let held = self.inner.position(cursor).await;
            self.stage.note(format_args!("{}: asked at {cursor:?}, holds {held:?}", self.name));
            held
        }
        .boxed()
    }

    fn holds<'a>(&'a mut self, entry: &'a LogPosition) -> BoxFuture<'a, Result<Option<bool>, SinkError>> {
        async move {
            self.gate.pass().await?;
            if !self.alive.load(Ordering::Relaxed) {
                return std::future::pending().await;
            }
            let held = self.inner.holds(entry).await;
            self.stage.note(format_args!("{}: holds {entry:?}: {held:?}", self.name));
            held
        }
        .boxed()
    }

    fn epochs(&mut self) -> BoxFuture<'_, Result<BTreeMap<String, Seq>, SinkError>> {
        async move {
            self.gate.pass().await?;
            if !self.alive.load(Ordering::Relaxed) {
                return std::future::pending().await;
            }
            self.inner.epochs().await
        }
        .boxed()
    }

    fn diverged(&mut self, after: Seq) {
        self.inner.diverged(after);
    }

    fn deliver<'a>(&'a mut self, batch: &'a [Item]) -> BoxFuture<'a, Result<(), Failure>> {
        async move {
            self.gate.pass().await.map_err(|error| Failure { taken: 0, error })?;
            if !self.alive.load(Ordering::Relaxed) {
                return std::future::pending().await;
            }
            let done = self.inner.deliver(batch).await;
            if done.is_ok() {
                self.stage.moment(&self.name);
            }
            done
        }
        .boxed()
    }

    fn reopen(&mut self) {
        self.inner.reopen();
    }

    fn check(&mut self) -> BoxFuture<'_, Result<(), SinkError>> {
        self.inner.check()
    }
}

/// What a table holds.
#[derive(Clone, Debug, Default)]
pub struct Rows {
    /// In the order in which they came.
    pub lines: Vec<Line>,
    by_key: BTreeMap<Key, Arc<str>>,
    /// The row of the cursor.
    cursor: Option<Key>,
}

/// A table of entries and the row of a cursor. Clones are handles of the same.
#[derive(Clone, Debug, Default)]
pub struct Table(Arc<Mutex<Rows>>);

impl Table {
    pub fn lock(&self) -> MutexGuard<'_, Rows> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Replaces what it holds, and gives what it held.
    pub fn replace(&self, rows: Rows) -> Rows {
        std::mem::replace(&mut *self.lock(), rows)
    }
}

/// Delivers to a table, as sinks for engines with transactions do.
pub struct TableSink {
    stage: Arc<Stage>,
    table: Table,
    /// What the row of the cursor said last. None: nobody has looked yet.
    known: Option<Option<Key>>,
    /// What it says if the last commit went through, which was not answered.
    pending: Option<Key>,
}

impl TableSink {
    pub fn new(stage: &Arc<Stage>, table: &Table) -> Self {
        Self { stage: Arc::clone(stage), table: table.clone(), known: None, pending: None }
    }

    /// Where the cursor has to be for this sink to go on, or why it does not; and how many of the batch are there.
    fn go_on(&self, rows: &Rows, batch: &[Line]) -> Result<usize, SinkError> {
        let at = rows.cursor.as_ref();
        if at.is_some() && self.pending.as_ref() == at {
            // Of the same name is not the same: somebody else may have written it.
            let there =
                batch.iter().position(|line| rows.by_key.get(&line.key) == Some(&line.text) && Some(&line.key) == at);
            return match there {
                Some(there) => Ok(there + 1),
                None if batch.iter().any(|line| Some(&line.key) == at) => {
                    Err(SinkError::lost("the table has another entry where the last one was written"))
                }
                None => Ok(0),
            };
        }
        match &self.known {
            None => Ok(0),
            Some(known) if known.as_ref() == at => Ok(0),
            Some(known) if known.as_ref() > at => {
                Err(SinkError::lost("the table was put back to an earlier state, and gets the rest again"))
            }
            Some(_) => Err(SinkError::halt("another decklog delivers to this table; stop it and send SIGHUP")),
        }
    }

    /// One transaction.
    fn transact(&mut self, batch: &[Line]) -> Result<(), SinkError> {
        let mut rows = self.table.lock();
        let first = self.go_on(&rows, batch)?;
        let fresh = &batch[first..];
        for line in fresh {
            if rows.by_key.get(&line.key).is_some_and(|text| *text != line.text) {
                return Err(SinkError::halt(format!(
                    "the table holds another entry as {:?}; give the sink another table and send SIGHUP",
                    line.key
                )));
            }
        }
        for line in fresh {
            if rows.by_key.insert(line.key.clone(), Arc::clone(&line.text)).is_none() {
                rows.lines.push(line.clone());
            }
        }
        let upto = batch.last().map(|line| line.key.clone());
        self.known = Some(rows.cursor.clone());
        self.pending.clone_from(&upto);
        rows.cursor = upto;
        Ok(())
    }
}

impl Sink for TableSink {
    fn class(&self) -> Class {
        Class::ExactlyOnce
    }

    fn limits(&self) -> Limits {
        Limits { entries: 23, bytes: 1 << 20, linger: Duration::ZERO }
    }

    fn position<'a>(&'a mut self, cursor: &'a LogPosition) -> BoxFuture<'a, Result<Option<LogPosition>, SinkError>> {
        async move {
            sleep(Duration::from_millis(2)).await;
            let rows = self.table.lock();
            let at = rows.cursor.clone();
            (self.known, self.pending) = (Some(at.clone()), None);
            // One that holds nothing gets everything.
            let Some((epoch, seq)) = at else { return Ok(Some(LogPosition::before(&cursor.epoch))) };
            let line = rows.by_key.get(&(epoch.clone(), seq));
            let entry = line.and_then(|line| LogPosition::of(line.as_bytes()).ok()).and_then(|place| place.entry);
            Ok(Some(LogPosition { epoch, seq: Seq(seq), entry }))
        }
        .boxed()
    }

    fn holds<'a>(&'a mut self, entry: &'a LogPosition) -> BoxFuture<'a, Result<Option<bool>, SinkError>> {
        async move {
            sleep(Duration::from_millis(2)).await;
            let rows = self.table.lock();
            let line = rows.by_key.get(&(entry.epoch.clone(), entry.seq.0));
            Ok(Some(line.is_some_and(|line| LogPosition::of(line.as_bytes()).is_ok_and(|place| place.is(entry)))))
        }
        .boxed()
    }

    fn epochs(&mut self) -> BoxFuture<'_, Result<BTreeMap<String, Seq>, SinkError>> {
        async move {
            sleep(Duration::from_millis(2)).await;
            let rows = self.table.lock();
            // Of the keys of an epoch the first comes last.
            Ok(rows.by_key.keys().rev().map(|(epoch, seq)| (epoch.clone(), Seq(*seq))).collect())
        }
        .boxed()
    }

    fn deliver<'a>(&'a mut self, batch: &'a [Item]) -> BoxFuture<'a, Result<(), Failure>> {
        async move {
            sleep(Duration::from_millis(2)).await;
            let lines: Result<Vec<Line>, String> = batch.iter().map(Line::of_item).collect();
            let lines = match lines {
                Ok(lines) => lines,
                Err(why) => {
                    self.stage.fail(format!("the table was sent {why}"));
                    return Ok(());
                }
            };
            let fault = self.stage.draw(&[Fault::SinkFails, Fault::LostAnswer]);
            if let Some(fault) = fault {
                self.stage.struck(fault, format_args!("table, {:?}", lines[0].key));
            }
            if fault == Some(Fault::SinkFails) {
                return Err(Failure { taken: 0, error: SinkError::retry("the engine fails") });
            }
            self.transact(&lines).map_err(|error| Failure { taken: 0, error })?;
            if fault == Some(Fault::LostAnswer) {
                return Err(Failure { taken: 0, error: SinkError::retry("the engine did not answer") });
            }
            (self.known, self.pending) = (Some(lines.last().map(|line| line.key.clone())), None);
            Ok(())
        }
        .boxed()
    }

    fn reopen(&mut self) {}

    fn check(&mut self) -> BoxFuture<'_, Result<(), SinkError>> {
        std::future::ready(Ok(())).boxed()
    }
}

/// Takes what it gets, and cannot say afterwards what it has.
pub struct Plain {
    pub stage: Arc<Stage>,
    /// What came, over all lives.
    pub into: Arc<Mutex<Vec<Line>>>,
}

impl Sink for Plain {
    fn class(&self) -> Class {
        Class::AtLeastOnce
    }

    fn limits(&self) -> Limits {
        Limits { entries: 17, bytes: 1 << 20, linger: Duration::ZERO }
    }

    fn position<'a>(&'a mut self, _: &'a LogPosition) -> BoxFuture<'a, Result<Option<LogPosition>, SinkError>> {
        std::future::ready(Ok(None)).boxed()
    }

    fn deliver<'a>(&'a mut self, batch: &'a [Item]) -> BoxFuture<'a, Result<(), Failure>> {
        async move {
            sleep(Duration::from_millis(1)).await;
            let fault = self.stage.draw(&[Fault::SinkPartial]);
            let taken = match fault {
                Some(_) => self.stage.throw(|dice| dice.roll(batch.len())),
                None => batch.len(),
            };
            for item in &batch[..taken] {
                match Line::of_item(item) {
                    Ok(line) => self.into.lock().unwrap_or_else(PoisonError::into_inner).push(line),
                    Err(why) => self.stage.fail(format!("the plain sink was sent {why}")),
                }
            }
            match fault {
                Some(fault) => {
                    self.stage.struck(fault, format_args!("{taken} of {}", batch.len()));
                    Err(Failure { taken, error: SinkError::retry("the simulation says so") })
                }
                None => Ok(()),
            }
        }
        .boxed()
    }

    fn reopen(&mut self) {}

    fn check(&mut self) -> BoxFuture<'_, Result<(), SinkError>> {
        std::future::ready(Ok(())).boxed()
    }
}

/// What the sinks of a simulation deliver to, whichever life delivers.
#[derive(Default)]
pub struct Outputs {
    pub table: Table,
    pub plain: Arc<Mutex<Vec<Line>>>,
    gates: Mutex<BTreeMap<String, Arc<Gate>>>,
}

impl Outputs {
    /// The gate of a sink.
    pub fn gate(&self, name: &str) -> Arc<Gate> {
        let mut gates = self.gates.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(gates.entry(name.to_owned()).or_default())
    }

    /// Opens every gate.
    pub fn open(&self) {
        for gate in self.gates.lock().unwrap_or_else(PoisonError::into_inner).values() {
            gate.open();
        }
    }

    /// A sink of this name for one life of decklog.
    pub fn sink(&self, name: &str, stage: &Arc<Stage>, alive: &Arc<AtomicBool>, file: &FileConfig) -> Box<dyn Sink> {
        let inner: Box<dyn Sink> = if name.starts_with("file") {
            Box::new(FileSink::new(file))
        } else if name.starts_with("table") {
            Box::new(TableSink::new(stage, &self.table))
        } else {
            let into = if name == "plain" { Arc::clone(&self.plain) } else { Arc::default() };
            Box::new(Plain { stage: Arc::clone(stage), into })
        };
        Box::new(Gated {
            name: name.to_owned(),
            stage: Arc::clone(stage),
            alive: Arc::clone(alive),
            gate: self.gate(name),
            inner,
        })
    }
}
