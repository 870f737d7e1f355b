//! Five hundred syncs of Argo CD and Flux with their real definitions, of which it is known who made each write: the sender by the
//! audit log, the run behind it and the drifts are true, or the answer says that it does not know.

mod argo;
mod flux;
mod world;

use std::collections::{BTreeMap, HashMap};
use std::fs;

use futures::future::{join, join_all};
use serde_json::{Value, json};

use crate::decklog::Decklog;
use crate::harness::{Cluster, LIMIT, Parts, Version, until};
use argo::App;
use flux::Driver;
use world::{By, Cast, Drifted, Record, Truth, install, text};

/// Applications, Kustomizations and HelmReleases, and how often each syncs.
const DRIVERS: [usize; 3] = [60, 14, 10];
const ROUNDS: usize = 6;
const POLICY: &str = "apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived, ResponseStarted]
rules:
- level: None
  verbs: [get, list, watch]
- level: None
  resources: [{group: coordination.k8s.io, resources: [leases]}, {group: '', resources: [events, serviceaccounts/token]}]
- level: RequestResponse
";
const WATCH: &str = "resources = [\"configmaps\", \"secrets\", \"deployments.apps\", \"horizontalpodautoscalers.autoscaling\", \
    \"applications.argoproj.io\", \"kustomizations.kustomize.toolkit.fluxcd.io\", \"helmreleases.helm.toolkit.fluxcd.io\"]";

/// See the module.
pub async fn scenario(version: Version) {
    let place = tempfile::tempdir().unwrap();
    let file = |name: &str| place.path().join(name);
    fs::write(file("policy.yaml"), POLICY).unwrap();
    let arguments = [("policy-file", "policy.yaml"), ("log-path", "audit.log")]
        .map(|(key, name)| format!("--audit-{key}={}", file(name).display()));
    let cluster = Cluster::start_with(version, Parts::Bare, &[&arguments[0], &arguments[1]]).await;
    install(&cluster).await;
    let mut daemon = Decklog::new(&cluster, "calm", WATCH);
    daemon.has_metrics();
    daemon.configure(&format!("reading = true\n\n[[audit_log]]\nfile = {:?}\n", file("audit.log")));
    daemon.start();
    daemon.ready().await;
    let record = Record::default();
    let cast = Cast::new(&cluster, &record).await;
    let apps = join_all((0..DRIVERS[0]).map(|number| App::new(&cast, number).live(ROUNDS)));
    let of_flux = |count, is_helm| {
        let cast = &cast;
        join_all((0..count).map(move |number| Driver::new(cast, number, is_helm).live(ROUNDS)))
    };
    Box::pin(join(apps, join(of_flux(DRIVERS[1], false), of_flux(DRIVERS[2], true)))).await;
    attributed(&mut daemon).await;
    let entries: Vec<Value> =
        fs::read_to_string(daemon.log()).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let mut judged = Judged::default();
    let writes = std::mem::take(&mut *record.writes.lock().unwrap());
    let known = targets(&entries, &writes);
    for (entry, truth) in &known {
        judged.take(&daemon, entry, truth);
    }
    eprintln!("{:?}, {} entries, {} writes", judged.counts, entries.len(), writes.len());
    assert!(judged.wrong.is_empty(), "{} are wrong, such as {}", judged.wrong.len(), judged.wrong[0]);
    judged.is_enough();
    drifts(&daemon, &record.drifts.lock().unwrap());
    daemon.stop().await;
}

/// Waits until every entry has its sender or has none.
async fn attributed(daemon: &mut Decklog) {
    let mut last = 0;
    until("every sender", LIMIT, async || {
        daemon.must_run();
        let log = fs::read_to_string(daemon.log()).unwrap();
        let mut entries = log.lines().rev().map(|line| serde_json::from_str::<Value>(line).unwrap());
        let newest = entries.find(|entry| entry["type"] != "ACTOR").unwrap()["seq"].as_u64().unwrap();
        let status: Value = serde_json::from_slice(&daemon.command(&["status", "-o", "json"]).stdout).unwrap();
        let attributed = status["audit_logs"][0]["attributed"].as_u64().unwrap_or_default();
        // Nothing came meanwhile.
        let is_still = std::mem::replace(&mut last, newest) == newest;
        if attributed >= newest && is_still { Ok(()) } else { Err(format!("{attributed} of {newest}")) }
    })
    .await;
}

/// The entries of what is deployed, each with its truth. Each write has one, but for those that changed nothing but books.
fn targets<'w>(entries: &[Value], writes: &'w HashMap<(String, String), Truth>) -> Vec<(Value, &'w Truth)> {
    let is_target = |entry: &&Value| {
        let name = text(&entry["name"]);
        ["MODIFIED", "ADDED"].contains(&entry["type"].as_str().unwrap())
            && (entry["resource"] == "deployments" || entry["resource"] == "configmaps" && name.starts_with("conf-"))
    };
    assert!(entries.iter().all(|entry| entry["type"] != "GAP"), "nothing is missing");
    let truth = |entry: &Value| {
        let key = (text(&entry["name"]), text(&entry["resourceVersion"]));
        (entry.clone(), writes.get(&key).unwrap_or_else(|| panic!("nobody made {entry}")))
    };
    let known: Vec<(Value, &Truth)> = entries.iter().filter(is_target).map(truth).collect();
    let with_values = writes.values().filter(|truth| truth.by != By::Books).count();
    let found = known.iter().filter(|(_, truth)| truth.by != By::Books).count();
    assert_eq!(found, with_values, "each write is an entry");
    known
}

/// What the answers were, and those that are not true.
#[derive(Default)]
struct Judged {
    counts: BTreeMap<String, usize>,
    wrong: Vec<String>,
}

impl Judged {
    fn take(&mut self, daemon: &Decklog, entry: &Value, truth: &Truth) {
        if truth.by == By::Books {
            return;
        }
        let object = format!("{}/{}", text(&entry["resource"]), text(&entry["name"]));
        let question = json!({"ask": {"object": object, "paths": [truth.path], "namespaces": ["shop"], "at": {"seq": entry["seq"]}}});
        let answer = daemon.ask("why", &question);
        let write = &answer["writes"][0];
        let (actor, provenance) = (&write["actor"], &write["provenance"]);
        let word = match word(truth, provenance) {
            Some(word) if write["seq"] == entry["seq"] => word,
            _ => {
                self.wrong.push(format!("{object} in entry {}, in truth {truth:?}: {answer}", entry["seq"]));
                return;
            }
        };
        *self.counts.entry(word).or_default() += 1;
        match actor["user"].as_str() {
            None => *self.counts.entry("no sender".to_owned()).or_default() += 1,
            Some(user) if user == truth.user => *self.counts.entry("sender".to_owned()).or_default() += 1,
            Some(user) => {
                self.wrong.push(format!("{object} in entry {} of {truth:?} was not sent by {user}", entry["seq"]));
            }
        }
    }

    /// Most are known: what is ambiguous was near in time to another run, or of two Applications.
    fn is_enough(&self) {
        let of = |word: &str| self.counts.get(word).copied().unwrap_or_default();
        let runs = of("run") + of("ambiguous") + of("unknown");
        assert!(runs >= 500 && of("run") * 100 >= runs * 70, "{:?}", self.counts);
        assert!(
            of("unknown") == 0 && of("ambiguous") > 0 && of("person") > 50 && of("autoscaler") > 20,
            "{:?}",
            self.counts
        );
        assert!(of("sender") * 100 >= (of("sender") + of("no sender")) * 99, "{:?}", self.counts);
    }
}

/// An answer in a word; nothing where it is not true.
fn word(truth: &Truth, provenance: &Value) -> Option<String> {
    let candidates = provenance["candidates"].as_array().cloned().unwrap_or_default();
    let is = |one: &Value| match &truth.by {
        By::Run(driver, revision, by) => {
            let is_automated = one["run"]["automated"] == true;
            let is_by =
                !driver.starts_with("app-") || is_automated == by.is_empty() && text(&one["run"]["startedBy"]) == *by;
            one["name"] == driver.as_str() && one["run"]["revision"] == revision.as_str() && is_by
        }
        By::Autoscaler(name) => one["name"] == name.as_str(),
        By::Person | By::Books => false,
    };
    let word = match (&truth.by, provenance["certainty"].as_str()?, &candidates[..]) {
        (By::Person, "none", []) if provenance["ends"]["reason"] == "person" => "person",
        (By::Autoscaler(_), "known", [one]) if is(one) => "autoscaler",
        (By::Run(..), "known", [one]) if is(one) => "run",
        (By::Run(..), "ambiguous", several) if several.iter().any(is) => "ambiguous",
        (By::Run(driver, ..), "driver", [one]) if one["name"] == driver.as_str() => "unknown",
        _ => return None,
    };
    Some(word.to_owned())
}

/// Compares what `drift` says with what was done: all of it, and what is open.
fn drifts(daemon: &Decklog, truth: &[Drifted]) {
    let plain = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let found = |args: &[&str]| {
        let output = daemon.command(&[&["drift", "-o", "json"], args].concat());
        let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
        let mut found = Vec::new();
        for drift in answer["drifts"].as_array().unwrap() {
            let provenance = &drift["ended"]["provenance"];
            // Of an end that is ambiguous the revision is not known.
            let revision = provenance["candidates"].as_array().filter(|_| provenance["certainty"] == "known");
            for field in drift["fields"].as_array().unwrap() {
                found.push(Drifted {
                    object: format!("{}/{}", text(&drift["resource"]), text(&drift["name"])),
                    path: text(&field["path"]),
                    expected: plain(&field["expected"]),
                    got: plain(&field["got"]),
                    user: text(&drift["began"]["actor"]["user"]),
                    ended: text(&drift["ended"]["how"]),
                    revision: revision.map_or_else(String::new, |all| text(&all[0]["run"]["revision"])),
                });
            }
        }
        found.sort();
        found
    };
    let mut truth = truth.to_vec();
    truth.sort();
    let all = found(&[]);
    let without = |all: &[Drifted]| -> Vec<Drifted> {
        all.iter().map(|one| Drifted { revision: String::new(), ..one.clone() }).collect()
    };
    let (said, true_ones) = (without(&all), without(&truth));
    let missing: Vec<&Drifted> = true_ones.iter().filter(|one| !said.contains(one)).collect();
    let more: Vec<&Drifted> = said.iter().filter(|one| !true_ones.contains(one)).collect();
    assert!(missing.is_empty() && more.is_empty(), "{} drifts; missing: {missing:#?}; more: {more:#?}", truth.len());
    for one in all.iter().filter(|one| !one.revision.is_empty()) {
        assert!(truth.contains(one), "not by this revision: {one:?}");
    }
    let open: Vec<Drifted> = truth.iter().filter(|one| one.ended.is_empty()).cloned().collect();
    let named = all.iter().filter(|one| !one.revision.is_empty()).count();
    eprintln!("{} drifts, {} open, {named} with the revision that ended them", truth.len(), open.len());
    assert_eq!(found(&["--open"]), open);
    assert!(!open.is_empty() && named * 2 > truth.len() - open.len(), "{all:#?}");
}
