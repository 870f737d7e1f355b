//! The smallest audit policy.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use clap::{Args, ValueEnum};

use crate::watch;
use crate::watch::discovery::Discovered;
use crate::watch::select::{resolve, select};

/// Arguments of `decklog audit policy`.
#[derive(Args, Debug)]
pub struct PolicyArgs {
    /// How much the API server writes of each request
    #[arg(long, value_name = "LEVEL", default_value = "Metadata", ignore_case = true)]
    pub level: Level,
}

/// Level of an audit policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Level {
    /// User, agent, address, and the object's name
    #[value(name = "Metadata")]
    Metadata,
    /// Bodies too, so that the answer proves the version; of Secrets, ConfigMaps and tokens none
    #[value(name = "RequestResponse")]
    RequestResponse,
}

impl Level {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Metadata => "Metadata",
            Self::RequestResponse => "RequestResponse",
        }
    }
}

/// Plural names by group; the name `*` stands for all of the group.
type Rules = BTreeMap<String, BTreeSet<String>>;

/// Resources whose bodies hold credentials.
const CONFIDENTIAL: [(&str, &[&str]); 2] =
    [("", &["configmaps", "secrets"]), ("authentication.k8s.io", &["tokenreviews"])];
/// Subresources that change no object, by the resources that have them.
const CONNECTIONS: [&str; 8] = [
    "pods/exec",
    "pods/attach",
    "pods/portforward",
    "pods/proxy",
    "pods/log",
    "services/proxy",
    "nodes/proxy",
    "serviceaccounts/token",
];
/// Definitions of resources, which take their objects with them.
const DEFINITIONS: (&str, &str) = ("apiextensions.k8s.io", "customresourcedefinitions");

/// Resources that the policy is about.
#[derive(Debug, Default, PartialEq, Eq)]
struct Audited {
    /// Every resource of every group.
    everything: bool,
    /// In all namespaces.
    everywhere: Rules,
    /// By the namespaces that they are watched in.
    namespaces: BTreeMap<Vec<String>, Rules>,
    /// Those which a wildcard covers, and nothing watches.
    excluded: Rules,
    /// Names that the cluster does not serve.
    unknown: BTreeSet<String>,
}

fn audited(watches: &[watch::Settings], discovered: &Discovered) -> Audited {
    let mut audited = Audited::default();
    let watched = select(watches, discovered).sources;
    let is_watched = |group: &str, plural: &str| {
        watched.iter().any(|source| source.resource.group == group && source.resource.plural == plural)
    };
    for watch in watches {
        let mut rules = Rules::new();
        for name in &watch.resources {
            let (plural, group) = name.split_once('.').unwrap_or((name, ""));
            let found = resolve(name, discovered);
            if plural == "*" && matches!(name.as_str(), "*" | "*.*") {
                // A list of groups would leave out those to come.
                rules.insert("*".to_owned(), BTreeSet::new());
            } else if plural == "*" {
                rules.entry(group.to_owned()).or_default().insert("*".to_owned());
            } else if found.is_empty() {
                audited.unknown.insert(name.clone());
                rules.entry(group.to_owned()).or_default().insert(plural.to_owned());
            }
            for resource in found.into_iter().filter(|_| plural != "*") {
                rules.entry(resource.group.clone()).or_default().insert(resource.plural.clone());
            }
        }
        for name in &watch.exclude {
            let excluded = resolve(name, discovered).into_iter();
            for resource in excluded.filter(|resource| !is_watched(&resource.group, &resource.plural)) {
                audited.excluded.entry(resource.group.clone()).or_default().insert(resource.plural.clone());
            }
        }
        let everything = rules.remove("*").is_some();
        if watch.namespaces.is_empty() {
            audited.everything |= everything;
            merge(&mut audited.everywhere, rules);
        } else {
            let mut names = watch.namespaces.clone();
            names.sort();
            let of_names = audited.namespaces.entry(names).or_default();
            if everything {
                of_names.insert("*".to_owned(), BTreeSet::new());
            }
            merge(of_names, rules);
        }
    }
    if audited.everything {
        audited.everywhere.clear();
        audited.namespaces.clear();
    }
    audited
}

fn merge(into: &mut Rules, rules: Rules) {
    for (group, plurals) in rules {
        let all = into.entry(group).or_default();
        all.extend(plurals);
        if all.contains("*") {
            all.retain(|plural| plural == "*");
        }
    }
}

/// Writes the policy, and gives the names that the cluster does not serve.
pub(super) fn policy(watches: &[watch::Settings], discovered: &Discovered, level: Level) -> (String, BTreeSet<String>) {
    let audited = audited(watches, discovered);
    let mut out = String::from(
        "# The smallest audit policy that lets decklog name who changes what its configuration watches: a file for the flag\n\
         # --audit-policy-file of each kube-apiserver; `decklog audit setup` prints the others. Rules of your own go before the\n\
         # last one. Leave out no user: one who is missing makes the others doubtful.\n\
         apiVersion: audit.k8s.io/v1\nkind: Policy\nomitStages: [RequestReceived, ResponseStarted]\nrules:\n\
         # Reads change nothing,\n- level: None\n  verbs: [get, list, watch]\n\
         # nor does what is sent through a Pod, a Service or a Node, or a token.\n",
    );
    rule(&mut out, "None", &[], &[], &Rules::from([(String::new(), CONNECTIONS.map(str::to_owned).into())]));
    if !audited.excluded.is_empty() {
        out.push_str("# Nothing watches these.\n");
        rule(&mut out, "None", &[], &[], &with_subresources(&audited.excluded));
    }
    let everything = || Rules::from([("*".to_owned(), BTreeSet::new())]);
    let all = audited.everything.then(|| (&[][..], everything()));
    let everywhere = (!audited.everywhere.is_empty()).then(|| (&[][..], audited.everywhere.clone()));
    let some = audited.namespaces.iter().map(|(names, rules)| (&names[..], rules.clone()));
    let scopes: Vec<(&[String], Rules)> = all.into_iter().chain(everywhere).chain(some).collect();
    if level == Level::RequestResponse {
        out.push_str("# No body of these, which hold credentials.\n");
        for (namespaces, rules) in &scopes {
            let confidential = confidential(rules);
            if !confidential.is_empty() {
                rule(&mut out, "Metadata", &[], namespaces, &confidential);
            }
        }
    }
    for (namespaces, rules) in &scopes {
        rule(&mut out, level.as_str(), &[], namespaces, &with_subresources(rules));
    }
    if !audited.everything {
        out.push_str("# A definition that is deleted takes its objects with it.\n");
        let (group, plural) = DEFINITIONS;
        let definitions = Rules::from([(group.to_owned(), BTreeSet::from([plural.to_owned()]))]);
        rule(&mut out, "Metadata", &["delete"], &[], &definitions);
        out.push_str("- level: None\n");
    }
    (out, audited.unknown)
}

/// Those of the resources whose bodies hold credentials.
fn confidential(rules: &Rules) -> Rules {
    let mut found = Rules::new();
    for (group, plurals) in CONFIDENTIAL {
        for plural in plurals {
            let has = |names: &BTreeSet<String>| names.contains("*") || names.contains(*plural);
            if rules.contains_key("*") || rules.get(group).is_some_and(has) {
                found.entry(group.to_owned()).or_default().insert((*plural).to_owned());
            }
        }
    }
    found
}

/// The resources and what is below them: a policy's `pods` is no `pods/eviction`.
fn with_subresources(rules: &Rules) -> Rules {
    let names = |plurals: &BTreeSet<String>| {
        let below = plurals.iter().filter(|plural| *plural != "*").map(|plural| format!("{plural}/*"));
        plurals.iter().cloned().chain(below).collect()
    };
    rules.iter().map(|(group, plurals)| (group.clone(), names(plurals))).collect()
}

fn rule(out: &mut String, level: &str, verbs: &[&str], namespaces: &[String], rules: &Rules) {
    let listed = |names: &mut dyn Iterator<Item = String>| names.collect::<Vec<_>>().join(", ");
    writeln!(out, "- level: {level}").expect("a String takes all text");
    if !verbs.is_empty() {
        writeln!(out, "  verbs: [{}]", verbs.join(", ")).expect("a String takes all text");
    }
    if !namespaces.is_empty() {
        let names = listed(&mut namespaces.iter().map(|name| format!("{name:?}")));
        writeln!(out, "  namespaces: [{names}]").expect("a String takes all text");
    }
    if rules.contains_key("*") {
        return;
    }
    out.push_str("  resources:\n");
    for (group, plurals) in rules {
        let names = listed(&mut plurals.iter().map(|plural| format!("{plural:?}")));
        // A group without names is all of it.
        let resources = if plurals.contains("*") { String::new() } else { format!(", resources: [{names}]") };
        writeln!(out, "  - {{group: {group:?}{resources}}}").expect("a String takes all text");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::cli::rbac::tests::discovered;

    fn served() -> Discovered {
        discovered(&[
            ("", "Pod", "pods", true),
            ("", "Secret", "secrets", true),
            ("", "Event", "events", true),
            ("apps", "Deployment", "deployments", true),
            ("example.com", "Widget", "widgets", true),
        ])
    }

    /// The rules of a policy after those that leave out reads and connections: level, verbs, namespaces and resources, or `*`.
    fn rules(watches: &[watch::Settings], level: Level) -> Vec<String> {
        let (text, _) = policy(watches, &served(), level);
        let policy: serde_json::Value = serde_yaml_ng::from_str(&text).unwrap();
        let words = |value: &serde_json::Value| {
            let words = value.as_array().into_iter().flatten().filter_map(serde_json::Value::as_str);
            words.collect::<Vec<_>>().join(",")
        };
        let rules = policy["rules"].as_array().unwrap().iter().skip(2);
        rules
            .map(|rule| {
                let groups = rule["resources"].as_array().into_iter().flatten();
                let groups = groups.map(|of| format!("{}:{}", of["group"].as_str().unwrap(), words(&of["resources"])));
                let parts = [
                    rule["level"].as_str().unwrap().to_owned(),
                    words(&rule["verbs"]),
                    words(&rule["namespaces"]),
                    groups.collect::<Vec<_>>().join(" "),
                ];
                parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(" | ")
            })
            .collect()
    }

    fn watch(resources: &[&str], namespaces: &[&str], exclude: &[&str]) -> watch::Settings {
        let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        watch::Settings {
            resources: owned(resources),
            namespaces: owned(namespaces),
            exclude: owned(exclude),
            ..watch::Settings::default()
        }
    }

    const DEFINITION: &str = "Metadata | delete | apiextensions.k8s.io:customresourcedefinitions";

    #[test]
    fn a_policy_has_what_is_watched_and_nothing_else() {
        for (watches, level, expected) in [
            (
                vec![watch(&["pods", "Deployment"], &[], &[])],
                Level::Metadata,
                &["Metadata | :pods,pods/* apps:deployments,deployments/*", DEFINITION, "None"][..],
            ),
            (vec![watch(&["*"], &[], &[])], Level::Metadata, &["Metadata"]),
            (vec![watch(&["*"], &[], &["events"])], Level::Metadata, &["None | :events,events/*", "Metadata"]),
            // Another table takes it.
            (vec![watch(&["*"], &[], &["events"]), watch(&["events"], &[], &[])], Level::Metadata, &["Metadata"]),
            (
                vec![watch(&["*.example.com", "later.example.com", "soon.example.org"], &[], &[])],
                Level::Metadata,
                &["Metadata | example.com: example.org:soon,soon/*", DEFINITION, "None"],
            ),
            (
                vec![watch(&["pods"], &["shop", "123"], &[]), watch(&["deployments"], &[], &[])],
                Level::Metadata,
                &[
                    "Metadata | apps:deployments,deployments/*",
                    "Metadata | 123,shop | :pods,pods/*",
                    DEFINITION,
                    "None",
                ],
            ),
            (vec![watch(&["*"], &["shop"], &[])], Level::Metadata, &["Metadata | shop", DEFINITION, "None"]),
            (
                vec![watch(&["secrets", "pods"], &[], &[])],
                Level::RequestResponse,
                &["Metadata | :secrets", "RequestResponse | :pods,pods/*,secrets,secrets/*", DEFINITION, "None"],
            ),
            (
                vec![watch(&["*"], &[], &[])],
                Level::RequestResponse,
                &["Metadata | :configmaps,secrets authentication.k8s.io:tokenreviews", "RequestResponse"],
            ),
            (
                vec![watch(&["*"], &["shop"], &[])],
                Level::RequestResponse,
                &[
                    "Metadata | shop | :configmaps,secrets authentication.k8s.io:tokenreviews",
                    "RequestResponse | shop",
                    DEFINITION,
                    "None",
                ],
            ),
            (
                vec![watch(&["deployments"], &[], &[])],
                Level::RequestResponse,
                &["RequestResponse | apps:deployments,deployments/*", DEFINITION, "None"],
            ),
        ] {
            assert_eq!(rules(&watches, level), expected, "{watches:#?} at {level:?}");
        }
    }

    #[test]
    fn names_that_nothing_serves_are_told() {
        let (_, unknown) = policy(&[watch(&["later", "pods", "*.example.org"], &[], &[])], &served(), Level::Metadata);
        assert_eq!(unknown, BTreeSet::from(["later".to_owned()]));
    }
}
