use serde_json::{Value, json};

use super::*;

fn drift(name: &str, fields: &Value, began: &Value, more: &Value) -> Value {
    let mut drift = json!({"apiVersion": "apps/v1", "kind": "Deployment", "resource": "deployments", "namespace": "shop", "name": name, "uid": "u",
        "tool": "argocd", "drivenBy": [{"kind": "Application", "namespace": "argocd", "name": "shop"}], "fields": fields, "began": began});
    for (key, value) in more.as_object().unwrap() {
        drift[key] = value.clone();
    }
    drift
}

fn write(time: &str, known: &str, writer: &str) -> Value {
    let time = format!("2026-11-20T{time}Z");
    let writers: Vec<Value> = Some(writer)
        .filter(|name| !name.is_empty())
        .map(|name| json!({"manager": name, "operation": "Update"}))
        .into_iter()
        .collect();
    json!({"seq": 1, "time": time, "known": known, "writers": writers})
}

fn actor(mut write: Value, user: &str) -> Value {
    write["actor"] = json!({"user": user, "verb": "patch", "certainty": "exact"});
    write
}

fn replicas(got: u64) -> Value {
    json!([{"path": "/spec/replicas", "name": "replicas", "expected": 3, "got": got}])
}

/// Every end, every kind of time and of writer.
fn answer() -> Drifted {
    let run = json!({"certainty": "known", "candidates": [{"tool": "argocd", "kind": "Application", "namespace": "argocd", "name": "shop",
        "run": {"revision": "3f2c9ab0d1e2f3a4b5c6d7e8f9a0b1c2d3e4f5a6", "from": "2026-11-20T14:02:22Z", "seq": 5}}], "ends": {"reason": "commit", "text": ""}});
    let ended = |how: &str, write: Value| json!({"how": how, "write": write});
    let image = json!([
        {"path": "/spec/template/spec/containers/0/image", "name": "image", "expected": "registry.example/shop/cart:1.2", "got": "registry.example/shop/cart:debug"},
        {"path": "/metadata/labels/team", "name": "label team", "expected": "shop", "gone": true},
        {"path": "/data/password", "name": "data.password", "redacted": true, "expected": "***", "got": "***"},
    ]);
    let mut restored = ended("restored", write("14:02:23", "at", "argocd-controller"));
    restored["provenance"] = run;
    let mut gap = write("15:20:00", "gap", "lens");
    gap["earliest"] = "2026-11-20T15:10:00Z".into();
    let mut nobody = write("16:00:00", "at", "");
    nobody["unnamed"] = "scale to 0 leaves no owner".into();
    let flux = json!({"tool": "kustomization", "drivenBy": [{"kind": "Kustomization", "namespace": "flux-system", "name": "apps"}],
        "apiVersion": "example.com/v1", "kind": "Thing", "resource": "things", "millis": 7_380_000});
    let drifts = vec![
        drift(
            "cart",
            &replicas(0),
            &actor(write("14:02:11", "at", "kubectl"), "alice@example.com"),
            &json!({"ended": restored, "millis": 12_000}),
        ),
        drift("cart", &image, &write("15:10:40", "at", "kubectl-edit"), &json!({"millis": 7_380_000})),
        drift(
            "cart",
            &replicas(7),
            &gap,
            &json!({"ended": ended("adopted", write("15:30:00", "at", "argocd-controller")), "millis": 1_200_000, "gaps": 1}),
        ),
        drift(
            "web",
            &replicas(9),
            &write("09:00:00", "earlier", "lens"),
            &json!({"ended": ended("overwritten", nobody.clone()), "millis": 900}),
        ),
        drift(
            "web",
            &replicas(0),
            &nobody,
            &json!({"ended": ended("released", write("16:01:00", "at", "argocd-controller")), "millis": 60_000}),
        ),
        drift(
            "web",
            &json!([]),
            &actor(write("17:00:00", "at", ""), "bob"),
            &json!({"ended": ended("restored", write("17:00:06", "at", "argocd-controller")), "millis": 6_000}),
        ),
        drift("one", &replicas(5), &write("18:00:00", "at", "kubectl-edit"), &flux),
    ];
    let drifted = json!({"drifts": drifts, "leftOut": {"autoscaled": 0, "ignored": 0, "unknown": 0, "dropped": 0}, "gaps": 1, "uncovered": []});
    serde_json::from_str(&drifted.to_string()).unwrap()
}

#[test]
fn drifts_stand_below_their_objects() {
    let printed = lines(&answer(), TerminalStyle::default()).join("\n");
    insta::assert_snapshot!("lines", printed);
    let narrow = TerminalStyle { color: false, terminal: true, width: Some(80) };
    let narrow = lines(&answer(), narrow).join("\n");
    assert!(narrow.lines().all(|line| line.chars().count() <= 80), "{narrow}");
    insta::assert_snapshot!("80_columns", narrow);
}
