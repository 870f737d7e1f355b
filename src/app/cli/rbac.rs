//! `decklog rbac`: the least rights, as manifests.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use clap::Args;

use super::output::Out;
use super::{Exit, Failure, Global, Outcome, init};
use crate::app::announce;
use crate::app::config::{Config, Files};
use crate::app::ha::{self, LeaseName};
use crate::core::spelling::is_dns_label;
use crate::watch::cluster::{Api, Events, Limits};
use crate::watch::discovery::DEFINITIONS;
use crate::watch::discovery::{Discovered, Discoverer};
use crate::watch::reviews::RESOURCES;
use crate::watch::select::{may_come, resolve, select};
use crate::watch::{self, dating};
use crate::web::http;
use crate::web::ui;

/// Arguments of `decklog rbac`.
#[derive(Args, Debug)]
pub struct RbacArgs {
    /// Print what a person needs to reach a decklog in this namespace through the API server, with `kubectl decklog`
    #[arg(long, value_name = "NAMESPACE")]
    readers: Option<String>,
}

/// Prints the least rights that the configuration needs.
///
/// # Errors
/// Where a name can only be looked up in the cluster, and the cluster does not answer.
pub fn main(args: RbacArgs, global: &Global) -> Outcome {
    if let Some(namespace) = args.readers {
        if !is_dns_label(&namespace) {
            return Err(Failure::usage(format!("--readers {namespace}: that is no name of a namespace")));
        }
        return print(global, &of_readers(&namespace));
    }
    let loaded = init::wanted(global)?;
    let config = &loaded.config;
    let (discovered, cluster) = super::block_on(discover(config))?;
    let mut rights = rights(&config.watch, &discovered);
    rights.lease = config.ha.as_ref().map(|ha| ha.lease(&cluster));
    rights.events = config.cluster.events == Events::Auto;
    rights.counters = config.cluster.request_metrics;
    rights.dates = config.cluster.lease_times == Some(true);
    rights.reviews = reviews(global, config)?;
    rights.definitions = may_come(&config.watch, &discovered);
    if !rights.unknown.is_empty() {
        super::complain(&format!(
            "the cluster does not serve {} now, or does not say so; the rights for that are printed as the configuration spells it, which has to be PLURAL.GROUP",
            rights.unknown.iter().cloned().collect::<Vec<_>>().join(", ")
        ));
    }
    if rights.enumerated {
        super::complain(
            "RBAC has no exclude, so these rules list the resources of today; run this again after you install a CRD",
        );
    }
    if config.watch.iter().any(|watch| watch.namespaces.is_empty() && !watch.exclude_namespaces.is_empty()) {
        super::complain(
            "these are rights in all namespaces, because RBAC cannot leave any out: they cover the namespaces of `exclude_namespaces` too, which decklog does not read",
        );
    }
    print(global, &manifests(&rights))
}

fn print(global: &Global, text: &str) -> Outcome {
    let mut out = Out::new(global);
    out.bytes(text.as_bytes())?;
    out.flush()?;
    Ok(Exit::Done)
}

/// Reports whether the cluster of a configuration reviews readers. Of several clusters one file may say that for all of them.
///
/// # Errors
/// Where the directory of configurations cannot be read.
pub(super) fn reviews(global: &Global, config: &Config) -> Result<bool, Failure> {
    let directory = global.directory(Files::Ignore)?;
    let http = directory.as_ref().map_or(config.http.as_ref(), |directory| directory.http.as_ref());
    Ok(are_reviewed((http, config.ui.as_ref())))
}

/// The rights of a person who reaches decklog through the API server's proxy.
fn of_readers(namespace: &str) -> String {
    format!(
        "# Rights of a person who reaches the decklog in namespace {namespace} through the API server, as in `kubectl decklog log deploy/web`.\n\
         # decklog itself decides who may read its log. Bind this to a user or a group, for example\n\
         #   kubectl create rolebinding decklog-reader -n {namespace} --role=decklog-reader --user=alice@example.com\n\
         apiVersion: rbac.authorization.k8s.io/v1\nkind: Role\nmetadata:\n  name: decklog-reader\n  namespace: {namespace:?}\nrules:\n\
         # Without this, name it: --server kube://{namespace}/SERVICE:PORT, with https: before SERVICE where it has TLS.\n\
         - apiGroups: [\"\"]\n  resources: [\"services\"]\n  verbs: [\"list\"]\n\
         # Where decklog has no Service: pods above, and pods/proxy here.\n\
         - apiGroups: [\"\"]\n  resources: [\"services/proxy\"]\n  verbs: [\"create\"]\n"
    )
}

/// Reports whether readers are reviewed by the cluster.
pub(super) fn are_reviewed((http, ui): Endpoints<'_>) -> bool {
    http.is_some_and(|http| http.authorize.is_some()) || ui.is_some_and(|ui| ui.authorize.is_some())
}

/// The sections of what is served over HTTP.
pub(super) type Endpoints<'c> = (Option<&'c http::Settings>, Option<&'c ui::Settings>);

/// Returns the discovered resources and the name of the cluster.
pub(super) async fn discover(config: &Config) -> Result<(Discovered, String), Failure> {
    let api = Api::open(&config.cluster, Limits::default())
        .await
        .map_err(|error| Failure::new(Exit::Config, error.to_string()))?;
    let discovered = Discoverer::default().discover(&api).await.map_err(|error| {
        Failure::new(
            Exit::Config,
            format!("the API server does not say which resources there are: {error}; `decklog check` says more"),
        )
    })?;
    Ok((discovered, api.name().to_owned()))
}

/// Plural names by group: the contents of one rule of a role.
type Rules = BTreeMap<String, BTreeSet<String>>;

/// Resources that are listed and watched, by scope.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Rights {
    everywhere: Rules,
    namespaces: BTreeMap<String, Rules>,
    unknown: BTreeSet<String>,
    /// A wildcard with exclusions stands for what is served now.
    enumerated: bool,
    /// The API server's own counters.
    counters: bool,
    /// The Leases that date versions.
    dates: bool,
    /// Set if definitions of resources are watched.
    definitions: bool,
    /// The Lease that says who leads.
    lease: Option<LeaseName>,
    /// Events on that Lease.
    events: bool,
    /// Reviews of readers.
    reviews: bool,
}

impl Rights {
    fn grant(&mut self, namespace: Option<&str>, group: &str, plural: &str) {
        let rules = match namespace {
            None => &mut self.everywhere,
            Some(namespace) => self.namespaces.entry(namespace.to_owned()).or_default(),
        };
        rules.entry(group.to_owned()).or_default().insert(plural.to_owned());
    }
}

fn rights(watches: &[watch::Settings], discovered: &Discovered) -> Rights {
    let mut rights = Rights::default();
    // What is there now …
    for source in select(watches, discovered).sources {
        rights.grant(source.namespace.as_deref(), &source.resource.group, &source.resource.plural);
    }
    let mut unknown = BTreeSet::new();
    for watch in watches {
        for name in &watch.resources {
            // … what a wildcard will take in when it appears …
            let (plural, group) = name.split_once('.').unwrap_or((name, ""));
            let found = if plural == "*" && !watch.exclude.is_empty() {
                // RBAC cannot leave anything out of a wildcard, and what is left out may be left out because of it.
                rights.enumerated = true;
                None
            } else if plural == "*" {
                Some(if name == "*" { "*" } else { group })
            } else if resolve(name, discovered).is_empty() {
                // … and what the configuration waits for.
                unknown.insert(name.clone());
                Some(group)
            } else {
                None
            };
            let Some(group) = found else { continue };
            if watch.namespaces.is_empty() {
                rights.grant(None, group, plural);
            }
            for namespace in &watch.namespaces {
                rights.grant(Some(namespace), group, plural);
            }
        }
    }
    rights.unknown = unknown;
    // A wildcard says the rest.
    let all = |rules: &mut Rules| {
        let has = |plurals: Option<&BTreeSet<String>>| plurals.is_some_and(|plurals| plurals.contains("*"));
        if has(rules.get("*")) {
            rules.retain(|group, _| group == "*");
        }
        for plurals in rules.values_mut().filter(|plurals| plurals.contains("*")) {
            plurals.retain(|plural| plural == "*");
        }
    };
    all(&mut rights.everywhere);
    rights.namespaces.values_mut().for_each(all);
    rights
}

fn manifests(rights: &Rights) -> String {
    let mut out = String::from(
        "# The least rights that this configuration needs. Bind them to the user that decklog runs as, for example\n\
         #   kubectl create clusterrolebinding decklog --clusterrole=decklog --serviceaccount=NAMESPACE:NAME\n",
    );
    if !rights.namespaces.is_empty() {
        out.push_str("# and in each namespace\n#   kubectl create rolebinding decklog -n NAMESPACE --role=decklog --serviceaccount=NAMESPACE:NAME\n");
    }
    if rights.dates {
        for namespace in dating::NAMESPACES {
            writeln!(
                out,
                "# and, which is optional, in {namespace}\n#   kubectl create rolebinding decklog-lease-times -n {namespace} \
                 --role=decklog-lease-times --serviceaccount=NAMESPACE:NAME"
            )
            .expect("a String takes all text");
        }
    }
    if let Some(LeaseName { namespace, .. }) = &rights.lease {
        write!(
            out,
            "# and where the Lease is, in a namespace that exists (kubectl create namespace {namespace})\n\
             #   kubectl create rolebinding decklog-lease -n {namespace} --role=decklog-lease --serviceaccount=NAMESPACE:NAME\n"
        )
        .expect("a String takes all text");
    }
    out.push_str("apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata:\n  name: decklog\nrules:\n");
    out.push_str("# Its uid identifies the cluster.\n");
    out.push_str(
        "- apiGroups: [\"\"]\n  resources: [\"namespaces\"]\n  resourceNames: [\"kube-system\"]\n  verbs: [\"get\"]\n",
    );
    if rights.counters {
        out.push_str(
            "# For `decklog churn --requests`: the counters of the API server, which say nothing about any object.\n",
        );
        writeln!(out, "- nonResourceURLs: [{:?}]\n  verbs: [\"get\"]", watch::apiserver_counters::PATH)
            .expect("a String takes all text");
    }
    if rights.reviews {
        out.push_str("# For `authorize = \"cluster\"`: who reads the log, and what that reader may list.\n");
        for (group, plural) in RESOURCES {
            writeln!(out, "- apiGroups: [{group:?}]\n  resources: [{plural:?}]\n  verbs: [\"create\"]")
                .expect("a String takes all text");
        }
    }
    rules(&mut out, &rights.everywhere);
    if rights.definitions {
        definitions(&mut out, &rights.everywhere);
    }
    for (namespace, rights) in &rights.namespaces {
        out.push_str("---\napiVersion: rbac.authorization.k8s.io/v1\nkind: Role\nmetadata:\n  name: decklog\n");
        // A namespace's name needs no quotes but where YAML would read a number or a word of its own.
        write!(out, "  namespace: {namespace:?}\nrules:\n").expect("a String takes all text");
        rules(&mut out, rights);
    }
    let of_group = [dating::RESOURCE.0, "*"].into_iter().filter_map(|group| rights.everywhere.get(group)).flatten();
    let mut granted = of_group.map(String::as_str);
    if rights.dates && !granted.any(|plural| plural == dating::RESOURCE.1 || plural == "*") {
        let (group, plural) = dating::RESOURCE;
        for namespace in dating::NAMESPACES {
            write!(
                out,
                "---\napiVersion: rbac.authorization.k8s.io/v1\nkind: Role\nmetadata:\n  name: decklog-lease-times\n  \
                 namespace: {namespace:?}\nrules:\n# Optional: they date what happened while decklog was away ([cluster] lease_times).\n\
                 - apiGroups: [{group:?}]\n  resources: [{plural:?}]\n  verbs: [\"list\"]\n"
            )
            .expect("a String takes all text");
        }
    }
    if let Some(lease) = &rights.lease {
        of_lease(&mut out, lease, rights.events);
    }
    out
}

/// The rights on the Lease, and those to publish Events on it.
fn of_lease(out: &mut String, lease: &LeaseName, events: bool) {
    // A name of its own: decklog may also watch in that namespace.
    out.push_str("---\napiVersion: rbac.authorization.k8s.io/v1\nkind: Role\nmetadata:\n  name: decklog-lease\n");
    write!(
        out,
        "  namespace: {:?}\nrules:\n# The Lease says which decklog leads. RBAC cannot grant to create one by its name.\n",
        lease.namespace
    )
    .expect("a String takes all text");
    let (group, plural) = ha::RESOURCE;
    let verbs = ha::VERBS.map(|verb| format!("{verb:?}")).join(", ");
    write!(
        out,
        "- apiGroups: [{group:?}]\n  resources: [{plural:?}]\n  verbs: [\"create\"]\n\
         - apiGroups: [{group:?}]\n  resources: [{plural:?}]\n  resourceNames: [{:?}]\n  verbs: [{verbs}]\n",
        lease.name
    )
    .expect("a String takes all text");
    if events {
        let (group, plural) = announce::RESOURCE;
        let verbs = announce::VERBS.map(|verb| format!("{verb:?}")).join(", ");
        write!(
            out,
            "# Optional: alarms and GAPs are published as Events on the Lease ([cluster] events).\n\
             - apiGroups: [{group:?}]\n  resources: [{plural:?}]\n  verbs: [{verbs}]\n"
        )
        .expect("a String takes all text");
    }
}

/// The rights on what brings new resources, as far as the others do not have them.
fn definitions(out: &mut String, granted: &Rules) {
    let has = |group: &str, plural: &str| {
        let plurals = [group, "*"].into_iter().filter_map(|group| granted.get(group)).flatten();
        plurals.into_iter().any(|granted| granted == plural || granted == "*")
    };
    let missing: Vec<_> = DEFINITIONS.iter().filter(|(group, plural)| !has(group, plural)).collect();
    if !missing.is_empty() {
        out.push_str(
            "# Rights for new kinds: with them decklog records a new kind at once, and without them a little later.\n",
        );
    }
    for (group, plural) in missing {
        write!(out, "- apiGroups: [{group:?}]\n  resources: [{plural:?}]\n  verbs: [\"list\", \"watch\"]\n")
            .expect("a String takes all text");
    }
}

fn rules(out: &mut String, rules: &Rules) {
    for (group, plurals) in rules {
        let plurals: Vec<String> = plurals.iter().map(|plural| format!("{plural:?}")).collect();
        let plurals = plurals.join(", ");
        write!(out, "- apiGroups: [{group:?}]\n  resources: [{plurals}]\n  verbs: [\"list\", \"watch\"]\n")
            .expect("a String takes all text");
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::core::model::Resource;

    /// What a cluster serves: group, kind, plural name, and whether its objects live in namespaces.
    pub(in crate::app::cli) fn discovered(resources: &[(&str, &str, &str, bool)]) -> Discovered {
        let one = |&(group, kind, plural, namespaced): &(&str, &str, &str, bool)| Resource {
            group: group.to_owned(),
            version: "v1".to_owned(),
            kind: kind.to_owned(),
            plural: plural.to_owned(),
            singular: kind.to_lowercase(),
            short_names: Vec::new(),
            namespaced,
        };
        Discovered { served: resources.iter().map(one).collect(), ..Discovered::default() }
    }

    fn served() -> Discovered {
        discovered(&[
            ("", "Pod", "pods", true),
            ("", "Node", "nodes", false),
            ("apps", "Deployment", "deployments", true),
            ("example.com", "Widget", "widgets", true),
        ])
    }

    fn watch(resources: &[&str], namespaces: &[&str]) -> watch::Settings {
        let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        watch::Settings { resources: owned(resources), namespaces: owned(namespaces), ..watch::Settings::default() }
    }

    /// What the command prints is what the page about reading from afar says.
    #[test]
    fn a_reader_gets_the_rights_of_the_page() {
        let text = of_readers("logs");
        let page = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/remote.md")).unwrap();
        let role = page.split("kind: Role\n").nth(1).unwrap().split("```").next().unwrap();
        let said = |line: &str| line.replace(['{', '}', '"', ',', ' '], "");
        let rules: Vec<String> = role.lines().filter(|line| line.starts_with("- ")).map(said).collect();
        let lines: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
        let printed = lines.join(" ").split(" - ").skip(1).map(said).collect::<Vec<_>>();
        assert_eq!(
            (printed.len(), printed),
            (2, rules.iter().map(|rule| rule.trim_start_matches('-').to_owned()).collect())
        );
        assert!(of_readers("team-a").contains("namespace: \"team-a\""));
    }

    #[test]
    fn names_are_looked_up_and_scopes_kept_apart() {
        let rights = rights(&[watch(&["Deployment", "nodes"], &[]), watch(&["pods"], &["shop", "123"])], &served());
        assert_eq!(
            manifests(&rights).lines().filter(|line| !line.starts_with('#')).collect::<Vec<_>>().join("\n"),
            r#"apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata:
  name: decklog
rules:
- apiGroups: [""]
  resources: ["namespaces"]
  resourceNames: ["kube-system"]
  verbs: ["get"]
- apiGroups: [""]
  resources: ["nodes"]
  verbs: ["list", "watch"]
- apiGroups: ["apps"]
  resources: ["deployments"]
  verbs: ["list", "watch"]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata:
  name: decklog
  namespace: "123"
rules:
- apiGroups: [""]
  resources: ["pods"]
  verbs: ["list", "watch"]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata:
  name: decklog
  namespace: "shop"
rules:
- apiGroups: [""]
  resources: ["pods"]
  verbs: ["list", "watch"]"#
        );
    }

    #[test]
    fn the_counters_are_granted_only_where_they_are_read() {
        let rights = rights(&[watch(&["pods"], &["shop"])], &served());
        assert!(!manifests(&rights).contains("nonResourceURLs"));
        let text = manifests(&Rights { counters: true, ..rights });
        let (cluster, namespace) = text.split_once("---").unwrap();
        assert!(cluster.contains("- nonResourceURLs: [\"/metrics\"]\n  verbs: [\"get\"]\n"), "{text}");
        assert!(!namespace.contains("nonResourceURLs"), "no Role can have such a rule: {text}");
    }

    #[test]
    fn reviews_are_granted_only_where_readers_are_reviewed() {
        let rights = rights(&[watch(&["pods"], &["shop"])], &served());
        assert!(!manifests(&rights).contains("reviews"));
        let text = manifests(&Rights { reviews: true, ..rights });
        let (cluster, namespace) = text.split_once("---").unwrap();
        for resource in ["tokenreviews", "subjectaccessreviews"] {
            assert!(cluster.contains(&format!("resources: [{resource:?}]\n  verbs: [\"create\"]\n")), "{text}");
        }
        assert!(!namespace.contains("reviews"), "they are of the whole cluster: {text}");
    }

    #[test]
    fn a_file_of_several_says_for_all_of_them_that_readers_are_reviewed() {
        let dir = tempfile::tempdir().unwrap();
        let watch = "[[watch]]\nresources = [\"pods\"]\n";
        let http = "[http]\nlisten = \"127.0.0.1:9465\"\nreading = true\nauthorize = \"cluster\"\n";
        std::fs::write(dir.path().join("one.toml"), format!("{http}{watch}")).unwrap();
        std::fs::write(dir.path().join("two.toml"), watch).unwrap();
        for cluster in ["one", "two"] {
            let (config_dir, cluster) = (Some(dir.path().to_owned()), Some(cluster.to_owned()));
            let global = Global { config_dir, cluster, ..Global::default() };
            let loaded = global.load_for_reading().unwrap();
            assert!(reviews(&global, &loaded.config).unwrap(), "{:?}", global.cluster);
        }
    }

    /// Who takes the manifests of kustomize adds a component, with the rights that are printed here.
    #[test]
    fn the_component_of_kustomize_has_these_rights() {
        let component = include_str!("../../../packaging/kustomize/readers/readers.yaml");
        for (group, plural) in RESOURCES {
            let rule = format!("- apiGroups: [{group:?}]\n    resources: [{plural:?}]\n    verbs: [\"create\"]\n");
            assert_eq!(component.matches(&rule).count(), 1, "{rule}");
        }
    }

    #[test]
    fn what_brings_new_kinds_is_granted_where_it_may_and_once() {
        let granted = |resources: &[&str], namespaces: &[&str]| {
            let watches = [watch(resources, namespaces)];
            let rights = rights(&watches, &served());
            let definitions = may_come(&watches, &served());
            let text = manifests(&Rights { definitions, ..rights });
            let cluster = text.split("---").next().unwrap().to_owned();
            assert_eq!(text.matches("What brings").count(), cluster.matches("What brings").count(), "{text}");
            DEFINITIONS.map(|(group, plural)| {
                let rule =
                    format!("- apiGroups: [{group:?}]\n  resources: [{plural:?}]\n  verbs: [\"list\", \"watch\"]\n");
                cluster.matches(&rule).count()
            })
        };
        for (resources, namespaces, expected) in [
            (&["*"][..], &[][..], [0, 0]),
            (&["*"], &["shop"], [1, 1]),
            (&["*.example.com"], &[], [1, 1]),
            (&["widgets.example.com"], &[], [1, 1]),
            (&["later.example.org"], &[], [1, 1]),
            (&["later"], &["shop"], [1, 1]),
            (&["*.apiextensions.k8s.io", "*.example.com"], &[], [0, 1]),
            (&["pods", "deployments.apps", "nodes"], &[], [0, 0]),
            (&["*.apps"], &[], [0, 0]),
        ] {
            assert_eq!(granted(resources, namespaces), expected, "{resources:?} in {namespaces:?}");
        }
    }

    #[test]
    fn the_lease_has_a_role_of_its_own() {
        let rights = rights(&[watch(&["pods"], &["decklog"])], &served());
        assert!(!manifests(&rights).contains("coordination.k8s.io"));
        let lease = LeaseName { namespace: "decklog".to_owned(), name: "prod".to_owned() };
        let text = manifests(&Rights { lease: Some(lease.clone()), ..rights.clone() });
        let (_, role) = text.rsplit_once("---\n").unwrap();
        let with_events = manifests(&Rights { lease: Some(lease), events: true, ..rights.clone() });
        let rule = "- apiGroups: [\"events.k8s.io\"]\n  resources: [\"events\"]\n  verbs: [\"create\", \"patch\"]\n";
        assert!(with_events.starts_with(&text) && with_events.ends_with(rule), "{with_events}");
        assert!(
            !manifests(&Rights { events: true, ..rights }).contains("events.k8s.io"),
            "a Pod has its own namespace"
        );
        assert_eq!(
            role,
            r#"apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata:
  name: decklog-lease
  namespace: "decklog"
rules:
# The Lease says which decklog leads. RBAC cannot grant to create one by its name.
- apiGroups: ["coordination.k8s.io"]
  resources: ["leases"]
  verbs: ["create"]
- apiGroups: ["coordination.k8s.io"]
  resources: ["leases"]
  resourceNames: ["prod"]
  verbs: ["get", "update"]
"#
        );
    }

    #[test]
    fn what_is_excluded_is_not_granted() {
        let all = watch::Settings { exclude: vec!["nodes".to_owned()], ..watch(&["*"], &[]) };
        let rights = rights(&[all], &served());
        let expected = [("", "pods"), ("apps", "deployments"), ("example.com", "widgets")];
        let expected = expected.map(|(group, plural)| (group.to_owned(), BTreeSet::from([plural.to_owned()])));
        assert_eq!(rights.everywhere, Rules::from(expected));
        assert!(rights.enumerated);
    }

    #[test]
    fn wildcards_stand_for_what_is_to_come() {
        let all = rights(&[watch(&["*"], &[])], &served());
        assert_eq!(all.everywhere, Rules::from([("*".to_owned(), BTreeSet::from(["*".to_owned()]))]));
        let group = rights(&[watch(&["pods", "*.example.com", "later.example.org"], &[])], &served());
        let expected = [("", "pods"), ("example.com", "*"), ("example.org", "later")];
        let expected = expected.map(|(group, plural)| (group.to_owned(), BTreeSet::from([plural.to_owned()])));
        assert_eq!(group.everywhere, Rules::from(expected));
        assert_eq!(group.unknown, BTreeSet::from(["later.example.org".to_owned()]));
    }
}
