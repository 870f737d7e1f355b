//! Opening the database: the lock, the pragmas with their reasons, the migrations.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rusqlite::{Connection, OpenFlags};

use super::{JournalError, room};
use crate::core::os::{self, DirBuilderExt, MetadataExt, OpenOptionsExt};
use crate::core::runtime;

/// The database in the state directory.
pub(super) const DATABASE: &str = "journal.db";
/// Its write-ahead log.
pub(super) const WAL: &str = "journal.db-wal";
pub(super) const LOCK: &str = "decklog.lock";

/// The files of the state directory that a reader reads, the database first.
pub const READ: [&str; 4] = [DATABASE, "journal.db-wal", "journal.db-shm", LOCK];

/// Time that a reader waits for a journal that is being created, and the interval of its polls.
const CREATION_TIMEOUT: Duration = Duration::from_secs(5);
const CREATION_POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Every schema change in order. The first one makes the schema [`FIRST`]. None is edited after a release.
const MIGRATIONS: &[&str] = &[include_str!("../../migrations/0001_journal.sql")];

/// The number of the first schema, which is `user_version` of the database. Lower ones are of decklogs before 0.1.0.
pub(super) const FIRST: usize = 24;

/// The number of the schema that this decklog writes.
pub(super) const CURRENT: usize = FIRST + MIGRATIONS.len() - 1;

/// The migrations that make a schema; none where there is no such schema.
pub(super) fn migrations_of(schema: usize) -> Option<&'static [&'static str]> {
    MIGRATIONS.get(..=schema.checked_sub(FIRST)?)
}

/// Condition for the objects `o` of a source `s`: of its namespace, or of all. It is a range, because an `OR` would look at
/// every object of the resource, whatever the namespace. No text sorts after a blob.
pub(super) const OF_SOURCE: &str = "o.resource = s.resource
    AND o.namespace BETWEEN s.namespace AND iif(s.namespace = '', x'', s.namespace)";

/// The first SQLite without the WAL-reset bug that can corrupt a database with several connections.
const OLDEST_SQLITE: i32 = 3_051_003;

/// The lock on a state directory, held as long as this lives.
#[derive(Debug)]
pub(super) struct StateLock(File);

impl Drop for StateLock {
    /// Releases the lock itself, because a process that was just started has a copy of the open file until it executes its program.
    fn drop(&mut self) {
        self.0.unlock().ok();
    }
}

/// Identity of the journal's files. SQLite continues with a file that was deleted or replaced, and all of that would be lost.
#[derive(Debug)]
pub(super) struct Place(Vec<(PathBuf, (u64, u64))>);

impl Place {
    /// Reads the identity of the files of a database that is open for writing.
    pub(super) fn of(dir: &Path) -> Result<Self, JournalError> {
        let files = [DATABASE, "journal.db-wal"].map(|name| dir.join(name));
        let files: io::Result<Vec<_>> = files.into_iter().map(|path| identity_of(&path).map(|it| (path, it))).collect();
        files.map(Self).map_err(|source| JournalError::Io {
            what: format!("cannot find the journal in {}", dir.display()),
            source,
        })
    }

    /// Checks that the names still belong to the files.
    pub(super) fn check(&self) -> Result<(), JournalError> {
        match self.0.iter().find(|(path, identity)| identity_of(path).ok() != Some(*identity)) {
            None => Ok(()),
            Some((path, _)) => Err(JournalError::Corrupt(format!(
                "{} was deleted or replaced while decklog wrote to it; put the state directory back before decklog is \
                 started again, else a new journal is begun",
                path.display()
            ))),
        }
    }
}

fn identity_of(path: &Path) -> io::Result<(u64, u64)> {
    fs::metadata(path).map(|meta| (meta.dev(), meta.ino()))
}

/// Makes the state directory (0700) and takes its lock.
pub(super) fn lock(dir: &Path) -> Result<StateLock, JournalError> {
    let io = |what: &str| {
        let what = format!("{what} the state directory {}", dir.display());
        move |source| JournalError::Io { what, source }
    };
    if !dir.exists() {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(io("cannot create"))?;
    }
    // One that was made for us is closed to others; what else stands in one that is in use is nobody's business here.
    if fs::read_dir(dir).is_ok_and(|mut files| files.next().is_none()) {
        os::set_mode(dir, 0o700).ok();
    }
    let path = dir.join(LOCK);
    let mut file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(&path)
        .map_err(io("cannot write to"))?;
    if file.try_lock().is_err() {
        let mut holder = String::new();
        let read = file.read_to_string(&mut holder);
        let pid = read.ok().and_then(|_| holder.trim().parse().ok());
        return Err(JournalError::Locked { dir: dir.to_owned(), pid });
    }
    file.set_len(0).and_then(|()| writeln!(file, "{}", std::process::id())).map_err(io("cannot write to"))?;
    Ok(StateLock(file))
}

/// Opens the database for the writer, creating or migrating it.
pub(super) fn open_writer(dir: &Path) -> Result<Connection, JournalError> {
    if rusqlite::version_number() < OLDEST_SQLITE {
        return Err(JournalError::Sqlite {
            what: format!("SQLite {} has a bug that can corrupt the journal", rusqlite::version()),
            source: rusqlite::Error::InvalidQuery,
        });
    }
    let path = dir.join(DATABASE);
    // Created by us and not by SQLite, so that it never exists with wider permissions than 0600; its WAL inherits them.
    if !path.exists() {
        let made = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path);
        made.and_then(|file| file.sync_all())
            .map_err(|source| JournalError::Io { what: format!("cannot create {}", path.display()), source })?;
    } else if let Ok(meta) = fs::metadata(&path)
        && os::is_open_to_others(&meta)
    {
        os::set_mode(&path, 0o600).map_err(|source| JournalError::Io {
            what: format!("cannot close {} to others", path.display()),
            source,
        })?;
    }
    let sql = |what: &'static str| {
        let what = format!("{what} {}", path.display());
        move |error| room::refused(what, error)
    };
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let mut conn = Connection::open_with_flags(&path, flags).map_err(sql("cannot open"))?;
    conn.set_prepared_statement_cache_capacity(64);
    // FULL: a commit is on disk when it returns. NORMAL would lose commits in a power cut that sinks have seen.
    // auto_vacuum: space that retention frees can go back to the file system; it must be set before the first table.
    // soft_heap_limit: of all connections of the process. Beyond it their caches use pages that they have, so many journals
    // take no more than a few do.
    conn.execute_batch(
        "PRAGMA page_size = 4096;
         PRAGMA auto_vacuum = INCREMENTAL;
         PRAGMA journal_mode = WAL;
         PRAGMA synchronous = FULL;
         PRAGMA foreign_keys = ON;
         PRAGMA temp_store = MEMORY;
         PRAGMA cell_size_check = ON;
         PRAGMA trusted_schema = OFF;
         PRAGMA cache_size = -8192;
         PRAGMA soft_heap_limit = 67108864;
         PRAGMA wal_autocheckpoint = 4000;
         PRAGMA journal_size_limit = 67108864;",
    )
    .map_err(sql("cannot open"))?;
    let synchronous: i64 =
        conn.pragma_query_value(None, "synchronous", |row| row.get(0)).map_err(sql("cannot open"))?;
    if synchronous != 2 {
        return Err(JournalError::Corrupt(format!("{} does not accept synchronous = FULL", path.display())));
    }
    sync_names(&conn, dir)
        .map_err(|source| JournalError::Io { what: format!("cannot write to {}", dir.display()), source })?;
    migrate(&mut conn, &path, MIGRATIONS)?;
    Ok(conn)
}

/// Makes the name of a new journal durable, and those of the directories above it, before anything is written that
/// counts. SQLite does so for its WAL.
fn sync_names(conn: &Connection, dir: &Path) -> io::Result<()> {
    let version = conn.pragma_query_value(None, "user_version", |row| row.get::<_, i64>(0));
    if version.is_ok_and(|version| version == 0) {
        File::open(dir)?.sync_all()?;
        // Nobody knows which directories were made on the way here, also by a start that a crash cut short. One that
        // may not be opened was not made by decklog.
        for above in dir.canonicalize()?.ancestors().skip(1) {
            if let Ok(above) = File::open(above) {
                above.sync_all()?;
            }
        }
    }
    Ok(())
}

/// Opens a read-only connection, beside a running daemon or without one. A journal that is being made is waited for.
pub(super) fn open_reader(dir: &Path) -> Result<Connection, JournalError> {
    let until = Instant::now() + CREATION_TIMEOUT;
    open_made(dir, || {
        // In a simulation nobody else makes it meanwhile.
        !runtime::is_simulated() && Instant::now() < until && {
            std::thread::sleep(CREATION_POLL_INTERVAL);
            true
        }
    })
}

/// Opens as [`open_reader`] does; `wait` decides whether to look again if the journal is not created yet.
fn open_made(dir: &Path, mut wait: impl FnMut() -> bool) -> Result<Connection, JournalError> {
    let path = dir.join(DATABASE);
    if let Err(source) = fs::metadata(&path) {
        // Only what is surely not there is missing: a directory that may not be entered could hold a journal.
        if source.kind() == io::ErrorKind::NotFound {
            return Err(JournalError::Missing(dir.to_owned()));
        }
        return Err(JournalError::Io { what: format!("cannot read the journal in {}", dir.display()), source });
    }
    let sql = |source| JournalError::Sqlite { what: format!("cannot read {}", path.display()), source };
    let open = |path: &Path, more: OpenFlags| {
        Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX | more)
    };
    let probe = |conn: Connection| {
        let version = conn.pragma_query_value(None, "user_version", |row| row.get::<_, usize>(0))?;
        Ok((conn, version))
    };
    let (conn, mut version) = open(&path, OpenFlags::empty()).and_then(probe).or_else(|error| {
        // On a medium that cannot be written the WAL index cannot be made. Without a WAL the file alone is whole.
        let wal = path.with_extension("db-wal");
        if fs::metadata(&wal).is_ok_and(|meta| meta.len() > 0) {
            return Err(sql(error));
        }
        let uri = PathBuf::from(format!("file:{}?immutable=1", path.display().to_string().replace('?', "%3f")));
        open(&uri, OpenFlags::SQLITE_OPEN_URI).and_then(probe).map_err(|_| sql(error))
    })?;
    // Its tables and their version come in one transaction, a moment after the file.
    while version == 0 {
        if !wait() {
            return Err(JournalError::Corrupt(format!(
                "{} is being made, or its making was cut short; try again in a moment, and start the daemon where none runs",
                path.display()
            )));
        }
        version = conn.pragma_query_value(None, "user_version", |row| row.get(0)).map_err(sql)?;
    }
    check_version(version, &path, CURRENT)?;
    if version < CURRENT {
        return Err(JournalError::Corrupt(format!(
            "{} is of an older decklog (schema {version}); start the daemon once to bring it up to date",
            path.display()
        )));
    }
    conn.busy_timeout(Duration::from_secs(5)).map_err(sql)?;
    conn.execute_batch("PRAGMA query_only = ON; PRAGMA cache_size = -4096; PRAGMA trusted_schema = OFF;")
        .map_err(sql)?;
    conn.set_prepared_statement_cache_capacity(32);
    Ok(conn)
}

fn check_version(found: usize, path: &Path, known: usize) -> Result<(), JournalError> {
    if found > known {
        return Err(JournalError::Newer { path: path.to_owned(), found, known });
    }
    if (1..FIRST).contains(&found) {
        return Err(JournalError::Corrupt(format!(
            "{} is of a decklog from before 0.1.0 (schema {found}), and only that one reads it; run that one, or give this one a new [state] path",
            path.display()
        )));
    }
    Ok(())
}

fn migrate(conn: &mut Connection, path: &Path, migrations: &[&str]) -> Result<(), JournalError> {
    let sql = |what: String| move |source| JournalError::Sqlite { what, source };
    let version: usize = conn
        .pragma_query_value(None, "user_version", |row| row.get(0))
        .map_err(sql(format!("cannot read {}", path.display())))?;
    let current = FIRST + migrations.len() - 1;
    check_version(version, path, current)?;
    if version == current {
        return Ok(());
    }
    // All of them or none: whatever ends this, what reads finds a journal of one version of decklog.
    let failed = |number: usize| sql(format!("migration {number} of {} failed", path.display()));
    let tx = conn.transaction().map_err(failed(version + 1))?;
    for (number, text) in (FIRST..).zip(migrations).skip((version + 1).saturating_sub(FIRST)) {
        tx.execute_batch(text).map_err(failed(number))?;
    }
    tx.pragma_update(None, "user_version", current).map_err(failed(current))?;
    tx.commit().map_err(failed(current))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    /// A journal of another schema is refused by its number, so a schema that changes before the first release gets the next number. Whoever
    /// changes it counts up [`FIRST`] and writes the digest that this test prints.
    #[test]
    fn a_schema_that_changes_has_another_number() {
        let digest: String =
            crate::core::merkle::sha256(&[MIGRATIONS[0].as_bytes()]).iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!((FIRST, &*digest), (24, "402e2d1d10d4719afde39c04b4c5d307522b2a397daec278021d1acde40a5c38"));
    }

    #[test]
    fn a_second_daemon_is_refused_with_the_pid_of_the_first() {
        let dir = tempfile::tempdir().unwrap();
        let first = lock(dir.path()).unwrap();
        // That of a process between fork and exec.
        let _copy = first.0.try_clone().unwrap();
        let refused = lock(dir.path()).unwrap_err();
        assert!(
            matches!(refused, JournalError::Locked { pid: Some(pid), .. } if pid == std::process::id()),
            "{refused}"
        );
        drop(first);
        lock(dir.path()).unwrap();
    }

    #[test]
    fn state_of_a_newer_decklog_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        open_writer(dir.path()).unwrap().pragma_update(None, "user_version", 99).unwrap();
        let refused = open_writer(dir.path()).unwrap_err();
        assert!(matches!(refused, JournalError::Newer { found: 99, .. }), "{refused}");
        assert!(matches!(open_reader(dir.path()).unwrap_err(), JournalError::Newer { .. }));
    }

    #[test]
    fn state_is_closed_to_others() {
        let dir = tempfile::tempdir().unwrap();
        for made_before in [false, true] {
            let state = dir.path().join(format!("state-{made_before}"));
            if made_before {
                fs::create_dir(&state).unwrap();
                fs::set_permissions(&state, fs::Permissions::from_mode(0o755)).unwrap();
            }
            let _lock = lock(&state).unwrap();
            let conn = open_writer(&state).unwrap();
            conn.execute("INSERT INTO meta VALUES ('a', 'b')", []).unwrap();
            let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
            assert_eq!(mode(&state), 0o700);
            for file in fs::read_dir(&state).unwrap() {
                let path = file.unwrap().path();
                assert_eq!(mode(&path), 0o600, "{}", path.display());
            }
        }
    }

    #[test]
    fn a_journal_that_is_being_made_is_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        // The file is there before anything is in it.
        let begun = Connection::open(dir.path().join(DATABASE)).unwrap();
        begun.pragma_update(None, "journal_mode", "WAL").unwrap();
        let refused = open_made(dir.path(), || false).unwrap_err().to_string();
        assert!(refused.contains("is being made") && !refused.contains("older"), "{refused}");
        let mut looks = 0;
        let made = open_made(dir.path(), || {
            looks += 1;
            if looks == 2 {
                drop(open_writer(dir.path()).unwrap());
            }
            true
        });
        assert_eq!((made.map(drop).map_err(|error| error.to_string()), looks), (Ok(()), 2));
    }

    #[test]
    fn a_journal_of_before_gets_what_is_new_and_keeps_what_it_has() {
        let mut conn = Connection::open_in_memory().unwrap();
        migrate(&mut conn, Path::new("m"), MIGRATIONS).unwrap();
        conn.execute("INSERT INTO meta VALUES ('head', '7')", []).unwrap();
        let later = [MIGRATIONS, &["ALTER TABLE meta ADD COLUMN note TEXT NOT NULL DEFAULT 'none'"]].concat();
        migrate(&mut conn, Path::new("m"), &later).unwrap();
        migrate(&mut conn, Path::new("m"), &later).unwrap();
        let text = "SELECT value || note FROM meta WHERE key = 'head'";
        assert_eq!(conn.query_row(text, [], |row| row.get::<_, String>(0)).unwrap(), "7none");
        let version: usize = conn.pragma_query_value(None, "user_version", |row| row.get(0)).unwrap();
        assert_eq!(version, CURRENT + 1);
        let newer = migrate(&mut conn, Path::new("m"), MIGRATIONS).unwrap_err();
        assert!(matches!(newer, JournalError::Newer { .. }), "{newer}");
        let plan: String = conn
            .query_row(
                "EXPLAIN QUERY PLAN SELECT seq FROM entry WHERE object = 1 AND seq >= 1 AND (seq * 40503) & 65535 < 1024",
                [],
                |row| row.get(3),
            )
            .unwrap();
        assert!(plan.contains("entry_milestone"), "{plan}");
    }

    #[test]
    fn a_journal_from_before_the_first_schema_is_refused_in_words() {
        let dir = tempfile::tempdir().unwrap();
        open_writer(dir.path()).unwrap().pragma_update(None, "user_version", FIRST - 1).unwrap();
        for refused in [open_writer(dir.path()).map(drop), open_reader(dir.path()).map(drop)] {
            let text = refused.unwrap_err().to_string();
            assert!(
                text.contains(&format!("from before 0.1.0 (schema {})", FIRST - 1)) && text.contains("[state] path"),
                "{text}"
            );
        }
    }

    #[test]
    fn a_migration_that_fails_leaves_nothing_behind() {
        let mut conn = Connection::open_in_memory().unwrap();
        let steps = ["CREATE TABLE a (x);", "CREATE TABLE b (x); CREATE TABLE a (x);"];
        migrate(&mut conn, Path::new("m"), &steps).unwrap_err();
        let version: i64 = conn.pragma_query_value(None, "user_version", |row| row.get(0)).unwrap();
        assert_eq!(version, 0);
        assert!(conn.prepare("SELECT * FROM a").is_err() && conn.prepare("SELECT * FROM b").is_err());
    }
}
