//! Compares what the journal knows of a source with what the API server has.
//!
//! A watch that leaves an event out, a cache in between, or a mistake of our own would show nowhere else. An audit is a
//! list of metadata alone, in pages, and exact although everything goes on meanwhile: the list is of one version, the
//! comparison waits until the source has passed that version, and what has a newer version by then cannot be judged
//! and is left alone. Memory is two numbers for each listed object, whatever the objects hold.
//!
//! What it cannot see: a version that came and went between two that are known, and whatever the API server leaves out
//! of its lists too.
//!
//! # Decision: an audit is exact without stopping anything
//!
//! Context: Watch caches can lose events silently.
//! Decision: The audit lists metadata at one version V, waits until the source has passed V, and compares in one transaction:
//! objects with a newer version are skipped, all others have to be equal. The list is reduced to two 64-bit numbers per
//! object.
//! Cost: On newer servers the list comes from their own cache, which they compare with etcd themselves.

use std::cmp::Ordering;
use std::collections::hash_map::RandomState;
use std::collections::{HashMap, HashSet};
use std::hash::BuildHasher;
use std::sync::Arc;
use std::time::Duration;

use http::Method;
use tokio::time::{MissedTickBehavior, timeout};

use super::Shared;
use super::decode;
use super::frame::{Item, Items};
use super::pages::Pages;
use super::requests::{Stop, list_params, request, selector, unbuilt};
use crate::core::model::{ResourceVersion, SourceSpec};
use crate::core::runtime::{self, watch};
use crate::journal::{Audit, JournalError, KnownObject, SourceId};
use crate::watch::cluster::{Failure, next_part};

/// Accept header: metadata only, and the types to fall back to with servers that do not have it.
pub(super) const METADATA: &str = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json";

/// Bytes of an item beyond which only its identity is read.
const ITEM_LIMIT: usize = 256 << 10;

/// A list of an audit may have this many objects beyond what the log knows.
const MORE: u64 = if cfg!(test) { 5_000 } else { 100_000 };

/// Two pages are at least this far apart, whatever is in them.
const PAGE_INTERVAL: Duration = Duration::from_millis(20);

/// Audits one source, once. Dropping it at any moment is safe.
pub(super) struct Auditor {
    pub(super) shared: Arc<Shared>,
    pub(super) spec: SourceSpec,
    /// The field selector that the API server takes.
    pub(super) fields: String,
    pub(super) id: SourceId,
    /// Version up to which everything was given to the journal.
    pub(super) position: watch::Receiver<Option<ResourceVersion>>,
}

/// Result of one comparison of the API server with the journal.
enum Look {
    /// Objects that differ at this version, by the numbers that stand for their names.
    Differences(ResourceVersion, HashSet<u64>),
    /// The source has not passed the list's version in time, or the versions have no order.
    Undecided(&'static str),
}

impl Auditor {
    /// Looks, and where something differs a second time. `None` where nothing can be said.
    pub(super) async fn audit(self) -> Result<Option<Audit>, Stop> {
        let (keys, began) = (RandomState::new(), runtime::now());
        let (version, first) = match self.look(&keys).await? {
            Look::Differences(version, found) => (version, found),
            Look::Undecided(why) => {
                tracing::debug!(source = self.spec.name(), why, "an audit came to nothing");
                return Ok(None);
            }
        };
        if first.is_empty() {
            return Ok(Some(Audit { version, began, differences: 0 }));
        }
        tracing::info!(source = self.spec.name(), objects = first.len(), "an audit found differences: looking again");
        // A difference that is one is still there.
        match self.look(&keys).await? {
            Look::Differences(version, second) => {
                let differences = first.intersection(&second).count() as u64;
                Ok(Some(Audit { version, began, differences }))
            }
            Look::Undecided(_) => Ok(None),
        }
    }

    async fn look(&self, keys: &RandomState) -> Result<Look, Stop> {
        let listed = self.list(keys).await?;
        let version = listed.version.clone();
        if !listed.version.is_ordered() {
            return Ok(Look::Undecided("the versions have no order"));
        }
        let passed = |position: &Option<ResourceVersion>| {
            position.as_ref().is_some_and(|position| position.compare(&listed.version).is_some_and(Ordering::is_ge))
        };
        let mut position = self.position.clone();
        match timeout(self.shared.timings.audit_patience, position.wait_for(passed)).await {
            Ok(Ok(_)) => {}
            Ok(Err(_)) | Err(_) => return Ok(Look::Undecided("no bookmark and no change came")),
        }
        // What was handed over has to be on disk, because that is what is compared.
        self.shared.journal.flush().await?;
        let (journal, id, keys) = (self.shared.journal.clone(), self.id, keys.clone());
        let compared = runtime::blocking(move || -> Result<HashSet<u64>, JournalError> {
            let mut judge = Judge::new(listed, &keys);
            let version = judge.listed.version.clone();
            let reader = journal.reader()?;
            for [namespace, name, uid, version] in reader.unread(id)? {
                judge.excuse((&namespace, &name), (&uid, &version));
            }
            reader.each_known(id, &version, |known| judge.meet(&known))?;
            Ok(judge.differences())
        });
        match compared.await {
            Ok(differences) => Ok(Look::Differences(version, differences)),
            // Whoever cannot read now, for want of descriptors for instance, tries again in the next period.
            Err(error) => {
                tracing::warn!(source = self.spec.name(), "an audit cannot read the journal: {error}");
                Ok(Look::Undecided("the journal cannot be read"))
            }
        }
    }

    /// Returns the limit of a list: twice the number of objects that the log knows, and some more.
    async fn most(&self) -> Result<u64, Stop> {
        let (journal, id) = (self.shared.journal.clone(), self.id);
        let known = runtime::blocking(move || journal.reader()?.losses(id)).await;
        let unreadable = |error: JournalError| Failure::Unreachable(format!("the journal cannot be read: {error}"));
        let (known, _) = known.map_err(unreadable)?;
        Ok(known.saturating_mul(2).saturating_add(MORE))
    }

    /// The whole list, at one version.
    async fn list(&self, keys: &RandomState) -> Result<Listed, Stop> {
        let shared = &self.shared;
        let generation = shared.api.generation().await;
        shared.verify(None, generation).await?;
        let api = shared.api.pinned(generation);
        let _room = shared.limiter.audit().await;
        let most = self.most().await?;
        let (mut listed, mut pages) = (Listed::default(), Pages::default());
        let (mut token, mut accept) = (None, METADATA);
        let mut pace = tokio::time::interval(PAGE_INTERVAL);
        pace.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            pace.tick().await;
            shared.limiter.turn().await;
            let first = token.is_none();
            let params = kube::core::params::ListParams {
                limit: Some(shared.timings.page),
                continue_token: token,
                field_selector: selector(&self.fields),
                ..list_params(&self.spec)
            };
            let uri = request(&self.spec).list(&params).map_err(unbuilt)?.uri().to_string();
            let answer = match api.send(Method::GET, &uri, accept, Vec::new()).await {
                // An API that takes our wish for nonsense may well have the whole objects.
                Err(Failure::Refused(_)) if first => {
                    accept = "application/json";
                    api.send(Method::GET, &uri, accept, Vec::new()).await
                }
                answer => answer,
            };
            let mut body = answer?.into_body();
            // Longer ones are of servers that do not know metadata alone.
            let mut items = Items::new(ITEM_LIMIT.min(shared.timings.line_limit));
            while let Some(part) = next_part(&mut body, shared.api.limits().read).await? {
                items.push(&part, |item| -> Result<(), Failure> {
                    let (Item::Whole(item) | Item::Outline(item)) = item;
                    let odd = match decode::item(&self.spec.resource, item) {
                        Ok(object) => object.into(),
                        Err(odd) => odd,
                    };
                    pages.object(&odd.namespace, &odd.name);
                    if !self.spec.leaves_out(&odd.namespace) {
                        listed.meet(keys, &odd);
                    }
                    Ok(())
                })?;
            }
            let page = decode::envelope(items.envelope()).map_err(Failure::Undecodable)?;
            if !first && page.version != listed.version {
                return Err(Failure::Unreachable("a list changed its version between two pages".to_owned()).into());
            }
            pages.end_of_page(page.next.as_deref(), page.left).map_err(Failure::Server)?;
            if listed.objects.len() as u64 > most {
                let text = format!("the list of an audit has more than {most} objects, which the log does not know");
                return Err(Failure::Server(text).into());
            }
            listed.version = page.version;
            token = page.next;
            if token.is_none() {
                return Ok(listed);
            }
        }
    }
}

/// Objects of the API server at a version: for each a hash of its name, and one of its state.
#[derive(Debug, Default)]
struct Listed {
    version: ResourceVersion,
    objects: HashMap<u64, u64>,
    /// Set if it has objects without identity: each may be any of those that it seems to lack.
    has_nameless: bool,
    /// Names that it has more than once: which of them the log has last says nothing.
    twice: HashSet<u64>,
}

impl Listed {
    fn meet(&mut self, keys: &RandomState, object: &decode::Odd) {
        if object.name.is_empty() {
            self.has_nameless = true;
            return;
        }
        let name = keys.hash_one((&*object.namespace, &*object.name));
        if self.objects.insert(name, keys.hash_one((&*object.uid, &*object.version))).is_some() {
            self.twice.insert(name);
        }
    }
}

/// Compares a list with objects of the journal, which has passed the version of the list.
struct Judge<'a> {
    listed: Listed,
    keys: &'a RandomState,
    differences: HashSet<u64>,
    /// Names of what the list has as the log says that it could not be recorded, and of what it has twice.
    excused: HashSet<u64>,
}

impl<'a> Judge<'a> {
    fn new(mut listed: Listed, keys: &'a RandomState) -> Self {
        let excused = std::mem::take(&mut listed.twice);
        listed.objects.retain(|name, _| !excused.contains(name));
        Self { listed, keys, differences: HashSet::new(), excused }
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

    /// Returns the name hashes of objects that differ, including those that the journal lacks.
    fn differences(mut self) -> HashSet<u64> {
        self.differences.extend(self.listed.objects.into_keys());
        self.differences
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
        let mut judge = Judge::new(list, &keys);
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
            names.filter(|name| found.contains(&keys.hash_one(("shop", *name)))).map(str::to_owned).collect();
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
            listed.meet(&keys, &object);
        }
        let mut judge = Judge::new(listed, &keys);
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
