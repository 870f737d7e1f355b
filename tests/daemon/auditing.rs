//! Senders of changes, out of an audit log that the test writes: one for each change, whatever is killed when; and none where events
//! are missing. It proves the way from a file over the journal to an entry; the join has tests of its own.

use std::collections::HashMap;
use std::fs;
use std::io::Write as _;
use std::path::PathBuf;

use decklog::sim::{Sim, objects};
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::support::{Daemon, Dice, cluster, until};

const WATCH: &str = "resources = [\"configmaps\"]";
const USERS: [&str; 3] = ["alice", "bob", "carol"];
const NAMES: usize = 6;

/// Writers of ConfigMaps, and the API server's audit log of them.
struct Audited<'s> {
    sim: &'s Sim,
    file: PathBuf,
    /// Number of writes so far, and the user of each version.
    writes: usize,
    users: HashMap<String, &'static str>,
}

impl Audited<'_> {
    /// Somebody writes, and the API server logs it: with bodies, or without, where the PUT names the version before.
    fn write(&mut self, with_bodies: bool, is_logged: bool) -> String {
        self.writes += 1;
        let (user, name) = (USERS[self.writes % USERS.len()], format!("map-{}", self.writes % NAMES));
        let received = Timestamp::now();
        let before = self.sim.get("configmaps", "default", &name).unwrap().revision.to_string();
        let number = self.writes.to_string();
        let row = self.sim.update("configmaps", "default", &name, |map| map["data"]["n"] = number.into()).unwrap();
        let version = row.revision.to_string();
        self.users.insert(version.clone(), user);
        let mut event = json!({
            "kind": "Event", "apiVersion": "audit.k8s.io/v1", "level": if with_bodies { "RequestResponse" } else { "Metadata" },
            "auditID": format!("id-{}", self.writes), "stage": "ResponseComplete",
            "requestURI": format!("/api/v1/namespaces/default/configmaps/{name}"), "verb": "update",
            "user": {"username": user}, "sourceIPs": ["10.0.0.7"], "userAgent": "kubectl/v1.36.0",
            "objectRef": {"resource": "configmaps", "namespace": "default", "name": name, "uid": &*row.uid, "apiVersion": "v1", "resourceVersion": before},
            "responseStatus": {"metadata": {}, "code": 200},
            "requestReceivedTimestamp": received.to_string(), "stageTimestamp": Timestamp::now().to_string(),
        });
        if with_bodies {
            let metadata = |version: &str| json!({"metadata": {"name": name, "namespace": "default", "uid": &*row.uid, "resourceVersion": version}});
            event["requestObject"] = metadata(&before);
            event["responseObject"] = metadata(&version);
        }
        if is_logged {
            let mut file = fs::OpenOptions::new().create(true).append(true).open(&self.file).unwrap();
            writeln!(file, "{event}").unwrap();
        }
        version
    }

    /// As the API server does it.
    fn rotate(&self) -> PathBuf {
        let stamp = Timestamp::now().strftime("%Y-%m-%dT%H-%M-%S%.3f");
        let to = self.file.with_file_name(format!("audit-{stamp}.log"));
        assert!(!to.exists(), "two rotations within a millisecond");
        fs::rename(&self.file, &to).unwrap();
        fs::write(&self.file, "").unwrap();
        to
    }
}

fn entries(daemon: &Daemon) -> Vec<Value> {
    let text = fs::read_to_string(daemon.log()).unwrap_or_default();
    // The last line may be half written.
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    whole.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// The users of the ACTOR entries, by the version of the change.
fn senders(entries: &[Value]) -> HashMap<String, Vec<String>> {
    let mut senders: HashMap<String, Vec<String>> = HashMap::new();
    for entry in entries.iter().filter(|entry| entry["type"] == "ACTOR") {
        let of = usize::try_from(entry["of"]["seq"].as_u64().unwrap()).unwrap();
        let change = entries.iter().find(|other| other["seq"] == of).unwrap();
        assert!(entry["seq"].as_u64() > change["seq"].as_u64() && entry["of"]["id"] == change["id"], "{entry}");
        let user = entry["actor"]["user"].as_str().unwrap().to_owned();
        senders.entry(change["resourceVersion"].as_str().unwrap().to_owned()).or_default().push(user);
    }
    senders
}

/// A daemon that watches ConfigMaps and reads the audit log of their writers.
async fn begin(sim: &Sim) -> (Daemon, Audited<'_>) {
    for number in 0..NAMES {
        sim.create("configmaps", objects::config_map("default", &format!("map-{number}"), "0")).unwrap();
    }
    let mut daemon = Daemon::with(sim, WATCH, "");
    let file = daemon.path("audit.log");
    // The log was there before: of a change right behind its first event it is not certain.
    let earlier = (Timestamp::now() - jiff::SignedDuration::from_secs(20)).to_string();
    let event = json!({
        "kind": "Event", "apiVersion": "audit.k8s.io/v1", "level": "Metadata", "auditID": "first", "stage": "ResponseComplete",
        "requestURI": "/api/v1/namespaces/default/configmaps/map-0", "verb": "get", "user": {"username": "reader"},
        "objectRef": {"resource": "configmaps", "namespace": "default", "name": "map-0", "apiVersion": "v1"},
        "responseStatus": {"metadata": {}, "code": 200}, "requestReceivedTimestamp": earlier, "stageTimestamp": earlier,
    });
    fs::write(&file, format!("{event}\n")).unwrap();
    daemon.configure(&daemon.config(WATCH, &format!("[[audit_log]]\nfile = {file:?}\n")));
    let audited = Audited { sim, file, writes: 0, users: HashMap::new() };
    daemon.start();
    daemon.ready().await;
    // From then on it goes on where it was, also in what is rotated meanwhile.
    until("a position in the audit log", async || {
        daemon.must_run();
        let log = daemon.try_status().await?["audit_logs"][0].clone();
        if log["read_up_to"].is_string() { Ok(()) } else { Err(log.to_string()) }
    })
    .await;
    (daemon, audited)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_change_has_one_sender_whatever_is_killed() {
    let sim = cluster().await;
    let (mut daemon, mut audited) = begin(&sim).await;
    let mut dice = Dice(2_026);
    for round in 0..12 {
        let (lines, known) = (daemon.lines(), senders(&entries(&daemon)).len());
        for _ in 0..4 {
            audited.write(dice.roll(2) == 0, true);
        }
        if dice.roll(3) == 0 {
            audited.rotate();
        }
        match round % 4 {
            // At once: nothing of it is read yet, or half.
            0 => {}
            // Changes are recorded, and most senders are not.
            1 => daemon.reach(lines + 1).await,
            // A sender has just come.
            2 => {
                until("another sender", async || {
                    daemon.must_run();
                    let now = senders(&entries(&daemon)).len();
                    if now > known { Ok(()) } else { Err(format!("{now}")) }
                })
                .await;
            }
            // What the audit log has is on disk, and waits for its time.
            _ => {
                // With the first event, which is none of a write.
                let writes = audited.writes as u64 + 1;
                until("all events", async || {
                    daemon.must_run();
                    let log = daemon.try_status().await?["audit_logs"][0].clone();
                    if log["read"] == writes { Ok(()) } else { Err(format!("of {writes}: {log}")) }
                })
                .await;
            }
        }
        daemon.kill().await;
        daemon.start();
        daemon.ready().await;
    }
    until("every sender", async || {
        daemon.must_run();
        let known = senders(&entries(&daemon)).len();
        if known >= audited.users.len() { Ok(()) } else { Err(format!("{known} of {}", audited.users.len())) }
    })
    .await;
    let entries = entries(&daemon);
    let seqs: Vec<u64> = entries.iter().map(|entry| entry["seq"].as_u64().unwrap()).collect();
    assert_eq!(seqs, (1..=seqs.len() as u64).collect::<Vec<_>>());
    let expected = audited.users.iter().map(|(version, user)| (version.clone(), vec![(*user).to_owned()]));
    assert_eq!(senders(&entries), expected.collect());
    assert_eq!(daemon.status().await["audit_logs"][0]["lost"], 0);
    daemon.stop().await;
}

/// Where events are missing, what remains proves nothing: also after a restart.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_is_named_while_events_are_missing() {
    let sim = cluster().await;
    let (mut daemon, mut audited) = begin(&sim).await;
    let first = audited.write(true, true);
    until("the first sender", async || {
        daemon.must_run();
        if senders(&entries(&daemon)).contains_key(&first) { Ok(()) } else { Err("it is not there".to_owned()) }
    })
    .await;
    daemon.kill().await;
    // The file goes before it is read; nothing shows whether a rival of the next write was in it.
    fs::write(&audited.file, "{}\n").unwrap();
    fs::remove_file(audited.rotate()).unwrap();
    let ambiguous = audited.write(false, true);
    let proved = audited.write(true, true);
    daemon.start();
    let log = |status: &Value| status["audit_logs"][0].clone();
    let status = until("the loss to be found", async || {
        daemon.must_run();
        let status = daemon.try_status().await?;
        if log(&status)["lost"] == 1 { Ok(status) } else { Err(status.to_string()) }
    })
    .await;
    let alarm = status["alarms"].as_array().unwrap().iter().find(|alarm| alarm["alarm"] == "audit-log-incomplete");
    assert!(alarm.is_some_and(|alarm| alarm["about"] == "audit"), "{status:#}");
    daemon.kill().await;
    daemon.start();
    daemon.ready().await;
    let all = until("all to be decided", async || {
        daemon.must_run();
        let status = daemon.try_status().await?;
        let entries = entries(&daemon);
        let last = entries.iter().rev().find(|entry| entry["type"] != "ACTOR").ok_or("nothing")?["seq"].as_u64();
        let is_last = entries.iter().any(|entry| entry["resourceVersion"] == proved);
        let attributed = log(&status)["attributed"].as_u64();
        if is_last && attributed >= last { Ok(entries) } else { Err(format!("{attributed:?} of {last:?}")) }
    })
    .await;
    let senders = senders(&all);
    assert_eq!(senders.get(&proved), Some(&vec![audited.users[&proved].to_owned()]), "its answer proves it");
    assert_eq!(senders.get(&ambiguous), None);
    assert_eq!(senders.len(), 2);
    daemon.stop().await;
    // Without it in the configuration there is none, and no alarm about it.
    daemon.configure(&daemon.config(WATCH, ""));
    daemon.start();
    until("no audit log", async || {
        daemon.must_run();
        let status = daemon.try_status().await?;
        if status["audit_logs"].is_null() { Ok(()) } else { Err(log(&status).to_string()) }
    })
    .await;
    daemon.stop().await;
}
