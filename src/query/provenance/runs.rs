//! Runs of a delivery tool, as the versions of the object that drives it say them.

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{CUT_MAX, SKEW_MAX, Tool, text};

/// A version of an object that drives a tool, or null from where on nothing is known of it.
#[derive(Debug)]
pub(crate) struct Version {
    pub(crate) seq: u64,
    /// Time at which it was journaled.
    pub(crate) time: Timestamp,
    pub(crate) object: Value,
}

/// One run of a tool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Run {
    /// The commit or the version of the chart; empty where it is not said.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) revision: String,
    /// The commit from which an artifact was built.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) origin_revision: String,
    pub(crate) from: Timestamp,
    /// Absent where it is not known to have ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) to: Option<Timestamp>,
    /// The user who started it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) started_by: String,
    /// True if the tool started it itself.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) automated: bool,
    /// Sequence number of the entry that says so.
    pub(crate) seq: u64,
}

impl Run {
    /// Reports whether a write between two times can be of this run, as far as its own times say.
    pub(crate) fn has(&self, earliest: Timestamp, latest: Timestamp) -> bool {
        self.overlaps(earliest, latest, SignedDuration::ZERO)
    }

    /// Reports whether a write between two times can be of this run, also where clocks differ.
    pub(crate) fn covers(&self, earliest: Timestamp, latest: Timestamp) -> bool {
        self.overlaps(earliest, latest, SKEW_MAX)
    }

    fn overlaps(&self, earliest: Timestamp, latest: Timestamp, skew: SignedDuration) -> bool {
        let from = self.from.checked_sub(skew).unwrap_or(self.from);
        let to = self.to.map_or(Timestamp::MAX, |to| to.checked_add(skew + CUT_MAX).unwrap_or(to));
        from <= latest && earliest <= to
    }

    fn of(version: &Version, from: Timestamp) -> Self {
        Self {
            revision: String::new(),
            origin_revision: String::new(),
            from,
            to: None,
            started_by: String::new(),
            automated: false,
            seq: version.seq,
        }
    }
}

/// Returns the runs that the versions of one object say, oldest first. The versions are in their order; those of a Helm release
/// are of its Secrets.
pub(crate) fn runs(tool: Tool, versions: &[Version]) -> Vec<Run> {
    let mut runs = match tool {
        Tool::ArgoCd => argo(versions),
        Tool::Kustomization => kustomization(versions),
        Tool::HelmRelease => helm_release(versions),
        Tool::Helm => helm(versions),
        Tool::Autoscaler => Vec::new(),
    };
    runs.sort_by_key(|run| run.from);
    // One object has one run at a time: what never said its end ended before the next began. What may have been applied to a
    // Kustomization without a history overlaps.
    let is_serial = tool != Tool::Kustomization;
    for at in (1..runs.len()).filter(|_| is_serial) {
        let next = runs[at].from;
        let before = &mut runs[at - 1];
        if before.from < next && before.to.is_none_or(|to| to > next) {
            before.to = Some(next);
        }
    }
    // Nothing goes on in what is gone. Secrets of a release go one by one.
    for run in runs.iter_mut().filter(|run| run.to.is_none() && tool != Tool::Helm) {
        let gone = versions.iter().find(|version| version.object.is_null() && version.time >= run.from);
        run.to = gone.map(|version| version.time);
    }
    runs
}

fn at<'v>(object: &'v Value, path: &[&str]) -> Option<&'v Value> {
    path.iter().try_fold(object, |at, name| at.get(name))
}

fn time(object: &Value, path: &[&str]) -> Option<Timestamp> {
    text(object, path)?.parse().ok()
}

fn list<'v>(object: &'v Value, path: &[&str]) -> impl Iterator<Item = &'v Value> {
    at(object, path).and_then(Value::as_array).into_iter().flatten()
}

/// The revision of a result, or the revisions of one with several sources.
fn revision(of: &Value) -> String {
    let several: Vec<&str> = list(of, &["revisions"]).filter_map(Value::as_str).filter(|one| !one.is_empty()).collect();
    if several.is_empty() { text(of, &["revision"]).unwrap_or_default().to_owned() } else { several.join(", ") }
}

/// One operation of an Application.
struct Operation {
    run: Run,
    /// Its place in the history: the id and the start.
    past: Option<(i64, Timestamp)>,
    /// True if the state of operations said its end.
    is_over: bool,
}

impl Operation {
    /// Takes what another version says of it.
    fn learn(&mut self, run: Run) {
        let known = &mut self.run;
        if known.revision.is_empty() {
            known.revision = run.revision;
        }
        if known.to.is_none() && run.to.is_some() {
            (known.to, known.seq) = (run.to, run.seq);
        }
        if known.started_by.is_empty() && !known.automated {
            (known.started_by, known.automated) = (run.started_by, run.automated);
        }
    }

    fn can_be(&self, run: &Run) -> bool {
        let is_revision = |one: &str, other: &str| one.is_empty() || other.is_empty() || one == other;
        self.run.from == run.from && is_revision(&self.run.revision, &run.revision)
    }
}

/// Fills in who started a run. Both a user and the tool itself are what a merge patch leaves of two operations, which says nothing.
fn started(run: Run, by: Option<&Value>) -> Run {
    let user = by.and_then(|by| text(by, &["username"])).unwrap_or_default();
    let automated = by.and_then(|by| by.get("automated")).and_then(Value::as_bool).unwrap_or(false);
    if automated && !user.is_empty() {
        return run;
    }
    Run { started_by: user.to_owned(), automated, ..run }
}

/// The operations of an Application. One whose revision changed on the way is as many as it has.
///
/// The controller writes the state of an operation as a merge patch over that of the one before (`setOperationState`). Of the one
/// before stay the result, until there is a new one, and whatever the new operation leaves out. So the operation under way is taken
/// from `operation`, which is written as a whole, and a result that was there at the start says nothing until the end.
fn argo(versions: &[Version]) -> Vec<Run> {
    let mut all: Vec<Operation> = Vec::new();
    let mut before: Option<Option<&Value>> = None;
    let (mut current, mut left) = (None, None);
    for version in versions {
        for past in list(&version.object, &["status", "history"]) {
            let Some(from) = time(past, &["deployStartedAt"]) else { continue };
            let place = Some((past.get("id").and_then(Value::as_i64).unwrap_or_default(), from));
            if all.iter().any(|one| one.past == place) {
                continue;
            }
            let run = Run { revision: revision(past), to: time(past, &["deployedAt"]), ..Run::of(version, from) };
            let run = started(run, past.get("initiatedBy"));
            match all.iter_mut().rev().find(|one| one.past.is_none() && one.can_be(&run)) {
                Some(known) => {
                    known.learn(run);
                    known.past = place;
                }
                None => all.push(Operation { run, past: place, is_over: false }),
            }
        }
        let state = at(&version.object, &["status", "operationState"]);
        let result = state.and_then(|state| state.get("syncResult"));
        let from = state.and_then(|state| time(state, &["startedAt"]));
        if current != from {
            (current, left) = (from, before.unwrap_or(result));
        }
        before = Some(result);
        let Some((state, from)) = state.zip(from) else { continue };
        let to = time(state, &["finishedAt"]);
        let whole = version.object.get("operation").filter(|operation| to.is_none() && operation.is_object());
        let Some(operation) = whole.or_else(|| state.get("operation")) else { continue };
        let is_dry = at(operation, &["sync", "dryRun"]).and_then(Value::as_bool) == Some(true);
        if is_dry && (whole.is_some() || !all.iter().any(|one| one.run.from == from)) {
            continue;
        }
        let result = result.filter(|_| to.is_some() || result != left);
        let run = Run { revision: result.map(revision).unwrap_or_default(), to, ..Run::of(version, from) };
        let run = started(run, operation.get("initiatedBy"));
        let is = |one: &&mut Operation| one.can_be(&run) && (!one.is_over || run.to.is_some());
        match all.iter_mut().rev().find(is) {
            Some(known) => {
                known.is_over |= run.to.is_some();
                known.learn(run);
            }
            None => all.push(Operation { past: None, is_over: run.to.is_some(), run }),
        }
    }
    all.into_iter().map(|one| one.run).collect()
}

/// The reconciliations of a Kustomization: those in its history, and one under way. Before Flux 2.7 there is no history; then
/// any revision that was tried or applied around a time can have been applied then.
fn kustomization(versions: &[Version]) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    let mut under_way: Option<Run> = None;
    for version in versions {
        for past in list(&version.object, &["status", "history"]) {
            let took = text(past, &["lastReconciledDuration"]).and_then(|text| text.parse::<SignedDuration>().ok());
            let Some((to, took)) = time(past, &["lastReconciled"]).zip(took) else { continue };
            let of = |name: &str| text(past, &["metadata", name]).unwrap_or_default().to_owned();
            let run = Run {
                revision: of("revision"),
                origin_revision: of("originRevision"),
                to: Some(to),
                ..Run::of(version, to.checked_sub(took).unwrap_or(to))
            };
            if !runs.iter().any(|known| (known.from, known.to, &known.revision) == (run.from, run.to, &run.revision)) {
                runs.push(run);
            }
        }
        let is_over = |open: &Run| runs.iter().any(|run| run.to.is_some_and(|to| to >= open.from));
        let now = progress(version);
        if under_way.as_ref().map(|open| &open.revision) != now.as_ref().map(|now| &now.revision) {
            // One that failed early is in no history.
            let ended = std::mem::replace(&mut under_way, now).filter(|open| !is_over(open));
            runs.extend(ended.map(|run| Run { to: Some(version.time), ..run }));
        }
    }
    runs.extend(under_way);
    let has_history = versions.iter().any(|version| list(&version.object, &["status", "history"]).next().is_some());
    let has_applied =
        versions.iter().any(|version| text(&version.object, &["status", "lastAppliedRevision"]).is_some());
    if has_history || !has_applied { runs } else { between(versions) }
}

/// The reconciliation that a version says is under way: `Detecting drift for revision main@sha1:… with a timeout of 5m`.
fn progress(version: &Version) -> Option<Run> {
    let is = |one: &&Value| text(one, &["type"]) == Some("Reconciling") && text(one, &["status"]) == Some("True");
    let condition = list(&version.object, &["status", "conditions"]).find(is)?;
    let (_, rest) = text(condition, &["message"])?.split_once(" for revision ")?;
    let revision = rest.split(' ').next()?.to_owned();
    Some(Run { revision, ..Run::of(version, time(condition, &["lastTransitionTime"])?) })
}

/// Between two versions of a Kustomization without a history every revision that one of them has can have been applied.
fn between(versions: &[Version]) -> Vec<Run> {
    let of = |version: &Version, name: &str| text(&version.object, &["status", name]).map(str::to_owned);
    let mut runs = Vec::new();
    for (at, version) in versions.iter().enumerate() {
        let next = versions.get(at + 1);
        let mut revisions: Vec<(String, String)> = Vec::new();
        for one in [Some(version), next].into_iter().flatten() {
            let origin = of(one, "lastAppliedOriginRevision").unwrap_or_default();
            let applied = of(one, "lastAppliedRevision").map(|revision| (revision, origin));
            let tried = of(one, "lastAttemptedRevision").map(|revision| (revision, String::new()));
            for (revision, origin) in applied.into_iter().chain(tried) {
                if !revisions.iter().any(|(known, _)| *known == revision) {
                    revisions.push((revision, origin));
                }
            }
        }
        let seq = next.unwrap_or(version).seq;
        runs.extend(revisions.into_iter().map(|(revision, origin_revision)| Run {
            revision,
            origin_revision,
            to: next.map(|next| next.time),
            seq,
            ..Run::of(version, version.time)
        }));
    }
    join(runs)
}

/// Puts together what follows each other with the same revision.
fn join(runs: Vec<Run>) -> Vec<Run> {
    let mut joined: Vec<Run> = Vec::new();
    for run in runs {
        let before = joined.iter_mut().find(|known| known.revision == run.revision && known.to == Some(run.from));
        match before {
            Some(known) => {
                (known.to, known.seq) = (run.to, run.seq);
                if known.origin_revision.is_empty() {
                    known.origin_revision = run.origin_revision;
                }
            }
            None => joined.push(run),
        }
    }
    joined
}

/// The releases that a HelmRelease made: each begins when Helm says, and ended when the HelmRelease first said how.
fn helm_release(versions: &[Version]) -> Vec<Run> {
    let mut runs: Vec<(i64, Run)> = Vec::new();
    for version in versions {
        for past in list(&version.object, &["status", "history"]) {
            let Some(number) = past.get("version").and_then(Value::as_i64) else { continue };
            let Some(from) = time(past, &["lastDeployed"]) else { continue };
            let is_over = !text(past, &["status"]).unwrap_or_default().starts_with("pending");
            let of = |name: &str| text(past, &[name]).unwrap_or_default();
            let to = is_over.then_some(version.time);
            match runs.iter_mut().find(|(known, run)| *known == number && run.from == from) {
                Some((_, run)) if run.to.is_none() => run.to = to,
                Some(_) => {}
                None => {
                    let revision = format!("{}@{}", of("chartName"), of("chartVersion"));
                    runs.push((number, Run { revision, to, ..Run::of(version, from) }));
                }
            }
        }
    }
    runs.into_iter().map(|(_, run)| run).collect()
}

/// The revisions of a release: each begins with its Secret, and ended when the Secret first said how.
fn helm(versions: &[Version]) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    for version in versions {
        let label = |name: &str| text(&version.object, &["metadata", "labels", name]);
        let Some(from) = time(&version.object, &["metadata", "creationTimestamp"]) else { continue };
        let Some(number) = label("version") else { continue };
        let is_over = matches!(label("status"), Some("deployed" | "failed"));
        let modified = label("modifiedAt").and_then(|text| text.parse().ok());
        let to = modified.filter(|_| is_over).and_then(|seconds| Timestamp::from_second(seconds).ok());
        let revision = format!("revision {number}");
        match runs.iter_mut().find(|run| run.from == from && run.revision == revision) {
            Some(run) if run.to.is_none() => (run.to, run.seq) = (to, version.seq),
            Some(_) => {}
            None => runs.push(Run { revision, to, ..Run::of(version, from) }),
        }
    }
    runs
}
