//! Positions that watches no longer have and etcd still has.

use super::*;
use crate::core::units::Span;

impl Place {
    /// What happened to ConfigMaps after one revision, as the log records it: what was recovered up to the other one.
    fn recovered(&self, after: u64, upto: u64) -> Vec<String> {
        let truth = self.truth(after);
        let at = |line: &String| line.rsplit('@').next().unwrap().parse::<u64>().unwrap();
        truth
            .iter()
            .map(|line| if at(line) <= upto { line.replace("watched", "recovered") } else { line.clone() })
            .collect()
    }

    /// Three objects are recorded, and the daemon is stopped; up to this revision everything is known.
    async fn knows_three(&self) -> u64 {
        for name in ["a", "b", "c"] {
            self.map(name, "1");
        }
        let daemon = self.ready(maps()).await;
        daemon.until(self, |log| log.len() == 3).await;
        daemon.stop().await;
        self.sim.revision()
    }

    /// A daemon is started, and stopped when it watches.
    async fn catches_up(&self) {
        let daemon = self.ready(maps()).await;
        self.sim.wait_for_watches("configmaps", 1).await.unwrap();
        daemon.stop().await;
    }

    /// The daemon is stopped meanwhile, and no watch can begin at what it knows.
    async fn expire(&self) {
        self.sim.expire_watch_history("configmaps", self.sim.revision());
    }

    /// The lines of the log as they are, without what differs from one journal to another.
    fn lines(&self) -> Vec<String> {
        let mut reader = crate::journal::Reader::open(&self.state()).unwrap();
        let entries = reader.entries_after(Seq(0), 100_000, usize::MAX).unwrap();
        let line = |line: &[u8]| {
            let mut value: serde_json::Value = serde_json::from_slice(line).unwrap();
            for key in ["epoch", "time", "evidence"] {
                value.as_object_mut().unwrap().remove(key);
            }
            value.to_string()
        };
        entries.iter().map(|stored| line(&stored.line)).collect()
    }

    /// Each GAP: from, to, and how much was recovered before it.
    pub(super) fn gaps(&self) -> Vec<(Option<String>, Option<String>, Option<u64>)> {
        let mut reader = crate::journal::Reader::open(&self.state()).unwrap();
        let entries = reader.entries_after(Seq(0), 100_000, usize::MAX).unwrap();
        let gaps = entries.iter().filter_map(|stored| Entry::parse(&stored.line).unwrap().gap());
        gaps.map(|gap| (gap.from, gap.to, gap.recovered)).collect()
    }

    fn live_again(&self) {
        self.change("a", "5");
        self.map("y", "1");
        self.drop("y");
        self.drop("x");
        self.map("x", "again");
    }

    /// Objects that change, go, come again, and come and go, with others in between.
    fn live(&self) {
        self.change("a", "2");
        self.change("a", "3");
        self.drop("b");
        self.map("new", "1");
        self.sim.create("secrets", objects::secret("shop", "other", &[])).unwrap();
        self.map("short", "1");
        self.change("short", "2");
        self.drop("short");
        self.drop("c");
        self.map("c", "again");
        self.sim.delete("secrets", "shop", "other").unwrap();
        self.map("b", "again");
        self.drop("b");
        self.change("new", "2");
        self.sim.create("secrets", objects::secret("shop", "more", &[])).unwrap();
    }
}

/// Fault 5: 410 at the start of a watch.
#[tokio::test]
async fn what_a_watch_missed_is_recovered() {
    let place = Place::new().await;
    // Two daemons over one cluster: one watches all the time, and the other one has to recover.
    let other = Place { sim: place.sim.clone(), dir: tempfile::tempdir().unwrap(), timings: quick() };
    place.sim.write_kubeconfig(&other.dir.path().join("kubeconfig")).unwrap();
    for name in ["a", "b", "c"] {
        place.map(name, "1");
    }
    let daemon = place.ready(maps()).await;
    let watching = other.ready(maps()).await;
    let first = daemon.until(&place, |log| log.len() == 3).await;
    watching.until(&other, |log| log.len() == 3).await;
    daemon.stop().await;
    let from = place.sim.revision();
    place.live();
    watching.until(&other, |log| log.len() == 3 + place.truth(from).len()).await;
    watching.stop().await;
    place.expire().await;
    let upto = place.sim.revision();
    let daemon = place.ready(maps()).await;
    place.sim.wait_for_watches("configmaps", 1).await.unwrap();
    place.map("after", "1");
    let log = daemon.until_last(&place, "after@").await;
    daemon.stop().await;
    assert_eq!(log[3..], place.recovered(from, upto), "{first:?}");
    // But for what says when and how it is known, they are the same to the byte.
    let lines = place.lines();
    assert_eq!(lines[..lines.len() - 1], other.lines());
}

/// Restarts of decklog and of the API server, one after the other, with what happens in between.
#[tokio::test]
async fn whatever_expires_again_and_again_the_log_has_no_gap() {
    let place = Place::new().await;
    let begun = place.knows_three().await;
    for round in 0..5 {
        for n in 0..8 {
            place.change("a", &format!("{round}.{n}"));
            place.map(&format!("r{round}n{n}"), "1");
            place.drop(&format!("r{round}n{}", n / 2 * 2));
            place.map(&format!("r{round}n{}", n / 2 * 2), "again");
        }
        place.expire().await;
        place.catches_up().await;
    }
    let log = log_at(&place.state());
    assert_eq!(log[3..], place.recovered(begun, u64::MAX));
}

/// Many objects at once, as etcd deletes them when a lease runs out, and others that came and went with them.
#[tokio::test]
async fn many_deletions_of_one_version_are_recovered() {
    let place = Place::new().await;
    for n in 0..10 {
        place.map(&format!("e{n}"), "1");
    }
    let daemon = place.ready(maps()).await;
    daemon.until(&place, |log| log.len() == 10).await;
    daemon.stop().await;
    let from = place.sim.revision();
    place.map("short", "1");
    let names: Vec<String> = (0..7).map(|n| format!("e{n}")).collect();
    let mut pairs: Vec<(&str, &str)> = names.iter().map(|name| ("shop", name.as_str())).collect();
    pairs.push(("shop", "short"));
    place.sim.expire_together("configmaps", &pairs).unwrap();
    place.change("e8", "2");
    place.expire().await;
    let daemon = place.ready(maps()).await;
    let mut log = daemon.until(&place, |log| log.len() == 20).await;
    daemon.stop().await;
    let mut truth = place.recovered(from, u64::MAX);
    assert_eq!(log.len(), 10 + truth.len());
    log[10..].sort_unstable();
    truth.sort_unstable();
    assert_eq!(log[10..], truth);
}

/// What is compacted is a gap, and nothing else is.
#[tokio::test]
async fn what_is_compacted_is_a_gap_and_the_rest_is_recovered() {
    let place = Place::new().await;
    let from = place.knows_three().await;
    place.live();
    let compacted = place.sim.revision();
    place.sim.compact(compacted);
    place.map("x", "1");
    place.live_again();
    place.expire().await;
    place.catches_up().await;
    let log = log_at(&place.state());
    let gap = log.iter().position(|line| line.starts_with("GAP")).unwrap();
    assert_eq!(gap, 3, "{log:#?}");
    let inferred = log[4..].iter().take_while(|line| line.contains(" inferred ")).count();
    assert_eq!(log[4 + inferred..], place.recovered(compacted, u64::MAX), "{log:#?}");
    let gaps = place.gaps();
    assert_eq!(gaps, [(Some(from.to_string()), Some(compacted.to_string()), None)]);
}

/// Since Kubernetes 1.34 lists come from snapshots of the watch cache, also at revisions that etcd has compacted, and versions of an
/// object do not: what cannot be had is one GAP, and not one for each revision that a list still shows.
#[tokio::test]
async fn what_is_compacted_is_one_gap_where_lists_come_from_the_cache() {
    let place = Place::new().await;
    place.sim.set(|settings| settings.snapshots = true);
    let from = place.knows_three().await;
    for n in 0..20 {
        place.change("a", &format!("before {n}"));
        place.map(&format!("short {n}"), "1");
        place.drop(&format!("short {n}"));
    }
    let compacted = place.sim.revision();
    place.sim.compact(compacted);
    place.live();
    place.expire().await;
    place.catches_up().await;
    assert_eq!(place.gaps(), [(Some(from.to_string()), Some(compacted.to_string()), None)]);
}

/// Whatever happened while the past was read is later than when its end was the newest version, and not than when the reading ended.
#[tokio::test]
async fn what_is_recovered_is_good_up_to_when_its_end_was_asked_for() {
    let place = Place::new().await;
    place.knows_three().await;
    place.live();
    place.expire().await;
    let past = On::list("configmaps").query("resourceVersionMatch=Exact");
    place.sim.fault(Fault::new(past.clone(), Act::Delay(Duration::from_millis(300))));
    let daemon = place.start(maps()).await;
    place.sim.wait_for_count(&past, 1).await.unwrap();
    let asked = Timestamp::now().as_microsecond();
    place.sim.wait_for_watches("configmaps", 1).await.unwrap();
    daemon.stop().await;
    let database = rusqlite::Connection::open(place.state().join("journal.db")).unwrap();
    let good: i64 = database.query_row("SELECT max(verified_at) FROM source", [], |row| row.get(0)).unwrap();
    assert!(good <= asked, "{} µs later", good - asked);
}

/// The API server compacts while the past is read: what could be had is recorded, and the gap says how much that was.
#[tokio::test]
async fn what_is_compacted_while_it_is_recovered_is_the_gap() {
    let place = Place::new().await;
    place.map("a", "1");
    let daemon = place.ready(maps()).await;
    daemon.until(&place, |log| log.len() == 1).await;
    daemon.stop().await;
    for n in 0..1500 {
        place.change("a", &format!("a{n}"));
    }
    let compacted = place.sim.revision() - 100;
    place.expire().await;
    let daemon = place.start(maps()).await;
    // The first window is recorded, and the second one has begun.
    let at = On::list("configmaps").query(&format!("resourceVersion={}&", place.sim.revision()));
    place.sim.wait_for_count(&at, 1).await.unwrap();
    place.sim.compact(compacted);
    place.sim.wait_for_watches("configmaps", 1).await.unwrap();
    daemon.stop().await;
    let log = log_at(&place.state());
    let gap = log.iter().position(|line| line.starts_with("GAP")).unwrap();
    let [(from, to, recovered)] = place.gaps().try_into().unwrap();
    assert_eq!((from.unwrap(), to.unwrap()), ((7 + 1000).to_string(), compacted.to_string()));
    assert_eq!((gap, recovered), (1001, Some(1000)), "what was there before is recorded, and counted");
    assert_eq!(log.len(), 1 + 1000 + 1 + 1 + 100);
    assert!(log[gap + 1].starts_with("MODIFIED inferred a@"), "{:?}", log[gap + 1]);
}

/// Whatever is wrong with exact lists is a gap, and what is not is none.
#[tokio::test]
async fn what_cannot_be_recovered_is_a_gap_as_ever() {
    let exact = || On::list("configmaps").query("resourceVersionMatch=Exact");
    let refused = Refusal::bad_request("resourceVersionMatch: unknown");
    let stale = br#"{"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":"3"},"items":[]}"#;
    let stale =
        Answer { status: 200, content_type: "application/json", retry_after: None, body: stale.as_slice().into() };
    for (act, times, gap) in [
        (Act::refuse(&refused), usize::MAX, true),
        (Act::Answer(stale), usize::MAX, true),
        (Act::html(500), usize::MAX, true),
        (Act::html(500), 2, false),
        (Act::Reset, 2, false),
        (Act::flow_control(0), 3, false),
        (Act::cut_after_bytes(40), 2, false),
        (Act::empty(), 2, false),
    ] {
        let place = Place::new().await;
        let from = place.knows_three().await;
        place.live();
        place.expire().await;
        let name = format!("{act:?}");
        place.sim.fault(Fault::new(exact(), act).times(times));
        place.catches_up().await;
        let log = log_at(&place.state());
        if gap {
            assert_eq!(log[3], "GAP expired", "{name}: {log:#?}");
            let (gap_from, to, recovered) = place.gaps().remove(0);
            assert_eq!((gap_from, recovered), (Some(from.to_string()), None), "{name}");
            assert_eq!(to, Some(place.sim.revision().to_string()), "{name}");
        } else {
            assert_eq!(log[3..], place.recovered(from, u64::MAX), "{name}");
        }
    }
}

/// A budget that is too small leaves a gap, and one that is enough does not.
#[tokio::test]
async fn no_more_is_asked_than_the_budget_allows() {
    let mut most = u32::MAX;
    for requests in [u32::MAX, 0, 1] {
        let mut place = Place::new().await;
        let from = place.knows_three().await;
        place.live();
        place.expire().await;
        // Exactly enough, and one less.
        let requests = if requests == u32::MAX { requests } else { most - requests };
        place.timings.recover = Some(RecoverBounds { requests, ..RecoverBounds::default() });
        place.sim.clear_requests();
        place.catches_up().await;
        let log = log_at(&place.state());
        if requests >= most || most == u32::MAX {
            assert_eq!(log[3..], place.recovered(from, u64::MAX));
        } else {
            assert_eq!(log[3], "GAP expired");
        }
        // Every list without a version, or of an exact one; the last ones are those of the gap, where there is one.
        let lists = place.sim.requests().into_iter().filter(|seen| seen.is_list("configmaps"));
        let asked =
            lists.filter(|seen| seen.accept.contains("PartialObjectMetadata") || seen.query.contains("Exact")).count();
        assert!(asked <= requests as usize, "{asked} of {requests}");
        if most == u32::MAX {
            most = u32::try_from(asked).unwrap();
        }
    }
}

/// What a watch leaves out, and an audit finds, is recovered as well: what was recorded meanwhile is not recorded
/// again.
#[tokio::test]
async fn what_an_audit_finds_is_recovered() {
    let nothing =
        "{\"type\":\"BOOKMARK\",\"object\":{\"kind\":\"ConfigMap\",\"metadata\":{\"resourceVersion\":\"1\"}}}\n";
    for dropped in ["new", "a", "b", "short"] {
        let mut place = Place::new().await;
        place.timings.audit = Some(Duration::from_millis(200));
        for name in ["a", "b", "c"] {
            place.map(name, "1");
        }
        let daemon = place.ready(maps()).await;
        daemon.until(&place, |log| log.len() == 3).await;
        let from = place.sim.revision();
        place.watch_again_with(Fault::new(On::watch("configmaps"), Act::replace(0, nothing))).await;
        match dropped {
            "a" => place.change("a", "2"),
            "b" => place.drop("b"),
            _ => place.map(dropped, "1"),
        }
        if dropped == "short" {
            // Its deletion comes, and contradicts the log before an audit does.
            place.drop("short");
        }
        place.map("seen", "1");
        place.change("c", "2");
        place.drop("seen");
        place.sim.signal("configmaps", &Signal::Bookmark);
        let like = |log: &[String]| log.iter().any(|line| line.contains("recovered") && line.contains(dropped));
        daemon.until(&place, like).await;
        place.sim.wait_for_watches("configmaps", 1).await.unwrap();
        place.map("last", "1");
        let mut log = daemon.until(&place, |log| log.iter().any(|line| line.contains(" last@"))).await;
        daemon.stop().await;
        log.drain(..3);
        let plain = |lines: &[String]| {
            let mut lines: Vec<String> = lines.iter().map(|line| line.replace("recovered", "watched")).collect();
            lines.sort_unstable();
            lines
        };
        assert_eq!(plain(&log), plain(&place.truth(from)), "{dropped}: {log:#?}");
    }
}

/// A source of some objects alone: what leaves it while the watch is away is recorded as the watch would have reported
/// it.
#[tokio::test]
async fn of_a_selection_what_enters_and_leaves_is_recovered() {
    let place = Place::new().await;
    let other = Place { sim: place.sim.clone(), dir: tempfile::tempdir().unwrap(), timings: quick() };
    place.sim.write_kubeconfig(&other.dir.path().join("kubeconfig")).unwrap();
    let some = || vec![watch::Settings { label_selector: "tier=web".to_owned(), ..watch(&["configmaps"]) }];
    let tier = |name: &str, tier: &str| {
        place.sim.update("configmaps", "shop", name, |map| map["metadata"]["labels"]["tier"] = tier.into()).unwrap();
    };
    for name in ["a", "b", "c", "d"] {
        place.map(name, "1");
        tier(name, "web");
    }
    let daemon = place.ready(some()).await;
    let watching = other.ready(some()).await;
    daemon.until(&place, |log| log.len() == 4).await;
    watching.until(&other, |log| log.len() == 4).await;
    daemon.stop().await;
    tier("a", "db");
    place.change("a", "2");
    tier("b", "db");
    place.change("b", "2");
    tier("b", "web");
    place.map("new", "1");
    tier("new", "web");
    place.map("short", "1");
    tier("short", "web");
    place.change("short", "2");
    tier("short", "db");
    place.map("never", "1");
    place.drop("never");
    tier("c", "db");
    place.drop("c");
    place.drop("d");
    place.change("new", "2");
    watching.until_last(&other, &format!("new@{}", place.sim.revision())).await;
    watching.stop().await;
    place.expire().await;
    let daemon = place.ready(some()).await;
    place.sim.wait_for_watches("configmaps", 1).await.unwrap();
    daemon.stop().await;
    let log: Vec<String> = log_at(&place.state()).iter().map(|line| line.replace("recovered", "watched")).collect();
    assert_eq!(log, log_at(&other.state()));
    assert_eq!(place.lines(), other.lines());
}

/// No more is asked in a second than is allowed, and nothing at all for as long as the API server asks to wait.
#[tokio::test]
async fn questions_about_the_past_keep_to_their_rate_and_to_retry_after() {
    let mut place = Place::new().await;
    place.timings.recover = Some(RecoverBounds { rate: 40, ..RecoverBounds::default() });
    place.map("a", "1");
    let both = || vec![watch(&["configmaps", "secrets"])];
    let daemon = place.ready(both()).await;
    daemon.until(&place, |log| log.len() == 1).await;
    daemon.stop().await;
    let from = place.sim.revision();
    for n in 0..60 {
        place.change("a", &format!("a{n}"));
        place.sim.create("secrets", objects::secret("shop", &format!("s{n}"), &[])).unwrap();
    }
    place.expire().await;
    place.sim.expire_watch_history("secrets", place.sim.revision());
    place.sim.clear_requests();
    let exact = || On::list("configmaps").query("Exact");
    place.sim.fault(Fault::new(exact(), Act::flow_control(1)).after(20));
    let daemon = place.ready(both()).await;
    place.sim.wait_for_watches("*", 2).await.unwrap();
    daemon.stop().await;
    let log = log_at(&place.state());
    let of_maps: Vec<String> = log.iter().filter(|line| line.contains(" a@")).cloned().collect();
    assert_eq!(of_maps[1..], place.recovered(from, u64::MAX));
    assert_eq!(log.len(), 1 + 2 * 60, "{log:#?}");
    let asked: Vec<_> = place.sim.requests().into_iter().filter(|seen| seen.query.contains("Exact")).collect();
    assert!(asked.len() > 120, "{}", asked.len());
    let busy = asked.iter().position(|seen| seen.status == Some(429)).unwrap();
    // What was on its way then still came.
    let rest = asked[busy..].windows(2).map(|pair| pair[1].at - pair[0].at).max().unwrap();
    assert!(rest >= Duration::from_millis(900), "{rest:?}");
    for (at, first) in asked.iter().enumerate() {
        let within = asked[at..].partition_point(|seen| seen.at - first.at <= Duration::from_millis(900));
        assert!(within <= 2 * 40 + 4, "{within} in a second");
    }
}

/// What a restore of etcd has undone, and the journal still knows, says nothing about what happened instead.
#[tokio::test]
async fn what_a_restore_has_undone_is_no_part_of_the_past() {
    let place = Place::new().await;
    for name in ["a", "b", "c"] {
        place.map(name, "1");
    }
    let daemon = place.ready(maps()).await;
    daemon.until(&place, |log| log.len() == 3).await;
    let then = place.sim.revision();
    for n in 0..5 {
        place.change("a", &format!("undone {n}"));
    }
    place.map("undone", "1");
    place.drop("undone");
    daemon.until(&place, |log| log.len() == 10).await;
    daemon.stop().await;
    place.sim.restore(then);
    let daemon = place.ready(maps()).await;
    place.sim.wait_for_watches("configmaps", 1).await.unwrap();
    place.map("new", "1");
    let before = daemon.until_last(&place, "new@").await.len();
    daemon.stop().await;
    let from = place.sim.revision();
    // The deletion that never was lies between this and the end.
    place.map("undone", "again");
    for n in 0..12 {
        place.change("b", &format!("b{n}"));
    }
    place.expire().await;
    place.catches_up().await;
    assert_eq!(log_at(&place.state())[before..], place.recovered(from, u64::MAX));
}

/// However long the API server asks to wait with questions about the past, the present is watched in time, after a GAP.
#[tokio::test]
async fn a_long_retry_after_holds_no_watch() {
    let exact = |resource: &str| On::list(resource).query("resourceVersionMatch=Exact");
    let busy = |seconds| Act::refuse(&Refusal::new(503, "ServiceUnavailable", "starting").retry_after(seconds));
    let within = |seconds, rate| RecoverBounds { within: Span::from_secs(seconds), rate, ..RecoverBounds::default() };
    for (what, acts, bounds) in [
        ("429", vec![(0, usize::MAX, Act::flow_control(3600))], within(2, 200)),
        ("503", vec![(0, usize::MAX, busy(3600))], within(2, 200)),
        ("as long as decklog takes by default", vec![(0, usize::MAX, Act::flow_control(3600))], within(300, 200)),
        (
            "a pause that grows",
            vec![(0, 3, Act::flow_control(0)), (0, usize::MAX, Act::flow_control(3600))],
            within(30, 200),
        ),
        ("a pause that is asked for later", vec![(20, usize::MAX, Act::flow_control(3600))], within(30, 200)),
        ("one short pause after the other", vec![(0, usize::MAX, Act::flow_control(1))], within(3, 200)),
        ("a long queue", vec![(10, usize::MAX, busy(3600))], within(3, 1)),
        ("no answer", vec![(5, usize::MAX, Act::Hang)], within(2, 200)),
    ] {
        let mut place = Place::new().await;
        place.timings.recover = Some(bounds);
        let both = || vec![watch(&["configmaps", "secrets"])];
        place.map("a", "1");
        let daemon = place.ready(both()).await;
        daemon.until(&place, |log| log.len() == 1).await;
        daemon.stop().await;
        for n in 0..40 {
            place.change("a", &format!("a{n}"));
            place.sim.create("secrets", objects::secret("shop", &format!("s{n}"), &[])).unwrap();
        }
        place.expire().await;
        place.sim.expire_watch_history("secrets", place.sim.revision());
        for (after, times, act) in acts {
            place.sim.fault(Fault::new(exact("configmaps"), act).after(after).times(times));
        }
        let daemon = place.start(both()).await;
        daemon.until(&place, |log| log.iter().any(|line| line == "GAP expired")).await;
        // Of the other source, which is refused nothing, as well.
        for resource in ["configmaps", "secrets"] {
            let watched = place.sim.wait_for_watches(resource, 1).await;
            assert!(watched.is_ok(), "{what}: {resource}: {:#?}", log_at(&place.state()));
        }
        place.map("now", "1");
        let log = daemon.until_last(&place, "now@").await;
        daemon.stop().await;
        assert!(log.last().unwrap().starts_with("ADDED watched now@"), "{what}: {log:#?}");
    }
}
