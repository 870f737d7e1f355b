//! What is watched, and what may be: rights that come and go, resources that come and go, another configuration.

use decklog::sim::faults::{On, Signal};
use decklog::sim::{Settings, TOKEN, objects};
use rustix::process::Signal as Kill;
use serde_json::json;

use crate::support::{Daemon, cluster, lists, scope, until};

/// A token that is replaced: the new one is read from the kubeconfig, and the log goes on where it was.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_token_is_taken_up_without_a_restart() {
    let sim = cluster().await;
    let started = sim.revision();
    let mut daemon = Daemon::new(&sim, &["configmaps"]);
    daemon.start();
    daemon.ready().await;
    let listed = lists(&sim).len();
    sim.admit("fresh-token");
    std::fs::write(daemon.path("kubeconfig"), sim.kubeconfig_with_token("fresh-token")).unwrap();
    sim.revoke(TOKEN);
    sim.signal("configmaps", &Signal::Cut);
    sim.create("configmaps", objects::config_map("default", "after", "1")).unwrap();
    let done = scope(&sim, started, &["configmaps"]);
    daemon.catch_up(&sim, &done).await;
    daemon.stop().await;
    daemon.judged(&sim, &done).await;
    assert_eq!(lists(&sim).len(), listed);
    assert!(!daemon.said().contains("fresh-token") && !daemon.said().contains(TOKEN), "a token is no news");
}

/// Another selection at a restart is a gap that says `scope`, and the net difference.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_selector_is_a_gap_of_scope() {
    let sim = cluster().await;
    let labelled = |name: &str, tier: &str| {
        let mut map = objects::config_map("default", name, "1");
        map["metadata"]["labels"] = json!({"tier": tier});
        sim.create("configmaps", map).unwrap();
    };
    labelled("web-1", "web");
    labelled("web-2", "web");
    labelled("db-1", "db");
    let selected = |tier: &str| format!("resources = [\"configmaps\"]\nlabel_selector = \"tier={tier}\"");
    let mut daemon = Daemon::with(&sim, &selected("web"), "");
    daemon.start();
    daemon.ready().await;
    // One that loses its labels leaves the log.
    sim.patch("configmaps", "default", "web-2", &json!({"metadata": {"labels": {"tier": "db"}}})).unwrap();
    daemon.tells("that it left", |entry| entry.kind == "DELETED").await;
    assert_eq!(
        daemon.story("configmaps"),
        ["listed ADDED default/web-1", "listed ADDED default/web-2", "watched DELETED default/web-2"]
    );
    daemon.stop().await;
    daemon.configure(&daemon.config(&selected("db"), ""));
    daemon.start();
    daemon.ready().await;
    daemon.tells("the new scope", |entry| entry.name == "db-1").await;
    let mut told = daemon.story("configmaps")[3..].to_vec();
    assert_eq!(told.remove(0), "GAP scope");
    told.sort();
    assert_eq!(told, ["inferred ADDED default/db-1", "inferred ADDED default/web-2", "inferred DELETED default/web-1"]);
    daemon.stop().await;
    daemon.consistent().await;
}

/// Other namespaces: what stays resumes, what comes is listed, and nothing that was told is told again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn other_namespaces_tell_nothing_twice() {
    let sim = cluster().await;
    for namespace in ["shop", "pay"] {
        sim.create_namespace(namespace).unwrap();
        sim.create("configmaps", objects::config_map(namespace, "old", "1")).unwrap();
    }
    let of = |namespaces: &str| format!("resources = [\"configmaps\"]\n{namespaces}");
    let mut daemon = Daemon::with(&sim, &of("namespaces = [\"shop\"]"), "");
    daemon.start();
    daemon.ready().await;
    sim.create("configmaps", objects::config_map("shop", "new", "1")).unwrap();
    sim.create("configmaps", objects::config_map("pay", "new", "1")).unwrap();
    daemon.knows(&sim, "configmaps", "shop", "new").await;
    daemon.stop().await;
    let shop = lists(&sim).len();
    daemon.configure(&daemon.config(&of("namespaces = [\"shop\", \"pay\"]"), ""));
    daemon.start();
    daemon.ready().await;
    daemon.knows(&sim, "configmaps", "pay", "new").await;
    assert_eq!(lists(&sim)[shop..], ["/api/v1/namespaces/pay/configmaps"], "only what is new is listed");
    let told = daemon.story("configmaps");
    assert_eq!(told[..2], ["listed ADDED shop/old", "watched ADDED shop/new"]);
    assert_eq!(told.len(), 4, "{told:?}");
    daemon.stop().await;
    daemon.consistent().await;
}

/// A reload begins and ends watches, and leaves the others alone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reload_changes_what_is_watched_and_disturbs_nothing_else() {
    let sim = cluster().await;
    let started = sim.revision();
    let mut daemon = Daemon::new(&sim, &["configmaps", "services"]);
    daemon.start();
    daemon.ready().await;
    let watches = sim.count(&On::watch("configmaps"));
    daemon.configure(&daemon.config("resources = [\"configmaps\", \"namespaces\"]", ""));
    daemon.signal(Kill::HUP);
    sim.wait_for_watches("services", 0).await.unwrap();
    sim.wait_for_watches("namespaces", 1).await.unwrap();
    sim.create("services", objects::service("default", "unseen")).unwrap();
    sim.create("configmaps", objects::config_map("default", "seen", "1")).unwrap();
    sim.create_namespace("seen").unwrap();
    let resources = ["configmaps", "namespaces"];
    daemon.catch_up(&sim, &scope(&sim, started, &resources)).await;
    assert_eq!(sim.count(&On::watch("configmaps")), watches, "its watch was not touched");
    assert_eq!(daemon.story("services"), [""; 0]);
    let status = daemon.status().await;
    let services = status["sources"].as_array().unwrap().iter().find(|row| row["name"] == "services").unwrap();
    assert_eq!(services["active"], false, "{status}");
    // It comes back: what happened meanwhile is still within the window.
    daemon.configure(&daemon.config("resources = [\"configmaps\", \"namespaces\", \"services\"]", ""));
    daemon.signal(Kill::HUP);
    let all = scope(&sim, started, &["configmaps", "namespaces", "services"]);
    daemon.catch_up(&sim, &all).await;
    daemon.stop().await;
    daemon.judged(&sim, &all).await;
}

/// The journal of one cluster does not take another's entries, neither at the start nor when the address changes hands.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_cluster_is_refused() {
    let sim = cluster().await;
    let mut daemon = Daemon::new(&sim, &["configmaps"]);
    daemon.start();
    daemon.ready().await;
    daemon.stop().await;
    let other = crate::support::cluster_with(|settings: &mut Settings| {
        settings.cluster_uid = "22222222-2222-4222-8222-222222222222".to_owned();
    })
    .await;
    other.write_kubeconfig(&daemon.path("kubeconfig")).unwrap();
    daemon.start();
    let status = daemon.end().await;
    assert_eq!(status.code(), Some(78), "{}", daemon.last_words());
    let said = daemon.last_words();
    assert!(said.contains("belongs to the cluster") && said.contains("set another [state] path"), "{said}");
    daemon.command(&["check"]).await;
    let checked = daemon.command(&["check"]).await;
    assert!(checked.code == 1 && checked.out.contains("belongs to the cluster"), "{checked:#?}");
    // Its own cluster again: as if nothing had been.
    sim.write_kubeconfig(&daemon.path("kubeconfig")).unwrap();
    sim.create("configmaps", objects::config_map("default", "after", "1")).unwrap();
    daemon.start();
    daemon.knows(&sim, "configmaps", "default", "after").await;
    daemon.stop().await;
    daemon.consistent().await;
}

/// A name that nothing answers to is waited for; the service is ready without it, and says so.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_not_served_yet_is_waited_for() {
    let sim = cluster().await;
    let mut daemon = Daemon::new(&sim, &["configmaps", "gadgets.example.com"]);
    daemon.start();
    daemon.ready().await;
    daemon.says("gadgets.example.com").await;
    daemon.tells_systemd("STATUS=").await;
    sim.define(objects::crd("gadgets.example.com", "Gadget", false, &["v1"])).unwrap();
    sim.create(
        "gadgets.example.com",
        json!({"apiVersion": "example.com/v1", "kind": "Gadget", "metadata": {"name": "g"}}),
    )
    .unwrap();
    daemon.knows(&sim, "gadgets.example.com", "", "g").await;
    until("the source in status", async || {
        let status = daemon.status().await;
        let names: Vec<_> = status["sources"].as_array().unwrap().iter().map(|row| row["name"].clone()).collect();
        if names.iter().any(|name| name == "gadgets.example.com") { Ok(()) } else { Err(status.to_string()) }
    })
    .await;
    daemon.stop().await;
}
