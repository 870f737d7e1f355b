//! Lists and watches as they should be, and as connections make them.

use super::*;

#[tokio::test]
async fn a_first_list_and_what_follows_are_in_the_log_as_they_happened() {
    let place = Place::new().await;
    place.map("a", "1");
    place.map("b", "1");
    let at = place.sim.revision();
    let daemon = place.ready(maps()).await;
    place.change("a", "2");
    place.map("c", "1");
    place.drop("b");
    place.map("b", "again");
    let log = daemon.until(&place, |log| log.len() == 6).await;
    assert_eq!(log[..2], [format!("ADDED listed a@{}", at - 1), format!("ADDED listed b@{at}")]);
    assert_eq!(log[2..], place.truth(at));
    assert_eq!(place.lists(), 1);
    daemon.stop().await;
}

#[tokio::test]
async fn a_restart_resumes_without_a_list_and_repeats_nothing() {
    let place = Place::new().await;
    place.map("a", "1");
    let at = place.sim.revision();
    let mut daemon = place.ready(maps()).await;
    for round in 0..5 {
        place.map(&format!("up{round}"), "1");
        daemon.until_last(&place, &format!("up{round}@")).await;
        daemon.stop().await;
        place.map(&format!("down{round}"), "1");
        place.change("a", &format!("{round}"));
        daemon = place.ready(maps()).await;
        daemon.until(&place, |log| log.len() == 1 + 3 * (round + 1)).await;
    }
    assert_eq!(daemon.log(&place)[1..], place.truth(at));
    assert_eq!(place.lists(), 1, "only the first start listed");
    daemon.stop().await;
}

/// Trouble with watches that must not show in the log, and needs no list.
async fn harmless(act: Act) {
    let place = Place::new().await;
    place.map("first", "1");
    let at = place.sim.revision();
    let trouble = format!("{act:?}");
    place.sim.fault(Fault::new(On::watch("configmaps"), act).times(2));
    let daemon = place.start(maps()).await;
    daemon.until_last(&place, "first@").await;
    for n in 0..6 {
        place.map(&format!("m{n}"), "1");
        place.change(&format!("m{n}"), "2");
        place.drop(&format!("m{n}"));
    }
    let log = daemon.until_last(&place, &format!("@{}", place.sim.revision())).await;
    assert_eq!(log[1..], place.truth(at), "{trouble}");
    assert_eq!(place.lists(), 1, "{trouble}");
    daemon.stop().await;
}

/// Faults 1, 2 and 7: what a connection does to a watch, and errors in many lines, cost nothing.
#[tokio::test]
async fn a_cut_in_the_middle_of_a_line_loses_and_repeats_nothing() {
    for act in [
        Act::cut_in_event(2),
        Act::cut_after_events(1),
        Act::end_after_events(2),
        Act::tamper(crate::sim::faults::At::Event(1), crate::sim::faults::How::Half, crate::sim::faults::Then::Reset),
        Act::Reset,
        Act::Chop(3),
        Act::repeat(2),
        Act::undecodable(1),
        Act::html(503),
        pretty(503, &Refusal::not_ready(0)),
        Act::refuse(&Refusal::internal("etcd is away")),
        Act::error_event(1, &Refusal::internal("no leader")),
        Act::error_event(1, &Refusal::not_ready(0)),
    ] {
        harmless(act).await;
    }
}

/// Faults 5, 6, 16 and 23: 410 as an answer and as an ERROR; whatever went unseen is recorded as the net difference,
/// and one that was deleted and created again is two changes.
#[tokio::test]
async fn a_compacted_server_gets_a_gap_and_the_difference() {
    for http_410 in [false, true] {
        let place = Place::with(|settings| settings.http_410 = http_410).await;
        place.map("stays", "1");
        place.map("changes", "1");
        place.map("goes", "1");
        place.map("again", "1");
        let daemon = place.ready(maps()).await;
        daemon.until(&place, |log| log.len() == 4).await;
        daemon.stop().await;
        place.change("changes", "2");
        place.drop("goes");
        place.drop("again");
        place.map("again", "2");
        place.map("new", "1");
        place.map("never seen", "1");
        place.drop("never seen");
        place.sim.compact_all();
        let daemon = place.ready(maps()).await;
        let log = daemon.until(&place, |log| log.len() == 10).await;
        let words: Vec<&str> = log[4..].iter().map(|line| line.split('@').next().unwrap()).collect();
        assert_eq!(words[0], "GAP expired");
        let mut rest = words[1..].to_vec();
        rest.sort_unstable();
        assert_eq!(
            rest,
            [
                "ADDED inferred again",
                "ADDED inferred new",
                "DELETED inferred again",
                "DELETED inferred goes",
                "MODIFIED inferred changes"
            ]
        );
        let place_of = |word: &str| words.iter().position(|other| *other == word);
        assert!(place_of("DELETED inferred again") < place_of("ADDED inferred again"));
        place.map("after", "1");
        daemon.until_last(&place, "after@").await;
        daemon.stop().await;
    }
}

/// A Status over many lines, as for people.
fn pretty(status: u16, refusal: &Refusal) -> Act {
    let line: serde_json::Value = serde_json::from_slice(&refusal.event_line()).unwrap();
    let body = serde_json::to_vec_pretty(&line["object"]).unwrap().into();
    Act::Answer(Answer { status, content_type: "application/json", retry_after: None, body })
}

/// Fault 7: a Status over many lines is one answer, to be answered once.
#[tokio::test]
async fn an_error_of_many_lines_is_one_error() {
    let place = Place::with_gaps().await;
    place.map("a", "1");
    let daemon = place.ready(maps()).await;
    place.sim.wait_for_watches("configmaps", 1).await.unwrap();
    let before = place.sim.count(&On::watch("configmaps"));
    place.sim.create("secrets", objects::secret("shop", "elsewhere", &[])).unwrap();
    place.sim.fault(Fault::new(On::watch("configmaps"), pretty(410, &Refusal::expired(1, 2))));
    place.sim.signal("configmaps", &Signal::End);
    daemon.until_last(&place, "GAP expired").await;
    place.map("b", "1");
    let log = daemon.until_last(&place, "ADDED watched b@").await;
    assert_eq!(log.len(), 3, "{log:?}");
    assert_eq!((place.sim.count(&On::watch("configmaps")) - before, place.lists_begun()), (2, 2));
    let failures: u64 = daemon.stats("configmaps").failures().map(|(_, count)| count).sum();
    assert_eq!(failures, 1, "nothing else was read out of it");
    daemon.stop().await;
}

#[tokio::test]
async fn many_deletions_of_one_version_all_arrive_though_the_watch_is_cut_between_them() {
    let place = Place::new().await;
    let names: Vec<String> = (0..40).map(|n| format!("e{n:02}")).collect();
    for name in &names {
        place.map(name, "1");
    }
    let daemon = place.ready(maps()).await;
    daemon.until(&place, |log| log.len() == 40).await;
    // The next two watches, which see the deletions, are cut within them.
    place.sim.fault(Fault::new(On::watch("configmaps"), Act::cut_in_event(25)).after(1));
    place.watch_again_with(Fault::new(On::watch("configmaps"), Act::cut_after_events(15))).await;
    let pairs: Vec<(&str, &str)> = names.iter().map(|name| ("shop", name.as_str())).collect();
    let at = place.sim.expire_together("configmaps", &pairs).unwrap();
    let log = daemon.until(&place, |log| log.len() == 80).await;
    let mut deleted = log[40..].to_vec();
    deleted.sort_unstable();
    let expected: Vec<String> = names.iter().map(|name| format!("DELETED watched {name}@{at}")).collect();
    assert_eq!(deleted, expected, "each once");
    place.map("after", "1");
    assert_eq!(daemon.until_last(&place, "after").await.len(), 81);
    assert_eq!(place.lists(), 1);
    daemon.stop().await;
}

/// Fault 24: a page token that expires.
#[tokio::test]
async fn a_page_token_that_expires_begins_the_list_again() {
    let mut place = Place::new().await;
    place.timings.page = 2;
    for n in 0..7 {
        place.map(&format!("m{n}"), "1");
    }
    place
        .sim
        .fault(Fault::new(On::list("configmaps").query("continue="), Act::refuse(&Refusal::expired(1, 2))).times(2));
    let daemon = place.ready(maps()).await;
    let log = daemon.until(&place, |log| log.len() == 7).await;
    assert!(log.iter().all(|line| line.starts_with("ADDED listed")), "{log:?}");
    let lists: Vec<_> = place.sim.requests().into_iter().filter(|seen| seen.is_list("configmaps")).collect();
    assert_eq!(lists.last().unwrap().param("limit"), None, "after two failures in one piece: {lists:#?}");
    place.map("after", "1");
    assert_eq!(daemon.until_last(&place, "after").await.len(), 8);
    daemon.stop().await;
}

/// Fault 24: a list that breaks off, wherever, changes nothing.
#[tokio::test]
async fn a_list_that_breaks_off_changes_nothing() {
    let place = Place::with_gaps().await;
    for n in 0..20 {
        place.map(&format!("m{n:02}"), "1");
    }
    let daemon = place.ready(maps()).await;
    daemon.until(&place, |log| log.len() == 20).await;
    daemon.stop().await;
    place.drop("m03");
    place.sim.compact_all();
    for bytes in [900, 2000, 3000] {
        place.sim.fault(Fault::new(On::list("configmaps").query("limit=500"), Act::end_after_bytes(bytes)));
        place.sim.fault(Fault::new(On::list("configmaps").query("limit=500"), Act::cut_after_bytes(bytes)));
    }
    let daemon = place.ready(maps()).await;
    place.map("after", "1");
    let log = daemon.until_last(&place, "after").await;
    assert_eq!(log[20], "GAP expired");
    assert!(log[21].starts_with("DELETED inferred m03@") && log.len() == 23, "{log:#?}");
    daemon.stop().await;
}

/// Fault 3: a connection that is half open.
#[tokio::test]
async fn silence_is_noticed_and_the_watch_begun_again() {
    let mut place = Place::new().await;
    place.timings.silence = Duration::from_millis(300);
    let at = place.sim.revision();
    place.sim.fault(Fault::new(On::watch("configmaps"), Act::stall_after_events(1)));
    let daemon = place.ready(maps()).await;
    place.map("a", "1");
    place.map("b", "1");
    daemon.until_last(&place, "b@").await;
    assert_eq!(daemon.log(&place), place.truth(at));
    assert_eq!(place.lists(), 1);
    daemon.stop().await;
}

#[tokio::test]
async fn requests_that_are_never_answered_are_given_up() {
    let place = Place::new().await;
    place.map("a", "1");
    place.sim.fault(Fault::new(On::list("configmaps"), Act::Hang));
    place.sim.fault(Fault::new(On::list("configmaps"), Act::stall_after_bytes(100)));
    place.sim.fault(Fault::new(On::watch("configmaps"), Act::Hang));
    let daemon = place.ready(maps()).await;
    place.map("b", "1");
    assert_eq!(daemon.until_last(&place, "b@").await.len(), 2);
    daemon.stop().await;
}

/// Fault 4: bookmarks alone.
#[tokio::test]
async fn a_bookmark_moves_the_position_past_what_other_resources_did() {
    let place = Place::new().await;
    place.map("a", "1");
    let daemon = place.ready(maps()).await;
    daemon.until(&place, |log| log.len() == 1).await;
    place.sim.wait_for_watches("configmaps", 1).await.unwrap();
    for n in 0..5 {
        place.sim.create("secrets", objects::secret("shop", &format!("s{n}"), &[])).unwrap();
    }
    let at = place.sim.revision();
    place.sim.signal("configmaps", &Signal::Bookmark);
    let moved = async {
        loop {
            daemon.journal.flush().await.unwrap();
            let source = daemon.journal.reader().unwrap().sources().unwrap().remove(0);
            if source.resume == Some(at.to_string()) {
                return;
            }
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, moved).await.expect("the position moves");
    daemon.stop().await;
    place.sim.compact(at);
    let daemon = place.ready(maps()).await;
    place.map("b", "1");
    let log = daemon.until_last(&place, "b@").await;
    assert_eq!(log.len(), 2, "no gap: {log:?}");
    daemon.stop().await;
}

#[tokio::test]
async fn an_api_server_that_is_away_is_waited_for() {
    let place = Place::new().await;
    let at = place.sim.revision();
    let daemon = place.ready(maps()).await;
    place.sim.wait_for_watches("configmaps", 1).await.unwrap();
    place.sim.stop_listening().await;
    daemon
        .until_state(
            "configmaps",
            |state| matches!(state, SourceState::Degraded(text) if text.contains("refuses connections")),
        )
        .await;
    place.map("meanwhile", "1");
    place.sim.start_listening().await.unwrap();
    daemon.until_last(&place, "meanwhile@").await;
    assert_eq!(daemon.log(&place), place.truth(at));
    assert_eq!(place.lists(), 1);
    assert!(daemon.stats("configmaps").failures().any(|(name, count)| name == "unreachable" && count > 0));
    daemon.stop().await;
}

#[tokio::test]
async fn watches_that_end_at_once_make_no_hot_loop_and_without_news_no_gap() {
    let place = Place::new().await;
    place.map("a", "1");
    let daemon = place.ready(maps()).await;
    daemon.until(&place, |log| log.len() == 1).await;
    place.sim.fault(Fault::new(On::watch("configmaps"), Act::empty()).times(12));
    place.sim.signal("configmaps", &Signal::End);
    place.sim.wait_for_count(&On::watch("configmaps"), 14).await.unwrap();
    place.map("b", "1");
    let log = daemon.until_last(&place, "b@").await;
    assert!(log.len() == 2 && log[1].starts_with("ADDED watched b@"), "nothing could be missing: {log:?}");
    assert_eq!(place.lists(), 1, "none, however long it lasts, because there was nothing new");
    daemon.stop().await;
}

/// What changes while no watch brings anything is recorded all the same, each time behind a gap.
#[tokio::test]
async fn what_changes_while_watches_end_at_once_is_listed() {
    let place = Place::with_gaps().await;
    place.map("a", "1");
    let daemon = place.ready(maps()).await;
    daemon.until(&place, |log| log.len() == 1).await;
    place.sim.fault(Fault::new(On::watch("configmaps"), Act::empty()).times(1_000_000));
    place.sim.signal("configmaps", &Signal::End);
    place.sim.wait_for_count(&On::watch("configmaps"), 8).await.unwrap();
    assert_eq!(place.lists(), 1, "all is quiet");
    for (value, length) in [("2", 3), ("3", 5)] {
        place.change("a", value);
        let log = daemon.until(&place, |log| log.len() == length).await;
        let expected = ["GAP expired".to_owned(), format!("MODIFIED inferred a@{}", place.sim.revision())];
        assert_eq!(log[length - 2..], expected, "{log:?}");
    }
    assert_eq!(place.lists(), 3);
    daemon.stop().await;
}

/// Faults 5 and 8: whatever else a Status says, or says oddly, its code or its reason counts.
#[tokio::test]
async fn an_error_with_a_null_in_it_means_what_it_says() {
    let place = Place::new().await;
    place.map("a", "1");
    let daemon = place.ready(maps()).await;
    daemon.until(&place, |log| log.len() == 1).await;
    // One without a meaning, because those that go on for long make what is after the position be recovered.
    let errors = [(r#""code":429,"details":null"#, 4), (r#""code":500,"message":null,"reason":null"#, 1)];
    for (n, (null, times)) in errors.into_iter().enumerate() {
        let line = format!("{{\"type\":\"ERROR\",\"object\":{{\"kind\":\"Status\",\"metadata\":null,{null}}}}}\n");
        place.watch_again_with(Fault::new(On::watch("configmaps"), Act::replace(1, line)).times(times)).await;
        place.map(&format!("m{n}"), "1");
        let log = daemon.until_last(&place, &format!("m{n}@")).await;
        assert_eq!(log.len(), n + 2, "nothing had expired: {log:?}");
        assert!(log[n + 1].starts_with("ADDED watched"), "{log:?}");
    }
    assert_eq!(place.lists(), 1);
    let line = r#"{"type":"ERROR","object":{"kind":"Status","reason":"Expired","code":410,"details":null}}"#;
    place.watch_again_with(Fault::new(On::watch("configmaps"), Act::replace(1, format!("{line}\n")))).await;
    place.map("b", "1");
    let log = daemon.until_last(&place, "b@").await;
    assert!(log[3].starts_with("ADDED recovered b@") && log.len() == 4, "{log:?}");
    daemon.stop().await;
}

#[tokio::test]
async fn line_breaks_between_tokens_never_reach_the_log() {
    let place = Place::new().await;
    place.map("a", "1");
    let pretty = serde_json::to_vec_pretty(&serde_json::json!({
        "kind": "ConfigMapList", "apiVersion": "v1", "metadata": {"resourceVersion": place.sim.revision().to_string()},
        "items": [place.sim.get("configmaps", "shop", "a").unwrap().value()],
    }));
    let body = pretty.unwrap().into();
    let answer = Answer { status: 200, content_type: "application/json", retry_after: None, body };
    place.sim.fault(Fault::new(On::list("configmaps").query("limit=500"), Act::Answer(answer)));
    let daemon = place.ready(maps()).await;
    place.map("b", "1");
    daemon.until_last(&place, "b@").await;
    let mut reader = crate::journal::Reader::open(&place.state()).unwrap();
    let entries = reader.entries_after(Seq(0), 10, usize::MAX).unwrap();
    assert_eq!(entries.len(), 2);
    for stored in entries {
        assert!(!stored.line.contains(&b'\n') && !stored.line.contains(&b'\r'));
    }
    daemon.stop().await;
}

#[tokio::test]
async fn an_undecodable_event_is_asked_for_in_another_way_and_never_passed_over() {
    let place = Place::new().await;
    let daemon = place.ready(maps()).await;
    place.map("a", "1");
    daemon.until_last(&place, "a@").await;
    let garbage = Act::replace(1, "{\"type\":\"ADDED\",\"object\":{]}\n");
    place.watch_again_with(Fault::new(On::watch("configmaps"), garbage).times(3)).await;
    place.map("b", "1");
    let log = daemon.until(&place, |log| log.len() == 2).await;
    assert!(log[1].starts_with("ADDED recovered b@"), "{log:?}");
    daemon.stop().await;
}

#[tokio::test]
async fn a_line_that_is_too_long_is_not_read_and_asked_for_in_another_way() {
    let mut place = Place::new().await;
    place.timings.line_limit = 64 << 10;
    let daemon = place.ready(maps()).await;
    place.watch_again_with(Fault::new(On::watch("configmaps"), Act::oversize(0, 1 << 20))).await;
    place.map("b", "1");
    let log = daemon.until(&place, |log| !log.is_empty()).await;
    assert!(log[0].starts_with("ADDED recovered b@"), "{log:?}");
    daemon.stop().await;
}
