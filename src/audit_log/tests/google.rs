//! Entries of Cloud Logging.

use serde_json::json;

use super::{Outcome, outcome, outcomes, read, request, told};
use crate::audit_log::read_line;

const ENTRIES: &str = include_str!("samples/gke.jsonl");

#[test]
fn entries_are_read() {
    let received = read(ENTRIES.as_bytes(), None);
    let clusters: Vec<bool> =
        received.records.iter().map(|record| record.cluster.as_deref() == Some("p/europe-west3/main")).collect();
    assert_eq!(clusters[..4], [true, true, true, false]);
    let told: Vec<String> = outcomes(received).iter().map(told).collect();
    let expected = [
        "patch deployments/apps/shop/cart alice@shop.example@ 200 ->1709211",
        "delete configmaps/shop/old system:serviceaccount:kube-system:generic-garbage-collector@ 200 41->",
        "update clusterroles/rbac.authorization.k8s.io/reader bob@shop.example@ 409 77-> no write",
        "create widgets/example.com/shop/w bob@shop.example@ 403 no write",
        "create widgets/example.com/shop/w argo@shop.example@ 200 dry no write",
        "other: stage",
        "delete namespaces/shop alice@shop.example@ 200 ->99",
        "update deployments/apps/scale/shop/cart hpa@ 200 100->101",
        "create configmaps/shop/gen-x1 alice@shop.example@ 200 ->102",
        "deletecollection configmaps/shop/ alice@shop.example@ 200",
        "other: other_log",
        "other: no_object",
        "methodName of an entry of Cloud Logging has a shape that decklog does not know",
    ];
    for (told, expected) in told.iter().zip(expected) {
        // The last is refused for one of two reasons, whichever is looked at first.
        assert_eq!(told.replace("resourceName of", "methodName of"), expected);
    }
    assert_eq!(told.len(), expected.len());
}

#[test]
fn an_entry_has_what_is_there() {
    let read = request(ENTRIES.lines().next().unwrap());
    assert_eq!(read.id, "a1/2026-11-28T07:24:51.123456Z");
    assert_eq!(read.uid, "5c0dc4cb-1ef9-48ad-bec8-7ba12b68fc41");
    assert_eq!(read.sender.addresses, ["192.0.2.7"]);
    assert_eq!(read.sender.agent, "kubectl/v1.33.2 (linux/amd64) kubernetes/a57b6f7");
    assert_eq!((read.received, read.completed), (1_795_850_691_123_456, 1_795_850_691_123_456));
}

/// A request that takes long has two entries, and its beginning is in the first. When it wrote is then known from the version alone.
#[test]
fn of_a_long_request_only_the_end_is_known() {
    let entry = ENTRIES.lines().next().unwrap();
    for (operation, received) in [
        (r#""first":true,"id":"0f1e","last":true"#, 1_795_850_691_123_456),
        (r#""id":"0f1e","last":true"#, 0),
        (r#""first":false,"id":"0f1e","last":true"#, 0),
    ] {
        let read = request(entry.replace(r#""first":true,"id":"0f1e","last":true"#, operation));
        assert_eq!((read.received, read.completed), (received, 1_795_850_691_123_456), "{operation}");
    }
}

/// What is no object and changes nothing is passed over, whatever its method is called. Of everything else it is said that it is not
/// known, so that its time is doubtful.
#[test]
fn a_read_of_an_unknown_method_is_nobodys_write() {
    for (method, resource, expected) in [
        ("io.k8s.get", "apis/apps/v1", "other: no_object"),
        ("io.k8s.get", "openapi/v3/apis/apps/v1", "other: no_object"),
        (
            "io.k8s.post",
            "apis/apps/v1",
            "methodName of an entry of Cloud Logging has a shape that decklog does not know",
        ),
    ] {
        let entry = json!({"protoPayload": {"serviceName": "k8s.io", "methodName": method, "resourceName": resource}});
        assert_eq!(told(&outcome(entry.to_string())), expected, "{method} {resource}");
    }
}

/// Codes of gRPC, and what is done about them.
#[test]
fn only_a_success_writes() {
    for code in 0..20_u16 {
        let entry = format!(
            r#"{{"protoPayload":{{"serviceName":"k8s.io","methodName":"io.k8s.core.v1.pods.create","resourceName":"core/v1/namespaces/shop/pods/p","status":{{"code":{code}}}}}}}"#
        );
        let Outcome::Request(request) = outcomes(read_line(entry.as_bytes())).remove(0) else { panic!("{entry}") };
        assert_eq!(request.writes(), code == 0, "{code}");
        assert!(code == 0 || request.code >= 400);
    }
}
