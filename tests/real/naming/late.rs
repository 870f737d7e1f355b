//! Events that come up to ten minutes late, in the envelopes of the clouds, in disorder and again: to daemons whose clock goes on by
//! minutes between two deliveries, so that the minutes take seconds.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;
use std::process::Command;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use decklog_testkit::support::free_address;
use flate2::Compression;
use flate2::write::GzEncoder;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::{AZURE, WATCH, without_bodies};
use crate::decklog::Decklog;
use crate::harness::{Cluster, LIMIT, plain_http, until};

/// Time for which events are late at most, in seconds.
const DELAY_MAX: u32 = 600;
/// Time by which the clock goes on between two deliveries, in seconds.
const STEP: u32 = 150;
/// Time for which the daemon waits for events: the longest delay, and the time that the writes of the test took.
const LAG: u32 = 1200;
/// Interval at which a daemon stores up to when it has read, with some room.
const NOTED: SignedDuration = SignedDuration::from_secs(15);
/// Events of one delivery.
const BATCH: usize = 50;
/// Bytes of an event that AKS and CloudWatch leave.
const AKS_CUT: usize = 16 << 10;
const CLOUDWATCH_CUT: usize = 256 << 10;

/// Who sends the events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sender {
    /// The webhook backend, Firehose and an Event Hub, in turns.
    Native,
    /// Pub/Sub, of which the events are others.
    Google,
}

/// A daemon that receives events late.
pub(super) struct Late {
    pub(super) daemon: Decklog,
    sender: Sender,
    url: String,
    clock: PathBuf,
    offset: u32,
}

impl Late {
    pub(super) async fn start(cluster: &Cluster, name: &str, sender: Sender) -> Self {
        cluster.kubeconfig_of_token(name, "admin-token");
        let mut daemon = Decklog::new(cluster, name, WATCH);
        let address = free_address();
        // What is left out is tried as well.
        let skew = if sender == Sender::Native { "clock_skew = \"1ms\"\n" } else { "" };
        daemon.configure(&format!("\n[[audit_log]]\nlisten = {:?}\nlag = \"{LAG}s\"\n{skew}", address.to_string()));
        let (library, clock) = (cluster.path(&format!("{name}-clock.so")), cluster.path(&format!("{name}-clock")));
        fs::write(&clock, 0_i64.to_ne_bytes()).unwrap();
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/daemon/clock.c");
        let made = Command::new("cc").args(["-O1", "-shared", "-fPIC", "-o"]).arg(&library).arg(source).status();
        assert!(made.expect("a C compiler; tests/run installs it").success());
        daemon.start_with(|command| {
            command.env("LD_PRELOAD", &library).env("DECKLOG_TEST_CLOCK", &clock);
        });
        daemon.ready().await;
        Self { daemon, sender, url: format!("http://{address}/"), clock, offset: 0 }
    }

    /// Sends all of an audit log, each event by at most ten minutes late.
    pub(super) async fn receive(&mut self, whole: &str) {
        let mut random = fastrand::Rng::with_seed(36);
        let mut deliveries: Vec<(u32, &str)> = Vec::new();
        for line in whole.lines() {
            let step = random.u32(0..DELAY_MAX) / STEP;
            deliveries.push((step, line));
            if random.u8(0..5) == 0 {
                deliveries.push((random.u32(step..DELAY_MAX / STEP), line));
            }
        }
        random.shuffle(&mut deliveries);
        for step in 0..DELAY_MAX / STEP {
            self.advance(STEP).await;
            let due: Vec<&str> = deliveries.iter().filter(|(at, _)| *at == step).map(|(_, line)| *line).collect();
            for (number, events) in due.chunks(BATCH).enumerate() {
                let body = match self.sender {
                    Sender::Google => push(events),
                    Sender::Native => [event_list, firehose, event_hub][number % 3](events),
                };
                let answer = plain_http().post(&self.url).body(body).send().await.unwrap();
                assert!(answer.status().is_success(), "{}: {}", answer.status(), answer.text().await.unwrap());
            }
        }
        self.advance(LAG + STEP).await;
    }

    /// The clock goes on, and the daemon has taken that for granted.
    async fn advance(&mut self, seconds: u32) {
        self.offset += seconds;
        let file = fs::OpenOptions::new().write(true).open(&self.clock).unwrap();
        file.write_all_at(&i64::from(self.offset).to_ne_bytes(), 0).unwrap();
        let complete = Timestamp::now() + SignedDuration::from_secs(i64::from(self.offset)) - NOTED;
        let complete = complete - SignedDuration::from_secs(i64::from(LAG));
        until("the time of what is read", LIMIT, async || {
            self.daemon.must_run();
            let status = self.daemon.command(&["status", "-o", "json"]);
            let status: Value = serde_json::from_slice(&status.stdout).map_err(|error| error.to_string())?;
            let read = status["audit_logs"][0]["read_up_to"].as_str().and_then(|text| text.parse::<Timestamp>().ok());
            if read >= Some(complete) { Ok(()) } else { Err(format!("{read:?} of {complete}")) }
        })
        .await;
    }
}

/// What the webhook backend sends, at level `Metadata`.
fn event_list(events: &[&str]) -> Vec<u8> {
    let items: Vec<Value> = events.iter().map(|line| serde_json::from_str(&without_bodies(line)).unwrap()).collect();
    let list = json!({"kind": "EventList", "apiVersion": "audit.k8s.io/v1", "metadata": {}, "items": items});
    list.to_string().into_bytes()
}

/// What a subscription of CloudWatch sends through Firehose, at level `Metadata`; the first record tries the connection.
fn firehose(events: &[&str]) -> Vec<u8> {
    let record = |message: &Value| {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(message.to_string().as_bytes()).unwrap();
        json!({"data": STANDARD.encode(encoder.finish().unwrap())})
    };
    let message = |kind: &str, events: Vec<Value>| {
        json!({"messageType": kind, "owner": "111122223333", "logGroup": "/aws/eks/main/cluster",
            "logStream": "kube-apiserver-audit-1", "subscriptionFilters": ["decklog"], "logEvents": events})
    };
    let event = |(at, line): (usize, &&str)| {
        let line = without_bodies(line);
        json!({"id": at.to_string(), "timestamp": milliseconds(&line), "message": &line[..line.len().min(CLOUDWATCH_CUT)]})
    };
    let events: Vec<Value> = events.iter().enumerate().map(event).collect();
    let mut records = vec![record(&message("CONTROL_MESSAGE", Vec::new()))];
    records.extend(events.chunks(20).map(|events| record(&message("DATA_MESSAGE", events.to_vec()))));
    json!({"requestId": "r", "timestamp": 1, "records": records}).to_string().into_bytes()
}

fn milliseconds(line: &str) -> i64 {
    let event: Value = serde_json::from_str(line).unwrap();
    event["stageTimestamp"].as_str().unwrap().parse::<Timestamp>().unwrap().as_millisecond()
}

/// What a diagnostic setting of AKS sends to an Event Hub, with bodies, and cut off.
fn event_hub(events: &[&str]) -> Vec<u8> {
    let record = |line: &&str| {
        let event: Value = serde_json::from_str(line).unwrap();
        let end = line.floor_char_boundary(AKS_CUT.min(line.len()));
        json!({"category": "kube-audit", "resourceId": AZURE, "properties": {"log": &line[..end], "stream": "stdout"},
            "operationName": "Microsoft.ContainerService/managedClusters/diagnosticLogs/Read", "time": event["stageTimestamp"]})
    };
    json!({"records": events.iter().map(record).collect::<Vec<_>>()}).to_string().into_bytes()
}

/// What a push subscription of Pub/Sub sends, of entries of Cloud Logging.
fn push(events: &[&str]) -> Vec<u8> {
    let entries: String = events.iter().map(|line| format!("{}\n", log_entry(line))).collect();
    let message =
        json!({"data": STANDARD.encode(entries), "messageId": "1", "publishTime": Timestamp::now().to_string()});
    json!({"message": message, "subscription": "projects/p/subscriptions/s"}).to_string().into_bytes()
}

/// The event as GKE writes it: without its id, the parameters of its URI and its HTTP code. Answers for Secrets and ConfigMaps are left
/// out, because its policy has these at level `Metadata`.
fn log_entry(line: &str) -> Value {
    let event: Value = serde_json::from_str(line).unwrap();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let object = |key: &str| text(&event["objectRef"][key]);
    let (group, resource, name, subresource) =
        (object("apiGroup"), object("resource"), object("name"), object("subresource"));
    let namespace = Some(object("namespace")).filter(|name| !name.is_empty() && resource != "namespaces");
    let path = [
        Some(if group.is_empty() { "core".to_owned() } else { group.clone() }),
        Some(object("apiVersion")),
        namespace.map(|namespace| format!("namespaces/{namespace}")),
        Some(resource.clone()),
        Some(name).filter(|name| !name.is_empty()),
        Some(subresource.clone()).filter(|subresource| !subresource.is_empty()),
    ];
    let mut method: Vec<String> = group.rsplit('.').map(str::to_owned).collect();
    if !group.contains('.') {
        method = ["io", "k8s", if group.is_empty() { "core" } else { &group }].map(str::to_owned).to_vec();
    }
    method.extend([object("apiVersion"), resource.clone()]);
    method.extend(Some(subresource.clone()).filter(|subresource| !subresource.is_empty()));
    method.push(text(&event["verb"]));
    let code = match event["responseStatus"]["code"].as_u64().unwrap_or(0) {
        200..=299 => 0,
        403 => 7,
        404 => 5,
        409 if event["verb"] == "create" && subresource.is_empty() => 6,
        409 => 10,
        429 => 8,
        500.. => 13,
        _ => 3,
    };
    let user = [&event["impersonatedUser"]["username"], &event["user"]["username"]].map(text);
    let user = user.into_iter().find(|name| !name.is_empty()).unwrap();
    let is_metadata = matches!(&*resource, "secrets" | "configmaps");
    let body = |key: &str| if is_metadata { Value::Null } else { event[key].clone() };
    let mut entry = json!({
        "insertId": event["auditID"], "logName": "projects/p/logs/cloudaudit.googleapis.com%2Factivity",
        "operation": {"id": event["auditID"], "producer": "k8s.io", "first": true, "last": true},
        "protoPayload": {
            "@type": "type.googleapis.com/google.cloud.audit.AuditLog", "serviceName": "k8s.io",
            "authenticationInfo": {"principalEmail": user}, "methodName": method.join("."),
            "requestMetadata": {"callerIp": event["sourceIPs"][0], "callerSuppliedUserAgent": event["userAgent"]},
            "resourceName": path.into_iter().flatten().collect::<Vec<_>>().join("/"),
            "request": body("requestObject"), "response": body("responseObject"), "status": {"code": code},
        },
        "labels": {"authorization.k8s.io/decision": "allow"},
        "resource": {"type": "k8s_cluster", "labels": {"project_id": "p", "location": "l", "cluster_name": "c"}},
        "timestamp": event["requestReceivedTimestamp"],
    });
    let is_asked = |list: &Value| list.as_array().is_some_and(|list| !list.is_empty());
    if text(&event["requestURI"]).contains("dryRun=All") || is_asked(&event["requestObject"]["dryRun"]) {
        entry["labels"]["command.gke.io/dryRun"] = json!("All");
    }
    entry
}
