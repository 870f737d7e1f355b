//! What people write: configurations, filters, selectors, kubeconfigs.

use std::fs;

use decklog::app::config::{Config, Files};
use decklog::core::filter::{Filter, MOST_BYTES, MOST_STEPS};
use decklog::watch::cluster;
use decklog::watch::cluster::{Api, Limits};

use fastrand::Rng;

use crate::bounds::bounded;
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
        ".map(x, x + x + x)",
        ".map(x, [x, x, x])",
        ".filter(x, x != null)",
        ".exists_one(x, x == 1)",
        " + object",
        "optional.of(",
        "{\"a\": object, \"b\": x}",
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
            let (answer, cost) = filter.measured(line);
            assert!(cost.steps <= MOST_STEPS && cost.bytes <= MOST_BYTES, "{cost:?}");
            if let Err(error) = answer {
                let error = error.to_string();
                assert!(text.contains("hunter2") || !error.contains("hunter2"), "{error}");
            }
        }
    });
}

/// Filters that loop over a large object and put its parts together, as nobody would write them: each has an answer, or an
/// error, for a bounded number of steps and of bytes, and in a bounded time.
#[test]
fn cel_that_grows() {
    let list = |item: &dyn Fn(usize) -> String| (0..3_000).map(item).collect::<Vec<_>>().join(",");
    let entry = format!(
        "{{\"type\":\"ADDED\",\"name\":\"web\",\"object\":{{\"numbers\":[{}],\"texts\":[{}],\"objects\":[{}],\"long\":\"{}\"}}}}",
        list(&|n| n.to_string()),
        list(&|n| format!("\"t{n}{}\"", "y".repeat(60))),
        list(&|n| format!("{{\"name\":\"n{n}\",\"labels\":{{\"a\":\"b\"}}}}")),
        "ab".repeat(200_000)
    );
    let number =
        |name: &str, else_: u64| std::env::var(name).ok().map_or(else_, |text| text.parse().expect("a number"));
    let (seed, runs) = (number("DECKLOG_FUZZ_SEED", 1), number("DECKLOG_FUZZ_RUNS", 60));
    let (mut compiled, mut spent) = (0, 0);
    for run in 0..runs {
        let mut dice = Rng::with_seed(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(run));
        let mut text = Growing { dice: &mut dice, loops: 0, left: 40 }.condition();
        text.truncate(4096);
        bounded(&format!("seed {seed}, run {run}: {text}"), || {
            let Ok(filter) = Filter::compile(&text) else { return };
            let (answer, cost) = filter.measured(entry.as_bytes());
            assert!(cost.steps <= MOST_STEPS && cost.bytes <= MOST_BYTES, "{text}: {cost:?}");
            compiled += 1;
            let beyond = answer.is_err_and(|error| error.to_string().contains(", so it must "));
            spent += usize::from(beyond);
        });
    }
    println!("{compiled} of {runs} filters compile, and {spent} take too much");
    assert!(compiled > runs / 4, "{compiled} of {runs}");
}

/// Makes filters that loop and put values together.
struct Growing<'d> {
    dice: &'d mut Rng,
    loops: usize,
    /// Of the parts that it may still have.
    left: usize,
}

impl Growing<'_> {
    fn pick(&mut self, sorts: usize) -> usize {
        self.left = self.left.saturating_sub(1);
        if self.left == 0 { 0 } else { self.dice.usize(..sorts) }
    }

    /// A loop over a list, whose body is made by `body`.
    fn looped(&mut self, body: impl FnOnce(&mut Self) -> String, name: &str) -> String {
        let list = self.list();
        if self.loops == 2 {
            return format!("{list}.size() > 1");
        }
        self.loops += 1;
        let body = body(self);
        self.loops -= 1;
        format!("{list}.{name}(x, {body})")
    }

    fn condition(&mut self) -> String {
        match self.pick(9) {
            0 => "name == 'web'".to_owned(),
            1 => self.looped(Self::condition, "exists"),
            2 => self.looped(Self::condition, "all"),
            3 => self.looped(Self::condition, "exists_one"),
            4 => format!("{} == {}", self.value(), self.value()),
            5 => format!("{} in {}", self.value(), self.list()),
            6 => format!("{}.matches({})", self.text(), self.text()),
            7 => format!("({} && {})", self.condition(), self.condition()),
            _ => format!("({} || {}.size() > 2)", self.condition(), self.list()),
        }
    }

    fn list(&mut self) -> String {
        match self.pick(10) {
            0 => "object.numbers".to_owned(),
            1 => "object.objects".to_owned(),
            2 => "object.texts".to_owned(),
            3 => "object.?texts.orValue([])".to_owned(),
            4 | 5 => self.looped(Self::value, "map"),
            6 => self.looped(Self::condition, "filter"),
            7 => format!("({} + {})", self.list(), self.list()),
            8 => format!("[{}, {}, {}]", self.value(), self.value(), self.value()),
            _ => format!("[{}]", self.list()),
        }
    }

    fn text(&mut self) -> String {
        match self.pick(5) {
            0 => "name".to_owned(),
            1 => "object.long".to_owned(),
            2 => "'b[ab]{30}c'".to_owned(),
            3 => format!("({} + {})", self.text(), self.text()),
            _ => format!("string({})", if self.loops > 0 { "x" } else { "seq" }),
        }
    }

    fn value(&mut self) -> String {
        let x = if self.loops > 0 { "x" } else { "object" };
        match self.pick(9) {
            0 | 1 => x.to_owned(),
            2 => format!("({x} + {x})"),
            3 => self.list(),
            4 => self.text(),
            5 => format!("{{'a': {}, 'b': {}}}", self.value(), self.value()),
            6 => format!("optional.of({})", self.value()),
            7 => format!("({} + {})", self.value(), self.value()),
            _ => format!("[{x}, {}]", self.value()),
        }
    }
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
