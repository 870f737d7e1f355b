//! `decklog --server`: questions about the log, from those who are on another machine.
//!
//! A question is answered here, from the journal, as a command on this machine would answer it, and each item of the answer is
//! sent as a line of JSON as soon as it is known. The answer ends with whoever asked: readings of the journal are interrupted.
//!
//! # Decision: a remote command is a question
//!
//! Context: Each command has to say the same from everywhere, and a daemon is to have one interface for its log.
//! Decision: `POST /api/v1/QUESTION` takes the very question that a command asks of a journal on its own machine, and the
//! command renders the items at home. The zone goes with the question, because sentences have times.
//! Cost: Both sides should have one version; what an answer needs is memory of the daemon, so few are answered at a time.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::Json;
use axum::body::Body;
use axum::extract::{Extension, FromRequest, Path, Request, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures::stream;
use jiff::Timestamp;
use jiff::tz::TimeZone;
#[cfg(target_os = "linux")]
use rustix::process::setpriority_process;
#[cfg(target_os = "linux")]
use rustix::thread::gettid;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

use super::readers::{Readers, refused};
use crate::core::net::server::{Peer, Stage};
use crate::core::rights::Sight;
use crate::query::questions::names::Names;
use crate::query::questions::show::Show;
use crate::query::questions::status::Statuses;
use crate::query::questions::tail::Tail;
use crate::query::questions::verify::Verify;
use crate::query::render::Failure;
use crate::query::render::clock::Clock;
use crate::query::timeline::entries::Entries;
use crate::query::timeline::entry::OneEntry;
use crate::query::timeline::overview::Overview;
use crate::query::timeline::updates::Updates;
use crate::query::timeline::window::Histogram;
use crate::query::{self, End, Frame, Log, Question};

/// Number of questions that are answered at a time.
pub(super) const MOST_ANSWERS: usize = 8;

/// Questions whose answers need little memory at a time, whatever the log holds. Of the others one after the other is begun.
const SMALL: [&str; 9] = [
    Tail::NAME,
    Show::NAME,
    Statuses::NAME,
    Names::NAME,
    Overview::NAME,
    Histogram::NAME,
    Entries::NAME,
    OneEntry::NAME,
    Updates::NAME,
];

/// Time limit for the turn of another question.
const TURN_TIMEOUT: Duration = Duration::from_secs(20);

/// Niceness of the threads that answer: the daemon's own work comes first.
#[cfg(target_os = "linux")]
const NICE: i32 = 10;

/// Interval of keepalive lines while nothing comes.
pub(crate) const ALIVE_INTERVAL: Duration = Duration::from_secs(15);

/// Bytes of a request.
pub(super) const MOST_ASKED: usize = 64 << 10;

/// Media type of an answer: one [`Frame`] as JSON in each line.
pub(crate) const CONTENT_TYPE: &str = "application/x-ndjson";

/// Question that is answered without a journal: the names of the clusters, none where there is only one.
pub(crate) const CLUSTERS: &str = "clusters";

/// A question, and for whom it is.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Ask<Q> {
    /// The question.
    pub(crate) ask: Q,
    /// The cluster, where the server has several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) cluster: Option<String>,
    /// The zone of whoever asks, as in `TZ`; UTC if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) zone: Option<String>,
}

/// State directories that are read: of one cluster, or of several.
#[derive(Clone, Debug, Default)]
pub(crate) struct Logs {
    pub(crate) state: PathBuf,
    pub(crate) clusters: BTreeMap<String, PathBuf>,
}

/// Access control and the number of readers.
pub(super) struct Reading {
    logs: Box<dyn Fn() -> Logs + Send + Sync>,
    pub(super) readers: Readers,
    turns: Arc<Semaphore>,
    /// The turn of a question that is not [`SMALL`].
    large: Arc<Semaphore>,
}

impl Reading {
    pub(super) fn new(logs: impl Fn() -> Logs + Send + Sync + 'static, readers: Readers) -> Self {
        Self {
            logs: Box::new(logs),
            readers,
            turns: Arc::new(Semaphore::new(MOST_ANSWERS)),
            large: Arc::new(Semaphore::new(1)),
        }
    }

    /// Returns the state directories that are read now.
    pub(super) fn logs(&self) -> Logs {
        (self.logs)()
    }

    /// Returns a turn for an answer.
    ///
    /// # Errors
    /// A sentence where as many are being answered as may be.
    pub(super) fn turn(&self) -> Result<OwnedSemaphorePermit, String> {
        Arc::clone(&self.turns).try_acquire_owned().map_err(|_busy| {
            format!("{MOST_ANSWERS} questions are being answered already; try again when one has ended")
        })
    }

    /// Waits for the turn of a question that is not small.
    ///
    /// # Errors
    /// A sentence where it does not come.
    pub(super) async fn large(&self, is_small: bool) -> Result<Option<OwnedSemaphorePermit>, String> {
        if is_small {
            return Ok(None);
        }
        match tokio::time::timeout(TURN_TIMEOUT, Arc::clone(&self.large).acquire_owned()).await {
            Ok(large) => Ok(large.ok()),
            Err(_elapsed) => Err("a larger question is being answered; try again when that has ended".to_owned()),
        }
    }
}

fn refuse(status: StatusCode, text: &str) -> Response {
    (status, format!("{text}\n")).into_response()
}

/// Answers a question for somebody elsewhere.
pub(super) async fn read(
    State(reading): State<Arc<Reading>>,
    Path(question): Path<String>,
    Extension(peer): Extension<Peer>,
    Extension(stage): Extension<Stage>,
    request: Request,
) -> Response {
    let reader = match reading.readers.admit(&peer, request.headers()).await {
        Ok(reader) => reader,
        Err(refusal) => return refused(&refusal),
    };
    let ask = match Json::<Ask<Box<RawValue>>>::from_request(request, &()).await {
        Ok(Json(ask)) => ask,
        Err(rejection) => return rejection.into_response(),
    };
    let mut logs = reading.logs();
    let sight = match question == CLUSTERS {
        // It opens no journal.
        true => match reading.readers.clusters(&reader).await {
            Ok(known) => {
                logs.clusters.retain(|name, _| known.as_ref().is_none_or(|known| known.contains(name)));
                reading.readers.name(&reader).await.map(|who| (who, Sight::All))
            }
            Err(refusal) => Err(refusal),
        },
        false => reading.readers.sight(&reader, ask.cluster.as_deref()).await,
    };
    let (who, sight) = match sight {
        Ok(sight) => sight,
        Err(refusal) => return refused(&refusal),
    };
    let turn = match reading.turn() {
        Ok(turn) => turn,
        Err(text) => return refuse(StatusCode::SERVICE_UNAVAILABLE, &text),
    };
    // What is asked for may hold values of objects, and this log never does.
    let name = query::NAMES.iter().copied().chain([CLUSTERS]).find(|known| *known == question);
    tracing::info!(who, question = name.unwrap_or("?"), "somebody reads the log over HTTP");
    stage.streams();
    let large = match reading.large(SMALL.contains(&question.as_str())).await {
        Ok(large) => large,
        Err(text) => return refuse(StatusCode::SERVICE_UNAVAILABLE, &text),
    };
    let answer = match Answer::begin(question, ask, (logs, sight), (turn, large)) {
        Ok(answer) => answer,
        Err(error) => {
            return refuse(StatusCode::INTERNAL_SERVER_ERROR, &format!("this server cannot start a thread: {error}"));
        }
    };
    let lines = stream::unfold(Some(answer), Answer::next);
    ([(header::CONTENT_TYPE, CONTENT_TYPE)], Body::from_stream(lines)).into_response()
}

/// An answer on its way. Whoever drops it ends the reading.
struct Answer {
    lines: mpsc::Receiver<Bytes>,
    _stop: StopOnDrop,
}

/// What is given back when an answer ends.
pub(super) type Turns = (OwnedSemaphorePermit, Option<OwnedSemaphorePermit>);

/// Sets a flag when it is dropped.
struct StopOnDrop(Arc<AtomicBool>);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Lets the daemon's own work go before that of this thread, on Linux. Where that is not allowed, it answers all the same.
pub(super) fn step_back() {
    #[cfg(target_os = "linux")]
    setpriority_process(Some(gettid()), NICE).ok();
}

impl Answer {
    /// Begins to answer, on a thread of its own.
    fn begin(question: String, ask: Ask<Box<RawValue>>, logs: (Logs, Sight), turns: Turns) -> io::Result<Self> {
        // One item waits for whoever reads slowly, and no second one is made meanwhile.
        let (sender, lines) = mpsc::channel(1);
        let stop = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&stop);
        std::thread::Builder::new().name("answer".to_owned()).spawn(move || {
            let (_turn, large) = turns;
            let large = Cell::new(large);
            step_back();
            let send = |line: Result<Vec<u8>, serde_json::Error>| {
                let mut line =
                    line.map_err(|error| Failure::internal(format!("an item cannot be written: {error}")))?;
                line.push(b'\n');
                let sent = sender.blocking_send(line.into()).map_err(|_gone| Failure::closed_pipe());
                // Most of what is large is gathered before the first item, and a slow reader holds up nobody else.
                if question != Verify::NAME {
                    drop(large.take());
                }
                sent
            };
            let answered = catch_unwind(AssertUnwindSafe(|| answer(&question, &ask, &logs, &flag, &send)));
            let answered =
                answered.unwrap_or_else(|_panic| Err(Failure::internal("the answer ended in a bug of decklog")));
            drop(send(serde_json::to_vec(&Frame::<()>::End(End::from(answered)))));
        })?;
        Ok(Self { lines, _stop: StopOnDrop(stop) })
    }

    /// Returns the next line. Dropping the future ends the answer.
    async fn next(answer: Option<Self>) -> Option<(Result<Bytes, Infallible>, Option<Self>)> {
        let mut answer = answer?;
        match tokio::time::timeout(ALIVE_INTERVAL, answer.lines.recv()).await {
            Ok(Some(line)) => Some((Ok(line), Some(answer))),
            Ok(None) => None,
            Err(_elapsed) => {
                let line = serde_json::to_vec(&Frame::<()>::Alive).map(|line| [line, b"\n".to_vec()].concat());
                Some((Ok(line.unwrap_or_default().into()), Some(answer)))
            }
        }
    }
}

/// Answers with lines.
fn answer(
    question: &str,
    Ask { ask, cluster, zone }: &Ask<Box<RawValue>>,
    (logs, sight): &(Logs, Sight),
    stop: &Arc<AtomicBool>,
    send: &dyn Fn(Result<Vec<u8>, serde_json::Error>) -> Result<(), Failure>,
) -> Result<(), Failure> {
    if question == CLUSTERS {
        return logs.clusters.keys().try_for_each(|name| send(serde_json::to_vec(&Frame::Item(name))));
    }
    let zone = zone
        .as_deref()
        .filter(|zone| is_zone(zone))
        .and_then(|zone| TimeZone::get(zone).or_else(|_| TimeZone::posix(zone)).ok());
    let clock = Clock { now: Timestamp::now(), zone: zone.unwrap_or(TimeZone::UTC) };
    // Where nobody takes it any more, the next item ends the answer.
    let note = |text: &str| drop(send(serde_json::to_vec(&Frame::<()>::Note(text.to_owned()))));
    let log = Log::new(logs.of(cluster.as_deref())?, sight.clone(), clock, &note, &|| false).until(Arc::clone(stop));
    query::answer(question, ask.get(), &log, &mut |item| send(serde_json::to_vec(&Frame::Item(item))))
}

impl Logs {
    /// The state directory of one cluster.
    pub(super) fn of(&self, cluster: Option<&str>) -> Result<PathBuf, Failure> {
        let names = || self.clusters.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
        match (cluster, self.clusters.len()) {
            (None, 0) => Ok(self.state.clone()),
            (Some(name), 0) => Err(Failure::usage(format!(
                "this server has one cluster, and it is called by no name: leave --cluster {name} out"
            ))),
            (Some(name), _) => self
                .clusters
                .get(name)
                .cloned()
                .ok_or_else(|| Failure::usage(format!("the server has no cluster {name:?}; it has {}", names()))),
            (None, 1) => Ok(self.clusters.values().next().unwrap_or(&self.state).clone()),
            (None, _) => Err(Failure::usage(format!(
                "there are several clusters; say which one is meant by --cluster: {}",
                names()
            ))),
        }
    }
}

/// Reports whether the text is the name of a time zone and not a path.
fn is_zone(text: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"_+-/,.<>:".contains(&byte);
    text.len() <= 64 && text.bytes().all(fits) && !text.starts_with(['/', ':', '.']) && !text.contains("..")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_zone_is_no_file() {
        for zone in ["Europe/Berlin", "UTC", "EST5EDT,M3.2.0,M11.1.0", "<+0330>-3:30", "Etc/GMT+5"] {
            assert!(is_zone(zone), "{zone}");
        }
        for file in
            ["/etc/shadow", ":/etc/shadow", "../../etc/shadow", "Europe/../../x", "a b", "a\0b", &"x".repeat(65)]
        {
            assert!(!is_zone(file), "{file}");
        }
    }
}
