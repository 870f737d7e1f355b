//! WATCH: one open stream. It pulls from the log of its storage, so that a slow client costs nothing
//! but its own delay, and no task stands behind it.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::{Instant, sleep_until};

use super::Shared;
use super::faults::{Refusal, Signal, Then};
use super::list::{BATCH, Options, is_true};
use super::object::{Form, Kind, Row};
use super::resources::Served;
use super::selector::Selector;
use super::store::Store;
use crate::core::runtime::Listener;

/// The next thing a body does.
#[derive(Clone, Debug)]
pub(super) enum Step {
    /// Sends these bytes: whole lines.
    Send(Bytes),
    /// Ends in this way; `GoOn` is never a step.
    Then(Then),
}

/// How a watch begins.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Start {
    /// With what happened after this revision.
    After(u64),
    /// With the current state as ADDED events; `end` with a bookmark after it.
    State { end: bool },
    /// Not before this revision is reached.
    Later(u64),
}

/// Decides how a watch begins where this revision is the newest, or that it does not.
pub(super) fn start(newest: u64, options: &Options, watch_list: bool) -> Result<Start, Refusal> {
    let asked = options.revision()?;
    let forbidden = |problem: &str| Err(Refusal::invalid_options(problem));
    let initial = !options.send_initial_events.is_empty();
    match (initial, options.resource_version_match.as_str()) {
        (false, "") => {}
        (false, _) => {
            return forbidden(
                "resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden for watch unless sendInitialEvents \
                 is provided",
            );
        }
        (true, _) if !watch_list => {
            return forbidden(
                "sendInitialEvents: Forbidden: sendInitialEvents is forbidden for watch unless the WatchList feature \
                 gate is enabled",
            );
        }
        (true, "NotOlderThan") => {}
        (true, "") => {
            return forbidden(
                "resourceVersionMatch: Forbidden: sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
            );
        }
        (true, other) => {
            return forbidden(&format!(
                "resourceVersionMatch: Unsupported value: {other:?}: supported values: \"NotOlderThan\""
            ));
        }
    }
    if initial && is_true(&options.send_initial_events) {
        return Ok(match asked {
            Some(revision) if revision > newest => Start::Later(revision),
            Some(_) | None => Start::State { end: is_true(&options.allow_watch_bookmarks) },
        });
    }
    Ok(match asked {
        None | Some(0) if !initial => Start::State { end: false },
        None | Some(0) => Start::After(newest),
        Some(revision) => Start::After(revision),
    })
}

/// An open watch.
pub(super) struct Watcher {
    shared: Arc<Shared>,
    served: Arc<Served>,
    head: String,
    namespace: Option<String>,
    selector: Selector,
    metadata_only: bool,
    /// Events at or before this revision are not sent, even when they happen later.
    after: u64,
    timeline: u64,
    position: usize,
    signal: usize,
    initial: std::vec::IntoIter<Arc<Row>>,
    /// The bookmark that ends the initial events is still due, with this revision.
    end_due: Option<u64>,
    bookmarks: Option<Bookmarks>,
    deadline: Option<Instant>,
    changed: Listener,
    /// A step that has to follow the bytes just sent.
    then: Option<Step>,
}

#[derive(Debug)]
struct Bookmarks {
    every: Duration,
    next: Instant,
    /// The last one, right before the deadline.
    last: Option<Instant>,
}

/// What a request of a watch is about.
pub(super) struct WatchRequest {
    pub(super) served: Arc<Served>,
    pub(super) namespace: Option<String>,
    pub(super) selector: Selector,
    pub(super) metadata_only: bool,
    pub(super) bookmarks: bool,
    pub(super) timeout: Option<Duration>,
}

impl Watcher {
    /// Opens a watch that begins like this. The caller holds the lock on the store.
    pub(super) fn open(
        shared: &Arc<Shared>,
        store: &mut Store,
        every: Duration,
        asked: WatchRequest,
        begin: &Start,
    ) -> Self {
        let now = Instant::now();
        let deadline = asked.timeout.map(|timeout| now + timeout);
        let bookmarks = asked.bookmarks.then(|| Bookmarks {
            every,
            next: now + every,
            // The real server sends one two seconds before the end.
            last: asked.timeout.map(|timeout| now + timeout - (timeout / 5).min(Duration::from_secs(2))),
        });
        let (revision, timeline) = (store.etcd(&asked.served.storage).revision, store.timeline);
        let (after, initial, end_due) = match begin {
            Start::After(revision) | Start::Later(revision) => (*revision, Vec::new(), None),
            Start::State { end } => (revision, store.all(&asked.served.storage), end.then_some(revision)),
        };
        let initial: Vec<_> = initial
            .into_iter()
            .filter(|row| asked.namespace.as_deref().is_none_or(|namespace| *row.namespace == *namespace))
            .filter(|row| asked.selector.matches(row))
            .collect();
        let storage = store.storage_mut(&asked.served.storage);
        Self {
            shared: Arc::clone(shared),
            head: asked.served.head(),
            served: asked.served,
            namespace: asked.namespace,
            selector: asked.selector,
            metadata_only: asked.metadata_only,
            after,
            timeline,
            position: storage.position_after(after),
            signal: storage.signalled(),
            initial: initial.into_iter(),
            end_due,
            bookmarks,
            deadline,
            changed: storage.changed.listen(),
            then: None,
        }
    }

    /// The next step: bytes of about 64 KiB (or one line), or the end.
    pub(super) async fn next(&mut self, one_line: bool) -> Step {
        loop {
            self.changed.mark_seen();
            if let Some(step) = self.ready(one_line) {
                return step;
            }
            let wake = self.wake_at();
            tokio::select! {
                biased;
                () = self.changed.notified() => {}
                () = async { sleep_until(wake.unwrap_or_else(Instant::now)).await }, if wake.is_some() => {}
            }
        }
    }

    fn wake_at(&self) -> Option<Instant> {
        let bookmark = self.bookmarks.as_ref().map(|b| b.last.map_or(b.next, |last| last.min(b.next)));
        [bookmark, self.deadline].into_iter().flatten().min()
    }

    /// What can be done without waiting.
    fn ready(&mut self, one_line: bool) -> Option<Step> {
        if let Some(step) = self.then.take() {
            return Some(step);
        }
        let most = if one_line { 1 } else { BATCH };
        let mut out = Vec::new();
        while out.len() < most {
            let Some(row) = self.initial.next() else { break };
            self.event(&mut out, Kind::Added, &row, None);
        }
        if !out.is_empty() {
            return Some(Step::Send(out.into()));
        }
        if let Some(revision) = self.end_due.take() {
            return Some(Step::Send(self.bookmark(revision, true)));
        }
        let shared = Arc::clone(&self.shared);
        let mut state = shared.lock();
        let now = Instant::now();
        let restored = state.store.timeline != self.timeline;
        if restored || self.deadline.is_some_and(|deadline| deadline <= now) {
            return Some(Step::Then(Then::End));
        }
        let store = &mut state.store;
        let storage = store.storage(&self.served.storage);
        let Some(rows) = storage.and_then(|storage| storage.rows_from(self.position)) else {
            // What comes next is no longer kept: the client was too slow.
            return Some(Step::Then(Then::End));
        };
        let signal = storage.and_then(|storage| storage.signal_at(self.signal)).cloned();
        let rows = match &signal {
            // A bookmark promises that everything up to the revision of its moment was sent.
            None | Some((_, Signal::Bookmark)) => rows,
            Some((at, _)) => &rows[..at.saturating_sub(self.position).min(rows.len())],
        };
        let mut taken = 0;
        for row in rows {
            if out.len() >= most {
                break;
            }
            taken += 1;
            if row.revision > self.after && !storage.is_some_and(|storage| storage.has_lost(row.revision)) {
                self.change(store, &mut out, row);
            }
        }
        let drained = taken == rows.len();
        let revision = store.etcd(&self.served.storage).revision;
        self.position += taken;
        if !out.is_empty() {
            return Some(Step::Send(out.into()));
        }
        if !drained {
            return Some(Step::Send(Bytes::new()));
        }
        if let Some((_, signal)) = signal {
            self.signal += 1;
            return Some(self.obey(signal, revision));
        }
        let defined = store
            .served
            .iter()
            .any(|served| served.edition == self.served.edition && served.resource == self.served.resource);
        if !defined {
            return Some(Step::Then(Then::End));
        }
        let due = self.bookmarks.as_mut().is_some_and(|bookmarks| bookmarks.due(now));
        (due && revision > self.after).then(|| Step::Send(self.bookmark(revision, false)))
    }

    fn obey(&mut self, signal: Signal, revision: u64) -> Step {
        match signal {
            Signal::End => Step::Then(Then::End),
            Signal::Cut => Step::Then(Then::Cut),
            Signal::Reset => Step::Then(Then::Reset),
            Signal::Stall => Step::Then(Then::Stall),
            Signal::Error(refusal) => {
                self.then = Some(Step::Then(Then::End));
                Step::Send(refusal.event_line())
            }
            Signal::Line(line) => Step::Send(line),
            Signal::Bookmark if self.bookmarks.is_some() => Step::Send(self.bookmark(revision, false)),
            Signal::Bookmark => Step::Send(Bytes::new()),
        }
    }

    /// The event that this row is to this watch, if any: objects enter and leave selectors.
    fn change(&self, store: &Store, out: &mut Vec<u8>, row: &Row) {
        if self.namespace.as_deref().is_some_and(|namespace| *row.namespace != *namespace) {
            return;
        }
        if self.selector.is_empty() {
            self.event(out, row.kind, row, None);
            return;
        }
        let before = store.storage(&self.served.storage).and_then(|storage| storage.before(row));
        let matched = before.filter(|before| self.selector.matches(before));
        let matches = row.kind != Kind::Deleted && self.selector.matches(row);
        match (matched, matches) {
            (None, true) => self.event(out, Kind::Added, row, None),
            (Some(_), true) => self.event(out, Kind::Modified, row, None),
            // The object as it last matched, under the revision that took it away.
            (Some(before), false) => self.event(out, Kind::Deleted, before, Some(row.revision)),
            (None, false) => {}
        }
    }

    fn event(&self, out: &mut Vec<u8>, kind: Kind, row: &Row, revision: Option<u64>) {
        let form = if self.metadata_only { Form::Metadata } else { Form::Whole(&self.head) };
        out.extend_from_slice(br#"{"type":""#);
        out.extend_from_slice(kind.as_str().as_bytes());
        out.extend_from_slice(br#"","object":"#);
        match revision {
            None => row.write(out, form),
            Some(revision) => row.write_at(out, form, revision),
        }
        out.extend_from_slice(b"}\n");
    }

    fn bookmark(&self, revision: u64, end_of_initial: bool) -> Bytes {
        let resource = &self.served.resource;
        let (kind, version) = if self.metadata_only {
            ("PartialObjectMetadata", "meta.k8s.io/v1".to_owned())
        } else {
            (resource.kind.as_str(), resource.api_version())
        };
        let annotations = if end_of_initial { r#","annotations":{"k8s.io/initial-events-end":"true"}"# } else { "" };
        format!(
            r#"{{"type":"BOOKMARK","object":{{"kind":"{kind}","apiVersion":"{version}","metadata":{{"resourceVersion":"{revision}"{annotations}}}}}}}"#
        )
        .into_bytes()
        .into_iter()
        .chain(*b"\n")
        .collect()
    }
}

impl Bookmarks {
    fn due(&mut self, now: Instant) -> bool {
        let last = self.last.is_some_and(|last| last <= now);
        if last {
            self.last = None;
        }
        let regular = self.next <= now;
        if regular {
            self.next = now + self.every;
        }
        last || regular
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.shared.watch_closed(&self.served);
    }
}
