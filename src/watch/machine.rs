//! What a source does next: a pure state machine.
//!
//! It holds no clock, no randomness and does no I/O. Every input carries the time at which it came (since any fixed
//! moment), every effect is data, and the driver in [`super`] carries it out and brings the answer back. Exactly one of
//! the effects of a step is an [action](Effect::is_action) while the source has nothing to do, and none while a watch
//! is open: so the source is always doing one thing.
//!
//! What may be concluded from what is decided here and nowhere else: when a list is needed (a *desync*), which gap it
//! declares, when a resource is gone, and how long to wait. Every failure leads to a wait, and whatever is asked keeps
//! to a pace, so that no answer of a server can make a hot loop.

mod pace;
mod quiet;
mod terms;
#[cfg(test)]
mod tests;
mod trouble;

use std::collections::BTreeSet;
use std::time::Duration;

use pace::Pace;
use quiet::Quiet;
pub use terms::{Effect, End, Input, Oddity, Patience};
use trouble::Trouble;

use super::classify::{Failure, UNAUTHORIZED};
use crate::journal::{SourceMemory, SourceState};
use crate::model::{Checkpoint, ResourceVersion, Why};

/// What the source is doing.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Phase {
    /// Not begun.
    New,
    /// Asking whether the API server has our position.
    Probing,
    /// Asking which version the API server has.
    Asking,
    /// A list is in progress; the version is known after its first page.
    Listing { version: Option<ResourceVersion>, paged: bool },
    /// The complete list is being written.
    Committing(ResourceVersion),
    /// What happened since the position was lost is asked for.
    Recovering,
    /// A watch was asked for.
    Opening,
    /// A watch is open since then; whether it has brought anything new.
    Watching { since: Duration, progress: bool },
    /// Waiting before the next try.
    Waiting,
    /// Asking discovery.
    Confirming,
    /// The resource is gone: nothing follows.
    Gone,
}

/// Versions without an order that are remembered.
const SEEN: usize = 10_000;

/// A source's state.
#[derive(Clone, Debug)]
pub struct Machine {
    patience: Patience,
    phase: Phase,
    /// What was handed to the journal. Without a position a list is needed.
    checkpoint: Checkpoint,
    /// The gap that the next list declares.
    why: Option<Why>,
    /// Whether anything is recovered at all.
    recovers: bool,
    /// Whether what happened since the position was lost may be recovered, without a gap.
    recoverable: bool,
    /// What is older than this version is gone, so a list of it declares that gap, and what follows can be recovered.
    at: Option<ResourceVersion>,
    /// Whether the API server must show that it has our position before we watch from it.
    probe: bool,
    /// The API server seems not to have our position: what it consistently has decides between slow and restored. It
    /// is asked at once and until it has answered, because a restored server soon has as high a version again.
    behind: bool,
    /// A list was older than the journal; a second one decides.
    suspect: bool,
    /// A list lacked most of what is known; a second one decides.
    doubtful: bool,
    /// Whether lists are asked for in pages. One answer in one piece is the way out where the pages take longer than
    /// the API server remembers.
    paged: bool,
    /// Lists whose pages expired or were of two versions, in a row.
    broken_lists: u32,
    /// Lists have versions that do not go with those of their objects, as some aggregated APIs have: no answer says
    /// how far the server is.
    unrelated: bool,
    /// Nothing new has come since the last list.
    fresh_list: bool,
    tries: u32,
    failed: Option<Duration>,
    trouble: Trouble,
    reported: Option<SourceState>,
    pace: Pace,
    /// When a list was last written.
    listed: Option<Duration>,
    /// The API server was away when it was last heard of.
    away: bool,
    /// When it first answered after that.
    began: Option<Duration>,
    /// We were told that it answers, and have not got anything of it since.
    rung: bool,
    /// How often that came to nothing, in a row.
    deaf: u32,
    /// What the API server had before the watch was opened.
    mark: Option<ResourceVersion>,
    /// The ends of watches that have brought nothing.
    quiet: Quiet,
    /// Whether the watch before, or this one, has brought a bookmark.
    bookmarks: bool,
    /// The versions without an order that have come, as far as there is room for them.
    seen: BTreeSet<String>,
}

impl Machine {
    /// A source that begins with what the journal remembers of it.
    #[must_use]
    pub fn new(memory: SourceMemory, patience: Patience) -> Self {
        Self {
            patience,
            phase: Phase::New,
            checkpoint: memory.checkpoint,
            why: memory.why,
            recovers: false,
            recoverable: false,
            at: None,
            probe: true,
            behind: false,
            suspect: false,
            doubtful: false,
            paged: true,
            broken_lists: 0,
            unrelated: false,
            fresh_list: false,
            tries: 0,
            failed: None,
            trouble: Trouble::default(),
            reported: None,
            pace: Pace::new(patience.apart),
            listed: None,
            away: false,
            began: None,
            rung: false,
            deaf: 0,
            mark: None,
            quiet: Quiet::default(),
            bookmarks: false,
            seen: BTreeSet::new(),
        }
    }

    /// Whether to recover what happened since a position was lost, instead of a gap.
    #[must_use]
    pub fn recovering(self, recovers: bool) -> Self {
        let lost = self.why.filter(|_| self.checkpoint.resume.is_none());
        Self { recovers, recoverable: recovers && lost.is_some_and(is_recoverable), ..self }
    }

    /// Everything up to here was handed to the journal.
    #[must_use]
    pub const fn position(&self) -> Option<&ResourceVersion> {
        self.checkpoint.resume.as_ref()
    }

    /// Whether a server that consistently has `version` would have gone back in time.
    #[must_use]
    pub fn is_past(&self, version: &ResourceVersion) -> bool {
        !self.unrelated && self.checkpoint.is_past(version)
    }

    /// Whether bookmarks come. Where none do, watches are to be short, because only their ends move a quiet position.
    #[must_use]
    pub const fn has_bookmarks(&self) -> bool {
        self.bookmarks
    }

    /// How long a watch may be, because something between us and the API server cuts what is idle for longer.
    #[must_use]
    pub fn longest_watch(&self, now: Duration) -> Option<Duration> {
        self.quiet.longest(now)
    }

    /// After what time an open watch is a good one, where that is not known yet: it is to be told then.
    #[must_use]
    pub fn stands_after(&self) -> Option<Duration> {
        let known = self.reported == Some(SourceState::Watching);
        (!known).then_some(if self.trouble.cut > 1 { self.patience.stable } else { self.patience.short_watch })
    }

    /// One step: `now` is when the input came.
    pub fn step(&mut self, now: Duration, input: Input) -> Vec<Effect> {
        let mut out = Vec::new();
        if matches!(
            input,
            Input::Probed(_)
                | Input::Page { .. }
                | Input::Latest(_)
                | Input::Opened
                | Input::Recovered(_)
                | Input::Compacted(_)
        ) {
            self.answered(now);
        }
        match input {
            Input::Start | Input::Waited => {
                self.rung = false;
                self.proceed(now, &mut out);
            }
            Input::Rung => {
                // What failed while nobody was there says nothing about who is there now, and may still be beginning.
                (self.rung, self.tries, self.away, self.began) = (true, 0, true, None);
                // Nor do watches that broke off when it went.
                self.trouble.cut = 0;
                self.proceed(now, &mut out);
            }
            Input::Probed(version) => self.probed(now, &version, &mut out),
            Input::Page { version, next, newer } => {
                self.unrelated |= newer;
                self.page(now, version, next, &mut out);
            }
            Input::Committed => self.committed(now, &mut out),
            Input::Recovered(version) => self.settled(now, version, &mut out),
            Input::Compacted(version) => {
                self.at = Some(version);
                self.proceed(now, &mut out);
            }
            Input::Unrecoverable => {
                self.recoverable = false;
                self.proceed(now, &mut out);
            }
            Input::Opened => {
                self.phase = Phase::Watching { since: now, progress: false };
                self.trouble.not_found = None;
                self.trouble.refused = 0;
                self.rung = false;
                // After watches that came to nothing this one has to show first that it is another.
                if self.trouble.short == 0 && self.trouble.cut <= 1 {
                    self.report(SourceState::Watching, &mut out);
                }
            }
            Input::Stood => {
                (self.trouble.cut, self.deaf) = (0, 0);
                self.report(SourceState::Watching, &mut out);
            }
            Input::Changed(version) => return self.changed(&version),
            Input::Bookmark(version) => self.bookmark(version, &mut out),
            Input::Ended(end) => self.ended(now, end, &mut out),
            Input::Failed(failure) => self.failed(now, failure, &mut out),
            Input::Latest(version) => self.latest(now, &version, &mut out),
            Input::Unrelated => {
                self.unrelated = true;
                (self.behind, self.probe, self.trouble.ahead) = (false, false, None);
                self.proceed(now, &mut out);
            }
            Input::Warned if self.unrelated => self.proceed(now, &mut out),
            Input::Warned => self.ask_latest(now, &mut out),
            Input::Differs => {
                self.desync(Why::Audit, &mut out);
                self.retry(now, Duration::ZERO, None, &mut out);
            }
            Input::Inconsistent => {
                if self.lose(Why::Audit) {
                    out.push(Effect::Count(Oddity::Inconsistent));
                }
                self.retry(now, Duration::ZERO, None, &mut out);
            }
            Input::Doubtful(text) => {
                self.doubtful = true;
                // Whatever stands between us and the API server may be what is broken.
                out.push(Effect::Reconnect);
                self.retry(now, Duration::ZERO, Some(&text), &mut out);
            }
            Input::Confirmed(true) => {
                self.phase = Phase::Gone;
                out.push(Effect::Gone);
            }
            Input::Confirmed(false) => {
                self.trouble.not_found = Some(now);
                self.wait(self.tries, Duration::ZERO, &mut out);
            }
        }
        out
    }

    /// The next thing to do when nothing is in the way.
    fn proceed(&mut self, now: Duration, out: &mut Vec<Effect>) {
        match &self.checkpoint.resume {
            Some(_) if self.behind => self.ask_latest(now, out),
            Some(resume) => {
                // What was applied, not where to resume: a server restored to in between has the latter. Versions
                // without an order cannot lie in the future, nor can the server tell.
                let newest = self.checkpoint.applied.as_ref().unwrap_or(resume);
                let ordered = newest.is_ordered() && !self.unrelated;
                if self.probe && ordered {
                    let probe = Effect::Probe(newest.clone());
                    self.ask(now, probe, out);
                    self.phase = Phase::Probing;
                } else if self.trouble.wants_a_list() && !ordered {
                    self.list_instead(out);
                    self.proceed(now, out);
                } else {
                    let watch = Effect::Watch(resume.clone());
                    self.ask(now, watch, out);
                    self.phase = Phase::Opening;
                }
            }
            None if self.recoverable && self.at.is_none() && !self.unrelated => {
                self.report(SourceState::Recovering, out);
                self.ask(now, Effect::Recover { sure: self.doubtful }, out);
                self.phase = Phase::Recovering;
            }
            None => {
                self.report(SourceState::Listing(0), out);
                self.ask(now, Effect::List { token: None, paged: self.paged, at: self.at.clone() }, out);
                self.phase = Phase::Listing { version: None, paged: self.paged };
            }
        }
    }

    /// Asks something of the API server, and rests before it where too much was asked a moment ago.
    fn ask(&mut self, now: Duration, what: Effect, out: &mut Vec<Effect>) {
        let rest = self.pace.rest(now, &what);
        if !rest.is_zero() {
            out.push(Effect::Rest(rest));
        }
        out.push(what);
    }

    fn probed(&mut self, now: Duration, version: &ResourceVersion, out: &mut Vec<Effect>) {
        let newest = self.checkpoint.applied.as_ref().or(self.checkpoint.resume.as_ref());
        if newest.is_some_and(|newest| version.is_before(newest)) {
            return self.failed(now, Failure::Ahead, out);
        }
        let news = newest.is_some_and(|newest| newest.is_before(version));
        self.probe = false;
        self.trouble.ahead = None;
        // A list of this resource was answered: it is served.
        self.trouble.not_found = None;
        self.mark = news.then(|| version.clone());
        if self.trouble.wants_a_list() && news {
            // There may be news that no watch is going to bring.
            self.list_instead(out);
        }
        self.proceed(now, out);
    }

    fn ask_latest(&mut self, now: Duration, out: &mut Vec<Effect>) {
        self.behind = true;
        self.phase = Phase::Asking;
        self.ask(now, Effect::AskLatest, out);
    }

    /// The API server consistently has `version`: below what was applied, it has gone back in time.
    fn latest(&mut self, now: Duration, version: &ResourceVersion, out: &mut Vec<Effect>) {
        self.behind = false;
        if self.is_past(version) {
            self.trouble.ahead = None;
            self.desync(Why::Rollback, out);
            let text = "the API server has gone back in time, as after a restore from a backup";
            return self.retry(now, Duration::ZERO, Some(text), out);
        }
        // A list that says otherwise is a stale one, and decides nothing.
        self.suspect = false;
        let Some(since) = self.trouble.ahead else {
            self.probe = false;
            return self.proceed(now, out);
        };
        // It was slow, not restored. One that stays slow for this long is watched all the same.
        self.probe = now.saturating_sub(since) <= self.patience.ahead;
        let text = "the API server does not have the version up to which the journal goes, yet";
        self.retry(now, Duration::ZERO, Some(text), out);
    }

    fn page(&mut self, now: Duration, version: ResourceVersion, next: Option<String>, out: &mut Vec<Effect>) {
        self.trouble.not_found = None;
        let Phase::Listing { version: first, paged } = &self.phase else { return };
        let paged = *paged;
        if self.at.as_ref().is_some_and(|at| *at != version) {
            // It does not know such lists, whatever it said before.
            (self.at, self.recoverable) = (None, false);
            let text = format!("the API server answered with a list of another version, {version}");
            return self.failed(now, Failure::Server(text), out);
        }
        match first {
            // Invariant 2: a list is one consistent snapshot, or nothing is concluded from it.
            Some(first) if *first != version => {
                let text = format!("a list changed its version from {first} to {version} between two pages");
                self.broken_list();
                return self.failed(now, Failure::Server(text), out);
            }
            Some(_) => {}
            // What the list is to declare is known already.
            None if self.why == Some(Why::Rollback) || self.unrelated => {}
            None => {
                let back = self.checkpoint.is_past(&version);
                match (back, self.suspect) {
                    (true, false) => {
                        self.suspect = true;
                        let text = format!(
                            "the API server's list is of version {version}, older than what the journal has; asking again"
                        );
                        return self.failed(now, Failure::Unreachable(text), out);
                    }
                    // What it is has to be known before the list begins that declares it, because it changes how that
                    // one is read.
                    (true, true) => return self.ask_latest(now, out),
                    (false, _) => self.suspect = false,
                }
            }
        }
        match next {
            Some(token) => {
                self.phase = Phase::Listing { version: Some(version), paged };
                self.ask(now, Effect::List { token: Some(token), paged, at: None }, out);
            }
            None => {
                out.push(Effect::Commit { version: version.clone(), why: self.why, sure: self.doubtful });
                self.phase = Phase::Committing(version);
            }
        }
    }

    fn committed(&mut self, now: Duration, out: &mut Vec<Effect>) {
        let Phase::Committing(version) = &self.phase else { return };
        let version = version.clone();
        if self.at.take().is_some() {
            // What follows the gap is there to be recovered.
            (self.checkpoint.applied, self.doubtful) = (Some(version), false);
            return self.proceed(now, out);
        }
        self.settled(now, version, out);
    }

    /// Everything up to this version is in the journal, by a list or because it was recovered.
    fn settled(&mut self, now: Duration, version: ResourceVersion, out: &mut Vec<Effect>) {
        self.checkpoint = Checkpoint::at(version);
        self.why = None;
        self.behind = false;
        self.suspect = false;
        self.doubtful = false;
        // The list was consistent, so the API server has this version.
        self.probe = false;
        self.broken_lists = 0;
        self.fresh_list = true;
        self.trouble.undecodable = 0;
        self.listed = Some(now);
        (self.rung, self.deaf, self.mark) = (false, 0, None);
        self.quiet.news();
        self.proceed(now, out);
    }

    /// As [`Machine::step`] with [`Input::Changed`].
    pub(super) fn changed(&mut self, version: &ResourceVersion) -> Vec<Effect> {
        let mut out = Vec::new();
        if self.checkpoint.applied.as_ref() == Some(version) {
            if matches!(self.phase, Phase::Watching { progress: false, .. }) {
                out.push(Effect::Count(Oddity::Replay));
            }
            return out;
        }
        if self.checkpoint.is_past(version) {
            out.push(Effect::Count(Oddity::Disorder));
            return out;
        }
        // Without an order a server can repeat what it has for ever, and it looks new each time.
        let news = version.is_ordered() || self.is_unseen(version);
        self.checkpoint.advance(version);
        if news {
            self.well(&mut out);
        }
        out
    }

    fn is_unseen(&mut self, version: &ResourceVersion) -> bool {
        if self.seen.len() >= SEEN {
            self.seen.clear();
        }
        self.seen.insert(version.to_string())
    }

    fn bookmark(&mut self, version: ResourceVersion, out: &mut Vec<Effect>) {
        if self.checkpoint.is_past(&version) {
            out.push(Effect::Count(Oddity::Disorder));
            return;
        }
        let news =
            self.checkpoint.applied.as_ref() != Some(&version) && (version.is_ordered() || self.is_unseen(&version));
        self.bookmarks = true;
        self.mark = None;
        self.checkpoint.bookmark(&version);
        // A server that only repeats what we know has shown nothing.
        if news {
            self.well(out);
        }
        out.push(Effect::Bookmark(version));
    }

    /// The watch brings news: whatever was wrong is over.
    fn well(&mut self, out: &mut Vec<Effect>) {
        if let Phase::Watching { progress, .. } = &mut self.phase {
            *progress = true;
            self.report(SourceState::Watching, out);
        }
        self.fresh_list = false;
        self.paged = true;
        self.trouble = Trouble::default();
        self.quiet.news();
        (self.rung, self.deaf) = (false, 0);
    }

    /// The API server ended a watch when it was asked to, and the watch has brought nothing. What the API server had before
    /// the watch was opened, it had that long to send; and because the end came in its place in the stream, nothing was
    /// on its way. When a second watch says the same, nothing happened up to there: the position moves, as a bookmark
    /// would have moved it.
    fn quiet(&mut self, lived: Duration, out: &mut Vec<Effect>) {
        let newest = self.checkpoint.applied.clone();
        let is_newer = |mark: &ResourceVersion| newest.as_ref().is_some_and(|newest| newest.is_before(mark));
        let Some(mark) = self.mark.take().filter(is_newer) else { return };
        self.bookmarks = false;
        if let Some(mark) = self.quiet.over(mark, lived, self.patience.quiet).filter(is_newer) {
            self.checkpoint.bookmark(&mark);
            out.push(Effect::Bookmark(mark));
        }
    }

    fn ended(&mut self, now: Duration, end: End, out: &mut Vec<Effect>) {
        let (mut news, mut long, mut stable, mut lived) = (false, false, false, Duration::ZERO);
        if let Phase::Watching { since, progress } = self.phase {
            lived = now.saturating_sub(since);
            news = progress;
            long = lived >= self.patience.short_watch;
            stable = progress || lived >= self.patience.stable;
        }
        // Whoever ended it may be shut down or replaced now, and come back restored. A watch from a version that it does
        // not have would be accepted, and silent.
        self.probe = true;
        if stable || end == End::Over {
            (self.trouble.cut, self.deaf) = (0, 0);
        }
        match end {
            End::Cut(_) if !news => self.quiet.cut(now, lived),
            End::Cut(_) | End::Closed | End::Over | End::Silent => self.quiet.not_cut(),
        }
        match end {
            End::Closed | End::Over if news || long => {
                self.trouble.short = 0;
                if long {
                    // On a quiet resource nothing else says that the errors before are over.
                    self.trouble.server = None;
                    (self.trouble.due, self.trouble.lists, self.trouble.vain) = (false, 0, 0);
                }
                if end == End::Over && !news {
                    self.quiet(lived, out);
                }
                self.proceed(now, out);
            }
            End::Closed | End::Over => {
                self.trouble.short += 1;
                self.trouble.vain += 1;
                // Some servers answer a position that is too old with an empty watch instead of an error.
                self.trouble.due |= self.trouble.short >= self.patience.short_watches && self.trouble.lists == 0;
                self.retry(now, Duration::ZERO, Some("the API server closes every watch at once"), out);
            }
            End::Cut(_) | End::Silent if stable => self.wait(1, Duration::ZERO, out),
            End::Cut(_) | End::Silent => {
                let text = match end {
                    End::Cut(text) => text,
                    End::Closed | End::Over | End::Silent => "the API server sends nothing".to_owned(),
                };
                self.trouble.cut += 1;
                if self.trouble.cut == 1 && long {
                    return self.wait(1, Duration::ZERO, out);
                }
                self.count_failure(now);
                if self.trouble.cut > 1 {
                    let text = format!("every watch breaks off; look at what is between us and the API server: {text}");
                    self.report(SourceState::Degraded(text), out);
                }
                self.wait_for(false, out);
            }
        }
    }

    fn failed(&mut self, now: Duration, failure: Failure, out: &mut Vec<Effect>) {
        let listing = matches!(self.phase, Phase::Listing { .. });
        // Only an answer to a watch says something about what comes after the position.
        let watching = matches!(self.phase, Phase::Opening | Phase::Watching { .. });
        match failure {
            Failure::Expired if listing => {
                // The token that comes with this error would mix two snapshots, so the list begins again.
                self.broken_list();
                self.at = None;
                self.retry(now, Duration::ZERO, Some("the list took longer than the API server remembers"), out);
            }
            Failure::Expired => {
                let again = self.listed.is_some_and(|listed| now.saturating_sub(listed) <= self.patience.stable);
                if self.fresh_list && again {
                    self.paged = false;
                }
                self.desync(Why::Expired, out);
                if again {
                    self.retry(now, Duration::ZERO, None, out);
                } else {
                    // What happens until there is a list may be missing.
                    self.proceed(now, out);
                }
            }
            Failure::Ahead => {
                self.trouble.ahead.get_or_insert(now);
                self.probe = true;
                if self.phase == Phase::Asking {
                    self.retry(now, Duration::ZERO, Some("the API server does not say which version it has"), out);
                } else {
                    self.ask_latest(now, out);
                }
            }
            Failure::Busy(Some(after)) => self.retry(now, after, Some("the API server is busy"), out),
            // It may be a proxy that says so, for an API server that is away.
            Failure::Busy(None) => {
                self.away = true;
                self.note(now, Some("the API server is busy"), out);
                self.wait_for(false, out);
            }
            Failure::Unauthorized => {
                out.push(Effect::Refresh);
                self.blocked(now, Duration::ZERO, UNAUTHORIZED.to_owned(), out);
            }
            Failure::Forbidden(text) => {
                self.blocked(now, self.patience.slow, text, out);
            }
            Failure::NotFound => {
                let since = *self.trouble.not_found.get_or_insert(now);
                if now.saturating_sub(since) > self.patience.not_found {
                    self.phase = Phase::Confirming;
                    self.ask(now, Effect::Confirm, out);
                } else {
                    let text = "the API server does not serve this resource at the moment (404)".to_owned();
                    self.blocked(now, Duration::ZERO, text, out);
                }
            }
            Failure::Refused(text) => {
                self.trouble.refused += 1;
                self.in_vain(watching);
                self.due(!listing && self.trouble.refused >= 3);
                self.blocked(now, self.patience.slow, text, out);
            }
            Failure::Server(text) => {
                let since = *self.trouble.server.get_or_insert(now);
                self.in_vain(watching);
                self.due(!listing && now.saturating_sub(since) > self.patience.server_errors);
                self.retry(now, Duration::ZERO, Some(&text), out);
            }
            Failure::Tls(text) => {
                out.push(Effect::Refresh);
                self.probe = true;
                self.blocked(now, Duration::ZERO, text, out);
            }
            Failure::Away(text) => {
                self.probe = true;
                self.away = true;
                // Whoever tells us that it answers may have it from another one than we ask.
                self.deaf += u32::from(std::mem::take(&mut self.rung));
                self.note(now, Some(&text), out);
                self.wait_for(self.deaf < 3, out);
            }
            Failure::Unreachable(text) => {
                self.probe = true;
                self.retry(now, Duration::ZERO, Some(&text), out);
            }
            Failure::Undecodable(text) => {
                self.trouble.undecodable += 1;
                if watching && self.trouble.undecodable >= self.patience.undecodable {
                    self.desync(Why::Undecodable, out);
                }
                self.retry(now, Duration::ZERO, Some(&text), out);
            }
            Failure::Oversize(text) => {
                // Asking again would bring the same line again.
                if watching {
                    self.desync(Why::Oversize, out);
                }
                self.retry(now, Duration::ZERO, Some(&text), out);
            }
        }
    }

    /// What does not come to one list in pages is asked for in one piece.
    const fn broken_list(&mut self) {
        self.broken_lists += 1;
        if self.broken_lists >= 2 {
            self.paged = false;
        }
    }

    /// A watch failed in a way that no list has cured: what it should bring may have to be listed again.
    const fn in_vain(&mut self, watching: bool) {
        if watching && self.trouble.lists > 0 {
            self.trouble.vain += 1;
            self.probe = true;
        }
    }

    /// Where this is so, the first list is due as soon as the server turns out to have anything newer.
    const fn due(&mut self, due: bool) {
        if due && self.trouble.lists == 0 && self.checkpoint.resume.is_some() {
            (self.trouble.due, self.probe) = (true, true);
        }
    }

    /// Gives the position up for a list, because watches from it bring nothing.
    fn list_instead(&mut self, out: &mut Vec<Effect>) {
        self.trouble.lists += 1;
        (self.trouble.due, self.trouble.vain) = (false, 0);
        self.desync(Why::Expired, out);
    }

    /// Invariant 3: the position is lost, and the list that follows declares it. A source without any history has
    /// nothing that could be missing.
    fn desync(&mut self, why: Why, out: &mut Vec<Effect>) {
        if self.lose(why) {
            out.push(Effect::Count(Oddity::Desync(why)));
        }
    }

    /// Gives the position up. Says whether anything was lost with it.
    fn lose(&mut self, why: Why) -> bool {
        if why == Why::Rollback {
            // It explains whatever else seemed to be the reason.
            self.checkpoint.resume = None;
            self.why = Some(why);
        } else if self.checkpoint.resume.take().is_some() {
            self.why.get_or_insert(why);
        } else {
            return false;
        }
        let ordered = self.checkpoint.applied.as_ref().is_some_and(ResourceVersion::is_ordered);
        self.recoverable = self.recovers && ordered && is_recoverable(why);
        self.at = None;
        true
    }

    /// Whether the API server was away a moment ago: one that has just begun denies everything until it has read who may do
    /// what, and fails in other ways that pass.
    fn begins(&mut self, now: Duration) -> bool {
        self.answered(now);
        self.began.is_some_and(|began| now.saturating_sub(began) <= self.patience.slow)
    }

    /// Where nobody has said that it had been away it does not begin again before a while: it may only have too much to do.
    fn answered(&mut self, now: Duration) {
        let lately = self.began.is_some_and(|began| now.saturating_sub(began) <= self.patience.forgive);
        if std::mem::take(&mut self.away) && !lately {
            self.began = Some(now);
        }
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

    /// Whoever begins is asked again soon, however often it has failed.
    fn rest(&mut self, soon: bool, at_least: Duration, out: &mut Vec<Effect>) {
        if soon { self.wait(1, self.patience.apart, out) } else { self.wait(self.tries, at_least, out) }
    }

    fn count_failure(&mut self, now: Duration) {
        if self.failed.is_some_and(|failed| now.saturating_sub(failed) > self.patience.forgive) {
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
        out.push(Effect::Await { tries: self.tries, any });
    }

    fn report(&mut self, state: SourceState, out: &mut Vec<Effect>) {
        if self.reported.as_ref() != Some(&state) {
            self.reported = Some(state.clone());
            out.push(Effect::Report(state));
        }
    }
}

/// What may have happened since a position was lost for this reason is in the API server's own history. After a restore
/// from a backup that is another one, and of another scope less is known than the history tells.
const fn is_recoverable(why: Why) -> bool {
    match why {
        Why::Expired | Why::Undecodable | Why::Oversize | Why::Paused | Why::Audit => true,
        Why::Rollback | Why::Scope => false,
    }
}
