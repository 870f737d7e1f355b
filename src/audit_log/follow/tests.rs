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
    for (what, second, expected) in [
        ("nothing is read", 0, None),
        // A creation is decided a second behind the last request that can have made it.
        ("19 are decided", 4 * 18 + 13, None),
        ("20 are decided", 4 * 19 + 13, Some(20)),
        ("a file is behind", 4 * 19 + 13, Some(20)),
        ("all are decided", 4 * 40 + 13, Some(30)),
    ] {
        let upto = (start + jiff::SignedDuration::from_secs(second)).as_microsecond();
        follower.take(News { log: "audit".to_owned(), complete: upto, requests: Vec::new() });
        follower.versions_complete = upto;
        (reader, follower) = follower.settle(reader).unwrap();
        let Unexplained { run, resources } = told.borrow().clone();
        assert_eq!(run.map(|run| run.changes), expected, "{what}");
        let listed: Vec<_> = resources.iter().map(|of| (of.resource.as_str(), of.changes, of.decided)).collect();
        let wanted: Vec<_> = expected.map(|number| ("pods", number, number)).into_iter().collect();
        assert_eq!(listed, wanted, "{what}");
    }
    drop((source, follower, journal, reader));
    thread.join().unwrap();
}
