//! Discovery: what is served, in the aggregated form and in the old one.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use serde_json::{Value, json};

use super::Settings;
use super::resources::Served;

/// The media type of aggregated discovery.
pub(super) const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

/// Whether the client takes aggregated discovery.
pub(super) fn wants_aggregated(accept: &str) -> bool {
    accept.split(',').any(|offer| {
        let has = |part: &str| offer.split(';').any(|p| p.trim() == part);
        has("as=APIGroupDiscoveryList") && has("g=apidiscovery.k8s.io") && has("v=v2")
    })
}

type Versions<'a> = Vec<(&'a str, Vec<&'a Served>)>;

/// Groups in the order that they are served; versions inside of them, the newest first.
fn groups(served: &[Arc<Served>]) -> Vec<(&str, Versions<'_>)> {
    let mut names: Vec<&str> = Vec::new();
    let mut groups: BTreeMap<&str, Versions<'_>> = BTreeMap::new();
    for one in served {
        let (group, version) = (one.resource.group.as_str(), one.resource.version.as_str());
        if !names.contains(&group) {
            names.push(group);
        }
        let versions = groups.entry(group).or_default();
        match versions.iter_mut().find(|(name, _)| *name == version) {
            Some((_, resources)) => resources.push(one),
            None => versions.push((version, vec![one])),
        }
    }
    for versions in groups.values_mut() {
        versions.sort_by_key(|(version, _)| std::cmp::Reverse(priority(version)));
    }
    names.into_iter().map(|name| (name, groups.remove(name).unwrap_or_default())).collect()
}

/// Kubernetes' order of versions: v2, v1, v2beta1, v1beta1, v1alpha1.
fn priority(version: &str) -> (u8, u32, u32) {
    let mut numbers = version.split(|c: char| !c.is_ascii_digit()).filter(|part| !part.is_empty());
    let mut number = || numbers.next().and_then(|part| part.parse().ok()).unwrap_or(0);
    let stability = if version.contains("alpha") { 0 } else { 2 - u8::from(version.contains("beta")) };
    (stability, number(), number())
}

/// What the document of a root is of: it changes where the document does. The real server takes a hash of the document too.
pub(super) fn etag(served: &[Arc<Served>], root: &str, settings: &Settings) -> String {
    let mut hasher = DefaultHasher::new();
    (root, &settings.stale_groups).hash(&mut hasher);
    settings.more_groups.iter().for_each(|forms| forms[0].to_string().hash(&mut hasher));
    served.iter().for_each(|one| one.hash(&mut hasher));
    format!("\"{:016X}\"", hasher.finish())
}

/// `/api` or `/apis` in one document.
pub(super) fn aggregated(served: &[Arc<Served>], core: bool, settings: &Settings) -> Value {
    let stale = &settings.stale_groups;
    let more = settings.more_groups.iter().filter(|_| !core).map(|[aggregated, _]| aggregated.clone());
    let items = groups(served).into_iter().filter(|(group, _)| group.is_empty() == core).map(|(group, versions)| {
        let freshness = if stale.contains(group) { "Stale" } else { "Current" };
        let versions: Vec<Value> = versions
            .iter()
            .map(|(version, resources)| {
                let resources: Vec<Value> = resources.iter().map(|one| aggregated_resource(one)).collect();
                json!({ "version": version, "resources": resources, "freshness": freshness })
            })
            .collect();
        json!({ "metadata": { "name": group, "creationTimestamp": null }, "versions": versions })
    });
    let items: Vec<Value> = more.chain(items).collect();
    json!({ "kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}, "items": items })
}

fn aggregated_resource(served: &Served) -> Value {
    let resource = &served.resource;
    let kind = json!({ "group": resource.group, "version": resource.version, "kind": resource.kind });
    let mut value = json!({
        "resource": resource.plural,
        "responseKind": kind,
        "scope": if resource.namespaced { "Namespaced" } else { "Cluster" },
        "singularResource": resource.singular,
        "verbs": served.verbs,
    });
    if !resource.short_names.is_empty() {
        value["shortNames"] = json!(resource.short_names);
    }
    if !served.categories.is_empty() {
        value["categories"] = json!(served.categories);
    }
    if !served.subresources.is_empty() {
        let subresource =
            |name: &&str| json!({ "subresource": name, "responseKind": kind, "verbs": ["get", "patch", "update"] });
        value["subresources"] = served.subresources.iter().map(subresource).collect();
    }
    value
}

/// `/api` in the old form.
pub(super) fn core_versions(address: &str) -> Value {
    json!({
        "kind": "APIVersions",
        "versions": ["v1"],
        "serverAddressByClientCIDRs": [{ "clientCIDR": "0.0.0.0/0", "serverAddress": address }],
    })
}

/// `/apis` in the old form. A stale group is there all the same: only its resources can not be had.
pub(super) fn group_list(served: &[Arc<Served>], settings: &Settings) -> Value {
    let more = settings.more_groups.iter().map(|[_, legacy]| legacy.clone());
    let groups = groups(served);
    let list = groups.iter().filter(|(group, _)| !group.is_empty()).map(|(name, v)| group_value(name, v));
    let list: Vec<Value> = more.chain(list).collect();
    json!({ "kind": "APIGroupList", "apiVersion": "v1", "groups": list })
}

/// `/apis/GROUP`.
pub(super) fn group(served: &[Arc<Served>], name: &str) -> Option<Value> {
    let all = groups(served);
    let (name, versions) = all.iter().find(|(group, _)| *group == name && !group.is_empty())?;
    let mut value = group_value(name, versions);
    value["kind"] = "APIGroup".into();
    value["apiVersion"] = "v1".into();
    Some(value)
}

fn group_value(name: &str, versions: &Versions<'_>) -> Value {
    let version = |v: &str| json!({ "groupVersion": format!("{name}/{v}"), "version": v });
    json!({
        "name": name,
        "versions": versions.iter().map(|(v, _)| version(v)).collect::<Vec<_>>(),
        "preferredVersion": versions.first().map(|(v, _)| version(v)),
    })
}

/// `/api/v1` and `/apis/GROUP/VERSION`.
pub(super) fn resource_list(served: &[Arc<Served>], group: &str, version: &str) -> Option<Value> {
    let mut list = Vec::new();
    for one in served.iter().filter(|s| s.resource.group == group && s.resource.version == version) {
        let resource = &one.resource;
        let mut value = json!({
            "name": resource.plural,
            "singularName": resource.singular,
            "namespaced": resource.namespaced,
            "kind": resource.kind,
            "verbs": one.verbs,
        });
        if !resource.short_names.is_empty() {
            value["shortNames"] = json!(resource.short_names);
        }
        if !one.categories.is_empty() {
            value["categories"] = json!(one.categories);
        }
        list.push(value);
        list.extend(one.subresources.iter().map(|subresource| {
            json!({
                "name": format!("{}/{subresource}", resource.plural),
                "singularName": "",
                "namespaced": resource.namespaced,
                "kind": resource.kind,
                "verbs": ["get", "patch", "update"],
            })
        }));
    }
    if list.is_empty() {
        return None;
    }
    let version = if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") };
    Some(json!({ "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": version, "resources": list }))
}
