//! The task that publishes alarms and GAPs as Events.

use std::path::Path;

use jiff::Timestamp;

use super::{Api, Config, DaemonError, Journal, Live, Supervisor, TaskError, watch};
use crate::app::announce::{Announcer, Baseline, Object, Seen};
use crate::core::runtime;
use crate::journal::{JournalError, Reader, Role};
use crate::query::status::Status;

/// Returns what publishes, where there is an object for it. It begins behind the GAPs that the log has already.
pub(super) async fn announcer(config: &Config, api: &Api, journal: &Journal) -> Result<Option<Announcer>, DaemonError> {
    let Some(object) = Object::of(config, api, |name| std::env::var(name).ok()) else { return Ok(None) };
    let journal = journal.clone();
    let baseline = runtime::blocking(move || Baseline::read(&journal.reader()?)).await?;
    Ok(Some(Announcer::new(api.clone(), object, baseline)))
}

/// Begins to publish.
pub(super) fn spawn(
    announcer: Option<Announcer>,
    state: &Path,
    journal: &Journal,
    news: watch::Receiver<Live>,
    tasks: &mut Supervisor<TaskError>,
) {
    let Some(announcer) = announcer else { return };
    let (state, shared, known, stop) = (state.to_owned(), journal.shared(), news.clone(), tasks.stop());
    let look = move || {
        // The part comes before the log: what a leader has written is not taken for that of another.
        let leads = shared.borrow().role != Role::Standby;
        let (state, live) = (state.clone(), known.borrow().clone());
        async move {
            let read = move || -> Result<Seen, JournalError> {
                let status = Status::of_this_daemon(&mut Reader::open(&state)?, &state, Timestamp::now(), live)?;
                Ok(Seen::of(status, leads))
            };
            runtime::blocking(read).await.inspect_err(|error| tracing::debug!("no status for Events: {error}")).ok()
        }
    };
    tasks.spawn("events", async move {
        announcer.run(look, news, stop).await;
        Ok(())
    });
}
