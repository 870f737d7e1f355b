//! Pages behind the first one: what they cost, and whose they are.

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::time::Instant;

use super::super::page::Statement;
use super::*;
use crate::core::model::Cluster;
use crate::core::rights::{ANSWER_AGE_MAX, Decision, Listing, Refusal, Rights, Undecided};

const TIME: (&str, &str) = ("2026-11-21T09:59:00Z", "2026-11-21T10:30:00Z");

/// Journals, and the questions that they were asked.
struct Counting {
    journals: Journals,
    asked: Arc<Mutex<Vec<&'static str>>>,
}

impl Asking for Counting {
    fn ask(
        &self,
        name: &'static str,
        question: &RawValue,
        cluster: Option<&str>,
        note: &dyn Fn(&str),
        put: &mut Put<'_, Box<RawValue>>,
    ) -> Result<(), Failure> {
        self.asked.lock().unwrap().push(name);
        self.journals.ask(name, question, cluster, note, put)
    }

    fn sight(&self) -> Sight {
        self.journals.sight()
    }
}

/// Somebody who may list everything, and is asked for.
#[derive(Debug)]
struct Everything;

impl Rights for Everything {
    fn recall(&self, _: &Listing) -> Option<Decision> {
        Some(Decision { is_allowed: true, until: Instant::now() + ANSWER_AGE_MAX })
    }

    fn decide(&self, listing: &Listing) -> Result<Decision, Refusal> {
        self.recall(listing).ok_or_else(|| Undecided.into())
    }

    fn may_get(&self, _: &str) -> Result<Decision, Refusal> {
        Err(Undecided.into())
    }
}

/// An assistant of one log, for somebody who sees all of it or is asked for, and what it asks.
fn counting(dir: &std::path::Path, is_narrowed: bool) -> (Assistant, Arc<Mutex<Vec<&'static str>>>) {
    let (asked, logs) = (Arc::default(), Logs { state: dir.to_owned(), ..Logs::default() });
    let counts = Arc::clone(&asked);
    let assistant = Assistant::new(move || {
        let sight = if is_narrowed { Sight::of(Arc::new(Everything)) } else { Sight::All };
        let journals = Journals { logs: logs.clone(), sight, stop: Arc::default() };
        Arc::new(Counting { journals, asked: Arc::clone(&counts) })
    });
    (assistant, asked)
}

/// Writes a log of a cluster in which several managers write several objects.
async fn written(dir: &std::path::Path, name: &str) {
    Story::play(dir, &[], async |story| {
        story.journal.set_cluster(Cluster { name: name.into(), uid: "c1".into() }).await.unwrap();
        // Each test has the same randomness, and no two logs have.
        story.journal.begin_epoch(Some(&format!("0200000000{:02x}{:020x}", name.len(), 0))).await.unwrap();
        for turn in 0..6 {
            for (object, manager) in [("shop/a", "helm"), ("shop/b", "kubectl"), ("till/c", "argocd")] {
                story.write("configmaps", object, manager, |map| map["data"] = json!({"turn": turn})).await;
            }
            story.pass(10).await;
        }
        story.journal.flush().await.unwrap();
    })
    .await;
}

fn churn() -> Value {
    json!({"since": TIME.0, "until": TIME.1})
}

/// All statements of a call, a page of one each, and how often the question was asked for the pages behind the first.
async fn paged(
    (assistant, asked): &(Assistant, Arc<Mutex<Vec<&'static str>>>),
    (tool, mut arguments): (&'static str, Value),
) -> (Vec<Statement>, usize) {
    arguments["limit"] = json!(1);
    let (mut statements, mut again) = (Vec::new(), 0);
    loop {
        asked.lock().unwrap().clear();
        let page = assistant.call(call(tool, arguments.clone()), None).await;
        assert_eq!(page.refusal, None, "{tool}");
        if !statements.is_empty() {
            again += asked.lock().unwrap().iter().filter(|name| **name == tool).count();
        }
        statements.extend(page.statements);
        let Some(next) = page.next else { return (statements, again) };
        arguments["cursor"] = json!(next);
    }
}

/// Statements without what is another in each moment: the end of a stretch that has not ended.
fn still(tool: &str, mut statements: Vec<Statement>) -> Vec<Statement> {
    if tool == "coverage" {
        statements.iter_mut().for_each(|statement| statement.data.clear());
    }
    statements
}

/// `churn`, `coverage` and `verify` read much for a page, so they read it once. What somebody may see is looked up each time.
#[tokio::test(start_paused = true)]
async fn a_page_behind_the_first_one_is_not_computed_again() {
    let dir = tempfile::tempdir().unwrap();
    written(dir.path(), "test").await;
    let database = rusqlite::Connection::open(dir.path().join("journal.db")).unwrap();
    let tools = [
        ("churn", churn(), ""),
        ("coverage", json!({"until": TIME.1}), ""),
        ("verify", json!({}), "UPDATE object SET state = x'00'"),
    ];
    for (tool, arguments, damage) in tools {
        database.execute_batch(damage).unwrap();
        let assistant = counting(dir.path(), false);
        let whole = assistant.0.call(call(tool, arguments.clone()), None).await;
        assert!(whole.refusal.is_none() && whole.statements.len() > 1, "{tool}: {whole:?}");
        let (statements, again) = paged(&assistant, (tool, arguments.clone())).await;
        assert_eq!((still(tool, statements), again), (still(tool, whole.statements), 0), "{tool}");
        // A cursor works also where nothing is kept any more.
        let first = assistant.0.call(call(tool, json!({"limit": 1}).merged(&arguments)), None).await;
        let next = json!({"limit": 50, "cursor": first.next}).merged(&arguments);
        let behind = counting(dir.path(), false).0.call(call(tool, next.clone()), None).await;
        let kept = assistant.0.call(call(tool, next), None).await;
        assert_eq!(still(tool, behind.statements), still(tool, kept.statements), "{tool}");
        let (_, again) = paged(&counting(dir.path(), true), (tool, arguments)).await;
        assert!(again > 0, "{tool}: rights are looked up for each page");
    }
}

trait Merged {
    fn merged(self, other: &Value) -> Value;
}

impl Merged for Value {
    fn merged(mut self, other: &Value) -> Value {
        self.as_object_mut().unwrap().extend(other.as_object().unwrap().clone());
        self
    }
}

/// A cursor goes on with its own answer, and with no other question, tool, log or cluster.
#[tokio::test(start_paused = true)]
async fn a_cursor_of_another_answer_is_refused() {
    let (dir, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    written(dir.path(), "prod").await;
    written(other.path(), "staging").await;
    let (own, foreign) = (of(dir.path()), of(other.path()));
    for (tool, arguments) in [("log", json!({})), ("churn", churn()), ("object_at", json!({"objects": ["configmaps"]}))]
    {
        let first = json!({"limit": 1}).merged(&arguments);
        let next = own.call(call(tool, first.clone()), None).await.next.unwrap();
        let again = json!({"cursor": next}).merged(&first);
        let page = own.call(call(tool, again.clone()), None).await;
        assert_eq!((page.refusal, page.statements.len()), (None, 1), "{tool}");
        let more = json!({"namespaces": ["till"]}).merged(&again);
        let elsewhere = if tool == "log" { "coverage" } else { "log" };
        for (assistant, tool, arguments) in [
            (&foreign, tool, again.clone()),
            (&own, tool, more),
            (&own, elsewhere, json!({"cursor": next, "limit": 1})),
        ] {
            let answer = assistant.call(call(tool, arguments.clone()), None).await;
            let refusal = answer.refusal.unwrap_or_else(|| panic!("{tool} {arguments}: {:?}", answer.statements));
            assert_eq!(refusal.because, "question", "{refusal:?}");
            assert!(refusal.text.contains("of another question or of another log"), "{refusal:?}");
        }
    }
}

/// A server of several clusters answers for the one that is named, and each statement names it.
#[tokio::test(start_paused = true)]
async fn of_several_clusters_each_citation_names_its_own() {
    let (prod, staging) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    written(prod.path(), "prod").await;
    written(staging.path(), "staging").await;
    let clusters: BTreeMap<_, _> = [("prod", prod.path()), ("staging", staging.path())]
        .map(|(name, dir)| (name.to_owned(), dir.to_owned()))
        .into();
    let logs = Logs { state: prod.path().to_owned(), clusters };
    let several = Assistant::new(move || Arc::new(Journals::new(logs.clone())));
    let mut epochs = BTreeSet::new();
    for (name, dir) in [("prod", prod.path()), ("staging", staging.path())] {
        let alone = of(dir);
        for (tool, arguments) in [
            ("log", json!({"limit": 3})),
            ("why", json!({"object": "configmaps/a"})),
            ("blame", json!({"object": "configmaps/a"})),
            ("object_at", json!({"objects": ["configmaps"]})),
            ("diff", json!({"from": 5})),
            ("churn", churn()),
            ("coverage", json!({"until": TIME.1})),
            ("verify", json!({})),
        ] {
            let named = json!({"cluster": name}).merged(&arguments);
            let answer = several.call(call(tool, named), None).await;
            assert_eq!((answer.refusal, answer.cluster.as_deref()), (None, Some(name)), "{tool}");
            let expected = alone.call(call(tool, arguments), None).await.statements;
            assert_eq!(still(tool, answer.statements.clone()), still(tool, expected), "{tool} of {name}");
            assert!(answer.statements.iter().all(|one| one.cluster == name), "{tool}: {:?}", answer.statements);
            epochs.extend(answer.statements.into_iter().map(|one| (one.cluster, one.epoch)));
        }
    }
    assert_eq!(epochs.len(), 2, "each has an epoch of its own: {epochs:?}");
    // Who names none hears which there are; a cursor of one is none of the other.
    let unnamed = several.call(call("log", json!({})), None).await.refusal.unwrap();
    assert!(unnamed.because == "question" && unnamed.text.contains("by cluster: prod, staging"), "{unnamed:?}");
    let next = several.call(call("log", json!({"cluster": "prod", "limit": 1})), None).await.next;
    let mixed = several.call(call("log", json!({"cluster": "staging", "limit": 1, "cursor": next})), None).await;
    assert!(mixed.refusal.unwrap().text.contains("another log"));
}
