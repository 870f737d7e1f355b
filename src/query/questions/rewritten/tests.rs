//! A log with a storage rewrite, a careless controller and two changes, as each question answers it.

use std::fmt::Debug;
use std::path::Path;

use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde_json::{Value, json};

use crate::core::rights::Sight;
use crate::core::wire::Entry;
use crate::journal::StoredEntry;
use crate::query::churn::tests::Story;
use crate::query::questions::{causes, churn, history, tail};
use crate::query::render::clock::Clock;
use crate::query::rewrites::Rewrite;
use crate::query::select::{Filters, Select};
use crate::query::timeline::entries::Entries;
use crate::query::timeline::lanes::Lanes;
use crate::query::timeline::order::Order;
use crate::query::timeline::selection::Window;
use crate::query::timeline::writers::Writers;
use crate::query::{Log, Question, answer};

/// Number of objects that are stored again.
const MAPS: usize = 30;

/// Entries 1 to 30 create the maps, 31 and 32 what a careless controller claims again and again with 33 to 44; 45 to 75 are the
/// rewrite, but for 60, which changes a map; 76 creates another.
async fn log(dir: &Path) {
    Story::play(dir, &[], async |story| {
        let map = |number: usize| format!("shop/m{number}");
        for number in 0..MAPS {
            story.write("configmaps", &map(number), "helm", |map| map["data"] = json!({"a": "1"})).await;
        }
        for name in ["shop/c0", "shop/c1"] {
            story.write("configmaps", name, "helm", |map| map["data"] = json!({"a": "1"})).await;
        }
        story.pass(3600).await;
        for turn in 0..6 {
            for name in ["shop/c0", "shop/c1"] {
                story.pass(2).await;
                story.claim("configmaps", name, if turn % 2 == 0 { "careless-a" } else { "careless-b" }).await;
            }
        }
        for number in 0..MAPS {
            story.pass(1).await;
            if number == MAPS / 2 {
                story.write("configmaps", &map(7), "kubectl", |map| map["data"] = json!({"a": "2"})).await;
            }
            story.store_again("configmaps", &map(number)).await;
        }
        story.pass(1).await;
        story.write("configmaps", "shop/last", "kubectl", |map| map["data"] = json!({"a": "1"})).await;
    })
    .await;
}

fn asked<Q: Question + Debug>(dir: &Path, question: &Q) -> Vec<Q::Item> {
    // An hour and some seconds after the story begins.
    let now: Timestamp = "2026-11-21T12:00:00Z".parse().unwrap();
    let log = Log::new(dir.to_owned(), Sight::All, Clock { now, zone: TimeZone::UTC }, &|_| (), &|| false);
    let asked = serde_json::to_string(question).unwrap();
    let mut items = Vec::new();
    answer(Q::NAME, &asked, &log, &mut |item| {
        items.push(serde_json::from_str(item.get()).unwrap());
        Ok(())
    })
    .unwrap();
    items
}

fn spelled(stored: &StoredEntry) -> String {
    let entry = Entry::parse(&stored.line).unwrap();
    format!("{} {} {}", entry.seq, entry.op.as_str(), entry.name.as_deref().unwrap_or_default())
}

fn said(rewrite: &Rewrite) -> String {
    let Rewrite { resource, namespace, by, objects, writes, since, until, seq, .. } = rewrite;
    let (since, until) = (&since[11..19], &until[11..19]);
    format!("{seq} {objects}/{writes} {resource} {namespace:?} {by:?} {since} {until}")
}

const REWRITE: &str = "75 30/30 configmaps Some(\"shop\") None 11:00:25 11:00:54";

fn tailed(dir: &Path, question: tail::Tail) -> Vec<String> {
    let items = asked(dir, &question).into_iter().filter_map(|item| match item {
        tail::Item::Begin { .. } | tail::Item::Pause => None,
        tail::Item::Entry(line) => Some(spelled(&line.0)),
        tail::Item::Rewrite(rewrite, last) => {
            assert_eq!(last.0.seq.0, rewrite.seq);
            Some(said(&rewrite))
        }
    });
    items.collect()
}

fn since() -> Select {
    Select { only: Filters { since: Some(Timestamp::UNIX_EPOCH), ..Filters::default() }, ..Select::default() }
}

#[tokio::test(start_paused = true)]
async fn every_question_says_a_storage_rewrite_in_one_line_and_leaves_changes_what_they_are() {
    let dir = tempfile::tempdir().unwrap();
    log(dir.path()).await;
    let dir = dir.path();

    // The newest lines, however many entries they stand for.
    let folds =
        |last: usize, reverse: bool| tail::Tail { folds: true, last: Some(last), reverse, ..tail::Tail::default() };
    let last = ["43 MODIFIED c0", "44 MODIFIED c1", "60 MODIFIED m7", REWRITE, "76 ADDED last"];
    assert_eq!(tailed(dir, folds(5, false)), last);
    assert_eq!(tailed(dir, folds(2, false)), last[3..]);
    let mut back = last;
    back.reverse();
    assert_eq!(tailed(dir, folds(5, true)), back);
    assert_eq!(tailed(dir, folds(1, true)), back[..1]);
    for reverse in [false, true] {
        let all = tailed(dir, tail::Tail { folds: true, select: since(), reverse, ..tail::Tail::default() });
        assert_eq!(all.iter().filter(|line| *line == REWRITE).count(), 1, "{all:?}");
        assert_eq!(all.len(), 44 + 3, "{all:?}");
        let each = tailed(dir, tail::Tail { select: since(), reverse, ..tail::Tail::default() });
        assert_eq!(each.len(), 76);
    }

    let found = asked(dir, &causes::Causes { only: since().only, ..causes::Causes::default() });
    let groups = found.into_iter().filter_map(|item| match item {
        causes::Item::Group(changes) => Some(*changes),
        causes::Item::Begin { .. } | causes::Item::Below(_) | causes::Item::Gap(_) | causes::Item::Unknown(_) => None,
    });
    let (rewritten, others): (Vec<_>, Vec<_>) = groups.partition(|changes| changes.rewrite.is_some());
    assert_eq!(rewritten.len(), 1);
    assert_eq!((said(rewritten[0].rewrite.as_ref().unwrap()), rewritten[0].count), (REWRITE.to_owned(), MAPS));
    let shown: Vec<String> = others.iter().filter_map(|changes| Some(spelled(&changes.entry.as_ref()?.0))).collect();
    assert!(shown.contains(&"60 MODIFIED m7".to_owned()), "{shown:?}");
    let below = |changes: &causes::Changes| changes.folded.as_ref().map_or(0, |folded| folded.count);
    let counts = others.iter().map(|changes| changes.count + below(changes));
    assert_eq!(counts.sum::<usize>(), 76 - MAPS, "careless writes are there");

    let one = history::History { object: "configmaps/m7".to_owned(), folds: true, ..history::History::default() };
    let items = asked(dir, &one).into_iter().filter_map(|item| match item {
        history::Item::One(line, _) => Some(spelled(&line.0)),
        history::Item::Run(run) => Some(format!("{} {} of {}", spelled(&run.newest.0), run.is_rewrite, run.count)),
        history::Item::Begin(_) | history::Item::Removed(_) | history::Item::Doubtful | history::Item::Origin(_) => {
            None
        }
    });
    assert_eq!(items.collect::<Vec<_>>(), ["60 MODIFIED m7", "52 MODIFIED m7 true of 1", "8 ADDED m7"]);
    let one = history::History { object: "configmaps/c0".to_owned(), folds: true, ..history::History::default() };
    assert!(asked(dir, &one).iter().all(|item| !matches!(item, history::Item::Run(_))), "a careless controller");
}

#[tokio::test(start_paused = true)]
async fn nobody_is_blamed_for_a_storage_rewrite_and_who_writes_again_and_again_is() {
    let dir = tempfile::tempdir().unwrap();
    log(dir.path()).await;
    let report = asked(dir.path(), &churn::Churned { select: since(), requests: false, top: 100 }).remove(0);
    assert_eq!(report.rewrites.iter().map(said).collect::<Vec<_>>(), [REWRITE]);
    let managers: Vec<_> =
        report.managers.iter().map(|row| (row.manager.as_deref().unwrap(), row.writes, row.no_op)).collect();
    assert_eq!(managers, [("helm", 32, 0), ("careless-a", 6, 6), ("careless-b", 6, 6), ("kubectl", 2, 0)]);
    let objects: Vec<_> =
        report.objects.iter().take(3).map(|row| (row.name.as_deref().unwrap(), row.writes, row.no_op)).collect();
    assert_eq!(objects, [("c0", 7, 6), ("c1", 7, 6), ("m7", 2, 0)]);
    assert_eq!((report.writes.writes, report.writes.no_op), (76, 12));
    let kinds: Value = serde_json::to_value(&report.classes).unwrap();
    let of =
        |class: &str| kinds.as_array().unwrap().iter().find(|one| one["class"] == class).unwrap()["writes"].clone();
    assert_eq!((of("storage-rewrite"), of("version"), of("managed-fields")), (30.into(), 0.into(), 12.into()));

    let window = Window { since: Some(Timestamp::UNIX_EPOCH), ..Window::default() };
    let page = serde_json::to_value(&asked(dir.path(), &Writers { window: window.clone() })[0]).unwrap();
    let names: Vec<&str> =
        page["writers"].as_array().unwrap().iter().map(|one| one["name"].as_str().unwrap()).collect();
    assert_eq!((page["rewrites"].as_array().unwrap().len(), names), (1, vec!["c0", "c0", "c1", "c1", "m7"]));

    // On the lanes it is quiet: of a map that was only stored again the creation is all that changed.
    let lanes = Lanes { window: window.clone(), order: Order::Names, lanes: 100, marks: 1000 };
    let lanes = serde_json::to_value(&asked(dir.path(), &lanes)[0]).unwrap();
    let lane =
        |name: &str| lanes["lanes"].as_array().unwrap().iter().find(|lane| lane["name"] == name).unwrap().clone();
    let marks = |name: &str| -> Vec<String> {
        let lane = lane(name);
        let marks = lane["marks"].as_array().unwrap().iter();
        marks.map(|mark| format!("{} {}", mark["seq"], mark["type"].as_str().unwrap())).collect()
    };
    let mut seen = marks("m3");
    seen.sort();
    assert_eq!((seen, &lane("m3")["quiet"]), (vec!["4 ADDED".to_owned(), "48 QUIET".to_owned()], &1.into()));

    // The list of the page: a row for it, on the page of its last entry.
    let list = |before: Option<u64>, limit: usize| -> Vec<String> {
        let before = before.map(crate::core::model::Seq);
        let entries = Entries { window: window.clone(), before, after: None, limit };
        let page = serde_json::to_value(&asked(dir.path(), &entries)[0]).unwrap();
        let rows = page["entries"].as_array().unwrap().iter().map(|row| {
            let of = row["rewrite"]["objects"].as_u64().map_or_else(String::new, |objects| format!(" of {objects}"));
            format!("{}{of}", row["seq"])
        });
        rows.collect()
    };
    assert_eq!(list(None, 2), ["76", "75 of 30", "60"]);
    assert_eq!(list(Some(60), 2), ["32", "31"]);
    assert_eq!(list(Some(76), 1), ["75 of 30", "60"]);
    assert_eq!(list(None, 100).len(), 32 + 3);
}
