//! Reports on a log that a small cluster wrote, with managedFields as a real API server keeps them.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::Path;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::*;
use crate::core::model::{Cluster, Observed, Redacted, Resource, ResourceVersion, Seq, SourceSpec, Verb};
use crate::core::runtime;
use crate::journal::{Journal, Reader, SourceJournal, SourceRow, WatchChange};

/// When every story begins.
pub(crate) const BEGIN: &str = "2026-11-21T10:00:00Z";

/// Who set which fields, as paths into the object, and when last.
type Books = BTreeMap<String, (Timestamp, BTreeSet<Vec<String>>)>;

/// A small cluster and its log.
pub(crate) struct Story {
    pub(crate) journal: Journal,
    sources: HashMap<String, SourceJournal>,
    objects: HashMap<(String, String), (Value, Books)>,
    version: u64,
}

/// A resource of the stories.
fn resource(name: &str) -> Resource {
    let (group, kind) = match name {
        "deployments" => ("apps", "Deployment"),
        "leases" => ("coordination.k8s.io", "Lease"),
        "nodes" => ("", "Node"),
        "configmaps" => ("", "ConfigMap"),
        other => panic!("no story has {other}"),
    };
    Resource {
        group: group.to_owned(),
        version: "v1".to_owned(),
        kind: kind.to_owned(),
        plural: name.to_owned(),
        singular: kind.to_lowercase(),
        short_names: Vec::new(),
        namespaced: kind != "Node",
    }
}

impl Story {
    /// Writes a log in `dir`, by a clock that nobody waits for. The caller has stopped tokio's clock.
    pub(crate) async fn play(dir: &Path, ignore: &[&str], script: impl AsyncFnOnce(&mut Self)) {
        let _simulation = runtime::simulate(7, BEGIN.parse().unwrap());
        let (journal, writing) = Journal::inline(dir, |_| Ok(())).unwrap();
        let scripted = async move {
            journal.set_cluster(Cluster { name: "test".into(), uid: "c1".into() }).await.unwrap();
            let mut sources = HashMap::new();
            for name in ["deployments", "leases", "nodes", "configmaps"] {
                let spec = SourceSpec {
                    ignore: ignore.iter().map(|text| (*text).to_owned()).collect(),
                    ..SourceSpec::of(resource(name))
                };
                let (source, _) = journal.source(&spec).await.unwrap();
                source.list_begin().await.unwrap();
                source.list_done(ResourceVersion::new("1"), None).await.unwrap();
                sources.insert(name.to_owned(), source);
            }
            let mut story = Self { journal, sources, objects: HashMap::new(), version: 1 };
            script(&mut story).await;
        };
        let (written, ()) = tokio::join!(writing, scripted);
        written.unwrap();
    }

    /// Time goes by.
    pub(crate) async fn pass(&self, seconds: u64) {
        tokio::time::sleep(Duration::from_secs(seconds)).await;
    }

    /// A manager writes an object by an update, as in `write("deployments", "shop/web", "kubectl", |object| ...)`.
    pub(crate) async fn write(&mut self, plural: &str, object: &str, manager: &str, edit: impl FnOnce(&mut Value)) {
        let key = (plural.to_owned(), object.to_owned());
        let (namespace, name) = object.split_once('/').unwrap_or(("", object));
        let (old, mut books) = self.objects.remove(&key).unwrap_or_else(|| {
            let mut metadata = json!({"name": name, "uid": format!("uid-{name}")});
            if !namespace.is_empty() {
                metadata["namespace"] = namespace.into();
            }
            let resource = resource(plural);
            (json!({"apiVersion": resource.api_version(), "kind": resource.kind, "metadata": metadata}), Books::new())
        });
        let mut new = old.clone();
        edit(&mut new);
        let (before, after) = (leaves(&old), leaves(&new));
        let changed: BTreeSet<_> = after.iter().filter(|leaf| !before.contains(leaf)).map(|(path, _)| path).collect();
        let gone: BTreeSet<_> =
            before.iter().map(|(path, _)| path).filter(|path| !after.iter().any(|(p, _)| p == *path)).collect();
        let now = Timestamp::from_second(runtime::now().as_second()).unwrap();
        for (_, (_, fields)) in books.iter_mut().filter(|(name, _)| *name != manager) {
            fields.retain(|path| !changed.contains(path) && !gone.contains(path));
        }
        if !changed.is_empty() {
            let (time, fields) = books.entry(manager.to_owned()).or_default();
            *time = now;
            fields.retain(|path| !gone.contains(path));
            fields.extend(changed.into_iter().cloned());
        }
        books.retain(|_, (_, fields)| !fields.is_empty());
        self.put(plural, object, new, books).await;
    }

    /// A manager claims what is there already, which changes the books alone.
    pub(crate) async fn claim(&mut self, plural: &str, object: &str, manager: &str) {
        let (value, mut books) = self.objects.remove(&(plural.to_owned(), object.to_owned())).unwrap();
        let fields = leaves(&value).into_iter().map(|(path, _)| path).collect();
        books.insert(manager.to_owned(), (runtime::now(), fields));
        self.put(plural, object, value, books).await;
    }

    /// The server stores an object again: its version moves, and nothing else.
    pub(crate) async fn store_again(&mut self, plural: &str, object: &str) {
        let (value, books) = self.objects.remove(&(plural.to_owned(), object.to_owned())).unwrap();
        self.put(plural, object, value, books).await;
    }

    async fn put(&mut self, plural: &str, object: &str, mut value: Value, books: Books) {
        self.version += 1;
        value["metadata"]["resourceVersion"] = self.version.to_string().into();
        let managed = books.iter().map(|(manager, (time, fields))| {
            let mut tree = Value::Object(Map::new());
            for path in fields {
                path.iter().fold(&mut tree, |tree, part| &mut tree[part]);
            }
            json!({"manager": manager, "operation": "Update", "time": time.to_string(), "fieldsV1": filled(tree)})
        });
        value["metadata"]["managedFields"] = managed.collect();
        self.append(plural, object, &value, Verb::Upsert).await;
        self.objects.insert((plural.to_owned(), object.to_owned()), (value, books));
    }

    /// Somebody deletes an object.
    pub(crate) async fn delete(&mut self, plural: &str, object: &str) {
        self.version += 1;
        let (mut value, _) = self.objects.remove(&(plural.to_owned(), object.to_owned())).unwrap();
        value["metadata"]["resourceVersion"] = self.version.to_string().into();
        self.append(plural, object, &value, Verb::Delete).await;
    }

    /// The API server cannot read an object.
    pub(crate) async fn unreadable(&self, plural: &str, object: &str) {
        let (namespace, name) = object.split_once('/').unwrap();
        self.sources[plural].unreadable((namespace.to_owned(), name.to_owned())).await.unwrap();
    }

    /// The watch history of the API server has expired, and these objects are what it has.
    pub(crate) async fn expire(&mut self, plural: &str) {
        self.version += 1;
        let source = self.sources[plural].clone();
        let all = self.objects.iter().filter(|((of, _), _)| of == plural);
        let all: Vec<Observed> = all.map(|((_, object), (value, _))| observed(object, value)).collect();
        source.list_begin().await.unwrap();
        source.list_page(all).await.unwrap();
        let version = ResourceVersion::new(self.version.to_string());
        source.list_done(version, Some(crate::core::model::Why::Expired)).await.unwrap();
    }

    async fn append(&self, plural: &str, object: &str, value: &Value, verb: Verb) {
        let change = WatchChange { verb, object: observed(object, value) };
        self.sources[plural].append(vec![change]).await.unwrap();
        self.journal.flush().await.unwrap();
    }
}

fn observed(object: &str, value: &Value) -> Observed {
    let (namespace, name) = object.split_once('/').unwrap_or(("", object));
    Observed {
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        uid: value["metadata"]["uid"].as_str().unwrap().to_owned(),
        version: ResourceVersion::new(value["metadata"]["resourceVersion"].as_str().unwrap()),
        body: Redacted { bytes: value.to_string().into_bytes(), ..Redacted::default() },
    }
}

/// What managers can have of an object, and its values: `f:spec`, `f:containers`, `k:{"name":"x"}`, `f:image`.
fn leaves(object: &Value) -> Vec<(Vec<String>, String)> {
    fn walk(path: &mut Vec<String>, value: &Value, out: &mut Vec<(Vec<String>, String)>) {
        let below: Vec<(String, &Value)> = match value {
            Value::Object(members) => members.iter().map(|(name, value)| (format!("f:{name}"), value)).collect(),
            Value::Array(items) if items.iter().all(|item| item["name"].is_string()) => {
                items.iter().map(|item| (format!("k:{}", json!({"name": item["name"]})), item)).collect()
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
                return out.push((path.clone(), value.to_string()));
            }
        };
        for (name, value) in below {
            path.push(name);
            walk(path, value, out);
            path.pop();
        }
    }
    let mut out = Vec::new();
    walk(&mut Vec::new(), object, &mut out);
    let kept = ["f:managedFields", "f:name", "f:namespace", "f:uid", "f:resourceVersion"];
    out.retain(|(path, _)| {
        path[0] != "f:kind" && path[0] != "f:apiVersion" && (path[0] != "f:metadata" || !kept.contains(&&*path[1]))
    });
    out
}

fn filled(tree: Value) -> Value {
    match tree {
        Value::Object(members) => Value::Object(members.into_iter().map(|(key, value)| (key, filled(value))).collect()),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => json!({}),
    }
}

/// What a pass over the log in `dir` finds.
fn churned(dir: &Path) -> Report {
    let mut churn = Churn::default();
    for entry in Reader::open(dir).unwrap().entries_after(Seq(0), 100_000, usize::MAX).unwrap() {
        churn.take(&entry.line).unwrap();
    }
    churn.report(BEGIN.parse().unwrap(), "2026-11-21T11:00:00Z".parse().unwrap(), 100)
}

fn image(object: &mut Value, image: &str) {
    object["spec"]["template"]["spec"]["containers"] = json!([{"name": "nginx", "image": image}]);
}

/// Kind and number of the writes that there were.
fn kinds(report: &Report) -> Vec<(&'static str, u64)> {
    report.classes.iter().filter(|class| class.writes > 0).map(|class| (class.class.as_str(), class.writes)).collect()
}

fn managers(report: &Report) -> Vec<(&str, u64)> {
    report.managers.iter().map(|row| (row.manager.as_deref().unwrap(), row.writes)).collect()
}

#[tokio::test(start_paused = true)]
async fn every_write_is_of_one_kind_and_of_one_manager() {
    let dir = tempfile::tempdir().unwrap();
    Story::play(dir.path(), &[], async |story| {
        story
            .write("nodes", "n", "kubelet", |node| {
                node["status"]["conditions"] =
                    json!([{"type": "Ready", "status": "True", "lastHeartbeatTime": "2026-11-21T10:00:00Z"}]);
            })
            .await;
        story.pass(10).await;
        story
            .write("nodes", "n", "kubelet", |node| {
                node["status"]["conditions"][0]["lastHeartbeatTime"] = "2026-11-21T10:00:10Z".into();
            })
            .await;
        story.pass(10).await;
        story.write("nodes", "n", "kubelet", |node| node["status"]["conditions"][0]["status"] = "False".into()).await;
        story
            .write("leases", "kube-system/l", "scheduler", |lease| {
                lease["spec"] = json!({"renewTime": "a", "holderIdentity": "x"});
            })
            .await;
        story.pass(2).await;
        story.write("leases", "kube-system/l", "scheduler", |lease| lease["spec"]["renewTime"] = "b".into()).await;
        story.pass(2).await;
        story
            .write("leases", "kube-system/l", "scheduler", |lease| {
                lease["spec"] = json!({"renewTime": "c", "holderIdentity": "y"});
            })
            .await;
        story.write("configmaps", "shop/c", "kubectl", |map| map["data"] = json!({"a": "1"})).await;
        story.pass(2).await;
        story.claim("configmaps", "shop/c", "flux").await;
        story.store_again("configmaps", "shop/c").await;
        for turn in 0..3_i64 {
            story.pass(30).await;
            // RFC 3339, and seconds since 1970.
            let stamps =
                json!({"at": format!("2026-11-21T10:0{turn}:00Z"), "seconds": (1_795_255_200 + turn).to_string()});
            story.write("configmaps", "shop/c", "operator", |map| map["metadata"]["annotations"] = stamps).await;
        }
        story.delete("configmaps", "shop/c").await;
    })
    .await;
    let report = churned(dir.path());
    assert_eq!(
        kinds(&report),
        [
            ("created", 3),
            ("deleted", 1),
            // The new holder, and the annotations when they came.
            ("changed", 2),
            ("status", 1),
            ("time-stamps", 2),
            ("heartbeats", 2),
            ("managed-fields", 1),
            ("version", 1),
        ]
    );
    // Nobody is named for the version that moved by itself.
    assert_eq!(
        managers(&report),
        [("kubelet", 3), ("operator", 3), ("scheduler", 3), ("", 1), ("flux", 1), ("kubectl", 1)]
    );
    assert_eq!((report.writes.writes, report.writes.no_op), (13, 6));
    assert_eq!(report.writes.bytes, report.objects.iter().map(|row| row.bytes).sum::<u64>());
    let stamped: Vec<_> = report.fields.iter().map(|field| (&*field.field, field.writes, field.time_stamps)).collect();
    assert_eq!(stamped, [], "two stamps are not yet again and again");
}

#[tokio::test(start_paused = true)]
async fn a_fight_is_reported_with_field_values_and_managers() {
    let dir = tempfile::tempdir().unwrap();
    Story::play(dir.path(), &[], async |story| {
        story.write("deployments", "shop/web", "kubectl", |web| image(web, "nginx:0")).await;
        for _ in 0..3 {
            story.pass(60).await;
            story.write("deployments", "shop/web", "flux", |web| image(web, "nginx:1")).await;
            story.write("deployments", "shop/web", "updater", |web| image(web, "nginx:2")).await;
        }
        story.delete("deployments", "shop/web").await;
    })
    .await;
    let report = churned(dir.path());
    let [fight] = &report.fights[..] else { panic!("{:?}", report.fights) };
    assert_eq!((&*fight.resource, &*fight.namespace, &*fight.name), ("deployments.apps", "shop", "web"));
    assert_eq!(fight.field, "/spec/template/spec/containers/0/image");
    // 0→1→2→1→2→1→2: the third change is the first that goes back.
    assert_eq!((fight.writes, fight.reverts), (6, 4));
    let sides: Vec<_> = fight.sides.iter().map(|s| (&*s.manager, s.value.as_deref().unwrap(), s.times)).collect();
    assert_eq!(sides, [("flux", "\"nginx:1\"", 3), ("updater", "\"nginx:2\"", 3)]);
    assert_eq!(fight.first.unwrap().to_string(), "2026-11-21T10:01:00Z");
    assert_eq!(managers(&report), [("flux", 3), ("updater", 3), ("kubectl", 1)]);
}

#[tokio::test(start_paused = true)]
async fn one_side_of_a_fight_may_take_the_field_away() {
    let dir = tempfile::tempdir().unwrap();
    Story::play(dir.path(), &[], async |story| {
        story.write("configmaps", "shop/c", "kubectl", |map| map["data"] = json!({"keep": "1"})).await;
        for _ in 0..3 {
            story.pass(60).await;
            story.write("configmaps", "shop/c", "one", |map| map["data"]["x"] = "on".into()).await;
            story.pass(60).await;
            story
                .write("configmaps", "shop/c", "other", |map| {
                    map["data"].as_object_mut().unwrap().remove("x");
                    map["data"]["seen"] = runtime::now().to_string().into();
                })
                .await;
        }
    })
    .await;
    let fights = churned(dir.path()).fights;
    let sides: Vec<_> = fights[0].sides.iter().map(|side| (&*side.manager, side.value.as_deref())).collect();
    assert_eq!((fights.len(), &*fights[0].field), (1, "/data/x"));
    assert_eq!(sides, [("one", Some("\"on\"")), ("other", None)]);
}

#[tokio::test(start_paused = true)]
async fn what_one_manager_does_alone_and_a_rollback_are_no_fight() {
    let dir = tempfile::tempdir().unwrap();
    Story::play(dir.path(), &[], async |story| {
        story
            .write("deployments", "shop/web", "kubectl", |web| web["spec"] = json!({"replicas": 1, "image": "a"}))
            .await;
        for turn in 0..10 {
            story.pass(60).await;
            story
                .write("deployments", "shop/web", "autoscaler", |web| web["spec"]["replicas"] = (turn % 2 + 3).into())
                .await;
        }
        // A rollout, and back.
        for (manager, image) in [("ci", "b"), ("human", "a"), ("ci", "c"), ("human", "d")] {
            story.pass(60).await;
            story.write("deployments", "shop/web", manager, |web| web["spec"]["image"] = image.into()).await;
        }
    })
    .await;
    let report = churned(dir.path());
    assert!(report.fights.is_empty(), "{:?}", report.fights);
    let fields: Vec<_> = report.fields.iter().map(|field| (&*field.field, field.writes, &*field.managers)).collect();
    let (auto, both) = (["autoscaler".to_owned()], ["ci".to_owned(), "human".to_owned()]);
    assert_eq!(fields, [("/spec/replicas", 10, &auto[..]), ("/spec/image", 4, &both[..])]);
}

#[tokio::test(start_paused = true)]
async fn within_one_second_the_writer_is_who_has_the_field() {
    let dir = tempfile::tempdir().unwrap();
    Story::play(dir.path(), &[], async |story| {
        story.write("configmaps", "shop/c", "kubectl", |map| map["data"] = json!({"a": "0", "b": "0"})).await;
        story.pass(5).await;
        // The books do not change any more within the second, and still say who has the field.
        for turn in 1..5 {
            story.write("configmaps", "shop/c", "careless", |map| map["data"]["a"] = turn.to_string().into()).await;
        }
    })
    .await;
    assert_eq!(managers(&churned(dir.path())), [("careless", 4), ("kubectl", 1)]);
}

#[tokio::test(start_paused = true)]
async fn a_time_stamp_is_reported_with_its_field_and_its_writer() {
    let dir = tempfile::tempdir().unwrap();
    Story::play(dir.path(), &[], async |story| {
        story.write("configmaps", "shop/c", "kubectl", |map| map["data"] = json!({"a": "0"})).await;
        for _ in 0..5 {
            story.pass(60).await;
            let now = runtime::now().to_string();
            story
                .write("configmaps", "shop/c", "operator", |map| {
                    map["metadata"]["annotations"] = json!({"x.io/at": now});
                })
                .await;
        }
    })
    .await;
    let report = churned(dir.path());
    assert_eq!(kinds(&report), [("created", 1), ("changed", 1), ("time-stamps", 4)]);
    let field = report.fields.iter().find(|field| field.field.ends_with("x.io~1at")).unwrap();
    assert_eq!((field.writes, field.time_stamps, &*field.managers), (4, 4, &["operator".to_owned()][..]));
    assert_eq!(field.value.as_deref(), Some("\"2026-11-21T10:05:00Z\""));
}

#[tokio::test(start_paused = true)]
async fn lists_and_gaps_are_no_writes() {
    let dir = tempfile::tempdir().unwrap();
    Story::play(dir.path(), &[], async |story| {
        story.write("configmaps", "shop/c", "kubectl", |map| map["data"] = json!({"a": "0"})).await;
        let (value, _) = story.objects.get_mut(&("configmaps".to_owned(), "shop/c".to_owned())).unwrap();
        value["data"]["a"] = "9".into();
        value["metadata"]["resourceVersion"] = "50".into();
        story.version = 60;
        story.expire("configmaps").await;
    })
    .await;
    let report = churned(dir.path());
    let not = report.not_counted;
    assert_eq!((report.writes.writes, report.entries), (1, 3));
    assert_eq!((not.listed, not.inferred, not.gaps), (0, 1, 1));
}

#[tokio::test(start_paused = true)]
async fn memory_is_bounded_and_the_busiest_are_remembered() {
    let dir = tempfile::tempdir().unwrap();
    Story::play(dir.path(), &[], async |story| {
        for turn in 0..60 {
            let turn_text = turn.to_string();
            story.write("configmaps", "shop/busy", "busy", |map| map["data"] = json!({"a": turn_text})).await;
            for other in 0..4 {
                let name = format!("shop/once-{turn}-{other}");
                story.write("configmaps", &name, &name, |map| map["data"] = json!({"a": "0"})).await;
            }
            story.pass(1).await;
        }
    })
    .await;
    let mut churn = Churn::with_room(16);
    for entry in Reader::open(dir.path()).unwrap().entries_after(Seq(0), 100_000, usize::MAX).unwrap() {
        churn.take(&entry.line).unwrap();
    }
    let report = churn.report(BEGIN.parse().unwrap(), BEGIN.parse().unwrap(), 100);
    assert!(report.objects.len() <= 16 && report.managers.len() <= 16, "{}", report.objects.len());
    assert_eq!((report.objects[0].name.as_deref(), report.objects[0].writes), (Some("busy"), 60));
    assert_eq!((report.managers[0].manager.as_deref(), report.managers[0].writes), (Some("busy"), 60));
    assert_eq!(report.dropped_below, 1);
    assert_eq!(report.writes.writes, 300, "sums are of all");
}

#[test]
fn stamps_are_moments_and_nothing_else() {
    let written = Some("2026-11-21T10:00:00Z".parse().unwrap());
    for (json, stamp) in [
        ("\"2026-11-21T10:00:00Z\"", true),
        ("\"2026-11-21T10:00:00.123456+01:00\"", true),
        ("\"2026-11-21\"", false),
        ("1795255200", true),
        ("\"1795255200123\"", true),
        ("1795255200123456", true),
        ("1795255200123456789", true),
        ("1234567890", false),
        ("\"abcdefghij\"", false),
        ("3", false),
        ("{\"a\":\"2026-11-21T10:00:00Z\"}", false),
    ] {
        assert_eq!(class::is_stamp(json, written), stamp, "{json}");
    }
}

#[tokio::test(start_paused = true)]
async fn versions_are_counted_over_the_stretches_of_the_counters_alone() {
    let dir = tempfile::tempdir().unwrap();
    Story::play(dir.path(), &[], async |story| {
        // At 10:01:00, 10:02:00, ... 10:06:00.
        for turn in 0..6 {
            story.pass(60).await;
            let turn = turn.to_string();
            story.write("configmaps", "shop/c", "kubectl", |map| map["data"] = json!({ "a": turn })).await;
        }
    })
    .await;
    let micros = |time: &str| time.parse::<Timestamp>().unwrap().as_microsecond();
    let stretch = |since: &str, until: &str| (micros(since), micros(until));
    let count = |stretches: &[(i64, i64)]| {
        let mut versions = Versions::of(stretches);
        for entry in Reader::open(dir.path()).unwrap().entries_after(Seq(0), 100, usize::MAX).unwrap() {
            versions.take(&entry.line).unwrap();
        }
        let of = versions.counts.get("configmaps").copied().unwrap_or_default();
        (of.added, of.modified)
    };
    let (first, second) = (
        stretch("2026-11-21T10:00:30Z", "2026-11-21T10:02:00Z"),
        stretch("2026-11-21T10:03:30Z", "2026-11-21T10:05:30Z"),
    );
    assert_eq!(count(&[first]), (1, 1), "what is at the end of a stretch belongs to it");
    assert_eq!(count(&[stretch("2026-11-21T10:02:00Z", "2026-11-21T10:03:30Z")]), (0, 1), "and not to the next one");
    assert_eq!(count(&[first, second]), (1, 3));
    assert_eq!(count(&[]), (0, 0));
}

#[test]
fn what_was_dropped_is_counted_only_where_requests_and_versions_are_of_the_same() {
    let source = |scoped: bool| SourceRow {
        id: crate::journal::SourceId(1),
        resource: resource("configmaps"),
        namespace: String::new(),
        state: crate::journal::SourceState::Watching,
        state_since: 0,
        resume: None,
        good_at: None,
        good_since: None,
        gaps: 0,
        recovered: 0,
        active: true,
        audits: 0,
        audit_differences: 0,
        audited_at: 0,
        gap_owed: false,
        suppressed: 0,
        scoped,
        selects: false,
        excluded: Vec::new(),
    };
    let report = |verbs: &[(&str, u64)], modified: u64, gap: bool, suppressed: u64, sources: &[SourceRow]| {
        let mut counted = crate::journal::Requests::default();
        let verbs = verbs.iter().map(|(verb, count)| ((*verb).to_owned(), *count)).collect();
        counted.counts.insert("configmaps".to_owned(), verbs);
        counted.suppressed.insert("configmaps".to_owned(), suppressed);
        let mut versions = Versions::of(&[]);
        versions.counts.insert("configmaps".to_owned(), versions::Of { modified, gap, ..Default::default() });
        let of = Requests::of(&counted, &versions, sources).resources.remove(0);
        (of.requests, of.versions.all, of.dropped, of.at_least, of.note.is_some())
    };
    let whole = [source(false)];
    assert_eq!(report(&[("PUT", 9), ("PATCH", 1)], 4, false, 0, &whole), (10, 4, Some(6), false, false));
    assert_eq!(report(&[("PUT", 9)], 4, false, 3, &whole), (9, 7, Some(2), false, false), "suppressed ones were made");
    assert_eq!(report(&[("PUT", 9)], 4, true, 0, &whole), (9, 4, None, false, true), "a gap");
    assert_eq!(report(&[("PUT", 9)], 10, false, 0, &whole), (9, 10, None, false, true), "another server");
    assert_eq!(report(&[("PUT", 9)], 4, false, 0, &[source(true)]), (9, 4, None, false, true), "one namespace");
    assert_eq!(report(&[("PUT", 9)], 4, false, 0, &[]), (9, 4, None, false, true), "not watched any more");
    assert_eq!(report(&[("PUT", 9), ("DELETECOLLECTION", 2)], 4, false, 0, &whole), (11, 4, Some(5), true, true));
}
