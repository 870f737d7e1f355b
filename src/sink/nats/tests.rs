//! What needs no server; the rest is in tests/sinks.

use serde_json::{Value, json};

use super::*;
use crate::sink::tests::{item, item_of};

fn config(change: Value) -> config::NatsSink {
    let mut config = json!({"addresses": ["nats://127.0.0.1:1"], "stream": "decklog"});
    if let (Some(config), Value::Object(change)) = (config.as_object_mut(), change) {
        config.extend(change);
    }
    serde_json::from_value(config).unwrap()
}

fn sink() -> NatsSink {
    NatsSink::new(&config(json!({}))).unwrap()
}

fn at(epoch: &str, seq: u64) -> Position {
    Position { epoch: epoch.to_owned(), seq: Seq(seq) }
}

fn tail(last: u64, held: Option<Position>) -> Tail {
    Tail { last, held, whole: false }
}

#[test]
fn what_can_never_work_is_told() {
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
        let error = NatsSink::new(&config(change)).unwrap_err();
        assert!(error.contains(says), "{error}");
        assert!(!error.contains("s3cret"), "{error}");
    }
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
    assert_eq!(message.id, "0199.7");
    assert_eq!(header(&message, ID).as_deref(), Some("u.7.MODIFIED"));
    assert_eq!(header(&message, TYPE).as_deref(), Some("MODIFIED"));
    sink.again();
    let message = sink.message(&item, &tail(3, Some(at("0199", 6)))).unwrap();
    assert_eq!(message.id, "0199.7.3");
    assert_eq!(header(&message, HELD).as_deref(), Some("0199.6"));
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
    for (found, taken) in [
        (tail(20, Some(at("e", 6))), 0),
        (tail(25, Some(at("e", 6))), 0),
        (tail(21, Some(at("e", 7))), 1),
        (tail(23, Some(at("e", 9))), 3),
        // Everything was purged, or is too old.
        (tail(20, None), 0),
    ] {
        let mut sink = known(Some(at("e", 6)));
        assert_eq!(sink.found(found.clone(), &batch), Ok(taken), "{found:?}");
        assert_eq!(sink.tail.unwrap().last, found.last);
    }
    // It was put back or made anew, or the journal was.
    for found in [
        tail(15, Some(at("e", 3))),
        tail(0, None),
        Tail { whole: true, ..tail(30, None) },
        tail(15, Some(at("d", 90))),
        tail(30, Some(at("e", 12))),
    ] {
        let error = known(Some(at("e", 6))).found(found.clone(), &batch).unwrap_err();
        assert!(matches!(error, SinkError::Lost { .. }), "{found:?}: {error:?}");
    }
    let error = known(Some(at("e", 6))).found(tail(22, Some(at("f", 2))), &batch).unwrap_err();
    assert!(matches!(&error, SinkError::Halt { text } if text.contains("another decklog")), "{error:?}");
}
