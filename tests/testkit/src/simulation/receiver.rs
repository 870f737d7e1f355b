//! The far ends of the sinks: a server that takes CloudEvents, and a sink that only collects.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use decklog::core::model::Seq;
use decklog::sink::http::Transport;
use decklog::sink::{Class, Failure, Item, Limits, LogPosition, Sink, SinkError};
use futures::FutureExt;
use futures::future::BoxFuture;
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::time::sleep;

use super::faults::Fault;
use super::stage::Stage;

/// A server that takes CloudEvents, and knows what it may be sent: the next entry, or again what it has where an
/// answer was lost or decklog crashed.
pub struct Receiver {
    stage: Arc<Stage>,
    /// Whether entries that it refuses for ever are passed over by decklog, or make it wait for an operator.
    sets_aside: bool,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// What was taken, by seq.
    taken: BTreeMap<u64, String>,
    /// The last seq that was taken, or refused and dead-lettered.
    last: u64,
    /// From here on entries may come again.
    floor: Option<u64>,
    /// Seqs that are refused.
    refused: BTreeSet<u64>,
    repeats: u64,
    /// What each event was known by that a consumer has seen who drops repeats.
    keys: HashMap<String, u64>,
}

/// One entry as it came.
struct Event {
    seq: u64,
    line: String,
    /// What tells it from others, as far as the attributes say: those that are decklog's own, or else the id.
    key: String,
}

impl Receiver {
    pub fn new(stage: Arc<Stage>, sets_aside: bool) -> Arc<Self> {
        Arc::new(Self { stage, sets_aside, state: Mutex::default() })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A life of decklog has ended, with this cursor on disk: what comes after it may come again.
    pub fn life_ended(&self, cursor: u64) {
        let mut state = self.lock();
        let floor = cursor + 1;
        state.floor = Some(state.floor.map_or(floor, |old| old.min(floor)));
    }

    /// An operator has looked, and refuses nothing any more.
    pub fn mend(&self) {
        if !self.sets_aside {
            self.lock().refused.clear();
        }
    }

    /// What was taken by seq, and what never was because it was refused.
    pub fn taken(&self) -> (BTreeMap<u64, String>, BTreeSet<u64>) {
        let state = self.lock();
        (state.taken.clone(), state.refused.clone())
    }

    /// The way to it for one life of decklog.
    pub fn wire(self: &Arc<Self>, alive: &Arc<AtomicBool>) -> Transport {
        let (receiver, alive) = (Arc::clone(self), Arc::clone(alive));
        Arc::new(move |request| {
            let (receiver, alive) = (Arc::clone(&receiver), Arc::clone(&alive));
            async move { receiver.answer(request, alive).await }.boxed()
        })
    }

    async fn answer(&self, request: reqwest::Request, alive: Arc<AtomicBool>) -> Result<reqwest::Response, String> {
        let stage = &self.stage;
        sleep(stage.throw(|dice| dice.millis(0, 30))).await;
        if !alive.load(Ordering::Relaxed) {
            return std::future::pending().await;
        }
        let events = match events(&request) {
            Ok(events) => events,
            Err(error) => {
                stage.fail(format!("the HTTP sink sent what is no event: {error}"));
                return Ok(response(200, None));
            }
        };
        let (Some(first), Some(last)) = (events.first().map(|e| e.seq), events.last().map(|e| e.seq)) else {
            stage.fail("the HTTP sink sent nothing");
            return Ok(response(200, None));
        };
        let fault = stage.draw(&[
            Fault::SinkRefused,
            Fault::SinkFails,
            Fault::SinkBusy,
            Fault::LostAnswer,
            Fault::SinkTimeOut,
            Fault::SinkRefuses,
        ]);
        if let Some(fault) = fault {
            stage.struck(fault, format_args!("{first} to {last}"));
        }
        if let Some(Fault::SinkRefuses) = fault {
            let chosen = events[stage.throw(|dice| dice.roll(events.len()))].seq;
            // What it has it cannot refuse.
            let mut state = self.lock();
            if chosen > state.last {
                state.refused.insert(chosen);
            }
        }
        if matches!(fault, None | Some(Fault::SinkRefuses)) && self.refuses(&events) {
            stage.note(format_args!("sink: {first} to {last} refused"));
            return Ok(response(422, None));
        }
        match fault {
            Some(Fault::SinkRefused) => Err("connection refused".to_owned()),
            Some(Fault::SinkFails) => Ok(response(503, None)),
            Some(Fault::SinkBusy) => Ok(response(429, Some(stage.throw(|dice| dice.between(1, 30))))),
            Some(Fault::LostAnswer | Fault::SinkTimeOut) if self.refuses(&events) => Err("connection reset".to_owned()),
            Some(Fault::LostAnswer) => {
                self.take(events);
                self.lost(first);
                Err("connection reset".to_owned())
            }
            Some(Fault::SinkTimeOut) => {
                self.take(events);
                self.lost(first);
                std::future::pending().await
            }
            _ => {
                self.take(events);
                // What follows it may still come again, up to what is there.
                let mut state = self.lock();
                state.floor = state.floor.filter(|_| last < state.last).map(|_| last + 1);
                Ok(response(204, None))
            }
        }
    }

    fn refuses(&self, events: &[Event]) -> bool {
        let state = self.lock();
        events.iter().any(|event| state.refused.contains(&event.seq))
    }

    fn lost(&self, first: u64) {
        let mut state = self.lock();
        state.floor = Some(state.floor.map_or(first, |floor| floor.min(first)));
    }

    fn take(&self, events: Vec<Event>) {
        let mut state = self.lock();
        for Event { seq, line, key } in events {
            if self.stage.enables(Fault::DropsRepeats) && state.keys.is_empty() {
                self.stage.struck(Fault::DropsRepeats, format_args!("from {key} on"));
            }
            if self.stage.enables(Fault::DropsRepeats)
                && let Some(other) = state.keys.insert(key.clone(), seq)
                && other != seq
            {
                self.stage
                    .fail(format!("a consumer that drops repeats drops {seq}, which has the key of {other}: {key}"));
            }
            let mut next = state.last + 1;
            while self.sets_aside && state.refused.contains(&next) {
                next += 1;
            }
            if seq > next {
                self.stage.fail(format!("the HTTP sink left out what comes before {seq}: {next} is due"));
            } else if seq < next {
                state.repeats += 1;
                if state.floor.is_none_or(|floor| seq < floor) {
                    self.stage.fail(format!("the HTTP sink sent {seq} again for no reason; floor {:?}", state.floor));
                }
            }
            self.stage.note(format_args!("sink: {seq}"));
            let before = state.taken.insert(seq, line.clone());
            if before.is_some_and(|before| before != line) {
                self.stage.fail(format!("the HTTP sink sent {seq} again with other bytes"));
            }
            state.last = state.last.max(seq);
        }
    }
}

fn response(status: u16, retry_after: Option<usize>) -> reqwest::Response {
    let mut response = http::Response::builder().status(status);
    if let Some(seconds) = retry_after {
        response = response.header("retry-after", seconds);
    }
    response.body(Vec::new()).unwrap_or_default().into()
}

/// The attributes of CloudEvents that say nothing of which entry it is.
const OF_EVERY_EVENT: [&str; 8] =
    ["id", "specversion", "source", "type", "subject", "time", "datacontenttype", "dataschema"];

/// The members of an event in the structured mode.
type Members<'a> = BTreeMap<String, &'a RawValue>;

/// An event as it came, in whatever mode.
struct Structured<'a> {
    data: &'a RawValue,
    attributes: BTreeMap<String, String>,
}

impl<'a> Structured<'a> {
    fn of(mut members: Members<'a>) -> Result<Self, String> {
        let data = members.remove("data").ok_or("no data")?;
        let text = |value: &RawValue| serde_json::from_str(value.get()).unwrap_or_else(|_| value.get().to_owned());
        Ok(Self { data, attributes: members.into_iter().map(|(name, value)| (name, text(value))).collect() })
    }
}

/// The entries that a request carries, however it does.
fn events(request: &reqwest::Request) -> Result<Vec<Event>, String> {
    #[derive(Deserialize)]
    struct Entry {
        seq: u64,
        id: String,
    }
    let body = request.body().and_then(reqwest::Body::as_bytes).ok_or("no body")?;
    let header = |name: &str| request.headers().get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let say = |error: serde_json::Error| error.to_string();
    let structured: Vec<Structured<'_>> = match header("content-type") {
        "application/cloudevents+json" => vec![Structured::of(serde_json::from_slice(body).map_err(say)?)?],
        "application/cloudevents-batch+json" => {
            let events: Vec<Members<'_>> = serde_json::from_slice(body).map_err(say)?;
            events.into_iter().map(Structured::of).collect::<Result<_, _>>()?
        }
        _ => {
            let attributes = request.headers().iter().filter_map(|(name, value)| {
                let name = name.as_str().strip_prefix("ce-")?;
                Some((name.to_owned(), value.to_str().unwrap_or_default().to_owned()))
            });
            vec![Structured { data: serde_json::from_slice(body).map_err(say)?, attributes: attributes.collect() }]
        }
    };
    let event = |event: Structured<'_>| {
        let entry: Entry = serde_json::from_str(event.data.get()).map_err(say)?;
        let id = event.attributes.get("id").cloned().unwrap_or_default();
        if entry.id != id {
            return Err(format!("the event {id} carries the entry {}", entry.id));
        }
        let own = event.attributes.iter().filter(|(name, _)| !OF_EVERY_EVENT.contains(&name.as_str()));
        let own: Vec<String> = own.map(|(name, value)| format!("{name}={value}")).collect();
        let key = if own.is_empty() { id } else { own.join(" ") };
        Ok(Event { seq: entry.seq, line: event.data.get().to_owned(), key })
    };
    structured.into_iter().map(event).collect()
}

/// A sink of the class of stdout: it takes what it gets, and cannot say afterwards what it has.
pub struct Collecting {
    pub stage: Arc<Stage>,
    pub alive: Arc<AtomicBool>,
    /// What came, over all lives.
    pub into: Arc<Mutex<Vec<(u64, String)>>>,
    /// The last seq of this life.
    pub last: u64,
}

impl Sink for Collecting {
    fn class(&self) -> Class {
        Class::BestEffort
    }

    fn limits(&self) -> Limits {
        Limits { entries: 17, bytes: 1 << 20, linger: Duration::ZERO }
    }

    fn position<'a>(&'a mut self, _: &'a LogPosition) -> BoxFuture<'a, Result<Option<LogPosition>, SinkError>> {
        std::future::ready(Ok(None)).boxed()
    }

    fn deliver<'a>(&'a mut self, batch: &'a [Item]) -> BoxFuture<'a, Result<(), Failure>> {
        async move {
            sleep(Duration::from_millis(1)).await;
            if !self.alive.load(Ordering::Relaxed) {
                return std::future::pending().await;
            }
            let fault = self.stage.draw(&[Fault::SinkPartial]);
            let taken = match fault {
                Some(_) => self.stage.throw(|dice| dice.roll(batch.len())),
                None => batch.len(),
            };
            let mut into = self.into.lock().unwrap_or_else(PoisonError::into_inner);
            for Item { seq: Seq(seq), line, .. } in &batch[..taken] {
                if *seq <= self.last {
                    self.stage.fail(format!("the collecting sink got {seq} after {}", self.last));
                }
                self.last = *seq;
                into.push((*seq, String::from_utf8_lossy(line).into_owned()));
            }
            drop(into);
            match fault {
                Some(fault) => {
                    self.stage.struck(fault, format_args!("{taken} of {}", batch.len()));
                    Err(Failure { taken, error: SinkError::retry("the simulation says so") })
                }
                None => Ok(()),
            }
        }
        .boxed()
    }

    fn reopen(&mut self) {}

    fn check(&mut self) -> BoxFuture<'_, Result<(), SinkError>> {
        std::future::ready(Ok(())).boxed()
    }
}
