//! What people write: configurations, filters, selectors, kubeconfigs.

use std::fs;

use decklog::cluster;
use decklog::cluster::{Api, Limits};
use decklog::config::{Config, Files};
use decklog::filter::Filter;

use crate::harness::{fuzz, two};

const TOML: &[&str] = &[
    "[watch]",
    "[[watch]]\n",
    "[[sink]]\n",
    "resources = [\"pods\"]\n",
    "\"\"\"",
    "'",
    "=",
    "\n",
    "[",
    "]",
    "{",
    "}",
    "true",
    "1979-05-27T07:32:00Z",
    "inf",
    "0x7f",
    "\"10GiB\"",
    "\"${CREDENTIALS_DIRECTORY}/x\"",
    "\"${NOTHING}\"",
    "type = \"http\"\n",
    "url = \"http://u:hunter2@x\"\n",
    "headers = { Authorization = \"hunter2\" }\n",
    "[redact]\n",
    "a.b.c = 1\n",
    "#",
];

/// No text is half a configuration, and no message quotes what is meant to be secret.
#[test]
fn config() {
    fuzz("config", 400, TOML, |input| {
        let text = String::from_utf8_lossy(input);
        match Config::parse(&text, "config.toml", &[], Files::Ignore) {
            Ok(loaded) => {
                assert!(!loaded.config.watch.is_empty());
                assert!(loaded.config.watch.iter().all(|watch| !watch.resources.is_empty()));
                // What was read can be written and read again.
                let value = serde_json::to_value(&loaded.config).unwrap();
                assert_eq!(serde_json::from_value::<Config>(value).unwrap(), loaded.config);
            }
            Err(problems) => {
                assert!(!problems.list.is_empty());
                let told = problems.to_string();
                let secret = text.matches("hunter2").count() - text.matches("= \"hunter2\"").count();
                // Where quotes are missing, a secret may be taken for a key: then nobody can know what it is.
                assert!(secret > 0 || !told.contains("hunter2"), "{told}");
                assert!(told.len() < 4096 + text.len() * 80, "{} bytes of text give {}", text.len(), told.len());
            }
        }
    });
}

/// Selectors as kubectl spells them: what is taken can stand in a URL.
#[test]
fn selectors() {
    let words =
        ["=", "==", "!=", ",", "in", "notin", "(", ")", "!", "tier", "a/b", "metadata.name", " ", "-", ".", "\u{e9}"];
    fuzz("selectors", 500, &words, |input| {
        let Ok(text) = std::str::from_utf8(input) else { return };
        let (label, field) = text.split_once('\n').unwrap_or((text, ""));
        let quote = |text: &str| serde_json::to_string(text).unwrap();
        let toml = format!(
            "[[watch]]\nresources = [\"pods\"]\nlabel_selector = {}\nfield_selector = {}\n",
            quote(label),
            quote(field)
        );
        if let Ok(loaded) = Config::parse(&toml, "c", &[], Files::Ignore) {
            let watch = &loaded.config.watch[0];
            assert_eq!((watch.label_selector.as_str(), watch.field_selector.as_str()), (label, field));
            assert!(
                !text.trim_end_matches('\n').contains(|c: char| c.is_control() && c != '\n' && c != '\t' && c != '\r'),
                "{text:?}"
            );
            let balanced = label.matches('(').count() == label.matches(')').count();
            assert!(balanced, "{label:?}");
        }
    });
}

/// Whatever a filter says of whatever entry: an answer or an error, and the error quotes nothing of the entry.
#[test]
fn cel() {
    let words = [
        "object",
        ".spec",
        ".?replicas",
        ".orValue(1)",
        "has(",
        ")",
        "==",
        "!=",
        "&&",
        "||",
        "!",
        "\"x\"",
        "'",
        "type",
        "kind",
        "in",
        "[",
        "]",
        "{",
        "}",
        "matches(",
        ".all(x, ",
        ".map(y, ",
        "size(",
        "1",
        "9223372036854775807",
        "-",
        "/",
        "%",
        "0",
        "duration(\"1h\")",
        "timestamp(",
        "?",
        ":",
        "(",
        "r\"",
        "\\",
        "\u{e9}",
        "object.metadata.name",
    ];
    let entry = br#"{"v":1,"seq":7,"epoch":"e","id":"u.41.MODIFIED","time":"2026-11-21T00:00:00.000000Z","type":"MODIFIED","evidence":"watched","cluster":{"name":"p","uid":"c"},"apiVersion":"apps/v1","kind":"Deployment","resource":"deployments","namespace":"shop","name":"web","uid":"u","resourceVersion":"41","change":{"areas":["spec"],"patch":[],"managers":[]},"object":{"spec":{"replicas":3,"hunter2":"hunter2","list":[1,2.5,"x",null,{"a":1e400}],"deep":{"a":{"b":{"c":[[[]]]}}}}}}"#;
    fuzz("cel", 800, &words, |input| {
        let (text, other) = two(input);
        let Ok(text) = std::str::from_utf8(text) else { return };
        let filter = match Filter::compile(text) {
            Ok(filter) => filter,
            Err(error) => return assert!(error.to_string().len() < 2000 + text.len()),
        };
        for line in [&entry[..], other] {
            if let Err(error) = filter.matches(line) {
                let error = error.to_string();
                assert!(text.contains("hunter2") || !error.contains("hunter2"), "{error}");
            }
        }
    });
}

/// A kubeconfig of somebody else: no program runs, nothing is read without TLS, nothing of it is quoted.
#[test]
fn kubeconfig() {
    let words = [
        "- ",
        ": ",
        "\n",
        "  ",
        "{",
        "}",
        "[",
        "]",
        "&a ",
        "*a",
        "!!binary ",
        "|",
        ">",
        "exec:\n",
        "token: hunter2\n",
        "insecure-skip-tls-verify: true\n",
        "server: https://127.0.0.1:1\n",
        "client-key-data: aHVudGVyMg==\n",
        "name: c\n",
        "command: /bin/false\n",
        "auth-provider: {name: gcp}\n",
        "proxy-url: socks5://u:hunter2@x\n",
        "tls-server-name: \"\"\n",
    ];
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("kubeconfig");
    let settings = cluster::Settings { kubeconfig: Some(path.clone()), ..cluster::Settings::default() };
    fuzz("kubeconfig", 60, &words, |input| {
        fs::write(&path, input).unwrap();
        let limits = Limits { credentials: std::time::Duration::from_secs(30), ..Limits::default() };
        let opened = runtime.block_on(Api::open(&settings, limits));
        let text = String::from_utf8_lossy(input);
        match opened {
            Ok(api) => drop(format!("{api:?} {}", api.name())),
            Err(error) => {
                let told = format!("{error} {error:?}");
                // Names may be quoted, because a person has to find them.
                let named = text.lines().any(|line| {
                    line.contains("hunter2")
                        && ["name", "context", "user", "cluster", "file", "authority"]
                            .iter()
                            .any(|key| line.contains(key))
                });
                assert!(named || !told.contains("hunter2"), "{told}");
            }
        }
    });
}
