//! Messages that are updated in place, at servers of the shape of real APIs. Each has messages by their names, and refuses an update
//! of what it does not have.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use super::*;
use crate::core::spelling::Text;
use crate::sink::Receipt;
use crate::sink::http::Escape;
use crate::sink::http::update::{Pointer, Update, UpdateMethod, UpdateUrl};
use crate::sink::notify::Incident;

/// Messages of a server, by their names.
type Messages = Arc<Mutex<BTreeMap<String, Value>>>;

/// The body of a message for the API.
fn config_of(server: &Server, api: &str) -> Settings {
    let host = server.url.trim_end_matches("/in");
    let (url, update, method, pointer, accepted, body) = match api {
        "slack" => (
            format!("{host}/api/chat.postMessage"),
            format!("{host}/api/chat.update"),
            UpdateMethod::Post,
            "/ts",
            Some("/ok"),
            r#"{"channel": "C1", {% if incident.reference %}"ts": "{{ incident.reference }}",{% endif %} "text": "{{ incident.count }}"}"#,
        ),
        "discord" => (
            format!("{host}/api/webhooks/0/KEY?wait=true"),
            format!("{host}/api/webhooks/0/KEY/messages/{{reference}}"),
            UpdateMethod::Patch,
            "/id",
            None,
            r#"{"content": "{{ incident.count }}"}"#,
        ),
        _ => (
            format!("{host}/api/annotations"),
            format!("{host}/api/annotations/{{reference}}"),
            UpdateMethod::Patch,
            "/id",
            None,
            r#"{"time": {{ time | milliseconds }}, {% if incident.reference %}"timeEnd": {{ incident.until | milliseconds }},{% endif %} "text": "{{ incident.count }}"}"#,
        ),
    };
    let update =
        Update { reference: Pointer::read(pointer).unwrap(), url: Some(UpdateUrl::read(&update).unwrap()), method };
    Settings {
        url: url.parse().unwrap(),
        body: Some(body.to_owned()),
        escape: Some(Escape::Slack),
        update: Some(Box::new(update)),
        accepted: accepted.map(|pointer| Pointer::read(pointer).unwrap()),
        ..config(&server.url, BodyFormat::Template)
    }
}

/// A message of the incident that began with entry 1, or an update of it.
fn message(count: u64, reference: &str) -> Item {
    let until = format!("2026-11-21T10:15:{count:02}.000000Z");
    let incident =
        Incident { first: 1, last: count, count, until, reference: reference.to_owned(), ..Incident::default() };
    item(1).about(Some(incident)).at(Seq(count))
}

fn says(status: u16, body: &Value) -> Does {
    Does::Says(status, "content-type", "application/json".to_owned(), body.to_string())
}

/// What the API does with a request.
fn answer_of(api: &str, messages: &Messages, seen: &Seen) -> Does {
    let body: Value = serde_json::from_slice(&seen.body).unwrap();
    let mut messages = messages.lock().unwrap();
    let path = seen.path.as_str();
    match (api, seen.method.as_str(), path) {
        ("slack", "POST", "/api/chat.postMessage") => {
            let ts = format!("1763720100.{:06}", messages.len());
            messages.insert(ts.clone(), body["text"].clone());
            // With what it made of the message, which is longer than what was sent.
            let made = json!({"ok": true, "channel": "C1", "ts": ts, "message": {"text": "x".repeat(20_000)}});
            says(200, &made)
        }
        ("slack", "POST", "/api/chat.update") => match messages.get_mut(body["ts"].as_str().unwrap()) {
            Some(text) => {
                *text = body["text"].clone();
                says(200, &json!({"ok": true, "channel": "C1", "ts": body["ts"]}))
            }
            None => says(200, &json!({"ok": false, "error": "message_not_found"})),
        },
        ("discord", "POST", "/api/webhooks/0/KEY?wait=true") => {
            let id = format!("13370000000000{}", messages.len());
            messages.insert(id.clone(), body["content"].clone());
            says(200, &json!({"id": id, "content": body["content"]}))
        }
        ("grafana", "POST", "/api/annotations") => {
            let id = 40 + messages.len();
            messages.insert(id.to_string(), body);
            says(200, &json!({"message": "Annotation added", "id": id}))
        }
        (_, "PATCH", path) => {
            let (above, id) = path.rsplit_once('/').unwrap();
            assert!(["/api/webhooks/0/KEY/messages", "/api/annotations"].contains(&above), "{path}");
            match messages.get_mut(id) {
                Some(message) if api == "discord" => *message = body["content"].clone(),
                Some(message) => *message = body,
                None => return says(404, &json!({"message": "Unknown Message", "code": 10008})),
            }
            says(200, &json!({"id": id}))
        }
        other => panic!("{other:?}"),
    }
}

async fn server_of(api: &'static str, trouble: fn(usize) -> Option<Does>) -> (Server, Messages) {
    let messages: Messages = Arc::default();
    let held = Arc::clone(&messages);
    let server = Server::start(move |number, seen| {
        let trouble = trouble(number);
        if let Some(does) = trouble.as_ref().filter(|does| !matches!(does, Does::Cuts)) {
            return does.clone();
        }
        let does = answer_of(api, &held, seen);
        // What is cut was taken.
        trouble.unwrap_or(does)
    })
    .await;
    (server, messages)
}

fn name(receipts: &[(Seq, Receipt)]) -> String {
    let [(Seq(1), Receipt::Named(name))] = receipts else { panic!("{receipts:?}") };
    name.clone()
}

#[tokio::test]
async fn a_message_has_a_name_by_which_an_update_finds_it() {
    for api in ["slack", "discord", "grafana"] {
        let (server, messages) = server_of(api, |_| None).await;
        let mut sink = HttpSink::new(&config_of(&server, api)).unwrap();
        sink.deliver(&[message(1, "")]).await.unwrap();
        let name = name(&sink.receipts());
        for count in [2, 7] {
            sink.deliver(&[message(count, &name)]).await.unwrap();
            assert_eq!(sink.receipts(), [], "{api}: the name stays");
        }
        let expected = match api {
            "grafana" => json!({"time": 1_795_256_100_000_u64, "timeEnd": 1_795_256_107_000_u64, "text": "7"}),
            _ => json!("7"),
        };
        assert_eq!(*messages.lock().unwrap(), BTreeMap::from([(name, expected)]), "{api}");
        // Each update is another request to who looks at keys.
        let keys: Vec<String> = server.seen().iter().map(|seen| seen.header("idempotency-key").to_owned()).collect();
        assert_eq!(keys, ["\"e_1\"", "\"e_1_2\"", "\"e_1_7\""], "{api}");
    }
}

#[tokio::test]
async fn an_update_of_a_message_that_is_gone_is_dropped_and_says_so() {
    for (api, why) in [("slack", "message_not_found"), ("discord", "404"), ("grafana", "404")] {
        let (server, messages) = server_of(api, |_| None).await;
        let mut sink = HttpSink::new(&config_of(&server, api)).unwrap();
        // The next message goes out behind it.
        let other = Incident {
            first: 9,
            last: 9,
            count: 1,
            until: "2026-11-21T10:16:00.000000Z".to_owned(),
            ..Incident::default()
        };
        sink.deliver(&[message(3, "17"), item(9).about(Some(other))]).await.unwrap();
        let receipts = sink.receipts();
        let [(Seq(3), Receipt::Final(text)), (Seq(9), Receipt::Named(_))] = receipts.as_slice() else {
            panic!("{api}: {receipts:?}")
        };
        assert!(text.contains(why) && !text.contains("KEY"), "{api}: {text}");
        assert_eq!(messages.lock().unwrap().len(), 1, "{api}: an update is never a message of its own");
    }
}

/// A token may be good for messages and not for changes of them, and a server may know none or have them elsewhere.
#[tokio::test]
async fn a_receiver_that_takes_no_updates_keeps_no_message_waiting() {
    for status in [302, 403, 405, 501] {
        let server = Server::start(move |_, seen| match seen.method.as_str() {
            "PATCH" => says(status, &json!({"message": "no"})),
            _ => says(200, &json!({"id": 41})),
        })
        .await;
        let mut sink = HttpSink::new(&config_of(&server, "grafana")).unwrap();
        let next = Incident { first: 9, last: 9, count: 1, ..Incident::default() };
        sink.deliver(&[message(3, "41"), item(9).about(Some(next))]).await.unwrap();
        let receipts = sink.receipts();
        let [(Seq(3), Receipt::Final(_)), (Seq(9), Receipt::Named(_))] = receipts.as_slice() else {
            panic!("{status}: {receipts:?}")
        };
    }
}

#[tokio::test]
async fn an_update_is_tried_again_until_it_is_taken() {
    for api in ["slack", "discord", "grafana"] {
        let trouble = |number| match number {
            1 => Some(Does::Says(429, "retry-after", "7".to_owned(), "slow down".to_owned())),
            2 => Some(Does::Answers(502)),
            3 => Some(Does::Cuts),
            _ => None,
        };
        let (server, messages) = server_of(api, trouble).await;
        let mut sink = HttpSink::new(&config_of(&server, api)).unwrap();
        sink.deliver(&[message(1, "")]).await.unwrap();
        let name = name(&sink.receipts());
        let update = [message(2, &name)];
        let mut waits = Vec::new();
        for _ in 0..3 {
            let Failure { taken: 0, error: SinkError::Retry { after, .. } } = sink.deliver(&update).await.unwrap_err()
            else {
                panic!("{api}")
            };
            waits.push(after);
        }
        assert_eq!(waits[0], Some(Duration::from_secs(7)), "{api}");
        sink.deliver(&update).await.unwrap();
        assert_eq!(messages.lock().unwrap().len(), 1, "{api}");
    }
}

/// Slack answers 200 to what it refuses. Taken for accepted, the message would be lost.
#[tokio::test]
async fn a_refusal_with_status_200_is_what_its_error_says() {
    let no = |error: &str| json!({"ok": false, "error": error});
    for (answer, is) in [
        (no("ratelimited"), "retry"),
        (no("internal_error"), "retry"),
        (no("invalid_auth"), "renew"),
        (no("token_revoked"), "renew"),
        (no("channel_not_found"), "refused"),
        (no("Deployment shop/web"), "refused"),
        (json!({"okay": true}), "refused"),
    ] {
        let does = says(200, &answer);
        let server = Server::start(move |_, _| does.clone()).await;
        let mut sink = HttpSink::new(&config_of(&server, "slack")).unwrap();
        let failure = sink.deliver(&[message(1, "")]).await.unwrap_err();
        let text = failure.error.to_string();
        let found = match failure.error {
            SinkError::Retry { after: None, .. } => "retry",
            SinkError::Retry { after: Some(CREDENTIALS_WAIT), .. } if text.contains("renew the credentials") => "renew",
            SinkError::Refused { .. } => "refused",
            other @ (SinkError::Retry { .. } | SinkError::Lost { .. } | SinkError::Halt { .. }) => {
                panic!("{answer}: {other:?}")
            }
        };
        assert_eq!((failure.taken, found), (0, is), "{answer}: {text}");
        let error = answer["error"].as_str().unwrap_or("/ok");
        assert_eq!(text.contains(error), !error.contains('/') || error == "/ok", "{text}");
        assert_eq!(sink.receipts(), []);
    }
}

/// The answer to a first message is not all there: of one whose status is enough the name is missing, of the other nobody knows.
#[tokio::test]
async fn an_answer_without_a_name_leaves_the_message_as_it_is() {
    for (api, answer) in [("discord", Does::Answers(204)), ("grafana", says(200, &json!({"id": null})))] {
        let server = Server::start(move |_, _| answer.clone()).await;
        let mut sink = HttpSink::new(&config_of(&server, api)).unwrap();
        sink.deliver(&[message(1, "")]).await.unwrap();
        let receipts = sink.receipts();
        let [(Seq(1), Receipt::Unnamed(text))] = receipts.as_slice() else { panic!("{api}: {receipts:?}") };
        assert!(text.contains("/id; correct `reference`") && !text.contains("KEY"), "{text}");
    }
}

/// What is wrong with an update concerns that update: no entry is refused for it, and the next message goes out.
#[tokio::test]
async fn an_update_without_a_body_is_dropped_alone() {
    let (server, messages) = server_of("discord", |_| None).await;
    let body = r#"{"content": "{{ incident.count }}"{% if incident.count == 4711 %},{% endif %}}"#;
    let config = Settings { body: Some(body.to_owned()), ..config_of(&server, "discord") };
    let mut sink = HttpSink::new(&config).unwrap();
    let next = Incident { first: 9, last: 9, count: 1, ..Incident::default() };
    sink.deliver(&[message(4711, "1"), item(9).about(Some(next))]).await.unwrap();
    let receipts = sink.receipts();
    let [(Seq(4711), Receipt::Final(text)), (Seq(9), Receipt::Named(_))] = receipts.as_slice() else {
        panic!("{receipts:?}")
    };
    assert!(text.contains("the template has no body for it"), "{text}");
    assert_eq!(messages.lock().unwrap().len(), 1);
    // A first message without one is refused.
    let failure = sink.deliver(&[message(4711, "")]).await.unwrap_err();
    assert!(matches!(failure.error, SinkError::Refused { .. }), "{failure:?}");
}

/// A message that was accepted is not sent again, however long its answer is, and wherever it broke off.
#[tokio::test]
async fn an_answer_that_is_not_read_to_its_end_says_what_it_said() {
    let long = "x".repeat(600 << 10);
    let yes = r#"{"ok": true, "ts": "17.1", "message": {"text": "x"#;
    let cases = [
        ("named, then long", Does::Says(200, "x", "y".to_owned(), format!("{yes}{long}\"}}}}")), "named"),
        (
            "long, then accepted",
            Does::Says(200, "x", "y".to_owned(), format!(r#"{{"message": "{long}", "ok": true, "ts": "17.1"}}"#)),
            "unnamed",
        ),
        ("no end", Does::Babbles(200), "refused"),
        ("named, then cut", Does::BreaksOff(200, yes.to_owned()), "named"),
        ("accepted, then cut", Does::BreaksOff(200, r#"{"ok": true, "ts": "17"#.to_owned()), "unnamed"),
        ("refused, then cut", Does::BreaksOff(200, r#"{"error": "channel_not_found", "x"#.to_owned()), "refused"),
        ("later, then cut", Does::BreaksOff(200, r#"{"error": "ratelimited", "x"#.to_owned()), "retry"),
        ("cut", Does::BreaksOff(200, r#"{"ok": tr"#.to_owned()), "retry"),
        (
            "refused, then long",
            Does::Says(200, "x", "y".to_owned(), format!(r#"{{"ok": false, "x": "{long}"}}"#)),
            "refused",
        ),
    ];
    for (what, does, expected) in cases {
        let server = Server::start(move |_, _| does.clone()).await;
        let mut sink = HttpSink::new(&config_of(&server, "slack")).unwrap();
        let found = match sink.deliver(&[message(1, "")]).await {
            Ok(()) => match sink.receipts().as_slice() {
                [(Seq(1), Receipt::Named(name))] if name == "17.1" => "named",
                [(Seq(1), Receipt::Unnamed(_))] => "unnamed",
                other => panic!("{what}: {other:?}"),
            },
            Err(Failure { error: SinkError::Refused { .. }, .. }) => "refused",
            Err(Failure { error: SinkError::Retry { .. }, .. }) => "retry",
            Err(other) => panic!("{what}: {other:?}"),
        };
        assert_eq!(found, expected, "{what}");
    }
}
