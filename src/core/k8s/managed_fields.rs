//! metadata.managedFields, and the sets of fields in it (FieldsV1). A hint about authors, not proof.
//!
//! The API server keeps an entry for each manager, operation, subresource and version of the API. When a write changes
//! the set of its own manager, the server moves the time of that entry, to the second. What somebody else writes over
//! leaves the set of its former owner, whose time stays. So the time moves for a writer and never for a loser; and
//! nothing moves at all where a manager writes again what it has.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;

use super::bookkeeping::MANAGED_FIELDS;
use crate::core::json::pointer::unescape;
use crate::core::json::tree::{Id, Kind, Tree, View};
use crate::core::json::{Shape, Text};

/// Author of a write by managedFields. An earlier decklog wrote the values as they came, of any type: a value that is no text
/// reads as missing.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Manager {
    /// Name of the manager.
    #[serde(default, deserialize_with = "text_or_empty")]
    pub manager: String,
    /// Apply or Update.
    #[serde(default, deserialize_with = "text_or_empty")]
    pub operation: String,
    /// The subresource that was written, where it was one.
    #[serde(default, deserialize_with = "text_or_none", skip_serializing_if = "Option::is_none")]
    pub subresource: Option<String>,
    /// When, to the second.
    #[serde(default, deserialize_with = "text_or_none", skip_serializing_if = "Option::is_none")]
    pub time: Option<String>,
    /// Evidence that it made a change, if it is said to. A later decklog may know more kinds.
    #[serde(default, deserialize_with = "known_way", skip_serializing_if = "Option::is_none")]
    pub by: Option<By>,
}

/// A text; nothing for a value of another type.
fn text_or_none<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    let raw = <&RawValue>::deserialize(deserializer)?;
    Ok(serde_json::from_str::<Text<'_>>(raw.get()).ok().map(|Text(text)| text.into_owned()))
}

fn text_or_empty<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    text_or_none(deserializer).map(Option::unwrap_or_default)
}

fn known_way<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<By>, D::Error> {
    let word = text_or_none(deserializer)?;
    Ok(By::ALL.into_iter().find(|by| Some(by.as_str()) == word.as_deref()))
}

/// Evidence that a manager made a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum By {
    /// Its set of fields grew, or its time moved.
    Moved,
    /// Ownership of the changed field, with no change in managedFields.
    Owner,
}

impl By {
    /// Every way.
    pub const ALL: [Self; 2] = [Self::Moved, Self::Owner];

    /// The word in an entry.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Moved => "moved",
            Self::Owner => "owner",
        }
    }
}

impl Manager {
    /// Reports whether the two are the same entry of managedFields, apart from their times.
    #[must_use]
    pub fn is(&self, other: &Self) -> bool {
        (&self.manager, &self.operation, &self.subresource) == (&other.manager, &other.operation, &other.subresource)
    }

    /// Reports whether it sets a number of replicas because an autoscaler says so: the HPA, KEDA, the cluster autoscaler, Knative.
    #[must_use]
    pub fn is_autoscaler(&self) -> bool {
        match self.manager.as_str() {
            "kube-controller-manager" => self.subresource.as_deref() == Some("scale"),
            name => ["horizontal-pod-autoscaler", "keda", "keda-operator", "cluster-autoscaler", "autoscaler"]
                .contains(&name),
        }
    }
}

/// Names that the API server gives to sets of which it does not know the writer: what was there before the first apply,
/// and the oldest of more than ten managers.
const NOBODY: [&[u8]; 2] = [b"\"before-first-apply\"", b"\"ancient-changes\""];

/// Sets deeper than this are compared as a whole.
const DEEP: usize = 256;

/// The entries of an object's managedFields, unread; none where it does not say.
fn entries(object: &mut Tree<'_>) -> Vec<Id> {
    let list = object.find(MANAGED_FIELDS).filter(|&list| object.kind(list) == Kind::Array);
    list.map_or_else(Vec::new, |list| {
        object.read(list);
        object.elements(list).collect()
    })
}

/// The entries that say of a write that led from one version to the next: those of it that are new, whose time moved or
/// whose set grew.
pub(crate) fn moved(old: &mut Tree<'_>, new: &mut Tree<'_>) -> Vec<Id> {
    let (mut before, mut after) = (entries(old), entries(new));
    // Most stay as they are, and nothing of them has to be read.
    let (was, is) = (texts(old, &before), texts(new, &after));
    after.retain(|&entry| !was.contains(new.bytes(entry)));
    before.retain(|&entry| !is.contains(old.bytes(entry)));
    before.iter().for_each(|&entry| old.read(entry));
    after.iter().for_each(|&entry| new.read(entry));
    let before = Books { view: old.view(), entries: before };
    let after = Books { view: new.view(), entries: after };
    let mut known = HashMap::new();
    for &entry in &before.entries {
        known.entry(before.key(entry)).or_insert(entry);
    }
    let wrote = |&entry: &Id| after.wrote(entry, &before, known.get(&after.key(entry)).copied());
    after.entries.iter().copied().filter(wrote).collect()
}

fn texts<'a>(object: &Tree<'a>, entries: &[Id]) -> HashSet<&'a [u8]> {
    entries.iter().map(|&entry| object.bytes(entry)).collect()
}

/// The entries of managedFields, in a text that is read as deep as they go.
#[derive(Debug)]
pub(crate) struct Books<'a, 's> {
    view: View<'a, 's>,
    entries: Vec<Id>,
}

/// Reads the entries of an object's managedFields, for [`Books::of`].
pub(crate) fn read(object: &mut Tree<'_>) -> Vec<Id> {
    let entries = entries(object);
    entries.iter().for_each(|&entry| object.read(entry));
    entries
}

impl<'a, 's> Books<'a, 's> {
    /// Combines the entries of [`read`] with the tree that they were read in.
    pub(crate) fn of(view: View<'a, 's>, entries: Vec<Id>) -> Self {
        Self { view, entries }
    }

    /// Reports whether an entry that is new or changed shows a write. `twin` is its earlier version.
    fn wrote(&self, entry: Id, before: &Books<'_, '_>, twin: Option<Id>) -> bool {
        if self.text(entry, "manager").is_some_and(|name| NOBODY.contains(&name)) {
            return false;
        }
        let Some(twin) = twin else { return true };
        self.text(entry, "time") != before.text(twin, "time")
            || match (before.fields(twin), self.fields(entry)) {
                (Some(old), Some(new)) => grew((before.view, old), (self.view, new), DEEP),
                (old, new) => old.is_none() && new.is_some(),
            }
    }

    /// Returns the owners of a value. `find` returns the part of a set below a step of the path to the value.
    ///
    /// A set that ends above the value owns it as part of a whole, such as a list that is replaced at once; but not
    /// where another set goes into its parts: there the empty set is what is left of one that had some.
    pub(crate) fn owners<S>(&self, path: &[S], mut find: impl FnMut(Id, &S) -> Option<Id>) -> Vec<Id> {
        let mut sets: Vec<(Id, Id)> =
            self.entries.iter().filter_map(|&entry| Some((entry, self.fields(entry)?))).collect();
        let mut whole = Vec::new();
        for step in path {
            let (ends, parts): (Vec<_>, Vec<_>) =
                sets.into_iter().partition(|&(_, set)| self.view.members(set).next().is_none());
            if !parts.is_empty() {
                whole.clear();
            } else if !ends.is_empty() {
                whole = ends;
            }
            let mut below = |(entry, set): (Id, Id)| {
                let below = find(set, step)?;
                (self.view.kind(below) == Kind::Object).then_some((entry, below))
            };
            sets = parts.into_iter().filter_map(&mut below).collect();
        }
        let owners = if sets.is_empty() { whole } else { sets };
        owners.into_iter().map(|(entry, _)| entry).collect()
    }

    /// Returns the part of a set below the first key that `leads` accepts.
    pub(crate) fn below(&self, set: Id, leads: impl Fn(&str) -> bool) -> Option<Id> {
        self.view.members(set).find(|&(key, _)| leads(&self.view.string(key))).map(|(_, below)| below)
    }

    /// Returns the manager of an entry.
    pub(crate) fn manager(&self, entry: Id, by: Option<By>) -> Manager {
        let text = |name: &str| {
            let id = self.view.member(entry, name).filter(|&id| self.view.kind(id) == Kind::String)?;
            Some(self.view.string(id).into_owned()).filter(|text| !text.is_empty())
        };
        Manager {
            manager: text("manager").unwrap_or_default(),
            operation: text("operation").unwrap_or_default(),
            subresource: text("subresource"),
            time: text("time"),
            by,
        }
    }

    /// The set of an entry; nothing where it has no field, or more than are read.
    fn fields(&self, entry: Id) -> Option<Id> {
        let set = self.view.member(entry, "fieldsV1").filter(|&set| self.view.kind(set) == Kind::Object)?;
        if !self.view.is_read(set) {
            return None;
        }
        self.view.members(set).next().map(|_| set)
    }

    /// A member as it stands.
    fn text(&self, entry: Id, name: &str) -> Option<&'a [u8]> {
        self.view.member(entry, name).map(|id| self.view.bytes(id)).filter(|text| *text != b"\"\"")
    }

    /// Returns the members that distinguish an entry from the others of the object.
    fn key(&self, entry: Id) -> [Option<&'a [u8]>; 4] {
        ["manager", "operation", "subresource", "apiVersion"].map(|name| self.text(entry, name))
    }
}

/// Reports whether a set has fields that it did not have before.
fn grew(old: (View<'_, '_>, Id), new: (View<'_, '_>, Id), depth: usize) -> bool {
    let ((before, old), (after, new)) = (old, new);
    if before.bytes(old) == after.bytes(new) {
        return false;
    }
    if depth == 0 || after.kind(new) != Kind::Object || before.kind(old) != Kind::Object {
        return true;
    }
    // An object may have as many as it has fields.
    let known: HashMap<&[u8], Id> = before.members(old).map(|(key, set)| (before.bytes(key), set)).collect();
    after.members(new).any(|(key, set)| {
        known.get(after.bytes(key)).is_none_or(|&known| grew((before, known), (after, set), depth - 1))
    })
}

/// One step of the way to a value, as [`steps`] finds it.
#[derive(Debug)]
pub(crate) enum Step<'p> {
    /// A member.
    Member(Cow<'p, str>),
    /// An element of a list, itself.
    Element(Id),
}

/// The way to the value that a JSON pointer names, read as it goes; nothing where there is none.
pub(crate) fn steps<'p>(object: &mut Tree<'_>, pointer: &'p str) -> Option<Vec<Step<'p>>> {
    let (mut at, mut steps) = (Tree::ROOT, Vec::new());
    for segment in pointer.split('/').skip(1) {
        object.read(at);
        let name = unescape(segment)?;
        (at, _) = match object.kind(at) {
            Kind::Object => (object.member(at, &name)?, steps.push(Step::Member(name))),
            Kind::Array => {
                let element = object.elements(at).nth(segment.parse().ok()?)?;
                object.read(element);
                (element, steps.push(Step::Element(element)))
            }
            Kind::String | Kind::Scalar => return None,
        };
    }
    Some(steps)
}

/// Reports whether a key of FieldsV1 stands for a step in this object.
pub(crate) fn leads(object: View<'_, '_>, step: &Step<'_>, key: &str) -> bool {
    match step {
        Step::Member(name) => key.strip_prefix("f:") == Some(name),
        Step::Element(element) => {
            let member = |name: &str| object.member(*element, name).map(|id| Cow::Borrowed(object.raw(id)));
            names(key, member, || Cow::Borrowed(object.raw(*element)))
        }
    }
}

/// Reports whether a key of FieldsV1 names an element of a list: `k:{"name":"web"}` by its members, `v:"x"` by its value. Both
/// are given as JSON.
pub(crate) fn names<'j>(
    key: &str,
    member: impl Fn(&str) -> Option<Cow<'j, str>>,
    value: impl FnOnce() -> Cow<'j, str>,
) -> bool {
    if let Some(members) = key.strip_prefix("k:") {
        let Ok(named) = Tree::parse(members.as_bytes()) else { return false };
        return named.kind(Tree::ROOT) == Kind::Object
            && named.members(Tree::ROOT).all(|(name, expected)| {
                member(&named.string(name)).is_some_and(|found| same(named.raw(expected), &found))
            });
    }
    key.strip_prefix("v:").is_some_and(|expected| same(expected, &value()))
}

/// Reports whether two JSON texts are equal: the API server escapes some characters in one place and not in another.
fn same(one: &str, other: &str) -> bool {
    let read = |json: &str| serde_json::from_str::<serde_json::Value>(json).ok();
    one == other
        || (one.contains('\\') || other.contains('\\')) && read(one).is_some_and(|one| read(other) == Some(one))
}

/// The managedFields of one version of an object, kept apart from it.
#[derive(Debug)]
pub struct ManagedFields {
    json: Vec<u8>,
    shape: Option<Shape>,
    entries: Vec<Id>,
    /// Indexes of the sets that were queried.
    indexes: HashMap<Id, Index>,
}

/// Elements, by the values of the members that are their key.
type ByValues = HashMap<Vec<String>, Id>;

/// A set in which a key is found without a look at each: who asks for the owners of every value of an object asks it as
/// often as it has keys.
#[derive(Debug, Default)]
pub(crate) struct Index {
    /// By the name of a member.
    members: HashMap<String, Id>,
    /// By the values of some members of an element, whose names stand before them. Mostly there is one such list of names.
    keyed: Vec<(Vec<String>, ByValues)>,
    /// By the value of an element.
    values: HashMap<String, Id>,
}

impl Index {
    fn of(view: View<'_, '_>, set: Id) -> Self {
        let mut index = Self::default();
        for (key, below) in view.members(set) {
            let key = view.string(key);
            if let Some(name) = key.strip_prefix("f:") {
                index.members.entry(name.to_owned()).or_insert(below);
            } else if let Some(value) = key.strip_prefix("v:") {
                index.values.entry(plain(value)).or_insert(below);
            } else if let Some(members) = key.strip_prefix("k:")
                && let Ok(named) = Tree::parse(members.as_bytes())
                && named.kind(Tree::ROOT) == Kind::Object
            {
                let members = named.members(Tree::ROOT);
                let (names, values) =
                    members.map(|(name, value)| (named.string(name).into_owned(), plain(named.raw(value)))).unzip();
                let known = index.keyed.iter().position(|(known, _)| *known == names);
                let place = known.unwrap_or_else(|| {
                    index.keyed.push((names, HashMap::new()));
                    index.keyed.len() - 1
                });
                index.keyed[place].1.entry(values).or_insert(below);
            }
        }
        index
    }

    /// Returns the part below the key of a member.
    pub(crate) fn member(&self, name: &str) -> Option<Id> {
        self.members.get(name).copied()
    }

    /// Returns the part below the first key that [`names`] an element.
    pub(crate) fn element(
        &self,
        member: impl Fn(&str) -> Option<String>,
        value: impl FnOnce() -> String,
    ) -> Option<Id> {
        let keyed = self.keyed.iter().filter_map(|(names, keyed)| {
            let values: Option<Vec<String>> = names.iter().map(|name| member(name).map(|json| plain(&json))).collect();
            keyed.get(&values?).copied()
        });
        let valued = Some(&self.values).filter(|values| !values.is_empty());
        let valued = valued.and_then(|values| values.get(&plain(&value())).copied());
        keyed.chain(valued).min()
    }
}

/// A JSON text with no escape that it can do without, so that texts are alike which say the [`same`].
fn plain(json: &str) -> String {
    let read = |json: &str| serde_json::from_str::<serde_json::Value>(json).ok();
    let read = Some(json).filter(|json| json.contains('\\')).and_then(read);
    read.map_or_else(|| json.to_owned(), |value| value.to_string())
}

impl ManagedFields {
    /// Reads managedFields from the JSON of an object; empty if it has none.
    #[must_use]
    pub fn of(object: &[u8]) -> Self {
        let list = Tree::parse_shallow(object).ok().and_then(|mut tree| {
            let list = tree.find(MANAGED_FIELDS)?;
            (tree.kind(list) == Kind::Array).then(|| tree.bytes(list).to_vec())
        });
        let json = list.unwrap_or_default();
        let tree = Tree::parse(&json).ok();
        let entries = tree.as_ref().map_or_else(Vec::new, |tree| tree.elements(Tree::ROOT).collect());
        Self { shape: tree.map(Tree::into_full_shape), entries, json, indexes: HashMap::new() }
    }

    /// Returns all managers that own a field.
    #[must_use]
    pub fn all(&self) -> Vec<Manager> {
        self.with(|books| {
            let have = books.entries.iter().filter(|&&entry| books.fields(entry).is_some());
            have.map(|&entry| books.manager(entry, None)).collect()
        })
    }

    /// Returns the owners of a value. `find` returns the part of a set below a step of the path to the value.
    pub(crate) fn owners<S>(&mut self, path: &[S], find: impl Fn(&Index, &S) -> Option<Id>) -> Vec<Manager> {
        let mut indexes = std::mem::take(&mut self.indexes);
        let owners = self.with(|books| {
            let view = books.view;
            let owners =
                books.owners(path, |set, step| find(indexes.entry(set).or_insert_with(|| Index::of(view, set)), step));
            owners.into_iter().map(|entry| books.manager(entry, Some(By::Owner))).collect()
        });
        self.indexes = indexes;
        owners
    }

    fn with(&self, ask: impl FnOnce(Books<'_, '_>) -> Vec<Manager>) -> Vec<Manager> {
        let view = self.shape.as_ref().and_then(|shape| View::of(&self.json, shape));
        view.map_or_else(Vec::new, |view| ask(Books::of(view, self.entries.clone())))
    }
}
