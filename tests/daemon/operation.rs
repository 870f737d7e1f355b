//! What an operator sees: alarms, metrics, alert rules, the runbook. Each says the same of the same trouble.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use decklog::query::status::ALARMS;
use decklog::sim::objects;
use serde_json::Value;

use crate::host::alarms;
use crate::support::{Daemon, cluster, free_address, http_get, until};

fn read(path: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap()
}

/// A rule of docs/alerts.yaml.
struct Rule {
    alert: String,
    expr: String,
    wait: String,
    runbook: String,
}

fn rules() -> Vec<Rule> {
    let file: Value = serde_yaml_ng::from_str(&read("docs/alerts.yaml")).unwrap();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let groups = file["groups"].as_array().unwrap();
    let rules = groups.iter().flat_map(|group| group["rules"].as_array().unwrap());
    rules
        .map(|rule| Rule {
            alert: text(&rule["alert"]),
            expr: text(&rule["expr"]),
            wait: text(&rule["for"]),
            runbook: text(&rule["annotations"]["runbook"]),
        })
        .collect()
}

/// The sections of the runbook, as links name them.
fn sections() -> BTreeSet<String> {
    read("docs/runbook.md").lines().filter_map(|line| line.strip_prefix("## ")).map(str::to_owned).collect()
}

/// A sample as it is exposed.
#[derive(Debug)]
struct Sample {
    name: String,
    labels: BTreeMap<String, String>,
    value: String,
}

fn samples(text: &str) -> Vec<Sample> {
    let lines = text.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
    lines
        .map(|line| {
            let (series, value) = line.rsplit_once(' ').unwrap();
            let (name, labels) = series.split_once('{').unwrap_or((series, "}"));
            Sample { name: name.to_owned(), labels: pairs(labels.trim_end_matches('}')), value: value.to_owned() }
        })
        .collect()
}

/// `a="x",b="y"`; no value of these tests has a quote or a comma in it.
fn pairs(text: &str) -> BTreeMap<String, String> {
    let parts = text.split(',').filter(|part| !part.is_empty());
    let pair = |part: &str| {
        let (key, value) = part.split_once('=').unwrap();
        (key.trim().to_owned(), value.trim_start_matches('~').trim_matches('"').to_owned())
    };
    parts.map(pair).collect()
}

/// The metrics in an expression, with what is asked of their labels.
fn metrics_of(expr: &str) -> Vec<(String, BTreeMap<String, String>)> {
    let mut found = Vec::new();
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let mut rest = expr;
    while let Some(start) = rest.find(is_word) {
        let word: String = rest[start..].chars().take_while(|c| is_word(*c)).collect();
        rest = &rest[start + word.len()..];
        if word.starts_with("decklog_") || word.starts_with("process_") {
            let labels = rest.strip_prefix('{').and_then(|inner| inner.split_once('}'));
            found.push((word, labels.map(|(labels, _)| pairs(labels)).unwrap_or_default()));
        }
        if let Some((_, after)) = rest.strip_prefix('{').and_then(|inner| inner.split_once('}')) {
            rest = after;
        }
    }
    found
}

/// Prometheus' own judge of rules. Where it is not on the path, `tests/run` says where it has put it.
fn promtool(arguments: &[&str]) -> String {
    let program = std::env::var_os("DECKLOG_TEST_PROMTOOL").map_or_else(|| PathBuf::from("promtool"), PathBuf::from);
    let output = Command::new(program).args(arguments).current_dir(env!("CARGO_MANIFEST_DIR")).output();
    let output = output.expect("promtool, of the package prometheus; tests/run fetches it");
    let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "promtool {arguments:?}:\n{text}");
    text
}

#[test]
fn each_rule_fires_when_it_should_and_only_then() {
    promtool(&["check", "rules", "docs/alerts.yaml"]);
    promtool(&["test", "rules", "tests/alerts.yaml"]);
    let tests: Value = serde_yaml_ng::from_str(&read("tests/alerts.yaml")).unwrap();
    let cases = tests["tests"].as_array().unwrap().iter().flat_map(|test| test["alert_rule_test"].as_array().unwrap());
    let (fires, silent): (Vec<&Value>, Vec<&Value>) = cases.partition(|case| case["exp_alerts"].is_array());
    for Rule { alert, .. } in rules() {
        for (what, cases) in [("fires", &fires), ("is silent", &silent)] {
            assert!(cases.iter().any(|case| case["alertname"] == *alert), "no test in which {alert} {what}");
        }
    }
}

#[test]
fn each_alarm_and_each_rule_has_a_section_in_the_runbook() {
    let sections = sections();
    let mut named = BTreeSet::new();
    for Rule { alert, runbook, .. } in rules() {
        let section = runbook.strip_prefix("docs/runbook.md#").unwrap_or_else(|| panic!("{alert}: {runbook:?}"));
        assert!(sections.contains(section), "{alert}: the runbook has no section {section}");
        named.insert(section.to_owned());
    }
    for alarm in ALARMS {
        assert!(sections.contains(alarm), "the runbook has no section {alarm}");
        assert!(named.contains(alarm), "no rule is about {alarm}");
    }
    let all: BTreeSet<String> = ALARMS.iter().map(|alarm| (*alarm).to_owned()).chain(named).collect();
    assert_eq!(sections, all, "a section that nobody leads to");
    // Links within the runbook, and to the rules.
    for (at, _) in read("docs/runbook.md").match_indices("](#") {
        let text = read("docs/runbook.md");
        let to = text[at + 3..].split(')').next().unwrap();
        assert!(sections.contains(to), "the runbook leads to {to}, which is not there");
    }
}

/// A daemon in trouble of several sorts, and one that is well: its status, its metrics and the rules over what it exposes
/// say the same.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn status_metrics_and_alerts_agree_about_what_is_wrong() {
    let sim = cluster().await;
    sim.create("configmaps", objects::config_map("default", "a", "1")).unwrap();
    let at = free_address();
    let http = format!("[http]\nlisten = {at:?}\n");
    let watch = "resources = [\"configmaps\", \"pods\"]";
    let mut daemon = Daemon::with(&sim, watch, &http);
    daemon.start();
    daemon.ready().await;
    daemon.reach(1).await;
    let well = exposed(&mut daemon, &at, &[]).await;
    assert_eq!(alarms(&daemon.status().await), []);
    fires(&well, &[]);
    daemon.stop().await;

    // One source may not be read, one name means nothing, one sink is halted, one has set something aside.
    sim.deny("*", "pods", None);
    fs::write(daemon.path("foreign.jsonl"), "somebody's notes\n").unwrap();
    let refusing = crate::delivering::refusing().await;
    let foreign = "[[sink]]\nname = \"halted\"\ntype = \"file\"\npath = \"foreign.jsonl\"\n\n";
    let aside = format!(
        "[[sink]]\nname = \"aside\"\ntype = \"http\"\nurl = \"http://{refusing}/\"\non_refused = \"dead_letter\"\n\n"
    );
    let watch = "resources = [\"configmaps\", \"pods\", \"widgets.example.com\"]";
    daemon.configure(&daemon.config(watch, &(foreign.to_owned() + &aside + &http)));
    daemon.start();
    daemon.ready().await;
    let expected = [
        ("resource-waiting", "widgets.example.com"),
        ("sink-dead-letters", "aside"),
        ("sink-halted", "halted"),
        ("source-degraded", "pods"),
    ];
    let in_trouble = exposed(&mut daemon, &at, &expected).await;
    let status = daemon.status().await;
    let mut told = alarms(&status);
    told.sort();
    assert_eq!(told, expected.map(|(alarm, about)| (alarm.to_owned(), about.to_owned())), "{status}");
    // Each in one line that says what to do.
    let lines = daemon.command(&["status"]).await.done();
    for (alarm, about) in expected {
        let line = lines.lines().find(|line| line.starts_with(&format!("alarm    {alarm} {about}")));
        let line = line.unwrap_or_else(|| panic!("{alarm}: {lines}"));
        let json = status["alarms"].as_array().unwrap().iter().find(|row| row["alarm"] == alarm).unwrap();
        assert!(line.ends_with(json["do"].as_str().unwrap()), "{line}");
    }
    assert!(lines.contains("decklog replay --sink aside --from 1 --to 1"), "{lines}");
    let by_http: Value = serde_json::from_str(&http_get(&at, "/status").unwrap().body).unwrap();
    assert_eq!(by_http["alarms"].as_array().unwrap().len(), expected.len(), "{by_http}");
    assert_eq!(by_http["daemon"]["version"], env!("CARGO_PKG_VERSION"));
    fires(
        &in_trouble,
        &["DecklogResourceWaiting", "DecklogSinkHalted", "DecklogSinkDeadLetters", "DecklogSourceDegraded"],
    );
    all_that_rules_ask_for_is_exposed(&in_trouble);
    linted(&http_get(&at, "/metrics").unwrap().body);
    daemon.stop().await;
    // And what is there to be said of one that does not run.
    let status = daemon.status().await;
    let told: Vec<String> = alarms(&status).into_iter().map(|(alarm, _)| alarm).collect();
    assert_eq!(told, ["daemon-down", "sink-dead-letters"], "{status}");
}

/// What is exposed once these alarms are.
async fn exposed(daemon: &mut Daemon, at: &str, expected: &[(&str, &str)]) -> Vec<Sample> {
    until("the metrics to tell of it", async || {
        daemon.must_run();
        let samples = samples(&http_get(at, "/metrics")?.body);
        let ready = samples.iter().any(|sample| sample.name == "decklog_ready" && sample.value == "1");
        let told: BTreeSet<String> = samples
            .iter()
            .filter(|sample| sample.name == "decklog_alarms" && sample.value != "0")
            .map(|sample| sample.labels["alarm"].clone())
            .collect();
        let wanted: BTreeSet<String> = expected.iter().map(|(alarm, _)| (*alarm).to_owned()).collect();
        if ready && told == wanted { Ok(samples) } else { Err(format!("{told:?} {}", daemon.last_words())) }
    })
    .await
}

fn all_that_rules_ask_for_is_exposed(samples: &[Sample]) {
    for Rule { alert, expr, .. } in rules() {
        let metrics = metrics_of(&expr);
        assert!(!metrics.is_empty(), "{alert}: {expr}");
        for (name, labels) in metrics {
            let of_it: Vec<&Sample> = samples.iter().filter(|sample| sample.name == name).collect();
            assert!(!of_it.is_empty(), "{alert} asks for {name}, which is not exposed");
            for (key, values) in &labels {
                for value in values.split('|') {
                    let has = of_it.iter().any(|sample| sample.labels.get(key).is_some_and(|label| label == value));
                    assert!(has, "{alert} asks for {name}{{{key}={value:?}}}, which is not exposed");
                }
            }
        }
        // What samples are joined by.
        for (at, _) in expr.match_indices("on (") {
            for label in expr[at + 4..].split(')').next().unwrap().split(',').map(str::trim) {
                // Of several clusters, `tests/daemon/clusters.rs` sees theirs.
                let given = ["instance", "job", "cluster"].contains(&label);
                assert!(given || samples.iter().any(|sample| sample.labels.contains_key(label)), "{alert}: {label}");
            }
        }
    }
}

/// Prometheus evaluates the rules over exactly these samples, as if they had been so for two hours.
fn fires(samples: &[Sample], expected: &[&str]) {
    let mut series = String::new();
    for Sample { name, labels, value } in samples {
        let labels: String = labels.iter().map(|(key, value)| format!(",{key}={value:?}")).collect();
        let value: f64 = value.parse().unwrap();
        // Here the clock begins at 0.
        let value = if name.ends_with("_timestamp_seconds") { 0.0 } else { value };
        writeln!(series, "  - {{series: '{name}{{instance=\"a\",job=\"decklog\"{labels}}}', values: {value}x120}}")
            .unwrap();
    }
    let dir = tempfile::tempdir().unwrap();
    let rules_file = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/alerts.yaml");
    let mut wrong = Vec::new();
    for Rule { alert, wait, .. } in rules() {
        // An expression that counts, so that nothing has to be said of labels and texts.
        let test = format!(
            "rule_files: [{}]\nevaluation_interval: 1m\ntests:\n- interval: 1m\n  input_series:\n{series}  promql_expr_test:\n  \
             - expr: count(ALERTS{{alertname=\"{alert}\",alertstate=\"firing\"}}) or vector(0)\n    eval_time: 2h\n    exp_samples:\n    \
             - {{labels: '{{}}', value: {}}}\n",
            rules_file.display(),
            i32::from(expected.contains(&&*alert)),
        );
        let path = dir.path().join(format!("{alert}.yaml"));
        fs::write(&path, test).unwrap();
        let program = std::env::var_os("DECKLOG_TEST_PROMTOOL").unwrap_or_else(|| "promtool".into());
        let output = Command::new(program).args(["test", "rules"]).arg(&path).output();
        let output = output.expect("promtool, of the package prometheus; tests/run fetches it");
        if !output.status.success() {
            wrong.push(format!("{alert} (for {wait:?}): {}", String::from_utf8_lossy(&output.stdout)));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// As Prometheus' own check of names and texts wants it. It reads the older format, in which a counter is declared under
/// the name of its sample.
pub(crate) fn linted(metrics: &str) {
    let mut counters = BTreeSet::new();
    for line in metrics.lines() {
        if let Some(name) = line.strip_prefix("# TYPE ").and_then(|rest| rest.strip_suffix(" counter")) {
            counters.insert(name.to_owned());
        }
    }
    let mut text = String::new();
    for line in metrics.lines().filter(|line| *line != "# EOF") {
        let words: Vec<&str> = line.splitn(4, ' ').collect();
        match words.as_slice() {
            ["#", what, name, rest] if counters.contains(*name) => writeln!(text, "# {what} {name}_total {rest}"),
            _ => writeln!(text, "{line}"),
        }
        .unwrap();
    }
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("metrics");
    fs::write(&path, text).unwrap();
    let program = std::env::var_os("DECKLOG_TEST_PROMTOOL").unwrap_or_else(|| "promtool".into());
    let output =
        Command::new(program).args(["check", "metrics"]).stdin(fs::File::open(&path).unwrap()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
}
