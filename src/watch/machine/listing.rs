//! Lists and recoveries: their pages, their end, and what makes them begin again.

use super::{Check, Duration, Effect, Failure, Listed, Machine, Phase, Position, Remedy, ResourceVersion, Why};

impl Machine {
    /// The API server consistently has `version`: below what was applied, it has gone back in time.
    pub(super) fn latest(&mut self, now: Duration, version: &ResourceVersion, out: &mut Vec<Effect>) {
        self.checked(Check::Nothing);
        if self.is_past(version) {
            self.failures.ahead = None;
            self.desync(Why::Rollback, out);
            let text = "the API server has gone back in time, as after a restore from a backup";
            return self.retry(now, Duration::ZERO, Some(text), out);
        }
        // A list that says otherwise is a stale one, and decides nothing.
        if let Position::Lost(loss) = &mut self.position {
            loss.older_list = false;
        }
        let Some(since) = self.failures.ahead else { return self.proceed(now, out) };
        // It was slow, not restored. One that stays slow for this long is watched all the same.
        if now.saturating_sub(since) <= self.thresholds.ahead {
            self.look_first();
        }
        let text = "the API server does not have the version up to which the journal goes, yet";
        self.retry(now, Duration::ZERO, Some(text), out);
    }

    pub(super) fn page(
        &mut self,
        now: Duration,
        version: ResourceVersion,
        next: Option<String>,
        out: &mut Vec<Effect>,
    ) {
        self.failures.not_found = None;
        let back = self.precedes(&version);
        let (Phase::Listing { version: first, paged }, Position::Lost(loss)) = (&self.phase, &mut self.position) else {
            return;
        };
        let paged = *paged;
        if matches!(&loss.remedy, Remedy::ListAt(at) if *at != version) {
            // It does not know such lists, whatever it said before.
            loss.remedy = Remedy::List;
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
            None if loss.why == Some(Why::Rollback) || self.unrelated => {}
            None => match (back, loss.older_list) {
                (true, false) => {
                    loss.older_list = true;
                    let text = format!(
                        "the API server's list is of version {version}, older than what the journal has; asking again"
                    );
                    return self.failed(now, Failure::Unreachable(text), out);
                }
                // What it is has to be known before the list begins that declares it, because it changes how that one is
                // read.
                (true, true) => return self.ask_latest(now, out),
                (false, _) => loss.older_list = false,
            },
        }
        match next {
            Some(token) => {
                self.phase = Phase::Listing { version: Some(version), paged };
                self.ask(now, Effect::List { token: Some(token), paged, at: None }, out);
            }
            None => {
                out.push(Effect::Commit { version: version.clone(), why: loss.why, confirmed: loss.confirmed });
                self.phase = Phase::Committing(version);
            }
        }
    }

    pub(super) fn committed(&mut self, now: Duration, out: &mut Vec<Effect>) {
        let Phase::Committing(version) = &self.phase else { return };
        let version = version.clone();
        if let Position::Lost(loss) = &mut self.position
            && let Remedy::ListAt(_) = loss.remedy
        {
            // What follows the gap is there to be recovered.
            (loss.remedy, loss.confirmed) = (Remedy::Recover, false);
            self.newest = Some(version);
            return self.proceed(now, out);
        }
        self.settled(now, version, out);
    }

    /// Handles that everything up to this version is in the journal, by a list or by recovery.
    pub(super) fn settled(&mut self, now: Duration, version: ResourceVersion, out: &mut Vec<Effect>) {
        self.newest = Some(version.clone());
        self.position = Position::at(version);
        (self.failures.undecodable, self.failures.given_up) = (0, 0);
        self.listed = Some(Listed { at: now, is_newest: true });
        self.reachability.well();
        self.mark = None;
        self.quiet.news();
        self.proceed(now, out);
    }

    /// Requests the next list in one piece if this one does not come in pages.
    pub(super) const fn broken_list(&mut self) {
        let Position::Lost(loss) = &mut self.position else { return };
        loss.broken_lists += 1;
        if loss.broken_lists >= 2 {
            self.paged = false;
        }
    }

    /// Gives a list of an exact version up: the changes since then may still be recovered.
    pub(super) fn recover_instead(&mut self) {
        if let Position::Lost(loss) = &mut self.position
            && let Remedy::ListAt(_) = loss.remedy
        {
            loss.remedy = Remedy::Recover;
        }
    }

    /// Gives the position up for a list, because watches from it bring nothing.
    pub(super) fn list_instead(&mut self, out: &mut Vec<Effect>) {
        self.failures.relist.listed();
        self.desync(Why::Expired, out);
    }
}
