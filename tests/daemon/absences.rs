//! What takes half a minute by design, because decklog is patient there. The name is the first of the modules, so that
//! it begins first.

use std::time::Duration;

use decklog::sim::faults::{Act, Fault, On, Refusal, Signal};
use decklog::sim::objects;
use decklog::sim::world::World;
use serde_json::json;

use crate::support::{Daemon, cluster, lists, scope, until};

/// All at once, because each of them waits most of its time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rights_resources_and_servers_that_come_and_go() {
    tokio::join!(
        Box::pin(rights_that_come_and_go()),
        Box::pin(resources_that_come_and_go()),
        Box::pin(a_server_that_is_away_is_waited_for()),
        Box::pin(a_server_that_only_refuses_is_not_hammered()),
    );
}

/// Without a right one source degrades and says how to get it; with it, that source catches up.
async fn rights_that_come_and_go() {
    let sim = cluster().await;
    let mut world = World::new(&sim, 7).unwrap();
    sim.deny("*", "secrets", None);
    let started = sim.revision();
    let all = ["secrets", "configmaps", "pods"];
    let mut daemon = Daemon::new(&sim, &all);
    daemon.start();
    // One that waits for a person does not keep the service from being ready.
    daemon.ready().await;
    let detail = daemon.waits_for_state("sources", "secrets", "degraded").await;
    assert!(detail.contains("not allowed to list or watch secrets") && detail.contains("decklog rbac"), "{detail}");
    let listed = lists(&sim).iter().filter(|path| path.ends_with("configmaps")).count();
    // A right that is taken back while its watch is open.
    sim.deny("*", "configmaps", None);
    sim.signal("configmaps", &Signal::End);
    daemon.waits_for_state("sources", "configmaps", "degraded").await;
    for _ in 0..60 {
        world.step().unwrap();
    }
    let pods = sim.objects("pods").unwrap().into_iter().max_by_key(|row| row.revision).unwrap();
    daemon.knows(&sim, "pods", &pods.namespace, &pods.name).await;
    sim.grant("configmaps");
    sim.grant("secrets");
    let done = scope(&sim, started, &all);
    daemon.waits_for_state("sources", "secrets", "watching").await;
    daemon.waits_for_state("sources", "configmaps", "watching").await;
    daemon.catch_up(&sim, &done).await;
    daemon.stop().await;
    daemon.judged(&sim, &done).await;
    assert_eq!(lists(&sim).iter().filter(|path| path.ends_with("configmaps")).count(), listed, "it resumed");
}

async fn resources_that_come_and_go() {
    let sim = cluster().await;
    let started = sim.revision();
    let widget = |name: &str| json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": name, "namespace": "default"}, "spec": {"size": 1}});
    let define = || sim.define(objects::crd("widgets.example.com", "Widget", true, &["v1", "v2"])).unwrap();
    let mut daemon = Daemon::new(&sim, &["*.example.com", "widgets.example.com", "customresourcedefinitions"]);
    daemon.start();
    daemon.ready().await;
    define();
    sim.create("widgets.example.com", widget("a")).unwrap();
    daemon.knows(&sim, "widgets.example.com", "default", "a").await;
    sim.patch("widgets.example.com", "default", "a", &json!({"spec": {"size": 2}})).unwrap();
    daemon.knows(&sim, "widgets.example.com", "default", "a").await;
    // Served in another version only: the same objects, nothing new to tell.
    sim.serve_versions("widgets.example.com", &["v2"]).unwrap();
    sim.patch("widgets.example.com", "default", "a", &json!({"spec": {"size": 3}})).unwrap();
    daemon.knows(&sim, "widgets.example.com", "default", "a").await;
    // Gone, and made again under the same name.
    sim.undefine("widgets.example.com").unwrap();
    daemon.waits_for_state("sources", "widgets.example.com", "gone").await;
    define();
    sim.create("widgets.example.com", widget("a")).unwrap();
    daemon.knows(&sim, "widgets.example.com", "default", "a").await;
    let resources = ["widgets.example.com", "customresourcedefinitions.apiextensions.k8s.io"];
    let done = scope(&sim, started, &resources);
    daemon.catch_up(&sim, &done).await;
    daemon.stop().await;
    daemon.judged(&sim, &done).await;
}

/// The port is closed, opened, closed: "connection refused" between two lives of one API server.
async fn a_server_that_is_away_is_waited_for() {
    let sim = cluster().await;
    let mut world = World::new(&sim, 6).unwrap();
    let started = sim.revision();
    let resources = ["pods", "configmaps"];
    let mut daemon = Daemon::new(&sim, &resources);
    daemon.start();
    daemon.ready().await;
    let listed = lists(&sim).len();
    for _ in 0..3 {
        sim.stop_listening().await;
        for _ in 0..20 {
            world.step().unwrap();
        }
        daemon.waits_for_state("sources", "pods", "degraded").await;
        sim.start_listening().await.unwrap();
        daemon.catch_up(&sim, &scope(&sim, started, &resources)).await;
    }
    daemon.stop().await;
    daemon.judged(&sim, &scope(&sim, started, &resources)).await;
    assert_eq!(lists(&sim).len(), listed, "nothing of this needs a list");
}

/// Nothing is asked for in a hot loop, whatever the answer.
async fn a_server_that_only_refuses_is_not_hammered() {
    let sim = cluster().await;
    sim.fault(Fault::new(On::list("pods"), Act::refuse(&Refusal::internal("no"))).always());
    sim.fault(Fault::new(On::list("configmaps"), Act::flow_control(3)).always());
    sim.fault(Fault::new(On::watch("services"), Act::empty()).always());
    let mut daemon = Daemon::new(&sim, &["pods", "configmaps", "services", "secrets"]);
    daemon.start();
    let quiet = std::time::Instant::now();
    until("eight seconds of refusals", async || {
        daemon.must_run();
        if quiet.elapsed() > Duration::from_secs(8) { Ok(()) } else { Err(String::new()) }
    })
    .await;
    for (on, most) in [(On::list("pods"), 14), (On::list("configmaps"), 4), (On::watch("services"), 20)] {
        let asked = sim.count(&on);
        assert!((1..=most).contains(&asked), "{asked} requests {on:?} in eight seconds");
    }
    assert!(daemon.waits_for_state("sources", "pods", "degraded").await.contains("500"));
    daemon.waits_for_state("sources", "secrets", "watching").await;
    sim.heal();
    daemon.ready().await;
    daemon.stop().await;
}
