//! Stretches of which nobody knows what happened.

use super::*;
use crate::core::model::Why;
use crate::journal::{EntryQuery, SourceState};
use crate::query::render::names::At;
use crate::query::timeline::moments::{StateAt, state};

/// What is said to be unwatched, newest last: the resource and its namespace, why, and whether an entry says so.
fn stretches(journal: &Journal, query: &str, watched: bool) -> (Vec<(String, String, bool)>, u64) {
    let most = Lanes { window: window(query), order: Order::Causes, lanes: 10, marks: 10 };
    let shown = json(lanes(&mut opened(journal, watched), &most).unwrap());
    let found = shown["unwatched"].as_array().unwrap().iter().map(|one| {
        let text = |key: &str| one[key].as_str().unwrap().to_owned();
        (format!("{}/{}", text("resource"), text("namespace")), text("why"), one["seq"].is_u64())
    });
    (found.collect(), shown["truncated"]["unwatched"].as_u64().unwrap_or_default())
}

/// Gaps of what nobody asks for take no place, and where there is no room the oldest are left out.
#[tokio::test]
async fn a_stretch_that_matters_is_not_crowded_out() {
    let dir = tempfile::tempdir().unwrap();
    let (journal, thread, source) = begun(dir.path()).await;
    let other = journal.source(&others("services", None)).await.unwrap().0;
    let lists = async |source: &SourceJournal, times: u64, why: Option<Why>| {
        for number in 0..times {
            source.list_begin().await.unwrap();
            source.list_done(ResourceVersion::new((9000 + number).to_string()), why).await.unwrap();
        }
        journal.flush().await.unwrap();
    };
    lists(&other, 1, None).await;
    write(&journal, &source, 0..10).await;
    lists(&source, 1, Some(Why::Expired)).await;
    let mut reader = journal.reader().unwrap();
    let then = reader.time_of(reader.head().unwrap()).unwrap().unwrap();
    lists(&other, 700, Some(Why::Expired)).await;
    source.report(SourceState::Watching).await.unwrap();
    other.report(SourceState::Watching).await.unwrap();
    journal.flush().await.unwrap();

    let pods = ("pods/".to_owned(), "expired".to_owned(), true);
    assert_eq!(stretches(&journal, "what=pods", true), (vec![pods.clone()], 0));
    let until = format!("until={}", crate::query::stamp(then));
    let (found, left) = stretches(&journal, &until, true);
    // The first of the others began before.
    assert!(found.contains(&pods) && found.len() == 2 && left == 0, "{found:?}, and {left}");
    // A file has its own gap, however many are newer.
    let data = single_file::filed(dir.path(), "what=pods");
    let told: Vec<&str> =
        data["overview"]["gaps"].as_array().unwrap().iter().map(|gap| gap["resource"].as_str().unwrap()).collect();
    assert_eq!(told, ["pods"]);
    // Where nobody watches now is never left out.
    let (found, left) = stretches(&journal, "", false);
    let all = reader.select(&gaps(), (Seq(0), None), true, 10_000, None).unwrap().looked + 2;
    assert_eq!((found.len(), left), (500, all as u64 - 500));
    assert_eq!(found.iter().filter(|one| !one.2).map(|one| one.0.as_str()).collect::<Vec<_>>(), ["pods/", "services/"]);
    assert!(!found.contains(&pods), "the oldest is shown, and a newer one is not");
    drop((journal, source, other));
    thread.join().unwrap();
}

fn gaps() -> EntryQuery {
    EntryQuery { types: vec![EntryType::Gap], ..EntryQuery::default() }
}

/// Who lists or recovers does not watch, and neither does who is not configured any more.
#[tokio::test]
async fn what_was_watched_and_is_not_is_hatched() {
    let dir = tempfile::tempdir().unwrap();
    let (journal, thread, source) = begun(dir.path()).await;
    write(&journal, &source, 0..10).await;
    let reader = journal.reader().unwrap();
    let stretch = |of: &str, why: &str| (of.to_owned(), why.to_owned(), false);
    for (state, why) in [
        (SourceState::Watching, None),
        (SourceState::Listing(3), Some("listing")),
        (SourceState::Recovering, Some("recovering")),
        (SourceState::Waiting, Some("waiting")),
        (SourceState::Gone, None),
    ] {
        source.report(state.clone()).await.unwrap();
        journal.flush().await.unwrap();
        let wanted: Vec<_> = why.map(|why| stretch("pods/", why)).into_iter().collect();
        assert_eq!(stretches(&journal, "", true).0, wanted, "{state:?}");
    }

    // Of one that never watched nothing was ever known.
    let first = journal.source(&others("services", None)).await.unwrap().0;
    first.report(SourceState::Listing(0)).await.unwrap();
    journal.retire_source(source.id()).await.unwrap();
    journal.flush().await.unwrap();
    let never = stretch("services/", "listing");
    assert_eq!(stretches(&journal, "", true).0, [never.clone(), stretch("pods/", "removed")]);
    assert_eq!(stretches(&journal, "what=pods&namespace=n1", true).0, [stretch("pods/", "removed")]);
    assert_eq!(stretches(&journal, "what=services", true).0, [never]);
    // And before its first list neither, as long as the log goes back so far.
    first.list_begin().await.unwrap();
    first.list_done(ResourceVersion::new("9000".to_owned()), None).await.unwrap();
    first.report(SourceState::Watching).await.unwrap();
    journal.flush().await.unwrap();
    let known =
        reader.sources().unwrap().iter().find_map(|row| row.good_since.filter(|_| row.id == first.id())).unwrap();
    assert_eq!(stretches(&journal, "what=services", true).0, [stretch("services/", "not_yet")]);
    let later = format!("what=services&since={}", crate::query::stamp(known));
    assert_eq!(stretches(&journal, &later, true).0, []);
    // Who asks what was there is told of what nobody knew.
    let question = StateAt { window: Window::default(), at: Some(At::Seq(Seq(9))), limit: 1000 };
    let then = json(state(&mut opened(&journal, true), &question).unwrap());
    let unknown: Vec<&str> =
        then["unknown"].as_array().unwrap().iter().map(|one| one["resource"].as_str().unwrap()).collect();
    assert!(unknown.contains(&"services"), "{}", then["unknown"]);
    // A second list, and what is told of a part that another one knew, are not its first.
    first.list_begin().await.unwrap();
    first.list_done(ResourceVersion::new("9001".to_owned()), None).await.unwrap();
    let inside = journal.source(&others("services", Some("n1"))).await.unwrap().0;
    inside.list_begin().await.unwrap();
    inside.list_done(ResourceVersion::new("9002".to_owned()), None).await.unwrap();
    inside.report(SourceState::Watching).await.unwrap();
    journal.flush().await.unwrap();
    assert_eq!(stretches(&journal, "what=services", true).0, [stretch("services/", "not_yet")]);
    assert_eq!(stretches(&journal, &later, true).0, []);

    // Another source has a part of it; then all is watched again.
    let part = journal.source(&others("pods", Some("n1"))).await.unwrap().0;
    part.list_begin().await.unwrap();
    part.list_done(ResourceVersion::new("9003".to_owned()), None).await.unwrap();
    part.report(SourceState::Watching).await.unwrap();
    journal.flush().await.unwrap();
    let rest = ["pods/n0", "pods/n2", "pods/n3"].map(|of| stretch(of, "removed"));
    assert_eq!(stretches(&journal, "what=pods", true).0, rest);
    assert_eq!(stretches(&journal, "what=pods&namespace=n1", true).0, [], "others are named to nobody");
    // Who never listed knew nothing that another one would have to say.
    let never = journal.source(&others("widgets", None)).await.unwrap().0;
    never.report(SourceState::Degraded("forbidden".to_owned())).await.unwrap();
    let some = journal.source(&others("widgets", Some("n1"))).await.unwrap().0;
    some.list_begin().await.unwrap();
    some.list_done(ResourceVersion::new("9004".to_owned()), None).await.unwrap();
    some.report(SourceState::Watching).await.unwrap();
    journal.flush().await.unwrap();
    assert_eq!(stretches(&journal, "what=widgets&namespace=n1", true).0, [stretch("widgets/n1", "not_yet")]);
    // A source of another scope begins where the one before it was good last.
    part.list_begin().await.unwrap();
    part.list_done(ResourceVersion::new("9005".to_owned()), Some(Why::Scope)).await.unwrap();
    journal.flush().await.unwrap();
    let most = Lanes { window: window("what=pods&namespace=n1"), order: Order::Causes, lanes: 1, marks: 1 };
    let shown = json(lanes(&mut opened(&journal, true), &most).unwrap());
    let from: Vec<_> = shown["unwatched"].as_array().unwrap().iter().map(|one| one["from"].is_string()).collect();
    assert_eq!(from, [true], "{}", shown["unwatched"]);
    let again = journal.source(&pods()).await.unwrap().0;
    again.report(SourceState::Watching).await.unwrap();
    journal.retire_source(part.id()).await.unwrap();
    journal.flush().await.unwrap();
    assert_eq!(stretches(&journal, "what=pods", true).0, [("pods/n1".to_owned(), "scope".to_owned(), true)]);
    drop((journal, source, first, inside, part, again, never, some));
    thread.join().unwrap();
}
