use std::io::Write as _;

use super::*;
use crate::journal::{AuditBatch, Journal};

const NAME: &str = "decklog-check-7";

fn event(name: &str, stage: &str) -> String {
    let status = if stage == "ResponseComplete" { r#","responseStatus":{"code":403}"# } else { "" };
    format!(
        r#"{{"kind":"Event","apiVersion":"audit.k8s.io/v1","level":"Metadata","auditID":"7a","stage":"{stage}","requestURI":"/api/v1/namespaces/default/pods/{name}?dryRun=All","verb":"patch","user":{{"username":"u"}},"objectRef":{{"resource":"pods","namespace":"default","name":"{name}","apiVersion":"v1"}}{status}}}"#
    ) + "\n"
}

/// The best of what is there of the request.
fn look(place: &mut Place) -> Option<Heard> {
    let asked = [Asked { resource: "pods".to_owned(), name: NAME.to_owned() }];
    place.look(&asked).into_iter().map(|(_, heard)| heard).max()
}

/// Of several requests whose events come together, none is lost for another one.
#[test]
fn each_request_has_its_event() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("audit.log");
    fs::write(&path, "").unwrap();
    let mut place = Place::of(&Settings { file: Some(path.clone()), ..Settings::default() }, None).unwrap();
    let asked = ["a", "b", "c"].map(|name| Asked { resource: name.to_owned(), name: format!("{PROBE}{name}") });
    let lines = [
        event(&asked[2].name, "RequestReceived"),
        event(&asked[0].name, "ResponseComplete"),
        event(&asked[2].name, "ResponseComplete"),
    ];
    fs::write(&path, lines.concat()).unwrap();
    assert_eq!(place.look(&asked), [(2, Heard::Other), (0, Heard::Ended), (2, Heard::Ended)]);
    assert_eq!(place.look(&asked), []);
}

#[test]
fn an_event_is_found_in_what_is_added() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("audit.log");
    fs::write(&path, event(NAME, "ResponseComplete")).unwrap();
    let log = Settings { file: Some(path.clone()), ..Settings::default() };
    let mut place = Place::of(&log, None).unwrap();
    let add = |text: &str| fs::OpenOptions::new().append(true).open(&path).unwrap().write_all(text.as_bytes()).unwrap();
    assert_eq!(look(&mut place), None, "an event of before is no proof");
    add(&event("decklog-check-8", "ResponseComplete"));
    assert_eq!(look(&mut place), None);
    add(&event(NAME, "RequestReceived"));
    assert_eq!(look(&mut place), Some(Heard::Other));
    let (head, tail) = (event(NAME, "ResponseComplete"), 40);
    let (head, tail) = head.split_at(head.len() - tail);
    add(head);
    assert_eq!(look(&mut place), None, "half a line");
    add(tail);
    assert_eq!(look(&mut place), Some(Heard::Ended));
}

#[test]
fn a_rotation_loses_no_event() {
    let dir = tempfile::tempdir().unwrap();
    let (path, old) = (dir.path().join("audit.log"), dir.path().join("audit-1.log"));
    let log = Settings { file: Some(path.clone()), ..Settings::default() };
    for before in [true, false] {
        fs::write(&path, "").unwrap();
        let mut place = Place::of(&log, None).unwrap();
        let (first, second) = if before { (NAME, "other") } else { ("other", NAME) };
        fs::write(&path, event(first, "ResponseComplete")).unwrap();
        fs::rename(&path, &old).unwrap();
        fs::write(&path, event(second, "ResponseComplete")).unwrap();
        assert_eq!(look(&mut place), Some(Heard::Ended), "before the rotation: {before}");
    }
    // It is copied and cut off.
    fs::write(&path, event("other", "ResponseComplete").repeat(3)).unwrap();
    let mut place = Place::of(&log, None).unwrap();
    fs::write(&path, event(NAME, "ResponseComplete")).unwrap();
    assert_eq!(look(&mut place), Some(Heard::Ended));
    // It does not exist yet.
    fs::remove_file(&path).unwrap();
    let mut place = Place::of(&log, None).unwrap();
    assert_eq!(look(&mut place), None);
    fs::write(&path, event(NAME, "ResponseComplete")).unwrap();
    assert_eq!(look(&mut place), Some(Heard::Ended));
}

/// What there is of an audit log before and after a request whose event does not arrive.
struct Quiet {
    name: &'static str,
    before: Option<String>,
    after: String,
    /// The configured cluster.
    cluster: Option<&'static str>,
    /// Codes of what is found, each with a part of its sentence.
    expected: &'static [(&'static str, &'static str)],
}

fn quiet(
    name: &'static str,
    before: impl Into<Option<&'static str>>,
    expected: &'static [(&'static str, &'static str)],
) -> Quiet {
    Quiet { name, before: before.into().map(str::to_owned), after: String::new(), cluster: None, expected }
}

fn of_azure(cluster: &str) -> String {
    let event = event("a", "ResponseComplete");
    serde_json::json!({"category": "kube-audit", "resourceId": cluster, "properties": {"log": event.trim()}})
        .to_string()
        + "\n"
}

/// What `check` says where the event of a pod's request did not arrive in a place.
fn found_of(log: &Settings, place: Option<&Place>) -> Findings {
    let mut found = Findings::default();
    match place {
        Some(place) => {
            let asked = Asked { resource: "pods".to_owned(), name: NAME.to_owned() };
            let places = std::slice::from_ref(place);
            let sees_all = matches!(place.found, Found::File { .. });
            found.unheard((places, Duration::from_secs(5)), &[(&asked, None)], (false, sees_all));
        }
        None => found.unseen(log, false),
    }
    if let Some(path) = &log.file {
        found.contents(&log.name(), path, log.cluster.as_deref());
    }
    found
}

fn are_as(found: &Findings, name: &str, expected: &[(&str, &str)]) {
    let codes: Vec<&str> = found.0.iter().map(|finding| finding.code).collect();
    assert_eq!(codes, expected.iter().map(|(code, _)| *code).collect::<Vec<_>>(), "{name}: {found:?}");
    for (finding, (_, part)) in found.0.iter().zip(expected) {
        assert!(finding.text.contains(part), "{name}: {} lacks {part}", finding.text);
        let is_accused = finding.text.contains("its policy leaves pods out");
        assert_eq!(is_accused, part.contains("its policy"), "{name}: {}", finding.text);
        assert!(!finding.text.contains("secret words"), "{name}: {}", finding.text);
    }
}

/// Each sort of a file that brings nothing useful is named as what it is, and the policy is accused where events arrive.
#[test]
fn a_file_without_the_event_is_named_as_what_it_is() {
    const TEXT: &str = "secret words of somebody\nI1128 07:24:21 klog\n{\"kind\":\"Pod\"}\n";
    let old = event("a", "ResponseComplete").replace("}\n", ",\"stageTimestamp\":\"2026-11-28T07:24:52.5Z\"}\n");
    let long = TEXT.repeat(60_000);
    let rows = [
        quiet(
            "not there",
            None,
            &[("audit-log-absent", "audit.log is not there yet: does kube-apiserver have --audit-log-path=/")],
        ),
        quiet("text", TEXT, &[("audit-log-no-events", "none of its lines is an audit event")]),
        Quiet {
            before: Some(long),
            ..quiet(
                "long text",
                None,
                &[("audit-log-no-events", "no line at its beginning and its end is an audit event")],
            )
        },
        Quiet {
            after: TEXT.to_owned(),
            ..quiet("text that grows", "", &[("audit-log-no-events", "none of its lines is an audit event")])
        },
        quiet(
            "empty",
            "",
            &[
                ("audit-log-silent", "which is empty, within 5 s of a request for pods"),
                ("audit-log-empty", "can be read, and has no event yet"),
            ],
        ),
        Quiet {
            before: Some(of_azure("/other")),
            cluster: Some("/main"),
            ..quiet(
                "another cluster",
                None,
                &[("audit-log-foreign", "of the cluster \"/other\", and `cluster` names \"/main\"")],
            )
        },
        Quiet {
            before: Some(of_azure("/main")),
            cluster: Some("/main"),
            ..quiet(
                "this cluster",
                None,
                &[("audit-log-silent", "nothing was written into"), ("audit-log-readable", "can be read")],
            )
        },
        Quiet {
            before: Some(old.clone()),
            ..quiet(
                "old events",
                None,
                &[
                    ("audit-log-silent", "whose newest event is of 2026-11-28T07:24:52Z,"),
                    ("audit-log-readable", "can be read"),
                ],
            )
        },
        Quiet {
            before: Some(TEXT.to_owned() + &old),
            after: event("a", "ResponseComplete"),
            ..quiet(
                "other events",
                None,
                &[("audit-log-silent", "its policy leaves pods out, or it is"), ("audit-log-readable", "can be read")],
            )
        },
    ];
    for Quiet { name, before, after, cluster, expected } in rows {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("audit.log");
        if let Some(before) = &before {
            fs::write(&path, before).unwrap();
        }
        let log = Settings { file: Some(path.clone()), cluster: cluster.map(str::to_owned), ..Settings::default() };
        let mut place = Place::of(&log, None).unwrap();
        if !after.is_empty() {
            fs::OpenOptions::new().append(true).open(&path).unwrap().write_all(after.as_bytes()).unwrap();
        }
        assert_eq!(look(&mut place), None, "{name}");
        are_as(&found_of(&log, Some(&place)), name, expected);
    }
}

/// A pipe is for the daemon to read. What a daemon has received since says what is wrong, of a pipe and of what is sent to it.
#[tokio::test]
async fn what_the_daemon_received_says_what_is_wrong() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("audit.log");
    let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
    rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, mode, 0).unwrap();
    let pipe = Settings { file: Some(path), ..Settings::default() };
    assert!(Place::of(&pipe, None).is_none());
    let unproved = [
        ("audit-log-unproved", "only a decklog that runs sees whether events arrive"),
        ("audit-log-readable", "can be read"),
    ];
    are_as(&found_of(&pipe, None), "a pipe that nobody reads", &unproved);
    let listen = Settings { listen: Some(Listen::Tcp(([127, 0, 0, 1], 9466).into())), ..Settings::default() };
    let (journal, thread) = Journal::open(dir.path()).unwrap();
    for (what, counts, expected) in [
        ("nothing", AuditCounts::default(), ("audit-log-silent", "nothing arrived within 5 s of a request for pods")),
        (
            "no events",
            AuditCounts { no_event: 7, ..AuditCounts::default() },
            ("audit-log-no-events", "is no audit event"),
        ),
        ("torn", AuditCounts { unreadable: 1, ..AuditCounts::default() }, ("audit-log-no-events", "is no audit event")),
        (
            "of others",
            AuditCounts { foreign: 7, no_event: 1, ..AuditCounts::default() },
            ("audit-log-foreign", "is of other clusters than \"\""),
        ),
        (
            "events",
            AuditCounts { read: 1, no_event: 1, ..AuditCounts::default() },
            ("audit-log-silent", "its policy leaves pods out, or it is"),
        ),
    ] {
        for (log, more) in [(&listen, None), (&pipe, Some(("audit-log-readable", "can be read")))] {
            let place = Place::of(log, Some(dir.path())).unwrap();
            journal.audited(AuditBatch { log: log.name(), counts, ..AuditBatch::default() }).await.unwrap();
            let expected: Vec<_> = [Some(expected), more].into_iter().flatten().collect();
            are_as(&found_of(log, Some(&place)), what, &expected);
        }
    }
    drop(journal);
    thread.join().unwrap();
}
