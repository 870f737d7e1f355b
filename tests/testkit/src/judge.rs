//! The judge: compares a log with the truth, revision by revision.
//!
//! The truth is what etcd itself says of every write (`oracle.rs`); the judge shares no code with decklog and knows
//! only the contract of an entry. Outside of gaps the log of a source has to equal the truth row by row, in order;
//! a first list and the inferred entries after a GAP have to equal the state at one moment of the truth. What an
//! entry carries is judged as well: its keys and their order, the patch that leads from the version before to this
//! one, the last state on a deletion.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::Value;
use serde_json::value::RawValue;

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
    /// The incarnation of the object.
    pub uid: String,
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
    pub time: String,
    pub cluster: BTreeMap<String, String>,
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
    pub change: Option<Change>,
    pub object: Option<Box<RawValue>>,
    pub gap: Option<Gap>,
    pub redacted: Vec<String>,
    /// What is wrong with the line itself.
    #[serde(skip)]
    pub malformed: Option<String>,
}

/// The `change` of a MODIFIED.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Change {
    pub areas: Vec<String>,
    pub patch: Vec<Value>,
    pub managers: Vec<Value>,
}

/// The gap of a GAP entry.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Gap {
    pub why: String,
    pub from: Option<String>,
    pub to: Option<String>,
    pub since: Option<String>,
    /// How many changes were recovered before it.
    pub recovered: Option<u64>,
}

/// The keys of an entry in the order of the contract.
const KEYS: [&str; 19] = [
    "v",
    "seq",
    "epoch",
    "id",
    "time",
    "happened",
    "type",
    "evidence",
    "cluster",
    "apiVersion",
    "kind",
    "resource",
    "namespace",
    "name",
    "uid",
    "resourceVersion",
    "change",
    "object",
    "gap",
];

/// The keys of a JSON object as they stand in the text.
struct KeysInOrder(Vec<String>);

impl<'de> Deserialize<'de> for KeysInOrder {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Keys;
        impl<'de> Visitor<'de> for Keys {
            type Value = KeysInOrder;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<KeysInOrder, A::Error> {
                let mut keys = Vec::new();
                while let Some((key, IgnoredAny)) = map.next_entry()? {
                    keys.push(key);
                }
                Ok(KeysInOrder(keys))
            }
        }
        deserializer.deserialize_map(Keys)
    }
}

impl Entry {
    /// Reads one line of the log.
    pub fn parse(line: &str) -> Self {
        let unreadable = |error| Self { malformed: Some(format!("no entry: {error}: {line:.200}")), ..Self::default() };
        let keys = match serde_json::from_str::<KeysInOrder>(line) {
            Ok(KeysInOrder(keys)) => keys,
            Err(error) => return unreadable(error),
        };
        let mut entry = match serde_json::from_str::<Self>(line) {
            Ok(entry) => entry,
            Err(error) => return unreadable(error),
        };
        let mut order = KEYS.iter().copied().chain(["redacted"]);
        if !keys.iter().all(|key| order.any(|next| next == key)) {
            entry.malformed = Some(format!("keys are unknown, twice or out of order: {keys:?}"));
        }
        entry
    }

    /// The object it carries.
    pub fn value(&self) -> Option<Value> {
        self.object.as_ref().and_then(|raw| serde_json::from_str(raw.get()).ok())
    }

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

    /// Whether it is told as the API server saw it: on a watch, or in its own history.
    pub fn is_seen(&self) -> bool {
        self.evidence == "watched" || self.evidence == "recovered"
    }

    fn is_rollback(&self) -> bool {
        self.gap.as_ref().is_some_and(|gap| gap.why == "rollback")
    }
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { seq, kind, evidence, namespace, name, resource_version, .. } = self;
        write!(f, "seq {seq:<6} {kind:<8} {evidence:<9} rv {resource_version:<8} {namespace}/{name}")?;
        if let Some(gap) = &self.gap {
            write!(f, " ({}, {:?} to {:?}, {:?} recovered)", gap.why, gap.from, gap.to, gap.recovered)?;
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
    /// A watch leaves changes out, and an audit finds them: they come behind what was told meanwhile of other objects.
    pub late: bool,
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

/// Compares a whole log with the whole truth (in revision order). After a restore of etcd there are two truths: what
/// the log saw before, and what the restored etcd tells; a GAP that says `rollback` leads from one to the other.
pub fn judge(truth: &[Row], restored: Option<&[Row]>, log: &[Entry], scope: &Scope) -> Verdict {
    let mut verdict = Verdict::default();
    whole_log(log, &mut verdict.wrong);
    let mut sources: BTreeMap<String, Gathered<'_>> = BTreeMap::new();
    for row in truth {
        if let Some(source) = scope.source(&row.resource, &row.key.0) {
            sources.entry(source).or_default().before.push(row);
        }
    }
    for row in restored.unwrap_or_default() {
        if let Some(source) = scope.source(&row.resource, &row.key.0) {
            sources.entry(source).or_default().after.push(row);
        }
    }
    for entry in log {
        match scope.source(&entry.full_resource(), &entry.namespace) {
            Some(source) => sources.entry(source).or_default().entries.push(entry),
            None => verdict.wrong.push(format!("{}: nobody asked for {entry}", entry.full_resource())),
        }
    }
    for (name, Gathered { before, after, entries }) in sources {
        // A source whose position is older than the restored state sees nothing of the restore.
        let rolled_back = entries.iter().any(|entry| entry.is_rollback());
        let (rows, restored) = match restored {
            None => (before, None),
            Some(_) if rolled_back => (before, Some(after)),
            Some(_) => (after, None),
        };
        contents(&name, &entries, &mut verdict.wrong);
        Source { name, rows, restored, entries, scope, at: 0, next: 0, late: Vec::new(), known: BTreeMap::new() }
            .judge(&mut verdict);
    }
    verdict
}

/// What belongs to one source: the truth before and after a restore, and the log.
#[derive(Default)]
struct Gathered<'a> {
    before: Vec<&'a Row>,
    after: Vec<&'a Row>,
    entries: Vec<&'a Entry>,
}

/// What the entries of one source carry: a patch leads from the version before to this one, and says what was there;
/// a deletion carries the last state.
fn contents(name: &str, entries: &[&Entry], wrong: &mut Vec<String>) {
    let mut last: HashMap<(Key, &str), Value> = HashMap::new();
    for entry in entries.iter().filter(|entry| !entry.is_gap()) {
        let mut say = |what: &str| wrong.push(format!("{name}: {what}: {entry}"));
        let Some(object) = entry.value() else { continue };
        let before = last.remove(&(entry.key(), entry.uid.as_str()));
        match (entry.type_of(), &entry.change, before) {
            (Some(Kind::Modified), Some(change), Some(mut before)) => {
                let areas = areas(&before, &object);
                // Values that were redacted can change without a trace in the text.
                let fits = |area: &String| areas.contains(area.as_str()) || !entry.redacted.is_empty();
                if !areas.iter().all(|area| change.areas.iter().any(|other| other == area))
                    || !change.areas.iter().all(fits)
                    || !change.areas.is_sorted()
                {
                    say(&format!("areas are {:?} and should be {areas:?}", change.areas));
                }
                if let Err(error) = apply_patch(&mut before, &change.patch) {
                    say(&format!("the patch cannot be applied: {error}"));
                } else if before != object {
                    say("the patch does not lead from the version before to this one");
                }
            }
            (Some(Kind::Modified), None, _) => say("no change"),
            (Some(Kind::Deleted), None, Some(before)) if entry.is_seen() => {
                // The API server gives the last state the version of the deletion.
                if before["apiVersion"] == object["apiVersion"] && without_version(before) != without_version(object) {
                    say("the deletion does not carry the last state");
                }
                continue;
            }
            (Some(Kind::Deleted), None, before) => {
                if before.is_some_and(|before| before != object) {
                    say("the deletion does not carry the last state");
                }
                continue;
            }
            (_, Some(_), _) if entry.kind != "MODIFIED" => say("a change on what is no MODIFIED"),
            _ => {}
        }
        last.insert((entry.key(), entry.uid.as_str()), object);
    }
}

fn without_version(mut object: Value) -> Value {
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("resourceVersion");
    }
    object
}

/// The areas in which two versions differ.
pub fn areas<'a>(before: &'a Value, after: &'a Value) -> BTreeSet<&'a str> {
    let (Some(old), Some(new)) = (before.as_object(), after.as_object()) else { return BTreeSet::new() };
    let mut areas: BTreeSet<&str> = old
        .keys()
        .chain(new.keys())
        .map(String::as_str)
        .filter(|key| *key != "metadata" && old.get(*key) != new.get(*key))
        .collect();
    if before["metadata"]["managedFields"] != after["metadata"]["managedFields"] {
        areas.insert("managedFields");
    }
    let rest = |object: &Value| {
        let mut object = without_version(object.clone());
        object["metadata"].as_object_mut().map(|metadata| metadata.remove("managedFields"));
        object["metadata"].take()
    };
    if rest(before) != rest(after) {
        areas.insert("metadata");
    }
    areas
}

/// RFC 6902 as far as the contract uses it, with `was` checked.
pub fn apply_patch(document: &mut Value, patch: &[Value]) -> Result<(), String> {
    for step in patch {
        let (Some(op), Some(path)) = (step["op"].as_str(), step["path"].as_str()) else {
            return Err(format!("no operation: {step}"));
        };
        if op == "move" {
            move_element(document, step["from"].as_str().unwrap_or_default(), path)?;
            continue;
        }
        let (parent, token) = path.rsplit_once('/').ok_or_else(|| format!("no path: {step}"))?;
        let token = token.replace("~1", "/").replace("~0", "~");
        let parent = document.pointer_mut(parent).ok_or_else(|| format!("nothing at {parent:?}"))?;
        let found = match &*parent {
            Value::Object(map) => map.get(&token),
            Value::Array(items) => token.parse::<usize>().ok().and_then(|index| items.get(index)),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
        };
        if op != "add" && (found.is_none() || found != step.get("was")) {
            return Err(format!("{path} was {found:?}, not {:?}", step.get("was")));
        }
        let value = || step.get("value").cloned().ok_or_else(|| format!("no value: {step}"));
        match (op, parent) {
            ("add" | "replace", Value::Object(map)) => drop(map.insert(token, value()?)),
            ("remove", Value::Object(map)) => drop(map.remove(&token)),
            ("add", Value::Array(items)) => {
                let index = if token == "-" { items.len() } else { token.parse().map_err(|_| token)? };
                if index > items.len() {
                    return Err(format!("{path} is beyond the end"));
                }
                items.insert(index, value()?);
            }
            ("replace", Value::Array(items)) => items[token.parse::<usize>().map_err(|_| token)?] = value()?,
            ("remove", Value::Array(items)) => drop(items.remove(token.parse().map_err(|_| token)?)),
            _ => return Err(format!("cannot {op} at {path}")),
        }
    }
    Ok(())
}

/// An element of a list stands at another place of it.
fn move_element(document: &mut Value, from: &str, path: &str) -> Result<(), String> {
    let place = |pointer: &str| {
        let (list, index) = pointer.rsplit_once('/')?;
        Some((list.to_owned(), index.parse::<usize>().ok()?))
    };
    match (place(from), place(path)) {
        (Some((list, from)), Some((other, to))) if list == other && from != to => {
            let items = document.pointer_mut(&list).and_then(Value::as_array_mut);
            let items =
                items.filter(|items| from.max(to) < items.len()).ok_or_else(|| format!("no such move in {list}"))?;
            let item = items.remove(from);
            items.insert(to, item);
            Ok(())
        }
        _ => Err(format!("no move within a list: {from} to {path}")),
    }
}

/// What holds for the log as a whole: dense seq, one epoch, ids that are unique and well formed, objects that are the
/// ones the entry names.
fn whole_log(log: &[Entry], wrong: &mut Vec<String>) {
    let mut ids = HashSet::new();
    let mut rollbacks: HashMap<String, usize> = HashMap::new();
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
        // RFC 3339 in UTC with microseconds has one length, and sorts as text.
        let earlier = index.checked_sub(1).is_some_and(|before| log[before].time > entry.time);
        if entry.time.len() != "2000-01-01T00:00:00.000000Z".len() || !entry.time.ends_with('Z') || earlier {
            say(&format!("time is {:?}", entry.time));
        }
        if entry.cluster != log[0].cluster || !entry.cluster.keys().eq(["name", "uid"]) {
            say(&format!("cluster is {:?}", entry.cluster));
        }
        if let Some(problem) = &entry.malformed {
            say(problem);
        }
        if entry.is_rollback() {
            *rollbacks.entry(entry.full_resource()).or_default() += 1;
        }
        // The versions that a restored etcd gives out are given out for the second time.
        let timeline = rollbacks.get(&entry.full_resource()).copied().unwrap_or(0);
        if !ids.insert((&entry.id, timeline)) {
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
        if entry.type_of().is_none() || !(entry.is_seen() || ["listed", "inferred"].contains(&entry.evidence.as_str()))
        {
            say("unknown type or evidence");
        }
        if entry.id != format!("{}.{}.{}", entry.uid, entry.resource_version, entry.kind) {
            say(&format!("id {} is not UID.RESOURCEVERSION.TYPE", entry.id));
        }
        let Some(object) = entry.value() else {
            say("no object");
            continue;
        };
        let inside = |key: &str| object["metadata"][key].as_str().unwrap_or_default();
        if (inside("namespace"), inside("name"), inside("uid")) != (&entry.namespace, &entry.name, &entry.uid) {
            say("the object inside is another one");
        }
        if inside("resourceVersion") != entry.resource_version {
            say("the object inside has another resourceVersion");
        }
    }
}

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
struct Source<'a> {
    name: String,
    rows: Vec<&'a Row>,
    /// What the restored etcd tells instead.
    restored: Option<Vec<&'a Row>>,
    entries: Vec<&'a Entry>,
    scope: &'a Scope,
    /// The next entry to look at.
    at: usize,
    /// The next row that the log has to tell.
    next: usize,
    /// Rows before that which come later.
    late: Vec<&'a Row>,
    known: State,
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

    /// A GAP: nothing up to `from` may be missing; what follows it is the net difference up to `to`.
    fn gap(&mut self, entry: &'a Entry, verdict: &mut Verdict) {
        self.at += 1;
        let gap = entry.gap.clone().unwrap_or_default();
        let number = |text: &Option<String>| text.as_deref().map(|text| text.parse::<u64>().unwrap_or(0));
        let (from, to) = (number(&gap.from), number(&gap.to));
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
