//! Leading: what transactions bring is in the shared log before it is on disk here, and before anybody sees it.
//!
//! The transaction of the database stays open around those of the writer until the engine has answered. The writer itself
//! knows by then what they brought. That is no harm: where the engine refuses, this writer ends, and nothing of it was seen.
//!
//! # Decision: a transaction stays open until the engine has answered
//!
//! Context: A leader must never take anything back.
//! Decision: Work between two answers is savepoints in one transaction, and others hear of it after the commit. If the engine
//! refuses, it is rolled back and the writer ends; the process starts again as a standby. A take-over happens in place,
//! because the watches have what the API server may have forgotten; the table `backlog` has their changes.
//! Cost: Each commit takes as long as the engine.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::time::Duration;

use bytes::Bytes;
use rusqlite::{Connection, OptionalExtension, params};

use super::apart;
use super::base::Snapshot;
use super::changeset::{self, Changeset, Table};
use super::transaction::{Committed, Notifications};
use super::unit::{self, Head};
use super::{Writer, micros, sql};
use crate::core::backoff::Backoff;
use crate::core::runtime::{self, watch};
use crate::core::shared_log::{Appended, Base, LogError, SharedLog};
use crate::journal::codec::Codec;
use crate::journal::error::Result;
use crate::journal::shared::{Role, Shared, Sharing};
use crate::journal::{JournalError, schema};

/// Backoff between attempts at an engine that does not answer.
const BACKOFF: Backoff = Backoff { first: Duration::from_millis(100), most: Duration::from_secs(2) };
/// Delay before the next attempt to store a base.
const BASE_RETRY_DELAY: Duration = Duration::from_secs(60);

const PLACE: &str = "note its place in the shared log";

/// Position of a journal in the shared log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Place {
    /// The newest unit that it has; 0 for none.
    pub(super) number: u64,
    /// The digest of that unit.
    pub(super) digest: String,
    /// Term of that unit.
    pub(super) term: u64,
}

impl Place {
    pub(super) fn read(conn: &Connection) -> Result<Option<Self>> {
        let text: Option<String> = conn
            .query_row("SELECT value FROM meta WHERE key = 'shared'", [], |row| row.get(0))
            .optional()
            .map_err(sql(PLACE))?;
        let read = |text: &str| {
            let mut words = text.split(' ');
            let (number, digest, term) = (words.next()?, words.next()?, words.next()?);
            Some(Self { number: number.parse().ok()?, digest: digest.to_owned(), term: term.parse().ok()? })
        };
        Ok(text.as_deref().and_then(read))
    }

    /// In the transaction that is open.
    pub(super) fn write(&self, conn: &Connection) -> Result {
        conn.execute(
            "INSERT OR REPLACE INTO meta VALUES ('shared', ?)",
            params![format!("{} {} {}", self.number, self.digest, self.term)],
        )
        .map(drop)
        .map_err(sql(PLACE))
    }
}

/// The journal's end of the shared log.
pub(super) struct Replication {
    /// Away while something is read from it.
    pub(super) log: Option<Box<dyn SharedLog>>,
    pub(super) shown: String,
    pub(super) identity: String,
    pub(super) key: String,
    pub(super) backlog_limit: u64,
    pub(super) poll: Duration,
    worth_a_base: u64,
    pub(super) tables: Vec<Table>,
    /// Tables of older schemas, as far as units of them were read.
    older: BTreeMap<usize, Vec<Table>>,
    pub(super) place: Place,
    pub(super) state: watch::Sender<Shared>,
    /// Asks for an end that waits for no engine.
    pub(super) step_down: watch::Receiver<bool>,
    /// Behind which unit it found that what follows does not follow, and which base was the newest then.
    pub(super) astray: Option<(u64, u64)>,
    /// Notifications about transactions, until the shared log has them.
    held: Vec<Notifications>,
    /// A base in the making.
    snapshot: Option<Snapshot>,
    /// Not before this moment.
    next_base: tokio::time::Instant,
    /// The newest base, and how many bytes it has.
    base: (u64, u64),
    /// Bytes of units since then.
    since_base: u64,
}

impl Replication {
    pub(super) fn new(
        conn: &Connection,
        sharing: Sharing,
        state: watch::Sender<Shared>,
        step_down: watch::Receiver<bool>,
    ) -> Result<Self> {
        let Sharing { log, identity, backlog, key, poll, worth_a_base } = sharing;
        let tables = changeset::tables(conn)?;
        changeset::begin(conn, &tables)?;
        conn.set_prepared_statement_cache_capacity(128);
        conn.execute("DELETE FROM backlog", []).map_err(sql("begin"))?;
        let place = Place::read(conn)?.unwrap_or_default();
        let (role, apart) = (Role::Standby, apart::noted(conn)?);
        state.send_replace(Shared { role, number: place.number, term: place.term, apart, ..Shared::default() });
        Ok(Self {
            shown: log.shown(),
            log: Some(log),
            identity,
            key,
            backlog_limit: backlog,
            poll,
            worth_a_base,
            tables,
            older: BTreeMap::new(),
            place,
            state,
            step_down,
            astray: None,
            held: Vec::new(),
            snapshot: None,
            next_base: tokio::time::Instant::now(),
            base: (0, 0),
            since_base: 0,
        })
    }

    pub(super) fn role(&self) -> Role {
        self.state.borrow().role
    }

    pub(super) fn change(&self, change: impl FnOnce(&mut Shared)) {
        self.state.send_if_modified(|state| {
            let before = state.clone();
            change(state);
            *state != before
        });
    }

    /// The engine did what it was asked, or did not.
    pub(super) fn answered<T>(&self, answer: Result<T, LogError>) -> Result<T, LogError> {
        let problem = answer.as_ref().err().map(ToString::to_string);
        if let Some(problem) = &problem
            && self.state.borrow().problem.is_none()
        {
            tracing::warn!("the shared log in {}: {problem}; it is tried again", self.shown);
        }
        self.change(|state| state.problem = problem);
        answer
    }

    /// The tables that somebody else's rows are of, where this decklog can take them.
    pub(super) fn tables_of(&mut self, head: &Head) -> Result<&[Table]> {
        let shown = &self.shown;
        if head.schema > schema::CURRENT {
            return Err(JournalError::Foreign(format!(
                "the shared log in {shown} is written by a newer decklog, with the schema {}, and this one knows {}; upgrade this one",
                head.schema,
                schema::CURRENT
            )));
        }
        if head.key != self.key {
            return Err(JournalError::Foreign(format!(
                "the shared log in {shown} is redacted with another key; give every decklog the same [redact] key_file"
            )));
        }
        if head.schema == schema::CURRENT {
            return Ok(&self.tables);
        }
        Ok(match self.older.entry(head.schema) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(unknown) => unknown.insert(changeset::tables_of(head.schema)?),
        })
    }

    pub(super) fn log(&mut self) -> &mut dyn SharedLog {
        &mut **self.log.as_mut().expect("it is away only within a wait that brings it back")
    }

    /// Rows with a head, behind the unit with this digest, or the beginning of something that stands on nothing before it.
    fn unit(
        &self,
        committed: &Committed,
        rows: &Changeset,
        codec: &mut Codec,
        term: u64,
        behind: (&str, bool),
    ) -> Bytes {
        let (previous, begins) = behind;
        let head = Head {
            v: Head::version(),
            schema: schema::CURRENT,
            term,
            leader: self.identity.clone(),
            cluster: committed.cluster.uid.clone(),
            previous: previous.to_owned(),
            seq: committed.head,
            time: micros(runtime::now()),
            key: self.key.clone(),
            begins,
        };
        unit::encode(&head, rows, codec).into()
    }
}

/// Returns when it is asked to step down. Where nobody is left who could ask, that is never.
async fn asked(step_down: &mut watch::Receiver<bool>) {
    if step_down.wait_for(|asked| *asked).await.is_err() {
        std::future::pending::<()>().await;
    }
}

/// The end of a writer that was asked to step down.
fn stepped_down() -> JournalError {
    JournalError::Superseded("it was asked to step down".to_owned())
}

impl Writer {
    /// Reports whether it writes the shared log.
    pub(super) fn leads(&self) -> bool {
        self.link.as_ref().is_some_and(|link| link.role() == Role::Leader)
    }

    /// Queues the notifications of a transaction: they go out now, or once the shared log has it.
    pub(super) fn publish_or_defer(&mut self, notifications: Notifications) {
        if self.leads()
            && let Some(link) = &mut self.link
        {
            link.held.push(notifications);
        } else {
            self.notify(notifications);
        }
    }

    /// Replicates the transactions since the last call to the shared log, then makes them durable, and then publishes them.
    pub(super) async fn settle(&mut self) -> Result {
        let Some(link) = &self.link else { return Ok(()) };
        if self.disk.is_begun() {
            let rows = Changeset::take(&self.disk.conn, &link.tables)?;
            let mut appended = false;
            if !rows.is_empty() {
                let term = link.state.borrow().term;
                let unit = link.unit(&self.committed, &rows, self.disk.codec(), term, (&link.place.digest, false));
                let place = Place { number: link.place.number + 1, digest: unit::digest(&unit), term };
                place.write(&self.disk.conn)?;
                if let Err(error) = self.append(place, unit).await {
                    self.disk.end(false)?;
                    return Err(error);
                }
                appended = true;
            }
            self.disk.end(true).map_err(|error| match appended {
                // It is healed by following.
                true => JournalError::Superseded(format!("the shared log has what the disk did not take ({error})")),
                false => error,
            })?;
        }
        let held = self.link.as_mut().map(|link| std::mem::take(&mut link.held)).unwrap_or_default();
        if let Some(link) = &self.link {
            let (number, now) = (link.place.number, runtime::now());
            link.change(|state| {
                if state.number != number {
                    (state.number, state.caught_up) = (number, Some(now));
                }
            });
        }
        for notifications in held {
            self.notify(notifications);
        }
        Ok(())
    }

    /// Appends a unit, for as long as it takes. It stands there for good when this returns.
    async fn append(&mut self, place: Place, unit: Bytes) -> Result {
        let mut failures = 0;
        loop {
            let Some(link) = &mut self.link else { return Ok(()) };
            let mut step_down = link.step_down.clone();
            let answer = tokio::select! {
                biased;
                answer = link.log().append(place.number, unit.clone()) => answer,
                () = asked(&mut step_down) => return Err(stepped_down()),
            };
            match link.answered(answer) {
                Ok(Appended::Done) => {
                    link.since_base += unit.len() as u64;
                    link.place = place;
                    return Ok(());
                }
                Ok(Appended::Taken) => {
                    return Err(JournalError::Superseded("another decklog has taken over".to_owned()));
                }
                Ok(Appended::Behind(newest)) => {
                    tracing::warn!(
                        "the shared log in {} ends with unit {newest} and had {}: it was restored to an earlier state",
                        link.shown,
                        link.place.number
                    );
                    // Only this journal has the rest, unless somebody has led since.
                    match self.newest_term().await {
                        Ok(term) if term > place.term => {
                            return Err(JournalError::Superseded("another decklog has taken over".to_owned()));
                        }
                        Ok(_) => self.store_base().await?,
                        Err(_) => {
                            failures += 1;
                            self.wait(failures).await?;
                        }
                    }
                }
                Err(_) => {
                    failures += 1;
                    self.wait(failures).await?;
                }
            }
        }
    }

    /// Waits before the engine is asked again.
    async fn wait(&mut self, failures: u32) -> Result {
        self.turns.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let Some(mut step_down) = self.link.as_ref().map(|link| link.step_down.clone()) else { return Ok(()) };
        tokio::select! {
            biased;
            () = asked(&mut step_down) => Err(stepped_down()),
            () = tokio::time::sleep(BACKOFF.wait(failures)) => Ok(()),
        }
    }

    /// Returns the term of the newest unit or base of the engine.
    pub(super) async fn newest_term(&mut self) -> Result<u64, LogError> {
        let Some(link) = &mut self.link else { return Ok(0) };
        let log = link.log();
        let extent = log.extent().await?;
        let unit = log.read(extent.newest.saturating_sub(1), 1).await?.into_iter().next();
        let bytes = match (unit, extent.bases.last()) {
            (Some(unit), _) => unit.bytes,
            (None, Some(base)) => log.part(base.number, 0).await?,
            (None, None) => return Ok(0),
        };
        unit::head(&bytes).map(|(head, _)| head.term).map_err(|error| LogError::Halt(error.to_string()))
    }

    /// Takes the lead: the log is read to its end, and nobody else has appended since.
    pub(super) async fn take_lead(&mut self, term: u64, has_base: bool) -> Result {
        let Some(link) = &self.link else { return Ok(()) };
        self.disk.forget();
        let behind = (link.place.digest.as_str(), !has_base);
        let unit = link.unit(&self.committed, &Changeset::default(), self.disk.codec(), term, behind);
        let place = Place { number: link.place.number + 1, digest: unit::digest(&unit), term };
        self.disk.conn.execute_batch("BEGIN IMMEDIATE").map_err(sql("begin to write"))?;
        let appended = match place.write(&self.disk.conn) {
            Ok(()) => self.append(place, unit).await,
            failed => failed,
        };
        let end = if appended.is_ok() { "COMMIT" } else { "ROLLBACK" };
        let ended = self.disk.conn.execute_batch(end).map_err(sql("commit"));
        appended.and(ended)?;
        if !has_base {
            // Nobody can follow before it is there.
            self.store_base().await?;
        }
        let Some(link) = &mut self.link else { return Ok(()) };
        let (identity, number) = (link.identity.clone(), link.place.number);
        link.change(|state| {
            (state.role, state.term, state.leader, state.number) = (Role::Leader, term, identity, number);
            state.led_since = Some(tokio::time::Instant::now());
        });
        self.disk.surround();
        Ok(())
    }

    /// Stores the whole journal at once, behind what the log has.
    pub(super) async fn store_base(&mut self) -> Result {
        let mut failures = 0;
        loop {
            let Some(link) = &mut self.link else { return Ok(()) };
            link.snapshot = Some(Snapshot::take(&self.dir, link.place.number, &link.place.digest)?);
            let stored = loop {
                if self.link.as_ref().is_some_and(|link| *link.step_down.borrow()) {
                    return Err(stepped_down());
                }
                match self.part_of_base().await {
                    Ok(true) => {}
                    Ok(false) => break Ok(()),
                    Err(error) => break Err(error),
                }
            };
            let Some(link) = &mut self.link else { return Ok(()) };
            match link.answered(stored) {
                Ok(()) => return Ok(()),
                Err(_) => {
                    failures += 1;
                    self.wait(failures).await?;
                }
            }
        }
    }

    /// One part of a base, where one is due or in the making. Says whether there is more.
    pub(super) async fn step_base(&mut self) -> Result<bool> {
        if !self.leads() {
            return Ok(false);
        }
        let Some(link) = &mut self.link else { return Ok(false) };
        if link.snapshot.is_none() {
            let due =
                link.since_base > link.worth_a_base.max(link.base.1) && tokio::time::Instant::now() >= link.next_base;
            if !due {
                return Ok(false);
            }
            link.snapshot = Some(Snapshot::take(&self.dir, link.place.number, &link.place.digest)?);
            link.since_base = 0;
        }
        match self.part_of_base().await {
            Ok(more) => Ok(more),
            Err(error) => {
                let Some(link) = &mut self.link else { return Ok(false) };
                tracing::warn!(
                    "a base of the shared log in {} cannot be stored: {error}; it is tried again",
                    link.shown
                );
                link.snapshot = None;
                link.since_base += link.worth_a_base.max(link.base.1);
                link.next_base = tokio::time::Instant::now() + BASE_RETRY_DELAY;
                Ok(false)
            }
        }
    }

    async fn part_of_base(&mut self) -> Result<bool, LogError> {
        self.turns.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let Some(link) = &mut self.link else { return Ok(false) };
        let Some(mut snapshot) = link.snapshot.take() else { return Ok(false) };
        let broken = |error: JournalError| LogError::Retry(error.to_string());
        let part = snapshot.base.parts;
        match snapshot.next().map_err(broken)? {
            Some(rows) => {
                let term = link.state.borrow().term;
                let bytes = link.unit(&self.committed, &rows, self.disk.codec(), term, (&snapshot.digest, false));
                snapshot.bytes += bytes.len() as u64;
                link.log().put_part(snapshot.base.number, part, bytes).await?;
                link.snapshot = Some(snapshot);
                Ok(true)
            }
            None => {
                let Base { number, .. } = snapshot.base;
                link.log().finish_base(snapshot.base).await?;
                let before = std::mem::replace(&mut link.base, (number, snapshot.bytes)).0;
                if before > 0 {
                    link.log().truncate(before).await?;
                }
                Ok(false)
            }
        }
    }

    /// Takes the list of bases at the beginning of a lead.
    pub(super) fn know_bases(&mut self, bases: &[Base]) {
        // Nobody says how large the newest is: about as large as this journal.
        let size = std::fs::metadata(self.dir.join(schema::DATABASE)).map_or(0, |file| file.len());
        if let Some(link) = &mut self.link {
            link.base = (bases.last().map_or(0, |base| base.number), size);
        }
    }
}
