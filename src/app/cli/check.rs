//! `decklog check`: everything that is wrong, at once.

mod audit_log;
mod evidence;
mod reviews;
mod state;

use std::collections::BTreeMap;
use std::fs;

use clap::Args;
use serde::Serialize;

use super::output::{Ink, Out, Row, plural, printable, some};
use super::rbac::{self, Endpoints};
use super::{Exit, Failure, Format, Global, Outcome, init};
use crate::app::config::{Config, Directory, Files, Loaded};
use crate::app::ha::{self, LeaseName};
use crate::core::change::redact::Redactor;
use crate::core::model::{Cluster, SourceSpec};
use crate::core::net::server::{BindError, Bound, Listen};
use crate::core::spelling;
use crate::journal::{JournalError, Reader};
use crate::query::status;
use crate::sink::registry::SinkKind;
use crate::watch::apiserver_counters;
use crate::watch::cluster::{Api, Limits};
use crate::watch::dating;
use crate::watch::discovery::{DEFINITIONS, Discoverer};
use crate::watch::select::{WhyWaiting, check_access, check_selectors, may_come, select};
use crate::web::http;
use crate::web::ui;

/// Arguments of `decklog check`.
#[derive(Args, Debug)]
pub struct CheckArgs {}

/// One thing that was looked at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct Finding {
    /// Part of decklog that the finding is about.
    about: &'static str,
    /// Code of the finding for programs: it stays if the sentence changes.
    code: &'static str,
    /// True if all is well.
    ok: bool,
    /// True if it is allowed, and yet worth a note.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    note: bool,
    /// One sentence.
    text: String,
}

#[derive(Debug, Default)]
struct Findings(Vec<Finding>);

impl Findings {
    /// The first word of the code says what it is about.
    fn add(&mut self, code: &'static str, ok: bool, note: bool, text: impl Into<String>) {
        let about = code.split('-').next().unwrap_or(code);
        self.0.push(Finding { about, code, ok, note, text: text.into() });
    }

    fn good(&mut self, code: &'static str, text: impl Into<String>) {
        self.add(code, true, false, text);
    }

    fn bad(&mut self, code: &'static str, text: impl Into<String>) {
        self.add(code, false, false, text);
    }

    fn problems(&self) -> usize {
        self.0.iter().filter(|finding| !finding.ok).count()
    }

    fn note(&mut self, code: &'static str, text: impl Into<String>) {
        self.add(code, true, true, text);
    }
}

/// Finds everything that is wrong, at once.
///
/// # Errors
/// Where the configuration itself is wrong, exit 78.
pub fn main(_args: CheckArgs, global: &Global) -> Outcome {
    if global.cluster.is_none()
        && let Some(directory) = global.directory(Files::Check)?
    {
        return several(&directory, global);
    }
    let loaded = init::configuration(global)?;
    let of = (loaded.config.http.as_ref(), loaded.config.ui.as_ref());
    let (found, _) = look(&loaded, of, rbac::reviews(global, &loaded.config)?)?;
    let mut out = Out::new(global);
    match global.output {
        Some(format @ (Format::Json | Format::Yaml)) => out.document(format, &found.0)?,
        Some(Format::Line | Format::Wide | Format::Name) | None => {
            print(&found, &mut out)?;
            count(found.problems(), &mut out)?;
        }
    }
    out.flush()?;
    Ok(if found.problems() == 0 { Exit::Done } else { Exit::No })
}

/// Each cluster in a section of its own. The endpoints are those of all of them, and are looked at with the last.
fn several(directory: &Directory, global: &Global) -> Outcome {
    let mut all: Vec<(&str, Findings)> = Vec::new();
    let reviewed = rbac::are_reviewed((directory.http.as_ref(), directory.ui.as_ref()));
    let (mut running, mut left) = (false, directory.files.iter().filter(|file| file.loaded.is_ok()).count());
    for file in &directory.files {
        let found = match &file.loaded {
            Ok(loaded) => {
                left -= 1;
                let all = left == 0 && !running;
                let (http, ui) = (directory.http.as_ref().filter(|_| all), directory.ui.as_ref().filter(|_| all));
                let (found, runs) = look(loaded, (http, ui), reviewed)?;
                running |= runs;
                found
            }
            Err(problems) => {
                let mut found = Findings::default();
                found.bad("config-wrong", status::in_one_line(&problems.to_string()));
                found
            }
        };
        all.push((&file.name, found));
    }
    let problems = all.iter().map(|(_, found)| found.problems()).sum();
    let mut out = Out::new(global);
    match global.output {
        Some(format @ (Format::Json | Format::Yaml)) => {
            let all: BTreeMap<&str, &[Finding]> = all.iter().map(|(name, found)| (*name, &found.0[..])).collect();
            out.document(format, &all)?;
        }
        Some(Format::Line | Format::Wide | Format::Name) | None => {
            for (number, (name, found)) in all.iter().enumerate() {
                if number > 0 {
                    out.line("")?;
                }
                let mut title = Row::new(out.look);
                title.put(Some(Ink::Strong), &format!("== {}", printable(name)));
                out.line(&title.finish())?;
                print(found, &mut out)?;
            }
            count(problems, &mut out)?;
        }
    }
    out.flush()?;
    Ok(if problems == 0 { Exit::Done } else { Exit::No })
}

/// Checks one configuration, and the daemon that runs by it, if any.
fn look(loaded: &Loaded, (http, ui): Endpoints<'_>, reviewed: bool) -> Result<(Findings, bool), Failure> {
    let config = &loaded.config;
    let mut found = Findings::default();
    match loaded.path {
        Some(_) => found.good("config-right", format!("{} is valid", loaded.name())),
        None => found.note("config-none", format!("there is no file, so `decklog run` uses {}", loaded.name())),
    }
    for warning in &loaded.warnings {
        found.note("config-warning", warning.clone());
    }
    let running = state::state(config, &mut found);
    super::block_on(async {
        let cluster = cluster(config, running, &mut found).await;
        same_cluster(config, cluster.as_ref(), &mut found);
        sinks(config, running, &mut found).await;
        shared_log(config, cluster.as_ref(), &mut found).await;
        found.audit_logs(config, running).await;
        found.evidence(config).await;
        if reviewed {
            found.reviews(config).await;
        }
        if let Some(section) = http
            && !running
        {
            match free(http::bind(section).await, &section.listen) {
                Ok(()) => found.good("http-free", "the address is free"),
                Err(error) => found.bad("http-unusable", error),
            }
        }
        if let Some(section) = ui
            && !running
        {
            match free(ui::bind(section).await, &section.listen) {
                Ok(()) => found.good("ui-free", format!("the timeline page can be at {}", section.listen)),
                Err(error) => found.bad("ui-unusable", error),
            }
        }
        Ok::<_, Failure>(())
    })?;
    Ok((found, running))
}

/// Checks that an address was free.
fn free(bound: Result<Bound, BindError>, listen: &Listen) -> Result<(), String> {
    drop(bound.map_err(|error| error.to_string())?);
    if let Listen::Unix(path) = listen {
        // It was made by this check; the daemon makes its own.
        drop(fs::remove_file(path));
    }
    Ok(())
}

/// A line for each.
fn print(found: &Findings, out: &mut Out) -> Result<(), Failure> {
    for finding in &found.0 {
        let (ink, word) = match (finding.ok, finding.note) {
            (false, _) => (Ink::Bad, "problem"),
            (true, true) => (Ink::Change, "note   "),
            (true, false) => (Ink::Good, "ok     "),
        };
        // Whole, whatever its length: the end of the sentence says what to do.
        let mut line = Row::new(out.look);
        line.uncut();
        line.hang(18);
        line.put(Some(ink), word).put(None, "  ").put(Some(Ink::Strong), &format!("{:<7} ", finding.about));
        line.put(None, &printable(&finding.text));
        let line = line.finish();
        out.line(&line)?;
    }
    Ok(())
}

fn count(problems: usize, out: &mut Out) -> Result<(), Failure> {
    if problems == 0 {
        return Ok(());
    }
    out.line(&format!("{} found", plural(problems as u64, "problem", "problems")))
}

async fn cluster(config: &Config, running: bool, found: &mut Findings) -> Option<Cluster> {
    let api = match Api::open(&config.cluster, Limits::default()).await {
        Ok(api) => api,
        Err(error) => {
            found.bad("cluster-kubeconfig", error.to_string());
            return None;
        }
    };
    if let Some(proxy) = api.proxy() {
        found.note("cluster-proxy", format!("requests to {} go through the proxy {proxy}", api.name()));
    }
    let version = match api.version().await {
        Ok(version) => version,
        Err(error) => {
            found.bad("cluster-unreachable", format!("{}: {error}", api.name()));
            return None;
        }
    };
    found.good("cluster-answers", format!("{} answers, version {version}", api.name()));
    if api.runs_unasked() {
        found.note(
            "cluster-exec",
            "the program that the kubeconfig names for the credentials runs because you are at a terminal and the file is yours; a service runs it only with [cluster] allow_exec = true",
        );
    }
    let identity = identity(&api, found).await;
    let discovered = match Discoverer::default().discover(&api).await {
        Ok(discovered) => discovered,
        Err(error) => {
            found.bad("cluster-discovery", format!("it does not say which resources there are: {error}"));
            return identity;
        }
    };
    for (about, why) in discovered.troubles() {
        found.bad(
            "cluster-group-silent",
            format!("the API server does not say what there is of {about}: {why}; its resources wait"),
        );
    }
    let selection = select(&config.watch, &discovered);
    for problem in selection.problems {
        found.bad("watch-unwatchable", problem);
    }
    for waiting in &selection.waiting {
        let text = match &waiting.why {
            WhyWaiting::Unserved { suggestion } => {
                let meant = suggestion.as_ref().map(|name| format!(" (did you mean {name}?)")).unwrap_or_default();
                format!("the cluster serves no {}{meant}; decklog waits for it to appear", waiting.name)
            }
            WhyWaiting::Unlistable | WhyWaiting::Unknown(_) => format!("{waiting}; {}", waiting.remedy()),
        };
        found.bad("watch-waiting", text);
    }
    idle_rules(config, &selection.sources, found);
    namespaces(config, &api, found).await;
    selectors(&api, &selection.sources, found).await;
    access(&api, &selection.sources, found).await;
    if may_come(&config.watch, &discovered) {
        definitions(&api, found).await;
    }
    if config.cluster.request_metrics {
        counters(&api, found).await;
    }
    if config.cluster.lease_times != Some(false) {
        lease_times(&api, found).await;
    }
    if let Some(section) = &config.ha {
        lease(&section.lease(api.name()), &api, found).await;
    }
    found.audit_events(config, &api, &selection.sources, running).await;
    identity
}

/// Checks whether the cluster can be told from others.
async fn identity(api: &Api, found: &mut Findings) -> Option<Cluster> {
    match api.identity().await {
        Ok(cluster) if cluster.uid.is_empty() => {
            found.bad(
                "rights-identity",
                "the namespace kube-system may not be read, so that another cluster under the same address would not be noticed; `decklog rbac` prints what is needed",
            );
            Some(cluster)
        }
        Ok(cluster) => Some(cluster),
        Err(error) => {
            found.bad("cluster-identity", format!("its identity cannot be read: {error}"));
            None
        }
    }
}

/// Checks whether the API server takes the selectors.
async fn selectors(api: &Api, sources: &[SourceSpec], found: &mut Findings) {
    match check_selectors(api, sources).await {
        Err(error) => {
            found.bad("watch-unknown", format!("the API server does not say whether it takes the selectors: {error}"));
        }
        Ok(refused) => {
            for (source, text) in refused {
                found.bad(
                    "watch-selector",
                    format!("{} cannot be selected like this: {text}; change its selectors", source.name()),
                );
            }
        }
    }
}

/// Checks the rights to list and watch.
async fn access(api: &Api, sources: &[SourceSpec], found: &mut Findings) {
    match check_access(api, sources).await {
        Err(error) => found.bad("rights-unknown", format!("the API server does not say what is granted: {error}")),
        Ok(access) => {
            let mut denied: BTreeMap<String, Vec<&str>> = BTreeMap::new();
            for access in access.iter().filter(|access| !access.allowed) {
                denied.entry(access.source.name()).or_default().push(access.verb);
            }
            // One line for what lacks the same.
            let mut lacking: BTreeMap<String, Vec<String>> = BTreeMap::new();
            for (name, verbs) in &denied {
                let verbs: Vec<String> = verbs.iter().map(|verb| format!("{verb}ed")).collect();
                lacking.entry(verbs.join(" or ")).or_default().push(name.clone());
            }
            for (verbs, names) in &lacking {
                let text = format!(
                    "{} may not be {verbs}; `decklog rbac | kubectl apply -f -` and a binding grant it",
                    some(names)
                );
                found.bad("rights-denied", text);
            }
            if lacking.is_empty() {
                let count = sources.len();
                found.good(
                    "rights-granted",
                    format!("{} may be listed and watched", plural(count as u64, "source", "sources")),
                );
            }
        }
    }
}

/// Checks the rights to the Lease.
async fn lease(lease: &LeaseName, api: &Api, found: &mut Findings) {
    let (group, plural) = ha::RESOURCE;
    let LeaseName { namespace, name } = lease;
    match api.has_namespace(namespace).await {
        Ok(Some(true) | None) => {}
        Ok(Some(false)) => found.bad(
            "ha-namespace",
            format!("there is no namespace {namespace} for the Lease {lease}: `kubectl create namespace {namespace}` makes it"),
        ),
        Err(error) => found.bad("cluster-namespace", format!("the namespace {namespace} cannot be read: {error}")),
    }
    let mut denied = Vec::new();
    let mut asked = vec![("create", api.can_i("create", group, plural, Some(namespace)).await)];
    for verb in ha::VERBS {
        asked.push((verb, api.can_i_with(verb, group, plural, namespace, name).await));
    }
    for (verb, answer) in asked {
        match answer {
            Ok(true) => {}
            Ok(false) => denied.push(verb),
            Err(error) => {
                let text = format!("the API server does not say what is granted: {error}");
                return found.bad("rights-unknown", text);
            }
        }
    }
    if denied.is_empty() {
        found.good("rights-lease", format!("the Lease {lease} may be created, read and updated"));
    } else {
        found.bad(
            "rights-lease-denied",
            format!(
                "the Lease {lease} needs the verbs {}; `decklog rbac | kubectl apply -f -` and a binding grant them",
                denied.join(", ")
            ),
        );
    }
}

/// Checks that the named namespaces exist. Without the right to read them it finds nothing.
async fn namespaces(config: &Config, api: &Api, found: &mut Findings) {
    for (index, watch) in config.watch.iter().enumerate() {
        let number = index + 1;
        // A pattern is for namespaces to come as well.
        let left_out = watch.exclude_namespaces.iter().filter(|pattern| pattern.is_name()).map(ToString::to_string);
        let named = watch.namespaces.iter().map(|name| (name.clone(), false)).chain(left_out.map(|name| (name, true)));
        for (name, left_out) in named {
            match api.has_namespace(&name).await {
                Ok(Some(true) | None) => {}
                Ok(Some(false)) => {
                    let known = api.namespaces().await.unwrap_or_default();
                    let meant = spelling::nearest(&name, known.iter().map(String::as_str));
                    let meant = meant.map(|name| format!(" (did you mean {name}?)")).unwrap_or_default();
                    let missing = format!("[[watch]] {number}: there is no namespace {name}{meant}");
                    if left_out {
                        found.note(
                            "watch-exclude-namespace",
                            format!("{missing}, so exclude_namespaces leaves nothing out by this name"),
                        );
                    } else {
                        found.bad("watch-namespace", format!("{missing}; decklog waits for it to appear"));
                    }
                }
                Err(error) => found.bad("cluster-namespace", format!("the namespace {name} cannot be read: {error}")),
            }
        }
    }
}

/// Notes where what brings new kinds may not be watched, which is allowed.
async fn definitions(api: &Api, found: &mut Findings) {
    let mut denied = Vec::new();
    for (group, plural) in DEFINITIONS {
        for verb in ["list", "watch"] {
            // Where the API server does not say, the sources' own rights were a problem above.
            if matches!(api.can_i(verb, group, plural, None).await, Ok(false)) {
                denied.push(format!("{plural}.{group}"));
                break;
            }
        }
    }
    if !denied.is_empty() {
        found.note(
            "rights-definitions",
            format!("{} may not be listed and watched, so a new kind is found some seconds after it is served; `decklog rbac` prints the rights", some(&denied)),
        );
    }
}

/// Checks the right to read the API server's own counters.
async fn counters(api: &Api, found: &mut Findings) {
    match api.can_i_read(apiserver_counters::PATH).await {
        Ok(true) => found.good("rights-counters", "the API server's request counters may be read"),
        Ok(false) => found.bad(
            "rights-counters-denied",
            format!(
                "{} may not be read, which [cluster] request_metrics asks for; `decklog rbac | kubectl apply -f -` and a binding grant it",
                apiserver_counters::PATH
            ),
        ),
        Err(error) => found.bad("rights-unknown", format!("the API server does not say what is granted: {error}")),
    }
}

/// Notes where the Leases that date versions may not be listed, which is allowed.
async fn lease_times(api: &Api, found: &mut Findings) {
    let (group, plural) = dating::RESOURCE;
    for namespace in dating::NAMESPACES {
        // Where the API server does not say, the sources' own rights were a problem above.
        if matches!(api.can_i("list", group, plural, Some(namespace)).await, Ok(false)) {
            found.note(
                "rights-lease-times",
                format!(
                    "{plural}.{group} may not be listed in {namespace}, so what happens while decklog is away is dated by the \
                     outage alone and not to seconds; `[cluster] lease_times = true` makes `decklog rbac` print the right, false does without"
                ),
            );
            break;
        }
    }
}

/// Rules of redaction for resources that nothing watches: they may be misspelled, and then they hide nothing.
fn idle_rules(config: &Config, sources: &[SourceSpec], found: &mut Findings) {
    // What the rules match does not depend on the key.
    let Ok(redactor) = Redactor::new(&config.redact, [0; 32]) else { return };
    for (rule, resources) in redactor.idle(sources.iter().map(|source| &source.resource)) {
        found.bad(
            "redact-idle",
            format!("rule {rule} is for {resources}, and none of that is watched: check its spelling"),
        );
    }
}

/// Checks that the journal is of this cluster.
fn same_cluster(config: &Config, cluster: Option<&Cluster>, found: &mut Findings) {
    let Ok(known) = Reader::open(&config.state.path).and_then(|reader| reader.cluster()) else { return };
    if let Some(cluster) = cluster
        && !known.uid.is_empty()
        && !cluster.uid.is_empty()
        && known.uid != cluster.uid
    {
        found.bad(
            "state-other-cluster",
            JournalError::OtherCluster { ours: known.uid, theirs: cluster.uid.clone() }.to_string(),
        );
    }
}

async fn sinks(config: &Config, running: bool, found: &mut Findings) {
    for config in &config.sink {
        // A running daemon holds the files of its sinks, and `status` shows how they do.
        if running && matches!(config.kind, SinkKind::File(_) | SinkKind::Stdout(_)) {
            continue;
        }
        match config.open(&Cluster::default()) {
            Err(text) => found.bad("sink-unusable", format!("{}: {text}", config.name)),
            Ok(mut sink) => match sink.check().await {
                Ok(()) => found.good("sink-ready", format!("{} can be delivered to{}", config.name, sink.through())),
                Err(error) => found.bad("sink-not-ready", format!("{}: {error}", config.name)),
            },
        }
    }
}

/// Checks that the shared log can be used.
async fn shared_log(config: &Config, cluster: Option<&Cluster>, found: &mut Findings) {
    let Some(section) = &config.ha else { return };
    let sink = config.sink.iter().find(|sink| sink.name == section.log);
    // Without the cluster its name may not be known; that was said.
    let name = cluster.map(|cluster| &cluster.name).or(config.cluster.name.as_ref());
    let (Some(sink), Some(name)) = (sink, name) else { return };
    match sink.kind.settings().shared_log(&sink.name, name) {
        None => found.bad("ha-no-log", format!("{} keeps no shared log", sink.name)),
        Some(Err(text)) => found.bad("ha-unusable", format!("{}: {text}", sink.name)),
        Some(Ok(mut log)) => match log.check().await {
            Ok(()) => found.good("ha-ready", format!("the shared log is in {}", log.shown())),
            Err(error) => found.bad("ha-not-ready", format!("the shared log in {}: {error}", log.shown())),
        },
    }
}
