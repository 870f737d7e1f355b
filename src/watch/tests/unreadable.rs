//! Objects that the API server cannot read from etcd: one is a GAP of its own, costs no other a change, and its deletion is recorded.

use super::*;

/// The log, where a GAP names its object and a deletion the version since which the object could not be read.
fn told(place: &Place) -> Vec<String> {
    let mut reader = crate::journal::Reader::open(&place.state()).unwrap();
    let lines = reader.entries_after(Seq(0), 100_000, usize::MAX).unwrap();
    let all = lines.iter().zip(log_at(&place.state())).map(|(stored, line)| {
        let entry = Entry::parse(&stored.line).unwrap();
        if let Some(gap) = entry.gap_before() {
            let to = gap.to.map_or_else(String::new, |to| format!(" to {to}"));
            return format!("{line} {} from {}{to}", gap.why, gap.from.unwrap_or_default());
        }
        if entry.gap().is_some() { format!("{line} {}", entry.name.as_deref().unwrap_or("all")) } else { line }
    });
    all.collect()
}

/// Objects "a" to "f", of which these lose their key.
async fn place_without_keys(names: &[&str], daemon_first: bool) -> (Place, Option<Daemon>) {
    let mut place = Place::with(|settings| settings.bookmarks_every = Duration::from_millis(20)).await;
    place.timings.page = 3;
    for name in ["a", "b", "c", "d", "e", "f"] {
        place.map(name, "1");
    }
    let daemon = if daemon_first { Some(place.ready(maps()).await) } else { None };
    if let Some(daemon) = &daemon {
        daemon.until(&place, |log| log.len() == 6).await;
    }
    for name in names {
        place.sim.lose_key("configmaps", "shop", name);
    }
    (place, daemon)
}

impl Place {
    fn version(&self, name: &str) -> u64 {
        self.sim.history_of("configmaps").iter().filter(|row| *row.name == *name).map(|row| row.revision).max().unwrap()
    }

    /// An unsafe deletion: no watch brings it, and none resumes from before it.
    fn drop_unsafely(&self, name: &str) {
        self.drop(name);
        self.sim.expire_watch_history("configmaps", self.sim.revision());
    }
}

/// Fault 98: while an object cannot be read, and for as long as it stays, what becomes of the others is recorded, version by version.
#[tokio::test]
async fn what_cannot_be_read_costs_no_other_object_a_change() {
    let rows: [&[&str]; 5] = [&["a"], &["c"], &["f"], &["c", "d"], &["a", "c", "f"]];
    for names in rows {
        let (place, daemon) = place_without_keys(names, true).await;
        let daemon = daemon.unwrap();
        let at = place.sim.revision();
        place.sim.restart_api_server();
        place.change("b", "2");
        place.map("new", "1");
        place.change("b", "3");
        place.drop("e");
        let log = daemon.until(&place, |log| log.len() == 6 + 4 + names.len()).await;
        let mut others: Vec<String> = log[6..].iter().filter(|line| !line.starts_with("GAP")).cloned().collect();
        others.sort_by_key(|line| line.rsplit_once('@').unwrap().1.parse::<u64>().unwrap());
        let truth: Vec<String> = place.truth(at).iter().map(|line| line.replace("watched", "recovered")).collect();
        assert_eq!(others, truth, "{names:?}: {log:#?}");
        let gaps: Vec<String> = told(&place).into_iter().filter(|line| line.starts_with("GAP")).collect();
        let expected: Vec<String> = names.iter().map(|name| format!("GAP unreadable {name}")).collect();
        assert_eq!(gaps, expected, "{log:#?}");
        let state = daemon.until_state("configmaps", |state| matches!(state, SourceState::Degraded(_))).await;
        assert!(matches!(&state, SourceState::Degraded(text) if text.contains("cannot read /registry")), "{state:?}");
        // It goes on so.
        place.change("b", "4");
        daemon.until_last(&place, &format!("MODIFIED recovered b@{}", place.version("b"))).await;
        // Each is gone in the end, and everything is as before.
        let versions: Vec<u64> = names.iter().map(|name| place.version(name)).collect();
        for name in names {
            place.drop_unsafely(name);
        }
        daemon.until(&place, |log| log.len() == 6 + 5 + 2 * names.len()).await;
        let gone = told(&place).split_off(6 + 5 + names.len());
        let expected: Vec<String> = (names.iter().zip(versions))
            .map(|(name, since)| {
                let at = place.version(name);
                format!("DELETED recovered {name}@{at} unreadable from {since} to {at}")
            })
            .collect();
        assert_eq!(gone, expected, "{names:?}");
        place.change("b", "5");
        daemon.until_last(&place, "MODIFIED watched b@").await;
        daemon.stop().await;
    }
}

/// The watch goes on while the key is lost, and ends with the deletion of what cannot be read.
#[tokio::test]
async fn a_deletion_that_ends_the_watch_is_recorded_at_its_version() {
    let (place, daemon) = place_without_keys(&["c"], true).await;
    let daemon = daemon.unwrap();
    place.change("b", "2");
    daemon.until_last(&place, "MODIFIED watched b@").await;
    let since = place.version("c");
    place.sim.expire_watch_history("configmaps", u64::MAX);
    place.sim.signal("configmaps", &Signal::End);
    place.drop("c");
    place.change("b", "3");
    place.sim.expire_watch_history("configmaps", place.sim.revision());
    daemon.until(&place, |log| log.iter().any(|line| line.starts_with("DELETED")) && log.len() >= 10).await;
    let (gone, b) = (place.version("c"), place.version("b"));
    let log = told(&place);
    assert!(log.contains(&"GAP unreadable c".to_owned()), "{log:#?}");
    assert!(log.contains(&format!("DELETED recovered c@{gone} unreadable from {since} to {gone}")), "{log:#?}");
    assert!(log.iter().any(|line| line.ends_with(&format!("b@{b}"))), "{log:#?}");
    assert!(!log.iter().any(|line| line.ends_with("all")), "{log:#?}");
    daemon.stop().await;
}

/// A first list goes around what cannot be read, wherever it stands, and what can be read again is known by the next audit.
#[tokio::test]
async fn a_first_list_goes_around_what_cannot_be_read() {
    let rows: [&[&str]; 4] = [&["a"], &["c"], &["f"], &["a", "b", "c", "d", "e", "f"]];
    for names in rows {
        let (place, _) = place_without_keys(names, false).await;
        place.sim.restart_api_server();
        let daemon = place.start(maps()).await;
        daemon.until(&place, |log| log.len() == 6).await;
        let mut log = told(&place);
        log.sort();
        let mut expected: Vec<String> = ["a", "b", "c", "d", "e", "f"]
            .iter()
            .map(|name| {
                if names.contains(name) {
                    format!("GAP unreadable {name}")
                } else {
                    format!("ADDED listed {name}@{}", place.version(name))
                }
            })
            .collect();
        expected.sort();
        assert_eq!(log, expected, "{names:?}");
        // The log never knew them: they leave without a word, and cost the others nothing.
        let at = place.sim.revision();
        place.map("new", "1");
        for name in names {
            place.drop_unsafely(name);
        }
        place.change("new", "2");
        let added = format!("ADDED recovered new@{}", at + 1);
        daemon.until(&place, |log| log.contains(&added) && log.last().is_some_and(|last| last.contains("new@"))).await;
        daemon.until_last(&place, &format!("new@{}", place.version("new"))).await;
        let log = told(&place).split_off(6);
        assert!(log.iter().all(|line| line.contains(" new@")), "{names:?}: {log:#?}");
        daemon.stop().await;
    }
}

/// Without recovery, the gap of the source has the reason, and the deletion of the object too.
#[tokio::test]
async fn without_recovery_the_reason_is_in_the_gap_and_in_the_deletion() {
    let (mut place, _) = place_without_keys(&[], false).await;
    place.timings.recover = None;
    let daemon = place.ready(maps()).await;
    daemon.until(&place, |log| log.len() == 6).await;
    place.sim.lose_key("configmaps", "shop", "c");
    place.sim.restart_api_server();
    place.change("b", "2");
    daemon.until_last(&place, &format!("MODIFIED inferred b@{}", place.version("b"))).await;
    assert_eq!(told(&place)[6..8], ["GAP unreadable all", "GAP unreadable c"]);
    let since = place.version("c");
    place.drop_unsafely("c");
    let log = daemon.until(&place, |log| log.iter().any(|line| line.starts_with("DELETED"))).await;
    let deleted = told(&place).into_iter().find(|line| line.starts_with("DELETED")).unwrap();
    assert_eq!(deleted, format!("DELETED inferred c@{since} unreadable from {since}"), "{log:#?}");
    daemon.stop().await;
}
