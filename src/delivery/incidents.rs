//! Incidents of a sink that notifies: which entries are one, and when it is told.
//!
//! Everything follows from the entries, their order and their times. An entry begins an incident where none of the same key came in
//! the `group` before it. Entries in a row whose times fall into the same `wait` are a window; an incident is of the window of its
//! first entry. When a window is over, its incidents are messages: so many each by itself, those of the first rules before others,
//! and the rest in a digest. After a start the log is read again from so far before the cursor that it comes to the same.
//!
//! Times come from a clock that may be set. So the time between two entries is what passed on the way from one to the other, where a
//! step back counts as nothing, and a window is over where an entry has a time of another one.
//!
//! A window is also over where its time is and the writer has nothing of it any more. Should something come all the same, because
//! the clock was set back, a later start has both in one window. It loses nothing by that, because the place of a message in the log
//! is that of the last incident in it: what is after the cursor was never sent, and more incidents put none out of a digest.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;

use crate::core::model::Seq;
use crate::sink::notify::{Incident, NAMED, Notify, Selected};

/// Time by which a clock may be set back while entries still find their window.
const STEP_BACK_MAX: Duration = Duration::from_secs(1);

/// Incidents of a window that are remembered; of more, only their number.
const MOST: usize = 10_000;

/// Keys that are remembered; beyond them the older half is forgotten, and may be told again.
const MOST_KEYS: usize = 200_000;

/// An incident of the window and the rule of its entries, or a message.
#[derive(Clone, Debug)]
pub(super) struct Begun {
    rule: usize,
    pub(super) incident: Incident,
    /// The place of the message in the log: the seq of the entry, of a digest that of its last incident, or of its first GAP.
    pub(super) seq: Seq,
    /// The entry, where it is not in the log.
    pub(super) line: Option<Bytes>,
    /// Of a digest its incidents: the seq of each, and the entry where it is not in the log.
    pub(super) members: Vec<(Seq, Option<Bytes>)>,
}

/// A window with incidents.
#[derive(Debug)]
struct Window {
    begun: Vec<Begun>,
    /// Places of them by their keys.
    places: HashMap<String, usize>,
    /// Number of those that are not remembered, by rule.
    more: BTreeMap<usize, u64>,
    /// The last of those: its seq, and the entry where it is not in the log.
    last: Option<(Seq, Option<Bytes>)>,
    /// Uid or name of the cluster.
    cluster: String,
    since: Instant,
}

/// A moment of a read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Moment {
    /// Microseconds since 1970.
    pub(super) clock: i64,
    pub(super) now: Instant,
    /// True where the log has everything that was written before.
    pub(super) is_whole: bool,
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
    /// Time of the last entry, microseconds since 1970.
    time: Option<i64>,
    /// Time that passed from entry to entry since the first, in microseconds. It never falls, whatever the clock does.
    passed: i64,
    /// What had passed at the last entry of each key.
    recent: HashMap<String, i64>,
    /// Number of the window: the time of its entries divided by the length. None for GAPs of this sink alone.
    number: Option<i64>,
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
            time: None,
            passed: 0,
            recent: HashMap::new(),
            number: None,
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
    pub(super) fn take(&mut self, time: i64, selected: Option<Selected>, now: Instant) {
        let more = self.time.map_or(0, |last| time.saturating_sub(last).max(0));
        self.passed = self.passed.saturating_add(more);
        self.time = Some(time);
        let number = Some(time.div_euclid(micros(self.notify.wait)));
        if number != self.number {
            self.close();
            self.number = number;
        }
        if let Some(selected) = selected {
            self.select(selected, None, now);
        }
    }

    /// Takes a GAP of this sink alone, which stands for entries that are not in the log any more. It has no time of its own, and is
    /// in no window with others.
    pub(super) fn take_own(&mut self, selected: Selected, line: Bytes, now: Instant) {
        if self.number.take().is_some() {
            self.close();
        }
        self.select(selected, Some(line), now);
    }

    fn select(&mut self, selected: Selected, line: Option<Bytes>, now: Instant) {
        let Selected { rule, incident, cluster } = selected;
        let known = self.recent.insert(incident.key.clone(), self.passed);
        self.forget();
        if known.is_some_and(|known| self.passed - known <= micros(self.notify.group)) {
            if let Some(window) = &mut self.window
                && let Some(place) = window.places.get(&incident.key)
            {
                let begun = &mut window.begun[*place].incident;
                begun.count += 1;
                begun.last = incident.last;
            }
            return;
        }
        let window = self.window.get_or_insert_with(|| Window {
            begun: Vec::new(),
            places: HashMap::new(),
            more: BTreeMap::new(),
            last: None,
            cluster,
            since: now,
        });
        let seq = Seq(incident.first);
        if window.begun.len() >= MOST {
            *window.more.entry(rule).or_default() += 1;
            window.last = Some((seq, line));
            return;
        }
        window.places.insert(incident.key.clone(), window.begun.len());
        window.begun.push(Begun { rule, incident, seq, line, members: Vec::new() });
    }

    /// Forgets keys that are over.
    fn forget(&mut self) {
        if self.recent.len() < MOST_KEYS {
            return;
        }
        let over = self.passed.saturating_sub(micros(self.notify.group));
        self.recent.retain(|_, passed| *passed >= over);
        if self.recent.len() >= MOST_KEYS {
            let mut times: Vec<i64> = self.recent.values().copied().collect();
            let (_, middle, _) = times.select_nth_unstable(MOST_KEYS / 2);
            let middle = *middle;
            self.recent.retain(|_, passed| *passed > middle);
        }
    }

    /// Ends the window: its incidents become messages, in the order of the log.
    fn close(&mut self) {
        let Some(Window { begun, more, last, cluster, .. }) = self.window.take() else { return };
        let mut order: Vec<usize> = (0..begun.len()).collect();
        // Of GAPs of this sink alone a later start has those after the cursor, and no other: they come in their order, and a digest
        // of the last of them stands where the first of those does.
        if self.number.is_some() {
            order.sort_by_key(|place| (begun[*place].rule, begun[*place].seq));
        }
        let own: BTreeSet<usize> = order.into_iter().take(self.notify.digest).collect();
        let (mut messages, mut rest) = (Vec::new(), Vec::new());
        for (place, one) in begun.into_iter().enumerate() {
            if own.contains(&place) { messages.push(one) } else { rest.push(one) }
        }
        messages.extend(self.digest(rest, more, last, &cluster));
        messages.sort_by_key(|one| one.seq);
        self.ready.extend(messages.into_iter().filter(|one| one.seq > self.sent));
    }

    /// Makes one message of those that have none of their own. `more` counts those that are not remembered, of which `last` is the
    /// last one.
    fn digest(
        &self,
        rest: Vec<Begun>,
        more: BTreeMap<usize, u64>,
        last: Option<(Seq, Option<Bytes>)>,
        cluster: &str,
    ) -> Option<Begun> {
        let rule = rest.first()?.rule;
        let mut causes = more;
        rest.iter().for_each(|one| *causes.entry(one.rule).or_default() += 1);
        let title = |(rule, count): (usize, u64)| (self.notify.title(rule).to_owned(), count);
        let causes: Vec<(String, u64)> = causes.into_iter().map(title).collect();
        let mut members: Vec<_> = rest.iter().map(|one| (one.seq, one.line.clone())).collect();
        members.extend(last);
        let end = members.last()?.0;
        let (seq, line) = if self.number.is_some() { members.last() } else { members.first() }.cloned()?;
        let last = rest.iter().map(|one| one.incident.last).max().unwrap_or_default().max(end.0);
        let named = rest.into_iter().take(NAMED).map(|one| one.incident).collect();
        let incident = Incident { last, ..Incident::digest(named, &causes, cluster) };
        Some(Begun { rule, incident, seq, line, members })
    }

    /// Ends the window where nothing of it comes any more, and returns until when it is waited for otherwise.
    pub(super) fn close_by_clock(&mut self, at: Moment) -> Option<Instant> {
        let Moment { clock, now, is_whole } = at;
        let since = self.window.as_ref()?.since;
        let Some(number) = self.number else {
            self.close();
            return None;
        };
        let ends = number.saturating_add(1).saturating_mul(micros(self.notify.wait));
        // A clock that was set back makes nobody wait for longer than a window.
        let left = Duration::from_micros(u64::try_from(ends.saturating_sub(clock)).unwrap_or_default()) + STEP_BACK_MAX;
        let over = clock >= ends.saturating_add(micros(STEP_BACK_MAX));
        let until = (since + self.notify.wait + STEP_BACK_MAX).min(now + left);
        if !over && until > now {
            return Some(until);
        }
        if !is_whole {
            return Some(now);
        }
        self.close();
        None
    }

    /// The last entry before those that messages to come are about.
    pub(super) fn settled(&self) -> Seq {
        let first = self.window.as_ref().and_then(|window| window.begun.first());
        let first = first.map(|begun| Seq(begun.seq.0 - 1));
        first.map_or(self.position, |before| before.min(self.position))
    }
}

#[cfg(test)]
mod tests;
