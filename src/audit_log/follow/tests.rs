//! Verdicts of the join as they are counted.

use serde_json::json;

use super::*;
use crate::core::change::redact::{Redactor, Settings as Redact};
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
        follower.take(News { log: "audit".to_owned(), complete: upto, requests: request.into_iter().collect() });
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
