//! The time of a change in the cluster, where that is not the time at which it is journaled.
//!
//! # Decision: an entry that comes late says between which times it happened
//!
//! Context: After an outage, or where a watch is behind, what comes now happened earlier, and a deletion carries no time.
//! Decision: A source that is behind knows since when. An entry of it that has no stamp of its own gets the time since when, raised
//! by the stamps that came before it in the order of versions, and the time at which it was handed over. The journal keeps a short
//! list of the stretches of late entries, so that questions by time look there as well.
//! Cost: A key of some entries, and a row for each stretch.

use jiff::Timestamp;
use rusqlite::params;

use super::transaction::Source;
use super::{Transaction, micros, sql};
use crate::core::change;
use crate::core::model::{EntryType, Evidence, Observed, ResourceVersion};
use crate::core::runtime;
use crate::journal::error::Result;

/// Microseconds between a change and its entry up to which the time of the entry is that of the change. Stamps are cut to whole
/// seconds, and what is journaled within the next second is journaled at once.
pub(crate) const LATE: i64 = 2_000_000;
/// Microseconds by which a change may be late without notice: an interval of the readings of the newest version, and time for an answer.
pub(crate) const UNNOTICED_MAX: i64 = 15_000_000;
/// Microseconds by which the clock of the API server may be behind ours.
const SKEW_MAX: i64 = 60_000_000;
/// Microseconds of a whole second, to which stamps are cut.
const SECOND: i64 = 1_000_000;
/// Late entries that are so many seqs apart are of one stretch, which has at most [`LATE_STRETCH`] seqs.
const LATE_APART: u64 = 64;
const LATE_STRETCH: u64 = 4096;

/// The time of a change in the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Moment {
    /// Earliest and latest time, microseconds since 1970, where nothing else says it.
    pub(super) bounds: Option<(i64, i64)>,
    /// Earliest time, microseconds since 1970, if it is earlier than the time of the entry.
    pub(super) late_since: Option<i64>,
}

impl Moment {
    /// Returns the moment of an entry that is written at `now`. It was handed over at `at` and happened since `since`, and its stamp
    /// is `stamped`; one of before `since` is not of this change.
    fn new(since: Option<i64>, stamped: Option<i64>, at: i64, now: i64) -> Self {
        let at = if (1..now).contains(&at) { at } else { now };
        // What waited for the writer happened before that.
        let since = since.or((now - at >= LATE).then_some(at));
        let stamped = stamped.filter(|stamped| since.is_none_or(|since| stamped + SECOND > since));
        match (stamped, since) {
            (Some(stamped), _) => {
                Self { bounds: None, late_since: Some(stamped).filter(|stamped| now - stamped >= LATE) }
            }
            (None, Some(since)) if now - since >= LATE => {
                Self { bounds: Some((since.min(at), at)), late_since: Some(since.min(at)) }
            }
            (None, _) => Self { bounds: None, late_since: None },
        }
    }
}

impl Moment {
    /// Moves the earliest time to before the last news, which were journaled at once and made a little earlier, but not to before
    /// `proved`.
    fn at_once_before(self, proved: Option<i64>) -> Self {
        let earlier = |earliest: i64| (earliest - LATE).max(proved.unwrap_or(i64::MIN)).min(earliest);
        let bounds = self.bounds.map(|(earliest, latest)| (earlier(earliest), latest));
        Self { bounds, late_since: bounds.map(|(earliest, _)| earliest).or(self.late_since) }
    }
}

/// Earliest and latest time of a version, microseconds since 1970, as far as dates say them.
#[derive(Clone, Copy, Debug, Default)]
struct Dated {
    earliest: Option<i64>,
    latest: Option<i64>,
    /// Set if the dates reach up to the version: they are no older than it.
    is_reached: bool,
}

impl Dated {
    /// Reports whether the version was made some time before `at`, or may have been.
    fn is_late(self, at: i64) -> bool {
        let is_older = self.latest.is_some_and(|latest| latest <= at - LATE);
        is_older || self.is_reached && self.earliest.is_none_or(|earliest| earliest < at - UNNOTICED_MAX)
    }
}

impl Source {
    /// Returns the time of a version, or of the one that is so many later.
    fn dated(&self, version: &ResourceVersion, later: u64) -> Dated {
        let Ok(version) = version.as_str().parse::<u64>().map(|version| version.saturating_add(later)) else {
            return Dated::default();
        };
        let before = self.dates.range(..=version).next_back().map(|(_, (earliest, _))| *earliest);
        let behind = self.dates.range(version..).next().map(|(_, (_, latest))| *latest);
        Dated {
            earliest: before.filter(|time| *time > i64::MIN),
            latest: behind.filter(|time| *time < i64::MAX),
            is_reached: behind.is_some(),
        }
    }

    /// Moves on the time at which nothing was missing, once everything up to a version has come: to now, unless the next version was
    /// made some time ago.
    pub(super) fn move_good(&mut self, version: &ResourceVersion, at: i64) {
        let dated = self.dated(version, 1);
        let is_late = self.behind.is_some() || dated.is_late(at);
        let proved = || dated.earliest.max(self.behind).map_or(self.good_at, |proved| proved.max(self.good_at));
        self.good_at = if is_late { proved() } else { at };
    }
}

impl Transaction<'_> {
    /// Returns the moment of an entry that is written at `now`, and moves on since when its source is behind.
    pub(super) fn moment_of(
        &mut self,
        source_id: i64,
        (op, evidence): (EntryType, Evidence),
        object: &Observed,
        happened: Option<Timestamp>,
        now: i64,
    ) -> Result<Moment> {
        // What a first list found says since when it is so, and not what happened.
        if evidence == Evidence::Listed {
            return Ok(Moment { bounds: None, late_since: None });
        }
        let (is_watched, at) = (evidence == Evidence::Watched, self.at);
        let source = self.source(source_id)?;
        let mut dated = source.dated(&object.version, 0);
        // The version of an object that was found to be gone is that of its last change.
        if op == EntryType::Deleted && evidence == Evidence::Inferred {
            dated.latest = None;
        }
        let is_late = dated.is_late(if is_watched { at } else { now });
        // What is late may be older than the news that came before it.
        let latest = dated.latest.filter(|_| is_late).unwrap_or(i64::MAX);
        let good = Some(source.good_at).filter(|good| (!is_watched || is_late) && (1..latest).contains(good));
        let mut since = source.behind.filter(|behind| *behind < latest).or(good);
        let stamped = happened.map(Timestamp::as_microsecond);
        // The source had news after that: the stamp is not of this change.
        if is_watched && since.is_none() && stamped.is_some_and(|stamped| stamped + SKEW_MAX < source.good_at) {
            return Ok(Moment { bounds: Some((now, now)), late_since: None });
        }
        // An object is deleted after the last change of it.
        let last = since.filter(|_| op == EntryType::Deleted).and_then(|_| change::newest_stamp(&object.body.bytes));
        let last = last.map(Timestamp::as_microsecond).filter(|last| *last <= now);
        let mut at = if is_watched { at } else { now };
        let proved = if since.is_some() || is_late { dated.earliest.max(last) } else { None };
        since = since.max(proved);
        if stamped.is_none() || is_late {
            at = dated.latest.filter(|latest| since.is_none_or(|since| (since..at).contains(latest))).unwrap_or(at);
        }
        let moment = Moment::new(since, stamped, at, now).at_once_before(proved);
        let stamp = stamped.filter(|stamped| moment.bounds.is_none() && *stamped <= now);
        // What an inferred difference brings comes in the order of names.
        if let (Some(since), Some(stamp), true) = (since, stamp, evidence != Evidence::Inferred)
            && let Some(source) = self.touch(source_id)
        {
            let is_present = is_watched && now - stamp < LATE;
            source.behind = if is_present { None } else { Some(since.max(stamp)) };
        }
        Ok(moment)
    }

    /// Notes, at the start of a daemon, since when none ran.
    pub(super) fn note_absence(&mut self) -> Result {
        let what = "note since when no daemon ran";
        let since: i64 = self
            .conn
            .query_row(
                "SELECT max(coalesce((SELECT max(good_at) FROM source), 0),
                            coalesce((SELECT CAST(value AS INTEGER) FROM meta WHERE key = 'ended'), 0),
                            coalesce((SELECT time FROM entry ORDER BY seq DESC LIMIT 1), 0))",
                [],
                |row| row.get(0),
            )
            .map_err(sql(what))?;
        let now = micros(runtime::now());
        if since > 0 && now - since >= LATE {
            self.begin()?;
            self.execute(what, "INSERT OR REPLACE INTO absence VALUES (?, ?)", params![since, now])?;
        }
        Ok(())
    }

    /// Notes, at the end of a daemon, that it ran until now. One that is killed ran at least until its last news.
    pub(super) fn note_end(&mut self) -> Result {
        let now = micros(runtime::now()).to_string();
        self.execute("note its end", "INSERT OR REPLACE INTO meta VALUES ('ended', ?)", params![now])?;
        Ok(())
    }

    /// Notes that an entry was journaled after it happened, or may have been: at the earliest at `since`, microseconds since 1970.
    pub(super) fn note_late(&mut self, seq: u64, since: i64) -> Result {
        let what = "note since when an entry may be so";
        let extended = self.execute(
            what,
            "UPDATE late SET last = ?1, since = min(since, ?2)
             WHERE first = (SELECT max(first) FROM late) AND last >= ?1 - ?3 AND first > ?1 - ?4",
            params![seq, since, LATE_APART, LATE_STRETCH],
        )?;
        if extended == 0 {
            self.execute(what, "INSERT INTO late VALUES (?1, ?1, ?2)", params![seq, since])?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn s(seconds: i64) -> i64 {
        seconds * SECOND
    }

    #[test]
    fn a_moment_is_the_stamp_or_lies_between_the_last_good_time_and_the_hand_over() {
        let cases = [
            ("seen at once", (None, None, s(100), s(100)), (None, None)),
            ("stamped now", (None, Some(s(99)), s(100), s(100)), (None, None)),
            ("stamped earlier", (None, Some(s(40)), s(100), s(100)), (None, Some(s(40)))),
            ("behind, and stamped", (Some(s(30)), Some(s(40)), s(100), s(100)), (None, Some(s(40)))),
            (
                "behind, and stamped in the second of the bound",
                (Some(s(30) + 5), Some(s(30)), s(100), s(100)),
                (None, Some(s(30))),
            ),
            ("behind, and stamped now", (Some(s(30)), Some(s(99)), s(100), s(100)), (None, None)),
            ("behind, without a stamp", (Some(s(30)), None, s(100), s(100)), (Some((s(30), s(100))), Some(s(30)))),
            (
                "behind, with the stamp of an older change",
                (Some(s(30)), Some(s(10)), s(100), s(100)),
                (Some((s(30), s(100))), Some(s(30))),
            ),
            ("behind by a second", (Some(s(99)), None, s(100), s(100)), (None, None)),
            ("it waited for the writer", (None, None, s(90), s(100)), (Some((s(90), s(90))), Some(s(90)))),
            ("behind, and it waited", (Some(s(30)), None, s(90), s(100)), (Some((s(30), s(90))), Some(s(30)))),
            ("nobody knows when it was handed over", (None, None, 0, s(100)), (None, None)),
            ("the clock was set back", (Some(s(120)), None, s(130), s(100)), (None, None)),
        ];
        for (name, (since, stamped, at, now), (bounds, late_since)) in cases {
            assert_eq!(Moment::new(since, stamped, at, now), Moment { bounds, late_since }, "{name}");
        }
    }
}
