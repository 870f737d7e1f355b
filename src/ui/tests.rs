//! What is found in outline is what the entries say, by whatever way they come.

mod filters;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

use tokio_util::sync::CancellationToken;

use super::index::{Index, Way};
use super::lanes::{Most, Present, lanes};
use super::query::{Asked, Query};
use super::window::{gather, histogram};
use super::{Access, Book, Books, MOST_READS, OF_ONE, Site, clock, entries, keep_outlines, moments, one_file, page};
use crate::journal::outline::{PART, Part, part_of};
use crate::journal::tests::pods;
use crate::journal::{
    Bounds, EntryQuery, Journal, Reader, Sharing, SinkStart, SourceJournal, SourceState, WatchChange, WriterThread,
};
use crate::model::{EntryType, Observed, Redacted, ResourceVersion, Seq, SourceSpec, Verb, Why};
use crate::query::coverage;
use crate::sim::shared_log::Engine;
use crate::wire::{Change, Entry};

const OBJECTS: u64 = 40;

/// The change with this number: objects come and change, every ninth only in its version, and some go.
fn change(number: u64) -> WatchChange {
    let (object, life) = (number % OBJECTS, number / (OBJECTS * 25));
    let quiet = number.is_multiple_of(9);
    let value = if quiet { (number / OBJECTS).saturating_sub(1) } else { number / OBJECTS };
    let gone = number / OBJECTS % 25 == 24;
    let body = format!(
        r#"{{"metadata":{{"name":"p{object}","namespace":"n{}","uid":"u{object}-{life}","resourceVersion":"{}"}},"spec":{{"n":{value}}}}}"#,
        object % 4,
        number + 1
    );
    let object = Observed {
        namespace: format!("n{}", object % 4),
        name: format!("p{object}"),
        uid: format!("u{object}-{life}"),
        version: ResourceVersion::new((number + 1).to_string()),
        body: Redacted { bytes: body.into_bytes(), pointers: Vec::new(), marks: Vec::new() },
    };
    WatchChange { verb: if gone { Verb::Delete } else { Verb::Upsert }, object }
}

/// The present, up to which the axis goes.
const fn present_at(now: i64, watched: bool) -> Present {
    Present { at: coverage::Present { now, watched }, end: now }
}

async fn begun(dir: &Path) -> (Journal, WriterThread, SourceJournal) {
    let (journal, thread) = Journal::open(dir).unwrap();
    let source = journal.source(&pods()).await.unwrap().0;
    (journal, thread, source)
}

async fn write(journal: &Journal, source: &SourceJournal, numbers: std::ops::Range<u64>) {
    let changes: Vec<WatchChange> = numbers.map(change).collect();
    for group in changes.chunks(500) {
        source.append(group.to_vec()).await.unwrap();
    }
    journal.flush().await.unwrap();
}

/// Waits until it is so; nothing here takes long.
async fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let mut look = tokio::time::interval(Duration::from_millis(5));
    for _ in 0..20_000 {
        look.tick().await;
        if is_so() {
            return;
        }
    }
    panic!("waited in vain for {what}");
}

fn later() -> Instant {
    Instant::now() + Duration::from_secs(3600)
}

/// Everything that a walk comes by.
fn walked(
    index: &Index,
    reader: &mut Reader,
    bounds: (u64, u64),
    way: Way,
) -> Vec<(u64, i64, EntryType, i64, bool, String)> {
    let mut found = Vec::new();
    let cut = index.walk(reader, bounds, way, later(), &mut |part, mark| {
        found.push((mark.seq, mark.time, mark.kind(), mark.object, mark.quiet, part.words(mark).areas));
        ControlFlow::Continue(())
    });
    assert_eq!(cut.unwrap(), None);
    found
}

/// The same, by the entries.
fn read(reader: &mut Reader, bounds: (u64, u64)) -> Vec<(u64, i64, EntryType, i64, bool, String)> {
    let mut found = Vec::new();
    let read = reader.rows_between(Seq(bounds.0 + 1), Seq(bounds.1), &mut |row| {
        let entry = Entry::parse(&row.entry.line).unwrap();
        let areas = Change::of(&entry).unwrap().unwrap_or_default().areas;
        let quiet = entry.op == EntryType::Modified && areas.is_empty();
        found.push((row.entry.seq.0, row.time, entry.op, row.object, quiet, areas.join(",")));
        ControlFlow::Continue(())
    });
    read.unwrap();
    found
}

#[tokio::test]
async fn what_is_seen_in_outline_is_what_the_entries_say() {
    let dir = tempfile::tempdir().unwrap();
    let (journal, thread, source) = begun(dir.path()).await;
    let (index, mut reader) = (Index::default(), journal.reader().unwrap());
    let mut written = 0;
    // The end grows, within a part and over its border.
    for upto in [1, 700, 1000, 1025, 2300, 2310] {
        write(&journal, &source, written..upto).await;
        written = upto;
        let head = reader.head().unwrap().0;
        let all = read(&mut reader, (0, head));
        assert_eq!(walked(&index, &mut reader, (0, u64::MAX), Way::On), all, "{head} entries");
        let mut back = walked(&index, &mut reader, (0, u64::MAX), Way::Back);
        back.reverse();
        assert_eq!(back, all, "{head} entries, newest first");
        let inside = (head / 3, head - head / 4);
        assert_eq!(walked(&index, &mut reader, inside, Way::On), read(&mut reader, inside));
    }
    let all = read(&mut reader, (0, u64::MAX >> 1));
    assert!(
        all.iter().any(|entry| entry.4) && all.iter().any(|entry| entry.2 == EntryType::Deleted),
        "nothing to look at"
    );

    // What the journal keeps says the same, to somebody who has made nothing.
    let stop = CancellationToken::new();
    let keeping = keep_outlines(journal.clone(), stop.clone());
    let whole = part_of(all.len() as u64 + 1);
    let kept = until("the outlines to be kept", || reader.outlined(0, 99).unwrap() == (0..whole).collect::<Vec<_>>());
    tokio::select! {
        ended = keeping => panic!("{ended:?}"),
        () = kept => {}
    }
    assert!(whole >= 2, "{whole} parts");
    assert_eq!(walked(&Index::default(), &mut reader, (0, u64::MAX), Way::On), all);

    // One of another form is as good as none.
    journal.outline(0, vec![99]).await.unwrap();
    journal.flush().await.unwrap();
    let keeping = keep_outlines(journal.clone(), stop.clone());
    let kept = until("it to be made again", || reader.outline(0).unwrap().and_then(Part::read).is_some());
    tokio::select! {
        ended = keeping => panic!("{ended:?}"),
        () = kept => {}
    }
    assert_eq!(walked(&Index::default(), &mut reader, (0, u64::MAX), Way::On), all);

    // They go with the entries.
    journal.bound(Bounds { max_size: 1 << 40, max_age: Duration::ZERO, drop_oldest: false }).await.unwrap();
    until("all but the newest to be truncated", || reader.retained().unwrap().oldest == all.len() as u64).await;
    assert_eq!(reader.outlined(0, 99).unwrap(), Vec::<u64>::new());
    assert_eq!(walked(&index, &mut reader, (0, u64::MAX), Way::On), all[all.len() - 1..]);
    drop((journal, source));
    thread.join().unwrap();
}

#[tokio::test]
async fn an_outline_of_another_journal_is_none_of_this_one() {
    let (index, mut seen) = (Index::default(), Vec::new());
    for count in [1500, 1400] {
        let dir = tempfile::tempdir().unwrap();
        let (journal, thread, source) = begun(dir.path()).await;
        write(&journal, &source, 0..count).await;
        let mut reader = journal.reader().unwrap();
        let all = read(&mut reader, (0, u64::MAX >> 1));
        assert_eq!(walked(&index, &mut reader, (0, u64::MAX), Way::On), all);
        seen.push(all);
        drop((journal, source));
        thread.join().unwrap();
    }
    assert_ne!(seen[0][0], seen[1][0], "the two journals have the same entries, so the test looks at nothing");
}

#[tokio::test]
async fn a_window_is_the_same_by_outlines_and_by_expressions() {
    let dir = tempfile::tempdir().unwrap();
    let (journal, thread, source) = begun(dir.path()).await;
    write(&journal, &source, 0..2600).await;
    let (index, mut reader, clock) = (Index::default(), journal.reader().unwrap(), clock());
    let now = clock.now.as_microsecond() + 1;
    let all = read(&mut reader, (0, u64::MAX >> 1));
    let counted = |reader: &mut Reader, query: &str| {
        let asked = Asked::read(&Query::read(query).unwrap(), reader, &clock).unwrap();
        let answer = histogram(&index, reader, &asked, 7, now, later()).unwrap();
        let answer = serde_json::to_value(answer).unwrap();
        (answer["buckets"].clone(), answer["quiet"].clone(), answer["total"].as_u64().unwrap())
    };
    for (one, other, wanted) in [
        ("", "where=true", all.len()),
        (
            "type=DELETED",
            "where=type%20%3D%3D%20%22DELETED%22",
            all.iter().filter(|entry| entry.2 == EntryType::Deleted).count(),
        ),
        ("namespace=n1", "where=namespace%20%3D%3D%20%22n1%22", all.len() / 4),
        ("what=po/p7", "where=name%20%3D%3D%20%22p7%22", all.len() / usize::try_from(OBJECTS).unwrap()),
    ] {
        let (fast, slow) = (counted(&mut reader, one), counted(&mut reader, other));
        assert_eq!(fast, slow, "{one}");
        assert_eq!(fast.2, wanted as u64, "{one}");
    }

    // What is left out is counted, and what is shown is the newest.
    let asked = Asked::read(&Query::default(), &reader, &clock).unwrap();
    let bounds = asked.bounds(&reader, reader.head().unwrap()).unwrap();
    let whole = gather(&index, &mut reader, &asked, bounds, (1000, 100_000), later()).unwrap();
    let real = all.iter().filter(|entry| !entry.4).count();
    let marks = |found: &super::window::Gathered| {
        let marks = found.lanes.iter().flat_map(|(_, lane)| lane.marks.iter());
        marks.filter(|mark| mark.kind_of != "QUIET").map(|mark| mark.seq).collect::<BTreeSet<u64>>()
    };
    assert_eq!(
        (whole.lanes.len() as u64, whole.lanes_left, whole.marks_left, marks(&whole).len()),
        (OBJECTS, 0, 0, real)
    );
    let quiet: u64 = whole.lanes.iter().map(|(_, lane)| lane.quiet).sum();
    assert_eq!(usize::try_from(quiet).unwrap() + real, all.len());
    let few = gather(&index, &mut reader, &asked, bounds, (5, 30), later()).unwrap();
    assert_eq!((few.lanes.len(), few.lanes_left as u64, marks(&few).len()), (5, OBJECTS - 5, 30));
    assert_eq!(usize::try_from(few.marks_left).unwrap() + 30, real, "each is shown or counted");
    let mut newest: BTreeMap<i64, u64> = BTreeMap::new();
    for entry in all.iter().filter(|entry| !entry.4) {
        newest.insert(entry.3, entry.0);
    }
    let mut order: Vec<(u64, i64)> = newest.into_iter().map(|(object, seq)| (seq, object)).collect();
    order.sort_unstable_by(|one, other| other.cmp(one));
    let wanted: BTreeSet<i64> = order.iter().take(5).map(|(_, object)| *object).collect();
    assert_eq!(
        few.lanes.iter().map(|(object, _)| *object).collect::<BTreeSet<_>>(),
        wanted,
        "those to which something happened last"
    );

    // A bar for each life.
    let present = present_at(now, true);
    let shown = lanes(&index, &mut reader, &asked, Most { lanes: 100, marks: 100_000 }, present, later()).unwrap();
    let shown = serde_json::to_value(shown).unwrap();
    for lane in shown["lanes"].as_array().unwrap() {
        let bars: Vec<&str> = lane["bars"].as_array().unwrap().iter().map(|bar| bar["uid"].as_str().unwrap()).collect();
        let number = lane["name"].as_str().unwrap().trim_start_matches('p').to_owned();
        let lives = 2600_u64.div_ceil(OBJECTS * 25);
        assert_eq!(bars, (0..lives).map(|life| format!("u{number}-{life}")).collect::<Vec<_>>(), "{lane}");
    }
    // The same bars, whatever is asked for of the objects.
    for (query, kind) in [
        ("type=ADDED", "ADDED"),
        ("where=type%20%3D%3D%20%22ADDED%22", "ADDED"),
        ("type=MODIFIED&quiet=1&area=spec", "MODIFIED"),
    ] {
        let asked = Asked::read(&Query::read(query).unwrap(), &reader, &clock).unwrap();
        let few = lanes(&index, &mut reader, &asked, Most { lanes: 100, marks: 100_000 }, present, later()).unwrap();
        let few = serde_json::to_value(few).unwrap();
        for (lane, whole) in few["lanes"].as_array().unwrap().iter().zip(shown["lanes"].as_array().unwrap()) {
            assert_eq!((&lane["id"], &lane["bars"]), (&whole["id"], &whole["bars"]), "{query}");
            assert!(lane["marks"].as_array().unwrap().iter().all(|mark| mark["type"] == kind), "{query}: {lane}");
        }
        assert_eq!(few["lanes"].as_array().unwrap().len() as u64, OBJECTS, "{query}");
    }
    drop((journal, source));
    thread.join().unwrap();
}

/// An answer has its time, and says from where on it is whole.
#[tokio::test]
async fn what_takes_too_long_is_left_out_and_said() {
    let dir = tempfile::tempdir().unwrap();
    let (journal, thread, source) = begun(dir.path()).await;
    let (mut reader, clock, mut written) = (journal.reader().unwrap(), clock(), 0);
    // The second end lies shortly after the border of two parts.
    for upto in [2 * PART + 952, 3 * PART + 52] {
        write(&journal, &source, written..upto).await;
        written = upto;
        let now = clock.now.as_microsecond() + 3_600_000_000;
        for query in ["", "where=true"] {
            let asked = Asked::read(&Query::read(query).unwrap(), &reader, &clock).unwrap();
            let answer = histogram(&Index::default(), &mut reader, &asked, 10, now, Instant::now()).unwrap();
            let answer = serde_json::to_value(answer).unwrap();
            let total = answer["total"].as_u64().unwrap();
            assert!((1..=PART).contains(&total), "{query}: {answer}");
            let first = reader.head().unwrap().0 - total + 1;
            let before = answer["truncated"]["before"].as_str().unwrap();
            assert_eq!(before, crate::query::stamp(reader.time_of(Seq(first)).unwrap().unwrap()), "{query}");
        }
    }
    drop((journal, source));
    thread.join().unwrap();
}

fn others(plural: &str, namespace: Option<&str>) -> SourceSpec {
    let mut spec = pods();
    spec.resource.plural = plural.into();
    spec.resource.kind = plural.into();
    spec.resource.singular.clear();
    spec.resource.short_names.clear();
    SourceSpec { namespace: namespace.map(str::to_owned), ..spec }
}

/// What is said to be unwatched, newest last: the resource and its namespace, why, and whether an entry says so.
fn stretches(reader: &mut Reader, query: &str, watched: bool) -> (Vec<(String, String, bool)>, u64) {
    let clock = clock();
    let asked = Asked::read(&Query::read(query).unwrap(), reader, &clock).unwrap();
    let now = clock.now.as_microsecond() + 3_600_000_000;
    let present = present_at(now, watched);
    let most = Most { lanes: 10, marks: 10 };
    let shown = lanes(&Index::default(), reader, &asked, most, present, later()).unwrap();
    let shown = serde_json::to_value(shown).unwrap();
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
    assert_eq!(stretches(&mut reader, "what=pods", true), (vec![pods.clone()], 0));
    let until = format!("until={}", crate::query::stamp(then));
    let (found, left) = stretches(&mut reader, &until, true);
    // The first of the others began before.
    assert!(found.contains(&pods) && found.len() == 2 && left == 0, "{found:?}, and {left}");
    // A file has its own gap, however many are newer.
    let data = filed(&mut reader, dir.path(), &[("what", "pods")]);
    let told: Vec<&str> =
        data["overview"]["gaps"].as_array().unwrap().iter().map(|gap| gap["resource"].as_str().unwrap()).collect();
    assert_eq!(told, ["pods"]);
    // Where nobody watches now is never left out.
    let (found, left) = stretches(&mut reader, "", false);
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
    let mut reader = journal.reader().unwrap();
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
        assert_eq!(stretches(&mut reader, "", true).0, wanted, "{state:?}");
    }

    // Of one that never watched nothing was ever known.
    let first = journal.source(&others("services", None)).await.unwrap().0;
    first.report(SourceState::Listing(0)).await.unwrap();
    journal.retire_source(source.id()).await.unwrap();
    journal.flush().await.unwrap();
    let never = stretch("services/", "listing");
    assert_eq!(stretches(&mut reader, "", true).0, [never.clone(), stretch("pods/", "removed")]);
    assert_eq!(stretches(&mut reader, "what=pods&namespace=n1", true).0, [stretch("pods/", "removed")]);
    assert_eq!(stretches(&mut reader, "what=services", true).0, [never]);
    // And before its first list neither, as long as the log goes back so far.
    first.list_begin().await.unwrap();
    first.list_done(ResourceVersion::new("9000".to_owned()), None).await.unwrap();
    first.report(SourceState::Watching).await.unwrap();
    journal.flush().await.unwrap();
    let known =
        reader.sources().unwrap().iter().find_map(|row| row.good_since.filter(|_| row.id == first.id())).unwrap();
    assert_eq!(stretches(&mut reader, "what=services", true).0, [stretch("services/", "not_yet")]);
    let later = format!("what=services&since={}", crate::query::stamp(known));
    assert_eq!(stretches(&mut reader, &later, true).0, []);
    // Who asks what was there is told of what nobody knew.
    let clock = clock();
    let query = Query::read("at=9").unwrap();
    let asked = Asked::read(&query, &reader, &clock).unwrap();
    let present = present_at(known + 1, true);
    let then = moments::state(&Index::default(), &mut reader, &asked, &query, (&clock, present), super::tests::later())
        .unwrap();
    let then = serde_json::to_value(then).unwrap();
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
    assert_eq!(stretches(&mut reader, "what=services", true).0, [stretch("services/", "not_yet")]);
    assert_eq!(stretches(&mut reader, &later, true).0, []);

    // Another source has a part of it; then all is watched again.
    let part = journal.source(&others("pods", Some("n1"))).await.unwrap().0;
    part.list_begin().await.unwrap();
    part.list_done(ResourceVersion::new("9003".to_owned()), None).await.unwrap();
    part.report(SourceState::Watching).await.unwrap();
    journal.flush().await.unwrap();
    let rest = ["pods/n0", "pods/n2", "pods/n3"].map(|of| stretch(of, "removed"));
    assert_eq!(stretches(&mut reader, "what=pods", true).0, rest);
    assert_eq!(stretches(&mut reader, "what=pods&namespace=n1", true).0, [], "others are named to nobody");
    // Who never listed knew nothing that another one would have to say.
    let never = journal.source(&others("widgets", None)).await.unwrap().0;
    never.report(SourceState::Degraded("forbidden".to_owned())).await.unwrap();
    let some = journal.source(&others("widgets", Some("n1"))).await.unwrap().0;
    some.list_begin().await.unwrap();
    some.list_done(ResourceVersion::new("9004".to_owned()), None).await.unwrap();
    some.report(SourceState::Watching).await.unwrap();
    journal.flush().await.unwrap();
    assert_eq!(stretches(&mut reader, "what=widgets&namespace=n1", true).0, [stretch("widgets/n1", "not_yet")]);
    // A source of another scope begins where the one before it was good last.
    part.list_begin().await.unwrap();
    part.list_done(ResourceVersion::new("9005".to_owned()), Some(Why::Scope)).await.unwrap();
    journal.flush().await.unwrap();
    let asked = Asked::read(&Query::read("what=pods&namespace=n1").unwrap(), &reader, &clock).unwrap();
    let now = clock.now.as_microsecond() + 3_600_000_000;
    let present = present_at(now, true);
    let most = Most { lanes: 1, marks: 1 };
    let shown = lanes(&Index::default(), &mut reader, &asked, most, present, super::tests::later());
    let shown = serde_json::to_value(shown.unwrap()).unwrap();
    let from: Vec<_> = shown["unwatched"].as_array().unwrap().iter().map(|one| one["from"].is_string()).collect();
    assert_eq!(from, [true], "{}", shown["unwatched"]);
    let again = journal.source(&pods()).await.unwrap().0;
    again.report(SourceState::Watching).await.unwrap();
    journal.retire_source(part.id()).await.unwrap();
    journal.flush().await.unwrap();
    assert_eq!(stretches(&mut reader, "what=pods", true).0, [("pods/n1".to_owned(), "scope".to_owned(), true)]);
    drop((journal, source, first, inside, part, again, never, some));
    thread.join().unwrap();
}

/// A disk that hangs is of one cluster, and so is the page that does not come; however many hang.
#[tokio::test]
async fn a_journal_that_hangs_takes_the_page_of_no_other() {
    let dirs = [(); 4].map(|()| tempfile::tempdir().unwrap());
    for dir in &dirs {
        let (journal, thread) = Journal::open(dir.path()).unwrap();
        drop(journal);
        thread.join().unwrap();
    }
    let books = dirs.each_ref().map(|dir| Arc::new(Book::new(dir.path().to_owned())));
    let mut site = Site::new(Books::One(Arc::clone(&books[0])), Access::Everybody, Vec::new());
    // Whoever waits for a turn of all gets it once it is clear that somebody hangs.
    site.hangs = Duration::from_millis(100);
    let (release, hung) = mpsc::channel::<()>();
    let hung = Arc::new(Mutex::new(hung));
    let [other, hanging @ ..] = &books;
    assert!(hanging.len() * OF_ONE > MOST_READS);
    let mut waiting: Vec<_> = hanging
        .iter()
        .flat_map(|book| [book; MOST_READS])
        .map(|book| {
            let hung = Arc::clone(&hung);
            Box::pin(site.read(book, move |_| {
                assert!(hung.lock().unwrap().recv().is_err());
                Ok(())
            }))
        })
        .collect();
    for read in &mut waiting {
        assert!(futures::poll!(read.as_mut()).is_pending());
    }
    let answered = site.read(other, |reader| Ok(reader.head()?)).await;
    drop(release);
    assert_eq!(answered, Ok(Seq(0)));
    for read in waiting {
        read.await.unwrap();
    }
}

/// The data of a file, which somebody may get who may see no more.
fn filed(reader: &mut Reader, dir: &Path, keys: &[(&'static str, &str)]) -> serde_json::Value {
    let keys = keys.iter().map(|(key, value)| (*key, (*value).to_owned())).collect();
    let page = one_file(reader, dir, keys, 1 << 20).unwrap();
    let data = page.html.split("id=\"decklog-data\">").nth(1).unwrap().split("</script>").next().unwrap();
    serde_json::from_str(data).unwrap()
}

#[tokio::test]
async fn a_file_names_nothing_but_what_was_asked_for() {
    let dir = tempfile::tempdir().unwrap();
    let (journal, thread, source) = begun(dir.path()).await;
    write(&journal, &source, 0..400).await;
    let other = journal.source(&others("services", Some("n3"))).await.unwrap().0;
    let sink = journal.sink("archive", "file", SinkStart::Now).await.unwrap();
    journal.flush().await.unwrap();
    let mut reader = journal.reader().unwrap();
    // However many objects a command names, what comes after them counts.
    let mut many = vec![("what", "po/p1"); 300];
    many.push(("namespace", "n1"));
    for query in [&[("namespace", "n1")][..], &[("what", "po/p1")], &[("what", "pods"), ("namespace", "n1")], &many] {
        let data = filed(&mut reader, dir.path(), query);
        let query = format!("{:?}", query.last());
        let overview = &data["overview"];
        assert_eq!(overview["namespaces"], serde_json::json!(["n1"]), "{query}");
        assert_eq!(overview["kinds"].as_array().unwrap().len(), 1, "{query}: {overview}");
        let text = data.to_string();
        for name in ["\"n0\"", "\"n3\"", "\"p2\"", "services", "archive"] {
            assert!(!text.contains(name), "{query}: {name} in {text}");
        }
        assert!(!data["churn"]["writers"].as_array().unwrap().is_empty(), "{query}");
        assert_eq!(data["churn"]["since"], data["lanes"]["since"], "{query}");
    }
    let data = filed(&mut reader, dir.path(), &[]);
    assert_eq!(data["overview"]["namespaces"].as_array().unwrap().len(), 4);
    assert_eq!(data["overview"]["sinks"][0]["name"], "archive");
    // Who wrote what is of what the expression says.
    let data = filed(&mut reader, dir.path(), &[("where", "name == \"p7\"")]);
    let writers = data["churn"]["writers"].as_array().unwrap();
    assert!(writers.len() == 1 && writers[0]["name"] == "p7", "{writers:?}");
    drop((journal, source, other, sink));
    thread.join().unwrap();
}

/// Who has stood by makes the outlines once it leads.
#[tokio::test]
async fn who_takes_over_makes_the_outlines() {
    let (a, b) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let engine = Engine::default();
    let shared = |dir: &Path, identity: &str| {
        let sharing = Sharing {
            log: Box::new(engine.clone()),
            identity: identity.to_owned(),
            backlog: 1 << 20,
            key: "key".to_owned(),
            poll: Duration::from_millis(5),
            worth_a_base: u64::MAX / 2,
        };
        Journal::open_shared(dir, sharing).unwrap()
    };
    let (one, one_thread) = shared(a.path(), "one");
    one.lead().await.unwrap().unwrap();
    let source = one.source(&pods()).await.unwrap().0;
    let (two, two_thread) = shared(b.path(), "two");
    let stop = CancellationToken::new();
    let keeping = keep_outlines(two.clone(), stop.clone());
    let reader = two.reader().unwrap();
    let story = async {
        for part in 0..3 {
            write(&one, &source, part * PART..(part + 1) * PART).await;
            until("the standby to follow", || reader.head().unwrap() == Seq((part + 1) * PART)).await;
        }
        two.lead().await.unwrap().unwrap();
        until("the outlines to be kept", || reader.outlined(0, 99).unwrap() == [0, 1, 2]).await;
    };
    tokio::select! {
        ended = keeping => panic!("{ended:?}"),
        () = story => {}
    }
    drop((one, two, source));
    drop(one_thread.join());
    two_thread.join().unwrap();
}

/// A file says why something is not in it, and from when on it is whole.
#[tokio::test]
async fn a_file_says_what_there_was_no_time_for() {
    let dir = tempfile::tempdir().unwrap();
    let (journal, thread, source) = begun(dir.path()).await;
    write(&journal, &source, 0..2 * PART + 50).await;
    let (mut reader, clock) = (journal.reader().unwrap(), clock());
    let asked = Asked::read(&Query::default(), &reader, &clock).unwrap();
    let mut left_out = |most: usize, deadline: Instant| {
        let index = Index::default();
        page::one_file(&index, &mut reader, dir.path(), &asked, &clock, (most, deadline)).unwrap().left_out.unwrap()
    };
    let said = left_out(1 << 20, Instant::now());
    assert!(said.contains("without what changed, because it took more than 120 seconds"), "{said}");
    assert!(said.contains("was not looked at") && !said.contains("MiB"), "{said}");
    let said = left_out(1 << 10, later());
    assert!(said.contains("because it would have more than 1.0 KiB") && !said.contains("seconds"), "{said}");
    let first = reader.time_of(Seq(2 * PART + 1)).unwrap().unwrap();
    let said = page::one_file(&Index::default(), &mut reader, dir.path(), &asked, &clock, (1, Instant::now())).unwrap();
    let said = said.left_out.unwrap();
    assert!(said.contains(&format!("before {} ", crate::query::stamp(first))), "{said}");
    drop((journal, source));
    thread.join().unwrap();
}

#[tokio::test]
async fn nothing_is_said_of_a_moment_of_which_nothing_is_known() {
    let dir = tempfile::tempdir().unwrap();
    let (journal, thread, source) = begun(dir.path()).await;
    write(&journal, &source, 0..20).await;
    let mut reader = journal.reader().unwrap();
    let clock = clock();
    let mut at = |at: &str| {
        let query = Query::read(&format!("at={at}")).unwrap();
        moments::place(&mut reader, &query, "at", &clock)
            .map(|place| place.unwrap().seq)
            .map_err(|problem| problem.text)
    };
    assert_eq!(at("7"), Ok(Seq(7)));
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
    let (mut reader, clock) = (journal.reader().unwrap(), clock());
    let head = reader.head().unwrap();
    let mut next = |seq: Seq| {
        let whole = entries::entry(&Index::default(), &mut reader, seq, &clock, true, Instant::now()).unwrap();
        serde_json::to_value(whole).unwrap()["next"].as_u64()
    };
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
            EntryType::Added | EntryType::Modified | EntryType::Gap => {
                found.insert(id, (entry.uid.as_deref().unwrap().to_owned(), object["spec"].to_string()))
            }
        };
        ControlFlow::Continue(())
    });
    read.unwrap();
    found
}

#[tokio::test]
async fn what_became_of_objects_is_what_was_at_both_moments() {
    let dir = tempfile::tempdir().unwrap();
    let (journal, thread, source) = begun(dir.path()).await;
    write(&journal, &source, 0..2300).await;
    let mut reader = journal.reader().unwrap();
    let (clock, mut became) = (clock(), BTreeSet::new());
    let now = clock.now.as_microsecond();
    let present = present_at(now, true);
    let ask = |reader: &mut Reader, text: &str, deadline| {
        let query = Query::read(text).unwrap();
        let asked = Asked::read(&query, reader, &clock).unwrap();
        serde_json::to_value(moments::changes(reader, &asked, &query, &clock, present, deadline).unwrap()).unwrap()
    };
    for (from, to) in [(10, 30), (30, 1100), (900, 1010), (960, 1600), (1, 2300), (1500, 1501), (700, 700)] {
        let (before, after) = (there(&mut reader, from), there(&mut reader, to));
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
        let answer = ask(&mut reader, &format!("from={from}&to={to}"), later());
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
    let some = ask(&mut reader, "from=900&to=1010&namespace=n1&limit=3", later());
    let objects = some["objects"].as_array().unwrap();
    assert!(objects.len() == 3 && objects.iter().all(|one| one["namespace"] == "n1"), "{some}");
    assert_eq!(some["truncated"], 7);
    let late = ask(&mut reader, "from=900&to=1010", Instant::now());
    assert_eq!((late["objects"].as_array().unwrap().len(), late["truncated"].as_u64().unwrap()), (0, OBJECTS));
    // Without an end it is now.
    assert_eq!(ask(&mut reader, "from=2290", later())["to"]["seq"], 2300);
    for (wrong, key) in [("to=5", "from"), ("from=9&to=5", "from"), ("from=5&to=9999", "to"), ("from=x", "from")] {
        let query = Query::read(wrong).unwrap();
        let asked = Asked::read(&query, &reader, &clock).unwrap();
        let problem = moments::changes(&mut reader, &asked, &query, &clock, present, later()).unwrap_err();
        assert_eq!(problem.key, Some(key), "{wrong}: {}", problem.text);
    }
    drop((reader, source, journal));
    thread.join().unwrap();
}

/// An owner whose own entries nobody asks for stands above its objects, and is no longer there than it was.
#[tokio::test]
async fn an_owner_that_nobody_asked_for_is_there_while_it_was() {
    let dir = tempfile::tempdir().unwrap();
    let (journal, thread, source) = begun(dir.path()).await;
    let owners = journal.source(&others("services", None)).await.unwrap().0;
    let mut version = 0;
    let mut change = |name: &str, verb: Verb, owner: Option<&str>| {
        version += 1;
        let owner = owner.map_or_else(Vec::new, |owner| {
            vec![serde_json::json!({"apiVersion": "v1", "kind": "services", "name": owner, "uid": owner, "controller": true})]
        });
        let metadata = serde_json::json!({
            "name": name, "namespace": "shop", "uid": name, "resourceVersion": version.to_string(), "ownerReferences": owner,
        });
        let body = serde_json::json!({"metadata": metadata, "spec": {"version": version}}).to_string().into_bytes();
        let body = Redacted { bytes: body, pointers: Vec::new(), marks: Vec::new() };
        let (namespace, name, uid) = ("shop".to_owned(), name.to_owned(), name.to_owned());
        WatchChange {
            verb,
            object: Observed { namespace, name, uid, version: ResourceVersion::new(version.to_string()), body },
        }
    };
    owners.append(vec![change("early", Verb::Upsert, None)]).await.unwrap();
    journal.flush().await.unwrap();
    let mut reader = journal.reader().unwrap();
    let since = reader.time_of(Seq(1)).unwrap().unwrap() + 1;
    owners.append(vec![change("boss", Verb::Upsert, None), change("boss", Verb::Upsert, None)]).await.unwrap();
    let children = ["boss", "early"].map(|owner| change(&format!("of-{owner}"), Verb::Upsert, Some(owner)));
    source.append(children.into()).await.unwrap();
    owners.append(vec![change("boss", Verb::Delete, None), change("early", Verb::Upsert, None)]).await.unwrap();
    journal.flush().await.unwrap();
    let clock = clock();
    let text = format!("since={}&where=kind+%3D%3D+%22Pod%22", crate::query::stamp(since));
    let asked = Asked::read(&Query::read(&text).unwrap(), &reader, &clock).unwrap();
    let present = present_at(clock.now.as_microsecond(), true);
    let most = Most { lanes: 10, marks: 10 };
    let shown = lanes(&Index::default(), &mut reader, &asked, most, present, later()).unwrap();
    let shown = serde_json::to_value(shown).unwrap();
    let told: Vec<String> = shown["lanes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|lane| {
            let bars = lane["bars"].as_array().unwrap().iter();
            let bars: Vec<String> = bars.map(|bar| format!("{} to {}", bar["from_how"], bar["to_how"])).collect();
            format!("{} {}: {}", lane["depth"], lane["name"], bars.join(", ")).replace('"', "")
        })
        .collect();
    let expected = [
        "0 boss: watched to watched",
        "1 of-boss: watched to open",
        "0 early: before to open",
        "1 of-early: watched to open",
    ];
    assert_eq!(told, expected);
    drop((reader, journal, source, owners));
    thread.join().unwrap();
}

fn observed(name: &str, version: u64) -> Observed {
    let body = format!(
        r#"{{"metadata":{{"name":"{name}","namespace":"shop","uid":"{name}","resourceVersion":"{version}"}},"spec":{{"n":{version}}}}}"#
    );
    let body = Redacted { bytes: body.into_bytes(), pointers: Vec::new(), marks: Vec::new() };
    let (namespace, name, uid) = ("shop".to_owned(), name.to_owned(), name.to_owned());
    Observed { namespace, name, uid, version: ResourceVersion::new(version.to_string()), body }
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
    let (mut reader, clock) = (journal.reader().unwrap(), clock());
    let present = present_at(clock.now.as_microsecond(), true);
    let ask = |reader: &mut Reader, text: &str| {
        let query = Query::read(text).unwrap();
        let asked = Asked::read(&query, reader, &clock).unwrap();
        let found = moments::changes(reader, &asked, &query, &clock, present, later()).unwrap();
        serde_json::to_value(found).unwrap()
    };
    let short = |answer: &serde_json::Value| -> Vec<String> {
        let objects = answer["objects"].as_array().unwrap().iter();
        objects.map(|one| format!("{} {} {}", one["name"], one["became"], one["before"]).replace('"', "")).collect()
    };
    let answer = ask(&mut reader, "from=1");
    assert_eq!(short(&answer), ["found removed null"]);
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
    let compared = entries::diff(&mut reader, pinned, newest, &clock).unwrap();
    let compared = serde_json::to_value(compared).unwrap();
    assert!(compared["diff"].as_str().unwrap().contains("+   \"n\": 10"), "{}", compared["diff"]);
    assert!(compared["same_object"] == true && compared["command"].is_null(), "no command goes back so far");
    let problem = entries::diff(&mut reader, Seq(2), newest, &clock).map(drop).unwrap_err();
    assert!(problem.text.contains("no longer kept"), "{}", problem.text);
    drop((reader, journal, source));
    thread.join().unwrap();
}
