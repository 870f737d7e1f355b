//! The endpoints of a process that has several clusters: the same as of one, over all of them, or with `?cluster=NAME` of one.
//!
//! What is asked of one cluster's journal has a bound in time of its own, and its thread: a disk that does not answer takes
//! nothing from the others.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{Extension, Path as UrlPath, Query, State};
use axum::http::{StatusCode, header};
use axum::middleware;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use futures::future::join_all;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;

use super::members::{Clusters, Member};
use super::readers::Readers;
use super::reading::{Logs, Reading};
use super::{EXPOSITION, LIMITS, Whole, answer, evidence, guard, metrics, questions, waiting, witness};
use crate::core::net::server::Bound;
use crate::journal::{JournalError, Reader};
use crate::query::status::{Alarm, Status};

/// Time limit for reading one cluster's journal for an answer about all clusters.
const JOURNAL_READ_TIMEOUT: Duration = Duration::from_secs(5);

/// Serves all clusters until `stop`.
///
/// # Errors
/// Where the socket fails.
pub async fn serve_several(mut bound: Bound, clusters: Clusters, stop: CancellationToken) -> io::Result<()> {
    let gate = bound.gate.take();
    let known = clusters.clone();
    let readers = Readers::new(gate, clusters.authorities());
    let reading = Arc::new(Reading::new(move || Logs { clusters: states(&known), ..Logs::default() }, readers));
    let witness = witness::routes_of_several(clusters.clone());
    let router = Router::new()
        .route("/livez", get(livez))
        .route("/readyz", get(readyz))
        .route("/metrics", get(scrape))
        .route("/status", get(show_status))
        .route("/evidence/{cluster}/{*path}", get(show_evidence))
        .with_state(clusters)
        .layer(middleware::from_fn_with_state(Arc::clone(&reading), guard))
        .merge(questions(reading, &stop))
        .merge(witness);
    bound.answer(router, LIMITS, stop).await
}

impl Whole {
    fn has(&self, name: &str) -> bool {
        self.0.as_ref().is_none_or(|names| names.iter().any(|known| known == name))
    }
}

fn states(clusters: &Clusters) -> BTreeMap<String, PathBuf> {
    let all = clusters.named(None).unwrap_or_default();
    all.into_iter().filter_map(|(name, member)| Some((name, member.state?))).collect()
}

async fn show_evidence(
    State(clusters): State<Clusters>,
    Extension(whole): Extension<Whole>,
    UrlPath((cluster, path)): UrlPath<(String, String)>,
) -> Response {
    let member =
        clusters.named(Some(&cluster)).filter(|_| whole.has(&cluster)).and_then(|found| found.into_iter().next());
    let dir = member.and_then(|(_, member)| member.endpoints.borrow().as_ref()?.evidence.clone());
    evidence::file(dir, &path).await
}

/// Query that selects one cluster.
#[derive(Debug, Deserialize)]
struct Narrow {
    cluster: Option<String>,
}

/// The clusters that are asked for, or what to answer where there is none.
#[expect(clippy::result_large_err, reason = "it is the answer")]
fn asked(clusters: &Clusters, narrow: &Narrow, whole: &Whole) -> Result<Vec<(String, Member)>, Response> {
    let of = |name: Option<&str>| {
        let mut found = clusters.named(name)?;
        found.retain(|(name, _)| whole.has(name));
        Some(found).filter(|found| name.is_none() || !found.is_empty())
    };
    of(narrow.cluster.as_deref()).ok_or_else(|| {
        let names: Vec<String> = of(None).unwrap_or_default().into_iter().map(|(name, _)| name).collect();
        let wanted = narrow.cluster.as_deref().unwrap_or_default();
        let text = format!("there is no cluster {wanted:?} here; there is {}\n", names.join(", "));
        (StatusCode::NOT_FOUND, text).into_response()
    })
}

/// Liveness as the watchdog sees it: names the clusters that ran and make no progress.
async fn livez(
    State(clusters): State<Clusters>,
    Extension(whole): Extension<Whole>,
    Query(narrow): Query<Narrow>,
) -> Response {
    let members = match asked(&clusters, &narrow, &whole) {
        Ok(members) => members,
        Err(answer) => return answer,
    };
    let stalled: String = members
        .into_iter()
        .filter(|(_, member)| member.stalled)
        .map(|(name, member)| {
            let parts = member.endpoints.borrow().as_ref().map(|endpoints| endpoints.live.borrow().stalled.join(", "));
            format!(
                "{name}: no progress in: {}\n",
                parts.filter(|parts| !parts.is_empty()).unwrap_or_else(|| "its daemon".to_owned())
            )
        })
        .collect();
    if stalled.is_empty() { "ok\n".into_response() } else { (StatusCode::SERVICE_UNAVAILABLE, stalled).into_response() }
}

async fn readyz(
    State(clusters): State<Clusters>,
    Extension(whole): Extension<Whole>,
    Query(narrow): Query<Narrow>,
) -> Response {
    let members = match asked(&clusters, &narrow, &whole) {
        Ok(members) => members,
        Err(answer) => return answer,
    };
    // A file that was never right is no cluster that could be ready; who asks for it alone hears what is wrong.
    let alone = narrow.cluster.is_some();
    let members = members.into_iter().filter(|(_, member)| alone || member.state.is_some());
    let texts = join_all(members.map(|(name, member)| async move {
        let why = match member.endpoints.borrow().as_ref() {
            Some(endpoints) => endpoints.why_not_ready(),
            None => Some("it has not started yet".to_owned()),
        };
        let Some(why) = why else { return String::new() };
        let mut lines: Vec<String> = member.alarms().into_iter().map(|alarm| alarm.what + "\n").collect();
        if lines.is_empty() {
            lines = member.look(waiting).await.unwrap_or_default();
        }
        if lines.is_empty() {
            lines.push(format!("{why}\n"));
        }
        lines.iter().map(|line| format!("{name}: {line}")).collect()
    }))
    .await
    .concat();
    if texts.is_empty() {
        return "ok\n".into_response();
    }
    (StatusCode::SERVICE_UNAVAILABLE, format!("not ready:\n{texts}")).into_response()
}

async fn scrape(
    State(clusters): State<Clusters>,
    Extension(whole): Extension<Whole>,
    Query(narrow): Query<Narrow>,
) -> Response {
    let members = match asked(&clusters, &narrow, &whole) {
        Ok(members) => members,
        Err(answer) => return answer,
    };
    let process = metrics::render_process(&clusters.process()).map_err(|error| error.to_string());
    let parts = join_all(members.into_iter().map(|(name, member)| async move {
        // What the daemon has is not held while its journal is read: it may be asked to end.
        let process = member.endpoints.borrow().as_ref().map(metrics::Process::of).unwrap_or_default();
        let (alarms, restarts) = (member.alarms(), member.restarts);
        let known = Arc::new(process);
        let (of, process, label) = (member.clone(), Arc::clone(&known), name.clone());
        let whole = member.look(move |state| {
            let mut reader = Reader::open(state)?;
            let status = of.status(&mut reader, state)?;
            metrics::render_cluster(&label, Some((&reader, &status)), &[], &process, restarts)
        });
        match whole.await {
            Ok(text) => Ok(text),
            Err(_) => {
                metrics::render_cluster(&name, None, &alarms, &known, restarts).map_err(|error| error.to_string())
            }
        }
    }))
    .await;
    let texts: Result<Vec<String>, String> = [process].into_iter().chain(parts).collect();
    answer(texts.map(|texts| ([(header::CONTENT_TYPE, EXPOSITION)], metrics::merge(&texts))))
}

/// Status of a cluster whose journal cannot be read: its alarms.
#[derive(Debug, Serialize)]
struct Unread {
    time: Timestamp,
    alarms: Vec<Alarm>,
    /// The reason why the rest is missing.
    error: String,
}

#[derive(Debug, Serialize)]
#[serde(untagged)]
enum Report {
    Whole(Box<Status>),
    Unread(Unread),
}

async fn show_status(
    State(clusters): State<Clusters>,
    Extension(whole): Extension<Whole>,
    Query(narrow): Query<Narrow>,
) -> Response {
    let members = match asked(&clusters, &narrow, &whole) {
        Ok(members) => members,
        Err(answer) => return answer,
    };
    let reports = join_all(members.into_iter().map(|(name, member)| async move {
        let (of, alarms) = (member.clone(), member.alarms());
        let whole = member.look(move |state| of.status(&mut Reader::open(state)?, state)).await;
        let report = match whole {
            Ok(status) => Report::Whole(Box::new(status)),
            Err(error) => Report::Unread(Unread { time: Timestamp::now(), alarms, error }),
        };
        (name, report)
    }))
    .await;
    axum::Json(reports.into_iter().collect::<BTreeMap<_, _>>()).into_response()
}

impl Member {
    /// Its status, with what the process knows of it.
    fn status(&self, reader: &mut Reader, state: &Path) -> Result<Status, JournalError> {
        let mut status = Status::gather(reader, state, Timestamp::now())?;
        // Another process may have its journal, and then what that one does is what happens to it.
        if !status.daemon.running {
            status.daemon.failed.clone_from(&self.failed);
        }
        status.daemon.refused.clone_from(&self.refused);
        status.judge();
        Ok(status)
    }

    /// Reads its journal on a thread that may block.
    async fn look<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Path) -> Result<T, JournalError> + Send + 'static,
    ) -> Result<T, String> {
        let Some(state) = self.state.clone() else { return Err("its configuration is wrong".to_owned()) };
        let turn = Arc::clone(&self.turn);
        let looking = async move {
            let turn = turn.acquire_owned().await.map_err(|error| error.to_string())?;
            let reading = tokio::task::spawn_blocking(move || {
                // The turn lasts as long as the reading does, also where nobody waits for it any more.
                let _turn = turn;
                work(&state)
            });
            reading.await.map_err(|error| error.to_string())?.map_err(|error| error.to_string())
        };
        match tokio::time::timeout(JOURNAL_READ_TIMEOUT, looking).await {
            Ok(result) => result,
            Err(_elapsed) => Err(format!("its journal could not be read within {} s", JOURNAL_READ_TIMEOUT.as_secs())),
        }
    }
}
