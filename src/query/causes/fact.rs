//! An entry, as far as its place among causes and effects depends on it.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::Facts;
use crate::core::k8s::bookkeeping::is_book;
use crate::core::k8s::managed_fields::Manager;
use crate::core::model::EntryType;
use crate::core::wire::{Change, Entry, authors};
use crate::query::churn::Class;
use crate::query::ownership::{OwnerReference, parent};
use crate::query::render::object::when;

/// Managers of the control plane and the nodes. What they write follows from what somebody else wrote.
const CONTROL_PLANE: [&str; 10] = [
    "kube-controller-manager",
    "kube-scheduler",
    "kube-apiserver",
    "kubelet",
    "kube-proxy",
    "cloud-controller-manager",
    "horizontal-pod-autoscaler",
    "k3s",
    "k3s-server",
    "rke2",
];

/// Resources of which controllers write each change.
const DERIVED: [&str; 5] =
    ["events", "events.events.k8s.io", "leases.coordination.k8s.io", "endpoints", "endpointslices.discovery.k8s.io"];

/// Kind of a change, before it is known whose object it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A first list found the object, which is no change.
    Found,
    /// It follows from another change, whoever owns the object.
    Derived,
    /// The object is marked for deletion.
    Marked,
    /// A controller of the control plane wrote what others write: replicas through `scale`, or anything else.
    Controller { scale: bool },
    /// The object was created, written or deleted.
    Written,
}

/// An object that another one concerns without owning it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Relation {
    Uid(String),
    /// Kind and name, in the same namespace.
    Named(String, String),
    /// Objects in the same namespace whose Pods have these labels.
    Selector(BTreeMap<String, String>),
}

/// An entry.
#[derive(Debug)]
pub(super) struct Fact {
    pub(super) seq: u64,
    /// Time of the change, microseconds since 1970.
    pub(super) time: i64,
    pub(super) op: EntryType,
    pub(super) object: usize,
    pub(super) kind: Kind,
    /// It changed nothing but bookkeeping, as each write of a storage rewrite does.
    pub(super) is_bookkeeping: bool,
    /// Index of its writers in the names.
    pub(super) writer: usize,
    /// Digest of the fields that it changed.
    pub(super) fields: u64,
    pub(super) relations: Box<[Relation]>,
    /// False if a filter leaves it out.
    pub(super) is_wanted: bool,
}

/// The parts of an object that say what it belongs to.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Parts<'a> {
    metadata: Metadata,
    #[serde(borrow)]
    spec: Option<&'a RawValue>,
    #[serde(borrow)]
    endpoints: Option<&'a RawValue>,
    #[serde(borrow)]
    subsets: Option<&'a RawValue>,
    #[serde(borrow)]
    involved_object: Option<&'a RawValue>,
    #[serde(borrow)]
    regarding: Option<&'a RawValue>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Metadata {
    owner_references: Option<Vec<OwnerReference>>,
    deletion_timestamp: Option<String>,
}

impl Facts {
    /// Takes an entry that is no gap, in any order.
    ///
    /// # Errors
    /// Where its change cannot be read.
    pub(crate) fn take(&mut self, entry: &Entry<'_>, is_wanted: bool) -> Result<(), serde_json::Error> {
        let json = entry.object.map_or("{}", RawValue::get);
        let parts: Parts<'_> = serde_json::from_str(json).unwrap_or_default();
        let resource = entry.full_resource();
        let change = Change::of(entry)?.unwrap_or_default();
        let writers = if entry.op == EntryType::Modified { change.managers.clone() } else { authors(entry) };
        for writer in writers.iter().filter(|writer| writer.subresource.as_deref() == Some("status")) {
            self.controllers.insert(writer.manager.clone());
        }
        let kind = self.kind(entry, &change, &writers, &parts);
        let is_seen = !matches!(entry.evidence.as_deref(), Some("listed" | "inferred"));
        let class = || self.classes.of(&resource, &change, entry.time.parse().ok());
        let is_bookkeeping = entry.op == EntryType::Modified && is_seen && class().is_bookkeeping();
        let relations = relations(&resource, &change, &parts);
        let object = self.object(entry, &resource);
        let known = &mut self.objects[object];
        if known.parent.is_none() {
            known.parent = parts.metadata.owner_references.and_then(parent);
        }
        if known.pod_labels.is_none() {
            known.pod_labels = parts.spec.and_then(pod_labels);
        }
        let time = when(entry).max(Timestamp::UNIX_EPOCH).as_microsecond();
        let fields = digest(&change);
        let mut names: Vec<String> = writers.into_iter().map(|writer| writer.manager).collect();
        names.sort();
        names.dedup();
        let writer = self.writer(names);
        self.entries.push(Fact {
            seq: entry.seq,
            time,
            op: entry.op,
            object,
            kind,
            is_bookkeeping,
            writer,
            fields,
            relations,
            is_wanted,
        });
        Ok(())
    }

    fn kind(&self, entry: &Entry<'_>, change: &Change<'_>, writers: &[Manager], parts: &Parts<'_>) -> Kind {
        let resource = entry.full_resource();
        let is_of_control_plane = !writers.is_empty() && writers.iter().all(|one| is_of_control_plane(&one.manager));
        let is_outside = !writers.is_empty() && !is_of_control_plane;
        if entry.op == EntryType::Added && entry.evidence.as_deref() == Some("listed") {
            return Kind::Found;
        }
        // Endpoints without a selector are written by hand.
        let by_hand = is_outside && resource.starts_with("endpoint");
        if is_derived(&resource) && !by_hand {
            return Kind::Derived;
        }
        if entry.op != EntryType::Modified {
            return if is_of_control_plane { Kind::Controller { scale: false } } else { Kind::Written };
        }
        let touches = |path: &str| change.patch.iter().any(|op| op.path == path);
        if parts.metadata.deletion_timestamp.is_some() {
            return if touches("/metadata/deletionTimestamp") { Kind::Marked } else { Kind::Derived };
        }
        let time = entry.time.parse().ok();
        let class = self.classes.of(&resource, change, time);
        // Stamps that somebody outside writes again and again are a line of their own.
        if class == Class::Status || class.is_no_op() && !(class == Class::TimeStamps && is_outside) {
            return Kind::Derived;
        }
        // The scheduler binds a Pod without a trace in managedFields.
        let is_binding = |path: &str| is_book(path) || path == "/spec/nodeName" || path.starts_with("/status");
        if resource == "pods" && writers.is_empty() && change.patch.iter().all(|op| is_binding(&op.path)) {
            return Kind::Derived;
        }
        if !is_of_control_plane {
            return Kind::Written;
        }
        // Revisions, finalizers and the like.
        let is_upkeep = |area: &String| ["metadata", "managedFields", "status"].contains(&area.as_str());
        if change.areas.iter().all(is_upkeep) {
            return Kind::Derived;
        }
        Kind::Controller { scale: writers.iter().any(|one| one.subresource.as_deref() == Some("scale")) }
    }
}

/// Reports whether a manager is one of the control plane and the nodes.
pub(crate) fn is_of_control_plane(manager: &str) -> bool {
    CONTROL_PLANE.contains(&manager)
}

/// Reports whether controllers write each change of a resource, by its full name.
pub(crate) fn is_derived(resource: &str) -> bool {
    DERIVED.contains(&resource)
}

/// Returns a number that is the same for changes of the same fields, whatever their values are.
fn digest(change: &Change<'_>) -> u64 {
    let mut paths: Vec<&str> = change.patch.iter().map(|op| &*op.path).filter(|path| !is_book(path)).collect();
    paths.retain(|path| !path.starts_with("/status"));
    paths.sort_unstable();
    paths.dedup();
    let mut digest = DefaultHasher::new();
    paths.hash(&mut digest);
    change.dropped().collect::<Vec<_>>().hash(&mut digest);
    digest.finish()
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Labelled {
    metadata: Labels,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Labels {
    labels: Option<BTreeMap<String, String>>,
}

/// Returns the labels of the Pods that a workload makes.
fn pod_labels(spec: &RawValue) -> Option<BTreeMap<String, String>> {
    #[derive(Deserialize)]
    struct Spec {
        template: Labelled,
    }
    serde_json::from_str::<Spec>(spec.get()).ok()?.template.metadata.labels
}

fn relations(resource: &str, change: &Change<'_>, parts: &Parts<'_>) -> Box<[Relation]> {
    let read = |raw: Option<&RawValue>| raw.and_then(|raw| serde_json::from_str::<Value>(raw.get()).ok());
    let text = |value: &Value, key: &str| value[key].as_str().unwrap_or_default().to_owned();
    let mut found = Vec::new();
    match resource {
        "events" | "events.events.k8s.io" => {
            let about = read(parts.involved_object).or_else(|| read(parts.regarding)).unwrap_or_default();
            found.extend(Some(text(&about, "uid")).filter(|uid| !uid.is_empty()).map(Relation::Uid));
            found.push(Relation::Named(text(&about, "kind"), text(&about, "name")));
        }
        "endpoints" | "endpointslices.discovery.k8s.io" => {
            for value in [read(parts.endpoints), read(parts.subsets)].into_iter().flatten() {
                targets(&value, &mut found);
            }
            for raw in change.patch.iter().flat_map(|op| [op.was, op.value]) {
                read(raw).iter().for_each(|value| targets(value, &mut found));
            }
        }
        "poddisruptionbudgets.policy" => {
            let spec = read(parts.spec).unwrap_or_default();
            let labels = serde_json::from_value(spec["selector"]["matchLabels"].clone());
            found.extend(labels.ok().map(Relation::Selector));
        }
        "horizontalpodautoscalers.autoscaling" => {
            let target = read(parts.spec).map(|mut spec| spec["scaleTargetRef"].take()).unwrap_or_default();
            found.push(Relation::Named(text(&target, "kind"), text(&target, "name")));
        }
        _ => {}
    }
    found.into()
}

/// Adds the objects that the addresses of endpoints stand for.
fn targets(value: &Value, found: &mut Vec<Relation>) {
    match value {
        Value::Object(members) => {
            if let Some(uid) = members.get("targetRef").and_then(|target| target["uid"].as_str()) {
                let target = Relation::Uid(uid.to_owned());
                if !found.contains(&target) {
                    found.push(target);
                }
            }
            members.values().for_each(|member| targets(member, found));
        }
        Value::Array(items) => items.iter().for_each(|item| targets(item, found)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Reports whether an object of the whole cluster concerns one of these namespaces: it is one, it names one, or every Pod
/// may come to it.
pub(crate) fn concerns(entry: &Entry<'_>, namespaces: &[String]) -> bool {
    let json = entry.object.map_or("", RawValue::get);
    let resource = entry.full_resource();
    let holds = |text: &str| json.contains(text);
    let is_of_all = || {
        let groups = ["system:serviceaccounts", "system:authenticated", "system:unauthenticated"];
        resource == "clusterrolebindings.rbac.authorization.k8s.io"
            && groups.iter().any(|group| holds(&format!("\"name\":\"{group}\"")))
    };
    let names = |namespace: &String| {
        holds(&format!("\"namespace\":\"{namespace}\"")) || holds(&format!("\"system:serviceaccounts:{namespace}\""))
    };
    match resource.as_str() {
        "nodes" => true,
        "namespaces" => namespaces.iter().any(|namespace| entry.name.as_deref() == Some(namespace)),
        _ => namespaces.iter().any(names) || is_of_all(),
    }
}
