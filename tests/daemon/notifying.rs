//! Notifications of the `http` sink: from everything that a busy cluster does, a message for each incident, to servers on a bad
//! day and over restarts.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use axum::body::Bytes;
use decklog::sim::{Sim, objects};
use serde_json::{Value, json};

use crate::messages::{Apis, Came, Trouble, notifying};
use crate::sharing::{has_role, shared, starts_as};
use crate::support::{Daemon, cluster, until};

/// Parts of the test, between which decklog is killed, and stopped.
const TURNS: usize = 8;
const STATUS_CHANGES: usize = 10_000;
const PODS: usize = 20;
const ROLLOUTS: usize = 50;
const EDITS: usize = 5;
const LOOPS: usize = 3;
const FLAPS: usize = 40;
/// Each of these, and a node that flaps.
const INCIDENTS: usize = ROLLOUTS + EDITS + LOOPS + 1;

/// Sinks whose messages say a number and are updated.
const UPDATED: [&str; 3] = ["updated", "rollouts", "discord-rollouts"];

/// Rules of the test, the most important first.
const RULES: &str = r#"["gitops-edited-by-hand", "crash-loop", "image-changed", 'node-not-ready: kind == "Node" && change.patch.exists(p, p.path.startsWith("/status/conditions"))']"#;

const DEPLOYMENTS: &str = "deployments.apps";

/// The messages as a receiver has them that knows keys: each once. One that came again is what it was.
fn known(came: &Came) -> Vec<(String, Value)> {
    assert!(came.wrong.is_empty(), "{:?}", came.wrong);
    let mut known: Vec<(String, Bytes)> = Vec::new();
    for (key, body) in &came.taken {
        match known.iter().find(|(other, _)| other == key) {
            Some((_, other)) => assert!(other == body, "{key} came twice, and not alike"),
            None => known.push((key.clone(), body.clone())),
        }
    }
    known.into_iter().map(|(key, body)| (key, serde_json::from_slice(&body).unwrap())).collect()
}

fn deployments(prefix: &str, count: usize) -> Vec<String> {
    (0..count).map(|number| format!("{prefix}{number}")).collect()
}

fn looping(pod: &mut Value, is_looping: bool) {
    let state = if is_looping {
        json!({"waiting": {"reason": "CrashLoopBackOff", "message": "back-off restarting failed container"}})
    } else {
        json!({"running": {"startedAt": "2026-11-21T10:15:00Z"}})
    };
    pod["status"]["containerStatuses"][0]["state"] = state.clone();
    let name = pod["status"]["containerStatuses"][0]["name"].clone();
    let set = json!({"containerStatuses": [{"name": name, "state": state}]});
    objects::touch(pod, "kubelet", "Update", "v1", "status", &set);
}

fn pod_of(app: &str, name: &str, hash: &str) -> Value {
    let mut pod = objects::pod("shop", name, app, Some((&format!("{app}-{hash}"), "set")), "registry.example/web:1");
    pod["metadata"]["labels"]["pod-template-hash"] = hash.into();
    objects::schedule(&mut pod, "n1");
    objects::run(&mut pod, "10.0.0.7", true);
    pod
}

/// What is there before decklog is.
fn furnish(sim: &Sim) {
    sim.create("nodes", objects::node("n1")).unwrap();
    for name in deployments("web", ROLLOUTS).iter().chain(&deployments("loop", LOOPS)) {
        sim.create(DEPLOYMENTS, objects::deployment("shop", name, 1, "registry.example/web:1")).unwrap();
    }
    for name in deployments("git", EDITS) {
        let mut own = objects::deployment("shop", &name, 1, "registry.example/web:1");
        own["metadata"]["managedFields"][0]["manager"] = "argocd-controller".into();
        sim.create(DEPLOYMENTS, own).unwrap();
    }
    for number in 0..PODS {
        sim.create("pods", pod_of("busy", &format!("busy-{number}"), "5d4f")).unwrap();
    }
    for name in deployments("loop", LOOPS) {
        for pod in ["a", "b"] {
            sim.create("pods", pod_of(&name, &format!("{name}-5d4f-{pod}"), "5d4f")).unwrap();
        }
    }
}

fn set_image(sim: &Sim, name: &str, image: &str) {
    let set = json!({"spec": {"template": {"spec": {"containers": [{"name": name, "image": image}]}}}});
    sim.update(DEPLOYMENTS, "shop", name, |object| {
        object["spec"]["template"]["spec"]["containers"][0]["image"] = image.into();
        objects::touch(object, "kubectl-set", "Update", "apps/v1", "", &set);
    })
    .unwrap();
}

fn roll_out(sim: &Sim, name: &str) {
    set_image(sim, name, "registry.example/web:2");
    let (old, new) = (format!("{name}-old"), format!("{name}-new"));
    sim.create("pods", pod_of(name, &new, "77aa")).unwrap();
    sim.create("pods", pod_of(name, &old, "5d4f")).unwrap();
    sim.delete("pods", "shop", &old).unwrap();
    for replicas in [0, 1] {
        sim.update(DEPLOYMENTS, "shop", name, |object| {
            object["status"]["updatedReplicas"] = replicas.into();
            objects::touch(
                object,
                "kube-controller-manager",
                "Update",
                "apps/v1",
                "status",
                &json!({"updatedReplicas": replicas}),
            );
        })
        .unwrap();
    }
}

fn edit(sim: &Sim, name: &str, replicas: usize) {
    sim.update(DEPLOYMENTS, "shop", name, |object| {
        object["spec"]["replicas"] = replicas.into();
        objects::touch(object, "kubectl-edit", "Update", "apps/v1", "", &json!({"spec": {"replicas": replicas}}));
    })
    .unwrap();
}

/// Turn `turn` of so many: of everything that happens, as much as belongs there.
fn live(sim: &Sim, turn: usize, turns: usize) {
    let of = |count: usize| count * turn / turns..count * (turn + 1) / turns;
    for change in of(STATUS_CHANGES) {
        let name = format!("busy-{}", change % PODS);
        sim.update("pods", "shop", &name, |pod| {
            let condition = json!({"type": "Ready", "status": "True", "message": change.to_string()});
            pod["status"]["conditions"][1] = condition.clone();
            objects::touch(pod, "kubelet", "Update", "v1", "status", &json!({"conditions": [condition]}));
        })
        .unwrap();
    }
    of(ROLLOUTS).for_each(|number| roll_out(sim, &format!("web{number}")));
    of(EDITS * 2).for_each(|number| edit(sim, &format!("git{}", number / 2), 3 + number));
    for time in of(LOOPS * 12) {
        let (number, pod) = (time % LOOPS, ["a", "b"][time / LOOPS % 2]);
        let name = format!("loop{number}-5d4f-{pod}");
        sim.update("pods", "shop", &name, |pod| looping(pod, (time / LOOPS / 2).is_multiple_of(2))).unwrap();
    }
    for time in of(FLAPS) {
        sim.update("nodes", "", "n1", |node| {
            node["status"]["conditions"][0]["status"] = if time % 2 == 0 { "False" } else { "True" }.into();
        })
        .unwrap();
    }
}

/// The number of entries of an incident, by its title.
fn entries_of(title: &str) -> u64 {
    match title {
        node if node.starts_with("Node") => FLAPS as u64,
        // Each of two Pods begins three times.
        looping if looping.ends_with("crash loop") => 6,
        // A second edit is of a field that is a person's by then.
        _ => 1,
    }
}

/// Titles and counts of messages as the receiver shows them in the end: of those that came twice, the last one.
fn shown(name: &str, came: &Came) -> Vec<(String, u64)> {
    let newest = known(came).into_iter().map(|(key, _)| {
        let of_key = came.messages.iter().filter(|(_, (other, _))| *other == key);
        let (_, (_, body)) = of_key.max_by_key(|(number, _)| number.parse::<usize>().unwrap()).unwrap();
        serde_json::from_slice::<Value>(body).unwrap()
    });
    let number = |text: &Value| {
        let (before, _) = text.as_str().unwrap().split_once(" entries from ").unwrap();
        before.rsplit(' ').next().unwrap().parse::<u64>().unwrap()
    };
    let of = |body: Value| match name {
        "updated" => {
            (body["incident"]["title"].as_str().unwrap().to_owned(), body["incident"]["count"].as_u64().unwrap())
        }
        "rollouts" => (body["text"].as_str().unwrap().to_owned(), number(&body["blocks"][1]["elements"][0]["text"])),
        _ => {
            let content = body["content"].as_str().unwrap();
            (content.split("**").nth(1).unwrap().replace('\\', ""), number(&body["content"]))
        }
    };
    newest.map(of).collect()
}

/// The titles of all incidents, and of those that nobody may miss.
fn expected() -> (BTreeSet<String>, BTreeSet<String>) {
    let titles = |prefix: &str, count, cause: &str| -> BTreeSet<String> {
        deployments(prefix, count).iter().map(|name| format!("Deployment shop/{name}: {cause}")).collect()
    };
    let mut important = titles("git", EDITS, "GitOps-owned field edited by hand");
    important.extend(titles("loop", LOOPS, "crash loop"));
    let mut all = titles("web", ROLLOUTS, "image changed");
    all.extend(important.iter().cloned());
    all.insert("Node n1: node-not-ready".to_owned());
    (all, important)
}

/// Incidents that a place has been told of so far, those in digests counted.
fn told(came: &Came) -> usize {
    let counts = |(_, body): &(String, Value)| match body.pointer("/incident") {
        Some(incident) if incident["digest"].as_array().is_some_and(|digest| !digest.is_empty()) => {
            usize::try_from(incident["count"].as_u64().unwrap()).unwrap()
        }
        _ => 1,
    };
    known(came).iter().map(counts).sum()
}

/// Seqs of the messages, out of `"EPOCH_SEQ"`.
fn seqs(messages: &[(String, Value)]) -> Vec<u64> {
    messages.iter().map(|(key, _)| key.trim_matches('"').rsplit_once('_').unwrap().1.parse().unwrap()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_busy_cluster_is_a_message_for_each_incident_and_none_twice() {
    let sim = cluster().await;
    furnish(&sim);
    let trouble = |request| match request % 16 {
        3 => Some(Trouble::TooMany),
        8 => Some(Trouble::Failing),
        12 => Some(Trouble::Cut),
        _ => None,
    };
    let api = |path: &str| match path {
        "incidents" | "rollouts" => Some("slack"),
        "discord-rollouts" => Some("discord"),
        "pager" => Some("pagerduty"),
        "marks" => Some("grafana"),
        _ => None,
    };
    let (apis, at, _serving) = Apis::serve(trouble, api).await;
    let watch = "resources = [\"deployments\", \"pods\", \"nodes\"]";
    let mut daemon = Daemon::with(&sim, watch, "");
    fs::write(daemon.path("token"), "glsa_test").unwrap();
    let recipes = notifying(&[
        ("bearer_file", &|_| format!("{:?}", daemon.path("token"))),
        ("url", &|name| format!("\"http://{at}/{name}\"")),
        ("update.url", &|name| match name {
            "rollouts" => format!("\"http://{at}/{name}/update\""),
            _ => format!("\"http://{at}/{name}/messages/{{reference}}\""),
        }),
        ("notify", &|_| RULES.to_owned()),
        ("rate", &|_| "1000".to_owned()),
    ]);
    assert_eq!(recipes.len(), 5);
    let own = |name: &str, digest: usize| {
        format!(
            "[[sink]]\nname = \"{name}\"\ntype = \"http\"\nurl = \"http://{at}/{name}\"\nformat = \"template\"\nescape = \"none\"\n\
             from = \"now\"\nnotify = {RULES}\nbody = '{{ \"incident\": {{{{ incident }}}} }}'\ngroup_wait = \"1s\"\ndigest = {digest}\n\n"
        )
    };
    let recipes: Vec<String> = recipes
        .into_iter()
        .map(|one| one.replacen("notify = ", "group_wait = \"1s\"\ndigest = 100\nnotify = ", 1))
        .collect();
    let update = format!(
        "[sink.update]\nreference = \"/ts\"\nurl = \"http://{at}/updated/{{reference}}\"\nmethod = \"PUT\"\n\n"
    );
    let own = own("few", 5) + &own("one", 100) + &own("updated", 100) + &update;
    daemon.configure(&daemon.config(watch, &(own + &recipes.join("\n"))));
    daemon.start();
    daemon.ready().await;
    until("the first list", async || {
        let lines = daemon.lines();
        if lines > ROLLOUTS + EDITS + PODS + LOOPS * 3 { Ok(()) } else { Err(lines.to_string()) }
    })
    .await;
    for turn in 0..TURNS {
        live(&sim, turn, TURNS);
        if turn == 2 {
            daemon.kill().await;
            daemon.start();
        }
        if turn == 5 {
            daemon.stop().await;
            daemon.start();
        }
    }
    daemon.ready().await;
    until("every incident", async || {
        daemon.must_run();
        let all = apis.came();
        let told: BTreeMap<&String, usize> = all.iter().map(|(name, came)| (name, told(came))).collect();
        let right = told.len() == 8 && told.values().all(|told| *told >= INCIDENTS);
        if right { Ok(()) } else { Err(format!("{told:?}: {}", daemon.last_words())) }
    })
    .await;
    until("the last update", async || {
        daemon.must_run();
        let all = apis.came();
        let short = UPDATED.iter().flat_map(|name| {
            let shown = shown(name, &all[*name]).into_iter();
            shown.filter(|(title, count)| *count < entries_of(title)).map(move |one| (*name, one))
        });
        let short: Vec<_> = short.collect();
        if short.is_empty() { Ok(()) } else { Err(format!("{short:?}: {}", daemon.last_words())) }
    })
    .await;
    let commands: BTreeMap<String, String> = {
        let all = apis.came();
        let incident = |(_, body): (String, Value)| body["incident"].clone();
        let text = |value: &Value, key: &str| value[key].as_str().unwrap().to_owned();
        known(&all["one"]).into_iter().map(incident).map(|one| (text(&one, "rule"), text(&one, "log"))).collect()
    };
    assert_eq!(commands.len(), 4);
    for command in commands.values() {
        let words: Vec<&str> = command.split(' ').collect();
        let answer = daemon.command(&words[1..]).await.done();
        assert!(answer.lines().count() >= 1 && answer.contains("20"), "{command}: {answer}");
    }
    daemon.stop().await;
    let all = apis.came();
    let (titles, important) = expected();
    for name in ["one", "updated", "incidents", "rollouts", "pager", "marks"] {
        let messages = known(&all[name]);
        let seqs = seqs(&messages);
        assert!(messages.len() <= 60 && seqs.is_sorted(), "{name}: {} messages, {seqs:?}", messages.len());
        let of = |body: &Value| match name {
            "one" | "updated" => body["incident"]["title"].as_str().unwrap().to_owned(),
            "incidents" | "rollouts" => body["text"].as_str().unwrap().to_owned(),
            // GAPs have no author.
            "marks" => {
                let (text, _link) = body["text"].as_str().unwrap().rsplit_once(" <a ").unwrap();
                let (title, _) = text.split_once("<br>").or_else(|| text.split_once("; by ")).unwrap_or((text, ""));
                title.to_owned()
            }
            _ => body["payload"]["summary"].as_str().unwrap().to_owned(),
        };
        let told: Vec<String> = messages.iter().map(|(_, body)| of(body)).collect();
        assert_eq!(told.iter().cloned().collect::<BTreeSet<_>>(), titles, "{name}");
        assert_eq!(told.len(), titles.len(), "{name}: one is told twice");
    }
    // In the end each message says how many entries its incident has, whatever the server and the daemon went through.
    for name in UPDATED {
        let shown = shown(name, &all[name]);
        assert_eq!(shown.iter().map(|(title, _)| title.clone()).collect::<BTreeSet<_>>(), titles, "{name}");
        assert_eq!(shown.len(), INCIDENTS, "{name}");
        let wrong: Vec<_> = shown.iter().filter(|(title, count)| *count != entries_of(title)).collect();
        assert!(wrong.is_empty() && all[name].updates > 10, "{name}, {} updates: {wrong:?}", all[name].updates);
    }
    let ends = all["marks"].messages.values().filter(|(_, body)| {
        let body: Value = serde_json::from_slice(body).unwrap();
        body["timeEnd"].as_i64().is_some_and(|end| end >= body["time"].as_i64().unwrap())
    });
    assert!(ends.count() > LOOPS, "marks become regions");
    let keys: BTreeSet<String> = known(&all["pager"]).iter().map(|(_, body)| body["dedup_key"].to_string()).collect();
    assert_eq!(keys.len(), INCIDENTS);
    // Few messages: what is important has its own, and the rest is in digests, each once.
    let messages = known(&all["few"]);
    assert!(messages.len() < INCIDENTS && seqs(&messages).is_sorted(), "{} messages", messages.len());
    let own: BTreeSet<String> =
        messages.iter().map(|(_, body)| body["incident"]["title"].as_str().unwrap().to_owned()).collect();
    assert!(own.is_superset(&important), "{own:?}");
    assert_eq!(told(&all["few"]), INCIDENTS);
}

/// Two daemons of one log: who takes over in the middle of incidents goes on with their messages, and sends none again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_replica_goes_on_with_the_messages_of_the_one_before() {
    let sim = cluster().await;
    let bucket = tempfile::tempdir().unwrap();
    let names = deployments("web", 4);
    for name in &names {
        sim.create(DEPLOYMENTS, objects::deployment("shop", name, 1, "registry.example/web:1")).unwrap();
    }
    let trouble = |request| (request == 1).then_some(Trouble::Cut);
    let (apis, at, _serving) = Apis::serve(trouble, |_| None).await;
    let sink = format!(
        "\n[[sink]]\nname = \"updated\"\ntype = \"http\"\nurl = \"http://{at}/updated\"\nformat = \"template\"\nescape = \"none\"\n\
         from = \"now\"\nnotify = {RULES}\nbody = '{{ \"incident\": {{{{ incident }}}} }}'\ngroup_wait = \"1s\"\n\
         [sink.update]\nreference = \"/ts\"\nurl = \"http://{at}/updated/{{reference}}\"\nmethod = \"PUT\"\n"
    );
    let replica = |identity: &str| {
        let daemon = shared(&sim, bucket.path(), identity);
        let config = fs::read_to_string(daemon.path("config.toml")).unwrap();
        daemon.configure(&(config + &sink));
        daemon
    };
    let (mut one, mut two) = (replica("one"), replica("two"));
    starts_as(&mut one, "leader").await;
    starts_as(&mut two, "standby").await;
    // The last one begins where another daemon leads.
    names[..3].iter().for_each(|name| set_image(&sim, name, "registry.example/web:2"));
    let shows = async |daemon: &mut Daemon, most: usize, counts: &[u64]| {
        until("messages with these counts", async || {
            daemon.must_run();
            let all = apis.came();
            let mut shown = all.get("updated").map(|came| shown("updated", came)).unwrap_or_default();
            shown.sort();
            let found: Vec<u64> = shown.iter().map(|(_, count)| *count).collect();
            if shown.len() <= most && found == counts {
                Ok(())
            } else {
                Err(format!("{shown:?}: {}", daemon.last_words()))
            }
        })
        .await;
    };
    shows(&mut one, 3, &[1, 1, 1]).await;
    one.kill().await;
    names.iter().for_each(|name| set_image(&sim, name, "registry.example/web:3"));
    has_role(&mut two, "leader").await;
    shows(&mut two, 4, &[2, 2, 2, 1]).await;
    two.stop().await;
    let messages = known(&apis.came()["updated"]);
    assert_eq!((messages.len(), seqs(&messages).is_sorted()), (names.len(), true), "{messages:?}");
}
