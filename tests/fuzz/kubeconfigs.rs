//! Valid kubeconfigs with one or two values replaced by odd ones: never a panic, and one bounded sentence without a secret.

use std::fs;
use std::path::Path;

use decklog::watch::cluster::{Api, Limits, Settings};
use fastrand::Rng;
use serde_json::{Value, json};
use tokio::runtime::Runtime;

/// The text in every value that may be a credential.
const SECRET: &str = "hunter2";

/// A kubeconfig with every key. The secrets stand where no name does.
fn valid() -> Value {
    json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "c", "preferences": {"colors": true},
        "extensions": [{"name": "e", "extension": {"a": 1}}],
        "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u", "namespace": "n", "extensions": []}}],
        "clusters": [{"name": "k", "cluster": {
            "server": "http://127.0.0.1:1/hunter2", "tls-server-name": "x", "insecure-skip-tls-verify": false,
            "certificate-authority-data": "aHVudGVyMg==", "proxy-url": "http://u:hunter2@127.0.0.1:1",
            "disable-compression": true,
            "extensions": [{"name": "client.authentication.k8s.io/exec", "extension": {"secret": SECRET}}],
        }}],
        "users": [{"name": "u", "user": {
            "client-certificate-data": "aHVudGVyMg==", "client-key-data": "aHVudGVyMg==", "token": SECRET,
            "as": "jane", "as-uid": "1", "as-groups": ["g"], "as-user-extra": {"k": ["v"]},
            "exec": {
                "apiVersion": "client.authentication.k8s.io/v1", "command": "/bin/false", "args": [SECRET],
                "env": [{"name": "A", "value": SECRET}], "installHint": "h", "interactiveMode": "Never",
                "provideClusterInfo": true,
            },
        }}, {"name": "v", "user": {
            "username": "a", "password": SECRET, "auth-provider": {"name": "oidc", "config": {"id-token": SECRET}},
        }}],
    })
}

/// Odd values, each in place of any other.
fn odd() -> Vec<Value> {
    let mut deep = json!("x");
    for _ in 0..400 {
        deep = json!([deep]);
    }
    vec![
        Value::Null,
        json!(true),
        json!(-1),
        json!(1e300),
        json!(u64::MAX),
        json!(""),
        json!(" \n"),
        json!("x"),
        json!("\u{0}\u{1b}[31m\u{2028}"),
        json!("https://[::1"),
        json!("http://a:b@127.0.0.1:1/%zz"),
        json!("/dev/zero"),
        json!("/"),
        json!("aHVudGVyMg"),
        json!("x".repeat(100_000)),
        json!([]),
        json!({}),
        json!([null]),
        json!({"": null, "name": [1]}),
        deep,
    ]
}

/// The JSON pointers of all values.
fn places(value: &Value, at: &str, into: &mut Vec<String>) {
    into.push(at.to_owned());
    match value {
        Value::Object(map) => {
            map.iter().for_each(|(key, value)| places(value, &format!("{at}/{}", key.replace('/', "~1")), into));
        }
        Value::Array(list) => {
            list.iter().enumerate().for_each(|(index, value)| places(value, &format!("{at}/{index}"), into));
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn check(runtime: &Runtime, path: &Path, text: &[u8], what: &str) {
    fs::write(path, text).unwrap();
    let settings = Settings {
        kubeconfig: Some(path.to_owned()),
        allow_exec: Some(false),
        allow_insecure_tls: true,
        ..Settings::default()
    };
    if let Err(error) = runtime.block_on(Api::open(&settings, Limits::default())) {
        let (sentence, debug) = (error.to_string(), format!("{error:?}"));
        assert!(!sentence.contains(SECRET) && !debug.contains(SECRET), "{what}: {sentence}");
        assert!(!sentence.contains(|c: char| c.is_control()) && sentence.len() < 4096, "{what}: {sentence}");
        assert!(!sentence.contains("takes too long"), "{what}: {sentence}");
        assert!(!sentence.contains("broke off"), "{what}: the thread panicked");
    }
}

fn scene() -> (Runtime, tempfile::TempDir) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    (runtime, tempfile::tempdir().unwrap())
}

/// Each odd value in each place.
#[test]
fn one_odd_value_is_one_sentence() {
    let (runtime, dir) = scene();
    let mut all = Vec::new();
    places(&valid(), "", &mut all);
    for place in &all {
        for odd in odd() {
            let mut config = valid();
            // The other user is the one whose credentials count.
            let user = if place.starts_with("/users/1") { "v" } else { "u" };
            config["contexts"][0]["context"]["user"] = json!(user);
            if !place.ends_with("proxy-url") {
                // A client that goes through a proxy reads the roots of the system, which takes most of the time.
                config["clusters"][0]["cluster"].as_object_mut().unwrap().remove("proxy-url");
            }
            *config.pointer_mut(place).unwrap() = odd;
            check(&runtime, &dir.path().join("config"), config.to_string().as_bytes(), place);
        }
    }
}

/// Two odd values, keys that are missing, and entries twice.
#[test]
fn several_odd_values_are_one_sentence() {
    let (runtime, dir) = scene();
    let number = |name: &str, otherwise| std::env::var(name).map_or(otherwise, |text| text.parse().unwrap());
    let (seed, runs) = (number("DECKLOG_FUZZ_SEED", 1), number("DECKLOG_FUZZ_RUNS", 1000));
    let odd = odd();
    for run in 0..runs {
        let mut dice = Rng::with_seed(seed ^ (run << 20));
        let mut config = valid();
        for _ in 0..2 {
            let mut all = Vec::new();
            places(&config, "", &mut all);
            let place = dice.choice(&all).unwrap().clone();
            let Some(value) = config.pointer_mut(&place) else { continue };
            match (dice.u8(..4), &mut *value) {
                (0, Value::Object(map)) => drop(map.keys().next().cloned().and_then(|key| map.remove(&key))),
                (1, Value::Array(list)) => list.extend(list.clone()),
                (_, value) => dice.choice(&odd).unwrap().clone_into(value),
            }
        }
        check(&runtime, &dir.path().join("config"), config.to_string().as_bytes(), &format!("seed {seed}, run {run}"));
    }
}

/// Aliases, depth and size that would take all memory or time are refused by a sentence.
#[test]
fn no_kubeconfig_takes_memory_or_time_without_bound() {
    let (runtime, dir) = scene();
    let path = dir.path().join("config");
    let mut laughs = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
    for level in 1..30 {
        let part = format!("*a{}, ", level - 1).repeat(10);
        laughs.push_str(&format!("a{level}: &a{level} [{}]\n", part.trim_end_matches(", ")));
    }
    let wide = format!("a: &a [{}]\nb: [{}]\n", "x, ".repeat(50_000), "*a, ".repeat(50_000));
    for (what, text, says) in [
        ("aliases of aliases", laughs, "it is no kubeconfig"),
        ("a wide list many times", wide, "it is no kubeconfig"),
        ("flow depth", "[".repeat(1_000_000), "it is no kubeconfig"),
        ("map depth", "{a: ".repeat(10_000), "it is no kubeconfig"),
        ("closed depth", "[".repeat(10_000) + &"]".repeat(10_000), "it is no kubeconfig"),
        ("block depth", "- ".repeat(10_000), "it is no kubeconfig"),
        ("keys that are maps", "? ".repeat(10_000), "it is no kubeconfig"),
        ("size", "# x\n".repeat(3 << 20), "larger than 8 MiB"),
        ("many values", format!("x: [{}]", "x,".repeat(2_000_000)), "more than 1000000 values"),
        ("many entries", format!("users: [{}]", "{name: x}, ".repeat(100_000)), "its users[1] has the name"),
    ] {
        check(&runtime, &path, text.as_bytes(), what);
        let settings = Settings { kubeconfig: Some(path.clone()), ..Settings::default() };
        let error = runtime.block_on(Api::open(&settings, Limits::default())).unwrap_err().to_string();
        assert!(error.contains(says), "{what}: {error}");
    }
}
