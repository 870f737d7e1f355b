//! ACTOR entries: each once, whatever is handed over again, and gone with the entry that they name.

use super::*;
use crate::core::k8s::audited::{Actor, AuditedRequest, Sender};
use crate::journal::{Attribution, AuditBatch, AuditCounts, AuditLogRow};

fn by(user: &str) -> Actor {
    Actor {
        sender: Sender { user: user.to_owned(), ..Sender::default() },
        verb: "patch".to_owned(),
        subresource: String::new(),
        audit_ids: vec!["1".to_owned()],
        certainty: "exact".to_owned(),
    }
}

fn batch(position: &str, ids: &[&str]) -> AuditBatch {
    let request = |id: &&str| AuditedRequest { id: (*id).to_owned(), completed: 50, ..AuditedRequest::default() };
    AuditBatch {
        log: "a".to_owned(),
        position: Some(position.to_owned()),
        complete: 50,
        requests: ids.iter().map(request).collect(),
        counts: AuditCounts { read: ids.len() as u64, ..AuditCounts::default() },
        ..AuditBatch::default()
    }
}

#[tokio::test]
async fn a_change_has_one_sender_for_ever() {
    let dir = tempfile::tempdir().unwrap();
    let open = Open::at(dir.path()).await;
    open.list(10, None, &[pod("a", "u1", 1)]).await;
    open.watch(vec![upsert("a", "u1", 11)]).await;
    let attribute = async |open: &Open, actors: Vec<(Seq, Actor)>, upto| {
        open.journal.attribute(Attribution { actors, upto: Seq(upto), ..Attribution::default() }).await.unwrap();
    };
    open.journal.audited(batch("1", &["x", "y"])).await.unwrap();
    open.journal.audited(batch("2", &["y", "z"])).await.unwrap();
    // The second and the third time, of an ACTOR, and of nothing.
    attribute(&open, vec![(Seq(2), by("alice")), (Seq(2), by("bob"))], 2).await;
    attribute(&open, vec![(Seq(2), by("bob")), (Seq(3), by("bob")), (Seq(99), by("bob"))], 1).await;
    open.close();
    let open = Open::at(dir.path()).await;
    attribute(&open, vec![(Seq(2), by("bob"))], 0).await;
    let mut reader = open.journal.reader().unwrap();
    assert_eq!(reader.head().unwrap(), Seq(3));
    let stored = reader.actor_of(Seq(2)).unwrap().unwrap();
    let entry = Entry::parse(&stored.line).unwrap();
    let of = entry.of.as_ref().unwrap();
    assert_eq!((stored.seq, entry.actor().unwrap(), of.seq, &*of.id), (Seq(3), by("alice"), 2, "u1.11.MODIFIED"));
    assert_eq!(entry.id, "u1.11.MODIFIED.ACTOR");
    assert!(reader.actor_of(Seq(1)).unwrap().is_none());
    assert_eq!(reader.attributed().unwrap(), Seq(2), "it does not go back");
    let logs = reader.audit_logs().unwrap();
    assert_eq!((logs[0].position.as_deref(), logs[0].counts.read, logs[0].complete), (Some("2"), 4, 50));
    let ids: Vec<String> = reader.audited().unwrap().into_iter().map(|request| request.id).collect();
    assert_eq!(ids, ["x", "y", "z"], "an event that came twice is kept once");
    open.journal.attribute(Attribution { needed_since: 51, ..Attribution::default() }).await.unwrap();
    assert!(reader.audited().unwrap().is_empty());
    assert_whole(&mut reader);
}

/// Losses of one hour are one time; each other has its own, up to a bound, beyond which the oldest become one.
#[tokio::test]
async fn losses_of_audit_logs_are_kept_with_their_time() {
    const HOUR: i64 = 3_600_000_000;
    let dir = tempfile::tempdir().unwrap();
    let open = Open::at(dir.path()).await;
    // Nobody reads an audit log.
    open.journal.audit_dropped(1, (1, 2)).await.unwrap();
    open.journal.audit_logs(vec!["a".to_owned(), "b".to_owned()]).await.unwrap();
    let lost = AuditCounts { lost: 1, ..AuditCounts::default() };
    let loses = |within| AuditBatch { counts: lost, doubt: Some(within), ..batch("1", &[]) };
    let rows = async |open: &Open| {
        open.journal.audited(batch("2", &[])).await.unwrap();
        let rows = open.journal.reader().unwrap().audit_logs().unwrap();
        let row = |row: &AuditLogRow| (row.counts.lost, row.counts.dropped, row.doubts.clone(), row.lost_at > 0);
        rows.iter().map(row).collect::<Vec<_>>()
    };
    assert_eq!(rows(&open).await, [(0, 0, vec![], false), (0, 0, vec![], false)]);
    open.journal.audited(loses((10, 20))).await.unwrap();
    assert_eq!(rows(&open).await, [(1, 0, vec![(10, 20)], true), (0, 0, vec![], false)]);
    open.journal.audit_dropped(5, (5, 15)).await.unwrap();
    assert_eq!(rows(&open).await, [(1, 5, vec![(5, 20)], true), (0, 5, vec![(5, 15)], true)]);
    open.journal.audit_dropped(2, (HOUR, HOUR + 30)).await.unwrap();
    let one = vec![(5, HOUR + 30)];
    assert_eq!(rows(&open).await, [(1, 7, one.clone(), true), (0, 7, one.clone(), true)]);
    open.journal.audited(loses((9 * HOUR, 9 * HOUR + 1))).await.unwrap();
    open.journal.audited(loses((5 * HOUR, 5 * HOUR + 1))).await.unwrap();
    open.close();
    let open = Open::at(dir.path()).await;
    let three = [(5, HOUR + 30), (5 * HOUR, 5 * HOUR + 1), (9 * HOUR, 9 * HOUR + 1)];
    assert_eq!(rows(&open).await[0], (3, 7, three.to_vec(), true));
    // One that reaches from the first to the second.
    open.journal.audited(loses((2 * HOUR, 4 * HOUR))).await.unwrap();
    assert_eq!(rows(&open).await[0], (4, 7, vec![(5, 5 * HOUR + 1), three[2]], true));
    for later in 0..1_000 {
        open.journal.audited(loses(((20 + 3 * later) * HOUR, (21 + 3 * later) * HOUR))).await.unwrap();
    }
    let doubts = rows(&open).await.swap_remove(0).2;
    assert_eq!((doubts.len(), doubts[0], doubts[1]), (1_000, (5, 21 * HOUR), (23 * HOUR, 24 * HOUR)));
    open.close();
}
