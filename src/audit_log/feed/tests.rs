//! What `[redact] senders` takes out of a sender is nowhere on the disk.

use serde_json::json;

use super::*;
use crate::audit_log::Sender;
use crate::audit_log::tests::event;
use crate::core::change::redact::{Redactor, SenderPart, Settings as Redact};
use crate::core::k8s::audited::Actor;
use crate::core::model::{Observed, Redacted, ResourceVersion, Seq, SourceSpec, Verb};
use crate::core::runtime::{self, watch};
use crate::core::spelling::Text;
use crate::core::spelling::kubernetes::NamespacePattern;
use crate::core::wire::Entry;
use crate::journal::tests::pods;
use crate::journal::{Attribution, AuditLogRow, WatchChange};

const USERS: [&str; 3] = ["canary-alice@example.com", "canary-bob@example.com", "canary-carol@example.com"];
const ADDRESSES: [&str; 2] = ["192.0.2.71", "2001:db8::71"];
const AGENT: &str = "canary-agent/v1 (linux/amd64)";

/// A version of a Pod that the watch brings.
fn pod(version: u64) -> WatchChange {
    let body = json!({"metadata": {"name": "a", "namespace": "shop", "uid": "u", "resourceVersion": version.to_string()},
        "spec": {"n": version}});
    let object = Observed {
        namespace: "shop".to_owned(),
        name: "a".to_owned(),
        uid: "u".to_owned(),
        version: ResourceVersion::new(version.to_string()),
        body: Redacted { bytes: body.to_string().into_bytes(), ..Redacted::default() },
    };
    WatchChange { verb: Verb::Upsert, object }
}

/// An update of a Pod, which brought a version. `through` impersonated the user.
fn updated(id: &str, name: &str, version: u64, through: Option<&str>) -> String {
    let now = runtime::now().to_string();
    let mut members = json!({
        "auditID": id, "level": "RequestResponse", "user": {"username": through.unwrap_or(USERS[0])},
        "requestURI": format!("/api/v1/namespaces/shop/pods/{name}?fieldManager=ci"), "sourceIPs": ADDRESSES, "userAgent": AGENT,
        "objectRef": {"resource": "pods", "namespace": "shop", "name": name, "uid": "u", "apiVersion": "v1"},
        "responseObject": {"metadata": {"name": name, "namespace": "shop", "uid": "u", "resourceVersion": version.to_string()}},
        "requestReceivedTimestamp": now, "stageTimestamp": now,
    });
    if through.is_some() {
        members["impersonatedUser"] = json!({"username": USERS[0]});
    }
    event(&members)
}

/// An update of a Pod that came too late.
fn refused(id: &str) -> String {
    let now = runtime::now().to_string();
    event(&json!({
        "auditID": id, "user": {"username": USERS[2]}, "userAgent": AGENT, "verb": "update",
        "objectRef": {"resource": "pods", "namespace": "shop", "name": "a", "uid": "u", "apiVersion": "v1"},
        "responseStatus": {"metadata": {}, "code": 409}, "requestReceivedTimestamp": now, "stageTimestamp": now,
    }))
}

/// All that the state directory holds: the bytes of its files, and the entries and requests in clear.
fn held(dir: &Path, journal: &Journal) -> Vec<Vec<u8>> {
    let files = std::fs::read_dir(dir).unwrap().map(|file| std::fs::read(file.unwrap().path()).unwrap());
    let mut held: Vec<Vec<u8>> = files.collect();
    let mut reader = journal.reader().unwrap();
    held.extend(reader.entries_after(Seq(0), 100, usize::MAX).unwrap().iter().map(|entry| entry.line.to_vec()));
    held.extend(reader.audited().unwrap().iter().map(|request| serde_json::to_vec(request).unwrap()));
    held
}

/// Receives events under rules, and records the sender of a change as the join does. Returns the canaries that are on the disk, and
/// that sender.
async fn written(senders: &[SenderPart]) -> (Vec<&'static str>, Sender) {
    let dir = tempfile::tempdir().unwrap();
    let (journal, thread) = Journal::open(dir.path()).unwrap();
    let source = journal.source(&pods()).await.unwrap().0;
    source.append(vec![pod(10)]).await.unwrap();
    source.append(vec![pod(11)]).await.unwrap();
    let redact = Redact { senders: senders.to_vec(), ..Redact::default() };
    let (_rules, rules) = watch::channel(Arc::new(Redactor::new(&redact, [7; 32]).unwrap()));
    let (sender, mut news) = mpsc::channel(1);
    let feed = Feed::new(journal.clone(), Settings::default(), rules, sender).unwrap();
    let events = [updated("1", "a", 11, None), updated("2", "b", 12, Some(USERS[1])), refused("3")];
    feed.receive(events.iter().map(|event| read_line(event.as_bytes())).collect()).await.unwrap();
    let requests = news.recv().await.unwrap().requests;
    assert_eq!(requests.len(), 2);
    for (of, request) in [(Seq(1), &requests[1]), (Seq(2), &requests[0])] {
        let AuditedRequest { sender, verb, id, .. } = request.clone();
        let certainty = "exact".to_owned();
        let actor = Actor { sender, verb, subresource: String::new(), audit_ids: vec![id], certainty };
        journal
            .attribute(Attribution { actors: vec![(of, actor)], upto: of, needed_since: 0, ..Attribution::default() })
            .await
            .unwrap();
    }
    let held = held(dir.path(), &journal);
    assert!(held.len() > 7, "four entries, two requests and the files of the journal");
    let is_held = |text: &&str| held.iter().any(|bytes| bytes.windows(text.len()).any(|part| part == text.as_bytes()));
    let found = [&USERS[..], &ADDRESSES[..], &[AGENT]].concat().into_iter().filter(is_held).collect();
    let stored = journal.reader().unwrap().actor_of(Seq(2)).unwrap().unwrap();
    let actor = Entry::parse(&stored.line).unwrap().actor().unwrap();
    drop((source, feed, journal));
    thread.join().unwrap();
    (found, actor.sender)
}

#[tokio::test]
async fn nothing_of_a_sender_that_is_redacted_is_on_the_disk() {
    use SenderPart::{Addresses, Agents, Users};
    for (parts, gone) in [
        (&[][..], &[][..]),
        (&[Users], &USERS[..]),
        (&[Addresses], &ADDRESSES[..]),
        (&[Agents], &[AGENT]),
        (&[Addresses, Users, Agents], &[USERS[0], USERS[1], USERS[2], ADDRESSES[0], ADDRESSES[1], AGENT]),
    ] {
        let (found, sender) = written(parts).await;
        for canary in [&USERS[..], &ADDRESSES[..], &[AGENT]].concat() {
            let is_there = found.contains(&canary);
            assert_eq!(is_there, !gone.contains(&canary), "{canary} with {parts:?}: {sender:?}");
        }
        assert_eq!(sender.user.starts_with("hmac:"), parts.contains(&Users), "{sender:?}");
        assert_eq!(sender.addresses.is_empty(), parts.contains(&Addresses), "{sender:?}");
        assert_eq!(sender.agent.is_empty(), parts.contains(&Agents), "{sender:?}");
    }
}

/// What cannot be read may be a write. So the time between its neighbours is one of which events are missing.
#[tokio::test]
async fn a_record_that_cannot_be_read_makes_its_time_doubtful() {
    const SECOND: i64 = 1_000_000;
    let at = |second: i64| {
        let time = jiff::Timestamp::from_microsecond(second * SECOND).unwrap().to_string();
        event(&json!({
            "auditID": time, "objectRef": {"resource": "pods", "namespace": "shop", "name": "a", "apiVersion": "v1"},
            "requestReceivedTimestamp": time, "stageTimestamp": time,
        }))
    };
    let torn = at(0).replace("\"responseStatus\"", "\"responseSta");
    let (whole, other) = (|second: i64| vec![at(second)], || vec!["no event of an audit log".to_owned()]);
    for (what, deliveries, expected) in [
        ("nothing is torn", vec![[whole(100), other(), whole(200)].concat()], vec![]),
        ("all of a delivery", vec![[whole(200), vec![torn.clone()], whole(100)].concat()], vec![(90, 200)]),
        ("behind another delivery", vec![whole(100), [vec![torn.clone()], whole(300)].concat()], vec![(90, 300)]),
        (
            "two",
            vec![[whole(100), vec![torn.clone()], whole(120), vec![torn.clone()], whole(130)].concat()],
            vec![(90, 130)],
        ),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let (journal, thread) = Journal::open(dir.path()).unwrap();
        let (_rules, rules) = watch::channel(Arc::new(Redactor::new(&Redact::default(), [7; 32]).unwrap()));
        let (sender, mut news) = mpsc::channel(8);
        let feed = Feed::new(journal.clone(), Settings::default(), rules, sender).unwrap();
        for events in deliveries {
            feed.receive(events.iter().map(|event| read_line(event.as_bytes())).collect()).await.unwrap();
            assert!(news.recv().await.is_some());
        }
        let doubts = journal.reader().unwrap().audit_logs().unwrap().remove(0).doubts;
        let doubts: Vec<_> = doubts.into_iter().map(|(from, to)| (from / SECOND, to / SECOND)).collect();
        assert_eq!(doubts, expected, "{what}");
        drop((feed, journal));
        thread.join().unwrap();
    }
}

/// A refusal counts where a source watches, by resource and namespace.
#[tokio::test]
async fn what_is_refused_where_nobody_watches_is_not_counted() {
    for (watched, excluded, expected) in [
        (&[""][..], &[][..], 2),
        (&["shop"], &[], 1),
        (&["pay"], &[], 1),
        (&["pay", "shop"], &[], 2),
        (&["web"], &[], 0),
        (&[], &[], 0),
        (&[""], &["pay"], 1),
        (&[""], &["s*", "web"], 1),
        (&[""], &["s*", "pay"], 0),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let (journal, thread) = Journal::open(dir.path()).unwrap();
        for namespace in watched {
            let namespace = Some((*namespace).to_owned()).filter(|namespace| !namespace.is_empty());
            let exclude_namespaces = excluded.iter().map(|text| NamespacePattern::read(text).unwrap()).collect();
            journal.source(&SourceSpec { namespace, exclude_namespaces, ..pods() }).await.unwrap();
        }
        let (_rules, rules) = watch::channel(Arc::new(Redactor::new(&Redact::default(), [7; 32]).unwrap()));
        let (sender, mut news) = mpsc::channel(1);
        let feed = Feed::new(journal.clone(), Settings::default(), rules, sender).unwrap();
        let of_configmaps = refused("9").replace("\"pods\"", "\"configmaps\"");
        let in_pay = refused("2").replace("shop", "pay");
        let events = [refused("1"), in_pay, of_configmaps];
        feed.receive(events.iter().map(|event| read_line(event.as_bytes())).collect()).await.unwrap();
        assert!(news.recv().await.is_some());
        let rows = journal.reader().unwrap().unwritten(i64::MIN / 4, i64::MAX / 4).unwrap();
        // A row is of a sender, and names the object of the newest of its requests.
        let found: u64 = rows.iter().map(|row| row.count).sum();
        assert_eq!(found, expected, "{watched:?} without {excluded:?}");
        drop((feed, journal));
        thread.join().unwrap();
    }
}

/// A file that is read from its start under another name brings nothing twice.
#[test]
fn an_audit_log_under_another_name_begins_where_it_was() {
    let rows = |rows: &[(&str, i64)]| -> Vec<AuditLogRow> {
        let row = |(name, complete): &(&str, i64)| AuditLogRow {
            name: (*name).to_owned(),
            complete: *complete,
            ..AuditLogRow::default()
        };
        rows.iter().map(row).collect()
    };
    for (known, expected) in [
        (&[][..], i64::MIN),
        (&[("a", 0)], i64::MIN),
        (&[("a", 50)], i64::MIN),
        (&[("old", 50)], 50),
        (&[("a", 0), ("old", 50), ("older", 20)], 50),
        (&[("a", 10), ("b", 50)], i64::MIN),
    ] {
        assert_eq!(crate::audit_log::begin_of(&rows(known), "a"), expected, "{known:?}");
    }
}

/// A delivery with its name, the events, others and torn ones of it, and whether it is taken.
type Row<'a> = (&'a str, &'a str, (u64, u64, u64), bool);

/// An event counts as one, and what is none apart: outside of what is known to carry other things.
#[tokio::test]
async fn what_is_no_audit_event_counts_apart_and_is_refused_alone() {
    let control = json!({"messageType": "CONTROL_MESSAGE", "logGroup": "", "logEvents": []}).to_string();
    let of_eks = |stream: &str, text: &str| {
        json!({"messageType": "DATA_MESSAGE", "logGroup": "/aws/eks/main/cluster", "logStream": stream,
            "logEvents": [{"timestamp": 5, "message": text}]})
        .to_string()
    };
    let of_azure = |category: &str, log: &str| {
        json!({"records": [{"category": category, "properties": {"log": log}}]}).to_string()
    };
    let of_google = json!({"protoPayload": {"serviceName": "iam.googleapis.com"}}).to_string();
    let pushed = json!({"message": {"data": "Z2FyYmFnZQ=="}, "subscription": "s"}).to_string();
    let event = event(&json!({}));
    let both = format!("garbage\n{event}\n");
    let stage = event.replace("ResponseComplete", "RequestReceived");
    let no_object = event.replace("objectRef", "otherRef");
    let torn = &event[..event.len() / 2];
    let rows: [Row<'_>; 24] = [
        ("nothing", "", (0, 0, 0), true),
        ("empty lines", "\n\n", (0, 0, 0), true),
        ("an empty list", r#"{"kind":"EventList","apiVersion":"audit.k8s.io/v1","items":[]}"#, (0, 0, 0), true),
        ("an event", &event, (1, 0, 0), true),
        ("an event of an earlier stage", &stage, (1, 0, 0), true),
        ("an event without an object", &no_object, (1, 0, 0), true),
        ("text and an event", &both, (1, 1, 0), true),
        ("text", "garbage more", (0, 1, 0), false),
        ("text in lines", "garbage\nmore\n", (0, 2, 0), false),
        ("a number", "5", (0, 1, 0), false),
        ("an object of another kind", r#"{"kind":"ConfigMap","apiVersion":"v1","data":{"a":"b"}}"#, (0, 1, 0), false),
        ("a list of another kind", r#"{"kind":"EventList","apiVersion":"v1","items":[]}"#, (0, 1, 0), false),
        ("a schema", r#"{"type":"object","properties":{"a":{}}}"#, (0, 1, 0), false),
        ("a shipper's text", r#"{"message":"garbage","host":"node"}"#, (0, 1, 0), false),
        ("the output of a container", r#"{"log":"{}","kubernetes":{}}"#, (0, 1, 0), false),
        ("text and what breaks off", "garbage\n{\"kind\":\"Ev", (0, 1, 1), false),
        ("a torn event", torn, (0, 0, 1), false),
        ("a message by which Firehose tries", &control, (0, 0, 0), true),
        ("another stream of EKS", &of_eks("authenticator-1", "text"), (0, 0, 0), true),
        ("text in the stream of EKS", &of_eks("kube-apiserver-audit-1", "I1128 klog"), (0, 1, 0), true),
        ("another category of Azure", &of_azure("kube-controller-manager", "{}"), (0, 0, 0), true),
        ("text in the category of Azure", &of_azure("kube-audit", "E1128 klog"), (0, 1, 0), true),
        ("another service of Google", &of_google, (0, 0, 0), true),
        ("text by Pub/Sub", &pushed, (0, 1, 0), true),
    ];
    for (name, body, (read, no_event, unreadable), is_taken) in rows {
        let dir = tempfile::tempdir().unwrap();
        let (journal, thread) = Journal::open(dir.path()).unwrap();
        let (_rules, rules) = watch::channel(Arc::new(Redactor::new(&Redact::default(), [7; 32]).unwrap()));
        let (sender, news) = mpsc::channel(8);
        let feed = Feed::new(journal.clone(), Settings::default(), rules, sender).unwrap();
        let handing = Handing(Arc::new(feed));
        let answer = handing.body(Bytes::copy_from_slice(body.as_bytes()), Peer::Unix(None)).await;
        assert_eq!(answer.is_ok(), is_taken, "{name}: {answer:?}");
        if let Err(refused) = answer {
            let Refusal::NotUnderstood(text) = refused else { panic!("{name}: {refused:?}") };
            assert!(text.starts_with("none of it is an audit event: ") && !text.contains("garbage"), "{name}: {text}");
        }
        handing.0.count_refused().await.unwrap();
        let counts = journal.reader().unwrap().audit_logs().unwrap().first().map(|row| row.counts).unwrap_or_default();
        assert_eq!((counts.read, counts.no_event, counts.unreadable), (read, no_event, unreadable), "{name}");
        drop((handing, journal, news));
        thread.join().unwrap();
    }
}

/// Who sends the events of another cluster is told which it sent, and the refusal counts. An event of this one beside them is taken.
#[tokio::test]
async fn events_of_another_cluster_are_refused_by_its_name_and_counted() {
    let of = |names: &[&str]| {
        let record = |name: &&str| {
            json!({"category": "kube-audit", "resourceId": name, "time": "2026-11-28T07:24:52Z",
                "properties": {"log": event(&json!({}))}})
        };
        json!({"records": names.iter().map(record).collect::<Vec<_>>()}).to_string()
    };
    let text = r#"these events are of the cluster "stage", and [[audit_log]] "hub" is for "prod", which its key `cluster` names"#;
    for (names, expected, counted) in [
        (&["stage"][..], Some(text), (0, 1)),
        (&["stage", "other"], Some(text), (0, 2)),
        (&["stage", "prod"], None, (1, 1)),
        (&["prod"], None, (1, 0)),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let (journal, thread) = Journal::open(dir.path()).unwrap();
        let (_rules, rules) = watch::channel(Arc::new(Redactor::new(&Redact::default(), [7; 32]).unwrap()));
        let (sender, news) = mpsc::channel(8);
        let settings =
            Settings { name: Some("hub".to_owned()), cluster: Some("prod".to_owned()), ..Settings::default() };
        let handing = Handing(Arc::new(Feed::new(journal.clone(), settings, rules, sender).unwrap()));
        let answer = handing.body(Bytes::from(of(names)), Peer::Unix(None)).await;
        assert_eq!(answer, expected.map_or(Ok(None), |text| Err(Refusal::Forbidden(text.to_owned()))), "{names:?}");
        handing.0.count_refused().await.unwrap();
        let row = journal.reader().unwrap().audit_logs().unwrap().remove(0);
        assert_eq!((row.counts.read, row.counts.foreign), counted, "{names:?}");
        assert_eq!(row.first_at > 0, counted.0 > 0, "an event of another cluster is no first event");
        drop((handing, journal, news));
        thread.join().unwrap();
    }
}

/// An audit log that begins where others are takes what was answered since. An event with one time may have been answered a minute later.
#[tokio::test]
async fn an_event_with_one_time_is_wanted_a_minute_longer() {
    let floor = now() - 600_000_000;
    for (took, before, is_wanted) in [(0, 59, true), (0, 61, false), (1, 1, false), (1, -1, true)] {
        let dir = tempfile::tempdir().unwrap();
        let (journal, thread) = Journal::open(dir.path()).unwrap();
        let source = journal.source(&pods()).await.unwrap().0;
        let (_rules, rules) = watch::channel(Arc::new(Redactor::new(&Redact::default(), [7; 32]).unwrap()));
        let (sender, mut news) = mpsc::channel(8);
        let feed = Feed::new(journal.clone(), Settings::default(), rules, sender).unwrap().since(floor);
        let at = |second: i64| {
            let time = floor - (before + second) * 1_000_000;
            jiff::Timestamp::from_microsecond(time).unwrap().to_string()
        };
        let event =
            event(&json!({"objectRef": {"resource": "pods", "namespace": "shop", "name": "a", "apiVersion": "v1"},
            "requestReceivedTimestamp": at(took), "stageTimestamp": at(0)}));
        feed.receive(vec![read_line(event.as_bytes())]).await.unwrap();
        let requests = news.recv().await.unwrap().requests.len();
        assert_eq!(requests == 1, is_wanted, "it took {took} s and ended {before} s before");
        let row = journal.reader().unwrap().audit_logs().unwrap().remove(0);
        assert!(row.first_at >= floor, "what is passed over is not its beginning: {row:?}");
        drop((source, feed, journal));
        thread.join().unwrap();
    }
}

/// A clock that is ahead says nothing of what is still to come.
#[tokio::test]
async fn an_event_of_the_future_moves_nothing_up() {
    let dir = tempfile::tempdir().unwrap();
    let (journal, thread) = Journal::open(dir.path()).unwrap();
    let (_rules, rules) = watch::channel(Arc::new(Redactor::new(&Redact::default(), [7; 32]).unwrap()));
    let (sender, mut news) = mpsc::channel(8);
    let feed = Feed::new(journal.clone(), Settings::default(), rules, sender).unwrap();
    let time = (runtime::now() + jiff::SignedDuration::from_hours(1)).to_string();
    let ahead = event(&json!({"requestReceivedTimestamp": time, "stageTimestamp": time}));
    feed.receive(vec![read_line(ahead.as_bytes())]).await.unwrap();
    let told = news.recv().await.unwrap();
    let row = journal.reader().unwrap().audit_logs().unwrap().remove(0);
    assert!(told.complete <= now() && row.complete <= now() && row.first_at <= now(), "{told:?} {row:?}");
    drop((feed, journal));
    thread.join().unwrap();
}

/// A counter that is zero is not written, and one that an older decklog wrote without it is read.
#[test]
fn counts_of_an_older_decklog_are_read() {
    let counts: AuditCounts = serde_json::from_str(r#"{"read":7,"unreadable":1}"#).unwrap();
    assert_eq!((counts.read, counts.unreadable, counts.no_event), (7, 1, 0));
    assert!(!serde_json::to_string(&counts).unwrap().contains("no_event"));
    let counts = AuditCounts { no_event: 3, ..counts };
    assert!(serde_json::to_string(&counts).unwrap().contains("\"no_event\":3"));
}
