//! The chart, on a real API server: what it renders is taken there, the rights that it gives are enough and those of
//! `decklog rbac`, and a Prometheus finds what the dashboard and the alert rules ask for.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use decklog::app::announce;
use decklog::app::ha::{self, LeaseName};
use serde::Deserialize as _;
use serde_json::{Value, json};

use crate::decklog::Decklog;
use crate::harness::{Cluster, LIMIT, Parts, Process, SERVICE_ACCOUNT, Version, until};
use crate::judge::Scope;
use crate::ports::free_port;
use crate::{proxied, reviewed};

/// The release and its namespace.
pub const NAMESPACE: &str = "logs";
const RELEASE: &str = "decklog";

fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

fn chart() -> PathBuf {
    repository("packaging/chart/decklog")
}

/// The sets of values that the chart is tried with.
fn value_sets() -> BTreeMap<String, PathBuf> {
    let sets = fs::read_dir(chart().join("ci")).unwrap().map(|entry| entry.unwrap().path());
    sets.map(|path| (path.file_stem().unwrap().to_str().unwrap().trim_end_matches("-values").to_owned(), path))
        .collect()
}

fn helm(arguments: &[&str]) -> Output {
    let servers = std::env::var_os("DECKLOG_TEST_SERVERS").map(PathBuf::from);
    let program = servers.map_or_else(|| PathBuf::from("helm"), |servers| servers.join("helm/helm"));
    let output = Command::new(program).args(arguments).env("HELM_CACHE_HOME", std::env::temp_dir()).output();
    output.expect("helm; `tests/servers/build helm` makes it")
}

/// What the chart makes of these values, with further arguments.
fn render(values: &Path, more: &[&str]) -> Output {
    let (chart, values) = (chart(), values.display().to_string());
    let arguments = [
        "template",
        RELEASE,
        chart.to_str().unwrap(),
        "--namespace",
        NAMESPACE,
        "--values",
        &values,
        "--kube-version",
        "1.36",
    ];
    helm(&[&arguments[..], more].concat())
}

/// The same as text, and as objects.
fn rendered(values: &Path) -> (String, Vec<Value>) {
    let output = render(values, &[]);
    assert!(output.status.success(), "{}: {}", values.display(), String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    let documents = serde_yaml_ng::Deserializer::from_str(&text).map(|document| Value::deserialize(document).unwrap());
    let objects = documents.filter(|object| !object.is_null()).collect();
    (text, objects)
}

fn of_kind<'a>(objects: &'a [Value], kind: &str) -> impl Iterator<Item = &'a Value> {
    objects.iter().filter(move |object| object["kind"] == kind)
}

fn config_of(objects: &[Value]) -> &str {
    of_kind(objects, "ConfigMap").find_map(|map| map["data"]["config.toml"].as_str()).unwrap()
}

/// What roles allow, one line each: the rules of several have the same order then, however they are grouped.
fn rights(objects: &[Value]) -> BTreeSet<String> {
    let words = |value: &Value| -> Vec<String> {
        value
            .as_array()
            .map_or_else(|| vec![String::new()], |all| all.iter().map(|one| one.as_str().unwrap().to_owned()).collect())
    };
    let mut rights = BTreeSet::new();
    for role in objects.iter().filter(|object| matches!(object["kind"].as_str(), Some("ClusterRole" | "Role"))) {
        let namespace = role["metadata"]["namespace"].as_str().unwrap_or("everywhere");
        for rule in role["rules"].as_array().unwrap() {
            let of = [words(&rule["apiGroups"]), words(&rule["resources"]), words(&rule["verbs"])];
            for group in &of[0] {
                for resource in &of[1] {
                    for verb in &of[2] {
                        let (names, paths) = (&rule["resourceNames"], &rule["nonResourceURLs"]);
                        rights.insert(format!("{namespace}: {verb} {resource}.{group} {names} {paths}"));
                    }
                }
            }
        }
    }
    rights
}

/// What kustomize starts from: the set of values that the chart makes it of, and where it is.
const KUSTOMIZED: [(&str, &str); 2] = [("default", "packaging/kustomize"), ("ha", "packaging/kustomize/ha")];

/// What kustomize starts from is what the chart makes of no values, or of those for two Pods. `DECKLOG_WRITE_CHART=1` writes it.
#[test]
fn the_manifests_are_those_of_the_chart() {
    for (name, base) in KUSTOMIZED {
        let (text, _) = rendered(&value_sets()[name]);
        let path = repository(base).join("decklog.yaml");
        if std::env::var_os("DECKLOG_WRITE_CHART").is_some() {
            fs::write(&path, text).unwrap();
        } else {
            assert!(
                fs::read_to_string(&path).unwrap() == text,
                "the chart makes others: DECKLOG_WRITE_CHART=1 writes them"
            );
        }
    }
}

/// A wrong value is refused by a sentence that says what to do.
#[test]
fn wrong_values_are_refused() {
    let nothing = value_sets()["default"].clone();
    for (wrong, says) in [
        (
            "config.watch[0].resources[0]=deployments",
            "\"deployments\" is no resource of the core group: write PLURAL.GROUP",
        ),
        (
            "config.watch[0].resources[0]=*,config.watch[0].exclude[0]=secrets",
            "RBAC cannot leave `exclude` out of the wildcard \"*\"",
        ),
        ("config.watch[0].resorces[0]=pods", "resorces"),
        ("config.wotch=1", "wotch"),
        ("config.state.max_age=7", "max_age"),
        ("persistance.enabled=false", "persistance"),
        ("persistence.size=5", "size"),
        ("service.port=http", "port"),
        ("replicas=2", "replicas"),
        (
            "serviceMonitor.enabled=true,config.http.tls_cert_file=/x,config.http.tls_key_file=/y",
            "serviceMonitor.tlsConfig",
        ),
    ] {
        let refused = render(&nothing, &["--set", wrong]);
        let said = String::from_utf8_lossy(&refused.stderr);
        assert!(!refused.status.success() && said.contains(says), "{wrong}: {said}");
    }
    let two = value_sets()["ha"].clone();
    for (wrong, says) in [
        ("config.ha.log=", "set config.ha.log to the name of the sink"),
        ("config.redact.key_file=", "set config.redact.key_file"),
        ("ha.enabled=false", "config.ha: set ha.enabled=true"),
        ("ha.replicas=1", "replicas"),
    ] {
        let refused = render(&two, &["--set", wrong]);
        let said = String::from_utf8_lossy(&refused.stderr);
        assert!(!refused.status.success() && said.contains(says), "{wrong}: {said}");
    }
}

/// Two Pods on two nodes, one of which stays; no volume; each with a name of its own, and the rights for the Lease.
#[test]
fn two_pods_share_a_log() {
    let (_, objects) = rendered(&value_sets()["ha"]);
    let set = of_kind(&objects, "StatefulSet").next().unwrap();
    assert_eq!((&set["spec"]["replicas"], &set["spec"]["podManagementPolicy"]), (&json!(2), &json!("Parallel")));
    assert!(set["spec"]["volumeClaimTemplates"].is_null(), "{set}");
    let pod = &set["spec"]["template"]["spec"];
    let volumes = pod["volumes"].as_array().unwrap();
    assert!(volumes.contains(&json!({"name": "state", "emptyDir": {}})), "{volumes:?}");
    let spread = &pod["topologySpreadConstraints"][0];
    assert_eq!(
        (&spread["topologyKey"], &spread["whenUnsatisfiable"]),
        (&json!("kubernetes.io/hostname"), &json!("DoNotSchedule"))
    );
    assert_eq!(spread["labelSelector"], set["spec"]["selector"]);
    let identity = json!({"name": "DECKLOG_HA_IDENTITY", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}});
    assert!(pod["containers"][0]["env"].as_array().unwrap().contains(&identity), "{pod}");
    let budget = of_kind(&objects, "PodDisruptionBudget").next().unwrap();
    assert_eq!((&budget["spec"]["minAvailable"], &budget["spec"]["selector"]), (&json!(1), &set["spec"]["selector"]));
    let lease: LeaseName = format!("{NAMESPACE}/{RELEASE}").parse().unwrap();
    assert!(config_of(&objects).contains(&format!("lease = \"{lease}\"")), "{}", config_of(&objects));
    let (group, plural) = ha::RESOURCE;
    let mut expected = BTreeSet::from([format!("{NAMESPACE}: create {plural}.{group} null null")]);
    expected.extend(ha::VERBS.map(|verb| format!("{NAMESPACE}: {verb} {plural}.{group} [{:?}] null", lease.name)));
    let granted: BTreeSet<String> = rights(&objects).into_iter().filter(|right| right.contains(plural)).collect();
    assert_eq!(granted, expected);
}

/// Restricted Pods, one writer, nothing secret in the configuration's ConfigMap, and only what was switched on.
#[test]
fn what_is_rendered_is_what_was_asked_for() {
    let lint = helm(&["lint", "--strict", "--kube-version", "1.36", chart().to_str().unwrap()]);
    assert!(lint.status.success(), "{}", String::from_utf8_lossy(&lint.stdout));
    assert!(value_sets().len() >= 5, "sets of values: {:?}", value_sets().keys());
    let switched = ["NetworkPolicy", "PodDisruptionBudget", "PrometheusRule", "ServiceMonitor"];
    for (name, values) in value_sets() {
        let (_, objects) = rendered(&values);
        let kinds: BTreeSet<&str> = objects.iter().map(|object| object["kind"].as_str().unwrap()).collect();
        for kind in switched {
            let asked_for = name == "everything" || (name == "ha" && kind == "PodDisruptionBudget");
            assert_eq!(kinds.contains(kind), asked_for, "{name}: {kind}");
        }
        let set = of_kind(&objects, "StatefulSet").next().unwrap();
        assert!(name == "ha" || set["spec"]["replicas"] == 1, "{name}: a journal has one writer");
        let port = &of_kind(&objects, "Service").next().unwrap()["spec"]["ports"][0];
        let has_tls = config_of(&objects).contains("tls_cert_file");
        assert_eq!(port["appProtocol"] == "https", has_tls, "{name}: `kubectl decklog` reads there how to ask: {port}");
        // With files that a Pod finds there.
        let dir = tempfile::tempdir().unwrap();
        let secrets = dir.path().join("secrets");
        for file in [
            "archive/password",
            "collector/token",
            "decklog-readers/tokens",
            "decklog-redact/key",
            "decklog-tls/tls.crt",
            "decklog-tls/tls.key",
        ] {
            fs::create_dir_all(secrets.join(file).parent().unwrap()).unwrap();
            fs::write(secrets.join(file), "a-token-of-the-test").unwrap();
        }
        let config = config_of(&objects).replace("/etc/decklog-secrets", secrets.to_str().unwrap());
        fs::write(dir.path().join("config.toml"), config).unwrap();
        let mut decklog = Command::new(env!("CARGO_BIN_EXE_decklog"));
        let check = decklog.args(["check", "-o", "json"]).env_clear().env("CREDENTIALS_DIRECTORY", &secrets);
        let check = check.current_dir(dir.path()).output().unwrap();
        let text = String::from_utf8_lossy(&check.stdout);
        // There is no cluster here, and no such files: nothing else may be wrong.
        for finding in serde_json::from_str::<Vec<Value>>(&text).unwrap_or_else(|_| panic!("{name}: {check:?}")) {
            let known = ["cluster", "file", "ha", "state", "sink", "http"];
            let code = finding["code"].as_str().unwrap_or_default().to_owned();
            assert!(
                finding["level"] != "problem" || known.iter().any(|known| code.starts_with(known)),
                "{name}: {finding}"
            );
        }
    }
    // Names that YAML would read as numbers stay names.
    let digits = ["template", "1234", chart().to_str().unwrap(), "--namespace", "567", "--kube-version", "1.36"]
        .map(str::to_owned);
    let digits = helm(&digits.each_ref().map(String::as_str));
    assert!(digits.status.success(), "{digits:?}");
    let text = String::from_utf8(digits.stdout).unwrap();
    for document in serde_yaml_ng::Deserializer::from_str(&text) {
        let object = Value::deserialize(document).unwrap();
        let meta = &object["metadata"];
        assert!(meta["name"].is_string() && !meta["namespace"].is_number(), "{object}");
        assert_eq!(meta["labels"]["app.kubernetes.io/instance"], "1234", "{object}");
    }
    // Events are about the Pod where decklog is the service account of the Pod, and wanted.
    for (value, granted) in [
        ("config.cluster.events=auto", true),
        ("config.cluster.events=off", false),
        ("config.cluster.kubeconfig=/k", false),
    ] {
        let output = render(&value_sets()["default"], &["--set", value]);
        assert!(output.status.success(), "{output:?}");
        assert_eq!(String::from_utf8(output.stdout).unwrap().contains("events.k8s.io"), granted, "{value}");
    }
    let (_, objects) = rendered(&value_sets()["everything"]);
    let rules = of_kind(&objects, "PrometheusRule").next().unwrap();
    let own: Value = serde_yaml_ng::from_str(&fs::read_to_string(repository("docs/alerts.yaml")).unwrap()).unwrap();
    assert_eq!(rules["spec"], own, "the rules are decklog's");
}

/// The whole way: every set of values at the API server, one of them installed, and decklog started as it says.
pub async fn scenario(version: Version) {
    let cluster = Cluster::start(version, Parts::Bare).await;
    for (plural, kind) in [("servicemonitors", "ServiceMonitor"), ("prometheusrules", "PrometheusRule")] {
        operators(&cluster, plural, kind).await;
    }
    let restricted = json!({"pod-security.kubernetes.io/enforce": "restricted"});
    for name in [NAMESPACE, "shop", "pay", "123", "on"] {
        cluster.create("/api/v1/namespaces", &json!({"metadata": {"name": name, "labels": restricted}})).await;
    }
    for (name, values) in value_sets() {
        let (text, objects) = rendered(&values);
        let file = cluster.path(&format!("{name}.yaml"));
        fs::write(&file, text).unwrap();
        let apply = ["apply", "--server-side", "--dry-run=server", "-f", file.to_str().unwrap()];
        until(&format!("{name} to be taken"), LIMIT, async || {
            let output = cluster.kubectl(&apply).await;
            if output.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&output.stderr).into_owned()) }
        })
        .await;
        let set = of_kind(&objects, "StatefulSet").next().unwrap();
        let mut pod = set["spec"]["template"].clone();
        pod["metadata"]["name"] = json!("tried");
        pod["spec"]["serviceAccountName"] = json!(name);
        pod["spec"].as_object_mut().unwrap().remove("priorityClassName");
        if let Some(volumes) = pod["spec"]["volumes"].as_array_mut() {
            volumes.push(json!({"name": "state", "emptyDir": {}}));
            let mut names = BTreeSet::new();
            volumes.retain(|volume| names.insert(volume["name"].as_str().unwrap().to_owned()));
        }
        let accounts = format!("/api/v1/namespaces/{NAMESPACE}/serviceaccounts");
        cluster.create(&accounts, &json!({"metadata": {"name": name}})).await;
        let path = format!("/api/v1/namespaces/{NAMESPACE}/pods?dryRun=All");
        cluster.create(&path, &pod).await;
    }
    for (_, base) in KUSTOMIZED {
        let base = repository(base);
        let apply = ["apply", "--server-side", "--dry-run=server", "-k", base.to_str().unwrap()];
        cluster.kubectl_must(&apply).await;
    }
    installed(&cluster).await;
}

/// A resource of the Prometheus operator, as far as it takes what it is given.
async fn operators(cluster: &Cluster, plural: &str, kind: &str) {
    let version = json!({"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
        "type": "object", "x-kubernetes-preserve-unknown-fields": true,
    }}});
    let names = json!({"plural": plural, "singular": kind.to_lowercase(), "kind": kind});
    let group = "monitoring.coreos.com";
    let definition = json!({
        "metadata": {"name": format!("{plural}.{group}")},
        "spec": {"group": group, "scope": "Namespaced", "names": names, "versions": [version]},
    });
    cluster.create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &definition).await;
}

async fn installed(cluster: &Cluster) {
    let (_, objects) = rendered(&value_sets()["shop"]);
    let file = cluster.path("shop.yaml");
    cluster.kubectl_must(&["apply", "--server-side", "-f", file.to_str().unwrap()]).await;
    let set = of_kind(&objects, "StatefulSet").next().unwrap();
    let pod = &set["spec"]["template"]["spec"];
    let account = pod["serviceAccountName"].as_str().unwrap();
    let token = cluster.kubectl_must(&["create", "token", "-n", NAMESPACE, account]).await;
    let arguments: Vec<&str> =
        pod["containers"][0]["args"].as_array().unwrap().iter().map(|word| word.as_str().unwrap()).collect();
    assert_eq!(arguments, ["run", "--config", "/etc/decklog/config.toml"], "as the harness starts it");
    let credentials = cluster.path("credentials");
    fs::create_dir_all(credentials.join("collector")).unwrap();
    fs::write(credentials.join("collector/token"), "token").unwrap();
    let port = free_port();
    let mut daemon = Decklog::configured(cluster, SERVICE_ACCOUNT, |dir| {
        // The paths of the Pod are elsewhere here, its collector is not there, and the API server is not asked by its
        // Service: that has no address without kubelets.
        let kubeconfig = cluster.kubeconfig_of_token(SERVICE_ACCOUNT, token.trim());
        config_of(&objects)
            .replace("/var/lib/decklog/log.jsonl", dir.join("log.jsonl").to_str().unwrap())
            .replace("/var/lib/decklog", dir.join("state").to_str().unwrap())
            .replace("${CREDENTIALS_DIRECTORY}", credentials.to_str().unwrap())
            .replace("/var/lib/decklog/late.jsonl", dir.join("late.jsonl").to_str().unwrap())
            .replace("https://collector.example/", "http://127.0.0.1:9/")
            .replace("0.0.0.0:9465", &format!("127.0.0.1:{port}"))
            .replace("[cluster]\n", &format!("[cluster]\nkubeconfig = {kubeconfig:?}\naudit_every = \"off\"\n"))
    });
    // What decklog itself would ask for, and no more.
    let asked = daemon.command(&["rbac"]);
    let asked = String::from_utf8(asked.stdout).unwrap();
    let asked: Vec<Value> =
        serde_yaml_ng::Deserializer::from_str(&asked).map(|role| Value::deserialize(role).unwrap()).collect();
    assert!(!asked.is_empty());
    let (events, granted): (BTreeSet<String>, _) =
        rights(&objects).into_iter().partition(|right| right.contains(" events.events.k8s.io "));
    assert_eq!(granted, rights(&asked));
    // But for Events on its Pod, of which only the chart knows the namespace.
    let (group, plural) = announce::RESOURCE;
    let of_pod = announce::VERBS.map(|verb| format!("{NAMESPACE}: {verb} {plural}.{group} null null"));
    assert_eq!(events, BTreeSet::from(of_pod));

    let before = cluster.audit(SERVICE_ACCOUNT).len();
    let started = cluster.oracle().sync().await;
    daemon.start();
    daemon.ready().await;
    for namespace in ["shop", "default"] {
        let maps = format!("/api/v1/namespaces/{namespace}/configmaps");
        cluster.create(&maps, &json!({"metadata": {"name": "one"}})).await;
        cluster.patch(&format!("{maps}/one"), &json!({"data": {"a": "b"}})).await;
        cluster.delete(&format!("{maps}/one")).await;
    }
    let scope = Scope {
        late: false,
        started,
        upto: cluster.oracle().sync().await,
        namespaces: Some(BTreeSet::from(["shop".to_owned()])),
        resources: Some(["configmaps", "secrets", "deployments.apps"].map(str::to_owned).into()),
    };
    daemon.catch_up(cluster, None, &scope).await;
    until("each source to have been asked for", LIMIT, async || {
        let refused = cluster.audit(SERVICE_ACCOUNT).split_off(before);
        let refused: Vec<_> = refused.iter().filter(|event| event["responseStatus"]["code"] == 403).collect();
        assert!(refused.is_empty(), "{} and others", refused[0]);
        let said = daemon.said();
        if said.contains("ready") { Ok(()) } else { Err(said) }
    })
    .await;
    found_by_prometheus(cluster, port).await;
    daemon.stop().await;
    proxied::scenario(cluster).await;
    reviewed::scenario(cluster).await;
}

/// A real Prometheus scrapes that daemon, and knows what the dashboard and the alert rules ask it for.
async fn found_by_prometheus(cluster: &Cluster, scraped: u16) {
    let dir = cluster.path("prometheus");
    fs::create_dir(&dir).unwrap();
    let config = json!({
        "global": {"scrape_interval": "1s"},
        "scrape_configs": [{"job_name": "decklog", "static_configs": [{"targets": [format!("127.0.0.1:{scraped}")]}]}],
    });
    fs::write(dir.join("prometheus.yml"), config.to_string()).unwrap();
    let port = free_port();
    let arguments = [
        format!("--config.file={}", dir.join("prometheus.yml").display()),
        format!("--storage.tsdb.path={}", dir.join("data").display()),
        format!("--web.listen-address=127.0.0.1:{port}"),
    ];
    let program = std::env::var_os("DECKLOG_TEST_PROMETHEUS").map_or_else(|| "prometheus".into(), PathBuf::from);
    let prometheus = Process::start("prometheus", &program, &arguments, &dir.join("log"), |_| {});
    let client = reqwest::Client::new();
    let query = async |expression: &str| -> Result<Vec<Value>, String> {
        let url = format!("http://127.0.0.1:{port}/api/v1/query");
        let url = reqwest::Url::parse_with_params(&url, [("query", expression)]).unwrap();
        let answer = client.get(url).send().await.map_err(|error| error.to_string())?;
        let answer = answer.bytes().await.map_err(|error| error.to_string())?;
        let answer: Value = serde_json::from_slice(&answer).map_err(|error| error.to_string())?;
        if answer["status"] != "success" {
            return Err(answer.to_string());
        }
        Ok(answer["data"]["result"].as_array().unwrap().clone())
    };
    let dashboard = fs::read_to_string(repository("packaging/grafana/dashboard.json")).unwrap();
    let dashboard: Value = serde_json::from_str(&dashboard).unwrap();
    let mut expressions = asked_by(&dashboard);
    assert!(expressions.len() > 20, "{expressions:?}");
    // The lines in every panel are drawn when a decklog starts, which this one does once.
    // Marks are Grafana's own.
    let of_prometheus = |annotation: &&Value| annotation["datasource"]["type"] == "prometheus";
    for annotation in dashboard["annotations"]["list"].as_array().unwrap().iter().filter(of_prometheus) {
        let expression = filled_in(annotation["expr"].as_str().unwrap());
        until("Prometheus to take an annotation", LIMIT, async || query(&expression).await).await;
        expressions.extend(selectors(&expression));
    }
    // Most rules are silent while all is well: what they look at has to be there.
    let rules: Value = serde_yaml_ng::from_str(&fs::read_to_string(repository("docs/alerts.yaml")).unwrap()).unwrap();
    let rules = rules["groups"].as_array().unwrap().iter().flat_map(|group| group["rules"].as_array().unwrap());
    for rule in rules {
        let expression = rule["expr"].as_str().unwrap();
        until("Prometheus to take a rule", LIMIT, async || query(expression).await).await;
        expressions.extend(selectors(expression));
    }
    for expression in expressions {
        until(&format!("something to be found by {expression}"), LIMIT, async || match query(&expression).await {
            Ok(found) if found.is_empty() => Err("nothing".to_owned()),
            answer => answer,
        })
        .await;
    }
    prometheus.stop().await;
}

/// What the panels of a dashboard ask for, and what its variables choose from: each has to find something.
fn asked_by(dashboard: &Value) -> Vec<String> {
    let mut expressions = Vec::new();
    let panels = dashboard["panels"].as_array().unwrap().iter();
    for target in panels.flat_map(|panel| panel["targets"].as_array().into_iter().flatten()) {
        let expression = filled_in(target["expr"].as_str().unwrap());
        // A panel that is empty while all is well has to find what it compares.
        expressions.push(expression.strip_suffix(" > 0").unwrap_or(&expression).to_owned());
    }
    let variables = dashboard["templating"]["list"].as_array().unwrap().iter();
    for variable in variables.filter(|variable| variable["type"] == "query") {
        let query = filled_in(variable["query"]["query"].as_str().unwrap());
        let values = query.strip_prefix("label_values(").and_then(|rest| rest.strip_suffix(')'));
        let (series, label) = values.and_then(|values| values.rsplit_once(", ")).expect("label_values(SERIES, LABEL)");
        if label == "cluster" {
            // One decklog of one cluster has no such label.
            expressions.push(series.to_owned());
            continue;
        }
        let (before, end) = series.strip_suffix('}').map_or((series, "{"), |before| (before, ", "));
        expressions.push(format!("{before}{end}{label}!=\"\"}}"));
    }
    expressions
}

/// An expression of the dashboard, with what Grafana puts in place of its variables.
fn filled_in(expression: &str) -> String {
    let values = [("$job", "decklog"), ("$instance", ".*"), ("$cluster", ".*"), ("$__rate_interval", "1m")];
    values.iter().fold(expression.to_owned(), |text, (variable, value)| text.replace(variable, value))
}

/// The metrics that an expression looks at, with their labels.
fn selectors(expression: &str) -> Vec<String> {
    let mut found = Vec::new();
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let mut rest = expression;
    while let Some(start) = ["decklog_", "process_"].iter().filter_map(|prefix| rest.find(prefix)).min() {
        rest = &rest[start..];
        let name = &rest[..rest.find(|c| !is_word(c)).unwrap_or(rest.len())];
        rest = &rest[name.len()..];
        let labels = if rest.starts_with('{') { &rest[..=rest.find('}').unwrap()] } else { "" };
        found.push(format!("{name}{labels}"));
    }
    found
}
