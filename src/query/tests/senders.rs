//! Questions by user: a change is also by who sent it, and so is the ACTOR that says so.

use std::cell::RefCell;
use std::collections::BTreeSet;

use serde_json::Value;

use super::*;
use crate::core::k8s::audited::{Actor, Sender};
use crate::core::rights::Sight;
use crate::journal::{Attribution, AuditBatch, AuditCounts};
use crate::query::select::{Filters, Select};

/// Records the sender of the newest entry.
pub(super) async fn sent(story: &Story, sender: Sender, certainty: &str) {
    let of = *story.journal.head().borrow();
    let actor = Actor {
        sender: Sender { addresses: vec!["10.0.0.7".to_owned()], ..sender },
        verb: "update".to_owned(),
        subresource: String::new(),
        audit_ids: vec![of.0.to_string()],
        certainty: certainty.to_owned(),
    };
    let attribution = Attribution { actors: vec![(of, actor)], upto: of, needed_since: 0, ..Attribution::default() };
    story.journal.attribute(attribution).await.unwrap();
}

/// A log of two objects: 1 and 4 to 7 are of `flags`, 2 and 3 of `web`, and 3, 5 and 7 are ACTORs.
async fn played(dir: &Path) {
    Story::play(dir, &[], async |story| {
        story.write("configmaps", "shop/flags", "helm", |map| map["data"] = json!({"a": "1"})).await;
        story.pass(5).await;
        story.write("deployments", "shop/web", "kubectl-edit", |web| web["spec"] = json!({"replicas": 1})).await;
        sent(story, Sender { user: "alice@example.com".to_owned(), ..Sender::default() }, "exact").await;
        story.pass(5).await;
        story.write("configmaps", "shop/flags", "kubectl-edit", |map| map["data"] = json!({"a": "2"})).await;
        let (user, impersonated_by) = ("system:serviceaccount:ci:bot".to_owned(), "bob@example.com".to_owned());
        sent(story, Sender { user, impersonated_by, ..Sender::default() }, "field").await;
        story.pass(5).await;
        story.write("configmaps", "shop/flags", "helm", |map| map["data"] = json!({"a": "3"})).await;
        sent(story, Sender { user: "alice@example.com".to_owned(), ..Sender::default() }, "field").await;
    })
    .await;
}

/// The items of an answer as JSON, and the notes beside it.
fn asked<Q: Question>(dir: &Path, question: Q) -> (Vec<Value>, Vec<String>) {
    let (notes, mut items) = (RefCell::new(Vec::new()), Vec::new());
    let note = |text: &str| notes.borrow_mut().push(text.to_owned());
    let now = "2026-11-21T10:30:00Z".parse().unwrap();
    let log = Log::new(dir.to_owned(), Sight::All, Clock { now, zone: TimeZone::UTC }, &note, &|| false);
    let answered = question.answer(&log, &mut |item| {
        items.push(serde_json::to_value(&item).unwrap());
        Ok(())
    });
    answered.unwrap_or_else(|failure| panic!("{}: {failure}", Q::NAME));
    (items, notes.into_inner())
}

fn tailed(dir: &Path, only: &Filters) -> (Vec<u64>, Vec<String>) {
    let select = Select { only: only.clone(), ..Select::default() };
    let (items, notes) = asked(dir, questions::tail::Tail { select, last: Some(100), ..Default::default() });
    (items.iter().filter_map(|item| item["entry"]["seq"].as_u64()).collect(), notes)
}

/// The changes of both objects, by their histories.
fn histories(dir: &Path, only: &Filters) -> BTreeSet<u64> {
    let of = |object: &str| {
        let only = only.clone();
        asked(dir, questions::history::History { object: object.to_owned(), only, ..Default::default() }).0
    };
    let items = ["deployments/web", "configmaps/flags"].into_iter().flat_map(of);
    items.filter(|item| item["one"][0]["type"] != "ACTOR").filter_map(|item| item["one"][0]["seq"].as_u64()).collect()
}

/// All seqs in an answer.
fn seqs(answer: &Value) -> BTreeSet<u64> {
    let below: Vec<&Value> = match answer {
        Value::Array(all) => all.iter().collect(),
        Value::Object(members) => members.values().collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Vec::new(),
    };
    let own = answer.get("seq").and_then(Value::as_u64);
    below.into_iter().flat_map(seqs).chain(own).collect()
}

/// The entries that the page has, by each way that leads to them.
fn of_page(dir: &Path, window: &Window) -> [(&'static str, BTreeSet<u64>); 3] {
    let window = || window.clone();
    let listed = asked(dir, entries::Entries { window: window(), before: None, after: None, limit: 100 });
    let order = timeline::order::Order::Causes;
    let shown = asked(dir, lanes::Lanes { window: window(), order, lanes: 10, marks: 100 });
    let epoch = Reader::open(dir).unwrap().epoch().unwrap();
    let after = Some(updates::Cursor { epoch, seq: 0 });
    let updated = asked(dir, updates::Updates { window: window(), after });
    [
        ("list", seqs(&listed.0[0]["entries"])),
        ("lanes", seqs(&shown.0[0]["lanes"])),
        ("stream", seqs(&updated.0[0]["entries"])),
    ]
}

#[tokio::test(start_paused = true)]
async fn a_change_is_by_who_sent_it() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    played(dir).await;
    let by =
        |names: &[&str]| Filters { by: names.iter().map(|name| (*name).to_owned()).collect(), ..Filters::default() };
    let cel = |text: &str| Filters { filter: Some(text.to_owned()), ..Filters::default() };
    for (only, found) in [
        (by(&["alice@example.com"]), &[2, 3, 6, 7][..]),
        (by(&["*@example.com"]), &[2, 3, 4, 5, 6, 7]),
        (by(&["bob@example.com"]), &[4, 5]),
        (by(&["system:serviceaccount:*"]), &[4, 5]),
        (by(&["kubectl*"]), &[2, 4]),
        (by(&["helm", "bob@example.com"]), &[1, 4, 5, 6]),
        (by(&["alice"]), &[]),
        (cel(r#"actor.user == "alice@example.com""#), &[2, 3, 6, 7]),
        (cel(r#"actor.impersonated_by != """#), &[4, 5]),
        (cel(r#""10.0.0.7" in actor.addresses && "data" in change.areas"#), &[4, 6]),
        (cel(r#"actor.user == """#), &[1]),
        (cel(r#"actor.user == "" && "helm" in by"#), &[1]),
        (cel(r#"actor.certainty == "field" && type != "ACTOR""#), &[4, 6]),
        (Filters { filter: Some(r#"actor.verb == "update""#.to_owned()), ..by(&["helm"]) }, &[6]),
    ] {
        let is_change = |seq: &u64| ![3, 5, 7].contains(seq);
        let changes: BTreeSet<u64> = found.iter().copied().filter(is_change).collect();
        assert_eq!(tailed(dir, &only).0, found, "{only:?}");
        assert_eq!(histories(dir, &only), changes, "{only:?}");
        let window = Window { by: only.by.clone(), filter: only.filter.clone(), ..Window::default() };
        for (way, seqs) in of_page(dir, &window) {
            let is_expected = if way == "lanes" { seqs == changes } else { seqs.iter().eq(found) };
            assert!(is_expected, "{way} of {only:?}: {seqs:?} and not {found:?}");
        }
        let histogram = asked(dir, timeline::window::Histogram { window: window.clone(), buckets: 3 });
        assert_eq!(histogram.0[0]["total"], found.len(), "{only:?}");
        let since = Some(Timestamp::UNIX_EPOCH);
        let written = asked(dir, writers::Writers { window: Window { since, ..window } }).0.remove(0);
        let written: u64 = written["writers"].as_array().unwrap().iter().filter_map(|one| one["writes"].as_u64()).sum();
        let modified = changes.iter().filter(|seq| [4, 6].contains(*seq)).count() as u64;
        assert_eq!(written, modified, "{only:?}");
        let select = Select { only: Filters { since, ..only.clone() }, ..Select::default() };
        let churned = asked(dir, questions::churn::Churned { select, requests: false, top: 5 }).0.remove(0);
        assert_eq!(churned["entries"], found.len(), "{only:?}");
        let causes =
            questions::causes::Causes { only: Filters { since, ..only.clone() }, all: true, ..Default::default() };
        let groups = asked(dir, causes).0.iter().filter(|item| item.get("group").is_some()).count();
        assert_eq!(groups > 0, !changes.is_empty(), "{only:?}");
        if only.filter.is_none() {
            let from = Some(At::Seq(Seq(1)));
            let differs = asked(dir, questions::diff::Diff { from, by: only.by.clone(), ..Default::default() }).0;
            let objects: BTreeSet<&str> =
                differs.iter().filter_map(|item| item["object"]["resource"].as_str()).collect();
            let of = |seq: &u64| if *seq == 2 { "deployments.apps" } else { "configmaps" };
            // What is compared begins behind the first entry.
            let expected: BTreeSet<&str> = changes.iter().filter(|seq| **seq > 1).map(of).collect();
            assert_eq!(objects, expected, "{only:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_user_whom_no_entry_has_is_named_with_who_comes_nearest() {
    let dir = tempfile::tempdir().unwrap();
    played(dir.path()).await;
    let bare = tempfile::tempdir().unwrap();
    Story::play(bare.path(), &[], async |story| {
        story.write("configmaps", "shop/flags", "helm", |map| map["data"] = json!({"a": "1"})).await;
    })
    .await;
    let by = |name: &str| Filters { by: vec![name.to_owned()], ..Filters::default() };
    let cel = |text: &str| Filters { filter: Some(text.to_owned()), ..Filters::default() };
    for (dir, only, says) in [
        (&dir, by("alice@example.org"), Some("--by: no entry here is by alice@example.org; did you mean")),
        (&dir, by("kubectl-edi"), Some("--by: no entry here is by kubectl-edi; did you mean")),
        (
            &dir,
            cel(r#"actor.user == "alic@example.com""#),
            Some("--where: no entry here is by alic@example.com; did you"),
        ),
        (&dir, by("alice@example.com"), None),
        (&dir, cel(r#"actor.impersonated_by == "bob@example.com""#), None),
        (
            &bare,
            by("alice@example.com"),
            Some("no entry here is by alice@example.com; users are known with an [[audit_log]]"),
        ),
        (&bare, by("hel"), Some("did you mean")),
        (&bare, cel(r#"actor.user == "alice""#), Some("--where: no entry here has a sender; users are known")),
    ] {
        let notes = tailed(dir.path(), &only).1;
        match says {
            Some(says) => assert!(notes.iter().any(|note| note.contains(says)), "{only:?}: {notes:?}"),
            None => assert!(notes.iter().all(|note| !note.contains("no entry here")), "{only:?}: {notes:?}"),
        }
    }
    let names: Vec<Value> = asked(dir.path(), questions::names::Names::Managers).0;
    assert_eq!(
        names,
        ["alice@example.com", "bob@example.com", "helm", "kubectl-edit", "system:serviceaccount:ci:bot"]
            .map(Value::from)
    );
}

#[tokio::test(start_paused = true)]
async fn the_page_has_the_sender_beside_the_change() {
    let dir = tempfile::tempdir().unwrap();
    played(dir.path()).await;
    let window = Window::default();
    let listed = asked(dir.path(), entries::Entries { window: window.clone(), before: None, after: None, limit: 100 });
    let of: Vec<(u64, &str, Option<u64>)> = listed.0[0]["entries"]
        .as_array()
        .unwrap()
        .iter()
        .map(|entry| {
            let user = entry["actor"]["user"].as_str().unwrap_or_default();
            (entry["seq"].as_u64().unwrap(), user, entry["of"].as_u64())
        })
        .collect();
    let (alice, bot) = ("alice@example.com", "system:serviceaccount:ci:bot");
    let all = [(7, alice, Some(6)), (6, alice, None), (5, bot, Some(4)), (4, bot, None), (3, alice, Some(2))];
    assert_eq!(of, [&all[..], &[(2, alice, None), (1, "", None)]].concat());
    for (seq, user) in [(1, Value::Null), (2, alice.into()), (3, alice.into()), (4, bot.into())] {
        let whole = asked(dir.path(), entry::OneEntry { seq: Seq(seq), neighbours: true }).0.remove(0);
        assert_eq!(whole["summary"]["actor"]["user"], user, "{seq}");
    }
    let file = asked(dir.path(), embed::Timeline { window, max_bytes: 1 << 20 }).0;
    let text = serde_json::to_string(&file).unwrap();
    assert!(text.contains(r#""impersonated_by":"bob@example.com""#), "{text}");
}

/// Who was named before it was known that events of that time are missing is doubtful, unless the request proves itself.
#[tokio::test(start_paused = true)]
async fn a_sender_of_a_time_of_which_events_are_missing_is_doubtful() {
    for (certainty, verb, is_within, expected) in [
        ("exact", "update", true, "exact"),
        ("exact", "create", true, "exact"),
        // Their answers have the version also where they changed nothing.
        ("exact", "patch", true, "doubtful"),
        ("exact", "apply", true, "doubtful"),
        ("exact", "delete", true, "doubtful"),
        ("successor", "update", true, "doubtful"),
        ("created", "create", true, "doubtful"),
        ("field", "patch", true, "doubtful"),
        ("deleted", "delete", true, "doubtful"),
        ("collection", "deletecollection", true, "doubtful"),
        ("field", "patch", false, "field"),
        ("successor", "update", false, "successor"),
    ] {
        let dir = tempfile::tempdir().unwrap();
        Story::play(dir.path(), &[], async |story| {
            story.write("configmaps", "shop/flags", "helm", |map| map["data"] = json!({"a": "1"})).await;
            let of = *story.journal.head().borrow();
            let sender = Sender { user: "alice".to_owned(), ..Sender::default() };
            let (verb, certainty) = (verb.to_owned(), certainty.to_owned());
            let actor = Actor { sender, verb, subresource: String::new(), audit_ids: Vec::new(), certainty };
            let attribution = Attribution { actors: vec![(of, actor)], upto: of, ..Attribution::default() };
            story.journal.attribute(attribution).await.unwrap();
            let now = crate::core::runtime::now().as_microsecond();
            let doubt = if is_within { (now - 20_000_000, now) } else { (now + 1_000_000, now + 20_000_000) };
            let lost = AuditCounts { lost: 1, ..AuditCounts::default() };
            let batch =
                AuditBatch { log: "audit".to_owned(), counts: lost, doubt: Some(doubt), ..AuditBatch::default() };
            story.journal.audited(batch).await.unwrap();
        })
        .await;
        let what = format!("{certainty} {verb} {is_within}");
        let why = questions::why::Why {
            object: "configmaps/flags".to_owned(),
            paths: vec!["/data/a".to_owned()],
            namespaces: Vec::new(),
            at: None,
        };
        let (why, _) = asked(dir.path(), why);
        assert_eq!(why[0]["writes"][0]["actor"]["certainty"], expected, "{what}");
        let history = questions::history::History { object: "configmaps/flags".to_owned(), ..Default::default() };
        let (items, _) = asked(dir.path(), history);
        assert_eq!(items.contains(&json!("doubtful")), expected == "doubtful", "{what}: {items:?}");
        let (entry, _) = asked(dir.path(), entry::OneEntry { seq: Seq(1), neighbours: false });
        assert_eq!(entry[0]["summary"]["actor"]["certainty"], expected, "{what}");
    }
}

/// The story of a namespace names the senders of each line, also of one that is several changes.
#[tokio::test(start_paused = true)]
async fn what_happened_in_a_namespace_has_its_senders() {
    let dir = tempfile::tempdir().unwrap();
    played(dir.path()).await;
    let (alice, bot) = ("alice@example.com", "system:serviceaccount:ci:bot");
    let told = |all: bool| {
        let only = Filters { since: Some(Timestamp::UNIX_EPOCH), ..Filters::default() };
        let items = asked(dir.path(), questions::causes::Causes { only, all, ..Default::default() }).0;
        let mut told: Vec<(u64, Vec<String>)> = Vec::new();
        for group in items.iter().filter_map(|item| item.get("group")) {
            let users = group["actors"].as_array().into_iter().flatten();
            let users = users.map(|actor| actor["user"].as_str().unwrap().to_owned()).collect();
            told.push((group["entry"]["seq"].as_u64().unwrap_or_default(), users));
        }
        told
    };
    let of = |users: &[&str]| users.iter().map(|&user| user.to_owned()).collect::<Vec<_>>();
    assert_eq!(told(true), [(6, of(&[alice])), (4, of(&[bot])), (2, of(&[alice])), (1, of(&[]))]);
    let groups = told(false);
    let named: BTreeSet<&str> = groups.iter().flat_map(|(_, users)| users.iter().map(String::as_str)).collect();
    assert_eq!(named, BTreeSet::from([alice, bot]), "{groups:?}");
}

/// Who asks about a change that has no sender is told which it is: there is no audit log, it is not read so far, it lacks events, or
/// nobody is certain.
#[tokio::test(start_paused = true)]
async fn an_answer_without_a_sender_says_what_the_audit_log_has() {
    for (is_read, upto, lacks, later, is_sent, expected) in [
        (false, 0, false, 0, false, "the API server's audit log has who asked"),
        (true, 0, false, 0, false, "the audit log names nobody yet"),
        (true, 0, false, -60, false, "the audit log names nobody yet"),
        (true, 0, false, 60, false, "the audit log begins later, at AFTER"),
        (true, 1, false, 60, false, "the audit log begins later, at AFTER"),
        (true, 1, false, 60, true, "the audit log names alice"),
        (true, 1, true, 0, false, "the audit log lacks events of that time, so that nobody is certain"),
        (true, 1, false, 0, false, "the audit log names nobody for certain"),
        (true, 1, false, 0, true, "the audit log names alice"),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let mut first_at = 0;
        Story::play(dir.path(), &[], async |story| {
            story.write("configmaps", "shop/flags", "kubectl-edit", |map| map["data"] = json!({"a": "1"})).await;
            if is_read {
                let now = crate::core::runtime::now().as_microsecond();
                first_at = if later == 0 { 0 } else { now + later * 1_000_000 };
                let counts = AuditCounts { lost: u64::from(lacks), ..AuditCounts::default() };
                let doubt = lacks.then_some((now - 20_000_000, now));
                let batch = AuditBatch { log: "audit".to_owned(), counts, doubt, first_at, ..AuditBatch::default() };
                story.journal.audited(batch).await.unwrap();
                let attribution = Attribution { upto: Seq(upto), ..Attribution::default() };
                story.journal.attribute(attribution).await.unwrap();
            }
            if is_sent {
                sent(story, Sender { user: "alice".to_owned(), ..Sender::default() }, "field").await;
            }
        })
        .await;
        let why = questions::why::Why {
            object: "configmaps/flags".to_owned(),
            paths: vec!["/data/a".to_owned()],
            namespaces: Vec::new(),
            at: None,
        };
        let ends = asked(dir.path(), why).0[0]["writes"][0]["provenance"]["ends"]["text"].clone();
        let after = format!("{:.0}", Timestamp::from_microsecond(first_at).unwrap());
        let expected = expected.replace("AFTER", &after);
        assert_eq!(ends, format!("somebody used kubectl; {expected}"));
        let shown = asked(dir.path(), questions::show::Show { seq: Seq(1) }).0.remove(0);
        assert_eq!((&shown["beyond"], shown.get("actor").is_some()), (&json!(expected), is_sent));
    }
}
