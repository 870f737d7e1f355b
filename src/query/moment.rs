//! The one clock of all questions: when an entry happened in the cluster, whenever it was journaled.
//!
//! A moment is exact where decklog saw the change at once. Else a stamp in the object says it, to the second, or it lies between
//! two bounds ([`Entry::happened_between`](crate::core::wire::Header)). A GAP is as wide as the time of which nothing is known.

use jiff::{SignedDuration, Timestamp};

use crate::core::model::{EntryType, Seq};
use crate::core::wire::{Entry, Header};
use crate::journal::{JournalError, Reader};

/// Difference of journaling and stamp up to which the time of journaling is that of the change. Stamps are cut to whole seconds, and
/// what is journaled within the next second was journaled at once.
const LATE_MIN: SignedDuration = SignedDuration::from_secs(2);
/// The part of a second that a stamp leaves out.
const CUT_MAX: SignedDuration = SignedDuration::from_micros(999_999);

/// Time at which an entry happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    /// Earliest time.
    pub(crate) earliest: Timestamp,
    /// Latest time.
    pub(crate) latest: Timestamp,
    pub(crate) is: Known,
}

/// Kind of knowledge of a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Known {
    /// The change was journaled at once.
    Exactly,
    /// A stamp in the object says it, in seconds.
    Stamped,
    /// It lies between two bounds.
    Between,
}

impl Span {
    /// Returns the time of an entry, given its header; that of a GAP is its end.
    pub(crate) fn of(header: &Header<'_>) -> Self {
        let read = |text: &str| text.parse::<Timestamp>().ok();
        let time = read(&header.time).unwrap_or(Timestamp::MIN);
        let bounds = header.happened_between.as_ref().and_then(|[earliest, latest]| read(earliest).zip(read(latest)));
        if let Some((earliest, latest)) = bounds.filter(|(earliest, latest)| earliest <= latest) {
            // Whatever the stamp says, it was journaled at once.
            let at_once = time.duration_since(earliest) < LATE_MIN;
            return Self { earliest, latest, is: if at_once { Known::Exactly } else { Known::Between } };
        }
        // What a first list finds may be far older: that says since when it is so, as far as managedFields know.
        let stamp = header.happened.as_deref().filter(|_| header.evidence.as_deref() != Some("listed")).and_then(read);
        match stamp.filter(|stamp| time.duration_since(*stamp) >= LATE_MIN) {
            Some(stamp) => {
                Self { earliest: stamp, latest: stamp.saturating_add(CUT_MAX).unwrap_or(stamp), is: Known::Stamped }
            }
            None => Self { earliest: time, latest: time, is: Known::Exactly },
        }
    }

    /// Returns the time of an entry, and of a GAP all of which nothing is known.
    pub(crate) fn of_entry(entry: &Entry<'_>) -> Self {
        let span = Self::of(entry);
        let since = || entry.gap()?.since?.parse::<Timestamp>().ok();
        match (entry.op == EntryType::Gap).then(since).flatten() {
            Some(since) => Self { earliest: since.min(span.latest), is: Known::Between, ..span },
            None => span,
        }
    }

    /// Returns the time as it is behind the version before, which had come by `before`; none where it is a time from before that, as of
    /// a stamp that the change did not move.
    pub(crate) fn behind(self, before: Timestamp) -> Option<Self> {
        (self.latest >= before).then(|| Self { earliest: self.earliest.max(before), ..self })
    }

    fn overlaps(self, since: Option<Timestamp>, until: Option<Timestamp>) -> bool {
        since.is_none_or(|since| self.latest >= since) && until.is_none_or(|until| self.earliest <= until)
    }
}

/// A period that a question is about.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Period {
    /// First moment; none for the beginning of the log.
    pub(crate) since: Option<Timestamp>,
    /// Last moment; none for now.
    pub(crate) until: Option<Timestamp>,
    /// Goes by the time at which entries were journaled.
    pub(crate) by_journal: bool,
}

impl Period {
    /// Reports whether an entry may have happened in the period. One that is no entry is left to who reads it.
    pub(crate) fn has(&self, line: &[u8]) -> bool {
        if self.since.is_none() && self.until.is_none() {
            return true;
        }
        let span = match Header::parse(line) {
            Ok(header) if self.by_journal => header.time.parse().unwrap_or(Timestamp::MIN).into(),
            Ok(header) if header.op == EntryType::Gap => {
                Entry::parse(line).map_or_else(|_| Span::of(&header), |entry| Span::of_entry(&entry))
            }
            Ok(header) => Span::of(&header),
            Err(_) => return true,
        };
        span.overlaps(self.since, self.until)
    }

    /// Returns the seqs among which the entries of the period are.
    ///
    /// # Errors
    /// Where the journal cannot be read.
    pub(crate) fn stretches(&self, reader: &Reader) -> Result<Stretches, JournalError> {
        let after = match self.since {
            Some(since) => reader.last_before(since.as_microsecond())?,
            None => Seq(0),
        };
        let Some(until) = self.until.map(Timestamp::as_microsecond) else { return Ok(Stretches(vec![(after, END)])) };
        let (head, upto) = (reader.head()?, reader.last_before(until.saturating_add(1))?);
        if upto >= head {
            return Ok(Stretches(vec![(after, END)]));
        }
        let mut stretches = vec![(after, upto)];
        if !self.by_journal {
            for late in reader.late()?.into_iter().filter(|late| late.last > upto && late.since <= until) {
                stretches.push((Seq(late.first.0 - 1).max(upto), late.last));
            }
        }
        Ok(Stretches(stretches))
    }
}

impl From<Timestamp> for Span {
    fn from(time: Timestamp) -> Self {
        Self { earliest: time, latest: time, is: Known::Exactly }
    }
}

/// A seq above all others that SQLite takes.
const END: Seq = Seq(i64::MAX as u64 - 1);

/// Parts of the log, oldest first: of each the seq before its first entry, and its last one.
#[derive(Clone, Debug)]
pub(crate) struct Stretches(Vec<(Seq, Seq)>);

impl Stretches {
    /// The last seq before all of them.
    pub(crate) fn begin(&self) -> Seq {
        self.0[0].0
    }

    /// The end of the last one.
    pub(crate) fn end(&self) -> Seq {
        self.0[self.0.len() - 1].1
    }

    /// Reports whether an entry is in one.
    pub(crate) fn has(&self, seq: Seq) -> bool {
        self.0.iter().any(|(after, upto)| (*after..=*upto).contains(&seq) && seq > *after)
    }

    /// Returns the part behind `after` and up to `upto` that is oldest.
    pub(crate) fn first(&self, after: Seq, upto: Seq) -> Option<(Seq, Seq)> {
        let parts = self.0.iter().map(|(begin, end)| ((*begin).max(after), (*end).min(upto)));
        parts.into_iter().find(|(begin, end)| begin < end)
    }

    /// Returns the part behind `after` and up to `upto` that is newest.
    pub(crate) fn last(&self, after: Seq, upto: Seq) -> Option<(Seq, Seq)> {
        let parts = self.0.iter().rev().map(|(begin, end)| ((*begin).max(after), (*end).min(upto)));
        parts.into_iter().find(|(begin, end)| begin < end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The bounds of a change begin with the last news of its source, which are a moment older than the entry of those news.
    #[test]
    fn a_change_is_behind_the_version_before_unless_its_time_is_from_before_that() {
        let at = |millis: i64| Timestamp::from_millisecond(millis).unwrap();
        let span = |is, earliest: i64, latest: i64| Span { earliest: at(earliest), latest: at(latest), is };
        for (what, span, before, expected) in [
            ("bounds that begin a moment earlier", span(Known::Between, 5_000, 90_000), 5_003, Some(5_003)),
            ("bounds that begin later", span(Known::Between, 7_000, 90_000), 5_003, Some(7_000)),
            ("a stamp of the same second", span(Known::Stamped, 5_000, 5_999), 5_003, Some(5_003)),
            ("a stamp of the second before", span(Known::Stamped, 4_000, 4_999), 5_003, None),
            ("bounds from before", span(Known::Between, 1_000, 4_000), 5_003, None),
        ] {
            assert_eq!(span.behind(at(before)).map(|span| span.earliest), expected.map(at), "{what}");
        }
    }
}
