//! Provenance of a write: the tool behind a manager, the object that drives the tool, and the run in which it wrote.
//!
//! A delivery tool leaves three traces. It names its manager in managedFields; it marks what it applies with an annotation
//! or labels; and the object that drives it says when it ran, with which revision, and who started that. [`claim`] reads the
//! first two off a write, [`runs`] the third off the versions of the driving object, and [`settle`] joins them by time.
//!
//! It knows neither the journal nor a terminal.
//!
//! # Decision: a name is given only where nothing else is possible
//!
//! Context: runs say their times to the second, by the clock of the controller, and the API server dates a write to the second.
//! Decision: A run made a write if it had begun and not ended by then, and no other run, of any object that may have driven
//! the write, comes nearer than a second. Else the answer names all that are so near and chooses none, or says that none is.
//! Cost: Runs that follow each other within two seconds are ambiguous, also where one of them is the likelier.

mod runs;
#[cfg(test)]
mod tests;
pub(crate) mod words;

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::Word;
use crate::core::k8s::managed_fields::{By, Manager};
use crate::query::render::blame::Set;
pub(crate) use runs::{Run, Version, runs};

/// Difference that the clocks of a controller and of the API server may have.
pub(crate) const SKEW_MAX: SignedDuration = SignedDuration::from_secs(1);
/// The part of a second that a stamp leaves out.
const CUT_MAX: SignedDuration = SignedDuration::from_micros(999_999);
/// Delay of a change up to which it counts as journaled at once.
const LATE_MAX: SignedDuration = SignedDuration::from_secs(2);

/// Tool that writes what an object or a person tells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Tool {
    ArgoCd,
    Kustomization,
    HelmRelease,
    Helm,
    Autoscaler,
}

impl Tool {
    /// Returns the full name of the resource of the objects that drive it.
    pub(crate) const fn resource(self) -> &'static str {
        match self {
            Self::ArgoCd => "applications.argoproj.io",
            Self::Kustomization => "kustomizations.kustomize.toolkit.fluxcd.io",
            Self::HelmRelease => "helmreleases.helm.toolkit.fluxcd.io",
            Self::Helm => "secrets",
            Self::Autoscaler => "horizontalpodautoscalers.autoscaling",
        }
    }

    /// Returns the kind of what drives it. A Helm release is no object, and its Secrets have its state.
    pub(crate) const fn kind(self) -> &'static str {
        match self {
            Self::ArgoCd => "Application",
            Self::Kustomization => "Kustomization",
            Self::HelmRelease => "HelmRelease",
            Self::Helm => "Helm release",
            Self::Autoscaler => "HorizontalPodAutoscaler",
        }
    }

    /// Returns its name for one run.
    pub(crate) const fn run(self) -> &'static str {
        match self {
            Self::ArgoCd => "sync",
            Self::Kustomization | Self::HelmRelease => "reconciliation",
            Self::Helm => "release",
            Self::Autoscaler => "scaling",
        }
    }
}

/// A write of one field.
#[derive(Debug)]
pub(crate) struct Write<'w> {
    pub(crate) group: &'w str,
    pub(crate) kind: &'w str,
    pub(crate) namespace: &'w str,
    pub(crate) name: &'w str,
    /// JSON pointer to the field.
    pub(crate) path: &'w str,
    /// Those who may have made it.
    pub(crate) managers: &'w [Manager],
    /// The reason why they are none.
    pub(crate) unnamed: Option<&'w str>,
    /// The user who sent it, as the audit log has it, where they are none.
    pub(crate) sender: Option<&'w str>,
    /// Bounds of its time, where it is the one write that set the field.
    pub(crate) time: Option<(Timestamp, Timestamp)>,
    /// The object right after it.
    pub(crate) object: &'w Value,
}

/// Returns the bounds of the time of a write, given who made it and the time of its entry; none where the field may have been
/// set by an older one, or later.
pub(crate) fn bounds(managers: &[Manager], set: Set, time: &str) -> Option<(Timestamp, Timestamp)> {
    let read = |text: &str| text.parse::<Timestamp>().ok();
    let [manager] = managers else { return None };
    if set != Set::At {
        return None;
    }
    let seen = read(time)?;
    // What the API server stamped is the time of the write itself. That of an owner is the time of an earlier write, unless both
    // are of one second.
    let stamp = manager.time.as_deref().and_then(read);
    let is_stamp = |stamp: &Timestamp| manager.by != Some(By::Owner) || seen.duration_since(*stamp).abs() <= LATE_MAX;
    let (earliest, latest) = match stamp {
        Some(_) => stamp.filter(is_stamp).map(|stamp| (stamp, stamp))?,
        None if manager.by == Some(By::Owner) => return None,
        None => (seen.checked_sub(LATE_MAX).ok()?, seen),
    };
    Some((earliest, latest.checked_add(CUT_MAX).ok()?))
}

/// An object that drives a tool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Driver {
    /// Absent if it may be in any.
    pub(crate) namespace: Option<String>,
    pub(crate) name: String,
    /// True if nothing but a label that others use too names it, so that it has to list the object itself.
    pub(crate) has_to_list: bool,
}

/// What a write itself says of its provenance.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Claim {
    /// A tool made it, driven by one of these.
    Tool(Tool, Vec<Driver>),
    /// Nobody further is known.
    Ends(Ends),
}

/// The reason why a chain goes no further.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Ends {
    /// commit, metrics, nobody, several, clocks, program, person, old, untracked, unrecorded, missing, no-run or owner.
    pub(crate) reason: Word,
    /// A sentence.
    pub(crate) text: String,
    /// True if the audit log may have more, which the sentence does not say yet.
    #[serde(skip)]
    goes_on: bool,
}

impl Ends {
    pub(crate) fn at(reason: &'static str, text: impl Into<String>) -> Self {
        Self { reason: reason.into(), text: text.into(), goes_on: false }
    }

    /// An end beyond which the audit log may have the sender.
    fn before_sender(reason: &'static str, text: impl Into<String>) -> Self {
        Self { goes_on: true, ..Self::at(reason, text) }
    }

    /// Adds what the audit log has, where it may have more.
    pub(crate) fn add_sender(&mut self, beyond: &str) {
        if std::mem::take(&mut self.goes_on) {
            self.text.push_str(&format!("; {beyond}"));
        }
    }
}

/// Knowledge of the run that made a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Certainty {
    /// One run made it.
    Known,
    /// One of several made it.
    Ambiguous,
    /// The object behind it is known, the run is not.
    Driver,
    /// Nobody behind the manager is known.
    None,
}

/// An object that drives a tool, and the run in which it made a write.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Candidate {
    pub(crate) tool: Tool,
    pub(crate) kind: Word,
    pub(crate) namespace: String,
    pub(crate) name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) run: Option<Run>,
}

/// Where a write comes from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Provenance {
    pub(crate) certainty: Certainty,
    pub(crate) candidates: Vec<Candidate>,
    pub(crate) ends: Ends,
}

impl Provenance {
    pub(crate) fn none(ends: Ends) -> Self {
        Self { certainty: Certainty::None, candidates: Vec::new(), ends }
    }

    /// A driver of which the run is not known.
    pub(crate) fn driven(tool: Tool, drivers: &[(String, String)], ends: Ends) -> Self {
        let one = |(namespace, name): &(String, String)| Candidate {
            tool,
            kind: tool.kind().into(),
            namespace: namespace.clone(),
            name: name.clone(),
            run: None,
        };
        let certainty = if drivers.len() > 1 { Certainty::Ambiguous } else { Certainty::Driver };
        Self { certainty, candidates: drivers.iter().map(one).collect(), ends }
    }
}

/// The user as whom the controller of HorizontalPodAutoscalers writes.
const AUTOSCALER: &str = "system:serviceaccount:kube-system:horizontal-pod-autoscaler";
const TRACKING: &str = "argocd.argoproj.io/tracking-id";
/// Labels that Argo CD may be set up to track by; others use the second.
const INSTANCE: [&str; 2] = ["argocd.argoproj.io/instance", "app.kubernetes.io/instance"];

/// Reads off a write which tool made it, driven by which object.
pub(crate) fn claim(write: &Write<'_>) -> Claim {
    let names: BTreeSet<&str> = write.managers.iter().map(|one| one.manager.as_str()).collect();
    let mut names_left = names.iter();
    let (Some(&name), None) = (names_left.next(), names_left.next()) else {
        return if names.is_empty() { unnamed(write) } else { several(names) };
    };
    let is_scaling = write.managers.iter().any(|one| one.subresource.as_deref() == Some("scale"));
    match name {
        "argocd-controller" | "argocd-application-controller" => argo(write),
        "kustomize-controller" => flux(write, Tool::Kustomization, "kustomize.toolkit.fluxcd.io"),
        "helm-controller" => flux(write, Tool::HelmRelease, "helm.toolkit.fluxcd.io"),
        "helm" => {
            let of =
                |what: &str| text(write.object, &["metadata", "annotations", &format!("meta.helm.sh/release-{what}")]);
            match of("name") {
                Some(release) => driven(Tool::Helm, of("namespace").unwrap_or(write.namespace), release),
                None => untracked("helm", "an annotation meta.helm.sh/release-name"),
            }
        }
        "kube-controller-manager" if is_scaling && write.path == "/spec/replicas" => {
            Claim::Tool(Tool::Autoscaler, Vec::new())
        }
        "argocd-server" => Claim::Ends(Ends::at(
            "person",
            "somebody used Argo CD's page, command line or API; the log of argocd-server has who that was",
        )),
        _ if name.starts_with("kubectl") => Claim::Ends(Ends::before_sender("person", "somebody used kubectl")),
        "keda" | "keda-operator" => program("KEDA scales between 0 and 1 by itself, as its ScaledObject says"),
        "cluster-autoscaler" => program("the cluster autoscaler decides by the Pods that wait for room"),
        "vpa-recommender" | "vpa-updater" | "vpa-admission-controller" => {
            program("the vertical Pod autoscaler decides by what Pods used")
        }
        _ => Claim::Ends(Ends::before_sender("program", format!("{name} does not record for whom it writes"))),
    }
}

/// A write of which managedFields say nobody. An autoscaler leaves no owner where nobody owned the replicas, as where the manifest
/// leaves them to it.
fn unnamed(write: &Write<'_>) -> Claim {
    if write.sender == Some(AUTOSCALER) && write.path == "/spec/replicas" {
        return Claim::Tool(Tool::Autoscaler, Vec::new());
    }
    let why =
        write.unnamed.map_or_else(|| "managedFields name nobody".to_owned(), |why| format!("nobody is named ({why})"));
    Claim::Ends(Ends::before_sender("nobody", why))
}

fn several(names: BTreeSet<&str>) -> Claim {
    let names = names.into_iter().collect::<Vec<_>>().join(", ");
    Claim::Ends(Ends::at("several", format!("one of {names} set it, and managedFields do not say which")))
}

fn program(text: &str) -> Claim {
    Claim::Ends(Ends::at("program", text))
}

fn text<'v>(object: &'v Value, path: &[&str]) -> Option<&'v str> {
    path.iter().try_fold(object, |at, name| at.get(name))?.as_str().filter(|text| !text.is_empty())
}

fn driven(tool: Tool, namespace: &str, name: &str) -> Claim {
    let driver = Driver { namespace: Some(namespace.to_owned()), name: name.to_owned(), has_to_list: false };
    Claim::Tool(tool, vec![driver])
}

fn untracked(manager: &str, mark: &str) -> Claim {
    let text = format!("the object does not have {mark}, so it does not say for whom {manager} wrote");
    Claim::Ends(Ends::at("untracked", text))
}

fn flux(write: &Write<'_>, tool: Tool, group: &str) -> Claim {
    let label = |what: &str| text(write.object, &["metadata", "labels", &format!("{group}/{what}")]);
    match (label("namespace"), label("name")) {
        (Some(namespace), Some(name)) => driven(tool, namespace, name),
        _ => untracked("Flux", &format!("the labels {group}/name and {group}/namespace")),
    }
}

/// Returns the Application that tracks an object: by the annotation, which names the object too, else by a label.
fn argo(write: &Write<'_>) -> Claim {
    let named = |app: &str, has_to_list| {
        // `NAMESPACE_NAME` outside the namespace of Argo CD.
        let (namespace, name) = app.split_once('_').map_or((None, app), |(namespace, name)| (Some(namespace), name));
        Driver { namespace: namespace.map(str::to_owned), name: name.to_owned(), has_to_list }
    };
    if let Some(id) = text(write.object, &["metadata", "annotations", TRACKING]) {
        // APP:GROUP/KIND:NAMESPACE/NAME
        let mut parts = id.splitn(3, ':');
        let (app, kind, object) = (parts.next().unwrap_or_default(), parts.next(), parts.next());
        let is_kind = kind.and_then(|kind| kind.split_once('/')) == Some((write.group, write.kind));
        let is_object = object.and_then(|object| object.split_once('/')).is_some_and(|(namespace, name)| {
            // Of an object in no namespace it has the namespace of the Application's destination.
            name == write.name && (namespace == write.namespace || write.namespace.is_empty())
        });
        if app.is_empty() || !is_kind || !is_object {
            let text = format!("the annotation {TRACKING} names another object ({id}), so it was copied from that");
            return Claim::Ends(Ends::at("untracked", text));
        }
        return Claim::Tool(Tool::ArgoCd, vec![named(app, false)]);
    }
    let labels = INSTANCE.iter().filter_map(|label| text(write.object, &["metadata", "labels", label]));
    let drivers: Vec<Driver> = labels.map(|app| named(app, true)).collect();
    if drivers.is_empty() {
        return untracked("Argo CD", &format!("an annotation {TRACKING}, or a label {}", INSTANCE[1]));
    }
    Claim::Tool(Tool::ArgoCd, drivers)
}

/// Reports whether an Application lists an object among its resources.
pub(crate) fn lists(application: &Value, write: &Write<'_>) -> bool {
    let of = |path: &[&str]| path.iter().try_fold(application, |at, name| at.get(name)).and_then(Value::as_array);
    let known =
        of(&["status", "resources"]).into_iter().chain(of(&["status", "operationState", "syncResult", "resources"]));
    let is = |one: &Value, name: &str, value: &str| one.get(name).and_then(Value::as_str).unwrap_or_default() == value;
    known.flatten().any(|one| {
        is(one, "group", write.group)
            && is(one, "kind", write.kind)
            && is(one, "name", write.name)
            && (write.namespace.is_empty() || is(one, "namespace", write.namespace))
    })
}

/// A driver, as the log has it.
#[derive(Debug)]
pub(crate) struct Known {
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) runs: Vec<Run>,
}

/// Finds the run that made a write, among all runs of every driver that it can be of. There is a driver at least.
pub(crate) fn settle(tool: Tool, known: &[Known], write: &Write<'_>) -> Provenance {
    let drivers: Vec<(String, String)> = known.iter().map(|one| (one.namespace.clone(), one.name.clone())).collect();
    let Some((earliest, latest)) = write.time else {
        let text = format!("the log has not the one write that set it, so the {} is not known", tool.run());
        return Provenance::driven(tool, &drivers, Ends::at("old", text));
    };
    let mut candidates = Vec::new();
    for one in known {
        for run in one.runs.iter().filter(|run| run.covers(earliest, latest)) {
            candidates.push(Candidate {
                tool,
                kind: tool.kind().into(),
                namespace: one.namespace.clone(),
                name: one.name.clone(),
                run: Some(run.clone()),
            });
        }
    }
    let [one] = &candidates[..] else {
        if candidates.is_empty() {
            let text = format!("the log has no {} of it at that time", tool.run());
            return Provenance::driven(tool, &drivers, Ends::at("no-run", text));
        }
        let text =
            format!("each of these was under way at that time, so the log does not say which {} it was", tool.run());
        return Provenance { certainty: Certainty::Ambiguous, ends: Ends::at("several", text), candidates };
    };
    if one.run.as_ref().is_some_and(|run| !run.has(earliest, latest)) {
        let text =
            format!("the {} and the write are a second apart, so the clocks would have to differ by that", tool.run());
        return Provenance { certainty: Certainty::Ambiguous, ends: Ends::at("clocks", text), candidates };
    }
    let revision = one.run.as_ref().is_some_and(|run| !run.revision.is_empty());
    let ends = if tool == Tool::Helm {
        Ends::at("person", "the release does not say who started it")
    } else if revision {
        Ends::at("commit", "the repository has the author of the revision")
    } else {
        Ends::at("no-run", format!("the {} does not say its revision", tool.run()))
    };
    Provenance { certainty: Certainty::Known, candidates, ends }
}
