//! Servers that went back in time, and servers of another cluster.

use super::*;

/// Fault 15: etcd restored, with lower versions.
#[tokio::test]
async fn a_restored_server_is_noticed_and_recorded_as_a_rollback() {
    let place = Place::new().await;
    place.map("old", "1");
    let then = place.sim.revision();
    let daemon = place.ready(maps()).await;
    place.map("lost", "1");
    place.change("old", "2");
    daemon.until(&place, |log| log.len() == 3).await;
    daemon.stop().await;
    place.sim.restore(then);
    let daemon = place.start(maps()).await;
    let log = daemon.until(&place, |log| log.len() == 6).await;
    assert_eq!(log[3], "GAP rollback");
    let mut rest: Vec<&str> = log[4..].iter().map(String::as_str).collect();
    rest.sort_unstable();
    assert_eq!(
        rest,
        ["DELETED inferred lost@".to_owned() + &(then + 1).to_string(), format!("MODIFIED inferred old@{then}")]
    );
    place.map("after", "1");
    daemon.until_last(&place, "ADDED watched after").await;
    daemon.stop().await;
}

/// Fault 13: a version that the server says it does not have.
#[tokio::test]
async fn a_server_that_was_only_slow_keeps_no_other_source_from_listing() {
    let mut place = Place::with_gaps().await;
    place.timings.lists = 1;
    place.map("a", "1");
    let both = || vec![watch(&["configmaps", "secrets"])];
    place.ready(both()).await.stop().await;
    let probe = On::list("configmaps").query("resourceVersionMatch");
    place.sim.fault(Fault::new(probe, Act::refuse(&Refusal::too_large(9, 8))).always());
    let daemon = place.start(both()).await;
    daemon.until_state("configmaps", |state| *state == SourceState::Watching).await;
    place.sim.wait_for_watches("*", 2).await.unwrap();
    place.sim.create("secrets", objects::secret("shop", "s", &[])).unwrap();
    daemon.until_last(&place, "s@").await;
    place.map("b", "1");
    place.sim.expire_watch_history("secrets", place.sim.revision());
    place.sim.signal("secrets", &Signal::End);
    daemon.until(&place, |log| log.iter().any(|line| line == "GAP expired")).await;
    daemon.stop().await;
}

/// Fault 15: the same, where the versions have been passed again before the list.
#[tokio::test]
async fn a_restored_server_that_catches_up_is_recorded_as_a_rollback_all_the_same() {
    let mut place = Place::new().await;
    place.timings.thresholds.ahead = PATIENCE;
    place.map("old", "1");
    let then = place.sim.revision();
    let daemon = place.ready(maps()).await;
    place.map("lost", "1");
    daemon.until_last(&place, "lost@").await;
    daemon.stop().await;
    place.sim.restore(then);
    place.sim.clear_requests();
    // The list that follows is held up until the server has passed what the journal has.
    let list = On::list("configmaps").query("limit=500");
    place.sim.fault(Fault::new(list.clone(), Act::refuse(&Refusal::not_ready(0))).always());
    let daemon = place.start(maps()).await;
    place.sim.wait_for_count(&list, 1).await.unwrap();
    place.map("unrecorded", "1");
    for n in 0..5 {
        place.map(&format!("m{n}"), "1");
    }
    place.sim.heal();
    place.map("last", "1");
    let log = daemon.until(&place, |log| log.iter().any(|line| line.contains(" last@"))).await;
    assert_eq!(log[2], "GAP rollback");
    assert!(log.iter().any(|line| line.starts_with("ADDED inferred unrecorded@")), "{log:#?}");
    assert!(log.iter().any(|line| line.starts_with("DELETED inferred lost@")), "{log:#?}");
    assert_eq!(log.iter().filter(|line| line.starts_with("GAP")).count(), 1);
    daemon.stop().await;
}

#[tokio::test]
async fn a_rollback_that_one_source_finds_is_looked_for_by_those_whose_watch_hears_nothing() {
    let mut place = Place::new().await;
    place.timings.silence = PATIENCE * 2;
    let then = place.sim.revision();
    let daemon = place.ready(vec![watch(&["configmaps", "secrets"])]).await;
    place.map("lost", "1");
    place.sim.create("secrets", objects::secret("shop", "lost", &[])).unwrap();
    daemon.until(&place, |log| log.len() == 2).await;
    place.sim.wait_for_watches("*", 2).await.unwrap();
    place.sim.signal("secrets", &Signal::Stall);
    place.sim.restore(then);
    let log = daemon
        .until(&place, |log| log.iter().filter(|line| line.starts_with("DELETED inferred lost@")).count() == 2)
        .await;
    assert_eq!(log.iter().filter(|line| *line == "GAP rollback").count(), 2, "{log:#?}");
    daemon.stop().await;
}

async fn another_cluster(place: &Place) -> Sim {
    let settings = Settings { cluster_uid: "another".to_owned(), ..Settings::default() };
    let other = Sim::start_with(settings).await.unwrap();
    other.write_kubeconfig(&place.dir.path().join("kubeconfig")).unwrap();
    other
}

/// Fault 17: another cluster behind the address.
#[tokio::test]
async fn another_cluster_at_the_same_address_is_refused() {
    let place = Place::new().await;
    place.ready(maps()).await.stop().await;
    let _other = another_cluster(&place).await;
    let mut daemon = place.start(maps()).await;
    let error = daemon.tasks.join_next().await.unwrap().unwrap().unwrap_err();
    assert!(matches!(error, SourceManagerError::Journal(JournalError::OtherCluster { .. })), "{error}");
}

/// Fault 17: the same, while the daemon runs.
#[tokio::test]
async fn another_cluster_that_takes_the_address_over_is_noticed_before_anything_of_it_is_read() {
    let place = Place::new().await;
    let mut daemon = place.ready(maps()).await;
    let other = another_cluster(&place).await;
    other.create("configmaps", objects::config_map("default", "foreign", "1")).unwrap();
    place.sim.stop_listening().await;
    let error = tokio::time::timeout(PATIENCE, daemon.tasks.join_next()).await.unwrap().unwrap().unwrap().unwrap_err();
    assert!(matches!(error, SourceManagerError::Journal(JournalError::OtherCluster { .. })), "{error}");
    assert_eq!(daemon.log(&place), Vec::<String>::new());
    assert_eq!(other.count(&On::list("configmaps")) + other.count(&On::watch("configmaps")), 0);
}

/// The same of one that begins, and denies everything for a moment: that is no proof that it is ours.
#[tokio::test]
async fn another_cluster_that_does_not_say_yet_who_it_is_is_asked_again() {
    for runs in [true, false] {
        let place = Place::new().await;
        let mut daemon = place.ready(maps()).await;
        let other = another_cluster(&place).await;
        other.create("configmaps", objects::config_map("default", "foreign", "1")).unwrap();
        let unsaid = || On::path("/api/v1/namespaces/kube-system");
        let refusal = Refusal::new(403, "Forbidden", "not yet");
        other.fault(Fault::new(unsaid(), Act::refuse(&refusal)).times(3));
        if runs {
            place.sim.stop_listening().await;
        } else {
            daemon.stop().await;
            daemon = place.start(maps()).await;
        }
        let ended = tokio::time::timeout(PATIENCE, daemon.tasks.join_next()).await.unwrap().unwrap().unwrap();
        let error = ended.unwrap_err();
        assert!(matches!(error, SourceManagerError::Journal(JournalError::OtherCluster { .. })), "{error}");
        assert_eq!(daemon.log(&place), Vec::<String>::new());
        assert_eq!(other.count(&unsaid()), 4);
        assert_eq!(other.count(&On::list("configmaps")) + other.count(&On::watch("configmaps")), 0);
    }
}

#[tokio::test]
async fn a_kubeconfig_that_names_another_cluster_is_noticed_before_anything_of_that_is_read() {
    let place = Place::new().await;
    let mut daemon = place.ready(maps()).await;
    place.sim.wait_for_watches("configmaps", 1).await.unwrap();
    let other = another_cluster(&place).await;
    other.create("configmaps", objects::config_map("default", "foreign", "1")).unwrap();
    // Discovery goes to the new address; the watch is still open at the old one, and ends well.
    other.wait_until("be asked", |other| !other.requests().is_empty()).await.unwrap();
    place.sim.signal("configmaps", &Signal::End);
    let error = tokio::time::timeout(PATIENCE, daemon.tasks.join_next()).await.unwrap().unwrap().unwrap().unwrap_err();
    assert!(matches!(error, SourceManagerError::Journal(JournalError::OtherCluster { .. })), "{error}");
    assert_eq!(daemon.log(&place), Vec::<String>::new());
    assert_eq!(other.count(&On::list("configmaps")) + other.count(&On::watch("configmaps")), 0);
}
