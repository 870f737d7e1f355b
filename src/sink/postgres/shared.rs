//! The shared log in a database: units and bases as rows beside what is delivered.
//!
//! Whoever appends locks the row of the log, and inserts the unit where the one before it is the newest; all of that is sent
//! at once and takes one exchange. What a lost answer was is found under the number: the digest of a unit stands beside it.

use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Error};

use super::link::{Connector, Link};
use super::{Settings, schema, text};
use crate::core::shared_log::{Appended, Base, Extent, LogError, Numbered, SharedLog};
use crate::sink::SinkError;
use crate::sink::shared::{Around, Digest, Tail, digest, diverged, writer};

/// Number of attempts of an append whose row should have been inserted and was not.
const TRIES: u32 = 3;

/// Number of units that one read looks at.
const UNITS: i64 = 1000;

/// Number of rows that one transaction removes.
const REMOVED: i64 = 200;

/// A log in a database.
pub struct PostgresLog {
    connector: Connector,
    link: Option<Link>,
    statements: Statements,
    timeout: Duration,
    /// The sink and the cluster.
    log: String,
    writer: String,
    tail: Tail,
}

impl std::fmt::Debug for PostgresLog {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PostgresLog").field("log", &self.log).field("at", &self.connector.shown).finish_non_exhaustive()
    }
}

impl PostgresLog {
    /// The log of a cluster beside what a sink delivers; nothing is connected yet.
    ///
    /// # Errors
    /// Where the configuration can never work.
    pub fn new(config: &Settings, sink: &str, cluster: &str) -> Result<Self, String> {
        let mut connector = Connector::new(config)?;
        sink.clone_into(&mut connector.sink);
        Ok(Self {
            connector,
            link: None,
            statements: Statements::of(&config.schema),
            timeout: *config.timeout,
            log: format!("{sink}/{cluster}"),
            writer: writer(),
            tail: Tail::default(),
        })
    }

    /// Does something with the connection, which is not kept where that fails or is given up.
    async fn with<T>(
        &mut self,
        work: impl AsyncFnOnce(&Client, &Statements, &str) -> Result<T, Error>,
    ) -> Result<T, SinkError> {
        let other = self.connector.refresh().await?;
        let link = match self.link.take().filter(|link| !other && !link.client.is_closed()) {
            Some(link) => link,
            None => self.connector.enter().await?,
        };
        let done = self.connector.within(work(&link.client, &self.statements, &self.log)).await?;
        let done = done.map_err(|error| self.connector.trouble(&error))?;
        self.link = Some(link);
        Ok(done)
    }

    /// Executes something in a transaction of its own, behind a lock of the log. Gives how many rows it was.
    async fn locked(&mut self, statement: Change, values: &[Value<'_>]) -> Result<u64, SinkError> {
        let begin = schema::begin(self.timeout.mul_f32(0.8));
        self.with(async |client, statements, log| {
            let log = [text(&log)];
            // Sent together, and done one after the other.
            let locking = client.query_typed_opt(&statements.lock, &log);
            let changing = client.execute_typed(statements.change(statement), values);
            let (begun, committed) = (client.batch_execute(&begin), client.batch_execute("COMMIT"));
            let ((), locked, count, ()) = futures::try_join!(begun, locking, changing, committed)?;
            if locked.is_none() {
                client.execute_typed(&statements.make, &log).await?;
            }
            Ok(count)
        })
        .await
    }

    async fn put(&mut self, number: u64, bytes: Bytes) -> Result<Appended, SinkError> {
        let own = digest(&bytes);
        let seen = self.tail.before(number);
        let (at, log) = (int(number), self.log.clone());
        for _ in 0..TRIES {
            let (unit, before) = (&own[..], seen.as_ref().map(|seen| &seen[..]));
            let body = &bytes[..];
            let values = [text(&log), int8(&at), bytea(&unit), bytea(&body), bytea(&before)];
            let done = if self.locked(Change::Append, &values).await? == 1 {
                Some(Appended::Done)
            } else {
                self.around(at).await?.meaning(number, own, seen)
            };
            if let Some(done) = done {
                if done == Appended::Done {
                    self.tail.note(number, own);
                }
                return Ok(done);
            }
        }
        Err(SinkError::retry(format!(
            "{} took no unit {number} of the shared log, and does not say why; look for triggers and rules on the table shared_units in the schema {}",
            self.connector.shown, self.connector.schema
        )))
    }

    async fn around(&mut self, at: i64) -> Result<Around, SinkError> {
        self.with(async |client, statements, log| {
            let row = client.query_typed_one(&statements.around, &[text(&log), int8(&at)]).await?;
            let digest = |column| Ok::<_, Error>(row.try_get::<_, Option<&[u8]>>(column)?.and_then(stored));
            let newest: i64 = row.try_get(0)?;
            Ok(Around { newest: newest.unsigned_abs(), there: digest(1)?, before: digest(2)? })
        })
        .await
    }

    async fn look(&mut self) -> Result<Extent, SinkError> {
        self.with(async |client, statements, log| {
            let mut extent = Extent::default();
            for row in client.query_typed(&statements.extent, &[text(&log)]).await? {
                let number = |column| Ok::<_, Error>(row.try_get::<_, Option<i64>>(column)?.map(i64::unsigned_abs));
                extent.oldest = number(0)?;
                if let Some(base) = number(2)? {
                    let parts: i32 = row.try_get(3)?;
                    extent.bases.push(Base { number: base, parts: parts.unsigned_abs() });
                }
                extent.newest = extent.newest.max(number(1)?.unwrap_or_default()).max(number(2)?.unwrap_or_default());
            }
            Ok(extent)
        })
        .await
    }

    async fn units(&mut self, after: u64, bytes: usize) -> Result<Vec<Numbered>, SinkError> {
        let (from, most) = (int(after), i64::try_from(bytes).unwrap_or(i64::MAX));
        let (before, units, last) = self
            .with(async |client, statements, log| {
                let asked = [text(&log), int8(&from), int8(&most), int8(&UNITS)];
                let (mut before, mut units, mut last) = (None, Vec::new(), None);
                let mut number = after;
                for row in client.query_typed(&statements.read, &asked).await? {
                    let digest = stored(row.try_get(1)?);
                    match row.try_get::<_, i64>(0)?.unsigned_abs() {
                        at if at == after => before = digest,
                        at if at == number + 1 => {
                            number = at;
                            last = digest.map(|digest| (number, digest));
                            units.push(Numbered { number, bytes: Bytes::copy_from_slice(row.try_get(2)?) });
                        }
                        _ => break,
                    }
                }
                Ok((before, units, last))
            })
            .await?;
        if self.tail.refuses(after, before) {
            return Err(diverged(&self.shown(), after));
        }
        if let Some((number, digest)) = last {
            self.tail.note(number, digest);
        }
        Ok(units)
    }

    async fn finish(&mut self, base: Base) -> Result<(), SinkError> {
        let (number, parts) = (int(base.number), i32::try_from(base.parts).unwrap_or(i32::MAX));
        let (log, writer) = (self.log.clone(), self.writer.clone());
        let values = [text(&log), int8(&number), (&parts as Any<'_>, Type::INT4), text(&writer)];
        for _ in 0..2 {
            if self.locked(Change::Finish, &values).await? == 1 {
                return Ok(());
            }
            // One that is whole already stays as it is, whoever made it.
            if self.look().await?.bases.iter().any(|whole| whole.number == base.number) {
                return Ok(());
            }
        }
        Err(SinkError::retry(format!(
            "{} does not have all {} parts of the base {} of the shared log; it has to be made again",
            self.connector.shown, base.parts, base.number
        )))
    }

    async fn one_part(&mut self, number: u64, part: u32) -> Result<Bytes, SinkError> {
        let (at, which) = (int(number), i32::try_from(part).unwrap_or(i32::MAX));
        let found = self
            .with(async |client, statements, log| {
                let asked = [text(&log), int8(&at), (&which as Any<'_>, Type::INT4)];
                let row = client.query_typed_opt(&statements.part, &asked).await?;
                row.map(|row| row.try_get(0).map(Bytes::copy_from_slice)).transpose()
            })
            .await?;
        found.ok_or_else(|| {
            SinkError::retry(format!(
                "part {part} of the base {number} of the shared log is not in {}, or not any more; a later one may be",
                self.connector.shown
            ))
        })
    }

    async fn remove(&mut self, upto: u64) -> Result<(), SinkError> {
        let (upto, log) = (int(upto), self.log.clone());
        let values = [text(&log), int8(&upto), int8(&REMOVED)];
        for change in [Change::DropUnits, Change::DropBases, Change::DropParts] {
            while self.locked(change, &values).await? > 0 {}
        }
        Ok(())
    }

    async fn examine(&mut self) -> Result<(), SinkError> {
        let link = self.connector.open().await?;
        self.connector.examine(&link, &schema::SHARED_RIGHTS).await
    }
}

type Any<'v> = &'v (dyn ToSql + Sync);
type Value<'v> = (Any<'v>, Type);

const fn int8(value: &i64) -> Value<'_> {
    (value, Type::INT8)
}

fn bytea(value: &(dyn ToSql + Sync)) -> Value<'_> {
    (value, Type::BYTEA)
}

fn int(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn stored(digest: &[u8]) -> Option<Digest> {
    digest.try_into().ok()
}

/// Change under a lock.
#[derive(Clone, Copy, Debug)]
enum Change {
    Append,
    Put,
    Finish,
    DropUnits,
    DropBases,
    DropParts,
}

/// Statements for the tables of one schema.
#[derive(Debug)]
struct Statements {
    make: String,
    lock: String,
    append: String,
    around: String,
    extent: String,
    read: String,
    put: String,
    finish: String,
    part: String,
    drop_units: String,
    drop_bases: String,
    drop_parts: String,
}

impl Statements {
    fn of(schema: &str) -> Self {
        let text = |text: &str| {
            let text = text.replace("NEWEST", NEWEST).replace("FLOOR", FLOOR);
            text.replace("SCHEMA", &schema::quoted(schema))
        };
        Self {
            make: text("INSERT INTO SCHEMA.shared_logs (log) VALUES ($1) ON CONFLICT DO NOTHING"),
            lock: text("SELECT log FROM SCHEMA.shared_logs WHERE log = $1 FOR UPDATE"),
            append: text(APPEND),
            around: text(AROUND),
            extent: text(EXTENT),
            read: text(READ),
            put: text(PUT),
            finish: text(FINISH),
            part: text(PART),
            drop_units: text(DROP_UNITS),
            drop_bases: text(DROP_BASES),
            drop_parts: text(DROP_PARTS),
        }
    }

    fn change(&self, change: Change) -> &str {
        match change {
            Change::Append => &self.append,
            Change::Put => &self.put,
            Change::Finish => &self.finish,
            Change::DropUnits => &self.drop_units,
            Change::DropBases => &self.drop_bases,
            Change::DropParts => &self.drop_parts,
        }
    }
}

/// The newest unit or base of a log.
const NEWEST: &str = "coalesce(greatest((SELECT max(number) FROM SCHEMA.shared_units WHERE log = $1),
        (SELECT max(number) FROM SCHEMA.shared_bases WHERE log = $1)), 0)";

/// Appends a unit behind the newest, if that is the one before it, and as it was seen. What is not locked is not written: then
/// there was no row to lock.
const APPEND: &str = "INSERT INTO SCHEMA.shared_units (log, number, sha256, bytes)
    SELECT $1, $2, $3, $4 WHERE NEWEST = $2 - 1
        AND EXISTS (SELECT FROM SCHEMA.shared_logs WHERE log = $1)
        AND NOT EXISTS (SELECT FROM SCHEMA.shared_units WHERE log = $1 AND number = $2 - 1 AND sha256 <> $5)
    ON CONFLICT DO NOTHING";

const AROUND: &str = "SELECT NEWEST, (SELECT sha256 FROM SCHEMA.shared_units WHERE log = $1 AND number = $2),
        (SELECT sha256 FROM SCHEMA.shared_units WHERE log = $1 AND number = $2 - 1)";

const EXTENT: &str = "SELECT u.oldest, u.newest, b.number, b.parts
    FROM (SELECT min(number) AS oldest, max(number) AS newest FROM SCHEMA.shared_units WHERE log = $1) u
    LEFT JOIN SCHEMA.shared_bases b ON b.log = $1 ORDER BY b.number";

/// Query for units, whose lengths are known without reading them. Of the previous unit only the digest is returned.
const READ: &str = "SELECT number, sha256, CASE WHEN number > $2 THEN bytes ELSE '' END FROM (
        SELECT number, sha256, bytes, sum(length(bytes)) FILTER (WHERE number > $2) OVER (ORDER BY number) - length(bytes) AS before
        FROM SCHEMA.shared_units WHERE log = $1 AND number >= $2 AND number <= $2 + $4
    ) u WHERE before < $3 OR number <= $2 + 1 ORDER BY number";

const PUT: &str = "INSERT INTO SCHEMA.shared_parts (log, number, writer, part, bytes) VALUES ($1, $2, $3, $4, $5)
    ON CONFLICT (log, number, writer, part) DO UPDATE SET bytes = excluded.bytes";

const FINISH: &str = "INSERT INTO SCHEMA.shared_bases (log, number, parts, writer)
    SELECT $1, $2, $3, $4 WHERE EXISTS (SELECT FROM SCHEMA.shared_logs WHERE log = $1) AND $3 = (
        SELECT count(*) FROM SCHEMA.shared_parts WHERE log = $1 AND number = $2 AND writer = $4 AND part < $3
    ) ON CONFLICT DO NOTHING";

const PART: &str = "SELECT p.bytes FROM SCHEMA.shared_bases b
    JOIN SCHEMA.shared_parts p ON (p.log, p.number, p.writer) = (b.log, b.number, b.writer)
    WHERE b.log = $1 AND b.number = $2 AND p.part = $3 AND p.part < b.parts";

/// The newest base that is not after a number.
const FLOOR: &str = "(SELECT max(number) FROM SCHEMA.shared_bases WHERE log = $1 AND number <= $2)";

/// The oldest first, so that what is left has no hole; and nothing that no base stands for.
const DROP_UNITS: &str = "DELETE FROM SCHEMA.shared_units WHERE log = $1 AND number IN (
        SELECT number FROM SCHEMA.shared_units WHERE log = $1 AND number <= FLOOR ORDER BY number LIMIT $3
    )";

const DROP_BASES: &str = "DELETE FROM SCHEMA.shared_bases WHERE log = $1 AND number IN (
        SELECT number FROM SCHEMA.shared_bases WHERE log = $1 AND number < FLOOR ORDER BY number LIMIT $3
    )";

/// Statement that removes parts of bases that are gone, or were never finished.
const DROP_PARTS: &str = "DELETE FROM SCHEMA.shared_parts WHERE (log, number, writer, part) IN (
        SELECT p.log, p.number, p.writer, p.part FROM SCHEMA.shared_parts p
        WHERE p.log = $1 AND p.number <= FLOOR AND NOT EXISTS (
            SELECT FROM SCHEMA.shared_bases b WHERE (b.log, b.number, b.writer) = (p.log, p.number, p.writer)
        ) LIMIT $3
    )";

impl SharedLog for PostgresLog {
    fn shown(&self) -> String {
        format!("the schema {} of {}", self.connector.schema, self.connector.shown)
    }

    fn extent(&mut self) -> BoxFuture<'_, Result<Extent, LogError>> {
        async { Ok(self.look().await?) }.boxed()
    }

    fn append(&mut self, number: u64, bytes: Bytes) -> BoxFuture<'_, Result<Appended, LogError>> {
        async move { Ok(self.put(number, bytes).await?) }.boxed()
    }

    fn read(&mut self, after: u64, bytes: usize) -> BoxFuture<'_, Result<Vec<Numbered>, LogError>> {
        async move { Ok(self.units(after, bytes).await?) }.boxed()
    }

    fn put_part(&mut self, number: u64, part: u32, bytes: Bytes) -> BoxFuture<'_, Result<(), LogError>> {
        async move {
            let (number, part) = (int(number), i32::try_from(part).unwrap_or(i32::MAX));
            let (log, writer, bytes) = (self.log.clone(), self.writer.clone(), &bytes[..]);
            let values = [text(&log), int8(&number), text(&writer), (&part as Any<'_>, Type::INT4), bytea(&bytes)];
            self.locked(Change::Put, &values).await?;
            Ok(())
        }
        .boxed()
    }

    fn finish_base(&mut self, base: Base) -> BoxFuture<'_, Result<(), LogError>> {
        async move { Ok(self.finish(base).await?) }.boxed()
    }

    fn part(&mut self, number: u64, part: u32) -> BoxFuture<'_, Result<Bytes, LogError>> {
        async move { Ok(self.one_part(number, part).await?) }.boxed()
    }

    fn truncate(&mut self, upto: u64) -> BoxFuture<'_, Result<(), LogError>> {
        async move { Ok(self.remove(upto).await?) }.boxed()
    }

    fn check(&mut self) -> BoxFuture<'_, Result<(), LogError>> {
        async { Ok(self.examine().await?) }.boxed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_quoted_everywhere() {
        let all = Statements::of("audit.log");
        let changes = [Change::Append, Change::Put, Change::Finish];
        let drops = [Change::DropUnits, Change::DropBases, Change::DropParts];
        let changes = changes.into_iter().chain(drops).map(|change| all.change(change));
        for text in changes.chain([&*all.make, &all.lock, &all.around, &all.extent, &all.read, &all.part]) {
            assert!(text.contains("\"audit.log\"."), "{text}");
            for left in ["SCHEMA.", "NEWEST", "FLOOR"] {
                assert!(!text.contains(left), "{left}: {text}");
            }
        }
    }
}
