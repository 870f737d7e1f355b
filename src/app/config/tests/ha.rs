//! What is said of `[ha]`.

use super::*;

const KEY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/rustfmt.toml");

#[test]
fn everything_that_is_wrong_with_ha_is_said_at_once() {
    let text = format!(
        "{LEAST}
[ha]
log = 'archiv'
lease = 'Ops/Prod_EU1'
identity = 'node 7'
backlog = '256'
[[sink]]
name = 'archive'
type = 'stdout'
"
    );
    insta::assert_snapshot!(briefly(&text).join("\n"), @r#"
    4:1 redact.key_file: missing
    5:7 ha.log: "archiv", and no [[sink]] is called that → archive
    6:9 ha.lease: the string "Ops/Prod_EU1" → ops/prod-eu1
    7:12 ha.identity: the string "node 7" → node-7
    8:11 ha.backlog: "256": no unit (units: B, KiB, MiB, GiB, TiB) → 256MiB
    "#);
    let text = format!(
        "{LEAST}
[redact]
key_file = '{KEY}'
[ha]
log = 'audit'
lease = 'prod'
[[sink]]
name = 'audit'
type = 'http'
url = 'https://x.example/'
where = 'true'
payload = 'diff'
"
    );
    insta::assert_snapshot!(briefly(&text).join("\n"), @r#"
    7:7 ha.log: "audit", a sink of type "http", which keeps no shared log
    8:9 ha.lease: the string "prod" → decklog/prod
    13:9 sink[0].where: a filter, and [ha] log names this sink as "audit"
    14:11 sink[0].payload: the string "diff", and [ha] log names this sink as "audit"
    "#);
    insta::assert_snapshot!(briefly(&format!("{LEAST}[ha]\nlog = 7\n")).join("\n"), @r#"
    3:1 redact.key_file: missing
    4:7 ha.log: the integer 7 → "7"
    "#);
}

#[test]
fn the_environment_has_its_keys() {
    let problems = with_environment(
        &format!("{LEAST}[redact]\nkey_file = '{KEY}'\n"),
        &[("DECKLOG_HA_LOG", "audit"), ("DECKLOG_HA_LEASE", "x"), ("DECKLOG_HA_IDENTITY", "a b")],
    );
    insta::assert_snapshot!(brief(&problems.unwrap_err()).join("\n"), @r#"
    DECKLOG_HA_IDENTITY ha.identity: the string "a b" → a-b
    DECKLOG_HA_LEASE ha.lease: the string "x" → decklog/x
    DECKLOG_HA_LOG ha.log: "audit", and no [[sink]] is called that
    "#);
}

#[test]
fn a_shared_log_needs_a_sink_that_can_keep_one() {
    let text = |sink: &str| {
        format!("{LEAST}[redact]\nkey_file = '{KEY}'\n[ha]\nlog = 'archive'\n[[sink]]\nname = 'archive'\n{sink}")
    };
    for sink in [
        "type = 'postgres'\nurl = 'postgres://me@db.example/audit'\n",
        "type = 's3'\nurl = 'file:///segments'\n",
        "type = 'nats'\naddresses = ['nats://n.example']\nstream = 'audit'\n",
    ] {
        let loaded = with_environment(&text(sink), &[("DECKLOG_HA_IDENTITY", "decklog-0")]).unwrap();
        let ha = loaded.config.ha.unwrap();
        assert_eq!(
            (ha.log.as_str(), ha.identity(), ha.backlog),
            ("archive", "decklog-0".to_owned(), ByteSize(256 << 20))
        );
        assert_eq!(ha.lease("kubernetes-admin@Prod_EU1").to_string(), "decklog/kubernetes-admin-prod-eu1");
    }
    insta::assert_snapshot!(
        briefly(&text("type = 'kafka'\nbrokers = ['k.example:9092']\ntopic = 'audit'\ntransactional_id = 'audit'\n")).join("\n"),
        @r#"6:7 ha.log: "archive", a sink of type "kafka", which keeps no shared log"#
    );
    // What is wrong with the sink itself is said, and nothing on top of it.
    insta::assert_snapshot!(briefly(&text("type = 'postgres'\n")).join("\n"), @"7:1 sink[0].url: missing");
}

#[test]
fn the_lease_of_a_cluster_has_a_name_that_kubernetes_takes() {
    for (cluster, name) in [
        ("prod", "prod"),
        ("Prod_EU1.example", "prod-eu1.example"),
        ("arn:aws:eks:eu-central-1:1:cluster/x", "arn-aws-eks-eu-central-1-1-cluster-x"),
        ("-..-", "decklog"),
        ("Größe", "gr--e"),
        (&"x".repeat(300), &"x".repeat(63)),
        (&"abc.".repeat(100), &"abc.".repeat(64)[..253]),
    ] {
        let lease = crate::app::ha::LeaseName::of_cluster(cluster);
        assert_eq!(lease.name, name, "{cluster}");
        assert_eq!(lease.to_string().parse(), Ok(lease));
    }
    let ha = crate::app::ha::Settings { log: "x".into(), lease: None, identity: None, backlog: ByteSize(1) };
    assert_ne!(ha.identity(), ha.identity(), "no two processes have one");
}
