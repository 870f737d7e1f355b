//! What is sent and what answers mean, through a wire of our own. What a real server does is in `tests/sinks`.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::FutureExt;
use reqwest::header::{AUTHORIZATION, HeaderMap};
use serde_json::Value;

use super::*;
use crate::core::model::{Cluster as Where, EntryType, Gap, ResourceVersion, Seq, Why};
use crate::core::wire::{EntryBuilder, render};
use crate::sink::CREDENTIALS_WAIT;
use crate::sink::tests::item;

/// A request that was made.
#[derive(Clone, Debug)]
struct Seen {
    what: String,
    headers: HeaderMap,
    body: Bytes,
}

impl Seen {
    /// The seqs of its documents.
    fn seqs(&self) -> Vec<u64> {
        self.lines().iter().skip(1).step_by(2).map(|document| document["seq"].as_u64().unwrap()).collect()
    }

    fn lines(&self) -> Vec<Value> {
        let lines = self.body.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
        lines.map(|line| serde_json::from_slice(line).unwrap()).collect()
    }
}

fn config() -> Settings {
    serde_json::from_value(json!({ "url": "http://127.0.0.1:1/es", "compress": "none" })).unwrap()
}

/// A sink whose requests are answered by `script`, which gets the number of the request, and those requests.
fn sink(
    config: &Settings,
    script: impl Fn(usize, &Seen) -> (u16, String) + Send + Sync + 'static,
) -> (ElasticsearchSink, Arc<Mutex<Vec<Seen>>>) {
    let mut sink = ElasticsearchSink::new(config).unwrap();
    let seen: Arc<Mutex<Vec<Seen>>> = Arc::default();
    let all = Arc::clone(&seen);
    sink.link.wire = Some(Arc::new(move |request: reqwest::Request| {
        let url = request.url();
        let query = url.query().map(|query| format!("?{query}")).unwrap_or_default();
        let body = request.body().and_then(|body| body.as_bytes()).unwrap_or_default();
        let seen = Seen {
            what: format!("{} {}{query}", request.method(), url.path()),
            headers: request.headers().clone(),
            body: Bytes::copy_from_slice(body),
        };
        let mut all = all.lock().unwrap();
        let (status, text) = script(all.len(), &seen);
        all.push(seen);
        let response = http::Response::builder().status(status).header("retry-after", "3").body(text).unwrap();
        std::future::ready(Ok(reqwest::Response::from(response))).boxed()
    }));
    (sink, seen)
}

/// What a bulk request is answered with: for each document its status, and the type and reason of an error.
fn bulk(items: &[(u16, &str, &str)]) -> String {
    let item = |(status, kind, reason): &(u16, &str, &str)| match *kind {
        "" => json!({ "create": { "status": status } }),
        kind => json!({ "create": { "status": status, "error": { "type": kind, "reason": reason } } }),
    };
    json!({ "items": items.iter().map(item).collect::<Vec<_>>() }).to_string()
}

const MADE: (u16, &str, &str) = (201, "", "");
const THERE: (u16, &str, &str) = (409, "version_conflict_engine_exception", "[u.1.ADDED]: version conflict");

/// What the question for documents is answered with: each is of this epoch, and of the seq that is asked for.
fn holders(asked: &Seen, epoch: &str) -> String {
    let seq = |id: &Value| id.as_str().unwrap().split('.').nth(1).unwrap().parse::<u64>().unwrap();
    let docs = asked.lines()[0]["docs"].as_array().unwrap().clone();
    let docs = docs.iter().map(|doc| json!({ "found": true, "_source": { "epoch": epoch, "seq": seq(&doc["_id"]) } }));
    json!({ "docs": docs.collect::<Vec<_>>() }).to_string()
}

fn items(seqs: std::ops::RangeInclusive<u64>) -> Vec<Item> {
    seqs.map(item).collect()
}

#[tokio::test]
async fn a_document_has_the_id_of_its_entry_and_its_line() {
    let (mut sink, seen) = sink(&config(), |_, seen| (200, bulk(&vec![MADE; seen.seqs().len()])));
    sink.deliver(&items(1..=2)).await.unwrap();
    let seen = seen.lock().unwrap();
    assert_eq!(seen.len(), 1);
    assert_eq!(
        seen[0].what,
        "POST /es/_bulk?filter_path=errors%2Citems.*._index%2Citems.*.status%2Citems.*.error.type%2Citems.*.error.reason"
    );
    assert_eq!(seen[0].headers[CONTENT_TYPE], "application/x-ndjson");
    let lines = seen[0].lines();
    assert_eq!(lines[2], json!({ "create": { "_index": "decklog", "_id": "u.2.MODIFIED" } }));
    assert_eq!(
        lines[3],
        json!({
            "@timestamp": "2026-11-21T10:15:00.000000Z",
            "seq": 2,
            "epoch": "e",
            "id": "u.2.MODIFIED",
            "type": "MODIFIED",
            "evidence": "watched",
            "cluster": { "name": "prod", "uid": "c" },
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "resource": "deployments",
            "namespace": "shop",
            "name": "web",
            "uid": "u",
            "resourceVersion": "2",
            "change": { "areas": ["spec"], "paths": [], "managers": [] },
            "entry": String::from_utf8(item(2).line.to_vec()).unwrap(),
        })
    );
}

/// What JSON can say and a store may not be able to hold is only in the text.
#[tokio::test]
async fn whatever_an_object_holds_is_in_one_text() {
    let change = r#"{"areas":["spec"],"patch":[{"op":"add","path":"/spec/a\u0000","value":1e400},{"op":"add","path":"/\ud83e\udd80","value":1}],"managers":[{"manager":"kubectl","operation":"Apply"}]}"#;
    let odd = r#"{"areas":["spec"],"patch":[{"op":"add","path":"/\ud800","value":1}],"managers":[]}"#;
    let object = br#"{"a\u0000b":"\ud800","n":1e400,"n":123456789012345678901234567890,"s":"\u0000"}"#;
    let cluster = Where { name: "Prod/EU 1".into(), uid: "c".into() };
    let gap = Gap { why: Why::Expired, from: Some(ResourceVersion::new("5")), to: None, recovered: 0 };
    let draft = |seq, change| EntryBuilder {
        seq: Seq(seq),
        epoch: "e",
        time: "2026-11-21T10:15:00.000000Z",
        happened: None,
        happened_between: None,
        op: EntryType::Modified,
        evidence: None,
        cluster: &cluster,
        api_version: "v1",
        kind: "X",
        resource: "xs",
        namespace: "",
        name: "x",
        uid: "u",
        version: "9",
        managers: None,
        change: Some(change),
        object: Some(object),
        gap: None,
        actor: None,
        redacted: &[],
    };
    let since = Some((&gap, Some("2026-11-20T00:00:00Z")));
    let gap = EntryBuilder { op: EntryType::Gap, change: None, object: None, gap: since, ..draft(3, change) };
    let managers = Some(r#"[{"manager":"kubectl-create","operation":"Update","by":"moved"}]"#);
    let added = EntryBuilder { op: EntryType::Added, managers, change: None, ..draft(4, change) };
    let drafts = [draft(1, change), draft(2, odd), gap, added];
    let lines: Vec<Bytes> = drafts.iter().map(|draft| render(draft).line.into()).collect();
    let batch: Vec<Item> = lines.iter().map(|line| Item::new(Seq(1), EntryType::Modified, line.clone())).collect();
    let config = Settings { index: "log-{cluster}-{namespace}-{date}".parse().unwrap(), ..config() };
    let (mut sink, seen) = sink(&config, |_, seen| (200, bulk(&vec![MADE; seen.seqs().len()])));
    sink.deliver(&batch).await.unwrap();
    let sent = seen.lock().unwrap()[0].lines();
    assert_eq!(sent[0]["create"]["_index"], "log-prod-eu-1-_-2026-11-21");
    for (at, line) in lines.iter().enumerate() {
        assert_eq!(sent[at * 2 + 1]["entry"].as_str().unwrap().as_bytes(), line);
    }
    assert_eq!(sent[1]["change"], json!({ "areas": ["spec"], "paths": ["/spec/a\0", "/🦀"], "managers": ["kubectl"] }));
    assert_eq!(sent[3].get("change"), None, "a path that is no text");
    assert_eq!((sent[1].get("managers"), &sent[7]["managers"]), (None, &json!(["kubectl-create"])));
    assert_eq!(sent[5]["gap"], json!({ "why": "expired", "from": "5", "since": "2026-11-20T00:00:00Z" }));
}

/// An answer of 200 says nothing yet: each document has its own.
#[tokio::test]
async fn each_document_is_looked_at() {
    type Expected = fn(&SinkError) -> bool;
    let retry: Expected = |error| matches!(error, SinkError::Retry { after: None, .. });
    let later: Expected = |error| matches!(error, SinkError::Retry { after: Some(CREDENTIALS_WAIT), .. });
    let refused: Expected = |error| matches!(error, SinkError::Refused { .. });
    let halt: Expected = |error| matches!(error, SinkError::Halt { .. });
    for (item, expected) in [
        ((429, "es_rejected_execution_exception", "queue is full"), retry),
        ((429, "cluster_block_exception", "disk usage exceeded flood-stage watermark"), later),
        ((503, "unavailable_shards_exception", "primary shard is not active"), retry),
        ((500, "", ""), retry),
        ((409, "other_exception", ""), retry),
        ((400, "index_closed_exception", "closed"), retry),
        ((403, "cluster_block_exception", "index read-only"), later),
        ((403, "security_exception", "action is unauthorized"), later),
        ((400, "mapper_parsing_exception", "failed to parse field [seq]"), refused),
        ((400, "strict_dynamic_mapping_exception", "introduction of [x]"), refused),
        ((400, "illegal_argument_exception", "Limit of total fields"), refused),
        ((400, "illegal_argument_exception", "no write index is defined for alias [decklog]"), halt),
        ((404, "index_not_found_exception", "no such index [decklog]"), halt),
    ] {
        // What comes after it may be there: it is not counted, and is found there at the next try.
        let answer = bulk(&[MADE, THERE, item, MADE]);
        let (mut sink, seen) =
            sink(&config(), move |number, seen| (200, if number == 0 { answer.clone() } else { holders(seen, "e") }));
        let failure = sink.deliver(&items(1..=4)).await.unwrap_err();
        assert!(failure.taken == 2 && expected(&failure.error), "{item:?} gave {failure:?}");
        let text = failure.error.to_string();
        assert!(text.starts_with(&format!("http://127.0.0.1:1/… answered {} {}", item.0, item.1)), "{text}");
        assert_eq!(seen.lock().unwrap().len(), 2);
    }
}

/// A repeat changes nothing, and an id that another entry has keeps no entry out.
#[tokio::test]
async fn an_id_that_is_taken_is_looked_at() {
    let says = |epoch: &'static str| {
        move |_: usize, seen: &Seen| match seen.what.contains("_mget") {
            true => (200, holders(seen, epoch)),
            false => {
                let lines = seen.lines();
                let taken = |action: &Value| action["create"]["_id"].as_str().unwrap().ends_with("MODIFIED");
                let item = |action| if taken(action) { THERE } else { MADE };
                (200, bulk(&lines.iter().step_by(2).map(item).collect::<Vec<_>>()))
            }
        }
    };
    let (mut sink, seen) = sink(&config(), says("e"));
    sink.deliver(&items(1..=2)).await.unwrap();
    let what: Vec<String> = seen.lock().unwrap().iter().map(|seen| seen.what.clone()).collect();
    assert_eq!((what.len(), what[1].as_str()), (2, "POST /es/_mget?_source_includes=epoch%2Cseq"));
    let (mut sink, seen) = self::sink(&config(), says("another"));
    sink.deliver(&items(1..=2)).await.unwrap();
    let bodies: Vec<Vec<Value>> = seen.lock().unwrap().iter().map(Seen::lines).collect();
    let ids = [0, 2].map(|at| bodies[2][at]["create"]["_id"].as_str().unwrap());
    assert_eq!((bodies.len(), ids), (3, ["u.1.MODIFIED.e.1", "u.2.MODIFIED.e.2"]));
    // Nobody may look.
    for (status, text) in [(403, "{}".to_owned()), (200, json!({ "docs": [{ "found": false }] }).to_string())] {
        let (mut sink, _) = self::sink(&config(), move |number, _| match number {
            0 => (200, bulk(&[THERE])),
            _ => (status, text.clone()),
        });
        let failure = sink.deliver(&items(1..=1)).await.unwrap_err();
        assert!(matches!(failure, Failure { taken: 0, error: SinkError::Retry { .. } }), "{failure}");
    }
}

#[tokio::test]
async fn an_answer_that_is_no_list_of_documents_is_no_success() {
    for text in ["", "<html>", "{}", r#"{"items":[]}"#, &bulk(&[MADE]), &bulk(&[MADE; 3])] {
        let answer = text.to_owned();
        let (mut sink, _) = sink(&config(), move |_, _| (200, answer.clone()));
        let failure = sink.deliver(&items(1..=2)).await.unwrap_err();
        assert!(matches!(failure, Failure { taken: 0, error: SinkError::Retry { .. } }), "{text}: {failure}");
    }
}

#[tokio::test]
async fn each_status_of_a_whole_request_has_its_meaning() {
    for status in [301, 400, 401, 403, 404, 405, 406, 408, 413, 429, 500, 502, 503, 504] {
        let (mut sink, _) = sink(&config(), move |_, _| (status, "{}".to_owned()));
        let failure = sink.deliver(&items(1..=1)).await.unwrap_err();
        let wait = Some(Duration::from_secs(3));
        let right = match (status, &failure.error) {
            (400 | 413, error) => matches!(error, SinkError::Refused { .. }),
            (401 | 403, error) => {
                matches!(error, SinkError::Retry { text, after: Some(CREDENTIALS_WAIT) } if text.contains("`password_file`"))
            }
            (408 | 429 | 500.., error) => matches!(error, SinkError::Retry { after, .. } if *after == wait),
            (_, error) => matches!(error, SinkError::Halt { .. }),
        };
        assert!(right && failure.taken == 0, "{status} gave {failure:?}");
    }
}

#[tokio::test]
async fn what_is_too_large_is_halved_and_the_server_not_asked_again() {
    let (mut sink, seen) = sink(&config(), |_, seen| match seen.seqs().len() {
        4.. => (413, String::new()),
        count => (200, bulk(&vec![MADE; count])),
    });
    sink.deliver(&items(1..=10)).await.unwrap();
    let asked = seen.lock().unwrap().len();
    sink.deliver(&items(11..=20)).await.unwrap();
    let seen: Vec<Vec<u64>> = seen.lock().unwrap().iter().map(Seen::seqs).collect();
    let taken: Vec<u64> = seen.iter().filter(|seqs| seqs.len() < 4).flatten().copied().collect();
    assert_eq!(taken, (1..=20).collect::<Vec<_>>());
    assert!(seen[asked..].iter().all(|seqs| seqs.len() < 4), "{seen:?}");
}

/// A request may be refused as a whole for one of its documents.
#[tokio::test]
async fn the_entry_that_spoils_a_request_is_found() {
    let (mut sink, _) = sink(&config(), |_, seen| match seen.seqs() {
        seqs if seqs.contains(&6) => (400, r#"{"error":{"type":"action_request_validation_exception"}}"#.to_owned()),
        seqs => (200, bulk(&vec![MADE; seqs.len()])),
    });
    let failure = sink.deliver(&items(1..=9)).await.unwrap_err();
    assert!(matches!(failure, Failure { taken: 5, error: SinkError::Refused { .. } }), "{failure}");
    let mut broken = items(1..=3);
    broken[1].line = Bytes::from_static(b"no entry");
    let failure = sink.deliver(&broken).await.unwrap_err();
    assert!(matches!(failure, Failure { taken: 1, error: SinkError::Refused { .. } }), "{failure}");
}

#[tokio::test]
async fn no_text_quotes_what_was_sent_or_a_secret() {
    let dir = tempfile::tempdir().unwrap();
    let password_file = dir.path().join("password");
    std::fs::write(&password_file, "s3cret-p4ssword\n").unwrap();
    let config = Settings { user: Some("us3r".into()), password_file: Some(password_file.clone()), ..config() };
    let (mut sink, seen) = sink(&config, |number, seen| {
        let authorization = seen.headers[AUTHORIZATION].to_str().unwrap();
        let name = "failed to parse field in document with id 'u.1.MODIFIED', value deployments of 2026-11-21T10:15:00";
        match number {
            0 => (200, bulk(&[(400, "mapper_parsing_exception", name)])),
            1 => (200, bulk(&[(400, "Bad Type deployments", authorization)])),
            _ => (401, format!("bad credentials {authorization}")),
        }
    });
    let mut texts = Vec::new();
    for _ in 0..3 {
        texts.push(sink.deliver(&items(1..=1)).await.unwrap_err().error.to_string());
    }
    // A new password is used at once.
    std::fs::write(&password_file, "another").unwrap();
    texts.push(sink.deliver(&items(1..=1)).await.unwrap_err().error.to_string());
    let seen = seen.lock().unwrap();
    let basic = |at: usize| seen[at].headers[AUTHORIZATION].to_str().unwrap().to_owned();
    assert_eq!(
        (basic(0).as_str(), basic(3).as_str()),
        ("Basic dXMzcjpzM2NyZXQtcDRzc3dvcmQ=", "Basic dXMzcjphbm90aGVy")
    );
    for text in &texts {
        for secret in ["s3cret", "dXMzcjpz", "deployments", "u.1.MODIFIED"] {
            assert!(!text.contains(secret), "{text}");
        }
    }
}

#[tokio::test]
async fn requests_are_compressed_and_have_the_key() {
    let dir = tempfile::tempdir().unwrap();
    let key = dir.path().join("key");
    std::fs::write(&key, "aWQ6a2V5\n").unwrap();
    let config = Settings { compress: Gzip::Gzip, api_key_file: Some(key), ..config() };
    let (mut sink, seen) = sink(&config, |_, _| (200, bulk(&[MADE])));
    sink.deliver(&items(1..=1)).await.unwrap();
    let seen = seen.lock().unwrap();
    assert_eq!(seen[0].headers[AUTHORIZATION], "ApiKey aWQ6a2V5");
    assert_eq!(seen[0].headers[CONTENT_ENCODING], "gzip");
    let mut text = String::new();
    std::io::Read::read_to_string(&mut flate2::read::GzDecoder::new(&seen[0].body[..]), &mut text).unwrap();
    assert!(text.starts_with(r#"{"create":{"_index":"decklog","_id":"u.1.MODIFIED"}}"#), "{text}");
}

#[tokio::test]
async fn the_index_template_is_made_once() {
    let config = Settings { index: "log-{cluster}-{date}".parse().unwrap(), ..config() };
    let (mut sink, seen) =
        sink(&config, |number, _| ([404, 400, 404, 404, 200, 200, 403, 404, 404, 400, 200][number], String::new()));
    sink.bind("search", &crate::core::model::Cluster::default());
    let error = sink.check().await.unwrap_err();
    assert!(matches!(&error, SinkError::Halt { text } if text.contains("`decklog sink init search`")), "{error}");
    assert!(sink.provision().await.unwrap().contains("made the index template log-cluster-date for log-*-*"));
    assert!(sink.provision().await.unwrap().contains("is there already"));
    sink.check().await.unwrap();
    // No template, and yet indices that somebody made.
    sink.check().await.unwrap();
    let seen = seen.lock().unwrap();
    let what: Vec<&str> = seen.iter().map(|seen| seen.what.as_str()).collect();
    assert_eq!(
        what,
        [
            "GET /es/_index_template/log-cluster-date",
            "POST /es/_security/user/_has_privileges",
            "HEAD /es/log-*-*?allow_no_indices=false",
            "GET /es/_index_template/log-cluster-date",
            "PUT /es/_index_template/log-cluster-date",
            "GET /es/_index_template/log-cluster-date",
            "GET /es/_index_template/log-cluster-date",
            "POST /es/_security/user/_has_privileges",
            "GET /es/_index_template/log-cluster-date",
            "POST /es/_security/user/_has_privileges",
            "HEAD /es/log-*-*?allow_no_indices=false",
        ]
    );
    let needs = sink.provisioning_script().unwrap();
    assert_eq!(seen[4].body, needs);
    assert_eq!(serde_json::from_str::<Value>(&needs).unwrap()["index_patterns"], json!(["log-*-*"]));
}

/// Of a refusal only the sentence in it is quoted, and what it asks for.
#[tokio::test]
async fn a_refusal_is_reported_in_a_sentence() {
    let error = |kind: &str, reason: &str| json!({"error": {"root_cause": [{}], "type": kind, "reason": reason}, "status": 400});
    let text = async |what: &str, status: u16, body: String| {
        let (mut sink, _) = sink(&config(), move |number, _| match number {
            0 => (404, json!({"error": {"type": "resource_not_found_exception"}}).to_string()),
            _ => (status, body.clone()),
        });
        let error = match what {
            "init" => sink.provision().await.unwrap_err(),
            _ => {
                sink.check().await.unwrap_err();
                sink.deliver(&items(1..=1)).await.unwrap_err().error
            }
        };
        error.to_string()
    };
    let clash = error("illegal_argument_exception", "matching patterns from existing templates [mine];");
    let said = text("init", 400, clash.to_string()).await;
    assert!(
        said.starts_with(
            "http://127.0.0.1:1/… answered 400 Bad Request: illegal_argument_exception: matching patterns from existing \
             templates [mine]; let somebody"
        ) && said.contains("--print"),
        "{said}"
    );
    let said = text("init", 403, error("security_exception", "no permissions").to_string()).await;
    assert!(said.contains("security_exception: no permissions; let somebody who may make"), "{said}");
    let said = text("deliver", 400, json!({"error": "no handler found", "status": 400}).to_string()).await;
    assert_eq!(said, "http://127.0.0.1:1/… answered 400 Bad Request: no handler found");
    // Anybody may answer 404 to a question for an index template.
    let (mut sink, _) = sink(&config(), |_, _| (404, "404 page not found".to_owned()));
    let said = sink.check().await.unwrap_err().to_string();
    assert!(said.contains("404 page not found; set `url` to an Elasticsearch or OpenSearch"), "{said}");
}

#[tokio::test]
async fn rights_that_are_missing_are_named_by_a_check() {
    let granted =
        |read: bool| json!({ "has_all_requested": read, "index": { "decklog": { "create_doc": true, "read": read } } });
    for (answer, says) in [
        ((200, granted(true).to_string()), None),
        (
            (200, granted(false).to_string()),
            Some("http://127.0.0.1:1/… lets this user not read in decklog; give it that right"),
        ),
        // Servers without users, or with users of another kind.
        ((500, json!({ "error": "Security must be explicitly enabled" }).to_string()), None),
        ((405, "{}".to_owned()), None),
    ] {
        let (mut sink, seen) =
            sink(&config(), move |number, _| if number == 0 { (200, "{}".to_owned()) } else { answer.clone() });
        assert_eq!(sink.check().await.err().map(|error| error.to_string()).as_deref(), says);
        let asked = json!({ "index": [{ "names": ["decklog"], "privileges": ["create_doc", "read"] }] });
        assert_eq!(seen.lock().unwrap()[1].lines(), [asked]);
    }
}

#[test]
fn credentials_that_can_never_work_are_refused_at_once() {
    let with = |json: Value| {
        let mut whole = json!({ "url": "https://x.example" });
        whole.as_object_mut().unwrap().extend(json.as_object().unwrap().clone());
        let settings: Settings = serde_json::from_value(whole).map_err(|error| error.to_string())?;
        ElasticsearchSink::new(&settings).map(drop)
    };
    with(json!({})).unwrap();
    with(json!({ "user": "a", "password_file": "/x" })).unwrap();
    for (config, says) in [
        (json!({ "user": "a" }), "`user` needs `password_file`"),
        (json!({ "password_file": "/x" }), "`password_file` needs `user`"),
        (json!({ "user": "a", "password_file": "/x", "api_key_file": "/y" }), "exclude each other"),
        (json!({ "url": "ftp://x" }), "a URL with the scheme"),
    ] {
        let text = with(config).unwrap_err();
        assert!(text.contains(says), "{text}");
    }
}

/// What it took is known from its answer, or from its answer to the same documents once more.
#[tokio::test]
async fn what_a_2xx_says_of_documents_counts() {
    let listed = r#"{"errors":false,"items":[{"create":{"status":201}},{"create":{"status":201}}]}"#;
    let other_action = r#"{"errors":false,"items":[{"index":{"status":200}},{"index":{"status":201}}]}"#;
    for (status, body, taken) in [
        (200, listed, true),
        (201, listed, true),
        (207, listed, true),
        (200, other_action, true),
        (200, r#"{"took":1,"errors":false}"#, true),
        (200, r#"{"took":1,"errors":false,"items":[]}"#, true),
        (200, r#"{"took":1,"errors":true}"#, false),
        (200, r#"{"errors":false,"items":[{"create":{"status":201}}]}"#, false),
        (200, "<html>maintenance</html>", false),
        (200, "{}", false),
        (202, "", false),
        (204, "", false),
        (200, &listed[..40], false),
    ] {
        let text = body.to_owned();
        let (mut sink, seen) = sink(&config(), move |_, _| (status, text.clone()));
        let end = sink.deliver(&items(1..=2)).await;
        assert_eq!((end.is_ok(), seen.lock().unwrap().len()), (taken, 1), "{status} {body}: {end:?}");
        if let Err(failure) = end {
            let text = failure.error.to_string();
            assert!(failure.taken == 0 && matches!(failure.error, SinkError::Retry { .. }), "{failure:?}");
            assert!(text.contains("without what became of each of 2 documents; set `url` to"), "{text}");
        }
    }
}
