//! What the machine does where a request or a watch fails.

use std::time::Duration;

use super::{Anomaly, Effect, Failure, LIST_DELAY_MAX, Machine, Phase, SourceState, UNAUTHORIZED, Unreadable, Why};

impl Machine {
    /// Reacts to a request or a watch that failed.
    pub(super) fn failed(&mut self, now: Duration, failure: Failure, out: &mut Vec<Effect>) {
        let listing = matches!(self.phase, Phase::Listing { .. });
        // Only an answer to a watch says something about what comes after the position.
        let watching = matches!(self.phase, Phase::Opening | Phase::Watching { .. });
        match failure {
            Failure::Expired => self.expired(now, listing, out),
            Failure::Ahead => {
                self.failures.ahead.get_or_insert(now);
                self.look_first();
                if self.phase == Phase::Asking {
                    self.retry(now, Duration::ZERO, Some("the API server does not say which version it has"), out);
                } else {
                    self.ask_latest(now, out);
                }
            }
            Failure::Busy(Some(after)) => self.retry(now, after, Some("the API server is busy"), out),
            // It may be a proxy that says so, for an API server that is away.
            Failure::Busy(None) => {
                self.reachability.is_away();
                self.note(now, Some("the API server is busy"), out);
                self.wait_for(false, out);
            }
            Failure::Unauthorized => {
                out.push(Effect::Refresh);
                self.blocked(now, Duration::ZERO, UNAUTHORIZED.to_owned(), out);
            }
            Failure::Forbidden(text) => {
                self.blocked(now, self.thresholds.slow, text, out);
            }
            Failure::NotFound => self.not_found(now, out),
            Failure::Refused(text) => {
                self.failures.refused += 1;
                self.count_fruitless(watching);
                self.relist(!listing && self.failures.refused >= 3);
                self.blocked(now, self.thresholds.slow, text, out);
            }
            Failure::Server(text) => {
                let since = *self.failures.server.get_or_insert(now);
                self.count_fruitless(watching);
                self.relist(!listing && now.saturating_sub(since) > self.thresholds.server_errors);
                self.retry(now, Duration::ZERO, Some(&text), out);
            }
            Failure::Unreadable(unreadable) => self.unreadable(now, &unreadable, out),
            Failure::Tls(text) => {
                out.push(Effect::Refresh);
                self.look_first();
                self.blocked(now, Duration::ZERO, text, out);
            }
            Failure::Away(text) => {
                self.look_first();
                let calls = self.reachability.not_reached();
                self.note(now, Some(&text), out);
                self.wait_for(calls, out);
            }
            Failure::Unreachable(text) => {
                self.look_first();
                self.retry(now, Duration::ZERO, Some(&text), out);
            }
            Failure::Undecodable(text) => {
                self.failures.undecodable += 1;
                if watching && self.failures.undecodable >= self.thresholds.undecodable {
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

    /// The API server has forgotten the version that was asked for.
    fn expired(&mut self, now: Duration, listing: bool, out: &mut Vec<Effect>) {
        if listing {
            // The token that comes with this error would mix two snapshots, so the list begins again.
            self.broken_list();
            self.recover_instead();
            return self.retry(now, Duration::ZERO, Some("the list took longer than the API server remembers"), out);
        }
        let again = self.listed.filter(|list| now.saturating_sub(list.at) <= self.thresholds.stable);
        if again.is_some_and(|list| list.is_newest) {
            self.paged = false;
        }
        self.desync(Why::Expired, out);
        if again.is_some() {
            self.retry(now, Duration::ZERO, None, out);
        } else {
            // What happens until there is a list may be missing.
            self.proceed(now, out);
        }
    }

    /// The API server cannot read an object, so that no watch of the resource begins: what became of the other objects is read from
    /// etcd's history, now and again.
    fn unreadable(&mut self, now: Duration, unreadable: &Unreadable, out: &mut Vec<Effect>) {
        self.report(SourceState::Degraded(unreadable.to_string()), out);
        let newest = self.failures.unreadable;
        let is_due = newest.is_none_or(|newest| now.saturating_sub(newest) >= self.thresholds.unreadable);
        if self.position().is_some() && is_due {
            self.failures.unreadable = Some(now);
            self.desync(Why::Unreadable, out);
            return self.proceed(now, out);
        }
        // The API server wants to be asked less and less often, and etcd forgets.
        let due = newest.map_or(self.thresholds.unreadable, |newest| newest + self.thresholds.unreadable);
        let rest = due.saturating_sub(now).max(self.thresholds.apart);
        self.wait(1, unreadable.after.map_or(rest, |after| after.min(rest)), out);
    }

    /// The API server does not serve the resource.
    fn not_found(&mut self, now: Duration, out: &mut Vec<Effect>) {
        let since = *self.failures.not_found.get_or_insert(now);
        if now.saturating_sub(since) > self.thresholds.not_found {
            self.phase = Phase::Confirming;
            self.ask(now, Effect::Confirm, out);
        } else {
            let text = "the API server does not serve this resource at the moment (404)".to_owned();
            self.blocked(now, Duration::ZERO, text, out);
        }
    }

    /// A list that does not end, or that there is no room for, is begun again after a wait that grows.
    pub(super) fn list_given_up(&mut self, now: Duration, at_least: Duration, text: String, out: &mut Vec<Effect>) {
        self.recover_instead();
        out.push(Effect::Count(Anomaly::ListGivenUp));
        self.count_failure(now);
        self.failures.given_up = self.failures.given_up.saturating_add(1);
        self.report(SourceState::Degraded(text), out);
        self.wait(self.tries.max(self.failures.given_up), at_least, out);
    }

    /// There is no room for the list.
    pub(super) fn no_room(&mut self, now: Duration, text: String, out: &mut Vec<Effect>) {
        // It takes the disk no more than half of the time, and ever less.
        let took = now.saturating_sub(self.began).max(self.thresholds.slow);
        let grown = took.saturating_mul(1 << self.failures.given_up.min(8)).min(LIST_DELAY_MAX);
        self.list_given_up(now, grown, text, out);
    }
}
