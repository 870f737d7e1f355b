use std::borrow::Cow;
use std::cell::Cell;

use bytes::Bytes;
use serde_json::value::RawValue;

use super::*;
use crate::core::model::{Cluster, EntryType, Evidence, Gap, ResourceVersion, Seq, Why};

thread_local! {
    /// How many entries were read on this thread.
    pub(super) static PARSED: Cell<usize> = const { Cell::new(0) };
}

/// How many entries were read on this thread up to now.
pub(crate) fn parsed() -> usize {
    PARSED.get()
}

fn draft<'a>(cluster: &'a Cluster, redacted: &'a [String]) -> EntryBuilder<'a> {
    EntryBuilder {
        seq: Seq(7),
        epoch: "e",
        time: "2026-11-21T00:00:00.000000Z",
        happened: None,
        happened_between: None,
        op: EntryType::Modified,
        evidence: Some(Evidence::Watched),
        cluster,
        api_version: "apps/v1",
        kind: "Deployment",
        resource: "deployments",
        namespace: "shop",
        name: "web",
        uid: "u",
        version: "41",
        managers: None,
        change: Some(r#"{"areas":["spec"],"patch":[],"managers":[]}"#),
        object: Some(br#"{"n":1.0,"big":1e400}"#),
        gap: None,
        actor: None,
        redacted,
    }
}

/// Whatever stands before the type, as the bounds of the time, the entry carries the other epoch afterwards.
#[test]
fn an_entry_is_relabelled_whatever_it_says_of_its_time() {
    let cluster = Cluster { name: "c".into(), uid: "u".into() };
    let bounds = ["2026-11-21T10:14:00.000000Z", "2026-11-21T10:15:00.000000Z"];
    for (happened, happened_between) in [(None, None), (Some("2026-11-21T10:14:59Z"), None), (None, Some(bounds))] {
        let line = render(&EntryBuilder { happened, happened_between, ..draft(&cluster, &[]) }).line;
        let other = relabel(&line, "another").unwrap();
        assert_eq!(Entry::parse(&other).unwrap().epoch, "another", "{}", String::from_utf8_lossy(&line));
        let own = Entry::parse(&line).unwrap().epoch.clone();
        assert_eq!(relabel(&other, &own).unwrap(), line);
    }
}

#[test]
fn an_entry_has_its_keys_in_the_order_of_the_contract() {
    let cluster = Cluster { name: "prod \"eu\"".into(), uid: "c".into() };
    let rendered = render(&draft(&cluster, &["/data/x".into()]));
    let line = String::from_utf8(rendered.line.clone()).unwrap();
    assert_eq!(
        line,
        r#"{"v":1,"seq":7,"epoch":"e","id":"u.41.MODIFIED","time":"2026-11-21T00:00:00.000000Z","type":"MODIFIED","evidence":"watched","cluster":{"name":"prod \"eu\"","uid":"c"},"apiVersion":"apps/v1","kind":"Deployment","resource":"deployments","namespace":"shop","name":"web","uid":"u","resourceVersion":"41","change":{"areas":["spec"],"patch":[],"managers":[]},"object":{"n":1.0,"big":1e400},"redacted":["/data/x"]}"#
    );
    assert_eq!(&rendered.line[rendered.object], br#"{"n":1.0,"big":1e400}"#);
    let entry = Entry::parse(line.as_bytes()).unwrap();
    assert_eq!((entry.group(), entry.op, entry.seq()), ("apps", EntryType::Modified, Seq(7)));
}

/// What a sink with this payload gets.
fn of(payload: Payload, op: EntryType, line: &Bytes) -> Bytes {
    Shape { payload, managed_fields: true }.apply(op, line).unwrap()
}

fn less_of(op: EntryType, line: &Bytes) -> Bytes {
    Shape { payload: Payload::Full, managed_fields: false }.apply(op, line).unwrap()
}

#[test]
fn managed_fields_are_left_out_of_the_object_and_of_the_patch() {
    let object =
        r#"{"kind":"D","metadata":{"name":"web","managedFields":[{"manager":"m"}],"big":1e400},"managedFields":1}"#;
    let change = r#"{"areas":["spec","managedFields"],"patch":[{"op":"replace","path":"/metadata/managedFields/0/time","value":1},{"op":"add","path":"/metadata/managedFieldsOfMine","value":2},{"op":"remove","path":"/metadata/managedFields"}],"managers":[]}"#;
    let cluster = Cluster::default();
    let line: Bytes =
        render(&EntryBuilder { object: Some(object.as_bytes()), change: Some(change), ..draft(&cluster, &[]) })
            .line
            .into();
    let less = Shape { payload: Payload::Full, managed_fields: false }.apply(EntryType::Modified, &line).unwrap();
    let expected = String::from_utf8(line.to_vec()).unwrap();
    let expected = expected
        .replace(r#","managedFields":[{"manager":"m"}]"#, "")
        .replace(r#"{"op":"replace","path":"/metadata/managedFields/0/time","value":1},"#, "")
        .replace(r#",{"op":"remove","path":"/metadata/managedFields"}"#, "");
    assert_eq!(String::from_utf8(less.to_vec()).unwrap(), expected);
    assert_eq!(less_of(EntryType::Modified, &less), less);
    assert_eq!(Shape { payload: Payload::Full, managed_fields: true }.apply(EntryType::Modified, &line).unwrap(), line);
    for odd in ["[]", r#"{"metadata":[]}"#, r#"{"\ud800":1}"#] {
        let line = render(&EntryBuilder { object: Some(odd.as_bytes()), ..draft(&cluster, &[]) }).line.into();
        assert_eq!(less_of(EntryType::Modified, &line), line);
    }
}

#[test]
fn a_gap_is_named_after_its_place() {
    let cluster = Cluster::default();
    let gap = Gap {
        why: Why::Expired,
        from: Some(ResourceVersion::new("5")),
        to: Some(ResourceVersion::new("9")),
        recovered: 0,
    };
    let line = render(&EntryBuilder {
        op: EntryType::Gap,
        evidence: None,
        name: "",
        uid: "",
        version: "",
        change: None,
        object: None,
        gap: Some((&gap, Some("2026-11-20T00:00:00Z"))),
        ..draft(&cluster, &[])
    })
    .line;
    let entry = Entry::parse(&line).unwrap();
    assert_eq!(entry.id, "e.7");
    let told = entry.gap().unwrap();
    assert_eq!((told.why.as_str(), told.from.as_deref(), told.to.as_deref()), ("expired", Some("5"), Some("9")));
    assert!(entry.evidence.is_none() && entry.uid.is_none());
}

#[test]
fn payloads_leave_out_and_change_nothing_else() {
    let cluster = Cluster::default();
    let line: Bytes = render(&draft(&cluster, &["/x".into()])).line.into();
    assert_eq!(of(Payload::Full, EntryType::Modified, &line), line);
    let diff = of(Payload::Diff, EntryType::Modified, &line);
    let entry = Entry::parse(&diff).unwrap();
    assert!(entry.object.is_none() && entry.change.unwrap().get().contains("patch") && entry.redacted.is_some());
    let deleted = EntryBuilder { op: EntryType::Deleted, change: None, ..draft(&cluster, &[]) };
    let line_of_deleted: Bytes = render(&deleted).line.into();
    assert_eq!(of(Payload::Diff, EntryType::Deleted, &line_of_deleted), line_of_deleted);
    let metadata = of(Payload::Metadata, EntryType::Modified, &line);
    let entry = Entry::parse(&metadata).unwrap();
    assert_eq!(entry.change.unwrap().get(), r#"{"areas":["spec"],"managers":[]}"#);
    assert!(entry.object.is_none() && entry.id == "u.41.MODIFIED");
}

#[test]
fn a_header_ends_before_what_happened() {
    let cluster = Cluster { name: "\"change\":{".into(), uid: "\\\"gap\":".into() };
    let change = Some(r#"{"areas":[],"patch":[],"managers":[]}"#);
    let gap = Gap { why: Why::Expired, from: None, to: None, recovered: 0 };
    let (gap, pointers, empty): (_, _, &[String]) = (Some((&gap, None)), ["/a".to_owned()], &[]);
    let lines = [
        EntryBuilder { change, ..draft(&cluster, &pointers) },
        EntryBuilder { change: None, object: None, ..draft(&cluster, &pointers) },
        EntryBuilder { change: None, object: None, gap, ..draft(&cluster, empty) },
        EntryBuilder { change: None, object: None, ..draft(&cluster, empty) },
    ]
    .map(|draft| render(&draft).line);
    for line in lines {
        let part = scan::header(&line);
        let part = Entry::parse(&part).unwrap();
        assert!(part.change.or(part.object).or(part.gap).or(part.redacted).is_none());
        let header = Header::parse(&line).unwrap();
        assert_eq!((&header, &part.header), (&Entry::parse(&line).unwrap().header, &header));
    }
    for odd in [&b""[..], b"{", b"\"", b"{\"change\":", b"{\"v\":1,\"change\":", b"}}]]", b"{\"a\\", b"\",\"type\":"] {
        assert!(Header::parse(odd).is_err());
    }
}

#[test]
fn an_object_is_found_without_reading_it() {
    let cluster = Cluster { name: "prod \\\"object\":{".into(), uid: "c".into() };
    let tricky =
        r#"{"areas":["object"],"patch":[{"op":"add","path":"/object","value":{"object":{"a":"}\\"}}}],"managers":[]}"#;
    let objects: [&[u8]; 3] = [br#"{"n":1.0,"object":{},"redacted":[1]}"#, br#"{"s":",\"redacted\":["}"#, br"{}"];
    let pointers = ["/a,\"redacted\":[]}".to_owned(), "/b".to_owned()];
    for object in objects {
        for redacted in [&pointers[..], &[]] {
            let line =
                render(&EntryBuilder { change: Some(tricky), object: Some(object), ..draft(&cluster, redacted) }).line;
            let (head, found) = apart(&line);
            assert_eq!(found, object);
            let (apart, whole) = (Entry::parse(&head).unwrap(), Entry::parse(&line).unwrap());
            assert!(apart.object.is_none());
            let told = |entry: &Entry<'_>| {
                let raw = |part: Option<&RawValue>| part.map(|raw| raw.get().to_owned());
                (entry.seq, entry.id.to_string(), raw(entry.change), raw(entry.redacted), entry.uid.is_some())
            };
            assert_eq!(told(&apart), told(&whole));
        }
    }
    let bare = render(&EntryBuilder { object: None, ..draft(&cluster, &[]) }).line;
    assert_eq!(apart(&bare), (Cow::Borrowed(&bare[..]), &[][..]));
    for odd in [&b""[..], b"{", b"\"", b"{\"object\":", b"{\"object\":]}", b"}}]]", b"{\"a\\"] {
        let (head, _) = apart(odd);
        assert!(Entry::parse(&head).is_err());
    }
}

#[test]
fn foreign_lines_are_refused_without_quoting_them() {
    for line in [&b"secret"[..], b"{}", b"{\"v\":1}"] {
        let error = Entry::parse(line).unwrap_err().to_string();
        assert!(!error.contains("secret"), "{error}");
    }
}
