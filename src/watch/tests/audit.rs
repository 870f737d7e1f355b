//! The self-audit: what a server drops is found, and a busy one is believed.

use super::*;

const PERIOD: Duration = Duration::from_millis(200);

async fn audited_place() -> Place {
    let mut place = Place::with(|settings| settings.bookmarks_every = Duration::from_millis(20)).await;
    place.timings.recover = None;
    place.timings.audit = Some(PERIOD);
    place.timings.page = 3;
    place
}

/// The next event of the watch that is opened now is lost.
async fn drop_next(place: &Place) {
    place.watch_again_with(Fault::new(On::watch("configmaps"), Act::replace(0, "\n"))).await;
}

impl Daemon {
    /// Audits done, and objects that they found to differ.
    fn audits(&self) -> (u64, u64) {
        let sources = self.journal.reader().unwrap().sources().unwrap();
        (sources.iter().map(|row| row.audits).sum(), sources.iter().map(|row| row.audit_differences).sum())
    }

    async fn until_undecided(&self, times: u64) {
        let undecided = || self.stats("configmaps").audits_undecided.load(Ordering::Relaxed);
        self.until_holds("audits come to nothing", || undecided() >= times).await;
    }

    async fn until_audited(&self, times: u64) {
        self.until_holds("audits are done", || self.audits().0 >= times).await;
    }
}

/// Fault 20: a server that leaves an event out. An audit finds it within a period, whatever it was.
#[tokio::test]
async fn what_a_server_drops_is_found_and_recorded_with_its_gap() {
    let place = audited_place().await;
    for name in ["changes", "goes", "stays"] {
        place.map(name, "1");
    }
    let daemon = place.ready(maps()).await;
    daemon.until(&place, |log| log.len() == 3).await;
    let known = place.sim.revision();
    drop_next(&place).await;
    place.map("new", "1");
    let new = place.sim.revision();
    let log = daemon.until(&place, |log| log.len() == 5).await;
    assert_eq!(log[3..], ["GAP audit".to_owned(), format!("ADDED inferred new@{new}")]);
    drop_next(&place).await;
    place.change("changes", "2");
    let changed = place.sim.revision();
    let log = daemon.until(&place, |log| log.len() == 7).await;
    assert_eq!(log[5..], ["GAP audit".to_owned(), format!("MODIFIED inferred changes@{changed}")]);
    drop_next(&place).await;
    place.drop("goes");
    let log = daemon.until(&place, |log| log.len() == 9).await;
    assert_eq!(log[7], "GAP audit");
    assert!(log[8].starts_with("DELETED inferred goes@") && place.sim.revision() > known, "{log:?}");
    // And then it is quiet again.
    let (done, differences) = daemon.audits();
    assert_eq!(differences, 3);
    daemon.until_audited(done + 3).await;
    place.map("after", "1");
    assert_eq!(daemon.until_last(&place, "ADDED watched after@").await.len(), 10);
    assert_eq!(daemon.audits().1, 3);
    daemon.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_busy_server_is_never_found_to_differ() {
    let mut place = audited_place().await;
    place.timings.audit = Some(Duration::from_millis(20));
    let at = place.sim.revision();
    let mut random = fastrand::Rng::with_seed(7);
    let daemon = place.ready(maps()).await;
    let mut step = 0;
    let mut head = daemon.journal.head();
    while daemon.audits().0 < 15 {
        for _ in 0..20 {
            step += 1;
            let name = format!("m{}", random.u8(0..30));
            match place.sim.get("configmaps", "shop", &name).is_ok() {
                true if random.u8(0..4) == 0 => place.drop(&name),
                true => place.change(&name, &step.to_string()),
                false => place.map(&name, "new"),
            }
            tokio::task::yield_now().await;
        }
        // The daemon keeps up on the busiest machine: one that falls behind for ever never comes to the version of an audit's list.
        let near = head.wait_for(|last| last.0 + 100 >= step);
        tokio::time::timeout(PATIENCE, near).await.expect("the daemon keeps up").expect("the journal is open");
        // Watches are half a second apart, whoever ends them, and an audit takes an open one.
        if random.u8(0..100) == 0 {
            place.sim.signal("configmaps", &Signal::Cut);
        }
        tokio::time::sleep(Duration::from_millis(random.u64(0..4))).await;
    }
    place.map("last", "1");
    let log = daemon.until_last(&place, "last@").await;
    assert_eq!(log, place.truth(at));
    assert_eq!((daemon.audits().1, place.lists_begun() > 10), (0, true));
    assert_eq!(daemon.stats("configmaps").desyncs.load(Ordering::Relaxed), 0);
    daemon.stop().await;
}

#[tokio::test]
async fn a_source_that_emits_less_than_it_knows_is_audited_as_well() {
    let place = audited_place().await;
    let labelled = |name: &str, tier: &str| {
        let mut map = objects::config_map("shop", name, "1");
        map["metadata"]["labels"] = serde_json::json!({"tier": tier});
        place.sim.create("configmaps", map).unwrap();
    };
    labelled("web", "web");
    labelled("leaves", "web");
    labelled("other", "db");
    let mut some = watch(&["configmaps"]);
    some.label_selector = "tier=web".into();
    some.namespaces = vec!["shop".into()];
    some.first_list = FirstList::Silent;
    some.ignore = vec!["/data".parse().unwrap()];
    let daemon = place.ready(vec![some]).await;
    place.sim.wait_for_watches("configmaps", 1).await.unwrap();
    place.change("web", "ignored");
    place.sim.update("configmaps", "shop", "leaves", |map| map["metadata"]["labels"]["tier"] = "db".into()).unwrap();
    daemon.until_last(&place, "DELETED watched leaves@").await;
    let (done, _) = daemon.audits();
    daemon.until_audited(done + 3).await;
    assert_eq!((daemon.audits().1, daemon.log(&place).len()), (0, 1));
    drop_next(&place).await;
    labelled("new", "web");
    let log = daemon.until_last(&place, "ADDED inferred new@").await;
    assert_eq!((log.len(), &*log[1]), (3, "GAP audit"), "{log:?}");
    daemon.stop().await;
}

#[tokio::test]
async fn an_api_without_metadata_alone_is_asked_for_whole_objects() {
    let place = audited_place().await;
    place.map("a", "1");
    let list = On::list("configmaps").query("limit=3");
    let refusal = Act::refuse(&Refusal::new(406, "NotAcceptable", "only the following media types are accepted"));
    place.sim.fault(Fault::new(list, refusal).after(1));
    let daemon = place.ready(maps()).await;
    daemon.until_audited(2).await;
    let asked: Vec<_> = place.sim.requests().into_iter().filter(|seen| seen.is_list("configmaps")).collect();
    let metadata = |seen: &crate::sim::faults::Seen| seen.accept.contains("PartialObjectMetadataList");
    assert!(!metadata(&asked[0]), "the first list is of whole objects");
    assert!(metadata(&asked[1]) && asked[1].status == Some(406));
    assert!(!metadata(&asked[2]) && asked[2].param("limit").as_deref() == Some("3"));
    assert!(metadata(&asked[3]));
    assert_eq!(daemon.audits().1, 0);
    daemon.stop().await;
}

/// The same way is gone for every page, or the pages would not be of one list.
#[tokio::test]
async fn an_audit_asks_for_every_page_as_for_the_first() {
    let place = audited_place().await;
    for n in 0..7 {
        place.map(&format!("m{n}"), "1");
    }
    let refuse = || Act::refuse(&Refusal::new(406, "NotAcceptable", "only the following media types are accepted"));
    place.sim.fault(Fault::new(On::list("configmaps").query("limit=3"), refuse()).after(3));
    let daemon = place.ready(maps()).await;
    daemon.until_audited(1).await;
    // What is refused in the middle of a list ends it.
    place.sim.fault(Fault::new(On::list("configmaps").query("continue="), refuse()));
    daemon.until_undecided(1).await;
    let (done, _) = daemon.audits();
    daemon.until_audited(done + 1).await;
    let metadata = |seen: &crate::sim::faults::Seen| seen.accept.contains("PartialObjectMetadataList");
    let asked: Vec<_> = place.sim.requests().into_iter().filter(|seen| seen.is_list("configmaps")).collect();
    let seen: Vec<_> = asked[3..7].iter().map(|seen| (metadata(seen), seen.status == Some(406))).collect();
    assert_eq!(seen, [(true, true), (false, false), (false, false), (false, false)]);
    assert!(asked[5].param("continue").is_some() && asked[6].param("continue").is_some());
    let refused = asked.iter().skip(4).position(|seen| seen.status == Some(406)).unwrap() + 4;
    assert!(metadata(&asked[refused]) && asked[refused].param("continue").is_some());
    assert!(metadata(&asked[refused + 1]) && asked[refused + 1].param("continue").is_none());
    assert_eq!((daemon.audits().1, place.lists_begun() > 3), (0, true));
    daemon.stop().await;
}

#[tokio::test]
async fn an_audit_that_cannot_read_the_journal_says_nothing() {
    let place = audited_place().await;
    place.map("a", "1");
    let daemon = place.ready(maps()).await;
    daemon.until_audited(1).await;
    let stats = daemon.stats("configmaps");
    let (here, away) = (place.state().join("journal.db"), place.state().join("away"));
    std::fs::rename(&here, &away).unwrap();
    let before = stats.audits_undecided.load(Ordering::Relaxed);
    daemon.until_undecided(before + 2).await;
    std::fs::rename(&away, &here).unwrap();
    let (done, _) = daemon.audits();
    daemon.until_audited(done + 1).await;
    assert_eq!(daemon.audits().1, 0);
    assert_eq!((daemon.log(&place).len(), stats.desyncs.load(Ordering::Relaxed)), (1, 0));
    daemon.stop().await;
}

#[tokio::test]
async fn a_source_that_resumes_is_left_alone_for_half_a_period() {
    let mut place = audited_place().await;
    place.timings.audit = Some(Duration::from_secs(1));
    place.map("a", "1");
    place.ready(maps()).await.stop().await;
    place.sim.clear_requests();
    let daemon = place.ready(maps()).await;
    let (done, _) = daemon.audits();
    daemon.until_audited(done + 1).await;
    let asked = place.sim.requests();
    let watch = asked.iter().find(|seen| seen.is_watch("configmaps")).unwrap();
    let audit = On::list("configmaps").query("limit=3");
    let audit = asked.iter().find(|seen| audit.matches(seen)).unwrap();
    assert!(audit.at - watch.at >= Duration::from_millis(500), "{:?}", audit.at - watch.at);
    daemon.stop().await;
}

#[tokio::test]
async fn an_audit_that_the_watch_does_not_catch_up_with_says_nothing() {
    let mut place = audited_place().await;
    place.sim.set(|settings| settings.bookmarks_every = PATIENCE * 10);
    place.timings.audit_patience = Duration::from_millis(20);
    place.map("a", "1");
    let daemon = place.ready(maps()).await;
    place.sim.wait_for_watches("configmaps", 1).await.unwrap();
    // The version of every list is ahead of what the watch has heard of.
    place.sim.create("secrets", objects::secret("shop", "s", &[])).unwrap();
    place.sim.signal("configmaps", &Signal::Line("\n".into()));
    daemon.until_undecided(2).await;
    assert_eq!(daemon.audits().1, 0);
    assert_eq!(daemon.log(&place).len(), 1);
    daemon.stop().await;
}

/// Faults 15 and 20: etcd was restored and has passed our position by the time we look, so that no version shows it.
#[tokio::test]
async fn a_restored_server_that_no_version_betrays_is_found() {
    let place = audited_place().await;
    place.map("old", "1");
    let then = place.sim.revision();
    let daemon = place.ready(maps()).await;
    for name in ["lost", "lost too", "and this"] {
        place.map(name, "1");
    }
    daemon.until_last(&place, "and this@").await;
    daemon.stop().await;
    place.sim.restore(then);
    place.map("instead", "1");
    for n in 0..5 {
        place.map(&format!("m{n}"), "1");
    }
    let daemon = place.ready(maps()).await;
    let has = |log: &[String], what: &str| log.iter().any(|line| line.starts_with(what));
    let log =
        daemon.until(&place, |log| has(log, "DELETED inferred lost@") && has(log, "ADDED inferred instead@")).await;
    let gaps: Vec<&String> = log.iter().filter(|line| line.starts_with("GAP")).collect();
    assert_eq!(gaps, ["GAP audit"]);
    daemon.stop().await;
}

#[tokio::test]
async fn an_audit_that_hangs_holds_nobody_up() {
    let mut place = audited_place().await;
    place.timings.audit = Some(Duration::from_millis(20));
    let daemon = place.ready(vec![watch(&["configmaps", "secrets"])]).await;
    place.sim.wait_for_watches("*", 2).await.unwrap();
    let before = place.sim.count(&On::list("configmaps"));
    place.sim.fault(Fault::new(On::list("configmaps").query("limit=3"), Act::Hang).always());
    place.sim.wait_for_count(&On::list("configmaps"), before + 1).await.unwrap();
    // The watch ends in the middle of the audit, and does not come back.
    place.sim.fault(Fault::new(On::watch("configmaps"), Act::refuse(&Refusal::not_ready(0))).always());
    place.sim.fault(Fault::new(On::list("configmaps").query("limit=1&"), Act::refuse(&Refusal::not_ready(0))).always());
    place.sim.signal("configmaps", &Signal::End);
    daemon.until_state("configmaps", |state| matches!(state, SourceState::Degraded(_))).await;
    let (done, _) = daemon.audits();
    daemon.until_audited(done + 3).await;
    daemon.stop().await;
}
