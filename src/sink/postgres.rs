//! Entries as rows of a PostgreSQL database: each seq exactly once and in order.
//!
//! The position is a row beside them, which moves in the transaction that inserts the entries, and keeps the objects
//! that there are, where that is asked for. The row is locked first and must say what it said when this sink last
//! looked. If it does not, either a commit was not answered, and the row says that it went through; or the database was
//! restored to an earlier state, and gets the rest again; or another decklog delivers under the same name, and this one
//! halts.
//!
//! A line is kept as text, because jsonb refuses `\u0000` and changes numbers, order and spaces.
//!
//! # Decision: a database says where it is
//!
//! Context: A restored or shared database must be noticed before it is written to.
//! Decision: The cursor is a row that moves with the entries, locked and read before each transaction. It has the last value,
//! or that of an unanswered commit; a smaller one is a restore, any other one a second writer, and the older decklog halts.
//! Nothing is prepared, because of poolers. Lines are text, because jsonb changes numbers.
//! Cost: A row lock for each batch.

mod link;
mod rows;
mod schema;
mod settings;
mod shared;

pub use settings::{PostgresUrl, Settings, SslMode};
pub use shared::PostgresLog;

use std::collections::BTreeMap;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Error};

use super::{Class, Failure, Item, Limits, LogPosition, Sink, SinkError};
use crate::core::model::{Cluster, Seq};
use link::{Connector, Link};
use rows::Rows;

/// About how many bytes go into one transaction, unless a single entry is larger.
const BATCH_BYTES: usize = 4 << 20;

/// A database.
pub struct PostgresSink {
    connector: Connector,
    link: Option<Link>,
    batch_size: usize,
    timeout: Duration,
    /// True if the table `objects` is maintained.
    objects: bool,
    /// The uid of the cluster; empty while it is not known.
    cluster: String,
    /// Last contents of the cursor row. None if it was not read yet.
    known: Option<Option<LogPosition>>,
    /// Seq behind which the output is of another timeline, which the next delivery replaces.
    diverged: Option<Seq>,
    /// Contents of the cursor row if the last commit, which was not answered, succeeded.
    pending: Option<LogPosition>,
    /// It is a replay.
    again: bool,
}

impl std::fmt::Debug for PostgresSink {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PostgresSink").field("at", &self.connector.shown).finish_non_exhaustive()
    }
}

/// Reason why a transaction failed.
enum Trouble {
    Server(Error),
    Sink(SinkError),
}

impl From<Error> for Trouble {
    fn from(error: Error) -> Self {
        Self::Server(error)
    }
}

/// The row of a cursor, locked.
struct Row {
    /// The cluster that it is kept under; another one than now where its uid was not known before.
    cluster: String,
    /// None where nothing was delivered.
    at: Option<LogPosition>,
}

impl PostgresSink {
    /// A sink into a database; nothing is connected yet.
    ///
    /// # Errors
    /// Where the configuration can never work.
    pub fn new(config: &Settings) -> Result<Self, String> {
        Ok(Self {
            connector: Connector::new(config)?,
            link: None,
            batch_size: config.batch_size,
            timeout: *config.timeout,
            objects: config.objects,
            cluster: String::new(),
            known: None,
            diverged: None,
            pending: None,
            again: false,
        })
    }

    /// The connection. It is not kept where what it is used for fails.
    async fn take_link(&mut self) -> Result<Link, SinkError> {
        let other = self.connector.refresh().await?;
        match self.link.take().filter(|link| !other && !link.client.is_closed()) {
            Some(link) => Ok(link),
            None => self.connector.enter().await,
        }
    }

    /// Returns the statement that begins a transaction with the server's lock and idle timeouts: a little shorter than ours, so
    /// that it can report the reason.
    fn begin(&self) -> String {
        schema::begin(self.timeout.mul_f32(0.8))
    }

    /// Locks the row of the cursor, which is made first, unless it is not known yet under which cluster.
    async fn lock(&self, client: &Client, cluster: &str, epoch: &str, make: bool) -> Result<Row, Error> {
        let (sink, statements) = (&self.connector.sink, &self.connector.statements);
        for made in [false, true] {
            let asked = [text(sink), text(&cluster), text(&epoch)];
            // Sent together, and done one after the other.
            let locked = client.query_typed_opt(&statements.lock_cursor, &asked);
            let (row, last) = futures::try_join!(locked, client.query_typed_opt(&statements.last, &asked))?;
            if let Some(row) = row {
                let epoch: String = row.try_get(1)?;
                let at = if epoch.is_empty() { None } else { Some(place(epoch, row.try_get(2)?, last.as_ref(), 0)?) };
                return Ok(Row { cluster: row.try_get(0)?, at });
            }
            if made || !make {
                break;
            }
            client.execute_typed(&statements.make_cursor, &[text(sink), text(&cluster)]).await?;
        }
        Ok(Row { cluster: cluster.to_owned(), at: None })
    }

    /// Reads the cursor row. While the cluster is unknown, the row may be of another cluster and have a later epoch than this
    /// journal: then entries go out under an epoch that is later still.
    async fn look(&mut self, epoch: &str) -> Result<Option<LogPosition>, SinkError> {
        let link = self.take_link().await?;
        let looking = async {
            link.client.batch_execute(&self.begin()).await?;
            // Whoever is about to make the row, or holds it, has to come to an end first: the last transaction of an
            // earlier life may still be under way.
            let row = self.lock(&link.client, &self.cluster, epoch, !self.cluster.is_empty()).await?;
            let mut later = None;
            if row.at.is_none() && self.cluster.is_empty() {
                let asked = [text(&self.connector.sink), text(&epoch)];
                if let Some(row) = link.client.query_typed_opt(&self.connector.statements.later, &asked).await? {
                    later = Some(place(row.try_get(0)?, row.try_get(1)?, Some(&row), 2)?);
                }
            }
            link.client.batch_execute("ROLLBACK").await?;
            Ok((row.at, later))
        };
        let (at, later) =
            self.connector.within(looking).await?.map_err(|error: Error| self.connector.trouble(&error))?;
        self.link = Some(link);
        if at.is_some() || !self.cluster.is_empty() {
            self.known = Some(at.clone());
        }
        Ok(at.or(later))
    }

    /// Reports whether this very entry is stored.
    async fn find(&mut self, entry: &LogPosition) -> Result<Option<bool>, SinkError> {
        let link = self.take_link().await?;
        let Ok(seq) = i64::try_from(entry.seq.0) else { return Ok(None) };
        let looking = async {
            let asked = [text(&entry.epoch), (&seq as &(dyn ToSql + Sync), Type::INT8)];
            let row = link.client.query_typed_opt(&self.connector.statements.entry, &asked).await?;
            if let Some(row) = row {
                return Ok(Some(place(entry.epoch.clone(), seq, Some(&row), 0)?.is(entry)));
            }
            // Without an entry before it, it may have been deleted.
            let before = link.client.query_typed_opt(&self.connector.statements.before, &asked).await?;
            Ok(before.map(|_| false))
        };
        let found = self.connector.within(looking).await?.map_err(|error: Error| self.connector.trouble(&error))?;
        self.link = Some(link);
        Ok(found)
    }

    /// The first entry of each epoch.
    async fn firsts(&mut self) -> Result<BTreeMap<String, Seq>, SinkError> {
        let link = self.take_link().await?;
        let own = [text(&self.connector.sink)];
        let looking = link.client.query_typed(&self.connector.statements.firsts, &own);
        let rows = self.connector.within(looking).await?.map_err(|error: Error| self.connector.trouble(&error))?;
        self.link = Some(link);
        Ok(rows.iter().map(|row| (row.get(0), Seq(row.get::<_, i64>(1).unsigned_abs()))).collect())
    }

    /// Delivers a batch in as few transactions as it needs.
    async fn send(&mut self, batch: &[Item]) -> Result<(), Failure> {
        let mut taken = 0;
        // Halved when the server refuses several entries together, until the one that it means stands alone.
        let mut most = batch.len();
        while taken < batch.len() {
            let rest = &batch[taken..];
            let part = Rows::of(&rest[..most.min(rest.len())]).map_err(|error| Failure { taken, error })?;
            match self.put(&part).await {
                Ok(()) => taken += part.len(),
                Err(SinkError::Refused { .. }) if part.len() > 1 => most = part.len() / 2,
                Err(error) => return Err(Failure { taken, error }),
            }
        }
        Ok(())
    }

    /// One transaction.
    async fn put(&mut self, rows: &Rows<'_>) -> Result<(), SinkError> {
        let link = self.take_link().await?;
        let done = tokio::time::timeout(self.timeout, self.transact(&link.client, rows)).await;
        match done.map_err(|_elapsed| self.connector.late())? {
            Ok(()) => {
                self.link = Some(link);
                self.diverged = None;
                Ok(())
            }
            Err(Trouble::Server(error)) => Err(self.connector.trouble(&error)),
            Err(Trouble::Sink(error)) => Err(error),
        }
    }

    async fn transact(&mut self, client: &Client, rows: &Rows<'_>) -> Result<(), Trouble> {
        client.batch_execute(&self.begin()).await?;
        if self.again {
            self.insert(client, rows, 0).await?;
            client.batch_execute("COMMIT").await?;
            return Ok(());
        }
        if self.cluster.is_empty() {
            self.cluster.clone_from(&rows.cluster);
        }
        let row = self.lock(client, &rows.cluster, &rows.epoch, true).await?;
        let first = self.first_to_insert(row.at.as_ref(), rows).map_err(Trouble::Sink)?;
        let (sink, statements) = (&self.connector.sink, &self.connector.statements);
        if first < rows.len() {
            if self.objects && row.at.as_ref().is_some_and(|at| at.epoch != rows.epoch) {
                // The filter may leave out what stands right after it.
                let diverged =
                    self.diverged.map_or(i64::MAX, |after| i64::try_from(after.next().0).unwrap_or(i64::MAX));
                let from = (&rows.seq[first].min(diverged) as &(dyn ToSql + Sync), Type::INT8);
                let values = [text(sink), text(&rows.cluster), text(&rows.epoch), from];
                client.execute_typed(&statements.take_back, &values).await?;
            }
            self.insert(client, rows, first).await?;
        }
        let upto = rows.place(rows.len() - 1);
        let seq = rows.seq[rows.len() - 1];
        let name = rows.columns[rows::CLUSTER_NAME].last().map(String::as_str).unwrap_or_default();
        let values = [text(sink), text(&row.cluster), text(&rows.cluster), text(&name), text(&rows.epoch)];
        let values: Vec<_> = values.into_iter().chain([(&seq as &(dyn ToSql + Sync), Type::INT8)]).collect();
        client.execute_typed(&statements.move_cursor, &values).await?;
        // From here on it may be done without our knowing.
        self.known = Some(row.at);
        self.pending = Some(upto.clone());
        client.batch_execute("COMMIT").await?;
        self.known = Some(Some(upto));
        self.pending = None;
        Ok(())
    }

    /// Inserts the rows from `first` on, and takes them over into the objects.
    async fn insert(&self, client: &Client, rows: &Rows<'_>, first: usize) -> Result<(), Trouble> {
        let (sink, statements) = (&self.connector.sink, &self.connector.statements);
        let columns: Vec<&[String]> = rows.columns.iter().map(|column| &column[first..]).collect();
        let (seq, line) = (&rows.seq[first..], &rows.line[first..]);
        let mut values = vec![text(sink), text(&rows.epoch), text(&rows.cluster), (&seq, Type::INT8_ARRAY)];
        values.extend(columns.iter().map(|column| (column as &(dyn ToSql + Sync), Type::TEXT_ARRAY)));
        values.push((&line, Type::TEXT_ARRAY));
        let inserted = client.execute_typed(&statements.insert, &values).await?;
        if inserted < seq.len() as u64 && !self.again {
            let (id, time) = (&columns[rows::ID], &columns[rows::TIME]);
            let values =
                [text(&rows.epoch), (&seq, Type::INT8_ARRAY), (id, Type::TEXT_ARRAY), (time, Type::TEXT_ARRAY)];
            if let Some(other) = client.query_typed_opt(&statements.other, &values).await? {
                return Err(Trouble::Sink(self.taken(&rows.epoch, other.try_get(0)?)));
            }
        }
        if self.objects {
            let last: Vec<i64> = rows.last.iter().copied().filter(|at| *at >= seq[0]).collect();
            for statement in [&statements.drop_objects, &statements.keep_objects] {
                let values = [text(sink), text(&rows.epoch), (&last, Type::INT8_ARRAY), (&self.again, Type::BOOL)];
                client.execute_typed(statement, &values).await?;
            }
        }
        Ok(())
    }

    /// A place that the cursor says is free is given to another entry.
    fn taken(&self, epoch: &str, seq: i64) -> SinkError {
        let (shown, schema) = (&self.connector.shown, &self.connector.schema);
        SinkError::halt(format!(
            "the table entries in the schema {schema} of {shown} has another entry under the seq {seq} of the epoch {epoch}, beyond its cursor: something else than this sink wrote it; give the sink another `schema`, or delete what is there beyond the cursor, and send SIGHUP"
        ))
    }

    /// From which of the rows on they are not there yet, where the cursor is at `at`. Nothing is written behind a later
    /// epoch, or a second time: what is there is compared with the journal first.
    fn first_to_insert(&self, at: Option<&LogPosition>, rows: &Rows<'_>) -> Result<usize, SinkError> {
        let is = |own: Option<&LogPosition>| match (own, at) {
            (Some(own), Some(at)) => own.is(at),
            (own, at) => own.is_none() && at.is_none(),
        };
        let (shown, schema) = (&self.connector.shown, &self.connector.schema);
        if self.pending.is_some() && is(self.pending.as_ref()) {
            // The last commit went through. What it had stands at the beginning of what is sent once more.
            let there = (0..rows.len()).find(|there| is(Some(&rows.place(*there))));
            return Ok(there.map_or(0, |there| there + 1));
        }
        if let Some(known) = self.known.as_ref().filter(|known| !is(known.as_ref())) {
            let less = match (known, at) {
                (_, None) => true,
                (Some(known), Some(at)) => (&at.epoch, at.seq) < (&known.epoch, known.seq),
                (None, Some(_)) => false,
            };
            if less {
                return Err(SinkError::lost(format!(
                    "{shown} holds less than before: it was restored to an earlier state, and gets the rest again"
                )));
            }
            return Err(SinkError::halt(format!(
                "another decklog delivers to the schema {schema} of {shown} as the sink {}; stop it, or give one of the two another name, and send SIGHUP",
                self.connector.sink
            )));
        }
        if at.is_some_and(|at| (at.epoch.as_str(), at.seq) >= (rows.epoch.as_str(), rows.place(0).seq)) {
            return Err(SinkError::lost(format!(
                "the schema {schema} of {shown} holds what comes after the entries of this journal, and is compared with it"
            )));
        }
        Ok(0)
    }

    async fn examine(&mut self) -> Result<(), SinkError> {
        let link = self.connector.open().await?;
        let (connector, client) = (&self.connector, &link.client);
        let asking = async {
            let row = client.query_typed_one("SHOW server_encoding", &[]).await?;
            row.try_get::<_, String>(0)
        };
        let encoding = connector.within(asking).await?.map_err(|error| connector.trouble(&error))?;
        if encoding != "UTF8" {
            return Err(SinkError::halt(format!(
                "{} has the encoding {encoding}, which cannot hold every text; use a database with the encoding UTF8",
                connector.shown
            )));
        }
        self.connector.examine(&link, &schema::rights(self.objects)).await
    }

    async fn make(&mut self) -> Result<String, SinkError> {
        let link = self.connector.open().await?;
        let (connector, client) = (&self.connector, &link.client);
        let (shown, schema) = (&connector.shown, &connector.schema);
        let trouble = |error: Error| match error.code() {
            Some(&SqlState::INSUFFICIENT_PRIVILEGE) => SinkError::halt(format!(
                "{shown}: the user {} may not make the tables; let an administrator apply what `decklog sink init {} --print` prints",
                connector.user, connector.sink
            )),
            _ => connector.trouble(&error),
        };
        if connector.version(&link).await? == Some(schema::VERSION) {
            let rights = [&schema::rights(self.objects)[..], &schema::SHARED_RIGHTS].concat();
            let looking = connector.missing(client, &rights);
            let (absent, forbidden) = connector.within(looking).await?.map_err(trouble)?;
            if absent.is_empty() && forbidden.is_empty() {
                return Ok(format!("the schema {schema} of {shown} has all that is needed already"));
            }
        }
        connector.within(client.batch_execute(&self.text())).await?.map_err(trouble)?;
        Ok(format!("the schema {schema} of {shown} has all that is needed now"))
    }

    fn text(&self) -> String {
        schema::needs(&self.connector.schema, &self.connector.user)
    }
}

/// A place in the table of the entries, with what the beginning of its line says, which is in this column of a row.
fn place(epoch: String, seq: i64, row: Option<&tokio_postgres::Row>, column: usize) -> Result<LogPosition, Error> {
    let line: Option<String> = row.map(|row| row.try_get(column)).transpose()?.flatten();
    let entry = line.and_then(|line| LogPosition::of(line.as_bytes()).ok()).and_then(|place| place.entry);
    Ok(LogPosition { epoch, seq: Seq(seq.unsigned_abs()), entry })
}

/// A text that goes into a statement.
fn text(value: &(dyn ToSql + Sync)) -> (&(dyn ToSql + Sync), Type) {
    (value, Type::TEXT)
}

impl Sink for PostgresSink {
    fn class(&self) -> Class {
        Class::ExactlyOnce
    }

    fn limits(&self) -> Limits {
        Limits { entries: self.batch_size, bytes: BATCH_BYTES, linger: Duration::ZERO }
    }

    fn bind(&mut self, sink: &str, cluster: &Cluster) {
        sink.clone_into(&mut self.connector.sink);
        cluster.uid.clone_into(&mut self.cluster);
    }

    fn position<'a>(&'a mut self, cursor: &'a LogPosition) -> BoxFuture<'a, Result<Option<LogPosition>, SinkError>> {
        async {
            (self.known, self.pending, self.diverged) = (None, None, None);
            let at = self.look(&cursor.epoch).await?;
            // A database that holds nothing gets everything, whatever was delivered to another one before.
            Ok(Some(at.unwrap_or_else(|| LogPosition::before(&cursor.epoch))))
        }
        .boxed()
    }

    fn holds<'a>(&'a mut self, entry: &'a LogPosition) -> BoxFuture<'a, Result<Option<bool>, SinkError>> {
        self.find(entry).boxed()
    }

    fn epochs(&mut self) -> BoxFuture<'_, Result<BTreeMap<String, Seq>, SinkError>> {
        self.firsts().boxed()
    }

    fn diverged(&mut self, after: Seq) {
        self.diverged = Some(after);
    }

    fn deliver<'a>(&'a mut self, batch: &'a [Item]) -> BoxFuture<'a, Result<(), Failure>> {
        self.send(batch).boxed()
    }

    fn reopen(&mut self) {
        self.link = None;
        self.connector.forget();
    }

    fn enter_replay(&mut self) {
        self.again = true;
    }

    fn provisioning_script(&self) -> Option<String> {
        Some(self.text())
    }

    fn provision(&mut self) -> BoxFuture<'_, Result<String, SinkError>> {
        self.make().boxed()
    }

    fn check(&mut self) -> BoxFuture<'_, Result<(), SinkError>> {
        self.examine().boxed()
    }
}
