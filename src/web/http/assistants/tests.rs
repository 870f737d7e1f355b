//! Calls of the tools without a client: what is removed, who waits, and who has gone.

mod covered;
mod pages;
pub(crate) mod rights;

use std::collections::BTreeMap;
use std::sync::mpsc;
use std::time::Duration;

use serde_json::{Value, json};

use super::super::readers::Readers;
use super::*;
use crate::journal::{Bounds, Reader};
use crate::query::churn::tests::Story;

fn call(tool: &'static str, arguments: Value) -> CallToolRequestParams {
    let Value::Object(arguments) = arguments else { panic!("{arguments}") };
    CallToolRequestParams::new(tool).with_arguments(arguments)
}

fn of(dir: &std::path::Path) -> Assistant {
    let logs = Logs { state: dir.to_owned(), ..Logs::default() };
    Assistant::new(move || Arc::new(Journals::new(logs.clone())))
}

/// Truncated entries are refused with the range, also behind a cursor from before; those that are kept are answered.
#[tokio::test(start_paused = true)]
async fn what_is_removed_is_refused_with_the_range() {
    let dir = tempfile::tempdir().unwrap();
    let (mut cursor, mut begin) = (Value::Null, 0);
    Story::play(dir.path(), &[], async |story| {
        for turn in 0..8 {
            story.write("configmaps", "shop/flags", "helm", |map| map["data"] = json!({"turn": turn})).await;
            story.pass(10).await;
        }
        story.journal.flush().await.unwrap();
        let page = of(dir.path()).call(call("log", json!({"limit": 6})), None).await;
        assert!(page.refusal.is_none() && page.statements.len() == 6, "{page:?}");
        cursor = json!(page.next);
        story.journal.bound(Bounds { max_size: 1 << 40, max_age: Duration::ZERO, drop_oldest: false }).await.unwrap();
        while begin < 3 {
            story.pass(60).await;
            begin = Reader::open(dir.path()).unwrap().retained().unwrap().oldest;
        }
    })
    .await;
    let assistant = of(dir.path());
    let flags = "configmaps/flags";
    for (tool, arguments) in [
        ("object_at", json!({"objects": [flags], "at": 1})),
        ("why", json!({"object": flags, "at": "1"})),
        ("blame", json!({"object": flags, "at": 1})),
        ("diff", json!({"objects": [flags], "from": 1})),
        ("object_at", json!({"objects": [flags], "at": "2026-11-21T10:00:15Z"})),
        ("diff", json!({"from": "2026-11-21T10:00:15Z"})),
        ("log", json!({"since": "2026-11-21T10:00:05Z", "until": "2026-11-21T10:00:15Z"})),
        ("churn", json!({"since": "2026-11-21T10:00:05Z", "until": "2026-11-21T10:00:15Z"})),
        ("log", json!({"limit": 6, "cursor": cursor})),
    ] {
        let answer = assistant.call(call(tool, arguments.clone()), None).await;
        let refusal = answer.refusal.unwrap_or_else(|| panic!("{tool} {arguments}: {:?}", answer.statements));
        let range = refusal.range.unwrap_or_else(|| panic!("{tool} {arguments}: {}", refusal.text));
        assert_eq!((refusal.because.as_str(), range.reason.as_str()), ("uncovered", "retention"), "{tool} {arguments}");
        assert!(range.to.is_some() && answer.statements.is_empty() && !answer.complete, "{tool} {arguments}");
    }
    let kept = assistant.call(call("object_at", json!({"objects": [flags], "at": begin})), None).await;
    assert_eq!((kept.refusal, kept.statements.len()), (None, 1));
}

/// Answers nothing until its reader has gone.
struct Slow {
    began: mpsc::Sender<()>,
    ended: Arc<AtomicBool>,
}

impl Asking for Slow {
    fn ask(
        &self,
        _: &'static str,
        _: &RawValue,
        _: Option<&str>,
        _: &dyn Fn(&str),
        _: &mut Put<'_, Box<RawValue>>,
    ) -> Result<(), Failure> {
        self.began.send(()).unwrap();
        while !self.ended.load(Ordering::Relaxed) {
            std::thread::yield_now();
        }
        Err(Failure::closed_pipe())
    }

    fn end(&self) {
        self.ended.store(true, Ordering::Relaxed);
    }
}

/// A reading ends with its reader, and gives back its turn; who comes while all turns are taken hears so.
#[tokio::test]
async fn who_has_gone_reads_no_more_and_who_comes_meanwhile_waits_for_nothing() {
    let reading = Arc::new(Reading::new(Logs::default, Readers::new(None, Box::new(BTreeMap::new))));
    let (began, begun) = mpsc::channel();
    let ended = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&ended);
    let begin = move || -> Arc<dyn Asking> { Arc::new(Slow { began: began.clone(), ended: Arc::clone(&flag) }) };
    let assistant = Assistant::with(Some(Arc::new(begin)), Some(Arc::clone(&reading)));
    let mut calls = Vec::new();
    for _ in 0..MOST_ANSWERS {
        let mut waits = Box::pin(assistant.call(call("log", json!({})), None));
        assert!(futures::poll!(waits.as_mut()).is_pending());
        begun.recv().unwrap();
        calls.push(waits);
    }
    let refused = assistant.call(call("log", json!({})), None).await.refusal.unwrap();
    assert_eq!((refused.because.as_str(), refused.text.contains("try again")), ("unavailable", true), "{refused:?}");
    drop(calls);
    assert!(ended.load(Ordering::Relaxed));
    while reading.places().turn().is_err() {
        tokio::task::yield_now().await;
    }
}

/// Over standard input nobody is refused: who comes while all turns are taken waits for one.
#[tokio::test]
async fn who_comes_over_standard_input_waits_for_a_turn() {
    let (began, begun) = mpsc::channel();
    let ended = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&ended);
    let assistant = Assistant::new(move || Arc::new(Slow { began: began.clone(), ended: Arc::clone(&flag) }));
    let mut calls: Vec<_> =
        (0..=MOST_ANSWERS).map(|_| Box::pin(assistant.call(call("log", json!({})), None))).collect();
    for waits in &mut calls {
        assert!(futures::poll!(waits.as_mut()).is_pending());
    }
    for _ in 0..MOST_ANSWERS {
        begun.recv().unwrap();
    }
    assert_eq!(begun.try_recv(), Err(mpsc::TryRecvError::Empty));
    ended.store(true, Ordering::Relaxed);
    for waits in calls {
        assert_eq!(waits.await.refusal.unwrap().because, "unavailable");
    }
    begun.recv().unwrap();
}

/// A server of one cluster takes its name.
#[tokio::test(start_paused = true)]
async fn the_one_cluster_has_its_name() {
    let dir = tempfile::tempdir().unwrap();
    Story::play(dir.path(), &[], async |story| {
        story.write("configmaps", "shop/flags", "helm", |map| map["data"] = json!({"a": "0"})).await;
    })
    .await;
    let assistant = of(dir.path());
    let named = assistant.call(call("log", json!({"cluster": "test"})), None).await;
    assert_eq!((named.refusal, named.statements.len()), (None, 1));
    let other = assistant.call(call("log", json!({"cluster": "prod"})), None).await.refusal.unwrap();
    assert_eq!(other.because, "question", "{other:?}");
    assert!(!other.text.contains("--cluster"), "{other:?}");
}

/// A wrong argument is an answer that an assistant can read, and no error of the protocol.
#[tokio::test]
async fn a_wrong_question_is_an_answer() {
    let dir = tempfile::tempdir().unwrap();
    let assistant = of(dir.path());
    for (tool, arguments, because) in [
        ("drop", json!({}), "question"),
        ("why", json!({}), "question"),
        ("log", json!({"cursor": "x"}), "question"),
        ("log", json!({}), "unavailable"),
    ] {
        let refusal = assistant.call(call(tool, arguments), None).await.refusal.unwrap();
        assert_eq!(refusal.because, because, "{refusal:?}");
    }
}
