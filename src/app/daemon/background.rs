//! Tasks that watch neither the cluster nor the sinks, and the loan to the endpoints of the process.

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::error::TaskError;
use crate::app::config::Config;
use crate::core::supervise::Supervisor;
use crate::journal::Journal;
use crate::query::churn::Meter;
use crate::watch::cluster::Api;
use crate::watch::{SourceManagerHandle, apiserver_counters};
use crate::web::http::Endpoints;
use crate::web::ui;

/// Lends what a cluster's daemon has to the endpoints of its process, while it runs.
#[derive(Clone, Debug)]
pub struct EndpointRegistry {
    /// Channel that publishes them.
    pub endpoints: watch::Sender<Option<Endpoints>>,
    /// Set if the process has endpoints.
    pub served: bool,
}

impl EndpointRegistry {
    /// Lends it until `stop`, or until this is dropped.
    pub(super) async fn lend(self, endpoints: Endpoints, stop: CancellationToken) {
        let lent = Lent(self.endpoints);
        lent.0.send_replace(Some(endpoints));
        stop.cancelled().await;
    }
}

/// Revokes the lent endpoints when it is dropped.
struct Lent(watch::Sender<Option<Endpoints>>);

impl Drop for Lent {
    fn drop(&mut self) {
        self.0.send_replace(None);
    }
}

/// Begins what every daemon does beside: its heartbeat, and outlines of the log where there is a page.
pub(super) fn begin(
    config: &Config,
    sources: &SourceManagerHandle,
    journal: &Journal,
    tasks: &mut Supervisor<TaskError>,
) {
    if config.ui.is_some() {
        keep_outlines(journal, tasks);
    }
    tasks.spawn("heartbeat", keep_heartbeat(sources.clone(), tasks.stop()));
}

/// Notices until `stop` is cancelled that this process does not run.
async fn keep_heartbeat(sources: SourceManagerHandle, stop: CancellationToken) -> Result<(), TaskError> {
    sources.keep_heartbeat(stop).await;
    Ok(())
}

/// Counts writes by kind, for the metrics.
pub(super) fn count_writes(meter: Meter, journal: &Journal, tasks: &mut Supervisor<TaskError>) {
    let (journal, stop) = (journal.clone(), tasks.stop());
    tasks.spawn("churn", async move { Ok(meter.follow(journal, stop).await?) });
}

/// Reads the API server's own counters.
pub(super) fn count_requests(
    api: Api,
    sources: &SourceManagerHandle,
    journal: &Journal,
    tasks: &mut Supervisor<TaskError>,
) {
    let (sources, journal, stop) = (sources.clone(), journal.clone(), tasks.stop());
    tasks.spawn("request counters", async move { Ok(apiserver_counters::run(api, sources, journal, stop).await?) });
}

/// Keeps outlines of the log for the page.
fn keep_outlines(journal: &Journal, tasks: &mut Supervisor<TaskError>) {
    let (journal, stop) = (journal.clone(), tasks.stop());
    tasks.spawn("outlines", async move { Ok(ui::keep_outlines(journal, stop).await?) });
}
