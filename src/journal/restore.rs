//! A state directory that is built from the shared log: following from nothing, up to its end.
//!
//! The journal is built in a directory below, and moved to its place by one rename when it is whole and durable. So one that ends
//! on the way leaves nothing that reads as a journal, and the next one removes what it left.

use std::fs::{self, DirBuilder, File};
use std::io::{self, ErrorKind};
use std::path::Path;
use std::time::Duration;

use rusqlite::Connection;

use super::{Journal, JournalError, Sharing, schema};
use crate::core::os::DirBuilderExt;
use crate::core::shared_log::LogError;

/// Time for which the engine may be away during the restore.
const ENGINE_TIMEOUT: Duration = Duration::from_secs(60);

/// Directory below the state directory in which the journal is built: the state directory's parent may be of another file
/// system, or of somebody else.
const BUILDING: &str = "restoring";
/// Files that may be in there.
const BUILT: [&str; 8] = [
    schema::DATABASE,
    schema::WAL,
    "journal.db-shm",
    "journal.db-journal",
    schema::LOCK,
    "journal.mark",
    "journal.mark.new",
    "reserve",
];
/// Files that an empty directory may hold: the lock is empty, and some file systems have `lost+found` at their top.
const NOTHING: [&str; 2] = [schema::LOCK, "lost+found"];

/// Reason why nothing was restored.
#[derive(Debug, thiserror::Error)]
pub enum RestoreError {
    /// The shared log is not there, or not all of it.
    #[error("{0}")]
    Lacking(String),
    /// The engine does not do what it is asked.
    #[error(transparent)]
    Log(#[from] LogError),
    /// The state directory cannot be written, or what the shared log says is not for this decklog.
    #[error(transparent)]
    Journal(#[from] JournalError),
}

/// Builds the journal in `dir`, which is empty or not there, up to the newest unit that there is now. `progress` gets the units that are
/// there already, and all of them. Gives the number of the newest.
///
/// # Errors
/// Where something is missing; nothing that can be taken for a journal is left then.
pub async fn restore(
    dir: &Path,
    mut sharing: Sharing,
    mut progress: impl FnMut(u64, u64),
) -> Result<u64, RestoreError> {
    is_empty(dir)?;
    let shown = sharing.log.shown();
    let extent = sharing.log.extent().await?;
    if extent.newest == 0 {
        return Err(RestoreError::Lacking(format!(
            "{shown} holds no shared log of this cluster: a decklog whose [ha] log names the sink writes one"
        )));
    }
    let Some(base) = extent.bases.last().copied() else {
        return Err(RestoreError::Lacking(format!(
            "the shared log in {shown} has no base: the decklog that began it did not come so far, and nothing of it was seen by anybody"
        )));
    };
    let missing = |number: u64| {
        RestoreError::Lacking(format!(
            "unit {number} of the shared log in {shown} is missing, and {} is its newest: it was deleted; restore it there, or begin without it",
            extent.newest
        ))
    };
    let _lock = schema::lock(dir)?;
    // Nobody else is at work here now.
    is_empty(dir)?;
    let building = dir.join(BUILDING);
    clear(&building)?;
    let made = DirBuilder::new().mode(0o700).create(&building);
    made.map_err(|source| failed("create", &building, source))?;
    let built = match build(&building, sharing, base.number, extent.newest, &mut progress).await {
        Ok(None) => place(dir, &building).map(|()| extent.newest),
        Ok(Some(number)) => Err(missing(number)),
        Err(error) => Err(error),
    };
    match built {
        Ok(newest) => clear(&building).map(|()| newest),
        Err(error) => {
            // What stays of it is removed by the next one.
            clear(&building).ok();
            Err(error)
        }
    }
}

fn failed(what: &str, path: &Path, source: io::Error) -> RestoreError {
    JournalError::Io { what: format!("cannot {what} {}", path.display()), source }.into()
}

/// Refuses a directory that holds something, but for what a restore left that ended on the way.
fn is_empty(dir: &Path) -> Result<(), RestoreError> {
    if dir.join(schema::DATABASE).exists() {
        return Err(RestoreError::Lacking(format!(
            "there is a journal in {} already: move it away, or give another [state] path",
            dir.display()
        )));
    }
    let building = dir.join(BUILDING);
    let found = match first(dir, &[&NOTHING[..], &[BUILDING]].concat())? {
        None => match building.symlink_metadata() {
            Ok(meta) if meta.is_dir() => first(&building, &BUILT)?.map(|name| format!("{BUILDING}/{name}")),
            Ok(_) => Some(BUILDING.to_owned()),
            Err(_) => None,
        },
        found => found,
    };
    match found {
        None => Ok(()),
        Some(name) => Err(RestoreError::Lacking(format!(
            "the directory {} is not empty, it holds {name}, and `decklog restore` writes into an empty one: move that away, or give another [state] path",
            dir.display()
        ))),
    }
}

/// The first name in a directory but for these.
fn first(dir: &Path, but: &[&str]) -> Result<Option<String>, RestoreError> {
    let entries = match fs::read_dir(dir) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        entries => entries.map_err(|source| failed("read", dir, source))?,
    };
    let mut names = Vec::new();
    for entry in entries {
        let name = entry.map_err(|source| failed("read", dir, source))?.file_name();
        names.extend(Some(name.to_string_lossy().into_owned()).filter(|name| !but.contains(&&**name)));
    }
    names.sort_unstable();
    Ok(names.into_iter().next())
}

/// Removes what was built, and what one left that ended on the way.
fn clear(building: &Path) -> Result<(), RestoreError> {
    match fs::remove_dir_all(building) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(failed("remove", building, error)),
        _ => Ok(()),
    }
}

/// Moves the journal to its place, for good: one file, durable before and after.
fn place(dir: &Path, building: &Path) -> Result<(), RestoreError> {
    let database = building.join(schema::DATABASE);
    let whole = || {
        let conn = Connection::open(&database)?;
        let busy: i64 = conn.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get(0))?;
        conn.close().map_err(|(_, error)| error)?;
        Ok(busy == 0)
    };
    match whole() {
        Ok(true) => {}
        Ok(false) => {
            return Err(RestoreError::Lacking(format!(
                "another process reads {}: end it, and restore again",
                database.display()
            )));
        }
        Err(source) => return Err(JournalError::Sqlite { what: "cannot end the journal".to_owned(), source }.into()),
    }
    let durable = || {
        File::open(&database)?.sync_all()?;
        fs::rename(&database, dir.join(schema::DATABASE))?;
        File::open(dir)?.sync_all()
    };
    durable().map_err(|source| failed("move", &database, source))
}

/// Follows up to this unit. Gives the unit that is missing.
async fn build(
    dir: &Path,
    sharing: Sharing,
    base: u64,
    newest: u64,
    progress: &mut impl FnMut(u64, u64),
) -> Result<Option<u64>, RestoreError> {
    let (journal, mut thread) = Journal::open_shared(dir, sharing)?;
    let mut shared = journal.shared();
    let mut away: Option<tokio::time::Instant> = None;
    let missing = loop {
        let now = shared.borrow().clone();
        progress(now.number.saturating_sub(base), newest.saturating_sub(base));
        if now.number >= newest {
            break None;
        }
        if now.missing.is_some() {
            break now.missing;
        }
        match &now.problem {
            None => away = None,
            Some(problem) if away.get_or_insert_with(tokio::time::Instant::now).elapsed() > ENGINE_TIMEOUT => {
                let error = LogError::Retry(problem.clone());
                drop((journal, shared));
                drop(thread.join());
                return Err(error.into());
            }
            Some(_) => {}
        }
        tokio::select! {
            () = thread.ended() => break None,
            _ = shared.changed() => {}
            () = tokio::time::sleep(Duration::from_secs(1)) => {}
        }
    };
    let done = shared.borrow().number >= newest;
    drop((journal, shared));
    thread.join()?;
    match missing {
        None if !done => Err(JournalError::Stopped("it ended before the end of the shared log".to_owned()).into()),
        missing => Ok(missing),
    }
}
