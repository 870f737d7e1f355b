//! A Deployment in an API server that keeps managedFields as the real one does, and the journal of it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;

use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::super::{Drifted, Drifting};
use crate::core::k8s::audited::{Actor as Sent, Sender};
use crate::core::model::{Cluster as Named, Observed, Resource, ResourceVersion, Seq, SourceSpec, Verb, Why};
use crate::core::rights::Sight;
use crate::core::runtime::{self, Simulation};
use crate::journal::{Attribution, Journal, SourceJournal, WatchChange};
use crate::query::render::clock::Clock;
use crate::query::{Log, Question};

const BEGIN: &str = "2026-11-20T10:00:00Z";
const NOTE: &str = "kubectl.kubernetes.io/last-applied-configuration";

type Pairs = Vec<(&'static str, &'static str)>;

/// One step of a script.
#[derive(Clone)]
pub(super) enum Do {
    /// A client-side apply, which notes what it applies.
    Sync(&'static str, Pairs),
    /// A server-side apply with force.
    Apply(&'static str, Pairs),
    /// An update of several fields.
    Update(&'static str, Pairs),
    /// An update of one field; without a value it removes it.
    Edit(&'static str, &'static str, &'static str),
    EditAll(&'static str, Pairs),
    /// A write of the subresource.
    Scale(&'static str, &'static str),
    /// A value that the API server sets.
    Default(&'static str, &'static str),
    Delete,
    /// A tool makes the fields of every kubectl its own in managedFields, and writes no value.
    TakeOver(&'static str),
    /// Somebody clears managedFields.
    Clear,
    /// The object is tracked by a label from here on.
    Label(&'static str),
    /// Another object as it is.
    Put(&'static str, Value),
    /// The audit log names the sender of the newest entry.
    Actor(&'static str, &'static str),
    /// Changes of these fields are not recorded; the first step.
    Ignore(&'static str),
    /// The watch breaks.
    Blind,
    /// A list after that.
    Relist,
    Wait,
}

/// Key of an entry of managedFields.
type Writer = (String, &'static str, &'static str);

#[derive(Clone, Default)]
pub(super) struct Deployment {
    pub(super) fields: BTreeMap<String, String>,
    pub(super) books: BTreeMap<Writer, (u32, BTreeSet<String>)>,
    uid: u32,
    created: u32,
}

pub(super) struct Cluster {
    journal: Journal,
    simulation: Simulation,
    sources: BTreeMap<&'static str, SourceJournal>,
    pub(super) object: Option<Deployment>,
    label: Option<&'static str>,
    version: u64,
    uids: u32,
    now: u32,
    is_blind: bool,
    is_listed: bool,
    ignore: Vec<String>,
}

/// A time, in seconds since the story began.
pub(super) fn time(seconds: u32) -> Timestamp {
    BEGIN.parse::<Timestamp>().unwrap() + SignedDuration::from_secs(seconds.into())
}

pub(super) fn stamp(seconds: u32) -> String {
    time(seconds).to_string()
}

/// Keys of FieldsV1 that lead to a field.
fn keys(field: &str) -> Vec<String> {
    let container = ["f:spec", "f:template", "f:spec", "f:containers", "k:{\"name\":\"web\"}"];
    let of = |keys: &[&str]| keys.iter().map(|key| (*key).to_owned()).collect();
    match field {
        "replicas" => of(&["f:spec", "f:replicas"]),
        "team" => of(&["f:metadata", "f:labels", "f:team"]),
        "mark" => of(&["f:metadata", "f:annotations", "f:argocd.argoproj.io/tracking-id"]),
        "note" => of(&["f:metadata", "f:annotations", &format!("f:{NOTE}")]),
        "restarted" => {
            of(&["f:spec", "f:template", "f:metadata", "f:annotations", "f:kubectl.kubernetes.io/restartedAt"])
        }
        "ready" => of(&["f:status", "f:readyReplicas"]),
        "image" => of(&[&container[..], &["f:image"]].concat()),
        "args" => of(&[&container[..], &["f:args"]].concat()),
        "policy" => of(&[&container[..], &["f:imagePullPolicy"]].concat()),
        "env" => of(&[&container[..], &["f:workingDir"]].concat()),
        other => of(&["f:spec", &format!("f:{other}")]),
    }
}

fn json_of(field: &str, value: &str) -> Value {
    match field {
        "replicas" | "ready" => json!(value.parse::<u64>().unwrap()),
        "args" => serde_json::from_str(value).unwrap(),
        _ => json!(value),
    }
}

/// Sets the value below keys of FieldsV1.
fn set(object: &mut Value, keys: &[String], value: Value) {
    let Some((key, rest)) = keys.split_first() else { return *object = value };
    if let Some(name) = key.strip_prefix("f:") {
        return set(&mut object[name], rest, value);
    }
    let named: Value = serde_json::from_str(key.strip_prefix("k:").unwrap()).unwrap();
    if object.is_null() {
        *object = json!([]);
    }
    let list = object.as_array_mut().unwrap();
    let at = list.iter().position(|item| item["name"] == named["name"]).unwrap_or_else(|| {
        list.push(named);
        list.len() - 1
    });
    set(&mut list[at], rest, value);
}

/// The manifest, or the object, of these fields.
fn manifest<'f>(fields: impl Iterator<Item = (&'f str, &'f str)>) -> Value {
    let mut object =
        json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "cart", "namespace": "shop"}});
    for (field, value) in fields {
        set(&mut object, &keys(field), json_of(field, value));
    }
    object
}

impl Deployment {
    /// Takes a field from everybody but one.
    fn lose(&mut self, field: &str, but: Option<&Writer>) {
        for (_, (_, fields)) in self.books.iter_mut().filter(|(writer, _)| Some(*writer) != but) {
            fields.remove(field);
        }
        self.books.retain(|_, (_, fields)| !fields.is_empty());
    }

    /// Sets or removes fields as an update does.
    fn update(&mut self, writer: &Writer, fields: &[(String, String)], now: u32) {
        for (field, value) in fields {
            if self.fields.get(field) == Some(value) || value.is_empty() && !self.fields.contains_key(field) {
                continue;
            }
            self.lose(field, Some(writer));
            if value.is_empty() {
                self.fields.remove(field);
                self.lose(field, None);
                continue;
            }
            self.fields.insert(field.clone(), value.clone());
            let (time, own) = self.books.entry(writer.clone()).or_default();
            *time = now;
            own.insert(field.clone());
        }
    }

    /// Sets all that a manager wants.
    fn apply(&mut self, writer: &Writer, fields: &[(String, String)], now: u32) {
        let before = self.clone();
        for (field, value) in fields {
            if self.fields.get(field) != Some(value) {
                self.lose(field, Some(writer));
                self.fields.insert(field.clone(), value.clone());
            }
        }
        let wanted: BTreeSet<String> = fields.iter().map(|(field, _)| field.clone()).collect();
        let had = self.books.remove(writer).unwrap_or_default();
        for field in had.1.difference(&wanted) {
            if !self.books.values().any(|(_, fields)| fields.contains(field)) {
                self.fields.remove(field);
            }
        }
        let is_same = before.fields == self.fields && had.1 == wanted;
        self.books.insert(writer.clone(), (if is_same { had.0 } else { now }, wanted));
    }

    fn take_over(&mut self, manager: &str) {
        let of_kubectl: Vec<Writer> =
            self.books.keys().filter(|(name, _, _)| name.starts_with("kubectl")).cloned().collect();
        let fields: Vec<String> =
            of_kubectl.iter().filter_map(|writer| self.books.remove(writer)).flat_map(|(_, fields)| fields).collect();
        let (_, own) = self.books.get_mut(&(manager.to_owned(), "Apply", "")).unwrap();
        own.extend(fields);
    }

    fn json(&self, label: Option<&str>) -> Value {
        let mut object = manifest(self.fields.iter().map(|(field, value)| (field.as_str(), value.as_str())));
        object["metadata"]["uid"] = format!("u-{}", self.uid).into();
        object["metadata"]["creationTimestamp"] = stamp(self.created).into();
        if let Some(label) = label {
            object["metadata"]["labels"]["app.kubernetes.io/instance"] = label.into();
        }
        let managed = self.books.iter().map(|((manager, operation, subresource), (time, fields))| {
            let mut sets = json!({});
            for field in fields {
                let mut at = &mut sets;
                for key in keys(field) {
                    at = &mut at[key];
                }
                *at = json!({});
                if ["image", "args", "policy", "env"].contains(&field.as_str()) {
                    let element = keys(field)[..5].iter().fold(&mut sets, |at, key| &mut at[key]);
                    element["."] = json!({});
                    element["f:name"] = json!({});
                }
            }
            let mut entry = json!({"manager": manager, "operation": operation, "apiVersion": "apps/v1", "time": stamp(*time), "fieldsType": "FieldsV1", "fieldsV1": sets});
            if !subresource.is_empty() {
                entry["subresource"] = (*subresource).into();
            }
            entry
        });
        object["metadata"]["managedFields"] = managed.collect();
        object
    }
}

impl Cluster {
    /// Opens a journal; nothing is listed yet if the story begins blind.
    pub(super) async fn begin(dir: &std::path::Path, is_blind: bool) -> (Self, impl Future<Output = ()> + use<>) {
        let simulation = runtime::simulate(1, BEGIN.parse().unwrap());
        let (journal, writing) = Journal::inline(dir, |_| Ok(())).unwrap();
        let cluster = Self {
            journal,
            simulation,
            sources: BTreeMap::new(),
            object: None,
            label: None,
            version: 100,
            uids: 0,
            now: 0,
            is_blind,
            is_listed: !is_blind,
            ignore: Vec::new(),
        };
        (cluster, async move { writing.await.unwrap() })
    }

    pub(super) async fn watch(&mut self) {
        self.journal.set_cluster(Named { name: "test".into(), uid: "c1".into() }).await.unwrap();
        for (plural, group, kind) in [
            ("deployments", "apps", "Deployment"),
            ("applications", "argoproj.io", "Application"),
            ("horizontalpodautoscalers", "autoscaling", "HorizontalPodAutoscaler"),
        ] {
            let resource = Resource {
                group: group.into(),
                version: "v1".into(),
                kind: kind.into(),
                plural: plural.into(),
                singular: kind.to_lowercase(),
                short_names: Vec::new(),
                namespaced: true,
            };
            let spec = SourceSpec { ignore: self.ignore.clone(), ..SourceSpec::of(resource) };
            let (source, _) = self.journal.source(&spec).await.unwrap();
            if plural != "deployments" || self.is_listed {
                source.list_begin().await.unwrap();
                source.list_done(ResourceVersion::new("100"), None).await.unwrap();
            }
            self.sources.insert(plural, source);
        }
    }

    fn observe(&mut self, object: &Value) -> Observed {
        self.version += 1;
        let mut object = object.clone();
        // What is redacted leaves a digest.
        let Some(token) = object.pointer_mut("/spec/token").map(|token| std::mem::replace(token, json!("***"))) else {
            return Observed::at(self.version, &object, &[], [0; 16]);
        };
        Observed::at(self.version, &object, &["/spec/token"], [token.to_string().as_bytes()[1]; 16])
    }

    async fn tell(&mut self, source: &str, verb: Verb, object: &Value) {
        let object = self.observe(object);
        self.sources[source].catch_up().await.unwrap();
        self.sources[source].append(vec![WatchChange { verb, object }]).await.unwrap();
        self.journal.flush().await.unwrap();
    }

    /// The clock shows this many seconds.
    pub(super) fn at(&mut self, seconds: u32) {
        self.simulation.jump(time(seconds).duration_since(runtime::now()));
        self.now = seconds;
    }

    /// Writes the object by a function; what it does not change is no write.
    async fn write(&mut self, edit: impl FnOnce(&mut Deployment, u32)) {
        let now = self.now;
        let before = self.object.clone();
        let mut object = before.clone().unwrap_or_else(|| {
            self.uids += 1;
            Deployment { uid: self.uids, created: now, ..Deployment::default() }
        });
        edit(&mut object, now);
        let is_same = before.as_ref().is_some_and(|one| (&one.fields, &one.books) == (&object.fields, &object.books));
        let json = object.json(self.label);
        self.object = Some(object);
        if !self.is_blind && !is_same {
            self.tell("deployments", Verb::Upsert, &json).await;
        }
    }

    /// Does one step.
    pub(super) async fn run(&mut self, step: Do) {
        let own = |fields: &Pairs| -> Vec<(String, String)> {
            fields.iter().map(|(field, value)| ((*field).to_owned(), (*value).to_owned())).collect()
        };
        let is_tracked = self.label.is_none();
        let mark = move |manager: &str, mut fields: Vec<(String, String)>| {
            if manager.starts_with("argocd") && is_tracked {
                fields.push(("mark".to_owned(), "store:apps/Deployment:shop/cart".to_owned()));
            }
            fields
        };
        match step {
            Do::Sync(manager, fields) => {
                let note = manifest(fields.iter().copied()).to_string();
                let mut fields = mark(manager, own(&fields));
                let writer = (manager.to_owned(), "Update", "");
                self.write(move |object, now| {
                    let kept: Vec<&String> = fields.iter().map(|(field, _)| field).collect();
                    let had: Vec<String> =
                        object.books.get(&writer).map(|(_, had)| had.iter().cloned().collect()).unwrap_or_default();
                    let gone =
                        had.into_iter().filter(|field| !kept.contains(&field) && field != "note" && field != "mark");
                    let gone: Vec<(String, String)> = gone.map(|field| (field, String::new())).collect();
                    fields.extend(gone);
                    fields.push(("note".to_owned(), note));
                    object.update(&writer, &fields, now);
                })
                .await;
            }
            Do::Apply(manager, fields) => {
                let (fields, writer) = (mark(manager, own(&fields)), (manager.to_owned(), "Apply", ""));
                self.write(move |object, now| object.apply(&writer, &fields, now)).await;
            }
            Do::Update(manager, fields) | Do::EditAll(manager, fields) => {
                let (fields, writer) = (own(&fields), (manager.to_owned(), "Update", ""));
                self.write(move |object, now| object.update(&writer, &fields, now)).await;
            }
            Do::Edit(manager, field, value) => {
                let fields = [(field.to_owned(), value.to_owned())];
                let writer = (manager.to_owned(), "Update", if field == "ready" { "status" } else { "" });
                self.write(move |object, now| object.update(&writer, &fields, now)).await;
            }
            Do::Scale(manager, value) => {
                let (fields, writer) =
                    ([("replicas".to_owned(), value.to_owned())], (manager.to_owned(), "Update", "scale"));
                self.write(move |object, now| {
                    object.update(&writer, &fields, now);
                    if value == "0" {
                        object.lose("replicas", None);
                    }
                })
                .await;
            }
            Do::Default(field, value) => {
                self.write(|object, _| drop(object.fields.insert(field.to_owned(), value.to_owned()))).await;
            }
            Do::TakeOver(manager) => self.write(move |object, _| object.take_over(manager)).await,
            Do::Clear => self.write(|object, _| object.books.clear()).await,
            Do::Label(label) => self.label = Some(label),
            Do::Put(source, object) => self.tell(source, Verb::Upsert, &object).await,
            Do::Delete => {
                let json = self.object.take().unwrap().json(self.label);
                if !self.is_blind {
                    self.tell("deployments", Verb::Delete, &json).await;
                }
            }
            Do::Actor(user, agent) => self.attribute(user, agent).await,
            Do::Blind => self.is_blind = true,
            Do::Relist => self.relist().await,
            Do::Wait | Do::Ignore(_) => {}
        }
    }

    async fn attribute(&mut self, user: &str, agent: &str) {
        let head = self.journal.reader().unwrap().head().unwrap();
        let actor = Sent {
            sender: Sender { user: user.to_owned(), agent: agent.to_owned(), ..Sender::default() },
            verb: "patch".to_owned(),
            subresource: String::new(),
            audit_ids: Vec::new(),
            certainty: "exact".to_owned(),
        };
        let actors = vec![(head, actor)];
        self.journal
            .attribute(Attribution { actors, upto: Seq(head.0), needed_since: 0, ..Attribution::default() })
            .await
            .unwrap();
    }

    async fn relist(&mut self) {
        let json = self.object.as_ref().map(|object| object.json(self.label));
        let objects: Vec<Observed> = json.iter().map(|json| self.observe(json)).collect();
        self.version += 1;
        let source = self.sources["deployments"].clone();
        source.list_begin().await.unwrap();
        source.list_page(objects).await.unwrap();
        let why = Some(Why::Expired).filter(|_| self.is_listed);
        source.list_done(ResourceVersion::new(self.version.to_string()), why).await.unwrap();
        self.journal.flush().await.unwrap();
        (self.is_listed, self.is_blind) = (true, false);
    }
}

/// Plays a script, and asks a question an hour after it began.
pub(super) async fn played(script: Vec<(u32, Do)>, question: Drifting) -> (Drifted, Vec<String>) {
    let dir = tempfile::tempdir().unwrap();
    let is_blind = matches!(script.first(), Some((_, Do::Blind)));
    let (mut cluster, writing) = Cluster::begin(dir.path(), is_blind).await;
    if let Some((_, Do::Ignore(fields))) = script.first() {
        cluster.ignore = vec![(*fields).to_owned()];
    }
    let scripted = async move {
        cluster.watch().await;
        for (at, step) in script {
            cluster.at(at);
            cluster.run(step).await;
        }
    };
    tokio::join!(writing, scripted);
    ask(dir.path(), question)
}

/// Asks a question of a journal.
pub(super) fn ask(dir: &std::path::Path, question: Drifting) -> (Drifted, Vec<String>) {
    let notes = Mutex::new(Vec::new());
    let note = |text: &str| notes.lock().unwrap().push(text.to_owned());
    let clock = Clock { now: time(3600), zone: TimeZone::UTC };
    let log = Log::new(dir.to_owned(), Sight::All, clock, &note, &|| false);
    let mut found = None;
    question
        .answer(&log, &mut |item| {
            found = Some(item);
            Ok(())
        })
        .unwrap();
    (found.unwrap(), notes.into_inner().unwrap())
}
