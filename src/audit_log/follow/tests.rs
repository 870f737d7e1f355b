//! Verdicts of the join as they are counted.

use serde_json::json;

use super::*;
use crate::audit_log::Sender;
use crate::core::change::redact::{Redactor, Settings as Redact};
use crate::journal::AuditBatch;
use crate::journal::tests::pods;

/// The entry of a Pod that a watch brings, written so many seconds after the start.
fn pod(seq: u64, start: Timestamp, second: i64) -> Version {
    let time = (start + jiff::SignedDuration::from_secs(second)).to_string();
    let line = json!({"v": 1, "seq": seq, "epoch": "e", "id": "i", "time": time, "type": "ADDED", "evidence": "watched",
        "cluster": {"name": "c", "uid": "u"}, "apiVersion": "v1", "kind": "Pod", "resource": "pods", "namespace": "shop",
        "name": format!("pod-{seq}"), "uid": format!("u-{seq}"), "resourceVersion": seq.to_string()});
    Versions::new(Duration::ZERO).take(line.to_string().as_bytes()).unwrap().unwrap()
}

/// Changes without a request count once all of their time is read, and not before.
#[tokio::test]
async fn changes_without_a_request_count_where_all_of_their_time_is_read() {
    unexplained(&[
        ("nothing is read", 0, None, None),
        // A creation is decided a second behind the last request that can have made it.
        ("19 are decided", 4 * 18 + 13, None, None),
        ("20 are decided", 4 * 19 + 13, None, Some((20, 20))),
        ("a file is behind", 4 * 19 + 13, None, Some((20, 20))),
        ("all are decided", 4 * 40 + 13, None, Some((30, 30))),
    ])
    .await;
}

/// The file of an API server that gets its policy later than decklog began: what was written before its first event is nobody's.
#[tokio::test]
async fn changes_before_the_first_event_of_an_audit_log_accuse_nobody() {
    unexplained(&[
        ("nothing is read", 0, None, None),
        // Also that of second 36 may have been written before it, because a watch may be five seconds late.
        ("the first event comes", 4 * 40 + 13, Some(4 * 8 + 1), Some((20, 30))),
        ("another one, and no other time is in doubt", 4 * 40 + 20, Some(4 * 40), Some((20, 30))),
    ])
    .await;
}

/// A change of a Pod by `kubectl`, written so many seconds after the start.
fn patched(seq: u64, start: Timestamp, second: i64) -> Version {
    let time = (start + jiff::SignedDuration::from_secs(second)).to_string();
    let patch = json!([{"op": "replace", "path": "/metadata/resourceVersion", "value": seq.to_string(), "was": "1"},
        {"op": "add", "path": "/metadata/labels/x", "value": "x"}]);
    let managers = json!([{"manager": "kubectl", "operation": "Update", "time": time, "by": "moved"}]);
    let line = json!({"v": 1, "seq": seq, "epoch": "e", "id": "i", "time": time, "type": "MODIFIED", "evidence": "watched",
        "cluster": {"name": "c", "uid": "u"}, "apiVersion": "v1", "kind": "Pod", "resource": "pods", "namespace": "shop",
        "name": "a", "uid": "u", "resourceVersion": seq.to_string(),
        "change": {"areas": ["metadata"], "patch": patch, "managers": managers}});
    let line = line.to_string();
    let line = format!("{},\"object\":{{\"metadata\":{{\"name\":\"a\"}}}}}}", line.strip_suffix('}').unwrap());
    Versions::new(Duration::ZERO).take(line.as_bytes()).unwrap().unwrap()
}

/// A change that was made before an audit log begins makes its writer doubtful nowhere: however long the log was quiet before its first
/// event, and also where decklog restarts behind it.
#[tokio::test]
async fn an_audit_log_that_has_brought_nothing_makes_no_writer_doubtful() {
    // The second of the first event, and that of another audit log, which has nothing to bring where it is 0.
    for (what, first, other, is_restarted, expected) in [
        ("the log begins after the first change", 150, None, false, Some("alice")),
        ("and decklog restarts", 150, None, true, Some("alice")),
        // The log was there, and does not have who made the first change.
        ("the log was there", -50, None, false, None),
        ("and decklog restarts", -50, None, true, None),
        ("another log has brought nothing, and has perhaps nothing to bring", -50, Some(0), false, Some("alice")),
        ("another log was there, too", -50, Some(-50), false, None),
        // Somebody else may have made the second change before.
        ("the log begins after both changes", 220, None, false, None),
        ("another log begins after both changes", -50, Some(220), false, None),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let (journal, thread) = Journal::open(dir.path()).unwrap();
        let source = journal.source(&pods()).await.unwrap().0;
        let (_rules, rules) = watch::channel(Arc::new(Redactor::new(&Redact::default(), [7; 32]).unwrap()));
        let mut reader = journal.reader().unwrap();
        let start = runtime::now() - jiff::SignedDuration::from_secs(400);
        let at = |second: i64| (start + jiff::SignedDuration::from_secs(second)).as_microsecond();
        let begun = |reader: &Reader| {
            let names = ["hook"].into_iter().chain(other.map(|_| "other"));
            let logs = names.map(|name| Followed { name: name.to_owned(), begins: None });
            let logs = (logs.collect(), Duration::ZERO);
            let told: Told = (rules.clone(), Arc::new(|_| ()), watch::Sender::default());
            let mut follower = Follower::begin(journal.clone(), logs, told, reader).unwrap();
            follower.joiner = Joiner::new(Limits { skew: 0, ..Limits::default() }, at(-300));
            follower.cover(&reader.sources().unwrap());
            follower
        };
        let audited = async |second: i64| {
            for (log, first) in [("hook", Some(first)), ("other", other)] {
                let Some(first) = first else { continue };
                let first_at = if first == 0 || first > second { 0 } else { at(first) };
                let batch = AuditBatch { log: log.to_owned(), first_at, ..AuditBatch::default() };
                journal.audited(batch).await.unwrap();
            }
        };
        let read = |follower: &mut Follower, second: i64, requests: Vec<AuditedRequest>| {
            for (log, requests) in [("hook", requests), ("other", Vec::new())] {
                follower.take(News { log: log.to_owned(), complete: at(second), requests });
            }
        };
        audited(0).await;
        let mut follower = begun(&reader);
        follower.open(patched(2, start, 0));
        // A receiver that is quiet is read up to its lag all the same.
        for second in [20, 50, 100] {
            read(&mut follower, second, Vec::new());
            follower.doubt(&reader).unwrap();
            follower.versions_complete = at(second);
            (reader, follower) = follower.settle(reader).unwrap();
        }
        assert_eq!(follower.open.len(), 0, "{what}: the first change is decided");
        audited(250).await;
        if is_restarted {
            follower = begun(&reader);
            follower.open(patched(2, start, 0));
        }
        let request = AuditedRequest {
            id: "id".to_owned(),
            verb: "patch".to_owned(),
            resource: "pods".to_owned(),
            namespace: "shop".to_owned(),
            name: "a".to_owned(),
            manager: "kubectl".to_owned(),
            code: 200,
            received: at(200),
            completed: at(200) + 1000,
            sender: Sender { user: "alice".to_owned(), ..Sender::default() },
            ..AuditedRequest::default()
        };
        follower.open(patched(3, start, 200));
        read(&mut follower, 300, vec![request]);
        follower.doubt(&reader).unwrap();
        follower.versions_complete = at(300);
        (reader, follower) = follower.settle(reader).unwrap();
        assert_eq!(follower.open.len(), 0, "{what}: all is decided");
        let named: Vec<_> = follower.actors.iter().map(|(seq, actor)| (seq.0, actor.sender.user.as_str())).collect();
        assert_eq!(named, expected.map(|user| (3, user)).into_iter().collect::<Vec<_>>(), "{what}");
        drop((source, follower, journal, reader));
        thread.join().unwrap();
    }
}

/// Requests are kept for a quarter of an hour, and a minute longer because one with a single time may have been answered that much later.
#[tokio::test]
async fn requests_are_kept_while_a_version_of_their_time_is_read_again() {
    let dir = tempfile::tempdir().unwrap();
    let (journal, thread) = Journal::open(dir.path()).unwrap();
    let (_rules, rules) = watch::channel(Arc::new(Redactor::new(&Redact::default(), [7; 32]).unwrap()));
    let reader = journal.reader().unwrap();
    let end = now();
    let of = |age: i64| AuditedRequest {
        id: age.to_string(),
        received: end - age * 1_000_000,
        completed: end - age * 1_000_000,
        ..AuditedRequest::default()
    };
    let requests = [0, 899, 901, 959, 961].map(of).to_vec();
    journal.audited(AuditBatch { log: "hook".to_owned(), requests, ..AuditBatch::default() }).await.unwrap();
    let logs = (vec![Followed { name: "hook".to_owned(), begins: None }], Duration::ZERO);
    let told: Told = (rules, Arc::new(|_| ()), watch::Sender::default());
    let mut follower = Follower::begin(journal.clone(), logs, told, &reader).unwrap();
    follower.take(News { log: "hook".to_owned(), complete: end, requests: Vec::new() });
    follower.noted = Instant::now().checked_sub(NOTE_INTERVAL).unwrap();
    follower.record().await.unwrap();
    let kept: Vec<_> = reader.audited().unwrap().into_iter().map(|request| request.id).collect();
    assert_eq!(kept, ["959", "901", "899", "0"]);
    drop((follower, journal, reader));
    thread.join().unwrap();
}

type Step = (&'static str, i64, Option<i64>, Option<(u64, u64)>);

/// Gives a follower 30 changes, four seconds apart, that no request made. Each step says up to which second the audit log is read, the
/// second of a request that comes, and how many changes without a request are told, of how many.
async fn unexplained(steps: &[Step]) {
    let dir = tempfile::tempdir().unwrap();
    let (journal, thread) = Journal::open(dir.path()).unwrap();
    let source = journal.source(&pods()).await.unwrap().0;
    let (_rules, rules) = watch::channel(Arc::new(Redactor::new(&Redact::default(), [7; 32]).unwrap()));
    let unexplained = watch::Sender::default();
    let told = unexplained.subscribe();
    let suspects: Suspects = Arc::new(|_| ());
    let logs = (vec![Followed { name: "audit".to_owned(), begins: None }], Duration::ZERO);
    let mut reader = journal.reader().unwrap();
    let mut follower = Follower::begin(journal.clone(), logs, (rules, suspects, unexplained), &reader).unwrap();
    follower.cover(&reader.sources().unwrap());
    let start = runtime::now() + jiff::SignedDuration::from_secs(60);
    for number in 0..30 {
        follower.open(pod(number + 1, start, 4 * i64::try_from(number).unwrap()));
    }
    for &(what, second, request, expected) in steps {
        let at = |second: i64| (start + jiff::SignedDuration::from_secs(second)).as_microsecond();
        let upto = at(second);
        let request = request.map(|second| AuditedRequest {
            id: "id".to_owned(),
            verb: "create".to_owned(),
            resource: "pods".to_owned(),
            namespace: "elsewhere".to_owned(),
            name: "other".to_owned(),
            code: 201,
            received: at(second),
            completed: at(second) + 1000,
            ..AuditedRequest::default()
        });
        let first_at = request.as_ref().map_or(0, |request| request.completed);
        let batch = AuditBatch { log: "audit".to_owned(), first_at, ..AuditBatch::default() };
        journal.audited(batch).await.unwrap();
        follower.take(News { log: "audit".to_owned(), complete: upto, requests: request.into_iter().collect() });
        follower.doubt(&reader).unwrap();
        follower.versions_complete = upto;
        (reader, follower) = follower.settle(reader).unwrap();
        let Unexplained { run, resources } = told.borrow().clone();
        assert_eq!(run.map(|run| run.changes), expected.map(|(changes, _)| changes), "{what}");
        let listed: Vec<_> = resources.iter().map(|of| (of.resource.as_str(), of.changes, of.decided)).collect();
        let wanted: Vec<_> = expected.map(|(changes, decided)| ("pods", changes, decided)).into_iter().collect();
        assert_eq!(listed, wanted, "{what}");
    }
    drop((source, follower, journal, reader));
    thread.join().unwrap();
}
