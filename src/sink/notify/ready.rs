//! The ready-made rules.
//!
//! Each looks at what an entry says: the object before and after a change, and who made it. What a first list found is no change.

use std::cell::OnceCell;
use std::collections::{BTreeMap, HashSet};

use memchr::memmem;
use serde_json::Value;

use super::rbac::{Role, list};
use crate::core::change::redact::is_digest;
use crate::core::json::pointer::unescape;
use crate::core::json::tree::Id;
use crate::core::json::weight::{MANY, Weight};
use crate::core::k8s::managed_fields::{By, Index, ManagedFields, Manager};
use crate::core::model::{EntryType, Evidence};
use crate::core::wire::{Change, Entry};

/// A ready-made rule.
#[derive(Debug)]
pub struct Ready {
    /// Its name in the configuration.
    pub(super) name: &'static str,
    /// The cause for people.
    pub(super) title: &'static str,
    pub(super) selects: fn(&Case<'_>) -> bool,
}

/// Every ready-made rule.
pub(super) const ALL: [Ready; 8] = [
    Ready { name: "image-changed", title: "image changed", selects: image_changed },
    Ready { name: "scaled-to-0", title: "scaled to 0", selects: scaled_to_0 },
    Ready { name: "rbac-widened", title: "RBAC widened", selects: rbac_widened },
    Ready { name: "gitops-edited-by-hand", title: "GitOps-owned field edited by hand", selects: gitops_edited_by_hand },
    Ready { name: DELETED_BY_A_PERSON, title: "deleted by a person", selects: deleted_by_a_person },
    Ready { name: "secret-rotated", title: "Secret rotated", selects: secret_rotated },
    Ready { name: "crash-loop", title: "crash loop", selects: crash_loop },
    GAP,
];

/// Changes may be missing. A GAP of the sink alone is of this rule where the sink has none for it.
pub(super) const GAP: Ready =
    Ready { name: "gap", title: "changes may be missing", selects: |case| case.entry.op == EntryType::Gap };

/// Selects what the audit log says of a sender.
pub(super) const DELETED_BY_A_PERSON: &str = "deleted-by-a-person";

/// Managers of delivery tools, which own what a person does not edit: Argo CD, Flux, Helm.
const TOOLS: [&str; 5] =
    ["argocd-controller", "argocd-application-controller", "kustomize-controller", "helm-controller", "helm"];

/// Managers of the clients that people use, beside those that begin with `kubectl`.
const HANDS: [&str; 10] =
    ["oc", "k9s", "lens", "openlens", "freelens", "headlamp", "node-fetch", "mozilla", "dashboard", "argocd-server"];

/// Group of roles and their bindings.
const RBAC: &str = "rbac.authorization.k8s.io";

/// Where an object has containers: a Pod, what has a template of Pods, and a CronJob.
const POD_SPECS: [&str; 3] = ["/spec", "/spec/template/spec", "/spec/jobTemplate/spec/template/spec"];

/// An entry as rules look at it. What is read of it is read once.
pub(super) struct Case<'e> {
    pub(super) entry: &'e Entry<'e>,
    pub(super) line: &'e [u8],
    change: OnceCell<Change<'e>>,
    after: OnceCell<Option<Value>>,
    before: OnceCell<Option<Value>>,
}

impl<'e> Case<'e> {
    pub(super) const fn new(entry: &'e Entry<'e>, line: &'e [u8]) -> Self {
        Self { entry, line, change: OnceCell::new(), after: OnceCell::new(), before: OnceCell::new() }
    }

    fn change(&self) -> &Change<'e> {
        self.change.get_or_init(|| Change::of(self.entry).ok().flatten().unwrap_or_default())
    }

    /// The object after the change; none where the entry has more values than are read.
    pub(super) fn after(&self) -> Option<&Value> {
        let object = || self.entry.object.filter(|_| !Weight::is_beyond(self.line, MANY));
        let read = || object().and_then(|object| serde_json::from_str(object.get()).ok());
        self.after.get_or_init(read).as_ref()
    }

    /// The object before a change; none of one that came into being.
    fn before(&self) -> Option<&Value> {
        let read = || self.after().filter(|_| self.is_modified()).and_then(|after| self.change().before(after));
        self.before.get_or_init(read).as_ref()
    }

    fn is_modified(&self) -> bool {
        self.entry.op == EntryType::Modified
    }

    /// Reports whether the object came into being, and was not only found.
    fn is_new(&self) -> bool {
        self.entry.op == EntryType::Added && self.entry.evidence.as_deref() != Some(Evidence::Listed.as_str())
    }

    fn is(&self, group: &str, kind: &str) -> bool {
        self.entry.group() == group && self.entry.kind == kind
    }

    /// Reports whether the patch touches a place, something in it, or what it is in.
    fn touches(&self, pointer: &str) -> bool {
        let leads = |one: &str, other: &str| {
            one.strip_prefix(other).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        let touch = |path: &str| leads(path, pointer) || leads(pointer, path);
        self.is_modified()
            && self.change().patch.iter().any(|op| touch(&op.path) || op.from.as_deref().is_some_and(touch))
    }

    /// Reports whether a controller keeps the object for another one.
    fn is_controlled(&self) -> bool {
        let owners =
            self.after().and_then(|after| after.pointer("/metadata/ownerReferences")).and_then(Value::as_array);
        owners.into_iter().flatten().any(|owner| owner.get("controller") == Some(&Value::Bool(true)))
    }
}

/// A container has another image.
fn image_changed(case: &Case<'_>) -> bool {
    if !POD_SPECS.iter().any(|spec| case.touches(spec)) {
        return false;
    }
    let (Some(before), Some(after)) = (case.before(), case.after()) else { return false };
    let (before, after) = (images(before), images(after));
    before.iter().any(|(container, image)| after.get(container).is_some_and(|now| now != image))
}

/// The images of the containers of an object, by the list and the name.
fn images(object: &Value) -> BTreeMap<(&str, &str), &str> {
    const LISTS: [&str; 3] = ["containers", "initContainers", "ephemeralContainers"];
    let specs = POD_SPECS.iter().filter_map(|spec| object.pointer(spec));
    let lists = specs.flat_map(|spec| LISTS.iter().filter_map(|list| Some((*list, spec.get(list)?.as_array()?))));
    let containers = lists.flat_map(|(list, containers)| containers.iter().map(move |container| (list, container)));
    containers
        .filter_map(|(list, container)| {
            let text = |key: &str| container.get(key).and_then(Value::as_str);
            Some(((list, text("name")?), text("image")?))
        })
        .collect()
}

/// Somebody has scaled to 0. Of a ReplicaSet that a controller keeps it is a part of each rollout, and an autoscaler does it where
/// nothing is to do.
fn scaled_to_0(case: &Case<'_>) -> bool {
    const REPLICAS: &str = "/spec/replicas";
    let is_kept = || case.is("apps", "ReplicaSet") && case.is_controlled();
    if !case.touches(REPLICAS) || is_kept() || is_autoscaled(case) {
        return false;
    }
    let (Some(before), Some(after)) = (case.before(), case.after()) else { return false };
    let is_0 = |object: &Value| object.pointer(REPLICAS).and_then(Value::as_u64) == Some(0);
    is_0(after) && !is_0(before)
}

/// Reports whether nobody but autoscalers wrote a change, beside its status.
fn is_autoscaled(case: &Case<'_>) -> bool {
    let mut writers =
        case.change().managers.iter().filter(|one| one.subresource.as_deref() != Some("status")).peekable();
    writers.peek().is_some() && writers.all(Manager::is_autoscaler)
}

/// A role allows more than before, or a binding has another subject. One that is too large to compare counts as wider.
fn rbac_widened(case: &Case<'_>) -> bool {
    let entry = case.entry;
    if entry.group() != RBAC || !(case.is_new() || case.touches("/rules") || case.touches("/subjects")) {
        return false;
    }
    let (before, Some(after)) = (case.before(), case.after()) else { return true };
    if before.is_none() && case.is_modified() {
        return true;
    }
    let (before, member) = match &*entry.kind {
        "Role" | "ClusterRole" => (list(before, "rules"), "rules"),
        "RoleBinding" | "ClusterRoleBinding" => (list(before, "subjects"), "subjects"),
        _ => return false,
    };
    let held: HashSet<String> = before.iter().map(Value::to_string).collect();
    let mut more = list(Some(after), member).iter().filter(|one| !held.contains(&one.to_string()));
    let mut role = Role::of(if member == "rules" { before } else { &[] });
    more.any(|one| member == "subjects" || !role.covers(one))
}

/// A client that people use has changed or removed a field that a delivery tool owned, or put something into one.
fn gitops_edited_by_hand(case: &Case<'_>) -> bool {
    if !case.is_modified() || !TOOLS.iter().any(|tool| mentions(case.line, tool)) {
        return false;
    }
    let change = case.change();
    let wrote = || change.managers.iter().filter(|manager| manager.by != Some(By::Owner));
    if !wrote().any(|manager| is_hand(&manager.manager)) || wrote().any(|one| TOOLS.contains(&&*one.manager)) {
        return false;
    }
    let Some(before) = case.before() else { return false };
    let json = before.to_string();
    let mut books = ManagedFields::of(json.as_bytes());
    let mut is_owned = |version: &Value, path: &str| {
        let Some(steps) = steps(version, path).filter(|_| is_set_on_purpose(path)) else { return false };
        let owners = books.owners(&steps, find);
        owners.iter().any(|owner| owner.subresource.is_none() && TOOLS.contains(&&*owner.manager))
    };
    // A path holds in the version that the operations before it have made; that of what is added, in the one with it.
    let mut version = before.clone();
    change.patch.iter().any(|op| {
        let is_new = op.op == "add";
        let path = op.from.as_deref().unwrap_or(&op.path);
        let was_owned = !is_new && is_owned(&version, path);
        was_owned || op.apply(&mut version).is_some() && is_new && is_owned(&version, path)
    })
}

/// Reports whether a line has a name between quotes.
fn mentions(line: &[u8], name: &str) -> bool {
    memmem::find(line, format!("\"{name}\"").as_bytes()).is_some()
}

fn is_hand(manager: &str) -> bool {
    let manager = manager.to_ascii_lowercase();
    manager.starts_with("kubectl") || HANDS.contains(&manager.as_str())
}

/// Reports whether a path is of what somebody sets on purpose: neither the status nor bookkeeping.
fn is_set_on_purpose(path: &str) -> bool {
    match path.strip_prefix("/metadata/") {
        Some(rest) => rest.starts_with("labels") || rest.starts_with("annotations"),
        None => !path.starts_with("/status"),
    }
}

/// A step of the way to a value.
enum Step<'v> {
    Member(String),
    Element(&'v Value),
}

fn steps<'v>(object: &'v Value, pointer: &str) -> Option<Vec<Step<'v>>> {
    let mut at = object;
    let mut steps = Vec::new();
    for segment in pointer.split('/').skip(1) {
        let name = unescape(segment)?.into_owned();
        at = if let Value::Array(items) = at {
            let element = if name == "-" { items.last()? } else { items.get(name.parse::<usize>().ok()?)? };
            steps.push(Step::Element(element));
            element
        } else {
            let member = at.get(&name)?;
            steps.push(Step::Member(name));
            member
        };
    }
    Some(steps)
}

fn find(index: &Index, step: &Step<'_>) -> Option<Id> {
    match step {
        Step::Member(name) => index.member(name),
        Step::Element(element) => index.element(|name| element.get(name).map(Value::to_string), || element.to_string()),
    }
}

/// The audit log names a person who deleted the object, as whom it was done or who did it as somebody else.
fn deleted_by_a_person(case: &Case<'_>) -> bool {
    let Some(actor) = case.entry.actor() else { return false };
    let sender = &actor.sender;
    ["delete", "deletecollection"].contains(&actor.verb.as_str())
        && actor.subresource.is_empty()
        && (is_person(&sender.user) || is_person(&sender.impersonated_by))
}

/// Reports whether a user is a person, as far as its name says. That of a digest says nothing.
fn is_person(user: &str) -> bool {
    !user.is_empty() && !is_digest(user) && (!user.starts_with("system:") || user == "system:admin")
}

/// The data of a Secret are others. Those of Helm's releases change with each release.
fn secret_rotated(case: &Case<'_>) -> bool {
    let is_release = || {
        let kind = case.after().and_then(|after| after.get("type")).and_then(Value::as_str);
        kind.is_some_and(|kind| kind.starts_with("helm.sh/release"))
    };
    case.is_modified()
        && case.is("", "Secret")
        && case.change().areas.iter().any(|area| area == "data")
        && !is_release()
}

/// A container of a Pod waits to be started again, and did not before.
fn crash_loop(case: &Case<'_>) -> bool {
    if !case.is("", "Pod") || !mentions(case.line, "CrashLoopBackOff") || !(case.is_modified() || case.is_new()) {
        return false;
    }
    let Some(after) = case.after() else { return false };
    let before = case.before().map(looping).unwrap_or_default();
    looping(after).iter().any(|container| !before.contains(container))
}

/// Names of the containers in a crash loop.
fn looping(pod: &Value) -> Vec<&str> {
    let lists = ["containerStatuses", "initContainerStatuses"];
    let statuses = lists.iter().filter_map(|list| pod.get("status")?.get(list)?.as_array()).flatten();
    let waits = |status: &&Value| status.pointer("/state/waiting/reason") == Some(&Value::from("CrashLoopBackOff"));
    statuses.filter(waits).filter_map(|status| status.get("name")?.as_str()).collect()
}
