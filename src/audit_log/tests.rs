//! The room over events that an API server wrote, over entries of GKE, and over random bytes.

mod envelopes;
mod events;
mod google;
mod prefix;
mod random;

use serde_json::Value;

use super::{AuditedRequest, Outcome, Received, read};

/// A time that stands in no sample.
const TIME: i64 = 1_234_567;

/// Events as kube-apiserver 1.36 wrote them.
fn recorded() -> Vec<&'static str> {
    include_str!("tests/samples/recorded.jsonl").lines().collect()
}

fn outcomes(received: Received) -> Vec<Outcome> {
    received.records.into_iter().map(|record| record.outcome).collect()
}

/// The outcome of what holds one record.
fn outcome(bytes: impl AsRef<[u8]>) -> Outcome {
    let mut all = outcomes(read(bytes.as_ref(), Some(TIME)));
    assert_eq!(all.len(), 1, "{all:?}");
    all.remove(0)
}

fn request(bytes: impl AsRef<[u8]>) -> AuditedRequest {
    match outcome(bytes) {
        Outcome::Request(request) => *request,
        other @ (Outcome::Other(_) | Outcome::Unreadable(_)) => panic!("{other:?}"),
    }
}

/// Object, sender, and what became of it, in one line.
fn line(r: &AuditedRequest) -> String {
    let below = |part: &str| if part.is_empty() { String::new() } else { format!("/{part}") };
    let (group, sub, namespace) = (below(&r.group), below(&r.subresource), below(&r.namespace));
    let mut text = format!("{} {}{group}{sub}{namespace}/{}", r.verb, r.resource, r.name);
    let by =
        if r.sender.impersonated_by.is_empty() { String::new() } else { format!(" by {}", r.sender.impersonated_by) };
    text += &format!(" {}{by}@{} {}", r.sender.user, r.manager, r.code);
    if !(r.before.is_empty() && r.after.is_empty()) {
        text += &format!(" {}->{}", r.before, r.after);
    }
    text += if r.dry_run { " dry" } else { "" };
    text + if r.writes() { "" } else { " no write" }
}

/// What something is called for a table: the line of a request, the reason of another, the sentence of what cannot be read.
fn told(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Request(request) => line(request),
        Outcome::Other(reason) => format!("other: {reason}"),
        Outcome::Unreadable(sentence) => sentence.clone(),
    }
}

/// An event of the level `Metadata`, with these members in the place of its own; `null` takes one out.
pub(super) fn event(members: &Value) -> String {
    let mut event = serde_json::json!({
        "kind": "Event", "apiVersion": "audit.k8s.io/v1", "level": "Metadata", "auditID": "7a", "stage": "ResponseComplete",
        "requestURI": "/api/v1/namespaces/shop/configmaps/cm", "verb": "update", "user": {"username": "alice"},
        "sourceIPs": ["192.0.2.7"], "userAgent": "kubectl/v1.36.0 (linux/amd64) kubernetes/abc",
        "objectRef": {"resource": "configmaps", "namespace": "shop", "name": "cm", "apiVersion": "v1"},
        "responseStatus": {"metadata": {}, "code": 200},
        "requestReceivedTimestamp": "2026-11-28T07:24:52.000001Z", "stageTimestamp": "2026-11-28T07:24:52.000002Z",
    });
    for (key, value) in members.as_object().unwrap() {
        if value.is_null() {
            event.as_object_mut().unwrap().remove(key);
        } else {
            event[key] = value.clone();
        }
    }
    event.to_string()
}
