//! Objects that are larger than what is kept, and lists that are not as lists should be.

use super::*;

/// A value that makes an object too large for these places.
fn too_large() -> String {
    "x".repeat(100 << 10)
}

async fn small_place() -> Place {
    let mut place = Place::with(|settings| settings.bookmarks_every = Duration::from_millis(20)).await;
    place.timings.line_limit = 64 << 10;
    place
}

fn words(log: &[String]) -> Vec<&str> {
    log.iter().map(|line| line.split('@').next().unwrap()).collect()
}

/// Waits for an audit that began after this call, and says how many objects all of them found to differ.
pub(super) async fn audited(daemon: &Daemon) -> u64 {
    let rows = || daemon.journal.reader().unwrap().sources().unwrap();
    let done = rows()[0].audits;
    daemon.until_holds("audits are done", || rows()[0].audits >= done + 2).await;
    rows()[0].audit_differences
}

/// One object in a list is too large to be kept: it is a GAP, once for each version; everything else is read,
/// and what was known of it stays.
#[tokio::test]
async fn an_object_too_large_in_a_list_is_a_gap_once_and_the_rest_goes_on() {
    let mut place = small_place().await;
    place.timings.recover = None;
    place.timings.audit = Some(Duration::from_millis(100));
    place.timings.page = 2;
    for name in ["a", "b", "c"] {
        place.map(name, "1");
    }
    place.map("big", &too_large());
    let daemon = place.ready(maps()).await;
    let log = daemon.until(&place, |log| log.len() == 4).await;
    assert_eq!(words(&log), ["GAP oversize", "ADDED listed a", "ADDED listed b", "ADDED listed c"]);
    place.change("a", "2");
    daemon.until_last(&place, "MODIFIED watched a@").await;
    assert_eq!(audited(&daemon).await, 0);
    daemon.stop().await;
    // The same version again is nothing new.
    place.change("b", "2");
    place.sim.compact_all();
    let daemon = place.ready(maps()).await;
    let log = daemon.until(&place, |log| log.len() == 7).await;
    assert_eq!(words(&log[5..]), ["GAP expired", "MODIFIED inferred b"]);
    assert_eq!(audited(&daemon).await, 0);
    // It becomes one that can be read, and grows again: what was known of it stays.
    place.change("big", "1");
    daemon.until_last(&place, "ADDED watched big@").await;
    place.change("big", &too_large());
    let log = daemon.until(&place, |log| log.len() == 9).await;
    assert_eq!(words(&log[8..]), ["GAP oversize"]);
    place.change("c", "2");
    daemon.until_last(&place, "MODIFIED watched c@").await;
    assert_eq!(audited(&daemon).await, 0);
    // It goes.
    place.drop("big");
    let log = daemon.until(&place, |log| log.len() == 12).await;
    assert_eq!(words(&log[10..]), ["GAP oversize", "DELETED inferred big"]);
    assert_eq!(audited(&daemon).await, 0);
    daemon.stop().await;
}

/// What has its name now is another one, so the old one is gone.
#[tokio::test]
async fn an_object_too_large_is_not_the_one_that_had_its_name() {
    let place = small_place().await;
    place.map("big", "1");
    let daemon = place.ready(maps()).await;
    daemon.until(&place, |log| log.len() == 1).await;
    daemon.stop().await;
    place.drop("big");
    place.map("big", &too_large());
    place.sim.compact_all();
    let daemon = place.ready(maps()).await;
    let log = daemon.until(&place, |log| log.len() == 4).await;
    assert_eq!(words(&log[1..]), ["GAP expired", "GAP oversize", "DELETED inferred big"]);
    daemon.stop().await;
}

/// A list of ConfigMaps at a version of the test's choice.
fn list_at(version: &str, next: &str, items: &[String]) -> Act {
    let body = format!(
        r#"{{"kind":"ConfigMapList","apiVersion":"v1","metadata":{{"resourceVersion":"{version}","continue":"{next}"}},"items":[{}]}}"#,
        items.join(",")
    );
    Act::Answer(Answer { status: 200, content_type: "application/json", retry_after: None, body: body.into() })
}

/// A list whose pages are of different versions comes in one piece.
#[tokio::test]
async fn a_list_that_changes_its_version_with_each_page_is_asked_for_in_one_piece() {
    let mut place = Place::new().await;
    place.timings.page = 2;
    for name in ["a", "b", "c"] {
        place.map(name, "1");
    }
    let at = place.sim.revision();
    place.sim.fault(Fault::new(On::list("configmaps").query("continue="), list_at("999999", "", &[])).always());
    let daemon = place.ready(maps()).await;
    let log = daemon.until(&place, |log| log.len() == 3).await;
    assert_eq!(log[2], format!("ADDED listed c@{at}"));
    assert_eq!(place.lists_begun(), 3, "twice in pages");
    daemon.stop().await;
}

/// The same, and it goes on in one piece: that is reported, and keeps nobody else from being ready.
#[tokio::test]
async fn a_list_that_never_has_one_version_is_reported_and_holds_up_nobody() {
    let place = Place::new().await;
    let first = Fault::new(On::list("configmaps"), list_at("7", "next", &[])).always();
    place.sim.fault(Fault::new(On::list("configmaps").query("continue="), list_at("8", "", &[])).always());
    place.sim.fault(first);
    let daemon = place.ready(vec![watch(&["configmaps", "services"])]).await;
    let state = daemon.until_state("configmaps", |state| matches!(state, SourceState::Degraded(_))).await;
    assert!(state.detail().contains("a list changed its version from 7 to 8"), "{state:?}");
    daemon.stop().await;
}

/// Versions of lists that have nothing to do with those of objects are no rollback, also after a restart, and
/// make nobody else look.
#[tokio::test]
async fn lists_whose_versions_say_nothing_about_objects_are_no_rollback() {
    let place = Place::new().await;
    place.map("a", "1");
    place.change("a", "2");
    let row = place.sim.get("configmaps", "shop", "a").unwrap();
    let object = String::from_utf8(row.bytes().to_vec()).unwrap();
    place.sim.fault(Fault::new(On::list("configmaps"), list_at("5", "", &[object])).always());
    let both = || vec![watch(&["configmaps", "services"])];
    let mut expected = vec![format!("ADDED listed a@{}", row.revision)];
    let mut daemon = place.ready(both()).await;
    for turn in 0..3 {
        for name in ["x", "y"] {
            place.change("a", &format!("{turn}{name}"));
            expected.push(format!("MODIFIED watched a@{}", place.sim.revision()));
            daemon.until(&place, |log| log.len() == expected.len()).await;
            let (watches, others) =
                (place.sim.count(&On::watch("configmaps")), place.sim.count(&On::any().query("limit=1&")));
            place.sim.wait_for_watches("configmaps", 1).await.unwrap();
            place.sim.signal("configmaps", &Signal::Cut);
            place.sim.wait_for_count(&On::watch("configmaps"), watches + 1).await.unwrap();
            let asked = place.sim.count(&On::any().query("limit=1&")) - others;
            assert_eq!(asked, 0, "nobody asks how far the server is");
        }
        daemon.stop().await;
        daemon = place.ready(both()).await;
        daemon.until_state("configmaps", |state| *state == SourceState::Watching).await;
    }
    assert_eq!(daemon.log(&place), expected);
    daemon.stop().await;
}

/// What is held while large objects come never exceeds its bound, and goes when they are on disk.
#[tokio::test]
async fn what_is_read_and_not_on_disk_has_a_bound() {
    let place = Place::new().await;
    let names: Vec<String> = (0..20).map(|index| format!("m{index}")).collect();
    for name in &names {
        place.map(name, "1");
    }
    let daemon = place.ready(maps()).await;
    let at = daemon.until(&place, |log| log.len() == names.len()).await.len();
    let large = "y".repeat(3 << 20);
    for name in &names {
        place.change(name, &large);
    }
    daemon.until(&place, |log| log.len() == at + names.len()).await;
    let budget = daemon.journal.budget();
    assert!(budget.peak() >= 3 << 20 && budget.peak() <= crate::journal::Budget::bound(4 << 20), "{budget:?}");
    let waiting = async {
        while budget.held() > 0 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, waiting).await.expect("nothing is held");
    daemon.stop().await;
}
