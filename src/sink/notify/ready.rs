//! The ready-made rules.
//!
//! Each looks at what an entry says: the object before and after a change, and who made it. What a first list found is no change.

use std::cell::OnceCell;
use std::collections::{BTreeMap, HashSet};

use memchr::memmem;
use serde_json::Value;

use crate::core::json::pointer::unescape;
use crate::core::json::tree::Id;
use crate::core::json::weight::{MANY, Weight};
use crate::core::k8s::managed_fields::{By, Index, ManagedFields};
use crate::core::model::{EntryType, Evidence};
use crate::core::wire::{Change, Entry, Op};

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
    Ready { name: "deleted-by-a-person", title: "deleted by a person", selects: deleted_by_a_person },
    Ready { name: "secret-rotated", title: "Secret rotated", selects: secret_rotated },
    Ready { name: "crash-loop", title: "crash loop", selects: crash_loop },
    Ready { name: "gap", title: "changes may be missing", selects: |case| case.entry.op == EntryType::Gap },
];

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

/// Somebody has scaled to 0 what no controller keeps: of a ReplicaSet of a Deployment it is a part of each rollout.
fn scaled_to_0(case: &Case<'_>) -> bool {
    const REPLICAS: &str = "/spec/replicas";
    if !case.touches(REPLICAS) || case.is_controlled() {
        return false;
    }
    let (Some(before), Some(after)) = (case.before(), case.after()) else { return false };
    let is_0 = |object: &Value| object.pointer(REPLICAS).and_then(Value::as_u64) == Some(0);
    is_0(after) && !is_0(before)
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
    let mut left = COMPARISONS;
    more.any(|one| member == "subjects" || !covers(before, one, &mut left))
}

fn list<'v>(object: Option<&'v Value>, key: &str) -> &'v [Value] {
    object.and_then(|object| object.get(key)).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// Comparisons of one permission with one rule, for each entry.
const COMPARISONS: usize = 200_000;

/// Reports whether everything that a rule allows is allowed by others. `left` is the number of comparisons that are left.
fn covers(held: &[Value], rule: &Value, left: &mut usize) -> bool {
    let none = [Value::Null];
    let part = |key: &str| list(Some(rule), key);
    let (verbs, urls) = (part("verbs"), part("nonResourceURLs"));
    let names: &[Value] = if part("resourceNames").is_empty() { &none } else { part("resourceNames") };
    let (groups, resources) = (part("apiGroups"), part("resources"));
    let sizes = [groups.len().max(1), resources.len().max(urls.len()), verbs.len(), names.len(), held.len().max(1)];
    let cost = sizes.iter().fold(1_usize, |cost, size| cost.saturating_mul(*size));
    let Some(rest) = left.checked_sub(cost) else { return false };
    *left = rest;
    if !urls.is_empty() {
        let by = |one: &Value, verb, url| {
            has(list(Some(one), "verbs"), verb) && has_url(list(Some(one), "nonResourceURLs"), url)
        };
        return verbs.iter().all(|verb| urls.iter().all(|url| held.iter().any(|one| by(one, verb, url))));
    }
    let covered = |group: &Value, resource: &Value, verb: &Value, name: &Value| {
        held.iter().any(|one| {
            let part = |key: &str| list(Some(one), key);
            let names = part("resourceNames");
            (names.is_empty() || names.contains(name))
                && has(part("verbs"), verb)
                && has(part("apiGroups"), group)
                && (has(part("resources"), resource) || has_part(part("resources"), resource))
        })
    };
    let of_resource = |group: &Value, resource: &Value| {
        verbs.iter().all(|verb| names.iter().all(|name| covered(group, resource, verb, name)))
    };
    groups.iter().all(|group| resources.iter().all(|resource| of_resource(group, resource)))
}

/// Reports whether a list has a word, or `*` for each.
fn has(list: &[Value], word: &Value) -> bool {
    list.iter().any(|one| one == word || one == "*")
}

/// Reports whether a list has a subresource of each resource: `*/scale`.
fn has_part(list: &[Value], resource: &Value) -> bool {
    let part = resource.as_str().and_then(|text| text.split_once('/')).map(|(_, part)| format!("*/{part}"));
    part.is_some_and(|part| list.iter().any(|one| *one == part.as_str()))
}

/// Reports whether a list has a path, or one with `*` at its end that begins it.
fn has_url(list: &[Value], url: &Value) -> bool {
    let url = url.as_str().unwrap_or_default();
    list.iter()
        .filter_map(Value::as_str)
        .any(|one| one == url || one.strip_suffix('*').is_some_and(|beginning| url.starts_with(beginning)))
}

/// A client that people use has changed or removed a field that a delivery tool owned.
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
    let changed = change.patch.iter().filter(|op| op.op != "add" && is_set_on_purpose(&op.path));
    let mut is_owned = |path: &str| {
        let Some(steps) = steps(before, path) else { return false };
        let owners = books.owners(&steps, find);
        owners.iter().any(|owner| owner.subresource.is_none() && TOOLS.contains(&&*owner.manager))
    };
    let moved = |op: &Op<'_>| op.from.as_deref().unwrap_or(&op.path).to_owned();
    changed.map(moved).any(|path| is_owned(&path))
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
            let element = items.get(name.parse::<usize>().ok()?)?;
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

/// The audit log names a person who deleted the object.
fn deleted_by_a_person(case: &Case<'_>) -> bool {
    let Some(actor) = case.entry.actor() else { return false };
    // Of an impersonation the person is the one who sent it.
    let sender = &actor.sender;
    let user = if sender.impersonated_by.is_empty() { &sender.user } else { &sender.impersonated_by };
    let is_program = user.is_empty() || (user.starts_with("system:") && user != "system:admin");
    ["delete", "deletecollection"].contains(&actor.verb.as_str()) && actor.subresource.is_empty() && !is_program
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
