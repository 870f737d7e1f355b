//! Bodies of answers on their way, line by line where it is a watch, with the faults that befall them.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use decklog::core::runtime::Listener;
use decklog::sim;
use decklog::sim::faults::Refusal;
use futures::stream;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use tokio::time::{Instant, sleep, sleep_until};

use super::super::faults::Fault;
use super::{Answer, Network, reset};

/// Not more comes at once.
const FRAME: usize = 64 << 10;

/// The next thing that a body does.
pub(super) enum Step {
    Send(Vec<u8>),
    /// Sends the line that says that the position is too old.
    SendGone(Vec<u8>),
    Wait(Duration),
    /// Nothing more comes until the connection breaks.
    Silence,
    Break,
    End,
}

/// A body on its way, line by line where it is a watch.
pub(super) struct Flow {
    /// It is a further page of a list.
    pub(super) page: bool,
    pub(super) habit: Option<Fault>,
    pub(super) network: Network,
    pub(super) alive: Arc<AtomicBool>,
    pub(super) power: Listener,
    pub(super) source: String,
    pub(super) watch: bool,
    pub(super) from: sim::Body,
    /// What is going to happen, after so many lines.
    pub(super) fault: Option<(Fault, usize)>,
    /// The beginning of a line.
    pub(super) rest: Vec<u8>,
    pub(super) steps: VecDeque<Step>,
    pub(super) lines: usize,
    pub(super) no_bookmarks: bool,
    pub(super) pieces: bool,
    /// What has come stays on the way until then, and arrives with what comes meanwhile.
    pub(super) late: Option<Instant>,
}

impl Flow {
    pub(super) fn begin(mut self, fault: Option<Fault>) -> Answer {
        let after = self.network.stage.throw(|dice| if dice.percent(30) { 0 } else { dice.between(0, 12) });
        match fault {
            Some(Fault::NoBookmarks) => {
                self.no_bookmarks = true;
                self.struck(Fault::NoBookmarks);
            }
            Some(Fault::SlowBody) => {
                self.pieces = true;
                self.struck(Fault::SlowBody);
            }
            Some(fault) => self.fault = Some((fault, if self.watch { after } else { 0 })),
            None => {}
        }
        let frames = stream::unfold(self, |mut flow| async move {
            let part = flow.next().await?;
            if let (true, Ok(bytes)) = (flow.watch, &part) {
                flow.network.taken.fetch_add(bytes.len() as u64, Ordering::Relaxed);
            }
            Some((part.map(Frame::data), flow))
        });
        StreamBody::new(frames).boxed_unsync()
    }

    fn struck(&self, fault: Fault) {
        self.network.stage.struck(fault, format_args!("{} after {} lines", self.source, self.lines));
    }

    async fn next(&mut self) -> Option<io::Result<Bytes>> {
        loop {
            if !self.alive.load(Ordering::Relaxed) {
                return std::future::pending().await;
            }
            if self.late.is_some() && self.steps.iter().all(|step| matches!(step, Step::Send(_))) {
                self.refill().await;
                continue;
            }
            self.late = None;
            let Some(step) = self.steps.pop_front() else {
                self.refill().await;
                let stage = &self.network.stage;
                if self.watch && stage.throw(|dice| dice.percent(10)) {
                    self.late = Some(Instant::now() + stage.throw(|dice| dice.millis(10, 25_000)));
                }
                continue;
            };
            match step {
                Step::Send(bytes) if bytes.is_empty() => {}
                Step::SendGone(line) => {
                    // Only what is read counts: a reader may have stopped at a line before it.
                    self.network.stage.note(format_args!("{}: 410 in the stream", self.source));
                    self.network.stage.expired(&self.source);
                    return Some(Ok(line.into()));
                }
                Step::Send(mut bytes) if self.pieces && bytes.len() > 1 => {
                    let stage = &self.network.stage;
                    let most = bytes.len().min(400);
                    let rest = bytes.split_off(stage.throw(|dice| dice.between(1, most)).min(bytes.len() - 1));
                    self.steps.push_front(Step::Send(rest));
                    self.steps.push_front(Step::Wait(stage.throw(|dice| dice.millis(0, 300))));
                    return Some(Ok(bytes.into()));
                }
                Step::Send(mut bytes) if bytes.len() > FRAME => {
                    self.steps.push_front(Step::Send(bytes.split_off(FRAME)));
                    return Some(Ok(bytes.into()));
                }
                Step::Send(mut bytes) => {
                    // Lines that came one by one may arrive together.
                    while let Some(Step::Send(more)) = self.steps.front()
                        && self.network.stage.throw(|dice| dice.percent(70))
                    {
                        bytes.extend_from_slice(more);
                        self.steps.pop_front();
                    }
                    return Some(Ok(bytes.into()));
                }
                Step::Wait(time) => {
                    tokio::select! {
                        biased;
                        () = self.power.notified() => self.steps.push_front(Step::Break),
                        () = sleep(time) => {}
                    }
                }
                Step::Silence => {
                    // Only an end that the other side learns of ends it, and it does not.
                    return std::future::pending().await;
                }
                Step::Break => {
                    self.steps.push_front(Step::End);
                    return Some(Err(reset()));
                }
                Step::End => {
                    self.steps.push_front(Step::End);
                    return None;
                }
            }
        }
    }

    /// Takes what the server sends next, and lets the faults at it.
    async fn refill(&mut self) {
        if let Some((Fault::TimeOut, after)) = self.fault
            && self.lines >= after
        {
            self.fault = None;
            self.struck(Fault::TimeOut);
            // One that ends at once looks like a refusal.
            self.steps.extend([Step::Wait(Duration::from_millis(1500)), Step::End]);
            return;
        }
        let late = self.late.unwrap_or_else(Instant::now);
        let frame = tokio::select! {
            biased;
            () = self.power.notified() => {
                self.steps.push_back(Step::Break);
                return;
            }
            frame = self.from.frame() => frame,
            () = sleep_until(late), if self.late.is_some() => {
                self.late = None;
                return;
            }
        };
        let bytes = match frame {
            None => {
                self.steps.push_back(Step::End);
                return;
            }
            Some(Err(_)) => {
                self.steps.push_back(Step::Break);
                return;
            }
            Some(Ok(frame)) => frame.into_data().unwrap_or_default(),
        };
        let mut bytes = bytes.to_vec();
        if self.page && self.habit == Some(Fault::PagesDiffer) {
            self.struck(Fault::PagesDiffer);
            bytes = replaced(&bytes, br#""metadata":{"resourceVersion":""#, br#""metadata":{"resourceVersion":"1"#, 1);
        }
        if self.habit == Some(Fault::Opaque) {
            bytes = replaced(&bytes, br#""resourceVersion":""#, br#""resourceVersion":"~"#, usize::MAX);
        }
        if !self.watch {
            self.part_of_list(&bytes);
            return;
        }
        self.rest.extend_from_slice(&bytes);
        while let Some(end) = memchr::memchr(b'\n', &self.rest) {
            let rest = self.rest.split_off(end + 1);
            let line = std::mem::replace(&mut self.rest, rest);
            if !self.line(line) {
                return;
            }
        }
    }

    fn part_of_list(&mut self, bytes: &[u8]) {
        let stage = Arc::clone(&self.network.stage);
        let Some((fault, _)) = self.fault.take() else {
            self.steps.push_back(Step::Send(bytes.to_vec()));
            return;
        };
        let at = stage.throw(|dice| dice.roll(bytes.len().max(1)));
        let (head, tail) = (bytes[..at].to_vec(), bytes[at..].to_vec());
        match fault {
            Fault::CutList => {
                let how = if stage.throw(|dice| dice.percent(50)) { Step::Break } else { Step::End };
                self.steps.extend([Step::Send(head), how]);
            }
            Fault::HalfOpen => self.steps.extend([Step::Send(head), Step::Silence]),
            Fault::Garbage => {
                stage.may_lose(&self.source, "undecodable");
                self.steps.extend([Step::Send(head), Step::Send(b"\xff\x00{".to_vec()), Step::Send(tail)]);
            }
            _ => {
                self.steps.push_back(Step::Send(bytes.to_vec()));
                return;
            }
        }
        self.struck(fault);
    }

    /// One line of a watch. Says whether further ones may follow at once.
    fn line(&mut self, line: Vec<u8>) -> bool {
        let stage = Arc::clone(&self.network.stage);
        let event = !line.starts_with(br#"{"type":"BOOKMARK""#);
        if line.starts_with(br#"{"type":"ERROR""#) {
            if memchr::memmem::find(&line, br#""code":410"#).is_some() {
                self.steps.push_back(Step::SendGone(line));
            } else {
                self.steps.push_back(Step::Send(line));
            }
            return true;
        }
        if !event && self.no_bookmarks && !stage.is_calm() {
            return true;
        }
        match self.habit {
            Some(habit @ (Fault::EndsEarly | Fault::Opaque)) if event && self.is_news(&line) => {
                return self.last(habit, line);
            }
            Some(Fault::FreshBookmark) if !event => return self.last(Fault::FreshBookmark, line),
            _ => {}
        }
        if event && stage.is_poisoned(&line) {
            self.struck(Fault::Undecodable);
            self.garble(line);
            return true;
        }
        let due = self.fault.filter(|(_, after)| self.lines >= *after);
        self.lines += 1;
        let Some((fault, _)) = due else {
            self.steps.push_back(Step::Send(line));
            return true;
        };
        let half = line[..line.len() / 2].to_vec();
        let steps = match fault {
            Fault::CutInLine => vec![Step::Send(half), Step::Break],
            Fault::CutAfterLine => vec![Step::Send(line), Step::Break],
            Fault::HalfOpen if stage.throw(|dice| dice.percent(50)) => vec![Step::Send(half), Step::Silence],
            Fault::HalfOpen => vec![Step::Silence],
            Fault::Garbage => {
                stage.may_lose(&self.source, "undecodable");
                let at = stage.throw(|dice| dice.roll(line.len()));
                let mut bytes = line[..at].to_vec();
                bytes.extend_from_slice(stage.throw(|dice| *dice.pick(&[&b"\xff\xfe"[..], b"\x00", b"\n{\n"])));
                bytes.extend_from_slice(&line[at..]);
                vec![Step::Send(bytes)]
            }
            Fault::GoneInStream => vec![Step::SendGone(Refusal::expired(1, 2).event_line().to_vec()), Step::End],
            // These need an event, and wait for one.
            Fault::Undecodable | Fault::Oversize | Fault::Repeated if !event => {
                self.steps.push_back(Step::Send(line));
                return true;
            }
            Fault::Undecodable => {
                self.fault = None;
                self.struck(fault);
                if stage.throw(|dice| dice.percent(50))
                    && let Some(version) = version_text(&line)
                {
                    stage.poison(version);
                }
                self.garble(line);
                return true;
            }
            Fault::Oversize => {
                stage.may_lose(&self.source, "oversize");
                let mut bytes = vec![b' '; self.network.line_limit + 1];
                bytes[0] = b'{';
                bytes.extend_from_slice(&line[1..]);
                vec![Step::Send(bytes)]
            }
            Fault::Repeated => vec![Step::Send(line.clone()), Step::Send(line)],
            _ => vec![Step::Send(line)],
        };
        self.fault = None;
        self.struck(fault);
        let goes_on = matches!(steps.last(), Some(Step::Send(_)));
        self.steps.extend(steps);
        goes_on
    }

    /// The server sends this, and ends the watch as one ends it that has had its time.
    fn last(&mut self, habit: Fault, line: Vec<u8>) -> bool {
        self.struck(habit);
        self.steps.extend([Step::Send(line), Step::End]);
        false
    }

    /// Whether the source is sent this for the first time.
    fn is_news(&self, line: &[u8]) -> bool {
        let text = member(line, br#""resourceVersion":""#);
        let version = text.and_then(|text| text.trim_start_matches('~').parse::<u64>().ok());
        let Some(version) = version.filter(|_| !self.network.stage.is_over()) else { return false };
        let mut seen = self.network.seen();
        let newest = seen.sent.entry(self.source.clone()).or_default();
        let news = version > *newest;
        *newest = version.max(*newest);
        news
    }

    fn garble(&mut self, mut line: Vec<u8>) {
        self.network.stage.may_lose(&self.source, "undecodable");
        line.truncate(line.len() / 2);
        line.push(b'\n');
        self.steps.push_back(Step::Send(line));
    }
}

/// The bytes with something else in some places.
fn replaced(bytes: &[u8], from: &[u8], to: &[u8], most: usize) -> Vec<u8> {
    let (mut out, mut at) = (Vec::with_capacity(bytes.len() + 64), 0);
    for found in memchr::memmem::find_iter(bytes, from).take(most) {
        out.extend_from_slice(&bytes[at..found]);
        out.extend_from_slice(to);
        at = found + from.len();
    }
    out.extend_from_slice(&bytes[at..]);
    out
}

/// The text after this, up to the next quote.
fn member(line: &[u8], begins: &[u8]) -> Option<String> {
    let rest = &line[memchr::memmem::find(line, begins)? + begins.len()..];
    Some(String::from_utf8_lossy(&rest[..memchr::memchr(b'"', rest)?]).into_owned())
}

/// `"resourceVersion":"N"` as it stands in a line.
fn version_text(line: &[u8]) -> Option<String> {
    let at = memchr::memmem::find(line, br#""resourceVersion":""#)?;
    let text = std::str::from_utf8(&line[at..]).ok()?;
    let end = text.match_indices('"').nth(3)?.0;
    Some(text[..=end].to_owned())
}
