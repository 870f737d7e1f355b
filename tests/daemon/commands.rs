//! The commands that speak to the cluster and to sinks, as a user runs them.

use std::fs;
use std::process::Stdio;
use std::time::Instant;

use decklog::sim::{Sim, objects};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::judge::Entry;
use crate::support::{Answer, Daemon, cluster, decklog, until};

/// What a command printed, but for the directory, which is another in each run.
fn golden(name: &str, daemon: &Daemon, answers: &[Answer]) {
    let mut text = String::new();
    for answer in answers {
        text.push_str(&format!("exit {}\n{}{}\n", answer.code, answer.out, answer.err));
    }
    let dir = daemon.path("").display().to_string();
    let text = text.replace(dir.trim_end_matches('/'), "DIR");
    let mut settings = insta::Settings::clone_current();
    settings.set_snapshot_path("../golden");
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    settings.bind(|| insta::assert_snapshot!(name, text));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn check_finds_everything_at_once_and_changes_nothing() {
    let sim = cluster().await;
    let mut daemon = Daemon::new(&sim, &["configmaps"]);
    let good = daemon.command(&["check"]).await.done();
    for about in ["config ", "state ", "cluster ", "rights ", "sink "] {
        assert!(good.contains(&format!("ok       {about}")), "{about}: {good}");
    }
    assert!(!good.contains("problem"), "{good}");
    assert!(!daemon.state().exists() && !daemon.log().exists(), "a check begins nothing");
    let json: Value = serde_json::from_str(&daemon.command(&["check", "-o", "json"]).await.done()).unwrap();
    assert!(json.as_array().unwrap().iter().all(|finding| finding["ok"] == true), "{json}");
    // What a finding is about is the first word of its code.
    for finding in json.as_array().unwrap() {
        let code = finding["code"].as_str().unwrap();
        assert!(code.contains('-') && code.split('-').next() == finding["about"].as_str(), "{finding}");
    }

    golden("check_good", &daemon, &[daemon.command(&["check"]).await, daemon.command(&["check", "-o", "json"]).await]);

    // What is allowed and worth a word is no problem.
    fs::write(daemon.path("token"), "t").unwrap();
    let collector = tokio::net::TcpListener::bind("127.0.0.2:0").await.unwrap();
    let url = format!("http://{}/", collector.local_addr().unwrap());
    // One that never answered would be waited for as long as a sink waits.
    let mut serving = tokio::task::JoinSet::new();
    serving.spawn(async move {
        loop {
            drop(collector.accept().await.unwrap());
        }
    });
    let with_token = |url: &str| {
        let token = daemon.path("token");
        format!("[[sink]]\nname = \"beside\"\ntype = \"http\"\nurl = {url:?}\nbearer_file = {token:?}\n")
    };
    daemon.configure(&daemon.config("resources = [\"configmaps\"]", &with_token(&url)));
    let beside = daemon.command(&["check"]).await;
    assert!(!beside.out.contains("in clear"), "{beside:#?}");
    daemon.configure(&daemon.config("resources = [\"configmaps\"]", &with_token("http://collector.invalid/")));
    let away = daemon.command(&["check"]).await;
    assert!(away.out.contains("note     config"), "{away:#?}");
    assert_eq!(away.out.matches("problem  ").count(), 1, "only that nobody answers: {away:#?}");

    let more = "[[sink]]\nname = \"nowhere\"\ntype = \"file\"\npath = \"nowhere/x\"\n\n[[sink]]\nname = \"dead\"\ntype = \"http\"\nurl = \"http://127.0.0.1:9/\"\n";
    daemon.configure(&daemon.config("resources = [\"configmaps\", \"deploments.apps\"]", more));
    let bad = daemon.command(&["check"]).await;
    assert_eq!(bad.code, 1, "{bad:#?}");
    golden("check_bad", &daemon, &[daemon.command(&["check"]).await, daemon.command(&["check", "-o", "json"]).await]);
    for says in ["no deploments.apps (did you mean deployments.apps?)", "nowhere: ", "dead: ", "3 problems found"] {
        assert!(bad.out.contains(says), "{says}: {bad:#?}");
    }
    // Beside a running daemon it is not told that what the daemon holds is taken.
    daemon.configure(&daemon.config("resources = [\"configmaps\"]", ""));
    daemon.start();
    daemon.ready().await;
    let running = daemon.command(&["check"]).await.done();
    assert!(running.contains(&format!("a decklog (process {}) is running on it", daemon.pid())), "{running}");
    daemon.stop().await;
}

/// A reason for which nothing may be read is one line, however many resources it is about.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn check_says_each_reason_once() {
    let sim = cluster().await;
    let daemon = Daemon::with(&sim, "resources = [\"*\"]", "");
    let problems = async || {
        let said = daemon.command(&["check"]).await.out;
        said.lines().filter(|line| line.contains(" rights ")).map(str::to_owned).collect::<Vec<_>>()
    };
    sim.deny("watch", "pods", None);
    sim.deny("list", "nodes", None);
    sim.deny("watch", "nodes", None);
    let some = problems().await;
    assert!(some.iter().any(|line| line.contains("pods may not be watched; `decklog rbac")), "{some:#?}");
    assert!(some.iter().any(|line| line.contains("nodes may not be listed or watched; `decklog rbac")), "{some:#?}");
    sim.deny("list", "*", None);
    sim.deny("watch", "*", None);
    let all = problems().await;
    let denied = |line: &&String| line.contains("may not be listed or watched");
    assert_eq!(all.iter().filter(denied).count(), 1, "{all:#?}");
    assert!(all.iter().find(denied).unwrap().contains(" more may not be listed or watched"), "{all:#?}");
    assert!(all.len() <= 4, "{all:#?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn check_finds_namespaces_that_are_not_there_and_selectors_that_are_refused() {
    let sim = cluster().await;
    sim.create_namespace("shop").unwrap();
    let watch = "resources = [\"configmaps\", \"secrets\"]\nnamespaces = [\"shpo\"]\nfield_selector = \"type=Opaque\"";
    let more = "\n[[watch]]\nresources = [\"pods\"]\nfield_selector = \"status.phase=Running\"\nexclude_namespaces = [\"ci-*\", \"shp\", \"shop\"]\n";
    let daemon = Daemon::with(&sim, watch, more);
    let bad = daemon.command(&["check"]).await;
    golden("check_scopes", &daemon, std::slice::from_ref(&bad));
    for says in [
        "[[watch]] 1: there is no namespace shpo (did you mean shop?)",
        "configmaps/shpo cannot be selected like this: the API server answered 400: field label not supported: type",
        "note     watch   [[watch]] 2: there is no namespace shp (did you mean shop?), so exclude_namespaces leaves nothing out by this name",
        "2 problems found",
    ] {
        assert!(bad.out.contains(says), "{says}: {bad:#?}");
    }
    let json = daemon.command(&["check", "-o", "json"]).await;
    assert!(json.out.contains("\"watch-exclude-namespace\""), "{json:#?}");
    // Who may not read namespaces cannot know.
    sim.deny("get", "namespaces", None);
    let blind = daemon.command(&["check"]).await;
    assert!(!blind.out.contains("there is no namespace"), "{blind:#?}");
}

/// A directory without a configuration, and with a kubeconfig in its place.
fn unconfigured(sim: &Sim) -> (Daemon, String) {
    let daemon = Daemon::new(sim, &["configmaps"]);
    fs::remove_file(daemon.path("config.toml")).unwrap();
    let kubeconfig = daemon.path("kubeconfig").display().to_string();
    (daemon, kubeconfig)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn init_writes_a_configuration_that_works_and_overwrites_none() {
    let sim = cluster().await;
    let (daemon, kubeconfig) = unconfigured(&sim);
    let (dir, file) = (daemon.path(""), daemon.path("config.toml"));
    let environment = [("KUBECONFIG", kubeconfig.as_str())];
    let run = async |arguments: &[&str]| decklog(&dir, arguments, &environment).await;
    let printed = run(&["init", "-"]).await;
    golden("init", &daemon, std::slice::from_ref(&printed));
    assert!(!file.exists(), "it was only printed");
    golden("init_written", &daemon, &[run(&["init"]).await]);
    let written = fs::read_to_string(&file).unwrap();
    assert_eq!(written, printed.done());
    let checked = run(&["check"]).await.done();
    assert!(checked.contains("config.toml is valid") && !checked.contains("problem"), "{checked}");

    run(&["init"]).await.refused(1, &["./config.toml is there already: `decklog init --force` writes over it"]);
    assert_eq!(fs::read_to_string(&file).unwrap(), written);
    // Who may not read everything gets what is left, and what was not the default is named.
    sim.deny("watch", "nodes", None);
    fs::rename(&kubeconfig, daemon.path("other")).unwrap();
    let context = ["--kubeconfig", "other", "--context", "sim"];
    run(&[&["init", "--force"][..], &context].concat()).await.done();
    let written = fs::read_to_string(&file).unwrap();
    let named = format!("\nkubeconfig = \"{}\"\n", daemon.path("other").display());
    for says in ["    \"nodes\",\n", "may not list and watch nodes.\n", &named, "\ncontext = \"sim\"\n"] {
        assert!(written.contains(says), "{says}: {written}");
    }
    let checked = run(&["check"]).await.done();
    assert!(!checked.contains("problem"), "{checked}");
    // Another place, as the other commands name it.
    let elsewhere = daemon.path("x.toml").display().to_string();
    run(&[&["init", "-c", &elsewhere][..], &context].concat()).await.done();
    assert!(daemon.path("x.toml").exists());
    sim.deny("list", "*", None);
    run(&["init", "-", "--kubeconfig", "other"])
        .await
        .refused(78, &["may list and watch nothing in all namespaces of"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_configuration_it_watches_what_init_would_write() {
    let sim = cluster().await;
    sim.create("secrets", objects::secret("default", "s", &[])).unwrap();
    let (daemon, kubeconfig) = unconfigured(&sim);
    let dir = daemon.path("");
    let environment = [("KUBECONFIG", kubeconfig.as_str())];
    let run = async |arguments: &[&str]| decklog(&dir, arguments, &environment).await;
    let checked = run(&["check"]).await.done();
    assert!(
        checked.contains("there is no file, so `decklog run` uses the configuration of `decklog init`"),
        "{checked}"
    );
    let said = fs::File::create(daemon.path("said")).unwrap();
    let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_decklog"));
    command.arg("run").current_dir(&dir).env_clear().env("KUBECONFIG", &kubeconfig).kill_on_drop(true);
    let mut running = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(said).spawn().unwrap();
    let pid = Pid::from_raw(i32::try_from(running.id().unwrap()).unwrap()).unwrap();
    let said = || fs::read_to_string(daemon.path("said")).unwrap();
    sim.create("configmaps", objects::config_map("default", "seen", "1")).unwrap();
    let status = until("every source to be ready", async || {
        let status = run(&["status", "-o", "json"]).await;
        let value: Value = serde_json::from_str(&status.out).map_err(|_| format!("{status:?} {}", said()))?;
        if value["daemon"]["ready"] == true { Ok(value) } else { Err(status.out) }
    })
    .await;
    until("an entry", async || {
        let tail = run(&["tail", "configmaps"]).await;
        if tail.out.contains("default/seen") { Ok(()) } else { Err(format!("{tail:?} {}", said())) }
    })
    .await;
    let line = "there is no configuration file: decklog uses the configuration of `decklog init`; read the log with `decklog tail -f`";
    assert_eq!(said().matches(line).count(), 1, "{}", said());
    let sources: Vec<&str> =
        status["sources"].as_array().unwrap().iter().filter_map(|one| one["name"].as_str()).collect();
    assert!(sources.contains(&"deployments.apps"), "{status}");
    for left_out in ["secrets", "events", "leases.coordination.k8s.io"] {
        assert!(!sources.contains(&left_out), "{left_out}: {sources:?}");
    }
    // Who asks for it hears why nothing is known, and what to do.
    let why = ["secrets are not watched: ", "[[watch]] with resources = [\"secrets\"]"];
    for question in [
        "log secret/s",
        "tail secrets",
        "get secrets",
        "diff secrets",
        "blame secret/s",
        "churn secrets",
        "drift secrets",
    ] {
        run(&question.split(' ').collect::<Vec<_>>()).await.refused(1, &why);
    }
    // The rights are those for what it watches, whatever may be read yet.
    let rights = run(&["rbac"]).await.done();
    assert!(rights.contains("kind: ClusterRole") && rights.contains("\"deployments\""), "{rights}");
    sim.deny("*", "*", None);
    assert_eq!(run(&["rbac"]).await.done(), rights);
    // One that is written by now is taken up.
    fs::write(daemon.path("config.toml"), "[[watch]]\nresources = [\"configmaps\"]\n").unwrap();
    kill_process(pid, Signal::HUP).unwrap();
    until("the file to be read", async || {
        if said().contains("the configuration was read again") { Ok(()) } else { Err(said()) }
    })
    .await;
    assert!(said().contains("[[watch]]: what is watched changed"), "{}", said());
    kill_process(pid, Signal::TERM).unwrap();
    assert!(running.wait().await.unwrap().success(), "{}", said());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rbac_prints_what_kubectl_can_apply() {
    let sim = cluster().await;
    sim.create_namespace("shop").unwrap();
    let daemon = Daemon::with(&sim, "resources = [\"deploy\", \"pods\"]\nnamespaces = [\"shop\"]", "");
    let everywhere = "\n[[watch]]\nresources = [\"nodes\", \"*.example.com\"]\n";
    daemon.configure(&daemon.config("resources = [\"deploy\", \"pods\"]\nnamespaces = [\"shop\"]", everywhere));
    let answer = daemon.command(&["rbac"]).await;
    golden("rbac", &daemon, std::slice::from_ref(&answer));
    let text = answer.done();
    let documents: Vec<Value> = text
        .split("\n---\n")
        .map(|part| serde_yaml_ng::from_str(part).unwrap_or_else(|e| panic!("{e}: {part}")))
        .collect();
    let find =
        |kind: &str| documents.iter().find(|document| document["kind"] == kind).unwrap_or_else(|| panic!("{text}"));
    let rules = |document: &Value| document["rules"].to_string();
    for document in &documents {
        assert!(document["metadata"]["name"].as_str().unwrap().starts_with("decklog"), "{text}");
        for rule in document["rules"].as_array().unwrap() {
            for verb in rule["verbs"].as_array().unwrap() {
                assert!(["get", "list", "watch"].contains(&verb.as_str().unwrap()), "only reading: {text}");
            }
        }
    }
    let role = find("Role");
    assert_eq!(role["metadata"]["namespace"], "shop");
    assert!(rules(role).contains("deployments") && rules(role).contains("pods") && !rules(role).contains("nodes"));
    let cluster_role = rules(find("ClusterRole"));
    assert!(cluster_role.contains("nodes") && cluster_role.contains("example.com"), "{text}");
    assert!(!cluster_role.contains("pods") && cluster_role.contains("kube-system"), "{text}");
    // RBAC names what may be read, and nothing that may not.
    daemon.configure(&daemon.config("resources = [\"pods\"]\nexclude_namespaces = [\"ci-*\"]", ""));
    let everywhere = daemon.command(&["rbac"]).await;
    assert!(everywhere.err.contains("because RBAC cannot leave any out"), "{everywhere:#?}");
    assert!(!everywhere.out.contains("ci-"), "{everywhere:#?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replay_delivers_the_same_bytes_again() {
    let sim = cluster().await;
    let mut daemon = Daemon::new(&sim, &["configmaps"]);
    for number in 0..10 {
        sim.create("configmaps", objects::config_map("default", &format!("m{number}"), "1")).unwrap();
    }
    daemon.start();
    daemon.ready().await;
    daemon.reach(10).await;
    // Beside the running daemon: into a file of its own, because the log has them already.
    let answer = daemon.command(&["replay", "--sink", "file", "--from", "3", "--to", "6"]).await;
    assert_eq!(answer.code, 0, "{answer:#?}");
    assert!(answer.err.contains("4 entries were delivered to file again"), "{answer:#?}");
    golden(
        "replay",
        &daemon,
        &[answer, daemon.command(&["replay", "--sink", "file", "--from", "9", "--to", "9"]).await],
    );
    let log = fs::read_to_string(daemon.log()).unwrap();
    let copy = fs::read_to_string(daemon.path("log.jsonl.replay-3-6")).unwrap();
    assert_eq!(copy.lines().collect::<Vec<_>>(), log.lines().collect::<Vec<_>>()[2..6]);
    assert_eq!(Entry::parse(copy.lines().next().unwrap()).seq, 3);
    let again = daemon.command(&["replay", "--sink", "file", "--from", "3", "--to", "6"]).await;
    again.refused(78, &["is there already; remove it first"]);
    daemon
        .command(&["replay", "--sink", "nobody", "--from", "1"])
        .await
        .refused(78, &["no sink named \"nobody\"; it has file"]);
    let beyond = daemon.command(&["replay", "--sink", "file", "--from", "5", "--to", "99"]).await;
    beyond.refused(1, &["the journal has the entries 1 to 10"]);
    daemon.command(&["replay", "--sink", "file"]).await.refused(64, &["--from"]);
    // The file is lost: all of it once more, put in its place, and the daemon goes on after it.
    daemon.stop().await;
    fs::remove_file(daemon.log()).unwrap();
    let answer = daemon.command(&["replay", "--sink", "file", "--from", "1"]).await;
    assert_eq!(answer.code, 0, "{answer:#?}");
    let copy = daemon.path("log.jsonl.replay-1-10");
    assert_eq!(fs::read_to_string(&copy).unwrap(), log);
    fs::rename(copy, daemon.log()).unwrap();
    daemon.start();
    daemon.ready().await;
    sim.create("configmaps", objects::config_map("default", "last", "1")).unwrap();
    daemon.knows(&sim, "configmaps", "default", "last").await;
    daemon.stop().await;
    daemon.consistent().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_demo_ends_by_itself_and_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let tmp = dir.path().join("tmp");
    fs::create_dir(&tmp).unwrap();
    let began = Instant::now();
    // Settings of this user must not get into the story.
    let environment =
        [("TMPDIR", tmp.to_str().unwrap()), ("PATH", "/usr/bin:/bin"), ("DECKLOG_STATE_PATH", "/nowhere")];
    let told = decklog(dir.path(), &["demo"], &environment).await.done();
    assert!(began.elapsed().as_secs() < 60, "it took {:?}", began.elapsed());
    let answer = told.find("$ decklog log deploy/web").unwrap();
    assert!(answer < told.find("A living cluster").unwrap(), "it opens with the answer: {told}");
    for says in [
        "Who changed my Deployment?",
        "demo --keep DIR",
        "A living cluster",
        "A restart",
        "did not list anything again: 0 lists",
        "GAP",
        "DELETED",
        "The proof",
    ] {
        assert!(told.contains(says), "{says}: {told}");
    }
    let (_, forgets) = told.split_once("A server that loses its history").unwrap();
    let (restarted, compacted) = forgets.split_once("The daemon is killed again").unwrap();
    let (compacted, _) = compacted.split_once("The log does not pretend").unwrap();
    for (part, says) in [
        (restarted, "MODIFIED configmaps shop/feature-flags"),
        (restarted, "ADDED    secrets pay/db-user"),
        (restarted, "DELETED  secrets pay/db-credentials"),
        (restarted, "ADDED    configmaps shop/maintenance"),
        (restarted, "DELETED  configmaps shop/maintenance"),
        (compacted, "MODIFIED configmaps shop/feature-flags"),
    ] {
        let line = part.lines().find(|line| line.contains(says)).unwrap_or_else(|| panic!("{says}: {part}"));
        assert!(line.contains("  recovered"), "{line}");
    }
    assert!(!restarted.contains(" GAP "), "{restarted}");
    assert!(restarted.contains("5 changes are recovered, and no GAP"), "{restarted}");
    for says in
        ["GAP      configmaps", "DELETED  configmaps shop/feature-flags", "ADDED    configmaps shop/feature-flags"]
    {
        assert!(compacted.contains(says), "the difference comes too late, {says}: {compacted}");
    }
    // What a change means: each command says its decisive words, after its own line and before the next one's.
    let printed = |command: &str| {
        let (_, rest) = told.split_once(&format!("$ decklog {command}")).unwrap_or_else(|| panic!("{command}: {told}"));
        rest.split("$ decklog ").next().unwrap().to_owned()
    };
    let says = |command: &str, words: &[&str]| {
        let printed = printed(command);
        let found = printed.lines().any(|line| words.iter().all(|word| line.contains(word)));
        assert!(found, "{command} has no line with {words:?}: {printed}");
    };
    says("churn", &["FOUGHT OVER"]);
    says("churn", &["deployments.apps shop/search"]);
    says("churn", &["5 by horizontal-pod-autoscaler,", "times"]);
    says("churn", &["3 by argocd-controller,", "times"]);
    says("churn", &["configmaps shop/feature-flags by flag-operator"]);
    says("churn", &["a time stamp, last"]);
    says("log deploy/web", &["MODIFIED spec", "image …1.1.0 → …1.2.0", "kubectl-set"]);
    says("blame deploy/web", &["kubectl-set ", "image: registry.example/web:1.2.0"]);
    says("get deploy/web --at", &["| kubectl apply -f -"]);
    says("get deploy/web --at", &["  image: registry.example/web:1.1.0"]);
    says("get deploy/web --at", &["MODIFIED deployments.apps shop/web", "image …1.2.0 → …1.1.0"]);
    assert!(!told.contains('\u{1b}') && !told.contains('\r'), "plain lines where nobody sits at a terminal");
    assert_eq!(fs::read_dir(&tmp).unwrap().count(), 0, "something is left behind");
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "something is left behind");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_demo_that_is_kept_can_be_read() {
    let dir = tempfile::tempdir().unwrap();
    let environment = [("PATH", "/usr/bin:/bin")];
    let told = decklog(dir.path(), &["demo", "--keep", "kept"], &environment).await.done();
    let commands: Vec<&str> = told.lines().filter_map(|line| line.strip_prefix("$ decklog -c ")).collect();
    assert_eq!(commands.len(), 3, "{told}");
    for command in commands {
        let arguments: Vec<&str> = std::iter::once("-c").chain(command.split(' ')).collect();
        let said = decklog(dir.path(), &arguments, &environment).await.done();
        assert!(said.lines().count() > 1, "{command}: {said}");
    }
    // Nothing is written over.
    let again = decklog(dir.path(), &["demo", "--keep", "kept"], &environment).await;
    again.refused(64, &["kept", "exists already"]);
    // The story of the book is in a directory of its own, too, and a journal of which nothing is missing.
    let told = decklog(dir.path(), &["demo", "--story", "--keep", "day"], &environment).await.done();
    assert!(told.contains("$ cd day\n"), "{told}");
    decklog(&dir.path().join("day"), &["verify"], &environment).await.done();
    let again = decklog(dir.path(), &["demo", "--story", "--keep", "day"], &environment).await;
    again.refused(64, &["exists already", "name a new directory"]);
    decklog(dir.path(), &["demo", "--story", "--forever"], &environment).await.refused(64, &["--forever"]);
    decklog(dir.path(), &["demo", "-o", "json"], &environment).await.refused(64, &["does not print json"]);
    decklog(dir.path(), &["demo", "--state", "x"], &environment).await.refused(64, &["--keep DIR"]);
}
