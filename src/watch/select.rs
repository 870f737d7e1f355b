//! Resolution of a configuration to sources, given what the API server serves.
//!
//! Resources are spelled as kubectl takes them. Two names can stand for one storage: `events` of the core group and of
//! `events.k8s.io` are the same objects, so a wildcard takes the core ones only, and naming both watches the first. So
//! are OpenShift's projects and the namespaces that they are made of.
//!
//! # Decision: selectors are attributes of a source
//!
//! Context: A source is one resource in one scope, and its selectors may change.
//! Decision: It is known by resource and namespace. Other selectors are another scope: the position is dropped, the next list
//! declares GAP `scope`, and objects that left the scope are DELETED with the evidence `inferred`. Overlapping sources never
//! run together; the one that starts takes the position of the others away.
//! Cost: A list for each change of selectors.

use std::collections::BTreeMap;

use futures::{StreamExt, TryStreamExt, stream};
use kube::core::params::ListParams;

use super::discovery::Discovered;
use super::requests::{list_params, request, unbuilt};
use super::settings::{FirstList, Settings};
use crate::core::k8s::names::Spelling;
use crate::core::model::{Resource, SourceSpec};
use crate::core::spelling::nearest_by;
use crate::watch::cluster::{Api, Failure};

/// Result of resolving a configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selection {
    /// Sources to watch, in the order of the configuration.
    pub sources: Vec<SourceSpec>,
    /// Names that nothing served answers to, as yet: a CRD may bring them.
    pub waiting: Vec<Waiting>,
    /// Parts of the configuration without effect, one sentence each.
    pub problems: Vec<String>,
}

/// A name of which nothing is watched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// Name as it is in the configuration.
    pub name: String,
    /// The reason.
    pub why: WhyWaiting,
}

/// Reason for which nothing is watched of a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WhyWaiting {
    /// No served resource has the name.
    Unserved {
        /// Suggestion for the name.
        suggestion: Option<String>,
    },
    /// It is served, and cannot be listed and watched.
    Unlistable,
    /// A group that may serve it is not known at the moment; the text names the group and says why.
    Unknown(String),
}

impl Waiting {
    /// Returns what to do about it.
    #[must_use]
    pub const fn remedy(&self) -> &'static str {
        match self.why {
            WhyWaiting::Unserved { .. } => {
                "correct the name in [[watch]] resources, or install its CustomResourceDefinition; decklog waits for it"
            }
            WhyWaiting::Unlistable => "leave it out of [[watch]] resources: its server offers no list and no watch",
            WhyWaiting::Unknown(_) => {
                "bring back what serves the group (`kubectl get apiservices` names it); decklog waits for it"
            }
        }
    }
}

impl std::fmt::Display for Waiting {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let name = &self.name;
        match &self.why {
            WhyWaiting::Unserved { suggestion } => {
                write!(f, "the API server serves nothing called {name}")?;
                suggestion.as_ref().map_or(Ok(()), |suggestion| write!(f, " (did you mean {suggestion}?)"))
            }
            WhyWaiting::Unlistable => write!(f, "the API server serves {name}, which cannot be listed and watched"),
            WhyWaiting::Unknown(why) => write!(f, "it is not known whether the API server serves {name}: {why}"),
        }
    }
}

/// Finds out why nothing is watched of a name that nothing listable answers to.
fn why_waiting(name: &str, discovered: &Discovered) -> WhyWaiting {
    if let Some(group) = name.strip_prefix("*.") {
        let unlistable = discovered.unlistable.iter().any(|resource| resource.group == group);
        return match doubt(discovered, group) {
            Some(why) => WhyWaiting::Unknown(why),
            None if unlistable => WhyWaiting::Unlistable,
            None => WhyWaiting::Unserved { suggestion: None },
        };
    }
    let spelling = Spelling::of(name);
    if discovered.unlistable.iter().any(|other| spelling.form(other).is_some() && spelling.is_where(other)) {
        return WhyWaiting::Unlistable;
    }
    let unknown = match name.split_once('.') {
        // `GROUP`, `VERSION.GROUP`, or `VERSION`, which is core's.
        Some((_, qualifier)) => {
            let (_, group) = qualifier.split_once('.').unwrap_or((qualifier, ""));
            doubt(discovered, qualifier).or_else(|| doubt(discovered, group))
        }
        None => any_doubt(discovered),
    };
    unknown.map_or_else(|| WhyWaiting::Unserved { suggestion: suggest(name, discovered) }, WhyWaiting::Unknown)
}

/// Returns why it is not known what there is of a group, as a sentence.
fn doubt(discovered: &Discovered, group: &str) -> Option<String> {
    let why = discovered.doubt(group)?;
    let group = if group.is_empty() { "the core group".to_owned() } else { format!("the API group {group}") };
    Some(format!("{group} cannot be read ({why})"))
}

/// Returns why it is not known what there is of some group.
fn any_doubt(discovered: &Discovered) -> Option<String> {
    let of_root = discovered.roots.iter().map(|(root, doubt)| format!("{root} cannot be read ({})", doubt.why)).next();
    of_root.or_else(|| discovered.doubtful().find_map(|group| doubt(discovered, group)))
}

/// Groups of Kubernetes itself: no CustomResourceDefinition brings anything to them.
const BUILT_IN: [&str; 18] = [
    "admissionregistration.k8s.io",
    "apiextensions.k8s.io",
    "apiregistration.k8s.io",
    "authentication.k8s.io",
    "authorization.k8s.io",
    "certificates.k8s.io",
    "coordination.k8s.io",
    "discovery.k8s.io",
    "events.k8s.io",
    "flowcontrol.apiserver.k8s.io",
    "internal.apiserver.k8s.io",
    "networking.k8s.io",
    "node.k8s.io",
    "rbac.authorization.k8s.io",
    "resource.k8s.io",
    "scheduling.k8s.io",
    "storage.k8s.io",
    "storagemigration.k8s.io",
];

/// Returns `true` for a group that an extension brings. Those of Kubernetes that are older than names with a domain have
/// no dot, and a CustomResourceDefinition needs one.
fn is_extension(group: &str) -> bool {
    group.contains('.') && !BUILT_IN.contains(&group)
}

/// Returns `true` where a CustomResourceDefinition or an APIService can bring, change or take away something that is
/// configured: a wildcard, a name that nothing answers to, or a resource of an extension.
#[must_use]
pub fn may_come(watches: &[Settings], discovered: &Discovered) -> bool {
    watches.iter().flat_map(|watch| &watch.resources).any(|name| {
        if is_everything(name) {
            return true;
        }
        if let Some(group) = name.strip_prefix("*.") {
            return is_extension(group);
        }
        let found = resolve(name, discovered);
        found.is_empty() || found.iter().any(|resource| is_extension(&resource.group))
    })
}

/// Group and plural of what is stored: one key for every name of one storage.
fn storage(resource: &Resource) -> (&str, &str) {
    match (resource.group.as_str(), resource.plural.as_str()) {
        ("events.k8s.io", "events") => ("", "events"),
        ("project.openshift.io", "projects") => ("", "namespaces"),
        key => key,
    }
}

/// A namespace, or all of them, in which a storage is taken already, and by which `[[watch]]`.
type Holder = (Option<String>, usize);

/// Works out the sources.
#[must_use]
pub fn select(watches: &[Settings], discovered: &Discovered) -> Selection {
    let mut selection = Selection::default();
    let mut taken: BTreeMap<(String, String), Vec<Holder>> = BTreeMap::new();
    for (index, watch) in watches.iter().enumerate() {
        let number = index + 1;
        let excluded: Vec<&Resource> = watch.exclude.iter().flat_map(|name| resolve(name, discovered)).collect();
        for name in &watch.resources {
            let everything = is_everything(name);
            let wildcard = name.starts_with('*');
            let mut found = resolve(name, discovered);
            if wildcard {
                found.retain(|resource| !excluded.iter().any(|other| storage(other) == storage(resource)));
                if everything {
                    found.retain(|resource| storage(resource) == (resource.group.as_str(), resource.plural.as_str()));
                }
            }
            // A wildcard of which everything is excluded waits for nothing.
            if found.is_empty() && !everything && resolve(name, discovered).is_empty() {
                let waiting = Waiting { name: name.clone(), why: why_waiting(name, discovered) };
                if !selection.waiting.contains(&waiting) {
                    selection.waiting.push(waiting);
                }
            }
            for resource in found {
                if !watch.namespaces.is_empty() && !resource.namespaced {
                    if !wildcard {
                        selection.problems.push(format!(
                            "[[watch]] {number}: {} are in no namespace and are not watched; give them a [[watch]] without `namespaces`",
                            resource.full_name()
                        ));
                    }
                    continue;
                }
                let scopes: Vec<Option<String>> = if watch.namespaces.is_empty() {
                    vec![None]
                } else {
                    watch.namespaces.iter().cloned().map(Some).collect()
                };
                let (group, plural) = storage(resource);
                let holders = taken.entry((group.to_owned(), plural.to_owned())).or_default();
                // What lives in no namespace is in none of those that are left out.
                let mut left_out = if resource.namespaced { watch.exclude_namespaces.clone() } else { Vec::new() };
                left_out.sort_unstable();
                left_out.dedup();
                for scope in scopes {
                    let overlaps = |other: &Option<String>| *other == scope || other.is_none() || scope.is_none();
                    if let Some((_, holder)) = holders.iter().find(|(other, _)| overlaps(other)) {
                        // Within one entry it is no mistake: `["*", "pods"]`, or a name twice.
                        if *holder != number {
                            let at = scope.as_ref().map(|scope| format!(" in {scope}")).unwrap_or_default();
                            selection.problems.push(format!(
                                "[[watch]] {number}: {}{at} are watched by [[watch]] {holder} already, which counts",
                                resource.full_name()
                            ));
                        }
                        continue;
                    }
                    holders.push((scope.clone(), number));
                    let exclude_namespaces = if scope.is_none() { left_out.clone() } else { Vec::new() };
                    selection.sources.push(SourceSpec {
                        resource: resource.clone(),
                        namespace: scope,
                        exclude_namespaces,
                        label_selector: watch.label_selector.clone(),
                        field_selector: watch.field_selector.clone(),
                        first_list_silent: watch.first_list == FirstList::Silent,
                        ignore: watch.ignore.iter().map(ToString::to_string).collect(),
                    });
                }
            }
        }
    }
    selection
}

/// Reports whether a name selects every resource, of any group.
fn is_everything(name: &str) -> bool {
    matches!(name, "*" | "*.*")
}

/// The resources that a name stands for: several for a wildcard, at most one otherwise.
#[must_use]
pub fn resolve<'a>(name: &str, discovered: &'a Discovered) -> Vec<&'a Resource> {
    let preferred = discovered.preferred();
    if is_everything(name) {
        return preferred;
    }
    if let Some(group) = name.strip_prefix("*.") {
        return preferred.into_iter().filter(|resource| resource.group == group).collect();
    }
    let spelling = Spelling::of(name);
    let in_group = preferred.into_iter().filter(|resource| spelling.is_of_group(resource));
    let exact = discovered.served.iter().filter(|resource| spelling.is_of_version(resource));
    best(spelling, in_group).or_else(|| best(spelling, exact)).into_iter().collect()
}

/// The resource that a spelling names best. Among equals the first group does, which is core where it has one.
fn best<'a>(spelling: Spelling<'_>, among: impl Iterator<Item = &'a Resource>) -> Option<&'a Resource> {
    let formed = among.filter_map(|resource| Some((spelling.form(resource)?, resource)));
    formed.min_by_key(|(form, _)| *form).map(|(_, found)| found)
}

/// The spelling nearest to a name that nothing answers to.
fn suggest(name: &str, discovered: &Discovered) -> Option<String> {
    let spellings = discovered.preferred().into_iter().flat_map(|resource| {
        let words = [resource.full_name(), resource.plural.clone(), resource.singular.clone()];
        words.into_iter().filter(|word| !word.is_empty()).map(move |word| (word, resource.full_name()))
    });
    nearest_by(name, spellings, |(word, _)| word.clone()).map(|(_, full)| full)
}

/// Number of permissions that are requested concurrently.
const AT_ONCE: usize = 8;

/// A permission, and whether we have it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Access {
    /// `list` or `watch`.
    pub verb: &'static str,
    /// The source that needs it.
    pub source: SourceSpec,
    /// True if the API server grants it.
    pub allowed: bool,
}

/// Asks the API server for every permission that the sources need.
///
/// # Errors
/// Where the API server does not answer.
pub async fn check_access(api: &Api, sources: &[SourceSpec]) -> Result<Vec<Access>, Failure> {
    let questions = sources.iter().flat_map(|source| ["list", "watch"].map(|verb| (verb, source)));
    let answers = stream::iter(questions).map(|(verb, source)| async move {
        let Resource { group, plural, .. } = &source.resource;
        let allowed = api.can_i(verb, group, plural, source.namespace.as_deref()).await?;
        Ok(Access { verb, source: source.clone(), allowed })
    });
    answers.buffered(AT_ONCE).try_collect().await
}

/// Returns the objections of the API server to the selectors of sources.
///
/// # Errors
/// Where the API server does not answer.
pub async fn check_selectors(api: &Api, sources: &[SourceSpec]) -> Result<Vec<(SourceSpec, String)>, Failure> {
    let mut refused = Vec::new();
    for source in sources.iter().filter(|source| source.selects()) {
        let params = ListParams { limit: Some(1), ..list_params(source) };
        let uri = request(source).list(&params).map_err(unbuilt)?.uri().to_string();
        match api.stream(&uri).await {
            Err(Failure::Refused(text)) => refused.push((source.clone(), text)),
            // Permissions are looked at for themselves.
            Ok(_) | Err(Failure::Forbidden(_)) => {}
            Err(failure) => return Err(failure),
        }
    }
    Ok(refused)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::spelling::kubernetes::NamespacePattern;

    fn served() -> Discovered {
        let one = |group: &str, version: &str, kind: &str, plural: &str, short: &[&str], namespaced| Resource {
            group: group.into(),
            version: version.into(),
            kind: kind.into(),
            plural: plural.into(),
            singular: kind.to_lowercase(),
            short_names: short.iter().map(|name| (*name).to_owned()).collect(),
            namespaced,
        };
        Discovered {
            served: vec![
                one("", "v1", "Pod", "pods", &["po"], true),
                one("", "v1", "Node", "nodes", &["no"], false),
                one("", "v1", "Event", "events", &["ev"], true),
                one("apps", "v1", "Deployment", "deployments", &["deploy"], true),
                one("events.k8s.io", "v1", "Event", "events", &["ev"], true),
                one("autoscaling", "v2", "HorizontalPodAutoscaler", "horizontalpodautoscalers", &["hpa"], true),
                one("autoscaling", "v1", "HorizontalPodAutoscaler", "horizontalpodautoscalers", &["hpa"], true),
                one("shop.example.com", "v1", "Order", "orders", &[], true),
                one("shop.example.com", "v1", "Price", "prices", &[], false),
            ],
            ..Discovered::default()
        }
    }

    fn watch(resources: &[&str]) -> Settings {
        Settings { resources: resources.iter().map(|name| (*name).to_owned()).collect(), ..Settings::default() }
    }

    fn names(selection: &Selection) -> Vec<String> {
        selection.sources.iter().map(|source| format!("{} {}", source.name(), source.resource.version)).collect()
    }

    #[test]
    fn every_resource_of_every_group_is_everything() {
        let everything = select(&[watch(&["*"])], &served());
        assert_eq!(select(&[watch(&["*.*"])], &served()), everything);
    }

    #[test]
    fn every_spelling_of_kubectl_finds_its_resource() {
        for (spelling, expected) in [
            ("pods", "pods v1"),
            ("pod", "pods v1"),
            ("po", "pods v1"),
            ("Pod", "pods v1"),
            ("PODS", "pods v1"),
            ("pods.v1", "pods v1"),
            ("pods.v1.", "pods v1"),
            ("events", "events v1"),
            ("events.events.k8s.io", "events.events.k8s.io v1"),
            ("deploy", "deployments.apps v1"),
            ("deployments.apps", "deployments.apps v1"),
            ("deployment.v1.apps", "deployments.apps v1"),
            ("hpa", "horizontalpodautoscalers.autoscaling v2"),
            ("hpa.v1.autoscaling", "horizontalpodautoscalers.autoscaling v1"),
            ("orders.shop.example.com", "orders.shop.example.com v1"),
            ("orders.v1.shop.example.com", "orders.shop.example.com v1"),
        ] {
            assert_eq!(names(&select(&[watch(&[spelling])], &served())), [expected], "{spelling}");
        }
    }

    #[test]
    fn wildcards_take_everything_once_but_what_is_excluded() {
        let mut all = watch(&["*"]);
        all.exclude = vec!["events".into(), "*.autoscaling".into(), "no".into()];
        let found = select(&[all], &served());
        assert_eq!(
            names(&found),
            ["pods v1", "deployments.apps v1", "orders.shop.example.com v1", "prices.shop.example.com v1"]
        );
        let found = select(&[watch(&["*"])], &served());
        assert_eq!(names(&found).iter().filter(|name| name.starts_with("events")).collect::<Vec<_>>(), ["events v1"]);
        assert_eq!(names(&select(&[watch(&["*.shop.example.com"])], &served())).len(), 2);
    }

    #[test]
    fn two_names_of_one_storage_are_one_source() {
        let mut openshift = served();
        for (group, plural) in [("", "namespaces"), ("project.openshift.io", "projects")] {
            let like = openshift.served[0].clone();
            let (group, plural, singular) = (group.to_owned(), plural.to_owned(), String::new());
            openshift.served.push(Resource {
                group,
                plural,
                singular,
                kind: String::new(),
                short_names: vec![],
                namespaced: false,
                ..like
            });
        }
        let names_of = |watched: &[&str]| names(&select(&[watch(watched)], &openshift));
        assert!(names_of(&["*"]).iter().any(|name| name == "namespaces v1"));
        assert!(!names_of(&["*"]).iter().any(|name| name.starts_with("projects")), "they are the namespaces");
        assert_eq!(names_of(&["projects"]), ["projects.project.openshift.io v1"], "who asks for them gets them");
        let found = select(&[watch(&["events.events.k8s.io"]), watch(&["events"])], &served());
        assert_eq!(names(&found), ["events.events.k8s.io v1"]);
        assert_eq!(found.problems, ["[[watch]] 2: events are watched by [[watch]] 1 already, which counts"]);
    }

    #[test]
    fn the_first_watch_of_an_object_counts() {
        let mut shop = watch(&["pods"]);
        shop.namespaces = vec!["shop".into(), "pay".into()];
        let mut web = watch(&["pods"]);
        web.namespaces = vec!["shop".into(), "web".into()];
        let found = select(&[shop.clone(), web, watch(&["po", "pods"])], &served());
        assert_eq!(names(&found), ["pods/shop v1", "pods/pay v1", "pods/web v1"]);
        assert_eq!(found.problems.len(), 3, "{:?}", found.problems);
        assert_eq!(found.problems[0], "[[watch]] 2: pods in shop are watched by [[watch]] 1 already, which counts");
        assert!(select(&[watch(&["pods", "*", "po"])], &served()).problems.is_empty());
    }

    #[test]
    fn namespaces_are_left_out_of_what_lives_in_any_and_is_watched_in_all() {
        let left_out = |names: &[&str]| names.iter().map(|name| name.parse().unwrap()).collect::<Vec<_>>();
        let mut all = watch(&["pods", "nodes"]);
        all.exclude_namespaces = left_out(&["kube-system", "ci-*", "kube-system"]);
        all.field_selector = "status.phase=Running".into();
        let found = select(std::slice::from_ref(&all), &served()).sources;
        assert_eq!(
            found[0].exclude_namespaces,
            left_out(&["ci-*", "kube-system"]),
            "in any order, any number of times"
        );
        assert_eq!(
            found[0].fields(|_| true),
            "status.phase=Running,metadata.namespace!=ci-*,metadata.namespace!=kube-system"
        );
        assert_eq!(found[0].fields(NamespacePattern::is_name), "status.phase=Running,metadata.namespace!=kube-system");
        assert_eq!(found[1].fields(|_| true), "status.phase=Running", "a node is in no namespace");
        for (namespace, is_left_out) in [("ci-7", true), ("kube-system", true), ("ci", false), ("kube-system2", false)]
        {
            assert_eq!(found[0].leaves_out(namespace), is_left_out, "{namespace}");
        }
        all.namespaces = vec!["shop".into()];
        assert!(select(&[all], &served()).sources.iter().all(|source| source.exclude_namespaces.is_empty()));
    }

    #[test]
    fn namespaces_take_no_cluster_scoped_resources() {
        let mut shop = watch(&["*", "nodes"]);
        shop.namespaces = vec!["shop".into()];
        let found = select(&[shop], &served());
        assert!(found.sources.iter().all(|source| source.resource.namespaced), "{:?}", names(&found));
        assert_eq!(
            found.problems,
            ["[[watch]] 1: nodes are in no namespace and are not watched; give them a [[watch]] without `namespaces`"]
        );
    }

    #[test]
    fn a_name_that_nothing_answers_to_waits_and_gets_what_may_be_meant() {
        let found = select(&[watch(&["deploymnets.apps", "widgets.example.com", "pdos", "*.other.io"])], &served());
        assert!(found.sources.is_empty());
        let waiting: Vec<(&str, Option<&str>)> = found
            .waiting
            .iter()
            .map(|waiting| {
                let WhyWaiting::Unserved { suggestion } = &waiting.why else { panic!("{waiting}") };
                (waiting.name.as_str(), suggestion.as_deref())
            })
            .collect();
        assert_eq!(
            found.waiting[0].to_string(),
            "the API server serves nothing called deploymnets.apps (did you mean deployments.apps?)"
        );
        assert_eq!(
            waiting,
            [
                ("deploymnets.apps", Some("deployments.apps")),
                ("widgets.example.com", None),
                ("pdos", Some("pods")),
                ("*.other.io", None)
            ]
        );
    }

    #[test]
    fn selectors_and_the_rest_come_along() {
        let mut web = watch(&["pods"]);
        web.label_selector = "tier=web".into();
        web.field_selector = "metadata.name=x".into();
        web.first_list = FirstList::Silent;
        web.ignore = vec!["/status".parse().unwrap()];
        let source = select(&[web], &served()).sources.remove(0);
        assert_eq!((source.label_selector.as_str(), source.field_selector.as_str()), ("tier=web", "metadata.name=x"));
        assert!(source.first_list_silent);
        assert_eq!(source.ignore, ["/status"]);
    }
}
