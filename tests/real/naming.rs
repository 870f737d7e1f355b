//! The audit log names who made a change. The API server writes it at level `RequestResponse`, whose answers are the truth; three
//! decklogs read it: as it is, without bodies, and as Azure sends it, cut off within the bodies.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::path::Path;

use http_body_util::BodyExt as _;
use jiff::{SignedDuration, Timestamp};
use kube::client::Body;
use serde_json::{Value, json};

use crate::decklog::Decklog;
use crate::harness::{Cluster, LIMIT, Parts, Version, client_of, until};

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
/// Rounds of writes of each person.
const ROUNDS: usize = 80;
/// Percentages of the versions of people that have to be named: with bodies, without them, and cut off, without times. Three users write
/// the same objects with one program within a second, which nothing tells apart where no answer has a version.
const LEAST: [usize; 3] = [98, 75, 75];
const WATCH: &str = "resources = [\"configmaps\", \"secrets\", \"deployments.apps\", \"replicasets.apps\", \"pods\"]";
const WATCHED: [&str; 5] = ["configmaps", "secrets", "deployments", "replicasets", "pods"];
/// Those of whom everything is known.
const PEOPLE: [&str; 3] = ["alice", "bob", "robot"];
const MAPS: &str = "/api/v1/namespaces/shop/configmaps";
const APPS: &str = "/apis/apps/v1/namespaces/shop/deployments";

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
    }
}

/// A Deployment, its scale, and an eviction: controllers, the scheduler and kubelets write along.
async fn deployment(person: &Person, name: &str) {
    let labels = json!({"app": name});
    let template = json!({"metadata": {"labels": labels}, "spec": {"containers": [{"name": "main", "image": "i:1"}]}});
    let spec = json!({"replicas": 2, "selector": {"matchLabels": labels}, "template": template});
    person.post(APPS, &json!({"metadata": {"name": name}, "spec": spec})).await;
    person.merge(&format!("{APPS}/{name}/scale"), &json!({"spec": {"replicas": 3}})).await;
    let pods = format!("/api/v1/namespaces/shop/pods?labelSelector=app%3D{name}");
    let pod = until("a Pod", LIMIT, async || {
        let (_, list) = person.send("GET", &pods, "application/json", &Value::Null).await;
        let pod = list["items"][0]["metadata"]["name"].as_str().map(str::to_owned);
        pod.ok_or_else(|| "there is none".to_owned())
    })
    .await;
    let evicted =
        json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod, "namespace": "shop"}});
    person.post(&format!("/api/v1/namespaces/shop/pods/{pod}/eviction"), &evicted).await;
    person.merge(&format!("{APPS}/{name}/scale"), &json!({"spec": {"replicas": 0}})).await;
}

/// A write of the audit log.
#[derive(Clone, Debug)]
struct Asked {
    user: String,
    received: Timestamp,
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
            if !(200..300).contains(&code) || uri.contains("dryRun=") {
                continue;
            }
            let received = text(&event["requestReceivedTimestamp"]).parse().unwrap();
            let may_change_nothing =
                matches!(&*verb, "update" | "patch") && answer["metadata"]["deletionTimestamp"].is_null();
            let asked = Asked { user, received, may_change_nothing };
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

    /// The users who may be called the sender of an entry; none where the answers do not say.
    fn of(&self, entry: &Value) -> Option<Vec<&str>> {
        let text = |key: &str| entry[key].as_str().unwrap_or_default().to_owned();
        let (uid, version) = (text("uid"), text("resourceVersion"));
        let operation = |path: &str| {
            let patch = entry["change"]["patch"].as_array();
            patch.and_then(|patch| patch.iter().find(|op| op["path"] == path)).map(|op| op["op"].clone())
        };
        let deletion = operation("/metadata/deletionTimestamp");
        if deletion == Some(json!("replace")) {
            // A kubelet shortens the grace period, and ends the Pod that others asked to delete.
            return Some(vec![self.deletions.get(&uid)?.last()?.user.as_str()]);
        }
        let is_deletion = entry["type"] == "DELETED" || deletion == Some(json!("add"));
        let evicted = self.evictions.get(&text("name")).filter(|_| entry["resource"] == "pods");
        let asked = match evicted {
            Some(asked) if is_deletion => asked,
            _ if is_deletion => self.deletions.get(&uid)?,
            _ => self.versions.get(&(uid, version))?,
        };
        // A write that changed nothing has the same answer, and comes after it.
        Some(vec![asked.first()?.user.as_str()])
    }
}

/// Verdict on the log of one daemon.
#[derive(Debug, Default)]
struct Named {
    wrong: Vec<String>,
    /// Versions of people that are named, and all of them.
    people: (usize, usize),
    all: (usize, usize),
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
        let Some(expected) = truth.of(entry) else { continue };
        let is_late = entry["time"].as_str().unwrap().parse::<Timestamp>().unwrap() > since + BEGUN;
        let is_person = is_late && PEOPLE.contains(&expected[0]);
        named.all.1 += 1;
        named.people.1 += usize::from(is_person);
        let kind = format!("{} {}", entry["type"].as_str().unwrap(), entry["resource"].as_str().unwrap());
        match actors.get(&entry["seq"].as_u64().unwrap()) {
            Some(actor) if expected.contains(&actor["actor"]["user"].as_str().unwrap()) => {
                named.all.0 += 1;
                named.people.0 += usize::from(is_person);
                let certainty = actor["actor"]["certainty"].as_str().unwrap().to_owned();
                *named.certainties.entry(certainty).or_default() += 1;
            }
            Some(actor) => {
                named.wrong.push(format!("{} of {expected:?} is said to be {}", entry["id"], actor["actor"]));
            }
            None => *named.unnamed.entry(format!("{kind} of {}", expected[0])).or_default() += 1,
        }
    }
    named
}

/// See the module.
pub async fn scenario(version: Version) {
    let place = tempfile::tempdir().unwrap();
    let file = |name: &str| place.path().join(name);
    fs::write(file("policy.yaml"), POLICY).unwrap();
    let arguments = [("policy-file", "policy.yaml"), ("log-path", "whole.log")]
        .map(|(key, name)| format!("--audit-{key}={}", file(name).display()));
    let cluster = Cluster::start_with(version, Parts::Full, &[&arguments[0], &arguments[1]]).await;
    cluster.create("/api/v1/namespaces", &json!({"metadata": {"name": "shop"}})).await;
    let mut daemons = Vec::new();
    for (user, log) in [("calm", "whole.log"), ("paused", "metadata.log"), ("killed", "azure.log")] {
        let mut daemon = Decklog::new(&cluster, user, WATCH);
        daemon.configure(&format!("\n[[audit_log]]\nfile = {:?}\n", file(log)));
        daemon.start();
        daemon.ready().await;
        daemons.push(daemon);
    }
    let begun = Timestamp::now();
    let (alice, bob) = (Person::new(&cluster, "alice").await, Person::new(&cluster, "bob").await);
    let rounds = |person| async move {
        for number in 0..ROUNDS {
            round(person, number).await;
        }
    };
    tokio::join!(rounds(&alice), rounds(&bob));
    // What comes late, and without bodies.
    for (name, convert) in [("metadata.log", without_bodies as fn(&str) -> String), ("azure.log", as_azure)] {
        let whole = fs::read_to_string(file("whole.log")).unwrap();
        let lines: String = whole.lines().map(|line| convert(line) + "\n").collect();
        fs::write(file(name), lines).unwrap();
    }
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
    if let Some(keep) = std::env::var_os("A1_KEEP") {
        for (daemon, name) in daemons.iter().zip(["whole", "metadata", "azure"]) {
            fs::copy(daemon.log(), Path::new(&keep).join(format!("{name}.entries"))).unwrap();
            fs::copy(file(&format!("{name}.log")), Path::new(&keep).join(format!("{name}.log"))).unwrap();
        }
    }
    let truth = Truth::read(&file("whole.log"));
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
    for ((daemon, named), least) in daemons.iter().zip(&judged).zip(LEAST) {
        let share = 100 * named.people.0 / named.people.1.max(1);
        assert!(named.wrong.is_empty(), "{} are wrong, the first: {}", named.wrong.len(), named.wrong[0]);
        assert!(named.people.1 > 800 && share >= least, "{share} % of the versions of people are named: {named:#?}");
        let verify = daemon.command(&["verify"]);
        assert!(verify.status.success(), "verify: {}", String::from_utf8_lossy(&verify.stderr));
        for name in fs::read_dir(daemon.state()).unwrap() {
            let bytes = fs::read(name.unwrap().path()).unwrap();
            assert!(memchr::memmem::find(&bytes, b"canary-").is_none(), "the value of a Secret is on the disk");
        }
    }
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
    json!({"category": "kube-audit", "resourceId": "/SUBSCRIPTIONS/S/RESOURCEGROUPS/G/PROVIDERS/MICROSOFT.CONTAINERSERVICE/MANAGEDCLUSTERS/TEST",
        "operationName": "Microsoft.ContainerService/managedClusters/diagnosticLogs/Read",
        "properties": {"log": &line[..end], "stream": "stdout"}, "time": event["stageTimestamp"]})
    .to_string()
}
