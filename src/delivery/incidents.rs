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

use super::{Batch, Feed, Seq};
use crate::core::filter::Wanted;
use crate::core::model::EntryType;
use crate::journal::{JournalError, StoredEntry};
use crate::sink::Limits;
use crate::sink::notify::{Incident, NAMED, Notify, Selected};

/// Time that an entry may take from its stamp to the log.
const LATE_MAX: Duration = Duration::from_secs(1);

/// Entries and bytes that are read at once.
const PAGE: (usize, usize) = (1000, 4 << 20);

/// Pages of one read.
const PAGES: usize = 8;

/// Incidents of a window that are remembered; of more, only their number.
const MOST: usize = 10_000;

/// Keys that are remembered; beyond them the older half is forgotten, and may be told again.
const MOST_KEYS: usize = 200_000;

/// An incident of the window, and the rule of its entries.
#[derive(Clone, Debug)]
struct Begun {
    rule: usize,
    incident: Incident,
    /// The entry, where it is a GAP: one of this sink alone is not in the log.
    line: Option<Bytes>,
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

/// Pause of a read until there are entries after a seq, or until a moment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pause {
    pub(super) after: Seq,
    pub(super) until: Instant,
}

/// The incidents of one sink.
#[derive(Debug)]
pub(super) struct Incidents {
    notify: Notify,
    /// The last entry that was looked at.
    position: Seq,
    /// The sink has what came up to here.
    sent: Seq,
    /// The entry after which the next read begins, unless delivery begins again.
    next: Option<Seq>,
    /// Time of the last entry of each key, microseconds since 1970.
    recent: HashMap<String, i64>,
    /// Number of the window of the last entry: its time divided by the length. It never falls, whatever the clock does.
    number: i64,
    window: Option<Window>,
    /// Messages of windows that are over.
    ready: VecDeque<Begun>,
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
    fn begin(&mut self, position: Seq, sent: Seq) {
        *self = Self { position, sent, ..Self::new(self.notify.clone()) };
    }

    /// Returns the time before which no entry decides about messages after one with this time.
    fn looks_back_to(&self, time: i64) -> i64 {
        let wait = micros(self.notify.wait);
        (time.div_euclid(wait) * wait).saturating_sub(micros(self.notify.group))
    }

    /// Takes the next entry.
    fn take(&mut self, time: i64, selected: Option<Selected>, line: &Bytes, now: Instant) {
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
    fn close_by_clock(&mut self, clock: i64, now: Instant) -> Option<Instant> {
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
    fn settled(&self) -> Seq {
        let first = self.window.as_ref().and_then(|window| window.begun.first());
        let first = first.map(|begun| Seq(begun.incident.first - 1));
        first.map_or(self.position, |before| before.min(self.position))
    }
}

impl Feed {
    /// Reads what is worth a message: as [`Feed::read`], and what waits for the end of its window is read later.
    pub(super) fn read_incidents(
        &mut self,
        incidents: &mut Incidents,
        after: Seq,
        limits: Limits,
        (clock, now): (i64, Instant),
    ) -> Result<Batch, JournalError> {
        if incidents.next != Some(after) {
            let position = match self.reader.time_of(after)? {
                Some(time) => self.reader.last_before(incidents.looks_back_to(time))?.min(after),
                None => after,
            };
            incidents.begin(position, after);
        }
        let (mut hole, mut pause) = (false, None);
        for _ in 0..PAGES {
            if !incidents.ready.is_empty() {
                break;
            }
            match self.look(incidents, now)? {
                Some(first) => hole |= incidents.next.is_some() && first > after.next(),
                None => {
                    pause = incidents.close_by_clock(clock, now);
                    break;
                }
            }
        }
        let (mut items, mut whole) = (Vec::new(), Vec::new());
        while items.len() < limits.entries.max(1)
            && let Some(Begun { incident, line, .. }) = incidents.ready.pop_front()
        {
            let seq = Seq(incident.first);
            let entry = match line {
                Some(line) => Some(StoredEntry { seq, op: EntryType::Gap, line }),
                None => self.reader.entry(seq)?,
            };
            // One that was dropped meanwhile is in the GAP of this sink.
            let Some(entry) = entry else { continue };
            items.push(self.item(&entry)?.about(Some(incident)));
            whole.push(entry.line);
        }
        let upto = match items.last() {
            Some(last) if !incidents.ready.is_empty() => last.seq,
            _ => incidents.settled().max(after),
        };
        incidents.next = Some(upto);
        let pause = pause.filter(|_| items.is_empty()).map(|until| Pause { after: incidents.position, until });
        let upto = Some(upto).filter(|upto| *upto > after || !items.is_empty());
        Ok(Batch { upto, hole, entry_bytes: 1, items, own: 0, whole, pause })
    }

    /// Looks at the next page of the log. Gives its first seq; none where there is no more.
    fn look(&mut self, incidents: &mut Incidents, now: Instant) -> Result<Option<Seq>, JournalError> {
        let choice = self.filter.as_ref().and_then(Wanted::of_row);
        let page = self.reader.deliverable_after(incidents.position, PAGE.0, PAGE.1, choice)?;
        let Some((first, last)) = page.looked_at else { return Ok(None) };
        for entry in page.entries {
            let is_own = page.own.is_some_and(|last| entry.seq <= last);
            let is_wanted = is_own || self.filter.as_ref().is_none_or(|filter| filter.of_entry(&entry.line));
            if entry.seq < self.begins || !is_wanted {
                continue;
            }
            let (time, selected) = incidents.notify.select(&entry.line).map_err(|error| damaged(entry.seq, error))?;
            incidents.take(time, selected, &entry.line, now);
        }
        incidents.position = last;
        Ok(Some(first))
    }
}

fn damaged(seq: Seq, error: impl std::fmt::Display) -> JournalError {
    JournalError::Corrupt(format!("entry {seq} is {error}; run `decklog verify`"))
}

#[cfg(test)]
mod tests;
