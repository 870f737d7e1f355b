//! A watch cache that lies: what etcd has and no list or watch shows is found by name, recorded as it was, and named.

use super::*;

/// An audit every fifth of a second asks etcd for every object.
async fn examined_place(snapshots: bool) -> Place {
    let mut place = unexamined_place(snapshots, Duration::from_millis(20)).await;
    place.timings.audit = Some(Duration::from_millis(200));
    place.timings.audit_reads = Some(AuditReads { rate: 10_000, percent: 100 });
    place
}

/// No audit runs.
async fn unexamined_place(snapshots: bool, bookmarks_every: Duration) -> Place {
    Place::with(|settings| (settings.snapshots, settings.bookmarks_every) = (snapshots, bookmarks_every)).await
}

impl Place {
    /// Three objects, and a daemon that has listed them; and the revision of then.
    async fn knows_abc(&self) -> (Daemon, u64) {
        for name in ["a", "b", "c"] {
            self.map(name, "1");
        }
        let daemon = self.ready(maps()).await;
        daemon.until(self, |log| log.len() == 3).await;
        (daemon, self.sim.revision())
    }
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
            let (daemon, at) = place.knows_abc().await;
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
            daemon.stop().await;
        }
    }
}

/// What an audit log names and the log lacks is asked for with the next audit, also a creation, which no sample can have: nothing but the
/// answer of etcd is believed.
#[tokio::test]
async fn an_object_that_others_name_is_asked_for() {
    let place = examined_place(true).await;
    let (daemon, at) = place.knows_abc().await;
    place.sim.lose("configmaps", 1);
    place.map("d", "lost");
    place.change("c", "2");
    daemon.audited_again().await;
    let before = daemon.until_last(&place, "MODIFIED watched c@").await;
    assert!(!before.iter().any(|line| line.contains(" d@")), "nobody names it: {before:#?}");
    // One that is as the log has it, and one that is nowhere.
    for name in ["a", "nowhere", "d"] {
        daemon.handle.suspect("", "configmaps", "shop", name);
    }
    daemon.handle.suspect("", "secrets", "shop", "d");
    let truth = place.truth(at);
    let log = daemon.until(&place, |log| log.len() == 3 + truth.len()).await;
    assert_eq!(changes(&log[3..]), truth, "{log:#?}");
    daemon.audited_again().await;
    assert!(daemon.stats("configmaps").suspects(9).is_empty(), "they are asked for once");
    assert_eq!(daemon.journal.reader().unwrap().sources().unwrap()[0].audit_differences, 1);
    assert!(!log.iter().any(|line| line.starts_with("GAP")), "{log:#?}");
    daemon.stop().await;
}

/// The API server starts again before anybody has found what its cache lost: everything is recorded as it was, and nothing is at
/// another version than its own. No bookmark comes: behind one that comes after the loss, the audits alone find it.
#[tokio::test]
async fn what_was_lost_before_a_restart_is_recovered_at_its_own_version() {
    for snapshots in [true, false] {
        let place = unexamined_place(snapshots, Duration::from_secs(3600)).await;
        let (daemon, at) = place.knows_abc().await;
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
    let (daemon, at) = place.knows_abc().await;
    place.sim.lose("configmaps", 2);
    place.change("a", "2");
    place.drop("b");
    place.change("c", "2");
    daemon.until_holds("the cache is named", || daemon.wrong() == ["a", "b"]).await;
    daemon.until(&place, |log| log.len() == 6).await;
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

/// What etcd has no more, or may not be asked for, is a GAP of the object, and its state is inferred; then there is peace.
#[tokio::test]
async fn what_was_lost_and_cannot_be_read_any_more_is_a_gap_of_its_object() {
    for compacts in [true, false] {
        let mut place = examined_place(true).await;
        if !compacts {
            place.timings.recover = None;
        }
        // What is lost is compacted before anybody asks.
        let period = place.timings.audit.replace(Duration::from_secs(2));
        let (daemon, at) = place.knows_abc().await;
        place.sim.lose("configmaps", 3);
        place.change("a", "2");
        place.change("a", "3");
        place.drop("b");
        place.change("c", "2");
        if compacts {
            place.sim.compact_all();
        }
        let log = daemon.until(&place, |log| log.len() == 8).await;
        let mut found: Vec<&str> = log[4..].iter().map(String::as_str).collect();
        found.sort_unstable();
        let changed = format!("MODIFIED inferred a@{}", at + 2);
        assert_eq!(found[..2], ["DELETED inferred b@8", "GAP audit"], "compacts {compacts}: {log:#?}");
        assert_eq!(found[2..], ["GAP audit", &changed], "compacts {compacts}: {log:#?}");
        let upto: Vec<u64> = place.gaps().into_iter().filter_map(|(_, to, _)| to?.parse().ok()).collect();
        assert!(upto.contains(&(at + 1)) && upto.iter().any(|to| *to >= at + 3), "{upto:?}");
        daemon.stop().await;
        place.timings.audit = period;
        let daemon = place.ready(maps()).await;
        daemon.audited_again().await;
        assert_eq!(log_at(&place.state()).len(), 8, "compacts {compacts}");
        daemon.stop().await;
    }
}

/// Random writes of which the watch cache loses some: each change is in the log, or a GAP says that it may be missing, and nothing
/// else is recorded. A whole life that was lost nobody can know.
#[tokio::test]
async fn whatever_the_watch_cache_loses_is_recorded_or_a_gap() {
    for seed in 0..16 {
        let mut random = fastrand::Rng::with_seed(seed);
        let place = examined_place(random.bool()).await;
        let (daemon, at) = place.knows_abc().await;
        let mut lost = std::collections::BTreeSet::new();
        for step in 0..14 {
            if random.u8(0..3) == 0 {
                lost.insert(place.sim.revision() + 1);
                place.sim.lose("configmaps", 1);
            }
            let name = ["a", "b", "c"][random.usize(0..3)];
            match place.sim.get("configmaps", "shop", name).is_ok() {
                true if random.u8(0..3) == 0 => place.drop(name),
                true => place.change(name, &format!("step {step}")),
                false => place.map(name, &format!("step {step}")),
            }
            if random.u8(0..4) == 0 {
                daemon.audited_again().await;
            }
        }
        place.map("last", "1");
        daemon.until_last(&place, "last@").await;
        daemon.audited_again().await;
        place.sim.restart_api_server();
        place.change("last", "2");
        daemon
            .until(&place, |log| log.iter().any(|line| line.ends_with(&format!("last@{}", place.sim.revision()))))
            .await;
        daemon.audited_again().await;
        let log = log_at(&place.state());
        let gaps: Vec<(u64, u64)> = place
            .gaps()
            .into_iter()
            .filter_map(|(from, to, _)| Some((from.map_or(0, |from| from.parse().unwrap()), to?.parse().unwrap())))
            .collect();
        let rows: Vec<_> = place.sim.history_of("configmaps").into_iter().filter(|row| row.revision > at).collect();
        for row in &rows {
            let is_told = log.iter().any(|line| line.ends_with(&format!(" {}@{}", row.name, row.revision)));
            let is_covered = gaps.iter().any(|(from, to)| *from < row.revision && row.revision <= *to);
            let mut life = rows.iter().filter(|other| other.uid == row.uid);
            let is_unknown =
                life.clone().all(|row| lost.contains(&row.revision)) && life.any(|row| row.kind == Kind::Added);
            assert!(
                is_told || is_covered || is_unknown,
                "seed {seed}: {} {}: {log:#?} {gaps:?}",
                row.name,
                row.revision
            );
        }
        for line in log.iter().skip(3).filter(|line| !line.starts_with("GAP") && !line.contains(" inferred ")) {
            let is_true = rows.iter().any(|row| line.ends_with(&format!(" {}@{}", row.name, row.revision)));
            assert!(is_true, "seed {seed}: {line} never was: {log:#?}");
        }
        for name in ["a", "b", "c"] {
            let versions = log.iter().filter_map(|line| line.split_once(&format!(" {name}@"))?.1.parse::<u64>().ok());
            assert!(versions.is_sorted(), "seed {seed}: the versions of {name} are in order: {log:#?}");
        }
        daemon.stop().await;
    }
}
