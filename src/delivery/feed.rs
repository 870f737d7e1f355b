//! Reading of the log for one sink.

use std::collections::BTreeMap;

use bytes::Bytes;
use tokio::time::Instant;

use super::incidents::{Begun, Incidents, Moment};
use super::timeline::line_for;
use crate::core::filter::Wanted;
use crate::core::model::{EntryType, Seq};
use crate::core::wire::{Entry, EntryError, Shape};
use crate::journal::{JournalError, Message, Reader, Relabeling, StoredEntry};
use crate::sink::notify::{Incident, Notify, Selected, users};
use crate::sink::{Item, Limits};

/// Entries and bytes that are read at once.
const PAGE: (usize, usize) = (1000, 4 << 20);

/// Pages of one read.
const PAGES: usize = 8;

/// Messages that wait while the log is read on for later updates of theirs.
const READY_MAX: usize = 10_000;

/// Pause of a read until there are entries after a seq, or until a moment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pause {
    pub(super) after: Seq,
    pub(super) until: Instant,
}

/// Reads entries and makes of them what the sink gets. Moved to a blocking thread and back.
pub(super) struct Feed {
    pub(super) reader: Reader,
    /// First seq that this sink gets.
    pub(super) begins: Seq,
    /// Ranges of entries that are delivered under a later epoch.
    pub(super) relabelings: Vec<Relabeling>,
    pub(super) filter: Option<Wanted>,
    pub(super) shape: Shape,
    /// None where every entry is for the sink.
    pub(super) incidents: Option<Incidents>,
}

/// Entries that were read from the journal.
pub(super) struct Batch {
    pub(super) upto: Option<Seq>,
    /// Set if entries are missing before the first one.
    pub(super) hole: bool,
    /// Average size of the entries that were read, in bytes.
    pub(super) entry_bytes: usize,
    pub(super) items: Vec<Item>,
    /// Number of leading GAPs that are of this sink alone.
    pub(super) own: usize,
    /// Each of them as it was before it was shaped.
    pub(super) whole: Vec<Bytes>,
    /// Of each digest its incidents: the seq, and the entry where it is not in the log.
    pub(super) digests: BTreeMap<Seq, Vec<(Seq, Option<Bytes>)>>,
    /// Messages whose update is left out, because a later one is ready.
    pub(super) left_out: Vec<Message>,
    /// Wait before the next read, where what was read is not decided yet.
    pub(super) pause: Option<Pause>,
}

impl Feed {
    pub(super) fn read(&mut self, after: Seq, limits: Limits, at: Moment) -> Result<Batch, JournalError> {
        if let Some(mut incidents) = self.incidents.take() {
            let batch = self.read_incidents(&mut incidents, after, limits, at);
            if batch.is_err() {
                incidents.next = None;
            }
            self.incidents = Some(incidents);
            return batch;
        }
        let choice = self.filter.as_ref().and_then(Wanted::of_row);
        let page = self.reader.deliverable_after(after, limits.entries.max(1), limits.bytes, choice)?;
        let upto = page.looked_at.map(|(_, last)| last);
        let hole = page.looked_at.is_some_and(|(first, _)| first > after.next());
        let entries = page.entries;
        let looked_at = page.looked_at.map_or(1, |(first, last)| last.0 - first.0 + 1);
        let bytes = entries.iter().map(|entry| entry.line.len() as u64).sum::<u64>();
        let entry_bytes = usize::try_from(bytes / looked_at).unwrap_or(usize::MAX);
        let wanted = |entry: &StoredEntry| {
            let is_own = page.own.is_some_and(|last| entry.seq <= last);
            entry.seq >= self.begins
                && (is_own || self.filter.as_ref().is_none_or(|filter| filter.of_entry(&entry.line)))
        };
        let (mut items, mut whole) = (Vec::with_capacity(entries.len()), Vec::with_capacity(entries.len()));
        for entry in entries.into_iter().filter(wanted) {
            items.push(self.item(&entry)?);
            whole.push(entry.line);
        }
        let own = page.own.map_or(0, |last| items.partition_point(|item| item.seq <= last));
        let (digests, left_out) = (BTreeMap::new(), Vec::new());
        Ok(Batch { upto, hole, entry_bytes, items, own, whole, digests, left_out, pause: None })
    }

    /// Makes of an entry what the sink gets.
    fn item(&self, entry: &StoredEntry) -> Result<Item, JournalError> {
        let line = line_for(&self.relabelings, entry.seq, entry.line.clone())
            .and_then(|line| self.shape.apply(entry.op, &line));
        let line = line
            .map_err(|error| JournalError::Corrupt(format!("entry {} is {error}; run `decklog verify`", entry.seq)))?;
        Ok(Item::new(entry.seq, entry.op, line))
    }

    /// Reads what is worth a message: as [`Feed::read`], and what waits for the end of its window is read later.
    fn read_incidents(
        &mut self,
        incidents: &mut Incidents,
        after: Seq,
        limits: Limits,
        at: Moment,
    ) -> Result<Batch, JournalError> {
        if incidents.next != Some(after) {
            let position = match self.reader.time_of(after)? {
                Some(time) => self.reader.last_before_among(after, incidents.looks_back_to(time))?.min(after),
                None => after,
            };
            incidents.begin(position, after);
        }
        let (mut hole, mut pause) = (false, None);
        for _ in 0..PAGES {
            // What was not sent in time is one update for each incident, as far as the log is read.
            let enough = if incidents.notify.updates { READY_MAX } else { 1 };
            if incidents.ready.len() >= enough {
                break;
            }
            let expected = incidents.position.next();
            match self.look(incidents, at.now)? {
                Some(first) => hole |= first > expected,
                None => {
                    pause = incidents.close_by_clock(at);
                    break;
                }
            }
        }
        let (mut items, mut whole, mut digests, mut left_out) = (Vec::new(), Vec::new(), BTreeMap::new(), Vec::new());
        let mut is_dropped = false;
        while items.len() < limits.entries.max(1)
            && let Some(begun) = incidents.ready.front()
        {
            // What the receiver calls a message is known once it has it.
            let waits = |item: &Item| begun.is_update && item.seq.0 == begun.incident.first;
            if items.iter().any(waits) {
                break;
            }
            let Some(Begun { mut incident, seq, line, members, is_update, .. }) = incidents.ready.pop_front() else {
                break;
            };
            if is_update {
                let Some(reference) = incidents.reference(Seq(incident.first)) else {
                    let (first, last) = (incident.first, incident.last);
                    tracing::debug!(first, last, "an incident goes on whose message is not known");
                    continue;
                };
                reference.clone_into(&mut incident.reference);
                if let Some(message) = incidents.leave_out(&incident) {
                    left_out.push(message);
                    continue;
                }
            }
            let first = if is_update { self.first_of(&mut incident, &incidents.notify)? } else { None };
            if line.is_none() && members.is_empty() && incident.users.is_empty() {
                incident.users = self.users_of(&incident)?;
            }
            let shown = match (first, line) {
                (Some(shown), _) => Some(shown),
                (None, Some(line)) => Some(self.shown(StoredEntry { seq, op: EntryType::Gap, line })?),
                (None, None) => self.reader.entry(seq)?.map(|entry| self.shown(entry)).transpose()?,
            };
            let Some((item, line)) = shown else {
                is_dropped = true;
                break;
            };
            items.push(item.about(Some(incident)).at(seq));
            whole.push(line);
            if !members.is_empty() {
                digests.insert(seq, members);
            }
        }
        let last: Option<Seq> = items.last().map(|item| item.seq);
        let upto = match last {
            // The log was truncated: what is read again has a GAP instead.
            last if is_dropped => last.unwrap_or(after),
            // What is before the next message is sent, or is none.
            Some(last) => incidents
                .ready
                .front()
                .map_or_else(|| incidents.settled().max(after), |next| Seq(next.seq.0 - 1))
                .max(last),
            None => incidents.settled().max(after),
        };
        incidents.next = Some(upto).filter(|_| !is_dropped);
        let pause = pause.filter(|_| items.is_empty()).map(|until| Pause { after: incidents.position, until });
        let upto = Some(upto).filter(|upto| *upto > after || !items.is_empty());
        Ok(Batch { upto, hole, entry_bytes: 1, items, own: 0, whole, digests, left_out, pause })
    }

    /// What the sink gets of an entry, and the entry as it is.
    fn shown(&self, entry: StoredEntry) -> Result<(Item, Bytes), JournalError> {
        Ok((self.item(&entry)?, entry.line))
    }

    /// The entry that an incident began with, which an update shows. None where it is truncated, or damaged: an update needs it less
    /// than other messages need the sink.
    pub(super) fn first_of(
        &mut self,
        incident: &mut Incident,
        notify: &Notify,
    ) -> Result<Option<(Item, Bytes)>, JournalError> {
        let seq = Seq(incident.first);
        let read = self.reader.entry(seq).and_then(|entry| {
            let Some(entry) = entry else { return Ok(None) };
            let (_, selected) = notify.select(&entry.line).map_err(|error| damaged(seq, error))?;
            Ok(Some((selected, self.shown(entry)?)))
        });
        let (selected, shown) = match read {
            Ok(Some(read)) => read,
            Ok(None) => return Ok(None),
            Err(JournalError::Corrupt(text)) => {
                tracing::warn!("{text}; an update shows the last entry of its incident instead");
                return Ok(None);
            }
            Err(error) => return Err(error),
        };
        if let Some(Selected { incident: begun, .. }) = selected {
            (incident.title, incident.log, incident.users) = (begun.title, begun.log, begun.users);
        }
        Ok(Some(shown))
    }

    /// Who asked for the entry that an incident began with, as far as the log says it up to the incident's last entry: the same
    /// whenever the message is made again. A damaged ACTOR names nobody.
    fn users_of(&mut self, incident: &Incident) -> Result<Vec<String>, JournalError> {
        let stored = match self.reader.actor_of(Seq(incident.first)) {
            Err(JournalError::Corrupt(text)) => {
                tracing::warn!("{text}; the message of an incident names nobody instead");
                None
            }
            read => read?,
        };
        let actor = stored.filter(|stored| stored.seq.0 <= incident.last);
        let actor = actor.and_then(|stored| Entry::parse(&stored.line).ok()?.actor());
        Ok(actor.as_ref().map(users).unwrap_or_default())
    }

    /// Forgets messages of incidents that are over where the cursor is at `upto`. Gives the last entry that decides about none.
    pub(super) fn forget_messages(&mut self, upto: Seq) -> Result<Seq, JournalError> {
        let Some(incidents) = &mut self.incidents else { return Ok(Seq(0)) };
        let Some(time) = self.reader.time_of(upto)? else { return Ok(Seq(0)) };
        let over = self.reader.last_before_among(upto, incidents.looks_back_to(time))?;
        incidents.forget_messages(over);
        Ok(over)
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
            let damaged = |error| damaged(entry.seq, error);
            if is_own {
                let missed = incidents.notify.missed(&entry.line).map_err(damaged)?;
                incidents.take_own(missed, entry.line, now);
                continue;
            }
            let (time, selected) = incidents.notify.select(&entry.line).map_err(damaged)?;
            let is_selected = selected.is_some();
            incidents.take(time, selected, now);
            if entry.op == EntryType::Actor
                && !is_selected
                && let Some((of, actor)) = incidents.notify.names(&entry.line).map_err(damaged)?
            {
                incidents.name(of, actor, now);
            }
        }
        incidents.position = last;
        Ok(Some(first))
    }
}

fn damaged(seq: Seq, error: EntryError) -> JournalError {
    JournalError::Corrupt(format!("entry {seq} is {error}; run `decklog verify`"))
}
