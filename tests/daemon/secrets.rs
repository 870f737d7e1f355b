//! Invariant 10: no byte of a redacted value is anywhere but in the cluster.

use std::fs;
use std::path::Path;

use decklog::sim::faults::{Act, Fault, On, Signal};
use decklog::sim::{Sim, objects};
use memchr::memmem;
use serde_json::{Value, json};

use crate::support::{Daemon, cluster, free_address, http_get, until};

/// Long enough to be no accident, and without a character that JSON or base64 would write in another way.
const CANARIES: [&str; 10] = [
    "canaryDATAxq7Zk2mVn4",
    "canarySTRINGDATAw8Yt5",
    "canaryAPPLIEDp3Rk9sQm",
    "canaryAPPLIEDSTRb6Xw1",
    "canaryTOKENv2Hn8cLz5t",
    "canaryCHANGEDj4Fd7gKs",
    "canaryBINARYo9Us3eAyw",
    "canaryRULEDROPn5Bq1iT",
    "canaryRULEMASKc8Mv6dP",
    "canaryJWTr2Wz6hXf0nEb",
];

fn coded(text: &str) -> String {
    objects::base64(text)
}

/// Every way in which a value could be written: as it is, in base64 at each of its three alignments, in hexadecimal.
fn forms(canary: &str) -> Vec<Vec<u8>> {
    let mut forms = vec![canary.as_bytes().to_vec()];
    for shift in 0..3 {
        let text = coded(&format!("{}{canary}", "x".repeat(shift)));
        // Without the characters that the neighbours of the value have a part in.
        let text = text.trim_end_matches('=');
        let from = if shift == 0 { 0 } else { 4 };
        forms.push(text.as_bytes()[from..text.len() - 3].to_vec());
    }
    forms.push(canary.bytes().flat_map(|byte| format!("{byte:02x}").into_bytes()).collect());
    forms
}

fn has_none(bytes: &[u8], place: &str) {
    for canary in CANARIES {
        for form in forms(canary) {
            let found = memmem::find(bytes, &form);
            assert!(found.is_none(), "{place} has {canary} as {:?}", String::from_utf8_lossy(&form));
        }
    }
}

fn none_below(dir: &Path) -> usize {
    let mut files = 0;
    for file in fs::read_dir(dir).unwrap() {
        let path = file.unwrap().path();
        if path.is_dir() {
            files += none_below(&path);
        } else {
            // The database in use, its write-ahead log, what a compressed file holds once it is open: all bytes.
            has_none(&fs::read(&path).unwrap_or_default(), &path.display().to_string());
            files += 1;
        }
    }
    files
}

/// Values wherever Kubernetes has places for them.
fn plant(sim: &Sim) {
    let applied = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "planted"},
        "data": {"password": coded(CANARIES[2])}, "stringData": {"token": CANARIES[3]},
    });
    let mut planted = objects::secret("default", "planted", &[("password", CANARIES[0]), ("key", CANARIES[6])]);
    planted["stringData"] = json!({"clear": CANARIES[1]});
    planted["metadata"]["annotations"] =
        json!({"kubectl.kubernetes.io/last-applied-configuration": applied.to_string()});
    sim.create("secrets", planted).unwrap();
    let mut token = objects::secret("default", "token", &[("token", CANARIES[4])]);
    token["type"] = json!("kubernetes.io/service-account-token");
    token["metadata"]["annotations"] = json!({"kubernetes.io/service-account.name": "default"});
    sim.create("secrets", token).unwrap();
    // A service account's token in a place that no rule names.
    let part = |text: &str| coded(text).trim_end_matches('=').replace('+', "-").replace('/', "_");
    let token =
        [part(r#"{"alg":"RS256","kid":"k"}"#), part(&format!(r#"{{"sub":"{}"}}"#, CANARIES[9])), "c2ln".to_owned()];
    let kubeconfig = format!("users:\n- user: {{token: {}}}\n", token.join("."));
    sim.create("configmaps", objects::config_map("default", "kubeconfig", &kubeconfig)).unwrap();
    let mut map = objects::config_map("default", "ruled", "harmless");
    map["data"] = json!({"db-password": CANARIES[7], "api-key": CANARIES[8], "harmless": "harmlessVALUE"});
    map["metadata"]["annotations"] = json!({
        "kubectl.kubernetes.io/last-applied-configuration":
            json!({"kind": "ConfigMap", "data": {"db-password": CANARIES[7], "api-key": CANARIES[8]}}).to_string()
    });
    sim.create("configmaps", map).unwrap();
}

const RULES: &str = "[redact]\nrules = [\n\
  { resources = [\"configmaps\"], paths = [\"/data/*password*\"], mode = \"drop\" },\n\
  { resources = [\"configmaps\"], paths = [\"/data/*key*\"], mode = \"mask\" },\n\
  { resources = [\"configmaps\"], paths = [\"/metadata/annotations/kubectl.kubernetes.io~1last-applied-configuration\"], mode = \"mask\" },\n]\n";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_byte_of_a_secret_is_anywhere() {
    let sim = cluster().await;
    plant(&sim);
    let at = free_address();
    let rest = format!("{RULES}\n[[sink]]\nname = \"console\"\ntype = \"stdout\"\n\n[http]\nlisten = {at:?}\n");
    let mut daemon = Daemon::with(&sim, "resources = [\"secrets\", \"configmaps\"]", &rest);
    let loud = daemon.config("resources = [\"secrets\", \"configmaps\"]", &rest);
    daemon.configure(&loud.replace("level = \"debug\"", "level = \"trace\""));
    daemon.start();
    daemon.ready().await;
    // Changes, deletions, lines that cannot be read, a gap, a kill: every way into the journal and into an error.
    for act in [Act::undecodable(0), Act::cut_in_event(0), Act::insert(0, format!("{{{:?}\n", CANARIES[0]))] {
        sim.fault(Fault::new(On::watch("secrets"), act));
    }
    sim.signal("secrets", &Signal::End);
    let secret = json!({"data": {"password": coded(CANARIES[5])}});
    sim.patch("secrets", "default", "planted", &secret).unwrap();
    daemon.knows(&sim, "secrets", "default", "planted").await;
    daemon.kill().await;
    sim.patch("secrets", "default", "planted", &json!({"data": {"password": coded(CANARIES[0])}})).unwrap();
    sim.delete("secrets", "default", "token").unwrap();
    sim.compact_all();
    daemon.start();
    daemon.ready().await;
    daemon.tells("the gap", |entry| entry.gap.is_some()).await;
    sim.delete("secrets", "default", "planted").unwrap();
    daemon.tells("the deletion", |entry| entry.name == "planted" && entry.kind == "DELETED").await;
    until("everything on standard output", async || {
        daemon.must_run();
        let (have, wanted) = (daemon.printed().lines().count(), daemon.lines());
        if have >= wanted { Ok(()) } else { Err(format!("{have} of {wanted}")) }
    })
    .await;
    for path in ["/metrics", "/status", "/readyz", "/livez"] {
        let got = http_get(&at, path).unwrap();
        has_none(format!("{}{}", got.head, got.body).as_bytes(), path);
    }
    // Of a running daemon, and of one that has tidied up; the test's own kubeconfig is no part of the product.
    assert!(none_below(&daemon.state()) >= 2);
    daemon.stop().await;
    assert!(none_below(&daemon.state()) >= 2);
    for name in ["log.jsonl", "stderr", "stdout"] {
        let bytes = fs::read(daemon.path(name)).unwrap();
        assert!(bytes.len() > 500, "{name} has nothing to look at");
        has_none(&bytes, name);
    }
    for command in [
        &["get", "configmap/ruled"][..],
        &["tail", "--last", "100"],
        &["status", "-o", "json"],
        &["tail", "-o", "json", "--last", "100"],
    ] {
        has_none(daemon.command(command).await.done().as_bytes(), command[0]);
    }
    // Hidden, and yet told: what is redacted is named, and a change of it is one.
    let log = fs::read_to_string(daemon.log()).unwrap();
    assert!(log.contains("harmlessVALUE") && !log.contains("db-password\":"), "only what the rules name is hidden");
    let changed = daemon.entries().iter().find(|entry| entry.name == "planted" && entry.kind == "MODIFIED").unwrap();
    assert_eq!(changed.change.as_ref().unwrap().areas, ["data"], "the change itself is visible");
    assert!(changed.redacted.iter().any(|pointer| pointer == "/data/password"), "{:?}", changed.redacted);
    daemon.consistent().await;
}

/// The test above must be able to fail: the canaries are found where nothing hides them.
#[test]
fn the_canaries_would_be_found() {
    for canary in CANARIES {
        for shift in 0..3 {
            let text = coded(&format!("{}{canary}more", "y".repeat(shift)));
            assert!(forms(canary).iter().any(|form| memmem::find(text.as_bytes(), form).is_some()), "{canary} {shift}");
        }
        let document = Value::String(format!("a {canary} b")).to_string();
        assert!(memmem::find(document.as_bytes(), canary.as_bytes()).is_some());
    }
}
