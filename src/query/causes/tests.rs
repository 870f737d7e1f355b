//! The ranking, rule by rule.

use serde_json::{Value, json};

use super::*;

/// Entries, one a second unless said otherwise.
#[derive(Default)]
struct Log {
    facts: Facts,
    seq: u64,
    second: u32,
}

/// `KIND/NAME`, or `KIND/NAME#N` for another incarnation, the manager, the area with what changes in it, and the owner.
struct Write<'w> {
    object: &'w str,
    by: &'w str,
    path: &'w str,
    owner: &'w str,
}

const fn write<'w>(object: &'w str, by: &'w str, path: &'w str) -> Write<'w> {
    Write { object, by, path, owner: "" }
}

const fn owned<'w>(object: &'w str, owner: &'w str, by: &'w str, path: &'w str) -> Write<'w> {
    Write { object, by, path, owner }
}

impl Log {
    fn take(&mut self, op: &str, evidence: &str, write: &Write<'_>, more: &Value) {
        self.seq += 1;
        let (kind, name) = write.object.split_once('/').unwrap();
        let name = name.split_once('#').map_or(name, |(name, _)| name);
        let (api, plural) = match kind {
            "Deployment" | "ReplicaSet" => ("apps/v1", format!("{}s", kind.to_lowercase())),
            "CronJob" | "Job" => ("batch/v1", format!("{}s", kind.to_lowercase())),
            "PodDisruptionBudget" => ("policy/v1", "poddisruptionbudgets".to_owned()),
            "Endpoints" => ("v1", "endpoints".to_owned()),
            _ => ("v1", format!("{}s", kind.to_lowercase())),
        };
        let subresource = if write.path.starts_with("/status") { Some("status") } else { None };
        let managers: Vec<Value> = write
            .by
            .split(',')
            .filter(|by| !by.is_empty())
            .map(|by| json!({"manager": by, "operation": "Update", "subresource": subresource, "fieldsV1": {"f:spec": {}}}))
            .collect();
        let mut object = json!({"metadata": {"name": name, "managedFields": managers}});
        if let Some((kind, name)) = write.owner.split_once('/') {
            let name = name.split_once('#').map_or(name, |(name, _)| name);
            object["metadata"]["ownerReferences"] =
                json!([{"apiVersion": "v1", "kind": kind, "name": name, "uid": write.owner, "controller": true}]);
        }
        for (key, value) in more.as_object().into_iter().flatten() {
            if key == "deletionTimestamp" {
                object["metadata"][key] = value.clone();
            } else {
                object[key] = value.clone();
            }
        }
        let area = write.path.split('/').nth(1).unwrap_or_default();
        let patch = json!([{"op": "replace", "path": write.path, "value": self.seq, "was": 0}]);
        let mut line = json!({"v": 1, "seq": self.seq, "epoch": "e", "id": "i", "type": op, "evidence": evidence,
            "time": format!("2026-11-21T10:{:02}:{:02}.000000Z", self.second / 60, self.second % 60),
            "cluster": {"name": "c", "uid": "u"}, "apiVersion": api, "kind": kind, "resource": plural,
            "namespace": "shop", "name": name, "uid": write.object, "resourceVersion": "1", "object": object});
        if op == "MODIFIED" {
            line["change"] = json!({"areas": [area], "patch": patch, "managers": managers});
        }
        let line = line.to_string();
        self.facts.take(&Entry::parse(line.as_bytes()).unwrap(), true).unwrap();
        self.second += 1;
    }

    fn modified(&mut self, write: &Write<'_>) -> &mut Self {
        self.take("MODIFIED", "watched", write, &json!({}));
        self
    }

    fn added(&mut self, write: &Write<'_>) -> &mut Self {
        self.take("ADDED", "watched", write, &json!({}));
        self
    }

    fn deleted(&mut self, write: &Write<'_>) -> &mut Self {
        self.take("DELETED", "watched", write, &json!({}));
        self
    }

    /// `role: seqs > seqs that follow` of each group.
    fn told(&mut self) -> Vec<String> {
        let seqs = |seqs: &[Seq]| seqs.iter().map(|seq| seq.0.to_string()).collect::<Vec<_>>().join(" ");
        for (owner, namespace) in self.facts.unknown_owners() {
            let resource = format!("{}s", owner.kind.to_lowercase());
            let resource = if resource == "cronjobs" { "cronjobs.batch".to_owned() } else { resource };
            self.facts.learn(owner, (resource, namespace), Some(None));
        }
        let groups = std::mem::take(&mut self.facts).groups().groups;
        let one = |group: &Group| {
            let below = seqs(&group.effects.entries);
            let below = if below.is_empty() { below } else { format!(" > {below}") };
            format!("{:?}: {}{below}", group.role, seqs(&group.writes))
        };
        groups.iter().map(one).collect()
    }
}

const KCM: &str = "kube-controller-manager";

#[test]
fn what_owners_of_any_depth_cause_stands_below_it() {
    let mut log = Log::default();
    log.modified(&write("Deployment/web", "ci", "/spec/image"))
        .added(&owned("ReplicaSet/web-1", "Deployment/web", KCM, ""))
        .added(&owned("Pod/web-1-a", "ReplicaSet/web-1", KCM, ""))
        .modified(&owned("Pod/web-1-a", "ReplicaSet/web-1", "", "/spec/nodeName"))
        .modified(&owned("Pod/web-1-a", "ReplicaSet/web-1", "kubelet", "/status/phase"))
        .modified(&write("Deployment/web", KCM, "/metadata/annotations/revision"))
        .modified(&write("Deployment/web", KCM, "/status/replicas"))
        .modified(&write("ConfigMap/other", "kubectl-edit", "/data/a"))
        .modified(&owned("Pod/web-1-a", "ReplicaSet/web-1", "kubelet", "/status/podIP"));
    assert_eq!(log.told(), ["Cause: 8", "Cause: 1 > 2 3 4 5 6 7 9"]);
}

/// A second of watches that bring the effect first, and a write by hand below an owner.
#[test]
fn the_newest_cause_takes_what_follows_and_a_hand_is_a_cause_whatever_it_writes() {
    let mut log = Log::default();
    log.added(&owned("ReplicaSet/web-1", "Deployment/web", KCM, ""))
        .modified(&write("Deployment/web", "ci", "/spec/image"))
        .modified(&write("Deployment/web", "helm", "/spec/replicas"))
        .modified(&owned("ReplicaSet/web-1", "Deployment/web", KCM, "/spec/replicas"))
        .modified(&owned("Pod/p", "ReplicaSet/web-1", "kubectl-label", "/metadata/labels/a"))
        .added(&owned("Job/by-hand", "CronJob/tick", "kubectl-create", ""));
    assert_eq!(log.told(), ["Cause: 6", "Cause: 5", "Cause: 3 > 4", "Cause: 2 > 1"]);
}

#[test]
fn what_a_first_list_found_is_no_change() {
    let mut log = Log::default();
    log.take("ADDED", "listed", &write("ConfigMap/a", "helm", ""), &json!({}));
    log.take("ADDED", "inferred", &write("ConfigMap/b", "helm", ""), &json!({}));
    assert_eq!(log.told(), ["Cause: 2"]);
}

#[test]
fn what_is_about_another_object_stands_below_its_cause() {
    let mut log = Log::default();
    let labels = json!({"spec": {"template": {"metadata": {"labels": {"app": "web"}}}}});
    log.take("MODIFIED", "watched", &write("Deployment/web", "ci", "/spec/image"), &labels);
    log.added(&owned("ReplicaSet/web-1", "Deployment/web", KCM, ""));
    log.added(&owned("Pod/p", "ReplicaSet/web-1", KCM, ""));
    let endpoints = json!({"subsets": [{"addresses": [{"targetRef": {"kind": "Pod", "uid": "Pod/p"}}]}]});
    log.take("MODIFIED", "watched", &write("Endpoints/web", KCM, "/subsets"), &endpoints);
    let budget = |app: &str| json!({"spec": {"selector": {"matchLabels": {"app": app}}}});
    log.take("MODIFIED", "watched", &write("PodDisruptionBudget/web", KCM, "/status/a"), &budget("web"));
    log.take("MODIFIED", "watched", &write("PodDisruptionBudget/api", KCM, "/status/a"), &budget("api"));
    log.take("ADDED", "watched", &write("Event/e", "kubelet", ""), &json!({"involvedObject": {"uid": "Pod/p"}}));
    assert_eq!(log.told(), ["Cause: 1 > 2 3 4 5 7", "Rest: 6"]);
}

#[test]
fn a_deletion_that_was_asked_for_and_its_end_are_one_cause() {
    let mut log = Log::default();
    let marked = json!({"deletionTimestamp": "2026-11-21T10:00:00Z"});
    log.take("MODIFIED", "watched", &write("ConfigMap/a", "", "/metadata/deletionTimestamp"), &marked);
    log.take("MODIFIED", "watched", &write("ConfigMap/a", "cleaner", "/metadata/finalizers"), &marked);
    log.deleted(&write("ConfigMap/a", "", ""));
    log.take("MODIFIED", "watched", &write("ConfigMap/b", "", "/metadata/deletionTimestamp"), &marked);
    assert_eq!(log.told(), ["Cause: 4", "Cause: 3 > 1 2"]);
}

/// A Pod that goes without a rollout goes by somebody's hand, and what replaces it follows; of a CronJob it is the rule.
#[test]
fn a_pod_that_goes_for_no_known_reason_is_a_cause_and_one_of_a_cronjob_is_not() {
    let mut log = Log::default();
    log.modified(&owned("ReplicaSet/web-1", "Deployment/web", KCM, "/status/a"))
        .deleted(&owned("Pod/p", "ReplicaSet/web-1", "", ""))
        .added(&owned("Pod/q", "ReplicaSet/web-1", KCM, ""));
    for (run, pod) in [("Job/tick-1", "Pod/x"), ("Job/tick-2", "Pod/y")] {
        log.added(&owned(run, "CronJob/tick", KCM, ""))
            .added(&owned(pod, run, KCM, ""))
            .deleted(&owned(pod, run, "", ""))
            .deleted(&owned(run, "CronJob/tick", "", ""));
    }
    assert_eq!(log.told(), ["Cause: 2 > 3", "Derived: 4 5 6 7 8 9 10 11", "Rest: 1"]);

    // Marked, and gone later: one line.
    let mut log = Log::default();
    let marked = json!({"deletionTimestamp": "2026-11-21T10:00:00Z"});
    let pod = owned("Pod/p", "ReplicaSet/web-1", "", "/metadata/deletionTimestamp");
    log.take("MODIFIED", "watched", &pod, &marked);
    log.deleted(&owned("Pod/p", "ReplicaSet/web-1", "", ""));
    assert_eq!(log.told(), ["Cause: 2 > 1"]);
}

#[test]
fn what_is_done_again_and_again_is_one_group_and_a_hand_in_between_is_not_in_it() {
    let mut log = Log::default();
    for _ in 0..4 {
        log.modified(&write("Deployment/web", "alpha", "/spec/replicas"));
        log.modified(&write("Deployment/web", "beta", "/spec/replicas"));
    }
    log.modified(&write("Deployment/web", "kubectl-scale", "/spec/replicas"));
    log.modified(&write("ConfigMap/a", "alpha", "/data/a"));
    assert_eq!(log.told(), ["Cause: 10", "Cause: 9", "Repeated: 1 2 3 4 5 6 7 8"]);

    // As seldom as people do it, each is a cause.
    let mut log = Log::default();
    for _ in 0..4 {
        log.modified(&write("Deployment/web", "ci", "/spec/image"));
        log.second += 600;
    }
    assert_eq!(log.told().len(), 4);
}

#[test]
fn many_objects_that_come_at_once_are_one_cause_and_few_are_not() {
    let mut log = Log::default();
    for name in ["a", "b", "c", "d", "e", "f"] {
        log.added(&write(&format!("ConfigMap/{name}"), "helm", ""));
    }
    log.second += 60;
    for name in ["a", "b", "c", "d"] {
        log.deleted(&write(&format!("ConfigMap/{name}"), "", ""));
    }
    assert_eq!(log.told(), ["Cause: 10", "Cause: 9", "Cause: 8", "Cause: 7", "Cause: 1 2 3 4 5 6"]);
}

/// Incarnations of one name are one owner, and one object that comes again and again.
#[test]
fn incarnations_of_one_name_are_one_line() {
    let mut log = Log::default();
    for tick in ["CronJob/tick", "CronJob/tick#2"] {
        for run in ["a", "b"] {
            let run = format!("Job/{run}-{}", tick.len());
            log.added(&owned(&run, tick, KCM, "")).deleted(&owned(&run, tick, KCM, ""));
        }
    }
    assert_eq!(log.told(), ["Derived: 1 2 3 4 5 6 7 8"]);

    let mut log = Log::default();
    for incarnation in 0..5 {
        let flag = format!("ConfigMap/flag#{incarnation}");
        log.added(&write(&flag, "tester", "")).deleted(&write(&flag, "", ""));
    }
    assert_eq!(log.told(), ["Repeated: 2 4 6 8 10", "Repeated: 1 3 5 7 9"]);
}

/// A scale by the autoscaler has effects of its own; a taint answers a cordon.
#[test]
fn what_the_control_plane_writes_is_a_cause_only_where_nothing_else_is() {
    let mut log = Log::default();
    log.modified(&write("Node/n", "kubectl-cordon", "/spec/unschedulable"))
        .modified(&write("Node/n", KCM, "/spec/taints"))
        .modified(&write("Node/m", KCM, "/spec/taints"));
    assert_eq!(log.told(), ["Cause: 1 > 2", "Controller: 3"]);
}

/// By what an object of the whole cluster names.
#[test]
fn an_object_of_the_cluster_concerns_the_namespaces_that_it_names() {
    let line = |resource: &str, group: &str, name: &str, object: &Value| {
        json!({"v": 1, "seq": 1, "epoch": "e", "id": "i", "time": "2026-11-21T10:00:00Z", "type": "ADDED", "evidence": "watched",
            "cluster": {"name": "c", "uid": "u"}, "apiVersion": format!("{group}/v1"), "kind": "K", "resource": resource,
            "name": name, "uid": "u", "resourceVersion": "1", "object": object})
        .to_string()
    };
    let binding = |subject: &Value| {
        line("clusterrolebindings", "rbac.authorization.k8s.io", "b", &json!({"subjects": [subject]}))
    };
    for (line, expected) in [
        (binding(&json!({"kind": "ServiceAccount", "name": "a", "namespace": "shop"})), true),
        (binding(&json!({"kind": "ServiceAccount", "name": "a", "namespace": "shopping"})), false),
        (binding(&json!({"kind": "Group", "name": "system:serviceaccounts:shop"})), true),
        (binding(&json!({"kind": "Group", "name": "system:serviceaccounts:pay"})), false),
        (binding(&json!({"kind": "Group", "name": "system:authenticated"})), true),
        (binding(&json!({"kind": "User", "name": "shop"})), false),
        (
            line("persistentvolumes", "", "v", &json!({"spec": {"claimRef": {"namespace": "shop"}}}))
                .replace("\"/v1\"", "\"v1\""),
            true,
        ),
        (line("nodes", "", "n", &json!({})).replace("\"/v1\"", "\"v1\""), true),
        (line("namespaces", "", "shop", &json!({})).replace("\"/v1\"", "\"v1\""), true),
        (line("namespaces", "", "pay", &json!({})).replace("\"/v1\"", "\"v1\""), false),
    ] {
        let entry = Entry::parse(line.as_bytes()).unwrap();
        assert_eq!(concerns(&entry, &["shop".to_owned()]), expected, "{line}");
    }
}

/// Objects in their order, each with the first letter of its role.
fn in_order(log: &mut Log) -> String {
    log.seq = 0;
    let groups = std::mem::take(&mut log.facts).groups();
    let one = |placed: order::Placed| {
        let role = format!("{:?}", placed.role).remove(0);
        format!("{role}:{}", groups.objects[placed.object].name)
    };
    groups.in_order().into_iter().map(one).collect::<Vec<_>>().join(" ")
}

#[test]
fn objects_stand_in_the_order_of_their_causes_and_a_crowd_hides_none() {
    let mut log = Log::default();
    log.modified(&write("Deployment/web", "ci", "/spec/image"));
    log.modified(&owned("ReplicaSet/web-1", "Deployment/web", KCM, "/spec/replicas"));
    log.second = 60;
    for name in ["a", "b", "c", "d"] {
        log.deleted(&write(&format!("ConfigMap/{name}"), "", ""));
    }
    log.second = 120;
    log.modified(&write("ConfigMap/late", "kubectl-edit", "/data/a"));
    log.modified(&write("Deployment/scaled", KCM, "/spec/replicas"));
    for second in (130..190).step_by(10) {
        log.second = second;
        log.modified(&write("Widget/stamped", "stamper", "/spec/a"));
    }
    assert_eq!(in_order(&mut log), "C:late C:d C:c C:web C:b C:a R:stamped C:scaled");
    // What one writer does at another time, or to another extent, is another act.
    let mut log = Log::default();
    for second in [0, 20, 40] {
        log.second = second;
        log.modified(&write(&format!("ConfigMap/at-{second}"), "kubectl-edit", "/data/a"));
    }
    assert_eq!(in_order(&mut log), "C:at-40 C:at-20 C:at-0");
    // What changed again stands where its newest cause is.
    let mut log = Log::default();
    for (second, name) in [(0, "one"), (20, "two"), (40, "one")] {
        log.second = second;
        log.modified(&write(&format!("ConfigMap/{name}"), &format!("kubectl-{second}"), "/data/a"));
    }
    assert_eq!(in_order(&mut log), "C:one C:two");
    assert_eq!(in_order(&mut Log::default()), "");
}
