//! Leader election by a Lease (`coordination.k8s.io`), for one candidate.
//!
//! The Lease says who tries; the shared log decides who may write. So losing the Lease ends nothing: it is a state, and so is
//! an API server that does not answer.

mod client;
mod log;
pub mod machine;
mod name;
#[cfg(test)]
mod tests;

use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use jiff::SignedDuration;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use crate::core::runtime::{self, watch};
use crate::watch::cluster::Api;
use client::{Answer, LeaseClient};
use log::Log;
use machine::{Action, Machine, Now, Timings};
pub use name::{FORMATS, LeaseName};

/// Time limit for releasing the Lease at the end. A Lease that is not released expires by itself.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(2);

/// The group and the plural of leases.
pub const RESOURCE: (&str, &str) = ("coordination.k8s.io", "leases");
/// Verbs that a candidate needs on its Lease. RBAC cannot grant `create` for a single name.
pub const VERBS: [&str; 2] = ["get", "update"];

/// The role of this candidate at the moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Leadership {
    /// The Lease was not read yet.
    #[default]
    Unknown,
    /// It does not lead.
    Follows {
        /// Identity of the leader; none if no leader is known.
        holder: Option<String>,
    },
    /// It leads.
    Leads {
        /// Number of times the Lease changed its holder. It grows if another candidate led in between.
        transitions: u64,
    },
}

impl Leadership {
    /// Reports whether this candidate leads.
    #[must_use]
    pub const fn leads(&self) -> bool {
        matches!(self, Self::Leads { .. })
    }
}

/// A candidate. It asks for the Lease while [`Elector::run`] is polled.
#[derive(Debug)]
pub struct Elector {
    client: LeaseClient,
    candidate: Candidate,
    abstains: watch::Receiver<bool>,
    /// Keeps the channel open after every handle is dropped.
    _handle: ElectorHandle,
}

/// Controls a candidate. Clones are handles of the same candidate.
#[derive(Clone, Debug)]
pub struct ElectorHandle {
    abstains: Arc<watch::Sender<bool>>,
    problem: watch::Receiver<Option<String>>,
}

impl ElectorHandle {
    /// While it abstains it neither takes the Lease nor renews it. It does not lead from then on, and gives the Lease back
    /// where it has it, so that somebody who can may lead.
    pub fn abstain(&self, abstains: bool) {
        self.abstains.send_if_modified(|now| std::mem::replace(now, abstains) != abstains);
    }

    /// The reason, for people, why it does not request the Lease; none while all is well.
    #[must_use]
    pub fn problem(&self) -> Option<String> {
        self.problem.borrow().clone()
    }
}

/// State of a candidate, and the channels that it publishes it on.
#[derive(Debug)]
struct Candidate {
    machine: Machine,
    leadership: watch::Sender<Leadership>,
    log: Log,
    began: Instant,
    skew: SignedDuration,
}

impl Elector {
    /// A candidate with this name. The receiver has what it is at each moment.
    #[must_use]
    pub fn new(api: Api, lease: LeaseName, identity: String) -> (Self, watch::Receiver<Leadership>, ElectorHandle) {
        let timings = Timings::default();
        let (leadership, stands) = watch::channel(Leadership::Unknown);
        let (abstain, abstains) = watch::channel(false);
        let (log, problem) = Log::new(lease.clone(), identity.clone());
        let handle = ElectorHandle { abstains: Arc::new(abstain), problem };
        let machine = Machine::new(identity, timings);
        let candidate = Candidate { machine, leadership, log, began: Instant::now(), skew: SignedDuration::ZERO };
        // Two tries fit before whoever leads has to stop.
        let client = LeaseClient::new(api, lease, timings.renew_deadline / 2);
        (Self { client, candidate, abstains, _handle: handle.clone() }, stands, handle)
    }

    /// For simulations: the wall clock of this machine differs by this much from that of others.
    #[doc(hidden)]
    #[must_use]
    pub fn skewed(mut self, skew: SignedDuration) -> Self {
        self.candidate.skew = skew;
        self
    }

    /// Runs until `stop`, and gives the Lease back then, where it has it, within two seconds.
    ///
    /// # Errors
    /// None: whatever becomes of the Lease is a state.
    pub async fn run(self, stop: CancellationToken) -> Result<(), Infallible> {
        let Self { mut client, mut candidate, mut abstains, _handle } = self;
        candidate.abstain(*abstains.borrow_and_update());
        let mut end: Option<Instant> = None;
        loop {
            candidate.say();
            if end.is_some() && !candidate.machine.may_hold() {
                return Ok(());
            }
            let act = candidate.machine.act(&candidate.moment());
            let waits = matches!(act, Action::Wait(_));
            let mut doing = pin!(client.carry_out(act, candidate.began));
            let answer = loop {
                let alarm = candidate.deadline().into_iter().chain(end).min();
                tokio::select! {
                    biased;
                    () = stop.cancelled(), if end.is_none() => {
                        end = Some(Instant::now() + RELEASE_TIMEOUT);
                        candidate.abstain(true);
                    }
                    Ok(()) = abstains.changed(), if end.is_none() => candidate.abstain(*abstains.borrow_and_update()),
                    answer = &mut doing => break answer,
                    () = until(alarm) => candidate.machine.tick(candidate.now()),
                }
                candidate.say();
                if end.is_some_and(|end| Instant::now() >= end) {
                    candidate.log.kept();
                    return Ok(());
                }
                if waits {
                    break Answer::Nothing;
                }
            };
            candidate.take(answer);
        }
    }
}

async fn until(alarm: Option<Instant>) {
    match alarm {
        Some(alarm) => sleep_until(alarm).await,
        None => std::future::pending().await,
    }
}

impl Candidate {
    fn now(&self) -> Duration {
        self.began.elapsed()
    }

    fn moment(&self) -> Now {
        let clock = runtime::now();
        let clock = clock.saturating_add(self.skew).unwrap_or(clock);
        Now { now: self.now(), clock, jitter: runtime::random() }
    }

    fn deadline(&self) -> Option<Instant> {
        self.machine.deadline(self.now()).map(|deadline| self.began + deadline)
    }

    fn abstain(&mut self, abstains: bool) {
        let now = self.now();
        self.machine.abstain(abstains, now);
    }

    /// Lets everybody know who leads, where that is news.
    fn say(&mut self) {
        let leadership = self.machine.leadership(self.now());
        if *self.leadership.borrow() != leadership {
            self.log.stands(&leadership);
            self.leadership.send_replace(leadership);
        }
    }

    fn take(&mut self, answer: Answer) {
        let at = self.moment();
        match answer {
            Answer::Nothing => {}
            Answer::Read { record, version } => {
                self.log.read(version);
                self.machine.read(&at, Ok(record));
            }
            Answer::Wrote => {
                self.log.wrote();
                self.machine.wrote(&at, true);
            }
            Answer::Failed(failed) => {
                let reading = failed.reading;
                self.log.failed(failed);
                if reading {
                    self.machine.read(&at, Err(()));
                } else {
                    self.machine.wrote(&at, false);
                }
            }
        }
    }
}
