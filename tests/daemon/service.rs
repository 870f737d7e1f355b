//! The life of the service: systemd, signals, reloads, endpoints.

use std::fs;
use std::time::Instant;

use decklog::sim::faults::{Act, Fault, On, Refusal};
use decklog::sim::{Sim, objects};
use rustix::process::Signal;
use serde_json::Value;

use crate::support::{Daemon, cluster, free_address, http_get, scope, until};

const WATCH: &str = "resources = [\"configmaps\"]";

fn create(sim: &Sim, name: &str) {
    sim.create("configmaps", objects::config_map("default", name, "1")).unwrap();
}

/// Fault 52: two daemons on one state directory.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_daemon_on_one_state_directory_ends_at_once() {
    let sim = cluster().await;
    let mut daemon = Daemon::new(&sim, &["configmaps"]);
    daemon.start();
    daemon.ready().await;
    let began = Instant::now();
    let second = daemon.command(&["run"]).await;
    let text = second.refused(75, &["another decklog", "stop it, or set another [state] path"]);
    assert!(text.contains(&format!("(process {})", daemon.pid())), "{text}");
    assert!(began.elapsed().as_secs() < 5, "it waited {:?}", began.elapsed());
    // The first one has not noticed, and its lock ends with it, however it ends.
    create(&sim, "a");
    daemon.knows(&sim, "configmaps", "default", "a").await;
    daemon.kill().await;
    daemon.start();
    daemon.ready().await;
    daemon.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn signals_end_it_cleanly_and_promptly() {
    let sim = cluster().await;
    let started = sim.revision();
    let mut daemon = Daemon::new(&sim, &["configmaps"]);
    for signal in [Signal::TERM, Signal::INT] {
        daemon.start();
        daemon.ready().await;
        for _ in 0..20 {
            create(&sim, &format!("m{}", sim.revision()));
        }
        let began = Instant::now();
        daemon.signal(signal);
        assert!(daemon.end().await.success(), "{}", daemon.last_words());
        assert!(began.elapsed().as_secs() < 5, "it took {:?}", began.elapsed());
        assert!(daemon.told().lines().any(|line| line == "STOPPING=1"), "{}", daemon.told());
    }
    // Before it has ever reached the cluster.
    sim.stop_listening().await;
    daemon.start();
    daemon.says("waiting for the API server").await;
    daemon.stop().await;
    sim.start_listening().await.unwrap();
    daemon.start();
    daemon.ready().await;
    let done = scope(&sim, started, &["configmaps"]);
    daemon.catch_up(&sim, &done).await;
    daemon.stop().await;
    daemon.judged(&sim, &done).await;
}

/// A sink whose other end has fallen silent is waited for at a stop, but not by someone who asks twice.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_signal_ends_it_at_once() {
    let sim = cluster().await;
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", silent.local_addr().unwrap());
    let rest = format!("[[sink]]\nname = \"silent\"\ntype = \"http\"\nurl = {url:?}\n");
    let mut daemon = Daemon::with(&sim, WATCH, &rest);
    create(&sim, "a");
    daemon.start();
    daemon.ready().await;
    let _connection = silent.accept().await.unwrap();
    daemon.reach(1).await;
    daemon.signal(Signal::TERM);
    daemon.says("SIGTERM: stopping").await;
    let began = Instant::now();
    daemon.signal(Signal::TERM);
    let status = daemon.end().await;
    assert!(began.elapsed().as_secs() < 4, "it took {:?}", began.elapsed());
    assert_eq!(status.code(), Some(0), "{}", daemon.last_words());
    assert!(daemon.last_words().contains("stopped at once"), "{}", daemon.last_words());
    daemon.start();
    create(&sim, "b");
    daemon.knows(&sim, "configmaps", "default", "b").await;
    // Asked once, it gives the sink a moment, and then ends well.
    daemon.stop().await;
    assert!(daemon.last_words().ends_with(": stopped"), "{}", daemon.last_words());
    daemon.consistent().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn systemd_is_told_how_it_goes() {
    let sim = cluster().await;
    let mut daemon = Daemon::new(&sim, &["configmaps", "secrets"]);
    daemon.start_with(|command| command.env("WATCHDOG_USEC", "20000000"));
    daemon.ready().await;
    daemon.tells_systemd("WATCHDOG=1").await;
    daemon.tells_systemd("STATUS=seq ").await;
    daemon.tells_systemd("STATUS=seq 0; 2 sources").await;
    create(&sim, "a");
    daemon.tells_systemd("STATUS=seq 1; 2 sources").await;
    let ready = |told: &str| told.lines().filter(|line| *line == "READY=1").count();
    assert_eq!(ready(daemon.told()), 1);
    daemon.signal(Signal::HUP);
    until(
        "the reload to be over",
        async || if ready(daemon.told()) == 2 { Ok(()) } else { Err(daemon.told().to_owned()) },
    )
    .await;
    let told = daemon.told().to_owned();
    let place = |line: &str| told.find(line).unwrap_or_else(|| panic!("{line} is missing: {told}"));
    let stamp = told[place("MONOTONIC_USEC=")..].lines().next().unwrap().trim_start_matches("MONOTONIC_USEC=");
    assert!(stamp.parse::<u64>().unwrap() > 0);
    assert!(place("READY=1") < place("RELOADING=1"));
    daemon.stop().await;
    assert!(daemon.told().contains("STOPPING=1"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_endpoints_tell_the_truth() {
    let sim = cluster().await;
    for unix in [false, true] {
        sim.fault(Fault::new(On::list("configmaps"), Act::refuse(&Refusal::internal("not now"))).always());
        let mut daemon = Daemon::new(&sim, &["configmaps", "pods"]);
        let at = if unix { daemon.path("http.sock").display().to_string() } else { free_address() };
        daemon
            .configure(&daemon.config("resources = [\"configmaps\", \"pods\"]", &format!("[http]\nlisten = {at:?}\n")));
        daemon.start();
        let got = until("an answer", async || {
            daemon.must_run();
            http_get(&at, "/livez")
        })
        .await;
        assert_eq!((got.status, got.body.as_str()), (200, "ok\n"));
        // Not before every first list is done, and it says which is not.
        daemon.waits_for_state("sources", "pods", "watching").await;
        daemon.waits_for_state("sources", "configmaps", "degraded").await;
        let got = http_get(&at, "/readyz").unwrap();
        assert_eq!(got.status, 503, "{got:?}");
        assert!(got.body.contains("configmaps") && !got.body.contains("pods"), "who waits is named: {got:?}");
        assert!(!daemon.told().contains("READY=1"));
        sim.heal();
        daemon.ready().await;
        assert_eq!(http_get(&at, "/readyz").unwrap().status, 200);
        create(&sim, &format!("a-{unix}"));
        daemon.knows(&sim, "configmaps", "default", &format!("a-{unix}")).await;

        let status: Value = serde_json::from_str(&http_get(&at, "/status").unwrap().body).unwrap();
        assert_eq!(status["daemon"]["pid"], daemon.pid());
        assert_eq!(status["sources"].as_array().unwrap().len(), 2);
        let metrics = until("metrics of a sink that has everything", async || {
            let metrics = http_get(&at, "/metrics")?;
            let lag = sample(&metrics.body, r#"decklog_sink_lag_entries{sink="file",type="file"}"#);
            // A bookmark may be on its way to the journal.
            if lag == Some(0.0) && sample(&metrics.body, "decklog_unjournaled_bytes") == Some(0.0) {
                Ok(metrics)
            } else {
                Err(metrics.body)
            }
        })
        .await;
        assert!(metrics.head.to_lowercase().contains("content-type: application/openmetrics-text"), "{}", metrics.head);
        metrics_are_well_formed(&metrics.body);
        let head = u32::try_from(daemon.lines()).unwrap();
        for (name, value) in [
            ("decklog_journal_entries_total", f64::from(head)),
            (r#"decklog_sink_cursor_seq{sink="file",type="file"}"#, f64::from(head)),
            (r#"decklog_source_state{resource="pods",namespace="",state="watching"}"#, 1.0),
            (r#"decklog_source_state{resource="pods",namespace="",state="listing"}"#, 0.0),
            (r#"decklog_source_objects{resource="configmaps",namespace=""}"#, f64::from(head)),
            (r#"decklog_sink_state{sink="file",type="file",state="running"}"#, 1.0),
            (r#"decklog_sink_lag_seconds{sink="file",type="file"}"#, 0.0),
        ] {
            assert_eq!(sample(&metrics.body, name), Some(value), "{name}: {}", metrics.body);
        }
        let lag = sample(&metrics.body, r#"decklog_source_lag_seconds{resource="pods",namespace=""}"#).unwrap();
        assert!((0.0..60.0).contains(&lag), "{lag}");
        assert_eq!(http_get(&at, "/nothing").unwrap().status, 404);
        daemon.stop().await;
        assert!(http_get(&at, "/livez").is_err(), "nobody answers any more");
    }
}

fn sample(metrics: &str, series: &str) -> Option<f64> {
    metrics.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' ')?.parse().ok())
}

/// As Prometheus reads it: each line a comment or a sample of a metric that was declared, and the end marked.
fn metrics_are_well_formed(text: &str) {
    assert!(text.ends_with("# EOF\n"), "{text}");
    let mut declared = Vec::new();
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').unwrap();
            assert!(["gauge", "counter"].contains(&kind), "{line}");
            declared.push(name.to_owned());
        } else if !line.starts_with('#') {
            let name: String = line.chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '_').collect();
            let plain = name.trim_end_matches("_total");
            assert!(
                (name.starts_with("decklog_") || name.starts_with("process_"))
                    && declared.iter().any(|known| known == plain),
                "{line}"
            );
            line.rsplit(' ').next().unwrap().parse::<f64>().unwrap();
        }
    }
    assert!(declared.len() >= 10, "{declared:?}");
}

/// Fault 86: a typo found by SIGHUP.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bad_configuration_is_refused_at_a_reload_and_the_old_one_kept() {
    let sim = cluster().await;
    let started = sim.revision();
    let mut daemon = Daemon::new(&sim, &["configmaps"]);
    daemon.start();
    daemon.ready().await;
    let good = daemon.config(WATCH, "");
    for (bad, says) in [
        (good.replace("[log]", "[lug]"), "lug"),
        (good.clone() + "[[sink]]\nname = \"file\"\ntype = \"stdout\"\n", "which is the name of sink[0]"),
        (good.clone() + "[[sink]]\nname = \"x\"\ntype = \"file\"\npath = \"x\"\nwhere = 'type =='\n", "where"),
        ("[[watch".to_owned(), "config.toml"),
    ] {
        let refused = daemon.said().matches("the running one kept").count();
        daemon.configure(&bad);
        daemon.signal(Signal::HUP);
        until("the refusal", async || {
            daemon.must_run();
            if daemon.said().matches("the running one kept").count() > refused {
                Ok(())
            } else {
                Err(daemon.last_words())
            }
        })
        .await;
        assert!(daemon.last_words().contains(says), "{says}: {}", daemon.last_words());
        create(&sim, &format!("m{}", sim.revision()));
        daemon.catch_up(&sim, &scope(&sim, started, &["configmaps"])).await;
    }
    // The file may be gone as well.
    fs::remove_file(daemon.path("config.toml")).unwrap();
    let refused = daemon.said().matches("the running one kept").count();
    daemon.signal(Signal::HUP);
    until("the refusal", async || {
        daemon.must_run();
        if daemon.said().matches("the running one kept").count() > refused { Ok(()) } else { Err(daemon.last_words()) }
    })
    .await;
    daemon.configure(&good);
    daemon.stop().await;
    daemon.judged(&sim, &scope(&sim, started, &["configmaps"])).await;
}

/// Fault 61: logrotate moves the file away and tells decklog.
///
/// logrotate's way: the file is moved and the daemon told; nothing is written twice or into neither.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn files_that_logrotate_moves_are_opened_anew() {
    let sim = cluster().await;
    let mut daemon = Daemon::new(&sim, &["configmaps"]);
    daemon.start();
    daemon.ready().await;
    let mut moved = Vec::new();
    for round in 0..3 {
        for number in 0..20 {
            create(&sim, &format!("m-{round}-{number}"));
        }
        until("the first half of it", async || if daemon.lines() >= 5 { Ok(()) } else { Err(daemon.last_words()) })
            .await;
        let to = daemon.path(&format!("old-{round}.jsonl"));
        fs::rename(daemon.log(), &to).unwrap();
        daemon.signal(Signal::HUP);
        moved.push(to);
    }
    moved.push(daemon.log());
    let seqs = |paths: &[std::path::PathBuf]| -> Vec<u64> {
        let lines = paths.iter().flat_map(|path| {
            fs::read_to_string(path).unwrap_or_default().lines().map(str::to_owned).collect::<Vec<_>>()
        });
        lines.map(|line| serde_json::from_str::<Value>(&line).unwrap()["seq"].as_u64().unwrap()).collect()
    };
    until("all of it in the files", async || {
        daemon.must_run();
        let have = seqs(&moved).len();
        if have >= 60 { Ok(()) } else { Err(format!("{have}")) }
    })
    .await;
    daemon.stop().await;
    assert!(seqs(&moved).into_iter().eq(1..=60), "{:?}", seqs(&moved));
    let names: Vec<String> = moved.iter().map(|path| path.display().to_string()).collect();
    let mut arguments = vec!["verify"];
    arguments.extend(names.iter().filter(|name| fs::metadata(name).is_ok()).map(String::as_str));
    daemon.command(&arguments).await.done();
}

/// decklog's own log, as a collector of JSON takes it, at the level that is asked for.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn its_own_log_is_json_where_that_is_asked_for() {
    let sim = cluster().await;
    let mut daemon = Daemon::new(&sim, &["configmaps"]);
    let json = daemon.config(WATCH, "").replace("level = \"debug\"", "level = \"info\"\nformat = \"json\"");
    daemon.configure(&json);
    daemon.start();
    daemon.ready().await;
    daemon.configure(&json.replace("level = \"info\"", "level = \"debug\""));
    daemon.signal(Signal::HUP);
    create(&sim, "a");
    sim.signal("configmaps", &decklog::sim::faults::Signal::Cut);
    daemon.says("the configuration was read again").await;
    daemon.stop().await;
    let said = daemon.said();
    for line in said.lines() {
        let line: Value = serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
        assert!(line["level"].is_string() && line["timestamp"].is_string(), "{line}");
    }
    assert!(said.lines().count() >= 4, "{said}");
}
