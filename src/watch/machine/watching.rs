//! Watches: what they bring, and how they end.

use super::{
    Anomaly, Duration, Effect, End, Failure, FailureHistory, Machine, Phase, Position, Relist, ResourceVersion, SEEN,
    SourceState,
};

impl Machine {
    /// A watch is open.
    pub(super) fn opened(&mut self, now: Duration, out: &mut Vec<Effect>) {
        self.phase = Phase::Watching { since: now, progress: false };
        self.failures.not_found = None;
        self.failures.refused = 0;
        // While the API server cannot read an object of the resource it opens no watch.
        self.failures.unreadable = None;
        self.reachability.not_called();
        // After watches that came to nothing this one has to show first that it is another.
        if self.failures.short == 0 && self.failures.cut <= 1 {
            self.report(SourceState::Watching, out);
        }
    }

    /// Handles [`Input::Changed`] as [`Machine::step`] does.
    pub(in crate::watch) fn changed(&mut self, version: &ResourceVersion) -> Vec<Effect> {
        let mut out = Vec::new();
        if self.newest.as_ref() == Some(version) {
            if matches!(self.phase, Phase::Watching { progress: false, .. }) {
                out.push(Effect::Count(Anomaly::Replay));
            }
            return out;
        }
        if self.precedes(version) {
            out.push(Effect::Count(Anomaly::Disorder));
            return out;
        }
        // Without an order a server can repeat what it has for ever, and it looks new each time.
        let news = version.is_ordered() || self.is_unseen(version);
        self.advance(version);
        if news {
            self.well(&mut out);
        }
        out
    }

    /// Moves past a change: more of its version may come, so the position stays on the version before it.
    fn advance(&mut self, version: &ResourceVersion) {
        if let (Position::Held { resume, .. }, Some(newest)) = (&mut self.position, &mut self.newest) {
            // The text of the position before is written over: this is done for every change.
            std::mem::swap(resume, newest);
            newest.clone_from(version);
        }
    }

    /// Moves to a version up to which everything has come.
    fn bookmarked(&mut self, version: &ResourceVersion) {
        if let Position::Held { resume, .. } = &mut self.position {
            resume.clone_from(version);
            self.newest = Some(version.clone());
        }
    }

    pub(super) fn is_unseen(&mut self, version: &ResourceVersion) -> bool {
        if self.seen.len() >= SEEN {
            self.seen.clear();
        }
        self.seen.insert(version.to_string())
    }

    pub(super) fn bookmark(&mut self, version: ResourceVersion, out: &mut Vec<Effect>) {
        if self.precedes(&version) {
            out.push(Effect::Count(Anomaly::Disorder));
            return;
        }
        let news = self.newest.as_ref() != Some(&version) && (version.is_ordered() || self.is_unseen(&version));
        (self.bookmarks, self.lacks_bookmarks) = (true, false);
        self.mark = None;
        self.bookmarked(&version);
        // A server that only repeats what we know has shown nothing.
        if news {
            self.well(out);
        }
        out.push(Effect::Bookmark(version));
    }

    /// The watch brings news: whatever was wrong is over.
    pub(super) fn well(&mut self, out: &mut Vec<Effect>) {
        if let Phase::Watching { progress, .. } = &mut self.phase {
            *progress = true;
            self.report(SourceState::Watching, out);
        }
        if let Some(listed) = &mut self.listed {
            listed.is_newest = false;
        }
        self.paged = true;
        self.failures = FailureHistory::default();
        self.quiet.news();
        self.reachability.well();
    }

    /// The API server ended a watch when it was asked to, and the watch has brought nothing. What the API server had before
    /// the watch was opened, it had that long to send; and because the end came in its place in the stream, nothing was
    /// on its way. When a second watch says the same, nothing happened up to there: the position moves, as a bookmark
    /// would have moved it.
    pub(super) fn quiet(&mut self, lived: Duration, out: &mut Vec<Effect>) {
        let newest = self.newest.clone();
        let is_newer = |mark: &ResourceVersion| newest.as_ref().is_some_and(|newest| newest.is_before(mark));
        let Some(mark) = self.mark.take().filter(is_newer) else { return };
        (self.bookmarks, self.lacks_bookmarks) = (false, true);
        if let Some(mark) = self.quiet.over(mark, lived, self.thresholds.quiet).filter(is_newer) {
            self.bookmarked(&mark);
            out.push(Effect::Bookmark(mark));
        }
    }

    /// The position is compacted, and is as good as this version, from which a watch is open.
    pub(super) fn overlapped(&mut self, now: Duration, version: ResourceVersion, out: &mut Vec<Effect>) {
        let is_newer = self.newest.as_ref().is_some_and(|newest| newest.is_before(&version));
        let Position::Held { resume, .. } = &mut self.position else { return self.failed(now, Failure::Expired, out) };
        if is_newer {
            resume.clone_from(&version);
            self.newest = Some(version.clone());
            out.push(Effect::Bookmark(version));
        }
        let from = resume.clone();
        self.mark = None;
        self.quiet.news();
        self.ask(now, Effect::Watch(from), out);
        self.phase = Phase::Opening;
    }

    pub(super) fn ended(&mut self, now: Duration, end: End, out: &mut Vec<Effect>) {
        let (mut news, mut long, mut stable, mut lived) = (false, false, false, Duration::ZERO);
        if let Phase::Watching { since, progress } = self.phase {
            lived = now.saturating_sub(since);
            news = progress;
            long = lived >= self.thresholds.short_watch;
            stable = progress || lived >= self.thresholds.stable;
        }
        // Whoever ended it may be shut down or replaced now, and come back restored. A watch from a version that it does
        // not have would be accepted, and silent.
        self.look_first();
        if stable || end == End::TimedOut {
            self.failures.cut = 0;
            self.reachability.stable();
        }
        match end {
            End::Disconnected(_) if !news => self.quiet.cut(now, lived),
            End::Disconnected(_) | End::Closed | End::TimedOut | End::Idle => self.quiet.not_cut(),
        }
        match end {
            End::Closed | End::TimedOut if news || long => {
                self.failures.short = 0;
                if long {
                    // On a quiet resource nothing else says that the errors before are over.
                    self.failures.server = None;
                    self.failures.relist = Relist::No;
                }
                if end == End::TimedOut && !news {
                    self.quiet(lived, out);
                }
                self.proceed(now, out);
            }
            End::Closed | End::TimedOut => {
                self.failures.short += 1;
                let counts = self.failures.relist.watched_fruitlessly();
                // Some servers answer a position that is too old with an empty watch instead of an error.
                if !counts && self.failures.short >= self.thresholds.short_watches {
                    self.failures.relist.ask();
                }
                self.retry(now, Duration::ZERO, Some("the API server closes every watch at once"), out);
            }
            End::Disconnected(_) | End::Idle if stable => self.wait(1, Duration::ZERO, out),
            End::Disconnected(_) | End::Idle => {
                let text = match end {
                    End::Disconnected(text) => text,
                    End::Closed | End::TimedOut | End::Idle => "the API server sends nothing".to_owned(),
                };
                self.failures.cut += 1;
                if self.failures.cut == 1 && long {
                    return self.wait(1, Duration::ZERO, out);
                }
                self.count_failure(now);
                if self.failures.cut > 1 {
                    let text = format!("every watch breaks off; look at what is between us and the API server: {text}");
                    self.report(SourceState::Degraded(text), out);
                }
                self.wait_for(false, out);
            }
        }
    }
}
