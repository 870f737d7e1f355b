//! Log lines about leader election, each event once.

use std::time::Duration;

use tokio::time::Instant;

use super::client::Failed;
use super::{Leadership, LeaseName};
use crate::core::runtime::watch;
use crate::watch::cluster::Failure;

/// Interval at which a lasting problem is logged again.
const REMINDER_INTERVAL: Duration = Duration::from_secs(180);
/// Requests that fail in a row before that is a problem: one does it every day.
const TRIES: u32 = 2;

/// Writer of the lines, which remembers what it has logged.
#[derive(Debug)]
pub(super) struct Log {
    lease: LeaseName,
    identity: String,
    led: bool,
    /// Reads and writes that failed in a row.
    unread: u32,
    unwritten: u32,
    /// A write that was refused, and the version that it was for. Where another one is read then, somebody else was first.
    refused: Option<(String, Option<String>)>,
    until: Until,
    problem: watch::Sender<Option<String>>,
    logged: Option<(String, Instant)>,
}

/// Event that resolves a problem.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Until {
    /// The Lease can be read.
    Read,
    /// Some candidate leads.
    Led,
    /// This candidate has written the Lease.
    Written,
}

impl Log {
    pub(super) fn new(lease: LeaseName, identity: String) -> (Self, watch::Receiver<Option<String>>) {
        let (problem, problems) = watch::channel(None);
        let log = Self {
            lease,
            identity,
            led: false,
            unread: 0,
            unwritten: 0,
            refused: None,
            until: Until::Read,
            problem,
            logged: None,
        };
        (log, problems)
    }

    pub(super) fn stands(&mut self, leadership: &Leadership) {
        let (lease, identity) = (&self.lease, &self.identity);
        let led = std::mem::replace(&mut self.led, matches!(leadership, Leadership::Leads { .. }));
        match leadership {
            Leadership::Unknown => return,
            Leadership::Leads { transitions } => {
                tracing::info!(identity, transitions, "this decklog leads by the Lease {lease}");
            }
            Leadership::Follows { holder: Some(holder) } if holder == identity => tracing::warn!(
                "another decklog is called {identity:?} as this one is, and leads by the Lease {lease}; give each an [ha] identity of its own"
            ),
            Leadership::Follows { holder: Some(holder) } => {
                tracing::info!(identity, "{holder} leads by the Lease {lease}, and this decklog follows");
            }
            Leadership::Follows { holder: None } => {
                if led {
                    tracing::warn!(identity, "this decklog does not lead by the Lease {lease} any more");
                } else {
                    tracing::info!(identity, "nobody leads by the Lease {lease}, as far as this decklog knows");
                }
                return;
            }
        }
        self.unwritten = 0;
        self.is_disproved(Until::Led);
    }

    /// The Lease may be ours still, when this ends.
    pub(super) fn kept(&self) {
        tracing::warn!("the Lease {} could not be given back in time; it expires by itself", self.lease);
    }

    pub(super) fn read(&mut self, version: Option<String>) {
        self.unread = 0;
        match self.refused.take() {
            Some((text, upon)) if upon == version => {
                self.is_problem(format!("the Lease {} cannot be written: {text}", self.lease), Until::Led);
            }
            Some(_) | None => self.is_disproved(Until::Read),
        }
    }

    pub(super) fn wrote(&mut self) {
        (self.unread, self.unwritten) = (0, 0);
        self.is_disproved(Until::Written);
    }

    pub(super) fn failed(&mut self, failed: Failed) {
        let Failed { reading, making, version, why } = failed;
        let (lease, namespace) = (&self.lease, &self.lease.namespace);
        let failures = if reading { &mut self.unread } else { &mut self.unwritten };
        *failures += 1;
        let failures = *failures;
        let (verb, until) = match (reading, making) {
            (true, _) => ("read", Until::Read),
            (_, true) => ("created", Until::Written),
            _ => ("written", Until::Written),
        };
        if let Failure::Forbidden(text) = &why {
            let text = format!(
                "the Lease {lease} may not be {verb}: {text}; `decklog rbac | kubectl apply -f -` and a binding grant it"
            );
            self.is_problem(text, until);
        } else if making && why == Failure::NotFound {
            let text = format!(
                "the Lease {lease} cannot be created, because there is no namespace {namespace}: `kubectl create namespace {namespace}` makes it"
            );
            self.is_problem(text, Until::Led);
        } else if let (Failure::Refused(text), false) = (&why, reading) {
            self.refused = Some((text.clone(), version));
        } else if failures >= TRIES {
            let text = format!("the Lease {lease} cannot be {verb}: {why}");
            self.is_problem(text, until.min(Until::Led));
        }
    }

    fn is_problem(&mut self, text: String, until: Until) {
        self.until = self.until.max(until);
        let now = Instant::now();
        let is_news = |(said, at): &(String, Instant)| *said != text || now.duration_since(*at) >= REMINDER_INTERVAL;
        if self.logged.as_ref().is_none_or(is_news) {
            tracing::warn!("{text}");
            self.logged = Some((text.clone(), now));
        }
        if self.problem.borrow().as_ref() != Some(&text) {
            self.problem.send_replace(Some(text));
        }
    }

    fn is_disproved(&mut self, by: Until) {
        if by < self.until || self.problem.borrow().is_none() {
            return;
        }
        self.until = Until::Read;
        self.logged = None;
        self.problem.send_replace(None);
        tracing::info!("nothing keeps this decklog from the Lease {} any more", self.lease);
    }
}
