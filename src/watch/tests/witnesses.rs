//! A watch cache that lies: what etcd has and no list or watch shows is found by name, recorded as it was, and named.

use super::*;

/// An audit every fifth of a second asks etcd for every object.
async fn examined_place(snapshots: bool) -> Place {
    let mut place = Place::with(|settings| settings.bookmarks_every = Duration::from_millis(20)).await;
    place.sim.set(|settings| settings.snapshots = snapshots);
    place.timings.audit = Some(Duration::from_millis(200));
    place.timings.audit_reads = Some(AuditReads { rate: 10_000, percent: 100 });
    place
}

impl Daemon {
    fn wrong(&self) -> Vec<String> {
        self.stats("configmaps").cache_fault().objects.into_iter().map(|(_, name)| name).collect()
    }

    async fn audited_again(&self) {
        let rows = || self.journal.reader().unwrap().sources().unwrap();
        let done = rows()[0].audits;
        self.until_holds("audits are done", || rows()[0].audits >= done + 3).await;
    }
}

/// Lines of the log without what they say of their evidence, by version.
fn changes(log: &[String]) -> Vec<String> {
    let mut lines: Vec<String> = log
        .iter()
        .filter(|line| !line.starts_with("GAP"))
        .map(|line| line.replace(" recovered ", " watched "))
        .collect();
    lines.sort_by_key(|line| line.rsplit_once('@').unwrap().1.parse::<u64>().unwrap());
    lines
}

/// Each way to lose changes between etcd and the watch cache, and what is lost.
#[tokio::test]
async fn what_the_watch_cache_has_lost_is_found_by_name_and_recorded_as_it_was() {
    type Loss = fn(&Place);
    let rows: [(&str, Loss, &[&str]); 6] = [
        (
            "an update",
            |place| {
                place.sim.lose("configmaps", 1);
                place.change("a", "2");
            },
            &["a"],
        ),
        (
            "two updates",
            |place| {
                place.sim.lose("configmaps", 2);
                place.change("a", "2");
                place.change("a", "3");
            },
            &["a"],
        ),
        (
            "a deletion",
            |place| {
                place.sim.lose("configmaps", 1);
                place.drop("a");
            },
            &["a"],
        ),
        (
            "an update and a deletion",
            |place| {
                place.sim.lose("configmaps", 2);
                place.change("a", "2");
                place.drop("a");
            },
            &["a"],
        ),
        (
            "another incarnation",
            |place| {
                place.sim.lose("configmaps", 2);
                place.drop("a");
                place.map("a", "new");
            },
            &["a"],
        ),
        (
            "of two objects",
            |place| {
                place.sim.lose("configmaps", 3);
                place.change("a", "2");
                place.drop("b");
                place.change("a", "3");
            },
            &["a", "b"],
        ),
    ];
    for snapshots in [true, false] {
        for (what, lose, wrong) in rows {
            let place = examined_place(snapshots).await;
            let begin = place.sim.revision();
            for name in ["a", "b", "c"] {
                place.map(name, "1");
            }
            let daemon = place.ready(maps()).await;
            daemon.until(&place, |log| log.len() == 3).await;
            let at = place.sim.revision();
            lose(&place);
            place.change("c", "2");
            let truth = place.truth(at);
            let log = daemon.until(&place, |log| log.len() == 3 + truth.len()).await;
            assert_eq!(changes(&log[3..]), truth, "{what}, snapshots: {snapshots}: {log:#?}");
            if snapshots {
                daemon.until_holds("the cache is named", || daemon.wrong() == wrong).await;
            }
            // What is known of it is no difference any more, and what follows is seen.
            daemon.audited_again().await;
            let known = daemon.journal.reader().unwrap().sources().unwrap()[0].audit_differences;
            daemon.audited_again().await;
            place.change("c", "3");
            daemon.until_last(&place, "MODIFIED watched c@").await;
            assert_eq!(daemon.journal.reader().unwrap().sources().unwrap()[0].audit_differences, known, "{what}");
            // A new cache is right.
            place.sim.restart_api_server();
            daemon.until_holds("the cache is right", || daemon.wrong().is_empty()).await;
            daemon.audited_again().await;
            let log = daemon.until_last(&place, "MODIFIED watched c@").await;
            assert_eq!(changes(&log[3..]), place.truth(at), "{what}, snapshots: {snapshots}: {log:#?}");
            assert!(!log.iter().any(|line| line.starts_with("GAP")), "{what}: {log:#?}");
            assert!(begin < at);
            daemon.stop().await;
        }
    }
}

/// The API server starts again before anybody has found what its cache lost: everything is recorded as it was, and nothing is at
/// another version than its own.
#[tokio::test]
async fn what_was_lost_before_a_restart_is_recovered_at_its_own_version() {
    for snapshots in [true, false] {
        let mut place = examined_place(snapshots).await;
        (place.timings.audit, place.timings.audit_reads) = (None, None);
        for name in ["a", "b", "c"] {
            place.map(name, "1");
        }
        let daemon = place.ready(maps()).await;
        daemon.until(&place, |log| log.len() == 3).await;
        let at = place.sim.revision();
        place.sim.lose("configmaps", 4);
        place.change("a", "2");
        place.drop("b");
        place.map("new", "1");
        place.change("new", "2");
        place.change("c", "2");
        daemon.until_last(&place, "MODIFIED watched c@").await;
        place.sim.restart_api_server();
        place.change("c", "3");
        place.change("a", "3");
        let truth = place.truth(at);
        let log = daemon.until(&place, |log| log.len() == 3 + truth.len()).await;
        assert_eq!(changes(&log[3..]), truth, "snapshots: {snapshots}: {log:#?}");
        daemon.stop().await;
    }
}

/// A cache that goes on lying while its watch expires: what the log has read from etcd stays.
#[tokio::test]
async fn a_list_that_lies_does_not_undo_what_etcd_has_said() {
    let place = examined_place(true).await;
    for name in ["a", "b", "c"] {
        place.map(name, "1");
    }
    let daemon = place.ready(maps()).await;
    daemon.until(&place, |log| log.len() == 3).await;
    let at = place.sim.revision();
    place.sim.lose("configmaps", 2);
    place.change("a", "2");
    place.drop("b");
    place.change("c", "2");
    daemon.until_holds("the cache is named", || daemon.wrong() == ["a", "b"]).await;
    daemon.stop().await;
    // Another daemon, which nobody has told, finds its position forgotten.
    place.change("c", "3");
    place.sim.expire_watch_history("configmaps", place.sim.revision());
    let daemon = place.ready(maps()).await;
    place.change("c", "4");
    let truth = place.truth(at);
    daemon.until(&place, |log| log.len() == 3 + truth.len()).await;
    daemon.until_holds("the cache is named", || daemon.wrong() == ["a", "b"]).await;
    daemon.audited_again().await;
    let log = log_at(&place.state());
    assert_eq!(changes(&log[3..]), truth, "{log:#?}");
    daemon.stop().await;
}

/// What differs from nothing any more, because the watch has brought a later version of the object, is a GAP of it: each audit looks
/// right before the changes of late.
#[tokio::test]
async fn what_was_lost_between_two_versions_is_a_gap_of_its_object() {
    type Loss = fn(&Place);
    // What is lost, and how many versions of it, and what the watch brings.
    let rows: [(&str, usize, Loss); 4] = [
        ("MODIFIED watched a@", 1, |place| {
            place.change("a", "2");
            place.change("a", "3");
        }),
        ("MODIFIED watched a@", 2, |place| {
            place.change("a", "2");
            place.change("a", "3");
            place.change("a", "4");
        }),
        ("ADDED watched new@", 1, |place| {
            place.map("new", "1");
            place.change("new", "2");
        }),
        ("DELETED watched a@", 1, |place| {
            place.change("a", "2");
            place.drop("a");
        }),
    ];
    for (brought, lost, happens) in rows {
        let place = examined_place(true).await;
        place.map("a", "1");
        let daemon = place.ready(maps()).await;
        daemon.until(&place, |log| log.len() == 1).await;
        daemon.audited_again().await;
        let at = place.sim.revision();
        place.sim.lose("configmaps", lost);
        happens(&place);
        let log = daemon.until(&place, |log| log.len() == 2 + lost).await;
        assert!(log[1].starts_with(brought), "{log:#?}");
        daemon.audited_again().await;
        let gaps = place.gaps();
        let each = (1..=lost as u64).map(|n| (Some((at + n - 1).to_string()), Some((at + n).to_string()), None));
        assert_eq!(gaps, each.collect::<Vec<_>>(), "{brought}, {lost}: {log:#?}");
        daemon.stop().await;
    }
}
