//! What needs no server; the rest is in tests/sinks.

use serde_json::{Value, json};

use super::*;
use crate::core::wire::tests::parsed;
use crate::sink::tests::{item, item_of};

fn settings(change: Value) -> Result<Settings, String> {
    let mut config = json!({"addresses": ["nats://127.0.0.1:1"], "stream": "decklog"});
    if let (Some(config), Value::Object(change)) = (config.as_object_mut(), change) {
        config.extend(change);
    }
    serde_json::from_value(config).map_err(|error| error.to_string())
}

fn config(change: Value) -> Settings {
    settings(change).unwrap()
}

fn sink() -> NatsSink {
    NatsSink::new(&config(json!({}))).unwrap()
}

fn at(epoch: &str, seq: u64) -> LogPosition {
    LogPosition::of(&item_of(epoch, seq).line).unwrap()
}

/// The same place, with another entry.
fn other(epoch: &str, seq: u64) -> LogPosition {
    let mark = EntryKey { id: "u.1.ADDED".to_owned(), time: "2026-11-21T10:15:00.000001Z".to_owned() };
    LogPosition { entry: Some(mark), ..at(epoch, seq) }
}

/// The end of a stream whose last message is of the log.
fn tail(last: u64, held: Option<LogPosition>) -> Tail {
    Tail { last, held, at: last, whole: false }
}

fn found(tail: Tail) -> Found {
    let line = tail.held.as_ref().map(|held| item_of(&held.epoch, held.seq.0).line);
    Found { tail, line }
}

#[test]
fn what_can_never_work_is_reported() {
    for (change, says) in [
        (json!({"addresses": []}), "names no server"),
        (json!({"addresses": ["nats://a", "nats://me:s3cret@b"]}), "`addresses[1]` holds a user"),
        (json!({"addresses": ["http://s3cret"]}), "`addresses[0]` is no nats://HOST:PORT"),
        (json!({"stream": "a.b"}), "no stream can be called"),
        (json!({"subject": "a b"}), "a space or a wildcard"),
        (json!({"user": "me"}), "`user` needs `password_file`"),
        (json!({"password_file": "/x"}), "`password_file` needs `user`"),
        (json!({"credentials_file": "/x", "token_file": "/y"}), "exclude each other"),
        (json!({"cert_file": "/x"}), "`cert_file` needs `key_file`"),
    ] {
        let error = settings(change).and_then(|settings| NatsSink::new(&settings)).unwrap_err();
        assert!(error.contains(says), "{error}");
        assert!(!error.contains("s3cret"), "{error}");
    }
}

#[test]
fn an_entry_is_read_once() {
    let (sink, tail, item) = (sink(), tail(0, None), item(7));
    let before = parsed();
    // As after an answer that was lost.
    for _ in 0..2 {
        assert_eq!(sink.message(&item, &tail).unwrap().position.seq, item.seq);
    }
    assert_eq!(parsed() - before, 1);
}

#[test]
fn a_message_names_its_entry() {
    let mut sink = sink();
    let item = item_of("0199", 7);
    let header = |message: &Message, name: &str| message.headers.get(name).map(|value| value.as_str().to_owned());
    let message = sink.message(&item, &tail(3, Some(at("0199", 6)))).unwrap();
    assert_eq!(message.subject, "decklog.deployments.shop");
    assert_eq!(message.payload, item.line);
    // Whatever the cluster gives a second time, this is given once.
    assert_eq!(message.id, "0199.7.2026-11-21T10:15:00.000000Z.u.7.MODIFIED");
    assert_eq!(header(&message, ID).as_deref(), Some("u.7.MODIFIED"));
    assert_eq!(header(&message, TYPE).as_deref(), Some("MODIFIED"));
    sink.enter_replay();
    let message = sink.message(&item, &tail(3, Some(at("0199", 6)))).unwrap();
    assert_eq!(message.id, "0199.7.2026-11-21T10:15:00.000000Z.u.7.MODIFIED.3");
    assert_eq!(header(&message, HELD).as_deref(), Some("0199.6"));
    assert_eq!(held(&message.headers, &message.payload), Some(Some(at("0199", 6))));
}

#[test]
fn a_message_says_what_the_stream_holds() {
    let Message { mut headers, payload, .. } = sink().message(&item_of("0199", 7), &tail(3, None)).unwrap();
    assert_eq!(held(&headers, &payload), Some(Some(at("0199", 7))));
    // Of somebody else, whatever its headers say.
    assert_eq!(held(&headers, b"{}"), None);
    for (name, value) in [(EPOCH, "0198"), (SEQ, "8")] {
        let mut headers = headers.clone();
        headers.insert(name, value);
        assert_eq!(held(&headers, &payload), None);
    }
    // A repeat of an earlier version names no entry.
    headers.insert(HELD, "0199.9");
    assert_eq!(held(&headers, &payload), Some(Some(LogPosition { entry: None, ..at("0199", 9) })));
    headers.insert(HELD, "none");
    assert_eq!(held(&headers, &payload), Some(None));
}

#[test]
fn the_end_of_a_stream_says_what_was_stored() {
    let batch = [7, 8, 9].map(item);
    let known = |held| {
        let mut sink = sink();
        sink.known = Some(tail(20, held));
        sink
    };
    // What it knew, what it published, and what others wrote on subjects of their own.
    for (tail, taken) in [
        (tail(20, Some(at("e", 6))), 0),
        (tail(25, Some(at("e", 6))), 0),
        (tail(21, Some(at("e", 7))), 1),
        (tail(23, Some(at("e", 9))), 3),
        // Everything was purged, or is too old.
        (tail(20, None), 0),
    ] {
        let mut sink = known(Some(at("e", 6)));
        assert_eq!(sink.found(found(tail.clone()), &batch), Ok(taken), "{tail:?}");
        assert_eq!(sink.tail.unwrap().last, tail.last);
    }
    // It was restored or made again.
    for tail in [
        tail(15, Some(at("e", 3))),
        tail(0, None),
        Tail { whole: true, ..tail(30, None) },
        tail(15, Some(at("d", 90))),
        Tail { last: 30, ..tail(18, Some(other("e", 6))) },
    ] {
        let error = known(Some(at("e", 6))).found(found(tail.clone()), &batch).unwrap_err();
        assert!(matches!(error, SinkError::Lost { .. }), "{tail:?}: {error:?}");
    }
}

/// Another sink, or another decklog with a copy of the journal: what was stored since is not from here, whatever it is called.
#[test]
fn what_did_not_come_from_here_is_never_taken_for_what_did() {
    let batch = [7, 9].map(item);
    for (tail, before) in [
        (tail(21, Some(other("e", 7))), Some(at("e", 6))),
        (tail(21, Some(at("e", 8))), Some(at("e", 6))),
        (tail(30, Some(at("e", 12))), Some(at("e", 6))),
        (tail(21, Some(other("e", 9))), None),
        (tail(22, Some(at("f", 2))), Some(at("e", 6))),
    ] {
        let mut sink = sink();
        sink.known = Some(Tail { last: 20, held: before, at: 20, whole: false });
        let error = sink.found(found(tail.clone()), &batch).unwrap_err();
        assert!(matches!(&error, SinkError::Halt { text } if text.contains("another decklog")), "{tail:?}: {error:?}");
    }
    // The same entry in other bytes: another sink gives less of it.
    let mut sink = sink();
    sink.known = Some(tail(20, Some(at("e", 6))));
    let less = Found { line: Some(Bytes::from_static(b"{}")), ..found(tail(21, Some(at("e", 7)))) };
    assert!(matches!(sink.found(less, &batch), Err(SinkError::Halt { .. })));
}
