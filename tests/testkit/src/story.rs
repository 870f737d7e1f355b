//! A journal that tells a story: always the same objects at the same times.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};

use decklog::core::model::{Cluster, Observed, Resource, ResourceVersion, SourceSpec, Verb, Why};
use decklog::core::runtime::{self, Simulation};
use decklog::journal::{Journal, SourceJournal, SourceState, WatchChange};
use jiff::Timestamp;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::task::JoinSet;

/// The day of the story.
const DAY: &str = "2026-11-20";

pub fn resource(plural: &str, group: &str, kind: &str, short: &str) -> Resource {
    Resource {
        group: group.into(),
        version: "v1".into(),
        kind: kind.into(),
        plural: plural.into(),
        singular: kind.to_lowercase(),
        short_names: if short.is_empty() { Vec::new() } else { vec![short.into()] },
        namespaced: true,
    }
}

/// A journal being written.
pub struct Story {
    pub dir: TempDir,
    pub journal: Journal,
    simulation: Simulation,
    writer: JoinSet<()>,
    sources: BTreeMap<&'static str, SourceJournal>,
    version: u64,
    /// Set while what comes happened since the last time at which something came.
    away: bool,
    /// The last that was observed.
    pub observed: Option<Observed>,
}

impl Story {
    pub async fn begin() -> Self {
        let simulation = runtime::simulate(1, format!("{DAY}T10:00:00Z").parse().unwrap());
        let dir = tempfile::tempdir().unwrap();
        let (journal, writer, sources) = Self::open(dir.path()).await;
        Self { dir, journal, simulation, writer, sources, version: 100, away: false, observed: None }
    }

    async fn open(dir: &Path) -> (Journal, JoinSet<()>, BTreeMap<&'static str, SourceJournal>) {
        let (journal, writing) = Journal::inline(dir, |_| Ok(())).unwrap();
        let mut writer = JoinSet::new();
        writer.spawn(async move { writing.await.unwrap() });
        journal.set_cluster(Cluster { name: "shop-eu1".into(), uid: "c1".into() }).await.unwrap();
        let mut sources = BTreeMap::new();
        for (plural, group, kind, short) in [
            ("deployments", "apps", "Deployment", "deploy"),
            ("replicasets", "apps", "ReplicaSet", "rs"),
            ("pods", "", "Pod", "po"),
            ("configmaps", "", "ConfigMap", "cm"),
            ("secrets", "", "Secret", ""),
            // Two kinds of one name.
            ("events", "", "Event", "ev"),
            ("events", "events.k8s.io", "Event", "ev"),
        ] {
            let spec = SourceSpec {
                first_list_silent: plural == "replicasets",
                ignore: if plural == "pods" { vec!["/status/seen".to_owned()] } else { Vec::new() },
                ..SourceSpec::of(resource(plural, group, kind, short))
            };
            let (journal, _) = journal.source(&spec).await.unwrap();
            sources.entry(if group == "events.k8s.io" { "new events" } else { plural }).or_insert(journal);
        }
        (journal, writer, sources)
    }

    /// The daemon ends, and another one begins at this time.
    pub async fn restart(mut self, time: &str) -> Self {
        self.journal.flush().await.unwrap();
        drop((self.journal, self.sources));
        self.writer.join_next().await.unwrap().unwrap();
        let time: Timestamp = format!("{DAY}T{time}Z").parse().unwrap();
        self.simulation.jump(time.duration_since(runtime::now()));
        let (journal, writer, sources) = Self::open(self.dir.path()).await;
        Self { journal, writer, sources, ..self }
    }

    /// Watches another resource, of which there is nothing yet.
    pub async fn watch(&mut self, time: &str, resource: Resource) {
        self.at(time);
        let plural: &'static str = Box::leak(resource.plural.clone().into_boxed_str());
        let (journal, _) = self.journal.source(&SourceSpec::of(resource)).await.unwrap();
        self.sources.insert(plural, journal);
    }

    /// The clock shows this.
    pub fn at(&self, time: &str) {
        let time: Timestamp = format!("{DAY}T{time}Z").parse().unwrap();
        self.simulation.jump(time.duration_since(runtime::now()));
    }

    fn observe(&mut self, object: &Value, redacted: &[&str], mark: u8) -> Observed {
        self.version += 1;
        Observed::at(self.version, object, redacted, [mark; 16])
    }

    async fn tell(&mut self, time: &str, source: &str, verb: Verb, object: Observed) {
        self.at(time);
        self.observed = Some(object.clone());
        if !self.away {
            self.sources[source].catch_up().await.unwrap();
        }
        self.sources[source].append(vec![WatchChange { verb, object }]).await.unwrap();
        self.journal.flush().await.unwrap();
    }

    pub async fn put(&mut self, time: &str, source: &str, object: &Value) {
        let object = self.observe(object, &[], 0);
        self.tell(time, source, Verb::Upsert, object).await;
    }

    pub async fn put_redacted(&mut self, time: &str, source: &str, object: &Value, pointers: &[&str], mark: u8) {
        let object = self.observe(object, pointers, mark);
        self.tell(time, source, Verb::Upsert, object).await;
    }

    pub async fn delete(&mut self, time: &str, source: &str, object: &Value) {
        let object = self.observe(object, &[], 0);
        self.tell(time, source, Verb::Delete, object).await;
    }

    pub async fn list(&mut self, time: &str, source: &str, why: Option<Why>, objects: &[Value]) {
        self.at(time);
        let journal = self.sources[source].clone();
        let objects = objects.iter().map(|object| self.observe(object, &[], 0)).collect();
        self.version += 1;
        journal.list_begin().await.unwrap();
        journal.list_page(objects).await.unwrap();
        journal.list_done(ResourceVersion::new(self.version.to_string()), why).await.unwrap();
    }

    /// A list after a gap, with what has not changed.
    pub async fn relist(&mut self, time: &str, source: &str, why: Why, same: &Option<Observed>) {
        self.at(time);
        let journal = self.sources[source].clone();
        self.version += 1;
        journal.list_begin().await.unwrap();
        journal.list_page(same.iter().cloned().collect()).await.unwrap();
        journal.list_done(ResourceVersion::new(self.version.to_string()), Some(why)).await.unwrap();
    }

    /// Every watch is up to date.
    pub async fn is_quiet(&mut self, time: &str) {
        self.at(time);
        self.version += 1;
        for source in self.sources.values() {
            source.catch_up().await.unwrap();
            source.bookmark(ResourceVersion::new(self.version.to_string())).await.unwrap();
        }
        self.journal.flush().await.unwrap();
    }

    /// Every watch is opened again after a while: what comes until [`Story::is_back`] happened since something came last.
    pub async fn was_away(&mut self) {
        self.away = true;
        for source in self.sources.values() {
            source.fall_behind(None).await.unwrap();
        }
    }

    /// What comes from here on happens now.
    pub fn is_back(&mut self) {
        self.away = false;
    }

    /// The cluster does not serve it any more.
    pub async fn gone(&self, time: &str, source: &str) {
        self.at(time);
        self.sources[source].gone().await.unwrap();
    }

    /// The story is told, and a daemon watches on: this process holds its lock.
    pub async fn end(mut self) -> TempDir {
        for source in self.sources.values() {
            source.report(SourceState::Watching).await.unwrap();
        }
        self.journal.flush().await.unwrap();
        drop((self.journal, self.sources));
        self.writer.join_next().await.unwrap().unwrap();
        let lock = File::options()
            .write(true)
            .create(true)
            .truncate(false)
            .open(self.dir.path().join("decklog.lock"))
            .unwrap();
        // Waits for children that another test begins: they have every open file until they are another program.
        rustix::fs::flock(&lock, rustix::fs::FlockOperation::LockExclusive).unwrap();
        std::mem::forget(lock);
        self.dir
    }
}

/// `managedFields` from `(manager, operation, subresource, time of day, fields)`.
pub fn managed(entries: &[(&str, &str, &str, &str, Value)]) -> Value {
    let entry = |(manager, operation, subresource, time, fields): &(&str, &str, &str, &str, Value)| {
        let mut entry = json!({
            "manager": manager, "operation": operation, "apiVersion": "apps/v1", "time": format!("{DAY}T{time}Z"),
            "fieldsType": "FieldsV1", "fieldsV1": fields,
        });
        if !subresource.is_empty() {
            entry["subresource"] = (*subresource).into();
        }
        entry
    };
    entries.iter().map(entry).collect()
}

fn deployment(uid: &str, image: &str, replicas: u64) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "web", "namespace": "shop", "uid": uid, "generation": 1, "labels": {"app": "web"},
            "creationTimestamp": format!("{DAY}T10:01:00Z"),
            "annotations": {"kubectl.kubernetes.io/last-applied-configuration": format!("{{\"image\":\"{image}\"}}\n")}},
        "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": "web"}}, "template": {"spec": {"containers": [
            {"name": "web", "image": image, "env": [{"name": "MODE", "value": "fast"}], "resources": {"limits": {"memory": "128Mi"}}}]}}},
    })
}

fn applied() -> Value {
    json!({"f:metadata": {"f:labels": {"f:app": {}}, "f:annotations": {}}, "f:spec": {"f:selector": {}, "f:template": {"f:spec": {"f:containers":
        {"k:{\"name\":\"web\"}": {".": {}, "f:name": {}, "f:image": {}, "f:env": {"k:{\"name\":\"MODE\"}": {".": {}, "f:name": {}, "f:value": {}}}, "f:resources": {"f:limits": {"f:memory": {}}}}}}}}})
}

pub fn replicas() -> Value {
    json!({"f:spec": {"f:replicas": {}}})
}

pub fn owned(kind: &str, name: &str, uid: &str, owner: (&str, &str, &str), rest: &Value) -> Value {
    let mut object = json!({
        "apiVersion": if kind == "Pod" { "v1" } else { "apps/v1" }, "kind": kind,
        "metadata": {"name": name, "namespace": "shop", "uid": uid, "ownerReferences": [
            {"apiVersion": "apps/v1", "kind": owner.0, "name": owner.1, "uid": owner.2, "controller": true}]},
    });
    for (key, value) in rest.as_object().unwrap() {
        object[key] = value.clone();
    }
    object
}

const WEB: &str = "aaaaaaaa-0000-4000-8000-000000000001";
const WEB_AGAIN: &str = "aaaaaaaa-0000-4000-8000-000000000002";
const SET: &str = "bbbbbbbb-0000-4000-8000-000000000001";
const NEXT_SET: &str = "bbbbbbbb-0000-4000-8000-000000000002";

/// A day in the namespace shop: a rollout, a scaling, a gap, an accident and its repair.
#[expect(clippy::too_many_lines, reason = "a story is told in one go")]
pub async fn shop() -> TempDir {
    let mut story = Story::begin().await;
    let settings = |text: &str| {
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "settings", "namespace": "shop", "uid": "cccccccc-0000-4000-8000-000000000001",
            "managedFields": managed(&[("helm", "Update", "", "08:30:00", json!({"f:data": {}}))])}, "data": {"app.conf": text}})
    };
    let conf = "listen 8080\nworkers 4\nlog info\ntimeout 30\nretries 3\ncolour blue\n";
    let old = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "old", "namespace": "pay", "uid": "cccccccc-0000-4000-8000-000000000002"}, "data": {"a": "1"}});
    story.list("10:00:01", "configmaps", None, &[settings(conf), old.clone()]).await;
    for source in ["deployments", "replicasets", "pods", "secrets", "events", "new events"] {
        story.list("10:00:01", source, None, &[]).await;
    }
    // A Deployment and what it makes.
    let mut web = deployment(WEB, "registry.example.com/shop/web:1.27.2", 3);
    let apply = ("kubectl-client-side-apply", "Update", "", "10:01:00", json!({"f:spec": {"f:replicas": {}}}));
    let mut fields = applied();
    fields["f:spec"]["f:replicas"] = json!({});
    web["metadata"]["managedFields"] = managed(&[(apply.0, apply.1, apply.2, apply.3, fields.clone())]);
    story.put("10:01:00", "deployments", &web).await;
    let set = owned("ReplicaSet", "web-5d8f", SET, ("Deployment", "web", WEB), &json!({"spec": {"replicas": 3}}));
    story.put("10:01:00.2", "replicasets", &set).await;
    let mut pod = owned(
        "Pod",
        "web-5d8f-x2x4q",
        "dddddddd-0000-4000-8000-000000000001",
        ("ReplicaSet", "web-5d8f", SET),
        &json!({"spec": {"containers": [{"name": "web", "image": "registry.example.com/shop/web:1.27.2"}]}, "status": {"phase": "Pending"}}),
    );
    story.put("10:01:00.5", "pods", &pod).await;
    pod["spec"]["nodeName"] = "worker-2".into();
    story.put("10:01:00.6", "pods", &pod).await;
    pod["status"] = json!({"phase": "Running", "conditions": [
        {"type": "Ready", "status": "False", "reason": "ContainersNotReady", "lastTransitionTime": format!("{DAY}T10:01:02Z")}]});
    pod["metadata"]["managedFields"] = managed(&[("kubelet", "Update", "status", "10:01:02", json!({"f:status": {}}))]);
    story.put("10:01:02", "pods", &pod).await;
    pod["status"]["conditions"][0] =
        json!({"type": "Ready", "status": "True", "lastTransitionTime": format!("{DAY}T10:01:04Z")});
    pod["metadata"]["managedFields"] = managed(&[("kubelet", "Update", "status", "10:01:04", json!({"f:status": {}}))]);
    story.put("10:01:04", "pods", &pod).await;
    // What is not told.
    pod["status"]["seen"] = 1.into();
    story.put("10:01:10", "pods", &pod).await;
    let status = |conditions: Value| json!({"replicas": 3, "readyReplicas": 3, "observedGeneration": 1, "conditions": conditions});
    web["status"] = status(json!([{"type": "Available", "status": "False"}]));
    let controller = ("kube-controller-manager", "Update", "status", "10:01:05", json!({"f:status": {}}));
    web["metadata"]["managedFields"] =
        managed(&[(apply.0, apply.1, apply.2, apply.3, fields.clone()), controller.clone()]);
    story.put("10:01:05", "deployments", &web).await;
    // The same second: managedFields stays as it is.
    web["status"] = status(json!([{"type": "Available", "status": "True"}, {"type": "Progressing", "status": "True"}]));
    story.put("10:01:05.5", "deployments", &web).await;
    // A rollout.
    web = {
        let mut next = deployment(WEB, "registry.example.com/shop/web:1.27.3", 3);
        next["status"] = web["status"].clone();
        next["metadata"]["generation"] = 2.into();
        next["metadata"]["managedFields"] =
            managed(&[(apply.0, apply.1, apply.2, "10:12:00", fields.clone()), controller.clone()]);
        next
    };
    story.put("10:12:00", "deployments", &web).await;
    let next = owned("ReplicaSet", "web-7c9b", NEXT_SET, ("Deployment", "web", WEB), &json!({"spec": {"replicas": 3}}));
    story.put("10:12:00.1", "replicasets", &next).await;
    let again = owned(
        "Pod",
        "web-7c9b-k8s7t",
        "dddddddd-0000-4000-8000-000000000002",
        ("ReplicaSet", "web-7c9b", NEXT_SET),
        &json!({"spec": {"containers": [{"name": "web", "image": "registry.example.com/shop/web:1.27.3"}]}, "status": {"phase": "Pending"}}),
    );
    story.put("10:12:00.3", "pods", &again).await;
    pod["metadata"]["deletionTimestamp"] = format!("{DAY}T10:12:40Z").into();
    story.put("10:12:10", "pods", &pod).await;
    story.delete("10:12:11", "pods", &pod).await;
    // A scaling, and a sidecar.
    web["spec"]["replicas"] = 5.into();
    let scaler = ("kubectl", "Update", "scale", "10:20:00", replicas());
    web["metadata"]["managedFields"] =
        managed(&[(apply.0, apply.1, apply.2, "10:12:00", applied()), controller.clone(), scaler.clone()]);
    story.put("10:20:00", "deployments", &web).await;
    let proxy = json!({"name": "proxy", "image": "envoy:1.30", "args": ["--level", "warn"], "ports": [{"containerPort": 15001}]});
    web["spec"]["template"]["spec"]["containers"].as_array_mut().unwrap().push(proxy);
    web["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"]["memory"] = "256Mi".into();
    let mesh = (
        "mesh-injector",
        "Apply",
        "",
        "10:21:00",
        json!({"f:spec": {"f:template": {"f:spec": {"f:containers": {
        "k:{\"name\":\"proxy\"}": {".": {}, "f:name": {}, "f:image": {}, "f:args": {}, "f:ports": {}},
        "k:{\"name\":\"web\"}": {"f:resources": {"f:limits": {"f:memory": {}}}}}}}}}),
    );
    web["metadata"]["managedFields"] = managed(&[
        (apply.0, apply.1, apply.2, "10:12:00", applied()),
        controller.clone(),
        scaler.clone(),
        mesh.clone(),
    ]);
    story.put("10:21:00", "deployments", &web).await;
    // Secrets.
    let secret = |mask: &str, label: &str| {
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "db", "namespace": "shop", "uid": "eeeeeeee-0000-4000-8000-000000000001", "labels": {"tier": label}},
            "data": {"password": mask, "user": mask}, "type": "Opaque"})
    };
    let places = ["/data/password"];
    story.put_redacted("10:22:00", "secrets", &secret("***", "db"), &places, 1).await;
    story.put_redacted("10:22:30", "secrets", &secret("***", "db"), &places, 2).await;
    story.put_redacted("10:22:40", "secrets", &secret("***", "data"), &places, 2).await;
    // A text of several lines.
    let mut changed = settings(&conf.replace("info", "debug").replace("retries 3\n", ""));
    changed["metadata"]["managedFields"] =
        managed(&[("kubectl-edit", "Update", "", "10:25:00", json!({"f:data": {"f:app.conf": {}}}))]);
    story.put("10:25:00", "configmaps", &changed).await;
    let settings_now = story.observed.clone();
    // A gap of pods: one more is found, one has changed, one is gone.
    let third = owned(
        "Pod",
        "web-7c9b-zzz42",
        "dddddddd-0000-4000-8000-000000000003",
        ("ReplicaSet", "web-7c9b", NEXT_SET),
        &json!({"spec": {"containers": []}, "status": {"phase": "Running"}}),
    );
    let mut running = again.clone();
    running["status"]["phase"] = "Running".into();
    story.list("10:35:00", "pods", Some(Why::Expired), &[running, third]).await;
    // A gap of deployments in which nothing changed that stayed.
    story.list("10:36:00", "deployments", Some(Why::Audit), &[web.clone()]).await;
    // The accident, and the repair.
    story.delete("10:40:00", "deployments", &web).await;
    let mut repaired = deployment(WEB_AGAIN, "registry.example.com/shop/web:1.27.3", 5);
    repaired["metadata"]["creationTimestamp"] = format!("{DAY}T10:42:00Z").into();
    repaired["metadata"]["managedFields"] = managed(&[("kubectl-client-side-apply", "Update", "", "10:42:00", fields)]);
    story.put("10:42:00", "deployments", &repaired).await;
    repaired["spec"]["paused"] = true.into();
    repaired["metadata"]["managedFields"] = managed(&[
        ("kubectl-client-side-apply", "Update", "", "10:42:00", applied()),
        ("kubectl-rollout", "Update", "", "10:43:00", json!({"f:spec": {"f:paused": {}}})),
    ]);
    story.put("10:43:00", "deployments", &repaired).await;
    // Two of one name.
    let event = json!({"apiVersion": "v1", "kind": "Event", "metadata": {"name": "e1", "namespace": "shop", "uid": "ffffffff-0000-4000-8000-000000000001"}, "reason": "Started"});
    story.put("10:44:00", "events", &event).await;
    let mut event = event;
    event["metadata"]["uid"] = "ffffffff-0000-4000-8000-000000000002".into();
    story.put("10:44:01", "new events", &event).await;
    story.delete("10:45:00", "configmaps", &old).await;
    // A value that is dropped: only a digest of it tells that it is another.
    let dropped = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "token", "namespace": "shop", "uid": "eeeeeeee-0000-4000-8000-000000000002"},
        "data": {"user": "***"}, "type": "Opaque"});
    story.put_redacted("10:46:00", "secrets", &dropped, &["/data/token"], 1).await;
    story.put_redacted("10:46:30", "secrets", &dropped, &["/data/token"], 2).await;
    // A gap in which nothing happened, or nobody knows it.
    story.relist("10:47:00", "configmaps", Why::Expired, &settings_now).await;
    story.end().await
}

/// What a run of the binary gave.
#[derive(Debug)]
pub struct Answer {
    pub code: i32,
    pub out: String,
    pub err: String,
}

fn decklog(state: &Path, args: &[&str], environment: &[(&str, &str)]) -> Command {
    let mut command = Command::new(crate::program());
    // The same zone on every machine.
    command.current_dir(state).args(args).env_clear().env("STATE_DIRECTORY", state).env("TZ", "UTC");
    command.envs(environment.iter().copied()).stdin(Stdio::null());
    command
}

/// Runs it with pipes.
pub fn run(state: &Path, args: &[&str]) -> Answer {
    run_in(state, args, &[])
}

/// Runs it with pipes and more in its environment.
pub fn run_in(state: &Path, args: &[&str], environment: &[(&str, &str)]) -> Answer {
    let output = decklog(state, args, environment).output().unwrap();
    Answer {
        code: output.status.code().unwrap(),
        out: String::from_utf8(output.stdout).unwrap(),
        err: String::from_utf8(output.stderr).unwrap(),
    }
}

/// Runs it on a terminal with so many columns.
pub fn run_on_terminal(state: &Path, args: &[&str], columns: u16) -> Answer {
    run_on_terminal_in(state, args, columns, &[])
}

/// Runs it on a terminal, with more in its environment.
pub fn run_on_terminal_in(state: &Path, args: &[&str], columns: u16, environment: &[(&str, &str)]) -> Answer {
    on_terminal(decklog(state, args, environment), columns)
}

/// Runs it on a terminal that shows standard error as well, as one that people use.
pub fn shown(state: &Path, args: &[&str], columns: u16) -> String {
    show(decklog(state, args, &[]), columns, true).out
}

/// Runs a program on a terminal with so many columns.
pub fn on_terminal(command: Command, columns: u16) -> Answer {
    show(command, columns, false)
}

fn show(mut command: Command, columns: u16, with_errors: bool) -> Answer {
    let leader = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&leader).unwrap();
    unlockpt(&leader).unwrap();
    let path = ptsname(&leader, Vec::new()).unwrap();
    let follower = File::options().read(true).write(true).open(path.to_str().unwrap()).unwrap();
    tcsetwinsize(&follower, Winsize { ws_row: 50, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 }).unwrap();
    let errors = if with_errors { Stdio::from(follower.try_clone().unwrap()) } else { Stdio::piped() };
    let mut child = command.stdout(follower).stderr(errors).spawn().unwrap();
    // Only the child has the terminal now, so that its end is the end of the text.
    drop(command);
    let mut bytes = Vec::new();
    // The end of a terminal is an error.
    drop(File::from(leader).read_to_end(&mut bytes));
    let mut err = String::new();
    if let Some(mut errors) = child.stderr.take() {
        errors.read_to_string(&mut err).unwrap();
    }
    let code = child.wait().unwrap().code().unwrap();
    Answer { code, out: String::from_utf8(bytes).unwrap().replace("\r\n", "\n"), err }
}
