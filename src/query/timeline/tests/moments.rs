//! Objects at moments, and what became of them in between.

use super::*;
use crate::journal::Bounds;
use crate::query::render::Failure;
use crate::query::render::names::At;
use crate::query::timeline::compare::{Compare, compare};
use crate::query::timeline::entry::{OneEntry, entry};
use crate::query::timeline::moments::{ChangesBetween, changes, place};

#[tokio::test]
async fn nothing_is_said_of_a_moment_of_which_nothing_is_known() {
    let dir = tempfile::tempdir().unwrap();
    let (journal, thread, source) = begun(dir.path()).await;
    write(&journal, &source, 0..20).await;
    let mut opened = opened(&journal, true);
    let mut at = |at: &str| {
        let at = at.parse().map(|seq| At::Seq(Seq(seq))).or_else(|_| at.parse().map(At::Time)).unwrap();
        place(&mut opened.reader, at, "at", &opened.clock)
            .map(|place| place.seq)
            .map_err(|failure| failure.text().to_owned())
    };
    assert_eq!(at("7"), Ok(Seq(7)));
    assert!(at("0").unwrap_err().contains("counted from 1"));
    for (text, why) in [
        ("2000-01-01T00:00:00Z", "the log begins at"),
        ("2200-01-01T00:00:00Z", "is in the future"),
        ("21", "there is no entry 21 yet"),
    ] {
        let said = at(text).unwrap_err();
        assert!(said.contains(why), "{text}: {said}");
    }
    drop((journal, source));
    thread.join().unwrap();
}

/// However many entries of others lie between, and however little time there is.
#[tokio::test]
async fn the_next_entry_of_an_object_is_known() {
    let dir = tempfile::tempdir().unwrap();
    let (journal, thread, source) = begun(dir.path()).await;
    // The first object comes again at the end, as the one that it was.
    write(&journal, &source, 0..1).await;
    for number in (1..4000).filter(|number| number % OBJECTS != 0) {
        source.append(vec![change(number)]).await.unwrap();
    }
    let mut last = change(0);
    last.object.version = ResourceVersion::new("4001".to_owned());
    let body = String::from_utf8(last.object.body.bytes).unwrap();
    last.object.body.bytes = body.replace(":\"1\"", ":\"4001\"").replace(":0}", ":1}").into_bytes();
    source.append(vec![last]).await.unwrap();
    journal.flush().await.unwrap();
    let mut opened = opened(&journal, true);
    let head = opened.reader.head().unwrap();
    opened.deadline = Instant::now();
    let mut next = |seq: Seq| json(entry(&mut opened, OneEntry { seq, neighbours: true }).unwrap())["next"].as_u64();
    assert_eq!((next(Seq(1)), next(head)), (Some(head.0), None));
    let all = read(&mut journal.reader().unwrap(), (0, head.0));
    let (third, after) = (all[2].0, all[3..].iter().find(|entry| entry.3 == all[2].3).unwrap().0);
    assert_eq!(next(Seq(third)), Some(after));
    drop((journal, source));
    thread.join().unwrap();
}

/// What the log says that there was right after an entry: each object's uid, and what its `spec` is.
fn there(reader: &mut Reader, upto: u64) -> BTreeMap<String, (String, String)> {
    let mut found = BTreeMap::new();
    let read = reader.rows_between(Seq(1), Seq(upto), &mut |row| {
        let entry = Entry::parse(&row.entry.line).unwrap();
        let id = format!(
            "pods/{}/{}",
            entry.namespace.as_deref().unwrap_or_default(),
            entry.name.as_deref().unwrap_or_default()
        );
        let object: serde_json::Value = serde_json::from_str(entry.object.unwrap().get()).unwrap();
        match entry.op {
            EntryType::Deleted => found.remove(&id),
            EntryType::Added | EntryType::Modified | EntryType::Gap | EntryType::Actor => {
                found.insert(id, (entry.uid.as_deref().unwrap().to_owned(), object["spec"].to_string()))
            }
        };
        ControlFlow::Continue(())
    });
    read.unwrap();
    found
}

fn between(from: At, to: Option<At>) -> ChangesBetween {
    ChangesBetween { window: Window::default(), from, to, limit: 1000 }
}

fn ask(opened: &mut Opened, question: ChangesBetween) -> Result<serde_json::Value, Failure> {
    changes(opened, &question).map(json)
}

#[tokio::test]
async fn what_became_of_objects_is_what_was_at_both_moments() {
    let dir = tempfile::tempdir().unwrap();
    let (journal, thread, source) = begun(dir.path()).await;
    write(&journal, &source, 0..2300).await;
    let mut opened = opened(&journal, true);
    let mut became = BTreeSet::new();
    let seq = |seq| At::Seq(Seq(seq));
    for (from, to) in [(10, 30), (30, 1100), (900, 1010), (960, 1600), (1, 2300), (1500, 1501), (700, 700)] {
        let (before, after) = (there(&mut opened.reader, from), there(&mut opened.reader, to));
        let mut expected = Vec::new();
        for id in before.keys().chain(after.keys()).collect::<BTreeSet<_>>() {
            let word = match (before.get(id), after.get(id)) {
                (Some(one), Some(other)) if one.0 != other.0 => "replaced",
                (Some(one), Some(other)) if one == other => continue,
                (Some(_), Some(_)) => "changed",
                (None, Some(_)) => "added",
                (_, None) => "removed",
            };
            became.insert(word);
            expected.push((id.clone(), word.to_owned()));
        }
        let answer = ask(&mut opened, between(seq(from), Some(seq(to)))).unwrap();
        let text = |value: &serde_json::Value| value.as_str().unwrap().to_owned();
        let objects = answer["objects"].as_array().unwrap();
        let found: Vec<_> = objects.iter().map(|one| (text(&one["id"]), text(&one["became"]))).collect();
        assert_eq!(found, expected, "{from} to {to}");
        assert_eq!((answer["from"]["seq"].as_u64(), answer["to"]["seq"].as_u64()), (Some(from), Some(to)));
        for one in objects.iter().filter(|one| one["became"] != "added") {
            let seq = one["before"].as_u64().unwrap();
            assert!(seq <= from && one["seq"].as_u64().unwrap() > from, "{one}");
        }
    }
    assert_eq!(became.len(), 4, "{became:?}");
    let some = ChangesBetween { window: window("namespace=n1"), limit: 3, ..between(seq(900), Some(seq(1010))) };
    let some = ask(&mut opened, some).unwrap();
    let objects = some["objects"].as_array().unwrap();
    assert!(objects.len() == 3 && objects.iter().all(|one| one["namespace"] == "n1"), "{some}");
    assert_eq!(some["truncated"], 7);
    opened.deadline = Instant::now();
    let late = ask(&mut opened, between(seq(900), Some(seq(1010)))).unwrap();
    opened.deadline = later();
    assert_eq!((late["objects"].as_array().unwrap().len(), late["truncated"].as_u64().unwrap()), (0, OBJECTS));
    // Without an end it is now.
    assert_eq!(ask(&mut opened, between(seq(2290), None)).unwrap()["to"]["seq"], 2300);
    let whole = ChangesBetween { window: window("quiet=1"), ..between(seq(5), None) };
    for (wrong, key) in
        [(between(seq(9), Some(seq(5))), "from"), (between(seq(5), Some(seq(9999))), "to"), (whole, "quiet")]
    {
        let failure = ask(&mut opened, wrong.clone()).unwrap_err();
        assert_eq!(failure.key(), Some(key), "{wrong:?}: {failure}");
    }
    drop((opened, source, journal));
    thread.join().unwrap();
}

/// What was there before anything was known of it did not come, and so did not come and go; and what an object was when the
/// log began can be compared, however old it is.
#[tokio::test]
async fn what_was_there_before_the_log_is_compared() {
    let dir = tempfile::tempdir().unwrap();
    let (journal, thread, source) = begun(dir.path()).await;
    let change = |verb, name: &str, version| WatchChange { verb, object: observed(name, version) };
    source.append(vec![change(Verb::Upsert, "first", 1)]).await.unwrap();
    source.list_begin().await.unwrap();
    source.list_page(vec![observed("first", 1), observed("found", 2)]).await.unwrap();
    source.list_done(ResourceVersion::new("5".to_owned()), None).await.unwrap();
    let gone = [change(Verb::Delete, "found", 6), change(Verb::Upsert, "short", 7), change(Verb::Delete, "short", 8)];
    source.append(gone.into()).await.unwrap();
    journal.flush().await.unwrap();
    let mut opened = opened(&journal, true);
    let short = |answer: &serde_json::Value| -> Vec<String> {
        let objects = answer["objects"].as_array().unwrap().iter();
        objects.map(|one| format!("{} {} {}", one["name"], one["became"], one["before"]).replace('"', "")).collect()
    };
    let answer = ask(&mut opened, between(At::Seq(Seq(1)), None)).unwrap();
    let reader = &mut opened.reader;
    assert_eq!(short(&answer), ["found removed 2"], "what a first list found is the first state that is known");
    assert_eq!(answer["came_and_went"], 1);

    // Everything is forgotten but how the objects are, and then one of them changes.
    let head = reader.head().unwrap();
    journal.bound(Bounds { max_size: 1 << 40, max_age: Duration::ZERO, drop_oldest: false }).await.unwrap();
    until("the log to be forgotten", || reader.retained().unwrap().oldest == head.0).await;
    source.append(vec![change(Verb::Upsert, "first", 9)]).await.unwrap();
    journal.flush().await.unwrap();
    let whole = Bounds { max_size: 1 << 40, max_age: Duration::from_secs(1 << 30), drop_oldest: false };
    journal.bound(whole).await.unwrap();
    source.append(vec![change(Verb::Upsert, "first", 10)]).await.unwrap();
    journal.flush().await.unwrap();
    let newest = reader.head().unwrap();
    let kept = reader.retained().unwrap().oldest;
    let row = reader.object_of(newest).unwrap().unwrap();
    let pinned = reader.entry_at(&row, Seq(kept - 1)).unwrap().unwrap().seq;
    assert!(pinned.0 < kept && reader.entry(pinned).unwrap().is_none());
    let compared = json(compare(&mut opened, Compare { from: pinned, to: newest }).unwrap());
    assert!(compared["diff"].as_str().unwrap().contains("+   \"n\": 10"), "{}", compared["diff"]);
    assert!(compared["same_object"] == true && compared["command"].is_null(), "no command goes back so far");
    let failure = compare(&mut opened, Compare { from: Seq(2), to: newest }).unwrap_err();
    assert!(failure.text().contains("no longer kept"), "{failure}");
    drop((opened, journal, source));
    thread.join().unwrap();
}
