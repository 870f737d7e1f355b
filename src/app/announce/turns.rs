//! The choice of what is published next: a pure function of the status, the time, and what was published.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use crate::core::model::Seq;
use crate::journal::{JournalError, Reader};
use crate::query::status::{Alarm, Status};

/// Shortest time between two Events about the same.
const REPEAT_MIN: Duration = Duration::from_secs(60);
/// Period after which an alarm that lasts is published again: Kubernetes keeps an Event for an hour.
const REMINDER_PERIOD: Duration = Duration::from_secs(1800);
/// Events within [`BUDGET_PERIOD`].
const BUDGET: usize = 20;
/// Period of the budget.
const BUDGET_PERIOD: Duration = Duration::from_secs(600);
/// Largest note that Kubernetes takes, in bytes.
const NOTE_LIMIT: usize = 1024;
/// Time for which a GAP is the leader's to publish. Who leads after a shorter time publishes it, perhaps once more.
const HANDOVER_MIN: Duration = Duration::from_secs(180);
/// Shortest duration of an alarm that is published: what a start finds of before, and what is over at once, is no news.
pub(super) const LASTING_MIN: Duration = Duration::from_secs(5);

/// Position of the log from which GAPs are published.
#[derive(Clone, Copy, Debug, Default)]
pub struct Baseline {
    /// The newest entry.
    pub head: Seq,
    /// Number of GAPs up to it.
    pub gaps: u64,
}

impl Baseline {
    /// Reads it from the journal.
    ///
    /// # Errors
    /// Where the journal cannot be read.
    pub fn read(reader: &Reader) -> Result<Self, JournalError> {
        let gaps = reader.sources()?.iter().map(|source| source.gaps).sum();
        Ok(Self { head: reader.head()?, gaps })
    }
}

/// The subject of Events: an alarm, and the source or sink that it is about.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Key {
    pub(super) alarm: &'static str,
    pub(super) about: String,
}

impl Key {
    fn of(alarm: &Alarm) -> Self {
        Self { alarm: alarm.alarm, about: alarm.about.clone() }
    }

    fn of_gaps(gap: &Gap) -> Self {
        Self { alarm: gap.notice.alarm, about: String::new() }
    }
}

/// State that Events are about.
#[derive(Clone, Debug)]
pub struct Seen {
    pub(super) alarms: Vec<Alarm>,
    pub(super) gap: Option<Gap>,
    /// Set if GAPs of the log are this decklog's to publish.
    pub(super) leads: bool,
}

/// The newest GAP of the log.
#[derive(Clone, Debug)]
pub(super) struct Gap {
    pub(super) seq: Seq,
    /// Number of GAPs up to it.
    pub(super) count: u64,
    pub(super) notice: Alarm,
}

impl Seen {
    /// Returns it of a status, without the names of objects. `leads` is set if GAPs of the log are this decklog's to publish.
    #[must_use]
    pub fn of(mut status: Status, leads: bool) -> Self {
        for fault in status.sources.iter_mut().filter_map(|source| source.cache_fault.as_mut()) {
            fault.example.clear();
        }
        status.judge();
        // A GAP that is no news any more has no notice.
        let last = status.gaps.last.as_ref().zip(status.notices.into_iter().next());
        let gap = last.map(|(last, notice)| Gap { seq: last.place.seq, count: status.gaps.count, notice });
        Self { alarms: status.alarms, gap, leads }
    }
}

/// Meaning of an Event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sort {
    /// An alarm that is raised.
    Raised,
    /// An alarm that has ended.
    Ended,
    /// A GAP: its seq, and the number of GAPs up to it.
    Gap(Seq, u64),
}

/// An Event to publish.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Notice {
    pub(super) key: Key,
    pub(super) sort: Sort,
    pub(super) note: String,
}

impl Notice {
    /// Returns what of the note stays as it is while the same goes on: of an alarm that is the text without its numbers.
    pub(super) fn subject(&self) -> String {
        match self.sort {
            Sort::Raised | Sort::Ended => self.note.replace(|c: char| c.is_ascii_digit(), ""),
            Sort::Gap(..) => self.note.clone(),
        }
    }

    /// Returns the reason of the Event: `SinkHalted`, and `SinkHaltedEnded` where that is over.
    pub(super) fn reason(&self) -> String {
        let words = self.key.alarm.split('-').map(|word| word[..1].to_ascii_uppercase() + &word[1..]);
        let end = if self.sort == Sort::Ended { "Ended" } else { "" };
        words.collect::<String>() + end
    }
}

/// The last Event about a subject.
#[derive(Debug)]
struct Published {
    is_raised: bool,
    at: Duration,
}

/// Events that were published so far. Times count from its beginning.
#[derive(Debug)]
pub(super) struct Announcements {
    published: BTreeMap<Key, Published>,
    /// Times of what counts for the budget.
    spent: VecDeque<Duration>,
    gap: Baseline,
    /// A GAP that another decklog is to publish, and since when a standby has seen it.
    of_another: Option<(Baseline, Duration)>,
    /// The newest GAP that was this decklog's to publish.
    own: Seq,
    /// Alarms of the last look, with the time since which each has been there at every look.
    lasting: BTreeMap<Key, Duration>,
}

impl Announcements {
    pub(super) fn new(gap: Baseline) -> Self {
        let (published, spent, lasting) = (BTreeMap::new(), VecDeque::new(), BTreeMap::new());
        Self { published, spent, gap, of_another: None, own: Seq(0), lasting }
    }

    /// Forgets what no longer counts, and the GAPs that another decklog has published: those that a standby has seen for so long that a
    /// leader had the time. What has ended is kept for a while: when it comes again, others go first.
    pub(super) fn look(&mut self, now: Duration, seen: &Seen) {
        let within = |at: Duration, period| now.saturating_sub(at) < period;
        self.published.retain(|_, last| last.is_raised || within(last.at, REMINDER_PERIOD));
        while self.spent.front().is_some_and(|at| !within(*at, BUDGET_PERIOD)) {
            self.spent.pop_front();
        }
        let newest = seen.gap.as_ref().map(|gap| Baseline { head: gap.seq, gaps: gap.count });
        if seen.leads {
            self.own = newest.map_or(self.own, |gap| gap.head.max(self.own));
            self.of_another = None;
        } else {
            if let Some((gap, _)) = self.of_another.take_if(|(_, since)| !within(*since, HANDOVER_MIN)) {
                self.gap = gap;
            }
            // Of one that it could not publish as long as it led, nobody else may have heard.
            let newest = newest.filter(|gap| gap.head > self.gap.head.max(self.own));
            self.of_another = self.of_another.or(newest.map(|gap| (gap, now)));
        }
        let since = |key: &Key| self.lasting.get(key).copied().unwrap_or(now);
        self.lasting = seen.alarms.iter().map(Key::of).map(|key| (key.clone(), since(&key))).collect();
    }

    /// Reports whether an alarm is too new to be published.
    pub(super) fn is_waiting(&self, now: Duration) -> bool {
        let is_new = |since: &Duration| now.saturating_sub(*since) < LASTING_MIN;
        self.lasting
            .iter()
            .any(|(key, since)| is_new(since) && !self.published.get(key).is_some_and(|last| last.is_raised))
    }

    /// Returns the Event that is due: of several that about which nothing was published for the longest time.
    pub(super) fn next(&self, now: Duration, seen: &Seen) -> Option<Notice> {
        if self.spent.len() >= BUDGET {
            return None;
        }
        let past = |last: &Published, period| now.saturating_sub(last.at) >= period;
        let mut due = Vec::new();
        if let Some(gap) = seen.gap.as_ref().filter(|gap| seen.leads && gap.seq > self.gap.head) {
            let key = Key::of_gaps(gap);
            let last = self.published.get(&key);
            if last.is_none_or(|last| past(last, REPEAT_MIN)) {
                due.push((last.map(|last| last.at), self.of_gap(key, gap)));
            }
        }
        let lasts = |key: &Key| self.lasting.get(key).is_some_and(|since| now.saturating_sub(*since) >= LASTING_MIN);
        for alarm in &seen.alarms {
            let key = Key::of(alarm);
            if !lasts(&key) {
                continue;
            }
            let last = self.published.get(&key);
            if last.is_none_or(|last| past(last, if last.is_raised { REMINDER_PERIOD } else { REPEAT_MIN })) {
                let note = note(&alarm.about, &alarm.what, &alarm.remedy);
                due.push((last.map(|last| last.at), Notice { key, sort: Sort::Raised, note }));
            }
        }
        for (key, last) in &self.published {
            if last.is_raised && !self.lasting.contains_key(key) && past(last, REPEAT_MIN) {
                let note = note(&key.about, &format!("the alarm {} has ended", key.alarm), "");
                due.push((Some(last.at), Notice { key: key.clone(), sort: Sort::Ended, note }));
            }
        }
        due.into_iter().min_by_key(|(at, _)| *at).map(|(_, notice)| notice)
    }

    fn of_gap(&self, key: Key, Gap { seq, count, notice }: &Gap) -> Notice {
        let more = count.saturating_sub(self.gap.gaps).saturating_sub(1);
        let more = if more > 0 { format!(" (and {more} more before it)") } else { String::new() };
        let note = note(&notice.about, &format!("{}{more}", notice.what), &notice.remedy);
        Notice { key, sort: Sort::Gap(*seq, *count), note }
    }

    /// Notes that an Event was published.
    pub(super) fn published(&mut self, now: Duration, notice: Notice) {
        if let Sort::Gap(head, gaps) = notice.sort {
            self.gap = Baseline { head, gaps };
        }
        self.spent.push_back(now);
        self.published.insert(notice.key, Published { is_raised: notice.sort == Sort::Raised, at: now });
    }
}

/// Returns a note for people, as long as Kubernetes takes it.
fn note(about: &str, what: &str, remedy: &str) -> String {
    let parts = [(about, ": "), (what, if remedy.is_empty() { "" } else { ". To do: " }), (remedy, "")];
    let mut text: String =
        parts.iter().filter(|(part, _)| !part.is_empty()).flat_map(|(part, end)| [*part, *end]).collect();
    if text.len() > NOTE_LIMIT {
        text.truncate(text.floor_char_boundary(NOTE_LIMIT - '…'.len_utf8()));
        text.push('…');
    }
    text
}
