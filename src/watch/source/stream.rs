//! An open watch: its lines, and what else may end it.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::Method;
use kube::client::Body;
use tokio::time::Instant;

use super::Driver;
use super::overlap::Beside;
use crate::core::backoff::random_up_to;
use crate::core::model::{ResourceVersion, SourceSpec, Unread, Verb, Why};
use crate::core::runtime;
use crate::journal::{JournalError, Share, WatchChange};
use crate::watch::Shared;
use crate::watch::cluster::failure::{self, Failure};
use crate::watch::cluster::next_part;
use crate::watch::dating::{self, Dates};
use crate::watch::decode::{self, Line};
use crate::watch::frame::{Lines, Oversize};
use crate::watch::intake::{SLOW, caught, observed, unread};
use crate::watch::machine::{Anomaly, Effect, End, Input};
use crate::watch::requests::{Stop, unbuilt, watch_request};
use crate::watch::version_clock::Lateness;

/// A watch on which nothing came for so long has brought everything that happened before.
const QUIET_MIN: Duration = Duration::from_secs(1);

/// A watch that is opened after a silence of so long may bring what happened meanwhile.
const MISSED_MIN: Duration = Duration::from_secs(5);

/// A watch may end this much before the time that it was opened for, as we see it.
const EARLY_END_LIMIT: Duration = Duration::from_millis(500);

impl Driver {
    /// Opens a watch and reads it to its end, which is the answer.
    pub(super) async fn watch(&mut self, from: &ResourceVersion) -> Result<Input, Stop> {
        let timings = &self.shared.timings;
        let apart = timings.thresholds.apart;
        let seconds = if self.machine.has_bookmarks() { &timings.watch_seconds } else { &timings.short_watch_seconds };
        let spread = Duration::from_secs(u64::from(seconds.end() - seconds.start()));
        let seconds = seconds.start() + u32::try_from(random_up_to(spread).as_secs()).unwrap_or_default();
        let longest = self.machine.longest_watch(self.began.elapsed());
        let longest = longest.and_then(|longest| u32::try_from(longest.as_secs()).ok());
        let seconds = longest.map_or(seconds, |longest| seconds.min(longest));
        self.repeats = None;
        let overlap = if std::mem::take(&mut self.goes_on) { self.overlap.take() } else { None };
        let (body, first, over, since) = match overlap {
            Some(mut overlap) => {
                self.repeats = self.machine.newest().filter(|newest| overlap.from.is_before(newest)).cloned();
                let (first, over, asked) = (overlap.first.take(), overlap.over, overlap.asked);
                (overlap.into_body(), first, over, asked)
            }
            None => {
                let uri = watch_request(&self.spec, &self.fields, seconds, from).map_err(unbuilt)?;
                let room = self.shared.limiter.request().await;
                let body = self.api.send(Method::GET, &uri, "application/json", Vec::new()).await?.into_body();
                drop(room);
                (body, None, Instant::now() + Duration::from_secs(u64::from(seconds)), Instant::now())
            }
        };
        // The first watch of a process goes on from where another process was.
        let now = Instant::now();
        // Whatever else has answered since: nobody watched while this process stood still.
        let stood_still = |watched| self.shared.heartbeat.paused_since(watched, now).is_some();
        self.missed = self.stats.silent_for() >= MISSED_MIN || self.watched.is_none_or(stood_still);
        self.stats.opened();
        (self.warned, self.cost) = (false, None);
        // Nothing is to be done about an open watch but to read it.
        self.step(Input::Opened).await?;
        self.schedule_audit();
        let mut beside = Beside::new(self.needs_overlap(), seconds, (since, over), apart);
        let ended = self.read(body, first, over - EARLY_END_LIMIT, &mut beside).await;
        // However it ended, two watches are that far apart.
        tokio::time::sleep_until(beside.rested(apart)).await;
        match &ended {
            Ok(Input::Ended(end)) => self.overlap = beside.left(end, self.machine.newest()),
            // Its position may be compacted, and then the one before it counts.
            Err(Stop::Failure(Failure::Expired)) => {}
            Ok(_) | Err(_) => self.overlap = None,
        }
        ended
    }

    /// Reports whether a second watch is opened beside the first: if no bookmarks come, as for Events, or as it turned out.
    fn needs_overlap(&self) -> bool {
        let is_events =
            self.spec.resource.plural == "events" && matches!(&*self.spec.resource.group, "" | "events.k8s.io");
        !self.machine.has_bookmarks() && !self.machine.is_unrelated() && (is_events || self.machine.lacks_bookmarks())
    }

    /// Lets the audit know how far we are.
    fn publish_position(&self) {
        let position = self.machine.position();
        self.position.send_if_modified(|published| {
            let moved = published.as_ref() != position;
            if moved {
                *published = position.cloned();
            }
            moved
        });
    }

    /// A watch that ends after `over` was ended by the API server because its time was over.
    async fn read(
        &mut self,
        mut body: Body,
        mut first: Option<Bytes>,
        over: Instant,
        beside: &mut Beside,
    ) -> Result<Input, Stop> {
        let timings = &self.shared.timings;
        let opened = Instant::now();
        // Time since which it waits for a part.
        let mut waits = opened;
        self.behind = Some(runtime::now());
        self.journal.fall_behind(None).await?;
        let mut lines = Lines::new(timings.line_limit);
        let journal = self.shared.journal.clone();
        let mut share = journal.budget().share();
        let (silence, pause) = (timings.silence, self.shared.api.limits().read.min(timings.silence));
        let mut reconnects = self.shared.reconnects.listen();
        let (mut inconsistency, mut rollbacks) = (self.inconsistency.clone(), self.rollbacks.clone());
        // It ends with the watch, and then begins again with the next one.
        let mut audit = None;
        loop {
            self.publish_position();
            beside.waits();
            // Others may wait for what a line in the middle holds.
            let patience = if share.is_holding() { pause } else { silence };
            let stands = self.machine.stands_after().map(|after| opened + after);
            let part = tokio::select! {
                biased;
                part = async { first.take() }, if first.is_some() => Ok(part),
                part = next_part(&mut body, patience) => part,
                () = tokio::time::sleep_until(stands.unwrap_or(opened)), if stands.is_some() => {
                    self.step(Input::WatchStable).await?;
                    continue;
                }
                () = reconnects.notified() => return Ok(Input::Ended(End::Idle)),
                () = rollbacks.notified() => {
                    self.rollbacks = rollbacks;
                    self.warned = true;
                    return Ok(Input::RollbackSuspected);
                }
                () = inconsistency.found() => return Ok(Input::Inconsistent),
                () = beside.turn(self) => continue,
                found = self.audit(&mut audit) => {
                    audit = None;
                    if self.audited(found).await? {
                        return Ok(Input::AuditMismatch);
                    }
                    continue;
                }
            };
            let part = match part {
                Ok(Some(part)) => part,
                Ok(None) if Instant::now() >= over => return Ok(Input::Ended(End::TimedOut)),
                Ok(None) => return Ok(Input::Ended(End::Closed)),
                Err(Failure::Unreachable(_)) if self.stats.silent_for() >= silence => {
                    return Ok(Input::Ended(End::Idle));
                }
                Err(failure) => return Ok(Input::Ended(End::Disconnected(failure.to_string()))),
            };
            self.stats.received(part.len());
            self.watched = Some(Instant::now());
            lines.push(part);
            self.note_pace(waits).await?;
            if let Err(failure) = self.take_lines(&mut lines, &mut share).await? {
                return Err(failure.into());
            }
            self.overlap = None;
            beside.news(self.needs_overlap());
            share.hold(lines.pending()).await;
            // However long that took: it was not the API server that was silent.
            self.stats.contact();
            if share.should_yield(silence) {
                return Ok(Input::Ended(End::Disconnected(SLOW.to_owned())));
            }
            waits = Instant::now();
        }
    }

    /// Tells the journal whether what has just come happens now. What follows an opening was sent for a position of earlier, and
    /// what follows a pause of this process waited in a socket. `waits` is the time since which the watch was waited for.
    async fn note_pace(&mut self, waits: Instant) -> Result<(), JournalError> {
        let now = Instant::now();
        if let Some(ran) = self.shared.heartbeat.paused_since(waits, now) {
            (self.behind, self.missed) = (Some(runtime::now()), true);
            return self.journal.fall_behind(Some(ran)).await;
        }
        let is_settled = self.shared.timings.version_clock.is_none() || self.shared.version_clock.is_settled();
        if self.behind.is_none() || !is_settled || now - waits < QUIET_MIN {
            return Ok(());
        }
        self.catch_up().await
    }

    async fn catch_up(&mut self) -> Result<(), JournalError> {
        (self.behind, self.missed) = (None, false);
        self.journal.catch_up().await
    }

    /// Tells the journal that the watch has brought everything from before it, if what comes now was made since it was opened. A
    /// resource of which something changes all the time is never quiet.
    async fn note_progress(&mut self, versions: &[&ResourceVersion]) -> Result<(), JournalError> {
        let Some(opened) = self.behind else { return Ok(()) };
        match self.shared.are_made_after(&self.spec, versions, opened).await {
            Some(true) => self.catch_up().await,
            Some(false) => Ok(()),
            None => {
                // The next reading asks again.
                self.behind = Some(runtime::now());
                Ok(())
            }
        }
    }

    /// Dates changes that are late, and deletions that happened while nobody watched: they carry no time.
    async fn date(&mut self, changes: &[WatchChange]) -> Result<(), JournalError> {
        let versions: Vec<&ResourceVersion> = changes.iter().map(|change| &change.object.version).collect();
        self.note_progress(&versions).await?;
        let mut dates = match self.shared.lateness(&self.spec, &versions, self.missed).await {
            Lateness::Present => Dates::new(),
            Lateness::Dated(dates) => dates,
            Lateness::Unknown => {
                self.journal.fall_behind(None).await?;
                Dates::new()
            }
        };
        if self.missed {
            let deletions = changes.iter().filter(|change| change.verb == Verb::Delete);
            let leases = self.shared.date(deletions.map(|change| &change.object.version)).await;
            dating::join(&mut dates, &leases);
        }
        if dates.is_empty() { Ok(()) } else { self.journal.date(Arc::new(dates)).await }
    }

    /// Hands over what the whole lines say. The inner error ends the watch; what came before it is handed over.
    async fn take_lines(
        &mut self,
        lines: &mut Lines,
        share: &mut Share<'_>,
    ) -> Result<Result<(), Failure>, JournalError> {
        let mut changes = Batch::default();
        let mut result = Ok(());
        loop {
            let line = match lines.take() {
                Ok(Some(line)) => line,
                Ok(None) => break,
                Err(Oversize) => {
                    result = Err(Failure::from(Oversize));
                    break;
                }
            };
            match caught(|| news(&self.shared, &self.spec, &line)) {
                Ok(News::Change(change)) if self.is_repeated(&change.object.version) => {
                    self.stats.count(Anomaly::Replay);
                }
                Ok(News::LeftOut(version, _)) if self.is_repeated(&version) => {}
                Ok(News::Unread(object, _)) if self.is_repeated(&object.version) => self.stats.count(Anomaly::Replay),
                Ok(News::Change(change)) => {
                    changes.effects.extend(self.machine.changed(&change.object.version));
                    changes.kept.push(change);
                }
                Ok(News::LeftOut(version, verb)) => {
                    self.shared.revisions.note(self.id, std::iter::once((&version, verb == Verb::Delete)));
                    changes.effects.extend(self.machine.changed(&version));
                    changes.left_out = true;
                }
                Ok(News::Unread(object, verb)) => {
                    self.append(&mut changes, share).await?;
                    let version = object.version.clone();
                    self.journal.append_unread(verb, object).await?;
                    if !version.as_str().is_empty() {
                        self.shared.revisions.note(self.id, std::iter::once((&version, verb == Verb::Delete)));
                        let effects = self.machine.changed(&version);
                        self.carry_out(effects).await?;
                    }
                }
                Ok(News::Bookmark(version)) => {
                    self.append(&mut changes, share).await?;
                    if let Lateness::Dated(dates) = self.shared.lateness_behind(&self.spec, &version).await {
                        self.journal.date(Arc::new(dates)).await?;
                    }
                    self.step(Input::Bookmark(version)).await?;
                }
                // Nothing moves past a line that is not understood.
                Err(failure) => {
                    result = Err(failure);
                    break;
                }
            }
        }
        self.append(&mut changes, share).await?;
        Ok(result)
    }

    /// Reports whether the previous, overlapping watch has brought this version. Several deletions may share the newest one.
    fn is_repeated(&self, version: &ResourceVersion) -> bool {
        self.repeats.as_ref().is_some_and(|newest| version.is_before(newest))
    }

    async fn append(&mut self, changes: &mut Batch, share: &mut Share<'_>) -> Result<(), JournalError> {
        let Batch { kept, left_out, effects } = std::mem::take(changes);
        if kept.is_empty() && !left_out {
            return Ok(());
        }
        if !kept.is_empty() {
            self.stats.changed(kept.len());
            let seen = kept.iter().map(|change| (&change.object.version, change.verb == Verb::Delete));
            self.shared.revisions.note(self.id, seen);
            self.date(&kept).await?;
            self.journal.append_held(kept, share).await?;
        }
        if left_out && let Some(position) = self.machine.position() {
            // Of what is left out the journal hears nothing else, and a position that stands still is compacted.
            self.journal.bookmark(position.clone()).await?;
        }
        self.carry_out(effects).await.map(drop)
    }
}

/// Lines that were ready at once.
#[derive(Default)]
struct Batch {
    kept: Vec<WatchChange>,
    /// Set if something was of an excluded namespace.
    left_out: bool,
    effects: Vec<Effect>,
}

/// Contents of a line for the source.
enum News {
    Change(WatchChange),
    /// A change in a namespace that is left out.
    LeftOut(ResourceVersion, Verb),
    /// A change of an object that does not say which one it is.
    Unread(Unread, Verb),
    Bookmark(ResourceVersion),
}

fn news(shared: &Shared, spec: &SourceSpec, line: &[u8]) -> Result<News, Failure> {
    let (verb, object) = match decode::line(line).map_err(Failure::Undecodable)? {
        Line::Upsert(object) => (Verb::Upsert, object),
        Line::Delete(object) => (Verb::Delete, object),
        Line::Odd(odd, is_gone, bytes) => {
            let verb = if is_gone { Verb::Delete } else { Verb::Upsert };
            if spec.leaves_out(&odd.namespace) {
                return Ok(News::LeftOut(ResourceVersion::new(odd.version), verb));
            }
            return Ok(News::Unread(unread(shared, spec, odd, Why::Undecodable, bytes), verb));
        }
        Line::Bookmark(version) => return Ok(News::Bookmark(version)),
        Line::Error(status) => return Err(failure::error_event(status)),
    };
    if spec.leaves_out(&object.namespace) {
        return Ok(News::LeftOut(ResourceVersion::new(object.version), verb));
    }
    if !spec.takes(&object.namespace) {
        let why = "it is in another namespace than was asked for".to_owned();
        let bytes = object.bytes.clone();
        let odd = decode::Odd { why, ..object.into() };
        return Ok(News::Unread(unread(shared, spec, odd, Why::Undecodable, &bytes), verb));
    }
    Ok(News::Change(WatchChange { verb, object: observed(shared, &spec.resource, object)? }))
}
