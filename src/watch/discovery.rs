//! Which resources the API server serves.
//!
//! One document holds it all (aggregated discovery); older servers are asked group by group. What cannot be learned
//! for a moment, because an aggregated API is away, is never taken for "not served": the groups in question are
//! *uncertain*, and what was known of them stays. So are all groups of a root (`/api`, `/apis`) that the API server refuses
//! to show: some have nothing there, and some do not for a moment.

use std::collections::BTreeSet;

use bytes::Bytes;
use futures::{StreamExt, stream};
use kube::core::discovery::v2::{APIGroupDiscovery, APIGroupDiscoveryList};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::cluster::{Api, Failure, Fetched};
use crate::model::Resource;

/// What we take, in this order.
const ACCEPT: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,\
                      application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json";
/// Where the core group is shown …
const CORE: &str = "/api";
/// … and all others.
const GROUPS: &str = "/apis";
const PLAIN: &str = "application/json";
/// A document has at most this many bytes: with a thousand CRDs it has a few million.
const LIMIT: usize = 64 << 20;
/// How many groups of an old server are asked at once.
const AT_ONCE: usize = 8;

/// What is served and can be listed and watched.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Discovered {
    /// Every served version of every resource: groups in the API server's order (core first), and within a group
    /// the preferred version first.
    pub served: Vec<Resource>,
    /// Groups that could not be learned, or not recently.
    pub uncertain: BTreeSet<String>,
    /// The root that the API server refuses to show. There seems to be nothing below it, and that is not certain either.
    pub refused: Option<&'static str>,
}

impl Discovered {
    /// One version of each resource: the preferred one.
    #[must_use]
    pub fn preferred(&self) -> Vec<&Resource> {
        let mut seen = BTreeSet::new();
        self.served.iter().filter(|resource| seen.insert((resource.group.as_str(), resource.plural.as_str()))).collect()
    }

    /// Whether this very version is served.
    #[must_use]
    pub fn serves(&self, resource: &Resource) -> bool {
        self.served.iter().any(|other| {
            other.group == resource.group && other.plural == resource.plural && other.version == resource.version
        })
    }

    /// Whether the resource is certainly not served, in any version.
    #[must_use]
    pub fn lacks(&self, resource: &Resource) -> bool {
        !self.is_uncertain(&resource.group)
            && !self.served.iter().any(|other| other.group == resource.group && other.plural == resource.plural)
    }

    fn is_uncertain(&self, group: &str) -> bool {
        self.refused == Some(root(group)) || self.uncertain.contains(group)
    }

    /// Keeps what an earlier answer knew of groups that this one is uncertain about.
    #[must_use]
    pub fn completed_from(mut self, earlier: &Self) -> Self {
        for resource in &earlier.served {
            if self.is_uncertain(&resource.group) && !self.serves(resource) {
                self.uncertain.insert(resource.group.clone());
                self.served.push(resource.clone());
            }
        }
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
                // Served in another version only: that is the one to go on with.
                (Some(_), None) => {}
                (None, _) => result.served.push(resource.clone()),
            }
        }
        result
    }
}

/// Where the API server shows a group.
const fn root(group: &str) -> &'static str {
    if group.is_empty() { CORE } else { GROUPS }
}

/// Asks again only for what has changed since the last time.
#[derive(Debug, Default)]
pub struct Discoverer {
    core: Document,
    groups: Document,
    last: Discovered,
}

#[derive(Debug, Default)]
struct Document {
    etag: Option<String>,
    list: Option<APIGroupDiscoveryList>,
    /// Why there is none.
    refused: Option<Failure>,
}

/// What kind of document came.
#[derive(Deserialize)]
struct Kind {
    #[serde(default)]
    kind: String,
}

fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Failure> {
    serde_json::from_slice(bytes).map_err(|_| Failure::Undecodable("a discovery document cannot be read".to_owned()))
}

impl Document {
    /// Brings the document up to date. `Ok(Some)` is one in the old form.
    async fn fetch(&mut self, api: &Api, path: &str) -> Result<Option<Bytes>, Failure> {
        match api.fetch(path, ACCEPT, LIMIT, self.etag.as_deref()).await {
            Ok(Fetched::Unchanged) if self.list.is_some() => Ok(None),
            Ok(Fetched::Unchanged) => {
                Err(Failure::Undecodable("discovery did not change, but we never had it".to_owned()))
            }
            Ok(Fetched::Whole(bytes, etag)) => {
                if parse::<Kind>(&bytes)?.kind != "APIGroupDiscoveryList" {
                    *self = Self::default();
                    return Ok(Some(bytes));
                }
                *self = Self { list: Some(parse(&bytes)?), etag, refused: None };
                Ok(None)
            }
            Err(failure @ (Failure::Forbidden(_) | Failure::NotFound)) => {
                *self = Self { refused: Some(failure), ..Self::default() };
                Ok(None)
            }
            Err(failure) => Err(failure),
        }
    }

    /// Whether one answer holds it all.
    const fn is_whole(&self) -> bool {
        self.list.is_some() || self.refused.is_some()
    }
}

impl Discoverer {
    /// What is served now.
    ///
    /// # Errors
    /// Where the API server does not answer, or refuses to show anything. A single API that is away is no error.
    pub async fn discover(&mut self, api: &Api) -> Result<Discovered, Failure> {
        let core = self.core.fetch(api, CORE).await?;
        let groups = self.groups.fetch(api, GROUPS).await?;
        let refused = match (&self.core.refused, &self.groups.refused) {
            (Some(failure), Some(_)) => return Err(failure.clone()),
            (Some(_), None) => Some(CORE),
            (None, Some(_)) => Some(GROUPS),
            (None, None) => None,
        };
        let mut found = Discovered { refused, ..Discovered::default() };
        match core {
            Some(bytes) => legacy_core(api, &bytes, &mut found).await?,
            None => aggregated(self.core.list.as_ref(), &mut found),
        }
        match groups {
            Some(bytes) => legacy_groups(api, &bytes, &mut found).await?,
            None => aggregated(self.groups.list.as_ref(), &mut found),
        }
        let found = found.completed_from(&self.last);
        self.last = found.clone();
        Ok(found)
    }

    /// Whether the last answer was one document, so that asking often costs little.
    #[must_use]
    pub const fn is_cheap(&self) -> bool {
        self.core.is_whole() && self.groups.is_whole()
    }
}

fn can_be_followed(verbs: &[String]) -> bool {
    ["list", "watch"].iter().all(|verb| verbs.iter().any(|have| have == verb))
}

fn aggregated(list: Option<&APIGroupDiscoveryList>, into: &mut Discovered) {
    for group in list.iter().flat_map(|list| &list.items) {
        aggregated_group(group, into);
    }
}

fn aggregated_group(group: &APIGroupDiscovery, into: &mut Discovered) {
    let name = group.metadata.as_ref().and_then(|metadata| metadata.name.clone()).unwrap_or_default();
    for version in &group.versions {
        if version.freshness.as_deref() == Some("Stale") {
            into.uncertain.insert(name.clone());
        }
        for resource in version.resources.iter().filter(|resource| can_be_followed(&resource.verbs)) {
            let kind = resource.response_kind.as_ref().and_then(|kind| kind.kind.clone());
            let (Some(plural), Some(version), Some(kind)) = (&resource.resource, &version.version, kind) else {
                continue;
            };
            into.served.push(Resource {
                group: name.clone(),
                version: version.clone(),
                kind,
                plural: plural.clone(),
                singular: resource.singular_resource.clone().unwrap_or_default(),
                short_names: resource.short_names.clone(),
                namespaced: resource.scope.as_deref() == Some("Namespaced"),
            });
        }
    }
}

async fn legacy_core(api: &Api, bytes: &[u8], into: &mut Discovered) -> Result<(), Failure> {
    #[derive(Deserialize)]
    struct Versions {
        #[serde(default)]
        versions: Vec<String>,
    }
    let versions: Versions = parse(bytes)?;
    let wanted = versions.versions.into_iter().map(|version| (String::new(), version)).collect();
    legacy_resources(api, wanted, into).await
}

async fn legacy_groups(api: &Api, bytes: &[u8], into: &mut Discovered) -> Result<(), Failure> {
    #[derive(Deserialize)]
    struct Groups {
        #[serde(default)]
        groups: Vec<Group>,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Group {
        name: String,
        #[serde(default)]
        versions: Vec<Version>,
        preferred_version: Option<Version>,
    }
    #[derive(Deserialize)]
    struct Version {
        version: String,
    }
    let groups: Groups = parse(bytes)?;
    let mut wanted = Vec::new();
    for group in groups.groups {
        let preferred = group.preferred_version.map(|version| version.version);
        let mut versions: Vec<String> = group.versions.into_iter().map(|version| version.version).collect();
        versions.sort_by_key(|version| Some(version) != preferred.as_ref());
        wanted.extend(versions.into_iter().map(|version| (group.name.clone(), version)));
    }
    legacy_resources(api, wanted, into).await
}

async fn legacy_resources(api: &Api, wanted: Vec<(String, String)>, into: &mut Discovered) -> Result<(), Failure> {
    #[derive(Deserialize)]
    struct Resources {
        #[serde(default)]
        resources: Vec<Served>,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Served {
        name: String,
        #[serde(default)]
        singular_name: String,
        #[serde(default)]
        namespaced: bool,
        #[serde(default)]
        kind: String,
        #[serde(default)]
        verbs: Vec<String>,
        #[serde(default)]
        short_names: Vec<String>,
    }
    let answers = stream::iter(wanted.into_iter().map(|(group, version)| async move {
        let path = if group.is_empty() { format!("/api/{version}") } else { format!("/apis/{group}/{version}") };
        let answer = api.get(&path, PLAIN, LIMIT).await.and_then(|bytes| parse::<Resources>(&bytes));
        (group, version, answer)
    }))
    .buffered(AT_ONCE)
    .collect::<Vec<_>>()
    .await;
    for (group, version, answer) in answers {
        let list = match answer {
            Ok(list) => list.resources,
            // Core is served by the API server itself: without it there is no discovery.
            Err(failure) if group.is_empty() => return Err(failure),
            Err(_) => {
                into.uncertain.insert(group);
                continue;
            }
        };
        // A name with a slash is a subresource.
        let whole = list.into_iter().filter(|one| can_be_followed(&one.verbs) && !one.name.contains('/'));
        into.served.extend(whole.map(|one| Resource {
            group: group.clone(),
            version: version.clone(),
            kind: one.kind,
            plural: one.name,
            singular: one.singular_name,
            short_names: one.short_names,
            namespaced: one.namespaced,
        }));
    }
    Ok(())
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
        let mut found = Discovered::default();
        aggregated(Some(&parse(AGGREGATED.as_bytes()).unwrap()), &mut found);
        let names: Vec<String> = found.served.iter().map(|r| format!("{} {}", r.full_name(), r.version)).collect();
        assert_eq!(names, ["deployments.apps v1", "hpas.autoscaling v2", "hpas.autoscaling v1"]);
        assert_eq!(found.preferred().len(), 2, "one version of each");
        assert_eq!(found.served[0].short_names, ["deploy"]);
        assert!(found.served[0].namespaced && !found.served[1].namespaced);
        assert_eq!(found.uncertain, BTreeSet::from(["metrics.k8s.io".to_owned()]));
    }

    #[test]
    fn a_group_that_is_away_is_not_gone() {
        let earlier = Discovered {
            served: vec![resource("a.io", "v1", "as"), resource("b.io", "v1", "bs")],
            ..Discovered::default()
        };
        let now = Discovered { uncertain: BTreeSet::from(["a.io".to_owned()]), ..Discovered::default() }
            .completed_from(&earlier);
        assert_eq!(now.served, [resource("a.io", "v1", "as")]);
        assert!(!now.lacks(&earlier.served[0]) && now.lacks(&earlier.served[1]));
        let never_seen = Discovered { uncertain: now.uncertain.clone(), ..Discovered::default() };
        assert!(!never_seen.lacks(&earlier.served[0]), "what was never learned is not gone either");
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
}
