//! What befalls lists of exact versions, in the network of the simulation.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use http::Request;
use http_body_util::BodyExt;
use kube::client::Body;
use serde_json::Value;

use decklog::sim;
use decklog_testkit::simulation::faults::Fault;
use decklog_testkit::simulation::network::Network;
use decklog_testkit::simulation::setup::Setup;
use decklog_testkit::simulation::stage::Stage;

/// What a request comes to while this fault strikes whatever it can.
async fn asked(sim: &sim::Sim, fault: Fault, uri: &str) -> (Arc<Stage>, u16, Value) {
    let stage = Arc::new(Stage::new(1, false, [fault].into()));
    stage.set_weather(100);
    let setup = Setup { namespaces: None, ..Setup::new(1) };
    let network = Network::new(Arc::clone(&stage), sim.clone(), &setup, None);
    let request = Request::builder().uri(uri).body(Body::empty()).unwrap();
    let answer = network.call(request, Arc::new(AtomicBool::new(true))).await.unwrap();
    let status = answer.status().as_u16();
    let body = answer.into_body().collect().await.unwrap().to_bytes();
    (stage, status, serde_json::from_slice(&body).unwrap())
}

#[tokio::test(start_paused = true)]
async fn exact_lists_meet_their_faults_and_others_do_not() {
    let sim = sim::Sim::unconnected(sim::Settings::default()).unwrap();
    for name in ["a", "b", "c"] {
        sim.create("configmaps", sim::objects::config_map("shop", name, "1")).unwrap();
    }
    let now = sim.revision();
    let exactly = |at: u64| format!("/api/v1/configmaps?&limit=1&resourceVersion={at}&resourceVersionMatch=Exact");
    for (fault, status, version, left) in [
        (Fault::ExactGone, 410, None, None),
        (Fault::ExactNewest, 200, Some(now), Some(2)),
        (Fault::ExactUncounted, 200, Some(now - 1), None),
        (Fault::ExactMiscounted, 200, Some(now - 1), Some(2)),
        (Fault::GoneAtStart, 200, Some(now - 1), Some(1)),
    ] {
        let (stage, code, list) = asked(&sim, fault, &exactly(now - 1)).await;
        let found = list["metadata"]["resourceVersion"].as_str().map(|version| version.parse().unwrap());
        let counted = list["metadata"]["remainingItemCount"].as_u64();
        assert_eq!((code, found, counted), (status, version, left), "{fault:?}");
        let hit = u64::from(fault != Fault::GoneAtStart);
        assert_eq!((stage.counts().of(fault), stage.reasons().len() as u64), (hit, hit), "{fault:?}");
        let (stage, _, list) = asked(&sim, fault, "/api/v1/configmaps?&limit=500").await;
        assert_eq!((stage.counts().of(fault), list["items"].as_array().unwrap().len()), (0, 3), "{fault:?}");
    }
    // One object of a source of all namespaces.
    let (uri, fault) = (exactly(now).replace("/configmaps", "/namespaces/shop/configmaps"), Fault::ExactGone);
    assert_eq!(asked(&sim, fault, &uri).await.0.reasons()[0].source, "configmaps");
    // Only where the source has not changed it may be one too few.
    sim.create_namespace("elsewhere").unwrap();
    let miscounts = |at: u64| -> BTreeSet<isize> {
        let network = |seed| {
            let stage = Arc::new(Stage::new(seed, false, [].into()));
            Network::new(stage, sim.clone(), &Setup::new(1), None)
        };
        (0..20).map(|seed| network(seed).miscount("configmaps", &exactly(at))).collect()
    };
    assert_eq!((miscounts(now), miscounts(now + 1)), ([1].into(), [-1, 1].into()));
}
