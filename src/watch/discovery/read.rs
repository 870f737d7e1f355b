//! Reads discovery documents, one element at a time.
//!
//! An API server puts together what its backends say, and some of them say `null` where a list belongs, or worse. Each
//! element is read for itself: one that cannot be read makes its own group uncertain, and nothing else.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

use crate::core::model::Resource;

/// Reason for which a group, or some of its versions, is not known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Doubt {
    /// The reason, as the end of a sentence.
    pub why: String,
    /// The versions in question; `None` for any.
    versions: Option<BTreeSet<String>>,
    /// The root of discovery is the reason, and says so once for all of its groups.
    pub(super) of_root: bool,
}

impl Doubt {
    /// A doubt about every version.
    pub(super) fn of_group(why: &str, of_root: bool) -> Self {
        Self { why: why.to_owned(), versions: None, of_root }
    }

    /// Returns `true` where this version may be served, whatever the rest of the answer says.
    pub(super) fn is_about(&self, version: &str) -> bool {
        self.versions.as_ref().is_none_or(|versions| versions.contains(version))
    }
}

/// Contents of the documents below one root.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Part {
    /// Resources that can be listed and watched, in the order of the server.
    pub(super) served: Vec<Resource>,
    /// Resources that are served and cannot be listed and watched.
    pub(super) unlistable: Vec<Resource>,
    /// The groups that have a name.
    pub(super) answered: BTreeSet<String>,
    /// Doubts about them.
    pub(super) doubts: BTreeMap<String, Doubt>,
    /// Groups with resources whose names cannot be read.
    pub(super) nameless: BTreeSet<String>,
    /// Reason for which there may be other groups beside those that have a name.
    pub(super) unnamed: Option<String>,
    /// Every resource so far by group, version and plural: a document may name one twice.
    known: BTreeMap<(String, String, String), bool>,
}

/// The backend of the group does not answer the API server.
const STALE: &str = "its server does not answer the API server";

impl Part {
    fn doubt(&mut self, group: &str, version: Option<&str>, why: &str) {
        let doubt = self.doubts.entry(group.to_owned()).or_insert_with(|| Doubt {
            why: why.to_owned(),
            versions: Some(BTreeSet::new()),
            of_root: false,
        });
        match (version, &mut doubt.versions) {
            (Some(version), Some(versions)) => {
                versions.insert(version.to_owned());
            }
            (None, _) => doubt.versions = None,
            (Some(_), None) => {}
        }
    }

    /// Notes that a version of a group could not be had at all.
    pub(super) fn fails(&mut self, group: &str, version: &str, why: &str) {
        self.doubt(group, Some(version), why);
    }

    fn add(&mut self, resource: Resource, verbs: &[String]) {
        let followed = ["list", "watch"].iter().all(|verb| verbs.iter().any(|have| have == verb));
        let key = (resource.group.clone(), resource.version.clone(), resource.plural.clone());
        let listable = followed && !resource.kind.is_empty();
        match self.known.insert(key, listable) {
            None if listable => self.served.push(resource),
            None => self.unlistable.push(resource),
            Some(false) if listable => {
                let same = |other: &Resource| {
                    (&other.group, &other.version, &other.plural)
                        == (&resource.group, &resource.version, &resource.plural)
                };
                self.unlistable.retain(|other| !same(other));
                self.served.push(resource);
            }
            Some(was) => {
                let key = (resource.group, resource.version, resource.plural);
                self.known.insert(key, was);
            }
        }
    }
}

/// A document of a root, read.
#[derive(Debug)]
pub(super) enum Document {
    /// The one that holds everything.
    Aggregated(Part),
    /// The old form: groups and versions whose resources are to be asked for, the preferred version of a group first.
    Legacy(Part, Vec<(String, String)>),
    /// Any other value.
    Unreadable,
}

impl Document {
    /// Reads the answer at `/api` (`core`) or `/apis`.
    pub(super) fn read(bytes: &[u8], core: bool) -> Self {
        let text = String::from_utf8_lossy(bytes);
        let Ok(fields) = serde_json::from_str::<Fields<'_>>(&text) else { return Self::Unreadable };
        let kind = fields.text("kind");
        let has = |name: &str| !matches!(fields.list(name), Seen::Absent);
        let kind = match &kind {
            Seen::Is(kind) if !kind.is_empty() => Some(kind.as_str()),
            Seen::Absent | Seen::Is(_) | Seen::Wrong => None,
        };
        let aggregated = match kind {
            Some("APIGroupDiscoveryList") => true,
            Some("APIGroupList" | "APIVersions") => false,
            None if has("items") => true,
            None if has("groups") || has("versions") => false,
            Some(_) | None => return Self::Unreadable,
        };
        let mut part = Part::default();
        let read = match (aggregated, core) {
            (true, _) => aggregated_groups(&fields, core, &mut part).map(|()| Vec::new()),
            (false, true) => core_versions(&fields, &mut part),
            (false, false) => legacy_groups(&fields, &mut part),
        };
        match read {
            None => Self::Unreadable,
            Some(_) if aggregated => Self::Aggregated(part),
            Some(wanted) => Self::Legacy(part, wanted),
        }
    }
}

/// An unnamed element of a list of groups.
const UNNAMED: &str = "it has an element that cannot be read, so groups that it does not name may be served";

fn aggregated_groups(document: &Fields<'_>, core: bool, part: &mut Part) -> Option<()> {
    let items = match document.list("items") {
        Seen::Is(items) => items,
        Seen::Absent => Vec::new(),
        Seen::Wrong => return None,
    };
    for item in items {
        let metadata = Fields::of(item).map(|group| (group.object("metadata"), group));
        let (name, group) = match metadata {
            Some((Seen::Is(metadata), group)) => (metadata.text("name"), group),
            Some((Seen::Absent, group)) => (Seen::Absent, group),
            Some((Seen::Wrong, group)) => (Seen::Wrong, group),
            None => {
                part.unnamed = Some(UNNAMED.to_owned());
                continue;
            }
        };
        // The core group has no name.
        let name = match name {
            Seen::Absent if core => String::new(),
            Seen::Is(name) if is_name(&name) || (core && name.is_empty()) => name,
            Seen::Absent | Seen::Is(_) | Seen::Wrong => {
                part.unnamed = Some(UNNAMED.to_owned());
                continue;
            }
        };
        part.answered.insert(name.clone());
        match group.list("versions") {
            Seen::Is(versions) => versions.into_iter().for_each(|version| aggregated_version(&name, version, part)),
            Seen::Absent => {}
            Seen::Wrong => part.doubt(&name, None, "its versions cannot be read"),
        }
    }
    Some(())
}

fn aggregated_version(group: &str, version: &RawValue, part: &mut Part) {
    let fields = Fields::of(version);
    let name = fields.as_ref().and_then(|fields| fields.text("version").name());
    let (Some(fields), Some(name)) = (fields, name) else {
        part.doubt(group, None, "one of its versions cannot be read");
        return;
    };
    if matches!(fields.text("freshness"), Seen::Is(freshness) if freshness == "Stale") {
        part.doubt(group, Some(&name), STALE);
    }
    match fields.list("resources") {
        Seen::Is(resources) => {
            for resource in resources {
                aggregated_resource(group, &name, resource, part);
            }
        }
        Seen::Absent => {}
        Seen::Wrong => part.doubt(group, Some(&name), "its resources cannot be read"),
    }
}

fn aggregated_resource(group: &str, version: &str, resource: &RawValue, part: &mut Part) {
    let fields = Fields::of(resource);
    let plural = fields.as_ref().and_then(|fields| fields.text("resource").name());
    let (Some(fields), Some(plural)) = (fields, plural) else {
        part.nameless.insert(group.to_owned());
        return;
    };
    let kind = match fields.object("responseKind") {
        Seen::Is(kind) => kind.text("kind").or_empty(),
        Seen::Absent | Seen::Wrong => String::new(),
    };
    let resource = Resource {
        group: group.to_owned(),
        version: version.to_owned(),
        kind,
        plural,
        singular: fields.text("singularResource").or_empty(),
        short_names: fields.texts("shortNames"),
        namespaced: matches!(fields.text("scope"), Seen::Is(scope) if scope == "Namespaced"),
    };
    part.add(resource, &fields.texts("verbs"));
}

fn core_versions(document: &Fields<'_>, part: &mut Part) -> Option<Vec<(String, String)>> {
    let versions = match document.list("versions") {
        Seen::Is(versions) => versions,
        Seen::Absent => Vec::new(),
        Seen::Wrong => return None,
    };
    part.answered.insert(String::new());
    let mut wanted = Vec::new();
    for version in versions {
        match Seen::<String>::of(version).name() {
            Some(version) => push_once(&mut wanted, ("", &version)),
            None => part.doubt("", None, "one of its versions cannot be read"),
        }
    }
    Some(wanted)
}

fn legacy_groups(document: &Fields<'_>, part: &mut Part) -> Option<Vec<(String, String)>> {
    let groups = match document.list("groups") {
        Seen::Is(groups) => groups,
        Seen::Absent => Vec::new(),
        Seen::Wrong => return None,
    };
    let mut wanted = Vec::new();
    for group in groups {
        let fields = Fields::of(group);
        let name = fields.as_ref().and_then(|fields| fields.text("name").name());
        let (Some(fields), Some(name)) = (fields, name) else {
            part.unnamed = Some(UNNAMED.to_owned());
            continue;
        };
        part.answered.insert(name.clone());
        let versions = match fields.list("versions") {
            Seen::Is(versions) => versions,
            Seen::Absent => continue,
            Seen::Wrong => {
                part.doubt(&name, None, "its versions cannot be read");
                continue;
            }
        };
        let mut named = Vec::new();
        for version in versions {
            match Fields::of(version).and_then(|version| version_of(&version)) {
                Some(version) => named.push(version),
                None => part.doubt(&name, None, "one of its versions cannot be read"),
            }
        }
        let preferred = match fields.object("preferredVersion") {
            Seen::Is(preferred) => version_of(&preferred),
            Seen::Absent | Seen::Wrong => None,
        };
        named.sort_by_key(|version| Some(version) != preferred.as_ref());
        for version in named {
            push_once(&mut wanted, (&name, &version));
        }
    }
    Some(wanted)
}

/// A version by its name, or by the `GROUP/VERSION` beside it.
fn version_of(fields: &Fields<'_>) -> Option<String> {
    let beside = || {
        let Seen::Is(both) = fields.text("groupVersion") else { return None };
        both.rsplit('/').next().filter(|version| is_name(version)).map(str::to_owned)
    };
    fields.text("version").name().or_else(beside)
}

fn push_once(wanted: &mut Vec<(String, String)>, (group, version): (&str, &str)) {
    if !wanted.iter().any(|(g, v)| (g.as_str(), v.as_str()) == (group, version)) {
        wanted.push((group.to_owned(), version.to_owned()));
    }
}

/// Reads the resources of one version in the old form.
pub(super) fn legacy_resources(bytes: &[u8], group: &str, version: &str, part: &mut Part) {
    let text = String::from_utf8_lossy(bytes);
    let fields = serde_json::from_str::<Fields<'_>>(&text).ok();
    let list = fields.as_ref().filter(|fields| match fields.text("kind") {
        Seen::Is(kind) => kind.is_empty() || kind == "APIResourceList",
        Seen::Absent | Seen::Wrong => fields.has("resources"),
    });
    let resources = match list.map(|fields| fields.list("resources")) {
        Some(Seen::Is(resources)) => resources,
        Some(Seen::Absent) => Vec::new(),
        Some(Seen::Wrong) | None => {
            part.doubt(group, Some(version), "its resources cannot be read");
            return;
        }
    };
    for resource in resources {
        let fields = Fields::of(resource);
        let name = fields.as_ref().and_then(|fields| match fields.text("name") {
            // A name with a slash is a subresource.
            Seen::Is(name) => name.split('/').all(is_name).then_some(name),
            Seen::Absent | Seen::Wrong => None,
        });
        let (Some(fields), Some(plural)) = (fields, name) else {
            part.nameless.insert(group.to_owned());
            continue;
        };
        if plural.contains('/') {
            continue;
        }
        let resource = Resource {
            group: group.to_owned(),
            version: version.to_owned(),
            kind: fields.text("kind").or_empty(),
            plural,
            singular: fields.text("singularName").or_empty(),
            short_names: fields.texts("shortNames"),
            namespaced: fields.flag("namespaced"),
        };
        part.add(resource, &fields.texts("verbs"));
    }
}

/// Returns `true` for a text that can be a part of a path as it is: a group, a version or a plural.
fn is_name(text: &str) -> bool {
    let in_names = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_');
    text.chars().all(in_names) && text.chars().any(|c| c.is_ascii_alphanumeric())
}

/// A field of an object.
#[derive(Debug)]
enum Seen<T> {
    /// It is missing or null.
    Absent,
    /// It is what it should be.
    Is(T),
    /// It is something else.
    Wrong,
}

impl<'a, T: Deserialize<'a>> Seen<T> {
    fn of(raw: &'a RawValue) -> Self {
        match raw.get() {
            "null" => Self::Absent,
            text => serde_json::from_str(text).map_or(Self::Wrong, Self::Is),
        }
    }
}

impl Seen<String> {
    /// Returns the text where it is a name.
    fn name(self) -> Option<String> {
        if let Self::Is(text) = self { is_name(&text).then_some(text) } else { None }
    }

    fn or_empty(self) -> String {
        if let Self::Is(text) = self { text } else { String::new() }
    }
}

/// An object, whose fields are read one by one. Of a field that comes twice the last one counts, as for Go.
#[derive(Debug)]
struct Fields<'a>(Vec<(String, &'a RawValue)>);

impl<'a> Fields<'a> {
    fn of(raw: &'a RawValue) -> Option<Self> {
        serde_json::from_str(raw.get()).ok()
    }

    fn get<T: Deserialize<'a>>(&self, name: &str) -> Seen<T> {
        let field = self.0.iter().rfind(|(field, _)| field == name);
        field.map_or(Seen::Absent, |(_, raw)| Seen::of(raw))
    }

    fn has(&self, name: &str) -> bool {
        self.0.iter().any(|(field, _)| field == name)
    }

    fn text(&self, name: &str) -> Seen<String> {
        self.get(name)
    }

    fn object(&self, name: &str) -> Seen<Self> {
        self.get(name)
    }

    fn list(&self, name: &str) -> Seen<Vec<&'a RawValue>> {
        self.get(name)
    }

    /// Returns the texts of a list, without what is no text.
    fn texts(&self, name: &str) -> Vec<String> {
        let Seen::Is(list) = self.list(name) else { return Vec::new() };
        list.into_iter().filter_map(|raw| serde_json::from_str(raw.get()).ok()).collect()
    }

    fn flag(&self, name: &str) -> bool {
        matches!(self.get(name), Seen::Is(true))
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Fields<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Each;

        impl<'de> Visitor<'de> for Each {
            type Value = Vec<(String, &'de RawValue)>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut fields = Vec::new();
                while let Some(name) = map.next_key()? {
                    fields.push((name, map.next_value()?));
                }
                Ok(fields)
            }
        }

        deserializer.deserialize_map(Each).map(Self)
    }
}

#[cfg(test)]
mod tests;
