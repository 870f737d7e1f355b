pub(crate) mod canaries;
mod senders;

use std::fmt::Debug;
use std::path::Path;

use jiff::tz::TimeZone;
use serde_json::json;

use super::timeline::selection::Window;
use super::timeline::{compare, embed, entries, entry, lanes, moments, object, overview, updates, writers};
use super::*;
use crate::core::model::Seq;
use crate::core::rights::Sight;
use crate::query::churn::tests::Story;
use crate::query::render::names::At;

/// Asks a question as a server is asked, and reads each item as a client does: it has to be the same again.
fn arrives<Q: Question + Debug>(dir: &Path, question: &Q) {
    let clock = Clock { now: Timestamp::now(), zone: TimeZone::UTC };
    let log = Log::new(dir.to_owned(), Sight::All, clock, &|_| (), &|| false);
    let asked = serde_json::to_string(question).unwrap();
    let mut items = Vec::new();
    let answered = answer(Q::NAME, &asked, &log, &mut |item| {
        items.push(item.get().to_owned());
        Ok(())
    });
    assert!(answered.is_ok() && !items.is_empty(), "{question:?}: {answered:?} {items:?}");
    for item in items {
        let read: Q::Item = serde_json::from_str(&item).unwrap_or_else(|error| panic!("{question:?}: {error}: {item}"));
        assert_eq!(serde_json::to_string(&read).unwrap(), item, "{question:?}");
    }
}

/// Commands render what they ask of a journal here and what a server sends by the same code, so an item that changes on its way is the
/// only difference that there can be.
#[tokio::test(start_paused = true)]
async fn an_item_that_was_sent_is_the_same() {
    let dir = tempfile::tempdir().unwrap();
    Story::play(dir.path(), &[], async |story| {
        for turn in 0..6 {
            let (web, manager) = ("shop/web", if turn % 2 == 0 { "flux" } else { "kubectl" });
            story
                .write("deployments", web, manager, |web| web["spec"] = json!({"replicas": turn % 2, "big": 1e300}))
                .await;
            story.write("configmaps", "shop/flags", "helm", |map| map["data"] = json!({"é\u{7f}": turn})).await;
            story.pass(7).await;
        }
    })
    .await;
    let (dir, web) = (dir.path(), "deployments/web".to_owned());
    let only = select::Filters { filter: Some("true".to_owned()), ..Default::default() };
    let select = select::Select { objects: vec!["configmaps".to_owned()], only, ..Default::default() };
    arrives(dir, &questions::tail::Tail { last: Some(100), ..Default::default() });
    arrives(dir, &questions::tail::Tail { select: select.clone(), reverse: true, ..Default::default() });
    for folds in [false, true] {
        arrives(dir, &questions::history::History { object: web.clone(), folds, tree: folds, ..Default::default() });
    }
    arrives(dir, &questions::show::Show { seq: Seq(2) });
    arrives(dir, &questions::get::Get { objects: vec![web.clone()], at: Some(At::Seq(Seq(3))), ..Default::default() });
    arrives(dir, &questions::get::Get { objects: vec!["configmaps,deployments".to_owned()], ..Default::default() });
    arrives(dir, &questions::diff::Diff { from: Some(At::Seq(Seq(1))), utc: true, ..Default::default() });
    let why = questions::why::Why { object: web.clone(), paths: Vec::new(), namespaces: Vec::new(), at: None };
    arrives(dir, &why);
    arrives(dir, &questions::drift::Drifting::default());
    arrives(dir, &questions::blame::Blame { object: web, paths: Vec::new(), namespaces: Vec::new(), at: None });
    let since = Some(Timestamp::UNIX_EPOCH);
    let select = select::Select { only: select::Filters { since, ..Default::default() }, ..Default::default() };
    arrives(dir, &questions::churn::Churned { select, requests: false, top: 5 });
    arrives(dir, &questions::status::Statuses::default());
    arrives(dir, &questions::status::Statuses { resources: Vec::new(), whatever: true });
    arrives(dir, &questions::verify::Verify {});
    let start = String::new();
    arrives(dir, &questions::names::Names::Objects { kind: "deployments".to_owned(), namespaces: Vec::new(), start });
    arrives(dir, &questions::names::Names::Kinds);
    let window = Window { since: Some(Timestamp::UNIX_EPOCH), quiet: true, ..Window::default() };
    arrives(dir, &overview::Overview {});
    arrives(dir, &timeline::window::Histogram { window: window.clone(), buckets: 7 });
    arrives(
        dir,
        &lanes::Lanes { window: window.clone(), order: timeline::order::Order::Causes, lanes: 10, marks: 100 },
    );
    arrives(dir, &entries::Entries { window: window.clone(), before: None, after: None, limit: 10 });
    arrives(dir, &entry::OneEntry { seq: Seq(4), neighbours: true });
    arrives(dir, &compare::Compare { from: Seq(1), to: Seq(3) });
    let (resource, namespace) = ("deployments.apps".to_owned(), "shop".to_owned());
    let (name, at) = ("web".to_owned(), Some(At::Seq(Seq(5))));
    arrives(dir, &object::ObjectAt { resource, namespace, name, at, since: None, until: None });
    arrives(dir, &moments::StateAt { window: Window::default(), at, limit: 10 });
    arrives(dir, &moments::ChangesBetween { window: Window::default(), from: At::Seq(Seq(2)), to: at, limit: 10 });
    arrives(dir, &writers::Writers { window: window.clone() });
    arrives(dir, &updates::Updates { window: window.clone(), after: None });
    arrives(dir, &embed::Timeline { window, max_bytes: 1 << 20 });
}
