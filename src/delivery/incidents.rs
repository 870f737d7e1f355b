//! Incidents of a sink that notifies: which entries are one, and when it is told.
//!
//! Everything follows from the entries and their times. An entry begins an incident where none of the same key came in the `group`
//! before it. Time is cut into windows of `wait`; an incident is of the window of its first entry, and has that seq. When a window
//! is over, its incidents are messages: so many each by itself, those of the first rules before others, and the rest in a digest.
//! After a start the log is read again from so far before the cursor that it comes to the same.
//!
//! A window is over at the first entry of a later one, or a second after its end where no entry comes.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;

use crate::core::model::Seq;
use crate::sink::notify::{Incident, NAMED, Notify, Selected};

/// Time that an entry may take from its stamp to the log.
const LATE_MAX: Duration = Duration::from_secs(1);

/// Incidents of a window that are remembered; of more, only their number.
const MOST: usize = 10_000;

/// Keys that are remembered; beyond them the older half is forgotten, and may be told again.
const MOST_KEYS: usize = 200_000;

/// An incident of the window, and the rule of its entries.
#[derive(Clone, Debug)]
pub(super) struct Begun {
    rule: usize,
    pub(super) incident: Incident,
    /// The entry, where it is a GAP: one of this sink alone is not in the log.
    pub(super) line: Option<Bytes>,
}

/// A window with incidents.
#[derive(Debug)]
struct Window {
    begun: Vec<Begun>,
    /// Places of them by their keys.
    places: HashMap<String, usize>,
    /// Number of those that are not remembered, by rule.
    more: BTreeMap<usize, u64>,
    /// Uid or name of the cluster.
    cluster: String,
    since: Instant,
}

/// The incidents of one sink.
#[derive(Debug)]
pub(super) struct Incidents {
    pub(super) notify: Notify,
    /// The last entry that was looked at.
    pub(super) position: Seq,
    /// The sink has what came up to here.
    sent: Seq,
    /// The entry after which the next read begins, unless delivery begins again.
    pub(super) next: Option<Seq>,
    /// Time of the last entry of each key, microseconds since 1970.
    recent: HashMap<String, i64>,
    /// Number of the window of the last entry: its time divided by the length. It never falls, whatever the clock does.
    number: i64,
    window: Option<Window>,
    /// Messages of windows that are over.
    pub(super) ready: VecDeque<Begun>,
}

fn micros(span: Duration) -> i64 {
    i64::try_from(span.as_micros()).unwrap_or(i64::MAX).max(1)
}

impl Incidents {
    pub(super) fn new(notify: Notify) -> Self {
        Self {
            notify,
            position: Seq(0),
            sent: Seq(0),
            next: None,
            recent: HashMap::new(),
            number: i64::MIN,
            window: None,
            ready: VecDeque::new(),
        }
    }

    /// Begins again: the sink has what came up to `sent`, and the log is read from after `position`.
    pub(super) fn begin(&mut self, position: Seq, sent: Seq) {
        *self = Self { position, sent, ..Self::new(self.notify.clone()) };
    }

    /// Returns the time before which no entry decides about messages after one with this time.
    pub(super) fn looks_back_to(&self, time: i64) -> i64 {
        let wait = micros(self.notify.wait);
        (time.div_euclid(wait) * wait).saturating_sub(micros(self.notify.group))
    }

    /// Takes the next entry.
    pub(super) fn take(&mut self, time: i64, selected: Option<Selected>, line: &Bytes, now: Instant) {
        let number = time.div_euclid(micros(self.notify.wait)).max(self.number);
        if number > self.number {
            self.close();
            self.number = number;
        }
        let Some(Selected { rule, incident, cluster, is_gap }) = selected else { return };
        let known = self.recent.get(&incident.key).copied();
        self.recent.insert(incident.key.clone(), known.unwrap_or(time).max(time));
        self.forget(time);
        if known.is_some_and(|known| time.saturating_sub(known) <= micros(self.notify.group)) {
            let place = |window: &mut Window| window.places.get(&incident.key).copied();
            if let Some(window) = &mut self.window
                && let Some(place) = place(window)
            {
                let begun = &mut window.begun[place].incident;
                begun.count += 1;
                begun.last = incident.last;
            }
            return;
        }
        let window = self.window.get_or_insert_with(|| Window {
            begun: Vec::new(),
            places: HashMap::new(),
            more: BTreeMap::new(),
            cluster,
            since: now,
        });
        if window.begun.len() >= MOST {
            *window.more.entry(rule).or_default() += 1;
            return;
        }
        window.places.insert(incident.key.clone(), window.begun.len());
        window.begun.push(Begun { rule, incident, line: is_gap.then(|| line.clone()) });
    }

    /// Forgets keys that are over.
    fn forget(&mut self, now: i64) {
        if self.recent.len() < MOST_KEYS {
            return;
        }
        let over = now.saturating_sub(micros(self.notify.group));
        self.recent.retain(|_, time| *time >= over);
        if self.recent.len() >= MOST_KEYS {
            let mut times: Vec<i64> = self.recent.values().copied().collect();
            let (_, middle, _) = times.select_nth_unstable(MOST_KEYS / 2);
            let middle = *middle;
            self.recent.retain(|_, time| *time > middle);
        }
    }

    /// Ends the window: its incidents become messages, in the order of the log.
    fn close(&mut self) {
        let Some(Window { begun, more, cluster, .. }) = self.window.take() else { return };
        let mut order: Vec<usize> = (0..begun.len()).collect();
        order.sort_by_key(|place| (begun[*place].rule, begun[*place].incident.first));
        let own: BTreeSet<usize> = order.into_iter().take(self.notify.digest).collect();
        let (mut messages, mut rest) = (Vec::new(), Vec::new());
        for (place, one) in begun.into_iter().enumerate() {
            if own.contains(&place) { messages.push(one) } else { rest.push(one) }
        }
        if let Some(first) = rest.first() {
            let mut causes = more;
            rest.iter().for_each(|one| *causes.entry(one.rule).or_default() += 1);
            let title = |(rule, count): (usize, u64)| (self.notify.rules[rule].title().to_owned(), count);
            let causes: Vec<(String, u64)> = causes.into_iter().map(title).collect();
            let (rule, line) = (first.rule, first.line.clone());
            let last = rest.iter().map(|one| one.incident.last).max().unwrap_or_default();
            let named = rest.into_iter().take(NAMED).map(|one| one.incident).collect();
            let incident = Incident { last, ..Incident::digest(named, &causes, &cluster) };
            messages.push(Begun { rule, incident, line });
            messages.sort_by_key(|one| one.incident.first);
        }
        self.ready.extend(messages.into_iter().filter(|one| one.incident.first > self.sent.0));
    }

    /// Ends the window where nothing of it comes any more, and returns until when it is waited for otherwise.
    pub(super) fn close_by_clock(&mut self, clock: i64, now: Instant) -> Option<Instant> {
        let since = self.window.as_ref()?.since;
        let ends = (self.number.saturating_add(1)).saturating_mul(micros(self.notify.wait));
        // A clock that was set back makes nobody wait for longer than a window.
        let left = Duration::from_micros(u64::try_from(ends.saturating_sub(clock)).unwrap_or_default()) + LATE_MAX;
        let over = clock >= ends.saturating_add(micros(LATE_MAX));
        let until = (since + self.notify.wait + LATE_MAX).min(now + left);
        if !over && until > now {
            return Some(until);
        }
        self.close();
        self.number = self.number.saturating_add(1);
        None
    }

    /// The last entry before those that messages to come are about.
    pub(super) fn settled(&self) -> Seq {
        let first = self.window.as_ref().and_then(|window| window.begun.first());
        let first = first.map(|begun| Seq(begun.incident.first - 1));
        first.map_or(self.position, |before| before.min(self.position))
    }
}

#[cfg(test)]
mod tests;
