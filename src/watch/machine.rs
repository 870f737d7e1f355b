//! Decisions of a source: a pure state machine.
//!
//! It holds no clock, no randomness and does no I/O. Every input carries the time at which it came (since any fixed
//! moment), every effect is data, and the driver (`source`) carries it out and brings the answer back. An
//! [action](Effect::is_action) is an effect that an input answers: a step has exactly one, or none where the watch stays open.
//! So the source is always doing one thing.
//!
//! Only this machine decides for a source: when a list is needed (a *desync*), the reason of the gap that it
//! declares (the journal adds its own, where a change contradicts it), when a resource is gone, and how long to wait. Every failure leads to a wait, and whatever is asked keeps
//! to a pace, so that no answer of a server can make a hot loop.
//!
//! # Decision: the position stays behind the newest version
//!
//! Context: Many deletions can share one resourceVersion (a lease that expires), and a watch from that version would lose the
//! rest.
//! Decision: A source resumes from the last distinct version below it, or from a bookmark. The event that repeats is
//! recognized by the state.
//! Cost: One repeated event for each resume.
//!
//! # Decision: a list older than its objects proves nothing
//!
//! Context: Some aggregated APIs version their lists in another order than their objects.
//! Decision: No server can have an object newer than a consistent list, so one such object proves it: the source is no longer
//! asked for its newest version, and no rollback is concluded.
//! Cost: A restore of such a server is found by its audit only.
//!
//! # Decision: a list is believed while most objects are in it
//!
//! Context: Broken servers send empty or short lists.
//! Decision: A list that lacks more than half, and at least ten objects, or is empty where objects are known, is requested
//! again, over new connections and after checking the cluster. The second one is believed.
//! Cost: One more short list if everything is really gone.
//!
//! # Decision: no second watch beside a list
//!
//! Context: A list that takes longer than the server's window ends in 410 again and again.
//! Decision: The second list in a row is requested in one piece, which the server sends as fast as it is read, and staging is
//! fast.
//! Cost: A list that takes over 75 seconds to send, on a resource with more than 100 changes in that time, does not converge.

mod failing;
mod failures;
mod listing;
mod pace;
mod quiet;
mod reachability;
mod states;
mod terms;
#[cfg(test)]
mod tests;
mod watching;

use std::collections::BTreeSet;
use std::time::Duration;

use failures::{FailureHistory, Relist};
use pace::Pace;
use quiet::Quiet;
use reachability::Reachability;
use states::{Check, Listed, Loss, Phase, Position, Remedy};
pub use terms::{Anomaly, Effect, End, Input, Thresholds};

use crate::core::model::{Checkpoint, ResourceVersion, Why};
use crate::journal::{SourceMemory, SourceState};
use crate::watch::cluster::failure::UNAUTHORIZED;
use crate::watch::cluster::{Failure, Unreadable};

/// Versions without an order that are remembered.
const SEEN: usize = 10_000;

/// A list for which there is no room is begun again after as long as it took, and at most after this.
const LIST_DELAY_MAX: Duration = Duration::from_secs(600);

/// A source's state.
#[derive(Clone, Debug)]
pub struct Machine {
    thresholds: Thresholds,
    phase: Phase,
    /// Position that was given to the journal.
    position: Position,
    /// Newest version of which something was given to the journal. Stays when the position is lost.
    newest: Option<ResourceVersion>,
    /// True if missed changes are recovered.
    recovers: bool,
    /// True if lists are requested in pages. One answer in one piece is the fallback if the pages take longer than the API
    /// server remembers.
    paged: bool,
    /// Lists have versions that do not go with those of their objects, as some aggregated APIs have: no answer says
    /// how far the server is.
    unrelated: bool,
    listed: Option<Listed>,
    /// Start of the list or of the recovery in progress.
    began: Duration,
    /// Failures in a row, and when the newest came.
    tries: u32,
    failed: Option<Duration>,
    failures: FailureHistory,
    reported: Option<SourceState>,
    pace: Pace,
    reachability: Reachability,
    /// Version that the API server had before the watch was opened.
    mark: Option<ResourceVersion>,
    /// The ends of watches that have brought nothing.
    quiet: Quiet,
    /// Set once this watch or the previous one has brought a bookmark.
    bookmarks: bool,
    /// A watch that ended when it was asked to has brought none.
    lacks_bookmarks: bool,
    /// The versions without an order that have come, as far as there is room for them.
    seen: BTreeSet<String>,
}

impl Machine {
    /// A source that begins with what the journal remembers of it.
    #[must_use]
    pub fn new(memory: SourceMemory, thresholds: Thresholds) -> Self {
        let Checkpoint { resume, applied } = memory.checkpoint;
        let newest = applied.or_else(|| resume.clone());
        let position = match resume {
            Some(resume) => Position::Held { resume, check: Check::Position },
            None => Position::Lost(Loss { why: memory.why, ..Loss::default() }),
        };
        Self {
            thresholds,
            phase: Phase::New,
            position,
            newest,
            recovers: false,
            paged: true,
            unrelated: false,
            listed: None,
            began: Duration::ZERO,
            tries: 0,
            failed: None,
            failures: FailureHistory::default(),
            reported: None,
            pace: Pace::new(thresholds.apart),
            reachability: Reachability::default(),
            mark: None,
            quiet: Quiet::default(),
            bookmarks: false,
            lacks_bookmarks: false,
            seen: BTreeSet::new(),
        }
    }

    /// Sets whether changes since a lost position are recovered instead of declaring a gap.
    #[must_use]
    pub fn recovering(mut self, recovers: bool) -> Self {
        self.recovers = recovers;
        if let Position::Lost(loss) = &mut self.position
            && recovers
            && loss.why.is_some_and(is_recoverable)
        {
            loss.remedy = Remedy::Recover;
        }
        self
    }

    /// Returns the position: everything up to it was given to the journal.
    #[must_use]
    pub const fn position(&self) -> Option<&ResourceVersion> {
        match &self.position {
            Position::Held { resume, .. } => Some(resume),
            Position::Lost(_) => None,
        }
    }

    /// Reports whether an unreadable answer may have been damaged in transit: it is requested again before anything is
    /// concluded.
    #[must_use]
    pub const fn doubts(&self) -> bool {
        self.failures.undecodable < self.thresholds.undecodable
    }

    /// Reports whether the versions of lists are not comparable with those of objects.
    #[must_use]
    pub const fn is_unrelated(&self) -> bool {
        self.unrelated
    }

    /// Reports whether a server with the consistent version `version` would have gone back in time.
    #[must_use]
    pub fn is_past(&self, version: &ResourceVersion) -> bool {
        !self.unrelated && self.precedes(version)
    }

    /// Reports whether `version` is older than the newest one that was given to the journal, as far as the two have an order.
    fn precedes(&self, version: &ResourceVersion) -> bool {
        self.newest.as_ref().is_some_and(|newest| version.is_before(newest))
    }

    /// Reports whether bookmarks come. Without them watches have to be short, because only their ends move a quiet position.
    #[must_use]
    pub const fn has_bookmarks(&self) -> bool {
        self.bookmarks
    }

    /// The newest version that was handed to the journal.
    #[must_use]
    pub const fn newest(&self) -> Option<&ResourceVersion> {
        self.newest.as_ref()
    }

    /// Reports whether a watch has ended without a bookmark.
    #[must_use]
    pub const fn lacks_bookmarks(&self) -> bool {
        self.lacks_bookmarks
    }

    /// Returns the longest duration of a watch if something between decklog and the API server cuts connections that are idle
    /// for longer.
    #[must_use]
    pub fn longest_watch(&self, now: Duration) -> Option<Duration> {
        self.quiet.longest(now)
    }

    /// After what time an open watch is a good one, where that is not known yet: the machine wants to hear of it then.
    #[must_use]
    pub fn stands_after(&self) -> Option<Duration> {
        let known = self.reported == Some(SourceState::Watching);
        (!known).then_some(if self.failures.cut > 1 { self.thresholds.stable } else { self.thresholds.short_watch })
    }

    /// One step: `now` is when the input came.
    pub fn step(&mut self, now: Duration, input: Input) -> Vec<Effect> {
        let mut out = Vec::new();
        if matches!(
            input,
            Input::Probed(_)
                | Input::Page { .. }
                | Input::Endless(_)
                | Input::Latest(_)
                | Input::Opened
                | Input::Recovered(_)
                | Input::Compacted(_)
        ) {
            self.reachability.answered(now, self.thresholds.forgive);
        }
        match input {
            Input::Start | Input::Waited => {
                self.reachability.not_called();
                self.proceed(now, &mut out);
            }
            Input::ServerReachable => self.answers(now, &mut out),
            Input::Probed(version) => self.probed(now, &version, &mut out),
            Input::Page { version, next, newer } => {
                self.unrelated |= newer;
                self.page(now, version, next, &mut out);
            }
            Input::Endless(text) => {
                // What has no end in pages may have one in one piece.
                self.broken_list();
                self.list_given_up(now, Duration::ZERO, text, &mut out);
            }
            Input::NoRoom(text) => self.no_room(now, text, &mut out),
            Input::Committed => self.committed(now, &mut out),
            Input::Recovered(version) => self.settled(now, version, &mut out),
            Input::Compacted(version) => {
                self.remedied_by(Remedy::ListAt(version));
                self.proceed(now, &mut out);
            }
            Input::Unrecoverable => {
                self.remedied_by(Remedy::List);
                self.proceed(now, &mut out);
            }
            Input::Opened => self.opened(now, &mut out),
            Input::Overlapped(version) => self.overlapped(now, version, &mut out),
            Input::WatchStable => {
                self.failures.cut = 0;
                self.reachability.stable();
                self.report(SourceState::Watching, &mut out);
            }
            Input::Changed(version) => return self.changed(&version),
            Input::Bookmark(version) => self.bookmark(version, &mut out),
            Input::Ended(end) => self.ended(now, end, &mut out),
            Input::Failed(failure) => self.failed(now, failure, &mut out),
            Input::Latest(version) => self.latest(now, &version, &mut out),
            Input::IncomparableVersions => {
                self.unrelated = true;
                self.checked(Check::Nothing);
                self.failures.ahead = None;
                self.proceed(now, &mut out);
            }
            Input::RollbackSuspected if self.unrelated => self.proceed(now, &mut out),
            Input::RollbackSuspected => self.ask_latest(now, &mut out),
            Input::AuditMismatch => {
                self.desync(Why::Audit, &mut out);
                self.retry(now, Duration::ZERO, None, &mut out);
            }
            Input::Inconsistent => {
                if self.lose(Why::Audit) {
                    out.push(Effect::Count(Anomaly::Inconsistent));
                }
                self.retry(now, Duration::ZERO, None, &mut out);
            }
            Input::ListTooShort(text) => {
                if let Position::Lost(loss) = &mut self.position {
                    loss.confirmed = true;
                }
                // Whatever stands between us and the API server may be what is broken.
                out.push(Effect::Reconnect);
                self.retry(now, Duration::ZERO, Some(&text), &mut out);
            }
            Input::Confirmed(gone) => self.confirmed(now, gone, &mut out),
        }
        out
    }

    /// The API server answers again.
    fn answers(&mut self, now: Duration, out: &mut Vec<Effect>) {
        self.reachability.call();
        self.tries = 0;
        // Watches that broke off when it went say nothing about who is there now, either.
        self.failures.cut = 0;
        self.proceed(now, out);
    }

    /// Discovery says whether the resource is gone.
    fn confirmed(&mut self, now: Duration, gone: bool, out: &mut Vec<Effect>) {
        if gone {
            self.phase = Phase::Gone;
            out.push(Effect::Gone);
        } else {
            self.failures.not_found = Some(now);
            self.wait(self.tries, Duration::ZERO, out);
        }
    }

    /// The next thing to do when nothing is in the way.
    fn proceed(&mut self, now: Duration, out: &mut Vec<Effect>) {
        match &self.position {
            Position::Held { check: Check::Latest, .. } => self.ask_latest(now, out),
            Position::Held { resume, check } => {
                // What was applied, not where to resume: a server restored to in between has the latter. Versions
                // without an order cannot lie in the future, nor does the server know.
                let newest = self.newest.as_ref().unwrap_or(resume);
                let ordered = newest.is_ordered() && !self.unrelated;
                if *check == Check::Position && ordered {
                    let probe = Effect::Probe(newest.clone());
                    self.ask(now, probe, out);
                    self.phase = Phase::Probing;
                } else if self.failures.relist.is_due() && !ordered {
                    self.list_instead(out);
                    self.proceed(now, out);
                } else {
                    let watch = Effect::Watch(resume.clone());
                    self.ask(now, watch, out);
                    self.phase = Phase::Opening;
                }
            }
            Position::Lost(Loss { remedy: Remedy::Recover, confirmed, .. }) if !self.unrelated => {
                let recover = Effect::Recover { confirmed: *confirmed };
                self.report_unless_given_up(SourceState::Recovering, out);
                self.began = now;
                self.ask(now, recover, out);
                self.phase = Phase::Recovering;
            }
            Position::Lost(loss) => {
                let at = match &loss.remedy {
                    Remedy::ListAt(version) => Some(version.clone()),
                    Remedy::List | Remedy::Recover => None,
                };
                self.report_unless_given_up(SourceState::Listing(0), out);
                self.began = now;
                self.ask(now, Effect::List { token: None, paged: self.paged, at }, out);
                self.phase = Phase::Listing { version: None, paged: self.paged };
            }
        }
    }

    /// Asks something of the API server, and rests before it where too much was asked a moment ago.
    fn ask(&mut self, now: Duration, what: Effect, out: &mut Vec<Effect>) {
        let rest = self.pace.rest(now, &what);
        if !rest.is_zero() {
            out.push(Effect::Throttle(rest));
        }
        out.push(what);
    }

    fn probed(&mut self, now: Duration, version: &ResourceVersion, out: &mut Vec<Effect>) {
        if self.precedes(version) {
            return self.failed(now, Failure::Ahead, out);
        }
        let news = self.newest.as_ref().is_some_and(|newest| newest.is_before(version));
        self.checked(Check::Nothing);
        self.failures.ahead = None;
        // A list of this resource was answered: it is served.
        self.failures.not_found = None;
        self.mark = news.then(|| version.clone());
        if self.failures.relist.is_due() && news {
            // There may be news that no watch is going to bring.
            self.list_instead(out);
        }
        self.proceed(now, out);
    }

    fn ask_latest(&mut self, now: Duration, out: &mut Vec<Effect>) {
        self.checked(Check::Latest);
        self.phase = Phase::Asking;
        self.ask(now, Effect::AskLatest, out);
    }

    /// A source whose list was given up is degraded until a list is complete, and one with an object that cannot be read until it is
    /// watched.
    fn report_unless_given_up(&mut self, state: SourceState, out: &mut Vec<Effect>) {
        if self.failures.given_up == 0 && self.failures.unreadable.is_none() {
            self.report(state, out);
        }
    }

    /// A watch failed in a way that no list has cured: what it should bring may have to be listed again.
    fn count_fruitless(&mut self, watching: bool) {
        if watching && self.failures.relist.watched_fruitlessly() {
            self.look_first();
        }
    }

    /// Schedules a list. If `due`, the first one starts once the server has anything newer.
    fn relist(&mut self, due: bool) {
        if due && self.position().is_some() && self.failures.relist.ask() {
            self.look_first();
        }
    }

    /// The API server has to show that it has our position before it is watched again, unless more than that is asked.
    fn look_first(&mut self) {
        if let Position::Held { check: check @ Check::Nothing, .. } = &mut self.position {
            *check = Check::Position;
        }
    }

    /// Sets what the API server has to show before the position is watched. A lost position has nothing to be shown.
    const fn checked(&mut self, next: Check) {
        if let Position::Held { check, .. } = &mut self.position {
            *check = next;
        }
    }

    /// Sets the way to make up for a lost position.
    fn remedied_by(&mut self, remedy: Remedy) {
        if let Position::Lost(loss) = &mut self.position {
            loss.remedy = remedy;
        }
    }

    /// Invariant 3: the position is lost, and the list that follows declares it. A source without any history has
    /// nothing that could be missing.
    fn desync(&mut self, why: Why, out: &mut Vec<Effect>) {
        if self.lose(why) {
            out.push(Effect::Count(Anomaly::Desync(why)));
        }
    }

    /// Gives the position up. Says whether anything was lost with it.
    fn lose(&mut self, why: Why) -> bool {
        let ordered = self.newest.as_ref().is_some_and(ResourceVersion::is_ordered);
        let recoverable = self.recovers && ordered && is_recoverable(why);
        let remedy = if recoverable { Remedy::Recover } else { Remedy::List };
        match &mut self.position {
            // It explains whatever else seemed to be the reason.
            Position::Lost(loss) if why == Why::Rollback => (loss.why, loss.remedy) = (Some(why), remedy),
            Position::Lost(_) => return false,
            Position::Held { .. } => self.position = Position::Lost(Loss { why: Some(why), remedy, ..Loss::default() }),
        }
        true
    }

    /// Reports whether the API server, which has answered, was away a moment ago.
    fn begins(&mut self, now: Duration) -> bool {
        self.reachability.answered(now, self.thresholds.forgive);
        self.reachability.has_just_begun(now, self.thresholds.slow)
    }

    /// Waits before the next try.
    fn retry(&mut self, now: Duration, at_least: Duration, text: Option<&str>, out: &mut Vec<Effect>) {
        let begins = self.begins(now);
        self.note(now, text.filter(|_| !begins), out);
        self.rest(begins && at_least.is_zero(), at_least, out);
    }

    /// Counts a failure; from the second one on, status says why.
    fn note(&mut self, now: Duration, text: Option<&str>, out: &mut Vec<Effect>) {
        self.count_failure(now);
        if let Some(text) = text
            && self.tries > 1
        {
            self.report(SourceState::Degraded(text.to_owned()), out);
        }
    }

    /// Waits where a person may have to help, and says so at once, unless it may be a server that begins.
    fn blocked(&mut self, now: Duration, at_least: Duration, text: String, out: &mut Vec<Effect>) {
        self.count_failure(now);
        let begins = self.begins(now);
        if !begins {
            self.report(SourceState::Degraded(text), out);
        }
        self.rest(begins, at_least, out);
    }

    /// Rests before the next request; a server that starts up is asked again soon, however often it has failed.
    fn rest(&mut self, soon: bool, at_least: Duration, out: &mut Vec<Effect>) {
        if soon { self.wait(1, self.thresholds.apart, out) } else { self.wait(self.tries, at_least, out) }
    }

    fn count_failure(&mut self, now: Duration) {
        if self.failed.is_some_and(|failed| now.saturating_sub(failed) > self.thresholds.forgive) {
            self.tries = 0;
        }
        self.failed = Some(now);
        self.tries = self.tries.saturating_add(1);
    }

    fn wait(&mut self, tries: u32, at_least: Duration, out: &mut Vec<Effect>) {
        self.phase = Phase::Waiting;
        out.push(Effect::Wait { tries, at_least });
    }

    /// Waits for the API server to answer.
    fn wait_for(&mut self, any: bool, out: &mut Vec<Effect>) {
        self.phase = Phase::Waiting;
        out.push(Effect::AwaitServer { tries: self.tries, any });
    }

    fn report(&mut self, state: SourceState, out: &mut Vec<Effect>) {
        if self.reported.as_ref() != Some(&state) {
            self.reported = Some(state.clone());
            out.push(Effect::Report(state));
        }
    }
}

/// Reports whether a loss for this reason can be recovered from the API server's own history. A restore from a backup has
/// another history, and a changed scope knows less than the history has.
const fn is_recoverable(why: Why) -> bool {
    match why {
        Why::Expired | Why::Undecodable | Why::Oversize | Why::Paused | Why::Audit | Why::Unreadable => true,
        Why::Rollback | Why::Scope => false,
    }
}
