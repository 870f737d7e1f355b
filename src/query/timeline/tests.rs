//! What is found in outline is what the entries say, by whatever way they come.

mod coverage;
mod filters;
mod moments;
mod outlines;
mod single_file;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::path::Path;
use std::time::{Duration, Instant};

use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};

use super::Opened;
use super::lanes::{Lanes, lanes};
use super::order::{Effort, Order, Ranks};
use super::outlines::Index;
use super::selection::Window;
use super::window::{Found, Histogram, Most, gather, histogram};
use crate::core::model::{EntryType, Observed, Redacted, ResourceVersion, Seq, SourceSpec, Verb};
use crate::core::wire::{Change, Entry};
use crate::journal::outline::PART;
use crate::journal::tests::pods;
use crate::journal::{Journal, Reader, SourceJournal, WatchChange, WriterThread};
use crate::query::render::clock::Clock;

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

/// The window of keys and values that stand apart by `&`.
fn window(text: &str) -> Window {
    let mut window = Window::default();
    for (key, value) in text.split('&').filter_map(|pair| pair.split_once('=')) {
        let list = || value.split(',').map(str::to_owned);
        match key {
            "what" => window.objects.extend(list()),
            "namespace" => window.namespaces.extend(list()),
            "type" => window.types.extend(list().map(|word| EntryType::parse(&word).unwrap())),
            "area" => window.areas.extend(list()),
            "by" => window.by.extend(list()),
            "since" => window.since = Some(value.parse().unwrap()),
            "until" => window.until = Some(value.parse().unwrap()),
            "where" => window.filter = Some(value.to_owned()),
            "quiet" => window.quiet = true,
            other => panic!("{other}"),
        }
    }
    window
}

/// The log of a journal an hour from now, with as much time as it takes.
fn opened(journal: &Journal, watched: bool) -> Opened {
    let clock = Clock { now: Timestamp::now() + SignedDuration::from_hours(1), zone: TimeZone::UTC };
    let (reader, index) = (journal.reader().unwrap(), Index::default());
    Opened { reader, index, dir: std::path::PathBuf::new(), clock, deadline: later(), watched }
}

/// An answer, as JSON.
fn json(answer: impl serde::Serialize) -> serde_json::Value {
    serde_json::to_value(answer).unwrap()
}

async fn begun(dir: &Path) -> (Journal, WriterThread, SourceJournal) {
    let (journal, thread) = Journal::open(dir).unwrap();
    let source = journal.source(&pods()).await.unwrap().0;
    (journal, thread, source)
}

async fn write(journal: &Journal, source: &SourceJournal, numbers: std::ops::Range<u64>) {
    let changes: Vec<WatchChange> = numbers.map(change).collect();
    for group in changes.chunks(100) {
        source.append(group.to_vec()).await.unwrap();
        // What waits for seconds gets the time at which it was handed over, which is before that of the entries before it.
        journal.flush().await.unwrap();
    }
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
async fn a_window_is_the_same_by_outlines_and_by_expressions() {
    let dir = tempfile::tempdir().unwrap();
    let (journal, thread, source) = begun(dir.path()).await;
    write(&journal, &source, 0..2600).await;
    let mut opened = opened(&journal, true);
    let all = read(&mut opened.reader, (0, u64::MAX >> 1));
    let counted = |opened: &mut Opened, query: &str| {
        let answer = json(histogram(opened, &Histogram { window: window(query), buckets: 7 }).unwrap());
        (answer["buckets"].clone(), answer["quiet"].clone(), answer["total"].as_u64().unwrap())
    };
    for (one, other, wanted) in [
        ("", "where=true", all.len()),
        ("type=DELETED", "where=type == \"DELETED\"", all.iter().filter(|entry| entry.2 == EntryType::Deleted).count()),
        ("namespace=n1", "where=namespace == \"n1\"", all.len() / 4),
        ("what=po/p7", "where=name == \"p7\"", all.len() / usize::try_from(OBJECTS).unwrap()),
    ] {
        let (fast, slow) = (counted(&mut opened, one), counted(&mut opened, other));
        assert_eq!(fast, slow, "{one}");
        assert_eq!(fast.2, wanted as u64, "{one}");
    }

    // What is left out is counted, and what is shown is the newest.
    let Opened { reader, index, .. } = &mut opened;
    let selected = Window::default().resolve(reader).unwrap();
    let bounds = selected.bounds(reader, reader.head().unwrap()).unwrap();
    let whole =
        gather(index, reader, &selected, bounds, Most { lanes: 1000, marks: 100_000, first: None }, later()).unwrap();
    let real = all.iter().filter(|entry| !entry.4).count();
    let marks = |found: &crate::query::timeline::window::Gathered| {
        let marks = found.lanes.iter().flat_map(|(_, lane)| lane.marks.iter());
        marks.filter(|mark| mark.kind_of != "QUIET").map(|mark| mark.seq).collect::<BTreeSet<u64>>()
    };
    assert_eq!(
        (whole.lanes.len() as u64, whole.lanes_left, whole.marks_left, marks(&whole).len()),
        (OBJECTS, 0, 0, real)
    );
    let quiet: u64 = whole.lanes.iter().map(|(_, lane)| lane.quiet).sum();
    assert_eq!(usize::try_from(quiet).unwrap() + real, all.len());
    let few = gather(index, reader, &selected, bounds, Most { lanes: 5, marks: 30, first: None }, later()).unwrap();
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

    // What is to be first has a lane and a quarter of the marks, however much happened since to others.
    let old = order.iter().min().map(|(_, object)| *object).unwrap();
    let first = std::collections::HashSet::from([old]);
    let most = Most { lanes: 3, marks: 8, first: Some(&first) };
    let few = gather(index, reader, &selected, bounds, most, later()).unwrap();
    let kept = |(_, lane): &(i64, Found)| lane.marks.iter().filter(|mark| mark.kind_of != "QUIET").count();
    assert_eq!((few.lanes.len(), few.lanes[0].0, kept(&few.lanes[0]) >= 2), (3, old, true));
    assert_eq!(few.lanes.iter().map(kept).sum::<usize>(), 8);
    assert_eq!(usize::try_from(few.marks_left).unwrap() + 8, real, "each is shown or counted");
    let oldest = few.lanes.iter().skip(1).filter_map(|(_, lane)| lane.marks.last()).map(|mark| &mark.time).min();
    assert!(few.marks_cut.map(crate::query::stamp) <= oldest.cloned(), "the newest that is left out is older");

    // A bar for each life.
    let mut ask = |query: &str| {
        json(
            lanes(&mut opened, &Lanes { window: window(query), order: Order::Names, lanes: 100, marks: 100_000 })
                .unwrap(),
        )
    };
    let shown = ask("");
    for lane in shown["lanes"].as_array().unwrap() {
        let bars: Vec<&str> = lane["bars"].as_array().unwrap().iter().map(|bar| bar["uid"].as_str().unwrap()).collect();
        let number = lane["name"].as_str().unwrap().trim_start_matches('p').to_owned();
        let lives = 2600_u64.div_ceil(OBJECTS * 25);
        assert_eq!(bars, (0..lives).map(|life| format!("u{number}-{life}")).collect::<Vec<_>>(), "{lane}");
    }
    // The same bars, whatever is asked for of the objects.
    for (query, kind) in
        [("type=ADDED", "ADDED"), ("where=type == \"ADDED\"", "ADDED"), ("type=MODIFIED&quiet=1&area=spec", "MODIFIED")]
    {
        let few = ask(query);
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
    let (mut opened, mut written) = (opened(&journal, true), 0);
    // The second end lies shortly after the border of two parts.
    for upto in [2 * PART + 952, 3 * PART + 52] {
        write(&journal, &source, written..upto).await;
        written = upto;
        for query in ["", "where=true"] {
            (opened.index, opened.deadline) = (Index::default(), Instant::now());
            let answer = json(histogram(&mut opened, &Histogram { window: window(query), buckets: 10 }).unwrap());
            let reader = &opened.reader;
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

/// An answer whose time or room for causes ends before its lanes do says from when on causes stand first.
#[tokio::test]
async fn causes_that_were_not_looked_for_are_said() {
    let dir = tempfile::tempdir().unwrap();
    let (journal, thread, source) = begun(dir.path()).await;
    write(&journal, &source, 0..PART + 400).await;
    let mut opened = opened(&journal, true);
    let at = |opened: &Opened, seq: u64| crate::query::stamp(opened.reader.time_of(Seq(seq)).unwrap().unwrap());
    let head = opened.reader.head().unwrap();
    let selected = window("").resolve(&opened.reader).unwrap();
    let bounds = selected.bounds(&opened.reader, head).unwrap();
    // A change of nothing but the version is the cause of nothing.
    let may_be = |number: &u64| !number.is_multiple_of(9) || [0, 24].contains(&(number / OBJECTS % 25));
    let newest: Vec<u64> = (0..head.0).rev().filter(may_be).map(|number| number + 1).collect();
    let first = newest.last().copied().unwrap();
    let now = Instant::now();
    for (entries, deadline, cut) in [
        (usize::MAX, later(), None),
        (newest.len(), later(), None),
        (newest.len() - 1, later(), Some(first + 1)),
        (5, later(), Some(newest[5] + 1)),
        (usize::MAX, now, Some(newest[0])),
    ] {
        let Opened { reader, index, .. } = &mut opened;
        let ranks = Ranks::find(index, reader, &selected, bounds, 100, Effort { entries, deadline }).unwrap();
        assert_eq!(ranks.cut, cut, "{entries}");
    }
    let mut causes_before = |order: Order, deadline: Instant| {
        opened.deadline = deadline;
        let answer = lanes(&mut opened, &Lanes { window: window(""), order, lanes: 100, marks: 100 }).unwrap();
        let said = json(answer)["truncated"]["causes_before"].clone();
        (said, at(&opened, newest[0]))
    };
    let (said, newest) = causes_before(Order::Causes, Instant::now());
    assert_eq!(said, newest);
    assert!(causes_before(Order::Causes, later()).0.is_null() && causes_before(Order::Names, now).0.is_null());
    drop((opened, journal, source));
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

fn observed(name: &str, version: u64) -> Observed {
    let body = format!(
        r#"{{"metadata":{{"name":"{name}","namespace":"shop","uid":"{name}","resourceVersion":"{version}"}},"spec":{{"n":{version}}}}}"#
    );
    let body = Redacted { bytes: body.into_bytes(), pointers: Vec::new(), marks: Vec::new() };
    let (namespace, name, uid) = ("shop".to_owned(), name.to_owned(), name.to_owned());
    Observed { namespace, name, uid, version: ResourceVersion::new(version.to_string()), body }
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
    let reader = journal.reader().unwrap();
    let since = reader.time_of(Seq(1)).unwrap().unwrap() + 1;
    owners.append(vec![change("boss", Verb::Upsert, None), change("boss", Verb::Upsert, None)]).await.unwrap();
    let children = ["boss", "early"].map(|owner| change(&format!("of-{owner}"), Verb::Upsert, Some(owner)));
    source.append(children.into()).await.unwrap();
    owners.append(vec![change("boss", Verb::Delete, None), change("early", Verb::Upsert, None)]).await.unwrap();
    journal.flush().await.unwrap();
    let text = format!("since={}&where=kind == \"Pod\"", crate::query::stamp(since));
    let mut opened = opened(&journal, true);
    let shown =
        json(lanes(&mut opened, &Lanes { window: window(&text), order: Order::Names, lanes: 10, marks: 10 }).unwrap());
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
    drop((opened, reader, journal, source, owners));
    thread.join().unwrap();
}
