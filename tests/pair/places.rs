//! What two decklogs have between them: the API server, the engine, the Lease, and two outputs.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use decklog::core::model::Seq;
use decklog::sim::shared_log::{Act, Engine, Network};
use decklog::sim::{self, Sim};
use decklog::sink::{Class, Failure, Item, Limits, LogPosition, Sink, SinkError};
use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt};
use http::{Request, Response};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, BodyStream, StreamBody};
use kube::client::Body;
use tokio::time::{Instant, sleep};

use super::evidence::Evidence;

/// How many entries a batch has at most, and so how many may come again.
const MOST: usize = 50;
/// Time for which an entry of the archive waits for others.
const LINGER: Duration = Duration::from_secs(5);

/// What can be cut from a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Engine,
    Api,
    Lease,
    /// The engine does what it is asked, and answers are lost.
    Answers,
    Slow,
}

/// What works of one node.
#[derive(Debug, Default)]
pub(crate) struct Switches {
    pub(crate) dead: AtomicBool,
    pub(crate) paused: AtomicBool,
    pub(crate) no_engine: AtomicBool,
    pub(crate) no_api: AtomicBool,
    pub(crate) no_lease: AtomicBool,
    pub(crate) lost_answers: AtomicBool,
    pub(crate) slow: AtomicBool,
}

pub(crate) fn is(switch: &AtomicBool) -> bool {
    switch.load(Ordering::Relaxed)
}

impl Switches {
    /// Waits while the process is stopped, and for ever where it is dead.
    pub(crate) async fn goes_on(&self) {
        while is(&self.paused) || is(&self.dead) {
            sleep(Duration::from_millis(100)).await;
        }
    }
}

/// Clones lead to the same places.
#[derive(Clone)]
pub(crate) struct Places {
    pub(crate) engine: Engine,
    pub(crate) lease: Lease,
    pub(crate) evidence: Evidence,
    pub(crate) sim: Sim,
    pub(crate) exact: Output,
    /// As `exact`, but that its entries wait for others, as those of an archive do.
    pub(crate) archive: Output,
    pub(crate) repeated: Output,
    pub(crate) began: Instant,
}

impl Places {
    pub(crate) fn new(engine: Engine, lease: Lease, sim: Sim) -> Self {
        let exact = Output { exact: true, ..Output::default() };
        let archive = Output { exact: true, linger: LINGER, ..Output::default() };
        let (evidence, began) = (Evidence::new(), Instant::now());
        Self { engine, lease, evidence, sim, exact, archive, repeated: Output::default(), began }
    }

    pub(crate) fn outputs(&self) -> [(&'static str, &Output); 3] {
        [("exact", &self.exact), ("archive", &self.archive), ("repeated", &self.repeated)]
    }

    pub(crate) fn engine_of(&self, switches: &Arc<Switches>) -> Engine {
        let switches = Arc::clone(switches);
        let mut count = 0_u64;
        let network: Network = Arc::new(Mutex::new(move |_: &'static str| {
            count += 1;
            if is(&switches.no_engine) || is(&switches.dead) {
                Act::Fail
            } else if is(&switches.lost_answers) && count.is_multiple_of(3) {
                Act::Lose
            } else if is(&switches.slow) {
                Act::Delay(Duration::from_millis(count * 997 % 4000))
            } else {
                Act::Delay(Duration::from_millis(count * 7 % 20))
            }
        }));
        self.engine.behind(network)
    }

    /// A client of one node.
    pub(crate) fn client(&self, switches: &Arc<Switches>) -> kube::Client {
        let (sim, switches) = (self.sim.clone(), Arc::clone(switches));
        let service = tower::service_fn(move |request: Request<Body>| {
            let (sim, switches) = (sim.clone(), Arc::clone(&switches));
            async move { answer(sim, switches, request).await }
        });
        kube::Client::new(service, "default")
    }
}

async fn answer(
    sim: Sim,
    switches: Arc<Switches>,
    request: Request<Body>,
) -> io::Result<Response<UnsyncBoxBody<Bytes, io::Error>>> {
    sleep(Duration::from_millis(3)).await;
    switches.goes_on().await;
    let reset = || io::Error::from(io::ErrorKind::ConnectionReset);
    if is(&switches.no_api) {
        return Err(reset());
    }
    let (mut head, body) = request.into_parts();
    let token = format!("Bearer {}", sim::TOKEN).parse().map_err(io::Error::other)?;
    head.headers.insert(http::header::AUTHORIZATION, token);
    let body = body.collect().await.map_err(io::Error::other)?.to_bytes();
    let answer = sim.answer(Request::from_parts(head, body)).await.map_err(io::Error::other)?;
    let (head, body) = answer.into_parts();
    let frames = BodyStream::new(body);
    let stream = futures::stream::unfold((Box::pin(frames), switches), move |(mut frames, switches)| async move {
        loop {
            tokio::select! {
                biased;
                frame = frames.next() => {
                    switches.goes_on().await;
                    let frame = frame?.map_err(io::Error::other);
                    return Some((frame, (frames, switches)));
                }
                () = sleep(Duration::from_secs(1)) => {
                    if is(&switches.no_api) {
                        return Some((Err(reset()), (frames, switches)));
                    }
                }
            }
        }
    });
    Ok(Response::from_parts(head, StreamBody::new(stream).boxed_unsync()))
}

/// A Lease as the API server keeps it: who has it, and how often it was renewed.
#[derive(Clone, Default)]
pub(crate) struct Lease(Arc<Mutex<(Option<String>, u64)>>);

impl Lease {
    /// Takes or renews it, where it is as it was seen.
    pub(crate) fn put(&self, seen: &(Option<String>, u64), holder: Option<&str>) -> bool {
        let mut held = self.0.lock().unwrap();
        let same = *held == *seen;
        if same {
            *held = (holder.map(str::to_owned), held.1 + 1);
        }
        same
    }

    /// Somebody deletes it, and whoever comes first makes it again.
    pub(crate) fn delete(&self) {
        let mut held = self.0.lock().unwrap();
        *held = (None, held.1 + 1);
    }

    pub(crate) fn get(&self) -> (Option<String>, u64) {
        self.0.lock().unwrap().clone()
    }
}

/// An output that both deliver to, in turn.
#[derive(Clone, Default)]
pub(crate) struct Output {
    /// Its position is where its entries are.
    exact: bool,
    linger: Duration,
    got: Arc<Mutex<Got>>,
}

#[derive(Default)]
struct Got {
    lines: Vec<(u64, String)>,
    problems: Vec<String>,
    /// Who delivered last.
    last: u64,
}

impl Output {
    /// The way to it for one life of a node.
    pub(crate) fn sink(&self, switches: &Arc<Switches>, life: u64) -> Box<dyn Sink> {
        Box::new(Way { output: self.clone(), switches: Arc::clone(switches), life, at: None })
    }

    /// The newest entry that it has.
    pub(crate) fn end(&self) -> u64 {
        self.got.lock().unwrap().lines.last().map_or(0, |(seq, _)| *seq)
    }

    pub(crate) fn judge(&self, log: &[String]) -> Vec<String> {
        let got = self.got.lock().unwrap();
        let mut problems = got.problems.clone();
        let name = if self.exact { "exactly once" } else { "at least once" };
        let mut seen: BTreeMap<u64, &String> = BTreeMap::new();
        for (seq, line) in &got.lines {
            if let Some(before) = seen.insert(*seq, line) {
                if self.exact {
                    problems.push(format!("{name}: seq {seq} came twice"));
                } else if before != line {
                    problems.push(format!("{name}: seq {seq} came with another entry"));
                }
            }
        }
        let whole: BTreeSet<u64> = (1..=log.len() as u64).collect();
        let have: BTreeSet<u64> = seen.keys().copied().collect();
        if let Some(missing) = whole.difference(&have).next() {
            problems.push(format!("{name}: seq {missing} of {} never came", log.len()));
        }
        for (seq, line) in seen {
            let at = usize::try_from(seq).unwrap() - 1;
            if log.get(at) != Some(line) {
                problems.push(format!("{name}: seq {seq} is not what the log has"));
                break;
            }
        }
        problems
    }
}

/// One node's way to an output.
struct Way {
    output: Output,
    switches: Arc<Switches>,
    life: u64,
    /// What the output ended with when this sink last looked.
    at: Option<u64>,
}

impl Sink for Way {
    fn class(&self) -> Class {
        if self.output.exact { Class::ExactlyOnce } else { Class::AtLeastOnce }
    }

    fn limits(&self) -> Limits {
        Limits { entries: MOST, bytes: 1 << 20, linger: self.output.linger }
    }

    fn position<'a>(&'a mut self, cursor: &'a LogPosition) -> BoxFuture<'a, Result<Option<LogPosition>, SinkError>> {
        async {
            self.switches.goes_on().await;
            if !self.output.exact {
                return Ok(None);
            }
            let got = self.output.got.lock().unwrap();
            self.at = Some(got.lines.last().map_or(0, |(seq, _)| *seq));
            Ok(Some(match got.lines.last() {
                Some((_, line)) => {
                    LogPosition::of(line.as_bytes()).map_err(|error| SinkError::halt(error.to_string()))?
                }
                None => LogPosition::before(&cursor.epoch),
            }))
        }
        .boxed()
    }

    fn deliver<'a>(&'a mut self, batch: &'a [Item]) -> BoxFuture<'a, Result<(), Failure>> {
        async {
            sleep(Duration::from_millis(10)).await;
            self.switches.goes_on().await;
            let lost = |text: &str| Failure { taken: 0, error: SinkError::lost(text) };
            let mut got = self.output.got.lock().unwrap();
            if self.output.exact {
                let end = got.lines.last().map_or(0, |(seq, _)| *seq);
                if self.at != Some(end) {
                    return Err(lost("it is elsewhere"));
                }
                self.at = batch.last().map(|item| item.seq.0);
            } else {
                let (end, first) = (got.lines.last().map_or(0, |(seq, _)| *seq), batch[0].seq);
                if first > Seq(end + 1) {
                    let floor = format!("seq {first} came after {end}");
                    got.problems.push(floor);
                }
                if first <= Seq(end) && got.last == self.life {
                    let text = format!("seq {first} came again after {end}, and nobody else had led");
                    got.problems.push(text);
                }
                if first.0 + MOST as u64 <= end {
                    let text = format!("seq {first} came again after {end}: more than one batch was under way");
                    got.problems.push(text);
                }
                got.last = self.life;
            }
            got.lines.extend(batch.iter().map(|item| (item.seq.0, String::from_utf8_lossy(&item.line).into_owned())));
            Ok(())
        }
        .boxed()
    }

    fn reopen(&mut self) {}

    fn check(&mut self) -> BoxFuture<'_, Result<(), SinkError>> {
        std::future::ready(Ok(())).boxed()
    }
}
