mod ha;
mod sinks;

use std::collections::BTreeSet;

use proptest::prelude::*;
use serde_json::Value as Json;

use super::*;
use crate::core::change::redact::RedactMode;
use crate::core::units::{Period, Span};
use crate::delivery::From;
use crate::sink::registry::SinkKind;
use crate::watch::cluster::{Off, Recover, RecoverBounds};

const LEAST: &str = "[[watch]]\nresources = ['pods']\n";

fn parse(text: &str) -> Result<Loaded, Problems> {
    Config::parse(text, "config.toml", &[], Files::Check)
}

fn with_environment(text: &str, environment: &[(&str, &str)]) -> Result<Loaded, Problems> {
    let environment: Vec<(String, String)> =
        environment.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    Config::parse(text, "config.toml", &environment, Files::Check)
}

fn report(text: &str) -> String {
    parse(text).unwrap_err().to_string()
}

/// One line a problem: place, key, what was found, the nearest spelling.
fn brief(problems: &Problems) -> Vec<String> {
    let place = |place: &SourceSpan| match place {
        SourceSpan::File { line, column } => format!("{line}:{column}"),
        SourceSpan::Environment(name) => name.clone(),
        SourceSpan::Whole => "-".to_owned(),
    };
    let nearest = |p: &Problem| p.nearest.as_ref().map_or_else(String::new, |near| format!(" → {near}"));
    problems.list.iter().map(|p| format!("{} {}: {}{}", place(&p.place), p.key, p.found, nearest(p))).collect()
}

fn briefly(text: &str) -> Vec<String> {
    brief(&parse(text).unwrap_err())
}

#[test]
fn the_least_configuration_has_the_defaults() {
    let config = parse(LEAST).unwrap().config;
    assert_eq!(config.cluster.audit_every, Period::from_secs(600));
    let recover = RecoverBounds { requests: 50_000, rate: 200, within: Span::from_secs(300) };
    assert_eq!(config.cluster.recover, Recover::Within(recover));
    assert_eq!(config.state.max_size, ByteSize(10 << 30));
    assert_eq!(config.state.max_age, Span::from_secs(30 * 86400));
    assert_eq!(config.state.path, Path::new("./decklog-state"));
    assert_eq!(config.watch, [watch::Settings { resources: vec!["pods".to_owned()], ..watch::Settings::default() }]);
    assert!(config.redact.defaults && config.sink.is_empty() && config.http.is_none());
}

#[test]
fn five_mistakes_get_five_messages() {
    insta::assert_snapshot!(report(r#"
[state]
max_sise = "10GiB"

[[watch]]
resources = ["pods"]
label_selector = "tier im (web)"

[[sink]]
name = "audit"
type = "flie"

[[sink]]
name = "audit"
type = "stdout"

[log]
level = 3
"#), @r#"
config.toml:3:1: state.max_sise
    found     an unknown key
    expected  one of max_age, max_size, on_full, path, readers
    nearest   max_size
config.toml:7:18: watch[0].label_selector
    found     the operator "im" in "tier im (web)" (operators: =, ==, !=, in, notin, <, >)
    expected  a label selector such as "tier=web,env in (prod,qa),!legacy"
    nearest   in
config.toml:11:8: sink[0].type
    found     the string "flie"
    expected  "stdout", "elasticsearch", "file", "http", "journald", "kafka", "nats", "otlp", "postgres", "redis", "s3" or "syslog"
    nearest   file
config.toml:14:8: sink[1].name
    found     "audit", which is the name of sink[0]
    expected  a name that no other sink has
config.toml:18:9: log.level
    found     the integer 3
    expected  error, warn, info, debug, trace or off; or directives such as "info,decklog::watch=debug"
5 problems in the configuration
"#);
}

#[test]
fn streams_and_buckets_are_looked_at() {
    let sink = |keys: &str| report(&format!("{LEAST}\n[[sink]]\nname = \"s\"\n{keys}\n"));
    let nats = |keys: &str| sink(&format!("type = \"nats\"\n{keys}"));
    for (found, says) in [
        (nats("stream = \"s\""), "sink[0].addresses"),
        (nats("addresses = []\nstream = \"s\""), "an array of at least one"),
        (nats("addresses = [\"nats://a\"]\nstream = \"a.b\""), "the name of a stream, without spaces"),
        (nats("addresses = [\"nats://a\"]\nstream = \"s\"\nsubject = \"a.*\""), "with a space or a wildcard"),
        (nats("addresses = [\"nats://a\"]\nstream = \"s\"\nsubject = \"a.{nmae}\""), "nearest   a.{name}"),
        (sink("type = \"s3\"\nurl = \"https://x/y\""), "s3://BUCKET, s3://BUCKET/PREFIX, or file:///PATH"),
        (sink("type = \"s3\"\nurl = \"s3://logs\"\npartition = \"week\""), "\"day\", \"hour\" or \"none\""),
    ] {
        assert!(found.contains(says), "{says}: {found}");
    }
}

#[test]
fn the_example_of_the_contract_is_taken() {
    let config = parse(
        r#"
[cluster]
name = "prod-eu1"
kubeconfig = "/etc/decklog/kubeconfig"
context = "prod"
request_metrics = false
[state]
path = "/var/lib/decklog"
max_size = "10GiB"
max_age = "30d"
on_full = "pause"
[[watch]]
resources = ["deployments.apps", "pods", "*.example.com"]
exclude = ["leases.coordination.k8s.io", "events"]
namespaces = ["shop", "pay"]
exclude_namespaces = ["ci-*"]
label_selector = "tier=web"
field_selector = "metadata.name=x"
first_list = "emit"
ignore = ["/metadata/managedFields", "/status/conditions/*/lastHeartbeatTime"]
[redact]
rules = [{ resources = ["configmaps"], paths = ["/data/*password*"], mode = "hmac" }]
[[sink]]
name = "audit"
type = "file"
path = "/var/log/decklog/events.jsonl"
rotate_size = "100MiB"
rotate_every = "1d"
where = 'type == "DELETED" || kind == "Secret"'
payload = "full"
from = "start"
[http]
listen = "127.0.0.1:9465"
[log]
level = "info"
format = "text"
"#,
    )
    .unwrap()
    .config;
    let SinkKind::File(file) = &config.sink[0].kind else { panic!("{:?}", config.sink) };
    assert_eq!(
        (file.rotate_size, file.rotate_every, file.keep),
        (Some(ByteSize(100 << 20)), Some(Span::from_secs(86400)), 14)
    );
    assert_eq!(config.redact.rules[0].mode, RedactMode::Hmac);
    assert_eq!(config.watch[0].namespaces, ["shop", "pay"]);
    assert_eq!(config.watch[0].exclude_namespaces, ["ci-*".parse().unwrap()]);
}

#[test]
fn words_of_before_the_first_release_are_refused_with_what_they_are_called_now() {
    let text = format!(
        "[state]\non_full = 'forget'\n{LEAST}\n[[sink]]\nname = 'a'\ntype = 'stdout'\non_refused = 'set_aside'\n"
    );
    let problems = parse(&text).unwrap_err();
    let nearest: Vec<_> = problems.list.iter().map(|p| (p.key.as_str(), p.nearest.as_deref())).collect();
    assert_eq!(nearest, [("state.on_full", Some("drop_oldest")), ("sink[0].on_refused", Some("dead_letter"))]);
}

#[test]
fn wrong_types_are_reported_with_what_was_meant() {
    insta::assert_snapshot!(
        briefly(
            "
cluster = 'x'
state.max_size = 10
state.max_age = 30
redact.defaults = 'ture'
http.listen = 9465
log.format = ['text']
[watch]
resources = 'pods'
"
        )
        .join("\n"),
        @r#"
        2:11 cluster: the string "x"
        3:18 state.max_size: the integer 10 → "10GiB"
        4:17 state.max_age: the integer 30 → "30d"
        5:19 redact.defaults: the string "ture" → true
        6:15 http.listen: the integer 9465 → "127.0.0.1:9465"
        7:14 log.format: an array
        8:1 watch: a table → [[watch]]
        "#
    );
    insta::assert_snapshot!(
        briefly(
            "
[[watch]]
resources = []
namespaces = 'shop'
first_list = 'silnet'
[[sink]]
name = 'a'
type = 'file'
path = '/x'
keep = '7'
from = 'begin'
payload = 1.5
rotate_every = 2026-01-01
compress = true
[[sink]]
name = 'b'
type = 'http'
url = 'http://x'
batch_size = 0
from = 0
[[sink]]
name = 'c'
type = 'file'
path = '/y'
keep = 99999999999999999999999
"
        )
        .join("\n"),
        @r#"
        3:13 watch[0].resources: an empty array
        4:14 watch[0].namespaces: the string "shop" → ["shop"]
        5:14 watch[0].first_list: the string "silnet" → silent
        10:8 sink[0].keep: the string "7" → 7
        11:8 sink[0].from: the string "begin"
        12:11 sink[0].payload: a float, 1.5
        13:16 sink[0].rotate_every: a date or time, 2026-01-01
        14:12 sink[0].compress: the boolean true
        19:14 sink[1].batch_size: the integer 0
        20:8 sink[1].from: the integer 0
        25:8 sink[2].keep: an integer beyond 64 bits, 99999999999999999999999
        "#
    );
}

#[test]
fn what_only_shows_between_sections_is_reported_too() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x.jsonl");
    let path = path.display();
    let text = format!(
        "
[[watch]]
resources = ['pods', 'deployments.apps', 'pods']
namespaces = ['shop']
[[watch]]
resources = ['Deployments.apps', 'services']
[[watch]]
resources = ['*', 'services']
namespaces = ['pay']
[[watch]]
resources = ['*', 'nodes']
[[sink]]
name = 'a'
type = 'file'
path = '{path}'
[[sink]]
name = 'a'
type = 'file'
path = '{path}/.'
"
    );
    let found = briefly(&text).join("\n").replace(&path.to_string(), "FILE");
    insta::assert_snapshot!(found, @r#"
    3:42 watch[0].resources[2]: "pods", which watch[0].resources[0] watches in the same namespaces
    6:14 watch[1].resources[0]: "deployments.apps", which watch[0].resources[1] watches in the same namespaces
    8:19 watch[2].resources[1]: "services", which watch[1].resources[1] watches in the same namespaces
    17:8 sink[1].name: "a", which is the name of sink[0]
    19:8 sink[1].path: "FILE/.", which is the file of sink[0]
    "#);
}

#[test]
fn a_namespace_is_watched_or_left_out() {
    let text = "
[[watch]]
resources = ['pods']
namespaces = ['shop', 'ci-7', 'pay']
exclude_namespaces = ['pay', 'ci-?', 'Kube_System', '*', 'a b']
";
    insta::assert_snapshot!(briefly(text).join("\n"), @r#"
    4:23 watch[0].namespaces[1]: "ci-7", which exclude_namespaces[1] leaves out
    4:31 watch[0].namespaces[2]: "pay", which exclude_namespaces[0] leaves out
    5:38 watch[0].exclude_namespaces[2]: the string "Kube_System" → kube-system
    5:53 watch[0].exclude_namespaces[3]: the string "*", which leaves out every namespace
    5:58 watch[0].exclude_namespaces[4]: the string "a b"
    "#);
    let apart = "[[watch]]\nresources = ['pods']\nnamespaces = ['shop']\nexclude_namespaces = ['ci-*']\n";
    parse(apart).unwrap();
}

#[test]
fn a_key_of_another_section_is_reported_with_where_it_belongs() {
    insta::assert_snapshot!(
        report(&format!("listen = '127.0.0.1:1'\n{LEAST}where = 'true'\n")), @"
        config.toml:1:1: listen
            found     an unknown key here (it is one of [http] and [ui])
            expected  one of cluster, ha, http, log, redact, sink, state, ui, watch
        config.toml:4:1: watch[0].where
            found     an unknown key here (it is one of [[sink]])
            expected  one of exclude, exclude_namespaces, field_selector, first_list, ignore, label_selector, namespaces, resources
        2 problems in the configuration
        ");
}

#[test]
fn broken_toml_is_reported_line_by_line_and_the_rest_is_still_checked() {
    insta::assert_snapshot!(
        briefly("[state]\nmax_size = 10GiB\nmax_age = \"30d\nfoo = 1\nfoo = 2\n[[watch]]\nresources = ['a' 'b']\nfist_list = 'emit'\n").join("\n"),
        @"
        2:12 state.max_size: string values must be quoted
        3:15 state.max_age: invalid basic string
        5:1 state.foo: duplicate key
        7:18 watch[0].resources: missing comma between array elements
        8:1 watch[0].fist_list: an unknown key → first_list
        ");
}

#[test]
fn a_filter_that_is_no_cel_is_reported_with_its_place() {
    let of = |filter: &str| {
        briefly(&format!("{LEAST}[[sink]]\nname = 'a'\ntype = 'stdout'\nwhere = \'\'\'{filter}\'\'\'\n")).join("\n")
    };
    insta::assert_snapshot!(of("kind == "), @r#"6:9 sink[0].where: not a CEL expression: mismatched input '<EOF>', at character 9 of "kind == ""#);
    insta::assert_snapshot!(of("knd == \"Pod\""), @r#"6:9 sink[0].where: an entry has no "knd", at character 1 of "knd == \"Pod\"" → kind"#);
    insta::assert_snapshot!(of("kind == 'Pod'\n  && && true"), @"6:9 sink[0].where: not a CEL expression: extraneous input '&&', at character 6 of line 2 of the expression");
    insta::assert_snapshot!(of("kind == 'Pod' && name == 1"), @r#"6:9 sink[0].where: "==" does not go with values of type string and int, at character 23 of "kind == 'Pod' && name == 1""#);
    insta::assert_snapshot!(of("'spec' in change.aeras"), @r#"6:9 sink[0].where: change has no "aeras", at character 17 of "'spec' in change.aeras" → areas"#);
}

#[test]
fn an_empty_file_wants_a_watch() {
    insta::assert_snapshot!(report(""), @"
    config.toml: watch
        found     missing
        expected  at least one [[watch]] with the resources to watch
    1 problem in the configuration
    ");
}

#[test]
fn secrets_are_not_shown() {
    let text = format!(
        "{LEAST}
[[sink]]
name = 'a'
type = 'http'
url = ['geheim']
headers = 'Authorization: geheim'
[[sink]]
name = 'b'
type = 'http'
url = 'https://u:geheim@x.example'
headers = {{ Authorization = ['geheim'], X = 4711, 'Y Z' = 'geheim', Q = \"ge\\u0007heim\" }}
[[sink]]
name = 'c'
type = 'http'
url = geheim
headers = {{ Authorization = 'geheim }}
"
    );
    let found = report(&text);
    assert!(!found.contains("geheim") && !found.contains("4711"), "{found}");
    assert!(
        found.contains("sink[1].headers.Authorization") && found.contains("a URL with a user or password"),
        "{found}"
    );
}

#[test]
fn a_name_cannot_play_with_the_terminal() {
    let found = report(&format!("{LEAST}\"\\u001b[2J\\u202e\" = 1\n"));
    assert!(!found.contains(['\u{1b}', '\u{202e}']), "{found}");
}

#[test]
fn what_recovering_may_cost_is_a_table_or_off() {
    let of = |value: &str| format!("cluster.recover = {value}\n{LEAST}");
    let recover = |value: &str| parse(&of(value)).unwrap().config.cluster.recover;
    assert_eq!(recover("'off'"), Recover::Off(Off::Off));
    assert_eq!(recover("{}"), Recover::default());
    let within = RecoverBounds { within: Span::from_secs(30), ..RecoverBounds::default() };
    assert_eq!(recover("{ within = '30s' }"), Recover::Within(within));
    let problems = |value: &str| briefly(&of(value)).join("; ");
    insta::assert_snapshot!(
        ["'of'", "false", "{ rate = 0, request = 5 }", "{ within = '5 moons' }"].map(problems).join("\n"),
        @r#"
    1:19 cluster.recover: the string "of" → off
    1:19 cluster.recover: the boolean false
    1:28 cluster.recover.rate: the integer 0; 1:31 cluster.recover.request: an unknown key → requests
    1:30 cluster.recover.within: "5 moons": the unit "moons" (units: w, d, h, m, s, ms)
    "#
    );
    let wrong = parse(&of("'on'")).unwrap_err().to_string();
    assert!(wrong.contains("expected  \"off\" or a table"), "{wrong}");
    let by_environment =
        |key: &str, value: &str| with_environment(LEAST, &[(key, value)]).map(|loaded| loaded.config.cluster.recover);
    assert_eq!(by_environment("DECKLOG_CLUSTER_RECOVER", "off").unwrap(), Recover::Off(Off::Off));
    let slow = RecoverBounds { rate: 5, ..RecoverBounds::default() };
    assert_eq!(by_environment("DECKLOG_CLUSTER_RECOVER_RATE", "5").unwrap(), Recover::Within(slow));
}

#[test]
fn the_environment_overrides_the_file() {
    let text = format!("{LEAST}[[sink]]\nname = 'a'\ntype = 'http'\nurl = 'http://x.example'\n[log]\nlevel = 'warn'\n");
    let config = with_environment(
        &text,
        &[
            ("DECKLOG_CONFIG", "/x"),
            ("DECKLOG_CLUSTER_NAME", "prod"),
            ("DECKLOG_CLUSTER_REQUEST_METRICS", "true"),
            ("DECKLOG_CLUSTER_AUDIT_EVERY", "off"),
            ("DECKLOG_STATE_MAX_SIZE", "1GiB"),
            ("DECKLOG_LOG_LEVEL", "debug"),
            ("DECKLOG_HTTP_LISTEN", "127.0.0.1:1"),
            ("DECKLOG_WATCH_0_NAMESPACES", "shop, pay"),
            ("DECKLOG_WATCH_0_EXCLUDE", "['events']"),
            ("DECKLOG_WATCH_0_EXCLUDE_NAMESPACES", "kube-system, ci-*"),
            ("DECKLOG_WATCH_1_RESOURCES", "nodes"),
            ("DECKLOG_SINK_0_URL", "https://y.example/?a=1"),
            ("DECKLOG_SINK_0_FROM", "42"),
            ("DECKLOG_SINK_0_BATCH_SIZE", "7"),
            ("DECKLOG_SINK_0_HEADERS", "{ A = 'b' }"),
            ("DECKLOG_SINK_1_TYPE", "stdout"),
            ("DECKLOG_SINK_1_NAME", "4711"),
            ("DECKLOG_REDACT_RULES_0_RESOURCES", "configmaps"),
            ("DECKLOG_REDACT_RULES_0_PATHS", "/data/x"),
            ("DECKLOG_REDACT_RULES_0_MODE", "drop"),
            ("DECKLOG_PORT", "tcp://10.0.0.1:80"),
            ("DECKLOG_HTTP_SERVICE_HOST", "10.0.0.1"),
            ("DECKLOG_HTTP_PORT_9465_TCP", "tcp://10.0.0.1:80"),
            ("DECKLOG_OPERATOR_VERSION", "3"),
        ],
    )
    .unwrap()
    .config;
    assert_eq!(config.cluster.name.as_deref(), Some("prod"));
    assert!(config.cluster.request_metrics && config.cluster.audit_every.is_zero());
    assert_eq!((config.state.max_size, config.log.level.as_str()), (ByteSize(1 << 30), "debug"));
    assert_eq!(config.http.unwrap().listen.to_string(), "127.0.0.1:1");
    assert_eq!(
        (&config.watch[0].namespaces[..], &config.watch[0].exclude[..]),
        (&["shop".to_owned(), "pay".to_owned()][..], &["events".to_owned()][..])
    );
    assert_eq!(config.watch[0].exclude_namespaces, ["kube-system", "ci-*"].map(|text| text.parse().unwrap()));
    assert_eq!((config.watch[0].resources[0].as_str(), config.watch[1].resources[0].as_str()), ("pods", "nodes"));
    assert_eq!(config.sink[0].from, From::Seq(42));
    let SinkKind::Http(http) = &config.sink[0].kind else { panic!() };
    assert_eq!((http.url.as_str(), http.batch_size, http.headers["A"].as_str()), ("https://y.example/?a=1", 7, "b"));
    assert_eq!(
        (config.sink[1].name.as_str(), &config.sink[1].kind),
        ("4711", &SinkKind::Stdout(crate::sink::stdout::Settings {}))
    );
    assert_eq!(config.redact.rules[0].mode, RedactMode::Drop);
}

#[test]
fn wrong_variables_are_reported_by_name() {
    let problems = with_environment(
        LEAST,
        &[
            ("DECKLOG_STATE_MAX_SISE", "1GiB"),
            ("DECKLOG_STATE_MAX_AGE", "30 moons"),
            ("DECKLOG_CLUSTER_REQUEST_METRICS", "yes"),
            ("DECKLOG_SINK_1_NAME", "b"),
            ("DECKLOG_WATCH_0_RESOURCE", "pods"),
            ("DECKLOG_WATCH_NAMESPACES", "pods"),
        ],
    )
    .unwrap_err();
    insta::assert_snapshot!(brief(&problems).join("\n"), @r#"
    DECKLOG_CLUSTER_REQUEST_METRICS cluster.request_metrics: the string "yes"
    DECKLOG_SINK_1_NAME sink[1]: the index 1 where there are 0
    DECKLOG_STATE_MAX_AGE state.max_age: "30 moons": the unit "moons" (units: w, d, h, m, s, ms)
    DECKLOG_STATE_MAX_SISE : a variable that names no key → DECKLOG_STATE_MAX_SIZE
    DECKLOG_WATCH_0_RESOURCE : a variable that names no key → DECKLOG_WATCH_0_RESOURCES
    DECKLOG_WATCH_NAMESPACES : a variable that names no key → DECKLOG_WATCH_0_NAMESPACES
    "#);
    assert!(problems.to_string().contains("environment variable DECKLOG_STATE_MAX_AGE: state.max_age\n"), "{problems}");
}

#[test]
fn the_state_directory_is_the_one_that_systemd_made() {
    let path =
        |text: &str, environment: &[(&str, &str)]| with_environment(text, environment).unwrap().config.state.path;
    assert_eq!(path(LEAST, &[("STATE_DIRECTORY", "/var/lib/decklog:/x")]), Path::new("/var/lib/decklog"));
    let named = format!("state.path = '/named'\n{LEAST}");
    assert_eq!(path(&named, &[("STATE_DIRECTORY", "/var/lib/decklog")]), Path::new("/named"));
    assert_eq!(path(&named, &[("DECKLOG_STATE_PATH", "/other"), ("STATE_DIRECTORY", "/x")]), Path::new("/other"));
}

#[test]
fn secrets_come_from_systemds_credentials_and_reading_commands_need_none() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("hmac"), [7; 32]).unwrap();
    let text = format!("redact.key_file = '${{CREDENTIALS_DIRECTORY}}/hmac'\n{LEAST}");
    let environment = [("CREDENTIALS_DIRECTORY".to_owned(), dir.path().to_str().unwrap().to_owned())];
    let config = Config::parse(&text, "c", &environment, Files::Check).unwrap().config;
    let key = config.redact.read_key().unwrap();
    assert!(key.is_some() && key == config.redact.read_key().unwrap());
    assert_eq!(
        briefly(&text),
        ["1:19 redact.key_file: ${CREDENTIALS_DIRECTORY}, which is not set: systemd sets it for a service"]
    );
    assert!(Config::parse(&text, "c", &[], Files::Ignore).is_ok());
    assert_eq!(
        briefly(&text.replace("CREDENTIALS_DIRECTORY", "CREDENTIAL_DIRECTORY")),
        ["1:19 redact.key_file: ${CREDENTIAL_DIRECTORY}, which is never used → ${CREDENTIALS_DIRECTORY}"]
    );
    let short = dir.path().join("short");
    std::fs::write(&short, "short").unwrap();
    let found = report(&format!("redact.key_file = '{}'\n{LEAST}", short.display()));
    assert!(found.contains("which has 5 bytes"), "{found}");
}

#[test]
fn warnings_do_not_refuse() {
    let warnings = parse(&format!(
        "{LEAST}[http]\nlisten = '0.0.0.0:9465'\nallow_remote = true\n[[sink]]\nname = 'a'\ntype = 'http'\nurl = 'http://x'\nbearer_file = '/proc/self/stat'\n"
    ))
    .unwrap()
    .warnings;
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert!(parse(&format!("{LEAST}[http]\nlisten = '/run/decklog/http'\n")).unwrap().warnings.is_empty());
    // What stays on this machine crosses no network.
    for (url, warnings) in [
        ("http://127.0.0.1:8080/x", 0),
        ("HTTP://localhost", 0),
        ("http://[::1]:1", 0),
        ("https://x", 0),
        ("HTTP://10.0.0.1", 1),
        ("http://localhost.example", 1),
    ] {
        let sink = format!("[[sink]]\nname = 'a'\ntype = 'http'\nurl = '{url}'\nbearer_file = '/proc/self/stat'\n");
        assert_eq!(parse(&format!("{LEAST}{sink}")).unwrap().warnings.len(), warnings, "{url}");
    }
}

#[test]
fn other_machines_are_let_in_only_where_that_is_said() {
    for listen in ["0.0.0.0:9465", "[::]:9465", "10.0.0.1:80"] {
        let found = report(&format!("{LEAST}[http]\nlisten = '{listen}'\n"));
        assert!(found.contains("which other machines can reach") && found.contains("allow_remote = true"), "{found}");
        assert!(parse(&format!("{LEAST}[http]\nlisten = '{listen}'\nallow_remote = true\n")).is_ok());
    }
    for listen in ["127.0.0.1:1", "127.8.0.1:1", "[::1]:1", "/run/x.sock"] {
        assert!(parse(&format!("{LEAST}[http]\nlisten = '{listen}'\n")).is_ok(), "{listen}");
    }
    let environment = [("DECKLOG_HTTP_LISTEN".to_owned(), "0.0.0.0:1".to_owned())];
    assert!(Config::parse(LEAST, "c", &environment, Files::Check).is_err(), "by the environment neither");
}

#[test]
fn files_that_cannot_be_read_say_what_to_do() {
    let dir = tempfile::tempdir().unwrap();
    let load = |path: &Path| {
        let text = Config::load_with(Some(path), &[], Files::Check).unwrap_err().to_string();
        text.replace(&dir.path().display().to_string(), "DIR")
    };
    insta::assert_snapshot!(load(&dir.path().join("absent.toml")), @"
    DIR/absent.toml
        found     a file that cannot be read: No such file or directory (os error 2)
        expected  a file in TOML that this user can read
    1 problem in the configuration
    ");
    let file = dir.path().join("config.toml");
    std::fs::write(&file, b"a = 1\n\xff").unwrap();
    assert!(load(&file).contains("bytes that are not UTF-8 in line 2"));
    std::fs::write(&file, " ".repeat(2 << 20)).unwrap();
    assert!(load(&file).contains("more than 1MiB"));
    assert!(load(dir.path()).contains("Is a directory"));
    std::fs::write(&file, LEAST).unwrap();
    let named = [("DECKLOG_CONFIG".to_owned(), file.to_str().unwrap().to_owned())];
    assert_eq!(Config::load_with(None, &named, Files::Check).unwrap().path, Some(file));
    assert!(find(None, &named).is_ok());
}

/// Every key of the schema, as a path without indexes, with its default.
fn keys(schema: &Json, at: &Json, path: &str, into: &mut Vec<(String, Option<Json>)>) {
    let at = check::resolve(schema, at);
    let variants = at["oneOf"].as_array().into_iter().flatten().map(|v| check::resolve(schema, v));
    for table in std::iter::once(at.clone()).chain(variants) {
        for (key, property) in table["properties"].as_object().into_iter().flatten() {
            let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
            let resolved = check::resolve(schema, property);
            let table = resolved.get("items").unwrap_or(&resolved);
            if check::resolve(schema, table).get("properties").is_none() {
                into.push((path.clone(), property.get("default").cloned()));
            }
            keys(schema, table, &path, into);
        }
    }
}

/// `config.toml` with every commented key set.
fn full_example() -> String {
    let uncommented = |line: &str| {
        let rest = line.strip_prefix('#')?;
        (rest.starts_with('[') || rest.starts_with(|c: char| c.is_ascii_lowercase())).then(|| rest.to_owned())
    };
    include_str!("../../../config.toml")
        .lines()
        .map(|line| uncommented(line).unwrap_or_else(|| line.to_owned()) + "\n")
        .collect()
}

#[test]
fn config_toml_works_as_it_is() {
    let config = parse(include_str!("../../../config.toml")).unwrap().config;
    let least = parse(LEAST).unwrap().config;
    assert_eq!(Config { watch: least.watch.clone(), ..config }, least, "only [[watch]] differs from the defaults");
}

#[test]
fn config_toml_names_every_key_with_its_default() {
    let text = full_example();
    let loaded = Config::parse(&text, "config.toml", &[], Files::Ignore);
    loaded.unwrap_or_else(|problems| panic!("{problems}"));
    let schema = config_schema();
    // An array of tables that is written in one line counts as one key.
    let mut known = vec![("redact.rules".to_owned(), Some(Json::Array(Vec::new())))];
    keys(&schema, &schema, "", &mut known);

    // Walk the text line by line: section headers, and keys with the comment above them.
    let mut named = BTreeSet::new();
    let mut section = String::new();
    let mut comment = String::new();
    for line in text.lines() {
        if let Some(header) = line.strip_prefix('[') {
            section = header.trim_matches(['[', ']']).to_owned();
        } else if let Some(prose) = line.strip_prefix('#') {
            comment.push_str(prose);
        } else if let Some((key, value)) = line.split_once(" = ") {
            let path = format!("{section}.{key}");
            let value: toml::Value = format!("x = {value}").parse::<toml::Table>().unwrap()["x"].clone();
            // Sinks of several types can have one key, each with its own default.
            let defaults = known.iter().filter(|(known, _)| *known == path).map(|(_, default)| default.as_ref());
            let defaults: Vec<_> = defaults.collect();
            assert!(!defaults.is_empty(), "{path}: no such key");
            let same = defaults.contains(&Some(&serde_json::to_value(&value).unwrap()));
            let must = defaults.iter().any(Option::is_none)
                && ["name", "type", "path", "url", "resources", "addresses", "stream"].contains(&key);
            let stated = comment.contains("Default: ");
            assert!(same || must || stated, "{path}: the defaults are {defaults:?}, and config.toml says {value}");
            named.insert(path);
            comment.clear();
        }
        if line.is_empty() {
            comment.clear();
        }
    }
    let in_one_line = |key: &String| key.starts_with("redact.rules.") || key.starts_with("cluster.recover.");
    let expected: BTreeSet<String> = known.into_iter().map(|(key, _)| key).filter(|key| !in_one_line(key)).collect();
    assert_eq!(named, expected);
}

#[test]
fn defaults_of_the_types_are_those_of_the_schema() {
    let schema = config_schema();
    let texts = serde_json::to_string(&schema).unwrap();
    assert!(!texts.contains("null"), "TOML has no null");
    assert_eq!(schema["$defs"]["State"]["properties"]["max_size"]["default"], "10GiB");
    assert_eq!(schema["$defs"]["HttpSink"]["properties"]["timeout"]["default"], "30s");
    // What is written out is read back as it was.
    let config = Config::parse(&full_example(), "config.toml", &[], Files::Ignore).unwrap().config;
    let back: Config = serde_json::from_value(serde_json::to_value(&config).unwrap()).unwrap();
    assert_eq!(back, config);
}

#[test]
fn entries_fit_their_schema() {
    use crate::core::model::{Cluster, EntryType, Evidence, Gap, ResourceVersion, Seq, Why};
    let schema = crate::core::wire::entry_schema();
    let cluster = Cluster { name: "n".into(), uid: "u".into() };
    let gap = Gap {
        why: Why::Audit,
        from: Some(ResourceVersion::new("1")),
        to: Some(ResourceVersion::new("2")),
        recovered: 3,
    };
    let whole = crate::core::wire::EntryBuilder {
        seq: Seq(1),
        epoch: "e",
        time: "2026-11-21T00:00:00.000000Z",
        happened: Some("2026-11-20T23:59:59Z"),
        op: EntryType::Modified,
        evidence: Some(Evidence::Watched),
        cluster: &cluster,
        api_version: "v1",
        kind: "Pod",
        resource: "pods",
        namespace: "x",
        name: "y",
        uid: "z",
        version: "3",
        change: Some(r#"{"areas":["spec"],"patch":[{"op":"replace","path":"/a","value":1,"was":2}],"managers":[]}"#),
        object: Some(b"{}"),
        gap: Some((&gap, Some("2026-11-20T00:00:00Z"))),
        redacted: &["/a".to_owned()],
    };
    let line = crate::core::wire::render(&whole).line;
    let entry: Json = serde_json::from_slice(&line).unwrap();
    let named = |value: &Json| value.as_object().unwrap().keys().cloned().collect::<BTreeSet<_>>();
    assert_eq!(named(&entry), named(&schema["properties"]), "an entry with everything has every key of the schema");
    for part in ["cluster", "change", "gap"] {
        assert_eq!(named(&entry[part]), named(&schema["properties"][part]["properties"]), "{part}");
    }
    for key in schema["required"].as_array().unwrap() {
        assert!(entry.get(key.as_str().unwrap()).is_some());
    }
}

proptest! {
    #[test]
    fn no_text_makes_the_reader_panic(text in "\\PC{0,200}") {
        drop(parse(&text));
    }

    /// Pieces of real configurations in any order and mutilation: what the checker takes, the types take.
    #[test]
    fn what_the_checker_takes_the_types_take(
        lines in proptest::collection::vec((0..full_example().lines().count(), 0..80_usize, any::<bool>()), 0..40),
        name in "DECKLOG_(STATE|SINK_[0-2]|WATCH_0|HTTP|LOG|REDACT_RULES)(_[A-Z]{1,6}){0,2}",
        value in "[a-z0-9\\[\\]{}'=]{0,8}",
    ) {
        let example = full_example();
        let all: Vec<&str> = example.lines().collect();
        let mut text = String::from(LEAST);
        for (index, cut, whole) in lines {
            let line: String = if whole { all[index].to_owned() } else { all[index].chars().take(cut).collect() };
            text.push_str(&line);
            text.push('\n');
        }
        if let Err(problems) = Config::parse(&text, "c", &[(name, value)], Files::Ignore) {
            prop_assert!(!problems.to_string().contains("please report this"), "{}\n{}", text, problems);
        }
    }
}

#[test]
fn a_number_without_a_unit_gets_that_of_the_default_and_no_other() {
    let text = format!(
        "[state]\nmax_age = '30'\n[cluster]\naudit_every = '0s'\n[[sink]]\nname = 'a'\ntype = 'file'\npath = '/x'\nrotate_size = 100\n{LEAST}"
    );
    insta::assert_snapshot!(briefly(&text).join("\n"), @r#"
    2:11 state.max_age: "30": no unit (units: w, d, h, m, s, ms) → 30d
    4:15 cluster.audit_every: "0s": a duration of zero
    9:15 sink[0].rotate_size: the integer 100
    "#);
}

#[test]
fn a_key_that_is_near_is_not_sought_elsewhere() {
    let text = format!("{LEAST}[redact]\nrules = [{{ resources = ['configmaps'], path = ['/data/x'] }}]\n");
    let found = briefly(&text);
    assert!(found.contains(&"4:40 redact.rules[0].path: an unknown key → paths".to_owned()), "{found:#?}");
}

#[test]
fn what_stands_below_a_broken_header_is_not_reported() {
    insta::assert_snapshot!(briefly("[state]\nmax_size = 10\n[[watch]\nresources = ['pods']\n").join("\n"), @r#"
    2:12 state.max_size: the integer 10 → "10GiB"
    3:9 : unclosed array table
    "#);
}

#[test]
fn another_language_is_named() {
    for (text, language) in [
        ("# decklog\nwatch:\n  - resources: [pods]\n", "YAML"),
        ("---\nwatch:\n", "YAML"),
        ("state: {path: /x}\n", "YAML"),
        ("{\"watch\": []}\n", "JSON"),
    ] {
        let wrong = report(text);
        assert!(wrong.contains(&format!("found     what looks like {language}")), "{wrong}");
        assert!(wrong.contains("expected  TOML") && wrong.ends_with("1 problem in the configuration"), "{wrong}");
    }
    assert!(!report("[state]\nmax_size = 1GiB\n").contains("looks like"));
}
