//! Discovery of the resources that the API server serves.
//!
//! One document holds it all (aggregated discovery); older servers are asked group by group. What cannot be learned
//! for a moment, because an aggregated API is away or its part of the document cannot be read, is never taken for "not
//! served": the groups in question are *uncertain*, and what was known of them stays. So are all groups below a root
//! (`/api`, `/apis`) that does not answer, or that the API server refuses to show.
//!
//! # Decision: discovery is a document of many authors
//!
//! Context: One `null` of one extension makes a typed reader refuse everything.
//! Decision: Each element is read by itself. An unreadable group is uncertain: its known resources stay, in their place of the
//! server's order, and a source ends only if discovery certainly lacks it.
//! Cost: Our own reader.

mod definitions;
mod read;
mod troubles;

use std::collections::{BTreeMap, BTreeSet};
use std::pin::pin;
use std::time::Duration;

use futures::{StreamExt, stream};

pub(super) use definitions::{Pace, watch_definitions};
pub use read::Doubt;
pub use troubles::Trouble;
pub(super) use troubles::Troubles;

use crate::core::model::Resource;
use crate::watch::cluster::{Api, Failure, Fetched};
use read::{Document, Part};

/// Accepted formats, in order of preference.
const ACCEPT: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,\
                      application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json";
/// Root of the core group.
const CORE: &str = "/api";
/// … and all others.
const GROUPS: &str = "/apis";
const PLAIN: &str = "application/json";
/// A document has at most this many bytes: with a thousand CRDs it has a few million.
const LIMIT: usize = 64 << 20;
/// Number of groups of an old server that are requested concurrently.
const AT_ONCE: usize = 8;
/// Time that the answer of one root waits for that of the other.
const OTHER_ROOT_TIMEOUT: Duration = Duration::from_secs(2);

/// Resources that bring other resources, as group and plural.
pub const DEFINITIONS: [(&str, &str); 2] =
    [("apiextensions.k8s.io", "customresourcedefinitions"), ("apiregistration.k8s.io", "apiservices")];

/// Resources that are served and can be listed and watched.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Discovered {
    /// Every served version of every resource: groups in the API server's order (core first), and within a group
    /// the preferred version first.
    pub served: Vec<Resource>,
    /// Resources that are served, and cannot be listed and watched.
    pub unlistable: Vec<Resource>,
    /// Groups that could not be learned, or not recently, and why.
    pub uncertain: BTreeMap<String, Doubt>,
    /// Roots below which there may be groups that the answer does not name.
    pub roots: BTreeMap<&'static str, RootDoubt>,
    /// The groups that the answer names.
    pub(crate) answered: BTreeSet<String>,
    /// Groups with resources whose names cannot be read.
    pub(crate) nameless: BTreeSet<String>,
}

/// Reason for which there may be more below a root than the answer says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RootDoubt {
    /// The reason, as the end of a sentence.
    pub why: String,
    /// The API server says that it has nothing there, which some have not.
    absent: bool,
}

impl Discovered {
    /// Returns what the journal knows of, where discovery has not answered yet: nothing of it is certain.
    #[must_use]
    pub fn remembered(resources: &[Resource]) -> Self {
        let silent = || RootDoubt { why: "the API server has not shown it yet".to_owned(), absent: false };
        let roots = BTreeMap::from([(CORE, silent()), (GROUPS, silent())]);
        let earlier = Self { served: resources.to_vec(), ..Self::default() };
        Self { roots, ..Self::default() }.completed_from(&earlier)
    }

    /// One version of each resource: the preferred one.
    #[must_use]
    pub fn preferred(&self) -> Vec<&Resource> {
        let mut seen = BTreeSet::new();
        self.served.iter().filter(|resource| seen.insert((resource.group.as_str(), resource.plural.as_str()))).collect()
    }

    /// Reports whether this very version is served.
    #[must_use]
    pub fn serves(&self, resource: &Resource) -> bool {
        self.served.iter().any(|other| {
            other.group == resource.group && other.plural == resource.plural && other.version == resource.version
        })
    }

    /// Reports whether the resource is certainly not served, in any version.
    #[must_use]
    pub fn lacks(&self, resource: &Resource) -> bool {
        self.doubt(&resource.group).is_none()
            && !self.served.iter().any(|other| other.group == resource.group && other.plural == resource.plural)
    }

    /// Returns why it is not known what there is of a group, as the end of a sentence.
    #[must_use]
    pub fn doubt(&self, group: &str) -> Option<&str> {
        let of_group = self.uncertain.get(group).map(|doubt| doubt.why.as_str());
        let of_root = || {
            let doubt = self.roots.get(root(group)).filter(|_| !self.answered.contains(group));
            doubt.map(|doubt| doubt.why.as_str())
        };
        let nameless = || self.nameless.contains(group).then_some("the name of one of its resources cannot be read");
        of_group.or_else(of_root).or_else(nameless)
    }

    /// The groups of which something is not known, as far as they have a name.
    pub(super) fn doubtful(&self) -> impl Iterator<Item = &str> {
        self.uncertain.keys().chain(&self.nameless).map(String::as_str)
    }

    fn is_uncertain(&self, resource: &Resource) -> bool {
        let of_root = self.roots.contains_key(root(&resource.group)) && !self.answered.contains(&resource.group);
        of_root || self.uncertain.get(&resource.group).is_some_and(|doubt| doubt.is_about(&resource.version))
    }

    /// Keeps what an earlier answer knew of groups that this one is uncertain about, in the order of that answer: among
    /// resources of one name the first group counts.
    #[must_use]
    pub fn completed_from(mut self, earlier: &Self) -> Self {
        let kept = earlier.served.iter().filter(|resource| self.is_uncertain(resource) && !self.serves(resource));
        let kept: Vec<Resource> = kept.cloned().collect();
        let mut groups = names(&self.served);
        let before = names(&earlier.served);
        for resource in &kept {
            if !self.answered.contains(&resource.group)
                && let Some(root) = self.roots.get(root(&resource.group))
            {
                let doubt = || Doubt::of_group(&root.why, true);
                self.uncertain.entry(resource.group.clone()).or_insert_with(doubt);
            }
            if !groups.contains(&resource.group) {
                let preceding = before.iter().take_while(|group| **group != resource.group);
                let after = preceding.filter_map(|group| groups.iter().position(|known| known == group)).last();
                groups.insert(after.map_or(0, |at| at + 1), resource.group.clone());
            }
        }
        self.served.extend(kept);
        let place = |resource: &Resource| groups.iter().position(|group| *group == resource.group);
        self.served.sort_by_key(|resource| (!resource.group.is_empty(), place(resource)));
        self
    }

    /// Keeps a version in use in front of the others while it is served, and a resource in use in the list even if
    /// it is not served any more: its source finds that out for itself.
    #[must_use]
    pub fn with_in_use<'a>(&self, in_use: impl IntoIterator<Item = &'a Resource>) -> Self {
        let mut result = self.clone();
        for resource in in_use {
            let same = |other: &Resource| other.group == resource.group && other.plural == resource.plural;
            let first = result.served.iter().position(same);
            let ours = result.served.iter().position(|other| same(other) && other.version == resource.version);
            match (first, ours) {
                (Some(first), Some(ours)) => result.served.swap(first, ours),
                (Some(first), None) if result.is_uncertain(resource) => result.served.insert(first, resource.clone()),
                // Served in another version only: that is the one to go on with.
                (Some(_), None) => {}
                (None, _) => result.served.push(resource.clone()),
            }
        }
        result
    }
}

/// The groups of these resources, each once.
fn names(resources: &[Resource]) -> Vec<String> {
    let mut seen = BTreeSet::new();
    resources.iter().filter(|resource| seen.insert(&resource.group)).map(|resource| resource.group.clone()).collect()
}

/// Returns the path of a group's root.
const fn root(group: &str) -> &'static str {
    if group.is_empty() { CORE } else { GROUPS }
}

/// Asks again only for what has changed since the last time.
#[derive(Debug)]
pub struct Discoverer {
    core: Root,
    groups: Root,
    last: Discovered,
    /// There was an answer.
    answered: bool,
}

impl Default for Discoverer {
    fn default() -> Self {
        Self { core: Root::new(CORE), groups: Root::new(GROUPS), last: Discovered::default(), answered: false }
    }
}

/// One of the two places where discovery begins.
#[derive(Debug)]
struct Root {
    path: &'static str,
    /// ETag of the document that `part` was read from.
    etag: Option<String>,
    part: Option<Part>,
    /// The last answer was in the old form.
    legacy: bool,
}

impl Root {
    const fn new(path: &'static str) -> Self {
        Self { path, etag: None, part: None, legacy: false }
    }

    /// Brings what is known of this root up to date.
    async fn look(&mut self, api: &Api) -> Result<Part, Failure> {
        let mut failure = None;
        // Some servers refuse to read what we would rather have, and others write it wrong.
        for accept in [ACCEPT, PLAIN] {
            let known = self.etag.take().filter(|_| self.part.is_some());
            match api.fetch(self.path, accept, LIMIT, known.as_deref()).await {
                Ok(Fetched::Unchanged) if known.is_some() => {
                    self.etag = known;
                    return Ok(self.part.clone().unwrap_or_default());
                }
                Ok(Fetched::Unchanged) => failure = failure.or(Some(self.unreadable())),
                Ok(Fetched::Whole(bytes, etag)) => match Document::read(&bytes, self.path == CORE) {
                    Document::Aggregated(part) => {
                        *self = Self { etag, part: Some(part.clone()), ..Self::new(self.path) };
                        return Ok(part);
                    }
                    Document::Legacy(mut part, wanted) => {
                        *self = Self { legacy: true, ..Self::new(self.path) };
                        legacy_resources(api, wanted, &mut part).await;
                        return Ok(part);
                    }
                    Document::Unreadable => failure = failure.or(Some(self.unreadable())),
                },
                Err(refused @ (Failure::Refused(_) | Failure::Undecodable(_))) => failure = failure.or(Some(refused)),
                Err(other) => {
                    *self = Self::new(self.path);
                    return Err(failure.unwrap_or(other));
                }
            }
            self.part = None;
        }
        *self = Self::new(self.path);
        Err(failure.unwrap_or(Failure::NotFound))
    }

    fn unreadable(&self) -> Failure {
        Failure::Undecodable(format!("the API server answers at {} with no discovery document", self.path))
    }
}

/// Answer of one root; nothing where it has not answered.
type Looked = Option<Result<Part, Failure>>;

impl Discoverer {
    /// Returns one that knows what an earlier one, or the journal, knew.
    #[must_use]
    pub fn remembering(last: Discovered) -> Self {
        Self { last, ..Self::default() }
    }

    /// Requests the served resources.
    ///
    /// # Errors
    /// Where the API server does not answer, or refuses to show anything. A single API that is away is no error.
    pub async fn discover(&mut self, api: &Api) -> Result<Discovered, Failure> {
        self.discover_by_halves(api, |_| {}).await
    }

    /// Discovers as [`Discoverer::discover`] does. If one root has answered for the first time and the other is slow, `half`
    /// gets the result so far.
    pub(super) async fn discover_by_halves(
        &mut self,
        api: &Api,
        half: impl Fn(&Discovered),
    ) -> Result<Discovered, Failure> {
        let Self { core, groups, last, answered } = self;
        let (mut of_core, mut of_groups): (Looked, Looked) = (None, None);
        {
            let (mut core, mut groups) = (pin!(core.look(api)), pin!(groups.look(api)));
            let mut late = pin!(tokio::time::sleep(OTHER_ROOT_TIMEOUT));
            let mut said = *answered;
            while of_core.is_none() || of_groups.is_none() {
                let waits = !said && (of_core.is_some() || of_groups.is_some());
                tokio::select! {
                    biased;
                    found = &mut core, if of_core.is_none() => of_core = Some(found),
                    found = &mut groups, if of_groups.is_none() => of_groups = Some(found),
                    () = &mut late, if waits => {
                        said = true;
                        if matches!((&of_core, &of_groups), (Some(Ok(_)), _) | (_, Some(Ok(_)))) {
                            half(&together(&of_core, &of_groups).completed_from(last));
                        }
                    }
                }
            }
        }
        if let (Some(Err(failure)), Some(Err(_))) = (&of_core, &of_groups) {
            return Err(failure.clone());
        }
        let found = together(&of_core, &of_groups).completed_from(last);
        (*last, *answered) = (found.clone(), true);
        Ok(found)
    }

    /// Reports whether the last answer was one document, so that frequent requests are cheap.
    #[must_use]
    pub const fn is_cheap(&self) -> bool {
        !self.core.legacy && !self.groups.legacy
    }
}

/// Puts together the answers of both roots.
fn together(core: &Looked, groups: &Looked) -> Discovered {
    let mut found = Discovered::default();
    for (path, looked) in [(CORE, core), (GROUPS, groups)] {
        match looked {
            Some(Ok(part)) => {
                found.served.extend(part.served.iter().cloned());
                found.unlistable.extend(part.unlistable.iter().cloned());
                found.answered.extend(part.answered.iter().cloned());
                found.nameless.extend(part.nameless.iter().cloned());
                let doubts = part.doubts.iter().map(|(group, doubt)| (group.clone(), doubt.clone()));
                found.uncertain.extend(doubts);
                if let Some(why) = &part.unnamed {
                    found.roots.insert(path, RootDoubt { why: why.clone(), absent: false });
                }
            }
            Some(Err(failure)) => {
                let absent = matches!(failure, Failure::NotFound);
                found.roots.insert(path, RootDoubt { why: failure.to_string(), absent });
            }
            None => {
                let why = "the API server does not answer there".to_owned();
                found.roots.insert(path, RootDoubt { why, absent: false });
            }
        }
    }
    found
}

/// Asks for the resources of each version by itself. One that cannot be had is uncertain.
async fn legacy_resources(api: &Api, wanted: Vec<(String, String)>, into: &mut Part) {
    let answers = stream::iter(wanted.into_iter().map(|(group, version)| async move {
        let path = if group.is_empty() { format!("/api/{version}") } else { format!("/apis/{group}/{version}") };
        let answer = api.fetch(&path, PLAIN, LIMIT, None).await;
        (group, version, answer)
    }))
    .buffered(AT_ONCE)
    .collect::<Vec<_>>()
    .await;
    for (group, version, answer) in answers {
        match answer {
            Ok(Fetched::Whole(bytes, _)) => read::legacy_resources(&bytes, &group, &version, into),
            Ok(Fetched::Unchanged) => into.fails(&group, &version, "its resources cannot be read"),
            Err(failure) => into.fails(&group, &version, &failure.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resource(group: &str, version: &str, plural: &str) -> Resource {
        Resource {
            group: group.into(),
            version: version.into(),
            kind: plural.to_uppercase(),
            plural: plural.into(),
            singular: String::new(),
            short_names: vec![],
            namespaced: true,
        }
    }

    const AGGREGATED: &str = r#"{"kind":"APIGroupDiscoveryList","apiVersion":"apidiscovery.k8s.io/v2","metadata":{},"items":[
      {"metadata":{"name":"apps","creationTimestamp":null},"versions":[{"version":"v1","freshness":"Current","resources":[
        {"resource":"deployments","responseKind":{"group":"apps","version":"v1","kind":"Deployment"},"scope":"Namespaced","singularResource":"deployment","verbs":["get","list","watch"],"shortNames":["deploy"],
         "subresources":[{"subresource":"status","responseKind":{"group":"apps","version":"v1","kind":"Deployment"},"verbs":["get","list","watch"]}]}]}]},
      {"metadata":{"name":"metrics.k8s.io"},"versions":[{"version":"v1beta1","freshness":"Stale","resources":[]}]},
      {"metadata":{"name":"autoscaling"},"versions":[
        {"version":"v2","freshness":"Current","resources":[{"resource":"hpas","responseKind":{"group":"autoscaling","version":"v2","kind":"Hpa"},"scope":"Cluster","verbs":["list","watch"]}]},
        {"version":"v1","freshness":"Current","resources":[{"resource":"hpas","responseKind":{"group":"autoscaling","version":"v1","kind":"Hpa"},"scope":"Cluster","verbs":["list","watch"]},
          {"resource":"reviews","responseKind":{"group":"autoscaling","version":"v1","kind":"Review"},"scope":"Cluster","verbs":["create"]}]}]}]}"#;

    #[test]
    fn one_document_says_what_can_be_followed() {
        let Document::Aggregated(part) = Document::read(AGGREGATED.as_bytes(), false) else { panic!("it is one") };
        let found = together(&None, &Some(Ok(part)));
        let names: Vec<String> = found.served.iter().map(|r| format!("{} {}", r.full_name(), r.version)).collect();
        assert_eq!(names, ["deployments.apps v1", "hpas.autoscaling v2", "hpas.autoscaling v1"]);
        assert_eq!(found.preferred().len(), 2, "one version of each");
        assert_eq!(found.served[0].short_names, ["deploy"]);
        assert!(found.served[0].namespaced && !found.served[1].namespaced);
        assert!(found.uncertain.keys().eq(["metrics.k8s.io"]), "{:?}", found.uncertain);
        let others: Vec<String> = found.unlistable.iter().map(Resource::full_name).collect();
        assert_eq!(others, ["reviews.autoscaling"], "it is served, and cannot be followed");
    }

    /// An answer that does not know these groups.
    fn uncertain_of(groups: &[&str]) -> Discovered {
        let doubts = groups.iter().map(|group| ((*group).to_owned(), Doubt::of_group("it is away", false)));
        Discovered { uncertain: doubts.collect(), ..Discovered::default() }
    }

    #[test]
    fn a_group_that_is_away_is_not_gone() {
        let earlier = Discovered {
            served: vec![resource("a.io", "v1", "as"), resource("b.io", "v1", "bs")],
            ..Discovered::default()
        };
        let now = uncertain_of(&["a.io"]).completed_from(&earlier);
        assert_eq!(now.served, [resource("a.io", "v1", "as")]);
        assert!(!now.lacks(&earlier.served[0]) && now.lacks(&earlier.served[1]));
        let never_seen = uncertain_of(&["a.io"]);
        assert!(!never_seen.lacks(&earlier.served[0]), "what was never learned is not gone either");
    }

    /// Among resources of one name the first group counts, and which is the first does not change with a moment's doubt.
    #[test]
    fn what_is_kept_stays_in_its_place() {
        let all = ["", "a.io", "b.io", "c.io", "d.io"].map(|group| resource(group, "v1", "things"));
        let earlier = Discovered { served: all.to_vec(), ..Discovered::default() };
        for away in [
            vec!["a.io"],
            vec!["b.io", "c.io"],
            vec!["d.io"],
            vec!["", "a.io"],
            vec!["", "a.io", "b.io", "c.io", "d.io"],
        ] {
            let left = all.iter().filter(|one| !away.contains(&one.group.as_str())).cloned().collect();
            let now = Discovered { served: left, ..uncertain_of(&away) }.completed_from(&earlier);
            assert_eq!(now.served, all, "without {away:?}");
        }
    }

    #[test]
    fn a_version_in_use_is_kept_while_it_is_served() {
        let both = Discovered {
            served: vec![resource("a.io", "v2", "as"), resource("a.io", "v1", "as")],
            ..Discovered::default()
        };
        let old = resource("a.io", "v1", "as");
        assert_eq!(both.with_in_use([&old]).preferred(), [&old]);
        let only_new = Discovered { served: vec![resource("a.io", "v2", "as")], ..Discovered::default() };
        assert_eq!(only_new.with_in_use([&old]).preferred(), [&resource("a.io", "v2", "as")]);
        assert_eq!(Discovered::default().with_in_use([&old]).preferred(), [&old], "its source finds out for itself");
    }

    /// A version in use that cannot be learned now is no reason to go on with another one.
    #[test]
    fn a_version_in_use_is_kept_while_it_is_uncertain() {
        let served = vec![resource("a.io", "v2", "as")];
        let old = resource("a.io", "v1", "as");
        let whole = Discovered { served, ..uncertain_of(&["a.io"]) };
        assert_eq!(whole.with_in_use([&old]).preferred(), [&old]);
    }
}
