//! A state directory that is built from the shared log: following from nothing, up to its end.

use std::path::Path;
use std::time::Duration;

use super::{Journal, JournalError, Sharing, schema};
use crate::shared_log::LogError;

/// How long an engine may be away in the middle of it.
const PATIENCE: Duration = Duration::from_secs(60);

/// Why nothing was restored.
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

/// Builds the journal in `dir`, which has none, up to the newest unit that there is now. `progress` gets the units that are
/// there already, and all of them. Gives the number of the newest.
///
/// # Errors
/// Where something is missing; nothing that can be taken for a journal is left then.
pub async fn restore(
    dir: &Path,
    mut sharing: Sharing,
    mut progress: impl FnMut(u64, u64),
) -> Result<u64, RestoreError> {
    if dir.join(schema::DATABASE).exists() {
        return Err(RestoreError::Lacking(format!(
            "there is a journal in {} already: move it away, or give another [state] path",
            dir.display()
        )));
    }
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
    let built = build(dir, sharing, base.number, extent.newest, &mut progress).await;
    match built {
        Ok(None) => Ok(extent.newest),
        other => {
            for name in schema::READ.iter().chain(&["journal.mark", "reserve"]) {
                // What is not there need not go.
                drop(std::fs::remove_file(dir.join(name)));
            }
            Err(match other {
                Ok(Some(number)) => missing(number),
                Err(error) => error,
                Ok(None) => RestoreError::Lacking(String::new()),
            })
        }
    }
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
            Some(problem) if away.get_or_insert_with(tokio::time::Instant::now).elapsed() > PATIENCE => {
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
