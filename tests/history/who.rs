//! Who wrote, and why nobody is named where nobody is.

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::story::{Story, managed, run, run_on_terminal};

/// Forty-six characters: more than a narrow terminal has for a name.
const LONG: &str = "gitops-controller-of-the-platform-team-in-eu-1";

/// A Deployment that a program with a long name creates, kubectl scales to 0 and somebody deletes, and a Pod that is bound.
async fn shop() -> TempDir {
    let mut story = Story::begin().await;
    for source in ["configmaps", "deployments", "replicasets", "pods", "secrets", "events", "new events"] {
        story.list("10:00:01", source, None, &[]).await;
    }
    let fields = |replicas: bool| match replicas {
        true => json!({"f:spec": {"f:paused": {}, "f:replicas": {}}}),
        false => json!({"f:spec": {"f:paused": {}}}),
    };
    let mut cart = json!({"apiVersion": "apps/v1", "kind": "Deployment", "spec": {"replicas": 3, "paused": false},
        "metadata": {"name": "cart", "namespace": "shop", "uid": "u-cart", "creationTimestamp": "2026-11-20T10:01:00Z",
            "managedFields": managed(&[(LONG, "Update", "", "10:01:00", fields(true))])}});
    story.put("10:01:00", "deployments", &cart).await;
    cart["spec"]["replicas"] = 0.into();
    cart["metadata"]["managedFields"] = managed(&[(LONG, "Update", "", "10:01:00", fields(false))]);
    story.put("10:02:00", "deployments", &cart).await;
    cart["spec"]["paused"] = true.into();
    story.put("10:03:00", "deployments", &cart).await;
    let mut pod = json!({"apiVersion": "v1", "kind": "Pod", "spec": {"containers": []},
        "metadata": {"name": "cart-1", "namespace": "shop", "uid": "u-pod", "creationTimestamp": "2026-11-20T10:01:00Z",
            "managedFields": managed(&[("kube-controller-manager", "Update", "", "10:01:00", json!({"f:spec": {"f:containers": {}}}))])}});
    story.put("10:03:01", "pods", &pod).await;
    pod["spec"]["nodeName"] = "worker-1".into();
    story.put("10:03:02", "pods", &pod).await;
    story.delete("10:04:00", "deployments", &cart).await;
    story.end().await
}

/// The entry itself says who created an object, so that every consumer and every sink knows, also without the object; it names
/// nobody of a deletion. A copy of such entries is what `verify` expects.
#[tokio::test(start_paused = true)]
async fn a_creation_names_its_writer_and_a_deletion_nobody() {
    let dir = shop().await;
    let lines = run(dir.path(), &["tail", "--last", "100", "-o", "json"]).out;
    let all: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let (added, others): (Vec<&Value>, Vec<&Value>) = all.iter().partition(|line| line["type"] == "ADDED");
    let names: Vec<&Value> = added.iter().map(|line| &line["managers"]).collect();
    assert_eq!(
        names,
        [
            &json!([{"manager": LONG, "operation": "Update", "time": "2026-11-20T10:01:00Z", "by": "moved"}]),
            &json!([{"manager": "kube-controller-manager", "operation": "Update", "time": "2026-11-20T10:01:00Z", "by": "moved"}]),
        ]
    );
    assert!(others.iter().any(|line| line["type"] == "DELETED"));
    assert!(others.iter().all(|line| line.get("managers").is_none()), "{others:?}");
    let copy = dir.path().join("copy.jsonl");
    std::fs::write(&copy, lines).unwrap();
    let verified = run(dir.path(), &["verify", copy.to_str().unwrap()]);
    assert_eq!(verified.code, 0, "{verified:?}");
}

/// One text for one writer, and one for the reason, whether the terminal is narrow or wide; `show` has the sentence.
#[tokio::test(start_paused = true)]
async fn a_line_says_who_or_why_not_at_every_width() {
    let dir = shop().await;
    let owner = format!("~{LONG}");
    let told = [LONG, "(scale to 0 leaves no owner)", &owner, "(deletion)"];
    for columns in [80, 100, 120, 160, 200] {
        let newest_first = told.iter().rev().copied().collect::<Vec<_>>();
        for (args, told) in [(["tail", "deploy/cart"], &told[..]), (["log", "deploy/cart"], &newest_first)] {
            let mut answer = run_on_terminal(dir.path(), &[args, ["--color", "never"]].concat(), columns).out;
            for who in told {
                let at = answer.find(who).unwrap_or_else(|| panic!("{who} in {columns} columns: {answer}"));
                answer = answer[at + who.len()..].to_owned();
                assert!(answer.starts_with(['\n', ' ', '\r']), "{who} is all in {columns} columns: {answer}");
            }
        }
    }
    let plain = run(dir.path(), &["tail"]).out;
    for who in [&format!("({LONG} Update)"), "(scale to 0 leaves no owner)", "(binding)", "(deletion)"] {
        assert!(plain.contains(who), "{who}: {plain}");
    }
    for (seq, sentence) in [
        ("2", "nobody is named: a scale to 0 takes spec.replicas from its owner in managedFields"),
        ("5", "nobody is named: managedFields do not record requests to pods/binding"),
        ("6", "nobody is named: managedFields do not record DELETE requests"),
    ] {
        let answer = run(dir.path(), &["show", seq]).out;
        assert!(answer.contains(sentence) && answer.contains("audit log has who asked"), "{answer}");
    }
}

/// The manager is the answer of `blame`: it is whole in every width, and so is the reason why there is none.
#[tokio::test(start_paused = true)]
async fn blame_shortens_no_name() {
    let dir = shop().await;
    for columns in [60, 80, 100, 200] {
        let args = ["blame", "deploy/cart", "--at", "3", "--color", "never"];
        let answer = run_on_terminal(dir.path(), &args, columns).out;
        assert!(answer.contains(&format!("~{LONG}")) && answer.contains("(scale to 0 leaves no owner)"), "{answer}");
        assert!(answer.contains("replicas: 0") && answer.contains("paused: true"), "{answer}");
    }
    let json = run(dir.path(), &["blame", "deploy/cart", ".spec.replicas", "--at", "3", "-o", "json"]).out;
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["fields"][0]["unnamed"], "scale to 0 leaves no owner");
    assert_eq!(json["fields"][0]["managers"], json!([]));
}

/// An object differs by those who wrote one of the entries between the moments, also where another wrote the last one.
#[tokio::test(start_paused = true)]
async fn a_difference_is_chosen_by_who_wrote_in_between() {
    let dir = shop().await;
    let differs = |args: &[&str]| -> Vec<String> {
        let answer = run(dir.path(), &[&["diff", "--from", "1", "-o", "json"], args].concat());
        let answer: Value = serde_json::from_str(&answer.out).unwrap();
        answer["objects"].as_array().unwrap().iter().map(|one| one["name"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(differs(&["--to", "5"]), ["cart", "cart-1"]);
    assert_eq!(differs(&["--to", "5", "--by", "gitops*"]), ["cart"]);
    assert_eq!(differs(&["--to", "5", "--by", "kube-controller-manager"]), ["cart-1"]);
    assert_eq!(differs(&["--to", "2", "--by", "gitops*"]), [""; 0], "only the scale to 0 is between them");
    let answer = run(dir.path(), &["diff", "--from", "1", "--by", "kube-controller-manage"]);
    assert!(answer.err.contains("did you mean kube-controller-manager"), "{answer:?}");
}
