//! The audit log names who made a change. The API server writes it at level `RequestResponse`, whose answers are the truth; five
//! decklogs read it: as it is; without bodies, in a random order and with repeats; as Azure sends it, cut off within the bodies; and,
//! [up to ten minutes late](late), in the envelopes of a webhook, Firehose and an Event Hub, and in that of Pub/Sub.

mod late;

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::path::Path;

use http_body_util::BodyExt as _;
use jiff::{SignedDuration, Timestamp};
use kube::client::Body;
use serde_json::{Value, json};

use crate::decklog::Decklog;
use crate::harness::{Cluster, LIMIT, Parts, Version, client_of, until};
use late::Late;

/// Writes at full length, and what they need none of: reads, events, and the renewal of leases.
const POLICY: &str = "apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived, ResponseStarted]
rules:
- level: None
  verbs: [get, list, watch]
- level: None
  resources: [{group: coordination.k8s.io, resources: [leases]}, {group: '', resources: [events]}, {group: events.k8s.io, resources: [events]}]
- level: RequestResponse
";
/// Bytes of an event that are left: within the bodies, behind what says who asked and what came of it.
const CUT: usize = 1500;
/// Writes that people send at least, granted or not, in each round of both.
const WRITES_MIN: usize = 18;
/// Percentages of the versions of people that have to be named, of all that can be told apart: with bodies, without them, cut off, and
/// late, of API servers whose clocks differ by a millisecond; and by what they may differ by default, of GKE, which leaves out managers
/// and one of the times, so that less is known of writes within a minute.
const LEAST: [usize; 5] = [99, 99, 99, 90, 35];
/// The same, of all of them: two users who send the same request at the same time cannot be told apart where no answer has a version.
const LEAST_OF_ALL: [usize; 5] = [99, 98, 98, 88, 30];
/// Time for which the requests of the second daemon may be late.
const LAG: &str = "45s";
/// Time in milliseconds by which they are late at most.
const LATE_MAX_MS: i64 = 40_000;
const WATCH: &str = "resources = [\"configmaps\", \"secrets\", \"deployments.apps\", \"replicasets.apps\", \"pods\", \"widgets.test.decklog\"]";
const WATCHED: [&str; 6] = ["configmaps", "secrets", "deployments", "replicasets", "pods", "widgets"];
/// Those of whom everything is known.
const PEOPLE: [&str; 3] = ["alice", "bob", "robot"];
const MAPS: &str = "/api/v1/namespaces/shop/configmaps";
const APPS: &str = "/apis/apps/v1/namespaces/shop/deployments";
const PODS: &str = "/api/v1/namespaces/shop/pods";
const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const WIDGETS: &str = "/apis/test.decklog/v1/namespaces/shop/widgets";
/// The cluster in records of Azure.
const AZURE: &str = "/SUBSCRIPTIONS/S/RESOURCEGROUPS/G/PROVIDERS/MICROSOFT.CONTAINERSERVICE/MANAGEDCLUSTERS/TEST";
const STRATEGIC: &str = "application/strategic-merge-patch+json";

/// Somebody with a token.
struct Person {
    name: &'static str,
    client: kube::Client,
}

impl Person {
    async fn new(cluster: &Cluster, name: &'static str) -> Self {
        let kubeconfig = cluster.kubeconfig_of_token(name, &format!("{name}-token"));
        Self { name, client: client_of(&kubeconfig).await.unwrap() }
    }

    async fn send(&self, method: &str, path: &str, kind: &str, body: &Value) -> (u16, Value) {
        self.send_as(None, method, path, kind, body).await
    }

    /// Sends a request, as somebody else.
    async fn send_as(&self, other: Option<&str>, method: &str, path: &str, kind: &str, body: &Value) -> (u16, Value) {
        let body = if body.is_null() { Body::empty() } else { Body::from(body.to_string().into_bytes()) };
        let mut request = http::Request::builder().method(method).uri(path);
        // All have the same program: what tells them apart is what the audit log has.
        request =
            request.header("content-type", kind).header("user-agent", "kubectl/v1.36.0 (linux/amd64) kubernetes/0");
        if let Some(other) = other {
            request = request.header("impersonate-user", other).header("impersonate-group", "system:masters");
        }
        let answer = self.client.send(request.body(body).unwrap()).await.unwrap();
        let status = answer.status().as_u16();
        let bytes = answer.into_body().collect().await.unwrap().to_bytes();
        (status, serde_json::from_slice(&bytes).unwrap_or_default())
    }

    async fn post(&self, path: &str, body: &Value) -> (u16, Value) {
        self.send("POST", path, "application/json", body).await
    }

    async fn merge(&self, path: &str, body: &Value) -> (u16, Value) {
        self.send("PATCH", path, "application/merge-patch+json", body).await
    }

    /// Changes an object as a controller does: reads it, and writes it back until nobody came between.
    async fn put(&self, path: &str, key: &str, value: &str) {
        for _ in 0..20 {
            let (_, mut object) = self.send("GET", path, "application/json", &Value::Null).await;
            if object["kind"] == "Status" {
                return;
            }
            object["data"][key] = json!(value);
            let (status, _) = self.send("PUT", path, "application/json", &object).await;
            if status != 409 {
                return;
            }
        }
    }
}

/// What a person does in one round, with objects of its own and with those that it shares with the others.
async fn round(person: &Person, round: usize) {
    let name = person.name;
    let own = format!("{name}-{round}");
    let at = |name: &str| format!("{MAPS}/{name}");
    let map = |name: &str| json!({"metadata": {"name": name, "labels": {"of": name, "round": (round % 7).to_string()}}, "data": {"a": "1"}});
    let shared = format!("shared-{}", round % 5);
    person.post(MAPS, &map(&own)).await;
    // The others have it already, or not.
    person.post(MAPS, &map(&shared)).await;
    person.put(&at(&shared), name, &round.to_string()).await;
    person.merge(&at(&own), &json!({"data": {"b": "2"}})).await;
    person.merge(&format!("{}?fieldManager={name}", at(&shared)), &json!({"data": {"merged": own}})).await;
    // Nothing changes, or nothing is to be changed.
    person.merge(&at(&own), &json!({"data": {"b": "2"}})).await;
    person.put(&at(&own), "b", "2").await;
    person.merge(&format!("{}?dryRun=All", at(&own)), &json!({"data": {"b": "dry"}})).await;
    person.post(MAPS, &map(&own)).await;
    let applied = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": format!("{own}-applied")}, "data": {"n": round.to_string()}});
    let apply = format!("{}-applied?fieldManager=applier&force=true", at(&own));
    person.send("PATCH", &apply, "application/apply-patch+yaml", &applied).await;
    person.send("PATCH", &apply, "application/apply-patch+yaml", &applied).await;
    person.post(MAPS, &json!({"metadata": {"generateName": format!("{name}-made-")}, "data": {"a": "1"}})).await;
    let secret = json!({"metadata": {"name": own}, "stringData": {"password": format!("canary-{own}")}});
    person.post("/api/v1/namespaces/shop/secrets", &secret).await;
    person
        .send_as(Some("robot"), "PATCH", &at(&own), "application/merge-patch+json", &json!({"data": {"c": own}}))
        .await;
    // As kubectl edit does.
    let edited = json!({"metadata": {"annotations": {"edited": "yes"}}});
    person.send("PATCH", &format!("{}?fieldManager=kubectl-edit", at(&own)), STRATEGIC, &edited).await;
    widget(person, &own, round).await;
    match round % 4 {
        0 => drop(person.send("DELETE", &at(&own), "application/json", &Value::Null).await),
        1 => {
            let held = json!({"metadata": {"finalizers": ["test.decklog/held"]}});
            person.merge(&at(&own), &held).await;
            person.send("DELETE", &at(&own), "application/json", &Value::Null).await;
            person.merge(&at(&own), &json!({"metadata": {"finalizers": null}})).await;
        }
        2 => {
            let selected = format!("{MAPS}?labelSelector=of%3D{own}");
            person.send("DELETE", &selected, "application/json", &Value::Null).await;
        }
        _ => {
            // Another incarnation under the same name, at once.
            person.send("DELETE", &at(&own), "application/json", &Value::Null).await;
            person.post(MAPS, &map(&own)).await;
        }
    }
    if round.is_multiple_of(10) {
        deployment(person, &own).await;
        bound(person, &format!("{own}-bound")).await;
    }
}

/// An object of a definition, which half of the time is there until that goes. Every write changes something: of what is not decided when
/// the definition goes, nobody says that it changed nothing.
async fn widget(person: &Person, name: &str, round: usize) {
    let widget =
        json!({"apiVersion": "test.decklog/v1", "kind": "Widget", "metadata": {"name": name}, "spec": {"size": 1}});
    person.post(WIDGETS, &widget).await;
    let at = format!("{WIDGETS}/{name}");
    person.merge(&at, &json!({"spec": {"size": 2}})).await;
    let (_, mut now) = person.send("GET", &at, "application/json", &Value::Null).await;
    now["spec"]["size"] = json!(3);
    person.send("PUT", &at, "application/json", &now).await;
    if round.is_multiple_of(2) {
        person.send("DELETE", &at, "application/json", &Value::Null).await;
    }
}

/// A Pod that a person binds to a node, and deletes.
async fn bound(person: &Person, name: &str) {
    let (_, nodes) = person.send("GET", "/api/v1/nodes", "application/json", &Value::Null).await;
    let spec = json!({"schedulerName": "nobody", "containers": [{"name": "main", "image": "i:1"}]});
    person.post(PODS, &json!({"metadata": {"name": name}, "spec": spec})).await;
    let target = json!({"kind": "Node", "apiVersion": "v1", "name": nodes["items"][0]["metadata"]["name"]});
    let binding = json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": target});
    person.post(&format!("{PODS}/{name}/binding"), &binding).await;
    person.send("DELETE", &format!("{PODS}/{name}"), "application/json", &Value::Null).await;
}

/// A definition whose objects people write.
async fn define(cluster: &Cluster) {
    let schema = json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
    let version = json!({"name": "v1", "served": true, "storage": true, "schema": schema});
    let names = json!({"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"});
    let spec = json!({"group": "test.decklog", "scope": "Namespaced", "names": names, "versions": [version]});
    cluster
        .create(
            DEFINITIONS,
            &json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
                "metadata": {"name": "widgets.test.decklog"}, "spec": spec}),
        )
        .await;
    answers(cluster, 200).await;
}

/// Waits until the objects of the definition answer with this code.
async fn answers(cluster: &Cluster, code: u16) {
    until("an answer for widgets", LIMIT, async || {
        let (status, _) = cluster.call("GET", WIDGETS, None).await;
        if status == code { Ok(()) } else { Err(status.to_string()) }
    })
    .await;
}

/// A Deployment, its scale, a container for debugging, and an eviction: controllers, the scheduler and kubelets write along.
async fn deployment(person: &Person, name: &str) {
    let labels = json!({"app": name});
    let template = json!({"metadata": {"labels": labels}, "spec": {"containers": [{"name": "main", "image": "i:1"}]}});
    let spec = json!({"replicas": 2, "selector": {"matchLabels": labels}, "template": template});
    person.post(APPS, &json!({"metadata": {"name": name}, "spec": spec})).await;
    person.merge(&format!("{APPS}/{name}/scale"), &json!({"spec": {"replicas": 3}})).await;
    let pods = format!("{PODS}?labelSelector=app%3D{name}");
    let pod = until("a Pod", LIMIT, async || {
        let (_, list) = person.send("GET", &pods, "application/json", &Value::Null).await;
        let pod = list["items"][0]["metadata"]["name"].as_str().map(str::to_owned);
        pod.ok_or_else(|| "there is none".to_owned())
    })
    .await;
    let debugger = json!({"spec": {"ephemeralContainers": [{"name": "debugger", "image": "i:1"}]}});
    person.send("PATCH", &format!("{PODS}/{pod}/ephemeralcontainers"), STRATEGIC, &debugger).await;
    let evicted =
        json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod, "namespace": "shop"}});
    person.post(&format!("{PODS}/{pod}/eviction"), &evicted).await;
    person.merge(&format!("{APPS}/{name}/scale"), &json!({"spec": {"replicas": 0}})).await;
}

/// A write of the audit log.
#[derive(Clone, Debug)]
struct Asked {
    user: String,
    received: Timestamp,
    completed: Timestamp,
    /// All that tells it from others without bodies, but for its time and its user.
    shape: [String; 5],
    /// Set if a version that another write brought before says that it changed nothing.
    may_change_nothing: bool,
}

/// The writes that brought each version, the first first, and the deletions of each object.
#[derive(Default)]
struct Truth {
    versions: HashMap<(String, String), Vec<Asked>>,
    deletions: HashMap<String, Vec<Asked>>,
    /// Numbers of writes that changed nothing, and of refused ones, by user: a conflict, and a name that was taken.
    unwritten: BTreeMap<String, [u64; 3]>,
    /// By the name of the Pod, which is one Pod's alone.
    evictions: HashMap<String, Vec<Asked>>,
    /// Every granted write.
    all: Vec<Asked>,
    /// Number of writes that people sent.
    sent: usize,
}

impl Truth {
    fn read(path: &Path) -> Self {
        let mut truth = Self::default();
        for line in fs::read_to_string(path).unwrap().lines() {
            let event: Value = serde_json::from_str(line).unwrap();
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            let (verb, uri, answer) = (text(&event["verb"]), text(&event["requestURI"]), &event["responseObject"]);
            let code = event["responseStatus"]["code"].as_u64().unwrap_or(0);
            let user = [&event["impersonatedUser"]["username"], &event["user"]["username"]].map(&text);
            let user = user.into_iter().find(|name| !name.is_empty()).unwrap();
            if code == 409 && WATCHED.contains(&event["objectRef"]["resource"].as_str().unwrap_or_default()) {
                let is_creation = verb == "create" && event["objectRef"]["subresource"].is_null();
                truth.unwritten.entry(user.clone()).or_default()[if is_creation { 2 } else { 1 }] += 1;
            }
            let is_write = !matches!(&*verb, "get" | "list" | "watch");
            truth.sent += usize::from(is_write && PEOPLE.contains(&user.as_str()));
            if !(200..300).contains(&code) || uri.contains("dryRun=") {
                continue;
            }
            let received = text(&event["requestReceivedTimestamp"]).parse().unwrap();
            let may_change_nothing =
                matches!(&*verb, "update" | "patch") && answer["metadata"]["deletionTimestamp"].is_null();
            let completed = text(&event["stageTimestamp"]).parse().unwrap();
            let query = uri.split_once('?').map_or("", |(_, query)| query).to_owned();
            let of = ["resource", "subresource", "name"].map(|key| text(&event["objectRef"][key]));
            let [resource, subresource, name] = of;
            let shape = [verb.clone(), resource, subresource, name, query];
            let asked = Asked { user, received, completed, shape, may_change_nothing };
            truth.all.push(asked.clone());
            let metadata = &answer["metadata"];
            let (uid, version) = (text(&metadata["uid"]), text(&metadata["resourceVersion"]));
            let details = text(&answer["details"]["uid"]);
            match &*verb {
                "delete" if !details.is_empty() => truth.deletions.entry(details).or_default().push(asked),
                "delete" => truth.deletions.entry(uid).or_default().push(asked),
                "deletecollection" => {
                    for item in answer["items"].as_array().into_iter().flatten() {
                        let uid = text(&item["metadata"]["uid"]);
                        truth.deletions.entry(uid).or_default().push(asked.clone());
                    }
                }
                "create" if event["objectRef"]["subresource"] == "eviction" => {
                    truth.evictions.entry(text(&event["objectRef"]["name"])).or_default().push(asked);
                }
                _ => truth.versions.entry((uid, version)).or_default().push(asked),
            }
        }
        for all in truth.versions.values_mut().chain(truth.deletions.values_mut()).chain(truth.evictions.values_mut()) {
            all.sort_by_key(|asked| asked.received);
        }
        for asked in truth.versions.values().flat_map(|all| &all[1..]).filter(|asked| asked.may_change_nothing) {
            truth.unwritten.entry(asked.user.clone()).or_default()[0] += 1;
        }
        truth
    }

    /// The write that asked for what an entry says; none where the answers do not say.
    fn of(&self, entry: &Value) -> Option<&Asked> {
        let text = |key: &str| entry[key].as_str().unwrap_or_default().to_owned();
        let (uid, version) = (text("uid"), text("resourceVersion"));
        let operation = |path: &str| {
            let patch = entry["change"]["patch"].as_array();
            patch.and_then(|patch| patch.iter().find(|op| op["path"] == path)).map(|op| op["op"].clone())
        };
        let deletion = operation("/metadata/deletionTimestamp");
        if deletion == Some(json!("replace")) {
            // A kubelet shortens the grace period, and ends the Pod that others asked to delete.
            return self.deletions.get(&uid)?.last();
        }
        let is_deletion = entry["type"] == "DELETED" || deletion == Some(json!("add"));
        let evicted = self.evictions.get(&text("name")).filter(|_| entry["resource"] == "pods");
        let asked = match evicted {
            Some(asked) if is_deletion => asked,
            _ if is_deletion => self.deletions.get(&uid)?,
            _ => self.versions.get(&(uid, version))?,
        };
        // A write that changed nothing has the same answer, and comes after it.
        asked.first()
    }

    /// Reports whether somebody else sent the same while this ran.
    fn has_twin(&self, asked: &Asked) -> bool {
        self.all.iter().any(|other| {
            other.user != asked.user
                && other.shape == asked.shape
                && other.received <= asked.completed
                && asked.received <= other.completed
        })
    }
}

/// Verdict on the log of one daemon.
#[derive(Debug, Default)]
struct Named {
    wrong: Vec<String>,
    /// Versions of people that are named, and all of them.
    people: (usize, usize),
    all: (usize, usize),
    /// Versions of people that are not named because somebody else sent the same at the same time.
    alike: usize,
    certainties: BTreeMap<String, usize>,
    unnamed: BTreeMap<String, usize>,
}

/// Time behind the beginning of an audit log from which a change can have nothing to do with a request before it.
const BEGUN: SignedDuration = SignedDuration::from_secs(6);

/// Compares a log with the truth. Who wrote before `since` may be unknown.
fn judge(log: &str, truth: &Truth, since: Timestamp) -> Named {
    let entries: Vec<Value> = log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let mut actors: HashMap<u64, &Value> = HashMap::new();
    let mut named = Named::default();
    for entry in entries.iter().filter(|entry| entry["type"] == "ACTOR") {
        let (of, seq) = (entry["of"]["seq"].as_u64().unwrap(), entry["seq"].as_u64().unwrap());
        let target = &entries[usize::try_from(of).unwrap() - 1];
        if of >= seq || target["id"] != entry["of"]["id"] || actors.insert(of, entry).is_some() {
            named.wrong.push(format!("{entry} is no ACTOR of {target}"));
        }
    }
    for entry in entries.iter().filter(|entry| entry["evidence"] == "watched") {
        let actor = actors.get(&entry["seq"].as_u64().unwrap());
        let Some(expected) = truth.of(entry) else {
            // Nobody asks for the end of what goes with its definition.
            if let Some(actor) = actor.filter(|_| entry["resource"] == "widgets" && entry["type"] == "DELETED") {
                named.wrong.push(format!("{} of nobody is said to be {}", entry["id"], actor["actor"]));
            }
            continue;
        };
        let is_late = entry["time"].as_str().unwrap().parse::<Timestamp>().unwrap() > since + BEGUN;
        let is_person = is_late && PEOPLE.contains(&expected.user.as_str());
        named.all.1 += 1;
        named.people.1 += usize::from(is_person);
        let kind = format!("{} {}", entry["type"].as_str().unwrap(), entry["resource"].as_str().unwrap());
        match actor {
            Some(actor) if actor["actor"]["user"] == expected.user => {
                named.all.0 += 1;
                named.people.0 += usize::from(is_person);
                let certainty = actor["actor"]["certainty"].as_str().unwrap().to_owned();
                *named.certainties.entry(certainty).or_default() += 1;
            }
            Some(actor) => {
                named.wrong.push(format!("{} of {} is said to be {}", entry["id"], expected.user, actor["actor"]));
            }
            None => {
                let is_alike = truth.has_twin(expected);
                named.alike += usize::from(is_person && is_alike);
                let why = if is_alike { ", as another one at the same time" } else { "" };
                *named.unnamed.entry(format!("{kind} of {}{why}", expected.user)).or_default() += 1;
            }
        }
    }
    named
}

/// See the module.
pub async fn scenario(version: Version) {
    let number_of_rounds = if version == Version::V1_36 { 80 } else { 30 };
    let place = tempfile::tempdir().unwrap();
    let file = |name: &str| place.path().join(name);
    fs::write(file("policy.yaml"), POLICY).unwrap();
    let arguments = [("policy-file", "policy.yaml"), ("log-path", "whole.log")]
        .map(|(key, name)| format!("--audit-{key}={}", file(name).display()));
    let cluster = Cluster::start_with(version, Parts::Full, &[&arguments[0], &arguments[1]]).await;
    cluster.create("/api/v1/namespaces", &json!({"metadata": {"name": "shop"}})).await;
    define(&cluster).await;
    let mut daemons = Vec::new();
    for (user, log) in [("calm", "whole.log"), ("paused", "metadata.log"), ("killed", "azure.log")] {
        let mut daemon = Decklog::new(&cluster, user, WATCH);
        let lag = if log == "metadata.log" { format!("lag = {LAG:?}\n") } else { String::new() };
        daemon.configure(&format!("\n[[audit_log]]\nfile = {:?}\n{lag}", file(log)));
        daemon.start();
        daemon.ready().await;
        daemons.push(daemon);
    }
    let mut late = [
        Late::start(&cluster, "late", late::Sender::Native).await,
        Late::start(&cluster, "google", late::Sender::Google).await,
    ];
    let begun = Timestamp::now();
    let (alice, bob) = (Person::new(&cluster, "alice").await, Person::new(&cluster, "bob").await);
    let rounds = |person| async move {
        for number in 0..number_of_rounds {
            round(person, number).await;
        }
    };
    tokio::join!(rounds(&alice), rounds(&bob));
    alice.send("DELETE", &format!("{DEFINITIONS}/widgets.test.decklog"), "application/json", &Value::Null).await;
    answers(&cluster, 404).await;
    // What comes late: without bodies, in another order, and some of it again; and cut off.
    for (name, convert) in [("metadata.log", without_bodies as fn(&str) -> String), ("azure.log", as_azure)] {
        let whole = fs::read_to_string(file("whole.log")).unwrap();
        let mut lines: Vec<String> = whole.lines().map(|line| convert(line) + "\n").collect();
        if name == "metadata.log" {
            let mut random = fastrand::Rng::with_seed(36);
            // None later than the daemon is told, however long the rounds took.
            let mut late = |line: &String| {
                let event: Value = serde_json::from_str(line).unwrap();
                let at: Timestamp = event["stageTimestamp"].as_str().unwrap().parse().unwrap();
                at + SignedDuration::from_millis(random.i64(0..LATE_MAX_MS))
            };
            lines.sort_by_cached_key(&mut late);
            let again: Vec<String> = lines.iter().filter(|_| random.u8(0..5) == 0).cloned().collect();
            lines.extend(again);
        }
        fs::write(file(name), lines.concat()).unwrap();
    }
    let whole = fs::read_to_string(file("whole.log")).unwrap();
    let newest = newest_change(&daemons[0]);
    // They wait as long as the second one, and at the same time.
    let [native, google] = &mut late;
    let receive = async |late: &mut Late| {
        until("the last change", LIMIT, async || {
            late.daemon.must_run();
            let log = fs::read_to_string(late.daemon.log()).unwrap();
            if log.contains(&newest) { Ok(()) } else { Err(format!("{newest} is not in it")) }
        })
        .await;
        late.receive(&whole).await;
    };
    tokio::join!(receive(native), receive(google));
    daemons.extend(late.map(|late| late.daemon));
    for daemon in &mut daemons {
        let log = fs::read_to_string(daemon.log()).unwrap();
        let mut entries = log.lines().rev().map(|line| serde_json::from_str::<Value>(line).unwrap());
        let last = entries.find(|entry| entry["type"] != "ACTOR").unwrap()["seq"].as_u64().unwrap();
        until("every sender", LIMIT, async || {
            daemon.must_run();
            let status = daemon.command(&["status", "-o", "json"]);
            let status: Value = serde_json::from_slice(&status.stdout).map_err(|error| error.to_string())?;
            let attributed = status["audit_logs"][0]["attributed"].as_u64().unwrap_or_default();
            if attributed >= last { Ok(()) } else { Err(format!("{attributed} of {last}: {}", status["audit_logs"])) }
        })
        .await;
    }
    let truth = Truth::read(&file("whole.log"));
    assert!(truth.sent >= number_of_rounds * 2 * WRITES_MIN, "{} writes are too few", truth.sent);
    let wanted = unwritten_of_people(&truth.unwritten);
    // A source that is quiet says by its next bookmark that nothing was missing.
    until("every write that changed nothing", LIMIT, async || {
        let counted = unwritten(&daemons[0]);
        if counted == wanted { Ok(()) } else { Err(format!("{counted:?} of {wanted:?}")) }
    })
    .await;
    for daemon in &mut daemons {
        let counted = unwritten(daemon);
        eprintln!("{counted:?} of {wanted:?}");
        for (user, [no_op, refused @ ..]) in &wanted {
            let of = counted.get(user).copied().unwrap_or_default();
            assert!(of[0] <= *no_op && of[1..] == *refused, "{user}: {of:?} of {no_op} and {refused:?}");
        }
        daemon.stop().await;
    }
    let judged = daemons.iter().map(|daemon| judge(&fs::read_to_string(daemon.log()).unwrap(), &truth, begun));
    let judged: Vec<Named> = judged.collect();
    eprintln!("{judged:#?}");
    for ((daemon, named), (least, least_of_all)) in daemons.iter().zip(&judged).zip(LEAST.into_iter().zip(LEAST_OF_ALL))
    {
        let of_all = 100 * named.people.0 / named.people.1.max(1);
        let share = 100 * named.people.0 / (named.people.1 - named.alike).max(1);
        assert!(named.wrong.is_empty(), "{} are wrong, the first: {}", named.wrong.len(), named.wrong[0]);
        let is_enough = named.people.1 > 12 * number_of_rounds && share >= least && of_all >= least_of_all;
        assert!(is_enough, "{share} % of the versions of people are named, {of_all} % of all of them: {named:#?}");
        let verify = daemon.command(&["verify"]);
        assert!(verify.status.success(), "verify: {}", String::from_utf8_lossy(&verify.stderr));
        for name in fs::read_dir(daemon.state()).unwrap() {
            let bytes = fs::read(name.unwrap().path()).unwrap();
            assert!(memchr::memmem::find(&bytes, b"canary-").is_none(), "the value of a Secret is on the disk");
        }
    }
}

/// The id of the newest change of a log.
fn newest_change(daemon: &Decklog) -> String {
    let log = fs::read_to_string(daemon.log()).unwrap();
    let mut entries = log.lines().rev().map(|line| serde_json::from_str::<Value>(line).unwrap());
    entries.find(|entry| entry["type"] != "ACTOR").unwrap()["id"].to_string()
}

/// Numbers of requests that wrote nothing as a daemon says them: without a change, conflicts, names that were taken.
fn unwritten(daemon: &Decklog) -> BTreeMap<String, [u64; 3]> {
    let answer = daemon.command(&["churn", "--requests", "--since", "1h", "--top", "10000", "-o", "json"]);
    let report: Value = serde_json::from_slice(&answer.stdout).unwrap();
    let mut found: BTreeMap<String, [u64; 3]> = BTreeMap::new();
    for row in report["senders"]["rows"].as_array().unwrap() {
        let of = found.entry(row["user"].as_str().unwrap().to_owned()).or_default();
        for (place, key) in ["no_op", "conflicts", "already_exists"].into_iter().enumerate() {
            of[place] += row[key].as_u64().unwrap();
        }
    }
    unwritten_of_people(&found)
}

fn unwritten_of_people(all: &BTreeMap<String, [u64; 3]>) -> BTreeMap<String, [u64; 3]> {
    all.iter().filter(|(user, _)| PEOPLE.contains(&user.as_str())).map(|(user, of)| (user.clone(), *of)).collect()
}

/// The event at level `Metadata`.
fn without_bodies(line: &str) -> String {
    let mut event: Value = serde_json::from_str(line).unwrap();
    let members = event.as_object_mut().unwrap();
    members.insert("level".to_owned(), json!("Metadata"));
    members.retain(|name, _| name != "requestObject" && name != "responseObject");
    event.to_string()
}

/// The event as a record of an Event Hub.
fn as_azure(line: &str) -> String {
    let end = line.floor_char_boundary(CUT.min(line.len()));
    let event: Value = serde_json::from_str(line).unwrap();
    json!({"category": "kube-audit", "resourceId": AZURE,
        "operationName": "Microsoft.ContainerService/managedClusters/diagnosticLogs/Read",
        "properties": {"log": &line[..end], "stream": "stdout"}, "time": event["stageTimestamp"]})
    .to_string()
}
