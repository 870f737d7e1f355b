//! Judgement of one source: lists, gaps and what was watched, row by row.

use std::collections::{BTreeMap, BTreeSet};

use super::entry::{Entry, Key, Kind, Row};
use super::{Scope, Verdict};

/// An object as the log last told it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Known {
    pub uid: String,
    pub rev: u64,
}

pub type State = BTreeMap<Key, Known>;

pub fn apply(state: &mut State, row: &Row) {
    match row.kind {
        Kind::Deleted => state.remove(&row.key),
        Kind::Added | Kind::Modified => state.insert(row.key.clone(), Known { uid: row.uid.clone(), rev: row.rev }),
    };
}

/// One source: its truth, its entries, and how far the comparison is.
pub(super) struct Source<'a> {
    pub(super) name: String,
    pub(super) rows: Vec<&'a Row>,
    /// What the restored etcd tells instead.
    pub(super) restored: Option<Vec<&'a Row>>,
    pub(super) entries: Vec<&'a Entry>,
    pub(super) scope: &'a Scope,
    /// The next entry to look at.
    pub(super) at: usize,
    /// The next row that the log has to tell.
    pub(super) next: usize,
    /// Rows before that which come later.
    pub(super) late: Vec<&'a Row>,
    pub(super) known: State,
}

impl<'a> Source<'a> {
    pub(super) fn judge(mut self, verdict: &mut Verdict) {
        let floor = self.scope.started;
        self.list(floor, verdict);
        while let Some(&entry) = self.entries.get(self.at) {
            if entry.is_gap() {
                self.gap(entry, verdict);
            } else {
                self.watched(entry, verdict);
            }
        }
        verdict.wrong.extend(self.late.iter().map(|row| format!("{}: missing {row}", self.name)));
        let late: Vec<String> = self.rows[self.next..]
            .iter()
            .take_while(|row| row.rev <= self.scope.upto)
            .map(|row| format!("{}: {row}", self.name))
            .collect();
        verdict.behind.extend(late);
    }

    /// A list without a gap before it: the entries marked `listed` are the state at one moment after `floor`.
    /// The log does not say which moment, so every one that fits them, and what follows, is right.
    fn list(&mut self, floor: u64, verdict: &mut Verdict) {
        let from = self.at;
        let listed: Vec<&'a Entry> =
            self.entries[from..].iter().copied().take_while(|entry| entry.evidence == "listed").collect();
        self.at += listed.len();
        let following = self.entries.get(self.at).copied();
        // A gap that follows says up to where nothing is missing, so the list was not later than that.
        let before_gap = following
            .filter(|entry| entry.is_gap())
            .map(|entry| entry.gap.as_ref()?.from.as_ref()?.parse::<u64>().ok())
            .map(Option::unwrap_or_default);
        if listed.is_empty()
            && let Some(from) = before_gap
        {
            // There was none, or it found nothing and nothing came before the gap.
            let found = self.rows.partition_point(|row| row.rev <= from);
            if found > self.next && from > floor && self.state_after(found).is_empty() {
                self.next = found;
            }
            return;
        }
        let mut wanted: BTreeMap<Key, u64> = BTreeMap::new();
        for entry in &listed {
            if entry.kind != "ADDED" || wanted.insert(entry.key(), entry.rv()).is_some() {
                verdict.wrong.push(format!("{}: a list has each object once, ADDED: {entry}", self.name));
            }
        }
        // Rows before the list made the state that it found; `matching` counts the objects that are as listed.
        let mut state = State::new();
        let mut matching = 0_usize;
        let mut fits = None;
        let mut nearest = (usize::MAX, 0);
        for consumed in 0..=self.rows.len() {
            if consumed > 0 {
                let row = self.rows[consumed - 1];
                let as_listed =
                    |state: &State| state.get(&row.key).is_some_and(|known| wanted.get(&row.key) == Some(&known.rev));
                let before = as_listed(&state);
                apply(&mut state, row);
                matching = matching + usize::from(as_listed(&state)) - usize::from(before);
            }
            let next = self.rows.get(consumed);
            if fits.is_some() && before_gap.is_some_and(|from| from > 0 && self.rows[consumed - 1].rev > from) {
                break;
            }
            // The last moment of this state is just before the next row.
            if next.is_some_and(|row| row.rev <= floor) {
                continue;
            }
            let off = state.len() + wanted.len() - 2 * matching;
            if off < nearest.0 {
                nearest = (off, consumed);
            }
            if off > 0 {
                continue;
            }
            match following {
                Some(entry) if !entry.is_gap() => {
                    if fits.is_none() || next.is_some_and(|row| row.rev == entry.rv()) {
                        fits = Some(consumed);
                    }
                    if next.is_some_and(|row| row.rev >= entry.rv()) {
                        break;
                    }
                }
                _ => fits = Some(consumed),
            }
        }
        if fits.is_none() {
            self.list_fits_nowhere(&wanted, nearest.1, following.is_none(), verdict);
        }
        self.next = fits.unwrap_or(nearest.1);
        self.known = self.state_after(self.next);
        // Where the list fits nowhere, its entries cannot be told one by one.
        for entry in listed.into_iter().filter(|_| fits.is_some()) {
            if let Some(known) = self.known.get(&entry.key()) {
                self.bind(entry, &known.uid, verdict);
            }
        }
    }

    fn list_fits_nowhere(&self, wanted: &BTreeMap<Key, u64>, nearest: usize, last: bool, verdict: &mut Verdict) {
        let state = self.state_after(nearest);
        let missing: Vec<_> = state.iter().filter(|(key, _)| !wanted.contains_key(*key)).collect();
        let other: Vec<_> =
            wanted.iter().filter(|(key, rev)| state.get(*key).is_none_or(|known| known.rev != **rev)).collect();
        let text = format!(
            "{}: the list of {} objects is the state at no moment; nearest after {}: {} missing {:?}, {} other {:?}",
            self.name,
            wanted.len(),
            nearest.checked_sub(1).map_or("nothing".to_owned(), |index| self.rows[index].to_string()),
            missing.len(),
            missing.iter().take(3).collect::<Vec<_>>(),
            other.len(),
            other.iter().take(3).collect::<Vec<_>>(),
        );
        // A list may still be on its way into the file.
        if last { verdict.behind.push(text) } else { verdict.wrong.push(text) }
    }

    /// A GAP of versions of one object that were lost between two that are told: there are some.
    fn gap_of_object(&self, entry: &Entry, (from, to): (Option<u64>, Option<u64>), verdict: &mut Verdict) {
        let is_lost = |row: &Row| row.key == entry.key() && from < Some(row.rev) && Some(row.rev) <= to;
        if !self.rows[..self.next].iter().any(|row| is_lost(row)) {
            verdict.wrong.push(format!("{}: a gap of an object that lacks nothing there: {entry}", self.name));
        }
    }

    /// A GAP: nothing up to `from` may be missing; what follows it is the net difference up to `to`.
    fn gap(&mut self, entry: &'a Entry, verdict: &mut Verdict) {
        self.at += 1;
        let gap = entry.gap.clone().unwrap_or_default();
        let number = |text: &Option<String>| text.as_deref().map(|text| text.parse::<u64>().unwrap_or(0));
        let (from, to) = (number(&gap.from), number(&gap.to));
        let is_told = |rev: u64| self.next > 0 && self.rows[self.next - 1].rev > rev;
        if gap.why == "audit" && !entry.name.is_empty() && to.is_some_and(is_told) {
            return self.gap_of_object(entry, (from, to), verdict);
        }
        let before = self.entries[..self.at - 1].iter().rev().take_while(|entry| entry.evidence == "recovered").count();
        if gap.recovered.is_some_and(|recovered| recovered == 0 || recovered > before as u64) {
            verdict.wrong.push(format!("{}: {before} changes were recovered before {entry}", self.name));
        }
        if from == Some(0) || to == Some(0) {
            verdict.wrong.push(format!("{}: a gap between what are no versions: {entry}", self.name));
        }
        if let Some(from) = from {
            while let Some(row) = self.rows.get(self.next).filter(|row| row.rev <= from) {
                verdict.wrong.push(format!("{}: before {entry} is missing {row}", self.name));
                self.next += 1;
            }
        }
        if let Some(restored) = self.restored.take_if(|_| entry.is_rollback()) {
            self.rows = restored;
            self.next = 0;
        }
        let difference: Vec<&'a Entry> =
            self.entries[self.at..].iter().copied().take_while(|entry| entry.evidence == "inferred").collect();
        self.at += difference.len();
        // Without `to` the resource is gone from the API, and nothing of it is left.
        let end = to.map_or(self.next, |to| self.rows.partition_point(|row| row.rev <= to).max(self.next));
        let state = if to.is_some() { self.state_after(end) } else { State::new() };
        if to.is_some_and(|to| self.next > 0 && self.rows[self.next - 1].rev > to) {
            verdict.wrong.push(format!("{}: the gap ends before what is in the log already: {entry}", self.name));
        }

        let mut expected: BTreeMap<Key, Vec<(Kind, u64)>> = BTreeMap::new();
        for key in self.known.keys().chain(state.keys()).collect::<BTreeSet<_>>() {
            let steps = match (self.known.get(key), state.get(key)) {
                (Some(old), Some(new)) if old.uid != new.uid => {
                    vec![(Kind::Deleted, old.rev), (Kind::Added, new.rev)]
                }
                (Some(old), Some(new)) if old.rev != new.rev => vec![(Kind::Modified, new.rev)],
                (Some(_), Some(_)) => continue,
                (Some(old), None) => vec![(Kind::Deleted, old.rev)],
                (None, Some(new)) => vec![(Kind::Added, new.rev)],
                (None, None) => continue,
            };
            expected.insert(key.clone(), steps);
        }
        let mut found: BTreeMap<Key, Vec<&'a Entry>> = BTreeMap::new();
        for entry in &difference {
            found.entry(entry.key()).or_default().push(*entry);
        }
        let last = self.entries.get(self.at).is_none();
        for key in expected.keys().chain(found.keys()).cloned().collect::<BTreeSet<_>>() {
            let steps = expected.remove(&key).unwrap_or_default();
            let entries = found.remove(&key).unwrap_or_default();
            // The restored etcd may have given the same version to something else: then a patch says what.
            let again = |told: &Entry| {
                told.type_of() == Some(Kind::Modified)
                    && state.get(&key).is_some_and(|known| known.rev == told.rv() && known.uid == told.uid)
                    && told.change.as_ref().is_some_and(|change| !change.patch.is_empty())
            };
            if entry.is_rollback() && steps.is_empty() && entries.len() == 1 && entries.iter().all(|told| again(told)) {
                continue;
            }
            let fits = steps.len() >= entries.len()
                && steps
                    .iter()
                    .zip(&entries)
                    .all(|((kind, rev), entry)| entry.type_of() == Some(*kind) && *rev == entry.rv());
            if fits {
                for ((kind, _), entry) in steps.iter().zip(&entries) {
                    let known = if *kind == Kind::Deleted { self.known.get(&key) } else { state.get(&key) };
                    if let Some(known) = known {
                        self.bind(entry, &known.uid, verdict);
                    }
                }
            }
            if !fits || steps.len() > entries.len() {
                let entries: Vec<String> = entries.iter().map(ToString::to_string).collect();
                let text = format!("{}: after {entry} expected {steps:?} of {key:?}, found {entries:?}", self.name);
                if fits && last { verdict.behind.push(text) } else { verdict.wrong.push(text) }
            }
        }
        self.known = state;
        self.next = end;
        if to.is_none() {
            let floor = self.next.checked_sub(1).map_or(0, |index| self.rows[index].rev);
            self.list(floor.max(from.unwrap_or(0)), verdict);
        }
    }

    /// An entry outside of lists and gaps is the next row, and nothing else.
    fn watched(&mut self, entry: &'a Entry, verdict: &mut Verdict) {
        self.at += 1;
        if !entry.is_seen() {
            verdict.wrong.push(format!("{}: {} without a list or a gap: {entry}", self.name, entry.evidence));
        }
        let is_it = |row: &&Row| {
            row.rev == entry.rv()
                && Some(row.kind) == entry.type_of()
                && row.key.0 == entry.namespace
                && row.key.1 == entry.name
        };
        let Some(ahead) = self.rows[self.next..].iter().position(is_it) else {
            // What a watch left out, and an audit found, comes behind what was told meanwhile of other objects.
            if let Some(late) = self.late.iter().position(&is_it).filter(|_| entry.evidence == "recovered") {
                let row = self.late.remove(late);
                let newer = |told: &&&Row| told.key == row.key && told.rev > row.rev && !self.late.contains(*told);
                if let Some(newer) = self.rows[..self.next].iter().find(newer) {
                    verdict.wrong.push(format!("{}: told behind {newer}: {entry}", self.name));
                }
                self.bind(entry, &row.uid, verdict);
                apply(&mut self.known, row);
                return;
            }
            let why = if self.rows[..self.next].iter().any(is_it) {
                "twice or out of order"
            } else {
                "not in etcd's history"
            };
            verdict.wrong.push(format!("{}: {why}: {entry}{}", self.name, self.context()));
            return;
        };
        // Several objects may be deleted at one revision, and what is read of it later has no order.
        let ahead = match &mut self.rows[self.next..=self.next + ahead] {
            together if entry.evidence == "recovered" && together.iter().all(|row| row.rev == entry.rv()) => {
                together.rotate_right(1);
                0
            }
            _ => ahead,
        };
        for row in &self.rows[self.next..self.next + ahead] {
            if self.scope.late && self.comes_late(row) {
                self.late.push(row);
            } else if !self.is_covered(row) {
                verdict.wrong.push(format!("{}: missing {row}{}", self.name, self.context()));
            }
        }
        self.next += ahead;
        let row = self.rows[self.next];
        self.next += 1;
        self.bind(entry, &row.uid, verdict);
        apply(&mut self.known, row);
    }

    /// Whether the row is told later, because its watch left it out and an audit found it.
    fn comes_late(&self, row: &Row) -> bool {
        self.entries[self.at..].iter().any(|entry| {
            entry.evidence == "recovered"
                && entry.rv() == row.rev
                && (&entry.namespace, &entry.name) == (&row.key.0, &row.key.1)
        })
    }

    /// Whether an audit's gap, which comes later, says that the row may be missing.
    fn is_covered(&self, row: &Row) -> bool {
        let gaps = self.entries[self.at..].iter().filter_map(|entry| entry.gap.as_ref());
        let bound = |text: &Option<String>| text.as_deref().and_then(|text| text.parse::<u64>().ok());
        gaps.filter(|gap| gap.why == "audit")
            .any(|gap| bound(&gap.from).is_some_and(|from| from < row.rev) && bound(&gap.to) >= Some(row.rev))
    }

    /// The uid is the one that etcd holds.
    fn bind(&self, entry: &Entry, uid: &str, verdict: &mut Verdict) {
        if entry.uid != uid {
            verdict.wrong.push(format!("{}: uid is {}, not {uid}: {entry}", self.name, entry.uid));
        }
    }

    fn state_after(&self, consumed: usize) -> State {
        let mut state = State::new();
        for row in &self.rows[..consumed] {
            apply(&mut state, row);
        }
        state
    }

    /// The neighbourhood of the entry just looked at.
    fn context(&self) -> String {
        let mut text = String::new();
        for entry in &self.entries[self.at.saturating_sub(3)..(self.at + 1).min(self.entries.len())] {
            text += &format!("\n    log   {entry}");
        }
        for row in &self.rows[self.next.saturating_sub(2)..(self.next + 2).min(self.rows.len())] {
            text += &format!("\n    etcd  {row}");
        }
        text
    }
}
