//! The truth: etcd's own history of every write, through its JSON gateway.
//!
//! Every write of Kubernetes is one revision of etcd, and that revision is the resourceVersion of what it made (of a
//! deletion: the deletion's). So this is an oracle that shares no code with decklog, nor with the API server's watches.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::judge::{Key, Kind, Row};

/// Where built-in resources lie below `/registry/`, where the place is not simply their plural; and the groups of the
/// others, which the place does not tell. Custom resources lie below their group.
const BUILT_IN: [(&str, &str); 60] = [
    ("clusterrolebindings", "clusterrolebindings.rbac.authorization.k8s.io"),
    ("clusterroles", "clusterroles.rbac.authorization.k8s.io"),
    ("configmaps", "configmaps"),
    ("controllerrevisions", "controllerrevisions.apps"),
    ("controllers", "replicationcontrollers"),
    ("cronjobs", "cronjobs.batch"),
    ("csidrivers", "csidrivers.storage.k8s.io"),
    ("csinodes", "csinodes.storage.k8s.io"),
    ("csistoragecapacities", "csistoragecapacities.storage.k8s.io"),
    ("certificatesigningrequests", "certificatesigningrequests.certificates.k8s.io"),
    ("clustertrustbundles", "clustertrustbundles.certificates.k8s.io"),
    ("daemonsets", "daemonsets.apps"),
    ("deployments", "deployments.apps"),
    ("deviceclasses", "deviceclasses.resource.k8s.io"),
    ("devicetaintrules", "devicetaintrules.resource.k8s.io"),
    ("endpointslices", "endpointslices.discovery.k8s.io"),
    ("events", "events"),
    ("flowschemas", "flowschemas.flowcontrol.apiserver.k8s.io"),
    ("horizontalpodautoscalers", "horizontalpodautoscalers.autoscaling"),
    ("ingress", "ingresses.networking.k8s.io"),
    ("ingressclasses", "ingressclasses.networking.k8s.io"),
    ("ipaddresses", "ipaddresses.networking.k8s.io"),
    ("jobs", "jobs.batch"),
    ("leasecandidates", "leasecandidates.coordination.k8s.io"),
    ("leases", "leases.coordination.k8s.io"),
    ("limitranges", "limitranges"),
    ("minions", "nodes"),
    ("mutatingadmissionpolicies", "mutatingadmissionpolicies.admissionregistration.k8s.io"),
    ("mutatingadmissionpolicybindings", "mutatingadmissionpolicybindings.admissionregistration.k8s.io"),
    ("mutatingwebhookconfigurations", "mutatingwebhookconfigurations.admissionregistration.k8s.io"),
    ("namespaces", "namespaces"),
    ("networkpolicies", "networkpolicies.networking.k8s.io"),
    ("persistentvolumeclaims", "persistentvolumeclaims"),
    ("persistentvolumes", "persistentvolumes"),
    ("podcertificaterequests", "podcertificaterequests.certificates.k8s.io"),
    ("poddisruptionbudgets", "poddisruptionbudgets.policy"),
    ("pods", "pods"),
    ("podtemplates", "podtemplates"),
    ("priorityclasses", "priorityclasses.scheduling.k8s.io"),
    ("prioritylevelconfigurations", "prioritylevelconfigurations.flowcontrol.apiserver.k8s.io"),
    ("replicasets", "replicasets.apps"),
    ("resourceclaims", "resourceclaims.resource.k8s.io"),
    ("resourceclaimtemplates", "resourceclaimtemplates.resource.k8s.io"),
    ("resourcequotas", "resourcequotas"),
    ("resourceslices", "resourceslices.resource.k8s.io"),
    ("rolebindings", "rolebindings.rbac.authorization.k8s.io"),
    ("roles", "roles.rbac.authorization.k8s.io"),
    ("runtimeclasses", "runtimeclasses.node.k8s.io"),
    ("secrets", "secrets"),
    ("serviceaccounts", "serviceaccounts"),
    ("servicecidrs", "servicecidrs.networking.k8s.io"),
    ("services/endpoints", "endpoints"),
    ("services/specs", "services"),
    ("statefulsets", "statefulsets.apps"),
    ("storageclasses", "storageclasses.storage.k8s.io"),
    ("storageversionmigrations", "storageversionmigrations.storagemigration.k8s.io"),
    ("validatingadmissionpolicies", "validatingadmissionpolicies.admissionregistration.k8s.io"),
    ("validatingadmissionpolicybindings", "validatingadmissionpolicybindings.admissionregistration.k8s.io"),
    ("validatingwebhookconfigurations", "validatingwebhookconfigurations.admissionregistration.k8s.io"),
    ("volumeattachments", "volumeattachments.storage.k8s.io"),
];

/// Places that hold what the API server keeps for itself and serves to nobody.
const INTERNAL: [&str; 4] = ["masterleases", "ranges", "peerserverleases", "health"];

/// The place of a resource's objects in etcd.
pub fn place_of(resource: &str) -> String {
    match (BUILT_IN.iter().find(|(_, name)| *name == resource), resource.split_once('.')) {
        (Some((place, _)), _) => format!("/registry/{place}/"),
        (None, Some((plural, group))) => format!("/registry/{group}/{plural}/"),
        (None, None) => format!("/registry/{resource}/"),
    }
}

/// A follower of etcd, from its first revision on.
pub struct Oracle {
    http: reqwest::Client,
    url: String,
    history: Arc<Mutex<History>>,
    seen: watch::Receiver<u64>,
    _follower: JoinSet<()>,
}

#[derive(Default)]
struct History {
    rows: Vec<Row>,
    /// The incarnations that exist.
    uids: HashMap<(String, Key), String>,
    unknown: BTreeSet<String>,
}

impl Oracle {
    /// Follows the etcd at `url`, from its first revision or, where `known` holds the history up to where it stands
    /// now or further, from there.
    pub async fn follow(url: &str, known: Option<Vec<Row>>) -> Self {
        // Another test may have installed it already.
        decklog::core::net::install_crypto_provider();
        let http = reqwest::Client::builder().no_proxy().build().unwrap();
        let mut start = 1;
        let mut history = History::default();
        if let Some(known) = known {
            start = revision(&http, url).await + 1;
            known.into_iter().filter(|row| row.rev < start).for_each(|row| history.push(row));
        }
        let history = Arc::new(Mutex::new(history));
        let (sender, seen) = watch::channel(start - 1);
        let range = json!({"key": "AA==", "range_end": "AA==", "start_revision": start.to_string()});
        let body = json!({"create_request": range});
        let mut answer = http.post(format!("{url}/v3/watch")).body(body.to_string()).send().await.unwrap();
        assert!(answer.status().is_success(), "etcd refuses to be watched: {}", answer.status());
        let mut follower = JoinSet::new();
        follower.spawn({
            let history = Arc::clone(&history);
            async move {
                let mut buffer = Vec::new();
                // The stream ends when etcd does; who waits for more is told by the closed channel.
                while let Ok(Some(chunk)) = answer.chunk().await {
                    buffer.extend_from_slice(&chunk);
                    while let Some(end) = buffer.iter().position(|byte| *byte == b'\n') {
                        let line: Vec<u8> = buffer.drain(..=end).collect();
                        let message: Value = serde_json::from_slice(&line).unwrap();
                        let result = &message["result"];
                        if !message["error"].is_null() || !result["canceled"].is_null() {
                            eprintln!("etcd breaks the watch off: {message}");
                            return;
                        }
                        let last = history.lock().unwrap().take(result);
                        if let Some(last) = last {
                            sender.send_replace(last);
                        }
                    }
                }
            }
        });
        Self { http, url: url.to_owned(), history, seen, _follower: follower }
    }

    /// The revision that etcd is at.
    pub async fn revision(&self) -> u64 {
        revision(&self.http, &self.url).await
    }

    /// The revision that etcd is at, once its history up to there has been read.
    pub async fn sync(&self) -> u64 {
        let revision = self.revision().await;
        let mut seen = self.seen.clone();
        let reached = tokio::time::timeout(Duration::from_secs(30), seen.wait_for(|seen| *seen >= revision)).await;
        reached.expect("etcd did not tell its history").expect("etcd has ended");
        revision
    }

    /// How many writes the history has.
    pub fn len(&self) -> usize {
        self.history.lock().unwrap().rows.len()
    }

    /// The whole history so far, in order.
    pub fn rows(&self) -> Vec<Row> {
        let history = self.history.lock().unwrap();
        assert!(history.unknown.is_empty(), "the oracle does not know what lies in {:?}", history.unknown);
        history.rows.clone()
    }

    /// Makes etcd forget everything before the revision it is at, which is the oldest that can be had then.
    pub async fn compact(&self) -> u64 {
        let revision = self.sync().await;
        compact(&self.url, revision).await;
        revision
    }
}

/// Makes the etcd at `url` forget what was before this revision.
pub async fn compact(url: &str, revision: u64) {
    let http = reqwest::Client::builder().no_proxy().build().unwrap();
    post(&http, url, "/v3/kv/compaction", &json!({"revision": revision.to_string(), "physical": true})).await;
}

/// Compactions: up to which revision, and when each was asked for.
pub type Compactions = Arc<Mutex<Vec<(u64, Timestamp)>>>;

/// Makes the etcd at `url` forget again and again what is older than this period, and keeps what it did. An etcd that is away forgets
/// nothing meanwhile.
pub async fn compact_every(url: String, period: Duration, done: Compactions) {
    let http = reqwest::Client::builder().no_proxy().build().unwrap();
    let mut ticks = tokio::time::interval(period);
    let mut before = None;
    loop {
        ticks.tick().await;
        let body = json!({"key": "AA==", "limit": "1", "keys_only": true});
        let Ok(answer) = http.post(format!("{url}/v3/kv/range")).body(body.to_string()).send().await else { continue };
        let Ok(answer) = answer.bytes().await else { continue };
        let answer: Value = serde_json::from_slice(&answer).unwrap_or_default();
        let Some(revision) = before.replace(number(&answer["header"]["revision"])) else { continue };
        let (body, asked) = (json!({"revision": revision.to_string(), "physical": true}), Timestamp::now());
        let answer = http.post(format!("{url}/v3/kv/compaction")).body(body.to_string()).send().await;
        if answer.is_ok_and(|answer| answer.status().is_success()) {
            done.lock().unwrap().push((revision, asked));
        }
    }
}

impl Oracle {
    /// Writes what the API server would have written, in one transaction.
    pub async fn put(&self, pairs: &[(String, String)]) {
        let put = |(key, value): &(String, String)| json!({"request_put": {"key": BASE64.encode(key), "value": BASE64.encode(value)}});
        let body = json!({"success": pairs.iter().map(put).collect::<Vec<_>>()});
        post(&self.http, &self.url, "/v3/kv/txn", &body).await;
    }

    /// Deletes everything from `first` up to below `end`, at one revision.
    pub async fn delete_range(&self, first: &str, end: &str) {
        let body = json!({"key": BASE64.encode(first), "range_end": BASE64.encode(end)});
        post(&self.http, &self.url, "/v3/kv/deleterange", &body).await;
    }
}

async fn post(http: &reqwest::Client, url: &str, path: &str, body: &Value) -> Value {
    let answer = http.post(format!("{url}{path}")).body(body.to_string()).send().await.unwrap();
    let (status, text) = (answer.status(), answer.text().await.unwrap());
    assert!(status.is_success(), "etcd says {status} to {path}: {text}");
    serde_json::from_str(&text).unwrap()
}

async fn revision(http: &reqwest::Client, url: &str) -> u64 {
    let body = json!({"key": "AA==", "limit": "1", "keys_only": true});
    number(&post(http, url, "/v3/kv/range", &body).await["header"]["revision"])
}

impl History {
    fn push(&mut self, row: Row) {
        let object = (row.resource.clone(), row.key.clone());
        match row.kind {
            Kind::Deleted => drop(self.uids.remove(&object)),
            Kind::Added | Kind::Modified => drop(self.uids.insert(object, row.uid.clone())),
        }
        self.rows.push(row);
    }

    /// Takes one message of the watch; the revision it leads to.
    fn take(&mut self, result: &Value) -> Option<u64> {
        let mut last = None;
        for event in result["events"].as_array().into_iter().flatten() {
            let kv = &event["kv"];
            let rev = number(&kv["mod_revision"]);
            last = Some(rev);
            let path = String::from_utf8(BASE64.decode(kv["key"].as_str().unwrap()).unwrap()).unwrap();
            let Some((resource, key)) = self.place(&path) else { continue };
            let (kind, uid) = if event["type"] == "DELETE" {
                // Where nothing is known of it, no entry can have the right uid.
                (Kind::Deleted, self.uids.get(&(resource.clone(), key.clone())).cloned().unwrap_or_default())
            } else {
                let value = BASE64.decode(kv["value"].as_str().unwrap_or_default()).unwrap();
                // What is encrypted has a uid that nobody but the API server knows.
                let uid = match value.strip_prefix(b"k8s:enc:") {
                    Some(_) => String::new(),
                    None => uid(&value).unwrap_or_else(|| panic!("no uid in {path}")),
                };
                let created = number(&kv["create_revision"]) == rev;
                (if created { Kind::Added } else { Kind::Modified }, uid)
            };
            self.push(Row { rev, kind, uid, resource, key });
        }
        last
    }

    /// The object that a path means; `None` for what is no object.
    fn place(&mut self, path: &str) -> Option<(String, Key)> {
        let rest = path.strip_prefix("/registry/")?;
        let built_in = BUILT_IN.iter().find_map(|(prefix, resource)| {
            let rest = rest.strip_prefix(prefix)?.strip_prefix('/')?;
            Some(((*resource).to_owned(), rest))
        });
        let (first, below) = rest.split_once('/')?;
        let (resource, object) = match built_in {
            Some(found) => found,
            None if first.contains('.') => {
                let (plural, object) = below.split_once('/')?;
                (format!("{plural}.{first}"), object)
            }
            None => {
                if !INTERNAL.contains(&first) {
                    self.unknown.insert(path.to_owned());
                }
                return None;
            }
        };
        let (namespace, name) = object.split_once('/').unwrap_or(("", object));
        Some((resource, (namespace.to_owned(), name.to_owned())))
    }
}

fn number(value: &Value) -> u64 {
    value.as_str().map_or(0, |text| text.parse().unwrap())
}

/// The uid inside a stored object: protobuf behind a prefix for built-in resources, JSON for others.
fn uid(value: &[u8]) -> Option<String> {
    let Some(envelope) = value.strip_prefix(b"k8s\0") else {
        let object: Value = serde_json::from_slice(value).ok()?;
        return object["metadata"]["uid"].as_str().map(str::to_owned);
    };
    // runtime.Unknown.raw, then metadata, the first field of every object, then ObjectMeta.uid.
    let uid = field(field(field(envelope, 2)?, 1)?, 5)?;
    String::from_utf8(uid.to_owned()).ok()
}

/// The first length-delimited field of this number in a protobuf message.
fn field(mut message: &[u8], number: u64) -> Option<&[u8]> {
    fn varint(message: &mut &[u8]) -> Option<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let (byte, rest) = message.split_first()?;
            *message = rest;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }
    while !message.is_empty() {
        let tag = varint(&mut message)?;
        let length = match tag & 7 {
            0 => {
                varint(&mut message)?;
                continue;
            }
            1 => 8,
            2 => usize::try_from(varint(&mut message)?).ok()?,
            5 => 4,
            _ => return None,
        };
        let (content, rest) = message.split_at_checked(length)?;
        if tag == number << 3 | 2 {
            return Some(content);
        }
        message = rest;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uids_are_found_in_both_encodings() {
        let mut meta = b"\x0a\x03web\x2a\x04u-id".to_vec();
        meta.insert(0, u8::try_from(meta.len()).unwrap());
        meta.insert(0, 0x0a);
        let mut stored = b"k8s\0\x0a\x02xx\x12".to_vec();
        stored.push(u8::try_from(meta.len()).unwrap());
        stored.extend(meta);
        assert_eq!(uid(&stored).as_deref(), Some("u-id"));
        assert_eq!(uid(br#"{"metadata":{"uid":"other"}}"#).as_deref(), Some("other"));
        assert_eq!(uid(b"k8s\0\x12"), None);
    }

    #[test]
    fn places_name_objects() {
        let mut history = History::default();
        let mut place =
            |path: &str| history.place(path).map(|(resource, key)| format!("{resource} {}/{}", key.0, key.1));
        assert_eq!(place("/registry/pods/shop/web").as_deref(), Some("pods shop/web"));
        assert_eq!(place("/registry/minions/n1").as_deref(), Some("nodes /n1"));
        assert_eq!(place("/registry/services/specs/shop/web").as_deref(), Some("services shop/web"));
        assert_eq!(place("/registry/example.com/widgets/shop/w").as_deref(), Some("widgets.example.com shop/w"));
        assert_eq!(place("/registry/ranges/serviceips"), None);
        assert!(history.unknown.is_empty());
        assert_eq!(history.place("/registry/frobs/shop/x"), None);
        assert_eq!(history.unknown.len(), 1);
    }
}
