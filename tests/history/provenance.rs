//! Five hundred syncs of Argo CD and Flux, of which it is known who made each write: the answers of `why` are true, or say that
//! they do not know.

use std::collections::BTreeMap;
use std::path::Path;

use decklog_testkit::dice::Dice;
use serde_json::{Value, json};

use crate::story::{Story, managed, resource, run};

const SYNCS: usize = 500;
/// What this many names of the second Application share with the first: the writes of either are told apart.
const SHARED: [&str; 2] = ["web-2", "web-3"];

/// Those that are scaled: by one autoscaler, by two, and by one that the log does not have.
const SCALED: [&str; 3] = ["web-1", "web-2", "web-5"];

/// Who made a write in truth.
#[derive(Clone, Debug, PartialEq)]
enum Truth {
    /// The name of the driver, its revision and who started it.
    Sync(&'static str, String, String),
    Person,
    Autoscaler(&'static str),
}

enum Event {
    Begins(usize),
    Writes(usize, &'static str),
    Ends(usize),
    Edits(&'static str),
    Scales(&'static str),
}

struct Sync {
    driver: &'static str,
    from: u64,
    to: u64,
    revision: String,
    /// Empty for the tool itself.
    by: &'static str,
}

/// `10:00:01.250`, of milliseconds since 10:00.
fn clock(millis: u64) -> String {
    let (seconds, millis) = (millis / 1000, millis % 1000);
    format!("{:02}:{:02}:{:02}.{millis:03}", 10 + seconds / 3600, seconds / 60 % 60, seconds % 60)
}

fn second(millis: u64) -> String {
    clock(millis)[..8].to_owned()
}

fn stamp(millis: u64) -> String {
    format!("2026-11-20T{}Z", second(millis))
}

/// The value that a sync or a person sets, and the managers of the object.
#[derive(Default)]
struct Object {
    /// Field, value, and the manager with its subresource and the time of its last write.
    fields: BTreeMap<&'static str, (String, (&'static str, &'static str))>,
    times: BTreeMap<(&'static str, &'static str), String>,
    tracked: String,
}

impl Object {
    fn write(&mut self, field: &'static str, value: String, manager: (&'static str, &'static str), time: u64) {
        self.fields.insert(field, (value, manager));
        self.times.insert(manager, second(time));
    }

    fn json(&self, name: &str) -> Value {
        let mut managers = Vec::new();
        for ((manager, subresource), time) in &self.times {
            let owns = |field| self.fields.get(field).is_some_and(|(_, owner)| *owner == (*manager, *subresource));
            let mut set = json!({});
            if owns("replicas") {
                set["f:spec"]["f:replicas"] = json!({});
            }
            if owns("image") {
                set["f:spec"]["f:template"] = json!({"f:spec": {"f:containers": {"k:{\"name\":\"web\"}": {".": {}, "f:name": {}, "f:image": {}}}}});
            }
            if owns("value") {
                set["f:data"] = json!({"f:value": {}});
            }
            if set != json!({}) {
                let operation = if *manager == "kustomize-controller" { "Apply" } else { "Update" };
                managers.push((*manager, operation, *subresource, time.as_str(), set));
            }
        }
        let value = |field| self.fields.get(field).map(|(value, _)| value.clone()).unwrap_or_default();
        let metadata = json!({"name": name, "namespace": "shop", "uid": format!("u-{name}"), "creationTimestamp": "2026-11-20T10:00:05Z",
            "managedFields": managed(&managers)});
        if self.fields.contains_key("value") {
            let mut object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"value": value("value")}});
            object["metadata"]["labels"] = json!({"kustomize.toolkit.fluxcd.io/name": "apps", "kustomize.toolkit.fluxcd.io/namespace": "flux-system"});
            return object;
        }
        let mut object = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata,
            "spec": {"replicas": value("replicas").parse::<u64>().unwrap_or_default(), "template": {"spec": {"containers": [{"name": "web", "image": value("image")}]}}}});
        object["metadata"]["annotations"] =
            json!({"argocd.argoproj.io/tracking-id": format!("{}:apps/Deployment:shop/{name}", self.tracked)});
        object
    }
}

fn targets(driver: &str) -> &'static [&'static str] {
    match driver {
        "shop" => &["web-0", "web-1", "web-2", "web-3"],
        "base" => &["web-2", "web-3", "web-4", "web-5"],
        _ => &["conf-0", "conf-1", "conf-2"],
    }
}

/// The syncs of three drivers, each one after the other and all at once, with edits, repairs and scalings in between.
fn script(dice: &mut Dice) -> (Vec<Sync>, Vec<(u64, Event)>) {
    let (mut syncs, mut events) = (Vec::new(), Vec::new());
    for (driver, count) in [("shop", 170), ("base", 170), ("apps", SYNCS - 340)] {
        let (mut now, mut revision) = (10_000, 0);
        for _ in 0..count {
            // Some begin as soon as the last has ended, as a repair does.
            let at_once = dice.percent(15);
            let from =
                now + dice.between(if at_once { 20 } else { 2_500 }, if at_once { 1_800 } else { 40_000 }) as u64;
            let to = from + dice.between(1_000, 9_000) as u64;
            revision += u64::from(dice.percent(70));
            let target = *dice.pick(targets(driver));
            let by = *dice.pick(&["alice", "bob", "", ""]);
            let by = if driver == "apps" { "" } else { by };
            if dice.percent(25) {
                events.push((from - 15, Event::Edits(target)));
            }
            if dice.percent(10) {
                events.push((from + 100, Event::Scales(SCALED[dice.roll(SCALED.len())])));
            }
            let at = syncs.len();
            events.push((from + 40, Event::Begins(at)));
            events.push((from + dice.between(200, 800) as u64, Event::Writes(at, target)));
            events.push((to + 60, Event::Ends(at)));
            let hash = format!("{driver}{revision:036x}");
            syncs.push(Sync { driver, from, to, revision: hash, by });
            now = to + 100;
        }
    }
    events.sort_by_key(|(time, _)| *time);
    (syncs, events)
}

/// The status of the object that drives a tool, as its controller writes it.
fn status(sync: &Sync, is_over: bool, past: &mut Vec<Value>) -> Value {
    if sync.driver == "apps" {
        let mut conditions = json!([{"type": "Ready", "status": "True", "reason": "ReconciliationSucceeded"}]);
        if is_over {
            past.retain(|one| one["digest"] != sync.revision.as_str());
            past.insert(0, json!({"digest": sync.revision, "firstReconciled": stamp(sync.from), "lastReconciled": stamp(sync.to),
                "lastReconciledDuration": format!("{}ms", sync.to - sync.from), "lastReconciledStatus": "ReconciliationSucceeded",
                "totalReconciliations": 1, "metadata": {"revision": format!("main@sha1:{}", sync.revision)}}));
            past.truncate(5);
        } else {
            let message = format!("Detecting drift for revision main@sha1:{} with a timeout of 5m0s", sync.revision);
            conditions = json!([{"type": "Ready", "status": "Unknown", "reason": "Progressing"},
                {"type": "Reconciling", "status": "True", "reason": "Progressing", "message": message, "lastTransitionTime": stamp(sync.from)}]);
        }
        return json!({"conditions": conditions, "history": past, "lastAttemptedRevision": format!("main@sha1:{}", sync.revision)});
    }
    let by = if sync.by.is_empty() { json!({"automated": true}) } else { json!({"username": sync.by}) };
    let mut state = json!({"phase": "Running", "startedAt": stamp(sync.from), "operation": {"sync": {"revision": sync.revision}, "initiatedBy": by}});
    if is_over {
        state["phase"] = "Succeeded".into();
        state["finishedAt"] = stamp(sync.to).into();
        state["syncResult"] = json!({"revision": sync.revision, "resources": []});
        past.push(json!({"id": past.len(), "revision": sync.revision, "deployStartedAt": stamp(sync.from), "deployedAt": stamp(sync.to), "initiatedBy": by}));
        let more = past.len().saturating_sub(10);
        past.drain(..more);
    }
    json!({"operationState": state, "history": past})
}

async fn begin() -> Story {
    let mut story = Story::begin().await;
    for source in ["configmaps", "deployments", "replicasets", "pods", "secrets", "events", "new events"] {
        story.list("10:00:01", source, None, &[]).await;
    }
    for (plural, group, kind) in [
        ("applications", "argoproj.io", "Application"),
        ("kustomizations", "kustomize.toolkit.fluxcd.io", "Kustomization"),
        ("horizontalpodautoscalers", "autoscaling", "HorizontalPodAutoscaler"),
    ] {
        story.watch("10:00:01", resource(plural, group, kind, "")).await;
        story.list("10:00:01", plural, None, &[]).await;
    }
    for (name, target) in [("web", "web-1"), ("one", "web-2"), ("two", "web-2")] {
        let hpa = json!({"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": {"name": name, "namespace": "shop", "uid": name},
            "spec": {"scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": target}}});
        story.put("10:00:02", "horizontalpodautoscalers", &hpa).await;
    }
    story
}

/// Plays the script, and returns the entry, the object, the field and the truth of each write.
async fn play(dice: &mut Dice) -> (tempfile::TempDir, Vec<(String, &'static str, &'static str, Truth)>) {
    let (syncs, events) = script(dice);
    let mut story = begin().await;
    let mut objects: BTreeMap<&str, Object> = BTreeMap::new();
    let mut past: BTreeMap<&str, Vec<Value>> = BTreeMap::new();
    let mut truths = Vec::new();
    for (number, (time, event)) in events.into_iter().enumerate() {
        let now = clock(time);
        // The API server stamped it some time before it was seen.
        let written = time - dice.between(0, 150) as u64;
        let (name, field, truth) = match event {
            Event::Begins(at) | Event::Ends(at) => {
                let sync = &syncs[at];
                let status = status(sync, matches!(event, Event::Ends(_)), past.entry(sync.driver).or_default());
                let (source, kind, namespace) = match sync.driver {
                    "apps" => ("kustomizations", "Kustomization", "flux-system"),
                    _ => ("applications", "Application", "argocd"),
                };
                let metadata =
                    json!({"name": sync.driver, "namespace": namespace, "uid": format!("u-{}", sync.driver)});
                let driver = json!({"apiVersion": "v1", "kind": kind, "metadata": metadata, "status": status});
                story.put(&now, source, &driver).await;
                continue;
            }
            Event::Writes(at, name) => {
                let sync = &syncs[at];
                let object = objects.entry(name).or_default();
                let value = format!("{}-{number}", sync.revision);
                match sync.driver {
                    "apps" => object.write("value", value, ("kustomize-controller", ""), written),
                    _ => object.write("image", value, ("argocd-controller", ""), written),
                }
                sync.driver.clone_into(&mut object.tracked);
                let revision =
                    if sync.driver == "apps" { format!("main@sha1:{}", sync.revision) } else { sync.revision.clone() };
                let field = if sync.driver == "apps" { "/data/value" } else { "image" };
                (name, field, Truth::Sync(sync.driver, revision, sync.by.to_owned()))
            }
            Event::Edits(name) if objects.contains_key(name) => {
                let is_config = name.starts_with("conf");
                let object = objects.entry(name).or_default();
                let field = if is_config { "value" } else { "image" };
                object.write(field, format!("by-hand-{number}"), ("kubectl-edit", ""), written);
                (name, if is_config { "/data/value" } else { "image" }, Truth::Person)
            }
            Event::Scales(name) if objects.contains_key(name) => {
                let object = objects.entry(name).or_default();
                object.write("replicas", format!("{}", number + 2), ("kube-controller-manager", "scale"), written);
                (name, "/spec/replicas", Truth::Autoscaler(name))
            }
            Event::Edits(_) | Event::Scales(_) => continue,
        };
        let source = if name.starts_with("conf") { "configmaps" } else { "deployments" };
        story.put(&now, source, &objects[name].json(name)).await;
        truths.push((format!("{}/{name}", &source[..source.len() - 1]), field, truth));
    }
    let dir = story.end().await;
    // One write is one entry, in this order.
    let lines = run(dir.path(), &["tail", "deployments,configmaps", "--last", "100000", "-o", "json"]).out;
    let seqs: Vec<u64> =
        lines.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()["seq"].as_u64().unwrap()).collect();
    assert_eq!(seqs.len(), truths.len());
    let numbered = truths.into_iter().zip(seqs);
    let truths = numbered.map(|((object, field, truth), seq)| (seq.to_string(), &*object.leak(), field, truth));
    let truths = truths.collect();
    (dir, truths)
}

/// What an answer is, in a word; an error where it is not true.
fn judge(state: &Path, (seq, object, field, truth): &(String, &str, &str, Truth)) -> Result<&'static str, String> {
    let answer = run(state, &["why", object, field, "-n", "shop", "--at", seq, "-o", "json"]);
    let wrong = || Err(format!("entry {seq} of {object}, {field}, in truth {truth:?}: {} {}", answer.out, answer.err));
    let Ok(json) = serde_json::from_str::<Value>(&answer.out) else { return wrong() };
    let (writes, provenance) = (&json["writes"], &json["writes"][0]["provenance"]);
    if writes.as_array().is_none_or(|writes| writes.len() != 1) || writes[0]["seq"].as_u64() != seq.parse().ok() {
        return wrong();
    }
    let candidates = provenance["candidates"].as_array().cloned().unwrap_or_default();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let is = |one: &Value| match truth {
        Truth::Sync(driver, revision, by) => {
            let is_by = *driver == "apps"
                || text(&one["run"]["startedBy"]) == *by && (one["run"]["automated"] == true) == by.is_empty();
            one["name"] == *driver && one["run"]["revision"] == revision.as_str() && is_by
        }
        Truth::Autoscaler(name) => match *name {
            "web-1" => one["name"] == "web",
            _ => *name == "web-2" && ["one", "two"].contains(&&*text(&one["name"])),
        },
        Truth::Person => false,
    };
    match (truth, text(&provenance["certainty"]).as_str(), &candidates[..]) {
        (Truth::Person, "none", []) if provenance["ends"]["reason"] == "person" => Ok("person"),
        (Truth::Autoscaler("web-5"), "none", []) if provenance["ends"]["reason"] == "missing" => Ok("no autoscaler"),
        (Truth::Autoscaler("web-2"), "ambiguous", [one, two]) if is(one) && is(two) => Ok("two autoscalers"),
        (Truth::Autoscaler("web-1"), "known", [one]) if is(one) => Ok("autoscaler"),
        (Truth::Sync("apps", ..), "known", [one]) if is(one) => Ok("reconciliation"),
        (Truth::Sync(..), "known", [one]) if is(one) => Ok("sync"),
        (Truth::Sync(..), "ambiguous", several) if several.len() > 1 && several.iter().any(is) => Ok("ambiguous"),
        _ => wrong(),
    }
}

/// None is wrong. What cannot be told apart says so, and has the truth among what it names.
#[tokio::test(start_paused = true)]
async fn five_hundred_syncs_are_explained_as_they_were_or_said_to_be_ambiguous() {
    let (dir, truths) = play(&mut Dice::new(35, "provenance")).await;
    let state = dir.path();
    let judged: Vec<Result<&str, String>> = std::thread::scope(|threads| {
        let parts: Vec<_> = truths.chunks(truths.len().div_ceil(4)).collect();
        let parts = parts
            .into_iter()
            .map(|part| threads.spawn(move || part.iter().map(|one| judge(state, one)).collect::<Vec<_>>()));
        let parts: Vec<_> = parts.collect();
        parts.into_iter().flat_map(|part| part.join().unwrap()).collect()
    });
    let wrong: Vec<&String> = judged.iter().filter_map(|one| one.as_ref().err()).collect();
    assert!(wrong.is_empty(), "{} of {} are wrong, such as {}", wrong.len(), judged.len(), wrong[0]);
    let count = |word: &str| judged.iter().filter(|one| one.as_deref() == Ok(word)).count();
    let words = ["sync", "reconciliation", "ambiguous", "person", "autoscaler", "two autoscalers", "no autoscaler"];
    let counts: Vec<(&str, usize)> = words.iter().map(|word| (*word, count(word))).collect();
    println!("{counts:?}");
    assert!(counts.iter().all(|(_, count)| *count > 0), "{counts:?}");
    assert_eq!(count("sync") + count("reconciliation") + count("ambiguous"), SYNCS);
    assert!(count("ambiguous") < SYNCS / 4, "{counts:?}");
    let shared = |one: &(String, &str, &str, Truth)| SHARED.iter().any(|name| one.1.ends_with(name));
    let of_shared = truths.iter().zip(&judged).filter(|(one, _)| shared(one));
    assert!(of_shared.filter(|(_, word)| word.as_deref() == Ok("sync")).count() > 50, "{counts:?}");
}
