//! What etcd and the API server keep: one revision counter, every form of every object, and what
//! is compacted of it.

mod losses;
mod unreadable;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;

use serde_json::{Value, json};

use super::faults::{Refusal, Signal};
use super::object::{Content, Kind, Object, Pattern, Row, key};
use super::resources::{self, Served};
use crate::core::runtime;

pub(super) const CRDS: &str = "customresourcedefinitions.apiextensions.k8s.io";
/// Both groups of Events live here. The API server does not cache them: etcd itself answers their watches.
pub(super) const EVENTS: &str = "events";
/// In place of a storage, for the etcd of all that have none of their own.
pub(super) const MAIN: &str = "";

/// The objects of one resource.
#[derive(Debug)]
pub(super) struct Storage {
    name: Arc<str>,
    /// What happened, in order, from `dropped` on.
    log: Vec<Arc<Row>>,
    /// How many rows of the log are no longer kept.
    dropped: usize,
    /// Every kept form of every object, oldest first, by key.
    keys: BTreeMap<String, Vec<Arc<Row>>>,
    /// A watch from an older revision than this is refused.
    pub(super) oldest: u64,
    /// Notified of every new row and signal.
    pub(super) changed: runtime::Signal,
    /// Each with the position in the log that it came at.
    signals: Vec<(usize, Signal)>,
    /// Number of the next revisions that the watch cache loses.
    losing: usize,
    /// Revisions that the watch cache has lost.
    lost: BTreeSet<u64>,
    /// uids of the objects that cannot be read.
    unreadable: BTreeSet<String>,
}

impl Storage {
    fn new(name: &str) -> Self {
        Self {
            name: name.into(),
            log: Vec::new(),
            dropped: 0,
            keys: BTreeMap::new(),
            oldest: 0,
            changed: runtime::Signal::default(),
            signals: Vec::new(),
            losing: 0,
            lost: BTreeSet::new(),
            unreadable: BTreeSet::new(),
        }
    }

    /// Does this to the watches that are open.
    pub(super) fn signal(&mut self, signal: Signal) {
        self.signals.push((self.dropped + self.log.len(), signal));
        self.changed.notify();
    }

    /// How many signals there were.
    pub(super) fn signalled(&self) -> usize {
        self.signals.len()
    }

    /// A signal by its number, and the position in the log that it came at.
    pub(super) fn signal_at(&self, number: usize) -> Option<&(usize, Signal)> {
        self.signals.get(number)
    }

    /// Position in the log of the first row after this revision.
    pub(super) fn position_after(&self, revision: u64) -> usize {
        self.dropped + self.log.partition_point(|row| row.revision <= revision)
    }

    /// The rows from this position on; `None` where they are no longer kept.
    pub(super) fn rows_from(&self, position: usize) -> Option<&[Arc<Row>]> {
        let at = position.checked_sub(self.dropped)?;
        Some(self.log.get(at..).unwrap_or_default())
    }

    /// The object as it is now.
    pub(super) fn current(&self, key: &str) -> Option<&Arc<Row>> {
        self.keys.get(key)?.last().filter(|row| row.kind != Kind::Deleted)
    }

    /// The object as it was right before this row.
    pub(super) fn before(&self, row: &Row) -> Option<&Arc<Row>> {
        let forms = self.keys.get(&row.key())?;
        let at = forms.partition_point(|form| form.revision < row.revision);
        forms[..at].last().filter(|form| form.kind != Kind::Deleted)
    }

    /// Every object as it was at this revision, by key, after `start`.
    pub(super) fn view<'a>(&'a self, revision: u64, start: &str) -> impl Iterator<Item = &'a Arc<Row>> {
        let from = if start.is_empty() { Bound::Unbounded } else { Bound::Excluded(start.to_owned()) };
        self.keys.range((from, Bound::Unbounded)).filter_map(move |(_, forms)| {
            let at = forms.partition_point(|form| form.revision <= revision);
            forms[..at].last().filter(|form| form.kind != Kind::Deleted)
        })
    }

    fn push(&mut self, row: &Arc<Row>) {
        if self.losing > 0 {
            self.losing -= 1;
            self.lost.insert(row.revision);
        }
        self.log.push(Arc::clone(row));
        self.keys.entry(row.key()).or_default().push(Arc::clone(row));
    }

    /// Drops what a compaction at this revision lets go of.
    fn compact(&mut self, revision: u64) {
        let gone = self.log.partition_point(|row| row.revision <= revision);
        self.log.drain(..gone);
        self.dropped += gone;
        self.keys.retain(|_, forms| {
            let at = forms.partition_point(|form| form.revision <= revision);
            forms.drain(..at.saturating_sub(1));
            forms.len() > 1 || forms[0].kind != Kind::Deleted || forms[0].revision > revision
        });
    }

    /// Drops what came after this revision: etcd was restored from a backup.
    fn cut_after(&mut self, revision: u64) {
        let kept = self.log.partition_point(|row| row.revision <= revision);
        self.log.truncate(kept);
        self.keys.retain(|_, forms| {
            forms.truncate(forms.partition_point(|form| form.revision <= revision));
            !forms.is_empty()
        });
        self.oldest = self.oldest.min(revision);
    }
}

/// One etcd: its newest revision, and before which one it is compacted.
#[derive(Debug)]
pub(super) struct Etcd {
    pub(super) revision: u64,
    pub(super) compacted: u64,
}

/// The etcd of almost everything, and those of storages that have one of their own.
#[derive(Debug)]
struct Etcds {
    main: Etcd,
    apart: BTreeMap<String, Etcd>,
}

impl Etcds {
    fn of(&self, storage: &str) -> &Etcd {
        self.apart.get(storage).unwrap_or(&self.main)
    }

    fn of_mut(&mut self, storage: &str) -> &mut Etcd {
        self.apart.get_mut(storage).unwrap_or(&mut self.main)
    }

    /// Whether the two storages are in one, so that their revisions can be compared.
    fn share(&self, one: &str, other: &str) -> bool {
        one == other || !(self.apart.contains_key(one) || self.apart.contains_key(other))
    }
}

/// Everything that is kept.
#[derive(Debug)]
pub(super) struct Store {
    etcds: Etcds,
    /// Counts restores; a watch does not outlive one.
    pub(super) timeline: u64,
    storages: BTreeMap<String, Storage>,
    pub(super) served: Vec<Arc<Served>>,
    /// Every row of the present timeline.
    pub(super) truth: Vec<Arc<Row>>,
    /// Rows that a restore has undone.
    pub(super) undone: Vec<Arc<Row>>,
    random: Random,
}

impl Store {
    pub(super) fn new(seed: u64) -> Self {
        let mut store = Self {
            etcds: Etcds { main: Etcd { revision: 0, compacted: 0 }, apart: BTreeMap::new() },
            timeline: 0,
            storages: BTreeMap::new(),
            served: Vec::new(),
            truth: Vec::new(),
            undone: Vec::new(),
            random: Random::new(seed),
        };
        store.serve();
        store
    }

    /// Gives this storage, which is empty still, an etcd of its own. A fresh one is at revision 1.
    pub(super) fn set_apart(&mut self, storage: &str) {
        self.etcds.apart.insert(storage.to_owned(), Etcd { revision: 1, compacted: 0 });
    }

    /// The etcd of this storage; of no storage, the main one.
    pub(super) fn etcd(&self, storage: &str) -> &Etcd {
        self.etcds.of(storage)
    }

    /// The rows of the main etcd after this revision.
    pub(super) fn truth_after(&self, revision: u64) -> Vec<Arc<Row>> {
        let later = |row: &&Arc<Row>| row.revision > revision && self.etcds.share(MAIN, &row.resource);
        self.truth.iter().filter(later).cloned().collect()
    }

    fn next(&self, storage: &str) -> u64 {
        self.etcd(storage).revision + 1
    }

    /// The resource of this kubectl spelling, such as `deployments.apps`, in its first served version.
    pub(super) fn resource(&self, name: &str) -> Result<Arc<Served>, Refusal> {
        self.served.iter().find(|served| served.resource.full_name() == name).cloned().ok_or_else(Refusal::not_served)
    }

    pub(super) fn storage(&self, name: &str) -> Option<&Storage> {
        self.storages.get(name)
    }

    pub(super) fn storages_mut(&mut self) -> impl Iterator<Item = &mut Storage> {
        self.storages.values_mut()
    }

    pub(super) fn storage_mut(&mut self, name: &str) -> &mut Storage {
        self.storages.entry(name.to_owned()).or_insert_with(|| Storage::new(name))
    }

    /// The object as it is now.
    pub(super) fn find(&self, served: &Served, namespace: &str, name: &str) -> Result<Arc<Row>, Refusal> {
        let namespace = if served.resource.namespaced { namespace } else { "" };
        self.storages
            .get(&served.storage)
            .and_then(|storage| storage.current(&key(namespace, name)))
            .cloned()
            .ok_or_else(|| Refusal::not_found(&served.resource, name))
    }

    /// Creates an object.
    pub(super) fn create(&mut self, served: &Served, mut object: Object) -> Result<Arc<Row>, Refusal> {
        if object.text("name").is_empty() && !object.text("generateName").is_empty() {
            let name = format!("{}{}", object.text("generateName"), self.random.word(5));
            object.metadata.insert("name".to_owned(), name.into());
        }
        if !served.resource.namespaced {
            object.metadata.remove("namespace");
        } else if object.text("namespace").is_empty() {
            object.metadata.insert("namespace".to_owned(), "default".into());
        }
        let name = object.text("name").to_owned();
        if name.is_empty() {
            return Err(Refusal::new(
                422,
                "Invalid",
                "metadata.name: Required value: name or generateName is required",
            ));
        }
        if self.find(served, object.text("namespace"), &name).is_ok() {
            return Err(Refusal::already_exists(&served.resource, &name));
        }
        if object.text("uid").is_empty() {
            let uid = self.random.uid();
            object.metadata.insert("uid".to_owned(), uid.into());
        }
        object.metadata.remove("deletionTimestamp");
        object.metadata.entry("creationTimestamp").or_insert_with(now);
        Ok(self.keep(served, &object, Kind::Added))
    }

    /// Puts a new form in the place of an object; one that says the same makes no revision.
    pub(super) fn replace(
        &mut self,
        served: &Served,
        namespace: &str,
        name: &str,
        mut object: Object,
    ) -> Result<Arc<Row>, Refusal> {
        let current = self.find(served, namespace, name)?;
        let asked = object.text("resourceVersion");
        if !asked.is_empty() && asked != current.revision.to_string() {
            return Err(Refusal::conflict(&served.resource, name));
        }
        let old = current.object();
        // What the server sets, a writer does not change.
        for fixed in
            ["name", "namespace", "uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds"]
        {
            match old.metadata.get(fixed) {
                Some(value) => object.metadata.insert(fixed.to_owned(), value.clone()),
                None => object.metadata.remove(fixed),
            };
        }
        if let Some(generation) = old.metadata.get("generation").and_then(Value::as_u64) {
            let next = generation + u64::from(object.spec() != old.spec());
            object.metadata.insert("generation".to_owned(), next.into());
        }
        if object.says_the_same(&old) {
            return Ok(current);
        }
        if old.metadata.contains_key("deletionTimestamp") && old.has_finalizers() && !object.has_finalizers() {
            // As the real server does it, the write itself is not kept: what goes is the object as it was.
            let row = current.deleted_at(self.next(&served.storage));
            return Ok(self.commit(vec![row]).remove(0));
        }
        Ok(self.keep(served, &object, Kind::Modified))
    }

    /// Deletes an object; with finalizers it is only marked, as the real server does.
    pub(super) fn delete(&mut self, served: &Served, namespace: &str, name: &str) -> Result<Arc<Row>, Refusal> {
        let current = self.find(served, namespace, name)?;
        if served.storage == CRDS {
            self.delete_instances(&current);
        }
        let mut object = current.object();
        if !object.has_finalizers() {
            let row = current.deleted_at(self.next(&served.storage));
            return Ok(self.commit(vec![row]).remove(0));
        }
        if object.metadata.contains_key("deletionTimestamp") {
            return Ok(current);
        }
        self.mark(served, &mut object, 0)
    }

    /// Marks an object as being deleted, as Pods are first; nothing where it is marked already.
    pub(super) fn terminate(
        &mut self,
        served: &Served,
        namespace: &str,
        name: &str,
        grace: u32,
    ) -> Result<Arc<Row>, Refusal> {
        let current = self.find(served, namespace, name)?;
        let mut object = current.object();
        if object.metadata.contains_key("deletionTimestamp") {
            return Ok(current);
        }
        self.mark(served, &mut object, grace)
    }

    fn mark(&mut self, served: &Served, object: &mut Object, grace: u32) -> Result<Arc<Row>, Refusal> {
        // When the grace ends.
        let ends = runtime::now() + jiff::SignedDuration::from_secs(grace.into());
        object.metadata.insert("deletionTimestamp".to_owned(), stamp(ends));
        object.metadata.insert("deletionGracePeriodSeconds".to_owned(), grace.into());
        Ok(self.keep(served, object, Kind::Modified))
    }

    /// Deletes many objects in one revision, as etcd does when a lease runs out.
    pub(super) fn expire(&mut self, gone: &[Arc<Row>]) -> Vec<Arc<Row>> {
        let Some(revision) = gone.first().map(|row| self.next(&row.resource)) else { return Vec::new() };
        self.commit(gone.iter().map(|row| row.deleted_at(revision)).collect())
    }

    /// The objects of a CRD go before it.
    fn delete_instances(&mut self, crd: &Row) {
        let spec = &crd.value()["spec"];
        let storage = format!(
            "{}.{}",
            spec["names"]["plural"].as_str().unwrap_or_default(),
            spec["group"].as_str().unwrap_or_default()
        );
        for row in self.all(&storage) {
            let revision = self.next(&storage);
            self.commit(vec![row.deleted_at(revision)]);
        }
    }

    /// Every object of a storage as it is now.
    pub(super) fn all(&self, storage: &str) -> Vec<Arc<Row>> {
        self.storages.get(storage).map(|s| s.view(u64::MAX, "").cloned().collect()).unwrap_or_default()
    }

    /// Makes `count` objects of one pattern, each in a revision of its own.
    pub(super) fn create_bulk(&mut self, served: &Served, namespace: &str, pattern: &Arc<Pattern>, count: usize) {
        let (resource, namespace): (Arc<str>, Arc<str>) = (served.storage.as_str().into(), namespace.into());
        let first = self.next(&resource);
        let rows = (0..count)
            .map(|index| Row {
                revision: first + index as u64,
                kind: Kind::Added,
                resource: Arc::clone(&resource),
                namespace: Arc::clone(&namespace),
                name: format!("bulk-{index:07}").into(),
                uid: self.random.uid().into(),
                time: runtime::now(),
                content: Content::Bulk(Arc::clone(pattern), 0),
            })
            .collect();
        self.commit(rows);
    }

    /// A new form of `count` objects of a pattern, round and round; `step` is how far it is from one to the next.
    pub(super) fn touch_bulk(&mut self, storage: &str, count: usize, step: usize) {
        let first = self.next(storage);
        let Some(kept) = self.storages.get(storage) else { return };
        let bulk: Vec<_> = kept
            .view(u64::MAX, "")
            .filter_map(|row| match &row.content {
                Content::Bulk(pattern, _) => Some((row, pattern)),
                Content::Kept(_) => None,
            })
            .collect();
        let rows = (0..if bulk.is_empty() { 0 } else { count })
            .map(|index| bulk[index * step % bulk.len()])
            .zip(first..)
            .map(|((row, pattern), revision)| Row {
                revision,
                kind: Kind::Modified,
                time: runtime::now(),
                // Its revision, because no form before it says that.
                content: Content::Bulk(Arc::clone(pattern), revision),
                ..Row::clone(row)
            })
            .collect();
        self.commit(rows);
    }

    fn keep(&mut self, served: &Served, object: &Object, kind: Kind) -> Arc<Row> {
        let revision = self.next(&served.storage);
        let row = Row {
            revision,
            kind,
            resource: served.storage.as_str().into(),
            namespace: object.text("namespace").into(),
            name: object.text("name").into(),
            uid: object.text("uid").into(),
            time: runtime::now(),
            content: Content::Kept(object.render(&self.storage_head(served), revision)),
        };
        self.commit(vec![row]).remove(0)
    }

    /// Objects are kept in the first version that their storage is served in.
    fn storage_head(&self, served: &Served) -> String {
        self.served.iter().find(|other| other.storage == served.storage).map_or_else(|| served.head(), |s| s.head())
    }

    /// The one place where a revision comes to be.
    fn commit(&mut self, rows: Vec<Row>) -> Vec<Arc<Row>> {
        let rows: Vec<Arc<Row>> = rows.into_iter().map(Arc::new).collect();
        let Some(last) = rows.last() else { return rows };
        self.etcds.of_mut(&last.resource).revision = last.revision;
        let storage = self.storage_mut(&Arc::clone(&last.resource));
        for row in &rows {
            storage.push(row);
        }
        storage.changed.notify();
        let definitions = *last.resource == *CRDS;
        self.truth.extend(rows.iter().cloned());
        if definitions {
            self.serve();
        }
        rows
    }

    /// Takes the served resources again from the table and the CRDs. A definition that did not
    /// change keeps its edition, and its watches.
    fn serve(&mut self) {
        let mut served: Vec<Served> = resources::built_in().collect();
        for crd in self.all(CRDS) {
            let value = crd.value();
            let same_spec = |row: &&Arc<Row>| row.kind != Kind::Deleted && row.value()["spec"] == value["spec"];
            let forms = self.storages.get(CRDS).and_then(|s| s.keys.get(&crd.key())).map(Vec::as_slice);
            let edition =
                forms.unwrap_or_default().iter().rev().take_while(same_spec).last().map_or(0, |row| row.revision);
            served.extend(resources::defined_by(&value, edition));
        }
        for one in &served {
            self.storage_mut(&one.storage).changed.notify();
        }
        self.served = served.into_iter().map(Arc::new).collect();
        // Watches of what is no longer served have to notice.
        for storage in self.storages.values() {
            storage.changed.notify();
        }
    }

    /// Compacts what happened before this revision in the etcd of this storage: it can neither be listed nor watched
    /// from.
    pub(super) fn compact(&mut self, storage: &str, revision: u64, and_drop: bool) {
        let etcd = self.etcds.of_mut(storage);
        etcd.compacted = etcd.compacted.max(revision.min(etcd.revision));
        if and_drop {
            let compacted = etcd.compacted;
            let etcds = &self.etcds;
            self.truth.retain(|row| row.revision > compacted || !etcds.share(storage, &row.resource));
            for (_, kept) in self.storages.iter_mut().filter(|(name, _)| etcds.share(storage, name)) {
                kept.compact(compacted);
            }
        }
    }

    /// The same for each etcd, before its newest revision.
    pub(super) fn compact_all(&mut self, and_drop: bool) {
        let apart: Vec<String> = self.etcds.apart.keys().cloned().collect();
        for storage in apart.iter().map(String::as_str).chain([MAIN]) {
            self.compact(storage, u64::MAX, and_drop);
        }
    }

    /// Goes back to what was at this revision; the next write makes the one after it. What is apart stays.
    pub(super) fn restore(&mut self, revision: u64) {
        let main = &mut self.etcds.main;
        (main.revision, main.compacted) = (main.revision.min(revision), main.compacted.min(revision));
        self.timeline += 1;
        let etcds = &self.etcds;
        let later = |row: &mut Arc<Row>| row.revision > revision && etcds.share(MAIN, &row.resource);
        self.undone.extend(self.truth.extract_if(.., later));
        for (_, storage) in self.storages.iter_mut().filter(|(name, _)| etcds.share(MAIN, name)) {
            storage.cut_after(revision);
        }
        self.serve();
    }

    /// The watch caches are empty and begin with what etcd has now; every watch breaks.
    pub(super) fn empty_caches(&mut self) {
        for (name, storage) in &mut self.storages {
            if name != EVENTS {
                storage.oldest = self.etcds.of(name).revision;
                storage.lost.clear();
            }
            storage.signal(Signal::Cut);
        }
    }

    /// The oldest revision that a watch of this storage can begin at.
    pub(super) fn oldest(&self, storage: &str) -> u64 {
        self.storages.get(storage).map_or(0, |s| s.oldest).max(self.etcd(storage).compacted)
    }
}

impl Storage {
    pub(super) fn name(&self) -> &Arc<str> {
        &self.name
    }
}

/// Now, as Kubernetes writes it: whole seconds, UTC.
pub(super) fn now() -> Value {
    stamp(runtime::now())
}

fn stamp(time: jiff::Timestamp) -> Value {
    json!(time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string())
}

/// A small generator (splitmix64): the same seed gives the same names.
#[derive(Clone, Debug)]
pub(super) struct Random(u64);

impl Random {
    pub(super) const fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(super) const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `bound`.
    pub(super) const fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    /// A version 4 UUID.
    pub(super) fn uid(&mut self) -> String {
        let bits = (u128::from(self.next()) << 64) | u128::from(self.next());
        uuid::Builder::from_random_bytes(bits.to_be_bytes()).into_uuid().to_string()
    }

    /// The kind of suffix that Kubernetes gives to generated names.
    pub(super) fn word(&mut self, length: usize) -> String {
        const LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
        (0..length)
            .map(|_| {
                let at = usize::try_from(self.below(LETTERS.len() as u64)).unwrap_or_default();
                char::from(LETTERS[at])
            })
            .collect()
    }
}
