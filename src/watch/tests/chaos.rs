//! Anything, in any order.

use super::*;

/// One of the troubles that a watch or a list may meet, and that must never show in the log.
fn any_trouble(random: &mut fastrand::Rng) -> Act {
    match random.u8(0..12) {
        0 => Act::cut_in_event(random.usize(0..5)),
        1 => Act::cut_after_events(random.usize(0..5)),
        2 => Act::end_after_events(random.usize(1..5)),
        3 => Act::Reset,
        4 => Act::Chop(random.usize(1..50)),
        5 => Act::repeat(random.usize(1..5)),
        6 => Act::html(502),
        7 => Act::refuse(&Refusal::not_ready(0)),
        8 => Act::error_event(random.usize(0..4), &Refusal::internal("no leader")),
        9 => Act::cut_after_bytes(random.usize(1..3000)),
        10 => Act::Delay(Duration::from_millis(random.u64(1..30))),
        _ => Act::empty(),
    }
}

/// Writes, troubles and restarts in any order; `compacting` also lets the server compact and expires objects together.
async fn chaos(seed: u64, compacting: bool) {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut place = Place::new().await;
    place.timings.page = 3;
    // Troubles come thicker here than anything that should be answered with a list.
    place.timings.thresholds.server_errors = PATIENCE;
    place.timings.thresholds.short_watches = 1000;
    place.map("first", "1");
    let at = place.sim.revision();
    let mut daemon = place.ready(maps()).await;
    daemon.until_last(&place, "first@").await;
    for step in 0..150 {
        let name = format!("m{}", random.u8(0..8));
        let there = place.sim.get("configmaps", "shop", &name).is_ok();
        match random.u8(0..24) {
            0..=8 if there => place.change(&name, &step.to_string()),
            9..=11 if there => place.drop(&name),
            0..=11 => place.map(&name, "new"),
            12..=15 => place.sim.fault(Fault::new(On::watch("configmaps"), any_trouble(&mut random))),
            16 => place.sim.fault(Fault::new(On::list("configmaps"), any_trouble(&mut random))),
            17 => place.sim.signal("configmaps", &Signal::Cut),
            18 => place.sim.signal("configmaps", &Signal::End),
            19 => place.sim.signal("configmaps", &Signal::Bookmark),
            20 => {
                daemon.stop().await;
                daemon = place.start(maps()).await;
            }
            21 => {
                let rows = place.sim.objects("configmaps").unwrap();
                let together: Vec<(&str, &str)> =
                    rows.iter().filter(|row| &*row.name != "first").map(|row| (&*row.namespace, &*row.name)).collect();
                place.sim.expire_together("configmaps", &together).unwrap();
            }
            22 if compacting => place.sim.compact_all(),
            _ => tokio::time::sleep(Duration::from_millis(random.u64(0..20))).await,
        }
    }
    place.sim.heal();
    place.map("last", "1");
    let log = daemon.until_last(&place, "last@").await;
    daemon.stop().await;

    let mut seen = std::collections::BTreeSet::new();
    let mut state = std::collections::BTreeMap::new();
    for line in log.iter().filter(|line| !line.starts_with("GAP")) {
        let (words, version) = line.split_once('@').unwrap();
        let [kind, _, name] = words.split(' ').collect::<Vec<_>>()[..] else { panic!("{line}") };
        // An inferred deletion has the version of the object's last known state.
        assert!(seen.insert((kind, name, version)), "seed {seed}: {line} is there twice");
        let before = state.get(name).copied();
        assert_eq!(kind == "ADDED", before.is_none(), "seed {seed}: {line} after {before:?}");
        if kind == "DELETED" {
            state.remove(name)
        } else {
            state.insert(name, version)
        };
    }
    let rows = place.sim.objects("configmaps").unwrap();
    let truth: Vec<(String, String)> =
        rows.iter().map(|row| (row.name.to_string(), row.revision.to_string())).collect();
    let state: Vec<(String, String)> =
        state.into_iter().map(|(name, version)| (name.to_owned(), version.to_owned())).collect();
    assert_eq!(state, truth, "seed {seed}: the log's end is what the server has");
    if !compacting {
        assert_eq!(sorted_within_versions(&log[1..]), sorted_within_versions(&place.truth(at)), "seed {seed}");
        assert_eq!(place.lists_begun(), 1, "seed {seed}");
    }
}

/// Several events of one version come in any order.
fn sorted_within_versions(log: &[String]) -> Vec<&str> {
    let mut lines: Vec<&str> = log.iter().map(String::as_str).collect();
    lines.sort_by_key(|line| {
        let (words, version) = line.split_once('@').unwrap_or((line, "0"));
        (version.parse::<u64>().unwrap_or_default(), words.to_owned())
    });
    lines
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_happens_to_the_connection_the_log_is_what_happened() {
    for seed in 1..=4 {
        chaos(seed, false).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_a_server_compacts_the_log_ends_with_what_it_has() {
    for seed in 11..=14 {
        chaos(seed, true).await;
    }
}
