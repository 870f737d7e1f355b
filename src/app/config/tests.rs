mod audit_log;
mod environment;
mod evidence;
mod ha;
mod reference;
mod sinks;

use reference::full_example;
use std::collections::BTreeSet;

use proptest::prelude::*;
use serde_json::Value as Json;

use super::*;
use crate::core::change::redact::RedactMode;
use crate::core::units::{Period, Span};
use crate::delivery::From;
use crate::sink::registry::SinkKind;
use crate::watch::cluster::{Off, Recover, RecoverBounds};

/// A sink with a template, to which `notify` can be added.
const NOTIFYING: &str =
    "[[sink]]\nname = 'a'\ntype = 'http'\nurl = 'https://x'\nformat = 'template'\nescape = 'none'\nbody = '{}'";

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
    let recover = RecoverBounds { requests: 50_000, rate: 400, within: Span::from_secs(300) };
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
            found     an unknown key here (it is one of [[audit_log]] and [http] and [ui])
            expected  one of audit_log, cluster, evidence, ha, http, log, redact, sink, state, ui, watch
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
    // A digest does not say whether it is a person.
    for (senders, rules, warnings) in [
        ("['users']", "['gap', 'deleted-by-a-person']", 1),
        ("['addresses', 'users']", "['deleted-by-a-person']", 1),
        ("['users']", "['gap']", 0),
        ("['addresses', 'agents']", "['deleted-by-a-person']", 0),
    ] {
        let audit_log = "[[audit_log]]\nfile = '/x'";
        let found =
            parse(&format!("{LEAST}[redact]\nsenders = {senders}\n{audit_log}\n{NOTIFYING}\nnotify = {rules}\n"))
                .unwrap()
                .warnings;
        assert_eq!(found.len(), warnings, "{senders} {rules}: {found:?}");
        assert!(
            found.iter().all(|found| found.contains("deleted-by-a-person") && found.contains("users")),
            "{found:?}"
        );
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
