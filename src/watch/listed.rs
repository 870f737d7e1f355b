//! A list of metadata, reduced to two numbers for each object, and its comparison with what the journal knows.

use std::cmp::Ordering;
use std::collections::hash_map::RandomState;
use std::collections::{HashMap, HashSet};
use std::hash::BuildHasher;

use super::decode;
use crate::core::model::ResourceVersion;
use crate::journal::{JournalError, KnownObject, Name, Reader, SourceId};

/// Accept header: metadata only, and the types to fall back to with servers that do not have it.
pub(super) const METADATA: &str = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json";

/// The uid and the version of an object, if it is there.
pub(super) type Shown = Option<(String, String)>;

/// Objects of the API server at a version: for each a hash of its name, and one of its state.
#[derive(Debug, Default)]
pub(super) struct Listed {
    pub(super) version: ResourceVersion,
    objects: HashMap<u64, u64>,
    /// Set if it has objects without identity: each may be any of those that it seems to lack.
    has_nameless: bool,
    /// Names that it has more than once: which of them the log has last says nothing.
    twice: HashSet<u64>,
    /// Objects that are looked for.
    named: HashMap<u64, (Name, Shown)>,
}

impl Listed {
    pub(super) fn meet(&mut self, keys: &RandomState, wanted: &HashSet<u64>, object: &decode::Odd) {
        if object.name.is_empty() {
            self.has_nameless = true;
            return;
        }
        let name = keys.hash_one((&*object.namespace, &*object.name));
        if wanted.contains(&name) {
            let shown = Some((object.uid.clone(), object.version.clone()));
            self.named.insert(name, ((object.namespace.clone(), object.name.clone()), shown));
        }
        if self.objects.insert(name, keys.hash_one((&*object.uid, &*object.version))).is_some() {
            self.twice.insert(name);
        }
    }
}

impl Listed {
    /// A list of a version, without objects yet.
    pub(super) fn at(version: ResourceVersion) -> Self {
        Self { version, ..Self::default() }
    }

    /// Leaves out an object that the API server cannot read.
    pub(super) fn excuse(&mut self, keys: &RandomState, (namespace, name): &Name) {
        self.twice.insert(keys.hash_one((&**namespace, &**name)));
    }

    /// Returns the number of its objects.
    pub(super) fn count(&self) -> u64 {
        self.objects.len() as u64
    }

    /// Compares with the journal, which has passed the version of the list: the numbers that stand for the names of objects that
    /// differ, and of those that are `wanted` the names and the states in the list.
    pub(super) fn differences(
        self,
        reader: &Reader,
        id: SourceId,
        keys: &RandomState,
        wanted: &HashSet<u64>,
    ) -> Result<HashMap<u64, Option<(Name, Shown)>>, JournalError> {
        let version = self.version.clone();
        let mut judge = Judge::new(self, keys, wanted);
        for [namespace, name, uid, version] in reader.unread(id)? {
            judge.excuse((&namespace, &name), (&uid, &version));
        }
        reader.each_known(id, &version, |known| judge.meet(&known))?;
        Ok(judge.differences())
    }
}

/// Compares a list with objects of the journal, which has passed the version of the list.
struct Judge<'a> {
    listed: Listed,
    keys: &'a RandomState,
    wanted: &'a HashSet<u64>,
    differences: HashSet<u64>,
    /// Names of what the list has as the log says that it could not be recorded, and of what it has twice.
    excused: HashSet<u64>,
}

impl<'a> Judge<'a> {
    fn new(mut listed: Listed, keys: &'a RandomState, wanted: &'a HashSet<u64>) -> Self {
        let excused = std::mem::take(&mut listed.twice);
        listed.objects.retain(|name, _| !excused.contains(name));
        Self { listed, keys, wanted, differences: HashSet::new(), excused }
    }

    /// A version that is too large to be kept, and recorded as such, is no difference.
    fn excuse(&mut self, name: (&str, &str), state: (&str, &str)) {
        let name = self.keys.hash_one(name);
        if self.listed.objects.get(&name) == Some(&self.keys.hash_one(state)) {
            self.listed.objects.remove(&name);
            self.excused.insert(name);
        }
    }

    fn meet(&mut self, known: &KnownObject) {
        let name = self.keys.hash_one((&*known.namespace, &*known.name));
        let state = self.keys.hash_one((&*known.uid, known.version.as_str()));
        if self.excused.contains(&name) {
            return;
        }
        if self.wanted.contains(&name) {
            let missing = || ((known.namespace.clone(), known.name.clone()), None);
            self.listed.named.entry(name).or_insert_with(missing);
        }
        match known.version.compare(&self.listed.version) {
            Some(Ordering::Less | Ordering::Equal) if known.present => match self.listed.objects.remove(&name) {
                Some(found) if found == state => {}
                None if self.listed.has_nameless => {}
                Some(_) | None => drop(self.differences.insert(name)),
            },
            // Dead before the list: what it has under this name is another one, or was never recorded.
            Some(Ordering::Less | Ordering::Equal) => {}
            // Newer than the list, which therefore says nothing about it.
            Some(Ordering::Greater) | None => {
                self.listed.objects.remove(&name);
            }
        }
    }

    /// Returns the name hashes of objects that differ, including those that the journal lacks; with name and state in the list where
    /// they were looked for.
    fn differences(mut self) -> HashMap<u64, Option<(Name, Shown)>> {
        self.differences.extend(self.listed.objects.into_keys());
        let named = &mut self.listed.named;
        self.differences.into_iter().map(|name| (name, named.remove(&name))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The names that differ between a list at 20 and what is known.
    fn differing(listed: &[(&str, &str, &str)], known: &[(&str, &str, &str, bool)]) -> Vec<String> {
        let keys = RandomState::new();
        let mut list = Listed { version: ResourceVersion::new("20"), ..Listed::default() };
        for (name, uid, version) in listed {
            list.objects.insert(keys.hash_one(("shop", *name)), keys.hash_one((*uid, *version)));
        }
        let wanted = HashSet::new();
        let mut judge = Judge::new(list, &keys, &wanted);
        for (name, uid, version, present) in known {
            judge.meet(&KnownObject {
                namespace: "shop".to_owned(),
                name: (*name).to_owned(),
                uid: (*uid).to_owned(),
                version: ResourceVersion::new(*version),
                present: *present,
            });
        }
        let found = judge.differences();
        let names = listed.iter().map(|row| row.0).chain(known.iter().map(|row| row.0));
        let mut names: Vec<String> =
            names.filter(|name| found.contains_key(&keys.hash_one(("shop", *name)))).map(str::to_owned).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), found.len());
        names
    }

    #[test]
    fn what_is_the_same_or_newer_than_the_list_is_no_difference() {
        let listed =
            [("same", "u1", "7"), ("changed since", "u2", "8"), ("gone since", "u3", "9"), ("again", "u4", "3")];
        let known = [
            ("same", "u1", "7", true),
            ("changed since", "u2", "21", true),
            ("gone since", "u3", "22", false),
            ("again", "u9", "23", true),
            ("new since", "u5", "24", true),
            ("came and went", "u6", "25", false),
            ("long dead", "u7", "5", false),
        ];
        assert_eq!(differing(&listed, &known), Vec::<String>::new());
    }

    /// Each audit would find the difference again, because the log has one of them last.
    #[test]
    fn a_name_that_a_list_has_twice_is_no_difference() {
        let keys = RandomState::new();
        let odd = |uid: &str, version: &str| decode::Odd {
            name: "a".to_owned(),
            uid: uid.to_owned(),
            version: version.to_owned(),
            ..decode::Odd::default()
        };
        let mut listed = Listed { version: ResourceVersion::new("20"), ..Listed::default() };
        for object in [odd("u2", "7"), odd("u1", "5")] {
            listed.meet(&keys, &HashSet::new(), &object);
        }
        let wanted = HashSet::new();
        let mut judge = Judge::new(listed, &keys, &wanted);
        judge.meet(&KnownObject {
            namespace: String::new(),
            name: "a".to_owned(),
            uid: "u2".to_owned(),
            version: ResourceVersion::new("7"),
            present: true,
        });
        assert!(judge.differences().is_empty());
    }

    #[test]
    fn every_kind_of_loss_is_a_difference() {
        // The server left its ADDED out, or it came and the journal never had it.
        assert_eq!(differing(&[("a", "u1", "7")], &[]), ["a"]);
        // A MODIFIED.
        assert_eq!(differing(&[("a", "u1", "7")], &[("a", "u1", "6", true)]), ["a"]);
        // A DELETED.
        assert_eq!(differing(&[], &[("a", "u1", "20", true)]), ["a"]);
        // DELETED and ADDED.
        assert_eq!(differing(&[("a", "u2", "7")], &[("a", "u1", "7", true)]), ["a"]);
        // An ADDED after a DELETED that came.
        assert_eq!(differing(&[("a", "u1", "12")], &[("a", "u1", "9", false)]), ["a"]);
    }
}
