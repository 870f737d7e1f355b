//! Storage rewrites in the answer of `tail`: one item each.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use super::super::rewritten::Bare;
use crate::core::model::Seq;
use crate::journal::{Reader, StoredEntry};
use crate::query::churn::Classes;
use crate::query::render::Failure;
use crate::query::rewrites::{self, MANY, Rewrite, Rewrites, Sizes, is_named};
use crate::query::select::Selection;
use crate::query::{Log, stamp};

/// Number of entries that are looked at for the beginning of a storage rewrite …
const MOST: usize = 200_000;
/// … and of what may not be one.
const MOST_UNKNOWN: usize = 4096;
/// Number of entries that are looked at before the first of them is handed out.
const STRETCH: usize = 16_384;
/// Factor by which more entries are looked at.
const GROWTH: usize = 8;
/// Time without a write after which a storage rewrite that is followed is shown, and time after which it is shown while it goes on.
const QUIET_PERIOD: Duration = Duration::from_secs(10);
const INTERVAL: Duration = Duration::from_secs(60);

/// The storage rewrites among the entries of an answer.
#[derive(Clone, Debug, Default)]
pub(super) struct Folded {
    classes: Classes,
    sizes: Sizes,
    /// Those of the past, and the seqs of their entries.
    past: Vec<Rewrite>,
    seqs: HashSet<u64>,
    /// The newest seq of the past, and that up to which its storage rewrites are known.
    head: Seq,
    known: Seq,
    /// Goes on with what comes.
    rewrites: Rewrites,
    /// Seqs of what has come that is part of one.
    going_on: HashSet<u64>,
    going: Vec<Going>,
}

/// A storage rewrite that is followed, since it was shown last.
#[derive(Clone, Debug)]
struct Going {
    rewrite: Rewrite,
    names: HashSet<(String, String)>,
    /// Number of writes that name their writer.
    named: usize,
    first: i64,
    begun: Instant,
    last: Instant,
}

/// Place of an entry in the answer.
pub(super) enum Place {
    /// It stands for itself.
    Alone,
    /// The last of a storage rewrite, which stands there.
    Rewrite(Box<Rewrite>),
    /// One of the others.
    Below,
}

/// What was looked at, from a place on.
#[derive(Default)]
struct Seen {
    rewrites: Rewrites,
    /// Seqs of all entries.
    seqs: Vec<u64>,
    /// Times of the first and the last.
    begin: i64,
    end: i64,
}

impl Folded {
    /// Begins with nothing known of the past, which ends with a seq.
    ///
    /// # Errors
    /// Where the journal cannot be read.
    pub(super) fn from(reader: &Reader, begin: Seq, head: Seq) -> Result<Self, Failure> {
        let sizes = reader.small_resources(MANY)?;
        let rewrites = Rewrites::among(sizes.clone());
        Ok(Self { head, known: begin, sizes, rewrites, ..Self::default() })
    }

    /// Finds the storage rewrites of the next stretch of the past, if they are not known. Returns its end.
    ///
    /// # Errors
    /// Where the journal cannot be read.
    pub(super) fn stretch(
        &mut self,
        selection: &Selection,
        reader: &mut Reader,
        (after, head): (Seq, Seq),
        log: &Log<'_>,
    ) -> Result<Seq, Failure> {
        if after < self.known {
            return Ok(self.known.min(head));
        }
        if log.sees_all() {
            return self.look(selection, reader, after, head);
        }
        // What was looked at before it was decided is void.
        let (looked, reached) = log.decided(|| {
            let mut next = self.clone();
            let reached = next.look(selection, reader, after, head)?;
            Ok((next, reached))
        })?;
        *self = looked;
        Ok(reached)
    }

    fn look(&mut self, selection: &Selection, reader: &mut Reader, after: Seq, head: Seq) -> Result<Seq, Failure> {
        if after >= self.head {
            self.follow(selection, reader, after, head)?;
            return Ok(head);
        }
        let mut seen = Seen::among(&self.sizes);
        let mut reached = after;
        while reached < self.head {
            reached = seen.page(selection, reader, &self.classes, (reached, self.head))?;
            let is_open = seen.seqs.len() < MOST && seen.rewrites.reaching(seen.end) >= MANY;
            if seen.seqs.len() >= STRETCH && !is_open {
                break;
            }
        }
        self.learn(seen.rewrites);
        self.known = reached;
        Ok(reached)
    }

    /// Looks at what has come, all of it before the first is handed out.
    fn follow(&mut self, selection: &Selection, reader: &mut Reader, after: Seq, head: Seq) -> Result<(), Failure> {
        let mut seen = Seen { rewrites: std::mem::take(&mut self.rewrites), ..Seen::default() };
        let mut reached = after;
        while reached < head {
            reached = seen.page(selection, reader, &self.classes, (reached, head))?;
        }
        self.rewrites = seen.rewrites;
        (self.going_on, self.known) = (self.rewrites.going_on(after.0), head);
        Ok(())
    }

    fn learn(&mut self, rewrites: Rewrites) {
        self.past = rewrites.clone().finish();
        self.rewrites = rewrites;
        self.seqs = rewrites::seqs(&self.past);
        // Each is shown at its last entry.
        self.past.iter().for_each(|rewrite| _ = self.seqs.remove(&rewrite.seq));
    }

    /// Finds the storage rewrites between two seqs, and the seq after which the newest `count` items are.
    ///
    /// # Errors
    /// Where the journal cannot be read.
    pub(super) fn among(
        selection: &Selection,
        reader: &mut Reader,
        (begin, head): (Seq, Seq),
        count: Option<usize>,
    ) -> Result<(Self, Seq), Failure> {
        let mut folded = Self::from(reader, head, head)?;
        let mut looked = count.unwrap_or(usize::MAX);
        loop {
            let after = match looked {
                0 => head,
                usize::MAX => begin,
                looked => selection.newest(reader, begin, head, looked)?,
            };
            let (mut seen, mut reached) = (Seen::among(&folded.sizes), after);
            while reached < head {
                reached = seen.page(selection, reader, &folded.classes, (reached, head))?;
            }
            let reaching = seen.rewrites.reaching(seen.begin);
            folded.learn(seen.rewrites);
            let items: Vec<u64> = seen.seqs.into_iter().filter(|seq| !folded.seqs.contains(seq)).collect();
            let most = if reaching >= MANY { MOST } else { MOST_UNKNOWN };
            let is_enough = count.is_none_or(|count| items.len() >= count) && (reaching == 0 || looked >= most);
            if is_enough || after <= begin || looked == 0 || looked >= MOST {
                let left_out = count.and_then(|count| items.len().checked_sub(count)).filter(|left_out| *left_out > 0);
                let after = left_out.map_or(after, |left_out| Seq(items[left_out - 1]));
                return Ok((folded, after));
            }
            looked = looked.saturating_mul(GROWTH).min(MOST);
        }
    }

    /// Says where an entry stands. What comes after the past is folded from the time on at which it is known for a storage rewrite.
    pub(super) fn place(&mut self, stored: &StoredEntry) -> Place {
        if stored.seq <= self.head {
            if self.seqs.contains(&stored.seq.0) {
                return Place::Below;
            }
            let last = self.past.iter().find(|rewrite| rewrite.seq == stored.seq.0);
            return last.map_or(Place::Alone, |rewrite| Place::Rewrite(Box::new(rewrite.clone())));
        }
        match Bare::read(&self.classes, stored).filter(|bare| self.going_on.contains(&bare.seq)) {
            Some(bare) => {
                self.go_on(bare);
                Place::Below
            }
            None => Place::Alone,
        }
    }

    fn go_on(&mut self, bare: Bare) {
        let now = Instant::now();
        let is_its = |going: &&mut Going| {
            let by = &going.rewrite.by;
            going.rewrite.resource == bare.resource && (bare.by.is_none() || by.is_none() || *by == bare.by)
        };
        let place = self.going.iter_mut().position(|going| is_its(&going));
        let going = match place {
            Some(place) => &mut self.going[place],
            None => {
                let since = stamp(bare.time);
                self.going.push(Going {
                    rewrite: Rewrite {
                        resource: bare.resource.clone(),
                        namespace: Some(bare.namespace.clone()).filter(|namespace| !namespace.is_empty()),
                        by: None,
                        objects: 0,
                        writes: 0,
                        since: since.clone(),
                        until: since,
                        seq: 0,
                        seqs: Vec::new(),
                    },
                    names: HashSet::new(),
                    named: 0,
                    first: bare.time,
                    begun: now,
                    last: now,
                });
                let last = self.going.len() - 1;
                &mut self.going[last]
            }
        };
        going.last = now;
        going.named += usize::from(bare.by.is_some());
        let rewrite = &mut going.rewrite;
        rewrite.writes += 1;
        rewrite.seq = bare.seq;
        rewrite.until = stamp(bare.time.max(going.first));
        rewrite.by = rewrite.by.take().or(bare.by);
        rewrite.namespace = rewrite.namespace.take().filter(|namespace| *namespace == bare.namespace);
        going.names.insert((bare.namespace, bare.name));
        rewrite.objects = going.names.len();
    }

    /// Returns the moment at which the next storage rewrite is shown that is followed.
    pub(super) fn due(&self) -> Option<Instant> {
        self.going.iter().map(Going::due).min()
    }

    /// Takes the storage rewrites that are to be shown now.
    pub(super) fn take_due(&mut self) -> Vec<Rewrite> {
        let now = Instant::now();
        let due = self.going.extract_if(.., |going| going.due() <= now);
        due.map(|Going { rewrite, named, .. }| {
            let by = rewrite.by.clone().filter(|_| is_named(named, rewrite.writes));
            Rewrite { by, ..rewrite }
        })
        .collect()
    }
}

impl Going {
    fn due(&self) -> Instant {
        (self.last + QUIET_PERIOD).min(self.begun + INTERVAL)
    }
}

impl Seen {
    fn among(sizes: &Sizes) -> Self {
        Self { rewrites: Rewrites::among(sizes.clone()), ..Self::default() }
    }

    /// Looks at a page of entries. Returns how far it came.
    fn page(
        &mut self,
        selection: &Selection,
        reader: &mut Reader,
        classes: &Classes,
        (after, head): (Seq, Seq),
    ) -> Result<Seq, Failure> {
        let (entries, reached) = selection.page(reader, after, head)?;
        for (at, entry) in entries.iter().enumerate() {
            if self.seqs.is_empty() {
                self.begin = reader.time_of(entry.seq)?.unwrap_or_default();
            }
            if at + 1 == entries.len() {
                self.end = reader.time_of(entry.seq)?.unwrap_or_default();
            }
            self.seqs.push(entry.seq.0);
            if let Some(bare) = Bare::read(classes, entry) {
                self.rewrites.take(&bare.write());
            }
        }
        Ok(reached)
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use jiff::tz::TimeZone;
    use serde_json::json;

    use super::*;
    use crate::core::rights::Sight;
    use crate::query::Log;
    use crate::query::churn::tests::Story;
    use crate::query::render::clock::Clock;
    use crate::query::select::Select;

    /// Number of objects that are stored again.
    const MAPS: u64 = 14;

    #[tokio::test(start_paused = true)]
    async fn what_is_followed_is_shown_once_it_rests_or_has_gone_on_for_long() {
        let dir = tempfile::tempdir().unwrap();
        Story::play(dir.path(), &[], async |story| {
            let map = |number: u64| format!("shop/m{number}");
            for number in 0..MAPS {
                story.write("configmaps", &map(number), "helm", |map| map["data"] = json!({"a": "1"})).await;
            }
            for number in 0..MAPS {
                story.pass(1).await;
                story.store_again("configmaps", &map(number)).await;
            }
        })
        .await;
        let mut reader = Reader::open(dir.path()).unwrap();
        let mut folded = Folded::from(&reader, Seq(0), Seq(MAPS)).unwrap();
        let clock = Clock { now: Timestamp::now(), zone: TimeZone::UTC };
        let log = Log::new(dir.path().to_owned(), Sight::All, clock, &|_| (), &|| false);
        let selection = Selection::new(&Select::default(), &mut reader, &log).unwrap();
        // Four come alone; the other ten at once.
        let mut after = MAPS;
        for (upto, is_below) in [(MAPS + 1, false), (MAPS + 4, false), (MAPS * 2, true)] {
            folded.stretch(&selection, &mut reader, (Seq(after), Seq(upto)), &log).unwrap();
            for seq in after + 1..=upto {
                let stored = reader.entry(Seq(seq)).unwrap().unwrap();
                assert_eq!(matches!(folded.place(&stored), Place::Below), is_below, "{seq}");
            }
            after = upto;
        }
        assert!(folded.due().is_some_and(|due| due > Instant::now()));
        assert_eq!(folded.take_due(), [], "it goes on");
        let long_ago = |time: Instant, age: Duration| time.checked_sub(age).unwrap();
        for rests in [true, false] {
            let mut folded = Folded { going: vec![copy(&folded.going[0])], ..Folded::default() };
            let going = &mut folded.going[0];
            if rests {
                going.last = long_ago(going.last, QUIET_PERIOD);
            } else {
                going.begun = long_ago(going.begun, INTERVAL);
            }
            let [shown] = &folded.take_due()[..] else { panic!("rests: {rests}") };
            assert_eq!((shown.objects, shown.writes, shown.seq), (10, 10, MAPS * 2));
            assert_eq!((shown.namespace.as_deref(), shown.by.as_deref()), (Some("shop"), None));
            assert_eq!(folded.due(), None);
        }
    }

    fn copy(going: &Going) -> Going {
        let Going { rewrite, names, named, first, begun, last } = going;
        Going {
            rewrite: rewrite.clone(),
            names: names.clone(),
            named: *named,
            first: *first,
            begun: *begun,
            last: *last,
        }
    }
}
