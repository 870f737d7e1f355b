//! One event each.

use serde_json::{Value, json};

use super::{event, outcome, outcomes, read, recorded, request, told};
use crate::audit_log::Outcome;
use crate::core::spelling::Text as _;
use crate::core::spelling::kubernetes::LabelSelector;

#[test]
fn what_an_api_server_wrote_is_read() {
    let read = outcomes(read(include_bytes!("samples/recorded.jsonl"), None));
    let told: Vec<String> = read.iter().map(told).collect();
    let expected = include_str!("samples/recorded.txt");
    assert_eq!(told.join("\n"), expected.trim_end());
}

/// Exporters sort the members, or write them with spaces.
#[test]
fn the_order_of_members_does_not_matter() {
    for line in recorded() {
        let sorted: Value = serde_json::from_str(line).unwrap();
        assert_eq!(outcome(sorted.to_string()), outcome(line));
        assert_eq!(outcome(serde_json::to_string_pretty(&sorted).unwrap()), outcome(line));
    }
}

#[test]
fn every_fact_is_read_where_it_stands() {
    let request = request(event(&json!({
        "requestURI": "/apis/apps/v1/namespaces/shop/deployments/cart?fieldManager=a%2Fb+c&x=1&labelSelector=app%3Dcart&fieldSelector=a%21%3Db",
        "objectRef": {"resource": "deployments", "namespace": "shop", "name": "cart", "apiGroup": "apps", "uid": "u", "resourceVersion": "41"},
        "sourceIPs": ["192.0.2.7", "10.0.0.1"],
    })));
    let plain = serde_json::to_value(&request).unwrap();
    let expected = json!({
        "id": "7a", "verb": "update", "group": "apps", "resource": "deployments", "namespace": "shop", "name": "cart", "uid": "u",
        "before": "41", "manager": "a/b c", "label_selector": "app=cart", "field_selector": "a!=b", "user": "alice",
        "agent": "kubectl/v1.36.0 (linux/amd64) kubernetes/abc", "addresses": ["192.0.2.7", "10.0.0.1"], "code": 200,
        "received": 1_795_850_692_000_001_i64, "completed": 1_795_850_692_000_002_i64,
    });
    assert_eq!(plain, expected);
}

#[test]
fn senders_are_named_for_people() {
    let arn = "arn:aws:sts::111122223333:assumed-role/admin/alice";
    let eks = |extra: Value| json!({"username": "kubernetes-admin", "uid": "aws-iam-authenticator:111122223333:AROA", "extra": extra});
    let table = [
        (
            json!({"user": eks(json!({"arn": [arn], "canonicalArn": ["arn:aws:iam::1:role/admin"], "sessionName": ["alice"]}))}),
            (arn, ""),
        ),
        (json!({"user": eks(json!({"arn": [""], "sessionName": ["alice"]}))}), ("alice", "")),
        (json!({"user": eks(json!({"sessionName": [""], "canonicalArn": []}))}), ("kubernetes-admin", "")),
        (json!({"user": eks(json!({"arn": "no list"}))}), ("kubernetes-admin", "")),
        (json!({"user": {"username": "system:node:n", "groups": []}}), ("system:node:n", "")),
        (json!({"user": eks(json!({"arn": [arn]})), "impersonatedUser": {"username": "carol"}}), ("carol", arn)),
        (json!({"impersonatedUser": {"username": "carol", "extra": {"arn": [arn]}}}), ("carol", "alice")),
    ];
    for (members, expected) in table {
        let sender = request(event(&members)).sender;
        assert_eq!((sender.user.as_str(), sender.impersonated_by.as_str()), expected, "{members}");
    }
}

/// A client chooses its `Audit-ID`, whom it impersonates, and what stands in its URI, at any length. A request that was not read for that
/// would be nobody's, and another one would be taken for it.
#[test]
fn nothing_that_a_client_chooses_hides_its_request() {
    let long = "é".repeat(40_000);
    for (what, members) in [
        ("the id", json!({"auditID": long})),
        ("a user", json!({"user": {"username": long}})),
        ("an impersonated user", json!({"impersonatedUser": {"username": long}})),
        ("its session", json!({"user": {"username": "a", "extra": {"arn": [long]}}})),
        ("a parameter", json!({"requestURI": format!("/x?fieldManager=ci&junk={long}")})),
        ("a manager", json!({"requestURI": format!("/x?fieldManager={long}")})),
        ("a selector", json!({"verb": "deletecollection", "requestURI": format!("/x?labelSelector=a%3D{long}")})),
        ("addresses", json!({"sourceIPs": vec![&long; 20]})),
    ] {
        let request = request(event(&members));
        assert!(request.may_have_written(), "{what}");
        let sender = &request.sender;
        let texts = [&request.id, &request.manager, &sender.user, &sender.impersonated_by, &request.label_selector];
        assert!(texts.into_iter().chain(&sender.addresses).all(|text| text.len() <= 1 << 10), "{what}");
    }
    assert!(request(event(&json!({"user": {"username": long}}))).sender.user.ends_with('…'), "it is marked");
    // A part of a selector would be another one: it may select everything.
    let uri = format!("/x?labelSelector=a%3D{long}");
    let selector = request(event(&json!({"verb": "deletecollection", "requestURI": uri}))).label_selector;
    assert!(LabelSelector::read(&selector).is_err());
}

/// `pkg/apis/audit/v1/types.go`: all but the last IP can be arbitrarily set by the client.
#[test]
fn the_address_of_the_connection_is_kept_whatever_a_client_puts_before_it() {
    let all: Vec<String> = (0..30).map(|number| format!("192.0.2.{number}")).collect();
    for count in [1, 2, 8, 9, 30] {
        let addresses = request(event(&json!({"sourceIPs": all[..count]}))).sender.addresses;
        assert_eq!(addresses, all[count.saturating_sub(8)..count]);
    }
}

/// A parameter whose escapes are wrong is none for Go, so that its request is no dry run and its manager is that of the agent.
#[test]
fn a_parameter_counts_where_the_api_server_counts_it() {
    for (query, dry_run, manager) in [
        ("dryRun=All&fieldManager=ci", true, "ci"),
        ("dryRun=%41ll&fieldManager=%63i", true, "ci"),
        ("dryRun=%zz&fieldManager=ci", false, "ci"),
        ("dryRun=All%", false, "kubectl"),
        ("dryRun=All%4&fieldManager=ci%", false, "kubectl"),
        ("dry%zzRun=All&fieldManager=%&fieldManager=ci", false, "ci"),
        ("dryRun=All;x&fieldManager=ci;x", false, "kubectl"),
    ] {
        let request = request(event(&json!({"requestURI": format!("/x?{query}"), "userAgent": "kubectl/v1"})));
        assert_eq!((request.dry_run, request.manager.as_str()), (dry_run, manager), "{query}");
    }
}

/// At the level `Metadata` nobody can see whether a deletion was a dry run.
#[test]
fn a_deletion_without_bodies_may_have_been_a_dry_run() {
    let eviction = json!({"resource": "pods", "namespace": "shop", "name": "p", "subresource": "eviction"});
    for (members, expected) in [
        (json!({"verb": "delete"}), true),
        (json!({"verb": "deletecollection"}), true),
        (json!({"verb": "create", "objectRef": eviction}), true),
        (json!({"verb": "delete", "requestObject": {"kind": "DeleteOptions"}}), false),
        (json!({"verb": "delete", "responseObject": {"kind": "Status"}}), false),
        (json!({"verb": "create"}), false),
        (json!({"verb": "patch"}), false),
    ] {
        assert_eq!(request(event(&members)).may_be_dry, expected, "{members}");
    }
}

/// `create.go` of apiserver: `managerOrUserAgent`.
#[test]
fn the_manager_is_that_of_managed_fields() {
    let long = "x".repeat(200);
    let cut = format!("{}...TRUNCATED", "y".repeat(1024));
    let table = [
        ("?fieldManager=ci", "kubectl/v1", "ci"),
        ("?fieldManager=&a=b", "kubectl/v1", "kubectl"),
        ("?fieldManager=ci;force", "kubectl/v1", "kubectl"),
        ("?fieldManager=first&fieldManager=second", "kubectl/v1", "first"),
        ("", "kubectl/v1.36.0 (linux/amd64)", "kubectl"),
        ("", "no slash at all", "no slash at all"),
        ("", "tab\tand\u{7f}bell\u{7}/1", "tabandbell"),
        ("", long.as_str(), &long[..128]),
        ("", cut.as_str(), &"y".repeat(128)),
        ("", "ééé/1", "ééé"),
        ("", "", ""),
    ];
    for (query, agent, manager) in table {
        let uri = format!("/api/v1/namespaces/shop/configmaps/cm{query}");
        let request = request(event(&json!({"requestURI": uri, "userAgent": agent})));
        assert_eq!(request.manager, manager, "{query} {agent}");
        assert_eq!(request.sender.agent, agent.trim_end_matches("...TRUNCATED"));
    }
    // Without a URI it is not known whether it had a fieldManager.
    assert_eq!(request(event(&json!({"requestURI": null}))).manager, "");
}

#[test]
fn verbs_dry_runs_versions_and_uids() {
    let put = json!({"resource": "configmaps", "name": "cm", "uid": "u", "resourceVersion": "7"});
    let of = |subresource: &str| json!({"resource": "pods", "name": "p", "uid": "u", "subresource": subresource});
    let body = |uid: &str, version: &str| json!({"metadata": {"uid": uid, "resourceVersion": version, "name": "n"}});
    let status = json!({"kind": "Status", "metadata": {}, "details": {"uid": "u"}});
    // Members, then verb, uid, before, after, dry run.
    let table = [
        (json!({"objectRef": put}), ("update", "u", "7", "", false)),
        (json!({"objectRef": put, "responseObject": body("u", "8")}), ("update", "u", "7", "8", false)),
        (
            json!({"requestObject": body("u", "7"), "responseObject": "skipped-too-big-size-object"}),
            ("update", "u", "7", "", false),
        ),
        (json!({"requestObject": body("u", "0")}), ("update", "u", "", "", false)),
        (
            json!({"verb": "create", "objectRef": put, "requestObject": body("mine", "1")}),
            ("create", "", "", "", false),
        ),
        (
            json!({"verb": "create", "objectRef": put, "responseObject": body("s", "9")}),
            ("create", "s", "", "9", false),
        ),
        (
            json!({"verb": "create", "objectRef": of("binding"), "responseObject": body("of-the-answer", "9")}),
            ("create", "u", "", "", false),
        ),
        (
            json!({"verb": "create", "objectRef": of("eviction"), "requestObject": {"deleteOptions": {"dryRun": ["All"]}}}),
            ("create", "u", "", "", true),
        ),
        (json!({"verb": "patch"}), ("patch", "", "", "", false)),
        (
            json!({"verb": "patch", "requestObject": [{"op": "test", "path": "/metadata/resourceVersion", "value": "7"}]}),
            ("patch", "", "", "", false),
        ),
        (json!({"verb": "patch", "requestObject": body("u", "7")}), ("patch", "u", "7", "", false)),
        (json!({"verb": "patch", "requestURI": "/x?fieldManager=a&force=false"}), ("apply", "", "", "", false)),
        (
            json!({"verb": "patch", "requestURI": "/x?fieldManager=a", "responseStatus": {"code": 201}}),
            ("apply", "", "", "", false),
        ),
        (json!({"verb": "patch", "requestURI": "/x?fieldManager=a"}), ("patch", "", "", "", false)),
        (json!({"verb": "update", "requestURI": "/x?dryRun=All"}), ("update", "", "", "", true)),
        (json!({"verb": "update", "requestURI": "/x?dryRun="}), ("update", "", "", "", false)),
        (json!({"verb": "delete", "requestObject": {"dryRun": ["All"]}}), ("delete", "", "", "", true)),
        (
            json!({"verb": "delete", "requestObject": {"dryRun": []}, "responseObject": status}),
            ("delete", "u", "", "", false),
        ),
        (
            json!({"verb": "delete", "responseStatus": {"code": 200, "details": {"uid": "u"}}}),
            ("delete", "u", "", "", false),
        ),
        (
            json!({"verb": "delete", "requestObject": {"preconditions": {"uid": "u", "resourceVersion": "7"}}}),
            ("delete", "u", "7", "", false),
        ),
        (json!({"verb": "deletecollection", "responseObject": body("", "9")}), ("deletecollection", "", "", "", false)),
        (json!({"verb": "get", "responseObject": body("u", "9")}), ("get", "", "", "", false)),
    ];
    for (members, expected) in table {
        let r = request(event(&members));
        assert_eq!(
            (r.verb.as_str(), r.uid.as_str(), r.before.as_str(), r.after.as_str(), r.dry_run),
            expected,
            "{members}"
        );
    }
}

#[test]
fn what_is_no_ended_request_for_an_object_says_so() {
    let table = [
        (json!({"stage": "RequestReceived"}), "other: stage"),
        (json!({"stage": "ResponseStarted", "responseStatus": {"code": 101}}), "other: stage"),
        (
            json!({"stage": "Panic", "responseStatus": {"code": 500}}),
            "update configmaps/shop/cm alice@kubectl 500 no write",
        ),
        (json!({"objectRef": null}), "other: no_object"),
        (json!({"responseStatus": null}), "update configmaps/shop/cm alice@kubectl 0 no write"),
        (
            json!({"verb": "list", "responseStatus": {"code": 200}}),
            "list configmaps/shop/cm alice@kubectl 200 no write",
        ),
        (json!({"apiVersion": "audit.k8s.io/v1beta1"}), "update configmaps/shop/cm alice@kubectl 200"),
        (json!({"apiVersion": null, "kind": null}), "update configmaps/shop/cm alice@kubectl 200"),
        (
            json!({"objectRef": {"resource": "deployments", "name": "d", "apiVersion": "apps/v1"}}),
            "update deployments/apps/d alice@kubectl 200",
        ),
        (
            json!({"objectRef": {"resource": "namespaces", "name": "d", "namespace": "d"}}),
            "update namespaces/d alice@kubectl 200",
        ),
        (
            json!({"apiVersion": "audit.k8s.io/v2"}),
            "an audit event has an apiVersion that is neither audit.k8s.io/v1 nor v1beta1",
        ),
        (json!({"stage": null}), "an audit event has no stage"),
        (json!({"objectRef": "cm"}), "objectRef of an audit event has another shape"),
        (json!({"impersonatedUser": ["carol"]}), "impersonatedUser of an audit event has another shape"),
        (json!({"objectRef": {"resource": "x".repeat(2000)}}), "a name in an audit event has more than 1024 bytes"),
        (json!({"apiVersion": "v1", "auditID": null}), "other: not_audit"),
    ];
    for (members, expected) in table {
        assert_eq!(told(&outcome(event(&members))), expected, "{members}");
    }
    for text in ["", " \n"] {
        assert_eq!(outcomes(read(text.as_bytes(), None)), Vec::<Outcome>::new());
    }
    for text in ["{}", "[1]", "null", "I1128 07:24:21.481909 controller.go:667] quota", "hello"] {
        assert_eq!(told(&outcome(text)), "other: not_audit", "{text}");
    }
}

/// The first events of v1beta1 had one time.
#[test]
fn times_are_microseconds() {
    let at = |members: &Value| {
        let request = request(event(members));
        (request.received, request.completed)
    };
    let none = json!({"requestReceivedTimestamp": null, "stageTimestamp": null});
    assert_eq!(at(&none), (0, super::TIME));
    let one = json!({"requestReceivedTimestamp": null, "stageTimestamp": null, "timestamp": "1970-01-01T00:00:01Z"});
    assert_eq!(at(&one), (1_000_000, 1_000_000));
    let odd = json!({"requestReceivedTimestamp": 7, "stageTimestamp": "1970-01-01T01:00:00.5+01:00"});
    assert_eq!(at(&odd), (0, 500_000));
}
