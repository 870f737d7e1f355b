//! What a server refuses, and what is asked to wait.

use super::*;

/// Fault 8: 429 with Retry-After.
#[tokio::test]
async fn what_a_server_asks_to_wait_is_waited() {
    let place = Place::new().await;
    place.sim.fault(Fault::new(On::watch("configmaps"), Act::flow_control(1)));
    let daemon = place.ready(maps()).await;
    place.map("a", "1");
    daemon.until_last(&place, "a@").await;
    let watches: Vec<_> = place.sim.requests().into_iter().filter(|seen| seen.is_watch("configmaps")).collect();
    assert!(watches[1].at - watches[0].at >= Duration::from_secs(1));
    assert_eq!(watches[0].param("resourceVersion"), watches[1].param("resourceVersion"), "from the same version");
    assert_eq!(place.lists(), 1);
    daemon.stop().await;
}

/// Fault 9: a token that is not taken any more.
#[tokio::test]
async fn a_new_token_in_the_kubeconfig_is_taken_up() {
    let place = Place::new().await;
    let daemon = place.ready(maps()).await;
    place.sim.revoke(crate::sim::TOKEN);
    place.sim.signal("configmaps", &Signal::End);
    daemon
        .until_state("configmaps", |state| matches!(state, SourceState::Degraded(text) if text.contains("401")))
        .await;
    place.sim.admit("fresh");
    std::fs::write(place.dir.path().join("kubeconfig"), place.sim.kubeconfig_with_token("fresh")).unwrap();
    place.map("a", "1");
    daemon.until_last(&place, "a@").await;
    assert_eq!(place.lists(), 1);
    daemon.stop().await;
}

/// Fault 10: a permission that is taken away.
#[tokio::test]
async fn a_forbidden_resource_degrades_alone_and_heals_when_it_is_granted() {
    let place = Place::new().await;
    place.sim.deny("list", "configmaps", None);
    let daemon = place.ready(vec![watch(&["configmaps", "secrets"])]).await;
    let state = daemon.until_state("configmaps", |state| matches!(state, SourceState::Degraded(_))).await;
    let SourceState::Degraded(text) = state else { panic!() };
    assert!(text.contains("configmaps") && text.contains("decklog rbac"), "{text}");
    daemon.until_state("secrets", |state| *state == SourceState::Watching).await;
    place.sim.grant("configmaps");
    place.map("a", "1");
    daemon.until_last(&place, "a@").await;
    daemon.stop().await;
}

/// Fault 10: a permission that is taken away from a watch that runs. The others go on, and when it comes back, so does the
/// log, with nothing missing and no list.
#[tokio::test]
async fn a_permission_that_comes_back_finds_the_position_kept() {
    let place = Place::new().await;
    let at = place.sim.revision();
    let daemon = place.ready(vec![watch(&["configmaps", "secrets"])]).await;
    place.map("a", "1");
    daemon.until_last(&place, "a@").await;
    place.sim.wait_for_watches("*", 2).await.unwrap();
    for verb in ["list", "watch"] {
        place.sim.deny(verb, "configmaps", None);
    }
    place.sim.signal("configmaps", &Signal::End);
    daemon.until_state("configmaps", |state| matches!(state, SourceState::Degraded(_))).await;
    place.map("b", "1");
    place.change("a", "2");
    let secret = place.sim.create("secrets", objects::secret("shop", "s", &[])).unwrap().revision;
    daemon.until_last(&place, &format!("s@{secret}")).await;
    place.sim.grant("configmaps");
    let log = daemon.until_last(&place, "a@").await;
    let maps: Vec<String> = log.into_iter().filter(|line| !line.contains(" s@")).collect();
    assert_eq!(maps, place.truth(at));
    assert_eq!(place.lists(), 1);
    daemon.stop().await;
}

#[tokio::test]
async fn a_source_that_only_ever_fails_does_not_keep_the_others_from_being_ready() {
    let body = bytes::Bytes::from_static(b"not a list");
    let garbage = Act::Answer(Answer { status: 200, content_type: "application/json", retry_after: None, body });
    for failing in [Act::refuse(&Refusal::internal("no")), Act::refuse(&Refusal::not_ready(0)), garbage] {
        let place = Place::new().await;
        place.sim.fault(Fault::new(On::list("configmaps"), failing).always());
        let daemon = place.ready(vec![watch(&["configmaps", "secrets"])]).await;
        assert!(matches!(daemon.stats("configmaps").state(), SourceState::Degraded(_)));
        daemon.stop().await;
    }
}
