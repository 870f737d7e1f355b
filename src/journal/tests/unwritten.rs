//! Requests that wrote nothing: each counts once, whatever is handed over again and wherever a kill comes between.

use super::*;
use crate::core::k8s::audited::{self, AuditedRequest};
use crate::journal::{Attribution, AuditBatch, HOUR, OTHER_SENDERS, Unwritten, UnwrittenKind};

/// The beginning of an hour.
const T: i64 = 480_000 * HOUR;

fn sent(key: &str, kind: UnwrittenKind, user: &str, completed: i64) -> Unwritten {
    Unwritten {
        key: audited::key(key, 0, completed),
        kind,
        user: user.to_owned(),
        agent: "operator/v1 (linux/amd64) kubernetes/1a2b3c4".to_owned(),
        verb: "update".to_owned(),
        resource: "pods".to_owned(),
        namespace: "shop".to_owned(),
        name: format!("of-{key}"),
        completed,
        ..Unwritten::default()
    }
}

fn no_op(key: &str) -> Unwritten {
    sent(key, UnwrittenKind::NoOp, "alice", T + 10)
}

fn kept(keys: &[&str]) -> AuditBatch {
    let request = |key: &&str| AuditedRequest { id: (*key).to_owned(), completed: T + 10, ..AuditedRequest::default() };
    AuditBatch { log: "a".to_owned(), requests: keys.iter().map(request).collect(), ..AuditBatch::default() }
}

fn wasted(of: &[Unwritten]) -> Attribution {
    Attribution { wasted: of.to_vec(), ..Attribution::default() }
}

fn counts(open: &Open) -> Vec<(UnwrittenKind, String, u64)> {
    let rows = open.journal.reader().unwrap().unwritten(T, T + HOUR).unwrap();
    rows.into_iter().map(|row| (row.like.kind, row.like.user, row.count)).collect()
}

/// The follower is killed between any two of its steps: what it settled and did not commit is settled again, and what it committed is
/// settled again, too, because the request is still kept.
#[tokio::test]
async fn a_request_counts_once_wherever_a_kill_comes() {
    let dir = tempfile::tempdir().unwrap();
    let alice = |count| vec![(UnwrittenKind::NoOp, "alice".to_owned(), count)];
    let open = Open::at(dir.path()).await;
    open.journal.audited(kept(&["x", "y"])).await.unwrap();
    open.close();
    let open = Open::at(dir.path()).await;
    assert_eq!(counts(&open), [], "a kill before the commit leaves nothing, and the request");
    assert_eq!(open.journal.reader().unwrap().audited().unwrap().len(), 2);
    open.journal.attribute(wasted(&[no_op("x")])).await.unwrap();
    open.close();
    let open = Open::at(dir.path()).await;
    assert_eq!(counts(&open), alice(1));
    // The position of the file was not committed with it: the events come again, and so does the answer.
    open.journal.audited(kept(&["x", "y"])).await.unwrap();
    open.journal.attribute(wasted(&[no_op("x"), no_op("y"), no_op("y")])).await.unwrap();
    assert_eq!(counts(&open), alice(2));
    // One that is not kept any more, for want of room, is not settled by two.
    open.journal.attribute(Attribution { needed_since: T + 11, ..wasted(&[no_op("z")]) }).await.unwrap();
    assert_eq!(counts(&open), alice(3));
    let row = open.journal.reader().unwrap().unwritten(T, T).unwrap().remove(0);
    assert_eq!((&*row.like.agent, &*row.like.namespace, &*row.like.name), ("operator/v1", "shop", "of-z"));
}

/// Refused requests are counted with the part of the audit log that has them, and a part that is sent again changes nothing.
#[tokio::test]
async fn a_refused_request_counts_once_however_often_it_is_sent() {
    let dir = tempfile::tempdir().unwrap();
    let refused = [
        sent("1", UnwrittenKind::Conflict, "bob", T + 5),
        sent("2", UnwrittenKind::AlreadyExists, "bob", T + 6),
        sent("3", UnwrittenKind::Conflict, "bob", T + 4),
    ];
    let batch = |of: &[Unwritten]| AuditBatch { log: "a".to_owned(), refused: of.to_vec(), ..AuditBatch::default() };
    let open = Open::at(dir.path()).await;
    open.journal.audited(batch(&refused[..2])).await.unwrap();
    open.journal.audited(batch(&refused)).await.unwrap();
    open.close();
    let open = Open::at(dir.path()).await;
    open.journal.audited(batch(&refused)).await.unwrap();
    let bob = |kind, count| (kind, "bob".to_owned(), count);
    assert_eq!(counts(&open), [bob(UnwrittenKind::Conflict, 2), bob(UnwrittenKind::AlreadyExists, 1)]);
    let rows = open.journal.reader().unwrap().unwritten(T, T).unwrap();
    assert_eq!((rows[0].first, rows[0].like.completed, &*rows[0].like.name), (T + 4, T + 5, "of-1"));
    assert!(open.journal.reader().unwrap().audited().unwrap().is_empty(), "they take no place of those that wrote");
}

/// An hour with too many senders has a row for the rest, and a journal with too many rows loses its oldest hours: no count is lost to
/// the first bound.
#[tokio::test]
async fn rows_are_bounded() {
    let dir = tempfile::tempdir().unwrap();
    let open = Open::at(dir.path()).await;
    let many: Vec<Unwritten> = (0..100)
        .map(|number| sent(&number.to_string(), UnwrittenKind::NoOp, &format!("user-{:02}", number % 50), T + number))
        .collect();
    open.journal.attribute(wasted(&many)).await.unwrap();
    let found = counts(&open);
    assert_eq!((found.len(), found.iter().map(|(.., count)| count).sum::<u64>()), (9, 100), "{found:?}");
    assert!(found.contains(&(UnwrittenKind::NoOp, OTHER_SENDERS.to_owned(), 84)), "{found:?}");
    for hour in 1..20 {
        let later = |number: i64| {
            sent(&format!("{hour}.{number}"), UnwrittenKind::NoOp, &format!("user-{number}"), T + hour * HOUR)
        };
        open.journal.attribute(wasted(&(0..5).map(later).collect::<Vec<_>>())).await.unwrap();
    }
    let reader = open.journal.reader().unwrap();
    let hours = |from, to| reader.unwritten(T + from * HOUR, T + to * HOUR).unwrap().len();
    assert_eq!((hours(0, 10), hours(19, 19)), (0, 5));
}

/// A span has the hours that it touches, and no others.
#[tokio::test]
async fn a_span_has_the_hours_that_it_touches() {
    let dir = tempfile::tempdir().unwrap();
    let open = Open::at(dir.path()).await;
    let of: Vec<Unwritten> = (0..3)
        .map(|hour| sent(&hour.to_string(), UnwrittenKind::NoOp, &format!("user-{hour}"), T + hour * HOUR + HOUR / 2))
        .collect();
    open.journal.attribute(wasted(&of)).await.unwrap();
    let reader = open.journal.reader().unwrap();
    for (since, until, users) in [
        (T, T + HOUR - 1, &["user-0"][..]),
        (T + HOUR - 1, T + HOUR, &["user-0", "user-1"]),
        (T + HOUR, T + HOUR, &["user-1"]),
        (T + 3 * HOUR, T + 9 * HOUR, &[]),
        (T - HOUR, T + 9 * HOUR, &["user-0", "user-1", "user-2"]),
    ] {
        let found: Vec<String> = reader.unwritten(since, until).unwrap().into_iter().map(|row| row.like.user).collect();
        assert_eq!(found, users, "{since} to {until}");
    }
}

/// What is known of an object that an audit event names.
#[tokio::test]
async fn an_object_is_known_by_its_last_version() {
    let dir = tempfile::tempdir().unwrap();
    let open = Open::at(dir.path()).await;
    open.list(10, None, &[pod("a", "u1", 1), pod("b", "u2", 2)]).await;
    open.watch(vec![upsert("a", "u1", 11), delete("b", "u2", 12)]).await;
    let reader = open.journal.reader().unwrap();
    let known = |name: &str| reader.audited_object("", "pods", "shop", name).unwrap();
    let (a, b) = (known("a").unwrap(), known("b").unwrap());
    assert_eq!((a.version.as_str(), a.present, a.suppressed, a.recorded > 0), ("11", true, false, true));
    assert_eq!((b.version.as_str(), b.present), ("12", false));
    assert!(known("c").is_none() && reader.audited_object("apps", "pods", "shop", "a").unwrap().is_none());
}

/// Counts are kept as long as the log: an hour that ended before it begins goes with its entries.
#[tokio::test]
async fn an_hour_goes_with_the_entries_of_its_time() {
    use super::retention::{by_age, oldest, until};
    let dir = tempfile::tempdir().unwrap();
    let open = Open::at(dir.path()).await;
    open.list(10, None, &[pod("a", "u1", 1)]).await;
    open.watch((11..20).map(|version| upsert("a", "u1", version)).collect()).await;
    let now = runtime::now().as_microsecond();
    let of = [sent("1", UnwrittenKind::NoOp, "of-old", now - 3 * HOUR), sent("2", UnwrittenKind::NoOp, "of-now", now)];
    open.journal.attribute(wasted(&of)).await.unwrap();
    open.journal.bound(by_age()).await.unwrap();
    until("the log is truncated", || oldest(&open) > 1).await;
    let left = open.journal.reader().unwrap().unwritten(0, i64::MAX / 2).unwrap();
    assert_eq!(left.iter().map(|row| row.like.user.as_str()).collect::<Vec<_>>(), ["of-now"]);
}
