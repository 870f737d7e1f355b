//! Many clusters in one process: each is a failure domain, and what they share says how each of them is.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;

use decklog::sim::{Sim, objects};
use rustix::process::Signal;
use serde_json::Value;

use crate::judge::{Entry, judge};
use crate::operation::linted;
use crate::support::{Answer, Daemon, cluster, free_address, http_get, scope, truth, until};

/// One cluster of the process.
struct Member {
    name: &'static str,
    sim: Sim,
    started: u64,
}

/// A process of several clusters in a directory of its own.
struct Several {
    daemon: Daemon,
    members: Vec<Member>,
}

impl Several {
    /// Clusters of these names, each with a file sink.
    async fn of(names: &[&'static str], rest: &str) -> Self {
        let sim = cluster().await;
        let mut several = Self { daemon: Daemon::of_several(&sim), members: Vec::new() };
        drop(sim);
        for name in names {
            several.add(name, rest).await;
        }
        several
    }

    /// One cluster more.
    async fn add(&mut self, name: &'static str, rest: &str) {
        let sim = cluster().await;
        sim.write_kubeconfig(&self.kubeconfig(name)).unwrap();
        self.configure(name, &self.config(name, rest));
        self.members.push(Member { name, started: sim.revision(), sim });
    }

    fn kubeconfig(&self, name: &str) -> PathBuf {
        self.daemon.path(&format!("{name}.kubeconfig"))
    }

    fn log(&self, name: &str) -> PathBuf {
        self.daemon.path(&format!("{name}.jsonl"))
    }

    fn state(&self, name: &str) -> PathBuf {
        self.daemon.path("decklog-state").join(name)
    }

    fn config(&self, name: &str, rest: &str) -> String {
        format!(
            "[cluster]\nkubeconfig = {:?}\naudit_every = \"off\"\n\n[[watch]]\nresources = [\"configmaps\"]\n\n\
             [[sink]]\nname = \"file\"\ntype = \"file\"\npath = {:?}\n\n[log]\nlevel = \"debug\"\n\n{rest}\n",
            self.kubeconfig(name),
            self.log(name),
        )
    }

    fn configure(&self, name: &str, text: &str) {
        fs::write(self.file(name), text).unwrap();
    }

    fn file(&self, name: &str) -> PathBuf {
        self.daemon.path(&format!("clusters/{name}.toml"))
    }

    fn sim(&self, name: &str) -> &Sim {
        &self.members.iter().find(|member| member.name == name).unwrap().sim
    }

    fn create(&self, name: &str, object: &str) {
        self.sim(name).create("configmaps", objects::config_map("default", object, "1")).unwrap();
    }

    /// Waits until the file of a cluster has so many lines.
    async fn reach(&mut self, name: &str, lines: usize) {
        let log = self.log(name);
        until(&format!("{lines} lines of {name}"), async || {
            self.daemon.must_run();
            let have = fs::read_to_string(&log).unwrap_or_default().lines().count();
            if have >= lines { Ok(()) } else { Err(format!("{have}\n{}", self.daemon.last_words())) }
        })
        .await;
    }

    /// What a cluster's file says is what its API server did, each change once and in order.
    #[track_caller]
    fn right(&self, name: &str) {
        let member = self.members.iter().find(|member| member.name == name).unwrap();
        let text = fs::read_to_string(self.log(name)).unwrap();
        let entries: Vec<Entry> = text.lines().map(Entry::parse).collect();
        let seqs: Vec<u64> = text.lines().map(|line| json(line)["seq"].as_u64().unwrap()).collect();
        assert!(seqs.iter().copied().eq(1..=seqs.len() as u64), "{name}: {seqs:?}");
        let scope = scope(&member.sim, member.started, &["configmaps"]);
        let verdict = judge(&truth(&member.sim), None, &entries, &scope);
        assert!(verdict.is_right(), "{name}: the log is not the truth:\n{verdict}\n{}", self.daemon.last_words());
        assert!(!text.is_empty(), "{name}: nothing was delivered");
    }

    async fn command(&self, arguments: &[&str]) -> Answer {
        self.daemon.command(arguments).await
    }

    /// The alarms of a cluster, by name, with what each says.
    async fn alarms(&self, name: &str) -> BTreeMap<String, String> {
        let answer = self.command(&["status", "--cluster", name, "-o", "json"]).await;
        alarms(&json(&answer.done()))
    }
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

fn alarms(status: &Value) -> BTreeMap<String, String> {
    let all = status["alarms"].as_array().unwrap_or_else(|| panic!("{status}")).iter();
    all.map(|alarm| (text(&alarm["alarm"]), text(&alarm["what"]))).collect()
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// Everything that can be wrong with one cluster, beside two that are well.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_wrong_with_one_cluster_touches_no_other() {
    let at = free_address();
    let http = format!("[http]\nlisten = {at:?}\n");
    let mut several = Several::of(&["well", "fine"], &http).await;
    several.add("dead", "").await;
    several.sim("dead").stop_listening().await;
    several.add("corrupt", "").await;
    fs::create_dir_all(several.state("corrupt")).unwrap();
    fs::write(several.state("corrupt").join("journal.db"), vec![7; 8192]).unwrap();
    // Its journal has no room for its first list.
    several.add("full", "[[sink]]\nname = \"away\"\ntype = \"http\"\nurl = \"http://127.0.0.1:9/\"\n").await;
    several.configure(
        "full",
        &(several.config("full", "[[sink]]\nname = \"away\"\ntype = \"http\"\nurl = \"http://127.0.0.1:9/\"\n")
            + "[state]\nmax_size = \"1MiB\"\n"),
    );
    several.sim("full").bulk_config_maps(3000).unwrap();
    several.add("nowhere", "").await;
    fs::remove_file(several.kubeconfig("nowhere")).unwrap();
    several.add("typo", "[lug]\n").await;
    several.daemon.start();
    // None of them keeps the others from being ready, and systemd hears that the process lives.
    several.daemon.ready().await;
    several.daemon.tells_systemd("WATCHDOG=1").await;
    several.daemon.tells_systemd("STATUS=7 clusters, ").await;
    for round in 0..10 {
        for name in ["well", "fine"] {
            several.create(name, &format!("m{round}"));
        }
    }
    for name in ["well", "fine"] {
        several.reach(name, 10).await;
    }
    // Each says what is the matter with it.
    let status = async || json(&http_get(&at, "/status").unwrap().body);
    for (name, alarm, says) in [
        ("nowhere", "daemon-failing", "nowhere.kubeconfig"),
        ("corrupt", "daemon-failing", "journal"),
        ("typo", "configuration-refused", "lug"),
        ("full", "source-degraded", "max_size"),
    ] {
        until(&format!("the alarm of {name}"), async || {
            several.daemon.must_run();
            let status = status().await;
            let raised = alarms(&status[name]);
            match raised.get(alarm) {
                Some(what) if what.contains(says) => Ok(()),
                _ => Err(format!("{status:#}\n{}", several.daemon.last_words())),
            }
        })
        .await;
    }
    let all = status().await;
    for name in ["well", "fine"] {
        assert_eq!(alarms(&all[name]), BTreeMap::new(), "{name}");
        assert_eq!(http_get(&at, &format!("/readyz?cluster={name}")).unwrap().status, 200);
    }
    let ready = http_get(&at, "/readyz").unwrap();
    assert_eq!(ready.status, 503, "{ready:?}");
    for name in ["dead", "nowhere", "corrupt"] {
        assert!(ready.body.contains(&format!("{name}: ")), "{name}: {ready:?}");
    }
    for name in ["well", "fine", "typo"] {
        assert!(!ready.body.contains(&format!("{name}: ")), "{name}: {ready:?}");
    }
    assert_eq!(http_get(&at, "/livez").unwrap().status, 200);
    assert_eq!(http_get(&at, "/livez?cluster=none").unwrap().status, 404);
    let sees = several.command(&["status", "-o", "json"]).await;
    let by_cluster = json(&sees.done());
    assert_eq!(by_cluster.as_object().unwrap().len(), 7, "{by_cluster:#}");
    assert!(alarms(&by_cluster["nowhere"]).contains_key("daemon-failing"), "{by_cluster:#}");
    assert!(alarms(&by_cluster["typo"]).contains_key("configuration-refused"), "{by_cluster:#}");
    // What is mended is begun again by itself.
    several.sim("nowhere").write_kubeconfig(&several.kubeconfig("nowhere")).unwrap();
    several.create("nowhere", "a");
    several.reach("nowhere", 1).await;
    several.sim("dead").start_listening().await.unwrap();
    several.create("dead", "a");
    several.reach("dead", 1).await;
    // It is tried meanwhile, so the directory itself is in use.
    fs::remove_file(several.state("corrupt").join("journal.db")).unwrap();
    several.create("corrupt", "a");
    several.reach("corrupt", 1).await;
    several.daemon.stop().await;
    for name in ["well", "fine", "nowhere", "dead", "corrupt"] {
        several.right(name);
    }
    let said = several.daemon.said();
    assert_eq!(said.matches("ready, but for these clusters").count(), 1);
    // Each line about a cluster has its name.
    for name in ["well", "dead", "nowhere"] {
        assert!(said.contains(&format!(" cluster{{name={name}}}: ")), "{name}: {}", several.daemon.last_words());
    }
}

/// SIGHUP begins what is new, ends what is gone, changes what is changed, and keeps what a bad file would have changed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reload_begins_ends_and_changes_clusters() {
    let mut several = Several::of(&["stays", "goes", "changes", "breaks"], "").await;
    several.daemon.start();
    several.daemon.ready().await;
    for name in ["stays", "goes", "changes", "breaks"] {
        several.create(name, "a");
        several.reach(name, 1).await;
    }
    several.add("comes", "").await;
    fs::remove_file(several.file("goes")).unwrap();
    let other = several.daemon.path("other.jsonl");
    let more = format!("[[sink]]\nname = \"other\"\ntype = \"file\"\npath = {other:?}\n");
    several.configure("changes", &several.config("changes", &more));
    several.configure("breaks", &several.config("breaks", "[lug]\n"));
    several.daemon.signal(Signal::HUP);
    several.daemon.says("the configurations were read again").await;
    for name in ["stays", "changes", "breaks", "comes"] {
        several.create(name, "b");
    }
    for (name, lines) in [("stays", 2), ("changes", 2), ("breaks", 2), ("comes", 1)] {
        several.reach(name, lines).await;
    }
    until("the new sink", async || {
        let lines = fs::read_to_string(&other).unwrap_or_default().lines().count();
        if lines == 2 { Ok(()) } else { Err(format!("{lines}\n{}", several.daemon.last_words())) }
    })
    .await;
    until("the alarm of the file that is wrong", async || {
        let raised = several.alarms("breaks").await;
        match raised.get("configuration-refused") {
            Some(what) if what.contains("lug") => Ok(()),
            _ => Err(format!("{raised:?}")),
        }
    })
    .await;
    // What is gone has ended: nobody holds its journal.
    several.configure("goes", &several.config("goes", ""));
    until("the end of the cluster that is gone", async || {
        let status = several.command(&["status", "--cluster", "goes", "-o", "json"]).await.done();
        if json(&status)["daemon"]["running"] == false { Ok(()) } else { Err(status) }
    })
    .await;
    several.create("goes", "b");
    // Corrected, and put back: both go on where they were.
    several.configure("breaks", &several.config("breaks", ""));
    // Another kubeconfig takes a new beginning, of this cluster alone.
    let moved = several.daemon.path("moved.kubeconfig");
    fs::rename(several.kubeconfig("changes"), &moved).unwrap();
    let named = several.config("changes", &more).replace("changes.kubeconfig", "moved.kubeconfig");
    several.configure("changes", &named);
    several.daemon.signal(Signal::HUP);
    several.reach("goes", 2).await;
    several.daemon.says("the daemon of this cluster begins again").await;
    several.create("changes", "c");
    several.reach("changes", 3).await;
    until("no alarm any more", async || {
        let raised = several.alarms("breaks").await;
        if raised.is_empty() { Ok(()) } else { Err(format!("{raised:?}")) }
    })
    .await;
    several.daemon.stop().await;
    for name in ["stays", "goes", "changes", "breaks", "comes"] {
        several.right(name);
    }
    assert!(!several.daemon.said().contains("panicked"), "{}", several.daemon.last_words());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn where_nothing_can_be_begun_the_process_ends_and_says_all_of_it() {
    let several = Several::of(&["a", "b"], "").await;
    several.configure("a", &several.config("a", "[lug]\n"));
    several.configure("b", &several.config("b", "").replace("configmaps", "config maps"));
    several.command(&["run"]).await.refused(78, &["a.toml", "lug", "b.toml", "config maps"]);
    // Right files, and no way to a cluster.
    for name in ["a", "b"] {
        several.configure(name, &several.config(name, ""));
        fs::remove_file(several.kubeconfig(name)).unwrap();
    }
    several.command(&["run"]).await.refused(78, &["kubeconfig"]);
    let nothing = several.daemon.path("nothing");
    fs::create_dir(&nothing).unwrap();
    let dir = nothing.to_str().unwrap();
    let said = crate::support::decklog(&nothing, &["run", "--config-dir", dir], &[]).await;
    said.refused(78, &["no file that ends in .toml"]);
}

/// Two processes on one directory: the second has nothing to do.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_process_on_one_directory_ends_at_once() {
    let mut several = Several::of(&["a", "b"], "").await;
    several.daemon.start();
    several.daemon.ready().await;
    several.command(&["run"]).await.refused(75, &["another decklog"]);
    several.create("a", "x");
    several.reach("a", 1).await;
    several.daemon.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commands_read_the_cluster_that_they_are_given() {
    let mut several = Several::of(&["eu", "us"], "").await;
    let named = several.config("us", "").replace("[cluster]\n", "[cluster]\nname = \"us-east\"\n");
    several.configure("us", &named);
    several.daemon.start();
    several.daemon.ready().await;
    several.create("eu", "only-in-eu");
    several.create("us", "only-in-us");
    several.reach("eu", 1).await;
    several.reach("us", 1).await;
    let read = [
        &["tail"][..],
        &["log", "cm/only-in-eu", "-n", "default"],
        &["show", "1"],
        &["get", "cm/only-in-eu", "-n", "default"],
        &["diff", "cm/only-in-eu", "-n", "default", "--from", "1", "--to", "1"],
        &["blame", "cm/only-in-eu", "-n", "default"],
        &["churn"],
        &["verify"],
        &["status"],
        &["check"],
        &["rbac"],
    ];
    for arguments in read {
        let said = several.command(&[arguments, &["--cluster", "eu"]].concat()).await.done();
        assert!(!said.contains("only-in-us"), "{arguments:?}: {said}");
        if !matches!(arguments[0], "churn" | "verify" | "status" | "check" | "rbac" | "diff") {
            assert!(said.contains("only-in-eu"), "{arguments:?}: {said}");
        }
        if matches!(arguments[0], "status" | "check") {
            continue;
        }
        // Which one is meant has to be said, where there are two.
        several.command(arguments).await.refused(64, &["--cluster", "eu", "us-east"]);
    }
    let us = several.command(&["tail", "--cluster", "us-east"]).await.done();
    assert!(us.contains("only-in-us") && !us.contains("only-in-eu"), "{us}");
    several.command(&["tail", "--cluster", "us"]).await.refused(64, &["no cluster", "eu", "us-east"]);
    // Without a name, these two go over all of them.
    let status = several.command(&["status"]).await.done();
    let check = several.command(&["check"]).await.done();
    for said in [&status, &check] {
        assert!(said.find("eu").unwrap() < said.find("us-east").unwrap(), "{said}");
    }
    let found = json(&several.command(&["check", "-o", "json"]).await.done());
    let names: Vec<&String> = found.as_object().unwrap().keys().collect();
    assert_eq!(names, ["eu", "us-east"]);
    // The variable is as good as the flag; a file that is named counts more.
    let dir = several.daemon.path("clusters");
    let (dir, here) = (dir.to_str().unwrap(), several.daemon.path("."));
    let environment = [("DECKLOG_CONFIG_DIR", dir)];
    let said = crate::support::decklog(&here, &["tail", "--cluster", "eu"], &environment).await.done();
    assert!(said.contains("only-in-eu"), "{said}");
    let state = several.state("us-east");
    let said = crate::support::decklog(&here, &["tail", "--state", state.to_str().unwrap()], &environment).await.done();
    assert!(said.contains("only-in-us"), "{said}");
    let both = crate::support::decklog(&here, &["tail", "-c", "x.toml", "--config-dir", dir], &[]).await;
    both.refused(64, &["--config", "--config-dir"]);
    crate::support::decklog(&here, &["tail", "--cluster", "eu"], &[]).await.refused(64, &["--config-dir"]);
    // Replay and provisioning are for the sinks of one cluster.
    let replayed = several.command(&["replay", "--sink", "file", "--from", "1", "--cluster", "nobody"]).await;
    replayed.refused(64, &["no cluster"]);
    several.command(&["replay", "--sink", "file", "--from", "1", "--cluster", "eu"]).await.done();
    several.command(&["sink", "init", "none", "--cluster", "eu"]).await.refused(78, &["eu.toml", "no sink named"]);
    // One alone needs no name.
    fs::remove_file(several.file("us")).unwrap();
    let said = several.command(&["tail"]).await.done();
    assert!(said.contains("only-in-eu"), "{said}");
    several.daemon.stop().await;
}

/// The endpoints of all clusters are one, and a command from elsewhere says which it means.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_server_answers_for_all_of_them() {
    let mut several = Several::of(&["eu", "us"], "").await;
    let socket = several.daemon.path("http.sock");
    // In one file alone: it is for all of them.
    let http = format!("[http]\nlisten = {socket:?}\nreading = true\n");
    several.configure("us", &several.config("us", &http));
    several.add("bad", "[lug]\n").await;
    several.daemon.start();
    several.daemon.ready().await;
    for name in ["eu", "us"] {
        several.create(name, &format!("only-in-{name}"));
        several.reach(name, 1).await;
    }
    let at = socket.to_str().unwrap();
    let metrics = http_get(at, "/metrics").unwrap();
    assert_eq!(metrics.status, 200);
    linted(&metrics.body);
    let families = families(&metrics.body);
    let clusters = |name: &str| -> BTreeSet<String> {
        let samples = families.get(name).unwrap_or_else(|| panic!("{name}: {}", metrics.body));
        samples.iter().filter_map(|(labels, _)| labels.get("cluster").cloned()).collect()
    };
    let set = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<BTreeSet<_>>();
    assert_eq!(clusters("decklog_journal_entries"), set(&["eu", "us"]));
    assert_eq!(clusters("decklog_source_state"), set(&["eu", "us"]));
    assert_eq!(clusters("decklog_sink_lag_entries"), set(&["eu", "us"]));
    assert_eq!(clusters("decklog_alarms"), set(&["bad", "eu", "us"]));
    for (family, samples) in &families {
        let of_the_process = family.starts_with("process_") || family == "decklog_build_info";
        for (labels, _) in samples {
            assert_eq!(labels.contains_key("cluster"), !of_the_process, "{family} {labels:?}");
        }
        let distinct: BTreeSet<_> = samples.iter().map(|(labels, _)| labels).collect();
        assert_eq!(distinct.len(), samples.len(), "{family} has a series twice");
    }
    let value = |family: &str, cluster: &str| {
        let mut samples =
            families[family].iter().filter(|(labels, _)| labels.get("cluster").is_some_and(|c| c == cluster));
        samples.next().unwrap().1
    };
    assert_eq!(value("decklog_cluster_running", "eu"), 1.0);
    assert_eq!(value("decklog_cluster_running", "bad"), 0.0);
    assert_eq!(value("decklog_journal_entries", "us"), 1.0);
    let one = http_get(at, "/metrics?cluster=eu").unwrap();
    assert!(!one.body.contains("cluster=\"us\"") && one.body.contains("cluster=\"eu\""), "{}", one.body);
    let status = json(&http_get(at, "/status?cluster=us").unwrap().body);
    assert_eq!(status.as_object().unwrap().keys().collect::<Vec<_>>(), ["us"]);
    assert_eq!(status["us"]["daemon"]["pid"], several.daemon.pid());
    // A command from elsewhere.
    let server = format!("unix:{at}");
    let here = several.daemon.path(".");
    let ask = async |arguments: &[&str]| {
        crate::support::decklog(&here, &[arguments, &["--server", &server]].concat(), &[]).await
    };
    let said = ask(&["tail", "--cluster", "us"]).await.done();
    assert!(said.contains("only-in-us") && !said.contains("only-in-eu"), "{said}");
    ask(&["tail"]).await.refused(64, &["--cluster", "eu", "us"]);
    ask(&["tail", "--cluster", "none"]).await.refused(64, &["no cluster", "eu", "us"]);
    let said = json(&ask(&["status", "-o", "json"]).await.done());
    assert_eq!(said.as_object().unwrap().keys().collect::<Vec<_>>(), ["eu", "us"]);
    several.daemon.stop().await;
    for name in ["eu", "us"] {
        several.right(name);
    }
}

type Labels = BTreeMap<String, String>;

/// The page of each cluster is below its name, and what is wrong with one is not in the way of the others.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_cluster_has_a_page_of_its_own() {
    let at = free_address();
    let ui = format!("[ui]\nlisten = {at:?}\n");
    let mut several = Several::of(&["eu", "us"], &ui).await;
    several.add("typo", "[lug]\n").await;
    several.daemon.start();
    several.daemon.ready().await;
    several.create("eu", "only-eu");
    several.create("us", "only-us");
    several.reach("eu", 1).await;
    several.reach("us", 1).await;
    assert!(http_get(&at, "/").unwrap().body.contains("app.js"), "the page alone names no cluster");
    let listed = json(&http_get(&at, "/api/v1/clusters").unwrap().body);
    let names: Vec<&str> =
        listed["clusters"].as_array().unwrap().iter().map(|one| one["name"].as_str().unwrap()).collect();
    assert_eq!((names, &listed["this"]), (vec!["eu", "typo", "us"], &Value::Null));
    assert!(listed["clusters"][0]["running"] == true && listed["clusters"][0]["trouble"].is_null(), "{listed}");
    assert!(listed["clusters"][1]["trouble"].as_str().unwrap().contains("lug"), "{listed}");
    assert_eq!(json(&http_get(&at, "/clusters/us/api/v1/clusters").unwrap().body)["this"], "us");
    assert!(http_get(&at, "/clusters/eu/").unwrap().body.contains("app.js"));
    assert_eq!(http_get(&at, "/clusters/eu/app.js").unwrap().status, 200);
    assert_eq!(http_get(&at, "/clusters/eu").unwrap().status, 303);
    for (name, other) in [("eu", "us"), ("us", "eu")] {
        for path in [format!("/clusters/{name}/api/v1/entries?"), format!("/api/v1/entries?cluster={name}")] {
            let entries = http_get(&at, &path).unwrap();
            assert!(entries.body.contains(&format!("only-{name}")), "{path}: {entries:?}");
            assert!(!entries.body.contains(&format!("only-{other}")), "{path}: {entries:?}");
        }
        assert_eq!(json(&http_get(&at, &format!("/clusters/{name}/api/v1/overview")).unwrap().body)["mode"], "daemon");
    }
    for (path, status, says) in [
        ("/api/v1/overview", 400, "cluster=NAME: eu, typo, us"),
        ("/clusters/none/api/v1/overview", 404, "there is no cluster"),
        ("/clusters/typo/api/v1/overview", 503, "the configuration of cluster typo is wrong"),
        ("/clusters/..%2Feu/api/v1/overview", 404, "there is no cluster"),
    ] {
        let got = http_get(&at, path).unwrap();
        assert!(got.status == status && got.body.contains(says), "{path}: {got:?}");
    }
    let checked = several.command(&["check"]).await;
    assert!(checked.out.contains("lug"), "{checked:?}");
    several.daemon.stop().await;
}

/// The samples of each family, as the OpenMetrics text format has them: each family is declared once, and its samples stand
/// together.
fn families(exposition: &str) -> BTreeMap<String, Vec<(Labels, f64)>> {
    let body = exposition.strip_suffix("# EOF\n").unwrap_or_else(|| panic!("no end: {exposition}"));
    let (mut families, mut family, mut kind) = (BTreeMap::new(), String::new(), String::new());
    for line in body.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            family = rest.split(' ').next().unwrap().to_owned();
            assert!(families.insert(family.clone(), Vec::new()).is_none(), "{family} is declared twice");
            kind.clear();
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, of) = rest.split_once(' ').unwrap();
            assert!(name == family && kind.is_empty() && ["gauge", "counter"].contains(&of), "{line}");
            of.clone_into(&mut kind);
        } else {
            let (name, rest) = line.split_at(line.find(['{', ' ']).unwrap());
            let of_counter = if kind == "counter" { format!("{family}_total") } else { family.clone() };
            assert_eq!(name, of_counter, "{line}");
            let (labels, value) = match rest.strip_prefix('{') {
                Some(rest) => rest.split_once("} ").unwrap(),
                None => ("", rest.trim_start()),
            };
            families.get_mut(&family).unwrap().push((labels_of(labels), value.parse().unwrap()));
        }
    }
    families
}

fn labels_of(mut text: &str) -> Labels {
    let mut labels = Labels::new();
    while !text.is_empty() {
        let (name, rest) = text.split_once("=\"").unwrap();
        // No label of these tests has a quote in it.
        let (value, rest) = rest.split_once('"').unwrap();
        assert!(labels.insert(name.to_owned(), value.to_owned()).is_none(), "{name} twice: {text}");
        text = rest.strip_prefix(',').unwrap_or(rest);
    }
    labels
}
