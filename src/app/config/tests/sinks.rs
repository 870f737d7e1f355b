//! What is said of `[[sink]]`.

use super::*;
use crate::core::wire::Payload;
use crate::delivery::OnRefused;
use crate::sink::http::BodyFormat;

#[test]
fn sinks_have_the_keys_of_their_type() {
    let config = parse(&format!(
        "{LEAST}
[[sink]]
name = 'a'
type = 'http'
url = 'https://x.example/'
format = 'batched'
headers = {{ X-A = 'b' }}
from = 17
payload = 'metadata'
on_refused = 'dead_letter'
timeout = '5s'
"
    ))
    .unwrap()
    .config;
    let sink = &config.sink[0];
    assert_eq!((sink.from, sink.payload, sink.on_refused), (From::Seq(17), Payload::Metadata, OnRefused::DeadLetter));
    let SinkKind::Http(http) = &sink.kind else { panic!("{sink:?}") };
    assert_eq!((http.format, http.batch_size, http.timeout), (BodyFormat::Batched, 100, Span::from_secs(5)));
    assert_eq!(http.headers["X-A"], "b");

    let text = format!(
        "{LEAST}
[[sink]]
name = 'a'
type = 'http'
url = 'https://x.example/'
rotate_size = '1MiB'
[[sink]]
name = 'b'
type = 'file'
[[sink]]
name = 'c'
type = 'nats'
topic = 'x'
addresses = ['nats://127.0.0.1']
stream = 'x'
[[sink]]
name = 'd'
path = '/x'
kepp = 3
"
    );
    insta::assert_snapshot!(briefly(&text).join("\n"), @r#"
    8:1 sink[0].rotate_size: a key of sinks of type "file"; this one is "http"
    9:1 sink[1].path: missing
    15:1 sink[2].topic: a key of sinks of type "kafka"; this one is "nats"
    18:1 sink[3].type: missing
    21:1 sink[3].kepp: an unknown key → keep
    "#);
}

#[test]
fn segments_of_two_sinks_are_in_two_places() {
    let text = format!(
        "{LEAST}
[[sink]]
name = 'a'
type = 's3'
url = 's3://logs/x'
[[sink]]
name = 'b'
type = 's3'
url = 's3://logs/x/'
[[sink]]
name = 'c'
type = 's3'
url = 's3://logs/x/y'
[[sink]]
name = 'd'
type = 's3'
url = 's3://logs/x'
endpoint = 'https://other.example'
"
    );
    insta::assert_snapshot!(briefly(&text).join("\n"), @"11:7 sink[1].url: the place of sink[0]");
}

#[test]
fn two_sinks_append_to_two_streams() {
    const TEXT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/rustfmt.toml");
    let text = format!(
        "{LEAST}
[[sink]]
name = 'a'
type = 'nats'
addresses = ['nats://127.0.0.1', 'tls://two.example:4222']
stream = 'log'
[[sink]]
name = 'b'
type = 'nats'
addresses = ['nats://LOCALHOST:4222']
stream = 'log'
subject = 'decklog.pods.{{name}}'
[[sink]]
name = 'c'
type = 'nats'
addresses = ['tls://two.example']
stream = 'log'
subject = 'other.{{resource}}.{{namespace}}'
[[sink]]
name = 'd'
type = 'nats'
addresses = ['tls://two.example:4223']
stream = 'log'
[[sink]]
name = 'e'
type = 'nats'
addresses = ['tls://two.example']
stream = 'log'
token_file = '{TEXT}'
[[sink]]
name = 'f'
type = 'redis'
url = 'redis://localhost/0'
[[sink]]
name = 'g'
type = 'redis'
url = 'redis://[::1]:6379'
stream = 'decklog'
[[sink]]
name = 'h'
type = 'redis'
url = 'redis://localhost/1'
[[sink]]
name = 'i'
type = 'redis'
url = 'redis://localhost'
stream = 'other'
"
    );
    insta::assert_snapshot!(briefly(&text).join("\n"), @r"
    13:10 sink[1].stream: the stream and the subjects of sink[0]
    39:7 sink[6].url: the database and the stream of sink[5]
    ");
}

#[test]
fn a_producer_is_one_sink() {
    let kafka = |name: &str, broker: &str, rest: &str| {
        format!("[[sink]]\nname = '{name}'\ntype = 'kafka'\ntopic = 't'\nbrokers = ['{broker}:9092']\n{rest}\n")
    };
    let sinks = [
        kafka("a", "k", "transactional_id = 'x'"),
        kafka("b", "K", "transactional_id = 'x'"),
        kafka("c", "k", "transactional_id = 'y'\nposition_topic = 'x-position'"),
        kafka("d", "other", "transactional_id = 'x'"),
        kafka("e", "k", "mode = 'idempotent'"),
    ];
    let found = briefly(&format!("{LEAST}\n{}", sinks.concat())).join("\n");
    assert!(found.contains("sink[1].transactional_id: \"x\", which is that of sink[0] at the same brokers"), "{found}");
    assert!(found.contains("sink[2].position_topic: \"x-position\", which is that of sink[0]"), "{found}");
    assert_eq!(found.lines().count(), 2, "{found}");
}

#[test]
fn a_folder_is_one_sink_however_it_is_spelled() {
    let s3 = |name: &str, url: &str| format!("[[sink]]\nname = '{name}'\ntype = 's3'\nurl = '{url}'\n");
    let sinks = [s3("a", "file:///var/x"), s3("b", "file:///var//x/./")].concat();
    let found = briefly(&format!("{LEAST}\n{sinks}")).join("\n");
    assert!(found.ends_with("sink[1].url: the place of sink[0]"), "{found}");
}

#[test]
#[cfg(feature = "postgres")]
fn a_database_is_not_taken_for_another_one_and_wants_whole_entries_for_objects() {
    use crate::sink::postgres::SslMode;

    let text = format!(
        "{LEAST}
[[sink]]
name = 'a'
type = 'postgres'
url = 'postgres://me@db.example/audit'
[[sink]]
name = 'b'
type = 'postgres'
url = 'postgresql://other@db.example:5432/audit'
schema = 'decklog'
sslmode = 'require'
[[sink]]
name = 'c'
type = 'postgres'
url = 'postgres://me:geheim@db.example/audit'
schema = 'c'
objects = true
payload = 'diff'
where = 'true'
"
    );
    let found = briefly(&text).join("\n");
    assert!(!found.contains("geheim"));
    insta::assert_snapshot!(found, @r#"
    11:7 sink[1].url: the database and the schema of sink[0]
    13:11 sink[1].sslmode: the string "require"
    17:7 sink[2].url: a URL with a password, which would show in logs
    20:11 sink[2].payload: the string "diff" beside objects = true, which needs whole objects
    21:9 sink[2].where: a filter beside objects = true, which needs every entry
    "#);
    let config = parse(
        &text
            .replace("'b'", "'d'")
            .replace("schema = 'decklog'", "schema = 'd'")
            .replace("'require'", "'disable'")
            .replace(":geheim", "")
            .replace("payload = 'diff'\nwhere = 'true'", ""),
    )
    .unwrap()
    .config;
    let SinkKind::Postgres(first) = &config.sink[0].kind else { panic!("{config:?}") };
    assert_eq!((first.sslmode, first.schema.as_str(), first.batch_size), (SslMode::VerifyFull, "decklog", 1000));
    let SinkKind::Postgres(second) = &config.sink[1].kind else { panic!("{config:?}") };
    assert_eq!((second.sslmode, second.objects), (SslMode::Disable, false));
}

#[test]
fn sinks_of_a_search_engine_and_of_telemetry_say_what_is_wrong() {
    let sinks = "
[[sink]]
name = 'a'
type = 'elasticsearch'
url = 'https://x.example:9200'
index = 'Log-{cluster}'
compress = 'zstd'
[[sink]]
name = 'b'
type = 'elasticsearch'
url = 'https://user:secret@x.example'
index = '{cluster}-log'
[[sink]]
name = 'c'
type = 'elasticsearch'
url = 'https://x.example'
index = 'log-{clusters}'
[[sink]]
name = 'd'
type = 'otlp'
url = 'x.example:4317'
protocol = 'grcp'
index = 'log'
[[sink]]
name = 'e'
type = 'otlp'
url = 'https://x.example:4317'
batch_size = 0
";
    insta::assert_snapshot!(briefly(&format!("{LEAST}{sinks}")).join("\n"), @r#"
    8:9 sink[0].index: the string "Log-{cluster}" → log-{cluster}
    9:12 sink[0].compress: the string "zstd"
    13:7 sink[1].url: a URL with a user or password, which would show in logs
    14:9 sink[1].index: the string "{cluster}-log"
    19:9 sink[2].index: "log-{clusters}", with the unknown field {clusters} → log-{cluster}
    23:7 sink[3].url: a URL with the scheme "x.example"
    24:12 sink[3].protocol: the string "grcp" → grpc
    25:1 sink[3].index: a key of sinks of type "elasticsearch"; this one is "otlp"
    30:14 sink[4].batch_size: the integer 0
    "#);
    let clear = "
[[sink]]
name = 'a'
type = 'elasticsearch'
url = 'http://x.example:9200'
user = 'u'
password_file = '/dev/null'
[[sink]]
name = 'b'
type = 'otlp'
url = 'http://127.0.0.1:4317'
bearer_file = '/dev/null'
[[sink]]
name = 'c'
type = 'otlp'
url = 'http://x.example:4317'
";
    let loaded = Config::parse(&format!("{LEAST}{clear}"), "c", &[], Files::Ignore).unwrap();
    assert_eq!(loaded.warnings.len(), 1, "{:?}", loaded.warnings);
    assert!(loaded.warnings[0].contains("the sink \"a\" sends its credentials over http://"), "{:?}", loaded.warnings);
}

#[test]
fn a_template_is_tried_and_needs_its_keys() {
    let sink = |keys: &str| {
        let text = format!("{LEAST}[[sink]]\nname = 'a'\ntype = 'http'\nurl = 'https://x.example/'\n{keys}\n");
        parse(&text).map_or_else(|problems| brief(&problems).join("\n"), |_| String::new())
    };
    let template = "format = 'template'\n";
    for (keys, found) in [
        ("body = '[]'", "7:8 sink[0].body: a key of templates"),
        ("format = 'batched'\nescape = 'none'", "8:10 sink[0].escape: a key of templates"),
        (&format!("{template}escape = 'text'"), r#"7:10 sink[0].format: "template" without one"#),
        (&format!("{template}body = '[]'"), r#"7:10 sink[0].format: "template" without `escape`"#),
        (&format!("{template}body = '[]'\nescape = 'slak'"), "9:10 sink[0].escape: the string \"slak\" → slack"),
        (
            &format!("{template}body = 'a=1'\nescape = 'none'\ncontent_type = 'application/x-www-form-urlencoded'"),
            r#"10:16 sink[0].content_type: "application/x-www-form-urlencoded", whose text decklog cannot escape"#,
        ),
        (
            &format!("{template}body = '[]'\nescape = 'none'\nbody_file = '/dev/zero'"),
            "10:13 sink[0].body_file: body_file beside body",
        ),
        (
            &format!("{template}escape = 'none'\nbody = '[\"{{{{ nmae }}}}\"]'"),
            "9:8 sink[0].body: line 1: unknown field nmae (did you mean name?)",
        ),
        ("notify = ['gap']", "7:10 sink[0].notify: a key of templates"),
        ("accepted = '/ok'", "7:12 sink[0].accepted: a key of templates"),
        (&format!("{template}escape = 'none'\nbody = '[]'\naccepted = 'ok'"), "10:12 sink[0].accepted: \"ok\" → /ok"),
        (
            &format!("{template}escape = 'none'\nbody = '[]'\nupdate.reference = '/id'"),
            "10:1 sink[0].update: a key of incidents",
        ),
        (
            &format!("{template}escape = 'none'\nbody = '[]'\nnotify = ['gap']\nupdate.reference = '/id'"),
            "9:8 sink[0].body: no incident.reference, and no {reference} in update.url: each update would be a message of its own",
        ),
        (
            &format!(
                "{template}escape = 'none'\nbody = '[]'\nnotify = ['gap']\nupdate = {{ reference = '/id', url = 'https://elsewhere.example/{{reference}}' }}"
            ),
            "3:1 sink[0].update.url: a URL of another server",
        ),
        (
            &format!(
                "{template}escape = 'none'\nbody = '[]'\nnotify = ['gap']\nupdate = {{ reference = '/id', url = 'https://{{reference}}.example/' }}"
            ),
            "11:37 sink[0].update.url: a URL with {reference} in its host",
        ),
        ("group = '1m'", "7:9 sink[0].group: a key of incidents"),
        (
            &format!("{template}escape = 'none'\nbody = '[]'\ndigest = 3\ngroup_wait = '1s'"),
            "10:10 sink[0].digest: a key of incidents\n11:14 sink[0].group_wait: a key of incidents",
        ),
        (
            &format!("{template}escape = 'none'\nbody = '[]'\nnotify = ['gap', 'image-chnged', 'x: kindd']"),
            "10:18 sink[0].notify[1]: no ready-made rule \"image-chnged\", and no name before an expression → image-changed\n10:34 sink[0].notify[2]: an entry has no \"kindd\", at character 1 of \"kindd\" → kind",
        ),
        (
            &format!("{template}escape = 'none'\nbody = '[]'\nnotify = ['gap', 'x: true', 'gap']"),
            "10:10 sink[0].notify: two rules with the name \"gap\"",
        ),
        (
            &format!("{template}escape = 'none'\nbody = '[\"{{{{ incident.title }}}}\"]'\nnotify = ['gap', 'x: true']"),
            "",
        ),
        (
            &format!("{template}escape = 'none'\nbody = '[\"{{{{ incident.titel }}}}\"]'"),
            "9:8 sink[0].body: line 1: unknown field incident.titel (did you mean incident.title?)",
        ),
        (&format!("{template}escape = 'none'\nbody = '[\"{{{{ name }}}}\"]'"), ""),
        (&format!("{template}escape = 'none'\nbody = '{{{{ name }}}}'\ncontent_type = 'text/plain'"), ""),
    ] {
        assert_eq!(sink(keys), found, "{keys}");
    }
}

/// A rule that can select nothing, because nothing brings what it is about, is said to.
#[test]
fn a_rule_that_can_never_fire_is_said_to() {
    let rbac = "'roles.rbac.authorization.k8s.io'";
    for (watched, more, rule, says) in [
        ("'pods'", "", "rbac-widened", Some("no [[watch]] brings roles")),
        (rbac, "", "rbac-widened", None),
        ("'ClusterRoleBinding'", "", "rbac-widened", None),
        ("'clusterroles'", "namespaces = ['shop']", "rbac-widened", Some("no [[watch]] brings roles")),
        ("'roles'", "namespaces = ['shop']", "rbac-widened", None),
        ("'*.rbac.authorization.k8s.io'", "", "rbac-widened", None),
        ("'*'", "", "rbac-widened", None),
        ("'roles.other.example'", "", "rbac-widened", Some("no [[watch]] brings roles")),
        ("'*'", "exclude = ['secrets']", "secret-rotated", Some("no [[watch]] brings secrets")),
        ("'secret'", "", "secret-rotated", None),
        ("'deployments'", "", "crash-loop", Some("no [[watch]] brings pods")),
        ("'*.apps'", "", "crash-loop", Some("no [[watch]] brings pods")),
        ("'po'", "", "crash-loop", None),
        ("'deployments'", "", "deleted-by-a-person", Some("no [[audit_log]]")),
        ("'deployments'", "", "image-changed", None),
        ("'deployments'", "", "gap", None),
    ] {
        let watch = format!("[[watch]]\nresources = [{watched}]\n{more}\n");
        let found = parse(&format!("{watch}{NOTIFYING}\nnotify = ['{rule}']\n")).unwrap().warnings;
        match says {
            Some(text) => assert!(
                found.len() == 1 && found[0].contains(text) && found[0].contains(rule),
                "{watched} {more} {rule}: {found:?}"
            ),
            None => assert_eq!(found, [""; 0], "{watched} {more} {rule}"),
        }
    }
}
