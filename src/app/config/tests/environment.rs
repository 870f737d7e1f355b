//! Variables of the environment, and credentials of systemd.

use super::*;

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
