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

use std::cell::{Cell, RefCell};
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
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

use super::readers::{Readers, refused};
use crate::core::net::server::{Peer, Stage};
use crate::core::rights::Sight;
use crate::core::runtime;
use crate::query::questions::names::Names;
use crate::query::questions::show::Show;
use crate::query::questions::status::Statuses;
use crate::query::questions::tail::Tail;
use crate::query::questions::verify::Verify;
use crate::query::render::clock::Clock;
use crate::query::render::{Exit, Failure};
use crate::query::timeline::entries::Entries;
use crate::query::timeline::entry::OneEntry;
use crate::query::timeline::overview::Overview;
use crate::query::timeline::updates::Updates;
use crate::query::timeline::window::Histogram;
use crate::query::{self, End, Frame, Log, Question};
use crate::web::lasting;

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

fn is_small(question: &str) -> bool {
    SMALL.contains(&question)
}

/// Time limit for the turn of another question.
const TURN_TIMEOUT: Duration = Duration::from_secs(20);

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
    places: Places,
}

/// Places of answers, for which others wait.
#[derive(Clone)]
pub(super) struct Places {
    turns: Arc<Semaphore>,
    /// The turn of a question that is not [`SMALL`].
    large: Arc<Semaphore>,
}

impl Reading {
    pub(super) fn new(logs: impl Fn() -> Logs + Send + Sync + 'static, readers: Readers) -> Self {
        Self {
            logs: Box::new(logs),
            readers,
            places: Places { turns: Arc::new(Semaphore::new(MOST_ANSWERS)), large: Arc::new(Semaphore::new(1)) },
        }
    }

    /// Returns the state directories that are read now.
    pub(super) fn logs(&self) -> Logs {
        (self.logs)()
    }

    /// Returns the places of answers.
    pub(super) const fn places(&self) -> &Places {
        &self.places
    }
}

impl Places {
    /// Returns a turn for an answer.
    ///
    /// # Errors
    /// A sentence where as many are being answered as may be.
    pub(super) fn turn(&self) -> Result<OwnedSemaphorePermit, String> {
        Arc::clone(&self.turns).try_acquire_owned().map_err(|_busy| busy())
    }

    /// Waits for the turn of an answer that gave its own back while rights were reviewed.
    ///
    /// # Errors
    /// A sentence where it does not come.
    pub(super) async fn another_turn(&self) -> Result<OwnedSemaphorePermit, String> {
        let turn = tokio::time::timeout(TURN_TIMEOUT, Arc::clone(&self.turns).acquire_owned()).await;
        turn.ok().and_then(Result::ok).ok_or_else(busy)
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

fn busy() -> String {
    format!("{MOST_ANSWERS} questions are being answered already; try again when one has ended")
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
    let turn = match reading.places.turn() {
        Ok(turn) => turn,
        Err(text) => return refuse(StatusCode::SERVICE_UNAVAILABLE, &text),
    };
    // What is asked for may hold values of objects, and this log never does.
    let name = query::NAMES.iter().copied().chain([CLUSTERS]).find(|known| *known == question);
    tracing::info!(who, question = name.unwrap_or("?"), "somebody reads the log over HTTP");
    stage.streams();
    let large = match reading.places.large(is_small(&question)).await {
        Ok(large) => large,
        Err(text) => return refuse(StatusCode::SERVICE_UNAVAILABLE, &text),
    };
    let answer = match Answer::begin(question, ask, (logs, sight), (reading.places.clone(), (turn, large))) {
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
    lines: mpsc::Receiver<Line>,
    sight: Sight,
    _stop: StopOnDrop,
}

/// A line of an answer.
enum Line {
    /// It says something of the log.
    Part(Bytes),
    /// The end of an answer that is whole.
    Whole(Bytes),
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

impl Answer {
    /// Begins to answer, on a thread of its own.
    fn begin(
        question: String,
        ask: Ask<Box<RawValue>>,
        (logs, sight): (Logs, Sight),
        (places, turns): (Places, Turns),
    ) -> io::Result<Self> {
        // One item waits for whoever reads slowly, and no second one is made meanwhile.
        let (sender, lines) = mpsc::channel(1);
        let stop = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&stop);
        let (runtime, of_answer) = (Handle::current(), sight.clone());
        std::thread::Builder::new().name("answer".to_owned()).spawn(move || {
            runtime::step_back();
            let (turn, large) = turns;
            let answering = Answering {
                question,
                ask,
                logs,
                sight,
                stop: flag,
                sender,
                places,
                runtime,
                turn: Cell::new(Some(turn)),
                large: Cell::new(large),
                notes: RefCell::default(),
                has_begun: Cell::new(false),
            };
            let answered = catch_unwind(AssertUnwindSafe(|| answering.answer()));
            let answered =
                answered.unwrap_or_else(|_panic| Err(Failure::internal("the answer ended in a bug of decklog")));
            drop(answering.send(&Frame::<()>::End(End::from(answered))));
        })?;
        Ok(Self { lines, sight: of_answer, _stop: StopOnDrop(stop) })
    }

    /// Returns the next line, as far as the answer stands: it may have waited for long. Dropping the future ends the answer.
    async fn next(answer: Option<Self>) -> Option<(Result<Bytes, Infallible>, Option<Self>)> {
        let mut answer = answer?;
        let beside = |frame: Frame<()>| line_of(&frame).unwrap_or_default().into();
        match tokio::time::timeout(ALIVE_INTERVAL, answer.lines.recv()).await {
            Ok(Some(Line::Whole(line))) => Some((Ok(line), None)),
            Ok(Some(Line::Part(line))) => match lasting::stands(&answer.sight).await {
                Ok(()) => Some((Ok(line), Some(answer))),
                Err(refusal) => Some((Ok(beside(Frame::End(End::from(Err(refusal.into()))))), None)),
            },
            Ok(None) => None,
            Err(_elapsed) => Some((Ok(beside(Frame::Alive)), Some(answer))),
        }
    }
}

fn line_of<T: Serialize>(frame: &Frame<T>) -> serde_json::Result<Vec<u8>> {
    let mut line = serde_json::to_vec(frame)?;
    line.push(b'\n');
    Ok(line)
}

/// What a thread needs that answers.
struct Answering {
    question: String,
    ask: Ask<Box<RawValue>>,
    logs: Logs,
    sight: Sight,
    stop: Arc<AtomicBool>,
    sender: mpsc::Sender<Line>,
    places: Places,
    runtime: Handle,
    /// The places that it has.
    turn: Cell<Option<OwnedSemaphorePermit>>,
    large: Cell<Option<OwnedSemaphorePermit>>,
    /// Sentences that are said before the first item, and void where the question is asked again.
    notes: RefCell<Vec<String>>,
    /// Something is sent.
    has_begun: Cell<bool>,
}

impl Answering {
    /// Answers, as often as it takes to know what may be seen. Who waits for reviews has no place of the others.
    fn answer(&self) -> Result<(), Failure> {
        if self.question == CLUSTERS {
            return self.logs.clusters.keys().try_for_each(|name| self.send(&Frame::Item(name)));
        }
        loop {
            let answered = self.answer_once();
            if self.has_begun.get() && self.sight.is_undecided() {
                // The next try has what this one lacked.
                drop((self.turn.take(), self.large.take(), self.sight.settle()));
                return answered;
            }
            if self.has_begun.get() || !self.sight.is_unsettled() {
                self.say_notes()?;
                return answered;
            }
            let is_void = self.sight.is_undecided();
            drop((self.turn.take(), self.large.take()));
            self.sight.settle()?;
            if !is_void {
                self.say_notes()?;
                return answered;
            }
            self.notes.take();
            let busy = |text| Failure::new(Exit::Io, text);
            self.take_turn()?;
            self.large.set(self.runtime.block_on(self.places.large(is_small(&self.question))).map_err(busy)?);
        }
    }

    fn answer_once(&self) -> Result<(), Failure> {
        let Ask { ask, cluster, zone } = &self.ask;
        let zone = zone
            .as_deref()
            .filter(|zone| is_zone(zone))
            .and_then(|zone| TimeZone::get(zone).or_else(|_| TimeZone::posix(zone)).ok());
        let clock = Clock { now: Timestamp::now(), zone: zone.unwrap_or(TimeZone::UTC) };
        let note = |text: &str| {
            self.notes.borrow_mut().push(text.to_owned());
            if self.has_begun.get() {
                // Where nobody takes it any more, the next item ends the answer.
                drop(self.say_notes());
            }
        };
        let lend = |work: &mut dyn FnMut() -> Result<(), Failure>| {
            drop((self.turn.take(), self.large.take()));
            work()?;
            self.take_turn()
        };
        let log = Log::new(self.logs.of(cluster.as_deref())?, self.sight.clone(), clock, &note, &|| false);
        let log = log.until(Arc::clone(&self.stop)).lending(&lend);
        query::answer(&self.question, ask.get(), &log, &mut |item| {
            self.say_notes()?;
            self.send(&Frame::Item(item))
        })
    }

    fn take_turn(&self) -> Result<(), Failure> {
        let turn = self.runtime.block_on(self.places.another_turn());
        self.turn.set(Some(turn.map_err(|text| Failure::new(Exit::Io, text))?));
        Ok(())
    }

    fn say_notes(&self) -> Result<(), Failure> {
        self.notes.take().into_iter().try_for_each(|text| self.send(&Frame::<()>::Note(text)))
    }

    fn send<T: Serialize>(&self, frame: &Frame<T>) -> Result<(), Failure> {
        let bug = |error: serde_json::Error| Failure::internal(format!("an item cannot be written: {error}"));
        let line = line_of(frame).map_err(bug)?.into();
        let is_whole = matches!(frame, Frame::End(end) if *end == End::default());
        self.has_begun.set(true);
        let line = if is_whole { Line::Whole(line) } else { Line::Part(line) };
        let sent = self.sender.blocking_send(line).map_err(|_gone| Failure::closed_pipe());
        // Most of what is large is gathered before the first item, and a slow reader holds up nobody else.
        if self.question != Verify::NAME {
            drop(self.large.take());
        }
        sent
    }
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
    use std::sync::atomic::AtomicUsize;

    use super::*;
    use crate::core::rights::{Decision, Listing, Refusal, Refused, Rights};
    use crate::query::questions::churn::Churned;

    /// Rights that nobody decides before the gate opens.
    #[derive(Debug)]
    struct Slow {
        is_open: AtomicBool,
        asked: AtomicUsize,
    }

    impl Rights for Slow {
        fn recall(&self, _: &Listing) -> Option<Decision> {
            None
        }

        fn decide(&self, _: &Listing) -> Result<Decision, Refusal> {
            self.asked.fetch_add(1, Ordering::Relaxed);
            while !self.is_open.load(Ordering::Relaxed) {
                std::thread::yield_now();
            }
            Err(Refusal::new(Refused::Away, "nobody decides"))
        }

        fn may_get(&self, _: &str) -> Result<Decision, Refusal> {
            Err(Refusal::new(Refused::Away, "nobody decides"))
        }
    }

    /// Who waits for reviews has no place among the answers, and keeps no large question from being asked.
    #[tokio::test]
    async fn who_waits_for_reviews_keeps_nobody_waiting() {
        let dir = tempfile::tempdir().unwrap();
        let (journal, thread) = crate::journal::Journal::open(dir.path()).unwrap();
        let reading = Reading::new(Logs::default, Readers::new(None, Box::new(BTreeMap::new)));
        let rights = Arc::new(Slow { is_open: AtomicBool::new(false), asked: AtomicUsize::new(0) });
        let mut answers = Vec::new();
        for (number, question) in [Churned::NAME, Tail::NAME].into_iter().cycle().take(MOST_ANSWERS + 4).enumerate() {
            let large = reading.places.large(is_small(question)).await.unwrap();
            let turns = (reading.places.clone(), (reading.places.turn().unwrap(), large));
            let asked = if is_small(question) { "{}" } else { r#"{"select":{},"requests":false,"top":5}"# };
            let ask = Ask { ask: RawValue::from_string(asked.to_owned()).unwrap(), cluster: None, zone: None };
            let logs = Logs { state: dir.path().to_owned(), ..Logs::default() };
            let sight = Sight::of(Arc::<Slow>::clone(&rights));
            answers.push(Answer::begin(question.to_owned(), ask, (logs, sight), turns).unwrap());
            while rights.asked.load(Ordering::Relaxed) <= number {
                tokio::task::yield_now().await;
            }
        }
        rights.is_open.store(true, Ordering::Relaxed);
        for answer in answers {
            let (line, _) = Answer::next(Some(answer)).await.unwrap();
            assert!(String::from_utf8(line.unwrap().to_vec()).unwrap().contains("nobody decides"));
        }
        drop(journal);
        tokio::task::spawn_blocking(move || thread.join()).await.unwrap().unwrap();
    }

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
