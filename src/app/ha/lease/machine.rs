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

use super::Standing;

/// Durations of the election. The defaults are those of client-go; all candidates for a Lease need the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Times {
    /// A record that has not changed for so long is nobody's.
    pub lease: Duration,
    /// Renew deadline: a leader that has not renewed for this long steps down. Shorter than the lease duration.
    pub renew: Duration,
    /// From one renewal to the next.
    pub retry: Duration,
}

impl Default for Times {
    fn default() -> Self {
        Self { lease: Duration::from_secs(15), renew: Duration::from_secs(10), retry: Duration::from_secs(2) }
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
pub struct Moment {
    /// Since some beginning, on a clock that nobody sets.
    pub now: Duration,
    /// The wall clock; it is written to the Lease and never used for a decision.
    pub clock: Timestamp,
    /// A random number.
    pub dice: u64,
}

/// Next action of the candidate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Act {
    /// Wait until this time.
    Wait(Duration),
    /// Read the Lease, and give the answer to [`Machine::read`].
    Read,
    /// Create the Lease, and give the answer to [`Machine::wrote`].
    Create(Record),
    /// Write this where the Lease is still what was last read or written, and give the answer to [`Machine::wrote`].
    Write(Record),
}

/// One candidate.
#[derive(Debug)]
pub struct Machine {
    identity: String,
    times: Times,
    /// The record that was last read or written: none before the first answer, `Some(None)` if there is no Lease.
    seen: Option<Option<Record>>,
    /// Local time at which `seen` changed last.
    changed: Duration,
    /// True if `seen` is what the API server has, as far as is known, so that an update may build on it.
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
    pub fn new(identity: String, times: Times) -> Self {
        Self {
            identity,
            times,
            seen: None,
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
        if self.renewed.is_some_and(|renewed| now >= renewed + self.times.renew) {
            self.renewed = None;
            self.current = false;
        }
    }

    /// Returns the time at which the current leader counts as gone if nothing else happens.
    #[must_use]
    pub fn deadline(&self, now: Duration) -> Option<Duration> {
        match self.renewed {
            Some(renewed) => Some(renewed + self.times.renew),
            None => self.record().map(|record| self.changed + lasts(record, self.times)).filter(|end| *end > now),
        }
    }

    /// Returns the role of this candidate at `now`.
    #[must_use]
    pub fn standing(&self, now: Duration) -> Standing {
        let Some(seen) = &self.seen else { return Standing::Unknown };
        match seen {
            Some(record) if self.renewed.is_some() => Standing::Leads { transitions: record.transitions },
            Some(record) if !self.is_mine(record) && !self.is_free(record, now) => {
                Standing::Follows { holder: Some(record.holder.clone()) }
            }
            Some(_) | None => Standing::Follows { holder: None },
        }
    }

    /// Reports whether other candidates may believe that this one holds the Lease.
    #[must_use]
    pub fn may_hold(&self) -> bool {
        let mine = self.record().is_some_and(|record| self.is_mine(record));
        self.renewed.is_some() || self.writing.is_some() || self.unsure || mine
    }

    /// Returns the next action. After an action other than a wait, its answer has to be given before the next call.
    pub fn act(&mut self, at: &Moment) -> Act {
        self.tick(at.now);
        if at.now < self.next {
            return Act::Wait(self.next);
        }
        if !self.current {
            return Act::Read;
        }
        // Whatever it is, it is looked at again before the next time, but by whoever leads.
        self.current = false;
        let Some(record) = self.wish(at) else {
            self.next = at.now + self.pause(at.dice);
            return Act::Wait(self.next);
        };
        self.writing = Some((record.clone(), at.now));
        if self.record().is_some() { Act::Write(record) } else { Act::Create(record) }
    }

    /// The Lease was read, and is this; or it was not.
    pub fn read(&mut self, at: &Moment, answer: Result<Option<Record>, ()>) {
        self.tick(at.now);
        let Ok(answer) = answer else { return self.failed(at) };
        if self.seen.is_none() {
            self.inherited = answer.clone().filter(|record| record.holder == self.identity);
        }
        if self.seen.as_ref() != Some(&answer) {
            self.changed = at.now;
        }
        if !answer.as_ref().is_some_and(|record| self.is_mine(record)) {
            self.renewed = None;
        }
        (self.seen, self.current, self.unsure) = (Some(answer), true, false);
        self.next = at.now;
    }

    /// Takes the outcome of a write: `done` if it succeeded, otherwise the outcome is unknown.
    pub fn wrote(&mut self, at: &Moment, done: bool) {
        let Some((record, sent)) = self.writing.take() else { return };
        if !done {
            self.unsure = true;
            return self.failed(at);
        }
        self.next = sent + self.times.retry;
        let released = record.holder.is_empty();
        if released {
            self.renewed = None;
        } else if self.abstains {
            // That came too late: it is given back at once.
            self.next = at.now;
        } else {
            self.renewed = Some(sent);
        }
        (self.seen, self.changed, self.current, self.unsure) = (Some(Some(record)), at.now, !released, false);
        self.tick(at.now);
    }

    fn failed(&mut self, at: &Moment) {
        self.current = false;
        self.next = at.now + self.pause(at.dice);
    }

    /// A quarter of the time between two renewals, to half of it. client-go waits for longer; but when the Lease is given
    /// back, somebody else is to lead within two seconds.
    fn pause(&self, dice: u64) -> Duration {
        let quarter = self.times.retry / 4;
        let span = u64::try_from(quarter.as_millis()).unwrap_or(u64::MAX).saturating_add(1);
        quarter + Duration::from_millis(dice % span)
    }

    fn record(&self) -> Option<&Record> {
        self.seen.as_ref()?.as_ref()
    }

    /// Reports whether this process wrote the record. The name alone is no proof: two processes may have the same by mistake.
    fn is_mine(&self, record: &Record) -> bool {
        record.holder == self.identity && record.acquired.is_some_and(|acquired| self.mine.contains(&acquired))
    }

    /// Reports whether the record has no holder, or an expired one.
    fn is_free(&self, record: &Record, now: Duration) -> bool {
        record.holder.is_empty() || now >= self.changed + lasts(record, self.times)
    }

    /// Returns the record to write over the one that was just seen, if any.
    fn wish(&mut self, at: &Moment) -> Option<Record> {
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
            lasts: Some(self.times.lease),
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
fn lasts(record: &Record, times: Times) -> Duration {
    record.lasts.unwrap_or(times.lease).min(LEASE_DURATION_MAX)
}

/// The time to write down, in the precision that a Lease has. It differs from the one that is there, so that a renewal
/// is a change, whatever the clock does.
fn clock(at: &Moment, seen: Option<&Record>) -> Timestamp {
    let clock = Timestamp::from_microsecond(at.clock.as_microsecond()).unwrap_or(Timestamp::UNIX_EPOCH);
    if seen.is_some_and(|record| record.renewed == Some(clock)) {
        clock.saturating_add(SignedDuration::from_micros(1)).unwrap_or(clock)
    } else {
        clock
    }
}
