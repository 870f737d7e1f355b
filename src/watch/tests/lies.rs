//! Servers that lie: they repeat, drop, mix up, go back, and send what nobody requested.

use serde_json::{Value, json};

use super::*;

/// A line of a watch.
fn line(kind: &str, object: &Value) -> Signal {
    Signal::Line(format!("{}\n", json!({"type": kind, "object": object})).into())
}

/// The next event of the watch is lost.
fn dropped() -> Fault {
    Fault::new(On::watch("configmaps"), Act::replace(0, "\n"))
}

impl Place {
    /// A version that ConfigMaps know nothing of.
    fn foreign_version(&self) -> u64 {
        let name = format!("s{}", self.sim.revision());
        self.sim.create("secrets", objects::secret("shop", &name, &[])).unwrap().revision
    }

    fn as_it_was(&self, revision: u64) -> Value {
        let rows = self.sim.history_of("configmaps");
        rows.iter().find(|row| row.revision == revision).unwrap().value()
    }
}

/// Fault 18: what a server repeats is dropped and counted, however old it is.
#[tokio::test]
async fn what_a_server_repeats_is_dropped_and_counted() {
    let place = Place::new().await;
    let at = place.sim.revision();
    let daemon = place.ready(maps()).await;
    place.map("a", "1");
    let first = place.sim.revision();
    place.change("a", "2");
    let second = place.sim.revision();
    place.map("b", "1");
    place.drop("b");
    let gone = place.sim.revision();
    place.change("a", "3");
    daemon.until(&place, |log| log.len() == 5).await;
    for (kind, version) in [("ADDED", first), ("MODIFIED", second), ("DELETED", gone), ("ADDED", first)] {
        place.sim.signal("configmaps", &line(kind, &place.as_it_was(version)));
    }
    place.map("c", "1");
    daemon.until_last(&place, "c@").await;
    assert_eq!(daemon.log(&place), place.truth(at));
    assert_eq!(daemon.stats("configmaps").disorders.load(Ordering::Relaxed), 4);
    assert_eq!(place.lists(), 1);
    daemon.stop().await;
}

/// Faults 14 and 19: an API server that lags behind another one, or goes back in time, moves nothing back.
#[tokio::test]
async fn what_is_older_than_the_position_never_moves_it_back() {
    let mut place = Place::new().await;
    let at = place.sim.revision();
    let daemon = place.ready(maps()).await;
    place.map("a", "1");
    let old = place.as_it_was(place.sim.revision());
    place.change("a", "2");
    daemon.until(&place, |log| log.len() == 2).await;
    let checkpoint = || {
        let source = daemon.journal.reader().unwrap().sources().unwrap().remove(0);
        source.resume.unwrap().parse::<u64>().unwrap()
    };
    daemon.journal.flush().await.unwrap();
    let before = checkpoint();
    place.sim.signal("configmaps", &line("MODIFIED", &old));
    let bookmark = json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"resourceVersion": "1"}});
    place.sim.signal("configmaps", &line("BOOKMARK", &bookmark));
    place.change("a", "3");
    daemon.until(&place, |log| log.len() == 3).await;
    daemon.journal.flush().await.unwrap();
    assert!(checkpoint() > before);
    daemon.stop().await;
    // A list of such a server is not believed either: it is asked again.
    place.timings.recover = None;
    place.sim.compact_all();
    let stale = json!({"kind": "ConfigMapList", "apiVersion": "v1", "metadata": {"resourceVersion": at.to_string()}, "items": []});
    let body = stale.to_string().into();
    let stale = Answer { status: 200, content_type: "application/json", retry_after: None, body };
    place.sim.fault(Fault::new(On::list("configmaps").query("limit=500"), Act::Answer(stale)));
    let daemon = place.ready(maps()).await;
    place.map("b", "1");
    let log = daemon.until_last(&place, "b@").await;
    assert_eq!(log[..3], place.truth(at)[..3]);
    assert_eq!(log[3..].len(), 2, "{log:?}");
    assert_eq!(log[3], "GAP expired");
    daemon.stop().await;
}

/// Fault 19: events that change places. The one that comes too late is not written behind what came after it: it is
/// recorded with a gap.
#[tokio::test]
async fn events_that_change_places_are_recorded_behind_a_gap() {
    let place = Place::with_gaps().await;
    let daemon = place.ready(maps()).await;
    place.watch_again_with(Fault::new(On::watch("configmaps"), Act::swap(0))).await;
    place.map("first", "1");
    let at = place.sim.revision();
    place.map("second", "1");
    let log = daemon.until(&place, |log| log.len() == 3).await;
    assert_eq!(
        log,
        [format!("ADDED watched second@{}", at + 1), "GAP audit".to_owned(), format!("ADDED inferred first@{at}")]
    );
    place.map("after", "1");
    daemon.until_last(&place, "ADDED watched after").await;

    // Of one object: the version between was there, and no list can give it back.
    place.watch_again_with(Fault::new(On::watch("configmaps"), Act::swap(1))).await;
    place.change("first", "2");
    place.change("first", "3");
    let at = place.sim.revision();
    let log = daemon.until(&place, |log| log.len() == 6).await;
    assert_eq!(log[4..], [format!("MODIFIED watched first@{at}"), "GAP audit".to_owned()]);
    assert_eq!(daemon.stats("configmaps").desyncs.load(Ordering::Relaxed), 2);
    place.map("last", "1");
    assert_eq!(daemon.until_last(&place, "ADDED watched last").await.len(), 7);
    daemon.stop().await;
}

/// Fault 21: ADDED for an object that is known is what it is to the log: nothing, a change, or an incarnation whose
/// predecessor's end was dropped.
#[tokio::test]
async fn an_added_for_a_known_object_is_what_the_state_says() {
    let place = Place::with_gaps().await;
    let daemon = place.ready(maps()).await;
    place.map("a", "1");
    let at = place.sim.revision();
    daemon.until_last(&place, "a@").await;
    place.sim.wait_for_watches("configmaps", 1).await.unwrap();
    place.sim.signal("configmaps", &line("ADDED", &place.as_it_was(at)));
    let mut newer = place.as_it_was(at);
    let version = place.foreign_version();
    newer["metadata"]["resourceVersion"] = version.to_string().into();
    newer["data"]["value"] = "2".into();
    place.sim.signal("configmaps", &line("ADDED", &newer));
    let log = daemon.until(&place, |log| log.len() == 2).await;
    assert_eq!(log, [format!("ADDED watched a@{at}"), format!("MODIFIED watched a@{version}")]);

    place.map("b", "1");
    let old = place.sim.revision();
    daemon.until_last(&place, "b@").await;
    place.change("a", "3");
    daemon.until_last(&place, "a@").await;
    place.watch_again_with(Fault::new(On::watch("configmaps"), Act::replace(1, "\n"))).await;
    place.drop("b");
    place.map("b", "again");
    let new = place.sim.revision();
    let log = daemon.until(&place, |log| log.len() == 7).await;
    assert_eq!(
        log[4..],
        ["GAP audit".to_owned(), format!("DELETED inferred b@{old}"), format!("ADDED inferred b@{new}")]
    );
    daemon.stop().await;
}

/// Fault 22: DELETED for an object that is not known: its life was dropped, and that is recorded. What is not known of
/// it is not claimed.
#[tokio::test]
async fn a_deleted_for_an_unknown_object_is_a_gap() {
    let place = Place::with_gaps().await;
    let daemon = place.ready(maps()).await;
    place.watch_again_with(dropped()).await;
    place.map("never seen", "1");
    place.drop("never seen");
    daemon.until(&place, |log| log.len() == 1).await;
    place.map("after", "1");
    let log = daemon.until_last(&place, "after@").await;
    assert_eq!(log[0], "GAP audit");
    assert_eq!(log.len(), 2, "{log:?}");
    daemon.stop().await;
}

/// Fault 34: an object of another kind than was asked for is refused, and what it stood for is asked for in another way.
#[tokio::test]
async fn an_object_of_another_kind_is_refused() {
    let place = Place::new().await;
    let daemon = place.ready(maps()).await;
    place.map("a", "1");
    daemon.until_last(&place, "a@").await;
    for foreign in [("Secret", "v1"), ("ConfigMap", "example.com/v1")] {
        let object = json!({"kind": foreign.0, "apiVersion": foreign.1,
            "metadata": {"name": "foreign", "namespace": "shop", "uid": "f", "resourceVersion": "999999"}});
        let foreign = format!("{}\n", json!({"type": "ADDED", "object": object}));
        let refused = || daemon.stats("configmaps").failures().find(|(name, _)| *name == "undecodable").unwrap().1;
        let (before, known) = (refused(), daemon.log(&place).len());
        // The newest event comes again first.
        place.watch_again_with(Fault::new(On::watch("configmaps"), Act::replace(1, foreign)).times(3)).await;
        place.map(&format!("b{known}"), "1");
        let log = daemon.until(&place, |log| log.len() == known + 1).await;
        assert!(log[known].starts_with("ADDED recovered b"), "{log:?}");
        assert_eq!(refused() - before, 3);
        place.map(&format!("c{known}"), "1");
        daemon.until_last(&place, &format!(" c{known}@")).await;
    }
    daemon.stop().await;
}

/// Fault 36: a panic over what a server sent ends neither the daemon nor the source, and is logged.
#[tokio::test]
async fn a_panic_over_one_object_is_an_undecodable_one() {
    let place = Place::new().await;
    let both = || vec![watch(&["configmaps", "secrets"])];
    let daemon = place.ready(both()).await;
    place.map("poison", "what makes decklog panic");
    let bug = |state: &SourceState| matches!(state, SourceState::Degraded(text) if text.contains("this is a bug"));
    daemon.until_state("configmaps", bug).await;
    place.sim.create("secrets", objects::secret("shop", "unharmed", &[])).unwrap();
    daemon.until(&place, |log| log.iter().any(|line| line.contains("unharmed@"))).await;
    place.drop("poison");
    place.map("after", "1");
    let log = daemon.until(&place, |log| log.iter().any(|line| line.contains("after@"))).await;
    let maps: Vec<&String> = log.iter().filter(|line| !line.contains("unharmed@")).collect();
    assert_eq!(maps[0], "GAP undecodable");
    assert!(maps.len() == 2 && maps[1].contains(" after@"), "{maps:?}");
    daemon.stop().await;
}

/// Fault 26: a few objects are really gone now and then, and a broken server's list has none at all.
#[tokio::test]
async fn a_few_objects_that_went_hold_nothing_up() {
    for (known, lost, lists) in [(10, 9, 2), (11, 10, 3), (24, 12, 2), (1, 1, 3)] {
        let place = Place::with_gaps().await;
        for n in 0..known {
            place.map(&format!("m{n}"), "1");
        }
        let daemon = place.ready(maps()).await;
        daemon.until(&place, |log| log.len() == known).await;
        daemon.stop().await;
        for n in 0..lost {
            place.drop(&format!("m{n}"));
        }
        place.sim.compact_all();
        let daemon = place.ready(maps()).await;
        let log = daemon.until(&place, |log| log.len() == known + 1 + lost).await;
        assert_eq!(log[known], "GAP expired");
        assert_eq!(place.lists_begun(), lists, "{lost} of {known}");
        daemon.stop().await;
    }
}

/// Fault 26: an empty list of a broken server deletes nothing; one that a second list confirms is recorded.
#[tokio::test]
async fn a_list_that_lacks_most_objects_is_believed_the_second_time() {
    let place = Place::with_gaps().await;
    for n in 0..5 {
        place.map(&format!("m{n}"), "1");
    }
    let daemon = place.ready(maps()).await;
    daemon.until(&place, |log| log.len() == 5).await;
    daemon.stop().await;

    place.drop("m0");
    place.sim.compact_all();
    let version = place.sim.revision().to_string();
    let empty =
        json!({"kind": "ConfigMapList", "apiVersion": "v1", "metadata": {"resourceVersion": version}, "items": []});
    let body = empty.to_string().into();
    let broken = Answer { status: 200, content_type: "application/json", retry_after: None, body };
    place.sim.fault(Fault::new(On::list("configmaps").query("limit=500"), Act::Answer(broken)));
    let daemon = place.ready(maps()).await;
    place.map("after", "1");
    let log = daemon.until_last(&place, "after@").await;
    assert_eq!(log[5], "GAP expired");
    assert!(log.len() == 8 && log[6].starts_with("DELETED inferred m0@"), "{log:?}");
    assert_eq!(place.lists_begun(), 3);
    daemon.stop().await;

    // Where the objects are really gone, the second list says so too.
    place.sim.delete_all("configmaps").unwrap();
    place.sim.compact_all();
    let daemon = place.ready(maps()).await;
    let log = daemon.until(&place, |log| log.len() == 14).await;
    assert_eq!(log.iter().filter(|line| line.starts_with("DELETED inferred")).count(), 6);
    assert_eq!(place.lists_begun(), 5);
    daemon.stop().await;
}

/// Fault 27: lists are plain ones, so no bookmark ends them; before their end nothing is recorded and nobody is ready.
#[tokio::test]
async fn nothing_is_recorded_and_nobody_ready_before_the_end_of_the_first_list() {
    let place = Place::new().await;
    for n in 0..20 {
        place.map(&format!("m{n:02}"), "1");
    }
    let list = On::list("configmaps").query("limit=500");
    place.sim.fault(Fault::new(list.clone(), Act::stall_after_bytes(2000)).after(1));
    place.sim.fault(Fault::new(list.clone(), Act::end_after_bytes(2000)));
    let daemon = place.start(maps()).await;
    // The first one has ended without its end, and the second hangs.
    place.sim.wait_for_count(&list, 2).await.unwrap();
    assert!(!*daemon.handle.ready().borrow());
    assert_eq!(daemon.log(&place), Vec::<String>::new());
    let log = daemon.until(&place, |log| log.len() == 20).await;
    assert!(log.iter().all(|line| line.starts_with("ADDED listed")), "{log:?}");
    assert_eq!(place.lists_begun(), 3);
    daemon.stop().await;
}

/// Fault 15: a rollback that was found is declared also where the daemon ends before the list that does.
#[tokio::test]
async fn a_rollback_outlives_the_daemon_that_found_it() {
    let place = Place::new().await;
    place.map("old", "1");
    let then = place.sim.revision();
    let daemon = place.ready(maps()).await;
    place.map("lost", "1");
    daemon.until_last(&place, "lost@").await;
    daemon.stop().await;
    place.sim.restore(then);
    let list = On::list("configmaps").query("limit=500");
    place.sim.clear_requests();
    place.sim.fault(Fault::new(list.clone(), Act::refuse(&Refusal::not_ready(0))).always());
    let daemon = place.start(maps()).await;
    place.sim.wait_for_count(&list, 1).await.unwrap();
    daemon.stop().await;
    place.sim.heal();
    // By now the server has passed what the journal has, and nothing of it looks restored.
    for n in 0..5 {
        place.map(&format!("m{n}"), "1");
    }
    let daemon = place.ready(maps()).await;
    let log = daemon.until(&place, |log| log.iter().any(|line| line.contains(" m4@"))).await;
    assert_eq!(log[2], "GAP rollback");
    assert!(log.iter().any(|line| line.starts_with("DELETED inferred lost@")), "{log:#?}");
    assert_eq!(log.iter().filter(|line| line.starts_with("GAP")).count(), 1);
    daemon.stop().await;
}
