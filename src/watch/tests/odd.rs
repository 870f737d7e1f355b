//! Objects that cannot be recorded hold up nothing else.

use super::large::audited;
use super::*;

/// Reason and name of each GAP, sorted.
fn gaps(place: &Place) -> Vec<(String, String)> {
    let mut reader = crate::journal::Reader::open(&place.state()).unwrap();
    let entries = reader.entries_after(Seq(0), 100_000, usize::MAX).unwrap();
    let mut gaps: Vec<_> = entries
        .iter()
        .map(|stored| Entry::parse(&stored.line).unwrap())
        .filter_map(|entry| Some((entry.gap()?.why, entry.name.as_deref().unwrap_or_default().to_owned())))
        .collect();
    gaps.sort_unstable();
    gaps
}

fn of(why: &str, names: &[&str]) -> Vec<(String, String)> {
    names.iter().map(|name| (why.to_owned(), (*name).to_owned())).collect()
}

fn extra<'i>(items: impl IntoIterator<Item = &'i str>) -> Fault {
    let items = items.into_iter().map(|item| item.to_owned().into()).collect();
    Fault::new(On::list("configmaps"), Act::Extra(items)).always()
}

/// A ConfigMap of a list with this in its metadata, and this behind it.
fn item(metadata: &str, rest: &str) -> String {
    format!(r#"{{"metadata":{{"namespace":"shop",{metadata}}}{rest}}}"#)
}

async fn audited_place() -> Place {
    let mut place = Place::with(|settings| settings.bookmarks_every = Duration::from_millis(20)).await;
    (place.timings.recover, place.timings.audit) = (None, Some(Duration::from_millis(100)));
    place
}

/// kubectl prints each of those that are JSON objects, and the rest of the list with them.
#[tokio::test]
async fn what_cannot_be_recorded_of_a_list_is_a_gap_once_and_the_rest_is_recorded() {
    let place = audited_place().await;
    let whole = r#""uid":"u","resourceVersion":"3""#;
    // The item, and the name that its GAP has.
    let rows: [(String, &str); 22] = [
        (item(r#""name":"no-uid","resourceVersion":"3""#, ""), "no-uid"),
        (item(r#""name":"uid-null","uid":null,"resourceVersion":"3""#, ""), "uid-null"),
        (item(r#""name":"uid-empty","uid":"","resourceVersion":"3""#, ""), "uid-empty"),
        (item(r#""name":"uid-number","uid":5,"resourceVersion":"3""#, ""), "uid-number"),
        (item(r#""name":"no-version","uid":"u""#, ""), "no-version"),
        (item(r#""name":"version-null","uid":"u","resourceVersion":null"#, ""), "version-null"),
        (item(r#""name":"version-zero","uid":"u","resourceVersion":"0""#, ""), "version-zero"),
        (item(r#""name":"version-number","uid":"u","resourceVersion":3"#, ""), "version-number"),
        (item(&format!(r#""name":"nan",{whole}"#), r#","x":NaN"#), "nan"),
        (item(&format!(r#""name":"comma",{whole}"#), r#","x":[1,]"#), "comma"),
        (item(&format!(r#""name":"control",{whole}"#), ",\"x\":\"\u{7}\""), "control"),
        (item(&format!(r#""name":"other-kind",{whole}"#), r#","kind":"Secret","apiVersion":"v1""#), "other-kind"),
        (item(&format!(r#""name":"kind-number",{whole}"#), r#","kind":5"#), "kind-number"),
        (item(r#""uid":"nameless","resourceVersion":"3""#, ""), ""),
        (item(&format!(r#""name":null,{whole}"#), ""), ""),
        (item(&format!(r#""name":["x"],{whole}"#), r#","data":{}"#), ""),
        (r#"{"metadata":null}"#.to_owned(), ""),
        (r#"{"metadata":[]}"#.to_owned(), ""),
        ("null".to_owned(), ""),
        ("5".to_owned(), ""),
        (r#""text""#.to_owned(), ""),
        ("{}".to_owned(), ""),
    ];
    // These are odd, and say which object they are.
    let fine = [
        item(&format!(r#""name":"a/b\u0007",{whole}"#), ""),
        item(r#""name":"opaque","uid":"u","resourceVersion":"v-3""#, ""),
        item(&format!(r#""name":"deep",{whole}"#), &format!(r#","x":{}{}"#, "[".repeat(10_000), "]".repeat(10_000))),
        item(&format!(r#""name":"{}",{whole}"#, "n".repeat(4 << 10)), ""),
    ];
    let items: Vec<&str> = rows.iter().map(|row| &*row.0).chain(fine.iter().map(|item| &**item)).collect();
    place.sim.fault(extra(items));
    place.map("a", "1");
    place.map("b", "1");
    let daemon = place.ready(maps()).await;
    let log = daemon.until(&place, |log| log.len() == rows.len() + fine.len() + 2).await;
    assert_eq!(log.iter().filter(|line| line.starts_with("ADDED listed ")).count(), fine.len() + 2, "{log:#?}");
    let mut expected = of("undecodable", &rows.each_ref().map(|row| row.1));
    expected.sort_unstable();
    assert_eq!(gaps(&place), expected);
    place.map("c", "1");
    daemon.until_last(&place, "ADDED watched c@").await;
    assert_eq!(audited(&daemon).await, 0);
    daemon.stop().await;
    // Nothing of it is news to another list.
    place.map("d", "1");
    place.sim.compact_all();
    let daemon = place.ready(maps()).await;
    let log = daemon.until_last(&place, "inferred d@").await;
    assert_eq!(gaps(&place)[0], ("expired".to_owned(), String::new()));
    assert_eq!((gaps(&place).len(), log.len()), (rows.len() + 1, rows.len() + fine.len() + 5), "{log:#?}");
    assert_eq!(audited(&daemon).await, 0);
    assert!(daemon.journal.reader().unwrap().verify(|_, _| ()).unwrap().problems.is_empty());
    daemon.stop().await;
}

/// What became odd is still there; what is gone is gone, unless an object that nothing names may be it.
#[tokio::test]
async fn a_deletion_is_recorded_only_where_the_list_proves_it() {
    for (items, deleted) in [
        (item(r#""name":"a","resourceVersion":"9""#, ""), vec!["b"]),
        (item(r#""name":"a","uid":7,"resourceVersion":"9""#, ""), vec!["b"]),
        (item(r#""name":"a","uid":"another","resourceVersion":"9""#, r#","x":NaN"#), vec!["a", "b"]),
        (item(r#""name":"other","resourceVersion":"9""#, ""), vec!["a", "b"]),
        (item(r#""uid":"another","resourceVersion":"9""#, ""), vec!["a", "b"]),
        (item(r#""resourceVersion":"9""#, ""), vec![]),
        ("null".to_owned(), vec![]),
    ] {
        let place = audited_place().await;
        for name in ["a", "b", "c", "d", "e"] {
            place.map(name, "1");
        }
        let daemon = place.ready(maps()).await;
        daemon.until(&place, |log| log.len() == 5).await;
        daemon.stop().await;
        place.drop("a");
        place.drop("b");
        place.change("c", "2");
        place.sim.compact_all();
        place.sim.fault(extra([&*items]));
        let daemon = place.ready(maps()).await;
        let log = daemon.until_last(&place, "MODIFIED inferred c@").await;
        let gone: Vec<&str> =
            log.iter().filter_map(|line| line.strip_prefix("DELETED inferred ")?.split('@').next()).collect();
        assert_eq!(gone, deleted, "{items}: {log:#?}");
        assert_eq!(gaps(&place).len(), 2, "{items}: {log:#?}");
        assert_eq!(audited(&daemon).await, 0, "{items}");
        daemon.stop().await;
        // The list is whole again, and proves what it lacks.
        place.sim.heal();
        place.change("c", "3");
        place.sim.compact_all();
        let daemon = place.ready(maps()).await;
        let log = daemon
            .until(&place, |log| {
                log.last().is_some_and(|last| last.starts_with("MODIFIED inferred c@")) && log.len() > 9
            })
            .await;
        assert_eq!(log.iter().filter(|line| line.starts_with("DELETED")).count(), 2, "{items}: {log:#?}");
        daemon.stop().await;
    }
}

/// 100 of one list have a GAP each; one of the whole source stands for the rest.
#[tokio::test]
async fn a_list_of_nothing_but_odd_objects_has_a_bounded_number_of_gaps() {
    let place = Place::with_gaps().await;
    let items: Vec<String> =
        (0..250).map(|n| item(&format!(r#""name":"odd-{n:03}","resourceVersion":"3""#), "")).collect();
    place.sim.fault(extra(items.iter().map(|item| &**item)));
    place.map("a", "1");
    let daemon = place.ready(maps()).await;
    let log = daemon.until_last(&place, "listed a@").await;
    assert_eq!(log.len(), 102, "{log:?}");
    let names: Vec<String> = gaps(&place).into_iter().map(|(_, name)| name).collect();
    assert_eq!((&*names[0], &*names[1], &*names[100]), ("", "odd-000", "odd-099"));
    assert_eq!(place.lists(), 1);
    daemon.stop().await;
}

/// The position moves past an event that has a version; one without comes again and is no news.
#[tokio::test]
async fn an_odd_event_of_a_watch_is_a_gap_once_and_the_watch_goes_on() {
    let place = Place::with_gaps().await;
    place.map("a", "1");
    let daemon = place.ready(maps()).await;
    daemon.until(&place, |log| log.len() == 1).await;
    place.sim.wait_for_watches("configmaps", 1).await.unwrap();
    let mut versions = (0..).map(|n| {
        place.sim.create("secrets", objects::secret("shop", &format!("s{n}"), &[])).unwrap();
        place.sim.revision()
    });
    let send = |kind: &str, object: &str| {
        let line = format!("{{\"type\":\"{kind}\",\"object\":{object}}}\n");
        place.sim.signal("configmaps", &Signal::Line(line.into()));
    };
    let mut expected = vec![];
    for (kind, metadata, name) in [
        ("ADDED", r#""name":"no-uid""#, "no-uid"),
        ("MODIFIED", r#""name":"no-uid""#, "no-uid"),
        ("MODIFIED", r#""name":5,"uid":"u""#, ""),
        ("MODIFIED", r#""name":"a","uid":null"#, "a"),
    ] {
        let object = item(&format!(r#"{metadata},"resourceVersion":"{}""#, versions.next().unwrap()), "");
        send(kind, &object);
        send(kind, &object);
        expected.push(name);
    }
    for (object, name) in [(item(r#""name":"no-version","uid":"u""#, ""), "no-version"), ("null".to_owned(), "")] {
        send("ADDED", &object);
        send("ADDED", &object);
        expected.push(name);
    }
    place.map("b", "1");
    let log = daemon.until_last(&place, "ADDED watched b@").await;
    let mut sorted = of("undecodable", &expected);
    sorted.sort_unstable();
    assert_eq!((gaps(&place), log.len()), (sorted, expected.len() + 2), "{log:#?}");
    // Its deletion does not say its uid: it is gone all the same.
    let gone = item(&format!(r#""name":"a","resourceVersion":"{}""#, versions.next().unwrap()), "");
    send("DELETED", &gone);
    send("DELETED", &gone);
    let log = daemon.until_last(&place, "DELETED inferred a@").await;
    assert_eq!(log[expected.len() + 2..].len(), 2, "{log:#?}");
    // The next watch goes on behind all of that.
    place.sim.signal("configmaps", &Signal::End);
    place.map("c", "1");
    let log = daemon.until_last(&place, "ADDED watched c@").await;
    assert_eq!((log.len(), place.lists()), (expected.len() + 5, 1), "{log:#?}");
    daemon.stop().await;
}

/// What a recovery meets is what a list has: an object that was odd before holds it up no more than a list.
#[tokio::test]
async fn an_object_without_a_uid_leaves_a_recovery_possible() {
    let place = Place::new().await;
    let odd = [item(r#""name":"odd","resourceVersion":"3""#, ""), item(r#""name":"none","uid":"u""#, "")];
    place.sim.fault(extra(odd.iter().map(|item| &**item)));
    place.map("a", "1");
    let daemon = place.ready(maps()).await;
    daemon.until(&place, |log| log.len() == 3).await;
    daemon.stop().await;
    place.change("a", "2");
    place.change("a", "3");
    place.map("b", "1");
    place.drop("b");
    place.sim.restart_api_server();
    let daemon = place.ready(maps()).await;
    let log = daemon.until(&place, |log| log.len() == 7).await;
    assert!(log[3..].iter().all(|line| line.contains(" recovered ")), "{log:#?}");
    daemon.stop().await;
}
