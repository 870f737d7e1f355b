//! Objects that look like those of a real cluster, managedFields and all.
//!
//! They are values to be given to [`Sim::create`](super::Sim::create); the server adds uid,
//! resourceVersion and creationTimestamp.

use serde_json::{Map, Value, json};

use super::object::Pattern;
use super::store::now;

/// A namespace.
#[must_use]
pub fn namespace(name: &str) -> Value {
    json!({
        "metadata": { "name": name, "labels": { "kubernetes.io/metadata.name": name } },
        "spec": { "finalizers": ["kubernetes"] },
        "status": { "phase": "Active" },
    })
}

/// A small ConfigMap with one key.
#[must_use]
pub fn config_map(namespace: &str, name: &str, value: &str) -> Value {
    let map = json!({
        "metadata": { "name": name, "namespace": namespace, "labels": { "app": name } },
        "data": { "value": value },
    });
    managed(map, &["kubectl-client-side-apply"], "v1")
}

/// A Secret of type Opaque; the values are put into base64 here.
#[must_use]
pub fn secret(namespace: &str, name: &str, data: &[(&str, &str)]) -> Value {
    let data: Map<String, Value> = data.iter().map(|(key, value)| ((*key).to_owned(), base64(value).into())).collect();
    let secret = json!({
        "metadata": { "name": name, "namespace": namespace, "labels": { "app": name } },
        "data": data,
        "type": "Opaque",
    });
    managed(secret, &["external-secrets"], "v1")
}

/// Text as it stands in a Secret.
#[must_use]
pub fn base64(text: &str) -> String {
    use base64::Engine as _;
    base64::engine::general_purpose::STANDARD.encode(text)
}

/// A Lease as kubelets and controllers hold them.
#[must_use]
pub fn lease(namespace: &str, name: &str) -> Value {
    let lease = json!({
        "metadata": { "name": name, "namespace": namespace },
        "spec": {
            "holderIdentity": name, "leaseDurationSeconds": 40, "leaseTransitions": 0,
            "acquireTime": micro_now(), "renewTime": micro_now(),
        },
    });
    managed(lease, &["kubelet"], "coordination.k8s.io/v1")
}

/// Now with microseconds, as Leases have it.
#[must_use]
pub fn micro_now() -> String {
    crate::core::runtime::now().strftime("%Y-%m-%dT%H:%M:%S%.6fZ").to_string()
}

/// An Event about a Pod.
#[must_use]
pub fn event(namespace: &str, name: &str, pod: &str, reason: &str) -> Value {
    json!({
        "metadata": { "name": name, "namespace": namespace },
        "involvedObject": { "kind": "Pod", "namespace": namespace, "name": pod, "apiVersion": "v1" },
        "reason": reason, "message": format!("{reason} pod {pod}"), "type": "Normal", "count": 1,
        "source": { "component": "kubelet", "host": "node-1" },
        "firstTimestamp": now(), "lastTimestamp": now(), "eventTime": null,
        "reportingComponent": "kubelet", "reportingInstance": "node-1",
    })
}

/// A node, ready.
#[must_use]
pub fn node(name: &str) -> Value {
    let node = json!({
        "metadata": {
            "name": name,
            "labels": { "kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64" },
        },
        "spec": { "podCIDR": "10.244.0.0/24", "providerID": format!("sim://{name}") },
        "status": {
            "capacity": { "cpu": "8", "memory": "32Gi", "pods": "110" },
            "conditions": [{
                "type": "Ready", "status": "True", "reason": "KubeletReady", "message": "kubelet is posting ready status",
                "lastHeartbeatTime": now(), "lastTransitionTime": now(),
            }],
            "nodeInfo": { "kubeletVersion": "v1.35.2", "osImage": "Debian GNU/Linux 13 (trixie)", "architecture": "amd64" },
        },
    });
    managed(node, &["kubelet"], "v1")
}

/// A Service in front of the Pods of an app.
#[must_use]
pub fn service(namespace: &str, name: &str) -> Value {
    let service = json!({
        "metadata": { "name": name, "namespace": namespace, "labels": { "app": name } },
        "spec": {
            "type": "ClusterIP", "clusterIP": "10.96.12.34", "selector": { "app": name },
            "ports": [{ "name": "http", "port": 80, "targetPort": "http", "protocol": "TCP" }],
        },
        "status": { "loadBalancer": {} },
    });
    managed(service, &["kubectl-client-side-apply"], "v1")
}

/// A Deployment that wants `replicas` Pods of this image.
#[must_use]
pub fn deployment(namespace: &str, name: &str, replicas: u32, image: &str) -> Value {
    let labels = json!({ "app": name });
    let deployment = json!({
        "metadata": {
            "name": name, "namespace": namespace, "generation": 1, "labels": labels,
            "annotations": { "deployment.kubernetes.io/revision": "1" },
        },
        "spec": {
            "replicas": replicas,
            "selector": { "matchLabels": labels },
            "template": {
                "metadata": { "labels": labels },
                "spec": pod_spec(name, image),
            },
            "strategy": { "type": "RollingUpdate", "rollingUpdate": { "maxUnavailable": "25%", "maxSurge": "25%" } },
            "revisionHistoryLimit": 10, "progressDeadlineSeconds": 600,
        },
        "status": {},
    });
    managed(deployment, &["kubectl-client-side-apply"], "apps/v1")
}

/// A ReplicaSet of a Deployment; `hash` is its pod-template-hash.
#[must_use]
pub fn replica_set(namespace: &str, owner: &str, owner_uid: &str, hash: &str, replicas: u32, image: &str) -> Value {
    let labels = json!({ "app": owner, "pod-template-hash": hash });
    let set = json!({
        "metadata": {
            "name": format!("{owner}-{hash}"), "namespace": namespace, "generation": 1, "labels": labels,
            "annotations": { "deployment.kubernetes.io/desired-replicas": replicas.to_string() },
            "ownerReferences": [owner_reference("apps/v1", "Deployment", owner, owner_uid)],
        },
        "spec": {
            "replicas": replicas,
            "selector": { "matchLabels": labels },
            "template": { "metadata": { "labels": labels }, "spec": pod_spec(owner, image) },
        },
        "status": { "replicas": 0 },
    });
    managed(set, &["kube-controller-manager"], "apps/v1")
}

fn owner_reference(version: &str, kind: &str, name: &str, uid: &str) -> Value {
    json!({
        "apiVersion": version, "kind": kind, "name": name, "uid": uid, "controller": true, "blockOwnerDeletion": true,
    })
}

fn pod_spec(app: &str, image: &str) -> Value {
    let variable = |name: &str, value: &str| json!({ "name": name, "value": value });
    json!({
        "containers": [{
            "name": app,
            "image": image,
            "ports": [{ "name": "http", "containerPort": 8080, "protocol": "TCP" }],
            "env": [
                variable("LOG_LEVEL", "info"),
                variable("DATABASE_URL", "postgres://db.shop.svc.cluster.local:5432/shop?sslmode=verify-full"),
                variable("FEATURE_FLAGS", "checkout-v2,search-suggest,recommendations-beta,fast-cart"),
                { "name": "POD_NAME", "valueFrom": { "fieldRef": { "apiVersion": "v1", "fieldPath": "metadata.name" } } },
            ],
            "resources": { "limits": { "memory": "512Mi" }, "requests": { "cpu": "100m", "memory": "256Mi" } },
            "livenessProbe": {
                "httpGet": { "path": "/healthz", "port": "http", "scheme": "HTTP" },
                "initialDelaySeconds": 10, "timeoutSeconds": 1, "periodSeconds": 10, "successThreshold": 1,
                "failureThreshold": 3,
            },
            "readinessProbe": {
                "httpGet": { "path": "/readyz", "port": "http", "scheme": "HTTP" },
                "timeoutSeconds": 1, "periodSeconds": 5, "successThreshold": 1, "failureThreshold": 3,
            },
            "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File",
            "imagePullPolicy": "IfNotPresent",
            "securityContext": {
                "allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true, "runAsNonRoot": true,
                "capabilities": { "drop": ["ALL"] },
            },
        }],
        "restartPolicy": "Always", "terminationGracePeriodSeconds": 30, "dnsPolicy": "ClusterFirst",
        "serviceAccountName": "default", "serviceAccount": "default", "schedulerName": "default-scheduler",
        "securityContext": { "fsGroup": 65532, "seccompProfile": { "type": "RuntimeDefault" } },
        "enableServiceLinks": true, "preemptionPolicy": "PreemptLowerPriority", "priority": 0,
    })
}

/// A Pod of a ReplicaSet as the controller creates it: Pending, on no node.
#[must_use]
pub fn pod(namespace: &str, name: &str, app: &str, owner: Option<(&str, &str)>, image: &str) -> Value {
    let mut spec = pod_spec(app, image);
    let volume = "kube-api-access-x7k2p";
    spec["volumes"] = json!([{
        "name": volume,
        "projected": { "defaultMode": 420, "sources": [
            { "serviceAccountToken": { "expirationSeconds": 3607, "path": "token" } },
            { "configMap": { "name": "kube-root-ca.crt", "items": [{ "key": "ca.crt", "path": "ca.crt" }] } },
        ] },
    }]);
    spec["containers"][0]["volumeMounts"] =
        json!([{ "name": volume, "readOnly": true, "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount" }]);
    spec["tolerations"] = ["not-ready", "unreachable"]
        .iter()
        .map(|key| {
            json!({
                "key": format!("node.kubernetes.io/{key}"), "operator": "Exists", "effect": "NoExecute",
                "tolerationSeconds": 300,
            })
        })
        .collect();
    let mut pod = json!({
        "metadata": { "name": name, "namespace": namespace, "labels": { "app": app } },
        "spec": spec,
        "status": { "phase": "Pending", "qosClass": "Burstable" },
    });
    if let Some((owner, uid)) = owner {
        pod["metadata"]["generateName"] = format!("{owner}-").into();
        pod["metadata"]["ownerReferences"] = json!([owner_reference("apps/v1", "ReplicaSet", owner, uid)]);
    }
    managed(pod, &["kube-controller-manager"], "v1")
}

/// Puts a Pod on a node, as the scheduler does.
pub fn schedule(pod: &mut Value, node: &str) {
    pod["spec"]["nodeName"] = node.into();
    pod["status"]["conditions"] = json!([condition("PodScheduled", true)]);
    touch(pod, "kube-scheduler", "Update", "v1", "status", &json!({ "conditions": [condition("PodScheduled", true)] }));
}

/// Lets a Pod run, as the kubelet reports it; `ready` with its probes passing.
pub fn run(pod: &mut Value, ip: &str, ready: bool) {
    let conditions: Vec<Value> = ["Initialized", "Ready", "ContainersReady", "PodScheduled"]
        .iter()
        .map(|kind| condition(kind, ready || matches!(*kind, "Initialized" | "PodScheduled")))
        .collect();
    let image = pod["spec"]["containers"][0]["image"].clone();
    let name = pod["spec"]["containers"][0]["name"].clone();
    let digest = "sha256:4c1f3f5a0e8f7f4c8a0d3b6f0b9f0c1d2e3f4a5b6c7d8e9fa0b1c2d3e4f5a6b7";
    let status = json!({
        "phase": "Running", "conditions": conditions, "hostIP": "10.0.0.11", "hostIPs": [{ "ip": "10.0.0.11" }],
        "podIP": ip, "podIPs": [{ "ip": ip }], "startTime": now(), "qosClass": "Burstable",
        "containerStatuses": [{
            "name": name, "image": image, "imageID": format!("registry.example/shop@{digest}"),
            "containerID": format!("containerd://{}", &digest[7..]), "ready": ready, "started": ready,
            "restartCount": 0, "lastState": {}, "state": { "running": { "startedAt": now() } },
        }],
    });
    let mut own = status.clone();
    if let Some(conditions) = own["conditions"].as_array_mut() {
        // The scheduler's is not the kubelet's.
        conditions.retain(|condition| condition["type"] != "PodScheduled");
    }
    touch(pod, "kubelet", "Update", "v1", "status", &own);
    pod["status"] = status;
}

fn condition(kind: &str, holds: bool) -> Value {
    json!({
        "type": kind, "status": if holds { "True" } else { "False" }, "lastProbeTime": null, "lastTransitionTime": now(),
    })
}

/// A ConfigMap whose name, uid and value are holes.
pub(super) fn config_map_pattern(namespace: &str) -> Value {
    let mut map = config_map(namespace, Pattern::NAME, Pattern::TURN);
    map["metadata"]["uid"] = Pattern::UID.into();
    map["metadata"]["creationTimestamp"] = now();
    map
}

/// A Pod of about 8 KB, running, whose name, uid and one annotation are holes.
pub(super) fn pod_pattern() -> Value {
    let mut pod = pod(
        "bulk",
        Pattern::NAME,
        "bulk",
        Some(("bulk-6d4cf56db6", "5f0c2d0e-7a4b-4b7e-9a3c-2f6f1f0b7a10")),
        "registry.example/bulk:1.0",
    );
    pod["metadata"]["uid"] = Pattern::UID.into();
    let text = "Kept at about eight kilobytes, as Pods of real clusters are. ";
    pod["metadata"]["annotations"] =
        json!({ "example.com/turn": Pattern::TURN, "example.com/description": text.repeat(10) });
    pod["metadata"]["creationTimestamp"] = now();
    schedule(&mut pod, "node-1");
    run(&mut pod, "10.244.1.17", true);
    pod
}

/// A CRD for a resource such as `widgets.example.com` with kind `Widget`, served in these versions,
/// the first one stored.
#[must_use]
pub fn crd(name: &str, kind: &str, namespaced: bool, versions: &[&str]) -> Value {
    let (plural, group) = name.split_once('.').unwrap_or((name, ""));
    let names = json!({
        "plural": plural, "singular": kind.to_lowercase(), "kind": kind, "listKind": format!("{kind}List"),
    });
    json!({
        "metadata": { "name": name, "generation": 1 },
        "spec": {
            "group": group, "names": names, "scope": if namespaced { "Namespaced" } else { "Cluster" },
            "versions": crd_versions(versions), "conversion": { "strategy": "None" },
        },
        "status": {
            "acceptedNames": names, "storedVersions": versions.get(..1),
            "conditions": [
                { "type": "NamesAccepted", "status": "True", "reason": "NoConflicts", "lastTransitionTime": now() },
                { "type": "Established", "status": "True", "reason": "InitialNamesAccepted", "lastTransitionTime": now() },
            ],
        },
    })
}

/// `spec.versions` of a CRD that serves exactly these, the first one stored.
pub(super) fn crd_versions(versions: &[&str]) -> Value {
    let schema = json!({
        "openAPIV3Schema": { "type": "object", "x-kubernetes-preserve-unknown-fields": true },
    });
    versions
        .iter()
        .enumerate()
        .map(|(at, version)| {
            json!({
                "name": version, "served": true, "storage": at == 0, "schema": schema, "subresources": { "status": {} },
            })
        })
        .collect()
}

// --- managedFields ---

/// The object with a managedFields entry that gives all it says to each of these managers.
fn managed(mut object: Value, managers: &[&str], api_version: &str) -> Value {
    let mut fields = object.clone();
    for fixed in ["name", "namespace", "uid", "generation", "creationTimestamp"] {
        if let Some(metadata) = fields["metadata"].as_object_mut() {
            metadata.remove(fixed);
        }
    }
    if let Some(members) = fields.as_object_mut() {
        members.remove("status");
    }
    let entries = managers.iter().map(|manager| entry(manager, "Update", api_version, "", &fields)).collect();
    object["metadata"]["managedFields"] = Value::Array(entries);
    object
}

/// One entry of managedFields, now.
fn entry(manager: &str, operation: &str, api_version: &str, subresource: &str, fields: &Value) -> Value {
    let mut entry = json!({
        "manager": manager, "operation": operation, "apiVersion": api_version, "time": now(),
        "fieldsType": "FieldsV1", "fieldsV1": fields_v1(fields),
    });
    if !subresource.is_empty() {
        entry["subresource"] = subresource.into();
    }
    entry
}

/// Notes in managedFields that this manager has just set these fields; with a subresource they are the fields inside of
/// it. As the API server does, it takes them from every other manager, and an update adds them to what the manager has:
/// where it had them all, its time stays.
pub fn touch(object: &mut Value, manager: &str, operation: &str, api_version: &str, subresource: &str, fields: &Value) {
    let fields = if subresource.is_empty() { fields.clone() } else { json!({ subresource: fields }) };
    let entry = entry(manager, operation, api_version, subresource, &fields);
    let entries = &mut object["metadata"]["managedFields"];
    let same =
        |other: &Value| ["manager", "operation", "subresource"].iter().all(|key| other.get(key) == entry.get(key));
    let Some(list) = entries.as_array_mut() else {
        *entries = json!([entry]);
        return;
    };
    let own = list.iter().position(same).map(|at| list.remove(at));
    for other in &mut *list {
        take(&mut other["fieldsV1"], &entry["fieldsV1"]);
    }
    list.retain(|other| other["fieldsV1"].as_object().is_some_and(|fields| !fields.is_empty()));
    let mut next = entry;
    if let Some(own) = own.filter(|_| operation == "Update") {
        let mut all = own["fieldsV1"].clone();
        add(&mut all, &next["fieldsV1"]);
        next = if all == own["fieldsV1"] { own } else { json_with(next, "fieldsV1", all) };
    }
    list.push(next);
}

fn json_with(mut object: Value, key: &str, value: Value) -> Value {
    object[key] = value;
    object
}

/// Takes the fields of one set from another.
fn take(from: &mut Value, fields: &Value) {
    let (Some(from), Some(fields)) = (from.as_object_mut(), fields.as_object()) else { return };
    for (key, inner) in fields {
        let Some(known) = from.get_mut(key) else { continue };
        if inner.as_object().is_none_or(Map::is_empty) {
            from.remove(key);
            continue;
        }
        take(known, inner);
        let left = known.as_object().map_or(0, |known| known.keys().filter(|key| *key != ".").count());
        if left == 0 {
            from.remove(key);
        }
    }
}

/// Adds the fields of one set to another.
fn add(to: &mut Value, fields: &Value) {
    let (Some(to), Some(fields)) = (to.as_object_mut(), fields.as_object()) else { return };
    for (key, inner) in fields {
        add(to.entry(key.clone()).or_insert_with(|| json!({})), inner);
    }
}

/// The FieldsV1 form of the fields that a value has.
#[must_use]
pub fn fields_v1(value: &Value) -> Value {
    match value {
        Value::Object(members) => {
            members.iter().map(|(key, value)| (format!("f:{key}"), fields_v1(value))).collect::<Map<_, _>>().into()
        }
        Value::Array(items) => {
            let mut fields = Map::new();
            for item in items {
                let key =
                    ["name", "type", "key", "containerPort", "uid", "ip"].iter().find(|key| item.get(key).is_some());
                match key {
                    Some(key) => {
                        let mut inner = fields_v1(item);
                        inner["."] = json!({});
                        fields.insert(format!("k:{}", json!({ *key: item[key] })), inner);
                    }
                    // Lists without a key belong to one manager as a whole.
                    None if item.is_object() => return json!({}),
                    None => {
                        fields.insert(format!("v:{item}"), json!({}));
                    }
                }
            }
            fields.into()
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => json!({}),
    }
}
