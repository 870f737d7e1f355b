//! The elasticsearch sink against OpenSearch.

pub(crate) use decklog_testkit::servers::elasticsearch as start;
use std::fs;
use std::path::Path;
use std::process::Command;

use bytes::Bytes;
use decklog::core::model::{Cluster, EntryType, Evidence, Gap, ResourceVersion, Seq, Why};
use decklog::core::wire::{EntryBuilder, render};
use decklog::sim::objects;
use decklog::sink::registry::SinkKind;
use decklog::sink::{Failure, Item, Sink, SinkError};
use reqwest::Method;
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::server::free_port;
use crate::support::{Daemon, until};
use crate::trial::{self, Far, Promise, Trial};
use start::OpenSearch;

/// What these tests do with the server.
trait OpenSearchTests: Sized {
    async fn must(&self, method: Method, path: &str, body: Option<Value>) -> Value;
    async fn documents(&self, index: &str) -> Result<Vec<Value>, String>;
}

impl OpenSearchTests for OpenSearch {
    /// As its operator asks.
    async fn must(&self, method: Method, path: &str, body: Option<Value>) -> Value {
        let (status, answer) = self.ask(method, path, body).await.unwrap();
        assert!((200..300).contains(&status), "{path}: {status} {answer}");
        answer
    }

    /// Every document of an index, in the order in which they were made.
    async fn documents(&self, index: &str) -> Result<Vec<Value>, String> {
        let refreshed = self.ask(Method::POST, &format!("{index}/_refresh"), None).await?;
        let query = json!({ "size": 10_000, "sort": ["_seq_no"], "query": { "match_all": {} } });
        let (status, found) = self.ask(Method::POST, &format!("{index}/_search"), Some(query)).await?;
        if status != 200 || refreshed.0 != 200 || found["_shards"]["failed"] != 0 {
            return Err(format!("{refreshed:?} {status} {found}"));
        }
        Ok(found["hits"]["hits"].as_array().unwrap().clone())
    }
}

impl Far for OpenSearch {
    /// A repeat changes nothing, so that who reads sees each entry once.
    fn promise(&self) -> Promise {
        Promise::ExactlyOnce
    }

    fn port(&self) -> u16 {
        self.server.port()
    }

    fn sink(&self, port: u16, run: &str, _dir: &Path) -> String {
        format!("type = \"elasticsearch\"\nurl = \"http://127.0.0.1:{port}\"\nindex = \"log-{run}-{{cluster}}\"\n")
    }

    async fn prepare(&self, daemon: &Daemon, _run: &str) {
        let made = daemon.command(&["sink", "init", "far"]).await;
        assert_eq!(made.code, 0, "{made:?}");
    }

    fn kill(&mut self) {
        self.server.kill();
    }

    async fn restart(&mut self) {
        self.server.restart().await;
    }

    async fn consumed(&self, run: &str) -> Result<Vec<String>, String> {
        let documents = self.documents(&format!("log-{run}-test")).await?;
        Ok(documents.iter().map(|hit| hit["_source"]["entry"].as_str().unwrap().to_owned()).collect())
    }
}

#[tokio::test]
async fn opensearch_undisturbed() {
    let mut search = OpenSearch::start(&[]).await;
    trial::undisturbed(&mut search).await;
    // The template is what the index was made with, and what one searches by is found.
    let mapping = search.must(Method::GET, "log-undisturbed-test/_mapping", None).await;
    let mapping = &mapping["log-undisturbed-test"]["mappings"];
    assert_eq!((&mapping["dynamic"], &mapping["properties"]["seq"]["type"]), (&json!("false"), &json!("long")));
    for query in [
        json!({ "term": { "change.paths": "/data/value" } }),
        json!({ "term": { "kind": "ConfigMap" } }),
        json!({ "range": { "@timestamp": { "gte": "now-1d" } } }),
        json!({ "match_phrase": { "entry": "kube root" } }),
        json!({ "match_phrase": { "entry": "value" } }),
    ] {
        let found = search.must(Method::POST, "log-undisturbed-test/_count", Some(json!({ "query": query }))).await;
        let none = query["match_phrase"]["entry"] == "kube root";
        assert_eq!(found["count"].as_u64().unwrap() == 0, none, "{query}: {found}");
    }
}

#[tokio::test]
async fn opensearch_server_killed() {
    trial::server_killed(&mut OpenSearch::start(&[]).await).await;
}

#[tokio::test]
async fn opensearch_answers_cut() {
    trial::answers_cut(&mut OpenSearch::start(&[]).await).await;
}

#[tokio::test]
async fn opensearch_daemon_killed() {
    trial::daemon_killed(&mut OpenSearch::start(&[]).await).await;
}

#[tokio::test]
async fn opensearch_killed_at_every_exchange() {
    trial::killed_at_every_exchange(&mut OpenSearch::start(&[]).await).await;
}

/// What the server lost with a restore is there again after a replay, and nothing is there twice.
#[tokio::test]
async fn opensearch_restored_to_an_earlier_state() {
    let mut search = OpenSearch::start(&[]).await;
    let (node, backup) = (search.dir.path().join("node"), search.dir.path().join("backup"));
    let mut trial = Trial::new(&mut search, "restored").await;
    trial.daemon.start();
    trial.daemon.ready().await;
    trial.write(20);
    trial.caught_up().await;
    trial.far.server.stop().await;
    copy(&node, &backup);
    trial.far.restart().await;
    trial.write(20);
    trial.caught_up().await;
    let all = trial.daemon.lines();
    trial.far.kill();
    fs::remove_dir_all(&node).unwrap();
    copy(&backup, &node);
    trial.far.restart().await;
    trial.far.is_up().await;
    let left = until("a consumer to read", async || trial.far.consumed("restored").await).await.len();
    assert!(left < all, "{left} of {all} are left");
    trial.daemon.command(&["replay", "--sink", "far", "--from", "1"]).await.done();
    trial.judged().await;
}

fn copy(from: &Path, to: &Path) {
    let copied = Command::new("cp").arg("-a").args([from, to]).status().unwrap();
    assert!(copied.success(), "{copied}");
}

/// The index is not ours to make where its operator forbids it; an entry that it cannot take stops the sink.
#[tokio::test]
async fn opensearch_without_the_index_and_with_one_that_does_not_fit() {
    let mut search = OpenSearch::start(&["action.auto_create_index=false"]).await;
    let mut trial = Trial::new(&mut search, "missing").await;
    trial.daemon.start();
    trial.daemon.ready().await;
    trial.write(5);
    let text = trial.daemon.waits_for_state("sinks", "far", "halted").await;
    assert!(text.contains("index_not_found_exception") && text.contains("make the index"), "{text}");
    // One whose mapping an object does not fit.
    let mapping = json!({ "mappings": { "properties": { "name": { "type": "integer" } } } });
    trial.far.must(Method::PUT, "log-missing-test", Some(mapping)).await;
    trial.daemon.signal(Signal::HUP);
    let refused = |text: String| text.contains("mapper_parsing_exception").then_some(()).ok_or(text);
    until("the refusal", async || refused(trial.daemon.status().await.to_string())).await;
    // And one that fits, as the template says.
    trial.far.must(Method::DELETE, "log-missing-test", None).await;
    trial.far.must(Method::PUT, "log-missing-test", None).await;
    trial.daemon.signal(Signal::HUP);
    trial.judged().await;
}

/// An entry that is larger than the server takes is dead-lettered, and the others go on.
#[tokio::test]
async fn opensearch_and_an_entry_that_is_too_large() {
    let mut search = OpenSearch::start(&["http.max_content_length=200kb"]).await;
    let mut trial = Trial::new(&mut search, "large").await;
    let rest = trial.far.sink(trial.proxy.port(), "large", Path::new(""));
    let rest = format!("[[sink]]\nname = \"far\"\non_refused = \"dead_letter\"\n{rest}\n");
    trial.daemon.configure(&trial.daemon.config("resources = [\"configmaps\"]", &rest));
    trial.daemon.start();
    trial.daemon.ready().await;
    trial.write(3);
    trial.sim.create("configmaps", objects::config_map("default", "large", &"x".repeat(300_000))).unwrap();
    trial.write(40);
    trial.caught_up().await;
    trial.daemon.stop().await;
    let log = fs::read_to_string(trial.daemon.log()).unwrap();
    let taken: Vec<&str> = log.lines().filter(|line| line.len() < 300_000).collect();
    assert_eq!(log.lines().count(), taken.len() + 1);
    let came = trial.far.consumed("large").await.unwrap();
    trial::judge(Promise::ExactlyOnce, 0, &taken, &came);
    let status = trial.daemon.command(&["status", "-o", "json"]).await.done();
    assert!(status.contains("413 Payload Too Large") || status.contains("413 Request Entity Too Large"), "{status}");
}

fn open(port: u16, index: &str) -> Box<dyn Sink> {
    let url = format!("http://127.0.0.1:{port}");
    let kind = json!({ "type": "elasticsearch", "url": url, "index": index });
    serde_json::from_value::<SinkKind>(kind).unwrap().open().unwrap()
}

/// Entries with whatever JSON can say; `kind` is one that a server may trip over.
fn odd(epoch: &str) -> Vec<Item> {
    let deep = format!("{}1{}", "{\"a\":".repeat(900), "}".repeat(900));
    let long = "x".repeat(40_000);
    let pointers = [format!("/data/{long}")];
    let change = format!(
        r#"{{"areas":["spec"],"patch":[{{"op":"add","path":"/spec/{long}","value":1}},{{"op":"add","path":"/a\u0000","value":1e400}}],"managers":[{{"manager":"{long}"}}]}}"#
    );
    let number = format!(r#"{{"n":{},"m":1e400,"k":-0.0,"j":1e-400}}"#, "9".repeat(5000));
    let objects = [
        deep.as_str(),
        number.as_str(),
        r#"{"spec":{"x":1}}"#,
        r#"{"spec":{"x":{"y":"2026-01-01"}}}"#,
        r#"{"spec":{"x":["a",{"b":1},null]}}"#,
        r#"{"spec":"text","a.b":{"c":1},"a":{"b.c":2},"":1,".":2," ":3}"#,
        r#"{"a\u0000b":"\ud800","a":1,"a":2,"s":"\u0000 é 🦀"}"#,
    ];
    let cluster = Cluster { name: "Prod".into(), uid: "c".into() };
    let gap = Gap {
        why: Why::Expired,
        from: Some(ResourceVersion::new("5")),
        to: Some(ResourceVersion::new("9")),
        recovered: 0,
    };
    let mut lines: Vec<Bytes> = Vec::new();
    let draft = |seq: usize| EntryBuilder {
        seq: Seq(seq as u64),
        epoch,
        time: "2026-11-21T10:15:00.123456Z",
        happened: None,
        happened_between: None,
        op: EntryType::Modified,
        evidence: Some(Evidence::Watched),
        cluster: &cluster,
        api_version: "example.com/v1",
        kind: "Thing",
        resource: "things",
        namespace: "shop",
        name: "thing",
        uid: "u",
        version: "1",
        managers: None,
        change: None,
        object: None,
        gap: None,
        actor: None,
        redacted: &[],
    };
    for (at, object) in objects.iter().enumerate() {
        let version = at.to_string();
        let draft = EntryBuilder {
            version: &version,
            change: Some(&change),
            object: Some(object.as_bytes()),
            redacted: &pointers,
            ..draft(at + 1)
        };
        lines.push(render(&draft).line.into());
    }
    for name in [long.as_str(), "gap"] {
        let since = Some("2026-11-20T00:00:00Z");
        let draft = EntryBuilder {
            op: EntryType::Gap,
            name,
            gap: Some((&gap, if name == "gap" { since } else { Some("never") })),
            ..draft(lines.len() + 1)
        };
        lines.push(render(&draft).line.into());
    }
    let item = |(at, line): (usize, Bytes)| Item::new(Seq(at as u64 + 1), EntryType::Modified, line);
    lines.into_iter().enumerate().map(item).collect()
}

/// No entry is refused for what it holds, by an index that was made as we ask for or by one that made itself.
#[tokio::test]
async fn opensearch_takes_every_entry() {
    let search = OpenSearch::start(&[]).await;
    for (index, with_template) in [("ours", true), ("theirs", false)] {
        let mut sink = open(search.server.port(), index);
        let error = sink.check().await.unwrap_err().to_string();
        assert!(error.contains(&format!("has no index template {index}; run `decklog sink init NAME`")), "{error}");
        if with_template {
            sink.provision().await.unwrap();
            sink.check().await.unwrap();
        }
        let mut told = Vec::new();
        // A journal that was made anew tells the same changes in entries of its own; and everything once more: by replay, or
        // after an answer that was lost.
        for epoch in ["e1", "e2"] {
            let batch = odd(epoch);
            sink.deliver(&batch).await.unwrap();
            sink.enter_replay();
            sink.deliver(&batch).await.unwrap();
            told.extend(batch.into_iter().map(|item| String::from_utf8(item.line.to_vec()).unwrap()));
        }
        let mut hits = search.documents(index).await.unwrap();
        hits.sort_by_key(|hit| (hit["_source"]["epoch"].to_string(), hit["_source"]["seq"].as_u64()));
        let came: Vec<&str> = hits.iter().map(|hit| hit["_source"]["entry"].as_str().unwrap()).collect();
        assert_eq!(came.len(), told.len());
        assert!(came == told, "byte for byte");
        sink.check().await.unwrap();
    }
    // A full disk blocks an index for a while.
    let mut sink = open(search.server.port(), "ours");
    let block = |on: Option<bool>| json!({ "index.blocks.read_only_allow_delete": on });
    search.must(Method::PUT, "ours/_settings", Some(block(Some(true)))).await;
    let error = sink.deliver(&odd("e0")).await.unwrap_err().error;
    assert!(matches!(&error, SinkError::Retry { text, .. } if text.contains("or lift the block")), "{error}");
    search.must(Method::PUT, "ours/_settings", Some(block(None))).await;
    sink.deliver(&odd("e0")).await.unwrap();
    // A data stream takes what is made anew and nothing else.
    let template = json!({ "index_patterns": ["stream"], "data_stream": {}, "priority": 300 });
    search.must(Method::PUT, "_index_template/stream", Some(template)).await;
    let mut stream = open(search.server.port(), "stream");
    for _ in 0..2 {
        stream.deliver(&odd("e1")).await.unwrap();
    }
    assert_eq!(search.documents("stream").await.unwrap().len(), odd("e1").len());
    stream.check().await.unwrap();
    // No document is made under a name that the server has no room for, and those before it are there.
    let mut batch = odd("e3");
    let line = String::from_utf8(batch[3].line.to_vec()).unwrap();
    batch[3].line = line.replace("u.3.MODIFIED", &"u".repeat(600)).into();
    let Failure { taken, error } = sink.deliver(&batch).await.unwrap_err();
    assert!(taken == 3 && matches!(&error, SinkError::Refused { text } if text.contains("400")), "{taken} {error}");
    let nobody = open(free_port(), "ours").check().await.unwrap_err().to_string();
    assert!(nobody.starts_with("cannot connect to http://127.0.0.1:"), "{nobody}");
}
