//! What is watched: resources that come and go, selectors, namespaces.

use std::collections::BTreeSet;

use super::*;
use crate::watch::cluster::Failure;

/// Faults 11 and 12: definitions that come and go.
#[tokio::test]
async fn custom_resources_come_go_and_come_again() {
    let place = Place::new().await;
    let daemon = place.ready(vec![watch(&["*.example.com"])]).await;
    let crd = || objects::crd("widgets.example.com", "Widget", true, &["v1"]);
    let widget = |name: &str| serde_json::json!({"metadata": {"namespace": "shop", "name": name}, "spec": {"n": 1}});
    for round in 0..2 {
        place.sim.define(crd()).unwrap();
        place.sim.create("widgets.example.com", widget(&format!("w{round}"))).unwrap();
        daemon.until_last(&place, &format!("w{round}@")).await;
        daemon.until_state("widgets.example.com", |state| *state == SourceState::Watching).await;
        place.sim.undefine("widgets.example.com").unwrap();
        daemon.until(&place, |log| log.last().is_some_and(|last| last.starts_with("DELETED"))).await;
        let is_gone = || daemon.handle.overview().sources.iter().all(|view| view.spec.resource.plural != "widgets");
        daemon.until_holds("its source has ended", is_gone).await;
    }
    let log = daemon.log(&place);
    let words: Vec<&str> =
        log.iter().filter(|line| !line.starts_with("GAP")).map(|line| line.split('@').next().unwrap()).collect();
    let plain: Vec<String> =
        words.iter().map(|word| word.replace("inferred", "x").replace("watched", "x").replace("listed", "x")).collect();
    assert_eq!(plain, ["ADDED x w0", "DELETED x w0", "ADDED x w1", "DELETED x w1"]);
    daemon.stop().await;
}

#[tokio::test]
async fn deletions_that_went_by_unseen_with_their_resource_are_recorded() {
    let mut place = Place::new().await;
    place.timings.silence = Duration::from_millis(300);
    place.sim.define(objects::crd("widgets.example.com", "Widget", true, &["v1"])).unwrap();
    place.sim.fault(Fault::new(On::watch("widgets.example.com"), Act::stall_after_events(1)));
    let daemon = place.ready(vec![watch(&["*.example.com"])]).await;
    place.sim.wait_for_watches("widgets.example.com", 1).await.unwrap();
    let widget = serde_json::json!({"metadata": {"namespace": "shop", "name": "w"}, "spec": {"n": 1}});
    place.sim.create("widgets.example.com", widget).unwrap();
    daemon.until_last(&place, "w@").await;
    place.sim.undefine("widgets.example.com").unwrap();
    let log = daemon.until(&place, |log| log.len() == 3).await;
    assert_eq!(log[1], "GAP scope");
    assert!(log[2].starts_with("DELETED inferred w@"), "{log:?}");
    daemon.stop().await;
}

/// Fault 12: another served version emits nothing a second time.
#[tokio::test]
async fn a_resource_served_in_another_version_goes_on_from_where_it_was() {
    let place = Place::new().await;
    place.sim.define(objects::crd("widgets.example.com", "Widget", true, &["v1"])).unwrap();
    let widget = |name: &str| serde_json::json!({"metadata": {"namespace": "shop", "name": name}, "spec": {"n": 1}});
    let daemon = place.ready(vec![watch(&["widgets.example.com"])]).await;
    place.sim.create("widgets.example.com", widget("a")).unwrap();
    daemon.until_last(&place, "a@").await;
    place.sim.serve_versions("widgets.example.com", &["v2"]).unwrap();
    place.sim.create("widgets.example.com", widget("b")).unwrap();
    let log = daemon.until_last(&place, "b@").await;
    let changes: Vec<&str> =
        log.iter().filter(|line| !line.starts_with("GAP")).map(|line| line.split('@').next().unwrap()).collect();
    assert_eq!(changes.len(), 2, "nothing is recorded twice, nothing deleted: {log:?}");
    daemon.stop().await;
}

#[tokio::test]
async fn a_changed_selector_is_a_change_of_scope() {
    let place = Place::new().await;
    for (name, tier) in [("web", "web"), ("db", "db")] {
        let mut map = objects::config_map("shop", name, "1");
        map["metadata"]["labels"] = serde_json::json!({"tier": tier});
        place.sim.create("configmaps", map).unwrap();
    }
    let daemon = place.ready(maps()).await;
    daemon.until(&place, |log| log.len() == 2).await;
    let mut web = watch(&["configmaps"]);
    web.label_selector = "tier=web".into();
    daemon.handle.reload(plan(vec![web])).await;
    let log = daemon.until(&place, |log| log.len() == 4).await;
    assert_eq!(log[2], "GAP scope");
    assert!(log[3].starts_with("DELETED inferred db@"), "{log:?}");
    daemon.stop().await;
}

#[tokio::test]
async fn a_reload_ends_and_begins_only_what_changed() {
    let place = Place::new().await;
    let daemon = place.ready(vec![watch(&["configmaps", "secrets"])]).await;
    place.sim.wait_for_watches("*", 2).await.unwrap();
    let before = place.sim.count(&On::watch("configmaps"));
    let redactor = Arc::new(Redactor::new(&redact::Settings::default(), [7; 32]).unwrap());
    // The rules are the same object, so they have not changed.
    let kept = Plan { redactor: Arc::clone(&redactor), ..plan(vec![watch(&["configmaps", "secrets"])]) };
    daemon.handle.reload(kept.clone()).await;
    place.sim.wait_for_count(&On::watch("configmaps"), before + 1).await.unwrap();
    daemon.handle.reload(Plan { watch: vec![watch(&["configmaps", "pods"])], ..kept }).await;
    place.sim.wait_for_watches("pods", 1).await.unwrap();
    place.sim.wait_for_watches("secrets", 0).await.unwrap();
    assert_eq!(place.sim.count(&On::watch("configmaps")), before + 1, "it goes on undisturbed");
    let active: Vec<String> = daemon
        .journal
        .reader()
        .unwrap()
        .sources()
        .unwrap()
        .iter()
        .filter(|source| source.active)
        .map(crate::journal::SourceRow::name)
        .collect();
    assert_eq!(active, ["configmaps", "pods"]);
    daemon.stop().await;
}

#[tokio::test]
async fn namespaces_are_sources_of_their_own() {
    let place = Place::new().await;
    let mut both = watch(&["configmaps"]);
    both.namespaces = vec!["shop".into(), "pay".into()];
    let daemon = place.ready(vec![both]).await;
    place.map("a", "1");
    place.sim.create("configmaps", objects::config_map("default", "elsewhere", "1")).unwrap();
    place.sim.create("configmaps", objects::config_map("pay", "b", "1")).unwrap();
    let mut log = daemon.until(&place, |log| log.len() == 2).await;
    log.sort_unstable();
    assert!(log[0].starts_with("ADDED watched a@") && log[1].starts_with("ADDED watched b@"), "{log:?}");
    assert_eq!(daemon.handle.overview().sources.len(), 2);
    daemon.stop().await;
}

#[tokio::test]
async fn everything_is_watched_once_with_old_and_with_new_discovery() {
    for legacy in [false, true] {
        let place = Place::with(|settings| settings.legacy_discovery = legacy).await;
        let daemon = place.ready(vec![watch(&["*"])]).await;
        let names: Vec<String> = daemon.handle.overview().sources.iter().map(|source| source.spec.name()).collect();
        assert!(names.contains(&"pods".to_owned()) && names.contains(&"deployments.apps".to_owned()), "{names:?}");
        assert_eq!(names.iter().filter(|name| name.starts_with("events")).count(), 1, "{names:?}");
        assert!(!names.iter().any(|name| name.contains('/')), "{names:?}");
        daemon.stop().await;
    }
}

/// Fault 11: 404 of an API group whose backend is away deletes nothing.
#[tokio::test]
async fn a_group_that_is_away_loses_nothing() {
    let place = Place::new().await;
    place.sim.define(objects::crd("widgets.example.com", "Widget", true, &["v1"])).unwrap();
    let widget = |name: &str| serde_json::json!({"metadata": {"namespace": "shop", "name": name}, "spec": {"n": 1}});
    place.sim.create("widgets.example.com", widget("a")).unwrap();
    let daemon = place.ready(vec![watch(&["widgets.example.com"])]).await;
    daemon.until_last(&place, "a@").await;
    place.sim.set(|settings| {
        settings.stale_groups.insert("example.com".to_owned());
    });
    place.sim.fault(Fault::new(On::watch("widgets.example.com"), Act::refuse(&Refusal::not_served())).times(20));
    place.sim.signal("widgets.example.com", &Signal::End);
    place.sim.wait_for_count(&On::watch("widgets.example.com"), 20).await.unwrap();
    place.sim.create("widgets.example.com", widget("b")).unwrap();
    place.sim.set(|settings| settings.stale_groups.clear());
    let log = daemon.until_last(&place, "b@").await;
    assert_eq!(log.len(), 2, "{log:?}");
    daemon.stop().await;
}

fn refusals() -> [Act; 2] {
    [Refusal::not_served(), Refusal::new(403, "Forbidden", "not you")].map(|refusal| Act::refuse(&refusal))
}

/// Fault 11: a server that has nothing at one of the two roots of discovery, or does not show it, has the other.
#[tokio::test]
async fn one_root_of_discovery_that_is_refused_is_empty_and_two_are_an_error() {
    for (refusal, legacy) in refusals().into_iter().flat_map(|refusal| [(refusal.clone(), false), (refusal, true)]) {
        let place = Place::with(|settings| settings.legacy_discovery = legacy).await;
        let api = place.api().await;
        for (root, other) in [("/api", "/apis"), ("/apis", "/api")] {
            let mut fresh = Discoverer::default();
            place.sim.fault(Fault::new(On::path(root), refusal.clone()).always());
            let found = fresh.discover(&api).await.unwrap();
            assert_eq!(fresh.is_cheap(), !legacy, "{root}");
            assert!(
                !found.served.is_empty() && found.served.iter().all(|one| one.group.is_empty() == (root == "/apis"))
            );
            assert!(found.uncertain.is_empty(), "nothing was known of what is refused");
            place.sim.fault(Fault::new(On::path(other), refusal.clone()).always());
            assert!(matches!(fresh.discover(&api).await, Err(Failure::NotFound | Failure::Forbidden(_))));
            // And what was refused is asked for again.
            place.sim.heal();
            let whole = fresh.discover(&api).await.unwrap();
            assert!(whole.served.len() > found.served.len() && whole.roots.is_empty());
            assert_eq!(fresh.is_cheap(), !legacy);
            // What is known stays, and is uncertain.
            place.sim.fault(Fault::new(On::path(root), refusal.clone()).always());
            let kept = fresh.discover(&api).await.unwrap();
            assert_eq!(kept.served.len(), whole.served.len());
            assert!(
                kept.uncertain.keys().eq(whole
                    .served
                    .iter()
                    .map(|one| &one.group)
                    .filter(|group| group.is_empty() == (root == "/api"))
                    .collect::<BTreeSet<_>>())
            );
            place.sim.heal();
        }
    }
}

/// Fault 11: what is below a root of discovery that is refused is not gone, also for a daemon that only remembers it.
#[tokio::test]
async fn a_root_of_discovery_that_is_refused_ends_no_source() {
    for (restart, refusal) in [false, true].into_iter().zip(refusals()) {
        let place = Place::new().await;
        place.sim.define(objects::crd("widgets.example.com", "Widget", true, &["v1"])).unwrap();
        let widget =
            |name: &str| serde_json::json!({"metadata": {"namespace": "shop", "name": name}, "spec": {"n": 1}});
        place.sim.create("widgets.example.com", widget("a")).unwrap();
        let watches = || vec![watch(&["widgets.example.com", "configmaps"])];
        let daemon = place.ready(watches()).await;
        daemon.until_last(&place, "a@").await;
        let refuse = || {
            place.sim.fault(Fault::new(On::path("/apis"), refusal).always());
            for on in [On::watch("widgets.example.com"), On::list("widgets.example.com")] {
                place.sim.fault(Fault::new(on, Act::refuse(&Refusal::not_served())).always());
            }
            place.sim.clear_requests();
        };
        let daemon = if restart {
            daemon.stop().await;
            refuse();
            place.start(watches()).await
        } else {
            refuse();
            place.sim.signal("widgets.example.com", &Signal::End);
            daemon
        };
        // Long enough for it to be taken for gone.
        place.sim.wait_for_count(&On::list("widgets.example.com"), 20).await.unwrap();
        place.sim.heal();
        place.sim.create("widgets.example.com", widget("b")).unwrap();
        let log = daemon.until_last(&place, "b@").await;
        assert_eq!(log.len(), 2, "{log:?}");
        daemon.stop().await;
    }
}

#[tokio::test]
async fn a_resource_that_went_while_nobody_looked_takes_its_objects_along() {
    let place = Place::new().await;
    place.sim.define(objects::crd("widgets.example.com", "Widget", true, &["v1"])).unwrap();
    let widget = serde_json::json!({"metadata": {"namespace": "shop", "name": "w"}, "spec": {"n": 1}});
    place.sim.create("widgets.example.com", widget).unwrap();
    let daemon = place.ready(vec![watch(&["widgets.example.com"])]).await;
    daemon.until_last(&place, "w@").await;
    daemon.stop().await;

    place.sim.undefine("widgets.example.com").unwrap();
    let daemon = place.start(vec![watch(&["widgets.example.com"])]).await;
    let log = daemon.until(&place, |log| log.len() == 3).await;
    assert_eq!(log[1], "GAP scope");
    assert!(log[2].starts_with("DELETED inferred w@"), "{log:?}");
    daemon.stop().await;
}

#[tokio::test]
async fn what_a_narrower_configuration_leaves_out_is_recorded_as_gone() {
    let place = Place::new().await;
    for namespace in ["shop", "pay"] {
        place.sim.create("configmaps", objects::config_map(namespace, &format!("in-{namespace}"), "x")).unwrap();
    }
    let daemon = place.ready(vec![watch(&["configmaps"])]).await;
    daemon.until(&place, |log| log.len() == 2).await;
    daemon.stop().await;

    let narrow = watch::Settings { namespaces: vec!["shop".to_owned()], ..watch(&["configmaps"]) };
    let daemon = place.ready(vec![narrow]).await;
    let log = daemon.until(&place, |log| log.iter().any(|line| line.starts_with("DELETED"))).await;
    let gone: Vec<_> = log.iter().filter(|line| line.starts_with("DELETED")).collect();
    assert!(gone.len() == 1 && gone[0].starts_with("DELETED inferred in-pay@"), "{log:?}");
    assert!(log.iter().any(|line| line == "GAP scope"), "{log:?}");
    daemon.stop().await;
}
