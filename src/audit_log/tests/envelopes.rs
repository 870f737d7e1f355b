//! Envelopes around events, each alone and in others.

use std::io::Write;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::{Value, json};

use super::{Outcome, TIME, event, outcome, outcomes, read, recorded, request, told};

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn base64(bytes: impl AsRef<[u8]>) -> String {
    STANDARD.encode(bytes)
}

/// The message of a subscription of CloudWatch with these texts.
fn subscription(texts: &[&str]) -> String {
    let events: Vec<Value> = texts
        .iter()
        .enumerate()
        .map(|(at, text)| json!({"id": at.to_string(), "timestamp": 5, "message": text}))
        .collect();
    let message = json!({
        "messageType": "DATA_MESSAGE", "owner": "111122223333", "logGroup": "/aws/eks/main/cluster",
        "logStream": "kube-apiserver-audit-1", "subscriptionFilters": ["decklog"], "logEvents": events,
    });
    message.to_string()
}

fn azure(category: &str, log: &Value) -> Value {
    json!({
        "category": category, "operationName": "Microsoft.ContainerService/managedClusters/diagnosticLogs/Read",
        "properties": {"log": log, "stream": "stdout", "pod": "kube-apiserver-1"}, "resourceId": "/SUBSCRIPTIONS/S/MAIN",
        "time": "1970-01-01T00:00:00.0000070Z",
    })
}

/// Every envelope that may be around these events, the cluster that it names, and the time that it has.
fn wrapped(events: &[&str]) -> Vec<(&'static str, Vec<u8>, Option<&'static str>, i64)> {
    let (eks, aks) = (Some("/aws/eks/main/cluster"), Some("/SUBSCRIPTIONS/S/MAIN"));
    let values: Vec<Value> = events.iter().map(|event| serde_json::from_str(event).unwrap()).collect();
    let list = json!({"kind": "EventList", "apiVersion": "audit.k8s.io/v1", "metadata": {}, "items": values});
    let of_aws = subscription(events);
    let of_azure: Vec<Value> = events.iter().map(|event| azure("kube-audit-admin", &json!(event))).collect();
    let objects: Vec<Value> = values.iter().map(|event| azure("kube-audit", event)).collect();
    let firehose = |data: &[String]| {
        let records: Vec<Value> = data.iter().map(|data| json!({"data": data})).collect();
        json!({"requestId": "r-1", "timestamp": 6, "records": records}).to_string().into_bytes()
    };
    let push = |data: &[u8]| {
        let message = json!({"data": base64(data), "attributes": {}, "messageId": "1", "publishTime": "1970-01-01T00:00:00.000007Z"});
        json!({"message": message, "subscription": "projects/p/subscriptions/s"}).to_string().into_bytes()
    };
    // Each line, and its end, with what a shipper knows of it.
    let shipped = |key: &str, known: &Value| -> Vec<Value> {
        let with = |line: &&str| {
            let mut record = known.clone();
            record[key] = json!(format!("{line}\n"));
            record
        };
        events.iter().map(with).collect()
    };
    let lines = |values: &[Value]| values.iter().map(|value| format!("{value}\r\n")).collect::<String>().into_bytes();
    vec![
        ("lines", events.join("\n").into_bytes(), None, TIME),
        ("values in a row", events.concat().into_bytes(), None, TIME),
        ("an array", json!(values).to_string().into_bytes(), None, TIME),
        ("a byte order mark", format!("\u{feff}{}\n", events.join("\n\n")).into_bytes(), None, TIME),
        (
            "pretty values",
            values.iter().map(|value| format!("{value:#}\n")).collect::<String>().into_bytes(),
            None,
            TIME,
        ),
        ("EventList", list.to_string().into_bytes(), None, TIME),
        ("EventList, pretty", format!("{list:#}").into_bytes(), None, TIME),
        ("EventList, gzip", gzip(list.to_string().as_bytes()), None, TIME),
        ("CloudWatch", of_aws.clone().into_bytes(), eks, 5000),
        ("CloudWatch, gzip", gzip(of_aws.as_bytes()), eks, 5000),
        ("CloudWatch, base64", base64(gzip(of_aws.as_bytes())).into_bytes(), eks, 5000),
        ("Firehose, gzip", firehose(&[base64(gzip(of_aws.as_bytes()))]), eks, 5000),
        ("Firehose, plain", firehose(&events.iter().map(base64).collect::<Vec<_>>()), None, 6000),
        ("Pub/Sub", push(events.join("\n").as_bytes()), None, 7),
        ("Azure", json!({"records": of_azure}).to_string().into_bytes(), aks, 7),
        ("Azure, objects", json!({"records": objects}).to_string().into_bytes(), aks, 7),
        ("Azure, lines", lines(&of_azure), aks, 7),
        ("Azure in Event Hubs", json!([{"records": of_azure}]).to_string().into_bytes(), aks, 7),
        (
            "Azure, by Vector",
            lines(&[json!({"message": json!({"records": of_azure}).to_string(), "topic": "hub"})]),
            aks,
            7,
        ),
        (
            "Vector",
            lines(&shipped("message", &json!({"source_type": "file", "timestamp": "2026-01-01T00:00:00Z"}))),
            None,
            TIME,
        ),
        (
            "Filebeat",
            lines(&shipped("message", &json!({"@timestamp": "2026-01-01T00:00:00Z", "log": {"offset": 5}}))),
            None,
            TIME,
        ),
        ("Fluent Bit", json!(shipped("log", &json!({"date": 5.25}))).to_string().into_bytes(), None, TIME),
        ("Docker", lines(&shipped("log", &json!({"stream": "stdout", "time": "2026-01-01T00:00:00Z"}))), None, TIME),
        (
            "a shipper that parses",
            lines(&values.iter().map(|event| json!({"message": event})).collect::<Vec<_>>()),
            None,
            TIME,
        ),
    ]
}

#[test]
fn every_envelope_gives_the_events_as_they_are() {
    let events = recorded();
    let plain: Vec<Outcome> = events.iter().map(outcome).collect();
    for (name, bytes, cluster, _) in wrapped(&events) {
        let received = read(&bytes, Some(TIME));
        assert!(received.records.iter().all(|record| record.cluster.as_deref() == cluster), "{name}");
        assert_eq!(received.request_id.as_deref(), name.starts_with("Firehose").then_some("r-1"), "{name}");
        assert!(outcomes(received) == plain, "{name}");
    }
}

#[test]
fn the_envelope_has_the_time_of_what_has_none() {
    let event = event(&json!({"requestReceivedTimestamp": null, "stageTimestamp": null}));
    for (name, bytes, _, time) in wrapped(&[&event]) {
        assert_eq!(request(&bytes).completed, time, "{name}");
    }
}

/// AKS cuts at 16 KiB, CloudWatch at 256 KiB.
#[test]
fn a_cut_event_is_read_in_its_envelope() {
    let line = recorded().into_iter().find(|line| line.contains("kubectl-label")).unwrap();
    let cut = &line[..line.find(r#""managedFields""#).unwrap()];
    let expected = "patch configmaps/shop/plain alice@kubectl-label 200 ->209";
    let marked = format!("{cut}[Truncated...]");
    for bytes in [
        cut.as_bytes().to_vec(),
        json!({"records": [azure("kube-audit", &json!(cut))]}).to_string().into_bytes(),
        gzip(subscription(&[cut]).as_bytes()),
        subscription(&[&marked]).into_bytes(),
    ] {
        let request = request(&bytes);
        assert_eq!(super::line(&request), expected);
        assert!(request.cut && [5000, 7, TIME].contains(&request.completed));
    }
}

/// Whatever stands in the place of one record, its neighbours are read.
#[test]
fn damage_of_one_record_is_that_of_no_other() {
    let good = event(&json!({}));
    let expected = "update configmaps/shop/cm alice@kubectl 200";
    let damaged = [
        "{",
        "}",
        "[",
        "{}",
        "[1,",
        "\"",
        "nonsense {",
        r#"{"kind":"#,
        r#"{"kind":"Event","#,
        r#"{"a":1}}"#,
        "\u{0}",
        "x\u{fffd}",
        "I1128 klog",
        r#"{"records":[{"category":"kube-audit","properties":5}]}"#,
        r#"{"records":5}"#,
        r#"{"messageType":"DATA_MESSAGE","logEvents":[1]}"#,
        r#"{"message":{"data":"%"}}"#,
        r#"{"kind":"Event","kind":"Event"}"#,
        "bm90aGluZyBhdCBhbGwh",
    ];
    for bad in damaged {
        let azures = json!({"records": [azure("kube-audit", &json!(good)), azure("kube-audit", &json!(bad)), azure("kube-audit", &json!(good))]});
        let firehose = json!({"requestId": "r", "records": [{"data": base64(&good)}, {"data": bad}, {"data": base64(bad)}, {"data": base64(&good)}]});
        let odd = json!({"records": [{"data": base64(&good)}, {"data": 5}, 5, null, {"data": base64(&good)}]});
        for bytes in [
            format!("{good}\n{bad}\n{good}"),
            format!("{bad}\n{good}\n{good}"),
            format!("{good}\n{good}\n{bad}"),
            azures.to_string(),
            subscription(&[&good, bad, &good]),
            firehose.to_string(),
            odd.to_string(),
        ] {
            let told: Vec<String> = outcomes(read(bytes.as_bytes(), None)).iter().map(told).collect();
            assert_eq!(told.iter().filter(|told| *told == expected).count(), 2, "{bad}: {told:?}");
            assert!(told.len() > 2 || bad.is_empty(), "{bad} is not counted: {told:?}");
        }
    }
    let mut bytes = good.clone().into_bytes();
    bytes.extend(b"\n{\"kind\":\"Event\",\"\xff\n");
    bytes.extend(good.as_bytes());
    let told: Vec<String> = outcomes(read(&bytes, None)).iter().map(told).collect();
    assert_eq!((told.len(), &*told[0], &*told[2]), (3, expected, expected), "{told:?}");
}

#[test]
fn what_is_beside_the_audit_log_is_passed_over() {
    let control = json!({"messageType": "CONTROL_MESSAGE", "owner": "CloudwatchLogs", "logGroup": "", "logEvents": [
        {"id": "", "timestamp": 1, "message": "CWL CONTROL MESSAGE: Checking health of destination Firehose."}]});
    let table = [
        (gzip(control.to_string().as_bytes()), "other: control"),
        (subscription(&["I1128 07:24:21 controller.go:667] quota"]).into_bytes(), "other: not_audit"),
        (subscription(&[&format!("E1128 said:\n{}", event(&json!({})))]).into_bytes(), "other: not_audit"),
        (
            azure("kube-audit", &json!(format!("E1128 said:\n{}", event(&json!({}))))).to_string().into_bytes(),
            "other: not_audit",
        ),
        (
            subscription(&[&event(&json!({}))]).replace("kube-apiserver-audit-1", "authenticator-1").into_bytes(),
            "other: other_log",
        ),
        (azure("kube-controller-manager", &json!("{}")).to_string().into_bytes(), "other: other_log"),
        (azure("kube-audit", &json!("")).to_string().into_bytes(), "other: not_audit"),
        (azure("kube-audit", &json!("E1128 klog")).to_string().into_bytes(), "other: not_audit"),
        (
            json!({"messageType": "OTHER"}).to_string().into_bytes(),
            "a message of CloudWatch is of a type that decklog does not know",
        ),
        (gzip(b"{}")[..15].to_vec(), "the gzip of a record is damaged"),
        (json!({"kind": "EventList", "apiVersion": "v1", "items": []}).to_string().into_bytes(), "other: not_audit"),
        // A container prints what it likes.
        (
            json!({"message": event(&json!({})), "kubernetes": {"pod_name": "mallory"}}).to_string().into_bytes(),
            "other: not_audit",
        ),
        (json!({"log": event(&json!({})), "kubernetes": {}}).to_string().into_bytes(), "other: not_audit"),
        (json!({"message": "I1128 klog", "host": "node"}).to_string().into_bytes(), "other: not_audit"),
    ];
    for (bytes, expected) in table {
        assert_eq!(told(&outcome(bytes)), expected);
    }
    // properties as a text.
    let mut record = azure("kube-audit", &json!(event(&json!({}))));
    record["properties"] = json!(record["properties"].to_string());
    assert_eq!(request(record.to_string()).name, "cm");
}

#[test]
fn everything_is_bounded() {
    let zeros = vec![b' '; 1 << 20];
    let bomb = gzip(&zeros).repeat(70);
    assert!(bomb.len() < 1 << 20);
    assert_eq!(told(&outcome(&bomb)), "the gzip of a delivery holds too much; send fewer events at once");
    // Bombs share one budget.
    let record = json!({"data": base64(gzip(&zeros).repeat(30))});
    let told_all: Vec<String> =
        outcomes(read(json!({"records": vec![record; 5]}).to_string().as_bytes(), None)).iter().map(told).collect();
    assert!(told_all.iter().any(|told| told.starts_with("the gzip of a delivery holds too much")), "{told_all:?}");

    let large = vec![b' '; (64 << 20) + 1];
    assert_eq!(told(&outcome(&large)), "a delivery has more than 67108864 bytes; send fewer events at once");

    let mut nested = event(&json!({})).into_bytes();
    for _ in 0..12 {
        nested = gzip(&nested);
    }
    assert_eq!(told(&outcome(&nested)), "a record has too many envelopes within each other");
    let lists = format!("{}{}", "[".repeat(100), "]".repeat(100));
    assert_eq!(told(&outcome(&lists)), "a record has too many envelopes within each other");
    // As deep as memory allows, and no stack is used.
    let deep = format!(r#"{{"kind":"Event","apiVersion":"audit.k8s.io/v1","x":{}"#, r#"{"a":["#.repeat(100_000));
    assert!(matches!(outcome(&deep), Outcome::Unreadable(_)));

    let many = outcomes(read("{}\n".repeat(100_010).as_bytes(), None));
    assert_eq!(many.len(), 100_001);
    assert_eq!(told(&many[100_000]), "a delivery has more than 100000 records; the rest is not read");
}
