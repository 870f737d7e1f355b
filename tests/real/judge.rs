//! The judge: compares a log with the truth, revision by revision.
//!
//! The truth is what etcd itself says of every write (`oracle.rs`); the judge shares no code with decklog and knows
//! only the contract of an entry. Outside of gaps the log of a source has to equal the truth row by row, in order;
//! a first list and the inferred entries after a GAP have to equal the state at one moment of the truth.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::fmt;

use serde::Deserialize;

/// How many differences are worth reading.
const SHOWN: usize = 20;

/// What a write did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    Added,
    Modified,
    Deleted,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Added => "ADDED",
            Self::Modified => "MODIFIED",
            Self::Deleted => "DELETED",
        })
    }
}

/// Namespace (empty for cluster-scoped objects) and name.
pub type Key = (String, String);

/// One write, as etcd tells it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// The revision of the write: the resourceVersion of what it made, or of the deletion.
    pub rev: u64,
    pub kind: Kind,
    /// The revision that created this incarnation of the object.
    pub created: u64,
    /// `plural.group`, or the plural alone for core.
    pub resource: String,
    pub key: Key,
}

/// One line of the log, as far as the judge needs it.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Entry {
    pub v: u64,
    pub seq: u64,
    pub epoch: String,
    pub id: String,
    #[serde(rename = "type")]
    pub kind: String,
    pub evidence: String,
    pub api_version: String,
    #[serde(rename = "kind")]
    pub object_kind: String,
    pub resource: String,
    pub namespace: String,
    pub name: String,
    pub uid: String,
    pub resource_version: String,
    pub object: Option<Object>,
    pub gap: Option<Gap>,
}

/// The identity inside an entry's object.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Object {
    pub metadata: Metadata,
}

/// See [`Object`].
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Metadata {
    pub namespace: String,
    pub name: String,
    pub uid: String,
    pub resource_version: String,
}

/// The gap of a GAP entry.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Gap {
    pub why: String,
    pub from: Option<String>,
    pub to: Option<String>,
    pub since: Option<String>,
}

impl Entry {
    /// `plural.group`. Events are stored once and served under two groups; either is right.
    pub fn full_resource(&self) -> String {
        match self.api_version.split_once('/') {
            Some(("events.k8s.io", _)) | None => self.resource.clone(),
            Some((group, _)) => format!("{}.{group}", self.resource),
        }
    }

    pub fn rv(&self) -> u64 {
        self.resource_version.parse().unwrap_or(0)
    }

    pub fn key(&self) -> Key {
        (self.namespace.clone(), self.name.clone())
    }

    fn type_of(&self) -> Option<Kind> {
        match self.kind.as_str() {
            "ADDED" => Some(Kind::Added),
            "MODIFIED" => Some(Kind::Modified),
            "DELETED" => Some(Kind::Deleted),
            _ => None,
        }
    }

    fn is_gap(&self) -> bool {
        self.kind == "GAP"
    }
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { seq, kind, evidence, namespace, name, resource_version, .. } = self;
        write!(f, "seq {seq:<6} {kind:<8} {evidence:<8} rv {resource_version:<8} {namespace}/{name}")?;
        if let Some(gap) = &self.gap {
            write!(f, " ({}, {:?} to {:?})", gap.why, gap.from, gap.to)?;
        }
        Ok(())
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rev {:<8} {:<8} {}/{}", self.rev, self.kind, self.key.0, self.key.1)
    }
}

/// What the judge found. Empty means that the log is the truth.
#[derive(Clone, Debug, Default)]
pub struct Verdict {
    /// Can never become right.
    pub wrong: Vec<String>,
    /// Not there yet: right, if it still comes.
    pub behind: Vec<String>,
}

impl Verdict {
    pub fn is_right(&self) -> bool {
        self.wrong.is_empty() && self.behind.is_empty()
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (title, list) in [("wrong", &self.wrong), ("missing at the end", &self.behind)] {
            if !list.is_empty() {
                writeln!(f, "{} {title}, the first {}:", list.len(), list.len().min(SHOWN))?;
            }
            for difference in list.iter().take(SHOWN) {
                writeln!(f, "- {difference}")?;
            }
        }
        Ok(())
    }
}

/// What was asked of decklog, and until when it has to be there.
#[derive(Clone, Debug)]
pub struct Scope {
    /// The first list of every source was made after this revision.
    pub started: u64,
    /// Everything up to this revision has to be in the log; what is later may be.
    pub upto: u64,
    /// One source per resource and namespace, when the configuration names namespaces.
    pub namespaces: Option<BTreeSet<String>>,
    /// The resources watched; `None` for all.
    pub resources: Option<BTreeSet<String>>,
}

impl Scope {
    /// The source that a row or an entry belongs to; `None` where it is not watched.
    fn source(&self, resource: &str, namespace: &str) -> Option<String> {
        if self.resources.as_ref().is_some_and(|all| !all.contains(resource)) {
            return None;
        }
        match &self.namespaces {
            None => Some(resource.to_owned()),
            Some(all) => all.contains(namespace).then(|| format!("{resource}/{namespace}")),
        }
    }
}

/// Compares a whole log with the whole truth (in revision order).
pub fn judge(truth: &[Row], log: &[Entry], scope: &Scope) -> Verdict {
    let mut verdict = Verdict::default();
    whole_log(log, &mut verdict.wrong);
    let mut sources: BTreeMap<String, (Vec<&Row>, Vec<&Entry>)> = BTreeMap::new();
    for row in truth {
        if let Some(source) = scope.source(&row.resource, &row.key.0) {
            sources.entry(source).or_default().0.push(row);
        }
    }
    for entry in log {
        match scope.source(&entry.full_resource(), &entry.namespace) {
            Some(source) => sources.entry(source).or_default().1.push(entry),
            None => verdict.wrong.push(format!("{}: nobody asked for {entry}", entry.full_resource())),
        }
    }
    for (name, (rows, entries)) in sources {
        Source { name, rows, entries, scope, at: 0, next: 0, known: BTreeMap::new(), uids: HashMap::new() }
            .judge(&mut verdict);
    }
    verdict
}

/// What holds for the log as a whole: dense seq, one epoch, ids that are unique and well formed, objects that are the
/// ones the entry names.
fn whole_log(log: &[Entry], wrong: &mut Vec<String>) {
    let mut ids = HashSet::new();
    for (index, entry) in log.iter().enumerate() {
        let mut say = |what: &str| wrong.push(format!("{what}: {} {entry}", entry.full_resource()));
        if entry.v != 1 {
            say("v is not 1");
        }
        if entry.seq != index as u64 + 1 {
            say(&format!("seq is not {}", index + 1));
        }
        if entry.epoch != log[0].epoch || entry.epoch.is_empty() {
            say("epoch changed");
        }
        if !ids.insert(&entry.id) {
            say(&format!("id {} appears twice", entry.id));
        }
        if entry.is_gap() {
            if entry.gap.is_none() {
                say("GAP without gap");
            }
            if entry.id != format!("{}.{}", entry.epoch, entry.seq) {
                say(&format!("id {} is not EPOCH.SEQ", entry.id));
            }
            continue;
        }
        if entry.type_of().is_none() || !["watched", "listed", "inferred"].contains(&entry.evidence.as_str()) {
            say("unknown type or evidence");
        }
        if entry.id != format!("{}.{}.{}", entry.uid, entry.resource_version, entry.kind) {
            say(&format!("id {} is not UID.RESOURCEVERSION.TYPE", entry.id));
        }
        let Some(Object { metadata }) = &entry.object else {
            say("no object");
            continue;
        };
        if (&metadata.namespace, &metadata.name, &metadata.uid) != (&entry.namespace, &entry.name, &entry.uid) {
            say("the object inside is another one");
        }
        if entry.kind != "DELETED" && metadata.resource_version != entry.resource_version {
            say("the object inside has another resourceVersion");
        }
    }
}

/// An object as the log last told it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Known {
    created: u64,
    rev: u64,
}

type State = BTreeMap<Key, Known>;

fn apply(state: &mut State, row: &Row) {
    match row.kind {
        Kind::Deleted => state.remove(&row.key),
        Kind::Added | Kind::Modified => {
            state.insert(row.key.clone(), Known { created: row.created, rev: row.rev })
        }
    };
}

/// One source: its truth, its entries, and how far the comparison is.
struct Source<'a> {
    name: String,
    rows: Vec<&'a Row>,
    entries: Vec<&'a Entry>,
    scope: &'a Scope,
    /// The next entry to look at.
    at: usize,
    /// The next row that the log has to tell.
    next: usize,
    known: State,
    /// The incarnation that a uid names: key and creating revision.
    uids: HashMap<&'a str, (Key, u64)>,
}

impl<'a> Source<'a> {
    fn judge(mut self, verdict: &mut Verdict) {
        let floor = self.scope.started;
        self.list(floor, verdict);
        while let Some(&entry) = self.entries.get(self.at) {
            if entry.is_gap() {
                self.gap(entry, verdict);
            } else {
                self.watched(entry, verdict);
            }
        }
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
        if listed.is_empty() && following.is_some_and(Entry::is_gap) {
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
                let as_listed = |state: &State| {
                    state.get(&row.key).is_some_and(|known| wanted.get(&row.key) == Some(&known.rev))
                };
                let before = as_listed(&state);
                apply(&mut state, row);
                matching = matching + usize::from(as_listed(&state)) - usize::from(before);
            }
            let next = self.rows.get(consumed);
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
        for entry in listed {
            if let Some(known) = self.known.get(&entry.key()) {
                let created = known.created;
                self.bind(entry, created, verdict);
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
        if last && other.is_empty() { verdict.behind.push(text) } else { verdict.wrong.push(text) }
    }

    /// A GAP: nothing up to `from` may be missing; what follows it is the net difference up to `to`.
    fn gap(&mut self, entry: &'a Entry, verdict: &mut Verdict) {
        self.at += 1;
        let gap = entry.gap.clone().unwrap_or_default();
        let number = |text: &Option<String>| text.as_deref().map(|text| text.parse::<u64>().unwrap_or(0));
        let (from, to) = (number(&gap.from), number(&gap.to));
        if from == Some(0) || to == Some(0) {
            verdict.wrong.push(format!("{}: a gap between what are no versions: {entry}", self.name));
        }
        if let Some(from) = from {
            while let Some(row) = self.rows.get(self.next).filter(|row| row.rev <= from) {
                verdict.wrong.push(format!("{}: before {entry} is missing {row}", self.name));
                self.next += 1;
            }
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

        let mut expected: BTreeMap<Key, Vec<(Kind, Option<u64>)>> = BTreeMap::new();
        for key in self.known.keys().chain(state.keys()).collect::<BTreeSet<_>>() {
            let steps = match (self.known.get(key), state.get(key)) {
                (Some(old), Some(new)) if old.created != new.created => {
                    vec![(Kind::Deleted, None), (Kind::Added, Some(new.rev))]
                }
                (Some(old), Some(new)) if old.rev != new.rev => vec![(Kind::Modified, Some(new.rev))],
                (Some(_), Some(_)) => continue,
                (Some(_), None) => vec![(Kind::Deleted, None)],
                (None, new) => vec![(Kind::Added, new.map(|known| known.rev))],
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
            let fits = steps.len() >= entries.len()
                && steps.iter().zip(&entries).all(|((kind, rev), entry)| {
                    entry.type_of() == Some(*kind) && rev.is_none_or(|rev| rev == entry.rv())
                });
            if fits {
                for ((kind, _), entry) in steps.iter().zip(&entries) {
                    let known = if *kind == Kind::Deleted { self.known.get(&key) } else { state.get(&key) };
                    if let Some(created) = known.map(|known| known.created) {
                        self.bind(entry, created, verdict);
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
        if entry.evidence != "watched" {
            verdict.wrong.push(format!("{}: {} without a list or a gap: {entry}", self.name, entry.evidence));
        }
        let is_it = |row: &&Row| {
            row.rev == entry.rv() && Some(row.kind) == entry.type_of() && row.key.0 == entry.namespace && row.key.1 == entry.name
        };
        let Some(ahead) = self.rows[self.next..].iter().position(is_it) else {
            let why = if self.rows[..self.next].iter().any(is_it) {
                "twice or out of order"
            } else {
                "not in etcd's history"
            };
            verdict.wrong.push(format!("{}: {why}: {entry}{}", self.name, self.context()));
            return;
        };
        for row in &self.rows[self.next..self.next + ahead] {
            verdict.wrong.push(format!("{}: missing {row}{}", self.name, self.context()));
        }
        self.next += ahead;
        let row = self.rows[self.next];
        self.next += 1;
        self.bind(entry, row.created, verdict);
        apply(&mut self.known, row);
    }

    /// One uid per incarnation, one incarnation per uid.
    fn bind(&mut self, entry: &'a Entry, created: u64, verdict: &mut Verdict) {
        let incarnation = (entry.key(), created);
        if entry.uid.is_empty() {
            verdict.wrong.push(format!("{}: no uid: {entry}", self.name));
        }
        match self.uids.get(entry.uid.as_str()) {
            Some(before) if *before != incarnation => {
                verdict.wrong.push(format!("{}: uid {} was {before:?}: {entry}", self.name, entry.uid));
            }
            Some(_) => {}
            None if entry.kind != "ADDED" => {
                verdict.wrong.push(format!("{}: uid {} was never ADDED: {entry}", self.name, entry.uid));
            }
            None => {
                self.uids.insert(&entry.uid, incarnation);
            }
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

#[cfg(test)]
mod tests {
    use super::*;

    /// A small generator of numbers, so that a seed names a run.
    struct Dice(u64);

    impl Dice {
        fn roll(&mut self, sides: u64) -> u64 {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (self.0 >> 33) % sides
        }
    }

    /// A history of two resources with a few names each, that come, change, go and come again.
    fn history(dice: &mut Dice, length: u64) -> Vec<Row> {
        let mut alive: BTreeMap<(String, Key), u64> = BTreeMap::new();
        (1..=length)
            .map(|rev| {
                let resource = ["pods", "deployments.apps"][usize::from(dice.roll(2) == 1)].to_owned();
                let key = ("shop".to_owned(), format!("o{}", dice.roll(6)));
                let object = (resource.clone(), key.clone());
                let (kind, created) = match alive.get(&object).copied() {
                    None => (Kind::Added, rev),
                    Some(created) if dice.roll(3) == 0 => (Kind::Deleted, created),
                    Some(created) => (Kind::Modified, created),
                };
                if kind == Kind::Deleted { alive.remove(&object) } else { alive.insert(object, created) };
                Row { rev, kind, created, resource, key }
            })
            .collect()
    }

    /// The entries of a log that lists at `first`, watches up to `lost`, and lists again at `found`.
    fn log(rows: &[Row], first: u64, lost: u64, found: u64) -> Vec<Entry> {
        let mut log = Vec::new();
        for resource in ["deployments.apps", "pods"] {
            let of = |range: std::ops::RangeInclusive<u64>| {
                rows.iter().filter(move |row| row.resource == resource && range.contains(&row.rev))
            };
            let state = |at: u64| {
                let mut state = State::new();
                of(1..=at).for_each(|row| apply(&mut state, row));
                state
            };
            let old = state(lost);
            let new = state(found);
            for (key, known) in state(first) {
                log.push(entry(resource, &key, Kind::Added, "listed", known.created, known.rev));
            }
            for row in of(first + 1..=lost) {
                log.push(entry(resource, &row.key, row.kind, "watched", row.created, row.rev));
            }
            if found > lost {
                log.push(Entry {
                    gap: Some(Gap {
                        why: "expired".to_owned(),
                        from: Some(lost.to_string()),
                        to: Some(found.to_string()),
                        since: None,
                    }),
                    ..entry(resource, &Key::default(), Kind::Added, "", 0, 0)
                });
                for (key, known) in &old {
                    if new.get(key).is_none_or(|other| other.created != known.created) {
                        log.push(entry(resource, key, Kind::Deleted, "inferred", known.created, known.rev));
                    }
                }
                for (key, known) in &new {
                    match old.get(key) {
                        Some(other) if other == known => {}
                        Some(other) if other.created == known.created => {
                            log.push(entry(resource, key, Kind::Modified, "inferred", known.created, known.rev));
                        }
                        _ => log.push(entry(resource, key, Kind::Added, "inferred", known.created, known.rev)),
                    }
                }
            }
            for row in of(lost.max(found) + 1..=u64::MAX) {
                log.push(entry(resource, &row.key, row.kind, "watched", row.created, row.rev));
            }
        }
        number(&mut log);
        log
    }

    fn entry(resource: &str, key: &Key, kind: Kind, evidence: &str, created: u64, rev: u64) -> Entry {
        let (plural, api_version) = match resource.split_once('.') {
            Some((plural, group)) => (plural, format!("{group}/v1")),
            None => (resource, "v1".to_owned()),
        };
        Entry {
            v: 1,
            kind: kind.to_string(),
            evidence: evidence.to_owned(),
            api_version,
            resource: plural.to_owned(),
            namespace: key.0.clone(),
            name: key.1.clone(),
            uid: format!("{plural}-{}-{created}", key.1),
            resource_version: rev.to_string(),
            ..Entry::default()
        }
    }

    /// Gives a log the numbers, ids and objects that a journal would.
    fn number(log: &mut [Entry]) {
        for (index, entry) in log.iter_mut().enumerate() {
            entry.seq = index as u64 + 1;
            entry.epoch = "e".to_owned();
            if entry.gap.is_some() {
                entry.kind = "GAP".to_owned();
                entry.id = format!("e.{}", entry.seq);
                continue;
            }
            entry.id = format!("{}.{}.{}", entry.uid, entry.resource_version, entry.kind);
            entry.object = Some(Object {
                metadata: Metadata {
                    namespace: entry.namespace.clone(),
                    name: entry.name.clone(),
                    uid: entry.uid.clone(),
                    resource_version: entry.resource_version.clone(),
                },
            });
        }
    }

    fn scope() -> Scope {
        Scope { started: 10, upto: u64::MAX, namespaces: None, resources: None }
    }

    fn caught(rows: &[Row], log: &[Entry], what: &str) {
        assert!(!judge(rows, log, &scope()).is_right(), "the judge has to catch: {what}");
    }

    #[test]
    fn a_true_log_is_right() {
        for seed in 0..200 {
            let mut dice = Dice(seed);
            let rows = history(&mut dice, 120);
            for (lost, found) in [(120, 120), (60, 80), (20, 119), (20, 20)] {
                let log = log(&rows, 20, lost, found);
                let verdict = judge(&rows, &log, &scope());
                assert!(verdict.is_right(), "seed {seed}, gap {lost} to {found}:\n{verdict}");
            }
        }
    }

    #[test]
    fn a_log_that_is_not_finished_is_behind_and_not_wrong() {
        for seed in 0..50 {
            let rows = history(&mut Dice(seed), 120);
            let whole = log(&rows, 20, 60, 80);
            let mut one: Vec<Entry> = whole.iter().filter(|entry| entry.resource == "pods").cloned().collect();
            number(&mut one);
            let scope = Scope { resources: Some(BTreeSet::from(["pods".to_owned()])), ..scope() };
            // Where the log breaks off between the row before a gap and the GAP itself, or inside a list that the
            // entries so far already explain, it is only late.
            for length in 0..one.len() {
                let verdict = judge(&rows, &one[..length], &scope);
                assert!(verdict.wrong.is_empty(), "seed {seed}, {length} entries:\n{verdict}");
            }
        }
    }

    #[test]
    fn every_break_of_a_true_log_is_caught() {
        for seed in 0..20 {
            let rows = history(&mut Dice(seed), 120);
            let good = log(&rows, 20, 60, 80);
            for at in 0..good.len() {
                let victim = &good[at];
                let broken = |edit: &dyn Fn(&mut Vec<Entry>)| {
                    let mut log = good.clone();
                    edit(&mut log);
                    number(&mut log);
                    log
                };
                let name = |what: &str| format!("{what}, seed {seed}, {} {victim}", victim.resource);
                caught(&rows, &broken(&|log| drop(log.remove(at))), &name("dropped"));
                caught(&rows, &broken(&|log| log.insert(at, victim.clone())), &name("duplicated"));
                caught(&rows, &broken(&|log| log[at].api_version = "other/v1".to_owned()), &name("other group"));
                if victim.gap.is_some() {
                    let gap = |edit: &dyn Fn(&mut Gap)| {
                        broken(&|log| edit(log[at].gap.as_mut().unwrap()))
                    };
                    caught(&rows, &gap(&|gap| gap.from = Some("75".to_owned())), &name("gap begins too late"));
                    caught(&rows, &gap(&|gap| gap.to = Some("200".to_owned())), &name("gap ends too late"));
                    caught(&rows, &gap(&|gap| gap.to = None), &name("gap without end"));
                    continue;
                }
                let kinds = ["ADDED", "MODIFIED", "DELETED"];
                for kind in kinds.into_iter().filter(|kind| *kind != victim.kind) {
                    caught(&rows, &broken(&|log| log[at].kind = kind.to_owned()), &name(kind));
                }
                for evidence in ["watched", "listed", "inferred"].into_iter().filter(|word| *word != victim.evidence) {
                    caught(&rows, &broken(&|log| log[at].evidence = evidence.to_owned()), &name(evidence));
                }
                caught(&rows, &broken(&|log| log[at].uid = "another".to_owned()), &name("other uid"));
                if (victim.evidence.as_str(), victim.kind.as_str()) != ("inferred", "DELETED") {
                    caught(&rows, &broken(&|log| log[at].resource_version = "9999".to_owned()), &name("other version"));
                }
                // Inside one list or one difference only the order per object matters.
                let neighbour = good.get(at + 1).filter(|next| next.resource == victim.resource);
                if neighbour.is_some_and(|next| next.evidence != victim.evidence || next.evidence == "watched") {
                    caught(&rows, &broken(&|log| log.swap(at, at + 1)), &name("reordered"));
                }
            }
        }
    }

    #[test]
    fn breaks_of_the_numbering_are_caught() {
        let rows = history(&mut Dice(1), 120);
        let good = log(&rows, 20, 60, 80);
        let edits: [(&str, fn(&mut Entry)); 6] = [
            ("seq", |entry| entry.seq += 1),
            ("id", |entry| entry.id += "x"),
            ("epoch", |entry| entry.epoch += "x"),
            ("v", |entry| entry.v = 2),
            ("object", |entry| entry.object = None),
            ("other object", |entry| entry.object = Some(Object::default())),
        ];
        for (what, edit) in edits {
            let mut log = good.clone();
            edit(log.iter_mut().rfind(|entry| entry.gap.is_none()).unwrap());
            caught(&rows, &log, what);
        }
    }

    #[test]
    fn a_resource_that_went_and_came_again_is_judged() {
        let row = |rev, kind, created, name: &str| Row {
            rev,
            kind,
            created,
            resource: "widgets.example.com".to_owned(),
            key: (String::new(), name.to_owned()),
        };
        let rows = [
            row(11, Kind::Added, 11, "a"),
            row(12, Kind::Added, 12, "b"),
            row(13, Kind::Deleted, 11, "a"),
            row(14, Kind::Deleted, 12, "b"),
            row(20, Kind::Added, 20, "a"),
            row(21, Kind::Modified, 20, "a"),
        ];
        let line = |key: &str, kind, evidence, created, rev| {
            entry("widgets.example.com", &(String::new(), key.to_owned()), kind, evidence, created, rev)
        };
        let gone = Entry {
            gap: Some(Gap { why: "scope".to_owned(), from: Some("13".to_owned()), to: None, since: None }),
            ..line("", Kind::Added, "", 0, 0)
        };
        let mut log = vec![
            line("a", Kind::Added, "watched", 11, 11),
            line("b", Kind::Added, "watched", 12, 12),
            line("a", Kind::Deleted, "watched", 11, 13),
            gone,
            line("b", Kind::Deleted, "inferred", 12, 12),
            line("a", Kind::Added, "listed", 20, 20),
            line("a", Kind::Modified, "watched", 20, 21),
        ];
        number(&mut log);
        let verdict = judge(&rows, &log, &scope());
        assert!(verdict.is_right(), "{verdict}");
        for at in 0..log.len() {
            let mut log = log.clone();
            log.remove(at);
            number(&mut log);
            caught(&rows, &log, "one entry less");
        }
    }
}
