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
//!
//! Where the receiver can update a message, each window in which an incident with a message of its own went on ends with an
//! update, in the place of the incident's last entry there, with the count of all its entries. A message that was sent is known
//! with the last entry that it counts. Those after it are counted on top, and the cursor passes none that is not: so a later start
//! comes to the same count, however long ago the incident began. Of an incident whose message is not known nothing more is sent.
//!
//! The ACTOR of an incident's first entry comes later than that. It is of the incident as its entries are, but counts as none: the
//! message, or an update, then has who asked.
//!
//! An update is left out where a later one of the same message is ready, because the sink is behind. The message is then known
//! with the count that it would have had: what is after the cursor has the later one, and a later start comes to that too.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;

use crate::core::model::Seq;
use crate::journal::{MESSAGES, Message};
use crate::sink::notify::{Incident, NAMED, Notify, Selected};

/// Time by which a clock may be set back while entries still find their window.
const STEP_BACK_MAX: Duration = Duration::from_secs(1);

/// Incidents of a window that are remembered; of more, only their number.
const MOST: usize = 10_000;

/// Incidents with a message of their own that are followed as they go on; others are not updated.
const MOST_OPEN: usize = 10_000;

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
    /// True for an update of a message.
    pub(super) is_update: bool,
}

/// An incident that has, or is about to have, a message of its own.
#[derive(Clone, Copy, Debug)]
struct Open {
    first: u64,
    last: u64,
    count: u64,
    /// What had passed at its last entry.
    passed: i64,
}

/// An incident that went on in the window.
#[derive(Debug)]
struct GoesOn {
    /// Its first entry in the window.
    since: Seq,
    rule: usize,
    incident: Incident,
}

/// A window with incidents.
#[derive(Debug)]
struct Window {
    begun: Vec<Begun>,
    /// Places of them by their keys.
    places: HashMap<String, usize>,
    /// Incidents of windows before that went on, by their keys.
    goes_on: BTreeMap<String, GoesOn>,
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
    /// Incidents that go on as far as the log was read, by their keys; only where messages are updated.
    open: HashMap<String, Open>,
    /// Messages that the sink has, by the first entry of their incidents.
    messages: BTreeMap<Seq, Message>,
    /// Messages of windows that are over.
    pub(super) ready: VecDeque<Begun>,
    /// The last entry of the newest update among those, by the first entry of its incident.
    newest: HashMap<u64, u64>,
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
            open: HashMap::new(),
            messages: BTreeMap::new(),
            ready: VecDeque::new(),
            newest: HashMap::new(),
        }
    }

    /// Begins again: the sink has what came up to `sent`, and the log is read from after `position`.
    pub(super) fn begin(&mut self, position: Seq, sent: Seq) {
        let messages = std::mem::take(&mut self.messages);
        *self = Self { position, sent, messages, ..Self::new(self.notify.clone()) };
        // Of one key the newest comes last.
        for Message { incident, first, last, entries, .. } in self.messages.values() {
            let open = Open { first: first.0, last: last.0, count: *entries, passed: 0 };
            self.open.insert(incident.clone(), open);
        }
    }

    /// The sink has a message, or has updated it; or does not update it any more, where it has no reference.
    pub(super) fn know(&mut self, message: Message) {
        if message.reference.is_some() {
            self.messages.insert(message.first, message);
        } else {
            self.messages.remove(&message.first);
        }
    }

    /// Leaves an update out where a later one of the same message is ready. Gives the message with what that counts all the same.
    pub(super) fn leave_out(&mut self, incident: &Incident) -> Option<Message> {
        if self.newest.get(&incident.first).is_none_or(|newest| *newest <= incident.last) {
            self.newest.remove(&incident.first);
            return None;
        }
        let message = self.messages.get_mut(&Seq(incident.first))?;
        (message.last, message.entries) = (Seq(incident.last), incident.count);
        Some(message.clone())
    }

    /// Forgets messages whose last entry is not after this one, and those that are too many.
    pub(super) fn forget_messages(&mut self, over: Seq) {
        self.messages.retain(|_, message| message.last > over);
        while self.messages.len() > MESSAGES {
            let oldest = self.messages.values().min_by_key(|message| message.last).map(|message| message.first);
            oldest.and_then(|first| self.messages.remove(&first));
        }
    }

    /// The receiver's name for the message of the incident that began with an entry.
    pub(super) fn reference(&self, first: Seq) -> Option<&str> {
        self.messages.get(&first)?.reference.as_deref()
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
        let seq = Seq(incident.first);
        if known.is_some_and(|known| self.passed - known <= micros(self.notify.group)) {
            let mut is_told = false;
            if let Some(window) = &mut self.window
                && let Some(place) = window.places.get(&incident.key)
            {
                let begun = &mut window.begun[*place];
                begun.incident.count += 1;
                begun.incident.last = incident.last;
                begun.incident.until.clone_from(&incident.until);
                is_told = begun.seq > self.sent;
            }
            // Where the log is read again, the sink may have the message of the window that is read.
            if !is_told && line.is_none() {
                self.go_on(rule, incident, cluster, now);
            }
            return;
        }
        // Another incident of the same key, unless this is where the log is read again from the middle of the one that the sink has.
        if self.open.get(&incident.key).is_some_and(|open| seq.0 > open.last) {
            self.open.remove(&incident.key);
        }
        let window = self.window(cluster, now);
        if window.begun.len() >= MOST {
            *window.more.entry(rule).or_default() += 1;
            window.last = Some((seq, line));
            return;
        }
        window.places.insert(incident.key.clone(), window.begun.len());
        window.begun.push(Begun { rule, incident, seq, line, members: Vec::new(), is_update: false });
    }

    /// Takes an ACTOR that no rule selects. The incident that began with the entry which it is of goes on with it, so that its message
    /// has who asked for that: the first one where that is still to come, else an update. It counts as no entry.
    pub(super) fn name(&mut self, of: u64, actor: Selected, now: Instant) {
        let Selected { rule, incident, cluster } = actor;
        let began_with = |begun: &&mut Begun| begun.incident.first == of && begun.line.is_none();
        if let Some(begun) = self.window.as_mut().and_then(|window| window.begun.iter_mut().find(began_with)) {
            begun.incident.last = incident.last;
            // Where the log is read again, the sink may have the message of the window that is read.
            if begun.seq > self.sent {
                return;
            }
        }
        let Some((key, open)) = self.open.iter_mut().find(|(_, open)| open.first == of) else { return };
        if incident.last <= open.last {
            return;
        }
        open.last = incident.last;
        let (key, seq) = (key.clone(), Seq(incident.last));
        let incident = Incident { key: key.clone(), first: of, count: open.count, ..incident };
        let goes_on = &mut self.window(cluster, now).goes_on;
        let since = goes_on.get(&key).map_or(seq, |one| one.since);
        goes_on.insert(key, GoesOn { since, rule, incident });
    }

    /// The window, which begins where there is none.
    fn window(&mut self, cluster: String, now: Instant) -> &mut Window {
        self.window.get_or_insert_with(|| Window {
            begun: Vec::new(),
            places: HashMap::new(),
            goes_on: BTreeMap::new(),
            more: BTreeMap::new(),
            last: None,
            cluster,
            since: now,
        })
    }

    /// Counts an entry of an incident that has a message of its own.
    fn go_on(&mut self, rule: usize, incident: Incident, cluster: String, now: Instant) {
        let (seq, passed) = (incident.first, self.passed);
        let Some(open) = self.open.get_mut(&incident.key) else { return };
        open.passed = passed;
        if seq <= open.last {
            return;
        }
        open.count += 1;
        open.last = seq;
        let incident = Incident { first: open.first, count: open.count, ..incident };
        let goes_on = &mut self.window(cluster, now).goes_on;
        let since = goes_on.get(&incident.key).map_or(Seq(seq), |one| one.since);
        goes_on.insert(incident.key.clone(), GoesOn { since, rule, incident });
    }

    /// An incident has a message of its own, or is in a digest: from here on it is followed, or not.
    fn follow(&mut self, begun: &Begun, is_own: bool) {
        if !self.notify.updates || begun.seq <= self.sent {
            return;
        }
        let Incident { key, first, last, count, .. } = &begun.incident;
        self.open.remove(key);
        if self.open.len() >= MOST_OPEN {
            let over = self.passed.saturating_sub(micros(self.notify.group));
            self.open.retain(|_, open| open.passed >= over);
        }
        if is_own && begun.line.is_none() && self.open.len() < MOST_OPEN {
            let open = Open { first: *first, last: *last, count: *count, passed: self.passed };
            self.open.insert(key.clone(), open);
        }
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
        let Some(Window { begun, more, last, cluster, goes_on, .. }) = self.window.take() else { return };
        let mut order: Vec<usize> = (0..begun.len()).collect();
        // Of GAPs of this sink alone a later start has those after the cursor, and no other: they come in their order, and a digest
        // of the last of them stands where the first of those does.
        if self.number.is_some() {
            order.sort_by_key(|place| (begun[*place].rule, begun[*place].seq));
        }
        let own: BTreeSet<usize> = order.into_iter().take(self.notify.digest).collect();
        let (mut messages, mut rest) = (Vec::new(), Vec::new());
        for (place, one) in begun.into_iter().enumerate() {
            let is_own = own.contains(&place);
            self.follow(&one, is_own);
            if is_own { messages.push(one) } else { rest.push(one) }
        }
        messages.extend(self.digest(rest, more, last, &cluster));
        messages.extend(goes_on.into_values().map(|GoesOn { rule, incident, .. }| {
            let seq = Seq(incident.last);
            Begun { rule, incident, seq, line: None, members: Vec::new(), is_update: true }
        }));
        messages.sort_by_key(|one| one.seq);
        messages.retain(|one| one.seq > self.sent);
        let updates = messages.iter().filter(|one| one.is_update);
        self.newest.extend(updates.map(|one| (one.incident.first, one.incident.last)));
        self.ready.extend(messages);
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
        Some(Begun { rule, incident, seq, line, members, is_update: false })
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
        let begun = self.window.iter().flat_map(|window| window.begun.first()).map(|begun| begun.seq);
        let goes_on = self.window.iter().flat_map(|window| window.goes_on.values()).map(|one| one.since);
        let first = begun.chain(goes_on).min().map(|seq| Seq(seq.0 - 1));
        first.map_or(self.position, |before| before.min(self.position))
    }
}

#[cfg(test)]
mod tests;
