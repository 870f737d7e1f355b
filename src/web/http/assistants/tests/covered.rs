//! Answers in a log with a GAP, without a client: moments, pages and lists say nothing that is not known.

use super::*;
use crate::web::http::assistants::page::{Cites, Cursor};

/// Arguments of a tool.
type Asked = (&'static str, Value);

/// A log of four minutes. ConfigMaps have a GAP until 10:02, entry 3, and a Deployment was written in it, in entry 2.
async fn gapped(dir: &std::path::Path) {
    Story::play(dir, &[], async |story| {
        story.write("configmaps", "shop/flags", "helm", |map| map["data"] = json!({"a": "0"})).await;
        story.pass(60).await;
        story.write("deployments", "shop/web", "kubectl", |web| web["spec"] = json!({"replicas": 1})).await;
        story.pass(60).await;
        story.expire("configmaps").await;
        story.pass(60).await;
        story.write("configmaps", "shop/flags", "helm", |map| map["data"] = json!({"a": "1", "b": "1"})).await;
        story.pass(10).await;
        story.write("configmaps", "shop/other", "helm", |map| map["data"] = json!({"a": "0"})).await;
        story.pass(10).await;
        story.write("configmaps", "shop/flags", "helm", |map| map["data"] = json!({"a": "2", "b": "1"})).await;
        story.pass(10).await;
        story.write("configmaps", "shop/other", "helm", |map| map["data"] = json!({"a": "1"})).await;
    })
    .await;
}

async fn ask(dir: &std::path::Path, (tool, arguments): &Asked) -> Answer {
    of(dir).call(call(tool, arguments.clone()), None).await
}

/// A seq is a moment like a time: of any object but its own it may lie in a GAP.
#[tokio::test(start_paused = true)]
async fn a_seq_knows_no_more_than_its_time() {
    let dir = tempfile::tempdir().unwrap();
    gapped(dir.path()).await;
    let flags = "configmaps/flags";
    for asked in [
        ("object_at", json!({"objects": [flags], "at": 2})),
        ("object_at", json!({"objects": ["configmaps"], "at": 2})),
        ("object_at", json!({"objects": ["configmaps/none"], "at": 2})),
        ("why", json!({"object": flags, "at": 2})),
        ("blame", json!({"object": flags, "at": 2})),
        ("diff", json!({"objects": [flags], "from": 2, "to": 4})),
        ("diff", json!({"objects": [flags], "from": 1, "to": 2})),
        ("diff", json!({"objects": ["configmaps"], "from": 2, "to": 4})),
    ] {
        let answer = ask(dir.path(), &asked).await;
        let refusal = answer.refusal.clone().unwrap_or_else(|| panic!("{asked:?}: {answer:?}"));
        assert_eq!((refusal.because.as_str(), answer.complete), ("uncovered", false), "{asked:?}: {refusal:?}");
        assert_eq!(refusal.range.and_then(|range| range.seq), Some(3), "{asked:?}");
    }
    for (asked, complete) in [
        (("object_at", json!({"objects": [flags], "at": 1})), true),
        (("object_at", json!({"objects": ["deployments/web"], "at": 2})), true),
        (("object_at", json!({"objects": ["configmaps"], "at": 4})), true),
        (("object_at", json!({"objects": [flags], "at": "2026-11-21T10:03:05Z"})), true),
        (("blame", json!({"object": flags, "at": 1})), true),
        (("why", json!({"object": flags, "at": 1})), true),
        (("diff", json!({"objects": ["configmaps"], "from": 4, "to": 5})), true),
        (("diff", json!({"objects": [flags], "namespaces": ["shop"], "from": 1, "to": 4})), false),
        (("diff", json!({"from": 1, "to": 4})), false),
        (
            (
                "log",
                json!({"objects": ["configmap"], "since": "2026-11-21T10:03:00Z", "until": "2026-11-21T10:03:15Z"}),
            ),
            true,
        ),
        (("log", json!({})), false),
    ] {
        let answer = ask(dir.path(), &asked).await;
        assert_eq!((answer.refusal.as_ref(), answer.complete), (None, complete), "{asked:?}: {answer:?}");
        assert_eq!(answer.uncovered.is_empty(), complete, "{asked:?}");
        assert!(!answer.statements.is_empty(), "{asked:?}: {answer:?}");
    }
}

/// No daemon runs, so that the present is not known: that is so on each page.
#[tokio::test(start_paused = true)]
async fn no_page_is_more_complete_than_the_first() {
    let dir = tempfile::tempdir().unwrap();
    gapped(dir.path()).await;
    for (tool, mut arguments) in [
        ("object_at", json!({"objects": ["configmaps"], "limit": 1})),
        ("diff", json!({"from": 4, "limit": 1})),
        ("blame", json!({"object": "configmaps/flags", "limit": 1})),
        ("why", json!({"object": "configmaps/flags", "limit": 1})),
        ("log", json!({"limit": 2})),
    ] {
        let mut pages = 0;
        loop {
            let page = ask(dir.path(), &(tool, arguments.clone())).await;
            let is_doubtful = !page.complete && !page.uncovered.is_empty();
            assert!(page.refusal.is_none() && is_doubtful, "{tool}, page {pages}: {page:?}");
            pages += 1;
            match page.next {
                Some(next) => arguments["cursor"] = next.into(),
                None => break,
            }
        }
        assert!(pages > 1, "{tool}");
    }
}

/// Without a start the time begins with the log.
#[tokio::test(start_paused = true)]
async fn a_log_with_an_end_alone_is_judged_from_its_beginning() {
    let dir = tempfile::tempdir().unwrap();
    gapped(dir.path()).await;
    for until in ["2026-11-21T10:01:30Z", "2026-11-21T10:03:15Z"] {
        let answer = ask(dir.path(), &("log", json!({"objects": ["configmaps"], "until": until}))).await;
        assert_eq!((answer.refusal.as_ref(), answer.complete), (None, false), "{until}: {answer:?}");
        assert!(answer.uncovered.iter().any(|one| one.seq == Some(3)) && !answer.statements.is_empty(), "{answer:?}");
    }
    let refusal = ask(dir.path(), &("log", json!({"until": "2026-11-21T09:00:00Z"}))).await.refusal.unwrap();
    assert_eq!(refusal.range.unwrap().reason, "before_log");
}

/// A GAP of one resource leaves others known.
#[tokio::test(start_paused = true)]
async fn only_what_is_all_unknown_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    gapped(dir.path()).await;
    let within =
        |objects: Value| json!({"objects": objects, "since": "2026-11-21T10:00:30Z", "until": "2026-11-21T10:00:50Z"});
    for objects in [json!(["configmaps", "deployments"]), json!(["deployments,configmaps"])] {
        let answer = ask(dir.path(), &("log", within(objects))).await;
        assert_eq!((answer.refusal.as_ref(), answer.complete), (None, false), "{answer:?}");
        assert_eq!(answer.uncovered.len(), 1);
    }
    for objects in [json!(["configmaps"]), json!(["configmap", "configmap/flags"])] {
        assert_eq!(ask(dir.path(), &("log", within(objects))).await.refusal.unwrap().because, "uncovered");
    }
}

/// A statement about several entries is one of the log.
#[tokio::test(start_paused = true)]
async fn an_entry_is_cited_for_what_it_says_alone() {
    let dir = tempfile::tempdir().unwrap();
    gapped(dir.path()).await;
    for (from, cites) in [(1, Cites::Log), (4, Cites::Entry)] {
        let asked = ("diff", json!({"objects": ["configmaps/flags"], "namespaces": ["shop"], "from": from, "to": 6}));
        let answer = ask(dir.path(), &asked).await;
        let statement = answer.statements.iter().find(|one| one.kind == "difference").unwrap();
        assert_eq!((statement.cites, statement.seq), (cites, 6), "{answer:?}");
    }
}

/// Every statement of every tool cites the log that it is of, and an entry that this has; of one entry, with what that entry says.
#[tokio::test(start_paused = true)]
async fn every_statement_of_every_tool_cites_a_place_of_the_log() {
    let dir = tempfile::tempdir().unwrap();
    gapped(dir.path()).await;
    let reader = Reader::open(dir.path()).unwrap();
    let (cluster, epoch, head) = (reader.cluster().unwrap(), reader.epoch().unwrap(), reader.head().unwrap().0);
    let (flags, shop, early) = ("configmaps/flags", ["shop"], "2026-11-21T10:00:00Z");
    for asked in [
        ("log", json!({})),
        ("why", json!({"object": flags, "namespaces": shop})),
        ("blame", json!({"object": flags, "namespaces": shop})),
        ("diff", json!({"objects": [flags], "namespaces": shop, "from": 4, "to": 6})),
        ("object_at", json!({"objects": ["configmaps"]})),
        ("churn", json!({"since": early})),
        ("coverage", json!({})),
        ("verify", json!({})),
    ] {
        let statements = ask(dir.path(), &asked).await.statements;
        assert!(!statements.is_empty(), "{asked:?}");
        for one in statements {
            assert_eq!((&one.cluster, &one.epoch), (&cluster.name, &epoch), "{asked:?}: {one:?}");
            assert!((1..=head).contains(&one.seq), "{asked:?}: {one:?}");
            let data: Value = serde_json::from_str(&one.data).unwrap();
            let seq = data.get("seq").and_then(Value::as_u64).filter(|_| one.kind == "entry");
            assert!(seq.is_none_or(|seq| seq == one.seq), "{asked:?}: {one:?}");
        }
    }
}

/// A cursor is of one question about one log.
#[tokio::test(start_paused = true)]
async fn a_cursor_of_another_question_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    gapped(dir.path()).await;
    let page = ask(dir.path(), &("object_at", json!({"objects": ["configmaps"], "limit": 1}))).await;
    let next = page.next.unwrap();
    for asked in [
        ("object_at", json!({"objects": ["configmaps"], "namespaces": ["shop"], "cursor": next})),
        ("object_at", json!({"objects": ["deployments"], "cursor": next})),
        ("log", json!({"objects": ["configmaps"], "cursor": next})),
    ] {
        let refusal = ask(dir.path(), &asked).await.refusal.unwrap_or_else(|| panic!("{asked:?}"));
        assert_eq!(refusal.because, "question", "{asked:?}");
        assert!(refusal.text.contains("arguments of the first page"), "{}", refusal.text);
    }
    let same = json!({"limit": 3, "objects": ["configmaps"], "cursor": next, "labels": null});
    assert_eq!(ask(dir.path(), &("object_at", same)).await.refusal, None);
}

/// A log that has ended does not say that an object is not there now.
#[tokio::test(start_paused = true)]
async fn nothing_is_denied_of_a_present_that_nobody_watches() {
    let dir = tempfile::tempdir().unwrap();
    gapped(dir.path()).await;
    for asked in [
        ("object_at", json!({"objects": ["configmaps/none"]})),
        ("object_at", json!({"objects": ["nodes"]})),
        ("why", json!({"object": "configmaps/none"})),
        ("blame", json!({"object": "configmaps/flags", "fields": [".spec"]})),
        ("object_at", json!({"objects": ["configmaps/flags"], "namespaces": ["elsewhere"]})),
        ("object_at", json!({"objects": ["nodes/none"], "at": "2026-11-21T10:03:00Z"})),
        ("log", json!({"objects": ["nodes/none"]})),
    ] {
        let refusal = ask(dir.path(), &asked).await.refusal.unwrap_or_else(|| panic!("{asked:?}"));
        let reason = refusal.range.clone().map(|range| range.reason);
        assert_eq!(
            (refusal.because.as_str(), reason.as_deref()),
            ("uncovered", Some("stopped")),
            "{asked:?}: {refusal:?}"
        );
    }
    let misspelled = ask(dir.path(), &("object_at", json!({"objects": ["confickmaps/none"]}))).await.refusal.unwrap();
    assert_eq!(misspelled.because, "question");
}

/// Entries that retention removes between two pages are missed, and that is said; retention of a story leaves one entry.
#[tokio::test(start_paused = true)]
async fn a_page_says_what_was_removed_since_the_first() {
    let dir = tempfile::tempdir().unwrap();
    gapped(dir.path()).await;
    let within = json!({"since": "2026-11-21T10:03:00Z", "until": "2026-11-21T10:03:25Z", "objects": ["configmaps"]});
    for (mut asked, is_removed) in [(json!({}), true), (within, false)] {
        asked["limit"] = 1.into();
        let next = ask(dir.path(), &("log", asked.clone())).await.next.unwrap();
        let longer = Cursor {
            begin: "2026-11-21T09:00:00Z".parse::<Timestamp>().unwrap().as_microsecond(),
            ..Cursor::read(&next).unwrap()
        };
        asked["limit"] = 50.into();
        for (cursor, is_removed) in [(next, false), (longer.write(), is_removed)] {
            asked["cursor"] = cursor.into();
            let page = ask(dir.path(), &("log", asked.clone())).await;
            let removed = page.uncovered.iter().find(|one| one.reason == "retention");
            assert_eq!((page.refusal.as_ref(), removed.is_some()), (None, is_removed), "{asked}: {page:?}");
            assert!(removed.is_none_or(|one| one.to.as_deref() == Some("2026-11-21T10:00:00.000000Z")), "{removed:?}");
            assert_eq!(page.complete, page.uncovered.is_empty());
        }
    }
}
