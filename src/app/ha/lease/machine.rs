//! Leader election as one candidate sees it. As the other state machines it has no clock, no randomness and does no I/O: times,
//! numbers and answers are its inputs, and actions are its output.
//!
//! The rules are those of client-go. A record is judged by when *we* saw it change, never by the times that it names, so
//! clocks may differ by any amount. Whoever leads counts from the moment before a renewal was sent: nobody can have seen it
//! earlier, so it stops believing before anybody else may begin, as long as both count seconds at about the same speed.
//!
//! # Decision: a Lease of our own
//!
//! Context: `kubert` and `kube-leader-election` need other versions of kube, and compare times of the Lease with the local
//! clock.
//! Decision: As in client-go a record is judged by when it was seen to change. A renewal counts from its sending, losing the
//! Lease ends no process, and a record is ours only by its acquire time. The Lease is no fence: nothing is written because of
//! it alone.
//! Cost: About a thousand lines, and as many of tests.

use std::collections::VecDeque;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use super::Leadership;

/// Durations of the election. The defaults are those of client-go; all candidates for a Lease need the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timings {
    /// A record that has not changed for so long is nobody's.
    pub lease_duration: Duration,
    /// Renew deadline: a leader that has not renewed for this long steps down. Shorter than the lease duration.
    pub renew_deadline: Duration,
    /// From one renewal to the next.
    pub retry_period: Duration,
}

impl Default for Timings {
    fn default() -> Self {
        Self {
            lease_duration: Duration::from_secs(15),
            renew_deadline: Duration::from_secs(10),
            retry_period: Duration::from_secs(2),
        }
    }
}

/// A record that asks for longer than this is not one of ours, and holds up nobody for longer.
const LEASE_DURATION_MAX: Duration = Duration::from_secs(60);
/// Records that we wrote are known by their times of acquisition, the newest of which are remembered.
const REMEMBERED: usize = 8;

/// Contents of a Lease.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// The holder; empty if the Lease was released.
    pub holder: String,
    /// Lease duration after a renewal; none if the Lease does not say.
    pub lasts: Option<Duration>,
    /// The time at which the holder acquired it, by the holder's clock.
    pub acquired: Option<Timestamp>,
    /// The time at which the holder renewed it, by the holder's clock.
    pub renewed: Option<Timestamp>,
    /// Number of changes of the holder.
    pub transitions: u64,
}

/// A moment.
#[derive(Clone, Copy, Debug)]
pub struct Now {
    /// Since some beginning, on a clock that nobody sets.
    pub now: Duration,
    /// The wall clock; it is written to the Lease and never used for a decision.
    pub clock: Timestamp,
    /// A random number.
    pub jitter: u64,
}

/// Next action of the candidate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Wait until this time.
    Wait(Duration),
    /// Read the Lease, and give the answer to [`Machine::read`].
    Read,
    /// Create the Lease, and give the answer to [`Machine::wrote`].
    Create(Record),
    /// Write this where the Lease is still what was last read or written, and give the answer to [`Machine::wrote`].
    Write(Record),
}

/// Contents of the Lease, as it was last read or written.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Observed {
    /// It was not read yet.
    Unknown,
    /// There is no Lease.
    Absent,
    /// It is this.
    Present(Record),
}

impl Observed {
    const fn record(&self) -> Option<&Record> {
        match self {
            Self::Present(record) => Some(record),
            Self::Unknown | Self::Absent => None,
        }
    }
}

/// One candidate.
#[derive(Debug)]
pub struct Machine {
    identity: String,
    timings: Timings,
    observed: Observed,
    /// Local time at which `observed` changed last.
    changed: Duration,
    /// True if `observed` is what the API server has, as far as is known, so that an update may build on it.
    current: bool,
    /// The record with our name that was there before us: of an earlier process.
    inherited: Option<Record>,
    /// Times at which this candidate acquired the Lease.
    mine: VecDeque<Timestamp>,
    /// The moment before the last renewal was sent; nothing where we do not lead.
    renewed: Option<Duration>,
    /// The record that is being written, and the start of that write.
    writing: Option<(Record, Duration)>,
    /// Set if the outcome of a write is unknown.
    unsure: bool,
    /// No request is made before this time.
    next: Duration,
    abstains: bool,
}

impl Machine {
    /// A candidate that knows nothing yet.
    #[must_use]
    pub fn new(identity: String, timings: Timings) -> Self {
        Self {
            identity,
            timings,
            observed: Observed::Unknown,
            changed: Duration::ZERO,
            current: false,
            inherited: None,
            mine: VecDeque::new(),
            renewed: None,
            writing: None,
            unsure: false,
            next: Duration::ZERO,
            abstains: false,
        }
    }

    /// While it abstains it neither takes the Lease nor renews it, and gives it back where it has it.
    pub fn abstain(&mut self, abstains: bool, now: Duration) {
        if self.abstains == abstains {
            return;
        }
        self.abstains = abstains;
        self.next = self.next.min(now);
        if abstains {
            self.renewed = None;
        }
    }

    /// Notes that it is now.
    pub fn tick(&mut self, now: Duration) {
        if self.renewed.is_some_and(|renewed| now >= renewed + self.timings.renew_deadline) {
            self.renewed = None;
            self.current = false;
        }
    }

    /// Returns the time at which the current leader counts as gone if nothing else happens.
    #[must_use]
    pub fn deadline(&self, now: Duration) -> Option<Duration> {
        match self.renewed {
            Some(renewed) => Some(renewed + self.timings.renew_deadline),
            None => self.record().map(|record| self.changed + lasts(record, self.timings)).filter(|end| *end > now),
        }
    }

    /// Returns the role of this candidate at `now`.
    #[must_use]
    pub fn leadership(&self, now: Duration) -> Leadership {
        match &self.observed {
            Observed::Unknown => Leadership::Unknown,
            Observed::Present(record) if self.renewed.is_some() => {
                Leadership::Leads { transitions: record.transitions }
            }
            Observed::Present(record) if !self.is_mine(record) && !self.is_free(record, now) => {
                Leadership::Follows { holder: Some(record.holder.clone()) }
            }
            Observed::Present(_) | Observed::Absent => Leadership::Follows { holder: None },
        }
    }

    /// Reports whether other candidates may believe that this one holds the Lease.
    #[must_use]
    pub fn may_hold(&self) -> bool {
        let mine = self.record().is_some_and(|record| self.is_mine(record));
        self.renewed.is_some() || self.writing.is_some() || self.unsure || mine
    }

    /// Returns the next action. After an action other than a wait, its answer has to be given before the next call.
    pub fn act(&mut self, at: &Now) -> Action {
        self.tick(at.now);
        if at.now < self.next {
            return Action::Wait(self.next);
        }
        if !self.current {
            return Action::Read;
        }
        // Whatever it is, it is looked at again before the next time, but by whoever leads.
        self.current = false;
        let Some(record) = self.wish(at) else {
            self.next = at.now + self.pause(at.jitter);
            return Action::Wait(self.next);
        };
        self.writing = Some((record.clone(), at.now));
        if self.record().is_some() { Action::Write(record) } else { Action::Create(record) }
    }

    /// The Lease was read, and is this; or it was not.
    pub fn read(&mut self, at: &Now, answer: Result<Option<Record>, ()>) {
        self.tick(at.now);
        let Ok(answer) = answer else { return self.failed(at) };
        if self.observed == Observed::Unknown {
            self.inherited = answer.clone().filter(|record| record.holder == self.identity);
        }
        let observed = answer.map_or(Observed::Absent, Observed::Present);
        if self.observed != observed {
            self.changed = at.now;
        }
        if !observed.record().is_some_and(|record| self.is_mine(record)) {
            self.renewed = None;
        }
        (self.observed, self.current, self.unsure) = (observed, true, false);
        self.next = at.now;
    }

    /// Takes the outcome of a write: `done` if it succeeded, otherwise the outcome is unknown.
    pub fn wrote(&mut self, at: &Now, done: bool) {
        let Some((record, sent)) = self.writing.take() else { return };
        if !done {
            self.unsure = true;
            return self.failed(at);
        }
        self.next = sent + self.timings.retry_period;
        let released = record.holder.is_empty();
        if released {
            self.renewed = None;
        } else if self.abstains {
            // That came too late: it is given back at once.
            self.next = at.now;
        } else {
            self.renewed = Some(sent);
        }
        self.observed = Observed::Present(record);
        (self.changed, self.current, self.unsure) = (at.now, !released, false);
        self.tick(at.now);
    }

    fn failed(&mut self, at: &Now) {
        self.current = false;
        self.next = at.now + self.pause(at.jitter);
    }

    /// A quarter of the time between two renewals, to half of it. client-go waits for longer; but when the Lease is given
    /// back, somebody else is to lead within two seconds.
    fn pause(&self, jitter: u64) -> Duration {
        let quarter = self.timings.retry_period / 4;
        let span = u64::try_from(quarter.as_millis()).unwrap_or(u64::MAX).saturating_add(1);
        quarter + Duration::from_millis(jitter % span)
    }

    const fn record(&self) -> Option<&Record> {
        self.observed.record()
    }

    /// Reports whether this process wrote the record. The name alone is no proof: two processes may have the same by mistake.
    fn is_mine(&self, record: &Record) -> bool {
        record.holder == self.identity && record.acquired.is_some_and(|acquired| self.mine.contains(&acquired))
    }

    /// Reports whether the record has no holder, or an expired one.
    fn is_free(&self, record: &Record, now: Duration) -> bool {
        record.holder.is_empty() || now >= self.changed + lasts(record, self.timings)
    }

    /// Returns the record to write over the one that was just seen, if any.
    fn wish(&mut self, at: &Now) -> Option<Record> {
        let seen = self.record().cloned();
        let clock = clock(at, seen.as_ref());
        let mine = seen.as_ref().is_some_and(|record| self.is_mine(record));
        let record = seen.unwrap_or_default();
        if self.abstains {
            let released = Record {
                holder: String::new(),
                lasts: Some(Duration::from_secs(1)),
                acquired: Some(clock),
                renewed: Some(clock),
                transitions: record.transitions,
            };
            return mine.then_some(released);
        }
        let renewal = Record {
            holder: self.identity.clone(),
            lasts: Some(self.timings.lease_duration),
            acquired: record.acquired,
            renewed: Some(clock),
            transitions: record.transitions,
        };
        if mine {
            return Some(renewal);
        }
        let missing = self.record().is_none();
        let inherited = !missing && self.inherited.as_ref() == self.record();
        if !missing && !inherited && !self.is_free(&record, at.now) {
            return None;
        }
        self.mine.truncate(REMEMBERED - 1);
        self.mine.push_front(clock);
        Some(Record {
            acquired: Some(clock),
            transitions: if missing { 0 } else { record.transitions.saturating_add(1) },
            ..renewal
        })
    }
}

/// Returns the time for which a record stays valid after it was seen to change.
fn lasts(record: &Record, timings: Timings) -> Duration {
    record.lasts.unwrap_or(timings.lease_duration).min(LEASE_DURATION_MAX)
}

/// The time to write down, in the precision that a Lease has. It differs from the one that is there, so that a renewal
/// is a change, whatever the clock does.
fn clock(at: &Now, seen: Option<&Record>) -> Timestamp {
    let clock = Timestamp::from_microsecond(at.clock.as_microsecond()).unwrap_or(Timestamp::UNIX_EPOCH);
    if seen.is_some_and(|record| record.renewed == Some(clock)) {
        clock.saturating_add(SignedDuration::from_micros(1)).unwrap_or(clock)
    } else {
        clock
    }
}
